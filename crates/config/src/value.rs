//! Converts texts of flags and of configuration files into values, and values into the texts of files.
//!
//! Each function that reads returns a sentence for the operator if the text has no meaning.

use core::fmt::Write as _;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;

use clap::ValueEnum;
use ring::Choice;
use sendfile::{Caching, Window};

use super::{
    Account, Address, Pattern, Peers, Prefix, Rate, Tags, Tls, TlsFiles, UnixSocket, expand, rule,
    suggest,
};
use crate::{placeholder, site};

/// The allowed numbers of workers.
pub const THREADS: RangeInclusive<i64> = 1..=1024;
/// The allowed maximum numbers of connections.
pub const CONNECTIONS: RangeInclusive<i64> = 1..=1 << 20;
/// The bytes that the longest head of a request or a response may have.
pub const HEAD_BYTES: RangeInclusive<u64> = 1024..=256 * 1024;
/// The fields that a head may have at most.
pub const FIELDS: RangeInclusive<i64> = 1..=4096;
/// The ranges that a request may ask for at most.
pub const RANGES: RangeInclusive<i64> = 1..=1024;

/// The allowed numbers of capture files.
pub const CAPTURE_FILES: RangeInclusive<i64> = 1..=1000;

/// The seconds of a day.
pub(super) const DAY: u64 = 24 * 60 * 60;
/// The seconds for which browsers may be told to use TLS only, at most: ten years.
const HSTS_SECONDS_MAX: u64 = 3650 * DAY;

/// The word for a certificate that the server makes in memory.
pub(super) const SELF_SIGNED: &str = "self-signed";
/// The word for a certificate that the server gets by ACME.
pub(super) const ACME: &str = "acme";

/// The maximum length of the name of an interface (`IFNAMSIZ` without the terminating zero).
const INTERFACE_BYTES_MAX: usize = 15;

/// The time units of rates, in seconds.
const PER: [(&str, f64); 3] = [("s", 1.0), ("min", 60.0), ("h", 3600.0)];

/// The kernel interface to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// io_uring if available, else epoll
    Auto,
    /// io_uring, or an error
    Uring,
    /// epoll and threads
    Epoll,
}

impl From<Driver> for Choice {
    fn from(driver: Driver) -> Self {
        match driver {
            Driver::Auto => Self::Auto,
            Driver::Uring => Self::Uring,
            Driver::Epoll => Self::Epoll,
        }
    }
}

/// The files that stay in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// Everything stays
    Always,
    /// Nothing stays
    Never,
    /// What is requested often stays
    #[value(alias = "auto")]
    Popular,
}

impl From<Cache> for Caching {
    fn from(cache: Cache) -> Self {
        match cache {
            Cache::Always => Self::Always,
            Cache::Never => Self::Never,
            Cache::Popular => Self::Popular,
        }
    }
}

/// The source of entity tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Etag {
    /// Size, times of modification and of change, inode
    Stat,
    /// The contents
    Hash,
}

impl From<Etag> for Tags {
    fn from(etag: Etag) -> Self {
        match etag {
            Etag::Stat => Self::Stat,
            Etag::Hash => Self::Hash,
        }
    }
}

/// Reads one of the words of an enum. `other` is what is allowed as well, such as `, or a table`.
pub(super) fn choice_or<E: ValueEnum>(text: &str, other: &str) -> Result<E, String> {
    E::from_str(text, false).map_err(|_| {
        let names = names::<E>();
        let lower = text.to_ascii_lowercase();
        let meant = MEANT
            .iter()
            .find(|(theirs, ours)| *theirs == lower && names.iter().any(|name| name == ours));
        let near = suggest::nearest(&lower, names.iter().map(String::as_str));
        let near = meant.map(|(_, ours)| *ours).or(near);
        let advice = near.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        // The word is a value of a field.
        let is_field = ["public", "private", "max-age", "no-cache", "no-store"]
            .iter()
            .any(|word| lower.starts_with(word));
        let of_field =
            "; for `Cache-Control` write `headers = [{ set = { Cache-Control = \"…\" } }]`";
        let of_field = if is_field { of_field } else { "" };
        format!("expected {}{advice}{of_field}", words::<E>(other))
    })
}

/// Words of other servers, and the words of ours with the same meaning.
const MEANT: &[(&str, &str)] = &[
    ("all", "follow"),
    ("first", "round-robin"),
    ("force", "redirect"),
    ("if_not_owner", "beneath"),
    ("io_uring", "uring"),
    ("ip_hash", "hash"),
    ("least-time", "least"),
    ("least_conn", "least"),
    ("least_time", "least"),
    ("leastconn", "least"),
    ("off", "never"),
    ("on", "redirect"),
    ("only", "redirect"),
    ("permanent", "redirect"),
    ("redirect-permanent", "redirect"),
    ("rr", "round-robin"),
    ("source", "hash"),
    ("uri_hash", "hash"),
    ("weak", "stat"),
];

/// The words of an enum, and `other`, as the end of `expected …`.
pub(super) fn words<E: ValueEnum>(other: &str) -> String {
    let names: Vec<_> = names::<E>().iter().map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [others @ .., last] if !others.is_empty() => {
            format!("{} or {last}{other}", others.join(", "))
        }
        names => names.concat() + other,
    }
}

/// The names of the variants of an enum.
fn names<E: ValueEnum>() -> Vec<String> {
    let values = E::value_variants().iter().filter_map(E::to_possible_value);
    values.map(|value| value.get_name().to_owned()).collect()
}

/// The names of formats after the file of a log, as nginx and Apache have them.
const FORMATS: [&str; 3] = [" combined", " common", " json"];

/// Reads the destination of an access log: the path of a file, `-` or `none`.
///
/// # Errors
///
/// A sentence for the operator, about a word of other servers. A file with such a name is `./NAME`.
pub fn log(text: &str) -> Result<String, String> {
    let instead = match text {
        _ if rule::is_refusal(text) => "without a log it is \"none\"",
        "stdout" => "standard output is \"-\"",
        "stderr" => {
            "the log goes to standard output, which is \"-\", or to a file, not among the messages"
        }
        "journal" | "journald" => {
            "the journal is `log = { journald = \"/run/systemd/journal/socket\" }` in a configuration file"
        }
        _ if text == "syslog" || text.starts_with("syslog:") => {
            "syslog is `log = { syslog = \"unix:/dev/log\" }` in a configuration file"
        }
        "console" => "standard output is \"-\"",
        "true" | "yes" | "on" => "a log has a file, or standard output, which is \"-\"",
        _ if text.starts_with('|') => {
            "no program takes the lines: a log has a file, or standard output, which is \"-\""
        }
        _ if FORMATS.iter().any(|format| text.ends_with(format)) => {
            return Err(format!(
                "the format of a log is a key: `log = {{ file = \"FILE\", format = \"{}\" }}`",
                text.rsplit(' ').next().unwrap_or_default()
            ));
        }
        _ => return Ok(text.to_owned()),
    };
    let file =
        if text.contains([':', '|']) { String::new() } else { format!("; \"./{text}\" is a file") };
    Err(format!("{instead}{file}"))
}

/// The word for a value of an enum.
pub(super) fn word<E: ValueEnum + Into<V> + Copy, V: PartialEq>(value: &V) -> String {
    let variant = E::value_variants().iter().find(|variant| (**variant).into() == *value);
    let name = variant.and_then(E::to_possible_value);
    name.map(|name| name.get_name().to_owned()).unwrap_or_default()
}

/// The address to listen on, unless there is another one.
#[must_use]
pub fn default_address() -> Address {
    Address::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
}

/// Reads an address to listen on, which is no name but `localhost`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn address(text: &str) -> Result<Address, String> {
    if let Some(rest) = text.strip_prefix("unix:") {
        return unix(rest).map(Address::Unix);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        if let IpAddr::V6(ip) = address.ip()
            && let Some(v4) = ip.to_ipv4_mapped()
        {
            // A socket for IPv6 only refuses such an address, and no client could reach it.
            let v4 = SocketAddr::from((v4, address.port()));
            return Err(format!(
                "this is an IPv4 address in IPv6 notation, which no client can reach: listen on {v4}"
            ));
        }
        return Ok(Address::Ip(address));
    }
    // `:80` and `80` mean all IPv4 addresses, as with other servers.
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok(Address::Ip(SocketAddr::from(([0, 0, 0, 0], port))));
    }
    // Each machine has this name, so it needs no look-up.
    if let Some((name, port)) = text.split_once(':')
        && name.eq_ignore_ascii_case("localhost")
        && let Ok(port) = port.parse::<u16>()
    {
        return Ok(Address::Ip((Ipv4Addr::LOCALHOST, port).into()));
    }
    if text.starts_with(['/', '.']) {
        return Err(format!("a Unix socket is unix:PATH: write \"unix:{text}\""));
    }
    let expected = "expected ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH";
    Err(match listen_of_others(text) {
        Some(advice) => format!("{expected}; {advice}"),
        None => expected.to_owned(),
    })
}

/// Says what to write instead of an address with words of other servers; `None` for other texts.
fn listen_of_others(text: &str) -> Option<String> {
    let (first, words) = text.trim_end_matches(';').split_once(' ').unwrap_or((text, ""));
    if let Some((scheme, _)) = text.split_once("://") {
        return Some(match scheme {
            "https" => {
                "an address has no scheme: write `{ address = \"ADDRESS:PORT\", tls = true }`"
                    .to_owned()
            }
            _ => "an address has no scheme".to_owned(),
        });
    }
    let port = first.strip_prefix("*:").unwrap_or(first);
    let shown = match port.parse::<u16>() {
        Ok(port) => format!(":{port}"),
        Err(_) if first.parse::<SocketAddr>().is_ok() => first.to_owned(),
        Err(_) => return None,
    };
    let has = |word: &str| words.split_ascii_whitespace().any(|one| one == word);
    let default = if has("default_server") { ", and `default = true` into the site" } else { "" };
    if has("ssl") || has("quic") {
        return Some(format!("write `{{ address = \"{shown}\", tls = true }}`{default}"));
    }
    let is_other = first != text || first.starts_with('*');
    is_other.then(|| format!("write \"{shown}\"{default}"))
}

/// Reads `PATH[,mode=OCTAL][,owner=[USER][:GROUP]]`. The path may have commas, but no `,word=`.
fn unix(text: &str) -> Result<UnixSocket, String> {
    let mut socket = UnixSocket::default();
    let mut rest = text;
    while let Some((before, name, value)) = last_option(rest) {
        match name {
            "mode" => {
                socket.mode = Some(mode(value).map_err(|why| format!("mode={value}: {why}"))?)
            }
            "owner" => {
                (socket.user, socket.group) =
                    owner(value).map_err(|why| format!("owner={value}: {why}"))?;
            }
            _ => {
                return Err(format!("unknown option {name}=; a Unix socket has mode= and owner="));
            }
        }
        rest = before;
    }
    if rest.is_empty() {
        return Err("unix: needs a path, as in unix:/run/samum.sock,mode=660".into());
    }
    socket.path = rest.into();
    Ok(socket)
}

/// Splits off the last `,name=value`: the text before it, the name and the value.
fn last_option(text: &str) -> Option<(&str, &str, &str)> {
    let (before, option) = text.rsplit_once(',')?;
    let (name, value) = option.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_name.then_some((before, name, value))
}

/// Reads the permissions of a file.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let is_octal = text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| "expected three octal digits, such as 660".to_owned())
}

/// Reads `[USER][:GROUP]`.
pub(super) fn owner(text: &str) -> Result<(Option<String>, Option<String>), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        return Err("expected USER, USER:GROUP or :GROUP".into());
    }
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Ok((name(user), name(group)))
}

/// Reads `USER` or `USER:GROUP`.
pub(super) fn account(text: &str) -> Result<Account, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control())
    };
    if !is_name(user) || !group.is_none_or(is_name) {
        return Err("expected USER or USER:GROUP".to_owned());
    }
    Ok(Account { user: user.to_owned(), group: group.map(str::to_owned) })
}

/// Reads the certificate of a command line: `CERT,KEY`, `CERT` with the key in the same file, or `self-signed`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn tls(text: &str) -> Result<Tls, String> {
    if text == SELF_SIGNED {
        return Ok(Tls::default());
    }
    if text == ACME {
        return Err("certificates by ACME need `hosts` and `[acme]` of a configuration file (docs/certificates.md)".to_owned());
    }
    let files: Vec<_> = text.split(',').collect();
    let pair = match files[..] {
        [certificate] if !certificate.is_empty() => TlsFiles::new(certificate.into(), None),
        [certificate, key] if !certificate.is_empty() && !key.is_empty() => {
            TlsFiles::new(certificate.into(), Some(key.into()))
        }
        _ => {
            return Err("expected CERT,KEY, which are two files, or `self-signed`; paths with commas are for a \
                        configuration file"
                .to_owned());
        }
    };
    Ok(Tls { pairs: vec![pair], ..Tls::default() })
}

/// Reads a URL with `https`.
pub(super) fn https_url(text: &str) -> Result<String, String> {
    let rest =
        text.strip_prefix("https://").filter(|rest| !rest.is_empty() && !rest.starts_with('/'));
    match rest {
        Some(rest) if rest.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err("expected a URL with `https`, such as `https://ca.example/directory`".to_owned()),
    }
}

/// Reads an address of electronic mail.
pub(super) fn mail(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'?' | b'<' | b'>');
    match address.split_once('@') {
        Some((name, host))
            if !name.is_empty() && !host.is_empty() && address.bytes().all(is_plain) =>
        {
            Ok(address.to_owned())
        }
        _ => Err("expected an address such as `admin@example.org`".to_owned()),
    }
}

/// Reads the name of a file in a directory.
///
/// # Errors
///
/// A sentence for the operator.
pub fn index(text: &str) -> Result<String, String> {
    if let Some(variable) = placeholder::any(text) {
        return Err(format!(
            "{variable} is not replaced: an index is the name of a file in the directory, such as index.html; \
             `clean-urls = true` finds `a.html` for `/a`"
        ));
    }
    if text.is_empty() || text.contains(['/', '\0']) || text == "." || text == ".." {
        return Err("expected the name of a file in the directory, such as index.html".into());
    }
    Ok(text.to_owned())
}

/// The first of these names that is there twice.
pub(super) fn repeated<T: PartialEq>(names: &[T]) -> Option<&T> {
    names.iter().enumerate().find_map(|(at, name)| names[..at].contains(name).then_some(name))
}

/// Reads a number of bytes, with k, m or g for KiB, MiB or GiB.
///
/// # Errors
///
/// A sentence for the operator.
pub fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.as_bytes() {
        [.., b'k'] => (&lower[..lower.len() - 1], 10),
        [.., b'm'] => (&lower[..lower.len() - 1], 20),
        [.., b'g'] => (&lower[..lower.len() - 1], 30),
        _ => (lower, 0),
    };
    // `parse` alone would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty();
    if !is_number {
        return Err("expected a number of bytes, such as 65536, 64k or 1m".to_owned());
    }
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| "too many bytes".to_owned())
}

/// Reads the limit of prefetching, bytes as in [`bytes()`].
///
/// # Errors
///
/// A sentence for the operator.
pub fn readahead(text: &str) -> Result<u64, String> {
    let number = bytes(text)?;
    let most = Window::BYTES_MAX;
    if number > most {
        return Err(format!("expected at most {most} bytes (4 GiB less one byte)"));
    }
    Ok(number)
}

/// The text of a number of bytes.
pub(super) fn bytes_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Reads the bytes that the longest head may have.
///
/// # Errors
///
/// A sentence for the operator.
pub fn head_bytes(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    let is_fit = HEAD_BYTES.contains(&bytes);
    let bytes = usize::try_from(bytes).ok().filter(|_| is_fit);
    bytes.ok_or_else(|| "expected a number of bytes from 1KiB to 256KiB".to_owned())
}

/// Reads bytes per second, such as `20MiB/s`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn bytes_per_second(text: &str) -> Result<u64, String> {
    bytes(text.strip_suffix("/s").unwrap_or(text))
        .map_err(|_| "expected bytes per second, such as 65536, 512KiB/s or 20MiB/s".to_owned())
}

/// Reads seconds.
///
/// # Errors
///
/// A sentence for the operator.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| {
        let whole = in_seconds(text).map(|seconds| format!("; write {seconds}"));
        format!("expected seconds, such as 30 or 0.5{}", whole.unwrap_or_default())
    })?;
    if !(0.1..=1e9).contains(&seconds) {
        return Err("expected from 0.1 to 1000000000 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A time with the units of other servers, such as `1h30m` or `500ms`, in seconds.
fn in_seconds(text: &str) -> Option<f64> {
    let (mut seconds, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let unit = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, behind) = rest.split_at(unit);
        let end = behind.find(|letter: char| letter.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
        let (_, factor) = units.into_iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = next;
    }
    Some(seconds).filter(|seconds| *seconds > 0.0)
}

/// Reads the time for which browsers are told to use TLS only: whole seconds, or days such as `180d`.
pub(super) fn days(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('d') {
        Some(days) => (days, DAY),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        let expected = "expected a time in days or whole seconds, such as 180d or 3600";
        let advice = match text {
            _ if text.starts_with("max-age=") => "; write the number alone",
            "1y" => "; write 365d",
            _ => "",
        };
        return Err(format!("{expected}{advice}"));
    }
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match seconds.filter(|seconds| (1..=HSTS_SECONDS_MAX).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("expected from 1 second to 3650d".to_owned()),
    }
}

/// Reads a rate such as `100/s burst 200` or `30/min`. Without a burst it is as large as one second of the
/// rate, and at least one.
///
/// # Errors
///
/// A sentence for the operator.
pub fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || {
        let advice = rate_of_others(text).map(|rate| format!("; write \"{rate}\""));
        format!(
            "expected a rate such as 100/s, 30/min or 100/s burst 200{}",
            advice.unwrap_or_default()
        )
    };
    let (rate, burst) = match text.split_once(" burst ") {
        Some((rate, burst)) => (rate.trim(), Some(burst.trim())),
        None => (text.trim(), None),
    };
    let (number, unit) = rate.split_once('/').ok_or_else(wrong)?;
    let per = PER.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?.1;
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let per_second = number / per;
    if !(1e-6..=1e9).contains(&per_second) {
        return Err("expected a rate above 0 and up to 1000000000/s".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 1e9")]
    let default = per_second.ceil() as u32;
    let burst = match burst {
        Some(burst) => burst.parse().ok().filter(|burst| *burst > 0).ok_or_else(wrong)?,
        None => default,
    };
    Ok(Rate { per_second, burst })
}

/// A rate as nginx and others write it, such as `10r/s burst=20 nodelay` or `10/minute`, in our words.
fn rate_of_others(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?.trim_start_matches("rate=");
    let (number, unit) = first.split_once('/')?;
    let number = number.strip_suffix('r').unwrap_or(number);
    number.parse::<u32>().ok()?;
    let unit = match unit {
        "s" | "sec" | "second" => "s",
        "m" | "min" | "minute" => "min",
        "h" | "hour" => "h",
        _ => return None,
    };
    let burst = words.find_map(|word| word.strip_prefix("burst="));
    let burst = burst.filter(|burst| burst.parse::<u32>().is_ok());
    Some(match burst {
        Some(burst) => format!("{number}/{unit} burst {burst}"),
        None => format!("{number}/{unit}"),
    })
}

/// The text of a rate.
pub(super) fn rate_text(rate: Rate) -> String {
    format!("{}/s burst {}", rate.per_second, rate.burst)
}

/// Reads an address or a range of addresses.
///
/// # Errors
///
/// A sentence for the operator.
pub fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse()
}

/// Reads an address.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "expected an address such as 10.0.0.1 or fd00::1".to_owned())
}

/// Reads the name of a network interface.
///
/// # Errors
///
/// A sentence for the operator.
pub fn interface(text: &str) -> Result<String, String> {
    let is_wrong = |byte: u8| byte == b'/' || byte == b':' || !byte.is_ascii_graphic();
    if text.is_empty() || text.len() > INTERFACE_BYTES_MAX || text.bytes().any(is_wrong) {
        return Err("expected the name of a network interface, such as eth1".to_owned());
    }
    Ok(text.to_owned())
}

/// Reads a range of addresses, or `unix`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn peers(text: &str) -> Result<Peers, String> {
    text.parse()
}

/// Reads a host, and returns it in the form in which hosts are compared.
pub(super) fn host(text: &str) -> Result<String, String> {
    if let Ok((name, is_wildcard)) = site::canonical(text) {
        return Ok(if is_wildcard { format!("*.{name}") } else { name });
    }
    let is_host = |text: &str| site::canonical(text).is_ok();
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split('/').next().unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        if is_host(host) {
            return Err(format!("a host is no URL; write `{host}`"));
        }
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && is_host(host)
    {
        return Err(format!("a host has no port; write `{host}`, and the port in `listen`"));
    }
    if is_host(&format!("[{text}]")) {
        return Err(format!("an IPv6 address is written in brackets; write `[{text}]`"));
    }
    if !text.is_ascii() {
        return Err("clients send international names in ASCII; write the form that begins with `xn--`, such \
                    as `xn--bcher-kva.example` for `bücher.example`"
            .to_owned());
    }
    if text == "*" {
        return Err(
            "`*` is no host; `default = true` makes a site that gets all other hosts".to_owned()
        );
    }
    if text.starts_with('~') || text.contains(['{', '[', '(', '^', '$', '|']) {
        return Err("a host is no regular expression, and has no alternatives: list each host, or `*.` before a name"
            .to_owned());
    }
    if let Some(name) = text.strip_prefix('.')
        && is_host(name)
    {
        return Err(format!("write `{name}` for the name itself, and `*.{name}` for all below it"));
    }
    if text.contains('*') {
        return Err("a wildcard is `*.` before a name, such as `*.example.org`".to_owned());
    }
    Err("expected a host, such as `example.org`, `*.example.org` or `[2001:db8::1]`".to_owned())
}

/// Reads the path of a URL in its normal form.
pub(super) fn path(text: &str) -> Result<String, String> {
    if let Some(variable) = placeholder::any(text) {
        return Err(format!("{variable} is not replaced: a path has no variables"));
    }
    if !text.starts_with('/') {
        let normal = normal(&format!("/{text}"));
        return Err(format!("a path begins with a slash; did you mean `{normal}`?"));
    }
    if text.contains(['?', '#']) {
        return Err("a path ends before `?` and `#`".to_owned());
    }
    if text.chars().any(crate::text::is_hidden) {
        return Err("a path has no control characters".to_owned());
    }
    if let Some((_, behind)) = text.split_once('%')
        && behind.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2
    {
        return Err("a path is written as the names of files are, without `%`".to_owned());
    }
    let normal = normal(text);
    if normal != text {
        return Err(format!("the path is not in its normal form, which is `{normal}`"));
    }
    rule::path(text)
}

/// Reads the path of a file that takes the place of an answer.
pub(super) fn page(text: &str) -> Result<String, String> {
    let is_url = text.split_once("://").is_some_and(|(scheme, _)| {
        ["http", "https"].iter().any(|one| scheme.eq_ignore_ascii_case(one))
    });
    if is_url || text.starts_with("//") {
        return Err(
            "expected the path of a file of this site, such as `/404.html`, and no URL: the file is sent with the status \
             of the error (a route with `redirect` sends clients elsewhere)"
                .to_owned(),
        );
    }
    if let Some(behind) = text.strip_prefix('=') {
        let path = behind.split(' ').find(|word| word.starts_with('/')).unwrap_or("/404.html");
        return Err(format!("a page has the status of its error anyway; write `{path}`"));
    }
    if let Some(name) = text.strip_prefix('@') {
        return Err(format!(
            "`@{name}` is a location of nginx; expected the path of a file of this site, such as `/404.html`"
        ));
    }
    path(text)
}

/// Reads the path of a fallback.
pub(super) fn fallback(text: &str) -> Result<String, String> {
    let is_status =
        |word: &&str| word.strip_prefix('=').is_some_and(|code| code.parse::<u16>().is_ok());
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let Some(variable) = placeholder::any(text) else {
        if words.iter().any(is_status) {
            return Err("a path that leads to nothing is a 404 anyway: write \"none\"".to_owned());
        }
        return page(text);
    };
    // The list of nginx and Caddy: the requested file comes first anyway, and the last word is the fallback.
    let last = words.last().map(|word| word.split('?').next().unwrap_or_default());
    let fixed = last.filter(|word| word.starts_with('/') && placeholder::any(word).is_none());
    let why = format!("{variable} is not replaced: the requested file comes first anyway");
    Err(match fixed {
        Some(path) => format!("{why}; write `{path}`"),
        None if text.contains(".html") => {
            format!("{why}, and `clean-urls = true` finds `a.html` for `/a`")
        }
        None => format!("{why}; a fallback is a path, such as `/index.html`"),
    })
}

/// The path without empty and dot segments.
fn normal(text: &str) -> String {
    let mut names = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let is_directory =
        ["/", "/.", "/.."].iter().any(|end| text.ends_with(end)) && !names.is_empty();
    format!("/{}{}", names.join("/"), if is_directory { "/" } else { "" })
}

/// Reads the path of a route, which is no pattern.
pub(super) fn route_path(text: &str) -> Result<String, String> {
    let as_pattern = Pattern::new(text);
    if let Err(why) = &as_pattern {
        let why = why.strip_prefix(text).and_then(|why| why.strip_prefix(": ")).unwrap_or(why);
        return Err(format!("a path is no pattern, which is said with `match`: {why}"));
    }
    if text.contains('*') {
        let below =
            text.strip_suffix('*').filter(|below| below.ends_with('/') && !below.contains('*'));
        let below = below.map(|below| format!("`path = \"{below}\"` has all paths below it, or "));
        let below = below.unwrap_or_default();
        return Err(format!("a path has no stars: {below}use `match = \"{text}\"`"));
    }
    path(text)
}

/// Returns whether a pattern begins as a path may.
pub(super) fn begins_as_a_path(pattern: &Pattern) -> bool {
    pattern.shape().starts_with(['/', '*', '?'])
}

/// Reads a pattern for paths.
pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    if text.is_empty() {
        return Err("expected a pattern for paths, such as `*.css`".to_owned());
    }
    Pattern::new(text)
}

/// Reads the name of a site.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().any(crate::text::is_hidden) {
        return Err("expected a name of visible characters".to_owned());
    }
    Ok(text.to_owned())
}

/// The highest number of a capture: it is one digit.
const CAPTURES_MAX: usize = 9;

/// Reads the target of a redirection.
pub(super) fn target(text: &str) -> Result<String, String> {
    let is_absolute = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    if !is_absolute && (!text.starts_with('/') || text.starts_with("//")) {
        let status = text.split(' ').next().filter(|word| word.parse::<u16>().is_ok());
        let advice = match status {
            Some(status) => {
                format!("; the status is a key: `{{ to = \"TARGET\", status = {status} }}`")
            }
            None if text.contains(['$', '%', '{']) => {
                "; a target has no variables but `$0`, `$1` and so on".to_owned()
            }
            None => String::new(),
        };
        return Err(format!(
            "expected a path such as `/new/`, or a URL with http:// or https://{advice}"
        ));
    }
    if let Some((to, word @ ("permanent" | "redirect" | "temporary" | "last" | "break"))) =
        text.rsplit_once(' ')
    {
        let status = if word == "permanent" { 301 } else { 302 };
        return Err(format!("the status is a key: write `{{ to = \"{to}\", status = {status} }}`"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "a URL has visible ASCII characters only; encode others, as in `%20` for a space"
                .to_owned(),
        );
    }
    if text.contains(":splat") {
        let why = "`:splat` is for the files of `redirects`: here `$1` stands for the first star of `match`, and `$0` for \
                   the rest of the path behind the `path` of the route";
        return Err(why.to_owned());
    }
    if text.contains("%{") {
        return Err(no_variable(text, "a target has no variables such as `%{…}`"));
    }
    if let Some(digit) = text.split('\\').skip(1).find_map(|behind| behind.chars().next())
        && digit.is_ascii_digit()
    {
        return Err(format!("the text of a star is `${digit}`, and not `\\{digit}`"));
    }
    // `{host}` is a variable of Caddy.
    let braced = text.split_once('{').and_then(|(_, behind)| behind.split_once('}'));
    let is_name = |name: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'.' | b'_');
        name.len() > 1 && name.bytes().all(is_letter)
    };
    if let Some((name, _)) = braced.filter(|(name, _)| is_name(name)) {
        let variable = format!("{{{name}}}");
        return Err(no_variable(text, &format!("a target has no variables such as `{variable}`")));
    }
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('$') {
        let Some(next) = behind.chars().next().filter(|next| next.is_ascii_digit() || *next == '$')
        else {
            let why = match placeholder::any(text) {
                Some(variable) => format!(
                    "a target has no variables such as {variable}, but `$0`, `$1` and so on; `$$` is the character itself"
                ),
                None => "`$` is followed by a digit; `$$` is the character itself".to_owned(),
            };
            return Err(no_variable(text, &why));
        };
        rest = &behind[next.len_utf8()..];
    }
    // The stars of the pattern are not known yet.
    crate::redirect::check_target(text, CAPTURES_MAX)?;
    Ok(text.to_owned())
}

/// Explains a target with a variable of another server. Most of these redirect to the same URL with `https`.
fn no_variable(target: &str, why: &str) -> String {
    let hosts = ["https://$host", "https://$http_host", "https://$server_name", "https://{"];
    if hosts.iter().any(|host| target.starts_with(host)) {
        return format!(
            "{why}; to send clients to the same URL with `https` write `https = \"redirect\"` into [[site]]"
        );
    }
    why.to_owned()
}

/// Reads the name of a variable of an environment.
pub(super) fn variable_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty()
        || !text.bytes().all(is_plain)
        || text.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err("expected the name of a variable, such as `GIT_PROJECT_ROOT`".to_owned());
    }
    Ok(text.to_owned())
}

/// Reads the value of a variable of an environment.
pub(super) fn variable(text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err("a variable has no NUL".to_owned());
    }
    Ok(text.to_owned())
}

/// The text as a string of a configuration file.
pub(super) fn quoted(text: &str) -> String {
    exact(&expand::literal(text))
}

/// The text as a string of TOML, in which a reference stays one.
pub(super) fn exact(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            // Writing to a string cannot fail.
            char if crate::text::is_hidden(char) => {
                let _ = write!(out, "\\U{:08x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_kind_are_understood() {
        let ip = |text: &str| Address::Ip(text.parse().unwrap());
        assert_eq!(address("127.0.0.1:80"), Ok(ip("127.0.0.1:80")));
        assert_eq!(address("[::1]:80"), Ok(ip("[::1]:80")));
        assert_eq!(address(":80"), Ok(ip("0.0.0.0:80")));
        for bad in [
            "",
            "unix:",
            "1.2.3.4",
            "1.2.3.4:99999",
            "[::1]",
            "localhost",
            "localhost:x",
            "a.org:80",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_ipv4_address_in_the_notation_of_ipv6_is_explained() {
        let error = address("[::ffff:127.0.0.1]:80").unwrap_err();
        assert!(error.ends_with("listen on 127.0.0.1:80"), "{error}");
    }

    #[test]
    fn a_user_may_have_a_group() {
        for (text, user, group) in
            [("samum", "samum", None), ("33:33", "33", Some("33")), ("a:b", "a", Some("b"))]
        {
            let expected = Account { user: user.to_owned(), group: group.map(str::to_owned) };
            assert_eq!(account(text), Ok(expected.clone()), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        for text in ["", ":", "a:", ":b", "a:b:c", "a b", "a:b\n", "\0"] {
            assert!(account(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_unix_socket_may_have_a_mode_and_an_owner() {
        let name = |name: &str| Some(name.to_owned());
        for (text, path, mode, user, group) in [
            ("unix:/a b", "/a b", None, None, None),
            ("unix:/a,b", "/a,b", None, None, None),
            ("unix:/a=b,c.d=e", "/a=b,c.d=e", None, None, None),
            ("unix:/s,mode=0660", "/s", Some(0o660), None, None),
            ("unix:s,mode=0", "s", Some(0), None, None),
            ("unix:/s,owner=www-data", "/s", None, name("www-data"), None),
            ("unix:/s,owner=33:www-data,mode=600", "/s", Some(0o600), name("33"), name("www-data")),
            ("unix:/s,mode=777,owner=:adm", "/s", Some(0o777), None, name("adm")),
        ] {
            let expected = UnixSocket { path: path.into(), mode, user, group };
            assert_eq!(address(text), Ok(Address::Unix(expected)), "{text}");
        }
        for (text, advice) in [
            ("unix:,mode=660", "needs a path"),
            ("unix:/s,mode=", "octal"),
            ("unix:/s,mode=rw", "octal"),
            ("unix:/s,mode=888", "octal"),
            ("unix:/s,mode=1777", "octal"),
            ("unix:/s,owner=", "USER:GROUP"),
            ("unix:/s,owner=:", "USER:GROUP"),
            ("unix:/s,user=www", "mode= and owner="),
        ] {
            let error = address(text).unwrap_err();
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    #[test]
    fn a_certificate_and_its_key_are_two_files_or_one() {
        let files = |certificate: &str, key: Option<&str>| {
            let pair = TlsFiles { certificate: certificate.into(), key: key.map(Into::into) };
            Ok(Tls { pairs: vec![pair], ..Tls::default() })
        };
        assert_eq!(tls("self-signed"), Ok(Tls::default()));
        assert_eq!(tls("./self-signed"), files("./self-signed", None));
        assert_eq!(tls("a.pem"), files("a.pem", None));
        assert_eq!(tls("a.pem,b/a.key"), files("a.pem", Some("b/a.key")));
        assert_eq!(tls("a.pem,a.pem"), files("a.pem", None));
        for bad in ["", ",", "a,", ",b", "a,b,c"] {
            assert!(tls(bad).unwrap_err().contains("expected CERT,KEY"), "{bad}");
        }
        assert!(tls("acme").unwrap_err().contains("`[acme]` of a configuration file"));
    }

    #[test]
    fn bytes_have_units_and_a_limit() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64k"), Ok(65_536));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        for bad in ["", "k", "-1", "+1", "1x", "99999999999g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prefetching_is_limited_to_what_a_window_can_have() {
        assert_eq!((readahead("0"), readahead("4095m")), (Ok(0), Ok(4095 << 20)));
        assert_eq!(readahead("4294967295"), Ok(Window::BYTES_MAX));
        for bad in ["4294967296", "4g", "100000g"] {
            let why = readahead(bad).expect_err(bad);
            assert!(why.contains("at most 4294967295 bytes"), "{bad}: {why}");
        }
        assert!(readahead("1x").unwrap_err().contains("a number of bytes"));
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["", "0", "-1", "nan", "inf", "x"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(seconds("1e9").is_ok());
        for bad in ["0.09", "1e30"] {
            let why = seconds(bad).expect_err(bad);
            assert!(why.contains("0.1 to 1000000000"), "{why}");
        }
    }

    #[test]
    fn browsers_are_told_whole_seconds_and_days() {
        for (text, expected) in [
            ("1", 1),
            ("90s", 90),
            ("86400", DAY),
            ("1d", DAY),
            ("180d", 180 * DAY),
            ("3650d", 3650 * DAY),
        ] {
            assert_eq!(days(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for bad in ["", "d", "s", "1.5", "-1", "+1", "1e3", "180 d", "6m", "1y", "2w"] {
            assert!(days(bad).unwrap_err().contains("such as 180d"), "{bad}");
        }
        for bad in ["0", "0d", "3651d", "315360001", "99999999999999999999", "9999999999999999d"] {
            assert!(days(bad).unwrap_err().contains("1 second to 3650d"), "{bad}");
        }
    }
}

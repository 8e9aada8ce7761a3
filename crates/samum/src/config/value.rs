//! Converts texts of flags into values.
//!
//! Each function that reads returns a sentence for the operator if the text has no meaning.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use clap::ValueEnum;
use ring::Choice;
use sendfile::Caching;

use super::{Address, Tags, UnixSocket};

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

/// Reads an address to listen on, which is no name.
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
    Err("expected ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH".to_owned())
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
fn mode(text: &str) -> Result<u32, String> {
    let is_octal = text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| "expected three octal digits, such as 660".to_owned())
}

/// Reads `[USER][:GROUP]`.
fn owner(text: &str) -> Result<(Option<String>, Option<String>), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        return Err("expected USER, USER:GROUP or :GROUP".into());
    }
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Ok((name(user), name(group)))
}

/// Reads the name of a file in a directory.
///
/// # Errors
///
/// A sentence for the operator.
pub fn index(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['/', '\0']) || text == "." || text == ".." {
        return Err("expected the name of a file in the directory, such as index.html".into());
    }
    Ok(text.to_owned())
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
    // `parse` alone would take a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty();
    if !is_number {
        return Err("expected a number of bytes, such as 65536, 64k or 1m".to_owned());
    }
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| "too many bytes".to_owned())
}

/// Reads seconds.
///
/// # Errors
///
/// A sentence for the operator.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| "expected seconds, such as 30 or 0.5".to_owned())?;
    if !(0.1..=1e9).contains(&seconds) {
        return Err("expected at least 0.1 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
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
        for bad in ["", "unix:", "1.2.3.4", "1.2.3.4:99999", "[::1]", "localhost:80"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_ipv4_address_in_the_notation_of_ipv6_is_explained() {
        let error = address("[::ffff:127.0.0.1]:80").unwrap_err();
        assert!(error.ends_with("listen on 127.0.0.1:80"), "{error}");
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
    fn bytes_have_units_and_a_limit() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64k"), Ok(65_536));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        for bad in ["", "k", "-1", "+1", "1x", "99999999999g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["", "0", "-1", "nan", "inf", "x"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}

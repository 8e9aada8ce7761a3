//! The client for which proxies have forwarded a request, and the scheme of its URL. Proxies add them in the fields
//! `Forwarded` (RFC 7239), `X-Forwarded-For` and `X-Forwarded-Proto`.
//!
//! Each proxy adds the address of its own client at the end. So the list is read from its end while it names trusted
//! proxies. The address before them is the client's, and earlier entries may be forged.

use core::net::{IpAddr, Ipv6Addr};

use http::bytes;

/// The scheme of the URL in a client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    #[default]
    Http,
    /// `https`: the connection has TLS, or a proxy in front of samum says so.
    Https,
}

impl Scheme {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of URLs that name no port.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme with this name. Some proxies give WebSocket names of its own.
    fn of(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("https") || is("wss") {
            Some(Self::Https)
        } else if is("http") || is("ws") {
            Some(Self::Http)
        } else {
            None
        }
    }
}

/// The two fields name different clients. Each proxy adds the true client. So the client has forged the field that its
/// proxy does not know and passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// Returns the address of the client for which a trusted peer forwards a request, from the lines of both fields; `None`
/// if the client is the peer itself, as far as the fields show.
///
/// A hop without an address (`unknown`, an obfuscated identifier, garbage) ends the list: then the client is the
/// trusted proxy behind it. If only one field leads further than to a trusted proxy, that field counts, because proxies
/// in a row may add different fields.
///
/// # Errors
///
/// If the fields name different clients.
pub fn client<'a>(
    forwarded: impl Iterator<Item = &'a [u8]>,
    x_forwarded_for: impl Iterator<Item = &'a [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> Result<Option<IpAddr>, Conflict> {
    let mut walk = Walk::new(&trusts);
    forwarded.for_each(|line| walk.read_forwarded(line));
    let by_forwarded = walk.client.take();
    x_forwarded_for.for_each(|line| walk.read_list(line));
    match (by_forwarded, walk.client) {
        (Some(one), Some(other)) if one != other && !trusts(other) => {
            if trusts(one) {
                Ok(Some(other))
            } else {
                Err(Conflict)
            }
        }
        (one, other) => Ok(one.or(other)),
    }
}

/// Returns the scheme of the URL that the [client](fn@client) has requested, from the lines of the fields of a trusted
/// peer; `None` if they do not say.
///
/// It is the scheme of the hop that names the client. A list in `X-Forwarded-Proto` has as many proxies behind the
/// client as the list in `X-Forwarded-For`; earlier entries may be forged. If both fields name a scheme and these
/// differ, the scheme is `http`: one field may be the client's own, and must not make the connection look secure.
pub fn scheme<'a>(
    forwarded: impl Iterator<Item = &'a [u8]>,
    x_forwarded_for: impl Iterator<Item = &'a [u8]>,
    x_forwarded_proto: impl Iterator<Item = &'a [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> Option<Scheme> {
    let mut walk = Walk::new(&trusts);
    forwarded.for_each(|line| walk.read_forwarded(line));
    let by_forwarded = walk.scheme.take();
    (walk.client, walk.behind) = (None, 0);
    x_forwarded_for.for_each(|line| walk.read_list(line));
    let schemes: Vec<_> = x_forwarded_proto
        .flat_map(|line| line.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|scheme| !scheme.is_empty())
        .collect();
    let last = schemes.len().checked_sub(1);
    let by_proto = last.and_then(|last| Scheme::of(schemes[last.saturating_sub(walk.behind)]));
    match (by_forwarded, by_proto) {
        (Some(one), Some(other)) if one != other => Some(Scheme::Http),
        (one, other) => one.or(other),
    }
}

/// Returns the host and the port that the [client](fn@client) has requested, from the lines of `Forwarded` of a trusted
/// peer; `None` if they do not say. It is the host of the hop that names the client.
pub fn host<'a>(
    forwarded: impl Iterator<Item = &'a [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> Option<&'a [u8]> {
    let mut walk = Walk::new(&trusts);
    forwarded.for_each(|line| walk.read_forwarded(line));
    let is_plain = |byte: &u8| bytes::is(*byte, bytes::HOST) || b":[]".contains(byte);
    walk.host.filter(|host| !host.is_empty() && host.iter().all(is_plain))
}

/// Returns true if a line of `Forwarded` has no fault, such as an open quote that hides later elements.
pub fn is_sound(mut line: &[u8]) -> bool {
    while let Some((_, behind)) = element(line) {
        match behind {
            Some(behind) => line = behind,
            None => return true,
        }
    }
    false
}

/// The hops of a list, from the first to the last.
struct Walk<'t, 'a, T> {
    /// The client, if no hop follows; `None` if the following hop is the client.
    client: Option<IpAddr>,
    /// The scheme that the hop of the client names.
    scheme: Option<Scheme>,
    /// The host that the hop of the client names.
    host: Option<&'a [u8]>,
    /// The number of hops behind that of the client.
    behind: usize,
    trusts: &'t T,
}

impl<'t, 'a, T: Fn(IpAddr) -> bool> Walk<'t, 'a, T> {
    const fn new(trusts: &'t T) -> Self {
        Self { client: None, scheme: None, host: None, behind: 0, trusts }
    }

    /// Adds the next hop. A hop without an address ends the list.
    fn add(&mut self, Hop { address, scheme, host }: Hop<'a>) {
        match address {
            Some(address) if (self.trusts)(address) && self.client.is_some() => self.behind += 1,
            _ => {
                self.client = address;
                self.scheme = scheme;
                self.host = host;
                self.behind = 0;
            }
        }
    }

    /// Reads addresses.
    fn read_list(&mut self, line: &'a [u8]) {
        for hop in line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if !hop.is_empty() {
                self.add(Hop { address: node(hop), ..Hop::default() });
            }
        }
    }

    /// Reads `forwarded-element`s. The text after a fault of the syntax is a hop without an address: the fault may be
    /// an open quote that hides the entries of a proxy.
    fn read_forwarded(&mut self, mut rest: &'a [u8]) {
        loop {
            match element(rest) {
                None => return self.add(Hop::default()),
                Some((hop, behind)) => {
                    if let Some(hop) = hop {
                        self.add(hop);
                    }
                    match behind {
                        Some(behind) => rest = behind,
                        None => return,
                    }
                }
            }
        }
    }
}

/// A hop of a list: the address of the sender of the request, and the scheme and the host of the request, as far as the
/// hop names them.
#[derive(Clone, Copy, Debug, Default)]
struct Hop<'a> {
    address: Option<IpAddr>,
    scheme: Option<Scheme>,
    host: Option<&'a [u8]>,
}

/// Reads one `forwarded-element`: its hop, if it is not empty, and the text after its comma. `None` if its syntax is
/// wrong.
fn element(text: &[u8]) -> Option<(Option<Hop<'_>>, Option<&[u8]>)> {
    let mut rest = text.trim_ascii_start();
    let mut address = None;
    let mut scheme = None;
    let mut host = None;
    let mut is_empty = true;
    loop {
        if !matches!(rest.first(), None | Some(b',' | b';')) {
            is_empty = false;
            let equals = rest.iter().position(|byte| b"=,;\" \t".contains(byte))?;
            let name = &rest[..equals];
            let (value, behind) = value(rest[equals..].strip_prefix(b"=")?)?;
            rest = behind.trim_ascii_start();
            if name.eq_ignore_ascii_case(b"for") && address.replace(node(value)).is_some() {
                return None;
            }
            if name.eq_ignore_ascii_case(b"host") && host.replace(value).is_some() {
                return None;
            }
            if name.eq_ignore_ascii_case(b"proto") && scheme.replace(Scheme::of(value)).is_some() {
                return None;
            }
        }
        let hop = || {
            let hop = Hop { address: address.flatten(), scheme: scheme.flatten(), host };
            (!is_empty).then_some(hop)
        };
        match rest.split_first() {
            None => return Some((hop(), None)),
            Some((b',', behind)) => return Some((hop(), Some(behind))),
            Some((b';', behind)) => rest = behind.trim_ascii_start(),
            Some(_) => return None,
        }
    }
}

/// Splits a token or a quoted string from the text after it. Tokens may have brackets and colons, which are often not
/// quoted. Escapes are left as they are, because no address needs one.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let is_end = |byte: &u8| b",;\" \t".contains(byte);
        let end = text.iter().position(is_end).unwrap_or(text.len());
        return Some(text.split_at(end));
    };
    let mut escaped = false;
    let end = quoted.iter().position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    })?;
    Some((&quoted[..end], &quoted[end + 1..]))
}

/// The address of a `node`: an IPv4 address, or an IPv6 address, in brackets if a port follows.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let is_port = |port: &str| {
        let mut bytes = port.bytes();
        match port.strip_prefix('_') {
            Some(name) => !name.is_empty(),
            None => (1..=5).contains(&port.len()) && bytes.all(|byte| byte.is_ascii_digit()),
        }
    };
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let address: Ipv6Addr = address.parse().ok().filter(|_| is_whole)?;
        return Some(IpAddr::V6(address).to_canonical());
    }
    let address = match text.split_once(':') {
        Some((address, port)) if !port.contains(':') => is_port(port).then_some(address)?,
        _ => text,
    };
    Some(address.parse::<IpAddr>().ok()?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trusted are 10.0.0.0/8 and fd00::/8.
    fn trusts(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address.octets()[0] == 10,
            IpAddr::V6(address) => address.octets()[0] == 0xfd,
        }
    }

    fn found(forwarded: &[&str], x_forwarded_for: &[&str]) -> Result<Option<String>, Conflict> {
        client(
            forwarded.iter().map(|line| line.as_bytes()),
            x_forwarded_for.iter().map(|line| line.as_bytes()),
            trusts,
        )
        .map(|client| client.map(|client| client.to_string()))
    }

    #[test]
    fn the_client_stands_before_the_trusted_proxies() {
        let cases: [(&[&str], Option<&str>); _] = [
            (&[], None),
            (&[""], None),
            (&["192.0.2.1"], Some("192.0.2.1")),
            (&["192.0.2.1, 198.51.100.2"], Some("198.51.100.2")),
            (&["192.0.2.1, 10.0.0.1"], Some("192.0.2.1")),
            (&["1.1.1.1, 192.0.2.1,10.0.0.1 ,\t10.0.0.2"], Some("192.0.2.1")),
            (&["10.0.0.9, 10.0.0.1"], Some("10.0.0.9")),
            (&["192.0.2.1", "10.0.0.1", "10.0.0.2"], Some("192.0.2.1")),
            (&["192.0.2.1, , 10.0.0.1,"], Some("192.0.2.1")),
            (&["192.0.2.1:4711"], Some("192.0.2.1")),
            (&["2001:db8::1, fd00::1"], Some("2001:db8::1")),
            (&["[2001:db8::1]:80"], Some("2001:db8::1")),
            (&["[2001:db8::1]"], Some("2001:db8::1")),
            (&["::ffff:192.0.2.1"], Some("192.0.2.1")),
            (&["192.0.2.1, ::ffff:10.0.0.1"], Some("192.0.2.1")),
            // What is no address ends the list.
            (&["unknown"], None),
            (&["192.0.2.1, unknown, 10.0.0.1"], Some("10.0.0.1")),
            (&["192.0.2.1, unknown, 10.0.0.1, 10.0.0.2"], Some("10.0.0.1")),
            (&["192.0.2.1, garbage"], None),
            (&["garbage, 192.0.2.1"], Some("192.0.2.1")),
            (&["192.0.2.1:"], None),
            (&["192.0.2.1:80x"], None),
            (&["192.0.2.1:123456"], None),
            (&["[2001:db8::1"], None),
            (&["[2001:db8::1]80"], None),
            (&["[192.0.2.1]"], None),
            (&["192.0.2.256"], None),
            (&["\u{e9}"], None),
        ];
        for (lines, expected) in cases {
            assert_eq!(found(&[], lines), Ok(expected.map(str::to_owned)), "{lines:?}");
        }
    }

    #[test]
    fn rfc7239_elements_are_understood() {
        let cases: [(&[&str], Option<&str>); _] = [
            (&[""], None),
            (&["for=192.0.2.60;proto=http;by=203.0.113.43"], Some("192.0.2.60")),
            (&["For=\"[2001:db8:cafe::17]:4711\""], Some("2001:db8:cafe::17")),
            (&["for=[2001:db8::1]"], Some("2001:db8::1")),
            (&["for=\"_gazonk\""], None),
            (&["for=192.0.2.43, for=10.0.0.1"], Some("192.0.2.43")),
            (&["for=192.0.2.43", "for=10.0.0.1"], Some("192.0.2.43")),
            (&["for=\"192.0.2.43:80\" ; proto=https , for=10.0.0.1"], Some("192.0.2.43")),
            (&["for=\"192.0.2.43:_port\""], Some("192.0.2.43")),
            (&["by=\"a,b;for=1.1.1.1\\\"\";for=192.0.2.43"], Some("192.0.2.43")),
            (&["for=192.0.2.43;;, ,for=10.0.0.1;"], Some("192.0.2.43")),
            (&["for=192.0.2.43, for=unknown, for=10.0.0.1"], Some("10.0.0.1")),
            (&["for=192.0.2.43, for=_hidden"], None),
            // A hop that says nothing about its client.
            (&["for=192.0.2.43, proto=https"], None),
            (&["for=192.0.2.43;for=192.0.2.44"], None),
            (&["for=192.0.2.43 for=192.0.2.44"], None),
            (&["for = 192.0.2.43"], None),
            (&["for"], None),
            (&["for="], None),
            (&["192.0.2.43"], None),
            (&["for=192\\.0.2.43"], None),
            // Quotes that are to hide what a proxy has added.
            (&["for=1.1.1.1;x=\", for=192.0.2.43"], None),
            (&["for=1.1.1.1;x=\", for=\"192.0.2.43\""], None),
            (&["for=1.1.1.1;x=\", for=192.0.2.43;by=\"10.0.0.1\""], None),
            (&["for=1.1.1.1;x=\"", "for=192.0.2.43"], Some("192.0.2.43")),
        ];
        for (lines, expected) in cases {
            assert_eq!(found(lines, &[]), Ok(expected.map(str::to_owned)), "{lines:?}");
        }
    }

    #[test]
    fn the_scheme_is_that_of_the_hop_of_the_client() {
        let found = |forwarded: &[&str], addresses: &str, schemes: &[&str]| {
            scheme(
                forwarded.iter().map(|line| line.as_bytes()),
                [addresses].iter().map(|line| line.as_bytes()),
                schemes.iter().map(|line| line.as_bytes()),
                trusts,
            )
            .map(Scheme::name)
        };
        for (forwarded, addresses, schemes, expected) in [
            (&[][..], "", &[][..], None),
            (&[], "", &["https"], Some("https")),
            (&[], "192.0.2.1", &["HTTPS"], Some("https")),
            (&[], "", &["http"], Some("http")),
            (&[], "", &["wss"], Some("https")),
            (&[], "", &["ftp"], None),
            (&[], "", &["", " , "], None),
            // One list has as many proxies behind the client as the other.
            (&[], "192.0.2.1", &["https, http"], Some("http")),
            (&[], "192.0.2.1, 10.0.0.1", &["https, http"], Some("https")),
            (&[], "9.9.9.9, 192.0.2.1, 10.0.0.1", &["https, http", "http"], Some("http")),
            (&[], "192.0.2.1, 10.0.0.1, 10.0.0.2", &["https"], Some("https")),
            // RFC 7239
            (&["for=192.0.2.1;proto=https"], "", &[], Some("https")),
            (&["proto=https"], "", &[], Some("https")),
            (&["Proto=\"HTTPS\";for=192.0.2.1, for=10.0.0.1;proto=http"], "", &[], Some("https")),
            (&["for=9.9.9.9;proto=https, for=192.0.2.1;proto=http"], "", &[], Some("http")),
            (&["for=9.9.9.9;proto=https, for=192.0.2.1"], "", &[], None),
            (&["for=192.0.2.1;proto=https;proto=http"], "", &[], None),
            (&["for=192.0.2.1;proto=https;x=\""], "", &[], None),
            // Both.
            (&["for=192.0.2.1;proto=https"], "192.0.2.1", &["https"], Some("https")),
            (&["for=192.0.2.1;proto=https"], "192.0.2.1", &["http"], Some("http")),
            (&["for=192.0.2.1;proto=http"], "192.0.2.1", &["https"], Some("http")),
            (&["for=192.0.2.1"], "192.0.2.1", &["https"], Some("https")),
        ] {
            let context = format!("{forwarded:?} {addresses:?} {schemes:?}");
            assert_eq!(found(forwarded, addresses, schemes), expected, "{context}");
        }
    }

    #[test]
    fn the_host_is_that_of_the_hop_of_the_client() {
        for (lines, expected) in [
            (&["proto=https;host=\"e.org:8443\""][..], Some("e.org:8443")),
            (&["for=192.0.2.1;Host=e.org, for=10.0.0.1;host=inner"], Some("e.org")),
            (&["for=192.0.2.1, for=10.0.0.1;host=inner"], None),
            (&["for=9.9.9.9;host=forged", "for=192.0.2.1;host=\"[::1]:80\""], Some("[::1]:80")),
            (&["host=a;host=b"], None),
            (&["host=\"\""], None),
            (&["host=\"a b\""], None),
            (&["host=\"a\\\"b\""], None),
            (&[], None),
        ] {
            let found = host(lines.iter().map(|line| line.as_bytes()), trusts);
            assert_eq!(found, expected.map(str::as_bytes), "{lines:?}");
        }
    }

    #[test]
    fn two_fields_must_not_name_different_clients() {
        let both = |forwarded, other| found(&[forwarded], &[other]);
        let is = |client: &str| Ok(Some(client.to_owned()));
        assert_eq!(both("for=192.0.2.1", "192.0.2.1"), is("192.0.2.1"));
        assert_eq!(both("for=192.0.2.1", "192.0.2.2"), Err(Conflict));
        // The proxies in a row add different fields.
        assert_eq!(both("for=192.0.2.1", "10.0.0.1"), is("192.0.2.1"));
        assert_eq!(both("for=10.0.0.1", "192.0.2.1, 10.0.0.1"), is("192.0.2.1"));
        assert_eq!(both("for=_hidden", "192.0.2.1"), is("192.0.2.1"));
        assert_eq!(both("for=192.0.2.1", "unknown"), is("192.0.2.1"));
        assert_eq!(both("for=10.0.0.1", "10.0.0.2"), is("10.0.0.1"));
        assert_eq!(both("for=192.0.2.1", "9.9.9.9, 10.0.0.1"), Err(Conflict), "one is forged");
    }
}

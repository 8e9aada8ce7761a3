//! The clients that may use a route, by their addresses.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

/// A range of addresses that have their first bits in common, such as `192.0.2.0/24`. IPv4 addresses
/// are kept in the notation of IPv6 (RFC 4291 §2.5.5.2), so both are compared in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The first address.
    first: u128,
    /// The number of bits in common, of 128.
    len: u8,
}

/// The clients that may use something: `allow` and `deny`. The longest prefix that has a client's address
/// decides; between an allowed and a denied one of the same length, the denied one does. Addresses in no
/// prefix are permitted if nothing is allowed by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The prefixes of permitted clients.
    pub allow: Vec<Prefix>,
    /// The prefixes of refused clients.
    pub deny: Vec<Prefix>,
}

impl Prefix {
    /// Returns whether the address is in the range.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        (bits(address) ^ self.first).leading_zeros() >= u32::from(self.len)
    }
}

impl Access {
    /// Returns whether a client with this address is permitted; `None` is a client on a Unix socket, which
    /// has passed the permissions of that socket.
    #[must_use]
    pub fn permits(&self, client: Option<IpAddr>) -> bool {
        let Some(client) = client else { return true };
        let longest = |prefixes: &[Prefix]| {
            let lens = prefixes.iter().filter(|prefix| prefix.contains(client));
            lens.map(|prefix| prefix.len).max()
        };
        match (longest(&self.allow), longest(&self.deny)) {
            (None, None) => self.allow.is_empty(),
            (allow, deny) => allow > deny,
        }
    }
}

/// The 128 bits of an address.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text}: expected an address or a range such as 192.0.2.0/24 or 2001:db8::/32")
        };
        let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => most,
            Some(len) => len.parse().ok().filter(|len| *len <= most).ok_or_else(wrong)?,
        };
        let (bits, len) = (bits(address), len + (128 - most));
        let first = if len == 0 { 0 } else { bits & (u128::MAX << (128 - len)) };
        if first != bits {
            return Err(format!("{text}: the address has bits behind the length of the range"));
        }
        Ok(Self { first, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.first);
        match address.to_ipv4_mapped() {
            Some(address) if self.len >= 96 => write!(f, "{address}/{}", self.len - 96),
            _ => write!(f, "{address}/{}", self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_most_specific_range_decides() {
        let access =
            |allow: &[&str], deny: &[&str]| Access { allow: prefixes(allow), deny: prefixes(deny) };
        let cases = [
            (access(&[], &[]), "192.0.2.1", true),
            (access(&["192.0.2.0/24"], &[]), "192.0.2.1", true),
            (access(&["192.0.2.0/24"], &[]), "192.0.3.1", false),
            (access(&["192.0.2.0/24"], &[]), "::ffff:192.0.2.1", true),
            (access(&["192.0.2.0/24"], &[]), "2001:db8::1", false),
            (access(&[], &["192.0.2.0/24"]), "192.0.2.1", false),
            (access(&[], &["192.0.2.0/24"]), "2001:db8::1", true),
            (access(&["10.0.0.0/8"], &["10.1.0.0/16"]), "10.1.2.3", false),
            (access(&["10.0.0.0/8"], &["10.1.0.0/16"]), "10.2.2.3", true),
            (access(&["10.1.0.0/16"], &["10.0.0.0/8"]), "10.1.2.3", true),
            (access(&["10.1.0.0/16"], &["10.0.0.0/8"]), "11.0.0.1", false),
            (access(&["10.0.0.0/8"], &["10.0.0.0/8"]), "10.0.0.1", false),
            (access(&["2001:db8::/32"], &["::/0"]), "2001:db8:1::1", true),
            (access(&["2001:db8::/32"], &["::/0"]), "192.0.2.1", false),
        ];
        for (access, client, expected) in cases {
            assert_eq!(
                access.permits(Some(client.parse().unwrap())),
                expected,
                "{access:?} {client}"
            );
        }
        assert!(access(&["192.0.2.1"], &[]).permits(None), "a Unix socket");
    }

    #[test]
    fn ranges_are_written_as_they_are_read() {
        for text in
            ["192.0.2.0/24", "192.0.2.1/32", "0.0.0.0/0", "2001:db8::/32", "::/0", "::1/128"]
        {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "a",
            "192.0.2.0/33",
            "192.0.2.1/24",
            "::/129",
            "2001:db8::1/32",
            "1.2.3.4/",
            "1.2.3.4/-1",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}

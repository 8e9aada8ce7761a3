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
/// prefix are permitted if nothing is allowed by name. Clients on Unix sockets have no address: unless they are named,
/// they are permitted if nothing is allowed by name and not all addresses are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Permitted clients.
    pub allow: Vec<Peers>,
    /// Refused clients.
    pub deny: Vec<Peers>,
}

/// Clients, or proxies that are believed when they name their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Clients with an address in this range.
    Prefix(Prefix),
    /// Clients on a Unix socket: `unix`.
    Unix,
}

/// The clients that an [`Access`] permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permitted {
    addresses: AddressSet,
    unix: bool,
}

impl Prefix {
    /// Returns whether the address is in the range.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        (bits(address) ^ self.first).leading_zeros() >= u32::from(self.len)
    }

    /// An address of the range, and the number of bits that all its addresses share.
    pub fn network(self) -> (IpAddr, u8) {
        let address = Ipv6Addr::from_bits(self.first);
        match address.to_ipv4_mapped() {
            Some(address) if self.len >= 96 => (address.into(), self.len - 96),
            _ => (address.into(), self.len),
        }
    }

    /// The last address.
    fn last(self) -> u128 {
        self.first | u128::MAX.checked_shr(self.len.into()).unwrap_or(0)
    }
}

impl Peers {
    /// The range of addresses; none for all that connect to a Unix socket.
    #[must_use]
    pub const fn prefix(self) -> Option<Prefix> {
        match self {
            Self::Prefix(prefix) => Some(prefix),
            Self::Unix => None,
        }
    }
}

impl Access {
    /// Returns the clients that are permitted; `None` if all are.
    #[must_use]
    pub fn permitted(&self) -> Option<Permitted> {
        let allow = self.allow.iter().filter_map(|peers| Some((peers.prefix()?, true)));
        let deny = self.deny.iter().filter_map(|peers| Some((peers.prefix()?, false)));
        let is_permitted = self.allow.is_empty();
        let addresses = AddressSet::of_prefixes(is_permitted, allow.chain(deny).collect());
        let is_named = self.allow.contains(&Peers::Unix);
        let unix = !self.deny.contains(&Peers::Unix)
            && (is_named || is_permitted && !addresses.boundaries.is_empty());
        (*addresses.boundaries != [0] || !unix).then_some(Permitted { addresses, unix })
    }
}

impl Permitted {
    /// Returns whether a client is permitted. A client on a Unix socket has no address.
    #[must_use]
    pub fn contains(&self, client: Option<IpAddr>) -> bool {
        client.map_or(self.unix, |address| self.addresses.contains(address))
    }
}

/// A set of addresses. A lookup takes logarithmic time, so a list of countries costs as much as one
/// network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// In order and by turns: the first address of a range that is in the set, and the first address after that
    /// range.
    boundaries: Box<[u128]>,
}

impl AddressSet {
    /// Returns whether the address is in the set.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = bits(address);
        self.boundaries.partition_point(|boundary| *boundary <= address) % 2 == 1
    }

    /// Makes the set of the addresses whose longest prefix says `true`; `rest` is for addresses without a prefix. If a
    /// prefix comes twice, `false` counts.
    fn of_prefixes(rest: bool, mut prefixes: Vec<(Prefix, bool)>) -> Self {
        // A prefix comes after those that contain it, and false before true.
        prefixes.sort_unstable();
        prefixes.dedup_by_key(|(prefix, _)| *prefix);
        let mut set = Boundaries(Vec::new());
        // The prefixes that contain the present address, the longest at the end.
        let mut around: Vec<(Prefix, bool)> = Vec::new();
        set.add(0, rest);
        for (prefix, is_in) in prefixes {
            while let Some((inner, _)) = around.pop_if(|(inner, _)| inner.last() < prefix.first) {
                set.leave(inner, around.last().map_or(rest, |(_, is_in)| *is_in));
            }
            set.add(prefix.first, is_in);
            around.push((prefix, is_in));
        }
        while let Some((inner, _)) = around.pop() {
            set.leave(inner, around.last().map_or(rest, |(_, is_in)| *is_in));
        }
        Self { boundaries: set.0.into() }
    }
}

impl FromIterator<Prefix> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        Self::of_prefixes(false, prefixes.into_iter().map(|prefix| (prefix, true)).collect())
    }
}

/// The boundaries of a set that is being made, from the first address to the last.
struct Boundaries(Vec<u128>);

impl Boundaries {
    /// The addresses from `at` on are in the set, or are not.
    fn add(&mut self, at: u128, is_in: bool) {
        self.0.pop_if(|last| *last == at);
        let was_in = self.0.len() % 2 == 1;
        if was_in != is_in {
            self.0.push(at);
        }
    }

    /// The addresses after a prefix are in the set, or are not.
    fn leave(&mut self, prefix: Prefix, is_in: bool) {
        if let Some(next) = prefix.last().checked_add(1) {
            self.add(next, is_in);
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
        if ["all", "any", "*"].contains(&text) {
            return Err(format!("{text}: all addresses are \"0.0.0.0/0\" and \"::/0\""));
        }
        // Caddy's word for the ranges of private networks.
        if text == "private_ranges" {
            let all = "\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"127.0.0.0/8\", \"fd00::/8\", \"::1\"";
            return Err(format!("{text}: write {all}"));
        }
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
            let range = Self { first, len };
            return Err(format!(
                "{text}: the address has bits behind the length of the range: write {range}"
            ));
        }
        Ok(Self { first, len })
    }
}

impl FromStr for Peers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unix" { Ok(Self::Unix) } else { text.parse().map(Self::Prefix) }
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, len) = self.network();
        write!(f, "{address}/{len}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Peers> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn access(allow: &[&str], deny: &[&str]) -> Access {
        Access { allow: prefixes(allow), deny: prefixes(deny) }
    }

    fn permits(access: &Access, client: IpAddr) -> bool {
        access.permitted().is_none_or(|permitted| permitted.contains(Some(client)))
    }

    /// The rule of [`Access`] in the simplest words.
    fn is_permitted(access: &Access, client: IpAddr) -> bool {
        let longest = |peers: &[Peers]| {
            let prefixes = peers.iter().filter_map(|peers| peers.prefix());
            let lens = prefixes.filter(|prefix| prefix.contains(client));
            lens.map(|prefix| prefix.len).max()
        };
        match (longest(&access.allow), longest(&access.deny)) {
            (None, None) => access.allow.is_empty(),
            (allow, deny) => allow > deny,
        }
    }

    #[test]
    fn the_most_specific_range_decides() {
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
            (access(&["ffff::/16"], &["ffff:ffff::/32"]), "ffff:fffe::1", true),
            (access(&[], &["255.255.255.255"]), "255.255.255.255", false),
        ];
        for (access, client, expected) in cases {
            let client = client.parse().unwrap();
            assert_eq!(is_permitted(&access, client), expected, "{access:?} {client}");
            assert_eq!(permits(&access, client), expected, "{access:?} {client}");
        }
        assert_eq!(access(&[], &[]).permitted(), None, "nothing has to be looked up");
        assert_eq!(access(&["::/0", "unix"], &[]).permitted(), None);
        assert!(!AddressSet::default().contains("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn clients_without_an_address_pass_unless_some_others_are_named() {
        for (allow, deny, expected) in [
            (&[][..], &[][..], true),
            (&[], &["192.0.2.0/24"], true),
            (&[], &["0.0.0.0/0"], true),
            (&[], &["::/0"], false),
            (&[], &["0.0.0.0/0", "::/0"], false),
            (&[], &["unix"], false),
            (&["192.0.2.0/24"], &[], false),
            (&["::/0"], &[], false),
            (&["192.0.2.0/24", "unix"], &[], true),
            (&["unix"], &["::/0"], true),
            (&["unix"], &["unix"], false),
        ] {
            let permitted = access(allow, deny).permitted();
            let is_permitted = permitted.is_none_or(|permitted| permitted.contains(None));
            assert_eq!(is_permitted, expected, "{allow:?} {deny:?}");
        }
    }

    #[test]
    fn any_rules_permit_what_the_most_specific_range_says() {
        for seed in 0..2000_u64 {
            let mut random = testkit::Random::new(seed);
            let mut below = |bound: u32| random.below(bound);
            // Ranges at both ends of all addresses and in the middle, often one within another.
            let mut address = |edge: bool| {
                let ends = [0, u128::MAX, 0xffff << 32, (0xffff << 32) | 0xffff_ffff];
                let spread = if edge { 3 } else { u128::from(below(1 << 12)) << below(117) };
                ends[below(4) as usize] ^ spread
            };
            let mut list = |count: u32| -> Vec<Peers> {
                let prefixes = (0..count).map(|index| cut(address(index % 4 == 0), index * 7 % 13));
                prefixes.map(Peers::Prefix).collect()
            };
            let access = Access { allow: list(9), deny: list(8) };
            let permitted = access.permitted();
            let edges = access.allow.iter().chain(&access.deny).flat_map(|peers| {
                let prefix = peers.prefix().expect("a prefix");
                [
                    prefix.first,
                    prefix.first.wrapping_sub(1),
                    prefix.last(),
                    prefix.last().wrapping_add(1),
                ]
            });
            for client in edges.chain((0..20).map(|_| address(false))) {
                let client = IpAddr::V6(Ipv6Addr::from_bits(client));
                let found = permitted.as_ref().is_none_or(|set| set.contains(Some(client)));
                assert_eq!(
                    found,
                    is_permitted(&access, client),
                    "seed {seed}: {access:?} {client}"
                );
            }
        }
    }

    /// A range around an address, whose length depends on `choice`.
    fn cut(address: u128, choice: u32) -> Prefix {
        let len = [0, 1, 8, 16, 32, 64, 96, 97, 104, 112, 120, 127, 128][choice as usize];
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Prefix { first: address & mask, len }
    }

    #[test]
    fn proxies_are_ranges_or_unix_sockets() {
        for text in ["10.0.0.0/8", "unix"] {
            assert_eq!(text.parse::<Peers>().unwrap().to_string(), text);
        }
        assert!("unix:".parse::<Peers>().is_err());
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

//! Sites, and the choice of a request's site by its host.
//!
//! The hosts of a site are names (`example.org`), IP addresses (`192.0.2.1`, `[2001:db8::1]`) and
//! wildcards (`*.example.org`). A wildcard covers all names below its own, at any depth, but not that
//! name itself. A request goes to the site that has its host, else to the site with the longest
//! wildcard that covers the host, else to the first site.
//!
//! Reading list: RFC 9110 §4.2.3 and §7.2, RFC 3986 §3.2.2, RFC 1035 §2.3.4.

use core::net::Ipv6Addr;
use std::collections::BTreeMap;

use http::Head;

/// The maximum length of a name: 255 bytes on the wire of DNS. Longer hosts have no site.
const NAME_BYTES_MAX: usize = 253;

/// The number of a site, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteId(usize);

/// The sites of a server, with their hosts.
#[derive(Clone, Debug)]
pub struct Sites {
    /// The number of sites; at least one.
    count: usize,
    /// The root of a tree of names: `org` is a child of the root, and `example` a child of `org`.
    names: Name,
}

/// A node of the tree of names.
#[derive(Clone, Debug, Default)]
struct Name {
    /// The site that has this name.
    exact: Option<SiteId>,
    /// The site that has the wildcard for all names below this one.
    below: Option<SiteId>,
    /// The children, by their labels in lower case.
    labels: BTreeMap<Box<[u8]>, Self>,
}

impl SiteId {
    /// The first site, which also gets the requests for hosts that no site has.
    pub const FIRST: Self = Self(0);

    /// The position of the site in a list with one entry for each site.
    pub(crate) const fn index(self) -> usize {
        self.0
    }

    /// The ids of `count` sites.
    pub(crate) fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count).map(Self)
    }
}

/// A single site, which gets all requests.
impl Default for Sites {
    fn default() -> Self {
        Self { count: 1, names: Name::default() }
    }
}

impl Sites {
    /// Makes sites from the list of hosts of each of them.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if there is no site, if a host has no valid form, or if a host is
    /// listed twice.
    pub fn new<'a, H>(sites: impl IntoIterator<Item = &'a [H]>) -> Result<Self, String>
    where
        H: AsRef<str> + 'a,
    {
        let mut made = Self { count: 0, names: Name::default() };
        for hosts in sites {
            let site = SiteId(made.count);
            made.count += 1;
            for host in hosts {
                made.add(host.as_ref(), site)?;
            }
        }
        if made.count == 0 { Err("there is no site to serve".to_owned()) } else { Ok(made) }
    }

    /// The number of sites.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always a site")]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// The ids of all sites, in order.
    pub fn ids(&self) -> impl Iterator<Item = SiteId> + use<> {
        SiteId::all(self.count)
    }

    /// Returns the site that a request is for.
    #[inline]
    #[must_use]
    pub fn route(&self, head: &Head<'_>) -> SiteId {
        if self.count == 1 { SiteId::FIRST } else { self.route_host(head.host()) }
    }

    // A call of its own, so that a server with one site does not pay for the buffer of the search.
    #[inline(never)]
    fn route_host(&self, host: Option<&[u8]>) -> SiteId {
        host.and_then(|host| self.find(host)).unwrap_or(SiteId::FIRST)
    }

    /// Finds the site that has a host. The host is the value of a `Host` field, whose port and case
    /// mean nothing here, nor does the dot at the end of an absolute name.
    fn find(&self, host: &[u8]) -> Option<SiteId> {
        let name = match host.iter().rposition(|&byte| byte == b':') {
            Some(colon) if !host.ends_with(b"]") => &host[..colon],
            _ => host,
        };
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut buffer = [0; NAME_BYTES_MAX];
        let lower = buffer.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let mut node = Some(&self.names);
        let mut covering = None;
        for label in lower.rsplit(|&byte| byte == b'.') {
            // No name has an empty label, so a wildcard does not cover it either.
            if label.is_empty() {
                return None;
            }
            if let Some(parent) = node {
                covering = parent.below.or(covering);
                node = parent.labels.get(label);
            }
        }
        node.and_then(|node| node.exact).or(covering)
    }

    fn add(&mut self, host: &str, site: SiteId) -> Result<(), String> {
        let lower = host.to_ascii_lowercase();
        let (name, is_wildcard) =
            lower.strip_prefix("*.").map_or((&lower[..], false), |name| (name, true));
        let name = match ipv6(name) {
            Some(address) if !is_wildcard => format!("[{address}]"),
            _ if is_name(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
            _ => {
                return Err(format!(
                    "{host}: expected a host such as example.org, *.example.org or [2001:db8::1], \
                     without a port; international names have the form xn--bcher-kva.example"
                ));
            }
        };
        let mut node = &mut self.names;
        for label in name.rsplit('.') {
            node = node.labels.entry(label.as_bytes().into()).or_default();
        }
        let place = if is_wildcard { &mut node.below } else { &mut node.exact };
        if place.replace(site).is_some() {
            return Err(format!("{host} is listed twice"));
        }
        Ok(())
    }
}

/// The address in brackets, which is then written in the one form that browsers send (RFC 5952).
fn ipv6(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Returns whether a text is a name, or an IPv4 address. Some names in use have underscores.
fn is_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.bytes().all(is_valid)
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Sites {
        let hosts: [&[&str]; 5] = [
            &["www.example.org"],
            &["*.example.org", "example.org"],
            &["*.deep.example.org", "Example.NET.", "_x.example.net"],
            &["192.0.2.1", "[2001:DB8:0::1]", "[::ffff:192.0.2.1]", "localhost"],
            &[],
        ];
        Sites::new(hosts).unwrap()
    }

    #[test]
    fn a_request_goes_to_the_exact_host_then_to_the_longest_wildcard_then_to_the_first_site() {
        let sites = sites();
        let long = |bytes: usize| ["a".repeat(bytes - 12), ".example.org".to_owned()].concat();
        let cases = [
            // Exact names, written in different ways.
            ("www.example.org", 0),
            ("example.org", 1),
            ("EXAMPLE.org", 1),
            ("example.org:8080", 1),
            ("example.org:", 1),
            ("example.org.", 1),
            ("example.org.:80", 1),
            ("example.net", 2),
            ("_x.example.net", 2),
            ("localhost:80", 3),
            // Wildcards: names below, at any depth; the longest counts.
            ("a.example.org", 1),
            ("a.b.example.org", 1),
            ("a.www.example.org", 1),
            ("deep.example.org", 1),
            ("a.deep.example.org", 2),
            ("A.B.Deep.Example.Org:1", 2),
            ("-.example.org", 1),
            ("*.example.org", 1),
            // No site has these.
            ("org", 0),
            ("aexample.org", 0),
            ("example.org.example.com", 0),
            ("a.example.net", 0),
            ("a.localhost", 0),
            // Addresses.
            ("192.0.2.1", 3),
            ("192.0.2.1:80", 3),
            ("192.0.2.2", 0),
            ("[2001:db8::1]", 3),
            ("[2001:DB8::1]:8080", 3),
            ("[::ffff:192.0.2.1]", 3),
            ("[2001:db8::2]", 0),
            ("2001:db8::1", 0),
            // No hosts at all. Most of these never come here, because their requests are refused.
            ("", 0),
            (":80", 0),
            (".", 0),
            ("..", 0),
            ("]", 0),
            ("[]", 0),
            ("[]:80", 0),
            (" example.org", 0),
            ("example.org ", 0),
            ("example org", 0),
            ("example.org\0", 0),
            ("example.org..", 0),
            (".example.org", 0),
            ("a..example.org", 0),
            ("..example.org", 0),
            ("b\u{fc}cher.example.org", 1),
            // The longest name, and longer ones.
            (&long(253), 1),
            (&format!("{}.:65535", long(253)), 1),
            (&long(254), 0),
            (&long(20_000), 0),
            (&".".repeat(20_000), 0),
            (&"a.".repeat(126), 0),
            (&["a.".repeat(120), "example.org".to_owned()].concat(), 1),
        ];
        for (host, expected) in cases {
            assert_eq!(sites.route_host(Some(host.as_bytes())), SiteId(expected), "{host:?}");
        }
        assert_eq!(sites.route_host(None), SiteId::FIRST, "HTTP/1.0 without Host");
    }

    #[test]
    fn any_bytes_may_be_a_host() {
        let sites = sites();
        for seed in 0..5000_u64 {
            let mut state = seed;
            let mut below = |bound: usize| {
                state =
                    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                usize::try_from(state >> 33).unwrap() % bound
            };
            let pieces =
                ["", ".", "example", "org", "a", "[", "]", ":", "80", "\u{ff}", "DEEP", "www."];
            let host: String = (0..below(9)).map(|_| pieces[below(pieces.len())]).collect();
            let site = sites.route_host(Some(host.as_bytes()));
            assert!(site < SiteId(sites.len()), "seed {seed}: {host:?}");
            // The port, the case and the last dot mean nothing.
            if !host.contains([':', '[', ']']) && !host.ends_with('.') {
                for same in [format!("{host}:1"), format!("{host}."), host.to_ascii_uppercase()] {
                    let other = sites.route_host(Some(same.as_bytes()));
                    assert_eq!(site, other, "seed {seed}: {host:?} and {same:?}");
                }
            }
        }
    }

    #[test]
    fn a_single_site_gets_all_requests() {
        for sites in [Sites::default(), Sites::new([&["example.org"][..]]).unwrap()] {
            assert_eq!(sites.ids().collect::<Vec<_>>(), [SiteId::FIRST]);
            assert_eq!(sites.route_host(Some(b"www.example.net")), SiteId::FIRST);
        }
    }

    #[test]
    fn hosts_that_cannot_be_meant_are_refused() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for host in [
            "",
            ".",
            "*",
            "*.",
            "*.*.org",
            "a.*.org",
            "*example.org",
            "example.org:80",
            "http://example.org",
            "example.org/",
            "a b",
            "a..b",
            ".a",
            "b\u{fc}cher.example",
            "[::1",
            "::1",
            "[::1]:80",
            "*.[::1]",
            "[example.org]",
            &long,
        ] {
            let error = Sites::new([&[host][..]]).unwrap_err();
            assert!(error.contains("expected a host"), "{host}: {error}");
        }
        let twice: [[&[&str]; 2]; 3] = [
            [&["a.org"], &["b.org", "A.org."]],
            [&["*.a.org", "*.A.org"], &[]],
            [&["[::1]"], &["[0:0:0:0:0:0:0:1]"]],
        ];
        for sites in twice {
            assert!(Sites::new(sites).unwrap_err().contains("is listed twice"), "{sites:?}");
        }
        assert!(Sites::new::<&str>([]).is_err(), "no site");
        assert!(Sites::new([&["a.org", "*.a.org"][..], &["*.org"]]).is_ok());
    }
}

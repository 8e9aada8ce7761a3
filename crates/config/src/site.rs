//! The choice of a request's site by its host, among the sites of a listener.
//!
//! The hosts of a site are names (`example.org`), IP addresses (`192.0.2.1`, `[2001:db8::1]`) and
//! wildcards (`*.example.org`). A wildcard covers all names below its own, at any depth, but not that name
//! itself. A request goes to the site that has its host, or else to the site with the longest wildcard that
//! covers the host, or else to the default site.
//!
//! Reading list: RFC 9110 §4.2.3 and §7.2, RFC 3986 §3.2.2, RFC 1035 §2.3.4.

use core::net::Ipv6Addr;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use http::Head;

/// The maximum length of a name: 255 bytes on the wire of DNS. Longer hosts have no site.
const NAME_BYTES_MAX: usize = 253;

/// The number of a site, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteId(u32);

/// The hosts of the sites of a listener.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The site for all other hosts.
    default: SiteId,
    /// True if all requests go to one site.
    is_one_site: bool,
    /// The names, and the names with the port of the listener: as clients send them.
    usual: HashMap<Box<[u8]>, SiteId, RandomState>,
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
    /// The first site.
    pub const FIRST: Self = Self(0);

    /// The id of the site at this position of a list.
    ///
    /// # Panics
    ///
    /// If the position is 2³² or more.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer sites than 2³²"))
    }

    /// The position of the site in a list with one entry for each site.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Hosts {
    /// All hosts belong to the site `default`, except hosts that are added later.
    pub fn new(default: SiteId) -> Self {
        let usual = HashMap::default();
        Self { default, is_one_site: true, usual, names: Name::default() }
    }

    /// Adds a host of a site. `port` is the port of the listener, if it has one.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if the host has no valid form, or was added before.
    pub fn add(&mut self, host: &str, site: SiteId, port: Option<u16>) -> Result<(), String> {
        let (name, is_wildcard) = canonical(host)?;
        let mut node = &mut self.names;
        for label in name.rsplit('.') {
            node = node.labels.entry(label.as_bytes().into()).or_default();
        }
        let place = if is_wildcard { &mut node.below } else { &mut node.exact };
        if place.replace(site).is_some() {
            return Err(format!("the host {host} is listed twice"));
        }
        self.is_one_site &= site == self.default;
        if !is_wildcard {
            if let Some(port) = port {
                self.usual.insert(format!("{name}:{port}").into_bytes().into(), site);
            }
            self.usual.insert(name.into_bytes().into(), site);
        }
        Ok(())
    }

    /// Returns the site for requests that name no host.
    pub const fn default_site(&self) -> SiteId {
        self.default
    }

    /// Returns the site that a request is for.
    #[inline]
    pub fn site(&self, head: &Head<'_>) -> SiteId {
        if self.is_one_site { self.default } else { self.site_of(head.host()) }
    }

    /// Returns the host of a request in the form in which hosts are compared, if it is one of a site: without a port, and
    /// safe in a URL. A host that is the site's only because the site is the default is none.
    pub fn listed(&self, host: &[u8], site: SiteId) -> Option<String> {
        let name = without_port(host);
        let name = String::from_utf8(name.strip_suffix(b".").unwrap_or(name).to_vec()).ok()?;
        let name = name.to_ascii_lowercase();
        let is_safe = is_name(&name) || ipv6(&name).is_some();
        (is_safe && self.find(host) == Some(site)).then_some(name)
    }

    /// Returns the site for a host, with or without a port, or for none.
    pub fn site_of(&self, host: Option<&[u8]>) -> SiteId {
        let Some(host) = host else { return self.default };
        match self.usual.get(host) {
            Some(site) => *site,
            None => self.find(host).unwrap_or(self.default),
        }
    }

    /// Finds the site that has a host, whose port and case mean nothing here, nor does the dot at the end of
    /// an absolute name.
    #[inline(never)]
    fn find(&self, host: &[u8]) -> Option<SiteId> {
        let name = without_port(host);
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
}

/// The host of a request without its port.
#[must_use]
pub fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|&byte| byte == b':') {
        Some(colon) if !host.ends_with(b"]") => &host[..colon],
        _ => host,
    }
}

/// The first of the hosts of a site that is no wildcard, in the form in which hosts are compared.
#[must_use]
pub fn first_name(hosts: &[String]) -> Option<String> {
    let names = hosts.iter().filter_map(|host| canonical(host).ok());
    names.filter(|(_, is_wildcard)| !is_wildcard).map(|(name, _)| name).next()
}

/// Returns a host in the form in which hosts are compared, without the star of a wildcard, and whether it
/// is one.
///
/// # Errors
///
/// A sentence for the operator, if it has no valid form.
pub(crate) fn canonical(host: &str) -> Result<(String, bool), String> {
    let lower = host.to_ascii_lowercase();
    let (name, is_wildcard) =
        lower.strip_prefix("*.").map_or((&lower[..], false), |name| (name, true));
    match ipv6(name) {
        Some(address) if !is_wildcard => Ok((format!("[{address}]"), false)),
        _ if is_name(name) => Ok((name.strip_suffix('.').unwrap_or(name).to_owned(), is_wildcard)),
        _ => Err(format!(
            "{host}: expected a host such as example.org, *.example.org or [2001:db8::1], \
             without a port; international names have the form xn--bcher-kva.example"
        )),
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

    fn hosts(sites: &[&[&str]]) -> Result<Hosts, String> {
        let mut made = Hosts::new(SiteId::FIRST);
        for (index, hosts) in sites.iter().enumerate() {
            for host in *hosts {
                made.add(host, SiteId::new(index), Some(8080))?;
            }
        }
        Ok(made)
    }

    fn sites() -> Hosts {
        let all: [&[&str]; 5] = [
            &["www.example.org"],
            &["*.example.org", "example.org"],
            &["*.deep.example.org", "Example.NET.", "_x.example.net"],
            &["192.0.2.1", "[2001:DB8:0::1]", "[::ffff:192.0.2.1]", "localhost"],
            &[],
        ];
        hosts(&all).unwrap()
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
            assert_eq!(sites.site_of(Some(host.as_bytes())), SiteId(expected), "{host:?}");
        }
        assert_eq!(sites.site_of(None), SiteId::FIRST, "HTTP/1.0 without Host");
    }

    #[test]
    fn only_a_host_that_a_site_lists_is_a_name_of_it() {
        let sites = sites();
        for (host, site, expected) in [
            ("www.example.org", 0, Some("www.example.org")),
            ("WWW.Example.ORG.:80", 0, Some("www.example.org")),
            ("www.example.org", 1, None),
            ("a.b.example.org", 1, Some("a.b.example.org")),
            ("[2001:DB8::1]:8080", 3, Some("[2001:db8::1]")),
            ("192.0.2.1", 3, Some("192.0.2.1")),
            // It is the site's because that is the default.
            ("example.com", 0, None),
            ("evil.example", 0, None),
            ("", 0, None),
            ("[2001:db8::2]", 0, None),
            // Wildcards cover what a browser would read in another way.
            ("a%2fb.example.org", 1, None),
            ("*.example.org", 1, None),
            ("a;b.example.org", 1, None),
            ("a@b.example.org", 1, None),
            ("b\u{fc}cher.example.org", 1, None),
        ] {
            let found = sites.listed(host.as_bytes(), SiteId(site));
            assert_eq!(found.as_deref(), expected, "{host:?} of {site}");
        }
        let first = |hosts: &[&str]| {
            first_name(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(first(&["*.a.org", "B.org.", "c.org"]).as_deref(), Some("b.org"));
        assert_eq!(first(&["*.a.org", "[2001:DB8:0::1]"]).as_deref(), Some("[2001:db8::1]"));
        assert_eq!((first(&["*.a.org"]), first(&[])), (None, None));
    }

    #[test]
    fn any_bytes_may_be_a_host() {
        let sites = sites();
        for seed in 0..5000_u64 {
            let mut random = testkit::Random::new(seed);
            let mut below = |bound: usize| random.below(bound);
            let pieces =
                ["", ".", "example", "org", "a", "[", "]", ":", "80", "\u{ff}", "DEEP", "www."];
            let host: String = (0..below(9)).map(|_| pieces[below(pieces.len())]).collect();
            let site = sites.site_of(Some(host.as_bytes()));
            assert!(site < SiteId(5), "seed {seed}: {host:?}");
            // The port, the case and the last dot mean nothing.
            if !host.contains([':', '[', ']']) && !host.ends_with('.') {
                for same in [format!("{host}:1"), format!("{host}."), host.to_ascii_uppercase()] {
                    let other = sites.site_of(Some(same.as_bytes()));
                    assert_eq!(site, other, "seed {seed}: {host:?} and {same:?}");
                }
            }
        }
    }

    #[test]
    fn a_single_site_gets_all_requests() {
        for sites in [hosts(&[]).unwrap(), hosts(&[&["example.org"]]).unwrap()] {
            assert!(sites.is_one_site);
            assert_eq!(sites.site_of(Some(b"www.example.net")), SiteId::FIRST);
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
            let error = hosts(&[&[host]]).unwrap_err();
            assert!(error.contains("expected a host"), "{host}: {error}");
        }
        let twice: [[&[&str]; 2]; 3] = [
            [&["a.org"], &["b.org", "A.org."]],
            [&["*.a.org", "*.A.org"], &[]],
            [&["[::1]"], &["[0:0:0:0:0:0:0:1]"]],
        ];
        for sites in twice {
            assert!(hosts(&sites).unwrap_err().contains("is listed twice"), "{sites:?}");
        }
        assert!(hosts(&[&["a.org", "*.a.org"], &["*.org"]]).is_ok());
    }
}

//! The sites with TLS, and the sites of each listener. Pure.

use std::collections::HashMap;

use config::{Address, Config, Listen, Tls};
use tls::Urls;

/// The port that URLs with `https` leave out.
const DEFAULT_PORT: u16 = 443;

/// A site that has a listener with TLS.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) name: String,
    pub(super) hosts: Vec<String>,
    /// `None` if no client can reach the site: it has no hosts, and is not the default site of a listener with TLS.
    pub(super) tls: Option<Tls>,
    is_default: bool,
    /// Those of its listeners that have TLS.
    addresses: Vec<Address>,
}

/// A listener with TLS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) number: u32,
    /// All sites at its address, in the order of the configuration.
    pub(super) sites: Vec<Shown>,
    /// The index of the default site among them.
    pub(super) default: usize,
    /// The URLs for clients that speak HTTP without TLS.
    pub(super) urls: Urls,
    /// True if clients may choose HTTP/2.
    pub(super) http2: bool,
}

/// A site at a listener. Both numbers are indexes of sites of the configuration that have TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) site: usize,
    /// The site whose certificates are shown: itself, or the default site if it has none.
    pub(super) tls: usize,
}

/// Returns the sites of a configuration that have a listener with TLS, in order.
pub(super) fn sites(config: &Config) -> Vec<Site> {
    let site = |site: &config::Site| {
        let with_tls = site.listen.iter().filter(|listen| listen.tls);
        let addresses: Vec<_> = with_tls.map(|listen| listen.address.clone()).collect();
        (!addresses.is_empty()).then(|| Site {
            name: site.name.clone(),
            hosts: site.hosts.clone(),
            tls: site.tls.clone(),
            is_default: site.is_default,
            addresses,
        })
    };
    config.sites.iter().filter_map(site).collect()
}

/// Returns the listeners that have TLS. `ports` has the port of each listener for which the kernel has chosen one.
pub(super) fn listeners(
    sites: &[Site],
    listeners: &[(u32, Listen)],
    ports: &HashMap<u32, u16>,
) -> Vec<Listener> {
    let mut by_address: HashMap<&Address, Vec<usize>> = HashMap::new();
    for (index, site) in sites.iter().enumerate() {
        for address in &site.addresses {
            by_address.entry(address).or_default().push(index);
        }
    }
    let listener = |(number, listen): &(u32, Listen)| {
        let here = by_address.get(&listen.address).filter(|_| listen.tls)?;
        let default = here.iter().position(|index| sites[*index].is_default).unwrap_or(0);
        let shown = |site: &usize| {
            let is_own = sites[*site].tls.is_some();
            Shown { site: *site, tls: if is_own { *site } else { here[default] } }
        };
        let port = ports.get(number).copied().or_else(|| listen.address.port());
        let port = port.filter(|port| *port != DEFAULT_PORT);
        let default_url = url(&sites[here[default]].hosts, &listen.address, port);
        let hosts = here.iter().flat_map(|index| sites[*index].hosts.clone()).collect();
        Some(Listener {
            number: *number,
            http2: listen.http2,
            sites: here.iter().map(shown).collect(),
            default,
            urls: Urls::new(default_url, hosts, port),
        })
    };
    listeners.iter().filter_map(listener).collect()
}

/// Returns the URL of a site at an address, with the port that it names: with its first host that is no wildcard, or
/// else the address. It is empty if the site has no such host, and the listener has all addresses of the machine.
fn url(hosts: &[String], address: &Address, port: Option<u16>) -> String {
    let host = match (hosts.iter().find(|host| !host.starts_with('*')), address) {
        (Some(host), _) => host.clone(),
        (None, Address::Ip(ip)) if ip.ip().is_unspecified() => return String::new(),
        (None, Address::Ip(ip)) if ip.is_ipv6() => format!("[{}]", ip.ip()),
        (None, Address::Ip(ip)) => ip.ip().to_string(),
        // Its clients are on this machine.
        (None, Address::Unix(_)) => "localhost".to_owned(),
    };
    match port {
        Some(port) => format!("https://{host}:{port}/"),
        None => format!("https://{host}/"),
    }
}

#[cfg(test)]
mod tests {
    use core::slice::from_ref;

    use super::*;
    use config::{TlsFiles, UnixSocket};

    fn at(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn listen(address: Address, tls: bool) -> Listen {
        Listen { tls, ..Listen::from(address) }
    }

    fn site(hosts: &[&str], listen: &[Listen], certificate: Option<&str>) -> config::Site {
        let pairs = |name: &str| vec![TlsFiles::new(name.into(), None)];
        config::Site {
            name: hosts.first().map_or("default", |host| *host).to_owned(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            is_default: false,
            listen: listen.to_vec(),
            tls: certificate.map(|name| Tls { pairs: pairs(name), ..Tls::default() }),
            ..Config::default().sites.remove(0)
        }
    }

    fn planned(config: &Config, all: &[(u32, Listen)]) -> Vec<Listener> {
        listeners(&sites(config), all, &HashMap::from([(9, 40_000)]))
    }

    #[test]
    fn the_sites_of_a_listener_are_those_of_its_address_in_order() {
        let (plain, one) = (listen(at("10.0.0.1:80"), false), listen(at("10.0.0.1:443"), true));
        let two = listen(at("[2001:db8::1]:8443"), true);
        let sites = vec![
            site(&["plain"], from_ref(&plain), Some("plain.pem")),
            site(&["a", "b"], &[plain.clone(), one.clone()], Some("a.pem")),
            // No client reaches it.
            site(&[], from_ref(&one), None),
            site(&["*.c"], &[one.clone(), two.clone()], Some("c.pem")),
        ];
        let mut config = Config { sites, ..Config::default() };
        let all = [(0, plain), (4, one.clone()), (5, two.clone())];
        let own = |site| Shown { site, tls: site };
        let urls = |default: &str, hosts: &[&str], port| {
            let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            Urls::new(default.to_owned(), hosts, port)
        };
        let mut expected = [
            Listener {
                number: 4,
                http2: true,
                sites: vec![own(0), Shown { site: 1, tls: 0 }, own(2)],
                default: 0,
                urls: urls("https://a/", &["a", "b"], None),
            },
            Listener {
                number: 5,
                http2: true,
                sites: vec![own(2)],
                default: 0,
                urls: urls("https://[2001:db8::1]:8443/", &[], Some(8443)),
            },
        ];
        assert_eq!(planned(&config, &all), expected);
        config.sites[3].is_default = true;
        expected[0].sites[1].tls = 2;
        expected[0].default = 2;
        expected[0].urls = urls("https://10.0.0.1/", &["a", "b"], None);
        assert_eq!(planned(&config, &all), expected);
        // A listener that has TLS no more.
        assert_eq!(planned(&config, &[(4, listen(one.address, false))]), []);
    }

    #[test]
    fn a_client_is_told_a_name_or_the_address() {
        let socket = Address::Unix(UnixSocket { path: "/s".into(), ..UnixSocket::default() });
        for (hosts, address, url) in [
            (&["a.example"][..], at("0.0.0.0:443"), "https://a.example/"),
            (&["*.a.example", "[::1]"], at("0.0.0.0:444"), "https://[::1]:444/"),
            (&["*.a.example"], at("127.0.0.1:443"), "https://127.0.0.1/"),
            (&["*.a.example"], at("0.0.0.0:8443"), ""),
            (&[], at("[::]:443"), ""),
            (&[], at("[::1]:8443"), "https://[::1]:8443/"),
            (&[], at("127.0.0.1:0"), "https://127.0.0.1:40000/"),
            (&[], socket.clone(), "https://localhost/"),
            (&["a.example"], socket, "https://a.example/"),
        ] {
            let listen = listen(address, true);
            let sites = vec![site(hosts, from_ref(&listen), Some("a.pem"))];
            let config = Config { sites, ..Config::default() };
            // The kernel has chosen the port of listener 9.
            let number = if listen.address.port() == Some(0) { 9 } else { 1 };
            assert_eq!(planned(&config, &[(number, listen)])[0].urls.default, url);
        }
    }
}

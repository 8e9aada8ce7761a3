//! Says from where the addresses of the server can be reached, if no operator started it at a terminal. In a container
//! the default, an address of the loopback interface, cannot be reached by any client outside.

use core::net::SocketAddr;
use std::collections::HashMap;
use std::{env, process};

use config::{Address, Listen};

/// Where the server runs, if it was not started at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunsIn {
    Container,
    /// A unit of systemd.
    Unit,
}

impl RunsIn {
    /// The surroundings of this process.
    pub(super) fn of_process() -> Option<Self> {
        let exists = |path: &str| std::fs::exists(path).unwrap_or(false);
        // The files are made by Docker and by Podman. The init process of a machine is no web server.
        if process::id() == 1 || exists("/.dockerenv") || exists("/run/.containerenv") {
            return Some(Self::Container);
        }
        // systemd.exec(5). The second is for those who clear the first.
        let is_unit =
            ["INVOCATION_ID", "JOURNAL_STREAM"].iter().any(|name| env::var_os(name).is_some());
        is_unit.then_some(Self::Unit)
    }
}

/// A line about the listeners. `ports` are those that the kernel has chosen.
pub(super) fn describe(
    place: RunsIn,
    listeners: &[(u32, Listen)],
    ports: &HashMap<u32, u16>,
) -> String {
    let urls = listeners.iter().filter_map(|(number, listen)| match listen.address {
        Address::Ip(ip) if !ip.ip().is_loopback() => {
            let port = ports.get(number).copied().unwrap_or_else(|| ip.port());
            Some(config::url(SocketAddr::new(ip.ip(), port), listen.tls))
        }
        Address::Ip(_) | Address::Unix(_) => None,
    });
    let urls: Vec<_> = urls.collect();
    match place {
        _ if !urls.is_empty() => {
            format!("reachable from outside, unless a firewall forbids it: {}", urls.join(", "))
        }
        RunsIn::Container => "not reachable from outside the container: no address but those of the loopback interface \
             and Unix sockets (for all addresses listen at 0.0.0.0:8080 and [::]:8080)"
            .to_owned(),
        RunsIn::Unit => "not reachable from outside this machine: no address but those of the loopback interface and \
             Unix sockets"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::UnixSocket;

    #[test]
    fn addresses_of_the_loopback_interface_and_unix_sockets_are_not_reachable_from_outside() {
        let unix = || Address::Unix(UnixSocket::default());
        let ip = |text: &str| Address::Ip(text.parse().unwrap());
        let describe = |place, addresses: Vec<Address>| {
            let listeners = addresses.into_iter().map(Listen::from).zip(0..);
            let listeners: Vec<_> = listeners.map(|(listen, number)| (number, listen)).collect();
            describe(place, &listeners, &HashMap::from([(1, 4321)]))
        };
        for place in [RunsIn::Container, RunsIn::Unit] {
            let text =
                describe(place, vec![ip("127.0.0.1:80"), ip("[::]:0"), unix(), ip("192.0.2.1:80")]);
            assert!(text.ends_with(": http://[::]:4321/, http://192.0.2.1:80/"), "{text}");
        }
        let local = || vec![ip("127.9.9.9:80"), ip("[::1]:80"), unix()];
        assert!(
            describe(RunsIn::Container, local())
                .starts_with("not reachable from outside the container")
        );
        assert!(
            describe(RunsIn::Unit, local()).starts_with("not reachable from outside this machine")
        );
    }

    #[test]
    fn the_url_of_a_listener_with_tls_says_so() {
        let listen = Listen { tls: true, ..Listen::from(Address::Ip("[::]:443".parse().unwrap())) };
        let text = describe(RunsIn::Unit, &[(0, listen)], &HashMap::new());
        assert!(text.ends_with(": https://[::]:443/"), "{text}");
    }
}

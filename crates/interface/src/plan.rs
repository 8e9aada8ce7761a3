//! Assigns each listener to the kernel, or to the stack of an interface. Pure.

use core::net::{IpAddr, SocketAddr};

use config::{Address, Listen};

/// A listener of an interface: its number, and the address at which it accepts.
pub(super) type Local = (u32, SocketAddr);

/// The listeners of the kernel and of each interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) kernel: Vec<(u32, Listen)>,
    /// For each interface, in order.
    pub(super) interfaces: Vec<Vec<Local>>,
}

/// An interface, with the facts that matter for listeners.
#[derive(Debug)]
pub(super) struct Addressed<'a> {
    pub(super) name: &'a str,
    pub(super) addresses: &'a [IpAddr],
}

impl Addressed<'_> {
    /// The addresses of the interface at which a listener accepts.
    fn locals(&self, listener: &Address) -> impl Iterator<Item = SocketAddr> {
        let ip = match listener {
            Address::Ip(ip) => Some(*ip),
            Address::Unix(_) => None,
        };
        ip.into_iter().flat_map(|ip| {
            let takes = move |own: &&IpAddr| {
                let is_wild = ip.ip().is_unspecified() && ip.is_ipv4() == own.is_ipv4();
                is_wild || ip.ip() == **own
            };
            self.addresses.iter().filter(takes).map(move |own| SocketAddr::new(*own, ip.port()))
        })
    }

    /// Returns true if only the interface has a listener, so that the kernel has no socket for it.
    fn has_alone(&self, listener: &Address) -> bool {
        matches!(listener, Address::Ip(ip) if self.addresses.contains(&ip.ip()))
    }
}

/// Returns true if a listener is at all addresses of the kernel, and so also at this one.
pub(super) fn is_all(listener: &Address, local: SocketAddr) -> bool {
    matches!(listener, Address::Ip(ip) if ip.ip().is_unspecified()
        && ip.port() == local.port()
        && ip.is_ipv4() == local.is_ipv4())
}

/// Finds the listeners of these addresses of an interface. If an address has several, the last one
/// counts.
pub(super) fn served(
    listeners: &[(u32, Listen)],
    locals: &[SocketAddr],
) -> impl Iterator<Item = (SocketAddr, u32)> {
    listeners.iter().flat_map(|(number, Listen { address: listener, .. })| {
        let takes = move |local: &&SocketAddr| {
            matches!(listener, Address::Ip(ip) if ip == *local) || is_all(listener, **local)
        };
        locals.iter().filter(takes).map(|local| (*local, *number))
    })
}

/// Returns the name of the interface that alone serves a listener.
pub(super) fn owner<'a>(listener: &Address, interfaces: &[Addressed<'a>]) -> Option<&'a str> {
    interfaces
        .iter()
        .find(|interface| interface.has_alone(listener))
        .map(|interface| interface.name)
}

/// Divides the listeners. A listener at all addresses belongs to the kernel and to all interfaces.
///
/// # Errors
///
/// A message for the operator, if an interface would serve nothing, or a port is unknown.
pub(super) fn divide(
    listeners: &[(u32, Listen)],
    interfaces: &[Addressed<'_>],
) -> Result<Plan, String> {
    let mut of_each = Vec::new();
    for interface in interfaces {
        let mut locals = Vec::new();
        for (number, listener) in listeners {
            locals.extend(interface.locals(&listener.address).map(|local| (*number, local)));
        }
        if let Some((_, local)) = locals.iter().find(|(_, local)| local.port() == 0) {
            let name = interface.name;
            return Err(format!(
                "cannot listen on {local}: the kernel chooses no port for the interface {name}; name one"
            ));
        }
        if locals.is_empty() {
            return Err(nothing_to_serve(interface));
        }
        of_each.push(locals);
    }
    let is_kernels =
        |(_, listener): &&(u32, Listen)| owner(&listener.address, interfaces).is_none();
    let kernel = listeners.iter().filter(is_kernels).cloned().collect();
    Ok(Plan { kernel, interfaces: of_each })
}

fn nothing_to_serve(interface: &Addressed<'_>) -> String {
    let name = interface.name;
    let Some(first) = interface.addresses.first() else {
        return format!(
            "interface {name}: it has no address; give it one with `ip address add ADDR/PREFIX dev {name}`, or \
             add --address ADDR/PREFIX for one that only samum has"
        );
    };
    let all: Vec<_> = interface.addresses.iter().map(ToString::to_string).collect();
    format!(
        "interface {name}: no listener has one of its addresses ({}); add --listen {}, or leave out \
         --interface {name}",
        all.join(", "),
        SocketAddr::new(*first, 80),
    )
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use config::UnixSocket;

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn eth1() -> Addressed<'static> {
        const ADDRESSES: [IpAddr; 2] = [
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        ];
        Addressed { name: "eth1", addresses: &ADDRESSES }
    }

    fn divided(listeners: &[Address]) -> Result<(Vec<u32>, Vec<String>), String> {
        let listeners: Vec<_> = (0..).zip(listeners.iter().cloned().map(Listen::from)).collect();
        let mut plan = divide(&listeners, &[eth1()])?;
        let kernel = plan.kernel.iter().map(|(number, _)| *number).collect();
        let locals = plan.interfaces.remove(0);
        Ok((kernel, locals.iter().map(|(number, local)| format!("{number}:{local}")).collect()))
    }

    #[test]
    fn listeners_go_where_their_addresses_are() {
        let unix = Address::Unix(UnixSocket { path: "/s".into(), ..UnixSocket::default() });
        let all =
            [ip("10.0.0.1:80"), ip("10.0.0.2:80"), unix, ip("[fd00::1]:80"), ip("0.0.0.0:81")];
        let (kernel, locals) = divided(&all).unwrap();
        assert_eq!(kernel, [1, 2, 4]);
        assert_eq!(locals, ["0:10.0.0.1:80", "3:[fd00::1]:80", "4:10.0.0.1:81"]);
        assert_eq!(owner(&all[0], &[eth1()]), Some("eth1"));
        assert_eq!(owner(&all[4], &[eth1()]), None);
    }

    #[test]
    fn an_interface_serves_something() {
        let error = divided(&[ip("10.0.0.2:80")]).unwrap_err();
        assert!(error.contains("add --listen 10.0.0.1:80"), "{error}");
        let error = divided(&[ip("10.0.0.1:0")]).unwrap_err();
        assert!(error.contains("name one"), "{error}");
        let bare = Addressed { name: "eth2", addresses: &[] };
        let error = divide(&[(0, ip("0.0.0.0:80").into())], &[bare]).unwrap_err();
        assert!(error.contains("it has no address"), "{error}");
    }
}

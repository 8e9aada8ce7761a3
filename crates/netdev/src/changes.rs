//! Detects and reports changes of an interface that is in use. Pure.
//!
//! AF_XDP does not report that its interface was deleted, so the kernel's link messages are read (rtnetlink). The
//! messages also report changes of the MAC address, the MTU and the IP addresses, which a device does not follow.

use core::fmt::Display;
use core::net::IpAddr;

use netstack::wire::Mac;

use crate::netlink::KernelMessage;

/// The properties of an interface that the server uses, and the kernel's present ones. A property is `None` if the
/// server has its own.
#[derive(Debug)]
pub(crate) struct Changes {
    index: u32,
    name: String,
    mac: Option<Value<[u8; 6]>>,
    mtu: Value<u16>,
    addresses: Option<Value<Vec<(IpAddr, u8)>>>,
}

#[derive(Debug)]
struct Value<T> {
    used: T,
    now: T,
}

impl<T: Clone> Value<T> {
    fn new(used: T) -> Self {
        Self { now: used.clone(), used }
    }
}

impl<T: PartialEq + Copy> Value<T> {
    /// Sets the present value. Returns true if it has changed.
    fn set(&mut self, value: T) -> bool {
        core::mem::replace(&mut self.now, value) != value
    }
}

impl Changes {
    pub(crate) fn new(
        index: u32,
        name: String,
        mac: Option<[u8; 6]>,
        mtu: u16,
        addresses: Option<Vec<(IpAddr, u8)>>,
    ) -> Self {
        let (mac, addresses) = (mac.map(Value::new), addresses.map(Value::new));
        Self { index, name, mac, mtu: Value::new(mtu), addresses }
    }

    /// Adds a sentence for the operator about each change in a kernel message.
    pub(crate) fn note(&mut self, news: &KernelMessage, sentences: &mut Vec<String>) {
        match news {
            KernelMessage::Link(link) if link.index == self.index => {
                // Some link messages have only a part of the link's properties.
                if let Some(mac) = &mut self.mac
                    && let Ok(now) = <[u8; 6]>::try_from(&*link.mac)
                    && mac.set(now)
                {
                    sentences.push(replaced(&self.name, "MAC address", Mac(now), Mac(mac.used)));
                }
                let now = u16::try_from(link.mtu).unwrap_or(u16::MAX);
                if now != 0 && self.mtu.set(now) {
                    sentences.push(replaced(&self.name, "MTU", now, self.mtu.used));
                }
            }
            KernelMessage::Address(index, address, prefix) if *index == self.index => {
                sentences.extend(self.add((*address, *prefix)));
            }
            KernelMessage::AddressGone(index, address, prefix) if *index == self.index => {
                sentences.extend(self.remove((*address, *prefix)));
            }
            _ => {}
        }
    }

    fn add(&mut self, one: (IpAddr, u8)) -> Option<String> {
        if is_link_local(one.0) {
            return None;
        }
        let addresses =
            self.addresses.as_mut().filter(|addresses| !addresses.now.contains(&one))?;
        addresses.now.push(one);
        let what = if addresses.used.contains(&one) {
            "is there again, as the server has it"
        } else {
            "was added; the server does not serve there until it is restarted"
        };
        Some(about(&self.name, one, what))
    }

    fn remove(&mut self, one: (IpAddr, u8)) -> Option<String> {
        if is_link_local(one.0) {
            return None;
        }
        let addresses = self.addresses.as_mut()?;
        let at = addresses.now.iter().position(|known| *known == one)?;
        addresses.now.swap_remove(at);
        // If an address that was added later goes, the interface matches the server's properties again.
        let is_used = addresses.used.contains(&one);
        let what = "was removed; the server goes on with it until it is restarted";
        is_used.then(|| about(&self.name, one, what))
    }
}

/// True if an address comes and goes with the link by itself. No service has such an address, because it would need
/// a zone.
const fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn about(name: &str, (address, prefix): (IpAddr, u8), what: &str) -> String {
    format!("interface {name}: the address {address}/{prefix} {what}")
}

fn replaced<T: Display + PartialEq>(name: &str, what: &str, now: T, used: T) -> String {
    if now == used {
        return format!("interface {name}: its {what} is {now} again, as the server has it");
    }
    format!(
        "interface {name}: its {what} is {now} now; the server goes on with {used} until it is restarted"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Link;

    const USED: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn link(index: u32, mac: &[u8], mtu: u32) -> KernelMessage {
        KernelMessage::Link(Link { index, mac: mac.to_vec(), mtu, ..Link::default() })
    }

    fn first() -> (IpAddr, u8) {
        ([10, 0, 0, 1].into(), 24)
    }

    fn changes() -> Changes {
        Changes::new(7, "eth1".to_owned(), Some(USED), 1500, Some(vec![first()]))
    }

    /// Checks the sentences about a sequence of messages.
    #[track_caller]
    fn check<const N: usize>(changes: &mut Changes, news: [(KernelMessage, &[&str]); N]) {
        for (one, expected) in news {
            let mut sentences = Vec::new();
            changes.note(&one, &mut sentences);
            assert_eq!(sentences, expected, "{one:?}");
        }
    }

    #[test]
    fn another_mac_or_mtu_is_told_once() {
        let other = [2, 0, 0, 0, 0, 9];
        let news: [(KernelMessage, &[&str]); _] = [
            (link(7, &USED, 1500), &[]),
            (link(8, &other, 9000), &[]),
            (
                link(7, &other, 9000),
                &[
                    "interface eth1: its MAC address is 02:00:00:00:00:09 now; the server goes on with \
                     02:00:00:00:00:01 until it is restarted",
                    "interface eth1: its MTU is 9000 now; the server goes on with 1500 until it is restarted",
                ],
            ),
            (link(7, &other, 9000), &[]),
            // Without the properties.
            (link(7, &[], 0), &[]),
            (
                link(7, &USED, 9000),
                &[
                    "interface eth1: its MAC address is 02:00:00:00:00:01 again, as the server has it",
                ],
            ),
            (
                link(7, &USED, 1500),
                &["interface eth1: its MTU is 1500 again, as the server has it"],
            ),
            // The stack has no larger packets than those of IP.
            (
                link(7, &USED, 65_536),
                &[
                    "interface eth1: its MTU is 65535 now; the server goes on with 1500 until it is restarted",
                ],
            ),
        ];
        check(&mut changes(), news);
    }

    #[test]
    fn addresses_that_come_and_go_are_told_once() {
        let (used, prefix) = first();
        let other = IpAddr::from([10, 0, 0, 9]);
        let news: [(KernelMessage, &[&str]); _] = [
            (KernelMessage::Address(7, used, prefix), &[]),
            (KernelMessage::Address(8, other, 24), &[]),
            (KernelMessage::AddressGone(8, used, prefix), &[]),
            (KernelMessage::Address(7, "fe80::1".parse().unwrap(), 64), &[]),
            (
                KernelMessage::Address(7, other, 24),
                &[
                    "interface eth1: the address 10.0.0.9/24 was added; the server does not serve there until it is \
                   restarted",
                ],
            ),
            (KernelMessage::Address(7, other, 24), &[]),
            (KernelMessage::AddressGone(7, other, 24), &[]),
            (
                KernelMessage::AddressGone(7, used, prefix),
                &[
                    "interface eth1: the address 10.0.0.1/24 was removed; the server goes on with it until it is \
                   restarted",
                ],
            ),
            (KernelMessage::AddressGone(7, used, prefix), &[]),
            (
                KernelMessage::Address(7, used, prefix),
                &["interface eth1: the address 10.0.0.1/24 is there again, as the server has it"],
            ),
        ];
        check(&mut changes(), news);
    }

    #[test]
    fn what_is_not_used_may_change() {
        let (address, prefix) = first();
        let news: [(KernelMessage, &[&str]); _] = [
            (link(7, &[2, 0, 0, 0, 0, 9], 1500), &[]),
            (KernelMessage::Address(7, address, prefix), &[]),
            (KernelMessage::AddressGone(7, address, prefix), &[]),
        ];
        check(&mut Changes::new(7, "eth1".to_owned(), None, 1500, None), news);
    }
}

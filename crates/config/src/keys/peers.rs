//! Lists of clients, for `allow`, `deny` and `trusted-proxies`.

use core::net::IpAddr;

use crate::Peers;
use crate::message::Notes;
use crate::node::Node;
use crate::value;

/// Reads a list of addresses and ranges, and reports addresses that were probably meant as ranges.
pub(super) fn read_peers(node: Node<'_>, notes: &mut Notes) -> Option<Vec<Peers>> {
    node.list(notes, |node, notes| {
        let peers = node.text(value::peers, notes)?;
        if let Some(text) = node.as_text()
            && let Some(range) = range_of(text)
        {
            notes.warning(
                node.place,
                format!("`{text}` is a single address: the range is `{range}`"),
            );
        }
        Some(peers)
    })
}

/// The range for which a user has probably written its first address, which is the address of no client.
fn range_of(text: &str) -> Option<String> {
    let len = match text.parse().ok()? {
        IpAddr::V4(address) => match address.octets() {
            [0, 0, 0, 0] => 0,
            [172, 16, 0, 0] => 12,
            [_, 0, 0, 0] => 8,
            [_, _, 0, 0] => 16,
            [_, _, _, 0] => 24,
            _ => return None,
        },
        IpAddr::V6(address) if address.is_unspecified() => 0,
        IpAddr::V6(address) => match address.segments() {
            [_, 0, 0, 0, 0, 0, 0, 0] => 16,
            [_, _, 0, 0, 0, 0, 0, 0] => 32,
            [_, _, _, 0, 0, 0, 0, 0] => 48,
            [_, _, _, _, 0, 0, 0, 0] => 64,
            _ => return None,
        },
    };
    Some(format!("{text}/{len}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_a_range_is_rarely_meant_alone() {
        for (text, expected) in [
            ("0.0.0.0", Some("0.0.0.0/0")),
            ("10.0.0.0", Some("10.0.0.0/8")),
            ("172.16.0.0", Some("172.16.0.0/12")),
            ("192.168.0.0", Some("192.168.0.0/16")),
            ("192.168.1.0", Some("192.168.1.0/24")),
            ("::", Some("::/0")),
            ("fd00::", Some("fd00::/16")),
            ("2001:db8::", Some("2001:db8::/32")),
            ("2001:db8:1:2::", Some("2001:db8:1:2::/64")),
            ("192.168.1.1", None),
            ("::1", None),
            ("0.0.0.0/0", None),
            ("10.0.0.0/32", None),
            ("unix", None),
        ] {
            assert_eq!(range_of(text).as_deref(), expected, "{text}");
        }
    }
}

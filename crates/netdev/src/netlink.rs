//! Requests to the kernel about interfaces, its replies, and its notifications (rtnetlink(7)).
//! Pure.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A link as the kernel describes it (`RTM_NEWLINK`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) is_up: bool,
    pub(crate) name: String,
    /// Six bytes for Ethernet, none for interfaces without a link layer.
    pub(crate) mac: Vec<u8>,
    pub(crate) mtu: u32,
    pub(crate) rx_queues: u32,
    /// The kind of a virtual interface (`veth`, `bridge`, ...); empty for an adapter.
    pub(crate) kind: String,
}

/// The content of a kernel message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelMessage {
    /// An interface.
    Link(Link),
    /// An address of the interface with this index, and the length of its prefix.
    Address(u32, IpAddr, u8),
    /// The interface with this index no longer has this address.
    AddressGone(u32, IpAddr, u8),
    /// The interface with this index is gone, or has left this namespace.
    Gone(u32),
    /// The last message of a reply with several messages.
    Done,
    /// An errno; 0 means success.
    Error(i32),
    /// Any other message.
    Other,
}

const NLMSG_HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;

const IFINFOMSG_BYTES: usize = 16;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;

const IFADDRMSG_BYTES: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Builds the request for all links.
pub(crate) fn links() -> Vec<u8> {
    request(RTM_GETLINK, &[0; IFINFOMSG_BYTES])
}

/// Builds the request for the addresses of all links.
pub(crate) fn addresses() -> Vec<u8> {
    request(RTM_GETADDR, &[0; IFADDRMSG_BYTES])
}

fn request(kind: u16, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(NLMSG_HEADER_BYTES + body.len()).expect("a short body");
    let mut message = Vec::from(bytes.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // The sequence number and the port, which a request on a socket of its own does not need.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Reads the messages of a datagram.
pub(crate) fn answers(mut bytes: &[u8]) -> Vec<KernelMessage> {
    let mut answers = Vec::new();
    while let Some(length) = u32_at(bytes, 0) {
        let length = length as usize;
        let Some(message) = bytes.get(..length).filter(|it| it.len() >= NLMSG_HEADER_BYTES) else {
            break;
        };
        answers.push(answer(message));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

fn answer(message: &[u8]) -> KernelMessage {
    let (kind, body) = (u16_at(message, 4), &message[NLMSG_HEADER_BYTES..]);
    let answer = match kind {
        Some(NLMSG_DONE) => Some(KernelMessage::Done),
        // The kernel's number is negative.
        Some(NLMSG_ERROR) => {
            u32_at(body, 0).map(|it| KernelMessage::Error(it.cast_signed().wrapping_neg()))
        }
        Some(RTM_NEWLINK) => link(body),
        // A message with a family is about a part of the link: a bridge has lost a port.
        Some(RTM_DELLINK) if body.first() == Some(&0) => u32_at(body, 4).map(KernelMessage::Gone),
        Some(RTM_NEWADDR) => {
            address(body).map(|(index, ip, prefix)| KernelMessage::Address(index, ip, prefix))
        }
        Some(RTM_DELADDR) => {
            address(body).map(|(index, ip, prefix)| KernelMessage::AddressGone(index, ip, prefix))
        }
        _ => None,
    };
    answer.unwrap_or(KernelMessage::Other)
}

fn link(body: &[u8]) -> Option<KernelMessage> {
    let mut link =
        Link { index: u32_at(body, 4)?, is_up: u32_at(body, 8)? & IFF_UP != 0, ..Link::default() };
    for (kind, value) in attributes(body.get(IFINFOMSG_BYTES..)?) {
        match kind {
            IFLA_ADDRESS => link.mac = value.to_vec(),
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            IFLA_NUM_RX_QUEUES => link.rx_queues = u32_at(value, 0)?,
            IFLA_LINKINFO => {
                let kind = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = kind.map(|(_, value)| text(value)).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some(KernelMessage::Link(link))
}

/// Reads the interface, the address and the length of its prefix.
fn address(body: &[u8]) -> Option<(u32, IpAddr, u8)> {
    let (&prefix, index) = (body.get(1)?, u32_at(body, 4)?);
    let mut attributes: Vec<_> = attributes(body.get(IFADDRMSG_BYTES..)?).collect();
    // On a point-to-point link IFA_ADDRESS is the peer's, and IFA_LOCAL is ours; otherwise either is.
    attributes.sort_by_key(|(kind, _)| *kind != IFA_LOCAL);
    let value = attributes.iter().find(|(kind, _)| [IFA_LOCAL, IFA_ADDRESS].contains(kind))?.1;
    let address = match value.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into(),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
        _ => return None,
    };
    Some((index, address, prefix))
}

/// Reads the attributes of a message: kind and value (`struct rtattr`).
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The upper two bits are flags, not a part of the kind.
        Some((kind & 0x3fff, value))
    })
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;

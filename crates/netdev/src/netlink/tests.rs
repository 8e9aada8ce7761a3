use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut message = request(kind, body);
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

fn link_message() -> Vec<u8> {
    let mut body = vec![0; IFINFOMSG_BYTES];
    body[4..8].copy_from_slice(&7_u32.to_ne_bytes());
    body[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
    let info = attribute(IFLA_INFO_KIND, b"veth\0");
    body.extend(attribute(IFLA_IFNAME, b"eth1\0"));
    body.extend(attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]));
    body.extend(attribute(IFLA_MTU, &1500_u32.to_ne_bytes()));
    body.extend(attribute(IFLA_NUM_RX_QUEUES, &4_u32.to_ne_bytes()));
    body.extend(attribute(IFLA_LINKINFO | 0x8000, &info));
    message(RTM_NEWLINK, &body)
}

fn address_message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    message_about_address(RTM_NEWADDR, attributes)
}

fn message_about_address(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![0, 24, 0, 0];
    body.extend(7_u32.to_ne_bytes());
    attributes.iter().for_each(|(kind, value)| body.extend(attribute(*kind, value)));
    message(kind, &body)
}

fn ethernet() -> Link {
    Link {
        index: 7,
        is_up: true,
        name: "eth1".into(),
        mac: vec![2, 0, 0, 0, 0, 1],
        mtu: 1500,
        rx_queues: 4,
        kind: "veth".into(),
    }
}

#[test]
fn a_datagram_has_several_messages() {
    let bytes = [
        link_message(),
        address_message(&[(IFA_ADDRESS, &[10, 0, 0, 2]), (IFA_LOCAL, &[10, 0, 0, 1])]),
        address_message(&[(IFA_ADDRESS, &[0xfe; 16])]),
        address_message(&[(IFA_ADDRESS, &[1, 2, 3])]),
        message_about_address(RTM_DELADDR, &[(IFA_LOCAL, &[10, 0, 0, 1])]),
        message(99, &[1, 2, 3]),
        message(NLMSG_ERROR, &(-1_i32).to_ne_bytes()),
        message(NLMSG_DONE, &[0; 4]),
    ]
    .concat();
    let wanted = [
        KernelMessage::Link(ethernet()),
        KernelMessage::Address(7, [10, 0, 0, 1].into(), 24),
        KernelMessage::Address(7, [0xfe; 16].into(), 24),
        KernelMessage::Other,
        KernelMessage::AddressGone(7, [10, 0, 0, 1].into(), 24),
        KernelMessage::Other,
        KernelMessage::Error(1),
        KernelMessage::Done,
    ];
    assert_eq!(answers(&bytes), wanted);
}

#[test]
fn an_interface_is_gone_that_no_bridge_has_lost() {
    let mut body = [0; IFINFOMSG_BYTES];
    body[4..8].copy_from_slice(&7_u32.to_ne_bytes());
    assert_eq!(answers(&message(RTM_DELLINK, &body)), [KernelMessage::Gone(7)]);
    // AF_BRIDGE
    body[0] = 7;
    assert_eq!(answers(&message(RTM_DELLINK, &body)), [KernelMessage::Other]);
}

#[test]
fn cut_and_damaged_messages_are_survived() {
    let whole = [link_message(), address_message(&[(IFA_LOCAL, &[10, 0, 0, 1])])].concat();
    for end in 0..whole.len() {
        assert!(answers(&whole[..end]).len() <= 2);
    }
    for at in 0..whole.len() {
        for value in [0, 1, 3, 0x7f, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            let _ = answers(&damaged);
        }
    }
}

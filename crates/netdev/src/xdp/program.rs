//! The XDP program: takes frames of the stack from the interface, and passes all others to the kernel.
//! Pure: this module emits the instructions, and the kernel verifies them.
//!
//! The program takes these frames, with at most one VLAN tag of 802.1Q, as the stack reads it (not of 802.1ad,
//! 0x88a8):
//!
//! - everything to an address of the stack's own, with ARP and neighbour solicitations for it;
//! - to an address of the kernel's: TCP and UDP to the served ports, and ICMP errors about packets sent from these
//!   ports (for path MTU discovery).
//!
//! Only the first fragment of a datagram has ports. The program takes the first fragment and the stack drops it;
//! otherwise the kernel could reassemble the datagram and refuse a connection that the kernel does not know. In
//! front of TCP and UDP, the program skips a few IPv6 extension headers of common lengths; packets with others go
//! to the kernel.
//!
//! Its `bpf_link` detaches the program when the process ends. Tests run the program on frames by
//! `BPF_PROG_TEST_RUN`. The program adds no register to a packet pointer, because the verifier allows that only
//! with CAP_PERFMON.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use super::assembler::{Assembler, Label, Register, Size};

/// The frames that the program takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Protocol (TCP or UDP), address and port.
    pub(crate) services: Vec<(u8, SocketAddr)>,
    /// Addresses that the kernel does not own.
    pub(crate) own_addresses: Vec<IpAddr>,
}

/// The protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;
const ICMPV4: u8 = 1;
const ICMPV6: u8 = 58;
const ICMPV4_UNREACHABLE: u32 = 3;
const ICMPV6_UNREACHABLE: u32 = 1;
const ICMPV6_TOO_BIG: u32 = 2;
const NEIGHBOUR_SOLICITATION: u32 = 135;

// The extension headers that the stack skips (RFC 8200, 4).
const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const DESTINATION_OPTIONS: u32 = 60;
/// The maximum extension headers that are skipped, and the maximum units of 8 bytes in one header. More do not occur in
/// front of TCP, and the verifier follows each combination of lengths.
const EXTENSIONS_MAX: usize = 2;
const EXTENSION_UNITS_MAX: i32 = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// The program's result for frames that go to the kernel.
pub(crate) const XDP_PASS: i32 = 2;
/// The helper that puts a frame into the socket of a map's key, or returns its third argument.
const BPF_REDIRECT_MAP: i32 = 51;

// Offsets of fields in `struct xdp_md`.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_RX_QUEUE: i16 = 16;

/// Labels of the parts of the program.
struct Labels {
    /// R2 is at the IP header.
    ipv4: Label,
    /// R2 is at the IP header.
    ipv6: Label,
    /// R2 is at the ARP header.
    arp: Label,
    /// R7 is the address, R9 protocol and port.
    match_ipv4: Label,
    /// R7 and R8 are the address, R9 protocol and port.
    match_ipv6: Label,
    take: Label,
    pass: Label,
}

/// Assembles the program. It puts frames into the socket that the map behind `map_fd` has for their
/// receive queue; the result is `without_socket` if the map has none.
///
/// R6 is the context, R2 the position in the frame, R3 the end of the frame.
pub(crate) fn assemble(taken: &Taken, map_fd: u32, without_socket: i32) -> Vec<u64> {
    let mut code = Assembler::default();
    let labels = Labels {
        ipv4: code.label(),
        ipv6: code.label(),
        arp: code.label(),
        match_ipv4: code.label(),
        match_ipv6: code.label(),
        take: code.label(),
        pass: code.label(),
    };
    ethernet(&mut code, &labels);
    arp(&mut code, &labels, taken);
    ipv4(&mut code, &labels, taken);
    ipv6(&mut code, &labels, taken);

    code.place(labels.take);
    code.set_map(R1, map_fd);
    code.load(Size::Word, R2, R6, MD_RX_QUEUE);
    code.set(R3, without_socket);
    code.call(BPF_REDIRECT_MAP);
    code.exit();
    code.place(labels.pass);
    code.set(R0, XDP_PASS);
    code.exit();
    code.finish()
}

/// Passes a frame to the kernel if it has fewer than `bytes` from R2 on.
fn need(code: &mut Assembler, labels: &Labels, bytes: i32) {
    code.copy(R4, R2);
    code.add(R4, bytes);
    code.jump_if_greater(R4, R3, labels.pass);
}

/// Branches by the ethertype, after a tag if there is one.
fn ethernet(code: &mut Assembler, labels: &Labels) {
    let untagged = code.label();
    code.copy(R6, R1);
    code.load(Size::Word, R2, R6, MD_DATA);
    code.load(Size::Word, R3, R6, MD_DATA_END);
    need(code, labels, 14);
    code.load(Size::Half, R5, R2, 12);
    code.add(R2, 14);
    code.jump_if_not(R5, wire16(ETHERTYPE_VLAN), untagged);
    need(code, labels, 4);
    code.load(Size::Half, R5, R2, 2);
    code.add(R2, 4);
    code.place(untagged);
    code.jump_if(R5, wire16(ETHERTYPE_IPV4), labels.ipv4);
    code.jump_if(R5, wire16(ETHERTYPE_IPV6), labels.ipv6);
    code.jump_if(R5, wire16(ETHERTYPE_ARP), labels.arp);
    code.jump(labels.pass);
}

/// Takes ARP requests for an own address, and replies to an own address: both have it as their target.
fn arp(code: &mut Assembler, labels: &Labels, taken: &Taken) {
    code.place(labels.arp);
    need(code, labels, 28);
    code.load(Size::Word, R7, R2, 24);
    own_ipv4(code, labels, taken);
    code.jump(labels.pass);
}

fn ipv4(code: &mut Assembler, labels: &Labels, taken: &Taken) {
    let (ports, icmp) = (code.label(), code.label());
    code.place(labels.ipv4);
    need(code, labels, 20);
    code.load(Size::Word, R7, R2, 16);
    own_ipv4(code, labels, taken);
    // A fragment with an offset has no ports.
    code.load(Size::Half, R5, R2, 6);
    code.jump_if_any_bit(R5, wire16(0x1fff), labels.pass);
    code.load(Size::Byte, R9, R2, 9);
    behind_ipv4_header(code, labels);
    code.jump_if(R9, TCP.into(), ports);
    code.jump_if(R9, UDP.into(), ports);
    code.jump_if(R9, ICMPV4.into(), icmp);
    code.jump(labels.pass);

    code.place(ports);
    need(code, labels, 4);
    key(code, R9, 2);
    code.jump(labels.match_ipv4);

    // After the 8 bytes of an error is the begin of the quoted packet. The stack sent the quoted packet without
    // options.
    code.place(icmp);
    need(code, labels, 8 + 20 + 4);
    code.load(Size::Byte, R5, R2, 0);
    code.jump_if_not(R5, ICMPV4_UNREACHABLE, labels.pass);
    code.load(Size::Byte, R5, R2, 8);
    code.jump_if_not(R5, 0x45, labels.pass);
    code.load(Size::Word, R7, R2, 8 + 12);
    code.load(Size::Byte, R9, R2, 8 + 9);
    key(code, R9, 8 + 20);

    code.place(labels.match_ipv4);
    for (protocol, service) in &taken.services {
        if let IpAddr::V4(address) = service.ip() {
            let next = code.label();
            code.jump_if_not(R7, wire_ipv4(address), next);
            code.jump_if(R9, wire_key(*protocol, service.port()), labels.take);
            code.place(next);
        }
    }
    code.jump(labels.pass);
}

/// Moves R2 after the header at it; the low four bits of its first byte count words.
///
/// Each length is an immediate in the program: the verifier (`sanitize_ptr_alu` in kernel/bpf/verifier.c) lets only
/// processes with CAP_PERFMON add a register to a packet pointer.
fn behind_ipv4_header(code: &mut Assembler, labels: &Labels) {
    let behind = code.label();
    code.load(Size::Byte, R5, R2, 0);
    code.and(R5, 15);
    for words in 5..=15 {
        let next = code.label();
        code.jump_if_not(R5, words, next);
        code.add(R2, words.cast_signed() * 4);
        code.jump(behind);
        code.place(next);
    }
    code.jump(labels.pass);
    code.place(behind);
}

fn ipv6(code: &mut Assembler, labels: &Labels, taken: &Taken) {
    let (ports, icmp, error) = (code.label(), code.label(), code.label());
    code.place(labels.ipv6);
    need(code, labels, 40);
    code.load(Size::Double, R7, R2, 24);
    code.load(Size::Double, R8, R2, 32);
    own_ipv6(code, labels, taken);
    code.load(Size::Byte, R9, R2, 6);
    code.add(R2, 40);
    code.jump_if(R9, TCP.into(), ports);
    code.jump_if(R9, UDP.into(), ports);
    code.jump_if(R9, ICMPV6.into(), icmp);
    for _ in 0..EXTENSIONS_MAX {
        behind_extension(code, labels);
        code.jump_if(R9, TCP.into(), ports);
        code.jump_if(R9, UDP.into(), ports);
    }
    code.jump(labels.pass);

    code.place(ports);
    need(code, labels, 4);
    key(code, R9, 2);
    code.jump(labels.match_ipv6);

    // A solicitation for an own address goes to a multicast address. Its target comes after 8 bytes.
    code.place(icmp);
    need(code, labels, 24);
    code.load(Size::Byte, R5, R2, 0);
    code.jump_if(R5, ICMPV6_UNREACHABLE, error);
    code.jump_if(R5, ICMPV6_TOO_BIG, error);
    code.jump_if_not(R5, NEIGHBOUR_SOLICITATION, labels.pass);
    code.load(Size::Double, R7, R2, 8);
    code.load(Size::Double, R8, R2, 16);
    own_ipv6(code, labels, taken);
    code.jump(labels.pass);

    code.place(error);
    need(code, labels, 8 + 40 + 4);
    code.load(Size::Double, R7, R2, 8 + 8);
    code.load(Size::Double, R8, R2, 8 + 16);
    code.load(Size::Byte, R9, R2, 8 + 6);
    key(code, R9, 8 + 40);

    code.place(labels.match_ipv6);
    for (protocol, service) in &taken.services {
        if let IpAddr::V6(address) = service.ip() {
            let next = code.label();
            unless_ipv6(code, address, next);
            code.jump_if(R9, wire_key(*protocol, service.port()), labels.take);
            code.place(next);
        }
    }
    code.jump(labels.pass);
}

/// Moves R2 after the extension header at R2. R9 is the number of this header, and becomes the number of the next
/// header. Each length is an immediate, as in [`behind_ipv4_header`].
fn behind_extension(code: &mut Assembler, labels: &Labels) {
    let (whole, behind) = (code.label(), code.label());
    need(code, labels, 8);
    for kind in [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS] {
        code.jump_if(R9, kind, whole);
    }
    code.jump_if_not(R9, FRAGMENT, labels.pass);
    // A fragment with an offset has no ports.
    code.load(Size::Half, R5, R2, 2);
    code.jump_if_any_bit(R5, wire16(0xfff8), labels.pass);
    code.load(Size::Byte, R9, R2, 0);
    code.add(R2, 8);
    code.jump(behind);

    code.place(whole);
    code.load(Size::Byte, R9, R2, 0);
    code.load(Size::Byte, R5, R2, 1);
    // The length field does not count the first unit.
    for units in 1..=EXTENSION_UNITS_MAX {
        let next = code.label();
        code.jump_if_not(R5, units.cast_unsigned() - 1, next);
        code.add(R2, units * 8);
        code.jump(behind);
        code.place(next);
    }
    code.jump(labels.pass);
    code.place(behind);
}

/// Puts the protocol in `register` and the port at `offset` together.
fn key(code: &mut Assembler, register: Register, offset: i16) {
    code.load(Size::Half, R5, R2, offset);
    code.shift_left(register, 16);
    code.or_register(register, R5);
}

/// Takes the frame if R7 is an own address.
fn own_ipv4(code: &mut Assembler, labels: &Labels, taken: &Taken) {
    for address in &taken.own_addresses {
        if let IpAddr::V4(address) = address {
            code.jump_if(R7, wire_ipv4(*address), labels.take);
        }
    }
}

/// Takes the frame if R7 and R8 are an own address.
fn own_ipv6(code: &mut Assembler, labels: &Labels, taken: &Taken) {
    for address in &taken.own_addresses {
        if let IpAddr::V6(address) = address {
            let next = code.label();
            unless_ipv6(code, *address, next);
            code.jump(labels.take);
            code.place(next);
        }
    }
}

/// Jumps if R7 and R8 are not this address.
fn unless_ipv6(code: &mut Assembler, address: Ipv6Addr, to: Label) {
    let octets = address.octets();
    for (register, half) in [R7, R8].into_iter().zip(octets.chunks_exact(8)) {
        let number = u64::from_ne_bytes(half.try_into().expect("eight bytes"));
        code.set_wide(R5, number);
        code.jump_if_differ(register, R5, to);
    }
}

// Network-order bytes as the numbers that loads give on this machine.

fn wire16(number: u16) -> u32 {
    number.to_be().into()
}

fn wire_ipv4(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

fn wire_key(protocol: u8, port: u16) -> u32 {
    u32::from(protocol) << 16 | wire16(port)
}

#[cfg(test)]
mod tests;

//! Handshakes and segments of no connection, one segment after the other.

use std::vec;

use super::*;
use crate::sim::{self, Segment, TcpOption, flag};

/// A stack that serves port 80, and the peers that the test plays.
pub(super) struct Server {
    pub(super) end: End,
    pub(super) now: Time,
}

pub(super) fn local() -> SocketAddr {
    "192.0.2.1:80".parse().expect("an address")
}

pub(super) fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], port))
}

pub(super) fn segment(from: SocketAddr, flags: u8, seq: u32, ack: u32) -> Segment {
    Segment {
        source: from,
        destination: local(),
        ecn: 0,
        seq,
        ack,
        flags,
        window: 1000,
        options: Vec::new(),
        payload: Vec::new(),
    }
}

impl Server {
    pub(super) fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(1);
        config.mac = sim::mac(local().ip());
        change(&mut config);
        Self { end: End::new(config), now: at(1000) }
    }

    /// The answers to a segment.
    pub(super) fn answers(&mut self, segment: &Segment) -> Vec<Segment> {
        self.end.handle(self.now, &[segment.to_frame()]);
        self.sent()
    }

    fn sent(&mut self) -> Vec<Segment> {
        let frames = self.end.device.take();
        frames.iter().map(|frame| Segment::from_frame(frame).expect("a segment")).collect()
    }

    /// The one answer to a segment.
    pub(super) fn answer(&mut self, segment: &Segment) -> Segment {
        let mut answers = self.answers(segment);
        assert_eq!(answers.len(), 1, "{segment:?}: {answers:?}");
        answers.remove(0)
    }

    /// The answers when so much time has passed.
    fn after(&mut self, time: Duration) -> Vec<Segment> {
        self.now = self.now + time;
        self.end.handle(self.now, &[]);
        self.sent()
    }

    /// Opens a connection that sent `irs`; returns the number of our first byte.
    pub(super) fn open(&mut self, from: SocketAddr, irs: u32) -> u32 {
        let answer = self.answer(&segment(from, flag::SYN, irs, 0));
        let ack = answer.seq.wrapping_add(1);
        assert_eq!(self.answers(&segment(from, flag::ACK, irs.wrapping_add(1), ack)), []);
        ack
    }

    fn census(&self) -> (usize, usize, usize) {
        let Census { half_open, connections, time_wait } = self.end.stack.census();
        (half_open, connections, time_wait)
    }
}

const SYN_ACK: u8 = flag::SYN | flag::ACK;

#[test]
fn rfc9293_3_5_three_segments_make_a_connection() {
    let mut server = Server::new(|_| {});
    let mut syn = segment(peer(9), flag::SYN | flag::ECE | flag::CWR, u32::MAX, 0);
    syn.options = vec![
        TcpOption::Mss(1400),
        TcpOption::SackPermitted,
        TcpOption::Timestamps(77, 0),
        TcpOption::WindowScale(3),
    ];
    let answer = server.answer(&syn);
    assert_eq!((answer.flags, answer.ack), (SYN_ACK | flag::ECE, 0));
    let clock = answer.options.iter().find_map(|option| match option {
        TcpOption::Timestamps(value, 77) => Some(*value),
        _ => None,
    });
    let clock = clock.expect("a timestamp");
    for option in [TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(1)] {
        assert!(answer.options.contains(&option), "{option:?}: {answer:?}");
    }
    assert_eq!((answer.window, server.census()), (65_535, (1, 0, 0)));
    let mut ack = segment(peer(9), flag::ACK | flag::PSH, 0, answer.seq.wrapping_add(1));
    ack.options = vec![TcpOption::Timestamps(78, clock)];
    ack.payload = b"request".to_vec();
    server.answers(&ack);
    assert_eq!(server.census(), (0, 1, 0));
    let id = server.end.notes.accepted[0];
    assert_eq!(server.end.notes.received[&id], b"request", "data on the last segment counts");
}

#[test]
fn what_a_peer_does_not_offer_is_not_used() {
    let mut server = Server::new(|_| {});
    let answer = server.answer(&segment(peer(9), flag::SYN, 5, 0));
    assert_eq!((answer.flags, answer.options), (SYN_ACK, vec![TcpOption::Mss(1460)]));
}

#[test]
fn rfc9293_3_8_1_a_syn_ack_is_sent_again_five_times() {
    let mut server = Server::new(|_| {});
    let first = server.answer(&segment(peer(9), flag::SYN, 5, 0));
    let begun = server.now;
    for seconds in [1, 3, 7, 15, 31] {
        let due = begun + Duration::from_secs(seconds);
        let early = due.since(server.now) - Duration::from_millis(1);
        assert_eq!(server.after(early), []);
        let again = server.after(Duration::from_millis(2));
        assert_eq!(again.len(), 1, "after {seconds} s");
        assert_eq!((again[0].seq, again[0].flags), (first.seq, SYN_ACK));
    }
    assert_eq!(server.after(Duration::from_secs(31)), []);
    assert_eq!(server.census(), (1, 0, 0));
    server.after(Duration::from_secs(2));
    assert_eq!((server.census(), server.end.stack.next_timer()), ((0, 0, 0), None));
}

#[test]
fn a_syn_that_comes_again_gets_the_same_answer() {
    let mut server = Server::new(|_| {});
    let syn = segment(peer(9), flag::SYN, 5, 0);
    let first = server.answer(&syn);
    server.now = at(1500);
    assert_eq!(server.answer(&syn), first);
    assert_eq!(server.census(), (1, 0, 0));
}

#[test]
fn rfc5961_3_2_only_an_exact_reset_ends_a_handshake() {
    let mut server = Server::new(|_| {});
    server.answer(&segment(peer(9), flag::SYN, 5, 0));
    let challenge = server.answer(&segment(peer(9), flag::RST, 7, 0));
    assert_eq!((challenge.flags, challenge.ack), (flag::ACK, 6));
    assert_eq!(server.answers(&segment(peer(9), flag::RST, 100_000, 0)), []);
    assert_eq!(server.census(), (1, 0, 0));
    assert_eq!(server.answers(&segment(peer(9), flag::RST, 6, 0)), []);
    assert_eq!(server.census(), (0, 0, 0));
}

#[test]
fn rfc9293_3_10_7_4_an_acknowledgement_of_something_else_is_reset() {
    let mut server = Server::new(|_| {});
    let answer = server.answer(&segment(peer(9), flag::SYN, 5, 0));
    let ack = answer.seq.wrapping_add(2);
    let reset = server.answer(&segment(peer(9), flag::ACK, 6, ack));
    assert_eq!((reset.flags, reset.seq), (flag::RST, ack));
    assert_eq!(server.census(), (1, 0, 0), "the handshake goes on");
}

#[test]
fn rfc9293_3_10_7_4_a_segment_outside_of_the_window_is_told_what_is_expected() {
    let mut server = Server::new(|_| {});
    let answer = server.answer(&segment(peer(9), flag::SYN, 5, 0));
    for (flags, seq) in [(flag::ACK, 100_000), (flag::SYN, 500)] {
        let ack = server.answer(&segment(peer(9), flags, seq, answer.seq.wrapping_add(1)));
        assert_eq!((ack.flags, ack.ack), (flag::ACK, 6));
    }
    assert_eq!(server.census(), (1, 0, 0));
}

#[test]
fn rfc9293_3_10_7_1_what_nothing_serves_is_reset_and_the_kernels_is_left_alone() {
    for (is_ours, answers) in [(true, 1), (false, 0)] {
        let mut server = Server::new(|config| {
            config.addresses.iter_mut().for_each(|address| address.is_ours = is_ours);
        });
        let mut syn = segment(peer(9), flag::SYN, 5, 0);
        syn.destination.set_port(81);
        let answer = server.answers(&syn);
        assert_eq!(answer.len(), answers);
        if let [answer] = &answer[..] {
            assert_eq!((answer.flags, answer.seq, answer.ack), (flag::RST | flag::ACK, 0, 6));
        }
        // An acknowledgement for a served port is ours in any case.
        let answer = server.answer(&segment(peer(9), flag::ACK, 5, 1000));
        assert_eq!((answer.flags, answer.seq), (flag::RST, 1000));
        assert_eq!(server.answers(&segment(peer(9), flag::RST | flag::ACK, 5, 1000)), []);
        assert_eq!(server.answers(&segment(peer(9), flag::SYN | flag::RST, 5, 0)), []);
    }
}

#[test]
fn replies_to_segments_of_no_connection_are_limited() {
    let mut server = Server::new(|config| config.replies_per_second_max = 10);
    let answers = (0..100)
        .map(|port| server.answers(&segment(peer(port), flag::ACK, 5, 1)).len() as u64)
        .sum();
    // Some take no place, some take two.
    assert!((5..20).contains(&answers), "{answers}");
    let counters = server.end.stack.counters();
    assert_eq!((counters.resets_sent, counters.drops.no_connection), (answers, 100 - answers));
}

#[test]
fn rfc4987_3_6_a_full_table_answers_with_cookies() {
    let mut server = Server::new(|config| config.half_open_max = 2);
    for port in 1..=2 {
        server.answer(&segment(peer(port), flag::SYN, 5, 0));
    }
    let mut syn = segment(peer(3), flag::SYN, 5, 0);
    syn.options =
        vec![TcpOption::SackPermitted, TcpOption::Timestamps(77, 0), TcpOption::WindowScale(3)];
    let answer = server.answer(&syn);
    assert_eq!((answer.flags, answer.ack, server.census()), (SYN_ACK, 6, (2, 0, 0)));
    let clock = answer.options.iter().find_map(|option| match option {
        TcpOption::Timestamps(value, 77) => Some(*value),
        _ => None,
    });
    let mut ack = segment(peer(3), flag::ACK, 6, answer.seq.wrapping_add(1));
    ack.options = vec![TcpOption::Timestamps(78, clock.expect("a timestamp"))];
    ack.payload = b"request".to_vec();
    server.answers(&ack);
    assert_eq!(server.census(), (2, 1, 0));
    let id = server.end.notes.accepted[0];
    assert_eq!(server.end.notes.received[&id], b"request");
    // The peer's windows are scaled: 8,000 bytes leave at once.
    server.end.queues.entry(id).or_default().push(pattern(10_000));
    server.end.drain(server.now, id);
    let sent: usize = server.sent().iter().map(|segment| segment.payload.len()).sum();
    assert_eq!(sent, 5240, "ten segments of the least MSS");
    let counters = server.end.stack.counters().handshakes;
    assert_eq!((counters.cookies_sent, counters.cookies_accepted), (1, 1));
    // A guess is reset once no cookie can come back.
    let guess = segment(peer(4), flag::ACK, 6, 12345);
    assert_eq!(server.answers(&guess), []);
    server.after(Duration::from_secs(128));
    assert_eq!(server.answer(&guess).flags, flag::RST);
}

#[test]
fn rfc4987_3_6_a_cookie_counts_when_the_table_had_room_for_a_later_syn() {
    let mut server = Server::new(|config| config.half_open_max = 1);
    server.answer(&segment(peer(8), flag::SYN, 100, 0));
    let syn = segment(peer(9), flag::SYN, 200, 0);
    let cookie = server.answer(&syn).seq;
    server.answers(&segment(peer(8), flag::RST, 101, 0));
    let number = server.answer(&syn).seq;
    assert_ne!(number, cookie);
    assert_eq!(server.census(), (1, 0, 0));
    let forged = segment(peer(9), flag::ACK, 201, cookie.wrapping_add(99));
    assert_eq!(server.answers(&forged), []);
    let ack = segment(peer(9), flag::ACK, 201, cookie.wrapping_add(1));
    assert_eq!(server.answers(&ack), []);
    assert_eq!(server.census(), (0, 1, 0));
    // Nothing is left that would repeat the second answer.
    assert_eq!(server.after(Duration::from_secs(10)), []);
}

#[test]
fn rfc4987_3_6_a_forged_syn_does_not_hide_a_cookie() {
    let mut server = Server::new(|config| config.half_open_max = 1);
    server.answer(&segment(peer(8), flag::SYN, 100, 0));
    let cookie = server.answer(&segment(peer(9), flag::SYN, 200, 0)).seq;
    server.answers(&segment(peer(8), flag::RST, 101, 0));
    // Its numbers are far from the peer's: the peer's acknowledgement does not fit the handshake.
    server.answer(&segment(peer(9), flag::SYN, 0x8000_0000, 0));
    assert_eq!(server.census(), (1, 0, 0));
    let mut ack = segment(peer(9), flag::ACK, 201, cookie.wrapping_add(1));
    ack.payload = b"request".to_vec();
    server.answers(&ack);
    assert_eq!(server.census(), (0, 1, 0));
    assert_eq!(server.end.notes.received[&server.end.notes.accepted[0]], b"request");
}

#[test]
fn rfc4987_3_6_bytes_that_overtake_the_cookie_end_nothing_where_a_later_syn_found_room() {
    let mut server = Server::new(|config| config.half_open_max = 1);
    server.answer(&segment(peer(8), flag::SYN, 100, 0));
    let syn = segment(peer(9), flag::SYN, 200, 0);
    let cookie = server.answer(&syn).seq;
    server.answers(&segment(peer(8), flag::RST, 101, 0));
    server.answer(&syn);
    let mut later = segment(peer(9), flag::ACK, 208, cookie.wrapping_add(1));
    later.payload = b" and more".to_vec();
    assert_eq!(server.answers(&later), []);
    let mut first = segment(peer(9), flag::ACK, 201, cookie.wrapping_add(1));
    first.payload = b"request".to_vec();
    server.answers(&first);
    assert_eq!(server.census(), (0, 1, 0));
}

#[test]
fn handshakes_of_invented_stations_leave_room_for_others() {
    use crate::ip::Neighbours;

    let mut server = Server::new(|_| {});
    server.open(peer(1), 5);
    // Each address is that of a station.
    let invented = |n: usize| {
        let [.., a, b] = n.to_be_bytes();
        SocketAddr::from(([10, 0, a, b], 5000))
    };
    for n in 0..2 * Neighbours::MAX {
        let answer = server.answer(&segment(invented(n), flag::SYN, 5, 0));
        assert_eq!(answer.flags, SYN_ACK);
    }
    let half_open = Neighbours::HANDSHAKES_MAX - 1;
    assert_eq!(server.census(), (half_open, 1, 0));
    server.open(SocketAddr::from(([10, 1, 0, 1], 5000)), 5);
    assert_eq!(server.census(), (half_open, 2, 0));
    // A station that has a connection needs no entry for another one.
    server.answer(&segment(peer(2), flag::SYN, 5, 0));
    assert_eq!(server.census(), (half_open + 1, 2, 0));
    // A SYN that comes again from another station takes no entry either.
    let borrowed = server.end.stack.borrowed();
    let mut again = segment(peer(2), flag::SYN, 5, 0).to_frame();
    again[6..12].copy_from_slice(&mac(77).0);
    server.end.handle(server.now, &[again]);
    assert_eq!(server.sent().len(), 1);
    assert_eq!(server.end.stack.borrowed(), borrowed);
    // They time out, and there is room for all.
    for _ in 0..7 {
        server.after(Duration::from_secs(40));
    }
    assert_eq!(server.census(), (0, 2, 0));
    server.answer(&segment(invented(0), flag::SYN, 5, 0));
    assert_eq!(server.census(), (1, 2, 0));
}

#[test]
fn a_handshake_that_completes_without_a_place_is_reset() {
    let mut server = Server::new(|config| config.connections_max = 1);
    server.open(peer(1), 5);
    let answer = server.answer(&segment(peer(2), flag::SYN, 5, 0));
    let reset = server.answer(&segment(peer(2), flag::ACK, 6, answer.seq.wrapping_add(1)));
    assert_eq!((reset.flags, server.census()), (flag::RST, (0, 1, 0)));
    assert_eq!(server.end.stack.counters().handshakes.refused, 1);
}

#[test]
fn rfc6191_a_new_syn_ends_time_wait() {
    let mut server = Server::new(|_| {});
    let first = server.open(peer(1), 5);
    let id = server.end.notes.accepted[0];
    server.end.shutdown(server.now, id);
    let fin = &server.sent()[0];
    assert_eq!(fin.flags & flag::FIN, flag::FIN);
    server.answer(&segment(peer(1), flag::FIN | flag::ACK, 6, first.wrapping_add(1)));
    assert_eq!((server.census(), server.end.notes.closed.len()), ((0, 0, 1), 1));
    // The peer's FIN comes again.
    let again = server.answer(&segment(peer(1), flag::FIN | flag::ACK, 6, first.wrapping_add(1)));
    assert_eq!((again.flags, again.ack), (flag::ACK, 7));
    let old = server.answer(&segment(peer(1), flag::SYN, 5, 0));
    assert_eq!((old.flags, server.census()), (flag::ACK, (0, 0, 1)));
    let new = server.answer(&segment(peer(1), flag::SYN, 8, 0));
    assert_eq!((new.flags, new.ack, server.census()), (SYN_ACK, 9, (1, 0, 0)));
    let ahead = new.seq.wrapping_sub(first);
    assert!((65_537..1 << 20).contains(&ahead), "behind the old connection's numbers: {ahead}");
}

#[test]
fn a_connection_to_a_closed_port_is_refused() {
    let mut pair = Pair::new();
    let mut closed = ends(true, 40_000);
    closed.peer.set_port(81);
    let id = pair.connect(closed);
    pair.run(100);
    assert_eq!(pair.client.notes.lost, [(id, Lost::Reset)]);
    assert_eq!(pair.client.stack.census(), Census::default());
}

#[test]
fn a_connection_to_a_silent_peer_times_out() {
    let mut pair = Pair::new();
    let ends = ends(true, 40_000);
    let id = pair.connect(ends);
    let taken = pair.client.stack.connect(pair.now, ends, mac(1), &mut pair.client.device);
    assert_eq!(taken, Err(ConnectError::InUse));
    for _ in 0..700 {
        pair.client.device.take();
        pair.now = pair.now + Duration::from_millis(100);
        pair.client.handle(pair.now, &[]);
    }
    assert_eq!(pair.client.notes.lost, [(id, Lost::TimedOut)]);
    assert_eq!(pair.client.stack.counters().handshakes.retransmitted, 5);
    assert_eq!(pair.client.stack.census(), Census::default());
}

#[test]
fn a_connection_that_is_given_up_before_it_is_open_leaves_nothing() {
    let mut pair = Pair::new();
    let id = pair.connect(ends(true, 40_000));
    assert_eq!(pair.client.drain(pair.now, id), Drained::Blocked);
    pair.client.stack.close(pair.now, id, &mut pair.client.device);
    pair.run(100);
    assert_eq!(pair.client.drain(pair.now, id), Drained::Empty);
    assert_eq!(pair.client.stack.census(), Census::default());
    assert_eq!(pair.server.stack.census(), Census::default(), "its SYN,ACK was reset");
}

#[test]
fn rfc9293_3_5_both_may_ask_at_once() {
    let mut pair = Pair::new();
    let mut up = ends(true, 40_000);
    up.peer.set_port(50_000);
    let down = Endpoints { local: up.peer, peer: up.local };
    let id = pair.connect(up);
    let server_id =
        pair.server.stack.connect(pair.now, down, mac(2), &mut pair.server.device).expect("room");
    pair.run(3000);
    assert_eq!(
        (&pair.client.notes.accepted[..], &pair.server.notes.accepted[..]),
        (&[id][..], &[server_id][..])
    );
    pair.client.send(pair.now, id, b"up".to_vec());
    pair.server.send(pair.now, server_id, b"down".to_vec());
    pair.run(100);
    assert_eq!(pair.server.notes.received[&server_id], b"up");
    assert_eq!(pair.client.notes.received[&id], b"down");
}

use super::*;
use crate::wire::tcp::Flags;

const REMAINS: Remains = Remains {
    snd_nxt: SeqNumber(1000),
    rcv_nxt: SeqNumber(5000),
    timestamps: Some(Timestamps { recent: 700, offset: 0 }),
};

fn ends(port: u16) -> Endpoints {
    Endpoints {
        local: "192.0.2.1:80".parse().expect("an address"),
        peer: core::net::SocketAddr::from(([192, 0, 2, 9], port)),
    }
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn table(max: u32) -> TimeWait {
    TimeWait::new(Key::new(*b"0123456789abcdef"), max)
}

fn segment(seq: u32, flags: Flags, timestamp: Option<u32>) -> Header {
    Header {
        source: 9,
        destination: 80,
        seq: SeqNumber(seq),
        ack: (!flags.syn).then_some(SeqNumber(1000)),
        flags,
        window: 0,
        options: Options { timestamps: timestamp.map(|value| (value, 0)), ..Options::default() },
    }
}

const FIN: Flags = Flags { fin: true, ..Flags::NONE };
const SYN: Flags = Flags { syn: true, ..Flags::NONE };
const RST: Flags = Flags { rst: true, ..Flags::NONE };

/// The step for a segment that comes after 10 s.
fn step(remains: Remains, header: &Header, seg_len: u32) -> (TimeWait, Option<Step>) {
    let mut table = table(10);
    table.insert(at(0), 0, &ends(9), &remains);
    let step = table.handle_segment(at(10), 0, &ends(9), 0, header, seg_len);
    (table, step)
}

#[test]
fn rfc9293_3_10_7_4_a_fin_that_comes_again_is_acknowledged_and_restarts_the_wait() {
    let (mut table, step) = step(REMAINS, &segment(4999, FIN, Some(701)), 1);
    let Some(Step::Acknowledge(ack)) = step else { panic!("{step:?}") };
    assert_eq!((ack.seq, ack.ack), (SeqNumber(1000), Some(SeqNumber(5000))));
    assert_eq!(ack.options.timestamps, Some((10_000, 700)));
    table.handle_timer(at(69));
    assert_eq!(table.len(), 1);
    table.handle_timer(at(70));
    assert_eq!((table.len(), table.deadline(at(70))), (0, None));
}

#[test]
fn rfc1337_a_reset_does_not_end_the_wait() {
    let (table, step) = step(REMAINS, &segment(5000, RST, None), 0);
    assert_eq!((step, table.len()), (Some(Step::Drop), 1));
}

#[test]
fn the_acknowledgement_of_our_fin_is_dropped_and_other_segments_are_acknowledged() {
    assert_eq!(step(REMAINS, &segment(5000, Flags::NONE, Some(701)), 0).1, Some(Step::Drop));
    for (seq, len) in [(5000, 10), (4000, 10), (4000, 0)] {
        let (table, step) = step(REMAINS, &segment(seq, Flags::NONE, Some(701)), len);
        assert!(matches!(step, Some(Step::Acknowledge(_))), "{seq} {len}");
        assert_eq!(table.deadline(at(10)), Some(at(60)), "no restart");
    }
}

#[test]
fn rfc6191_a_syn_with_a_later_timestamp_begins_a_new_connection() {
    let without = Remains { timestamps: None, ..REMAINS };
    for (remains, seq, timestamp, is_reused) in [
        (REMAINS, 4000, Some(701), true),
        (REMAINS, 6000, Some(699), false),
        (REMAINS, 6000, Some(700), true),
        (REMAINS, 4000, Some(700), false),
        (REMAINS, 6000, None, true),
        (REMAINS, 4000, None, false),
        (without, 6000, Some(1), true),
        (without, 5000, Some(1), false),
    ] {
        let (table, step) = step(remains, &segment(seq, SYN, timestamp), 1);
        match step.expect("it is there") {
            Step::Reuse(least) => assert!(is_reused && least.is_after(SeqNumber(1000))),
            Step::Acknowledge(_) => assert!(!is_reused, "{seq} {timestamp:?}"),
            Step::Drop => panic!("{seq} {timestamp:?}"),
        }
        assert_eq!(table.len(), usize::from(!is_reused));
    }
}

#[test]
fn the_oldest_ends_early_when_there_is_no_room() {
    let mut table = table(3);
    let early: std::vec::Vec<_> =
        (1..=5).map(|port| table.insert(at(port.into()), 0, &ends(port), &REMAINS)).collect();
    assert_eq!(early, [false, false, false, true, true]);
    let kept = (1..=5).map(|port| {
        table.handle_segment(at(6), 0, &ends(port), 0, &segment(0, RST, None), 0).is_some()
    });
    assert_eq!(kept.collect::<std::vec::Vec<_>>(), [false, false, true, true, true]);
    assert_eq!(table.len(), 3);
}

#[test]
fn gaps_of_restarted_waits_are_bounded() {
    let mut table = table(100);
    table.insert(at(0), 0, &ends(1), &REMAINS);
    table.insert(at(0), 0, &ends(2), &REMAINS);
    for second in 0..1000 {
        table.handle_segment(at(second / 20), 0, &ends(2), 0, &segment(4999, FIN, None), 1);
        assert!(table.records.queue.len() <= 100);
    }
    assert_eq!(table.len(), 1, "the one that was not restarted ended early");
    table.handle_timer(at(200));
    assert_eq!((table.len(), table.records.queue.len()), (0, 0));
}

#[test]
fn a_record_takes_48_bytes() {
    const ALL: u16 = 60_000;
    let mut table = table(ALL.into());
    for port in 0..ALL {
        table.insert(at(1), 0, &ends(port), &REMAINS);
    }
    let each = table.memory() / usize::from(ALL);
    assert!(each <= 49, "{each}, with the unused part of the last step");
    for port in 0..ALL {
        let step = table.handle_segment(at(6), 0, &ends(port), 0, &segment(0, RST, None), 0);
        assert_eq!(step, Some(Step::Drop));
    }
}

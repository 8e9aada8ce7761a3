//! Table tests for each method and each state, and property tests against
//! [`model`](crate::model).

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection;
use proptest::prelude::*;

use crate::model::{Operation, Pair};
use crate::{OutQ, Payload, SEGMENTS_KEPT, State, Weight};

type Bytes = &'static [u8];

/// The bytes that may be sent now, with `|` between chunks.
fn ready(queue: &OutQ<Bytes>) -> String {
    queue.check();
    let chunks: Vec<&str> = queue
        .next_ready()
        .map(|chunk| {
            let range = usize::try_from(chunk.range.start).unwrap()
                ..usize::try_from(chunk.range.end).unwrap();
            str::from_utf8(&chunk.payload[range]).unwrap()
        })
        .collect();
    chunks.join("|")
}

/// Sends and releases all ready bytes, as a transport that copies would; returns these
/// bytes.
fn drain(queue: &mut OutQ<Bytes>) -> String {
    let sent = ready(queue);
    queue.mark_sent(queue.unsent_ready());
    queue.mark_released(queue.sent() - queue.released());
    queue.check();
    sent
}

// One constructor for each state.

fn drained() -> OutQ<Bytes> {
    let mut queue = OutQ::new();
    queue.push(b"abc".as_slice());
    queue.mark_sent(3);
    queue
}

fn holding_abc() -> OutQ<Bytes> {
    let mut queue = OutQ::new();
    queue.push(b"abc".as_slice());
    queue
}

/// "abc" is ready; 3..10 is a gap.
fn waiting_behind_abc() -> OutQ<Bytes> {
    let mut queue = holding_abc();
    queue.promise(7);
    queue
}

/// "abc" is ready, 3..6 is a gap, "ghi" is filled, 9 has failed, and 10 was promised after
/// 9.
fn failed_at_9() -> OutQ<Bytes> {
    let mut queue = holding_abc();
    queue.promise(3);
    queue.push(b"ghi".as_slice());
    queue.promise(2);
    queue.fail(9);
    queue
}

#[test]
fn new_queue_is_empty_and_has_allocated_nothing() {
    let queue = OutQ::<Bytes>::new();
    queue.check();
    assert_eq!(queue.state(), State::Drained);
    assert!(queue.is_drained());
    assert_eq!(queue.first_gap(), None);
    assert_eq!(queue.failed_at(), None);
    assert_eq!(queue.segments.capacity(), 0);
    assert_eq!(ready(&queue), "");
}

#[test]
fn state_says_what_to_do_next() {
    assert_eq!(drained().state(), State::Drained);
    assert_eq!(holding_abc().state(), State::Ready);

    let mut queue = waiting_behind_abc();
    assert_eq!(queue.state(), State::Ready);
    queue.mark_sent(3);
    assert_eq!(queue.state(), State::Waiting);

    // The state becomes `Failed` once all bytes in front of the failed byte were sent.
    let mut queue = failed_at_9();
    assert_eq!(queue.state(), State::Ready);
    queue.mark_sent(3);
    assert_eq!(queue.state(), State::Waiting);
    queue.fill(3, b"def");
    assert_eq!(queue.state(), State::Ready);
    queue.mark_sent(6);
    assert_eq!(queue.state(), State::Failed);
    assert!(!queue.is_drained());
}

#[test]
fn positions_go_on_where_the_last_promise_ended() {
    let mut queue = OutQ::new();
    assert_eq!(queue.promise(10), 0);
    assert_eq!(queue.push(b"abc".as_slice()), 10);
    assert_eq!(queue.promise(1), 13);
    assert_eq!(queue.promise(1), 14);
    assert_eq!(queue.promised(), 15);
    queue.check();
}

#[test]
fn nothing_is_queued_by_zero_bytes() {
    let mut queue = OutQ::new();
    assert_eq!(queue.promise(0), 0);
    assert_eq!(queue.push(b"".as_slice()), 0);
    queue.fill(0, b"");
    queue.mark_sent(0);
    queue.mark_released(0);
    queue.check();
    assert_eq!(queue.segments.capacity(), 0);

    let mut queue = waiting_behind_abc();
    assert_eq!(queue.promise(0), 10);
    assert_eq!(queue.push(b"".as_slice()), 10);
    queue.fill(5, b"");
    assert_eq!(queue.first_gap(), Some(3..10));
    assert_eq!(queue.segments.len(), 2);
}

#[test]
fn neighbouring_promises_are_one_gap() {
    let mut queue = waiting_behind_abc();
    queue.promise(5);
    assert_eq!(queue.first_gap(), Some(3..15));
    queue.fill(8, b"ijkl");
    assert_eq!(queue.first_gap(), Some(3..8));
}

#[test]
fn any_part_of_a_gap_may_be_filled() {
    /// The fills of the gap 3..10, the bytes ready afterwards, and the first gap afterwards.
    type Case<'a> = (&'a [(u64, Bytes)], &'a str, Option<(u64, u64)>);
    let table: [Case<'_>; 7] = [
        (&[(3, b"defghij")], "abc|defghij", None),
        (&[(3, b"def")], "abc|def", Some((6, 10))),
        (&[(7, b"hij")], "abc", Some((3, 7))),
        (&[(5, b"fg")], "abc", Some((3, 5))),
        (&[(5, b"fg"), (3, b"de")], "abc|de|fg", Some((7, 10))),
        (&[(9, b"j"), (3, b"defghi")], "abc|defghi|j", None),
        (&[(7, b"hij"), (5, b"fg"), (3, b"de")], "abc|de|fg|hij", None),
    ];
    for (fills, expected, gap) in table {
        let mut queue = waiting_behind_abc();
        for &(at, bytes) in fills {
            queue.fill(at, bytes);
            queue.check();
        }
        assert_eq!(ready(&queue), expected, "{fills:?}");
        assert_eq!(queue.first_gap(), gap.map(|(begin, end)| begin..end));
    }
}

#[test]
fn the_fill_that_was_missing_releases_all_behind_it() {
    let mut queue = OutQ::<Bytes>::new();
    let first = queue.promise(2);
    let second = queue.promise(2);
    let third = queue.promise(2);
    queue.fill(third, b"ef");
    queue.fill(second, b"cd");
    assert_eq!(queue.ready(), 0);
    queue.fill(first, b"ab");
    assert_eq!(queue.ready(), 6);
    assert_eq!(drain(&mut queue), "ab|cd|ef");
}

#[test]
fn partial_sends_resume_within_the_payload() {
    let mut queue = waiting_behind_abc();
    queue.fill(3, b"def");
    queue.mark_sent(2);
    assert_eq!(ready(&queue), "c|def");
    let chunk = queue.next_ready().next().unwrap();
    assert_eq!((chunk.at, chunk.range.clone(), chunk.len()), (2, 2..3, 1));
    queue.mark_sent(1);
    assert_eq!(ready(&queue), "def");
    queue.mark_sent(3);
    assert_eq!(ready(&queue), "");
}

#[test]
fn payloads_are_dropped_when_wholly_released() {
    struct Counted {
        _alive: Rc<()>,
    }
    impl Payload for Counted {
        fn len(&self) -> u64 {
            4
        }

        fn split_to(&mut self, _: u64) -> Self {
            unreachable!("not moved into another queue")
        }
    }
    let alive = Rc::new(());
    let count = || Rc::strong_count(&alive) - 1;
    let counted = || Counted { _alive: Rc::clone(&alive) };
    let mut queue = OutQ::new();
    queue.push(counted());
    queue.push(counted());
    queue.mark_sent(8);
    assert_eq!(count(), 2);
    queue.mark_released(3);
    assert_eq!(count(), 2);
    queue.mark_released(1);
    assert_eq!(count(), 1);
    queue.mark_released(4);
    assert_eq!(count(), 0);
}

#[test]
fn retracted_bytes_are_a_gap_again_and_may_come_otherwise() {
    let mut queue = holding_abc();
    queue.push(b"def");
    queue.push(b"ghi");
    queue.retract(3);
    assert_eq!(ready(&queue), "abc");
    assert_eq!(queue.first_gap(), Some(3..6));
    queue.fill(3, b"DEF");
    assert_eq!(ready(&queue), "abc|DEF|ghi");
}

#[test]
fn retract_within_a_payload_keeps_its_front() {
    let mut queue = holding_abc();
    queue.push(b"def");
    queue.mark_sent(1);
    queue.retract(1);
    queue.check();
    assert_eq!(ready(&queue), "");
    assert_eq!(queue.first_gap(), Some(1..3));
    queue.fill(1, b"BC");
    assert_eq!(ready(&queue), "BC|def");
    queue.retract(5);
    assert_eq!(ready(&queue), "BC|de");
}

#[test]
fn retract_joins_the_gaps_around_it() {
    for (at, gap) in [(4, 2..10), (5, 2..4), (6, 2..4)] {
        let mut queue = OutQ::<Bytes>::new();
        queue.push(b"ab");
        queue.promise(8);
        queue.fill(4, b"efg");
        queue.retract(at);
        queue.check();
        assert_eq!(queue.first_gap(), Some(gap), "retract({at})");
        // One payload can fill the bytes on both sides of the old border.
        queue.fill(at, &b"0123456789"[usize::try_from(at).unwrap()..]);
        queue.check();
        assert_eq!(queue.promised(), 10);
    }
}

#[test]
fn retract_drops_a_payload_of_which_the_rest_is_released() {
    let mut queue = holding_abc();
    queue.mark_sent(1);
    queue.mark_released(1);
    queue.retract(1);
    queue.check();
    assert_eq!(queue.segments.len(), 1);
    assert_eq!(queue.first_gap(), Some(1..3));
    queue.fill(1, b"BC");
    assert_eq!(drain(&mut queue), "BC");
}

#[test]
fn failure_lets_the_front_drain_and_nothing_else() {
    let mut queue = failed_at_9();
    assert_eq!(queue.failed_at(), Some(9));
    assert_eq!(drain(&mut queue), "abc");
    queue.fill(3, b"def");
    assert_eq!(drain(&mut queue), "def|ghi");

    // Some reads were under way when the byte failed. These reads end after the failure. Each read ends twice here.
    for _ in 0..2 {
        queue.fill(9, b"j");
        queue.fill(9, b"jk");
        queue.fill(10, b"k");
        queue.fail(10);
        queue.retract(9);
        assert_eq!(drain(&mut queue), "");
        assert_eq!(queue.state(), State::Failed);
        assert_eq!((queue.sent(), queue.promised()), (9, 11));
    }
}

#[test]
fn failure_drops_what_was_filled_behind_it() {
    let mut queue = waiting_behind_abc();
    queue.push(b"klm");
    queue.fail(5);
    queue.check();
    assert_eq!(queue.first_gap(), Some(3..5));
    queue.fill(3, b"de");
    assert_eq!(drain(&mut queue), "abc|de");
    assert_eq!(queue.state(), State::Failed);
    assert_eq!(queue.segments.len(), 0);
}

#[test]
fn failure_nearest_to_the_front_counts() {
    let mut queue = waiting_behind_abc();
    queue.fail(8);
    queue.fail(9);
    assert_eq!(queue.failed_at(), Some(8));
    queue.fail(4);
    assert_eq!(queue.failed_at(), Some(4));
    queue.fail(3);
    assert_eq!(queue.failed_at(), Some(3));
    assert_eq!(queue.first_gap(), None);
    assert_eq!(drain(&mut queue), "abc");
    assert_eq!(queue.state(), State::Failed);
}

#[test]
fn payload_across_the_failure_keeps_its_front() {
    let mut queue = waiting_behind_abc();
    queue.fail(5);
    queue.fill(3, b"defgh");
    assert_eq!(ready(&queue), "abc|de");
    queue.retract(4);
    assert_eq!(ready(&queue), "abc|d");
    assert_eq!(queue.first_gap(), Some(4..5));
}

#[test]
fn payloads_are_cut_in_two() {
    let mut slice = b"abcdef".as_slice();
    assert_eq!((slice.split_to(2), slice), (b"ab".as_slice(), b"cdef".as_slice()));
    let mut vec = b"abcdef".to_vec();
    let front = vec.split_to(2);
    assert_eq!((front, vec), (b"ab".to_vec(), b"cdef".to_vec()));
}

#[test]
fn ready_bytes_move_into_another_queue_payload_by_payload() {
    let mut queue = waiting_behind_abc();
    queue.fill(3, b"def");
    let mut other = OutQ::new();
    other.push(b"<".as_slice());
    for max in [0, 2, 5, 2, 5] {
        if let Some(taken) = queue.take_ready(max) {
            other.push(taken);
        }
        queue.check();
    }
    assert_eq!(ready(&other), "<|ab|c|de|f");
    assert_eq!((queue.released(), queue.sent(), queue.state()), (6, 6, State::Waiting));
    assert_eq!(queue.weight(), Weight::default());
    assert_eq!(queue.take_ready(u64::MAX), None);
}

#[test]
fn a_payload_is_taken_without_the_bytes_that_left_and_those_that_never_will() {
    let mut queue = holding_abc();
    queue.push(b"defgh");
    queue.mark_sent(4);
    queue.mark_released(4);
    queue.retract(7);
    assert_eq!(queue.take_ready(2), Some(b"ef".as_slice()));
    queue.check();
    assert_eq!(queue.take_ready(2), Some(b"g".as_slice()));
    queue.check();
    assert_eq!(queue.first_gap(), Some(7..8));
    queue.fill(7, b"H");
    assert_eq!(drain(&mut queue), "H");
}

#[test]
fn what_is_in_flight_can_be_read_again() {
    let mut queue = holding_abc();
    queue.push(b"def");
    queue.push(b"ghi");
    queue.mark_sent(7);
    queue.mark_released(1);
    let again = |from| {
        let chunks = queue.in_flight(from).map(|chunk| (chunk.at, chunk.range));
        chunks.collect::<Vec<_>>()
    };
    assert_eq!(again(1), [(1, 1..3), (3, 0..3), (6, 0..1)]);
    assert_eq!(again(5), [(5, 2..3), (6, 0..1)]);
    assert_eq!(again(7), []);
}

#[test]
fn an_abort_fails_the_first_gap_or_what_would_follow() {
    let mut queue = waiting_behind_abc();
    queue.fill(7, b"hij");
    queue.abort();
    queue.check();
    assert_eq!(queue.failed_at(), Some(3));
    assert_eq!(drain(&mut queue), "abc");
    assert_eq!(queue.state(), State::Failed);

    let mut queue = holding_abc();
    for _ in 0..2 {
        queue.abort();
        queue.check();
        assert_eq!((queue.failed_at(), queue.promised()), (Some(3), 3));
    }
    assert_eq!(queue.state(), State::Ready);
    // A retracted range may be filled by another payload, or may never be filled.
    queue.retract(2);
    queue.check();
    assert_eq!(queue.first_gap(), Some(2..3));
    queue.fill(2, b"C");
    assert_eq!(drain(&mut queue), "ab|C");
    assert_eq!(queue.state(), State::Failed);
    assert!(!queue.is_drained());

    let mut queue = OutQ::<Bytes>::new();
    queue.abort();
    queue.check();
    assert_eq!(queue.state(), State::Failed);
}

#[test]
fn idle_connection_gives_its_memory_back() {
    let mut queue = OutQ::<Bytes>::new();
    for _ in 0..1000 {
        queue.push(b"x");
    }
    assert!(queue.segments.capacity() >= 1000);
    drain(&mut queue);
    assert!(queue.segments.capacity() <= SEGMENTS_KEPT);

    // A busy connection does not allocate for each response.
    queue.push(b"head");
    let kept = queue.segments.capacity();
    queue.push(b"body");
    drain(&mut queue);
    assert_eq!(queue.segments.capacity(), kept);

    queue.shrink();
    assert_eq!(queue.segments.capacity(), 0);
    assert!(size_of::<OutQ<Bytes>>() <= 88);
}

#[test]
fn a_payload_weighs_until_its_last_byte_is_released() {
    let mut queue = holding_abc();
    let gap = queue.promise(4);
    assert_eq!(queue.weight().total(), 3, "a gap weighs nothing");
    queue.fill(gap, b"de");
    queue.mark_sent(4);
    queue.mark_released(2);
    assert_eq!(queue.weight().total(), 5, "one byte of each is left");
    queue.mark_released(1);
    assert_eq!(queue.weight().total(), 2);
    queue.retract(4);
    assert_eq!(queue.weight().total(), 2, "the front of the payload stays");
    queue.fill(5, b"fg");
    queue.fail(4);
    assert_eq!(queue.weight().total(), 2, "what is behind a failure is dropped");
}

#[test]
fn a_restarted_queue_begins_at_position_0_and_keeps_its_memory() {
    let mut queue = holding_abc();
    drain(&mut queue);
    let kept = queue.segments.capacity();
    queue.restart();
    queue.check();
    assert_eq!((queue.promised(), queue.state()), (0, State::Drained));
    assert_eq!(queue.segments.capacity(), kept);
}

#[test]
#[should_panic(expected = "restart with unreleased bytes")]
fn restarting_a_stream_that_is_under_way_panics() {
    drained().restart();
}

#[test]
fn positions_reach_the_last_but_one_u64() {
    let mut queue = OutQ::<Bytes>::new();
    queue.promise(u64::MAX - 1);
    queue.fill(u64::MAX - 4, b"end");
    queue.check();
    assert_eq!(queue.first_gap(), Some(0..u64::MAX - 4));
    queue.fail(0);
    queue.fill(u64::MAX - 4, b"end");
    assert_eq!(queue.state(), State::Failed);
}

#[test]
fn debug_shows_positions_and_no_payload() {
    let queue = failed_at_9();
    assert_eq!(
        format!("{queue:?}"),
        "OutQ { released: 0, sent: 0, ready: 3, failed_at: Some(9), promised: 11, weight: Weight { own: 6, shared: 0 }, \
         segments: [filled at 0, gap at 3, filled at 6] }"
    );
}

#[test]
fn vec_is_a_payload() {
    let mut queue = OutQ::default();
    queue.push(vec![1, 2, 3]);
    assert_eq!(queue.unsent_ready(), 3);
}

// These tests are about mistakes of the caller.

#[test]
#[should_panic(expected = "reaches u64::MAX")]
fn promise_beyond_u64_panics() {
    waiting_behind_abc().promise(u64::MAX);
}

#[test]
#[should_panic(expected = "promise behind failed bytes at 9")]
fn promise_behind_a_failure_panics() {
    failed_at_9().promise(1);
}

#[test]
#[should_panic(expected = "promise behind failed bytes at 9")]
fn push_behind_a_failure_panics() {
    failed_at_9().push(b"x");
}

#[test]
#[should_panic(expected = "promise behind failed bytes at 3")]
fn promise_behind_an_abort_panics() {
    let mut queue = holding_abc();
    queue.abort();
    queue.promise(1);
}

#[test]
#[should_panic(expected = "restart of an aborted stream")]
fn restarting_an_aborted_stream_panics() {
    let mut queue = OutQ::<Bytes>::new();
    queue.abort();
    queue.restart();
}

#[test]
#[should_panic(expected = "2 sent bytes are not released")]
fn taking_from_a_queue_that_has_a_transport_panics() {
    let mut queue = holding_abc();
    queue.mark_sent(2);
    queue.take_ready(1);
}

#[test]
#[should_panic(expected = "the byte at 0 has been released")]
fn sending_released_bytes_again_panics() {
    let mut queue = holding_abc();
    drain(&mut queue);
    drop(queue.in_flight(0));
}

#[test]
#[should_panic(expected = "the byte at 3 has not been sent")]
fn sending_unsent_bytes_again_panics() {
    let mut queue = holding_abc();
    queue.mark_sent(2);
    drop(queue.in_flight(3));
}

#[test]
#[should_panic(expected = "fill of 3 bytes at 8, promised is 10")]
fn fill_beyond_the_promise_panics() {
    waiting_behind_abc().fill(8, b"ijk");
}

#[test]
#[should_panic(expected = "promised is 10")]
fn fill_beyond_u64_panics() {
    waiting_behind_abc().fill(u64::MAX, b"xy");
}

#[test]
#[should_panic(expected = "the byte at 1 is filled already")]
fn fill_of_ready_bytes_panics() {
    waiting_behind_abc().fill(1, b"b");
}

#[test]
#[should_panic(expected = "the byte at 7 is filled already")]
fn fill_twice_panics() {
    let mut queue = waiting_behind_abc();
    queue.fill(7, b"h");
    queue.fill(7, b"h");
}

#[test]
#[should_panic(expected = "fill of 6..8 runs into bytes filled already, at 7")]
fn fill_across_filled_bytes_panics() {
    let mut queue = waiting_behind_abc();
    queue.fill(7, b"h");
    queue.fill(6, b"gh");
}

#[test]
#[should_panic(expected = "the byte at 0 is filled already")]
fn fill_of_released_bytes_panics() {
    let mut queue = waiting_behind_abc();
    drain(&mut queue);
    queue.fill(0, b"a");
}

#[test]
#[should_panic(expected = "retract of 1, which has been sent")]
fn retract_of_sent_bytes_panics() {
    let mut queue = holding_abc();
    queue.mark_sent(2);
    queue.retract(1);
}

#[test]
#[should_panic(expected = "retract of 5, which is not filled")]
fn retract_of_a_gap_panics() {
    waiting_behind_abc().retract(5);
}

#[test]
#[should_panic(expected = "10 was not promised")]
fn retract_beyond_the_promise_panics() {
    waiting_behind_abc().retract(10);
}

#[test]
#[should_panic(expected = "10 was not promised")]
fn fail_beyond_the_promise_panics() {
    waiting_behind_abc().fail(10);
}

#[test]
#[should_panic(expected = "the byte at 2 is filled already")]
fn fail_of_filled_bytes_panics() {
    waiting_behind_abc().fail(2);
}

#[test]
#[should_panic(expected = "4 bytes sent of 3 ready")]
fn sending_a_gap_panics() {
    waiting_behind_abc().mark_sent(4);
}

#[test]
#[should_panic(expected = "3 bytes released of 2 sent")]
fn releasing_unsent_bytes_panics() {
    let mut queue = holding_abc();
    queue.mark_sent(2);
    queue.mark_released(3);
}

// Properties.

/// Any operation but a failure. Runs of bytes are short, so that there are many segments.
fn operation() -> impl Strategy<Value = Operation> {
    let n = || 0..40_u16;
    prop_oneof![
        3 => n().prop_map(Operation::Promise),
        2 => n().prop_map(Operation::Push),
        8 => (any::<u16>(), n()).prop_map(|(at, n)| Operation::Fill(at, n)),
        2 => any::<u16>().prop_map(Operation::Retract),
        3 => n().prop_map(Operation::Send),
        1 => any::<u16>().prop_map(Operation::Send),
        3 => n().prop_map(Operation::Release),
        1 => any::<u16>().prop_map(Operation::Release),
        3 => n().prop_map(Operation::Take),
        1 => any::<u16>().prop_map(Operation::Take),
        1 => Just(Operation::Shrink),
        1 => Just(Operation::Restart),
    ]
}

fn failure() -> impl Strategy<Value = Operation> {
    prop_oneof![2 => any::<u16>().prop_map(Operation::Fail), 1 => Just(Operation::Abort)]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    collection::vec(operation(), 0..120)
}

proptest! {
    #[test]
    fn queue_does_as_the_model(operations in operations()) {
        let mut pair = Pair::default();
        for operation in operations {
            pair.apply(operation);
        }
    }

    #[test]
    fn queue_does_as_the_model_around_failures(
        before in operations(),
        fail in failure(),
        between in operations(),
        fail_again in failure(),
        after in operations(),
    ) {
        let mut pair = Pair::default();
        let failures = [fail, fail_again];
        let operations = before.into_iter().chain([failures[0]]).chain(between);
        for operation in operations.chain([failures[1]]).chain(after) {
            pair.apply(operation);
        }
    }

    /// No operation after a failure offers the failed byte, or a byte after it, to the
    /// transport.
    #[test]
    fn no_byte_behind_a_failure_is_ever_ready(
        promises in collection::vec(1..20_u64, 1..10),
        pick in any::<u64>(),
        fills in collection::vec(any::<u64>(), 0..100),
    ) {
        let mut queue = OutQ::<Bytes>::new();
        for n in promises {
            queue.promise(n);
        }
        let failed_at = pick % queue.promised();
        queue.fail(failed_at);
        let promised = queue.promised();
        let mut filled = vec![false; usize::try_from(promised).unwrap()];
        for at in fills.into_iter().map(|at| at % promised).chain(0..failed_at) {
            // Each byte in front of the failure is filled once. Each byte from the failure
            // on is filled any number of times.
            let filled = &mut filled[usize::try_from(at).unwrap()];
            if !*filled || at >= failed_at {
                queue.fill(at, b"x");
            }
            *filled = true;
            let taken = queue.unsent_ready();
            queue.mark_sent(taken);
            queue.check();
            prop_assert!(queue.sent() <= failed_at);
        }
        prop_assert_eq!(queue.sent(), failed_at);
        prop_assert_eq!(queue.state(), State::Failed);
    }
}

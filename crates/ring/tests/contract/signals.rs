//! Signals. They are sent to the test's own thread: other threads of the process do not block them.
//! Tests of the whole process are in `signals.rs`.

use ring::{Event, Key, Op, Signal};

use super::stage::Stage;

/// Signals without a use of their own. The second queues.
const STANDARD: i32 = libc::SIGUSR1;
const QUEUED: i32 = 40;

on_every_driver!(
    reports_signals_until_it_is_cancelled,
    reports_a_signal_that_is_pending,
    standard_signals_are_one_and_others_queue,
    each_of_two_operations_has_its_signal,
    a_signal_goes_to_one_of_two_operations,
    what_cannot_be_blocked_is_refused,
    a_signal_after_the_end_stays_pending,
    cancelled_while_signals_come,
    a_ring_dropped_while_it_waits,
);

mod blocking {
    //! The simulated process blocks all signals.
    use super::*;
    on_real_drivers!(a_signal_that_is_not_blocked_is_refused);
}

fn submit(s: &mut Stage, signal: i32) -> Key {
    s.block_signal(signal);
    s.ring.submit(Op::Signal(signal), 0)
}

#[track_caller]
fn signal(s: &mut Stage, key: Key) -> Signal {
    let completion = s.next(key);
    assert!(completion.more);
    match completion.result.unwrap() {
        Event::Signal(signal) => signal,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn ends_cancelled(s: &mut Stage, key: Key) {
    s.ring.cancel(key);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ECANCELED));
}

fn reports_signals_until_it_is_cancelled(s: &mut Stage) {
    let key = submit(s, STANDARD);
    assert!(s.rest().is_empty());
    for _ in 0..10 {
        s.signal(STANDARD);
        let own = Signal { number: STANDARD, sender: Some(std::process::id()) };
        assert_eq!(signal(s, key), own);
        assert!(s.rest_now().is_empty());
    }
    ends_cancelled(s, key);
    assert!(s.rest().is_empty());
    assert_eq!(s.ring.in_flight(), 0);
}

fn reports_a_signal_that_is_pending(s: &mut Stage) {
    s.block_signal(STANDARD);
    s.signal(STANDARD);
    let key = submit(s, STANDARD);
    assert_eq!(signal(s, key).number, STANDARD);
}

fn standard_signals_are_one_and_others_queue(s: &mut Stage) {
    let (standard, queued) = (submit(s, STANDARD), submit(s, QUEUED));
    s.pause();
    for _ in 0..20 {
        s.signal(STANDARD);
        s.signal(QUEUED);
    }
    let came = s.rest();
    let count = |key: Key| came.iter().filter(|one| one.key == key).count();
    assert_eq!((count(standard), count(queued)), (1, 20));
}

fn each_of_two_operations_has_its_signal(s: &mut Stage) {
    let (one, two) = (submit(s, STANDARD), submit(s, libc::SIGHUP));
    s.signal(libc::SIGHUP);
    assert_eq!(signal(s, two).number, libc::SIGHUP);
    s.signal(STANDARD);
    assert_eq!(signal(s, one).number, STANDARD);
    assert!(s.rest().is_empty());
}

fn a_signal_goes_to_one_of_two_operations(s: &mut Stage) {
    let keys = [submit(s, STANDARD), submit(s, STANDARD)];
    s.pause();
    for _ in 0..5 {
        s.signal(STANDARD);
        let came = s.rest();
        assert_eq!(came.len(), 1);
        assert!(keys.contains(&came[0].key));
    }
    ends_cancelled(s, keys[0]);
    s.signal(STANDARD);
    signal(s, keys[1]);
}

fn what_cannot_be_blocked_is_refused(s: &mut Stage) {
    for signal in [0, -1, libc::SIGKILL, libc::SIGSTOP, 65, i32::MAX, i32::MIN] {
        let key = s.ring.submit(Op::Signal(signal), 0);
        assert_eq!(s.error(key).raw_os_error(), Some(libc::EINVAL), "{signal}");
    }
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_signal_that_is_not_blocked_is_refused(s: &mut Stage) {
    let key = s.ring.submit(Op::Signal(libc::SIGUSR2), 0);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::EINVAL));
    assert_eq!(ring::block_signals(&[0]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let key = submit(s, libc::SIGUSR2);
    s.signal(libc::SIGUSR2);
    assert_eq!(signal(s, key).number, libc::SIGUSR2);
}

fn a_signal_after_the_end_stays_pending(s: &mut Stage) {
    let key = submit(s, STANDARD);
    ends_cancelled(s, key);
    s.signal(STANDARD);
    assert!(s.rest().is_empty());
    let key = submit(s, STANDARD);
    assert_eq!(signal(s, key).number, STANDARD);
}

fn cancelled_while_signals_come(s: &mut Stage) {
    let (mut sent, mut seen) = (0, 0);
    for round in 0..20 {
        let key = submit(s, QUEUED);
        for _ in 0..round % 3 {
            s.signal(QUEUED);
            sent += 1;
        }
        if round % 2 == 0 {
            seen += s.rest_now().len();
        }
        s.ring.cancel(key);
        loop {
            let completion = s.next(key);
            if !completion.more {
                assert_eq!(completion.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
                break;
            }
            seen += 1;
        }
    }
    let key = submit(s, QUEUED);
    let left = s.rest();
    assert!(left.iter().all(|one| one.key == key && one.more));
    assert_eq!(seen + left.len(), sent, "none is lost, none comes twice");
}

fn a_ring_dropped_while_it_waits(s: &mut Stage) {
    submit(s, STANDARD);
    s.pause();
    s.replace_ring();
    s.signal(STANDARD);
    let key = submit(s, STANDARD);
    assert_eq!(signal(s, key).number, STANDARD);
    assert!(s.rest().is_empty());
}

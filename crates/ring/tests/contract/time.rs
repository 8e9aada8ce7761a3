//! Timers, deadlines, wake-ups.

use core::time::Duration;
use std::thread;

use ring::{Event, Op};

use super::stage::Stage;

on_every_driver!(
    timers_come_in_order,
    a_cancelled_timer_does_not_come,
    many_cancelled_timers_are_forgotten,
    wait_returns_at_the_deadline,
    gathering_ends_with_what_has_come,
    a_wake_from_another_thread,
    wakes_before_the_wait_are_not_lost,
    both_clocks_go_on,
    completions_that_were_put_back_come_first,
);

mod asleep {
    //! In the simulation nothing acts while a ring waits.
    use super::*;
    on_real_drivers!(a_wake_ends_a_long_sleep);
}

fn timers_come_in_order(s: &mut Stage) {
    let start = s.ring.now();
    let keys: Vec<_> = [30, 10, 20, 0]
        .into_iter()
        .map(|millis| s.ring.submit(Op::Timer(start + Duration::from_millis(millis)), millis))
        .collect();
    let mut tokens = Vec::new();
    let mut completions = Vec::new();
    while tokens.len() < keys.len() {
        s.ring.wait(None, &mut completions).unwrap();
        for completion in completions.drain(..) {
            assert!(matches!(completion.result, Ok(Event::Timer)) && !completion.more);
            let due = start + Duration::from_millis(completion.token);
            assert!(s.ring.now() >= due, "not before its time");
            tokens.push(completion.token);
        }
    }
    assert_eq!(tokens, [0, 10, 20, 30]);
}

fn completions_that_were_put_back_come_first(s: &mut Stage) {
    let (mut completions, mut given, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for token in 0..3 {
        order.push(s.ring.submit(Op::Timer(s.ring.now()), token));
        s.ring.wait(None, &mut completions).unwrap();
        given.append(&mut completions);
    }
    s.ring.put_back(&mut given);
    assert!(given.is_empty());
    let far = s.ring.now() + Duration::from_secs(3600);
    s.ring.submit(Op::Timer(far), 3);
    order.push(s.ring.submit(Op::Timer(s.ring.now()), 4));
    s.ring.wait(Some(far), &mut completions).unwrap();
    let came: Vec<_> = completions.iter().map(|one| one.key).collect();
    assert_eq!(came, order);
    assert!(s.ring.now() < far);
}

fn a_cancelled_timer_does_not_come(s: &mut Stage) {
    let key = s.ring.submit(Op::Timer(s.ring.now() + Duration::from_millis(20)), 0);
    let other = s.ring.submit(Op::Timer(s.ring.now() + Duration::from_millis(40)), 0);
    s.ring.cancel(key);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ECANCELED));
    assert!(matches!(s.event(other), Event::Timer));
    assert!(s.rest().is_empty());
}

fn many_cancelled_timers_are_forgotten(s: &mut Stage) {
    let far = s.ring.now() + Duration::from_secs(3600);
    let keys: Vec<_> = (0..10_000).map(|_| s.ring.submit(Op::Timer(far), 0)).collect();
    let soon = s.ring.submit(Op::Timer(s.ring.now() + Duration::from_millis(10)), 0);
    for key in keys {
        s.ring.cancel(key);
    }
    assert!(matches!(s.event(soon), Event::Timer));
    assert_eq!(s.ring.in_flight(), 0);
}

fn wait_returns_at_the_deadline(s: &mut Stage) {
    let mut completions = Vec::new();
    let start = s.ring.now();
    s.ring.wait(Some(start), &mut completions).unwrap();
    assert!(s.ring.now().since(start) < Duration::from_secs(1), "only a look");
    let until = s.ring.now() + Duration::from_millis(30);
    while s.ring.now() < until {
        s.ring.wait(Some(until), &mut completions).unwrap();
        assert!(completions.is_empty());
    }
    assert!(s.ring.now().since(until) < Duration::from_secs(5));
}

fn gathering_ends_with_what_has_come(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let receive = s.ring.submit(Op::Recv(socket), 0);
    for count in [0, 1, 2, usize::MAX] {
        peer.send(b"a");
        s.ring.gather(count);
        assert!(matches!(s.event(receive), Event::Received(bytes) if *bytes == *b"a"), "{count}");
    }
    // If nothing comes, the wait ends at its usual time.
    let (start, mut completions) = (s.ring.now(), Vec::new());
    let until = start + Duration::from_millis(30);
    while s.ring.now() < until {
        s.ring.gather(2);
        s.ring.wait(Some(until), &mut completions).unwrap();
        assert!(completions.is_empty());
    }
    assert!(s.ring.now().since(until) < Duration::from_secs(5));
}

fn a_wake_from_another_thread(s: &mut Stage) {
    let waker = s.ring.waker(9).unwrap();
    let again = s.ring.waker(10).unwrap();
    for waker in [waker.clone(), again, waker] {
        thread::spawn(move || waker.wake()).join().unwrap();
        let woken = s.rest();
        assert!(!woken.is_empty());
        for completion in woken {
            assert!(matches!(completion.result, Ok(Event::Woken)) && completion.token == 9);
            assert!(completion.more);
        }
    }
}

fn wakes_before_the_wait_are_not_lost(s: &mut Stage) {
    let waker = s.ring.waker(1).unwrap();
    for _ in 0..100 {
        waker.wake();
    }
    let woken = s.rest();
    assert!(!woken.is_empty() && woken.len() <= 100);
    assert!(s.rest().is_empty(), "once told, it is told");
    drop(s.ring.waker(1));
    waker.wake();
    assert!(!s.rest().is_empty());
}

fn both_clocks_go_on(s: &mut Stage) {
    let (now, unix) = (s.ring.now(), s.ring.unix_time());
    assert!(unix > 1_600_000_000);
    s.pause();
    assert!(s.ring.now() > now);
    assert!(s.ring.unix_time() >= unix);
}

fn a_wake_ends_a_long_sleep(s: &mut Stage) {
    let waker = s.ring.waker(1).unwrap();
    let thread = thread::spawn(move || {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(30));
            waker.wake();
        }
    });
    let mut completions = Vec::new();
    for _ in 0..3 {
        s.ring.wait(None, &mut completions).unwrap();
        while completions.is_empty() {
            s.ring.wait(None, &mut completions).unwrap();
        }
        assert!(matches!(completions[0].result, Ok(Event::Woken)));
    }
    thread.join().unwrap();
}

//! The shares of devices, as a table; and devices that die at any moment, at random.

use testkit::Random;

use super::*;

const PLACES: usize = 16;
const A: Device = Device::of(1);
const B: Device = Device::of(2);
const C: Device = Device::of(3);

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Begins calls until no slot is left; returns their number.
fn fill(shares: &mut Shares, device: Device, now: Time) -> usize {
    let mut begun = 0;
    while shares.may_begin(device, now) {
        shares.begin(device, now);
        begun += 1;
    }
    begun
}

#[test]
fn a_device_has_a_quarter_of_the_places_and_a_half_while_it_answers() {
    let mut shares = Shares::new(PLACES);
    assert_eq!(fill(&mut shares, A, at(0)), 4, "nothing is known of it");
    assert!(!shares.end(A, at(10)));
    assert_eq!(fill(&mut shares, A, at(1009)), 5, "it has answered");
    assert!(!shares.may_begin(A, at(2000)));
    shares.end(A, at(5000));
    assert_eq!(fill(&mut shares, A, at(6000)), 0, "and then for a second not");
    assert_eq!(shares.taken(), 7);
}

#[test]
fn two_devices_that_die_at_once_leave_a_quarter_to_a_third() {
    let mut shares = Shares::new(PLACES);
    for device in [A, B] {
        fill(&mut shares, device, at(0));
        shares.end(device, at(0));
    }
    assert_eq!((fill(&mut shares, A, at(0)), fill(&mut shares, B, at(0))), (5, 1));
    assert_eq!(shares.taken(), 12);
    assert_eq!(fill(&mut shares, C, at(0)), 4);
    shares.end(C, at(1));
    assert_eq!(fill(&mut shares, C, at(1)), 1);
}

#[test]
fn calls_in_line_begin_as_places_are_left() {
    let mut gate = Gate::new(PLACES);
    let next = |gate: &mut Gate<u32>| core::iter::from_fn(|| gate.next(at(0))).collect::<Vec<_>>();
    for call in 0..6 {
        gate.line_up(A, call);
    }
    gate.line_up(B, 100);
    assert_eq!(next(&mut gate), [0, 100, 1, 2, 3], "a quarter for each device, in turns");
    gate.leave(B, at(0));
    assert_eq!(next(&mut gate), [], "A has not answered");
    gate.leave(A, at(0));
    assert_eq!(next(&mut gate), [4, 5], "and now it has");
    assert_eq!((gate.waiting(), gate.shares().taken()), (0, 5));
}

#[test]
fn few_places_have_room_for_two_devices() {
    let mut shares = Shares::new(2);
    assert_eq!((fill(&mut shares, A, at(0)), fill(&mut shares, B, at(0))), (1, 1));
    let mut shares = Shares::new(1);
    assert_eq!((fill(&mut shares, A, at(0)), fill(&mut shares, B, at(0))), (1, 0));
}

#[test]
fn a_silent_device_is_tried_once_in_a_while_and_its_next_answer_is_told() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let mut shares = Shares::new(PLACES);
    assert!(!shares.refuses(A, at(0), PATIENCE) && shares.silent(at(0), PATIENCE).next().is_none());
    shares.begin(A, at(0));
    shares.begin(A, at(20_000));
    assert_eq!(shares.silence(A, at(29_999)), Duration::from_millis(29_999));
    assert!(!shares.refuses(A, at(29_999), PATIENCE));
    assert!(shares.refuses(A, at(30_000), PATIENCE));
    assert_eq!(shares.report(A, at(30_000)), 2);
    assert_eq!(shares.silent(at(29_999), PATIENCE).count(), 0);
    assert_eq!(shares.silent(at(30_000), PATIENCE).collect::<Vec<_>>(), [(A, 2)]);
    assert!(!shares.refuses(A, at(50_000), PATIENCE), "time for a probe");
    shares.begin(A, at(50_000));
    assert!(shares.refuses(A, at(50_001), PATIENCE));
    shares.begin(A, at(80_000));
    assert!(shares.refuses(A, at(999_000), PATIENCE), "it has all of its places");
    shares.end(A, at(999_000));
    shares.report(A, at(999_000));
    assert!(shares.end(A, at(999_000)), "it answers again");
    assert!(!shares.refuses(A, at(999_000), PATIENCE));
    assert_eq!(shares.silence(A, at(999_002)), Duration::from_millis(2));
    assert!(!shares.end(A, at(999_002)) && !shares.end(A, at(999_002)));
    assert_eq!(shares.silence(A, at(1_099_000)), Duration::ZERO, "nothing is asked of it");
    assert_eq!(shares.report(B, at(1_099_000)), 0, "others found it");
    shares.begin(B, at(1_099_000));
    assert!(shares.end(B, at(1_099_001)));
}

#[test]
fn what_the_kernel_has_in_memory_is_no_answer_of_a_device_in_doubt() {
    let mut shares = Shares::new(PLACES);
    let begin = |shares: &mut Shares, millis| {
        shares.begin(A, at(millis));
        Call::new(A, at(millis))
    };
    let hung = begin(&mut shares, 0);
    for millis in (0..3000).step_by(10) {
        let looked = begin(&mut shares, millis);
        shares.end_call(&looked, at(millis + 1));
    }
    assert_eq!(shares.silence(A, at(3000)), Duration::from_millis(9), "nothing is late");
    shares.doubt(A);
    shares.report(A, at(3000));
    for millis in (3000..6000).step_by(10) {
        let looked = begin(&mut shares, millis);
        assert!(!shares.end_call(&looked, at(millis + 1)));
    }
    assert_eq!(shares.silence(A, at(6000)), Duration::from_millis(3009));
    let asked = Call { waits_from: Duration::from_millis(5), ..begin(&mut shares, 6000) };
    assert!(shares.end_call(&asked, at(6005)), "it has asked the device");
    assert!(!shares.is_doubted(A));
    shares.report(A, at(9000));
    assert!(shares.end_call(&hung, at(9001)), "it was late");
    assert_eq!(shares.taken(), 0);
}

/// As in a worker that learns from others that a device is silent, when the device answers again.
#[test]
fn a_device_that_is_asked_all_the_time_and_answers_from_memory_is_not_silent() {
    let mut shares = Shares::new(PLACES);
    shares.report(A, at(0));
    shares.begin(A, at(0));
    for millis in 1..9000 {
        shares.begin(A, at(millis));
        shares.end_call(&Call::new(A, at(millis - 1)), at(millis));
        assert!(shares.silence(A, at(millis)) < Duration::from_millis(2));
    }
}

#[test]
fn calls_wait_in_the_line_of_their_device() {
    let mut gate = Gate::new(PLACES);
    let entered: Vec<bool> = (0..6).map(|call| gate.enter(A, call, at(0))).collect();
    assert_eq!(entered, [true, true, true, true, false, false]);
    assert!(gate.enter(B, 6, at(0)), "others pass");
    assert_eq!((gate.next(at(0)), gate.waiting()), (None, 2));
    assert!(gate.withdraw(A, &4) && !gate.withdraw(A, &4) && !gate.withdraw(B, &6));
    gate.leave(A, at(1));
    assert_eq!((gate.next(at(1)), gate.next(at(1))), (Some(5), None));
    assert!(gate.enter(A, 7, at(1)));
}

#[test]
fn devices_take_turns() {
    let mut gate = Gate::new(1);
    for (device, call) in [(A, 0), (A, 1), (A, 2), (B, 3), (B, 4), (C, 5)] {
        gate.enter(device, call, at(0));
    }
    let mut order = Vec::new();
    let mut held = A;
    loop {
        gate.leave(held, at(0));
        let Some(call) = gate.next(at(0)) else { break };
        held = [A, A, A, B, B, C][call];
        order.push(call);
    }
    assert_eq!(order, [1, 3, 5, 2, 4]);
}

fn device_of(number: usize) -> Device {
    Device::of(number as u64)
}

/// Calls of five devices come and go in any order, two of the devices are dead for most of the time,
/// and a live one never waits for longer than for its own calls.
#[test]
fn at_random_dead_devices_do_not_hold_up_live_ones() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let places = 4 + random.below(40);
        let mut gate = Gate::new(places);
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        let mut millis = 0_u64;
        for call in 0..600 {
            millis += random.below(200_u64);
            let is_dead = |device: usize| device < 2 && call > 50 && call < 550;
            let device = random.below(5);
            if gate.enter(device_of(device), (device, call), at(millis)) {
                running.push((device, call));
            } else {
                waiting.push((device, call));
            }
            for _ in 0..random.below(4) {
                let live: Vec<(usize, usize)> =
                    running.iter().filter(|call| !is_dead(call.0)).copied().collect();
                if live.is_empty() {
                    break;
                }
                let ended = live[random.below(live.len())];
                running.retain(|call| *call != ended);
                gate.leave(device_of(ended.0), at(millis));
                while let Some(next) = gate.next(at(millis)) {
                    let first = waiting.iter().find(|other| other.0 == next.0);
                    assert_eq!(first, Some(&next), "seed {seed}: in order");
                    waiting.retain(|call| *call != next);
                    running.push(next);
                }
            }
            if !waiting.is_empty() && random.below(10) == 0 {
                let gone = waiting.remove(random.below(waiting.len()));
                assert!(gate.withdraw(device_of(gone.0), &gone), "seed {seed}");
            }
            assert_eq!(gate.waiting(), waiting.len(), "seed {seed}");
            assert_eq!(gate.shares().taken(), running.len(), "seed {seed}");
            assert!(running.len() <= places, "seed {seed}");
            for device in 0..5 {
                let has = running.iter().filter(|call| call.0 == device).count();
                let waits = waiting.iter().any(|call| call.0 == device);
                assert!(has <= (places / 2).max(1), "seed {seed}: {has} of {places}");
                // The live ones have a quarter together at least.
                let live = running.iter().filter(|call| call.0 >= 2).count();
                let starves = device >= 2 && waits && live == 0;
                assert!(!starves, "seed {seed}: device {device} waits for others");
            }
        }
        for (device, _) in core::mem::take(&mut running) {
            gate.leave(device_of(device), at(millis));
        }
        while let Some((device, _)) = gate.next(at(millis)) {
            gate.leave(device_of(device), at(millis));
        }
        assert_eq!((gate.waiting(), gate.shares().taken()), (0, 0), "seed {seed}: all recover");
    }
}

#[test]
fn directories_of_a_dead_device_leave_room_to_known_devices() {
    let (now, known) = (Time::default(), Device::of(1));
    let mut gate = Gate::new(16);
    let begun = (0..1000).filter(|name| gate.enter(Device::unknown(*name), *name, now)).count();
    assert_eq!((begun, gate.waiting()), (12, 988));
    assert_eq!(gate.next(now), None, "the rest of the places is for others");
    assert!(gate.enter(known, 2000, now));
    // The next call gets a slot that is given back.
    gate.leave(Device::unknown(0), now);
    assert!(gate.next(now).is_some_and(|name| name >= 12));
    assert_eq!(gate.next(now), None);
    // Known devices are served while the others wait.
    while gate.enter(known, 2001, now) {}
    gate.leave(known, now);
    assert_eq!(gate.next(now), Some(2001));
}

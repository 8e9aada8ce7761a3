use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const CHECKS: Checks = Checks { interval: Duration::from_secs(5), rise: 2, fall: 3 };
const RULES: Rules = Rules {
    max_fails: 3,
    fail_timeout: Duration::from_secs(10),
    slow_start: Duration::ZERO,
    checks: None,
};

fn at(seconds: f64) -> Time {
    // Not at the clock's start: a machine has been on for a while.
    Time::default() + Duration::from_secs(1_000_000) + Duration::from_secs_f64(seconds)
}

/// A server that has failed three times at this time.
fn down(rules: Rules, now: f64) -> Arc<Health> {
    let health = Health::new(rules, None);
    assert_eq!([(); 2].map(|()| health.handle_failure(None, at(now))), [None; 2]);
    let change = health.handle_failure(None, at(now));
    assert_eq!(change, Some(Change::Down(Some(rules.fail_timeout))));
    assert!(!health.is_up());
    health
}

fn probe(health: &Arc<Health>, now: f64) -> Probe {
    assert_eq!(health.standing(at(now)), Standing::Due);
    health.take_probe(at(now)).expect("it is due")
}

const FULL: Standing = Standing::Up(WEIGHT_FULL);

#[test]
fn failures_in_a_row_take_a_server_down() {
    // (time, true for a success)
    for (events, is_down) in [
        (&[(0.0, false), (1.0, false), (2.0, false)][..], true),
        (&[(0.0, false), (10.0, false), (20.0, false)], true),
        (&[(0.0, false), (1.0, false)], false),
        (&[(0.0, false), (1.0, false), (2.0, true), (3.0, false)], false),
        (&[(0.0, false), (1.0, false), (12.0, false), (13.0, false)], false),
        (&[(0.0, false), (1.0, false), (12.0, false), (13.0, false), (14.0, false)], true),
    ] {
        let health = Health::new(RULES, None);
        let changes = events.iter().map(|(now, success)| {
            if *success {
                health.handle_success(None, at(*now))
            } else {
                health.handle_failure(None, at(*now))
            }
        });
        let changes: Vec<_> = changes.flatten().collect();
        assert_eq!(!changes.is_empty(), is_down, "{events:?}");
        assert_eq!(health.is_up(), !is_down, "{events:?}");
        let expected = if is_down { Standing::Down } else { FULL };
        assert_eq!(health.standing(at(events.last().unwrap().0)), expected, "{events:?}");
    }
}

#[test]
fn requests_never_take_a_server_down_without_a_maximum_of_failures() {
    let health = Health::new(Rules { max_fails: 0, ..RULES }, None);
    assert!((0..100).all(|_| health.handle_failure(None, at(0.0)).is_none()));
    assert_eq!(health.standing(at(0.0)), FULL);
}

#[test]
fn a_server_that_is_down_is_probed_by_one_request_at_a_time() {
    let health = down(RULES, 0.0);
    assert_eq!(health.standing(at(9.9)), Standing::Down);
    assert!(health.take_probe(at(9.9)).is_none());
    let first = probe(&health, 10.0);
    assert_eq!(health.standing(at(11.0)), Standing::Down, "another request is not a probe");
    assert!(health.take_probe(at(11.0)).is_none());
    // The client of the probe has left.
    drop(first);
    let second = probe(&health, 12.0);
    assert_eq!(health.handle_success(Some(second), at(12.0)), Some(Change::Up));
    assert_eq!(health.standing(at(12.0)), FULL);
    assert!(health.is_up());
}

#[test]
fn each_probe_that_fails_doubles_the_pause_up_to_a_bound() {
    let health = down(RULES, 0.0);
    let mut now = 10.0;
    for pause in [20.0, 40.0, 60.0, 60.0] {
        let probe = probe(&health, now);
        assert_eq!(health.handle_failure(Some(probe), at(now)), None, "it was down");
        assert_eq!(health.standing(at(now + pause - 0.1)), Standing::Down);
        now += pause;
    }
    let probe = probe(&health, now);
    assert_eq!(health.handle_success(Some(probe), at(now)), Some(Change::Up));
    // The server has not recovered: it is down again before the last pause is over.
    let again = [1.0, 2.0, 3.0].map(|later| health.handle_failure(None, at(now + later)));
    assert_eq!(again, [None, None, Some(Change::Down(Some(60 * SECOND)))]);
    let health = down(Rules { fail_timeout: 300 * SECOND, ..RULES }, 0.0);
    assert_eq!(health.standing(at(299.0)), Standing::Down);
    assert_eq!(health.standing(at(300.0)), Standing::Due);
}

#[test]
fn a_server_that_was_well_for_some_time_begins_with_the_shortest_pause() {
    let health = down(RULES, 0.0);
    let probe = probe(&health, 10.0);
    assert_eq!(health.handle_success(Some(probe), at(10.0)), Some(Change::Up));
    let again = [20.0, 20.0, 20.0].map(|now| health.handle_failure(None, at(now)));
    assert_eq!(again[2], Some(Change::Down(Some(10 * SECOND))));
}

#[test]
fn requests_that_began_before_do_not_count_as_probes() {
    let health = down(RULES, 0.0);
    assert_eq!(health.handle_failure(None, at(1.0)), None);
    let first = probe(&health, 10.0);
    assert_eq!(health.handle_failure(None, at(10.0)), None);
    assert_eq!(health.standing(at(10.0)), Standing::Down, "the probe goes on");
    assert_eq!(health.handle_success(Some(first), at(10.1)), Some(Change::Up));
    // A response to any request shows that the server is well.
    let health = down(RULES, 0.0);
    assert_eq!(health.handle_success(None, at(1.0)), Some(Change::Up));
}

#[test]
fn the_share_of_a_server_that_is_up_again_grows() {
    let health = down(Rules { slow_start: 20 * SECOND, ..RULES }, 0.0);
    let probe = probe(&health, 10.0);
    assert_eq!(health.handle_success(Some(probe), at(10.0)), Some(Change::Up));
    for (now, weight) in [(10.0, 1), (15.0, 64), (20.0, 128), (29.9, 254), (30.0, 256)] {
        assert_eq!(health.standing(at(now)), Standing::Up(weight), "{now}");
        assert_eq!(health.handle_success(None, at(now)), None);
    }
    assert_eq!(health.summary.load(Ordering::Relaxed), FINE, "it costs nothing any more");
    assert_eq!(Health::new(health.rules, None).standing(at(0.0)), FULL, "not at the start");
}

#[test]
fn the_share_of_a_server_that_joins_others_grows() {
    let rules = Rules { slow_start: 20 * SECOND, ..RULES };
    let health = Health::new(rules, Some(at(10.0)));
    assert!(health.is_up());
    for (now, weight) in [(10.0, 1), (15.0, 64), (29.9, 254), (30.0, 256)] {
        assert_eq!(health.standing(at(now)), Standing::Up(weight), "{now}");
    }
    assert_eq!(health.summary.load(Ordering::Relaxed), FINE, "it costs nothing any more");
    let without = Health::new(RULES, Some(at(10.0)));
    assert_eq!(without.summary.load(Ordering::Relaxed), FINE, "there is no slow start");
    // A server that fails meanwhile is down for the shortest time.
    let health = Health::new(rules, Some(at(10.0)));
    let changes = [(); 3].map(|()| health.handle_failure(None, at(11.0)));
    assert_eq!(changes, [None, None, Some(Change::Down(Some(rules.fail_timeout)))]);
}

#[test]
fn checks_take_a_server_down_and_bring_it_back() {
    let health = Health::new(Rules { checks: Some(CHECKS), ..RULES }, None);
    let check = |passed, now| health.handle_check(passed, at(now));
    assert_eq!([check(false, 0.0), check(false, 5.0), check(true, 10.0)], [None; 3]);
    assert_eq!([check(false, 15.0), check(false, 20.0)], [None; 2]);
    assert_eq!(check(false, 25.0), Some(Change::Down(None)));
    assert_eq!(health.standing(at(1000.0)), Standing::Down, "no request is a probe");
    assert!(health.take_probe(at(1000.0)).is_none());
    assert_eq!(health.handle_success(None, at(1000.0)), None);
    assert_eq!(health.handle_failure(None, at(1000.0)), None);
    assert_eq!([check(true, 1000.0), check(false, 1005.0), check(true, 1010.0)], [None; 3]);
    assert_eq!(check(true, 1015.0), Some(Change::Up));
    assert_eq!(health.standing(at(1015.0)), FULL);
}

#[test]
fn checks_bring_a_server_back_that_requests_took_down() {
    let health = down(Rules { checks: Some(CHECKS), ..RULES }, 0.0);
    assert_eq!(health.handle_check(true, at(1.0)), None);
    assert_eq!(health.handle_check(true, at(6.0)), Some(Change::Up));
    let health = down(Rules { checks: Some(CHECKS), ..RULES }, 0.0);
    let failed = [1.0, 6.0, 11.0].map(|now| health.handle_check(false, at(now)));
    assert_eq!(failed, [None; 3], "it was down");
    assert_eq!(health.standing(at(100.0)), Standing::Down);
}

#[test]
fn one_worker_checks_for_all() {
    let health = Health::new(Rules { checks: Some(CHECKS), ..RULES }, None);
    assert!(health.take_check(at(0.0)));
    assert!(!health.take_check(at(0.0)) && !health.take_check(at(4.9)));
    assert_eq!(health.check_at(), Some(at(5.0)));
    assert!(health.take_check(at(5.0)));
    let without = Health::new(RULES, None);
    assert!(!without.take_check(at(0.0)) && without.check_at().is_none());
    assert_eq!(without.handle_check(false, at(0.0)), None);
}

#[test]
fn several_threads_have_one_probe() {
    for _ in 0..50 {
        let health = down(RULES, 0.0);
        let probes = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| health.take_probe(at(10.0)))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).count()
        });
        // All but one were refused, and the one is dropped by now.
        assert!(probes >= 1, "{probes}");
        let kept: Vec<_> = (0..4).filter_map(|_| health.take_probe(at(10.0))).collect();
        assert_eq!(kept.len(), 1);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Success,
    Failure,
    TakeProbe,
    ProbeEnds(bool),
    ProbeIsLost,
    Check(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Success),
        4 => Just(Step::Failure),
        3 => Just(Step::TakeProbe),
        1 => any::<bool>().prop_map(Step::ProbeEnds),
        1 => Just(Step::ProbeIsLost),
        1 => any::<bool>().prop_map(Step::Check),
    ]
}

proptest! {
    #[test]
    fn a_server_that_is_well_is_up_again_within_a_bounded_time(
        has_checks in any::<bool>(),
        steps in vec((0..20_000_u32, step()), 0..200),
    ) {
        let rules = Rules { checks: has_checks.then_some(CHECKS), ..RULES };
        let health = Health::new(rules, None);
        let (mut now, mut held) = (0.0, None);
        let mut is_up = true;
        for (millis, step) in steps {
            now += f64::from(millis) / 1000.0;
            let change = match step {
                Step::Success => health.handle_success(None, at(now)),
                Step::Failure => health.handle_failure(None, at(now)),
                Step::TakeProbe => {
                    let taken = health.take_probe(at(now));
                    let is_current =
                        |probe: &Probe| probe.pause == health.lock().pauses && !health.is_up();
                    if taken.is_some() {
                        prop_assert!(!is_up && !held.as_ref().is_some_and(is_current));
                    }
                    // A probe that was sent after an earlier pause changes nothing.
                    held = taken.or(held);
                    None
                }
                Step::ProbeEnds(passed) => match held.take() {
                    Some(probe) if passed => health.handle_success(Some(probe), at(now)),
                    Some(probe) => health.handle_failure(Some(probe), at(now)),
                    None => None,
                },
                Step::ProbeIsLost => {
                    held = None;
                    None
                }
                Step::Check(passed) => health.handle_check(passed, at(now)),
            };
            // The operator hears of each change, and of nothing else.
            match change {
                Some(Change::Up) => prop_assert!(!core::mem::replace(&mut is_up, true)),
                Some(Change::Down(_)) => prop_assert!(core::mem::replace(&mut is_up, false)),
                None => {}
            }
            prop_assert_eq!(health.is_up(), is_up);
            let standing = health.standing(at(now));
            prop_assert_eq!(standing, health.lock().standing(&rules, at(now)), "the summary");
            prop_assert_eq!(matches!(standing, Standing::Up(_)), is_up);
        }
        drop(held);
        let failing = matches!(health.lock().phase, Phase::Failing);
        if !is_up && failing {
            prop_assert_eq!(health.handle_check(true, at(now)).is_some(), health.is_up());
            health.handle_check(true, at(now));
        } else if !is_up {
            now += 60.0;
            let probe = health.take_probe(at(now));
            prop_assert!(probe.is_some());
            health.handle_success(probe, at(now));
        }
        prop_assert!(health.is_up());
    }
}

use proptest::prelude::*;

use super::*;
use crate::record::Order;

const NOW: i64 = 1_782_907_200;

fn held(not_before: i64, not_after: i64) -> Option<Held> {
    Some(Held { not_before, not_after, covers: true })
}

/// A record of a certificate whose time of renewal was asked for.
fn asked() -> Record {
    Record { ask_at: Some(NOW + HOUR), ..Record::default() }
}

fn order(since: i64) -> Option<Order> {
    Some(Order { url: "https://a/o".to_owned(), names: Vec::new(), key: Vec::new().into(), since })
}

#[test]
fn a_certificate_is_ordered_when_it_is_missing_or_lacks_a_name_or_is_due() {
    let whole = 90 * DAY;
    let lacking = Held { not_before: NOW, not_after: NOW + whole, covers: false };
    for (what, held, expected) in [
        ("none", None, Next::Order),
        ("a name is missing", Some(lacking), Next::Order),
        ("fresh", held(NOW, NOW + whole), Next::Wait(NOW + HOUR)),
        ("before two thirds", held(NOW - 60 * DAY + 10, NOW + 30 * DAY + 10), Next::Wait(NOW + 10)),
        ("two thirds", held(NOW - 60 * DAY, NOW + 30 * DAY), Next::Order),
        ("expired", held(NOW - whole, NOW - 1), Next::Order),
        // The clock is behind by years.
        ("not valid yet", held(NOW + 9000 * DAY, NOW + 9090 * DAY), Next::Wait(NOW + DAY)),
        ("not valid yet, by minutes", held(NOW + MINUTE, NOW + whole), Next::Wait(NOW + HOUR)),
        ("a life that ends before it begins", held(NOW, NOW - DAY), Next::Order),
    ] {
        assert_eq!(next(&asked(), held, NOW), expected, "{what}");
    }
}

#[test]
fn the_authority_is_asked_for_the_time_of_renewal_and_that_time_counts() {
    let fresh = held(NOW - DAY, NOW + 89 * DAY);
    for (what, record, expected) in [
        ("never asked", Record::default(), Next::AskWindow),
        ("asked long ago", Record { ask_at: Some(NOW), ..asked() }, Next::AskWindow),
        (
            "asked under a clock ahead",
            Record { ask_at: Some(NOW + 900 * DAY), ..asked() },
            Next::AskWindow,
        ),
        (
            "named and reached: the authority revokes",
            Record { renew_at: Some(NOW), ..asked() },
            Next::Order,
        ),
        ("named and soon", Record { renew_at: Some(NOW + 7), ..asked() }, Next::Wait(NOW + 7)),
        (
            "named and later than the next question",
            Record { renew_at: Some(NOW + DAY), ..asked() },
            Next::Wait(NOW + HOUR),
        ),
    ] {
        assert_eq!(next(&record, fresh, NOW), expected, "{what}");
    }
    // A time after the end of the certificate is of no use.
    let record = Record { renew_at: Some(NOW + DAY), ..asked() };
    assert_eq!(next(&record, held(NOW - 90 * DAY, NOW), NOW), Next::Order);
}

#[test]
fn an_order_that_is_under_way_goes_on_unless_it_is_old() {
    for (since, expected) in [
        (NOW, Next::Continue),
        (NOW - 6 * DAY, Next::Continue),
        (NOW - 8 * DAY, Next::Order),
        // The clock was set back.
        (NOW + 8 * DAY, Next::Order),
    ] {
        let record = Record { order: order(since), ..asked() };
        assert_eq!(next(&record, None, NOW), expected, "{}", since - NOW);
    }
    let mut record = Record { order: order(NOW), ..asked() };
    record.note_failure(NOW, None);
    assert_eq!(next(&record, None, NOW), Next::Wait(NOW + MINUTE));
}

#[test]
fn failures_make_longer_and_longer_pauses() {
    let mut record = Record::default();
    let mut now = NOW;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        record.note_failure(now, None);
        let Next::Wait(until) = next(&record, None, now) else { panic!("no pause") };
        pauses.push(until - now);
        now = until;
        assert_eq!(next(&record, None, now), Next::Order);
    }
    let hour = HOUR;
    assert_eq!(pauses, [60, 300, 900, hour, 3 * hour, 6 * hour, 6 * hour, 6 * hour]);
    // The authority knows better, but not for ever.
    record.note_failure(now, Some(now + 9 * hour));
    assert_eq!(next(&record, None, now), Next::Wait(now + 9 * hour));
    record.note_failure(now, Some(now + 9000 * hour));
    assert_eq!(next(&record, None, now), Next::Wait(now + 6 * hour));
}

#[test]
fn times_of_another_clock_do_not_count() {
    let mut record = Record::default();
    record.note_failure(NOW + 900 * DAY, None);
    record.note_order(NOW + 900 * DAY);
    assert_eq!(next(&record, None, NOW), Next::Order);
}

#[test]
fn a_certificate_that_was_due_when_it_came_is_not_ordered_at_once_again() {
    // Our clock is 80 days ahead of that of the authority.
    let (not_before, not_after) = (NOW - 80 * DAY, NOW + 10 * DAY);
    let record = Record { issued_at: Some(NOW), ..asked() };
    assert_eq!(next(&record, held(not_before, not_after), NOW + 1), Next::Wait(NOW + HOUR));
    let record = Record { ask_at: Some(NOW + 2 * DAY), ..record };
    assert_eq!(next(&record, held(not_before, not_after), NOW + DAY), Next::Order);
}

/// The action of the world at one step.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Fails,
    Succeeds(i64),
    /// The process dies after it has asked for an order.
    Dies,
    /// The next step is taken later than was asked for.
    Sleeps(i64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        Just(Happens::Fails),
        // Lives from seconds to months, also those that are over when they begin.
        (-DAY..90 * DAY).prop_map(Happens::Succeeds),
        Just(Happens::Dies),
        (0..2 * DAY).prop_map(Happens::Sleeps),
    ]
}

proptest! {
    /// Whatever happens, and however often the process is started again, no hour has more than five failures, no day more
    /// than 24 orders, and each wait ends.
    #[test]
    fn limits_hold_for_all_histories(all in proptest::collection::vec(happens(), 1..200)) {
        let (mut now, mut record, mut cert) = (NOW, Record::default(), None);
        let (mut failures, mut orders) = (Vec::new(), Vec::new());
        for happens in all {
            // Each step begins with what the file says: the process was started again.
            record = Record::from_text(&record.to_text()).unwrap();
            match next(&record, cert, now) {
                Next::Wait(until) => {
                    prop_assert!(until > now && until <= now + WAIT_MAX);
                    now = until;
                    if let Happens::Sleeps(more) = happens {
                        now += more;
                    }
                }
                Next::AskWindow => record.ask_at = Some(now + HOUR),
                step @ (Next::Order | Next::Continue) => {
                    if step == Next::Order {
                        record.note_order(now);
                        orders.push(now);
                    }
                    match happens {
                        Happens::Fails => {
                            record.order = None;
                            record.note_failure(now, None);
                            failures.push(now);
                        }
                        Happens::Succeeds(life) => {
                            record.note_success(now);
                            cert = held(now, now + life);
                        }
                        Happens::Dies => record.order = order(now),
                        Happens::Sleeps(more) => now += more,
                    }
                }
            }
        }
        for (times, max, period) in [(&failures, FAILURES_PER_HOUR_MAX, HOUR), (&orders, ORDERS_PER_DAY_MAX, DAY)] {
            for window in times.windows(max + 1) {
                prop_assert!(window[max] - window[0] >= period, "{times:?}");
            }
        }
    }
}

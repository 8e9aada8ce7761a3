//! Wishes, and orders of streams.

use super::*;
use alloc::vec;
use proptest::prelude::*;

#[test]
fn wishes_are_read() {
    let wish = |urgency, incremental| Wish { urgency, incremental };
    for (value, expected) in [
        ("", wish(None, None)),
        ("u=0", wish(Some(0), None)),
        ("u=5, i", wish(Some(5), Some(true))),
        ("i,u=7", wish(Some(7), Some(true))),
        (" u=1 ,\ti=?0 ", wish(Some(1), Some(false))),
        ("u=1;x=y, i;a;b=\"c\\\"\"", wish(Some(1), Some(true))),
        ("u=8", wish(None, None)),
        ("u=-1, i", wish(None, Some(true))),
        ("u=2.0", wish(None, None)),
        ("u=a, i=1", wish(None, None)),
        ("u=1, u=2", wish(Some(2), None)),
        ("i, i=x", wish(None, None)),
        ("x=(a \"b\";p :aGk=: @12 %\"c%c3%bc\" 1.5), *y-.0=A/b:c, u=4", wish(Some(4), None)),
        ("x=(), u=4", wish(Some(4), None)),
        // No dictionaries.
        ("u=1,", wish(None, None)),
        ("u=1 i", wish(None, None)),
        ("U=1", wish(None, None)),
        ("u=", wish(None, None)),
        ("u=1, =2", wish(None, None)),
        ("u=1, x=\"a", wish(None, None)),
        ("u=1, x=\"\\a\"", wish(None, None)),
        ("u=1, x=(a\"b\")", wish(None, None)),
        ("u=1, x=:a", wish(None, None)),
        ("u=1, x=%\"%C3\"", wish(None, None)),
        ("u=1, x=1.", wish(None, None)),
        ("u=1, x=1234567890123456", wish(None, None)),
        ("u=1, x=?2", wish(None, None)),
        ("u=1;", wish(None, None)),
        ("u=1, x=\u{fc}", wish(None, None)),
    ] {
        assert_eq!(Wish::parse(value.as_bytes()), expected, "{value}");
    }
}

#[test]
fn what_is_not_said_is_the_default() {
    let client = Wish::parse(b"u=5");
    assert_eq!(client.or(Priority::DEFAULT), Priority { urgency: 5, incremental: false });
    let merged = client.merge(Wish::parse(b"i"));
    assert_eq!(merged.or(Priority::DEFAULT), Priority { urgency: 5, incremental: true });
    assert_eq!(merged.merge(Wish::parse(b"u=1, i=?0")).or(Priority::DEFAULT).urgency, 1);
}

/// A scheduler with these ready streams: number, urgency, incremental.
fn scheduler(streams: &[(u32, u8, bool)]) -> Scheduler {
    let mut scheduler = Scheduler::new();
    for &(stream, urgency, incremental) in streams {
        scheduler.insert(stream, Priority { urgency, incremental });
        scheduler.set_ready(stream, true);
    }
    scheduler
}

fn serve(scheduler: &mut Scheduler, turns: usize) -> Vec<u32> {
    let mut served = vec![];
    for _ in 0..turns {
        let Some(stream) = scheduler.next_stream() else { break };
        scheduler.served(stream);
        served.push(stream);
    }
    served
}

#[test]
fn urgent_streams_are_first_and_whole_ones_stay_in_order() {
    let mut scheduler = scheduler(&[(1, 3, false), (3, 2, false), (5, 2, false), (7, 0, true)]);
    assert_eq!(serve(&mut scheduler, 2), [7, 7]);
    scheduler.remove(7);
    assert_eq!(serve(&mut scheduler, 2), [3, 3]);
    scheduler.remove(3);
    assert_eq!(serve(&mut scheduler, 1), [5]);
    scheduler.set_priority(1, Priority { urgency: 0, incremental: false });
    assert_eq!(serve(&mut scheduler, 1), [1]);
    for stream in [1, 5, 9] {
        scheduler.remove(stream);
    }
    assert_eq!(scheduler.next_stream(), None);
    assert!(scheduler.is_empty());
}

#[test]
fn incremental_streams_take_turns_and_share_with_whole_ones() {
    let mut shared = scheduler(&[(1, 3, true), (3, 3, true), (5, 3, true)]);
    assert_eq!(serve(&mut shared, 7), [1, 3, 5, 1, 3, 5, 1]);
    let mut mixed = scheduler(&[(1, 3, false), (3, 3, true), (5, 3, true), (7, 3, false)]);
    assert_eq!(serve(&mut mixed, 6), [1, 3, 1, 5, 1, 3]);
}

#[test]
fn a_cold_stream_yields_and_takes_its_turn_again() {
    let mut shared = scheduler(&[(1, 3, true), (3, 3, true), (5, 3, true), (7, 5, true)]);
    shared.set_ready(1, false);
    assert_eq!(serve(&mut shared, 3), [3, 5, 3]);
    shared.set_ready(1, true);
    assert_eq!(serve(&mut shared, 4), [1, 5, 3, 1]);
    let mut whole = scheduler(&[(1, 3, false), (3, 3, false), (5, 4, false)]);
    whole.set_ready(1, false);
    assert_eq!(serve(&mut whole, 2), [3, 3]);
    whole.set_ready(3, false);
    assert_eq!(serve(&mut whole, 1), [5]);
    whole.set_ready(1, true);
    assert_eq!(serve(&mut whole, 1), [1]);
}

proptest! {
    /// Any operations. Checked: the next stream is ready, none that is ready is more urgent, and no incremental stream
    /// waits for more turns than there are streams on its level.
    #[test]
    fn the_next_stream_is_the_most_urgent_that_is_ready(
        operations in proptest::collection::vec(
            (0u8..6, 0u32..20, 0u8..8, any::<bool>()), 0..300),
    ) {
        let mut scheduler = Scheduler::new();
        let mut model = alloc::collections::BTreeMap::<u32, (Priority, bool)>::new();
        for (operation, stream, urgency, flag) in operations {
            let priority = Priority { urgency, incremental: flag };
            match operation {
                0 => {
                    scheduler.insert(stream, priority);
                    model.entry(stream).or_insert((priority, false)).0 = priority;
                }
                1 => {
                    scheduler.set_priority(stream, priority);
                    model.entry(stream).and_modify(|entry| entry.0 = priority);
                }
                2 if flag => {
                    scheduler.remove(stream);
                    model.remove(&stream);
                }
                2 | 3 => {
                    scheduler.set_ready(stream, flag);
                    model.entry(stream).and_modify(|entry| entry.1 = flag);
                }
                _ => {
                    if let Some(next) = scheduler.next_stream() {
                        scheduler.served(next);
                    }
                }
            }
            let ready = model.iter().filter(|(_, entry)| entry.1);
            let most_urgent = ready.map(|(_, entry)| entry.0.urgency).min();
            let next = scheduler.next_stream();
            prop_assert_eq!(next.map(|next| model[&next].0.urgency), most_urgent);
            prop_assert!(next.is_none_or(|next| model[&next].1));
            prop_assert_eq!(scheduler.is_empty(), model.is_empty());
        }
        let Some(next) = scheduler.next_stream() else { return Ok(()) };
        let urgency = model[&next].0.urgency;
        let level = model.iter().filter(|(_, entry)| entry.1 && entry.0.urgency == urgency);
        let incremental: Vec<u32> =
            level.filter(|(_, entry)| entry.0.incremental).map(|(&stream, _)| stream).collect();
        let served = serve(&mut scheduler, 2 * incremental.len() + 1);
        prop_assert!(incremental.iter().all(|stream| served.contains(stream)));
    }

    #[test]
    fn any_value_is_read(value in prop_oneof!["[ui=?01;,() \"]{0,12}", "\\PC{0,12}"]) {
        let wish = Wish::parse(value.as_bytes());
        prop_assert!(wish.urgency.is_none_or(|urgency| urgency < 8));
    }
}

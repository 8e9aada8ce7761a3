use core::time::Duration;

use proptest::prelude::*;
use ring::Time;

use super::Queue;

const BEGIN: Time = Time::from_nanos(0);

/// Returns the things of a queue in their order. Letters are clients, and numbers are their things.
fn order(queue: &mut Queue<char, u32>) -> Vec<u32> {
    core::iter::from_fn(|| queue.next()).collect()
}

#[test]
fn clients_take_turns() {
    let mut queue = Queue::new(100);
    for (client, thing) in
        [('a', 1), ('a', 2), ('a', 3), ('a', 4), ('a', 5), ('a', 6), ('b', 7), ('c', 8), ('c', 9)]
    {
        assert_eq!(queue.enter(client, thing, BEGIN), None);
    }
    assert_eq!(order(&mut queue), [1, 7, 8, 2, 9, 3, 4, 5, 6]);
    assert!(queue.is_empty());
}

#[test]
fn a_client_that_comes_later_waits_for_one_thing_of_each_other() {
    let mut queue = Queue::new(100);
    for thing in 0..10 {
        queue.enter('a', thing, BEGIN);
    }
    assert_eq!(queue.next(), Some(0));
    queue.enter('b', 100, BEGIN);
    assert_eq!((queue.next(), queue.next()), (Some(1), Some(100)));
    // It has had its turn.
    queue.enter('b', 101, BEGIN);
    assert_eq!((queue.next(), queue.next()), (Some(2), Some(101)));
}

#[test]
fn a_full_queue_has_room_for_clients_with_less_than_their_share() {
    let mut queue = Queue::new(4);
    for thing in 0..4 {
        assert_eq!(queue.enter('a', thing, BEGIN), None);
    }
    // Alone it has all places, and no more than these.
    assert_eq!(queue.enter('a', 4, BEGIN), Some(4));
    assert_eq!(queue.enter('b', 10, BEGIN), Some(3));
    assert_eq!(queue.enter('b', 11, BEGIN), Some(2));
    // Both have the same.
    assert_eq!(queue.enter('b', 12, BEGIN), Some(12));
    assert_eq!(queue.enter('a', 5, BEGIN), Some(5));
    assert_eq!(queue.enter('c', 20, BEGIN), Some(11));
    assert_eq!(queue.enter('c', 21, BEGIN), Some(21));
    assert_eq!(queue.enter('d', 30, BEGIN), Some(1));
    // One place for each, and no more places.
    assert_eq!(queue.enter('e', 40, BEGIN), Some(40));
    assert_eq!(order(&mut queue), [0, 10, 20, 30]);
}

#[test]
fn what_has_left_does_not_hold_a_place() {
    let mut queue = Queue::new(2);
    queue.enter('a', 1, BEGIN);
    queue.enter('a', 2, BEGIN);
    assert_eq!(queue.remove('a', |thing| *thing == 3), None);
    assert_eq!(queue.remove('b', |_| true), None);
    assert_eq!(queue.remove('a', |thing| *thing == 1), Some(1));
    assert_eq!(queue.enter('b', 3, BEGIN), None);
    assert_eq!(queue.remove('a', |thing| *thing == 2), Some(2));
    assert_eq!(queue.enter('a', 4, BEGIN), None);
    assert_eq!(order(&mut queue), [3, 4]);
}

#[test]
fn what_has_waited_for_too_long_is_given_back() {
    let second = Duration::from_secs(1);
    let mut queue = Queue::new(10);
    for (thing, client) in [(0, 'a'), (1, 'b'), (2, 'a')] {
        queue.enter(client, thing, BEGIN + second * thing);
    }
    assert!(queue.expire(BEGIN + second * 4, second * 5).is_empty());
    assert_eq!(queue.expire(BEGIN + second * 6, second * 5), [0, 1]);
    assert_eq!(order(&mut queue), [2]);
    assert!(queue.is_empty());
}

/// A step of a test: a client enters, one is served, one leaves, time passes.
#[derive(Clone, Debug)]
enum Step {
    Enter(u8),
    Next,
    Leave(u8),
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..6).prop_map(Step::Enter),
        3 => Just(Step::Next),
        1 => (0_u8..6).prop_map(Step::Leave),
        1 => (0_u8..4).prop_map(Step::Pass),
    ]
}

const LIMIT: Duration = Duration::from_secs(3);

proptest! {
    /// Compared with a list that is searched: nothing is lost or given twice, no client waits for two things of another, the
    /// number of places holds, and no client with fewer things is refused for one with more.
    #[test]
    fn any_order_of_steps_is_fair(steps in proptest::collection::vec(step(), 0..200), most in 1_usize..12) {
        let mut queue = Queue::new(most);
        // Client, thing, time; in the order of arrival.
        let mut waiting: Vec<(u8, u32, Time)> = Vec::new();
        // The clients that were served while this one waited.
        let mut passed: Vec<(u8, Vec<u8>)> = Vec::new();
        let (mut thing, mut now) = (0, BEGIN);
        let count = |waiting: &[(u8, u32, Time)], client| {
            waiting.iter().filter(|(other, ..)| *other == client).count()
        };
        for step in steps {
            match step {
                Step::Enter(client) => {
                    thing += 1;
                    let refused = queue.enter(client, thing, now);
                    prop_assert_eq!(refused.is_some(), waiting.len() == most);
                    waiting.push((client, thing, now));
                    if let Some(refused) = refused {
                        let index = waiting.iter().position(|(_, other, _)| *other == refused);
                        let (loser, ..) = waiting[index.expect("it waited")];
                        let all = (0..6).map(|other| count(&waiting, other)).max();
                        prop_assert_eq!(Some(count(&waiting, loser)), all);
                        // The last one of its client.
                        let last = waiting.iter().rfind(|(other, ..)| *other == loser);
                        prop_assert_eq!(last.map(|last| last.1), Some(refused));
                        waiting.retain(|(_, other, _)| *other != refused);
                    }
                    if count(&waiting, client) == 1 {
                        passed.retain(|(other, _)| *other != client);
                        passed.push((client, Vec::new()));
                    }
                }
                Step::Next => {
                    let Some(next) = queue.next() else {
                        prop_assert!(waiting.is_empty());
                        continue;
                    };
                    let index = waiting.iter().position(|(_, other, _)| *other == next);
                    let (client, ..) = waiting.remove(index.expect("it waited"));
                    prop_assert!(!waiting.iter().any(|(other, earlier, _)| *other == client && *earlier < next));
                    for (other, served) in &mut passed {
                        if *other == client {
                            served.clear();
                        } else if count(&waiting, *other) > 0 {
                            prop_assert!(!served.contains(&client), "{client} twice before {other}");
                            served.push(client);
                        }
                    }
                }
                Step::Leave(client) => {
                    let first = waiting.iter().position(|(other, ..)| *other == client);
                    prop_assert_eq!(queue.remove(client, |_| true), first.map(|index| waiting[index].1));
                    first.map(|index| waiting.remove(index));
                }
                Step::Pass(seconds) => {
                    now = now + Duration::from_secs(seconds.into());
                    let mut expired = queue.expire(now, LIMIT);
                    expired.sort_unstable();
                    let is_late = |since: Time| since + LIMIT <= now;
                    let late: Vec<_> =
                        waiting.iter().filter(|it| is_late(it.2)).map(|it| it.1).collect();
                    prop_assert_eq!(expired, late);
                    waiting.retain(|it| !is_late(it.2));
                }
            }
            prop_assert_eq!(queue.is_empty(), waiting.is_empty());
        }
        let mut left: Vec<_> = core::iter::from_fn(|| queue.next()).collect();
        left.sort_unstable();
        prop_assert_eq!(left, waiting.iter().map(|it| it.1).collect::<Vec<_>>());
    }
}

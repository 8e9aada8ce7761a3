//! The parts of long bodies that are collected before a gateway gets them.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use super::body_queue::BodyQueue;
use super::{Charge, Input, Stage};

/// The maximum number of bytes of collected parts that wait for more bytes, in one worker. Beyond this limit the parts
/// that have been coming for the longest time are passed on. The same number of bytes may wait for upstreams that have
/// not taken them. Beyond this limit all parts are passed on.
const WAITING_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The collected parts of long bodies. A gateway needs no complete body. So if memory is scarce, a shorter part is
/// passed on, and no body is given up.
#[derive(Debug)]
pub(crate) struct Parts {
    waiting_bytes_max: u64,
    /// Bytes of parts that wait for more bytes.
    waiting: Rc<Cell<u64>>,
    /// Bytes of parts that were passed on and have not been taken.
    passed_on: Rc<Cell<u64>>,
    queue: RefCell<BodyQueue>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            waiting_bytes_max: WAITING_BYTES_MAX,
            waiting: Rc::default(),
            passed_on: Rc::default(),
            queue: RefCell::default(),
        }
    }
}

impl Parts {
    /// The stage of a new body. First `bytes` bytes of this body are collected, if there is room for them.
    pub(crate) fn stage(this: &Rc<Self>, bytes: u64) -> Stage {
        let bytes = bytes.min(this.waiting_bytes_max);
        if bytes == 0 || this.waiting.get() >= this.waiting_bytes_max || this.is_full() {
            return Stage::Streamed;
        }
        let charge = Charge::new(Rc::clone(&this.waiting));
        Stage::Part { bytes, charge, parts: Rc::clone(this) }
    }

    /// Adds a body, a part of which is collected.
    pub(crate) fn push(&self, input: &Rc<RefCell<Input>>) {
        self.queue.borrow_mut().push(input);
    }

    /// The charge of a body that is passed on when `bytes` bytes of the body have come.
    pub(super) fn passed_on(&self, bytes: u64) -> Charge {
        let mut charge = Charge::new(Rc::clone(&self.passed_on));
        charge.add(bytes);
        charge
    }

    /// Passes bodies on, the oldest first, until the bytes that wait are within the limit.
    pub(super) fn make_room(&self) {
        while self.waiting.get() > self.waiting_bytes_max || self.is_full() {
            let Some(input) = self.queue.borrow_mut().pop() else { break };
            input.borrow_mut().pass_on();
        }
    }

    /// Returns true if upstreams have not taken so many bytes that no part may wait.
    fn is_full(&self) -> bool {
        self.waiting.get() + self.passed_on.get() > 2 * self.waiting_bytes_max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::input::{InputConsumer, STREAMED_BYTES_MAX};
    use session::handler::Consumer as _;

    type Body = (Rc<RefCell<Input>>, Option<InputConsumer>);

    fn parts(waiting_bytes_max: u64) -> Rc<Parts> {
        Rc::new(Parts { waiting_bytes_max, ..Parts::default() })
    }

    /// A new body, a part of which is to be collected.
    fn offer(parts: &Rc<Parts>, bytes: u64) -> Body {
        let input = Input::new(Parts::stage(parts, bytes), Rc::default());
        let input = Rc::new(RefCell::new(input));
        if input.borrow().is_collected() {
            parts.push(&input);
        }
        let (bytes_max, awaits_tunnel) = (u64::MAX, false);
        let consumer = InputConsumer { input: Rc::clone(&input), bytes_max, awaits_tunnel };
        (input, Some(consumer))
    }

    fn push(body: &mut Body, bytes: usize) {
        body.1.as_mut().expect("it comes").push(&vec![0; bytes]);
    }

    fn waits(body: &Body) -> bool {
        body.0.borrow().is_awaited()
    }

    /// Checks the accounts. Returns the bytes of parts that wait for more bytes, and the bytes of parts that were
    /// passed on.
    fn check<'a>(parts: &Parts, bodies: impl Iterator<Item = &'a Body>) -> (u64, u64) {
        let (mut waiting, mut passed_on) = (0, 0);
        for (input, _) in bodies {
            let input = input.borrow();
            match &input.stage {
                Stage::Part { charge, bytes, .. } => {
                    assert_eq!(charge.bytes, input.waiting.len() as u64);
                    assert!(charge.bytes < *bytes && *bytes <= parts.waiting_bytes_max);
                    assert!(!parts.is_full() || !input.is_awaited());
                    waiting += charge.bytes;
                }
                Stage::PassedOn(charge) => passed_on += charge.bytes,
                Stage::Streamed => {}
                Stage::Whole(_) => unreachable!("none is offered"),
            }
        }
        assert_eq!((parts.waiting.get(), parts.passed_on.get()), (waiting, passed_on));
        assert!(waiting <= parts.waiting_bytes_max);
        (waiting, passed_on)
    }

    #[test]
    fn a_part_is_passed_on_once_it_has_come_or_all_of_the_body() {
        for (bytes, has_ended) in [(10, false), (11, false), (9, true), (0, true)] {
            let parts = parts(100);
            let mut body = offer(&parts, 10);
            push(&mut body, bytes.min(9));
            assert!(waits(&body));
            if bytes > 9 {
                push(&mut body, bytes - 9);
            }
            if has_ended {
                body.1.as_mut().unwrap().end();
            }
            assert!(!body.0.borrow().is_collected(), "{bytes}");
            assert_eq!(check(&parts, [&body].into_iter()), (0, bytes as u64));
            let room = (STREAMED_BYTES_MAX - bytes) as u64;
            assert_eq!(body.1.as_ref().unwrap().room(), room);
            // The account of a part that was passed on does not include bytes that come later.
            assert_eq!(body.0.borrow_mut().take(100).len(), bytes);
            if !has_ended {
                push(&mut body, 1000);
            }
            assert_eq!(check(&parts, [&body].into_iter()), (0, 0));
        }
    }

    #[test]
    fn those_that_have_been_coming_for_longest_are_passed_on_and_further_ones_do_not_wait() {
        let parts = parts(100);
        let mut bodies: Vec<_> = (0..4).map(|_| offer(&parts, 50)).collect();
        for body in &mut bodies[..3] {
            push(body, 33);
        }
        assert!(bodies.iter().all(waits));
        push(&mut bodies[3], 1);
        assert!(bodies.iter().all(waits), "there are no more than there may be");
        assert!(!waits(&offer(&parts, 50)));
        // There is one byte too many. The first part has to be passed on, and this is enough.
        push(&mut bodies[2], 1);
        let waiting: Vec<_> = bodies.iter().map(waits).collect();
        assert_eq!(waiting, [false, true, true, true]);
        assert_eq!(check(&parts, bodies.iter()), (68, 33));
        // There is room for another part.
        bodies.push(offer(&parts, 200));
        push(&mut bodies[4], 99);
        let waiting: Vec<_> = bodies.iter().map(waits).collect();
        assert_eq!(waiting, [false, false, false, true, true]);
        assert_eq!(check(&parts, bodies.iter()), (100, 100));
        // The upstreams take nothing and have as many bytes as may wait for them. So no part waits any longer.
        push(&mut bodies[3], 1);
        assert_eq!(check(&parts, bodies.iter()), (0, 201));
        assert!(!waits(&offer(&parts, 50)));
        for body in &bodies[..3] {
            body.0.borrow_mut().take(100);
        }
        assert_eq!(check(&parts, bodies.iter()), (0, 101));
        assert!(waits(&offer(&parts, 50)));
        drop(bodies);
        assert_eq!(check(&parts, [].into_iter()), (0, 0));
    }

    #[test]
    fn a_client_that_leaves_gives_its_part_back() {
        let parts = parts(100);
        let mut body = offer(&parts, 50);
        push(&mut body, 40);
        body.1 = None;
        assert!(body.0.borrow().is_broken_off());
        assert_eq!(check(&parts, [&body].into_iter()), (0, 0));
    }

    /// An event of a body.
    #[derive(Clone, Debug)]
    enum Event {
        Offer(u64),
        Push(Index, usize),
        End(Index),
        /// An upstream takes this many bytes of the body.
        Take(Index, usize),
        /// Nothing uses the body any more.
        DropRest(Index),
        /// The client leaves.
        Leave(Index),
        /// The gateway forgets the body, too.
        Drop(Index),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let body = any::<Index>;
        let one = prop_oneof![
            3 => (1u64..80_000).prop_map(Event::Offer),
            9 => (body(), 1usize..40_000).prop_map(|(at, bytes)| Event::Push(at, bytes)),
            1 => body().prop_map(Event::End),
            3 => (body(), 1usize..40_000).prop_map(|(at, bytes)| Event::Take(at, bytes)),
            1 => body().prop_map(Event::DropRest),
            1 => body().prop_map(Event::Leave),
            1 => body().prop_map(Event::Drop),
        ];
        proptest::collection::vec(one, 0..60)
    }

    proptest! {
        #[test]
        fn the_accounts_are_exact_and_bounded(events in events()) {
            const MAX: u64 = 100_000;
            let parts = parts(MAX);
            let mut bodies = Vec::<Body>::new();
            for event in events {
                match event {
                    Event::Offer(bytes) => bodies.push(offer(&parts, bytes)),
                    _ if bodies.is_empty() => {}
                    Event::Push(at, bytes) => {
                        let body = at.get_mut(&mut bodies);
                        let all = || parts.waiting.get() + parts.passed_on.get();
                        let (before, room) = (all(), body.0.borrow().room());
                        let bytes = (bytes as u64).min(room);
                        if let Some(consumer) = &mut body.1 {
                            consumer.push(&vec![0; usize::try_from(bytes).unwrap()]);
                        }
                        prop_assert!(all() == before || all() <= 2 * MAX + bytes);
                    }
                    Event::End(at) => {
                        let body = at.get_mut(&mut bodies);
                        if let Some(consumer) = &mut body.1 {
                            consumer.end();
                        }
                        body.1 = None;
                    }
                    Event::Take(at, bytes) => {
                        let mut input = at.get(&bodies).0.borrow_mut();
                        if !input.is_collected() {
                            input.take(bytes);
                        }
                    }
                    Event::DropRest(at) => at.get(&bodies).0.borrow_mut().drop_rest(),
                    Event::Leave(at) => at.get_mut(&mut bodies).1 = None,
                    Event::Drop(at) => drop(bodies.remove(at.index(bodies.len()))),
                }
                check(&parts, bodies.iter());
            }
            bodies.clear();
            prop_assert_eq!(check(&parts, bodies.iter()), (0, 0));
        }
    }
}

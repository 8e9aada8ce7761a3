//! The bodies of requests, from the time when they are offered until a gateway takes them.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use http1::Framing;
use ring::Key;

use super::input::{COLLECTED_BYTES_MAX, Collected, Input, InputConsumer};
use super::interest::News;
use crate::handler::{Consumer, Ticket};

/// Bytes of bodies that a worker has collected for the gateways of one kind, until a server or a program has them; as a
/// vector grows, their memory may be twice that. Beyond it the body that has been coming for longest is given up, or,
/// if all have come, a further one is refused.
const BYTES_MAX: u64 = 16 * COLLECTED_BYTES_MAX;

/// The bodies of the requests for the gateways of one kind.
///
/// A program or a process of an application that has a request does nothing else, so a body that fits into memory is
/// collected first: clients that send slowly take bytes, and nobody's turn.
#[derive(Debug, Default)]
pub(in crate::handler) struct Bodies {
    /// The body of the request that is to be found next.
    offered: Option<(Ticket, Offered)>,
    /// The bodies that are being collected, and some that were, the oldest first.
    collected: VecDeque<Weak<RefCell<Input>>>,
    /// Their bytes.
    bytes: Rc<Cell<u64>>,
    /// The number of them at which those that have gone are looked for.
    tidied_at: usize,
}

type Offered = Result<Rc<RefCell<Input>>, Refused>;

/// The taker of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::handler) enum Taker {
    /// Another server, which takes a body while it comes.
    Server,
    /// A program or an application, which has to be told the length first.
    Program,
}

/// A body was refused, because too much has been collected.
#[derive(Clone, Copy, Debug)]
pub(in crate::handler) struct Refused;

impl Bodies {
    /// Offers the body of a request, which is found next; `None` if it were to be collected, and there is no room.
    ///
    /// A program gets a body in chunks once all of it has come, and any other that fits into memory. A body has
    /// `bytes_max` bytes at most.
    pub(in crate::handler) fn offer(
        &mut self,
        ticket: Ticket,
        framing: Framing,
        taker: Taker,
        bytes_max: u64,
        news: &Rc<RefCell<News>>,
    ) -> Option<Box<dyn Consumer>> {
        let fits = |length| length <= COLLECTED_BYTES_MAX;
        let is_collected =
            taker == Taker::Program && !matches!(framing, Framing::Length(length) if !fits(length));
        if is_collected && self.bytes.get() >= BYTES_MAX && !self.awaits_any() {
            self.offered = Some((ticket, Err(Refused)));
            return None;
        }
        let collected = is_collected.then(|| Collected::new(Rc::clone(&self.bytes)));
        let input = Rc::new(RefCell::new(Input::new(collected, Rc::clone(news))));
        if is_collected {
            self.tidy();
            self.collected.push_back(Rc::downgrade(&input));
        }
        self.offered = Some((ticket, Ok(Rc::clone(&input))));
        Some(Box::new(InputConsumer { input, bytes_max }))
    }

    /// Takes the body of a request, if one was offered.
    ///
    /// # Errors
    ///
    /// [`Refused`] if there is a body that was refused.
    pub(in crate::handler) fn take(
        &mut self,
        ticket: Ticket,
    ) -> Result<Option<Rc<RefCell<Input>>>, Refused> {
        self.offered.take_if(|(of, _)| *of == ticket).map(|(_, input)| input).transpose()
    }

    /// The gateway whose request is to be given up, because more has been collected than may be: that whose body has
    /// been coming for longest.
    pub(in crate::handler) fn surplus(&mut self) -> Option<Key> {
        if self.bytes.get() <= BYTES_MAX {
            return None;
        }
        if !self.awaits_any() {
            return None;
        }
        // A request that is held back has no name yet.
        let key = |input: &Weak<RefCell<Input>>| {
            let input = input.upgrade()?;
            let input = input.borrow();
            input.key().filter(|_| input.is_awaited())
        };
        let (place, key) = (0..).zip(&self.collected).find_map(|(at, it)| Some((at, key(it)?)))?;
        self.collected.remove(place);
        Some(key)
    }

    /// Returns whether the rest of any body is awaited; forgets older ones that are not.
    fn awaits_any(&mut self) -> bool {
        while let Some(input) = self.collected.front() {
            if input.upgrade().is_some_and(|input| input.borrow().is_awaited()) {
                return true;
            }
            self.collected.pop_front();
        }
        false
    }

    /// Forgets bodies that have gone, now and then.
    fn tidy(&mut self) {
        if self.collected.len() >= self.tidied_at {
            self.collected.retain(|input| input.strong_count() > 0);
            self.tidied_at = 2 * self.collected.len().max(8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(request: u32) -> Ticket {
        Ticket { connection: 1, request }
    }

    const CHUNKED: Framing = Framing::Chunked;

    #[test]
    fn only_a_body_that_is_longer_than_memory_is_not_collected_for_a_program() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        for (framing, taker, is_collected) in [
            (Framing::Chunked, Taker::Program, true),
            (Framing::Length(COLLECTED_BYTES_MAX), Taker::Program, true),
            (Framing::Length(COLLECTED_BYTES_MAX + 1), Taker::Program, false),
            (Framing::Length(1), Taker::Server, false),
            (Framing::Chunked, Taker::Server, false),
        ] {
            let consumer = bodies.offer(ticket(1), framing, taker, u64::MAX, &news);
            let input = bodies.take(ticket(1)).unwrap().expect("offered");
            assert_eq!(input.borrow().is_collected(), is_collected, "{framing:?} {taker:?}");
            drop(consumer);
        }
    }

    #[test]
    fn a_body_is_taken_once_by_its_request() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        for taker in [Taker::Program, Taker::Server] {
            assert!(bodies.offer(ticket(1), CHUNKED, taker, u64::MAX, &news).is_some());
            assert!(bodies.take(ticket(2)).unwrap().is_none());
            assert!(bodies.take(ticket(1)).unwrap().is_some());
            assert!(bodies.take(ticket(1)).unwrap().is_none());
        }
    }

    /// Bodies that come slowly take no more than their bytes; those that have come keep others out.
    #[test]
    fn the_oldest_body_gives_way_and_further_ones_are_refused_if_all_have_come() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        let mut keys = ring::Slab::new();
        let mut offered = Vec::new();
        let mut offer = |bodies: &mut Bodies, request, length: u64| {
            let mut consumer =
                bodies.offer(ticket(request), CHUNKED, Taker::Program, u64::MAX, &news)?;
            let input = bodies.take(ticket(request)).unwrap().expect("offered");
            let key = keys.insert(());
            input.borrow_mut().set_key(key);
            consumer.push(&vec![0; usize::try_from(length).unwrap()]);
            Some((key, consumer, input))
        };
        for request in 0..100 {
            offered.push(offer(&mut bodies, request, 1).expect("there is room"));
            assert_eq!(bodies.surplus(), None);
        }
        for request in 100..115 {
            offered.push(offer(&mut bodies, request, COLLECTED_BYTES_MAX).expect("there is room"));
        }
        assert_eq!(bodies.surplus(), None);
        let mut first = offered.remove(0);
        first.1.end();
        offered.push(offer(&mut bodies, 115, COLLECTED_BYTES_MAX).expect("there is room"));
        // The first has come; the next are older than the long ones.
        for (key, _, input) in &offered[..99] {
            assert_eq!(bodies.surplus(), Some(*key));
            input.borrow_mut().drop_rest();
        }
        drop(first);
        assert_eq!((bodies.surplus(), bodies.bytes.get()), (None, BYTES_MAX));
        for (_, consumer, _) in &mut offered {
            consumer.end();
        }
        assert!(bodies.offer(ticket(200), CHUNKED, Taker::Program, u64::MAX, &news).is_none());
        assert!(bodies.take(ticket(200)).is_err());
        // A server that has a body may take long to answer.
        offered[100].2.borrow_mut().release();
        assert!(bodies.offer(ticket(203), CHUNKED, Taker::Program, u64::MAX, &news).is_some());
        assert_eq!(bodies.bytes.get(), BYTES_MAX - COLLECTED_BYTES_MAX);
        // One that is passed on while it comes takes no memory, and one that has gone gives its own back.
        assert!(bodies.offer(ticket(201), CHUNKED, Taker::Server, u64::MAX, &news).is_some());
        drop(offered.pop());
        assert!(bodies.offer(ticket(202), CHUNKED, Taker::Program, u64::MAX, &news).is_some());
    }

    #[test]
    fn bodies_that_have_gone_are_forgotten() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        let first = bodies.offer(ticket(0), CHUNKED, Taker::Program, u64::MAX, &news);
        for request in 1..1000 {
            drop(bodies.offer(ticket(request), CHUNKED, Taker::Program, u64::MAX, &news));
        }
        assert!(bodies.collected.len() <= 16, "{}", bodies.collected.len());
        drop(first);
    }
}

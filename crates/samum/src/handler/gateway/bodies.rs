//! The bodies of requests, from the time when they are offered until a gateway takes them.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use http1::Framing;
use ring::Key;

use super::input::line::Line;
use super::input::parts::Parts;
use super::input::{COLLECTED_BYTES_MAX, Charge, Input, InputConsumer, Stage};
use super::interest::News;
use crate::handler::{Consumer, Ticket};

/// Bytes of whole bodies that a worker has collected for the gateways of one kind, until a server or a program has them; as a
/// vector grows, their memory may be twice that. Beyond it the body that has been coming for longest is given up, or,
/// if all have come, a further one is refused.
const BYTES_MAX: u64 = 16 * COLLECTED_BYTES_MAX;

/// The bodies of the requests for the gateways of one kind.
///
/// A program or a process of an application that has a request does nothing else, so a body that fits into memory is
/// collected first, and of a longer one a part: clients that send slowly take bytes, and nobody's turn.
#[derive(Debug, Default)]
pub(in crate::handler) struct Bodies {
    /// The body of the request that is to be found next.
    offered: Option<(Ticket, Offered)>,
    /// Those that are collected whole.
    collected: Line,
    /// Their bytes.
    bytes: Rc<Cell<u64>>,
    /// Those of which a part is collected.
    parts: Rc<Parts>,
}

type Offered = Result<Rc<RefCell<Input>>, Refused>;

/// The part of a body that a gateway needs before it takes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::handler) enum Needs {
    /// None: another server takes a body while it comes.
    Nothing,
    /// All of it: a program or an application has to be told the length first, and does nothing else while it waits.
    All {
        /// Bytes of one that is too long to be collected whole.
        part: u64,
    },
}

/// A body was refused, because too much has been collected.
#[derive(Clone, Copy, Debug)]
pub(in crate::handler) struct Refused;

impl Bodies {
    /// Offers the body of a request, which is found next; `None` if it were to be collected, and there is no room.
    ///
    /// A body has `bytes_max` bytes at most.
    pub(in crate::handler) fn offer(
        &mut self,
        ticket: Ticket,
        framing: Framing,
        needs: Needs,
        bytes_max: u64,
        news: &Rc<RefCell<News>>,
    ) -> Option<Box<dyn Consumer>> {
        let new = |stage| Rc::new(RefCell::new(Input::new(stage, Rc::clone(news))));
        let is_long = matches!(framing, Framing::Length(length) if length > COLLECTED_BYTES_MAX);
        let input = match needs {
            Needs::Nothing => new(Stage::Streamed),
            Needs::All { part } if is_long => {
                let input = new(Parts::stage(&self.parts, part));
                if input.borrow().is_collected() {
                    self.parts.push(&input);
                }
                input
            }
            Needs::All { .. } => {
                if self.bytes.get() >= BYTES_MAX && !self.collected.awaits_any() {
                    self.offered = Some((ticket, Err(Refused)));
                    return None;
                }
                let input = new(Stage::Whole(Charge::new(Rc::clone(&self.bytes))));
                self.collected.push(&input);
                input
            }
        };
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
        if self.bytes.get() > BYTES_MAX { self.collected.pop_awaited() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(request: u32) -> Ticket {
        Ticket { connection: 1, request }
    }

    const CHUNKED: Framing = Framing::Chunked;
    const ALL: Needs = Needs::All { part: 0 };

    #[test]
    fn only_a_body_that_is_longer_than_memory_is_not_collected_for_a_program() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        for (framing, needs, is_collected) in [
            (Framing::Chunked, ALL, true),
            (Framing::Length(COLLECTED_BYTES_MAX), ALL, true),
            (Framing::Length(COLLECTED_BYTES_MAX + 1), ALL, false),
            (Framing::Length(1), Needs::Nothing, false),
            (Framing::Chunked, Needs::Nothing, false),
        ] {
            let consumer = bodies.offer(ticket(1), framing, needs, u64::MAX, &news);
            let input = bodies.take(ticket(1)).unwrap().expect("offered");
            assert_eq!(input.borrow().is_collected(), is_collected, "{framing:?} {needs:?}");
            drop(consumer);
        }
    }

    #[test]
    fn a_body_is_taken_once_by_its_request() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        for needs in [ALL, Needs::Nothing] {
            assert!(bodies.offer(ticket(1), CHUNKED, needs, u64::MAX, &news).is_some());
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
            let mut consumer = bodies.offer(ticket(request), CHUNKED, ALL, u64::MAX, &news)?;
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
        assert!(bodies.offer(ticket(200), CHUNKED, ALL, u64::MAX, &news).is_none());
        assert!(bodies.take(ticket(200)).is_err());
        // A server that has a body may take long to answer.
        offered[100].2.borrow_mut().release();
        assert!(bodies.offer(ticket(203), CHUNKED, ALL, u64::MAX, &news).is_some());
        assert_eq!(bodies.bytes.get(), BYTES_MAX - COLLECTED_BYTES_MAX);
        // One that is passed on while it comes takes no memory, and one that has gone gives its own back.
        assert!(bodies.offer(ticket(201), CHUNKED, Needs::Nothing, u64::MAX, &news).is_some());
        drop(offered.pop());
        assert!(bodies.offer(ticket(202), CHUNKED, ALL, u64::MAX, &news).is_some());
    }
}

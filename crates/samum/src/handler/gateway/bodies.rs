//! The bodies of requests, from the time when they are offered until a gateway takes them.

use core::cell::RefCell;
use std::rc::{Rc, Weak};

use super::body::{Input, InputConsumer, News};
use crate::handler::{Consumer, Ticket};

/// Bodies that a worker collects at once for programs, and for applications; further ones are refused.
const COLLECTED_MAX: usize = 16;

/// The bodies of the requests for the gateways of one kind.
#[derive(Debug, Default)]
pub(in crate::handler) struct Bodies {
    /// The body of the request that is to be found next.
    offered: Option<(Ticket, Offered)>,
    /// The bodies that are being collected.
    collected: Vec<Weak<RefCell<Input>>>,
}

type Offered = Result<Rc<RefCell<Input>>, Refused>;

/// A body was refused, because too many are being collected.
#[derive(Clone, Copy, Debug)]
pub(in crate::handler) struct Refused;

impl Bodies {
    /// Offers the body of a request, which is found next. If its length must be known first, it is collected; `None`
    /// if too many are.
    pub(in crate::handler) fn offer(
        &mut self,
        ticket: Ticket,
        is_collected: bool,
        news: &Rc<RefCell<News>>,
    ) -> Option<Box<dyn Consumer>> {
        if is_collected {
            self.collected.retain(|input| input.strong_count() > 0);
            if self.collected.len() >= COLLECTED_MAX {
                self.offered = Some((ticket, Err(Refused)));
                return None;
            }
        }
        let input = Rc::new(RefCell::new(Input::new(is_collected, Rc::clone(news))));
        if is_collected {
            self.collected.push(Rc::downgrade(&input));
        }
        self.offered = Some((ticket, Ok(Rc::clone(&input))));
        Some(Box::new(InputConsumer(input)))
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_taken_once_by_its_request_and_too_many_that_are_collected_are_refused() {
        let (mut bodies, news) = (Bodies::default(), Rc::default());
        let ticket = |request| Ticket { connection: 1, request };
        let mut taken = Vec::new();
        for (request, _) in (0..).zip(0..COLLECTED_MAX) {
            assert!(bodies.offer(ticket(request), true, &news).is_some());
            assert!(bodies.take(ticket(request + 1)).unwrap().is_none());
            taken.push(bodies.take(ticket(request)).unwrap().unwrap());
            assert!(bodies.take(ticket(request)).unwrap().is_none());
        }
        assert!(bodies.offer(ticket(100), true, &news).is_none());
        assert!(bodies.take(ticket(101)).is_ok());
        assert!(bodies.take(ticket(100)).is_err());
        // One that is passed on while it comes takes no place, and one that has gone gives its place up.
        assert!(bodies.offer(ticket(102), false, &news).is_some());
        drop(taken.pop());
        assert!(bodies.offer(ticket(103), true, &news).is_some());
    }
}

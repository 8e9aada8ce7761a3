//! The requests of one connection whose responses have not begun.

use std::collections::{VecDeque, vec_deque};
use std::rc::Rc;

use http::{Framing, HeadBuf, Reject};
use ring::Time;
use sendfile::Weight;

use crate::handler::{AnswerSize, Search};
use crate::record::Sketch;
use crate::session::times::Times;

/// The facts about a request that HTTP/1 knows in addition to the head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestFacts {
    /// True if the client waits for an invitation (`100 Continue`) to send the body.
    pub(super) expect_continue: bool,
    /// True if the request has a body in chunks that has not been skipped yet. The response waits, because the response
    /// has to report faults of the body.
    pub(super) skips_body_first: bool,
    /// True if the request is the last request of the connection.
    pub(super) last: bool,
    /// The times of the request, and the bytes of its body.
    pub(super) times: Times,
}

impl RequestFacts {
    /// The facts of a request whose body will be skipped.
    #[inline]
    pub(super) fn of(request: &http1::Request<'_>, at: Time) -> Self {
        Self {
            times: Times::new(at),
            expect_continue: request.expect_continue,
            skips_body_first: request.head.framing == Framing::Unknown && request.keep_alive,
            last: !request.keep_alive,
        }
    }
}

/// A request whose response has not begun.
#[derive(Debug)]
pub(super) enum Exchange {
    /// A request in which no fault was found so far.
    Asked { request: u32, head: HeadBuf, facts: RequestFacts, lookup: Lookup },
    /// A request that was refused for this reason.
    Refused(Reject, Known),
}

/// The parts of a refused request that are known.
#[derive(Debug)]
pub(super) enum Known {
    /// All parts are known, because the request has a valid head.
    Request(HeadBuf, RequestFacts),
    /// The head of the request is malformed or incomplete. The value has the parts of the first line that could be
    /// read, for the log.
    Line(Sketch),
}

/// The progress of the search for an answer.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The handler will deliver the answer.
    Pending(Option<Rc<dyn Search>>),
    /// The connection keeps the answer.
    Found(AnswerSize),
    /// The answer is too large to be kept, or was postponed by the handler. The handler finds the answer when the turn
    /// of its response comes.
    Postponed,
    /// There is no answer, because the client broke off the body of the request. The connection ends before this
    /// request is answered.
    BrokenOff,
}

/// The requests that wait for their responses, in order.
///
/// The size of the memory is asked for before each request. So the size is kept in a counter, and is not summed up each
/// time. Only the memory of searches is summed up each time, because this memory changes while the searches go on.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    queue: VecDeque<Exchange>,
    /// The memory of the entries, without the memory of searches.
    counted: Weight,
    /// The number of searches.
    searches: usize,
}

impl Exchanges {
    pub(super) fn push_back(&mut self, exchange: Exchange) {
        self.add(&exchange);
        self.queue.push_back(exchange);
    }

    pub(super) fn push_front(&mut self, exchange: Exchange) {
        self.add(&exchange);
        self.queue.push_front(exchange);
    }

    pub(super) fn pop_front(&mut self) -> Option<Exchange> {
        let exchange = self.queue.pop_front()?;
        self.subtract(&exchange);
        Some(exchange)
    }

    pub(super) fn pop_back(&mut self) -> Option<Exchange> {
        let exchange = self.queue.pop_back()?;
        self.subtract(&exchange);
        Some(exchange)
    }

    /// Marks the last request as broken off, so that the request gets no answer.
    pub(super) fn break_off_last(&mut self) {
        let Some(mut exchange) = self.pop_back() else { return };
        if let Exchange::Asked { lookup, .. } = &mut exchange {
            *lookup = Lookup::BrokenOff;
        }
        self.push_back(exchange);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn front(&self) -> Option<&Exchange> {
        self.queue.front()
    }

    pub(super) fn back(&self) -> Option<&Exchange> {
        self.queue.back()
    }

    /// The facts about the first request; `None` if this request was refused.
    pub(super) fn front_facts(&mut self) -> Option<&mut RequestFacts> {
        self.queue.front_mut()?.facts()
    }

    /// The facts about the last request; `None` if this request was refused.
    pub(super) fn back_facts(&mut self) -> Option<&mut RequestFacts> {
        self.queue.back_mut()?.facts()
    }

    /// Notes that the answer to a request was found. `keeps` gets the position of the request in the queue, and decides
    /// if the connection keeps the answer. Returns the decision of `keeps`.
    pub(super) fn settle(
        &mut self,
        request: u32,
        size: AnswerSize,
        now: Time,
        keeps: impl FnOnce(usize) -> bool,
    ) -> bool {
        let found = self.queue.iter_mut().enumerate().find_map(|(place, exchange)| {
            let is_it = match exchange {
                Exchange::Asked { lookup: Lookup::BrokenOff, .. } | Exchange::Refused(..) => false,
                Exchange::Asked { request: it, .. } => *it == request,
            };
            is_it.then_some((place, exchange))
        });
        let Some((place, exchange)) = found else { return false };
        let keeps = keeps(place);
        let (before, searched) = (exchange.memory(), exchange.search().is_some());
        if let Exchange::Asked { facts, lookup, .. } = exchange {
            facts.times.found += now.since(facts.times.since);
            *lookup = if keeps { Lookup::Found(size) } else { Lookup::Postponed };
        }
        self.counted -= before;
        self.counted += exchange.memory();
        self.searches -= usize::from(searched);
        keeps
    }

    pub(super) fn iter(&self) -> vec_deque::Iter<'_, Exchange> {
        self.queue.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn weight(&self) -> Weight {
        let mut weight = self.counted;
        if self.searches > 0 {
            let searches = self.queue.iter().filter_map(Exchange::search);
            searches.for_each(|search| weight += search.weight());
        }
        weight
    }

    /// Panics unless the counters agree with the entries.
    pub(super) fn check(&self) {
        let mut counted = Weight::default();
        self.queue.iter().for_each(|exchange| counted += exchange.memory());
        assert_eq!(self.counted, counted);
        assert_eq!(self.searches, self.queue.iter().filter_map(Exchange::search).count());
    }

    fn add(&mut self, exchange: &Exchange) {
        self.counted += exchange.memory();
        self.searches += usize::from(exchange.search().is_some());
    }

    fn subtract(&mut self, exchange: &Exchange) {
        self.counted -= exchange.memory();
        self.searches -= usize::from(exchange.search().is_some());
    }
}

impl Exchange {
    /// Returns true if the response to the request can begin.
    pub(super) const fn is_ready(&self) -> bool {
        match self {
            Self::Asked { facts, lookup, .. } => {
                !matches!(lookup, Lookup::Pending(_) | Lookup::BrokenOff) && !facts.skips_body_first
            }
            Self::Refused(..) => true,
        }
    }

    /// The memory of the entry, without the memory of a search.
    fn memory(&self) -> Weight {
        let mut memory = Weight { own: size_of::<Self>() as u64, shared: 0 };
        match self {
            Self::Asked { head, .. } | Self::Refused(_, Known::Request(head, _)) => {
                memory.own += head.memory() as u64;
            }
            Self::Refused(_, Known::Line(sketch)) => memory.own += sketch.memory() as u64,
        }
        if let Self::Asked { lookup: Lookup::Found(size), .. } = self {
            memory.shared += size.shared;
        }
        memory
    }

    /// The search that will find the answer to the request.
    pub(super) fn search(&self) -> Option<&dyn Search> {
        match self {
            Self::Asked { lookup: Lookup::Pending(search), .. } => search.as_deref(),
            _ => None,
        }
    }

    const fn facts(&mut self) -> Option<&mut RequestFacts> {
        match self {
            Self::Asked { facts, .. } => Some(facts),
            Self::Refused(..) => None,
        }
    }

    /// Its number, unless it was refused.
    pub(super) const fn request(&self) -> Option<u32> {
        match self {
            Self::Asked { request, .. } => Some(*request),
            Self::Refused(..) => None,
        }
    }

    /// The head of the request and the facts about it; `None` if the head was malformed.
    pub(super) fn into_request(self) -> Option<(HeadBuf, RequestFacts)> {
        match self {
            Self::Asked { head, facts, .. } => Some((head, facts)),
            Self::Refused(_, Known::Request(head, facts)) => Some((head, facts)),
            Self::Refused(_, Known::Line(_)) => None,
        }
    }
}

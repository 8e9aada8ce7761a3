//! A request whose head is needed after its file was found.

use http::{HeadBuf, Method, Target};

use crate::{Request, Ticket};
use config::Route;
use gateways::interest::Waiter;
use session::network::Origin;
use session::standing::Standing;

/// A request whose answer may be more than a file.
#[derive(Debug)]
pub(super) enum Asked<'a> {
    /// The session has the head, and lends the head until the router waits.
    Given(&'a Request<'a>),
    /// The router has a copy of the head.
    Kept(Box<Kept>),
}

/// A copy of a request, which the router keeps.
#[derive(Debug)]
pub(super) struct Kept {
    ticket: Ticket,
    head: HeadBuf,
    origin: Origin,
    is_next: bool,
}

impl Asked<'_> {
    /// A copy of a request with another head.
    pub(super) fn of(head: HeadBuf, request: &Request<'_>) -> Asked<'static> {
        let Request { ticket, origin, is_next, .. } = *request;
        Asked::Kept(Box::new(Kept { ticket, head, origin: origin.clone(), is_next }))
    }

    /// The same request, of which the router has a copy.
    pub(super) fn keep(self) -> Asked<'static> {
        match self {
            Asked::Given(request) => Asked::of(request.head.to_owned(), request),
            Asked::Kept(kept) => Asked::Kept(kept),
        }
    }

    /// Calls `f` with the request.
    pub(super) fn with<R>(&self, f: impl FnOnce(&Request<'_>) -> R) -> R {
        match self {
            Self::Given(request) => f(request),
            Self::Kept(kept) => {
                let Kept { ticket, head, origin, is_next } = &**kept;
                let (head, ticket, is_next) = (&head.as_head(), *ticket, *is_next);
                // The request was counted before.
                f(&Request { head, ticket, origin, standing: Standing::Counted, is_next })
            }
        }
    }

    /// Its ticket.
    pub(super) fn ticket(&self) -> Ticket {
        self.with(|request| request.ticket)
    }

    /// Returns true if files accept its method.
    pub(super) fn gets(&self) -> bool {
        self.with(|request| matches!(request.head.method, Method::Get | Method::Head))
    }

    /// The query of its target, if there is one.
    pub(super) fn query(&self) -> Option<Box<[u8]>> {
        self.with(|request| match request.head.target {
            Target::Origin { query, .. } => query.map(Into::into),
            Target::Asterisk | Target::Authority => None,
        })
    }

    /// Bytes of memory that the router's copy takes.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Given(_) => 0,
            Self::Kept(kept) => size_of::<Kept>() + kept.head.memory(),
        }
    }

    /// Its client, which waits for the answer of a route.
    pub(super) fn waiter(&self, route: &Route) -> Waiter {
        Waiter { memory: self.memory(), half_close: route.half_close }
    }

    /// Returns true if its response is the next that its connection sends.
    pub(super) fn is_next(&self) -> bool {
        match self {
            Self::Given(request) => request.is_next,
            Self::Kept(kept) => kept.is_next,
        }
    }

    /// Returns true if the router has a copy.
    pub(super) const fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

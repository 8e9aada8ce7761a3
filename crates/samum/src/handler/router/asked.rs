//! A request whose head is needed after its file was found.

use http::{HeadBuf, Method, Target};

use crate::handler::{Request, Ticket};
use crate::network::Origin;
use config::Route;
use gateways::interest::Waiter;

/// A request whose answer may be more than a file.
#[derive(Debug)]
pub(super) enum Asked<'a> {
    /// The session has the head, and lends the head until the router waits.
    Given(&'a Request<'a>),
    /// The router has a copy of the head.
    Kept(Box<Kept>),
}

/// A request of which the router has a copy.
#[derive(Debug)]
pub(super) struct Kept {
    ticket: Ticket,
    head: HeadBuf,
    origin: Origin,
}

impl Asked<'_> {
    /// A copy of a request with another head.
    pub(super) fn of(head: HeadBuf, request: &Request<'_>) -> Asked<'static> {
        let (ticket, origin) = (request.ticket, request.origin.clone());
        Asked::Kept(Box::new(Kept { ticket, head, origin }))
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
                let Kept { ticket, head, origin } = &**kept;
                // The request was counted before.
                f(&Request { head: &head.as_head(), ticket: *ticket, origin, is_again: true })
            }
        }
    }

    /// Returns true if files take its method.
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

    /// Returns true if the router has a copy.
    pub(super) const fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

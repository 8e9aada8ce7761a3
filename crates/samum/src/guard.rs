//! The conditions on which a route answers a client: its access rules and limits.

use core::hash::{Hash as _, Hasher as _};
use core::net::IpAddr;
use core::num::NonZeroU64;
use std::hash::DefaultHasher;
use std::sync::Arc;

use http::Status;
use http1::Framing;
use ring::Time;

use crate::config::{Access, Permitted, Route};
use crate::limits::{ClientKey, Counted, Limiter, Refill};

/// The conditions of a route.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The clients that may use it; `None` if all may.
    permitted: Option<Arc<Permitted>>,
    /// The connections of a client.
    connections: Option<u32>,
    /// The requests of a client: the number of the limit, and its buckets.
    requests: Option<(u64, Refill)>,
    /// Bytes that the body of a request may have.
    body_bytes_max: Option<u64>,
    /// Bytes per second that a connection is sent.
    pub(crate) rate: Option<NonZeroU64>,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its client may not use the route.
    Forbidden,
    /// Its client has too many connections, of which this one has come late. It is to be closed.
    Connections,
    /// Its client asks too often, and may ask again after so many seconds.
    Requests(NonZeroU64),
    /// The fields of the request name different clients.
    Conflict,
    /// Its body is too long. The connection is to be closed, because the body will not be read.
    BodyTooLong,
}

impl Refusal {
    /// The status of the response.
    pub(crate) const fn status(self) -> Status {
        match self {
            Self::Forbidden => Status::Forbidden,
            Self::Connections | Self::Requests(_) => Status::TooManyRequests,
            Self::Conflict => Status::BadRequest,
            Self::BodyTooLong => Status::ContentTooLarge,
        }
    }
}

/// Makes guards. Neighbors mostly have the same rules, and share them.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    last: Option<(Access, Option<Arc<Permitted>>)>,
}

impl Guards {
    /// The guard of a route of the site with this name; `None` if it has no condition. Routes of one site
    /// with the same limit on requests count them together.
    pub(crate) fn of(&mut self, site: &str, route: &Route) -> Option<Guard> {
        let limits = &route.limits;
        let requests = limits.requests.map(|rate| {
            let mut hasher = DefaultHasher::new();
            (site, rate.per_second.to_bits(), rate.burst).hash(&mut hasher);
            (hasher.finish(), Refill::new(rate.per_second, rate.burst))
        });
        let rate = limits.bytes_per_second.and_then(NonZeroU64::new);
        let guard = Guard {
            permitted: self.permitted(&route.access),
            connections: limits.connections,
            requests,
            body_bytes_max: route.max_body,
            rate,
        };
        let is_open = guard.permitted.is_none() && guard.connections.is_none();
        let is_unlimited = requests.is_none() && rate.is_none() && route.max_body.is_none();
        (!is_open || !is_unlimited).then_some(guard)
    }

    fn permitted(&mut self, access: &Access) -> Option<Arc<Permitted>> {
        match &self.last {
            Some((last, permitted)) if last == access => permitted.clone(),
            _ => {
                let permitted = access.permitted().map(Arc::new);
                self.last = Some((access.clone(), permitted.clone()));
                permitted
            }
        }
    }
}

impl Guard {
    /// Lets a request pass or refuses it. The client has no address if it is on a Unix socket: it has no limits. A request
    /// that comes `again` has been counted.
    pub(crate) fn admit(
        &self,
        limiter: &Limiter,
        client: Option<IpAddr>,
        counted: Option<&Counted>,
        again: bool,
        now: Time,
    ) -> Result<(), Refusal> {
        if self.permitted.as_ref().is_some_and(|permitted| !permitted.contains(client)) {
            return Err(Refusal::Forbidden);
        }
        let Some(client) = client else { return Ok(()) };
        if let (Some(max), Some(counted)) = (self.connections, counted)
            && counted.is_beyond(max)
        {
            return Err(Refusal::Connections);
        }
        match self.requests {
            Some((limit, refill)) if !again => {
                limiter.take(limit, refill, ClientKey::new(client), now).map_err(Refusal::Requests)
            }
            _ => Ok(()),
        }
    }

    /// Lets the body of a request pass or refuses it, by the length that is announced.
    pub(crate) fn admit_body(&self, framing: Framing) -> Result<(), Refusal> {
        match (framing, self.body_bytes_max) {
            (Framing::Length(length), Some(max)) if length > max => Err(Refusal::BodyTooLong),
            _ => Ok(()),
        }
    }
}

//! The conditions under which a route answers a client: its access rules and limits.
//!
//! A route with conditions has a guard; any other route costs one test. A site has a guard, too, for the responses that no
//! route makes. A guard judges by values: its caller (`router/admit.rs`) finds the client of a request, and the connections
//! and tokens of that client are counted in `session/src/limits.rs`.

use core::hash::{Hash as _, Hasher as _};
use core::net::IpAddr;
use core::num::NonZeroU64;
use std::collections::HashSet;
use std::hash::DefaultHasher;
use std::sync::Arc;

use http::Framing;
use ring::Time;

use config::{Access, Limits, Pattern, Permitted, Route, Site};
use session::limits::{ClientKey, Counted, Limiter, Refill};
pub(crate) use session::standing::Refusal;

/// The conditions of a route, or of a site for the responses that no route makes.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The clients that may use the route; `None` if all may.
    permitted: Option<Arc<Permitted>>,
    /// The maximum number of connections of a client.
    connections: Option<u32>,
    /// The limit of a client's requests: the number of the limit, and its buckets.
    requests: Option<(u64, Refill)>,
    /// The most bytes of a request's body.
    body_bytes_max: Option<u64>,
    /// The bytes per second at which a connection is sent to.
    pub(crate) rate: Option<NonZeroU64>,
}

/// A maker of guards. Adjacent routes often have the same rules, and share them.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    last: Option<(Access, Option<Arc<Permitted>>)>,
    /// The numbers of the limits that routes have of their own.
    own: HashSet<u64>,
}

impl Guards {
    /// The guard of a route of the site with this name; `None` if it has no condition. Routes that have the request
    /// limit of their site share its counts, and other routes have their own. A limit keeps its number when the
    /// configuration is replaced, so earlier requests still count.
    pub(crate) fn of(&mut self, site: &str, route: &Route) -> Option<Guard> {
        let own = route.limits.has_own_requests.then_some((&route.path, &route.pattern));
        self.make(site, own, &route.access, &route.limits, route.max_body)
    }

    /// The guard of the responses of a site that no route makes; `None` if it has no condition. It shares the counts of
    /// the routes that have the request limit of their site.
    pub(crate) fn of_site(&mut self, site: &Site) -> Option<Guard> {
        self.make(&site.name, None, &site.access, &site.limits, None)
    }

    fn make(
        &mut self,
        site: &str,
        own: Option<(&String, &Option<Pattern>)>,
        access: &Access,
        limits: &Limits,
        body_bytes_max: Option<u64>,
    ) -> Option<Guard> {
        let requests = limits.requests.map(|rate| {
            let mut hasher = DefaultHasher::new();
            (site, rate.per_second.to_bits(), rate.burst, own).hash(&mut hasher);
            // Several routes may have the same path: routes with files of redirects.
            while own.is_some() && !self.own.insert(hasher.finish()) {
                hasher.write_u8(0);
            }
            (hasher.finish(), Refill::new(rate.per_second, rate.burst))
        });
        let rate = limits.bytes_per_second.and_then(NonZeroU64::new);
        let guard = Guard {
            permitted: self.permitted(access),
            connections: limits.connections,
            requests,
            body_bytes_max,
            rate,
        };
        let is_open = guard.permitted.is_none() && guard.connections.is_none();
        let is_unlimited = requests.is_none() && rate.is_none() && body_bytes_max.is_none();
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
    /// Lets a client pass or refuses it, by its address.
    pub(crate) fn permit(&self, client: Option<IpAddr>) -> Result<(), Refusal> {
        match &self.permitted {
            Some(permitted) if !permitted.contains(client) => Err(Refusal::Forbidden),
            _ => Ok(()),
        }
    }

    /// Lets a request pass or refuses it, by the limits. A client on a Unix socket has no address, and no limits.
    /// `connection` is the connection of the client, as it counts for the client. A request that `is_counted` uses no
    /// further token.
    pub(crate) fn limit(
        &self,
        limiter: &Limiter,
        client: Option<IpAddr>,
        connection: Option<&Counted>,
        is_counted: bool,
        now: Time,
    ) -> Result<(), Refusal> {
        let Some(client) = client else { return Ok(()) };
        if let (Some(max), Some(connection)) = (self.connections, connection)
            && connection.is_beyond(max)
        {
            return Err(Refusal::Connections);
        }
        match self.requests {
            Some((limit, refill)) if !is_counted => {
                limiter.take(limit, refill, ClientKey::new(client), now).map_err(Refusal::Requests)
            }
            _ => Ok(()),
        }
    }

    /// Lets the body of a request pass or refuses it, by its announced length.
    pub(crate) fn admit_body(&self, framing: Framing) -> Result<(), Refusal> {
        match (framing, self.body_bytes_max) {
            (Framing::Length(length), Some(max)) if length > max => Err(Refusal::BodyTooLong),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Limits, Pattern, Rate};

    #[test]
    fn routes_count_requests_together_if_the_limit_is_that_of_their_site() {
        let route = |path: &str, has_own_requests: bool, burst: u32| {
            let requests = Some(Rate { per_second: 5.0, burst });
            let limits = Limits { requests, has_own_requests, ..Limits::default() };
            Route { path: path.to_owned(), limits, ..Route::default() }
        };
        let pattern = Some(Pattern::new("*.php").unwrap());
        let routes = [
            ("x", route("/a/", false, 5)),
            ("x", route("/b/", false, 5)),
            ("x", route("/a/", true, 5)),
            ("x", route("/b/", true, 5)),
            ("x", route("/b/", true, 6)),
            ("x", Route { pattern, ..route("/b/", true, 5) }),
            ("x", route("/b/", true, 5)),
            ("y", route("/a/", false, 5)),
        ];
        let numbers = || -> Vec<_> {
            let mut guards = Guards::default();
            let guards = routes.iter().map(|(site, route)| guards.of(site, route).unwrap());
            guards.map(|guard| guard.requests.unwrap().0).collect()
        };
        let found = numbers();
        assert_eq!(found[0], found[1]);
        let all: HashSet<_> = found[1..].iter().collect();
        assert_eq!(all.len(), routes.len() - 1, "the others are counted apart: {found:?}");
        assert_eq!(found, numbers(), "a reload changes no number");
    }
}

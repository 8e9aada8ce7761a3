//! The keys of session tickets. A client that comes again with a ticket needs no certificate to be signed for, and shows none.
//!
//! Sites with other rules for clients must not accept such a ticket: a client could get it from a site that asks for no
//! certificate. So each set of rules has keys of its own. Within one set, a ticket is only good for the name of the server
//! that it was made for; rustls checks that.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::server::ProducesTickets;

use crate::fault::{Cause, Fault};
use crate::ticketer::Ticketer;

/// The rules of sites that accept each other's tickets: the profile, and the digest of the settings for clients.
pub(crate) type Rules = (Profile, Option<[u8; 32]>);

/// Versions of TLS and their suites, as named by Mozilla's recommendations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.3 and 1.2.
    #[default]
    Intermediate,
}

/// The keys of all tickets. The server makes one value, and gives it to each [`Acceptor`](crate::Acceptor) of each
/// configuration.
///
/// The keys are only in memory. They are replaced every day, and a ticket is good for a day. Keys of rules that no acceptor
/// has any more are wiped: a reload makes the new acceptors before it drops the old ones, and so keeps keys.
#[derive(Default)]
pub struct TicketKeys {
    of: Mutex<HashMap<Rules, Weak<dyn ProducesTickets>>>,
}

impl TicketKeys {
    /// No keys yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the keys for some rules, and makes them if no acceptor has them.
    pub(crate) fn of(&self, rules: Rules) -> Result<Arc<dyn ProducesTickets>, Fault> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = of.get(&rules).and_then(Weak::upgrade) {
            return Ok(keys);
        }
        let no_random = |_| Fault::new(None, Cause::Settings("no random numbers".to_owned()));
        let keys: Arc<dyn ProducesTickets> = Arc::new(Ticketer::new().map_err(no_random)?);
        of.retain(|_, keys| keys.strong_count() > 0);
        of.insert(rules, Arc::downgrade(&keys));
        Ok(keys)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

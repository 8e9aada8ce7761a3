//! The keys of session tickets. A client that comes again with a ticket needs no certificate to be signed for, and shows none.
//!
//! Sites with other rules for clients must not accept such a ticket: a client could get it from a site that asks for no
//! certificate. So each set of rules has keys of its own. Within one set, a ticket is only good for the name of the server
//! that it was made for; rustls checks that. A ticket without a name is only good for the address that it was made for, if
//! the address of a listener may choose a site or a certificate. Otherwise such a ticket is good for all its addresses.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use zeroize::Zeroizing;

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
///
/// A process that replaces another one gets its keys, so tickets stay good.
#[derive(Default)]
pub struct TicketKeys {
    of: Mutex<HashMap<Rules, Weak<Ticketer>>>,
    /// The keys of the process before, which no acceptor has yet.
    handed_over: Mutex<HashMap<Rules, Arc<Ticketer>>>,
}

/// The bytes of a length in front of the keys for some rules.
const LEN_BYTES: usize = 8;
/// The bytes of rules: a profile, whether there are settings for clients, and their digest.
const RULES_BYTES: usize = 34;

impl TicketKeys {
    /// No keys yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the keys for some rules, and makes them if no acceptor has them.
    pub(crate) fn of(&self, rules: Rules) -> Result<Arc<Ticketer>, Fault> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = of.get(&rules).and_then(Weak::upgrade) {
            return Ok(keys);
        }
        let no_random = |_| Fault::new(None, Cause::Settings("no random numbers".to_owned()));
        let handed_over = self.lock_handed_over().remove(&rules);
        let keys = match handed_over {
            Some(keys) => keys,
            None => Arc::new(Ticketer::new().map_err(no_random)?),
        };
        of.retain(|_, keys| keys.strong_count() > 0);
        of.insert(rules, Arc::downgrade(&keys));
        Ok(keys)
    }

    /// All keys, for the process that replaces this one. They are secret.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Zeroizing::new(Vec::with_capacity(of.len() * 256));
        for ((profile, clients), keys) in of.iter() {
            let Some(keys) = keys.upgrade() else { continue };
            let keys = keys.to_bytes();
            bytes.extend((keys.len() as u64).to_be_bytes());
            bytes.push(u8::from(*profile == Profile::Modern));
            bytes.push(u8::from(clients.is_some()));
            bytes.extend(clients.unwrap_or_default());
            bytes.extend_from_slice(&keys);
        }
        bytes
    }

    /// Uses the keys of the process before. Rules that acceptors ask for soon get theirs. `None` if the bytes are of
    /// another form.
    #[must_use]
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let keys = Self::new();
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_first_chunk::<LEN_BYTES>()?;
            let (rules, rest) = rest.split_first_chunk::<RULES_BYTES>()?;
            let len = usize::try_from(u64::from_be_bytes(*len)).ok()?;
            let (ticketer, rest) = rest.split_at_checked(len)?;
            let [profile, has_clients, clients @ ..] = *rules;
            let profile = if profile == 0 { Profile::Intermediate } else { Profile::Modern };
            let rules = (profile, (has_clients != 0).then_some(clients));
            keys.lock_handed_over().insert(rules, Arc::new(Ticketer::from_bytes(ticketer)?));
            bytes = rest;
        }
        Some(keys)
    }

    /// Drops the keys of the process before that no acceptor has asked for.
    pub fn forget_handed_over(&self) {
        self.lock_handed_over().clear();
    }

    fn lock_handed_over(&self) -> MutexGuard<'_, HashMap<Rules, Arc<Ticketer>>> {
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

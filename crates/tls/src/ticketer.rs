//! Seals session tickets with keys that are replaced every day.
//!
//! ```text
//!   ticket = name of the key (16) ‖ nonce (12) ‖ AES-256-GCM( second in which it was made (8) ‖ state ) ‖ tag (16)
//! ```
//!
//! The tag also covers the name of the key, and the host for which the ticket is good. This host is empty if the state has the
//! name of the server.
//!
//! rustls' own ticketer replaces its keys every 6 hours, and clients of a site that is visited once a day come too late.

use core::fmt;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

/// A ticket is good for so long, and a new key seals the next ones after so long.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const NAME_BYTES: usize = 16;
const TIME_BYTES: usize = 8;
const KEY_BYTES: usize = 32;

/// Splits a time off, in nanoseconds.
fn split_time(bytes: &[u8]) -> Option<(Duration, &[u8])> {
    let (time, rest) = bytes.split_first_chunk::<TIME_BYTES>()?;
    Some((Duration::from_nanos(u64::from_be_bytes(*time)), rest))
}

/// Seals and opens tickets, by the clock of the system that never goes back.
pub(crate) struct Ticketer {
    start: Instant,
    keys: Mutex<Keys>,
}

impl Ticketer {
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub(crate) fn new() -> Result<Self, Unspecified> {
        let start = Instant::now();
        Ok(Self { start, keys: Mutex::new(Keys::new(Duration::ZERO)?) })
    }

    /// Uses keys that another process has [written](Self::to_bytes) a moment ago. `None` if the bytes are of another
    /// form.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (now, rest) = split_time(bytes)?;
        let (since, rest) = split_time(rest)?;
        let (current, rest) = Key::split(rest)?;
        let previous = match rest.split_first()? {
            (0, []) => None,
            (1, rest) => match Key::split(rest)? {
                (key, []) => Some(key),
                _ => return None,
            },
            _ => return None,
        };
        let start = Instant::now().checked_sub(now)?;
        Some(Self { start, keys: Mutex::new(Keys { current, previous, since }) })
    }

    /// The keys, for another process of this machine, whose clock is the same.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.with(|keys, now| {
            let mut bytes = Zeroizing::new(Vec::with_capacity(2 * (NAME_BYTES + KEY_BYTES) + 17));
            for time in [now, keys.since] {
                bytes.extend(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_be_bytes());
            }
            keys.current.write(&mut bytes);
            bytes.push(u8::from(keys.previous.is_some()));
            if let Some(previous) = &keys.previous {
                previous.write(&mut bytes);
            }
            bytes
        })
    }

    /// Seals a ticket for a host. `None` if the system has no random numbers.
    pub(crate) fn seal(&self, host: &[u8], state: &[u8]) -> Option<Vec<u8>> {
        self.with(|keys, now| keys.seal(now, host, state)).ok()
    }

    /// Opens a ticket that was sealed for the same host.
    pub(crate) fn open(&self, host: &[u8], ticket: &[u8]) -> Option<Vec<u8>> {
        self.with(|keys, now| keys.open(now, host, ticket))
    }

    fn with<T>(&self, call: impl FnOnce(&mut Keys, Duration) -> T) -> T {
        let now = self.start.elapsed();
        call(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// The seconds for which a client keeps a ticket.
    fn lifetime(&self) -> u32 {
        u32::try_from(DAY.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, state: &[u8]) -> Option<Vec<u8>> {
        self.seal(&[], state)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(&[], ticket)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

/// The key of today, and the one of yesterday, whose tickets are still good.
struct Keys {
    current: Key,
    previous: Option<Key>,
    /// The time at which the current key was made.
    since: Duration,
}

impl Keys {
    fn new(now: Duration) -> Result<Self, Unspecified> {
        Ok(Self { current: Key::random()?, previous: None, since: now })
    }

    /// Replaces keys that are a day old. Without random numbers the old ones stay.
    fn renew(&mut self, now: Duration) {
        let age = now.saturating_sub(self.since);
        if age < DAY {
            return;
        }
        if let Ok(key) = Key::random() {
            let previous = core::mem::replace(&mut self.current, key);
            self.previous = (age < 2 * DAY).then_some(previous);
            self.since = now;
        }
    }

    fn seal(&mut self, now: Duration, host: &[u8], state: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.renew(now);
        self.current.seal(now, host, state)
    }

    fn open(&mut self, now: Duration, host: &[u8], ticket: &[u8]) -> Option<Vec<u8>> {
        self.renew(now);
        let keys = [Some(&self.current), self.previous.as_ref()];
        let key = keys.into_iter().flatten().find(|key| ticket.starts_with(&key.name))?;
        let (made, state) = key.open(host, ticket)?;
        (now.saturating_sub(made) < DAY).then_some(state)
    }
}

/// One key. Its memory is wiped by the cryptography when it is dropped.
struct Key {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
    /// The key again, for the process that replaces this one.
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

impl Key {
    fn random() -> Result<Self, Unspecified> {
        let (mut name, mut bytes) = ([0; NAME_BYTES], Zeroizing::new([0; KEY_BYTES]));
        aws_lc_rs::rand::fill(&mut name)?;
        aws_lc_rs::rand::fill(&mut *bytes)?;
        Self::new(name, bytes)
    }

    fn new(name: [u8; NAME_BYTES], bytes: Zeroizing<[u8; KEY_BYTES]>) -> Result<Self, Unspecified> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*bytes)?);
        Ok(Self { name, key, bytes })
    }

    /// Splits a key off that was written.
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (name, rest) = bytes.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        Some((Self::new(*name, Zeroizing::new(*key)).ok()?, rest))
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.name);
        to.extend_from_slice(&*self.bytes);
    }

    fn aad(&self, host: &[u8]) -> Aad<Vec<u8>> {
        Aad::from([&self.name, host].concat())
    }

    /// A nonce is random: 96 bits are enough for 2^32 tickets of a key, 49,000 in each second of its day (NIST SP 800-38D §8.3).
    fn seal(&self, now: Duration, host: &[u8], state: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce)?;
        let mut sealed = Zeroizing::new([&now.as_secs().to_be_bytes()[..], state].concat());
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let aad = self.aad(host);
        let tag = self.key.seal_in_place_separate_tag(nonce_of, aad, &mut sealed)?;
        Ok([&self.name[..], &nonce, &sealed, tag.as_ref()].concat())
    }

    /// Returns when a ticket was made, and the state in it.
    fn open(&self, host: &[u8], ticket: &[u8]) -> Option<(Duration, Vec<u8>)> {
        let (nonce, sealed) = ticket.get(NAME_BYTES..)?.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.key.open_in_place(nonce, self.aad(host), &mut sealed).ok()?;
        let (made, state) = plain.split_first_chunk::<TIME_BYTES>()?;
        Some((Duration::from_secs(u64::from_be_bytes(*made)), state.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn keys() -> Keys {
        Keys::new(Duration::ZERO).unwrap()
    }

    #[test]
    fn a_ticket_is_good_for_a_day_whenever_it_was_made() {
        for made in [0, 1, 23, 24, 25, 47] {
            let mut keys = keys();
            // A ticket each hour, as clients come.
            for hour in 0..made {
                keys.seal(hour * HOUR, b"", b"other").unwrap();
            }
            let ticket = keys.seal(made * HOUR, b"", b"state").unwrap();
            for after in 0..24 {
                let opened = keys.open((made + after) * HOUR, b"", &ticket);
                assert_eq!(
                    opened.as_deref(),
                    Some(&b"state"[..]),
                    "made {made} h, {after} h later"
                );
            }
            assert_eq!(keys.open((made + 24) * HOUR, b"", &ticket), None, "made at {made} h");
        }
    }

    #[test]
    fn keys_are_replaced_every_day_and_wiped_the_day_after() {
        let mut keys = keys();
        let first = keys.current.name;
        keys.seal(23 * HOUR, b"", b"").unwrap();
        assert_eq!(keys.current.name, first);
        keys.seal(24 * HOUR, b"", b"").unwrap();
        assert_ne!(keys.current.name, first);
        assert_eq!(keys.previous.as_ref().map(|key| key.name), Some(first));
        keys.seal(48 * HOUR, b"", b"").unwrap();
        assert_ne!(keys.previous.as_ref().map(|key| key.name), Some(first));
        // Nobody came for days: nothing that the old key has sealed is good.
        keys.seal(300 * HOUR, b"", b"").unwrap();
        assert!(keys.previous.is_none());
    }

    #[test]
    fn a_ticket_that_was_changed_or_cut_off_is_refused() {
        let mut keys = keys();
        let ticket = keys.seal(HOUR, b"", b"state").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.open(HOUR, b"", &changed), None, "byte {at}");
            assert_eq!(keys.open(HOUR, b"", &ticket[..at]), None, "{at} bytes");
        }
        assert_eq!(self::keys().open(HOUR, b"", &ticket), None, "of another server");
        assert_ne!(ticket, keys.seal(HOUR, b"", b"state").unwrap(), "a nonce is used once");
    }

    #[test]
    fn another_process_goes_on_with_the_keys_and_their_times() {
        let ticketer = Ticketer::new().unwrap();
        let ticket = ticketer.encrypt(b"state").unwrap();
        let next = Ticketer::from_bytes(&ticketer.to_bytes()).unwrap();
        assert_eq!(next.decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        let ticket = next.encrypt(b"state").unwrap();
        assert_eq!(ticketer.decrypt(&ticket).as_deref(), Some(&b"state"[..]));

        let mut keys = keys();
        let old = keys.seal(HOUR, b"", b"old").unwrap();
        keys.seal(24 * HOUR, b"", b"new").unwrap();
        let start = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let bytes = Ticketer { start, keys: Mutex::new(keys) }.to_bytes();
        let next = Ticketer::from_bytes(&bytes).unwrap();
        assert!(next.start - start < Duration::from_secs(60));
        let mut keys = next.keys.into_inner().unwrap();
        assert_eq!(keys.since, 24 * HOUR);
        assert_eq!(keys.open(24 * HOUR, b"", &old).as_deref(), Some(&b"old"[..]));
        for len in 0..bytes.len() {
            assert!(Ticketer::from_bytes(&bytes[..len]).is_none(), "{len} bytes");
        }
    }

    #[test]
    fn a_ticket_is_good_for_its_host() {
        let ticketer = Ticketer::new().unwrap();
        let hosts: [&[u8]; 3] = [b"", b"192.0.2.1", b"[2001:db8::1]"];
        for one in hosts {
            let ticket = ticketer.seal(one, b"state").unwrap();
            for other in hosts {
                let expected = (one == other).then_some(&b"state"[..]);
                assert_eq!(ticketer.open(other, &ticket).as_deref(), expected);
            }
        }
        let ticket = ticketer.encrypt(b"state").unwrap();
        assert!(ticketer.open(b"", &ticket).is_some());
    }

    #[test]
    fn clients_are_told_the_same_day() {
        let ticketer = Ticketer::new().unwrap();
        assert_eq!(ticketer.lifetime(), 86_400);
        let ticket = ticketer.encrypt(b"state").unwrap();
        assert_eq!(ticketer.decrypt(&ticket).as_deref(), Some(&b"state"[..]));
    }
}

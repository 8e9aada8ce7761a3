//! The figures of the server for the status page. All workers share them.
//!
//! The page is one file without anything from elsewhere (`status_page/page.html`), with the hashes of its style and its
//! script in its policy. Its figures are JSON (`json.rs`). They are sums of counters that exist in any case, and values
//! that are read when a client asks. A request pays nothing for them. A worker makes them when a client asks, and the
//! workers share them for `FRESH`. The rates are those since the figures before.

mod json;

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use http::Status;
use ring::Time;

pub(crate) use json::{Example, Figures, LISTED_MAX};

/// The page.
pub(crate) const PAGE: &str = include_str!("status_page/page.html");

/// The policy of the page: its own style and script and its own figures, and nothing else. A test says which hashes it needs.
pub(crate) const POLICY: &str = "default-src 'none'; connect-src 'self'; \
     style-src 'sha256-NVzZZQOP/ZzTSzpKiZVyV+oI+OyMbzgGbIvcBvmsVZ8='; \
     script-src 'sha256-2j363zwFY21AupyhId6aPafge/mbPiP97ZsrqWOMFYw='; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The maximum number of viewers whose pages are kept up to date, of all workers.
pub(crate) const VIEWERS_MAX: usize = 16;

/// The time for which figures are shared. It is shorter than the time between two events of a viewer.
pub(crate) const FRESH: Duration = Duration::from_millis(500);

/// The number of errors of a kind that are kept as examples, of all workers. Later ones replace the oldest.
const EXAMPLES_MAX: usize = 8;

/// The kinds of errors of which the operator learns. Each kind has examples and a budget of lines of its own, so that
/// requests for missing files drive nothing else out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// 403.
    Forbidden,
    /// 404.
    Missing,
    /// All from 500 on.
    Server,
}

impl ErrorKind {
    /// The number of kinds.
    pub(crate) const COUNT: usize = Self::Server as usize + 1;

    /// The kind of a status; `None` if the operator does not learn of it.
    pub(crate) const fn of(status: Status) -> Option<Self> {
        match status.code() {
            403 => Some(Self::Forbidden),
            404 => Some(Self::Missing),
            500.. => Some(Self::Server),
            _ => None,
        }
    }
}

/// The data that the workers share for the status page.
#[derive(Debug, Default)]
pub struct Board {
    viewers: AtomicUsize,
    examples: Mutex<[VecDeque<Example>; ErrorKind::COUNT]>,
    last: Mutex<Option<Last>>,
}

/// The figures that were made last.
#[derive(Clone, Debug)]
struct Last {
    at: Time,
    text: Arc<str>,
    earlier: Arc<json::Earlier>,
}

/// The place of a viewer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Board>);

impl Board {
    /// Takes one of the places of viewers; `None` if all are taken.
    pub(crate) fn take_seat(self: &Arc<Self>) -> Option<Seat> {
        let more = |taken: usize| (taken < VIEWERS_MAX).then_some(taken + 1);
        // No other memory depends on the number.
        let taken = self.viewers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Seat(Arc::clone(self)))
    }

    /// The number of viewers.
    pub(crate) fn viewers(&self) -> usize {
        self.viewers.load(Ordering::Relaxed)
    }

    /// Keeps an error of a kind as an example. It is left out if another worker has the examples just now.
    pub(crate) fn note(&self, kind: ErrorKind, example: Example) {
        let mut examples = match self.examples.try_lock() {
            Ok(examples) => examples,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let of_kind = &mut examples[kind as usize];
        if of_kind.len() >= EXAMPLES_MAX {
            of_kind.pop_back();
        }
        of_kind.push_front(example);
    }

    /// The last errors, the newest first.
    pub(crate) fn examples(&self) -> Vec<Example> {
        let mut all: Vec<_> = lock(&self.examples).iter().flatten().cloned().collect();
        all.sort_by_key(|example| core::cmp::Reverse(example.unix));
        all
    }

    /// The figures as JSON in one line of at most [`json::BYTES_MAX`] bytes. `make` takes them, unless there are fresh ones.
    pub(crate) fn text(&self, now: Time, make: impl FnOnce() -> Figures) -> Arc<str> {
        let is_fresh = |last: &Last| now.since(last.at) < FRESH;
        let before = lock(&self.last).clone();
        if let Some(last) = before.as_ref().filter(|last| is_fresh(last)) {
            return Arc::clone(&last.text);
        }
        // Without the lock: another worker need not wait, and may make the same figures meanwhile.
        let figures = make();
        let text: Arc<str> =
            json::render(&figures, before.map(|last| last.earlier).as_deref()).into();
        let mut last = lock(&self.last);
        // Rates since figures that are this new would say nothing.
        if !last.as_ref().is_some_and(is_fresh) {
            let earlier = Arc::new(json::Earlier::of(&figures));
            *last = Some(Last { at: now, text: Arc::clone(&text), earlier });
        }
        text
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The values behind a lock are valid after each statement, so a panic leaves them valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

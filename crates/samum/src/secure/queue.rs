//! A queue with a line for each client. The clients take turns.
//!
//! ```text
//!   a: 1 2 3 4 5 6        the order: 1 7 8 2 9 3 4 5 6
//!   b: 7                  a full queue has no room for more of a; one more of b takes the slot of 6
//!   c: 8 9
//! ```
//!
//! The slots of the queue are shared. A client that is alone may have all of them, and gives them back one by one to
//! clients with fewer. So a client that asks for much waits longer, and is refused; others are not.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use ring::Time;

/// Things that wait, each for a client with the key `K`.
#[derive(Debug)]
pub(super) struct Queue<K, T> {
    /// The lines of the clients. None is empty.
    lines: BTreeMap<K, VecDeque<Waiting<T>>>,
    /// The clients that have a line, each once, in the order of their turns.
    round: VecDeque<K>,
    /// The things that wait.
    len: usize,
    /// The most things that may wait.
    most: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    since: Time,
    thing: T,
}

impl<K: Copy + Ord, T> Queue<K, T> {
    /// An empty queue with this many slots, at least one.
    pub(super) const fn new(most: usize) -> Self {
        Self { lines: BTreeMap::new(), round: VecDeque::new(), len: 0, most }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets something wait. Returns what has no slot instead, if the queue is full: the last of the longest line, or this
    /// thing itself if the line of its client would be as long.
    pub(super) fn enter(&mut self, key: K, thing: T, now: Time) -> Option<T> {
        let mut refused = None;
        if self.len == self.most {
            let own = self.lines.get(&key).map_or(0, VecDeque::len);
            // Each line has one thing at least, so there are at most as many lines as slots.
            let longest = self.lines.values_mut().max_by_key(|line| line.len());
            match longest.filter(|line| line.len() > own + 1) {
                None => return Some(thing),
                Some(line) => refused = line.pop_back(),
            }
            self.len -= 1;
        }
        let line = self.lines.entry(key).or_default();
        if line.is_empty() {
            self.round.push_back(key);
        }
        line.push_back(Waiting { since: now, thing });
        self.len += 1;
        refused.map(|waiting| waiting.thing)
    }

    /// The first thing of the client whose turn it is.
    pub(super) fn next(&mut self) -> Option<T> {
        let key = self.round.pop_front()?;
        let line = self.lines.get_mut(&key)?;
        let next = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&key);
        } else {
            self.round.push_back(key);
        }
        self.len -= 1;
        Some(next.thing)
    }

    /// Takes something out, because its client no longer waits for it.
    pub(super) fn remove(&mut self, key: K, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let line = self.lines.get_mut(&key)?;
        let index = line.iter().position(|waiting| is_it(&waiting.thing))?;
        let removed = line.remove(index)?;
        self.len -= 1;
        if line.is_empty() {
            self.lines.remove(&key);
            self.round.retain(|other| *other != key);
        }
        Some(removed.thing)
    }

    /// Takes out everything that has waited for `limit` or longer.
    pub(super) fn expire(&mut self, now: Time, limit: Duration) -> Vec<T> {
        let mut expired = Vec::new();
        self.lines.retain(|_, line| {
            while line.front().is_some_and(|first| first.since + limit <= now) {
                expired.extend(line.pop_front().map(|waiting| waiting.thing));
            }
            !line.is_empty()
        });
        let lines = &self.lines;
        self.round.retain(|key| lines.contains_key(key));
        self.len -= expired.len();
        expired
    }
}

#[cfg(test)]
mod tests;

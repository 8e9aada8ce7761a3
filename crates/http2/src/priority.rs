//! The order of responses (RFC 9218): wishes of clients, and a scheduler.
//!
//! Reading list: RFC 9218 §4 parameters, §5 the field, §7 frames, §10 schedulers; RFC 9651 §3.2, structured fields.
//!
//! Nothing here knows HTTP/2, so that HTTP/3 can use it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

mod structured;

/// The number of levels of urgency.
pub const LEVELS: usize = 8;

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// True if a client can use parts of the response, so that it may share the connection with others.
    pub incremental: bool,
}

impl Priority {
    /// The priority of a response about which nothing is said (RFC 9218 §4).
    pub const DEFAULT: Self = Self { urgency: 3, incremental: false };
}

impl Default for Priority {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The parameters of a priority that were said. Others are for the server to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// See [`Priority::urgency`].
    pub urgency: Option<u8>,
    /// See [`Priority::incremental`].
    pub incremental: Option<bool>,
}

impl Wish {
    /// A wish for nothing.
    pub const NONE: Self = Self { urgency: None, incremental: None };

    /// Reads the value of the field `priority`, or of a PRIORITY_UPDATE frame. If several lines have the field, join
    /// them with commas.
    ///
    /// A value that is no structured dictionary is a wish for nothing, and so is a parameter with a value of another
    /// type or beyond its range (RFC 9218 §4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut wish = Self::NONE;
        let is_valid = structured::dictionary(value, |key, value| match (key, value) {
            (b"u", structured::Value::Integer(urgency)) => {
                wish.urgency = u8::try_from(urgency).ok().filter(|&urgency| urgency < 8);
            }
            (b"i", structured::Value::Boolean(incremental)) => wish.incremental = Some(incremental),
            (b"u", _) => wish.urgency = None,
            (b"i", _) => wish.incremental = None,
            _ => {}
        });
        if is_valid { wish } else { Self::NONE }
    }

    /// The priority of a response: this wish where it says something, else `default`.
    #[must_use]
    pub fn or(self, default: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(default.urgency),
            incremental: self.incremental.unwrap_or(default.incremental),
        }
    }

    /// The wish with the parameters of `other` in place of its own. So a server changes the wish of a client by the field
    /// of a response (RFC 9218 §8).
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            urgency: other.urgency.or(self.urgency),
            incremental: other.incremental.or(self.incremental),
        }
    }
}

/// The order in which the streams of one connection send.
///
/// A stream is *ready* if it has bytes that can be sent now. [`next_stream`](Self::next_stream) chooses among ready streams only, so a
/// stream that waits for a disk holds up no other. Its place in the order is kept, and it takes its turn again when it
/// is ready.
///
/// Of two ready streams the more urgent sends first, whatever the less urgent waits for. Within one level of urgency:
///
/// - responses that are not incremental are sent one after the other, in the order of their requests;
/// - incremental responses take turns, and the one whose turn is longest ago is next;
/// - if there are both, the two kinds take turns.
///
/// ```
/// use http2::priority::{Priority, Scheduler};
///
/// let mut scheduler = Scheduler::new();
/// for (stream, urgency) in [(1, 3), (3, 1), (5, 1)] {
///     scheduler.insert(stream, Priority { urgency, incremental: true });
///     scheduler.set_ready(stream, true);
/// }
/// let mut served = Vec::new();
/// for _ in 0..4 {
///     let stream = scheduler.next_stream().expect("one is ready");
///     served.push(stream);
///     scheduler.served(stream);
///     scheduler.set_ready(3, served.len() < 3);
/// }
/// assert_eq!(served, [3, 5, 3, 5]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    /// The entries are sorted by stream, in ascending order.
    entries: Vec<Entry>,
    levels: [Level; LEVELS],
    /// The number of turns so far.
    turns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    stream: u32,
    priority: Priority,
    is_ready: bool,
    /// The number of the stream's last turn, or of the last turn before the stream came.
    turn: u64,
}

/// The ready streams of one urgency.
#[derive(Clone, Debug, Default)]
struct Level {
    /// Those that are sent one after the other, ascending.
    whole: VecDeque<u32>,
    /// Those that take turns, by their last turn.
    shared: VecDeque<(u64, u32)>,
    /// True if the next turn is for `shared`, if both kinds are ready.
    is_for_shared: bool,
}

impl Scheduler {
    /// A scheduler without streams.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stream that is not ready. If the stream is there already, only its priority changes.
    pub fn insert(&mut self, stream: u32, priority: Priority) {
        match self.place(stream) {
            Ok(_) => self.set_priority(stream, priority),
            Err(place) => {
                let turn = self.turns;
                self.entries.insert(place, Entry { stream, priority, is_ready: false, turn });
            }
        }
    }

    /// Removes a stream, if it is there.
    pub fn remove(&mut self, stream: u32) {
        self.set_ready(stream, false);
        if let Ok(place) = self.place(stream) {
            self.entries.remove(place);
        }
    }

    /// Changes the priority of a stream, if it is there.
    pub fn set_priority(&mut self, stream: u32, priority: Priority) {
        let Ok(place) = self.place(stream) else { return };
        let is_ready = self.entries[place].is_ready;
        self.set_ready(stream, false);
        self.entries[place].priority = priority;
        self.set_ready(stream, is_ready);
    }

    /// Says whether a stream has bytes that can be sent now.
    pub fn set_ready(&mut self, stream: u32, is_ready: bool) {
        let Ok(place) = self.place(stream) else { return };
        let entry = &mut self.entries[place];
        if entry.is_ready != is_ready {
            entry.is_ready = is_ready;
            self.levels[level_of(entry.priority)].change(*entry);
        }
    }

    /// The stream that sends next; `None` if none is ready. It stays the next until it is [`served`](Self::served), or is
    /// no longer ready, or a more urgent stream is ready.
    #[inline]
    #[must_use]
    pub fn next_stream(&self) -> Option<u32> {
        // Most responses are sent at once, and no stream is here.
        if self.entries.is_empty() {
            return None;
        }
        self.levels.iter().find_map(Level::next)
    }

    /// Records that a stream had its turn.
    pub fn served(&mut self, stream: u32) {
        let Ok(place) = self.place(stream) else { return };
        self.turns += 1;
        let mut entry = self.entries[place];
        let level = &mut self.levels[level_of(entry.priority)];
        level.is_for_shared = !entry.priority.incremental;
        let moved = Entry { turn: self.turns, ..entry };
        if entry.is_ready && entry.priority.incremental {
            entry.is_ready = false;
            level.change(entry);
            level.change(moved);
        }
        self.entries[place] = moved;
    }

    /// Returns whether there are no streams.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of a stream in the entries, or where it would be.
    fn place(&self, stream: u32) -> Result<usize, usize> {
        // New streams are the greatest, and they are asked for most often.
        match self.entries.last() {
            Some(last) if last.stream == stream => Ok(self.entries.len() - 1),
            Some(last) if last.stream > stream => {
                self.entries.binary_search_by_key(&stream, |entry| entry.stream)
            }
            _ => Err(self.entries.len()),
        }
    }
}

/// The place of a priority among the levels.
fn level_of(priority: Priority) -> usize {
    usize::from(priority.urgency).min(LEVELS - 1)
}

impl Level {
    fn next(&self) -> Option<u32> {
        let shared = self.shared.front().map(|&(_, stream)| stream);
        let whole = self.whole.front().copied();
        if self.is_for_shared { shared.or(whole) } else { whole.or(shared) }
    }

    /// Adds an entry that is ready, or removes an entry that no longer is.
    fn change(&mut self, entry: Entry) {
        if entry.priority.incremental {
            change(&mut self.shared, (entry.turn, entry.stream), entry.is_ready);
        } else {
            change(&mut self.whole, entry.stream, entry.is_ready);
        }
    }
}

/// Adds a key to sorted keys, or removes it.
fn change<K: Ord + Copy>(keys: &mut VecDeque<K>, key: K, is_added: bool) {
    match keys.binary_search(&key) {
        Err(place) if is_added => keys.insert(place, key),
        Ok(place) if !is_added => drop(keys.remove(place)),
        _ => debug_assert!(false, "a stream is ready once"),
    }
}

#[cfg(test)]
mod tests;

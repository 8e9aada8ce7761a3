//! The streams of a connection, as its server sees them (RFC 9113 §5.1).
//!
//! ```text
//!            HEADERS                    END_STREAM of the client
//!   idle ───────────────► Open ─────────────────────────────────► HalfClosedRemote
//!     │                    │  response was sent                      │ response was sent
//!     │ END_STREAM         ▼                                         │
//!     │              HalfClosedLocal ───── END_STREAM ───────┐       │
//!     └► HalfClosedRemote  │ nothing uses the rest          ▼       ▼      and from everywhere: a reset
//!                          ▼                              closed ◄───┘
//!                     Discarding ── END_STREAM, or reset ────┘
//! ```
//!
//! Only streams that are not closed have an entry. A closed stream is one below the newest without an entry. A few are
//! remembered, because frames of theirs may be under way.

use alloc::vec::Vec;
use core::time::Duration;

use crate::flow::{ReceiveWindow, SendWindow};
use crate::limits::{RESETS_REMEMBERED, STREAMS_MAX};

/// The closed streams that are remembered in addition to those that were reset.
const ENDED_REMEMBERED: usize = 16;

/// The state of a stream that is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Content of the request and the response are both to come.
    Open,
    /// The request is complete, and the response is to come.
    HalfClosedRemote,
    /// The response is complete. Content of the request is to come, and is wanted.
    HalfClosedLocal,
    /// The response is complete. Content of the request is to come, and nothing uses it.
    Discarding {
        /// The bytes of content that are dropped before the stream is reset.
        left: u32,
        /// They are dropped until this time.
        until: Duration,
    },
}

impl State {
    /// Returns whether a response can be sent.
    pub(crate) const fn takes_response(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedRemote)
    }

    /// Returns whether content of the request is to come, and is wanted.
    pub(crate) const fn is_awaiting(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedLocal)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) state: State,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// The content that the head has announced and that is to come.
    pub(crate) announced: Option<u64>,
}

/// The place of a stream that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has an entry, at this place.
    Active(usize),
    /// No frame has opened it, nor a later one.
    Idle,
    /// This side has reset it. Its frames are ignored, because they may have been under way.
    Reset,
    /// It ended, or the client has reset it.
    Ended,
    /// It is below the newest, and no entry or memory has it.
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    /// The entries are sorted by id, in ascending order.
    active: Vec<Stream>,
    /// Streams that this side has reset, the oldest first.
    reset: Vec<u32>,
    /// Other streams that were closed, the oldest first.
    ended: Vec<u32>,
    /// The greatest id that the client has used.
    newest: u32,
}

impl Streams {
    pub(crate) const fn newest(&self) -> u32 {
        self.newest
    }

    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.active.len() >= STREAMS_MAX as usize
    }

    #[inline]
    pub(crate) fn standing(&self, id: u32) -> Standing {
        match self.place(id) {
            Some(place) => Standing::Active(place),
            None if id > self.newest => Standing::Idle,
            None if self.reset.contains(&id) => Standing::Reset,
            None if self.ended.contains(&id) => Standing::Ended,
            None => Standing::Unknown,
        }
    }

    fn place(&self, id: u32) -> Option<usize> {
        self.active.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Stream> {
        self.place(id).map(|place| &self.active[place])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.place(id).map(|place| &mut self.active[place])
    }

    /// Returns whether more of a request is to come, and is wanted.
    pub(crate) fn is_awaiting(&self, id: u32) -> bool {
        self.get(id).is_some_and(|stream| stream.state.is_awaiting())
    }

    /// The first time at which the rest of a request is dropped no longer.
    pub(crate) fn discards_until(&self) -> Option<Duration> {
        let times = self.active.iter().filter_map(|stream| match stream.state {
            State::Discarding { until, .. } => Some(until),
            _ => None,
        });
        times.min()
    }

    /// The first stream whose rest is dropped no longer.
    pub(crate) fn discarded_at(&self, now: Duration) -> Option<u32> {
        let is_due = |stream: &&Stream| match stream.state {
            State::Discarding { until, .. } => until <= now,
            _ => false,
        };
        self.active.iter().find(is_due).map(|stream| stream.id)
    }

    /// The stream at the place of [`Standing::Active`].
    pub(crate) fn at(&mut self, place: usize) -> &mut Stream {
        &mut self.active[place]
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.active.iter_mut()
    }

    /// Records that the client has used an idle stream.
    pub(crate) const fn use_id(&mut self, id: u32) {
        self.newest = id;
    }

    /// Adds a stream, the newest.
    pub(crate) fn open(&mut self, stream: Stream) {
        debug_assert!(self.active.last().is_none_or(|last| last.id < stream.id));
        self.active.push(stream);
    }

    /// Removes a stream, if it is there. It is remembered, whether it is there or not.
    pub(crate) fn close(&mut self, id: u32, is_reset: bool) {
        if let Some(place) = self.place(id) {
            self.active.remove(place);
        }
        let (memory, max) = if is_reset {
            (&mut self.reset, RESETS_REMEMBERED)
        } else {
            (&mut self.ended, ENDED_REMEMBERED)
        };
        if memory.len() == max {
            memory.remove(0);
        }
        memory.push(id);
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.active.shrink_to_fit();
        self.reset.shrink_to_fit();
        self.ended.shrink_to_fit();
    }

    pub(crate) fn memory(&self) -> usize {
        self.active.capacity() * size_of::<Stream>()
            + (self.reset.capacity() + self.ended.capacity()) * size_of::<u32>()
    }
}

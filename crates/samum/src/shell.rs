//! What a worker acts through: the ring, the disk, the clock, the logs.

use core::hash::BuildHasher as _;
use core::time::Duration;
use std::hash::RandomState;
use std::io;
use std::rc::Rc;

use http::date;
use ring::{Ring, Time, Token};
use sendfile::Disk;

use crate::budget::Budget;
use crate::config::Tuning;
use crate::connection::Work;
use crate::log::{AccessLog, Sink};

/// The kinds of operations, in the highest byte of their tokens.
pub(crate) mod kind {
    use ring::Token;

    /// A listener accepts; its number follows.
    pub(crate) const ACCEPT: Token = 1 << 56;
    /// A connection receives; its id follows.
    pub(crate) const RECV: Token = 2 << 56;
    /// A connection's socket can take bytes; its id follows.
    pub(crate) const WRITABLE: Token = 3 << 56;
    /// A step of a content load.
    pub(crate) const LOAD: Token = 4 << 56;
    /// A directory is watched.
    pub(crate) const WATCH: Token = 5 << 56;
    /// The disk's own.
    pub(crate) const DISK: Token = 6 << 56;
    /// Another thread wants something.
    pub(crate) const WAKE: Token = 7 << 56;
    /// A listener that ran out of descriptors tries again; its number follows.
    pub(crate) const RESUME: Token = 8 << 56;
    /// The access log was written.
    pub(crate) const ACCESS: Token = 9 << 56;
    /// A note to the operator was written.
    pub(crate) const NOTE: Token = 10 << 56;
    /// It is time for what content does bit by bit.
    pub(crate) const TIDY: Token = 16 << 56;
    /// The part of a token that says which kind it is.
    pub(crate) const MASK: Token = 0xff << 56;
}

/// The same complaint is made at most this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// What has happened in a worker since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections accepted.
    pub accepted: u64,
    /// Responses begun.
    pub responses: u64,
    /// Connections closed because a file became shorter while it was being sent.
    pub truncated: u64,
    /// Opens, stats and reads that failed with more than "not found" or "not permitted".
    pub disk_errors: u64,
    /// Connections closed because their peer took too little for too long.
    pub slow_peers: u64,
    /// Connections closed because their peer sent nothing, or no whole request, for too long.
    pub timeouts: u64,
    /// Idle connections closed because a newcomer wanted their place.
    pub idle_closed: u64,
    /// Lines of logs that were dropped because nothing took them.
    pub log_lines_dropped: u64,
    /// Times that accepting stopped for want of descriptors.
    pub descriptor_shortages: u64,
}

/// What the operator may want to raise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Connections,
    Descriptors,
}

pub(crate) struct Shell {
    pub(crate) ring: Ring,
    pub(crate) disk: Disk,
    /// The number of this turn.
    pub(crate) turn: u64,
    /// When it began.
    pub(crate) now: Time,
    /// The same in Unix seconds, and as HTTP writes it.
    pub(crate) unix: i64,
    pub(crate) date: [u8; date::DATE_LEN],
    pub(crate) tuning: Rc<Tuning>,
    pub(crate) budget: Budget,
    pub(crate) access: Option<AccessLog>,
    pub(crate) notes: Sink,
    pub(crate) stats: Stats,
    /// The key and the number of the next token.
    tokens: (RandomState, u64),
    /// What connections have given back for the next one that has something to do.
    #[expect(clippy::vec_box, reason = "it is the boxes that are reused")]
    pub(crate) spare: Vec<Box<Work>>,
    complained: [Option<Time>; 2],
}

/// How many of them are kept: a batch of completions.
const SPARE_MAX: usize = 256;

impl Shell {
    pub(crate) fn new(
        ring: Ring,
        disk: Disk,
        tuning: Rc<Tuning>,
        access: Option<AccessLog>,
        notes: Sink,
    ) -> Self {
        let mut shell = Self {
            turn: 0,
            now: ring.now(),
            ring,
            disk,
            unix: i64::MIN,
            date: date::format(0),
            tuning,
            budget: Budget::default(),
            access,
            notes,
            stats: Stats::default(),
            tokens: (RandomState::new(), 0),
            spare: Vec::new(),
            complained: [None; 2],
        };
        shell.tick();
        shell
    }

    /// A turn begins.
    pub(crate) fn tick(&mut self) {
        self.turn += 1;
        self.now = self.ring.now();
        let unix = self.ring.unix_time();
        if unix != self.unix {
            self.unix = unix;
            self.date = date::format(unix);
        }
    }

    /// A number that nobody can know beforehand, whatever numbers were seen before it: a keyed hash
    /// of a counter.
    pub(crate) fn next_token(&mut self) -> u64 {
        let (key, count) = &mut self.tokens;
        *count += 1;
        key.hash_one(*count)
    }

    /// Take what a connection with nothing to do has no use for.
    pub(crate) fn give_spare(&mut self, work: Box<Work>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(work);
        }
    }

    /// Tell the operator something.
    pub(crate) fn note(&mut self, text: &str) {
        let line = format!("{}: {}\n", crate::NAME, crate::text::plain(text));
        self.notes.line(&mut self.ring, line.as_bytes());
    }

    /// Tell the operator that a limit of the system has been reached, once in a while.
    pub(crate) fn complain_of_limit(&mut self, error: &io::Error) {
        self.stats.descriptor_shortages += 1;
        self.complain(Limit::Descriptors, &format!(
            "out of descriptors or memory: {error}; clients wait until some are free (raise the limit \
             with `ulimit -n`, or lower --max-connections)"
        ));
    }

    /// Tell the operator of a limit, if that has not been told in a while.
    pub(crate) fn complain(&mut self, limit: Limit, text: &str) {
        let now = self.now;
        let complained = &mut self.complained[limit as usize];
        if complained.is_none_or(|then| now.since(then) >= COMPLAINT_INTERVAL) {
            *complained = Some(now);
            self.note(text);
        }
    }

    /// Take the completion of a log's write.
    pub(crate) fn log_written(&mut self, completion: ring::Completion) {
        let now = self.now;
        if completion.token & kind::MASK == kind::NOTE {
            self.notes.written(&mut self.ring, completion, now);
        } else if let Some(access) = &mut self.access {
            access.sink.written(&mut self.ring, completion, now);
        }
    }

    /// Write what the logs hold, if it is time; returns when to look again.
    pub(crate) fn flush_logs(&mut self) -> Option<Time> {
        let now = self.now;
        let sink = self.access.as_mut().map(|access| &mut access.sink);
        let (access, complaint) =
            sink.map_or((None, None), |sink| (sink.flush(&mut self.ring, now), sink.complaint()));
        if let Some(complaint) = complaint {
            self.note(&complaint);
        }
        let dropped =
            self.notes.dropped() + self.access.as_ref().map_or(0, |access| access.sink.dropped());
        self.stats.log_lines_dropped = dropped;
        access
    }
}

/// A connection's id in a token.
pub(crate) const fn id_of(token: Token) -> u64 {
    token & !kind::MASK
}

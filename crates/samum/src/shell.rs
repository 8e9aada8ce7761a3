//! What a worker acts through: the ring, the disk, the clock, the logs.

use core::time::Duration;
use std::io;
use std::rc::Rc;

use ring::{Ring, Time, Token};
use sendfile::Disk;

use crate::config::Tuning;
use crate::context::Context;
use crate::log::{AccessLog, Sink};

/// The kinds of operations, in the highest byte of their tokens.
pub mod kind {
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
    /// The operations of a handler that wraps another one; the rest of the token is its own.
    pub const HANDLER: Token = 32 << 56;
    /// The part of a token that says which kind it is.
    pub const MASK: Token = 0xff << 56;
}

/// The same complaint is made at most this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// What the operator may want to raise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Connections,
    Descriptors,
}

/// The ring, the disk, the logs, and what decisions are made from.
#[derive(Debug)]
pub struct Shell {
    /// The ring.
    pub ring: Ring,
    /// The clock, limits and counters.
    pub cx: Context,
    pub(crate) disk: Disk,
    pub(crate) access: Option<AccessLog>,
    pub(crate) notes: Sink,
    complained: [Option<Time>; 2],
}

impl Shell {
    pub(crate) fn new(
        ring: Ring,
        disk: Disk,
        tuning: Rc<Tuning>,
        access: Option<AccessLog>,
        notes: Sink,
    ) -> Self {
        let cx = Context::new(tuning, access.is_some());
        let mut shell = Self { ring, cx, disk, access, notes, complained: [None; 2] };
        shell.tick();
        shell
    }

    /// A turn begins.
    pub(crate) fn tick(&mut self) {
        self.cx.tick(self.ring.now(), self.ring.unix_time());
    }

    /// Tell the operator something.
    pub(crate) fn note(&mut self, text: &str) {
        let line = format!("{}: {}\n", crate::NAME, crate::text::plain(text));
        self.notes.line(&mut self.ring, line.as_bytes());
    }

    /// Tell the operator that a limit of the system has been reached, once in a while.
    pub(crate) fn complain_of_limit(&mut self, error: &io::Error) {
        self.cx.stats.descriptor_shortages += 1;
        self.complain(Limit::Descriptors, &format!(
            "out of descriptors or memory: {error}; clients wait until some are free (raise the limit \
             with `ulimit -n`, or lower --max-connections)"
        ));
    }

    /// Tell the operator of a limit, if that has not been told in a while.
    pub(crate) fn complain(&mut self, limit: Limit, text: &str) {
        let now = self.cx.now;
        let complained = &mut self.complained[limit as usize];
        if complained.is_none_or(|then| now.since(then) >= COMPLAINT_INTERVAL) {
            *complained = Some(now);
            self.note(text);
        }
    }

    /// Take the completion of a log's write.
    pub(crate) fn log_written(&mut self, completion: ring::Completion) {
        let now = self.cx.now;
        if completion.token & kind::MASK == kind::NOTE {
            self.notes.written(&mut self.ring, completion, now);
        } else if let Some(access) = &mut self.access {
            access.sink.written(&mut self.ring, completion, now);
        }
    }

    /// Write what the logs hold, if it is time; returns when to look again.
    pub(crate) fn flush_logs(&mut self) -> Option<Time> {
        let now = self.cx.now;
        let sink = self.access.as_mut().map(|access| &mut access.sink);
        let (access, complaint) =
            sink.map_or((None, None), |sink| (sink.flush(&mut self.ring, now), sink.complaint()));
        if let Some(complaint) = complaint {
            self.note(&complaint);
        }
        let dropped =
            self.notes.dropped() + self.access.as_ref().map_or(0, |access| access.sink.dropped());
        self.cx.stats.log_lines_dropped = dropped;
        access
    }
}

/// A connection's id in a token.
pub(crate) const fn id_of(token: Token) -> u64 {
    token & !kind::MASK
}

//! The way of the lines of one log: to a file, or to a daemon.

use ring::{Completion, Fd, Ring, Time, Token};

use super::datagrams::Datagrams;
use super::sink::Sink;
use config::LogTarget;

/// The way of the lines.
#[derive(Debug)]
pub(super) enum Outlet {
    File(Sink),
    Daemon(Datagrams),
}

impl Outlet {
    /// The way to the target of a log, which is open.
    pub(super) fn new(target: &LogTarget, file: Fd, token: Token) -> Self {
        match target {
            LogTarget::Syslog(path) | LogTarget::Journald(path) => {
                Self::Daemon(Datagrams::new(file, path))
            }
            LogTarget::File(path) => {
                Self::File(Sink::new(Some(file), token, &path.display().to_string(), true))
            }
            LogTarget::None | LogTarget::Stdout => {
                Self::File(Sink::new(Some(file), token, "standard output", false))
            }
        }
    }

    pub(super) fn replace(&mut self, file: Fd, now: Time) {
        match self {
            Self::File(sink) => sink.replace(file, now),
            Self::Daemon(datagrams) => datagrams.replace(file),
        }
    }

    /// Adds a line with its end, or a message.
    pub(super) fn add(&mut self, ring: &mut Ring, line: &[u8], now: Time) {
        match self {
            Self::File(sink) => {
                sink.add(line, now);
                if sink.is_full() {
                    sink.write(ring, now);
                }
            }
            Self::Daemon(datagrams) => datagrams.add(line, now),
        }
    }

    pub(super) fn written(&mut self, ring: &mut Ring, completion: Completion, now: Time) {
        if let Self::File(sink) = self {
            sink.written(ring, completion, now);
        }
    }

    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Self::File(sink) => sink.due(),
            Self::Daemon(datagrams) => datagrams.due(),
        }
    }

    pub(super) fn flush(&mut self, ring: &mut Ring, now: Time) {
        match self {
            Self::File(sink) => sink.flush(ring, now),
            Self::Daemon(datagrams) => datagrams.flush(now),
        }
    }

    pub(super) fn complaint(&mut self) -> Option<String> {
        match self {
            Self::File(sink) => sink.complaint(),
            Self::Daemon(datagrams) => datagrams.complaint(),
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        match self {
            Self::File(sink) => sink.dropped(),
            Self::Daemon(datagrams) => datagrams.dropped(),
        }
    }

    pub(super) fn lost(&self) -> u64 {
        match self {
            Self::File(sink) => sink.lost(),
            Self::Daemon(datagrams) => datagrams.lost(),
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Self::File(sink) => sink.is_quiet(),
            Self::Daemon(datagrams) => datagrams.is_quiet(),
        }
    }

    pub(super) fn hurry(&mut self, ring: &mut Ring, now: Time) {
        match self {
            Self::File(sink) => sink.hurry(ring, now),
            Self::Daemon(datagrams) => datagrams.hurry(now),
        }
    }
}

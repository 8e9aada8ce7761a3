//! The logs of a worker: one for each target with its format, its statuses and its sample, shared by any number of sites.
//!
//! A response carries the recording of its site, so a response that is not recorded costs one test. A record lives from
//! the beginning of the response until it has left or was cut. The record has the time for which the request waited for
//! a disk. If the client leaves before the response begins, its record has the status 499. A log is looked at when its
//! lines are due, so idle logs cost nothing.

mod datagrams;
pub mod files;
mod line;
pub mod location;
mod outlet;
pub mod say;
mod sink;

use core::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

use ring::{Completion, Fd, Key, Ring, Slab, Time, Token};

use config::{Log, Sample};
use http::Status;
use line::{Clock, Line};
use outlet::Outlet;
use session::network::Origin;
pub use session::record::{Began, Cut, LogId, Record, Recording};
use session::request_id::Seed;
pub use sink::Sink;

/// All logs of a worker.
#[derive(Debug)]
pub struct Logs {
    all: Slab<OpenLog>,
    by_log: HashMap<Log, Key>,
    /// Tokens of writes consist of this one and the key of the log.
    token: Token,
    /// The logs with waiting lines, each once, by the time of their next look.
    waiting: BinaryHeap<Reverse<(Time, u64)>>,
    /// Lines that were dropped.
    dropped: u64,
    /// Messages about lost lines that were not reported yet.
    complaints: Vec<String>,
    clock: Clock,
    line: Vec<u8>,
    /// The random bits of which the ids of requests are made.
    seed: Seed,
    /// The number of the process, for messages to syslog.
    process: u32,
}

#[derive(Debug)]
struct OpenLog {
    id: LogId,
    log: Log,
    outlet: Outlet,
    /// The number of the log's dropped lines that [`Logs::dropped`] includes.
    counted: u64,
    /// True if the log is in [`Logs::waiting`].
    is_waiting: bool,
    /// The part of a line that is due, in millionths.
    owed: u32,
}

impl OpenLog {
    /// Returns whether a response with this status has a line.
    fn wants(&mut self, status: Status) -> bool {
        let Log { statuses, sample, .. } = &self.log;
        if !statuses.is_empty() && !statuses.iter().any(|one| one.has(status.code())) {
            return false;
        }
        self.owed += sample.of_million;
        let is_due = self.owed >= Sample::ALL;
        if is_due {
            self.owed -= Sample::ALL;
        }
        is_due
    }
}

impl Logs {
    /// No logs yet. The tokens of their writes are `token` plus a number below 2⁵⁶.
    pub fn new(token: Token) -> Self {
        Self {
            all: Slab::new(),
            by_log: HashMap::new(),
            token,
            waiting: BinaryHeap::new(),
            dropped: 0,
            complaints: Vec::new(),
            clock: Clock::default(),
            line: Vec::new(),
            seed: Seed::default(),
            process: std::process::id(),
        }
    }

    /// Makes the ids of requests from these random bits.
    pub const fn set_seed(&mut self, seed: Seed) {
        self.seed = seed;
    }

    /// Opens a log. If the log is open already, the file replaces the earlier one.
    pub fn open(&mut self, log: &Log, file: Fd, now: Time) {
        if let Some(key) = self.by_log.get(log).copied()
            && let Some(open) = self.all.get_mut(key)
        {
            open.outlet.replace(file, now);
            return self.look_after(key, now);
        }
        let token = self.token;
        let key = self.all.insert_with(|key| {
            let outlet = Outlet::new(&log.target, file, token + key.to_bits());
            let (id, log) = (LogId(Rc::new(key)), log.clone());
            OpenLog { id, log, outlet, counted: 0, is_waiting: false, owed: 0 }
        });
        self.by_log.insert(log.clone(), key);
    }

    /// The id of an open log.
    pub fn id(&self, log: &Log) -> Option<LogId> {
        let key = self.by_log.get(log)?;
        Some(self.all.get(*key)?.id.clone())
    }

    /// Closes the logs to which no request will write any more.
    pub fn close_unused(&mut self) {
        let Self { all, by_log, .. } = self;
        by_log.retain(|_, key| {
            let is_used = all
                .get(*key)
                .is_some_and(|open| Rc::strong_count(&open.id.0) > 1 || !open.outlet.is_quiet());
            if !is_used {
                all.remove(*key);
            }
            is_used
        });
    }

    /// Returns true if there is no log.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Writes the line of a response on a connection of this origin, if it is logged. `bytes` bytes of the body have been
    /// sent by now.
    pub fn record(
        &mut self,
        ring: &mut Ring,
        record: &Record,
        origin: &Origin,
        bytes: u64,
        cut: Option<Cut>,
        now: Time,
    ) {
        let Some(id) = &record.recording.log else { return };
        // A log stays open as long as something refers to its id.
        let Some(open) = self.all.get_mut(*id.0) else { return };
        if !open.wants(record.status) {
            return;
        }
        self.line.clear();
        let peer = origin.client().map_or("-", |client| &*client.name);
        let forwarded = record.client.map(|client| client.to_string());
        let client = forwarded.as_deref().unwrap_or(peer);
        let (handshake, duration) = (origin.handshake(), now.since(record.began));
        let (seed, process) = (self.seed, self.process);
        let is_plain = record.text.is_plain();
        let line =
            Line { record, is_plain, peer, client, handshake, bytes, duration, cut, seed, process };
        line.write_for(&open.log, &mut self.clock, &mut self.line);
        open.outlet.add(ring, &self.line, now);
        // A log that waits is looked after soon.
        if !open.is_waiting {
            self.look_after(*id.0, now);
        }
    }

    /// Handles the completion of a write to a log.
    pub fn written(&mut self, ring: &mut Ring, completion: Completion, now: Time) {
        let key = Key::from_bits(completion.token - self.token);
        // If the last write of a log was given up, the log may be closed.
        let Some(open) = self.all.get_mut(key) else { return };
        open.outlet.written(ring, completion, now);
        self.look_after(key, now);
    }

    /// Writes the lines that are due; returns the time of the next call.
    pub fn flush(&mut self, ring: &mut Ring, now: Time) -> Option<Time> {
        while let Some(Reverse((due, key))) = self.waiting.peek().copied() {
            if due > now {
                return Some(due);
            }
            self.waiting.pop();
            let key = Key::from_bits(key);
            if let Some(open) = self.all.get_mut(key) {
                open.is_waiting = false;
                open.outlet.flush(ring, now);
                self.look_after(key, now);
            }
        }
        None
    }

    /// Plans the next look at a log, when its lines are due, and collects its messages.
    fn look_after(&mut self, key: Key, now: Time) {
        let Some(open) = self.all.get_mut(key) else { return };
        if !open.is_waiting
            && let Some(due) = open.outlet.due()
        {
            open.is_waiting = true;
            self.waiting.push(Reverse((due.max(now), key.to_bits())));
        }
        let dropped = open.outlet.dropped();
        self.dropped += dropped - core::mem::replace(&mut open.counted, dropped);
        self.complaints.extend(open.outlet.complaint());
    }

    /// The next message about lost lines that has to be reported.
    pub fn complaint(&mut self) -> Option<String> {
        self.complaints.pop()
    }

    /// Lines dropped so far.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Lines that were dropped and not reported, and lines that still wait.
    pub fn lost(&self) -> u64 {
        self.all.iter().map(|(_, open)| open.outlet.lost()).sum()
    }

    /// Writes the waiting lines at once, for the end of a worker; returns true if none is left.
    pub fn hurry(&mut self, ring: &mut Ring, now: Time) -> bool {
        let keys: Vec<_> = self.all.keys().collect();
        let mut is_quiet = true;
        for key in keys {
            let Some(OpenLog { outlet, .. }) = self.all.get_mut(key) else { continue };
            outlet.hurry(ring, now);
            is_quiet &= outlet.is_quiet();
        }
        is_quiet
    }
}

/// Says how many lines were dropped.
fn dropped_lines(count: u64) -> String {
    match count {
        1 => "1 line was dropped".to_owned(),
        count => format!("{count} lines were dropped"),
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;
    use core::time::Duration;
    use std::fs::{self, File};

    use ring::Choice;

    use super::*;
    use config::{LogFormat, LogTarget};
    use session::record::More;

    const TOKEN: Token = 7 << 56;

    fn record(log: &LogId, site: &str) -> Box<Record> {
        let log = Some(log.clone());
        let recording = Recording {
            site: site.into(),
            log,
            label: None,
            shows_more: true,
            shows_host: true,
            shows_trace: true,
        };
        let began = Began { at: Time::default(), unix_ms: 0, disk_wait: Duration::ZERO };
        Record::new(Rc::new(recording), None, Status::BadRequest, began, More::Untrusted)
    }

    fn origin() -> Origin {
        Origin { listener: 0, peer: SocketAddr::from(([192, 0, 2, 1], 80)).into() }
    }

    #[test]
    fn one_line_is_no_lines() {
        assert_eq!(dropped_lines(1), "1 line was dropped");
        assert_eq!(dropped_lines(2), "2 lines were dropped");
    }

    /// Waits until all lines have been written, as a worker does.
    fn settle(logs: &mut Logs, ring: &mut Ring) {
        let (mut completions, began) = (Vec::new(), ring.now());
        while logs.all.iter().any(|(_, open)| !open.outlet.is_quiet()) {
            assert!(ring.now().since(began) < Duration::from_secs(10), "{logs:?}");
            let now = ring.now();
            let due = logs.flush(ring, now);
            ring.wait(due.or(Some(now + Duration::from_millis(10))), &mut completions).unwrap();
            for completion in completions.drain(..) {
                let now = ring.now();
                logs.written(ring, completion, now);
            }
        }
    }

    #[test]
    fn sites_with_the_same_target_and_format_share_a_log() {
        let mut ring = Ring::new(Choice::Epoll).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let log =
            |name, format| Log { target: LogTarget::File(path(name)), format, ..Log::default() };
        let (a, json) = (log("a", LogFormat::Common), log("a", LogFormat::Json));
        let b = log("b", LogFormat::Json);
        let mut logs = Logs::new(TOKEN);
        for log in [&a, &json, &b] {
            let LogTarget::File(path) = &log.target else { unreachable!("a file") };
            let file = File::options().create(true).append(true).open(path).unwrap();
            logs.open(log, ring.adopt_file(file.into()), Time::default());
        }
        assert!(logs.id(&log("c", LogFormat::Json)).is_none());
        let ids = [&a, &b, &a, &json].map(|log| logs.id(log).unwrap());
        assert!(ids[0].0 == ids[2].0 && ids[0].0 != ids[3].0);
        for _ in 0..3 {
            for (id, site) in ids.iter().zip(["one", "two", "three", "four"]) {
                let now = ring.now();
                logs.record(&mut ring, &record(id, site), &origin(), 0, None, now);
            }
            settle(&mut logs, &mut ring);
        }
        let (of_a, of_b) = (fs::read_to_string(path("a")).unwrap(), fs::read_to_string(path("b")));
        assert_eq!(of_a.matches("] \"-\" 400 0\n").count(), 6, "{of_a}");
        assert_eq!(of_a.matches("\"site\":\"four\"").count(), 3, "{of_a}");
        assert_eq!(of_b.unwrap().matches("\"site\":\"two\"").count(), 3);
        assert_eq!((logs.dropped(), logs.lost()), (0, 0));
    }

    #[test]
    fn a_log_that_nothing_refers_to_is_closed_and_not_before_its_lines_are_written() {
        let mut ring = Ring::new(Choice::Epoll).unwrap();
        let (a, b) = (Log::default(), Log { format: LogFormat::Json, ..Log::default() });
        let mut logs = Logs::new(TOKEN);
        for log in [&a, &b] {
            logs.open(log, ring.adopt_file(tempfile::tempfile().unwrap().into()), Time::default());
        }
        let id = logs.id(&a).unwrap();
        let record = record(&id, "site");
        drop(id);
        logs.close_unused();
        assert!(logs.id(&a).is_some() && logs.id(&b).is_none());
        let now = ring.now();
        logs.record(&mut ring, &record, &origin(), 0, None, now);
        drop(record);
        logs.close_unused();
        assert!(logs.id(&a).is_some(), "a line waits");
        settle(&mut logs, &mut ring);
        logs.close_unused();
        assert!(logs.id(&a).is_none() && logs.is_empty());
    }
}

//! The devices of a worker: the ring, the disk, the clock, the logs.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use http::Status;
use ring::{Device, Ring, Silences, Time, Token, Verdict};
use sendfile::{Disk, DiskStats, Silence};

use crate::context::Context;
use crate::log::{Cut, Logs, Record, Recording, Sink};
use crate::metrics::Meters;
use crate::other_protocol::{OtherProtocol, Told};
use crate::say::message;
use crate::serving::{Serving, Snapshot};

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
    /// An operation of the disk.
    pub(crate) const DISK: Token = 6 << 56;
    /// Another thread has woken the worker.
    pub(crate) const WAKE: Token = 7 << 56;
    /// A listener that ran out of descriptors tries again; its number follows.
    pub(crate) const RESUME: Token = 8 << 56;
    /// The access log was written.
    pub(crate) const ACCESS: Token = 9 << 56;
    /// A note to the operator was written.
    pub(crate) const NOTE: Token = 10 << 56;
    /// The operations of another network than the kernel's; the rest of the token is its own.
    pub const NETWORK: Token = 11 << 56;
    /// A read of a film whose layout is learned.
    pub(crate) const LAYOUT: Token = 12 << 56;
    /// A pipe of a program, or the timer of all programs.
    pub(crate) const CGI: Token = 13 << 56;
    /// A link to a server makes its connection or receives, or the timer of all exchanges.
    pub(crate) const LINK: Token = 14 << 56;
    /// A link to a server can send.
    pub(crate) const LINK_WRITABLE: Token = 15 << 56;
    /// A check of a server makes its connection or receives, or the timer of all checks.
    pub(crate) const CHECK: Token = 17 << 56;
    /// A check of a server can send.
    pub(crate) const CHECK_WRITABLE: Token = 18 << 56;
    /// The timer of content's periodic cleanup.
    pub(crate) const TIDY: Token = 16 << 56;
    /// A read of a page with directives, or the timer of all of them; in a ticket, a hole of a page.
    pub(crate) const PAGE: Token = 19 << 56;
    /// The file of a buffer for a slow client is opened, written or given back; the exchange follows.
    pub(crate) const SPOOL: Token = 20 << 56;
    /// The file of a body for a FastCGI application is opened, written or read.
    pub(crate) const SCRIPT_BODY: Token = 21 << 56;
    /// The same for a program.
    pub(crate) const PROGRAM_BODY: Token = 22 << 56;
    /// The operations of a handler that wraps another one; the rest of the token is its own.
    pub const HANDLER: Token = 32 << 56;
    /// The bits of a token that hold the kind.
    pub const MASK: Token = 0xff << 56;
}

/// The minimum time between two messages about the same thing.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// The subject of a message to the operator that each request could cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Complaint {
    /// As many connections as are allowed.
    Connections,
    /// No more descriptors, or no memory.
    Descriptors,
    /// No more descriptors for files.
    Files,
    /// A disk that does not answer.
    Disk,
    /// Files that cannot be read.
    Unreadable,
    /// Headers of the PROXY protocol.
    ProxyHeader,
    /// Redirects that lead to their own path.
    Redirects,
    /// Pages that cannot be made as they say.
    Includes,
    /// Files in which bodies of requests wait.
    Bodies,
}

/// The ring, the disk, the logs, and the context of decisions.
#[derive(Debug)]
pub struct Shell {
    /// The ring.
    pub ring: Ring,
    /// The clock, limits and counters.
    pub cx: Context,
    pub(crate) disk: Disk,
    pub(crate) logs: Logs,
    pub(crate) meters: Meters,
    pub(crate) notes: Sink,
    /// The times of the last messages.
    complained: BTreeMap<Complaint, Time>,
    silences: Arc<Silences<String>>,
    told: Arc<Told>,
}

impl Shell {
    pub(crate) fn new(
        ring: Ring,
        disk: Disk,
        serving: Rc<Serving>,
        logs: Logs,
        meters: Meters,
        notes: Sink,
        (silences, told): (Arc<Silences<String>>, Arc<Told>),
    ) -> Self {
        let (cx, complained) = (Context::new(serving), BTreeMap::new());
        let mut shell = Self { ring, cx, disk, logs, meters, notes, complained, silences, told };
        shell.tick();
        shell
    }

    /// Begins a turn.
    pub(crate) fn tick(&mut self) {
        self.cx.tick(self.ring.woke_at(), || self.ring.unix_clock());
        while let Some(device) = self.ring.next_answered() {
            self.note_answer(device);
        }
    }

    /// Returns whether a request for a device is refused, because that does not answer. In each `timeout_disk` one
    /// request of all workers is not, and tries it.
    pub(crate) fn refuses(&mut self, device: Device) -> bool {
        let patience = self.cx.tuning.timeout_disk;
        if self.ring.refuses(device, patience) {
            return true;
        }
        match self.silences.judge(device, self.cx.now, patience) {
            Verdict::Answers => false,
            Verdict::Refused => true,
            Verdict::Try => {
                self.ring.report(device);
                false
            }
        }
    }

    /// Returns whether a device has answered nothing for `patience`, or is known not to answer, also if one request may
    /// try it now.
    pub(crate) fn is_silent(&self, device: Device, patience: Duration) -> bool {
        self.ring.silence(device) >= patience || self.silences.is_silent(device)
    }

    /// Tells the operator, unless another worker has, that the device of a path has not answered for `timeout_disk`,
    /// if that is so. Something that was asked of it is late.
    pub(crate) fn report_silence(&mut self, device: Device, path: Option<&[u8]>) {
        let silence = self.ring.silence(device);
        if silence < self.cx.tuning.timeout_disk {
            // Other calls have ended meanwhile, but perhaps the kernel had their answers in memory.
            return self.ring.doubt(device);
        }
        let calls = self.ring.report(device);
        let number = number_of(device);
        let name = match path {
            Some(path) => format!("the disk of /{}{number}", String::from_utf8_lossy(path)),
            None => format!("a disk{number}"),
        };
        if self.silences.begin(device, name.clone(), silence, self.cx.now) {
            let seconds = silence.as_secs_f64();
            self.note(&format!(
                "{name} has not answered for {seconds:.0} s: {calls} calls of one worker wait for it; until it \
                 answers, requests for its files get a 503"
            ));
        }
    }

    /// Tells the operator of a device whose reads have stopped to end, or end again.
    #[cold]
    pub(crate) fn tell_silence(&mut self, silence: Silence) {
        match silence {
            Silence::Begun(device) => {
                let (number, patience) = (number_of(device), self.cx.tuning.timeout_disk);
                let seconds = patience.as_secs_f64();
                self.note(&format!(
                    "no read of a disk{number} has ended for {seconds:.0} s; until one does, requests for what is \
                     not in memory get a 503"
                ));
            }
            Silence::Ended(device) => {
                let number = number_of(device);
                self.note(&format!("reads of a disk{number} end again"));
            }
        }
    }

    /// Tells the operator that a path cannot be looked at or read.
    #[cold]
    pub(crate) fn complain_of_disk(
        &mut self,
        device: Device,
        path: &[u8],
        error: &io::Error,
        status: Status,
    ) {
        self.cx.stats.disk_errors += 1;
        let (path, number) = (String::from_utf8_lossy(path), number_of(device));
        let text =
            format!("cannot read /{path}{number}: {error}; its clients get a {}", status.code());
        self.complain(Complaint::Unreadable, &text);
    }

    #[cold]
    fn note_answer(&mut self, device: Device) {
        if let Some(name) = self.silences.end(device, self.cx.now) {
            self.note(&format!("{name} answers again"));
        }
    }

    /// Writes a message to the operator.
    pub(crate) fn note(&mut self, text: &str) {
        self.notes.line(&mut self.ring, &message(text));
    }

    /// Tells the operator that a limit of the system has been reached, at most once in
    /// [`COMPLAINT_INTERVAL`].
    pub(crate) fn complain_of_limit(&mut self, error: &io::Error) {
        self.cx.stats.descriptor_shortages += 1;
        self.complain(Complaint::Descriptors, &format!(
            "out of descriptors or memory: {error}; clients wait until some are free (raise the limit \
             with `ulimit -n`, or lower --max-connections)"
        ));
    }

    /// Tells the operator that responses hold all descriptors that are for files, at most once in
    /// [`COMPLAINT_INTERVAL`].
    pub(crate) fn complain_of_files(&mut self, most: usize) {
        self.cx.stats.descriptor_shortages += 1;
        self.complain(Complaint::Files, &format!(
            "slow clients keep {most} files open, as many as there are descriptors for in a worker; requests for \
             other large files get 503 (raise the limit with `ulimit -n`, or --rate-min)"
        ));
    }

    /// Tells the operator of something, at most once in [`COMPLAINT_INTERVAL`].
    pub(crate) fn complain(&mut self, about: Complaint, text: &str) {
        let now = self.cx.now;
        let last = self.complained.get(&about);
        if last.is_none_or(|then| now.since(*then) >= COMPLAINT_INTERVAL) {
            self.complained.insert(about, now);
            self.note(text);
        }
    }

    /// Tells the operator of a client of this turn that speaks another protocol than HTTP/1, unless any worker has a short
    /// time ago.
    #[cold]
    pub(crate) fn tell_protocol(&mut self, protocol: OtherProtocol, client: Option<IpAddr>) {
        if self.told.is_due(protocol, self.cx.now) {
            let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
            self.note(&protocol.text(&client));
        }
    }

    /// Takes the completion of a write to a log.
    pub(crate) fn log_written(&mut self, completion: ring::Completion) {
        let now = self.cx.now;
        if completion.token & kind::MASK == kind::NOTE {
            self.notes.written(&mut self.ring, completion, now);
        } else {
            self.logs.written(&mut self.ring, completion, now);
        }
    }

    /// Writes the lines that are due in the access logs; returns when to call it again.
    pub(crate) fn flush_logs(&mut self) -> Option<Time> {
        let due = self.logs.flush(&mut self.ring, self.cx.now);
        while let Some(complaint) = self.logs.complaint() {
            self.note(&complaint);
        }
        self.cx.stats.log_lines_dropped = self.notes.dropped() + self.logs.dropped();
        due
    }

    /// The places where the requests of each site of a snapshot are recorded, whose logs are open. Empty if
    /// those of none are. Logs that neither these nor requests that are being answered refer to are closed.
    pub(crate) fn recordings(&mut self, snapshot: &Snapshot) -> Vec<Option<Rc<Recording>>> {
        let Self { cx, logs, meters, .. } = self;
        let sites = snapshot.records();
        cx.counts = snapshot.shows_metrics();
        let counted = if cx.counts { sites } else { &[] };
        let labels = meters.configure(counted.iter().map(|(name, _)| &name[..]));
        let recordings = sites.iter().enumerate().map(|(index, (name, log))| {
            let (log, label) = (logs.id(log), labels.get(index).copied());
            let is_recorded = log.is_some() || label.is_some();
            is_recorded.then(|| Rc::new(Recording { site: name[..].into(), log, label }))
        });
        let recordings: Vec<_> = recordings.collect();
        logs.close_unused();
        cx.logs = !logs.is_empty();
        if recordings.iter().all(Option::is_none) { Vec::new() } else { recordings }
    }

    /// Logs and counts a request whose response has left, or of which no more will leave.
    /// `bytes` bytes of its body have been sent.
    pub(crate) fn record(&mut self, record: &Record, bytes: u64, peer: &str, cut: Option<Cut>) {
        // Not when the turn began, because the requests before it may have taken long.
        let now = self.ring.now();
        if let Some(observation) = record.observation(bytes, now) {
            self.meters.observe(&observation);
        }
        self.logs.record(&mut self.ring, record, peer, bytes, cut, now);
    }

    /// Shows the numbers of the worker at the end of a turn, where requests are counted.
    pub(crate) fn end_turn(&mut self, connections: usize) {
        let stats = &mut self.cx.stats;
        stats.connections = connections as u64;
        let DiskStats { hits, hit_bytes, misses, miss_bytes, ended } = self.disk.stats();
        (stats.residency_hits, stats.residency_hit_bytes) = (hits, hit_bytes);
        (stats.residency_misses, stats.residency_miss_bytes) = (misses, miss_bytes);
        let length = self.ring.now().since(self.cx.now);
        self.meters.end_turn(stats, length);
        self.meters.show_devices((misses, ended), || self.disk.devices());
        self.meters.show_unanswered(self.ring.silent(self.cx.tuning.timeout_disk));
    }
}

/// A device's number as operators know it, if it has one.
fn number_of(device: Device) -> String {
    match device.numbers() {
        Some((major, minor)) => format!(" (device {major}:{minor})"),
        None => String::new(),
    }
}

/// The connection's id in a token.
pub(crate) const fn id_of(token: Token) -> u64 {
    token & !kind::MASK
}

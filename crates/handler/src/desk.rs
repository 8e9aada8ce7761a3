//! The parts that a worker has in addition to its ring and its context: the served configuration, the logs, the
//! numbers, and the messages to the operator.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ring::{Completion, Ring, Time};
use sendfile::{Disk, DiskStats};

use crate::serving::{Servings, Snapshot};
use crate::status_page::Board;
use config::Variable;
use logs::say::message;
use logs::{Cut, Logs, Record, Recording, Sink};
use metrics::Meters;
use session::context::Context;
use session::kind;
use session::network::Origin;
use session::other_protocol::{OtherProtocol, Reported};
use session::shell::{Complaint, Operator};

/// The minimum time between two messages about the same thing.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// The part of a worker's shell that only its owner knows: what is served, the logs, the numbers and the messages.
#[derive(Debug)]
pub struct Desk {
    /// The current configuration, and earlier ones that connections still use.
    pub servings: Rc<Servings>,
    /// The access logs.
    pub logs: Logs,
    pub(crate) meters: Meters,
    /// The messages to the operator.
    pub notes: Sink,
    /// The times of the last complaints.
    complained: BTreeMap<Complaint, Time>,
    reported: Arc<Reported>,
    pub(crate) board: Arc<Board>,
}

impl Operator for Desk {
    fn note(&mut self, ring: &mut Ring, text: &str) {
        self.notes.line(ring, &message(text));
    }

    /// Writes a message, at most once in `COMPLAINT_INTERVAL`.
    fn complain(&mut self, ring: &mut Ring, now: Time, about: Complaint, text: &str) {
        let last = self.complained.get(&about);
        if last.is_none_or(|then| now.since(*then) >= COMPLAINT_INTERVAL) {
            self.complained.insert(about, now);
            self.note(ring, text);
        }
    }
}

impl Desk {
    /// Returns the desk of a worker. Its board, and the times of its reports of protocols, are shared with other workers.
    pub const fn new(
        servings: Rc<Servings>,
        logs: Logs,
        meters: Meters,
        notes: Sink,
        reported: Arc<Reported>,
        board: Arc<Board>,
    ) -> Self {
        Self { servings, logs, meters, notes, complained: BTreeMap::new(), reported, board }
    }

    /// Tells the operator of a client of this turn that speaks another protocol than HTTP/1, unless any worker has a short
    /// time ago.
    #[cold]
    pub fn tell_protocol(
        &mut self,
        ring: &mut Ring,
        now: Time,
        (protocol, client): (OtherProtocol, Option<IpAddr>),
    ) {
        if self.reported.is_due(protocol, now) {
            let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
            self.note(ring, &protocol.text(&client));
        }
    }

    /// Handles the completion of a write to a log.
    pub fn log_written(&mut self, ring: &mut Ring, now: Time, completion: Completion) {
        if completion.token & kind::MASK == kind::NOTE {
            self.notes.written(ring, completion, now);
        } else {
            self.logs.written(ring, completion, now);
        }
    }

    /// Writes the lines that are due in the access logs; returns when to call it again.
    pub fn flush_logs(&mut self, ring: &mut Ring, cx: &mut Context) -> Option<Time> {
        let due = self.logs.flush(ring, cx.now);
        while let Some(complaint) = self.logs.complaint() {
            self.note(ring, &complaint);
        }
        cx.stats.log_lines_dropped.set(self.notes.dropped() + self.logs.dropped());
        due
    }

    /// The places where the requests of each site of a snapshot are recorded, whose logs are open. Empty if
    /// those of none are. Logs that neither these nor requests that are being answered refer to are closed.
    pub(crate) fn recordings(
        &mut self,
        cx: &mut Context,
        snapshot: &Snapshot,
    ) -> Vec<Option<Rc<Recording>>> {
        let Self { logs, meters, .. } = self;
        let places = snapshot.records();
        let sites = &places[..snapshot.sites_len()];
        cx.counts = snapshot.shows_metrics();
        let counted = if cx.counts { sites } else { &[] };
        let labels = meters.configure(counted.iter().map(|place| &place.name[..]));
        let recordings = places.iter().map(|place| {
            let (log, label) = (logs.id(&place.log), labels.get(place.site).copied());
            let is_recorded = log.is_some() || label.is_some();
            let (site, shows_more) = (place.name[..].into(), place.shows_more());
            let (shows_host, shows_trace) =
                (place.shows(Variable::Host), place.shows(Variable::Traceparent));
            let recording = Recording { site, log, label, shows_more, shows_host, shows_trace };
            is_recorded.then(|| Rc::new(recording))
        });
        let recordings: Vec<_> = recordings.collect();
        logs.close_unused();
        cx.logs = !logs.is_empty();
        if recordings.iter().all(Option::is_none) { Vec::new() } else { recordings }
    }

    /// Logs and counts a request whose response has left, or of which no more will leave.
    /// `bytes` bytes of its body have been sent, on a connection of this origin.
    pub fn record(
        &mut self,
        ring: &mut Ring,
        record: &Record,
        bytes: u64,
        origin: &Origin,
        cut: Option<Cut>,
    ) {
        let Recording { label, shows_more, .. } = *record.recording;
        // The usual formats have no durations. A duration does not end when the turn began, because the requests before
        // it may have taken long.
        let has_duration = label.is_some() || shows_more;
        let now = if has_duration { ring.now() } else { ring.woke_at() };
        if let Some(observation) = record.observation(bytes, now) {
            self.meters.observe(&observation);
        }
        self.logs.record(ring, record, origin, bytes, cut, now);
    }

    /// Shows the numbers of the worker at the end of a turn, where requests are counted.
    pub fn end_turn(&mut self, ring: &Ring, cx: &Context, disk: &Disk, connections: usize) {
        let stats = &cx.stats;
        stats.connections.set(connections as u64);
        let DiskStats { hits, hit_bytes, misses, miss_bytes, ended } = disk.stats();
        stats.residency_hits.set(hits);
        stats.residency_hit_bytes.set(hit_bytes);
        stats.residency_misses.set(misses);
        stats.residency_miss_bytes.set(miss_bytes);
        let length = ring.now().since(cx.now);
        self.meters.end_turn(length);
        self.meters.show_devices([misses, ended, disk.waiting() as u64], || disk.devices());
        self.meters.show_unanswered(ring.silent(cx.tuning.timeout_disk));
    }
}

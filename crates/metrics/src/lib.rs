//! Counts the work of all workers, for Prometheus and for the page of the operator.
//!
//! Each worker has `Meters`, to which it alone writes, without locks. Their numbers are shared: a scrape
//! adds up the numbers of all workers (`Metrics::exposition`). The numbers of requests and of events are exact at any
//! time. What the worker has to look at, such as its connections, is written at the end of each worker turn, so an idle
//! worker has no unwritten numbers.
//!
//! The values of labels come only from the configuration and from fixed tables, so clients cannot make
//! series. A series (site, scheme, method, status) is made at the first request with its labels.
//!
//! Reading list: OpenTelemetry's semantic conventions for HTTP metrics, and its rules for names in
//! Prometheus; Prometheus' text format 0.0.4.

#![forbid(unsafe_code)]

mod exposition;
mod histogram;
mod series;
mod stats;
mod summary;

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::SystemTime;

use ring::Device;
use sendfile::DeviceStats;

pub use exposition::{CONTENT_TYPE, Exposition};
pub use histogram::Number;
use histogram::{DURATIONS, Durations, nanos};
use series::{Labels, Series, Sites};
pub use series::{MethodLabel, Observation, SchemeLabel, SiteLabel, StatusLabel};
pub use stats::{Counters, HTTP2_ATTACKS, Stats};
pub use summary::{Latencies, SiteNumbers, Summary};

/// The numbers of all workers, and of the process.
#[derive(Debug)]
pub struct Metrics {
    workers: Vec<Arc<Shown>>,
    loads: Mutex<Loads>,
    /// Certificates that were read again because their files had changed, and that are used.
    tls_renewals: AtomicU64,
    /// Those that cannot be used.
    tls_renewal_failures: AtomicU64,
    certificates: Mutex<Vec<CertificateNumbers>>,
}

/// The numbers of one worker, for readers.
#[derive(Debug)]
struct Shown {
    counters: Arc<Counters>,
    turns: Durations,
    /// The longest turn so far, in nanoseconds.
    longest_turn: Number,
    series: Mutex<BTreeMap<Labels, Arc<Series>>>,
    devices: Mutex<Vec<(Device, DeviceStats)>>,
    /// Calls that devices have not answered for a long time.
    unanswered: Mutex<Vec<(Device, usize)>>,
}

/// The numbers of one worker, for this worker, which writes them.
#[derive(Debug)]
pub struct Meters {
    metrics: Arc<Metrics>,
    shown: Arc<Shown>,
    sites: Sites,
    /// Series that are not shown yet.
    unshown: Vec<(Labels, Arc<Series>)>,
    /// True if series of sites that are no longer configured may be shown.
    has_stale: bool,
    /// The counts of begun and ended reads and of waiting streams when the devices were last shown.
    shown_reads: [u64; 3],
    /// True if calls are shown that devices have not answered.
    has_unanswered: bool,
}

/// The numbers of a device, of all workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceNumbers {
    /// Its reads. The rate is the highest that a worker has learned.
    pub reads: DeviceStats,
    /// Calls that it has not answered for a long time.
    pub unanswered: u64,
}

/// The configurations that were loaded.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Those that were used, the first one included.
    pub successes: u64,
    /// Those that were refused.
    pub failures: u64,
    /// The hash of the configuration in use, if it came from a file.
    pub hash: Option<String>,
    /// When it was loaded.
    pub loaded_at: Option<SystemTime>,
    /// The last one, if it was refused.
    pub refusal: Option<RefusedLoad>,
}

/// A configuration that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLoad {
    /// The time of the refusal.
    pub at: SystemTime,
    /// The errors, of [`REFUSAL_BYTES_MAX`] bytes at most.
    pub text: String,
}

/// The maximum number of bytes of a text about a refused configuration. The rest is left out.
pub const REFUSAL_BYTES_MAX: usize = 4096;

/// The numbers of a server of an upstream.
#[derive(Clone, Debug, Default)]
pub struct ServerNumbers {
    /// The site and the path of the route.
    pub upstream: String,
    /// Its address, as the configuration has it.
    pub server: String,
    /// False while its health check or its failures keep requests away.
    pub is_up: bool,
    /// Requests that were sent to it.
    pub requests: u64,
    /// Requests without a complete response.
    pub in_flight: u64,
    /// Requests and connections that failed by its fault.
    pub failures: u64,
    /// The times until its responses began.
    pub times: UpstreamTimes,
    /// The handshakes with it, if it speaks TLS.
    pub handshakes: Option<UpstreamHandshakes>,
}

/// The TLS handshakes with a server of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamHandshakes {
    /// Complete ones, with a verification of the server.
    pub full: u64,
    /// Complete ones that have resumed an earlier session.
    pub resumed: u64,
    /// Those that have failed.
    pub failed: u64,
}

/// The upper bounds of the buckets of [`UpstreamTimes`], in nanoseconds and as they are shown. With the last bucket there
/// are ten.
pub const UPSTREAM_BOUNDS: [(u64, &str); 9] = [
    (5_000_000, "0.005"),
    (25_000_000, "0.025"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (10_000_000_000, "10"),
    (30_000_000_000, "30"),
];

/// The times until the responses of a server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTimes {
    /// The responses in each bucket; the last bucket has no bound.
    pub counts: [u64; UPSTREAM_BOUNDS.len() + 1],
    /// The sum of the times, in nanoseconds.
    pub sum: u64,
}

/// The numbers of the process, as the kernel has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessNumbers {
    /// The time of processors, in nanoseconds.
    pub cpu: u64,
    /// Bytes of memory that are resident.
    pub resident: u64,
    /// Bytes of address space.
    pub address_space: u64,
    /// The time of the start, in seconds since 1970, if `/proc/stat` may be read.
    pub started: Option<u64>,
    /// Open descriptors, if the kernel tells (from Linux 6.2 on).
    pub descriptors: Option<u64>,
    /// The limit of descriptors.
    pub descriptors_max: u64,
}

/// The numbers of a certificate that clients are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNumbers {
    /// The name of the site.
    pub site: String,
    /// The path of its file; empty if the server has made it.
    pub file: String,
    /// The last second in which it is valid, in seconds since 1970.
    pub expires_at: i64,
}

impl Metrics {
    /// Makes the numbers of `workers` workers.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| Arc::new(Shown::new())).collect();
        Arc::new(Self {
            workers,
            loads: Mutex::default(),
            tls_renewals: AtomicU64::new(0),
            tls_renewal_failures: AtomicU64::new(0),
            certificates: Mutex::default(),
        })
    }

    /// The numbers of a worker, which that alone writes.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    pub fn meters(self: &Arc<Self>, worker: usize) -> Meters {
        let (metrics, shown) = (Arc::clone(self), Arc::clone(&self.workers[worker]));
        Meters {
            metrics,
            shown,
            sites: Sites::default(),
            unshown: Vec::new(),
            has_stale: false,
            shown_reads: [0; 3],
            has_unanswered: false,
        }
    }

    /// Notes that a configuration has been loaded, the first one included: its hash, if it came from a
    /// file, and the time.
    pub fn note_load(&self, hash: Option<&str>, at: SystemTime) {
        let mut loads = lock(&self.loads);
        loads.successes += 1;
        loads.hash = hash.map(str::to_owned);
        (loads.loaded_at, loads.refusal) = (Some(at), None);
    }

    /// Notes that a configuration has been refused with these errors: the one before stays in use.
    pub fn note_failed_load(&self, errors: &str, at: SystemTime) {
        let end = errors.len().min(REFUSAL_BYTES_MAX);
        let end = (0..=end).rev().find(|end| errors.is_char_boundary(*end)).unwrap_or(0);
        let text = errors[..end].to_owned();
        let mut loads = lock(&self.loads);
        loads.failures += 1;
        loads.refusal = Some(RefusedLoad { at, text });
    }

    /// Notes that files of a certificate have changed, and that the certificate is used.
    pub fn note_renewal(&self) {
        // No other memory depends on the counts.
        self.tls_renewals.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that files of a certificate have changed, and cannot be used: the one before stays in use.
    pub fn note_failed_renewal(&self) {
        self.tls_renewal_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers of renewals of certificates: used, and not used.
    pub fn tls_renewals(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.tls_renewals), of(&self.tls_renewal_failures))
    }

    /// Replaces the numbers of all certificates.
    pub fn set_certificates(&self, all: Vec<CertificateNumbers>) {
        *lock(&self.certificates) = all;
    }

    /// The numbers of the certificates that clients are shown, in the order of the configuration.
    pub fn certificates(&self) -> Vec<CertificateNumbers> {
        lock(&self.certificates).clone()
    }

    /// The text for a scrape.
    pub fn exposition(
        &self,
        servers: impl Iterator<Item = ServerNumbers>,
        process: Option<&ProcessNumbers>,
    ) -> Exposition {
        Exposition::new(self, servers, process)
    }

    /// The numbers of each device, by its own; those whose numbers are not known are one.
    fn devices(&self) -> BTreeMap<Option<(u64, u64)>, DeviceNumbers> {
        let mut all: BTreeMap<_, DeviceNumbers> = BTreeMap::new();
        for worker in &self.workers {
            for (device, stats) in lock(&worker.devices).iter() {
                let sum = &mut all.entry(device.numbers()).or_default().reads;
                sum.begun += stats.begun;
                sum.ended += stats.ended;
                sum.time += stats.time;
                sum.bytes += stats.bytes;
                sum.waiting += stats.waiting;
                // Each worker has learned it from its own reads, in addition to the reads of the others.
                sum.rate = sum.rate.max(stats.rate);
            }
            for (device, calls) in lock(&worker.unanswered).iter() {
                all.entry(device.numbers()).or_default().unanswered += *calls as u64;
            }
        }
        all
    }

    /// The numbers of all workers that have no labels of requests.
    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.workers.iter().for_each(|worker| stats += worker.counters.read());
        stats
    }

    /// The series of all workers, and those with the same labels together.
    fn series(&self) -> Vec<(Labels, Vec<Arc<Series>>)> {
        let mut listed = Vec::new();
        for worker in &self.workers {
            let series = lock(&worker.series);
            listed.extend(series.iter().map(|(labels, one)| (labels.clone(), Arc::clone(one))));
        }
        // Each worker's are in order already, and the sort makes use of that.
        listed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut all: Vec<(Labels, Vec<Arc<Series>>)> = Vec::new();
        for (labels, one) in listed {
            match all.last_mut() {
                Some((last, same)) if *last == labels => same.push(one),
                _ => all.push((labels, vec![one])),
            }
        }
        all
    }
}

impl Shown {
    fn new() -> Self {
        Self {
            counters: Arc::default(),
            turns: Durations::new(DURATIONS),
            longest_turn: Number::default(),
            series: Mutex::default(),
            devices: Mutex::default(),
            unanswered: Mutex::default(),
        }
    }
}

impl Meters {
    /// The numbers of all workers.
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Adds the names of the sites of a new configuration; returns their labels, in the same order.
    pub fn configure<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Vec<SiteLabel> {
        self.has_stale = true;
        self.sites.configure(names)
    }

    /// Counts a request.
    #[inline]
    pub fn observe(&mut self, observation: &Observation) {
        if let Some(new) = self.sites.observe(observation) {
            self.unshown.push(new);
        }
    }

    /// The numbers without labels. The worker alone may change them.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shown.counters)
    }

    /// Shows new series at the end of a turn, which took this long.
    #[inline]
    pub fn end_turn(&mut self, length: Duration) {
        self.shown.turns.observe_duration(length);
        let length = nanos(length);
        if length > self.shown.longest_turn.get() {
            self.shown.longest_turn.set(length);
        }
        if self.has_stale || !self.unshown.is_empty() {
            self.show_series();
        }
    }

    /// Shows each device, if these numbers of all devices have changed since: reads that have begun, those that have ended,
    /// and streams that wait.
    #[inline]
    pub fn show_devices<I: Iterator<Item = (Device, DeviceStats)>>(
        &mut self,
        reads: [u64; 3],
        devices: impl FnOnce() -> I,
    ) {
        if reads != self.shown_reads
            && let Some(mut shown) = try_lock(&self.shown.devices)
        {
            shown.clear();
            shown.extend(devices());
            self.shown_reads = reads;
        }
    }

    /// Shows the calls that devices have not answered for a long time.
    #[inline]
    pub fn show_unanswered(&mut self, calls: impl Iterator<Item = (Device, usize)>) {
        let mut calls = calls.peekable();
        let has_some = calls.peek().is_some();
        if (has_some || self.has_unanswered)
            && let Some(mut shown) = try_lock(&self.shown.unanswered)
        {
            shown.clear();
            shown.extend(calls);
            self.has_unanswered = has_some;
        }
    }

    /// Shows new series, and hides the series of sites that are no longer configured.
    #[cold]
    fn show_series(&mut self) {
        let Some(mut series) = try_lock(&self.shown.series) else { return };
        series.extend(self.unshown.drain(..));
        if core::mem::take(&mut self.has_stale) {
            series.retain(|labels, _| self.sites.has(&labels.site));
        }
    }
}

/// Takes a lock unless a scrape has it and copies the value: another turn will come.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The numbers behind a lock are valid after each statement, so a panic leaves them valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

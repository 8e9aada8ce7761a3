//! The figures of the page as JSON. Pure: figures go in as values.
//!
//! The text has one line and at most [`BYTES_MAX`] bytes, however many sites there are: if it would be longer, all lists are
//! cut to half, again and again. Each list says how many entries it leaves out. Text of clients is shown as on standard
//! error, with every hidden character escaped, and without `<`, `>` and `&`.

use core::fmt::{Display, Write as _};
use core::time::Duration;
use std::time::UNIX_EPOCH;

use config::text::{escape_json, plain};
use gateways::programs;
use metrics::{DeviceNumbers, Latencies, ProcessNumbers, ServerNumbers, Stats, Summary};
use ring::Time;

/// The maximum number of bytes of the text.
pub(crate) const BYTES_MAX: usize = 64 * 1024;

/// The maximum number of entries of a list.
pub(crate) const LISTED_MAX: usize = 64;

/// The bytes of a text that are shown; the rest is left out.
const TEXT_BYTES_MAX: usize = 256;

/// The figures of the server at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// The time of the server's clock.
    pub(crate) at: Time,
    /// The same in seconds since 1970.
    pub(crate) unix: i64,
    /// The counters of all workers.
    pub(crate) summary: Summary,
    /// The kernel's figures for the process.
    pub(crate) process: Option<ProcessNumbers>,
    /// Servers of upstreams, those that are down first.
    pub(crate) servers: Vec<ServerNumbers>,
    /// The number of all servers.
    pub(crate) servers_all: usize,
    /// Directories of programs, those with the longest queues first.
    pub(crate) programs: Vec<programs::Numbers>,
    /// The number of all directories of programs.
    pub(crate) programs_all: usize,
    /// The number of sites of the configuration.
    pub(crate) sites: usize,
    /// The number of routes.
    pub(crate) routes: usize,
    /// The last errors, the newest first.
    pub(crate) examples: Vec<Example>,
    /// The number of viewers of the page.
    pub(crate) viewers: usize,
}

/// A response with an error, and its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Example {
    /// Seconds since 1970.
    pub(crate) unix: i64,
    pub(crate) status: u16,
    pub(crate) method: String,
    pub(crate) host: String,
    /// The path without the query.
    pub(crate) path: String,
    /// The id of the request.
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// The counters of earlier figures, for rates.
#[derive(Debug)]
pub(crate) struct Earlier {
    at: Time,
    counts: Counts,
    latencies: Latencies,
    devices: Vec<(Option<(u64, u64)>, DeviceNumbers)>,
}

/// The counters that have rates.
#[derive(Clone, Copy, Debug)]
struct Counts {
    responses: u64,
    body_bytes: u64,
    accepted: u64,
}

impl Counts {
    const fn of(summary: &Summary) -> Self {
        let Stats { responses, accepted, .. } = summary.stats;
        Self { responses, body_bytes: summary.body_bytes, accepted }
    }
}

impl Earlier {
    pub(crate) fn of(figures: &Figures) -> Self {
        let Figures { at, summary, .. } = figures;
        let (latencies, devices) = (summary.latencies, summary.devices.clone());
        Self { at: *at, counts: Counts::of(summary), latencies, devices }
    }
}

/// A counter with its name.
type Named = (&'static str, fn(&Stats) -> u64);

/// The reasons for faults and refusals, in the order of the page.
const REASONS: &[Named] = &[
    ("403: not permitted (allow, deny)", |stats| stats.forbidden),
    ("429: too many requests (requests-per-ip)", |stats| stats.limited_requests),
    ("400: proxies name different clients", |stats| stats.forged_clients),
    ("413: body too long (max-body)", |stats| stats.long_bodies),
    ("421: handshake for other hosts", |stats| stats.tls_misdirected),
    ("500: redirect to its own path", |stats| stats.redirect_loops),
    ("disk: no answer in time (timeout-disk)", |stats| stats.disk_timeouts),
    ("disk: operation failed", |stats| stats.disk_errors),
    ("disk: file became shorter", |stats| stats.truncated),
    ("upstream: failed", |stats| stats.proxy_failed),
    ("upstream: no progress in time", |stats| stats.proxy_timeouts),
    ("upstream: client left before the end", |stats| stats.proxy_left),
    ("program: faulty response", |stats| stats.cgi_failed),
    ("program: stopped by SIGTERM", |stats| stats.cgi_killed),
    ("program: too many at a time", |stats| stats.cgi_refused),
    ("body of a request: no room on the disk", |stats| stats.body_files_failed),
    ("page with includes: faulty directive", |stats| stats.includes_failed),
    ("client: no complete request in time", |stats| stats.header_timeouts),
    ("client: takes its response too slowly", |stats| stats.slow_peers),
    ("client: too many connections (connections-per-ip)", |stats| stats.limited_connections),
    ("client: faulty header of the PROXY protocol", |stats| stats.proxy_header_errors),
    ("TLS: client certificate refused", |stats| stats.tls_clients_refused),
    ("TLS: handshake failed", |stats| stats.tls_handshakes_failed),
    ("TLS: too many handshakes", |stats| stats.tls_handshakes_refused),
    ("server: out of descriptors or memory", |stats| stats.descriptor_shortages),
    ("log: line lost", |stats| stats.log_lines_dropped),
];

/// The states of connections of samum's own TCP/IP stack.
const STACK_STATES: &[Named] = &[
    ("syn_received", |stats| stats.stack_syn_received),
    ("established", |stats| stats.stack_established),
    ("fin_wait_1", |stats| stats.stack_fin_wait_1),
    ("fin_wait_2", |stats| stats.stack_fin_wait_2),
    ("close_wait", |stats| stats.stack_close_wait),
    ("closing", |stats| stats.stack_closing),
    ("last_ack", |stats| stats.stack_last_ack),
    ("time_wait", |stats| stats.stack_time_wait),
];

/// The figures as a JSON object in one line of at most [`BYTES_MAX`] bytes.
pub(crate) fn render(figures: &Figures, earlier: Option<&Earlier>) -> String {
    let mut listed_max = LISTED_MAX;
    loop {
        let text = render_with(figures, earlier, listed_max);
        if text.len() <= BYTES_MAX || listed_max == 0 {
            return text;
        }
        listed_max /= 2;
    }
}

/// The figures with lists of at most `listed_max` entries.
fn render_with(figures: &Figures, earlier: Option<&Earlier>, listed_max: usize) -> String {
    let interval = earlier.map(|earlier| figures.at.since(earlier.at));
    let mut writer = Writer { text: String::new(), follows: false, listed_max };
    writer.braces('{', '}', |out| {
        out.text("version", env!("CARGO_PKG_VERSION"));
        out.number("time", figures.unix);
        out.maybe("interval_seconds", interval.map(seconds));
        out.number("viewers", figures.viewers);
        write_process(out, figures);
        write_requests(out, figures, earlier, interval);
        write_connections(out, figures, earlier, interval);
        write_disks(out, figures, earlier, interval);
        write_servers(out, figures);
        write_programs(out, figures);
        write_config(out, figures);
        write_errors(out, figures);
    });
    writer.text
}

fn write_process(out: &mut Writer, Figures { summary, process, .. }: &Figures) {
    let process = process.as_ref();
    out.object("process", |out| {
        out.number("workers", summary.workers);
        out.maybe("started", process.and_then(|it| it.started));
        out.maybe("cpu_seconds", process.map(|it| seconds(Duration::from_nanos(it.cpu))));
        out.maybe("resident_bytes", process.map(|it| it.resident));
        out.maybe("descriptors", process.and_then(|it| it.descriptors));
        out.maybe("descriptors_max", process.map(|it| it.descriptors_max));
        out.number("longest_turn_seconds", seconds(Duration::from_nanos(summary.longest_turn)));
    });
}

fn write_requests(
    out: &mut Writer,
    figures: &Figures,
    earlier: Option<&Earlier>,
    interval: Option<Duration>,
) {
    let (summary, stats) = (&figures.summary, &figures.summary.stats);
    let now = Counts::of(summary);
    let before = earlier.map(|earlier| earlier.counts);
    let per_second = |of: fn(&Counts) -> u64| rate(of(&now), before.as_ref().map(of), interval);
    out.object("responses", |out| {
        out.number("total", now.responses);
        out.maybe("per_second", per_second(|counts| counts.responses));
        out.number("body_bytes", now.body_bytes);
        out.maybe("body_bytes_per_second", per_second(|counts| counts.body_bytes));
        out.number("under_way", stats.active_requests);
        out.number("under_way_tls", stats.active_requests_tls);
        out.number("passed_on", stats.proxied);
        out.list("statuses", summary.statuses.len(), &summary.statuses, |out, (status, count)| {
            out.text("status", status);
            out.number("count", count);
        });
    });
    let recent = earlier.and_then(|earlier| summary.latencies.since(&earlier.latencies));
    for (name, latencies) in [("latency", recent), ("latency_all", Some(summary.latencies))] {
        out.object(name, |out| write_latencies(out, latencies.as_ref()));
    }
    out.list("sites", figures.sites.max(summary.sites_asked), &summary.sites, |out, site| {
        out.text("name", &site.name);
        out.number("requests", site.requests);
        out.number("failed", site.failed);
        out.number("body_bytes", site.body_bytes);
    });
}

/// The latencies of requests; nothing but `null` if it is not known which came.
fn write_latencies(out: &mut Writer, latencies: Option<&Latencies>) {
    let requests = latencies.map(Latencies::requests);
    out.maybe("requests", requests);
    let times = latencies.zip(requests);
    out.maybe("mean_seconds", times.and_then(|(it, count)| mean(it.sum.into(), count)));
    for (name, percent) in [("p50_seconds", 50), ("p90_seconds", 90), ("p99_seconds", 99)] {
        let bound = latencies.and_then(|it| it.percentile(percent));
        out.maybe(name, bound.map(|nanos| seconds(Duration::from_nanos(nanos))));
    }
}

fn write_connections(
    out: &mut Writer,
    figures: &Figures,
    earlier: Option<&Earlier>,
    interval: Option<Duration>,
) {
    let stats = &figures.summary.stats;
    out.object("connections", |out| {
        out.number("open", stats.connections);
        out.number("accepted", stats.accepted);
        let before = earlier.map(|earlier| earlier.counts.accepted);
        out.maybe("accepted_per_second", rate(stats.accepted, before, interval));
        out.number("idle", stats.connections_idle());
        out.number("handshakes", stats.tls_handshakes_under_way);
        out.number("reading", stats.connections_reading);
        out.number("waiting", stats.connections_waiting);
        out.number("writing", stats.connections_writing);
        out.number("tunnels", stats.connections_tunnels);
        out.object("stack", |out| {
            for (state, count) in STACK_STATES {
                out.number(state, count(stats));
            }
        });
    });
}

fn write_disks(
    out: &mut Writer,
    figures: &Figures,
    earlier: Option<&Earlier>,
    interval: Option<Duration>,
) {
    let Summary { stats, devices, .. } = &figures.summary;
    out.list(
        "disks",
        devices.len(),
        devices,
        |out, (device, DeviceNumbers { reads, unanswered })| {
            // A device that the earlier figures do not have was not read from.
            let before = earlier.map(|earlier| {
                let found = earlier.devices.iter().find(|(known, _)| known == device);
                found.map(|(_, numbers)| numbers.reads).unwrap_or_default()
            });
            match device {
                Some((major, minor)) => out.text("device", &format!("{major}:{minor}")),
                None => out.text("device", "unknown"),
            }
            out.number("reads", reads.ended);
            let ended = before.map(|before| before.ended);
            out.maybe("reads_per_second", rate(reads.ended, ended, interval));
            let bytes = before.map(|before| before.bytes);
            out.maybe("bytes_per_second", rate(reads.bytes, bytes, interval));
            out.maybe("mean_seconds", mean(reads.time.as_nanos(), reads.ended));
            out.maybe("learned_bytes_per_second", reads.rate);
            out.number("reads_in_flight", reads.begun.saturating_sub(reads.ended));
            out.number("responses_waiting", reads.waiting);
            out.number("calls_unanswered", *unanswered);
        },
    );
    out.object("page_cache", |out| {
        out.number("hits", stats.residency_hits);
        out.number("misses", stats.residency_misses);
        out.number("hit_bytes", stats.residency_hit_bytes);
        out.number("miss_bytes", stats.residency_miss_bytes);
    });
}

fn write_servers(out: &mut Writer, figures: &Figures) {
    out.list("upstreams", figures.servers_all, &figures.servers, |out, one| {
        out.text("upstream", &one.upstream);
        out.text("server", &one.server);
        out.flag("up", one.is_up);
        out.number("requests", one.requests);
        out.number("in_flight", one.in_flight);
        out.number("failures", one.failures);
        let answered = one.times.counts.iter().sum();
        out.maybe("mean_seconds", mean(one.times.sum.into(), answered));
    });
}

fn write_programs(out: &mut Writer, figures: &Figures) {
    out.list("programs", figures.programs_all, &figures.programs, |out, one| {
        out.text("route", &one.mount);
        out.text("directory", &one.directory.to_string_lossy());
        out.number("running", one.running);
        out.number("running_max", one.running_max);
        out.number("waiting", one.waiting);
        out.number("waiting_max", one.waiting_max);
    });
}

fn write_config(out: &mut Writer, figures: &Figures) {
    let Summary { certificates, certificates_all, loads, .. } = &figures.summary;
    out.list("certificates", *certificates_all, certificates, |out, one| {
        out.text("site", &one.site);
        out.text("file", &one.file);
        out.number("expires", one.expires_at);
    });
    let refusal = loads.refusal.as_ref();
    out.object("config", |out| {
        let loaded = loads.loaded_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        out.maybe("loaded", loaded.map(|at| at.as_secs()));
        match &loads.hash {
            Some(hash) => out.text("hash", hash),
            None => out.maybe("hash", None::<u64>),
        }
        out.flag("last_load_refused", refusal.is_some());
        let refused = refusal.and_then(|refusal| refusal.at.duration_since(UNIX_EPOCH).ok());
        out.maybe("last_refused", refused.map(|at| at.as_secs()));
        out.number("loads", loads.successes);
        out.number("refused", loads.failures);
        out.number("sites", figures.sites);
        out.number("routes", figures.routes);
    });
    let errors: Vec<_> = refusal.iter().flat_map(|refusal| refusal.text.lines()).collect();
    out.list("refusal", errors.len(), &errors, |out, line| out.text("line", line));
}

fn write_errors(out: &mut Writer, Figures { summary, examples, .. }: &Figures) {
    let occurred: Vec<_> = REASONS
        .iter()
        .map(|(reason, count)| (reason, count(&summary.stats)))
        .filter(|(_, count)| *count > 0)
        .collect();
    out.list("reasons", occurred.len(), &occurred, |out, (reason, count)| {
        out.text("reason", reason);
        out.number("count", count);
    });
    out.list("errors", examples.len(), examples, |out, example| {
        out.number("time", example.unix);
        out.number("status", example.status);
        out.text("method", &example.method);
        out.text("host", &example.host);
        out.text("path", &example.path);
        out.text("id", &example.id);
        out.text("reason", &example.reason);
    });
}

/// The number that came in a second since then; `None` if that is not known, or less is counted than then.
fn rate(now: u64, before: Option<u64>, interval: Option<Duration>) -> Option<f64> {
    let came = now.checked_sub(before?)?;
    let interval = interval.filter(|interval| !interval.is_zero())?;
    // Three digits after the point are more than anybody can see.
    Some((came as f64 / interval.as_secs_f64() * 1e3).round() / 1e3)
}

/// The mean in seconds of `count` times. Their sum is `nanos` nanoseconds.
fn mean(nanos: u128, count: u64) -> Option<f64> {
    let mean = nanos.checked_div(count.into())?;
    Some(seconds(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))))
}

/// Seconds, to the microsecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Writes members of objects.
struct Writer {
    text: String,
    /// True if the next member follows another one.
    follows: bool,
    listed_max: usize,
}

impl Writer {
    fn braces(&mut self, open: char, close: char, fill: impl FnOnce(&mut Self)) {
        self.text.push(open);
        self.follows = false;
        fill(self);
        self.text.push(close);
        self.follows = true;
    }

    fn comma(&mut self) {
        if core::mem::replace(&mut self.follows, true) {
            self.text.push(',');
        }
    }

    fn name(&mut self, name: &str) {
        self.comma();
        self.quoted(name);
        self.text.push(':');
    }

    fn quoted(&mut self, text: &str) {
        let text = plain(text);
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (shown, rest) = text.split_at(end);
        self.text.push('"');
        for char in escape_json(shown).chars() {
            match char {
                // Nobody need know that the text is never taken for HTML.
                '<' | '>' | '&' => _ = write!(self.text, "\\u{:04x}", u32::from(char)),
                char => self.text.push(char),
            }
        }
        if !rest.is_empty() {
            self.text.push('…');
        }
        self.text.push('"');
    }

    fn object(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.name(name);
        self.braces('{', '}', fill);
    }

    /// The first entries of a list, and the number of those of `all` that are left out.
    fn list<T>(
        &mut self,
        name: &str,
        all: usize,
        listed: &[T],
        mut fill: impl FnMut(&mut Self, &T),
    ) {
        let listed = &listed[..listed.len().min(self.listed_max)];
        self.object(name, |out| {
            out.name("shown");
            out.braces('[', ']', |out| {
                for entry in listed {
                    out.comma();
                    out.braces('{', '}', |out| fill(out, entry));
                }
            });
            out.number("more", all.saturating_sub(listed.len()));
        });
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.quoted(value);
    }

    fn number(&mut self, name: &str, value: impl Display) {
        self.name(name);
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{value}");
    }

    fn maybe(&mut self, name: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.number(name, "null"),
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.number(name, value);
    }
}

#[cfg(test)]
mod tests;

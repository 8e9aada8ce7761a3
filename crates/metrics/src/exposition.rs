//! Prometheus' text format 0.0.4: the numbers of all workers added up, part by part.
//!
//! Names are those of OpenTelemetry if it has them, in the form that Prometheus gives them: dots become
//! underscores, and the unit comes last. A site is the `server.address` of its requests: "the primary
//! server name of the matched virtual host".

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::histogram::{Bound, DURATIONS, Histogram, ROUND_TRIPS, SIZES, Total, nanos};
use super::series::{Labels, Series};
use super::{
    CertificateNumbers, DeviceNumbers, Loads, Metrics, ProcessNumbers, ServerNumbers, Stats,
    UPSTREAM_BOUNDS, UpstreamHandshakes, UpstreamTimes, lock,
};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of one scrape, which is made while it is sent: it may have many series.
#[derive(Debug)]
pub struct Exposition {
    sums: Vec<Sum>,
    /// The number of families of requests that are complete.
    family: usize,
    /// The number of `sums` that have been written of the next one.
    written: usize,
    /// The text of all other families.
    rest: String,
}

/// The maximum number of servers that are shown, each of which has a few numbers.
const SERVERS_SHOWN_MAX: usize = 1024;

/// The maximum number of servers with a histogram. Each has 12 series, so all together have fewer than 1,000.
const HISTOGRAMS_SHOWN_MAX: usize = 83;
const _: () = assert!(HISTOGRAMS_SHOWN_MAX * (UPSTREAM_BOUNDS.len() + 3) <= 1000);

/// The maximum number of certificates that are shown: those that expire first.
const CERTIFICATES_SHOWN_MAX: usize = 1024;

/// A number, taken from the sum of all workers.
type Value = fn(&Stats) -> u64;

/// A family of one number for each set of labels.
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// The labels and the number.
    samples: &'static [(&'static str, Value)],
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The unit of the sum of a histogram, which is counted in nanoseconds or bytes.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Bytes,
}

/// The families of the numbers in [`Stats`].
const FAMILIES: &[Family] = &[
    Family {
        name: "http_server_active_requests",
        kind: Kind::Gauge,
        help: "Number of active HTTP server requests.",
        samples: &[
            ("url_scheme=\"http\"", |stats| stats.active_requests),
            ("url_scheme=\"https\"", |stats| stats.active_requests_tls),
        ],
    },
    Family {
        name: "samum_connections_open",
        kind: Kind::Gauge,
        help: "Connections that are open.",
        samples: &[("", |stats| stats.connections)],
    },
    Family {
        name: "samum_connections",
        kind: Kind::Gauge,
        help: "Connections that are open, by what they do: nothing, a handshake of TLS, receive a request, wait for an \
               answer or a disk, wait until their client takes bytes, or carry another protocol.",
        samples: &[
            ("state=\"idle\"", Stats::connections_idle),
            ("state=\"handshake\"", |stats| stats.tls_handshakes_under_way),
            ("state=\"reading\"", |stats| stats.connections_reading),
            ("state=\"waiting\"", |stats| stats.connections_waiting),
            ("state=\"writing\"", |stats| stats.connections_writing),
            ("state=\"tunnel\"", |stats| stats.connections_tunnels),
        ],
    },
    Family {
        name: "samum_connections_accepted_total",
        kind: Kind::Counter,
        help: "Connections that were accepted.",
        samples: &[("", |stats| stats.accepted)],
    },
    Family {
        name: "samum_connections_closed_total",
        kind: Kind::Counter,
        help: "Connections that the server closed because of their peers: idle (--timeout-idle), no complete \
               request (--timeout-header), too slow (--timeout-send), gone half while a disk was waited for, \
               idle while others wanted the place (--max-connections), more than connections-per-ip, or a \
               faulty header of the PROXY protocol.",
        samples: &[
            ("reason=\"idle\"", |stats| stats.idle_timeouts),
            ("reason=\"header\"", |stats| stats.header_timeouts),
            ("reason=\"half-closed\"", |stats| {
                stats.timeouts.saturating_sub(stats.idle_timeouts + stats.header_timeouts)
            }),
            ("reason=\"send\"", |stats| stats.slow_peers),
            ("reason=\"place\"", |stats| stats.idle_closed),
            ("reason=\"limit\"", |stats| stats.limited_connections),
            ("reason=\"proxy-header\"", |stats| stats.proxy_header_errors),
        ],
    },
    Family {
        name: "samum_requests_refused_total",
        kind: Kind::Counter,
        help: "Requests that were refused because of their clients: not permitted (allow, deny), too many \
               (requests-per-ip), named differently by Forwarded and X-Forwarded-For, or with too long a body (max-body).",
        samples: &[
            ("reason=\"forbidden\"", |stats| stats.forbidden),
            ("reason=\"rate\"", |stats| stats.limited_requests),
            ("reason=\"forged\"", |stats| stats.forged_clients),
            ("reason=\"body\"", |stats| stats.long_bodies),
        ],
    },
    Family {
        name: "samum_tls_handshakes",
        kind: Kind::Gauge,
        help: "Handshakes of TLS that are under way.",
        samples: &[("", |stats| stats.tls_handshakes_under_way)],
    },
    Family {
        name: "samum_tls_handshakes_total",
        kind: Kind::Counter,
        help: "Handshakes of TLS that were completed, by version; resumed ones continue an earlier session.",
        samples: &[
            ("version=\"1.2\",resumed=\"false\"", |stats| stats.tls12_full),
            ("version=\"1.2\",resumed=\"true\"", |stats| stats.tls12_resumed),
            ("version=\"1.3\",resumed=\"false\"", |stats| stats.tls13_full),
            ("version=\"1.3\",resumed=\"true\"", |stats| stats.tls13_resumed),
        ],
    },
    Family {
        name: "samum_tls_handshakes_failed_total",
        kind: Kind::Counter,
        help: "Handshakes of TLS that failed: because of the certificate of the client, or for another reason; clients gave some up.",
        samples: &[
            ("reason=\"client-certificate\"", |stats| stats.tls_clients_refused),
            ("reason=\"other\"", |stats| stats.tls_handshakes_failed),
        ],
    },
    Family {
        name: "samum_tls_handshakes_refused_total",
        kind: Kind::Counter,
        help: "Handshakes of TLS that were refused, because clients have asked for more of them than their share.",
        samples: &[("", |stats| stats.tls_handshakes_refused)],
    },
    Family {
        name: "samum_tls_misdirected_total",
        kind: Kind::Counter,
        help: "Requests that were answered 421, because the handshake of their connection was for other hosts.",
        samples: &[("", |stats| stats.tls_misdirected)],
    },
    Family {
        name: "samum_http2_connections_total",
        kind: Kind::Counter,
        help: "Connections that speak HTTP/2.",
        samples: &[("", |stats| stats.http2_connections)],
    },
    Family {
        name: "samum_http2_streams_reset_total",
        kind: Kind::Counter,
        help: "Streams of HTTP/2 that ended before their time: reset by clients, malformed, refused because too many were \
               open or their connection had no memory left, or reset because clients moved too few bytes.",
        samples: &[
            ("reason=\"client\"", |stats| stats.http2_resets),
            ("reason=\"malformed\"", |stats| stats.http2_malformed),
            ("reason=\"refused\"", |stats| stats.http2_refused),
            ("reason=\"slow\"", |stats| stats.slow_streams),
        ],
    },
    Family {
        name: "samum_http2_connections_failed_total",
        kind: Kind::Counter,
        help: "Connections of HTTP/2 that were closed because clients broke the protocol, or reached a limit against attacks.",
        samples: &[
            ("reason=\"protocol\"", |stats| stats.http2_faults),
            ("reason=\"resets\"", |stats| stats.http2_attacks[0]),
            ("reason=\"idle_frames\"", |stats| stats.http2_attacks[1]),
            ("reason=\"continuations\"", |stats| stats.http2_attacks[2]),
            ("reason=\"block\"", |stats| stats.http2_attacks[3]),
            ("reason=\"fields\"", |stats| stats.http2_attacks[4]),
            ("reason=\"control\"", |stats| stats.http2_attacks[5]),
            ("reason=\"settings\"", |stats| stats.http2_attacks[6]),
            ("reason=\"window\"", |stats| stats.http2_attacks[7]),
        ],
    },
    Family {
        name: "samum_responses_total",
        kind: Kind::Counter,
        help: "Responses that were begun.",
        samples: &[("", |stats| stats.responses)],
    },
    Family {
        name: "samum_disk_errors_total",
        kind: Kind::Counter,
        help: "Operations of disks that failed; timeouts are those of --timeout-disk, and truncated files \
               became shorter while they were sent.",
        samples: &[
            ("reason=\"error\"", |stats| stats.disk_errors),
            ("reason=\"timeout\"", |stats| stats.disk_timeouts),
            ("reason=\"truncated\"", |stats| stats.truncated),
        ],
    },
    Family {
        name: "samum_residency_total",
        kind: Kind::Counter,
        help: "Ranges of open files that were sent from the page cache (hit), and reads of ranges that were \
               not there (miss).",
        samples: &[
            ("result=\"hit\"", |stats| stats.residency_hits),
            ("result=\"miss\"", |stats| stats.residency_misses),
        ],
    },
    Family {
        name: "samum_residency_bytes_total",
        kind: Kind::Counter,
        help: "Bytes of these ranges.",
        samples: &[
            ("result=\"hit\"", |stats| stats.residency_hit_bytes),
            ("result=\"miss\"", |stats| stats.residency_miss_bytes),
        ],
    },
    Family {
        name: "samum_cgi_programs_total",
        kind: Kind::Counter,
        help: "Programs (CGI) that were started, whose responses were faulty, that were sent SIGTERM, and that \
               were not started because there were too many.",
        samples: &[
            ("event=\"started\"", |stats| stats.cgi_started),
            ("event=\"failed\"", |stats| stats.cgi_failed),
            ("event=\"killed\"", |stats| stats.cgi_killed),
            ("event=\"refused\"", |stats| stats.cgi_refused),
        ],
    },
    Family {
        name: "samum_proxy_requests_total",
        kind: Kind::Counter,
        help: "Requests that were passed on to servers, tried again, failed, were not answered in time, were given up \
               because their clients had left (half-close = true lets them end their side first), whose \
               servers sent more behind a whole response, and whose servers answered before the end of the request.",
        samples: &[
            ("event=\"begun\"", |stats| stats.proxied),
            ("event=\"retried\"", |stats| stats.proxy_retries),
            ("event=\"failed\"", |stats| stats.proxy_failed),
            ("event=\"timeout\"", |stats| stats.proxy_timeouts),
            ("event=\"client-left\"", |stats| stats.proxy_left),
            ("event=\"surplus\"", |stats| stats.proxy_surplus),
            ("event=\"early-answer\"", |stats| stats.proxy_early),
        ],
    },
    Family {
        name: "samum_body_files_total",
        kind: Kind::Counter,
        help: "Bodies of requests that went to files, to wait there for programs and applications, and requests that were \
               refused because there was no room for that, or the disk was full, failed or did not answer.",
        samples: &[
            ("event=\"begun\"", |stats| stats.body_files),
            ("event=\"failed\"", |stats| stats.body_files_failed),
        ],
    },
    Family {
        name: "samum_proxy_buffer_files_total",
        kind: Kind::Counter,
        help: "Responses of servers that were kept on a disk, because their clients were slow, and those of them \
               that went on through memory, because the disk was full, failed or did not answer.",
        samples: &[
            ("event=\"begun\"", |stats| stats.proxy_buffer_files),
            ("event=\"failed\"", |stats| stats.proxy_buffer_failed),
        ],
    },
    Family {
        name: "samum_includes_total",
        kind: Kind::Counter,
        help: "Requests for what pages include, error messages that stood in pages in place of directives, and \
               those of them for cycles.",
        samples: &[
            ("event=\"begun\"", |stats| stats.includes),
            ("event=\"failed\"", |stats| stats.includes_failed),
            ("event=\"cycle\"", |stats| stats.include_cycles),
        ],
    },
    Family {
        name: "samum_stack_connections",
        kind: Kind::Gauge,
        help: "Connections of samum's own TCP/IP stacks (--interface), by state.",
        samples: &[
            ("state=\"syn-received\"", |stats| stats.stack_syn_received),
            ("state=\"established\"", |stats| stats.stack_established),
            ("state=\"fin-wait-1\"", |stats| stats.stack_fin_wait_1),
            ("state=\"fin-wait-2\"", |stats| stats.stack_fin_wait_2),
            ("state=\"close-wait\"", |stats| stats.stack_close_wait),
            ("state=\"closing\"", |stats| stats.stack_closing),
            ("state=\"last-ack\"", |stats| stats.stack_last_ack),
            ("state=\"time-wait\"", |stats| stats.stack_time_wait),
        ],
    },
    Family {
        name: "samum_stack_frames_total",
        kind: Kind::Counter,
        help: "Frames from and to interfaces.",
        samples: &[
            ("direction=\"received\"", |stats| stats.stack_frames_received),
            ("direction=\"sent\"", |stats| stats.stack_frames_sent),
        ],
    },
    Family {
        name: "samum_stack_batches_total",
        kind: Kind::Counter,
        help: "Rounds in which frames were received, and system calls that sent frames.",
        samples: &[
            ("direction=\"received\"", |stats| stats.stack_batches_received),
            ("direction=\"sent\"", |stats| stats.stack_batches_sent),
        ],
    },
    Family {
        name: "samum_stack_retransmissions_total",
        kind: Kind::Counter,
        help: "Segments that were sent again: behind a later acknowledgement, after a timeout, probes, and those of \
               handshakes.",
        samples: &[
            ("cause=\"fast\"", |stats| stats.stack_again_fast),
            ("cause=\"timeout\"", |stats| stats.stack_again_timeout),
            ("cause=\"probe\"", |stats| stats.stack_again_probe),
            ("cause=\"handshake\"", |stats| stats.stack_again_syn),
        ],
    },
    Family {
        name: "samum_stack_drops_total",
        kind: Kind::Counter,
        help: "Frames that were dropped: see `samum stack`. Those without room are frames that were to be sent; those \
               of the queue came while too many waited for the stack.",
        samples: &[
            ("reason=\"queue\"", |stats| stats.stack_dropped_queue),
            ("reason=\"malformed\"", |stats| stats.stack_dropped_malformed),
            ("reason=\"checksum\"", |stats| stats.stack_dropped_checksum),
            ("reason=\"fragment\"", |stats| stats.stack_dropped_fragment),
            ("reason=\"not-ours\"", |stats| stats.stack_dropped_not_ours),
            ("reason=\"rate\"", |stats| stats.stack_dropped_rate),
            ("reason=\"no-connection\"", |stats| stats.stack_dropped_no_connection),
            ("reason=\"no-room\"", |stats| stats.stack_dropped_no_room),
            ("reason=\"sequence\"", |stats| stats.stack_dropped_sequence),
            ("reason=\"forged\"", |stats| stats.stack_dropped_forged),
            ("reason=\"memory\"", |stats| stats.stack_dropped_memory),
        ],
    },
    Family {
        name: "samum_log_lines_dropped_total",
        kind: Kind::Counter,
        help: "Lines that could not be written to a log.",
        samples: &[("", |stats| stats.log_lines_dropped)],
    },
    Family {
        name: "samum_redirect_loops_total",
        kind: Kind::Counter,
        help: "Requests answered 500 because a redirect leads to its own path.",
        samples: &[("", |stats| stats.redirect_loops)],
    },
    Family {
        name: "samum_descriptor_shortages_total",
        kind: Kind::Counter,
        help: "Times that accepting stopped because descriptors or memory ran out.",
        samples: &[("", |stats| stats.descriptor_shortages)],
    },
];

/// A family of histograms of requests.
struct RequestFamily {
    name: &'static str,
    help: &'static str,
    /// The function that writes the part of one site.
    write: fn(&str, &[Sum], &mut String) -> fmt::Result,
}

/// The series with the same labels, of all workers.
type Sum = (Labels, Vec<Arc<Series>>);

/// The families of histograms of requests, which come first.
const REQUEST_FAMILIES: [RequestFamily; 4] = [
    RequestFamily {
        name: "http_server_request_duration_seconds",
        help: "Duration of HTTP server requests.",
        write: |name, sums, text| {
            sums.iter().try_for_each(|(labels, all)| {
                let total = total(all.iter().map(|series| &series.durations));
                write_histogram(
                    text,
                    name,
                    &request_labels(labels),
                    DURATIONS,
                    Unit::Seconds,
                    &total,
                )
            })
        },
    },
    RequestFamily {
        name: "http_server_response_body_size_bytes",
        help: "Size of HTTP server response bodies, as far as they were sent.",
        write: |name, sums, text| {
            sums.iter().try_for_each(|(labels, all)| {
                let total = total(all.iter().map(|series| &series.body_sizes));
                write_histogram(text, name, &request_labels(labels), SIZES, Unit::Bytes, &total)
            })
        },
    },
    RequestFamily {
        name: "http_server_request_body_size_bytes",
        help: "Size of HTTP server request bodies, as their heads announced it, or as their gateways have got it in chunks.",
        write: |name, sums, text| {
            let Some((labels, _)) = sums.first() else { return Ok(()) };
            let all = sums.iter().flat_map(|(_, all)| all);
            let total = total(all.map(|series| &series.request_body_sizes));
            write_histogram(text, name, &site_label(&labels.site), SIZES, Unit::Bytes, &total)
        },
    },
    RequestFamily {
        name: "samum_request_disk_wait_seconds",
        help: "Time for which HTTP server requests waited for a disk.",
        write: |name, sums, text| {
            let Some((labels, _)) = sums.first() else { return Ok(()) };
            let all = sums.iter().flat_map(|(_, all)| all);
            let total = total(all.map(|series| &series.disk_waits));
            write_histogram(text, name, &site_label(&labels.site), DURATIONS, Unit::Seconds, &total)
        },
    },
];

impl Exposition {
    pub(super) fn new(
        metrics: &Metrics,
        servers: impl Iterator<Item = ServerNumbers>,
        process: Option<&ProcessNumbers>,
    ) -> Self {
        let mut rest = String::new();
        let servers: Vec<_> = servers.take(SERVERS_SHOWN_MAX).collect();
        // Writing to a string cannot fail.
        let _ = write_rest(metrics, &mut rest);
        let _ = write_servers(&servers, &mut rest);
        let _ = write_process(process, &mut rest);
        Self { sums: metrics.series(), family: 0, written: 0, rest }
    }

    /// The bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let one = size_of::<Sum>() + size_of::<Arc<Series>>();
        self.sums.len() * one + self.rest.capacity()
    }

    /// The next part of the text. It ends with the site at which it has this many bytes; it is empty at
    /// the end of the text.
    pub fn next_part(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            let Some(RequestFamily { name, help, write }) = REQUEST_FAMILIES.get(self.family)
            else {
                text.push_str(&core::mem::take(&mut self.rest));
                break;
            };
            let left = &self.sums[self.written..];
            let site = left.chunk_by(|(one, _), (other, _)| one.site == other.site).next();
            let site = site.unwrap_or_default();
            if self.written == 0 && !site.is_empty() {
                let _ = write_head(&mut text, name, Kind::Histogram, help);
            }
            let _ = write(name, site, &mut text);
            self.written += site.len();
            if self.written == self.sums.len() {
                (self.family, self.written) = (self.family + 1, 0);
            }
        }
        text
    }
}

/// The families that have no labels of requests.
fn write_rest(metrics: &Metrics, text: &mut String) -> fmt::Result {
    let stats = metrics.stats();
    for Family { name, kind, help, samples } in FAMILIES {
        write_head(text, name, *kind, help)?;
        for (labels, value) in *samples {
            write_sample(text, name, labels, value(&stats))?;
        }
    }
    write_round_trips(&stats, text)?;
    write_handshakes(&stats, text)?;
    let turns = total(metrics.workers.iter().map(|worker| &worker.turns));
    let name = "samum_worker_turn_seconds";
    write_head(
        text,
        name,
        Kind::Histogram,
        "Time for which a worker was not ready for other events.",
    )?;
    write_histogram(text, name, "", DURATIONS, Unit::Seconds, &turns)?;
    let name = "samum_worker_turn_longest_seconds";
    write_head(text, name, Kind::Gauge, "The longest such time since the server started.")?;
    let longest = metrics.workers.iter().map(|worker| worker.longest_turn.get()).max();
    write_sample(text, name, "", InSeconds(longest.unwrap_or_default()))?;
    write_devices(&metrics.devices(), text)?;
    write_certificates(metrics, text)?;
    write_loads(&lock(&metrics.loads), text)
}

fn write_round_trips(stats: &Stats, text: &mut String) -> fmt::Result {
    let name = "samum_stack_round_trip_seconds";
    let help = "Smoothed round trips of connections of samum's own TCP/IP stacks, one for each time that a \
                connection has sent data.";
    write_head(text, name, Kind::Histogram, help)?;
    let sum = stats.stack_trips_us.wrapping_mul(1_000);
    let total = Total { counts: stats.stack_trips, above: stats.stack_trips_above, sum };
    write_histogram(text, name, "", ROUND_TRIPS, Unit::Seconds, &total)
}

fn write_handshakes(stats: &Stats, text: &mut String) -> fmt::Result {
    let name = "samum_tls_handshake_seconds";
    let help = "Durations of complete handshakes, from the accepted connection to the last message of the client.";
    write_head(text, name, Kind::Histogram, help)?;
    let sum = stats.tls_took_us.wrapping_mul(1_000);
    let total = Total { counts: stats.tls_took, above: stats.tls_took_above, sum };
    write_histogram(text, name, "", ROUND_TRIPS, Unit::Seconds, &total)
}

fn write_devices(
    devices: &BTreeMap<Option<(u64, u64)>, DeviceNumbers>,
    text: &mut String,
) -> fmt::Result {
    let mut family =
        |name: &str, kind, help, write: fn(&mut String, &str, &str, &DeviceNumbers) -> _| {
            write_head(text, name, kind, help)?;
            devices.iter().try_for_each(|(device, numbers)| {
                let device = match device {
                    Some((major, minor)) => format!("device=\"{major}:{minor}\""),
                    None => "device=\"unknown\"".to_owned(),
                };
                write(text, name, &device, numbers)
            })
        };
    family(
        "samum_disk_reads_total",
        Kind::Counter,
        "Reads of a device that have ended.",
        |text, name, device, numbers| write_sample(text, name, device, numbers.reads.ended),
    )?;
    family(
        "samum_disk_read_seconds_total",
        Kind::Counter,
        "The time that these reads took, added up.",
        |text, name, device, numbers| {
            write_sample(text, name, device, InSeconds(nanos(numbers.reads.time)))
        },
    )?;
    family(
        "samum_disk_reads_in_flight",
        Kind::Gauge,
        "Reads of a device that have begun and not ended.",
        |text, name, device, numbers| {
            write_sample(text, name, device, numbers.reads.begun - numbers.reads.ended)
        },
    )?;
    family(
        "samum_disk_calls_unanswered",
        Kind::Gauge,
        "Calls of all kinds that wait for a device which has answered none for so long that requests are refused.",
        |text, name, device, numbers| write_sample(text, name, device, numbers.unanswered),
    )
}

fn write_servers(servers: &[ServerNumbers], text: &mut String) -> fmt::Result {
    if servers.is_empty() {
        return Ok(());
    }
    let labels: Vec<_> = servers
        .iter()
        .map(|ServerNumbers { upstream, server, .. }| {
            format!("upstream=\"{}\",server=\"{}\"", Escaped(upstream), Escaped(server))
        })
        .collect();
    let mut family = |name: &str, kind, help, value: fn(&ServerNumbers) -> u64| {
        write_head(text, name, kind, help)?;
        let mut samples = servers.iter().zip(&labels);
        samples.try_for_each(|(one, labels)| write_sample(text, name, labels, value(one)))
    };
    family("samum_upstream_up", Kind::Gauge, "Whether a server is up.", |one| one.is_up.into())?;
    family(
        "samum_upstream_requests_total",
        Kind::Counter,
        "Requests that were sent to a server.",
        |one| one.requests,
    )?;
    family(
        "samum_upstream_requests_in_flight",
        Kind::Gauge,
        "Requests that were sent to a server whose responses are not complete.",
        |one| one.in_flight,
    )?;
    family(
        "samum_upstream_failures_total",
        Kind::Counter,
        "Requests that a server did not answer, or not completely.",
        |one| one.failures,
    )?;
    let name = "samum_upstream_tls_handshakes_total";
    write_head(text, name, Kind::Counter, "TLS handshakes with a server.")?;
    for (one, labels) in servers.iter().zip(&labels) {
        let Some(UpstreamHandshakes { full, resumed, failed }) = one.handshakes else { continue };
        for (result, value) in [("full", full), ("resumed", resumed), ("failed", failed)] {
            write_sample(text, name, &format!("{labels},result=\"{result}\""), value)?;
        }
    }
    let name = "samum_upstream_response_seconds";
    let help = "Time from a request to a server until its response began.";
    write_head(text, name, Kind::Histogram, help)?;
    for (one, labels) in servers.iter().zip(&labels).take(HISTOGRAMS_SHOWN_MAX) {
        let UpstreamTimes { counts, sum } = one.times;
        let mut total = Total { sum, above: counts[UPSTREAM_BOUNDS.len()], ..Total::ZERO };
        total.counts.copy_from_slice(&counts[..UPSTREAM_BOUNDS.len()]);
        write_histogram(text, name, labels, &UPSTREAM_BOUNDS, Unit::Seconds, &total)?;
    }
    Ok(())
}

/// The version of the program, and what the kernel counts for the process. The names are those of the client libraries of
/// Prometheus.
fn write_process(process: Option<&ProcessNumbers>, text: &mut String) -> fmt::Result {
    let name = "samum_build_info";
    write_head(text, name, Kind::Gauge, "1; the version of samum.")?;
    write_sample(text, name, concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1)?;
    let Some(process) = process else { return Ok(()) };
    let name = "process_cpu_seconds_total";
    write_head(text, name, Kind::Counter, "Time of processors in user and kernel mode.")?;
    write_sample(text, name, "", InSeconds(process.cpu))?;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory that is resident.", Some(process.resident)),
        ("process_virtual_memory_bytes", "Address space.", Some(process.address_space)),
        ("process_start_time_seconds", "Start, in seconds since 1970.", process.started),
        ("process_open_fds", "Open descriptors.", process.descriptors),
        ("process_max_fds", "The limit of descriptors.", Some(process.descriptors_max)),
    ] {
        if let Some(value) = value {
            write_head(text, name, Kind::Gauge, help)?;
            write_sample(text, name, "", value)?;
        }
    }
    Ok(())
}

/// Renewals, and the certificates that expire first.
fn write_certificates(metrics: &Metrics, text: &mut String) -> fmt::Result {
    let name = "samum_tls_renewals_total";
    write_head(
        text,
        name,
        Kind::Counter,
        "Certificates whose files have changed, and were used or not.",
    )?;
    let (used, refused) = metrics.tls_renewals();
    write_sample(text, name, "result=\"success\"", used)?;
    write_sample(text, name, "result=\"failure\"", refused)?;
    let mut all = metrics.certificates();
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|one| one.expires_at);
    let name = "samum_tls_certificate_expiry_seconds";
    write_head(
        text,
        name,
        Kind::Gauge,
        "Time at which a certificate expires, in seconds since 1970.",
    )?;
    for CertificateNumbers { site, file, expires_at } in all.iter().take(CERTIFICATES_SHOWN_MAX) {
        let labels = format!("{},file=\"{}\"", site_label(site), Escaped(file));
        write_sample(text, name, &labels, expires_at)?;
    }
    Ok(())
}

fn write_loads(loads: &Loads, text: &mut String) -> fmt::Result {
    let name = "samum_config_loads_total";
    write_head(text, name, Kind::Counter, "Configurations that were loaded or refused.")?;
    write_sample(text, name, "result=\"success\"", loads.successes)?;
    write_sample(text, name, "result=\"failure\"", loads.failures)?;
    let name = "samum_config_last_load_successful";
    write_head(text, name, Kind::Gauge, "Whether the last configuration was loaded.")?;
    write_sample(text, name, "", u8::from(loads.refusal.is_none()))?;
    let name = "samum_config_last_load_success_timestamp_seconds";
    write_head(text, name, Kind::Gauge, "Time at which the configuration in use was loaded.")?;
    let loaded_at = loads.loaded_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    write_sample(text, name, "", loaded_at.unwrap_or_default().as_secs())?;
    if let Some(hash) = &loads.hash {
        let name = "samum_config_info";
        write_head(text, name, Kind::Gauge, "The hash of the configuration in use.")?;
        write_sample(text, name, &format!("hash=\"{}\"", Escaped(hash)), 1)?;
    }
    Ok(())
}

fn total<'a, const N: usize>(all: impl Iterator<Item = &'a Histogram<N>>) -> Total<N> {
    let mut total = Total::ZERO;
    all.for_each(|one| one.add_to(&mut total));
    total
}

fn request_labels(labels: &Labels) -> String {
    let Labels { site, scheme, method, status } = labels;
    let (site, method, status) = (site_label(site), method.text(), status.text());
    let scheme = scheme.text();
    format!(
        "{site},url_scheme=\"{scheme}\",http_request_method=\"{method}\",http_response_status_code=\"{status}\""
    )
}

fn site_label(site: &str) -> String {
    format!("server_address=\"{}\"", Escaped(site))
}

fn write_head(text: &mut String, name: &str, kind: Kind, help: &str) -> fmt::Result {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn write_sample(
    text: &mut String,
    name: &str,
    labels: &str,
    value: impl fmt::Display,
) -> fmt::Result {
    if labels.is_empty() {
        writeln!(text, "{name} {value}")
    } else {
        writeln!(text, "{name}{{{labels}}} {value}")
    }
}

fn write_histogram<const N: usize>(
    text: &mut String,
    name: &str,
    labels: &str,
    bounds: &[Bound; N],
    unit: Unit,
    total: &Total<N>,
) -> fmt::Result {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut count = 0;
    for ((_, bound), in_bucket) in bounds.iter().zip(total.counts) {
        count += in_bucket;
        writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}")?;
    }
    count += total.above;
    writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}")?;
    let (sum_name, count_name) = (format!("{name}_sum"), format!("{name}_count"));
    match unit {
        Unit::Seconds => write_sample(text, &sum_name, labels, InSeconds(total.sum))?,
        Unit::Bytes => write_sample(text, &sum_name, labels, total.sum)?,
    }
    write_sample(text, &count_name, labels, count)
}

/// Nanoseconds, written as seconds.
struct InSeconds(u64);

impl fmt::Display for InSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000_000;
        write!(f, "{}.{:09}", self.0 / SECOND, self.0 % SECOND)
    }
}

/// The value of a label between its quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

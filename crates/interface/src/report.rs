//! The state of a stack, for `samum stack` and for metrics. Pure.

use core::fmt::Write as _;
use core::time::Duration;

use netstack::tcp::{RoundTrips, TcpState};
use netstack::{Census, Counters, Status};

/// The facts of a report.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// The interface and its receive queue.
    pub(super) name: &'a str,
    pub(super) census: Census,
    /// The connections by state, in the order of `TcpState::ALL`.
    pub(super) states: [usize; TcpState::ALL.len()],
    pub(super) counters: Counters,
    pub(super) device: netdev::Counters,
    /// Frames that were missed because too many waited for the stack.
    pub(super) missed: u64,
    /// The number of batches that had frames.
    pub(super) batches: u64,
    /// Bytes of memory for connections.
    pub(super) memory: usize,
    /// Frames that were not recorded because the disk was too slow; `None` without `--pcap`.
    pub(super) record_lost: Option<u64>,
}

impl Facts<'_> {
    /// The report, and a line for each connection if they are wanted.
    pub(super) fn text(
        &self,
        connections: impl Iterator<Item = Status>,
        has_connections: bool,
    ) -> String {
        let mut times = Vec::new();
        let mut lines = String::new();
        for status in connections {
            times.extend(status.flight.and_then(|flight| flight.srtt));
            if has_connections {
                lines += &line(&status);
            }
        }
        let states: Vec<_> = TcpState::ALL
            .iter()
            .zip(self.states)
            .filter(|(_, count)| *count > 0)
            .map(|(state, count)| format!(", {count} {}", state.name()))
            .collect();
        let mut text = format!("interface {}\n", self.name);
        let mut add = |name: &str, what: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name}: {what}");
        };
        let Self { census, counters, device, .. } = self;
        add(
            "connections",
            &format!(
                "{}{}; {} half open, {} in TIME-WAIT, {} KiB of memory",
                census.connections,
                states.concat(),
                census.half_open,
                census.time_wait,
                self.memory / 1024
            ),
        );
        let shakes = &counters.handshakes;
        add(
            "handshakes",
            &listed(&[
                (shakes.begun, "begun"),
                (shakes.completed, "completed"),
                (shakes.given_up, "given up"),
                (shakes.refused, "refused"),
                (shakes.cookies_sent, "cookies sent"),
                (shakes.cookies_accepted, "cookies accepted"),
                (counters.time_wait_overflows, "ended early in TIME-WAIT"),
                (counters.orphan_overflows, "closed and reset for new ones"),
            ]),
        );
        let each = counters.frames_received.checked_div(self.batches).unwrap_or_default();
        add(
            "received",
            &format!("{} frames in {} batches of {each}", counters.frames_received, self.batches),
        );
        add(
            "sent",
            &listed(&[
                (device.sent, "frames"),
                (device.sent_bytes, "bytes"),
                (device.calls, "system calls"),
                (device.lost, "frames refused by the kernel"),
                (device.refused, "frames without room"),
            ]),
        );
        let tcp = &counters.connections;
        add(
            "sent again",
            &listed(&[
                (tcp.retransmitted_fast, "behind a later acknowledgement"),
                (tcp.retransmitted_timeout, "after a timeout"),
                (tcp.probes_sent, "probes"),
                (shakes.retransmitted, "SYNs"),
            ]),
        );
        let drops = &counters.drops;
        add(
            "dropped",
            &listed(&[
                (self.missed, "too many at once"),
                (drops.malformed, "malformed"),
                (drops.checksum, "checksum"),
                (drops.fragment + drops.extension, "fragments and extensions"),
                (drops.not_ours, "not ours"),
                (drops.requests, "requests above the rate"),
                (drops.no_connection, "of no connection"),
                (drops.no_room, "without room to send"),
                (tcp.dropped_window, "outside of the window"),
                (tcp.dropped_timestamp, "old timestamp"),
                (tcp.dropped_ack, "wrong acknowledgement"),
                (tcp.dropped_blind, "SYNs and resets that may be forged"),
                (tcp.dropped_held, "out of order without memory"),
            ]),
        );
        add(
            "resets",
            &listed(&[
                (tcp.reset, "received"),
                (tcp.resets_sent + counters.resets_sent, "sent"),
                (tcp.timed_out, "connections timed out"),
                (tcp.challenges_sent, "challenges sent"),
            ]),
        );
        if let Some(lost) = self.record_lost {
            add("pcap", &format!("{lost} frames lost to a slow disk"));
        }
        times.sort_unstable();
        if let (Some(least), Some(most)) = (times.first(), times.last()) {
            let (least, most) = (millis(*least), millis(*most));
            let middle = millis(times[times.len() / 2]);
            let count = times.len();
            add(
                "round trips",
                &format!(
                    "{least} to {most} ms, median {middle} ms, of {count} connections with data in flight"
                ),
            );
        }
        text + &lines
    }

    /// Adds the counters to the worker's, for metrics.
    pub(super) fn count(&self, stats: &metrics::Counters) {
        let Self { census, counters, device, .. } = self;
        let [established, fin_wait_1, fin_wait_2, close_wait, closing, last_ack] = self.states;
        stats.stack_syn_received.set(census.half_open as u64);
        stats.stack_established.set(established as u64);
        stats.stack_fin_wait_1.set(fin_wait_1 as u64);
        stats.stack_fin_wait_2.set(fin_wait_2 as u64);
        stats.stack_close_wait.set(close_wait as u64);
        stats.stack_closing.set(closing as u64);
        stats.stack_last_ack.set(last_ack as u64);
        stats.stack_time_wait.set(census.time_wait as u64);
        stats.stack_frames_received.set(counters.frames_received);
        stats.stack_frames_sent.set(device.sent);
        stats.stack_batches_received.set(self.batches);
        stats.stack_batches_sent.set(device.calls);
        let tcp = &counters.connections;
        let RoundTrips { counts, above, sum_us } = tcp.round_trips;
        stats.stack_trips.iter().zip(counts).for_each(|(to, count)| to.set(count));
        stats.stack_trips_above.set(above);
        stats.stack_trips_us.set(sum_us);
        stats.stack_again_fast.set(tcp.retransmitted_fast);
        stats.stack_again_timeout.set(tcp.retransmitted_timeout);
        stats.stack_again_probe.set(tcp.probes_sent);
        stats.stack_again_syn.set(counters.handshakes.retransmitted);
        let drops = &counters.drops;
        stats.stack_dropped_queue.set(self.missed);
        stats.stack_dropped_malformed.set(drops.malformed);
        stats.stack_dropped_checksum.set(drops.checksum);
        stats.stack_dropped_fragment.set(drops.fragment + drops.extension);
        stats.stack_dropped_not_ours.set(drops.not_ours);
        stats.stack_dropped_rate.set(drops.requests);
        stats.stack_dropped_no_connection.set(drops.no_connection);
        stats.stack_dropped_no_room.set(drops.no_room);
        stats
            .stack_dropped_sequence
            .set(tcp.dropped_window + tcp.dropped_timestamp + tcp.dropped_ack);
        stats.stack_dropped_forged.set(tcp.dropped_blind);
        stats.stack_dropped_memory.set(tcp.dropped_held);
    }
}

/// The counters that are not zero, with their names.
fn listed(numbers: &[(u64, &str)]) -> String {
    let some = numbers.iter().filter(|(number, _)| *number > 0);
    let all: Vec<_> = some.map(|(number, name)| format!("{number} {name}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn line(status: &Status) -> String {
    let (ends, state) = (&status.endpoints, status.state.name());
    let mut text = format!("  {} {} {state}", ends.local, ends.peer);
    if let Some(flight) = &status.flight {
        let _ = write!(text, " cwnd {} in flight {}", flight.cwnd, flight.pipe);
        if flight.ssthresh < u32::MAX {
            let _ = write!(text, " ssthresh {}", flight.ssthresh);
        }
        if let Some(srtt) = flight.srtt {
            let _ = write!(text, " srtt {} ms", millis(srtt));
        }
    }
    text.push('\n');
    text
}

/// Milliseconds with three digits after the point.
fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use netstack::tcp::{self, Endpoints};

    use super::*;

    #[test]
    fn a_report_has_the_numbers_that_are_not_zero() {
        let mut counters = Counters { frames_received: 10, ..Counters::default() };
        counters.connections.retransmitted_fast = 3;
        counters.drops.checksum = 1;
        counters.connections.dropped_blind = 2;
        counters.connections.round_trips.counts[1] = 5;
        let census = Census { half_open: 1, connections: 3, time_wait: 4 };
        let (device, memory) = (netdev::Counters::default(), 4096);
        let facts = Facts {
            name: "eth1, queue 0",
            census,
            states: [2, 0, 0, 1, 0, 0],
            counters,
            device,
            missed: 7,
            batches: 5,
            memory,
            record_lost: None,
        };
        let endpoints = Endpoints {
            local: "10.0.0.1:80".parse().unwrap(),
            peer: "10.0.0.2:4000".parse().unwrap(),
        };
        let srtt = Some(Duration::from_micros(250));
        let flight = tcp::Status { cwnd: 14_600, ssthresh: u32::MAX, pipe: 1460, srtt };
        let state = TcpState::Established;
        let all = [
            Status { endpoints, state, flight: Some(flight) },
            Status { endpoints, state, flight: None },
        ];
        let text = facts.text(all.into_iter(), true);
        let expected = "interface eth1, queue 0
  connections: 3, 2 ESTABLISHED, 1 CLOSE-WAIT; 1 half open, 4 in TIME-WAIT, 4 KiB of memory
  handshakes: none
  received: 10 frames in 5 batches of 2
  sent: none
  sent again: 3 behind a later acknowledgement
  dropped: 7 too many at once, 1 checksum, 2 SYNs and resets that may be forged
  resets: none
  round trips: 0.250 to 0.250 ms, median 0.250 ms, of 1 connections with data in flight
  10.0.0.1:80 10.0.0.2:4000 ESTABLISHED cwnd 14600 in flight 1460 srtt 0.250 ms
  10.0.0.1:80 10.0.0.2:4000 ESTABLISHED
";
        assert_eq!(text, expected);
        let stats = metrics::Counters::default();
        facts.count(&stats);
        let stats = stats.read();
        let dropped = (stats.stack_dropped_queue, stats.stack_dropped_checksum);
        assert_eq!((stats.stack_again_fast, dropped), (3, (7, 1)));
        assert_eq!(stats.stack_dropped_forged, 2);
        assert_eq!((stats.stack_established, stats.stack_close_wait), (2, 1));
        assert_eq!(stats.stack_trips[1..3], [5, 0]);
    }
}

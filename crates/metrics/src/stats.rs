//! The numbers of a worker that have no labels of requests.

use super::histogram::{Number, ROUND_TRIPS};

/// The number of limits of HTTP/2 against attacks.
pub const HTTP2_ATTACKS: usize = 8;

/// The type of a number, or of the buckets of a histogram.
macro_rules! of {
    ($one:ty) => {
        $one
    };
    ($one:ty, $len:expr) => {
        [$one; $len]
    };
}

/// Reads a number, or the buckets of a histogram.
macro_rules! get {
    ($from:expr) => {
        $from.get()
    };
    ($from:expr, $len:expr) => {
        $from.each_ref().map(Number::get)
    };
}

/// Adds a number, or the buckets of a histogram.
macro_rules! sum {
    ($to:expr, $from:expr) => {
        $to += $from
    };
    ($to:expr, $from:expr, $len:expr) => {
        $to.iter_mut().zip($from).for_each(|(to, from)| *to += from)
    };
}

/// Declares [`Stats`] and [`Counters`] from one table.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident $([$len:expr])?,)*) => {
        /// Numbers of a worker, or of all workers, at one time: counters since it began, unless another meaning is given.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: of!(u64 $(, $len)?),)*
        }

        /// The numbers of a worker, which it alone changes, and which all threads may read.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: of!(Number $(, $len)?),)*
        }

        impl Counters {
            /// The numbers now.
            #[must_use]
            pub fn read(&self) -> Stats {
                Stats { $($name: get!(self.$name $(, $len)?),)* }
            }
        }

        impl core::ops::AddAssign for Stats {
            fn add_assign(&mut self, other: Self) {
                $(sum!(self.$name, other.$name $(, $len)?);)*
            }
        }
    };
}

stats! {
    /// Connections accepted.
    accepted,
    /// Connections that are open now.
    connections,
    /// Connections that receive a request or the body of a request now.
    connections_reading,
    /// Connections that wait for an answer or a disk.
    connections_waiting,
    /// Connections with bytes for their client, which has to receive earlier ones first.
    connections_writing,
    /// Connections that carry bytes of another protocol.
    connections_tunnels,
    /// Handshakes of TLS under way now.
    tls_handshakes_under_way,
    /// Handshakes of TLS that have failed because of the certificate of the client.
    tls_clients_refused,
    /// Handshakes of TLS that have failed for another reason, or that the client has given up.
    tls_handshakes_failed,
    /// Handshakes of TLS that were refused, because their clients have asked for more than their share.
    tls_handshakes_refused,
    /// Complete handshakes of TLS, by the buckets of `ROUND_TRIPS`: each has those that are in none before it.
    tls_took[ROUND_TRIPS.len()],
    /// Longer ones.
    tls_took_above,
    /// The sum of their durations in microseconds. It wraps.
    tls_took_us,
    /// Full handshakes of TLS 1.2.
    tls12_full,
    /// Resumed handshakes of TLS 1.2.
    tls12_resumed,
    /// Full handshakes of TLS 1.3.
    tls13_full,
    /// Resumed handshakes of TLS 1.3.
    tls13_resumed,
    /// Requests with the response 421, because the handshake of their connection was for other hosts.
    tls_misdirected,
    /// Connections that speak HTTP/2.
    http2_connections,
    /// Streams of HTTP/2 that were reset by their clients.
    http2_resets,
    /// Streams of HTTP/2 that were reset because of a fault of their clients.
    http2_malformed,
    /// Streams of HTTP/2 that were refused: too many were open, or their connection had no memory left.
    http2_refused,
    /// Connections of HTTP/2 that were closed because their clients broke the protocol.
    http2_faults,
    /// Connections of HTTP/2 that were closed because their clients had reached a limit against attacks, in the order of
    /// `http2::Attack`.
    http2_attacks[HTTP2_ATTACKS],
    /// Streams of HTTP/2 that were reset because their clients moved too few bytes.
    slow_streams,
    /// Responses begun.
    responses,
    /// Requests without TLS whose responses are under way now.
    active_requests,
    /// Requests over TLS whose responses are under way now.
    active_requests_tls,
    /// Responses cut off because a file became shorter while it was being sent.
    truncated,
    /// Opens, stats and reads that failed for another reason than "not found" or "not permitted".
    disk_errors,
    /// Requests with the response 503, and responses cut off, because a disk did not answer in time.
    disk_timeouts,
    /// Connections closed because their peer took less than the minimum rate for too long.
    slow_peers,
    /// Connections closed because their peer sent nothing, or no complete request, for too long.
    timeouts,
    /// Timeouts of idle connections: nothing came.
    idle_timeouts,
    /// Timeouts of connections that had sent a part of a request.
    header_timeouts,
    /// Idle connections closed to make room for new ones.
    idle_closed,
    /// Requests refused because their client may not use the route.
    forbidden,
    /// Requests refused because their client asks too often.
    limited_requests,
    /// Connections closed because their client has too many.
    limited_connections,
    /// Requests refused because their fields name different clients.
    forged_clients,
    /// Requests whose bodies were longer than allowed.
    long_bodies,
    /// Connections closed because a header of the PROXY protocol was faulty, or came from a client that may
    /// send none.
    proxy_header_errors,
    /// Lines dropped because they could not be written to a log.
    log_lines_dropped,
    /// Requests with the response 500 because a redirect leads to its own path.
    redirect_loops,
    /// Times that accepting stopped because descriptors ran out.
    descriptor_shortages,
    /// Programs started (CGI).
    cgi_started,
    /// Responses of programs that were faulty, or ended too early or not in time.
    cgi_failed,
    /// Programs that were sent SIGTERM.
    cgi_killed,
    /// Requests for programs that were refused because too many ran, or a resource was short.
    cgi_refused,
    /// Bodies of requests that went to files, to wait there for programs and applications.
    body_files,
    /// Requests that were refused because there was no room for such a file, or its disk was full, failed or did not answer.
    body_files_failed,
    /// Requests that were passed on to upstreams.
    proxied,
    /// Requests that were repeated, because a connection could not be made or had been closed.
    proxy_retries,
    /// Requests whose servers could not be reached or were overloaded, or whose responses were faulty or cut off.
    proxy_failed,
    /// Whole responses after which their servers sent more.
    proxy_surplus,
    /// Whole responses that came before their requests had been sent to their ends.
    proxy_early,
    /// Requests whose servers did not go on in time.
    proxy_timeouts,
    /// Requests that were given up, because their clients had left before the end of the response.
    proxy_left,
    /// Responses of upstreams that were kept on a disk, because their clients were slow.
    proxy_buffer_files,
    /// Such responses that went on through memory, because the disk was full, failed or did not answer.
    proxy_buffer_failed,
    /// Requests for parts that pages include.
    includes,
    /// Error messages that replaced directives in pages.
    includes_failed,
    /// Error messages for pages that included themselves, directly or through another page.
    include_cycles,
    /// Ranges of files that were resident when they were sent.
    residency_hits,
    /// Their bytes.
    residency_hit_bytes,
    /// Reads of ranges of files that were not resident.
    residency_misses,
    /// Bytes that these reads have brought.
    residency_miss_bytes,
    /// Handshakes of its own TCP/IP stack that are under way now.
    stack_syn_received,
    /// Connections in ESTABLISHED now.
    stack_established,
    /// Connections in FIN-WAIT-1.
    stack_fin_wait_1,
    /// Connections in FIN-WAIT-2.
    stack_fin_wait_2,
    /// Connections in CLOSE-WAIT.
    stack_close_wait,
    /// Connections in CLOSING.
    stack_closing,
    /// Connections in LAST-ACK.
    stack_last_ack,
    /// Connections in TIME-WAIT.
    stack_time_wait,
    /// Round trips, one for each time that a connection has sent data, by the same buckets.
    stack_trips[ROUND_TRIPS.len()],
    /// Round trips of more than 1 s.
    stack_trips_above,
    /// The sum of all round trips, in microseconds.
    stack_trips_us,
    /// Frames that an interface has delivered.
    stack_frames_received,
    /// Frames that an interface has taken.
    stack_frames_sent,
    /// Rounds in which frames were received.
    stack_batches_received,
    /// System calls that sent frames.
    stack_batches_sent,
    /// Retransmissions because later bytes were acknowledged.
    stack_again_fast,
    /// Retransmissions after a timeout.
    stack_again_timeout,
    /// Probes of the tail and of a closed window.
    stack_again_probe,
    /// Retransmitted segments of handshakes.
    stack_again_syn,
    /// Frames that the kernel dropped because too many waited for the stack.
    stack_dropped_queue,
    /// Dropped frames whose headers are wrong.
    stack_dropped_malformed,
    /// Dropped frames with a wrong checksum.
    stack_dropped_checksum,
    /// Fragments, and IPv6 with extension headers.
    stack_dropped_fragment,
    /// Dropped frames for an address or a port that is not served.
    stack_dropped_not_ours,
    /// Requests of ARP, neighbour discovery and echo that came too fast.
    stack_dropped_rate,
    /// Segments that no connection wanted.
    stack_dropped_no_connection,
    /// Frames of its own for which the interface had no room, and that nothing repeats.
    stack_dropped_no_room,
    /// Segments with wrong sequence numbers, acknowledgements or timestamps.
    stack_dropped_sequence,
    /// SYNs and resets on open connections that may be forged.
    stack_dropped_forged,
    /// Segments that came out of order and for which there was no memory.
    stack_dropped_memory,
}

impl Stats {
    /// Connections without a request that wait for their clients.
    pub const fn connections_idle(&self) -> u64 {
        let busy = self.tls_handshakes_under_way
            + self.connections_reading
            + self.connections_waiting
            + self.connections_writing
            + self.connections_tunnels;
        self.connections.saturating_sub(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_added() {
        let counters = Counters::default();
        counters.accepted.add(1);
        for (bucket, number) in counters.tls_took.iter().zip(2..) {
            bucket.set(number);
        }
        counters.stack_dropped_memory.set(12);
        let expected = Stats {
            accepted: 1,
            tls_took: [2, 3, 4, 5, 6, 7, 8, 9],
            stack_dropped_memory: 12,
            ..Stats::default()
        };
        let mut sum = counters.read();
        assert_eq!(sum, expected);
        sum += Stats { accepted: 5, tls_took: [1; 8], ..Stats::default() };
        let tls_took = [3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(sum, Stats { accepted: 6, tls_took, ..expected });
    }
}

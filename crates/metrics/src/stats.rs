//! The numbers of a worker that have no labels of requests.

use super::histogram::ROUND_TRIPS;

/// The number of limits of HTTP/2 against attacks.
pub const HTTP2_ATTACKS: usize = 8;

/// A number, or the buckets of a histogram, among the values of [`Stats`].
trait Part {
    /// The number of its values.
    const LEN: usize;

    fn write(&self, to: &mut [u64]);

    fn read(from: &[u64]) -> Self;
}

impl Part for u64 {
    const LEN: usize = 1;

    #[inline]
    fn write(&self, to: &mut [u64]) {
        to[0] = *self;
    }

    fn read(from: &[u64]) -> Self {
        from[0]
    }
}

impl<const N: usize> Part for [u64; N] {
    const LEN: usize = N;

    #[inline]
    fn write(&self, to: &mut [u64]) {
        to[..N].copy_from_slice(self);
    }

    fn read(from: &[u64]) -> Self {
        core::array::from_fn(|index| from[index])
    }
}

/// Declares [`Stats`] and the order of its values from one table.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// Numbers of a worker: counters since it began, unless another meaning is given.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: $kind,)*
        }

        impl Stats {
            /// The number of numbers.
            pub(crate) const COUNT: usize = 0 $(+ <$kind as Part>::LEN)*;

            /// All numbers in order.
            #[inline]
            pub(crate) fn values(&self) -> [u64; Self::COUNT] {
                let mut values = [0; Self::COUNT];
                let mut rest = &mut values[..];
                $(
                    let (part, behind) = rest.split_at_mut(<$kind as Part>::LEN);
                    self.$name.write(part);
                    rest = behind;
                )*
                debug_assert!(rest.is_empty(), "each number has a place");
                values
            }

            /// The numbers, made of their values in order.
            pub(crate) fn from_values(values: [u64; Self::COUNT]) -> Self {
                let mut rest = &values[..];
                $(
                    let (part, behind) = rest.split_at(<$kind as Part>::LEN);
                    let $name = <$kind as Part>::read(part);
                    rest = behind;
                )*
                debug_assert!(rest.is_empty(), "each number has a name");
                Self { $($name),* }
            }
        }
    };
}

stats! {
    /// Connections accepted.
    accepted: u64,
    /// Connections that are open now.
    connections: u64,
    /// Connections that receive a request or the body of a request now.
    connections_reading: u64,
    /// Connections that wait for an answer or a disk.
    connections_waiting: u64,
    /// Connections with bytes for their client, which has to receive earlier ones first.
    connections_writing: u64,
    /// Connections that carry bytes of another protocol.
    connections_tunnels: u64,
    /// Handshakes of TLS under way now.
    tls_handshakes_under_way: u64,
    /// Handshakes of TLS that have failed because of the certificate of the client.
    tls_clients_refused: u64,
    /// Handshakes of TLS that have failed for another reason, or that the client has given up.
    tls_handshakes_failed: u64,
    /// Handshakes of TLS that were refused, because their clients have asked for more than their share.
    tls_handshakes_refused: u64,
    /// Complete handshakes of TLS, by the buckets of `ROUND_TRIPS`: each has those that are in none before it.
    tls_took: [u64; ROUND_TRIPS.len()],
    /// Longer ones.
    tls_took_above: u64,
    /// The sum of their durations in microseconds. It wraps.
    tls_took_us: u64,
    /// Full handshakes of TLS 1.2.
    tls12_full: u64,
    /// Resumed handshakes of TLS 1.2.
    tls12_resumed: u64,
    /// Full handshakes of TLS 1.3.
    tls13_full: u64,
    /// Resumed handshakes of TLS 1.3.
    tls13_resumed: u64,
    /// Requests with the response 421, because the handshake of their connection was for other hosts.
    tls_misdirected: u64,
    /// Connections that speak HTTP/2.
    http2_connections: u64,
    /// Streams of HTTP/2 that were reset by their clients.
    http2_resets: u64,
    /// Streams of HTTP/2 that were reset because of a fault of their clients.
    http2_malformed: u64,
    /// Streams of HTTP/2 that were refused: too many were open, or their connection had no memory left.
    http2_refused: u64,
    /// Connections of HTTP/2 that were closed because their clients broke the protocol.
    http2_faults: u64,
    /// Connections of HTTP/2 that were closed because their clients had reached a limit against attacks, in the order of
    /// `http2::Attack`.
    http2_attacks: [u64; HTTP2_ATTACKS],
    /// Streams of HTTP/2 that were reset because their clients moved too few bytes.
    slow_streams: u64,
    /// Responses begun.
    responses: u64,
    /// Requests without TLS whose responses are under way now.
    active_requests: u64,
    /// Requests over TLS whose responses are under way now.
    active_requests_tls: u64,
    /// Responses cut off because a file became shorter while it was being sent.
    truncated: u64,
    /// Opens, stats and reads that failed for another reason than "not found" or "not permitted".
    disk_errors: u64,
    /// Requests with the response 503, and responses cut off, because a disk did not answer in time.
    disk_timeouts: u64,
    /// Connections closed because their peer took less than the minimum rate for too long.
    slow_peers: u64,
    /// Connections closed because their peer sent nothing, or no complete request, for too long.
    timeouts: u64,
    /// Timeouts of idle connections: nothing came.
    idle_timeouts: u64,
    /// Timeouts of connections that had sent a part of a request.
    header_timeouts: u64,
    /// Idle connections closed to make room for new ones.
    idle_closed: u64,
    /// Requests refused because their client may not use the route.
    forbidden: u64,
    /// Requests refused because their client asks too often.
    limited_requests: u64,
    /// Connections closed because their client has too many.
    limited_connections: u64,
    /// Requests refused because their fields name different clients.
    forged_clients: u64,
    /// Requests whose bodies were longer than allowed.
    long_bodies: u64,
    /// Connections closed because a header of the PROXY protocol was faulty, or came from a client that may
    /// send none.
    proxy_header_errors: u64,
    /// Lines dropped because they could not be written to a log.
    log_lines_dropped: u64,
    /// Requests with the response 500 because a redirect leads to its own path.
    redirect_loops: u64,
    /// Times that accepting stopped because descriptors ran out.
    descriptor_shortages: u64,
    /// Programs started (CGI).
    cgi_started: u64,
    /// Responses of programs that were faulty, or ended too early or not in time.
    cgi_failed: u64,
    /// Programs that were sent SIGTERM.
    cgi_killed: u64,
    /// Requests for programs that were refused because too many ran, or a resource was short.
    cgi_refused: u64,
    /// Bodies of requests that went to files, to wait there for programs and applications.
    body_files: u64,
    /// Requests that were refused because there was no room for such a file, or its disk was full, failed or did not answer.
    body_files_failed: u64,
    /// Requests that were passed on to upstreams.
    proxied: u64,
    /// Requests that were repeated, because a connection could not be made or had been closed.
    proxy_retries: u64,
    /// Requests whose servers could not be reached or were overloaded, or whose responses were faulty or cut off.
    proxy_failed: u64,
    /// Whole responses after which their servers sent more.
    proxy_surplus: u64,
    /// Whole responses that came before their requests had been sent to their ends.
    proxy_early: u64,
    /// Requests whose servers did not go on in time.
    proxy_timeouts: u64,
    /// Requests that were given up, because their clients had left before the end of the response.
    proxy_left: u64,
    /// Responses of upstreams that were kept on a disk, because their clients were slow.
    proxy_buffer_files: u64,
    /// Such responses that went on through memory, because the disk was full, failed or did not answer.
    proxy_buffer_failed: u64,
    /// Requests for parts that pages include.
    includes: u64,
    /// Error messages that replaced directives in pages.
    includes_failed: u64,
    /// Error messages for pages that included themselves, directly or through another page.
    include_cycles: u64,
    /// Ranges of files that were resident when they were sent.
    residency_hits: u64,
    /// Their bytes.
    residency_hit_bytes: u64,
    /// Reads of ranges of files that were not resident.
    residency_misses: u64,
    /// Bytes that these reads have brought.
    residency_miss_bytes: u64,
    /// Handshakes of its own TCP/IP stack that are under way now.
    stack_syn_received: u64,
    /// Connections in ESTABLISHED now.
    stack_established: u64,
    /// Connections in FIN-WAIT-1.
    stack_fin_wait_1: u64,
    /// Connections in FIN-WAIT-2.
    stack_fin_wait_2: u64,
    /// Connections in CLOSE-WAIT.
    stack_close_wait: u64,
    /// Connections in CLOSING.
    stack_closing: u64,
    /// Connections in LAST-ACK.
    stack_last_ack: u64,
    /// Connections in TIME-WAIT.
    stack_time_wait: u64,
    /// Round trips, one for each time that a connection has sent data, by the same buckets.
    stack_trips: [u64; ROUND_TRIPS.len()],
    /// Round trips of more than 1 s.
    stack_trips_above: u64,
    /// The sum of all round trips, in microseconds.
    stack_trips_us: u64,
    /// Frames that an interface has delivered.
    stack_frames_received: u64,
    /// Frames that an interface has taken.
    stack_frames_sent: u64,
    /// Rounds in which frames were received.
    stack_batches_received: u64,
    /// System calls that sent frames.
    stack_batches_sent: u64,
    /// Retransmissions because later bytes were acknowledged.
    stack_again_fast: u64,
    /// Retransmissions after a timeout.
    stack_again_timeout: u64,
    /// Probes of the tail and of a closed window.
    stack_again_probe: u64,
    /// Retransmitted segments of handshakes.
    stack_again_syn: u64,
    /// Frames that the kernel dropped because too many waited for the stack.
    stack_dropped_queue: u64,
    /// Dropped frames whose headers are wrong.
    stack_dropped_malformed: u64,
    /// Dropped frames with a wrong checksum.
    stack_dropped_checksum: u64,
    /// Fragments, and IPv6 with extension headers.
    stack_dropped_fragment: u64,
    /// Dropped frames for an address or a port that is not served.
    stack_dropped_not_ours: u64,
    /// Requests of ARP, neighbour discovery and echo that came too fast.
    stack_dropped_rate: u64,
    /// Segments that no connection wanted.
    stack_dropped_no_connection: u64,
    /// Frames of its own for which the interface had no room, and that nothing repeats.
    stack_dropped_no_room: u64,
    /// Segments with wrong sequence numbers, acknowledgements or timestamps.
    stack_dropped_sequence: u64,
    /// SYNs and resets on open connections that may be forged.
    stack_dropped_forged: u64,
    /// Segments that came out of order and for which there was no memory.
    stack_dropped_memory: u64,
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
    fn numbers_come_back_from_their_values() {
        let stats = Stats {
            accepted: 1,
            tls_took: [2, 3, 4, 5, 6, 7, 8, 9],
            tls_took_above: 10,
            stack_trips: [11; 8],
            stack_dropped_memory: 12,
            ..Stats::default()
        };
        let values = stats.values();
        assert_eq!(Stats::from_values(values), stats);
        let sum: u64 = values.iter().sum();
        assert_eq!((values[0], values[Stats::COUNT - 1], sum), (1, 12, 1 + 44 + 10 + 88 + 12));
    }
}

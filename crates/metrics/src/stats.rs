//! The numbers of a worker that have no labels of requests.

/// Declares [`Stats`] and the order of its values from one table.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers of a worker: counters since it began, unless another meaning is given.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The number of numbers.
            pub(crate) const COUNT: usize = [$(stringify!($name)),*].len();

            /// All numbers in order.
            pub(crate) const fn values(&self) -> [u64; Self::COUNT] {
                [$(self.$name),*]
            }

            /// The numbers, made of their values in order.
            pub(crate) const fn from_values([$($name),*]: [u64; Self::COUNT]) -> Self {
                Self { $($name),* }
            }
        }
    };
}

stats! {
    /// Connections accepted.
    accepted,
    /// Connections that are open now.
    connections,
    /// Handshakes of TLS under way now.
    tls_handshakes_under_way,
    /// Handshakes of TLS that have failed, or that the client has given up.
    tls_handshakes_failed,
    /// Handshakes of TLS that were refused, because their clients have asked for more than their share.
    tls_handshakes_refused,
    /// Complete handshakes of TLS that took up to 0.1 ms.
    tls_took_100us,
    /// Longer ones, up to 1 ms.
    tls_took_1ms,
    /// Longer ones, up to 10 ms.
    tls_took_10ms,
    /// Longer ones, up to 50 ms.
    tls_took_50ms,
    /// Longer ones, up to 100 ms.
    tls_took_100ms,
    /// Longer ones, up to 250 ms.
    tls_took_250ms,
    /// Longer ones, up to 500 ms.
    tls_took_500ms,
    /// Longer ones, up to 1 s.
    tls_took_1s,
    /// Still longer ones.
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
    /// Round trips of at most 100 µs: one for each time that a connection has sent data.
    stack_trips_100us,
    /// Longer round trips, of at most 1 ms.
    stack_trips_1ms,
    /// Longer round trips, of at most 10 ms.
    stack_trips_10ms,
    /// Longer round trips, of at most 50 ms.
    stack_trips_50ms,
    /// Longer round trips, of at most 100 ms.
    stack_trips_100ms,
    /// Longer round trips, of at most 250 ms.
    stack_trips_250ms,
    /// Longer round trips, of at most 500 ms.
    stack_trips_500ms,
    /// Longer round trips, of at most 1 s.
    stack_trips_1s,
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

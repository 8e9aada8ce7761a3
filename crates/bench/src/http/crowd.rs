//! A crowd of open connections that grows one by one. Each step is timed: the connect, and the first request on the
//! new connection while all others are open.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Error, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::net::sockopt::set_socket_linger;

use crate::clock::nanoseconds;
use crate::load::fetch::in_words;
use crate::load::response::Parser;
use crate::load::target::connect;
use crate::load::{Sources, Target, pin};
use crate::stats;

/// Open connections to one server, all of which have been used.
#[derive(Debug)]
pub struct Crowd {
    address: SocketAddr,
    request: Vec<u8>,
    sources: Sources,
    cpu: Option<usize>,
    connections: Vec<TcpStream>,
    buffer: Vec<u8>,
}

/// The times of one more connection, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// To connect.
    pub connect: f64,
    /// From the request to the end of its response.
    pub request: f64,
}

/// Why a crowd grows no more.
#[derive(Debug)]
pub enum End {
    /// The crowd has the requested number of connections, or was asked to stop.
    Enough,
    /// Its time is over.
    Late,
    /// As [`Crowd::grow`].
    Failed(Error),
}

impl Crowd {
    /// An empty crowd. The thread that uses it runs on `cpu` from then on.
    #[must_use]
    pub fn new(
        address: SocketAddr,
        host: &str,
        target: &Target,
        sources: Sources,
        cpu: Option<usize>,
    ) -> Self {
        let request = target.request(host, true);
        Self { address, request, sources, cpu, connections: Vec::new(), buffer: vec![0; BUFFER] }
    }

    /// The number of open connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns whether no connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Opens connections until there are `count`. Calls `seen` for each with the number of open connections and its
    /// times, and stops when `seen` returns false. No connection begins after `limit`, but the last one may take as
    /// long as [`grow`](Self::grow) does.
    pub fn grow_to(
        &mut self,
        count: usize,
        limit: Option<Duration>,
        mut seen: impl FnMut(usize, Step) -> bool,
    ) -> End {
        let start = Instant::now();
        while self.len() < count {
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                return End::Late;
            }
            match self.grow() {
                Ok(step) if seen(self.len(), step) => {}
                Ok(_) => break,
                Err(error) => return End::Failed(error),
            }
        }
        End::Enough
    }

    /// Opens one more and uses it once.
    ///
    /// # Errors
    /// As connect(2), for example without free ports or descriptors; or if the response has not the status 200.
    /// After [`LIMIT`] for the connection, and twice that for the response, at most.
    pub fn grow(&mut self) -> io::Result<Step> {
        pin(self.cpu)?;
        let start = Instant::now();
        let socket: OwnedFd =
            connect(self.address, self.sources.of(self.connections.len()), LIMIT)?;
        let connect = nanoseconds(start);
        // Closed by a reset. Otherwise tens of thousands of ports would be held for a minute after each crowd
        // (TIME-WAIT), and the next crowd would find none.
        set_socket_linger(&socket, Some(Duration::ZERO))?;
        let mut stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let request = exchange(&mut stream, &self.request, &mut self.buffer, LIMIT)?;
        self.connections.push(stream);
        Ok(Step { connect, request })
    }

    /// Median nanoseconds of [`SAMPLES`] requests on connections spread over all.
    ///
    /// # Errors
    /// As [`grow`](Self::grow); also when the server has closed a connection.
    pub fn latency(&mut self) -> io::Result<f64> {
        let mut times = Vec::with_capacity(SAMPLES);
        for i in 0..SAMPLES {
            // A stride without a common divisor with most numbers of connections.
            let nth = i * STRIDE % self.connections.len().max(1);
            let Some(stream) = self.connections.get_mut(nth) else { break };
            times.push(exchange(stream, &self.request, &mut self.buffer, LIMIT)?);
        }
        Ok(stats::median(times))
    }
}

/// Sends one request and receives its response; returns nanoseconds. After `limit` nothing more is received, but the
/// last receive may have waited as long.
fn exchange(
    stream: &mut TcpStream,
    request: &[u8],
    buffer: &mut [u8],
    limit: Duration,
) -> io::Result<f64> {
    let start = Instant::now();
    stream.write_all(request)?;
    let mut parser = Parser::default();
    loop {
        let n = stream.read(buffer).map_err(|error| in_words(error, limit))?;
        let done = match n {
            0 => parser.end().map(|()| true),
            n => parser.feed(&buffer[..n], |_| ()),
        };
        if done.map_err(|error| Error::other(error.to_string()))? {
            break;
        }
        if start.elapsed() >= limit {
            let what = format!("no whole answer within {} s", limit.as_secs_f64());
            return Err(Error::new(ErrorKind::TimedOut, what));
        }
    }
    let time = nanoseconds(start);
    match parser.status() {
        200 if parser.keep_alive() => Ok(time),
        200 => Err(Error::other("the server does not keep connections")),
        status => Err(Error::other(format!("status {status}"))),
    }
}

/// The limit for a connect, for each receive, and for all receives of a response.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The time for which a crowd grows in a quick run, which should take less than a minute.
pub const QUICK_LIMIT: Duration = Duration::from_secs(15);

/// The bytes received in one call.
const BUFFER: usize = 64 << 10;

/// Requests of [`Crowd::latency`].
pub const SAMPLES: usize = 400;

const STRIDE: usize = 7919;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that sends its responses in parts, with a pause before each. Its connections stay open.
    fn serve(parts: &'static [&'static [u8]], pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _head = stream.read(&mut [0; 1024]).unwrap();
                for part in parts {
                    thread::sleep(pause);
                    // A client may go away at any time.
                    let _ = stream.write_all(part);
                }
                open.push(stream);
            }
        });
        address
    }

    #[test]
    fn a_crowd_stops_growing_when_its_time_is_over() {
        let answer: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"];
        let address = serve(answer, Duration::from_millis(20));
        let mut crowd = Crowd::new(address, "h", &Target::new("/"), Sources::Any, None);
        let mut seen = Vec::new();
        let end = crowd.grow_to(1_000_000, Some(Duration::from_millis(100)), |open, step| {
            seen.push(open);
            step.request > 0.0
        });
        assert!(matches!(end, End::Late), "{end:?}");
        // At least one, however late; each takes a fifth of the time.
        assert!((1..=5).contains(&crowd.len()), "{}", crowd.len());
        assert_eq!(seen, (1..=crowd.len()).collect::<Vec<_>>());
        let open = crowd.len();
        let end = crowd.grow_to(open + 2, None, |_, _| true);
        assert!(matches!(end, End::Enough) && crowd.len() == open + 2, "{end:?}");
        let end = crowd.grow_to(1_000_000, None, |_, _| false);
        assert!(matches!(end, End::Enough) && crowd.len() == open + 3, "{end:?}");
    }

    #[test]
    fn an_answer_that_trickles_has_an_end() {
        let answer: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", b"C: d\r\n", b"E: f\r\n"];
        let address = serve(answer, Duration::from_millis(30));
        let mut stream = TcpStream::connect(address).unwrap();
        let limit = Duration::from_millis(40);
        let error = exchange(&mut stream, b"x", &mut [0; 1024], limit).unwrap_err();
        assert_eq!(error.to_string(), "no whole answer within 0.04 s");
    }
}

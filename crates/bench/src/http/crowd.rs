//! A crowd of open connections that grows one by one, each step timed: what it takes to connect, and
//! what the first request on the new connection takes while all others are open.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Error, Read as _, Write as _};
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
    /// From the request to the end of its answer.
    pub request: f64,
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

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Opens one more and uses it once.
    ///
    /// # Errors
    /// As connect(2): among others when ports or descriptors run out; or when the answer is not one
    /// with status 200 within [`LIMIT`].
    pub fn grow(&mut self) -> io::Result<Step> {
        pin(self.cpu)?;
        let start = Instant::now();
        let socket: OwnedFd =
            connect(self.address, self.sources.of(self.connections.len()), LIMIT)?;
        let connect = nanoseconds(start);
        // Closed by a reset: else tens of thousands of ports would be held for a minute after each
        // crowd (TIME-WAIT), and the next would not find any.
        set_socket_linger(&socket, Some(Duration::ZERO))?;
        let mut stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let request = exchange(&mut stream, &self.request, &mut self.buffer)?;
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
            times.push(exchange(stream, &self.request, &mut self.buffer)?);
        }
        Ok(stats::median(times))
    }
}

/// One request and its answer, in nanoseconds.
fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> io::Result<f64> {
    let start = Instant::now();
    stream.write_all(request)?;
    let mut parser = Parser::default();
    loop {
        let n = stream.read(buffer).map_err(|error| in_words(error, LIMIT))?;
        let done = match n {
            0 => parser.end().map(|()| true),
            n => parser.feed(&buffer[..n], |_| ()),
        };
        if done.map_err(|error| Error::other(error.to_string()))? {
            break;
        }
    }
    let time = nanoseconds(start);
    match parser.status() {
        200 if parser.keep_alive() => Ok(time),
        200 => Err(Error::other("the server does not keep connections")),
        status => Err(Error::other(format!("status {status}"))),
    }
}

/// To connect, and for each receive.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Bytes received at once.
const BUFFER: usize = 64 << 10;

/// Requests of [`Crowd::latency`].
pub const SAMPLES: usize = 400;

const STRIDE: usize = 7919;

//! A server with known delays: a thread per connection, no HTTP beyond the end of a request's head.

use core::net::SocketAddr;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

/// The delays and the kinds of its responses.
pub(crate) struct Behaviour {
    response: Vec<u8>,
    /// Milliseconds, of the i-th request.
    delay: fn(u64) -> u64,
    /// Between these times the server sends no response.
    pause: Range<Duration>,
}

impl Behaviour {
    pub(crate) fn delays(body: &[u8], delay: fn(u64) -> u64) -> Self {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let response = [head.as_bytes(), body].concat();
        Self { response, delay, pause: Duration::ZERO..Duration::ZERO }
    }

    pub(crate) fn pause(body: &[u8], pause: Range<Duration>) -> Self {
        Self { pause, ..Self::delays(body, |_| 0) }
    }

    pub(crate) fn raw(response: Vec<u8>) -> Self {
        Self { response, ..Self::delays(b"", |_| 0) }
    }
}

/// Its threads end with their connections, the one that accepts with the process.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: Behaviour,
    start: Mutex<Instant>,
    requests: AtomicU64,
    connections: AtomicU64,
    /// Seconds from a request to its response.
    took: Mutex<Vec<f64>>,
}

impl Server {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            behaviour,
            start: Mutex::new(Instant::now()),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            took: Mutex::default(),
        });
        let seen = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&seen);
                shared.connections.fetch_add(1, Ordering::Relaxed);
                // A client may go away at any time.
                thread::spawn(move || _ = shared.serve(&stream.unwrap()));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// From now on times of the pause are counted.
    pub(crate) fn restart_clock(&self) {
        *self.shared.start.lock().unwrap() = Instant::now();
    }

    /// The seconds of each response, sorted.
    pub(crate) fn took(&self) -> Vec<f64> {
        let mut took = self.shared.took.lock().unwrap().clone();
        took.sort_by(f64::total_cmp);
        took
    }
}

impl Shared {
    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut head = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            let came = Instant::now();
            head.extend_from_slice(&buffer[..n]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let close = head.windows(17).any(|part| part == b"Connection: close");
            head.clear();
            self.sleep(came);
            self.took.lock().unwrap().push(came.elapsed().as_secs_f64());
            stream.write_all(&self.behaviour.response)?;
            if close || self.behaviour.response.is_empty() {
                return Ok(());
            }
        }
    }

    fn sleep(&self, came: Instant) {
        let i = self.requests.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis((self.behaviour.delay)(i)));
        let start = *self.start.lock().unwrap();
        if self.behaviour.pause.contains(&came.duration_since(start)) {
            thread::sleep((start + self.behaviour.pause.end).duration_since(came));
        }
    }
}

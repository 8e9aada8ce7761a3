//! Long downloads through a buffer of 1 MiB: every byte is compared with the pattern by which it was made, none is
//! kept, and samum never holds more than its buffers and the documented pipes.
//!
//! Downloads of 4 GiB by fast and by slow clients take minutes, so they are not in the usual run:
//!
//! ```text
//! cargo test --release -p samum --test server -- --ignored exact --nocapture
//! ```

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use testkit::{Content, Server, Tree};

use super::{configure, serve};
use crate::common::{on_both_drivers, pipe_bytes, resident_bytes, tcp_address};

const MIB: u64 = 1024 * 1024;
const BUFFER: u64 = MIB;
/// Bytes in the pipes of one download: what is being sent, and what waits, of `receive-max` bytes each.
const PIPES: u64 = 2 * 512 * 1024;
/// Time after which a server without requests holds no buffers; it looks once a second.
const REST: Duration = Duration::from_millis(2500);

/// Downloads at the same time: with a single one, a page or two of something else would be a share of its buffer.
const DOWNLOADS: usize = 4;

/// Rounds of downloads before the memory of an idle server is read. All of a round reach one of two workers once in
/// eight times; that one worker never has any is then a chance of 1 in 30,000.
const WARMING: u32 = 4;

/// Measurements, of which one must show no more than the buffers: what a worker's ring receives before it is stopped, up
/// to 1.25 MiB, is touched for the first time now and then, and stays. What a download holds beyond its buffer comes
/// in each.
const TRIES: u32 = 3;

/// A prime number near 1 MiB: what begins at a multiple of a power of two differs from block to block.
const BLOCK: usize = 1_048_573;

/// Contents without an end: blocks of the same bytes, each with its number in front. What is lost, repeated or
/// exchanged shows, and one block in memory is enough to make and to compare them.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Self {
        Self(Content::pseudo_random(1, BLOCK as u64).read(0, BLOCK))
    }

    /// Calls a function with each block of the first bytes of a content, the last perhaps shorter.
    fn blocks<E>(
        &mut self,
        size: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self(block) = self;
        for number in 0..size.div_ceil(BLOCK as u64) {
            block[..8].copy_from_slice(&number.to_le_bytes());
            let rest = size - number * BLOCK as u64;
            take(&block[..usize::try_from(rest).map_or(BLOCK, |rest| rest.min(BLOCK))])?;
        }
        Ok(())
    }
}

/// A server that answers `/SIZE`.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // The client sees what has failed.
            thread::spawn(move || answer(stream?));
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some(path) = line.strip_prefix("GET /") {
            let size: u64 = path.split(' ').next().unwrap().parse().unwrap();
            while !lines.next().transpose()?.is_none_or(|line| line.is_empty()) {}
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")?;
            Pattern::new().blocks(size, |block| stream.write_all(block))?;
        }
    }
    Ok(())
}

/// Downloads this many bytes and compares them; at most this many MiB a second, if there is a rate.
fn download(address: SocketAddr, size: u64, rate: Option<u64>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /{size} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {size}\r\n")), "{head}");
    let (start, mut received) = (Instant::now(), vec![0; BLOCK]);
    let mut taken = 0;
    let compared = Pattern::new().blocks(size, |block| {
        stream.read_exact(&mut received[..block.len()])?;
        assert!(received[..block.len()] == *block, "other bytes in the block behind {taken}");
        taken += block.len() as u64;
        if let Some(rate) = rate {
            let due = start + Duration::from_micros(taken * 1_000_000 / (rate * MIB));
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok::<_, std::io::Error>(())
    });
    compared.unwrap_or_else(|error| panic!("{error} behind {taken}"));
    assert_eq!(stream.read(&mut received).unwrap(), 0, "more than {size} bytes");
}

/// The most bytes that a server has held.
#[derive(Debug, Default)]
struct Held {
    memory: u64,
    pipes: u64,
    /// Of both at the same time.
    all: u64,
}

/// Downloads at the same time. Returns the most that the server has held meanwhile.
fn held_for_downloads(server: &Server, size: u64, rate: Option<u64>) -> Held {
    let address = tcp_address(server);
    let mut most = Held::default();
    thread::scope(|scope| {
        let downloads = [(); DOWNLOADS];
        let downloads = downloads.map(|()| scope.spawn(move || download(address, size, rate)));
        while !downloads.iter().all(thread::ScopedJoinHandle::is_finished) {
            let (memory, pipes) = (resident_bytes(server), pipe_bytes(server));
            most.memory = most.memory.max(memory);
            most.pipes = most.pipes.max(pipes);
            most.all = most.all.max(memory + pipes);
            thread::sleep(Duration::from_millis(20));
        }
    });
    most
}

/// Memory that the server has in use between downloads, when it has given that of its buffers back.
fn memory_at_rest(server: &Server) -> u64 {
    thread::sleep(REST);
    resident_bytes(server)
}

/// Downloads of this many MiB each by fast clients, and by slow clients that receive this many MiB a second.
fn check(fast: u64, slow: u64, slow_rate: u64) {
    on_both_drivers(|driver| {
        for splice in [false, true] {
            let tree = Tree::new();
            let keys = format!("buffer = {BUFFER}\nsplice = {splice}");
            configure(&tree, driver, &[format!("http://{}", origin())], &keys);
            let server = serve(&tree);
            // Both workers touch what they allocate once.
            for _ in 0..WARMING {
                held_for_downloads(&server, 16 * MIB, None);
            }
            for (size, rate) in [(fast, None), (slow, Some(slow_rate))] {
                let is_bounded = (0..TRIES).any(|_| {
                let idle = memory_at_rest(&server);
                let start = Instant::now();
                let held = held_for_downloads(&server, size * MIB + 1, rate);
                let share = |bytes: u64, of: u64| bytes as f64 / (DOWNLOADS as u64 * of) as f64;
                let memory = share(held.memory.saturating_sub(idle), BUFFER);
                let pipes = if splice { PIPES } else { 0 };
                let all = share(held.all.saturating_sub(idle), BUFFER + pipes);
                let took = start.elapsed().as_secs_f64();
                eprintln!(
                    "{keys:?}: {size} MiB in {took:.1} s; {memory:.3} of the buffers in memory, {} bytes in pipes, \
                     {all:.3} of what is documented",
                    held.pipes
                );
                assert_eq!(held.pipes > 0, splice, "{} bytes in pipes", held.pipes);
                memory <= 1.05 && all <= 1.05
                });
                assert!(
                    is_bounded,
                    "more than the buffers, or than what is documented, {TRIES} times"
                );
            }
        }
    });
}

#[test]
fn long_downloads_are_exact_and_stay_within_their_buffers() {
    check(64, 32, 16);
}

#[test]
#[ignore = "takes minutes"]
fn exact_downloads_of_4_gib() {
    check(4096, 4096, 128);
}

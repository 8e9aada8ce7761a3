//! Measures requests for hot files while other requests wait for a stalled server.
//!
//! The server behind the gateway accepts every connection. It sends nothing for half of the requests, and one
//! byte per second for the others. Windows without and with these requests take turns.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::super::peers::STALLED;
use super::super::rounds::{Rounds, in_windows};
use super::super::server::{Host, Server};
use super::super::site::Site;
use super::super::{Dropped, League};
use crate::load::{Arrival, Background, Order, Plan, Target};
use crate::run::Table;
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Hot files beside requests for a server that does not go on";
    Test::new("stalled", title, move |recorder| run(&league, recorder))
        .scales("as fast beside the stalled requests as without them")
        .x("window")
        .warm_up("the hot file is fetched first; the stalled requests have reached the server before a window")
        .tabled()
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = league.chosen(&STALLED)?;
    let windows = recorder.steps();
    let site = Site::new(league.root.as_deref())?;
    let files = [site.file("hot", HOT_BYTES)?];
    site.warm(&files)?;
    let origin = Origin::start()?;
    let mut rounds = Rounds::default();
    let mut dropped = Dropped::default();
    for (nth, peer) in peers.iter().enumerate() {
        let host = Host {
            root: site.root(),
            files: &files,
            cpu: league.server_cpu,
            throttle: None,
            origin: Some(origin.address),
            network: None,
        };
        let Some(mut server) = league.start_on(recorder, peer, &site, host) else { continue };
        for window in 0..windows {
            if recorder.is_stopped() {
                break;
            }
            let x = float(window + 1);
            match windows_of(league, &mut server, &origin) {
                Ok(both) => {
                    for (kind, of_kind) in [ALONE, BESIDE].into_iter().zip(both) {
                        of_kind.record(recorder, &mut rounds, &peer.name, kind, x);
                    }
                }
                Err(fault) => {
                    dropped.add(recorder, &peer.name, window + 1, fault);
                    // The stalled requests end with the server at the latest.
                    drop(server);
                    origin.end_window()?;
                    break;
                }
            }
            let done = nth * windows + window + 1;
            recorder.progress(float(done) / float(peers.len() * windows));
        }
    }
    let rows = peers.iter().map(|peer| &peer.name[..]).filter_map(|name| {
        rounds.spread(name, &in_windows(RATE, BESIDE))?;
        let ratio = |what| {
            rounds.median(name, &in_windows(what, BESIDE))
                / rounds.median(name, &in_windows(what, ALONE))
        };
        let rate = |kind| rounds.cell(name, &in_windows(RATE, kind), |rate| format!("{rate:.0}"));
        let p99 = |kind| rounds.cell(name, &in_windows(P99, kind), |ns| Unit::Nanoseconds.show(ns));
        Some(vec![
            name.to_owned(),
            format!("{:.1} %", 100.0 * ratio(RATE)),
            rate(BESIDE),
            rate(ALONE),
            format!("{:.2}", ratio(P99)),
            p99(BESIDE),
            p99(ALONE),
        ])
    });
    let rows = rows.collect();
    let head = [
        "server",
        "kept",
        "requests/s beside",
        "requests/s alone",
        "p99, alone = 1",
        "p99 beside",
        "p99 alone",
    ];
    recorder.table(Table {
        title: format!(
            "a file of {HOT_BYTES} bytes in memory, beside {REQUESTS} requests for a server of which half are not \
             answered and half by a byte a second: medians (least–greatest) of {windows} windows each; rate in a \
             closed loop over {} connections, p99 at {HOT_RATE:.0} requests/s",
            league.connections
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    recorder.note("the stalled server shares the CPU of the load generator");
    league.describe_these(recorder, &peers);
    dropped.result(peers.len())
}

/// A window without stalled requests, and a window during them.
fn windows_of(league: &League, server: &mut Server, origin: &Origin) -> Result<[Window; 2], Fault> {
    let alone = look(league, server)?;
    let stalled = stall(league, server, origin)?;
    let beside = look(league, server);
    let waiting = origin.waiting.load(Ordering::Relaxed);
    stalled.stop()?;
    origin.end_window()?;
    if waiting != REQUESTS {
        let text = format!("{waiting} of {REQUESTS} requests were stalled to the end");
        return Err(Fault::Failed(text));
    }
    Ok([alone, beside?])
}

/// The figures of a window.
struct Window {
    rate: f64,
    p99: crate::spread::Value,
}

impl Window {
    fn record(
        &self,
        recorder: &mut Recorder<'_>,
        rounds: &mut Rounds,
        name: &str,
        kind: &str,
        x: f64,
    ) {
        rounds.record(recorder, name, &in_windows(RATE, kind), Unit::PerSecond, x, self.rate);
        rounds.record(recorder, name, &in_windows(P99, kind), Unit::Nanoseconds, x, self.p99);
    }
}

/// Requests the hot file, in a closed loop and then by the clock.
fn look(league: &League, server: &mut Server) -> Result<Window, Fault> {
    let target = Target { len: Some(HOT_BYTES), ..Target::new("/hot") };
    let closed = league.plan(server, vec![target]);
    let by_clock = Plan { arrival: Arrival::Poisson(HOT_RATE), ..closed.clone() };
    let [closed, by_clock] = [closed, by_clock].map(|plan| league.measure(server, &plan));
    let (closed, by_clock) = (closed?.account, by_clock?.account);
    for account in [&closed, &by_clock] {
        if account.failed_ever() > 0 {
            return Err(Fault::Failed(format!("requests for the file: {}", account.failures())));
        }
    }
    Ok(Window { rate: closed.rate(), p99: by_clock.percentile(0.99) })
}

/// Sends the requests that stall, and waits until the server behind the gateway has all of them.
fn stall(league: &League, server: &Server, origin: &Origin) -> Result<Background, Fault> {
    let forever = Duration::from_secs(3600);
    let path = |nth| if nth % 2 == 0 { "/stalled/silent" } else { "/stalled/slow" };
    let stalled = Background::start(Plan {
        order: Order::Once,
        connections: REQUESTS,
        warmup: Duration::ZERO,
        duration: forever,
        timeout: forever,
        ..league.plan(server, (0..REQUESTS).map(|nth| Target::new(path(nth))).collect())
    });
    let start = Instant::now();
    while origin.waiting.load(Ordering::Relaxed) < REQUESTS {
        if start.elapsed() > PATIENCE {
            let waiting = origin.waiting.load(Ordering::Relaxed);
            return Err(Fault::Failed(format!("{waiting} of {REQUESTS} requests have come")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(stalled)
}

/// A server that does not go on, in this process.
struct Origin {
    address: SocketAddr,
    /// The number of requests that wait for the server.
    waiting: Arc<AtomicUsize>,
    /// Windows that have ended; their requests wait no more.
    windows: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (waiting, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let windows = Arc::<AtomicUsize>::default();
        let (all, ended, end) = (Arc::clone(&waiting), Arc::clone(&windows), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (waiting, windows) = (Arc::clone(&all), Arc::clone(&ended));
                // The thread ends when its peer closes the connection.
                thread::spawn(move || {
                    let mut is_counted = false;
                    // Whatever breaks the connection ends the request.
                    let _ = answer(&stream, &windows, || {
                        is_counted = true;
                        waiting.fetch_add(1, Ordering::Relaxed);
                    });
                    if is_counted {
                        waiting.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Ok(Self { address, waiting, windows, is_over, thread: Some(thread) })
    }
}

impl Origin {
    /// Lets all requests end, whether their gateway knows that their clients have gone or not.
    fn end_window(&self) -> Result<(), Fault> {
        self.windows.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        while self.waiting.load(Ordering::Relaxed) > 0 {
            if start.elapsed() > PATIENCE {
                return Err(Fault::Failed("stalled requests have not ended".to_owned()));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The connection wakes the thread up.
        let is_woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            let _ = thread.join();
        }
    }
}

/// Keeps a request waiting until its connection ends, or its window does.
fn answer(mut stream: &TcpStream, windows: &AtomicUsize, begun: impl FnOnce()) -> io::Result<()> {
    let mut head = [0; 4096];
    let count = stream.read(&mut head)?;
    if count == 0 {
        return Ok(());
    }
    let window = windows.load(Ordering::Relaxed);
    begun();
    let is_slow = head[..count].windows(5).any(|word| word == b"/slow");
    if is_slow {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
    }
    stream.set_read_timeout(Some(TICK))?;
    for tick in 1_u32.. {
        match stream.read(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Ok(()),
        }
        if windows.load(Ordering::Relaxed) != window {
            break;
        }
        if is_slow && tick.is_multiple_of(TICKS_PER_BYTE) {
            stream.write_all(b"x")?;
        }
    }
    if !is_slow {
        // A gateway that does not know that its client has gone would ask again.
        stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
    }
    Ok(())
}

pub(crate) const ALONE: &str = "alone";
pub(crate) const BESIDE: &str = "beside stalled requests";
pub(crate) const RATE: &str = "requests per second";
pub(crate) const P99: &str = "p99 of a hot file";

const HOT_BYTES: u64 = 1024;
/// The requests per second for the hot file, where the latency is measured.
const HOT_RATE: f64 = 5000.0;
/// Requests that stall.
const REQUESTS: usize = 100;
/// Between two looks of the stalled server.
const TICK: Duration = Duration::from_millis(100);
/// The number of times that the stalled server looks for each byte; together they take a second.
const TICKS_PER_BYTE: u32 = 10;
/// The time limit for all requests to reach the server behind the gateway.
const PATIENCE: Duration = Duration::from_secs(10);

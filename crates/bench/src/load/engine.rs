//! The shell of the load generator: one thread, one epoll, all connections.
//!
//! Each connection has at most one request under way. A request in an open loop uses a free connection when it is due;
//! if there is none, it waits, and its latency grows.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use rustix::time::{ClockId, clock_gettime};

use super::account::{Account, LATE};
use super::failure::Failure;
use super::popularity::Popularity;
use super::response::Parser;
use super::schedule::nanos;
use super::schedule::{Arrival, Nanos, Schedule};
use super::target::{begin_connect, connect};
use super::trace::{Exchange, Trace};
use super::{Plan, pin};
use crate::interrupt;
use crate::machine::read;

/// The progress of a load for another thread, which can also end the load.
#[derive(Debug, Default)]
pub struct Watch {
    bytes: AtomicU64,
    enough: AtomicBool,
    stop: AtomicBool,
    /// The targets of a traced load that were left and not yet taken; at most [`LEFT_MAX`].
    left: Mutex<Vec<usize>>,
}

impl Watch {
    /// The bytes of bodies received so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // The counter publishes no other memory.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes the targets that were left since the previous call.
    #[must_use]
    pub fn take_left(&self) -> Vec<usize> {
        core::mem::take(&mut self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add_left(&self, target: usize) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < LEFT_MAX {
            left.push(target);
        }
    }

    /// Ends the window within [`NAP_MAX`]; requests in flight are waited for as at its regular end.
    pub fn close(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// Ends the load within [`NAP_MAX`], without waiting for responses.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the load must end, because of [`Watch`] or ctrl-C.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || interrupt::is_set()
    }
}

/// Runs a load on this thread, which it pins to [`Plan::cpu`].
///
/// # Errors
/// If the first connections cannot be made, if [`FAILURES_MAX`] requests in a row fail, or if the kernel
/// refuses a resource of the generator.
pub fn run(plan: &Plan, watch: &Watch) -> io::Result<Account> {
    pin(plan.cpu)?;
    // Due times are met to the microsecond; by default they are 50 µs late (prctl(2)).
    rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1))?;
    let mut engine = Engine::new(plan, watch)?;
    engine.open()?;
    engine.load()?;
    engine.drain()?;
    Ok(engine.account)
}

struct Engine<'a> {
    plan: &'a Plan,
    watch: &'a Watch,
    /// The request for each target.
    requests: Vec<Vec<u8>>,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections without a request, in the order in which they were freed, and since when.
    free: VecDeque<(usize, Nanos)>,
    /// Connections that have failed, and when they are free again.
    resting: VecDeque<(usize, Nanos)>,
    /// Connections that have more to receive, though no event will say so.
    again: Vec<usize>,
    under_way: usize,
    schedule: Schedule,
    popularity: Popularity,
    /// There is nothing more to ask for.
    exhausted: bool,
    start: Instant,
    /// Between these times requests count.
    window: (Nanos, Nanos),
    /// The generator's CPU time when the window opened, and the time waited for the CPU; `None` before.
    window_cpu: Option<(Duration, Duration)>,
    draining: bool,
    failures_in_row: u32,
    next_scan: Nanos,
    buffer: Box<[u8]>,
    account: Account,
}

#[derive(Debug, Default)]
struct Connection {
    socket: Option<OwnedFd>,
    request: Option<Request>,
    parser: Parser,
    /// The number of connections made in this slot, for their source addresses.
    turn: usize,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    target: usize,
    /// When it was meant to leave.
    intended: Nanos,
    /// The time when the request left, or when its connect began.
    began: Nanos,
    /// The bytes of it that the kernel has taken; `None` while connecting.
    sent: Option<usize>,
    /// True once the first byte of its response has come.
    has_begun: bool,
}

/// The next state of a connection after an event.
enum Verdict {
    Waiting,
    /// More has come than one connection may receive at a time.
    Again,
    Answered,
    Failed(Failure),
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan, watch: &'a Watch) -> io::Result<Self> {
        let request = |target: &super::Target| target.request(&plan.host, plan.keep_alive);
        let mut connections = Vec::new();
        connections.resize_with(plan.connections, Connection::default);
        // The extreme case: meant to leave when the warm-up began, and sent in the last moment of the wait for responses.
        let mut account = Account::new(plan.warmup + plan.duration + DRAIN + plan.timeout);
        account.trace = plan.is_traced.then(|| Trace::new(plan.targets.len()));
        Ok(Self {
            plan,
            watch,
            requests: plan.targets.iter().map(request).collect(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections,
            free: VecDeque::with_capacity(plan.connections),
            resting: VecDeque::new(),
            again: Vec::new(),
            under_way: 0,
            schedule: Schedule::new(plan.arrival, plan.seed),
            popularity: Popularity::new(plan.order, plan.targets.len(), plan.seed ^ 1),
            exhausted: false,
            start: Instant::now(),
            window: (nanos(plan.warmup), nanos(plan.warmup + plan.duration)),
            window_cpu: None,
            draining: false,
            failures_in_row: 0,
            next_scan: 0,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            account,
        })
    }

    /// Opens the kept connections, one after the other.
    fn open(&mut self) -> io::Result<()> {
        if self.plan.keep_alive {
            for i in 0..self.connections.len() {
                interrupt::check()?;
                let began = Instant::now();
                let source = self.plan.sources.of(i);
                let socket = connect(self.plan.address, source, self.plan.timeout)?;
                self.account.connect.saturating_record(nanos(began.elapsed()));
                self.register(i, &socket)?;
                self.connections[i].socket = Some(socket);
            }
        }
        self.free.extend((0..self.connections.len()).map(|i| (i, 0)));
        Ok(())
    }

    fn load(&mut self) -> io::Result<()> {
        self.start = Instant::now();
        loop {
            let now = self.now();
            self.mark_window(now);
            let done = self.exhausted && self.under_way == 0;
            let cut = self.watch.is_closed() || self.watch.is_stopped();
            if now >= self.window.1 || done || cut {
                return self.close_window(now);
            }
            self.send_due(now)?;
            self.turn(now)?;
        }
    }

    /// Ends the requests that are in flight or should be.
    fn drain(&mut self) -> io::Result<()> {
        self.draining = true;
        let end = self.now() + nanos(DRAIN.min(self.plan.timeout));
        loop {
            let now = self.now();
            self.send_due(now)?;
            if self.under_way == 0 || now >= end || self.watch.is_stopped() {
                break;
            }
            self.turn(now)?;
        }
        let now = self.now();
        for i in 0..self.connections.len() {
            if let Some(request) = self.connections[i].request {
                self.record(request, now, Account::gave_up);
                self.account.fail(Failure::Unfinished);
                let bytes = self.connections[i].parser.body_len();
                self.trace(request, now, bytes, Some(Failure::Unfinished));
            }
        }
        // Requests of an open loop that found no connection are unanswered too; the first waited longest.
        let mut is_first = true;
        while !self.watch.is_stopped()
            && let Some(intended) = self.next_intended(now)
        {
            self.account.gave_up(now - intended);
            if core::mem::take(&mut is_first) {
                self.waited(intended, now);
            }
            self.account.fail(Failure::Unfinished);
            if let (Some(trace), Some(target)) = (&mut self.account.trace, self.popularity.draw()) {
                let failure = Some(Failure::Unfinished);
                trace.keep(Exchange { target, intended, ended: now, bytes: 0, failure });
            }
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        nanos(self.start.elapsed())
    }

    fn mark_window(&mut self, now: Nanos) {
        if self.window_cpu.is_none() && now >= self.window.0 {
            self.window.0 = now;
            self.window_cpu = Some((thread_cpu(), thread_wait()));
        }
    }

    fn close_window(&mut self, now: Nanos) -> io::Result<()> {
        let Some((cpu, wait)) = self.window_cpu else {
            return Err(Error::other("the load ended before its warm-up did"));
        };
        self.window.1 = now;
        self.account.window = Duration::from_nanos(now - self.window.0);
        self.account.own_cpu = thread_cpu() - cpu;
        self.account.own_wait = thread_wait().saturating_sub(wait);
        Ok(())
    }

    /// Waits for events, the next request to send, or the next scan, and handles them.
    fn turn(&mut self, now: Nanos) -> io::Result<()> {
        let again = core::mem::take(&mut self.again);
        let until = if again.is_empty() { self.next_work(now) } else { now };
        let nap = Duration::from_nanos(until.saturating_sub(now));
        let nap = Timespec::try_from(nap).expect("less than a second");
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&nap)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let i = usize::try_from(event.data.u64()).expect("an index of ours");
            self.event(i)?;
        }
        for i in again {
            self.event(i)?;
        }
        self.scan()
    }

    /// The time of the next thing to do without an event.
    fn next_work(&self, now: Nanos) -> Nanos {
        let end = self.window.1;
        let next = self.schedule.next().filter(|&at| at < end && !self.free.is_empty());
        let rested = self.resting.front().map(|(_, at)| *at);
        let end = (!self.draining).then_some(end);
        let times = [next, rested, end];
        times.into_iter().flatten().fold(now + nanos(NAP_MAX), Nanos::min)
    }

    /// Sends the due requests, as long as there are free connections.
    fn send_due(&mut self, now: Nanos) -> io::Result<()> {
        while let Some(&(i, at)) = self.resting.front()
            && at <= now
        {
            self.resting.pop_front();
            self.free.push_back((i, at));
        }
        while let Some(&(i, since)) = self.free.front() {
            let Some(intended) = self.next_intended(now) else { break };
            self.free.pop_front();
            let could = intended.max(since);
            self.begin(i, intended, could)?;
        }
        Ok(())
    }

    /// The time at which the next request was meant to leave, if that has passed. After the window only
    /// requests are left that should have left within it.
    fn next_intended(&mut self, now: Nanos) -> Option<Nanos> {
        if self.exhausted {
            return None;
        }
        match self.plan.arrival {
            Arrival::Closed => (!self.draining).then_some(now),
            Arrival::Even(_) | Arrival::Poisson(_) | Arrival::Ramp(_) => {
                self.schedule.take_due(now.min(self.window.1 - 1))
            }
        }
    }

    /// Begins a request that could have left at `could`.
    fn begin(&mut self, i: usize, intended: Nanos, could: Nanos) -> io::Result<()> {
        let Some(target) = self.popularity.draw() else {
            self.exhausted = true;
            self.free.push_back((i, could));
            return Ok(());
        };
        let began = self.now();
        if self.window_cpu.is_some() {
            self.account.sent += 1;
        }
        if self.window_cpu.is_some() && self.plan.arrival != Arrival::Closed {
            self.account.sent_late += u64::from(began.saturating_sub(could) > nanos(LATE));
        }
        let connected = self.connections[i].socket.is_some();
        let sent = connected.then_some(0);
        self.connections[i].request =
            Some(Request { target, intended, began, sent, has_begun: false });
        self.under_way += 1;
        if let Some(trace) = &mut self.account.trace {
            trace.began(target);
        }
        if connected { self.event(i) } else { self.reconnect(i) }
    }

    fn reconnect(&mut self, i: usize) -> io::Result<()> {
        let connection = &mut self.connections[i];
        // Spread over the sources, whichever connection it is.
        let source = self.plan.sources.of(i + connection.turn);
        connection.turn += 1;
        match begin_connect(self.plan.address, source) {
            Ok(socket) => {
                self.register(i, &socket)?;
                self.connections[i].socket = Some(socket);
                Ok(())
            }
            Err(error) => {
                let failure = match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Failure::Ports,
                    _ => Failure::Connect,
                };
                self.fail(i, failure)
            }
        }
    }

    /// Edge-triggered for both directions, so that nothing need be changed later.
    fn register(&self, i: usize, socket: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(i as u64), flags)?;
        Ok(())
    }

    /// Something happened to a connection, or it was given a request.
    fn event(&mut self, i: usize) -> io::Result<()> {
        let verdict = self.advance(i);
        match verdict {
            Verdict::Waiting => Ok(()),
            Verdict::Again => {
                self.again.push(i);
                Ok(())
            }
            Verdict::Answered => self.answered(i),
            Verdict::Failed(failure) => self.fail(i, failure),
        }
    }

    /// Advances a connection's request as far as possible.
    fn advance(&mut self, i: usize) -> Verdict {
        let connection = &mut self.connections[i];
        let Some(socket) = connection.socket.as_ref() else { return Verdict::Waiting };
        let Some(request) = connection.request.as_mut() else {
            // The peer may close an idle connection; the next request opens another.
            if is_closed(socket) {
                connection.socket = None;
            }
            return Verdict::Waiting;
        };
        let bytes = &self.requests[request.target];
        let sent = match request.sent {
            Some(sent) => sent,
            None => match sockopt::socket_error(socket) {
                Ok(Ok(())) if rustix::net::getpeername(socket).is_ok() => {
                    let since = nanos(self.start.elapsed()) - request.began;
                    self.account.connect.saturating_record(since);
                    0
                }
                Ok(Ok(())) => return Verdict::Waiting,
                Ok(Err(_)) | Err(_) => return Verdict::Failed(Failure::Connect),
            },
        };
        request.sent = Some(sent);
        if sent < bytes.len() {
            match send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(n) => request.sent = Some(sent + n),
                Err(Errno::AGAIN) => {}
                Err(_) => return Verdict::Failed(Failure::Closed),
            }
            // The response cannot have come yet; an event will report it.
            return Verdict::Waiting;
        }
        self.receive(i)
    }

    fn receive(&mut self, i: usize) -> Verdict {
        let Connection { socket: Some(socket), request: Some(request), parser, .. } =
            &mut self.connections[i]
        else {
            return Verdict::Waiting;
        };
        let target = &self.plan.targets[request.target];
        let body = target.body.as_deref();
        let looks = body.is_some() || self.plan.copy;
        let mut counts_bytes = ByteCount {
            account: &mut self.account,
            watch: self.watch,
            in_window: self.window_cpu.is_some() && !self.draining,
        };
        for _ in 0..RECEIVES_MAX {
            // The bytes of a body that is not compared stay in the kernel (MSG_TRUNC, tcp(7)).
            let passable = if looks { 0 } else { parser.passable() };
            let flags = if passable > 0 { RecvFlags::TRUNC } else { RecvFlags::empty() };
            let limit = usize::try_from(passable).unwrap_or(usize::MAX);
            let limit = if passable > 0 { limit.min(BUFFER) } else { LOOK };
            let n = match recv(socket.as_fd(), &mut self.buffer[..limit], flags) {
                Ok((_, 0)) => {
                    return match parser.end() {
                        Ok(()) => Verdict::Answered,
                        Err(_) => Verdict::Failed(Failure::Closed),
                    };
                }
                Ok((_, n)) => n,
                Err(Errno::AGAIN) => return Verdict::Waiting,
                Err(Errno::INTR) => continue,
                Err(_) => return Verdict::Failed(Failure::Closed),
            };
            if !core::mem::replace(&mut request.has_begun, true) {
                let since = nanos(self.start.elapsed()).saturating_sub(request.intended);
                counts_bytes.account.first_byte.saturating_record(since);
            }
            let before = parser.body_len();
            let mut same = true;
            let done = if passable > 0 {
                Ok(parser.pass(n))
            } else {
                let mut at = usize::try_from(before).unwrap_or(usize::MAX);
                parser.feed(&self.buffer[..n], |bytes| {
                    same &= body.is_none_or(|body| {
                        body.get(at..at.saturating_add(bytes.len())) == Some(bytes)
                    });
                    at = at.saturating_add(bytes.len());
                })
            };
            let bytes = parser.body_len() - before;
            counts_bytes.add(bytes);
            if let Some(trace) = &mut counts_bytes.account.trace {
                trace.received(nanos(self.start.elapsed()), target.group, bytes);
            }
            match done {
                Err(_) => return Verdict::Failed(Failure::Malformed),
                Ok(_) if !same => return Verdict::Failed(Failure::Bytes),
                Ok(true) => return Verdict::Answered,
                Ok(false) => {}
            }
        }
        Verdict::Again
    }

    /// Handles a complete response.
    fn answered(&mut self, i: usize) -> io::Result<()> {
        let now = self.now();
        let connection = &mut self.connections[i];
        let Some(request) = connection.request.take() else { return Ok(()) };
        let target = &self.plan.targets[request.target];
        let parser = &connection.parser;
        let len_is_right = target.len.is_none_or(|len| len == parser.body_len());
        let failure = match parser.status() {
            200 if len_is_right => None,
            200 => Some(Failure::Bytes),
            _ => Some(Failure::Status),
        };
        if !(self.plan.keep_alive && parser.keep_alive()) {
            connection.socket = None;
        }
        let bytes = connection.parser.body_len();
        connection.parser.reset();
        self.under_way -= 1;
        self.trace(request, now, bytes, failure);
        if let Some(failure) = failure {
            return self.count_failure(i, failure);
        }
        self.failures_in_row = 0;
        self.account.answered_ever += 1;
        self.record(request, now, Account::took);
        if self.window_cpu.is_some() && !self.draining {
            self.account.answer(now - self.window.0, now - request.intended);
        }
        // At once, as long as this one is as free as any other.
        match self.free.is_empty().then(|| self.next_intended(now)).flatten() {
            Some(intended) => self.begin(i, intended, now),
            None => {
                self.free.push_back((i, now));
                Ok(())
            }
        }
    }

    /// Records the latency of a request that was under way in the window, if only when that opened.
    fn record(&mut self, request: Request, now: Nanos, count: fn(&mut Account, Nanos)) {
        if self.window_cpu.is_some() && request.intended < self.window.1 {
            count(&mut self.account, now.saturating_sub(request.intended));
            self.waited(request.intended, now);
        }
    }

    /// Keeps an exchange that has ended, if the load is traced.
    fn trace(&mut self, request: Request, ended: Nanos, bytes: u64, failure: Option<Failure>) {
        let Some(trace) = &mut self.account.trace else { return };
        let Request { target, intended, .. } = request;
        if trace.ended(Exchange { target, intended, ended, bytes, failure }) {
            self.watch.add_left(target);
        }
    }

    /// Notes the wait of a request within the window, from the window's start if it began before, up to
    /// its end.
    fn waited(&mut self, intended: Nanos, now: Nanos) {
        let (start, end) = self.window;
        let from = intended.max(start) - start;
        self.account.waited(from, now.min(end) - start, now > end);
    }

    fn fail(&mut self, i: usize, failure: Failure) -> io::Result<()> {
        let now = self.now();
        let connection = &mut self.connections[i];
        let Some(request) = connection.request.take() else { return Ok(()) };
        connection.socket = None;
        let bytes = connection.parser.body_len();
        connection.parser.reset();
        self.under_way -= 1;
        self.trace(request, now, bytes, Some(failure));
        if failure == Failure::Timeout {
            self.record(request, now, Account::gave_up);
        }
        self.count_failure(i, failure)
    }

    fn count_failure(&mut self, i: usize, failure: Failure) -> io::Result<()> {
        self.account.fail(failure);
        self.failures_in_row += 1;
        // Timeouts alone do not make a server unreachable: a slow server is a result.
        let goes_on = failure == Failure::Timeout || self.plan.is_traced;
        if self.failures_in_row >= FAILURES_MAX && !goes_on {
            let why = self.account.failures();
            let address = self.plan.address;
            return Err(Error::new(
                ErrorKind::ConnectionAborted,
                format!("{FAILURES_MAX} requests in a row to {address} failed ({why})"),
            ));
        }
        self.resting.push_back((i, self.now() + nanos(REST)));
        Ok(())
    }

    /// Looks for requests that have timed out, now and then.
    fn scan(&mut self) -> io::Result<()> {
        let now = self.now();
        if now < self.next_scan {
            return Ok(());
        }
        let limit = nanos(self.plan.timeout);
        // Requests that begin from now on are not late before this one would be.
        let mut first = now;
        for i in 0..self.connections.len() {
            let Some(request) = self.connections[i].request else { continue };
            if now.saturating_sub(request.began) > limit {
                self.fail(i, Failure::Timeout)?;
            } else {
                first = first.min(request.began);
            }
        }
        self.next_scan = (first + limit).max(now + nanos(SCAN));
        Ok(())
    }
}

/// Counts the bytes of bodies.
struct ByteCount<'a> {
    account: &'a mut Account,
    watch: &'a Watch,
    in_window: bool,
}

impl ByteCount<'_> {
    fn add(&mut self, n: u64) {
        self.watch.bytes.fetch_add(n, Ordering::Relaxed);
        if self.in_window {
            self.account.bytes += n;
        }
    }
}

fn is_closed(socket: &OwnedFd) -> bool {
    !matches!(recv(socket, &mut [0; 1], RecvFlags::PEEK), Err(Errno::AGAIN | Errno::INTR))
}

/// The CPU time of this thread.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The time for which this thread was runnable but did not run; 0 if the kernel does not report it.
fn thread_wait() -> Duration {
    let schedstat = read("/proc/thread-self/schedstat");
    // Documentation/scheduler/sched-stats.rst: nanoseconds waited come second.
    let waited = schedstat.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

/// Events taken from the kernel in one call.
const EVENTS: usize = 512;

/// The bytes of a body that one call discards.
const BUFFER: usize = 1 << 20;

/// Receives from one connection in a turn.
const RECEIVES_MAX: usize = 8;

/// The bytes that are received to be parsed: a head and a small body.
const LOOK: usize = 16 << 10;

/// The longest wait for events: how soon [`Watch::stop`] is seen.
pub const NAP_MAX: Duration = Duration::from_millis(50);

/// The interval at which timeouts are looked for, so they may be late by as much.
const SCAN: Duration = Duration::from_millis(50);

/// The time after the window in which responses to its requests may come.
pub const DRAIN: Duration = Duration::from_secs(2);

/// The time for which a connection that has failed is not used.
const REST: Duration = Duration::from_millis(10);

/// The targets that [`Watch::take_left`] can take in one call; further ones stay as they are.
const LEFT_MAX: usize = 1_000_000;

/// The number of failures in a row, none of them a timeout, that ends the load.
pub const FAILURES_MAX: u32 = 1000;

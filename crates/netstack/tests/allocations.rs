//! Packets of open connections cost no allocation.
//!
//! Memory is allocated when a number exceeds its maximum so far: the connections, or the frames in flight on one
//! connection. A connection keeps the records of 64 frames when nothing is in flight. Memory is also allocated at the
//! first use of a timer's slot, and for bytes that come out of order or while the application does not receive.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::alloc::System;
use std::collections::VecDeque;

use netstack::sim::mac;
use netstack::tcp::{Drained, Endpoints};
use netstack::wire::ethernet::Mac;
use netstack::{
    Address, Application, Config, ConnectionId, Frame, Full, Limits, Lost, ReceivedChecksum, Stack,
    Time, Transmit,
};
use outq::OutQ;

/// Counts allocations of a thread while it runs the stack of the server.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    if IS_COUNTED.get() {
        COUNT.set(COUNT.get() + 1);
    }
}

// SAFETY: all methods hand their arguments on to `System`, which keeps the contract; what is done before allocates nothing,
// because both thread-locals are constants without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: `layout` is the caller's, who keeps this method's contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System`, as `alloc` and `realloc` return nothing else, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `dealloc`; `size` is the caller's.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// On a boundary of the timers' slots of 18 minutes, so that a run that is shorter uses one of them.
const START: Time = Time::from_nanos(1 << 50);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CONNECTIONS: u16 = 10;
const REQUEST: &[u8] = &[b'r'; 100];
/// Frames on their way at the same time.
const FRAMES_MAX: usize = 4096;
const FRAME_BYTES_MAX: usize = 70_000;

/// A cable. Frames are copied into buffers that are used again.
struct Cable {
    limits: Limits,
    free: Vec<Vec<u8>>,
    frames: VecDeque<Vec<u8>>,
    sent: u64,
    /// One in this many frames with data is lost; 0 for none.
    loses_each: u64,
}

impl Cable {
    fn new(cut_bytes_max: u32, loses_each: u64) -> Self {
        let bytes = if cut_bytes_max == 0 { 1514 } else { FRAME_BYTES_MAX };
        let count = if cut_bytes_max == 0 { FRAMES_MAX } else { 128 };
        Self {
            // Large frames are not cut here: to the peer each is one large segment.
            limits: Limits { mtu: 1500, cut_bytes_max, fills_checksums: cut_bytes_max > 0 },
            free: (0..count).map(|_| Vec::with_capacity(bytes)).collect(),
            frames: VecDeque::with_capacity(count),
            sent: 0,
            loses_each,
        }
    }
}

impl Transmit for Cable {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        self.sent += 1;
        if !frame.parts.is_empty()
            && self.loses_each > 0
            && self.sent.is_multiple_of(self.loses_each)
        {
            return Ok(());
        }
        let mut buffer = self.free.pop().ok_or(Full)?;
        buffer.clear();
        buffer.extend_from_slice(frame.head);
        frame.parts.iter().for_each(|part| buffer.extend_from_slice(part));
        self.frames.push_back(buffer);
        Ok(())
    }
}

/// Notes what is to be done for each connection.
struct App {
    /// The places of connections that are to be drained, each once, and what they have received.
    due: Vec<ConnectionId>,
    received: Vec<(ConnectionId, usize)>,
    ids: Vec<ConnectionId>,
}

impl App {
    fn new() -> Self {
        Self { due: Vec::with_capacity(1000), received: Vec::with_capacity(1000), ids: vec![] }
    }

    fn is_due(&mut self, id: ConnectionId) {
        if !self.due.contains(&id) {
            self.due.push(id);
        }
    }
}

impl Application for App {
    fn accepted(&mut self, id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {
        self.ids.push(id);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.received.push((id, bytes.len()));
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.is_due(id);
    }

    fn room(&mut self, id: ConnectionId) {
        self.is_due(id);
    }

    fn lost(&mut self, id: ConnectionId, why: Lost) {
        panic!("{id:?} is lost: {why:?}");
    }
}

/// A stack, its cable and the queues of its connections, which a vector of its own would lend.
struct End {
    stack: Stack,
    app: App,
    cable: Cable,
    queues: Vec<(ConnectionId, OutQ<&'static [u8]>)>,
}

impl End {
    fn new(ip: Ipv4Addr, secret: u8, cut_bytes_max: u32, loses_each: u64) -> Self {
        let config = Config {
            addresses: vec![Address { ip: ip.into(), prefix: 24, is_ours: true }],
            tcp_ports: vec![80],
            receive_bytes_max: 1024 * 1024,
            ..Config::new(mac(ip.into()))
        };
        Self {
            stack: Stack::new(config, [secret; 16], START),
            app: App::new(),
            cable: Cable::new(cut_bytes_max, loses_each),
            queues: Vec::new(),
        }
    }

    fn queue(&mut self, id: ConnectionId) -> &mut OutQ<&'static [u8]> {
        let at = self.queues.iter().position(|(other, _)| *other == id);
        let at = at.unwrap_or_else(|| {
            self.queues.push((id, OutQ::new()));
            self.queues.len() - 1
        });
        &mut self.queues[at].1
    }

    /// Handles frames and the time.
    fn step(&mut self, now: Time, frames: &mut Cable) {
        let known = ReceivedChecksum::Verified;
        while let Some(frame) = frames.frames.pop_front() {
            self.stack.handle_frame(now, &frame, known, &mut self.app, &mut self.cable);
            frames.free.push(frame);
        }
        if self.stack.next_timer().is_some_and(|next| next <= now) {
            self.stack.handle_timers(now, &mut self.app, &mut self.cable);
        }
    }

    /// Sends what is due.
    fn settle(&mut self, now: Time) {
        while let Some(id) = self.app.due.pop() {
            let Some((_, queue)) = self.queues.iter_mut().find(|(other, _)| *other == id) else {
                continue;
            };
            let mut budget = u64::MAX;
            let drained = self.stack.drain(now, id, queue, &mut budget, &mut self.cable);
            assert_ne!(drained, Drained::TurnOver, "the budget has no end");
        }
        self.stack.flush(now, &mut self.cable);
    }
}

/// Two ends with open connections.
struct Pair {
    client: End,
    server: End,
    now: Time,
    response: &'static [u8],
    /// Bytes of the response of each connection that are still to come.
    missing: Vec<(ConnectionId, usize)>,
    responses: u64,
}

impl Pair {
    fn new(response: &'static [u8], cut_bytes_max: u32, loses_each: u64) -> Self {
        let mut pair = Self {
            client: End::new(CLIENT, 1, 0, 0),
            server: End::new(SERVER, 2, cut_bytes_max, loses_each),
            now: START,
            response,
            missing: Vec::new(),
            responses: 0,
        };
        for port in 0..CONNECTIONS {
            let local = SocketAddr::new(CLIENT.into(), 5000 + port);
            let peer = SocketAddr::new(SERVER.into(), 80);
            let via = Mac(mac(SERVER.into()));
            let End { stack, cable, .. } = &mut pair.client;
            stack.connect(START, Endpoints { local, peer }, via, cable).expect("there is room");
        }
        while pair.client.app.ids.len() < CONNECTIONS.into()
            || pair.server.app.ids.len() < CONNECTIONS.into()
        {
            pair.step(FAST);
        }
        for id in pair.server.app.ids.clone() {
            pair.server.queue(id);
        }
        for id in pair.client.app.ids.clone() {
            pair.client.queue(id);
            pair.missing.push((id, 0));
        }
        pair
    }

    /// Handles what has come by a moment, and answers it.
    fn step(&mut self, time: Duration) {
        self.now = self.now + time;
        let Self { client, server, now, response, missing, responses } = self;
        IS_COUNTED.set(true);
        server.step(*now, &mut client.cable);
        IS_COUNTED.set(false);
        while let Some((id, bytes)) = server.app.received.pop() {
            assert_eq!(bytes, REQUEST.len());
            server.queue(id).push(response);
            server.app.is_due(id);
        }
        IS_COUNTED.set(true);
        server.settle(*now);
        IS_COUNTED.set(false);

        client.step(*now, &mut server.cable);
        while let Some((id, bytes)) = client.app.received.pop() {
            let of = missing.iter_mut().find(|(other, _)| *other == id).expect("a connection");
            of.1 -= bytes;
            *responses += u64::from(of.1 == 0);
        }
        for (id, missing) in missing.iter_mut().filter(|(_, missing)| *missing == 0) {
            *missing = response.len();
            client.queue(*id).push(REQUEST);
            client.app.is_due(*id);
        }
        client.settle(*now);
    }

    /// Requests on all connections for a time, in steps of another; returns the allocations of the server's stack, its frames, and the
    /// responses.
    fn run(&mut self, time: Duration, step: Duration) -> (u64, u64, u64) {
        let until = self.now + time;
        let (sent, responses) = (self.server.cable.sent, self.responses);
        COUNT.set(0);
        while self.now < until {
            self.step(step);
        }
        (COUNT.get(), self.server.cable.sent - sent, self.responses - responses)
    }
}

/// With long round trips, and then with short ones: so long that the timers' slots have held as many entries as they ever
/// do. Of the slots of 17.2 s it uses 18, and what is measured none more.
const WARM_UP: [Duration; 2] = [Duration::from_secs(280), Duration::from_secs(20)];
const MEASURED: Duration = Duration::from_secs(3);
/// From one step to the next.
const SLOW: Duration = Duration::from_millis(5);
const FAST: Duration = Duration::from_micros(500);

static SMALL: [u8; 1000] = [b's'; 1000];
static LARGE: [u8; 60_000] = [b'l'; 60_000];
/// At most 42 records, also if losses split them.
static MEDIUM: [u8; 30_000] = [b'm'; 30_000];

#[test]
fn requests_on_open_connections_allocate_nothing() {
    for (response, cut_bytes_max) in [(&SMALL[..], 0), (&LARGE[..], 0), (&LARGE[..], 65_000)] {
        let mut pair = Pair::new(response, cut_bytes_max, 0);
        pair.run(WARM_UP[0], SLOW);
        pair.run(WARM_UP[1], FAST);
        let (allocations, frames, responses) = pair.run(MEASURED, FAST);
        assert!(
            responses > 20_000 && frames >= responses,
            "{responses} responses, {frames} frames"
        );
        assert_eq!(allocations, 0, "in {frames} frames for {responses} responses");
    }
}

/// More timers than ever before may fall into one slot.
#[test]
fn lost_frames_allocate_next_to_nothing() {
    let mut pair = Pair::new(&MEDIUM, 0, 100);
    pair.run(WARM_UP[0], SLOW);
    pair.run(WARM_UP[1], FAST);
    let (allocations, frames, responses) = pair.run(MEASURED, FAST);
    assert!(responses > 2_000, "{responses} responses");
    assert!(pair.server.stack.counters().connections.retransmitted_fast > 1000);
    assert!(allocations * 5_000 < frames, "{allocations} in {frames} frames");
}

/// Otherwise the other tests cannot fail.
#[test]
fn what_grows_is_counted() {
    COUNT.set(0);
    let pair = Pair::new(&SMALL, 0, 0);
    assert!(COUNT.get() > 0, "{} connections without memory", pair.missing.len());
}

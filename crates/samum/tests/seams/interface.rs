//! A network of its own: one descriptor whose reads bring bytes of many connections, as a network
//! interface's do. A received part is cut out of the read that brought it, without a copy.
//!
//! A frame is the number of a connection, a length, and as many bytes; one without bytes ends the
//! connection's stream. Numbers grow: the first frame with a new number opens a connection.

mod tests;

use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::ops::{Deref, Range};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use outq::OutQ;
use ring::{Completion, Event, Fd, Op, RecvBuf, Ring};
use samum::network::{NetEvent, Network, Origin, Peer};
use sendfile::{Drained, Failure, KernelTcp, Piece, Takes, Transport};
use session::kind;

use crate::seams::below::{Below, bounds};

const HEAD_BYTES: usize = 4;
const BODY_BYTES_MAX: usize = 500;

fn frame(number: u16, bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("a short body");
    [&number.to_be_bytes(), &len.to_be_bytes(), bytes].concat()
}

/// A part of what one read of the interface has brought.
#[derive(Debug)]
pub(crate) struct Part {
    read: Rc<RecvBuf>,
    range: Range<usize>,
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.read[self.range.clone()]
    }
}

/// What has come for a connection.
#[derive(Debug)]
enum Came {
    Opened,
    Bytes(Part),
    End,
    Lost,
    Room,
}

/// A connection that has its place.
#[derive(Debug)]
struct Lane {
    id: u64,
    receives: bool,
    /// Came while nothing was to be received.
    held: VecDeque<Came>,
}

/// The interface, shared by the network and the transports.
#[derive(Debug)]
struct Wire {
    below: Below,
    lanes: BTreeMap<u16, Lane>,
}

/// The server's end of the interface.
pub(crate) struct Interface {
    wire: Rc<RefCell<Wire>>,
    /// What the network has not told yet, by connection.
    came: VecDeque<(u16, Came)>,
    head: Vec<u8>,
    /// The number of the frame whose body is being received, and the bytes of it that are missing.
    body: (u16, usize),
    next_number: u16,
    /// Reads that brought bytes of several connections, for tests.
    shared: Rc<Cell<usize>>,
    closed: bool,
}

impl Interface {
    fn new(socket: Fd, shared: &Rc<Cell<usize>>) -> Self {
        let tcp = KernelTcp::new(socket, kind::NETWORK, kind::NETWORK);
        let wire = Wire { below: Below::new(tcp), lanes: BTreeMap::new() };
        Self {
            wire: Rc::new(RefCell::new(wire)),
            came: VecDeque::new(),
            head: Vec::new(),
            body: (0, 0),
            next_number: 0,
            shared: Rc::clone(shared),
            closed: false,
        }
    }

    /// Cuts a read into the parts of connections.
    fn cut(&mut self, read: RecvBuf) {
        let (read, mut at, before) = (Rc::new(read), 0, self.came.len());
        while at < read.len() {
            let (number, missing) = &mut self.body;
            if *missing > 0 {
                let range = at..read.len().min(at + *missing);
                (at, *missing) = (range.end, *missing - range.len());
                let part = Part { read: Rc::clone(&read), range };
                self.came.push_back((*number, Came::Bytes(part)));
                continue;
            }
            self.head.push(read[at]);
            at += 1;
            let Ok([a, b, c, d]) = <[u8; HEAD_BYTES]>::try_from(&self.head[..]) else { continue };
            self.head.clear();
            self.body = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]).into());
            if self.body.0 >= self.next_number && !self.closed {
                self.next_number = self.body.0 + 1;
                self.came.push_back((self.body.0, Came::Opened));
            }
            if self.body.1 == 0 {
                self.came.push_back((self.body.0, Came::End));
            }
        }
        let mut numbers = self.came.iter().skip(before).map(|(number, _)| number);
        let first = numbers.next();
        let is_shared = numbers.any(|number| Some(number) != first);
        self.shared.set(self.shared.get() + usize::from(is_shared));
    }

    /// Something has come for all connections.
    fn tell_all(&mut self, came: fn() -> Came) {
        let wire = self.wire.borrow();
        self.came.extend(wire.lanes.keys().map(|number| (*number, came())));
    }
}

impl Network for Interface {
    type Transport = LaneTransport;
    type Newcomer = u16;
    type Bytes = Part;

    /// Newcomers wait in the worker's line.
    fn set_accepting(&mut self, ring: &mut Ring, _on: bool) {
        self.wire.borrow_mut().below.tcp.set_receiving(ring, true);
    }

    fn handle(&mut self, ring: &mut Ring, completion: Completion) -> Option<NetEvent<u16, Part>> {
        match completion.result {
            Ok(Event::Received(read)) => self.cut(read),
            Ok(Event::Writable) => {
                let below = &mut self.wire.borrow_mut().below;
                below.tcp.handle_writable();
                below.flush(ring);
            }
            // A connection receives again.
            Ok(Event::Timer) => {
                for (number, lane) in &mut self.wire.borrow_mut().lanes {
                    if lane.receives {
                        self.came.extend(lane.held.drain(..).map(|came| (*number, came)));
                    }
                }
            }
            _ => self.tell_all(|| Came::Lost),
        }
        if !self.wire.borrow().below.tcp.is_blocked() {
            self.tell_all(|| Came::Room);
        }
        self.next_event()
    }

    fn next_event(&mut self) -> Option<NetEvent<u16, Part>> {
        loop {
            let (number, came) = self.came.pop_front()?;
            if matches!(came, Came::Opened) {
                return Some(NetEvent::Accepted(number));
            }
            let mut wire = self.wire.borrow_mut();
            // The connection may have been closed.
            let Some(lane) = wire.lanes.get_mut(&number) else { continue };
            match came {
                Came::Bytes(_) | Came::End if !lane.receives => lane.held.push_back(came),
                Came::Bytes(part) => return Some(NetEvent::Received(lane.id, part)),
                Came::End => return Some(NetEvent::Ended(lane.id)),
                Came::Lost => return Some(NetEvent::Lost(lane.id)),
                Came::Room => return Some(NetEvent::Writable(lane.id)),
                Came::Opened => unreachable!("told above"),
            }
        }
    }

    fn open(&mut self, _ring: &mut Ring, number: u16, id: u64) -> LaneTransport {
        let lane = Lane { id, receives: true, held: VecDeque::new() };
        self.wire.borrow_mut().lanes.insert(number, lane);
        let wire = Rc::clone(&self.wire);
        LaneTransport { wire, number, is_blocked: false, has_ended: false }
    }

    fn origin(&self, number: &u16) -> Origin {
        let address = SocketAddr::from(([192, 0, 2, 1], *number));
        Origin { listener: 0, peer: Peer::from(address) }
    }

    fn close(&mut self, _ring: &mut Ring) {
        self.closed = true;
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

/// One connection's way through the interface.
pub(crate) struct LaneTransport {
    wire: Rc<RefCell<Wire>>,
    number: u16,
    is_blocked: bool,
    has_ended: bool,
}

impl Transport for LaneTransport {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        let below = &mut self.wire.borrow_mut().below;
        loop {
            let drained = below.flush(ring);
            self.is_blocked = drained == Drained::Blocked;
            if drained != Drained::Empty {
                return drained;
            }
            let Some(first) = queue.next_ready().next() else { return Drained::Empty };
            if *budget == 0 {
                return Drained::TurnOver;
            }
            let bytes = &first.payload.bytes()[bounds(&first.range)];
            let most = usize::try_from(*budget).map_or(BODY_BYTES_MAX, |n| n.min(BODY_BYTES_MAX));
            let bytes = &bytes[..bytes.len().min(most)];
            let count = bytes.len() as u64;
            below.push(frame(self.number, bytes));
            *budget -= count;
            queue.mark_sent(count);
            queue.mark_released(count);
        }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        Ok(bytes)
    }

    fn handle_writable(&mut self) {
        self.is_blocked = false;
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    fn acknowledged(&self, _ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        queue.sent().cast_signed()
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        let lanes = &mut self.wire.borrow_mut().lanes;
        let lane = lanes.get_mut(&self.number).expect("an open connection");
        lane.receives = on;
        if on && !lane.held.is_empty() {
            ring.submit(Op::Timer(ring.now()), kind::NETWORK);
        }
    }

    fn handle_receive_stopped(&mut self) {
        unreachable!("nothing has to be waited for")
    }

    fn handle_end(&mut self) {
        self.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        let below = &mut self.wire.borrow_mut().below;
        below.push(frame(self.number, b""));
        below.flush(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        self.shutdown(ring);
        self.wire.borrow_mut().lanes.remove(&self.number);
    }
}

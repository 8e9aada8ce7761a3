//! Clients of an interface, and the tests of connections that share it.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::options::Options;
use ring::sim::{End, Peer, World};
use ring::{Event, Op};
use samum::worker::Worker;
use session::Http1;
use testkit::{Content, Response};

use super::{BODY_BYTES_MAX, HEAD_BYTES, Interface, frame};
use crate::cases::Site;
use crate::seams::table::run_over;
use crate::seams::world::{
    Client, assert_nothing_is_left, config, for_seeds, make, options, parts, run_until,
};

/// The clients' end of the interface.
struct Far {
    peer: Peer,
    input: Vec<u8>,
    /// Plain bytes of each connection, and whether it has ended.
    streams: Vec<(Vec<u8>, bool)>,
}

impl Far {
    fn look(&mut self) {
        self.input.extend(self.peer.take());
        while let Some(&[a, b, c, d]) = self.input.first_chunk() {
            let end = HEAD_BYTES + usize::from(u16::from_be_bytes([c, d]));
            if self.input.len() < end {
                return;
            }
            let (bytes, has_ended) = &mut self.streams[usize::from(u16::from_be_bytes([a, b]))];
            bytes.extend_from_slice(&self.input[HEAD_BYTES..end]);
            self.input.drain(..end);
            *has_ended |= end == HEAD_BYTES;
        }
    }
}

/// One of many clients of an interface.
struct LaneClient {
    far: Rc<RefCell<Far>>,
    number: u16,
    received: Vec<u8>,
    has_ended: bool,
}

impl LaneClient {
    fn new(far: &Rc<RefCell<Far>>) -> Self {
        let streams = &mut far.borrow_mut().streams;
        let number = u16::try_from(streams.len()).expect("few clients");
        streams.push((Vec::new(), false));
        Self { far: Rc::clone(far), number, received: Vec::new(), has_ended: false }
    }
}

impl Client for LaneClient {
    fn send(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(BODY_BYTES_MAX) {
            self.far.borrow().peer.send(&frame(self.number, bytes));
        }
    }

    fn shut_down(&mut self) {
        self.far.borrow().peer.send(&frame(self.number, b""));
    }

    fn look(&mut self) {
        let far = &mut *self.far.borrow_mut();
        far.look();
        let (bytes, has_ended) = &mut far.streams[usize::from(self.number)];
        self.received.append(bytes);
        self.has_ended = *has_ended;
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    fn end(&self) -> Option<End> {
        self.has_ended.then_some(End::Eof)
    }
}

/// A worker whose only way to the world is an interface, and the other end of that.
fn serve(
    world: &World,
    options: Options,
    shared: &Rc<Cell<usize>>,
) -> (Worker<Http1, Interface>, Rc<RefCell<Far>>) {
    let mut parts = parts(world, options);
    let listener = parts.listeners.pop().expect("one");
    let accept = parts.ring.submit(Op::Accept(listener), 0);
    let peer = world.connect();
    let (mut socket, mut completions, mut is_done) = (None, Vec::new(), false);
    while !is_done {
        parts.ring.wait(None, &mut completions).expect("a ring that waits");
        for completion in completions.drain(..) {
            is_done = !completion.more;
            if let Ok(Event::Accepted(accepted)) = completion.result {
                socket = Some(accepted);
                parts.ring.cancel(accept);
            }
        }
    }
    let worker = Worker::over(parts, Interface::new(socket.expect("a connection"), shared));
    let far = Far { peer, input: Vec::new(), streams: Vec::new() };
    (worker.expect("memory"), Rc::new(RefCell::new(far)))
}

#[test]
fn the_table_over_an_interface() {
    run_over(|world, options| {
        let (worker, far) = serve(world, options, &Rc::default());
        (worker, move || LaneClient::new(&far))
    });
}

/// Requests of several clients come in the same reads, and more of them than a connection receives
/// before its first responses have left.
#[test]
fn many_connections_share_the_reads_of_an_interface() {
    const CLIENTS: usize = 5;
    const REQUESTS: usize = 200;
    let names = (0..CLIENTS).map(|number| format!("f{number}"));
    let content = |number: usize| Content::pseudo_random(number as u64, 3000 + number as u64);
    let site = (0..)
        .zip(names)
        .fold(Site::new("interface"), |site, (number, name)| site.file(name, content(number)));
    for_seeds(10, |seed| {
        let world = make(config(seed), &site);
        let shared = Rc::default();
        let (mut worker, far) = serve(&world, options(&site), &shared);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| LaneClient::new(&far)).collect();
        for _ in 0..REQUESTS {
            for (number, client) in clients.iter_mut().enumerate() {
                let request = format!("GET /f{number} HTTP/1.1\r\nHost: test\r\n\r\n");
                client.send(request.as_bytes());
            }
        }
        clients.iter_mut().for_each(Client::shut_down);
        assert!(run_until(&mut worker, || {
            clients.iter_mut().for_each(Client::look);
            clients.iter().all(|client| client.end().is_some())
        }));
        for (number, client) in clients.iter().enumerate() {
            let mut at = 0;
            for _ in 0..REQUESTS {
                let next = Response::parse(&client.received()[at..], false, true);
                let (response, len) = next.expect("HTTP").expect("a response");
                content(number).assert_is(&response.body);
                at += len;
            }
            assert_eq!(client.received().len(), at);
        }
        assert!(shared.get() > 10, "{} reads were shared", shared.get());
        drop((clients, far));
        assert_nothing_is_left(&world, &mut worker);
    });
}

//! The client's end of the records, and the tests of the server's.

use core::time::Duration;
use std::rc::Rc;

use ring::sim::{End, Peer, World};
use samum::network::Listeners;
use samum::worker::Worker;
use session::Http1;

use super::{BODY_BYTES_MAX, CLOSE, DATA, FINISHED, HELLO, Key, NEW_KEY, Records, SECRET};
use crate::cases::Site;
use crate::seams::below::{Layered, assert_a_part_is_counted};
use crate::seams::world::{
    Client, Make, assert_nothing_is_left, config, make, options, parts, pass, run_until, serve_over,
};

/// The client's end.
pub(crate) struct RecordClient {
    peer: Rc<Peer>,
    seals: Key,
    opens: Key,
    input: Vec<u8>,
    received: Vec<u8>,
    /// Plain bytes that wait for the end of the handshake, and whether the end follows them.
    waiting: Option<(Vec<u8>, bool)>,
    has_closed: bool,
}

impl RecordClient {
    pub(crate) fn new(peer: Rc<Peer>, _seed: u64) -> Self {
        Self::with(peer, SECRET)
    }

    fn with(peer: Rc<Peer>, secret: u8) -> Self {
        let mut client = Self {
            peer,
            seals: Key::first(secret),
            opens: Key::first(secret),
            input: Vec::new(),
            received: Vec::new(),
            waiting: Some((Vec::new(), false)),
            has_closed: false,
        };
        client.seal(HELLO, b"a client");
        client
    }

    fn seal(&mut self, kind: u8, body: &[u8]) {
        let record = self.seals.seal(kind, body);
        self.peer.send(&record);
    }
}

impl Client for RecordClient {
    fn send(&mut self, bytes: &[u8]) {
        match &mut self.waiting {
            Some((waiting, _)) => waiting.extend_from_slice(bytes),
            None => bytes.chunks(BODY_BYTES_MAX).for_each(|body| self.seal(DATA, body)),
        }
    }

    fn shut_down(&mut self) {
        match &mut self.waiting {
            Some((_, ends)) => *ends = true,
            None => self.seal(CLOSE, b""),
        }
    }

    fn look(&mut self) {
        self.input.extend(self.peer.take());
        while let Some((kind, body)) = self.opens.open(&mut self.input).expect("a record in order")
        {
            assert!(!self.has_closed, "a record behind the end");
            match kind {
                HELLO => self.seal(FINISHED, b""),
                FINISHED => {
                    let (bytes, ends) = self.waiting.take().expect("one handshake");
                    self.seal(NEW_KEY, b"");
                    self.send(&bytes);
                    if ends {
                        self.shut_down();
                    }
                }
                DATA => self.received.extend(body),
                NEW_KEY => {}
                CLOSE => self.has_closed = true,
                _ => panic!("a record of kind {kind}"),
            }
        }
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    /// An end that was not said is a cut.
    fn end(&self) -> Option<End> {
        let end = self.peer.end()?;
        Some(if self.has_closed { end } else { End::Reset })
    }
}

#[test]
fn each_listener_has_a_secret_of_its_own() {
    let site = Site::new("secrets").file("f", "hello");
    let world = make(config(1), &site);
    let mut parts = parts(&world, options(&site));
    parts.listeners.push(parts.ring.sim_listener(&world));
    let numbers: Vec<i32> = parts.listeners.iter().map(ring::Fd::raw).collect();
    let secrets = vec![10, 20];
    let secret_of = secrets.clone();
    let network = Listeners::with(parts.listeners.clone(), move |tcp, listener: usize| {
        Layered::new(tcp, Records::new(secret_of[listener]))
    });
    let mut worker = Worker::<Http1, _>::over(parts, network).expect("memory");
    for (number, right) in numbers.iter().zip(&secrets) {
        for secret in &secrets {
            let peer = Rc::new(world.connect_to(*number));
            let mut client = RecordClient::with(Rc::clone(&peer), *secret);
            client.send(b"GET /f HTTP/1.0\r\n\r\n");
            let ended = run_until(&mut worker, || {
                // The answers to a client that has another secret cannot be read.
                if secret == right {
                    client.look();
                }
                peer.end().is_some()
            });
            assert!(ended, "a client waits for ever");
            assert_eq!(client.received().ends_with(b"hello"), secret == right);
        }
    }
}

#[test]
fn a_part_of_a_record_is_counted() {
    assert_a_part_is_counted(
        |tcp, _| Layered::new(tcp, Records::new(SECRET)),
        &[HELLO, 0x3f, 0xff, 0, SECRET],
    );
}

#[test]
fn a_handshake_has_the_time_of_a_request_head() {
    let (world, mut worker) = serve_one_file();
    let peer = world.connect();
    let hello = Key::first(SECRET).seal(HELLO, &[0; 100]);
    for (second, byte) in hello[..19].iter().enumerate() {
        peer.send(&[*byte]);
        pass(&mut worker, Duration::from_secs(1));
        assert_eq!(peer.end(), None, "after {second} s");
    }
    // The deadline is 20 s; those of all connections are looked at four times in a second.
    peer.send(&[hello[19]]);
    pass(&mut worker, Duration::from_millis(1500));
    assert!(peer.end().is_some());
    assert_eq!((worker.connections(), worker.stats().timeouts), (0, 1));
    drop(peer);
    assert_nothing_is_left(&world, &mut worker);
}

#[test]
fn records_without_plain_bytes_do_not_keep_a_connection() {
    let (world, mut worker) = serve_one_file();
    let mut client = RecordClient::new(Rc::new(world.connect()), 0);
    client.send(b"GET /f HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(run_until(&mut worker, || {
        client.look();
        client.received().ends_with(b"hello")
    }));
    for second in (0..70).step_by(10) {
        assert_eq!(client.end(), None, "after {second} s");
        client.seal(NEW_KEY, b"");
        pass(&mut worker, Duration::from_secs(10));
        client.look();
    }
    // An idle connection has 75 s.
    pass(&mut worker, Duration::from_secs(7));
    client.look();
    assert_eq!((client.end(), worker.stats().timeouts), (Some(End::Eof), 1));
    drop(client);
    assert_nothing_is_left(&world, &mut worker);
}

type Server = Worker<Http1, Listeners<Make<Layered<Records>>>>;

fn serve_one_file() -> (World, Server) {
    let site = Site::new("one file").file("f", "hello");
    let world = make(config(1), &site);
    let worker =
        serve_over(&world, options(&site), |tcp, _| Layered::new(tcp, Records::new(SECRET)));
    (world, worker)
}

//! No turn of a worker is long, however much comes together: a handler that needs time for each request, in a world
//! whose clock shows that.

use core::time::Duration;
use std::collections::VecDeque;

use config::Tuning;
use handler::{AnswerSize, Body, Found, Handler, Request, Response, Ticket};
use http::{Head, ResponseHead, Status};
use ring::sim::{Config, End, Peer, World};
use ring::{Completion, Ring};
use samum::network::Listeners;
use samum::worker::Worker;
use session::Http1;
use session::context::Context;
use session::shell::Shell;

use crate::seams::stage::for_seeds;
use crate::seams::world::{config, parts, pass};

/// The time for each request and for each response.
const COST: Duration = Duration::from_micros(50);
/// The longest turn that a worker may have.
const TURN_MAX: Duration = Duration::from_millis(5);
/// The bytes that a connection may have in one turn: 1 MiB and a head, and the rest of a segment that its socket held back.
const QUANTUM: usize = 1024 * 1024 + 64 * 1024 + 1448;
/// Fewer than there are places.
const CLIENTS: usize = 900;

struct Slow {
    world: World,
    /// True if a request has its answer later.
    is_later: bool,
    answers: VecDeque<(Ticket, ())>,
}

impl Handler for Slow {
    type Answer = ();

    fn find(&mut self, _shell: &mut Shell, request: &Request<'_>) -> Found<()> {
        self.world.compute(COST);
        if !self.is_later {
            return Found::Now(());
        }
        self.answers.push_back((request.ticket, ()));
        Found::Later(None)
    }

    fn size(&self, _answer: &()) -> AnswerSize {
        AnswerSize::default()
    }

    fn response<'a>(
        &mut self,
        _cx: &mut Context,
        _head: &Head<'_>,
        _answer: &'a (),
    ) -> Response<'a> {
        self.world.compute(COST);
        let head = ResponseHead { content_length: Some(0), ..ResponseHead::new(Status::Ok) };
        Response::new(head, Body::default())
    }

    fn may_have_news(&self) -> bool {
        !self.answers.is_empty()
    }

    fn handle(&mut self, _shell: &mut Shell, completion: Completion) {
        unreachable!("nothing was submitted for {completion:?}")
    }

    fn next_answer(&mut self) -> Option<(Ticket, ())> {
        self.answers.pop_front()
    }
}

/// A world in which all that was sent is there at once, and a worker in it.
fn serve(seed: u64, is_later: bool) -> (World, Worker<Http1, Listeners, Slow>) {
    let network = Duration::ZERO..=Duration::ZERO;
    let world = World::new(Config { network, ..config(seed) });
    let parts = parts(&world, Tuning::default());
    let network = Listeners::new(parts.listeners.clone());
    let handler = Slow { world: world.clone(), is_later, answers: VecDeque::new() };
    let worker = Worker::with(parts, network, |_| Ok(handler)).expect("memory");
    (world, worker)
}

#[test]
fn requests_that_come_at_once_are_answered_in_short_turns() {
    for is_later in [false, true] {
        for_seeds(5, |seed| {
            let (world, mut worker) = serve(seed, is_later);
            let peers: Vec<Peer> = (0..CLIENTS).map(|_| world.connect()).collect();
            pass(&mut worker, Duration::from_secs(1));
            assert_eq!(worker.connections(), CLIENTS);
            peers.iter().for_each(|peer| peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
            let mut longest = Duration::ZERO;
            while worker.stats().responses < CLIENTS as u64 {
                let until = worker.ring().now() + Duration::from_secs(1);
                worker.turn(Some(until)).expect("a ring that waits");
                let ring = worker.ring();
                longest = longest.max(ring.now().since(ring.woke_at()));
                assert!(longest <= TURN_MAX, "a turn of {longest:?}");
            }
            // The time is used, too.
            assert!(longest >= 5 * COST, "a turn of {longest:?}");
            pass(&mut worker, Duration::from_secs(1));
            assert!(peers.iter().all(|peer| peer.received().starts_with(b"HTTP/1.1 200 ")));
        });
    }
}

#[test]
fn idle_connections_are_closed_in_several_turns_at_a_shutdown() {
    /// Of a worker in one turn.
    const ENDS_MAX: usize = 128;
    let (world, mut worker) = serve(0, false);
    let peers: Vec<Peer> = (0..CLIENTS).map(|_| world.connect()).collect();
    pass(&mut worker, Duration::from_secs(1));
    assert_eq!(worker.connections(), CLIENTS);
    let began = worker.ring().now();
    worker.shut_down();
    assert_eq!(worker.connections(), CLIENTS, "they hear of it in the next turns");
    while worker.connections() > 0 {
        let before = worker.connections();
        worker.turn(Some(began + Duration::from_secs(1))).expect("a ring that waits");
        let closed = before - worker.connections();
        assert!(closed <= ENDS_MAX, "{closed} in a turn");
    }
    assert_eq!(worker.ring().now(), began, "no turn has waited");
    pass(&mut worker, Duration::from_secs(1));
    assert!(worker.has_shut_down());
    assert!(peers.iter().all(|peer| peer.end().is_some()), "a connection is left");
}

#[test]
fn connections_that_wait_at_a_shutdown_get_their_last_responses_in_short_turns() {
    /// Of a listener in one turn: those that it accepts before it is told to stop, and those after that.
    const ACCEPTS_MAX: u64 = 2 * 64;
    for_seeds(5, |seed| {
        let (world, mut worker) = serve(seed, false);
        let silent = world.connect();
        let peers: Vec<Peer> = (1..CLIENTS).map(|_| world.connect()).collect();
        peers.iter().for_each(|peer| peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        // The worker does nothing meanwhile.
        let mut beside = Ring::simulated(&world);
        let until = beside.now() + Duration::from_millis(20);
        beside.wait(Some(until), &mut Vec::new()).expect("a ring that waits");
        drop(beside);
        worker.shut_down();
        while !worker.has_shut_down() {
            let before = worker.stats().accepted;
            let until = worker.ring().now() + Duration::from_secs(1);
            worker.turn(Some(until)).expect("a ring that waits");
            assert!(worker.stats().accepted - before <= ACCEPTS_MAX, "they are accepted at once");
            let ring = worker.ring();
            let turn = ring.now().since(ring.woke_at());
            assert!(turn <= TURN_MAX, "a turn of {turn:?}");
        }
        pass(&mut worker, Duration::from_secs(1));
        for peer in &peers {
            let received = peer.received();
            let text = String::from_utf8_lossy(&received);
            assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
            assert!(text.contains("Connection: close\r\n"), "{text}");
            assert_eq!(peer.end(), Some(End::Eof));
        }
        assert_eq!((silent.received().len(), silent.end()), (0, Some(End::Eof)));
    });
}

/// A world in which many reads end at the same time, and sockets accept everything; and a file of 16 MiB in it.
fn serve_large(seed: u64) -> (World, Worker<Http1>) {
    let network = Duration::ZERO..=Duration::ZERO;
    let disk = Duration::from_millis(10)..=Duration::from_millis(10);
    let world = World::new(Config { network, disk, send_buffer: 1 << 30, ..config(seed) });
    world.write_file("large", &vec![b'a'; 16 << 20]);
    world.write_file("small", &vec![b'a'; 1 << 20]);
    world.evict_all();
    let worker = Worker::new(parts(&world, Tuning::default())).expect("memory");
    (world, worker)
}

/// Lets the worker do its turns until the peers have received this many bytes together. Returns the most bytes that one
/// of them has been sent in a turn.
fn most_of_a_turn(world: &World, worker: &mut Worker<Http1>, peers: &[Peer], all: usize) -> usize {
    let (mut received, mut most) = (vec![0; peers.len()], 0);
    let mut beside = Ring::simulated(world);
    for _ in 0..10_000 {
        let until = worker.ring().now() + Duration::from_millis(20);
        worker.turn(Some(until)).expect("a ring that waits");
        // The peers receive all of it before the next turn.
        let until = beside.now() + Duration::from_millis(1);
        while beside.now() < until {
            beside.wait(Some(until), &mut Vec::new()).expect("a ring that waits");
        }
        for (before, peer) in received.iter_mut().zip(peers) {
            let now = peer.received_bytes();
            most = most.max(now - core::mem::replace(before, now));
        }
        if received.iter().sum::<usize>() >= all {
            return most;
        }
    }
    panic!("{received:?} bytes of {all}")
}

#[test]
fn reads_that_end_together_give_a_connection_one_quantum() {
    for_seeds(5, |seed| {
        let (world, mut worker) = serve_large(seed);
        let peers: Vec<Peer> = (0..3).map(|_| world.connect()).collect();
        peers.iter().for_each(|peer| peer.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"));
        let most = most_of_a_turn(&world, &mut worker, &peers, peers.len() * (16 << 20));
        assert!(most <= QUANTUM, "{most} bytes in a turn");
    });
}

#[test]
fn requests_that_come_together_give_a_connection_one_quantum() {
    for_seeds(5, |seed| {
        let (world, mut worker) = serve_large(seed);
        let peers = [world.connect()];
        let request = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
        // From then on the file is in memory.
        peers[0].send(request);
        most_of_a_turn(&world, &mut worker, &peers, 1 << 20);
        drop(peers[0].take());
        for _ in 0..16 {
            peers[0].send(request);
        }
        let most = most_of_a_turn(&world, &mut worker, &peers, 16 << 20);
        assert!(most <= QUANTUM, "{most} bytes in a turn");
    });
}

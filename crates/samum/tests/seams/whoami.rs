//! A handler that tells each client where it comes from, as access rules and a proxy's `Forwarded` need
//! to know it.

use std::rc::Rc;

use config::Tuning;
use handler::{AnswerSize, Body, Found, Handler, Part, Request, Response, Ticket};
use http::{Head, ResponseHead, Status};
use ring::Completion;
use ring::sim::World;
use samum::network::Listeners;
use samum::worker::Worker;
use sendfile::Piece;
use session::Http1;
use session::context::Context;
use session::shell::Shell;
use testkit::Response as Received;

use crate::seams::world::{config, parts, run_until};

#[derive(Debug)]
struct WhoAmI;

impl Handler for WhoAmI {
    type Answer = String;

    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<String> {
        let origin = request.origin;
        Found::Now(format!("{} {:?}", origin.listener, origin.address(&shell.ring)))
    }

    fn size(&self, _answer: &String) -> AnswerSize {
        AnswerSize::default()
    }

    fn response<'a>(
        &mut self,
        _cx: &mut Context,
        _head: &Head<'_>,
        answer: &'a String,
    ) -> Response<'a> {
        let body = Body::from(Part::Piece(Piece::Bytes(answer.clone().into_bytes())));
        let length = Some(answer.len() as u64);
        Response::new(
            ResponseHead { content_length: length, ..ResponseHead::new(Status::Ok) },
            body,
        )
    }

    fn handle(&mut self, _shell: &mut Shell, completion: Completion) {
        unreachable!("nothing was submitted for {completion:?}")
    }

    fn next_answer(&mut self) -> Option<(Ticket, String)> {
        None
    }
}

#[test]
fn a_handler_knows_the_listener_and_the_peer() {
    let world = World::new(config(1));
    let mut parts = parts(&world, Tuning::default());
    parts.listeners.push(parts.ring.sim_listener(&world));
    let numbers: Vec<i32> = parts.listeners.iter().map(ring::Fd::raw).collect();
    // As where an interface has the others.
    let names = [4, 2];
    let network = Listeners::numbered(names.into_iter().zip(parts.listeners.clone()));
    let mut worker = Worker::<Http1, _, _>::with(parts, network, |_| Ok(WhoAmI)).expect("memory");
    let mut bodies = Vec::new();
    for (listener, number) in names.iter().zip(&numbers) {
        let peer = Rc::new(world.connect_to(*number));
        peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut received = None;
        assert!(run_until(&mut worker, || {
            received = Received::parse(&peer.received(), false, false).expect("a response");
            received.is_some()
        }));
        let (response, _) = received.expect("it came");
        let body = String::from_utf8(response.body).expect("text");
        // The simulation gives each peer an address of its own in 10.0.0.0/8.
        assert!(body.starts_with(&format!("{listener} Some(10.0.0.")), "{body:?}");
        bodies.push(body);
    }
    assert_ne!(bodies[0][1..], bodies[1][1..]);
}

//! A handler beside files that sends back what it is sent, while it comes: the body of `POST /echo`, and
//! all bytes behind `Upgrade: echo`. `/early` answers before it has the body, `/late` when it has; with `/slow` the bytes
//! take a detour of random length, as through an upstream.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

use http::{FieldSection, Head, ResponseHead, Status, Target};
use ring::sim::{Config, End, Peer, World};
use ring::{Completion, Op};
use samum::config::Tuning;
use samum::context::Context;
use samum::handler::files::Files;
use samum::handler::{
    AnswerSize, Body, BodySink, Consumer, Found, Handler, Part, Produced, Producer, Response,
    Ticket,
};
use samum::shell::{Shell, kind};
use sendfile::Piece;

use crate::stage::{Chance, Stage, content, for_seeds, parse};

/// Bytes that are kept on their way back.
const ROOM: usize = 64 * 1024;
/// The longest body that is taken.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Memory of one connection, whatever is sent: what is kept, what waits for the socket, and the input,
/// most of which is in flight when receiving is stopped.
const HELD_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that a client sends before the server takes some: the simulation has no limit of its own on what
/// a socket receives.
const WINDOW: usize = 256 * 1024;
/// Sent through a tunnel, it ends the direction to the client.
const STOP: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Echo,
    Early,
    Late,
    Slow,
    Tunnel,
}

/// Bytes on their way from a client back to it.
#[derive(Debug)]
struct Loop {
    kind: Kind,
    ticket: Ticket,
    chance: Chance,
    /// On the detour.
    detour: VecDeque<u8>,
    /// Ready to be sent.
    ready: VecDeque<u8>,
    ended: bool,
    /// The rest will not come.
    cut: bool,
    stopped: bool,
    taken: Rc<Cell<usize>>,
    news: Rc<RefCell<News>>,
}

/// What has happened to bodies since the worker last asked.
#[derive(Debug, Default)]
struct News {
    woken: VecDeque<Ticket>,
    answers: VecDeque<(Ticket, Answer)>,
}

type Shared = Rc<RefCell<Loop>>;

#[derive(Debug)]
struct EchoConsumer(Shared);

#[derive(Debug)]
struct EchoProducer(Shared);

#[derive(Debug)]
enum Answer {
    File(<Files as Handler>::Answer),
    Echo(Shared),
}

#[derive(Debug)]
struct Echo {
    files: Files,
    loops: HashMap<(u64, u32), Weak<RefCell<Loop>>>,
    news: Rc<RefCell<News>>,
    /// Bytes that consumers have taken.
    taken: Rc<Cell<usize>>,
}

impl Consumer for EchoConsumer {
    fn bytes_max(&self) -> u64 {
        BODY_BYTES_MAX
    }

    fn room(&self) -> u64 {
        let this = self.0.borrow();
        ROOM.saturating_sub(this.detour.len() + this.ready.len()) as u64
    }

    fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.room(), "no more than there is room for");
        let mut this = self.0.borrow_mut();
        this.taken.set(this.taken.get() + bytes.len());
        if this.kind == Kind::Tunnel && bytes.contains(&STOP) {
            this.stopped = true;
        }
        if this.stopped {
            return;
        }
        if this.kind == Kind::Slow { this.detour.extend(bytes) } else { this.ready.extend(bytes) }
    }

    fn end(&mut self) {
        let shared = Rc::clone(&self.0);
        let mut this = self.0.borrow_mut();
        this.ended = true;
        if this.kind == Kind::Late {
            this.news.borrow_mut().answers.push_back((this.ticket, Answer::Echo(shared)));
        }
    }

    fn weight(&self) -> u64 {
        let this = self.0.borrow();
        (this.detour.len() + this.ready.len()) as u64
    }
}

impl Drop for EchoConsumer {
    fn drop(&mut self) {
        let mut this = self.0.borrow_mut();
        this.cut = !this.ended;
        this.news.borrow_mut().woken.push_back(this.ticket);
    }
}

impl Producer for EchoProducer {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut this = self.0.borrow_mut();
        let count = this.ready.len().min(usize::try_from(room).unwrap());
        sink.push(this.ready.drain(..count).collect());
        match (this.ready.is_empty(), this.detour.is_empty()) {
            (false, _) => Produced::More,
            _ if this.cut => Produced::Failed,
            (_, true) if this.ended || this.stopped => Produced::Ended,
            _ => Produced::Waiting,
        }
    }

    fn weight(&self) -> u64 {
        let this = self.0.borrow();
        if this.ended { (this.detour.len() + this.ready.len()) as u64 } else { 0 }
    }
}

fn schedule(shell: &mut Shell, this: &mut Loop) {
    let at = shell.ring.now() + Duration::from_micros(this.chance.next() % 20_000);
    let Ticket { connection, request } = this.ticket;
    assert!(connection < 1 << 48, "it fits into the token with a few requests");
    shell.ring.submit(Op::Timer(at), kind::HANDLER | connection << 8 | u64::from(request));
}

impl Handler for Echo {
    type Answer = Answer;

    fn consumer(
        &mut self,
        shell: &mut Shell,
        head: &Head<'_>,
        ticket: Ticket,
    ) -> Option<Box<dyn Consumer>> {
        let Target::Origin { path, .. } = head.target else { return None };
        let kind = match path {
            b"/echo" => Kind::Echo,
            b"/early" => Kind::Early,
            b"/late" => Kind::Late,
            b"/slow" => Kind::Slow,
            b"/tunnel" => Kind::Tunnel,
            _ => return None,
        };
        let shared = Rc::new(RefCell::new(Loop {
            kind,
            ticket,
            chance: Chance(ticket.connection),
            detour: VecDeque::new(),
            ready: VecDeque::new(),
            ended: false,
            cut: false,
            stopped: false,
            taken: Rc::clone(&self.taken),
            news: Rc::clone(&self.news),
        }));
        if kind == Kind::Slow {
            schedule(shell, &mut shared.borrow_mut());
        }
        self.loops.insert((ticket.connection, ticket.request), Rc::downgrade(&shared));
        Some(Box::new(EchoConsumer(shared)))
    }

    fn find(&mut self, shell: &mut Shell, head: &Head<'_>, ticket: Ticket) -> Found<Answer> {
        let ours = self.loops.get(&(ticket.connection, ticket.request)).and_then(Weak::upgrade);
        if let Some(shared) = ours {
            let waits = shared.borrow().kind == Kind::Late && !shared.borrow().ended;
            return if waits { Found::Later(None) } else { Found::Now(Answer::Echo(shared)) };
        }
        match self.files.find(shell, head, ticket) {
            Found::Now(answer) => Found::Now(Answer::File(answer)),
            Found::Later(search) => Found::Later(search),
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        match answer {
            Answer::File(answer) => self.files.size(answer),
            Answer::Echo(_) => AnswerSize::default(),
        }
    }

    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        let shared = match answer {
            Answer::File(answer) => return self.files.response(cx, head, answer),
            Answer::Echo(shared) => shared,
        };
        let mut head = ResponseHead::new(Status::Ok);
        if shared.borrow().kind == Kind::Tunnel {
            head.status = Status::SwitchingProtocols;
            head.extra = FieldSection::EMPTY;
            head.extra.push(b"Upgrade", b"echo");
        }
        if shared.borrow().kind == Kind::Early {
            head.content_length = Some(EARLY.len() as u64);
            return Response::new(head, Body::from(Part::Piece(Piece::Static(EARLY))));
        }
        let producer = EchoProducer(Rc::clone(shared));
        Response::new(head, Body::from(Part::Producer(Box::new(producer))))
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        if completion.token & kind::MASK != kind::HANDLER {
            return self.files.handle(shell, completion);
        }
        let number = completion.token & !kind::MASK;
        let key = (number >> 8, u32::try_from(number & 0xff).unwrap());
        let Some(shared) = self.loops.get(&key).and_then(Weak::upgrade) else { return };
        let mut this = shared.borrow_mut();
        let count = (1 + this.chance.below(50_000)).min(this.detour.len());
        let arrived: Vec<u8> = this.detour.drain(..count).collect();
        this.ready.extend(arrived);
        self.news.borrow_mut().woken.push_back(this.ticket);
        schedule(shell, &mut this);
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        if let Some(answer) = self.news.borrow_mut().answers.pop_front() {
            return Some(answer);
        }
        let (ticket, answer) = self.files.next_answer()?;
        Some((ticket, Answer::File(answer)))
    }

    fn next_woken(&mut self) -> Option<Ticket> {
        self.news.borrow_mut().woken.pop_front()
    }
}

fn stage(config: Config) -> (Stage<Echo>, Rc<Cell<usize>>) {
    let world = World::new(config);
    world.write_file("file", FILE);
    world.evict_all();
    let taken = Rc::new(Cell::new(0));
    let counter = Rc::clone(&taken);
    let stage = Stage::new(world, Tuning::default(), |files, _| Echo {
        files,
        loops: HashMap::new(),
        news: Rc::default(),
        taken: counter,
    });
    (stage, taken)
}

const EARLY: &[u8] = b"no, thanks";
const FILE: &[u8] = &[b'f'; 40_000];

/// A request with a body, in chunks if `chunk` says how long they are.
fn upload(path: &str, body: &[u8], chunk: Option<usize>, more: &str) -> Vec<u8> {
    let framing = match chunk {
        Some(_) => "Transfer-Encoding: chunked".to_owned(),
        None => format!("Content-Length: {}", body.len()),
    };
    let mut bytes =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n{more}\r\n").into_bytes();
    let Some(chunk) = chunk else { return [bytes, body.to_vec()].concat() };
    for part in body.chunks(chunk) {
        bytes.extend(format!("{:x}\r\n", part.len()).into_bytes());
        bytes.extend_from_slice(part);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// Sends pieces of random sizes until `done`; the connection never holds more than it may.
fn exchange(
    stage: &mut Stage<Echo>,
    peer: &Peer,
    mut bytes: &[u8],
    chance: &mut Chance,
    taken: &Cell<usize>,
    mut done: impl FnMut() -> bool,
) {
    let (before, mut sent) = (taken.get(), 0);
    for _ in 0..200_000 {
        let window = (WINDOW + taken.get() - before).saturating_sub(sent);
        let (piece, rest) = bytes.split_at(bytes.len().min(chance.below(60_000)).min(window));
        bytes = rest;
        sent += piece.len();
        peer.send(piece);
        stage.turn(Duration::from_millis(1));
        let held = stage.worker.held().0;
        assert!(held < HELD_BYTES_MAX, "{held} bytes are held");
        if done() {
            return;
        }
    }
    panic!("waits for ever: {:?}", stage.worker);
}

#[test]
fn bodies_larger_than_all_buffers_come_back() {
    for (seed, path) in [(1, "/echo"), (2, "/slow")] {
        for chunk in [None, Some(100_000), Some(7000)] {
            let (mut stage, taken) = stage(Config::new(seed));
            let body = content(seed, 10 * 1024 * 1024);
            let peer = stage.world.connect();
            let bytes = upload(path, &body, chunk, "Connection: close\r\n");
            exchange(&mut stage, &peer, &bytes, &mut Chance(seed), &taken, || peer.end().is_some());
            let response = parse(&peer.received()).unwrap();
            assert!(response.whole && response.body == body, "{path} {chunk:?}");
            assert_eq!(taken.get(), body.len());
            drop(peer);
            stage.check_nothing_is_left();
        }
    }
}

#[test]
fn a_client_that_reads_slowly_is_received_from_slowly() {
    let (mut stage, taken) = stage(Config::new(3));
    let body = content(3, 4 * 1024 * 1024);
    let peer = stage.world.connect();
    peer.set_read_rate(Some(200_000));
    peer.send(&upload("/echo", &body, None, "Connection: close\r\n"));
    while peer.end().is_none() {
        stage.turn(Duration::from_millis(20));
        let ahead = taken.get().saturating_sub(peer.received_bytes());
        assert!(ahead < 600 * 1024, "{ahead} bytes are taken before their time");
        assert!(stage.worker.held().0 < HELD_BYTES_MAX);
    }
    let response = parse(&peer.received()).unwrap();
    assert!(response.whole && response.body == body);
}

#[test]
fn a_client_that_stops_sending_is_left() {
    let tuning = Tuning::default();
    for (path, status) in [("/late", 408), ("/echo", 200)] {
        let (mut stage, _) = stage(Config::new(4));
        let bytes = upload(path, &content(4, 50_000), None, "");
        let peer = stage.world.connect();
        // It goes on while bytes come.
        for piece in bytes[..bytes.len() - 1].chunks(10_000) {
            peer.send(piece);
            stage.pass(tuning.timeout_header - Duration::from_secs(1));
            assert_eq!(peer.end(), None);
        }
        stage.pass(tuning.timeout_header * 2);
        assert!(peer.end().is_some(), "{path}");
        let response = parse(&peer.received()).unwrap();
        assert_eq!(response.status, status);
        assert_eq!(response.whole, status == 408, "what is missing can be seen");
        drop(peer);
        stage.check_nothing_is_left();
    }
}

#[test]
fn a_client_that_ends_in_the_middle_is_left() {
    for path in ["/late", "/echo", "/slow"] {
        let (mut stage, _) = stage(Config::new(5));
        let bytes = upload(path, &content(5, 50_000), Some(1000), "");
        let peer = stage.world.connect();
        peer.send(&bytes[..bytes.len() - 10]);
        peer.shutdown_write();
        stage.pass(Duration::from_secs(2));
        assert!(peer.end().is_some(), "{path}");
        assert!(parse(&peer.received()).is_none_or(|response| !response.whole), "{path}");
        drop(peer);
        stage.check_nothing_is_left();
    }
}

#[test]
fn bodies_that_are_wanted_are_invited() {
    for (path, chunk) in [("/echo", None), ("/late", None), ("/slow", Some(100))] {
        let (mut stage, _) = stage(Config::new(6));
        let body = content(6, 2_000_000);
        let bytes = upload(path, &body[..ROOM / 2], chunk, "Expect: 100-continue\r\n");
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let peer = stage.world.connect();
        peer.send(&bytes[..head]);
        stage.pass(Duration::from_millis(100));
        let invitation = parse(&peer.received()).unwrap();
        assert_eq!(invitation.status, 100, "{path}");
        peer.send(&bytes[head..]);
        peer.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
        stage.pass(Duration::from_secs(3));
        let all = peer.received();
        let response = parse(&all[invitation.len..]).unwrap();
        assert!(response.status == 200 && response.whole, "{path}");
        assert!(response.body == body[..ROOM / 2], "{path}");
        let file = parse(&all[invitation.len + response.len..]).unwrap();
        assert!(file.whole && file.body == FILE, "{path}");
    }
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let (mut stage, _) = stage(Config::new(7));
    let peer = stage.world.connect();
    peer.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\nabc");
    stage.pass(Duration::from_secs(5));
    let response = parse(&peer.received()).unwrap();
    assert_eq!((response.status, response.whole), (413, true));
    assert_eq!(peer.end(), Some(End::Eof));
}

#[test]
fn a_body_is_skipped_behind_its_response_unless_it_is_long() {
    for (chunk, len, goes_on) in
        [(None, 500_000, true), (Some(10), 10_000, true), (None, 2_000_000, false)]
    {
        let (mut stage, taken) = stage(Config::new(11));
        let peer = stage.world.connect();
        peer.send(&upload("/early", &content(11, len), chunk, ""));
        peer.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
        stage.pass(Duration::from_secs(1));
        let all = peer.received();
        let response = parse(&all).unwrap();
        assert!(response.status == 200 && response.body == EARLY && taken.get() < len);
        let next = parse(&all[response.len..]);
        assert_eq!(next.is_some_and(|file| file.whole && file.body == FILE), goes_on, "{len}");
        assert_eq!(peer.end().is_none(), goes_on);
        drop(peer);
        stage.check_nothing_is_left();
    }
}

#[test]
fn the_body_of_the_last_request_is_read_to_its_end() {
    // The connection of HTTP/1.0 ends with the body, and that of 1.1 with the server.
    for stops in [false, true] {
        let (mut stage, _) = stage(Config::new(12));
        let body = content(12, 1_000_000);
        let mut bytes = upload("/slow", &body, None, "Connection: keep-alive\r\n");
        if !stops {
            let version = bytes.windows(3).position(|three| three == b"1.1").unwrap();
            bytes[version + 2] = b'0';
        }
        let peer = stage.world.connect();
        peer.send(&bytes[..500_000]);
        stage.pass(Duration::from_millis(100));
        if stops {
            stage.worker.shut_down();
        }
        peer.send(&bytes[500_000..]);
        stage.pass(Duration::from_secs(5));
        let response = parse(&peer.received()).unwrap();
        assert!(response.whole && response.body == body, "{stops}");
        assert_eq!(peer.end(), Some(End::Eof));
    }
}

const UPGRADE: &[u8] =
    b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

#[test]
fn a_tunnel_takes_bytes_both_ways_until_the_client_ends_it() {
    let (mut stage, taken) = stage(Config::new(8));
    let mut body = content(8, 5_000_000);
    body.retain(|byte| *byte != STOP);
    let peer = stage.world.connect();
    peer.send(&[UPGRADE, b"first"].concat());
    stage.pass(Duration::from_millis(100));
    let head = parse(&peer.received()).unwrap();
    assert_eq!(head.status, 101);
    assert!(head.head.contains("\r\nConnection: upgrade\r\nUpgrade: echo\r\n"), "{}", head.head);
    assert_eq!(peer.received()[head.len..], *b"first");
    // It may be quiet for as long as its ends like.
    stage.pass(Duration::from_secs(1000));
    let (len, all) = (head.len, [b"first", &body[..]].concat());
    exchange(&mut stage, &peer, &body, &mut Chance(8), &taken, || {
        peer.received_bytes() == len + all.len()
    });
    peer.shutdown_write();
    stage.pass(Duration::from_millis(100));
    assert!(peer.received()[head.len..] == all);
    assert_eq!(peer.end(), Some(End::Eof));
    stage.check_nothing_is_left();
}

#[test]
fn a_tunnel_whose_end_is_the_servers_goes_on_in_the_other_direction() {
    let (mut stage, taken) = stage(Config::new(9));
    let timeout = Tuning::default().timeout_header;
    for ends in [true, false] {
        let peer = stage.world.connect();
        let before = taken.get();
        peer.send(&[UPGRADE, b"ab", &[STOP]].concat());
        stage.pass(Duration::from_secs(1));
        assert_eq!(peer.end(), Some(End::Eof), "the server has ended its direction");
        for _ in 0..5 {
            stage.pass(timeout / 2);
            peer.send(b"more");
        }
        stage.pass(Duration::from_secs(1));
        assert_eq!(taken.get() - before, 3 + 5 * 4);
        assert_eq!(stage.worker.connections(), 1);
        if ends {
            peer.shutdown_write();
        }
        stage.pass(if ends { Duration::from_secs(1) } else { timeout * 2 });
        assert_eq!(stage.worker.connections(), 0);
    }
    stage.check_nothing_is_left();
}

#[test]
fn what_follows_a_refused_upgrade_is_a_request() {
    let (mut stage, _) = stage(Config::new(10));
    let peer = stage.world.connect();
    let file = b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    peer.send(&[&file[..], &file[..]].concat());
    stage.pass(Duration::from_secs(1));
    let all = peer.received();
    let first = parse(&all).unwrap();
    let second = parse(&all[first.len..]).unwrap();
    assert!(first.body == FILE && second.body == FILE && second.whole);
}

struct Client {
    peer: Peer,
    input: Vec<u8>,
    expected: Vec<Vec<u8>>,
    /// It sends no more once so many bytes are left.
    stalls_at: usize,
    resets: bool,
}

impl Client {
    fn random(peer: Peer, chance: &mut Chance) -> Self {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        let count = 1 + chance.below(6);
        for number in 0..count {
            let last = if number + 1 == count { "Connection: close\r\n" } else { "" };
            let path = ["/echo", "/early", "/late", "/slow", "/file"][chance.below(5)];
            if path == "/file" {
                let get = format!("GET /file HTTP/1.1\r\nHost: a\r\n{last}\r\n");
                input.extend(get.into_bytes());
                expected.push(FILE.to_vec());
                continue;
            }
            // What is answered late has to fit.
            let most = if path == "/late" { ROOM - 4096 } else { 300_000 };
            let most = [10, 5000, most][chance.below(3)];
            let body = content(chance.next(), 1 + chance.below(most));
            let chunk = chance.one_in(2).then(|| 1 + chance.below(body.len()));
            let expect = if chance.one_in(5) { "Expect: 100-continue\r\n" } else { "" };
            input.extend(upload(path, &body, chunk, &format!("{expect}{last}")));
            expected.push(if path == "/early" { EARLY.to_vec() } else { body });
        }
        if chance.one_in(3) {
            peer.set_read_rate(Some(200_000 + chance.next() % 1_000_000));
        }
        let stalls_at = if chance.one_in(4) { 1 + chance.below(input.len()) } else { 0 };
        let resets = stalls_at > 0 && chance.one_in(2);
        Self { peer, input, expected, stalls_at, resets }
    }

    fn poke(&mut self, chance: &mut Chance) {
        let most = if chance.one_in(3) { 1 + chance.below(50) } else { 1 + chance.below(30_000) };
        let count = most.min(self.input.len() - self.stalls_at.min(self.input.len()));
        let piece: Vec<u8> = self.input.drain(..count).collect();
        self.peer.send(&piece);
        if self.resets && self.input.len() <= self.stalls_at {
            self.peer.reset();
        }
    }

    /// Compares what came with what was sent, up to where the client was silent.
    fn check(&self) {
        let all = self.peer.received();
        let mut at = 0;
        let mut expected = self.expected.iter();
        while let Some(response) = parse(&all[at..]) {
            at += response.len;
            match response.status {
                100 => continue,
                408 if self.stalls_at > 0 => break,
                status => assert_eq!(status, 200),
            }
            let body = expected.next().expect("no more responses than requests");
            assert!(body.starts_with(&response.body), "{} bytes differ", response.body.len());
            if !response.whole {
                assert!(self.stalls_at > 0, "{} of {} bytes", response.body.len(), body.len());
                return;
            }
            assert_eq!(response.body.len(), body.len());
        }
        assert!(self.stalls_at > 0 || expected.next().is_none(), "a response is missing");
    }
}

fn run(seed: u64) {
    let mut chance = Chance(seed ^ 0xec40);
    let mut config = if chance.one_in(2) { Config::new(seed) } else { Config::nasty(seed) };
    config.faults.read_error = 0.0;
    config.faults.accept_error = 0.0;
    // Reclaim takes no pages out of the middle of what has just been used.
    config.faults.eviction = 0.0;
    let (mut stage, _) = stage(config);
    let mut clients: Vec<_> =
        (0..4).map(|_| Client::random(stage.world.connect(), &mut chance)).collect();
    for round in 0.. {
        for client in &mut clients {
            if chance.one_in(2) {
                client.poke(&mut chance);
            }
        }
        stage.turn(Duration::from_millis(10));
        assert!(stage.worker.held().0 < 4 * HELD_BYTES_MAX);
        if clients.iter().all(|client| client.resets || client.peer.end().is_some()) {
            break;
        }
        assert!(round < 100_000, "a client waits for ever: {:?}", stage.worker);
    }
    clients.iter().for_each(Client::check);
    drop(clients);
    stage.check_nothing_is_left();
}

#[test]
fn what_is_sent_back_is_right_to_the_byte() {
    for_seeds(200, run);
}

//! Parts that attach to the router: an authorizer that decides later, and a cache that wraps the answers of some routes. It
//! answers from memory what it has seen before, by listener, scheme, host, method and path.

use core::cell::RefCell;
use core::ops::Range;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Config, FileRules, Files, GatewayRules, Route, Tuning, Upstream, upstream};
use handler::attach::{Admission, Attachments, Authorizer, Denial, Grant, Recalled, Wrapper};
use handler::router::Router;
use handler::router::explain::explain;
use handler::serving::Snapshot;
use handler::{
    AnswerSize, Body, BodySink, Found, Handler as _, Part, Produced, Producer, Request, Response,
    Search, Ticket,
};
use http::{FieldSection, Method, ResponseHead, Status, Target};
use ring::sim::{Peer, PeerListener, World};
use samum::explain::Question;
use samum::network::Listeners;
use samum::worker::{Replacement, Worker};
use sendfile::{File, Piece, Policy, Takes, Weight};
use session::Http1;
use session::shell::Shell;

use crate::seams::stage::{content, parse_whole};
use crate::seams::world::{config, parts, pass, run_until};

/// The server that requests are passed on to.
const SERVER: &str = "127.0.0.1:9000";
/// The contents of files.
const FILE: &[u8] = b"a file";
/// The size of a file that is not kept in memory.
const BIG_BYTES: usize = 700_000;
/// Bytes that a copy takes in one turn of a response whose client has left.
const ROOM: u64 = 16 * 1024;
/// Responses of which a copy is made although their clients have left.
const ORPHANS_MAX: usize = 4;

/// A listener, whether the connection has TLS, a host, a method and a path.
type Name = (u32, bool, Vec<u8>, String, Vec<u8>);

/// The bytes of a response that is kept.
#[derive(Debug)]
struct Kept(Vec<u8>);

/// The memory of a cache.
#[derive(Debug, Default)]
struct Memory {
    kept: HashMap<Name, Rc<Kept>>,
    /// Requests for whose answers it looks until the next turn.
    looks: VecDeque<(Ticket, Option<Rc<dyn Recalled>>)>,
    /// Copies whose clients have left.
    orphans: Vec<Copy>,
    /// The paths of requests for which it was asked for an answer.
    recalled: Vec<Vec<u8>>,
    /// The paths of requests whose responses it has wrapped.
    wrapped: Vec<Vec<u8>>,
    /// The numbers of routes of the configurations for which it has prepared.
    configured: Vec<usize>,
}

#[derive(Debug)]
struct Cache(Rc<RefCell<Memory>>);

/// A response of which a copy is made.
#[derive(Debug)]
struct Copy {
    name: Name,
    source: Box<dyn Producer>,
    bytes: Vec<u8>,
}

/// Gives a response to its client, and makes a copy.
#[derive(Debug)]
struct Tee {
    /// `None` once it has ended.
    copy: Option<Copy>,
    memory: Rc<RefCell<Memory>>,
}

/// Takes bytes in memory.
#[derive(Debug, Default)]
struct Sink(Vec<u8>);

impl BodySink for Sink {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn push(&mut self, piece: Piece) {
        self.0.extend_from_slice(piece.bytes());
    }

    fn push_file(&mut self, _file: &Rc<File>, _range: Range<u64>, _policy: Policy) {
        unreachable!("a server has no files of ours")
    }
}

fn path_of(request: &Request<'_>) -> Vec<u8> {
    let Target::Origin { path, .. } = request.head.target else { return Vec::new() };
    path.to_vec()
}

fn name_of(request: &Request<'_>) -> Option<Name> {
    let Request { head, origin, .. } = request;
    let host = head.host().unwrap_or_default().to_vec();
    let is_tls = origin.handshake().is_some();
    let method = format!("{:?}", head.method);
    let is_kept = matches!(head.method, Method::Get);
    is_kept.then(|| (origin.listener, is_tls, host, method, path_of(request)))
}

impl Copy {
    /// Takes more of its source. Returns what is new.
    fn poll(&mut self, room: u64) -> (Produced, Vec<u8>) {
        let mut sink = Sink::default();
        let produced = self.source.poll(room, &mut sink);
        self.bytes.extend_from_slice(&sink.0);
        (produced, sink.0)
    }

    fn keep(self, memory: &mut Memory) {
        memory.kept.insert(self.name, Rc::new(Kept(self.bytes)));
    }
}

impl Producer for Tee {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let Some(copy) = &mut self.copy else { return Produced::Ended };
        let (produced, bytes) = copy.poll(room);
        sink.push(Piece::Bytes(bytes));
        match produced {
            Produced::Ended => self.copy.take().into_iter().for_each(|copy| {
                copy.keep(&mut self.memory.borrow_mut());
            }),
            Produced::Failed => self.copy = None,
            Produced::More | Produced::Waiting => {}
        }
        produced
    }

    fn weight(&self) -> u64 {
        self.copy.as_ref().map_or(0, |copy| copy.source.weight())
    }
}

impl Drop for Tee {
    /// The client has left. The copy is made all the same.
    fn drop(&mut self) {
        let mut memory = self.memory.borrow_mut();
        if memory.orphans.len() < ORPHANS_MAX {
            memory.orphans.extend(self.copy.take());
        }
    }
}

impl Recalled for Kept {
    fn size(&self) -> AnswerSize {
        AnswerSize { shared: self.0.len() as u64, ..AnswerSize::default() }
    }

    fn response(&self) -> Response<'_> {
        let mut head = ResponseHead::new(Status::Ok);
        head.content_length = Some(self.0.len() as u64);
        head.extra.push(b"Age", b"0");
        Response::new(head, Body::from(Part::Piece(Piece::Bytes(self.0.clone()))))
    }
}

impl Wrapper for Cache {
    fn has_say(&self, route: &Route) -> bool {
        route.path != "/files/"
    }

    fn configure(&mut self, snapshot: &Snapshot) {
        self.0.borrow_mut().configured.push(snapshot.routes().count());
    }

    fn recall(&mut self, request: &Request<'_>, route: &Route) -> Found<Option<Rc<dyn Recalled>>> {
        assert!(self.has_say(route));
        let mut memory = self.0.borrow_mut();
        memory.recalled.push(path_of(request));
        let kept = name_of(request).and_then(|name| memory.kept.get(&name).cloned());
        let Some(kept) = kept else { return Found::Now(None) };
        // As if it had to read.
        memory.looks.push_back((request.ticket, Some(kept)));
        Found::Later(None)
    }

    fn may_have_news(&self) -> bool {
        let memory = self.0.borrow();
        !memory.looks.is_empty() || !memory.orphans.is_empty()
    }

    fn next_recalled(&mut self) -> Option<(Ticket, Option<Rc<dyn Recalled>>)> {
        self.0.borrow_mut().looks.pop_front()
    }

    fn wrap(&mut self, request: &Request<'_>, route: &Route, response: &mut Response<'_>) {
        assert!(self.has_say(route));
        self.0.borrow_mut().wrapped.push(path_of(request));
        let made = response.made();
        let is_ok = made.head.status == Status::Ok;
        let Some(name) = name_of(request).filter(|_| is_ok) else { return };
        let mut memory = self.0.borrow_mut();
        let parts = core::mem::take(&mut made.body).into_iter().map(|part| match part {
            Part::Producer(source) => {
                let copy = Some(Copy { name: name.clone(), source, bytes: Vec::new() });
                Part::Producer(Box::new(Tee { copy, memory: Rc::clone(&self.0) }))
            }
            // A short body has come with the head, and is the only part.
            Part::Piece(piece) => {
                memory.kept.insert(name.clone(), Rc::new(Kept(piece.bytes().to_vec())));
                Part::Piece(piece)
            }
            part @ Part::File(..) => part,
        });
        let mut body = Body::EMPTY;
        parts.for_each(|part| body.push(part));
        made.body = body;
    }

    fn act(&mut self) -> bool {
        let mut has_more = false;
        let orphans = core::mem::take(&mut self.0.borrow_mut().orphans);
        for mut copy in orphans {
            let (produced, bytes) = copy.poll(ROOM);
            has_more |= produced == Produced::More || !bytes.is_empty();
            let mut memory = self.0.borrow_mut();
            match produced {
                Produced::Ended => copy.keep(&mut memory),
                Produced::Failed => {}
                Produced::More | Produced::Waiting => memory.orphans.push(copy),
            }
        }
        has_more
    }
}

/// An authorizer that a test tells what to say.
#[derive(Debug, Default)]
struct Door {
    /// Requests about which it thinks.
    asked: VecDeque<Ticket>,
    /// The paths about which it was asked.
    paths: Vec<String>,
    said: VecDeque<(Ticket, Result<Grant, Denial>)>,
    /// Requests about which nothing waits for it any more, and the number of such requests so far.
    gone: Vec<Ticket>,
    given_up: usize,
    /// The numbers of routes of the configurations for which it has prepared.
    configured: Vec<usize>,
}

/// A request about which the authorizer thinks.
#[derive(Debug)]
struct Thought(Ticket, Rc<RefCell<Door>>);

impl Search for Thought {
    fn weight(&self) -> Weight {
        Weight::default()
    }
}

impl Drop for Thought {
    fn drop(&mut self) {
        self.1.borrow_mut().gone.push(self.0);
    }
}

#[derive(Debug)]
struct Doorman(Rc<RefCell<Door>>);

impl Authorizer for Doorman {
    fn has_say(&self, route: &Route) -> bool {
        has_say(route)
    }

    fn configure(&mut self, _shell: &mut Shell, snapshot: &Snapshot) {
        self.0.borrow_mut().configured.push(snapshot.routes().count());
    }

    fn admit(&mut self, _shell: &mut Shell, request: &Request<'_>, route: &Route) -> Admission {
        assert!(self.has_say(route));
        if let Target::Origin { path, .. } = request.head.target {
            self.0.borrow_mut().paths.push(String::from_utf8_lossy(path).into_owned());
        }
        match request.head.target {
            Target::Origin { path, .. } if path.ends_with(b"forbidden") => {
                Admission::Now(Err(Status::Forbidden.into()))
            }
            Target::Origin { path, .. }
                if path.starts_with(b"/private/") || path.starts_with(b"/internal/later") =>
            {
                self.0.borrow_mut().asked.push_back(request.ticket);
                Admission::Waiting(Some(Rc::new(Thought(request.ticket, Rc::clone(&self.0)))))
            }
            _ => Admission::Now(Ok(Grant::default())),
        }
    }

    fn may_have_news(&self) -> bool {
        let door = self.0.borrow();
        !door.said.is_empty() || !door.gone.is_empty()
    }

    fn next_admitted(&mut self) -> Option<(Ticket, Result<Grant, Denial>)> {
        let mut door = self.0.borrow_mut();
        if let Some(said) = door.said.pop_front() {
            return Some(said);
        }
        while let Some(ticket) = door.gone.pop() {
            // It has decided about the others.
            if let Some(place) = door.asked.iter().position(|asked| *asked == ticket) {
                door.asked.remove(place);
                door.given_up += 1;
                return Some((ticket, Err(Status::Forbidden.into())));
            }
        }
        None
    }
}

/// The routes about whose requests the authorizer decides.
fn has_say(route: &Route) -> bool {
    matches!(route.action, Action::Proxy(_)) || route.path == "/internal/"
}

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners, Router>,
    listener: PeerListener,
    memory: Rc<RefCell<Memory>>,
    door: Rc<RefCell<Door>>,
    /// The device of the directory `slow`.
    device: u64,
    config: Config,
    snapshot: Arc<Snapshot>,
}

impl Stage {
    /// A server to which all requests are passed on, behind a cache and an authorizer. It may hand them over to files.
    fn new() -> Self {
        let world = World::new(config(1));
        for name in ["a", "forbidden", "later", "later.bin"] {
            world.write_file(name, FILE);
        }
        let device = world.make_device("slow");
        world.write_file("slow/big", &content(1, BIG_BYTES));
        let listener = world.listen(SERVER.parse::<core::net::SocketAddr>().expect("an address"));
        let servers = vec![upstream::server(&format!("http://{SERVER}")).expect("a server")];
        let rules = GatewayRules::default();
        let mut config = Config::default();
        config.sites[0].routes[0].action = Action::Proxy(Upstream { servers, rules });
        let files = Files { root: "/".into(), rules: FileRules::default() };
        for (path, is_internal) in [("/internal/", true), ("/files/", false), ("/cached/", false)] {
            let (path, action) = (path.to_owned(), Action::Files(files.clone()));
            config.sites[0].routes.push(Route { path, is_internal, action, ..Route::default() });
        }
        let mut parts = parts(&world, Tuning::default());
        let snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
        parts.snapshot = Arc::clone(&snapshot);
        let network = Listeners::new(parts.listeners.clone());
        let (memory, door) = (Rc::default(), Rc::default());
        let (cache, doorman) = (Cache(Rc::clone(&memory)), Doorman(Rc::clone(&door)));
        let roots = core::mem::take(&mut parts.roots);
        let worker = Worker::with(parts, network, |shell| {
            let mut router = Router::new(&roots, 64, shell)?;
            let (authorizer, wrapper) = (Some(Box::new(doorman) as _), Some(Box::new(cache) as _));
            router.attach(shell, Attachments { authorizer, wrapper, copier: None });
            assert!(!router.may_have_news(), "the worker may wait");
            Ok(router)
        });
        let worker = worker.expect("memory");
        Self { world, worker, listener, memory, door, device, config, snapshot }
    }

    fn ask(&self, request: &str) -> Peer {
        let client = self.world.connect();
        client.send(request.as_bytes());
        client
    }

    /// The same for a request about which the authorizer thinks.
    fn ask_door(&mut self, request: &str) -> Peer {
        let before = self.door.borrow().asked.len();
        let client = self.ask(request);
        run_until(&mut self.worker, || self.door.borrow().asked.len() > before);
        client
    }

    /// The server's end of a connection, once it has a request that ends so.
    fn accept(&mut self, end: &[u8]) -> Peer {
        let mut server = None;
        run_until(&mut self.worker, || {
            server = server.take().or_else(|| self.listener.accept());
            server.as_ref().is_some_and(|server| server.received().ends_with(end))
        });
        server.expect("a connection to the server")
    }

    /// Returns whether something was asked of the server.
    fn has_asked(&mut self) -> bool {
        pass(&mut self.worker, Duration::from_millis(50));
        self.listener.accept().is_some()
    }

    /// The status, the body of the response to a client, and whether it comes from memory.
    fn response(&mut self, client: &Peer) -> (u16, Vec<u8>, bool) {
        let mut response = None;
        run_until(&mut self.worker, || {
            response = parse_whole(&client.received());
            response.is_some()
        });
        let response = response.expect("a response");
        (response.status, response.body, response.head.contains("\r\nAge: 0\r\n"))
    }

    /// Makes the authorizer say this about the request that has waited for longest.
    fn say(&mut self, said: Result<Grant, Denial>) {
        run_until(&mut self.worker, || !self.door.borrow().asked.is_empty());
        let mut door = self.door.borrow_mut();
        let ticket = door.asked.pop_front().expect("it was asked");
        door.said.push_back((ticket, said));
    }

    fn check_nothing_is_left(&mut self) {
        self.memory.borrow_mut().kept.clear();
        pass(&mut self.worker, Duration::from_secs(300));
        assert_eq!(self.worker.connections(), 0, "connections are left");
        assert_eq!(self.worker.held(), (0, 0), "memory is left");
        assert!(self.memory.borrow().orphans.is_empty(), "copies are left");
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn what_was_seen_before_is_answered_from_memory_by_method_and_path() {
    let mut stage = Stage::new();
    let client = stage.ask(&get("/a"));
    let server = stage.accept(b"\r\n\r\n");
    server.send(&answer(b"first"));
    assert_eq!(stage.response(&client), (200, b"first".to_vec(), false));
    for _ in 0..2 {
        let again = stage.ask(&get("/a"));
        assert_eq!(stage.response(&again), (200, b"first".to_vec(), true));
    }
    drop(server);
    // Neither another path nor another method is answered with it.
    for request in [get("/b"), get("/a").replace("GET", "DELETE")] {
        let client = stage.ask(&request);
        let server = stage.accept(b"\r\n\r\n");
        server.send(&answer(b"second"));
        assert_eq!(stage.response(&client), (200, b"second".to_vec(), false));
    }
    drop(client);
    stage.check_nothing_is_left();
}

#[test]
fn the_sites_of_a_cache_are_kept_apart() {
    let mut stage = Stage::new();
    for (host, body) in [("a.example", b"of a"), ("b.example", b"of b")] {
        let client = stage.ask(&get("/x").replace("a.example", host));
        let server = stage.accept(b"\r\n\r\n");
        server.send(&answer(body));
        assert_eq!(stage.response(&client), (200, body.to_vec(), false));
    }
    let again = stage.ask(&get("/x"));
    assert_eq!(stage.response(&again), (200, b"of a".to_vec(), true));
    drop(again);
    stage.check_nothing_is_left();
}

#[test]
fn attached_parts_prepare_for_each_configuration() {
    let mut stage = Stage::new();
    for routes in [4, 3] {
        let configured = [
            stage.door.borrow().configured.last().copied(),
            stage.memory.borrow().configured.last().copied(),
        ];
        assert_eq!(configured, [Some(routes); 2]);
        stage.config.sites[0].routes.pop();
        let next = stage.snapshot.successor(&stage.config).expect("a valid configuration");
        let succession = Arc::new(stage.snapshot.succession(&next, Some));
        stage.snapshot = Arc::new(next);
        stage.worker.replace_configuration(Replacement {
            snapshot: Arc::clone(&stage.snapshot),
            succession,
            roots: HashMap::new(),
            listeners: Vec::new(),
            logs: Vec::new(),
        });
    }
}

#[test]
fn other_routes_are_answered_without_the_wrapper() {
    let mut stage = Stage::new();
    for _ in 0..2 {
        let client = stage.ask(&get("/files/a"));
        assert_eq!(stage.response(&client), (200, FILE.to_vec(), false));
    }
    let memory = stage.memory.borrow();
    assert!(memory.recalled.is_empty() && memory.wrapped.is_empty(), "{memory:?}");
}

/// The file of the first response cannot be read, so the router makes another response.
#[test]
fn a_response_is_wrapped_once() {
    let mut stage = Stage::new();
    let [warm, waits] = [(); 2].map(|()| get("/cached/slow/big"));
    let client = stage.ask(&warm);
    assert_eq!(stage.response(&client).1.len(), BIG_BYTES);
    stage.world.evict("slow/big");
    stage.world.hang(stage.device);
    let waiting = stage.ask(&waits);
    pass(&mut stage.worker, Duration::from_secs(60));
    let refused = stage.ask(&get("/cached/slow/big"));
    assert_eq!(stage.response(&refused).0, 503);
    assert_eq!(stage.memory.borrow().wrapped, vec![b"/cached/slow/big".to_vec(); 3]);
    stage.world.release(stage.device);
    drop((client, waiting, refused));
    stage.check_nothing_is_left();
}

#[test]
fn a_tee_outlives_its_client() {
    let mut stage = Stage::new();
    let body = content(1, 300_000);
    let whole = answer(&body);
    let client = stage.ask(&get("/a"));
    let server = stage.accept(b"\r\n\r\n");
    server.send(&whole[..50_000]);
    run_until(&mut stage.worker, || client.received_bytes() > 10_000);
    client.reset();
    drop(client);
    pass(&mut stage.worker, Duration::from_secs(1));
    assert_eq!(stage.memory.borrow().orphans.len(), 1, "the copy has not ended");
    for part in whole[50_000..].chunks(40_000) {
        server.send(part);
        pass(&mut stage.worker, Duration::from_millis(50));
    }
    assert!(stage.memory.borrow().orphans.is_empty(), "the copy has ended");
    let again = stage.ask(&get("/a"));
    let (status, found, is_kept) = stage.response(&again);
    assert!(status == 200 && is_kept && found == body, "{status} {is_kept} {}", found.len());
    // One of which no more comes ends with the server.
    let client = stage.ask(&get("/b"));
    drop(server);
    let server = stage.accept(b"\r\n\r\n");
    server.send(&whole[..50_000]);
    run_until(&mut stage.worker, || client.received_bytes() > 10_000);
    drop((client, again));
    pass(&mut stage.worker, Duration::from_secs(1));
    drop(server);
    stage.check_nothing_is_left();
}

#[test]
fn an_authorizer_may_answer_later() {
    let mut stage = Stage::new();
    let post = "POST /private/a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody";
    let clients = [get("/private/a"), post.to_owned()].map(|request| stage.ask_door(&request));
    assert!(!stage.has_asked(), "the server is not asked before the authorizer has said yes");
    for (client, end) in clients.iter().zip([&b"\r\n\r\n"[..], b"body"]) {
        stage.say(Ok(Grant::default()));
        let server = stage.accept(end);
        server.send(&answer(b"private"));
        assert_eq!(stage.response(client), (200, b"private".to_vec(), false));
    }
    // It is asked before the cache is.
    for (request, said) in
        [(get("/private/a"), Err(Status::Forbidden)), (get("/private/a"), Ok(Grant::default()))]
    {
        let client = stage.ask(&request);
        let expected = if said.is_ok() { (200, true) } else { (403, false) };
        stage.say(said.map_err(Denial::from));
        let (status, _, is_kept) = stage.response(&client);
        assert_eq!((status, is_kept), expected);
    }
    let refused = [stage.ask(&get("/forbidden")), stage.ask_door(post)];
    let mut fields = FieldSection::EMPTY;
    fields.push(b"WWW-Authenticate", b"Basic realm=\"a\"");
    stage.say(Err(Denial { status: Status::Unauthorized, fields }));
    assert_eq!(stage.response(&refused[0]).0, 403);
    assert_eq!(stage.response(&refused[1]).0, 401);
    let received = refused[1].received();
    let head = String::from_utf8_lossy(&received);
    assert!(head.contains("\r\nWWW-Authenticate: Basic realm=\"a\"\r\n"), "{head}");
    // The client has left before it is let pass: no upstream is asked for it, and the authorizer gives up.
    assert_eq!(stage.door.borrow().given_up, 0);
    let client = stage.ask_door(&get("/private/b"));
    client.reset();
    drop((client, clients, refused));
    pass(&mut stage.worker, Duration::from_secs(1));
    assert_eq!((stage.door.borrow().given_up, stage.door.borrow().asked.len()), (1, 0));
    stage.check_nothing_is_left();
}

/// A request that a server hands over is one for the other route, too.
#[test]
fn a_request_that_is_handed_over_is_asked_about_again() {
    let mut stage = Stage::new();
    let hand_over = |stage: &mut Stage, path: &str, to: &str| {
        let client = stage.ask(&get(path));
        let server = stage.accept(b"\r\n\r\n");
        let head =
            format!("HTTP/1.1 200 OK\r\nX-Accel-Redirect: {to}\r\nContent-Length: 0\r\n\r\n");
        server.send(head.as_bytes());
        client
    };
    let client = hand_over(&mut stage, "/1", "/internal/a");
    assert_eq!(stage.response(&client), (200, FILE.to_vec(), false));
    let client = hand_over(&mut stage, "/2", "/internal/forbidden");
    assert_eq!(stage.response(&client).0, 403);
    assert_eq!(stage.door.borrow().paths, ["/1", "/internal/a", "/2", "/internal/forbidden"]);
    let client = hand_over(&mut stage, "/3", "/internal/later");
    stage.say(Ok(Grant::default()));
    assert_eq!(stage.response(&client), (200, FILE.to_vec(), false));
    let client = hand_over(&mut stage, "/4", "/internal/later");
    stage.say(Err(Status::Forbidden.into()));
    assert_eq!(stage.response(&client).0, 403);
    // The client leaves before it is let pass.
    let client = hand_over(&mut stage, "/5", "/internal/later.bin");
    run_until(&mut stage.worker, || !stage.door.borrow().asked.is_empty());
    client.reset();
    drop(client);
    pass(&mut stage.worker, Duration::from_secs(1));
    stage.say(Ok(Grant::default()));
    pass(&mut stage.worker, Duration::from_secs(1));
    stage.check_nothing_is_left();
}

#[test]
fn a_request_is_asked_about_once() {
    let mut stage = Stage::new();
    let client = stage.ask(&[get("/a"), get("/b"), get("/c/forbidden")].concat());
    let server = stage.accept(b"\r\n\r\n");
    pass(&mut stage.worker, Duration::from_millis(50));
    assert_eq!(stage.door.borrow().paths, ["/a"], "the others are not next");
    server.send(&answer(b"a"));
    run_until(&mut stage.worker, || server.received().windows(6).any(|bytes| bytes == b"GET /b"));
    server.send(&answer(b"b"));
    run_until(&mut stage.worker, || {
        String::from_utf8_lossy(&client.received()).contains("HTTP/1.1 403 ")
    });
    assert_eq!(stage.door.borrow().paths, ["/a", "/b", "/c/forbidden"]);
    drop((client, server));
    stage.check_nothing_is_left();
}

#[test]
fn an_explanation_says_that_an_authorizer_would_be_asked() {
    let servers = vec![upstream::server("http://127.0.0.1:9").expect("a server")];
    let upstream = Upstream { servers, rules: GatewayRules::default() };
    let mut config = Config::default();
    let (path, action) = ("/app/".to_owned(), Action::Proxy(upstream));
    config.sites[0].routes.push(Route { path, action, ..Route::default() });
    let snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
    let told = |path: &str| {
        let url = format!("http://a.example{path}");
        let question = Question::new("GET", &url, None, &[]).expect("a question");
        explain(Arc::clone(&snapshot), &question.parts().expect("a request"), has_say)
            .expect("an explanation")
    };
    let of_app = told("/app/a");
    let line = "authorizer    it would decide first; it is not asked, and permits as is assumed";
    let place = |what: &str| of_app.find(what).unwrap_or_else(|| panic!("{what}: {of_app}"));
    assert!(place(line) < place("which is not asked\n"), "{of_app}");
    assert!(!told("/").contains("authorizer"), "files are for all");
}

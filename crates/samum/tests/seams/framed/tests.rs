//! The framed session with the handler and the transport that users have.

use core::cell::Cell;
use core::time::Duration;
use std::collections::BTreeMap;

use config::{FileRules, Tuning};
use ring::sim::{Config, Counts, Peer, World};
use samum::network::Network;
use samum::worker::Worker;
use sendfile::{Caching, Policy, Window};
use session::Session;
use testkit::{Random, Response};

use super::{Framed, Kind, LANES_MAX, PATIENCE};
use crate::seams::either::Either;
use crate::seams::world::{assert_nothing_is_left, for_seeds, pass, run_until, serve};

/// Files of the root, and of a device that may hang.
const FILES: [(&str, usize); 8] = [
    ("f0", 0),
    ("f1", 1),
    ("f5000", 5000),
    ("f32769", 32_769),
    ("f300001", 300_001),
    ("f1000000", 1_000_000),
    ("slow/f5000", 5001),
    ("slow/f700000", 700_000),
];
const SLOW: &str = "slow/f700000";

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut chance = Random::new(seed ^ len as u64);
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| chance.bits().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// A world with the files, and the number of the device.
fn make(config: Config) -> (World, u64) {
    let seed = config.seed;
    let world = World::new(config);
    let device = world.make_device("slow");
    for (name, len) in FILES {
        world.write_file(name, &content(seed, len));
    }
    world.evict_all();
    (world, device)
}

fn get(name: &str, field: &str) -> Vec<u8> {
    format!("GET /{name} HTTP/1.1\r\nHost: sim\r\n{field}\r\n").into_bytes()
}

/// The peer of a framed session.
struct Client {
    peer: Peer,
    input: Vec<u8>,
    asked: u32,
    answers: BTreeMap<u32, Answer>,
}

/// What has come for one request.
#[derive(Debug, Default)]
struct Answer {
    head: Vec<u8>,
    body: Vec<u8>,
    end: Option<Kind>,
}

impl Client {
    fn new(world: &World) -> Self {
        let (input, answers) = (Vec::new(), BTreeMap::new());
        Self { peer: world.connect(), input, asked: 0, answers }
    }

    /// The frame of a next request.
    fn frame(&mut self, head: &[u8]) -> Vec<u8> {
        self.asked += 1;
        let length = u32::try_from(head.len()).expect("a short head");
        [&self.asked.to_be_bytes(), &length.to_be_bytes(), head].concat()
    }

    /// Asks, and returns the id.
    fn ask(&mut self, head: &[u8]) -> u32 {
        let frame = self.frame(head);
        self.peer.send(&frame);
        self.asked
    }

    fn get(&mut self, name: &str) -> u32 {
        self.ask(&get(name, ""))
    }

    fn withdraw(&self, id: u32) {
        self.peer.send(&[id.to_be_bytes(), [0; 4]].concat());
    }

    /// Takes the frames that have come whole.
    fn look(&mut self) {
        self.input.extend(self.peer.take());
        let mut at = 0;
        while let Some((id, length, rest)) = super::frame_of(&self.input[at..])
            && let Some((&kind, rest)) = rest.split_first()
            && let Some(bytes) = rest.get(..length)
        {
            let answer = self.answers.entry(id).or_default();
            assert_eq!(answer.end, None, "nothing comes behind the end of {id}");
            match kind {
                0 => answer.head.extend(bytes),
                1 => answer.body.extend(bytes),
                2 => answer.end = Some(Kind::End),
                3 => answer.end = Some(Kind::Error),
                kind => panic!("a frame of kind {kind}"),
            }
            at += 9 + length;
        }
        self.input.drain(..at);
    }

    fn end_of(&mut self, id: u32) -> Option<Kind> {
        self.look();
        self.answers.get(&id)?.end
    }

    fn has_all(&mut self, ids: &[u32]) -> bool {
        ids.iter().all(|id| self.end_of(*id).is_some())
    }

    fn summary(&self) -> String {
        let one =
            |(id, answer): (&u32, &Answer)| format!("{id}: {} {:?}", answer.body.len(), answer.end);
        self.answers.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// What has come as HTTP/1 parses it.
    fn response(&self, id: u32, is_head: bool) -> Response {
        let Answer { head, body, .. } = &self.answers[&id];
        let all = [&head[..], body].concat();
        let (response, len) = Response::parse(&all, is_head, true).unwrap().expect("a response");
        assert_eq!(len, all.len());
        response
    }
}

fn wait_for<S: Session>(worker: &mut Worker<S>, client: &mut Client, ids: &[u32]) {
    assert!(run_until(worker, || client.has_all(ids)), "{ids:?} of {}", client.summary());
}

fn assert_whole(client: &Client, id: u32, body: &[u8]) {
    let answer = &client.answers[&id];
    assert_eq!((answer.end, answer.body.len()), (Some(Kind::End), body.len()), "{id}");
    assert!(answer.body == body, "{id}: other bytes than the file's");
}

fn assert_all_is_given_back<S: Session, N: Network>(world: &World, worker: &mut Worker<S, N>) {
    assert_nothing_is_left(world, worker);
    assert_eq!(worker.held(), (0, 0), "bytes of connections, buffers of the disk");
}

fn listing() -> FileRules {
    FileRules { listing: true, ..FileRules::default() }
}

#[test]
fn heads_and_bodies_are_those_of_http1() {
    for_seeds(10, |seed| {
        // One worker for both: the first byte of a connection tells.
        let (world, _) = make(Config::new(seed));
        let mut worker = serve::<Either>(&world, listing());
        let mut client = Client::new(&world);
        let mut requests: Vec<_> = FILES.iter().map(|(name, _)| get(name, "")).collect();
        requests.extend([
            get("f300001", "Range: bytes=7-299999\r\n"),
            get("f5000", "Range: bytes=9000-\r\n"),
            get("f5000", "If-None-Match: *\r\n"),
            get("missing", ""),
            get("slow", ""),
            get("", ""),
            get("", "Accept: application/json\r\n"),
            b"HEAD /f1000000 HTTP/1.1\r\nHost: sim\r\n\r\n".to_vec(),
            b"OPTIONS * HTTP/1.1\r\nHost: sim\r\n\r\n".to_vec(),
        ]);
        let ids: Vec<_> = requests.iter().map(|head| client.ask(head)).collect();
        wait_for(&mut worker, &mut client, &ids);
        for (id, head) in ids.iter().zip(&requests) {
            let is_head = head.starts_with(b"HEAD");
            let peer = world.connect();
            peer.send(head);
            let mut expected = None;
            assert!(run_until(&mut worker, || {
                expected = Response::parse(&peer.received(), is_head, false).unwrap();
                expected.is_some()
            }));
            let (expected, _) = expected.expect("a response");
            let response = client.response(*id, is_head);
            assert_eq!(client.answers[id].end, Some(Kind::End));
            assert_eq!(fields(&response), fields(&expected));
            assert!(response.body == expected.body, "{}", head.escape_ascii());
        }
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

/// Status and fields, but for those of the wire and of the moment.
fn fields(response: &Response) -> (u16, Vec<&(String, String)>) {
    let is_wire = |name: &str| ["Date", "Transfer-Encoding"].contains(&name);
    (response.status, response.headers.iter().filter(|(name, _)| !is_wire(name)).collect())
}

#[test]
fn a_cold_lane_does_not_hold_up_hot_ones() {
    for_seeds(20, |seed| {
        let (world, device) = make(Config::new(seed));
        let mut worker = serve::<Framed>(&world, Tuning::default());
        let mut client = Client::new(&world);
        let hot = &FILES[..6];
        let first: Vec<_> = hot.iter().map(|(name, _)| client.get(name)).collect();
        wait_for(&mut worker, &mut client, &first);
        let opened = client.get(SLOW);
        wait_for(&mut worker, &mut client, &[opened]);

        world.evict(SLOW);
        world.hang(device);
        // The body of one file, and the other file itself, are on the device that hangs.
        let (cold, sought) = (client.get(SLOW), client.get("slow/f5000"));
        let ids: Vec<_> = hot.iter().map(|(name, _)| client.get(name)).collect();
        assert_eq!(ids.len() + 2, LANES_MAX);
        let begun = world.now();
        wait_for(&mut worker, &mut client, &ids);
        assert!(world.now().since(begun) < Duration::from_secs(1));
        for (id, (_, len)) in ids.iter().zip(hot) {
            assert_whole(&client, *id, &content(seed, *len));
        }
        pass(&mut worker, Duration::from_secs(10));
        assert_eq!((client.end_of(cold), !client.answers.contains_key(&sought)), (None, true));
        assert!(!client.answers[&cold].head.is_empty() && client.answers[&cold].body.is_empty());

        world.release(device);
        wait_for(&mut worker, &mut client, &[cold, sought]);
        assert_whole(&client, cold, &content(seed, 700_000));
        assert_whole(&client, sought, &content(seed, 5001));
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

#[test]
fn lanes_take_turns() {
    let (world, _) = make(Config::new(1));
    let mut worker = serve::<Framed>(&world, Tuning::default());
    let mut client = Client::new(&world);
    client.peer.set_read_rate(Some(1_000_000));
    let ids = [(); 4].map(|()| client.get("f1000000"));
    pass(&mut worker, Duration::from_secs(2));
    client.look();
    let lens = ids.map(|id| client.answers[&id].body.len());
    let (least, most) = (lens.iter().min().unwrap(), lens.iter().max().unwrap());
    assert!(*least > 300_000 && most - least < 300_000, "{lens:?}");
}

#[test]
fn a_lane_that_fails_ends_alone() {
    for_seeds(20, |seed| {
        let (world, _) = make(Config::new(seed));
        let policy = Policy { window: Window::of(0), ..Policy::default() };
        let rules = FileRules { policy, ..FileRules::default() };
        let mut worker = serve::<Framed>(&world, rules);
        let mut client = Client::new(&world);
        client.peer.set_read_rate(Some(1_000_000));
        let (cut, whole) = (client.get("f1000000"), client.get(SLOW));
        assert!(run_until(&mut worker, || {
            client.look();
            client.answers.get(&cut).is_some_and(|answer| answer.body.len() > 10_000)
        }));
        world.truncate("f1000000", 5000);
        wait_for(&mut worker, &mut client, &[cut, whole]);
        assert_eq!(client.answers[&cut].end, Some(Kind::Error));
        assert!(content(seed, 1_000_000).starts_with(&client.answers[&cut].body));
        assert_whole(&client, whole, &content(seed, 700_000));
        assert_eq!(worker.stats().truncated, 1);
        let next = client.get("f5000");
        wait_for(&mut worker, &mut client, &[next]);
        assert_whole(&client, next, &content(seed, 5000));
    });
}

#[test]
fn a_withdrawn_request_gives_its_place_to_another() {
    for_seeds(20, |seed| {
        let (world, device) = make(Config::new(seed));
        let mut worker = serve::<Framed>(&world, Tuning::default());
        let mut client = Client::new(&world);
        let opened = client.get(SLOW);
        wait_for(&mut worker, &mut client, &[opened]);
        world.evict(SLOW);
        world.hang(device);
        let cold = [(); LANES_MAX - 1].map(|()| client.get(SLOW));
        assert!(run_until(&mut worker, || {
            client.look();
            client.answers.len() == LANES_MAX
        }));
        cold.iter().for_each(|id| client.withdraw(*id));
        let hot = [(); LANES_MAX].map(|()| client.get("f300001"));
        wait_for(&mut worker, &mut client, &hot);
        // Their reads end when they have gone.
        world.release(device);
        pass(&mut worker, Duration::from_secs(1));
        hot.iter().for_each(|id| assert_whole(&client, *id, &content(seed, 300_001)));
        assert!(cold.iter().all(|id| client.answers[id].end.is_none()));
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

#[test]
fn a_peer_that_asks_and_withdraws_fills_no_memory() {
    let (world, _) = make(Config::new(1));
    let mut worker = serve::<Framed>(&world, Tuning::default());
    let mut client = Client::new(&world);
    client.peer.stop_reading();
    for _ in 0..3000 {
        let id = client.get("f300001");
        client.withdraw(id);
        client.ask(b"nonsense");
    }
    for _ in 0..500 {
        let now = worker.ring().now();
        worker.turn(Some(now + Duration::from_millis(20))).unwrap();
        let (bytes, _) = worker.held();
        assert!(bytes < 500_000, "{bytes} bytes");
    }
}

#[test]
fn clients_that_take_nothing_do_not_keep_the_buffers() {
    for_seeds(3, |seed| {
        let (world, _) = make(Config::new(seed));
        let mut worker = serve::<Framed>(&world, Tuning::default());
        let stuck: Vec<_> = (0..80)
            .map(|_| {
                let mut client = Client::new(&world);
                client.peer.stop_reading();
                for _ in 0..LANES_MAX {
                    client.get("f1000000");
                }
                client
            })
            .collect();
        pass(&mut worker, Duration::from_secs(5));
        world.evict_all();
        let mut client = Client::new(&world);
        let begun = world.now();
        let ids = [(); 4].map(|()| client.get(SLOW));
        wait_for(&mut worker, &mut client, &ids);
        let took = world.now().since(begun);
        assert!(took < Duration::from_secs(3), "{took:?} beside 80 that take nothing");
        drop((client, stuck));
        assert_all_is_given_back(&world, &mut worker);
    });
}

#[test]
fn a_server_that_stops_completes_what_was_asked() {
    let (world, _) = make(Config::new(1));
    let mut worker = serve::<Framed>(&world, Tuning::default());
    let mut client = Client::new(&world);
    let mut idle = Client::new(&world);
    let ids = FILES.map(|(name, _)| client.get(name));
    assert!(run_until(&mut worker, || client.peer.received_bytes() > 0));
    worker.shut_down();
    wait_for(&mut worker, &mut idle, &[0]);
    wait_for(&mut worker, &mut client, &ids);
    for (id, (_, len)) in ids.into_iter().zip(FILES) {
        assert_whole(&client, id, &content(1, len));
    }
    assert_eq!(client.end_of(0), Some(Kind::End));
    for client in [client, idle] {
        assert!(run_until(&mut worker, || client.peer.end().is_some()));
    }
}

#[test]
fn a_frame_that_makes_no_sense_ends_the_connection_or_the_request() {
    let (world, _) = make(Config::new(1));
    let mut worker = serve::<Framed>(&world, Tuning::default());
    let mut client = Client::new(&world);
    let (bad, good) = (client.ask(b"nonsense\r\n\r\n"), client.get("f5000"));
    wait_for(&mut worker, &mut client, &[bad, good]);
    assert_eq!(client.answers[&bad].end, Some(Kind::Error));
    client.asked = 0;
    client.get("f1");
    assert!(run_until(&mut worker, || client.peer.end().is_some()), "an id came twice");
}

#[test]
fn a_peer_that_does_nothing_is_let_go() {
    let (world, _) = make(Config::new(1));
    let mut worker = serve::<Framed>(&world, Tuning::default());
    let [mut silent, mut torn, mut stuck, mut slow] = [(); 4].map(|()| Client::new(&world));
    let frame = torn.frame(&get("f1", ""));
    torn.peer.send(&frame[..20]);
    stuck.peer.stop_reading();
    slow.peer.set_read_rate(Some(20_000));
    let ids = [&mut stuck, &mut slow].map(|client| client.get("f1000000"));
    pass(&mut worker, PATIENCE + Duration::from_secs(5));
    assert_eq!((worker.connections(), worker.stats().timeouts), (1, 3));
    assert!(silent.end_of(1).is_none() && silent.peer.end().is_some());
    wait_for(&mut worker, &mut slow, &ids[1..]);
    assert_whole(&slow, ids[1], &content(1, 1_000_000));
}

/// A client of a random world, and what it expects.
struct Scripted {
    client: Client,
    expected: Vec<(u32, Vec<u8>)>,
    /// Bytes that it has not sent.
    output: Vec<u8>,
    withdrawn: Vec<u32>,
    has_reset: bool,
}

impl Scripted {
    fn new(world: &World, seed: u64, chance: &mut Random) -> Self {
        let mut client = Client::new(world);
        if chance.one_in(3) {
            client.peer.set_read_rate(Some(300_000 + chance.bits() % 3_000_000));
        }
        let (mut expected, mut output) = (Vec::new(), Vec::new());
        for _ in 0..2 + chance.below(12) {
            let (name, len) = FILES[chance.below(FILES.len())];
            let (mut body, mut field) = (content(seed, len), String::new());
            if len > 0 && chance.one_in(4) {
                let first = chance.below(len);
                let last = first + chance.below(len - first);
                (body, field) =
                    (body[first..=last].to_vec(), format!("Range: bytes={first}-{last}\r\n"));
            }
            output.extend(client.frame(&get(name, &field)));
            expected.push((client.asked, body));
        }
        Self { client, expected, output, withdrawn: Vec::new(), has_reset: false }
    }

    fn poke(&mut self, chance: &mut Random) {
        let count = [self.output.len(), 1 + chance.below(100)][chance.below(2)];
        let rest = self.output.split_off(count.min(self.output.len()));
        self.client.peer.send(&core::mem::replace(&mut self.output, rest));
        if self.output.is_empty() && chance.one_in(30) {
            let (id, _) = self.expected[chance.below(self.expected.len())];
            self.client.withdraw(id);
            self.withdrawn.push(id);
        }
        if chance.one_in(200) {
            self.client.peer.reset();
            self.has_reset = true;
        }
    }

    /// Panics at a byte that is not right; returns whether all has come that will.
    fn check(&mut self, faults: bool) -> bool {
        self.client.look();
        let mut is_done = true;
        for (id, body) in &self.expected {
            let Some(answer) = self.client.answers.get(id) else {
                is_done &= self.withdrawn.contains(id);
                continue;
            };
            let refusals = [b"HTTP/1.1 500 ", b"HTTP/1.1 503 "];
            let refused = faults && refusals.iter().any(|status| answer.head.starts_with(*status));
            assert!(refused || body.starts_with(&answer.body), "{id}: a wrong byte");
            match answer.end {
                Some(Kind::End) => assert!(refused || answer.body == *body, "{id}: too short"),
                Some(_) => assert!(faults, "{id} failed"),
                None => is_done &= self.withdrawn.contains(id),
            }
        }
        is_done || self.has_reset
    }
}

#[test]
fn every_byte_is_right_in_random_worlds() {
    let all = Cell::new((Counts::default(), 0, 0));
    for_seeds(200, |seed| {
        let mut chance = Random::new(seed ^ 0x5eed);
        let faults = chance.one_in(3);
        let mut config = if faults { Config::nasty(seed) } else { Config::new(seed) };
        config.faults.short_send = 0.2;
        config.faults.accept_error = 0.0;
        if chance.one_in(2) {
            config.disk = Duration::from_millis(1)..=Duration::from_millis(300);
        }
        let caching = [Caching::Popular, Caching::Never, Caching::Always][chance.below(3)];
        let (world, device) = make(config);
        let mut worker = serve::<Framed>(
            &world,
            FileRules { policy: Policy { caching, ..Policy::default() }, ..FileRules::default() },
        );
        let mut clients: Vec<_> =
            (0..1 + chance.below(6)).map(|_| Scripted::new(&world, seed, &mut chance)).collect();
        let mut hangs = false;
        let mut all_done = false;
        for round in 0..20_000 {
            if chance.one_in(3) {
                let count = clients.len();
                clients[chance.below(count)].poke(&mut chance);
            }
            if chance.one_in(40) {
                world.evict_all();
            }
            if round < 500 && chance.one_in(40) {
                hangs = !hangs;
                if hangs { world.hang(device) } else { world.release(device) }
            }
            if round == 500 {
                world.release(device);
            }
            let now = worker.ring().now();
            worker.turn(Some(now + Duration::from_millis(20))).unwrap();
            if round % 64 == 0 {
                let waiting =
                    clients.iter_mut().filter_map(|one| (!one.check(faults)).then_some(()));
                all_done = waiting.count() == 0;
                if all_done && round > 500 {
                    break;
                }
            }
        }
        assert!(all_done, "clients wait for ever: {worker:?}");
        let (mut sum, mut withdrawn, mut reset) = all.get();
        sum += world.counts();
        for one in clients {
            withdrawn += one.withdrawn.len();
            reset += usize::from(one.has_reset);
        }
        all.set((sum, withdrawn, reset));
        assert_all_is_given_back(&world, &mut worker);
    });
    let (Counts { partial_sends, failures, hangs, .. }, withdrawn, reset) = all.get();
    let happened = [partial_sends, failures, hangs].iter().all(|count| *count > 0);
    let is_one_seed = std::env::var("SAMUM_SEED").is_ok();
    assert!(is_one_seed || (happened && withdrawn > 0 && reset > 0), "{:?}", all.get());
}

//! Runs a plan: the applications at both ends, and checks them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::HashMap;

use netstack::sim::{News, Random, World};
use netstack::{ConnectionId, Lost, Time};

use crate::worlds::attack;
use crate::worlds::plan::{Aim, ConnectionPlan, End, Plan};

/// The clock begins shortly before its milliseconds wrap in 32 bits.
const START: Time = Time::from_nanos(4_294_960_000_000_000);

/// All connections have ended by then: patience, keepalive and TIME-WAIT, one after the other.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// Bytes that an application keeps queued.
const QUEUED_MAX: u64 = 300_000;

/// Chunks that it keeps queued: with each drain all are checked.
const CHUNKS_MAX: u64 = 2000;

/// One side of a connection.
#[derive(Debug)]
struct Side {
    /// The connection in the plan.
    index: usize,
    is_client: bool,
    /// What it sends in all, and what it has queued of that.
    total: u64,
    queued: u64,
    /// What it is to receive in all, and what it has.
    expected: u64,
    received: u64,
    shut: bool,
    ended: bool,
    pauses: u32,
    /// The moment at which it begins or ends a pause.
    turns_at: Option<Time>,
    is_paused: bool,
}

/// What has become of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Closed,
    GaveUp,
    Lost(Lost),
}

/// The byte at a position of a stream.
fn content(index: usize, is_clients: bool, position: u64) -> u8 {
    let stream = u64::try_from(index).expect("few") * 2 + u64::from(is_clients);
    (position ^ stream << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

struct Play {
    plan: Plan,
    world: World,
    sides: HashMap<(usize, ConnectionId), Side>,
    fates: Vec<[Option<Fate>; 2]>,
    /// The connection that an application has given up last: what was told before is still on its way.
    given_up: Option<(usize, ConnectionId, Time)>,
    begun: Vec<bool>,
    /// The attacker's.
    random: Random,
    /// Whether segments are forged.
    is_forged: bool,
    /// Connections with acknowledged bytes: once they are drained, there is room for more in their queues.
    acknowledged: Vec<(usize, ConnectionId)>,
}

/// Plays the plan to its end.
pub(crate) fn play(plan: Plan) {
    let count = plan.connections.len();
    let world = plan.world(START);
    let mut play = Play {
        random: Random::new(!plan.seed),
        is_forged: !plan.forgeries.is_empty(),
        plan,
        world,
        sides: HashMap::new(),
        fates: vec![[None; 2]; count],
        given_up: None,
        begun: vec![false; count],
        acknowledged: Vec::new(),
    };
    play.run();
}

impl Play {
    fn run(&mut self) {
        let end = START + LONGEST;
        loop {
            let until = self.next_act().unwrap_or(end).min(end);
            let news = self.world.advance(until);
            let is_over = news.is_none() && until == end;
            for (host, id, news) in news.into_iter().flatten() {
                self.hear(host, id, news);
            }
            self.act();
            self.world.settle();
            for (host, id) in core::mem::take(&mut self.acknowledged) {
                if self.sides.contains_key(&(host, id)) {
                    self.go_on(self.world.now(), host, id);
                }
            }
            self.world.settle();
            if is_over {
                break;
            }
        }
        self.check_end();
    }

    /// The next moment at which an application or the path does something by itself.
    fn next_act(&self) -> Option<Time> {
        let begins = self.plan.connections.iter().zip(&self.begun);
        let begins = begins.filter(|(_, begun)| !**begun).map(|(plan, _)| START + plan.begins);
        let turns = self.sides.values().filter_map(|side| side.turns_at);
        let changes = self.plan.mtu_changes.iter().map(|(after, _)| START + *after);
        let forgeries = self.plan.forgeries.first().map(|(after, _)| START + *after);
        begins.chain(turns).chain(changes).chain(forgeries).min()
    }

    fn act(&mut self) {
        let now = self.world.now();
        let links = &mut self.world.links;
        self.plan.mtu_changes.retain(|(after, mtu)| {
            let is_due = START + *after <= now;
            if is_due {
                links.iter_mut().for_each(|link| link.conditions_mut().mtu = *mtu);
            }
            !is_due
        });
        for index in 0..self.begun.len() {
            if !self.begun[index] && START + self.plan.connections[index].begins <= now {
                self.begun[index] = true;
                self.connect(now, index);
            }
        }
        let turning: Vec<_> = self
            .sides
            .iter_mut()
            .filter(|(_, side)| side.turns_at.is_some_and(|at| at <= now))
            .map(|(key, side)| (*key, side))
            .map(|(key, side)| {
                side.is_paused = !side.is_paused;
                let pause =
                    self.plan.connections[side.index].pauses[usize::from(!side.is_client)].0;
                side.pauses -= u32::from(side.is_paused);
                side.turns_at = (side.is_paused || side.pauses > 0).then(|| now + pause);
                (key, !side.is_paused)
            })
            .collect();
        for ((host, id), on) in turning {
            self.world.hosts[host].set_receiving(now, id, on);
        }
        while self.plan.forgeries.first().is_some_and(|(after, _)| START + *after <= now) {
            let (_, aim) = self.plan.forgeries.remove(0);
            self.forge(now, aim);
        }
    }

    /// An attacker sends segments to both ends of each connection of the plan, open or not.
    fn forge(&mut self, now: Time, aim: Aim) {
        let hosts = [0, 1].map(|host| self.plan.address(host));
        for host in [0, 1] {
            let open: Vec<_> = self.sides.iter().map(|(key, side)| (*key, side.index)).collect();
            for index in 0..self.plan.connections.len() {
                let client = SocketAddr::new(hosts[0], client_port(index));
                let [source, destination] = match host {
                    0 => [self.plan.server(), client],
                    _ => [client, self.plan.server()],
                };
                let id = open.iter().find(|((at, _), of)| *at == host && *of == index);
                let numbers = id.and_then(|((_, id), _)| self.world.hosts[host].numbers(*id));
                let before = challenges(&self.world, host);
                for frame in attack::volley(&mut self.random, source, destination, aim, numbers) {
                    self.world.hosts[host].handle_frame(now, &frame);
                }
                let challenges = challenges(&self.world, host) - before;
                assert!(challenges <= 5, "{challenges} challenges of one connection at once");
            }
        }
    }

    fn connect(&mut self, now: Time, index: usize) {
        let local = SocketAddr::new(self.plan.address(0), client_port(index));
        let id = self.world.hosts[0].connect(now, local, self.plan.server());
        let id = id.expect("there is room for a connection");
        let plan = &self.plan.connections[index];
        let side = side(index, true, plan, now);
        self.sides.insert((0, id), side);
    }

    fn hear(&mut self, host: usize, id: ConnectionId, news: News) {
        let now = self.world.now();
        if let (1, News::Accepted(_, peer)) = (host, &news) {
            let index = usize::from(peer.port() - 40_000);
            let side = side(index, false, &self.plan.connections[index], now);
            assert!(self.sides.insert((1, id), side).is_none(), "an id is used again");
        }
        if self.given_up == Some((host, id, now)) {
            return;
        }
        let Some(side) = self.sides.get_mut(&(host, id)) else {
            panic!("{news:?} of a connection of host {host} that is gone");
        };
        match news {
            News::Accepted(..) => {}
            News::Acknowledged => return self.acknowledged.push((host, id)),
            News::Room => return,
            News::Received(bytes) => {
                for (position, byte) in (side.received..).zip(&bytes) {
                    let expected = content(side.index, !side.is_client, position);
                    assert_eq!(*byte, expected, "byte {position} of {side:?}");
                }
                side.received += u64::try_from(bytes.len()).expect("few");
                assert!(side.received <= side.expected, "more than was sent: {side:?}");
                assert!(!side.ended, "bytes behind the end");
            }
            News::Ended => {
                assert_eq!(side.received, side.expected, "cut off without a reset: {side:?}");
                assert!(!side.ended, "ended twice");
                side.ended = true;
            }
            News::Closed => return self.end(host, id, Fate::Closed),
            News::Lost(why) => return self.end(host, id, Fate::Lost(why)),
        }
        self.go_on(now, host, id);
    }

    /// Lets the application of a connection do what its plan says.
    fn go_on(&mut self, now: Time, host: usize, id: ConnectionId) {
        let side = self.sides.get_mut(&(host, id)).expect("a side");
        let plan = &self.plan.connections[side.index];
        let world = &mut self.world.hosts[host];
        match (plan.end, side.is_client) {
            (End::ClientAborts(after), true) | (End::ServerAborts(after), false)
                if side.received >= after =>
            {
                world.close(now, id);
                self.given_up = Some((host, id, now));
                return self.end(host, id, Fate::GaveUp);
            }
            _ => {}
        }
        let queued_max = QUEUED_MAX.min(plan.chunk * CHUNKS_MAX);
        while side.queued < side.total && world.queued(id) < queued_max {
            let bytes = plan.chunk.min(side.total - side.queued);
            let range = side.queued..side.queued + bytes;
            world.send(id, range.map(|at| content(side.index, side.is_client, at)).collect());
            side.queued += bytes;
        }
        let may_end = match (plan.end, side.is_client) {
            (End::ServerFirst, true) | (End::ClientFirst, false) => side.ended,
            _ => true,
        };
        if side.queued == side.total && may_end && !side.shut {
            side.shut = true;
            world.shutdown(id);
        }
    }

    fn end(&mut self, host: usize, id: ConnectionId, fate: Fate) {
        let side = self.sides.remove(&(host, id)).expect("a side");
        if fate == Fate::Closed {
            assert!(side.ended && side.shut, "closed before its end: {side:?}");
        }
        let slot = &mut self.fates[side.index][host];
        // A peer may open a connection that its stack has given up: a late SYN,ACK is reset then.
        assert!(slot.is_none() || host == 1, "two connections of one plan");
        // A late copy of an acknowledgement with a cookie opens it once more: a listener keeps nothing of cookies.
        if *slot != Some(Fate::Closed) {
            *slot = Some(fate);
        }
    }

    fn check_end(&self) {
        assert!(self.sides.is_empty(), "still open: {:?}", self.sides);
        for (plan, fates) in self.plan.connections.iter().zip(&self.fates) {
            let aborts = matches!(plan.end, End::ClientAborts(_) | End::ServerAborts(_));
            let is_right = match fates {
                [Some(Fate::Closed), Some(Fate::Closed)] => true,
                [Some(_), _] if aborts => true,
                [Some(Fate::Lost(Lost::TimedOut)), _] | [_, Some(Fate::Lost(Lost::TimedOut))] => {
                    self.plan.is_harsh()
                }
                // A host answers a FIN that is sent again with a reset once its TIME-WAIT is over (RFC 9293,
                // 3.10.7.1): it ends early if there are many or if a forged SYN opens a new connection (3.6.1), and a harsh
                // path loses a FIN until it has ended.
                [Some(Fate::Closed), Some(Fate::Lost(Lost::Reset))]
                | [Some(Fate::Lost(Lost::Reset)), Some(Fate::Closed)] => {
                    self.plan.is_harsh()
                        || self.is_forged
                        || self.plan.hosts.iter().any(|host| host.time_wait_max == 1)
                }
                // The acknowledgement with a cookie was lost, and the client, which waits for the server to speak
                // first, has nothing to send again: a listener repeats no cookie (RFC 4987, 3.6). The keepalive
                // finds out; its probe belongs to no connection and is reset (RFC 9293, 3.10.7.1).
                [Some(Fate::Lost(Lost::Reset)), None] => {
                    self.plan.hosts[1].half_open_max < 10
                        && plan.up == 0
                        && plan.end == End::ServerFirst
                }
                _ => false,
            };
            assert!(is_right, "{plan:?} has become {fates:?} in {:?}", self.plan);
        }
        for host in &self.world.hosts {
            host.check_empty();
        }
        assert_eq!(self.world.next_event(), None, "something is still to happen");
    }
}

fn client_port(index: usize) -> u16 {
    40_000 + u16::try_from(index).expect("few")
}

fn challenges(world: &World, host: usize) -> u64 {
    world.hosts[host].stack().counters().connections.challenges_sent
}

fn side(index: usize, is_client: bool, plan: &ConnectionPlan, now: Time) -> Side {
    let (total, expected) = if is_client { (plan.up, plan.down) } else { (plan.down, plan.up) };
    let (pause, pauses) = plan.pauses[usize::from(!is_client)];
    Side {
        index,
        is_client,
        total,
        queued: 0,
        expected,
        received: 0,
        shut: false,
        ended: false,
        pauses,
        turns_at: (pauses > 0).then(|| now + pause),
        is_paused: false,
    }
}

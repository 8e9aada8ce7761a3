//! Two connections and a bad network between them, on a virtual clock: each stream arrives byte-exact, each
//! connection ends, and all memory returns.

use core::time::Duration;
use std::vec;
use std::vec::Vec;

use super::harness::*;
use super::*;
use crate::sim::Random;
use crate::time::Time;
use crate::wire::Ecn;
use crate::wire::tcp::Header;

/// A segment in the network.
#[derive(Debug)]
struct Under {
    arrives: Time,
    to: usize,
    header: Header,
    payload: Vec<u8>,
    ecn: Ecn,
}

struct Pair {
    random: Random,
    ends: [End; 2],
    network: Vec<Under>,
    now: Time,
    /// The network is bad until this time.
    healed: Time,
    loss: f64,
}

/// One end, and the application on it.
struct End {
    bench: Bench,
    stream: Vec<u8>,
    /// The number of bytes of the stream that are in the queue.
    queued: usize,
    /// The unfilled promise: its position and length.
    gap: Option<(u64, usize)>,
    next_action: Time,
    is_receiving: bool,
}

impl End {
    /// Lets the application act.
    fn act(&mut self, random: &mut Random, now: Time) {
        let wait = random.within(0..=60_000_000);
        self.next_action = now + Duration::from_nanos(wait);
        if let Some((at, n)) = self.gap.take() {
            let end = usize::try_from(at).unwrap() + n;
            self.bench.queue.fill(at, self.stream[end - n..end].to_vec());
        } else if self.queued < self.stream.len() {
            let left = self.stream.len() - self.queued;
            let n = usize::try_from(random.within(1..=6000)).unwrap().min(left);
            if random.chance(0.3) {
                self.gap = Some((self.bench.queue.promise(n as u64), n));
            } else {
                self.bench.queue.push(self.stream[self.queued..self.queued + n].to_vec());
            }
            self.queued += n;
        } else {
            self.bench.connection.shutdown();
        }
        self.is_receiving = random.chance(0.8);
        self.bench.set_receiving(self.is_receiving);
        self.bench.interface.room = if random.chance(0.1) { 1 } else { usize::MAX };
        self.drain(random);
        self.bench.interface.room = usize::MAX;
    }

    fn drain(&mut self, random: &mut Random) {
        let budget = if random.chance(0.2) { random.within(1..=4000) } else { u64::MAX };
        if self.bench.drain_with(budget) != Ok(Drained::Empty) {
            // The application gets another turn soon.
            self.next_action = self.next_action.min(self.bench.now + Duration::from_millis(5));
        }
        self.bench.queue.check();
    }

    fn is_over(&self) -> bool {
        self.bench.fate != Fate::Keep
    }

    fn deadline(&self) -> Time {
        if self.is_over() {
            return Time::MAX;
        }
        let timer = self.bench.connection.deadline(&self.bench.config).unwrap_or(Time::MAX);
        timer.min(self.next_action)
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut handshakes = [handshake(), handshake()];
        let sack = random.chance(0.8);
        let ecn = random.chance(0.5);
        let timestamps = random.chance(0.5);
        let shift = u8::try_from(random.within(0..=7)).unwrap();
        for handshake in &mut handshakes {
            (handshake.sack, handshake.ecn) = (sack, ecn);
            (handshake.snd_wind_shift, handshake.rcv_wind_shift) = (shift, shift);
            handshake.timestamps =
                timestamps.then_some(Timestamps { recent: 0, offset: u32::MAX - 4000 });
            handshake.peer_mss = u16::try_from(random.within(48..=1460)).unwrap();
            handshake.snd_wnd = 1000;
        }
        if let [_, Handshake { timestamps: Some(timestamps), .. }] = &mut handshakes {
            timestamps.recent = u32::MAX - 4000;
            timestamps.offset = 0;
        }
        (handshakes[1].iss, handshakes[1].irs) = (IRS, ISS);
        let now = Time::from_nanos(1_000_000_000);
        let ends = handshakes.map(|handshake| {
            let mut config = config();
            config.receive_bytes_max = u32::try_from(random.within(1000..=70_000)).unwrap();
            let mut bench = Bench::new(&handshake, config);
            bench.now = now;
            if random.chance(0.5) {
                bench.interface.limits.cut_bytes_max = 60_000;
            }
            let len = if random.chance(0.2) { 0 } else { random.within(0..=60_000) };
            let stream = bytes(usize::try_from(len).unwrap());
            End { bench, stream, queued: 0, gap: None, next_action: now, is_receiving: true }
        });
        let loss = if random.chance(0.3) { 0.0 } else { 0.08 };
        let healed = now + Duration::from_secs(20);
        Self { random, ends, network: vec![], now, healed, loss }
    }

    fn run(&mut self) {
        let mut steps = 0;
        while !self.ends.iter().all(End::is_over) {
            steps += 1;
            assert!(steps < 200_000, "it does not end");
            let arrival = self.network.iter().map(|under| under.arrives).min().unwrap_or(Time::MAX);
            let deadlines = [self.ends[0].deadline(), self.ends[1].deadline()];
            let next = arrival.min(deadlines[0]).min(deadlines[1]);
            assert!(next < Time::MAX, "nothing will ever happen");
            self.now = self.now.max(next);
            for end in &mut self.ends {
                end.bench.now = self.now;
            }
            for (index, deadline) in deadlines.into_iter().enumerate() {
                if deadline <= self.now {
                    self.wake(index);
                }
            }
            while let Some(at) = self.network.iter().position(|under| under.arrives <= self.now) {
                let under = self.network.swap_remove(at);
                self.deliver(under);
            }
            self.check();
        }
    }

    fn wake(&mut self, index: usize) {
        let end = &mut self.ends[index];
        end.bench.clear_news();
        if end.bench.handle_timer() {
            end.drain(&mut self.random);
        }
        if end.next_action <= self.now && !end.is_over() {
            end.act(&mut self.random, self.now);
        }
        end.bench.acknowledge();
        self.collect(index);
    }

    fn deliver(&mut self, under: Under) {
        let end = &mut self.ends[under.to];
        let is_over = end.is_over();
        end.bench.clear_news();
        if is_over {
            // The TIME-WAIT table would answer so. The peer of a closed connection needs no reply.
            if end.bench.fate == Fate::TimeWait {
                end.bench.connection.acknowledge_now();
            }
        } else {
            end.bench.hear_header(under.header, &under.payload, under.ecn);
            end.drain(&mut self.random);
        }
        end.bench.acknowledge();
        self.collect(under.to);
    }

    /// Puts the sent frames of an end into the network, cut into segments.
    fn collect(&mut self, from: usize) {
        let sent = core::mem::take(&mut self.ends[from].bench.interface.sent);
        for Sent { header, payload, segment_bytes, ecn, .. } in sent {
            let cut = usize::from(segment_bytes.unwrap_or(u16::MAX)).max(1);
            let count = payload.len().div_ceil(cut).max(1);
            for n in 0..count {
                let mut header = header;
                let (begin, end) = (n * cut, payload.len().min((n + 1) * cut));
                header.seq += u32::try_from(begin).unwrap();
                header.flags.fin &= n + 1 == count;
                header.flags.psh &= n + 1 == count;
                header.flags.cwr &= n == 0;
                self.transmit(1 - from, header, &payload[begin..end], ecn);
            }
        }
    }

    fn transmit(&mut self, to: usize, header: Header, payload: &[u8], ecn: Ecn) {
        let is_bad = self.now < self.healed;
        if is_bad && self.random.chance(self.loss) {
            return;
        }
        let copies = 1 + usize::from(is_bad && self.random.chance(0.03));
        for _ in 0..copies {
            let jitter = if is_bad { self.random.within(0..=4_000_000) } else { 0 };
            let arrives = self.now + Duration::from_nanos(10_000_000 + jitter);
            let is_marked = ecn != Ecn::NotEct && self.random.chance(0.05);
            let ecn = if is_marked { Ecn::Ce } else { ecn };
            self.network.push(Under { arrives, to, header, payload: payload.to_vec(), ecn });
        }
    }

    fn check(&self) {
        for (end, other) in [(&self.ends[0], &self.ends[1]), (&self.ends[1], &self.ends[0])] {
            let received = &end.bench.received;
            assert_eq!(received[..], other.stream[..received.len()], "what arrived was sent");
            let window = end.bench.config.receive_bytes_max + (1 << 14);
            assert!(end.bench.shared.held_bytes() <= window as usize);
        }
    }
}

impl Bench {
    fn clear_news(&mut self) {
        self.news.clear();
    }

    fn hear_header(&mut self, header: Header, payload: &[u8], ecn: Ecn) {
        let window = header.window;
        let mut peer = segment(0, 0).data(payload).window(window);
        (peer.header, peer.ecn) = (header, ecn);
        self.hear(peer);
    }
}

#[test]
fn each_stream_arrives_and_each_connection_ends() {
    let seeds =
        std::env::var("NETSTACK_PAIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut pair = Pair::new(seed);
            pair.run();
            let [one, other] = &mut pair.ends;
            assert_eq!(one.bench.received, other.stream);
            assert_eq!(other.bench.received, one.stream);
            for end in [one, other] {
                assert!(matches!(end.bench.fate, Fate::TimeWait | Fate::Closed));
                end.bench.drain();
                assert_eq!(end.bench.queue.released(), end.stream.len() as u64);
                assert_eq!(end.bench.shared.held_bytes(), 0);
                assert!(end.bench.connection.sending.is_none());
            }
        });
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

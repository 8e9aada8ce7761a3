//! Many streams that share the memory and the disk of one worker, in a simulated world: each has its turn, and the
//! memory is enough for all streams that their windows allow.

use core::time::Duration;
use std::collections::VecDeque;
use std::ffi::CString;
use std::rc::Rc;

use outq::OutQ;
use ring::sim::{Config, Faults, World};
use ring::{Event, Op, OpenHow, Ring, Time};
use rustix::io::Errno;
use sendfile::{
    Disk, DiskConfig, Drained, Failure, File, HOLD_MAX, Owner, Piece, Policy, Progress, Stream,
    Takes, Transport,
};

const DISK: u64 = 1 << 40;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// The silence of a peer that has gone.
const NEVER: Duration = Duration::from_secs(1_000_000);
const MIB: u64 = 1 << 20;

/// A transport that sends only from memory, and keeps sent bytes until they are acknowledged.
struct Windowed {
    window: u64,
    /// The time after which an acknowledgement comes.
    round_trip: Duration,
    is_blocked: bool,
    /// The numbers of bytes on their way, each with the time of its acknowledgement.
    flights: VecDeque<(Time, u64)>,
}

impl Windowed {
    const fn new(window: u64, round_trip: Duration) -> Self {
        Self { window, round_trip, is_blocked: false, flights: VecDeque::new() }
    }

    /// Takes the acknowledgements that have come.
    fn acknowledge(&mut self, now: Time, queue: &mut OutQ<Piece>) {
        while let Some((at, bytes)) = self.flights.front().copied()
            && at <= now
        {
            queue.mark_released(bytes);
            self.flights.pop_front();
            self.is_blocked = false;
        }
    }
}

impl Transport for Windowed {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let Some(first) = queue.next_ready().next() else { return Drained::Empty };
            let room = self.window - (queue.sent() - queue.released());
            if room == 0 {
                self.is_blocked = true;
                return Drained::Blocked;
            }
            if *budget == 0 {
                return Drained::TurnOver;
            }
            let bytes = first.len().min(*budget).min(room);
            *budget -= bytes;
            queue.mark_sent(bytes);
            self.flights.push_back((ring.now() + self.round_trip, bytes));
        }
    }

    fn window(&self) -> u64 {
        self.window
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
        queue.released().cast_signed()
    }

    fn set_receiving(&mut self, _ring: &mut Ring, _on: bool) {}
    fn handle_receive_stopped(&mut self) {}
    fn handle_end(&mut self) {}
    fn has_ended(&self) -> bool {
        false
    }
    fn shutdown(&mut self, _ring: &mut Ring) {}
    fn close(&mut self, _ring: &mut Ring) {}
}

fn next(ring: &mut Ring) -> Event {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    completions.remove(0).result.unwrap()
}

fn open(world: &World, ring: &mut Ring, name: &str) -> Rc<File> {
    let dir = Some(ring.sim_root(world));
    let path = CString::new(name).unwrap();
    ring.submit(Op::Open { dir, path, how: OpenHow::BENEATH }, 0);
    let Event::Opened(fd) = next(ring) else { panic!("a file") };
    ring.submit(Op::Stat(fd.clone()), 0);
    let Event::Stat(stat) = next(ring) else { panic!("its size") };
    Rc::new(File::new(fd, &stat))
}

/// Streams that run side by side, each with a file of its own.
#[derive(Clone, Copy)]
struct Case {
    streams: usize,
    /// Further streams, which begin first and whose peers acknowledge nothing.
    silent: usize,
    file_bytes: u64,
    window: u64,
    is_cold: bool,
    /// False if the file system does not tell what is resident, so everything is read.
    is_told: bool,
    /// The share of reads that bring less than they were asked for.
    short_reads: f64,
}

impl Case {
    const fn new(streams: usize, file_bytes: u64, window: u64) -> Self {
        let (silent, is_cold, is_told, short_reads) = (0, false, true, 0.0);
        Self { streams, silent, file_bytes, window, is_cold, is_told, short_reads }
    }
}

/// The behaviour of the streams whose peers acknowledge.
struct Seen {
    /// From the first byte to the last.
    time: Duration,
    /// The maximum of bytes by which one stream was ahead of another.
    lead: u64,
}

/// The connections of one worker, which treats them as a server does.
struct Worker {
    ring: Ring,
    disk: Disk,
    connections: Vec<(Stream, Windowed)>,
    /// The streams that are to have another turn.
    again: VecDeque<usize>,
    has_ended: Vec<bool>,
}

fn index(owner: Owner) -> usize {
    usize::try_from(owner.connection).unwrap()
}

impl Worker {
    fn new(case: Case) -> Self {
        let faults = Faults { short_read: case.short_reads, ..Faults::default() };
        let probe_errno = (!case.is_told).then_some(Errno::OPNOTSUPP.raw_os_error());
        let world = World::new(Config { faults, probe_errno, ..Config::new(1) });
        let mut ring = Ring::simulated(&world);
        let config = DiskConfig { token_base: DISK, ..DiskConfig::default() };
        let disk = Disk::new(config).unwrap();
        let bytes = vec![7; usize::try_from(case.file_bytes).unwrap()];
        let connections: Vec<_> = (0..case.silent + case.streams)
            .map(|number| {
                let name = format!("f{number}");
                world.write_file(&name, &bytes);
                if case.is_cold {
                    world.evict(&name);
                }
                let file = open(&world, &mut ring, &name);
                let mut stream = Stream::new();
                stream.push_file(&file, 0..case.file_bytes, Policy::default());
                let round_trip = if number < case.silent { NEVER } else { ROUND_TRIP };
                (stream, Windowed::new(case.window, round_trip))
            })
            .collect();
        let again = (0..connections.len()).collect();
        let has_ended = vec![false; connections.len()];
        Self { ring, disk, connections, again, has_ended }
    }

    /// Waits for reads and acknowledgements.
    fn wait(&mut self) {
        let now = self.ring.now();
        let until = if self.again.is_empty() {
            let flights = self.connections.iter().filter_map(|(_, peer)| peer.flights.front());
            let next = flights.map(|(at, _)| *at).min().unwrap_or(now + NEVER);
            next.min(now + Duration::from_secs(1))
        } else {
            now
        };
        let mut completions = Vec::new();
        self.ring.wait(Some(until), &mut completions).unwrap();
        for completion in completions {
            if let Some(done) = self.disk.handle(&mut self.ring, completion) {
                let number = index(done.owner);
                if !self.has_ended[number] {
                    self.connections[number].0.handle_read(done);
                    self.again.push_back(number);
                }
            }
        }
        let now = self.ring.now();
        for (number, (stream, peer)) in self.connections.iter_mut().enumerate() {
            if peer.flights.front().is_some_and(|(at, _)| *at <= now) {
                peer.acknowledge(now, stream.queue());
                self.again.push_back(number);
            }
        }
    }

    /// Gives a turn to each stream that has something to do, and to the waiting ones.
    fn act(&mut self) {
        for _ in 0..self.again.len() {
            let number = self.again.pop_front().unwrap();
            self.pump(number);
        }
        loop {
            while self.disk.is_starved()
                && let Some(holder) = self.disk.next_holder(self.ring.now())
            {
                let number = index(holder);
                if self.connections[number].0.reclaim(self.ring.now()) {
                    self.connections[number].0 = Stream::new();
                    self.has_ended[number] = true;
                }
            }
            let Some(owner) = self.disk.next_waiting() else { return };
            self.pump(index(owner));
        }
    }

    fn pump(&mut self, number: usize) {
        let (stream, peer) = &mut self.connections[number];
        let owner = Owner::of(number as u64);
        match stream.pump(&mut self.ring, &mut self.disk, peer, owner) {
            Progress::Drained => self.has_ended[number] = true,
            Progress::More => self.again.push_back(number),
            Progress::Failed(failure) => panic!("{failure:?}"),
            Progress::Blocked | Progress::Waiting => {}
        }
    }
}

fn run(case: Case) -> Seen {
    let mut worker = Worker::new(case);
    let begun = worker.ring.now();
    let mut lead = 0;
    while worker.has_ended[case.silent..].contains(&false) {
        let time = worker.ring.now().since(begun);
        assert!(time < Duration::from_secs(1000), "it goes on for ever");
        worker.wait();
        worker.act();
        let sent = || worker.connections[case.silent..].iter().map(|(stream, _)| stream.sent());
        lead = lead.max(sent().max().unwrap() - sent().min().unwrap());
    }
    Seen { time: worker.ring.now().since(begun), lead }
}

#[test]
fn no_stream_waits_for_others_to_come_to_their_ends() {
    for is_cold in [false, true] {
        let window = 64 * 1024;
        let seen = run(Case { is_cold, ..Case::new(200, 8 * MIB, window) });
        assert!(seen.lead <= 2 * MIB, "cold: {is_cold}; one stream is {} bytes ahead", seen.lead);
    }
}

#[test]
fn memory_goes_as_far_as_windows_need() {
    // A thousand windows of 14 KiB fit into the memory, so each stream sends one in a round trip.
    let (window, file_bytes) = (14 * 1024, MIB);
    let least = ROUND_TRIP * u32::try_from(file_bytes / window).unwrap();
    // A copy is as long as a window. A read is longer, because it is for the time until the next one, too.
    for (is_told, most) in [(true, least * 9 / 8), (false, least * 9 / 4)] {
        let Seen { time, .. } = run(Case { is_told, ..Case::new(1000, file_bytes, window) });
        assert!(time < most, "told: {is_told}; {time:?}, where {least:?} would be enough");
    }
}

#[test]
fn peers_that_acknowledge_nothing_keep_others_waiting_for_a_limited_time() {
    let window = 14 * 1024;
    for (silent, is_cold) in [(500, true), (3000, true), (3000, false)] {
        let seen = run(Case { silent, is_cold, ..Case::new(10, MIB, window) });
        // The first reads of some 500 of them fill the memory.
        let most = HOLD_MAX * (3 + u32::try_from(silent / 500).unwrap());
        assert!(seen.time > HOLD_MAX && seen.time < most, "{silent}: {:?}", seen.time);
    }
}

/// The missing bytes of such a read are in front of bytes that were read ahead, which keep their buffers until then. A
/// part of the memory is for missing bytes alone; otherwise it takes 6.5 s.
#[test]
fn reads_that_bring_less_than_they_were_asked_for_have_memory_for_the_rest() {
    let case = Case { is_cold: true, short_reads: 0.5, ..Case::new(200, 8 * MIB, 4 * MIB) };
    let seen = run(case);
    assert!(seen.time < Duration::from_secs(6), "{:?}", seen.time);
}

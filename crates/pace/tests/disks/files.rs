//! Cold files that one worker sends at the same time, with the kernel's readahead as it grows, and small cold files at
//! the same time.
//!
//! In `load.rs` the kernel reads the whole file ahead. Here a file has one window under way. When a read comes to the
//! mark, the file also has the next window under way. So few reads ask the disk for few bytes. This matters if another
//! process uses the disk, too.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::disk::{Disk, Model, Random, SIZE};
use crate::judge::{Ended, Judge};

const FILES: usize = 200;
const FILE: u64 = 5 * 1024 * 1024;
/// The reads of one device that a worker has slots for.
const SLOTS: usize = 32;
/// A stream begins a read while fewer bytes than this are in flight for the stream.
const STREAM: u64 = 1024 * 1024;
/// The first read of a file.
const FIRST: u64 = 256 * 1024;
/// The bytes of a small file, and the mean time between two small files.
const SMALL: u64 = 16 * 1024;
const SMALL_EVERY: Duration = Duration::from_millis(5);

/// The kernel reads ahead by these rules (`get_init_ra_size` and `get_next_ra_size` in mm/readahead.c).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readahead {
    /// The bytes of the first read.
    pub(crate) first: u64,
    /// The largest window.
    pub(crate) most: u64,
}

/// The readahead of one open file.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// The next window.
    size: u64,
    /// A read that comes to this byte starts the read of the next window.
    mark: u64,
    /// The end of the last window.
    end: u64,
    /// All bytes up to this position have come.
    come: u64,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    file: usize,
    end: u64,
    bytes: u64,
    began: Duration,
}

#[derive(Debug)]
struct File {
    at: u64,
    end: u64,
    in_flight: u64,
    ahead: Option<Ahead>,
    /// The windows, from the first window that has not come on. Each window has the number of its read, its end, and
    /// whether the window has come.
    windows: VecDeque<(usize, u64, bool)>,
    /// The read of a file for which the kernel reads ahead; such a file has one read at a time.
    alone: Option<Read>,
}

/// The bytes and reads that are in flight at the disk.
#[derive(Clone, Copy, Debug)]
enum Flight {
    Read(Read),
    Window(usize),
    /// A small file, with the time at which the file was asked for.
    Small(Duration),
}

struct Worker<'a> {
    judge: &'a mut dyn Judge,
    readahead: Readahead,
    disk: Disk,
    now: Duration,
    files: Vec<File>,
    first: VecDeque<usize>,
    line: VecDeque<usize>,
    flights: BTreeMap<usize, Flight>,
    reads: usize,
    sent: u64,
    /// The times of small files.
    waits: Vec<Duration>,
}

/// The way in which the files were sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) took: Duration,
    /// Bytes per second, without small files.
    pub(crate) rate: f64,
    /// The 99th percentile of the times of small files.
    pub(crate) p99: Duration,
}

/// Sends all files from `begin` on, with a judge that may know the disk.
pub(crate) fn send(
    model: Model,
    judge: &mut dyn Judge,
    readahead: Readahead,
    seed: u64,
    begin: Duration,
) -> Sent {
    let mut random = Random::new(seed ^ 77);
    let mut file = || {
        let at = random.below(SIZE / 2) / 4096 * 4096;
        let end = at + FILE;
        File { at, end, in_flight: 0, ahead: None, windows: VecDeque::new(), alone: None }
    };
    let files = (0..FILES).map(|_| file()).collect();
    let mut worker = Worker {
        judge,
        readahead,
        disk: Disk::new(model, seed, begin),
        now: begin,
        files,
        first: (0..FILES).collect(),
        line: VecDeque::new(),
        flights: BTreeMap::new(),
        reads: 0,
        sent: 0,
        waits: Vec::new(),
    };
    let mut small = begin;
    worker.fill();
    while worker.sent < FILE * FILES as u64 {
        let (next, opens) = (worker.disk.next(), worker.judge.opens_at(worker.now));
        worker.now = next.into_iter().chain(opens).chain([small]).min().expect("the small file");
        if worker.now == small {
            worker.ask_small(random.below(SIZE / 2));
            // Small files come at random times, so that no period of the disk meets all small files or none.
            let jitter = random.below(SMALL_EVERY.as_nanos() as u64);
            small += SMALL_EVERY / 2 + Duration::from_nanos(jitter);
        } else if next == Some(worker.now)
            && let Some(number) = worker.disk.step()
        {
            match worker.flights.remove(&number).expect("it is in flight") {
                Flight::Read(read) => worker.end(read),
                Flight::Window(file) => worker.arrive(file, number),
                Flight::Small(began) => worker.end_small(began),
            }
        }
        worker.fill();
    }
    // The judge goes on to the next round without reads in flight.
    while let Some((_, flight)) = worker.flights.pop_first() {
        let Flight::Small(began) = flight else { unreachable!("all files are sent") };
        worker.end_small(began);
    }
    worker.waits.sort_unstable();
    let p99 = worker.waits[worker.waits.len() * 99 / 100];
    let took = worker.now - begin;
    Sent { took, rate: worker.sent as f64 / took.as_secs_f64(), p99 }
}

impl Worker<'_> {
    fn fill(&mut self) {
        while self.reads < SLOTS
            && let Some(file) = self.next()
        {
            self.read(file);
        }
    }

    /// The next file to read from. Only the slots limit first reads.
    fn next(&mut self) -> Option<usize> {
        if let Some(file) = self.first.pop_front() {
            return Some(file);
        }
        let has_room = self.judge.has_room(self.now) && self.judge.opens_at(self.now).is_none();
        if has_room { self.line.pop_front() } else { None }
    }

    fn read(&mut self, index: usize) {
        let file = &mut self.files[index];
        // Readahead that has begun goes on to the end of the file.
        let far = file.ahead.is_some() || self.judge.reads_far(index);
        let is_first = file.at + FILE == file.end;
        let chunk = if is_first { FIRST } else { self.judge.chunk(index) };
        let mut bytes = chunk.min(file.end - file.at);
        if far && file.ahead.is_none() {
            bytes = bytes.min(self.readahead.first);
            let Readahead { first, most } = self.readahead;
            let size = if first <= most / 32 { first * 4 } else { first * 2 };
            let at = file.at;
            file.ahead = Some(Ahead { size, mark: at, end: at, come: at });
        }
        let read = Read { file: index, end: file.at + bytes, bytes, began: self.now };
        let offset = file.at;
        file.at += bytes;
        file.in_flight += bytes;
        self.reads += 1;
        if is_first {
            self.judge.begin_small(bytes, self.now);
        } else {
            self.judge.begin(bytes, self.now);
        }
        if far {
            file.alone = Some(read);
            self.advance(index);
        } else {
            let number = self.disk.submit(offset, bytes, self.now);
            self.flights.insert(number, Flight::Read(read));
            self.stand_in_line(index);
        }
    }

    fn ask_small(&mut self, at: u64) {
        self.judge.begin_small(SMALL, self.now);
        let number = self.disk.submit(at, SMALL, self.now);
        self.flights.insert(number, Flight::Small(self.now));
    }

    fn end_small(&mut self, began: Duration) {
        let beside = u32::try_from(self.reads).unwrap();
        self.judge.end(Ended { stream: FILES, bytes: SMALL, began, beside }, self.now);
        self.waits.push(self.now - began);
    }

    /// Goes on with a read as far as pages have come. If the read meets the mark, begins the next window.
    fn advance(&mut self, index: usize) {
        let file = &mut self.files[index];
        let (Some(read), Some(ahead)) = (file.alone, &mut file.ahead) else { return };
        loop {
            let touched = ahead.come.min(read.end - 1);
            if touched < ahead.mark || ahead.end >= file.end {
                break;
            }
            let (start, end) = (ahead.end, (ahead.end + ahead.size).min(file.end));
            let number = self.disk.submit(start, end - start, self.now);
            self.flights.insert(number, Flight::Window(index));
            file.windows.push_back((number, end, false));
            let Readahead { first, most } = self.readahead;
            ahead.mark = if ahead.mark == start { start + first } else { start };
            ahead.end = end;
            let factor = if ahead.size < most / 16 { 4 } else { 2 };
            ahead.size = (ahead.size * factor).min(most);
        }
        if ahead.come >= read.end {
            file.alone = None;
            self.end(read);
        }
    }

    fn arrive(&mut self, index: usize, number: usize) {
        let file = &mut self.files[index];
        let window = file.windows.iter_mut().find(|(it, ..)| *it == number).expect("it is known");
        window.2 = true;
        while let Some((_, end, true)) = file.windows.front() {
            if let Some(ahead) = &mut file.ahead {
                ahead.come = ahead.come.max(*end);
            }
            file.windows.pop_front();
        }
        self.advance(index);
    }

    fn end(&mut self, read: Read) {
        self.reads -= 1;
        let beside = u32::try_from(self.reads).unwrap();
        let Read { file, bytes, began, .. } = read;
        self.judge.end(Ended { stream: file, bytes, began, beside }, self.now);
        self.files[file].in_flight -= bytes;
        self.sent += bytes;
        self.stand_in_line(file);
    }

    fn stand_in_line(&mut self, index: usize) {
        let file = &self.files[index];
        let has_room = file.alone.is_none() && file.in_flight < STREAM && file.at < file.end;
        if has_room && !self.line.contains(&index) {
            self.line.push_back(index);
        }
    }
}

//! Streams that read a simulated disk as a judge says.

use core::time::Duration;
use std::collections::VecDeque;

use crate::disk::{Disk, Model, Random, SIZE};
use crate::judge::{Ended, Judge};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) streams: usize,
    /// The number of workers; each worker has a judge of its own. Streams are dealt to the workers
    /// in turn.
    pub(crate) workers: usize,
    /// Bytes of each file.
    pub(crate) file: u64,
    /// The time between two cold reads of 16 KiB that run in addition to the streams.
    pub(crate) small_every: Option<Duration>,
    /// The end of the run, if the files have not been read earlier.
    pub(crate) time: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes per second of the streams.
    pub(crate) rate: f64,
    /// The 99th percentile of the times of small reads.
    pub(crate) p99: Duration,
    /// The 90th percentile of the times of small reads.
    pub(crate) p90: Duration,
    /// The maximum number of reads that began while one stream waited for its next read, divided
    /// by the number of streams.
    pub(crate) turns: f64,
}

/// A stream's window: the bytes in flight and one more read must fit into this window.
const STREAM: u64 = 2 * 1024 * 1024;

/// The maximum concurrent reads of one worker.
const PLACES: u64 = 32;

#[derive(Clone, Copy)]
struct Stream {
    at: u64,
    end: u64,
    in_flight: u64,
    /// `Some` while the stream is queued: the number of reads that began before the stream was
    /// queued.
    in_line: Option<u64>,
}

#[derive(Clone, Copy)]
struct Read {
    /// `None` for a small read.
    stream: Option<usize>,
    worker: usize,
    bytes: u64,
    began: Duration,
    /// True if the kernel's readahead made this read; no depth bounds such reads.
    is_ahead: bool,
}

#[derive(Default)]
struct Worker {
    first: VecDeque<usize>,
    line: VecDeque<usize>,
    in_flight: u64,
}

struct Run<'a> {
    model: Model,
    load: Load,
    judges: &'a mut [Box<dyn Judge>],
    disk: Disk,
    now: Duration,
    streams: Vec<Stream>,
    workers: Vec<Worker>,
    reads: Vec<Read>,
    began: u64,
    turns: f64,
}

pub(crate) fn run(model: Model, load: Load, judges: &mut [Box<dyn Judge>], seed: u64) -> Outcome {
    let mut random = Random::new(seed ^ 77);
    let mut streams = Vec::new();
    let mut workers: Vec<_> = (0..load.workers).map(|_| Worker::default()).collect();
    for index in 0..load.streams {
        let at = random.below(SIZE / 2) / 4096 * 4096;
        streams.push(Stream { at, end: at + load.file, in_flight: 0, in_line: Some(0) });
        workers[index % load.workers].first.push_back(index);
    }
    let disk = Disk::new(model, seed, Duration::ZERO);
    let now = Duration::ZERO;
    let mut run = Run {
        model,
        load,
        judges,
        disk,
        now,
        streams,
        workers,
        reads: vec![],
        began: 0,
        turns: 0.0,
    };
    let mut small = load.small_every.map(|_| Duration::from_millis(1));
    let (mut brought, mut open) = (0, load.streams);
    let mut waits = Vec::new();
    loop {
        // The workers take turns at being the first.
        (0..load.workers).for_each(|turn| run.fill((turn + run.reads.len()) % load.workers));
        let next = run.disk.next();
        let opens = run.judges[0].opens_at(run.now);
        let at = next.into_iter().chain(small).chain(opens).min();
        let Some(at) = at.filter(|at| *at < load.time && open > 0) else { break };
        run.now = at;
        if small == Some(at) && next.is_none_or(|next| at <= next) {
            let worker = random.below(load.workers as u64) as usize;
            run.begin(None, worker, random.below(SIZE / 16_384) * 16_384, 16_384, false);
            // Small reads come at random times, so that no period of the disk meets all small
            // reads or none.
            let mut jitter = |every: Duration| random.below(every.as_nanos() as u64);
            small =
                load.small_every.map(|every| at + every / 2 + Duration::from_nanos(jitter(every)));
            continue;
        }
        if next.is_none_or(|next| at < next) {
            continue;
        }
        let Some(read) = run.disk.step() else { continue };
        let read = run.reads[read];
        run.end(read);
        match read.stream {
            None => waits.push(run.now - read.began),
            Some(index) => {
                brought += read.bytes;
                let stream = &run.streams[index];
                open -= usize::from(stream.at == stream.end && stream.in_flight == 0);
            }
        }
    }
    waits.sort_unstable();
    let within = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();
    let rate = brought as f64 / run.now.as_secs_f64();
    Outcome { rate, p99: within(99), p90: within(90), turns: run.turns }
}

impl Run<'_> {
    /// Begins as many reads of a worker's streams as its judge allows.
    fn fill(&mut self, worker: usize) {
        while let Some(index) = self.next_in_line(worker) {
            let since = self.streams[index].in_line.take().unwrap();
            self.turns = self.turns.max((self.began - since) as f64 / self.load.streams as f64);
            self.began += 1;
            self.workers[worker].in_flight += 1;
            self.read(index, false);
            while self.judges[worker].reads_far(index)
                && self.streams[index].in_flight < self.model.readahead
                && self.streams[index].at < self.streams[index].end
            {
                self.read(index, true);
            }
            self.stand_in_line(index);
        }
    }

    /// The next stream that may read. Only the slots limit first reads of files.
    fn next_in_line(&mut self, worker: usize) -> Option<usize> {
        let Worker { first, line, in_flight } = &mut self.workers[worker];
        if *in_flight < PLACES && !first.is_empty() {
            return first.pop_front();
        }
        let judge = &self.judges[worker];
        let is_open = *in_flight < judge.depth() && judge.opens_at(self.now).is_none();
        if is_open { line.pop_front() } else { None }
    }

    fn read(&mut self, index: usize, is_ahead: bool) {
        let worker = index % self.load.workers;
        let stream = &mut self.streams[index];
        let bytes = self.judges[worker].chunk(index).min(stream.end - stream.at);
        let at = stream.at;
        stream.at += bytes;
        stream.in_flight += bytes;
        self.begin(Some(index), worker, at, bytes, is_ahead);
    }

    fn begin(&mut self, stream: Option<usize>, worker: usize, at: u64, bytes: u64, is_ahead: bool) {
        self.reads.push(Read { stream, worker, bytes, began: self.now, is_ahead });
        self.disk.submit(at, bytes, self.now);
        if !is_ahead {
            let judge = &mut self.judges[worker];
            match stream {
                Some(_) => judge.begin(bytes, self.now),
                None => judge.begin_small(bytes, self.now),
            }
        }
    }

    fn end(&mut self, Read { stream, worker, bytes, began, is_ahead }: Read) {
        let name = stream.unwrap_or(self.load.streams);
        if !is_ahead {
            let beside = u32::try_from(self.workers[worker].in_flight.saturating_sub(1)).unwrap();
            self.judges[worker].end(Ended { stream: name, bytes, began, beside }, self.now);
        }
        let Some(index) = stream else { return };
        self.workers[worker].in_flight -= u64::from(!is_ahead);
        self.streams[index].in_flight -= bytes;
        self.stand_in_line(index);
    }

    fn stand_in_line(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        let far = self.judges[index % self.load.workers].reads_far(index);
        let chunk = self.judges[index % self.load.workers].chunk(index);
        let most = if far { self.model.readahead } else { STREAM - chunk + 1 };
        if stream.at < stream.end && stream.in_line.is_none() && stream.in_flight < most {
            stream.in_line = Some(self.began);
            self.workers[index % self.load.workers].line.push_back(index);
        }
    }
}

//! Entity tags: strong, so that two files of one tag have the same bytes.
//!
//! Of what `stat(2)` says: size, times of modification and of change, and inode. Modification time and
//! size alone can be set, and are the same in many files (Nix, container layers, `rsync -t`); no
//! program can set the time of change, and a file that takes another's place has another inode. The
//! device is left out: it has another number after a reboot. So the tag stays the same when the server
//! or the machine restarts, and resumed downloads go on; another machine's copy has another, and so has
//! a file whose mode or names were changed. Before Linux 6.13 two writes within one tick of the kernel's
//! clock (1 to 10 ms) have one time of change, and writes through a shared mapping set it only when a
//! page becomes dirty.
//!
//! Of the contents: the same wherever the bytes are the same, so for fleets. It is computed on a thread
//! beside the worker, one file after the other, at a limited rate; until it is known there is no tag.
//! What is known is kept by inode and time of change.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use http::Coding;
use ring::{DriverKind, Stat, Waker};
use rustix::fs::Advice;

use super::resource::{Data, Kind};
use super::{Content, Path};
use crate::config::Tags;
use crate::shell::{Shell, kind};

/// Files beyond this have no tag of their contents: they would keep others waiting for minutes.
const BYTES_MAX: u64 = 4 << 30;
/// Bytes that a worker's thread reads and hashes in a second: a fifth of what one core hashes, and
/// less than disks that are not rotating bring.
const RATE: u64 = 128 << 20;
/// Bytes read at once.
const PIECE: usize = 256 * 1024;
/// Hashes that are known, per worker: 6 MiB. The oldest goes.
const KNOWN_MAX: usize = 64 * 1024;
/// Resources whose hashes are to be computed; of others it is begun when they are asked for again.
const QUEUE_MAX: usize = 16 * 1024;

/// Bytes of a hash that are in a tag.
const HASH_LEN: usize = 16;
type Hash = [u8; HASH_LEN];

/// One state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

impl From<&Stat> for State {
    fn from(stat: &Stat) -> Self {
        Self {
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            mtime: (stat.mtime, stat.mtime_nanos),
            ctime: (stat.ctime, stat.ctime_nanos),
        }
    }
}

/// The tag of what `stat(2)` says. Hashed, so that nobody learns inode numbers from it.
pub(super) fn of_stat(stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    for number in [stat.size, stat.ino] {
        hasher.update(&number.to_le_bytes());
    }
    for (seconds, nanos) in [(stat.mtime, stat.mtime_nanos), (stat.ctime, stat.ctime_nanos)] {
        hasher.update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
    }
    tag(&cut(&hasher.finalize()), coding)
}

/// With the coding, whose file could be the same.
fn tag(hash: &Hash, coding: Option<Coding>) -> Vec<u8> {
    let hash = u128::from_be_bytes(*hash);
    let coding = coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
    format!("\"{hash:032x}{coding}\"").into_bytes()
}

fn cut(hash: &blake3::Hash) -> Hash {
    *hash.as_bytes().first_chunk().expect("32 bytes")
}

/// The hashes of contents that are known, and how others become so.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    known: HashMap<State, Hash>,
    /// Those in `known`, the oldest first.
    order: VecDeque<State>,
    /// Resources without tags.
    queue: VecDeque<Path>,
    /// Some from the first on.
    thread: Option<Thread>,
}

/// The thread, which has at most one job.
#[derive(Debug)]
struct Thread {
    jobs: Sender<Job>,
    results: Receiver<(State, io::Result<Hash>)>,
    is_busy: bool,
}

#[derive(Debug)]
struct Job {
    state: State,
    source: Source,
    /// Whether the page cache keeps what was read.
    keep: bool,
}

#[derive(Debug)]
enum Source {
    Bytes(Vec<u8>),
    File(File),
}

impl Hashes {
    fn learn(&mut self, state: State, hash: Hash) {
        if self.order.len() >= KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        if self.known.insert(state, hash).is_none() {
            self.order.push_back(state);
        }
    }
}

impl Content {
    /// The tag of a file, empty if it is not known (yet).
    pub(super) fn tag(&self, stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
        match self.policy.tags {
            Tags::Stat => of_stat(stat, coding),
            Tags::Hash => {
                let hash = self.hashes.known.get(&State::from(stat));
                hash.map_or(Vec::new(), |hash| tag(hash, coding))
            }
        }
    }

    /// A resource is in the cache: see to it that its tags become known.
    pub(super) fn want_tags(&mut self, shell: &mut Shell, key: &Path) {
        if self.policy.tags == Tags::Hash && self.hashes.queue.len() < QUEUE_MAX {
            self.hashes.queue.push_back(key.clone());
            self.hash_next(shell);
        }
    }

    /// Give the thread its next job.
    fn hash_next(&mut self, shell: &mut Shell) {
        // In the simulation nothing happens beside the worker.
        if shell.ring.kind() == DriverKind::Sim {
            return;
        }
        if self.hashes.thread.is_none() && !self.hashes.queue.is_empty() {
            match shell.ring.waker(kind::WAKE).and_then(Thread::spawn) {
                Ok(thread) => self.hashes.thread = Some(thread),
                Err(error) => {
                    self.hashes.queue.clear();
                    shell
                        .note(&format!("cannot start a thread that computes entity tags: {error}"));
                }
            }
        }
        while self.hashes.thread.as_ref().is_some_and(|thread| !thread.is_busy) {
            let Some(key) = self.hashes.queue.pop_front() else { return };
            let Some(job) = self.job(&key) else { continue };
            // It may want several.
            self.hashes.queue.push_front(key);
            let thread = self.hashes.thread.as_mut().expect("just looked at");
            thread.is_busy = thread.jobs.send(job).is_ok();
            if !thread.is_busy {
                self.hashes.queue.clear();
            }
        }
    }

    /// The job for the first tag that a resource lacks, if it is still in the cache.
    fn job(&self, key: &Path) -> Option<Job> {
        let Kind::File(files) = &self.cache.get(key)?.kind else { return None };
        let is_wanted = |stat: &Stat| {
            stat.size <= BYTES_MAX && !self.hashes.known.contains_key(&State::from(stat))
        };
        let variant = files.variants().find(|one| one.etag.is_empty() && is_wanted(&one.stat))?;
        let source = match &variant.data {
            Data::Memory => Source::Bytes(variant.finished.body()),
            // Without a descriptor there is no tag until it is asked for again.
            Data::File(file) => Source::File(file.fd().os().try_clone_to_owned().ok()?.into()),
        };
        Some(Job { state: State::from(&variant.stat), source, keep: self.policy.keep })
    }

    /// The thread may have finished a job.
    pub(crate) fn handle_wake(&mut self, shell: &mut Shell) {
        let Some(thread) = &mut self.hashes.thread else { return };
        let Ok((state, result)) = thread.results.try_recv() else { return };
        thread.is_busy = false;
        match result {
            Ok(hash) => self.hashes.learn(state, hash),
            // It changed, or cannot be read: it is tried again when it is found anew.
            Err(_) => drop(self.hashes.queue.pop_front()),
        }
        // Those whose tags are all known now are found anew, with them.
        while let Some(key) = self.hashes.queue.front().cloned() {
            if self.job(&key).is_some() {
                break;
            }
            self.hashes.queue.pop_front();
            if self.has_new_tag(&key) {
                self.forget(&key);
            }
        }
        self.hash_next(shell);
    }

    fn has_new_tag(&self, key: &Path) -> bool {
        let Some(Kind::File(files)) = self.cache.get(key).map(|resource| &resource.kind) else {
            return false;
        };
        let known = |stat: &Stat| self.hashes.known.contains_key(&State::from(stat));
        files.variants().any(|variant| variant.etag.is_empty() && known(&variant.stat))
    }
}

impl Thread {
    fn spawn(waker: Waker) -> io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (done, results) = channel();
        let work = move || {
            // Ends with the worker, which has the other ends.
            while let Ok(job) = todo.recv() {
                let state = job.state;
                if done.send((state, job.run())).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        thread::Builder::new().name("tags".to_owned()).spawn(work)?;
        Ok(Self { jobs, results, is_busy: false })
    }
}

impl Job {
    fn run(self) -> io::Result<Hash> {
        let file = match self.source {
            Source::Bytes(bytes) => return Ok(cut(&blake3::hash(&bytes))),
            // Once more, because the kernel's readahead follows one reader of an open file, and
            // responses are others.
            Source::File(file) => {
                File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or(file)
            }
        };
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE];
        let (mut at, began) = (0, Instant::now());
        loop {
            let count = file.read_at(&mut piece, at)?;
            if count == 0 {
                break;
            }
            hasher.update(&piece[..count]);
            at += count as u64;
            if at > self.state.size {
                break;
            }
            let due = Duration::from_nanos(at * 1000 / (RATE / 1_000_000));
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        if !self.keep {
            // Only advice.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        }
        let data = file.metadata()?;
        let ctime = (data.ctime(), u32::try_from(data.ctime_nsec()).unwrap_or(u32::MAX));
        let mtime = (data.mtime(), u32::try_from(data.mtime_nsec()).unwrap_or(u32::MAX));
        if (at, mtime, ctime) != (self.state.size, self.state.mtime, self.state.ctime) {
            return Err(io::Error::other("it has changed meanwhile"));
        }
        Ok(cut(&hasher.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::FileKind;

    #[test]
    fn a_tag_changes_with_all_that_it_is_made_of_and_with_nothing_else() {
        let stat = Stat {
            kind: FileKind::Regular,
            size: 7,
            mtime: 1,
            mtime_nanos: 2,
            ctime: 3,
            ctime_nanos: 4,
            dev: 5,
            ino: 6,
            links: 1,
            direct_align: 0,
        };
        let same = of_stat(&stat, None);
        assert!(http::EntityTag::parse(&same).is_some_and(|tag| !tag.weak));
        let others = [
            Stat { size: 8, ..stat },
            Stat { mtime: 2, ..stat },
            Stat { mtime_nanos: 3, ..stat },
            Stat { ctime: 4, ..stat },
            Stat { ctime_nanos: 5, ..stat },
            Stat { ino: 7, ..stat },
        ];
        for other in others {
            assert_ne!(of_stat(&other, None), same, "{other:?}");
        }
        assert_ne!(of_stat(&stat, Some(Coding::Gzip)), same);
        for other in [Stat { dev: 6, ..stat }, Stat { links: 2, ..stat }] {
            assert_eq!(of_stat(&other, None), same, "{other:?}");
        }
    }

    #[test]
    fn a_tag_of_contents_is_the_same_in_every_version_of_the_program() {
        // BLAKE3 of "abc", of its authors' test vectors.
        let hash = cut(&blake3::hash(b"abc"));
        assert_eq!(tag(&hash, None), b"\"6437b3ac38465133ffb63b75273a8db5\"");
        assert_eq!(tag(&hash, Some(Coding::Br)), b"\"6437b3ac38465133ffb63b75273a8db5-br\"");
    }
}

//! The computation of missing hashes: queues of resources without tags, and the threads that hash their files.

use core::time::Duration;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::time::Instant;

use http::Coding;
use ring::{Beside, Caching, Detached, Device, Job, Ring, Stat};

use super::library::Library;
use super::path::Path;
use super::queues::Queues;
use super::resource::Kind;
use super::tag::{Hash, KnownHashes, State, can_be_known, cut, lacks_tag};
use super::tree::Tree;
use crate::tree::TreeId;
use config::Tags;
use session::files::Data;
use session::kind;
use session::shell::Shell;

/// Bytes that a worker's thread reads and hashes in a second: a fifth of what one core hashes, and less than
/// solid-state disks deliver.
const RATE: u64 = 128 << 20;
/// Bytes read at once.
const PIECE: usize = 256 * 1024;
/// Resources whose hashes are to be computed, and resources of one device among them. At the limit a resource is queued
/// when it is looked at again.
const QUEUE_MAX: usize = 16 * 1024;
const QUEUE_OF_DEVICE_MAX: usize = QUEUE_MAX / 2;
/// Threads of a worker. If this many devices do not answer, no further tags are computed.
const THREADS_MAX: usize = 4;

/// The computation of missing hashes: queues of resources, and the threads that work on them.
#[derive(Debug)]
pub(super) struct Hashes {
    known: KnownHashes,
    /// Resources without tags.
    queues: Queues<(TreeId, Path)>,
    /// The resources in all queues, each with its device.
    queued: BTreeSet<(Device, TreeId, Path)>,
    threads: Vec<Thread>,
}

/// A thread, which has at most one job: the first resource in the queue of a device.
#[derive(Debug)]
struct Thread {
    beside: Beside<Hashing>,
    busy: Option<Device>,
}

/// The job to compute the hash of one file.
#[derive(Debug)]
struct Hashing {
    state: State,
    source: Source,
    caching: Caching,
}

#[derive(Debug)]
enum Source {
    Bytes(Vec<u8>),
    File(Detached),
}

/// Begins without hashes and without jobs.
impl Default for Hashes {
    fn default() -> Self {
        Self {
            known: KnownHashes::default(),
            queues: Queues::new(QUEUE_MAX, QUEUE_OF_DEVICE_MAX),
            queued: BTreeSet::new(),
            threads: Vec::new(),
        }
    }
}

impl Hashes {
    /// The tag of a file, empty if the file has none, or if its hash is not known (yet).
    pub(super) fn tag(&self, tags: Tags, stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
        self.known.tag(tags, stat, coding)
    }

    /// Asks the threads to compute the missing tags of a resource. Its tree has tags of contents, and the resource was cached or found
    /// unchanged. An unchanged resource lacks tags if the queue was full, or if a file could not be read.
    pub(super) fn want(
        &mut self,
        shell: &mut Shell,
        trees: &[Tree],
        library: &mut Library,
        (tree, path): (TreeId, Path),
    ) {
        let Some(resource) = library.get(tree, &path) else { return };
        let Kind::File(files) = &resource.kind else { return };
        if !files.variants().any(|variant| lacks_tag(variant) && can_be_known(&variant.stat)) {
            return;
        }
        let device = files.plain.stat.device;
        let queued = (device, tree, Path::clone(&path));
        if self.queued.contains(&queued) {
            return;
        }
        if self.has_new_tag(library, tree, &path) {
            // The tag was computed for another name of the file.
            return library.evict(tree, &path);
        }
        if self.queues.push(device, (tree, path)) {
            self.queued.insert(queued);
            self.hash_some(shell, trees, library);
        }
    }

    /// Gives the threads their next jobs, each of another device.
    fn hash_some(&mut self, shell: &mut Shell, trees: &[Tree], library: &Library) {
        while let Some(device) = self.next_device()
            && let Some(index) = self.idle_thread(shell)
        {
            self.queues.begin_turn(device);
            let is_silent = shell.ring.silence(device) >= shell.cx.tuning.timeout_disk;
            let job = if is_silent { None } else { self.first_job(shell, trees, library, device) };
            let Some(job) = job else {
                // Resources of a device that does not answer are queued again when they are looked at.
                self.drop_queue(device);
                continue;
            };
            let thread = &mut self.threads[index];
            if thread.beside.submit(job) {
                thread.busy = Some(device);
            } else {
                self.threads.remove(index);
                self.drop_queue(device);
            }
        }
    }

    /// The next device in turn that has waiting resources and no job.
    fn next_device(&self) -> Option<Device> {
        let is_free = |device| self.threads.iter().all(|thread| thread.busy != Some(device));
        self.queues.next_device(is_free)
    }

    /// A thread without a job; it is started if there are few.
    fn idle_thread(&mut self, shell: &mut Shell) -> Option<usize> {
        let idle = self.threads.iter().position(|thread| thread.busy.is_none());
        if idle.is_some() || self.threads.len() == THREADS_MAX {
            return idle;
        }
        match shell.ring.beside("tags", kind::WAKE) {
            Ok(beside) => self.threads.push(Thread { beside, busy: None }),
            Err(error) => {
                if self.threads.is_empty() {
                    self.queues.clear();
                    self.queued.clear();
                }
                shell.note(&format!("cannot start a thread that computes entity tags: {error}"));
                return None;
            }
        }
        Some(self.threads.len() - 1)
    }

    /// The job for the first resource in a queue that lacks a tag and is still cached. The resource stays first,
    /// because it may lack several tags. Resources before it leave the queue.
    fn first_job(
        &mut self,
        shell: &Shell,
        trees: &[Tree],
        library: &Library,
        device: Device,
    ) -> Option<Hashing> {
        loop {
            let (tree, path) = self.queues.first(device)?.clone();
            let job = self.job(&shell.ring, trees, library, tree, &path);
            if job.is_some() {
                return job;
            }
            self.drop_first(device);
        }
    }

    fn drop_first(&mut self, device: Device) -> Option<(TreeId, Path)> {
        let (tree, path) = self.queues.pop(device)?;
        self.queued.remove(&(device, tree, Path::clone(&path)));
        Some((tree, path))
    }

    fn drop_queue(&mut self, device: Device) {
        for (tree, path) in self.queues.take_all(device) {
            self.queued.remove(&(device, tree, path));
        }
    }

    /// The job for the first tag that a resource lacks, if it is still cached.
    fn job(
        &self,
        ring: &Ring,
        trees: &[Tree],
        library: &Library,
        tree: TreeId,
        path: &[u8],
    ) -> Option<Hashing> {
        let Kind::File(files) = &library.get(tree, path)?.kind else { return None };
        let is_wanted = |stat: &Stat| can_be_known(stat) && !self.known.has(stat);
        let variant = files.variants().find(|one| lacks_tag(one) && is_wanted(&one.stat))?;
        let source = match &variant.data {
            Data::Memory => Source::Bytes(variant.finished.body()),
            // Without a descriptor the file gets no tag until it is looked at again.
            Data::File(file) => Source::File(ring.detach(file.fd()).ok()?),
        };
        let keeps = trees[tree.index()].keeps();
        let caching = if keeps { Caching::Keep } else { Caching::Drop };
        Some(Hashing { state: State::from(&variant.stat), source, caching })
    }

    /// Takes finished jobs of the threads. Resources whose tags are all known now are evicted, so that they are found
    /// anew with their tags.
    pub(super) fn handle_wake(&mut self, shell: &mut Shell, trees: &[Tree], library: &mut Library) {
        for index in 0..self.threads.len() {
            let thread = &mut self.threads[index];
            let Some((state, result)) = thread.beside.take() else { continue };
            let device = thread.busy.take().expect("it had a job");
            match result {
                Ok(hash) => self.known.learn(state, hash),
                // The file changed, or cannot be read. It is tried again when it is looked at.
                Err(_) => drop(self.drop_first(device)),
            }
            self.evict_tagged(shell, trees, library, device);
        }
        self.hash_some(shell, trees, library);
    }

    /// Evicts resources at the front of a queue that lack no tag any more.
    fn evict_tagged(
        &mut self,
        shell: &Shell,
        trees: &[Tree],
        library: &mut Library,
        device: Device,
    ) {
        while let Some((tree, path)) = self.queues.first(device).cloned() {
            if self.job(&shell.ring, trees, library, tree, &path).is_some() {
                return;
            }
            self.drop_first(device);
            if self.has_new_tag(library, tree, &path) {
                library.evict(tree, &path);
            }
        }
    }

    fn has_new_tag(&self, library: &Library, tree: TreeId, path: &[u8]) -> bool {
        let Some(Kind::File(files)) = library.get(tree, path).map(|resource| &resource.kind) else {
            return false;
        };
        files.variants().any(|variant| lacks_tag(variant) && self.known.has(&variant.stat))
    }
}

impl Job for Hashing {
    type Output = (State, io::Result<Hash>);

    fn run(self, sleep: &dyn Fn(Duration)) -> Self::Output {
        let Self { state, source, caching } = self;
        let hash = match source {
            Source::Bytes(bytes) => Ok(cut(&blake3::hash(&bytes))),
            // The file is opened again, because responses read the open file, too.
            Source::File(file) => hash_file(&file.reopened(), &state, caching, sleep),
        };
        (state, hash)
    }
}

fn hash_file(
    file: &Detached,
    state: &State,
    mut caching: Caching,
    sleep: &dyn Fn(Duration),
) -> io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let (mut at, began) = (0, Instant::now());
    let mut is_to_be_discarded = false;
    loop {
        let count = match file.read_at(&mut piece, at, caching) {
            Err(error) if caching == Caching::Drop && error.kind() == ErrorKind::Unsupported => {
                // Pages that others have read cannot be told from pages that are read now.
                is_to_be_discarded = !file.is_cached();
                caching = Caching::Keep;
                continue;
            }
            count => count?,
        };
        if count == 0 {
            break;
        }
        hasher.update(&piece[..count]);
        at += count as u64;
        if at > state.size {
            break;
        }
        let due = Duration::from_nanos(at * 1000 / (RATE / 1_000_000));
        sleep(due.saturating_sub(began.elapsed()));
    }
    if is_to_be_discarded {
        file.discard();
    }
    if at != state.size || State::from(&file.stat()?) != *state {
        return Err(io::Error::other("it has changed meanwhile"));
    }
    Ok(cut(&hasher.finalize()))
}

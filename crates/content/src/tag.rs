//! Entity tags: strong, so two files with the same tag have the same bytes.
//!
//! A tag of [`Tags::Stat`] is made of the size, the times of modification and of change, and the inode. The time of
//! modification and the size alone do not suffice. Programs can set them, and many files have the same (Nix, container
//! layers, `rsync -t`). No program can set the time of change, and a file that replaces another has another inode. The
//! device is left out, because its number differs after a reboot. So the tag stays the same when the server or the
//! machine restarts, and resumed downloads go on. A copy on another machine has another tag, and so has a file whose
//! mode or names were changed. Before Linux 6.13 two writes within one tick of the kernel's clock (1 to 10 ms) have one
//! time of change. Writes through a shared mapping set the time only when a page becomes dirty.
//!
//! This does not hold for a file system that is written as a whole. Inode and both times are those of the image, and
//! two releases may have the same (`mksquashfs -all-time`). Such files have no tag of [`Tags::Stat`], also below an
//! overlay ([`Stat::from_image`]), and their dates validate no ranges.
//!
//! Some file systems have no time of change (FUSE, where both times are 0 or 1). Then only the inodes tell two files of
//! equal size apart, and inodes may be used again. Such files have no tag.
//!
//! A tag of [`Tags::Hash`] is made of the contents: it is the same on all machines of a fleet. It is computed on a
//! thread beside the worker, one file of a device after the other, at a limited rate; until then the file has no tag. A
//! read that never ends delays only the files of its device. Computed hashes are kept by mount, inode and time of
//! change. The mount counts because another image at the same path may be the same in everything else. Where the ids of
//! mounts are used again, files of images have no tag.

use core::time::Duration;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::Instant;

use http::Coding;
use ring::{Beside, Caching, Detached, Device, Job, Ring, Stat};

use super::library::Library;
use super::path::Path;
use super::queues::Queues;
use super::resource::Kind;
use super::tree::Tree;
use crate::tree::TreeId;
use config::Tags;
use session::files::{Data, TIME_OF_NOTHING, Variant};
use session::shell::{Shell, kind};

/// The largest file with a tag of its contents: for a larger one other files would wait for minutes.
const BYTES_MAX: u64 = 4 << 30;
/// Bytes that a worker's thread reads and hashes in a second: a fifth of what one core hashes, and less than
/// solid-state disks deliver.
const RATE: u64 = 128 << 20;
/// Bytes read at once.
const PIECE: usize = 256 * 1024;
/// Hashes kept, per worker: 6 MiB. At the limit the oldest is evicted.
const KNOWN_MAX: usize = 64 * 1024;
/// Resources whose hashes are to be computed, and resources of one device among them. At the limit a resource is queued
/// when it is looked at again.
const QUEUE_MAX: usize = 16 * 1024;
const QUEUE_OF_DEVICE_MAX: usize = QUEUE_MAX / 2;
/// Threads of a worker. If this many devices do not answer, no further tags are computed.
const THREADS_MAX: usize = 4;

/// Length of the part of a hash that is in a tag.
const HASH_LEN: usize = 16;
type Hash = [u8; HASH_LEN];

/// One state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    mount: u64,
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

impl From<&Stat> for State {
    fn from(stat: &Stat) -> Self {
        Self {
            mount: stat.mount,
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            mtime: (stat.mtime, stat.mtime_nanos),
            ctime: (stat.ctime, stat.ctime_nanos),
        }
    }
}

/// Returns true if a file may have a tag of its contents: the file is not too large, and its hash will not be taken for
/// another file's later.
const fn can_be_known(stat: &Stat) -> bool {
    let tells_states = if stat.from_image { stat.has_unique_mount() } else { has_change(stat) };
    stat.size <= BYTES_MAX && tells_states
}

/// Returns true if the file system has times of change.
const fn has_change(stat: &Stat) -> bool {
    stat.ctime > TIME_OF_NOTHING || stat.mtime > TIME_OF_NOTHING
}

/// The tag of a state. The state is hashed, so the tag does not disclose inode numbers.
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

/// The tag of a hash. It names the coding, because the files of two codings can have the same bytes.
fn tag(hash: &Hash, coding: Option<Coding>) -> Vec<u8> {
    let hash = u128::from_be_bytes(*hash);
    let coding = coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
    format!("\"{hash:032x}{coding}\"").into_bytes()
}

fn cut(hash: &blake3::Hash) -> Hash {
    *hash.as_bytes().first_chunk().expect("32 bytes")
}

/// The hashes of contents, and the threads that compute them.
#[derive(Debug)]
pub(super) struct Hashes {
    known: HashMap<State, Hash>,
    /// The states in `known`, the oldest first.
    order: VecDeque<State>,
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
            known: HashMap::new(),
            order: VecDeque::new(),
            queues: Queues::new(QUEUE_MAX, QUEUE_OF_DEVICE_MAX),
            queued: BTreeSet::new(),
            threads: Vec::new(),
        }
    }
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

impl Hashes {
    /// The tag of a file, empty if it is not known (yet).
    pub(super) fn tag(&self, tags: Tags, stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
        match tags {
            Tags::Stat if stat.from_image || !has_change(stat) => Vec::new(),
            Tags::Stat => of_stat(stat, coding),
            Tags::Hash => {
                let hash = self.known.get(&State::from(stat));
                hash.map_or(Vec::new(), |hash| tag(hash, coding))
            }
        }
    }

    /// Has the missing tags of a resource computed. Its tree has tags of contents, and the resource was cached or found
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
        let is_wanted =
            |stat: &Stat| can_be_known(stat) && !self.known.contains_key(&State::from(stat));
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
                Ok(hash) => self.learn(state, hash),
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
        let is_known = |stat: &Stat| self.known.contains_key(&State::from(stat));
        files.variants().any(|variant| lacks_tag(variant) && is_known(&variant.stat))
    }
}

/// Returns true if the tag of a file is missing. A copy has the tag that its maker has given it.
const fn lacks_tag(variant: &Variant) -> bool {
    variant.etag.is_empty() && !variant.is_copy
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

#[cfg(test)]
mod tests {
    use super::*;
    use ring::{Device, FileKind};

    const STAT: Stat = Stat {
        kind: FileKind::Regular,
        size: 7,
        mtime: 1,
        mtime_nanos: 2,
        ctime: 3,
        ctime_nanos: 4,
        dev: 5,
        device: Device::of(5),
        ino: 6,
        links: 1,
        mode: 0o644,
        owner: 0,
        from_image: false,
        direct_align: 0,
        mount: 0,
    };

    #[test]
    fn a_tag_changes_with_all_that_it_is_made_of_and_with_nothing_else() {
        let stat = STAT;
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
    fn a_hash_is_kept_for_one_mount_and_for_an_image_only_if_no_other_has_its_id() {
        let stat = Stat { from_image: true, mount: u64::MAX, ..STAT };
        let mut hashes = Hashes::default();
        hashes.learn(State::from(&stat), [7; HASH_LEN]);
        assert!(can_be_known(&stat) && !hashes.tag(Tags::Hash, &stat, None).is_empty());
        let elsewhere = Stat { mount: u64::MAX - 1, ..stat };
        assert!(hashes.tag(Tags::Hash, &elsewhere, None).is_empty());
        assert!(!can_be_known(&Stat { mount: 30, ..stat }));
        assert!(can_be_known(&Stat { mount: 30, from_image: false, ..stat }));
    }

    #[test]
    fn a_file_of_time_0_or_1_has_a_tag_only_if_its_time_of_change_is_known() {
        let hashes = Hashes::default();
        for mtime in [0, 1] {
            let known = Stat { mtime, ctime: 1_700_000_000, ..STAT };
            let tag = hashes.tag(Tags::Stat, &known, None);
            assert!(!tag.is_empty() && can_be_known(&known));
            let rebuilt = Stat { ctime: known.ctime + 1, ..known };
            assert_ne!(hashes.tag(Tags::Stat, &rebuilt, None), tag, "the inode was used again");
            for ctime in [0, 1] {
                let unknown = Stat { mtime, ctime, ..STAT };
                assert!(hashes.tag(Tags::Stat, &unknown, None).is_empty());
                assert!(!can_be_known(&unknown));
            }
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

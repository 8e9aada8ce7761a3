//! A file system that is slow on purpose. It replaces a disk for which samum must not wait.
//!
//! It is a real mount, so a server under test uses it through the kernel like any other. Its daemon is this
//! process. Read before editing: fuse(4), `Documentation/filesystems/fuse` in the kernel tree, and
//! `fs/fuse/file.c` for the effect of a short read.
//!
//! ```text
//!  server under test ── open, stat, read ──► kernel ── /dev/fuse ──► fuser's thread
//!                                                                        │ one thread for each
//!                                                                        ▼ request with a delay
//!                                                  sleep until its delay is over, then answer
//! ```

mod guard;
mod nodes;

use core::ops::Range;
use core::time::Duration;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::Instant;

use fuser::{
    Config, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, Request, Session, SessionACL,
};
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::Pid;
use tempfile::TempDir;

use crate::{Content, Skip};
use guard::Guard;
use nodes::{NodeId, Nodes};

/// A kind of request that the kernel sends to the file system.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// `close(2)` of a file: the kernel lets the file system write its held-back bytes, and waits for the end.
    Flush,
    /// Asking for the attributes of a file that is open or already found.
    Getattr,
    /// Resolving one component of a path.
    Lookup,
    /// Opening a file. Directories open at once.
    Open,
    /// Reading file data, for a program or for the kernel's readahead.
    Read,
    /// Listing a directory.
    Readdir,
}

/// A mounted file system of files in memory, read-only, that sleeps before it answers.
///
/// Requests sleep in parallel. By default nothing is slow, and the kernel caches neither names nor
/// attributes, and data only while a file stays open, so that every access arrives here.
///
/// Its drop answers all requests that sleep, and unmounts. Files that others still have open work until they
/// are closed, without delays.
///
/// ```no_run
/// use core::time::Duration;
/// use testkit::{Content, Op, SlowFs, or_skip};
///
/// let slow = SlowFs::builder()
///     .file("index.html", "hello")
///     .file("media/video.mp4", Content::pseudo_random(1, 1 << 30))
///     .delay(Op::Read, Duration::from_millis(100))
///     .mount();
/// let slow = or_skip!(slow);
/// // ... let a server serve slow.path() ...
/// slow.set_delay_of("media/video.mp4", Op::Read, Duration::MAX); // until further notice
/// assert!(slow.wait_until_waiting(Op::Read, 1, Duration::from_secs(10)));
/// slow.set_delay_of("media/video.mp4", Op::Read, Duration::ZERO);
/// ```
///
/// # Panics
/// Methods that take the path of a file panic if there is no such file.
#[derive(Debug)]
pub struct SlowFs {
    shared: Arc<Shared>,
    mountpoint: PathBuf,
    /// This and the directory are dropped after `drop()` has unmounted.
    _guard: Guard,
    _directory: TempDir,
}

/// The files and settings of a future [`SlowFs`].
#[derive(Debug)]
pub struct SlowFsBuilder {
    nodes: Nodes,
    cache: CachePolicy,
    state: FuseState,
}

#[derive(Clone, Copy, Debug, Default)]
struct CachePolicy {
    /// The time for which the kernel may cache names and attributes.
    timeout: Duration,
    /// True if data stays cached when a file is opened again.
    keep_data: bool,
}

/// The state that the tests, fuser's thread and the sleeping requests share.
#[derive(Debug)]
struct Shared {
    nodes: Nodes,
    cache: CachePolicy,
    state: Mutex<FuseState>,
    /// Notified whenever `state` changes in a way for which a thread may wait.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FuseState {
    delays: HashMap<Op, Duration>,
    /// Take precedence over `delays`.
    node_delays: HashMap<(NodeId, Op), Duration>,
    /// The bytes of a file at this offset and after it cannot be read.
    unreadable_from: HashMap<NodeId, u64>,
    tallies: HashMap<Op, Tally>,
    /// In order of arrival.
    reads: Vec<(NodeId, Range<u64>)>,
    /// The `SlowFs` is gone: nothing sleeps any more.
    ended: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    arrived: usize,
    waiting: usize,
    waiting_max: usize,
}

impl SlowFs {
    /// Begins with an empty file system.
    #[must_use]
    pub fn builder() -> SlowFsBuilder {
        SlowFsBuilder {
            nodes: Nodes::new(),
            cache: CachePolicy::default(),
            state: FuseState::default(),
        }
    }

    /// The directory at which it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Delays every request of one kind, unless [`SlowFs::set_delay_of`] has another delay for its file. The
    /// delay counts from the arrival of a request, also for requests that sleep already.
    pub fn set_delay(&self, op: Op, delay: Duration) {
        self.shared.change(|state| state.delays.insert(op, delay));
    }

    /// Does the same as [`SlowFs::set_delay`], for one file or directory.
    pub fn set_delay_of(&self, path: impl AsRef<Path>, op: Op, delay: Duration) {
        let node = self.shared.nodes.find(path.as_ref());
        self.shared.change(|state| state.node_delays.insert((node, op), delay));
    }

    /// Makes reads of a file fail with `EIO` from now on, except for data that is cached already.
    pub fn fail_reads(&self, path: impl AsRef<Path>) {
        self.fail_reads_from(path, 0);
    }

    /// Does the same as [`SlowFs::fail_reads`], from a byte offset to the end. The kernel reads whole pages,
    /// so the offset should be a multiple of 4096: a page fails if its last byte does.
    pub fn fail_reads_from(&self, path: impl AsRef<Path>, offset: u64) {
        let node = self.shared.nodes.find(path.as_ref());
        self.shared.change(|state| state.unreadable_from.insert(node, offset));
    }

    /// Ends the effect of [`SlowFs::fail_reads`] and [`SlowFs::fail_reads_from`].
    pub fn mend_reads(&self, path: impl AsRef<Path>) {
        let node = self.shared.nodes.find(path.as_ref());
        self.shared.change(|state| state.unreadable_from.remove(&node));
    }

    /// Fails all requests from now on, also sleeping ones, as when a device is removed. The file system stays
    /// mounted.
    ///
    /// # Errors
    /// If this process may not: it is not root.
    pub fn abort(&self) -> Result<(), Skip> {
        let skip = |error: io::Error| Skip::new(format!("cannot abort a FUSE connection: {error}"));
        // A file system in use is aborted, but not unmounted (`do_umount` in fs/namespace.c).
        let in_use = File::open(&self.mountpoint).map_err(skip)?;
        let aborted = match unmount(&self.mountpoint, UnmountFlags::FORCE) {
            Err(error) if error != rustix::io::Errno::BUSY => Err(skip(error.into())),
            _ => Ok(()),
        };
        drop(in_use);
        aborted
    }

    /// The number of requests of a kind that have arrived since mounting.
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.shared.state().tally(op).arrived
    }

    /// The number of requests of a kind that sleep at this moment.
    #[must_use]
    pub fn waiting(&self, op: Op) -> usize {
        self.shared.state().tally(op).waiting
    }

    /// The maximum of requests of a kind that have slept at the same time.
    #[must_use]
    pub fn waiting_max(&self, op: Op) -> usize {
        self.shared.state().tally(op).waiting_max
    }

    /// Waits until at least `count` requests of a kind sleep at the same time; false if there are fewer after
    /// `limit`.
    #[must_use]
    pub fn wait_until_waiting(&self, op: Op, count: usize, limit: Duration) -> bool {
        let too_few = |state: &mut FuseState| state.tally(op).waiting < count;
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, limit, too_few);
        !waited.expect(NOT_POISONED).1.timed_out()
    }

    /// The ranges of a file in all read requests, in order of arrival.
    #[must_use]
    pub fn reads(&self, path: impl AsRef<Path>) -> Vec<Range<u64>> {
        let node = self.shared.nodes.find(path.as_ref());
        let state = self.shared.state();
        state.reads.iter().filter(|(of, _)| *of == node).map(|(_, range)| range.clone()).collect()
    }
}

impl Drop for SlowFs {
    fn drop(&mut self) {
        self.shared.change(|state| state.ended = true);
        let unmounted = unmount_lazily(&self.mountpoint);
        // A second panic would abort the test before the message of the first one.
        assert!(unmounted || thread::panicking(), "cannot unmount {}", self.mountpoint.display());
    }
}

impl SlowFsBuilder {
    /// Adds a file, and the directories on its path.
    ///
    /// # Panics
    /// If the path is not made of plain names, or leads through or to an existing file.
    #[must_use]
    pub fn file(self, path: impl AsRef<Path>, content: impl Into<Content>) -> Self {
        let content = content.into();
        let size = content.len();
        self.short_file(path, content, size)
    }

    /// Does the same as [`SlowFsBuilder::file`], for a file that ends before the `size` of its attributes, like
    /// one that has been truncated since a stat.
    ///
    /// # Panics
    /// Those of [`SlowFsBuilder::file`].
    #[must_use]
    pub fn short_file(
        mut self,
        path: impl AsRef<Path>,
        content: impl Into<Content>,
        size: u64,
    ) -> Self {
        self.nodes.add_file(path.as_ref(), content.into(), size);
        self
    }

    /// Adds an empty directory, and the directories on its path.
    ///
    /// # Panics
    /// If the path is not made of plain names, or leads through or to a file.
    #[must_use]
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        self.nodes.add_directory(path.as_ref());
        self
    }

    /// Sets the first delay, see [`SlowFs::set_delay`]. Default: none.
    #[must_use]
    pub fn delay(mut self, op: Op, delay: Duration) -> Self {
        self.state.delays.insert(op, delay);
        self
    }

    /// Sets the time for which the kernel may cache names and attributes. Default: none.
    #[must_use]
    pub fn cache_attributes(mut self, timeout: Duration) -> Self {
        self.cache.timeout = timeout;
        self
    }

    /// Keeps cached data when a file is opened again. Default: opening makes a file cold.
    #[must_use]
    pub fn keep_data(mut self) -> Self {
        self.cache.keep_data = true;
        self
    }

    /// Mounts it at a temporary directory.
    ///
    /// # Errors
    /// The reason why this machine cannot: mostly no /dev/fuse, or neither root nor fusermount3.
    pub fn mount(self) -> Result<SlowFs, Skip> {
        self.mount_beneath(std::env::temp_dir())
    }

    /// Mounts it at a temporary directory beneath another directory.
    ///
    /// # Errors
    /// Those of [`SlowFsBuilder::mount`].
    pub fn mount_beneath(self, place: impl AsRef<Path>) -> Result<SlowFs, Skip> {
        let skip =
            |error: io::Error| Skip::new(format!("cannot mount a FUSE file system: {error}"));
        let directory = TempDir::with_prefix_in("samum-slow-", place).map_err(skip)?;
        // The kernel resolves symbolic links in the path, and /proc/mounts has the result.
        let mountpoint = directory.path().canonicalize().map_err(skip)?;
        let shared = Arc::new(Shared {
            nodes: self.nodes,
            cache: self.cache,
            state: Mutex::new(self.state),
            changed: Condvar::new(),
        });
        let daemon = Daemon { shared: Arc::clone(&shared) };
        let session = Session::new(daemon, &mountpoint, &mount_config()).map_err(skip)?;
        let thread = run_session(session).map_err(skip)?;
        let guard = Guard::new(thread, &mountpoint).map_err(|error| {
            unmount_lazily(&mountpoint);
            skip(error)
        })?;
        Ok(SlowFs { shared, mountpoint, _guard: guard, _directory: directory })
    }
}

/// Starts the daemon on a thread of its own; returns the thread's ID.
fn run_session(session: Session<Daemon>) -> io::Result<Pid> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        sender.send(rustix::thread::gettid()).expect("it is being received below");
        // An error means that /dev/fuse cannot be read. Then all later requests fail, and the test sees the
        // failure.
        if let Err(error) = session.run() {
            eprintln!("SlowFs: {error}");
        }
    };
    thread::Builder::new().name("slow-fs".into()).spawn(run)?;
    Ok(receiver.recv().expect("it is sent before anything else"))
}

/// Unmounts even if files are open, which can still be used. The daemon's thread ends when the last file is
/// closed, so it is not joined.
fn unmount_lazily(mountpoint: &Path) -> bool {
    match unmount(mountpoint, UnmountFlags::DETACH) {
        // The session of a device that was removed ends, and unmounts it. The guard sees that and removes the directory.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return true,
        Err(_) => {}
    }
    // Without the privilege, FUSE's set-user-id helper has to unmount.
    let helper = Command::new("fusermount3").args(["-u", "-z"]).arg(mountpoint).status();
    helper.is_ok_and(|status| status.success())
}

fn mount_config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("samum-slow".into())];
    // A server under test may have changed its user. Without root, other users may use the mount only if
    // fuse.conf allows it.
    if rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    config
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, FuseState> {
        self.state.lock().expect(NOT_POISONED)
    }

    fn change<T>(&self, change: impl FnOnce(&mut FuseState) -> T) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Sleeps until the delay of a request that arrived at `arrival` is over.
    fn sleep(&self, op: Op, node: Option<NodeId>, arrival: Instant) {
        let mut state = self.state();
        loop {
            let rest = state.delay(op, node).saturating_sub(arrival.elapsed());
            if rest.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, rest).expect(NOT_POISONED).0;
        }
    }
}

impl FuseState {
    fn delay(&self, op: Op, node: Option<NodeId>) -> Duration {
        if self.ended {
            return Duration::ZERO;
        }
        let of_node = node.and_then(|node| self.node_delays.get(&(node, op)));
        of_node.or_else(|| self.delays.get(&op)).copied().unwrap_or_default()
    }

    fn tally(&self, op: Op) -> Tally {
        self.tallies.get(&op).copied().unwrap_or_default()
    }

    fn fails(&self, node: NodeId, range: &Range<u64>) -> bool {
        self.unreadable_from.get(&node).is_some_and(|from| *from < range.end)
    }
}

/// A request between its arrival and the end of its delay. It counts as waiting while this value exists.
struct Waiting {
    shared: Arc<Shared>,
    op: Op,
}

impl Waiting {
    fn new(shared: &Arc<Shared>, op: Op) -> Self {
        shared.change(|state| {
            let tally = state.tallies.entry(op).or_default();
            tally.arrived += 1;
            tally.waiting += 1;
            tally.waiting_max = tally.waiting_max.max(tally.waiting);
        });
        Self { shared: Arc::clone(shared), op }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.change(|state| {
            let tally = state.tallies.get_mut(&self.op).expect("inserted by new()");
            tally.waiting -= 1;
        });
    }
}

/// The kernel's requests.
struct Daemon {
    shared: Arc<Shared>,
}

impl Daemon {
    /// Calls `reply` when the request's delay is over, on a thread of its own if there is a delay.
    fn answer(&self, op: Op, node: Option<NodeId>, reply: impl FnOnce(&Shared) + Send + 'static) {
        let arrival = Instant::now();
        let waiting = Waiting::new(&self.shared, op);
        if self.shared.state().delay(op, node).is_zero() {
            drop(waiting);
            return reply(&self.shared);
        }
        let answer = move || {
            let shared = Arc::clone(&waiting.shared);
            shared.sleep(op, node, arrival);
            drop(waiting);
            reply(&shared);
        };
        let spawned = thread::Builder::new().name(format!("slow-{op:?}")).spawn(answer);
        // The closure was dropped with the reply, so fuser answers EIO.
        if let Err(error) = spawned {
            eprintln!("SlowFs: no thread for a request: {error}");
        }
    }
}

impl Filesystem for Daemon {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without this flag the kernel resolves the names in one directory one after the other. Old kernels do
        // not offer it, and are only slower.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // With the default of 16, the seventeenth asynchronous read would wait for the first.
        let refused = config.set_max_background(BACKGROUND_MAX).is_err();
        assert!(!refused, "any number but zero is fine");
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = self.shared.nodes.child(parent.into(), name);
        self.answer(Op::Lookup, node, move |shared| match node {
            Some(node) => {
                reply.entry(&shared.cache.timeout, &shared.nodes.attributes(node), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let node = node.into();
        self.answer(Op::Getattr, Some(node), move |shared| {
            reply.attr(&shared.cache.timeout, &shared.nodes.attributes(node));
        });
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.answer(Op::Open, Some(node.into()), |shared| {
            let flags = if shared.cache.keep_data {
                FopenFlags::FOPEN_KEEP_CACHE
            } else {
                FopenFlags::empty()
            };
            reply.opened(FileHandle(0), flags);
        });
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = node.into();
        let range = offset..offset + u64::from(size);
        self.shared.change(|state| state.reads.push((node, range.clone())));
        self.answer(Op::Read, Some(node), move |shared| {
            let fails = shared.state().fails(node, &range);
            match shared.nodes.content(node) {
                Some(content) if !fails => reply.data(&content.read(offset, size as usize)),
                Some(_) => reply.error(Errno::EIO),
                None => reply.error(Errno::EISDIR),
            }
        });
    }

    fn flush(&self, _: &Request, node: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.answer(Op::Flush, Some(node.into()), |_| reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let node = node.into();
        self.answer(Op::Readdir, Some(node), move |shared| {
            // The offset of an entry is the number of the next one, at which the listing goes on.
            for (next, entry) in (1_u64..).zip(shared.nodes.entries(node)) {
                if next > offset && reply.add(entry.node.into(), next, entry.kind, entry.name) {
                    break;
                }
            }
            reply.ok();
        });
    }
}

const BACKGROUND_MAX: u16 = 1024;

const NOT_POISONED: &str = "nothing panics while it holds this lock";

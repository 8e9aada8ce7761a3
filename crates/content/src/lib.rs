//! Finds the resource of a path, and waits for the disk only in the cases named below.
//!
//! A cached path is answered from the cache (`Library`). Any other path begins a *load* (`Loader`). The load watches
//! its directories (`Watches`), opens and examines the file, looks for precompressed siblings, and reads the bytes of a
//! small file. Data that the kernel has in memory is read directly; other data goes through the ring. Requests for the
//! same path join the load.
//!
//! A cached resource is used without a check until an inode event reports a change, and for a limited time (see
//! *Freshness*). Some files have no such events: on network file systems and FUSE, behind symbolic links, and with
//! several names. For these files the time is `AGE_MAX`. From half of the time on, a request for a file begins another
//! load in the background.
//!
//! A file is found beneath its root by `openat2(2)` with `RESOLVE_BENEATH`, or name by name where links may lead
//! elsewhere. The kernel is asked directly for names that it has in memory. Where directories are watched, it is also
//! asked for data. The kernel is asked directly for at most 64 paths in a worker turn. If the kernel says that a name
//! does not exist, no load begins. An open for reading may still sleep: until a program permits the open (fanotify), or
//! until an access control list has been read. After a direct call that slept, all requests go through the ring for one
//! minute. After requests for several files of a directory, a helper searches the names of the directory for
//! precompressed files. If there are no such files, loads look for no siblings until an event reports one.
//!
//! **Freshness.** A directory is watched (inotify) after something in it was found. Then the path is looked at again,
//! so a change between the first look and the watch is not missed. A change of a file evicts its entry, its siblings,
//! and the index and the listing of its directory. A change of a directory evicts everything below it. Changes are
//! handled before received bytes, so a request that follows a change sees it. Events do not report everything: the
//! knowledge of files without events (above) is used for 1 s, and these files are looked at again from 0.5 s on. The
//! knowledge of watched files is used for 10 s, and these files are looked at again from 5 s on. The reason is that
//! writes through shared mappings make no events, and mounts over a file or over its directories make no events. A
//! small file is looked at again after its read, and not kept if it changed meanwhile. If a file had changed less than
//! 3 s before it was read, it is read again at the next look, because some file systems have times in whole seconds.
//!
//! **Devices.** Each worker finds out by its own calls how long a device has been silent; all workers know which
//! devices are silent (`ring::Silences`). The kernel answers much from memory. So after a late call, the end of another
//! call is not always an answer of the device. It is an answer if that call took 1 s, or if that call needed data that
//! was not in memory when the call began. For a look for a name on a disk, the second rule applies only if the look
//! took at least 1 ms. If a device has answered nothing for 1 s, no request waits for an error page on that device.
//! nginx has no such deadline: it sends the header before the first read, and the worker or one of its 32 threads
//! waits.

#![forbid(unsafe_code)]

mod answer;
mod assemble;
mod change;
pub mod copies;
mod devices;
mod entries;
mod errors;
mod hashing;
mod in_memory;
mod layouts;
mod library;
mod load;
mod load_queue;
mod loader;
mod media_types;
mod open_files;
mod path;
mod queues;
mod resource;
pub mod sources;
mod tag;
mod tree;
mod watch;

use core::time::Duration;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;
use std::sync::Arc;

use http::{Reject, Status};
use ring::{Change, Completion, Device, Fd, Key, Op, Time};
use sendfile::Account;

pub use answer::{Found, PathAnswer};
pub use entries::Entries;
pub use in_memory::{FILE_BYTES_MAX_IN_MEMORY, InMemory};
pub use resource::{Kind, Resource};
pub use session::files::Whole;
pub use session::files::{Data, FileSet, Variant, head, last_modified};
use session::handler::Ticket;
use session::reason::Reason;
pub use tree::{Tree, TreeId, TreeSpec};

use assemble::Assembled;
use change::{Outdated, outdated_by};
use config::Tags;
use copies::{Copier, Name, Original};
use errors::{Refusal, is_of_link, missing};
use hashing::Hashes;
use layouts::Layouts;
use library::Library;
use load::{Coverage, Load, Look, Next, Outcome};
use load_queue::Parked;
use loader::{Loader, Tickets, path_of};
use media_types::has_siblings;
use path::Path;
use session::kind;
use session::shell::Shell;
use sources::Sources;
use watch::{Notice, Progress, Watches};

/// The time for which a cached resource is used without a check if changes make no events.
const AGE_MAX: Duration = Duration::from_secs(1);
/// The time for which a cached resource is used without a check if changes make events. The time is limited because
/// some changes make no events: writes through a shared mapping, a mount over the file or its directories, and writes
/// through a new second name in a directory that is not watched.
const AGE_MAX_WATCHED: Duration = Duration::from_secs(10);
/// The maximum age at which an old resource is served while a slow disk delays the load of a new
/// one.
const STALE_MAX: Duration = Duration::from_secs(10);
/// If a device has answered nothing for this time, or for `timeout-disk` if that is shorter, no request waits for an
/// error page on the device.
const ERROR_PAGE_SILENCE: Duration = Duration::from_secs(1);
/// The maximum number of requests that wait for the same load: 1,024 connections with 64 requests each. A further
/// request gets a 503.
const TICKETS_MAX: usize = 64 * 1024;
/// The maximum number of names in a path; the response for a deeper path is a 414. `PATH_MAX` would allow 2,048 names.
/// The kernel has to walk through each name, and the worker may have to watch each directory. Sites use up to about 20.
const DEPTH_MAX: usize = 128;
/// The maximum number of entries of a listing that is cached.
const LISTED_MAX: usize = 4096;
/// The maximum number of outdated resources evicted in one worker turn, which takes about 0.1 ms. The others are
/// evicted in later turns.
const TIDY_MAX: usize = 256;
/// The maximum number of loads that are given up in one worker turn because the disk has not answered; the others are
/// given up in the next turns.
const OVERDUE_MAX: usize = 128;
/// The time between two looks at removed trees of which a part is left.
const LEAVING_PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of watched directories that are examined to find one that can go.
const UNWATCH_LOOKS_MAX: usize = 16;
/// The maximum number of idle resources that are evicted together with the watch of their
/// directory.
const UNWATCH_EVICTIONS_MAX: usize = 4;

/// The files of all trees that one worker has cached.
pub struct Content {
    trees: Vec<Tree>,
    library: Library,
    loader: Loader,
    watches: Watches,
    hashes: Hashes,
    layouts: Layouts,
    /// Makes copies of files, if there is one.
    copier: Option<Box<dyn Copier>>,
    /// The queue of loads that look at their paths. The first load looks now.
    looks: VecDeque<Key>,
    /// Removed trees of which loads, watches, or cached resources are left.
    leaving: Vec<TreeId>,
    /// The ids of trees that are free for others.
    free: Vec<TreeId>,
    /// The number of directories that were served in place of another one.
    generations: u64,
    /// The account for resources and their buffers while anything holds them.
    account: Account,
    /// The time and the key of the timer that calls [`handle_tidy`](Self::handle_tidy). `Some` while the timer runs,
    /// else `None`.
    tidy: Option<(Time, Key)>,
    /// Answers to requests that had to wait, which the worker delivers.
    pub answers: VecDeque<(Ticket, PathAnswer)>,
}

impl Content {
    /// Makes the content of these trees, in the order of their ids. At most `descriptors_max` files stay open: an
    /// eighth of the worker's descriptors. Loads use up to half of this number in addition. `in_memory` says which
    /// files are kept in memory.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`.
    pub fn new(
        trees: Vec<Tree>,
        descriptors_max: usize,
        in_memory: InMemory,
        account: Account,
    ) -> std::io::Result<Self> {
        let count = trees.len();
        Ok(Self {
            trees,
            library: Library::new(count, descriptors_max),
            loader: Loader::new(count, descriptors_max, in_memory)?,
            watches: Watches::new(count),
            hashes: Hashes::default(),
            layouts: Layouts::new()?,
            copier: None,
            looks: VecDeque::new(),
            leaving: Vec::new(),
            free: Vec::new(),
            generations: 0,
            account,
            tidy: None,
            answers: VecDeque::new(),
        })
    }

    /// Changes which files are kept in memory. Files that were found before stay as they are: in memory, open, or both.
    pub const fn set_in_memory(&mut self, in_memory: InMemory) {
        self.loader.set_in_memory(in_memory);
    }

    /// Asks a copier for copies of the files that are loaded from now on.
    pub fn set_copier(&mut self, copier: Box<dyn Copier>) {
        self.copier = Some(copier);
    }

    /// Finds the resource of a path of a tree. The path is in normal form and without its first slash. The path of a
    /// directory has a slash at its end, except the path of the root.
    #[inline(always)]
    pub fn find(&mut self, shell: &mut Shell, tree: TreeId, path: &[u8], ticket: Ticket) -> Found {
        self.find_for(shell, tree, path, Some(ticket))
    }

    /// Finds the resource of a path if this needs no wait: the resource is cached, or the kernel has all its data in
    /// memory. Otherwise the resource is loaded for later requests.
    pub fn find_at_once(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
    ) -> Option<Rc<Resource>> {
        match self.find_for(shell, tree, path, None) {
            Found::Now(PathAnswer::Resource(resource)) => Some(resource),
            // The load may have ended already.
            Found::Now(_) | Found::Later => self.believed(tree, path, shell.cx.now),
        }
    }

    /// Finds a resource. Without a ticket nothing waits for the load, whose answer is only cached.
    // Each request comes here, and a call that is not inlined would cost 30 instructions.
    #[inline(always)]
    fn find_for(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
        ticket: Option<Ticket>,
    ) -> Found {
        if let Some(resource) = self.library.get(tree, path) {
            resource.used.set(shell.cx.now);
            if shell.cx.now.since(resource.validated.get()) < age_max(resource) / 2 {
                return Found::Now(PathAnswer::Resource(Rc::clone(resource)));
            }
        }
        self.load_path(shell, tree, path, ticket)
    }

    /// Finds a resource that is not cached, or that has been cached for some time. The function is separate, so that
    /// the usual case stays short.
    #[inline(never)]
    fn load_path(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
        ticket: Option<Ticket>,
    ) -> Found {
        let mut previous = None;
        if let Some(resource) = self.library.get(tree, path).cloned() {
            let age = shell.cx.now.since(resource.validated.get());
            let max = age_max(&resource);
            let refreshing = self.loader.is_loading(tree, path);
            if age < max || (refreshing && age < STALE_MAX) {
                if !refreshing && let Some(device) = self.admits(shell, tree, path) {
                    let previous = Some(Rc::clone(&resource));
                    self.begin(shell, tree, path, device, previous, None, None);
                }
                return Found::Now(PathAnswer::Resource(resource));
            }
            previous = Some(resource);
        }
        match self.loader.tickets(tree, path) {
            Some(Tickets::Open(tickets)) if tickets.len() < TICKETS_MAX => {
                tickets.extend(ticket);
                return Found::Later;
            }
            Some(Tickets::Open(_)) => return Found::Now(unavailable(Reason::Crowded)),
            Some(Tickets::Overdue) => return Found::Now(unavailable(Reason::Disk)),
            None => {}
        }
        if let Err(error) = http::path::check_file(path) {
            return Found::Now(PathAnswer::Error(error.status(), Reason::Path(error)));
        }
        if path.iter().filter(|byte| **byte == b'/').count() >= DEPTH_MAX {
            return Found::Now(PathAnswer::Error(Status::UriTooLong, Reason::Depth));
        }
        if self.trees[tree.index()].is_lost {
            return Found::Now(unavailable(Reason::NoRoot));
        }
        let Some(device) = self.admits(shell, tree, path) else {
            let device = self.loader.device(shell, &self.trees, tree, path);
            let is_crowded = self.loader.queue.is_full(device);
            return Found::Now(unavailable(if is_crowded {
                Reason::Crowded
            } else {
                Reason::Disk
            }));
        };
        let of = &self.trees[tree.index()];
        let found = match self.loader.glance(shell, of, path) {
            Some(Err(error)) if Refusal::of(&error) == Refusal::Missing && !is_of_link(&error) => {
                let reason = missing(&error, &of.rules.symlinks);
                if previous.is_some() {
                    self.library.evict(tree, path);
                }
                return Found::Now(PathAnswer::Error(Status::NotFound, reason));
            }
            Some(found) => found.ok(),
            None => None,
        };
        let waiting = self.answers.len();
        self.begin(shell, tree, path, device, previous, ticket, found);
        // If the kernel had everything in memory, the load has ended. No other load has ended, because this load has
        // freed no slot.
        if self.answers.back().is_some_and(|(answered, _)| Some(*answered) == ticket)
            && let Some((_, answer)) = self.answers.pop_back()
        {
            debug_assert!(self.answers.len() == waiting, "nobody would fetch the others now");
            return Found::Now(answer);
        }
        Found::Later
    }

    /// Finds an error page. The search never waits for a device that does not answer. It is also never the one request
    /// that tests whether such a device answers again.
    pub fn find_error_page(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
        ticket: Ticket,
    ) -> Found {
        // A request that has waited for `timeout-disk` may have begun before its device last answered. The page of such
        // a request would wait as long again.
        let patience = ERROR_PAGE_SILENCE.min(shell.cx.tuning.timeout_disk);
        if !shell.is_silent(self.loader.device(shell, &self.trees, tree, path), patience) {
            return self.find(shell, tree, path, ticket);
        }
        let believed = self.believed(tree, path, shell.cx.now);
        // Content with a descriptor would be read from that device.
        let believed = believed.filter(|one| one.descriptors == 0);
        Found::Now(believed.map_or_else(|| unavailable(Reason::Disk), PathAnswer::Resource))
    }

    /// A cached resource that may be served while a slow disk delays the load of a new one.
    fn believed(&self, tree: TreeId, path: &[u8], now: Time) -> Option<Rc<Resource>> {
        let is_believed =
            |one: &&Rc<Resource>| now.since(one.validated.get()) < STALE_MAX.max(age_max(one));
        self.library.get(tree, path).filter(is_believed).cloned()
    }

    /// The device of a path, if a load of the path may begin: there is room in the queue, and the device answers. If
    /// the device does not answer, a request is answered at once, as a proxy answers when its upstream is down. The
    /// client would otherwise wait for the whole timeout and get the same response.
    fn admits(&self, shell: &mut Shell, tree: TreeId, path: &[u8]) -> Option<Device> {
        let device = self.loader.device(shell, &self.trees, tree, path);
        (!self.loader.queue.is_full(device) && !shell.refuses(device)).then_some(device)
    }

    /// Begins a load of a path.
    fn begin(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
        device: Device,
        previous: Option<Rc<Resource>>,
        ticket: Option<Ticket>,
        found: Option<Fd>,
    ) {
        let now = shell.cx.now;
        let load = self.loader.insert(tree, path, device, previous, ticket, found, now);
        if self.loader.queue.enter(device, load, now) {
            self.look(shell, load);
        } else {
            self.loader.load_mut(load).forget_found();
        }
        self.schedule(shell);
    }

    /// Looks at the path of a load, for the first time or again. A load that ends at once starts other loads. These
    /// loads wait in a queue, because a recursion would have no limit.
    fn look(&mut self, shell: &mut Shell, load: Key) {
        self.looks.push_back(load);
        if self.looks.len() > 1 {
            return;
        }
        while let Some(load) = self.looks.front().copied() {
            let Load { tree, path, .. } = self.loader.load(load);
            let device = self.loader.device_of(load);
            let mount = self.watches.mount_of_watched(*tree, path);
            let of = &self.trees[tree.index()];
            let wants_siblings = || path::is_directory(path) || has_siblings(path, &of.rules);
            let may_have_siblings = mount.is_none()
                || (wants_siblings()
                    && self.watches.may_have_coded(shell, of.root(), device, *tree, path));
            let next = self.loader.look(shell, &self.trees, load, mount, may_have_siblings);
            self.go_on(shell, load, next);
            self.looks.pop_front();
        }
    }

    /// Handles a completion of a load.
    pub fn handle_load(&mut self, shell: &mut Shell, completion: Completion) {
        let (load, next) = self.loader.handle(shell, &self.trees, completion);
        self.go_on(shell, load, next);
    }

    fn go_on(&mut self, shell: &mut Shell, load: Key, mut next: Next<Fd>) {
        if let Next::Room(files) = next {
            if !self.library.make_room(shell.cx.now, files) {
                return self.park(shell, load, files);
            }
            self.library.open_files.reserve(files);
            next = self.loader.admit(shell, &self.trees, load, files);
        }
        match next {
            Next::Replies => {}
            Next::Look => self.look(shell, load),
            Next::Watch => self.watch(shell, load),
            Next::WatchAgain(mount) => self.watch_again(shell, load, mount),
            Next::Room(_) => unreachable!("it was admitted"),
            Next::End(outcome) => self.end(shell, load, outcome),
        }
    }

    /// Watches the next directory on the way to the path of a load, or looks again if no directory is left.
    fn watch(&mut self, shell: &mut Shell, load: Key) {
        self.loader.load_mut(load).watch();
        let Load { tree, path, .. } = self.loader.load(load);
        let (tree, path) = (*tree, Rc::clone(path));
        let directory = match self.watches.wait_for(tree, &path, load) {
            Progress::Pending => return,
            Progress::Watched | Progress::Unwatchable => return self.look(shell, load),
            Progress::Next(directory) => directory,
        };
        if self.watches.is_short(shell.cx.now)
            || (self.watches.is_full() && !self.unwatch_one(shell.cx.now))
        {
            return self.look(shell, load);
        }
        let way = path::prefix(directory);
        let device = self.loader.device(shell, &self.trees, tree, &way);
        let root = self.trees[tree.index()].root();
        self.watches.watch(shell, root, device, tree, directory, load);
    }

    /// Watches the directory of a load by its path again: the file that was found is on another mount.
    fn watch_again(&mut self, shell: &mut Shell, load: Key, mount: u64) {
        self.loader.load_mut(load).watch();
        let Load { tree, path, .. } = self.loader.load(load);
        let (tree, path) = (*tree, Rc::clone(path));
        let device = self.loader.device(shell, &self.trees, tree, &path);
        let root = self.trees[tree.index()].root();
        if !self.watches.watch_again(shell, root, device, (tree, &path), mount, load) {
            self.look(shell, load);
        }
    }

    /// Makes a load wait for room; meanwhile it has nothing open.
    fn park(&mut self, shell: &mut Shell, load: Key, files: usize) {
        self.loader.load_mut(load).park();
        self.loader.queue.park(Parked { load, files, since: shell.cx.now });
        let device = self.loader.device_of(load);
        self.leave_line(shell, device);
        self.schedule(shell);
    }

    /// Gives the slot of a load to the next load in the queue.
    fn leave_line(&mut self, shell: &mut Shell, device: Device) {
        self.loader.queue.leave(device, shell.cx.now);
        while let Some(next) = self.loader.queue.next(shell.cx.now) {
            self.look(shell, next);
        }
    }

    /// Continues parked loads while there is room for them.
    fn serve_parked(&mut self, shell: &mut Shell) {
        while let Some(parked) = self.loader.queue.first_parked() {
            let Parked { load, files, .. } = parked;
            if !self.library.make_room(shell.cx.now, files) {
                let open_files = &self.library.open_files;
                let most = open_files.max() + open_files.max() / 2;
                if !self.loader.queue.is_overdue(parked, shell.cx.now)
                    || open_files.held() + files > most
                {
                    return;
                }
                self.loader.queue.let_overdue_go(shell.cx.now);
            }
            self.loader.queue.unpark();
            self.library.open_files.reserve(files);
            self.loader.load_mut(load).unpark(files);
            let device = self.loader.device_of(load);
            if self.loader.queue.enter(device, load, shell.cx.now) {
                self.look(shell, load);
            }
            if self.library.open_files.held() > self.library.open_files.max() {
                return;
            }
        }
    }

    /// Ends a load: answers the requests that waited for it, and caches the resource that it found.
    fn end(&mut self, shell: &mut Shell, load: Key, outcome: Outcome<Fd>) {
        let device = self.loader.device_of(load);
        let mut load = self.loader.remove(load);
        self.library.open_files.release(load.reserved());
        match outcome {
            Outcome::Unchanged(look, resource) => {
                resource.validated.set(look.began);
                resource.watched.set(look.way == Coverage::Watched);
                self.answer(&mut load.tickets, &PathAnswer::Resource(resource));
                if load.is_outdated {
                    self.library.evict(load.tree, &load.path);
                } else {
                    self.want_tags(shell, load.tree, &load.path);
                }
            }
            Outcome::File { look, parts, is_changed } => {
                let tree = &self.trees[load.tree.index()];
                let name = load.file_name(&tree.rules);
                let is_hidden = |sources: &Arc<Sources>| {
                    let mut files = parts.iter().flatten().map(|(seen, _)| &seen.file);
                    sources.hide(&name)
                        || (look.way == Coverage::Linked
                            && files.any(|file| is_target_hidden(sources, &name, file)))
                };
                if tree.sources.as_ref().is_some_and(is_hidden) {
                    self.fail(&mut load, &PathAnswer::Error(Status::NotFound, Reason::Source));
                } else {
                    let tag = |stat: &_, coding| self.hashes.tag(tree.rules.tags, stat, coding);
                    let copier = &mut self.copier;
                    // The file of an outdated load may be in a directory that was replaced meanwhile.
                    let has_name = !load.is_outdated;
                    let copy = |original: &Original<'_>, coding| {
                        copier.as_mut().filter(|_| has_name)?.copy(shell, original, coding)
                    };
                    let (generation, path) = (tree.generation, Rc::clone(&load.path));
                    let of = Name { tree: load.tree, generation, path };
                    let unix = look.unix;
                    let in_memory = self.loader.in_memory();
                    let found = Assembled::file(
                        tree,
                        (&of, &name),
                        unix,
                        parts,
                        in_memory,
                        tag,
                        copy,
                        &self.account,
                    );
                    let fate = if is_changed { Fate::Leave } else { Fate::Cache };
                    self.deliver(shell, &mut load, &look, found, fate);
                }
            }
            Outcome::Redirect(look) => {
                self.deliver(shell, &mut load, &look, Assembled::redirect(), Fate::Evict);
            }
            Outcome::Unclean(look, len) => {
                self.deliver(shell, &mut load, &look, Assembled::unclean(len), Fate::Evict);
            }
            Outcome::Directory(look, listing) => {
                let is_small = listing.entries.len() <= LISTED_MAX;
                let fate = if is_small { Fate::Cache } else { Fate::Evict };
                let found =
                    Assembled::directory(&self.trees[load.tree.index()], &load.path, *listing);
                self.deliver(shell, &mut load, &look, found, fate);
            }
            Outcome::Missing(reason) => {
                self.fail(&mut load, &PathAnswer::Error(Status::NotFound, reason));
            }
            Outcome::Replaced => self.fail(&mut load, &unavailable(Reason::Replaced)),
            Outcome::TooLarge => {
                let reason = "the file is larger than 4 EiB";
                let reject = Reject { status: Status::NotImplemented, reason };
                self.fail(&mut load, &PathAnswer::Rejected(reject));
            }
            Outcome::Failed(error, owner) => {
                let status = match Refusal::of(&error) {
                    Refusal::Missing => Status::NotFound,
                    Refusal::Forbidden => Status::Forbidden,
                    Refusal::Shortage => {
                        shell.complain_of_limit(&error);
                        Status::ServiceUnavailable
                    }
                    refusal @ (Refusal::Gone | Refusal::Broken) => {
                        let status = match refusal {
                            Refusal::Gone => Status::ServiceUnavailable,
                            _ => Status::InternalServerError,
                        };
                        shell.complain_of_disk(device, &load.path, &error, status);
                        status
                    }
                };
                let tree = &self.trees[load.tree.index()];
                let reason = match Refusal::of(&error) {
                    Refusal::Missing => missing(&error, &tree.rules.symlinks),
                    _ => {
                        let name = load.file_name(&tree.rules);
                        let path = tree.directory.join(OsStr::from_bytes(&name));
                        Reason::unopened(&path, &error, owner)
                    }
                };
                self.fail(&mut load, &PathAnswer::Error(status, reason));
            }
        }
        // The next loads may end at once, so this load must be finished first.
        self.leave_line(shell, device);
    }

    /// Ends a load that has found a resource.
    fn deliver(
        &mut self,
        shell: &mut Shell,
        load: &mut Load<Fd>,
        look: &Look<Fd>,
        found: Assembled,
        fate: Fate,
    ) {
        let resource = found.into_resource(load, look, shell.cx.now, &self.account);
        self.answer(&mut load.tickets, &PathAnswer::Resource(Rc::clone(&resource)));
        match fate {
            Fate::Cache if !load.is_outdated => return self.cache(shell, resource),
            Fate::Evict if !load.is_outdated => self.library.evict(load.tree, &load.path),
            Fate::Cache | Fate::Evict | Fate::Leave => {}
        }
        self.library.open_files.track(&resource);
    }

    fn cache(&mut self, shell: &mut Shell, resource: Rc<Resource>) {
        let (tree, path) = (resource.tree, Rc::clone(&resource.path));
        let has_files = resource.descriptors > 0;
        self.layouts.want(shell, &resource, self.trees[tree.index()].keeps());
        self.library.insert(shell.cx.now, resource);
        if has_files {
            self.schedule(shell);
        }
        self.want_tags(shell, tree, &path);
    }

    /// Asks for the missing tags of a cached resource, if tags are made of contents. A thread computes them.
    fn want_tags(&mut self, shell: &mut Shell, tree: TreeId, path: &Path) {
        if self.trees[tree.index()].rules.tags == Tags::Hash {
            self.hashes.want(shell, &self.trees, &mut self.library, (tree, Rc::clone(path)));
        }
    }

    /// Ends a load that has found nothing to serve.
    fn fail(&mut self, load: &mut Load<Fd>, answer: &PathAnswer) {
        if !load.is_outdated {
            self.library.evict(load.tree, &load.path);
        }
        self.answer(&mut load.tickets, answer);
    }

    fn answer(&mut self, tickets: &mut Vec<Ticket>, answer: &PathAnswer) {
        self.answers.extend(tickets.drain(..).map(|ticket| (ticket, answer.clone())));
    }

    /// Handles a completion of a read of a film.
    pub fn handle_layout(&mut self, shell: &mut Shell, completion: Completion) {
        self.layouts.handle(shell, completion);
    }

    /// Handles a completion of a watch.
    pub fn handle_watch(&mut self, shell: &mut Shell, completion: Completion) {
        match self.watches.handle(shell, completion) {
            Some(Notice::Changed(tree, directory, change)) => {
                self.changed(tree, &directory, &change);
            }
            Some(Notice::Known { loads, is_watched, covered }) => {
                if let Some((tree, directory)) = covered {
                    self.outdate_below(tree, &path::prefix(&directory));
                }
                for load in loads {
                    if is_watched { self.watch(shell, load) } else { self.look(shell, load) }
                }
            }
            None => return,
        }
        self.schedule(shell);
    }

    /// Evicts the resources that a change in a watched directory makes outdated.
    fn changed(&mut self, tree: TreeId, directory: &[u8], change: &Change) {
        for outdated in outdated_by(directory, change) {
            match outdated {
                Outdated::Path(path) => {
                    self.library.evict(tree, &path);
                    self.loader.outdate(tree, &path);
                }
                Outdated::Below(prefix) => self.outdate_below(tree, &prefix),
            }
        }
    }

    /// Outdates all resources below a directory. The directory may have been moved, so it is no
    /// longer watched.
    fn outdate_below(&mut self, tree: TreeId, prefix: &[u8]) {
        self.loader.outdate_below(tree, prefix);
        self.library.outdate(tree, prefix);
        let directory = prefix.strip_suffix(b"/").unwrap_or(prefix);
        self.watches.unwatch(tree, directory);
        self.watches.unwatch_below(tree, directory);
    }

    /// Adds a tree.
    pub fn add_tree(&mut self, mut tree: Tree) -> TreeId {
        if let Some(id) = self.free.pop() {
            self.generations += 1;
            tree.generation = self.generations;
            self.trees[id.index()] = tree;
            return id;
        }
        self.trees.push(tree);
        self.library.add_tree();
        self.loader.add_tree();
        self.watches.add_tree();
        TreeId::new(self.trees.len() - 1)
    }

    /// Removes a tree, for which no request will ask any more. Loads under way still answer their requests. The id is
    /// given to another tree when nothing is left of this tree.
    pub fn remove_tree(&mut self, shell: &mut Shell, tree: TreeId) {
        self.replace_root(shell, tree, None);
        self.leaving.push(tree);
        self.schedule(shell);
    }

    /// Frees the ids of removed trees of which nothing is left.
    fn free_trees(&mut self) {
        let Self { trees, leaving, free, library, loader, watches, .. } = self;
        leaving.retain(|tree| {
            let tree = *tree;
            let is_left =
                loader.is_busy(tree) || !watches.is_empty(tree) || !library.is_empty(tree);
            if !is_left {
                loader.forget_devices(tree);
                trees[tree.index()].close();
                free.push(tree);
            }
            is_left
        });
    }

    /// Replaces the directory of a tree from now on. Without a new directory, requests get a 503. Nothing of the old
    /// directory stays cached. Loads under way still answer their requests from the old directory, and their resources
    /// are not cached.
    pub fn replace_root(&mut self, shell: &mut Shell, tree: TreeId, root: Option<Fd>) {
        self.generations += 1;
        self.trees[tree.index()].replace_root(root, self.generations);
        self.loader.forget_devices(tree);
        self.outdate_below(tree, b"");
        self.schedule(shell);
    }

    /// Makes room for one more watched directory: ends the watch of a directory without cached
    /// resources, or with a few that are idle.
    fn unwatch_one(&mut self, now: Time) -> bool {
        while let Some((tree, directory)) = self.library.take_emptied() {
            if self.unwatch_idle(now, tree, &directory) {
                return true;
            }
        }
        for _ in 0..UNWATCH_LOOKS_MAX {
            let Some(key) = self.watches.next_to_go() else { return false };
            let Some((tree, directory)) = self.watches.place(key) else { continue };
            if self.unwatch_idle(now, tree, &directory) {
                return true;
            }
            self.watches.spare(key);
        }
        false
    }

    /// Evicts the idle resources in a directory. If nothing else needs its events, ends its watch and returns true.
    fn unwatch_idle(&mut self, now: Time, tree: TreeId, directory: &[u8]) -> bool {
        if directory.is_empty() {
            return false;
        }
        let prefix = path::prefix(directory);
        let can_go = self.watches.is_leaf(tree, directory)
            && !self.loader.is_loading_below(tree, &prefix)
            && self.library.evict_idle_below(now, tree, &prefix, UNWATCH_EVICTIONS_MAX);
        if can_go {
            self.watches.unwatch(tree, directory);
        }
        can_go
    }

    /// Sets the timer for [`handle_tidy`](Self::handle_tidy), if there is work for it.
    fn schedule(&mut self, shell: &mut Shell) {
        let at = if self.library.has_outdated() || self.watches.has_cancels() {
            Some(shell.cx.now)
        } else {
            let idle = self.library.next_idle_look();
            let parked = self.loader.queue.next_look(shell.cx.now);
            let overdue = self.loader.next_deadline(shell.cx.tuning.timeout_disk);
            let leaving = (!self.leaving.is_empty()).then(|| shell.cx.now + LEAVING_PAUSE);
            Time::earliest([idle, parked, overdue, leaving])
        };
        let Some(at) = at else { return };
        if let Some((earlier, key)) = self.tidy {
            if earlier <= at {
                return;
            }
            shell.ring.cancel(key);
        }
        self.tidy = Some((at, shell.ring.submit(Op::Timer(at), kind::TIDY)));
    }

    /// Handles the completion of the timer: does one portion of the work that is done in portions, and all work that is
    /// due.
    pub fn handle_tidy(&mut self, shell: &mut Shell, completion: &Completion) {
        if self.tidy.is_none_or(|(_, key)| key != completion.key) {
            // An earlier timer has replaced this timer.
            return;
        }
        self.tidy = None;
        self.library.evict_outdated(TIDY_MAX);
        self.watches.cancel_some(&mut shell.ring);
        if !self.leaving.is_empty() {
            self.free_trees();
        }
        self.library.evict_idle(shell.cx.now);
        self.serve_parked(shell);
        self.give_up_overdue(shell);
        self.schedule(shell);
    }

    /// Answers requests that have waited for a disk for too long. Their loads go on, because the calls of a load can
    /// only be cancelled before they have begun.
    fn give_up_overdue(&mut self, shell: &mut Shell) {
        let patience = shell.cx.tuning.timeout_disk;
        for _ in 0..OVERDUE_MAX {
            let Some(key) = self.loader.next_overdue(shell.cx.now, patience) else { return };
            let device = self.loader.device_of(key);
            for device in [device, self.loader.found_on(key)] {
                shell.report_silence(device, Some(&self.loader.load(key).path));
            }
            let mut tickets = core::mem::take(&mut self.loader.load_mut(key).tickets);
            let reason = if self.loader.load(key).is_parked() {
                shell.complain_of_files(self.library.open_files.max());
                Reason::Crowded
            } else {
                shell.cx.stats.disk_timeouts.add(tickets.len() as u64);
                Reason::Disk
            };
            self.answer(&mut tickets, &unavailable(reason));
            if self.loader.queue.withdraw(device, key) {
                let load = self.loader.remove(key);
                self.library.open_files.release(load.reserved());
            }
        }
    }

    /// Takes the entity tags that threads have computed, and evicts the files of which a copier has new copies.
    pub fn handle_wake(&mut self, shell: &mut Shell) {
        self.hashes.handle_wake(shell, &self.trees, &mut self.library);
        while let Some(name) = self.copier.as_mut().and_then(|it| it.next_made()) {
            let Name { tree, generation, path } = name;
            // Files of an earlier directory are cached no more.
            if self.trees[tree.index()].generation == generation {
                self.library.evict(tree, &path);
            }
        }
    }
}

/// The answer of a request that cannot be served now.
const fn unavailable(reason: Reason) -> PathAnswer {
    PathAnswer::Error(Status::ServiceUnavailable, reason)
}

/// The time for which a cached resource is used without a check.
fn age_max(resource: &Resource) -> Duration {
    if resource.watched.get() { AGE_MAX_WATCHED } else { AGE_MAX }
}

/// Returns true if a file that was found through a link must not be sent, or if its own path is unknown.
fn is_target_hidden(sources: &Sources, name: &[u8], file: &Fd) -> bool {
    path_of(file).map_or(true, |path| sources.hide_target(name, &path))
}

impl core::fmt::Debug for Content {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Content({:?})", self.library)
    }
}

/// The effect of a found resource on the cache, unless it is outdated already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The resource is cached.
    Cache,
    /// The resource is not cached, because it costs too much memory or is cheap to find. An older resource of this path
    /// is evicted.
    Evict,
    /// The resource is not cached, because it changed while it was read. The event of that change evicts the cached
    /// resource.
    Leave,
}

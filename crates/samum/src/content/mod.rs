//! URL path → resource: what is served, found without waiting for it.
//!
//! A path that is known is answered from the cache. Any other begins a *load*: its directories are
//! watched, the file is opened, its state read, its precompressed siblings looked for, and, if it
//! is small, its bytes read, all through the ring. Requests for the same path join the load.
//!
//! What is cached stays as long as inode events say nothing else. Where events cannot be had
//! (network file systems, FUSE, paths through symbolic links, files with several names) it is
//! believed for [`AGE_MAX`], and looked at anew in the background from half of that on.

mod descriptors;
mod invalidate;
mod load;
mod resource;
mod tag;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use http::{Status, path};
use ring::{BufferPool, Completion, Fd, Op, Time, Token};
use sendfile::Account;

pub use resource::Finished;
pub(crate) use resource::{Data, FileSet, Kind, Resource, Variant, head as resource_head};

use crate::budget::CACHED_BYTES_MAX;
use crate::config::Tags;
use crate::shell::{Shell, kind};
use descriptors::Share;
use invalidate::Outdated;
use load::Load;
use tag::Hashes;
use watch::Dirs;

/// How long a resource is believed where changes make no events.
const AGE_MAX: Duration = Duration::from_secs(1);
/// How long where they do: writes through a shared mapping make none, nor does a mount above, and
/// neither do writes through a second name that a file is given in a directory that is not watched.
const AGE_MAX_WATCHED: Duration = Duration::from_secs(10);
/// How long an old resource is served while a slow disk is being asked for a new one.
const STALE_MAX: Duration = Duration::from_secs(10);
/// A resource with open files goes this long after it was last asked for: they keep a file system
/// busy and the space of a deleted file taken.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Files up to this size are kept in memory with their head, as finished responses: from here on
/// `sendfile` is cheaper (DESIGN.md §5).
pub(crate) const FINISHED_BYTES_MAX: u64 = 32 * 1024;
/// Larger files are not served: the ring reads nothing beyond (`ring::Ring::submit`), and what a
/// connection has promised stays far below 2⁶⁴. No disk is as large; a sparse file may be.
pub(crate) const SIZE_MAX: u64 = 1 << 62;
/// Resources held, per worker.
const RESOURCES_MAX: usize = 16 * 1024;
/// Requests that wait for the same load; one more is answered with 503. All that a thousand
/// connections may have.
const TICKETS_MAX: usize = 64 * 1024;
/// Small files being read at once, per worker; one that finds no buffer is sent as a large one.
const BUFFERS: usize = 64;
/// Names in a path; what is deeper is a 414. `PATH_MAX` would allow 2,048, each of which the kernel
/// walks through and we may have to watch; sites have up to about 20.
const DEPTH_MAX: usize = 128;
/// Keys forgotten and idle resources closed in one turn: about 0.1 ms. The rest has its turn after
/// other events.
const TIDY_MAX: usize = 256;

/// What may be configured.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) index: String,
    pub(crate) listing: bool,
    pub(crate) keep: bool,
    pub(crate) tags: Tags,
    pub(crate) descriptors_max: usize,
}

/// A path relative to the root, shared by everything that is found by it. That of a directory ends
/// in a slash, but for the root's, which is empty.
type Path = Rc<[u8]>;

/// The files below one directory, as one worker knows them.
pub(crate) struct Content {
    root: Fd,
    policy: Policy,
    /// What resources and their buffers are charged to for as long as anybody holds them.
    account: Account,
    cache: HashMap<Path, Rc<Resource>>,
    /// The keys of `cache` in order, which puts those below a directory side by side.
    in_order: BTreeSet<Path>,
    /// The keys of `cache` in the order of the clock hand, and when it was there (second chance).
    hand: VecDeque<(Path, Time)>,
    memory: usize,
    /// Resources with open files, by the time when they are to be looked at: they go if they have
    /// not been used for [`IDLE_MAX`]. The number tells those of one time apart.
    idle: BTreeMap<(Time, u64), Path>,
    next_idle: u64,
    /// Below these prefixes nothing that is cached is true any more; it goes bit by bit.
    outdated: Vec<Outdated>,
    share: Share,
    hashes: Hashes,
    loads: Vec<Option<Load>>,
    free_loads: Vec<u32>,
    by_key: BTreeMap<Path, u32>,
    dirs: Dirs,
    /// The timer of what is done bit by bit, if it runs.
    tidy: Option<(Time, ring::Key)>,
    /// Whether files cannot be opened through `/proc/self/fd`.
    no_proc: bool,
    pool: BufferPool,
    scratch: Vec<u8>,
    /// Requests whose resource has been found, for the worker to deliver.
    pub(crate) answers: Vec<(Ticket, Answer)>,
}

/// Names a request whose answer comes later. The two numbers are the caller's; the content hands them
/// back with the answer and does not look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The first number: the connection.
    pub connection: u64,
    /// The second number: the request on it.
    pub request: u32,
}

/// What a request is answered with.
#[derive(Clone, Debug)]
pub enum Answer {
    Resource(Rc<Resource>),
    /// What may be done here.
    Options,
    Error(Status),
    /// The request was understood, and is refused for this reason.
    Rejected(http::Reject),
}

/// Where a request stands.
pub(crate) enum Found {
    Now(Answer),
    /// The answer will be among [`Content::answers`].
    Later,
}

impl Content {
    pub(crate) fn new(root: Fd, policy: Policy, account: Account) -> std::io::Result<Self> {
        let size = usize::try_from(FINISHED_BYTES_MAX).expect("a small constant");
        Ok(Self {
            root,
            share: Share::new(policy.descriptors_max),
            policy,
            account,
            cache: HashMap::new(),
            in_order: BTreeSet::new(),
            hand: VecDeque::new(),
            memory: 0,
            idle: BTreeMap::new(),
            next_idle: 0,
            outdated: Vec::new(),
            hashes: Hashes::default(),
            loads: Vec::new(),
            free_loads: Vec::new(),
            by_key: BTreeMap::new(),
            dirs: Dirs::default(),
            tidy: None,
            no_proc: false,
            pool: BufferPool::new(size, BUFFERS)?,
            scratch: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// Find what a URL path names.
    pub(crate) fn find(&mut self, shell: &mut Shell, url_path: &[u8], ticket: Ticket) -> Found {
        if path::is_normal(url_path) {
            return self.find_key(shell, &url_path[1..], ticket);
        }
        let mut key = core::mem::take(&mut self.scratch);
        let found = match path::normalize(url_path, &mut key) {
            Ok(normal) => {
                if normal.directory && !key.is_empty() {
                    key.push(b'/');
                }
                self.find_key(shell, &key, ticket)
            }
            Err(error) => Found::Now(Answer::Error(error.status())),
        };
        self.scratch = key;
        found
    }

    fn find_key(&mut self, shell: &mut Shell, key: &[u8], ticket: Ticket) -> Found {
        let mut previous = None;
        if let Some(resource) = self.cache.get(key).filter(|_| !self.is_outdated(key)) {
            let age = shell.cx.now.since(resource.validated.get());
            let max = if resource.watched.get() { AGE_MAX_WATCHED } else { AGE_MAX };
            resource.used.set(shell.cx.now);
            if age < max / 2 {
                return Found::Now(Answer::Resource(Rc::clone(resource)));
            }
            let resource = Rc::clone(resource);
            let refreshing = self.by_key.contains_key(key);
            if age < max || (refreshing && age < STALE_MAX) {
                if !refreshing && !self.share.is_line_full() {
                    self.begin(shell, key, Some(Rc::clone(&resource)), None);
                }
                return Found::Now(Answer::Resource(resource));
            }
            previous = Some(resource);
        }
        if let Some(load) = self.by_key.get(key).and_then(|id| self.loads[*id as usize].as_mut()) {
            if load.tickets.len() >= TICKETS_MAX {
                return Found::Now(Answer::Error(Status::ServiceUnavailable));
            }
            load.tickets.push(ticket);
            return Found::Later;
        }
        if key.iter().filter(|byte| **byte == b'/').count() >= DEPTH_MAX {
            return Found::Now(Answer::Error(Status::UriTooLong));
        }
        if self.share.is_line_full() {
            return Found::Now(Answer::Error(Status::ServiceUnavailable));
        }
        self.begin(shell, key, previous, Some(ticket));
        Found::Later
    }

    /// Keep a resource, and make room for it.
    fn keep(&mut self, shell: &mut Shell, resource: Rc<Resource>) {
        self.forget(&resource.key);
        let key = Rc::clone(&resource.key);
        self.memory += resource.memory;
        self.share.cached += resource.descriptors;
        self.hand.push_back((Rc::clone(&key), shell.cx.now));
        self.in_order.insert(Rc::clone(&key));
        if resource.descriptors > 0 {
            self.look_when_idle(&resource, shell.cx.now + IDLE_MAX);
            self.schedule(shell);
        }
        self.cache.insert(key.clone(), resource);
        self.want_tags(shell, &key);
        let mut chances = TIDY_MAX;
        let mut steps = 2 * self.hand.len();
        while (self.memory as u64 > CACHED_BYTES_MAX
            || self.cache.len() > RESOURCES_MAX
            || self.hand.len() > 2 * RESOURCES_MAX)
            && steps > 0
        {
            steps -= 1;
            let Some((key, seen)) = self.hand.pop_front() else { break };
            match self.cache.get(&key) {
                Some(resource) if resource.used.get() > seen && chances > 0 => {
                    chances -= 1;
                    self.hand.push_back((key, shell.cx.now));
                }
                Some(_) => self.forget(&key),
                // Forgotten before; the hand only now gets there.
                None => {}
            }
        }
    }

    /// Have a resource looked at when it may have become idle.
    fn look_when_idle(&mut self, resource: &Resource, at: Time) {
        let at = (at, self.next_idle);
        self.next_idle += 1;
        resource.idle_at.set(Some(at));
        self.idle.insert(at, Rc::clone(&resource.key));
    }

    fn forget(&mut self, key: &[u8]) {
        // Not all of a long key is read to find that it is not there.
        if self.in_order.remove(key)
            && let Some(resource) = self.cache.remove(key)
        {
            if let Some(at) = resource.idle_at.take() {
                self.idle.remove(&at);
            }
            self.memory -= resource.memory;
            self.share.cached -= resource.descriptors;
            self.share.left(&resource);
            let dir = parent(key);
            if self.dirs.are_many()
                && !dir.is_empty()
                && self.cached_below(&key[..=dir.len()]).next().is_none()
            {
                self.dirs.emptied(dir);
            }
        }
    }

    fn answer(&mut self, tickets: Vec<Ticket>, answer: &Answer) {
        self.answers.extend(tickets.into_iter().map(|ticket| (ticket, answer.clone())));
    }

    /// Have [`handle_tidy`](Self::handle_tidy) called when there is something to do for it.
    fn schedule(&mut self, shell: &mut Shell) {
        let at = if !self.outdated.is_empty() || self.dirs.has_cancels() {
            Some(shell.cx.now)
        } else {
            let idle = self.idle.first_key_value().map(|((at, _), _)| *at);
            [idle, self.share.next_look(shell.cx.now)].into_iter().flatten().min()
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

    /// Do some of what is done bit by bit, or has its time.
    pub(crate) fn handle_tidy(&mut self, shell: &mut Shell, completion: &Completion) {
        if self.tidy.is_none_or(|(_, key)| key != completion.key) {
            // One that was cancelled in favour of an earlier one.
            return;
        }
        self.tidy = None;
        self.forget_outdated(TIDY_MAX);
        self.dirs.cancel_some(&mut shell.ring);
        self.close_idle(shell);
        self.serve_parked(shell);
        self.schedule(shell);
    }

    /// Close what has not been used for [`IDLE_MAX`].
    fn close_idle(&mut self, shell: &Shell) {
        for _ in 0..TIDY_MAX {
            let Some(entry) = self.idle.first_entry() else { return };
            if entry.key().0 > shell.cx.now {
                return;
            }
            let key = entry.remove();
            let resource = Rc::clone(self.cache.get(&key).expect("forgotten with its entry"));
            let until = resource.used.get() + IDLE_MAX;
            if until > shell.cx.now {
                self.look_when_idle(&resource, until);
            } else {
                resource.idle_at.set(None);
                drop(resource);
                self.forget(&key);
            }
        }
    }
}

/// The directories on the way to `key`, the root first.
fn ancestors(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let below = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &key[..at]);
    core::iter::once(&key[..0]).chain(below)
}

/// The last of [`ancestors`].
fn parent(key: &[u8]) -> &[u8] {
    let end = key.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &key[..end]
}

/// The first part of a map or set in order whose keys begin with `prefix`.
fn below<'a, V>(
    map: &'a BTreeMap<Path, V>,
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a Path, &'a V)> {
    let from = (core::ops::Bound::Included(prefix), core::ops::Bound::Unbounded);
    map.range::<[u8], _>(from).take_while(move |(key, _)| key.starts_with(prefix))
}

impl core::fmt::Debug for Content {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Content({} resources, {} bytes)", self.cache.len(), self.memory)
    }
}

/// When a load began: what it finds is at least as new as that.
type Began = Time;

const fn token(kind: Token, part: u32, id: u32) -> Token {
    kind | (part as Token) << 32 | id as Token
}

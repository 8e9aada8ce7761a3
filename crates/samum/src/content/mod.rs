//! URL path → resource: what is served, found without waiting for it.
//!
//! A path that is known is answered from the cache. Any other begins a *load*: its directories are
//! watched, the file is opened, its state read, its precompressed siblings looked for, and, if it
//! is small, its bytes read, all through the ring. Requests for the same path join the load.
//!
//! What is cached stays as long as inode events say nothing else. Where events cannot be had
//! (network file systems, FUSE, paths through symbolic links, files with several names) it is
//! believed for [`AGE_MAX`], and looked at anew in the background from half of that on.

mod invalidate;
mod listing;
mod load;
mod resource;

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use http1::{Status, path};
use ring::{BufferPool, Fd, Time, Token};
use sendfile::Account;

pub(crate) use listing::{ListingStream, escape_json};
pub(crate) use resource::{Data, FileSet, Kind, Resource, Variant, head as resource_head};

use crate::connection::Waiter;
use crate::shell::Shell;
use invalidate::Dir;
use load::Load;

/// How long a resource is believed where changes make no events.
const AGE_MAX: Duration = Duration::from_secs(1);
/// How long where they do: writes through a shared mapping make none, and neither do those through a
/// second name that a file is given in a directory that is not watched.
const AGE_MAX_WATCHED: Duration = Duration::from_secs(10);
/// How long an old resource is served while a slow disk is being asked for a new one.
const STALE_MAX: Duration = Duration::from_secs(10);

/// Files up to this size are kept in memory with their head, as finished responses: from here on
/// `sendfile` is cheaper (DESIGN.md §5).
pub(crate) const FINISHED_BYTES_MAX: u64 = 64 * 1024;
/// Larger files are not served: the ring reads nothing beyond (`ring::Ring::submit`), and what a
/// connection has promised stays far below 2⁶⁴. No disk is as large; a sparse file may be.
pub(crate) const SIZE_MAX: u64 = 1 << 62;
/// Memory for finished responses, per worker.
pub(crate) const MEMORY_MAX: usize = 64 * 1024 * 1024;
/// Resources held, per worker.
const RESOURCES_MAX: usize = 16 * 1024;
/// Small files being read at once, per worker; one that finds no buffer is sent as a large one.
const BUFFERS: usize = 64;

/// What may be configured.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) index: String,
    pub(crate) listing: bool,
    pub(crate) keep: bool,
    pub(crate) descriptors_max: usize,
}

/// The files below one directory, as one worker knows them.
pub(crate) struct Content {
    root: Fd,
    policy: Policy,
    /// What resources and their buffers are charged to for as long as anybody holds them.
    account: Account,
    cache: HashMap<Box<[u8]>, Rc<Resource>>,
    /// The keys of `cache` in the order of the clock hand (second chance).
    hand: VecDeque<Box<[u8]>>,
    memory: usize,
    descriptors: usize,
    loads: Vec<Option<Load>>,
    free_loads: Vec<u32>,
    by_key: HashMap<Box<[u8]>, u32>,
    dirs: HashMap<Box<[u8]>, Dir>,
    dir_keys: HashMap<u32, Box<[u8]>>,
    next_dir: u32,
    pool: BufferPool,
    scratch: Vec<u8>,
    /// Requests whose resource has been found, for the worker to deliver.
    pub(crate) answers: Vec<(Waiter, Answer)>,
}

/// What a request is answered with.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Resource(Rc<Resource>),
    /// What may be done here.
    Options,
    Error(Status),
    /// It was no request.
    Rejected(http1::Reject),
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
            policy,
            account,
            cache: HashMap::new(),
            hand: VecDeque::new(),
            memory: 0,
            descriptors: 0,
            loads: Vec::new(),
            free_loads: Vec::new(),
            by_key: HashMap::new(),
            dirs: HashMap::new(),
            dir_keys: HashMap::new(),
            next_dir: 0,
            pool: BufferPool::new(size, BUFFERS)?,
            scratch: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// Find what a URL path names.
    pub(crate) fn find(&mut self, shell: &mut Shell, url_path: &[u8], waiter: Waiter) -> Found {
        if path::is_normal(url_path) {
            return self.find_key(shell, &url_path[1..], waiter);
        }
        let mut key = core::mem::take(&mut self.scratch);
        let found = match path::normalize(url_path, &mut key) {
            Ok(normal) => {
                if normal.directory && !key.is_empty() {
                    key.push(b'/');
                }
                self.find_key(shell, &key, waiter)
            }
            Err(error) => Found::Now(Answer::Error(error.status())),
        };
        self.scratch = key;
        found
    }

    /// A key is a path relative to the root; that of a directory ends in a slash, but for the
    /// root's, which is empty.
    fn find_key(&mut self, shell: &mut Shell, key: &[u8], waiter: Waiter) -> Found {
        if let Some(resource) = self.cache.get(key) {
            let age = shell.now.since(resource.validated.get());
            let max = if resource.watched.get() { AGE_MAX_WATCHED } else { AGE_MAX };
            resource.used.set(true);
            if age < max / 2 {
                return Found::Now(Answer::Resource(Rc::clone(resource)));
            }
            let resource = Rc::clone(resource);
            let refreshing = self.by_key.contains_key(key);
            if age < max || resource.watched.get() || (refreshing && age < STALE_MAX) {
                if !refreshing {
                    self.begin(shell, key, Some(Rc::clone(&resource)), None);
                }
                return Found::Now(Answer::Resource(resource));
            }
        }
        if let Some(load) = self.by_key.get(key).and_then(|id| self.loads[*id as usize].as_mut()) {
            load.waiters.push(waiter);
        } else {
            let previous = self.cache.get(key).cloned();
            self.begin(shell, key, previous, Some(waiter));
        }
        Found::Later
    }

    /// Keep a resource, and make room for it.
    fn keep(&mut self, resource: Rc<Resource>) {
        self.forget(&resource.key.clone());
        self.memory += resource.memory;
        self.descriptors += resource.descriptors;
        self.hand.push_back(resource.key.clone());
        self.cache.insert(resource.key.clone(), resource);
        let mut steps = 2 * self.hand.len();
        while (self.memory > MEMORY_MAX
            || self.descriptors > self.policy.descriptors_max
            || self.cache.len() > RESOURCES_MAX
            || self.hand.len() > 2 * RESOURCES_MAX)
            && steps > 0
        {
            steps -= 1;
            let Some(key) = self.hand.pop_front() else { break };
            match self.cache.get(&key) {
                Some(resource) if resource.used.replace(false) => self.hand.push_back(key),
                Some(_) => self.forget(&key),
                // Forgotten before; the hand only now gets there.
                None => {}
            }
        }
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(resource) = self.cache.remove(key) {
            self.memory -= resource.memory;
            self.descriptors -= resource.descriptors;
        }
    }

    fn answer(&mut self, waiters: Vec<Waiter>, answer: &Answer) {
        self.answers.extend(waiters.into_iter().map(|waiter| (waiter, answer.clone())));
    }
}

/// The directories on the way to `key`, the root first.
fn ancestors(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let below = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &key[..at]);
    core::iter::once(&key[..0]).chain(below)
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

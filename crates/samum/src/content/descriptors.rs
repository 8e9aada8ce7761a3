//! Open files of one worker: those cached, those that responses hold, those being looked for.
//!
//! All are counted in one share. Loads beyond it stand in line, so that no open fails because of
//! others. A load that finds a large file, whose descriptor stays open as long as the response, is
//! *parked* until there is room: small files, which need their descriptors for a moment only, pass
//! it by.

use core::time::Duration;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use ring::Time;
use sendfile::File;

use super::resource::{Kind, Resource};
use super::{Content, IDLE_MAX};
use crate::shell::Shell;

/// Descriptors that one load has open at most: one for each part, and one being opened.
const PER_LOAD: usize = super::load::PARTS + 1;
/// Loads that wait for their turn; a request beyond that is answered with 503. As many as 1,024
/// connections can ask for at once.
const LINE_MAX: usize = 64 * 1024;
/// Memory of all loads; at it the same. They outlive the connections that asked for them.
const LOAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How often parked loads are looked at. Responses end without a word to us.
const PARKED_LOOK: Duration = Duration::from_millis(10);
/// A load that has been parked for so long goes on beyond the share, one in this time: what holds
/// the descriptors may be answers of its own connection, behind its own in line.
const PARKED_MAX: Duration = Duration::from_millis(100);
/// Resources looked at to make room for one more; there are others to close later.
const CLOSES_MAX: usize = 64;
/// Files of responses looked at the first time that there are so many.
const PRUNE_MIN: usize = 64;

/// Who has how many descriptors, and who waits for some.
#[derive(Debug)]
pub(super) struct Share {
    /// Files that may be open for as long as the cache or a response wants.
    max: usize,
    /// Of files in the cache.
    pub(super) cached: usize,
    /// Of loads that were let in and have not ended.
    pub(super) reserved: usize,
    /// Memory of all loads.
    pub(super) load_bytes: usize,
    /// Files that have left the cache, or never were in it, while responses hold them.
    leaving: Vec<Weak<File>>,
    /// When `leaving` has this length it is looked through.
    prune_at: usize,
    loads_max: usize,
    loading: usize,
    /// Loads that have not begun.
    line: VecDeque<u32>,
    /// Loads of large files that wait for room, and since when.
    parked: VecDeque<(u32, Time)>,
    /// When the last one went on beyond the share.
    beyond: Time,
}

impl Share {
    /// `max` is an eighth of the worker's descriptors, for files that stay open; half as many again
    /// are for loads, the other half is for pipes.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            cached: 0,
            reserved: 0,
            load_bytes: 0,
            leaving: Vec::new(),
            prune_at: PRUNE_MIN,
            loads_max: (max / 2 / PER_LOAD).max(1),
            loading: 0,
            line: VecDeque::new(),
            parked: VecDeque::new(),
            beyond: Time::default(),
        }
    }

    /// A resource is no longer in the cache, or never was; responses may hold its files.
    pub(super) fn left(&mut self, resource: &Rc<Resource>) {
        let Kind::File(files) = &resource.kind else { return };
        let shared = Rc::strong_count(resource) > 1;
        let held = files.files().filter(|file| shared || Rc::strong_count(file) > 1);
        self.leaving.extend(held.map(Rc::downgrade));
        if self.leaving.len() >= self.prune_at {
            self.prune();
        }
    }

    fn prune(&mut self) {
        self.leaving.retain(|file| file.strong_count() > 0);
        self.prune_at = PRUNE_MIN.max(2 * self.leaving.len());
    }

    fn held(&self) -> usize {
        self.cached + self.leaving.len() + self.reserved
    }

    pub(super) fn is_line_full(&self) -> bool {
        self.line.len() + self.parked.len() >= LINE_MAX || self.load_bytes >= LOAD_BYTES_MAX
    }

    /// Take a place for a load, or a place in line.
    pub(super) fn enter(&mut self, id: u32) -> bool {
        if self.loading < self.loads_max {
            self.loading += 1;
            return true;
        }
        self.line.push_back(id);
        false
    }

    /// A load gives its place back; returns the one that takes it.
    pub(super) fn leave(&mut self) -> Option<u32> {
        let next = self.line.pop_front();
        self.loading -= usize::from(next.is_none());
        next
    }

    pub(super) fn park(&mut self, id: u32, now: Time) {
        self.parked.push_back((id, now));
    }

    /// When parked loads are to be looked at.
    pub(super) fn next_look(&self, now: Time) -> Option<Time> {
        (!self.parked.is_empty()).then(|| now + PARKED_LOOK)
    }
}

impl Content {
    /// Close cached files that nobody uses, the idlest first, until `count` more may be open.
    pub(super) fn make_room(&mut self, shell: &Shell, count: usize) -> bool {
        let fits = |share: &Share| share.held() + count <= share.max.max(count);
        if fits(&self.share) {
            return true;
        }
        self.share.prune();
        for _ in 0..CLOSES_MAX {
            if fits(&self.share) {
                return true;
            }
            let Some(((due, _), key)) = self.idle.pop_first() else { return false };
            let resource = Rc::clone(self.cache.get(&key).expect("forgotten with its entry"));
            resource.idle_at.set(None);
            let again = resource.used.get() + IDLE_MAX;
            // Our own, and the cache's.
            let is_sent = Rc::strong_count(&resource) > 2 || resource.is_sent();
            if is_sent || again > due {
                let again = if is_sent { shell.cx.now + IDLE_MAX } else { again };
                self.look_when_idle(&resource, again);
            } else {
                drop(resource);
                self.forget(&key);
            }
        }
        fits(&self.share)
    }

    /// Let parked loads go on for which there is room now.
    pub(super) fn serve_parked(&mut self, shell: &mut Shell) {
        while let Some(&(id, since)) = self.share.parked.front() {
            let count = self.loads[id as usize].as_ref().map_or(0, |load| load.large);
            if !self.make_room(shell, count) {
                let overdue = shell.cx.now.since(since.max(self.share.beyond)) >= PARKED_MAX;
                let most = self.share.max + self.share.max / 2;
                if !overdue || self.share.held() + count > most {
                    return;
                }
                self.share.beyond = shell.cx.now;
            }
            self.share.parked.pop_front();
            self.unpark(shell, id);
            if self.share.held() > self.share.max {
                return;
            }
        }
    }
}

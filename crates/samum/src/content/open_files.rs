//! Descriptors of files that stay open: those cached, those that responses hold, and those that
//! loads are about to open.

use std::rc::{Rc, Weak};

use sendfile::File;

use super::resource::{Kind, Resource};

/// Files of responses looked at the first time that there are so many.
const PRUNE_MIN: usize = 64;

/// The share of descriptors for files that stay open, and its use.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max: usize,
    cached: usize,
    /// Of loads that found room and have not ended.
    reserved: usize,
    /// Files of resources that are not in the cache, while responses hold them.
    leaving: Vec<Weak<File>>,
    /// When `leaving` has this length, files that were closed are taken out.
    prune_at: usize,
}

impl OpenFiles {
    pub(super) const fn new(max: usize) -> Self {
        Self { max, cached: 0, reserved: 0, leaving: Vec::new(), prune_at: PRUNE_MIN }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Descriptors in use, or reserved.
    pub(super) fn held(&self) -> usize {
        self.cached + self.leaving.len() + self.reserved
    }

    /// Whether so many more may be open. One load always fits where nothing else is open.
    pub(super) fn fits(&self, count: usize) -> bool {
        self.held() + count <= self.max.max(count)
    }

    /// Counts files that a load will keep open, before they are open.
    pub(super) const fn reserve(&mut self, count: usize) {
        self.reserved += count;
    }

    /// A load that had reserved so many has ended.
    pub(super) const fn release(&mut self, count: usize) {
        self.reserved -= count;
    }

    /// A resource enters the cache.
    pub(super) fn cache(&mut self, resource: &Resource) {
        self.cached += resource.descriptors;
    }

    /// A resource leaves the cache; responses may hold its files.
    pub(super) fn evict(&mut self, resource: &Rc<Resource>) {
        self.cached -= resource.descriptors;
        self.follow(resource);
    }

    /// Counts the files of a resource that is not in the cache for as long as responses hold them.
    pub(super) fn follow(&mut self, resource: &Rc<Resource>) {
        let Kind::File(files) = &resource.kind else { return };
        let shared = Rc::strong_count(resource) > 1;
        let held = files.files().filter(|file| shared || Rc::strong_count(file) > 1);
        self.leaving.extend(held.map(Rc::downgrade));
        if self.leaving.len() >= self.prune_at {
            self.prune();
        }
    }

    /// Takes out files that were closed.
    pub(super) fn prune(&mut self) {
        self.leaving.retain(|file| file.strong_count() > 0);
        self.prune_at = PRUNE_MIN.max(2 * self.leaving.len());
    }
}

//! Counts the descriptors of files that stay open: files in the cache, files that responses hold,
//! and files that loads are about to open.

use std::rc::{Rc, Weak};

use sendfile::File;

use super::resource::{Kind, Resource};

/// The minimum length of `leaving` before closed files are removed.
const PRUNE_MIN: usize = 64;

/// The worker's share of descriptors for files that stay open, and the number in use.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max: usize,
    cached: usize,
    /// The descriptors that are reserved for loads that found room and have not ended.
    reserved: usize,
    /// Files that are not in the cache and that responses may still hold.
    leaving: Vec<Weak<File>>,
    /// The length of `leaving` at which closed files are removed.
    prune_at: usize,
}

impl OpenFiles {
    pub(super) const fn new(max: usize) -> Self {
        Self { max, cached: 0, reserved: 0, leaving: Vec::new(), prune_at: PRUNE_MIN }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// The number of descriptors that are in use or reserved.
    pub(super) fn held(&self) -> usize {
        self.cached + self.leaving.len() + self.reserved
    }

    /// Returns true if `count` more files may be open. While no other file is open, any count fits.
    pub(super) fn fits(&self, count: usize) -> bool {
        self.held() + count <= self.max.max(count)
    }

    /// Reserves descriptors for a load, before it opens its files.
    pub(super) const fn reserve(&mut self, count: usize) {
        self.reserved += count;
    }

    /// Ends the reservation of a load that has ended.
    pub(super) const fn release(&mut self, count: usize) {
        self.reserved -= count;
    }

    /// Counts the files of a resource that enters the cache.
    pub(super) fn cache(&mut self, resource: &Resource) {
        self.cached += resource.descriptors;
    }

    /// Counts the files of a resource that leaves the cache; responses may still hold them.
    pub(super) fn evict(&mut self, resource: &Rc<Resource>) {
        self.cached -= resource.descriptors;
        self.track(resource);
    }

    /// Counts the files of a resource that is not in the cache, as long as responses hold them.
    pub(super) fn track(&mut self, resource: &Rc<Resource>) {
        let Kind::File(files) = &resource.kind else { return };
        let shared = Rc::strong_count(resource) > 1;
        let held = files.files().filter(|file| shared || Rc::strong_count(file) > 1);
        self.leaving.extend(held.map(Rc::downgrade));
        if self.leaving.len() >= self.prune_at {
            self.prune();
        }
    }

    /// Removes closed files from `leaving`.
    pub(super) fn prune(&mut self) {
        self.leaving.retain(|file| file.strong_count() > 0);
        self.prune_at = PRUNE_MIN.max(2 * self.leaving.len());
    }
}

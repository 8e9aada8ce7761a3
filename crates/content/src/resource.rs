//! A resource: the file or directory that a path names, with its prepared responses.

use core::cell::Cell;
use std::rc::Rc;

use ring::Time;
use sendfile::Charge;

use super::entries::Entries;
use super::path::Path;
use crate::tree::TreeId;
use session::files::FileSet;

/// The maximum size of a file that is served. The ring reads nothing beyond (`ring::Ring::submit`),
/// and the promised bytes of a connection stay far below 2⁶⁴. No disk is so large, but a sparse
/// file may be.
pub(crate) const SIZE_MAX: u64 = 1 << 62;

/// The resource of a path. The cache shares it with the requests that it answers.
#[derive(Debug)]
pub struct Resource {
    pub(super) tree: TreeId,
    /// Its path in the tree.
    pub path: Path,
    /// Which of the names of an index the file has, if the path is that of a directory.
    pub index: usize,
    /// The kind of the object that the path names.
    pub kind: Kind,
    /// A time at which the resource was still true; it may have been true for longer.
    pub(super) validated: Cell<Time>,
    /// True if changes make events.
    pub(super) watched: Cell<bool>,
    /// True if the last change of its files was long enough ago when they were examined. Otherwise
    /// different bytes may have the same size and times.
    pub(super) settled: bool,
    /// The time of the last request.
    pub(super) used: Cell<Time>,
    /// Its key in the cache's list of resources that may become idle; `Some` while it is in that list.
    pub(super) idle_at: Cell<Option<(Time, u64)>>,
    /// The approximate number of bytes of memory that it holds.
    pub memory: usize,
    /// The number of open files that it holds.
    pub(super) descriptors: usize,
    /// The charge for memory other than the buffers of its files, which are charged separately.
    pub(super) _charge: Charge,
}

/// The thing that a path names.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all that are cached are files")]
pub enum Kind {
    /// A file.
    File(FileSet),
    /// A directory that was requested without its slash.
    Redirect,
    /// A page that was requested by another path than its clean path. The clean path is the beginning of that path; the
    /// number is its length in bytes.
    Unclean(usize),
    /// The entries of a directory without an index.
    Directory(Rc<Entries>),
}

impl Resource {
    /// Returns whether a response holds one of its files.
    pub(crate) fn is_sent(&self) -> bool {
        let Kind::File(files) = &self.kind else { return false };
        files.files().any(|file| Rc::strong_count(file) > 1)
    }
}

impl Resource {
    /// A resource, for tests of what is given one.
    pub fn sample(path: &str, kind: Kind) -> Rc<Self> {
        Rc::new(Self {
            tree: TreeId::new(0),
            path: path.as_bytes().into(),
            index: 0,
            kind,
            validated: Time::default().into(),
            watched: false.into(),
            settled: false,
            used: Time::default().into(),
            idle_at: None.into(),
            memory: 0,
            descriptors: 0,
            _charge: sendfile::Account::default().charge(0),
        })
    }
}

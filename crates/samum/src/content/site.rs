//! A site: a directory that is served, and how it is served.

use ring::Fd;

use crate::config::Tags;

/// Names one site of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteId(usize);

impl SiteId {
    /// The only site that can be configured today.
    pub(crate) const FIRST: Self = Self(0);

    /// The site's place in a list with one entry for each site.
    pub(super) const fn index(self) -> usize {
        self.0
    }

    /// The names of so many sites.
    pub(super) fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count).map(Self)
    }
}

/// A directory that is served.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: Fd,
    pub(crate) policy: Policy,
}

/// How the files of a site are served.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// The name of the file that is served for a directory.
    pub(crate) index: String,
    /// Whether a directory without that file is listed.
    pub(crate) listing: bool,
    /// Whether the page cache keeps the files that were read.
    pub(crate) keep: bool,
    pub(crate) tags: Tags,
}

//! The root directory of a site, and the rules by which its files are served.

use ring::Fd;

use crate::config::Tags;

/// A site: a directory that is served.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: Fd,
    pub(crate) policy: Policy,
}

/// The rules by which the files of a site are served.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// The name of the file that is served for a directory.
    pub(crate) index: String,
    /// True if a directory without that file is listed.
    pub(crate) listing: bool,
    /// True if the page cache keeps the files that were read.
    pub(crate) keep: bool,
    /// The source of entity tags.
    pub(crate) tags: Tags,
}

//! A site: a directory that is served, and how it is served.

use ring::Fd;

use crate::config::Tags;

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

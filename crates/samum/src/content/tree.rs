//! A tree: a directory that is served, and the rules by which its files are served.

use std::sync::Arc;

use ring::Fd;
use sendfile::Caching;

use crate::config::FileRules;

/// A directory that is served.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Fd,
    pub(crate) rules: Arc<FileRules>,
}

impl Tree {
    /// Returns whether the page cache keeps the files that were read.
    pub(crate) fn keeps(&self) -> bool {
        self.rules.policy.caching != Caching::Never
    }
}

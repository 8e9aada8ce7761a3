//! A tree: a directory that is served, and the rules by which its files are served.

use std::sync::Arc;

use ring::Fd;
use sendfile::Caching;

use crate::config::FileRules;
use crate::fields::{self, Rules};
use crate::serving::{Sources, TreeSpec};

/// A directory that is served.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The open directory; `None` once the tree is removed.
    root: Option<Fd>,
    /// True while there is no directory at the path of the tree. Loads under way go on in the old one.
    pub(crate) is_lost: bool,
    pub(crate) rules: Arc<FileRules>,
    /// The path of the root directory in URLs, with a slash at both ends.
    pub(crate) prefix: Box<[u8]>,
    /// The rules for the fields of its files.
    pub(crate) fields: Rules,
    /// The files that are not sent, because they are run, if there may be some.
    pub(crate) sources: Option<Arc<Sources>>,
}

impl Tree {
    pub(crate) fn new(root: Fd, spec: &TreeSpec) -> Self {
        let TreeSpec { rules, prefix, fields, sources, .. } = spec.clone();
        Self { root: Some(root), is_lost: false, rules, prefix, fields, sources }
    }

    /// The open directory.
    pub(crate) fn root(&self) -> &Fd {
        self.root.as_ref().expect("no request asks for a tree that was removed")
    }

    /// Takes another directory; `None` if there is none at the path of the tree.
    pub(crate) fn replace_root(&mut self, root: Option<Fd>) {
        self.is_lost = root.is_none();
        if root.is_some() {
            self.root = root;
        }
    }

    /// Closes the directory of a tree that is removed.
    pub(crate) fn close(&mut self) {
        self.root = None;
    }

    /// Returns whether the page cache keeps the files that were read.
    pub(crate) fn keeps(&self) -> bool {
        self.rules.policy.caching != Caching::Never
    }

    /// The rules for the fields of a file that is found by a path.
    pub(super) fn fields_of(&self, file: &[u8], path: &[u8]) -> Rules {
        if self.fields.is_empty() {
            return Rules::new();
        }
        let [file, path] = [file, path].map(|path| [&self.prefix, path].concat());
        fields::matching(&self.fields, &[&file, &path])
    }
}

//! A tree: a directory that is served, and the rules by which its files are served.

use std::path::Path;
use std::sync::Arc;

use ring::Fd;
use sendfile::Caching;

use crate::sources::Sources;
use config::FileRules;
use session::fields::{self, Rules};

/// A directory that is served, and its rules.
#[derive(Debug)]
pub struct Tree {
    /// The open directory; `None` once the tree is removed.
    root: Option<Fd>,
    /// The number of the directory among those that were served in place of another one since the worker began: 0 if this
    /// is the first directory of its tree's id.
    pub(crate) generation: u64,
    /// True while there is no directory at the path of the tree. Loads under way go on in the old one.
    pub(crate) is_lost: bool,
    /// The path of the directory, for the operator.
    pub(crate) directory: Arc<Path>,
    pub(crate) rules: Arc<FileRules>,
    /// The path of the root directory in URLs, with a slash at both ends.
    pub(crate) prefix: Box<[u8]>,
    /// The rules for the fields of its files.
    pub(crate) fields: Rules,
    /// The files that are not sent because they are run, if there may be some.
    pub(crate) sources: Option<Arc<Sources>>,
}

/// A directory with the rules for its files, as a worker's content needs it.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    /// The index of its directory among those that are served.
    pub root: usize,
    /// The path of this directory.
    pub directory: Arc<Path>,
    /// The rules by which its files are served.
    pub rules: Arc<FileRules>,
    /// The path of its directory in URLs, with a slash at both ends.
    pub prefix: Box<[u8]>,
    /// The rules for the fields of its files.
    pub fields: Rules,
    /// The files that are not sent, because they are run, if there may be some.
    pub sources: Option<Arc<Sources>>,
}

impl TreeSpec {
    /// Returns whether all responses about its files are those of another tree of the same directory.
    pub fn is_served_as(&self, other: &Self) -> bool {
        // The path is needed for the rules for fields alone.
        let is_same_path = self.fields.is_empty() || self.prefix == other.prefix;
        let is_same = self.rules == other.rules && self.fields == other.fields;
        is_same && self.sources == other.sources && is_same_path
    }
}

impl Tree {
    /// The tree of an open directory.
    pub fn new(root: Fd, spec: &TreeSpec) -> Self {
        let TreeSpec { directory, rules, prefix, fields, sources, .. } = spec.clone();
        Self {
            root: Some(root),
            generation: 0,
            is_lost: false,
            directory,
            rules,
            prefix,
            fields,
            sources,
        }
    }

    /// The open directory.
    pub(crate) fn root(&self) -> &Fd {
        self.root.as_ref().expect("no request asks for a tree that was removed")
    }

    /// Replaces the directory; `None` if there is none at the path of the tree. `generation` is the number of the new
    /// directory.
    pub(crate) fn replace_root(&mut self, root: Option<Fd>, generation: u64) {
        self.generation = generation;
        self.is_lost = root.is_none();
        if root.is_some() {
            self.root = root;
        }
    }

    /// Closes the directory of a tree that is removed.
    pub(crate) fn close(&mut self) {
        self.root = None;
    }

    /// Returns true if the page cache keeps the files that were read.
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

/// The number of a tree. A directory that several routes serve is a tree for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(u32);

impl TreeId {
    /// The id of the tree at this position of a list.
    ///
    /// # Panics
    ///
    /// If there are 2³² trees before it.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer trees than 2³²"))
    }

    /// The position in a list with one entry for each tree.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

//! Copies of files in codings, such as compressed ones, that stand in no file.
//!
//! A copier answers immediately: with a copy that it has, or with none. It makes a copy that takes long on a thread beside
//! the worker's ring ([`Ring::beside`](ring::Ring::beside)), which wakes the worker when the copy is made. Then the copier
//! names the file, and the file is loaded anew with its copy.

use core::fmt;

use config::FileRules;
use http::Coding;
use ring::{Fd, Stat};
use session::shell::Shell;

use super::path::Path;
use super::tree::TreeId;

/// Makes copies of files, or has made them. The copier limits its threads, its jobs and the copies that it keeps. Only
/// tests have one yet.
pub trait Copier: fmt::Debug {
    /// The copy of a file in a coding for which there is no precompressed file, if the copier has it. The copier is asked
    /// each time that the file is loaded, unless a change made the load outdated. A watched file that has not changed is
    /// not loaded again. A copy is cached as long as its file is.
    fn copy(
        &mut self,
        shell: &mut Shell,
        original: &Original<'_>,
        coding: Coding,
    ) -> Option<Copied>;

    /// The next file of which the copier has a new copy since it was asked. The file leaves the cache, so the next request
    /// loads it with the copy. The copier is asked until there is none, after each wake-up of the ring with the token
    /// [`kind::WAKE`](session::kind::WAKE).
    fn next_made(&mut self) -> Option<Name> {
        None
    }
}

/// The file of which a copy is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// Its name in the cache.
    pub name: &'a Name,
    /// The rules of its tree.
    pub rules: &'a FileRules,
    /// The file when it was looked at.
    pub stat: &'a Stat,
    /// Its media type.
    pub content_type: &'a str,
    /// Its bytes, if they were read into memory: those of a small file.
    pub bytes: Option<&'a [u8]>,
    /// The file itself, for a thread that reads it ([`Ring::detach`](ring::Ring::detach)). The file may change meanwhile.
    pub file: &'a Fd,
}

/// The name of a cached file: the directory of a tree, and a path in this directory. No other directory gets the same
/// names: neither a directory that replaces this one, nor one that the tree's id is given to after a reload. The file at
/// the path may change; a copier recognizes that by [`Original::stat`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub(super) tree: TreeId,
    /// The number of the directory: see [`Tree`](super::Tree).
    pub(super) generation: u64,
    pub(super) path: Path,
}

/// A copy of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The entity tag, with quotes; empty if there is none. Copies with the same tag have the same bytes.
    pub etag: Vec<u8>,
}

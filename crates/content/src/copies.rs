//! Copies of files in codings, such as compressed ones, that stand in no file.

use core::fmt;

use http::Coding;
use ring::Stat;

/// Makes copies of files, or has made them. Only tests have one yet.
pub trait Copier: fmt::Debug {
    /// The copy of a file in a coding for which there is no precompressed file. The copier is asked each time that the file
    /// is loaded, and answers immediately: a copy that takes long has to be made elsewhere before. A watched file that has
    /// not changed is not loaded again, so such a copy is used only after the file has left the cache. A copy is cached as
    /// long as its file is.
    fn copy(&mut self, original: &Original<'_>, coding: Coding) -> Option<Copied>;
}

/// The file of which a copy is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// The file when it was looked at.
    pub stat: &'a Stat,
    /// Its media type.
    pub content_type: &'a str,
    /// Its bytes, if they were read into memory: those of a small file.
    pub bytes: Option<&'a [u8]>,
}

/// A copy of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The entity tag, with quotes; empty if there is none. Copies with the same tag have the same bytes.
    pub etag: Vec<u8>,
}

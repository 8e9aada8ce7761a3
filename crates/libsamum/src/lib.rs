//! `libsamum`: [`sendfile::Calls`] for C. `include/samum.h` is its documentation.
//!
//! [`abi`] has the functions that C calls: it checks pointers, and calls safe code. [`queue`] has the
//! safe code: names instead of references, and errnos instead of errors. [`sigpipe`] blocks SIGPIPE.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the pointers and descriptors that C hands over")]
mod abi;
mod errno;
mod queue;
#[allow(unsafe_code, reason = "masks of signals")]
mod sigpipe;

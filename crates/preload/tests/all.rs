//! All tests of the crate from outside that may share a process: one program is linked once, and its tests wait together.

mod caching;
mod common;
mod loops;
mod odd_programs;
mod servers;
mod soak;

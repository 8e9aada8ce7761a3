//! All tests of the crate from outside that may share a process: one program is linked once, and its tests wait together.

mod calls;
mod copies;
mod cyclic_file;
mod direct;
mod examples;
mod faults;
mod file_systems;
mod overwritten;
mod readahead;
mod sharing;
mod stream;
mod transports;
mod turns;

//! All tests of the crate from outside that may share a process: one program is linked once, and its tests wait together.

mod command;
mod disk;
mod league;
mod readme;
mod reasons;

//! All tests of the crate from outside that may share a process: one program is linked once, and its tests wait together.

mod capture;
mod hosts;
mod misbehaviour;
mod scripts;
mod sharing;
mod throughput;
mod worlds;

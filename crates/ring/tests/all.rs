//! All tests of the crate from outside that may share a process: one program is linked once, and its tests wait together.

mod beside;
mod broken;
mod contract;
mod drop;
mod idle;
mod simulation;

//! The tests with disks that are slow, that fail, or that do not answer, and those that take all of some resource.

mod common;
mod faults;
mod slow_disk;

//! Pages with directives, as clients get them from the binary.

#[path = "../common/mod.rs"]
#[allow(unused, reason = "the other tests use the rest")]
mod common;

mod disks;
mod holes;
mod nginx;
mod pages;
mod stage;

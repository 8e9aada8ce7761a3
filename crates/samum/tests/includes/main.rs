//! Pages with directives, as clients get them from the binary.

#[path = "../common/mod.rs"]
#[allow(unused, reason = "the other tests use the rest")]
mod common;

#[path = "../fastcgi/application.rs"]
#[allow(unused, reason = "other tests use the rest")]
mod application;
mod disks;
mod holes;
mod limits;
mod nginx;
mod pages;
mod servers;
mod stage;

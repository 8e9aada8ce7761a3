//! Pages with directives, as clients get them from the binary.

mod disks;
mod holes;
mod limits;
mod nginx;
mod pages;
mod servers;
mod stage;

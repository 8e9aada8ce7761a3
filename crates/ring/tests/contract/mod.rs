//! The contract of every driver: one suite of behaviours, run on io_uring, epoll and the simulation.
//!
//! A behaviour that cannot apply to a driver is listed under `on_real_drivers!` with the reason.
//! Tests of the whole process's descriptors and limits are in `descriptors.rs`, tests of all its threads in
//! `signals.rs`.

#[macro_use]
pub(crate) mod stage;
mod acknowledgements;
mod cancel;
mod changes;
mod children;
mod connect;
mod file_watches;
mod files;
mod pressure;
mod signals;
mod sockets;
mod time;
mod watches;

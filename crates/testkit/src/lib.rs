//! Tools that samum's tests share. For tests only: a failure in here panics with the reason, or says why the
//! test cannot run on this machine.
//!
//! | part | for |
//! |---|---|
//! | [`SlowFs`] | a mounted file system that sleeps, fails or cheats on command |
//! | [`Disk`] | a real file system on a device whose end can become unreadable |
//! | [`HungDisk`] | a real file system on a device that stops answering |
//! | [`Subvolumes`] | a real btrfs and an overlay: several device numbers of one disk |
//! | [`Throttle`] | a real disk made slow for chosen processes |
//! | [`Tree`], [`Content`] | directories of files whose every byte can be checked |
//! | [`evict()`], [`evict_unused`] | a file that is not in memory, or only as far as it is in use |
//! | [`built()`] | programs and libraries of other packages of the workspace |
//! | [`Server`] | the built `samum` as a process: start, watch, terminate |
//! | [`metrics::Metrics`] | a strict parser of the page `/metrics` |
//! | [`Client`], [`get`] | an HTTP client that shares no code with the server under test |
//! | [`http2::Http2`] | a client of HTTP/2, honest or not |
//! | [`with_few_descriptors`], [`assert_accepts_after_crowd`], [`assert_unavailable_in_crowd`] | a server that has no free descriptor for a while |
//! | [`MiddleBox`], [`Tap`] | a path that loses, delays and reorders frames between two interfaces |
//! | [`ip()`], [`within`] | network namespaces, and code that runs in one |
//! | [`forbid_io_uring`], [`forbid_use_of_io_uring`], [`forbid_landlock`], [`kill_at`] | a child process without io_uring or Landlock, or killed for some system calls |
//! | [`Random`], [`Seed`] | numbers that a seed determines |
//! | [`tether()`] | a child process that does not outlive the test |
//! | [`skip!`], [`or_skip!`] | skip a test that this machine cannot run, except in CI |

#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails; see above")]

mod any_certificate;
mod built;
mod client;
mod content;
mod crowd;
mod disk;
mod evict;
mod fuse;
pub mod http2;
pub mod metrics;
mod middle_box;
mod namespace;
mod random;
mod response;
mod seccomp;
mod server;
mod skip;
mod tether;
mod throttle;
mod tree;

pub use any_certificate::AnyCertificate;
pub use built::built;
pub use client::{Address, Client, get, request};
pub use content::Content;
pub use crowd::{assert_accepts_after_crowd, assert_unavailable_in_crowd, with_few_descriptors};
pub use disk::{Disk, HungDisk, Image, Mounted, Subvolumes};
pub use evict::{evict, evict_unused};
pub use fuse::{Op, SlowFs, SlowFsBuilder};
pub use middle_box::{MiddleBox, Tap};
pub use namespace::{ip, within};
pub use random::{Random, Seed};
pub use response::{Framing, Response};
/// A signal for [`Server::signal`].
pub use rustix::process::Signal;
pub use seccomp::{forbid_io_uring, forbid_landlock, forbid_use_of_io_uring, kill_at};
pub use server::Server;
pub use skip::{Skip, announce_skip};
pub use tether::tether;
pub use throttle::Throttle;
pub use tree::Tree;

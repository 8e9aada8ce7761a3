//! The server gives up rights when its sockets are open: its user, its capabilities, and the access to files that the
//! server does not need.
//!
//! These rights belong to threads, and a thread inherits the rights of the thread that starts it. So the first thread
//! gives up rights before there are other threads: by [`drop_rights`], and then by [`confine_process`]. No right can be
//! regained.
//!
//! A program that the server starts inherits the access to files, too. To give a program less access, a thread takes on
//! a [`Layer`] of its own, starts the program and ends. So no code runs between fork and exec.
//!
//! The number of descriptors is a right, too, and the only one that grows ([`descriptors`]).

#![forbid(unsafe_code)]

mod capabilities;
pub mod descriptors;
mod layer;
mod rules;
mod support;
mod user;

pub use capabilities::drop_rights;
pub use layer::{Confined, Layer, confine_process, is_confined};
pub use rules::{Access, Rules};
pub use support::Support;
pub use user::User;

//! The server gives up rights when its sockets are open: its user, its capabilities, and the access to files that it
//! does not need.
//!
//! All of it belongs to threads, and a thread inherits it from the thread that starts it. So it is given up in the first
//! thread, before there are others: [`drop_rights`], and then [`confine_process`]. Nothing of it can be regained.
//!
//! A program that the server starts inherits the access to files, too, and may have less: a thread takes on a [`Layer`] of
//! its own, starts the program and ends. So no code runs between fork and exec.

#![forbid(unsafe_code)]

mod capabilities;
mod layer;
mod rules;
mod support;
mod user;

pub use capabilities::drop_rights;
pub use layer::{Confined, Layer, confine_process, is_confined};
pub use rules::{Access, Rules};
pub use support::Support;
pub use user::User;

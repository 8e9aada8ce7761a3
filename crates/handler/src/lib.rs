//! The parts that answer requests: files, pages, programs, and other servers.
//!
//! [`router::Router`] finds the destination of a request in the served configuration, and lets the other parts answer.
//! The contract between a handler and its callers is that of [`session::handler`].

pub mod attach;
pub mod challenges;
pub mod desk;
pub(crate) mod files;
pub mod guard;
mod includes;
pub(crate) mod listing;
pub(crate) mod metrics;
pub mod regular_file;
pub mod router;
pub mod serving;
pub mod status_page;
mod viewers;

pub(crate) use session::handler::whole_body;
pub use session::handler::{
    AnswerSize, BODY_BYTES_END, Body, BodySink, CONSUMER_ROOM_MIN, Consumer, Finished, Found,
    Handler, Interim, Keep, Made, Part, Parts, Produced, Producer, Request, Response, Search,
    Terms, Ticket, Whole,
};
pub(crate) use session::page;

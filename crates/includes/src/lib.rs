//! Pages with directives (server-side includes): their language, and the content of a page.
//!
//! ```text
//!  bytes of a file ──Parser──► Template (text and directives) ──Evaluator──► Step, Step, Step …
//!                                      Facts of a request ────────▲
//! ```
//!
//! A [`Template`] is parsed once for each version of a file. It keeps the positions of the text, because the text
//! is sent from the file. An [`Evaluator`] goes through a template for one request, and returns the parts of the
//! page in order: a range of the file, some bytes, the response to another path.
//!
//! The language is the common part of Apache's `mod_include` and nginx's `ngx_http_ssi_module`: `include`,
//! `echo`, `set`, `if`, `elif`, `else`, `endif` and `config`. Where the two differ, these rules hold:
//!
//! - Names of variables are compared without case, so `QUERY_STRING` and `$query_string` are the same.
//! - A comparison is of text: there are no regular expressions, `&&` and `||`. Such a condition is an error, and
//!   is false.
//! - An included page begins with the variables of the page that includes it, and changes only its own, so that
//!   includes do not wait for one another. `DOCUMENT_URI`, `DOCUMENT_NAME` and `LAST_MODIFIED` are those of the
//!   page that the client requested; the query is the included page's own.
//! - The pages of a response share one [`Memory`]. A page that is evaluated ahead of its sending waits when the
//!   memory is full. A variable that does not fit even then is an error.
//! - All times are in UTC, even `DATE_LOCAL`.
//! - A directive that cannot be understood, or has no end, is replaced by the error message. A directive without
//!   an end may hide text that only some users may see, so it is never sent as text.

#![forbid(unsafe_code)]

mod directive;
mod evaluator;
mod expression;
mod fault;
mod memory;
mod parser;
mod timefmt;
mod variables;
mod work;

pub use evaluator::{Evaluator, IF_DEPTH_MAX, Scope, Step, VARIABLES_MAX};
pub use expression::VALUE_BYTES_MAX;
pub use fault::Fault;
pub use memory::{BYTES_MAX, Memory, Share};
pub use parser::{Parser, Template};
pub use variables::Facts;
pub use work::WORK_MAX;

#[cfg(test)]
mod tests;

//! HTTP/1.0 and 1.1 (RFC 9110, RFC 9112) over real sockets, on both drivers: the table of cases, and
//! tests that need processes, changing files, a clock, or a view of the server from outside.

mod bodies;
mod conditions;
mod costs;
mod curl;
mod files;
mod fixed;
mod heads;
mod images;
mod links;
mod loads;
mod messages;
mod metrics;
mod other_protocols;
mod paths;
mod pipelining;
mod rules;
mod site;
mod status_page;
pub(crate) mod table;

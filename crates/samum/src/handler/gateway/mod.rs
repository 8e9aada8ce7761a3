//! What all gateways share: routes whose answers are made by something else, a program or another server.

pub(in crate::handler) mod bodies;
pub(in crate::handler) mod input;
pub(in crate::handler) mod interest;
pub(in crate::handler) mod lines;
pub(in crate::handler) mod names;
pub(in crate::handler) mod output;

//! What all gateways share: routes whose answers are made by something else, a program or another server.

pub(in crate::handler) mod bodies;
pub(in crate::handler) mod body;
pub(in crate::handler) mod lines;
pub(in crate::handler) mod names;

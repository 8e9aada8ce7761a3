//! The rules by RFC and section, and a random network.

mod network;
mod rules;

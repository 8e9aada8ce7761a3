//! Does it scale?
pub mod load;

//! All tests of the crate from outside that may share a process: one program is linked once, and its tests wait together.

mod device;
mod dns;
mod echo;
#[path = "support/net.rs"]
mod net;
#[path = "support/running.rs"]
mod running;

// The modules of the example, which bring tests of their own.
#[path = "../examples/dns/answers.rs"]
mod answers;
#[path = "../examples/dns/message.rs"]
mod message;
#[path = "../examples/dns/name.rs"]
mod name;
#[path = "../examples/dns/zone.rs"]
mod zone;

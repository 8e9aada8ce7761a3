//! An authoritative DNS server for a zone file. If the address is the kernel's, the server uses only the port.
//!
//! `dns INTERFACE ADDRESS:PORT ZONEFILE ORIGIN [auto|xdp|packet|tap]`

use core::error::Error;
use std::sync::Arc;
use std::{env, fs};

use answers::Zone;
use name::Name;
use netdev::{Frames, Protocol};
use server::Server;

mod answers;
mod message;
mod name;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod zone;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "dns INTERFACE ADDRESS:PORT ZONEFILE ORIGIN [auto|xdp|packet|tap]";
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [interface, local, file, origin, frames @ ..] = &arguments[..] else {
        return Err(usage.into());
    };
    let frames = match frames {
        [] => support::frames_of(interface),
        [word] => match &word[..] {
            "auto" => Frames::Auto,
            "xdp" => Frames::Xdp,
            "packet" => Frames::Packet,
            "tap" => Frames::Tap,
            _ => return Err(usage.into()),
        },
        _ => return Err(usage.into()),
    };
    let zone = Arc::new(load(file, origin)?);
    let protocols = [Protocol::Udp, Protocol::Tcp];
    let program = || Server::new(Arc::clone(&zone));
    Err(support::run(interface, frames, local.parse()?, &protocols, program).unwrap_err())
}

/// Loads a zone file. An error message begins with the file, and the line if there is one.
fn load(file: &str, origin: &str) -> Result<Zone, Box<dyn Error>> {
    let origin = Name::parse(origin.as_bytes(), &Name::root())?;
    let text = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let zone = zone::parse(&text, &origin).and_then(|records| Zone::new(records, &origin));
    Ok(zone.map_err(|error| format!("{file}:{error}"))?)
}

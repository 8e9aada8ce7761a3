//! The side of the new process: its origin, and the sockets and keys from the process before.

use core::time::Duration;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::fs::SealFlags;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Signal, getpid, kill_process};
use zeroize::Zeroizing;

use super::handover::{self, Handed, HandedAddress, Handover};
use super::machine::Successor;
use super::{Elders, packet, starter};
use crate::activation::{self, Activation};
use crate::exit;
use config::{Address, UnixSocket};
use logs::say::say;

/// The time for each packet of a hand-over.
const PACKET_MAX: Duration = Duration::from_secs(10);
/// The time in which the process before says that it is replaced, after this process is ready.
const RELEASE_MAX: Duration = Duration::from_secs(60);
/// The seals of the description: its writer cannot change it while it is read.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK);

pub(super) const READY: &[u8] = b"ready";
pub(super) const FAILED: &[u8] = b"failed ";
pub(super) const RELEASED: &[u8] = b"released";

/// The origin of the process: an operator, a service manager, or the starter of an earlier process.
#[derive(Debug)]
pub struct Origin {
    /// The line to the starter, or the reason why there is no starter.
    pub(crate) line: Result<OwnedFd, String>,
    /// The sockets of a service manager.
    pub(crate) activation: Activation,
    /// The connection to the process before, if there is one.
    channel: Option<Arc<OwnedFd>>,
    inheritance: Option<Inheritance>,
}

impl Origin {
    /// Finds the origin of the process, and makes the starter if the process is the first. Callers call this before any
    /// thread is started and before any right is given up.
    ///
    /// # Errors
    ///
    /// A message for the operator, if the sockets of an earlier process cannot be taken.
    pub fn find() -> Result<Self, String> {
        let stdin = rustix::stdio::stdin();
        let is_line = socket_domain(stdin) == Ok(AddressFamily::UNIX)
            && socket_type(stdin) == Ok(SocketType::SEQPACKET);
        if !is_line {
            exit::note_inherited_sockets();
            let activation = Activation::of_process()?;
            let line = starter::make();
            return Ok(Self { line, activation, channel: None, inheritance: None });
        }
        // From here on the end of this process must not shut down the sockets that the process before uses.
        exit::share_listeners(true);
        let line = fcntl_dupfd_cloexec(stdin, 3).map_err(|error| cannot_take(&error))?;
        let null = File::open("/dev/null").map_err(|error| cannot_take(&error))?;
        rustix::stdio::dup2_stdin(null).map_err(|error| cannot_take(&error))?;
        exit::note_inherited_sockets();
        let channel = match packet::receive(&line, PACKET_MAX) {
            Ok(Some(mut packet)) if packet.bytes == starter::CHANNEL => packet.descriptors.pop(),
            _ => None,
        };
        let channel = channel.ok_or_else(|| {
            "standard input is a socket of the kind by which a starter of samum speaks, and no starter does".to_owned()
        })?;
        let channel = Arc::new(channel);
        // The sockets of a service manager are among those that are handed over.
        let activation = Activation::default();
        let origin = Self { line: Ok(line), activation, channel: Some(channel), inheritance: None };
        match origin.receive() {
            Ok(inheritance) => Ok(Self { inheritance: Some(inheritance), ..origin }),
            Err(error) => {
                origin.fail(&error);
                Err(error)
            }
        }
    }

    /// Tells the process before why this process cannot serve.
    pub fn fail(&self, why: &str) {
        self.reporter().fail(why);
    }

    /// Reports errors after the origin was used.
    pub(crate) fn reporter(&self) -> Reporter {
        Reporter(self.channel.clone())
    }

    /// Returns the sockets and keys that the process before has handed over, at the first call only.
    pub(crate) fn take_inheritance(&mut self) -> Option<Inheritance> {
        self.inheritance.take()
    }

    /// Takes the sockets and keys that the process before hands over.
    fn receive(&self) -> Result<Inheritance, String> {
        let channel = self.channel.as_ref().ok_or("there is no process before")?;
        let next = || match packet::receive(channel, PACKET_MAX) {
            Ok(Some(packet)) => Ok(packet),
            Ok(None) => Err("the process before has given the upgrade up".to_owned()),
            Err(error) => Err(cannot_take(&error)),
        };
        let description = next()?.descriptors.pop().ok_or_else(other_version)?;
        let mut handover = read(description)?;
        if handover.has_manager {
            exit::leave_to_manager();
        }
        let address = |place| match place {
            HandedAddress::Ip(ip) => Address::Ip(ip),
            HandedAddress::Unix(path, _) => {
                Address::Unix(UnixSocket { path, ..UnixSocket::default() })
            }
        };
        let names = core::mem::take(&mut handover.names).into_iter();
        let names = names.map(|(name, place)| (name, address(place)));
        activation::inherit_names(names.collect());
        let mut descriptors = Vec::new();
        while descriptors.len() < handover.descriptors() {
            let mut packet = next()?;
            if packet.descriptors.is_empty() {
                return Err(other_version());
            }
            descriptors.append(&mut packet.descriptors);
        }
        let mut descriptors = descriptors.into_iter();
        let listeners = handover.listeners.into_iter().map(|handed| {
            let sockets = descriptors.by_ref().take(handed.sockets as usize).collect();
            (handed, sockets)
        });
        let listeners = listeners.collect();
        let control =
            handover.control.and_then(|(path, file)| Some((path, file, descriptors.next()?)));
        let elders = descriptors.map(Arc::new).collect();
        Ok(Inheritance {
            channel: Arc::clone(channel),
            listeners,
            control,
            tickets: handover.tickets,
            elders,
            taken: Vec::new(),
        })
    }
}

/// The connection to the process before, if there is one, to report errors.
#[derive(Debug)]
pub(crate) struct Reporter(Option<Arc<OwnedFd>>);

impl Reporter {
    /// Tells the process before why this process cannot serve.
    pub(crate) fn fail(&self, why: &str) {
        let why: String = why.chars().take(packet::BYTES_MAX / 8).collect();
        if let Some(channel) = &self.0 {
            // The call fails if the process before has gone, or waits no more.
            let _ = packet::send(channel, &[FAILED, why.as_bytes()].concat(), &[]);
        }
    }
}

/// Reads the description, which must be sealed.
fn read(description: OwnedFd) -> Result<Handover, String> {
    let seals = rustix::fs::fcntl_get_seals(&description).map_err(|error| cannot_take(&error))?;
    let len = rustix::fs::fstat(&description).map_err(|error| cannot_take(&error))?.st_size;
    let len = u64::try_from(len).ok().filter(|len| *len <= handover::BYTES_MAX);
    let len = len.filter(|_| seals.contains(SEALS)).ok_or_else(other_version)?;
    let len = usize::try_from(len).map_err(|_| other_version())?;
    let mut bytes = Zeroizing::new(vec![0; len]);
    File::from(description).read_exact(&mut bytes).map_err(|error| cannot_take(&error))?;
    Handover::from_bytes(&bytes).ok_or_else(other_version)
}

fn other_version() -> String {
    "the process before hands over in a form that this version does not know: restart the server"
        .to_owned()
}

fn cannot_take(error: &dyn core::fmt::Display) -> String {
    format!("cannot take over from the process before: {error}")
}

/// The sockets and keys that the process before has handed over.
#[derive(Debug)]
pub(crate) struct Inheritance {
    channel: Arc<OwnedFd>,
    /// The listeners with their sockets.
    listeners: Vec<(Handed, Vec<OwnedFd>)>,
    /// The control socket, its path and its file.
    control: Option<(PathBuf, (u64, u64), OwnedFd)>,
    /// The keys of session tickets.
    pub(crate) tickets: Zeroizing<Vec<u8>>,
    elders: Vec<Arc<OwnedFd>>,
    /// The numbers, in the process before, of the listeners that this process serves.
    taken: Vec<u32>,
}

/// The sockets of a listener, and the file of a Unix socket.
pub(crate) type HandedOver = (Vec<OwnedFd>, Option<(u64, u64)>);

impl Inheritance {
    /// Takes the sockets of the listener at an address, if the process before had such a listener.
    pub(crate) fn take(&mut self, address: &Address) -> Option<HandedOver> {
        let is_its = |(handed, _): &(Handed, _)| match (&handed.address, address) {
            (HandedAddress::Ip(handed), Address::Ip(ip)) => handed == ip,
            (HandedAddress::Unix(path, _), Address::Unix(unix)) => *path == unix.path,
            _ => false,
        };
        let (handed, sockets) = self.listeners.remove(self.listeners.iter().position(is_its)?);
        self.taken.push(handed.number);
        let file = match handed.address {
            HandedAddress::Ip(_) => None,
            HandedAddress::Unix(_, file) => file,
        };
        Some((sockets, file))
    }

    /// Takes the control socket, if the process before had a control socket at this path.
    pub(crate) fn take_control(
        &mut self,
        path: &Path,
        number: u32,
    ) -> Option<((u64, u64), OwnedFd)> {
        let (_, file, socket) = self.control.take_if(|(handed, _, _)| handed == path)?;
        self.taken.push(number);
        Some((file, socket))
    }

    /// Says that this process serves. Once the process before is replaced, `take_over` is called, and `elders` has the
    /// connection to the process before. If that process is never replaced, this process stops. The receiver that is
    /// returned is disconnected when one of the two has been done.
    ///
    /// # Errors
    ///
    /// A message for the operator, if the process before has gone or has given the upgrade up.
    pub(crate) fn settle(
        self,
        line: &Result<OwnedFd, String>,
        elders: Arc<Elders>,
        take_over: impl FnOnce() + Send + 'static,
    ) -> Result<Receiver<()>, String> {
        let Self { channel, taken, elders: earlier, .. } = self;
        if let Ok(line) = line {
            // The call fails if the starter has gone. A starter that has gone does not kill this process.
            let _ = packet::send(line, starter::SETTLED, &[]);
        }
        let successor = Successor { pid: process::id(), listeners: taken };
        packet::send(&channel, &ready(&successor), &[])
            .map_err(|error| format!("the process before has given the upgrade up: {error}"))?;
        let (undecided, decision) = mpsc::channel();
        let wait = move || {
            match packet::receive(&channel, RELEASE_MAX) {
                Ok(Some(packet)) if packet.bytes == RELEASED => {
                    exit::share_listeners(false);
                    elders.add(earlier);
                    elders.add([channel]);
                    // A stop that came before this has reached no earlier process.
                    if exit::is_stopping() {
                        elders.stop();
                    }
                    take_over();
                }
                _ => {
                    say("the process before goes on serving: this one ends");
                    // This process handles the signal like a signal of an operator, and ends its connections. After a
                    // signal of an operator it would be the second one, which cuts connections off.
                    if !exit::is_stopping() {
                        let _ = kill_process(getpid(), Signal::TERM);
                    }
                }
            }
            drop(undecided);
        };
        let spawned = thread::Builder::new().name("predecessor".to_owned()).spawn(wait);
        spawned.map(|_| decision).map_err(|error| format!("cannot start a thread: {error}"))
    }
}

/// The packet that says that a process is ready.
fn ready(successor: &Successor) -> Vec<u8> {
    let numbers = [successor.pid].into_iter().chain(successor.listeners.iter().copied());
    READY.iter().copied().chain(numbers.flat_map(u32::to_be_bytes)).collect()
}

/// Reads the packet that says that a process is ready.
pub(super) fn read_ready(bytes: &[u8]) -> Option<Successor> {
    let (numbers, []) = bytes.strip_prefix(READY)?.as_chunks() else { return None };
    let mut numbers = numbers.iter().map(|number| u32::from_be_bytes(*number));
    Some(Successor { pid: numbers.next()?, listeners: numbers.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_ready_names_itself_and_its_listeners() {
        for listeners in [vec![], vec![3], vec![1, u32::MAX, 7]] {
            let successor = Successor { pid: 4711, listeners };
            assert_eq!(read_ready(&ready(&successor)), Some(successor));
        }
        for bytes in [&b"ready"[..], b"ready123", b"failed 1", b""] {
            assert_eq!(read_ready(bytes), None);
        }
    }

    #[test]
    fn a_description_that_can_change_is_refused() {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let make = || {
            let file = memfd_create("handover", flags).unwrap();
            rustix::io::pwrite(&file, &Handover::default().to_bytes(), 0).unwrap();
            file
        };
        let sealed = make();
        fcntl_add_seals(&sealed, SEALS).unwrap();
        assert_eq!(read(sealed.try_clone().unwrap()).unwrap(), Handover::default());
        assert!(read(make()).is_err());
        let half = make();
        fcntl_add_seals(&half, SealFlags::WRITE).unwrap();
        assert!(read(half).is_err());
    }
}

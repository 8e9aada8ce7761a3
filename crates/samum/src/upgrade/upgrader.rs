//! The side of the process that is replaced.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{PipeWriter, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use super::handover::{Handed, HandedAddress, Handover};
use super::machine::{Event, State, Step, Successor};
use super::successor::{FAILED, RELEASED, read_ready};
use super::{Elders, STOP, packet, starter};
use crate::certificates::Certificates;
use crate::control::Workers;
use crate::listen::{CONTROL, SocketFiles};
use crate::reload::Current;
use crate::{activation, descriptor_store, exit, notify};
use config::{Address, Listen};
use logs::say::say;

/// The time for a reload that is under way.
const RELOAD_MAX: Duration = Duration::from_secs(10);
/// The pause between two waits for a packet of the process that has replaced this process.
const WAIT_PAUSE: Duration = Duration::from_secs(3600);
/// The pause between two looks at the shutdown and at the lock of the configuration, which change without a packet.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The parts of the server that an upgrade uses.
pub(crate) struct Parts {
    /// The line to the starter, or the reason why there is no starter.
    pub(crate) line: Result<OwnedFd, String>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) socket_files: Arc<SocketFiles>,
    pub(crate) certificates: Arc<Certificates>,
    /// The configuration that is served.
    pub(crate) current: Arc<Mutex<Current>>,
    /// The control socket and its path, if there is one.
    pub(crate) control: Option<(PathBuf, OwnedFd)>,
    pub(crate) elders: Arc<Elders>,
}

/// Replaces the process when the operator asks for it.
pub(crate) struct Upgrader {
    parts: Parts,
    begin: Instant,
    state: Mutex<State>,
    /// The process that has replaced this process, until this process accepts no more.
    successor: Mutex<Option<Successor>>,
    /// Closed when this process accepts no more commands.
    commands: Mutex<Option<PipeWriter>>,
}

impl Upgrader {
    /// `commands` is closed when the process accepts no more commands. If the process is about to replace another
    /// process, the caller calls [`settle`](Self::settle) after the replacement.
    pub(crate) fn new(parts: Parts, commands: PipeWriter, is_successor: bool) -> Self {
        Self {
            parts,
            begin: Instant::now(),
            state: Mutex::new(if is_successor { State::Arriving } else { State::Idle }),
            successor: Mutex::default(),
            commands: Mutex::new(Some(commands)),
        }
    }

    /// Starts a process that replaces this process, and waits for the replacement. Then the caller calls
    /// [`leave`](Self::leave). Returns a sentence about the upgrade.
    ///
    /// # Errors
    ///
    /// Lines for the operator. The process serves as before, and the last line says so.
    pub(crate) fn run(&self) -> Result<String, String> {
        // Where upgrades are not possible, nothing could have changed.
        let as_before = |why| match &self.parts.line {
            Ok(_) => format!("{why}\nno upgrade; process {} serves as before", std::process::id()),
            Err(_) => why,
        };
        let result = self.replace().map_err(as_before);
        // An error in a file has several lines of text.
        let (Ok(text) | Err(text)) = &result;
        text.lines().for_each(say);
        result
    }

    /// The process has replaced another process, so it can be replaced itself.
    pub(crate) fn settle(&self) {
        self.handle(Event::Settled);
    }

    /// The line to the starter, or the reason why there is no starter.
    pub(crate) const fn line(&self) -> &Result<OwnedFd, String> {
        &self.parts.line
    }

    /// Returns true once another process has replaced this process.
    pub(crate) fn is_replaced(&self) -> bool {
        *lock(&self.state) == State::Draining
    }

    /// If another process has replaced this process, accepts no more connections, and ends when all connections have
    /// ended.
    pub(crate) fn leave(&self) {
        if let Some(successor) = lock(&self.successor).take() {
            // The names that are left belong to listeners that the new process does not have.
            self.parts.socket_files.close();
            self.parts.workers.leave(&successor.listeners);
        }
    }

    fn replace(&self) -> Result<String, String> {
        let line = self.parts.line.as_ref().map_err(|why| format!("{why}: restart the server"))?;
        if let Step::Refuse(why) = self.handle(Event::Asked) {
            return Err(why);
        }
        let mut run = Run { upgrader: self, line, channel: None };
        let result = run.carry_out();
        if result.is_err() {
            exit::share_listeners(false);
            // A step outside of the machine may have failed.
            *lock(&self.state) = State::Idle;
        }
        result
    }

    fn handle(&self, event: Event) -> Step {
        lock(&self.state).handle(self.begin.elapsed(), event)
    }

    /// Keeps the configuration as it is until the guard is dropped.
    fn keep_configuration(&self) -> Result<MutexGuard<'_, Current>, String> {
        let deadline = Instant::now() + RELOAD_MAX;
        loop {
            match self.parts.current.try_lock() {
                Ok(current) => return Ok(current),
                Err(TryLockError::Poisoned(error)) => return Ok(error.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(LOOK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err("a reload is under way, and does not end".to_owned());
                }
            }
        }
    }
}

/// An upgrade that is under way.
struct Run<'u> {
    upgrader: &'u Upgrader,
    line: &'u OwnedFd,
    /// The connection to the new process.
    channel: Option<OwnedFd>,
}

impl Run<'_> {
    fn carry_out(&mut self) -> Result<String, String> {
        let upgrader = self.upgrader;
        let mut current = upgrader.keep_configuration()?;
        // Packets that came too late for an earlier upgrade are dropped.
        while let Ok(Some(_)) = packet::take(self.line) {}
        // If the starter has gone, the next wait finds this out.
        let _ = packet::send(self.line, starter::START, &[]);
        loop {
            let event = self.next();
            match upgrader.handle(event) {
                Step::HandOver => self.hand_over(&current.listeners)?,
                Step::Release(successor) => return self.release(successor, &mut current),
                Step::GiveUp(why) | Step::Refuse(why) => return Err(why),
                Step::Nothing | Step::Start => {}
            }
        }
    }

    /// Waits for the next event.
    fn next(&mut self) -> Event {
        if self.upgrader.parts.workers.is_stopping() {
            return Event::Stop;
        }
        let all: Vec<BorrowedFd<'_>> =
            [Some(self.line.as_fd()), self.channel.as_ref().map(OwnedFd::as_fd)]
                .into_iter()
                .flatten()
                .collect();
        let ready = packet::wait(&all, Some(LOOK_PAUSE));
        // A packet of the starter comes before the end of the process that the packet is about.
        if ready[0] {
            return match packet::take(self.line) {
                Ok(Some(mut packet)) if packet.bytes == starter::CHANNEL => {
                    self.channel = packet.descriptors.pop();
                    Event::Started
                }
                Ok(Some(packet)) => match packet.bytes.strip_prefix(starter::REFUSED) {
                    Some(why) => Event::Refused(text(why)),
                    None => Event::Tick,
                },
                Ok(None) => Event::Refused("the starter has ended: restart the server".to_owned()),
                Err(_) => Event::Tick,
            };
        }
        if let (Some(true), Some(channel)) = (ready.get(1), &self.channel) {
            return match packet::take(channel) {
                Ok(Some(packet)) => {
                    match (read_ready(&packet.bytes), packet.bytes.strip_prefix(FAILED)) {
                        (Some(successor), _) => Event::Ready(successor),
                        (_, Some(why)) => Event::Failed(text(why)),
                        _ => Event::Tick,
                    }
                }
                Ok(None) => Event::Ended,
                Err(_) => Event::Tick,
            };
        }
        Event::Tick
    }

    /// Hands the listeners, the control socket and the keys of tickets over.
    fn hand_over(&mut self, listeners: &[(u32, Listen)]) -> Result<(), String> {
        let parts = &self.upgrader.parts;
        let channel = self.channel.as_ref().ok_or("the starter has sent no socket")?;
        let mut sockets: BTreeMap<u32, Vec<OwnedFd>> = parts.workers.sockets()?;
        let elders = parts.elders.alive();
        let mut handover =
            Handover { tickets: parts.certificates.ticket_keys(), ..Handover::default() };
        let mut descriptors = Vec::new();
        for (number, listen) in listeners {
            let sockets = sockets.remove(number).unwrap_or_default();
            let address = match &listen.address {
                Address::Ip(ip) => HandedAddress::Ip(*ip),
                Address::Unix(unix) => {
                    HandedAddress::Unix(unix.path.clone(), parts.socket_files.numbers(*number))
                }
            };
            let count = u32::try_from(sockets.len()).map_err(|_| "too many sockets")?;
            handover.listeners.push(Handed { number: *number, address, sockets: count });
            descriptors.extend(sockets);
        }
        let mut borrowed: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
        if let (Some((path, socket)), Some(file)) =
            (&parts.control, parts.socket_files.numbers(CONTROL))
        {
            handover.control = Some((path.clone(), file));
            borrowed.push(socket.as_fd());
        }
        handover.has_manager = exit::has_manager();
        let place = |address: &Address| match address {
            Address::Ip(ip) => HandedAddress::Ip(*ip),
            Address::Unix(unix) => HandedAddress::Unix(unix.path.clone(), None),
        };
        let names = activation::names().iter();
        handover.names = names.map(|(name, address)| (name.clone(), place(address))).collect();
        handover.elders = u32::try_from(elders.len()).map_err(|_| "too many processes")?;
        // A stop that has begun meanwhile has removed the names. The new process would make others, which nobody removes.
        if parts.socket_files.is_closed() {
            return Err("the server is shutting down".to_owned());
        }
        borrowed.extend(elders.iter().map(|elder| elder.as_fd()));
        // From here on the end of this process must not shut down the sockets that the new process uses.
        exit::share_listeners(true);
        let description = description(&handover)
            .map_err(|error| format!("cannot describe what is handed over: {error}"))?;
        let sent = packet::send(channel, b"handover", &[description.as_fd()]).and_then(|()| {
            let mut packets = borrowed.chunks(packet::DESCRIPTORS_MAX);
            packets.try_for_each(|some| packet::send(channel, b"descriptors", some))
        });
        match sent {
            // The end of the new process comes as an event, perhaps with the reason.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(format!("cannot hand over {} descriptors: {error}", borrowed.len())),
        }
    }

    /// Lets the new process take over.
    fn release(&mut self, successor: Successor, current: &mut Current) -> Result<String, String> {
        let Upgrader { parts, .. } = self.upgrader;
        let channel = self.channel.take().ok_or("the starter has sent no socket")?;
        let Some(files) = parts.socket_files.give_away(&successor.listeners) else {
            return Err("the server is shutting down".to_owned());
        };
        if packet::send(&channel, RELEASED, &[]).is_err() {
            parts.socket_files.add(files);
            return Err("the new process has ended right after it said that it is ready".to_owned());
        }
        let taken =
            current.listeners.iter().filter(|(number, _)| successor.listeners.contains(number));
        let file = |number: &u32| {
            let found = files.iter().find(|(other, _)| other == number);
            found.map(|(_, file)| file.identity().numbers())
        };
        let taken = taken.map(|(number, listen)| (&listen.address, file(number)));
        descriptor_store::keep_only(taken);
        notify::end(successor.pid);
        files.into_iter().for_each(|(_, file)| file.give_away());
        current.is_replaced = true;
        parts.elders.forget();
        drop(lock(&self.upgrader.commands).take());
        let text = format!(
            "process {} serves now; process {} accepts no more and finishes its connections",
            successor.pid,
            std::process::id()
        );
        *lock(&self.upgrader.successor) = Some(successor);
        let obey = move || {
            loop {
                match packet::receive(&channel, WAIT_PAUSE) {
                    Ok(Some(packet)) if packet.bytes == STOP => {
                        // The server handles this signal like a signal of an operator.
                        let _ = kill_process(getpid(), Signal::TERM);
                        return;
                    }
                    Ok(Some(_)) | Err(Errno::TIMEDOUT) => {}
                    Ok(None) | Err(_) => return,
                }
            }
        };
        // Without the thread this process ends when its connections have.
        let _ = thread::Builder::new().name("successor".to_owned()).spawn(obey);
        Ok(text)
    }
}

/// The description as a file in memory that no process can change.
fn description(handover: &Handover) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let mut file = File::from(memfd_create("samum-handover", flags)?);
    file.write_all(&handover.to_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

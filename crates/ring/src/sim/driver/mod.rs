//! A ring in the simulated world.

mod file;
mod socket;

use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use crate::common::{Common, Slot};
use crate::fd::{Fd, Handle};
use crate::op::{Caching, Event, Op};
use crate::recv::{self, RecvPool};
use crate::slab::Key;
use crate::timers::Time;

use crate::sim::process::Awaited;
use crate::sim::world::{Due, World};
use crate::sim::{Flag, Waiter, errno};

/// The driver of one simulated ring.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) world: World,
    pub(crate) ring: usize,
    recv: Rc<RecvPool>,
    /// For sockets that were connected, if their receives are wide.
    wide: Rc<RecvPool>,
    /// Receives that found no free buffer.
    starved: Vec<Key>,
    /// By read: the pages that it brings in.
    brought: BTreeMap<u64, Vec<usize>>,
    pub(crate) woken: Flag,
}

impl Sim {
    pub(crate) fn new(world: &World) -> io::Result<Self> {
        let woken = Flag::default();
        let ring = {
            let mut state = world.state();
            state.due.push(Vec::new());
            state.woken.push(Flag::clone(&woken));
            state.due.len() - 1
        };
        Ok(Self {
            world: world.clone(),
            ring,
            recv: RecvPool::with_list(recv::SMALL)?,
            wide: RecvPool::with_list(recv::WIDE)?,
            starved: Vec::new(),
            brought: BTreeMap::new(),
            woken,
        })
    }

    pub(crate) fn take_woken(&self) -> bool {
        // Acquire pairs with the release in `Waker::wake`.
        self.woken.swap(false, Ordering::Acquire)
    }

    pub(crate) fn submit(&mut self, common: &mut Common, key: Key) {
        let who = Waiter::new(self.ring, key);
        let mut state = self.world.state();
        let now = state.now;
        let slot = common.table.get_mut(key).expect("just inserted");
        let planned = match &slot.op {
            Op::Accept(fd) => state
                .listener(fd.raw())
                .and_then(|listener| state.begin_accept(listener, who))
                .map(|()| now + state.latency(|config| &config.network)),
            // There and back.
            Op::Connect(_) => {
                let there = state.latency(|config| &config.network);
                Ok(now + there + state.latency(|config| &config.network))
            }
            Op::Recv(fd) | Op::Readable(fd) => state.conn(fd.raw()).map(|conn| {
                debug_assert!(state.conns[conn].reader.is_none(), "one reader of {fd:?}");
                state.conns[conn].reader = Some(who);
                now + state.latency(|config| &config.network)
            }),
            Op::Writable(fd) => state.conn(fd.raw()).map(|conn| {
                debug_assert!(state.conns[conn].writer.is_none(), "one writer of {fd:?}");
                state.conns[conn].writer = Some(who);
                now + state.latency(|config| &config.network)
            }),
            Op::Acknowledgements(fd) => state.conn(fd.raw()).map(|conn| {
                state.conns[conn].acknowledgements = Some(who);
                now + state.latency(|config| &config.network)
            }),
            Op::Read { file, offset, buf, caching } => {
                let (offset, want, caching) = (*offset, buf.want(), *caching);
                let begun = state.begin_read(file.raw(), offset, want, caching);
                begun.map(|(ready, brought)| {
                    self.brought.insert(key.to_bits(), brought);
                    ready
                })
            }
            Op::Splice { file, offset, pipe } => {
                let (offset, want) = (*offset, pipe.want());
                let begun = match state.config.splice_errno {
                    Some(error) => Err(errno(error)),
                    None => state.begin_read(file.raw(), offset, want, Caching::Keep),
                };
                begun.map(|(ready, brought)| {
                    self.brought.insert(key.to_bits(), brought);
                    ready
                })
            }
            Op::Signal(number) => {
                let begun = state.process.wait_for(Awaited::Signal(*number), who);
                begun.map(|()| state.after_network()).map_err(errno)
            }
            Op::Child(pid) => {
                let begun = state.process.wait_for(Awaited::Child(*pid), who);
                begun.map(|()| state.after_network()).map_err(errno)
            }
            Op::Write { .. } => Ok(now + state.latency(|config| &config.cache)),
            Op::Timer(_) => unreachable!("kept by the ring itself"),
            Op::Open { .. }
            | Op::Follow { .. }
            | Op::Stat(_)
            | Op::List { .. }
            | Op::HasName { .. }
            | Op::Watch { .. }
            | Op::WatchFile { .. }
            | Op::Discard { .. }
            | Op::Punch { .. }
            | Op::FileSystem(_)
            | Op::Extents(_) => Ok(now + state.latency(|config| &config.metadata)),
        };
        match planned {
            Ok(at) => state.look_at(at, who),
            Err(error) => {
                drop(state);
                common.end(key, Err(error));
            }
        }
    }

    /// Ends a cancelled operation soon or late; a file operation may also run to its end.
    pub(crate) fn cancel(&mut self, common: &mut Common, key: Key) {
        let mut state = self.world.state();
        let waits = matches!(
            common.table.get_mut(key).map(|slot| &slot.op),
            Some(
                Op::Accept(_)
                    | Op::Connect(_)
                    | Op::Recv(_)
                    | Op::Writable(_)
                    | Op::Readable(_)
                    | Op::Acknowledgements(_)
                    | Op::Watch { .. }
                    | Op::WatchFile { .. }
                    | Op::Signal(_)
                    | Op::Child(_)
            )
        );
        let hangs = |slot: &Slot| state.hung_device(&slot.op).is_some();
        if common.table.get(key).is_some_and(hangs) {
            return;
        }
        let success = state.config.faults.success_after_cancel;
        if !waits && state.random.chance(success) {
            return;
        }
        let at = state.now + state.latency(|config| &config.cancel);
        state.end_at(at, Waiter::new(self.ring, key));
    }

    /// Let time go on until something completes.
    pub(crate) fn wait(&mut self, common: &mut Common, until: Option<Time>) -> io::Result<()> {
        self.close_unused(common);
        if self.recv.has_free() && self.wide.has_free() {
            let mut state = self.world.state();
            for key in self.starved.drain(..) {
                state.due[self.ring].push(Due::Look(key.to_bits()));
            }
        }
        self.world.state().reclaim_some();
        loop {
            self.world.state().happen();
            self.take_due(common);
            if !common.ready.is_empty() || self.woken.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut state = self.world.state();
            match (state.next_time(), until) {
                (Some(next), until) if until.is_none_or(|until| next <= until) => {
                    state.now = state.now.max(next);
                }
                (_, Some(until)) => {
                    state.now = state.now.max(until);
                    return Ok(());
                }
                (_, None) => return Err(deadlock(common)),
            }
        }
    }

    /// Handle the events that are due, in any order, and sometimes only a part of them.
    fn take_due(&mut self, common: &mut Common) {
        loop {
            let mut state = self.world.state();
            let count = state.due[self.ring].len();
            if count == 0 || (!common.ready.is_empty() && state.random.chance(0.1)) {
                return;
            }
            let at = state.random.below(count);
            let due = state.due[self.ring].swap_remove(at);
            drop(state);
            match due {
                Due::Look(bits) => self.look(common, Key::from_bits(bits)),
                Due::End(bits) => self.end_cancelled(common, Key::from_bits(bits)),
            }
        }
    }

    fn end_cancelled(&mut self, common: &mut Common, key: Key) {
        if common.table.get_mut(key).is_some() {
            self.end(common, key, Err(errno(libc::ECANCELED)));
        }
    }

    /// Delivers the last completion, after which nothing in the world refers to the operation.
    fn end(&mut self, common: &mut Common, key: Key, result: io::Result<Event>) {
        let who = Waiter::new(self.ring, key);
        let mut state = self.world.state();
        let clear = |side: &mut Option<Waiter>| {
            if *side == Some(who) {
                *side = None;
            }
        };
        match common.table.get_mut(key).map(|slot| &slot.op) {
            Some(Op::Accept(fd)) => {
                if let Ok(listener) = state.listener(fd.raw()) {
                    state.listeners[listener].accepts.retain(|other| *other != who);
                }
            }
            Some(Op::Recv(fd) | Op::Readable(fd) | Op::Writable(fd) | Op::Acknowledgements(fd)) => {
                if let Ok(conn) = state.conn(fd.raw()) {
                    clear(&mut state.conns[conn].acknowledgements);
                    clear(&mut state.conns[conn].reader);
                    clear(&mut state.conns[conn].writer);
                }
            }
            Some(Op::Signal(_) | Op::Child(_)) => state.process.forget(who),
            Some(Op::Watch { .. } | Op::WatchFile { .. }) => drop(state.watches.remove(&who)),
            Some(Op::Read { .. } | Op::Splice { .. }) => drop(self.brought.remove(&key.to_bits())),
            _ => {}
        }
        drop(state);
        common.end(key, result);
    }

    /// Completes the operation if it can be completed now.
    fn look(&mut self, common: &mut Common, key: Key) {
        let Some(slot) = common.table.get(key) else { return };
        let who = Waiter::new(self.ring, key);
        if self.world.park(&slot.op, who) || self.reads_again(&slot.op, key) {
            return;
        }
        let Some(slot) = common.table.get_mut(key) else { return };
        let result = match &mut slot.op {
            Op::Accept(fd) => {
                let fd = fd.raw();
                return self.accept(common, key, fd);
            }
            Op::Recv(fd) => {
                let fd = fd.clone();
                return self.receive(common, key, &fd);
            }
            Op::Connect(address) => match self.world.state().connect(address) {
                Ok(None) => return,
                Ok(Some(socket)) => {
                    let socket = common.fd(Handle::Sim(socket));
                    socket.mark_connected();
                    Ok(Event::Connected(socket))
                }
                Err(error) => Err(error),
            },
            Op::Signal(number) => {
                let taken = self.world.state().process.take_signal(*number);
                if let Some(signal) = taken {
                    common.emit(key, Event::Signal(signal));
                    self.look_again(key);
                }
                return;
            }
            Op::Child(pid) => {
                let taken = self.world.state().process.take_child(*pid).transpose();
                let Some(status) = taken else { return };
                status.map(Event::Exited).map_err(errno)
            }
            Op::Read { file, offset, .. } => {
                let (file, offset) = (file.raw(), *offset);
                return self.read(common, key, file, offset);
            }
            Op::Splice { file, offset, .. } => {
                let (file, offset) = (file.raw(), *offset);
                return self.splice(common, key, file, offset);
            }
            Op::Watch { .. } | Op::WatchFile { .. } => return self.watch(common, key),
            Op::Readable(fd) => {
                let mut state = self.world.state();
                match state.conn(fd.raw()) {
                    Ok(conn) if !state.conns[conn].is_readable() => return,
                    Ok(_) => Ok(Event::Readable),
                    Err(error) => Err(error),
                }
            }
            Op::Writable(fd) => {
                let mut state = self.world.state();
                match state.conn(fd.raw()) {
                    Ok(conn) if !state.conns[conn].is_writable() => return,
                    Ok(_) => Ok(Event::Writable),
                    Err(error) => Err(error),
                }
            }
            Op::Acknowledgements(fd) => {
                let bytes = self.world.acknowledged(fd.raw());
                let acknowledged = fd.acknowledged().expect("looked at when it was submitted");
                acknowledged.borrow_mut().set(bytes);
                let news = acknowledged.borrow_mut().take_news();
                if let Some(bytes) = news {
                    common.emit(key, Event::Acknowledged(bytes));
                }
                return;
            }
            Op::Open { dir, path, how } => {
                let dir = dir.as_ref().map(Fd::raw);
                let opened = self.world.state().open_path(dir, path.to_bytes(), *how);
                opened.map(|fd| Event::Opened(common.fd(Handle::Sim(fd))))
            }
            Op::Follow { root, path, how, symlinks } => {
                let mut state = self.world.state();
                let opened = state.open_through_links(root.raw(), path.to_bytes(), *how, symlinks);
                opened.map(|fd| Event::Opened(common.fd(Handle::Sim(fd))))
            }
            Op::Stat(fd) => {
                self.world.state().stat(fd.raw()).map(|stat| Event::Stat(Box::new(stat)))
            }
            Op::Write { file, at, bytes } => {
                let bytes = core::mem::take(bytes);
                let written = self.world.state().write(file.raw(), *at, &bytes);
                written.map(|count| Event::Written(bytes, count))
            }
            Op::List { dir, entries_max, order, targets } => {
                let listed = self.world.state().list(dir.raw(), *entries_max, targets.as_ref());
                listed.map(|mut listing| {
                    listing.entries.sort_unstable_by(order);
                    Event::Listed(Box::new(listing))
                })
            }
            Op::HasName { root, path, entries_max, is_wanted } => {
                let mut state = self.world.state();
                let has = state.has_name(root.raw(), path.to_bytes(), *entries_max, *is_wanted);
                has.map(Event::HasName)
            }
            Op::Punch { file, offset, len } => {
                let punched = self.world.state().punch(file.raw(), *offset, *len);
                punched.map(|()| Event::Punched)
            }
            Op::Discard { file, offset, len } => {
                let discarded = self.world.state().discard(file.raw(), *offset, *len);
                discarded.map(|()| Event::Discarded)
            }
            Op::FileSystem(_) => Ok(Event::FileSystem(self.world.state().config.file_system)),
            Op::Extents(_) => Ok(Event::Extents(1)),
            Op::Timer(_) => unreachable!("kept by the ring itself"),
        };
        self.end(common, key, result);
    }

    fn close_unused(&self, common: &Common) {
        for (handle, _) in common.closing.take() {
            match handle {
                Handle::Sim(fd) => self.world.state().close(fd),
                Handle::Socket(_) | Handle::Lingering(_) | Handle::File(_) | Handle::Shared(_) => {
                    unreachable!("another driver's descriptor")
                }
            }
        }
    }

    /// Waits for all operations, which were cancelled before.
    pub(crate) fn join(&mut self, common: &mut Common) {
        self.world.release_all();
        while !common.table.is_empty() {
            common.ready.clear();
            self.take_woken();
            if self.wait(common, None).is_err() {
                break;
            }
        }
        debug_assert_eq!(common.table.len(), 0, "a cancelled operation ends");
        common.ready.clear();
        self.close_unused(common);
    }
}

fn deadlock(common: &Common) -> io::Error {
    let text = format!("nothing will ever happen: {common:?}");
    io::Error::new(io::ErrorKind::Deadlock, text)
}

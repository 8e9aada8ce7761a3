//! A ring in the simulated world.

use core::sync::atomic::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;

use crate::common::Common;
use crate::fd::{Fd, Handle};
use crate::helpers::job::LOCAL;
use crate::op::{Caching, Entry, Event, Listing, Op, OpenHow, Stat};
use crate::recv::RecvPool;
use crate::slab::Key;
use crate::timers::Time;

use super::disk::{Body, File, Walk};
use super::net::Input;
use super::world::{Descriptor, Due, OpenFile, State, Watch, World};
use super::{Flag, Waiter, errno};

/// The driver of one simulated ring.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) world: World,
    ring: usize,
    recv: Rc<RecvPool>,
    /// Receives that found no free buffer.
    starved: Vec<Key>,
    /// By read: the pages that it brings in.
    brought: BTreeMap<u64, Vec<usize>>,
    pub(crate) woken: Flag,
}

impl Sim {
    pub(crate) fn new(world: &World) -> io::Result<Self> {
        let ring = {
            let mut state = world.state();
            state.due.push(Vec::new());
            state.due.len() - 1
        };
        Ok(Self {
            world: world.clone(),
            ring,
            recv: RecvPool::with_list()?,
            starved: Vec::new(),
            brought: BTreeMap::new(),
            woken: Flag::default(),
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
            Op::Accept(fd) => state.listener(fd.raw()).map(|listener| {
                state.listeners[listener].accept = Some(who);
                now + state.latency(|config| &config.network)
            }),
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
            Op::Read { file, offset, buf, caching } => {
                let (offset, want, caching) = (*offset, buf.want(), *caching);
                let begun = state.begin_read(file.raw(), offset, want, caching);
                begun.map(|(ready, brought)| {
                    self.brought.insert(key.to_bits(), brought);
                    ready
                })
            }
            Op::Splice { .. } => Err(errno(libc::EOPNOTSUPP)),
            Op::Write { .. } => Ok(now + state.latency(|config| &config.cache)),
            Op::Timer(_) => unreachable!("kept by the ring itself"),
            Op::Open { .. }
            | Op::Stat(_)
            | Op::List { .. }
            | Op::Watch { .. }
            | Op::Discard { .. }
            | Op::FileSystem(_) => Ok(now + state.latency(|config| &config.metadata)),
        };
        match planned {
            Ok(at) => state.look_at(at, who),
            Err(error) => {
                drop(state);
                common.finish(key, Err(error));
            }
        }
    }

    /// What has been asked to end may end soon, or late, or (what ends by itself) not for that.
    pub(crate) fn cancel(&mut self, common: &mut Common, key: Key) {
        let mut state = self.world.state();
        let waits = matches!(
            common.table.get_mut(key).map(|slot| &slot.op),
            Some(
                Op::Accept(_) | Op::Recv(_) | Op::Writable(_) | Op::Readable(_) | Op::Watch { .. }
            )
        );
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
        if self.recv.has_free() {
            let mut state = self.world.state();
            for key in self.starved.drain(..) {
                state.due[self.ring].push(Due::Look(key.to_bits()));
            }
        }
        self.world.state().evict_some();
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

    /// Look at what is due, in any order, and now and then not at all of it.
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
                Due::End(bits) => self.end(common, Key::from_bits(bits)),
            }
        }
    }

    fn end(&mut self, common: &mut Common, key: Key) {
        if common.table.get_mut(key).is_some() {
            self.finish(common, key, Err(errno(libc::ECANCELED)));
        }
    }

    /// The last completion: nobody waits any more.
    fn finish(&mut self, common: &mut Common, key: Key, result: io::Result<Event>) {
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
                    clear(&mut state.listeners[listener].accept);
                }
            }
            Some(Op::Recv(fd) | Op::Readable(fd) | Op::Writable(fd)) => {
                if let Ok(conn) = state.conn(fd.raw()) {
                    clear(&mut state.conns[conn].reader);
                    clear(&mut state.conns[conn].writer);
                }
            }
            Some(Op::Watch { .. }) => drop(state.watches.remove(&who)),
            Some(Op::Read { .. }) => drop(self.brought.remove(&key.to_bits())),
            _ => {}
        }
        drop(state);
        common.finish(key, result);
    }

    /// Do what the operation is for, if it can be done now.
    fn look(&mut self, common: &mut Common, key: Key) {
        let Some(slot) = common.table.get_mut(key) else { return };
        let result = match &mut slot.op {
            Op::Accept(fd) => {
                let fd = fd.raw();
                return self.accept(common, key, fd);
            }
            Op::Recv(fd) => {
                let fd = fd.raw();
                return self.receive(common, key, fd);
            }
            Op::Read { file, offset, .. } => {
                let (file, offset) = (file.raw(), *offset);
                return self.read(common, key, file, offset);
            }
            Op::Watch { root, path } => {
                let (root, path) = (root.raw(), path.to_bytes().to_vec());
                return self.watch(common, key, root, &path);
            }
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
            Op::Open { dir, path, how } => {
                let dir = dir.as_ref().map(Fd::raw);
                let opened = self.world.state().open_path(dir, path.to_bytes(), *how);
                opened.map(|fd| Event::Opened(common.fd(Handle::Sim(fd))))
            }
            Op::Stat(fd) => {
                self.world.state().stat(fd.raw()).map(|stat| Event::Stat(Box::new(stat)))
            }
            Op::Write { file, bytes } => {
                let bytes = core::mem::take(bytes);
                let written = self.world.state().append(file.raw(), &bytes);
                written.map(|count| Event::Written(bytes, count))
            }
            Op::List { dir, entries_max } => {
                let listed = self.world.state().list(dir.raw(), *entries_max);
                listed.map(|listing| Event::Listed(Box::new(listing)))
            }
            Op::Discard { file, offset, len } => {
                let discarded = self.world.state().discard(file.raw(), *offset, *len);
                discarded.map(|()| Event::Discarded)
            }
            Op::FileSystem(_) => Ok(Event::FileSystem(self.world.state().config.file_system)),
            Op::Splice { .. } | Op::Timer(_) => unreachable!("never waits here"),
        };
        self.finish(common, key, result);
    }

    fn accept(&mut self, common: &mut Common, key: Key, fd: i32) {
        let accepted = self.world.state().accept(fd);
        match accepted {
            Ok(Some(socket)) => {
                let socket = common.fd(Handle::Sim(socket));
                common.emit(key, Event::Accepted(socket));
                // Perhaps there is another.
                self.look_again(key);
            }
            Ok(None) => {}
            Err(error) => self.finish(common, key, Err(error)),
        }
    }

    fn receive(&mut self, common: &mut Common, key: Key, fd: i32) {
        let mut state = self.world.state();
        let conn = state.conn(fd).expect("looked up when it was submitted");
        let short = state.config.faults.short_receive;
        let short = state.random.chance(short);
        let most = if short { 1 + state.random.below(100) } else { usize::MAX };
        let one = &mut state.conns[conn];
        if one.inbox.is_empty() {
            let end = match one.input {
                Input::Open => return,
                Input::Ended => Ok(Event::Eof),
                Input::Reset => Err(errno(libc::ECONNRESET)),
            };
            drop(state);
            self.finish(common, key, end);
            return;
        }
        let received = self.recv.receive(|space| {
            let count = one.inbox.len().min(space.len()).min(most);
            for (to, from) in space.iter_mut().zip(one.inbox.drain(..count)) {
                *to = from;
            }
            Ok(count)
        });
        drop(state);
        match received {
            Some(buf) => {
                common.emit(key, Event::Received(buf.expect("copying does not fail")));
                self.look_again(key);
            }
            None => self.starved.push(key),
        }
    }

    fn look_again(&self, key: Key) {
        self.world.state().look_soon(Some(Waiter::new(self.ring, key)));
    }

    fn read(&mut self, common: &mut Common, key: Key, file: i32, offset: u64) {
        let Some(Op::Read { buf, caching, .. }) =
            common.table.get_mut(key).map(|slot| &mut slot.op)
        else {
            unreachable!("looked at as a read")
        };
        let brought = self.brought.remove(&key.to_bits()).unwrap_or_default();
        let mut state = self.world.state();
        let (short, fails) = (state.config.faults.short_read, state.config.faults.read_error);
        let fails = !brought.is_empty() && state.random.chance(fails);
        let short = state.random.chance(short);
        let chosen = state.random.below(buf.want());
        let ino = state.opened(file).expect("looked up when it was submitted").ino;
        let contents = state.disk.file(ino).expect("looked up when it was submitted");
        if fails || *caching == Caching::Drop {
            brought.iter().for_each(|page| contents.drop_page(*page));
        }
        let range = contents.range(offset, buf.want());
        let count =
            if short && range.len() > 1 { 1 + chosen % (range.len() - 1) } else { range.len() };
        if !fails {
            buf.fill_from(&contents.bytes[range][..count]);
        }
        drop(state);
        if fails {
            self.finish(common, key, Err(errno(libc::EIO)));
        } else {
            common.finish_read(key, count);
        }
    }

    fn watch(&mut self, common: &mut Common, key: Key, root: i32, path: &[u8]) {
        let who = Waiter::new(self.ring, key);
        let mut state = self.world.state();
        if let Some(watch) = state.watches.get_mut(&who) {
            let change = watch.queue.pop_front();
            drop(state);
            if let Some(change) = change {
                common.emit(key, Event::Changed(change));
            }
            return;
        }
        let begun = state.watched_dir(root, path);
        if let Ok(dir) = begun {
            state.watches.insert(who, Watch { dir, queue: VecDeque::new() });
        }
        drop(state);
        match begun {
            Ok(_) => common.emit(key, Event::Watching),
            Err(error) => self.finish(common, key, Err(errno(error))),
        }
    }

    fn close_unused(&self, common: &Common) {
        for handle in common.closing.take() {
            match handle {
                Handle::Sim(fd) => self.world.state().close(fd),
                Handle::Socket(_) | Handle::File(_) => unreachable!("another driver's descriptor"),
            }
        }
    }

    /// Take back what was cancelled.
    pub(crate) fn drain(&mut self, common: &mut Common) {
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

impl State {
    /// When the read is done, and the pages that it brings in.
    fn begin_read(
        &mut self,
        fd: i32,
        offset: u64,
        want: usize,
        caching: Caching,
    ) -> io::Result<(Time, Vec<usize>)> {
        let open = self.opened(fd)?.clone();
        if open.access == libc::O_WRONLY {
            return Err(errno(libc::EBADF));
        }
        if caching == Caching::Drop && !self.config.can_drop {
            return Err(errno(libc::EOPNOTSUPP));
        }
        let fetch = self.fetch(&open, offset, want).map_err(errno)?;
        Ok((fetch.ready + self.latency(|config| &config.cache), fetch.brought))
    }

    fn accept(&mut self, fd: i32) -> io::Result<Option<i32>> {
        let listener = self.listener(fd)?;
        let Some(conn) = self.listeners[listener].backlog.front().copied() else { return Ok(None) };
        let fails = self.config.faults.accept_error;
        if self.random.chance(fails) {
            return Err(errno(libc::EMFILE));
        }
        let socket = self.open(Descriptor::Socket(conn))?;
        self.listeners[listener].backlog.pop_front();
        Ok(Some(socket))
    }

    fn open_path(&mut self, dir: Option<i32>, path: &[u8], how: OpenHow) -> io::Result<i32> {
        let start = match dir {
            Some(dir) => self.opened(dir)?.ino,
            None => super::disk::ROOT,
        };
        let walk = Walk {
            beneath: how.resolve & libc::RESOLVE_BENEATH != 0,
            no_symlinks: how.resolve & libc::RESOLVE_NO_SYMLINKS != 0,
            stop_at_link: how.flags & libc::O_NOFOLLOW != 0,
        };
        let found = self.disk.walk(start, path, walk).map_err(errno)?;
        let (has, now) = (|flag| how.flags & flag == flag, self.now);
        let ino = match found.ino {
            Some(_) if has(libc::O_CREAT | libc::O_EXCL) => return Err(errno(libc::EEXIST)),
            Some(ino) => ino,
            None if has(libc::O_CREAT) => {
                let body = Body::File(File::default());
                let ino = self.disk.make(found.dir, found.name.clone(), body, now);
                self.changed(found.dir, Some(&found.name), false);
                ino
            }
            None => return Err(errno(libc::ENOENT)),
        };
        let access = how.flags & libc::O_ACCMODE;
        match &self.disk.inode(ino).body {
            Body::Symlink(_) => return Err(errno(libc::ELOOP)),
            Body::Directory { .. } if access != libc::O_RDONLY => return Err(errno(libc::EISDIR)),
            Body::File(_) if has(libc::O_DIRECTORY) => return Err(errno(libc::ENOTDIR)),
            _ if has(libc::O_DIRECT) => return Err(errno(libc::EINVAL)),
            _ => {}
        }
        if has(libc::O_TRUNC) && access != libc::O_RDONLY {
            self.disk.file(ino).map_err(errno)?.set(now, b"");
            self.changed(found.dir, Some(&found.name), false);
        }
        let (dir, name) = (found.dir, found.name);
        self.open(Descriptor::File(OpenFile { ino, dir, name, access, readahead: true }))
    }

    fn stat(&mut self, fd: i32) -> io::Result<Stat> {
        let ino = self.opened(fd)?.ino;
        let inode = self.disk.inode(ino);
        let (mtime, mtime_nanos) = self.unix(inode.mtime);
        let (ctime, ctime_nanos) = self.unix(inode.ctime);
        Ok(Stat {
            kind: self.disk.kind(ino),
            size: self.disk.size(ino),
            mtime,
            mtime_nanos,
            ctime,
            ctime_nanos,
            dev: 1,
            ino,
            links: inode.links,
            direct_align: 0,
        })
    }

    fn append(&mut self, fd: i32, bytes: &[u8]) -> io::Result<usize> {
        let open = self.opened(fd)?.clone();
        if open.access == libc::O_RDONLY {
            return Err(errno(libc::EBADF));
        }
        let short = self.config.faults.short_write;
        let mut count = bytes.len();
        if count > 1 && self.random.chance(short) {
            count = 1 + self.random.below(count);
        }
        let now = self.now;
        let file = self.disk.file(open.ino).map_err(errno)?;
        file.change(now, |all| all.extend_from_slice(&bytes[..count]));
        self.disk.modified(open.ino, now);
        self.changed(open.dir, Some(&open.name), false);
        Ok(count)
    }

    fn list(&mut self, fd: i32, entries_max: usize) -> io::Result<Listing> {
        let dir = self.opened(fd)?.ino;
        let entries = self.disk.entries(dir).map_err(errno)?;
        let entry = |(name, ino): (&Vec<u8>, &u64)| Entry {
            name: name.clone(),
            kind: self.disk.kind(*ino),
            size: self.disk.size(*ino),
            mtime: self.unix(self.disk.inode(*ino).mtime).0,
        };
        let mut listing = Listing {
            entries: entries.iter().take(entries_max).map(entry).collect(),
            truncated: entries.len() > entries_max,
        };
        listing.sort();
        Ok(listing)
    }

    fn discard(&mut self, fd: i32, offset: u64, len: u64) -> io::Result<()> {
        let ino = self.opened(fd)?.ino;
        let now = self.now;
        self.disk.file(ino).map_err(errno)?.evict(offset, len, now);
        Ok(())
    }

    fn watched_dir(&mut self, root: i32, path: &[u8]) -> Result<u64, i32> {
        let start = self.opened(root).map_err(|_| libc::EBADF)?.ino;
        let path = if path.is_empty() { b"." } else { path };
        let walk = Walk { beneath: true, no_symlinks: true, stop_at_link: false };
        let dir = self.disk.walk(start, path, walk)?.ino.ok_or(libc::ENOENT)?;
        self.disk.entries(dir)?;
        if !LOCAL.contains(&self.config.file_system) {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(dir)
    }
}

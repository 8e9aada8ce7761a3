//! Finding out what a path is: open, stat, watch, look for siblings, open for reading, read.
//!
//! ```text
//! in line ► Open ► Stat ──(directories not watched yet)──► Watch ──► Open, once more
//!                   │
//!                   ▼
//!              Siblings ──(same as before)──► answered
//!                   │
//!                   ▼        (no room for large files)
//!              OpenForReading ◄────────► parked
//!                   │
//!                   ▼
//!                 Read ► Confirm ──(changed meanwhile)──► Open, once more
//!                           │
//!                           ▼
//!                        answered
//! ```
//!
//! What a path names is first opened with `O_PATH`, which opens nothing in the sense of its driver:
//! a FIFO's writer is not released, a device does nothing. Regular files are then opened for reading
//! through `/proc/self/fd`, which is the very inode that was looked at. That is as many system calls
//! as to open with `O_NONBLOCK`, stat, and clear that flag; one less where nothing has changed, and
//! one more where changes make no events.

use std::ffi::CString;
use std::io;
use std::rc::Rc;

use http::{Coding, Codings, Reject, Status};
use ring::{Buffer, Completion, Event, Fd, FileKind, Op, OpenHow, Stat};
use sendfile::File;

use super::invalidate::suffix;
use super::resource::{FileSet, Kind, Resource, Variant};
use super::watch::Watching;
use super::{Answer, Began, Content, FINISHED_BYTES_MAX, Path, SIZE_MAX, Ticket, token};
use crate::shell::{Shell, kind};

/// Seconds after its last change from which on a file is told from another state of itself by its
/// times: they are seconds on some file systems, and are set before the bytes are written.
const SETTLED_AFTER: i64 = 3;
/// The file itself and its siblings in the order of [`Coding::PREFERENCE`].
pub(super) const PARTS: usize = 1 + Coding::PREFERENCE.len();
/// How often a path is looked at because it changes all the time: once more after its directories
/// are watched, and twice for changes. After that it is served as it is, and not kept.
const LOOKS_MAX: u32 = 4;
/// Entries that a listing has at most.
const ENTRIES_MAX: usize = 100_000;
/// Listings with more entries than this are not kept.
const ENTRIES_KEPT_MAX: usize = 4096;

/// One path being looked at.
#[derive(Debug)]
pub(super) struct Load {
    key: Path,
    /// When the present look began.
    began: Began,
    pub(super) tickets: Vec<Ticket>,
    /// A change was seen since it began: answer with it, but do not keep it.
    pub(super) outdated: bool,
    /// Whether changes made events since the present look began, as far as is known.
    watched: bool,
    /// Whether watching has been tried.
    watch_tried: bool,
    /// Whether the path leads through symbolic links.
    linked: bool,
    looks: u32,
    /// Files that stay open, once that is known.
    pub(super) large: usize,
    /// Whether there is room for them.
    has_room: bool,
    /// Files that it will keep open, as far as they are counted already.
    reserved: usize,
    /// The directory that it began in.
    root: Fd,
    /// The time of the look, in Unix seconds.
    unix: i64,
    /// Whether its files had not just been changed at the look.
    settled: bool,
    previous: Option<Rc<Resource>>,
    step: Step,
    /// Completions that this step still waits for.
    pending: u32,
    parts: [Option<Part>; PARTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It waits for its turn, or for room.
    InLine,
    /// Where the file, or a directory's index, is, is being found.
    Open,
    /// Its state is being read.
    Stat,
    /// A directory answers whether it can be watched.
    Watch,
    /// The directory itself is being opened, to be listed.
    OpenDirectory,
    List,
    /// Siblings are being found, their states read.
    Siblings,
    /// One part after the other is being opened for reading.
    OpenForReading {
        part: u32,
        /// Once more by its name, where there is no `/proc`.
        by_name: bool,
    },
    /// The part's state is being read once more: because it was opened by its path, or because only
    /// to open it for reading asks the server of a network file system (nfs(5), close-to-open).
    Compare {
        part: u32,
    },
    /// Small ones are being read.
    Read,
    /// And looked at again.
    Confirm,
}

#[derive(Debug)]
struct Part {
    /// By `O_PATH` until it is open for reading.
    fd: Fd,
    readable: bool,
    stat: Option<Stat>,
    body: Option<Buffer>,
}

impl Content {
    /// Begin to look at a path.
    pub(super) fn begin(
        &mut self,
        shell: &mut Shell,
        key: &[u8],
        previous: Option<Rc<Resource>>,
        ticket: Option<Ticket>,
    ) {
        let key = Path::from(key);
        let load = Load {
            key: key.clone(),
            began: shell.cx.now,
            tickets: ticket.into_iter().collect(),
            outdated: false,
            watched: false,
            watch_tried: false,
            linked: false,
            looks: 0,
            large: 0,
            has_room: false,
            reserved: 0,
            root: self.root.clone(),
            unix: shell.cx.unix,
            settled: false,
            previous,
            step: Step::InLine,
            pending: 0,
            parts: [const { None }; PARTS],
        };
        let id = if let Some(id) = self.free_loads.pop() {
            self.loads[id as usize] = Some(load);
            id
        } else {
            self.loads.push(Some(load));
            u32::try_from(self.loads.len() - 1).expect("bounded by the line")
        };
        self.share.load_bytes += bytes_of(&key);
        self.by_key.insert(key, id);
        if self.share.enter(id) {
            self.look(shell, id);
        }
    }

    fn load(&mut self, id: u32) -> &mut Load {
        self.loads[id as usize].as_mut().expect("ends only after its last completion")
    }

    /// Look at the path from the start.
    fn look(&mut self, shell: &mut Shell, id: u32) {
        let key = self.load(id).key.clone();
        let watched = self.is_watched(&key);
        let root = self.root.clone();
        let load = self.load(id);
        load.began = shell.cx.now;
        load.unix = shell.cx.unix;
        load.root = root;
        load.watched = watched;
        load.looks += 1;
        load.linked = false;
        load.parts = [const { None }; PARTS];
        self.open(shell, id);
    }

    /// Wait for room with nothing open.
    fn park(&mut self, shell: &mut Shell, id: u32) {
        let load = self.load(id);
        load.step = Step::InLine;
        load.parts = [const { None }; PARTS];
        self.share.park(id, shell.cx.now);
        self.leave(shell);
        self.schedule(shell);
    }

    /// There is room now.
    pub(super) fn unpark(&mut self, shell: &mut Shell, id: u32) {
        self.reserve(id);
        if self.share.enter(id) {
            self.look(shell, id);
        }
    }

    /// Count the files that the load will keep open, before they are open.
    fn reserve(&mut self, id: u32) {
        let load = self.load(id);
        load.has_room = true;
        load.reserved = load.large;
        self.share.reserved += self.load(id).reserved;
    }

    /// Leave the place to the next in line.
    fn leave(&mut self, shell: &mut Shell) {
        if let Some(next) = self.share.leave() {
            self.look(shell, next);
        }
    }

    /// Have the directories on the way watched, and look again.
    fn watch_and_look_again(&mut self, shell: &mut Shell, id: u32) {
        let load = self.load(id);
        load.step = Step::Watch;
        load.watch_tried = true;
        load.parts = [const { None }; PARTS];
        let key = load.key.clone();
        match self.watch_on(shell, id, &key) {
            Watching::Pending => self.load(id).pending += 1,
            Watching::Yes | Watching::No => self.look(shell, id),
        }
    }

    /// Whether the load is to have its directories watched before it goes on.
    fn wants_watches(&mut self, id: u32) -> bool {
        let load = self.load(id);
        !load.watched && !load.linked && !load.watch_tried
    }

    /// A directory that the load waits for can be watched, or cannot.
    pub(super) fn directory_known(&mut self, shell: &mut Shell, id: u32, watched: bool) {
        let load = self.load(id);
        debug_assert_eq!((load.step, load.pending), (Step::Watch, 1));
        load.pending -= 1;
        if watched { self.watch_and_look_again(shell, id) } else { self.look(shell, id) }
    }

    /// The name of the file that the load looks for.
    fn file_name(&mut self, id: u32) -> Vec<u8> {
        let index = self.policy.index.clone();
        let mut name = self.load(id).key.to_vec();
        if is_directory(&name) {
            name.extend_from_slice(index.as_bytes());
        }
        name
    }

    fn open(&mut self, shell: &mut Shell, id: u32) {
        let name = self.file_name(id);
        let load = self.load(id);
        load.step = Step::Open;
        let how = if load.linked { FIND } else { FIND.without_symlinks() };
        self.submit_open(shell, id, 0, name, how);
    }

    fn submit_open(&mut self, shell: &mut Shell, id: u32, part: u32, name: Vec<u8>, how: OpenHow) {
        let Ok(path) = CString::new(name) else {
            return self.fail(shell, id, Status::BadRequest);
        };
        self.load(id).pending += 1;
        let dir = Some(self.load(id).root.clone());
        shell.ring.submit(Op::Open { dir, path, how }, token(kind::LOAD, part, id));
    }

    /// Take a completion of a load.
    pub(crate) fn handle_load(&mut self, shell: &mut Shell, completion: Completion) {
        #[allow(clippy::cast_possible_truncation, reason = "the low half is the number")]
        let (id, part) = (completion.token as u32, (completion.token >> 32) as u32 & 0xff);
        let load = self.load(id);
        load.pending -= 1;
        match (load.step, completion.result) {
            (Step::Open, Ok(Event::Opened(fd))) => {
                load.step = Step::Stat;
                self.submit_stat(shell, id, 0, fd);
            }
            (Step::Open, Err(error)) if is(&error, ELOOP) && !load.linked => {
                load.watched = false;
                load.linked = true;
                self.open(shell, id);
            }
            (Step::Open, Err(error)) => {
                let status = status_of(&error, shell);
                if status == Status::NotFound && is_directory(&self.load(id).key) {
                    self.open_directory(shell, id);
                } else {
                    self.fail(shell, id, status);
                }
            }
            (Step::Stat, Ok(Event::Stat(stat))) => self.found(shell, id, *stat),
            (Step::OpenDirectory, Ok(Event::Opened(dir))) => {
                if self.wants_watches(id) {
                    return self.watch_and_look_again(shell, id);
                }
                let load = self.load(id);
                load.step = Step::List;
                load.pending += 1;
                let op = Op::List { dir, entries_max: ENTRIES_MAX };
                shell.ring.submit(op, token(kind::LOAD, 0, id));
            }
            (Step::List, Ok(Event::Listed(listed))) => {
                let keep = listed.entries.len() <= ENTRIES_KEPT_MAX;
                let memory = listed.entries.iter().map(|e| e.name.len() + size_of_val(e)).sum();
                self.finish(shell, id, Kind::Directory(Rc::from(listed)), memory, 0, keep);
            }
            (Step::Siblings, result) => self.sibling(shell, id, part, result),
            (Step::OpenForReading { part, by_name }, result) => {
                self.opened_for_reading(shell, id, part, by_name, result);
            }
            (Step::Compare { part }, Ok(Event::Stat(stat))) => {
                let part = load.parts[part as usize].as_mut().expect("open for reading");
                let file = |stat: &Stat| (stat.kind, stat.dev, stat.ino);
                let is_same = part.stat.as_ref().map(file) == Some(file(&stat));
                part.stat = Some(*stat);
                if is_same {
                    self.open_for_reading(shell, id);
                } else if load.looks < LOOKS_MAX {
                    self.look(shell, id);
                } else {
                    self.fail(shell, id, Status::NotFound);
                }
            }
            (Step::Read, result) => {
                if let Ok(Event::Read(buf)) = result
                    && let Some(part) = &mut load.parts[part as usize]
                {
                    part.body = Some(buf);
                }
                if load.pending == 0 {
                    self.confirm(shell, id);
                }
            }
            (Step::Confirm, result) => self.confirmed(shell, id, part, result),
            (_, Err(error)) => {
                let status = status_of(&error, shell);
                self.fail(shell, id, status);
            }
            (step, Ok(event)) => unreachable!("{event:?} in step {step:?}"),
        }
    }

    fn submit_stat(&mut self, shell: &mut Shell, id: u32, part: u32, fd: Fd) {
        let load = self.load(id);
        load.pending += 1;
        load.parts[part as usize] =
            Some(Part { fd: fd.clone(), readable: false, stat: None, body: None });
        shell.ring.submit(Op::Stat(fd), token(kind::LOAD, part, id));
    }

    /// The path's own file is found and known.
    fn found(&mut self, shell: &mut Shell, id: u32, stat: Stat) {
        let load = self.load(id);
        match stat.kind {
            FileKind::Regular => {}
            FileKind::Directory if is_directory(&load.key) => {
                return self.open_directory(shell, id);
            }
            FileKind::Directory => return self.finish(shell, id, Kind::Redirect, 0, 0, false),
            FileKind::Symlink | FileKind::Other => {
                return self.fail(shell, id, Status::NotFound);
            }
        }
        if stat.size > SIZE_MAX {
            let reason = "the file is larger than 4 EiB";
            let reject = Reject { status: Status::NotImplemented, reason };
            return self.fail_with(shell, id, &Answer::Rejected(reject));
        }
        if self.wants_watches(id) {
            return self.watch_and_look_again(shell, id);
        }
        let load = self.load(id);
        if stat.links > 1 {
            // Another name of it may be in a directory that nobody watches.
            load.watched = false;
        }
        if let Some(part) = &mut load.parts[0] {
            part.stat = Some(stat);
        }
        load.step = Step::Siblings;
        if has_siblings(&load.key) {
            let name = self.file_name(id);
            for (part, coding) in (1..).zip(Coding::PREFERENCE) {
                let name = [&name[..], suffix(coding).as_bytes()].concat();
                self.submit_open(shell, id, part, name, FIND.without_symlinks());
            }
        } else {
            self.siblings_known(shell, id);
        }
    }

    fn sibling(&mut self, shell: &mut Shell, id: u32, part: u32, result: io::Result<Event>) {
        let load = self.load(id);
        match result {
            Ok(Event::Opened(fd)) => return self.submit_stat(shell, id, part, fd),
            Ok(Event::Stat(stat)) if stat.kind == FileKind::Regular && stat.size <= SIZE_MAX => {
                load.watched &= stat.links == 1;
                if let Some(part) = &mut load.parts[part as usize] {
                    part.stat = Some(*stat);
                }
            }
            // It does not exist, or is nothing that can be served in the file's place.
            _ => load.parts[part as usize] = None,
        }
        if load.pending == 0 {
            self.siblings_known(shell, id);
        }
    }

    /// Everything that belongs to the path is known: open it for reading, if it is not as before.
    fn siblings_known(&mut self, shell: &mut Shell, id: u32) {
        if self.load(id).watched
            && let Some(previous) = self.unchanged(id)
        {
            return self.still_true(shell, id, previous);
        }
        let load = self.load(id);
        let sizes = load.parts.iter().flatten().filter_map(|part| part.stat.as_ref());
        let large = sizes.filter(|stat| stat.size > FINISHED_BYTES_MAX).count();
        load.large = large;
        if large > 0 && !load.has_room {
            if !self.make_room(shell, large) {
                return self.park(shell, id);
            }
            self.reserve(id);
        }
        self.open_for_reading(shell, id);
    }

    /// What the path was before, if that has not changed.
    fn unchanged(&mut self, id: u32) -> Option<Rc<Resource>> {
        let load = self.load(id);
        load.previous.take_if(|previous| previous.settled && same(&previous.kind, &load.parts))
    }

    /// Open the next part, and then read what is small.
    fn open_for_reading(&mut self, shell: &mut Shell, id: u32) {
        let linked = self.load(id).linked;
        let closed = |part: &Option<Part>| part.as_ref().is_some_and(|part| !part.readable);
        let Some(number) = self.load(id).parts.iter().position(closed) else {
            return self.read(shell, id);
        };
        let part = u32::try_from(number).expect("a few");
        let by_name = self.no_proc;
        self.load(id).step = Step::OpenForReading { part, by_name };
        if by_name {
            let mut name = self.file_name(id);
            if let Some(coding) = number.checked_sub(1) {
                name.extend_from_slice(suffix(Coding::PREFERENCE[coding]).as_bytes());
            }
            let follow = linked && number == 0;
            let how = if follow { OpenHow::BENEATH } else { OpenHow::BENEATH.without_symlinks() };
            return self.submit_open(shell, id, part, name, how);
        }
        let load = self.load(id);
        load.pending += 1;
        let found = load.parts[number].as_ref().expect("just found there");
        let path = CString::new(format!("/proc/self/fd/{}", found.fd.raw())).expect("no NUL");
        let op = Op::Open { dir: None, path, how: READ };
        shell.ring.submit(op, token(kind::LOAD, part, id));
    }

    fn opened_for_reading(
        &mut self,
        shell: &mut Shell,
        id: u32,
        part: u32,
        by_name: bool,
        result: io::Result<Event>,
    ) {
        let load = self.load(id);
        match (result, part) {
            (Ok(Event::Opened(fd)), _) => {
                if let Some(part) = &mut load.parts[part as usize] {
                    part.fd = fd.clone();
                    part.readable = true;
                }
                if by_name || !load.watched {
                    load.step = Step::Compare { part };
                    load.pending += 1;
                    shell.ring.submit(Op::Stat(fd), token(kind::LOAD, part, id));
                    return;
                }
            }
            (Err(error), _) if is(&error, ENOENT) && !by_name => self.no_proc = true,
            (Err(error), 0) => {
                let status = status_of(&error, shell);
                return self.fail(shell, id, status);
            }
            // A sibling that cannot be read cannot be served in the file's place.
            _ => load.parts[part as usize] = None,
        }
        self.open_for_reading(shell, id);
    }

    /// Read what is small.
    fn read(&mut self, shell: &mut Shell, id: u32) {
        if let Some(previous) = self.unchanged(id) {
            return self.still_true(shell, id, previous);
        }
        let (pool, keep) = (self.pool.clone(), self.policy.keep);
        let load = self.load(id);
        load.step = Step::Read;
        for (number, part) in (0..).zip(&load.parts) {
            let Some(Part { fd, stat: Some(stat), .. }) = part else { continue };
            if stat.size == 0 || stat.size > FINISHED_BYTES_MAX {
                continue;
            }
            let want = usize::try_from(stat.size).expect("small");
            let Some(buf) = pool.take(want) else { continue };
            let caching = if keep { ring::Caching::Keep } else { ring::Caching::Drop };
            let op = Op::Read { file: fd.clone(), offset: 0, buf, caching };
            shell.ring.submit(op, token(kind::LOAD, number, id));
            load.pending += 1;
        }
        if load.pending == 0 {
            self.assemble(shell, id);
        }
    }

    /// What was read is what the tag says only if the file has not changed meanwhile.
    fn confirm(&mut self, shell: &mut Shell, id: u32) {
        let load = self.load(id);
        load.step = Step::Confirm;
        for (number, part) in (0..).zip(&load.parts) {
            let Some(Part { fd, body: Some(_), .. }) = part else { continue };
            shell.ring.submit(Op::Stat(fd.clone()), token(kind::LOAD, number, id));
            load.pending += 1;
        }
        if load.pending == 0 {
            self.assemble(shell, id);
        }
    }

    fn confirmed(&mut self, shell: &mut Shell, id: u32, part: u32, result: io::Result<Event>) {
        let load = self.load(id);
        let part = load.parts[part as usize].as_mut().expect("it was read");
        match result {
            Ok(Event::Stat(stat)) if part.stat.as_ref() == Some(&stat) => {}
            result => {
                // Sent from the file, as whatever is in it by then, and not kept.
                part.body = None;
                load.outdated = true;
                if let Ok(Event::Stat(stat)) = result {
                    part.stat = Some(*stat);
                }
            }
        }
        if load.pending > 0 {
            return;
        }
        if load.outdated && load.looks < LOOKS_MAX && self.is_own(id) {
            self.load(id).outdated = false;
            return self.look(shell, id);
        }
        self.assemble(shell, id);
    }

    /// Whether the load is what requests for its path wait for: else an event has outdated it.
    fn is_own(&mut self, id: u32) -> bool {
        let key = self.load(id).key.clone();
        self.by_key.get(&key) == Some(&id)
    }

    /// Nothing has changed since the resource was made.
    fn still_true(&mut self, shell: &mut Shell, id: u32, resource: Rc<Resource>) {
        let load = self.end(shell, id);
        resource.validated.set(load.began);
        resource.watched.set(load.watched);
        if load.outdated {
            self.forget(&load.key);
        }
        self.answer(load.tickets, &Answer::Resource(resource));
    }

    /// The tags of the parts, empty where there is none.
    fn tags(&mut self, id: u32) -> [Vec<u8>; PARTS] {
        let mut stats = [const { None }; PARTS];
        for (stat, part) in stats.iter_mut().zip(&self.load(id).parts) {
            *stat = part.as_ref().and_then(|part| part.stat);
        }
        let coding = |number: usize| number.checked_sub(1).map(|at| Coding::PREFERENCE[at]);
        core::array::from_fn(|number| {
            stats[number].map_or(Vec::new(), |stat| self.tag(&stat, coding(number)))
        })
    }

    /// Make the resource of what was found.
    fn assemble(&mut self, shell: &mut Shell, id: u32) {
        let index = self.policy.index.clone();
        let account = self.account.clone();
        let tags = self.tags(id);
        let load = self.load(id);
        let name = if is_directory(&load.key) { index.into_bytes() } else { load.key.to_vec() };
        let content_type = content_type(&name);
        let present = |number: usize| load.parts[number].as_ref().is_some_and(|p| p.stat.is_some());
        let mut codings = Codings::default();
        for (number, coding) in (1..).zip(Coding::PREFERENCE) {
            if present(number) {
                codings = codings.with(coding);
            }
        }
        let vary = (!codings.is_empty()).then_some(&b"Accept-Encoding"[..]);
        let stats = load.parts.iter().flatten().filter_map(|part| part.stat.as_ref());
        let age = |stat: &Stat| load.unix.saturating_sub(stat.ctime.max(stat.mtime));
        load.settled = stats.map(age).all(|age| age >= SETTLED_AFTER);
        let mut parts = core::mem::take(&mut load.parts).into_iter();
        let (mut memory, mut descriptors) = (0, 0);
        let mut tags = tags.into_iter();
        let mut variant = |part: Option<Part>, coding| {
            let etag = tags.next().expect("one for each part");
            let Some(Part { fd, stat: Some(stat), body, .. }) = part else { return None };
            let whole = body.as_deref().unwrap_or_default();
            let body = if whole.len() as u64 == stat.size {
                Ok(whole)
            } else {
                descriptors += 1;
                Err(Rc::new(File::new(fd, &stat)))
            };
            let variant = Variant::new(stat, etag, coding, &content_type, vary, body, &account);
            memory += variant.memory();
            Some(variant)
        };
        let plain = parts
            .next()
            .and_then(|part| variant(part, None))
            .expect("open, or the load has failed");
        let mut encoded = [const { None }; Coding::PREFERENCE.len()];
        for (coding, part) in Coding::PREFERENCE.into_iter().zip(parts) {
            encoded[coding as usize] = variant(part, Some(coding));
        }
        let files = FileSet { content_type, plain, encoded, codings };
        self.finish(shell, id, Kind::File(files), memory, descriptors, true);
    }

    fn finish(
        &mut self,
        shell: &mut Shell,
        id: u32,
        kind: Kind,
        memory: usize,
        descriptors: usize,
        keep: bool,
    ) {
        let load = self.end(shell, id);
        let beside_files = if matches!(kind, Kind::File(_)) { 0 } else { memory };
        let resource = Rc::new(Resource {
            _charge: self.account.charge(beside_files as u64),
            memory: memory + size_of::<Resource>() + load.key.len(),
            key: load.key,
            kind,
            validated: load.began.into(),
            watched: load.watched.into(),
            settled: load.settled,
            used: shell.cx.now.into(),
            idle_at: None.into(),
            descriptors,
        });
        self.answer(load.tickets, &Answer::Resource(Rc::clone(&resource)));
        if keep && !load.outdated {
            self.keep(shell, resource);
            return;
        }
        self.share.left(&resource);
        if !load.outdated {
            self.forget(&resource.key);
        }
    }

    fn fail(&mut self, shell: &mut Shell, id: u32, status: Status) {
        self.fail_with(shell, id, &Answer::Error(status));
    }

    fn fail_with(&mut self, shell: &mut Shell, id: u32, answer: &Answer) {
        if self.load(id).pending > 0 {
            // Only possible for a name with NUL, which no path has.
            return;
        }
        let load = self.end(shell, id);
        if !load.outdated {
            self.forget(&load.key);
        }
        self.answer(load.tickets, answer);
    }

    fn end(&mut self, shell: &mut Shell, id: u32) -> Load {
        if self.is_own(id) {
            let key = self.load(id).key.clone();
            self.by_key.remove(&key);
        }
        let load = self.loads[id as usize].take().expect("ends once");
        self.free_loads.push(id);
        self.share.reserved -= load.reserved;
        self.share.load_bytes -= bytes_of(&load.key);
        self.leave(shell);
        load
    }

    /// No index: list the directory, if that is allowed.
    fn open_directory(&mut self, shell: &mut Shell, id: u32) {
        if !self.policy.listing {
            return self.fail(shell, id, Status::NotFound);
        }
        let load = self.load(id);
        load.step = Step::OpenDirectory;
        load.parts = [const { None }; PARTS];
        let name = load.key.strip_suffix(b"/").unwrap_or(b".").to_vec();
        let how = OpenHow::BENEATH.with_flags(O_DIRECTORY);
        self.submit_open(shell, id, 0, name, how);
    }
}

/// To find what is beneath the root, and open nothing.
const FIND: OpenHow = OpenHow { flags: O_PATH, ..OpenHow::BENEATH };
/// To open what was found through `/proc/self/fd`, whose links are magic.
const READ: OpenHow = OpenHow { flags: O_NOCTTY, mode: 0, resolve: 0 };

#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;
#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_NOCTTY: i32 = rustix::fs::OFlags::NOCTTY.bits() as i32;
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
const ELOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_DIRECTORY: i32 = rustix::fs::OFlags::DIRECTORY.bits() as i32;

fn is(error: &io::Error, errno: i32) -> bool {
    error.raw_os_error() == Some(errno)
}

fn is_directory(key: &[u8]) -> bool {
    key.is_empty() || key.ends_with(b"/")
}

/// What a failed open or stat means to the client.
fn status_of(error: &io::Error, shell: &mut Shell) -> Status {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    match errno {
        // XDEV: a link that leads out. NXIO: a socket. LOOP: links in a circle.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::XDEV
        | Errno::LOOP
        | Errno::NXIO
        | Errno::NODEV
        | Errno::NAMETOOLONG
        | Errno::ISDIR
        | Errno::INVAL
        | Errno::ILSEQ => Status::NotFound,
        Errno::ACCESS | Errno::PERM => Status::Forbidden,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            shell.complain_of_limit(error);
            Status::ServiceUnavailable
        }
        _ => {
            shell.cx.stats.disk_errors += 1;
            Status::InternalServerError
        }
    }
}

/// Memory that a load takes.
fn bytes_of(key: &[u8]) -> usize {
    size_of::<Load>() + key.len()
}

/// Whether the parts are still those that the resource was made of.
fn same(kind: &Kind, parts: &[Option<Part>; PARTS]) -> bool {
    let Kind::File(files) = kind else { return false };
    let new = |number: usize| parts[number].as_ref().and_then(|part| part.stat.as_ref());
    new(0) == Some(&files.plain.stat)
        && files
            .encoded
            .iter()
            .enumerate()
            .all(|(at, variant)| new(at + 1) == variant.as_ref().map(|variant| &variant.stat))
}

fn content_type(name: &[u8]) -> String {
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let name = String::from_utf8_lossy(base);
    let mime = mime_guess::from_path(&*name).first_or_octet_stream();
    let text = mime.type_() == mime_guess::mime::TEXT
        || matches!(
            mime.essence_str(),
            "application/javascript" | "application/json" | "image/svg+xml"
        );
    // UTF-8 is what the web writes; without it browsers guess.
    if text { format!("{}; charset=utf-8", mime.essence_str()) } else { mime.to_string() }
}

/// Whether a precompressed sibling is worth looking for: not beside what is compressed itself.
fn has_siblings(key: &[u8]) -> bool {
    let compressed = |kind: &str| {
        let (class, _) = kind.split_once('/').unwrap_or((kind, ""));
        matches!(class, "video" | "audio")
            || (class == "image" && kind != "image/svg+xml" && kind != "image/bmp")
            || matches!(
                kind,
                "application/gzip"
                    | "application/zip"
                    | "application/zstd"
                    | "font/woff2"
                    | "font/woff"
                    | "application/x-7z-compressed"
                    | "application/x-xz"
                    | "application/x-bzip2"
                    | "application/vnd.debian.binary-package"
                    | "application/x-rpm"
            )
    };
    let base = key.rsplit(|byte| *byte == b'/').next().unwrap_or(key);
    let name = String::from_utf8_lossy(base);
    !mime_guess::from_path(&*name).first_raw().is_some_and(compressed)
        && !Coding::PREFERENCE.into_iter().any(|coding| base.ends_with(suffix(coding).as_bytes()))
}

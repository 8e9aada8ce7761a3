//! Finding out what a path is: watch, open, stat, look for siblings, read.

use std::ffi::CString;
use std::io;
use std::rc::Rc;

use http1::{Coding, Codings, Reject, Status};
use ring::{Buffer, Completion, Event, Fd, FileKind, Op, OpenHow, Stat};
use sendfile::File;

use super::invalidate::{Watched, suffix};
use super::resource::{FileSet, Kind, Resource, Variant};
use super::{Answer, Began, Content, FINISHED_BYTES_MAX, SIZE_MAX, token};
use crate::connection::Waiter;
use crate::shell::{Shell, kind};

/// The file itself and its siblings in the order of [`Coding::PREFERENCE`].
const PARTS: usize = 1 + Coding::PREFERENCE.len();
/// Entries that a listing has at most.
const ENTRIES_MAX: usize = 100_000;
/// Listings with more entries than this are not kept.
const ENTRIES_KEPT_MAX: usize = 4096;

/// One path being looked at.
#[derive(Debug)]
pub(super) struct Load {
    key: Box<[u8]>,
    began: Began,
    pub(super) waiters: Vec<Waiter>,
    /// A change was seen since it began: answer with it, but do not keep it.
    pub(super) outdated: bool,
    /// Whether changes make events, as far as is known.
    watched: bool,
    previous: Option<Rc<Resource>>,
    step: Step,
    /// Completions that this step still waits for.
    pending: u32,
    parts: [Option<Part>; PARTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Directories answer whether they can be watched.
    Watch,
    /// The file, or a directory's index, is being opened.
    Open {
        symlinks: bool,
    },
    /// Its state is being read.
    Stat,
    /// The directory itself is being opened, to be listed.
    OpenDirectory,
    List,
    /// Siblings are being opened, their states read.
    Siblings,
    /// Small ones are being read.
    Read,
}

#[derive(Debug)]
struct Part {
    fd: Fd,
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
        waiter: Option<Waiter>,
    ) {
        let load = Load {
            key: key.into(),
            began: shell.now,
            waiters: waiter.into_iter().collect(),
            outdated: false,
            watched: true,
            previous,
            step: Step::Watch,
            pending: 0,
            parts: [const { None }; PARTS],
        };
        let id = if let Some(id) = self.free_loads.pop() {
            self.loads[id as usize] = Some(load);
            id
        } else {
            self.loads.push(Some(load));
            u32::try_from(self.loads.len() - 1).expect("fewer loads than connections' requests")
        };
        self.by_key.insert(key.into(), id);
        match self.watch_ancestors(shell, key, id) {
            Watched::Pending(count) => self.load(id).pending += count,
            Watched::Yes => self.open(shell, id, false),
            Watched::No => {
                self.load(id).watched = false;
                self.open(shell, id, false);
            }
        }
    }

    fn load(&mut self, id: u32) -> &mut Load {
        self.loads[id as usize].as_mut().expect("ends only after its last completion")
    }

    /// A directory that the load waits for can be watched, or cannot.
    pub(super) fn directory_known(&mut self, shell: &mut Shell, id: u32, watched: bool) {
        let Some(load) = self.loads[id as usize].as_mut() else { return };
        if load.step != Step::Watch || load.pending == 0 {
            return;
        }
        load.watched &= watched;
        load.pending -= 1;
        if load.pending == 0 {
            self.open(shell, id, false);
        }
    }

    fn open(&mut self, shell: &mut Shell, id: u32, symlinks: bool) {
        let index = self.policy.index.clone();
        let load = self.load(id);
        let mut name = load.key.to_vec();
        if is_directory(&name) {
            name.extend_from_slice(index.as_bytes());
        }
        let how = if symlinks { OpenHow::BENEATH } else { OpenHow::BENEATH.without_symlinks() };
        load.step = Step::Open { symlinks };
        self.submit_open(shell, id, 0, name, how);
    }

    fn submit_open(&mut self, shell: &mut Shell, id: u32, part: u32, name: Vec<u8>, how: OpenHow) {
        let Ok(path) = CString::new(name) else {
            return self.fail(id, Status::BadRequest);
        };
        self.load(id).pending += 1;
        let op = Op::Open { dir: Some(self.root.clone()), path, how };
        shell.ring.submit(op, token(kind::LOAD, part, id));
    }

    fn submit_stat(&mut self, shell: &mut Shell, id: u32, part: u32, fd: Fd) {
        let load = self.load(id);
        load.pending += 1;
        load.parts[part as usize] = Some(Part { fd: fd.clone(), stat: None, body: None });
        shell.ring.submit(Op::Stat(fd), token(kind::LOAD, part, id));
    }

    /// Take a completion of a load.
    pub(crate) fn handle_load(&mut self, shell: &mut Shell, completion: Completion) {
        #[allow(clippy::cast_possible_truncation, reason = "the low half is the number")]
        let (id, part) = (completion.token as u32, (completion.token >> 32) as u32 & 0xff);
        let load = self.load(id);
        load.pending -= 1;
        match (load.step, completion.result) {
            (Step::Open { .. }, Ok(Event::Opened(fd))) => {
                load.step = Step::Stat;
                self.submit_stat(shell, id, 0, fd);
            }
            (Step::Open { symlinks: false }, Err(error)) if is(&error, ELOOP) => {
                load.watched = false;
                self.open(shell, id, true);
            }
            (Step::Open { .. }, Err(error)) => {
                let status = status_of(&error, shell);
                if status == Status::NotFound && is_directory(&load.key) {
                    self.open_directory(shell, id);
                } else {
                    self.fail(id, status);
                }
            }
            (Step::Stat, Ok(Event::Stat(stat))) => self.opened(shell, id, *stat),
            (Step::OpenDirectory, Ok(Event::Opened(dir))) => {
                load.step = Step::List;
                load.pending += 1;
                let op = Op::List { dir, entries_max: ENTRIES_MAX };
                shell.ring.submit(op, token(kind::LOAD, 0, id));
            }
            (Step::List, Ok(Event::Listed(listed))) => {
                let keep = listed.entries.len() <= ENTRIES_KEPT_MAX;
                let memory = listed.entries.iter().map(|e| e.name.len() + size_of_val(e)).sum();
                self.finish(id, Kind::Directory(Rc::from(listed)), memory, 0, keep);
            }
            (Step::Siblings, result) => self.sibling(shell, id, part, result),
            (Step::Read, result) => {
                if let Ok(Event::Read(buf)) = result
                    && let Some(part) = &mut load.parts[part as usize]
                {
                    part.body = Some(buf);
                }
                if load.pending == 0 {
                    self.assemble(id);
                }
            }
            (_, Err(error)) => {
                let status = status_of(&error, shell);
                self.fail(id, status);
            }
            (step, Ok(event)) => unreachable!("{event:?} in step {step:?}"),
        }
    }

    /// The path's own file is open and known.
    fn opened(&mut self, shell: &mut Shell, id: u32, stat: Stat) {
        let load = self.load(id);
        match stat.kind {
            FileKind::Regular => {}
            FileKind::Directory if is_directory(&load.key) => {
                return self.open_directory(shell, id);
            }
            FileKind::Directory => return self.finish(id, Kind::Redirect, 0, 0, false),
            FileKind::Symlink | FileKind::Other => return self.fail(id, Status::NotFound),
        }
        if stat.size > SIZE_MAX {
            let reason = "the file is larger than 4 EiB";
            let reject = Reject { status: Status::NotImplemented, reason };
            return self.fail_with(id, &Answer::Rejected(reject));
        }
        if stat.links > 1 {
            // Another name of it may be in a directory that nobody watches.
            load.watched = false;
        }
        if let Some(part) = &mut load.parts[0] {
            part.stat = Some(stat);
        }
        load.step = Step::Siblings;
        if has_siblings(&load.key) {
            let mut name = load.key.to_vec();
            if is_directory(&name) {
                name.extend_from_slice(self.policy.index.as_bytes());
            }
            for (part, coding) in (1..).zip(Coding::PREFERENCE) {
                let name = [&name[..], suffix(coding).as_bytes()].concat();
                self.submit_open(shell, id, part, name, OpenHow::BENEATH.without_symlinks());
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

    /// Everything that belongs to the path is open: read what is small.
    fn siblings_known(&mut self, shell: &mut Shell, id: u32) {
        let (pool, keep) = (self.pool.clone(), self.policy.keep);
        let load = self.load(id);
        if let Some(previous) = load.previous.take_if(|previous| same(&previous.kind, &load.parts))
        {
            return self.still_true(id, previous);
        }
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
            self.assemble(id);
        }
    }

    /// Nothing has changed since the resource was made.
    fn still_true(&mut self, id: u32, resource: Rc<Resource>) {
        let load = self.end(id);
        resource.validated.set(load.began);
        resource.watched.set(load.watched);
        if load.outdated {
            self.forget(&load.key);
        }
        self.answer(load.waiters, &Answer::Resource(resource));
    }

    /// Make the resource of what was found.
    fn assemble(&mut self, id: u32) {
        let index = self.policy.index.clone();
        let account = self.account.clone();
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
        let mut parts = core::mem::take(&mut load.parts).into_iter();
        let (mut memory, mut descriptors) = (0, 0);
        let mut variant = |part: Option<Part>, coding| {
            let Some(Part { fd, stat: Some(stat), body }) = part else { return None };
            let whole = body.as_deref().unwrap_or_default();
            let body = if whole.len() as u64 == stat.size {
                Ok(whole)
            } else {
                descriptors += 1;
                Err(Rc::new(File::new(fd, &stat)))
            };
            let variant = Variant::new(stat, coding, &content_type, vary, body, &account);
            memory += variant.memory();
            Some(variant)
        };
        let plain = parts.next().and_then(|part| variant(part, None)).expect("open since `opened`");
        let mut encoded = [const { None }; Coding::PREFERENCE.len()];
        for (coding, part) in Coding::PREFERENCE.into_iter().zip(parts) {
            encoded[coding as usize] = variant(part, Some(coding));
        }
        let files = FileSet { content_type, plain, encoded, codings };
        self.finish(id, Kind::File(files), memory, descriptors, true);
    }

    fn finish(&mut self, id: u32, kind: Kind, memory: usize, descriptors: usize, keep: bool) {
        let load = self.end(id);
        let beside_files = if matches!(kind, Kind::File(_)) { 0 } else { memory };
        let resource = Rc::new(Resource {
            _charge: self.account.charge(beside_files as u64),
            memory: memory + size_of::<Resource>() + 2 * load.key.len(),
            key: load.key,
            kind,
            validated: load.began.into(),
            watched: load.watched.into(),
            used: false.into(),
            descriptors,
        });
        if keep && !load.outdated {
            self.keep(Rc::clone(&resource));
        } else if !load.outdated {
            self.forget(&resource.key);
        }
        self.answer(load.waiters, &Answer::Resource(resource));
    }

    fn fail(&mut self, id: u32, status: Status) {
        self.fail_with(id, &Answer::Error(status));
    }

    fn fail_with(&mut self, id: u32, answer: &Answer) {
        if self.load(id).pending > 0 {
            // Only possible for a name with NUL, which no path has.
            return;
        }
        let load = self.end(id);
        if !load.outdated {
            self.forget(&load.key);
        }
        self.answer(load.waiters, answer);
    }

    fn end(&mut self, id: u32) -> Load {
        let load = self.loads[id as usize].take().expect("ends once");
        self.free_loads.push(id);
        if self.by_key.get(&load.key) == Some(&id) {
            self.by_key.remove(&load.key);
        }
        load
    }

    /// No index: list the directory, if that is allowed.
    fn open_directory(&mut self, shell: &mut Shell, id: u32) {
        if !self.policy.listing {
            return self.fail(id, Status::NotFound);
        }
        let load = self.load(id);
        load.step = Step::OpenDirectory;
        let name = load.key.strip_suffix(b"/").unwrap_or(b".").to_vec();
        let how = OpenHow::BENEATH.with_flags(O_DIRECTORY);
        self.submit_open(shell, id, 0, name, how);
    }
}

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
            shell.stats.disk_errors += 1;
            Status::InternalServerError
        }
    }
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

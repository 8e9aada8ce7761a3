//! One load: the steps from a path to its resource.
//!
//! ```text
//! Queued ► Finding ► Examining ──(directories to be watched)──► Watching ──► Finding, once more
//!             │          │
//!             │          ▼
//!             │       Siblings ──(same as before)──► end
//!             │          │
//!             │          ▼     (no room for large files)
//!             │       Admitting ──────────────────────► Parked ──► Finding, once more
//!             │          │
//!             │          ▼
//!             │       Opening ◄──► Comparing ──(another file)──► Finding, once more
//!             │          │
//!             │          ▼
//!             │       Reading ──(changed meanwhile)──► Finding, once more
//!             │          │
//!             ▼          ▼
//!       OpeningDirectory ► Listing ► end
//! ```
//!
//! A path is first opened with `O_PATH`. This has no side effects: the writer of a FIFO keeps waiting, and no driver
//! opens a device. A regular file is then opened for reading. If the directories from the root to the file are not
//! watched, it is opened through `/proc/self/fd`, which opens exactly the inode that was examined. If they are watched,
//! it is opened by its path, which the kernel can do without a wait. A FIFO or a device that has replaced the file
//! meanwhile is then opened but not served.
//!
//! This module makes no system call. From a step and a reply it computes the next step and the next requests to the
//! system ([`Ask`]). Descriptors are of any type `F`, so tests need no system.

mod reading;

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use http::Coding;
use ring::{Buffer, BufferPool, Caching, FileKind, Listing, OpenHow, Stat, Time};

use super::errors::{Refusal, is_link, is_no_entry, is_of_link};
use super::in_memory::InMemory;
use super::media_types::{has_siblings, suffix};
use super::path::{Path, is_directory};
use super::resource::{Kind, Resource, SIZE_MAX};
use crate::tree::TreeId;
use config::{FileRules, HTML_SUFFIX, Symlinks};
use reading::Body;
use session::handler::Ticket;
use session::reason::Reason;

/// The number of parts: the file and its precompressed variants (siblings), in the order of [`Coding::PREFERENCE`].
pub(super) const PARTS: usize = 1 + Coding::PREFERENCE.len();
/// The maximum number of looks at a path that changes all the time: the first, one after its directories are watched,
/// and two after changes. After the last look, a file that changed is served but not cached. A file that was replaced
/// again is an error.
const LOOKS_MAX: u32 = 4;

/// A value for each existing part of a resource. It is in a box so that a load is small: loads are moved, and most of
/// them are for missing files and have no parts.
pub(super) type Parts<T> = Box<[Option<T>; PARTS]>;

/// No part.
fn no_parts<T>() -> Parts<T> {
    Box::new([const { None }; PARTS])
}

/// A load of a path.
#[derive(Debug)]
pub(super) struct Load<F> {
    pub(super) tree: TreeId,
    pub(super) path: Path,
    /// The requests that wait for the load.
    pub(super) tickets: Vec<Ticket>,
    /// True if the path may have changed since the load began. Later requests begin another load,
    /// and the resource that this load finds is not cached.
    pub(super) is_outdated: bool,
    /// The resource that was cached before.
    pub(super) previous: Option<Rc<Resource>>,
    looks: u32,
    has_tried_to_watch: bool,
    /// True if the load looks for the path plus `.html`, because no file has the path itself.
    is_html: bool,
    /// True if a directory has exactly this path.
    is_directory: bool,
    /// For a path that ends with a slash: the position, in the list of index names, of the name that is looked for.
    index: usize,
    /// The first error in this look that a symbolic link has caused.
    link_error: Option<io::Error>,
    /// The number of open files that are reserved for the load; 0 while none are reserved.
    reserved: usize,
    /// The file, if it was opened just before the load began, in the way of [`Step::Finding`].
    found: Option<F>,
    step: Step<F>,
}

/// The values that stay the same during one look at the path.
#[derive(Debug)]
pub(super) struct Look<F> {
    /// The time at which the look began. No result of the look is older.
    pub(super) began: Time,
    /// The same time in Unix seconds.
    pub(super) unix: i64,
    /// The root directory of the tree at that time.
    pub(super) root: F,
    pub(super) way: Coverage,
    /// The mount of the watched directory of the file (`Stat::mount`); `None` if the directory is not
    /// watched.
    pub(super) mount: Option<u64>,
    /// False if the directory has no precompressed files.
    pub(super) may_have_siblings: bool,
}

/// The way from the root to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// All changes of the directories from the root to the file are reported by events.
    Watched,
    /// Some changes of these directories are not reported.
    Unwatched,
    /// The way to the file or to a sibling leads through symbolic links, and changes of their targets are not
    /// reported.
    Linked,
}

/// The current step of a load.
#[derive(Debug)]
enum Step<F> {
    /// The load waits for a slot.
    Queued,
    /// The load waits until more large files may be open; it has nothing open.
    Parked,
    /// The load waits until a directory on the way is watched.
    Watching,
    /// The file, or the index of a directory, is being opened with `O_PATH`.
    Finding { look: Look<F> },
    /// The state of the file is being read.
    Examining { look: Look<F>, file: F },
    /// The directory itself is being opened, to be listed.
    OpeningDirectory { look: Look<F> },
    /// The directory's entries are being read.
    Listing { look: Look<F> },
    /// The siblings are being opened with `O_PATH` and examined, all at the same time.
    Siblings { look: Look<F>, plain: Seen<F>, siblings: Siblings<F> },
    /// The caller decides whether the load may open the large files.
    Admitting { look: Look<F>, found: Parts<Seen<F>> },
    /// One part after the other is being opened for reading.
    Opening {
        look: Look<F>,
        how: How,
        part: usize,
        seen: Seen<F>,
        found: Parts<Seen<F>>,
        open: Parts<Seen<F>>,
    },
    /// The state of the part that was just opened is being read again. There are two
    /// reasons. A part that was opened by its path may now be another file. On a network file system only an open for
    /// reading asks the server for the current state (nfs(5), close-to-open).
    Comparing {
        look: Look<F>,
        part: usize,
        seen: Seen<F>,
        found: Parts<Seen<F>>,
        open: Parts<Seen<F>>,
    },
    /// The small files are being read.
    Reading { look: Look<F>, parts: Parts<(Seen<F>, Body)>, is_changed: bool },
    /// The step is complete. [`Next`] says what the caller must do now.
    Done,
}

/// The way in which a part is opened for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Opens the same inode that was examined, through `/proc/self/fd`.
    ThroughProc,
    /// Opens by the path. Used if the way is watched, or if there is no `/proc`.
    ByName,
}

/// An open file and its state.
#[derive(Debug)]
pub(super) struct Seen<F> {
    /// Before the step `Opening`, a descriptor with `O_PATH`; after it, one for reading.
    pub(super) file: F,
    pub(super) stat: Stat,
}

/// The precompressed variants, in the order of [`Coding::PREFERENCE`].
type Siblings<F> = Box<[Sibling<F>; Coding::PREFERENCE.len()]>;

#[derive(Debug)]
enum Sibling<F> {
    /// The sibling is being opened with `O_PATH`.
    Finding {
        through_links: bool,
    },
    Examining(F),
    Found(Seen<F>),
    Absent,
}

/// A request to the system.
#[derive(Debug)]
pub(super) enum Ask<F> {
    /// `openat2(2)`.
    Open {
        dir: F,
        name: Vec<u8>,
        how: OpenHow,
    },
    /// Opens the target of a path, through links that may lead out of the root.
    Follow {
        root: F,
        name: Vec<u8>,
        how: OpenHow,
    },
    /// Opens the same inode for reading, through `/proc/self/fd`.
    OpenForReading(F),
    Stat(F),
    /// Reads a directory, which has this name below the root.
    List {
        dir: F,
        root: F,
        name: Vec<u8>,
    },
    Read(F, Buffer, Caching),
    /// Drops a file from the page cache, if nothing of it was there before the read.
    Drop(F),
}

/// The reply to an [`Ask`].
#[derive(Debug)]
pub(super) enum Reply<F> {
    Opened(F),
    Stat(Stat),
    Listed(Box<Listing>),
    Read(Buffer),
    Dropped,
    Failed(io::Error),
}

/// The next thing that the caller must do for a load after a step.
#[derive(Debug)]
pub(super) enum Next<F> {
    /// Wait for the replies to the requests of the load.
    Replies,
    /// Begin another look: [`Load::look`].
    Look,
    /// Watch the directories on the way ([`Load::watch`]), and then begin another look.
    Watch,
    /// The same, although the directory is watched already. The file is on this mount, and the directory is on another.
    WatchAgain(u64),
    /// Find room for this many more open files: [`Load::admit`] if there is room, else [`Load::park`].
    Room(usize),
    /// Take the outcome, because the load has ended.
    End(Outcome<F>),
}

/// The result of a load.
#[derive(Debug)]
pub(super) enum Outcome<F> {
    /// The resource that was cached before is still true.
    Unchanged(Look<F>, Rc<Resource>),
    /// The parts, with the bytes of those that were read.
    File {
        look: Look<F>,
        parts: Parts<(Seen<F>, Option<Buffer>)>,
        is_changed: bool,
    },
    /// The path names a directory, but the slash at its end is missing.
    Redirect(Look<F>),
    /// The path has a clean form: the path without its end (`.html`, or the name of the index). The number is the length
    /// of the clean form in bytes. No directory has exactly the path that is not clean.
    Unclean(Look<F>, usize),
    Directory(Look<F>, Box<Listing>),
    /// There is nothing at this path that can be served; the value is the reason.
    Missing(Reason),
    /// The file is replaced faster than it can be opened.
    Replaced,
    TooLarge,
    /// The call failed. If the file itself could not be opened, the pair is its mode and its owner.
    Failed(io::Error, Option<(u32, u32)>),
}

/// The values that the steps of all loads use.
pub(super) struct Tools<'a, F> {
    pub(super) rules: &'a FileRules,
    /// True until a file could not be opened through `/proc/self/fd`.
    pub(super) has_proc: &'a mut bool,
    /// Buffers for small files; a small file fits into one.
    pub(super) pool: &'a BufferPool,
    /// The rule that says, by size, which files are read into memory and which stay open.
    pub(super) in_memory: InMemory,
    /// The requests of a step, each with its part. Each gets one reply.
    pub(super) asks: &'a mut VecDeque<(usize, Ask<F>)>,
}

impl<F: Clone> Load<F> {
    pub(super) fn new(
        tree: TreeId,
        path: Path,
        previous: Option<Rc<Resource>>,
        ticket: Option<Ticket>,
        found: Option<F>,
    ) -> Self {
        Self {
            tree,
            path,
            tickets: ticket.into_iter().collect(),
            is_outdated: false,
            previous,
            looks: 0,
            has_tried_to_watch: false,
            is_html: false,
            is_directory: false,
            index: 0,
            link_error: None,
            reserved: 0,
            found,
            step: Step::Queued,
        }
    }

    /// The most memory that the load takes, in bytes. The steps that need the most memory have two lists of parts.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<[Option<Seen<F>>; PARTS]>() + self.path.len()
    }

    /// Returns true if the file that is being examined was found through links.
    pub(super) fn is_linked(&self) -> bool {
        matches!(&self.step, Step::Examining { look, .. } if look.way == Coverage::Linked)
    }

    /// The number of open files that are reserved for the load.
    pub(super) const fn reserved(&self) -> usize {
        self.reserved
    }

    /// Looks at the path, for the first time or again.
    pub(super) fn look(&mut self, look: Look<F>, tools: &mut Tools<'_, F>) -> Next<F> {
        self.looks += 1;
        (self.is_html, self.is_directory, self.index) = (false, false, 0);
        self.link_error = None;
        if let Some(file) = self.found.take() {
            return self.examine(look, file, tools);
        }
        let step = self.find(look, tools);
        self.wait(step)
    }

    /// Returns whether the file was opened before the load has begun.
    pub(super) const fn has_found(&self) -> bool {
        self.found.is_some()
    }

    /// Closes a file that was opened before: the load waits for a slot, and has nothing open.
    pub(super) fn forget_found(&mut self) {
        self.found = None;
    }

    /// Waits until a directory on the way is watched.
    pub(super) fn watch(&mut self) {
        self.has_tried_to_watch = true;
        self.step = Step::Watching;
    }

    /// Waits until more files may be open; meanwhile nothing is open.
    pub(super) fn park(&mut self) {
        debug_assert!(matches!(self.step, Step::Admitting { .. }));
        self.step = Step::Parked;
    }

    /// Returns true if the load waits until more files may be open.
    pub(super) const fn is_parked(&self) -> bool {
        matches!(self.step, Step::Parked)
    }

    /// Reserves open files for the load. The load waits in the queue again for its next look.
    pub(super) fn unpark(&mut self, reserved: usize) {
        debug_assert!(matches!(self.step, Step::Parked));
        self.reserved = reserved;
        self.step = Step::Queued;
    }

    /// Reserves open files for the load, and continues it.
    pub(super) fn admit(&mut self, reserved: usize, tools: &mut Tools<'_, F>) -> Next<F> {
        self.reserved = reserved;
        match core::mem::replace(&mut self.step, Step::Done) {
            Step::Admitting { look, found } => self.open_next(look, found, no_parts(), tools),
            step => unreachable!("there was no question of room in {}", step.name()),
        }
    }

    /// Handles the reply about a part.
    pub(super) fn handle(
        &mut self,
        part: usize,
        reply: Reply<F>,
        tools: &mut Tools<'_, F>,
    ) -> Next<F> {
        match (core::mem::replace(&mut self.step, Step::Done), reply) {
            (Step::Finding { look }, Reply::Opened(file)) => self.examine(look, file, tools),
            (Step::Finding { mut look }, Reply::Failed(error))
                if is_link(&error)
                    && look.way != Coverage::Linked
                    && tools.rules.symlinks != Symlinks::Never =>
            {
                look.way = Coverage::Linked;
                let step = self.find(look, tools);
                self.wait(step)
            }
            (Step::Finding { look }, Reply::Failed(error))
                if Refusal::of(&error) == Refusal::Missing =>
            {
                self.missed(look, error, tools)
            }
            (Step::Examining { look, file }, Reply::Stat(stat)) => {
                self.examined(look, Seen { file, stat }, tools)
            }
            (Step::OpeningDirectory { look }, Reply::Opened(dir)) => {
                if self.wants_watches(&look) {
                    return Next::Watch;
                }
                let (root, name) = (look.root.clone(), self.directory_name());
                tools.asks.push_back((0, Ask::List { dir, root, name }));
                self.wait(Step::Listing { look })
            }
            (Step::Listing { mut look }, Reply::Listed(entries)) => {
                // Changes of the links' targets make no events.
                if entries.has_links {
                    look.way = Coverage::Linked;
                }
                Next::End(Outcome::Directory(look, entries))
            }
            (Step::Siblings { look, plain, siblings }, reply) => {
                self.sibling(look, plain, siblings, part, reply, tools)
            }
            (Step::Opening { look, how, part, seen, found, open }, reply) => {
                self.opened(look, how, part, seen, found, open, reply, tools)
            }
            (Step::Comparing { look, part, seen, found, mut open }, Reply::Stat(stat)) => {
                let inode = |stat: &Stat| (stat.kind, stat.dev, stat.ino);
                if inode(&stat) == inode(&seen.stat) {
                    open[part] = Some(Seen { file: seen.file, stat });
                    self.open_next(look, found, open, tools)
                } else if self.looks < LOOKS_MAX {
                    Next::Look
                } else {
                    Next::End(Outcome::Replaced)
                }
            }
            (Step::Reading { look, parts, is_changed }, reply) => {
                self.read(look, parts, is_changed, part, reply, tools)
            }
            (_, Reply::Failed(error)) => Next::End(Outcome::Failed(error, None)),
            (step, reply) => unreachable!("{} in the step {}", reply.name(), step.name()),
        }
    }

    fn wait(&mut self, step: Step<F>) -> Next<F> {
        self.step = step;
        Next::Replies
    }

    fn examine(&mut self, look: Look<F>, file: F, tools: &mut Tools<'_, F>) -> Next<F> {
        tools.asks.push_back((0, Ask::Stat(file.clone())));
        self.wait(Step::Examining { look, file })
    }

    fn find(&self, look: Look<F>, tools: &mut Tools<'_, F>) -> Step<F> {
        let (dir, name) = (look.root.clone(), self.file_name(tools.rules));
        tools.asks.push_back((0, look.ask(dir, name, look.how_to_find(), tools.rules)));
        Step::Finding { look }
    }

    /// The path of the file itself, relative to the root.
    pub(super) fn file_name(&self, rules: &FileRules) -> Vec<u8> {
        let mut name = self.path.to_vec();
        if is_directory(&name) {
            name.extend_from_slice(rules.index[self.index].as_bytes());
        } else if self.is_html {
            name.extend_from_slice(HTML_SUFFIX);
        }
        name
    }

    /// The number of the index name that was found, if the path is that of a directory.
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// The path of a part, relative to the root.
    fn part_name(&self, part: usize, rules: &FileRules) -> Vec<u8> {
        let mut name = self.file_name(rules);
        if let Some(coding) = coding_of(part) {
            name.extend_from_slice(suffix(coding).as_bytes());
        }
        name
    }

    /// Returns true if the directories on the way must be watched before the load continues.
    fn wants_watches(&self, look: &Look<F>) -> bool {
        look.way == Coverage::Unwatched && !self.has_tried_to_watch
    }

    /// Continues the load after no file was found with the name.
    fn missed(&mut self, look: Look<F>, error: io::Error, tools: &mut Tools<'_, F>) -> Next<F> {
        if is_of_link(&error) && self.link_error.is_none() {
            self.link_error = Some(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0)));
        }
        // The clean path may lead to a file, for example to an index with another name.
        if let Some(len) = self.clean_len(tools) {
            return Next::End(Outcome::Unclean(look, len));
        }
        if is_directory(&self.path) {
            return self.find_next_index(look, tools);
        }
        if self.is_html || !tools.rules.clean_urls {
            let error = self.link_error.take().unwrap_or(error);
            return self.without_html(look, Outcome::Failed(error, None));
        }
        self.find_html(look, tools)
    }

    /// Looks for the file whose name is the path and `.html` (clean URLs).
    fn find_html(&mut self, look: Look<F>, tools: &mut Tools<'_, F>) -> Next<F> {
        self.is_html = true;
        let step = self.find(look, tools);
        self.wait(step)
    }

    /// Ends the load because no file has this path with `.html` after it, or because clean URLs are off. If a directory
    /// has the path itself, the client is redirected to that path with a slash.
    fn without_html(&self, look: Look<F>, otherwise: Outcome<F>) -> Next<F> {
        Next::End(if self.is_directory { Outcome::Redirect(look) } else { otherwise })
    }

    /// Looks for the next name of the index. After the last name the directory has no index.
    fn find_next_index(&mut self, look: Look<F>, tools: &mut Tools<'_, F>) -> Next<F> {
        if self.index + 1 == tools.rules.index.len() {
            return self.open_directory(look, tools);
        }
        self.index += 1;
        let step = self.find(look, tools);
        self.wait(step)
    }

    /// Lists the directory, which has no index, if listings are allowed.
    fn open_directory(&mut self, look: Look<F>, tools: &mut Tools<'_, F>) -> Next<F> {
        if !tools.rules.listing {
            return Next::End(match self.link_error.take() {
                Some(error) => Outcome::Failed(error, None),
                None => Outcome::Missing(Reason::NoIndex),
            });
        }
        let name = self.directory_name();
        let mut how = OpenHow::DIRECTORY;
        if tools.rules.symlinks == Symlinks::Never {
            how = how.without_symlinks();
        }
        tools.asks.push_back((0, look.ask(look.root.clone(), name, how, tools.rules)));
        self.wait(Step::OpeningDirectory { look })
    }

    /// The path of the directory itself, relative to the root.
    fn directory_name(&self) -> Vec<u8> {
        self.path.strip_suffix(b"/").unwrap_or(b".").to_vec()
    }

    /// The length of the clean path, if the path itself is not clean.
    fn clean_len(&self, tools: &Tools<'_, F>) -> Option<usize> {
        tools.rules.clean_path(&self.path).map(<[u8]>::len)
    }

    /// Takes the state of the file itself.
    fn examined(&mut self, mut look: Look<F>, plain: Seen<F>, tools: &mut Tools<'_, F>) -> Next<F> {
        if plain.stat.kind != FileKind::Directory
            && let Some(len) = self.clean_len(tools)
        {
            return Next::End(Outcome::Unclean(look, len));
        }
        match plain.stat.kind {
            FileKind::Regular => {}
            FileKind::Directory if is_directory(&self.path) => {
                return self.find_next_index(look, tools);
            }
            // An HTML file must be a regular file.
            FileKind::Directory | FileKind::Symlink | FileKind::Other if self.is_html => {
                return self.without_html(look, Outcome::Missing(Reason::NotRegular));
            }
            FileKind::Directory => {
                self.is_directory = true;
                if tools.rules.clean_urls && self.clean_len(tools).is_none() {
                    return self.find_html(look, tools);
                }
                return Next::End(Outcome::Redirect(look));
            }
            FileKind::Symlink | FileKind::Other => {
                return Next::End(Outcome::Missing(Reason::NotRegular));
            }
        }
        if plain.stat.size > SIZE_MAX {
            return Next::End(Outcome::TooLarge);
        }
        if self.wants_watches(&look) {
            return Next::Watch;
        }
        if look.is_elsewhere(&plain.stat) && !self.has_tried_to_watch {
            return Next::WatchAgain(plain.stat.mount);
        }
        look.respect_names(&plain.stat);
        if !look.may_have_siblings || !has_siblings(&self.file_name(tools.rules), tools.rules) {
            let mut found = no_parts();
            found[0] = Some(plain);
            return self.found(look, found, tools);
        }
        let siblings = core::array::from_fn(|at| self.find_sibling(&look, 1 + at, tools));
        self.wait(Step::Siblings { look, plain, siblings: Box::new(siblings) })
    }

    /// Looks for a sibling. Links are followed only if a link was already found on the way.
    fn find_sibling(&self, look: &Look<F>, part: usize, tools: &mut Tools<'_, F>) -> Sibling<F> {
        let (dir, name) = (look.root.clone(), self.part_name(part, tools.rules));
        tools.asks.push_back((part, look.ask(dir, name, look.how_to_find(), tools.rules)));
        Sibling::Finding { through_links: look.way == Coverage::Linked }
    }

    fn sibling(
        &mut self,
        mut look: Look<F>,
        plain: Seen<F>,
        mut siblings: Siblings<F>,
        part: usize,
        reply: Reply<F>,
        tools: &mut Tools<'_, F>,
    ) -> Next<F> {
        let sibling = &mut siblings[part - 1];
        *sibling = match (core::mem::replace(sibling, Sibling::Absent), reply) {
            (Sibling::Finding { .. }, Reply::Opened(file)) => {
                tools.asks.push_back((part, Ask::Stat(file.clone())));
                Sibling::Examining(file)
            }
            // The sibling is a link. Changes of its target make no event.
            (Sibling::Finding { through_links: false }, Reply::Failed(error))
                if is_link(&error) && tools.rules.symlinks != Symlinks::Never =>
            {
                look.way = Coverage::Linked;
                self.find_sibling(&look, part, tools)
            }
            (Sibling::Examining(file), Reply::Stat(stat))
                if stat.kind == FileKind::Regular && stat.size <= SIZE_MAX =>
            {
                look.respect_names(&stat);
                Sibling::Found(Seen { file, stat })
            }
            // The sibling does not exist, or cannot be served in place of the file.
            _ => Sibling::Absent,
        };
        let is_pending = |sibling: &Sibling<F>| {
            matches!(sibling, Sibling::Finding { .. } | Sibling::Examining(_))
        };
        if siblings.iter().any(is_pending) {
            return self.wait(Step::Siblings { look, plain, siblings });
        }
        let mut found = no_parts();
        found[0] = Some(plain);
        for (found, sibling) in found[1..].iter_mut().zip(*siblings) {
            if let Sibling::Found(seen) = sibling {
                *found = Some(seen);
            }
        }
        self.found(look, found, tools)
    }

    /// After all parts were examined, opens them for reading. If nothing changed on a watched way, the load ends.
    fn found(&mut self, look: Look<F>, found: Parts<Seen<F>>, tools: &mut Tools<'_, F>) -> Next<F> {
        if look.way == Coverage::Watched
            && let Some(previous) = self.unchanged(&found)
        {
            return Next::End(Outcome::Unchanged(look, previous));
        }
        let is_large = |seen: &&Seen<F>| tools.in_memory.keeps_open(seen.stat.size);
        let large = found.iter().flatten().filter(is_large).count();
        if large > 0 && self.reserved == 0 {
            self.step = Step::Admitting { look, found };
            return Next::Room(large);
        }
        self.open_next(look, found, no_parts(), tools)
    }

    /// Returns the resource that was cached before, if its parts have not changed.
    fn unchanged(&self, parts: &Parts<Seen<F>>) -> Option<Rc<Resource>> {
        let is_settled =
            |previous: &&Rc<Resource>| previous.settled && previous.index == self.index;
        let previous = self.previous.as_ref().filter(is_settled)?;
        let Kind::File(files) = &previous.kind else { return None };
        let now = |part: usize| parts[part].as_ref().map(|seen| &seen.stat);
        let is_same = now(0) == Some(&files.plain.stat)
            && (1..).zip(&files.encoded).all(|(part, variant)| {
                // A copy (a variant that was made from the plain file) has no file of its own. It is unchanged until a
                // file with the name of this variant exists.
                let file = variant.as_ref().filter(|variant| !variant.is_copy);
                now(part) == file.map(|variant| &variant.stat)
            });
        is_same.then(|| Rc::clone(previous))
    }

    /// Opens the next part for reading. If all are open, reads the small parts.
    fn open_next(
        &mut self,
        look: Look<F>,
        mut found: Parts<Seen<F>>,
        open: Parts<Seen<F>>,
        tools: &mut Tools<'_, F>,
    ) -> Next<F> {
        let next = (0..).zip(found.iter_mut()).find_map(|(part, seen)| Some((part, seen.take()?)));
        let Some((part, seen)) = next else { return self.begin_reading(look, open, tools) };
        let (how, ask) = if *tools.has_proc && look.way != Coverage::Watched {
            (How::ThroughProc, Ask::OpenForReading(seen.file.clone()))
        } else {
            let follow = look.way == Coverage::Linked;
            let how = if follow { OpenHow::BENEATH } else { OpenHow::BENEATH.without_symlinks() };
            let (dir, name) = (look.root.clone(), self.part_name(part, tools.rules));
            (How::ByName, look.ask(dir, name, how, tools.rules))
        };
        tools.asks.push_back((part, ask));
        self.wait(Step::Opening { look, how, part, seen, found, open })
    }

    fn opened(
        &mut self,
        look: Look<F>,
        how: How,
        part: usize,
        seen: Seen<F>,
        mut found: Parts<Seen<F>>,
        open: Parts<Seen<F>>,
        reply: Reply<F>,
        tools: &mut Tools<'_, F>,
    ) -> Next<F> {
        match reply {
            Reply::Opened(file) => {
                tools.asks.push_back((part, Ask::Stat(file.clone())));
                let seen = Seen { file, stat: seen.stat };
                return self.wait(Step::Comparing { look, part, seen, found, open });
            }
            Reply::Failed(error) if is_no_entry(&error) && how == How::ThroughProc => {
                *tools.has_proc = false;
                found[part] = Some(seen);
            }
            // The path changed meanwhile, or another program has a lease on the file. So the examined file is opened
            // through its descriptor, in a thread that can wait for the lease.
            Reply::Failed(_)
                if how == How::ByName && look.way == Coverage::Watched && *tools.has_proc =>
            {
                let how = How::ThroughProc;
                tools.asks.push_back((part, Ask::OpenForReading(seen.file.clone())));
                return self.wait(Step::Opening { look, how, part, seen, found, open });
            }
            Reply::Failed(error) if part == 0 => {
                let owner = Some((seen.stat.mode.into(), seen.stat.owner));
                return Next::End(Outcome::Failed(error, owner));
            }
            // A sibling that cannot be read is left out.
            _ => {}
        }
        self.open_next(look, found, open, tools)
    }
}

impl<F> Look<F> {
    /// A request to open a path. Links may lead out of the root only if links were found on the way and the rules permit
    /// that.
    fn ask(&self, root: F, name: Vec<u8>, how: OpenHow, rules: &FileRules) -> Ask<F> {
        if self.way == Coverage::Linked && rules.symlinks.lead_out() {
            Ask::Follow { root, name, how }
        } else {
            Ask::Open { dir: root, name, how }
        }
    }

    /// The way in which files are found: after the first link was found, links are followed.
    fn how_to_find(&self) -> OpenHow {
        if self.way == Coverage::Linked { FIND } else { FIND.without_symlinks() }
    }

    /// Returns true if the file is on another mount than its watched directory. Then something was mounted over the
    /// file, or over its directory after the watch of the directory began.
    fn is_elsewhere(&self, stat: &Stat) -> bool {
        self.way == Coverage::Watched && self.mount.is_some_and(|mount| mount != stat.mount)
    }

    /// Makes the way unwatched for a file with several hard links, or for one on which something is mounted: it may
    /// change through a directory that is not watched.
    fn respect_names(&mut self, stat: &Stat) {
        if self.way == Coverage::Watched && (stat.links > 1 || self.is_elsewhere(stat)) {
            self.way = Coverage::Unwatched;
        }
    }
}

impl<F> Step<F> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Parked => "Parked",
            Self::Watching => "Watching",
            Self::Finding { .. } => "Finding",
            Self::Examining { .. } => "Examining",
            Self::OpeningDirectory { .. } => "OpeningDirectory",
            Self::Listing { .. } => "Listing",
            Self::Siblings { .. } => "Siblings",
            Self::Admitting { .. } => "Admitting",
            Self::Opening { .. } => "Opening",
            Self::Comparing { .. } => "Comparing",
            Self::Reading { .. } => "Reading",
            Self::Done => "Done",
        }
    }
}

impl<F> Reply<F> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Opened(_) => "Opened",
            Self::Stat(_) => "Stat",
            Self::Listed(_) => "Listed",
            Self::Read(_) => "Read",
            Self::Dropped => "Dropped",
            Self::Failed(_) => "Failed",
        }
    }
}

/// The coding of a part; the file itself has none.
pub(super) fn coding_of(part: usize) -> Option<Coding> {
    part.checked_sub(1).map(|at| Coding::PREFERENCE[at])
}

/// The way in which the first step of a load opens its path.
pub(super) const fn first_step() -> OpenHow {
    FIND.without_symlinks()
}

/// Finds a file beneath the root without opening it for reading.
const FIND: OpenHow = OpenHow { flags: O_PATH, ..OpenHow::BENEATH };

#[allow(clippy::cast_possible_wrap, reason = "a single bit far below the sign")]
const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;

#[cfg(test)]
mod tests;

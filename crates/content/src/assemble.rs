//! Makes a resource from the results of a load.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::rc::Rc;

use config::FileRules;
use http::{Coding, Codings};
use ring::{Buffer, Fd, FileKind, Listing, Stat, Time};
use sendfile::{Account, File};

use super::copies::{Copied, Name, Original};
use super::entries::Entries;
use super::in_memory::InMemory;
use super::load::{Coverage, Load, Look, PARTS, Parts, Seen, coding_of};
use super::media_types::{coding_of_format, content_type, is_film};
use super::resource::{Kind, Resource};
use super::tree::Tree;
use session::files::{Data, FileSet, Variant};

/// If a file is at least this old, in seconds, its times tell its states apart. Some file systems store whole seconds,
/// and times are set before the bytes are written.
const SETTLED_AFTER: i64 = 3;

/// The kind of a new resource, and its cost.
#[derive(Debug)]
pub(super) struct Assembled {
    kind: Kind,
    /// Bytes of memory.
    memory: usize,
    /// The number of files that stay open.
    descriptors: usize,
    /// See [`Resource::settled`].
    settled: bool,
}

impl Assembled {
    /// Makes a file of a tree with its siblings. `name` has the requested path, and `path` is the path of the file. `tag`
    /// makes the entity tag of each file, and `copy` makes copies in codings in which there is no file. The files were
    /// examined in the second `unix`.
    ///
    /// # Panics
    ///
    /// If the first part is missing, which is the file itself.
    pub(super) fn file(
        tree: &Tree,
        (name, path): (&Name, &[u8]),
        unix: i64,
        parts: Parts<(Seen<Fd>, Option<Buffer>)>,
        in_memory: InMemory,
        tag: impl Fn(&Stat, Option<Coding>) -> Vec<u8>,
        copy: impl FnMut(&Original<'_>, Coding) -> Option<Copied>,
        account: &Account,
    ) -> Self {
        let content_type = content_type(path, &tree.rules);
        let own_coding = coding_of_format(path, &tree.rules);
        let rules = tree.fields_of(path, &name.path);
        let mut copies = match own_coding {
            None => copies_of(name, &tree.rules, &parts, &content_type, copy),
            Some(_) => [const { None }; PARTS],
        };
        let mut codings = Codings::default();
        for (part, coding) in (1..).zip(Coding::PREFERENCE) {
            if parts[part].is_some() || copies[part].is_some() {
                codings = codings.with(coding);
            }
        }
        let vary = (!codings.is_empty()).then_some(&b"Accept-Encoding"[..]);
        let (mut memory, mut descriptors, mut settled) = (0, 0, true);
        let mut variants: [Option<Variant>; PARTS] = [const { None }; PARTS];
        for (part, found) in parts.into_iter().enumerate() {
            let Some((Seen { file, stat }, body)) = found else { continue };
            settled &= unix.saturating_sub(stat.ctime.max(stat.mtime)) >= SETTLED_AFTER;
            let whole = body.as_deref().unwrap_or_default();
            let body = Some(whole).filter(|whole| whole.len() as u64 == stat.size);
            let is_open = body.is_none() || in_memory.keeps_open(stat.size);
            let data =
                if is_open { Data::File(Rc::new(File::new(file, &stat))) } else { Data::Memory };
            descriptors += usize::from(is_open);
            let coding = coding_of(part);
            let etag = tag(&stat, coding);
            let coding = coding.or(own_coding);
            let variant =
                Variant::new(stat, etag, coding, &content_type, vary, &rules, data, body, account);
            memory += variant.memory();
            variants[part] = Some(variant);
        }
        let plain = variants[0].as_ref().map(|plain| plain.stat);
        for (part, coding) in (1..).zip(Coding::PREFERENCE) {
            if let (Some(Copied { bytes, etag }), Some(stat)) = (copies[part].take(), plain) {
                let variant =
                    Variant::copy(stat, etag, coding, &content_type, vary, &rules, &bytes, account);
                memory += variant.memory();
                variants[part] = Some(variant);
            }
        }
        let [plain, encoded @ ..] = variants;
        let plain = plain.expect("a load without the file itself has failed");
        let is_film = matches!(plain.data, Data::File(_)) && is_film(&content_type);
        let layout = is_film.then(Box::default);
        if is_film {
            memory += media::MEMORY_MAX;
        }
        let kind = Kind::File(FileSet {
            content_type,
            plain,
            encoded,
            codings,
            own_coding,
            fields: rules,
            layout,
        });
        Self { kind, memory, descriptors, settled }
    }

    /// Makes a redirect for a directory that was requested without its slash.
    pub(super) const fn redirect() -> Self {
        Self { kind: Kind::Redirect, memory: 0, descriptors: 0, settled: false }
    }

    /// Makes a redirect to the clean path of a page, which is the first `len` bytes of the requested path.
    pub(super) const fn unclean(len: usize) -> Self {
        Self { kind: Kind::Unclean(len), memory: 0, descriptors: 0, settled: false }
    }

    /// Makes a directory of a tree, at this path, with its entries. Files that are not sent are no entries.
    pub(super) fn directory(tree: &Tree, path: &[u8], mut listing: Listing) -> Self {
        if !tree.rules.dotfiles {
            listing.entries.retain(|entry| !entry.name.starts_with(b"."));
        }
        if let Some(sources) = &tree.sources {
            let directory = listing.path.take();
            listing.entries.retain_mut(|entry| {
                let target = entry.target.take().map(PathBuf::from);
                let own = || Some(directory.as_ref()?.join(OsStr::from_bytes(&entry.name)));
                let name = [path, &entry.name].concat();
                let hides = |target: PathBuf| sources.hide_target(&name, &target);
                let is_hidden = || sources.hide(&name) || target.or_else(own).is_some_and(hides);
                entry.kind != FileKind::Regular || !is_hidden()
            });
        }
        let entries = &listing.entries;
        let memory = entries.iter().map(|e| e.name.len() + size_of_val(e)).sum();
        let kind = Kind::Directory(Rc::new(Entries::from(listing)));
        Self { kind, memory, descriptors: 0, settled: false }
    }

    /// Makes the resource of the load's path; it was true during the look.
    pub(super) fn into_resource(
        self,
        load: &Load<Fd>,
        look: &Look<Fd>,
        now: Time,
        account: &Account,
    ) -> Rc<Resource> {
        // The buffers of files are charged separately.
        let charged = if matches!(self.kind, Kind::File(_)) { 0 } else { self.memory };
        Rc::new(Resource {
            tree: load.tree,
            path: Rc::clone(&load.path),
            index: load.index(),
            kind: self.kind,
            validated: look.began.into(),
            watched: (look.way == Coverage::Watched).into(),
            settled: self.settled,
            used: now.into(),
            idle_at: None.into(),
            memory: self.memory + size_of::<Resource>() + load.path.len(),
            descriptors: self.descriptors,
            _charge: account.charge(charged as u64),
        })
    }
}

/// The copies of a file in the codings in which there is no file beside it.
fn copies_of(
    name: &Name,
    rules: &FileRules,
    parts: &Parts<(Seen<Fd>, Option<Buffer>)>,
    content_type: &str,
    mut copy: impl FnMut(&Original<'_>, Coding) -> Option<Copied>,
) -> [Option<Copied>; PARTS] {
    let mut copies = [const { None }; PARTS];
    let Some((Seen { file, stat }, body)) = &parts[0] else { return copies };
    let bytes = body.as_deref().filter(|bytes| bytes.len() as u64 == stat.size);
    let original = Original { name, rules, stat, content_type, bytes, file };
    for (part, coding) in (1..).zip(Coding::PREFERENCE) {
        if parts[part].is_none() {
            copies[part] = copy(&original, coding);
        }
    }
    copies
}

//! A resource: the file or directory that a path names, with its prepared responses.

use core::cell::{Cell, OnceCell, RefCell};
use core::ops::Range;
use std::rc::Rc;

use http::{Coding, Codings, ResponseHead, Status, date};
use http1::write;
use media::Layout;
use ring::{Stat, Time};
use sendfile::{Account, Charge, File, Piece, Policy, Shared};

use super::entries::Entries;
use super::path::Path;
use crate::fields::{self, Rules};
use crate::serving::TreeId;

/// The maximum size of a file that is served. The ring reads nothing beyond (`ring::Ring::submit`),
/// and the promised bytes of a connection stay far below 2⁶⁴. No disk is so large, but a sparse
/// file may be.
pub(crate) const SIZE_MAX: u64 = 1 << 62;

/// The resource of a path. The cache shares it with the requests that it answers.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(super) tree: TreeId,
    pub(crate) path: Path,
    /// Which of the names of an index the file has, if the path is that of a directory.
    pub(crate) index: usize,
    pub(crate) kind: Kind,
    /// A time at which the resource was still true; it may have been true for longer.
    pub(super) validated: Cell<Time>,
    /// True if changes make events.
    pub(super) watched: Cell<bool>,
    /// True if the last change of its files was long enough ago when they were examined. Otherwise
    /// different bytes may have the same size and times.
    pub(super) settled: bool,
    /// The time of the last request.
    pub(super) used: Cell<Time>,
    /// Its key in the cache's list of resources that may become idle; Some exactly while it is in
    /// that list.
    pub(super) idle_at: Cell<Option<(Time, u64)>>,
    /// The approximate number of bytes of memory that it holds.
    pub(crate) memory: usize,
    /// The number of open files that it holds.
    pub(super) descriptors: usize,
    /// The charge for memory other than the buffers of its files, which are charged separately.
    pub(super) _charge: Charge,
}

/// The thing that a path names.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all that are cached are files")]
pub(crate) enum Kind {
    File(FileSet),
    /// A directory that was requested without its slash.
    Redirect,
    /// A page that was requested by another path than its clean one, which is the beginning of that, so many bytes long.
    Unclean(usize),
    /// The entries of a directory without an index.
    Directory(Rc<Entries>),
}

/// A file and its precompressed siblings.
#[derive(Debug)]
pub(crate) struct FileSet {
    pub(crate) content_type: String,
    pub(crate) plain: Variant,
    /// In the order of [`Coding::PREFERENCE`].
    pub(crate) encoded: [Option<Variant>; Coding::PREFERENCE.len()],
    pub(crate) codings: Codings,
    /// The coding in which the file itself is by the nature of its format. Such a file has no siblings.
    pub(crate) own_coding: Option<Coding>,
    /// The rules that its heads obey.
    pub(crate) fields: Rules,
    /// Some for a film: its layout, once that has been learned; None within if the container does not
    /// tell the rate.
    pub(crate) layout: Option<Box<OnceCell<Option<Layout>>>>,
}

/// One file that can be sent.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) stat: Stat,
    /// The entity tag; empty if there is none.
    pub(crate) etag: Vec<u8>,
    pub(crate) data: Data,
    /// The usual response: status 200 to an HTTP/1.1 client whose connection stays open. It has the
    /// body too, if the body is in memory.
    pub(crate) finished: Finished,
}

/// The usual response for a file: the whole file in one coding.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    files: &'a FileSet,
    variant: &'a Variant,
    coding: Option<Coding>,
    policy: Policy,
}

/// The place of a file's bytes.
#[derive(Debug)]
pub(crate) enum Data {
    /// Behind the head in [`Variant::finished`].
    Memory,
    File(Rc<File>),
}

/// A head, and perhaps a body, that can be sent after the date is written into it.
#[derive(Debug)]
pub struct Finished {
    bytes: RefCell<Shared>,
    /// The second of the date in `bytes`.
    second: Cell<i64>,
    date_at: usize,
    /// The place of the time of modification, unless a rule has removed or set it.
    modified_at: Option<usize>,
    /// The modification of the file, in Unix seconds.
    modified: i64,
    pub(crate) head_len: usize,
    has_body: bool,
}

impl Resource {
    /// Returns whether a response holds one of its files.
    pub(crate) fn is_sent(&self) -> bool {
        let Kind::File(files) = &self.kind else { return false };
        files.files().any(|file| Rc::strong_count(file) > 1)
    }
}

impl FileSet {
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Variant> {
        core::iter::once(&self.plain).chain(self.encoded.iter().flatten())
    }

    /// The open files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Rc<File>> {
        self.variants().filter_map(|variant| match &variant.data {
            Data::File(file) => Some(file),
            Data::Memory => None,
        })
    }

    pub(crate) fn variant(&self, coding: Option<Coding>) -> &Variant {
        coding.and_then(|coding| self.encoded[coding as usize].as_ref()).unwrap_or(&self.plain)
    }

    pub(crate) fn vary(&self) -> Option<&'static [u8]> {
        (!self.codings.is_empty()).then_some(&b"Accept-Encoding"[..])
    }
}

impl Variant {
    /// Makes a variant. `body` is the bytes of the file, or the open file if the bytes are not kept
    /// in memory.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of the response")]
    pub(crate) fn new(
        stat: Stat,
        etag: Vec<u8>,
        coding: Option<Coding>,
        content_type: &str,
        vary: Option<&'static [u8]>,
        rules: &Rules,
        body: Result<&[u8], Rc<File>>,
        account: &Account,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut head = ResponseHead {
            content_length: Some(stat.size),
            ..head(&stat, &etag, coding, content_type, vary)
        };
        fields::apply(rules, &mut head);
        let date_at =
            write::response_head(&head, &date::format(0), write::Wire::default(), &mut bytes);
        let head_len = bytes.len();
        let name = b"\r\nLast-Modified: ";
        let place = bytes.windows(name.len()).position(|window| window == name);
        let place = place.filter(|_| head.last_modified.is_some());
        let modified_at = place.map(|place| place + name.len());
        let data = match body {
            Ok(body) => {
                bytes.extend_from_slice(body);
                Data::Memory
            }
            Err(file) => Data::File(file),
        };
        let finished = Finished {
            bytes: RefCell::new(Shared::new(bytes, account)),
            second: Cell::new(0),
            date_at,
            modified_at,
            modified: stat.mtime,
            head_len,
            has_body: matches!(data, Data::Memory),
        };
        Self { stat, etag, data, finished }
    }

    pub(crate) fn memory(&self) -> usize {
        self.finished.bytes.borrow().len() + size_of::<Self>()
    }
}

impl<'a> Whole<'a> {
    pub(crate) fn new(files: &'a FileSet, coding: Option<Coding>, policy: Policy) -> Self {
        let variant = files.variant(coding);
        Self { files, variant, coding: coding.or(files.own_coding), policy }
    }

    pub(crate) const fn variant(&self) -> &'a Variant {
        self.variant
    }

    /// Returns whether the variant is in a coding.
    pub(crate) const fn is_encoded(&self) -> bool {
        self.coding.is_some()
    }

    /// The treatment of the file, if its bytes are not in memory.
    pub(crate) const fn policy(&self) -> Policy {
        self.policy
    }

    /// The head of a response with this status.
    pub(crate) fn head(&self, status: Status) -> ResponseHead<'a> {
        let Self { files, variant, coding, .. } = self;
        let (stat, etag) = (&variant.stat, &variant.etag);
        let mut head = head(stat, etag, *coding, &files.content_type, files.vary());
        head.content_length = Some(stat.size);
        head.status = status;
        fields::apply(&files.fields, &mut head);
        head
    }
}

impl Finished {
    /// Returns whether the body is behind the head.
    pub(crate) const fn has_body(&self) -> bool {
        self.has_body
    }

    /// The body, if it is in memory.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.bytes.borrow()[self.head_len..].to_vec()
    }

    /// Pushes the response with the current date, or its head alone.
    ///
    /// The date in the buffer cannot be changed while other responses send the buffer. Then the
    /// head is copied and the body is a part of the buffer, so slow clients never need a second
    /// buffer.
    pub(crate) fn send(
        &self,
        second: i64,
        date: &[u8; date::DATE_LEN],
        with_body: bool,
        mut push: impl FnMut(Piece),
    ) {
        let mut bytes = self.bytes.borrow_mut();
        if self.second.get() != second {
            if let Some(own) = bytes.get_mut() {
                self.stamp(own, second, date);
                self.second.set(second);
            } else {
                let mut head = bytes[..self.head_len].to_vec();
                self.stamp(&mut head, second, date);
                push(Piece::Bytes(head));
                if with_body {
                    push(Piece::Shared(bytes.clone(), self.head_len..bytes.len()));
                }
                return;
            }
        }
        let end = if with_body { bytes.len() } else { self.head_len };
        push(Piece::Shared(bytes.clone(), 0..end));
    }

    /// Returns a part of the body, which must be in memory.
    pub(crate) fn part(&self, range: Range<u64>) -> Piece {
        let place = |at: u64| self.head_len + usize::try_from(at).expect("in memory");
        Piece::Shared(self.bytes.borrow().clone(), place(range.start)..place(range.end))
    }

    /// Writes the date. A modification in the future gets the date of the message (RFC 9110
    /// §8.8.2.1).
    fn stamp(&self, bytes: &mut [u8], second: i64, date: &[u8; date::DATE_LEN]) {
        bytes[self.date_at..][..date.len()].copy_from_slice(date);
        if self.modified > self.second.get()
            && let Some(at) = self.modified_at
        {
            let modified = date::format(self.modified.min(second));
            bytes[at..][..modified.len()].copy_from_slice(&modified);
        }
    }
}

/// The time of the last modification of a file, unless that is the beginning of the time of the system or before it.
/// Programs that make the same of the same sources give their files such times (Nix 1, images of containers 0), whatever
/// is in them: they tell one state from another no more than the time of a clock that was not set.
pub(crate) fn last_modified(stat: &Stat) -> Option<i64> {
    (stat.mtime > TIME_OF_NOTHING).then_some(stat.mtime)
}

/// Up to this second no file was modified.
pub(super) const TIME_OF_NOTHING: i64 = 1;

/// The fields of every response about this file.
pub(crate) fn head<'a>(
    stat: &Stat,
    etag: &'a [u8],
    coding: Option<Coding>,
    content_type: &'a str,
    vary: Option<&'static [u8]>,
) -> ResponseHead<'a> {
    ResponseHead {
        server: Some(crate::NAME.into()),
        content_type: Some(content_type.as_bytes().into()),
        content_encoding: coding.map(|coding| coding.name().as_bytes().into()),
        last_modified: last_modified(stat),
        etag: (!etag.is_empty()).then_some(etag.into()),
        vary: vary.map(Into::into),
        accept_ranges: true,
        // The media type follows from the name. A browser must not take the contents for a script.
        nosniff: true,
        ..ResponseHead::new(Status::Ok)
    }
}

#[cfg(test)]
impl Resource {
    /// A resource for tests of what is given one.
    pub(crate) fn sample(path: &str, kind: Kind) -> Rc<Self> {
        Rc::new(Self {
            tree: TreeId::new(0),
            path: path.as_bytes().into(),
            index: 0,
            kind,
            validated: Time::default().into(),
            watched: false.into(),
            settled: false,
            used: Time::default().into(),
            idle_at: None.into(),
            memory: 0,
            descriptors: 0,
            _charge: Account::default().charge(0),
        })
    }
}

#[cfg(test)]
impl FileSet {
    /// A file in memory for tests of what is given one.
    pub(crate) fn sample(content_type: &str, body: &[u8]) -> Self {
        let stat = Stat {
            kind: ring::FileKind::Regular,
            size: body.len() as u64,
            mtime: 1,
            mtime_nanos: 0,
            ctime: 1,
            ctime_nanos: 0,
            dev: 1,
            device: ring::Device::of(1),
            ino: 1,
            links: 1,
            from_image: false,
            direct_align: 0,
            mount: 1,
        };
        let (rules, account) = (Rules::new(), Account::default());
        let etag = Vec::new();
        Self {
            content_type: content_type.to_owned(),
            plain: Variant::new(stat, etag, None, content_type, None, &rules, Ok(body), &account),
            encoded: [const { None }; Coding::PREFERENCE.len()],
            codings: Codings::default(),
            own_coding: None,
            fields: rules,
            layout: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_take_it_slowly_share_one_buffer_and_each_response_has_its_own_date() {
        let account = Account::default();
        let body = vec![b'x'; 10_000];
        let stat = Stat {
            kind: ring::FileKind::Regular,
            size: body.len() as u64,
            mtime: 784_111_777,
            mtime_nanos: 0,
            ctime: 784_111_777,
            ctime_nanos: 0,
            dev: 1,
            device: ring::Device::of(1),
            ino: 1,
            links: 1,
            from_image: false,
            direct_align: 0,
            mount: 0,
        };
        let variant = Variant::new(
            stat,
            b"\"tag\"".to_vec(),
            None,
            "text/plain",
            None,
            &Rules::new(),
            Ok(&body),
            &account,
        );
        let one = account.charged();
        let mut held = Vec::new();
        for second in 1..100 {
            let date = date::format(second);
            let first = held.len();
            variant.finished.send(second, &date, true, |piece| held.push(piece));
            let sent: Vec<u8> =
                held[first..].iter().flat_map(|piece| piece.bytes()).copied().collect();
            assert!(sent.ends_with(&body), "the whole body");
            assert_eq!(sent.len(), variant.finished.head_len + body.len());
            assert!(sent.windows(date.len()).any(|window| window == date), "second {second}");
        }
        assert_eq!(account.charged(), one, "nothing was copied but heads");
        held.clear();
        variant.finished.send(100, &date::format(100), true, |piece| held.push(piece));
        assert_eq!(held.len(), 1, "no response holds the buffer: its date is changed in place");
    }
}

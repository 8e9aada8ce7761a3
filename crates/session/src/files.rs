//! Files as responses send them: each with its precompressed siblings and its prepared responses.

use core::cell::{Cell, OnceCell, Ref, RefCell};
use core::ops::Range;
use std::rc::Rc;

use http::{Coding, Codings, FieldSection, ResponseHead, Status, date};
use http1::write;
use http2::Block;
use media::Layout;
use ring::Stat;
use sendfile::{Account, File, Piece, Policy, Shared, Takes};

use crate::fields::{self, Rules};

/// A file and its precompressed siblings.
#[derive(Debug)]
pub struct FileSet {
    /// The media type.
    pub content_type: String,
    /// The file itself.
    pub plain: Variant,
    /// In the order of [`Coding::PREFERENCE`].
    pub encoded: [Option<Variant>; Coding::PREFERENCE.len()],
    /// The codings that there are.
    pub codings: Codings,
    /// The coding in which the file itself is, because its format is a coding. Such a file has no siblings.
    pub own_coding: Option<Coding>,
    /// The rules that its heads obey.
    pub fields: Rules,
    /// `Some` for a film. The value is the layout of the film, when the layout is known. The inner `Option` is `None`
    /// if the container does not tell the rate.
    pub layout: Option<Box<OnceCell<Option<Layout>>>>,
}

/// One file, or a copy of it in a coding, that can be sent.
#[derive(Debug)]
pub struct Variant {
    /// The state of the file at the last look. A copy has the state of the file from which it was made.
    pub stat: Stat,
    /// The number of its bytes. A copy has the number of bytes that were made.
    pub size: u64,
    /// True if the bytes were made from the bytes of the file, and no file has them.
    pub is_copy: bool,
    /// The entity tag. Empty if there is no tag.
    pub etag: Vec<u8>,
    /// The place of its bytes.
    pub data: Data,
    /// The usual response: status 200 to an HTTP/1.1 client whose connection stays open. It has the
    /// body too, if the body is in memory.
    pub finished: Finished,
    /// The head of the same response in HTTP/2, once a client has asked for it.
    block: OnceCell<Box<FinishedBlock>>,
}

/// A header block of HTTP/2 that can be sent after the date is written into it.
#[derive(Debug)]
struct FinishedBlock {
    block: RefCell<Block>,
    /// The second of the date in the block.
    second: Cell<i64>,
}

/// The usual response for a file: the whole file in one coding.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    files: &'a FileSet,
    variant: &'a Variant,
    coding: Option<Coding>,
    policy: Policy,
}

/// The place of a file's bytes. The bytes of an open file may also be in memory, for connections that send only from
/// memory.
#[derive(Debug)]
pub enum Data {
    /// After the head in [`Variant::finished`].
    Memory,
    /// In an open file.
    File(Rc<File>),
}

/// A head, and perhaps a body, that can be sent after the date is written into it.
#[derive(Debug)]
pub struct Finished {
    bytes: RefCell<Shared>,
    /// The second of the date in `bytes`.
    second: Cell<i64>,
    date_at: usize,
    /// The position of the time of modification, unless a rule has removed or set the field.
    modified_at: Option<usize>,
    /// The modification of the file, in Unix seconds.
    modified: i64,
    /// Bytes of the head, with the empty line after it.
    pub head_len: usize,
    /// True if a rule has set `Strict-Transport-Security`.
    pub has_hsts: bool,
    body_for: BodyFor,
}

/// The connections to which a finished response is sent together with the body after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFor {
    /// No connections: there is no body after the head.
    None,
    /// Connections that send only from memory. To other connections the open file is sent.
    Memory,
    /// All connections.
    All,
}

impl BodyFor {
    /// Returns true if it is sent to a connection whose transport sends this.
    const fn is_sent(self, takes: Takes) -> bool {
        match self {
            Self::None => false,
            Self::Memory => matches!(takes, Takes::Memory),
            Self::All => true,
        }
    }
}

impl FileSet {
    /// The file itself and its siblings.
    pub fn variants(&self) -> impl Iterator<Item = &Variant> {
        core::iter::once(&self.plain).chain(self.encoded.iter().flatten())
    }

    /// The open files.
    pub fn files(&self) -> impl Iterator<Item = &Rc<File>> {
        self.variants().filter_map(|variant| match &variant.data {
            Data::File(file) => Some(file),
            Data::Memory => None,
        })
    }

    /// The file in a coding. If there is no file in this coding, the file itself.
    pub fn variant(&self, coding: Option<Coding>) -> &Variant {
        coding.and_then(|coding| self.encoded[coding as usize].as_ref()).unwrap_or(&self.plain)
    }

    /// The value of `Vary`, if the answer depends on the codings that a client accepts.
    pub fn vary(&self) -> Option<&'static [u8]> {
        (!self.codings.is_empty()).then_some(&b"Accept-Encoding"[..])
    }
}

impl Variant {
    /// Makes a variant of a file. `body` is the bytes of the file, if they are kept in memory.
    ///
    /// # Panics
    ///
    /// If there is neither a body nor an open file.
    pub fn new(
        stat: Stat,
        etag: Vec<u8>,
        coding: Option<Coding>,
        content_type: &str,
        vary: Option<&'static [u8]>,
        rules: &Rules,
        data: Data,
        body: Option<&[u8]>,
        account: &Account,
    ) -> Self {
        let size = stat.size;
        Self::sized((stat, size), etag, coding, content_type, vary, rules, (data, body), account)
    }

    /// Makes a copy of a file in a coding, with these bytes. `stat` is the state of the file.
    pub fn copy(
        stat: Stat,
        etag: Vec<u8>,
        coding: Coding,
        content_type: &str,
        vary: Option<&'static [u8]>,
        rules: &Rules,
        bytes: &[u8],
        account: &Account,
    ) -> Self {
        let size = bytes.len() as u64;
        let made = Self::sized(
            (stat, size),
            etag,
            Some(coding),
            content_type,
            vary,
            rules,
            (Data::Memory, Some(bytes)),
            account,
        );
        Self { is_copy: true, ..made }
    }

    fn sized(
        (stat, size): (Stat, u64),
        etag: Vec<u8>,
        coding: Option<Coding>,
        content_type: &str,
        vary: Option<&'static [u8]>,
        rules: &Rules,
        (data, body): (Data, Option<&[u8]>),
        account: &Account,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut head = ResponseHead {
            content_length: Some(size),
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
        let body_for = match (&data, body) {
            (Data::Memory, body) => {
                bytes.extend_from_slice(body.expect("the bytes are somewhere"));
                BodyFor::All
            }
            (Data::File(_), Some(body)) => {
                bytes.extend_from_slice(body);
                BodyFor::Memory
            }
            (Data::File(_), None) => BodyFor::None,
        };
        let finished = Finished {
            bytes: RefCell::new(Shared::new(bytes, account)),
            second: Cell::new(0),
            date_at,
            modified_at,
            modified: stat.mtime,
            head_len,
            has_hsts: fields::has_hsts(&head),
            body_for,
        };
        Self { stat, size, is_copy: false, etag, data, finished, block: OnceCell::new() }
    }

    /// Bytes of memory, with those of the prepared response.
    pub fn memory(&self) -> usize {
        let block = self
            .block
            .get()
            .map_or(0, |it| size_of_val(&**it) + it.block.borrow().as_bytes().len());
        self.finished.bytes.borrow().len() + size_of::<Self>() + block
    }
}

impl<'a> Whole<'a> {
    /// The whole of a file in one of its codings, sent by this policy.
    pub fn new(files: &'a FileSet, coding: Option<Coding>, policy: Policy) -> Self {
        let variant = files.variant(coding);
        Self { files, variant, coding: coding.or(files.own_coding), policy }
    }

    /// The variant in that coding.
    pub const fn variant(&self) -> &'a Variant {
        self.variant
    }

    /// Returns true if the variant is in a coding.
    pub const fn is_encoded(&self) -> bool {
        self.coding.is_some()
    }

    /// The treatment of the file, if its bytes are not in memory.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// The media type of the file.
    pub fn content_type(&self) -> &'a [u8] {
        self.files.content_type.as_bytes()
    }

    /// The head of the usual response as a header block of HTTP/2, with the current date. `None` if the file is from the
    /// future, because such a response has another time of modification each second.
    /// `date` gives the date of the second.
    pub fn block(
        &self,
        second: i64,
        date: impl Fn() -> [u8; date::DATE_LEN],
    ) -> Option<Ref<'a, Block>> {
        if self.variant.stat.mtime > second {
            return None;
        }
        let finished = self.variant.block.get_or_init(|| {
            let block = http2::prepare(&self.head(Status::Ok), &date());
            Box::new(FinishedBlock { block: RefCell::new(block), second: Cell::new(second) })
        });
        if finished.second.replace(second) != second {
            finished.block.borrow_mut().set_date(&date());
        }
        Some(finished.block.borrow())
    }

    /// The head of a response with this status.
    pub fn head(&self, status: Status) -> ResponseHead<'a> {
        let Self { files, variant, coding, .. } = self;
        let (stat, etag) = (&variant.stat, &variant.etag);
        let mut head = head(stat, etag, *coding, &files.content_type, files.vary());
        head.content_length = Some(variant.size);
        head.status = status;
        fields::apply(&files.fields, &mut head);
        head
    }
}

impl Finished {
    /// Returns whether the body after the head is sent to a connection whose transport sends this.
    pub const fn has_body_for(&self, takes: Takes) -> bool {
        self.body_for.is_sent(takes)
    }

    /// Gives the body to a function, if it is in memory.
    pub fn with_body<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.bytes.borrow()[self.head_len..])
    }

    /// The body, if it is in memory.
    pub fn body(&self) -> Vec<u8> {
        self.bytes.borrow()[self.head_len..].to_vec()
    }

    /// Pushes the response with the current date, or its head alone if there is no body or it is not wanted. `date` gives
    /// the date of the second, and `more` has further lines for the head.
    ///
    /// The date in the buffer cannot be changed while other responses send the buffer. Then the
    /// head is copied and the body is a part of the buffer, so slow clients never need a second
    /// buffer. A head with further lines is a copy, too.
    pub fn send(
        &self,
        second: i64,
        date: impl Fn() -> [u8; date::DATE_LEN],
        with_body: bool,
        more: Option<&FieldSection<'_>>,
        mut push: impl FnMut(Piece),
    ) {
        let mut bytes = self.bytes.borrow_mut();
        let is_current = self.second.get() == second || {
            let own = bytes.get_mut();
            own.is_some_and(|own| {
                self.stamp(own, second, &date());
                self.second.set(second);
                true
            })
        };
        if !is_current || more.is_some() {
            let room = more.map_or(0, |more| more.as_bytes().len());
            let mut head = Vec::with_capacity(self.head_len + room);
            head.extend_from_slice(&bytes[..self.head_len]);
            if !is_current {
                self.stamp(&mut head, second, &date());
            }
            if let Some(more) = more {
                write::add_lines(more, &mut head);
            }
            push(Piece::Bytes(head));
            if with_body {
                push(Piece::Shared(bytes.clone(), self.head_len..bytes.len()));
            }
            return;
        }
        let end = if with_body { bytes.len() } else { self.head_len };
        push(Piece::Shared(bytes.clone(), 0..end));
    }

    /// Returns a part of the body.
    ///
    /// # Panics
    ///
    /// If the body is not in memory.
    pub fn part(&self, range: Range<u64>) -> Piece {
        let place = |at: u64| self.head_len + usize::try_from(at).expect("in memory");
        Piece::Shared(self.bytes.borrow().clone(), place(range.start)..place(range.end))
    }

    /// Writes the date. If the modification is in the future, it gets the date of the message (RFC 9110 §8.8.2.1).
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
pub fn last_modified(stat: &Stat) -> Option<i64> {
    (stat.mtime > TIME_OF_NOTHING).then_some(stat.mtime)
}

/// Up to this second no file was modified.
pub const TIME_OF_NOTHING: i64 = 1;

/// The fields of every response about this file.
pub fn head<'a>(
    stat: &Stat,
    etag: &'a [u8],
    coding: Option<Coding>,
    content_type: &'a str,
    vary: Option<&'static [u8]>,
) -> ResponseHead<'a> {
    ResponseHead {
        server: Some(config::NAME.into()),
        content_type: Some(content_type.as_bytes().into()),
        content_encoding: coding.map(|coding| coding.name().as_bytes().into()),
        last_modified: last_modified(stat),
        etag: (!etag.is_empty()).then_some(etag.into()),
        vary: vary.map(Into::into),
        accept_ranges: true,
        // The media type follows from the name, and a browser must not mistake the contents for a script.
        nosniff: true,
        ..ResponseHead::new(Status::Ok)
    }
}

impl FileSet {
    /// A file in memory, for tests of what is given one.
    pub fn sample(content_type: &str, body: &[u8]) -> Self {
        Self::ruled(content_type, body, Rules::new())
    }

    /// The same with these rules for its fields.
    pub(crate) fn ruled(content_type: &str, body: &[u8], rules: Rules) -> Self {
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
            mode: 0o644,
            owner: 0,
            from_image: false,
            direct_align: 0,
            mount: 1,
        };
        let account = Account::default();
        let (etag, data) = (Vec::new(), Data::Memory);
        Self {
            content_type: content_type.to_owned(),
            plain: Variant::new(
                stat,
                etag,
                None,
                content_type,
                None,
                &rules,
                data,
                Some(body),
                &account,
            ),
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
            mode: 0o644,
            owner: 0,
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
            Data::Memory,
            Some(&body),
            &account,
        );
        let one = account.charged();
        let mut held = Vec::new();
        for second in 1..100 {
            let date = date::format(second);
            let first = held.len();
            variant.finished.send(second, || date, true, None, |piece| held.push(piece));
            let sent: Vec<u8> =
                held[first..].iter().flat_map(|piece| piece.bytes()).copied().collect();
            assert!(sent.ends_with(&body), "the whole body");
            assert_eq!(sent.len(), variant.finished.head_len + body.len());
            assert!(sent.windows(date.len()).any(|window| window == date), "second {second}");
        }
        assert_eq!(account.charged(), one, "nothing was copied but heads");
        held.clear();
        variant.finished.send(100, || date::format(100), true, None, |piece| held.push(piece));
        assert_eq!(held.len(), 1, "no response holds the buffer: its date is changed in place");
    }

    #[test]
    fn a_head_with_further_lines_is_a_copy() {
        let files = FileSet::sample("text/plain", b"body");
        let finished = &files.plain.finished;
        let mut more = FieldSection::EMPTY;
        more.push(b"X-More", b"1");
        let mut held = Vec::new();
        for (second, more, with_body) in [
            (7, None, true),
            (7, Some(&more), true),
            (7, Some(&more), false),
            // The buffer is held, or not.
            (8, Some(&more), true),
            (8, None, true),
        ] {
            let date = date::format(second);
            let mut sent = Vec::new();
            finished.send(
                second,
                || date,
                with_body,
                more,
                |piece| {
                    sent.extend_from_slice(piece.bytes());
                    held.push(piece);
                },
            );
            let text = String::from_utf8(sent).expect("a text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains(str::from_utf8(&date).expect("a text")), "{second}: {head}");
            assert_eq!(head.ends_with("\r\nX-More: 1"), more.is_some(), "{head}");
            assert_eq!(body, if with_body { "body" } else { "" });
            if second == 7 && with_body && more.is_some() {
                held.truncate(1);
            }
        }
        held.clear();
        finished.send(9, || date::format(9), true, Some(&more), |piece| held.push(piece));
        finished.send(9, || date::format(9), true, None, |piece| held.push(piece));
        assert_eq!(held.len(), 3, "a copy of the head, a body, and both in the buffer");
        let whole = held[2].bytes();
        assert!(!whole.windows(6).any(|word| word == b"X-More"), "the buffer has stayed the same");
    }

    #[test]
    fn a_connection_is_sent_what_it_takes() {
        let sent = |body: BodyFor| [Takes::Files, Takes::Memory].map(|takes| body.is_sent(takes));
        assert_eq!(sent(BodyFor::None), [false, false]);
        assert_eq!(sent(BodyFor::Memory), [false, true]);
        assert_eq!(sent(BodyFor::All), [true, true]);
    }
}

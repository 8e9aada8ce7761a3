//! The head of a request that waits.
//!
//! Reading list: [`Head`], to which it is as `PathBuf` to `Path`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::field::FieldIndex;
use crate::framing::Framing;
use crate::head::{Head, Target, Version};
use crate::method::Method;

/// A head that owns its bytes, in one allocation: for a request that waits while its receive buffer is
/// overwritten.
///
/// It keeps the positions that the parser found, so [`as_head`](Self::as_head) parses nothing again.
/// Thousands may wait, so it takes only the bytes of the head, without its line end and version, four bytes
/// for each known field in it, and eight for the length of its content.
///
/// ```
/// use http::{Field, FieldIndex, Head, HeadBuf, Method, Target, Version};
///
/// let lines = b"Host: example.org\r\n".to_vec();
/// let mut index = FieldIndex::EMPTY;
/// index.add(Field::Host, 6..17);
/// let target = Target::Origin { path: b"/", query: None };
/// let head = Head::new(Method::Get, target, Version::Http11, None, &lines, index);
///
/// let waiting: HeadBuf = head.to_owned();
/// drop(lines);
/// assert_eq!(waiting.as_head().host(), Some(&b"example.org"[..]));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HeadBuf {
    /// In this order: method, path, query, authority, field lines, the positions of the known fields as
    /// written by [`FieldIndex::write_spans`], and the length of the content if it is known.
    bytes: Box<[u8]>,
    method_len: u32,
    target: Form,
    /// The length of the authority, if the target names one.
    authority_len: Option<u32>,
    version: Version,
    content: Content,
    /// The sets of [`FieldIndex::sets`].
    sets: [u32; 2],
}

/// A [`Target`] with lengths instead of its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Origin { path_len: u32, query_len: Option<u32> },
    Asterisk,
    Authority,
}

/// A [`Framing`] whose length is kept elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    None,
    Length,
    Unknown,
    Tunnel,
}

// Held for each request that waits.
const _: () = assert!(size_of::<HeadBuf>() <= 56);

impl HeadBuf {
    /// The head, as a view of these bytes.
    pub fn as_head(&self) -> Head<'_> {
        let mut rest = &self.bytes[..];
        let method = Method::of_token(take(&mut rest, self.method_len));
        let target = match self.target {
            Form::Origin { path_len, query_len } => Target::Origin {
                path: take(&mut rest, path_len),
                query: query_len.map(|len| take(&mut rest, len)),
            },
            Form::Asterisk => Target::Asterisk,
            Form::Authority => Target::Authority,
        };
        let authority = self.authority_len.map(|len| take(&mut rest, len));
        let framing = match self.content {
            Content::None => Framing::None,
            Content::Length => {
                let Some((before, length)) = rest.split_last_chunk() else {
                    unreachable!("its length is written behind it")
                };
                rest = before;
                Framing::Length(u64::from_ne_bytes(*length))
            }
            Content::Unknown => Framing::Unknown,
            Content::Tunnel => Framing::Tunnel,
        };
        let (lines, spans) = rest.split_at(rest.len() - FieldIndex::spans_len(self.sets));
        let index = FieldIndex::from_spans(self.sets, spans);
        Head::new(method, target, self.version, authority, lines, index).with_framing(framing)
    }

    /// The number of bytes on the heap.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }
}

impl Head<'_> {
    /// The head with bytes of its own.
    ///
    /// # Panics
    ///
    /// If a part of the head is longer than 4 GiB.
    pub fn to_owned(&self) -> HeadBuf {
        let method = self.method.as_bytes();
        let (path, query) = match self.target {
            Target::Origin { path, query } => (path, query),
            Target::Asterisk | Target::Authority => (&b""[..], None),
        };
        let authority = self.authority();
        let parts =
            [method, path, query.unwrap_or_default(), authority.unwrap_or_default(), self.text()];
        let sets = self.index().sets();
        let (content, length) = match self.framing {
            Framing::None => (Content::None, None),
            Framing::Length(length) => (Content::Length, Some(length.to_ne_bytes())),
            Framing::Unknown => (Content::Unknown, None),
            Framing::Tunnel => (Content::Tunnel, None),
        };
        let length = length.as_ref().map_or(&[][..], |length| length);
        let text_len: usize = parts.iter().map(|part| part.len()).sum();
        let mut bytes = Vec::with_capacity(text_len + FieldIndex::spans_len(sets) + length.len());
        for part in parts {
            bytes.extend_from_slice(part);
        }
        self.index().write_spans(&mut bytes);
        bytes.extend_from_slice(length);
        HeadBuf {
            bytes: bytes.into_boxed_slice(),
            method_len: len(method),
            target: match self.target {
                Target::Origin { .. } => {
                    Form::Origin { path_len: len(path), query_len: query.map(len) }
                }
                Target::Asterisk => Form::Asterisk,
                Target::Authority => Form::Authority,
            },
            authority_len: authority.map(len),
            version: self.version,
            content,
            sets,
        }
    }
}

impl fmt::Debug for HeadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_head().fmt(f)
    }
}

fn len(part: &[u8]) -> u32 {
    u32::try_from(part.len()).expect("a part of a head is shorter than 4 GiB")
}

/// Takes the first `len` bytes off `rest`.
fn take<'a>(rest: &mut &'a [u8], len: u32) -> &'a [u8] {
    let (part, behind) = rest.split_at(len as usize);
    *rest = behind;
    part
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use proptest::prelude::*;

    use super::*;
    use crate::field::Field;
    use crate::head::tests::index_of;

    /// Checks that every accessor of the copy returns the same as in the original.
    fn check(head: &Head<'_>) {
        let buf = head.to_owned();
        assert_eq!(buf.memory(), buf.bytes.len());
        let copy = buf.as_head();
        assert_eq!(&copy, head);
        assert_eq!((copy.method, copy.target), (head.method, head.target));
        assert_eq!((copy.version, copy.framing), (head.version, head.framing));
        assert_eq!(copy.host(), head.host());
        assert!(copy.fields().eq(head.fields()));
        for &field in Field::ALL {
            assert_eq!(copy.field(field), head.field(field));
            assert_eq!(copy.has(field), head.has(field));
            assert!(copy.lines(field).eq(head.lines(field)));
        }
        let (mut line, mut expected) = (Vec::new(), Vec::new());
        copy.request_line(&mut line);
        head.request_line(&mut expected);
        assert_eq!(line, expected);
        // A copy of the copy is as good.
        assert_eq!(copy.to_owned(), buf);
    }

    #[test]
    fn an_empty_head_is_kept() {
        let target = Target::Asterisk;
        check(&Head::new(Method::Options, target, Version::Http10, None, b"", FieldIndex::EMPTY));
    }

    #[test]
    fn only_the_fields_that_are_there_take_memory() {
        let lines = "Host: h\r\nX: y\r\nAccept: a\r\nAccept: b\r\n";
        let target = Target::Origin { path: b"/a", query: Some(b"") };
        let index = index_of(lines);
        let head = Head::new(Method::Get, target, Version::Http11, None, lines.as_bytes(), index);
        check(&head);
        assert_eq!(head.to_owned().memory(), "GET/a".len() + lines.len() + 2 * 4);
        let head = head.with_framing(Framing::Length(u64::MAX));
        check(&head);
        assert_eq!(head.to_owned().memory(), "GET/a".len() + lines.len() + 2 * 4 + 8);
    }

    proptest! {
        #[test]
        fn a_kept_head_is_the_head(
            method in "GET|POST|CONNECT|get|[A-Z-]{1,40}",
            path in "/[ -~]{0,9}",
            query in proptest::option::of("[ -~]{0,9}"),
            form in 0..3,
            authority in proptest::option::of("[a-z:0-9]{0,9}"),
            old: bool,
            framing in prop_oneof![
                Just(Framing::None),
                any::<u64>().prop_map(Framing::of_length),
                Just(Framing::Unknown),
                Just(Framing::Tunnel),
            ],
            fields in proptest::collection::vec(
                (0..=Field::ALL.len(), "[!-~]?([ -~]{0,9}[!-~])?"), 0..9),
        ) {
            let mut lines = String::new();
            for (field, value) in &fields {
                let name = Field::ALL.get(*field).map_or("X-Other", |field| field.name());
                lines += &alloc::format!("{name}: {value}\r\n");
            }
            let target = match form {
                0 => Target::Origin { path: path.as_bytes(), query: query.as_deref().map(str::as_bytes) },
                1 => Target::Asterisk,
                _ => Target::Authority,
            };
            let head = Head::new(
                Method::of_token(method.as_bytes()),
                target,
                if old { Version::Http10 } else { Version::Http11 },
                authority.as_deref().map(str::as_bytes),
                lines.as_bytes(),
                index_of(&lines),
            );
            check(&head.with_framing(framing));
        }
    }
}

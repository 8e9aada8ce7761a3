//! The keys of the table `status`.

use super::{Key, set};
use crate::message::Notes;
use crate::node::Node;
use crate::value::quoted;
use crate::{FixedStatus, placeholder};

/// The keys of `status`.
pub(super) const STATUS: &[Key<FixedStatus>] = &[
    Key {
        name: "code",
        kind: "number",
        default: "none; it is needed",
        example: "410",
        doc: "The status, from 200 to 599, but not 304.",
        read: |fixed, node, notes| set(&mut fixed.code, read_code(node, "", notes)),
        write: |fixed| Some(fixed.code.to_string()),
    },
    Key {
        name: "text",
        kind: "string",
        default: "none",
        example: r#""ok\n""#,
        doc: "The content, 64 KiB at most, as `text/plain; charset=utf-8`. The text replaces an error page.",
        read: |fixed, node, notes| {
            let read = |text: &str| match text.len() {
                ..=FixedStatus::TEXT_BYTES_MAX => Ok(text.to_owned()),
                _ => Err("a text has 64 KiB at most; a longer one is a file".to_owned()),
            };
            fixed.text = node.text(read, notes);
            if let Some(text) = &fixed.text
                && let Some(variable) = placeholder::any(text).filter(|_| !node.is_secret())
            {
                notes.warning(
                    node.place,
                    format!("{variable} is sent as it is: a text has no variables"),
                );
            }
        },
        write: |fixed| fixed.text.as_deref().map(quoted),
    },
];

/// Reads a status, where `other` may stand as well.
pub(super) fn read_code(node: Node<'_>, other: &str, notes: &mut Notes) -> Option<u16> {
    let code = u16::try_from(node.number_or(other, 200..=599, notes)?).ok()?;
    FixedStatus::check_code(code).map_err(|why| notes.error(node.place, why)).ok()?;
    if code == 444 {
        let text = "444 closes a connection without a response in nginx; here the response has this status";
        notes.warning(node.place, text);
    }
    Some(code)
}

const _: () = assert!(FixedStatus::TEXT_BYTES_MAX == 64 << 10, "messages say so");

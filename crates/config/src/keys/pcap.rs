//! The keys of the table `pcap`.

use super::text::{bytes_text, path_text, some_list_text};
use super::{BYTES, Key, PREFIXES, set};
use crate::{Capture, value};

/// The keys of `pcap`.
pub(super) const PCAP: &[Key<Capture>] = &[
    Key {
        name: "file",
        kind: "path",
        default: "none; it is needed",
        example: r#""/var/tmp/eth1.pcapng""#,
        doc: "The file, which is for the user of the server alone (0600) and may be no symbolic link. Older files have the \
              names FILE.1, FILE.2 and so on.",
        read: |capture, node, notes| set(&mut capture.file, node.file(notes)),
        write: |capture| Some(path_text(&capture.file)),
    },
    Key {
        name: "size",
        kind: BYTES,
        default: "`\"64MiB\"`",
        example: r#""1g""#,
        doc: "The size at which the next file begins.",
        read: |capture, node, notes| {
            set(&mut capture.bytes_max, node.quantity(value::bytes, notes));
        },
        write: |capture| Some(bytes_text(capture.bytes_max)),
    },
    Key {
        name: "files",
        kind: "number",
        default: "`4`",
        example: "10",
        doc: "The number of files that are kept, with the one that is being written.",
        read: |capture, node, notes| {
            let number = node.number(value::CAPTURE_FILES, notes);
            set(&mut capture.files_max, number.and_then(|number| u16::try_from(number).ok()));
        },
        write: |capture| Some(capture.files_max.to_string()),
    },
    Key {
        name: "peers",
        kind: PREFIXES,
        default: "`[]`: all",
        example: r#"["10.0.0.2", "10.1.0.0/16"]"#,
        doc: "Record only frames from and to these addresses.",
        read: |capture, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::prefix, notes));
            set(&mut capture.peers, list);
        },
        write: |capture| some_list_text(&capture.peers),
    },
];

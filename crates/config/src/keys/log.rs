//! The keys of the table `log`.

use super::text::path_text;
use super::{Key, set};
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, quoted};
use crate::{Log, LogFormat, LogTarget};

/// The keys of `log`.
pub(super) const LOG: &[Key<Log>] = &[
    Key {
        name: "file",
        kind: "path, `-` for standard output, or `none`",
        default: "none; it is needed",
        example: r#""/var/log/samum/access.log""#,
        doc: "The file to append to, which is opened again on SIGHUP and SIGUSR1. Root follows a symbolic link of another \
              user only into a directory of that user.",
        read: |log, node, notes| set(&mut log.target, read_log(node, notes)),
        write: |log| {
            Some(match &log.target {
                LogTarget::None => quoted("none"),
                LogTarget::Stdout => quoted("-"),
                LogTarget::File(path) => path_text(path),
            })
        },
    },
    Key {
        name: "format",
        kind: "`common`, `combined` or `json`",
        default: "`\"combined\"`",
        example: r#""json""#,
        doc: "The format of its lines.",
        read: |log, node, notes| set(&mut log.format, node.text(value::choice::<LogFormat>, notes)),
        write: |log| Some(quoted(&value::word::<LogFormat, _>(&log.format))),
    },
];

pub(super) fn read_log(node: Node<'_>, notes: &mut Notes) -> Option<LogTarget> {
    match node.as_text() {
        Some("none") => Some(LogTarget::None),
        Some("-") => Some(LogTarget::Stdout),
        _ => node.file(notes).map(LogTarget::File),
    }
}

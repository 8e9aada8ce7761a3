//! The keys of the table `symlinks`.

use std::path::PathBuf;

use super::{Key, inline_text};
use crate::Symlinks;
use crate::keys::text::path_text;
use crate::value::quoted;

/// The keys of `symlinks`.
pub(super) const SYMLINKS: &[Key<Vec<PathBuf>>] = &[Key {
    name: "follow",
    kind: "list of paths",
    default: "none; it is needed",
    example: r#"["/mnt/disk2", "/etc/wordpress"]"#,
    doc: "Directories that symbolic links may lead into. The real path of the place to which a link points decides. \
          If there is another link at that place, the same rule applies to it. The directories are looked up when a \
          link is followed, so they need not exist yet. A file behind such a link is checked again after a second, \
          because changes there make no events.",
    read: |into, node, notes| {
        let list = node.list(notes, |node, notes| {
            let path = node.file(notes)?;
            // The call fails only without a working directory.
            Some(std::path::absolute(&path).unwrap_or(path))
        });
        into.extend(list.unwrap_or_default());
    },
    write: |into| {
        let all: Vec<_> = into.iter().map(|path| path_text(path)).collect();
        Some(format!("[{}]", all.join(", ")))
    },
}];

/// The text of the value of `symlinks`.
pub(super) fn symlinks_text(symlinks: &Symlinks) -> String {
    match symlinks {
        Symlinks::Beneath => quoted("beneath"),
        Symlinks::Never => quoted("never"),
        Symlinks::Follow => quoted("follow"),
        Symlinks::Into(into) => inline_text(SYMLINKS, &into.to_vec()),
    }
}

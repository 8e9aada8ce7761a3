//! The keys of the table `redirect`.

use super::{Key, set};
use crate::Redirect;
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, exact};

/// Reads a target, and reports words of other servers that it would have as they are.
pub(super) fn read_target(node: Node<'_>, notes: &mut Notes) -> Option<String> {
    let target = node.template(value::target, notes)?;
    let (path, _) = target.split_once(['?', '#']).unwrap_or((&target, ""));
    let is_name = |name: &&str| name.starts_with(|first: char| first.is_ascii_alphabetic());
    let mut names = path.split('/').filter_map(|segment| segment.strip_prefix(':')).filter(is_name);
    if let Some(name) = names.next() {
        let text = format!(
            "`:{name}` is sent as it is: `$1` stands for the first star of `match`, and `$0` for the rest of the path"
        );
        notes.warning(node.place, text);
    }
    Some(target)
}

/// The keys of `redirect`.
pub(super) const REDIRECT: &[Key<Redirect>] = &[
    Key {
        name: "to",
        kind: "path or URL",
        default: "none; it is needed",
        example: r#""https://example.org/$0""#,
        doc: "The target.",
        read: |redirect, node, notes| set(&mut redirect.to, read_target(node, notes)),
        write: |redirect| Some(exact(&redirect.to)),
    },
    Key {
        name: "status",
        kind: "301, 302, 303, 307 or 308",
        default: "`308`",
        example: "301",
        doc: "The status: permanent (301, 308) or temporary (302, 303, 307). With 307 and 308 the client keeps \
              its method.",
        read: |redirect, node, notes| {
            let Some(number) = node.number(0..=999, notes) else { return };
            match u16::try_from(number) {
                Ok(status @ (301 | 302 | 303 | 307 | 308)) => redirect.status = status,
                _ => notes
                    .error(node.place, "a redirection has the status 301, 302, 303, 307 or 308"),
            }
        },
        write: |redirect| Some(redirect.status.to_string()),
    },
];

//! Reads patterns for paths, and reports patterns that probably do not mean what their author
//! intended.

use crate::Pattern;
use crate::message::Notes;
use crate::node::Node;
use crate::value;

/// Reads a pattern for paths.
pub(super) fn read_pattern(node: Node<'_>, notes: &mut Notes) -> Option<Pattern> {
    let pattern = node.text(value::pattern, notes)?;
    if !value::begins_as_a_path(&pattern) {
        let text =
            "no path can match: each begins with a slash, so a pattern begins with `/`, `*` or `?`";
        notes.warning(node.place, text);
    }
    if pattern.as_str().contains("**") {
        let text = "`**` is two stars, and one stands for slashes, too: write `*`";
        notes.warning(node.place, text);
    }
    if pattern
        .as_str()
        .split([' ', ','])
        .filter(|part| part.starts_with(['*', '/']))
        .nth(1)
        .is_some()
    {
        let text = "this is one pattern, and the path must have its space or comma: several patterns need one element or \
                    one route each";
        notes.warning(node.place, text);
    }
    Some(pattern)
}

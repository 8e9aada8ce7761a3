//! The paths that a change in a directory makes outdated.

use http::Coding;
use ring::Change;

use super::media_types::suffix;
use super::path::prefix;
use config::HTML_SUFFIX;

/// Paths whose cached resources are no longer true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outdated {
    Path(Vec<u8>),
    /// All paths with this prefix. Directories there may have been moved.
    Below(Vec<u8>),
}

/// Returns the paths that a change in `directory` makes outdated.
pub(super) fn outdated_by(directory: &[u8], change: &Change) -> Vec<Outdated> {
    let prefix = prefix(directory);
    let Some(name) = &change.name else { return vec![Outdated::Below(prefix)] };
    let path = [&prefix[..], name].concat();
    // The directory's own resource is its index or its listing.
    let mut outdated = vec![Outdated::Path(prefix), Outdated::Path(path.clone())];
    let sibling_of = |coding| path.strip_suffix(suffix(coding).as_bytes());
    let plain = Coding::PREFERENCE.into_iter().find_map(sibling_of);
    outdated.extend(plain.map(|plain| Outdated::Path(plain.to_vec())));
    // A page may have been found without its suffix.
    let clean = plain.unwrap_or(&path).strip_suffix(HTML_SUFFIX);
    outdated.extend(clean.map(|clean| Outdated::Path(clean.to_vec())));
    if change.directory {
        outdated.push(Outdated::Below([&path[..], b"/"].concat()));
    }
    outdated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_concerns_the_entry_its_plain_file_and_its_directory() {
        let path = |path: &str| Outdated::Path(path.as_bytes().to_vec());
        let below = |path: &str| Outdated::Below(path.as_bytes().to_vec());
        let cases = [
            ("", Some("a.css"), false, vec![path(""), path("a.css")]),
            ("d", Some("a"), false, vec![path("d/"), path("d/a")]),
            ("d", Some("a.gz"), false, vec![path("d/"), path("d/a.gz"), path("d/a")]),
            ("d", Some("a.html"), false, vec![path("d/"), path("d/a.html"), path("d/a")]),
            (
                "d",
                Some("a.html.gz"),
                false,
                vec![path("d/"), path("d/a.html.gz"), path("d/a.html"), path("d/a")],
            ),
            ("d/e", Some("x"), true, vec![path("d/e/"), path("d/e/x"), below("d/e/x/")]),
            ("d", None, false, vec![below("d/")]),
            ("", None, false, vec![below("")]),
        ];
        for (directory, name, is_directory, expected) in cases {
            let name = name.map(|name| name.as_bytes().to_vec());
            let change = Change { name, directory: is_directory };
            assert_eq!(outdated_by(directory.as_bytes(), &change), expected, "{change:?}");
        }
    }
}

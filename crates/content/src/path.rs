//! Paths below a tree's root, and maps in the order of paths.
//!
//! In the order of bytes all paths below a directory are neighbors, so no other paths are looked at
//! to find them.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A path relative to the root. The path of a directory ends with a slash; the path of the root is
/// empty.
pub(super) type Path = Rc<[u8]>;

/// Returns whether the path names a directory.
pub(super) fn is_directory(path: &[u8]) -> bool {
    path.is_empty() || path.ends_with(b"/")
}

/// The directories on the way to `path`, without their slashes; the root is first.
pub(super) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    core::iter::once(&path[..0]).chain(slashes.map(|(at, _)| &path[..at]))
}

/// The last of [`ancestors`].
pub(super) fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..end]
}

/// The prefix of all paths below a directory; `directory` has no slash at its end.
pub(super) fn prefix(directory: &[u8]) -> Vec<u8> {
    if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() }
}

/// The last name in a path.
pub(super) fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The entries of a map whose paths begin with `prefix`.
pub(super) fn below<'a, V>(
    map: &'a BTreeMap<Path, V>,
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a Path, &'a V)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    map.range::<[u8], _>(from).take_while(move |(path, _)| path.starts_with(prefix))
}

/// The paths of a set that begin with `prefix` and are not less than `from`.
pub(super) fn below_from<'a>(
    set: &'a BTreeSet<Path>,
    prefix: &'a [u8],
    from: &'a [u8],
) -> impl Iterator<Item = &'a Path> {
    let from = (Bound::Included(from), Bound::Unbounded);
    set.range::<[u8], _>(from).take_while(move |path| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_on_the_way_to_a_path_begin_with_the_root_and_end_with_its_parent() {
        let cases: [(&[u8], &[&[u8]]); 5] = [
            (b"", &[b""]),
            (b"a", &[b""]),
            (b"a/", &[b"", b"a"]),
            (b"a/b", &[b"", b"a"]),
            (b"a/b/c.txt", &[b"", b"a", b"a/b"]),
        ];
        for (path, expected) in cases {
            assert_eq!(ancestors(path).collect::<Vec<_>>(), expected, "{path:?}");
            assert_eq!(parent(path), *expected.last().unwrap(), "{path:?}");
        }
    }

    #[test]
    fn only_paths_below_a_directory_are_below_it() {
        let paths =
            ["a", "a-b", "a/", "a/b", "a/b/c", "a0", "b"].map(|path| Path::from(path.as_bytes()));
        let map: BTreeMap<Path, ()> = paths.iter().map(|path| (path.clone(), ())).collect();
        let found: Vec<_> = below(&map, &prefix(b"a")).map(|(path, ())| path.clone()).collect();
        assert_eq!(found, paths[2..5]);
        assert_eq!(below(&map, &prefix(b"")).count(), paths.len());
        let set: BTreeSet<Path> = paths.iter().cloned().collect();
        assert_eq!(below_from(&set, b"a/", b"a/b").count(), 2);
    }
}

//! Finds where paths lead, and which symbolic links are on the way. Pure: the file system is a function.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Links on the way to one file, as in the kernel.
const LINKS_MAX: usize = 40;

/// The kind of file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A symbolic link with this target.
    Link(PathBuf),
    /// A pipe, a device or a socket.
    Special,
    /// A file, a directory, or nothing.
    Other,
}

/// A file system.
pub(super) trait Names {
    /// Looks at an absolute path, and follows no link at its end.
    fn look(&self, path: &Path) -> Node;
}

/// A path as it was found. All paths in it are absolute and without links.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The name at the end of the path, which may be a link.
    pub(super) named: PathBuf,
    /// The targets of links, each with its own links followed. The last may be the file itself.
    pub(super) targets: Vec<PathBuf>,
    /// The file.
    pub(super) real: PathBuf,
    /// True if it is a pipe, a device or a socket.
    pub(super) is_special: bool,
}

/// Finds an absolute path. Names that do not exist stay as they are, and so do links beyond [`LINKS_MAX`].
pub(super) fn find(path: &Path, names: &impl Names) -> Found {
    let mut targets = Vec::new();
    let parent = path.parent().unwrap_or(path);
    let holder = follow(PathBuf::from("/"), parent, &mut targets, names);
    let named = match path.file_name() {
        Some(name) => holder.join(name),
        None => follow(PathBuf::from("/"), path, &mut targets, names),
    };
    let last: OsString = path.file_name().unwrap_or_default().to_owned();
    let real = if last.is_empty() {
        named.clone()
    } else {
        follow(holder, Path::new(&last), &mut targets, names)
    };
    let is_special = names.look(&real) == Node::Special;
    Found { named, targets, real, is_special }
}

/// Follows a path that begins at a directory.
fn follow(mut at: PathBuf, path: &Path, targets: &mut Vec<PathBuf>, names: &impl Names) -> PathBuf {
    for part in path.components() {
        match part {
            Component::RootDir => at = PathBuf::from("/"),
            Component::ParentDir => {
                at.pop();
            }
            Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => {
                let next = at.join(name);
                at = match names.look(&next) {
                    Node::Link(target) if targets.len() < LINKS_MAX => {
                        // It is counted before it is followed, so that a circle ends.
                        let index = targets.len();
                        targets.push(PathBuf::new());
                        let real = follow(at, &target, targets, names);
                        targets[index].clone_from(&real);
                        real
                    }
                    _ => next,
                };
            }
        }
    }
    at
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Links, and what is special.
    pub(in super::super) struct Fake {
        links: BTreeMap<PathBuf, PathBuf>,
        special: Vec<PathBuf>,
    }

    impl Fake {
        pub(in super::super) fn new(links: &[(&str, &str)], special: &[&str]) -> Self {
            let links = links.iter().map(|(from, to)| (from.into(), to.into())).collect();
            Self { links, special: special.iter().map(PathBuf::from).collect() }
        }
    }

    impl Names for Fake {
        fn look(&self, path: &Path) -> Node {
            match self.links.get(path) {
                Some(target) => Node::Link(target.clone()),
                None if self.special.iter().any(|special| special == path) => Node::Special,
                None => Node::Other,
            }
        }
    }

    #[test]
    fn links_are_followed_wherever_they_are() {
        let names = Fake::new(
            &[
                ("/srv/current", "releases/2"),
                ("/srv/www", "/srv/current/public"),
                ("/var/run", "/run"),
                ("/srv/circle", "circle"),
                ("/srv/up", "../etc/../opt/a"),
            ],
            &["/dev/null"],
        );
        for (path, named, targets, real) in [
            ("/srv/a", "/srv/a", &[][..], "/srv/a"),
            ("/srv/current", "/srv/current", &["/srv/releases/2"], "/srv/releases/2"),
            (
                "/srv/current/public",
                "/srv/releases/2/public",
                &["/srv/releases/2"],
                "/srv/releases/2/public",
            ),
            (
                "/srv/www",
                "/srv/www",
                &["/srv/releases/2/public", "/srv/releases/2"],
                "/srv/releases/2/public",
            ),
            ("/var/run/x/y", "/run/x/y", &["/run"], "/run/x/y"),
            ("/srv/up", "/srv/up", &["/opt/a"], "/opt/a"),
            ("/srv/../a/./b", "/a/b", &[], "/a/b"),
            ("/", "/", &[], "/"),
            ("/..", "/", &[], "/"),
            ("/dev/null", "/dev/null", &[], "/dev/null"),
        ] {
            let found = find(Path::new(path), &names);
            let expected = Found {
                named: named.into(),
                targets: targets.iter().map(PathBuf::from).collect(),
                real: real.into(),
                is_special: path == "/dev/null",
            };
            assert_eq!(found, expected, "{path}");
        }
        let found = find(Path::new("/srv/circle/a"), &names);
        assert_eq!(found.targets.len(), LINKS_MAX);
    }
}

//! Symbolic links that lead out of a directory, and the directories that they may lead into.
//!
//! The kernel can keep a path beneath one directory (`RESOLVE_BENEATH`), but not beneath one of several. So this module
//! walks a path name by name, and each step begins at a node that is already open. Files may be renamed or replaced
//! meanwhile: the node that was checked is still the node that is opened.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

/// The number of symbolic links that are followed in one path, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// The symbolic links that are followed on the way from a directory to a file. Magic links, as in `/proc/self/fd`, are
/// never followed, and nothing in a `/proc` is reached through a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SymlinkScope {
    /// No links.
    Never,
    /// Links that stay beneath the directory.
    #[default]
    Beneath,
    /// Links beneath the directory, and links that lead into the directory or into one of these, whose paths are
    /// absolute.
    ///
    /// The real path of the target decides: links on the way that are in none of the directories may have any target.
    /// If the target is another link, it is under the same rule.
    Into(Arc<[PathBuf]>),
    /// All links.
    Anywhere,
}

/// The file system in which a path is walked.
pub(crate) trait Names {
    /// A file, a directory or a link.
    type Node: Clone;

    /// Looks a name up in a directory. For a link it returns the link itself, not its target. Every directory has the
    /// names `.` and `..`.
    fn look_up(&self, directory: &Self::Node, name: &[u8]) -> io::Result<Self::Node>;

    /// The directory that absolute paths begin at.
    fn top(&self) -> io::Result<Self::Node>;

    /// The target of a link; `None` if the node is none. Fails for a link that is never followed.
    fn target(&self, node: &Self::Node) -> io::Result<Option<Vec<u8>>>;

    /// The real path of a node.
    fn path(&self, node: &Self::Node) -> io::Result<Vec<u8>>;

    /// The real path of a path's target, if the target exists.
    fn real(&self, path: &Path) -> Option<Vec<u8>>;
}

/// Finds the target of a path from a directory, through links that may lead into other directories, too.
///
/// # Errors
///
/// `EXDEV` if a link leads elsewhere, `ELOOP` if there are too many, and the errors of the lookups.
pub(crate) fn follow<N: Names>(
    names: &N,
    root: &N::Node,
    path: &[u8],
    into: &[PathBuf],
) -> io::Result<N::Node> {
    let mut walk = Walk { names, root: names.path(root)?, into, links: 0 };
    let (directory, node) = walk.walk(root, path)?;
    walk.pass(directory, node)
}

struct Walk<'a, N> {
    names: &'a N,
    /// The real path of the directory that the path begins at.
    root: Vec<u8>,
    into: &'a [PathBuf],
    /// The links that were followed.
    links: u32,
}

impl<N: Names> Walk<'_, N> {
    /// Walks from a directory to the last name of a path, which may be a link; returns it and the directory that has it.
    fn walk(&mut self, start: &N::Node, path: &[u8]) -> io::Result<(N::Node, N::Node)> {
        let (mut directory, mut node) = (start.clone(), start.clone());
        // A path with a slash at its end names a directory.
        let last: &[u8] = if path.ends_with(b"/") { b"." } else { b"" };
        let names = path.split(|byte| *byte == b'/').chain([last]).filter(|name| !name.is_empty());
        for name in names {
            let next = self.pass(directory, node)?;
            node = self.names.look_up(&next, name)?;
            directory = next;
        }
        Ok((directory, node))
    }

    /// Follows a node of a directory while it is a link.
    fn pass(&mut self, mut directory: N::Node, mut node: N::Node) -> io::Result<N::Node> {
        let Some(mut target) = self.names.target(&node)? else { return Ok(node) };
        // A link outside of the directories is a part of the way to the target of another link.
        let is_bound = self.is_inside(&node)?;
        loop {
            self.links += 1;
            if self.links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let start = if target.starts_with(b"/") { self.names.top()? } else { directory };
            (directory, node) = self.walk(&start, &target)?;
            if is_bound && !self.is_inside(&node)? {
                return Err(Errno::XDEV.into());
            }
            match self.names.target(&node)? {
                Some(next) => target = next,
                None => return Ok(node),
            }
        }
    }

    /// Returns whether a node is in one of the directories, or is one of them.
    fn is_inside(&self, node: &N::Node) -> io::Result<bool> {
        let path = self.names.path(node)?;
        // In this order: a directory whose path has no links is not accessed, because its device may not answer.
        Ok(is_beneath(&path, &self.root)
            || self.into.iter().any(|into| is_beneath(&path, into.as_os_str().as_bytes()))
            || self
                .into
                .iter()
                .any(|into| self.names.real(into).is_some_and(|into| is_beneath(&path, &into))))
    }
}

/// Returns whether a real path names a directory or something below it.
fn is_beneath(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Links by their paths, and files and directories, which have no target.
    struct Tree(BTreeMap<String, Option<&'static str>>);

    impl Tree {
        fn new(nodes: &[(&str, Option<&'static str>)]) -> Self {
            Self(nodes.iter().map(|(path, target)| ((*path).to_owned(), *target)).collect())
        }
    }

    impl Names for Tree {
        type Node = String;

        fn look_up(&self, directory: &String, name: &[u8]) -> io::Result<String> {
            // Only files and links are in the map.
            if self.0.contains_key(directory) {
                return Err(Errno::NOTDIR.into());
            }
            let path = match str::from_utf8(name).expect("UTF-8") {
                "." => return Ok(directory.clone()),
                ".." => directory.rsplit_once('/').map(|(up, _)| up.to_owned()).unwrap_or_default(),
                name => format!("{directory}/{name}"),
            };
            let below = format!("{path}/");
            let is_there = self.0.keys().any(|known| *known == path || known.starts_with(&below));
            if is_there { Ok(path) } else { Err(Errno::NOENT.into()) }
        }

        fn top(&self) -> io::Result<String> {
            Ok(String::new())
        }

        fn target(&self, node: &String) -> io::Result<Option<Vec<u8>>> {
            Ok(self.0.get(node).copied().flatten().map(|target| target.as_bytes().to_vec()))
        }

        fn path(&self, node: &String) -> io::Result<Vec<u8>> {
            Ok(if node.is_empty() { b"/".to_vec() } else { node.as_bytes().to_vec() })
        }

        fn real(&self, path: &Path) -> Option<Vec<u8>> {
            let path = path.to_str().expect("UTF-8");
            // Without a bound: it is not one of the walk that is tested.
            let everywhere = [PathBuf::from("/")];
            follow(self, &String::new(), path.as_bytes(), &everywhere).ok().map(String::into_bytes)
        }
    }

    fn outcome(tree: &Tree, path: &str, into: &[&str]) -> Result<String, Errno> {
        let into: Vec<PathBuf> = into.iter().map(PathBuf::from).collect();
        follow(tree, &"/srv/www".to_owned(), path.as_bytes(), &into)
            .map_err(|error| Errno::from_io_error(&error).expect("an errno"))
    }

    #[test]
    fn links_lead_into_permitted_directories_and_each_on_the_way_is_under_the_same_rule() {
        let tree = Tree::new(&[
            ("/srv/www/plain", None),
            ("/srv/www/d/file", None),
            ("/srv/www/absolute", Some("/srv/www/plain")),
            ("/srv/www/relative", Some("../../disk/a")),
            ("/srv/www/a", Some("/disk/a")),
            ("/srv/www/slash", Some("/disk/a/")),
            ("/srv/www/pool", Some("/disk")),
            ("/srv/www/pool2", Some("/disk/")),
            ("/srv/www/alias", Some("/alias/a")),
            ("/srv/www/hop", Some("/tmp/hop")),
            ("/srv/www/out", Some("/etc/passwd")),
            ("/srv/www/up", Some("/disk/../etc/passwd")),
            ("/srv/www/near", Some("/disk2/a")),
            ("/srv/www/gone", Some("/disk/gone")),
            ("/srv/www/self", Some("self")),
            ("/srv/www/through", Some("/tmp/up/a")),
            ("/srv/www/top", Some("/")),
            ("/srv/www/dir-out", Some("/tmp")),
            ("/disk/a", None),
            ("/disk/back", Some("/srv/www/plain")),
            ("/disk/out", Some("/etc/passwd")),
            ("/disk/to-b", Some("a")),
            ("/disk/again", Some("../srv/www/a")),
            ("/disk2/a", None),
            ("/alias", Some("disk")),
            ("/tmp/hop", Some("/disk/a")),
            ("/tmp/up", Some("../alias")),
            ("/etc/passwd", None),
        ]);
        let disk: &[&str] = &["/disk"];
        let ok = |path: &str| Ok(path.to_owned());
        for (path, into, expected) in [
            ("plain", disk, ok("/srv/www/plain")),
            ("d/file", &[], ok("/srv/www/d/file")),
            ("absolute", &[], ok("/srv/www/plain")),
            ("a", disk, ok("/disk/a")),
            ("a", &["/disk/"], ok("/disk/a")),
            ("a", &["/alias"], ok("/disk/a")),
            ("a", &["/disk/a"], ok("/disk/a")),
            ("a", &["/"], ok("/disk/a")),
            ("a", &[], Err(Errno::XDEV)),
            ("a", &["/dis"], Err(Errno::XDEV)),
            ("a", &["/gone"], Err(Errno::XDEV)),
            ("relative", disk, ok("/disk/a")),
            ("slash", disk, Err(Errno::NOTDIR)),
            ("pool", disk, ok("/disk")),
            ("pool2", disk, ok("/disk")),
            ("pool/a", disk, ok("/disk/a")),
            ("pool/back", disk, ok("/srv/www/plain")),
            ("pool/out", disk, Err(Errno::XDEV)),
            ("pool/to-b", disk, ok("/disk/a")),
            ("pool/again", disk, ok("/disk/a")),
            ("alias", disk, ok("/disk/a")),
            ("through", disk, ok("/disk/a")),
            ("hop", disk, Err(Errno::XDEV)),
            ("hop", &["/disk", "/tmp"], ok("/disk/a")),
            ("dir-out/hop", disk, Err(Errno::XDEV)),
            ("out", disk, Err(Errno::XDEV)),
            ("up", disk, Err(Errno::XDEV)),
            ("near", disk, Err(Errno::XDEV)),
            ("gone", disk, Err(Errno::NOENT)),
            ("self", disk, Err(Errno::LOOP)),
            ("top", disk, Err(Errno::XDEV)),
            ("plain/", disk, Err(Errno::NOTDIR)),
        ] {
            assert_eq!(outcome(&tree, path, into), expected, "{path} into {into:?}");
        }
    }

    #[test]
    fn so_many_links_are_followed_and_no_more() {
        let name = |number: u32| format!("/srv/www/{number}");
        let mut tree = Tree::new(&[("/srv/www/0", None)]);
        for number in 1..=LINKS_MAX + 1 {
            let target: &'static str = (number - 1).to_string().leak();
            tree.0.insert(name(number), Some(target));
        }
        assert_eq!(outcome(&tree, &LINKS_MAX.to_string(), &[]), Ok(name(0)));
        assert_eq!(outcome(&tree, &(LINKS_MAX + 1).to_string(), &[]), Err(Errno::LOOP));
    }
}

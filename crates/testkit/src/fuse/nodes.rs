//! The files and directories of a `SlowFs`, without their delays.

use core::time::Duration;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};
use std::time::UNIX_EPOCH;

use fuser::{FileAttr, FileType, INodeNo};

use crate::Content;

/// A tree that only grows while it is built, and stays as it is once mounted.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Indexed by `NodeId`; the first is the root.
    nodes: Vec<Node>,
}

/// A node's inode number less one: the root's number is 1.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct NodeId(usize);

#[derive(Debug)]
enum Node {
    Directory {
        parent: NodeId,
        children: BTreeMap<OsString, NodeId>,
    },
    /// `size` is the size in its attributes, which may differ from the content's.
    File {
        content: Content,
        size: u64,
    },
}

/// An entry of a directory's listing.
pub(super) struct Entry<'a> {
    pub(super) node: NodeId,
    pub(super) kind: FileType,
    pub(super) name: &'a OsStr,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let root = Node::Directory { parent: ROOT, children: BTreeMap::new() };
        Self { nodes: vec![root] }
    }

    pub(super) fn add_file(&mut self, path: &Path, content: Content, size: u64) {
        let name = path.file_name().unwrap_or_else(|| panic!("{} has no name", path.display()));
        let parent = self.add_directory(path.parent().expect("what has a name has a parent"));
        let file = self.add(parent, name, Node::File { content, size });
        assert!(file.is_new, "{} exists", path.display());
    }

    /// Finds or makes the directory, and the directories on its path.
    pub(super) fn add_directory(&mut self, path: &Path) -> NodeId {
        let found = names(path).fold(ROOT, |parent, name| {
            let children = BTreeMap::new();
            self.add(parent, name, Node::Directory { parent, children }).node
        });
        assert!(self.content(found).is_none(), "{} is a file", path.display());
        found
    }

    fn add(&mut self, parent: NodeId, name: &OsStr, node: Node) -> Added {
        let fresh = NodeId(self.nodes.len());
        let Node::Directory { children, .. } = &mut self.nodes[parent.0] else {
            panic!("{} would lie in a file", name.display());
        };
        let node_id = *children.entry(name.to_owned()).or_insert(fresh);
        let is_new = node_id == fresh;
        if is_new {
            self.nodes.push(node);
        }
        Added { node: node_id, is_new }
    }

    pub(super) fn find(&self, path: &Path) -> NodeId {
        let found = names(path).try_fold(ROOT, |parent, name| self.child(parent, name));
        found.unwrap_or_else(|| panic!("the SlowFs has no {}", path.display()))
    }

    pub(super) fn child(&self, parent: NodeId, name: &OsStr) -> Option<NodeId> {
        match &self.nodes[parent.0] {
            Node::Directory { children, .. } => children.get(name).copied(),
            Node::File { .. } => None,
        }
    }

    /// The content of a file; `None` for a directory.
    pub(super) fn content(&self, node: NodeId) -> Option<&Content> {
        match &self.nodes[node.0] {
            Node::Directory { .. } => None,
            Node::File { content, .. } => Some(content),
        }
    }

    /// The entries with `.` and `..`; none for a file.
    pub(super) fn entries(&self, node: NodeId) -> impl Iterator<Item = Entry<'_>> {
        let directory = match &self.nodes[node.0] {
            Node::Directory { parent, children } => Some((*parent, children)),
            Node::File { .. } => None,
        };
        directory.into_iter().flat_map(move |(parent, children)| {
            let dots = [(node, OsStr::new(".")), (parent, OsStr::new(".."))];
            let children = children.iter().map(|(name, child)| (*child, name.as_os_str()));
            let kind = |node| self.attributes(node).kind;
            dots.into_iter().chain(children).map(move |(node, name)| Entry {
                node,
                kind: kind(node),
                name,
            })
        })
    }

    pub(super) fn attributes(&self, node: NodeId) -> FileAttr {
        let (kind, size, perm) = match &self.nodes[node.0] {
            Node::Directory { .. } => (FileType::Directory, 0, 0o555),
            Node::File { size, .. } => (FileType::RegularFile, *size, 0o444),
        };
        let time = UNIX_EPOCH + MODIFIED;
        FileAttr {
            ino: node.into(),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

struct Added {
    node: NodeId,
    is_new: bool,
}

impl From<INodeNo> for NodeId {
    fn from(number: INodeNo) -> Self {
        let number = usize::try_from(number.0).expect("a number that the kernel has from us");
        Self(number - 1)
    }
}

impl From<NodeId> for INodeNo {
    fn from(node: NodeId) -> Self {
        Self(node.0 as u64 + 1)
    }
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().map(move |component| match component {
        Component::Normal(name) => name,
        _ => panic!("{} is more than plain names", path.display()),
    })
}

const ROOT: NodeId = NodeId(0);

/// The modification time of all nodes: 2026-01-01 00:00:00 UTC.
const MODIFIED: Duration = Duration::from_secs(1_767_225_600);

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes_with_file_a_b() -> Nodes {
        let mut nodes = Nodes::new();
        nodes.add_file(Path::new("a/b"), "text".into(), 4);
        nodes
    }

    #[test]
    fn paths_lead_to_nodes() {
        let mut nodes = nodes_with_file_a_b();
        nodes.add_file(Path::new("a/c"), "".into(), 9);
        let a = nodes.add_directory(Path::new("a"));
        assert_eq!(nodes.find(Path::new("a")), a);
        assert_eq!(nodes.find(Path::new("")), ROOT);
        assert_eq!(nodes.attributes(nodes.find(Path::new("a/c"))).size, 9);
        let listing = nodes.entries(a).map(|entry| (entry.node, entry.name.to_str().unwrap()));
        let (b, c) = (nodes.find(Path::new("a/b")), nodes.find(Path::new("a/c")));
        assert_eq!(listing.collect::<Vec<_>>(), [(a, "."), (ROOT, ".."), (b, "b"), (c, "c")]);
        assert_eq!(nodes.entries(b).count(), 0);
    }

    #[test]
    #[should_panic(expected = "a/b exists")]
    fn a_file_is_added_once() {
        nodes_with_file_a_b().add_file(Path::new("a/b"), "".into(), 0);
    }

    #[test]
    #[should_panic(expected = "c would lie in a file")]
    fn a_file_has_no_children() {
        nodes_with_file_a_b().add_file(Path::new("a/b/c/d"), "".into(), 0);
    }

    #[test]
    #[should_panic(expected = "a/b is a file")]
    fn a_file_is_no_directory() {
        nodes_with_file_a_b().add_directory(Path::new("a/b"));
    }

    #[test]
    #[should_panic(expected = "../a is more than plain names")]
    fn paths_stay_inside() {
        nodes_with_file_a_b().add_directory(Path::new("../a"));
    }
}

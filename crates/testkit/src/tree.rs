//! Temporary directories with files of known content.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Content, evict};

/// A directory that is removed when this is dropped.
///
/// ```
/// use testkit::{Content, Tree};
///
/// let video = Content::pseudo_random(1, 300_000);
/// let tree = Tree::new().file("index.html", "hello").file("media/video.mp4", video);
/// assert_eq!(std::fs::read(tree.path().join("index.html")).unwrap(), b"hello");
/// ```
///
/// # Panics
/// All methods panic if the file system refuses, because a test cannot handle that.
#[derive(Debug)]
pub struct Tree {
    directory: TempDir,
}

impl Tree {
    /// An empty directory beneath the system's directory for temporary files.
    #[must_use]
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("samum-test-").expect("a temporary directory");
        Self { directory }
    }

    /// An empty directory beneath another directory, such as one on a disk.
    #[must_use]
    pub fn beneath(place: impl AsRef<Path>) -> Self {
        let directory = TempDir::with_prefix_in("samum-test-", place);
        Self { directory: directory.expect("a temporary directory") }
    }

    /// Writes a file, with the directories that lead to it. An existing one is overwritten.
    #[must_use = "returns the tree"]
    pub fn file(self, path: impl AsRef<Path>, content: impl Into<Content>) -> Self {
        self.write(path, content);
        self
    }

    /// Makes an empty directory, with those that lead to it.
    #[must_use = "returns the tree"]
    pub fn directory(self, path: impl AsRef<Path>) -> Self {
        let path = self.full(path.as_ref());
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self
    }

    /// Makes a symbolic link at `path` that contains `target`.
    #[must_use = "returns the tree"]
    pub fn symlink(self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Self {
        let path = self.with_parents(path.as_ref());
        symlink(target, &path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self
    }

    /// Does the same as [`Tree::file`], for a tree in use.
    pub fn write(&self, path: impl AsRef<Path>, content: impl Into<Content>) {
        const BLOCK: usize = 1024 * 1024;
        let path = self.with_parents(path.as_ref());
        let content = content.into();
        let write = || {
            let mut file = File::create(&path)?;
            for offset in (0..content.len()).step_by(BLOCK) {
                file.write_all(&content.read(offset, BLOCK))?;
            }
            Ok::<_, std::io::Error>(())
        };
        write().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Makes a file cold: [`evict()`](crate::evict()).
    pub fn evict(&self, path: impl AsRef<Path>) {
        evict(self.full(path.as_ref()));
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn full(&self, path: &Path) -> PathBuf {
        assert!(path.is_relative(), "{} would leave the tree", path.display());
        self.path().join(path)
    }

    fn with_parents(&self, path: &Path) -> PathBuf {
        let path = self.full(path);
        let parent = path.parent().expect("it lies in the tree");
        fs::create_dir_all(parent).unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
        path
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_as_told_and_vanish() {
        let content = Content::pseudo_random(5, 2 * 1024 * 1024 + 17);
        let tree = Tree::new()
            .file("a/b/c.bin", content.clone())
            .file("empty", "")
            .directory("d")
            .symlink("e/link", "../a");
        let path = tree.path().to_owned();
        tree.evict("a/b/c.bin");
        content.assert_is(&fs::read(path.join("e/link/b/c.bin")).unwrap());
        assert_eq!(fs::metadata(path.join("empty")).unwrap().len(), 0);
        assert!(path.join("d").is_dir());
        drop(tree);
        assert!(!path.exists());
    }

    #[test]
    #[should_panic(expected = "would leave the tree")]
    fn absolute_paths_are_refused() {
        Tree::new().write("/etc/samum", "");
    }
}

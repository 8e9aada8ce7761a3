//! The origin of figures: the commit of the tree, and a hash of each program and library of ours.
//! With these a figure can be traced to the samum that produced it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The tree that samum-bench was built from, as it was when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// The commit that is checked out.
    pub commit: String,
    /// True if tracked files differed from the commit.
    pub is_dirty: bool,
}

impl Tree {
    /// The tree around a directory; `None` where git is missing or does not know it.
    #[must_use]
    pub fn around(dir: &Path) -> Option<Self> {
        let commit = git(dir, &["rev-parse", "HEAD"])?.trim().to_owned();
        // Files of other runs lie about untracked, and say nothing.
        let changes = git(dir, &["status", "--porcelain", "--untracked-files=no"])?;
        Some(Self { commit, is_dirty: !changes.trim().is_empty() })
    }

    /// The tree of this program.
    #[must_use]
    pub fn ours() -> Option<Self> {
        Self::around(Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    /// "commit 0123456789ab", and whether that is all.
    #[must_use]
    pub fn words(tree: Option<&Self>) -> String {
        let Some(Self { commit, is_dirty }) = tree else {
            return "commit not recorded".to_owned();
        };
        let changes = if *is_dirty { ", with changes that are not committed" } else { "" };
        format!("commit {}{changes}", short(commit))
    }
}

/// The output of git, run so that it does not change the tree. `None` when it fails.
fn git(dir: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // The tree may belong to another user than root.
    command.args(["--no-optional-locks", "-c", "safe.directory=*", "-C"]).arg(dir);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// A program or a library of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// `samum`, `libsamum_preload.so`, `samum-bench`.
    pub name: String,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Length of the file.
    pub bytes: u64,
}

impl Binary {
    /// The file at `path`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(name: &str, path: &Path) -> io::Result<Self> {
        let (mut file, mut hash) = (File::open(path)?, Sha256::new());
        let (mut part, mut bytes) = (vec![0; 1 << 16], 0);
        loop {
            match file.read(&mut part)? {
                0 => break,
                n => {
                    hash.update(&part[..n]);
                    bytes += n as u64;
                }
            }
        }
        let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: name.to_owned(), sha256: digits, bytes })
    }

    /// "samum 0123456789ab".
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} {}", self.name, short(&self.sha256))
    }
}

/// Enough of a hash to find it.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let binary = Binary::of("samum", &path).unwrap();
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            binary.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!((binary.bytes, &binary.words()[..]), (3, "samum ba7816bf8f01"));
        assert!(Binary::of("samum", &dir.path().join("missing")).is_err());
    }

    #[test]
    fn a_tree_has_its_commit_and_tells_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        assert_eq!(Tree::around(path), None, "not a tree");
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let make = |arguments: &[&str]| git(path, &[&who[..], arguments].concat());
        if make(&["init", "--quiet"]).is_none() {
            testkit::skip!("there is no git");
        }
        std::fs::write(path.join("file"), "1").unwrap();
        make(&["add", "file"]).unwrap();
        make(&["commit", "--quiet", "--message", "first"]).unwrap();
        let clean = Tree::around(path).unwrap();
        assert!(clean.commit.len() >= 40 && !clean.is_dirty, "{clean:?}");
        std::fs::write(path.join("another"), "").unwrap();
        assert_eq!(Tree::around(path), Some(clean.clone()), "an untracked file changes nothing");
        std::fs::write(path.join("file"), "2").unwrap();
        let dirty = Tree::around(path).unwrap();
        assert_eq!(dirty, Tree { is_dirty: true, ..clean });
        assert!(Tree::words(Some(&dirty)).ends_with("not committed"));
        assert_eq!(Tree::words(None), "commit not recorded");
    }
}

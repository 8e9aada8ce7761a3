//! A real file system on a block device whose end can be torn off: reads of it fail with `EIO`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::syncfs;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::{Content, Skip, Tree};

/// ext4 on a loop device, mounted until this is dropped.
#[derive(Debug)]
pub struct Disk {
    place: TempDir,
}

impl Disk {
    /// An empty one.
    ///
    /// # Errors
    /// Where there are no loop devices, no right to mount, or no `mkfs.ext4`; with what they said.
    pub fn new() -> Result<Self, Skip> {
        let failed = |error: std::io::Error| Skip::new(format!("no loop device: {error}"));
        let place = TempDir::with_prefix_in("samum-disk-", "/var/tmp").map_err(failed)?;
        let disk = Self { place };
        File::create(disk.image()).and_then(|it| it.set_len(BYTES)).map_err(failed)?;
        fs::create_dir(disk.mounted()).map_err(failed)?;
        // One group of blocks, no journal: files lie in one piece, and nothing but files behind them.
        let options = ["-q", "-F", "-b", "4096", "-O", "^has_journal"];
        run(Command::new("mkfs.ext4").args(options).arg(disk.image()))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(disk.image()).arg(disk.mounted()))?;
        Ok(disk)
    }

    /// An empty directory on it.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree::beneath(self.mounted())
    }

    /// From now on nothing can be read from the byte at `offset` of the file on, nor from anything
    /// that lies behind it on the device: files that were not written to it ([`Tree::evict`] does that)
    /// before this one. What is in memory stays there.
    ///
    /// # Panics
    /// When the content is not found on the device, or not in one piece: `offset` is to be a multiple
    /// of 4096, and the bytes from there on like no others.
    pub fn tear(&self, tree: &Tree, path: impl AsRef<Path>, content: &Content, offset: u64) {
        tree.evict(path);
        let torn = || {
            // What is written later would mend the device.
            syncfs(File::open(self.mounted())?)?;
            let image = fs::read(self.image())?;
            let place = |offset| {
                let sought = content.read(offset, BLOCK);
                let block = image.chunks(BLOCK).position(|block| block.starts_with(&sought));
                (block.expect("the file is on the device") * BLOCK) as u64
            };
            let last = (content.len() - 1) / BLOCK as u64 * BLOCK as u64;
            assert_eq!(place(last) - place(offset), last - offset, "the file lies in one piece");
            File::options().write(true).open(self.image())?.set_len(place(offset))
        };
        torn().unwrap_or_else(|error| panic!("{}: {error}", self.image().display()));
    }

    fn image(&self) -> PathBuf {
        self.place.path().join("image")
    }

    fn mounted(&self) -> PathBuf {
        self.place.path().join("mounted")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Not mounted, if it failed before that. A server that was killed may still hold files.
        let _ = unmount(self.mounted(), UnmountFlags::DETACH);
    }
}

fn run(command: &mut Command) -> Result<(), Skip> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| Skip::new(format!("{program}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| Skip::new(format!("{program}: {said}")))
}

/// Of the device.
const BYTES: u64 = 64 << 20;

/// Of the file system.
const BLOCK: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn what_is_torn_off_cannot_be_read() {
        let disk = crate::or_skip!(Disk::new());
        let content = Content::pseudo_random(1, 4 << 20);
        let tree = disk.tree().file("f", content.clone());
        disk.tear(&tree, "f", &content, 1 << 20);
        let file = File::open(tree.path().join("f")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        content.assert_at(0, &bytes);
        let error = file.read_exact_at(&mut bytes, 1 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{error}");
    }
}

//! Real file systems on block devices. The end of one device can become unreadable (`EIO`), and another can stop
//! answering. A third file system has subvolumes, and a fourth is an image whose files have one time.

use core::ops::Range;
use core::time::Duration;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use rustix::fs::syncfs;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::evict::{evict_part, evict_unused};
use crate::{Content, Op, Skip, SlowFs, Tree};

/// ext4 on a loop device, mounted until this is dropped.
#[derive(Debug)]
pub struct Disk {
    place: TempDir,
}

impl Disk {
    /// Makes an empty file system.
    ///
    /// # Errors
    /// If there are no loop devices, no right to mount, or no `mkfs.ext4`. The reason has their messages.
    pub fn new() -> Result<Self, Skip> {
        let failed = |error: std::io::Error| Skip::new(format!("no loop device: {error}"));
        let place = TempDir::with_prefix_in("samum-disk-", "/var/tmp").map_err(failed)?;
        let disk = Self { place };
        File::create(disk.image()).and_then(|it| it.set_len(BYTES)).map_err(failed)?;
        fs::create_dir(disk.mounted()).map_err(failed)?;
        // With one group of blocks and no journal, each file lies in one piece, with only files after it.
        let options = ["-q", "-F", "-b", "4096", "-O", "^has_journal"];
        run(Command::new("mkfs.ext4").args(options).arg(disk.image()))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(disk.image()).arg(disk.mounted()))?;
        Ok(disk)
    }

    /// Makes an empty directory on it.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree::beneath(self.mounted())
    }

    /// Makes the rest of the file unreadable from `offset` on, and everything after it on the device: files that were
    /// not written to the device ([`Tree::evict`] does so) before this one. Pages in memory stay there.
    ///
    /// # Panics
    /// If the content is not found on the device in one piece. `offset` must be a multiple of 4096, and the
    /// bytes from there on must be unlike all others.
    pub fn tear(&self, tree: &Tree, path: impl AsRef<Path>, content: &Content, offset: u64) {
        tree.evict(path);
        let torn = || {
            // A later write would make the device longer again.
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

    /// Unmounts it; returns the bytes of the device.
    fn into_image(self) -> Result<Vec<u8>, Skip> {
        let failed = |error: std::io::Error| Skip::new(format!("no image of a disk: {error}"));
        unmount_written(&self.mounted()).map_err(failed)?;
        fs::read(self.image()).map_err(failed)
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
        // There is no mount if it failed before that. A server that was killed may still have files open.
        let _ = unmount(self.mounted(), UnmountFlags::DETACH);
    }
}

/// A read-only ext4 on a loop device that stops answering and answers again. The device is a file of a [`SlowFs`], so
/// reads of data and of metadata wait where the reads of a dead disk wait.
#[derive(Debug)]
pub struct HungDisk {
    slow: SlowFs,
    mounted: TempDir,
}

impl HungDisk {
    /// Mounts it in a new directory beneath `place`, with the files that `write` makes. The device answers at first,
    /// and nothing of the file system is in memory.
    ///
    /// # Errors
    /// The errors of [`Disk::new`] and of [`SlowFsBuilder::mount`](crate::SlowFsBuilder::mount).
    pub fn mount_beneath(place: &Path, write: impl FnOnce(&Path)) -> Result<Self, Skip> {
        let disk = Disk::new()?;
        write(&disk.mounted());
        let slow = SlowFs::builder().file("image", disk.into_image()?).mount()?;
        let mounted = TempDir::with_prefix_in("samum-hung-", place)
            .map_err(|error| Skip::new(format!("no place for a mount: {error}")))?;
        let image = slow.path().join("image");
        run(Command::new("mount").args(["-o", "ro,loop"]).arg(image).arg(mounted.path()))?;
        Ok(Self { slow, mounted })
    }

    /// The directory at which it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// Makes the device stop answering, or answer again, even requests that came meanwhile.
    pub fn set_hung(&self, is_hung: bool) {
        self.slow.set_delay(Op::Read, if is_hung { Duration::MAX } else { Duration::ZERO });
    }

    /// Removes the device: earlier and later requests fail with `EIO`, but pages in memory stay. The file system stays
    /// mounted.
    ///
    /// # Errors
    /// If this process may not: it is not root.
    pub fn remove(&self) -> Result<(), Skip> {
        self.slow.abort()
    }

    /// Drops a part of a file from memory, in whole pages; the other pages stay.
    ///
    /// # Panics
    /// If there is no such file, or if pages are left after 10 s.
    pub fn evict(&self, path: impl AsRef<Path>, range: Range<u64>) {
        evict_part(&self.path().join(path), range);
        // The device is a file, too.
        evict_unused(self.slow.path().join("image"));
    }

    /// Waits until the device has a request that it does not answer; false if none comes within `limit`.
    #[must_use]
    pub fn wait_until_asked(&self, limit: Duration) -> bool {
        self.slow.wait_until_waiting(Op::Read, 1, limit)
    }
}

impl Drop for HungDisk {
    fn drop(&mut self) {
        self.set_hung(false);
        // A server that was killed may still have files open.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

/// A btrfs on a loop device with the subvolumes `one` and `two`, and at `both` an overlay of the two. Each has its own
/// device number, and files of all three wait for one disk.
#[derive(Debug)]
pub struct Subvolumes {
    place: TempDir,
}

impl Subvolumes {
    /// Mounts it, with the files that `write` makes in the two subvolumes. Then no pages of the files are in memory.
    ///
    /// # Errors
    /// If there are no loop devices, no right to mount, no `mkfs.btrfs`, or no btrfs or overlayfs in the kernel. The
    /// reason has their messages.
    pub fn mount(write: impl FnOnce([&Path; 2])) -> Result<Self, Skip> {
        let failed = |error: std::io::Error| Skip::new(format!("no loop device: {error}"));
        let place = TempDir::with_prefix_in("samum-subvolumes-", "/var/tmp").map_err(failed)?;
        let image = place.path().join("image");
        File::create(&image).and_then(|it| it.set_len(BTRFS_BYTES)).map_err(failed)?;
        run(Command::new("mkfs.btrfs").arg("-q").arg(&image))?;
        let volumes = Self { place };
        fs::create_dir(volumes.path()).map_err(failed)?;
        let mount =
            || run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(volumes.path()));
        mount()?;
        let [one, two, both] = ["one", "two", "both"].map(|name| volumes.path().join(name));
        for subvolume in [&one, &two] {
            run(Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(subvolume))?;
        }
        fs::create_dir(&both).map_err(failed)?;
        write([&one, &two]);
        unmount_written(&volumes.path()).map_err(failed)?;
        mount()?;
        let layers = format!("lowerdir={}:{}", one.display(), two.display());
        run(Command::new("mount").args(["-t", "overlay", "-o", &layers, "overlay"]).arg(both))?;
        Ok(volumes)
    }

    /// The directory at which it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.place.path().join("mounted")
    }
}

impl Drop for Subvolumes {
    fn drop(&mut self) {
        // There are no mounts if these failed. A server that was killed may still have files open.
        for mounted in [self.path().join("both"), self.path()] {
            let _ = unmount(mounted, UnmountFlags::DETACH);
        }
    }
}

/// A squashfs, made as releases are. A second squashfs of other bytes of the same length has files with the same
/// numbers and times.
#[derive(Debug)]
pub struct Image {
    place: TempDir,
}

/// An [`Image`] that is mounted until this is dropped.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
}

impl Image {
    /// Makes an image of the files that `write` makes.
    ///
    /// # Errors
    /// If the disk has no room for it, or there is no `mksquashfs`. The reason has their messages.
    pub fn new(write: impl FnOnce(&Path)) -> Result<Self, Skip> {
        let failed = |error: std::io::Error| Skip::new(format!("no place for an image: {error}"));
        let image =
            Self { place: TempDir::with_prefix_in("samum-image-", "/var/tmp").map_err(failed)? };
        let files = image.place.path().join("files");
        fs::create_dir(&files).map_err(failed)?;
        write(&files);
        let options =
            ["-noappend", "-quiet", "-all-time", "1700000000", "-mkfs-time", "1700000000"];
        run(Command::new("mksquashfs").arg(files).arg(image.path()).args(options))?;
        Ok(image)
    }

    /// Mounts it at a directory.
    ///
    /// # Errors
    /// If there are no loop devices, no right to mount, or no squashfs in the kernel.
    pub fn mount(&self, path: &Path) -> Result<Mounted, Skip> {
        run(Command::new("mount").args(["-o", "loop,ro"]).arg(self.path()).arg(path))?;
        Ok(Mounted { path: path.to_path_buf() })
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("image")
    }
}

impl Mounted {
    /// Mounts an overlay of the image, without an upper layer, at an empty directory.
    ///
    /// # Errors
    /// If there is no overlayfs in the kernel.
    pub fn overlay(&self, path: &Path) -> Result<Self, Skip> {
        // Without an upper layer an overlay has at least two layers; the other one is empty.
        let layers = format!("lowerdir={}:{}", self.path.display(), path.display());
        run(Command::new("mount").args(["-t", "overlay", "-o", &layers, "overlay"]).arg(path))?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// Unmounts it, as `umount` does.
    ///
    /// # Errors
    /// If files are open for seconds.
    pub fn unmount(&self) -> std::io::Result<()> {
        unmount_written(&self.path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The image may have been unmounted. A server that was killed may still have files open.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// Unmounts a file system whose files this process has closed. A program that another test starts meanwhile has
/// copies of the files that were open then until it executes, so the kernel may call it busy for a moment.
fn unmount_written(path: &Path) -> std::io::Result<()> {
    let until = Instant::now() + COPIES_END;
    loop {
        match unmount(path, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            result => return Ok(result?),
        }
    }
}

fn run(command: &mut Command) -> Result<(), Skip> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| Skip::new(format!("{program}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| Skip::new(format!("{program}: {said}")))
}

/// The longest that programs take from their start to their first instruction, on a busy machine.
const COPIES_END: Duration = Duration::from_secs(5);

/// The size of the device.
const BYTES: u64 = 64 << 20;

/// The least that `mkfs.btrfs` takes, and some space.
const BTRFS_BYTES: u64 = 128 << 20;

/// The size of a block of the file system.
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

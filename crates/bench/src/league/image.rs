//! A file system of its own: ext4 on a loop device. Its disk can be slowed down or stopped without an effect on other
//! disks.

use core::time::Duration;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::syncfs;
use rustix::mount::{UnmountFlags, unmount};

use super::site::Site;
use crate::Fault;

/// Such a file system, mounted until this is dropped.
#[derive(Debug)]
pub struct Image {
    file: PathBuf,
    mounted: PathBuf,
    _site: Site,
}

impl Image {
    /// Makes a file system of `len` bytes in a directory of its own beneath `parent`, with the files that `write`
    /// makes. Mounts it, read-only, at the new directory `mounted`. Nothing of it is in memory.
    ///
    /// # Errors
    /// [`Fault::Skip`] if this machine cannot do it, and the errors of `write`.
    pub fn new(
        parent: Option<&Path>,
        len: u64,
        mounted: PathBuf,
        write: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Self, Fault> {
        let site = Site::new(parent)?;
        site.needs_a_disk()?;
        site.has_room_for(len)?;
        let file = site.root().join("image");
        File::create(&file)?.set_len(len)?;
        fs::create_dir(&mounted)?;
        // Small files, and room for the inodes of many.
        let options = ["-q", "-F", "-b", "4096", "-i", "8192", "-O", "^has_journal"];
        command(Command::new("mkfs.ext4").args(options).arg(&file))?;
        let image = Self { file, mounted, _site: site };
        image.mount("loop")?;
        write(&image.mounted)?;
        syncfs(File::open(&image.mounted)?)?;
        image.remount()?;
        Ok(image)
    }

    /// Evicts the whole file system, with its metadata. No file of it may be open.
    ///
    /// # Errors
    /// As umount(2) and mount(8).
    pub fn remount(&self) -> Result<(), Fault> {
        unmount(&self.mounted, UnmountFlags::empty())?;
        self.wait_for_the_device()?;
        // The loop device reads it through the page cache of the disk.
        let file = File::open(&self.file)?;
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        self.mount("ro,loop")
    }

    /// Waits until no loop device has the file any more. A process with its own view of the mounts, begun while this
    /// was mounted, keeps it mounted there until the process ends. Then its pages stay in memory, and mount(8) calls
    /// the device busy.
    fn wait_for_the_device(&self) -> Result<(), Fault> {
        let begin = Instant::now();
        while !command(Command::new("losetup").arg("--associated").arg(&self.file))?.is_empty() {
            crate::interrupt::check()?;
            if begin.elapsed() > DEVICE_WAIT {
                let of = self.file.display();
                return Err(Fault::Failed(format!("{of} is still mounted for another process")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn mount(&self, options: &str) -> Result<(), Fault> {
        command(Command::new("mount").args(["-o", options]).arg(&self.file).arg(&self.mounted))?;
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A server that could not be ended may still have files open.
        let _ = unmount(&self.mounted, UnmountFlags::DETACH);
    }
}

/// Writes files in turns, a block of each at a time, so that no file lies in one piece, and the positions of its blocks
/// do not fit into its inode.
///
/// # Errors
/// As write(2) and fdatasync(2).
pub fn write_in_pieces(paths: &[PathBuf], len: usize) -> std::io::Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut files = paths.iter().map(File::create).collect::<Result<Vec<_>, _>>()?;
    let mut piece = vec![0; PIECE];
    for _ in 0..len / PIECE {
        crate::interrupt::check()?;
        for file in &mut files {
            random.fill(&mut piece);
            file.write_all(&piece)?;
            // Blocks are allocated when they are written back.
            file.sync_data()?;
        }
    }
    Ok(())
}

/// The bytes of a file in one piece.
pub const PIECE: usize = 32 << 10;

/// The longest wait for a loop device to close its file: scripts beside this one take less.
const DEVICE_WAIT: Duration = Duration::from_secs(10);

/// Runs a command to its end; returns its output.
fn command(command: &mut Command) -> Result<Vec<u8>, Fault> {
    let program = command.get_program().display().to_string();
    let failed = |said: &str| Fault::Skip(format!("needs root and {program}: {said}"));
    let output = command.output().map_err(|error| failed(&error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(output.stdout).ok_or_else(|| failed(said.trim()))
}

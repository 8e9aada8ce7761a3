//! Slows down a disk, or bounds memory. A cgroup limits the bytes per second that its processes read from the disk
//! under a directory, or their memory with the page cache that they fill. It needs root, and a real block device for
//! the disk.
//!
//! Cgroup v1 `blkio.throttle.read_bps_device` and `memory.limit_in_bytes`, or v2 `io.max` and `memory.max`:
//! Documentation/admin-guide/cgroup-v1/{blkio-controller,memory}.rst and cgroup-v2.rst.

use core::time::Duration;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

/// The controller that limits reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A cgroup that slows down a disk or bounds memory. Its drop removes it; its processes must have ended.
///
/// Each server gets a cgroup of its own. In a group whose limit had been lifted and set again, servers read at up to
/// 1.7 times the limit for seconds (Linux 6.18, cgroup v1).
#[derive(Debug)]
pub struct Throttle {
    directory: PathBuf,
    /// `None` if the cgroup bounds memory.
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    /// `MAJOR:MINOR` of the whole disk.
    device: String,
    version: Version,
}

impl Throttle {
    /// Makes one for the disk under `path`, without a limit yet.
    ///
    /// # Errors
    /// A sentence, when there is no such disk, or no right.
    pub fn new(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| {
            format!("the disk under {} cannot be slowed down: {error}", path.display())
        };
        let device = device(fs::metadata(path).map_err(failed)?.dev())
            .ok_or_else(|| format!("{} is not on a disk of its own", path.display()))?;
        let (version, parent) = if Path::new(V1).is_dir() {
            (Version::V1, V1)
        } else {
            // If the controller is on already, the write is refused or does nothing; io.max then shows it.
            let _ = fs::write(format!("{V2}/cgroup.subtree_control"), "+io");
            (Version::V2, V2)
        };
        let directory = new_directory(parent).map_err(failed)?;
        let throttle = Self { directory, disk: Some(Disk { device, version }) };
        throttle.limit(None).map_err(failed)?;
        Ok(throttle)
    }

    /// Makes a cgroup that bounds memory to `bytes`.
    ///
    /// # Errors
    /// A sentence, when there is no right.
    pub fn of_memory(bytes: u64) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("memory cannot be limited: {error}");
        let (parent, file) = if Path::new(V1_MEMORY).is_dir() {
            (V1_MEMORY, "memory.limit_in_bytes")
        } else {
            let _ = fs::write(format!("{V2}/cgroup.subtree_control"), "+memory");
            (V2, "memory.max")
        };
        let throttle = Self { directory: new_directory(parent).map_err(failed)?, disk: None };
        fs::write(throttle.directory.join(file), bytes.to_string()).map_err(failed)?;
        Ok(throttle)
    }

    /// Limits reads from the disk to this many bytes a second, or not at all. For a cgroup that bounds memory it does
    /// nothing.
    ///
    /// # Errors
    /// As write(2).
    pub fn limit(&self, rate: Option<u64>) -> std::io::Result<()> {
        let Some(Disk { device, version }) = &self.disk else { return Ok(()) };
        let (file, text) = setting(*version, device, rate);
        fs::write(self.directory.join(file), text)
    }

    /// The file that processes join by writing their ID to it.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Without the limit, reads in flight end sooner. A directory that stays does no harm.
        let _ = self.limit(None);
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A new cgroup. Names of others that could not be removed yet are passed over.
fn new_directory(parent: &str) -> std::io::Result<PathBuf> {
    let mut nth = 1;
    loop {
        let directory = PathBuf::from(format!("{parent}/samum-bench-{}-{nth}", std::process::id()));
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && nth < GROUPS_MAX => nth += 1,
            made => return made.map(|()| directory),
        }
    }
}

/// The file and what to write to it.
fn setting(version: Version, device: &str, rate: Option<u64>) -> (&'static str, String) {
    match version {
        Version::V1 => {
            ("blkio.throttle.read_bps_device", format!("{device} {}", rate.unwrap_or(0)))
        }
        Version::V2 => {
            let rate = rate.map_or_else(|| "max".to_owned(), |rate| rate.to_string());
            ("io.max", format!("{device} rbps={rate}"))
        }
    }
}

/// `MAJOR:MINOR` of the disk that holds a file; `None` if it is on no disk of its own.
pub(super) fn device_of(path: &Path) -> Option<String> {
    device(fs::metadata(path).ok()?.dev())
}

/// `MAJOR:MINOR` of the disk that holds a partition, or of itself; `None` if it is no disk.
fn device(dev: u64) -> Option<String> {
    let id = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let directory = fs::canonicalize(format!("/sys/dev/block/{id}")).ok()?;
    if directory.join("partition").exists() {
        let disk = fs::read_to_string(directory.parent()?.join("dev")).ok()?;
        return Some(disk.trim().to_owned());
    }
    Some(id)
}

/// The maximum of cgroups of one process at the same time.
const GROUPS_MAX: u32 = 100;

/// The directory at which the controllers are mounted.
const V1: &str = "/sys/fs/cgroup/blkio";
const V1_MEMORY: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// Tries to remove a cgroup whose last process may still be on its way out.
const REMOVALS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_the_kernel_wants() {
        let v1 = "blkio.throttle.read_bps_device";
        assert_eq!(setting(Version::V1, "8:0", Some(100)), (v1, "8:0 100".into()));
        assert_eq!(setting(Version::V1, "8:0", None), (v1, "8:0 0".into()), "0 is no limit");
        assert_eq!(setting(Version::V2, "8:0", Some(100)), ("io.max", "8:0 rbps=100".into()));
        assert_eq!(setting(Version::V2, "8:0", None), ("io.max", "8:0 rbps=max".into()));
    }

    #[test]
    fn what_is_no_disk_has_no_device() {
        let proc = fs::metadata("/proc").unwrap().dev();
        assert_eq!(device(proc), None);
        assert!(Throttle::new(Path::new("/proc")).unwrap_err().contains("/proc is not on a disk"));
    }
}

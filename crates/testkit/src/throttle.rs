//! A real disk made slow: reads by chosen processes are limited by cgroup v1's `blkio` controller.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use std::thread;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use rustix::fs::{major, minor};

use crate::Skip;

const CONTROLLER: &str = "/sys/fs/cgroup/blkio";

/// A limit on the bytes per second that processes read from the disk beneath a directory.
#[derive(Debug)]
pub struct Throttle {
    directory: PathBuf,
    device: String,
}

impl Throttle {
    /// Prepares a limit for the disk of `path`; there is none at first.
    ///
    /// # Errors
    /// If there is no such controller, no disk, or no permission.
    pub fn new(path: &Path) -> Result<Self, Skip> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("samum-test-{}-{number}", std::process::id());
        let directory = Path::new(CONTROLLER).join(name);
        let device = fs::metadata(path).map_err(|error| Skip::new(error.to_string()))?.dev();
        let device = disk(&format!("{}:{}", major(device), minor(device)));
        let no = |error| Skip::new(format!("no {}: {error}", directory.display()));
        fs::create_dir(&directory).map_err(no)?;
        let throttle = Self { directory, device };
        throttle.set(1 << 40).map_err(|error| Skip::new(format!("no limit: {error}")))?;
        throttle.set(0).map_err(|error| Skip::new(format!("no limit: {error}")))?;
        Ok(throttle)
    }

    /// Sets the limit in bytes per second; `None`: no limit.
    pub fn limit(&self, bytes: Option<u64>) {
        self.set(bytes.unwrap_or(0)).expect("it could be set before");
    }

    /// Puts a command under the limit, with all its children.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.directory.join("cgroup.procs")).arg(program);
        command
    }

    fn set(&self, bytes: u64) -> std::io::Result<()> {
        let file = self.directory.join("blkio.throttle.read_bps_device");
        fs::write(file, format!("{} {bytes}", self.device))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Processes that still wait for the disk may go on.
        let _ = self.set(0);
        for _ in 0..100 {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The whole disk of a partition: only whole disks can be limited.
fn disk(device: &str) -> String {
    let part = fs::canonicalize(format!("/sys/dev/block/{device}")).unwrap_or_default();
    if part.join("partition").exists()
        && let Some(disk) = part.parent()
        && let Ok(number) = fs::read_to_string(disk.join("dev"))
    {
        return number.trim().to_owned();
    }
    device.to_owned()
}

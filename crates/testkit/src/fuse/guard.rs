//! Frees processes that wait for a `SlowFs` whose process has been killed.
//!
//! The kernel aborts a FUSE connection when its last descriptor is closed, and a killed process closes its
//! descriptors when its last thread ends. But a thread that waits for a reply from this very connection does
//! not end, even if it is killed. So on Ctrl-C a test that reads its own `SlowFs` would leave a process that
//! nothing can end. Only another process can abort the connection: this guard.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::thread::Pid;

/// A process that aborts the connection once the daemon's thread is gone. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
}

impl Guard {
    /// Watches the thread `daemon` of this process.
    pub(super) fn new(daemon: Pid, mountpoint: &Path) -> io::Result<Self> {
        let task = format!("/proc/{}/task/{daemon}", std::process::id());
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "slow-fs-guard", &task])
            .arg(mountpoint)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the test's group.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The daemon's thread is alive while it has memory. A killed thread first frees its memory and then closes its
/// files. There it may wait for the daemon, which was this very thread.
///
/// A forced unmount aborts the connection. Only root may do that; without root, waiting threads stay.
const SCRIPT: &str = "
    while grep -qs ^VmSize $1/status; do sleep 0.5; done
    umount -f -l \"$2\" || fusermount3 -u -z \"$2\"
    rmdir \"$2\"
";

//! Counts the system calls of a process: by the tracepoint `raw_syscalls:sys_enter`, through perf(1).
//! Counting slows the process down a little, so it is used where nothing is timed.

use core::time::Duration;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

/// A running count. Dropping it ends perf.
#[derive(Debug)]
pub(super) struct Calls {
    perf: Child,
    output: tempfile::NamedTempFile,
}

impl Calls {
    /// Attaches to all threads of a process, including later ones.
    pub(super) fn of(pid: u32) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("perf cannot be run: {error}");
        let output = tempfile::NamedTempFile::new().map_err(failed)?;
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", EVENT, "-p", &pid.to_string(), "-o"]);
        command.arg(output.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut perf = command.stderr(Stdio::null()).spawn().map_err(failed)?;
        // perf does not report that it has attached.
        thread::sleep(ATTACH);
        if let Ok(Some(_)) = perf.try_wait() {
            return Err(format!("perf does not count {EVENT} here, which needs root and tracefs"));
        }
        Ok(Self { perf, output })
    }

    /// Ends the count; returns the number of system calls.
    pub(super) fn stop(mut self) -> Result<u64, String> {
        self.signal(Signal::INT);
        let end = Instant::now() + END;
        while Instant::now() < end && matches!(self.perf.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        let said = fs::read_to_string(self.output.path()).unwrap_or_default();
        count(&said).ok_or_else(|| format!("perf does not count {EVENT} here"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.perf.id()).ok().and_then(Pid::from_raw);
        // The kill fails if perf has already ended.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.perf.wait();
    }
}

/// The number in `1234,,raw_syscalls:sys_enter,...`.
fn count(said: &str) -> Option<u64> {
    said.lines().find(|line| line.contains(EVENT))?.split(',').next()?.parse().ok()
}

const EVENT: &str = "raw_syscalls:sys_enter";

/// The time for perf to attach.
const ATTACH: Duration = Duration::from_millis(300);

/// The time for perf to write its file.
const END: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_line_is_understood() {
        let said = "# started on\n\n1234,,raw_syscalls:sys_enter,5678,100.00,,\n";
        assert_eq!(count(said), Some(1234));
        assert_eq!(count("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n"), None);
        assert_eq!(count(""), None);
    }
}

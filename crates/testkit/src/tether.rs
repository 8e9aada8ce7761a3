//! A child process that does not outlive the test that starts it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the process that `command` will start when the thread that starts it ends: at the
/// end of the test, even if the test fails, aborts or is killed (`PR_SET_PDEATHSIG`, prctl(2)).
///
/// So the thread that starts the process must be the last that needs it. The setting is lost if the process
/// executes a setuid program. Children of the process are not killed.
pub fn tether(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before that. Another process is the parent then.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    };
    // SAFETY: `pre_exec` demands a closure that may run between fork and exec, when other threads' locks
    // stay locked forever. `tie` makes two system calls, prctl and getppid, and neither allocates nor locks:
    // an error of a kind alone needs no memory.
    unsafe { command.pre_exec(tie) }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::env;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Child, Stdio};
    use std::thread;
    use std::time::Instant;

    use rustix::process::{Pid, kill_process};

    use super::*;

    const IN_CHILD: &str = "TESTKIT_TETHER_CHILD";

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        tether(command.arg("600").stdout(Stdio::null()).stderr(Stdio::null())).spawn().unwrap()
    }

    /// Says whether a process exists and is not a zombie.
    fn runs(pid: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        status.is_ok_and(|text| !text.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
    }

    #[track_caller]
    fn assert_ends(pid: u32) {
        let limit = Instant::now() + Duration::from_secs(10);
        while runs(pid) {
            assert!(Instant::now() < limit, "process {pid} is still there");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_process_ends_with_the_thread_that_started_it() {
        let mut child = thread::spawn(|| {
            let child = sleeper();
            assert!(runs(child.id()));
            child
        })
        .join()
        .unwrap();
        assert_ends(child.id());
        child.wait().unwrap();
    }

    /// Runs itself again as a child, which starts another process and is killed.
    #[test]
    fn a_test_process_that_is_killed_leaves_nothing() {
        if env::var_os(IN_CHILD).is_some() {
            let mut child = sleeper();
            writeln!(io::stdout(), "pid {}", child.id()).unwrap();
            child.wait().unwrap();
            return;
        }
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([
            "--exact",
            "--nocapture",
            "tether::tests::a_test_process_that_is_killed_leaves_nothing",
        ]);
        let mut test = tether(command.env(IN_CHILD, "1").stdout(Stdio::piped())).spawn().unwrap();
        let lines = BufReader::new(test.stdout.take().unwrap()).lines();
        let grandchild: u32 = lines
            .map_while(Result::ok)
            .find_map(|line| line.rsplit_once("pid ").and_then(|(_, pid)| pid.parse().ok()))
            .expect("it is said");
        assert!(runs(grandchild));
        kill_process(Pid::from_child(&test), Signal::KILL).unwrap();
        test.wait().unwrap();
        assert_ends(grandchild);
    }
}

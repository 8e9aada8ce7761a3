//! Child processes with fewer system calls: without io_uring, as in most containers, without Landlock, or killed for some
//! calls.

use core::iter;
use std::env::consts::ARCH;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Makes io_uring_setup, io_uring_enter and io_uring_register fail with `EPERM` in the process that
/// `command` will start, and in its children. Docker's default profile does the same.
///
/// The process also gets `no_new_privs`, because seccomp(2) needs a privilege without it.
///
/// # Panics
/// If the filter cannot be written for this architecture.
pub fn forbid_io_uring(command: &mut Command) -> &mut Command {
    let eperm = Errno::PERM.raw_os_error().unsigned_abs();
    restrict(command, &IO_URING_SYSCALLS, SeccompAction::Errno(eperm))
}

/// Forbids io_uring_enter alone.
///
/// # Panics
/// If the filter cannot be written for this architecture.
pub fn forbid_use_of_io_uring(command: &mut Command) -> &mut Command {
    let eperm = Errno::PERM.raw_os_error().unsigned_abs();
    restrict(command, &IO_URING_SYSCALLS[1..2], SeccompAction::Errno(eperm))
}

/// Makes the system calls of Landlock fail with this error: `ENOSYS`, as in an old kernel, or `EPERM`, as in a container
/// that forbids them.
///
/// The process also gets `no_new_privs`, as above.
///
/// # Panics
/// If the filter cannot be written for this architecture.
pub fn forbid_landlock(command: &mut Command, error: Errno) -> &mut Command {
    let error = error.raw_os_error().unsigned_abs();
    restrict(command, &LANDLOCK_SYSCALLS, SeccompAction::Errno(error))
}

/// Makes these system calls kill the process that `command` will start, and its children. The filter of a
/// systemd unit (`SystemCallFilter=`) does that for calls that it does not know.
///
/// The process also gets `no_new_privs`, as above.
///
/// # Panics
/// If the filter cannot be written for this architecture.
pub fn kill_at<'a>(command: &'a mut Command, syscalls: &[i64]) -> &'a mut Command {
    restrict(command, syscalls, SeccompAction::KillProcess)
}

fn restrict<'a>(
    command: &'a mut Command,
    syscalls: &[i64],
    action: SeccompAction,
) -> &'a mut Command {
    let filter = filter(syscalls, action);
    let install = move || {
        apply_filter(&filter).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            // A kind alone, because other io::Errors would allocate.
            _ => io::ErrorKind::InvalidInput.into(),
        })
    };
    // SAFETY: `pre_exec` demands a closure that may run between fork and exec, when
    // other threads' locks stay locked forever. `install` makes two system calls, prctl and
    // seccomp, and neither allocates nor locks: `filter` has been built above, before the fork.
    unsafe { command.pre_exec(install) }
}

fn filter(syscalls: &[i64], action: SeccompAction) -> BpfProgram {
    let arch = ARCH.try_into().expect("an architecture that seccompiler knows");
    let rules = syscalls.iter().copied().zip(iter::repeat(Vec::new())).collect();
    SeccompFilter::new(rules, SeccompAction::Allow, action, arch)
        .and_then(TryInto::try_into)
        .expect("a filter without conditions")
}

/// io_uring_setup, io_uring_enter, io_uring_register. System calls added since Linux 5.1 have the same number
/// on every architecture except alpha.
const IO_URING_SYSCALLS: [i64; 3] = [425, 426, 427];
/// landlock_create_ruleset, landlock_add_rule, landlock_restrict_self.
const LANDLOCK_SYSCALLS: [i64; 3] = [444, 445, 446];

#[cfg(test)]
mod tests {
    use std::env;

    use io_uring::IoUring;

    use super::*;

    const IN_CHILD: &str = "TESTKIT_SECCOMP_CHILD";

    /// Runs itself again as a child under the filter, which tries io_uring.
    #[test]
    fn io_uring_is_forbidden_in_the_child_alone() {
        let is_forbidden = || match IoUring::new(8) {
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        };
        if env::var_os(IN_CHILD).is_some() {
            assert!(is_forbidden());
            return;
        }
        let before = is_forbidden();
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg("io_uring_is_forbidden_in_the_child_alone").env(IN_CHILD, "1");
        let output = forbid_io_uring(&mut command).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
        assert_eq!(is_forbidden(), before);
    }
}

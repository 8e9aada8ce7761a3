//! Finds all processes of a program. A process may leave its group and its session, and its parent may end before it.
//! Then the server is its new parent (`PR_SET_CHILD_SUBREAPER`), so all processes that programs have started are the
//! server's descendants.
//!
//! A process belongs to a program if it is the leader, descends from a process of the program, has the program's mark,
//! or holds one of its pipes. The mark is a soft limit of the resident set (`RLIMIT_RSS`), which Linux has not enforced
//! since 2.4.30. Each process inherits the mark, whatever it closes, clears or executes. `/proc/PID/limits` shows the
//! mark also for processes with more rights. So a process is only missed if it sets this limit, loses its parents, and
//! closes the pipes. Control groups are always inherited, too. But to make one, a server needs a right that it need not
//! have otherwise, and to move a process into one stops the machine's forks for milliseconds.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, pidfd_open,
    pidfd_send_signal, setrlimit, waitid,
};

/// The number of marks that were given. While the lock is held, the server itself has the last mark.
static MARKS: Mutex<u64> = Mutex::new(0);

/// A process: its number, which another process may have later, and the time at which it was started.
pub(super) type Identity = (Pid, u64);

/// The traces by which a program's processes are recognised.
#[derive(Debug)]
pub(super) struct Traces {
    /// The first process.
    pub(super) leader: Identity,
    /// The limit that only its processes have.
    mark: u64,
    /// The inodes of its pipes. The kernel counts them, so no other pipes have the same.
    pipes: Vec<u64>,
}

/// The processes of a program for which a signal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// Processes that hold a pipe. Other processes that a program has left behind are left alone.
    Holders,
    /// These processes, their descendants, and processes that hold a pipe.
    Known(Vec<Identity>),
}

/// The facts about a process in its `stat` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    is_zombie: bool,
    parent: i32,
    group: i32,
    /// In clock ticks since the machine was started.
    started: u64,
}

impl Status {
    fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads a line of `/proc/PID/stat`. The name of the program, in parentheses, may have any characters in it.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let started = fields.nth(16)?.parse().ok()?;
        Some(Self { is_zombie, parent, group, started })
    }
}

impl Traces {
    /// The traces of a program that was just started with this mark, before its leader is waited for.
    pub(super) fn new<'a>(
        leader: Pid,
        mark: u64,
        pipes: impl Iterator<Item = &'a OwnedFd>,
    ) -> Self {
        let started = Status::of(leader).map_or(0, |status| status.started);
        let inode = |pipe: &OwnedFd| rustix::fs::fstat(pipe).ok().map(|stat| stat.st_ino);
        Self { leader: (leader, started), mark, pipes: pipes.filter_map(inode).collect() }
    }

    /// Returns true if a process itself has one of the traces.
    fn fit(&self, pid: Pid, status: Status, scope: &Scope) -> bool {
        let identity = (pid, status.started);
        match scope {
            Scope::All => identity == self.leader || self.is_marked(pid) || self.is_held_by(pid),
            Scope::Holders => self.is_held_by(pid),
            Scope::Known(known) => known.contains(&identity) || self.is_held_by(pid),
        }
    }

    fn is_marked(&self, pid: Pid) -> bool {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        soft_limit(&limits) == Some(self.mark)
    }

    /// Returns true if a process holds a pipe. A process of the program with more rights than the server hides its
    /// descriptors, and counts as a holder.
    fn is_held_by(&self, pid: Pid) -> bool {
        let is_hidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(mut descriptors) => descriptors.any(|descriptor| {
                match descriptor.and_then(|descriptor| fs::read_link(descriptor.path())) {
                    Ok(target) => pipe_inode(&target).is_some_and(|it| self.pipes.contains(&it)),
                    Err(error) => is_hidden(&error) && self.is_marked(pid),
                }
            }),
            Err(error) => is_hidden(&error) && self.is_marked(pid),
        }
    }

    /// Sends a signal to the running processes of the program, and returns these processes. The leaders of other
    /// programs do not belong to it, though they are children of the same server. Unless the signal is SIGKILL, the
    /// leader and its group are left out: they have got it already, and a second signal may have another meaning.
    pub(super) fn signal(
        &self,
        signal: Signal,
        scope: &Scope,
        leaders: &HashSet<Pid>,
    ) -> Vec<Identity> {
        let own = rustix::process::getpid();
        let own_program = fs::read_link("/proc/self/exe").ok();
        let mut seen = HashSet::new();
        let mut reached = Vec::new();
        let mut rest: Vec<_> = children(own).into_iter().map(|pid| (own, pid, false)).collect();
        while let Some((parent, pid, is_parents)) = rest.pop() {
            if (leaders.contains(&pid) && pid != self.leader.0) || !seen.insert(pid) {
                continue;
            }
            // The descriptor is opened first, so the signal is for the process that is examined, also if its number is
            // used again.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let Some(status) = Status::of(pid) else { continue };
            // A program that is being started has all descriptors of the server until it executes. Its mark is its own.
            let program = || fs::read_link(format!("/proc/{pid}/exe")).ok();
            let may_be_starting = parent == own && pid != self.leader.0 && program() == own_program;
            if may_be_starting && !self.is_marked(pid) {
                continue;
            }
            let is_inherited =
                *scope != Scope::Holders && is_parents && status.parent == parent.as_raw_pid();
            let is_own = is_inherited || self.fit(pid, status, scope);
            let has_got_it = signal != Signal::KILL
                && (pid == self.leader.0 || status.group == self.leader.0.as_raw_pid());
            if is_own
                && !status.is_zombie
                && (has_got_it || pidfd_send_signal(&process, signal).is_ok())
            {
                reached.push((pid, status.started));
            }
            rest.extend(children(pid).into_iter().map(|child| (pid, child, is_own)));
        }
        reached
    }
}

/// Starts a process that has a mark of its own, and returns the mark.
///
/// The process inherits the mark from the server, so it cannot start another process without it. One process is started
/// at a time, so `start` should not wait for a disk.
pub(super) fn mark<T>(start: impl FnOnce() -> T) -> (T, u64) {
    let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
    *marks += 1;
    let maximum = getrlimit(Resource::Rss).maximum;
    let mark = maximum.unwrap_or(u64::MAX).saturating_sub(*marks);
    // The call cannot fail for a limit below the hard one.
    let _ = setrlimit(Resource::Rss, Rlimit { current: Some(mark), maximum });
    (start(), mark)
}

/// The inode of a pipe, from the target of a link of `/proc/PID/fd`.
fn pipe_inode(target: &Path) -> Option<u64> {
    target.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}

/// The soft limit of the resident set in the text of `/proc/PID/limits`.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max resident set "))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The children of all threads of a process. Some may be missing if others end meanwhile.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for thread in threads {
        let mut path: PathBuf = thread.path();
        path.push("children");
        let text = fs::read_to_string(path).unwrap_or_default();
        let numbers = text.split_ascii_whitespace().filter_map(|number| number.parse().ok());
        all.extend(numbers.filter_map(Pid::from_raw));
    }
    all
}

/// Waits for a child that has ended. Returns false if the child still runs.
pub(super) fn reap(child: Pid) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), how), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_program_cannot_look_like_its_status() {
        let rest = "S 7 3 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
        let expected = Some(Status { is_zombie: false, parent: 7, group: 3, started: 4711 });
        for name in ["a", "a b", "a) Z 1 (b", "))", ""] {
            assert_eq!(Status::parse(&format!("12 ({name}) {rest}")), expected, "{name}");
        }
        let ended = format!("12 (a) {}", rest.replace('S', "Z"));
        assert!(Status::parse(&ended).unwrap().is_zombie);
        for broken in
            ["", "12 (a", "12 (a) S", "12 (a) S x 1 1", "12 (a) S 1 x 1", "12 (a) S 7 1 1 0"]
        {
            assert_eq!(Status::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max resident set          18446744073709551613 unlimited            bytes     \n";
        assert_eq!(soft_limit(text), Some(u64::MAX - 2));
        assert_eq!(soft_limit(&text.replace("18446744073709551613", "unlimited")), None);
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn a_mark_is_inherited_and_none_is_given_twice() {
        let both = [(); 2].map(|()| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "env -i cat /proc/self/limits"]);
            let (child, number) = mark(|| command.stdout(std::process::Stdio::piped()).spawn());
            (child.unwrap(), number)
        });
        assert_ne!(both[0].1, both[1].1);
        for (child, number) in both {
            let output = child.wait_with_output().unwrap();
            assert_eq!(soft_limit(&String::from_utf8(output.stdout).unwrap()), Some(number));
        }
    }

    #[test]
    fn the_status_of_this_process_is_known() {
        let status = Status::of(rustix::process::getpid()).unwrap();
        assert!(!status.is_zombie && status.started > 0);
        assert_eq!(Pid::from_raw(status.parent), rustix::process::getppid());
    }
}

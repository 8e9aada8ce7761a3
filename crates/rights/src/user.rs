//! The user that a process becomes.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name of the user, as the operator has written it.
    pub name: String,
    /// The number of the user.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The numbers of further groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Returns true if the process has this user and this group already.
    #[must_use]
    pub fn is_own(&self) -> bool {
        (geteuid().as_raw(), getegid().as_raw()) == (self.uid, self.gid)
    }

    /// Calls a function in a thread that becomes this user, and that ends with the call. So a process of root can try what
    /// the user may do, and stays a process of root.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if the thread cannot become the user.
    pub fn call<T: Send>(&self, call: impl FnOnce() -> T + Send) -> Result<T, String> {
        let body = || {
            self.become_it().map_err(|error| self.cannot_be_become(&error))?;
            Ok(call())
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("user".to_owned()).spawn_scoped(scope, body);
            let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The error of a process that cannot become the user.
    pub(crate) fn cannot_be_become(&self, error: &io::Error) -> String {
        let name = &self.name;
        match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "cannot become the user {name}: only root can (start the server as root or as that user, or leave out `user`)"
            ),
            _ => format!("cannot become the user {name}: {error}"),
        }
    }

    /// Makes the calling thread a thread of this user, for good. Groups come first, because the user has no right to
    /// change groups.
    pub(crate) fn become_it(&self) -> io::Result<()> {
        let groups: Vec<_> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        // The user 0 could become any other user, and a saved user could be restored.
        if self.uid != 0 && set_thread_res_uid(Uid::ROOT, None, None) != Err(Errno::PERM) {
            return Err(io::Error::other("root can still be taken on"));
        }
        Ok(())
    }
}

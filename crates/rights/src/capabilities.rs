//! The capabilities of the server, and their drop.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use crate::User;

/// The right that a server with `user` keeps, because listeners of a reload may have ports below 1024.
const LOW_PORTS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;
/// The right that workers of interfaces also need: they start later, and lock the buffers of their reads.
const LOCKED_MEMORY: CapabilitySet = CapabilitySet::IPC_LOCK;
/// The further rights that root keeps when it serves interfaces. Each of these rights is needed after the start: for a
/// request, a reload, the reopening of a log, or the end.
const OF_ROOT: [CapabilitySet; 5] = [
    // Sockets of a reload may get other owners.
    CapabilitySet::CHOWN,
    // Files, directories of a reload and logs may belong to users other than root.
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    // Sockets with other owners get permissions; files of other users are read without new access times (O_NOATIME).
    CapabilitySet::FOWNER,
    // Programs (CGI) that have taken on another user's rights are stopped.
    CapabilitySet::KILL,
];

/// The capabilities that are kept if the process has them; `None` if all are kept.
fn kept(has_user: bool, has_interfaces: bool) -> Option<CapabilitySet> {
    match (has_user, has_interfaces) {
        (false, false) => None,
        (false, true) => {
            Some(OF_ROOT.into_iter().collect::<CapabilitySet>() | LOW_PORTS | LOCKED_MEMORY)
        }
        (true, true) => Some(LOW_PORTS | LOCKED_MEMORY),
        (true, false) => Some(LOW_PORTS),
    }
}

/// Gives up the rights of the start, for the calling thread and the threads that it starts later.
///
/// With a user the thread becomes that user, and executes nothing that has more rights (`no_new_privs`). Only the
/// capability for ports below 1024 stays, and with interfaces the capability to lock memory. Without a user a server
/// with interfaces keeps seven capabilities, and programs that root executes have all rights again. Ambient
/// capabilities, which a unit of systemd may give, stay if the capabilities themselves stay.
///
/// # Errors
///
/// A sentence for the operator.
pub fn drop_rights(user: Option<&User>, has_interfaces: bool) -> Result<(), String> {
    let Some(kept) = kept(user.is_some(), has_interfaces) else { return Ok(()) };
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(format!(
            "cannot drop rights: there are {threads} threads already, which is a bug"
        ));
    }
    if let Some(user) = user {
        drop_bounding(kept);
        if !user.is_own() {
            change(user).map_err(|error| user.cannot_be_become(&error))?;
        }
    }
    keep_only(kept).map_err(|error| format!("cannot drop rights: {error}"))?;
    if user.is_some() {
        set_no_new_privs(true)
            .map_err(|error| format!("cannot forbid new rights to programs: {error}"))?;
    }
    Ok(())
}

/// Becomes a user, and keeps the capabilities, which a change from user 0 would otherwise remove.
fn change(user: &User) -> io::Result<()> {
    set_keep_capabilities(true)?;
    let changed = user.become_it();
    set_keep_capabilities(false)?;
    changed
}

/// Keeps these capabilities, if the thread has them.
fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    let before = capabilities(None)?;
    let permitted = before.permitted & kept;
    // A change of the user has emptied the effective set.
    let sets =
        CapabilitySets { permitted, effective: permitted, inheritable: before.inheritable & kept };
    // A filter of system calls may forbid the call. If a unit of systemd has set the capabilities already, no call is
    // needed.
    if sets == before { Ok(()) } else { Ok(set_capabilities(None, sets)?) }
}

/// Prevents programs from getting other capabilities than these. A thread without the right to do this has
/// `no_new_privs`, which has the same effect.
fn drop_bounding(kept: CapabilitySet) {
    for capability in CapabilitySet::all() - kept {
        if capability_is_in_bounding_set(capability) == Ok(true) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_depends_on_the_user_and_on_interfaces() {
        let all = [(false, false), (false, true), (true, true), (true, false)];
        let counts =
            all.map(|(user, interfaces)| kept(user, interfaces).map(|kept| kept.iter().count()));
        assert_eq!(counts, [None, Some(7), Some(2), Some(1)]);
        for (user, interfaces) in [(true, true), (true, false)] {
            let kept = kept(user, interfaces).unwrap();
            assert!(kept.contains(LOW_PORTS) && !kept.intersects(CapabilitySet::DAC_OVERRIDE));
            assert!(kept.contains(LOCKED_MEMORY) == interfaces);
        }
    }

    #[test]
    fn nothing_is_gained_and_only_what_is_kept_stays() {
        let before = capabilities(None).unwrap();
        let kept = kept(false, true).unwrap();
        let after = std::thread::spawn(move || {
            keep_only(kept).unwrap();
            // A second call gives no capability back.
            keep_only(CapabilitySet::all()).unwrap();
            capabilities(None).unwrap()
        });
        let after = after.join().unwrap();
        assert_eq!(after.effective, before.permitted & kept);
        assert_eq!(after.permitted, before.permitted & kept);
        assert_eq!(capabilities(None).unwrap().permitted, before.permitted, "of other threads");
    }

    #[test]
    fn a_process_with_threads_is_refused() {
        let user = User { name: "nobody".to_owned(), uid: 65_534, gid: 65_534, groups: Vec::new() };
        // The test runs on a thread of its own.
        let error = drop_rights(Some(&user), false).unwrap_err();
        assert!(error.contains("threads already"), "{error}");
    }
}

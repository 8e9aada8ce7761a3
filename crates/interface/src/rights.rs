//! The rights that the server keeps when it has opened its interfaces.

use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The rights that are kept if the process has them. Something after the start needs each of them: a request, a reload,
/// the reopening of a log, or the end.
const KEPT: [CapabilitySet; 7] = [
    // Sockets of a reload may get other owners.
    CapabilitySet::CHOWN,
    // Files, directories of a reload and logs may belong to others than root.
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    // Sockets with other owners get permissions; files of other users are read without new access times (O_NOATIME).
    CapabilitySet::FOWNER,
    // Programs (CGI) that have taken on another user's rights are stopped.
    CapabilitySet::KILL,
    // Listeners of a reload may have ports below 1024.
    CapabilitySet::NET_BIND_SERVICE,
    // Workers, which start next, lock the buffers of their reads.
    CapabilitySet::IPC_LOCK,
];

/// Gives up all other rights, for the calling thread and the threads that it starts later. A program that root executes
/// has all rights again.
///
/// # Errors
///
/// Those of capset(2).
pub fn drop_rights() -> io::Result<()> {
    let kept = KEPT.into_iter().collect::<CapabilitySet>();
    let mut sets = capabilities(None)?;
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        *set &= kept;
    }
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_gained_and_only_what_is_kept_stays() {
        let before = capabilities(None).unwrap();
        let after = std::thread::spawn(|| {
            drop_rights().unwrap();
            // What is gone stays gone.
            drop_rights().unwrap();
            capabilities(None).unwrap()
        });
        let after = after.join().unwrap();
        let kept = KEPT.into_iter().collect::<CapabilitySet>();
        assert_eq!(after.effective, before.effective & kept);
        assert_eq!(after.permitted, before.permitted & kept);
        assert_eq!(capabilities(None).unwrap().permitted, before.permitted, "of other threads");
    }
}

//! Classifies the errors of open, stat, read, listing and watch by their meaning for a resource.
//!
//! Errors of sends and receives are classified by [`ring::Fault`]: there `EPERM` comes from a packet filter, here from
//! the mode of a file.
//!
//! A device that has gone may come back, so before the head it is a 503, and a broken device is a 500. A small file is
//! read before its head, so its request is refused, too.

use std::io;

use ring::Fault;
use rustix::io::Errno;

use config::Symlinks;
use session::reason::Reason;

/// The reason why a path cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing with this name can be served.
    Missing,
    /// The server's user may not read the file.
    Forbidden,
    /// The system is short of descriptors or memory.
    Shortage,
    /// The device, or the server or daemon behind the file system, has gone or does not answer. It may come back.
    Gone,
    /// The disk or the file system has failed.
    Broken,
}

impl Refusal {
    pub(super) fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error).unwrap_or(Errno::IO) {
            // XDEV: a link leads out of the root. LOOP: links lead in a circle.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::ISDIR
            | Errno::INVAL
            | Errno::ILSEQ => Self::Missing,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Shortage,
            // Errors of block devices (`blk_errors` in block/blk-core.c): NODEV, the device is offline; NOLINK, the way
            // to it; REMOTEIO, the target; TIMEDOUT. NXIO, NOMEDIUM: no medium. NFS: STALE, TIMEDOUT. SMB: HOSTDOWN,
            // SHUTDOWN. FUSE: NOTCONN, and CONNABORTED for calls under way. The others come from the network below such
            // a file system. No other cause has these errors: sockets and devices are found without an open, and a file
            // that is replaced in this moment is tried again by its inode.
            Errno::NODEV
            | Errno::NXIO
            | Errno::NOMEDIUM
            | Errno::NOLINK
            | Errno::REMOTEIO
            | Errno::TIMEDOUT
            | Errno::STALE
            | Errno::NOTCONN
            | Errno::SHUTDOWN
            | Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::CONNREFUSED
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::NETUNREACH => Self::Gone,
            _ => Self::Broken,
        }
    }

    /// The reason why a small file cannot be served after its read failed; `None` if another way of reading may
    /// succeed.
    pub(super) fn of_read(error: &io::Error) -> Option<Self> {
        match Fault::of(error) {
            Fault::Unsupported(_) | Fault::Memory(_) | Fault::Blocked | Fault::Interrupted => None,
            _ => Some(Self::of(error)).filter(|it| matches!(it, Self::Gone | Self::Broken)),
        }
    }
}

/// The reason for an error that is [`Refusal::Missing`], with these rules for symbolic links.
pub(super) fn missing(error: &io::Error, symlinks: &Symlinks) -> Reason {
    match Errno::from_io_error(error) {
        Some(Errno::NOTDIR) => Reason::NoDirectory,
        Some(Errno::XDEV) => Reason::Leaves(match symlinks {
            Symlinks::Never => "\"never\"",
            Symlinks::Beneath => "\"beneath\"",
            Symlinks::Follow => "\"follow\"",
            Symlinks::Into(_) => "{ follow = … }",
        }),
        Some(Errno::LOOP) if *symlinks == Symlinks::Never => Reason::Link,
        Some(Errno::LOOP) => Reason::LinkCircle,
        Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => Reason::Name,
        _ => Reason::NoFile,
    }
}

/// Returns true if a link is the reason for an error.
pub(super) fn is_of_link(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::XDEV | Errno::LOOP))
}

/// The reason why a directory is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwatched {
    /// The directory does not exist any more.
    Gone,
    /// The system lacks a resource; a later attempt may succeed.
    Shortage,
    /// Changes in such a directory may make no events: it is on a network file system or on FUSE, or is a symbolic
    /// link. Or the server may enter it but not read it.
    Nature,
}

impl Unwatched {
    pub(super) fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::Gone,
            Some(
                Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOSPC
                | Errno::AGAIN
                | Errno::INTR
                | Errno::CANCELED,
            )
            | None => Self::Shortage,
            Some(_) => Self::Nature,
        }
    }
}

/// The message to the operator that directories cannot be watched, with the limit to raise.
pub(super) fn shortage_of_watches(error: &io::Error) -> String {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => "raise fs.inotify.max_user_watches",
        Some(Errno::MFILE) => "raise fs.inotify.max_user_instances, or `ulimit -n`",
        _ => "memory or descriptors are short",
    };
    format!(
        "directories cannot be watched for changes: {error} ({advice}); until they can, files below them are \
         believed for a second"
    )
}

/// Returns true for `ENOENT`: nothing has this name.
pub(super) fn is_no_entry(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOENT)
}

/// Returns true for `ELOOP`: a component of the path is a symbolic link, and links may not be followed.
pub(super) fn is_link(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Returns true if the file system does not support this way of reading.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(Fault::of(error), Fault::Unsupported(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_only_a_failing_disk_makes_is_not_taken_for_a_missing_file() {
        let of = |errno: Errno| Refusal::of(&errno.into());
        assert_eq!(of(Errno::NOENT), Refusal::Missing);
        assert_eq!(of(Errno::XDEV), Refusal::Missing);
        assert_eq!(of(Errno::PERM), Refusal::Forbidden);
        assert_eq!(of(Errno::MFILE), Refusal::Shortage);
        assert_eq!(of(Errno::IO), Refusal::Broken);
        assert_eq!(Refusal::of(&io::Error::other("no errno")), Refusal::Broken);
    }

    #[test]
    fn a_name_that_leads_to_nothing_has_a_reason() {
        let of = |errno: Errno, symlinks| missing(&errno.into(), symlinks).to_string();
        let beneath = &Symlinks::Beneath;
        assert_eq!(of(Errno::NOENT, beneath), "no such file");
        assert_eq!(
            of(Errno::XDEV, beneath),
            "leaves the directory by a symbolic link (symlinks = \"beneath\")"
        );
        assert_eq!(
            of(Errno::LOOP, &Symlinks::Never),
            "leads through a symbolic link (symlinks = \"never\")"
        );
        assert_eq!(of(Errno::LOOP, beneath), "symbolic links lead in a circle");
        assert_eq!(of(Errno::NOTDIR, beneath), "a name on the way is one of a file");
        assert_eq!(of(Errno::ILSEQ, beneath), "the file system takes no such name");
    }

    #[test]
    fn watching_is_tried_again_after_a_shortage_only() {
        let of = |errno: Errno| Unwatched::of(&errno.into());
        assert_eq!(of(Errno::NOENT), Unwatched::Gone);
        assert_eq!(of(Errno::NOSPC), Unwatched::Shortage);
        assert_eq!(of(Errno::CANCELED), Unwatched::Shortage);
        assert_eq!(of(Errno::OPNOTSUPP), Unwatched::Nature);
        assert_eq!(of(Errno::LOOP), Unwatched::Nature);
    }

    #[test]
    fn a_device_that_has_gone_may_come_back_and_a_broken_one_is_broken() {
        let of = |errno: Errno| Refusal::of(&errno.into());
        for errno in [
            Errno::NODEV,
            Errno::NXIO,
            Errno::STALE,
            Errno::NOTCONN,
            Errno::CONNABORTED,
            Errno::HOSTDOWN,
            Errno::REMOTEIO,
            Errno::TIMEDOUT,
            Errno::NOLINK,
        ] {
            assert_eq!(of(errno), Refusal::Gone, "{errno:?}");
            assert_eq!(Refusal::of_read(&errno.into()), Some(Refusal::Gone), "{errno:?}");
        }
        for errno in [Errno::IO, Errno::BADMSG, Errno::UCLEAN, Errno::NODATA] {
            assert_eq!(of(errno), Refusal::Broken, "{errno:?}");
            assert_eq!(Refusal::of_read(&errno.into()), Some(Refusal::Broken), "{errno:?}");
        }
        for errno in [Errno::OPNOTSUPP, Errno::INVAL, Errno::NOMEM, Errno::AGAIN, Errno::ACCESS] {
            assert_eq!(Refusal::of_read(&errno.into()), None, "{errno:?}");
        }
    }
}

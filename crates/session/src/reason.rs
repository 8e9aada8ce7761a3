//! The reasons for errors, for the operator.
//!
//! The part that decides on an error gives the reason with the status. The reason goes with the answer to the response,
//! and from there to the access log and to standard error. The text of a reason is made only when it is written.
//! Clients never see the reason.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use http::Reject;
use http::path::PathError;

/// The reason for an error that a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `allow` and `deny` do not permit the client.
    Access,
    /// An authorizer has refused the request.
    Authorizer,
    /// The host of the request is not among the hosts of the handshake.
    Handshake,
    /// The rules for clients of TLS have changed since the handshake.
    Outdated,
    /// A request without TLS names a host that its site does not list, so there is no URL with `https`.
    UnlistedHost,
    /// The fields of proxies name different clients.
    Conflict,
    /// The client has too many connections.
    Connections,
    /// The client asks too often.
    Requests,
    /// The body is longer than `max-body`.
    BodyTooLong,
    /// The request is malformed, or exceeds a limit of the server.
    Rejected(&'static str),
    /// The target is no path.
    Target,
    /// The path of the request is malformed.
    Path(PathError),
    /// The path has too many names.
    Depth,
    /// No route of the site has the path.
    NoRoute,
    /// The route does not accept the method.
    Method,
    /// The route has a fixed status.
    Fixed,
    /// The file of redirects of the route has no line for the path.
    NoRedirect,
    /// The redirect of the route leads to the path itself.
    RedirectLoop,
    /// A name begins with a dot.
    Dotfile,
    /// The file is the source of a script or a program.
    Source,
    /// The file system has nothing by this name.
    NoFile,
    /// A name on the way is the name of a file, and not of a directory.
    NoDirectory,
    /// The directory has no index, or does not exist.
    NoIndex,
    /// The name is neither the name of a regular file nor of a directory.
    NotRegular,
    /// The way leads out of the directory through a symbolic link. The value of `symlinks` does not permit it.
    Leaves(&'static str),
    /// The way leads through a symbolic link, and `symlinks` is `never`.
    Link,
    /// Symbolic links lead in a circle.
    LinkCircle,
    /// The file system does not permit the name.
    Name,
    /// A file or a directory could not be opened.
    Unopened(Rc<Unopened>),
    /// The file was replaced again and again while it was opened.
    Replaced,
    /// The directory of the route does not exist any more.
    NoRoot,
    /// The disk does not answer.
    Disk,
    /// Too many requests wait for the disk.
    Crowded,
    /// The page with directives cannot be made.
    Page,
    /// The client has gone.
    Gone,
    /// There is no room for another request to an upstream or a program.
    NoRoom,
    /// The request has something that is not passed on.
    NotPassedOn,
    /// A request for an include would come back to the server.
    IncludeLoop,
    /// The head that the upstream would get is too long.
    HeadTooLong,
    /// A program or an upstream has handed the request over to a path that is not served, or too often.
    HandOver,
    /// A gateway has failed, and has a line in the log. The text has the name of the upstream, the application or the
    /// program, and its fault.
    Failed(Rc<str>),
    /// A gateway has answered with an error.
    Answered(Rc<str>),
    /// No program has the path.
    NoProgram,
    /// A name on the way to a program begins with a dot.
    HiddenProgram,
    /// The path leads to a directory, and not to a program.
    ProgramDirectory,
    /// A symbolic link leads out of the directory of the programs.
    ProgramOutside,
    /// The user of the server may not open the program.
    NoRights,
    /// The file is not executable, so it is no program.
    NotExecutable,
}

/// A file or a directory that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unopened {
    /// Its path in the file system.
    pub path: PathBuf,
    /// The number of the error.
    pub errno: i32,
    /// The bits of the file's mode and the number of its owner, if the file itself was found.
    pub owner: Option<(u32, u32)>,
}

impl Reason {
    /// The reason of a file or a directory that could not be opened.
    pub fn unopened(path: &Path, error: &io::Error, owner: Option<(u32, u32)>) -> Self {
        let errno = error.raw_os_error().unwrap_or_default();
        Self::Unopened(Rc::new(Unopened { path: path.to_owned(), errno, owner }))
    }

    /// The reason of a gateway that has failed.
    pub fn failed(name: &str, text: &str) -> Self {
        Self::Failed(format!("{name}: {text}").into())
    }

    /// The reason of an error status from a gateway.
    pub fn answered(name: &str, status: http::Status) -> Self {
        Self::Answered(format!("{name} answered {}", status.code()).into())
    }

    /// Returns true if the operator gets no line about the reason: the operator has a line already, or a gateway, the
    /// client or the configuration has decided.
    pub fn is_told(&self) -> bool {
        match self {
            Self::Failed(_)
            | Self::Answered(_)
            | Self::HandOver
            | Self::HeadTooLong
            | Self::RedirectLoop
            | Self::Disk
            | Self::Page
            | Self::Gone
            | Self::Fixed => true,
            // Errors other than a lack of rights are faults of the disk, which have a line of their own.
            Self::Unopened(unopened) => !is_of_rights(unopened.errno),
            _ => false,
        }
    }
}

/// Returns true for `EACCES` and `EPERM`.
fn is_of_rights(errno: i32) -> bool {
    io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::PermissionDenied
}

impl From<Reject> for Reason {
    fn from(reject: Reject) -> Self {
        Self::Rejected(reject.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Access => "`allow` and `deny` do not permit this client",
            Self::Authorizer => "the authorizer has refused it",
            Self::Handshake => "its host is not one of those of the connection's handshake",
            Self::Outdated => "the rules of its connection have changed",
            Self::UnlistedHost => "the site lists no host to which `https` could redirect",
            Self::Conflict => "Forwarded and X-Forwarded-For name different clients",
            Self::Connections => "the client has more connections than `connections-per-ip`",
            Self::Requests => "the client asks more often than `requests-per-ip`",
            Self::BodyTooLong => "its body is longer than `max-body`",
            Self::Rejected(reason) => reason,
            Self::Target => "its target is no path",
            Self::Path(error) => match error {
                PathError::NotAbsolute => "its path does not begin with a slash",
                PathError::AboveRoot => "its path climbs above the root",
                PathError::BadPercent => "a `%` of its path is not followed by two digits",
                PathError::Nul => "its path has a `%00`",
                PathError::EncodedSlash => "its path has a `%2F`, and no file name has a slash",
                PathError::NameTooLong => "a name of its path is too long for a file",
                PathError::PathTooLong => "its path is too long",
            },
            Self::Depth => "its path has too many names",
            Self::NoRoute => "no route of the site has this path",
            Self::Method => "the route does not take this method",
            Self::Fixed => "the route has this status",
            Self::NoRedirect => "the file of `redirects` has no line for this path",
            Self::RedirectLoop => "the redirect leads to this path itself",
            Self::Dotfile => "a name begins with a dot (dotfiles = false)",
            Self::Source => "the file is the source of a script or a program, which is never sent",
            Self::NoFile => "no such file",
            Self::NoDirectory => "a name on the way is one of a file",
            Self::NoIndex => "no index in the directory (listing = false), or no such directory",
            Self::NotRegular => "neither a regular file nor a directory",
            Self::Leaves(value) => {
                return write!(f, "leaves the directory by a symbolic link (symlinks = {value})");
            }
            Self::Link => "leads through a symbolic link (symlinks = \"never\")",
            Self::LinkCircle => "symbolic links lead in a circle",
            Self::Name => "the file system takes no such name",
            Self::Unopened(unopened) => return unopened.fmt(f),
            Self::Replaced => "the file is replaced faster than it can be opened",
            Self::NoRoot => "the directory of the route does not exist any more",
            Self::Disk => "the disk does not answer",
            Self::Crowded => "too many requests wait for the disk, or have files open",
            Self::Page => "its page with directives cannot be made",
            Self::Gone => "the client has gone",
            Self::NoRoom => "there is no room for more requests to upstreams or programs",
            Self::NotPassedOn => "it has something that is not passed on",
            Self::IncludeLoop => "an include has led back to this server",
            Self::HeadTooLong => "the head for the upstream is too long",
            Self::HandOver => "it was handed over to something that is not served, or too often",
            Self::Failed(text) | Self::Answered(text) => text,
            Self::NoProgram => "no program has this path",
            Self::HiddenProgram => "no program is reached by a name that begins with a dot",
            Self::ProgramDirectory => "a directory, and no program in it is named",
            Self::ProgramOutside => "a symbolic link leads out of the directory of the programs",
            Self::NoRights => "the user of the server may not open the program",
            Self::NotExecutable => "the file is not executable (chmod +x makes it a program)",
        })
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, errno, owner } = self;
        let error = config::errno::words(&io::Error::from_raw_os_error(*errno));
        write!(f, "cannot open {}: {error}", path.display())?;
        match owner {
            Some((mode, 0)) => write!(f, " (mode {:04o}, owner root)", mode & 0o7777),
            Some((mode, owner)) => write!(f, " (mode {:04o}, owner {owner})", mode & 0o7777),
            None if is_of_rights(*errno) => {
                f.write_str(" (a directory on the way may not be searched)")
            }
            None => Ok(()),
        }
    }
}

// An answer keeps a reason, and many answers may wait.
const _: () = assert!(size_of::<Reason>() <= 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_may_not_be_opened_is_named_with_its_mode_and_its_owner() {
        let denied = io::Error::from_raw_os_error(13);
        let of = |owner| Reason::unopened(Path::new("/srv/www/a"), &denied, owner).to_string();
        let text = "cannot open /srv/www/a: permission denied";
        assert_eq!(of(Some((0o10_0600, 0))), format!("{text} (mode 0600, owner root)"));
        assert_eq!(of(Some((0o10_4640, 33))), format!("{text} (mode 4640, owner 33)"));
        assert_eq!(of(None), format!("{text} (a directory on the way may not be searched)"));
        let broken = io::Error::from_raw_os_error(5);
        let broken = Reason::unopened(Path::new("/srv/www/a"), &broken, None);
        assert_eq!(broken.to_string(), "cannot open /srv/www/a: input/output error");
        assert!(broken.is_told() && !Reason::unopened(Path::new("/a"), &denied, None).is_told());
    }

    #[test]
    fn what_a_gateway_did_is_named_with_the_gateway() {
        let failed = Reason::failed("http://127.0.0.1:1", "connection refused");
        assert_eq!(failed.to_string(), "http://127.0.0.1:1: connection refused");
        let answered = Reason::answered("http://127.0.0.1:1", http::Status::NotFound);
        assert_eq!(answered.to_string(), "http://127.0.0.1:1 answered 404");
        assert!(failed.is_told() && answered.is_told());
    }
}

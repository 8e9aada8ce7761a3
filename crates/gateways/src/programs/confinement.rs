//! The access to files that programs of a confined server have: what most programs need, their own directory, and what
//! `read` and `write` of `cgi` say.
//!
//! A thread takes on the layer, starts the program and ends. The program inherits the layer, and nothing runs between
//! fork and exec. All that programs may use, the server must be allowed to use, too, because layers only take away.

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use rights::{Access, Layer, is_confined};

use config::Cgi;

/// The directories of programs and libraries.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32"];
/// The files with which the loader finds libraries.
const LOADER: [&str; 4] =
    ["/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload"];

/// The access that the programs of a route have, in addition to that to their own directory.
pub fn access(config: &Cgi) -> impl Iterator<Item = (&Path, Access)> {
    let execute = Access::READ | Access::EXECUTE;
    let write = Access::READ | Access::WRITE | Access::MAKE | Access::CHANGE;
    let of = |paths: &'static [&'static str], access| {
        paths.iter().map(move |path| (Path::new(*path), access))
    };
    let read = config.read.iter().map(move |path| (path.as_path(), execute));
    let written = config.write.iter().map(move |path| (path.as_path(), write));
    of(&SYSTEM, execute)
        .chain(of(&LOADER, Access::READ))
        .chain(of(&["/dev/null"], Access::READ | Access::WRITE))
        .chain(read)
        .chain(written)
}

/// Calls `start`, which starts a program of the directory `root`. If the server is confined, the program gets a layer of
/// its own.
///
/// # Errors
///
/// Those of landlock(7), and of starting a thread.
pub(super) fn within<T: Send>(
    root: BorrowedFd<'_>,
    config: &Cgi,
    start: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    if !is_confined() {
        return Ok(start());
    }
    let mut layer = Layer::new(true)?;
    layer.allow(root, Access::READ | Access::EXECUTE)?;
    for (path, access) in access(config) {
        // Not every system has all of these paths. What is missing is missing for the program, too.
        let _ = layer.allow_path(path, access);
    }
    thread::scope(|scope| {
        let body = || {
            layer.enforce()?;
            Ok(start())
        };
        let thread = thread::Builder::new().name("cgi-start".to_owned());
        thread.spawn_scoped(scope, body)?.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_not_executed_unless_both_are_said() {
        let both = ["/srv/git".into(), "/var/lib/git".into()];
        let config =
            Cgi { read: both[..1].to_vec(), write: both.to_vec(), ..Cgi::new("/srv/cgi".into()) };
        let mut rules = rights::Rules::default();
        access(&config).for_each(|(path, access)| rules.allow(path, access));
        for (path, access, is_allowed) in [
            ("/usr/bin/git", Access::EXECUTE, true),
            ("/usr/bin/git", Access::WRITE, false),
            ("/etc/ld.so.cache", Access::READ, true),
            ("/etc/passwd", Access::READ, false),
            ("/dev/null", Access::WRITE, true),
            ("/dev/sda", Access::READ, false),
            ("/srv/git/hooks/update", Access::EXECUTE | Access::CHANGE, true),
            ("/var/lib/git/a", Access::READ | Access::WRITE | Access::MAKE, true),
            ("/var/lib/git/a", Access::EXECUTE, false),
            ("/proc/self/environ", Access::READ, false),
        ] {
            assert_eq!(rules.allows(Path::new(path), access), is_allowed, "{path}");
        }
    }
}

//! Layers of Landlock, which restrict the access of threads to files (landlock(7)).
//!
//! A thread keeps its layers for good. The threads and the programs that it starts have the same layers. Access to a
//! file needs the consent of each layer. A rule names an inode: a directory that takes the path of another directory
//! has no rule. Rules do not restrict open descriptors, `stat(2)` and similar calls, and connections to Unix sockets.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use crate::{Access, Rules, Support};

/// The version of the interface whose kinds of access to files are restricted. The newest of these kinds came with
/// Linux 6.10. Linux 7.1 could also restrict connections to Unix sockets.
const VERSION: ABI = ABI::V8;

/// True once the process has a layer.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Returns true if [`confine_process`] has confined the process. Each program that a confined server starts gets a
/// layer of its own.
#[must_use]
pub fn is_confined() -> bool {
    // The value is written before other threads start.
    IS_CONFINED.load(Ordering::Relaxed)
}

/// A process that is confined as far as the kernel permits.
#[derive(Debug)]
pub struct Confined {
    /// The version of Landlock that the kernel has.
    pub support: Support,
    /// The files below `/proc` that have a rule. While no descriptor of such a file is open, the kernel may make the
    /// file anew, and the new file would have no rule.
    _pinned: Vec<OwnedFd>,
}

/// Restricts the calling thread, and the threads and programs that it starts later, to these rules. A path that cannot
/// be opened has no rule: its use fails later, with a reason.
///
/// # Errors
///
/// Those of the calls in landlock(7). A kernel without Landlock is no error.
pub fn confine_process(rules: &Rules) -> io::Result<Confined> {
    let mut layer = Layer::new(false)?;
    let mut pinned = Vec::new();
    for (path, access) in rules.iter() {
        let Ok(file) = open(path) else { continue };
        layer.allow(&file, access)?;
        if path.starts_with("/proc") {
            pinned.push(file);
        }
    }
    let support = layer.enforce()?;
    IS_CONFINED.store(support.is_some(), Ordering::Relaxed);
    Ok(Confined { support, _pinned: pinned })
}

/// A layer that no thread has yet.
#[derive(Debug)]
pub struct Layer(RulesetCreated);

impl Layer {
    /// Makes a layer that allows nothing. With `keeps_signals`, a program cannot send signals to other processes.
    ///
    /// # Errors
    ///
    /// Those of `landlock_create_ruleset(2)`. A kernel without Landlock is no error.
    pub fn new(keeps_signals: bool) -> io::Result<Self> {
        let ruleset = Ruleset::default().handle_access(AccessFs::from_all(VERSION));
        let ruleset = ruleset.map_err(error_of)?;
        let ruleset =
            if keeps_signals { ruleset.scope(Scope::Signal).map_err(error_of)? } else { ruleset };
        ruleset.create().map(Self).map_err(error_of)
    }

    /// Allows this access to the file at a path, and to all files below it.
    ///
    /// # Errors
    ///
    /// Those of `openat(2)` and of `landlock_add_rule(2)`.
    pub fn allow_path(&mut self, path: &Path, access: Access) -> io::Result<()> {
        self.allow(open(path)?, access)
    }

    /// Allows this access to a file that is open, and to all files below it.
    ///
    /// # Errors
    ///
    /// Those of `landlock_add_rule(2)`.
    pub fn allow(&mut self, file: impl AsFd, access: Access) -> io::Result<()> {
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        let is_directory = kind == FileType::Directory;
        let all = if is_directory { BitFlags::all() } else { AccessFs::from_file(VERSION) };
        let rights = rights_of(access) & all;
        if rights.is_empty() {
            return Ok(());
        }
        (&mut self.0).add_rule(PathBeneath::new(file, rights)).map(drop).map_err(error_of)
    }

    /// Gives the layer to the calling thread.
    ///
    /// # Errors
    ///
    /// Those of `landlock_restrict_self(2)`; a thread has at most 16 layers.
    pub fn enforce(self) -> io::Result<Support> {
        let status = self.0.restrict_self().map_err(error_of)?;
        Ok(Support::of(match status.landlock {
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
            LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
        }))
    }
}

/// Opens a file, only to make a rule for it.
fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn rights_of(access: Access) -> BitFlags<AccessFs> {
    let all: [(Access, BitFlags<AccessFs>); 6] = [
        (Access::READ, AccessFs::ReadFile | AccessFs::ReadDir),
        (Access::EXECUTE, AccessFs::Execute.into()),
        (Access::WRITE, AccessFs::WriteFile | AccessFs::Truncate),
        (Access::MAKE, AccessFs::MakeReg | AccessFs::RemoveFile),
        (Access::SOCKETS, AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::ReadDir),
        (
            Access::CHANGE,
            AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::MakeSym
                | AccessFs::MakeSock
                | AccessFs::MakeFifo
                | AccessFs::RemoveFile
                | AccessFs::RemoveDir
                | AccessFs::Refer,
        ),
    ];
    let allowed = all.into_iter().filter(|(one, _)| access.contains(*one));
    allowed.fold(BitFlags::empty(), |sum, (_, rights)| sum | rights)
}

/// The system error behind an error of the library.
fn error_of(error: RulesetError) -> io::Error {
    let mut source: Option<&(dyn core::error::Error + 'static)> = Some(&error);
    while let Some(inner) = source {
        let system = inner.downcast_ref::<io::Error>();
        if let Some(number) = system.and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(number);
        }
        source = inner.source();
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// Calls `act` in a thread with a layer; `None` if this kernel has no Landlock.
    fn within<T: Send>(layer: Layer, act: impl FnOnce() -> T + Send) -> Option<T> {
        let result = thread::scope(|scope| {
            let body = || layer.enforce().unwrap().is_some().then(act);
            scope.spawn(body).join().unwrap()
        });
        if result.is_none() {
            eprintln!("skipped: this kernel has no Landlock");
        }
        result
    }

    #[test]
    fn a_layer_allows_what_its_rules_say_and_its_thread_alone_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["read", "write", "none"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("a"), "text").unwrap();
        }
        let mut layer = Layer::new(true).unwrap();
        layer.allow_path(&at("read"), Access::READ).unwrap();
        layer.allow_path(&at("write"), Access::WRITE | Access::MAKE).unwrap();
        // A rule for a file allows no names to be made.
        layer.allow_path(&at("none/a"), Access::MAKE).unwrap();
        let is_denied = |result: io::Result<()>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let found = within(layer, || {
            let read = |name: &str| fs::read(at(name)).map(drop);
            [
                is_denied(read("read/a")),
                is_denied(fs::read_dir(at("read")).map(drop)),
                is_denied(fs::write(at("read/a"), "other")),
                is_denied(read("write/a")),
                is_denied(fs::write(at("write/a"), "other")),
                is_denied(fs::write(at("write/b"), "new")),
                is_denied(fs::create_dir(at("write/c"))),
                is_denied(read("none/a")),
                is_denied(read("/etc/passwd")),
            ]
        });
        let Some(found) = found else { return };
        assert_eq!(found, [false, false, true, true, false, false, true, true, true]);
        assert!(fs::read(at("none/a")).is_ok(), "the other threads are as before");
    }

    #[test]
    fn a_path_without_a_file_is_an_error() {
        let mut layer = Layer::new(false).unwrap();
        let error = layer.allow_path(Path::new("/nonexistent"), Access::READ).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

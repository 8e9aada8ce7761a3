//! The machine on which a configuration is used, as the files of the configuration need it.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::{activation, descriptors};
use config::Address;
use config::file::Environment;

/// The file system and the cores of this machine.
#[derive(Debug)]
pub(crate) struct Machine {
    working_directory: PathBuf,
}

impl Machine {
    /// Takes the working directory of the process.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if there is none any more.
    pub(crate) fn new() -> Result<Self, String> {
        let found = std::env::current_dir();
        let working_directory =
            found.map_err(|error| format!("cannot find the working directory: {error}"))?;
        Ok(Self { working_directory })
    }

    /// The number of workers by default: one per core, if there are descriptors for them.
    pub(crate) fn workers() -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        descriptors::workers(rights::descriptors::limit(), cores)
    }
}

impl Environment for Machine {
    fn working_directory(&self) -> &Path {
        &self.working_directory
    }

    fn threads(&self) -> usize {
        Self::workers()
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn passed(&self) -> &[(String, Address)] {
        activation::names()
    }

    fn canonical(&mut self, path: &Path) -> PathBuf {
        // A pipe, for example, has no canonical path and only one name.
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        if is_unnamed_pipe(path) {
            // A shell makes such a pipe for `<(command)`: it has a writer, or an end.
            read_to_end(File::open(path)?, bytes_max)
        } else {
            read_regular(path, bytes_max)
        }
    }

    fn list(&mut self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in directory.read_dir()? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

/// Reads a regular file that a configuration names, or that is a configuration.
///
/// # Errors
///
/// Those of [`open_regular`], and [`FileTooLarge`](io::ErrorKind::FileTooLarge) if it has more than `bytes_max` bytes.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_to_end(open_regular(path)?.0, bytes_max)
}

/// Opens a regular file for reading, and looks at it.
///
/// # Errors
///
/// Those of the system, and a sentence for the operator if it is not a regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Without the flag, an open of a FIFO would wait for a writer. The flag has no effect on files.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if data.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !data.is_file() {
        // A device may have no end.
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((file, data))
}

/// Returns true if a path leads to a pipe that has no name in a file system.
fn is_unnamed_pipe(path: &Path) -> bool {
    let is_fifo = path.metadata().is_ok_and(|data| data.file_type().is_fifo());
    is_fifo && path.canonicalize().is_err()
}

fn read_to_end(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that a file is too large.
    let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

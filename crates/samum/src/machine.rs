//! The machine on which a configuration is used, as the files of the configuration need it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::{activation, descriptors};
use config::Address;
use config::file::Environment;
use handler::regular_file::{read_regular, read_to_end};

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

/// Returns true if a path leads to a pipe that has no name in a file system.
fn is_unnamed_pipe(path: &Path) -> bool {
    let is_fifo = path.metadata().is_ok_and(|data| data.file_type().is_fifo());
    is_fifo && path.canonicalize().is_err()
}

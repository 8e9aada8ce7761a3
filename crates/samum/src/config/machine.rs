//! The machine on which a configuration is used, as its files need it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::file::Environment;

/// The file system and the cores of this machine.
#[derive(Debug)]
pub struct Machine {
    working_directory: PathBuf,
}

impl Machine {
    /// Takes the working directory of the process.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if there is none any more.
    pub fn new() -> Result<Self, String> {
        let found = std::env::current_dir();
        let working_directory =
            found.map_err(|error| format!("cannot find the working directory: {error}"))?;
        Ok(Self { working_directory })
    }

    /// The number of workers by default: one per core.
    #[must_use]
    pub fn cores() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

impl Environment for Machine {
    fn working_directory(&self) -> &Path {
        &self.working_directory
    }

    fn threads(&self) -> usize {
        Self::cores()
    }

    fn canonical(&mut self, path: &Path) -> PathBuf {
        // A pipe, for example, has no canonical path, and one name only.
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more tells a file that is too large.
        let read = File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if read as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }

    fn list(&mut self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in directory.read_dir()? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

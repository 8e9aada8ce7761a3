//! Regular files that a configuration names: opened without waiting, and read up to a limit.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file that a configuration names, or that is a configuration.
///
/// # Errors
///
/// Those of [`open_regular`], and [`FileTooLarge`](io::ErrorKind::FileTooLarge) if it has more than `bytes_max` bytes.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_to_end(open_regular(path)?.0, bytes_max)
}

/// Opens a regular file for reading, and looks at it.
///
/// # Errors
///
/// Those of the system, and a sentence for the operator if it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
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

/// Reads what is left of an open file.
///
/// # Errors
///
/// Those of the system, and [`FileTooLarge`](io::ErrorKind::FileTooLarge) if it has more than `bytes_max` bytes.
pub fn read_to_end(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that a file is too large.
    let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

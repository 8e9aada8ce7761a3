//! The files of certificates and keys: their bytes, and the marks by which a change is noticed.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use config::errno::words;
use handler::regular_file::open_regular;

/// The marks of a file, seen through symbolic links: if a file is written, or another one takes its path, a mark changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// The same. No program can set this time back.
    changed: (i64, i64),
}

impl Marks {
    /// Looks at a path; `None` if there is nothing, or nothing that can be looked at.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let data = path.metadata().ok()?;
        Some(Self {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// The content of a file, which may be a key.
pub(super) struct Content {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// The type and the permissions of the file, as in `stat(2)`.
    pub(super) mode: u32,
}

/// Reads a file. At most `bytes_max` bytes and one more are read: that one shows that the file is too large.
///
/// # Errors
///
/// A sentence for the operator.
pub(super) fn read(path: &Path, bytes_max: usize) -> Result<Content, String> {
    try_read(path, bytes_max).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            io::ErrorKind::NotFound => format!("cannot read {shown}: there is no such file"),
            io::ErrorKind::PermissionDenied => format!(
                "cannot read {shown}: permission denied (the user of the server must be able to read it and to enter the \
                 directories above: by its group, by `setfacl -m u:USER:r`, or by a copy that a deploy hook makes)"
            ),
            _ => format!("cannot read {shown}: {}", words(&error)),
        }
    })
}

fn try_read(path: &Path, bytes_max: usize) -> io::Result<Content> {
    let (mut file, data) = open_regular(path)?;
    let expected = usize::try_from(data.len()).unwrap_or(usize::MAX).min(bytes_max);
    let mut bytes = Zeroizing::new(vec![0; expected + 1]);
    let mut read = 0;
    loop {
        match file.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if read > bytes_max {
            break;
        }
        if read == bytes.len() {
            // The file grows. A vector that grows by itself would leave bytes of a key behind.
            let mut larger = Zeroizing::new(vec![0; read.saturating_mul(2).min(bytes_max + 1)]);
            larger[..read].copy_from_slice(&bytes);
            bytes = larger;
        }
    }
    bytes.truncate(read);
    Ok(Content { bytes, mode: data.mode() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_one_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for (len, bytes_max, expected) in [(0, 4, 0), (3, 4, 3), (4, 4, 4), (5, 4, 5), (9, 4, 5)] {
            fs::write(&path, vec![b'x'; len]).unwrap();
            let read = read(&path, bytes_max).unwrap();
            assert_eq!(*read.bytes, vec![b'x'; expected], "{len} bytes of at most {bytes_max}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read(&path, 9).unwrap().mode & 0o7777, 0o640);
    }

    #[test]
    fn a_file_that_says_no_length_is_read_as_it_grows() {
        // The kernel makes this one while it is read, and says 0 bytes.
        let path = Path::new("/proc/self/status");
        assert_eq!(path.metadata().unwrap().len(), 0);
        let content = read(path, 1 << 20).unwrap();
        assert!(content.bytes.starts_with(b"Name:"));
        assert!(content.bytes.ends_with(b"\n"), "to its end");
        assert_eq!(read(path, 100).unwrap().bytes.len(), 101);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let directory = tempfile::tempdir().unwrap();
        for (path, why) in [
            (directory.path().join("none"), "there is no such file"),
            (directory.path().to_owned(), "is a directory"),
            ("/dev/zero".into(), "it is not a regular file"),
        ] {
            let error = read(&path, 100).err().unwrap();
            assert_eq!(error, format!("cannot read {}: {why}", path.display()));
        }
    }

    #[test]
    fn each_way_to_change_a_file_changes_its_marks() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["1", "2"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("key"), "same").unwrap();
        }
        std::os::unix::fs::symlink("1", at("live")).unwrap();
        let path = at("live/key");
        let mut before = Marks::of(&path);
        assert!(before.is_some());
        assert_eq!(before, Marks::of(&path));
        let mut is_changed = |how: &str| {
            let now = Marks::of(&path);
            assert_ne!(before, now, "{how}");
            before = now;
        };
        // A link above the file is swapped.
        std::os::unix::fs::symlink("2", at("next")).unwrap();
        fs::rename(at("next"), at("live")).unwrap();
        is_changed("a link");
        fs::write(at("new"), "same").unwrap();
        fs::rename(at("new"), &path).unwrap();
        is_changed("a rename");
        fs::write(&path, "other").unwrap();
        is_changed("a write");
        fs::remove_file(&path).unwrap();
        is_changed("a removal");
        assert_eq!(Marks::of(&path), None);
    }
}

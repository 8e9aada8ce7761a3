//! The files for connections to upstreams: authorities, and the pair that is shown to servers.
//!
//! The authorities of the system are in one file on all common distributions. It is read as the other files are: with a limit,
//! as the user of the server, and inside of its confinement. So no other crate looks for it.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};

use tls::{ClientSettings, FILE_BYTES_MAX, ROOTS_BYTES_MAX, Roots, Source};

use super::super::files;
use super::{Item, Problem, Read, Value};
use config::UpstreamTls;

/// The file of the system's authorities: of Debian, Fedora, SUSE and Alpine.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Files that several upstreams may have, and what was found in them.
#[derive(Default)]
pub(in crate::certificates) struct Files {
    roots: HashMap<PathBuf, Option<Roots>>,
    pub(in crate::certificates) problems: Vec<Problem>,
}

/// Returns the file of the system's authorities: the one that the variable `SSL_CERT_FILE` names, as for OpenSSL and
/// curl, or the one of the distribution.
pub(crate) fn system_roots() -> PathBuf {
    if let Some(path) = env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let found = SYSTEM_ROOTS.iter().find(|path| Path::new(path).exists());
    found.unwrap_or(&SYSTEM_ROOTS[0]).into()
}

/// Reads the files of some keys again.
pub(super) fn read_again(keys: &UpstreamTls) -> Result<Read, Problem> {
    let mut files = Files::default();
    files.read(keys).ok_or_else(|| files.problems.swap_remove(0))
}

/// Returns true if an authority with this name stands in the system's file. A file that cannot be read has none.
pub(super) fn system_has(name: &str) -> bool {
    read_roots(&system_roots(), false).is_ok_and(|roots| roots.has_authority(name))
}

impl Files {
    /// Reads the files of some keys; `None` after a problem.
    pub(in crate::certificates) fn read(&mut self, keys: &UpstreamTls) -> Option<Read> {
        // A file that is replaced meanwhile has other marks at the next look, and is read again.
        let marks = Item::Servers(keys.clone()).marks();
        let before = self.problems.len();
        let roots = if keys.verify { self.roots(keys.ca.as_deref()) } else { None };
        let item = keys.pair.as_ref().map(|pair| Item::Pair(pair.clone()));
        let read = item.and_then(|item| self.note(item.read(), item.paths().next()));
        let pair = read.as_ref().and_then(Read::pair).cloned();
        let open_key = read.as_ref().and_then(Read::open_key).cloned();
        if self.problems.len() > before {
            return None;
        }
        let settings = ClientSettings::new(roots.as_ref(), pair.as_deref());
        let settings = self.note(settings.map_err(Problem::from), None)?;
        Some(Read::new(Value::Servers { settings, pair }, marks, open_key))
    }

    /// Reads a file of authorities, once.
    fn roots(&mut self, ca: Option<&Path>) -> Option<Roots> {
        let path = ca.map_or_else(system_roots, Path::to_owned);
        if let Some(read) = self.roots.get(&path) {
            return read.clone();
        }
        let read = self.note(read_roots(&path, ca.is_some()), ca);
        self.roots.insert(path, read.clone());
        read
    }

    /// Notes a problem, for which `file` is to blame if no other is.
    fn note<T>(&mut self, read: Result<T, Problem>, file: Option<&Path>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(Problem { path, text }) => {
                let path = path.or_else(|| file.map(Path::to_owned));
                self.problems.push(Problem { path, text });
                None
            }
        }
    }
}

fn read_roots(path: &Path, is_own: bool) -> Result<Roots, Problem> {
    let bytes_max = if is_own { FILE_BYTES_MAX } else { ROOTS_BYTES_MAX };
    let read = files::read(path, bytes_max).map_err(|text| Problem {
        path: Some(path.to_owned()),
        text: match is_own {
            true => text,
            false => format!(
                "{text}; it would have the authorities of the system, by which servers with `https://` are verified: \
                 install the package `ca-certificates`, or name a file by `upstream-tls = {{ ca = … }}`"
            ),
        },
    });
    let content = read?;
    let source = Source { path, bytes: &content.bytes };
    let roots = if is_own { Roots::read(source) } else { Roots::read_system(source) };
    Ok(roots?)
}

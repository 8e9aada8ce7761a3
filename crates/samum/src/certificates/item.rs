//! Files that are read together: those of a pair, those about the certificates of clients, or those for connections to
//! upstreams.

pub(super) mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tls::check::{Warning, check_clients, check_key_mode, check_pair, check_times};
use tls::{CRL_BYTES_MAX, ClientSettings, Clients, FILE_BYTES_MAX, Fault, Pair, Source};

use super::files::{self, Content, Marks};
use super::text;
use config::{TlsClients, TlsFiles, UpstreamTls};

/// Files that are read together. Sites may share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Pair(TlsFiles),
    Clients(TlsClients),
    /// Those of `upstream-tls`. The file of the system's authorities is none of them.
    Servers(UpstreamTls),
}

/// The content of an item, which can be used.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Pair(Arc<Pair>),
    Clients(Clients),
    Servers {
        settings: ClientSettings,
        /// The pair that is shown to servers.
        pair: Option<Arc<Pair>>,
    },
}

/// An item that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) value: Value,
    /// The marks of its files, from before they were read.
    pub(super) marks: Vec<Option<Marks>>,
    /// `Some` if others can read the key.
    open_key: Option<Warning>,
    /// `Some` if the files have a pair that is valid from this time on, in seconds since 1970, and `value` is the one before.
    pub(super) valid_from: Option<i64>,
}

/// The reason why an item cannot be used.
#[derive(Debug)]
pub(super) struct Problem {
    /// The file to blame.
    pub(super) path: Option<PathBuf>,
    /// A sentence for the operator, with the path.
    pub(super) text: String,
}

impl Item {
    /// The files, each once.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let all = match self {
            Self::Pair(TlsFiles { certificate, key }) => [Some(certificate), key.as_ref(), None],
            Self::Clients(TlsClients { ca, crl, .. }) => [Some(ca), crl.as_ref(), None],
            Self::Servers(UpstreamTls { ca, pair, .. }) => {
                let key = pair.as_ref().and_then(|pair| pair.key.as_ref());
                [ca.as_ref(), pair.as_ref().map(|pair| &pair.certificate), key]
            }
        };
        all.into_iter().flatten().map(PathBuf::as_path)
    }

    /// The marks of the files now.
    pub(super) fn marks(&self) -> Vec<Option<Marks>> {
        self.paths().map(Marks::of).collect()
    }

    /// Reads the files.
    pub(super) fn read(&self) -> Result<Read, Problem> {
        // A file that is replaced meanwhile has other marks at the next look, and is read again.
        let marks = self.marks();
        let (value, open_key) = match self {
            Self::Pair(TlsFiles { certificate, key }) => {
                let content = read(certificate, FILE_BYTES_MAX)?;
                let content_of_key =
                    key.as_deref().map(|key| read(key, FILE_BYTES_MAX)).transpose()?;
                let source_of_key = key.as_deref().zip(content_of_key.as_ref());
                let source_of_key = source_of_key.map(|(path, content)| source(path, content));
                let pair = Pair::read(source(certificate, &content), source_of_key)?;
                let mode = content_of_key.as_ref().unwrap_or(&content).mode;
                let open_key = check_key_mode(key.as_ref().unwrap_or(certificate), mode);
                (Value::Pair(Arc::new(pair)), open_key)
            }
            Self::Clients(TlsClients { ca, require, crl }) => {
                let content = read(ca, FILE_BYTES_MAX)?;
                let lists = crl.as_deref().map(|crl| read(crl, CRL_BYTES_MAX)).transpose()?;
                let lists = crl.as_deref().zip(lists.as_ref());
                let lists = lists.map(|(path, content)| source(path, content));
                let clients = Clients::read(source(ca, &content), *require, lists)?;
                (Value::Clients(clients), None)
            }
            Self::Servers(keys) => return servers::read_again(keys),
        };
        Ok(Read::new(value, marks, open_key))
    }
}

impl Read {
    /// A value that was read from files with these marks.
    pub(super) const fn new(
        value: Value,
        marks: Vec<Option<Marks>>,
        open_key: Option<Warning>,
    ) -> Self {
        Self { value, marks, open_key, valid_from: None }
    }

    /// The settings of connections to upstreams, if it is about them.
    pub(super) const fn settings(&self) -> Option<&ClientSettings> {
        match &self.value {
            Value::Servers { settings, .. } => Some(settings),
            Value::Pair(_) | Value::Clients(_) => None,
        }
    }

    /// A warning if others can read the key.
    pub(super) const fn open_key(&self) -> Option<&Warning> {
        self.open_key.as_ref()
    }

    /// A certificate that takes the place of one that was not issued yet. `marks` are those of the missing file.
    pub(super) const fn standing_in(pair: Arc<Pair>, marks: Vec<Option<Marks>>) -> Self {
        Self { value: Value::Pair(pair), marks, open_key: None, valid_from: None }
    }

    /// The pair, if it is one.
    pub(super) const fn pair(&self) -> Option<&Arc<Pair>> {
        match &self.value {
            Value::Pair(pair) => Some(pair),
            Value::Clients(_) => None,
            Value::Servers { pair, .. } => pair.as_ref(),
        }
    }

    /// The certificates of clients, if it is about them.
    pub(super) const fn clients(&self) -> Option<&Clients> {
        match &self.value {
            Value::Clients(clients) => Some(clients),
            Value::Pair(_) | Value::Servers { .. } => None,
        }
    }

    /// The reason against a pair that is not valid now, and the time from which it is, if that comes. `now` is in seconds
    /// since 1970.
    pub(super) fn untimely(&self, now: i64) -> Option<(String, Option<i64>)> {
        let pair = self.pair()?;
        if pair.not_after() < now {
            return Some((text::expired(pair), None));
        }
        (now < pair.not_before()).then(|| (text::not_valid_yet(pair), Some(pair.not_before())))
    }

    /// Warnings for the operator about it. `now` is in seconds since 1970.
    pub(super) fn warnings(&self, now: i64) -> Vec<Warning> {
        let mut warnings = match &self.value {
            Value::Pair(pair) => {
                let mut warnings = check_pair(pair, now);
                warnings.retain(|warning| !is_needless(warning));
                warnings
            }
            Value::Clients(clients) => check_clients(clients, now),
            // Servers look only at the times of a pair.
            Value::Servers { pair, .. } => {
                pair.as_ref().map(|pair| check_times(pair, now)).unwrap_or_default()
            }
        };
        warnings.extend(self.open_key.clone());
        warnings
    }
}

/// Returns true if a warning is about a missing issuer that the system trusts. Then the issuer is a root, probably that of a
/// private authority, and its clients have it. Intermediate certificates do not stand there.
fn is_needless(warning: &Warning) -> bool {
    matches!(warning, Warning::NoIntermediate { issuer, .. } if servers::system_has(issuer))
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self { path: fault.path().map(Path::to_owned), text: fault.to_string() }
    }
}

fn read(path: &Path, bytes_max: usize) -> Result<Content, Problem> {
    files::read(path, bytes_max).map_err(|text| Problem { path: Some(path.to_owned()), text })
}

fn source<'a>(path: &'a Path, content: &'a Content) -> Source<'a> {
    Source { path, bytes: &content.bytes }
}

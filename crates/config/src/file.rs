//! Makes a configuration of a TOML file and of the files that it includes.

mod foreign;
mod syntax;

use core::fmt;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeTable;

use super::draft::{Draft, NamedFile, Thing};
use super::expand::{self, Reference};
use super::message::{Message, Notes, Source, Span};
use super::node::{Origin, Table};
use super::{Address, Config, Pattern, Secrets, Server, keys, resolve};
use crate::errno::words;
use syntax::Mistake;

/// Files that are read, with those that they include.
const FILES_MAX: usize = 16_384;
/// The maximum of bytes of all files together.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Files that include each other in a row.
const DEPTH_MAX: usize = 8;
/// The variable of the environment with the directory of the files of `${file:…}`, which a unit's `LoadCredential=` sets.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The variable with the directories for the state of the service, which a unit's `StateDirectory=` sets.
const STATE: &str = "STATE_DIRECTORY";

/// The things outside the files that a configuration depends on.
pub trait Environment {
    /// The directory at which a relative path of the first file begins; an absolute path.
    fn working_directory(&self) -> &Path;

    /// The number of workers, unless a file says it.
    fn threads(&self) -> usize;

    /// Returns the canonical path of a file that has several paths, or the path itself.
    fn canonical(&mut self, path: &Path) -> PathBuf;

    /// The addresses of the sockets that a service manager has passed to the server, with their names.
    fn passed(&self) -> &[(String, Address)] {
        &[]
    }

    /// Returns the value of a variable of the environment, if it is set.
    fn variable(&self, _name: &str) -> Option<OsString> {
        None
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has more than `bytes_max` bytes ([`io::ErrorKind::FileTooLarge`]).
    fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// Returns the names of the entries of a directory, in any order. Names that are not UTF-8 are left
    /// out.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    fn list(&mut self, directory: &Path) -> io::Result<Vec<String>>;
}

/// A configuration that was read.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Probable mistakes that are no errors.
    pub warnings: Vec<Message>,
    /// A hash of the names and bytes of all files, as hexadecimal digits; `None` without files.
    pub digest: Option<String>,
    sources: Vec<Source>,
    /// The files of `${file:…}`.
    values: Vec<PathBuf>,
    places: HashMap<Thing, Span>,
}

impl Loaded {
    /// A configuration that is in no file.
    #[must_use]
    pub fn of(config: Config) -> Self {
        let (warnings, sources, values, places) = Default::default();
        Self { config, warnings, digest: None, sources, values, places }
    }

    /// The paths of all files that were read, as they were named: relative ones begin at the working directory.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let sources = self.sources.iter().map(|source| source.path.as_path());
        sources.chain(self.values.iter().map(PathBuf::as_path))
    }

    /// The files that are sent in place of answers, in the order in which the files name them.
    pub fn named_files(&self) -> impl Iterator<Item = &NamedFile> {
        let files = self.places.iter().filter_map(|(thing, place)| match thing {
            Thing::NamedFile(file) => Some((place, file)),
            _ => None,
        });
        let mut files: Vec<_> = files.collect();
        files.sort_by_key(|(place, file)| (**place, file.is_fallback));
        files.into_iter().map(|(_, file)| file)
    }

    /// Makes an error about a thing, at the first position that names it.
    #[must_use]
    pub fn error(&self, thing: &Thing, text: &str) -> Message {
        let text = self.config.secrets.conceal(text);
        Message::error(self.places.get(thing).copied(), &text, &self.sources)
    }

    /// Makes a warning about a thing, in the same way.
    #[must_use]
    pub fn warning(&self, thing: &Thing, text: &str) -> Message {
        let text = self.config.secrets.conceal(text);
        Message::warning(self.places.get(thing).copied(), &text, &self.sources)
    }
}

/// The errors of a configuration; at least one.
#[derive(Debug)]
pub struct Errors(pub Vec<Message>);

/// Reads a configuration file, and those that it includes. Relative paths in files begin at the directory of
/// the file.
///
/// # Errors
///
/// All errors of the files, up to a limit.
pub fn load(path: &Path, environment: &mut dyn Environment) -> Result<Loaded, Errors> {
    let server = Server { threads: environment.threads(), ..Server::default() };
    let mut loader = Loader {
        environment,
        sources: Vec::new(),
        values: Vec::new(),
        seen: HashMap::new(),
        bytes_left: BYTES_MAX,
        draft: Draft::new(server),
        notes: Notes::default(),
        hash: blake3::Hasher::new(),
    };
    loader.load(path, None, 0);
    let Loader { environment, sources, values, draft, mut notes, hash, .. } = loader;
    let state = state_directory(environment);
    let (mut config, places) = resolve::resolve(draft, state.as_deref(), &mut notes);
    notes.conceal();
    config.secrets = core::mem::take(&mut notes.secrets);
    let (errors, warnings) = notes.into_messages(&sources);
    if !errors.is_empty() {
        return Err(Errors(errors));
    }
    let digest = Some(hash.finalize().to_hex().to_string());
    Ok(Loaded { config, warnings, digest, sources, values, places })
}

/// The state of [`load`].
struct Loader<'a> {
    environment: &'a mut dyn Environment,
    sources: Vec<Source>,
    /// The files of `${file:…}`.
    values: Vec<PathBuf>,
    /// The files that were read, or are being read, by their canonical paths.
    seen: HashMap<PathBuf, IncludeState>,
    bytes_left: u64,
    draft: Draft,
    notes: Notes,
    hash: blake3::Hasher,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IncludeState {
    /// The files that it includes are being read.
    Open,
    Read,
}

impl Loader<'_> {
    /// Reads a file that was named at `place`, `depth` files below the first one.
    fn load(&mut self, path: &Path, place: Option<Span>, depth: usize) {
        let shown = path.display();
        let absolute: PathBuf =
            self.environment.working_directory().join(path).components().collect();
        let canonical = self.environment.canonical(&absolute);
        match self.seen.get(&canonical) {
            Some(IncludeState::Open) => {
                return self.notes.error(place, format!("{shown} includes itself"));
            }
            Some(IncludeState::Read) => {
                return self.notes.error(place, format!("{shown} is included twice"));
            }
            None => {}
        }
        if depth > DEPTH_MAX {
            let text = format!("{shown}: more than {DEPTH_MAX} files include each other");
            return self.notes.error(place, text);
        }
        if self.seen.len() == FILES_MAX {
            return self
                .notes
                .error(place, format!("{shown}: there are more than {FILES_MAX} files"));
        }
        let bytes = match self.environment.read(&absolute, self.bytes_left) {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = explain(&error);
                return self.notes.error(place, format!("cannot read {shown}: {why}"));
            }
        };
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        self.hash.update(&(absolute.as_os_str().len() as u64).to_le_bytes());
        self.hash.update(absolute.as_os_str().as_encoded_bytes());
        self.hash.update(&(bytes.len() as u64).to_le_bytes());
        self.hash.update(&bytes);
        self.seen.insert(canonical.clone(), IncludeState::Open);
        self.parse(path, &absolute, bytes);
        let included = core::mem::take(&mut self.draft.includes);
        for (pattern, place) in included {
            for path in self.find(path, &pattern, place) {
                self.load(&path, Some(place), depth + 1);
            }
        }
        self.seen.insert(canonical, IncludeState::Read);
    }

    /// Adds the contents of a file to the draft.
    fn parse(&mut self, path: &Path, absolute: &Path, bytes: Vec<u8>) {
        let file = self.sources.len();
        let (text, invalid) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(at))
            }
        };
        let text: Arc<str> = text.into();
        self.sources.push(Source { path: path.to_owned(), text: Arc::clone(&text) });
        if let Some(at) = invalid {
            return self.notes.error(Span::new(file, at..at), "the file is not UTF-8");
        }
        let (mut document, errors) = DeTable::parse_recoverable(&text);
        if !errors.is_empty()
            && let Some((whose, place)) = foreign::recognize(&text)
        {
            let text = format!("a configuration is TOML, and this file looks like {whose}");
            return self.notes.error(Span::new(file, place), text);
        }
        let mistakes = if errors.is_empty() { Vec::new() } else { syntax::mistakes(&text) };
        for Mistake { place, text } in &mistakes {
            self.notes.error(Span::new(file, place.clone()), text);
        }
        if !mistakes.is_empty() {
            // The rest may have another meaning.
            return;
        }
        for error in &errors {
            let span = error.span().unwrap_or_default();
            self.notes.error(Span::new(file, span), error.message());
        }
        let directory = absolute.parent().unwrap_or_else(|| Path::new("/"));
        let Self { environment, values, bytes_left, notes, .. } = self;
        let mut secrets = Secrets::default();
        let mut find = |reference: Reference<'_>| match reference {
            Reference::Variable { name, default } => variable(&**environment, name, default),
            Reference::File(name) => {
                let path = path_of(&**environment, name)?;
                let bytes_max = expand::FILE_BYTES_MAX.min(*bytes_left);
                let value = content(&mut **environment, &path, bytes_max)?;
                *bytes_left -= value.len() as u64;
                secrets.add(&value);
                values.push(path);
                Ok(value)
            }
        };
        let texts = expand::expand(document.get_mut(), file, notes, &mut find);
        notes.secrets.extend(secrets);
        let passed = self.environment.passed();
        let origin = Origin { file, directory, passed, texts: &texts, text: &text };
        let table = Table::new(document.get_ref(), Span::start(file), origin);
        keys::read_file(&mut self.draft, table, &mut self.notes);
    }

    /// Finds the files that an `include` of the file `from` means.
    fn find(&mut self, from: &Path, include: &str, place: Span) -> Vec<PathBuf> {
        let base = from.parent().unwrap_or_else(|| Path::new(""));
        let is_pattern = |text: &str| text.contains(['*', '?']);
        let (directory, name) = include.rsplit_once('/').unwrap_or(("", include));
        let directory =
            if include.starts_with('/') && directory.is_empty() { "/" } else { directory };
        if is_pattern(directory) || name.is_empty() || include.contains('\0') {
            let text = "expected the path of a file, whose last part alone may have `*` and `?`";
            self.notes.error(place, text);
            return Vec::new();
        }
        if !is_pattern(name) {
            return vec![base.join(include)];
        }
        let directory = base.join(directory);
        let pattern = match Pattern::new(name) {
            Ok(pattern) => pattern,
            Err(why) => {
                self.notes.error(place, why);
                return Vec::new();
            }
        };
        let absolute = self.environment.working_directory().join(&directory);
        let mut names = match self.environment.list(&absolute) {
            Ok(names) => names,
            Err(error) => {
                let text = format!("cannot read {}: {}", directory.display(), explain(&error));
                self.notes.error(place, text);
                return Vec::new();
            }
        };
        // As in shells, hidden files are named explicitly.
        names.retain(|name| !name.starts_with('.') && pattern.matches(name.as_bytes()));
        names.sort_unstable();
        if names.is_empty() {
            self.notes.warning(place, "no file matches");
        }
        names.iter().map(|name| directory.join(name)).collect()
    }
}

/// Returns the first directory for the state of the service (systemd.exec(5), `StateDirectory=`).
fn state_directory(environment: &dyn Environment) -> Option<PathBuf> {
    let all = environment.variable(STATE)?.into_string().ok()?;
    let first = all.split(':').next().filter(|first| first.starts_with('/'))?;
    Some(first.into())
}

/// Returns the value of a variable of the environment.
fn variable(
    environment: &dyn Environment,
    name: &str,
    default: Option<&str>,
) -> Result<String, String> {
    let value = environment.variable(name);
    match (value.filter(|value| default.is_none() || !value.is_empty()), default) {
        (Some(value), _) => value
            .into_string()
            .map_err(|_| format!("the value of the variable `{name}` is not UTF-8")),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the environment has no variable `{name}`: set it, or write a default (`${{{name}:-…}}`); `$${{{name}}}` is the \
             text itself"
        )),
    }
}

/// Returns the path of a file of `${file:…}`.
fn path_of(environment: &dyn Environment, name: &str) -> Result<PathBuf, String> {
    if name.starts_with('/') {
        return Ok(name.into());
    }
    match environment.variable(CREDENTIALS).filter(|directory| !directory.is_empty()) {
        Some(directory) => Ok(Path::new(&directory).join(name)),
        None => Err(format!(
            "`${{file:{name}}}` is a file in the directory ${CREDENTIALS}, and that is not set: write `LoadCredential=` into the \
             unit, or an absolute path"
        )),
    }
}

/// Returns the content of a file of `${file:…}`, without the end of its last line.
fn content(
    environment: &mut dyn Environment,
    path: &Path,
    bytes_max: u64,
) -> Result<String, String> {
    let cannot = |why: &str| format!("cannot read {}: {why}", path.display());
    let bytes = environment.read(path, bytes_max).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => cannot("a value has 64 KiB at most"),
        _ => cannot(&explain(&error)),
    })?;
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8"))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::FileTooLarge => {
            format!("the files have more than {} MiB together", BYTES_MAX >> 20)
        }
        _ => words(error),
    }
}

impl From<String> for Errors {
    fn from(text: String) -> Self {
        Self(vec![Message::error(None, &text, &[])])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, message) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            message.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

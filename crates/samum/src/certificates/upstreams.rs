//! The TLS of connections to upstreams: which servers are trusted, and which certificate they get.
//!
//! The authorities of the system are in one file on all common distributions. It is read as the other files are: with a limit,
//! as the user of the server, and inside of its confinement. So no other crate looks for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::env;
use std::path::{Path, PathBuf};

use tls::check::Warning;
use tls::{ClientSettings, FILE_BYTES_MAX, ROOTS_BYTES_MAX, Roots, ServerName, Source};

use super::files;
use super::item::{Item, Problem};
use config::file::{Errors, Loaded};
use config::{Action, Message, Protocol, Route, Site, Thing, Upstream, UpstreamTls};

/// The file of the system's authorities: of Debian, Fedora, SUSE and Alpine.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The settings of connections to upstreams, by their keys in the configuration.
#[derive(Debug, Default)]
pub(crate) struct UpstreamSettings(HashMap<UpstreamTls, ClientSettings>);

/// Returns the file of the system's authorities: the one that the variable `SSL_CERT_FILE` names, as for OpenSSL and
/// curl, or the one of the distribution.
pub(crate) fn system_roots() -> PathBuf {
    if let Some(path) = env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let found = SYSTEM_ROOTS.iter().find(|path| Path::new(path).exists());
    found.unwrap_or(&SYSTEM_ROOTS[0]).into()
}

/// Returns true if some upstream is verified by the system's authorities.
pub(crate) fn needs_system_roots(config: &config::Config) -> bool {
    let mut all = config.sites.iter().flat_map(with_tls);
    all.any(|(_, upstream)| {
        let tls = keys_of(upstream);
        tls.verify && tls.ca.is_none()
    })
}

/// The routes of a site that pass requests on to servers with TLS.
fn with_tls(site: &Site) -> impl Iterator<Item = (&Route, &Upstream)> {
    site.routes.iter().filter_map(|route| match &route.action {
        Action::Proxy(upstream) if upstream.has_tls() => Some((route, upstream)),
        _ => None,
    })
}

/// The keys for the TLS of an upstream.
fn keys_of(upstream: &Upstream) -> UpstreamTls {
    upstream.rules.tls.as_deref().cloned().unwrap_or_default()
}

/// Files that several upstreams may have.
#[derive(Default)]
struct Files {
    roots: HashMap<PathBuf, Option<Roots>>,
    errors: Vec<Message>,
    warnings: Vec<Message>,
}

impl UpstreamSettings {
    /// Reads the files of all upstreams with TLS. Returns the settings, and warnings. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// All errors of the files, with their lines.
    pub(super) fn read(loaded: &Loaded, now: i64) -> Result<(Self, Vec<Message>), Vec<Message>> {
        let (mut all, mut files) = (HashMap::new(), Files::default());
        for site in &loaded.config.sites {
            for (route, upstream) in with_tls(site) {
                check_names(site, route, upstream, &mut files.errors);
                if let Entry::Vacant(entry) = all.entry(keys_of(upstream)) {
                    let settings = files.read(loaded, entry.key(), now);
                    entry.insert(settings);
                }
            }
        }
        if !files.errors.is_empty() {
            return Err(files.errors);
        }
        let all = all.into_iter().filter_map(|(keys, settings)| Some((keys, settings?)));
        Ok((Self(all.collect()), files.warnings))
    }

    /// The settings of an upstream; `None` if it has no TLS.
    pub(crate) fn of(&self, upstream: &Upstream) -> Option<ClientSettings> {
        upstream.has_tls().then(|| self.0.get(&keys_of(upstream)).cloned()).flatten()
    }
}

impl Files {
    /// Reads the files of some keys; `None` after an error.
    fn read(&mut self, loaded: &Loaded, keys: &UpstreamTls, now: i64) -> Option<ClientSettings> {
        let before = self.errors.len();
        let roots = if keys.verify { self.roots(loaded, keys.ca.as_deref()) } else { None };
        let pair = keys.pair.as_ref().map(|pair| Item::Pair(pair.clone()));
        let pair = pair.and_then(|item| match item.read() {
            Ok(read) => {
                self.warn(loaded, &item, &read.warnings(now));
                read.pair().cloned()
            }
            Err(problem) => {
                self.blame(loaded, item.paths().next(), &problem);
                None
            }
        });
        if self.errors.len() > before || keys.verify && roots.is_none() {
            return None;
        }
        match ClientSettings::new(roots.as_ref(), pair.as_deref()) {
            Ok(settings) => Some(settings),
            Err(fault) => {
                self.blame(loaded, None, &fault.into());
                None
            }
        }
    }

    /// Reads a file of authorities, once.
    fn roots(&mut self, loaded: &Loaded, ca: Option<&Path>) -> Option<Roots> {
        let path = ca.map_or_else(system_roots, Path::to_owned);
        if let Some(read) = self.roots.get(&path) {
            return read.clone();
        }
        let read = read_roots(&path, ca.is_some());
        if let Err(problem) = &read {
            self.blame(loaded, ca, problem);
        }
        let read = read.ok();
        self.roots.insert(path, read.clone());
        read
    }

    /// Servers do not look at everything of which browsers complain.
    fn warn(&mut self, loaded: &Loaded, item: &Item, warnings: &[Warning]) {
        for warning in warnings {
            let path = match warning {
                Warning::OpenKey { path, .. } => path.clone(),
                Warning::Expired { .. } | Warning::Expires { .. } | Warning::NotYetValid { .. } => {
                    item.paths().next().map(Path::to_owned).unwrap_or_default()
                }
                _ => continue,
            };
            self.warnings.push(loaded.warning(&Thing::TlsFile(path), &warning.to_string()));
        }
    }

    fn blame(&mut self, loaded: &Loaded, file: Option<&Path>, problem: &Problem) {
        let path = problem.path.as_deref().or(file);
        self.errors.push(match path {
            Some(path) => loaded.error(&Thing::TlsFile(path.to_owned()), &problem.text),
            None => Errors::from(problem.text.clone()).0.remove(0),
        });
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

/// Checks that a certificate can have the names of the servers.
fn check_names(site: &Site, route: &Route, upstream: &Upstream, errors: &mut Vec<Message>) {
    let own = keys_of(upstream).name;
    for server in upstream.servers.iter().filter(|server| server.protocol == Protocol::Https) {
        let Some(name) = own.clone().or_else(|| server.tls_name()) else { continue };
        if ServerName::new(&name).is_none() {
            let text = format!(
                "{}{}: no certificate can have the name {name:?}: `upstream-tls = {{ name = … }}` says which name the \
                 certificate of {server} has",
                site.name, route.path
            );
            errors.append(&mut Errors::from(text).0);
        }
    }
}

/// A line for each route with TLS to its servers: how they are verified.
pub(super) fn describe(config: &config::Config) -> Vec<String> {
    let line = |site: &Site, route: &Route, upstream: &Upstream| {
        format!(
            "{}{} passes requests on by TLS; {}",
            site.name,
            route.path,
            verification(&keys_of(upstream))
        )
    };
    let all = config.sites.iter().flat_map(|site| with_tls(site).map(move |it| (site, it)));
    all.map(|(site, (route, upstream))| line(site, route, upstream)).collect()
}

/// How servers are verified.
fn verification(keys: &UpstreamTls) -> String {
    if !keys.verify {
        return "any certificate of its servers is accepted".to_owned();
    }
    let roots = match &keys.ca {
        Some(ca) => ca.display().to_string(),
        None => format!("the system ({})", system_roots().display()),
    };
    let name = keys.name.as_ref().map(|name| format!(", for the name {name}"));
    format!("its servers are verified by the authorities of {roots}{}", name.unwrap_or_default())
}

//! The TLS of connections to upstreams: which servers are trusted, and which certificate they get.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tls::{ClientSettings, ServerName, SharedClientSettings};

use super::item::servers::{Files, system_roots};
use super::item::{Item, Read};
use super::text;
use config::file::{Errors, Loaded};
use config::{Action, Message, Protocol, Route, Site, Thing, Upstream, UpstreamTls};

/// The settings of connections to upstreams, by their keys in the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamSettings(HashMap<UpstreamTls, OfKeys>);

/// The files of upstreams that the configuration names, with what was read of them.
pub(super) type Items = Vec<(Item, Read)>;

/// The settings for some keys.
#[derive(Clone, Debug)]
struct OfKeys {
    settings: Arc<SharedClientSettings>,
    /// The routes that have these keys: site and path.
    routes: Vec<String>,
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

impl UpstreamSettings {
    /// Reads the files of all upstreams with TLS. Returns the settings, and what was read of files that the configuration
    /// names. Settings of before that are the same stay, so that upstreams keep their servers.
    ///
    /// # Errors
    ///
    /// All errors of the files, with their lines.
    pub(super) fn read(loaded: &Loaded, before: &Self) -> Result<(Self, Items), Vec<Message>> {
        let (mut all, mut files) = (HashMap::new(), Files::default());
        let (mut items, mut errors) = (Items::new(), Vec::new());
        for site in &loaded.config.sites {
            for (route, upstream) in with_tls(site) {
                check_names(site, route, upstream, &mut errors);
                let name = format!("{}{}", site.name, route.path);
                match all.entry(keys_of(upstream)) {
                    Entry::Vacant(entry) => {
                        let read = files.read(entry.key());
                        let settings = read.as_ref().and_then(Read::settings);
                        let settings = settings.map(|it| before.unless_changed(entry.key(), it));
                        let item = Item::Servers(entry.key().clone());
                        items.extend(read.map(|read| (item, read)));
                        let routes = vec![name];
                        entry.insert(settings.map(|settings| OfKeys { settings, routes }));
                    }
                    Entry::Occupied(mut entry) => {
                        entry.get_mut().iter_mut().for_each(|it| it.routes.push(name.clone()));
                    }
                }
            }
        }
        errors.extend(files.problems.iter().map(|problem| match &problem.path {
            Some(path) => loaded.error(&Thing::TlsFile(path.clone()), &problem.text),
            None => Errors::from(problem.text.clone()).0.remove(0),
        }));
        if !errors.is_empty() {
            return Err(errors);
        }
        let all = all.into_iter().filter_map(|(keys, settings)| Some((keys, settings?)));
        // The system's authorities are read again by a reload only.
        items.retain(|(item, _)| item.paths().next().is_some());
        Ok((Self(all.collect()), items))
    }

    /// The shared settings of before for some keys if they are still these, or else new ones.
    fn unless_changed(
        &self,
        keys: &UpstreamTls,
        settings: &ClientSettings,
    ) -> Arc<SharedClientSettings> {
        match self.0.get(keys).filter(|before| before.settings.get() == *settings) {
            Some(before) => Arc::clone(&before.settings),
            None => SharedClientSettings::new(settings.clone()),
        }
    }

    /// The settings of an upstream; `None` if it has no TLS.
    pub(crate) fn of(&self, upstream: &Upstream) -> Option<Arc<SharedClientSettings>> {
        let of_keys = upstream.has_tls().then(|| self.0.get(&keys_of(upstream))).flatten();
        of_keys.map(|of_keys| Arc::clone(&of_keys.settings))
    }

    /// The names of the routes with some keys.
    pub(super) fn names_of(&self, keys: &UpstreamTls) -> String {
        let routes = self.0.get(keys).map(|of_keys| &of_keys.routes[..]).unwrap_or_default();
        text::names_of(routes.iter().map(|route| &**route), "route")
    }

    /// Connections to servers with some keys have these settings from now on.
    pub(super) fn renew(&self, keys: &UpstreamTls, settings: &ClientSettings) {
        if let Some(of_keys) = self.0.get(keys) {
            of_keys.settings.replace(settings.clone());
        }
    }
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

/// The rule by which servers are verified.
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

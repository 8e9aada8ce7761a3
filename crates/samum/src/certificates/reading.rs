//! The certificates of a configuration, read and matched.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tls::check::{EXPIRY_DAYS, Warning, check_hosts};
use tls::{Pair, SiteTls};

use super::item::servers::system_roots;
use super::item::{Item, Read, Value};
use super::plan::{self, Shown, Site};
use super::text;
use super::upstreams::{self, UpstreamSettings};
use crate::keeper;
use config::file::{Errors, Loaded};
use config::{Config, Message, Thing, TlsProfile};

/// The pairs that the server has made, by the hosts of their sites.
pub(super) type Made = HashMap<Vec<String>, Arc<Pair>>;

/// The certificates of a configuration, read and matched.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The sites that have TLS.
    pub(super) sites: Vec<Site>,
    pub(super) items: HashMap<Item, Read>,
    pub(super) made: Made,
    /// The settings of connections to upstreams.
    pub(crate) upstreams: UpstreamSettings,
    /// Sentences about certificates that were made.
    pub(crate) said: Vec<String>,
    /// Probable mistakes.
    pub(crate) warnings: Vec<Message>,
    /// Pairs of before that stay, because those of their files are not valid now.
    pub(super) kept: usize,
}

/// The pairs of a reading that the next reading may keep.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) made: Made,
    pub(super) pairs: HashMap<Item, Arc<Pair>>,
    pub(super) upstreams: UpstreamSettings,
}

impl Reading {
    /// Reads the files of the first configuration.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn first(loaded: &Loaded, now: i64) -> Result<Self, Errors> {
        Self::new(loaded, &Before::default(), now)
    }

    /// Reads the files of all sites that have a listener with TLS. `before` has pairs that were made earlier, and those that
    /// are shown, which stay if those of their files are not valid now. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// All errors of the files, with their lines.
    pub(super) fn new(loaded: &Loaded, before: &Before, now: i64) -> Result<Self, Errors> {
        let mut reading = Self { sites: plan::sites(&loaded.config), ..Self::default() };
        let mut errors = keeper::check(loaded, &system_roots());
        for index in 0..reading.sites.len() {
            for item in items(&reading.sites[index]) {
                let Entry::Vacant(entry) = reading.items.entry(item) else { continue };
                let site = &reading.sites[index];
                let waits = is_acme(site) && matches!(entry.key(), Item::Pair(_));
                // A file that is written meanwhile has other marks at the next look.
                let marks = if waits { entry.key().marks() } else { Vec::new() };
                match entry.key().read() {
                    Ok(mut read) => {
                        let pair = before.pairs.get(entry.key());
                        let pair = pair.filter(|pair| text::is_valid(pair, now));
                        if let (Some(pair), Some((why, valid_from))) = (pair, read.untimely(now)) {
                            read.valid_from = valid_from;
                            read.value = Value::Pair(Arc::clone(pair));
                            reading.kept += 1;
                            let why = text::not_renewed(&reading.sites[index].name, &why);
                            reading.warnings.push(loaded.warning(&thing(entry.key()), &why));
                        }
                        let warnings = read.warnings(now).into_iter();
                        // Its renewal is not the operator's.
                        let warnings =
                            warnings.filter(|it| !waits || !matches!(it, Warning::Expires { .. }));
                        let warnings = warnings.map(|it| message(loaded, entry.key(), &it));
                        reading.warnings.extend(warnings);
                        entry.insert(read);
                    }
                    // The certificate was not issued yet, or its file is damaged; the next one replaces it.
                    Err(problem) if waits => {
                        let shown = before.pairs.get(entry.key());
                        let shown = shown.filter(|pair| text::is_valid(pair, now)).cloned();
                        let is_missing = marks.iter().all(Option::is_none);
                        let pair = shown.map_or_else(
                            || {
                                let why = (!is_missing).then_some(&*problem.text);
                                reading.said.push(text::waiting(&site.name, why));
                                self_signed(site, &before.made, now).map(|(pair, _)| pair)
                            },
                            Ok,
                        );
                        match pair {
                            Ok(pair) => {
                                entry.insert(Read::standing_in(pair, marks));
                            }
                            Err(why) => errors.extend(Errors::from(why).0),
                        }
                    }
                    Err(problem) => {
                        let thing = problem.path.map_or_else(|| thing(entry.key()), Thing::TlsFile);
                        errors.push(loaded.error(&thing, &problem.text));
                    }
                }
            }
            if let Err(why) = reading.make(index, &before.made, now) {
                errors.extend(Errors::from(why).0);
            }
        }
        match UpstreamSettings::read(loaded, &before.upstreams) {
            Ok((upstreams, items)) => {
                reading.upstreams = upstreams;
                for (item, read) in items {
                    let warnings = read.warnings(now).into_iter();
                    reading.warnings.extend(warnings.map(|it| message(loaded, &item, &it)));
                    reading.items.insert(item, read);
                }
            }
            Err(more) => errors.extend(more),
        }
        if !errors.is_empty() {
            shorten(&mut errors, "error");
            return Err(Errors(errors));
        }
        reading.check_hosts(loaded);
        shorten(&mut reading.warnings, "warning");
        Ok(reading)
    }

    /// Makes the pair of a site whose certificate is self-signed, unless there is one that is good for a while.
    fn make(&mut self, index: usize, before: &Made, now: i64) -> Result<(), String> {
        let site = &self.sites[index];
        if !is_self_signed(site) || self.made.contains_key(&site.hosts) {
            return Ok(());
        }
        let (pair, is_new) = self_signed(site, before, now)?;
        if is_new {
            self.said.push(text::self_signed(&site.name, &pair));
        }
        self.made.insert(site.hosts.clone(), pair);
        Ok(())
    }

    /// Warns of hosts that no certificate of their site is valid for.
    fn check_hosts(&mut self, loaded: &Loaded) {
        let of_host = |warning: Warning| {
            let Warning::NotCovered { host } = &warning else { return None };
            Some(loaded.warning(&Thing::Host(host.clone()), &warning.to_string()))
        };
        // An authority is asked for all hosts of its sites.
        let has_files = |site: &&Site| !is_acme(site) && items(site).next().is_some();
        for site in self.sites.iter().filter(has_files) {
            self.warnings.extend(self.uncovered_hosts(site).into_iter().filter_map(of_host));
        }
    }

    /// The pairs of a site, in the order of the configuration.
    pub(super) fn pairs(&self, site: &Site) -> Vec<Arc<Pair>> {
        if is_self_signed(site) {
            return self.made.get(&site.hosts).cloned().into_iter().collect();
        }
        let pairs = items(site).filter_map(|item| self.items.get(&item)?.pair().cloned());
        pairs.collect()
    }

    /// Returns the pairs that the next reading may keep.
    pub(super) fn before(&self) -> Before {
        let pair = |(item, read): (&Item, &Read)| Some((item.clone(), Arc::clone(read.pair()?)));
        let pairs = self.items.iter().filter_map(pair).collect();
        Before { made: self.made.clone(), pairs, upstreams: self.upstreams.clone() }
    }

    /// A site in the form for handshakes.
    pub(super) fn site_tls(&self, Shown { site, tls }: Shown) -> SiteTls {
        let shown = &self.sites[tls];
        let profile = shown.tls.as_ref().map(|tls| tls.profile).unwrap_or_default();
        let clients = items(shown).filter_map(|item| self.items.get(&item)?.clients().cloned());
        SiteTls {
            hosts: self.sites[site].hosts.clone(),
            pairs: self.pairs(shown),
            profile: match profile {
                TlsProfile::Modern => tls::Profile::Modern,
                TlsProfile::Intermediate => tls::Profile::Intermediate,
            },
            clients: { clients }.next(),
            http2: true,
        }
    }

    /// The names of the sites, or of the routes, that have an item.
    pub(super) fn names_of(&self, item: &Item) -> String {
        match item {
            Item::Servers(keys) => self.upstreams.names_of(keys),
            _ => text::names_of(self.sites_of(item).map(|site| &*site.name), "site"),
        }
    }

    /// Sentences about hosts of the sites that have an item, if none of their certificates is valid for them.
    pub(super) fn uncovered(&self, item: &Item) -> Vec<String> {
        let sites = self.sites_of(item).filter(|site| !is_acme(site));
        let warnings = sites.flat_map(|site| self.uncovered_hosts(site));
        warnings.map(|warning| warning.to_string()).collect()
    }

    /// Warnings about an item that was read again. The renewal of a certificate by ACME is not the operator's.
    pub(super) fn warnings(&self, item: &Item, read: &Read, now: i64) -> Vec<Warning> {
        let mut warnings = read.warnings(now);
        if self.sites_of(item).any(is_acme) {
            warnings.retain(|it| !matches!(it, Warning::Expires { .. }));
        }
        warnings
    }

    fn sites_of(&self, item: &Item) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(move |site| has(site, item))
    }

    fn uncovered_hosts(&self, site: &Site) -> Vec<Warning> {
        let pairs = self.pairs(site);
        check_hosts(&site.hosts, pairs.iter().map(|pair| &**pair))
    }

    /// A line for each certificate, in the order of the configuration: what clients see. Then a line for each route that
    /// passes requests on by TLS.
    pub(crate) fn describe(&self, config: &Config) -> Vec<String> {
        let mut lines = Vec::new();
        for site in self.sites.iter().filter(|site| site.tls.is_some()) {
            if is_self_signed(site) {
                lines.push(text::not_made_yet(&site.name));
                continue;
            }
            lines.extend(self.pairs(site).iter().map(|pair| match pair.path() {
                // It stands in for one that was not issued yet.
                None => text::not_issued_yet(&site.name),
                Some(_) => text::certificate(&site.name, pair),
            }));
        }
        lines.extend(upstreams::describe(config));
        lines
    }
}

/// The items of a site: its pairs in the order of the configuration, then what is about clients.
pub(super) fn items(site: &Site) -> impl Iterator<Item = Item> {
    let pairs = site.tls.iter().flat_map(|tls| tls.pairs.iter().cloned().map(Item::Pair));
    let clients = site.tls.iter().filter_map(|tls| tls.client.clone().map(Item::Clients));
    pairs.chain(clients)
}

/// Returns true if a site has an item.
pub(super) fn has(site: &Site, item: &Item) -> bool {
    site.tls.as_ref().is_some_and(|tls| match item {
        Item::Pair(files) => tls.pairs.contains(files),
        Item::Clients(clients) => tls.client.as_ref() == Some(clients),
        Item::Servers(_) => false,
    })
}

/// Returns the self-signed pair of a site: one of before that is good for a while, or a new one (true).
fn self_signed(site: &Site, before: &Made, now: i64) -> Result<(Arc<Pair>, bool), String> {
    let is_good = |pair: &&Arc<Pair>| pair.not_after() - now >= EXPIRY_DAYS * 24 * 60 * 60;
    if let Some(pair) = before.get(&site.hosts).filter(is_good) {
        return Ok((Arc::clone(pair), false));
    }
    let pair = Pair::self_signed(&site.hosts, now);
    let pair = pair.map_err(|fault| format!("{}: {fault}", site.name))?;
    Ok((Arc::new(pair), true))
}

/// Returns true if the certificate of a site comes by ACME.
fn is_acme(site: &Site) -> bool {
    site.tls.as_ref().is_some_and(|tls| tls.is_acme)
}

fn is_self_signed(site: &Site) -> bool {
    site.tls.as_ref().is_some_and(|tls| tls.pairs.is_empty())
}

/// Leaves the first messages, and the number of the others.
fn shorten(messages: &mut Vec<Message>, kind: &str) {
    let more = messages.len().saturating_sub(text::LINES_MAX);
    if more > 0 {
        messages.truncate(text::LINES_MAX);
        messages.push(Message { line: format!("{kind}: {}", text::more(more)), excerpt: None });
    }
}

/// A warning about an item, with its place.
fn message(loaded: &Loaded, item: &Item, warning: &Warning) -> Message {
    let thing = match warning {
        Warning::OpenKey { path, .. }
        | Warning::AuthorityExpired { path, .. }
        | Warning::OldRevocationList { path, .. }
        | Warning::Expired { path: Some(path), .. }
        | Warning::Expires { path: Some(path), .. }
        | Warning::NotYetValid { path: Some(path), .. } => Thing::TlsFile(path.clone()),
        _ => thing(item),
    };
    loaded.warning(&thing, &warning.to_string())
}

/// The thing that a message about an item is about, if it is about no other file.
fn thing(item: &Item) -> Thing {
    let first = item.paths().next().expect("an item has a file");
    Thing::TlsFile(first.to_owned())
}

//! What is served at one time: the configuration, prepared for requests.
//!
//! A [`Snapshot`] is made once, and shared by all workers. Each worker serves from it what its own content
//! has opened. A request keeps the `Serving` that it began with, so another configuration changes nothing
//! about a response that has begun.

use core::fmt;
use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::{Head, Status, path};

use crate::client::Proxies;
use crate::config::{
    self, Access, Action, Address, Config, Fastcgi, FileRules, Files, Log, LogTarget, Message,
    Pattern, Route, Site, Tuning, read_regular, rule,
};
use crate::fields::Rules;
use crate::guard::{Guard, Guards};
use crate::limits::Limiter;
use crate::log::Recording;
use crate::programs::Directory;
use crate::redirect::{self, Redirects};
use crate::route::{Matcher, RouteId, Routes};
use crate::site::{Hosts, SiteId};
use crate::upstream::Upstream;
use crate::upstream::names::Names;

/// The maximum number of trees of one directory that are compared with a tree of the next configuration. If
/// its rules are those of none of them, it is a new tree, whose files are found anew.
const SAME_ROOT_LOOKS_MAX: usize = 16;
/// The time for which a start and a reload wait for the names of servers.
const NAMES_PATIENCE: Duration = Duration::from_secs(5);

/// A configuration, prepared for requests.
#[derive(Debug)]
pub struct Snapshot {
    /// The listeners by their numbers. A listener keeps its number when the configuration is replaced, and
    /// no other gets it afterwards: connections name their listener by it.
    listeners: Vec<Option<Listener>>,
    addresses: Vec<(u32, Address)>,
    proxies: Proxies,
    limiter: Arc<Limiter>,
    names: Arc<Names>,
    sites: Vec<Routes>,
    /// The routes that answers of gateways lead to, by site: those that are reached by hand-over only, too.
    inner: Vec<Inner>,
    routes: Vec<RouteEntry>,
    /// The directories, without repetitions.
    roots: Vec<PathBuf>,
    trees: Vec<TreeSpec>,
    /// The name and the log of each site.
    records: Vec<(String, Log)>,
    /// True if a route shows the metrics.
    shows_metrics: bool,
    tuning: Tuning,
}

/// A route as requests meet it.
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pub(crate) route: Route,
    /// Its path with a slash at the end.
    pub(crate) prefix: Box<[u8]>,
    /// The things that were made for its action.
    pub(crate) served: Served,
    /// The conditions on which it answers a client, if it has some.
    pub(crate) guard: Option<Box<Guard>>,
    /// The rules for the fields of its responses.
    pub(crate) fields: Rules,
    /// The paths that it has, beside those of its own path.
    matcher: Matcher,
    /// The file that is served where it has nothing.
    fallback: Option<Page>,
    /// The pages for errors.
    pages: BTreeMap<u16, Page>,
}

/// The things that are made for the action of a route.
#[derive(Debug)]
pub(crate) enum Served {
    Files {
        tree: TreeIndex,
        /// True if files that it leads to may have directives.
        has_pages: bool,
    },
    /// Scripts, and perhaps other files beside them in the same tree.
    Scripts {
        tree: Option<TreeIndex>,
        upstream: Arc<Upstream>,
    },
    Programs(Arc<Directory>),
    Proxy(Arc<Upstream>),
    /// One address, or those of a list.
    Redirect,
    Metrics,
}

/// The position of a tree among those of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeIndex(usize);

/// All routes of a site.
#[derive(Debug)]
struct Inner {
    paths: Option<Routes>,
    /// Their indices among [`Snapshot::routes`].
    routes: Range<usize>,
    /// True if some of them are files.
    has_files: bool,
    /// The pages for errors of requests that none of them has.
    pages: BTreeMap<u16, Page>,
}

/// A listener as connections meet it.
#[derive(Debug)]
struct Listener {
    hosts: Hosts,
    admission: Admission,
}

/// The things that are asked of each client that connects to a listener.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admission {
    /// True if its address is needed.
    pub(crate) asks: bool,
    /// True if its connections are counted.
    pub(crate) counts: bool,
    /// More connections than this are closed at once. Some if all routes have a limit: none of them would
    /// answer, and clients that send no request must not take the places of others.
    pub(crate) connections_max: Option<u32>,
    /// True if clients without an address are on Unix sockets; others have gone.
    pub(crate) is_unix: bool,
    /// True if proxies send a header of the PROXY protocol.
    pub(crate) proxy_protocol: bool,
}

/// A file of a route, to which requests are handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) route: RouteId,
    /// Its path in the tree of the route.
    pub(crate) path: Box<[u8]>,
}

/// A directory with the rules for its files, as a worker's content needs it.
#[derive(Clone, Debug)]
pub(crate) struct TreeSpec {
    /// The index of its directory among [`Snapshot::roots`].
    pub(crate) root: usize,
    pub(crate) rules: Arc<FileRules>,
    /// The path of its directory in URLs, with a slash at both ends.
    pub(crate) prefix: Box<[u8]>,
    pub(crate) fields: Rules,
}

impl TreeSpec {
    /// Returns whether all responses about its files are those of another tree of the same directory.
    fn is_served_as(&self, other: &Self) -> bool {
        // The path is needed for the rules for fields alone.
        let is_same_path = self.fields.is_empty() || self.prefix == other.prefix;
        self.rules == other.rules && self.fields == other.fields && is_same_path
    }
}

/// The parts of a configuration that are also parts of the next one.
#[derive(Debug)]
pub struct Succession {
    /// For each tree of the next configuration its index in the one before, if it had it.
    trees: Vec<Option<usize>>,
    /// The indices of the trees that the next one does not have.
    gone: Vec<usize>,
    /// The numbers of the listeners that the next one does not have, in order.
    removed: Vec<u32>,
}

/// The number of a tree. A directory that several routes serve is a tree for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeId(u32);

/// The place of a request: its site, and the route that has its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) site: SiteId,
    pub(crate) route: Option<RouteId>,
}

impl TreeId {
    /// The id of the tree at this position of a list.
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer trees than 2³²"))
    }

    /// The position in a list with one entry for each tree.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Served {
    const fn tree(&self) -> Option<TreeIndex> {
        match self {
            Self::Files { tree, .. } => Some(*tree),
            Self::Scripts { tree, .. } => *tree,
            Self::Programs(_) | Self::Proxy(_) | Self::Redirect | Self::Metrics => None,
        }
    }

    const fn programs(&self) -> Option<&Arc<Directory>> {
        match self {
            Self::Programs(programs) => Some(programs),
            _ => None,
        }
    }

    const fn upstream(&self) -> Option<&Arc<Upstream>> {
        match self {
            Self::Scripts { upstream, .. } | Self::Proxy(upstream) => Some(upstream),
            Self::Files { .. } | Self::Programs(_) | Self::Redirect | Self::Metrics => None,
        }
    }

    const fn upstream_mut(&mut self) -> Option<&mut Arc<Upstream>> {
        match self {
            Self::Scripts { upstream, .. } | Self::Proxy(upstream) => Some(upstream),
            Self::Files { .. } | Self::Programs(_) | Self::Redirect | Self::Metrics => None,
        }
    }
}

impl Admission {
    /// What is asked at an address, for these routes of all sites that are there.
    fn new<'r>(
        address: &Address,
        routes: impl Iterator<Item = &'r Route> + Clone,
        proxy_protocol: bool,
    ) -> Self {
        let needs = |route: &Route| {
            let limits = &route.limits;
            let has_limit = limits.connections.is_some() || limits.requests.is_some();
            // Other servers are told who asks.
            let is_told = matches!(route.action, Action::Proxy(_));
            has_limit || is_told || route.access != Access::default()
        };
        let limits: Option<Vec<u32>> =
            routes.clone().map(|route| route.limits.connections).collect();
        let most = limits.and_then(|limits| limits.into_iter().max());
        Self {
            asks: proxy_protocol || routes.clone().any(needs),
            counts: routes.clone().any(|route| route.limits.connections.is_some()),
            // Those between are told why.
            connections_max: most.map(|most| most.saturating_mul(2)),
            is_unix: matches!(address, Address::Unix(_)),
            proxy_protocol,
        }
    }
}

impl Snapshot {
    /// Prepares a configuration, and reads its files of redirects.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if there is no site, or the hosts of the sites of one address are not
    /// valid or are listed twice, or a rule of a route is not valid or leads to no file.
    pub fn new(config: &Config) -> Result<Self, String> {
        Self::numbered(config, &HashMap::new(), 0)
    }

    /// Prepares the configuration that replaces this one. Listeners at the same address keep their numbers,
    /// what clients have used of their limits stays used, and programs that run count against the limits of
    /// their directories, unless these were changed.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn successor(&self, config: &Config) -> Result<Self, String> {
        let numbers =
            self.addresses.iter().map(|(number, address)| (Endpoint::of(address), *number));
        let mut next = Self::numbered(config, &numbers.collect(), self.listeners.len())?;
        next.keep_programs(self);
        next.keep_upstreams(self);
        let (limiter, names) = (Arc::clone(&self.limiter), Arc::clone(&self.names));
        Ok(Self { limiter, names, ..next })
    }

    /// Takes over the directories of programs that are the same as before.
    fn keep_programs(&mut self, before: &Self) {
        let mut kept: HashMap<_, Vec<_>> = HashMap::new();
        for programs in before.routes.iter().filter_map(|entry| entry.served.programs()) {
            kept.entry(programs.mount()).or_default().push(programs);
        }
        for entry in &mut self.routes {
            let Served::Programs(programs) = &mut entry.served else { continue };
            let Some(candidates) = kept.get_mut(programs.mount()) else { continue };
            let same = candidates.iter().position(|candidate| candidate.is_same(programs));
            if let Some(place) = same {
                *programs = Arc::clone(candidates.swap_remove(place));
            }
        }
    }

    /// The servers that the requests of routes are passed on to.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.routes.iter().filter_map(|entry| entry.served.upstream())
    }

    /// Has the names of servers resolved, and waits for that a short time. Requests for servers whose names
    /// are not resolved by then are answered with an error until they are.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if no thread can be started.
    pub(crate) fn resolve_names(&self) -> Result<(), String> {
        let resolve = |upstream: &Arc<Upstream>| upstream.resolve(&self.names);
        let resolved = self.upstreams().try_for_each(resolve);
        resolved.map_err(|error| format!("cannot start a thread for names: {error}"))?;
        self.names.wait(NAMES_PATIENCE);
        Ok(())
    }

    /// Takes over the upstreams that are the same as before, and the servers of others that stay.
    fn keep_upstreams(&mut self, before: &Self) {
        fn key(route: &Route) -> (&str, bool) {
            // A connection is kept for another request in the same protocol.
            (&route.path, matches!(route.action, Action::Fastcgi(_)))
        }
        let mut kept: HashMap<_, Vec<_>> = HashMap::new();
        for entry in &before.routes {
            if let Some(upstream) = entry.served.upstream() {
                kept.entry(key(&entry.route)).or_default().push(upstream);
            }
        }
        for entry in &mut self.routes {
            let Some(config) = entry.route.action.upstream() else { continue };
            let Some(made) = entry.served.upstream_mut() else { continue };
            let Some(candidates) = kept.get_mut(&key(&entry.route)) else { continue };
            let same = candidates.iter().position(|candidate| candidate.is_same(config));
            if let Some(place) = same {
                *made = Arc::clone(candidates.swap_remove(place));
                continue;
            }
            // Routes of other sites have the same path.
            let named = candidates.iter().find(|candidate| candidate.name == made.name);
            if let Some(before) = named.or_else(|| candidates.first()) {
                *made = Upstream::new(config, made.name.clone(), Some(before));
            }
        }
    }

    /// `numbers` has the listeners that exist; others get numbers from `next` on.
    fn numbered(
        config: &Config,
        numbers: &HashMap<Endpoint<'_>, u32>,
        next: usize,
    ) -> Result<Self, String> {
        if config.sites.is_empty() {
            return Err("there is no site to serve".to_owned());
        }
        let mut made = Self {
            listeners: Vec::new(),
            addresses: Vec::new(),
            proxies: Proxies::new(&config.server.trusted_proxies),
            limiter: Limiter::new(),
            names: Arc::new(Names::new()),
            sites: Vec::new(),
            inner: Vec::new(),
            routes: Vec::new(),
            roots: Vec::new(),
            trees: Vec::new(),
            records: Vec::new(),
            shows_metrics: false,
            tuning: config.server.tuning.clone(),
        };
        made.add_listeners(config, numbers, next)?;
        let mut guards = Guards::default();
        let mut common = Common::default();
        for site in &config.sites {
            let first = made.routes.len();
            made.records.push((site.name.clone(), site.log.clone()));
            for route in &site.routes {
                made.shows_metrics |= route.action == Action::Metrics;
                // The command line may have another `rate-min` than the file.
                let checked = route.limits.check_rate(&config.server.tuning);
                checked.map_err(|error| format!("bytes-per-connection: {error}"))?;
                let entry = made.entry(site, route, &mut common);
                let mut entry =
                    entry.map_err(|error| format!("{} {}: {error}", site.name, route.name()))?;
                entry.guard = guards.of(&site.name, route).map(Box::new);
                made.routes.push(entry);
            }
            let open = made.routes_of(first, |entry| !entry.route.is_internal);
            let pages = made.resolve_pages(first, &site.errors);
            let pages = pages.map_err(|error| format!("{}: {error}", site.name))?;
            made.sites.push(open);
            let has_internal = made.routes[first..].iter().any(|entry| entry.route.is_internal);
            made.inner.push(Inner {
                paths: has_internal.then(|| made.routes_of(first, |_| true)),
                routes: first..made.routes.len(),
                has_files: made.routes[first..].iter().any(|entry| entry.served.tree().is_some()),
                pages,
            });
        }
        Ok(made)
    }

    /// Prepares a route, but for its conditions and the files to which it hands requests over.
    fn entry(
        &mut self,
        site: &Site,
        route: &Route,
        common: &mut Common,
    ) -> Result<RouteEntry, String> {
        let mut prefix = route.path.clone().into_bytes();
        if !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        let prefix: Box<[u8]> = prefix.into();
        // Neighbors mostly have the same rules, which are then shared.
        let fields = match self.routes.last() {
            Some(last) if last.route.headers == route.headers => last.fields.clone(),
            _ => {
                route.headers.iter().try_for_each(rule::check_header)?;
                route.headers.iter().cloned().map(Arc::new).collect()
            }
        };
        let mut matcher = Matcher { pattern: route.pattern.clone(), redirects: None };
        let upstream = |config: &config::Upstream| {
            Upstream::new(config, format!("{}{}", site.name, route.path), None)
        };
        let mut tree = |files: &Files| {
            check_types(&files.rules)?;
            Ok::<_, String>(self.add_tree(files, prefix.clone(), fields.clone(), common))
        };
        let served = match &route.action {
            Action::Files(files) => Served::Files { tree: tree(files)?, has_pages: false },
            Action::Fastcgi(fastcgi) => Served::Scripts {
                tree: fastcgi.files.as_ref().map(tree).transpose()?,
                upstream: upstream(&fastcgi.upstream),
            },
            Action::Cgi(cgi) => Served::Programs(Directory::new(cgi, &prefix, documents_of(site))),
            Action::Proxy(config) => Served::Proxy(upstream(config)),
            Action::Redirect(to) => {
                let stars = route.pattern.as_ref().map_or(0, Pattern::stars);
                redirect::check_target(&to.to, stars)?;
                redirect::status(to.status)
                    .ok_or_else(|| format!("{} is no status of a redirect", to.status))?;
                Served::Redirect
            }
            Action::Redirects(path) => {
                let file = match common.redirects.get(path) {
                    Some(file) => Arc::clone(file),
                    None => {
                        let file = Arc::new(read_redirects(path).map_err(|why| why.to_string())?);
                        common.redirects.insert(path.clone(), Arc::clone(&file));
                        file
                    }
                };
                matcher.redirects = Some(file);
                Served::Redirect
            }
            Action::Metrics => Served::Metrics,
        };
        let (route, pages) = (route.clone(), BTreeMap::new());
        let (guard, fallback) = (None, None);
        Ok(RouteEntry { route, prefix, served, guard, fields, matcher, fallback, pages })
    }

    /// The paths of the routes from this one on; those of routes that are not open are closed.
    fn routes_of(&self, first: usize, is_open: impl Fn(&RouteEntry) -> bool) -> Routes {
        let routes = self.routes[first..].iter().zip(first..);
        Routes::new(routes.map(|(entry, index)| {
            let id = is_open(entry).then(|| RouteId::new(index));
            (&entry.route.path[..], entry.matcher.clone(), id)
        }))
    }

    /// Finds the files to which the routes of a site hand requests over, and redirects that lead to
    /// themselves. The first of its routes is `first`. Returns the pages for the errors of the site.
    fn resolve_pages(
        &mut self,
        first: usize,
        errors: &BTreeMap<u16, String>,
    ) -> Result<BTreeMap<u16, Page>, String> {
        // A route that is reached by hand-over only is reached here, too.
        let all = self.routes_of(first, |_| true);
        let page = |path: &str, what: &str| {
            self.page(&all, path).ok_or_else(|| format!("the {what} {path} leads to no files"))
        };
        let pages = |errors: &BTreeMap<u16, String>| -> Result<BTreeMap<u16, Page>, String> {
            let page = |(code, path): (&u16, &String)| {
                rule::error_status(*code)?;
                Ok((*code, page(path, &format!("page for {code},"))?))
            };
            errors.iter().map(page).collect()
        };
        let of_site = pages(errors)?;
        let mut resolved = Vec::new();
        for entry in &self.routes[first..] {
            let files = entry.route.action.files();
            let fallback = files.and_then(|files| files.rules.fallback.as_deref());
            let fallback = fallback.map(|path| page(path, "fallback")).transpose()?;
            resolved.push((fallback, pages(&entry.route.errors)?));
        }
        for (entry, index) in self.routes[first..].iter().zip(first..) {
            if let Action::Redirect(redirect) = &entry.route.action {
                let to = redirect.to.split(['?', '#']).next().unwrap_or_default();
                let mut name = Vec::new();
                // What has captures is compared with each request.
                let is_local =
                    !to.contains('$') && path::normalize(to.as_bytes(), &mut name).is_ok();
                if is_local && all.find(to.as_bytes()) == Some(RouteId::new(index)) {
                    return Err(format!(
                        "the redirect from {} leads to itself",
                        entry.route.name()
                    ));
                }
            }
        }
        for (entry, (fallback, pages)) in self.routes[first..].iter_mut().zip(resolved) {
            (entry.fallback, entry.pages) = (fallback, pages);
        }
        for index in first..self.routes.len() {
            let entry = &self.routes[index];
            let fallback = entry.fallback.as_ref().map(|page| page.route.index());
            let mut leads_to = core::iter::once(index).chain(fallback);
            let leads_to_pages = leads_to.any(|index| self.routes[index].route.has_includes());
            if let Served::Files { has_pages, .. } = &mut self.routes[index].served {
                *has_pages = leads_to_pages;
            }
        }
        Ok(of_site)
    }

    /// The file that a path of a site leads to.
    fn page(&self, all: &Routes, path: &str) -> Option<Page> {
        let path = rule::path(path).ok()?;
        let route = all.find(path.as_bytes())?;
        let entry = &self.routes[route.index()];
        self.page_at(route, path.as_bytes().get(entry.prefix.len()..)?)
    }

    /// The file at a path below the directory of a route.
    fn page_at(&self, route: RouteId, path: &[u8]) -> Option<Page> {
        let TreeIndex(tree) = self.routes[route.index()].served.tree()?;
        let rules = &self.trees[tree].rules;
        Some(Page { route, path: rules.clean_path(path).unwrap_or(path).into() })
    }

    fn add_listeners(
        &mut self,
        config: &Config,
        numbers: &HashMap<Endpoint<'_>, u32>,
        next: usize,
    ) -> Result<(), String> {
        let mut by_endpoint: HashMap<Endpoint<'_>, Vec<usize>> = HashMap::new();
        self.listeners.resize_with(next, || None);
        for (index, site) in config.sites.iter().enumerate() {
            for address in &site.listen {
                let sites = by_endpoint.entry(Endpoint::of(address)).or_default();
                if sites.is_empty() {
                    let number = numbers.get(&Endpoint::of(address)).copied();
                    let number = number.map_or(self.listeners.len(), |number| number as usize);
                    if number == self.listeners.len() {
                        self.listeners.push(None);
                    }
                    let number = u32::try_from(number).expect("fewer listeners than 2³²");
                    self.addresses.push((number, address.clone()));
                }
                sites.push(index);
            }
        }
        for (number, address) in &self.addresses {
            let sites = &by_endpoint[&Endpoint::of(address)];
            let chosen = sites.iter().find(|index| config.sites[**index].is_default);
            let mut hosts = Hosts::new(SiteId::new(*chosen.unwrap_or(&sites[0])));
            for index in sites {
                for host in &config.sites[*index].hosts {
                    let added = hosts.add(host, SiteId::new(*index), address.port());
                    added.map_err(|error| format!("{error} among the sites of {address}"))?;
                }
            }
            let routes = sites.iter().flat_map(|index| &config.sites[*index].routes);
            let mut says = sites.iter().map(|index| &config.sites[*index].proxy_protocol);
            let proxy_protocol = says.any(|addresses| addresses.contains(address));
            let admission = Admission::new(address, routes, proxy_protocol);
            self.listeners[*number as usize] = Some(Listener { hosts, admission });
        }
        Ok(())
    }

    fn add_tree(
        &mut self,
        files: &Files,
        prefix: Box<[u8]>,
        fields: Rules,
        Common { roots, rules, .. }: &mut Common,
    ) -> TreeIndex {
        let next = self.roots.len();
        let root = *roots.entry(files.root.clone()).or_insert(next);
        if root == next {
            self.roots.push(files.root.clone());
        }
        // Neighbors mostly have the same rules.
        let rules = match rules.last() {
            Some(last) if **last == files.rules => Arc::clone(last),
            _ => {
                rules.push(Arc::new(files.rules.clone()));
                Arc::clone(&rules[rules.len() - 1])
            }
        };
        self.trees.push(TreeSpec { root, rules, prefix, fields });
        TreeIndex(self.trees.len() - 1)
    }

    /// The listeners: their numbers and addresses, without repetitions.
    #[must_use]
    pub fn addresses(&self) -> &[(u32, Address)] {
        &self.addresses
    }

    /// What clients are asked for at a listener.
    pub(crate) fn admission(&self, listener: u32) -> Admission {
        self.listener(listener).map_or_else(Admission::default, |listener| listener.admission)
    }

    /// A listener; `None` if the configuration does not have it.
    #[inline]
    fn listener(&self, number: u32) -> Option<&Listener> {
        self.listeners.get(number as usize)?.as_ref()
    }

    /// The address of a listener.
    pub(crate) fn address(&self, listener: u32) -> Option<&Address> {
        let found = self.addresses.iter().find(|(number, _)| *number == listener);
        found.map(|(_, address)| address)
    }

    /// The proxies that are believed.
    pub(crate) const fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The limits of clients.
    pub(crate) const fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// The directories to open, without repetitions.
    #[must_use]
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The logs to open, without repetitions.
    #[must_use]
    pub fn logs(&self) -> Vec<Log> {
        let mut seen = HashSet::new();
        let all = self.records.iter().map(|(_, log)| log);
        all.filter(|log| log.target != LogTarget::None && seen.insert(*log)).cloned().collect()
    }

    /// The name and the log of each site.
    pub(crate) fn records(&self) -> &[(String, Log)] {
        &self.records
    }

    /// Returns whether a route shows the metrics, so that requests are to be counted.
    pub(crate) const fn shows_metrics(&self) -> bool {
        self.shows_metrics
    }

    /// Compares the configuration with the one that replaces it. `same_root` takes the index of a directory
    /// of `next`, and returns that of the same directory here, if it is open here.
    #[must_use]
    pub fn succession(
        &self,
        next: &Self,
        same_root: impl Fn(usize) -> Option<usize>,
    ) -> Succession {
        let mut by_root: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
        for (index, tree) in self.trees.iter().enumerate() {
            by_root.entry(tree.root).or_default().push_back(index);
        }
        let mut same_tree = |spec: &TreeSpec| {
            let mine = by_root.get_mut(&same_root(spec.root)?)?;
            let is_same = |index: &usize| self.trees[*index].is_served_as(spec);
            let place = mine.iter().take(SAME_ROOT_LOOKS_MAX).position(is_same)?;
            mine.remove(place)
        };
        let trees = next.trees.iter().map(&mut same_tree).collect();
        let gone = by_root.into_values().flatten().collect();
        let is_removed = |number: &u32| next.listeners[*number as usize].is_none();
        let mine = self.addresses.iter().map(|(number, _)| *number);
        let mut removed: Vec<u32> = mine.filter(is_removed).collect();
        removed.sort_unstable();
        Succession { trees, gone, removed }
    }

    /// The indices of the roots whose directories are opened for trees that are not kept, with repetitions.
    pub(crate) fn new_roots(&self, succession: &Succession) -> impl Iterator<Item = usize> {
        let all = self.trees.iter().zip(&succession.trees);
        all.filter(|(_, kept)| kept.is_none()).map(|(tree, _)| tree.root)
    }

    /// The number of sites.
    pub(crate) const fn sites_len(&self) -> usize {
        self.sites.len()
    }

    /// The number of routes.
    pub(crate) const fn routes_len(&self) -> usize {
        self.routes.len()
    }

    /// The settings of each worker.
    pub(crate) const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The trees of the routes that serve files.
    pub(crate) fn trees(&self) -> &[TreeSpec] {
        &self.trees
    }
}

/// The parts that routes of a configuration have in common, while they are prepared.
#[derive(Default)]
struct Common {
    /// The indices of the directories.
    roots: HashMap<PathBuf, usize>,
    /// The rules of the trees so far.
    rules: Vec<Arc<FileRules>>,
    /// The files of redirects by their paths.
    redirects: HashMap<PathBuf, Arc<Redirects>>,
}

/// Refuses media types and character sets that no response could say.
fn check_types(FileRules { types, charset, .. }: &FileRules) -> Result<(), String> {
    types.iter().try_for_each(|(name, value)| rule::type_of(name, value).map(drop))?;
    charset.iter().try_for_each(|name| rule::charset(name).map(drop))
}

/// The place of a listener. Two listeners cannot have the same one, whatever the rights of a Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Endpoint<'a> {
    Ip(SocketAddr),
    Unix(&'a Path),
}

impl<'a> Endpoint<'a> {
    fn of(address: &'a Address) -> Self {
        match address {
            Address::Ip(address) => Self::Ip(*address),
            Address::Unix(socket) => Self::Unix(&socket.path),
        }
    }
}

impl Succession {
    /// For each tree of the next configuration its index in the one before, if it had it.
    pub(crate) fn trees(&self) -> &[Option<usize>] {
        &self.trees
    }

    /// The indices of the trees that the next configuration does not have.
    pub(crate) fn gone(&self) -> &[usize] {
        &self.gone
    }

    /// The numbers of the listeners that the next configuration does not have, in order.
    pub(crate) fn removed(&self) -> &[u32] {
        &self.removed
    }

    /// Returns whether the next configuration does not have a listener.
    pub(crate) fn removes(&self, listener: u32) -> bool {
        self.removed.binary_search(&listener).is_ok()
    }
}

/// The reason why a file of redirects is not used.
#[derive(Debug)]
pub(crate) enum NoRedirects {
    /// It cannot be read: a sentence for the operator.
    Unreadable(String),
    /// There are mistakes in it.
    Wrong(Vec<Message>),
}

impl fmt::Display for NoRedirects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => f.write_str(why),
            Self::Wrong(messages) => {
                f.write_str("the file of redirects has errors:")?;
                messages.iter().try_for_each(|message| write!(f, "\n{message}"))
            }
        }
    }
}

/// Reads a file of redirects.
///
/// # Errors
///
/// See [`NoRedirects`].
pub(crate) fn read_redirects(path: &Path) -> Result<Redirects, NoRedirects> {
    let read = || -> io::Result<String> {
        let max = redirect::FILE_BYTES_MAX;
        let bytes = read_regular(path, max).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                io::Error::other(format!("it is longer than {max} bytes"))
            }
            _ => error,
        })?;
        String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
    };
    let text = read().map_err(|error| {
        NoRedirects::Unreadable(format!("cannot read {}: {error}", path.display()))
    })?;
    Redirects::parse(&text).map_err(|mistakes| {
        let places = mistakes.first.into_iter().map(|mistake| (mistake.place, mistake.text));
        NoRedirects::Wrong(Message::of_file(path, text.into(), places, mistakes.more))
    })
}

/// A snapshot, as one worker serves it.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The worker's trees, in the order of those of the snapshot.
    trees: Vec<TreeId>,
    /// Where the requests of each site are recorded; empty if those of none are.
    recordings: Vec<Option<Rc<Recording>>>,
}

/// The default configuration, without trees: for handlers that serve no files.
impl Default for Serving {
    fn default() -> Self {
        let snapshot = Snapshot::new(&Config::default()).expect("a valid configuration");
        Self::new(Arc::new(snapshot), Vec::new())
    }
}

impl Serving {
    pub(crate) const fn new(snapshot: Arc<Snapshot>, trees: Vec<TreeId>) -> Self {
        Self { snapshot, trees, recordings: Vec::new() }
    }

    /// The same with the places where the requests of each site are recorded; empty if those of none are.
    pub(crate) fn recorded(self, recordings: Vec<Option<Rc<Recording>>>) -> Self {
        Self { recordings, ..self }
    }

    /// The place where the requests of a site are recorded, if they are.
    #[inline]
    pub(crate) fn recording(&self, site: SiteId) -> Option<Rc<Recording>> {
        self.recordings.get(site.index())?.clone()
    }

    /// Returns the site that a request is for, by its listener and its host; `None` if the configuration does
    /// not have the listener.
    #[inline]
    pub(crate) fn site(&self, listener: u32, head: &Head<'_>) -> Option<SiteId> {
        Some(self.snapshot.listener(listener)?.hosts.site(head))
    }

    /// Returns the site for requests to a listener that name no host, or cannot be understood.
    pub(crate) fn default_site(&self, listener: u32) -> Option<SiteId> {
        Some(self.snapshot.listener(listener)?.hosts.default_site())
    }

    /// A route as requests meet it: what is asked for each of them is looked up once.
    #[inline]
    pub(crate) fn entry(&self, id: RouteId) -> &RouteEntry {
        &self.snapshot.routes[id.index()]
    }

    /// A tree of this worker.
    #[inline]
    pub(crate) fn tree_at(&self, TreeIndex(index): TreeIndex) -> TreeId {
        self.trees[index]
    }

    /// Returns the route of a path of a site. See [`Routes::find`].
    #[inline]
    pub(crate) fn place(&self, site: SiteId, path: &[u8]) -> Place {
        Place { site, route: self.snapshot.sites[site.index()].find(path) }
    }

    /// The same for a request that is handed over or is the server's own, which internal routes answer, too.
    pub(crate) fn inner_place(&self, site: SiteId, path: &[u8]) -> Place {
        match &self.snapshot.inner[site.index()].paths {
            Some(routes) => Place { site, route: routes.find(path) },
            None => self.place(site, path),
        }
    }

    /// Returns whether requests to a site can be handed over to files.
    pub(crate) fn has_files(&self, site: SiteId) -> bool {
        self.snapshot.inner[site.index()].has_files
    }

    /// The file at a path below the directory of a route.
    pub(crate) fn page_at(&self, route: RouteId, path: &[u8]) -> Option<Page> {
        self.snapshot.page_at(route, path)
    }

    /// The file of a site that has this path in the file system: of its route with the longest directory
    /// above it. A path is not resolved, so a directory must be written as the application writes it.
    pub(crate) fn page_of_file(&self, site: SiteId, path: &[u8]) -> Option<Page> {
        let path = Path::new(OsStr::from_bytes(path));
        let is_plain = path.components().all(|part| !matches!(part, Component::ParentDir));
        let routes = self.snapshot.inner[site.index()].routes.clone();
        let entries = routes.clone().zip(&self.snapshot.routes[routes]);
        let below = entries.filter_map(|(index, RouteEntry { route, .. })| {
            let files = route.action.files().filter(|_| is_plain && route.pattern.is_none())?;
            let root = std::path::absolute(&files.root).ok()?;
            Some((path.strip_prefix(&root).ok()?, RouteId::new(index)))
        });
        // The first of those with the same directory, as their order in the configuration is.
        let (rest, route) = below.min_by_key(|(rest, _)| rest.as_os_str().len())?;
        // Without `.` and slashes that mean nothing.
        let rest: PathBuf = rest.components().collect();
        self.page_at(route, rest.as_os_str().as_bytes())
    }

    /// Returns whether an application of a site has the scripts at this path in the file system.
    pub(crate) fn has_scripts_at(&self, site: SiteId, path: &Path) -> bool {
        let routes = self.snapshot.inner[site.index()].routes.clone();
        self.snapshot.routes[routes].iter().any(|RouteEntry { route, .. }| {
            let Action::Fastcgi(Fastcgi { files, root, .. }) = &route.action else { return false };
            let roots = files.as_ref().map(|files| &files.root).into_iter().chain(root);
            roots.flat_map(std::path::absolute).any(|root| path.starts_with(root))
        })
    }

    /// The route whose path is this one with a slash at its end, if there is one.
    pub(crate) fn directory(&self, site: SiteId, path: &[u8]) -> Option<RouteId> {
        let id = self.snapshot.sites[site.index()].find_directory(path)?;
        (self.route(id).path.as_bytes().strip_suffix(b"/") == Some(path)).then_some(id)
    }

    /// The rules for the fields of the responses of a route.
    pub(crate) fn fields(&self, id: RouteId) -> &Rules {
        &self.snapshot.routes[id.index()].fields
    }

    /// The file that is served where a route has nothing.
    pub(crate) fn fallback(&self, id: RouteId) -> Option<&Page> {
        self.snapshot.routes[id.index()].fallback.as_ref()
    }

    /// The page for the status of an error: of the route, or of the site if there is no route.
    pub(crate) fn page(&self, place: Place, status: Status) -> Option<&Page> {
        let pages = match place.route {
            Some(id) => &self.snapshot.routes[id.index()].pages,
            None => &self.snapshot.inner[place.site.index()].pages,
        };
        pages.get(&status.code())
    }

    /// The file of redirects of a route.
    pub(crate) fn redirects(&self, id: RouteId) -> Option<&Redirects> {
        self.snapshot.routes[id.index()].matcher.redirects.as_deref()
    }

    /// A route.
    #[inline]
    pub(crate) fn route(&self, id: RouteId) -> &Route {
        &self.snapshot.routes[id.index()].route
    }

    /// The conditions on which a route answers a client, if it has some.
    #[inline]
    pub(crate) fn guard(&self, id: RouteId) -> Option<&Guard> {
        self.snapshot.routes[id.index()].guard.as_deref()
    }

    /// The path of a route with a slash at the end. What requests have behind it is a path of its tree.
    #[inline]
    pub(crate) fn prefix(&self, id: RouteId) -> &[u8] {
        &self.snapshot.routes[id.index()].prefix
    }

    /// The worker's trees that have this one of [`Snapshot::roots`].
    pub(crate) fn trees_of(&self, root: usize) -> impl Iterator<Item = TreeId> {
        let all = self.snapshot.trees.iter().zip(&self.trees);
        all.filter(move |(spec, _)| spec.root == root).map(|(_, tree)| *tree)
    }

    /// The programs of a route that has some.
    pub(crate) fn programs(&self, id: RouteId) -> Option<&Arc<Directory>> {
        self.snapshot.routes[id.index()].served.programs()
    }

    /// The servers that the requests of a route are passed on to, if there are some.
    pub(crate) fn upstream(&self, id: RouteId) -> Option<&Arc<Upstream>> {
        self.snapshot.routes[id.index()].served.upstream()
    }

    /// The worker's trees, in the order of those of the snapshot.
    pub(crate) fn trees(&self) -> &[TreeId] {
        &self.trees
    }

    /// The tree of a route that serves files.
    #[inline]
    pub(crate) fn tree(&self, id: RouteId) -> Option<TreeId> {
        self.snapshot.routes[id.index()].served.tree().map(|tree| self.tree_at(tree))
    }

    /// The scripts of a route that has some.
    pub(crate) fn scripts(&self, id: RouteId) -> Option<&Fastcgi> {
        match &self.route(id).action {
            Action::Fastcgi(fastcgi) => Some(fastcgi),
            _ => None,
        }
    }
}

/// The directory of the files that a site has at `/`, where programs expect its documents.
fn documents_of(site: &Site) -> Option<PathBuf> {
    let has_all = |route: &&Route| route.path == "/" && route.pattern.is_none();
    let files = site.routes.iter().filter(has_all).find_map(|route| route.action.files());
    files.map(|files| files.root.clone())
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::config::{Cgi, HeaderRule, Redirect, UnixSocket};

    #[test]
    fn programs_count_against_their_limits_after_a_reload_unless_these_were_changed() {
        let route = |path: &str, timeout| Route {
            path: path.to_owned(),
            action: Action::Cgi(Cgi {
                timeout: Duration::from_secs(timeout),
                ..Cgi::new("/srv/cgi".into())
            }),
            ..Route::default()
        };
        let mut config = Config::default();
        config.sites[0].routes = vec![route("/a", 1), route("/b", 1), route("/c", 1)];
        let before = Snapshot::new(&config).unwrap();
        config.sites[0].routes = vec![route("/b", 1), route("/b", 1), route("/c", 2)];
        let after = before.successor(&config).unwrap();
        let programs = |snapshot: &Snapshot, index: usize| {
            Arc::clone(snapshot.routes[index].served.programs().unwrap())
        };
        let all: Vec<_> = (0..3).map(|index| programs(&before, index)).collect();
        let is_kept = (0..3).map(|index| {
            let programs = programs(&after, index);
            all.iter().position(|before| Arc::ptr_eq(before, &programs))
        });
        assert_eq!(is_kept.collect::<Vec<_>>(), [Some(1), None, None]);
    }

    fn config(roots: &[(&str, &str)], listen: &[Address]) -> Config {
        let mut config = Config::default();
        let site = &mut config.sites[0];
        site.listen = listen.to_vec();
        let route = |(number, (root, index)): (usize, &(&str, &str))| {
            let rules = FileRules { index: (*index).to_owned(), ..FileRules::default() };
            let files = Files { root: root.into(), rules };
            Route { path: format!("/{number}/"), action: Action::Files(files), ..Route::default() }
        };
        site.routes = roots.iter().enumerate().map(route).collect();
        config
    }

    fn tcp(port: u16) -> Address {
        Address::Ip(([127, 0, 0, 1], port).into())
    }

    fn unix(mode: u32) -> Address {
        Address::Unix(UnixSocket { path: "/s".into(), mode: Some(mode), ..UnixSocket::default() })
    }

    #[test]
    fn a_listener_keeps_its_number_and_no_other_gets_it() {
        let number = |snapshot: &Snapshot, wanted: &Address| {
            let all = snapshot.addresses().iter();
            all.filter(|(_, address)| address == wanted).map(|(number, _)| *number).next()
        };
        let first = Snapshot::new(&config(&[], &[tcp(1), tcp(2), unix(0o600)])).unwrap();
        assert_eq!([number(&first, &tcp(1)), number(&first, &tcp(2))], [Some(0), Some(1)]);
        // In another order, and with other rights.
        let second = first.successor(&config(&[], &[unix(0o660), tcp(3), tcp(1)])).unwrap();
        assert_eq!([number(&second, &tcp(1)), number(&second, &tcp(3))], [Some(0), Some(3)]);
        assert_eq!(number(&second, &unix(0o660)), Some(2));
        let succession = first.succession(&second, |_| None);
        assert_eq!(succession.removed(), [1]);
        assert!(succession.removes(1) && !succession.removes(0) && !succession.removes(3));
        let third = second.successor(&config(&[], &[tcp(2)])).unwrap();
        assert_eq!(number(&third, &tcp(2)), Some(4));
        assert_eq!(second.succession(&third, |_| None).removed(), [0, 2, 3]);
        assert!(third.listener(0).is_none() && third.listener(4).is_some());
        assert!(third.listener(5).is_none());
    }

    #[test]
    fn trees_of_the_same_directory_with_the_same_rules_are_kept_once() {
        let before = [("a", "i"), ("b", "i"), ("a", "j"), ("a", "i"), ("c", "i")];
        let before = Snapshot::new(&config(&before, &[tcp(1)])).unwrap();
        let after = [("a", "j"), ("d", "i"), ("a", "i"), ("a", "i"), ("a", "i"), ("b", "j")];
        let after = before.successor(&config(&after, &[tcp(1)])).unwrap();
        let same =
            |root: usize| before.roots().iter().position(|path| *path == after.roots()[root]);
        let succession = before.succession(&after, same);
        assert_eq!(succession.trees(), [Some(2), None, Some(0), Some(3), None, None]);
        assert_eq!(succession.gone(), [1, 4]);
        let new: Vec<_> = after.new_roots(&succession).map(|root| &after.roots()[root]).collect();
        assert_eq!(new, [Path::new("d"), Path::new("a"), Path::new("b")]);
        // The same paths, but other directories.
        let none = before.succession(&before, |_| None);
        assert!(none.trees().iter().all(Option::is_none) && none.gone().len() == 5);
    }

    fn files(path: &str, change: impl FnOnce(&mut FileRules)) -> Route {
        let mut rules = FileRules::default();
        change(&mut rules);
        let action = Action::Files(Files { root: "/srv".into(), rules });
        Route { path: path.to_owned(), action, ..Route::default() }
    }

    fn redirect(path: &str, to: &str) -> Route {
        let action = Action::Redirect(Redirect { to: to.to_owned(), status: 308 });
        Route { path: path.to_owned(), action, ..Route::default() }
    }

    fn snapshot(routes: Vec<Route>) -> Result<Snapshot, String> {
        let mut config = Config::default();
        config.sites[0].routes = routes;
        Snapshot::new(&config)
    }

    #[test]
    fn fallbacks_and_pages_lead_to_files_of_any_route_of_the_site() {
        let mut internal = files("/.errors/", |rules| rules.clean_urls = true);
        internal.is_internal = true;
        let mut first = files("/", |rules| rules.fallback = Some("/app/index.html".to_owned()));
        first.errors = [(404, "/.errors/404.html"), (503, "/app/"), (403, "/.errors/index.html")]
            .map(|(code, path)| (code, path.to_owned()))
            .into();
        let routes = vec![first, files("/app", |_| ()), internal];
        let snapshot = snapshot(routes).unwrap();
        let entry = &snapshot.routes[0];
        let page =
            |route, path: &str| Page { route: RouteId::new(route), path: path.as_bytes().into() };
        assert_eq!(entry.fallback, Some(page(1, "index.html")));
        let expected = [(403, page(2, "")), (404, page(2, "404")), (503, page(1, ""))];
        assert_eq!(entry.pages, expected.into());
    }

    #[test]
    fn a_configuration_that_leads_nowhere_is_refused() {
        let header = |set: &[(&str, &str)], remove: &[&str]| {
            let set = set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let remove = remove.iter().map(|name| (*name).into()).collect();
            vec![HeaderRule { pattern: None, set, remove }]
        };
        let headers = |headers| vec![Route { headers, ..files("/", |_| ()) }];
        let errors = |code, path: &str| {
            vec![Route { errors: [(code, path.to_owned())].into(), ..files("/", |_| ()) }]
        };
        let fallback = |path: &str| files("/a/", |rules| rules.fallback = Some(path.to_owned()));
        let mut circle = redirect("/", "/b?c");
        circle.pattern = Some(Pattern::new("/b*").unwrap());
        for (routes, expected) in [
            (vec![fallback("/index.html")], "the fallback /index.html leads to no files"),
            (vec![fallback("/b/x"), redirect("/b/", "/a/")], "the fallback /b/x leads to no files"),
            (errors(404, "404.html"), "the page for 404, 404.html leads to no files"),
            (errors(200, "/a"), "200 is no status of an error"),
            (errors(416, "/a"), "the page for the status 416 cannot be a file"),
            (vec![redirect("/a/", "/a/b")], "the redirect from /a/ leads to itself"),
            (vec![circle], "the redirect from /b* leads to itself"),
            (vec![redirect("/a/", "/$1")], "the target \"/$1\" has $1"),
            (headers(header(&[("Date", "x")], &[])), "Date: only the server itself"),
            (headers(header(&[("A", "x\n")], &[])), "\"x\\n\": a value has"),
            (headers(header(&[], &["A B"])), "\"A B\" is no name"),
        ] {
            let error = snapshot(routes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(snapshot(vec![fallback("/a/x"), redirect("/", "/a/")]).is_ok());
        assert!(snapshot(vec![redirect("/a/", "/a/$0/b")]).is_ok(), "each request shows it");
    }
}

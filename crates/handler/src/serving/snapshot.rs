//! Prepares a configuration for requests.

mod listeners;
mod named_files;
mod succession;

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use http::{FieldSection, Status};

use super::redirects::read_redirects;
use crate::challenges::Challenges;
use crate::guard::{Guard, Guards};
use config::redirect::{self, Redirects};
use config::route::{Matcher, RouteId, Routes};
use config::{
    self, Access, Action, Config, FileRules, Files, FixedStatus, HeaderRule, Https, Limits, Listen,
    Log, LogFormat, LogTarget, Pattern, Piece, RequestHeader, Route, Secrets, Site, Tls, Tuning,
    Variable, rule, site,
};
use content::TreeSpec;
use content::sources::Runners;
use gateways::programs::Directory;
use gateways::quota::Quota;
use listeners::{Endpoint, Listener};
use logs::say::say;
pub(crate) use named_files::NamedFile;
use session::client::Proxies;
use session::fields::{HSTS, Rules};
use session::forwarded::Scheme;
use session::limits::Limiter;
pub use succession::Succession;
use tls::SharedClientSettings;
use upstream::Upstream;
use upstream::names::Names;

/// The time for which a start and a reload wait for the names of servers to be resolved.
const NAMES_PATIENCE: Duration = Duration::from_secs(5);

/// A configuration, prepared for requests.
#[derive(Debug)]
pub struct Snapshot {
    /// The listeners with their numbers, in the order of the configuration. Connections name their listener by its
    /// number. So a listener keeps its number when the configuration is replaced, and no other listener gets the number
    /// afterwards.
    listeners: Vec<(u32, Listen)>,
    /// The listeners in the form for connections, by their numbers.
    prepared: Vec<Option<Listener>>,
    proxies: Proxies,
    limiter: Arc<Limiter>,
    /// The limit of the files in which bodies of requests wait.
    quota: Arc<Quota>,
    names: Arc<Names>,
    pub(super) sites: Vec<Routes>,
    /// The routes to which answers of gateways lead, by site, internal routes included.
    pub(super) inner: Vec<Inner>,
    /// True if some site has `https = "redirect"` or `hsts`.
    pub(super) has_scheme_rules: bool,
    /// The same, or some proxy is believed, or there may be challenges.
    pub(super) has_sender_rules: bool,
    /// The challenges of authorities that are answered.
    pub(super) challenges: Arc<Challenges>,
    /// True if the server gets certificates from an authority.
    has_acme: bool,
    pub(super) routes: Vec<RouteEntry>,
    /// The directories, without repetitions.
    roots: Vec<PathBuf>,
    pub(super) trees: Vec<TreeSpec>,
    /// The places where requests are recorded: those of the sites in their order, then those of routes with a log of
    /// their own.
    records: Vec<RecordPlace>,
    /// True if a route shows the metrics, or figures that are made of them.
    shows_metrics: bool,
    /// The fields of requests with the subject of a client's certificate, left out: no client may send them.
    reserved: Vec<RequestHeader>,
    tuning: Tuning,
    /// The values that no output shows.
    secrets: Secrets,
}

/// A route in the form for requests.
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pub(crate) route: Route,
    /// Its path with a slash at the end.
    pub(crate) prefix: Box<[u8]>,
    /// The values that were made for its action.
    pub(crate) served: Served,
    /// The conditions under which it answers a client, if it has some.
    pub(crate) guard: Option<Box<Guard>>,
    /// The place where its requests are recorded, among [`Snapshot::records`], if it has a log of its own.
    pub(crate) record: Option<usize>,
    /// The rules for the fields of its responses.
    pub(crate) fields: Rules,
    /// The conditions on the paths of its requests, in addition to the path of the route.
    pub(crate) matcher: Matcher,
    /// The file that is served if the route has nothing for a path.
    pub(super) fallback: Option<NamedFile>,
    /// The error pages.
    pub(super) error_pages: BTreeMap<u16, NamedFile>,
}

/// The values that are made for the action of a route.
#[derive(Debug)]
pub(crate) enum Served {
    Files {
        tree: TreeIndex,
        /// True if files of the route may have directives.
        has_pages: bool,
    },
    /// Scripts, and perhaps other files of the same tree.
    Scripts {
        tree: Option<TreeIndex>,
        upstream: Arc<Upstream>,
    },
    Programs(Arc<Directory>),
    Proxy(Arc<Upstream>),
    /// One redirect, or those of a list.
    Redirect,
    Metrics,
    StatusPage,
    /// A fixed status.
    Status(Status),
}

/// The position of a tree among those of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeIndex(pub(super) usize);

/// All routes of a site.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) paths: Option<Routes>,
    /// The indices of the routes among [`Snapshot::routes`].
    pub(super) routes: Range<usize>,
    /// True if some of the routes serve files.
    pub(super) has_files: bool,
    /// The clients that may use the site, for responses that no route makes.
    pub(super) access: Access,
    /// The limits of these responses.
    pub(super) limits: Limits,
    /// The same conditions in the form for requests, if there are some.
    pub(super) guard: Option<Box<Guard>>,
    /// The rules for the fields of responses that no route makes.
    pub(super) fields: Rules,
    /// True if these responses have a `Server-Timing` field.
    pub(super) server_timing: bool,
    /// The error pages for requests without a route.
    pub(super) error_pages: BTreeMap<u16, NamedFile>,
    /// `Some` if requests without TLS are redirected.
    pub(super) to_https: Option<ToHttps>,
    /// The certificates of the site and the demands on those of clients, if it has its own.
    pub(super) tls: Option<Tls>,
    /// The field `Strict-Transport-Security`, if responses over TLS have it.
    pub(super) hsts: Option<FieldSection<'static>>,
}

/// The address to which a site redirects requests without TLS.
#[derive(Debug)]
pub(crate) struct ToHttps {
    /// The host for requests whose own host the site does not list: the first that is no wildcard, if there is one.
    pub(crate) name: Option<String>,
    /// The port of the site's first listener with TLS, if the URL has to name it.
    pub(crate) port: Option<u16>,
}

impl ToHttps {
    /// The port of URLs with `https` that name none.
    const DEFAULT_PORT: u16 = Scheme::Https.port();

    fn of(site: &Site) -> Option<Self> {
        if site.https == Https::Allow {
            return None;
        }
        let mut ports = site.listen.iter().filter(|listen| listen.tls);
        let port = ports.find_map(|listen| listen.address.port());
        // With port 0 the kernel has chosen the port.
        let port = port.filter(|port| ![0, Self::DEFAULT_PORT].contains(port));
        Some(Self { name: site::first_name(&site.hosts), port })
    }
}

impl Served {
    pub(crate) const fn tree(&self) -> Option<TreeIndex> {
        match self {
            Self::Files { tree, .. } => Some(*tree),
            Self::Scripts { tree, .. } => *tree,
            Self::Programs(_)
            | Self::Proxy(_)
            | Self::Redirect
            | Self::Metrics
            | Self::StatusPage
            | Self::Status(_) => None,
        }
    }

    pub(super) const fn programs(&self) -> Option<&Arc<Directory>> {
        match self {
            Self::Programs(programs) => Some(programs),
            _ => None,
        }
    }

    pub(super) const fn upstream(&self) -> Option<&Arc<Upstream>> {
        match self {
            Self::Scripts { upstream, .. } | Self::Proxy(upstream) => Some(upstream),
            Self::Files { .. }
            | Self::Programs(_)
            | Self::Redirect
            | Self::Metrics
            | Self::StatusPage
            | Self::Status(_) => None,
        }
    }

    const fn upstream_mut(&mut self) -> Option<&mut Arc<Upstream>> {
        match self {
            Self::Scripts { upstream, .. } | Self::Proxy(upstream) => Some(upstream),
            Self::Files { .. }
            | Self::Programs(_)
            | Self::Redirect
            | Self::Metrics
            | Self::StatusPage
            | Self::Status(_) => None,
        }
    }
}

impl Snapshot {
    /// The challenges of authorities that are answered, which all snapshots of a process share.
    pub fn challenges(&self) -> Arc<Challenges> {
        Arc::clone(&self.challenges)
    }

    /// Returns true if the server gets certificates from an authority.
    pub(crate) fn has_acme(&self) -> bool {
        self.has_acme
    }

    /// Prepares a configuration, and reads its files of redirects.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if there is no site, or the hosts of the sites of one address are not
    /// valid or are listed twice, or a rule of a route is not valid or leads to no file.
    pub fn new(config: &Config) -> Result<Self, String> {
        Self::numbered(config, &HashMap::new(), 0)
    }

    /// Prepares a configuration. `numbers` has the existing listeners; others get numbers from `next` on.
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
            prepared: Vec::new(),
            proxies: Proxies::new(&config.server.trusted_proxies),
            limiter: Limiter::new(),
            quota: Quota::new(config.server.tuning.body_files_max, rights::descriptors::limit()),
            names: Arc::new(Names::new(say)),
            sites: Vec::new(),
            inner: Vec::new(),
            has_scheme_rules: config.sites.iter().any(has_scheme_rules),
            has_sender_rules: !config.server.trusted_proxies.is_empty()
                || config.acme.is_some()
                || config.sites.iter().any(has_scheme_rules),
            has_acme: config.acme.is_some(),
            challenges: Arc::default(),
            routes: Vec::new(),
            roots: Vec::new(),
            trees: Vec::new(),
            records: Vec::new(),
            shows_metrics: false,
            reserved: reserved_of(config),
            tuning: config.server.tuning.clone(),
            secrets: config.secrets.clone(),
        };
        made.add_listeners(config, numbers, next)?;
        for (index, site) in config.sites.iter().enumerate() {
            made.records.push(RecordPlace::new(index, site, &site.log));
        }
        let mut guards = Guards::default();
        let mut common = Common::default();
        for (index, site) in config.sites.iter().enumerate() {
            let first = made.routes.len();
            for route in &site.routes {
                made.shows_metrics |= shows_metrics(route);
                // The command line may set another `rate-min` than the file.
                let checked = route.limits.check_rate(&config.server.tuning);
                checked.map_err(|error| format!("bytes-per-connection: {error}"))?;
                let entry = made.entry(site, route, &mut common);
                let mut entry =
                    entry.map_err(|error| format!("{} {}: {error}", site.name, route.name()))?;
                entry.guard = guards.of(&site.name, route).map(Box::new);
                if let Some(log) = route.log.as_ref().filter(|log| **log != site.log) {
                    entry.record = Some(made.records.len());
                    made.records.push(RecordPlace::new(index, site, log));
                }
                made.routes.push(entry);
            }
            let checked = site.limits.check_rate(&config.server.tuning);
            checked.map_err(|error| format!("{}: bytes-per-connection: {error}", site.name))?;
            let open = made.routes_of(first, |entry| !entry.route.is_internal);
            let error_pages = made.resolve_named_files(first, &site.errors);
            let error_pages = error_pages.map_err(|error| format!("{}: {error}", site.name))?;
            let fields = fields_of(&site.headers);
            let fields = fields.map_err(|error| format!("{}: {error}", site.name))?;
            made.sites.push(open);
            let has_internal = made.routes[first..].iter().any(|entry| entry.route.is_internal);
            made.inner.push(Inner {
                paths: has_internal.then(|| made.routes_of(first, |_| true)),
                routes: first..made.routes.len(),
                has_files: made.routes[first..].iter().any(|entry| entry.served.tree().is_some()),
                access: site.access.clone(),
                limits: site.limits,
                guard: guards.of_site(site).map(Box::new),
                fields,
                server_timing: site.server_timing,
                error_pages,
                to_https: ToHttps::of(site),
                tls: site.tls.clone(),
                hsts: site.hsts.map(hsts_of),
            });
        }
        made.hide_sources();
        Ok(made)
    }

    /// Sets for each tree the files that any route runs.
    fn hide_sources(&mut self) {
        let runners = Runners::of(self.routes.iter().map(|entry| &entry.route));
        for entry in &self.routes {
            if let Some(TreeIndex(tree)) = entry.served.tree() {
                let tree = &mut self.trees[tree];
                let own = matches!(entry.served, Served::Scripts { .. });
                tree.sources = runners.below(&self.roots[tree.root], own);
            }
        }
    }

    /// Prepares a route, without its conditions and without the files to which it hands requests over.
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
        // Adjacent routes often have the same rules, which are then shared.
        let fields = match self.routes.last() {
            Some(last) if last.route.headers == route.headers => last.fields.clone(),
            _ => fields_of(&route.headers)?,
        };
        let mut matcher = Matcher { pattern: route.pattern.clone(), redirects: None };
        let upstream = |config: &config::Upstream| {
            Upstream::new(config, format!("{}{}", site.name, route.path), None, None)
        };
        let mut tree = |files: &Files| {
            check_types(&files.rules)?;
            if files.rules.index.is_empty() {
                return Err("the index of a directory has no name".to_owned());
            }
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
            Action::StatusPage => Served::StatusPage,
            Action::Status(fixed) => Served::Status(FixedStatus::check_code(fixed.code)?),
        };
        let (mut route, error_pages) = (route.clone(), BTreeMap::new());
        if matches!(route.action, Action::Proxy(_)) && !self.reserved.is_empty() {
            let own = &route.request_headers;
            let is_own = |field: &&RequestHeader| is_among(own, field.name());
            let others = self.reserved.iter().filter(|field| !is_own(field));
            route.request_headers = own.iter().chain(others).cloned().collect();
        }
        let (guard, fallback, record) = (None, None, None);
        Ok(RouteEntry {
            route,
            prefix,
            served,
            guard,
            record,
            fields,
            matcher,
            fallback,
            error_pages,
        })
    }

    /// The paths of the routes from `first` on. Paths of routes that are not open are closed.
    fn routes_of(&self, first: usize, is_open: impl Fn(&RouteEntry) -> bool) -> Routes {
        let routes = self.routes[first..].iter().zip(first..);
        Routes::new(routes.map(|(entry, index)| {
            let id = is_open(entry).then(|| RouteId::new(index));
            (&entry.route.path[..], entry.matcher.clone(), id)
        }))
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
        // Adjacent routes often have the same rules.
        let rules = match rules.last() {
            Some(last) if **last == files.rules => Arc::clone(last),
            _ => {
                rules.push(Arc::new(files.rules.clone()));
                Arc::clone(&rules[rules.len() - 1])
            }
        };
        let directory = files.root.as_path().into();
        self.trees.push(TreeSpec { root, directory, rules, prefix, fields, sources: None });
        TreeIndex(self.trees.len() - 1)
    }

    /// Gives the upstreams with TLS their settings. Before that their servers cannot be asked.
    pub fn set_upstream_tls(
        &self,
        settings_of: impl Fn(&config::Upstream) -> Option<Arc<SharedClientSettings>>,
    ) {
        for entry in &self.routes {
            if let (Some(config), Some(upstream)) =
                (entry.route.action.upstream(), entry.served.upstream())
                && let Some(settings) = settings_of(config)
            {
                upstream.set_tls(settings);
            }
        }
    }

    /// The upstreams to which the requests of routes are passed on.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.routes.iter().filter_map(|entry| entry.served.upstream())
    }

    /// The directories of programs of routes.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Arc<Directory>> {
        self.routes.iter().filter_map(|entry| entry.served.programs())
    }

    /// Begins to resolve the names of servers, and waits a short time for the results. If the names of an upstream are
    /// not resolved by then, requests for it are answered with an error until they are.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if no thread can be started.
    pub fn resolve_names(&self) -> Result<(), String> {
        let resolve = |upstream: &Arc<Upstream>| upstream.resolve(&self.names);
        let resolved = self.upstreams().try_for_each(resolve);
        resolved.map_err(|error| format!("cannot start a thread for names: {error}"))?;
        self.names.wait(NAMES_PATIENCE);
        Ok(())
    }

    /// The fields of requests that no client may send.
    pub(crate) fn reserved(&self) -> &[RequestHeader] {
        &self.reserved
    }

    /// The trusted proxies.
    pub const fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The limits of clients.
    pub const fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// The limit of the files in which bodies of requests wait.
    pub(crate) const fn quota(&self) -> &Arc<Quota> {
        &self.quota
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
        let all = self.records.iter().map(|place| &place.log);
        all.filter(|log| log.target != LogTarget::None && seen.insert(*log)).cloned().collect()
    }

    /// The places where requests are recorded.
    pub(crate) fn records(&self) -> &[RecordPlace] {
        &self.records
    }

    /// Returns true if a route shows the metrics, or figures that are made of them, so that requests have to be counted.
    pub(crate) const fn shows_metrics(&self) -> bool {
        self.shows_metrics
    }

    /// The number of sites.
    pub const fn sites_len(&self) -> usize {
        self.sites.len()
    }

    /// The number of routes.
    pub const fn routes_len(&self) -> usize {
        self.routes.len()
    }

    /// The routes of all sites.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().map(|entry| &entry.route)
    }

    /// The values that no output shows.
    pub(crate) const fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The settings of each worker.
    pub const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The trees of the routes that serve files.
    pub(crate) fn trees(&self) -> &[TreeSpec] {
        &self.trees
    }
}

/// A place where requests are recorded.
#[derive(Debug)]
pub(crate) struct RecordPlace {
    /// The number of the site.
    pub(crate) site: usize,
    /// The name of the site.
    pub(crate) name: String,
    /// The log, which may be none.
    pub(crate) log: Log,
}

impl RecordPlace {
    fn new(site: usize, Site { name, .. }: &Site, log: &Log) -> Self {
        Self { site, name: name.clone(), log: log.clone() }
    }

    /// Returns true if lines of the log have facts that the usual formats leave out.
    pub(crate) const fn shows_more(&self) -> bool {
        matches!(self.log.format, LogFormat::Json | LogFormat::Own(_))
            || matches!(self.log.target, LogTarget::Journald(_))
    }

    /// Returns true if lines of the log have this variable, which the usual formats leave out, or may have it.
    pub(crate) fn shows(&self, variable: Variable) -> bool {
        match &self.log.format {
            _ if matches!(self.log.target, LogTarget::Journald(_)) => true,
            LogFormat::Json => true,
            LogFormat::Own(own) => own.pieces().contains(&Piece::Variable(variable)),
            LogFormat::Common | LogFormat::Combined => false,
        }
    }
}

/// The parts that routes of a configuration share, while they are prepared.
#[derive(Default)]
struct Common {
    /// The indices of the directories.
    roots: HashMap<PathBuf, usize>,
    /// The rules of the trees so far.
    rules: Vec<Arc<FileRules>>,
    /// The files of redirects by their paths.
    redirects: HashMap<PathBuf, Arc<Redirects>>,
}

/// Refuses media types and character sets that a response could not contain.
fn check_types(rules: &FileRules) -> Result<(), String> {
    let FileRules { types, default_type, charset, .. } = rules;
    rule::media_value(default_type)?;
    types.iter().try_for_each(|(name, value)| rule::type_of(name, value).map(drop))?;
    charset.iter().try_for_each(|name| rule::charset(name).map(drop))
}

/// Checks rules for fields, and prepares them.
fn fields_of(headers: &[HeaderRule]) -> Result<Rules, String> {
    headers.iter().try_for_each(rule::check_header)?;
    Ok(headers.iter().cloned().map(Arc::new).collect())
}

/// The directory of the files that a site serves at `/`, which programs expect as the document root.
fn documents_of(site: &Site) -> Option<PathBuf> {
    let has_all = |route: &&Route| route.path == "/" && route.pattern.is_none();
    let files = site.routes.iter().filter(has_all).find_map(|route| route.action.files());
    files.map(|files| files.root.clone())
}

/// The field that tells browsers to use TLS only, for this time.
fn hsts_of(time: Duration) -> FieldSection<'static> {
    let mut field = FieldSection::EMPTY;
    field.push(HSTS, format!("max-age={}", time.as_secs()).as_bytes());
    field
}

/// Returns true if one of the fields has this name.
fn is_among(fields: &[RequestHeader], name: &str) -> bool {
    fields.iter().any(|field| field.is_named(name.as_bytes()))
}

/// The fields with the subject of a client's certificate, of all routes, left out. Another route may lead to the same
/// application, which would believe a client that sends such a field itself.
fn reserved_of(config: &Config) -> Vec<RequestHeader> {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    let fields = routes.flat_map(|route| route.request_headers.iter());
    let mut reserved: Vec<RequestHeader> = Vec::new();
    for name in fields.filter(|field| field.names_tls_client()).map(RequestHeader::name) {
        // The server writes these on all routes, in place of those of clients.
        let is_written = ["forwarded", "x-forwarded-"].iter().any(|start| {
            name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
        });
        if !is_written && !is_among(&reserved, name) {
            reserved.extend(RequestHeader::new(name, ""));
        }
    }
    reserved
}

/// Returns true if a route shows numbers of requests, which are counted then.
pub(super) const fn shows_metrics(route: &Route) -> bool {
    matches!(route.action, Action::Metrics | Action::StatusPage)
}

/// Returns true if what becomes of a request of a site depends on its scheme.
pub(super) fn has_scheme_rules(site: &Site) -> bool {
    site.https != Https::Allow || site.hsts.is_some()
}

//! The configuration that is served at one time, prepared for requests.
//!
//! A [`Snapshot`] is made once, and shared by all workers. Each worker serves it from the directories that the worker's
//! own content has opened. A request keeps the `Serving` with which it began, so another configuration does not change
//! a response that has begun.
//!
//! A configuration is a value: a route contains everything that it inherits from its site. A tree is a directory with
//! the rules for its files; each route that serves files has one. Content knows neither sites nor routes. If there is
//! one site with one route, the choice costs two comparisons.

mod redirects;
mod servings;
mod snapshot;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::{FieldSection, Head, Status};

use crate::challenges::Challenges;
use crate::guard::Guard;
use config::redirect::Redirects;
use config::route::RouteId;
use config::site::SiteId;
use config::{Access, Action, Config, Fastcgi, Limits, LogTarget, Route, TlsClients};
pub(crate) use content::sources::is_like_script;
pub(crate) use content::{TreeId, TreeSpec};
use gateways::programs::Directory;
use logs::Recording;
pub use redirects::{NoRedirects, read_redirects};
pub use servings::Servings;
use session::fields::Rules;
use snapshot::{Inner, RecordPlace, TreeIndex};
pub(crate) use snapshot::{NamedFile, RouteEntry, Served, ToHttps};
pub use snapshot::{Snapshot, Succession};
use upstream::Upstream;

/// A snapshot, as one worker serves it.
#[derive(Debug)]
pub struct Serving {
    /// The configuration, prepared for requests.
    pub snapshot: Arc<Snapshot>,
    /// The worker's trees, in the order of those of the snapshot.
    trees: Vec<TreeId>,
    /// The records of the sites' requests; empty if no site's requests are recorded.
    recordings: Vec<Option<Rc<Recording>>>,
}

/// The default configuration, without trees, for handlers that serve no files.
impl Default for Serving {
    fn default() -> Self {
        let snapshot = Snapshot::new(&Config::default()).expect("a valid configuration");
        Self::new(Arc::new(snapshot), Vec::new())
    }
}

impl Serving {
    /// Returns a snapshot with the trees of a worker's library, in the order of its own.
    pub const fn new(snapshot: Arc<Snapshot>, trees: Vec<TreeId>) -> Self {
        Self { snapshot, trees, recordings: Vec::new() }
    }

    /// Sets the records of the sites' requests; empty if no site's requests are recorded.
    pub(crate) fn recorded(self, recordings: Vec<Option<Rc<Recording>>>) -> Self {
        Self { recordings, ..self }
    }

    /// The place where the requests of a site or of its route are recorded, if they are.
    #[inline]
    pub(crate) fn recording(&self, destination: Destination) -> Option<Rc<Recording>> {
        if self.recordings.is_empty() {
            return None;
        }
        let Destination { site, route } = destination;
        let own = route.and_then(|id| self.snapshot.routes[id.index()].record);
        self.recordings.get(own.unwrap_or_else(|| site.index()))?.clone()
    }

    /// Returns the site of a request, by its listener and its host; `None` if the configuration does not have the
    /// listener.
    #[inline]
    pub(crate) fn site(&self, listener: u32, head: &Head<'_>) -> Option<SiteId> {
        Some(self.snapshot.listener(listener)?.hosts.site(head))
    }

    /// The host of a request, if its site has it and not only because the site is the default.
    pub(crate) fn listed(&self, listener: u32, host: &[u8], site: SiteId) -> Option<String> {
        self.snapshot.listener(listener)?.hosts.listed(host, site)
    }

    /// Returns true if some site has `https = "redirect"` or `hsts`, or some proxy is believed.
    #[inline]
    pub(crate) fn has_sender_rules(&self) -> bool {
        self.snapshot.has_sender_rules
    }

    /// Returns true if some site has `https = "redirect"` or `hsts`.
    #[inline]
    pub(crate) fn has_scheme_rules(&self) -> bool {
        self.snapshot.has_scheme_rules
    }

    /// The challenges of authorities that are answered.
    pub(crate) fn challenges(&self) -> &Challenges {
        &self.snapshot.challenges
    }

    /// The certificates that clients of a site may have, if they are asked for one.
    pub(crate) fn clients(&self, site: SiteId) -> Option<&TlsClients> {
        self.snapshot.inner[site.index()].tls.as_ref()?.client.as_ref()
    }

    /// Returns true if a client whose handshake at a listener was for the site `shown` may send requests to the site `asked`,
    /// as far as the configuration tells: two files with the same certificate count as different ones.
    pub(crate) fn are_interchangeable(&self, listener: u32, shown: SiteId, asked: SiteId) -> bool {
        let tls_of = |site: SiteId| {
            let is_own = self.snapshot.inner[site.index()].tls.is_some();
            let default = self.default_site(listener).filter(|_| !is_own);
            let owner = default.unwrap_or(site);
            (owner, self.snapshot.inner[owner.index()].tls.as_ref())
        };
        let ((one, its), (other, others)) = (tls_of(shown), tls_of(asked));
        // A certificate that the server makes is for the hosts of one site.
        one == other || its == others && its.is_some_and(|tls| !tls.pairs.is_empty())
    }

    /// Returns the site for a host at a listener, as the handshakes choose it.
    pub(crate) fn site_of(&self, listener: u32, host: &[u8]) -> Option<SiteId> {
        Some(self.snapshot.listener(listener)?.hosts.site_of(Some(host)))
    }

    /// The address to which a site redirects requests without TLS, if it does.
    pub(crate) fn to_https(&self, site: SiteId) -> Option<&ToHttps> {
        self.snapshot.inner[site.index()].to_https.as_ref()
    }

    /// The field `Strict-Transport-Security` of a site, if it has one.
    #[inline]
    pub(crate) fn hsts(&self, site: SiteId) -> Option<&FieldSection<'static>> {
        // Most configurations have none, and each response asks.
        if !self.has_scheme_rules() {
            return None;
        }
        self.snapshot.inner[site.index()].hsts.as_ref()
    }

    /// Returns the site for requests to a listener that name no host, or are malformed.
    pub(crate) fn default_site(&self, listener: u32) -> Option<SiteId> {
        Some(self.snapshot.listener(listener)?.hosts.default_site())
    }

    /// A route in the form for requests, which need most of its values.
    #[inline]
    pub(crate) fn entry(&self, id: RouteId) -> &RouteEntry {
        &self.snapshot.routes[id.index()]
    }

    /// A tree of this worker.
    #[inline]
    pub(crate) fn tree_at(&self, TreeIndex(index): TreeIndex) -> TreeId {
        self.trees[index]
    }

    /// Returns the route of a path of a site. See [`Routes::find`](config::route::Routes::find).
    #[inline]
    pub(crate) fn destination(&self, site: SiteId, path: &[u8]) -> Destination {
        Destination { site, route: self.snapshot.sites[site.index()].find(path) }
    }

    /// Does the same for a request that was handed over or that is the server's own; internal routes answer these, too.
    pub(crate) fn inner_destination(&self, site: SiteId, path: &[u8]) -> Destination {
        match &self.snapshot.inner[site.index()].paths {
            Some(routes) => Destination { site, route: routes.find(path) },
            None => self.destination(site, path),
        }
    }

    /// Returns true if requests to a site can be handed over to files.
    pub(crate) fn has_files(&self, site: SiteId) -> bool {
        self.snapshot.inner[site.index()].has_files
    }

    /// The routes of a site.
    pub(crate) fn routes_of(&self, site: SiteId) -> impl Iterator<Item = RouteId> {
        self.snapshot.inner[site.index()].routes.clone().map(RouteId::new)
    }

    /// The file at a path below the directory of a route.
    pub(crate) fn named_file_at(&self, route: RouteId, path: &[u8]) -> Option<NamedFile> {
        self.snapshot.named_file_at(route, path)
    }

    /// The path on a site of the file with this path in the file system. Of several routes with a directory above the
    /// file, the longest directory counts. Links are not resolved, so the application must write the directory as the
    /// configuration does, except for `..`.
    pub(crate) fn path_of_file(&self, site: SiteId, path: &[u8]) -> Option<(RouteId, Vec<u8>)> {
        let path = resolved(Path::new(OsStr::from_bytes(path)))?;
        let routes = self.snapshot.inner[site.index()].routes.clone();
        let entries = routes.clone().zip(&self.snapshot.routes[routes]);
        let below = entries.filter_map(|(index, RouteEntry { route, .. })| {
            let files = route.action.files().filter(|_| route.pattern.is_none())?;
            let root = resolved(&files.root)?;
            Some((path.strip_prefix(&root).ok()?, RouteId::new(index)))
        });
        // Of routes with the same directory the first in the configuration counts.
        let (rest, route) = below.min_by_key(|(rest, _)| rest.as_os_str().len())?;
        Some((route, [self.prefix(route), rest.as_os_str().as_bytes()].concat()))
    }

    /// Returns true if two routes have files of the same directory below the same path.
    pub(crate) fn is_same_directory(&self, one: RouteId, other: RouteId) -> bool {
        let [files, others] = [one, other].map(|id| self.route(id).action.files());
        let is_same = files.zip(others).is_some_and(|(files, others)| files.root == others.root);
        is_same && self.prefix(one) == self.prefix(other)
    }

    /// Returns true if an application of a site has its scripts at this path in the file system.
    pub(crate) fn has_scripts_at(&self, site: SiteId, path: &Path) -> bool {
        let routes = self.snapshot.inner[site.index()].routes.clone();
        let Some(path) = resolved(path) else { return true };
        self.snapshot.routes[routes].iter().any(|RouteEntry { route, .. }| {
            let Action::Fastcgi(Fastcgi { files, root, .. }) = &route.action else { return false };
            let roots = files.as_ref().map(|files| &files.root).into_iter().chain(root);
            roots.filter_map(|root| resolved(root)).any(|root| path.starts_with(root))
        })
    }

    /// The route whose path is this one with a slash at its end, if there is one.
    pub(crate) fn directory(&self, site: SiteId, path: &[u8]) -> Option<RouteId> {
        let id = self.snapshot.sites[site.index()].find_directory(path)?;
        (self.route(id).path.as_bytes().strip_suffix(b"/") == Some(path)).then_some(id)
    }

    /// The rules for the fields of responses: of the route, or of the site if there is no route.
    pub(crate) fn fields(&self, destination: Destination) -> &Rules {
        match destination.route {
            Some(id) => &self.snapshot.routes[id.index()].fields,
            None => &self.snapshot.inner[destination.site.index()].fields,
        }
    }

    /// The file that is served if a route has nothing for a path.
    pub(crate) fn fallback(&self, id: RouteId) -> Option<&NamedFile> {
        self.snapshot.routes[id.index()].fallback.as_ref()
    }

    /// The error page for a status: of the route, or of the site if there is no route.
    pub(crate) fn error_page(
        &self,
        destination: Destination,
        status: Status,
    ) -> Option<&NamedFile> {
        let pages = match destination.route {
            Some(id) => &self.snapshot.routes[id.index()].error_pages,
            None => &self.snapshot.inner[destination.site.index()].error_pages,
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

    /// The conditions under which a route answers a client, if it has some.
    #[inline]
    pub(crate) fn guard(&self, id: RouteId) -> Option<&Guard> {
        self.snapshot.routes[id.index()].guard.as_deref()
    }

    /// The conditions for the responses of a site that no route makes, if there are some.
    pub(crate) fn site_guard(&self, site: SiteId) -> Option<&Guard> {
        self.snapshot.inner[site.index()].guard.as_deref()
    }

    /// The clients and the limits of a site, for the responses that no route makes.
    pub(crate) fn conditions(&self, site: SiteId) -> (&Access, &Limits) {
        let Inner { access, limits, .. } = &self.snapshot.inner[site.index()];
        (access, limits)
    }

    /// Returns true if responses have a `Server-Timing` field: those of the route, or those of the site that no route makes.
    #[inline]
    pub(crate) fn has_timing(&self, destination: Destination) -> bool {
        match destination.route {
            Some(id) => self.entry(id).route.server_timing,
            None => self.snapshot.inner[destination.site.index()].server_timing,
        }
    }

    /// Returns true if error pages show the ids of requests, because a log does.
    pub(crate) fn shows_ids(&self, Destination { site, route }: Destination) -> bool {
        let all = self.snapshot.records();
        let is_log = |place: &RecordPlace| place.log.target != LogTarget::None;
        let own = route.and_then(|id| self.snapshot.routes[id.index()].record);
        let place = all.get(own.unwrap_or_else(|| site.index()));
        let is_recorded = |place: &RecordPlace| is_log(place) || self.snapshot.shows_metrics();
        place.is_some_and(|place| place.shows_more() && is_recorded(place))
            && all.iter().any(is_log)
    }

    /// The path of a route with a slash at the end. The rest of a request's path is a path of the route's tree.
    #[inline]
    pub(crate) fn prefix(&self, id: RouteId) -> &[u8] {
        &self.snapshot.routes[id.index()].prefix
    }

    /// The worker's trees with this one of [`Snapshot::roots`].
    pub(crate) fn trees_of(&self, root: usize) -> impl Iterator<Item = TreeId> {
        let all = self.snapshot.trees.iter().zip(&self.trees);
        all.filter(move |(spec, _)| spec.root == root).map(|(_, tree)| *tree)
    }

    /// Returns true if programs, upstreams or FastCGI applications make the answers of a route.
    pub(crate) fn is_gateway(&self, id: RouteId) -> bool {
        self.programs(id).is_some() || self.upstream(id).is_some()
    }

    /// The programs of a route that has some.
    pub(crate) fn programs(&self, id: RouteId) -> Option<&Arc<Directory>> {
        self.snapshot.routes[id.index()].served.programs()
    }

    /// The upstream to which the requests of a route are passed on, if there is one.
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

/// The destination of a request: its site, and the route that has its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) site: SiteId,
    pub(crate) route: Option<RouteId>,
}

/// The absolute path without `..`, each of which takes away the name in front of it, also if that name is a link.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in std::path::absolute(path).ok()?.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_file_system_has_no_name_of_a_parent() {
        for (path, expected) in [
            ("/srv/app/../files/x", "/srv/files/x"),
            ("/srv//./a/b/../../c/", "/srv/c"),
            ("/a/../../../b", "/b"),
            ("/..", "/"),
            ("/a..b/...", "/a..b/..."),
        ] {
            assert_eq!(resolved(Path::new(path)), Some(expected.into()), "{path}");
        }
    }
}

//! Makes a configuration of the drafts, and finds contradictions between its parts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::draft::{AcmeDraft, Draft, NamedFile, RouteDraft, Shared, SiteDraft, Thing};
use super::keys::ACTIONS;
use super::message::{Notes, Span};
use super::{
    Acme, AcmeChallenge, Action, Address, Balance, Config, Fastcgi, Files, GatewayRules, Https,
    Limits, Listen, Pattern, Redirect, Route, SCRIPT_SUFFIX, Secrets, Server, Site, TlsFiles,
    Upstream, acme, keys, value,
};
use crate::route::{RouteId, Routes};

/// Fallbacks that may follow each other.
const FALLBACKS_MAX: usize = 8;

/// The advice for a site that has no listener with TLS.
const TLS_LISTENER: &str = "write `{ address = \"0.0.0.0:443\", tls = true }` into `listen`";

/// Makes the configuration, and finds the positions of the outside things that it names. The configuration is right if
/// the notes then have no error. `state` is the directory for the state of the service, if the service manager names one.
pub(super) fn resolve(
    mut draft: Draft,
    state: Option<&Path>,
    notes: &mut Notes,
) -> (Config, HashMap<Thing, Span>) {
    if draft.sites.is_empty() && !notes.has_errors() {
        notes.error(None, "there is no site to serve: add `[[site]]` with a `[[site.route]]`");
    }
    // These checks compare values that errors would have left out.
    if !notes.has_errors() {
        draft.sites.iter().for_each(|site| check_targets(site, notes));
        draft.sites.iter().for_each(|site| check_scheme(site, &draft.server, notes));
    }
    let is_complete = !notes.has_errors();
    check_addresses(&draft.sites, notes);
    check_rates(&draft, notes);
    let mut told = Told { routes: draft.has_wrong_route, actions: false };
    draft.sites.iter().for_each(|site| check_routes(site, is_complete, &mut told, notes));
    let acme = resolve_acme(&mut draft, state, notes);
    let mut places = HashMap::from_iter(draft.server_things);
    places.extend(draft.acme.things);
    draft.sites.iter().for_each(|site| note_places(site, &mut places));
    draft.sites.iter().for_each(|site| note_pages(site, &mut places));
    let sites = draft.sites.into_iter().map(site_of).collect();
    (Config { server: draft.server, sites, acme, secrets: Secrets::default() }, places)
}

/// Makes the way to certificates by ACME, if a site has one, and names the files of these certificates.
fn resolve_acme(draft: &mut Draft, state: Option<&Path>, notes: &mut Notes) -> Option<Acme> {
    let is_acme = |site: &SiteDraft| site.tls.as_ref().is_some_and(|tls| tls.is_acme);
    let Some(site) = draft.sites.iter().find(|site| is_acme(site)) else {
        if let Some(place) = draft.acme.place
            && !notes.has_errors()
        {
            notes.warning(place, "`[acme]` does nothing: no site has `tls = \"acme\"`");
        }
        return None;
    };
    let asked_at = site.tls_place.unwrap_or(site.place);
    let place = draft.acme.place.unwrap_or(asked_at);
    let AcmeDraft { directory, contact, storage, challenges, ca, agrees, eab, .. } = &draft.acme;
    let storage = storage.clone().or_else(|| state.map(|state| state.join("acme")));
    let storage = storage.unwrap_or_else(|| {
        let text = "certificates by ACME need a directory: write `storage = \"/var/lib/samum/acme\"` into `[acme]`, or \
                    `StateDirectory=samum` into the unit";
        notes.error(place, text);
        PathBuf::new()
    });
    let acme = Acme {
        directory: directory.clone(),
        contact: contact.clone(),
        storage,
        challenges: challenges.clone(),
        ca: ca.clone(),
        agrees: *agrees,
        eab: eab.clone(),
    };
    let has_plain = draft.sites.iter().flat_map(|site| &site.listen).any(|(listen, _)| !listen.tls);
    if !has_plain && acme.challenges == [AcmeChallenge::Http] {
        let text = "no listener can answer `http-01`: write `\":80\"` into `listen`, or `tls-alpn-01` into `challenges`";
        notes.warning(place, text);
    }
    for thing in [Thing::AcmeTerms, Thing::AcmeStorage(acme.storage.clone())] {
        // A key that was written has its own position.
        if !draft.acme.things.iter().any(|(known, _)| *known == thing) {
            draft.acme.things.push((thing, place));
        }
    }
    for site in draft.sites.iter().filter(|site| is_acme(site)) {
        // An authority of the operator's own may issue what it likes.
        check_names(site, acme.is_public(), notes);
    }
    let with_acme = || draft.sites.iter().filter(|site| is_acme(site));
    let names = with_acme().map(|site| site.hosts.iter().map(|(host, _)| &**host));
    for names in acme::group(names).iter().filter(|names| names.len() > Acme::NAMES_MAX) {
        let mut sites = with_acme()
            .filter(|site| site.hosts.first().is_some_and(|(host, _)| *host == names[0]));
        let place = sites.next().and_then(|site| site.tls_place).unwrap_or(place);
        let text = format!(
            "a certificate by ACME has {} names at most, and the sites with the first host `{}` have {}: divide them into \
             several sites",
            Acme::NAMES_MAX,
            names[0],
            names.len()
        );
        notes.error(place, text);
    }
    for site in draft.sites.iter_mut().filter(|site| is_acme(site)) {
        if let (Some(tls), Some((first, _))) = (&mut site.tls, site.hosts.first()) {
            tls.pairs = vec![TlsFiles::new(Acme::file(&acme.storage, first), None)];
        }
    }
    Some(acme)
}

/// Checks that an authority can issue a certificate for the hosts of a site. `is_public` is true if the authority is a public
/// one.
fn check_names(site: &SiteDraft, is_public: bool, notes: &mut Notes) {
    let Some((first, place)) = site.hosts.first() else {
        let text = "`tls = \"acme\"` needs `hosts`: they are the names in the certificate";
        return notes.error(site.tls_place.unwrap_or(site.place), text);
    };
    if first.len() > Acme::FIRST_NAME_BYTES_MAX {
        let text = format!(
            "the first host of a site with `tls = \"acme\"` has {} characters at most: write a shorter one first",
            Acme::FIRST_NAME_BYTES_MAX
        );
        notes.error(*place, text);
    }
    for (host, place) in &site.hosts {
        if host.starts_with("*.") {
            let text = "a certificate for a wildcard needs a challenge in DNS, which samum does not do: list the names, or name \
                        the files of a certificate that another program gets";
            notes.error(*place, text);
        } else if is_address(host) {
            notes.error(*place, "a certificate by ACME is for names, and not for addresses: leave it out, or make it another site");
        } else if let Some(why) = acme::not_public(host).filter(|_| is_public) {
            let text = format!(
                "no public authority issues a certificate for `{host}`, because {why}: write a name of the public DNS, or `tls = \
                 \"self-signed\"`, or name an authority of your own by `directory` of `[acme]`"
            );
            notes.warning(*place, text);
        }
    }
}

/// Returns true if a host is an address.
fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<core::net::Ipv4Addr>().is_ok()
}

/// Notes the first position of each thing that a site names.
fn note_places<'a>(site: &'a SiteDraft, places: &mut HashMap<Thing, Span>) {
    for (listen, place) in &site.listen {
        places.entry(Thing::Address(listen.address.clone())).or_insert(*place);
    }
    for (host, place) in &site.hosts {
        places.entry(Thing::Host(host.clone())).or_insert(*place);
    }
    for (file, place) in &site.things {
        places.entry(file.clone()).or_insert(*place);
    }
    let own = site.routes.iter().filter_map(|route| route.log.as_ref());
    let logs = core::iter::once((&site.log, site.log_place));
    for (log, place) in logs.chain(own.map(|(log, place)| (log, *place))) {
        if let Some(path) = log.target.path() {
            places.entry(Thing::Log(path.to_owned())).or_insert(place);
        }
    }
    let of_route = |route: &'a RouteDraft| route.actions.iter().map(move |one| (route, one));
    for (route, (action, place)) in site.routes.iter().flat_map(of_route) {
        let thing = match action {
            Action::Files(files) => Thing::Directory(files.root.clone()),
            Action::Cgi(cgi) => Thing::Directory(cgi.root.clone()),
            Action::Redirects(path) => Thing::Redirects(path.clone()),
            Action::Redirect(_)
            | Action::Proxy(_)
            | Action::Fastcgi(_)
            | Action::Metrics
            | Action::StatusPage
            | Action::Status(_) => continue,
        };
        places.entry(thing).or_insert(*place);
        if let Action::Files(files) = action {
            let (path, place) = &route.path;
            places.entry(Thing::Path(files.root.clone(), path.clone())).or_insert(*place);
        }
    }
    for route in &site.routes {
        let place = route.place_of("symlinks").unwrap_or(route.place);
        for dir in route.shared.files.symlinks.directories() {
            places.entry(Thing::Links(dir.to_owned())).or_insert(place);
        }
        for (file, place) in &route.shared.upstream_tls_places {
            places.entry(file.clone()).or_insert(*place);
        }
        if let Some(dir) = &route.shared.gateway.buffer_dir {
            let place = route.place_of("buffer-dir").unwrap_or(route.place);
            places.entry(Thing::Buffers(dir.clone())).or_insert(place);
        }
    }
}

/// Notes the position of each fallback and of each error page that a site names.
fn note_pages(site: &SiteDraft, places: &mut HashMap<Thing, Span>) {
    let mut named = Vec::new();
    for route in &site.routes {
        let has_files = matches!(route.actions[..], [(Action::Files(_), _)]);
        let fallback = route.shared.files.fallback.as_deref().filter(|_| has_files);
        named.extend(fallback.zip(route.shared.fallback_place).map(|one| (one, true)));
        named
            .extend(route.shared.errors.values().map(|(path, place)| ((&path[..], *place), false)));
    }
    named.extend(site.shared.errors.values().map(|(path, place)| ((&path[..], *place), false)));
    if named.is_empty() {
        return;
    }
    let all = Routes::new(entries(site, |_| true));
    for ((path, place), is_fallback) in named {
        if let Some(files) = files_at(site, &all, path).and_then(|route| named_files(route, path)) {
            let file = NamedFile { path: path.to_owned(), files, is_fallback };
            places.entry(Thing::NamedFile(file)).or_insert(place);
        }
    }
}

/// The files that a path of a site may lead to, in a route that has it.
fn named_files(route: &RouteDraft, path: &str) -> Option<Vec<PathBuf>> {
    let [(Action::Files(Files { root, .. }), _)] = &route.actions[..] else { return None };
    let rest = path.strip_prefix(&route.path.0)?.trim_start_matches('/');
    let rules = &route.shared.files;
    Some(if rest.is_empty() || rest.ends_with('/') {
        rules.index.iter().map(|name| root.join(rest).join(name)).collect()
    } else {
        let clean = rules.clean_urls.then(|| root.join(format!("{rest}.html")));
        core::iter::once(root.join(rest)).chain(clean).collect()
    })
}

fn site_of(draft: SiteDraft) -> Site {
    Site {
        name: draft.shown_name().to_owned(),
        listen: draft.listen.into_iter().map(|(listen, _)| listen).collect(),
        hosts: draft.hosts.into_iter().map(|(host, _)| host).collect(),
        is_default: draft.default.is_some(),
        tls: draft.tls,
        https: draft.https,
        hsts: draft.hsts,
        log: draft.log,
        access: draft.shared.access,
        limits: Limits { has_own_requests: false, ..draft.shared.limits },
        headers: draft.shared.headers,
        errors: pages_of(draft.shared.errors),
        server_timing: draft.shared.server_timing,
        routes: draft.routes.into_iter().filter_map(route_of).collect(),
    }
}

/// The error pages, without the positions at which they are named.
fn pages_of(errors: BTreeMap<u16, (String, Span)>) -> BTreeMap<u16, String> {
    errors.into_iter().map(|(status, (path, _))| (status, path)).collect()
}

/// Makes a route; `None` if it has no action, which is an error.
fn route_of(draft: RouteDraft) -> Option<Route> {
    let RouteDraft { path, pattern, is_internal, log, actions, fastcgi, shared, .. } = draft;
    let action = actions.into_iter().next().map(|(action, _)| action);
    let mut action = match (action, fastcgi) {
        (Some(Action::Files(files)), Some((fastcgi, _))) => {
            Action::Fastcgi(Fastcgi { files: Some(files), ..fastcgi })
        }
        (None, Some((fastcgi, _))) => Action::Fastcgi(fastcgi),
        (action, _) => action?,
    };
    match &mut action {
        Action::Files(files) => files.rules = shared.files,
        Action::Proxy(upstream) => upstream.rules = shared.gateway,
        Action::Fastcgi(Fastcgi { upstream, files, .. }) => {
            upstream.rules = GatewayRules { tls: None, ..shared.gateway };
            files.iter_mut().for_each(|files| files.rules = shared.files.clone());
        }
        Action::Cgi(cgi) => {
            (cgi.buffer, cgi.buffer_dir) = (shared.gateway.buffer, shared.gateway.buffer_dir);
        }
        Action::Redirect(_)
        | Action::Redirects(_)
        | Action::Metrics
        | Action::StatusPage
        | Action::Status(_) => {}
    }
    Some(Route {
        path: path.0,
        pattern: pattern.map(|(pattern, _)| pattern),
        is_internal,
        log: log.map(|(log, _)| log),
        access: shared.access,
        limits: shared.limits,
        headers: shared.headers,
        errors: pages_of(shared.errors),
        server_timing: shared.server_timing,
        half_close: shared.half_close,
        max_body: shared.max_body.filter(|_| action.is_gateway()),
        request_headers: match &action {
            Action::Proxy(_) => shared.request_headers.into(),
            _ => Arc::default(),
        },
        action,
    })
}

/// Checks that each request of an address has one site.
fn check_addresses(sites: &[SiteDraft], notes: &mut Notes) {
    for (_, place) in sites.iter().flat_map(|site| &site.hosts).filter(|(host, _)| host == "_") {
        let text = "`_` is only a name here: a site with `default = true` has the requests for other hosts";
        notes.warning(*place, text);
    }
    /// The facts about an address.
    #[derive(Default)]
    struct Known<'a> {
        hosts: HashMap<&'a str, Span>,
        default: Option<Span>,
        /// The index of the site that has the requests for other hosts.
        first: usize,
        /// The index of the last site that listens there.
        last: usize,
        /// The listener as the first site has it, and its position.
        listen: Option<(&'a Listen, Span)>,
    }
    let mut known: HashMap<&Address, Known<'_>> = HashMap::new();
    let mut sockets = HashMap::new();
    // The addresses that a site lists twice, with the index of the site.
    let mut twice = HashSet::new();
    for (index, site) in sites.iter().enumerate() {
        for (listen, place) in &site.listen {
            let address = &listen.address;
            if let Address::Unix(socket) = address {
                let (other, at) = sockets.entry(&socket.path).or_insert((socket, *place));
                if *other != socket {
                    notes.error_beside(*place, "the same socket has another mode or owner", *at);
                }
            }
            let is_new = !known.contains_key(address);
            let of_address = known.entry(address).or_default();
            if is_new {
                of_address.first = index;
            } else if of_address.last == index {
                notes.error(*place, format!("{address} is listed twice"));
                twice.insert((index, address));
                continue;
            }
            of_address.last = index;
            let (first, at) = *of_address.listen.get_or_insert((listen, *place));
            for (key, expected, found) in [
                ("proxy-protocol", first.proxy_protocol, listen.proxy_protocol),
                ("tls", first.tls, listen.tls),
                ("http2", first.http2, listen.http2),
            ] {
                if expected != found {
                    let text = format!(
                        "the sites of {address} must agree on `{key}`, which is {expected}"
                    );
                    notes.error_beside(*place, text, at);
                }
            }
            for (host, place) in &site.hosts {
                if let Some(other) = of_address.hosts.insert(host, *place) {
                    let text = format!("`{host}` is a host of {address} already");
                    notes.error_beside(*place, text, other);
                }
            }
            let Some(place) = site.default else { continue };
            if let Some(other) = of_address.default.replace(place) {
                let text = format!("{address} has a default site already");
                notes.error_beside(place, text, other);
            }
            of_address.first = index;
        }
    }
    for (index, site) in sites.iter().enumerate().filter(|(_, site)| site.hosts.is_empty()) {
        if site.listen.iter().all(|(listen, _)| known[&listen.address].first != index) {
            let text = "no request reaches this site: it has no hosts, and is not the default site of an \
                        address";
            notes.warning(site.place, text);
        }
    }
    let is_reached = |index: usize, address: &Address| {
        let is_default = known[address].first == index;
        (!sites[index].hosts.is_empty() || is_default) && !twice.contains(&(index, address))
    };
    check_certificates(sites, is_reached, notes);
}

/// Checks that each site which a client can reach by TLS has a certificate, and that each certificate can be shown.
/// `is_reached` returns whether a client can reach the site with an index at an address, which the site lists once.
fn check_certificates(
    sites: &[SiteDraft],
    is_reached: impl Fn(usize, &Address) -> bool,
    notes: &mut Notes,
) {
    for (index, site) in sites.iter().enumerate() {
        let mut with_tls = site.listen.iter().filter(|(listen, _)| listen.tls);
        if let Some(place) = site.tls_place {
            if with_tls.next().is_none() {
                let text = format!(
                    "`tls` does nothing without a listener that speaks TLS: {TLS_LISTENER}"
                );
                notes.warning(place, text);
            }
            continue;
        }
        // The remedy is the same for all its addresses.
        if let Some((listen, place)) =
            with_tls.find(|(listen, _)| is_reached(index, &listen.address))
        {
            let (name, address) = (site.shown_name(), &listen.address);
            let text = format!(
                "the site `{name}` has no certificate for {address}: add `tls = {{ certificate = \"FILE\", key = \"FILE\" }}` \
                 to the site, `tls = \"acme\"`, or `tls = \"self-signed\"` for a test"
            );
            notes.error(*place, text);
        }
    }
}

/// Checks that clients can follow a redirection to `https`, and that some responses go out over TLS if they speak of
/// it. Requests that came by TLS to a trusted proxy count as such.
fn check_scheme(site: &SiteDraft, server: &Server, notes: &mut Notes) {
    let has_tls = site.listen.iter().any(|(listen, _)| listen.tls);
    let may_have_tls = has_tls || !server.trusted_proxies.is_empty();
    if site.https == Https::Redirect
        && let Some(place) = site.https_place
    {
        if site.hosts.is_empty() {
            let text =
                "`https = \"redirect\"` needs `hosts`: a client is sent to one of these names only";
            notes.error(place, text);
        }
        if !may_have_tls {
            let text = format!(
                "`https = \"redirect\"` leads nowhere without a listener that speaks TLS: {TLS_LISTENER}, or name the \
                 proxy that speaks TLS for the site in `trusted-proxies` of [server]"
            );
            notes.error(place, text);
        }
    }
    if site.hsts.is_some()
        && !may_have_tls
        && let Some(place) = site.hsts_place
    {
        let text = format!(
            "`hsts` does nothing without a listener that speaks TLS: {TLS_LISTENER}, or name the proxy that speaks TLS \
             for the site in `trusted-proxies` of [server]"
        );
        notes.warning(place, text);
    }
}

/// Checks that no client is sent so little that it would be taken for a slow one.
fn check_rates(draft: &Draft, notes: &mut Notes) {
    // Routes share the rate of their site. Its error is reported once.
    let mut reported = HashSet::new();
    let of_sites = draft.sites.iter().map(|site| &site.shared);
    let of_routes = draft.sites.iter().flat_map(|site| &site.routes).map(|route| &route.shared);
    for shared in of_sites.chain(of_routes) {
        if let Err(why) = shared.limits.check_rate(&draft.server.tuning)
            && let Some(place) = shared.rate_place
            && reported.insert(place)
        {
            notes.error(place, why);
        }
    }
}

/// The parts of the configuration that other messages have already named.
struct Told {
    /// The way to write a route.
    routes: bool,
    /// The list of actions, to a user who has taken keys of another server for actions.
    actions: bool,
}

/// Checks the routes of a site. `is_complete`: no error has left a value out.
fn check_routes(site: &SiteDraft, is_complete: bool, told: &mut Told, notes: &mut Notes) {
    // A wrong route or action has a message of its own, here and below.
    if site.routes.is_empty() && !site.has_wrong_route && !told.routes {
        notes.error(
            site.place,
            "the site has no route: add `[[site.route]]` with `files = \"DIR\"`",
        );
    }
    // Among the others may be a route that uses the keys of its site.
    if !site.has_wrong_route && !told.routes {
        check_bodies(site, notes);
        check_request_headers(site, notes);
    }
    check_upstream_tls(site, notes);
    let mut seen: HashMap<(&str, Option<&str>), Span> = HashMap::new();
    for route in &site.routes {
        match &route.actions[..] {
            [] if route.fastcgi.is_some() => {}
            [] if route.has_wrong_action || route.has_unknown && told.actions => {}
            [] => {
                told.actions |= route.has_unknown;
                let text = ACTIONS.map(|action| format!("`{action}`")).join(", ");
                notes
                    .error(route.place, format!("the route has no action; it needs one of {text}"));
            }
            [_] => {}
            [_, others @ ..] => {
                for (_, place) in others {
                    notes.error(*place, "the route has another action already");
                }
            }
        }
        check_directory(route, notes);
        check_scripts(site, route, notes);
        check_status(route, notes);
        if is_complete {
            check_buffer(route, notes);
            check_status_page(route, notes);
        }
        check_own(route, notes);
        let pattern = route.pattern.as_ref().map(|(pattern, _)| pattern.as_str());
        if is_partial(route) {
            continue;
        }
        let known = seen.entry((&route.path.0, pattern)).or_insert(route.place);
        if *known != route.place && !route.is_internal {
            let text = "no request reaches this route: another one has the same paths";
            notes.warning_beside(route.place, text, *known);
        }
        if let Some((pattern, place)) = &route.pattern
            && value::begins_as_a_path(pattern)
            && !may_match(pattern, &route.path.0)
        {
            let path = &route.path.0;
            notes.warning(
                *place,
                format!("no path of the route, whose `path` is `{path}`, can match"),
            );
        }
    }
}

/// Checks that a pattern for one directory is not meant for everything below it, as a location of nginx is.
fn check_directory(route: &RouteDraft, notes: &mut Notes) {
    let Some((pattern, place)) = &route.pattern else { return };
    let shape = pattern.shape();
    let has_content = route.fastcgi.is_some()
        || route.actions.iter().any(|(action, _)| action.is_gateway() || action.files().is_some());
    let is_one_directory = shape.len() > 1 && shape.ends_with('/') && !shape.contains(['*', '?']);
    if has_content && is_one_directory && route.path.0 == "/" {
        let text = format!(
            "only the very path `{shape}` matches; for all paths below it write `path = \"{shape}\"`, or `{shape}*`"
        );
        notes.warning(*place, text);
    }
}

/// Checks that a limit for bodies is only set where bodies are taken.
fn check_bodies(site: &SiteDraft, notes: &mut Notes) {
    const TAKES: &str = "`proxy`, `fastcgi` or `cgi`";
    let takes_bodies = |route: &RouteDraft| {
        route.fastcgi.is_some()
            || route.has_wrong_action
            || route.actions.iter().any(|(action, _)| action.is_gateway())
    };
    let of_site = site.shared.max_body_place;
    if let Some(place) = of_site
        && !site.routes.iter().any(takes_bodies)
    {
        let text = format!("no route of the site takes bodies: none has {TAKES}");
        notes.error(place, text);
    }
    for route in site.routes.iter().filter(|route| !takes_bodies(route)) {
        if let Some(place) =
            route.shared.max_body_place.filter(|_| route.shared.max_body_place != of_site)
        {
            let text = format!("the route takes no bodies: only routes with {TAKES} do");
            notes.error(place, text);
        }
    }
}

/// Checks that fields for upstreams are only set where a route has an upstream.
fn check_request_headers(site: &SiteDraft, notes: &mut Notes) {
    let is_proxy = |route: &RouteDraft| {
        route.has_wrong_action
            || route.actions.iter().any(|(action, _)| matches!(action, Action::Proxy(_)))
    };
    let of_site = site.shared.request_headers_place;
    if let Some(place) = of_site
        && !site.routes.iter().any(is_proxy)
    {
        notes.error(place, "no route of the site sends fields to a server: none has `proxy`");
    }
    for route in site.routes.iter().filter(|route| !is_proxy(route)) {
        let own = route.shared.request_headers_place.filter(|place| Some(*place) != of_site);
        let Some(place) = own else { continue };
        let has_environment = route.fastcgi.is_some()
            || route.actions.iter().any(|(action, _)| matches!(action, Action::Cgi(_)));
        let hint = if has_environment { "; `environment` sets variables" } else { "" };
        notes.error(place, format!("only routes with `proxy` send fields to servers{hint}"));
    }
}

/// Warns of settings for TLS of a route if none of its servers speaks TLS. If the site has the key, the key may be
/// meant for other routes of the site.
fn check_upstream_tls(site: &SiteDraft, notes: &mut Notes) {
    for route in &site.routes {
        let Some(place) = route.place_of("upstream-tls") else { continue };
        let mut proxies = route.actions.iter().filter_map(|(action, _)| match action {
            Action::Proxy(upstream) => Some(upstream),
            _ => None,
        });
        if proxies.clone().next().is_some() && !proxies.any(Upstream::has_tls) {
            let text =
                "`upstream-tls` does nothing: no server of the route has a URL with `https://`";
            notes.warning(place, text);
        }
    }
}

/// Checks that the route has a buffer that can be on a disk.
fn check_buffer(route: &RouteDraft, notes: &mut Notes) {
    let rules = &route.shared.gateway;
    let has_buffer =
        route.fastcgi.is_some() || matches!(route.actions.first(), Some((Action::Proxy(_), _)));
    if has_buffer && rules.buffer_dir.is_some() && rules.buffer < GatewayRules::BUFFER_FILE_MIN {
        let place = route.place_of("buffer").or_else(|| route.place_of("buffer-dir"));
        let text = "with `buffer-dir`, a `buffer` has 4 MiB at least";
        notes.error(place.unwrap_or(route.place), text);
    }
}

/// Checks that a fixed status has the field without which it says nothing.
fn check_status(route: &RouteDraft, notes: &mut Notes) {
    let [(Action::Status(fixed), place)] = &route.actions[..] else { return };
    let (field, what) = match fixed.code {
        206 => ("Content-Range", "is a part of nothing: use 200"),
        301..=303 | 307 | 308 => ("Location", "leads nowhere: use `redirect`"),
        401 => ("WWW-Authenticate", "asks for nothing: set it with `headers`, or use 403"),
        _ => return,
    };
    let mut names = route.shared.headers.iter().flat_map(|rule| &rule.set).map(|(name, _)| name);
    if !names.any(|name| name.eq_ignore_ascii_case(field)) {
        notes.warning(*place, format!("a {} without `{field}` {what}", fixed.code));
    }
}

/// Checks that the state of the server is shown only to clients that are named.
fn check_status_page(route: &RouteDraft, notes: &mut Notes) {
    let mut actions = route.actions.iter();
    let Some((_, place)) = actions.find(|(action, _)| matches!(action, Action::StatusPage)) else {
        return;
    };
    if route.shared.access.allow.is_empty() {
        let text = "the page would show the state of the server to every client: name those that may see it, such as \
                    `allow = [\"127.0.0.1\", \"::1\"]`";
        notes.error(*place, text);
    }
}

/// Checks that the keys which a route sets itself do something with its action, and with its other keys.
fn check_own(route: &RouteDraft, notes: &mut Notes) {
    let fastcgi = route.fastcgi.as_ref().map(|_| "fastcgi");
    let actions: Vec<_> =
        route.actions.iter().map(|(action, _)| action.key()).chain(fastcgi).collect();
    let listed = |keys: &[&str]| {
        let all: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
        all.join(" or ")
    };
    for (key, place) in &route.own {
        if let (Some(last), Some(readers)) = (actions.last(), keys::readers(key))
            && !actions.iter().any(|action| readers.contains(action))
        {
            let readers = listed(readers);
            let text =
                format!("`{key}` does nothing in a route with `{last}`: it is for {readers}");
            notes.warning(*place, text);
        } else if let Some(condition) = unmet_condition(key, &route.shared) {
            notes.warning(*place, format!("`{key}` does nothing without {condition}"));
        }
    }
}

/// Returns the setting without which a key does nothing, if that setting is missing. A key with its default value needs none.
fn unmet_condition(key: &str, shared: &Shared) -> Option<&'static str> {
    let (usual, gateway) = (Shared::default(), &shared.gateway);
    let (is_changed, is_met, condition) = match key {
        "include-types" => (
            shared.files.include_types != usual.files.include_types,
            shared.files.includes,
            "`includes = true`",
        ),
        "hash-by" => (
            gateway.hash_by != usual.gateway.hash_by,
            gateway.balance == Balance::Hash,
            "`balance = \"hash\"`",
        ),
        "check-interval" => (
            gateway.health.check_interval != usual.gateway.health.check_interval,
            gateway.health.check.is_some(),
            "`check`",
        ),
        _ => return None,
    };
    (is_changed && !is_met).then_some(condition)
}

/// Checks that the scripts of a route can be found, and are not sent where they should be run.
fn check_scripts(site: &SiteDraft, route: &RouteDraft, notes: &mut Notes) {
    if let Some((_, place)) = &route.fastcgi
        && route.shared.gateway.health.check.is_some()
    {
        let text = "`check` asks by HTTP, which no FastCGI application speaks: set it to \"none\" in this route";
        notes.error(*place, text);
    }
    match (&route.actions[..], &route.fastcgi) {
        ([(Action::Files(_), _)], None) => {
            let mut names = route.shared.files.index.iter();
            if let Some(index) = names.find(|name| name.ends_with(SCRIPT_SUFFIX))
                && site.routes.iter().any(|route| route.fastcgi.is_some())
            {
                let text = format!("the index `{index}` would be sent, and not run: add `fastcgi`");
                notes.error(route.place, text);
            }
        }
        ([(Action::Files(_), _)], Some(_)) | (_, None) => {}
        ([], Some((fastcgi, place))) => {
            if fastcgi.root.is_none() && !route.has_wrong_action {
                let text = "the directory of the scripts is not known: add `files`, or `root` to `fastcgi` if \
                            only the application has it";
                notes.error(*place, text);
            }
        }
        (_, Some((_, place))) => {
            notes.error(*place, "the route has another action already");
        }
    }
}

/// Returns whether a pattern may match a path that belongs to a route with this path.
fn may_match(pattern: &Pattern, path: &str) -> bool {
    let literal = pattern.shape().split('*').next().unwrap_or_default().as_bytes();
    let has_star = literal.len() < pattern.shape().len();
    let same = |below: &str| {
        let equal = |(one, other): (&u8, &u8)| one == other || *one == b'?';
        literal.iter().zip(below.as_bytes()).all(equal)
    };
    let below = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
    pattern.matches(path.as_bytes()) || (same(&below) && (has_star || literal.len() >= below.len()))
}

/// Checks that the paths which the routes of a site name have the right targets.
fn check_targets(site: &SiteDraft, notes: &mut Notes) {
    let names_a_path = |route: &RouteDraft| {
        let is_redirect = matches!(route.actions[..], [(Action::Redirect(_), _)]);
        is_redirect || route.shared.files.fallback.is_some() || !route.shared.errors.is_empty()
    };
    if !site.routes.iter().any(names_a_path) {
        return;
    }
    let open = Routes::new(entries(site, |route| !route.is_internal));
    // The paths of internal routes are closed to clients, but requests are handed over to them.
    let all = Routes::new(entries(site, |_| true));
    // Values that routes inherit are reported once.
    let mut reported = HashSet::new();
    for (index, route) in site.routes.iter().enumerate() {
        if let [(Action::Redirect(redirect), place)] = &route.actions[..] {
            check_redirect(redirect, *place, route.pattern.as_ref(), notes);
            // Among many patterns a search is slow, and nearly all redirections lead out of their route.
            let is_own = |path: &Vec<u8>| {
                let pattern = route.pattern.as_ref();
                pattern.is_none_or(|(pattern, _)| pattern.matches(path))
                    && open.find(path) == Some(RouteId::new(index))
            };
            if example(redirect).as_ref().is_some_and(is_own) {
                let text = "the redirection leads to itself, and clients would follow it for ever";
                notes.error(*place, text);
            }
        }
        let pages = route.shared.errors.values().chain(site.shared.errors.values());
        for (path, place) in pages.filter(|(path, _)| files_at(site, &all, path).is_none()) {
            if reported.insert(*place) {
                notes.error(*place, format!("no route of the site serves files at `{path}`"));
            }
        }
        if let Some(why) = wrong_fallback(site, &all, route)
            && let Some(place) = route.shared.fallback_place
            && reported.insert(place)
        {
            notes.error(place, why);
        }
    }
}

/// The routes of a site, but those that only have paths which a file lists. The paths of those that are not open are
/// closed.
fn entries<'a>(
    site: &'a SiteDraft,
    is_open: impl Fn(&RouteDraft) -> bool + 'a,
) -> impl Iterator<Item = (&'a str, Option<&'a Pattern>, Option<RouteId>)> {
    let routes = site.routes.iter().enumerate().filter(|(_, route)| !is_partial(route));
    routes.map(move |(index, route)| {
        let pattern = route.pattern.as_ref().map(|(pattern, _)| pattern);
        (&route.path.0[..], pattern, is_open(route).then(|| RouteId::new(index)))
    })
}

/// Returns whether a route leaves some of its paths to other routes.
const fn is_partial(route: &RouteDraft) -> bool {
    matches!(route.actions.as_slice(), [(Action::Redirects(_), _)])
}

/// Returns the route that serves files at a path.
fn files_at<'a>(site: &'a SiteDraft, routes: &Routes, path: &str) -> Option<&'a RouteDraft> {
    let route = &site.routes[routes.find(path.as_bytes())?.index()];
    matches!(route.actions[..], [(Action::Files(_), _)]).then_some(route)
}

/// Returns the fault of the fallback of a route: it leads to no files, or back to itself through the fallbacks of other
/// routes. A fallback that its own route serves ends there.
fn wrong_fallback(site: &SiteDraft, routes: &Routes, route: &RouteDraft) -> Option<String> {
    if !matches!(route.actions[..], [(Action::Files(_), _)]) {
        return None;
    }
    let mut path = route.shared.files.fallback.as_ref()?;
    for _ in 0..FALLBACKS_MAX {
        let Some(next) = files_at(site, routes, path) else {
            return Some(format!("no route of the site serves files at `{path}`"));
        };
        match &next.shared.files.fallback {
            Some(other) if other != path => path = other,
            _ => return None,
        }
    }
    Some(format!("the fallbacks of {FALLBACKS_MAX} routes lead to each other"))
}

/// Checks that each capture in the target of a redirection has a star.
fn check_redirect(
    redirect: &Redirect,
    place: Span,
    pattern: Option<&(Pattern, Span)>,
    notes: &mut Notes,
) {
    let stars = pattern.map_or(0, |(pattern, _)| pattern.stars());
    let pattern = pattern.map(|(pattern, _)| pattern.as_str());
    let Some(capture) = captures(redirect).find(|capture| *capture > stars) else { return };
    let text = match pattern {
        Some(pattern) => format!("`${capture}` has no star: `match` is `{pattern}`"),
        None => format!("`${capture}` needs a `match` with stars; `$0` is the rest of the path"),
    };
    notes.error(place, text);
}

/// The pieces of the target of a redirection: texts, and the numbers of captures.
fn pieces(to: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    let mut rest = to;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (text, behind) = rest.split_once('$').unwrap_or((rest, ""));
        let digit = behind.chars().next().and_then(|next| next.to_digit(10));
        // After the dollar stands a digit, or a second dollar.
        let text = if behind.starts_with('$') { &rest[..=text.len()] } else { text };
        rest = behind.get(1..).unwrap_or_default();
        Some((text, digit.map(|digit| digit as usize)))
    })
}

/// The numbers of captures in the target of a redirection.
fn captures(redirect: &Redirect) -> impl Iterator<Item = usize> {
    pieces(&redirect.to).filter_map(|(_, capture)| capture)
}

/// A path to which a redirection leads, with a slash at its beginning; `None` if it leads elsewhere.
fn example(redirect: &Redirect) -> Option<Vec<u8>> {
    let to = redirect.to.split(['?', '#']).next().unwrap_or_default();
    if !to.starts_with('/') {
        return None;
    }
    let path: String = pieces(to)
        .flat_map(|(text, capture)| [text, if capture.is_some() { "x" } else { "" }])
        .collect();
    let mut name = Vec::new();
    let normal = http::path::normalize(path.as_bytes(), &mut name).ok()?;
    name.insert(0, b'/');
    if normal.directory && name.len() > 1 {
        name.push(b'/');
    }
    Some(name)
}

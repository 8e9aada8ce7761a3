//! Requests that are redirected to another address.

use http::{Method, Status, Target};

use super::answer::{Moved, Outcome, allowed, not_taken, takes};
use crate::files::location;
use crate::serving::{Destination, Serving};
use config::Action;
use config::redirect;
use config::route::RouteId;
use config::site::SiteId;
use content::{self, Kind};
use session::reason::Reason;

/// Redirects a request, with its method and its body, to a path below the path of a route.
pub(super) fn moved_to(target: Target<'_>, serving: &Serving, id: RouteId, path: &[u8]) -> Outcome {
    let location = location(target, serving.prefix(id), path);
    Outcome::Moved(Box::new(Moved { status: Status::PermanentRedirect, location }))
}

/// The route to whose path a request is redirected because the request's path lacks only the final slash. A route of a
/// shorter path does not get the request, because it may take clients that this route refuses. A route of the path
/// itself and a file of that name come first.
#[inline(never)]
pub(super) fn lacks_slash(
    serving: &Serving,
    destination: Destination,
    path: &[u8],
) -> Option<RouteId> {
    let found = serving.entry(destination.route?);
    let directory = serving.directory(destination.site, path)?;
    let names_path = found.route.path.as_bytes() == path
        || found.route.pattern.as_ref().is_some_and(|own| own.shape().as_bytes() == path)
        || found.matcher.redirects.as_ref().is_some_and(|redirects| redirects.lists(path));
    (!names_path && found.served.tree().is_none()).then_some(directory)
}

/// The outcome of a request that was handed over to a path with this query, and found `outcome` at this path. A
/// redirect that the server makes itself becomes temporary, because the requested path stays valid.
pub(super) fn sent_on(serving: &Serving, query: Option<&[u8]>, outcome: Outcome) -> Outcome {
    let (id, to) = match &outcome {
        Outcome::Directory(id) => (*id, Vec::new()),
        Outcome::Content(id, content::PathAnswer::Resource(resource)) => match resource.kind {
            Kind::Redirect => (*id, [&resource.path, &b"/"[..]].concat()),
            Kind::Unclean(len) => (*id, resource.path[..len].to_vec()),
            Kind::File(_) | Kind::Directory(_) => return outcome,
        },
        _ => return outcome,
    };
    let target = Target::Origin { path: b"/", query };
    let location = location(target, serving.prefix(id), &to);
    Outcome::Moved(Box::new(Moved { status: Status::Found, location }))
}

/// Refuses a method that a route does not take at a path. If the route of the path with a slash accepts the method, the
/// client is redirected to that path.
#[inline(never)]
pub(super) fn refused_at(
    serving: &Serving,
    site: SiteId,
    id: RouteId,
    path: &[u8],
    method: &Method<'_>,
) -> Outcome {
    let directory = serving.directory(site, path);
    match directory.filter(|id| takes(&serving.entry(*id).served, method)) {
        Some(id) => Outcome::Directory(id),
        None => not_taken(method, allowed(&serving.entry(id).served)),
    }
}

/// The redirect for a request with a target; `None` if it would lead to the path itself.
#[inline(never)]
pub(super) fn redirected(
    target: Target<'_>,
    serving: &Serving,
    id: RouteId,
    path: &[u8],
) -> Option<Outcome> {
    let route = serving.route(id);
    let listed = serving.redirects(id).and_then(|redirects| redirects.find(path));
    let (to, code, captures) = match (&route.action, &listed) {
        (Action::Redirect(to), _) => {
            let mut captures = vec![path.get(serving.prefix(id).len()..).unwrap_or_default()];
            captures.extend(route.pattern.iter().filter_map(|own| own.captures(path)).flatten());
            (&to.to[..], to.status, captures)
        }
        (_, Some(listed)) => (listed.target, listed.status, vec![&b""[..], listed.rest]),
        _ => return Some(Outcome::Error(Status::NotFound, Reason::NoRedirect)),
    };
    let query = match target {
        Target::Origin { query, .. } => query,
        Target::Asterisk | Target::Authority => None,
    };
    let location = redirect::expand(to, &captures, query);
    let status = redirect::status(code).filter(|_| !redirect::leads_to(&location, path))?;
    Some(Outcome::Moved(Box::new(Moved { status, location })))
}

#[cfg(test)]
mod tests {
    use super::super::stage::{serving, site};
    use super::*;
    use crate::page::ALLOW;

    #[test]
    fn a_method_that_files_do_not_take_is_sent_to_the_path_with_a_slash_whose_route_takes_it() {
        let actions = ["files", "metrics", "redirect", "status", "cgi", "proxy", "fastcgi", "php"];
        let paths = actions.map(|action| format!("/{action}/"));
        let mut routes = vec![("/", "files")];
        routes.extend(paths.iter().zip(actions).map(|(path, action)| (&path[..], action)));
        let serving = serving(&routes);
        let (files, brew) = (RouteId::new(0), Method::Other(b"BREW"));
        for (index, action) in actions.iter().enumerate() {
            let found = |method: &Method<'_>| {
                let path = format!("/{action}");
                match refused_at(&serving, site(), files, path.as_bytes(), method) {
                    Outcome::Directory(id) if id == RouteId::new(1 + index) => "sent",
                    Outcome::NotAllowed(ALLOW) => "405",
                    Outcome::Error(Status::NotImplemented, _) => "501",
                    outcome => panic!("{action} {method:?}: {outcome:?}"),
                }
            };
            let expected = match *action {
                "files" | "metrics" => ("405", "501"),
                // A method that the server does not know is not redirected.
                "redirect" => ("sent", "501"),
                _ => ("sent", "sent"),
            };
            assert_eq!((found(&Method::Post), found(&brew)), expected, "{action}");
        }
        let outcome = refused_at(&serving, site(), files, b"/other", &Method::Post);
        assert!(matches!(outcome, Outcome::NotAllowed(ALLOW)), "{outcome:?}");
    }
    #[test]
    fn a_client_is_sent_on_for_now_with_the_query_of_the_hand_over() {
        let serving = serving(&[("/", "proxy"), ("/a b/", "files")]);
        let directory = || Outcome::Directory(RouteId::new(1));
        for (query, expected) in
            [(None, "/a%20b/"), (Some(&b"q=1"[..]), "/a%20b/?q=1"), (Some(b""), "/a%20b/?")]
        {
            let Outcome::Moved(moved) = sent_on(&serving, query, directory()) else {
                panic!("{query:?}: it is not sent on")
            };
            let location = moved.location.escape_ascii().to_string();
            assert_eq!((moved.status, &location[..]), (Status::Found, expected));
        }
        for outcome in [Outcome::Error(Status::NotFound, Reason::NoFile), Outcome::Options(ALLOW)] {
            let said = format!("{outcome:?}");
            assert_eq!(format!("{:?}", sent_on(&serving, Some(b"q"), outcome)), said);
        }
    }
}

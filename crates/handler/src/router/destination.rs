//! The destinations of paths: their normal form, and their route.

use http::Status;
pub(super) use http::path::normalize_rooted as normalize;
use http::path::{self, PathError};

use super::script::script_len;
use crate::serving::{Destination, NamedFile, Serving};
use config::route::RouteId;
use config::site::SiteId;
use gateways::proxy;
use session::reason::Reason;

/// The ground of a request: the served sites, and the destination of the request among them. The ground does not change
/// while the request goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    pub(super) serving: &'a Serving,
    pub(super) destination: Destination,
}

/// Finds the destination of the path of a URL, and turns the path into its normal form. `find` finds the destination of
/// a path in normal form.
///
/// An encoded slash is a byte of a name: it separates no names, chooses no route, and occurs in no file name. A program
/// or an upstream may decode the slash. So such a path is passed on only if the path with plain slashes has the same
/// route and no dot segments.
pub(super) fn place_of(
    serving: &Serving,
    url_path: &[u8],
    name: &mut Vec<u8>,
    find: impl Fn(&[u8]) -> Destination,
) -> Result<Destination, PathError> {
    normalize(url_path, name)?;
    let destination = find(name);
    let is_decoded = || destination.route.is_some_and(|id| serving.is_gateway(id));
    if name.contains(&path::ENCODED_SLASH)
        && is_decoded()
        && (path::hides_dots(name) || find(&plain(name)).route != destination.route)
    {
        return Err(PathError::EncodedSlash);
    }
    Ok(destination)
}

/// Finds the destination of the path of a URL on a site, and the refusal if the path leads to nothing there. The path
/// may have any form, and `name` becomes its normal form. A refusal gets the error page of the route to which the path
/// would belong.
pub(super) fn place(
    serving: &Serving,
    site: SiteId,
    url_path: &[u8],
    name: &mut Vec<u8>,
) -> (Destination, Option<(Status, Reason)>) {
    match place_of(serving, url_path, name, |name| serving.destination(site, name)) {
        Ok(destination) => {
            let is_hidden = is_hidden(serving, destination, name);
            (destination, is_hidden.then_some((Status::NotFound, Reason::Dotfile)))
        }
        Err(error) => {
            let destination = match normalize(url_path, name) {
                Ok(()) => serving.destination(site, name),
                Err(_) => Destination { site, route: None },
            };
            (destination, Some((error.status(), Reason::Path(error))))
        }
    }
}

/// A path in normal form, as a gateway reads the path if the gateway decodes encoded slashes.
fn plain(name: &[u8]) -> Vec<u8> {
    let is_slash = |byte: &u8| [b'/', path::ENCODED_SLASH].contains(byte);
    let mut plain = Vec::with_capacity(name.len());
    for segment in name.split(is_slash).filter(|segment| !segment.is_empty()) {
        plain.push(b'/');
        plain.extend_from_slice(segment);
    }
    if plain.is_empty() || name.last().is_some_and(is_slash) {
        plain.push(b'/');
    }
    plain
}

/// Returns true if a path has a name that begins with a dot, and its route serves no such files. Path info after the
/// name of a script may have such names.
pub(super) fn is_hidden(serving: &Serving, destination: Destination, path: &[u8]) -> bool {
    let Some(id) = destination.route else { return false };
    let rest = path.get(serving.prefix(id).len()..).unwrap_or_default();
    let len = serving.scripts(id).map_or(rest.len(), |_| script_len(rest));
    is_hidden_below(serving, id, &rest[..len])
}

/// Returns true if a path below the path of a route has a name that begins with a dot, and the route serves no such
/// files.
pub(super) fn is_hidden_below(serving: &Serving, id: RouteId, path: &[u8]) -> bool {
    let Some(files) = serving.route(id).action.files() else { return false };
    let prefix = serving.prefix(id);
    let mut names = path.split(|byte| *byte == b'/');
    // The directory `.well-known` is for the public (RFC 8615).
    let first = names.next().filter(|name| prefix != b"/" || *name != b".well-known");
    !files.rules.dotfiles && first.into_iter().chain(names).any(|name| name.starts_with(b"."))
}

/// The length of the clean path of an HTML file, if this path leads to the file but is not its clean path. The clean
/// path is a prefix of this path.
pub(super) fn clean_len(serving: &Serving, destination: Destination, path: &[u8]) -> Option<usize> {
    let files = serving.route(destination.route?).action.files()?;
    let rest = path.get(serving.prefix(destination.route?).len()..)?;
    Some(path.len() - rest.len() + files.rules.clean_path(rest)?.len())
}

/// The file of a site to which an upstream has handed a request over. For a path of the file system, the file's URL
/// path on the site is looked up, and has to belong to the same route. So `X-Accel-Redirect` and `X-Sendfile` hand out
/// the same files.
pub(super) fn handed_file(
    serving: &Serving,
    site: SiteId,
    to: &proxy::response::Target,
) -> Option<NamedFile> {
    let mut name = Vec::new();
    let of_file = match to {
        proxy::response::Target::Path(path) | proxy::response::Target::Local(path) => {
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            normalize(path, &mut name).ok()?;
            path::check_file(&name).ok()?;
            None
        }
        proxy::response::Target::File(path) => {
            let (route, path) = serving.path_of_file(site, path)?;
            name = path;
            Some(route)
        }
    };
    let destination = serving.inner_destination(site, &name);
    let route = destination.route.filter(|_| !is_hidden(serving, destination, &name))?;
    if of_file.is_some_and(|of_file| !serving.is_same_directory(of_file, route)) {
        return None;
    }
    serving.named_file_at(route, name.get(serving.prefix(route).len()..)?)
}

#[cfg(test)]
mod tests {
    use super::super::stage::{serving, site};
    use super::*;

    #[test]
    fn a_path_of_a_page_has_a_clean_one_where_the_route_says_so() {
        let serving = serving(&[("/", "files"), ("/clean/", "clean-urls"), ("/api/", "proxy")]);
        for (path, clean) in [
            ("/a.html", None),
            ("/clean/a.html", Some("/clean/a")),
            ("/clean/index.html", Some("/clean/")),
            ("/clean/d/index.html", Some("/clean/d/")),
            ("/clean/a", None),
            ("/clean/", None),
            ("/api/a.html", None),
        ] {
            let destination = serving.destination(site(), path.as_bytes());
            let found = clean_len(&serving, destination, path.as_bytes()).map(|len| &path[..len]);
            assert_eq!(found, clean, "{path}");
        }
    }
}

//! The places of paths: their normal form, and their route.

use http::path::{self, Normal, PathError};

use crate::handler::proxy;
use crate::serving::{Page, Place, Serving};
use crate::site::SiteId;

/// Turns the path of a URL into its normal form, with a slash at its beginning, and at its end if it names
/// a directory.
pub(super) fn normalize(url_path: &[u8], name: &mut Vec<u8>) -> Result<(), PathError> {
    let normal = path::normalize(url_path, name)?;
    complete(normal, name);
    Ok(())
}

/// Adds the slashes to the name that a path was turned into.
fn complete(normal: Normal, name: &mut Vec<u8>) {
    name.insert(0, b'/');
    if normal.directory && name.len() > 1 {
        name.push(b'/');
    }
}

/// Turns the path of a URL into its normal form, or into that of a path that names no file.
pub(super) fn name_of(url_path: &[u8], name: &mut Vec<u8>) -> Result<(), PathError> {
    let Err(error) = normalize(url_path, name) else { return Ok(()) };
    if !matches!(error, PathError::EncodedSlash | PathError::NameTooLong | PathError::PathTooLong) {
        return Err(error);
    }
    let normal = path::normalize_opaque(url_path, name)?;
    complete(normal, name);
    Ok(())
}

/// Finds the place of the path of a URL in a site, and turns the path into its normal form.
///
/// A path that names no file is for a route that has none. One with an encoded slash is passed on only if it is of
/// the same route with a plain one: the server may take it for that.
pub(super) fn place_of(
    serving: &Serving,
    site: SiteId,
    url_path: &[u8],
    name: &mut Vec<u8>,
) -> Result<Place, PathError> {
    let Err(error) = normalize(url_path, name) else { return Ok(serving.place(site, name)) };
    name_of(url_path, name)?;
    let place = serving.place(site, name);
    let route = place.route.filter(|id| serving.upstream(*id).is_some());
    let route = route.filter(|id| serving.tree(*id).is_none()).ok_or(error)?;
    if name.contains(&path::ENCODED_SLASH) {
        let mut plain = Vec::with_capacity(name.len());
        for segment in name.split(|byte| [b'/', path::ENCODED_SLASH].contains(byte)) {
            if !segment.is_empty() {
                plain.push(b'/');
                plain.extend_from_slice(segment);
            }
        }
        if name.ends_with(b"/") || name.ends_with(&[path::ENCODED_SLASH]) {
            plain.push(b'/');
        }
        // A script is told its path decoded.
        if serving.scripts(route).is_some() || serving.place(site, &plain).route != place.route {
            return Err(PathError::EncodedSlash);
        }
    }
    Ok(place)
}

/// Returns whether a path has a name that begins with a dot, and its route serves no such files.
pub(super) fn is_hidden(serving: &Serving, place: Place, path: &[u8]) -> bool {
    let Some(id) = place.route else { return false };
    let Some(files) = serving.route(id).action.files() else { return false };
    let prefix = serving.prefix(id);
    let mut names = path.get(prefix.len()..).unwrap_or_default().split(|byte| *byte == b'/');
    // This directory is for the public (RFC 8615).
    let first = names.next().filter(|name| prefix != b"/" || *name != b".well-known");
    !files.rules.dotfiles && first.into_iter().chain(names).any(|name| name.starts_with(b"."))
}

/// The length of the clean path of a page, if a path of a place is another one that leads to it. The clean path is the
/// beginning of that.
pub(super) fn clean_len(serving: &Serving, place: Place, path: &[u8]) -> Option<usize> {
    let files = serving.route(place.route?).action.files()?;
    let rest = path.get(serving.prefix(place.route?).len()..)?;
    Some(path.len() - rest.len() + files.rules.clean_path(rest)?.len())
}

/// The file of a site to which a server has handed a request over.
pub(super) fn page_of(
    serving: &Serving,
    site: SiteId,
    to: &proxy::response::Target,
) -> Option<Page> {
    let path = match to {
        proxy::response::Target::Path(path) | proxy::response::Target::Local(path) => path,
        proxy::response::Target::File(path) => return serving.page_of_file(site, path),
    };
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let mut name = Vec::new();
    normalize(path, &mut name).ok()?;
    let place = serving.inner_place(site, &name);
    let route = place.route.filter(|_| !is_hidden(serving, place, &name))?;
    serving.page_at(route, name.get(serving.prefix(route).len()..)?)
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
            let place = serving.place(site(), path.as_bytes());
            let found = clean_len(&serving, place, path.as_bytes()).map(|len| &path[..len]);
            assert_eq!(found, clean, "{path}");
        }
    }
}

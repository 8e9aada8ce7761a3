//! The names of scripts: which part of a path, or which file, is one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::config::SCRIPT_SUFFIX;
use crate::content::{Kind, Resource};
use crate::route::RouteId;
use crate::serving::{Page, Serving};
use crate::site::SiteId;

/// The index of directories that only the application has.
const INDEX: &str = "index.php";

/// The length of the part of a path that names a script: up to the first name with the suffix of scripts, if
/// there is one.
pub(super) fn script_len(path: &[u8]) -> usize {
    let mut end = 0;
    for name in path.split_inclusive(|&byte| byte == b'/') {
        let bare = name.strip_suffix(b"/").unwrap_or(name);
        if is_script(bare) {
            return end + bare.len();
        }
        end += name.len();
    }
    path.len()
}

fn is_script(name: &[u8]) -> bool {
    name.ends_with(SCRIPT_SUFFIX.as_bytes())
}

/// The name of the script at a path: that of the index if it is the path of a directory.
pub(super) fn script_of(serving: &Serving, id: RouteId, path: &[u8]) -> Vec<u8> {
    let index = match serving.route(id).action.files() {
        Some(files) => &files.rules.index[..],
        None => INDEX,
    };
    let is_directory = matches!(path, [] | [.., b'/']);
    [path, if is_directory { index.as_bytes() } else { b"" }].concat()
}

/// Returns whether a page is a script of its site. Its source is not sent.
pub(super) fn is_source(serving: &Serving, site: SiteId, page: &Page) -> bool {
    let name = script_of(serving, page.route, &page.path);
    let files = serving.route(page.route).action.files().filter(|_| is_script(&name));
    let path = files.and_then(|files| std::path::absolute(&files.root).ok());
    path.is_some_and(|root| serving.has_scripts_at(site, &root.join(OsStr::from_bytes(&name))))
}

/// The name of the script that a resource is, if it is one.
pub(super) fn script_at(serving: &Serving, id: RouteId, resource: &Resource) -> Option<Vec<u8>> {
    serving.scripts(id)?;
    let Kind::File(_) = &resource.kind else { return None };
    let name = script_of(serving, id, &resource.path);
    is_script(&name).then_some(name)
}

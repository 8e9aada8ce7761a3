//! The names of scripts: the part of a path that names a script, and the files that are scripts.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::serving::{NamedFile, Serving, is_like_script};
use config::SCRIPT_SUFFIX;
use config::route::RouteId;
use config::site::SiteId;
use content::{Kind, Resource};

/// The index of directories that only the application has.
const INDEX: &str = "index.php";

/// The length of the part of a path that names a script. This part ends with the first name that has the suffix of
/// scripts; without such a name it is the whole path.
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

/// The name of the script at a path that only the application knows. For a directory it is the name of the directory's
/// index.
pub(super) fn script_of(path: &[u8]) -> Vec<u8> {
    name_at(path, INDEX)
}

/// The name of the file at a path. For a directory it is the name of the directory's index.
fn name_at(path: &[u8], index: &str) -> Vec<u8> {
    let is_directory = matches!(path, [] | [.., b'/']);
    [path, if is_directory { index.as_bytes() } else { b"" }].concat()
}

/// Returns true if a file is a script of its site, or if an index of its directory is a script. The source of a script
/// is not sent.
pub(super) fn is_source(serving: &Serving, site: SiteId, file: &NamedFile) -> bool {
    let Some(files) = serving.route(file.route).action.files() else { return false };
    let names = files.rules.index.iter().map(|index| name_at(&file.path, index));
    let Ok(root) = std::path::absolute(&files.root) else { return false };
    let mut scripts = names.filter(|name| is_like_script(name));
    scripts.any(|name| serving.has_scripts_at(site, &root.join(OsStr::from_bytes(&name))))
}

/// The path of a resource's file below its route. For a directory it is the path of the index that was chosen.
pub(super) fn file_at(serving: &Serving, id: RouteId, resource: &Resource) -> Option<Vec<u8>> {
    let Kind::File(_) = &resource.kind else { return None };
    let index = serving.route(id).action.files()?.rules.index.get(resource.index);
    Some(name_at(&resource.path, index.map_or("", String::as_str)))
}

/// The name of a resource's script, if the resource is one.
pub(super) fn script_at(serving: &Serving, id: RouteId, resource: &Resource) -> Option<Vec<u8>> {
    serving.scripts(id)?;
    file_at(serving, id, resource).filter(|name| is_script(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_ends_with_the_first_name_that_has_the_suffix() {
        for (path, script) in [
            ("", ""),
            ("a.php", "a.php"),
            ("a.php/", "a.php"),
            ("a.php/b.php", "a.php"),
            ("a/b.php/c/d", "a/b.php"),
            ("a.phpx/b", "a.phpx/b"),
            ("a.jpg/x.php", "a.jpg/x.php"),
            ("a/b/", "a/b/"),
            (".php", ".php"),
        ] {
            assert_eq!(&path[..script_len(path.as_bytes())], script, "{path}");
        }
    }
}

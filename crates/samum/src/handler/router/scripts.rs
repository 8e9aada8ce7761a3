//! Requests for the scripts of FastCGI applications.
//!
//! Where the directory of the scripts is served here, too, a path leads to a file as it does in other routes,
//! by way of directories, indices, fallbacks and pages for errors; a file that is a script is then run in place
//! of being sent, and one with directives is a page. Else each path leads to a script, and the application says
//! whether there is one.
//!
//! | path | script, with the index `index.php` | path info |
//! |---|---|---|
//! | `/a.php` | `a.php` | |
//! | `/a.php/b/` | `a.php` | `/b/` |
//! | `/a/` | `a/index.php` | |

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, Status, Target};
use http1::Framing;

use super::Router;
use super::admit::circumstances;
use super::answer::{Outcome, not_taken};
use super::moved::moved_to;
use super::pages;
use super::perform::Reply;
use super::place::{is_hidden_below, normalize};
use super::script::{script_at, script_len, script_of};
use super::state::{Ground, Lookup, Next, Over, Purpose, Script, State, complete, refuse};
use super::steps::{Slash, Step};
use crate::config::Fastcgi;
use crate::content::{self, Kind};
use crate::handler::gateway;
use crate::handler::page::ALLOW;
use crate::handler::proxy::Passing;
use crate::handler::proxy::wire::Wire;
use crate::programs::environment::{self, Environment};
use crate::route::RouteId;
use crate::serving::Serving;
use crate::shell::Shell;

/// The first step of a request for a path of a route with scripts: the file to which the path leads, or the script. The
/// first bytes of the path below the route, so many, are known to be a directory.
pub(super) fn begin<'a>(
    ground: Ground<'a>,
    id: RouteId,
    (path, directory_len): (Cow<'a, [u8]>, usize),
    script: Script<'a>,
    over: Option<Box<Over>>,
) -> Next<'a> {
    let Ground { serving, place } = ground;
    let prefix_len = serving.prefix(id).len();
    let Some(rest) = path.get(prefix_len..) else {
        return complete(serving, over, Outcome::Directory(id));
    };
    let name_len = directory_len + script_len(&rest[directory_len..]);
    let name = &rest[..name_len];
    if directory_len > 0 && is_hidden_below(serving, id, name) {
        return refuse(ground, over, Outcome::Error(Status::NotFound));
    }
    let Some(tree) = serving.tree(id) else {
        return Next::Script { route: id, name: script_of(name), script };
    };
    let (slash, path) = match path {
        Cow::Borrowed(path) => (Slash::Of(path), Cow::Borrowed(&path[prefix_len..][..name_len])),
        Cow::Owned(path) => {
            let slash = Slash::Found(serving.directory(place.site, &path));
            (slash, Cow::Owned(path[prefix_len..][..name_len].to_vec()))
        }
    };
    let (step, purpose) = (Step::Asked(slash), Purpose::Script(script));
    Next::File { tree, path, lookup: Lookup { route: id, step, purpose, over } }
}

/// Runs what was found if it is a script.
pub(super) fn found<'a>(
    ground: Ground<'a>,
    script: Script<'a>,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'a> {
    let Ground { serving, place } = ground;
    let Outcome::Content(id, content::Answer::Resource(resource)) = &outcome else {
        return complete(serving, over, outcome);
    };
    let (id, resource) = (*id, Rc::clone(resource));
    if let Some(name) = script_at(serving, id, &resource) {
        return Next::Script { route: id, name, script };
    }
    let below = || {
        script.asked.with(|request| path_below(request.head.target, serving, id, &resource.path))
    };
    match resource.kind {
        Kind::Redirect => {
            if let Some(path) = below() {
                let len = resource.path.len();
                return begin(ground, id, (Cow::Owned(path), len), script, over);
            }
        }
        // With path info it is the script itself that was asked for.
        Kind::Unclean(len) => {
            if let (Some(path), Some(tree)) = (below(), serving.tree(id)) {
                let slash = Slash::Found(serving.directory(place.site, &path));
                let (step, purpose) = (Step::Asked(slash), Purpose::Script(script));
                let path = Cow::Owned(resource.path[..len].to_vec());
                return Next::File {
                    tree,
                    path,
                    lookup: Lookup { route: id, step, purpose, over },
                };
            }
        }
        Kind::File(_) | Kind::Directory(_) => {}
    }
    if script.asked.gets() {
        return pages::found(serving, script.asked, over, outcome);
    }
    let outcome = script.asked.with(|request| match (&request.head.method, &resource.kind) {
        (_, Kind::Unclean(len)) => {
            moved_to(request.head.target, serving, id, &resource.path[..*len])
        }
        (Method::Options, _) => Outcome::Options(ALLOW),
        // Its index may be a script. With 301 the client would lose the body.
        (_, Kind::Redirect) => {
            let to = [&resource.path, &b"/"[..]].concat();
            moved_to(request.head.target, serving, id, &to)
        }
        (method, _) => not_taken(method, ALLOW),
    });
    match outcome.error() {
        Some(_) => refuse(ground, over, outcome),
        None => complete(serving, over, outcome),
    }
}

impl Router {
    /// Has a script of a route run, whose name is a path below the directory of the scripts.
    pub(super) fn run<'a>(
        &mut self,
        shell: &mut Shell,
        ground: Ground<'_>,
        id: RouteId,
        name: &[u8],
        Script { asked, held, count }: Script<'a>,
    ) -> (State<'a>, Reply) {
        let serving = ground.serving;
        let (Some(fastcgi), Some(upstream)) = (serving.scripts(id), serving.upstream(id)) else {
            unreachable!("scripts are of a route with an application")
        };
        let (wire, affinity) = asked.with(|request| {
            let head = request.head;
            let framing = gateway::framing(head);
            let circumstances = circumstances(shell, request, serving);
            let mut environment = Environment::new(head, &circumstances);
            if let Framing::Length(length) = framing {
                environment.set_content_length(length);
            }
            let mount = serving.prefix(id);
            let path = [name, &path_info(head.target, mount, name)].concat();
            let script =
                environment::Script { mount, path: &path, directory: false, len: name.len() };
            let root = root_of(fastcgi);
            environment.set_script(script, root, Some(root));
            for (name, value) in &fastcgi.environment {
                environment.set(name, value.as_bytes());
            }
            let limits = &shell.cx.tuning.response_limits;
            let wire = Wire::fastcgi(head, environment, fastcgi.keeps_connections, limits);
            let client = circumstances.client.map(|client| client.ip());
            (wire, upstream.key(client, &path))
        });
        let upstream = Arc::clone(upstream);
        let passing = Passing { upstream: &upstream, affinity, wire, held };
        self.exchange(shell, ground, id, (asked, count), passing)
    }
}

/// The path of a target of a route, if it goes on below this directory, whose name is like that of a script.
fn path_below(
    target: Target<'_>,
    serving: &Serving,
    id: RouteId,
    directory: &[u8],
) -> Option<Vec<u8>> {
    let Target::Origin { path, .. } = target else { return None };
    let mut name = Vec::new();
    normalize(path, &mut name).ok()?;
    let rest = name.get(serving.prefix(id).len()..)?.strip_prefix(directory)?;
    rest.starts_with(b"/").then_some(name)
}

/// The path info of a request for a target below this mount that has led to this script.
fn path_info(target: Target<'_>, mount: &[u8], script: &[u8]) -> Vec<u8> {
    let Target::Origin { path, .. } = target else { return Vec::new() };
    let mut name = Vec::new();
    let Ok(()) = normalize(path, &mut name) else { return Vec::new() };
    // Another one is an index or a fallback.
    let info = name.strip_prefix(mount).and_then(|rest| rest.strip_prefix(script));
    info.filter(|info| info.starts_with(b"/")).unwrap_or_default().to_vec()
}

/// The directory of the scripts as the application sees it.
fn root_of(fastcgi: &Fastcgi) -> &Path {
    let files = fastcgi.files.as_ref().map(|files| &files.root);
    let root = fastcgi.root.as_ref().or(files).map(PathBuf::as_path);
    root.unwrap_or_else(|| unreachable!("a configuration without it is refused"))
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

    #[test]
    fn the_path_info_is_what_follows_the_script_that_was_asked_for() {
        for (path, mount, script, info) in [
            ("/a.php/b%20c/", "/", "a.php", "/b c/"),
            ("/a.php", "/", "a.php", ""),
            ("/x/a.php/b", "/x/", "a.php", "/b"),
            ("/x/../a.php//b", "/", "a.php", "/b"),
            ("/d.php/a.php/b", "/", "d.php/a.php", "/b"),
            // An index, and a fallback.
            ("/", "/", "index.php", ""),
            ("/a.php/b", "/", "index.php", ""),
            ("/pretty/url", "/", "index.php", ""),
        ] {
            let target = Target::Origin { path: path.as_bytes(), query: None };
            let found = path_info(target, mount.as_bytes(), script.as_bytes());
            assert_eq!(found.escape_ascii().to_string(), info, "{path}");
        }
    }
}

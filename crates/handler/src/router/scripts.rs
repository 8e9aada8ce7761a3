//! Requests for the scripts of FastCGI applications.
//!
//! If a route also serves the directory of the scripts, a path leads to a file as in other routes: by way of
//! directories, indices, fallbacks and error pages. Then a file that is a script is run and not sent, and a file
//! with directives is a page. In a route without such a directory, each path leads to a script, and the application
//! decides whether the script exists.
//!
//! | path | script, with the index `index.php` | path info |
//! |---|---|---|
//! | `/a.php` | `a.php` | |
//! | `/a.php/b/` | `a.php` | `/b/` |
//! | `/a/` | `a/index.php` | |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Target;

use super::Router;
use super::admit::circumstances;
use super::destination::{Ground, normalize};
use super::perform::Reply;
use super::state::{Script, State};
use crate::attach::User;
use config::Fastcgi;
use config::route::RouteId;
use gateways::programs::environment::{self, Circumstances, Environment};
use gateways::proxy::Passing;
use gateways::proxy::wire::Wire;
use session::shell::Shell;

impl Router {
    /// Runs a script of a route. The name of the script is a path below the directory of the scripts.
    pub(super) fn run<'a>(
        &mut self,
        shell: &mut Shell,
        ground: Ground<'_>,
        id: RouteId,
        name: &[u8],
        Script { asked, held, count }: Script<'a>,
        user: Option<&User>,
    ) -> (State<'a>, Reply) {
        let serving = ground.serving;
        let (Some(fastcgi), Some(upstream)) = (serving.scripts(id), serving.upstream(id)) else {
            unreachable!("scripts are of a route with an application")
        };
        let requested = self.pages.requested(asked.ticket());
        let (wire, affinity) = asked.with(|request| {
            let head = request.head;
            let circumstances = Circumstances {
                requested: requested.as_deref(),
                user: user.map(User::name),
                ..circumstances(shell, request, serving)
            };
            let mut environment = Environment::new(head, &circumstances);
            environment.announce_content(head);
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
            (wire, upstream.key(circumstances.sender.client, &path))
        });
        let upstream = Arc::clone(upstream);
        let passing = Passing { upstream: &upstream, affinity, wire, held };
        self.exchange(shell, ground, id, (asked, count), passing)
    }
}

/// The path info of a request for a target below this mount that has led to this script.
fn path_info(target: Target<'_>, mount: &[u8], script: &[u8]) -> Vec<u8> {
    let Target::Origin { path, .. } = target else { return Vec::new() };
    let mut name = Vec::new();
    let Ok(()) = normalize(path, &mut name) else { return Vec::new() };
    // A script that the path does not name is an index or a fallback, and has no path info.
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

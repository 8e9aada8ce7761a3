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

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, Status, Target};
use http1::Framing;

use super::admit::circumstances;
use super::answer::{Answer, Outcome, not_taken};
use super::moved::moved_to;
use super::place::{is_hidden_below, normalize};
use super::script::{script_at, script_len, script_of};
use super::steps::Step;
use super::{Asked, Routed, Router, Waiting};
use crate::config::Fastcgi;
use crate::content::{self, Kind};
use crate::handler::gateway;
use crate::handler::page::ALLOW;
use crate::handler::proxy::wire::Wire;
use crate::handler::proxy::{Held, Passing};
use crate::handler::{Found, Request, Ticket};
use crate::programs::environment::{Environment, Script};
use crate::route::RouteId;
use crate::serving::{Place, Serving, TreeId};
use crate::shell::Shell;

impl Router {
    /// Finds the answer to a request for a path of a route with scripts. It was perhaps held back.
    #[inline(never)]
    pub(super) fn find_script(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        routed: Routed<'_>,
        held: Option<Held>,
    ) -> Found<Answer> {
        self.find_script_in(shell, request, routed, 0, held)
    }

    /// The same for a path whose first bytes below the route, so many, are known to be a directory.
    fn find_script_in(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Routed { serving, place, route: id, path }: Routed<'_>,
        directory_len: usize,
        held: Option<Held>,
    ) -> Found<Answer> {
        let Some(rest) = path.get(serving.prefix(id).len()..) else {
            return Found::Now(Answer { serving, place, outcome: Outcome::Directory(id) });
        };
        let name = &rest[..directory_len + script_len(&rest[directory_len..])];
        if directory_len > 0 && is_hidden_below(&serving, id, name) {
            let outcome = Outcome::Error(Status::NotFound);
            return self.settle_refused(shell, request.ticket, (serving, place), outcome);
        }
        let Some(tree) = serving.tree(id) else {
            let script = script_of(name);
            return self.run(shell, request, (serving, place), id, &script, held);
        };
        self.find_script_at(
            shell,
            request,
            Routed { serving, place, route: id, path },
            (tree, name),
            held,
        )
    }

    /// The same for a file of the tree of the route, to which the path leads.
    fn find_script_at(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Routed { serving, place, route: id, path }: Routed<'_>,
        (tree, name): (TreeId, &[u8]),
        held: Option<Held>,
    ) -> Found<Answer> {
        match self.files.find(shell, tree, name, request.ticket) {
            content::Found::Now(answer) => {
                let outcome = Outcome::Content(id, answer);
                let found = self.settle_asked(shell, request, (serving, place), path, outcome);
                self.run_found(shell, request, found, held)
            }
            content::Found::Later => {
                let step = Step::first(&serving, place.site, path);
                let waiting = Waiting::for_file(serving, place, id, step);
                self.waiting.insert(request.ticket, waiting);
                self.hold(request, held)
            }
        }
    }

    /// Goes on with a request that had to wait for a file, and was held back in case that is a script.
    #[inline(never)]
    pub(super) fn run_later(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        mut asked: Asked,
        found: Found<Answer>,
    ) -> Found<Answer> {
        let held = asked.held.take();
        let head = &asked.head.as_head();
        // It has been counted.
        let request = &Request { head, ticket, origin: &asked.origin, is_again: true };
        self.run_found(shell, request, found, held)
    }

    /// Runs what was found if it is a script.
    fn run_found(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        found: Found<Answer>,
        held: Option<Held>,
    ) -> Found<Answer> {
        match found {
            Found::Now(Answer { serving, place, outcome }) => {
                let Outcome::Content(id, content::Answer::Resource(resource)) = &outcome else {
                    return Found::Now(Answer { serving, place, outcome });
                };
                if let Some(script) = script_at(&serving, *id, resource) {
                    return self.run(shell, request, (serving, place), *id, &script, held);
                }
                if matches!(resource.kind, Kind::Redirect)
                    && let Some(path) = path_below(request, &serving, *id, &resource.path)
                {
                    let id = *id;
                    let len = resource.path.len();
                    let routed = Routed { serving, place, route: id, path: &path };
                    return self.find_script_in(shell, request, routed, len, held);
                }
                // With path info it is the script itself that was asked for.
                if let Kind::Unclean(len) = resource.kind
                    && let Some(path) = path_below(request, &serving, *id, &resource.path)
                    && let Some(tree) = serving.tree(*id)
                {
                    let (id, resource) = (*id, Rc::clone(resource));
                    let routed = Routed { serving, place, route: id, path: &path };
                    let clean = &resource.path[..len];
                    return self.find_script_at(shell, request, routed, (tree, clean), held);
                }
                match (&request.head.method, &resource.kind) {
                    (Method::Get | Method::Head, _) => {
                        self.make_page(shell, request, Answer { serving, place, outcome })
                    }
                    (_, Kind::Unclean(len)) => {
                        let outcome = moved_to(request, &serving, *id, &resource.path[..*len]);
                        Found::Now(Answer { serving, place, outcome })
                    }
                    (Method::Options, _) => {
                        Found::Now(Answer { serving, place, outcome: Outcome::Options(ALLOW) })
                    }
                    // Its index may be a script. With 301 the client would lose the body.
                    (_, Kind::Redirect) => {
                        let to = [&resource.path, &b"/"[..]].concat();
                        let outcome = moved_to(request, &serving, *id, &to);
                        Found::Now(Answer { serving, place, outcome })
                    }
                    (method, _) => {
                        let outcome = not_taken(method, ALLOW);
                        self.settle_refused(shell, request.ticket, (serving, place), outcome)
                    }
                }
            }
            // Another file is looked for.
            Found::Later(None) => self.hold(request, held),
            found @ Found::Later(Some(_)) => found,
        }
    }

    /// Holds a request back whose file is looked for, unless it is held already.
    fn hold(&mut self, request: &Request<'_>, held: Option<Held>) -> Found<Answer> {
        let waiting = self.waiting.get_mut(&request.ticket).expect("it has begun to wait");
        let mut asked = Asked::new(request, 0);
        let (held, search) = match held {
            Some(held) => (held, None),
            None => {
                let waiter = asked.waiter(waiting.serving.route(waiting.route));
                let (held, search) = self.proxy.hold(request.ticket, waiter);
                (held, Some(search))
            }
        };
        asked.held = Some(held);
        waiting.asked = Some(asked);
        Found::Later(search)
    }

    /// Has a script run, whose name is a path below the directory of the scripts.
    fn run(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        (serving, place): (Rc<Serving>, Place),
        id: RouteId,
        script: &[u8],
        held: Option<Held>,
    ) -> Found<Answer> {
        let head = request.head;
        let (Some(fastcgi), Some(upstream)) = (serving.scripts(id), serving.upstream(id)) else {
            unreachable!("scripts are of a route with an application")
        };
        let framing = gateway::framing(head);
        let circumstances = circumstances(shell, request, &serving);
        let mut environment = Environment::new(head, &circumstances);
        if let Framing::Length(length) = framing {
            environment.set_content_length(length);
        }
        let mount = serving.prefix(id);
        let path = [script, &path_info(head.target, mount, script)].concat();
        let script = Script { mount, path: &path, directory: false, len: script.len() };
        let root = root_of(fastcgi);
        environment.set_script(script, root, Some(root));
        for (name, value) in &fastcgi.environment {
            environment.set(name, value.as_bytes());
        }
        let limits = &shell.cx.tuning.response_limits;
        let wire = Wire::fastcgi(head, environment, fastcgi.keeps_connections, limits);
        let upstream = Arc::clone(upstream);
        let client = circumstances.client.map(|client| client.ip());
        let affinity = upstream.key(client, &path);
        let passing = Passing { upstream: &upstream, affinity, wire, held };
        self.exchange(shell, request, (serving, place), id, passing)
    }
}

/// The path of a request of a route, if it goes on below this directory, whose name is like that of a script.
fn path_below(
    request: &Request<'_>,
    serving: &Serving,
    id: RouteId,
    directory: &[u8],
) -> Option<Vec<u8>> {
    let Target::Origin { path, .. } = request.head.target else { return None };
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

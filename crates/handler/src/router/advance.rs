//! The transitions of a request between its [states](super::state).

use core::ops::Range;
use std::borrow::Cow;
use std::rc::Rc;

use http::{Method, Status, Target};

use super::answer::{HandedOver, Outcome, allowed, fixed, not_taken};
use super::asked::Asked;
use super::destination::{Ground, is_hidden_below, normalize};
use super::moved::{lacks_slash, moved_to, redirected, refused_at, sent_on};
use super::script::{script_at, script_len, script_of};
use super::state::{
    Arrived, By, Event, FileSearch, Handed, Next, Over, Parsing, Purpose, Script, State, Way,
};
use super::steps::{Further, Slash, Step, further};
use crate::page::{ALLOW, ALLOW_MOST};
use crate::serving::{Served, Serving};
use crate::viewers::View;
use config::route::RouteId;
use config::{FileRules, Files};
use content::{self, Kind, Resource};
use gateways::held::Held;
use gateways::proxy::response::HandOver;
use gateways::{cgi, proxy};
use session::reason::Reason;

/// The first step of a request that the guard of its route has let pass.
pub(super) fn begin<'a>(
    ground: Ground<'a>,
    asked: Asked<'a>,
    path: Cow<'a, [u8]>,
    handed: Option<Handed>,
) -> Next<'a> {
    let Ground { serving, destination } = ground;
    let over = handed.is_some().then(|| Over::local(&asked));
    let Some(id) = destination.route else {
        let step = Step::Asked(Slash::of(path, ground));
        return go_on(
            ground,
            step,
            Purpose::Send,
            over,
            Outcome::Error(Status::NotFound, Reason::NoRoute),
        );
    };
    let entry = serving.entry(id);
    if entry.served.tree().is_none()
        && let Some(directory) = lacks_slash(serving, destination, &path)
    {
        return complete(serving, over, Outcome::Directory(directory));
    }
    let outcome = match (&entry.served, handed) {
        (Served::Programs(_), handed) => return Next::Program { path, asked, handed },
        (Served::Scripts { .. }, handed) => {
            let (held, count) = handed.map(|handed| (handed.held, handed.count)).unzip();
            let script = Script { asked, held, count: count.unwrap_or(0) };
            return begin_script(ground, id, (path, 0), script, over);
        }
        (Served::Proxy(_), handed) => return Next::Proxy { path, asked, handed },
        (Served::Files { tree, has_pages }, _) if asked.gets() => {
            let prefix_len = entry.prefix.len();
            if path.len() < prefix_len {
                return complete(serving, over, Outcome::Directory(id));
            }
            let rest = part_of(&path, prefix_len..path.len());
            let (tree, step) = (serving.tree_at(*tree), Step::Asked(Slash::of(path, ground)));
            let path = rest;
            let purpose = if *has_pages { Purpose::Page(asked) } else { Purpose::Send };
            return Next::File {
                tree,
                path,
                search: FileSearch { route: id, step, purpose, over },
            };
        }
        (Served::Status(status), _) => fixed(*status, &entry.route, id),
        (served, _) => {
            let found = asked.with(|request| match (&request.head.method, served) {
                (Method::Get | Method::Head, Served::Metrics) => Some(Outcome::Metrics),
                (Method::Get | Method::Head, Served::StatusPage) => {
                    let query = match request.head.target {
                        Target::Origin { query, .. } => query,
                        Target::Asterisk | Target::Authority => None,
                    };
                    Some(Outcome::StatusPage(View::of(query, request.ticket)))
                }
                (Method::Options, served) => Some(Outcome::Options(allowed(served))),
                (method, Served::Redirect) if method.is_known() => {
                    redirected(request.head.target, serving, id, &path)
                }
                (method, _) => Some(refused_at(serving, destination.site, id, &path, method)),
            });
            match found {
                Some(outcome) => outcome,
                None => return Next::Loop { path },
            }
        }
    };
    match outcome {
        Outcome::Error(..) | Outcome::NotAllowed(_) => refuse(ground, over, outcome),
        outcome => complete(serving, over, outcome),
    }
}

/// Handles the event for which a request waits, and returns what the request needs next.
pub(super) fn advance<'a>(ground: Ground<'a>, state: State<'a>, event: Event) -> Next<'a> {
    let serving = ground.serving;
    match (state, event) {
        (State::Authorize(arrived), Event::Admitted(Ok(_))) => continue_authorized(ground, arrived),
        (State::Authorize(_), Event::Admitted(Err(denial))) => {
            refuse(ground, None, Outcome::Denied(Box::new(denial)))
        }
        (State::Recall(arrived), Event::Recalled(None)) => Next::Begin(arrived),
        (State::Recall(_), Event::Recalled(Some(recalled))) => {
            complete(serving, None, Outcome::Recalled(recalled))
        }
        (State::File(FileSearch { route, step, purpose, over }), Event::File(answer)) => {
            go_on(ground, step, purpose, over, Outcome::Content(route, answer))
        }
        (State::Template(Parsing { route, resource, over, .. }), Event::Template(Ok(template)))
            if template.is_plain() =>
        {
            complete(
                serving,
                over,
                Outcome::Content(route, content::PathAnswer::Resource(resource)),
            )
        }
        (State::Template(parsing), Event::Template(Ok(template))) => Next::Page(parsing, template),
        (State::Template(Parsing { over, .. }), Event::Template(Err(status))) => {
            complete(serving, over, Outcome::Error(status, Reason::Page))
        }
        (State::Program(asked, count), Event::Program(cgi::Answer::Redirect(path, interest))) => {
            let held = Held::of_client(Rc::downgrade(&interest));
            let handed = Handed { by: By::Program, held, count: count + 1 };
            Next::Route { asked, path, handed }
        }
        (State::Program(..), Event::Program(answer)) => refuse(ground, None, of_program(answer)),
        (
            State::Server(asked, count),
            Event::Server(proxy::Answer::HandOver(over, server, held)),
        ) => match (over.to, asked) {
            (proxy::response::Target::Local(path), Some(asked)) => {
                let handed = Handed { by: By::Server, held, count: count + 1 };
                Next::Route { asked, path, handed }
            }
            (to, asked) => Next::Named { asked, server, over: HandOver { to, ..*over } },
        },
        (State::Server(..), Event::Server(answer)) => refuse(ground, None, of_proxy(answer)),
        (state, event) => unreachable!("{} for {}", event.name(), state.name()),
    }
}

/// Continues a request that the authorizer has let pass.
fn continue_authorized<'a>(
    ground: Ground<'a>,
    Arrived { asked, path, way }: Arrived<'a>,
) -> Next<'a> {
    match way {
        Way::Asked(held) => Next::Recall(Arrived { asked, path, way: Way::Asked(held) }),
        Way::Handed(handed, _) => begin(ground, asked, path, Some(*handed)),
        Way::Named(over, _) => {
            let route = ground.destination.route.expect("a named file is of a route");
            let prefix_len = ground.serving.prefix(route).len();
            let path = part_of(&path, prefix_len..path.len());
            send_named(ground.serving, route, asked, path, over)
        }
    }
}

/// Finds the file of a route that an upstream has named. Its path is below the route.
pub(super) fn send_named<'a>(
    serving: &Serving,
    route: RouteId,
    asked: Asked<'a>,
    path: Cow<'a, [u8]>,
    over: Box<Over>,
) -> Next<'a> {
    let tree = serving.tree(route).expect("a named file is in the tree of its route");
    let (step, purpose) = (Step::Fallback, Purpose::Page(asked));
    Next::File { tree, path, search: FileSearch { route, step, purpose, over: Some(over) } }
}

/// Continues a request whose step has found `outcome`.
pub(super) fn go_on<'a>(
    ground: Ground<'a>,
    step: Step<'a>,
    purpose: Purpose<'a>,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'a> {
    let serving = ground.serving;
    match further(ground, step, outcome) {
        Further::Find(file, step) => {
            let tree = serving.tree(file.route).expect("a named file is in the tree of its route");
            let (route, path) = (file.route, Cow::Borrowed(&file.path[..]));
            Next::File { tree, path, search: FileSearch { route, step, purpose, over } }
        }
        Further::End(outcome) => match purpose {
            Purpose::Send => complete(serving, over, outcome),
            Purpose::Page(asked) => found_page(serving, asked, over, outcome),
            Purpose::Script(script) => found_script(ground, script, over, outcome),
        },
    }
}

/// Refuses a request, with a page if the site has one.
pub(super) fn refuse(ground: Ground<'_>, over: Option<Box<Over>>, outcome: Outcome) -> Next<'_> {
    go_on(ground, Step::Fallback, Purpose::Send, over, outcome)
}

/// Completes the outcome of a request that may have been handed over: a file, its page or a redirect.
pub(super) fn complete(
    serving: &Serving,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'static> {
    let Some(over) = over else { return Next::Answer { outcome, missing: None } };
    let Over { fields, query, named } = *over;
    let missing = named.filter(|_| outcome.is_missing());
    let outcome = match sent_on(serving, query.as_deref(), outcome) {
        file @ (Outcome::Content(_, content::PathAnswer::Resource(_)) | Outcome::Page(_)) => {
            Outcome::HandedOver(Box::new(HandedOver { fields, file }))
        }
        outcome => outcome,
    };
    Next::Answer { outcome, missing }
}

/// A part of a path.
pub(super) fn part_of<'a>(path: &Cow<'a, [u8]>, range: Range<usize>) -> Cow<'a, [u8]> {
    match path {
        Cow::Borrowed(path) => Cow::Borrowed(&path[range]),
        Cow::Owned(path) => Cow::Owned(path[range].to_vec()),
    }
}

/// The outcome of the answer of a program.
fn of_program(answer: cgi::Answer) -> Outcome {
    match answer {
        cgi::Answer::Error(Status::MethodNotAllowed, _) => Outcome::NotAllowed(ALLOW_MOST),
        cgi::Answer::Error(status, reason) => Outcome::Error(status, reason),
        answer => Outcome::Program(answer),
    }
}

/// The outcome of the answer of an upstream.
fn of_proxy(answer: proxy::Answer) -> Outcome {
    match answer {
        proxy::Answer::Error(Status::MethodNotAllowed, _) => Outcome::NotAllowed(ALLOW_MOST),
        proxy::Answer::Error(status, reason) if !status.is_bodiless() => {
            Outcome::Error(status, reason)
        }
        answer => Outcome::Passed(answer),
    }
}

/// The first step of a request for a path of a route with scripts: the file to which the path leads, or the script. The
/// first `directory_len` bytes of the path below the route are known to be a directory.
fn begin_script<'a>(
    ground: Ground<'a>,
    id: RouteId,
    (path, directory_len): (Cow<'a, [u8]>, usize),
    script: Script<'a>,
    over: Option<Box<Over>>,
) -> Next<'a> {
    let serving = ground.serving;
    let prefix_len = serving.prefix(id).len();
    let Some(rest) = path.get(prefix_len..) else {
        return complete(serving, over, Outcome::Directory(id));
    };
    let name_len = directory_len + script_len(&rest[directory_len..]);
    let name = &rest[..name_len];
    if directory_len > 0 && is_hidden_below(serving, id, name) {
        return refuse(ground, over, Outcome::Error(Status::NotFound, Reason::Dotfile));
    }
    let Some(tree) = serving.tree(id) else {
        return Next::Script { route: id, name: script_of(name), script };
    };
    let name = part_of(&path, prefix_len..prefix_len + name_len);
    let (step, purpose) = (Step::Asked(Slash::of(path, ground)), Purpose::Script(script));
    let path = name;
    Next::File { tree, path, search: FileSearch { route: id, step, purpose, over } }
}

/// Runs a resource that was found if it is a script.
fn found_script<'a>(
    ground: Ground<'a>,
    script: Script<'a>,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'a> {
    let Ground { serving, destination } = ground;
    let Outcome::Content(id, content::PathAnswer::Resource(resource)) = &outcome else {
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
                return begin_script(ground, id, (Cow::Owned(path), len), script, over);
            }
        }
        // A path with path info has named the script itself.
        Kind::Unclean(len) => {
            if let (Some(path), Some(tree)) = (below(), serving.tree(id)) {
                let slash = Slash::Found(serving.directory(destination.site, &path));
                let (step, purpose) = (Step::Asked(slash), Purpose::Script(script));
                let path = Cow::Owned(resource.path[..len].to_vec());
                return Next::File {
                    tree,
                    path,
                    search: FileSearch { route: id, step, purpose, over },
                };
            }
        }
        Kind::File(_) | Kind::Directory(_) => {}
    }
    if script.asked.gets() {
        return found_page(serving, script.asked, over, outcome);
    }
    let outcome = script.asked.with(|request| match (&request.head.method, &resource.kind) {
        (_, Kind::Unclean(len)) => {
            moved_to(request.head.target, serving, id, &resource.path[..*len])
        }
        (Method::Options, _) => Outcome::Options(ALLOW),
        // The index of the directory may be a script. A redirect with 301 would lose the body.
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

/// Continues with a file that was found for a request and that may be a page.
fn found_page<'a>(
    serving: &Serving,
    asked: Asked<'a>,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'a> {
    match outcome {
        Outcome::Content(route, content::PathAnswer::Resource(resource))
            if rules_of_page(serving, route, &resource).is_some() =>
        {
            Next::Template(Parsing { asked, route, resource, over })
        }
        outcome => complete(serving, over, outcome),
    }
}

/// The path of a target, if the path continues below this directory of the route. The directory has a name like a
/// script.
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

/// The rules of the route of a resource, if the resource is a file that may have directives.
pub(super) fn rules_of_page<'a>(
    serving: &'a Serving,
    route: RouteId,
    resource: &Resource,
) -> Option<&'a FileRules> {
    let Kind::File(files) = &resource.kind else { return None };
    let Files { rules, .. } = serving.route(route).action.files()?;
    let is_text = files.own_coding.is_none() && is_type(&rules.include_types, &files.content_type);
    (rules.includes && is_text).then_some(rules)
}

/// Returns true if files of a media type are pages.
fn is_type(types: &[String], content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim_ascii();
    types.iter().any(|one| one.eq_ignore_ascii_case(essence))
}

#[cfg(test)]
mod tests;

//! The states of a request from its route to its answer.
//!
//! ```text
//!             consumer            find
//!   session ──────────► Offered ───────► guard ──► begin ─┬───────────────► answer
//!      │                                   ▲              │
//!      └───────────────────────────────────┘ find         ▼
//!                                                  File, Template, Program, Server
//! ```
//!
//! A request goes through its steps in this order, and skips those that are not for it:
//!
//! | step | decided by | waits in | goes back |
//! |---|---|---|---|
//! | route: the place of the path | `place.rs` | | |
//! | guard: the conditions of the route | `admit.rs` | | |
//! | consumer of the body | [`Router::consumer`](super::Router) | Offered, for the session | |
//! | file, or gateway | [`begin`] | File; Program; Server | |
//! | further steps: directory, fallback | `steps.rs` | File | |
//! | page of an error | `steps.rs` | File | |
//! | script that the file is | `scripts.rs` | File (of a directory or a clean path), Server | |
//! | hand-over by a program or a server | [`advance`] | | to the route, with another path; at most [`HAND_OVERS_MAX`] times |
//! | include: the template of the file | `pages.rs` | Template | |
//! | fields of the hand-over and of the route | [`complete`], `answer.rs` | | |
//!
//! The states in which a request waits, each with what is valid then; [`State::check`] rejects most others:
//!
//! | state | waits for | has | then |
//! |---|---|---|---|
//! | Offered | its session, which has the consumer and asks for the answer at once or never | what the guard has said | `begin`, or a refusal |
//! | File, to be sent | a file of a route | which step looks for it | a further step, or the answer |
//! | File, perhaps a page | the same | a copy of the request | the same, or Template |
//! | File, perhaps a script | the same | a copy of the request, its body held back | the same, Template, or Server |
//! | Template | the directives of a file | a copy of the request, the file | the answer |
//! | Program | a program of its route | a copy of the request | the answer, an error, or a hand-over |
//! | Server | a server of its route | a copy of the request if it may be handed over | the answer, an error, or a hand-over |
//!
//! Nothing here makes a system call or knows the worker. [`begin`] and [`advance`] say what is [next](Next); the router
//! does it (`perform.rs`), and answers with an [`Event`].

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use http::{FieldSection, Method, Status, path};

use super::answer::{HandedOver, Moved, Outcome, allowed, fixed};
use super::asked::Asked;
use super::moved::{lacks_slash, redirected, refused_at, sent_on};
use super::steps::{Further, Slash, Step, further};
use super::{pages, scripts};
use crate::content::{self, Kind, Resource};
use crate::guard::Refusal;
use crate::handler::cgi;
use crate::handler::gateway::HAND_OVERS_MAX;
use crate::handler::gateway::interest::Interest;
use crate::handler::page::ALLOW_MOST;
use crate::handler::proxy::response::HandOver;
use crate::handler::proxy::{self, Held};
use crate::includes::Template;
use crate::route::RouteId;
use crate::serving::{Place, Served, Serving, TreeId};
use crate::upstream::Server;

/// What a request waits for.
#[derive(Debug)]
pub(super) enum State<'a> {
    /// Its session has the consumer of the body, and asks for the answer.
    Offered(Result<(), Refusal>),
    /// A file is looked for.
    File(Lookup<'a>),
    /// The file was found, and its directives are parsed.
    Template(Parsing<'a>),
    /// A program runs. The request has been handed over so many times.
    Program(Asked<'a>, u32),
    /// A server answers. The request has been handed over so many times; none if it cannot be.
    Server(Option<Asked<'a>>, u32),
}

/// A file that is looked for.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    /// The route of the file.
    pub(super) route: RouteId,
    pub(super) step: Step<'a>,
    pub(super) purpose: Purpose<'a>,
    pub(super) over: Option<Box<Over>>,
}

/// What becomes of a file that is looked for.
#[derive(Debug)]
pub(super) enum Purpose<'a> {
    /// It is sent as it is.
    Send,
    /// It is sent, or its directives are followed.
    Page(Asked<'a>),
    /// It is run if it is a script, and else the same.
    Script(Script<'a>),
}

/// A request that is perhaps for a script.
#[derive(Debug)]
pub(super) struct Script<'a> {
    pub(super) asked: Asked<'a>,
    /// Its body, once it has had to wait.
    pub(super) held: Option<Held>,
    /// The number of times that it was handed over.
    pub(super) count: u32,
}

/// A file whose directives are looked for.
#[derive(Debug)]
pub(super) struct Parsing<'a> {
    pub(super) asked: Asked<'a>,
    pub(super) route: RouteId,
    pub(super) resource: Rc<Resource>,
    pub(super) over: Option<Box<Over>>,
}

/// The parts of an answer that come from a hand-over of its request.
#[derive(Debug)]
pub(super) struct Over {
    /// The fields of the server that has handed it over, for the file.
    pub(super) fields: FieldSection<'static>,
    /// The query to which it was handed over, for a redirect.
    pub(super) query: Option<Box<[u8]>>,
    /// The file that a server has named; none if it has named a path that the client could ask for.
    pub(super) named: Option<Named>,
}

/// A file that a server has named.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) server: Arc<Server>,
    pub(super) file: proxy::response::Target,
}

/// A request that was handed over to another path.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) by: By,
    /// For which time.
    pub(super) count: u32,
}

/// Who has handed a request over to a path. Only the same kind of gateway can go on with it: the client waits for that.
#[derive(Debug)]
pub(super) enum By {
    Program(Rc<Interest>),
    Script(Held),
}

/// What has come for a request that waits.
#[derive(Debug)]
pub(super) enum Event {
    /// A file, a directory, or a reason why there is none.
    File(content::Answer),
    /// The template of a file, or a status because it has none.
    Template(Result<Rc<Template>, Status>),
    /// The answer of a program.
    Program(cgi::Answer),
    /// The answer of a server.
    Server(proxy::Answer),
}

/// What a request needs next.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// This file.
    File { tree: TreeId, path: Cow<'a, [u8]>, lookup: Lookup<'a> },
    /// The template of its file.
    Template(Parsing<'a>),
    /// A page of its file, and then [`complete`].
    Page(Parsing<'a>, Rc<Template>),
    /// A program of its route.
    Program { path: &'a [u8], asked: Asked<'a>, handed: Option<(Rc<Interest>, u32)> },
    /// A script of this route.
    Script { route: RouteId, name: Vec<u8>, script: Script<'a> },
    /// A server of its route.
    Proxy { path: &'a [u8], asked: Asked<'a> },
    /// The route of another path, and its guard.
    Route { asked: Asked<'a>, path: Vec<u8>, handed: Handed },
    /// The route of a file that a server has named, and its guard.
    Named { asked: Option<Asked<'a>>, server: Arc<Server>, over: HandOver },
    /// The operator has to learn that a redirect leads to itself. The request is answered with status 500.
    Loop { path: &'a [u8] },
    /// Nothing: this is the answer. The file that a server has named is missing, perhaps.
    Answer { outcome: Outcome, missing: Option<Named> },
}

/// What stays the same while a request goes on: what is served, and its place there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    pub(super) serving: &'a Serving,
    pub(super) place: Place,
}

impl Over {
    /// The parts of an answer to a request that was handed over to another path.
    pub(super) fn local(asked: &Asked<'_>) -> Box<Self> {
        Box::new(Self { fields: FieldSection::EMPTY, query: asked.query(), named: None })
    }
}

/// The first step of a request that the guard of its route has let pass.
pub(super) fn begin<'a>(
    ground: Ground<'a>,
    asked: Asked<'a>,
    path: &'a [u8],
    handed: Option<Handed>,
) -> Next<'a> {
    let Ground { serving, place } = ground;
    let over = handed.is_some().then(|| Over::local(&asked));
    let Some(id) = place.route else {
        let step = Step::Asked(Slash::Of(path));
        return follow(ground, step, Purpose::Send, over, Outcome::Error(Status::NotFound));
    };
    let entry = serving.entry(id);
    if entry.served.tree().is_none()
        && let Some(directory) = lacks_slash(serving, place, path)
    {
        return complete(serving, over, Outcome::Directory(directory));
    }
    let outcome = match (&entry.served, handed) {
        (Served::Programs(_), None) => return Next::Program { path, asked, handed: None },
        (Served::Programs(_), Some(Handed { by: By::Program(interest), count })) => {
            return Next::Program { path, asked, handed: Some((interest, count)) };
        }
        (Served::Scripts { .. }, None) => {
            let script = Script { asked, held: None, count: 0 };
            return scripts::begin(ground, id, (Cow::Borrowed(path), 0), script, over);
        }
        (Served::Scripts { .. }, Some(Handed { by: By::Script(held), count })) => {
            let script = Script { asked, held: Some(held), count };
            return scripts::begin(ground, id, (Cow::Borrowed(path), 0), script, over);
        }
        (Served::Proxy(_), None) => return Next::Proxy { path, asked },
        (Served::Scripts { .. } | Served::Proxy(_), Some(Handed { by: By::Program(_), .. })) => {
            Outcome::Error(Status::NotFound)
        }
        // The client can ask there itself.
        (Served::Programs(_) | Served::Proxy(_), Some(Handed { by: By::Script(_), .. })) => {
            elsewhere(path, over.as_ref().and_then(|over| over.query.as_deref()))
        }
        (Served::Files { tree, has_pages }, _) if asked.gets() => {
            let Some(rest) = path.get(entry.prefix.len()..) else {
                return complete(serving, over, Outcome::Directory(id));
            };
            let (tree, path, step) =
                (serving.tree_at(*tree), Cow::Borrowed(rest), Step::Asked(Slash::Of(path)));
            let purpose = if *has_pages { Purpose::Page(asked) } else { Purpose::Send };
            return Next::File { tree, path, lookup: Lookup { route: id, step, purpose, over } };
        }
        (Served::Status(status), _) => fixed(*status, &entry.route, id),
        (served, _) => {
            let found = asked.with(|request| match (&request.head.method, served) {
                (Method::Get | Method::Head, Served::Metrics) => Some(Outcome::Metrics),
                (Method::Options, served) => Some(Outcome::Options(allowed(served))),
                (method, Served::Redirect) if method.is_known() => {
                    redirected(request.head.target, serving, id, path)
                }
                (method, _) => Some(refused_at(serving, place.site, id, path, method)),
            });
            match found {
                Some(outcome) => outcome,
                None => return Next::Loop { path },
            }
        }
    };
    match outcome {
        Outcome::Error(_) | Outcome::NotAllowed(_) => refuse(ground, over, outcome),
        outcome => complete(serving, over, outcome),
    }
}

/// Takes what has come for a request that waits.
pub(super) fn advance<'a>(ground: Ground<'a>, state: State<'a>, event: Event) -> Next<'a> {
    let serving = ground.serving;
    match (state, event) {
        (State::File(Lookup { route, step, purpose, over }), Event::File(answer)) => {
            follow(ground, step, purpose, over, Outcome::Content(route, answer))
        }
        (State::Template(Parsing { route, resource, over, .. }), Event::Template(Ok(template)))
            if template.is_plain() =>
        {
            complete(serving, over, Outcome::Content(route, content::Answer::Resource(resource)))
        }
        (State::Template(parsing), Event::Template(Ok(template))) => Next::Page(parsing, template),
        (State::Template(Parsing { over, .. }), Event::Template(Err(status))) => {
            complete(serving, over, Outcome::Error(status))
        }
        (State::Program(asked, count), Event::Program(cgi::Answer::Redirect(path, interest))) => {
            let handed = Handed { by: By::Program(interest), count: count + 1 };
            Next::Route { asked, path, handed }
        }
        (State::Program(..), Event::Program(answer)) => refuse(ground, None, of_program(answer)),
        (
            State::Server(asked, count),
            Event::Server(proxy::Answer::HandOver(over, server, held)),
        ) => match (over.to, asked) {
            (proxy::response::Target::Local(path), Some(asked)) => {
                let handed = Handed { by: By::Script(held), count: count + 1 };
                Next::Route { asked, path, handed }
            }
            (to, asked) => Next::Named { asked, server, over: HandOver { to, ..*over } },
        },
        (State::Server(..), Event::Server(answer)) => refuse(ground, None, of_proxy(answer)),
        (state, event) => unreachable!("{} for {}", event.name(), state.name()),
    }
}

/// Goes on behind a step that has found something.
pub(super) fn follow<'a>(
    ground: Ground<'a>,
    step: Step<'a>,
    purpose: Purpose<'a>,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'a> {
    let serving = ground.serving;
    match further(ground, step, outcome) {
        Further::Find(page, step) => {
            let tree = serving.tree(page.route).expect("a page is a file of its route");
            let (route, path) = (page.route, Cow::Borrowed(&page.path[..]));
            Next::File { tree, path, lookup: Lookup { route, step, purpose, over } }
        }
        Further::End(outcome) => match purpose {
            Purpose::Send => complete(serving, over, outcome),
            Purpose::Page(asked) => pages::found(serving, asked, over, outcome),
            Purpose::Script(script) => scripts::found(ground, script, over, outcome),
        },
    }
}

/// Refuses a request, with a page if there is one.
pub(super) fn refuse(ground: Ground<'_>, over: Option<Box<Over>>, outcome: Outcome) -> Next<'_> {
    follow(ground, Step::Fallback, Purpose::Send, over, outcome)
}

/// Completes what was found for a request, which was perhaps handed over: a file, its page or a redirect.
pub(super) fn complete(
    serving: &Serving,
    over: Option<Box<Over>>,
    outcome: Outcome,
) -> Next<'static> {
    let Some(over) = over else { return Next::Answer { outcome, missing: None } };
    let Over { fields, query, named } = *over;
    let missing = named.filter(|_| outcome.is_missing());
    let outcome = match sent_on(serving, query.as_deref(), outcome) {
        file @ (Outcome::Content(_, content::Answer::Resource(_)) | Outcome::Page(_)) => {
            Outcome::HandedOver(Box::new(HandedOver { fields, file }))
        }
        outcome => outcome,
    };
    Next::Answer { outcome, missing }
}

/// Sends a client to another path and this query for now.
fn elsewhere(path: &[u8], query: Option<&[u8]>) -> Outcome {
    let mut location = Vec::new();
    path::encode(path, &mut location);
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Outcome::Moved(Box::new(Moved { status: Status::Found, location }))
}

/// The outcome of the answer of a program.
fn of_program(answer: cgi::Answer) -> Outcome {
    match answer {
        cgi::Answer::Error(Status::MethodNotAllowed) => Outcome::NotAllowed(ALLOW_MOST),
        cgi::Answer::Error(status) => Outcome::Error(status),
        answer => Outcome::Program(answer),
    }
}

/// The outcome of the answer of a server.
fn of_proxy(answer: proxy::Answer) -> Outcome {
    match answer {
        proxy::Answer::Error(Status::MethodNotAllowed) => Outcome::NotAllowed(ALLOW_MOST),
        proxy::Answer::Error(status) if !status.is_bodiless() => Outcome::Error(status),
        answer => Outcome::Passed(answer),
    }
}

impl State<'_> {
    /// The same state, of a request that its session does not lend any longer.
    pub(super) fn keep(self, ground: Ground<'_>) -> State<'static> {
        match self {
            State::Offered(said) => State::Offered(said),
            State::File(Lookup { route, step, purpose, over }) => {
                let step = step.keep(ground);
                let purpose = match purpose {
                    Purpose::Send => Purpose::Send,
                    Purpose::Page(asked) => Purpose::Page(asked.keep()),
                    Purpose::Script(Script { asked, held, count }) => {
                        Purpose::Script(Script { asked: asked.keep(), held, count })
                    }
                };
                State::File(Lookup { route, step, purpose, over })
            }
            State::Template(Parsing { asked, route, resource, over }) => {
                State::Template(Parsing { asked: asked.keep(), route, resource, over })
            }
            State::Program(asked, count) => State::Program(asked.keep(), count),
            State::Server(asked, count) => State::Server(asked.map(Asked::keep), count),
        }
    }

    /// What is true of a request while it waits.
    pub(super) fn check(&self, Ground { serving, place }: Ground<'_>) {
        let served = |id: Option<RouteId>| id.map(|id| &serving.entry(id).served);
        match self {
            Self::Offered(_) => unreachable!("its session asks for the answer at once or never"),
            Self::File(Lookup { route, step, purpose, over }) => {
                assert!(serving.tree(*route).is_some(), "no file is of a route without files");
                if let Step::Page(error) = step {
                    assert!(error.error().is_some(), "only errors have pages");
                }
                match purpose {
                    Purpose::Send => {}
                    Purpose::Page(asked) => assert!(asked.is_kept(), "its session lends nothing"),
                    Purpose::Script(Script { asked, held, count }) => {
                        assert!(matches!(served(place.route), Some(Served::Scripts { .. })));
                        assert!(asked.is_kept() && held.is_some(), "its session lends nothing");
                        assert!(*count <= HAND_OVERS_MAX);
                        let is_named = over.as_ref().is_some_and(|over| over.named.is_some());
                        assert!(!is_named, "no server names a script");
                    }
                }
            }
            Self::Template(Parsing { asked, route, resource, .. }) => {
                assert!(asked.is_kept(), "its session lends nothing");
                assert!(matches!(resource.kind, Kind::File(_)), "only files have directives");
                assert!(serving.route(*route).has_includes());
            }
            Self::Program(asked, count) => {
                assert!(matches!(served(place.route), Some(Served::Programs(_))));
                assert!(asked.is_kept() && *count <= HAND_OVERS_MAX);
            }
            Self::Server(asked, count) => {
                let served = served(place.route);
                let is_script = matches!(served, Some(Served::Scripts { .. }));
                assert!(is_script || matches!(served, Some(Served::Proxy(_))));
                assert!(asked.as_ref().is_none_or(Asked::is_kept) && *count <= HAND_OVERS_MAX);
                assert_eq!(asked.is_some(), is_script || serving.has_files(place.site));
            }
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Offered(_) => "Offered",
            Self::File(_) => "File",
            Self::Template(_) => "Template",
            Self::Program(..) => "Program",
            Self::Server(..) => "Server",
        }
    }
}

impl Event {
    const fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "File",
            Self::Template(_) => "Template",
            Self::Program(_) => "Program",
            Self::Server(_) => "Server",
        }
    }
}

#[cfg(test)]
mod tests;

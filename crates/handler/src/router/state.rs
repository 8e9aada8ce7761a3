//! The states of a request from its route to its answer.
//!
//! ```text
//!            find
//!  session ────────► Authorize ──► Recall ──► begin ──► File, Template, Program, Server ──► answer
//!                                               ▲                       │
//!                                               └───── another path ────┘
//! ```
//!
//! A request goes through its steps in this order, and skips the steps that it does not need. A request needs no state if
//! its file is in memory and is sent unchanged (`Router::find_path`).
//!
//! | step | decided by | waits in | goes back |
//! |---|---|---|---|
//! | connection: its handshake, its scheme | `https.rs` | | |
//! | route: the destination of the path | `destination.rs` | | |
//! | guard: the conditions of the route | `admit.rs` | | |
//! | consumer of the body | [`Router::consumer`](super::Router), after the guard | the session, with the guard's [decision](session::standing::Standing) | |
//! | authorizer | [`Authorizer`](crate::attach::Authorizer) | Authorize | |
//! | answer that is recalled | [`Wrapper`](crate::attach::Wrapper) | Recall | |
//! | file, or gateway | `begin` (`advance.rs`) | File; Program; Server | |
//! | further steps: directory, fallback | `steps.rs` | File | |
//! | error page | `steps.rs` | File | |
//! | script that the file is | `advance.rs` | File (of a directory or a clean path), Server | |
//! | hand-over by a program or a server | `advance.rs`; its limit, its route and the guard: `gateways.rs` | | to the route, with another path, whose guard and authorizer decide again; at most [`HAND_OVERS_MAX`] times |
//! | include: the template of the file | `advance.rs`, `pages.rs` | Template | |
//! | fields of the hand-over and of the route | `advance.rs`, `answer.rs` | | |
//!
//! This table shows the states in which a request waits, and the data of each state. [`State::check`] rejects most other
//! combinations.
//!
//! | state | waits for | has | then |
//! |---|---|---|---|
//! | Authorize | an authorizer, if there is one | a copy of the request, its body held back | Recall (after a hand-over: `begin`, or the named file), or a refusal |
//! | Recall | a wrapper, if there is one | the same | `begin`, or the answer |
//! | File, to be sent | a file of a route | which step looks for it | a further step, or the answer |
//! | File, perhaps a page | the same | a copy of the request | the same, or Template |
//! | File, perhaps a script | the same | a copy of the request, its body held back | the same, Template, or Server |
//! | Template | the directives of a file | a copy of the request, the file | the answer |
//! | Program | a program of its route | a copy of the request | the answer, an error, or a hand-over |
//! | Server | a server of its route | a copy of the request if it may be handed over | the answer, an error, or a hand-over |
//!
//! This file makes no system call and does not know the worker. `begin` and `advance` (`advance.rs`) return the
//! [next](Next) need of the request. The router meets this need (`perform.rs`) and replies with an [`Event`].

use std::borrow::Cow;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{FieldSection, Status};

use super::answer::Outcome;
use super::asked::Asked;
use super::destination::Ground;
use super::steps::Step;
use crate::Search;
use crate::attach::{Deferred, Denial, Grant, Recalled, User};
use crate::serving::{Served, TreeId};
use ::includes::Template;
use config::route::RouteId;
use content::{self, Kind, Resource};
use gateways::HAND_OVERS_MAX;
use gateways::cgi;
use gateways::held::Held;
use gateways::proxy;
use gateways::proxy::response::HandOver;
use upstream::Server;

/// The event for which a request waits, with the data that is valid meanwhile.
#[derive(Debug)]
pub(super) enum State<'a> {
    /// An authorizer decides whether the request may pass.
    Authorize(Arrived<'a>),
    /// A wrapper decides whether it recalls the answer.
    Recall(Arrived<'a>),
    /// The router looks for a file.
    File(FileSearch<'a>),
    /// The file was found, and its directives are parsed.
    Template(Parsing<'a>),
    /// A program runs. The number counts the request's hand-overs.
    Program(Asked<'a>, u32),
    /// An upstream answers. The number counts the request's hand-overs; the request is `None` if it cannot be handed
    /// over.
    Server(Option<Asked<'a>>, u32),
}

/// A request that has not gone to its route yet.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    pub(super) asked: Asked<'a>,
    /// Its path in normal form.
    pub(super) path: Cow<'a, [u8]>,
    pub(super) way: Way,
}

/// The way on which a request has come to its route.
#[derive(Debug)]
pub(super) enum Way {
    /// The client has asked for the path. Once the request has had to wait, it has its body and its client.
    Asked(Option<(Held, Weak<Deferred>)>),
    /// A gateway has handed the request over to the path. While the authorizer decides, the search is that of the
    /// authorizer.
    Handed(Box<Handed>, Option<Rc<dyn Search>>),
    /// An upstream has named the file with this path. The search is the same.
    Named(Box<Over>, Option<Rc<dyn Search>>),
}

/// A file that is looked for.
#[derive(Debug)]
pub(super) struct FileSearch<'a> {
    /// The route of the file.
    pub(super) route: RouteId,
    pub(super) step: Step<'a>,
    pub(super) purpose: Purpose<'a>,
    pub(super) over: Option<Box<Over>>,
}

/// The use of a file that is looked for.
#[derive(Debug)]
pub(super) enum Purpose<'a> {
    /// The file is sent as it is.
    Send,
    /// The file is sent, or its directives are followed if it has some.
    Page(Asked<'a>),
    /// The file is run if it is a script; otherwise as [`Page`](Self::Page).
    Script(Script<'a>),
}

/// A request that may be for a script.
#[derive(Debug)]
pub(super) struct Script<'a> {
    pub(super) asked: Asked<'a>,
    /// Its body, once the request has had to wait.
    pub(super) held: Option<Held>,
    /// The number of times that the request was handed over.
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
    /// The fields of the upstream that has handed the request over, for the file.
    pub(super) fields: FieldSection<'static>,
    /// The query of the hand-over, for a redirect.
    pub(super) query: Option<Box<[u8]>>,
    /// The file that an upstream has named; `None` if the upstream has named a path that the client could ask for.
    pub(super) named: Option<Named>,
}

/// A file that an upstream has named.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) server: Arc<Server>,
    pub(super) file: proxy::response::Target,
}

/// A request that was handed over to another path.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) by: By,
    /// The client, which waits for the answer of any gateway.
    pub(super) held: Held,
    /// The number of this hand-over among the hand-overs of the request.
    pub(super) count: u32,
}

/// The gateway that has handed a request over to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Program,
    /// An upstream, or a FastCGI application.
    Server,
}

/// The event for a request that waits.
#[derive(Debug)]
pub(super) enum Event {
    /// The decision of an authorizer.
    Admitted(Result<Grant, Denial>),
    /// The answer that a wrapper recalls, if there is one.
    Recalled(Option<Rc<dyn Recalled>>),
    /// A file, a directory, or the reason for neither.
    File(content::PathAnswer),
    /// The template of a file, or the status if the file has no template.
    Template(Result<Rc<Template>, Status>),
    /// The answer of a program.
    Program(cgi::Answer),
    /// The answer of an upstream.
    Server(proxy::Answer),
}

/// The next need of a request.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// The decision of the authorizer.
    Authorize(Arrived<'a>),
    /// The answer that the wrapper recalls.
    Recall(Arrived<'a>),
    /// The route of the request, which gets the request with its body: `begin`.
    Begin(Arrived<'a>),
    /// This file.
    File { tree: TreeId, path: Cow<'a, [u8]>, search: FileSearch<'a> },
    /// The template of its file.
    Template(Parsing<'a>),
    /// A page of its file, and then `complete`.
    Page(Parsing<'a>, Rc<Template>),
    /// A program of its route.
    Program { path: Cow<'a, [u8]>, asked: Asked<'a>, handed: Option<Handed> },
    /// A script of this route.
    Script { route: RouteId, name: Vec<u8>, script: Script<'a> },
    /// An upstream of its route.
    Proxy { path: Cow<'a, [u8]>, asked: Asked<'a>, handed: Option<Handed> },
    /// The route of another path, and its guard.
    Route { asked: Asked<'a>, path: Vec<u8>, handed: Handed },
    /// The route of a file that an upstream has named, and its guard.
    Named { asked: Option<Asked<'a>>, server: Arc<Server>, over: HandOver },
    /// A message to the operator that a redirect leads to itself. The request is answered with status 500.
    Loop { path: Cow<'a, [u8]> },
    /// Nothing: this is the answer. `missing` is the file that an upstream has named, if there is no such file.
    Answer { outcome: Outcome, missing: Option<Named> },
}

impl Next<'_> {
    /// Returns true if a gateway would begin the request, or a page that may include what gateways answer, before the
    /// response is the next that its connection sends.
    pub(super) fn is_ahead(&self) -> bool {
        let asked = match self {
            Self::Program { asked, .. } | Self::Proxy { asked, .. } => asked,
            Self::Script { script, .. } => &script.asked,
            Self::Page(parsing, _) => &parsing.asked,
            _ => return false,
        };
        !asked.is_next()
    }
}

impl Over {
    /// The parts of an answer to a request that was handed over to another path.
    pub(super) fn local(asked: &Asked<'_>) -> Box<Self> {
        Box::new(Self { fields: FieldSection::EMPTY, query: asked.query(), named: None })
    }
}

impl Arrived<'_> {
    fn keep(self) -> Arrived<'static> {
        let Self { asked, path, way } = self;
        Arrived { asked: asked.keep(), path: Cow::Owned(path.into_owned()), way }
    }
}

impl State<'_> {
    /// The same state with copies, for a request that its session no longer lends.
    pub(super) fn keep(self, ground: Ground<'_>) -> State<'static> {
        match self {
            State::Authorize(arrived) => State::Authorize(arrived.keep()),
            State::Recall(arrived) => State::Recall(arrived.keep()),
            State::File(FileSearch { route, step, purpose, over }) => {
                let step = step.keep(ground);
                let purpose = match purpose {
                    Purpose::Send => Purpose::Send,
                    Purpose::Page(asked) => Purpose::Page(asked.keep()),
                    Purpose::Script(Script { asked, held, count }) => {
                        Purpose::Script(Script { asked: asked.keep(), held, count })
                    }
                };
                State::File(FileSearch { route, step, purpose, over })
            }
            State::Template(Parsing { asked, route, resource, over }) => {
                State::Template(Parsing { asked: asked.keep(), route, resource, over })
            }
            State::Program(asked, count) => State::Program(asked.keep(), count),
            State::Server(asked, count) => State::Server(asked.map(Asked::keep), count),
        }
    }

    /// Panics unless the facts hold that are true of a waiting request.
    pub(super) fn check(&self, Ground { serving, destination }: Ground<'_>) {
        let served = |id: Option<RouteId>| id.map(|id| &serving.entry(id).served);
        match self {
            Self::Authorize(Arrived { asked, path, way })
            | Self::Recall(Arrived { asked, path, way }) => {
                let is_held = !matches!(way, Way::Asked(None));
                assert!(asked.is_kept() && is_held, "its session lends nothing");
                let is_asked = matches!(way, Way::Asked(_));
                assert!(is_asked || matches!(self, Self::Authorize(_)), "no wrapper is asked");
                assert!(path.starts_with(b"/"), "it is in its normal form");
            }
            Self::File(FileSearch { route, step, purpose, over }) => {
                assert!(serving.tree(*route).is_some(), "no file is of a route without files");
                if let Step::ErrorPage(error) = step {
                    assert!(error.error().is_some(), "only errors have pages");
                }
                match purpose {
                    Purpose::Send => {}
                    Purpose::Page(asked) => assert!(asked.is_kept(), "its session lends nothing"),
                    Purpose::Script(Script { asked, held, count }) => {
                        assert!(matches!(served(destination.route), Some(Served::Scripts { .. })));
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
                assert!(matches!(served(destination.route), Some(Served::Programs(_))));
                assert!(asked.is_kept() && *count <= HAND_OVERS_MAX);
            }
            Self::Server(asked, count) => {
                let served = served(destination.route);
                let is_script = matches!(served, Some(Served::Scripts { .. }));
                assert!(is_script || matches!(served, Some(Served::Proxy(_))));
                assert!(asked.as_ref().is_none_or(Asked::is_kept) && *count <= HAND_OVERS_MAX);
                assert_eq!(asked.is_some(), is_script || serving.has_files(destination.site));
            }
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Authorize(_) => "Authorize",
            Self::Recall(_) => "Recall",
            Self::File(_) => "File",
            Self::Template(_) => "Template",
            Self::Program(..) => "Program",
            Self::Server(..) => "Server",
        }
    }
}

impl Event {
    /// Takes out the user whom an authorizer names.
    pub(super) fn take_user(&mut self) -> Option<User> {
        if let Self::Admitted(Ok(grant)) = self { grant.user.take() } else { None }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Admitted(_) => "Admitted",
            Self::Recalled(_) => "Recalled",
            Self::File(_) => "File",
            Self::Template(_) => "Template",
            Self::Program(_) => "Program",
            Self::Server(_) => "Server",
        }
    }
}

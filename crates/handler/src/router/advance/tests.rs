use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeSet;
use std::rc::Weak;
use std::sync::Arc;

use http::{FieldIndex, FieldSection, Head, Version};
use proptest::collection::vec;
use proptest::prelude::*;
use ring::Key;

use super::super::stage::{route, serving_of, site};
use super::super::state::{Arrived, Named};
use super::*;
use crate::attach::{Grant, Recalled};
use crate::{AnswerSize, Request, Response, Ticket};
use ::includes::{Parser, Template};
use config::Route;
use content::FileSet;
use gateways::HAND_OVERS_MAX;
use gateways::held::Held;
use gateways::interest::Interest;
use session::network::{Origin, Peer};
use session::standing::Standing;

/// The paths that are asked for, and the paths to which requests are handed over. The last path has no route.
const PATHS: [&str; 12] = [
    "/files/a",
    "/files",
    "/pages/a.html",
    "/pages/",
    "/php/a.php",
    "/php/d/x.php",
    "/app/a/b",
    "/cgi/a",
    "/proxy/a",
    "/status",
    "/redirect",
    "/none",
];
const METHODS: [Method<'static>; 5] =
    [Method::Get, Method::Head, Method::Post, Method::Options, Method::Other(b"BREW")];

fn serving() -> Serving {
    let routes = [
        ("/files/", "files"),
        ("/pages/", "pages"),
        ("/php/", "php"),
        ("/app/", "fastcgi"),
        ("/cgi/", "cgi"),
        ("/proxy/", "proxy"),
        ("/status", "status"),
        ("/redirect", "redirect"),
    ];
    let errors = || [404, 405, 410, 502, 503].map(|code| (code, "/files/error.html".to_owned()));
    let route = |(path, action)| Route { errors: errors().into(), ..route(path, action) };
    serving_of(routes.map(route).into())
}

fn file(path: &str, content_type: &str) -> content::PathAnswer {
    let kind = Kind::File(FileSet::sample(content_type, b"<!--#echo var=\"a\" -->"));
    content::PathAnswer::Resource(Resource::sample(path, kind))
}

fn resource(path: &str, kind: Kind) -> content::PathAnswer {
    content::PathAnswer::Resource(Resource::sample(path, kind))
}

/// Answers in the names of which tests speak.
fn found(name: &str) -> content::PathAnswer {
    match name {
        "text" => file("a.txt", "text/plain"),
        "html" => file("a.html", "text/html"),
        "script" => file("a.php", "application/octet-stream"),
        "directory" => resource("d", Kind::Redirect),
        "unclean" => resource("a.html", Kind::Unclean(1)),
        "missing" => content::PathAnswer::Error(Status::NotFound, Reason::NoFile),
        "long" => content::PathAnswer::Error(Status::UriTooLong, Reason::NoFile),
        "unavailable" => content::PathAnswer::Error(Status::ServiceUnavailable, Reason::NoFile),
        name => unreachable!("no file is {name}"),
    }
}

const FOUND: [&str; 8] =
    ["text", "html", "script", "directory", "unclean", "missing", "long", "unavailable"];

fn template(text: &[u8]) -> Rc<Template> {
    let mut parser = Parser::default();
    parser.push(text);
    Rc::new(parser.finish())
}

fn interest() -> Rc<Interest> {
    Rc::new(Interest::new(Key::NONE, true, Rc::default()))
}

/// A program or a server has handed a request over.
fn by_program(path: &str) -> Event {
    Event::Program(cgi::Answer::Redirect(path.into(), interest()))
}

fn by_server(serving: &Serving, to: proxy::response::Target) -> Event {
    let upstream = serving.snapshot.upstreams().next().expect("a server");
    let server = Arc::clone(&upstream.servers(ring::Time::default())[0]);
    let fields = FieldSection::EMPTY;
    let over = Box::new(HandOver { to, fields });
    Event::Server(proxy::Answer::HandOver(over, server, Held::of_body(None)))
}

/// An answer that a wrapper has kept.
#[derive(Debug)]
struct Kept;

impl Recalled for Kept {
    fn size(&self) -> AnswerSize {
        AnswerSize::default()
    }

    fn response(&self) -> Response<'_> {
        unreachable!("nobody asks for it")
    }
}

/// The end that a request has come to.
#[derive(Debug)]
struct Walked {
    /// The states in which it has waited.
    states: Vec<&'static str>,
    outcome: Outcome,
    is_missing: bool,
}

impl Walked {
    fn answer(&self) -> String {
        let said = match &self.outcome {
            Outcome::HandedOver(over) => return format!("handed over {:?}", status(&over.file)),
            Outcome::Paged(paged) => return format!("page of {:?}", status(&paged.error)),
            Outcome::Moved(moved) => {
                let location = moved.location.escape_ascii();
                return format!("{} {location}", moved.status.code());
            }
            outcome => status(outcome),
        };
        said.map_or_else(|| kind(&self.outcome).to_owned(), |code| code.to_string())
    }
}

fn status(outcome: &Outcome) -> Option<u16> {
    outcome.error().map(Status::code)
}

fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Content(..) => "content",
        Outcome::Directory(_) => "directory",
        Outcome::Options(_) => "options",
        Outcome::Metrics => "a page",
        Outcome::Recalled(_) => "recalled",
        _ => "another",
    }
}

/// The name of a state for a table.
fn name(state: &State<'_>) -> &'static str {
    match state {
        State::File(FileSearch { purpose: Purpose::Send, step: Step::ErrorPage(_), .. }) => {
            "error page"
        }
        State::File(FileSearch { purpose: Purpose::Send, .. }) => "file",
        State::File(FileSearch { purpose: Purpose::Page(_), .. }) => "page",
        State::File(FileSearch { purpose: Purpose::Script(_), .. }) => "script",
        state => state.name(),
    }
}

/// Follows a request, as the router does. `event` chooses the event that comes in each state.
fn walk(
    serving: &Serving,
    method: Method<'_>,
    path: &'static str,
    mut event: impl FnMut(&State<'_>) -> Event,
) -> Walked {
    let peer = Peer::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let (origin, ticket) = (Origin { listener: 0, peer }, Ticket { connection: 1, request: 2 });
    let target = Target::Origin { path: path.as_bytes(), query: None };
    let head = Head::new(method, target, Version::Http11, None, b"", FieldIndex::EMPTY);
    let request =
        Request { head: &head, ticket, origin: &origin, standing: Standing::New, is_next: true };
    let mut destination = serving.destination(site(), path.as_bytes());
    let at = |destination| Ground { serving, destination };
    let (asked, path) = (Asked::Given(&request), Cow::Borrowed(path.as_bytes()));
    let mut next = Next::Authorize(Arrived { asked, path, way: Way::Asked(None) });
    let (mut states, mut missing) = (Vec::new(), 0);
    loop {
        assert!(states.len() < 200, "it goes round in circles: {states:?}");
        let state = match next {
            Next::Authorize(arrived) => State::Authorize(arrived),
            Next::Recall(arrived) => State::Recall(arrived),
            Next::Begin(Arrived { asked, path, .. }) => {
                next = begin(at(destination), asked, path, None);
                continue;
            }
            Next::File { tree, path, search } => {
                assert_eq!(serving.tree(search.route), Some(tree), "{path:?}");
                State::File(search)
            }
            Next::Template(parsing) => State::Template(parsing),
            Next::Page(parsing, template) => {
                assert!(!template.is_plain());
                // Anything but a page will do.
                next = complete(serving, parsing.over, Outcome::Metrics);
                continue;
            }
            Next::Program { asked, handed, .. } => {
                State::Program(asked, handed.map_or(0, |handed| handed.count))
            }
            Next::Script { route, script, .. } => {
                assert!(serving.scripts(route).is_some());
                State::Server(Some(script.asked), script.count)
            }
            Next::Proxy { asked, handed, .. } => {
                State::Server(Some(asked), handed.map_or(0, |handed| handed.count))
            }
            Next::Route { handed, .. } if handed.count > HAND_OVERS_MAX => {
                next = refuse(
                    at(destination),
                    None,
                    Outcome::Error(Status::BadGateway, Reason::NoFile),
                );
                continue;
            }
            Next::Route { asked, path, handed } => {
                let path = PATHS.iter().find(|one| one.as_bytes() == path).expect("one of ours");
                destination = serving.inner_destination(site(), path.as_bytes());
                let path = Cow::Borrowed(path.as_bytes());
                next = begin(at(destination), asked.keep(), path, Some(handed));
                continue;
            }
            Next::Named { asked, server, over: HandOver { to, fields } } => {
                let file = serving.inner_destination(site(), b"/pages/a.html");
                let route = file.route.expect("a route with files");
                destination = file;
                let purpose = Purpose::Page(asked.expect("its site has files"));
                let named = Some(Named { server, file: to });
                let over = Some(Box::new(Over { fields, query: None, named }));
                State::File(FileSearch { route, step: Step::Fallback, purpose, over })
            }
            Next::Loop { .. } => {
                next = refuse(
                    at(destination),
                    None,
                    Outcome::Error(Status::InternalServerError, Reason::NoFile),
                );
                continue;
            }
            Next::Answer { outcome, missing: named } => {
                missing += usize::from(named.is_some());
                return Walked { states, outcome, is_missing: missing > 0 };
            }
        };
        let mut state = state.keep(at(destination));
        if let State::File(FileSearch { purpose: Purpose::Script(script), .. }) = &mut state {
            script.held.get_or_insert_with(|| Held::of_body(None));
        }
        if let State::Authorize(arrived) | State::Recall(arrived) = &mut state
            && let Way::Asked(held) = &mut arrived.way
        {
            held.get_or_insert_with(|| (Held::of_body(None), Weak::new()));
        }
        state.check(at(destination));
        states.push(name(&state));
        let event = event(&state);
        next = advance(at(destination), state, event);
    }
}

/// An event that fits a state, by a choice.
fn any_event(serving: &Serving, state: &State<'_>, choice: u8) -> Event {
    let choice = usize::from(choice);
    let statuses = [Status::BadGateway, Status::MethodNotAllowed, Status::NotFound];
    match state {
        State::Authorize(_) if choice.is_multiple_of(8) => {
            Event::Admitted(Err(Status::Forbidden.into()))
        }
        State::Authorize(_) => Event::Admitted(Ok(Grant::default())),
        State::Recall(_) if choice.is_multiple_of(8) => Event::Recalled(Some(Rc::new(Kept))),
        State::Recall(_) => Event::Recalled(None),
        State::File(_) => Event::File(found(FOUND[choice % FOUND.len()])),
        State::Template(_) => Event::Template(match choice % 3 {
            0 => Ok(template(b"plain")),
            1 => Ok(template(b"<!--#echo var=\"a\" -->")),
            _ => Err(Status::ServiceUnavailable),
        }),
        State::Program(..) if choice.is_multiple_of(4) => {
            Event::Program(cgi::Answer::Error(statuses[choice / 4 % 3], Reason::NoRoom))
        }
        State::Program(..) => by_program(PATHS[choice % PATHS.len()]),
        State::Server(..) => {
            use proxy::response::Target;
            match choice % 4 {
                0 => Event::Server(proxy::Answer::Error(statuses[choice / 4 % 3], Reason::NoRoom)),
                1 => by_server(serving, Target::Path(b"/pages/a.html".into())),
                _ => by_server(serving, Target::Local(PATHS[choice % PATHS.len()].into())),
            }
        }
    }
}

/// Follows a request with these events; there may be more than are needed.
fn with_events(path: &'static str, events: Vec<Event>) -> (String, Vec<&'static str>) {
    let mut events = events.into_iter();
    let event = |state: &State<'_>| let_pass(state).or_else(|| events.next()).expect("an event");
    let mut walked = walk(&serving(), Method::Get, path, event);
    walked.states.retain(|state| !["Authorize", "Recall"].contains(state));
    assert!(events.next().is_none(), "{path}: it has not waited for all: {:?}", walked.states);
    (walked.answer(), walked.states)
}

/// Lets a request pass to its route.
fn let_pass(state: &State<'_>) -> Option<Event> {
    match state {
        State::Authorize(_) => Some(Event::Admitted(Ok(Grant::default()))),
        State::Recall(_) => Some(Event::Recalled(None)),
        _ => None,
    }
}

fn files(names: &[&str]) -> Vec<Event> {
    names.iter().map(|name| Event::File(found(name))).collect()
}

#[test]
fn a_guard_and_a_wrapper_may_answer_later_and_come_first() {
    let answer = |events: Vec<Event>| {
        let mut events = events.into_iter();
        let walked =
            walk(&serving(), Method::Get, "/files/a", |_| events.next().expect("an event"));
        (walked.answer(), walked.states)
    };
    let admitted = || Event::Admitted(Ok(Grant::default()));
    let refused = vec![Event::Admitted(Err(Status::Forbidden.into()))];
    assert_eq!(answer(refused), ("403".to_owned(), vec!["Authorize"]));
    let kept = vec![admitted(), Event::Recalled(Some(Rc::new(Kept)))];
    assert_eq!(answer(kept), ("recalled".to_owned(), vec!["Authorize", "Recall"]));
    let not = vec![admitted(), Event::Recalled(None), Event::File(found("text"))];
    assert_eq!(answer(not), ("content".to_owned(), vec!["Authorize", "Recall", "file"]));
}

#[test]
fn a_file_that_is_sent_is_followed_by_the_page_of_an_error() {
    for (path, found, answer, states) in [
        ("/files/a", &["text"][..], "content", &["file"][..]),
        ("/files/a", &["directory"], "content", &["file"]),
        ("/files/a", &["missing", "text"], "page of Some(404)", &["file", "error page"]),
        // A page that is not there is no error of its own.
        ("/files/a", &["missing", "missing"], "404", &["file", "error page"]),
        ("/files/a", &["unavailable", "directory"], "503", &["file", "error page"]),
        ("/none", &[], "404", &[]),
        ("/files", &[], "directory", &[]),
    ] {
        assert_eq!(with_events(path, files(found)), (answer.to_owned(), states.to_vec()), "{path}");
    }
}

#[test]
fn a_file_that_may_be_a_page_waits_for_its_template() {
    let parsed = |text: &[u8]| vec![Event::Template(Ok(template(text)))];
    let none = || vec![Event::Template(Err(Status::ServiceUnavailable))];
    for (found, more, answer, states) in [
        (&["text"][..], vec![], "content", &["page"][..]),
        (&["html"], parsed(b"plain"), "content", &["page", "Template"]),
        (&["html"], parsed(b"<!--#echo var=\"a\" -->"), "a page", &["page", "Template"]),
        (&["html"], none(), "503", &["page", "Template"]),
        // The fallback of the route may be a page, too.
        (&["missing", "html"], parsed(b"plain"), "content", &["page", "page", "Template"]),
        (&["missing", "missing", "text"], vec![], "page of Some(404)", &["page", "page", "page"]),
        (&["missing", "directory", "missing"], vec![], "404", &["page", "page", "page"]),
    ] {
        let events = files(found).into_iter().chain(more).collect();
        let found = with_events("/pages/a.html", events);
        assert_eq!(found, (answer.to_owned(), states.to_vec()));
    }
}

#[test]
fn a_file_that_may_be_a_script_is_run_or_sent() {
    let error = || {
        vec![Event::Server(proxy::Answer::Error(Status::from_code(204).unwrap(), Reason::NoRoom))]
    };
    for (path, found, more, answer, states) in [
        ("/php/a.php", &["script"][..], error(), "another", &["script", "Server"][..]),
        ("/php/a.php", &["text"], vec![], "content", &["script"]),
        ("/php/a.php", &["html"], vec![], "content", &["script"]),
        ("/php/a.php", &["missing", "text"], vec![], "page of Some(404)", &["script", "script"]),
        // The path goes on below a directory.
        (
            "/php/d/x.php",
            &["directory", "script"],
            error(),
            "another",
            &["script", "script", "Server"],
        ),
        // Only the application knows whether there is a script.
        ("/app/a/b", &[], error(), "another", &["Server"]),
    ] {
        let events = files(found).into_iter().chain(more).collect();
        assert_eq!(with_events(path, events), (answer.to_owned(), states.to_vec()), "{path}");
    }
}

#[test]
fn a_program_answers_or_hands_the_request_over() {
    let failed = || Event::Program(cgi::Answer::Error(Status::BadGateway, Reason::NoRoom));
    let gone = || Event::Server(proxy::Answer::Error(Status::BadGateway, Reason::NoRoom));
    for (events, answer, states) in [
        (
            vec![failed(), Event::File(found("text"))],
            "page of Some(502)",
            &["Program", "error page"][..],
        ),
        (
            vec![by_program("/files/a"), Event::File(found("text"))],
            "handed over None",
            &["Program", "file"],
        ),
        (
            vec![by_program("/cgi/a"), failed(), Event::File(found("missing"))],
            "502",
            &["Program", "Program", "error page"],
        ),
        // A gateway of another kind goes on with it.
        (
            vec![by_program("/proxy/a"), gone(), Event::File(found("missing"))],
            "502",
            &["Program", "Server", "error page"],
        ),
        (
            vec![
                by_program("/php/a.php"),
                Event::File(found("script")),
                gone(),
                Event::File(found("missing")),
            ],
            "502",
            &["Program", "script", "Server", "error page"],
        ),
        (
            vec![by_program("/php/a.php"), Event::File(found("text"))],
            "handed over None",
            &["Program", "script"],
        ),
        (vec![by_program("/files")], "302 /files/", &["Program"]),
    ] {
        assert_eq!(with_events("/cgi/a", events), (answer.to_owned(), states.to_vec()));
    }
    let mut count = 0;
    let walked = walk(&serving(), Method::Get, "/cgi/a", |state| match state {
        State::Authorize(_) | State::Recall(_) => let_pass(state).expect("it waits for that"),
        State::Program(..) => {
            count += 1;
            by_program("/cgi/a")
        }
        _ => Event::File(found("missing")),
    });
    assert_eq!((walked.answer(), count), ("502".to_owned(), HAND_OVERS_MAX + 1));
}

#[test]
fn a_server_answers_or_hands_the_request_over() {
    use proxy::response::Target as To;
    let serving = &serving();
    let over = |to| by_server(serving, to);
    let named = || over(To::Path(b"/pages/a.html".into()));
    let local = |path: &str| over(To::Local(path.into()));
    let refused = || Event::Server(proxy::Answer::Error(Status::MethodNotAllowed, Reason::NoRoom));
    let failed = || Event::Program(cgi::Answer::Error(Status::BadGateway, Reason::NoRoom));
    for (path, events, answer, states) in [
        (
            "/proxy/a",
            vec![refused(), Event::File(found("text"))],
            "page of Some(405)",
            &["Server", "error page"][..],
        ),
        (
            "/proxy/a",
            vec![named(), Event::File(found("text"))],
            "handed over None",
            &["Server", "page"],
        ),
        (
            "/app/a/b",
            vec![local("/proxy/a"), refused(), Event::File(found("missing"))],
            "405",
            &["Server", "Server", "error page"],
        ),
        (
            "/app/a/b",
            vec![local("/cgi/a"), failed(), Event::File(found("missing"))],
            "502",
            &["Server", "Program", "error page"],
        ),
        (
            "/proxy/a",
            vec![local("/files/a"), Event::File(found("text"))],
            "handed over None",
            &["Server", "file"],
        ),
        (
            "/proxy/a",
            vec![local("/php/a.php"), Event::File(found("text"))],
            "handed over None",
            &["Server", "script"],
        ),
        (
            "/app/a/b",
            vec![local("/app/a/b"), refused(), Event::File(found("missing"))],
            "405",
            &["Server", "Server", "error page"],
        ),
    ] {
        assert_eq!(with_events(path, events), (answer.to_owned(), states.to_vec()), "{path}");
    }
    let mut events = vec![named(), Event::File(found("missing")), Event::File(found("text"))];
    events.reverse();
    let walked = walk(serving, Method::Get, "/proxy/a", |state| {
        let_pass(state).or_else(|| events.pop()).expect("an event")
    });
    assert_eq!((walked.answer(), walked.is_missing), ("page of Some(404)".to_owned(), true));
}

#[test]
#[should_panic(expected = "Template for Authorize")]
fn an_event_that_nothing_waits_for_is_a_mistake() {
    let event = |_: &State<'_>| Event::Template(Err(Status::NotFound));
    walk(&serving(), Method::Get, "/files/a", event);
}

#[test]
fn each_state_is_reached() {
    let serving = serving();
    let mut reached = BTreeSet::new();
    for path in PATHS {
        for choice in 0..=u8::MAX {
            let mut choice = choice;
            let walked = walk(&serving, Method::Get, path, |state| {
                choice = choice.wrapping_mul(5).wrapping_add(3);
                any_event(&serving, state, choice)
            });
            reached.extend(walked.states);
        }
    }
    let all = [
        "Authorize",
        "Recall",
        "Program",
        "Server",
        "Template",
        "error page",
        "file",
        "page",
        "script",
    ];
    assert_eq!(reached, BTreeSet::from(all));
}

proptest! {
    #[test]
    fn whatever_comes_a_request_is_answered(
        path in 0..PATHS.len(),
        method in 0..METHODS.len(),
        choices in vec(any::<u8>(), 1..24),
    ) {
        let serving = serving();
        let mut choices = choices.into_iter();
        let walked = walk(&serving, METHODS[method], PATHS[path], |state| {
            // When the choices are used up, choice 0 ends the request.
            any_event(&serving, state, choices.next().unwrap_or(0))
        });
        // A file is sent to a client that asks for a file, or whose request was handed over to a file.
        let is_file = |outcome: &Outcome| {
            matches!(outcome, Outcome::Content(_, content::PathAnswer::Resource(_)))
        };
        let gets = matches!(METHODS[method], Method::Get | Method::Head);
        prop_assert!(gets || !is_file(&walked.outcome), "{:?}", walked);
        if let Outcome::HandedOver(over) = &walked.outcome {
            prop_assert!(is_file(&over.file), "{:?}", walked);
            prop_assert!(walked.states.iter().any(|state| ["Program", "Server"].contains(state)));
        }
    }
}

//! Explains what a server would do with a request, without doing it.
//!
//! The state machine of requests (`state.rs`) is used here too: `begin` and `advance` say what a request needs next.
//! The loads of `content` look for files on a ring of this thread, so no worker waits for these files. Nothing is sent
//! to an upstream, no program is started, and no limit counts the request. Values of `request-headers` and of
//! `environment` are not shown, and neither are values from files (`${file:…}`).

use core::fmt::{self, Display, Write as _};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::str::FromStr;
use core::time::Duration;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::{Coding, FieldSection, Framing, Head, Status, Target};
use http1::write::{ConnectionOption, Wire, response_head};
use ring::{Choice, Completion, Ring, Silences};
use rustix::fs::{Mode, OFlags, open};
use sendfile::Caching;

use super::admit::{client_of, sender_of, told_scheme};
use super::advance::{advance, begin, refuse, rules_of_page};
use super::answer::{Outcome, add_fields, plain_response};
use super::asked::Asked;
use super::destination::{Ground, place};
use super::https::{is_of_site, route_of, turned_away};
use super::state::{Event, Next, Parsing, State};
use crate::attach::HasSay;
use crate::challenges::DIRECTORY;
use crate::guard::Refusal;
use crate::includes::{self, Lookup, Pages};
use crate::serving::{Destination, Serving, Servings, Snapshot, TreeId, TreeSpec};
use crate::{Request, Response, Ticket, files, page};
use ::includes::Template;
use config::route::RouteId;
use config::site::without_port;
use config::text::plain;
use config::{Action, Address, Cgi, Fastcgi, Peers, TlsClients};
use content::{Content, FileSet, InMemory, Kind, PathAnswer, Resource, Tree};
use gateways::{cgi, proxy};
use session::context::Context;
use session::fields;
use session::forwarded::Scheme;
use session::kind;
use session::network::{Handshake, Origin};
use session::reason::Reason;
use session::request_id::RequestId;
use session::shell::{Complaint, Operator, Shell};
use session::standing::Standing;

/// The time for which a step waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most steps from a path to its response: the file, its fallback, the error page; and the same number for
/// scripts.
const STEPS_MAX: usize = 8;
/// Descriptors for the files of one look.
const DESCRIPTORS_MAX: usize = 64;
/// The column in which the values begin.
const COLUMN: usize = 14;
/// The ticket of the only request.
const TICKET: Ticket = Ticket { connection: 0, request: 0 };

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A client with this address.
    Address(IpAddr),
    /// A client on a Unix socket: `unix`.
    Unix,
}

impl Client {
    /// The address of the client; `None` on a Unix socket.
    const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Unix => None,
        }
    }
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unix" => Ok(Self::Unix),
            address => address
                .parse()
                .map(Self::Address)
                .map_err(|_| "expected an address such as 192.0.2.7, or `unix`".to_owned()),
        }
    }
}

impl Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// A request that is explained and not sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// The scheme of the URL.
    pub scheme: Scheme,
    /// The URL as the operator has written it.
    pub url: String,
    /// The host of the URL, perhaps with a port: the client connects to it, and names it in a handshake.
    pub host: String,
    /// The host in the `Host` field of the request.
    pub asked: String,
    /// The port of the URL; `None` if the URL has no port.
    pub port: Option<u16>,
    /// The method of the request.
    pub method: String,
    /// The head of the request, as a client would send it.
    pub head: String,
    /// The client, if the rules for clients are to be applied.
    pub from: Option<Client>,
}

/// The explanation: a name and a text on each line. Nothing in it acts on a terminal.
#[derive(Debug, Default)]
struct Explanation {
    text: String,
    /// True if the client asks with `https`, as far as the server knows.
    is_https: bool,
}

impl Explanation {
    fn say(&mut self, name: &str, text: impl Display) {
        let text = text.to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name:COLUMN$}{}", plain(&text));
    }
}

/// An operator that gets no messages: the explanation has all errors.
#[derive(Debug)]
struct Nobody;

impl Operator for Nobody {
    fn note(&mut self, _ring: &mut Ring, _text: &str) {}

    fn complain(&mut self, _: &mut Ring, _: ring::Time, _: Complaint, _: &str) {}
}

/// The handshake of a client that has named a host.
#[derive(Debug)]
struct Named {
    host: String,
    /// True if requests for the host of the request may come on the connection.
    permits: bool,
}

impl Handshake for Named {
    fn version(&self) -> &'static str {
        "TLSv1.3"
    }

    fn cipher(&self) -> Option<&'static str> {
        None
    }

    fn server_name(&self) -> Option<&str> {
        Some(&self.host)
    }

    fn client(&self) -> Option<&str> {
        None
    }

    fn is_resumed(&self) -> bool {
        false
    }

    fn permits(&self, _host: Option<&str>) -> bool {
        self.permits
    }
}

/// Explains what a server with this snapshot would do. `has_say` says for which routes the authorizer decides.
///
/// # Errors
///
/// A sentence for the operator.
pub fn explain(snapshot: Arc<Snapshot>, parts: &Parts, has_say: HasSay) -> Result<String, String> {
    let limits = &snapshot.tuning().request_limits;
    let parsed = http1::parse(parts.head.as_bytes(), limits);
    let parsed = parsed.map_err(|reject| format!("the request is refused: {reject}"))?;
    let (request, _) = parsed.ok_or("the request is not complete")?;
    let head = &request.head;
    let mut out = Explanation::default();
    out.say("request", format_args!("{} {}", parts.method, parts.url));
    let (listener, address) = listener_of(&snapshot, head, parts)?;
    let is_tls = parts.scheme == Scheme::Https;
    let protocol = if is_tls { "TLS" } else { "without TLS" };
    out.say("listener", format_args!("{address}, {protocol}"));
    let trees = (0..snapshot.trees().len()).map(TreeId::new).collect();
    let serving = Serving::new(Arc::clone(&snapshot), trees);
    let site = serving.site(listener, head).ok_or("no site has the listener")?;
    let name = &snapshot.records()[site.index()].name;
    match serving.listed(listener, parts.asked.as_bytes(), site) {
        Some(_) => out.say("site", format_args!("{name} (its hosts have this host)")),
        None => out.say("site", format_args!("{name} (the default: no site lists this host)")),
    }
    let shown = serving.site_of(listener, parts.host.as_bytes()).unwrap_or(site);
    if is_tls {
        say_clients(&mut out, serving.clients(shown));
    }
    let mut shell = shell(&snapshot)?;
    // The responses have a date.
    shell.tick();
    let peer = parts.from.and_then(Client::address).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut origin = Origin { listener, peer: SocketAddr::new(peer, 0).into() };
    if parts.from == Some(Client::Unix) {
        origin.set_client(session::client::Client {
            address: None,
            name: "unix".into(),
            counted: None,
        });
    }
    if is_tls {
        let permits = serving.are_interchangeable(listener, shown, site);
        origin.set_handshake(Rc::new(Named { host: parts.host.clone(), permits }));
    }
    let request =
        Request { head, ticket: TICKET, origin: &origin, standing: Standing::New, is_next: true };
    let told = told_scheme(&shell, &request, &serving);
    out.is_https = told.unwrap_or(parts.scheme) == Scheme::Https;
    let client = told_client(&shell, &request, &serving, parts.from);
    let mut name = Vec::new();
    let (destination, next);
    if let Some(outcome) = turned_away(&shell, &request, &serving, site) {
        destination = Destination { site, route: None };
        let ground = Ground { serving: &serving, destination };
        let mut refused = None;
        match &outcome {
            Outcome::Refused(Refusal::Conflict) => {
                out.say("client", "a proxy that is believed names different clients");
            }
            Outcome::Error(_, Reason::Handshake) => {
                let records = snapshot.records();
                let [shown, asked] = [shown, site].map(|site| &records[site.index()].name);
                out.say(
                    "handshake",
                    format_args!(
                        "for {} (the site {shown}); the site {asked} has another certificate, `profile` or `client`, so \
                         the client has to connect again for {}",
                        parts.host, parts.asked
                    ),
                );
            }
            Outcome::Challenge(_) => out.say(
                "challenge",
                "this server answers it for `tls = \"acme\"`: an authority asks for this token now",
            ),
            _ => {
                out.say("https", "the site answers such requests without its routes (`https`)");
                if is_of_site(&outcome) {
                    let route = route_of(&serving, site, head.target);
                    refused = refused_by_rules(&mut out, ground, route, client, head.framing);
                }
            }
        }
        next = refuse(ground, None, refused.unwrap_or(outcome));
    } else {
        say_challenge(&mut out, &serving, head, is_tls, serving.to_https(site).is_some());
        let Target::Origin { path, .. } = head.target else {
            return Err("only requests for a path are explained".to_owned());
        };
        let refusal;
        (destination, refusal) = place(&serving, site, path, &mut name);
        let ground = Ground { serving: &serving, destination };
        say_route(&mut out, &serving, destination, &name);
        let owner = match (destination.route, &refusal) {
            (None, None) => serving.directory(site, &name),
            (route, _) => route,
        };
        let refused = refused_by_rules(&mut out, ground, owner, client, head.framing);
        let refusal = refusal.map(|(status, reason)| Outcome::Error(status, reason));
        next = match refused.or(refusal) {
            Some(outcome) => refuse(ground, None, outcome),
            None => {
                say_authorizer(&mut out, ground, has_say);
                begin(ground, Asked::Given(&request), Cow::Borrowed(&name), None)
            }
        };
    }
    let ground = Ground { serving: &serving, destination };
    follow(&mut out, &mut shell, ground, &request, next);
    Ok(snapshot.secrets().conceal(&out.text).into_owned())
}

/// The client of a request, as far as it is known: a proxy that is believed may name it. The address of the connection is
/// that of `from`, and is not known without that.
fn told_client(
    shell: &Shell<Nobody>,
    request: &Request<'_>,
    serving: &Serving,
    from: Option<Client>,
) -> Option<Client> {
    let own = request.origin.client_address(&shell.ring);
    match client_of(shell, request, serving) {
        client if client == own => from,
        Some(address) => Some(Client::Address(address)),
        None => Some(Client::Unix),
    }
}

/// Says which certificates clients are asked for.
fn say_clients(out: &mut Explanation, clients: Option<&TlsClients>) {
    let Some(TlsClients { ca, require, crl }) = clients else { return };
    let ca = ca.display();
    match require {
        true => out.say(
            "client",
            format_args!("needs a certificate of {ca} (`client`), else no handshake"),
        ),
        false => out.say(
            "client",
            format_args!("may have a certificate of {ca} (`client`, require = false)"),
        ),
    }
    if let Some(crl) = crl {
        out.say("", format_args!("that {} does not revoke", crl.display()));
    }
}

/// Says who answers a challenge of an authority, if the request is for one that does not wait here.
fn say_challenge(
    out: &mut Explanation,
    serving: &Serving,
    head: &Head<'_>,
    is_tls: bool,
    is_redirected: bool,
) {
    let Target::Origin { path, .. } = head.target else { return };
    if !path.starts_with(DIRECTORY) {
        return;
    }
    if serving.snapshot.has_acme() {
        let why = match is_tls {
            true => "authorities ask without TLS, so this server never answers it here",
            false => {
                "this server answers it for `tls = \"acme\"` while an authority asks for its token: not now"
            }
        };
        out.say("challenge", why);
    }
    let redirection = match is_redirected && !is_tls {
        true => ", and `https` does not redirect it",
        false => "",
    };
    out.say(
        "challenge",
        format_args!("the routes answer it, for other programs that get certificates{redirection}"),
    );
}

/// The listener that would get the request, and the listener's address.
fn listener_of(
    snapshot: &Snapshot,
    head: &Head<'_>,
    parts: &Parts,
) -> Result<(u32, String), String> {
    let is_tls = parts.scheme == Scheme::Https;
    let port = parts.port.unwrap_or_else(|| parts.scheme.port());
    let listeners = snapshot.listeners().iter();
    let all: Vec<_> = listeners.filter(|(_, listen)| listen.tls == is_tls).collect();
    let lists = |number: u32| snapshot.lists(number, head);
    let has_port = |listen: &config::Listen| listen.address.port() == Some(port);
    let host = str::from_utf8(without_port(parts.host.as_bytes())).unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let has_address = |listen: &config::Listen| match listen.address {
        Address::Ip(address) => Some(address.ip()) == ip,
        Address::Unix(_) => false,
    };
    // The port of the URL decides first, with its address. If no listener has this port (behind a proxy, or with port 0),
    // the host decides.
    let chosen = all
        .iter()
        .find(|(_, listen)| has_port(listen) && has_address(listen))
        .or_else(|| all.iter().find(|(number, listen)| has_port(listen) && lists(*number)))
        .or_else(|| all.iter().find(|(_, listen)| has_port(listen)))
        .or_else(|| all.iter().find(|(number, _)| lists(*number)))
        .or_else(|| all.first());
    let Some((number, listen)) = chosen else {
        let with = if is_tls { "with" } else { "without" };
        return Err(format!("no listener {with} TLS would get the request"));
    };
    let why = if has_port(listen) { "" } else { " (no listener has the port of the URL)" };
    Ok((*number, format!("{}{why}", listen.address)))
}

fn shell(snapshot: &Arc<Snapshot>) -> Result<Shell<Nobody>, String> {
    let ring =
        Ring::new(Choice::Epoll).map_err(|error| format!("cannot look for files: {error}"))?;
    let servings = Servings::new(Serving::new(Arc::clone(snapshot), Vec::new()));
    let cx = Context::new(snapshot.tuning().clone(), Rc::new(servings));
    Ok(Shell::new(ring, cx, Arc::new(Silences::default()), Nobody))
}

/// Shows the route that has the path, and the other routes above the path, with the reasons against them.
fn say_route(out: &mut Explanation, serving: &Serving, destination: Destination, name: &[u8]) {
    let chosen = destination.route;
    match chosen {
        Some(id) => {
            let entry = serving.entry(id);
            let pattern = entry.route.pattern.as_ref();
            let pattern = pattern.map(|pattern| format!(" with match = {:?}", pattern.as_str()));
            let pattern = pattern.unwrap_or_default();
            out.say(
                "route",
                format_args!("{}{pattern} (the longest path that fits)", entry.route.path),
            );
        }
        None => out.say("route", "none has this path"),
    }
    for id in serving.routes_of(destination.site).filter(|id| Some(*id) != chosen) {
        let entry = serving.entry(id);
        let is_above = name.starts_with(&entry.prefix) || entry.route.path.as_bytes() == name;
        if !is_above {
            continue;
        }
        let route = entry.route.name();
        let is_longer = chosen.is_none_or(|id| entry.prefix.len() > serving.prefix(id).len());
        let why = if entry.route.is_internal {
            "is internal"
        } else if entry.matcher.redirects.is_some() {
            "its file of redirects does not list the path, or it comes later"
        } else if entry.route.pattern.as_ref().is_some_and(|own| !own.matches(name)) {
            "its `match` does not fit"
        } else if is_longer {
            "is not reached"
        } else {
            "its path is shorter, or it comes later"
        };
        out.say("", format_args!("not {route}: {why}"));
    }
}

/// Shows the conditions of a request. The clients are permitted by the route that has the path, or that will have the
/// path after a redirect; without such a route, by the site. The limits are set by the route that responds; without
/// such a route, by the site. Returns the refusal of the client, if the address of the client is known.
fn refused_by_rules(
    out: &mut Explanation,
    Ground { serving, destination }: Ground<'_>,
    owner: Option<RouteId>,
    client: Option<Client>,
    framing: Framing,
) -> Option<Outcome> {
    let (access_of_site, limits_of_site) = serving.conditions(destination.site);
    let access = owner.map_or(access_of_site, |id| &serving.route(id).access);
    let limits = destination.route.map_or(limits_of_site, |id| &serving.route(id).limits);
    let list = |peers: &[Peers]| {
        let all: Vec<_> = peers.iter().map(Peers::to_string).collect();
        all.join(", ")
    };
    if !access.allow.is_empty() {
        out.say("allow", list(&access.allow));
    }
    if !access.deny.is_empty() {
        out.say("deny", list(&access.deny));
    }
    if let Some(connections) = limits.connections {
        out.say("limit", format_args!("{connections} connections per address"));
    }
    if let Some(rate) = limits.requests {
        let config::Rate { per_second, burst } = rate;
        out.say(
            "limit",
            format_args!("{per_second} requests a second per address, {burst} at once"),
        );
    }
    if let Some(bytes) = limits.bytes_per_second {
        out.say("limit", format_args!("{bytes} bytes a second on a connection"));
    }
    let body = destination.route.and_then(|id| Some((id, serving.route(id).max_body?)));
    if let Some((_, bytes)) = body {
        let how = match framing {
            Framing::Unknown => " (the body has no declared length, and is refused beyond it)",
            _ => "",
        };
        out.say("max-body", format_args!("{bytes} bytes{how}"));
    }
    if let Some(permitted) = access.permitted() {
        match client {
            None => {
                out.say("client", "permitted, as is assumed (--from ADDRESS applies the rules)")
            }
            Some(from) if permitted.contains(from.address()) => {
                out.say("client", format_args!("{from} is permitted"));
            }
            Some(from) => {
                out.say("client", format_args!("{from} is not permitted"));
                return Some(Outcome::Refused(Refusal::Forbidden));
            }
        }
    }
    let guard = body.and_then(|(id, _)| serving.guard(id))?;
    guard.admit_body(framing).err().map(Outcome::Refused)
}

/// Says that an authorizer would be asked. The explanation goes on as if it let the request pass.
fn say_authorizer(
    out: &mut Explanation,
    Ground { serving, destination }: Ground<'_>,
    has_say: HasSay,
) {
    if destination.route.is_some_and(|id| has_say(serving.route(id))) {
        out.say("authorizer", "it would decide first; it is not asked, and permits as is assumed");
    }
}

/// Follows a request to its end.
fn follow<'a>(
    out: &mut Explanation,
    shell: &mut Shell<Nobody>,
    ground: Ground<'a>,
    request: &Request<'_>,
    mut next: Next<'a>,
) {
    let serving = ground.serving;
    for _ in 0..STEPS_MAX {
        next = match next {
            Next::File { tree, path, search } => {
                let spec = &serving.snapshot.trees()[tree.index()];
                let place = spec.directory.join(OsStr::from_bytes(&path));
                let found = look(shell, spec, &path);
                match &found {
                    PathAnswer::Resource(resource) => say_resource(out, spec, resource),
                    PathAnswer::Error(_, reason) => {
                        out.say("file", format_args!("{}: {reason}", place.display()));
                    }
                    PathAnswer::Rejected(reject) => {
                        out.say("file", format_args!("{}: {}", place.display(), reject.reason));
                    }
                }
                advance(ground, State::File(search), Event::File(found))
            }
            Next::Template(parsing) => {
                let template = parse(shell, serving, &parsing);
                advance(ground, State::Template(parsing), Event::Template(template))
            }
            Next::Page(parsing, _) => {
                out.say("page", "it has directives, which are followed (includes)");
                let response = Response::bare(includes::head(&parsing.resource));
                return say_response(out, shell, ground, request, (None, true), response);
            }
            Next::Program { path, asked, .. } => match find_program(ground, request, &path) {
                Ok(program) => return say_program(out, ground, &program),
                Err(refusal) => {
                    out.say("program", "none is started (cgi)");
                    advance(ground, State::Program(asked, 0), Event::Program(refusal))
                }
            },
            Next::Script { route, name, .. } => match refused_by_gateway(request) {
                None => return say_script(out, serving, route, &name),
                Some(refusal) => advance(ground, State::Server(None, 0), Event::Server(refusal)),
            },
            Next::Proxy { .. } => match refused_by_gateway(request) {
                None => return say_upstream(out, ground),
                Some(refusal) => advance(ground, State::Server(None, 0), Event::Server(refusal)),
            },
            Next::Loop { .. } => {
                out.say("redirect", "it leads to this path itself");
                let outcome = Outcome::Error(Status::InternalServerError, Reason::RedirectLoop);
                refuse(ground, None, outcome)
            }
            Next::Answer { outcome, .. } => {
                return say_outcome(out, shell, ground, request, &outcome);
            }
            // Here no authorizer is asked, and no gateway answers.
            Next::Authorize(_)
            | Next::Recall(_)
            | Next::Begin(_)
            | Next::Route { .. }
            | Next::Named { .. } => return,
        };
    }
}

/// Reads a file that may have directives, as a worker does. It waits for the disk for [`PATIENCE`].
fn parse(
    shell: &mut Shell<Nobody>,
    serving: &Serving,
    Parsing { route, resource, .. }: &Parsing<'_>,
) -> Result<Rc<Template>, Status> {
    let rules = rules_of_page(serving, *route, resource).expect("it may be a page");
    let keeps = rules.policy.caching != Caching::Never;
    let mut pages = Pages::default();
    match pages.templates.find(shell, resource, keeps, TICKET) {
        Lookup::Now(template) => return Ok(template),
        Lookup::Later => {}
        Lookup::TooLarge => return Err(Status::InternalServerError),
        Lookup::Unavailable => return Err(Status::ServiceUnavailable),
    }
    let found = wait(shell, |shell, completion| {
        if let Some(completion) = completion
            && completion.token & kind::MASK == kind::PAGE
        {
            pages.handle(shell, completion);
        }
        pages.templates.next_done()
    });
    found.and_then(|(_, template)| template).ok_or(Status::ServiceUnavailable)
}

/// Takes completions until `take` returns something, or [`PATIENCE`] is over. At first `take` gets no completion.
fn wait<T>(
    shell: &mut Shell<Nobody>,
    mut take: impl FnMut(&mut Shell<Nobody>, Option<Completion>) -> Option<T>,
) -> Option<T> {
    let deadline = shell.ring.now() + PATIENCE;
    let mut completions = Vec::new();
    let mut found = take(shell, None);
    while found.is_none() && shell.ring.now() < deadline {
        if shell.ring.wait(Some(deadline), &mut completions).is_err() {
            break;
        }
        shell.tick();
        for completion in completions.drain(..) {
            found = found.or_else(|| take(shell, Some(completion)));
        }
    }
    found
}

/// Looks for a file as a worker does. It waits for the disk for [`PATIENCE`].
fn look(shell: &mut Shell<Nobody>, spec: &TreeSpec, path: &[u8]) -> PathAnswer {
    let unavailable = |reason| PathAnswer::Error(Status::ServiceUnavailable, reason);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match open(&*spec.directory, flags, Mode::empty()) {
        Ok(root) => shell.ring.adopt_file(root),
        Err(errno) => {
            return unavailable(Reason::unopened(&spec.directory, &errno.into(), None));
        }
    };
    let account = shell.cx.budget.shared.clone();
    let in_memory = InMemory::of(shell.cx.takes);
    let tree = vec![Tree::new(root, spec)];
    let Ok(mut content) = Content::new(tree, DESCRIPTORS_MAX, in_memory, account) else {
        return unavailable(Reason::Crowded);
    };
    shell.tick();
    if let content::Found::Now(answer) = content.find(shell, TreeId::new(0), path, TICKET) {
        return answer;
    }
    let found = wait(shell, |shell, completion| {
        if let Some(completion) = completion {
            match completion.token & kind::MASK {
                kind::LOAD => content.handle_load(shell, completion),
                kind::LAYOUT => content.handle_layout(shell, completion),
                kind::WATCH => content.handle_watch(shell, completion),
                kind::TIDY => content.handle_tidy(shell, &completion),
                kind::WAKE => content.handle_wake(shell),
                _ => {}
            }
        }
        content.answers.pop_front()
    });
    found.map_or_else(|| unavailable(Reason::Disk), |(_, answer)| answer)
}

/// Shows the file or directory to which a path leads on the disk.
fn say_resource(out: &mut Explanation, spec: &TreeSpec, resource: &Resource) {
    let path = spec.directory.join(OsStr::from_bytes(&resource.path));
    match &resource.kind {
        Kind::File(files) => {
            let path = path_of(spec, resource, &path);
            say_files(out, &path, files);
        }
        Kind::Directory(_) => {
            out.say(
                "directory",
                format_args!("{}: it has no index, and is listed", path.display()),
            );
        }
        Kind::Redirect => {
            let path = path.display();
            out.say("directory", format_args!("{path}: its path has no slash at the end"));
        }
        Kind::Unclean(_) => out.say("file", "its path is not the clean one (clean-urls = true)"),
    }
}

/// The path of the file that a resource is: the index of a directory, or a page without its suffix.
fn path_of(spec: &TreeSpec, resource: &Resource, path: &Path) -> PathBuf {
    let is_directory = resource.path.is_empty() || resource.path.ends_with(b"/");
    if is_directory {
        return match spec.rules.index.get(resource.index) {
            Some(index) => path.join(index),
            None => path.to_owned(),
        };
    }
    if spec.rules.clean_urls && !path.is_file() {
        let mut name = path.as_os_str().to_owned();
        name.push(".html");
        return name.into();
    }
    path.to_owned()
}

fn say_files(out: &mut Explanation, path: &Path, files: &FileSet) {
    let stat = &files.plain.stat;
    let owner = if stat.owner == 0 { "root".to_owned() } else { stat.owner.to_string() };
    out.say(
        "file",
        format_args!(
            "{} ({} bytes, mode {:04o}, owner {owner})",
            path.display(),
            stat.size,
            stat.mode & 0o7777
        ),
    );
    if let Ok(target) = path.canonicalize()
        && target != path
    {
        out.say("", format_args!("it is {}", target.display()));
    }
    for (coding, variant) in Coding::PREFERENCE.iter().zip(&files.encoded) {
        if let Some(variant) = variant {
            out.say("precompressed", format_args!("{coding:?}, {} bytes", variant.size));
        }
    }
    out.say("media type", &files.content_type);
}

/// Finds the program of a request as a server does, and starts nothing.
fn find_program(
    Ground { serving, destination }: Ground<'_>,
    request: &Request<'_>,
    path: &[u8],
) -> Result<PathBuf, cgi::Answer> {
    let id = destination.route.expect("programs are of a route");
    match (serving.programs(id), path.get(serving.prefix(id).len()..)) {
        (Some(directory), Some(rest)) => cgi::look(directory, rest, &request.head.method),
        _ => Err(cgi::Answer::Error(Status::NotFound, Reason::NoProgram)),
    }
}

/// The answer to a request that may be passed on to no upstream.
fn refused_by_gateway(request: &Request<'_>) -> Option<proxy::Answer> {
    let status = proxy::request::refusal(request.head)?;
    Some(proxy::Answer::Error(status, Reason::NotPassedOn))
}

fn say_program(out: &mut Explanation, Ground { serving, destination }: Ground<'_>, program: &Path) {
    let Some(Action::Cgi(Cgi { environment, .. })) =
        destination.route.map(|id| &serving.route(id).action)
    else {
        return;
    };
    out.say("program", format_args!("{} (cgi), which is not started", program.display()));
    say_names(out, "environment", environment.iter().map(|(name, _)| &name[..]));
}

fn say_script(out: &mut Explanation, serving: &Serving, route: RouteId, name: &[u8]) {
    let Action::Fastcgi(Fastcgi { environment, upstream, .. }) = &serving.route(route).action
    else {
        return;
    };
    out.say("script", String::from_utf8_lossy(name));
    say_servers(out, upstream);
    say_names(out, "environment", environment.iter().map(|(name, _)| &name[..]));
}

fn say_upstream(out: &mut Explanation, Ground { serving, destination }: Ground<'_>) {
    let Some(route) = destination.route.map(|id| serving.route(id)) else { return };
    let Some(upstream) = route.action.upstream() else { return };
    say_servers(out, upstream);
    let (removed, sent): (Vec<_>, Vec<_>) =
        route.request_headers.iter().partition(|field| field.is_left_out());
    say_names(out, "sends", sent.iter().map(|field| field.name()));
    for field in removed {
        out.say("sends", format_args!("no {}, whatever the client sends", field.name()));
    }
}

fn say_servers(out: &mut Explanation, upstream: &config::Upstream) {
    let all: Vec<_> = upstream.servers.iter().map(|server| server.to_string()).collect();
    out.say("upstream", format_args!("{}, which is not asked", all.join(" or ")));
    let verifies = upstream.rules.tls.as_ref().is_none_or(|tls| tls.verify);
    if upstream.has_tls() && !verifies {
        out.say("", "any certificate of a server with https is accepted (upstream-tls)");
    }
}

/// Shows the names of values, because the values may be secret.
fn say_names<'a>(out: &mut Explanation, what: &str, names: impl Iterator<Item = &'a str>) {
    for name in names {
        out.say(what, format_args!("{name} = …"));
    }
}

/// Shows the response of an outcome.
fn say_outcome(
    out: &mut Explanation,
    shell: &mut Shell<Nobody>,
    ground: Ground<'_>,
    request: &Request<'_>,
    outcome: &Outcome,
) {
    let Ground { serving, destination } = ground;
    let head = request.head;
    let Some(mut response) = response_of(&mut shell.cx, serving, head, outcome) else {
        return out.say("response", "200 OK, made anew for each request");
    };
    if !matches!(outcome, Outcome::Content(_, PathAnswer::Resource(_))) {
        add_fields(head, serving, destination, &mut response);
    }
    let has_body = !response.made().body.is_empty();
    say_response(out, shell, ground, request, (outcome.reason(), has_body), response);
    if matches!(outcome, Outcome::Paged(_)) {
        out.say("", "with the page of the site for this status (errors)");
    }
}

/// Shows a response with its fields, as a session sends them over HTTP/1.1.
fn say_response(
    out: &mut Explanation,
    shell: &mut Shell<Nobody>,
    Ground { serving, destination }: Ground<'_>,
    request: &Request<'_>,
    (reason, has_body): (Option<&Reason>, bool),
    mut response: Response<'_>,
) {
    if response.shows_id && serving.shows_ids(destination) {
        let is_trusted = sender_of(shell, request, serving).is_trusted;
        let id = RequestId::of(request.head, is_trusted, shell.cx.id_seed, TICKET);
        page::show_id(&mut response, &id);
    }
    let is_last = response.terms.is_last;
    let made = response.made();
    if serving.has_timing(destination) {
        made.head.extra.push(b"Server-Timing", "disk;dur=…, find;dur=…".as_bytes());
    }
    let status = made.head.status;
    match reason {
        Some(reason) => out.say("response", format_args!("{status}: {reason}")),
        None => out.say("response", status),
    }
    let chunked = made.head.content_length.is_none() && has_body;
    if made.head.content_length.is_none() && !chunked && !status.is_bodiless() {
        made.head.content_length = Some(0);
    }
    let unix = shell.cx.unix;
    made.head.last_modified = made.head.last_modified.map(|time| time.min(unix));
    let hsts = serving.hsts(destination.site).filter(|_| out.is_https);
    let hsts = hsts.filter(|_| !fields::has_hsts(&made.head)).cloned();
    let connection = if is_last { ConnectionOption::Close } else { ConnectionOption::Unsaid };
    let mut bytes = Vec::new();
    response_head(&made.head, &shell.cx.date(), Wire { connection, chunked }, &mut bytes);
    for line in String::from_utf8_lossy(&bytes).lines().skip(1).filter(|line| !line.is_empty()) {
        out.say("", line);
    }
    for (name, value) in hsts.iter().flat_map(FieldSection::fields) {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        out.say("", format_args!("{name}: {value}"));
    }
}

/// The response of an outcome; `None` for outcomes that are made anew for each request.
fn response_of<'a>(
    cx: &mut Context,
    serving: &'a Serving,
    head: &Head<'_>,
    outcome: &'a Outcome,
) -> Option<Response<'a>> {
    Some(match outcome {
        Outcome::Content(id, content) => {
            let entry = serving.entry(*id);
            let policy = entry.route.action.files()?.rules.policy;
            files::response(cx, head, &entry.prefix, policy, &entry.fields, content)
        }
        Outcome::Program(answer) => cgi::response(head, answer),
        Outcome::Passed(answer) => proxy::response(answer, cx.unix),
        Outcome::Paged(paged) => {
            let mut response = response_of(cx, serving, head, &paged.error)?;
            if let PathAnswer::Resource(resource) = &paged.page
                && let Kind::File(files) = &resource.kind
            {
                files::dress(head, files, &mut response);
            }
            response
        }
        outcome => plain_response(head, serving, outcome)?,
    })
}

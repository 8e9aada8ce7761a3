//! Requests that programs and other servers answer, and those that they hand over to something else.

use std::rc::Rc;
use std::sync::Arc;

use http::{FieldSection, Method, Status};

use super::admit::{admit, circumstances};
use super::answer::{Answer, HandedOver, Moved, Outcome};
use super::moved::{lacks_slash, sent_on};
use super::pages::asked_for;
use super::place::{is_hidden, page_of, place_of};
use super::script::is_source;
use super::steps::Step;
use super::{Asked, Over, Routed, Router, Waiting};
use crate::content;
use crate::guard::Refusal;
use crate::handler::gateway::HAND_OVERS_MAX;
use crate::handler::gateway::interest::{Interest, Waiter};
use crate::handler::page::ALLOW_MOST;
use crate::handler::proxy::request::{Forwarding, LOOP_DETECTED, is_for_include};
use crate::handler::proxy::response::{HandOver, Target};
use crate::handler::proxy::wire::Wire;
use crate::handler::proxy::{self, Held, Passing};
use crate::handler::{Found, Request, Ticket, cgi, includes};
use crate::route::RouteId;
use crate::serving::{Place, Serving};
use crate::shell::Shell;
use crate::upstream::Server;

/// The answers of a kind of gateway, one of which has handed a request over to a path. Only the same kind can go on
/// with it: the client waits for that.
enum By {
    Program(Rc<Interest>),
    Script(Held),
}

impl Router {
    /// Finds the answer to a request for a path of a route with programs. `handed_over`: by an earlier
    /// program, for which time.
    #[inline(never)]
    pub(super) fn find_program(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Routed { serving, place, route: id, path }: Routed<'_>,
        handed_over: Option<(Rc<Interest>, u32)>,
    ) -> Found<Answer> {
        let (interest, count) = handed_over.unzip();
        let (Some(directory), Some(path)) =
            (serving.programs(id), path.get(serving.prefix(id).len()..))
        else {
            let outcome = Outcome::Error(Status::NotFound);
            return self.settle_refused(shell, request.ticket, (serving, place), outcome);
        };
        let circumstances = circumstances(shell, request, &serving);
        let asked = Asked::new(request, count.unwrap_or(0));
        let waiter = asked.waiter(serving.route(id));
        let call = cgi::Call { directory, path, circumstances, interest };
        match self.programs.find(shell, request, call, waiter) {
            Found::Now(answer) => {
                self.settle_refused(shell, request.ticket, (serving, place), of_program(answer))
            }
            Found::Later(search) => {
                let (asked, step) = (Some(asked), Step::Fallback);
                let waiting = Waiting { asked, ..Waiting::for_file(serving, place, id, step) };
                self.waiting.insert(request.ticket, waiting);
                Found::Later(search)
            }
        }
    }

    /// Passes a request for a path of a route on to a server.
    #[inline(never)]
    pub(super) fn pass_on(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Routed { serving, place, route: id, path }: Routed<'_>,
    ) -> Found<Answer> {
        let Some(upstream) = serving.upstream(id) else {
            unreachable!("requests are passed on to a server")
        };
        let upstream = Arc::clone(upstream);
        let is_include = includes::page_of(request.ticket).is_some();
        if is_include && is_for_include(request.head) {
            let status = Status::from_code(LOOP_DETECTED).unwrap_or(Status::InternalServerError);
            let outcome = Outcome::Error(status);
            return self.settle_refused(shell, request.ticket, (serving, place), outcome);
        }
        let peer = request.origin.client_address(&shell.ring);
        let proxies = serving.snapshot.proxies();
        let Ok(client) = proxies.client_of(peer, request.head) else {
            shell.cx.stats.forged_clients += 1;
            let outcome = Outcome::Refused(Refusal::Conflict);
            return self.settle_refused(shell, request.ticket, (serving, place), outcome);
        };
        let how = Forwarding {
            prefix: serving.prefix(id),
            authority: b"localhost",
            peer,
            client,
            is_trusted: proxies.trusts(peer),
            scheme: proxies.scheme_of(peer, request.head),
            is_include,
            fields: Some(&serving.route(id).request_headers).filter(|fields| !fields.is_empty()),
        };
        let wire = match Wire::http(request.head, &how, self.proxy.text()) {
            Ok(wire) => wire,
            Err(error) => {
                self.proxy.refuse_head(shell, request.ticket, &upstream, error);
                let outcome = Outcome::Error(Status::HeaderFieldsTooLarge);
                return self.settle_refused(shell, request.ticket, (serving, place), outcome);
            }
        };
        let affinity = upstream.key(client, path);
        let passing = Passing { upstream: &upstream, affinity, wire, held: None };
        self.exchange(shell, request, (serving, place), id, passing)
    }

    /// Has a server of a route answer a request, which was perhaps held back.
    pub(super) fn exchange(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        (serving, place): (Rc<Serving>, Place),
        id: RouteId,
        passing: Passing<'_>,
    ) -> Found<Answer> {
        let count = passing.held.as_ref().map_or(0, |held| held.count);
        let is_script = serving.scripts(id).is_some();
        let may_be_handed_over = is_script || serving.has_files(place.site);
        let asked = may_be_handed_over.then(|| Asked::new(request, count));
        let memory = asked.as_ref().map_or(0, |asked| asked.memory());
        let waiter = Waiter { memory, half_close: serving.route(id).half_close };
        match self.proxy.find(shell, request, passing, waiter) {
            Found::Now(answer) => {
                self.settle_refused(shell, request.ticket, (serving, place), of_proxy(answer))
            }
            Found::Later(search) => {
                let step = Step::Fallback;
                let waiting = Waiting { asked, ..Waiting::for_file(serving, place, id, step) };
                self.waiting.insert(request.ticket, waiting);
                Found::Later(search)
            }
        }
    }

    /// Takes what servers have answered.
    #[inline(never)]
    pub(super) fn act_for_proxy(&mut self, shell: &mut Shell) {
        self.proxy.act(shell);
        while let Some((ticket, answer)) = self.proxy.next_answer() {
            let Waiting { serving, place, asked, .. } =
                self.waiting.remove(&ticket).expect("a request waits for each answer");
            let found = match answer {
                proxy::Answer::HandOver(over, server, held) => match (over.to, asked) {
                    (Target::Local(path), Some(asked)) => {
                        let by = By::Script(held);
                        self.hand_over(shell, ticket, (serving, place), &asked, (&path, by))
                    }
                    (to, asked) => {
                        let over = HandOver { to, ..*over };
                        self.send_file(shell, ticket, (serving, place), asked, server, over)
                    }
                },
                answer => self.settle_refused(shell, ticket, (serving, place), of_proxy(answer)),
            };
            if let Found::Now(answer) = found {
                self.answers.push_back((ticket, answer));
            }
        }
    }

    /// Takes what programs have answered, and follows those that have handed their requests over.
    #[inline(never)]
    pub(super) fn act_for_programs(&mut self, shell: &mut Shell) {
        self.programs.act(shell);
        while let Some((ticket, answer)) = self.programs.next_answer() {
            let Waiting { serving, place, asked, .. } =
                self.waiting.remove(&ticket).expect("a request waits for each answer");
            let found = match (answer, asked) {
                (cgi::Answer::Redirect(target, interest), Some(asked)) => {
                    let by = By::Program(interest);
                    self.hand_over(shell, ticket, (serving, place), &asked, (&target, by))
                }
                (answer, _) => {
                    self.settle_refused(shell, ticket, (serving, place), of_program(answer))
                }
            };
            if let Found::Now(answer) = found {
                self.answers.push_back((ticket, answer));
            }
        }
    }

    /// Answers a request with the file to which a server has handed it over.
    fn send_file(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, place): (Rc<Serving>, Place),
        asked: Option<Box<Asked>>,
        server: Arc<Server>,
        over: HandOver,
    ) -> Found<Answer> {
        let page = page_of(&serving, place.site, &over.to)
            .filter(|page| !is_source(&serving, place.site, page));
        let (Some(asked), Some(page)) = (asked, page) else {
            self.proxy.refuse(shell, &server, &over.to);
            let outcome = Outcome::Error(Status::BadGateway);
            return self.settle_refused(shell, ticket, (serving, place), outcome);
        };
        let place = Place { route: Some(page.route), ..place };
        // Its body was for another route.
        let head = includes::bodiless(&asked.head.as_head());
        let head = &head.as_head();
        let request = &Request { head, ticket, origin: &asked.origin, is_again: true };
        if let Some(guard) = serving.guard(page.route)
            && let Err(refusal) = admit(shell, request, &serving, guard)
        {
            let outcome = Outcome::Refused(refusal);
            return self.settle_refused(shell, ticket, (serving, place), outcome);
        }
        let HandOver { to, fields } = over;
        let query = to.query().map(Into::into);
        let asked = asked_for(asked, &serving, &page, to.query());
        let over = Over { fields, query, named: Some((server, to)) };
        let tree = serving.tree(page.route).expect("a page is a file of its route");
        let found = match self.files.find(shell, tree, &page.path, ticket) {
            content::Found::Now(answer) => {
                let outcome = Outcome::Content(page.route, answer);
                self.settle_refused(shell, ticket, (serving, place), outcome)
            }
            content::Found::Later => {
                let waiting = Waiting::for_file(serving, place, page.route, Step::Fallback);
                self.waiting.insert(ticket, waiting);
                Found::Later(None)
            }
        };
        let found = self.go_on_to_page(shell, ticket, asked, found);
        self.handed_over_to(shell, ticket, found, over)
    }

    /// Completes what was found for a request that was handed over, or is looked for: a file, its page or a redirect.
    pub(super) fn handed_over_to(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        found: Found<Answer>,
        over: Over,
    ) -> Found<Answer> {
        match found {
            Found::Now(mut answer) => {
                let Over { fields, query, named } = over;
                if let Some((server, to)) = named
                    && answer.outcome.is_missing()
                {
                    self.proxy.note_missing(shell, &server, &to);
                }
                answer.outcome = match sent_on(&answer.serving, query.as_deref(), answer.outcome) {
                    file @ (Outcome::Content(_, content::Answer::Resource(_))
                    | Outcome::Page(_)) => {
                        Outcome::HandedOver(Box::new(HandedOver { fields, file }))
                    }
                    outcome => outcome,
                };
                Found::Now(answer)
            }
            Found::Later(search) => {
                if let Some(waiting) = self.waiting.get_mut(&ticket) {
                    waiting.over = Some(Box::new(over));
                } else if let Some(parsed) = self.parsed.get_mut(&ticket) {
                    parsed.over = Some(Box::new(over));
                }
                Found::Later(search)
            }
        }
    }

    /// Finds the answer for another path, as if the client had asked for that with `GET` (RFC 3875
    /// §6.2.2).
    fn hand_over(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, place): (Rc<Serving>, Place),
        asked: &Asked,
        (target, by): (&[u8], By),
    ) -> Found<Answer> {
        let count = asked.count + 1;
        if count > HAND_OVERS_MAX {
            match by {
                By::Program(_) => self.programs.note_hand_overs(shell, target),
                By::Script(_) => self.proxy.note_hand_overs(shell, target),
            }
            let outcome = Outcome::Error(Status::BadGateway);
            return self.settle_refused(shell, ticket, (serving, place), outcome);
        }
        let (path, query) = match target.iter().position(|&byte| byte == b'?') {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        let head = asked.head.as_head();
        let method = if head.method == Method::Head { Method::Head } else { Method::Get };
        let head = includes::bodiless(&head);
        let head = &head.as_head().with_target(method, http::Target::Origin { path, query });
        // It has been counted.
        let request = &Request { head, ticket, origin: &asked.origin, is_again: true };
        let site = place.site;
        let mut name = core::mem::take(&mut self.scratch);
        let found =
            match place_of(&serving, path, &mut name, |name| serving.inner_place(site, name)) {
                Ok(place) => self.go_on(shell, request, (serving, place), &name, (by, count)),
                Err(error) => {
                    let outcome = Outcome::Error(error.status());
                    self.settle_refused(shell, ticket, (serving, place), outcome)
                }
            };
        self.scratch = name;
        found
    }

    /// Finds the answer to a request that was handed over to this path.
    fn go_on(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        (serving, place): (Rc<Serving>, Place),
        path: &[u8],
        (by, count): (By, u32),
    ) -> Found<Answer> {
        let ticket = request.ticket;
        if is_hidden(&serving, place, path) {
            let outcome = Outcome::Error(Status::NotFound);
            return self.settle_refused(shell, ticket, (serving, place), outcome);
        }
        let Some(id) = place.route.filter(|id| serving.is_gateway(*id)) else {
            let page = place
                .route
                .and_then(|id| serving.page_at(id, path.get(serving.prefix(id).len()..)?));
            if page.is_some_and(|page| is_source(&serving, place.site, &page)) {
                let outcome = Outcome::Error(Status::NotFound);
                return self.settle_refused(shell, ticket, (serving, place), outcome);
            }
            let found = self.find_path(shell, request, serving, place, path);
            return self.handed_over_to(shell, ticket, found, Over::local(request));
        };
        if let Some(guard) = serving.guard(id)
            && let Err(refusal) = admit(shell, request, &serving, guard)
        {
            let outcome = Outcome::Refused(refusal);
            return self.settle_refused(shell, ticket, (serving, place), outcome);
        }
        if let Some(directory) = lacks_slash(&serving, place, path) {
            let found =
                Found::Now(Answer { serving, place, outcome: Outcome::Directory(directory) });
            return self.handed_over_to(shell, ticket, found, Over::local(request));
        }
        let (has_programs, has_scripts) =
            (serving.programs(id).is_some(), serving.scripts(id).is_some());
        match by {
            By::Program(interest) if has_programs => {
                let routed = Routed { serving, place, route: id, path };
                self.find_program(shell, request, routed, Some((interest, count)))
            }
            By::Script(mut held) if has_scripts => {
                held.count = count;
                let routed = Routed { serving, place, route: id, path };
                let found = self.find_script(shell, request, routed, Some(held));
                self.handed_over_to(shell, ticket, found, Over::local(request))
            }
            By::Program(_) => {
                let outcome = Outcome::Error(Status::NotFound);
                self.settle_refused(shell, ticket, (serving, place), outcome)
            }
            // The client can ask there itself.
            By::Script(_) => {
                let mut location = Vec::new();
                http::path::encode(path, &mut location);
                if let http::Target::Origin { query: Some(query), .. } = request.head.target {
                    location.push(b'?');
                    location.extend_from_slice(query);
                }
                let moved = Moved { status: Status::Found, location };
                let outcome = Outcome::Moved(Box::new(moved));
                Found::Now(Answer { serving, place, outcome })
            }
        }
    }
}

impl Over {
    /// The parts of an answer to a request that was handed over to another path.
    fn local(request: &Request<'_>) -> Self {
        let query = match request.head.target {
            http::Target::Origin { query, .. } => query.map(Into::into),
            http::Target::Asterisk | http::Target::Authority => None,
        };
        Self { fields: FieldSection::EMPTY, query, named: None }
    }
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

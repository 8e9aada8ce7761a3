//! Pages with directives. The file of a page is found like other files. An included path is found as if a client had
//! asked for this path.

use std::collections::VecDeque;
use std::rc::Rc;

use http::{Head, Method, Status, Target, path};
use ring::Key;

use super::Router;
use super::admit::client_of;
use super::advance::rules_of_page;
use super::answer::{Answer, Outcome};
use super::asked::Asked;
use super::destination::{clean_len, is_hidden, place_of};
use super::perform::Reply;
use super::script::file_at;
use super::state::{Event, Parsing};
use crate::includes::{
    self, Advance, Ask, Budget, Context, Lookup, Page, Problem, Source, Trouble,
};
use crate::serving::{self, Destination, Serving};
use crate::{Found, Handler as _, Keep, Request, Response, Ticket};
use ::includes::{Memory, Scope, Template};
use config::route::RouteId;
use content::{Kind, Resource};
use session::reason::Reason;
use session::request_id::RequestId;
use session::shell::{Complaint, Shell};
use session::standing::Standing;

impl Router {
    /// Finds the template of a file that may be a page.
    pub(super) fn parse(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        serving: &Serving,
        Parsing { route, resource, .. }: &Parsing<'_>,
    ) -> Reply {
        let rules = rules_of_page(serving, *route, resource).expect("it may be a page");
        let keeps = rules.policy.caching != sendfile::Caching::Never;
        Reply::Now(Event::Template(
            match self.pages.templates.find(shell, resource, keeps, ticket) {
                Lookup::Now(template) => Ok(template),
                Lookup::Later => return Reply::Later(None),
                Lookup::TooLarge => {
                    let path = String::from_utf8_lossy(&resource.path);
                    let most = includes::PAGE_BYTES_MAX;
                    let text = format!("/{path}: a page with includes has at most {most} bytes");
                    shell.complain(Complaint::Includes, &text);
                    Err(Status::InternalServerError)
                }
                Lookup::Unavailable => Err(Status::ServiceUnavailable),
            },
        ))
    }

    /// Makes a page of a file, and begins to look for its includes.
    pub(super) fn open_page(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, destination): (&Rc<Serving>, Destination),
        Parsing { asked, route, resource, .. }: &Parsing<'_>,
        template: Rc<Template>,
    ) -> Outcome {
        let rules = rules_of_page(serving, *route, resource).expect("it may be a page");
        let path = url_path_of(serving, *route, resource);
        let context = match includes::page_of(ticket) {
            Some(outer) => match self.inner_context(outer, ticket, asked, path) {
                Ok(context) => context,
                Err(trouble) => {
                    self.fail(shell, outer, ticket.request, trouble);
                    return Outcome::Error(Status::InternalServerError, Reason::Page);
                }
            },
            None => self.context(shell, asked, (serving, destination), path, modified(resource)),
        };
        let policy = rules.policy;
        let opened = context.and_then(|context| {
            self.pages.open(resource, |key, news| {
                let resource = Rc::clone(resource);
                Page::new((key, news), ticket, context, resource, policy, template)
            })
        });
        let Some((key, opened)) = opened else {
            return Outcome::Error(Status::ServiceUnavailable, Reason::Page);
        };
        if !asked.with(|request| request.head.method == Method::Head) {
            self.advance(shell, key);
            self.pages.wake(key);
        }
        Outcome::Page(opened)
    }

    /// The context of a page for which a client has asked.
    fn context(
        &self,
        shell: &Shell,
        asked: &Asked<'_>,
        (serving, destination): (&Rc<Serving>, Destination),
        path: Option<Vec<u8>>,
        modified: i64,
    ) -> Option<Context> {
        let path = path?;
        let memory = Rc::new(Memory::default());
        Some(asked.with(|request| Context {
            head: Rc::new(includes::stripped(request.head)),
            requested: request.head.target.to_text().into(),
            origin: Rc::new(request.origin.clone()),
            serving: Rc::clone(serving),
            site: destination.site,
            client: client_of(shell, request, serving),
            paths: Rc::new([path.into()]),
            modified,
            budget: Budget::new(Rc::clone(&memory)),
            scope: Scope::new(memory),
        }))
    }

    /// The context of a page that another page includes; `None` if the page is no longer wanted. After an index or a
    /// hand-over, its path may differ from the path in the other page.
    fn inner_context(
        &self,
        outer: Key,
        ticket: Ticket,
        asked: &Asked<'_>,
        path: Option<Vec<u8>>,
    ) -> Result<Option<Context>, Trouble> {
        let Some(outer) = self.pages.page(outer) else { return Ok(None) };
        let outer = outer.borrow();
        let Some(scope) = outer.scope_of(ticket.request) else { return Ok(None) };
        let Some(path) = path else { return Ok(None) };
        outer.may_include(&path)?;
        let mut paths = outer.context.paths.to_vec();
        paths.push(path.into());
        let head = Rc::new(asked.with(|request| request.head.to_owned()));
        Ok(Some(Context { paths: paths.into(), head, scope, ..outer.context.clone() }))
    }

    /// Puts the error message into a hole of a page, and reports the trouble.
    fn fail(&mut self, shell: &mut Shell, key: Key, hole: u32, trouble: Trouble) {
        let Some(page) = self.pages.page(key) else { return };
        let Some(problem) = page.borrow().problem(hole, trouble) else { return };
        page.borrow_mut().fill_with_error(hole);
        self.report(shell, &page.borrow().context, &problem);
    }

    /// Counts a fault of a page, and reports it.
    fn report(&mut self, shell: &mut Shell, context: &Context, problem: &Problem) {
        let stats = &shell.cx.stats;
        stats.includes_failed.add(1);
        stats.include_cycles.add(u64::from(problem.is_cycle()));
        let path = context.paths.last().map_or(&b""[..], |path| path);
        let path = String::from_utf8_lossy(&path::with_slashes(path, b"%2F")).into_owned();
        self.pages.lines.note_page(shell, &path, &problem.to_string());
    }

    /// Evaluates a page as far as its budget and its earlier includes permit, and looks for further includes.
    fn advance(&mut self, shell: &mut Shell, key: Key) {
        let Some(page) = self.pages.page(key) else { return };
        let context = page.borrow().context.clone();
        loop {
            if !self.pages.may_step(shell) {
                return page.borrow_mut().touch();
            }
            let next = page.borrow_mut().advance(shell.cx.unix);
            match next {
                Advance::Ask(Ask { hole, url, is_again }) => {
                    let admit = |path: &[u8]| match is_again {
                        true => page.borrow().may_include(path),
                        false => page.borrow().admit(path),
                    };
                    let ticket = includes::ticket_of(key, hole);
                    match self.find_included(shell, &context, ticket, &url, admit) {
                        Ok(Found::Now(answer)) => {
                            self.fill(shell, key, hole, &answer);
                        }
                        Ok(Found::Later(search)) => page.borrow_mut().search(hole, search),
                        Err(trouble) => self.fail(shell, key, hole, trouble),
                    }
                }
                Advance::Tell(problem) => self.report(shell, &context, &problem),
                Advance::More => {}
                Advance::Nothing => return,
            }
        }
    }

    /// Finds the answer for a URL that a page includes. `admit` says whether a page may include this path.
    fn find_included(
        &mut self,
        shell: &mut Shell,
        context: &Context,
        ticket: Ticket,
        url: &[u8],
        admit: impl FnOnce(&[u8]) -> Result<(), Trouble>,
    ) -> Result<Found<Answer>, Trouble> {
        let base = context.paths.last().map_or(&b""[..], |path| path);
        let (mut path, query) = includes::resolve(base, url);
        let mut name = core::mem::take(&mut self.scratch);
        let serving = Rc::clone(&context.serving);
        let find = |name: &[u8]| serving.inner_destination(context.site, name);
        let placed = place_of(&serving, &path, &mut name, find)
            .map_err(|error| Trouble::Status(error.status()))
            .and_then(|destination| {
                // The path is replaced by its clean path, to which a client would be redirected.
                if let Some(len) = clean_len(&serving, destination, &name) {
                    name.truncate(len);
                    path.clear();
                    path::encode(&name, &mut path);
                }
                admit(&name).map(|()| destination)
            });
        let found = placed.map(|destination| {
            shell.cx.stats.includes.add(1);
            let target = Target::Origin { path: &path, query: query.as_deref() };
            let head = context.head.as_head();
            let head = &head.with_target(Method::Get, target);
            // The client's own request was counted before.
            let (origin, standing) = (&context.origin, Standing::Counted);
            let request = &Request { head, ticket, origin, standing, is_next: true };
            if is_hidden(&serving, destination, &name) {
                let outcome = Outcome::Error(Status::NotFound, Reason::Dotfile);
                return Found::Now(Answer { serving, destination, outcome, user: None });
            }
            self.find_path(shell, request, serving, destination, &name)
        });
        self.scratch = name;
        found
    }

    /// Fills a hole of a page with the body of an answer, if the answer is a success.
    fn fill(&mut self, shell: &mut Shell, key: Key, hole: u32, answer: &Answer) {
        // The hole may have got the error message meanwhile.
        let Some(page) = self.pages.page(key).filter(|page| page.borrow().awaits(hole)) else {
            return;
        };
        let context = page.borrow().context.clone();
        let head = context.head.as_head();
        let mut response = self.response(&mut shell.cx, &head, answer);
        if response.reason.is_some() {
            self.note_include(shell, &page.borrow(), &head, &response);
        }
        let body = match response.outcome() {
            (Status::Ok, false) => Ok(response.take_body()),
            (Status::Ok, true) => Err(Trouble::Coded),
            (status, _) => Err(Trouble::Status(status)),
        };
        let source = match (&answer.outcome, answer.size().keep) {
            (Outcome::Program(_) | Outcome::Passed(_), _) => Source::Gateway,
            (_, Keep::Always) => Source::Unique,
            (_, Keep::IfSmall | Keep::Never) => Source::Repeatable,
        };
        let filled = body.and_then(|body| page.borrow_mut().fill(hole, body, source));
        if let Err(trouble) = filled {
            self.fail(shell, key, hole, trouble);
        }
    }

    /// Notes that an include has a response with a reason. It has the id of the client's request.
    #[cold]
    fn note_include(
        &mut self,
        shell: &Shell,
        page: &Page,
        head: &Head<'_>,
        response: &Response<'_>,
    ) {
        let Some(ticket) = self.pages.root(page.ticket) else { return };
        let id = || {
            let is_trusted = shell.cx.site_rules.trusts(page.context.origin.known_client());
            RequestId::of(head, is_trusted, shell.cx.id_seed, ticket)
        };
        self.note_error(&shell.cx, head, response, id);
    }

    /// Continues pages: fills holes whose answers were found, and looks for further answers.
    #[inline(never)]
    pub(super) fn act_for_pages(&mut self, shell: &mut Shell) {
        while let Some(key) = self.pages.next_in_line(shell) {
            self.advance(shell, key);
            self.pages.wake(key);
        }
        while let Some((ticket, template)) = self.pages.templates.next_done() {
            let template = template.ok_or(Status::ServiceUnavailable);
            self.resume(shell, ticket, Event::Template(template));
        }
        // A page may be complete with its last include, and be the answer for a hole itself.
        let is_included = |(ticket, _): &(Ticket, Answer)| includes::page_of(*ticket).is_some();
        while self.answers.iter().any(is_included) {
            let all = core::mem::take(&mut self.answers);
            let (included, others) = all.into_iter().partition::<VecDeque<_>, _>(is_included);
            self.answers = others;
            for (ticket, answer) in included {
                let Some(key) = includes::page_of(ticket) else { continue };
                self.fill(shell, key, ticket.request, &answer);
                self.advance(shell, key);
                self.pages.wake(key);
            }
        }
    }
}

/// The request for a file to which `asked` was handed over, as a client might send it: the file may be a page, or the
/// authorizer decides about the request.
pub(super) fn asked_for<'a>(
    asked: Asked<'a>,
    serving: &Serving,
    file: &serving::NamedFile,
    query: Option<&[u8]>,
    is_authorized: bool,
) -> Asked<'a> {
    if !is_authorized && !serving.route(file.route).has_includes() {
        return asked;
    }
    let mut path = Vec::new();
    path::encode(&[serving.prefix(file.route), &file.path].concat(), &mut path);
    asked.with(|request| {
        let head = request.head;
        let method = if head.method == Method::Head { Method::Head } else { Method::Get };
        let head = head.with_target(method, Target::Origin { path: &path, query }).to_owned();
        Asked::of(head, request)
    })
}

/// The decoded URL path of a file on its site.
fn url_path_of(serving: &Serving, route: RouteId, resource: &Resource) -> Option<Vec<u8>> {
    let file = file_at(serving, route, resource)?;
    Some([serving.prefix(route), &file].concat())
}

/// The time at which a file was modified.
fn modified(resource: &Resource) -> i64 {
    let Kind::File(files) = &resource.kind else { unreachable!("only files have directives") };
    files.plain.stat.mtime
}

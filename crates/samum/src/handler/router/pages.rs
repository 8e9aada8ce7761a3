//! Pages with directives: their files are found like others, and what they include as if a client had asked for it.

use std::collections::VecDeque;
use std::rc::Rc;

use http::{Method, Status, Target, path};
use ring::Key;

use super::admit::client_of;
use super::answer::{Answer, Outcome};
use super::place::{clean_len, is_hidden, place_of};
use super::script::file_at;
use super::steps::Step;
use super::{Asked, Parsed, Routed, Router, Waiting};
use crate::config::{FileRules, Files};
use crate::content::{self, FileSet, Kind, Resource};
use crate::handler::includes::{
    self, Advance, Ask, Budget, Context, Lookup, Page, Problem, Trouble,
};
use crate::handler::{Found, Handler as _, Request, Ticket};
use crate::includes::{Memory, Scope, Template};
use crate::serving::{self, Serving, TreeId};
use crate::shell::{Complaint, Shell};

impl Router {
    /// Finds the file of a path of a route that has pages, or leads to some.
    #[inline(never)]
    pub(super) fn find_page(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        routed: Routed<'_>,
        tree: TreeId,
    ) -> Found<Answer> {
        let Routed { serving, place, route: id, path } = routed;
        let Request { ticket, .. } = *request;
        let Some(rest) = path.get(serving.prefix(id).len()..) else {
            return Found::Now(Answer { serving, place, outcome: Outcome::Directory(id) });
        };
        let found = match self.files.find(shell, tree, rest, ticket) {
            content::Found::Now(answer) => {
                let outcome = Outcome::Content(id, answer);
                self.settle_asked(shell, request, (serving, place), path, outcome)
            }
            content::Found::Later => {
                let step = Step::first(&serving, place.site, path);
                self.waiting.insert(ticket, Waiting::for_file(serving, place, id, step));
                Found::Later(None)
            }
        };
        match found {
            Found::Now(answer) => self.make_page(shell, request, answer),
            found => self.go_on_to_page(shell, ticket, Asked::new(request, 0), found),
        }
    }

    /// Makes a page of the file that was found for a request at once, if it is one.
    pub(super) fn make_page(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        answer: Answer,
    ) -> Found<Answer> {
        if file_of(&answer).is_none() {
            return Found::Now(answer);
        }
        self.begin_page(shell, request.ticket, Asked::new(request, 0), answer)
    }

    /// Makes a page of the file that was found for a request, if it is one.
    pub(super) fn go_on_to_page(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        asked: Box<Asked>,
        found: Found<Answer>,
    ) -> Found<Answer> {
        match found {
            Found::Now(answer) => self.begin_page(shell, ticket, asked, answer),
            Found::Later(search) => {
                let waiting = self.waiting.get_mut(&ticket).expect("it waits for a file");
                waiting.asked = Some(asked);
                Found::Later(search)
            }
        }
    }

    /// Finds the template of a file, if it may be a page.
    fn begin_page(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        asked: Box<Asked>,
        answer: Answer,
    ) -> Found<Answer> {
        let Some((resource, _, rules)) = file_of(&answer) else { return Found::Now(answer) };
        let keeps = rules.policy.caching != sendfile::Caching::Never;
        let status = match self.pages.templates.find(shell, resource, keeps, ticket) {
            Lookup::Now(template) => {
                return self.open_page(shell, ticket, &asked, answer, template);
            }
            Lookup::Later => {
                self.parsed.insert(ticket, Parsed { asked, answer, over: None });
                return Found::Later(None);
            }
            Lookup::TooLarge => {
                let path = String::from_utf8_lossy(&resource.path);
                let most = includes::PAGE_BYTES_MAX;
                let text = format!("/{path}: a page with includes has at most {most} bytes");
                shell.complain(Complaint::Includes, &text);
                Status::InternalServerError
            }
            Lookup::Unavailable => Status::ServiceUnavailable,
        };
        Found::Now(Answer { outcome: Outcome::Error(status), ..answer })
    }

    /// Makes a page of a file, unless it has no directives, and begins to look for what it includes.
    fn open_page(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        asked: &Asked,
        answer: Answer,
        template: Rc<Template>,
    ) -> Found<Answer> {
        let Some((resource, files, rules)) = file_of(&answer).filter(|_| !template.is_plain())
        else {
            return Found::Now(answer);
        };
        let head = asked.head.as_head();
        let is_head = head.method == Method::Head;
        let context = match includes::page_of(ticket) {
            Some(outer) => match self.inner_context(outer, ticket, asked, &answer) {
                Ok(context) => context,
                Err(trouble) => {
                    self.fail(shell, outer, ticket.request, trouble);
                    let outcome = Outcome::Error(Status::InternalServerError);
                    return Found::Now(Answer { outcome, ..answer });
                }
            },
            None => self.context(shell, ticket, asked, &answer, files.plain.stat.mtime),
        };
        let policy = rules.policy;
        let opened = context.and_then(|context| {
            self.pages.open(resource, |key, news| {
                let resource = Rc::clone(resource);
                Page::new((key, news), ticket, context, resource, policy, template)
            })
        });
        let Some((key, opened)) = opened else {
            let outcome = Outcome::Error(Status::ServiceUnavailable);
            return Found::Now(Answer { outcome, ..answer });
        };
        if !is_head {
            self.advance(shell, key);
            self.pages.wake(key);
        }
        Found::Now(Answer { outcome: Outcome::Page(opened), ..answer })
    }

    /// The context of a page that a client has asked for.
    fn context(
        &self,
        shell: &Shell,
        ticket: Ticket,
        asked: &Asked,
        answer: &Answer,
        modified: i64,
    ) -> Option<Context> {
        let head = asked.head.as_head();
        let path = url_path_of(answer)?;
        let request = &Request { head: &head, ticket, origin: &asked.origin, is_again: true };
        let client = client_of(shell, request, &answer.serving);
        let memory = Rc::new(Memory::new());
        Some(Context {
            head: Rc::new(includes::stripped(&head)),
            origin: Rc::new(asked.origin.clone()),
            serving: Rc::clone(&answer.serving),
            site: answer.place.site,
            client: client.map(|client| client.ip()),
            paths: Rc::new([path.into()]),
            modified,
            budget: Budget::new(Rc::clone(&memory)),
            scope: Scope::new(memory),
        })
    }

    /// The context of a page that another one includes; `None` if that is not wanted any more. The page may have another path
    /// than the other one has asked for: that of an index, or one to which the request was handed over.
    fn inner_context(
        &self,
        outer: Key,
        ticket: Ticket,
        asked: &Asked,
        answer: &Answer,
    ) -> Result<Option<Context>, Trouble> {
        let Some(outer) = self.pages.page(outer) else { return Ok(None) };
        let outer = outer.borrow();
        let Some(scope) = outer.scope_of(ticket.request) else { return Ok(None) };
        let Some(path) = url_path_of(answer) else { return Ok(None) };
        outer.may_include(&path)?;
        let mut paths = outer.context.paths.to_vec();
        paths.push(path.into());
        let head = Rc::new(asked.head.clone());
        Ok(Some(Context { paths: paths.into(), head, scope, ..outer.context.clone() }))
    }

    /// Puts the error message into a hole of a page, and tells the operator.
    fn fail(&mut self, shell: &mut Shell, key: Key, hole: u32, trouble: Trouble) {
        let Some(page) = self.pages.page(key) else { return };
        let Some(problem) = page.borrow().problem(hole, trouble) else { return };
        page.borrow_mut().fill(hole, None);
        self.report(shell, &page.borrow().context, &problem);
    }

    /// Counts a fault of a page, and tells the operator.
    fn report(&mut self, shell: &mut Shell, context: &Context, problem: &Problem) {
        let stats = &mut shell.cx.stats;
        stats.includes_failed += 1;
        stats.include_cycles += u64::from(problem.is_cycle());
        let path = context.paths.last().map_or(&b""[..], |path| path);
        let path = String::from_utf8_lossy(&path::with_slashes(path, b"%2F")).into_owned();
        self.pages.lines.note_page(shell, &path, &problem.to_string());
    }

    /// Evaluates a page as far as it may now, and looks for what it includes.
    fn advance(&mut self, shell: &mut Shell, key: Key) {
        let Some(page) = self.pages.page(key) else { return };
        let context = page.borrow().context.clone();
        loop {
            if !self.pages.may_step(shell) {
                return page.borrow_mut().touch();
            }
            let next = page.borrow_mut().advance(shell.cx.unix);
            match next {
                Advance::Ask(Ask { hole, url }) => {
                    let admit = |path: &[u8]| page.borrow().admit(path);
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

    /// Finds the answer for a URL that a page includes. `admit` says whether a page may include one with a path.
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
        let find = |name: &[u8]| serving.inner_place(context.site, name);
        let placed = place_of(&serving, &path, &mut name, find)
            .map_err(|error| Trouble::Status(error.status()))
            .and_then(|place| {
                // A client would be sent there.
                if let Some(len) = clean_len(&serving, place, &name) {
                    name.truncate(len);
                    path.clear();
                    path::encode(&name, &mut path);
                }
                admit(&name).map(|()| place)
            });
        let found = placed.map(|place| {
            shell.cx.stats.includes += 1;
            let target = Target::Origin { path: &path, query: query.as_deref() };
            let head = context.head.as_head();
            let head = &head.with_target(Method::Get, target);
            // The request of the client has been counted.
            let request = &Request { head, ticket, origin: &context.origin, is_again: true };
            if is_hidden(&serving, place, &name) {
                let outcome = Outcome::Error(Status::NotFound);
                return Found::Now(Answer { serving, place, outcome });
            }
            self.find_path(shell, request, serving, place, &name)
        });
        self.scratch = name;
        found
    }

    /// Fills a hole of a page with the body of an answer, if that is a success.
    fn fill(&mut self, shell: &mut Shell, key: Key, hole: u32, answer: &Answer) {
        // The error message may stand there already.
        let Some(page) = self.pages.page(key).filter(|page| page.borrow().awaits(hole)) else {
            return;
        };
        let context = page.borrow().context.clone();
        let head = context.head.as_head();
        let mut response = self.response(&mut shell.cx, &head, answer);
        let body = match response.outcome() {
            (Status::Ok, false) => Ok(response.take_body()),
            (Status::Ok, true) => Err(Trouble::Coded),
            (status, _) => Err(Trouble::Status(status)),
        };
        match body {
            Ok(body) => {
                page.borrow_mut().fill(hole, Some(body));
            }
            Err(trouble) => self.fail(shell, key, hole, trouble),
        }
    }

    /// Goes on with pages: fills holes whose answers have been found, and looks for further ones.
    #[inline(never)]
    pub(super) fn act_for_pages(&mut self, shell: &mut Shell) {
        while let Some(key) = self.pages.next_in_line(shell) {
            self.advance(shell, key);
            self.pages.wake(key);
        }
        while let Some((ticket, template)) = self.pages.templates.next_done() {
            let parsed = self.parsed.remove(&ticket);
            let Parsed { asked, answer, over } = parsed.expect("a request waits for it");
            let mut found = match template {
                Some(template) => self.open_page(shell, ticket, &asked, answer, template),
                None => {
                    let outcome = Outcome::Error(Status::ServiceUnavailable);
                    Found::Now(Answer { outcome, ..answer })
                }
            };
            if let Some(over) = over {
                found = self.handed_over_to(shell, ticket, found, *over);
            }
            if let Found::Now(answer) = found {
                self.answers.push_back((ticket, answer));
            }
        }
        // A page that includes others may be complete with the last of them, and be the answer for a hole itself.
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

/// The request for a file to which `asked` was handed over, for a page: one that a client might have sent.
pub(super) fn asked_for(
    asked: Box<Asked>,
    serving: &Serving,
    page: &serving::Page,
    query: Option<&[u8]>,
) -> Box<Asked> {
    if !serving.route(page.route).has_includes() {
        return asked;
    }
    let mut path = Vec::new();
    path::encode(&[serving.prefix(page.route), &page.path].concat(), &mut path);
    let head = asked.head.as_head();
    let method = if head.method == Method::Head { Method::Head } else { Method::Get };
    let head = head.with_target(method, Target::Origin { path: &path, query }).to_owned();
    Box::new(Asked { head, ..*asked })
}

/// The file of an answer, if it may be a page, and the rules of its route.
fn file_of(answer: &Answer) -> Option<(&Rc<Resource>, &FileSet, &FileRules)> {
    let Outcome::Content(id, content::Answer::Resource(resource)) = &answer.outcome else {
        return None;
    };
    let Kind::File(files) = &resource.kind else { return None };
    let Files { rules, .. } = answer.serving.route(*id).action.files()?;
    let is_text = files.own_coding.is_none() && is_type(&rules.include_types, &files.content_type);
    let is_page = rules.includes && is_text;
    is_page.then_some((resource, files, rules))
}

/// The path of the file of an answer as a URL of its site has it, decoded.
fn url_path_of(answer: &Answer) -> Option<Vec<u8>> {
    let Outcome::Content(id, content::Answer::Resource(resource)) = &answer.outcome else {
        return None;
    };
    let file = file_at(&answer.serving, *id, resource)?;
    Some([answer.serving.prefix(*id), &file].concat())
}

/// Returns whether files of a media type are pages.
fn is_type(types: &[String], content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim_ascii();
    types.iter().any(|one| one.eq_ignore_ascii_case(essence))
}

//! The handler of the server: finds the route of each request, and does what the route says.

mod pages;
mod script;
mod scripts;
mod steps;

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use http::path::{Normal, PathError};
use http::{FieldSection, Head, HeadBuf, Method, Reject, ResponseHead, Status, Target, path};
use ring::{Completion, Fd};

use super::cgi::{self, Programs};
use super::files::{self, Files, bare};
use super::gateway::body::Wish;
use super::includes::{self, Pages};
use super::page::{self, ALLOW, ALLOW_REDIRECTED};
use super::proxy::request::Forwarding;
use super::proxy::response::HandOver;
use super::proxy::wire::Wire;
use super::proxy::{self, Held, Proxy};
use super::{AnswerSize, Consumer, Found, Handler, Interim, Request, Response, Ticket, metrics};
use crate::config::{Action, Address};
use crate::content::{self, Kind};
use crate::context::Context;
use crate::forwarded::Conflict;
use crate::guard::{Guard, Refusal};
use crate::metrics::Metrics;
use crate::network::Origin;
use crate::programs::environment::Circumstances;
use crate::route::RouteId;
use crate::serving::{Page, Place, RouteEntry, Served, Serving, Snapshot, Succession, TreeId};
use crate::shell::{Complaint, Shell, kind};
use crate::site::SiteId;
use crate::upstream::{Server, Upstream};
use crate::{fields, redirect};
use script::is_source;
use steps::{Paged, Step};

/// Programs that may hand one request over, one after the other.
const HAND_OVERS_MAX: u32 = 10;

/// The handler of the server.
#[derive(Debug)]
pub struct Router {
    files: Files,
    programs: Programs,
    proxy: Proxy,
    pages: Pages,
    /// The servings before this one, the oldest first, and their trees that the next one does not have.
    /// Requests that have begun with one of them may still ask for its files.
    before: VecDeque<(Rc<Serving>, Vec<TreeId>)>,
    /// The requests whose files are being looked for, or whose programs run.
    waiting: HashMap<Ticket, Waiting, RandomState>,
    /// The requests whose pages are being parsed, and their files.
    parsed: HashMap<Ticket, (Box<Asked>, Answer), RandomState>,
    /// The answers of requests that had to wait.
    answers: VecDeque<(Ticket, Answer)>,
    /// What the guard of its route said to the request whose body was offered last.
    admitted: Option<(Ticket, Result<(), Refusal>)>,
    /// Paths that are not in their normal form are normalized here.
    scratch: Vec<u8>,
    metrics: Arc<Metrics>,
}

/// A request whose file is being looked for, or whose program runs.
#[derive(Debug)]
struct Waiting {
    serving: Rc<Serving>,
    place: Place,
    /// The route that has the answer.
    route: RouteId,
    /// The request itself, for a program that hands it over.
    asked: Option<Box<Asked>>,
    /// The step of the search for a file.
    step: Step,
    /// The fields of a server that has handed the request over to the file.
    fields: Option<Box<FieldSection<'static>>>,
}

/// A request that can be handed over.
#[derive(Debug)]
struct Asked {
    head: HeadBuf,
    origin: Origin,
    /// The number of times that it was handed over.
    count: u32,
    /// What else is held back of a request that is perhaps for a script.
    held: Option<Held>,
}

/// The answer to a request: its place, and what is there.
#[derive(Debug)]
pub struct Answer {
    serving: Rc<Serving>,
    place: Place,
    what: What,
}

/// The thing that a request is answered with.
#[derive(Debug)]
enum What {
    /// A file or a directory of this route, or a reason why there is none.
    Content(RouteId, content::Answer),
    /// A file with directives.
    Page(includes::Opened),
    /// The answer of a program, or a reason why there is none.
    Program(cgi::Answer),
    /// The answer of another server, or a reason why there is none.
    Passed(proxy::Answer),
    /// The file to which a program or a server has handed the request over.
    HandedOver(Box<HandedOver>),
    /// The path of this route with a slash at its end.
    Directory(RouteId),
    /// Another address.
    Moved(Box<Moved>),
    /// The list of allowed methods.
    Options,
    /// The numbers of all workers.
    Metrics,
    /// A page for this status.
    Error(Status),
    /// A refusal by the conditions of the route.
    Refused(Refusal),
    /// An error, with a file as its page.
    Paged(Box<Paged>),
}

/// A file in the place of an answer.
#[derive(Debug)]
struct HandedOver {
    /// The fields that the client gets in the place of those of the file.
    fields: FieldSection<'static>,
    file: What,
}

/// Another address.
#[derive(Debug)]
struct Moved {
    status: Status,
    location: Vec<u8>,
}

impl Handler for Router {
    type Answer = Answer;

    fn consumer(&mut self, shell: &mut Shell, request: &Request<'_>) -> Option<Box<dyn Consumer>> {
        let Target::Origin { path, .. } = request.head.target else { return None };
        let (serving, site) = shell.cx.serving_of(request.origin.listener, request.head);
        let route = place_of(&serving, site, path, &mut self.scratch).ok()?.route?;
        let (is_passed_on, is_program) =
            (serving.upstream(route).is_some(), serving.programs(route).is_some());
        if !is_passed_on && !is_program {
            return None;
        }
        // A body that is refused takes no place.
        if let Some(guard) = serving.guard(route) {
            let admitted = admit(shell, request, &serving, guard);
            self.admitted = Some((request.ticket, admitted));
            admitted.ok()?;
        }
        if is_passed_on {
            return self.proxy.consumer(request, serving.scripts(route).is_some());
        }
        self.programs.consumer(request)
    }

    #[inline]
    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Answer> {
        let (serving, site) = shell.cx.serving_of(request.origin.listener, request.head);
        match request.head.target {
            Target::Origin { path, .. } if path::is_normal(path) => {
                let place = serving.place(site, path);
                self.find_path(shell, request, serving, place, path)
            }
            Target::Origin { path, .. } => self.find_unusual(shell, request, serving, site, path),
            Target::Asterisk | Target::Authority => {
                let what = match &request.head.method {
                    Method::Options => What::Options,
                    Method::Get | Method::Head => What::Error(Status::BadRequest),
                    method => What::Error(refusal_of(method)),
                };
                let place = Place { site, route: None };
                Found::Now(Answer { serving, place, what })
            }
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        match &answer.what {
            What::Content(_, content) => {
                let (shared, holds_files) = content.holds();
                AnswerSize { shared, holds_files, unique: false }
            }
            What::Page(page) => includes::size(page),
            What::Program(answer) => Programs::size(answer),
            What::Passed(answer) => Proxy::size(answer),
            // To find it again would be to ask again.
            What::HandedOver(over) => {
                let What::Content(_, content) = &over.file else { return AnswerSize::default() };
                let (shared, holds_files) = content.holds();
                AnswerSize { shared, holds_files, unique: true }
            }
            What::Paged(paged) => {
                let (shared, holds_files) = paged.page.holds();
                AnswerSize { shared, holds_files, unique: false }
            }
            What::Directory(_)
            | What::Moved(_)
            | What::Options
            | What::Metrics
            | What::Error(_)
            | What::Refused(_) => AnswerSize::default(),
        }
    }

    #[inline]
    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        let Answer { serving, place, what } = answer;
        let mut response = self.of_what(cx, head, serving, *place, what);
        let is_file = matches!(
            what,
            What::Content(_, content::Answer::Resource(_)) | What::Page(_) | What::HandedOver(_)
        );
        if !is_file {
            add_fields(head, serving, *place, &mut response);
        }
        let terms = &mut response.terms;
        terms.recording = serving.recording(place.site);
        terms.is_from_disk =
            matches!(what, What::Content(..) | What::Page(_) | What::HandedOver(_));
        if let Some(id) = place.route {
            let entry = serving.entry(id);
            terms.server_timing = entry.route.server_timing;
            terms.rate = entry.guard.as_ref().and_then(|guard| guard.rate);
        }
        response
    }

    fn unavailable(&self, answer: &Answer) -> Option<Answer> {
        let (serving, what) = (Rc::clone(&answer.serving), What::Error(Status::ServiceUnavailable));
        Some(Answer { serving, place: answer.place, what })
    }

    #[inline]
    fn act(&mut self, shell: &mut Shell) {
        // Before the programs and servers that are to learn of it.
        if !self.pages.is_idle() {
            self.pages.drop_left();
        }
        if !self.programs.is_idle() {
            self.act_for_programs(shell);
        }
        if !self.proxy.is_idle() {
            self.act_for_proxy(shell);
        }
        if !self.pages.is_idle() {
            self.act_for_pages(shell);
        }
        if !self.before.is_empty() {
            self.remove_trees(shell);
        }
    }

    #[inline]
    fn has_turn(&self) -> bool {
        self.proxy.has_turn()
    }

    #[inline]
    fn may_have_news(&self) -> bool {
        !self.answers.is_empty()
            || !self.before.is_empty()
            || self.programs.may_have_news()
            || self.proxy.may_have_news()
            || self.pages.may_have_news()
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        match completion.token & kind::MASK {
            kind::CGI => self.programs.handle(shell, &completion),
            kind::LINK | kind::LINK_WRITABLE => self.proxy.handle(shell, completion),
            kind::SPOOL => self.proxy.handle_spool(shell, completion),
            kind::CHECK | kind::CHECK_WRITABLE => self.proxy.handle_check(shell, completion),
            kind::PAGE => self.pages.handle(shell, completion),
            kind::WAKE => {
                self.programs.handle_wake(shell);
                self.files.handle(shell, completion);
            }
            _ => self.files.handle(shell, completion),
        }
        while let Some((ticket, content)) = self.files.next_answer() {
            let waiting = self.waiting.remove(&ticket).expect("a request waits for each answer");
            let what = What::Content(waiting.route, content);
            let Waiting { serving, place, step, asked, fields, .. } = waiting;
            let mut found = self.settle(shell, ticket, (serving, place), step, what);
            if let Some(fields) = fields {
                found = self.with_fields(ticket, found, *fields);
            } else if let Some(asked) = asked {
                found = if asked.held.is_some() {
                    self.run_later(shell, ticket, *asked, found)
                } else {
                    self.go_on_to_page(shell, ticket, asked, found)
                };
            }
            if let Found::Now(answer) = found {
                self.answers.push_back((ticket, answer));
            }
        }
    }

    fn next_interim(&mut self) -> Option<(Ticket, Interim)> {
        loop {
            let (ticket, interim) = self.proxy.next_interim()?;
            // A page has one head, which is not that of a server.
            if includes::page_of(ticket).is_none() {
                return Some((ticket, interim));
            }
        }
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        loop {
            let (ticket, answer) = self.answers.pop_front()?;
            // Other answers are for pages that are not wanted any more.
            if includes::page_of(ticket).is_none() {
                return Some((ticket, answer));
            }
        }
    }

    fn next_woken(&mut self) -> Option<Ticket> {
        loop {
            let ticket = self.programs.next_woken();
            let ticket = ticket.or_else(|| self.proxy.next_woken());
            let ticket = ticket.or_else(|| self.pages.next_woken())?;
            if let Some(ticket) = self.pages.root(ticket) {
                return Some(ticket);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.programs.is_idle() && self.proxy.is_idle()
    }

    fn end(&mut self) {
        self.programs.kill_all();
    }
}

impl Router {
    /// Serves the snapshot of the worker from its directories, which are open, in the order of
    /// [`Snapshot::roots`](crate::serving::Snapshot::roots). At most `descriptors_max` files stay open.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If there is not one open directory for each root.
    pub fn new(roots: &[Fd], descriptors_max: usize, shell: &mut Shell) -> io::Result<Self> {
        let snapshot = Arc::clone(&shell.cx.serving.snapshot);
        let recordings = shell.recordings(&snapshot);
        let (files, serving) = Files::new(snapshot, roots, descriptors_max, shell)?;
        shell.cx.serving = Rc::new(serving.recorded(recordings));
        let metrics = Arc::clone(shell.meters.metrics());
        let mut proxy = Proxy::default();
        let serving = Rc::clone(&shell.cx.serving);
        proxy.watch(shell, serving.snapshot.upstreams());
        Ok(Self {
            files,
            before: VecDeque::new(),
            programs: Programs::default(),
            proxy,
            pages: Pages::default(),
            waiting: HashMap::default(),
            parsed: HashMap::default(),
            answers: VecDeque::new(),
            admitted: None,
            scratch: Vec::new(),
            metrics,
        })
    }

    /// Serves another snapshot from now on. `roots` has the open directories of the trees that are not kept,
    /// by their indices among [`Snapshot::roots`]. Requests that have begun are answered as before.
    pub(crate) fn replace(
        &mut self,
        shell: &mut Shell,
        snapshot: Arc<Snapshot>,
        succession: &Succession,
        roots: &HashMap<usize, Fd>,
    ) {
        let before = Rc::clone(&shell.cx.serving);
        let recordings = shell.recordings(&snapshot);
        let serving = self.files.successor(&before, snapshot, succession, roots);
        let serving = Rc::new(serving.recorded(recordings));
        self.proxy.watch(shell, serving.snapshot.upstreams());
        shell.cx.replace(serving);
        let gone = succession.gone().iter().map(|index| before.trees()[*index]).collect();
        self.before.push_back((before, gone));
    }

    /// Removes the trees of servings that no request has any more.
    fn remove_trees(&mut self, shell: &mut Shell) {
        while let Some((serving, _)) = self.before.front()
            && Rc::strong_count(serving) == 1
            && let Some((_, gone)) = self.before.pop_front()
        {
            for tree in gone {
                self.files.remove_tree(shell, tree);
            }
        }
    }

    /// Serves a root directory from another one from now on, or answers 503 if there is none. Responses
    /// that have begun are completed from the old one.
    pub(crate) fn replace_root(&mut self, shell: &mut Shell, root: usize, directory: Option<&Fd>) {
        let serving = Rc::clone(&shell.cx.serving);
        for tree in serving.trees_of(root) {
            self.files.replace_root(shell, tree, directory.cloned());
        }
    }

    /// Finds the answer to a request for a path that is in its normal form.
    // Each request comes here, and a call would cost 30 instructions.
    #[inline(always)]
    fn find_path(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        place: Place,
        path: &[u8],
    ) -> Found<Answer> {
        let Some(id) = place.route else {
            let what = What::Error(Status::NotFound);
            return self.settle_asked(shell, request, (serving, place), path, what);
        };
        let entry = serving.entry(id);
        if let Some(guard) = &entry.guard
            && let Err(refusal) = self.admit(shell, request, &serving, guard)
        {
            let what = What::Refused(refusal);
            return self.settle_refused(shell, request.ticket, (serving, place), what);
        }
        let what = match (&request.head.method, &entry.served) {
            (Method::Get | Method::Head, Served::Files { tree, has_pages }) => {
                let tree = serving.tree_at(*tree);
                if *has_pages {
                    return self.find_page(shell, request, (serving, place), (id, tree), path);
                }
                match path.get(entry.prefix.len()..) {
                    Some(rest) => match self.files.find(shell, tree, rest, request.ticket) {
                        content::Found::Now(answer @ content::Answer::Resource(_)) => {
                            What::Content(id, answer)
                        }
                        content::Found::Now(content::Answer::Unclean) => {
                            let what = cleaned(request, &serving, id, rest);
                            return Found::Now(Answer { serving, place, what });
                        }
                        content::Found::Now(answer) => {
                            let what = What::Content(id, answer);
                            return self.settle_asked(shell, request, (serving, place), path, what);
                        }
                        content::Found::Later => {
                            let step = Step::first(&serving, place.site, path);
                            let waiting = Waiting::for_file(serving, place, id, step);
                            self.waiting.insert(request.ticket, waiting);
                            return Found::Later(None);
                        }
                    },
                    None => What::Directory(id),
                }
            }
            (_, Served::Programs(_)) => {
                return self.find_program(shell, request, serving, place, id, path, None);
            }
            (_, Served::Scripts { .. }) => {
                return self.find_script(shell, request, serving, place, id, path);
            }
            (_, Served::Proxy(_)) => {
                return self.pass_on(shell, request, serving, place, id, path);
            }
            (Method::Get | Method::Head, Served::Metrics) => What::Metrics,
            (Method::Options, _) => What::Options,
            (method, Served::Redirect) if method.is_known() => {
                redirected(shell, request, &serving, id, path)
            }
            (method, _) => What::Error(refusal_of(method)),
        };
        if let What::Error(_) = what {
            return self.settle_refused(shell, request.ticket, (serving, place), what);
        }
        Found::Now(Answer { serving, place, what })
    }

    /// Lets a request pass or refuses it, by the conditions of its route. They are asked once for a request,
    /// which may have been when its body was offered.
    #[inline(never)]
    fn admit(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Serving,
        guard: &Guard,
    ) -> Result<(), Refusal> {
        match self.admitted.take_if(|(ticket, _)| *ticket == request.ticket) {
            Some((_, admitted)) => admitted,
            None => admit(shell, request, serving, guard),
        }
    }

    /// Finds the answer to a request for a path of a route with programs. `handed_over`: by an earlier
    /// program, for which time.
    #[inline(never)]
    fn find_program(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        place: Place,
        id: RouteId,
        path: &[u8],
        handed_over: Option<(Rc<Wish>, u32)>,
    ) -> Found<Answer> {
        let (wish, count) = handed_over.unzip();
        let (Some(directory), Some(rest)) =
            (serving.programs(id), path.get(serving.prefix(id).len()..))
        else {
            let what = What::Error(Status::NotFound);
            return self.settle_refused(shell, request.ticket, (serving, place), what);
        };
        let circumstances = circumstances(shell, request, &serving);
        let asked = Asked::new(request, count.unwrap_or(0));
        let memory = asked.memory();
        let half_close = serving.route(id).half_close;
        let found = self.programs.find(
            shell,
            request,
            directory,
            rest,
            &circumstances,
            wish,
            memory,
            half_close,
        );
        match found {
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
    fn pass_on(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        place: Place,
        id: RouteId,
        path: &[u8],
    ) -> Found<Answer> {
        let prefix = serving.prefix(id);
        let (Some(upstream), true) = (serving.upstream(id), path.len() >= prefix.len()) else {
            // The path of the route without the slash at its end.
            return Found::Now(Answer { serving, place, what: What::Directory(id) });
        };
        let upstream = Arc::clone(upstream);
        let peer = request.origin.client_address(&shell.ring);
        let proxies = serving.snapshot.proxies();
        let Ok(client) = proxies.client_of(peer, request.head) else {
            shell.cx.stats.forged_clients += 1;
            let what = What::Refused(Refusal::Conflict);
            return self.settle_refused(shell, request.ticket, (serving, place), what);
        };
        let how = Forwarding {
            prefix,
            authority: b"localhost",
            peer,
            client,
            is_trusted: proxies.trusts(peer),
        };
        let wire = Wire::http(request.head, &how, self.proxy.text());
        let affinity = upstream.key(client, path);
        let upstream = (&upstream, affinity);
        self.exchange(shell, request, (serving, place), id, upstream, wire, None)
    }

    /// Has a server of a route answer a request, which was perhaps held back.
    fn exchange(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        (serving, place): (Rc<Serving>, Place),
        id: RouteId,
        (upstream, affinity): (&Arc<Upstream>, u64),
        wire: Wire,
        held: Option<Held>,
    ) -> Found<Answer> {
        let asked = serving.has_files(place.site).then(|| Asked::new(request, 0));
        let memory = asked.as_ref().map_or(0, |asked| asked.memory());
        let half_close = serving.route(id).half_close;
        let found =
            self.proxy.find(shell, request, upstream, affinity, wire, held, memory, half_close);
        match found {
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
    fn act_for_proxy(&mut self, shell: &mut Shell) {
        self.proxy.act(shell);
        while let Some((ticket, answer)) = self.proxy.next_answer() {
            let Waiting { serving, place, asked, .. } =
                self.waiting.remove(&ticket).expect("a request waits for each answer");
            let found = match answer {
                proxy::Answer::HandOver(over, server) => {
                    self.send_file(shell, ticket, (serving, place), asked, &server, *over)
                }
                answer => self.settle_refused(shell, ticket, (serving, place), of_proxy(answer)),
            };
            if let Found::Now(answer) = found {
                self.answers.push_back((ticket, answer));
            }
        }
    }

    /// Takes what programs have answered, and follows those that have handed their requests over.
    #[inline(never)]
    fn act_for_programs(&mut self, shell: &mut Shell) {
        self.programs.act(shell);
        while let Some((ticket, answer)) = self.programs.next_answer() {
            let Waiting { serving, place, asked, .. } =
                self.waiting.remove(&ticket).expect("a request waits for each answer");
            let found = match (answer, asked) {
                (cgi::Answer::Redirect(target, wish), Some(asked)) => {
                    self.hand_over(shell, ticket, serving, place, &asked, &target, wish)
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
        server: &Server,
        over: HandOver,
    ) -> Found<Answer> {
        let page = page_of(&serving, place.site, &over.to)
            .filter(|page| !is_source(&serving, place.site, page));
        let (Some(asked), Some(page)) = (asked, page) else {
            self.proxy.refuse(shell, server, &over);
            let what = What::Error(Status::BadGateway);
            return self.settle_refused(shell, ticket, (serving, place), what);
        };
        let place = Place { route: Some(page.route), ..place };
        let head = &asked.head.as_head();
        let request = &Request { head, ticket, origin: &asked.origin, is_again: true };
        if let Some(guard) = serving.guard(page.route)
            && let Err(refusal) = admit(shell, request, &serving, guard)
        {
            let what = What::Refused(refusal);
            return self.settle_refused(shell, ticket, (serving, place), what);
        }
        let tree = serving.tree(page.route).expect("a page is a file of its route");
        let found = match self.files.find(shell, tree, &page.path, ticket) {
            content::Found::Now(answer) => {
                let what = What::Content(page.route, answer);
                self.settle_refused(shell, ticket, (serving, place), what)
            }
            content::Found::Later => {
                let waiting = Waiting::for_file(serving, place, page.route, Step::Fallback);
                self.waiting.insert(ticket, waiting);
                Found::Later(None)
            }
        };
        self.with_fields(ticket, found, over.fields)
    }

    /// The client gets these fields with the file that was found, or is looked for.
    fn with_fields(
        &mut self,
        ticket: Ticket,
        found: Found<Answer>,
        fields: FieldSection<'static>,
    ) -> Found<Answer> {
        match found {
            Found::Now(mut answer) => {
                if matches!(answer.what, What::Content(_, content::Answer::Resource(_))) {
                    let file = answer.what;
                    answer.what = What::HandedOver(Box::new(HandedOver { fields, file }));
                }
                Found::Now(answer)
            }
            Found::Later(search) => {
                if let Some(waiting) = self.waiting.get_mut(&ticket) {
                    waiting.fields = Some(Box::new(fields));
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
        serving: Rc<Serving>,
        place: Place,
        asked: &Asked,
        target: &[u8],
        wish: Rc<Wish>,
    ) -> Found<Answer> {
        let count = asked.count + 1;
        if count > HAND_OVERS_MAX {
            let path = String::from_utf8_lossy(target);
            shell.note(&format!(
                "{path}: programs have handed a request over {HAND_OVERS_MAX} times"
            ));
            return Found::Now(Answer { serving, place, what: What::Error(Status::BadGateway) });
        }
        let (path, query) = match target.iter().position(|&byte| byte == b'?') {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        let head = asked.head.as_head();
        let method = if head.method == Method::Head { Method::Head } else { Method::Get };
        let head = &head.with_target(method, Target::Origin { path, query });
        // It has been counted.
        let request = &Request { head, ticket, origin: &asked.origin, is_again: true };
        let site = place.site;
        let mut name = core::mem::take(&mut self.scratch);
        let found = match normalize(path, &mut name) {
            Ok(()) => {
                let place = serving.inner_place(site, &name);
                let id = place.route.filter(|id| serving.programs(*id).is_some());
                let guard = id.and_then(|id| serving.guard(id));
                let is_passed_on = place.route.is_some_and(|id| serving.upstream(id).is_some());
                match (id, guard.map_or(Ok(()), |guard| admit(shell, request, &serving, guard))) {
                    (None, _) if is_passed_on || is_hidden(&serving, place, &name) => {
                        Found::Now(Answer { serving, place, what: What::Error(Status::NotFound) })
                    }
                    (None, _) => {
                        let found = self.find_path(shell, request, serving, place, &name);
                        self.with_fields(ticket, found, FieldSection::EMPTY)
                    }
                    (Some(_), Err(refusal)) => {
                        Found::Now(Answer { serving, place, what: What::Refused(refusal) })
                    }
                    (Some(id), Ok(())) => {
                        let handed_over = Some((wish, count));
                        self.find_program(shell, request, serving, place, id, &name, handed_over)
                    }
                }
            }
            Err(error) => Found::Now(Answer { serving, place, what: What::Error(error.status()) }),
        };
        self.scratch = name;
        found
    }

    /// Finds the answer to a request for a path that is not in its normal form.
    #[inline(never)]
    fn find_unusual(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        site: SiteId,
        url_path: &[u8],
    ) -> Found<Answer> {
        let mut name = core::mem::take(&mut self.scratch);
        let found = match place_of(&serving, site, url_path, &mut name) {
            Ok(place) => {
                if is_hidden(&serving, place, &name) {
                    let guard = place.route.and_then(|id| serving.guard(id));
                    let admitted =
                        guard.map_or(Ok(()), |guard| self.admit(shell, request, &serving, guard));
                    let what =
                        admitted.map_or_else(What::Refused, |()| What::Error(Status::NotFound));
                    self.settle_refused(shell, request.ticket, (serving, place), what)
                } else {
                    self.find_path(shell, request, serving, place, &name)
                }
            }
            Err(error) => {
                let place = Place { site, route: None };
                Found::Now(Answer { serving, place, what: What::Error(error.status()) })
            }
        };
        self.scratch = name;
        found
    }

    /// Makes the response that an answer comes to, but for the fields that its route demands.
    #[inline(always)]
    fn of_what<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        place: Place,
        what: &'a What,
    ) -> Response<'a> {
        match what {
            What::Content(id, content) => {
                let RouteEntry { route, prefix, fields, .. } = serving.entry(*id);
                let Some(files) = route.action.files() else {
                    unreachable!("content is of a route with files")
                };
                files::response(cx, head, prefix, files.rules.policy, fields, content)
            }
            What::Page(page) => includes::response(page),
            What::Program(answer) => cgi::response(head, answer),
            What::Passed(answer) => proxy::response(answer, cx.unix),
            What::HandedOver(over) => self.handed_over(cx, head, serving, place, over),
            What::Directory(id) => files::redirect(head, serving.prefix(*id), b""),
            What::Moved(moved) => page::moved(ResponseHead {
                location: Some((&moved.location[..]).into()),
                ..bare(moved.status)
            }),
            What::Options => {
                let is_moved = place.route.is_some_and(|id| leads_elsewhere(serving, id));
                let allow = if is_moved { ALLOW_REDIRECTED } else { ALLOW };
                let allow = Some(allow.into());
                Response::bare(ResponseHead { allow, ..bare(Status::NoContent) })
            }
            What::Metrics => {
                metrics::response(&self.metrics, &serving.snapshot, cx.now, bare(Status::Ok))
            }
            What::Error(status) => page::error(bare(*status)),
            What::Refused(refusal) => refused(*refusal),
            What::Paged(paged) => self.paged(cx, head, serving, place, paged),
        }
    }

    /// Makes the response of an error whose page is a file.
    #[inline(never)]
    fn paged<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        place: Place,
        paged: &'a Paged,
    ) -> Response<'a> {
        let mut response = self.of_inner(cx, head, serving, place, &paged.error);
        if let content::Answer::Resource(resource) = &paged.page
            && let Kind::File(files) = &resource.kind
        {
            files::dress(head, files, &mut response);
        }
        response
    }

    /// Makes the response of what is within another thing: of an error, with the page of the server, or of a
    /// file.
    #[inline(never)]
    fn of_inner<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        place: Place,
        inner: &'a What,
    ) -> Response<'a> {
        self.of_what(cx, head, serving, place, inner)
    }

    /// Makes the response of a file with the fields of the server that has handed its request over.
    #[inline(never)]
    fn handed_over<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        place: Place,
        over: &'a HandedOver,
    ) -> Response<'a> {
        // Whatever was asked for, a file is sent.
        let method = if head.method == Method::Head { Method::Head } else { Method::Get };
        let head = &head.with_target(method, head.target);
        let mut response = self.of_inner(cx, head, serving, place, &over.file);
        fields::take_over(&over.fields, &mut response.made().head);
        response
    }
}

impl Waiting {
    /// A request whose file is being looked for.
    const fn for_file(serving: Rc<Serving>, place: Place, route: RouteId, step: Step) -> Self {
        Self { serving, place, route, asked: None, step, fields: None }
    }
}

impl Asked {
    fn new(request: &Request<'_>, count: u32) -> Box<Self> {
        let (head, origin) = (request.head.to_owned(), request.origin.clone());
        Box::new(Self { head, origin, count, held: None })
    }

    /// Bytes of memory that it keeps.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.head.memory()
    }
}

/// The file of a site to which a server has handed a request over.
fn page_of(serving: &Serving, site: SiteId, to: &proxy::response::Target) -> Option<Page> {
    let path = match to {
        proxy::response::Target::Path(path) | proxy::response::Target::Local(path) => path,
        proxy::response::Target::File(path) => return serving.page_of_file(site, path),
    };
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let mut name = Vec::new();
    normalize(path, &mut name).ok()?;
    let place = serving.inner_place(site, &name);
    let route = place.route.filter(|_| !is_hidden(serving, place, &name))?;
    serving.page_at(route, name.get(serving.prefix(route).len()..)?)
}

/// Changes the fields of a response as its route demands.
#[inline(never)]
fn add_fields(head: &Head<'_>, serving: &Serving, place: Place, response: &mut Response<'_>) {
    let Some(rules) = place.route.map(|id| serving.fields(id)).filter(|rules| !rules.is_empty())
    else {
        return;
    };
    let Target::Origin { path, .. } = head.target else { return };
    let mut name = Vec::new();
    if name_of(path, &mut name).is_ok() {
        fields::apply(&fields::matching(rules, &[&name]), &mut response.made().head);
    }
}

/// Returns whether a path has a name that begins with a dot, and its route serves no such files.
fn is_hidden(serving: &Serving, place: Place, path: &[u8]) -> bool {
    let Some(id) = place.route else { return false };
    let Some(files) = serving.route(id).action.files() else { return false };
    let prefix = serving.prefix(id);
    let mut names = path.get(prefix.len()..).unwrap_or_default().split(|byte| *byte == b'/');
    // This directory is for the public (RFC 8615).
    let first = names.next().filter(|name| prefix != b"/" || *name != b".well-known");
    !files.rules.dotfiles && first.into_iter().chain(names).any(|name| name.starts_with(b"."))
}

/// Returns whether the requests of a route are sent elsewhere.
fn leads_elsewhere(serving: &Serving, id: RouteId) -> bool {
    matches!(serving.entry(id).served, Served::Redirect)
}

/// Sends a request for a path of a tree to the clean path.
#[inline(never)]
fn cleaned(request: &Request<'_>, serving: &Serving, id: RouteId, path: &[u8]) -> What {
    let Some(files) = serving.route(id).action.files() else {
        unreachable!("content is of a route with files")
    };
    let mut location = Vec::new();
    path::encode(serving.prefix(id), &mut location);
    path::encode(files.rules.clean_path(path).unwrap_or(path), &mut location);
    if let Target::Origin { query: Some(query), .. } = request.head.target {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    What::Moved(Box::new(Moved { status: Status::PermanentRedirect, location }))
}

/// Finds out where a request is sent.
#[inline(never)]
fn redirected(
    shell: &mut Shell,
    request: &Request<'_>,
    serving: &Serving,
    id: RouteId,
    path: &[u8],
) -> What {
    let route = serving.route(id);
    let listed = serving.redirects(id).and_then(|redirects| redirects.find(path));
    let (target, code, captures) = match (&route.action, &listed) {
        (Action::Redirect(to), _) => {
            let mut captures = vec![path.get(serving.prefix(id).len()..).unwrap_or_default()];
            captures.extend(route.pattern.iter().filter_map(|own| own.captures(path)).flatten());
            (&to.to[..], to.status, captures)
        }
        (_, Some(listed)) => (listed.target, listed.status, vec![&b""[..], listed.rest]),
        _ => return What::Error(Status::NotFound),
    };
    let query = match request.head.target {
        Target::Origin { query, .. } => query,
        Target::Asterisk | Target::Authority => None,
    };
    let location = redirect::expand(target, &captures, query);
    let Some(status) = redirect::status(code).filter(|_| !redirect::leads_to(&location, path))
    else {
        shell.cx.stats.redirect_loops += 1;
        let path = String::from_utf8_lossy(path);
        shell.complain(Complaint::Redirects, &format!("the redirect of {path} leads to itself"));
        return What::Error(Status::InternalServerError);
    };
    What::Moved(Box::new(Moved { status, location }))
}

/// What the answer of a program comes to.
fn of_program(answer: cgi::Answer) -> What {
    match answer {
        cgi::Answer::Error(status) => What::Error(status),
        answer => What::Program(answer),
    }
}

/// The thing that the answer of a server comes to.
fn of_proxy(answer: proxy::Answer) -> What {
    match answer {
        proxy::Answer::Error(status) if !status.is_bodiless() => What::Error(status),
        answer => What::Passed(answer),
    }
}

/// Turns the path of a URL into its normal form, with a slash at its beginning, and at its end if it names
/// a directory.
fn normalize(url_path: &[u8], name: &mut Vec<u8>) -> Result<(), PathError> {
    let normal = path::normalize(url_path, name)?;
    complete(normal, name);
    Ok(())
}

/// Adds the slashes to the name that a path was turned into.
fn complete(normal: Normal, name: &mut Vec<u8>) {
    name.insert(0, b'/');
    if normal.directory && name.len() > 1 {
        name.push(b'/');
    }
}

/// Turns the path of a URL into its normal form, or into that of a path that names no file.
fn name_of(url_path: &[u8], name: &mut Vec<u8>) -> Result<(), PathError> {
    let Err(error) = normalize(url_path, name) else { return Ok(()) };
    if !matches!(error, PathError::EncodedSlash | PathError::NameTooLong | PathError::PathTooLong) {
        return Err(error);
    }
    let normal = path::normalize_opaque(url_path, name)?;
    complete(normal, name);
    Ok(())
}

/// Finds the place of the path of a URL in a site, and turns the path into its normal form.
///
/// A path that names no file is for a route that has none. One with an encoded slash is passed on only if it is of
/// the same route with a plain one: the server may take it for that.
fn place_of(
    serving: &Serving,
    site: SiteId,
    url_path: &[u8],
    name: &mut Vec<u8>,
) -> Result<Place, PathError> {
    let Err(error) = normalize(url_path, name) else { return Ok(serving.place(site, name)) };
    name_of(url_path, name)?;
    let place = serving.place(site, name);
    let route = place.route.filter(|id| serving.upstream(*id).is_some());
    let route = route.filter(|id| serving.tree(*id).is_none()).ok_or(error)?;
    if name.contains(&path::ENCODED_SLASH) {
        let mut plain = Vec::with_capacity(name.len());
        for segment in name.split(|byte| [b'/', path::ENCODED_SLASH].contains(byte)) {
            if !segment.is_empty() {
                plain.push(b'/');
                plain.extend_from_slice(segment);
            }
        }
        if name.ends_with(b"/") || name.ends_with(&[path::ENCODED_SLASH]) {
            plain.push(b'/');
        }
        // A script is told its path decoded.
        if serving.scripts(route).is_some() || serving.place(site, &plain).route != place.route {
            return Err(PathError::EncodedSlash);
        }
    }
    Ok(place)
}

/// The facts about a request that programs and scripts are told beside its head.
fn circumstances(
    shell: &Shell,
    request: &Request<'_>,
    serving: &Serving,
) -> Circumstances<'static> {
    let address = serving.snapshot.address(request.origin.listener);
    Circumstances {
        client: client_of(shell, request, serving),
        server_name: "localhost",
        // Port 0 is one that the kernel has chosen.
        port: address.and_then(Address::port).filter(|port| *port != 0),
    }
}

/// The client of a request. Its port is 0 if a proxy has named it.
fn client_of(shell: &Shell, request: &Request<'_>, serving: &Serving) -> Option<SocketAddr> {
    let own = request.origin.client_address(&shell.ring);
    let client = serving.snapshot.proxies().client_of(own, request.head).unwrap_or(own);
    let peer = request.origin.address(&shell.ring);
    let is_peer = peer.map(|peer| peer.ip().to_canonical()) == client;
    if is_peer { peer } else { client.map(|client| SocketAddr::new(client, 0)) }
}

/// Asks the conditions of a route whether a request may pass.
fn admit(
    shell: &mut Shell,
    request: &Request<'_>,
    serving: &Serving,
    guard: &Guard,
) -> Result<(), Refusal> {
    let snapshot = &serving.snapshot;
    let origin = request.origin;
    let client = snapshot
        .proxies()
        .client_of(origin.client_address(&shell.ring), request.head)
        .map_err(|Conflict| Refusal::Conflict)
        .and_then(|client| {
            let counted = origin.client().and_then(|client| client.counted.as_ref());
            guard.admit(snapshot.limiter(), client, counted, request.is_again, shell.cx.now)
        });
    let stats = &mut shell.cx.stats;
    match client {
        Ok(()) => {}
        Err(Refusal::Forbidden) => stats.forbidden += 1,
        Err(Refusal::Connections) => stats.limited_connections += 1,
        Err(Refusal::Requests(_)) => stats.limited_requests += 1,
        Err(Refusal::Conflict) => stats.forged_clients += 1,
    }
    client
}

/// Makes the response to a request that the conditions of its route refuse.
fn refused(refusal: Refusal) -> Response<'static> {
    let (reason, retry_after) = match refusal {
        Refusal::Forbidden => ("this address may not use it", None),
        Refusal::Conflict => ("Forwarded and X-Forwarded-For name different clients", None),
        Refusal::Connections => ("this address has too many connections", Some(1)),
        Refusal::Requests(seconds) => ("this address asks too often", Some(seconds.get())),
    };
    let status = refusal.status();
    let mut head = bare(status);
    if let Some(seconds) = retry_after {
        head.extra.push(b"Retry-After", seconds.to_string().as_bytes());
    }
    let mut response = page::refused(Reject { status, reason }, head);
    response.terms.is_last = refusal == Refusal::Connections;
    response
}

/// The status for a method that no route of files has.
fn refusal_of(method: &Method<'_>) -> Status {
    if method.is_known() { Status::MethodNotAllowed } else { Status::NotImplemented }
}

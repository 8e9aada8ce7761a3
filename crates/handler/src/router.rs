//! The handler of the server: finds the route of each request, and does what the route says.

mod admit;
mod advance;
mod answer;
mod asked;
mod destination;
pub mod explain;
mod faults;
mod gateways;
mod https;
mod moved;
mod pages;
mod perform;
mod script;
mod scripts;
#[cfg(test)]
mod stage;
mod state;
mod steps;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use http::{Framing, Head, Method, Status, Target, path};
use ring::{Completion, Fd};
use sendfile::Takes;

use super::attach::{Attachments, Authorizer, Wrapper};
use super::files::Files;
use super::includes::{self, Pages};
use super::metrics::figures;
use super::page::{ALLOW, ALLOW_NONE};
use super::viewers::Viewers;
use super::{AnswerSize, Consumer, Found, Handler, Interim, Request, Response, Ticket};
use crate::desk::Desk;
use crate::serving::{Destination, Served, Serving, Servings, Snapshot, Succession, TreeId};
use ::gateways::bodies::Needs;
use ::gateways::cgi::Programs;
use ::gateways::proxy::Proxy;
use admit::{admit, admit_at_site, storage_of};
use advance::{advance, begin, refuse};
pub use answer::Answer;
use answer::{Outcome, add_fields, not_taken};
use asked::Asked;
use config::site::SiteId;
use destination::{Ground, place, place_of};
use faults::Faults;
use https::{may_turn_away, turned_away};
use metrics::Metrics;
use moved::lacks_slash;
use perform::{Pending, Reply};
use session::context::Context;
use session::handler::Reception;
use session::kind;
use session::reason::Reason;
use session::request_id::RequestId;
use session::shell::Shell;
use session::standing::Standing;
use state::{Arrived, Event, FileSearch, Next, Purpose, State, Way};
use steps::{Slash, Step};

/// The handler of the server.
#[derive(Debug)]
pub struct Router {
    servings: Rc<Servings>,
    files: Files,
    programs: Programs,
    proxy: Proxy,
    pages: Pages,
    /// The servings that were replaced, oldest first. (A [`Serving`] is a configuration in use by this worker.) Beside
    /// each serving is the list of its trees that the next serving does not have. Requests that began before the
    /// replacement may still use these trees.
    before: VecDeque<(Rc<Serving>, Vec<TreeId>)>,
    /// The requests that wait for an event.
    pending: HashMap<Ticket, Pending, RandomState>,
    /// Answers to requests that had to wait. An answer stays here until the session takes it.
    answers: VecDeque<(Ticket, Answer)>,
    authorizer: Option<Box<dyn Authorizer>>,
    wrapper: Option<Box<dyn Wrapper>>,
    /// True if there is an authorizer or a wrapper.
    is_attached: bool,
    /// True if the wrapper has more to do in another worker turn.
    wrapper_wants_turn: bool,
    /// A buffer for the normal form of a path that is not in normal form.
    scratch: Vec<u8>,
    metrics: Arc<Metrics>,
    viewers: Viewers,
    faults: Faults,
}

impl Handler for Router {
    type Answer = Answer;

    fn consumer(&mut self, shell: &mut Shell, request: &Request<'_>) -> Reception {
        let mut standing = request.standing;
        let consumer = self.consumer_of(shell, request, &mut standing);
        Reception { consumer, standing }
    }

    #[inline]
    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Answer> {
        let (serving, site) = self.servings.of(request.origin.listener, request.head);
        if may_turn_away(request, &serving)
            && let Some(outcome) = turned_away(shell, request, &serving, site)
        {
            return self.turn_away(shell, request, &serving, site, outcome);
        }
        match request.head.target {
            Target::Origin { path, .. } if path::is_normal(path) => {
                let destination = serving.destination(site, path);
                self.find_path(shell, request, serving, destination, path)
            }
            Target::Origin { path, .. } => self.find_unusual(shell, request, serving, site, path),
            Target::Asterisk | Target::Authority => {
                let outcome = match &request.head.method {
                    // The request is about the server, and not about a resource (RFC 9110 §9.3.7).
                    Method::Options => Outcome::Options(ALLOW),
                    Method::Get | Method::Head => {
                        Outcome::Error(Status::BadRequest, Reason::Target)
                    }
                    // `CONNECT` comes here: it is for forward proxies (RFC 9110 §9.3.6), and samum is no forward proxy.
                    method => not_taken(method, ALLOW_NONE),
                };
                let admitted = admit_at_site(shell, request, &serving, site, None);
                let outcome = admitted.map_or_else(Outcome::Refused, |()| outcome);
                let destination = Destination { site, route: None };
                self.refuse(shell, request, &serving, destination, outcome)
            }
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        answer.size()
    }

    #[inline]
    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        let Answer { serving, destination, outcome, .. } = answer;
        let mut response = self.respond_with(cx, head, serving, *destination, outcome);
        let is_file = matches!(
            outcome,
            Outcome::Content(_, content::PathAnswer::Resource(_))
                | Outcome::Page(_)
                | Outcome::HandedOver(_)
        );
        if !is_file {
            add_fields(head, serving, *destination, &mut response);
            response.reason = outcome.reason();
            response.upstream = outcome.times();
        }

        response.hsts = serving.hsts(destination.site);
        let terms = &mut response.terms;
        terms.recording = serving.recording(*destination);
        terms.is_from_disk =
            matches!(outcome, Outcome::Content(..) | Outcome::Page(_) | Outcome::HandedOver(_));
        terms.server_timing = serving.has_timing(*destination);
        let guard = match destination.route {
            Some(id) => serving.guard(id),
            None => serving.site_guard(destination.site),
        };
        terms.rate = guard.and_then(|guard| guard.rate);
        response
    }

    #[inline]
    fn wrap<'r>(
        &mut self,
        request: impl FnOnce() -> Request<'r>,
        answer: &Answer,
        response: &mut Response<'_>,
    ) {
        if self.is_attached {
            self.wrap_answer(&request(), answer, response);
        }
    }

    fn note_error(
        &mut self,
        cx: &Context,
        head: &Head<'_>,
        response: &Response<'_>,
        id: impl FnOnce() -> RequestId,
    ) {
        self.faults.note(self.viewers.board(), head, response, id, (cx.now, cx.unix));
    }

    fn unavailable(&mut self, shell: &mut Shell, answer: &Answer) -> Option<Answer> {
        let (serving, destination) = (Rc::clone(&answer.serving), answer.destination);
        let user = answer.user.clone();
        Some(match &answer.outcome {
            // The file of the error page cannot be read, so the response has samum's own error page.
            Outcome::Paged(paged) => {
                Answer { serving, destination, outcome: paged.error.unpaged(), user }
            }
            _ => {
                let outcome = Outcome::Error(Status::ServiceUnavailable, Reason::Disk);
                self.refuse_at_once(shell, (serving, destination), outcome, user)
            }
        })
    }

    #[inline]
    fn act(&mut self, shell: &mut Shell) {
        // The authorizer and the wrapper come first, because programs and upstreams have to learn of their decisions.
        if self.is_attached {
            self.act_for_attached(shell);
        }
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
        if !self.faults.is_empty() {
            self.faults.write(shell);
        }
        if !self.viewers.is_quiet() {
            self.viewers.act(shell);
        }
    }

    #[inline]
    fn wants_turn(&self) -> bool {
        self.proxy.wants_turn() || self.pages.wants_turn() || self.wrapper_wants_turn
    }

    #[inline]
    fn may_have_news(&self) -> bool {
        !self.answers.is_empty()
            || !self.before.is_empty()
            || (self.is_attached && self.attached_may_have_news())
            || !self.faults.is_empty()
            || !self.viewers.is_quiet()
            || self.programs.may_have_news()
            || self.proxy.may_have_news()
            || self.pages.may_have_news()
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        match completion.token & kind::MASK {
            kind::CGI => self.programs.handle(shell, &completion),
            kind::LINK | kind::LINK_WRITABLE => self.proxy.handle(shell, completion),
            kind::SPOOL => self.proxy.handle_spool(shell, completion),
            kind::FASTCGI_BODY => self.proxy.handle_body(shell, completion),
            kind::CGI_BODY => self.programs.handle_body(shell, completion),
            kind::CHECK | kind::CHECK_WRITABLE => self.proxy.handle_check(shell, completion),
            kind::PAGE => self.pages.handle(shell, completion),
            kind::AUTHORIZER => {
                if let Some(authorizer) = &mut self.authorizer {
                    authorizer.handle(shell, completion);
                }
            }
            kind::VIEWERS => {
                let Self { viewers, metrics, servings, .. } = self;
                let now = servings.now();
                let board = Arc::clone(viewers.board());
                viewers.handle(&shell.cx, || figures(&board, metrics, &now.snapshot, &shell.cx));
            }
            kind::WAKE => {
                self.programs.handle_wake(shell);
                self.files.handle(shell, completion);
            }
            _ => self.files.handle(shell, completion),
        }
        while let Some((ticket, content)) = self.files.next_answer() {
            self.resume(shell, ticket, Event::File(content));
        }
    }

    fn next_interim(&mut self) -> Option<(Ticket, Interim)> {
        loop {
            let (ticket, interim) = self.proxy.next_interim()?;
            // Interim responses to an include are dropped, because the client gets the head of the page and not the
            // head of the include.
            if includes::page_of(ticket).is_none() {
                return Some((ticket, interim));
            }
        }
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        loop {
            let (ticket, answer) = self.answers.pop_front()?;
            // A wanted page has already taken the answers to its includes (`pages.rs`). So the page of an include that
            // is still here is gone, and the answer is dropped.
            if includes::page_of(ticket).is_none() {
                return Some((ticket, answer));
            }
        }
    }

    fn next_woken(&mut self) -> Option<Ticket> {
        loop {
            let ticket = self.viewers.next_woken().or_else(|| self.programs.next_woken());
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
    /// Makes a router for the worker's current snapshot. `roots` has an open directory for each of
    /// [`Snapshot::roots`](crate::serving::Snapshot::roots), in the same order. At most `descriptors_max` files stay
    /// open.
    ///
    /// # Errors
    ///
    /// The errors of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If the number of open directories differs from the number of roots.
    pub fn new(roots: &[Fd], descriptors_max: usize, shell: &mut Shell<Desk>) -> io::Result<Self> {
        let servings = Rc::clone(&shell.desk.servings);
        let snapshot = Arc::clone(&servings.now().snapshot);
        let quota = Arc::clone(snapshot.quota());
        let recordings = shell.desk.recordings(&mut shell.cx, &snapshot);
        let (files, serving) = Files::new(snapshot, roots, descriptors_max, &shell.cx)?;
        let serving = Rc::new(serving.recorded(recordings));
        servings.replace(Rc::clone(&serving));
        let metrics = Arc::clone(shell.desk.meters.metrics());
        let viewers = Viewers::new(Arc::clone(&shell.desk.board));
        let (account, buffers_max) = (&shell.cx.budget.shared, shell.cx.tuning.buffers_bytes_max);
        let mut proxy = Proxy::new(account, buffers_max, Arc::clone(&quota));
        proxy.watch(shell, serving.snapshot.upstreams());
        Ok(Self {
            servings,
            files,
            before: VecDeque::new(),
            programs: Programs::new(quota),
            proxy,
            pages: Pages::default(),
            pending: HashMap::default(),
            answers: VecDeque::new(),
            authorizer: None,
            wrapper: None,
            is_attached: false,
            wrapper_wants_turn: false,
            scratch: Vec::new(),
            metrics,
            viewers,
            faults: Faults::default(),
        })
    }

    /// Attaches these parts from now on, in place of earlier parts. A copier stays if there is no other copier.
    pub fn attach(
        &mut self,
        shell: &mut Shell,
        Attachments { authorizer, wrapper, copier }: Attachments,
    ) {
        (self.authorizer, self.wrapper) = (authorizer, wrapper);
        self.is_attached = self.authorizer.is_some() || self.wrapper.is_some();
        if let Some(copier) = copier {
            self.files.set_copier(copier);
        }
        self.configure_attached(shell);
    }

    /// Lets the attached parts prepare for the configuration that is served.
    fn configure_attached(&mut self, shell: &mut Shell) {
        let snapshot = Arc::clone(&self.servings.now().snapshot);
        if let Some(authorizer) = &mut self.authorizer {
            authorizer.configure(shell, &snapshot);
        }
        if let Some(wrapper) = &mut self.wrapper {
            wrapper.configure(&snapshot);
        }
    }

    /// Serves another snapshot from now on. `roots` has the directories of the trees that the old snapshot did not
    /// have, by the index of the directory in [`Snapshot::roots`]. Requests that have begun are answered from the old
    /// snapshot.
    pub fn replace(
        &mut self,
        shell: &mut Shell<Desk>,
        snapshot: Arc<Snapshot>,
        succession: &Succession,
        roots: &HashMap<usize, Fd>,
    ) {
        let before = self.servings.now();
        let recordings = shell.desk.recordings(&mut shell.cx, &snapshot);
        let serving = self.files.successor(&before, snapshot, succession, roots);
        let serving = Rc::new(serving.recorded(recordings));
        self.proxy.watch(shell, serving.snapshot.upstreams());
        serving.snapshot.quota().set_bytes_max(serving.snapshot.tuning().body_files_max);
        shell.cx.set_tuning(serving.snapshot.tuning().clone());
        self.servings.replace(serving);
        self.configure_attached(shell);
        // The new configuration may no longer permit the viewers of the status page, so their responses end.
        self.viewers.end_all();
        let gone = succession.gone().iter().map(|index| before.trees()[*index]).collect();
        self.before.push_back((before, gone));
    }

    /// From now on, keeps files in memory in the form that the transports need. `takes` says what all transports can
    /// send, or is `None` if the transports differ: see [`Context::takes`].
    pub const fn set_takes(&mut self, takes: Option<Takes>) {
        self.files.set_takes(takes);
    }

    /// Removes the trees of earlier servings, as soon as no request uses these servings.
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

    /// Replaces the directory of a root from now on. `root` is the index in [`Snapshot::roots`]. Without a new
    /// directory, requests for files of this root get a 503. Responses that have begun are completed from the old
    /// directory.
    pub fn replace_root(&mut self, shell: &mut Shell, root: usize, directory: Option<&Fd>) {
        let serving = self.servings.now();
        for tree in serving.trees_of(root) {
            self.files.replace_root(shell, tree, directory.cloned());
        }
    }

    /// The consumer of the body of a request, if the route of the request has one. The guard of the route decides about
    /// the request once. The decision is kept in the request's standing.
    fn consumer_of(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        standing: &mut Standing,
    ) -> Option<Box<dyn Consumer>> {
        let Target::Origin { path, .. } = request.head.target else { return None };
        let (serving, site) = self.servings.of(request.origin.listener, request.head);
        // A request that its site turns away (`https.rs`) is answered without its body.
        if may_turn_away(request, &serving) && turned_away(shell, request, &serving, site).is_some()
        {
            return None;
        }
        let destination = {
            let find = |name: &[u8]| serving.destination(site, name);
            place_of(&serving, path, &mut self.scratch, find).ok()?
        };
        let route = destination.route?;
        if !serving.is_gateway(route) {
            return None;
        }
        if lacks_slash(&serving, destination, &self.scratch).is_some() {
            return None;
        }
        // If the guard refuses a request, the body needs no memory.
        if let Some(guard) = serving.guard(route) {
            let admitted = admit(shell, request, &serving, guard);
            *standing = admitted.into();
            admitted.ok()?;
        }
        let bytes_max = serving.route(route).max_body.unwrap_or(u64::MAX);
        let Some(storage) = storage_of(shell, request, &serving, route) else {
            return self.proxy.consumer(request, Needs::Nothing, bytes_max);
        };
        // A body of unknown length is collected, so its length must not exceed the limit of all collected bodies
        // together.
        let of_all = serving.snapshot.quota().bytes_max().max(storage.memory_max);
        let is_collected = request.head.framing == Framing::Unknown;
        let bytes_max = if is_collected { bytes_max.min(of_all) } else { bytes_max };
        match serving.upstream(route) {
            Some(upstream) => {
                let needs = Needs::All { part: upstream.rules.buffer, storage };
                self.proxy.consumer(request, needs, bytes_max)
            }
            None => self.programs.consumer(request, Needs::All { part: 0, storage }, bytes_max),
        }
    }

    /// Finds the answer to a request for a path that is in normal form.
    // Each request comes here, and a call that is not inlined would cost 30 instructions.
    #[inline(always)]
    fn find_path(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        destination: Destination,
        path: &[u8],
    ) -> Found<Answer> {
        let Some(id) = destination.route else {
            return self.find_none(shell, request, &serving, destination.site, path);
        };
        let entry = serving.entry(id);
        if let Some(guard) = &entry.guard
            && let Err(refusal) = admit(shell, request, &serving, guard)
        {
            return self.refuse(shell, request, &serving, destination, Outcome::Refused(refusal));
        }
        if self.is_attached && self.has_say(&entry.route) {
            return self.arrive(shell, request, &serving, destination, path);
        }
        // Most requests are for files in memory. Such a request needs no `State`.
        if let (Method::Get | Method::Head, Served::Files { tree, has_pages: false }) =
            (&request.head.method, &entry.served)
            && let Some(rest) = path.get(entry.prefix.len()..)
        {
            let tree = serving.tree_at(*tree);
            return match self.files.find(shell, tree, rest, request.ticket) {
                content::Found::Now(answer @ content::PathAnswer::Resource(_)) => {
                    Found::Now(Answer {
                        serving,
                        destination,
                        outcome: Outcome::Content(id, answer),
                        user: None,
                    })
                }
                found => self.take_file(shell, request, &serving, destination, path, found),
            };
        }
        self.begin(shell, request, &serving, destination, path)
    }

    /// Finds the answer for a path that no route has. If a route has the path with a slash, the answer may be a
    /// redirect to that route.
    #[inline(never)]
    fn find_none(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        site: SiteId,
        path: &[u8],
    ) -> Found<Answer> {
        let destination = Destination { site, route: None };
        let directory = serving.directory(site, path);
        match admit_at_site(shell, request, serving, site, directory) {
            Ok(()) => self.begin(shell, request, serving, destination, path),
            Err(refusal) => {
                self.refuse(shell, request, serving, destination, Outcome::Refused(refusal))
            }
        }
    }

    /// Asks the authorizer and the wrapper about a request that the guard of its route has let pass.
    #[inline(never)]
    fn arrive(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        destination: Destination,
        path: &[u8],
    ) -> Found<Answer> {
        let (asked, path) = (Asked::Given(request), Cow::Borrowed(path));
        let next = Next::Authorize(Arrived { asked, path, way: Way::Asked(None) });
        self.perform(shell, request.ticket, (serving, destination), next)
    }

    /// Begins to answer a request that the guard of its route has let pass.
    #[inline(never)]
    fn begin(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        destination: Destination,
        path: &[u8],
    ) -> Found<Answer> {
        let (asked, path) = (Asked::Given(request), Cow::Borrowed(path));
        let next = begin(Ground { serving, destination }, asked, path, None);
        self.perform(shell, request.ticket, (serving, destination), next)
    }

    /// Answers a request with an outcome that needs no file and no gateway: a refusal, an error, a redirect, or the
    /// list of allowed methods.
    #[inline(never)]
    fn refuse(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        destination: Destination,
        outcome: Outcome,
    ) -> Found<Answer> {
        let next = refuse(Ground { serving, destination }, None, outcome);
        self.perform(shell, request.ticket, (serving, destination), next)
    }

    /// Continues a request whose file was not found in memory.
    #[inline(never)]
    fn take_file(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        destination: Destination,
        path: &[u8],
        found: content::Found,
    ) -> Found<Answer> {
        let ground = Ground { serving, destination };
        let (step, purpose) = (Step::Asked(Slash::Of(path)), Purpose::Send);
        let route = destination.route.expect("files are of a route");
        let state = State::File(FileSearch { route, step, purpose, over: None });
        match found.into() {
            Reply::Now(event) => {
                let next = advance(ground, state, event);
                self.perform(shell, request.ticket, (serving, destination), next)
            }
            Reply::Later(search) => {
                let way = (serving, destination);
                Found::Later(self.wait(request.ticket, way, state, search, None))
            }
        }
    }

    /// Finds the answer to a request for a path that is not in normal form.
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
        let (destination, refusal) = place(&serving, site, url_path, &mut name);
        let found = match refusal {
            None => self.find_path(shell, request, serving, destination, &name),
            Some((status, reason)) => {
                let admitted = match destination.route {
                    Some(id) => serving
                        .guard(id)
                        .map_or(Ok(()), |guard| admit(shell, request, &serving, guard)),
                    None => admit_at_site(shell, request, &serving, site, None),
                };
                let outcome = match admitted {
                    Ok(()) => Outcome::Error(status, reason),
                    Err(refusal) => Outcome::Refused(refusal),
                };
                self.refuse(shell, request, &serving, destination, outcome)
            }
        };
        self.scratch = name;
        found
    }
}

//! Does what a request needs next (finds a file, asks a gateway, gives the answer). Stores requests that have to wait.

use std::rc::{Rc, Weak};

use http::{Status, path};

use super::Router;
use super::advance::{advance, begin, complete, refuse};
use super::answer::{Answer, Outcome};
use super::asked::Asked;
use super::destination::Ground;
use super::state::{Arrived, Event, FileSearch, Named, Next, Purpose, State, Way};
use super::steps::Step;
use crate::attach::{Admission, Deferred, Grant, User};
use crate::serving::{Destination, Serving};
use crate::{Found, Request, Response, Search, Ticket};
use config::Route;
use gateways::held::Held;
use session::reason::Reason;
use session::shell::{Complaint, Shell};

/// A request that waits.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) serving: Rc<Serving>,
    pub(super) destination: Destination,
    pub(super) state: State<'static>,
    /// The user who has made the request, once an authorizer has named it.
    pub(super) user: Option<User>,
}

// The size matters because each request for a file that is not in memory has a `Pending`.
const _: () = assert!(size_of::<Pending>() <= 120);

/// The reply to a need of a request.
pub(super) enum Reply {
    /// The event has come.
    Now(Event),
    /// The event will come. See [`Found::Later`].
    Later(Option<Rc<dyn Search>>),
}

impl Reply {
    /// The reply of a part of the handler, whose answer is `event`.
    pub(super) fn of<A>(found: Found<A>, event: impl FnOnce(A) -> Event) -> Self {
        match found {
            Found::Now(answer) => Self::Now(event(answer)),
            Found::Later(search) => Self::Later(search),
        }
    }
}

impl From<content::Found> for Reply {
    fn from(found: content::Found) -> Self {
        match found {
            content::Found::Now(answer) => Self::Now(Event::File(answer)),
            content::Found::Later => Self::Later(None),
        }
    }
}

impl Router {
    /// Meets the next needs of a request, until the request has its answer or has to wait.
    pub(super) fn perform<'a>(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, destination): (&'a Rc<Serving>, Destination),
        next: Next<'a>,
    ) -> Found<Answer> {
        self.perform_for(shell, ticket, (serving, destination), None, next)
    }

    /// Does the same for a request whose user an authorizer may have named.
    #[inline(never)]
    pub(super) fn perform_for<'a>(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, destination): (&'a Rc<Serving>, Destination),
        mut user: Option<User>,
        mut next: Next<'a>,
    ) -> Found<Answer> {
        let ground = Ground { serving, destination };
        let mut client = None;
        loop {
            if next.is_ahead() {
                next = complete(serving, None, Outcome::Postponed);
            }
            let (state, reply) = match next {
                // The authorizer is asked once, because the answer of a later request may not be kept.
                Next::Authorize(Arrived { asked, way: Way::Asked(_), .. })
                    if !asked.is_next() && self.is_authorized(ground) =>
                {
                    next = complete(serving, None, Outcome::Postponed);
                    continue;
                }
                Next::Authorize(arrived) => {
                    let reply = self.authorize(shell, ticket, ground, &arrived);
                    (State::Authorize(arrived), reply)
                }
                Next::Recall(arrived) => {
                    let reply = self.recall(ticket, ground, &arrived.asked);
                    (State::Recall(arrived), reply)
                }
                Next::Begin(Arrived { asked, path, way }) => {
                    if let Way::Asked(Some((held, waits))) = way {
                        if waits.strong_count() == 0 {
                            // The client has gone, so no route is asked.
                            let outcome = Outcome::Error(Status::ServiceUnavailable, Reason::Gone);
                            next = complete(serving, None, outcome);
                            continue;
                        }
                        self.give_back(ticket, ground, held);
                        client = Some(waits);
                    }
                    next = begin(ground, asked, path, None);
                    continue;
                }
                Next::File { tree, path, search } => {
                    let found = match search.step {
                        Step::ErrorPage(_) => {
                            self.files.find_error_page(shell, tree, &path, ticket)
                        }
                        _ => self.files.find(shell, tree, &path, ticket),
                    };
                    (State::File(search), found.into())
                }
                Next::Template(parsing) => {
                    let reply = self.parse(shell, ticket, serving, &parsing);
                    (State::Template(parsing), reply)
                }
                Next::Page(parsing, template) => {
                    let outcome =
                        self.open_page(shell, ticket, (serving, destination), &parsing, template);
                    next = complete(serving, parsing.over, outcome);
                    continue;
                }
                Next::Program { path, asked, handed } => {
                    let user = user.as_ref();
                    match self.find_program(shell, ground, &path, asked, handed, user) {
                        Ok(performed) => performed,
                        Err(refused) => {
                            next = refuse(ground, None, refused);
                            continue;
                        }
                    }
                }
                Next::Script { route, name, script } => {
                    self.run(shell, ground, route, &name, script, user.as_ref())
                }
                Next::Proxy { path, asked, handed } => {
                    match self.pass_on(shell, ground, &path, asked, handed) {
                        Ok(performed) => performed,
                        Err(refused) => {
                            next = refuse(ground, None, refused);
                            continue;
                        }
                    }
                }
                Next::Route { asked, path, handed } => {
                    let way = (serving, destination);
                    return self.hand_over(shell, way, asked, &path, handed, user);
                }
                Next::Named { asked, server, over } => {
                    return self.hand_over_to(
                        shell,
                        ticket,
                        (serving, destination),
                        asked,
                        server,
                        over,
                        user,
                    );
                }
                Next::Loop { path } => {
                    shell.cx.stats.redirect_loops.add(1);
                    let path = path::with_slashes(&path, b"%2F");
                    let path = String::from_utf8_lossy(&path);
                    let text = format!("the redirect of {path} leads to itself");
                    shell.complain(Complaint::Redirects, &text);
                    let outcome = Outcome::Error(Status::InternalServerError, Reason::RedirectLoop);
                    next = refuse(ground, None, outcome);
                    continue;
                }
                Next::Answer { outcome, missing } => {
                    if let Some(Named { server, file }) = missing {
                        self.proxy.note_missing(shell, &server, &file);
                    }
                    return Found::Now(Answer {
                        serving: Rc::clone(serving),
                        destination,
                        outcome,
                        user,
                    });
                }
            };
            match reply {
                Reply::Now(mut event) => {
                    user = event.take_user().or(user);
                    next = advance(ground, state, event);
                }
                Reply::Later(search) => {
                    let search = self.wait(ticket, (serving, destination), state, search, user);
                    // If the client has gone, the search is dropped here and ends.
                    if let Some(client) = client.as_ref().and_then(Weak::<Deferred>::upgrade) {
                        client.set(search.clone());
                    }
                    return Found::Later(search);
                }
            }
        }
    }

    /// Returns true if the authorizer or the wrapper has a say in requests of this route.
    pub(super) fn has_say(&self, route: &Route) -> bool {
        self.wrapper.as_ref().is_some_and(|it| it.has_say(route))
            || self.authorizer.as_ref().is_some_and(|it| it.has_say(route))
    }

    /// Returns true if the authorizer or the wrapper may have a decision or more to do.
    pub(super) fn attached_may_have_news(&self) -> bool {
        self.wrapper_wants_turn
            || self.wrapper.as_ref().is_some_and(|it| it.may_have_news())
            || self.authorizer.as_ref().is_some_and(|it| it.may_have_news())
    }

    /// Names the user of a response, and lets the wrapper change the response unless the wrapper has recalled it.
    #[cold]
    pub(super) fn wrap_answer(
        &mut self,
        request: &Request<'_>,
        Answer { serving, destination, outcome, user }: &Answer,
        response: &mut Response<'_>,
    ) {
        response.terms.user.clone_from(user);
        let route = destination.route.map(|id| serving.route(id));
        if let (Some(wrapper), Some(route)) = (&mut self.wrapper, route)
            && wrapper.has_say(route)
            && !matches!(outcome, Outcome::Recalled(_))
        {
            wrapper.wrap(request, route, response);
        }
    }

    /// Returns true if the authorizer decides about requests of this route.
    pub(super) fn is_authorized(&self, Ground { serving, destination }: Ground<'_>) -> bool {
        let route = destination.route.map(|id| serving.route(id));
        self.authorizer.as_ref().zip(route).is_some_and(|(it, route)| it.has_say(route))
    }

    /// Asks the authorizer whether a request may pass.
    fn authorize(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        Ground { serving, destination }: Ground<'_>,
        Arrived { asked, way, .. }: &Arrived<'_>,
    ) -> Reply {
        let route = destination.route.map(|id| serving.route(id));
        let authorizer =
            self.authorizer.as_mut().zip(route).filter(|(it, route)| it.has_say(route));
        let Some((authorizer, route)) = authorizer else {
            return Reply::Now(Event::Admitted(Ok(Grant::default())));
        };
        match asked.with(|request| authorizer.admit(shell, request, route)) {
            Admission::Now(said) => {
                if said.is_err() && matches!(way, Way::Asked(_)) {
                    // The consumer of the body drops it from now on.
                    drop(self.take_body(ticket));
                }
                Reply::Now(Event::Admitted(said))
            }
            Admission::Waiting(search) => Reply::Later(search),
        }
    }

    /// Asks the wrapper whether it recalls an answer.
    fn recall(
        &mut self,
        ticket: Ticket,
        Ground { serving, destination }: Ground<'_>,
        asked: &Asked<'_>,
    ) -> Reply {
        let route = destination.route.map(|id| serving.route(id));
        let wrapper = self.wrapper.as_mut().zip(route).filter(|(it, route)| it.has_say(route));
        let Some((wrapper, route)) = wrapper else {
            return Reply::Now(Event::Recalled(None));
        };
        let found = asked.with(|request| wrapper.recall(request, route));
        if let Found::Now(Some(_)) = found {
            drop(self.take_body(ticket));
        }
        Reply::of(found, Event::Recalled)
    }

    /// Takes the body of a request from its gateway, if the session has a consumer for it.
    fn take_body(&mut self, ticket: Ticket) -> Held {
        let body = self.proxy.take_body(ticket);
        Held::of_body(body.or_else(|| self.programs.take_body(ticket)))
    }

    /// Gives the body of a request back to the gateway of its route, which then uses it.
    fn give_back(
        &mut self,
        ticket: Ticket,
        Ground { serving, destination }: Ground<'_>,
        held: Held,
    ) {
        let Some(body) = held.into_body() else { return };
        if destination.route.is_some_and(|id| serving.programs(id).is_some()) {
            self.programs.give_back(ticket, body);
        } else {
            self.proxy.give_back(ticket, body);
        }
    }

    /// Continues requests for which the authorizer or the wrapper has decided, and the wrapper's own work.
    #[inline(never)]
    pub(super) fn act_for_attached(&mut self, shell: &mut Shell) {
        while let Some((ticket, said)) =
            self.authorizer.as_mut().and_then(|authorizer| authorizer.next_admitted())
        {
            self.resume(shell, ticket, Event::Admitted(said));
        }
        while let Some((ticket, recalled)) =
            self.wrapper.as_mut().and_then(|wrapper| wrapper.next_recalled())
        {
            self.resume(shell, ticket, Event::Recalled(recalled));
        }
        self.wrapper_wants_turn = self.wrapper.as_mut().is_some_and(|wrapper| wrapper.act());
    }

    /// Continues a request for which an event has come.
    pub(super) fn resume(&mut self, shell: &mut Shell, ticket: Ticket, mut event: Event) {
        let pending = self.pending.remove(&ticket).expect("a request waits for each event");
        let Pending { serving, destination, state, user } = pending;
        let user = event.take_user().or(user);
        let next = advance(Ground { serving: &serving, destination }, state, event);
        let found = self.perform_for(shell, ticket, (&serving, destination), user, next);
        if let Found::Now(answer) = found {
            self.answers.push_back((ticket, answer));
        }
    }

    /// Answers a request with an error at once. The error has its page if the page is found without a wait.
    pub(super) fn refuse_at_once(
        &mut self,
        shell: &mut Shell,
        (serving, destination): (Rc<Serving>, Destination),
        error: Outcome,
        user: Option<User>,
    ) -> Answer {
        let ground = Ground { serving: &serving, destination };
        let mut next = refuse(ground, None, error);
        loop {
            next = match next {
                Next::File { tree, path, search } => {
                    let found = self.files.find_at_once(shell, tree, &path);
                    let found = found.map_or(
                        content::PathAnswer::Error(Status::ServiceUnavailable, Reason::Disk),
                        content::PathAnswer::Resource,
                    );
                    advance(ground, State::File(search), Event::File(found))
                }
                Next::Answer { outcome, .. } => {
                    return Answer { serving, destination, outcome, user };
                }
                next => unreachable!("an error has nothing but a page: {next:?}"),
            }
        }
    }

    /// Keeps a request that waits for the event of its state. Returns the search for which its client waits: `search`,
    /// or another search that replaces it.
    pub(super) fn wait(
        &mut self,
        ticket: Ticket,
        (serving, destination): (&Rc<Serving>, Destination),
        state: State<'_>,
        mut search: Option<Rc<dyn Search>>,
        user: Option<User>,
    ) -> Option<Rc<dyn Search>> {
        let ground = Ground { serving, destination };
        let mut state = state.keep(ground);
        // A request that may be for a script is held back with its body.
        if let State::File(FileSearch { route, purpose: Purpose::Script(script), .. }) = &mut state
            && script.held.is_none()
        {
            let waiter = script.asked.waiter(serving.route(*route));
            let (held, of_client) = self.proxy.hold(ticket, waiter);
            (script.held, search) = (Some(held), Some(of_client));
        }
        if let State::Authorize(arrived) | State::Recall(arrived) = &mut state {
            match &mut arrived.way {
                Way::Asked(held @ None) => {
                    let client = Rc::new(Deferred::default());
                    client.set(search.take());
                    *held = Some((self.take_body(ticket), Rc::downgrade(&client)));
                    search = Some(client);
                }
                // If the client has gone, the search is dropped here and ends.
                Way::Asked(Some((_, client))) => {
                    if let Some(client) = client.upgrade() {
                        client.set(search.take());
                    }
                }
                // A request that was handed over has given its body away, and its client waits for any gateway.
                Way::Handed(_, own) | Way::Named(_, own) => *own = search.take(),
            }
        }
        if cfg!(debug_assertions) {
            state.check(ground);
        }
        let serving = Rc::clone(serving);
        self.pending.insert(ticket, Pending { serving, destination, state, user });
        search
    }
}

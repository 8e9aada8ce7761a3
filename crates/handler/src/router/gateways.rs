//! Requests that programs and upstreams answer, and requests that programs and upstreams hand over to files and paths.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, Status};

use super::Router;
use super::admit::{admit, circumstances, request_id, sender_of, told_host};
use super::advance::{begin, refuse, send_named};
use super::answer::{Answer, Outcome};
use super::asked::Asked;
use super::destination::{Ground, handed_file, is_hidden, place_of};
use super::pages::asked_for;
use super::perform::Reply;
use super::script::is_source;
use super::state::{Arrived, By, Event, Handed, Named, Next, Over, State, Way};
use crate::attach::User;
use crate::serving::{Destination, Serving};
use crate::{Found, Request, Ticket, includes};
use config::route::RouteId;
use gateways::HAND_OVERS_MAX;
use gateways::cgi;
use gateways::interest::Waiter;
use gateways::programs::environment::Circumstances;
use gateways::proxy::Passing;
use gateways::proxy::request::{Forwarding, LOOP_DETECTED, is_for_include};
use gateways::proxy::response::HandOver;
use gateways::proxy::wire::Wire;
use session::reason::Reason;
use session::shell::Shell;
use upstream::Server;

impl Router {
    /// Starts a program of the request's route for the request. If an earlier program has handed the request over,
    /// `handed` is `Some` with the count.
    ///
    /// # Errors
    ///
    /// A refusal of the request.
    pub(super) fn find_program<'a>(
        &mut self,
        shell: &mut Shell,
        Ground { serving, destination }: Ground<'_>,
        path: &[u8],
        asked: Asked<'a>,
        handed: Option<Handed>,
        user: Option<&User>,
    ) -> Result<(State<'a>, Reply), Outcome> {
        let (held, count) = handed.map(|handed| (handed.held, handed.count)).unzip();
        let id = destination.route.expect("programs are of a route");
        let (Some(directory), Some(path)) =
            (serving.programs(id), path.get(serving.prefix(id).len()..))
        else {
            return Err(Outcome::Error(Status::NotFound, Reason::NoProgram));
        };
        let asked = asked.keep();
        let waiter = asked.waiter(serving.route(id));
        let requested = self.pages.requested(asked.ticket());
        let found = asked.with(|request| {
            let circumstances = Circumstances {
                requested: requested.as_deref(),
                user: user.map(User::name),
                ..circumstances(shell, request, serving)
            };
            let call = cgi::Call { directory, path, circumstances, held };
            self.programs.find(shell, request, call, waiter)
        });
        Ok((State::Program(asked, count.unwrap_or(0)), Reply::of(found, Event::Program)))
    }

    /// Passes a request on to an upstream of its route.
    ///
    /// # Errors
    ///
    /// A refusal of the request.
    pub(super) fn pass_on<'a>(
        &mut self,
        shell: &mut Shell,
        ground: Ground<'_>,
        path: &[u8],
        asked: Asked<'a>,
        handed: Option<Handed>,
    ) -> Result<(State<'a>, Reply), Outcome> {
        let Ground { serving, destination } = ground;
        let id = destination.route.expect("servers are of a route");
        let Some(upstream) = serving.upstream(id) else {
            unreachable!("requests are passed on to a server")
        };
        let upstream = Arc::clone(upstream);
        let (wire, affinity) = asked.with(|request| {
            let is_include = includes::page_of(request.ticket).is_some();
            if is_include && is_for_include(request.head) {
                let status = Status::from_code(LOOP_DETECTED);
                let status = status.unwrap_or(Status::InternalServerError);
                return Err(Outcome::Error(status, Reason::IncludeLoop));
            }
            let sender = sender_of(shell, request, serving);
            let own_id = request_id(shell, request, sender.is_trusted);
            let how = Forwarding {
                prefix: serving.prefix(id),
                authority: b"localhost",
                sender,
                told_host: told_host(shell, request, serving),
                is_include,
                fields: Some(&serving.route(id).request_headers)
                    .filter(|fields| !fields.is_empty()),
                handshake: request.origin.handshake(),
                request_id: Some(&own_id),
            };
            match Wire::http(request.head, &how, self.proxy.text()) {
                Ok(wire) => Ok((wire, upstream.key(sender.client, path))),
                Err(error) => {
                    self.proxy.refuse_head(shell, request.ticket, &upstream, error);
                    Err(Outcome::Error(Status::HeaderFieldsTooLarge, Reason::HeadTooLong))
                }
            }
        })?;
        let (held, count) = handed.map(|handed| (handed.held, handed.count)).unzip();
        let passing = Passing { upstream: &upstream, affinity, wire, held };
        Ok(self.exchange(shell, ground, id, (asked, count.unwrap_or(0)), passing))
    }

    /// Sends a request to an upstream of a route. The request may have been held back, and was handed over `count`
    /// times.
    pub(super) fn exchange<'a>(
        &mut self,
        shell: &mut Shell,
        Ground { serving, destination }: Ground<'_>,
        id: RouteId,
        (asked, count): (Asked<'a>, u32),
        passing: Passing<'_>,
    ) -> (State<'a>, Reply) {
        let may_be_handed_over =
            serving.scripts(id).is_some() || serving.has_files(destination.site);
        let half_close = serving.route(id).half_close;
        let find = |request: &Request<'_>, memory| {
            let waiter = Waiter { memory, half_close };
            Reply::of(self.proxy.find(shell, request, passing, waiter), Event::Server)
        };
        if !may_be_handed_over {
            return (State::Server(None, count), asked.with(|request| find(request, 0)));
        }
        match asked {
            Asked::Given(request) => {
                let asked = Asked::Given(request).keep();
                let reply = find(request, asked.memory());
                (State::Server(Some(asked), count), reply)
            }
            kept @ Asked::Kept(_) => {
                let reply = kept.with(|request| find(request, kept.memory()));
                (State::Server(Some(kept), count), reply)
            }
        }
    }

    /// Takes the answers of upstreams.
    #[inline(never)]
    pub(super) fn act_for_proxy(&mut self, shell: &mut Shell) {
        self.proxy.act(shell);
        while let Some((ticket, answer)) = self.proxy.next_answer() {
            self.resume(shell, ticket, Event::Server(answer));
        }
    }

    /// Takes the answers of programs.
    #[inline(never)]
    pub(super) fn act_for_programs(&mut self, shell: &mut Shell) {
        self.programs.act(shell);
        while let Some((ticket, answer)) = self.programs.next_answer() {
            self.resume(shell, ticket, Event::Program(answer));
        }
    }

    /// Answers a request with the file to which an upstream has handed the request over.
    pub(super) fn hand_over_to(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, destination): (&Rc<Serving>, Destination),
        asked: Option<Asked<'_>>,
        server: Arc<Server>,
        HandOver { to, fields }: HandOver,
        user: Option<User>,
    ) -> Found<Answer> {
        let file = handed_file(serving, destination.site, &to)
            .filter(|file| !is_source(serving, destination.site, file));
        let (Some(asked), Some(file)) = (asked, file) else {
            self.proxy.refuse(shell, &server, &to);
            let ground = Ground { serving, destination };
            let outcome = Outcome::Error(Status::BadGateway, Reason::HandOver);
            let next = refuse(ground, None, outcome);
            return self.perform_for(shell, ticket, (serving, destination), user, next);
        };
        let destination = Destination { route: Some(file.route), ..destination };
        let ground = Ground { serving, destination };
        if let Some(guard) = serving.guard(file.route) {
            let admitted = asked.with(|request| {
                // The body of the request was for another route.
                let head = includes::bodiless(request.head);
                admit(shell, &Request { head: &head.as_head(), ..*request }, serving, guard)
            });
            if let Err(refusal) = admitted {
                let next = refuse(ground, None, Outcome::Refused(refusal));
                return self.perform_for(shell, ticket, (serving, destination), user, next);
            }
        }
        let is_authorized = self.is_authorized(ground);
        let asked = asked_for(asked, serving, &file, to.query(), is_authorized);
        let query = to.query().map(Into::into);
        let over = Box::new(Over { fields, query, named: Some(Named { server, file: to }) });
        let next = if is_authorized {
            let path = Cow::Owned([serving.prefix(file.route), &file.path].concat());
            Next::Authorize(Arrived { asked, path, way: Way::Named(over, None) })
        } else {
            send_named(serving, file.route, asked, Cow::Borrowed(&file.path), over)
        };
        self.perform_for(shell, ticket, (serving, destination), user, next)
    }

    /// Finds the answer for another path, as if the client had asked for this path with `GET` (RFC 3875 §6.2.2).
    pub(super) fn hand_over(
        &mut self,
        shell: &mut Shell,
        (serving, destination): (&Rc<Serving>, Destination),
        asked: Asked<'_>,
        target: &[u8],
        handed: Handed,
        user: Option<User>,
    ) -> Found<Answer> {
        let (path, query) = match target.iter().position(|&byte| byte == b'?') {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        let (ticket, asked) = asked.with(|request| {
            let is_head = request.head.method == Method::Head;
            let method = if is_head { Method::Head } else { Method::Get };
            let head = includes::bodiless(request.head);
            let head = head.as_head().with_target(method, http::Target::Origin { path, query });
            (request.ticket, Asked::of(head.to_owned(), request))
        });
        let mut name = core::mem::take(&mut self.scratch);
        let found =
            self.place_handed(shell, (serving, destination), &asked, &handed, target, &mut name);
        let (destination, next) = match found {
            Ok(destination) => {
                let ground = Ground { serving, destination };
                let path = Cow::Borrowed(&name[..]);
                let next = if self.is_authorized(ground) {
                    let way = Way::Handed(Box::new(handed), None);
                    Next::Authorize(Arrived { asked, path, way })
                } else {
                    begin(ground, asked, path, Some(handed))
                };
                (destination, next)
            }
            Err((destination, outcome)) => {
                drop(handed);
                (destination, refuse(Ground { serving, destination }, None, outcome))
            }
        };
        let found = self.perform_for(shell, ticket, (serving, destination), user, next);
        self.scratch = name;
        found
    }

    /// Finds the destination of the path of a request that was handed over, if its route accepts it.
    ///
    /// # Errors
    ///
    /// A refusal, and the destination to which the error page of the refusal belongs.
    fn place_handed(
        &mut self,
        shell: &mut Shell,
        (serving, destination): (&Serving, Destination),
        asked: &Asked<'_>,
        handed: &Handed,
        target: &[u8],
        name: &mut Vec<u8>,
    ) -> Result<Destination, (Destination, Outcome)> {
        if handed.count > HAND_OVERS_MAX {
            match handed.by {
                By::Program => self.programs.note_hand_overs(shell, target),
                By::Server => self.proxy.note_hand_overs(shell, target),
            }
            return Err((destination, Outcome::Error(Status::BadGateway, Reason::HandOver)));
        }
        let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        let site = destination.site;
        let destination =
            place_of(serving, path, name, |name| serving.inner_destination(site, name)).map_err(
                |error| (destination, Outcome::Error(error.status(), Reason::Path(error))),
            )?;
        let file = |id| serving.named_file_at(id, name.get(serving.prefix(id).len()..)?);
        let of_files = destination.route.filter(|id| !serving.is_gateway(*id));
        if is_hidden(serving, destination, name)
            || of_files.and_then(file).is_some_and(|file| is_source(serving, site, &file))
        {
            return Err((destination, Outcome::Error(Status::NotFound, Reason::HandOver)));
        }
        let guard = destination.route.and_then(|id| serving.guard(id));
        let admitted = guard
            .map_or(Ok(()), |guard| asked.with(|request| admit(shell, request, serving, guard)));
        admitted.map_err(|refusal| (destination, Outcome::Refused(refusal)))?;
        Ok(destination)
    }
}

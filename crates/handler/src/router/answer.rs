//! The answers to requests, and the responses that are made of these answers.

use std::rc::Rc;

use http::{FieldSection, Head, Method, Reject, ResponseHead, Status};
use sendfile::Piece;

use super::Router;
use crate::attach::{Denial, Recalled, User};
use crate::files;
use crate::guard::Refusal;
use crate::page::{self, ALLOW, ALLOW_MOST, ALLOW_NONE};
use crate::serving::{Destination, RouteEntry, Served, Serving};
use crate::viewers::View;
use crate::{AnswerSize, Body, Keep, Part, Response, includes, metrics};
use config::route::RouteId;
use config::{Action, Route};
use content::{self, Kind};
use gateways::cgi::{self, Programs};
use gateways::proxy::{self, Proxy};
use session::context::Context;
use session::fields;
use session::page::bare;
use session::reason::Reason;

/// The answer to a request: the destination of the request, and the outcome there.
#[derive(Debug)]
pub struct Answer {
    pub(super) serving: Rc<Serving>,
    pub(super) destination: Destination,
    pub(super) outcome: Outcome,
    /// The user who has made the request, if an authorizer names one.
    pub(super) user: Option<User>,
}

/// The result with which a request is answered.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A file or a directory of this route, or the reason why neither was found.
    Content(RouteId, content::PathAnswer),
    /// A file with directives.
    Page(includes::Opened),
    /// The answer of a program, or the reason why there is none.
    Program(cgi::Answer),
    /// The answer of an upstream, or the reason why there is none.
    Passed(proxy::Answer),
    /// The answer that the wrapper has recalled.
    Recalled(Rc<dyn Recalled>),
    /// The file to which a program or an upstream has handed the request over.
    HandedOver(Box<HandedOver>),
    /// The path of this route with a slash at its end.
    Directory(RouteId),
    /// Another address.
    Moved(Box<Moved>),
    /// The list of the methods that the resource takes.
    Options(&'static [u8]),
    /// The list of the methods that the resource takes; the request's method is not among them.
    NotAllowed(&'static [u8]),
    /// The answer to a challenge of an authority.
    Challenge(Box<str>),
    /// The counters of all workers.
    Metrics,
    /// This part of the operator's page.
    StatusPage(View),
    /// The fixed response of this route: a status that is no error, or a status with a text.
    Fixed(RouteId),
    /// An error with this status, and the reason for the operator.
    Error(Status, Reason),
    /// A refusal by the conditions of the route.
    Refused(Refusal),
    /// A refusal by the authorizer.
    Denied(Box<Denial>),
    /// An error, with a file as its page.
    Paged(Box<Paged>),
    /// No answer yet: the request is not the next of its connection, and a gateway answers it.
    Postponed,
}

/// A file that takes the place of an answer.
#[derive(Debug)]
pub(super) struct HandedOver {
    /// The fields that the client gets instead of the fields of the file.
    pub(super) fields: FieldSection<'static>,
    /// The file, which may have directives.
    pub(super) file: Outcome,
}

/// Another address.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) status: Status,
    pub(super) location: Vec<u8>,
}

/// An error, with a file as its page.
#[derive(Debug)]
pub(super) struct Paged {
    pub(super) error: Outcome,
    pub(super) page: content::PathAnswer,
}

impl Answer {
    /// The memory that the answer keeps.
    pub(super) fn size(&self) -> AnswerSize {
        match &self.outcome {
            Outcome::Content(_, content) => {
                let (shared, holds_files) = content.holds();
                AnswerSize { shared, holds_files, keep: Keep::IfSmall }
            }
            Outcome::Page(page) => includes::size(page),
            Outcome::Program(answer) => Programs::size(answer),
            Outcome::Passed(answer) => Proxy::size(answer),
            Outcome::Recalled(recalled) => recalled.size(),
            // An answer that was handed over cannot be found again without a second request to the upstream.
            Outcome::HandedOver(over) => {
                let (shared, holds_files) = match &over.file {
                    Outcome::Content(_, content) => content.holds(),
                    Outcome::Page(page) => return includes::size(page),
                    _ => unreachable!("a request is handed over to a file"),
                };
                AnswerSize { shared, holds_files, keep: Keep::Always }
            }
            Outcome::Paged(paged) => {
                let (shared, holds_files) = paged.page.holds();
                let keep = match paged.error {
                    Outcome::Refused(_) => Keep::Always,
                    _ => Keep::IfSmall,
                };
                AnswerSize { shared, holds_files, keep }
            }
            // The limits count a request once, so they would let it pass when it is asked about again.
            Outcome::Refused(_) => AnswerSize { keep: Keep::Always, ..AnswerSize::default() },
            Outcome::Postponed => AnswerSize { keep: Keep::Never, ..AnswerSize::default() },
            Outcome::Directory(_)
            | Outcome::Moved(_)
            | Outcome::Options(_)
            | Outcome::NotAllowed(_)
            | Outcome::Challenge(_)
            | Outcome::Metrics
            | Outcome::StatusPage(_)
            | Outcome::Fixed(_)
            | Outcome::Error(..)
            | Outcome::Denied(_) => AnswerSize::default(),
        }
    }
}

impl Router {
    /// Makes the response of an answer, without the fields that its route demands.
    #[inline(always)]
    pub(super) fn respond_with<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        destination: Destination,
        outcome: &'a Outcome,
    ) -> Response<'a> {
        match outcome {
            Outcome::Content(id, content) => {
                let RouteEntry { route, prefix, fields, .. } = serving.entry(*id);
                let Some(files) = route.action.files() else {
                    unreachable!("content is of a route with files")
                };
                files::response(cx, head, prefix, files.rules.policy, fields, content)
            }
            Outcome::Page(page) => includes::response(page),
            Outcome::Program(answer) => cgi::response(head, answer),
            Outcome::Passed(answer) => proxy::response(answer, cx.unix),
            Outcome::Recalled(recalled) => recalled.response(),
            Outcome::HandedOver(over) => self.handed_over(cx, head, serving, destination, over),
            Outcome::Metrics => {
                metrics::response(&self.metrics, &serving.snapshot, cx.now, bare(Status::Ok))
            }
            Outcome::StatusPage(view) => self.status_page(cx, serving, *view),
            Outcome::Paged(paged) => self.paged(cx, head, serving, destination, paged),
            Outcome::Postponed => unreachable!("the session asks again"),
            outcome => {
                let response = plain_response(head, serving, outcome);
                response.unwrap_or_else(|| unreachable!("the others are handled above"))
            }
        }
    }

    /// Makes the response with a part of the operator's page.
    #[inline(never)]
    fn status_page(&self, cx: &Context, serving: &Serving, view: View) -> Response<'static> {
        let Self { viewers, metrics, .. } = self;
        let (board, snapshot) = (viewers.board(), &serving.snapshot);
        viewers.response(cx, view, || metrics::figures(board, metrics, snapshot, cx))
    }

    /// Makes the response of an error whose page is a file.
    #[inline(never)]
    fn paged<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        destination: Destination,
        paged: &'a Paged,
    ) -> Response<'a> {
        let mut response = self.respond_with_inner(cx, head, serving, destination, &paged.error);
        if let content::PathAnswer::Resource(resource) = &paged.page
            && let Kind::File(files) = &resource.kind
        {
            files::dress(head, files, &mut response);
        }
        response
    }

    /// Makes the response of one part of an outcome: an error with the server's own page, or a file.
    #[inline(never)]
    fn respond_with_inner<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        destination: Destination,
        inner: &'a Outcome,
    ) -> Response<'a> {
        self.respond_with(cx, head, serving, destination, inner)
    }

    /// Makes the response of a file with the fields of the upstream that has handed its request over.
    #[inline(never)]
    fn handed_over<'a>(
        &self,
        cx: &mut Context,
        head: &Head<'_>,
        serving: &Serving,
        destination: Destination,
        over: &'a HandedOver,
    ) -> Response<'a> {
        // A file is sent for every method. The conditions of a POST are not about the file.
        let head = &match head.method {
            Method::Get | Method::Head => head.clone(),
            _ => head.without_conditions().with_target(Method::Get, head.target),
        };
        let mut response = self.respond_with_inner(cx, head, serving, destination, &over.file);
        fields::take_over(&over.fields, &mut response.made().head);
        response
    }
}

/// Changes the fields of a response as its route demands, or its site if there is no route.
#[inline(never)]
pub(super) fn add_fields(
    head: &Head<'_>,
    serving: &Serving,
    destination: Destination,
    response: &mut Response<'_>,
) {
    let rules = serving.fields(destination);
    if !rules.is_empty() {
        fields::apply_to(rules, Some(head.target), &mut response.made().head);
    }
}

/// Makes the response of an outcome that nothing but the request and its configuration decides; `None` for others.
#[inline]
pub(super) fn plain_response<'a>(
    head: &Head<'_>,
    serving: &Serving,
    outcome: &'a Outcome,
) -> Option<Response<'a>> {
    Some(match outcome {
        Outcome::Directory(id) => {
            let status = match head.method {
                Method::Get | Method::Head => Status::MovedPermanently,
                // A client that gets a 301 may change POST to GET (RFC 9110 §15.4.2).
                _ => Status::PermanentRedirect,
            };
            files::redirect(status, head, serving.prefix(*id), b"")
        }
        Outcome::Moved(moved) => page::moved(ResponseHead {
            location: Some((&moved.location[..]).into()),
            ..bare(moved.status)
        }),
        Outcome::Options(allow) => {
            let allow = Some((*allow).into());
            Response::bare(ResponseHead { allow, ..bare(Status::NoContent) })
        }
        Outcome::NotAllowed(allow) => not_allowed(allow),
        Outcome::Challenge(answer) => challenge(answer),
        Outcome::Fixed(id) => fixed_response(serving.entry(*id)),
        Outcome::Error(status, _) => page::error(bare(*status)),
        Outcome::Refused(refusal) => refused(*refusal),
        Outcome::Denied(denial) => denied(denial),
        Outcome::Content(..)
        | Outcome::Page(_)
        | Outcome::Program(_)
        | Outcome::Passed(_)
        | Outcome::Recalled(_)
        | Outcome::HandedOver(_)
        | Outcome::Metrics
        | Outcome::StatusPage(_)
        | Outcome::Paged(_)
        | Outcome::Postponed => return None,
    })
}

/// The outcome of a route with a fixed status: an error with its page, unless the route has a text.
pub(super) fn fixed(status: Status, route: &Route, id: RouteId) -> Outcome {
    let has_text = matches!(&route.action, Action::Status(fixed) if fixed.text.is_some());
    match status {
        _ if has_text || status.code() < 400 => Outcome::Fixed(id),
        Status::MethodNotAllowed => Outcome::NotAllowed(ALLOW_NONE),
        status => Outcome::Error(status, Reason::Fixed),
    }
}

/// Makes the response of a route with a fixed status.
pub(super) fn fixed_response(entry: &RouteEntry) -> Response<'static> {
    let (Served::Status(status), Action::Status(fixed)) = (&entry.served, &entry.route.action)
    else {
        unreachable!("a fixed response is of a route with a status")
    };
    let Some(text) = &fixed.text else { return Response::bare(bare(*status)) };
    let head = ResponseHead {
        content_type: Some(b"text/plain; charset=utf-8".into()),
        content_length: Some(text.len() as u64),
        allow: (*status == Status::MethodNotAllowed).then(|| ALLOW_NONE.into()),
        nosniff: true,
        ..bare(*status)
    };
    Response::new(head, Body::from(Part::Piece(Piece::Bytes(text.clone().into_bytes()))))
}

/// Makes the response with the answer to a challenge (RFC 8555 §8.3).
#[cold]
pub(super) fn challenge(answer: &str) -> Response<'static> {
    let head = ResponseHead {
        content_type: Some(b"application/octet-stream".into()),
        content_length: Some(answer.len() as u64),
        cache_control: Some(b"no-store".into()),
        nosniff: true,
        ..bare(Status::Ok)
    };
    Response::new(head, Body::from(Part::Piece(Piece::Bytes(answer.as_bytes().to_vec()))))
}

/// Makes the response to a request whose method is not among the allowed methods.
pub(super) fn not_allowed(allow: &'static [u8]) -> Response<'static> {
    let mut response = page::error(bare(Status::MethodNotAllowed));
    // The head of the page would name the methods of files.
    response.made().head.allow = Some(allow.into());
    response
}

/// Makes the response to a request that the authorizer has refused.
#[cold]
pub(super) fn denied(denial: &Denial) -> Response<'static> {
    let mut response = page::error(bare(denial.status));
    let extra = &mut response.made().head.extra;
    denial.fields.fields().for_each(|(name, value)| extra.push(name, value));
    response
}

/// Makes the response to a request that the conditions of its route refuse.
pub(super) fn refused(refusal: Refusal) -> Response<'static> {
    let (reason, retry_after) = match refusal {
        Refusal::Forbidden => ("this address may not use it", None),
        Refusal::Conflict => ("Forwarded and X-Forwarded-For name different clients", None),
        Refusal::Connections => ("this address has too many connections", Some(1)),
        Refusal::Requests(seconds) => ("this address asks too often", Some(seconds.get())),
        Refusal::BodyTooLong => ("its body is too long", None),
        Refusal::Outdated => ("the rules of its connection have changed; connect again", None),
    };
    let status = refusal.status();
    let mut head = bare(status);
    if let Some(seconds) = retry_after {
        head.extra.push(b"Retry-After", seconds.to_string().as_bytes());
    }
    let mut response = page::refused(Reject { status, reason }, head);
    response.terms.is_last =
        matches!(refusal, Refusal::Connections | Refusal::BodyTooLong | Refusal::Outdated);
    response
}

/// The methods that a route takes itself (RFC 9110 §10.2.1). A script accepts more methods than a file of its route.
pub(super) const fn allowed(served: &Served) -> &'static [u8] {
    match served {
        Served::Status(_) => ALLOW_NONE,
        Served::Redirect | Served::Programs(_) | Served::Proxy(_) | Served::Scripts { .. } => {
            ALLOW_MOST
        }
        Served::Files { .. } | Served::Metrics | Served::StatusPage => ALLOW,
    }
}

/// Returns true if a route may accept a method that files do not accept.
pub(super) fn takes(served: &Served, method: &Method<'_>) -> bool {
    match served {
        Served::Status(_) | Served::Programs(_) | Served::Proxy(_) | Served::Scripts { .. } => true,
        Served::Redirect => method.is_known(),
        Served::Files { .. } | Served::Metrics | Served::StatusPage => false,
    }
}

/// The outcome for a method that a resource does not accept; the resource accepts the methods of `allow`. A method that
/// the server supports for no resource is not implemented (RFC 9110 §15.5.6, §15.6.2).
pub(super) fn not_taken(method: &Method<'_>, allow: &'static [u8]) -> Outcome {
    if method.is_known() {
        Outcome::NotAllowed(allow)
    } else {
        Outcome::Error(Status::NotImplemented, Reason::Method)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::serving;
    use super::*;

    #[test]
    fn rfc9110_10_2_1_the_methods_of_a_route_are_those_that_it_takes() {
        let routes = [
            ("/files/", "files", ALLOW),
            ("/metrics", "metrics", ALLOW),
            ("/status-page", "status-page", ALLOW),
            ("/redirect", "redirect", ALLOW_MOST),
            ("/cgi/", "cgi", ALLOW_MOST),
            ("/proxy/", "proxy", ALLOW_MOST),
            ("/fastcgi/", "fastcgi", ALLOW_MOST),
            ("/php/", "php", ALLOW_MOST),
            ("/status", "status", ALLOW_NONE),
        ];
        let serving = serving(&routes.map(|(path, action, _)| (path, action)));
        for (index, (path, _, expected)) in routes.iter().enumerate() {
            assert_eq!(allowed(&serving.entry(RouteId::new(index)).served), *expected, "{path}");
        }
    }

    #[test]
    fn rfc9110_15_6_2_a_method_that_no_resource_takes_is_not_implemented() {
        for (method, status, allow) in [
            (Method::Post, 405, Some(ALLOW)),
            (Method::Trace, 405, Some(ALLOW)),
            (Method::Connect, 405, Some(ALLOW)),
            (Method::Other(b"BREW"), 501, None),
            (Method::Other(b"get"), 501, None),
        ] {
            let outcome = not_taken(&method, ALLOW);
            assert_eq!(outcome.error().map(Status::code), Some(status), "{method:?}");
            let named = if let Outcome::NotAllowed(allow) = outcome { Some(allow) } else { None };
            assert_eq!(named, allow, "{method:?}");
        }
    }
}

//! The handler for files and directories.

use std::io;
use std::rc::Rc;

use http::{
    ContentRange, Field, Head, Method, Plan, Representation, ResponseHead, Status, Target,
    Validators, encoding, negotiate, path,
};
use media::Layout;
use ring::{Completion, Fd, Listing};
use sendfile::{Caching, Piece, Window};

use super::listing::ListingProducer;
use super::page::{self, ALLOW};
use super::{AnswerSize, Body, Found, Handler, Part, Request, Response, Ticket};
use crate::content::{self, Answer, Content, FileSet, Kind, Policy, Resource, Site, Whole};
use crate::context::Context;
use crate::shell::{Shell, kind};
use crate::site::SiteId;

/// The files of all sites.
#[derive(Debug)]
pub struct Files {
    content: Content,
}

impl Handler for Files {
    type Answer = Answer;

    #[inline]
    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Answer> {
        let head = request.head;
        match (head.method, head.target) {
            (Method::Get | Method::Head, Target::Origin { path, .. }) => {
                let site = shell.cx.sites.route(head);
                match self.content.find(shell, site, path, request.ticket) {
                    content::Found::Now(answer) => Found::Now(answer),
                    content::Found::Later => Found::Later(None),
                }
            }
            (Method::Get | Method::Head, Target::Asterisk) => {
                Found::Now(Answer::Error(Status::BadRequest))
            }
            (Method::Options, _) => Found::Now(Answer::Options),
            (method, _) if method.is_known() => Found::Now(Answer::Error(Status::MethodNotAllowed)),
            _ => Found::Now(Answer::Error(Status::NotImplemented)),
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        let (shared, holds_files) = answer.holds();
        AnswerSize { shared, holds_files, unique: false }
    }

    #[inline]
    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        match answer {
            Answer::Resource(resource) => match &resource.kind {
                Kind::File(files) => file(cx, head, files),
                Kind::Redirect => redirect(head, resource),
                Kind::Directory(entries) => listing(cx, head, resource, entries),
            },
            Answer::Options => Response::bare(ResponseHead {
                allow: Some(ALLOW.into()),
                ..bare(Status::NoContent)
            }),
            Answer::Error(status) => page::error(bare(*status)),
            Answer::Rejected(reject) => page::refused(*reject, bare(reject.status)),
        }
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        match completion.token & kind::MASK {
            kind::LOAD => self.content.handle_load(shell, completion),
            kind::LAYOUT => self.content.handle_layout(shell, completion),
            kind::WATCH => self.content.handle_watch(shell, completion),
            kind::TIDY => self.content.handle_tidy(shell, &completion),
            kind::WAKE => self.content.handle_wake(shell),
            _ => unreachable!("no operation has the token {:x}", completion.token),
        }
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        self.content.answers.pop_front()
    }
}

impl Files {
    /// Serves the root directory of each site; at most `descriptors_max` files stay open.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If there is not one root for each site of the worker.
    pub fn new(roots: Vec<Fd>, descriptors_max: usize, shell: &Shell) -> io::Result<Self> {
        let Context { tuning, sites, .. } = &shell.cx;
        assert_eq!(roots.len(), sites.len(), "a site has one root");
        let policy = Policy {
            index: tuning.index.clone(),
            listing: tuning.listing,
            keep: tuning.policy.caching != Caching::Never,
            tags: tuning.tags,
        };
        let account = shell.cx.budget.shared.clone();
        let site = |root| Site { root, policy: policy.clone() };
        let sites = roots.into_iter().map(site).collect();
        Ok(Self { content: Content::new(sites, descriptors_max, account)? })
    }

    /// Serves a site from another directory from now on. Responses that have begun are completed
    /// from the old one.
    pub(crate) fn replace_root(&mut self, shell: &mut Shell, site: SiteId, root: Fd) {
        self.content.replace_root(shell, site, root);
    }
}

fn bare(status: Status) -> ResponseHead<'static> {
    ResponseHead { server: Some(crate::NAME.into()), ..ResponseHead::new(status) }
}

#[inline]
fn file<'a>(cx: &mut Context, head: &Head<'_>, files: &'a FileSet) -> Response<'a> {
    let coding = if files.codings.is_empty() {
        None
    } else {
        encoding::choose(head.lines(Field::AcceptEncoding), files.codings)
    };
    let whole = Whole::new(files, coding, policy_at(cx, files, 0));
    if asks_more(head) { part(cx, head, files, whole) } else { Response::whole(whole) }
}

/// The response to a request with conditions or ranges.
fn part<'a>(cx: &mut Context, head: &Head<'_>, files: &FileSet, whole: Whole<'a>) -> Response<'a> {
    let variant = whole.variant();
    let size = variant.stat.size;
    let representation = Representation {
        size,
        validators: Validators { etag: &variant.etag, last_modified: Some(variant.stat.mtime) },
    };
    match http::plan(head, &representation, cx.unix) {
        Plan::Full => {
            let body = Body::from(Part::of(variant, 0..size, whole.policy()));
            Response::new(whole.head(), body)
        }
        Plan::Partial(range) => {
            let mut head = whole.head();
            head.status = Status::PartialContent;
            head.content_length = Some(range.len());
            head.content_range = Some(ContentRange::Part { range, size });
            let range = range.start..range.start + range.len();
            let policy = policy_at(cx, files, range.start);
            Response::new(head, Body::from(Part::of(variant, range, policy)))
        }
        Plan::Multipart(multipart) => {
            // The author of a file must not be able to put the boundary into the file.
            let token = cx.next_token();
            let wrapping = multipart.wrapping(files.content_type.as_bytes(), token);
            let head = ResponseHead {
                status: Status::PartialContent,
                content_type: Some(wrapping.content_type().into()),
                content_length: Some(wrapping.content_length()),
                ..whole.head()
            };
            let mut body = Body::EMPTY;
            for part in wrapping.parts() {
                let range = part.range.start..part.range.start + part.range.len();
                body.push(Part::Piece(Piece::Bytes(part.head)));
                let policy = policy_at(cx, files, range.start);
                body.push(Part::of(variant, range, policy));
            }
            body.push(Part::Piece(Piece::Bytes(wrapping.end().to_vec())));
            Response::new(head, body)
        }
        Plan::NotModified => {
            let mut head = whole.head();
            head.status = Status::NotModified;
            (head.content_type, head.content_length) = (None, None);
            Response::bare(head)
        }
        Plan::PreconditionFailed => page::error(bare(Status::PreconditionFailed)),
        Plan::Unsatisfiable => page::explained(ResponseHead {
            content_range: Some(ContentRange::Unsatisfied { size }),
            accept_ranges: true,
            ..bare(Status::RangeNotSatisfiable)
        }),
    }
}

/// The treatment of a file from an offset on. A film is prefetched as far as it will be played soon.
#[inline]
fn policy_at(cx: &Context, files: &FileSet, offset: u64) -> sendfile::Policy {
    let policy = cx.tuning.policy;
    match &files.layout {
        Some(layout) => paced(policy, layout.get(), offset),
        None => policy,
    }
}

/// A layout that is not known yet gives the smallest window; one that does not tell the rate gives none.
#[inline(never)]
fn paced(
    policy: sendfile::Policy,
    layout: Option<&Option<Layout>>,
    offset: u64,
) -> sendfile::Policy {
    let expected = match layout {
        None => Some(0),
        Some(layout) => layout.as_ref().and_then(|layout| expected(layout, offset)),
    };
    let window = expected.map_or(policy.window, |bytes| policy.window.paced(bytes));
    sendfile::Policy { window, ..policy }
}

/// The bytes that a player takes in [`Window::PACE`]: from here, or elsewhere if that is more, because
/// it goes on.
fn expected(layout: &Layout, offset: u64) -> Option<u64> {
    let ms = u64::try_from(Window::PACE.as_millis()).ok()?;
    let mean = layout.bytes_per_second()?.checked_mul(Window::PACE.as_secs());
    Some(layout.window(offset, ms)?.max(mean.unwrap_or(u64::MAX)))
}

/// Redirects a request for a directory without its slash to the path with a slash.
fn redirect<'a>(head: &Head<'_>, resource: &Resource) -> Response<'a> {
    let mut location = Vec::with_capacity(resource.path.len() + 8);
    location.push(b'/');
    path::encode(&resource.path, &mut location);
    location.push(b'/');
    if let Target::Origin { query: Some(query), .. } = head.target {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    page::explained(ResponseHead {
        location: Some(location.into()),
        ..bare(Status::MovedPermanently)
    })
}

fn listing<'a>(
    cx: &Context,
    head: &Head<'_>,
    resource: &Rc<Resource>,
    entries: &Rc<Listing>,
) -> Response<'a> {
    if cx.budget.is_spent() {
        return page::error(bare(Status::ServiceUnavailable));
    }
    let json = negotiate::prefers_json(head.lines(Field::Accept));
    let producer = ListingProducer::new(resource, entries, json);
    let head = ResponseHead {
        content_type: Some(producer.content_type().as_bytes().into()),
        cache_control: Some(b"no-cache".into()),
        vary: Some(b"Accept".into()),
        nosniff: true,
        ..bare(Status::Ok)
    };
    Response::new(head, Body::from(Part::Producer(Box::new(producer))))
}

/// Returns whether a request has conditions or ranges.
fn asks_more(head: &Head<'_>) -> bool {
    head.has_any(&[
        Field::Range,
        Field::IfNoneMatch,
        Field::IfModifiedSince,
        Field::IfMatch,
        Field::IfUnmodifiedSince,
    ])
}

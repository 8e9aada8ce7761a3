//! Files and directories, as a handler.

use core::ops::Range;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use http::{
    ContentRange, Field, Head, Method, Plan, Representation, ResponseHead, Status, Target,
    Validators, encoding, negotiate, path,
};
use ring::{Completion, Fd, Listing};

use super::listing::ListingProducer;
use super::page::{self, ALLOW};
use super::{AnswerSize, Body, Found, Handler, Part, Response, Ticket};
use crate::content::{
    self, Answer, Content, Data, FileSet, Kind, Policy, Resource, Variant, resource_head,
};
use crate::context::Context;
use crate::shell::{Shell, kind};

/// The files below directories.
#[derive(Debug)]
pub struct Files {
    content: Content,
    answers: VecDeque<(Ticket, Answer)>,
}

impl Handler for Files {
    type Answer = Answer;

    #[inline]
    fn find(&mut self, shell: &mut Shell, head: &Head<'_>, ticket: Ticket) -> Found<Answer> {
        match (head.method, head.target) {
            (Method::Get | Method::Head, Target::Origin { path, .. }) => {
                match self.content.find(shell, path, ticket) {
                    content::Found::Now(answer) => Found::Now(answer),
                    content::Found::Later => Found::Later,
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
        match answer {
            Answer::Resource(resource) => {
                AnswerSize { shared: resource.memory as u64, holds_files: resource.descriptors > 0 }
            }
            Answer::Options | Answer::Error(_) | Answer::Rejected(_) => AnswerSize::default(),
        }
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
            kind::WATCH => self.content.handle_watch(shell, completion),
            kind::TIDY => self.content.handle_tidy(shell, &completion),
            kind::WAKE => self.content.handle_wake(shell),
            _ => unreachable!("no operation has the token {:x}", completion.token),
        }
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        if self.answers.is_empty() {
            self.answers.extend(self.content.answers.drain(..));
        }
        self.answers.pop_front()
    }
}

impl Files {
    pub(crate) fn new(root: Fd, policy: Policy, shell: &Shell) -> io::Result<Self> {
        let content = Content::new(root, policy, shell.cx.budget.shared.clone())?;
        Ok(Self { content, answers: VecDeque::new() })
    }

    /// Serves another directory from now on. What is under way is finished from the one before.
    pub(crate) fn replace_root(&mut self, shell: &mut Shell, root: Fd) {
        self.content.replace_root(shell, root);
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
    let variant = files.variant(coding);
    let size = variant.stat.size;
    let base = ResponseHead {
        content_length: Some(size),
        ..resource_head(&variant.stat, &variant.etag, coding, &files.content_type, files.vary())
    };
    if !asks_more(head) {
        let body = body(variant, 0..size);
        return Response { head: base, body, finished: Some(&variant.finished) };
    }
    let representation = Representation {
        size,
        validators: Validators { etag: &variant.etag, last_modified: Some(variant.stat.mtime) },
    };
    match http::plan(head, &representation, cx.unix) {
        Plan::Full => Response { head: base, body: body(variant, 0..size), finished: None },
        Plan::Partial(range) => Response {
            head: ResponseHead {
                status: Status::PartialContent,
                content_length: Some(range.len()),
                content_range: Some(ContentRange::Part { range, size }),
                ..base
            },
            body: body(variant, range.start..range.start + range.len()),
            finished: None,
        },
        Plan::Multipart(multipart) => {
            // The writer of a file must not be able to put the boundary into it.
            let token = cx.next_token();
            let wrapping = multipart.wrapping(files.content_type.as_bytes(), token);
            let head = ResponseHead {
                status: Status::PartialContent,
                content_type: Some(wrapping.content_type().into()),
                content_length: Some(wrapping.content_length()),
                ..base
            };
            let mut body = Body::EMPTY;
            for part in wrapping.parts() {
                body.push(Part::Piece(sendfile::Piece::Bytes(part.head)));
                body.push(range(variant, part.range.start..part.range.start + part.range.len()));
            }
            body.push(Part::Piece(sendfile::Piece::Bytes(wrapping.end().to_vec())));
            Response { head, body, finished: None }
        }
        Plan::NotModified => Response::bare(ResponseHead {
            status: Status::NotModified,
            content_type: None,
            content_length: None,
            ..base
        }),
        Plan::PreconditionFailed => page::error(bare(Status::PreconditionFailed)),
        Plan::Unsatisfiable => page::explained(ResponseHead {
            content_range: Some(ContentRange::Unsatisfied { size }),
            accept_ranges: true,
            ..bare(Status::RangeNotSatisfiable)
        }),
    }
}

fn body(variant: &Variant, of: Range<u64>) -> Body {
    Body::from(range(variant, of))
}

fn range(variant: &Variant, range: Range<u64>) -> Part {
    match &variant.data {
        Data::File(file) => Part::File(Rc::clone(file), range),
        Data::Memory => Part::Piece(variant.finished.part(range)),
    }
}

/// Sends the client of a directory without its slash to the right address.
fn redirect<'a>(head: &Head<'_>, resource: &Resource) -> Response<'a> {
    let mut location = Vec::with_capacity(resource.key.len() + 8);
    location.push(b'/');
    path::encode(&resource.key, &mut location);
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
    Response {
        head: ResponseHead {
            content_type: Some(producer.content_type().as_bytes().into()),
            cache_control: Some(b"no-cache".into()),
            vary: Some(b"Accept".into()),
            nosniff: true,
            ..bare(Status::Ok)
        },
        body: Body::from(Part::Producer(Box::new(producer))),
        finished: None,
    }
}

/// Whether a request asks for anything but the whole file, now.
fn asks_more(head: &Head<'_>) -> bool {
    head.has_any(&[
        Field::Range,
        Field::IfNoneMatch,
        Field::IfModifiedSince,
        Field::IfMatch,
        Field::IfUnmodifiedSince,
    ])
}

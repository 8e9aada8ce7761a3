//! What is sent for a request whose resource is known.

use std::rc::Rc;

use http::{
    Coding, ContentRange, Field, Head, Method, Plan, Representation, ResponseHead, Status, Target,
    Validators, Version, encoding, negotiate, path,
};
use http1::write::{self, ConnectionOption, Wire};
use sendfile::Piece;

use crate::connection::{Connection, Listing, Work};
use crate::content::{
    Answer, Data, FileSet, Kind, ListingStream, Resource, Variant, resource_head,
};
use crate::log::Record;
use crate::shell::Shell;

/// What a static server can do.
const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";
/// What invites the body of a request (RFC 9110 §15.2.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A request being answered, and where the answer goes.
struct Response<'a, 'h> {
    shell: &'a mut Shell,
    work: &'a mut Work,
    head: Option<&'a Head<'h>>,
    /// Whether the connection closes after it.
    last: bool,
}

impl Connection {
    /// Put the answer to a request into the stream.
    pub(crate) fn respond(
        &mut self,
        shell: &mut Shell,
        work: &mut Work,
        head: &Head<'_>,
        answer: &Answer,
        expect_continue: bool,
        last: bool,
    ) {
        if expect_continue {
            work.stream.push(Piece::Static(CONTINUE));
        }
        if Response::new(shell, work, Some(head), last).answer(answer) {
            self.end_after(work);
        }
    }

    /// Put the answer to what was no request into the stream.
    pub(crate) fn respond_without_request(
        &self,
        shell: &mut Shell,
        work: &mut Work,
        answer: &Answer,
    ) {
        Response::new(shell, work, None, true).answer(answer);
    }
}

impl<'a, 'h> Response<'a, 'h> {
    const fn new(
        shell: &'a mut Shell,
        work: &'a mut Work,
        head: Option<&'a Head<'h>>,
        last: bool,
    ) -> Self {
        Self { shell, work, head, last }
    }

    /// Says whether the connection closes after it.
    fn answer(mut self, answer: &Answer) -> bool {
        self.shell.stats.responses += 1;
        match answer {
            Answer::Resource(resource) => match &resource.kind {
                Kind::File(files) => self.file(files),
                Kind::Redirect => self.redirect(resource),
                Kind::Directory(listing) => {
                    let json = self
                        .head
                        .is_some_and(|head| negotiate::prefers_json(head.lines(Field::Accept)));
                    let pieces = ListingStream::new(listing.clone(), &resource.key, json);
                    self.listing(pieces, resource);
                }
            },
            Answer::Options => {
                let head =
                    ResponseHead { allow: Some(ALLOW.into()), ..Self::bare(Status::NoContent) };
                self.send_head(&head, 0);
            }
            Answer::Error(status) => self.error(*status),
            Answer::Rejected(reject) => {
                self.refuse(reject.status, &format!("The request was refused: {}.", reject.reason));
            }
        }
        self.last
    }

    fn is_head(&self) -> bool {
        self.head.is_some_and(|head| head.method == Method::Head)
    }

    fn connection(&self) -> ConnectionOption {
        if self.last {
            ConnectionOption::Close
        } else if self.head.is_some_and(|head| head.version == Version::Http10) {
            ConnectionOption::KeepAlive
        } else {
            ConnectionOption::Unsaid
        }
    }

    fn bare(status: Status) -> ResponseHead<'static> {
        ResponseHead { server: Some(crate::NAME.into()), ..ResponseHead::new(status) }
    }

    fn file(&mut self, files: &FileSet) {
        let Some(head) = self.head else { unreachable!("a file is found for a request only") };
        let coding = if files.codings.is_empty() {
            None
        } else {
            encoding::choose(head.lines(Field::AcceptEncoding), files.codings)
        };
        let variant = files.variant(coding);
        if !asks_more(head) && self.connection() == ConnectionOption::Unsaid {
            return self.finished(variant);
        }
        let representation = Representation {
            size: variant.stat.size,
            validators: Validators {
                etag: &variant.etag,
                last_modified: Some(variant.last_modified()),
            },
        };
        let plan = http::plan(head, &representation, self.shell.unix);
        self.planned(files, variant, coding, plan);
    }

    /// The usual response, made before.
    fn finished(&mut self, variant: &Variant) {
        let record = self.record(Status::Ok, variant.stat.size);
        let (finished, is_head) = (&variant.finished, self.is_head());
        let stream = &mut self.work.stream;
        let body_at = stream.promised() + finished.head_len as u64;
        finished.send(self.shell.unix, &self.shell.date, !is_head, |piece| stream.push(piece));
        if let (Data::File(file), false) = (&variant.data, is_head) {
            stream.push_file(file, 0..file.size());
        }
        self.end(record, body_at);
    }

    fn planned(&mut self, files: &FileSet, variant: &Variant, coding: Option<Coding>, plan: Plan) {
        let size = variant.stat.size;
        let base = ResponseHead {
            // Not later than the date of the message (RFC 9110 §8.8.2.1).
            last_modified: Some(variant.last_modified().min(self.shell.unix)),
            ..resource_head(&variant.stat, &variant.etag, coding, &files.content_type, files.vary())
        };
        match plan {
            Plan::Full => {
                let head = ResponseHead { content_length: Some(size), ..base };
                self.send_file(&head, variant, size, 0..size);
            }
            Plan::Partial(range) => {
                let head = ResponseHead {
                    status: Status::PartialContent,
                    content_length: Some(range.len()),
                    content_range: Some(ContentRange::Part { range, size }),
                    ..base
                };
                self.send_file(&head, variant, range.len(), range.start..range.start + range.len());
            }
            Plan::Multipart(multipart) => {
                // The writer of a file must not be able to put the boundary into it.
                let token = self.shell.next_token();
                let wrapping = multipart.wrapping(files.content_type.as_bytes(), token);
                let content_type = wrapping.content_type();
                let length = wrapping.content_length();
                let head = ResponseHead {
                    status: Status::PartialContent,
                    content_type: Some(content_type.into()),
                    content_length: Some(length),
                    ..base
                };
                let (record, body_at) = self.push_head(&head, false, length);
                if !self.is_head() {
                    for part in wrapping.parts() {
                        self.work.stream.push(Piece::Bytes(part.head));
                        let range = part.range.start..part.range.start + part.range.len();
                        self.push_range(variant, range);
                    }
                    self.work.stream.push(Piece::Bytes(wrapping.end().to_vec()));
                }
                self.end(record, body_at);
            }
            Plan::NotModified => {
                let head = ResponseHead { status: Status::NotModified, content_type: None, ..base };
                self.send_head(&head, 0);
            }
            Plan::PreconditionFailed => self.error(Status::PreconditionFailed),
            Plan::Unsatisfiable => {
                let body =
                    page(Status::RangeNotSatisfiable, explanation(Status::RangeNotSatisfiable));
                let head = ResponseHead {
                    content_type: Some(HTML.into()),
                    content_length: Some(body.len() as u64),
                    content_range: Some(ContentRange::Unsatisfied { size }),
                    accept_ranges: true,
                    ..Self::bare(Status::RangeNotSatisfiable)
                };
                self.send_bytes(&head, body);
            }
        }
    }

    fn redirect(&mut self, resource: &Resource) {
        let mut location = Vec::with_capacity(resource.key.len() + 8);
        location.push(b'/');
        path::encode(&resource.key, &mut location);
        location.push(b'/');
        if let Some(Head { target: Target::Origin { query: Some(query), .. }, .. }) = self.head {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let body = page(Status::MovedPermanently, explanation(Status::MovedPermanently));
        let head = ResponseHead {
            location: Some(location.into()),
            content_type: Some(HTML.into()),
            content_length: Some(body.len() as u64),
            ..Self::bare(Status::MovedPermanently)
        };
        self.send_bytes(&head, body);
    }

    fn listing(&mut self, pieces: ListingStream, resource: &Rc<Resource>) {
        if self.shell.budget.is_spent() {
            return self.error(Status::ServiceUnavailable);
        }
        let chunked = self.head.is_some_and(|head| head.version == Version::Http11);
        // Without chunks the end of the body is the end of the connection.
        self.last |= !chunked;
        let head = ResponseHead {
            content_type: Some(pieces.content_type().as_bytes().into()),
            cache_control: Some(b"no-cache".into()),
            vary: Some(b"Accept".into()),
            nosniff: true,
            ..Self::bare(Status::Ok)
        };
        let (record, body_at) = self.push_head(&head, chunked, u64::MAX);
        if self.is_head() {
            self.end(record, body_at);
        } else {
            let record = record.map(|record| at(record, body_at));
            let resource = Rc::clone(resource);
            self.work.listing = Some(Listing { pieces, resource, chunked, record });
        }
    }

    fn error(&mut self, status: Status) {
        self.refuse(status, explanation(status));
    }

    fn refuse(&mut self, status: Status, sentence: &str) {
        let body = page(status, sentence);
        let head = ResponseHead {
            content_type: Some(HTML.into()),
            content_length: Some(body.len() as u64),
            allow: (status == Status::MethodNotAllowed).then_some(ALLOW.into()),
            nosniff: true,
            ..Self::bare(status)
        };
        self.send_bytes(&head, body);
    }

    fn send_head(&mut self, head: &ResponseHead<'_>, body_bytes: u64) {
        let (record, body_at) = self.push_head(head, false, body_bytes);
        self.end(record, body_at);
    }

    fn send_bytes(&mut self, head: &ResponseHead<'_>, body: Vec<u8>) {
        let (record, body_at) = self.push_head(head, false, body.len() as u64);
        if !self.is_head() {
            self.work.stream.push(Piece::Bytes(body));
        }
        self.end(record, body_at);
    }

    fn send_file(
        &mut self,
        head: &ResponseHead<'_>,
        variant: &Variant,
        length: u64,
        range: core::ops::Range<u64>,
    ) {
        let (record, body_at) = self.push_head(head, false, length);
        if !self.is_head() {
            self.push_range(variant, range);
        }
        self.end(record, body_at);
    }

    fn push_range(&mut self, variant: &Variant, range: core::ops::Range<u64>) {
        match &variant.data {
            Data::File(file) => self.work.stream.push_file(file, range),
            Data::Memory => self.work.stream.push(variant.finished.part(range)),
        }
    }

    fn push_head(
        &mut self,
        head: &ResponseHead<'_>,
        chunked: bool,
        body_bytes: u64,
    ) -> (Option<Box<Record>>, u64) {
        let mut bytes = Vec::new();
        let wire = Wire { connection: self.connection(), chunked };
        write::response_head(head, &self.shell.date, wire, &mut bytes);
        let record = self.record(head.status, body_bytes);
        self.work.stream.push(Piece::Bytes(bytes));
        (record, self.work.stream.promised())
    }

    /// The response is in the stream; `body_at` is where its body begins.
    fn end(&mut self, record: Option<Box<Record>>, body_at: u64) {
        self.work.end_response(record.map(|record| at(record, body_at)));
    }

    fn record(&self, status: Status, body_bytes: u64) -> Option<Box<Record>> {
        self.shell.access.as_ref()?;
        let field =
            |field| self.head.and_then(|head| head.field(field)).unwrap_or_default().to_vec();
        Some(Box::new(Record {
            unix: self.shell.unix,
            began: self.shell.now,
            request: self.head.map_or_else(|| b"-".to_vec(), request_line),
            status: status.code(),
            referer: field(Field::Referer),
            user_agent: field(Field::UserAgent),
            body_at: 0,
            body_bytes: if self.is_head() { 0 } else { body_bytes },
        }))
    }
}

fn at(mut record: Box<Record>, body_at: u64) -> Box<Record> {
    record.body_at = body_at;
    record
}

/// Whether a request asks for anything but the whole file, now.
fn asks_more(head: &Head<'_>) -> bool {
    [
        Field::Range,
        Field::IfNoneMatch,
        Field::IfModifiedSince,
        Field::IfMatch,
        Field::IfUnmodifiedSince,
    ]
    .into_iter()
    .any(|field| head.has(field))
}

fn request_line(head: &Head<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    head.request_line(&mut line);
    line
}

const HTML: &[u8] = b"text/html; charset=utf-8";

/// What a status means here, for the person in front of the browser.
const fn explanation(status: Status) -> &'static str {
    match status {
        Status::MovedPermanently => "This is a directory: its address ends in a slash.",
        Status::BadRequest => "There can be no such address.",
        Status::Forbidden => "The server may not read this.",
        Status::NotFound => "There is nothing by this name.",
        Status::MethodNotAllowed => "Files can be read here, and nothing else.",
        Status::PreconditionFailed => "The file is not what the request takes it for.",
        Status::UriTooLong => "The address is too long.",
        Status::RangeNotSatisfiable => "The file ends before that.",
        Status::InternalServerError => "The disk could not be read.",
        Status::NotImplemented => "The server does not know this method.",
        Status::ServiceUnavailable => {
            "The server has too much open at the moment. Please try again."
        }
        _ => "The request could not be answered.",
    }
}

/// A page that says what happened. `sentence` is one of our own.
fn page(status: Status, sentence: &str) -> Vec<u8> {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status}</title>\
         <style>body{{font:1rem/1.5 system-ui,sans-serif;margin:4rem auto;max-width:40rem;\
         padding:0 1rem;color-scheme:light dark}}</style></head>\n\
         <body><h1>{status}</h1><p>{sentence}</p></body></html>\n"
    )
    .into_bytes()
}

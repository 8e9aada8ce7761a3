//! The protocol in which an upstream is asked: HTTP/1.1 or FastCGI.

use core::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use http::{FieldSection, Framing, Head, Method, Status};
use http1::client::{self, Event};
use http1::{Limits, write};
use sendfile::Piece;

use super::location::Mapping;
use super::request::{self, Forwarding, TooLong, Written};
use super::response::{self, Asked, Meaning, Now, Passed};
use super::trailers;
use crate::cgi::response::Parser;
use crate::fastcgi::{self, Script};
use crate::programs::environment::Environment;
use config::{RequestHeader, ServerUrl};
use session::handler::Interim;
use upstream::Link;

/// One request in the protocol of its upstream, and the reader of the response.
#[derive(Debug)]
pub struct Wire {
    framing: Framing,
    /// The status with which the request is answered if it is sent to no server.
    pub(super) refusal: Option<Status>,
    protocol: Protocol,
}

/// A protocol with its state of the request.
#[derive(Debug)]
enum Protocol {
    Http(Http),
    Fastcgi(Box<Script>),
}

#[derive(Debug)]
struct Http {
    /// The head of the request as it is sent, perhaps several times.
    head: Rc<Vec<u8>>,
    /// The range of the route's path in the head.
    prefix: Range<usize>,
    /// The route's own fields in the head, if there are some.
    fields: Option<Arc<[RequestHeader]>>,
    is_head: bool,
    asked: Asked,
    client: client::Connection,
}

/// The part of the response that some input has completed.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    /// No complete part; more bytes are needed.
    Partial,
    /// A part that the exchange does not need.
    Nothing,
    /// The head of the response, with the first bytes of the content.
    Head { meaning: Meaning, has_content: bool, content: &'a [u8] },
    /// An interim response for the client. The final response follows.
    Interim(Interim),
    /// More of the content.
    Content(&'a [u8]),
    /// A field of the trailer section for the client: name and value.
    Trailer(&'a [u8], &'a [u8]),
    /// The trailer section is too long for the client to get it.
    NoTrailers,
    /// More of a text for the operator.
    Text(&'a [u8]),
    /// The end of the response.
    End,
    /// The upstream has too much to do, and has not begun the request.
    Overloaded,
    /// The upstream has failed, for this reason.
    Faulty(&'static str),
}

impl Wire {
    /// A request to an upstream that speaks HTTP. Its head replaces the contents of `text`.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the head would be too long.
    ///
    /// # Panics
    ///
    /// If something else refers to `text`.
    pub fn http<'a>(
        head: &Head<'_>,
        how: &Forwarding<'a>,
        mut text: Rc<Vec<u8>>,
    ) -> Result<Self, TooLong<'a>> {
        let written = Rc::get_mut(&mut text).expect("nothing else refers to it");
        written.clear();
        let Written { prefix, refusal } = request::write(head, written, how)?;
        let protocol = Protocol::Http(Http {
            head: text,
            prefix,
            fields: how.fields.cloned(),
            is_head: head.method == Method::Head,
            asked: Asked::of(head),
            client: client::Connection::new(),
        });
        Ok(Self { framing: head.framing, refusal, protocol })
    }

    /// A request for a script of a FastCGI application. If `keeps`, the application leaves the connection open.
    pub fn fastcgi(
        head: &Head<'_>,
        environment: Environment,
        keeps: bool,
        limits: &Limits,
    ) -> Self {
        let framing = head.framing;
        let parser = Parser::within(limits);
        let script = Script::new(environment, framing.has_content(), keeps, parser);
        let refusal = request::refusal(head);
        Self { framing, refusal, protocol: Protocol::Fastcgi(Box::new(script)) }
    }

    /// The response has begun and may last: the memory of the head goes, unless it still has to be sent.
    pub(super) fn let_go(&mut self) {
        if let Protocol::Http(http) = &mut self.protocol
            && let Some(head) = Rc::get_mut(&mut http.head)
        {
            *head = Vec::new();
        }
    }

    /// The memory of the head for another request, unless it still has to be sent.
    pub(super) fn into_text(self) -> Option<Rc<Vec<u8>>> {
        match self.protocol {
            Protocol::Http(http) => Some(http.head).filter(|head| Rc::strong_count(head) == 1),
            Protocol::Fastcgi(_) => None,
        }
    }

    /// Bytes of memory of the request.
    pub(super) fn memory(&self) -> usize {
        match &self.protocol {
            Protocol::Http(http) => http.head.capacity() + http.asked.memory(),
            Protocol::Fastcgi(script) => script.memory(),
        }
    }

    /// Returns true if a body is sent.
    pub(super) fn has_body(&self) -> bool {
        self.framing.has_content()
    }

    /// Sets the length of the body, if it was not known before and the protocol needs it.
    pub(super) fn set_content_length(&mut self, length: u64) {
        if let Protocol::Fastcgi(script) = &mut self.protocol {
            script.set_content_length(length);
        }
    }

    /// Begins the request on a link that has served `served` requests; returns the bytes to send before the body.
    /// `base` is the path of the server's URL, if it has one.
    pub(super) fn begin(&mut self, base: Option<&str>, served: u64) -> Piece {
        match &mut self.protocol {
            Protocol::Http(http) => {
                http.client = client::Connection::new();
                http.client.begin(if http.is_head { Method::Head } else { Method::Get });
                match base {
                    None => Piece::Part(Rc::clone(&http.head), 0..http.head.len()),
                    Some(base) => {
                        let prefix = http.prefix.clone();
                        Piece::Bytes(request::with_base(&http.head, prefix, base.as_bytes()))
                    }
                }
            }
            Protocol::Fastcgi(script) => Piece::Bytes(script.begin(served)),
        }
    }

    /// Queues bytes of the body.
    pub(super) fn push_body(&self, link: &mut Link, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match (&self.protocol, self.framing) {
            (Protocol::Fastcgi(script), _) => link.push(script.body(&bytes)),
            (Protocol::Http(_), Framing::Unknown) => {
                let mut head = Vec::with_capacity(18);
                write::chunk_head(bytes.len() as u64, &mut head);
                link.push(head);
                link.push(bytes);
                link.push(write::CHUNK_END.to_vec());
            }
            (Protocol::Http(_), _) => link.push(bytes),
        }
    }

    /// Queues the end of the body, with the client's trailers if the protocol has trailers.
    pub(super) fn push_body_end(&self, link: &mut Link, trailers: &FieldSection<'_>) {
        match (&self.protocol, self.framing) {
            (Protocol::Fastcgi(script), _) => link.push(script.body_end()),
            (Protocol::Http(http), Framing::Unknown) => {
                let mut end = Vec::new();
                let own = http.fields.as_deref().unwrap_or_default();
                write::last_chunk(&trailers::passed_on(trailers, own), &mut end);
                link.push(end);
            }
            (Protocol::Http(_), _) => {}
        }
    }

    /// Queues the message that asks for the end of the response, if the protocol has one.
    pub(super) fn push_abort(&self, link: &mut Link) {
        if let Protocol::Fastcgi(script) = &self.protocol {
            link.push(script.abort());
        }
    }

    /// Parses input that was received and not consumed; returns the number of bytes consumed now, and their meaning.
    /// `limits` apply to the head of the response.
    pub(super) fn handle_input<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
        now: Now<'_>,
    ) -> (usize, Heard<'a>) {
        match &mut self.protocol {
            Protocol::Http(http) => http.handle_input(input, limits, now),
            Protocol::Fastcgi(script) => {
                let (len, heard) = script.handle_input(input);
                (len, heard.into())
            }
        }
    }

    /// Returns true if a new link is pulled from the first byte of the response on. Applications write 8 KiB at a time
    /// (php-fpm), and each write would be an event of the ring and a copy.
    pub(super) const fn pulls_all(&self) -> bool {
        matches!(self.protocol, Protocol::Fastcgi(_))
    }

    /// Bytes of an incomplete head of the response that were consumed and are kept.
    pub(super) const fn head_bytes(&self) -> usize {
        match &self.protocol {
            Protocol::Http(_) => 0,
            Protocol::Fastcgi(script) => script.header_bytes(),
        }
    }

    /// Returns true if each byte that comes is progress. In a protocol of records only their content counts: empty
    /// records could keep an exchange alive for ever.
    pub(super) const fn counts_bytes(&self) -> bool {
        matches!(self.protocol, Protocol::Http(_))
    }

    /// The known number of content bytes that come next without framing between them. They may be received without the
    /// parser of the wire.
    pub(super) const fn content_left(&self) -> Option<u64> {
        match &self.protocol {
            Protocol::Http(http) => http.client.content_left(),
            Protocol::Fastcgi(_) => None,
        }
    }

    /// Counts `bytes` bytes of content that were received without the parser of the wire.
    pub(super) fn pass(&mut self, bytes: u64) {
        match &mut self.protocol {
            Protocol::Http(http) => http.client.pass(bytes),
            Protocol::Fastcgi(_) => unreachable!("it says of no content that it may be"),
        }
    }

    /// Handles the end of the connection, with `leftover` bytes that were not consumed. Returns true if it is the end
    /// of the response.
    pub(super) fn handle_eof(&mut self, leftover: usize) -> bool {
        match &mut self.protocol {
            Protocol::Http(http) => http.client.handle_eof(leftover) == client::Eof::BodyEnd,
            Protocol::Fastcgi(script) => script.handle_eof(),
        }
    }

    /// Returns true if the response ends with its head.
    pub(super) const fn ends_with_head(&self, has_content: bool) -> bool {
        match &self.protocol {
            Protocol::Http(_) => !has_content,
            Protocol::Fastcgi(_) => false,
        }
    }

    /// Changes the `Location` of an upstream's response, if there is one, into an address for the client.
    pub(super) fn lead_back(&self, passed: &mut Passed, server: &ServerUrl) {
        if let Protocol::Http(http) = &self.protocol
            && passed.may_lead()
        {
            let route = http.head.get(http.prefix.clone()).unwrap_or_default();
            let way = Mapping { host: request::host_of(&http.head), route, server };
            passed.change_location(|location| way.back(location));
        }
    }

    /// Returns true if the link may be kept even when the client does not wait for the end of the response.
    pub(super) fn keeps(&self) -> bool {
        matches!(&self.protocol, Protocol::Fastcgi(script) if script.keeps())
    }

    /// The name for the operator of the responder: the server, and the script if there is one.
    pub(super) fn name_at(&self, server: &str) -> String {
        match &self.protocol {
            Protocol::Http(_) => server.to_owned(),
            Protocol::Fastcgi(script) => format!("{server} {}", script.name()),
        }
    }

    /// Returns true if the connection is free for another request once all of this one was sent.
    pub(super) fn is_idle(&self) -> bool {
        match &self.protocol {
            Protocol::Http(http) => http.client.is_idle() && http.asked.may_keep,
            Protocol::Fastcgi(script) => script.is_idle(),
        }
    }
}

impl Http {
    fn handle_input<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
        now: Now<'_>,
    ) -> (usize, Heard<'a>) {
        let (len, event) = self.client.handle_input(input, limits);
        let heard = match event {
            Event::Partial | Event::Closed => Heard::Partial,
            Event::Interim(response) => {
                response::interim(&response, &self.asked).map_or(Heard::Nothing, Heard::Interim)
            }
            Event::Response(response) => match response::read(&response, &mut self.asked, now) {
                Ok(meaning) => {
                    let has_content = response.framing != http1::response::Framing::None;
                    Heard::Head { meaning, has_content, content: &[] }
                }
                Err(fault) => Heard::Faulty(fault.reason),
            },
            Event::Body(content) => Heard::Content(content),
            Event::Trailer(name, value) => match trailers::passes(name) {
                true => Heard::Trailer(name, value),
                false => Heard::Nothing,
            },
            Event::NoTrailers => Heard::NoTrailers,
            Event::BodyEnd => Heard::End,
            Event::Faulty(fault) => Heard::Faulty(fault.reason),
        };
        (len, heard)
    }
}

impl<'a> From<fastcgi::Heard<'a>> for Heard<'a> {
    fn from(heard: fastcgi::Heard<'a>) -> Self {
        match heard {
            fastcgi::Heard::Partial => Self::Partial,
            fastcgi::Heard::Nothing => Self::Nothing,
            fastcgi::Heard::Header(reply, content) => match response::of_script(reply) {
                Ok((meaning, has_content)) => Self::Head { meaning, has_content, content },
                Err(fault) => Self::Faulty(fault.reason),
            },
            fastcgi::Heard::Content(content) => Self::Content(content),
            fastcgi::Heard::Errors(text) => Self::Text(text),
            fastcgi::Heard::End => Self::End,
            fastcgi::Heard::Overloaded => Self::Overloaded,
            fastcgi::Heard::Faulty(reason) => Self::Faulty(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::HOW;
    use super::*;

    #[test]
    fn the_memory_of_a_head_goes_unless_it_still_has_to_be_sent() {
        let received = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let (request, _) = http1::parse(received, &Limits::DEFAULT).unwrap().unwrap();
        let mut wire = Wire::http(&request.head, &HOW, Rc::default()).unwrap();
        let before = wire.memory();
        let unsent = wire.begin(None, 0);
        wire.let_go();
        assert_eq!(wire.memory(), before, "the link has it");
        let length = unsent.bytes().len();
        drop(unsent);
        wire.let_go();
        assert!(length > received.len() && wire.memory() <= before - length);
    }
}

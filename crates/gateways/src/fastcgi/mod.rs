//! A request as a FastCGI application gets it, and the meaning of the records that the application sends.
//!
//! This module is pure: the exchanges of [`proxy`](super::proxy) move the bytes, as they do for upstreams that speak
//! HTTP. The environment and the header of the response are those of CGI programs.
//!
//! Reading list: FastCGI 1.0 §6.2; RFC 3875 §4, §6.
//!
//! A connection to an application is kept only if the configuration says so, because each connection occupies a
//! process. Each request has an id of its own on its connection, so late bytes for one request are a fault, and not the
//! response to the next. A process that has a request waits for the request's body. So the application gets the request
//! when all of the body has come, or as much of a long body as the route's buffer holds. Upstreams that speak HTTP get
//! a body while it comes.
//!
//! A path in `Location` is answered as if the client had asked for it, ten times at most. If another upstream or a
//! program serves the path, the client gets a 302. A permanent redirect would be about the path for which the client
//! has asked.

use fastcgi::{Connection, Eof, Event, ProtocolStatus, RequestId, write};

use super::cgi::response::{HeaderLimits, Parser, Reply};
use crate::programs::environment::Environment;

/// One request for a script.
#[derive(Debug)]
pub(super) struct Script {
    environment: Environment,
    /// True if the application is to leave the connection open.
    keeps: bool,
    has_body: bool,
    /// Its id on the connection through which it is sent.
    id: RequestId,
    connection: Connection,
    /// The limits of the header of the response.
    limits: HeaderLimits,
    reader: Reader,
}

/// The position in a script's output.
#[derive(Debug)]
enum Reader {
    Header(Box<Parser>),
    Content,
}

/// The part of a response that some input has completed.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    /// No complete part; more bytes are needed.
    Partial,
    /// Bytes that only continue the header.
    Nothing,
    /// The header of the response, and the first bytes of the content.
    Header(Reply, &'a [u8]),
    /// More of the content.
    Content(&'a [u8]),
    /// More of the text for the operator.
    Errors(&'a [u8]),
    /// The end of the response.
    End,
    /// The application has too much to do, and has not processed the request.
    Overloaded,
    /// The application has failed, and the connection is of no more use.
    Faulty(&'static str),
}

impl Script {
    /// A request with this environment, which has the length of the body if there is one.
    pub(super) fn new(
        environment: Environment,
        has_body: bool,
        keeps: bool,
        parser: Parser,
    ) -> Self {
        Self {
            environment,
            keeps,
            has_body,
            id: RequestId::FIRST,
            connection: Connection::new(),
            limits: parser.limits(),
            reader: Reader::Header(Box::new(parser)),
        }
    }

    /// Sets the length of the body, which was not known before.
    pub(super) fn set_content_length(&mut self, length: u64) {
        self.environment.set_content_length(length);
    }

    /// Begins the request on a connection that has had `requests_before` requests; returns the bytes to send first. The
    /// body follows, if there is one.
    pub(super) fn begin(&mut self, requests_before: u64) -> Vec<u8> {
        self.id = RequestId::after(requests_before);
        self.connection = Connection::new();
        self.connection.begin(self.id);
        self.reader = Reader::Header(Box::new(Parser::with(self.limits)));
        let mut records = Vec::with_capacity(RECORDS_BYTES);
        write::begin_request(self.id, self.keeps, &mut records);
        let variables = self.environment.iter();
        let variables =
            variables.map(|(name, value)| (name.as_encoded_bytes(), value.as_encoded_bytes()));
        write::params(self.id, variables, &mut records);
        if !self.has_body {
            write::stdin_end(self.id, &mut records);
        }
        records
    }

    /// The records for some bytes of content.
    pub(super) fn body(&self, content: &[u8]) -> Vec<u8> {
        let mut records = Vec::with_capacity(content.len() + RECORD_BYTES);
        write::stdin(self.id, content, &mut records);
        records
    }

    /// The record for the end of the content.
    pub(super) fn body_end(&self) -> Vec<u8> {
        let mut records = Vec::with_capacity(RECORD_BYTES);
        write::stdin_end(self.id, &mut records);
        records
    }

    /// The record that asks the application to end the response.
    pub(super) fn abort(&self) -> Vec<u8> {
        let mut records = Vec::with_capacity(RECORD_BYTES);
        write::abort_request(self.id, &mut records);
        records
    }

    /// Parses input that was received and not consumed; returns the number of bytes consumed now, and their meaning.
    pub(super) fn handle_input<'a>(&mut self, input: &'a [u8]) -> (usize, Heard<'a>) {
        let (len, event) = self.connection.handle_input(input);
        let heard = match event {
            Event::Partial | Event::Closed => Heard::Partial,
            Event::Output(bytes) => self.take(bytes),
            Event::Errors(bytes) => Heard::Errors(bytes),
            Event::End(end) => self.end(end.protocol_status),
            Event::Faulty(fault) => Heard::Faulty(fault.reason),
        };
        (len, heard)
    }

    /// Handles the end of the connection. Returns true if it is the end of the response: some applications end their
    /// output and close the connection, without a record for the end of the request.
    pub(super) fn handle_eof(&mut self) -> bool {
        let has_header = matches!(self.reader, Reader::Content);
        self.connection.handle_eof() == Eof::OutputEnd && has_header
    }

    /// Bytes of memory of the request.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.environment.memory()
    }

    /// Bytes of an incomplete header of the response.
    pub(super) const fn header_bytes(&self) -> usize {
        match &self.reader {
            Reader::Header(parser) => parser.len(),
            Reader::Content => 0,
        }
    }

    /// Returns true if the application is to leave the connection open.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// The path of the request for the operator, or the beginning of a long path.
    pub(super) fn name(&self) -> String {
        let path = self.environment.path();
        String::from_utf8_lossy(&path[..path.len().min(NAME_BYTES_MAX)]).into_owned()
    }

    /// Returns true if the connection is free for another request.
    pub(super) fn is_idle(&self) -> bool {
        self.keeps && self.connection.is_idle()
    }

    fn take<'a>(&mut self, bytes: &'a [u8]) -> Heard<'a> {
        let Reader::Header(parser) = &mut self.reader else { return Heard::Content(bytes) };
        match parser.handle_output(bytes) {
            Ok((_, None)) => Heard::Nothing,
            Ok((len, Some(reply))) => {
                self.reader = Reader::Content;
                Heard::Header(reply, &bytes[len..])
            }
            Err(fault) => Heard::Faulty(fault.reason),
        }
    }

    const fn end<'a>(&self, status: ProtocolStatus) -> Heard<'a> {
        match (status, &self.reader) {
            (ProtocolStatus::RequestComplete, Reader::Content) => Heard::End,
            (ProtocolStatus::Overloaded, Reader::Header(_)) => Heard::Overloaded,
            (ProtocolStatus::Overloaded, Reader::Content) => Heard::Faulty("it has too much to do"),
            (ProtocolStatus::RequestComplete, Reader::Header(_)) => {
                Heard::Faulty("it ended before its header was complete")
            }
            (ProtocolStatus::CantMultiplex, _) => {
                Heard::Faulty("it has another request on the connection")
            }
            (ProtocolStatus::UnknownRole, _) => Heard::Faulty("it is no FastCGI responder"),
        }
    }
}

/// Bytes of a request's path in messages to the operator.
const NAME_BYTES_MAX: usize = 256;
/// Room for the environment of most requests.
const RECORDS_BYTES: usize = 2048;
/// Room for the header of a record.
const RECORD_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of the first request.
    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[1, kind, 0, 1, 0, length, 0, 0], content].concat()
    }

    fn script(keeps: bool) -> Script {
        let mut environment = Environment::default();
        environment.set("REQUEST_URI", b"/a.php/b?secret");
        let mut script = Script::new(environment, false, keeps, Parser::default());
        script.begin(0);
        script
    }

    /// The parts of a response that comes in pieces of this size.
    fn heard(input: &[u8], size: usize) -> Vec<String> {
        let mut script = script(true);
        let mut all = Vec::new();
        let mut content = Vec::new();
        for mut piece in input.chunks(size) {
            loop {
                let (len, heard) = script.handle_input(piece);
                piece = &piece[len..];
                match heard {
                    Heard::Partial => break,
                    Heard::Nothing => {}
                    Heard::Header(_, bytes) => {
                        all.push("header".to_owned());
                        content.extend_from_slice(bytes);
                    }
                    Heard::Content(bytes) => content.extend_from_slice(bytes),
                    Heard::Errors(_) => {}
                    Heard::End => all.push(format!("end {}", content.escape_ascii())),
                    Heard::Overloaded => all.push("overloaded".to_owned()),
                    Heard::Faulty(reason) => {
                        all.push(reason.to_owned());
                        return all;
                    }
                }
            }
        }
        all
    }

    #[test]
    fn a_response_is_a_header_content_and_an_end() {
        let end = |status: u8| record(3, &[0, 0, 0, 0, status, 0, 0, 0]);
        let header = b"Content-Type: a/b\r\n\r\nhe";
        let unfinished = "it ended before its header was complete";
        for (input, expected) in [
            ([record(6, header), record(6, b"llo"), end(0)].concat(), &["header", "end hello"][..]),
            ([record(7, b"text"), record(6, header), end(0)].concat(), &["header", "end he"]),
            (end(0), &[unfinished]),
            ([record(6, b"A: b\r\n"), end(0)].concat(), &[unfinished]),
            (end(2), &["overloaded"]),
            ([record(6, header), end(2)].concat(), &["header", "it has too much to do"]),
            (end(1), &["it has another request on the connection"]),
            (end(3), &["it is no FastCGI responder"]),
            (record(6, b"hello\n"), &["a line in its header that is no field"]),
            (record(9, b""), &["a record of a type that applications do not send"]),
        ] {
            for size in [1, 3, 8, 1000] {
                assert_eq!(heard(&input, size), expected, "{}", input.escape_ascii());
            }
        }
    }

    #[test]
    fn a_record_of_the_request_before_is_a_failure() {
        let mut script = script(true);
        script.begin(1);
        let late = record(6, b"Content-Type: a/b\r\n\r\n");
        let Heard::Faulty(reason) = script.handle_input(&late).1 else { panic!("it is taken") };
        assert_eq!(reason, "a record of another request");
        assert!(!script.is_idle());
    }

    #[test]
    fn the_end_of_the_connection_ends_a_response_whose_output_has_ended() {
        let header = record(6, b"Content-Type: a/b\n\nhello");
        for (input, is_end) in [
            ([&header[..], &record(6, b"")].concat(), true),
            ([&header[..], &record(6, b""), &[1, 3, 0]].concat(), true),
            ([&header[..], &record(7, b"")].concat(), false),
            (header, false),
            ([record(6, b"A: b\n"), record(6, b"")].concat(), false),
            (Vec::new(), false),
        ] {
            let mut script = script(true);
            let mut rest = &input[..];
            while !rest.is_empty() {
                let (len, _) = script.handle_input(rest);
                rest = &rest[len..];
            }
            assert_eq!(script.handle_eof(), is_end, "{}", input.escape_ascii());
            assert!(!script.is_idle());
        }
    }

    #[test]
    fn a_connection_is_kept_behind_a_whole_response_only() {
        let input = [record(6, b"Content-Type: a/b\n\n"), record(3, &[0; 8])].concat();
        for keeps in [false, true] {
            let mut script = script(keeps);
            let mut rest = &input[..];
            while !rest.is_empty() {
                assert!(!script.is_idle());
                let (len, _) = script.handle_input(rest);
                rest = &rest[len..];
            }
            assert_eq!(script.is_idle(), keeps);
        }
    }

    #[test]
    fn a_request_has_its_variables_and_its_end() {
        let mut script = script(true);
        for (before, [high, low]) in
            [(0, [0, 1]), (1, [0, 2]), (0xffff, [0, 1]), (0x1233, [0x12, 0x34])]
        {
            let records = script.begin(before);
            assert_eq!(records[..16], [1, 1, high, low, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
            assert!(records.ends_with(&[1, 5, high, low, 0, 0, 0, 0]));
            assert!(records.windows(26).any(|bytes| bytes == b"REQUEST_URI/a.php/b?secret"));
            assert_eq!(script.body(b"x"), [1, 5, high, low, 0, 1, 0, 0, b'x']);
            assert_eq!(script.body_end(), [1, 5, high, low, 0, 0, 0, 0]);
            assert_eq!(script.abort(), [1, 2, high, low, 0, 0, 0, 0]);
        }
        assert_eq!(script.name(), "/a.php/b");
        script.environment.set("REQUEST_URI", &[b'/'; 1000]);
        assert_eq!(script.name().len(), NAME_BYTES_MAX);
    }
}

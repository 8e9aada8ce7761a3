//! A request as a FastCGI application is given it, and the meaning of what the application sends.
//!
//! It is pure: the exchanges of [`proxy`](super::proxy) move the bytes, as they do for servers that speak
//! HTTP. The environment and the header of the response are those of CGI programs.
//!
//! Reading list: FastCGI 1.0 §6.2; RFC 3875 §4, §6.

use fastcgi::{Connection, Event, ProtocolStatus, write};

use super::cgi::response::{Parser, Reply};
use crate::programs::environment::Environment;

/// One request for a script.
#[derive(Debug)]
pub(super) struct Script {
    environment: Environment,
    /// True if the application is to leave the connection open.
    keeps: bool,
    has_body: bool,
    connection: Connection,
    reader: Reader,
}

/// The place among what a script puts out.
#[derive(Debug)]
enum Reader {
    Header(Parser),
    Content,
}

/// What the application has sent.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    /// Nothing that is complete. More bytes are needed.
    Partial,
    /// A part of the header.
    Nothing,
    /// The header of the response, and the first bytes of the content.
    Header(Reply, &'a [u8]),
    /// More of the content.
    Content(&'a [u8]),
    /// More of the text for the operator.
    Errors(&'a [u8]),
    /// The end of the response.
    End,
    /// It has too much to do, and has done nothing.
    Overloaded,
    /// It has failed. The connection is of no more use.
    Faulty(&'static str),
}

impl Script {
    /// A request with this environment, in which the length of the body is, if there is one.
    pub(super) fn new(environment: Environment, has_body: bool, keeps: bool) -> Self {
        Self {
            environment,
            keeps,
            has_body,
            connection: Connection::new(),
            reader: Reader::Header(Parser::default()),
        }
    }

    /// Says how long the body is, which was not known before.
    pub(super) fn set_content_length(&mut self, length: u64) {
        self.environment.set_content_length(length);
    }

    /// Begins to ask; returns what is to be sent first. The body follows, if there is one.
    pub(super) fn begin(&mut self) -> Vec<u8> {
        self.connection = Connection::new();
        self.connection.begin();
        self.reader = Reader::Header(Parser::default());
        let mut records = Vec::with_capacity(RECORDS_BYTES);
        write::begin_request(self.keeps, &mut records);
        let variables = self.environment.iter();
        let variables =
            variables.map(|(name, value)| (name.as_encoded_bytes(), value.as_encoded_bytes()));
        write::params(variables, &mut records);
        if !self.has_body {
            write::stdin_end(&mut records);
        }
        records
    }

    /// Takes what was received and not consumed; returns how much of it is consumed, and what it means.
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

    /// Returns whether the application is to leave the connection open.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// The path of the request, for the operator.
    pub(super) fn name(&self) -> String {
        let uri = self.environment.value("REQUEST_URI").unwrap_or_default().as_encoded_bytes();
        let path = uri.split(|&byte| byte == b'?').next().unwrap_or_default();
        String::from_utf8_lossy(path).into_owned()
    }

    /// Returns whether the connection may take another request.
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
            (ProtocolStatus::RequestComplete | ProtocolStatus::Overloaded, _) => {
                Heard::Faulty("it ended before its header was complete")
            }
            (ProtocolStatus::CantMultiplex, _) => {
                Heard::Faulty("it has another request on the connection")
            }
            (ProtocolStatus::UnknownRole, _) => Heard::Faulty("it is no FastCGI responder"),
        }
    }
}

/// Bytes of content, as records.
pub(super) fn body(content: &[u8]) -> Vec<u8> {
    let mut records = Vec::with_capacity(content.len() + RECORD_BYTES);
    write::stdin(content, &mut records);
    records
}

/// The end of the content.
pub(super) fn body_end() -> Vec<u8> {
    let mut records = Vec::with_capacity(RECORD_BYTES);
    write::stdin_end(&mut records);
    records
}

/// The request that the response be ended.
pub(super) fn abort() -> Vec<u8> {
    let mut records = Vec::with_capacity(RECORD_BYTES);
    write::abort_request(&mut records);
    records
}

/// Room for the environment of most requests.
const RECORDS_BYTES: usize = 2048;
/// Room for the header of a record.
const RECORD_BYTES: usize = 8;

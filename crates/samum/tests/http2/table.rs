//! The table of `tests/cases` over HTTP/2: its requests of HTTP/1 are sent as streams, and the replies are compared as
//! responses.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use ::http::Status;
use testkit::http2::Http2;
use testkit::{Framing, Response};

use super::{Certified, Secure};
use crate::cases::{Conversation, Cut, sites};
use crate::common::{on_both_drivers, serve, tcp_address};
use crate::http::table::{evict, make};

/// Fewer cases than these would mean that the table is no longer translated.
const CASES_MIN: usize = 200;
/// Streams that a server lets a client have open at the same time.
const STREAMS_MAX: usize = 100;

#[test]
fn every_case_has_its_responses_by_streams_plain_and_over_tls() {
    let sites = sites();
    let trees: Vec<_> = sites.iter().map(make).collect();
    let tls = Certified::new();
    on_both_drivers(|driver| {
        let (mut faults, mut count) = (Vec::new(), 0);
        for (site, tree) in sites.iter().zip(&trees) {
            evict(site, tree);
            let index = site.index.map_or(vec![], |index| vec!["--index", index]);
            let listing = if site.listing { vec!["--listing"] } else { vec![] };
            let options = [index, listing].concat();
            let plain = serve(driver, tree.path(), &options);
            let secure =
                serve(driver, tree.path(), &[&options[..], &["--tls", &tls.files]].concat());
            let cases = site.cases.iter().filter(|case| case.is_of_every_version(is_fit));
            for case in cases {
                count += 1;
                let socket = || TcpStream::connect(tcp_address(&plain)).unwrap();
                let whole = Http2::new(Any::Plain(socket()), &[]);
                let dribbled = Http2::new(Any::Dribbled(socket()), &[]);
                let over_tls = Http2::new(Any::Secure(Box::new(tls.connect(&secure))), &[]);
                for client in [whole, dribbled, over_tls] {
                    let mut client = Streams::new(client.expect("a connection"));
                    if let Err(fault) = case.run(Cut::Whole, &mut client) {
                        let kind = client.client.stream().name();
                        faults.push(format!("{}, {:?}, {kind}: {fault}", site.name, case.name));
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{} cases:\n{}", faults.len(), faults.join("\n"));
        assert!(count >= CASES_MIN, "{count} cases");
    });
}

/// The ways of bytes to a server.
enum Any {
    Plain(TcpStream),
    /// One byte at a time.
    Dribbled(TcpStream),
    Secure(Box<Secure>),
}

impl Any {
    const fn name(&self) -> &'static str {
        match self {
            Self::Plain(_) => "plain",
            Self::Dribbled(_) => "dribbled",
            Self::Secure(_) => "TLS",
        }
    }
}

impl Read for Any {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) | Self::Dribbled(stream) => stream.read(buffer),
            Self::Secure(stream) => stream.read(buffer),
        }
    }
}

impl Write for Any {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Dribbled(stream) => {
                stream.set_nodelay(true)?;
                // Long bodies need not come byte by byte.
                stream.write(&bytes[..if bytes.len() > 2000 { bytes.len() } else { 1 }])
            }
            Self::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) | Self::Dribbled(stream) => stream.flush(),
            Self::Secure(stream) => stream.flush(),
        }
    }
}

/// A connection of HTTP/2 that takes requests of HTTP/1.
struct Streams {
    client: Http2<Any>,
    waiting: VecDeque<u32>,
}

impl Streams {
    const fn new(client: Http2<Any>) -> Self {
        Self { client, waiting: VecDeque::new() }
    }

    fn ask(&mut self, request: &Request) -> io::Result<()> {
        let mut fields = vec![
            (":method", &*request.method),
            (":scheme", "http"),
            (":authority", &*request.host),
            (":path", &*request.target),
        ];
        fields.extend(request.fields.iter().map(|(name, value)| (&**name, &**value)));
        let stream = self.client.request(fields, request.body.is_none())?;
        self.waiting.push_back(stream);
        match &request.body {
            Some(body) => self.client.upload(stream, body, &[]),
            None => Ok(()),
        }
    }
}

impl Conversation for Streams {
    fn send(&mut self, bytes: &[u8]) {
        for request in parse(bytes).expect("the case was chosen for that") {
            self.ask(&request).expect("the server takes requests");
        }
    }

    fn shut_down(&mut self) -> Result<(), String> {
        let socket = match self.client.stream() {
            Any::Plain(stream) | Any::Dribbled(stream) => stream,
            Any::Secure(stream) => {
                stream.conn.send_close_notify();
                stream.flush().map_err(|error| error.to_string())?;
                &stream.sock
            }
        };
        socket.shutdown(std::net::Shutdown::Write).map_err(|error| error.to_string())
    }

    fn receive(&mut self, _is_for_head: bool) -> Result<Response, String> {
        let stream = self.waiting.pop_front().ok_or("no request waits")?;
        let reply = self.client.reply(stream).map_err(|error| error.to_string())?;
        if let Some(code) = reply.reset {
            return Err(format!("a reset with the code {code}"));
        }
        let length = reply.field("content-length").map(|length| length.parse().unwrap());
        let bodiless = matches!(reply.status, 204 | 304);
        let reason = Status::from_code(reply.status).map_or_else(String::new, |status| {
            status.to_string().split_once(' ').map_or_else(String::new, |(_, it)| it.to_owned())
        });
        Ok(Response {
            minor_version: 1,
            status: reply.status,
            reason,
            headers: reply.fields,
            framing: match length {
                _ if bodiless => Framing::None,
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
            body: reply.body,
            trailers: reply.trailers,
        })
    }

    fn rest(&mut self) -> Result<usize, String> {
        self.client.read_to_end().map_err(|error| error.to_string())?;
        Ok(self.waiting.len())
    }
}

/// A request of HTTP/1 that means the same in HTTP/2.
struct Request {
    method: String,
    target: String,
    host: String,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

fn is_fit(bytes: &[u8]) -> bool {
    parse(bytes).is_some_and(|requests| (1..=STREAMS_MAX).contains(&requests.len()))
}

/// The requests in these bytes, if all of them are whole and plain.
fn parse(mut bytes: &[u8]) -> Option<Vec<Request>> {
    let mut requests = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = str::from_utf8(&bytes[..end]).ok()?;
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let mut line = lines.next()?.split(' ');
        let (method, target, version) = (line.next()?, line.next()?, line.next()?);
        let is_plain = line.next().is_none()
            && version == "HTTP/1.1"
            && (target.starts_with('/') || target == "*")
            && target.bytes().all(|byte| byte.is_ascii_graphic())
            && !target.contains('#')
            && method.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_plain {
            return None;
        }
        let (mut host, mut fields, mut length, mut chunked) = (None, Vec::new(), None, false);
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
            let is_plain = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !value.bytes().any(|byte| byte.is_ascii_control());
            if !is_plain || ["connection", "upgrade", "expect", "te"].contains(&&*name) {
                return None;
            }
            match &*name {
                "host" => {
                    if value.is_empty() || host.replace(value).is_some() {
                        return None;
                    }
                }
                "transfer-encoding" if value == "chunked" => chunked = true,
                "transfer-encoding" => return None,
                "content-length" => {
                    length = Some(value.parse::<usize>().ok()?);
                    fields.push((name, value));
                }
                _ => fields.push((name, value)),
            }
        }
        let body = match (chunked, length) {
            (true, Some(_)) => return None,
            (true, None) => {
                let (body, rest) = chunks(bytes)?;
                bytes = rest;
                Some(body)
            }
            (false, None | Some(0)) => None,
            (false, Some(length)) => {
                let (body, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Some(body.to_vec())
            }
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        requests.push(Request { method, target, host: host?, fields, body });
    }
    Some(requests)
}

/// The content of a body in chunks without extensions and trailers, and the bytes after it.
fn chunks(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        bytes = &bytes[end + 2..];
        let (chunk, rest) = bytes.split_at_checked(length)?;
        body.extend_from_slice(chunk);
        bytes = rest.strip_prefix(b"\r\n")?;
        if length == 0 {
            return Some((body, bytes));
        }
    }
}

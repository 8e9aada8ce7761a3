//! The server's connection against a client that others wrote: the crate `h2`.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::{FieldSection, ResponseHead, Status};
use http2::priority::{Priority, Scheduler};
use http2::server::{Connection, Event};
use http2::{ErrorCode, Limits};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const LIMITS: Limits = Limits::DEFAULT;
const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// One response: what is left of its content, and whether all of it is known.
#[derive(Debug, Default)]
struct Response {
    content: Vec<u8>,
    sent: usize,
    is_whole: bool,
    has_trailers: bool,
}

/// A server that sends back the content of each request, with the request line and the fields in `x-head`.
struct Echo {
    connection: Connection,
    responses: BTreeMap<u32, Response>,
    scheduler: Scheduler,
    out: Vec<u8>,
}

impl Echo {
    fn handle(&mut self, event: &Event<'_>) {
        match event {
            Event::Request(request) => {
                let mut head = Vec::new();
                request.head.request_line(&mut head);
                for (name, value) in request.head.fields() {
                    head.extend_from_slice(&[b"|", name, b"=", value].concat());
                }
                let mut extra = FieldSection::EMPTY;
                extra.push(b"X-Head", &head);
                let head = ResponseHead { extra, ..ResponseHead::new(Status::Ok) };
                let stream = request.stream;
                assert!(self.connection.respond(stream, &head, DATE, false, &mut self.out));
                let is_whole = request.has_ended;
                self.responses.insert(stream, Response { is_whole, ..Response::default() });
                self.scheduler.insert(stream, request.wish.or(Priority::DEFAULT));
                self.check(stream);
            }
            Event::Body { stream, bytes } => {
                let size = u32::try_from(bytes.len()).unwrap();
                self.connection.handle_taken(*stream, size, 100_000, Duration::ZERO);
                self.responses.get_mut(stream).unwrap().content.extend_from_slice(bytes);
                self.check(*stream);
            }
            Event::End { stream, trailers } => {
                let response = self.responses.get_mut(stream).unwrap();
                response.is_whole = true;
                response.has_trailers = trailers.clone().next().is_some();
                self.check(*stream);
            }
            Event::Room { .. } => {
                for stream in self.responses.keys().copied().collect::<Vec<_>>() {
                    self.check(stream);
                }
            }
            Event::Reset { stream, code, fault } => {
                assert_eq!((*code, *fault), (ErrorCode::Cancel, None));
                self.responses.remove(stream);
                self.scheduler.remove(*stream);
            }
            Event::GoAway { .. } => {}
            event => panic!("{event:?}"),
        }
    }

    /// Says whether a response has bytes that can be sent.
    fn check(&mut self, stream: u32) {
        let Some(response) = self.responses.get(&stream) else { return };
        let has_bytes = response.sent < response.content.len();
        let has_room = self.connection.data_room(stream) > 0;
        self.scheduler.set_ready(stream, if has_bytes { has_room } else { response.is_whole });
    }

    /// Writes frames of the responses that are ready.
    fn write(&mut self) {
        while let Some(stream) = self.scheduler.next_stream() {
            let response = self.responses.get_mut(&stream).unwrap();
            let rest = &response.content[response.sent..];
            let room = self.connection.data_room(stream) as usize;
            let len = rest.len().min(room).min(5000);
            let is_last = response.is_whole && len == rest.len();
            if is_last && response.has_trailers && len == 0 {
                let mut trailers = FieldSection::EMPTY;
                trailers.push(b"x-trailer", b"yes");
                assert!(self.connection.end_with_trailers(stream, &trailers, &mut self.out));
            } else {
                let is_last = is_last && !response.has_trailers;
                let length = u32::try_from(len).unwrap();
                let head = self.connection.data_head(stream, length, is_last).unwrap();
                self.out.extend_from_slice(&head);
                self.out.extend_from_slice(&rest[..len]);
                response.sent += len;
                if is_last {
                    self.connection.finish(stream);
                }
            }
            self.scheduler.served(stream);
            if self.connection.is_open(stream) {
                self.check(stream);
            } else {
                self.responses.remove(&stream);
                self.scheduler.remove(stream);
            }
        }
    }
}

async fn serve(mut io: DuplexStream, read_size: usize) -> Connection {
    let mut echo = Echo {
        connection: Connection::new(Duration::ZERO, &LIMITS),
        responses: BTreeMap::new(),
        scheduler: Scheduler::new(),
        out: Vec::new(),
    };
    let (mut input, mut text, mut piece) = (Vec::new(), Vec::new(), vec![0; read_size]);
    loop {
        let control = core::mem::take(echo.connection.control());
        echo.write();
        let out = [control, core::mem::take(&mut echo.out)].concat();
        if io.write_all(&out).await.is_err() {
            return echo.connection;
        }
        match io.read(&mut piece).await {
            Ok(0) | Err(_) => return echo.connection,
            Ok(len) => input.extend_from_slice(&piece[..len]),
        }
        loop {
            let (len, event) =
                echo.connection.handle_input(&input, &mut text, Duration::ZERO, &LIMITS);
            if event == Event::Partial {
                input.drain(..len);
                break;
            }
            echo.handle(&event);
            input.drain(..len);
        }
    }
}

/// A request of the client, and what it does with it.
#[derive(Clone, Debug)]
struct Ask {
    path: String,
    fields: Vec<(String, String)>,
    content: Option<Vec<u8>>,
    has_trailers: bool,
    /// It is withdrawn at once.
    is_cancelled: bool,
}

fn ask() -> impl Strategy<Value = Ask> {
    let name =
        prop_oneof![Just("accept"), Just("x-a"), Just("cookie"), Just("range"), Just("user-agent")];
    let field = (name.prop_map(str::to_owned), "[!-~]([ -~]{0,20}[!-~])?");
    let size = prop_oneof![0usize..100, 0usize..20_000, 60_000usize..200_000];
    let content = proptest::option::of(
        size.prop_map(|size| (0..=250u8).cycle().take(size).collect::<Vec<u8>>()),
    );
    ("/[a-z0-9%?&=]{0,30}", proptest::collection::vec(field, 0..8), content, any::<bool>(), 0..8u8)
        .prop_map(|(path, fields, content, has_trailers, cancels)| Ask {
            path,
            fields,
            content,
            has_trailers,
            is_cancelled: cancels == 0,
        })
}

/// Sends a request, and returns the head and the content that come back.
async fn send(mut client: h2::client::SendRequest<Bytes>, ask: Ask) -> Option<(Vec<u8>, Vec<u8>)> {
    let method = if ask.content.is_some() { "POST" } else { "GET" };
    let mut request = http_types::Request::builder()
        .method(method)
        .uri(format!("https://example.org{}", ask.path));
    for (name, value) in &ask.fields {
        request = request.header(name, value.as_bytes());
    }
    let request = request.body(()).expect("a request");
    let (response, mut stream) = client.send_request(request, ask.content.is_none()).expect("sent");
    if ask.is_cancelled {
        stream.send_reset(h2::Reason::CANCEL);
        return None;
    }
    let upload = async {
        let Some(content) = &ask.content else { return };
        stream.send_data(Bytes::copy_from_slice(content), !ask.has_trailers).expect("sent");
        if ask.has_trailers {
            let mut trailers = http_types::HeaderMap::new();
            trailers.insert("x-a", "b".parse().expect("a value"));
            stream.send_trailers(trailers).expect("sent");
        }
    };
    upload.await;
    let response = response.await.expect("a response");
    let head = response.headers()["x-head"].as_bytes().to_vec();
    let mut body = response.into_body();
    let mut content = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("data");
        content.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).expect("capacity");
    }
    let trailers = body.trailers().await.expect("an end");
    assert_eq!(trailers.is_some(), ask.has_trailers && ask.content.is_some());
    Some((head, content))
}

/// The head that the server shows.
fn expected(ask: &Ask) -> (Vec<u8>, Vec<u8>) {
    let method = if ask.content.is_some() { "POST" } else { "GET" };
    let mut head = format!("{method} {} HTTP/2.0", ask.path);
    for (name, value) in &ask.fields {
        head += &format!("|{name}={value}");
    }
    (head.into_bytes(), ask.content.clone().unwrap_or_default())
}

/// Sorts the fields of a shown head: the client may send them in another order, and joins cookies not at all.
fn sorted(head: &[u8]) -> Vec<String> {
    let text = String::from_utf8(head.to_vec()).expect("ASCII");
    let mut parts = Vec::new();
    for part in text.split('|') {
        match part.strip_prefix("cookie=") {
            Some(cookies) => parts.extend(cookies.split("; ").map(|one| format!("cookie={one}"))),
            None => parts.push(part.to_owned()),
        }
    }
    parts.sort();
    parts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_client_gets_back_what_it_sends(
        asks in proptest::collection::vec(ask(), 1..12),
        pipe in 64usize..100_000,
        read_size in 1usize..40_000,
        window in 1000u32..200_000,
    ) {
        let asks: Vec<Ask> = asks
            .into_iter()
            .map(|ask| Ask {
                // These separate parts of the shown head.
                fields: ask.fields.into_iter().map(|(name, value)| (name, value.replace(['|', ';'], "."))).collect(),
                ..ask
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let results = runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(pipe);
            let server = tokio::spawn(serve(ours, read_size));
            let builder = h2::client::Builder::new()
                .initial_window_size(window)
                .initial_connection_window_size(window.max(70_000))
                .clone();
            let (client, connection) = builder.handshake(theirs).await.expect("a connection");
            let connection = tokio::spawn(connection);
            let mut tasks = Vec::new();
            for ask in asks.clone() {
                let ready = client.clone().ready().await.expect("ready");
                tasks.push(tokio::spawn(send(ready, ask)));
            }
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await.expect("no panic"));
            }
            drop(client);
            connection.await.expect("no panic").expect("a clean end");
            let server = server.await.expect("no panic");
            assert_eq!(server.streams(), 0);
            results
        });
        for (ask, result) in asks.iter().zip(results) {
            prop_assert_eq!(result.is_none(), ask.is_cancelled);
            let Some((head, content)) = result else { continue };
            let (expected_head, expected_content) = expected(ask);
            prop_assert_eq!(sorted(&head), sorted(&expected_head));
            prop_assert!(content == expected_content, "{} bytes", content.len());
        }
    }
}

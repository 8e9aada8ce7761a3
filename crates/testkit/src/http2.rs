//! A client of HTTP/2 (RFC 9113) that can also send what no honest client sends.
//!
//! It writes frames by itself. Only header blocks of the server are decoded by the crate `hpack`.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use hpack::{Decoder, Limits};

/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A client that reads nothing for so long has met a server that hangs.
const TIMEOUT: Duration = Duration::from_secs(20);
const INITIAL_WINDOW: i64 = 65_535;
const FRAME_BYTES_MAX: usize = 16_384;

/// Types of frames (RFC 9113 §6).
pub mod kind {
    #![allow(missing_docs, reason = "the names of the RFC")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// The flags END_STREAM and ACK.
pub const END_STREAM: u8 = 1;
/// The flag END_HEADERS.
pub const END_HEADERS: u8 = 4;

/// The flag PADDED.
pub const PADDED: u8 = 8;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// The response on a stream, as far as it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status; 0 before it has come.
    pub status: u16,
    /// The fields, without `:status`.
    pub fields: Vec<(String, String)>,
    /// The statuses of interim responses.
    pub interim: Vec<u16>,
    /// The body.
    pub body: Vec<u8>,
    /// The fields after the body.
    pub trailers: Vec<(String, String)>,
    /// The code with which the server has reset the stream.
    pub reset: Option<u32>,
    /// True if the server has ended the stream.
    pub has_ended: bool,
    /// True if the server has said after the response that it needs no more of the request.
    pub is_rest_unwanted: bool,
}

impl Reply {
    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(it, _)| it == name).map(|(_, value)| &**value)
    }

    /// Returns true if nothing more will come.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.has_ended || self.reset.is_some()
    }

    /// Returns true if the server wants no more of the request.
    const fn takes_no_more(&self) -> bool {
        self.is_rest_unwanted || self.reset.is_some()
    }
}

/// A connection as a client.
#[derive(Debug)]
pub struct Http2<S = TcpStream> {
    stream: S,
    decoder: Decoder,
    input: Vec<u8>,
    next_stream: u32,
    /// The replies of all streams.
    replies: BTreeMap<u32, Reply>,
    /// The reply of a stream of which nothing has come.
    nothing: Reply,
    /// A header block that is not complete.
    block: Vec<u8>,
    /// The bytes that may be sent on the connection, and on streams in addition to the initial window.
    room: i64,
    stream_room: BTreeMap<u32, i64>,
    initial_window: i64,
    /// True if windows are given back for data.
    gives_windows: bool,
    /// The last stream and the code of each GOAWAY.
    pub goaways: Vec<(u32, u32)>,
    /// The order in which streams have got data, without repetitions in a row.
    pub order: Vec<u32>,
    /// Acknowledgements of PING.
    pub pongs: usize,
}

impl Http2<TcpStream> {
    /// Connects without TLS, with prior knowledge.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Self::new(stream, &[])
    }
}

impl<S: Read + Write> Http2<S> {
    /// Begins a connection with these settings.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn new(stream: S, settings: &[(u16, u32)]) -> io::Result<Self> {
        let mut client = Self {
            stream,
            decoder: Decoder::new(),
            input: Vec::new(),
            next_stream: 1,
            replies: BTreeMap::new(),
            nothing: Reply::default(),
            block: Vec::new(),
            room: INITIAL_WINDOW,
            stream_room: BTreeMap::new(),
            initial_window: INITIAL_WINDOW,
            gives_windows: true,
            goaways: Vec::new(),
            order: Vec::new(),
            pongs: 0,
        };
        let mut bytes = PREFACE.to_vec();
        push_frame(kind::SETTINGS, 0, 0, &settings_payload(settings), &mut bytes);
        client.send(&bytes)?;
        Ok(client)
    }

    /// Gives no windows back from now on.
    pub const fn keep_windows(&mut self) {
        self.gives_windows = false;
    }

    /// The stream below.
    pub const fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        push_frame(kind, flags, stream, payload, &mut bytes);
        self.send(&bytes)
    }

    /// The number of the stream that the next request will have.
    pub const fn reserve(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// Sends the head of a request; returns its stream.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn request<'a>(
        &mut self,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        is_last: bool,
    ) -> io::Result<u32> {
        let stream = self.reserve();
        let block = block(fields);
        let end = if is_last { END_STREAM } else { 0 };
        let mut bytes = Vec::new();
        let mut pieces = block.chunks(FRAME_BYTES_MAX).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, end);
        while let Some(piece) = pieces.next() {
            flags |= if pieces.peek().is_none() { END_HEADERS } else { 0 };
            push_frame(kind, flags, stream, piece, &mut bytes);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
        self.send(&bytes)?;
        Ok(stream)
    }

    /// Sends a request for a path without a body; returns its stream.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn get(&mut self, path: &str) -> io::Result<u32> {
        self.request(pseudo("GET", path), true)
    }

    /// Sends a whole body, as the windows of the server allow, and `trailers` after it.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn upload(
        &mut self,
        stream: u32,
        body: &[u8],
        trailers: &[(&str, &str)],
    ) -> io::Result<()> {
        self.push_data(stream, body, trailers.is_empty())?;
        if !trailers.is_empty() && !self.replies.get(&stream).is_some_and(Reply::takes_no_more) {
            let block = block(trailers.iter().copied());
            self.frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block)?;
        }
        Ok(())
    }

    /// Sends bytes after which more may follow, as the windows of the server allow.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn upload_part(&mut self, stream: u32, bytes: &[u8]) -> io::Result<()> {
        self.push_data(stream, bytes, false)
    }

    /// Sends DATA until all bytes are sent, or the stream is over.
    fn push_data(&mut self, stream: u32, mut body: &[u8], ends: bool) -> io::Result<()> {
        loop {
            let own = self.initial_window + self.stream_room.get(&stream).copied().unwrap_or(0);
            let room = usize::try_from(self.room.min(own)).unwrap_or(0);
            let count = body.len().min(room).min(FRAME_BYTES_MAX);
            let is_last = count == body.len();
            if count > 0 || is_last {
                let end = if is_last && ends { END_STREAM } else { 0 };
                self.frame(kind::DATA, end, stream, &body[..count])?;
                body = &body[count..];
                let sent = i64::try_from(count).expect("a frame");
                self.room -= sent;
                *self.stream_room.entry(stream).or_default() -= sent;
            } else if self.replies.get(&stream).is_some_and(Reply::takes_no_more) {
                return Ok(());
            } else {
                self.take_frame()?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// The response on a stream, when it is complete or the stream was reset.
    ///
    /// # Errors
    /// Those of the stream; [`ErrorKind::UnexpectedEof`] if the connection ends before.
    pub fn reply(&mut self, stream: u32) -> io::Result<Reply> {
        while !self.replies.get(&stream).is_some_and(Reply::is_over) {
            self.take_frame()?;
        }
        Ok(self.replies.get(&stream).cloned().unwrap_or_default())
    }

    /// The response on a stream as far as it has come.
    #[must_use]
    pub fn so_far(&self, stream: u32) -> &Reply {
        self.replies.get(&stream).unwrap_or(&self.nothing)
    }

    /// Asks for a path, and returns the response.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn ask(&mut self, path: &str) -> io::Result<Reply> {
        let stream = self.get(path)?;
        self.reply(stream)
    }

    /// Reads to the end of the connection.
    ///
    /// # Errors
    /// Those of the stream, but a reset is an end, too.
    pub fn read_to_end(&mut self) -> io::Result<()> {
        loop {
            match self.take_frame() {
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof
                            | ErrorKind::ConnectionReset
                            | ErrorKind::BrokenPipe
                            | ErrorKind::ConnectionAborted
                    ) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles one frame of the server.
    ///
    /// # Errors
    /// Those of the stream; [`ErrorKind::UnexpectedEof`] at its end.
    pub fn take_frame(&mut self) -> io::Result<Frame> {
        let frame = self.read_frame()?;
        let (stream, payload) = (frame.stream, &frame.payload[..]);
        match frame.kind {
            kind::SETTINGS if frame.flags & END_STREAM == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == [0, 4] {
                        self.initial_window = u32_of(&setting[2..]).into();
                    }
                }
                self.frame(kind::SETTINGS, END_STREAM, 0, &[])?;
            }
            kind::PING if frame.flags & END_STREAM == 0 => {
                let payload = payload.to_vec();
                self.frame(kind::PING, END_STREAM, 0, &payload)?;
            }
            kind::PING => self.pongs += 1,
            kind::GOAWAY => self.goaways.push((u32_of(payload), u32_of(&payload[4..]))),
            kind::WINDOW_UPDATE if stream == 0 => self.room += i64::from(u32_of(payload)),
            kind::WINDOW_UPDATE => {
                *self.stream_room.entry(stream).or_default() += i64::from(u32_of(payload));
            }
            kind::RST_STREAM => {
                let code = u32_of(payload);
                let reply = self.replies.entry(stream).or_default();
                if reply.has_ended {
                    reply.is_rest_unwanted = true;
                } else {
                    reply.reset = Some(code);
                }
            }
            kind::DATA => {
                let reply = self.replies.entry(stream).or_default();
                reply.body.extend_from_slice(payload);
                reply.has_ended |= frame.flags & END_STREAM != 0;
                if self.order.last() != Some(&stream) {
                    self.order.push(stream);
                }
                if self.gives_windows && !payload.is_empty() {
                    let count = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
                    let mut bytes = Vec::new();
                    push_frame(kind::WINDOW_UPDATE, 0, 0, &count, &mut bytes);
                    if frame.flags & END_STREAM == 0 {
                        push_frame(kind::WINDOW_UPDATE, 0, stream, &count, &mut bytes);
                    }
                    // The server may have closed the connection after its last frame.
                    let _ = self.send(&bytes);
                }
            }
            kind::HEADERS | kind::CONTINUATION => {
                self.block.extend_from_slice(payload);
                let is_last = frame.flags & END_STREAM != 0 && frame.kind == kind::HEADERS;
                self.replies.entry(stream).or_default().has_ended |= is_last;
                if frame.flags & END_HEADERS != 0 {
                    self.take_block(stream)?;
                }
            }
            _ => {}
        }
        Ok(frame)
    }

    fn take_block(&mut self, stream: u32) -> io::Result<()> {
        let block = core::mem::take(&mut self.block);
        let (mut text, mut lines) = (Vec::new(), Vec::new());
        let limits = Limits { list_bytes_max: 1 << 20, fields_max: 1000 };
        self.decoder
            .decode(&block, &limits, &mut text, |text, line| {
                let part = |range: &core::ops::Range<usize>| {
                    text[range.clone()].iter().map(|byte| char::from(*byte)).collect::<String>()
                };
                lines.push((part(&line.name), part(&line.value)));
            })
            .map_err(|fault| io::Error::new(ErrorKind::InvalidData, format!("{fault:?}")))?;
        let reply = self.replies.entry(stream).or_default();
        if reply.status != 0 {
            reply.trailers = lines;
            return Ok(());
        }
        let Some((first, status)) = lines.first() else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a head without fields"));
        };
        assert_eq!(first, ":status");
        let status: u16 = status.parse().expect("a status");
        if status < 200 {
            reply.interim.push(status);
            return Ok(());
        }
        reply.status = status;
        reply.fields = lines.split_off(1);
        for (name, _) in &reply.fields {
            assert!(!name.starts_with(':') && name.to_ascii_lowercase() == *name, "{name}");
        }
        Ok(())
    }

    fn read_frame(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.parse_frame() {
                return Ok(frame);
            }
            let mut buffer = [0; 65_536];
            match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&buffer[..count]),
            }
        }
    }

    fn parse_frame(&mut self) -> Option<Frame> {
        let head = self.input.first_chunk::<9>()?;
        let length = u32_of(&[0, head[0], head[1], head[2]]) as usize;
        assert!(length <= FRAME_BYTES_MAX, "a frame that is too long: {}", head.escape_ascii());
        let (kind, flags, stream) = (head[3], head[4], u32_of(&head[5..]));
        let payload = self.input.get(9..9 + length)?.to_vec();
        self.input.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }
}

/// The pseudo-fields of a request.
#[must_use]
pub fn pseudo<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
}

/// A header block: fields without indexing and without Huffman code.
#[must_use]
pub fn block<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            push_length(text.len(), &mut out);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// Appends a frame.
///
/// # Panics
/// If its payload is longer than a frame can be.
pub fn push_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The payload of a SETTINGS frame.
#[must_use]
pub fn settings_payload(settings: &[(u16, u32)]) -> Vec<u8> {
    settings
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect()
}

/// An integer with a prefix of 7 bits (RFC 7541 §5.1).
fn push_length(mut length: usize, out: &mut Vec<u8>) {
    let byte = |value: usize| u8::try_from(value).expect("seven bits");
    if length < 127 {
        return out.push(byte(length));
    }
    out.push(127);
    length -= 127;
    while length >= 128 {
        out.push(byte(length % 128) | 128);
        length /= 128;
    }
    out.push(byte(length));
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().expect("four bytes"))
}

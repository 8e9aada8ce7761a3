//! Logs that never hold anybody up: lines are collected, written by the ring, and dropped when
//! nothing takes them.

use core::time::Duration;
use std::io::Write as _;
use std::rc::Rc;

use http::{Field, Head, Status};
use ring::{Completion, Event, Fd, Op, Ring, Time, Token};

use crate::config::LogFormat;
use crate::context::Context;
use crate::text::escape_json;

/// Bytes that wait to be written; a line beyond is dropped and counted.
const BUFFER_MAX: usize = 1024 * 1024;
/// From here on waiting lines are written at once, before for at most [`DELAY_MAX`].
const BATCH_BYTES: usize = 32 * 1024;
const DELAY_MAX: Duration = Duration::from_millis(250);
/// Bytes in one write to a pipe: it is then not mixed with another worker's (`PIPE_BUF`, pipe(7)).
const PIPE_BYTES_MAX: usize = 4096;
/// After a write has failed, the next is tried after this.
const RETRY: Duration = Duration::from_secs(1);

/// Lines on their way to a file or pipe.
#[derive(Debug)]
pub(crate) struct Sink {
    fd: Option<Fd>,
    /// Takes the place of `fd` when no line is half written.
    next: Option<Fd>,
    /// Whether the lines that wait begin with the rest of one whose beginning has been written.
    torn: bool,
    token: Token,
    name: Rc<str>,
    write_bytes_max: usize,
    waiting: Vec<u8>,
    /// When the oldest waiting line came.
    since: Option<Time>,
    /// Some exactly while a write is under way: the lines in it.
    in_flight: Option<u64>,
    retry_at: Option<Time>,
    dropped: u64,
    /// How many of them the operator has been told of.
    told: u64,
    /// Some exactly when the operator has not been told of the present trouble.
    trouble: Option<String>,
    /// Whether nothing, or not enough, takes the lines.
    troubled: bool,
}

impl Sink {
    /// `fd` of `None` swallows everything.
    pub(crate) fn new(fd: Option<Fd>, token: Token, name: &str, is_file: bool) -> Self {
        Self {
            fd,
            next: None,
            torn: false,
            token,
            name: name.into(),
            write_bytes_max: if is_file { usize::MAX } else { PIPE_BYTES_MAX },
            waiting: Vec::new(),
            since: None,
            in_flight: None,
            retry_at: None,
            dropped: 0,
            told: 0,
            trouble: None,
            troubled: false,
        }
    }

    /// Write to another file from the next whole line on: the one before has been moved away.
    pub(crate) fn replace(&mut self, fd: Fd) {
        self.next = Some(fd);
        self.settle();
    }

    /// Take the next file, if nothing of a line is still to go to the present one.
    fn settle(&mut self) {
        if self.next.is_some() && self.in_flight.is_none() && !self.torn {
            self.fd = self.next.take();
            // Whatever was wrong with the old one, this is another.
            self.retry_at = None;
        }
    }

    /// Add a line, which ends in a newline, and write it now if nothing is being written.
    pub(crate) fn line(&mut self, ring: &mut Ring, line: &[u8]) {
        let now = ring.now();
        self.add(line, now);
        self.write(ring, now);
    }

    /// Add a line for a later [`flush`](Self::flush).
    fn add(&mut self, line: &[u8], now: Time) {
        if self.fd.is_none() {
            return;
        }
        if self.waiting.len() + line.len() > BUFFER_MAX {
            self.dropped += 1;
            if !core::mem::replace(&mut self.troubled, true) {
                self.trouble = Some(format!(
                    "cannot log to {}: nothing takes the lines; dropping them",
                    self.name
                ));
            }
            return;
        }
        self.waiting.extend_from_slice(line);
        self.since.get_or_insert(now);
    }

    /// Write if there is much or it has waited long; returns when that will be.
    pub(crate) fn flush(&mut self, ring: &mut Ring, now: Time) -> Option<Time> {
        let since = self.since?;
        if self.in_flight.is_some() {
            return None;
        }
        let due = (since + DELAY_MAX).max(self.retry_at.unwrap_or_default());
        if now >= due || (self.waiting.len() >= BATCH_BYTES && self.retry_at.is_none()) {
            self.write(ring, now);
            return None;
        }
        Some(due)
    }

    fn write(&mut self, ring: &mut Ring, now: Time) {
        if self.in_flight.is_some()
            || self.waiting.is_empty()
            || self.retry_at.is_some_and(|at| now < at)
        {
            return;
        }
        let Some(fd) = &self.fd else { return };
        let limit = self.waiting.len().min(self.write_bytes_max);
        let is_end = |byte: &u8| *byte == b'\n';
        let whole = if self.next.is_some() {
            // The rest of a line goes where its beginning is.
            self.waiting[..limit].iter().position(is_end)
        } else {
            self.waiting[..limit].iter().rposition(is_end)
        };
        let end = whole.map_or(limit, |at| at + 1);
        let rest = self.waiting.split_off(end);
        let bytes = core::mem::replace(&mut self.waiting, rest);
        self.since = if self.waiting.is_empty() { None } else { Some(now) };
        self.in_flight = Some(lines_of(&bytes));
        ring.submit(Op::Write { file: fd.clone(), bytes }, self.token);
    }

    /// Take the completion of a write.
    pub(crate) fn written(&mut self, ring: &mut Ring, completion: Completion, now: Time) {
        let lines = self.in_flight.take().expect("one write at a time");
        self.retry_at = None;
        match completion.result {
            Ok(Event::Written(mut bytes, count)) => {
                if self.troubled && self.waiting.len() < BUFFER_MAX / 2 {
                    self.troubled = false;
                    let lost = self.dropped - self.told;
                    self.told = self.dropped;
                    self.trouble =
                        Some(format!("logging to {} again; {lost} lines were dropped", self.name));
                }
                self.torn = bytes[..count].last().map_or(self.torn, |byte| *byte != b'\n');
                self.settle();
                if count < bytes.len() {
                    // The rest goes first, so that no line is torn.
                    let mut rest = bytes.split_off(count);
                    rest.append(&mut self.waiting);
                    self.waiting = rest;
                    self.since.get_or_insert(now);
                }
                if !self.waiting.is_empty()
                    && (self.waiting.len() >= BATCH_BYTES
                        || self.write_bytes_max < BATCH_BYTES
                        || self.torn)
                {
                    self.write(ring, now);
                }
            }
            Ok(event) => unreachable!("a write ended with {event:?}"),
            Err(error) => {
                // The lines of this write are gone.
                self.torn = false;
                self.dropped += lines;
                self.retry_at = Some(now + RETRY);
                self.settle();
                if !core::mem::replace(&mut self.troubled, true) {
                    self.trouble =
                        Some(format!("cannot log to {}: {error}; dropping lines", self.name));
                }
            }
        }
    }

    /// What the operator should be told, once for each trouble.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Lines dropped so far.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Lines dropped that the operator has not been told of; those that still wait count too.
    pub(crate) fn lost(&self) -> u64 {
        self.dropped - self.told + self.in_flight.unwrap_or(0) + lines_of(&self.waiting)
    }

    /// Whether everything has been written.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty()
    }

    /// Write what is left without waiting for more; for the end of a worker.
    pub(crate) fn hurry(&mut self, ring: &mut Ring, now: Time) {
        self.retry_at = None;
        self.write(ring, now);
    }
}

fn lines_of(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[derive(Debug)]
pub(crate) struct AccessLog {
    pub(crate) sink: Sink,
    pub(crate) format: LogFormat,
    line: Vec<u8>,
}

/// What is to be logged of a request once its response is out.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) unix: i64,
    pub(crate) began: Time,
    pub(crate) request: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) referer: Vec<u8>,
    pub(crate) user_agent: Vec<u8>,
    /// Where in the connection's stream the body begins.
    pub(crate) body_at: u64,
    /// Bytes of the body, if all of it leaves.
    pub(crate) body_bytes: u64,
}

impl Record {
    /// What is to be logged of a request (`None`: of bytes that were none); `None` if there is no
    /// log. The place of its body in the stream is told later.
    pub(crate) fn new(cx: &Context, head: Option<&Head<'_>>, status: Status) -> Option<Box<Self>> {
        if !cx.logs {
            return None;
        }
        let field = |field| head.and_then(|head| head.field(field)).unwrap_or_default().to_vec();
        let mut request = Vec::new();
        match head {
            Some(head) => head.request_line(&mut request),
            None => request.push(b'-'),
        }
        Some(Box::new(Self {
            unix: cx.unix,
            began: cx.now,
            request,
            status: status.code(),
            referer: field(Field::Referer),
            user_agent: field(Field::UserAgent),
            body_at: 0,
            body_bytes: 0,
        }))
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.request.capacity()
            + self.referer.capacity()
            + self.user_agent.capacity()
    }
}

impl AccessLog {
    pub(crate) const fn new(sink: Sink, format: LogFormat) -> Self {
        Self { sink, format, line: Vec::new() }
    }

    /// Log a response of whose body `bytes` bytes have left.
    pub(crate) fn record(&mut self, record: &Record, peer: &str, bytes: u64, now: Time) {
        let mut line = core::mem::take(&mut self.line);
        line.clear();
        let time = log_time(record.unix);
        match self.format {
            LogFormat::Common | LogFormat::Combined => {
                let _ = write!(line, "{peer} - - [{time}] \"");
                escape(&record.request, &mut line);
                let _ = write!(line, "\" {} {bytes}", record.status);
                if self.format == LogFormat::Combined {
                    for value in [&record.referer, &record.user_agent] {
                        line.extend_from_slice(b" \"");
                        escape(if value.is_empty() { b"-" } else { value }, &mut line);
                        line.push(b'"');
                    }
                }
            }
            LogFormat::Json => {
                let text = |bytes: &[u8]| escape_json(&String::from_utf8_lossy(bytes));
                let _ = write!(
                    line,
                    "{{\"time\":\"{time}\",\"peer\":\"{}\",\"request\":\"{}\",\"status\":{},\"bytes\":{bytes},\
                     \"seconds\":{:.6},\"referer\":\"{}\",\"user_agent\":\"{}\"}}",
                    escape_json(peer),
                    text(&record.request),
                    record.status,
                    now.since(record.began).as_secs_f64(),
                    text(&record.referer),
                    text(&record.user_agent),
                );
            }
        }
        line.push(b'\n');
        self.sink.add(&line, now);
        self.line = line;
    }
}

/// `10/Oct/2000:13:55:36 +0000`, out of what HTTP writes: `Tue, 10 Oct 2000 13:55:36 GMT`.
fn log_time(unix: i64) -> String {
    let date = http::date::format(unix);
    let date = String::from_utf8_lossy(&date);
    let field = |range| date.get(range).unwrap_or_default();
    format!("{}/{}/{}:{} +0000", field(5..7), field(8..11), field(12..16), field(17..25))
}

/// What a client sent, so that it cannot forge a line or a field.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                let _ = write!(line, "\\x{byte:02x}");
            }
            byte => line.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::kind;

    #[test]
    fn a_client_cannot_forge_a_line() {
        let mut line = Vec::new();
        escape(b"a\"b\\c\r\nd\xff", &mut line);
        assert_eq!(line, b"a\\x22b\\x5cc\\x0d\\x0ad\\xff");
    }

    #[test]
    fn a_line_is_finished_where_it_was_begun() {
        use std::io::{Read as _, Seek as _};

        let mut ring = Ring::new(ring::Choice::Epoll).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let old = ring.adopt_file(writer.into());
        let mut sink = Sink::new(Some(old), kind::ACCESS, "a pipe", false);
        let settle = |sink: &mut Sink, ring: &mut Ring| {
            let mut completions = Vec::new();
            while !sink.is_quiet() {
                ring.wait(None, &mut completions).unwrap();
                for completion in completions.drain(..) {
                    let now = ring.now();
                    sink.written(ring, completion, now);
                }
            }
        };
        // Longer than a write to a pipe: its end waits while the file is replaced.
        let first = [&[b'x'; 2 * PIPE_BYTES_MAX][..], b"\n"].concat();
        sink.line(&mut ring, &first);
        sink.line(&mut ring, b"second\n");
        sink.replace(ring.adopt_file(file.try_clone().unwrap().into()));
        settle(&mut sink, &mut ring);
        sink.line(&mut ring, b"third\n");
        settle(&mut sink, &mut ring);
        let mut began = vec![0; first.len()];
        reader.read_exact(&mut began).unwrap();
        assert!(began == first);
        file.rewind().unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "second\nthird\n");
    }

    #[test]
    fn times_are_as_common_log_format_has_them() {
        assert_eq!(log_time(784_111_777), "06/Nov/1994:08:49:37 +0000");
    }
}

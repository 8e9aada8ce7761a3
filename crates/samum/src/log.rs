//! Writes logs without blocking the worker: lines are collected, written through the ring, and dropped
//! if the log takes no more.

use core::time::Duration;
use std::io::Write as _;
use std::rc::Rc;

use http::{Field, Head, Status};
use ring::{Completion, Event, Fd, Op, Ring, Time, Token};

use crate::config::LogFormat;
use crate::context::Context;
use crate::site::SiteId;
use crate::text::escape_json;

/// Bytes that may wait to be written; lines beyond are dropped and counted.
const BUFFER_MAX: usize = 1024 * 1024;
/// From this number of bytes on, waiting lines are written at once; fewer wait for at most
/// [`DELAY_MAX`].
const BATCH_BYTES: usize = 32 * 1024;
const DELAY_MAX: Duration = Duration::from_millis(250);
/// Bytes in one write to a pipe: the kernel does not mix smaller writes of several workers (`PIPE_BUF`,
/// pipe(7)).
const PIPE_BYTES_MAX: usize = 4096;
/// The time between a write that failed and the next try.
const RETRY: Duration = Duration::from_secs(1);

/// Lines on their way to a file or pipe.
#[derive(Debug)]
pub(crate) struct Sink {
    fd: Option<Fd>,
    /// Replaces `fd` once no line is partly written.
    next: Option<Fd>,
    /// True if `waiting` begins with the rest of a line that has been partly written.
    torn: bool,
    token: Token,
    name: Rc<str>,
    write_bytes_max: usize,
    waiting: Vec<u8>,
    /// The time at which the oldest waiting line was added.
    since: Option<Time>,
    /// Some exactly while a write is in flight: the number of lines in it.
    in_flight: Option<u64>,
    retry_at: Option<Time>,
    dropped: u64,
    /// The number of dropped lines that have been reported to the operator.
    told: u64,
    /// A message about lost lines that has not been reported to the operator.
    trouble: Option<String>,
    /// True if lines are being dropped.
    troubled: bool,
}

impl Sink {
    /// Makes a sink; without an `fd` it discards all lines.
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

    /// Writes to another file from the next whole line on.
    pub(crate) fn replace(&mut self, fd: Fd) {
        self.next = Some(fd);
        self.settle();
    }

    /// Takes the next file, unless the rest of a line must still go to the present one.
    fn settle(&mut self) {
        if self.next.is_some() && self.in_flight.is_none() && !self.torn {
            self.fd = self.next.take();
            // An error of the old file says nothing about the new one.
            self.retry_at = None;
        }
    }

    /// Adds a line, which ends in a newline, and writes it now if no write is in flight.
    pub(crate) fn line(&mut self, ring: &mut Ring, line: &[u8]) {
        let now = ring.now();
        self.add(line, now);
        self.write(ring, now);
    }

    /// Adds a line for a later [`flush`](Self::flush).
    fn add(&mut self, line: &[u8], now: Time) {
        if self.fd.is_none() {
            return;
        }
        if self.waiting.len() + line.len() > BUFFER_MAX {
            self.dropped += 1;
            if !core::mem::replace(&mut self.troubled, true) {
                self.trouble = Some(format!(
                    "cannot log to {}: it takes no more lines; dropping them",
                    self.name
                ));
            }
            return;
        }
        self.waiting.extend_from_slice(line);
        self.since.get_or_insert(now);
    }

    /// Writes the waiting lines if they are many or have waited for long; else returns when they will
    /// be due.
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
            // The rest of a line must go to the file that has its beginning.
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

    /// Takes the completion of a write.
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
                    // The rest is written before other lines, so that no line is torn.
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

    /// Takes the message about lost lines, if the operator has to be told.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Lines dropped so far.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Lines that were dropped and not reported to the operator, and those that still wait.
    pub(crate) fn lost(&self) -> u64 {
        self.dropped - self.told + self.in_flight.unwrap_or(0) + lines_of(&self.waiting)
    }

    /// Returns whether everything has been written.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty()
    }

    /// Writes the waiting lines at once, for the end of a worker.
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

/// The log entry of a request, kept until its response has been sent.
#[derive(Debug)]
pub(crate) struct Record {
    /// The site that the request was for.
    pub(crate) site: SiteId,
    pub(crate) unix: i64,
    pub(crate) began: Time,
    pub(crate) request: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) referer: Vec<u8>,
    pub(crate) user_agent: Vec<u8>,
    /// Position of the body in the connection's stream.
    pub(crate) body_at: u64,
    /// Length of the whole body.
    pub(crate) body_bytes: u64,
}

impl Record {
    /// Makes the entry of a request that came at `began` (without a head: of bytes that were no
    /// request); `None` if there is no log. The position of its body is set later.
    pub(crate) fn new(
        cx: &Context,
        head: Option<&Head<'_>>,
        status: Status,
        began: Time,
        site: SiteId,
    ) -> Option<Box<Self>> {
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
            site,
            unix: cx.unix - i64::try_from(cx.now.since(began).as_secs()).unwrap_or_default(),
            began,
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

    /// Logs a response of which `bytes` bytes of the body have been sent.
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

/// Converts an HTTP date (`Tue, 10 Oct 2000 13:55:36 GMT`) to `10/Oct/2000:13:55:36 +0000`.
fn log_time(unix: i64) -> String {
    let date = http::date::format(unix);
    let date = String::from_utf8_lossy(&date);
    let field = |range| date.get(range).unwrap_or_default();
    format!("{}/{}/{}:{} +0000", field(5..7), field(8..11), field(12..16), field(17..25))
}

/// Escapes text of a client, so that it cannot forge a line or a field.
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
    fn the_rest_of_a_line_goes_to_the_file_that_has_its_beginning() {
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
    fn times_have_the_form_of_the_common_log_format() {
        assert_eq!(log_time(784_111_777), "06/Nov/1994:08:49:37 +0000");
    }
}

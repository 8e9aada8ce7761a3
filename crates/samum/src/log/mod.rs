//! The access log: its lines, and the entries of which they are made.

mod sink;

use std::io::Write as _;

use http::{Field, Head, Status};
use ring::Time;

use crate::config::LogFormat;
use crate::context::Context;
use crate::site::SiteId;
use crate::text::escape_json;
pub(crate) use sink::Sink;

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

    #[test]
    fn a_client_cannot_forge_a_line() {
        let mut line = Vec::new();
        escape(b"a\"b\\c\r\nd\xff", &mut line);
        assert_eq!(line, b"a\\x22b\\x5cc\\x0d\\x0ad\\xff");
    }

    #[test]
    fn times_have_the_form_of_the_common_log_format() {
        assert_eq!(log_time(784_111_777), "06/Nov/1994:08:49:37 +0000");
    }
}

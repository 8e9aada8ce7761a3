//! The lines of access logs and messages.
//!
//! Lines in JSON have one schema, which `docs/logs-and-metrics.md` describes. The order of its members is fixed.

use core::time::Duration;
use std::io::Write as _;

use http::{bytes::skip_unescaped, date};

use super::{Cut, Record};
use config::text::escape_json;
use config::{Log, LogFormat, LogTarget, OwnFormat, Piece, Variable};
use session::handler::Ticket;
use session::network::Handshake;
use session::request_id::{self, Seed};
use session::user::User;

/// A request with its outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) record: &'a Record,
    /// True if no part of the request's text has to be escaped, as in most requests. So that is looked for once.
    pub(super) is_plain: bool,
    /// The name of the connection's other end.
    pub(super) peer: &'a str,
    /// The name of the client, which differs from the peer's if a proxy names the client.
    pub(super) client: &'a str,
    /// The handshake of the connection, if it has TLS.
    pub(super) handshake: Option<&'a dyn Handshake>,
    /// Bytes of the body that have been sent.
    pub(super) bytes: u64,
    pub(super) duration: Duration,
    pub(super) cut: Option<Cut>,
    /// The random bits of which the ids of requests are made.
    pub(super) seed: Seed,
    /// The number of the process.
    pub(super) process: u32,
}

/// The last second that lines have had, in each form that they have used.
#[derive(Debug, Default)]
pub(super) struct Clock {
    rfc3339: SecondText<{ date::RFC3339_LEN }>,
    common: SecondText<COMMON_LEN>,
    syslog: SecondText<SYSLOG_LEN>,
}

/// The text of a second, which most lines share with earlier lines.
#[derive(Debug)]
struct SecondText<const N: usize> {
    second: i64,
    text: [u8; N],
}

const COMMON_LEN: usize = 26;
const SYSLOG_LEN: usize = 15;

/// The fields of an entry in the journal, in addition to its message.
const JOURNAL: [(&[u8], Variable); 8] = [
    (b"SAMUM_SITE=", Variable::Site),
    (b"SAMUM_CLIENT=", Variable::Client),
    (b"SAMUM_METHOD=", Variable::Method),
    (b"SAMUM_HOST=", Variable::Host),
    (b"SAMUM_PATH=", Variable::Path),
    (b"SAMUM_STATUS=", Variable::Status),
    (b"SAMUM_REQUEST_ID=", Variable::RequestId),
    (b"SAMUM_REASON=", Variable::Reason),
];

impl Line<'_> {
    /// Writes the line of a log: with its end for a file, or as a message for a daemon.
    pub(super) fn write_for(&self, log: &Log, clock: &mut Clock, out: &mut Vec<u8>) {
        match &log.target {
            LogTarget::Syslog(_) => {
                // The facility `daemon` and the severity `info`.
                out.extend_from_slice(b"<30>");
                out.extend_from_slice(clock.syslog(self.record.unix_ms));
                let _ = write!(out, " {}[{}]: ", config::NAME, self.process);
                self.write(&log.format, clock, out);
                out.pop();
            }
            LogTarget::Journald(_) => {
                out.extend_from_slice(b"MESSAGE=");
                self.write(&log.format, clock, out);
                out.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=");
                out.extend_from_slice(config::NAME.as_bytes());
                out.push(b'\n');
                for (name, variable) in JOURNAL {
                    out.extend_from_slice(name);
                    // No value has the end of a line.
                    self.push_variable(variable, clock, out);
                    out.push(b'\n');
                }
            }
            LogTarget::None | LogTarget::Stdout | LogTarget::File(_) => {
                self.write(&log.format, clock, out);
            }
        }
    }

    /// Writes the line, with its end.
    pub(super) fn write(&self, format: &LogFormat, clock: &mut Clock, out: &mut Vec<u8>) {
        match format {
            LogFormat::Common | LogFormat::Combined => {
                self.write_common(*format == LogFormat::Combined, clock, out);
            }
            LogFormat::Json => self.write_json(clock, out),
            LogFormat::Own(own) => self.write_own(own, clock, out),
        }
        out.push(b'\n');
    }

    fn write_common(&self, combined: bool, clock: &mut Clock, out: &mut Vec<u8>) {
        let Self { record, client, bytes, .. } = *self;
        out.extend_from_slice(client.as_bytes());
        match &record.user {
            None => out.extend_from_slice(b" - - ["),
            Some(user) => push_user(user, out),
        }
        out.extend_from_slice(clock.common(record.unix_ms));
        out.extend_from_slice(b"] \"");
        self.push_text(record.text.request(), out);
        out.extend_from_slice(b"\" ");
        push_number(u64::from(record.status.code()), 1, out);
        out.push(b' ');
        push_number(bytes, 1, out);
        if combined {
            for value in [record.text.referer(), record.text.user_agent()] {
                out.extend_from_slice(b" \"");
                self.push_text(if value.is_empty() { b"-" } else { value }, out);
                out.push(b'"');
            }
        }
    }

    fn write_json(&self, clock: &mut Clock, out: &mut Vec<u8>) {
        let Self { record, peer, client, handshake, bytes, duration, cut, .. } = *self;
        let text = &record.text;
        begin_json(record.unix_ms, clock.rfc3339(record.unix_ms), out);
        out.extend_from_slice(b"\",\"kind\":\"request\",\"site\":\"");
        push_json(record.recording.site.as_bytes(), out);
        self.push_member(b"\",\"peer\":\"", peer.as_bytes(), out);
        self.push_member(b"\",\"client\":\"", client.as_bytes(), out);
        self.push_member(b"\",\"method\":\"", text.method(), out);
        self.push_member(b"\",\"path\":\"", text.path(), out);
        self.push_member(b"\",\"request\":\"", text.request(), out);
        out.extend_from_slice(b"\",\"status\":");
        push_number(u64::from(record.status.code()), 1, out);
        out.extend_from_slice(b",\"bytes\":");
        push_number(bytes, 1, out);
        out.extend_from_slice(b",\"seconds\":");
        push_seconds(duration, out);
        out.extend_from_slice(b",\"disk_seconds\":");
        push_seconds(record.disk_wait, out);
        self.push_member(b",\"referer\":\"", text.referer(), out);
        self.push_member(b"\",\"user_agent\":\"", text.user_agent(), out);
        self.push_member(b"\",\"host\":\"", text.host(), out);
        self.push_member(b"\",\"version\":\"", text.version(), out);
        out.extend_from_slice(b"\",\"request_id\":\"");
        self.push_id(out);
        out.push(b'"');
        if record.ticket.connection != Ticket::UNNAMED {
            out.extend_from_slice(b",\"connection\":");
            push_number(record.ticket.connection, 1, out);
        }
        out.extend_from_slice(b",\"request_bytes\":");
        push_number(record.request_bytes, 1, out);
        if let Some(upstream) = &record.upstream {
            out.extend_from_slice(b",\"upstream\":\"");
            push_json(upstream.name.as_bytes(), out);
            out.push(b'"');
            for (name, time) in [
                (&b",\"upstream_connect_seconds\":"[..], upstream.connect),
                (b",\"upstream_head_seconds\":", Some(upstream.head)),
                (b",\"upstream_body_seconds\":", upstream.body.get()),
            ] {
                if let Some(time) = time {
                    out.extend_from_slice(name);
                    push_seconds(time, out);
                }
            }
        }
        if !text.trace().is_empty() {
            out.extend_from_slice(b",\"traceparent\":\"");
            self.push_json_text(text.trace(), out);
            out.push(b'"');
        }
        if let Some(user) = &record.user {
            out.extend_from_slice(b",\"user\":\"");
            push_json(user.name().as_bytes(), out);
            out.push(b'"');
        }
        if let Some(handshake) = handshake {
            for (name, value) in [
                (&b",\"tls\":\""[..], Some(handshake.version())),
                (b"\",\"cipher\":\"", Some(handshake.cipher().unwrap_or_default())),
                (b"\",\"sni\":\"", Some(handshake.server_name().unwrap_or_default())),
                (b"\",\"tls_client\":\"", handshake.client()),
            ] {
                if let Some(value) = value {
                    out.extend_from_slice(name);
                    push_json(value.as_bytes(), out);
                }
            }
            out.push(b'"');
        }
        if let Some(reason) = &record.reason {
            out.extend_from_slice(b",\"reason\":\"");
            push_json(reason.to_string().as_bytes(), out);
            out.push(b'"');
        }
        if let Some(cut) = cut {
            out.extend_from_slice(b",\"cut\":\"");
            out.extend_from_slice(cut.text().as_bytes());
            out.push(b'"');
        }
        out.push(b'}');
    }
}

impl Line<'_> {
    /// Writes the id of the request, which has no byte that must be escaped.
    fn push_id(&self, out: &mut Vec<u8>) {
        match self.record.text.given_id() {
            b"" => out.extend_from_slice(&request_id::made(self.seed, self.record.ticket)),
            given => out.extend_from_slice(given),
        }
    }

    /// Writes a part of the request's text, or a name that the server has made, so that it cannot forge a line or a field.
    fn push_text(&self, text: &[u8], out: &mut Vec<u8>) {
        if self.is_plain {
            out.extend_from_slice(text);
        } else {
            escape(text, out);
        }
    }

    /// The same within a JSON string.
    fn push_json_text(&self, text: &[u8], out: &mut Vec<u8>) {
        if self.is_plain {
            out.extend_from_slice(text);
        } else {
            push_json(text, out);
        }
    }

    /// Writes a member of a JSON object whose value is a text, without the quotes behind it.
    // The length of the name is a constant, so it is written without a call of `memcpy`.
    #[inline]
    fn push_member<const N: usize>(&self, name: &[u8; N], value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(name);
        self.push_json_text(value, out);
    }

    /// Writes a line in a format of one's own. No value can end the line or a quoted part of it.
    fn write_own(&self, own: &OwnFormat, clock: &mut Clock, out: &mut Vec<u8>) {
        for piece in own.pieces() {
            match piece {
                Piece::Text(text) => push_separator(text.as_bytes(), out),
                Piece::Variable(variable) => {
                    let before = out.len();
                    self.push_variable(*variable, clock, out);
                    if out.len() == before {
                        out.push(b'-');
                    }
                }
            }
        }
    }

    /// Writes the value of a variable; nothing if there is none.
    // Inlined: a call for each variable of a line would cost a tenth of the line. The rest is not, because each line would
    // load what any variable may need.
    #[inline(always)]
    fn push_variable(&self, variable: Variable, clock: &mut Clock, out: &mut Vec<u8>) {
        let record = self.record;
        match variable {
            Variable::Bytes => push_number(self.bytes, 1, out),
            // The server makes the names of both ends.
            Variable::Client => out.extend_from_slice(self.client.as_bytes()),
            Variable::Referer => self.push_text(record.text.referer(), out),
            Variable::Request => self.push_text(record.text.request(), out),
            Variable::RequestId => self.push_id(out),
            Variable::Status => push_number(u64::from(record.status.code()), 1, out),
            Variable::Time => push_time(record.unix_ms, clock.rfc3339(record.unix_ms), out),
            Variable::UserAgent => self.push_text(record.text.user_agent(), out),
            rare => self.push_rare(rare, out),
        }
    }

    /// Writes the value of a variable that the combined format does not have.
    #[inline(never)]
    fn push_rare(&self, variable: Variable, out: &mut Vec<u8>) {
        let Self { record, peer, handshake, duration, cut, .. } = *self;
        let text = &record.text;
        let upstream = record.upstream.as_deref();
        let seconds = |time: Option<Duration>, out: &mut Vec<u8>| {
            if let Some(time) = time {
                push_seconds(time, out);
            }
        };
        match variable {
            Variable::Connection if record.ticket.connection == Ticket::UNNAMED => {}
            Variable::Connection => push_number(record.ticket.connection, 1, out),
            Variable::Cut => out.extend_from_slice(cut.map_or("", Cut::text).as_bytes()),
            Variable::DiskSeconds => push_seconds(record.disk_wait, out),
            Variable::Host => self.push_text(text.host(), out),
            Variable::Method => self.push_text(text.method(), out),
            Variable::Path => self.push_text(text.path(), out),
            Variable::Peer => out.extend_from_slice(peer.as_bytes()),
            Variable::Query => self.push_text(text.query(), out),
            Variable::Reason => {
                if let Some(reason) = &record.reason {
                    escape(reason.to_string().as_bytes(), out);
                }
            }
            Variable::RequestBytes => push_number(record.request_bytes, 1, out),
            Variable::Scheme => out.extend_from_slice(record.scheme.text().as_bytes()),
            Variable::Seconds => push_seconds(duration, out),
            Variable::Site => escape(record.recording.site.as_bytes(), out),
            Variable::TlsCipher => {
                escape(handshake.and_then(|tls| tls.cipher()).unwrap_or_default().as_bytes(), out);
            }
            Variable::TlsClient => {
                escape(handshake.and_then(|tls| tls.client()).unwrap_or_default().as_bytes(), out);
            }
            Variable::TlsServerName => {
                let name = handshake.and_then(|tls| tls.server_name());
                escape(name.unwrap_or_default().as_bytes(), out);
            }
            Variable::TlsVersion => {
                escape(handshake.map_or("", |tls| tls.version()).as_bytes(), out);
            }
            Variable::Traceparent => self.push_text(text.trace(), out),
            Variable::Upstream => escape(upstream.map_or("", |one| &one.name).as_bytes(), out),
            Variable::UpstreamConnectSeconds => seconds(upstream.and_then(|one| one.connect), out),
            Variable::UpstreamHeadSeconds => seconds(upstream.map(|one| one.head), out),
            Variable::UpstreamBodySeconds => seconds(upstream.and_then(|one| one.body.get()), out),
            Variable::Version => self.push_text(text.version(), out),
            Variable::Bytes
            | Variable::Client
            | Variable::Referer
            | Variable::Request
            | Variable::RequestId
            | Variable::Status
            | Variable::Time
            | Variable::UserAgent => unreachable!("it is frequent"),
        }
    }
}

/// The texts of the second of a time in milliseconds since 1970.
impl Clock {
    /// `1994-11-06T08:49:37`
    fn rfc3339(&mut self, unix_ms: i64) -> &[u8; date::RFC3339_LEN] {
        self.rfc3339.at(unix_ms, date::rfc3339)
    }

    /// `06/Nov/1994:08:49:37 +0000`
    fn common(&mut self, unix_ms: i64) -> &[u8; COMMON_LEN] {
        self.common.at(unix_ms, |second| {
            let (date, mut text) = (date::format(second), *b"00/Jan/0000:00:00:00 +0000");
            // `Sun, 06 Nov 1994 08:49:37 GMT`
            for (to, from) in [(0..2, 5..7), (3..6, 8..11), (7..11, 12..16), (12..20, 17..25)] {
                text[to].copy_from_slice(&date[from]);
            }
            text
        })
    }

    /// `Nov  6 08:49:37`
    fn syslog(&mut self, unix_ms: i64) -> &[u8; SYSLOG_LEN] {
        self.syslog.at(unix_ms, |second| {
            let (date, mut text) = (date::format(second), *b"Jan  0 00:00:00");
            for (to, from) in [(0..3, 8..11), (4..6, 5..7), (7..15, 17..25)] {
                text[to].copy_from_slice(&date[from]);
            }
            if text[4] == b'0' {
                text[4] = b' ';
            }
            text
        })
    }
}

impl<const N: usize> SecondText<N> {
    fn at(&mut self, unix_ms: i64, make: impl FnOnce(i64) -> [u8; N]) -> &[u8; N] {
        let second = unix_ms.div_euclid(1000);
        if self.second != second {
            *self = Self { second, text: make(second) };
        }
        &self.text
    }
}

impl<const N: usize> Default for SecondText<N> {
    fn default() -> Self {
        // No line has this second.
        Self { second: i64::MIN, text: [0; N] }
    }
}

/// Writes a message for the operator as a line of JSON, with its end.
pub(crate) fn message_json(message: &str, unix_ms: i64) -> Vec<u8> {
    let mut line = Vec::new();
    begin_json(unix_ms, &date::rfc3339(unix_ms.div_euclid(1000)), &mut line);
    line.extend_from_slice(b"\",\"kind\":\"message\",\"message\":\"");
    push_json(message.as_bytes(), &mut line);
    line.extend_from_slice(b"\"}\n");
    line
}

/// The beginning of all lines, up to the end of the time.
fn begin_json(unix_ms: i64, rfc3339: &[u8; date::RFC3339_LEN], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    push_time(unix_ms, rfc3339, out);
}

/// Writes a time as RFC 3339 has it.
fn push_time(unix_ms: i64, rfc3339: &[u8; date::RFC3339_LEN], out: &mut Vec<u8>) {
    let mut text = *b"0000-00-00T00:00:00.000Z";
    text[..rfc3339.len()].copy_from_slice(rfc3339);
    let millis = unix_ms.rem_euclid(1000);
    for (place, unit) in [(20, 100), (21, 10), (22, 1)] {
        text[place] = b'0' + u8::try_from(millis / unit % 10).unwrap_or_default();
    }
    out.extend_from_slice(&text);
}

/// Escapes text of a client for a JSON string, so that it cannot end the string.
fn push_json(text: &[u8], out: &mut Vec<u8>) {
    if skip_unescaped(text, 0) == text.len() {
        out.extend_from_slice(text);
    } else {
        out.extend_from_slice(escape_json(&String::from_utf8_lossy(text)).as_bytes());
    }
}

/// Escapes text of a client, so that it cannot forge a line or a field.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    loop {
        let at = skip_unescaped(text, start);
        out.extend_from_slice(&text[start..at]);
        let Some(byte) = text.get(at) else { return };
        // Writing to a vector cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
        start = at + 1;
    }
}

/// Writes the user of a request between the client and the time of a line. A space in the name would end its field.
#[cold]
fn push_user(user: &User, out: &mut Vec<u8>) {
    out.extend_from_slice(b" - ");
    for (number, part) in user.name().split(' ').enumerate() {
        out.extend_from_slice(if number == 0 { b"" } else { b"\\x20" });
        escape(part.as_bytes(), out);
    }
    out.extend_from_slice(b" [");
}

/// Writes a text of a format. Most of these texts have three bytes at most, and are written without a call of `memcpy`.
#[inline]
fn push_separator(text: &[u8], out: &mut Vec<u8>) {
    match *text {
        [a] => out.push(a),
        [a, b] => out.extend_from_slice(&[a, b]),
        [a, b, c] => out.extend_from_slice(&[a, b, c]),
        _ => out.extend_from_slice(text),
    }
}

/// Writes a number with at least this many digits. `write!` would take as many instructions as the rest of a line.
// Not inlined: the compiler would compute all digits of a number in front of a loop over a format's pieces.
#[inline(never)]
fn push_number(number: u64, digits: usize, out: &mut Vec<u8>) {
    let mut text = [b'0'; 20];
    let (mut len, mut rest) = (0, number);
    // Two digits at a time take half of the divisions.
    for pair in text.rchunks_exact_mut(2) {
        if rest == 0 {
            break;
        }
        let (two, has_two) = (rest % 100, rest >= 10);
        pair.copy_from_slice(&PAIRS[usize::try_from(two).unwrap_or_default()]);
        rest /= 100;
        len += if has_two { 2 } else { 1 };
    }
    out.extend_from_slice(&text[text.len() - digits.max(len)..]);
}

/// The numbers from 0 to 99 with two digits each.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0_u8;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// Writes seconds with six digits after the point.
fn push_seconds(duration: Duration, out: &mut Vec<u8>) {
    push_number(duration.as_secs(), 1, out);
    out.push(b'.');
    push_number(u64::from(duration.subsec_micros()), 6, out);
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use http::{FieldIndex, Head, Method, Status, Target, Version};
    use ring::Time;

    use super::*;
    use crate::LogId;
    use session::record::{Began, More, Recording};

    /// 1994-11-06T08:49:37.042Z.
    const UNIX_MS: i64 = 784_111_777_042;

    fn record() -> Box<Record> {
        let log = Some(LogId(Rc::new(ring::Key::NONE)));
        let recording = Recording {
            site: "a.example".into(),
            log,
            label: None,
            shows_more: true,
            shows_host: true,
            shows_trace: true,
        };
        let target = Target::Origin { path: b"/\"a", query: Some(b"b\xff") };
        let (version, index) = (Version::Http11, FieldIndex::EMPTY);
        let head = Head::new(Method::Get, target, version, None, b"", index);
        let disk_wait = Duration::from_micros(1500);
        let began = Began { at: Time::default(), unix_ms: UNIX_MS, disk_wait };
        Record::new(Rc::new(recording), Some(&head), Status::PartialContent, began, More::Untrusted)
    }

    fn line(format: LogFormat, cut: Option<Cut>) -> String {
        line_of(format, None, cut)
    }

    fn line_of(format: LogFormat, handshake: Option<&dyn Handshake>, cut: Option<Cut>) -> String {
        line_of_record(&record(), format, handshake, cut)
    }

    fn line_of_record(
        record: &Record,
        format: LogFormat,
        handshake: Option<&dyn Handshake>,
        cut: Option<Cut>,
    ) -> String {
        let duration = Duration::from_millis(1_002_003);
        let (mut clock, mut out) = (Clock::default(), Vec::new());
        let (peer, client) = ("::1", "192.0.2.1");
        let seed = Seed::default();
        let line = Line {
            record,
            is_plain: record.text.is_plain(),
            peer,
            client,
            handshake,
            bytes: 77,
            duration,
            cut,
            seed,
            process: 7,
        };
        line.write(&format, &mut clock, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_formats_of_a_request() {
        assert_eq!(
            line(LogFormat::Common, Some(Cut::Disk)),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /\\x22a?b\\xff HTTP/1.1\" 206 77\n"
        );
        assert_eq!(
            line(LogFormat::Combined, None),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /\\x22a?b\\xff HTTP/1.1\" 206 77 \"-\" \"-\"\n"
        );
        let json = "{\"time\":\"1994-11-06T08:49:37.042Z\",\"kind\":\"request\",\"site\":\"a.example\",\
                    \"peer\":\"::1\",\"client\":\"192.0.2.1\",\"method\":\"GET\",\"path\":\"/\\\"a\",\
                    \"request\":\"GET /\\\"a?b\u{fffd} HTTP/1.1\",\"status\":206,\"bytes\":77,\
                    \"seconds\":1002.003000,\"disk_seconds\":0.001500,\"referer\":\"\",\"user_agent\":\"\",\"host\":\"\",\"version\":\"HTTP/1.1\",\
                    \"request_id\":\"e220a8397b1dcdafa706dd2f4d197e6f\",\"connection\":0,\"request_bytes\":23";
        assert_eq!(line(LogFormat::Json, None), format!("{json}}}\n"));
        assert_eq!(
            line(LogFormat::Json, Some(Cut::Client)),
            format!("{json},\"cut\":\"client\"}}\n")
        );
    }

    /// A handshake with these names of the server and of the client.
    #[derive(Debug)]
    struct Said(Option<&'static str>, Option<&'static str>);

    impl Handshake for Said {
        fn version(&self) -> &'static str {
            "TLSv1.2"
        }

        fn cipher(&self) -> Option<&'static str> {
            Some("A_CIPHER")
        }

        fn server_name(&self) -> Option<&str> {
            self.0
        }

        fn client(&self) -> Option<&str> {
            self.1
        }

        fn is_resumed(&self) -> bool {
            false
        }

        fn permits(&self, _host: Option<&str>) -> bool {
            true
        }
    }

    #[test]
    fn a_line_in_json_has_the_facts_of_the_handshake() {
        let plain = line(LogFormat::Json, None);
        let plain = plain.strip_suffix("}\n").expect("an object");
        for (said, expected) in [
            (Said(None, None), r#","tls":"TLSv1.2","cipher":"A_CIPHER","sni":"""#),
            (Said(Some("a.org"), None), r#","tls":"TLSv1.2","cipher":"A_CIPHER","sni":"a.org""#),
            (
                Said(Some("a.org"), Some("CN=\"\n\u{e4},O=b")),
                r#","tls":"TLSv1.2","cipher":"A_CIPHER","sni":"a.org","tls_client":"CN=\"\u000aä,O=b""#,
            ),
        ] {
            let found = line_of(LogFormat::Json, Some(&said), None);
            assert_eq!(found, format!("{plain}{expected}}}\n"));
            let found = line_of(LogFormat::Json, Some(&said), Some(Cut::Client));
            assert_eq!(found, format!("{plain}{expected},\"cut\":\"client\"}}\n"));
            for format in [LogFormat::Common, LogFormat::Combined] {
                assert_eq!(line_of(format.clone(), Some(&said), None), line(format, None));
            }
        }
    }

    #[test]
    fn a_line_names_the_user() {
        let mut record = record();
        record.user = User::new("al \"b\"\n[\u{e4}]");
        let line = |format| line_of_record(&record, format, None, None);
        let common = "192.0.2.1 - al\\x20\\x22b\\x22\\x0a[\\xc3\\xa4] [06/Nov/1994:";
        for format in [LogFormat::Common, LogFormat::Combined] {
            assert!(line(format).starts_with(common));
        }
        let json = line(LogFormat::Json);
        assert!(
            json.ends_with("\"request_bytes\":23,\"user\":\"al \\\"b\\\"\\u000a[\u{e4}]\"}\n"),
            "{json}"
        );
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        let mut line = Vec::new();
        escape(b"a\"b\\c\r\nd\xff", &mut line);
        assert_eq!(line, b"a\\x22b\\x5cc\\x0d\\x0ad\\xff");
        line.clear();
        push_json(b"a\"b\\c\r\nd\xffe\xc3\xa4\x7f", &mut line);
        let json = "a\\\"b\\\\c\\u000d\\u000ad\u{fffd}e\u{e4}\\u007f";
        assert_eq!(line, json.as_bytes());
    }

    #[test]
    fn messages_have_the_same_schema() {
        let line = message_json("cannot log to \"x\"", UNIX_MS);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "{\"time\":\"1994-11-06T08:49:37.042Z\",\"kind\":\"message\",\
             \"message\":\"cannot log to \\\"x\\\"\"}\n"
        );
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        for number in [0, 1, 9, 10, 99, 12_345, u64::MAX] {
            for digits in [1, 3, 6] {
                let mut out = Vec::new();
                push_number(number, digits, &mut out);
                assert_eq!(String::from_utf8(out).unwrap(), format!("{number:0digits$}"));
            }
        }
    }

    #[test]
    fn times_have_the_form_of_the_common_log_format() {
        assert_eq!(Clock::default().common(UNIX_MS), b"06/Nov/1994:08:49:37 +0000");
        assert_eq!(Clock::default().syslog(UNIX_MS), b"Nov  6 08:49:37");
    }
}

//! The lines of access logs and messages.
//!
//! Lines in JSON have one schema, which `docs/logs-and-metrics.md` describes. The order of its members is fixed.

use core::time::Duration;
use std::io::Write as _;

use http::date;

use super::{Cut, Record};
use config::LogFormat;
use config::text::{escape_json, is_plain_json};
use session::network::Handshake;

/// A request with its outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) record: &'a Record,
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
}

/// The text of a second, which most lines share with earlier lines.
#[derive(Debug)]
pub(super) struct Clock {
    second: i64,
    /// `1994-11-06T08:49:37`
    rfc3339: [u8; date::RFC3339_LEN],
    /// `06/Nov/1994:08:49:37 +0000`
    common: [u8; COMMON_LEN],
}

const COMMON_LEN: usize = 26;

impl Line<'_> {
    /// Writes the line, with its end.
    pub(super) fn write(&self, format: LogFormat, clock: &mut Clock, out: &mut Vec<u8>) {
        let second = self.record.unix_ms.div_euclid(1000);
        if clock.second != second {
            *clock = Clock::at(second);
        }
        match format {
            LogFormat::Common | LogFormat::Combined => {
                self.write_common(format == LogFormat::Combined, clock, out);
            }
            LogFormat::Json => self.write_json(clock, out),
        }
        out.push(b'\n');
    }

    fn write_common(&self, combined: bool, clock: &Clock, out: &mut Vec<u8>) {
        let Self { record, client, bytes, .. } = *self;
        out.extend_from_slice(client.as_bytes());
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(&clock.common);
        out.extend_from_slice(b"] \"");
        escape(record.text.request(), out);
        out.extend_from_slice(b"\" ");
        push_number(u64::from(record.status.code()), 1, out);
        out.push(b' ');
        push_number(bytes, 1, out);
        if combined {
            for value in [record.text.referer(), record.text.user_agent()] {
                out.extend_from_slice(b" \"");
                escape(if value.is_empty() { b"-" } else { value }, out);
                out.push(b'"');
            }
        }
    }

    fn write_json(&self, clock: &Clock, out: &mut Vec<u8>) {
        let Self { record, peer, client, handshake, bytes, duration, cut } = *self;
        let text = &record.text;
        begin_json(record.unix_ms, &clock.rfc3339, "request", out);
        for (name, value) in [
            (&b",\"site\":\""[..], record.recording.site.as_bytes()),
            (b"\",\"peer\":\"", peer.as_bytes()),
            (b"\",\"client\":\"", client.as_bytes()),
            (b"\",\"method\":\"", text.method()),
            (b"\",\"path\":\"", text.path()),
            (b"\",\"request\":\"", text.request()),
        ] {
            out.extend_from_slice(name);
            push_json(value, out);
        }
        out.extend_from_slice(b"\",\"status\":");
        push_number(u64::from(record.status.code()), 1, out);
        out.extend_from_slice(b",\"bytes\":");
        push_number(bytes, 1, out);
        out.extend_from_slice(b",\"seconds\":");
        push_seconds(duration, out);
        out.extend_from_slice(b",\"disk_seconds\":");
        push_seconds(record.disk_wait, out);
        for (name, value) in [
            (&b",\"referer\":\""[..], text.referer()),
            (b"\",\"user_agent\":\"", text.user_agent()),
        ] {
            out.extend_from_slice(name);
            push_json(value, out);
        }
        if let Some(handshake) = handshake {
            for (name, value) in [
                (&b"\",\"tls\":\""[..], Some(handshake.version())),
                (b"\",\"cipher\":\"", Some(handshake.cipher().unwrap_or_default())),
                (b"\",\"sni\":\"", Some(handshake.server_name().unwrap_or_default())),
                (b"\",\"tls_client\":\"", handshake.client()),
            ] {
                if let Some(value) = value {
                    out.extend_from_slice(name);
                    push_json(value.as_bytes(), out);
                }
            }
        }
        out.push(b'"');
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

impl Clock {
    /// The text of a second since 1970.
    pub(super) fn at(second: i64) -> Self {
        let date = date::format(second);
        let mut common = *b"00/Jan/0000:00:00:00 +0000";
        // `Sun, 06 Nov 1994 08:49:37 GMT`
        for (to, from) in [(0..2, 5..7), (3..6, 8..11), (7..11, 12..16), (12..20, 17..25)] {
            common[to].copy_from_slice(&date[from]);
        }
        Self { second, rfc3339: date::rfc3339(second), common }
    }
}

/// Writes a message for the operator as a line of JSON, with its end.
pub(crate) fn message_json(message: &str, unix_ms: i64) -> Vec<u8> {
    let mut line = Vec::new();
    begin_json(unix_ms, &date::rfc3339(unix_ms.div_euclid(1000)), "message", &mut line);
    line.extend_from_slice(b",\"message\":\"");
    push_json(message.as_bytes(), &mut line);
    line.extend_from_slice(b"\"}\n");
    line
}

/// The members that all lines have.
fn begin_json(unix_ms: i64, rfc3339: &[u8; date::RFC3339_LEN], kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(rfc3339);
    out.push(b'.');
    push_number(unix_ms.rem_euclid(1000).unsigned_abs(), 3, out);
    out.extend_from_slice(b"Z\",\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

/// Escapes text of a client for a JSON string, so that it cannot end the string.
fn push_json(text: &[u8], out: &mut Vec<u8>) {
    if is_plain_json(text) {
        out.extend_from_slice(text);
    } else {
        out.extend_from_slice(escape_json(&String::from_utf8_lossy(text)).as_bytes());
    }
}

/// Escapes text of a client, so that it cannot forge a line or a field.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) =
        rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f..))
    {
        out.extend_from_slice(&rest[..at]);
        // Writing to a vector cannot fail.
        let _ = write!(out, "\\x{:02x}", rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Writes a number with at least this many digits. `write!` would take as many instructions as the rest of a line.
fn push_number(number: u64, digits: usize, out: &mut Vec<u8>) {
    let mut text = [b'0'; 20];
    let (mut at, mut rest) = (text.len(), number);
    while rest > 0 {
        at -= 1;
        text[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    out.extend_from_slice(&text[at.min(text.len() - digits)..]);
}

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
    use session::record::{Began, Recording};

    /// 1994-11-06T08:49:37.042Z.
    const UNIX_MS: i64 = 784_111_777_042;

    fn record() -> Box<Record> {
        let log = Some(LogId(Rc::new(ring::Key::NONE)));
        let recording = Recording { site: "a.example".into(), log, label: None };
        let target = Target::Origin { path: b"/\"a", query: Some(b"b\xff") };
        let (version, index) = (Version::Http11, FieldIndex::EMPTY);
        let head = Head::new(Method::Get, target, version, None, b"", index);
        let disk_wait = Duration::from_micros(1500);
        let began = Began { at: Time::default(), unix_ms: UNIX_MS, disk_wait };
        Record::new(Rc::new(recording), Some(&head), Status::PartialContent, began)
    }

    fn line(format: LogFormat, cut: Option<Cut>) -> String {
        line_of(format, None, cut)
    }

    fn line_of(format: LogFormat, handshake: Option<&dyn Handshake>, cut: Option<Cut>) -> String {
        let record = record();
        let duration = Duration::from_millis(1_002_003);
        let (mut clock, mut out) = (Clock::at(0), Vec::new());
        let (peer, client) = ("::1", "192.0.2.1");
        let line = Line { record: &record, peer, client, handshake, bytes: 77, duration, cut };
        line.write(format, &mut clock, &mut out);
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
                    \"seconds\":1002.003000,\"disk_seconds\":0.001500,\"referer\":\"\",\"user_agent\":\"\"";
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
                assert_eq!(line_of(format, Some(&said), None), line(format, None));
            }
        }
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
        assert_eq!(Clock::at(784_111_777).common, *b"06/Nov/1994:08:49:37 +0000");
    }
}

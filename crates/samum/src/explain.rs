//! The question of `samum explain`: a request that no client sends, and its way to a server.
//!
//! On the way the question is one line: the method (unless it is GET) and the URL, the address of the client and the
//! fields, each separated by a line feed, which the control socket escapes. The answer is made by
//! `handler/src/router/explain.rs`.

use std::path::Path;
use std::sync::Arc;

use crate::attached::AUTHORIZES;
use crate::machine::Machine;
use config::file::{self, Errors};
pub use handler::router::explain::Client;
use handler::router::explain::{Parts, explain};
use handler::serving::Snapshot;
use http1::Limits;
use session::forwarded::Scheme;

/// The most bytes of a question, on its way.
pub(crate) const QUESTION_MAX: usize = 16 * 1024;

/// The limits of the head of a question: none that a server may have. The explanation applies those of the server.
const LIMITS: Limits = Limits {
    head_bytes_max: 2 * QUESTION_MAX,
    target_bytes_max: QUESTION_MAX,
    fields_max: QUESTION_MAX,
    ..Limits::DEFAULT
};
const _: () = assert!(LIMITS.head_bytes_max <= Limits::HEAD_BYTES_CEILING);

/// A request of which `samum explain` asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its method.
    method: String,
    /// Its URL.
    url: String,
    /// The client, if the rules for clients are to be applied.
    from: Option<Client>,
    /// Its fields, such as `Accept-Encoding: br`.
    fields: Vec<String>,
}

impl Question {
    /// Takes the arguments of the command.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn new(
        method: &str,
        url: &str,
        from: Option<Client>,
        fields: &[String],
    ) -> Result<Self, String> {
        let (method, url) = (method.to_owned(), url.to_owned());
        let question = Self { method, url, from, fields: fields.to_vec() };
        question.parts()?;
        if question.to_text().len() > QUESTION_MAX {
            return Err("the URL and the fields have 16 KiB at most".to_owned());
        }
        Ok(question)
    }

    /// The question on its way.
    pub(crate) fn to_text(&self) -> String {
        let from = self.from.map(|from| from.to_string()).unwrap_or_default();
        let url = match &self.method[..] {
            "GET" => self.url.clone(),
            method => format!("{method} {}", self.url),
        };
        let mut lines = vec![&url[..], &from];
        lines.extend(self.fields.iter().map(|field| &field[..]));
        lines.join("\n")
    }

    /// Reads a question that has come.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        let mut lines = text.split('\n');
        let first = lines.next().unwrap_or_default();
        let (method, url) = first.split_once(' ').unwrap_or(("GET", first));
        let from = match lines.next().unwrap_or_default() {
            "" => None,
            from => Some(from.parse().map_err(|why| format!("{from:?}: {why}"))?),
        };
        let fields: Vec<_> = lines.map(str::to_owned).collect();
        Self::new(method, url, from, &fields)
    }

    /// Splits the question into its parts.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn parts(&self) -> Result<Parts, String> {
        let Self { method, url, from, fields } = self;
        let wrong = |why: &str| format!("{url:?}: {why}");
        if url.contains(char::is_whitespace) {
            return Err(wrong("a URL has no blanks: `%20` stands for one"));
        }
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{method:?}: expected a method, such as POST"));
        }
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            _ => return Err(wrong("expected a URL with its scheme, such as http://host/path")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(end);
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        if host.is_empty() || host.contains('@') {
            return Err(wrong("expected a host, without a user or a password"));
        }
        let port = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
        let port = port.map(|(_, port)| port.parse().map_err(|_| wrong("its port is no number")));
        let port = port.transpose()?;
        let mut asked = None;
        let mut others = String::new();
        for field in fields {
            let Some((name, value)) =
                field.split_once(':').filter(|_| !field.contains(['\r', '\n']))
            else {
                return Err(format!("{field:?}: expected a field, such as `Accept-Encoding: br`"));
            };
            if name.eq_ignore_ascii_case("Host") && asked.is_none() {
                asked = Some(value.trim().to_owned());
                continue;
            }
            others.push_str(field);
            others.push_str("\r\n");
        }
        let asked = asked.unwrap_or_else(|| host.to_owned());
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {asked}\r\n{others}\r\n");
        // The parser of servers judges it.
        match http1::parse(head.as_bytes(), &LIMITS) {
            Ok(Some((_, len))) if len == head.len() => {}
            Ok(_) => return Err(wrong("it is no URL of a request")),
            Err(reject) => return Err(wrong(&format!("the request is refused: {reject}"))),
        }
        let (host, url, method) = (host.to_owned(), url.clone(), method.clone());
        Ok(Parts { scheme, method, url, host, asked, port, head, from: *from })
    }
}

/// Explains by a configuration file what a server would do.
///
/// # Errors
///
/// Those of the file, or a sentence for the operator.
pub fn explain_file(file: &Path, question: &Question) -> Result<String, Errors> {
    let loaded = file::load(file, &mut Machine::new()?)?;
    let snapshot = Snapshot::new(&loaded.config);
    let snapshot = snapshot.map_err(|why| loaded.config.secrets.conceal(&why).into_owned())?;
    Ok(explain(Arc::new(snapshot), &question.parts()?, AUTHORIZES)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str, fields: &[&str]) -> Result<Parts, String> {
        let fields: Vec<_> = fields.iter().map(|&field| field.to_owned()).collect();
        Question::new("GET", url, None, &fields)?.parts()
    }

    #[test]
    fn a_url_is_the_head_of_a_request() {
        for (url, host, port, line) in [
            ("http://a.example", "a.example", None, "GET / HTTP/1.1"),
            ("HTTPS://a.example/b?c#d", "a.example", None, "GET /b?c HTTP/1.1"),
            ("http://a.example:8080?x", "a.example:8080", Some(8080), "GET /?x HTTP/1.1"),
            ("http://[::1]:81/%41", "[::1]:81", Some(81), "GET /%41 HTTP/1.1"),
            ("http://[::1]/", "[::1]", None, "GET / HTTP/1.1"),
        ] {
            let parts = parts(url, &["Accept: */*"]).expect(url);
            assert_eq!((&parts.host[..], parts.port), (host, port), "{url}");
            let head = format!("{line}\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
            assert_eq!((parts.head, &parts.asked[..]), (head, host), "{url}");
        }
        let parts = parts("https://a.example/", &["A: b", "host:  b.example "]).unwrap();
        assert_eq!((&parts.host[..], &parts.asked[..]), ("a.example", "b.example"));
        assert_eq!(parts.head, "GET / HTTP/1.1\r\nHost: b.example\r\nA: b\r\n\r\n");
    }

    #[test]
    fn what_no_client_could_send_is_refused() {
        for (url, fields) in [
            ("a.example/", &[][..]),
            ("ftp://a.example/", &[]),
            ("http:///a", &[]),
            ("http://user:secret@a.example/", &[]),
            ("http://a.example:x/", &[]),
            ("http://a.example/a b", &[]),
            ("http://a.example/a\r\nX: y", &[]),
            ("http://a.example/\u{1b}[2J", &[]),
            ("http://a.example/", &["Accept"]),
            ("http://a.example/", &["Accept: a\r\nX: y"]),
            ("http://a.example/", &["A: a\nX: y"]),
            ("http://a.example/", &["Host: b.example", "Host: b.example"]),
            ("http://a.example/", &["Host: b.example/c"]),
            ("http://a.example/", &["A: \u{1b}[2J"]),
            ("http://a.example/", &[": a"]),
        ] {
            assert!(parts(url, fields).is_err(), "{url:?} {fields:?}");
        }
        for method in
            ["", "GET ", "A B", "A\r\nB", "GET /x HTTP/1.1\r\nA:", "\u{1b}", "ä", "CONNECT", "A:"]
        {
            assert!(Question::new(method, "http://a.example/", None, &[]).is_err(), "{method:?}");
        }
        let long = format!("A: {}", "x".repeat(QUESTION_MAX));
        assert!(parts("http://a.example/", &[&long]).is_err());
    }

    #[test]
    fn a_question_is_the_same_at_the_other_end() {
        for (method, from) in [
            ("GET", None),
            ("POST", Some("192.0.2.1".parse().unwrap())),
            ("BREW", Some(Client::Unix)),
        ] {
            let fields = ["A: b".to_owned(), "C: d".to_owned()];
            let question = Question::new(method, "http://a.example/", from, &fields).unwrap();
            assert_eq!(Question::from_text(&question.to_text()), Ok(question));
        }
        assert!(Question::from_text("").is_err());
        assert!(Question::from_text("http://a.example/\nnobody").is_err());
    }
}

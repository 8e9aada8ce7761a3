//! The cases of `http_desync_guardian`: requests that two servers could understand differently.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use http::{Head, Target, date, path};
use http_desync_guardian::RequestSafetyTier;
use http_desync_guardian::request_analyzer::HttpRequestData;
use http1::client::{Connection, Event};
use http1::response::Framing;
use http1::write::{self, Wire};
use http1::{Limits, Request};
use proptest::prelude::*;
use proptest::sample::select;
use yaml_rust2::{Yaml, YamlLoader};

use crate::proxy::request::tests::{HOW, SENDER, fields};
use crate::proxy::request::{self, Forwarding};
use crate::proxy::response::tests::PLAIN;
use crate::proxy::response::{self, Meaning};
use config::RESPONSE_LIMITS;
use session::client::Sender;

/// A request, and what the corpus says of it.
struct Case {
    name: String,
    /// The head of the request as it is sent.
    head: String,
    /// The lines of its fields.
    lines: String,
    tier: String,
    reason: String,
}

/// The cases of all files of the crate, whose directory cargo knows.
fn cases() -> Vec<Case> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--offline", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", env::consts::ARCH))
        .output()
        .expect("cargo runs");
    let metadata = String::from_utf8(metadata.stdout).expect("UTF-8");
    let manifest = metadata
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next())
        .map(PathBuf::from)
        .find(|path| path.to_string_lossy().contains("/http_desync_guardian-"))
        .expect("a development dependency");
    let mut cases = Vec::new();
    for entry in fs::read_dir(manifest.with_file_name("tests")).expect("its tests") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            let documents = YamlLoader::load_from_str(&text).expect("YAML");
            cases.extend(documents[0].as_vec().expect("a list").iter().map(case));
        }
    }
    cases
}

fn case(yaml: &Yaml) -> Case {
    let lines: String = yaml["headers"]
        .as_vec()
        .map_or(&[][..], |headers| headers)
        .iter()
        .map(|field| format!("{}: {}\r\n", text(&field["name"]), text(&field["value"])))
        .collect();
    let [method, uri, version] = ["method", "uri", "version"].map(|key| text(&yaml[key]));
    // The corpus looks at parts of requests. Without this line all would be refused.
    let has_host = lines.to_ascii_lowercase().contains("host:");
    let host = if has_host { "" } else { "Host: localhost\r\n" };
    Case {
        name: text(&yaml["name"]),
        head: format!("{method} {uri} {version}\r\n{host}{lines}\r\n"),
        lines,
        tier: text(&yaml["expected"]["tier"]),
        reason: text(&yaml["expected"]["reason"]),
    }
}

/// A text or a number of the corpus, whose texts have escapes of their own in addition to those of YAML.
fn text(yaml: &Yaml) -> String {
    let Some(text) = yaml.as_str() else {
        return yaml.as_i64().expect("a text or a number").to_string();
    };
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        out.push(match (char, if char == '\\' { chars.next() } else { None }) {
            ('\\', Some('x')) => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).expect("hexadecimal digits").into()
            }
            ('\\', Some('b')) => '\x08',
            ('\\', Some('f')) => '\x0c',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('t')) => '\t',
            ('\\', Some(other)) => other,
            (char, _) => char,
        });
    }
    out
}

/// Requests that the corpus permits and the parser refuses.
const STRICTER: &[(&str, &str)] = &[
    (
        "an unknown transfer coding",
        "RFC 9112 §6.1: a server that does not know a coding answers 501",
    ),
    (
        "a Transfer-Encoding that does not end in chunked",
        "RFC 9112 §7.1: chunked has no parameters; other servers refuse them or end the body elsewhere",
    ),
    ("a target with a fragment", "RFC 9112 §3.2.1: a target has no fragment"),
    (
        "a target with bytes outside ASCII that are not percent-encoded",
        "RFC 3986 §2: such bytes are encoded; servers differ in the paths that they take from them",
    ),
    ("two spaces before the target", "RFC 9112 §3: a request has a target"),
];

/// Requests that the corpus calls ambiguous because of their methods, and that are passed on all the same:
/// RFC 9112 §6.3 frames bodies without regard to methods, and clients search with such requests. As RFC 9110
/// §9.3.1 and §9.3.5 warn that servers may take such a body for a request, nothing follows it through its link.
const BODIES: &[&str] = &["UndefinedContentLengthSemantics", "UndefinedTransferEncodingSemantics"];

#[test]
fn a_request_is_refused_or_has_one_meaning() {
    let mut refused = 0;
    let cases = cases();
    assert_eq!(cases.len(), 159, "another version of the corpus");
    for Case { name, head, tier, reason, .. } in cases {
        let may_pass = tier == "Compliant" || tier == "Acceptable";
        let parsed = match http1::parse(head.as_bytes(), &Limits::DEFAULT) {
            Ok(parsed) => parsed.expect("complete"),
            Err(reject) => {
                let is_disputed = STRICTER.iter().any(|(reason, _)| *reason == reject.reason);
                assert!(tier != "Compliant" || is_disputed, "{name}: {reject}: {head:?}");
                refused += 1;
                continue;
            }
        };
        let (request, len) = parsed;
        assert_eq!(len, head.len(), "{name}");
        if request::refusal(&request.head).is_some() {
            refused += 1;
            continue;
        }
        let has_body = BODIES.contains(&&*reason) && request::is_last(&request.head);
        assert!(may_pass || has_body, "{name} passes: {head:?}");
        let mut sent = Vec::new();
        request::write(&request.head, &mut sent, &HOW).expect("not too long");
        check_same(&request, &sent);
        let verdict = HttpRequestData::analyze_raw_request(&sent);
        assert!(
            verdict.tier == RequestSafetyTier::Compliant
                || has_body && BODIES.contains(&&*format!("{:?}", verdict.reason)),
            "{name}: {:?}: {}",
            verdict.message,
            sent.escape_ascii()
        );
    }
    assert!(refused > 100, "{refused} of the corpus are refused");
}

#[test]
fn a_response_is_refused_or_has_one_meaning() {
    /// The reasons that are in the fields, and hold for responses too.
    const SEVERE: [&str; 8] = [
        "BadContentLength",
        "BadHeader",
        "BadTransferEncoding",
        "BothTeClPresent",
        "DuplicateContentLength",
        "MultipleContentLength",
        "MultipleTransferEncodingChunked",
        "SuspiciousHeader",
    ];
    let mut passed = 0;
    for Case { name, lines, reason, .. } in cases() {
        let received = format!("HTTP/1.1 200 \r\n{lines}\r\n");
        let mut connection = Connection::new();
        connection.begin(http::Method::Get);
        let response = match connection.handle_input(received.as_bytes(), &RESPONSE_LIMITS) {
            (len, Event::Response(response)) => {
                assert_eq!(len, received.len(), "{name}");
                response
            }
            (_, Event::Faulty(_)) => continue,
            (_, event) => panic!("{name}: {event:?}"),
        };
        let mut asked = PLAIN;
        let Ok(meaning) = response::read(&response, &mut asked, (0, &date::format(0))) else {
            continue;
        };
        let Meaning::Response(head) = meaning else { panic!("{name}: {meaning:?}") };
        // A response that has one meaning passes, cleaned as is checked below, and nothing follows it on its link.
        assert!(
            !SEVERE.contains(&&*reason) || !response.keep_alive || !asked.may_keep,
            "{name} passes, and its link is kept: {received:?}"
        );
        passed += 1;
        let wire = Wire { chunked: head.content_length.is_none(), ..Wire::default() };
        let mut sent = Vec::new();
        write::response_head(&head.head(0), &date::format(0), wire, &mut sent);
        connection = Connection::new();
        connection.begin(http::Method::Get);
        let Event::Response(again) = connection.handle_input(&sent, &RESPONSE_LIMITS).1 else {
            panic!("{name}: {}", sent.escape_ascii())
        };
        let known = |framing| match framing {
            Framing::UntilClose => Framing::Chunked,
            known => known,
        };
        assert_eq!(again.framing, known(response.framing), "{name}");
        // It judges requests only, so the fields are looked at after a line of a request.
        let fields = sent.iter().position(|&byte| byte == b'\n').expect("a status line") + 1;
        let request = [b"POST / HTTP/1.1\r\n", &sent[fields..]].concat();
        let verdict = HttpRequestData::analyze_raw_request(&request);
        let tier = verdict.tier;
        assert!(tier <= RequestSafetyTier::Acceptable, "{name}: {:?}", verdict.message);
    }
    assert!(passed > 30, "{passed} of the corpus pass");
}

/// The framing of the content of a request. The protocols that follow it may be left out.
fn content(request: &Request<'_>) -> http::Framing {
    match request.head.framing {
        http::Framing::Tunnel => http::Framing::None,
        framing => framing,
    }
}

/// Checks that a head that was sent has the meaning of the one that was received.
fn check_same(received: &Request<'_>, sent: &[u8]) {
    let parsed = http1::parse(sent, &Limits::DEFAULT);
    let text = sent.escape_ascii();
    let Ok(Some((again, len))) = parsed else { panic!("{parsed:?}: {text}") };
    assert_eq!(len, sent.len(), "{text}");
    assert_eq!(content(&again), content(received), "{text}");
    assert_eq!(again.head.method, received.head.method, "{text}");
    let host = received.head.host().unwrap_or(HOW.authority);
    assert_eq!(again.head.host(), Some(host), "{text}");
    assert!(!again.expect_continue, "{text}");
    let (Target::Origin { path, query }, Target::Origin { path: path_again, query: query_again }) =
        (received.head.target, again.head.target)
    else {
        panic!("{text}")
    };
    assert_eq!(query_again, query, "{text}");
    let [mut name, mut name_again] = [Vec::new(), Vec::new()];
    if let Ok(normal) = path::normalize(path, &mut name) {
        assert_eq!(path::normalize(path_again, &mut name_again), Ok(normal), "{text}");
        assert_eq!(name_again, name, "{text}");
    }
    // The fields that are left are the same, in their order, and only known ones are added or left out.
    let is_changed = |name: &[u8]| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let changed =
            ["content-length", "expect", "forwarded", "host", "max-forwards", "proxy", "via"];
        changed.contains(&&*name)
            || name.starts_with("x-forwarded-")
            || name == "x-real-ip"
            || name.contains(|char: char| !char.is_ascii_alphanumeric() && char != '-')
    };
    let end_to_end = |head: &Head<'_>| -> Vec<(Vec<u8>, Vec<u8>)> {
        let fields = head.fields().end_to_end().filter(|(name, _)| !is_changed(name));
        fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    };
    assert_eq!(end_to_end(&again.head), end_to_end(&received.head), "{text}");
}

/// Pieces of heads that the parser accepts in nearly all combinations.
const LINES: [&str; 24] = [
    "Connection: close\r\n",
    "Connection: keep-alive, X-A\r\n",
    "connection: upgrade, TE, Cookie\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 005\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: , Chunked\r\n",
    "TE: trailers, gzip;q=0.5\r\n",
    "Trailer: X-A\r\n",
    "Upgrade: websocket, h2c\r\n",
    "Keep-Alive: 5\r\n",
    "Expect: 100-continue\r\n",
    "Host: other\r\n",
    "X-A: 1\r\n",
    "X-A:\r\n",
    "X_A: 2\r\n",
    "Cookie: a=b; c=\"d\"\r\n",
    "Accept:\t*/* \t\r\n",
    "Forwarded: for=1.1.1.1;x=\"\r\n",
    "X-Forwarded-For: 1.1.1.1, unknown\r\n",
    "X-Forwarded-Proto: \"\r\n",
    "Via: 1.0 fred, 1.1 samum\r\n",
    "Max-Forwards: 3\r\n",
    "X-Umlaut: \u{e4}\r\n",
];

fn received() -> impl Strategy<Value = String> {
    let line = (
        select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"]),
        "(http://h:1)?(/[a-c%.;:@+~|\"2eEfF]{0,5}){1,4}(\\?[a-c%.;/?&=|]{0,6})?",
        select(vec!["1.1", "1.1", "1.1", "1.0"]),
    );
    let fields = proptest::collection::vec(select(LINES.to_vec()), 0..8);
    (line, fields).prop_map(|((method, target, version), fields)| {
        format!("{method} {target} HTTP/{version}\r\nHost: h\r\n{}\r\n", fields.concat())
    })
}

proptest! {
    #[test]
    fn each_head_that_is_accepted_keeps_its_meaning(received in received(), is_trusted: bool) {
        if let Ok(Some((request, _))) = http1::parse(received.as_bytes(), &Limits::DEFAULT) {
            let how = Forwarding { sender: Sender { is_trusted, ..SENDER }, ..HOW };
            let mut sent = Vec::new();
            request::write(&request.head, &mut sent, &how).expect("not too long");
            check_same(&request, &sent);
        }
    }

    #[test]
    fn the_fields_of_a_route_are_there_once_whatever_the_client_sends(received in received(), is_trusted: bool) {
        if let Ok(Some((request, _))) = http1::parse(received.as_bytes(), &Limits::DEFAULT) {
            let own = fields(&[
                ("Host", "own:1"),
                ("X-A", "a$path$query$host$method"),
                ("Cookie", ""),
                ("X-Forwarded-For", "$client"),
            ]);
            let sender = Sender { is_trusted, ..SENDER };
            let how = Forwarding { sender, fields: Some(&own), ..HOW };
            let mut sent = Vec::new();
            request::write(&request.head, &mut sent, &how).expect("not too long");
            let text = sent.escape_ascii();
            let Ok(Some((again, len))) = http1::parse(&sent, &Limits::DEFAULT) else { panic!("{text}") };
            prop_assert_eq!((len, content(&again)), (sent.len(), content(&request)), "{}", text);
            prop_assert_eq!(again.head.host(), Some(&b"own:1"[..]), "{}", text);
            let count = |wanted: &str| {
                let is_it = |name: &[u8]| name.eq_ignore_ascii_case(wanted.as_bytes());
                again.head.fields().filter(|(name, _)| is_it(name)).count()
            };
            let counts = ["Host", "X-A", "Cookie", "X-Forwarded-For", "X_A"].map(count);
            prop_assert_eq!(counts, [1, 1, 0, 1, 0], "{}", text);
        }
    }
}

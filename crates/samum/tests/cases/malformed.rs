//! Malformed input gets a status and a close, never a second interpretation (RFC 9112 §11.2).

use super::{Case, Expected, Site};

pub(super) fn sites() -> Vec<Site> {
    let case = |(what, mut bytes, status): (&str, Vec<u8>, u16)| {
        // Whatever it might be taken for, this must not be answered.
        bytes.extend_from_slice(b"GET /index.html HTTP/1.1\r\nHost: smuggled\r\n\r\n");
        let refused = Expected::page(status).field("Connection", "close");
        Case::new(what).send(bytes, [refused]).closes()
    };
    let cases = table().into_iter().map(case);
    vec![Site::new("malformed").file("index.html", "index").cases(cases)]
}

/// For each case the fault, the bytes and the status.
fn table() -> Vec<(&'static str, Vec<u8>, u16)> {
    let get = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
    let post = |fields: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}").into_bytes()
    };
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    let mut many = String::new();
    for number in 0..150 {
        many += &format!("X-{number}: x\r\n");
    }
    vec![
        ("a space before a colon", get("X : y\r\n"), 400),
        ("a field without a name", get(": y\r\n"), 400),
        ("a field without a colon", get("XY\r\n"), 400),
        ("a space in a name", get("X Y: z\r\n"), 400),
        ("a folded line", get("X: y\r\n z\r\n"), 400),
        ("a folded first line", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_vec(), 400),
        ("a bare CR in a value", get("X: y\rz\r\n"), 400),
        ("a bare LF", b"GET / HTTP/1.1\nHost: a\n\n".to_vec(), 400),
        ("a NUL in a value", get("X: y\0z\r\n"), 400),
        ("a control character in a value", get("X: y\x07z\r\n"), 400),
        ("a NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a tab for a space", b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("two spaces", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a space at the end of the line", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n".to_vec(), 400),
        ("no version", b"GET /\r\n\r\n".to_vec(), 400),
        ("a version that is none", b"GET / HTTX/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("HTTP/2.0", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_vec(), 505),
        ("HTTP/3.0", b"GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_vec(), 505),
        ("a relative target", b"GET a.txt HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("an asterisk", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a fragment", b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a control character", b"GET /\xc3\xa9\x01 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a delete character", b"GET /\xff\x7f HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a space in letters", b"GET /\xc3\xa9 \xff HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("a host outside ASCII", b"GET http://\xc3\xa9/ HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        ("empty lines without end", b"\r\n\r\n\r\n\r\n\r\n\r\n".to_vec(), 400),
        ("a length that is none", post("Content-Length: x\r\n", ""), 400),
        ("an empty length", post("Content-Length:\r\n", ""), 400),
        ("a signed length", post("Content-Length: +1\r\n", "x"), 400),
        ("a negative length", post("Content-Length: -1\r\n", ""), 400),
        ("a hexadecimal length", post("Content-Length: 0x1\r\n", "x"), 400),
        ("a length beyond 64 bits", post("Content-Length: 18446744073709551616\r\n", ""), 400),
        ("two lengths", post("Content-Length: 1\r\nContent-Length: 2\r\n", "x"), 400),
        ("two equal lengths", post("Content-Length: 1\r\nContent-Length: 1\r\n", "x"), 400),
        ("a list of lengths", post("Content-Length: 1, 1\r\n", "x"), 400),
        (
            "a length and a coding",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            400,
        ),
        (
            "a coding and a length",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
            400,
        ),
        (
            "a coding in HTTP/1.0",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
            400,
        ),
        ("chunked twice", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400),
        ("chunked not last", post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), 400),
        ("not chunked", post("Transfer-Encoding: identity\r\n", ""), 400),
        (
            "an unknown coding before chunked",
            post("Transfer-Encoding: x, chunked\r\n", "0\r\n\r\n"),
            501,
        ),
        (
            "a method that is too long",
            [&b"M".repeat(100)[..], b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(),
            501,
        ),
        ("an expectation", get("Expect: the-unexpected\r\n"), 417),
        (
            "a target that is too long",
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000)).into_bytes(),
            414,
        ),
        ("a target without end", format!("GET /{}", "x".repeat(9000)).into_bytes(), 414),
        ("a line that is too long", get(&format!("X: {}\r\n", "x".repeat(17_000))), 431),
        (
            "a line without end",
            format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(17_000)).into_bytes(),
            431,
        ),
        ("too many fields", get(&many), 431),
        ("a chunk size that is none", chunked("x\r\n"), 400),
        ("an empty chunk size", chunked("\r\n"), 400),
        ("a signed chunk size", chunked("+1\r\nx\r\n0\r\n\r\n"), 400),
        ("a chunk size with 0x", chunked("0x1\r\nx\r\n0\r\n\r\n"), 400),
        ("a chunk size beyond 64 bits", chunked("10000000000000000\r\n"), 400),
        ("a chunk longer than it says", chunked("1\r\nxy\r\n0\r\n\r\n"), 400),
        ("a chunk size with a bare LF", chunked("1\nx\r\n0\r\n\r\n"), 400),
        ("an endless chunk extension", chunked(&format!("1;{}", "x".repeat(5000))), 400),
        ("a malformed trailer", chunked("0\r\nX : y\r\n\r\n"), 400),
        ("a body of chunks that is too large", chunked("7fffffff\r\n"), 413),
    ]
}

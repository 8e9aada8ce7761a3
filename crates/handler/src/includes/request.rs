//! The requests for includes of a page.

use http::{Field, FieldIndex, Head, HeadBuf, Method, path};

/// Fields of a client's request that concern its response as a whole, or its body.
const LEFT_OUT: [&str; 12] = [
    "Accept-Encoding",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "Expect",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
];

/// Fields of a client's request that concern its body. `Transfer-Encoding` concerns the connection.
const OF_BODY: [&str; 5] =
    ["Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Expect"];

/// The head of a client's request in the form for includes of its page: `GET`, without a body, conditions, ranges and
/// encodings.
pub(crate) fn stripped(head: &Head<'_>) -> HeadBuf {
    without(head, &LEFT_OUT)
}

/// The head of a client's request in the form for another resource, without a body.
pub(crate) fn bodiless(head: &Head<'_>) -> HeadBuf {
    without(head, &OF_BODY)
}

fn without(head: &Head<'_>, left_out: &[&str]) -> HeadBuf {
    let mut lines = Vec::new();
    let mut index = FieldIndex::EMPTY;
    for (name, value) in head.fields().end_to_end() {
        if left_out.iter().any(|other| other.as_bytes().eq_ignore_ascii_case(name)) {
            continue;
        }
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        let begin = lines.len();
        lines.extend_from_slice(value);
        // The lines may have grown, because the client may have sent fewer spaces.
        if lines.len() + 2 > Head::LINES_BYTES_MAX {
            lines.truncate(begin - name.len() - 2);
            break;
        }
        if let Some(field) = Field::of_name(name) {
            index.add(field, begin..lines.len());
        }
        lines.extend_from_slice(b"\r\n");
    }
    Head::new(Method::Get, head.target, head.version, head.host(), &lines, index).to_owned()
}

/// The path and the query of an included URL, relative to the page with the path `base`. Bytes that no request may have
/// are percent-encoded.
pub(crate) fn resolve(base: &[u8], url: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let (url_path, query) = match url.iter().position(|byte| *byte == b'?') {
        Some(mark) => (&url[..mark], Some(&url[mark + 1..])),
        None => (url, None),
    };
    let mut out = Vec::new();
    if !url_path.starts_with(b"/") {
        let end = base.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        path::encode(&base[..end], &mut out);
    }
    put_visible(url_path, &mut out);
    let query = query.map(|query| {
        let mut out = Vec::new();
        put_visible(query, &mut out);
        out
    });
    (out, query)
}

/// Appends a text. Bytes that are not visible ASCII are percent-encoded, and so is the beginning of a fragment.
fn put_visible(text: &[u8], out: &mut Vec<u8>) {
    path::encode_unless(|byte| byte.is_ascii_graphic() && byte != b'#', text, out);
}

#[cfg(test)]
mod tests {
    use http::{Target, Version};

    use super::*;

    #[test]
    fn a_request_for_a_part_is_not_about_the_whole() {
        let lines = b"Host: a.example\r\nAccept-Encoding: gzip\r\nIF-NONE-MATCH: \"a\"\r\nCookie:b\r\n\
                      Range: bytes=0-\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: c\r\n\
                      C: d\r\nUser-Agent: e\r\n";
        let target = Target::Origin { path: b"/a", query: None };
        let mut index = FieldIndex::EMPTY;
        index.add(Field::Host, 6..15);
        index.add(Field::AcceptEncoding, 34..38);
        let head = Head::new(Method::Post, target, Version::Http11, None, lines, index);
        let made = stripped(&head);
        let made = made.as_head();
        let fields: Vec<_> = made.fields().collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"Host", b"a.example"), (b"Cookie", b"b"), (b"User-Agent", b"e")];
        assert_eq!(fields, expected);
        assert_eq!((made.method, made.target), (Method::Get, target));
        assert_eq!(made.field(Field::UserAgent), Some(&b"e"[..]));
        assert_eq!(made.host(), Some(&b"a.example"[..]));
        assert!(!made.has(Field::AcceptEncoding));
    }

    #[test]
    fn a_url_is_relative_to_its_page() {
        for (base, url, path, query) in [
            ("/d/a.html", "/b", "/b", None),
            ("/d/a.html", "b", "/d/b", None),
            ("/d/a.html", "./b?c=d?", "/d/./b", Some("c=d?")),
            ("/d e/", "../b?", "/d%20e/../b", Some("")),
            ("/a", "b c#d", "/b%20c%23d", None),
            ("/a", "/b%20c\n?d e\u{e4}", "/b%20c%0A", Some("d%20e%C3%A4")),
            ("/a", "//b/c", "//b/c", None),
            ("/a", "http://b/c", "/http://b/c", None),
            ("/d/a", "", "/d/", None),
        ] {
            let resolved = resolve(base.as_bytes(), url.as_bytes());
            let expected = (path.as_bytes().to_vec(), query.map(|query| query.as_bytes().to_vec()));
            assert_eq!(resolved, expected, "{base} {url}");
        }
    }
}

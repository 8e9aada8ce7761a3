use super::*;

/// Parses a whole output; returns the reply and the content.
fn parse(output: &str) -> Result<Option<(Reply, &str)>, &'static str> {
    let (taken, reply) =
        Parser::default().handle_output(output.as_bytes()).map_err(|fault| fault.reason)?;
    Ok(reply.map(|reply| (reply, &output[taken..])))
}

#[track_caller]
fn document(output: &str) -> Document {
    match parse(output) {
        Ok(Some((Reply::Document(document), _))) => document,
        other => panic!("{output:?}: {other:?}"),
    }
}

fn text(value: &Option<Vec<u8>>) -> Option<&str> {
    value.as_deref().map(|value| core::str::from_utf8(value).unwrap())
}

fn fields(document: &Document) -> String {
    String::from_utf8(document.fields.as_bytes().to_vec()).unwrap()
}

#[test]
fn rfc3875_6_2_1_a_document() {
    let output =
        "Content-Type: text/plain\r\nX-A: 1\nset-cookie:a=b\nSet-Cookie:\tc=d \n\r\nhello\n";
    let Ok(Some((Reply::Document(document), rest))) = parse(output) else { panic!("a document") };
    assert_eq!(rest, "hello\n");
    assert_eq!((document.status, document.content_length), (Status::Ok, None));
    assert_eq!(text(&document.content_type), Some("text/plain"));
    assert_eq!(text(&document.location), None);
    assert_eq!(fields(&document), "X-A: 1\r\nset-cookie: a=b\r\nSet-Cookie: c=d\r\n");
}

#[test]
fn rfc3875_6_3_3_status() {
    let status = |line: &str| {
        parse(&format!("Content-Type: a/b\n{line}\n\n")).map(|reply| match reply {
            Some((Reply::Document(document), _)) => document.status.code(),
            other => panic!("{line}: {other:?}"),
        })
    };
    for (line, code) in [
        ("Status: 200", 200),
        ("status:404 Not Found", 404),
        ("STATUS: 599\tx", 599),
        ("Status: 999", 999),
        ("Status: 299 ", 299),
        ("Status: 204 No Content", 204),
        ("Status: HTTP/1.1 404 Not Found", 404),
        ("Status: HTTP/1.0  404", 404),
        ("Status: HTTP/2 404 Not Found", 404),
        ("Status:", 200),
        ("Status : 404", 404),
        ("Status: 404\nStatus: 404 Not Found", 404),
    ] {
        assert_eq!(status(line), Ok(code), "{line}");
    }
    for line in [
        "Status: 20",
        "Status: 2000",
        "Status: 200OK",
        "Status: OK",
        "Status: 100",
        "Status: 101 x",
        "Status: 199",
        "Status: 1000",
        "Status: 000",
        "Status: -20",
        "Status: +20",
        "Status: HTTP/1.1",
        "Status: HTTP/x 200",
        "Status: HTTP/1 200",
        "Status: HTTP/2. 200",
        "Status: HTTP/1.1 20",
    ] {
        assert_eq!(status(line), Err("a Status that is no status"), "{line}");
    }
}

#[test]
fn rfc3875_6_2_2_a_path_in_location_is_a_local_redirect() {
    for (output, expected) in [
        ("Location: /a/b?c=d\n\n", "/a/b?c=d"),
        ("location:/\r\n\r\n", "/"),
        ("Location: /a\nStatus: 200 OK\n\n", "/a"),
        ("Location: //host/a\n\n", "//host/a"),
        ("Location: /\u{e4}%e4?\u{e4}\n\n", "/%C3%A4%e4?%C3%A4"),
        ("Location: /a\nX-Lost: 1\nContent-Type: a/b\n\nlost", "/a"),
        ("Location: /a b\"\n\n", "/a%20b\""),
    ] {
        let Ok(Some((Reply::LocalRedirect(path), _))) = parse(output) else { panic!("{output}") };
        assert_eq!(path, expected.as_bytes(), "{output}");
    }
}

#[test]
fn rfc3875_6_2_3_and_4_any_other_location_is_for_the_client() {
    for (output, code, location, has_type) in [
        ("Location: http://a.example/b\n\n", 302, "http://a.example/b", false),
        ("Location: b\n\n", 302, "b", false),
        // §6.2.2: a local path has no fragment.
        ("Location: /a?b#c\n\n", 302, "/a?b#c", false),
        ("Location: /#c\nContent-Type: a/b\n\ntext", 302, "/#c", true),
        // A local redirect would lose the cookie.
        ("Location: /a\nset-cookie: b=c\n\n", 302, "/a", false),
        ("Set-Cookie: b=c\nStatus: 200\nLocation: /a\nContent-Type: a/b\n\n", 302, "/a", true),
        ("Status: 301 Moved\nLocation: /b\n\n", 301, "/b", false),
        ("Status: 303\nLocation: https://a/\nContent-Type: a/b\n\ntext", 303, "https://a/", true),
        ("Status: 201\nLocation: /new\nContent-Type: a/b\n\n", 201, "/new", true),
    ] {
        let document = document(output);
        assert_eq!(document.status.code(), code, "{output}");
        assert_eq!(text(&document.location), Some(location), "{output}");
        assert_eq!(document.content_type.is_some(), has_type, "{output}");
    }
}

#[test]
fn rfc9110_8_3_content_may_have_no_type() {
    for (output, has_content) in [
        ("\n", true),
        ("\r\nhello", true),
        ("\nContent-Type: a/b\n\n", true),
        ("X: y\n\n", true),
        ("Status: 404\n\n", true),
        ("Content-Length: 3\n\nabc", true),
        ("Status: 204\n\n", false),
        ("Status: 304\nETag: \"a\"\n\n", false),
        ("Location: http://a/\n\n", false),
        ("Status: 201\nLocation: /b\n\n", true),
    ] {
        let document = document(output);
        assert_eq!(document.content_type, None, "{output:?}");
        assert_eq!(document.has_content(), has_content, "{output:?}");
    }
}

#[test]
fn a_header_that_breaks_a_rule_is_a_fault() {
    for (output, reason) in [
        ("hello\n", "a line in its header that is no field"),
        ("A: b\nhello\n\n", "a line in its header that is no field"),
        ("A: b\nHTTP/1.1 200 OK\n\n", "a line in its header that is no field"),
        ("HTTP/1.1 20 OK\n\n", "a Status that is no status"),
        (" Content-Type: a/b\n\n", "a header without fields"),
        ("\u{feff}A: b\n\n", "a header without fields"),
        (": b\n\n", "a header without fields"),
        ("A: b\rC: d\n\n", "a CR or a NUL in a field"),
        ("A: b\r\r\n\n", "a CR or a NUL in a field"),
        ("A: \0\n\n", "a CR or a NUL in a field"),
        ("Content-Length: 18446744073709551616\n\n", TOO_LONG),
        ("Content-Length: x, 18446744073709551616\n\n", TOO_LONG),
        ("Content-Length: 18446744073709551615\n\n", TOO_LONG),
        ("Content-Length: 4611686018427387904\n\n", TOO_LONG),
        ("Content-Length: 1\nContent-Length: 2\n\n", "two Content-Length fields that differ"),
        ("Content-Length: 1, 2\n\n", "two Content-Length fields that differ"),
        ("Location: a\nLocation: b\n\n", "two Location fields"),
        ("Status: 200\nStatus: 404\n\n", "two Status fields"),
    ] {
        assert_eq!(parse(output), Err(reason), "{output:?}");
    }
}

#[test]
fn a_header_is_judged_no_harder_than_the_head_of_a_server() {
    for (output, content_type, length, expected) in [
        // Fields that are the gateway's own business.
        ("Transfer-Encoding: chunked\nX: y\n\n", None, None, "X: y\r\n"),
        ("transfer-encoding:\nContent-Length: 5\n\n", None, Some(5), ""),
        (
            "Transfer-Encoding: gzip, \x01\nConnection: keep-alive\nKeep-Alive: 5\n\n",
            None,
            None,
            "",
        ),
        // Fields that say nothing, or the same twice.
        ("Content-Type:\nX: y\n\n", None, None, "X: y\r\n"),
        ("Content-Type: a/b\nContent-Type:\n\n", Some("a/b"), None, ""),
        ("Content-Type: a/b\nContent-Type: c/d\n\n", Some("c/d"), None, ""),
        ("Location:\nX: y\n\n", None, None, "X: y\r\n"),
        ("Content-Length:\nX:\n\n", None, None, "X: \r\n"),
        ("Content-Length: 5\nContent-Length: 5, 05\n\n", None, Some(5), ""),
        ("Content-Length: x\n\n", None, None, ""),
        ("Content-Length: -1\n\n", None, None, ""),
        ("Content-Length: +5\n\n", None, None, ""),
        ("Content-Length: 5\nContent-Length: x\nContent-Length: 6\n\n", None, None, ""),
        ("Status: 204\nContent-Length: x\n\n", None, None, ""),
        ("Status: 304\nContent-Length: 1, 2\n\n", None, None, ""),
        // Lines that are not well-formed.
        ("Content-Type : a/b\n\n", Some("a/b"), None, ""),
        ("X: a\n b\r\n\tc\nContent-Type:\n a/b\n\n", Some("a/b"), None, "X: a b c\r\n"),
        ("X: a\x01b\n\n", None, None, "X: a b\r\n"),
        ("X: y\nA B: c\n d\nE(: f\n\n", None, None, "X: y\r\n"),
        (": z\nX: y\n : z\n\n", None, None, "X: y : z\r\n"),
        ("HTTP/1.1 200 OK\nContent-Type: a/b\n\n", Some("a/b"), None, ""),
    ] {
        let document = document(output);
        assert_eq!(text(&document.content_type), content_type, "{output:?}");
        assert_eq!(document.content_length, length, "{output:?}");
        assert_eq!(fields(&document), expected, "{output:?}");
    }
    let twice = document("Location: http://a/\nLocation: http://a/\n\n");
    assert_eq!((twice.status.code(), text(&twice.location)), (302, Some("http://a/")));
    let line = document("HTTP/1.1 404 Not Found\nContent-Type: a/b\n\n");
    assert_eq!(line.status.code(), 404);
}

#[test]
fn fields_of_the_connection_and_of_the_server_are_left_out() {
    let output = "Content-Type: a/b\nConnection: close, X-Hop\nX-Hop: 1\n\
        Keep-Alive: 1\nUpgrade: x\nTrailer: y\nTE: z\nDate: then\nServer: me\nx-cgi-secret: 1\nX-CGI-: 2\n\
        X-CG: 3\nETag: \"e\"\n\n";
    assert_eq!(fields(&document(output)), "X-CG: 3\r\nETag: \"e\"\r\n");
}

#[test]
fn rfc9110_15_5_22_a_426_names_the_protocol() {
    let document = document("Status: 426\nUpgrade: a/1\nConnection: upgrade\nX-A: 1\n\n");
    assert_eq!(fields(&document), "X-A: 1\r\nUpgrade: a/1\r\nConnection: upgrade\r\n");
}

#[test]
fn a_header_is_bounded() {
    let long = |bytes: usize| format!("Content-Type: a/b\nX: {}\n\n", "a".repeat(bytes));
    let fixed = long(0).len();
    assert!(parse(&long(HEADER_BYTES_MAX - fixed)).is_ok());
    assert_eq!(parse(&long(HEADER_BYTES_MAX - fixed + 1)), Err("a header that is too long"));
    // Also without any line end.
    assert_eq!(parse(&"a".repeat(HEADER_BYTES_MAX)), Err("a header that is too long"));
    assert_eq!(parse(&"a".repeat(HEADER_BYTES_MAX - 1)), Ok(None));
    let many = |count: usize| format!("{}Content-Type: a/b\n\n", "A: b\n".repeat(count - 1));
    assert!(parse(&many(FIELDS_MAX)).is_ok());
    assert_eq!(parse(&many(FIELDS_MAX + 1)), Err("too many fields"));
}

#[test]
fn an_incomplete_header_is_no_reply() {
    for output in
        ["", "Cont", "Content-Type: a/b", "Content-Type: a/b\n", "Content-Type: a/b\r\n\r"]
    {
        assert_eq!(parse(output), Ok(None), "{output:?}");
    }
}

/// The result is the same in whatever pieces the output comes.
#[test]
fn output_may_come_in_any_pieces() {
    for output in [
        "Content-Type: text/plain\r\nX-A: 1\n\nhello\n\nworld",
        "Location: /a\n\n",
        "Status: 302\nLocation: /a\r\n\r\n",
        "A: b\rC\n\n",
        "nonsense\n",
    ] {
        let whole = parse(output);
        for size in 1..output.len() {
            let mut parser = Parser::default();
            let mut taken = 0;
            let in_pieces = loop {
                let piece = &output.as_bytes()[taken..output.len().min(taken + size)];
                match parser.handle_output(piece) {
                    Ok((count, reply)) => {
                        taken += count;
                        if let Some(reply) = reply {
                            break Ok(Some((reply, &output[taken..])));
                        }
                    }
                    Err(fault) => break Err(fault.reason),
                }
                assert!(taken < output.len(), "{output:?}");
            };
            assert_eq!(in_pieces, whole, "{output:?} by {size}");
        }
    }
}

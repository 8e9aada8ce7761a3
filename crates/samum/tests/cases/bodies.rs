//! Bodies of requests, which this server does not need: they are skipped, up to a limit (RFC 9112 §9.3).

use super::{Case, Expected, Site, request};

pub(super) fn sites() -> Vec<Site> {
    let hello = || Expected::ok("hello");
    let refused = || Expected::page(405);

    let mut skipped = Case::new("a body is skipped and the connection goes on");
    let smuggled = request("GET /smuggled");
    for length in [1, 1000, 1024 * 1024] {
        let body = smuggled.repeat(length / smuggled.len() + 1).into_bytes();
        skipped = skipped
            .send(request(&format!("POST /a.txt\nContent-Length: {length}")), [])
            .send(&body[..length], [refused()]);
    }
    let skipped = skipped
        .send(request("GET /a.txt\nContent-Length: 5") + "xxxxx", [hello()])
        .ask("GET /a.txt", hello());

    let chunks = request("POST /a.txt\nTransfer-Encoding: Chunked")
        + "5;name=\"value\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
    let chunked = Case::new("a body of chunks is skipped and the connection goes on")
        .send(chunks.clone(), [refused()])
        .send(
            chunks.repeat(3) + &request("GET /a.txt"),
            [refused(), refused(), refused(), hello()],
        );

    let close = |expected: Expected| expected.field("Connection", "close");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let too_large = [
        Case::of("POST /a.txt\nContent-Length: 1048577", close(refused())).closes(),
        Case::new("chunks without end")
            .send(
                request("GET /a.txt\nTransfer-Encoding: chunked") + &chunk.repeat(17),
                [close(Expected::page(413))],
            )
            .closes(),
    ];

    // The answer is known without the body, so that is not invited.
    let expects = ["Content-Length: 3", "Content-Length: 99999999", "Transfer-Encoding: chunked"]
        .map(|framing| {
            // After another request, whose response comes first.
            let put = request(&format!("PUT /a.txt\n{framing}\nExpect: 100-continue"));
            Case::new("a body that waits for 100 Continue is not invited")
                .send(request("GET /a.txt") + &put, [hello(), close(refused())])
                .closes()
        });
    let sent = request("GET /a.txt\nContent-Length: 5\nExpect: 100-continue") + "xxxxx";
    let sent = Case::new("a body that does not wait for 100 Continue")
        .send(sent + &request("GET /a.txt"), [close(hello())])
        .closes();

    let cases = [skipped, chunked, sent].into_iter().chain(expects).chain(too_large);
    vec![Site::new("bodies").file("a.txt", "hello").cases(cases)]
}

//! Many requests in one piece, answered in order (RFC 9112 §9.3.2).

use testkit::Content;

use super::{Case, Expected, Site, request};

const REQUESTS: usize = 5_000;
const FILES: usize = 50;

pub(super) fn sites() -> Vec<Site> {
    let big = Content::pseudo_random(9, 200_000);
    let mut site = Site::new("pipelining").file("big.bin", big.clone());
    for number in 0..FILES {
        site = site.file(format!("{number}.txt"), text(number).into_bytes());
    }
    // A few of them are not there.
    let numbers = || (0..REQUESTS).map(|number| number % (FILES + 3));
    let requests: String = numbers().map(|number| request(&format!("GET /{number}.txt"))).collect();
    let expected = numbers().map(|number| {
        if number < FILES { Expected::ok(text(number).into_bytes()) } else { Expected::page(404) }
    });
    let some = [
        "GET /big.bin",
        "GET /1.txt",
        "HEAD /big.bin",
        "GET /missing",
        "GET /big.bin\nRange: bytes=5-9",
    ];
    let mixed: String = some.into_iter().map(request).collect();
    let responses = || {
        [
            Expected::ok(big.clone()),
            Expected::ok("file 1\n"),
            Expected::ok("").field("Content-Length", "200000").for_head(),
            Expected::page(404),
            Expected::part(&big, 5, 9),
        ]
    };
    let one = || Expected::ok("file 1\n");
    let cases = [
        Case::new("large and small files keep their order")
            .send(mixed.repeat(20), (0..20).flat_map(|_| responses())),
        Case::new("five thousand requests in one write").send(requests, expected),
        Case::new("nothing is answered behind the last request")
            .send(request("GET /1.txt\nConnection: close") + &request("GET /2.txt"), [one()])
            .closes(),
        Case::new("nothing is answered behind a malformed one")
            .send(
                request("GET /1.txt") + "BAD\r\n\r\n" + &request("GET /2.txt"),
                [one(), Expected::page(400)],
            )
            .closes(),
    ];
    vec![site.cases(cases)]
}

fn text(number: usize) -> String {
    format!("file {number}\n")
}

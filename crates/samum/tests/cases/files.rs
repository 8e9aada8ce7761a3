//! The bytes of files, and their types.

use testkit::Content;

use super::{Case, Expected, Site};

pub(super) fn sites() -> Vec<Site> {
    let big = Content::from(vec![b'x'; 100_000]);
    // Clients must not take a text for another type because of its bytes.
    let nosniff = |expected: Expected| expected.field("X-Content-Type-Options", "nosniff");
    let empty = || Expected::ok("").field("Content-Length", "0");
    vec![Site::new("files").file("0", "").file("a.txt", "<script>").file("big", big.clone()).cases(
        [
            Case::of("GET /0", empty()),
            Case::of("HEAD /0", empty()),
            Case::of("GET /a.txt", nosniff(Expected::ok("<script>"))),
            Case::of("HEAD /big", nosniff(Expected::ok(""))),
            Case::of("GET /big", nosniff(Expected::ok(big.clone()))),
            Case::of("GET /big\nRange: bytes=1-2", nosniff(Expected::part(&big, 1, 2))),
        ],
    )]
}

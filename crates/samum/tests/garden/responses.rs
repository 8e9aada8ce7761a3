//! Responses through samum, compared with the same responses without it.

use testkit::{Client, Framing, Response, Tree, or_skip, request};

use super::{connect, pass_on};
use crate::common::on_both_drivers;
use crate::garden::origins::{self, Origin, PROGRAMMED, SERVERS};

/// Fields that belong to one connection, or to one moment.
const OF_CONNECTION: [&str; 6] =
    ["connection", "date", "keep-alive", "proxy-connection", "trailer", "transfer-encoding"];

/// Requests for files: all kinds of responses that servers of files have. `ETAG` and `TIME` are those of the
/// file.
const FILES: [&str; 14] = [
    "GET /data.bin",
    "HEAD /data.bin",
    "GET /data.bin\nRange: bytes=0-99",
    "GET /data.bin\nRange: bytes=-1",
    "GET /data.bin\nRange: bytes=99990-",
    "GET /data.bin\nRange: bytes=100000-",
    "GET /data.bin\nRange: bytes=5-7\nIf-Range: \"other\"",
    "GET /data.bin\nIf-None-Match: ETAG",
    "HEAD /data.bin\nIf-None-Match: ETAG",
    "GET /data.bin\nIf-Modified-Since: TIME",
    "GET /data.bin\nIf-Match: \"other\"",
    "GET /empty.bin",
    "HEAD /empty.bin",
    "GET /missing",
];

/// Requests for what programs make.
const MADE: [&str; 12] = [
    "GET /fixed",
    "HEAD /fixed",
    "GET /chunked",
    "HEAD /chunked",
    "GET /trailers",
    "GET /empty",
    "HEAD /empty",
    "GET /unchanged",
    "GET /missing",
    "HEAD /missing",
    "GET /close",
    "GET /hints",
];

#[test]
fn responses_of_servers_of_files_pass_unchanged() {
    for (name, start) in SERVERS {
        eprintln!("{name}");
        let origin = or_skip!(start());
        let file = ask(&mut connect(&origin.address), "GET /data.bin");
        let of = |name| file.header(name).unwrap_or_default();
        let requests =
            FILES.map(|head| head.replace("ETAG", of("ETag")).replace("TIME", of("Last-Modified")));
        check(name, &origin, &requests);
    }
}

#[test]
fn responses_of_libraries_pass_unchanged() {
    for (name, start) in PROGRAMMED.into_iter().filter(|(name, _)| *name != "Go") {
        eprintln!("{name}");
        check(name, &or_skip!(start()), &made(name));
    }
}

/// Apart, because to build the program may take a minute.
#[test]
fn responses_of_go_pass_unchanged() {
    check("Go", &or_skip!(origins::go()), &made("Go"));
}

/// The requests for what a library can make: not all have interim responses, trailers, or bodies that end with
/// the connection.
fn made(name: &str) -> Vec<String> {
    let lacks: &[&str] = match name {
        "h11" => &[],
        "hyper" => &["GET /close", "GET /hints", "GET /trailers"],
        _ => &["GET /close"],
    };
    MADE.iter().filter(|head| !lacks.contains(head)).map(|head| (*head).to_owned()).collect()
}

/// Asks a server for the same directly and through samum.
fn check(name: &str, origin: &Origin, requests: &[String]) {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let samum = pass_on(driver, &tree, &origin.address, "");
        for head in requests {
            let direct = ask(&mut connect(&origin.address), head);
            let passed = ask(&mut connect(&samum.address()), head);
            let context = format!("{name}: {head:?}:\n{direct:?}\n{passed:?}");
            assert_eq!(passed.status, direct.status, "{context}");
            assert_eq!(fields(&passed), fields(&direct), "{context}");
            assert!(passed.body == direct.body, "{context}");
            let dates = |response: &Response| {
                response
                    .headers
                    .iter()
                    .filter(|(name, _)| name.eq_ignore_ascii_case("date"))
                    .count()
            };
            assert_eq!(dates(&passed), 1, "{context}");
            // A body that ends with the connection is one that says its end.
            let framing = match direct.framing {
                Framing::Close => Framing::Chunked,
                known => known,
            };
            assert_eq!(passed.framing, framing, "{context}");
        }
    });
}

/// The fields that are for the client, by name.
fn fields(response: &Response) -> Vec<(String, &str)> {
    let mut fields: Vec<_> = response
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), &**value))
        .filter(|(name, _)| !OF_CONNECTION.contains(&&**name))
        .collect();
    // Stable, so lines of one name keep their order.
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    fields
}

/// The final response to a request.
fn ask(client: &mut Client, head: &str) -> Response {
    client.send(request(head)).expect("the server takes the request");
    loop {
        let response = if head.starts_with("HEAD ") { client.head() } else { client.response() };
        let response = response.unwrap_or_else(|error| panic!("no response to {head:?}: {error}"));
        if response.status >= 200 {
            return response;
        }
    }
}

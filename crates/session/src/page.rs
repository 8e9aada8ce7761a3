//! Short HTML pages for errors, refusals and redirects.

use http::{Reject, ResponseHead, Status};
use sendfile::Piece;

use crate::handler::{Body, Part, Response};
use crate::request_id::RequestId;

const HTML: &[u8] = b"text/html; charset=utf-8";
/// Seconds after which a client may try again, if a resource cannot be served at the moment.
const RETRY_AFTER: &[u8] = b"10";
/// The methods that are allowed for files.
pub const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";
/// The methods that are allowed for redirects, and that pass to programs and servers.
pub const ALLOW_MOST: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// The methods that are allowed where none is: for the authority of a `CONNECT`, and where a route answers all of them
/// with 405.
pub const ALLOW_NONE: &[u8] = b"";

/// The head of a response with this status, and nothing but the name of the server.
pub fn bare(status: Status) -> ResponseHead<'static> {
    ResponseHead { server: Some(config::NAME.into()), ..ResponseHead::new(status) }
}

/// Makes the response to a refused request.
pub fn refused(reject: Reject, bare: ResponseHead<'static>) -> Response<'static> {
    let mut response = page(&format!("The request was refused: {}.", reject.reason), true, bare);
    response.shows_id = true;
    response
}

/// Makes the response to a request that failed.
pub fn error(bare: ResponseHead<'_>) -> Response<'_> {
    let mut response = page(explanation(bare.status), true, bare);
    response.shows_id = true;
    response
}

/// Makes the response to a request that is to be sent elsewhere.
pub fn moved(bare: ResponseHead<'_>) -> Response<'_> {
    page("This is found at another address.", bare.nosniff, bare)
}

/// Makes a response about a file or a directory; `bare` decides on `nosniff`.
pub fn explained(bare: ResponseHead<'_>) -> Response<'_> {
    page(explanation(bare.status), bare.nosniff, bare)
}

/// Makes a page. `sentence` is not escaped, so it must not contain text of clients or files.
fn page<'a>(sentence: &str, nosniff: bool, bare: ResponseHead<'a>) -> Response<'a> {
    let status = bare.status;
    let mut extra = bare.extra;
    if status == Status::ServiceUnavailable {
        extra.push(b"Retry-After", RETRY_AFTER);
    }
    let title = &*status.text();
    // Errors are frequent. `format!` would take a tenth of the instructions for one.
    let body = [
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
        title,
        "</title><style>:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:4rem auto;\
         max-width:40rem;padding:0 1rem}</style></head>\n<body><h1>",
        title,
        "</h1><p>",
        sentence,
        "</p></body></html>\n",
    ]
    .concat()
    .into_bytes();
    let head = ResponseHead {
        content_type: Some(HTML.into()),
        content_length: Some(body.len() as u64),
        allow: (status == Status::MethodNotAllowed).then(|| ALLOW.into()),
        nosniff,
        extra,
        ..bare
    };
    Response::new(head, Body::from(Part::Piece(Piece::Bytes(body))))
}

/// Shows the id of its request on an error page.
#[cold]
pub fn show_id(response: &mut Response<'_>, id: &RequestId) {
    const END: &[u8] = b"</body></html>\n";
    let made = response.made();
    let Some(Part::Piece(Piece::Bytes(bytes))) = made.body.first_mut() else { return };
    if let Some(len) = bytes.strip_suffix(END).map(<[u8]>::len) {
        bytes.truncate(len);
        bytes.extend_from_slice(b"<p>Request <code>");
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(b"</code></p>");
        bytes.extend_from_slice(END);
        made.head.content_length = Some(bytes.len() as u64);
    }
}

/// An explanation of a status for the user of a browser.
const fn explanation(status: Status) -> &'static str {
    match status {
        Status::MovedPermanently | Status::PermanentRedirect => "The address ends in a slash.",
        Status::BadRequest => "The address or a field of the request is not valid.",
        Status::Forbidden => "Access to this is not permitted.",
        Status::NotFound => "There is nothing by this name.",
        Status::MethodNotAllowed => "This address does not take the method of the request.",
        Status::PreconditionFailed => "The file does not meet the condition of the request.",
        Status::ContentTooLarge => "The body of the request is too long.",
        Status::UriTooLong => "The address is too long.",
        Status::MisdirectedRequest => "This connection is for other hosts. Please try again.",
        Status::RangeNotSatisfiable => "The requested range is beyond the end of the file.",
        Status::InternalServerError => "The server cannot do this: it has met an error.",
        Status::NotImplemented => "The server does not know this method.",
        Status::BadGateway => "The program or the server that makes this page has failed.",
        Status::GatewayTimeout => "The program or the server that makes this page took too long.",
        Status::ServiceUnavailable => "The server cannot do this at the moment. Please try again.",
        _ => "The request could not be answered.",
    }
}

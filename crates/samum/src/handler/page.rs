//! Short pages that say what happened.

use http::{Reject, ResponseHead, Status};
use sendfile::Piece;

use super::{Body, Part, Response};

const HTML: &[u8] = b"text/html; charset=utf-8";
/// The methods that files can be asked by.
pub(crate) const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";

/// The response to a request that the session refused.
pub(crate) fn refused(reject: Reject, bare: ResponseHead<'static>) -> Response<'static> {
    page(&format!("The request was refused: {}.", reject.reason), true, bare)
}

/// The response that says why a request failed.
pub(crate) fn error(bare: ResponseHead<'_>) -> Response<'_> {
    page(explanation(bare.status), true, bare)
}

/// The same for responses that belong to a file or a directory.
pub(crate) fn explained(bare: ResponseHead<'_>) -> Response<'_> {
    page(explanation(bare.status), bare.nosniff, bare)
}

/// `sentence` must be one of our own: it is not escaped.
fn page<'a>(sentence: &str, nosniff: bool, bare: ResponseHead<'a>) -> Response<'a> {
    let status = bare.status;
    let body = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status}</title>\
         <style>body{{font:1rem/1.5 system-ui,sans-serif;margin:4rem auto;max-width:40rem;\
         padding:0 1rem;color-scheme:light dark}}</style></head>\n\
         <body><h1>{status}</h1><p>{sentence}</p></body></html>\n"
    )
    .into_bytes();
    let head = ResponseHead {
        content_type: Some(HTML.into()),
        content_length: Some(body.len() as u64),
        allow: (status == Status::MethodNotAllowed).then(|| ALLOW.into()),
        nosniff,
        ..bare
    };
    Response::new(head, Body::from(Part::Piece(Piece::Bytes(body))))
}

/// The meaning of a status here, for the person in front of the browser.
const fn explanation(status: Status) -> &'static str {
    match status {
        Status::MovedPermanently => "This is a directory: its address ends in a slash.",
        Status::BadRequest => "There can be no such address.",
        Status::Forbidden => "The server may not read this.",
        Status::NotFound => "There is nothing by this name.",
        Status::MethodNotAllowed => "Files can be read here, and nothing else.",
        Status::PreconditionFailed => "The file is not what the request takes it for.",
        Status::UriTooLong => "The address is too long.",
        Status::RangeNotSatisfiable => "The file ends before that.",
        Status::InternalServerError => "The disk could not be read.",
        Status::NotImplemented => "The server does not know this method.",
        Status::ServiceUnavailable => {
            "The server has too much open at the moment. Please try again."
        }
        _ => "The request could not be answered.",
    }
}

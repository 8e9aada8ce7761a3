//! Status codes and the rejection of a message.
//!
//! Reading list: RFC 9110 §15, RFC 6585 §5 (431).

use alloc::borrow::Cow;
use alloc::string::ToString as _;
use core::error::Error;
use core::fmt;

/// Declares [`Status`] and its texts from one table, so that code and phrase cannot
/// disagree.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $phrase:literal,)*) => {
        /// A status code (RFC 9110 §15): those that the server sends itself have a name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* #[doc = concat!(stringify!($code), " ", $phrase)] $name,)*
            /// Any other code from 100 to 999, as other servers send them: see
            /// [`from_code`](Self::from_code).
            Other(OtherCode),
        }

        impl Status {
            /// Every status with a name, in the order of the codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The three digits as a number.
            #[inline]
            pub const fn code(self) -> u16 {
                match self { $(Self::$name => $code,)* Self::Other(OtherCode(code)) => code }
            }

            /// The reason phrase, empty for a code that is not registered. Clients should ignore it (RFC 9112 §4);
            /// it is for the readers of traces.
            pub const fn phrase(self) -> &'static str {
                match self { $(Self::$name => $phrase,)* Self::Other(other) => other.phrase() }
            }

            /// The code and the phrase: `404 Not Found`.
            pub fn text(self) -> Cow<'static, str> {
                Cow::Borrowed(match self {
                    $(Self::$name => concat!(stringify!($code), " ", $phrase),)*
                    Self::Other(other) => return other.text(),
                })
            }

            /// The status of a code from 100 to 999. Codes from 600 on are invalid, but servers send them, and
            /// nginx and HAProxy pass them on. A client treats them as a 5xx (RFC 9110 §15).
            pub const fn from_code(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    100..=999 => Some(Self::Other(OtherCode(code))),
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    Continue = 100 "Continue",
    SwitchingProtocols = 101 "Switching Protocols",
    Ok = 200 "OK",
    NoContent = 204 "No Content",
    PartialContent = 206 "Partial Content",
    MovedPermanently = 301 "Moved Permanently",
    Found = 302 "Found",
    SeeOther = 303 "See Other",
    NotModified = 304 "Not Modified",
    TemporaryRedirect = 307 "Temporary Redirect",
    PermanentRedirect = 308 "Permanent Redirect",
    BadRequest = 400 "Bad Request",
    Unauthorized = 401 "Unauthorized",
    Forbidden = 403 "Forbidden",
    NotFound = 404 "Not Found",
    MethodNotAllowed = 405 "Method Not Allowed",
    NotAcceptable = 406 "Not Acceptable",
    RequestTimeout = 408 "Request Timeout",
    Gone = 410 "Gone",
    LengthRequired = 411 "Length Required",
    PreconditionFailed = 412 "Precondition Failed",
    ContentTooLarge = 413 "Content Too Large",
    UriTooLong = 414 "URI Too Long",
    RangeNotSatisfiable = 416 "Range Not Satisfiable",
    ExpectationFailed = 417 "Expectation Failed",
    MisdirectedRequest = 421 "Misdirected Request",
    TooManyRequests = 429 "Too Many Requests",
    HeaderFieldsTooLarge = 431 "Request Header Fields Too Large",
    InternalServerError = 500 "Internal Server Error",
    NotImplemented = 501 "Not Implemented",
    BadGateway = 502 "Bad Gateway",
    ServiceUnavailable = 503 "Service Unavailable",
    GatewayTimeout = 504 "Gateway Timeout",
    VersionNotSupported = 505 "HTTP Version Not Supported",
    InsufficientStorage = 507 "Insufficient Storage",
}

/// A code from 100 to 999 that has no name in [`Status`]. Only [`Status::from_code`] makes one, so
/// that equal codes are equal statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherCode(u16);

impl OtherCode {
    /// The phrase of a registered code (RFC 9110 §15, RFC 2518 §10.1, RFC 4918 §11, RFC 5842 §7, RFC 6585, RFC 7725,
    /// RFC 8297, RFC 8470); empty for any other.
    const fn phrase(self) -> &'static str {
        match self.0 {
            102 => "Processing",
            103 => "Early Hints",
            201 => "Created",
            202 => "Accepted",
            203 => "Non-Authoritative Information",
            205 => "Reset Content",
            207 => "Multi-Status",
            208 => "Already Reported",
            226 => "IM Used",
            300 => "Multiple Choices",
            402 => "Payment Required",
            407 => "Proxy Authentication Required",
            409 => "Conflict",
            415 => "Unsupported Media Type",
            422 => "Unprocessable Content",
            423 => "Locked",
            424 => "Failed Dependency",
            425 => "Too Early",
            426 => "Upgrade Required",
            428 => "Precondition Required",
            451 => "Unavailable For Legal Reasons",
            506 => "Variant Also Negotiates",
            508 => "Loop Detected",
            511 => "Network Authentication Required",
            _ => "",
        }
    }

    /// The code and the phrase, if there is one.
    fn text(self) -> Cow<'static, str> {
        let code = self.0.to_string();
        Cow::Owned(match self.phrase() {
            "" => code,
            phrase => code + " " + phrase,
        })
    }
}

impl Status {
    /// Returns whether a response with this status is interim, so that another response follows it (RFC 9110
    /// §15.2). It is false for 101, which no other response follows.
    pub const fn is_interim(self) -> bool {
        self.code() < 200 && !matches!(self, Self::SwitchingProtocols)
    }

    /// Returns whether a response with this status never has content, even if its fields announce some (RFC 9112
    /// §6.3).
    pub const fn is_bodiless(self) -> bool {
        self.code() < 200 || matches!(self, Self::NoContent | Self::NotModified)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// The reason for refusing a request: the peer broke the protocol, or asked for a feature that is not provided.
///
/// The response has `status`. In HTTP/1 the connection is closed after it, because the framing of the
/// bytes that follow cannot be trusted (RFC 9112 §9.6, §11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status of the response.
    pub status: Status,
    /// A fragment of an English sentence for the log and the body of the response, such as "two
    /// Host fields".
    pub reason: &'static str,
}

impl Reject {
    /// A rejection with this status and this reason.
    pub const fn new(status: Status, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// The most common rejection: the message is malformed.
    pub const fn bad(reason: &'static str) -> Self {
        Self::new(Status::BadRequest, reason)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl Error for Reject {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn codes_name_their_statuses() {
        for &status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(status));
        }
        assert_eq!(format!("{}", Status::NotFound), "404 Not Found");
    }

    #[test]
    fn a_valid_code_without_a_name_is_a_status() {
        let status = Status::from_code(299).expect("valid");
        assert_eq!((status.code(), status.phrase(), &*status.text()), (299, "", "299"));
        // Servers send registered codes, too, which the server itself never sends.
        let status = Status::from_code(201).expect("valid");
        assert_eq!((status.phrase(), &*status.text()), ("Created", "201 Created"));
        for code in 0..2000 {
            let status = Status::from_code(code);
            assert_eq!(status.map(Status::code), (100..1000).contains(&code).then_some(code));
        }
    }

    #[test]
    fn statuses_are_listed_in_the_order_of_their_codes() {
        assert!(Status::ALL.is_sorted_by(|a, b| a.code() < b.code()));
    }

    #[test]
    fn a_rejection_reads_as_a_sentence() {
        let reject = Reject::bad("two Host fields");
        assert_eq!(format!("{reject}"), "400 Bad Request: two Host fields");
    }
}

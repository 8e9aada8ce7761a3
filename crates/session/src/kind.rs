//! The kinds of operations, in the highest byte of their tokens.

use ring::Token;

/// A listener accepts; its number follows.
pub const ACCEPT: Token = 1 << 56;
/// A connection receives; its id follows.
pub const RECV: Token = 2 << 56;
/// A connection's socket can take bytes; its id follows.
pub const WRITABLE: Token = 3 << 56;
/// A step of a content load.
pub const LOAD: Token = 4 << 56;
/// A directory is watched.
pub const WATCH: Token = 5 << 56;
/// An operation of the disk.
pub const DISK: Token = 6 << 56;
/// Another thread has woken the worker.
pub const WAKE: Token = 7 << 56;
/// A listener accepts again: after a pause because it ran out of descriptors, or at once because it was removed and more
/// connections wait; its number follows.
pub const RESUME: Token = 8 << 56;
/// The access log was written.
pub const ACCESS: Token = 9 << 56;
/// A note to the operator was written.
pub const NOTE: Token = 10 << 56;
/// The operations of another network than the kernel's; the rest of the token is its own.
pub const NETWORK: Token = 11 << 56;
/// A read of the layout of a film; the rest of the token is the key of the read.
pub const LAYOUT: Token = 12 << 56;
/// A pipe of a program, or the timer of all programs.
pub const CGI: Token = 13 << 56;
/// A link to a server makes its connection or receives, or the timer of all exchanges.
pub const LINK: Token = 14 << 56;
/// A link to a server can send.
pub const LINK_WRITABLE: Token = 15 << 56;
/// The timer of content's periodic cleanup.
pub const TIDY: Token = 16 << 56;
/// A check of a server makes its connection or receives, or the timer of all checks.
pub const CHECK: Token = 17 << 56;
/// A check of a server can send.
pub const CHECK_WRITABLE: Token = 18 << 56;
/// A read of a page with directives, or the timer of all of them; in a ticket, a hole of a page.
pub const PAGE: Token = 19 << 56;
/// The file of a buffer for a slow client is opened, written or given back; the exchange follows.
pub const SPOOL: Token = 20 << 56;
/// The file of a body for a FastCGI application is opened, written or read.
pub const FASTCGI_BODY: Token = 21 << 56;
/// The file of a body for a program (CGI) is opened, written or read.
pub const CGI_BODY: Token = 22 << 56;
/// The timer of the viewers of the operator's page.
pub const VIEWERS: Token = 23 << 56;
/// The operations of an authorizer; the rest of the token is its own.
pub const AUTHORIZER: Token = 24 << 56;
/// The operations of handlers that only tests have; the rest of the token is their own.
pub const HANDLER: Token = 32 << 56;
/// The bits of a token that hold the kind.
pub const MASK: Token = 0xff << 56;

/// The connection's id in a token.
pub const fn id_of(token: Token) -> u64 {
    token & !MASK
}

//! Requests that are passed on to servers.

#![cfg_attr(not(test), expect(dead_code, reason = "nothing passes requests on yet"))]

pub(super) mod request;
pub(super) mod response;

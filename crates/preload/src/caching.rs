//! Decides which responses stay in the page cache: all, none, or those for popular files.
//!
//! Popularity is that of the server ([`pace::popularity`]), with one sketch for all processes that the first one forks. A
//! request is a `sendfile` that does not go on where the last one of its socket has ended. Its length is not known: a
//! program that asks for much at a time is taken to send all the rest of the file.

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::Ordering;

use pace::popularity::hash as mix;

use crate::hash::hash;
use crate::setting::{self, Caching};
use crate::state::{Want, wants_more};
use crate::sys::{self, FileId, Status};
use crate::{deferral, descriptors, trails};

/// The response that a socket sends: the place where it goes on, as a hash, and whether its bytes stay. It is one word, so
/// that no thread sees half of it; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Response(u64);

impl Response {
    fn at(file: FileId, offset: u64, stays: bool) -> Self {
        Self(hash([file.dev, file.ino, offset]) & !1 | u64::from(stays))
    }

    /// Says whether the bytes stay, if the response goes on at this place.
    fn stays(self, file: FileId, offset: u64) -> Option<bool> {
        let stays = self.0 & 1 != 0;
        (self == Self::at(file, offset, stays)).then_some(stays)
    }
}

/// The bytes of a request, of which the first call wants some.
fn request_bytes(file_bytes: u64, want: Want) -> u64 {
    let rest = file_bytes.saturating_sub(want.offset);
    if wants_more(want) { rest } else { want.count.min(rest) }
}

/// Says whether the bytes that a call wants stay in the page cache.
pub(crate) fn stays(socket: c_int, file: &Status, offset: u64, count: u64) -> bool {
    match setting::caching() {
        Caching::Always => true,
        Caching::Never => false,
        Caching::Popular => is_popular(socket, file, offset, count),
    }
}

/// Without a sketch, or for a socket beyond the table, everything is popular.
fn is_popular(socket: c_int, file: &Status, offset: u64, count: u64) -> bool {
    let (Some(response), Some(sketch)) = (descriptors::response(socket), sys::sketch()) else {
        return true;
    };
    let before = Response(response.load(Ordering::Relaxed));
    before.stays(file.id, offset).unwrap_or_else(|| {
        let want = Want { file: file.id, offset, count, is_absent: false, stays: true };
        let key = mix(mix(file.id.dev) ^ file.id.ino);
        let stays = sketch.request(key, offset, request_bytes(file.size, want));
        response.store(Response::at(file.id, offset, stays).0, Ordering::Relaxed);
        stays
    })
}

/// Notes that a socket has sent a range.
pub(crate) fn note_sent(socket: c_int, file: FileId, range: Range<u64>, stays: bool) {
    if setting::caching() == Caching::Popular
        && let Some(response) = descriptors::response(socket)
    {
        response.store(Response::at(file, range.end, stays).0, Ordering::Relaxed);
    }
    if trails::are_any() {
        deferral::passed(socket, file, &range, stays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const OTHER: FileId = FileId { dev: 1, ino: 3 };
    const KIB: u64 = 1024;

    #[test]
    fn a_response_goes_on_only_where_it_has_ended() {
        for stays in [false, true] {
            let response = Response::at(FILE, 7000, stays);
            assert_eq!(response.stays(FILE, 7000), Some(stays));
            for (file, offset) in [(FILE, 0), (FILE, 7001), (OTHER, 7000)] {
                assert_eq!(response.stays(file, offset), None, "{file:?} {offset}");
            }
        }
        assert_eq!(Response(0).stays(FILE, 0), None, "there was none");
    }

    #[test]
    fn a_program_that_asks_for_much_at_a_time_sends_the_rest_of_the_file() {
        for (file_bytes, offset, count, expected) in [
            (1000 * KIB, 0, 4 * KIB, 4 * KIB),
            (1000 * KIB, 0, 127 * KIB, 127 * KIB),
            (1000 * KIB, 0, 128 * KIB, 1000 * KIB),
            (1000 * KIB, 900 * KIB, 2048 * KIB, 100 * KIB),
            (10, 4, 100, 6),
            (10, 10, 1, 0),
            (10, 11, u64::MAX, 0),
        ] {
            let want = Want { file: FILE, offset, count, is_absent: false, stays: true };
            assert_eq!(request_bytes(file_bytes, want), expected, "{file_bytes} {offset} {count}");
        }
    }
}

//! The times of one request, and the entry that is made of them.

use core::time::Duration;
use std::rc::Rc;

use http::{Head, Status};
use ring::Time;

use crate::context::Context;
use crate::handler::{Response, Terms};
use crate::record::{Began, More, Record};

/// The times of a request whose response has not begun, and its body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The time when its head was complete.
    pub(super) at: Time,
    /// The time when the last search for its answer began.
    pub(super) since: Time,
    /// The time that earlier searches for its answer have taken.
    pub(super) found: Duration,
    /// Bytes of its body that have come, if its head does not announce their number.
    pub(super) body_bytes: u64,
}

impl Times {
    /// The times of a request that came now.
    #[inline]
    pub(super) const fn new(at: Time) -> Self {
        Self { at, since: at, found: Duration::ZERO, body_bytes: 0 }
    }

    /// Begins the log entry of a request, if the request is recorded. The position of its body is
    /// set later.
    #[inline]
    pub(super) fn begin_record(
        &self,
        cx: &Context,
        head: Option<&Head<'_>>,
        status: Status,
        terms: &Terms,
    ) -> Option<Box<Record>> {
        let recording = Rc::clone(terms.recording.as_ref()?);
        // A malformed request has no head, and is answered at once.
        let at = if head.is_some() { self.at } else { cx.now };
        let disk_wait = if terms.is_from_disk { self.found } else { Duration::ZERO };
        let began = Began { at, unix_ms: cx.unix_ms(at), disk_wait };
        let (ticket, is_trusted) = terms.named.unwrap_or_default();
        let more = More::of(&recording, || is_trusted);
        let mut record = Record::new(recording, head, status, began, more);
        (record.client, record.scheme) = (terms.client, terms.scheme.into());
        record.ticket = ticket;
        record.user.clone_from(&terms.user);
        if let Some(sketch) = &terms.sketch {
            record.set_line(sketch);
        }
        record.add_body(self.body_bytes);
        Some(record)
    }

    /// Adds `Server-Timing` (W3C) with the times that are known now, in milliseconds.
    #[cold]
    pub(super) fn add_timing(&self, cx: &Context, response: &mut Response<'_>) {
        let terms = &response.terms;
        let disk = if terms.is_from_disk { self.found } else { Duration::ZERO };
        let [disk, find] = [disk, cx.now.since(self.at)].map(|time| time.as_secs_f64() * 1000.0);
        let value = format!("disk;dur={disk:.3}, find;dur={find:.3}");
        response.made().head.extra.push(b"Server-Timing", value.as_bytes());
    }
}

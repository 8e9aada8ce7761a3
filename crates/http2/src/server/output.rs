//! The frames of responses, resets, and the windows of requests.

use alloc::vec::Vec;
use core::time::Duration;

use hpack::{Block, DATE_LEN, Encoder};
use http::{FieldSection, ResponseHead, Status};

use super::Connection;
use crate::fault::ErrorCode;
use crate::frame::{self, FrameHead, HEAD_LEN, Kind, flag};
use crate::limits::{DISCARD_TIME, DISCARDED_BYTES_MAX, SENT_BYTES_PER_IDLE_FRAME};
use crate::response;
use crate::streams::State;

impl Connection {
    /// Appends the head of a response. `now` is the date, for a response that has none of its own. If `is_last`, there
    /// is no content, and the stream ends.
    ///
    /// Returns false if the stream has ended; then nothing is appended. So do the other methods.
    pub fn respond(
        &mut self,
        stream: u32,
        head: &ResponseHead<'_>,
        now: &[u8; DATE_LEN],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        self.push_headers(stream, is_last, out, |encoder, block| {
            response::push_block(head, now, encoder, block);
        })
    }

    /// Appends the head of a response that was [prepared](crate::prepare), with more fields after its own.
    pub fn respond_prepared(
        &mut self,
        stream: u32,
        prepared: &Block,
        more: &FieldSection<'_>,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        self.push_headers(stream, is_last, out, |encoder, block| {
            encoder.begin(block);
            encoder.prepared(prepared, block);
            response::push_more(more.fields(), encoder, block);
        })
    }

    /// Appends an interim response, such as 100 or 103. Another response follows it.
    pub fn respond_interim(
        &mut self,
        stream: u32,
        status: Status,
        fields: &FieldSection<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.push_headers(stream, false, out, |encoder, block| {
            response::push_interim(status, fields.fields(), encoder, block);
        })
    }

    /// Appends the trailers of a response, which end the stream.
    pub fn end_with_trailers(
        &mut self,
        stream: u32,
        fields: &FieldSection<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.push_headers(stream, true, out, |encoder, block| {
            response::push_trailers(fields.fields(), encoder, block);
        })
    }

    fn push_headers(
        &mut self,
        stream: u32,
        is_last: bool,
        out: &mut Vec<u8>,
        push_block: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> bool {
        if !self.is_open(stream) {
            return false;
        }
        // Most blocks fit into one frame: its head is written when the length is known.
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        push_block(&mut self.encoder, out);
        let length = out.len() - start - HEAD_LEN;
        match u32::try_from(length) {
            Ok(length) if length <= self.peer.frame_bytes_max => {
                let end = if is_last { flag::END_STREAM } else { 0 };
                let flags = flag::END_HEADERS | end;
                let head = FrameHead { length, kind: Kind::Headers, flags, stream };
                out[start..start + HEAD_LEN].copy_from_slice(&head.to_bytes());
            }
            _ => {
                let block = out.split_off(start + HEAD_LEN);
                out.truncate(start);
                frame::push_block(stream, &block, is_last, self.peer.frame_bytes_max, out);
            }
        }
        if is_last {
            self.finish(stream);
        }
        true
    }

    /// The bytes of content that may be sent on a stream in one frame now; zero also if the stream has ended.
    #[inline]
    #[must_use]
    pub fn data_room(&self, stream: u32) -> u32 {
        self.window(stream).min(self.peer.frame_bytes_max)
    }

    /// The bytes of content that the windows of a stream and of the connection let the client get now.
    #[inline]
    #[must_use]
    pub fn window(&self, stream: u32) -> u32 {
        let found = self.streams.get(stream).filter(|stream| stream.state.takes_response());
        let room = found.map_or(0, |stream| stream.send_window.room());
        room.min(self.send_window.room())
    }

    /// Returns whether no stream can send content, because the window of the connection is used up.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.send_window.room() == 0
    }

    /// The head of a DATA frame with `length` bytes of content, at most [`data_room`](Self::data_room). They are to follow
    /// it. If `is_last`, call [`finish`](Self::finish) then.
    ///
    /// # Panics
    ///
    /// In debug builds, if there is no room.
    #[inline]
    pub fn data_head(&mut self, stream: u32, length: u32, is_last: bool) -> Option<[u8; HEAD_LEN]> {
        let found = self.streams.get_mut(stream).filter(|stream| stream.state.takes_response())?;
        found.send_window.take(length);
        self.send_window.take(length);
        self.sent_bytes += length;
        self.idle_frames.forgive(self.sent_bytes / SENT_BYTES_PER_IDLE_FRAME);
        self.sent_bytes %= SENT_BYTES_PER_IDLE_FRAME;
        let flags = if is_last { flag::END_STREAM } else { 0 };
        Some(FrameHead { length, kind: Kind::Data, flags, stream }.to_bytes())
    }

    /// Ends the response of a stream, of which all frames are written. The rest of the request is still to come, unless the
    /// client has sent it all. If nothing uses it, [`discard`](Self::discard) it.
    pub fn finish(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        match found.state {
            State::HalfClosedRemote => self.streams.close(stream, false),
            State::Open => found.state = State::HalfClosedLocal,
            State::HalfClosedLocal | State::Discarding { .. } => {}
        }
    }

    /// Drops the rest of a request whose response has [finished](Self::finish) before. Beyond
    /// [`DISCARDED_BYTES_MAX`], or after
    /// [`DISCARD_TIME`], the client is told that nobody needs the rest (RFC 9113 §8.1). If it
    /// were told at once, some clients would lose the response.
    pub fn discard(&mut self, stream: u32, now: Duration) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        if found.state == State::HalfClosedLocal {
            let until = now + DISCARD_TIME;
            found.state = State::Discarding { left: DISCARDED_BYTES_MAX, until };
            self.discards_until.get_or_insert(until);
            self.handle_discarded(stream, 0);
        }
    }

    /// Records dropped bytes, and gives the client room for more of them.
    pub(super) fn handle_discarded(&mut self, id: u32, bytes: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let State::Discarding { left, .. } = &mut stream.state else { return };
        *left = left.saturating_sub(bytes);
        let left = u64::from(*left);
        if left == 0 {
            return self.reset(id, ErrorCode::NoError);
        }
        let room = stream.announced.map_or(left, |announced| announced.min(left));
        if let Some(more) = stream.receive_window.widen(room) {
            frame::push_window(id, more, &mut self.control);
        }
    }

    /// The time at which [`handle_deadline`](Self::handle_deadline) has something to do.
    #[must_use]
    pub const fn deadline(&self) -> Option<Duration> {
        self.discards_until
    }

    /// Resets streams whose rest was [dropped](Self::discard) for too long.
    pub fn handle_deadline(&mut self, now: Duration) {
        if self.discards_until.is_some_and(|until| until <= now) {
            while let Some(stream) = self.streams.discarded_at(now) {
                self.reset(stream, ErrorCode::NoError);
            }
            self.discards_until = self.streams.discards_until();
        }
    }

    /// Ends a stream because its response cannot be completed, or because the rest of the request or of the response is
    /// no longer wanted.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.streams.get(stream).is_some() {
            frame::push_reset(stream, code, &mut self.control);
            self.streams.close(stream, true);
        }
    }

    /// Records that `bytes` of the content of a request need no more memory, and that its consumer has room for `room`
    /// bytes more. The windows are changed by that.
    ///
    /// All bytes of [`Event::Body`](super::Event::Body) have to be reported once, also those that were dropped because
    /// their stream has ended; else the window of the connection shrinks for ever. With zero `bytes` only the room is
    /// reported.
    pub fn handle_taken(&mut self, stream: u32, bytes: u32, room: u64, now: Duration) {
        self.take(bytes, now);
        let open = self.streams.get_mut(stream).filter(|stream| stream.state.is_awaiting());
        let more = open.and_then(|stream| {
            let room = stream.announced.map_or(room, |left| left.min(room));
            stream.receive_window.widen(room)
        });
        if let Some(more) = more {
            frame::push_window(stream, more, &mut self.control);
        }
    }

    /// The most bytes of content, of all streams together, that may wait to be [taken](Self::handle_taken). It grows for
    /// fast clients, up to [`CONNECTION_WINDOW_MAX`](crate::limits::CONNECTION_WINDOW_MAX).
    #[must_use]
    pub const fn waiting_bytes_max(&self) -> u32 {
        self.receive_window.max()
    }

    /// Gives bytes back to the window of the connection.
    pub(super) fn take(&mut self, bytes: u32, now: Duration) {
        if bytes > 0
            && let Some(more) = self.receive_window.take(bytes, now)
        {
            frame::push_window(0, more, &mut self.control);
        }
    }
}

//! Puts responses into the stream.

use http::{FieldSection, Head, Method, Status, Version};
use http1::write::{self, ConnectionOption, Wire};
use outq::Payload as _;
use sendfile::{Failure, Piece};

use super::body::{Form, Producing, Sending};
use super::work::Work;
use crate::context::Context;
use crate::handler::{Part, Produced, Response};
use crate::record::Record;
use crate::session::PRODUCED_BYTES_MAX;
use crate::session::ends::End;
use crate::session::framing::{BodyFraming, Sink};
use crate::session::opening::{self, Opening};

impl Work {
    /// Puts a response into the stream. Returns whether the response ends the connection.
    #[inline]
    pub(super) fn begin_response(
        &mut self,
        cx: &mut Context,
        head: Option<&Head<'_>>,
        response: &mut Response<'_>,
        mut last: bool,
    ) -> bool {
        self.ends_with_connection = false;
        let hsts = opening::begin(cx, &self.facts.times, response);
        let is_head = head.is_some_and(|head| head.method == Method::Head);
        let is_http10 = head.is_some_and(|head| head.version == Version::Http10);
        if let Some(finished) = response.finished()
            && !last
            && !is_http10
            && self.incoming.is_none()
        {
            let record = self.facts.times.begin_record(cx, head, Status::Ok, &response.terms);
            let hsts = hsts.filter(|_| !finished.has_hsts);
            let head_len = finished.head_len + hsts.map_or(0, |lines| lines.as_bytes().len());
            let body_at = self.stream.promised() + head_len as u64;
            let stream = &mut self.stream;
            let with_body = !is_head && finished.has_body_for(stream.takes());
            finished.send(cx.unix, || cx.date(), with_body, hsts, |piece| stream.push(piece));
            if is_head || with_body {
                self.end_response(record, body_at);
            } else {
                // The length of the body is in the head.
                let (parts, framing) = (response.take_body().into_iter(), BodyFraming::Unframed);
                let trailers = FieldSection::EMPTY;
                self.push_parts(Sending { parts, framing, trailers, record, body_at });
            }
            return false;
        }
        let Opening { fields, hsts, body, length, record } =
            opening::open(cx, &self.facts.times, head, response, hsts);
        if body.further_parts() > 0 {
            self.begins_parts(cx.turn, body.further_parts());
        }
        let is_tunnel = self.switch(fields.status);
        let framing = match length {
            _ if is_tunnel => BodyFraming::Unframed,
            Some(length) => BodyFraming::Length(length),
            None if is_http10 => BodyFraming::Unframed,
            None => BodyFraming::Chunked,
        };
        self.ends_with_connection = framing == BodyFraming::Unframed && !is_tunnel;
        last |= framing == BodyFraming::Unframed;
        let wire = Wire {
            connection: match (last, is_http10) {
                _ if is_tunnel => ConnectionOption::Upgrade,
                (true, _) => ConnectionOption::Close,
                (false, true) => ConnectionOption::KeepAlive,
                (false, false) => ConnectionOption::Unsaid,
            },
            chunked: framing == BodyFraming::Chunked,
        };
        let mut bytes = Vec::new();
        write::response_head(fields, &cx.date(), wire, &mut bytes);
        if let Some(hsts) = hsts {
            write::add_lines(hsts, &mut bytes);
        }
        self.stream.push(Piece::Bytes(bytes));
        let body_at = self.stream.promised();
        if is_head {
            self.end_response(record, body_at);
        } else {
            let (parts, trailers) = (body.into_iter(), FieldSection::EMPTY);
            self.push_parts(Sending { parts, framing, trailers, record, body_at });
        }
        last
    }

    /// Begins a tunnel if the request has asked for a tunnel and the status of the response
    /// accepts it. Returns whether a tunnel begins.
    fn switch(&mut self, status: Status) -> bool {
        let Some(incoming) = &mut self.incoming else { return false };
        if incoming.form != Form::Offered || !self.exchanges.is_empty() {
            return false;
        }
        if status == Status::SwitchingProtocols {
            incoming.form = Form::Tunnel;
            return true;
        }
        self.incoming = None;
        false
    }

    /// Puts the parts of a body into the stream, up to the first part that has to be made.
    #[inline]
    fn push_parts(&mut self, mut body: Sending) {
        while let Some(part) = body.parts.next() {
            match part {
                // A piece without bytes is left out, because a chunk without bytes would be the
                // last chunk.
                Part::Piece(piece) if piece.len() == 0 => {}
                Part::File(_, range, _) if range.is_empty() => {}
                Part::Piece(piece) => {
                    let length = piece.len();
                    body.framing.begin(length, &mut self.stream);
                    self.stream.push(piece);
                    body.framing.end(&mut self.stream);
                }
                Part::File(file, range, policy) => {
                    body.framing.begin(range.end - range.start, &mut self.stream);
                    self.stream.push_file(&file, range, policy);
                    body.framing.end(&mut self.stream);
                }
                Part::Producer(producer) => {
                    let failure = Failure::Unfinished;
                    self.producing = Some(Producing { producer, body, is_new: true, failure });
                    return;
                }
            }
        }
        if body.framing == BodyFraming::Chunked {
            self.stream.push(if body.trailers.as_bytes().is_empty() {
                Piece::Static(write::LAST_CHUNK)
            } else {
                let mut bytes = Vec::new();
                write::last_chunk(&body.trailers, &mut bytes);
                Piece::Bytes(bytes)
            });
        }
        self.end_response(body.record, body.body_at);
    }

    /// Asks the producer for more of its bytes.
    pub(super) fn produce(&mut self, turn: u64) -> Produced {
        let Some(Producing { mut producer, mut body, failure, .. }) = self.producing.take() else {
            return Produced::Ended;
        };
        let before = self.stream.promised();
        let (stream, framing) = (&mut self.stream, &mut body.framing);
        let mut sink = Sink { stream, framing, is_shared: false };
        let mut produced = producer.poll(PRODUCED_BYTES_MAX, &mut sink);
        let (last, bytes) = self.produced;
        let made = self.stream.promised() - before;
        self.produced = (turn, if last == turn { bytes + made } else { made });
        if body.framing.is_broken(produced) {
            produced = Produced::Failed;
        }
        match produced {
            Produced::More | Produced::Waiting => {
                self.producing = Some(Producing { producer, body, is_new: false, failure });
            }
            Produced::Ended => {
                body.trailers = producer.trailers();
                self.push_parts(body);
            }
            Produced::Failed => {
                self.stream.abort(failure);
                self.producing = Some(Producing { producer, body, is_new: false, failure });
            }
        }
        produced
    }

    /// Ends a response at the current end of the stream.
    #[inline]
    fn end_response(&mut self, mut record: Option<Box<Record>>, body_at: u64) {
        let at = self.stream.promised();
        if self.receives_body() && self.exchanges.is_empty() {
            self.incoming = None;
        }
        if let Some(record) = &mut record {
            record.body_at = body_at;
            record.body_bytes = at - body_at;
        }
        self.ends.push(End { at, record });
    }
}

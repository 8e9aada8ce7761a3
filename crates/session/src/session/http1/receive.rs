//! The bytes that the peer sends after the head of a request, which a consumer takes or the session drops.

use http::{Reject, Status};
use http1::Limits;
use http1::server::Event;
use sendfile::Failure;

use super::body::{Form, Incoming};
use super::exchange::{Exchange, Lookup, RequestFacts};
use super::work::Work;
use super::{Http1, Phase, Wait};
use crate::context::Context;
use crate::handler::Consumer;
use crate::session::{Moved, Next};

impl Http1 {
    /// Gives a consumer the body of a request, or the bytes after a request that becomes a tunnel.
    pub(super) fn accept_body(
        &mut self,
        work: &mut Work,
        request: &mut http1::Request<'_>,
        consumer: Box<dyn Consumer>,
    ) -> Result<(), Reject> {
        let form = if request.head.framing.has_content() { Form::Body } else { Form::Offered };
        if form == Form::Body {
            work.reader.decode_body(request, consumer.bytes_max())?;
            let last = !request.keep_alive || self.is_retiring;
            work.facts = RequestFacts {
                skips_body_first: false,
                last,
                ..RequestFacts::of(request, work.facts.times.at)
            };
            // A body that is too long to be skipped does not end the connection if a consumer takes this body.
            if let Phase::Last(wait) = self.phase
                && !last
            {
                self.phase = Phase::Open(wait);
            }
        }
        work.incoming = Some(Incoming { consumer, form, received: 0 });
        Ok(())
    }

    /// Gives the consumer as many bytes as the consumer has room for. Returns the number of bytes taken.
    #[inline(never)]
    pub(super) fn receive(&mut self, work: &mut Work, cx: &mut Context, bytes: &[u8]) -> usize {
        let mut at = 0_usize;
        while let Some(incoming) = &mut work.incoming {
            let room = if incoming.has_room() { incoming.consumer.room() } else { 0 };
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let next = &bytes[at..bytes.len().min(at.saturating_add(room))];
            match incoming.form {
                Form::Offered => break,
                Form::Tunnel | Form::HalfClosed => {
                    if next.is_empty() {
                        break;
                    }
                    incoming.consumer.push(next);
                    at += next.len();
                }
                Form::Body => {
                    // The reader is called even if there are no bytes, because the end of the body may follow the bytes
                    // that were given last.
                    let (taken, event) = work.reader.handle_body(next, &Limits::DEFAULT);
                    at += taken;
                    incoming.received += taken as u64;
                    match event {
                        Event::Body(content) => {
                            incoming.consumer.push(content);
                            let count = content.len();
                            work.count_body(count);
                        }
                        Event::Trailer(name, value) => incoming.consumer.trailer(name, value),
                        Event::BodyEnd => {
                            incoming.consumer.end();
                            if incoming.consumer.awaits_tunnel() && !work.exchanges.is_empty() {
                                incoming.form = Form::Offered;
                            } else {
                                work.incoming = None;
                            }
                            // A client that sends the body without an invitation needs no invitation.
                            if let Some(facts) = work.exchanges.back_facts() {
                                facts.expect_continue = false;
                            }
                        }
                        Event::Rejected(reject) => self.handle_faulty_body(work, cx, reject),
                        Event::Partial => break,
                        Event::Request(_) | Event::Closed => {
                            unreachable!("the body has not ended")
                        }
                    }
                }
            }
        }
        // Bytes of a tunnel restart the wait. Bytes of a body do not restart the wait, because a body is judged by the
        // peer's rate.
        let is_tunnel = work.incoming.is_some() && !work.receives_body();
        if at > 0
            && is_tunnel
            && let Phase::Open(Wait::Request(since)) | Phase::Last(Wait::Request(since)) =
                &mut self.phase
        {
            *since = cx.now;
        }
        at
    }

    /// Handles a body that is malformed or too long while a consumer takes it.
    #[cold]
    fn handle_faulty_body(&mut self, work: &mut Work, cx: &mut Context, reject: Reject) {
        let is_too_long = reject.status == Status::ContentTooLarge;
        cx.stats.long_bodies.add(u64::from(is_too_long));
        if !is_too_long || !self.hand_back(work) {
            self.break_off(work, cx, Some(reject));
        }
    }

    /// Handles a body that will not be complete, while a consumer takes it. If no response has begun, the request is
    /// refused. If the client would not get the refusal, the request only has a line in the log. A response that has
    /// begun may go on without the rest of the body. The handler decides this, and learns from the consumer that the
    /// body has ended.
    #[cold]
    fn break_off(&mut self, work: &mut Work, cx: &mut Context, refusal: Option<Reject>) {
        self.take_no_more();
        if work.body_is_outstanding() {
            match refusal {
                Some(reject) => return self.refuse(work, cx, reject, &[]),
                None => work.exchanges.break_off_last(),
            }
        } else if let Some(producing) = &mut work.producing {
            producing.failure = Failure::Gone;
        }
        work.incoming = None;
    }

    /// Reports to the consumer that the body is too long, and lets the handler answer the request, as the last request
    /// of the connection. Returns false if the handler has answered already, or leaves the answer to the session.
    fn hand_back(&mut self, work: &mut Work) -> bool {
        let is_handed_back =
            work.incoming.as_mut().is_some_and(|incoming| incoming.consumer.handle_excess());
        let is_outstanding = work.body_is_outstanding();
        let is_pending = matches!(
            work.exchanges.back(),
            Some(Exchange::Asked { lookup: Lookup::Pending(_), .. })
        );
        let Some(facts) =
            work.exchanges.back_facts().filter(|_| is_handed_back && is_outstanding && is_pending)
        else {
            return false;
        };
        facts.last = true;
        work.incoming = None;
        self.take_no_more();
        true
    }

    /// Counts `bytes` dropped bytes of a body, including its framing. If the body is too long, it is not read to its
    /// end.
    pub(super) fn drop_body(&mut self, work: &mut Work, bytes: usize) {
        work.dropped += bytes as u64;
        if work.dropped > Limits::DEFAULT.body_bytes_max {
            work.reader.close();
            self.take_no_more();
        }
    }

    /// Closes the reader to further requests. If a consumer takes the body of the last request, the body is still read.
    pub(super) fn close_reader(work: &mut Work) {
        if !work.receives_body() {
            work.reader.close();
        }
    }

    /// Returns the next step if the consumer has room for bytes that wait, or if the peer will send no more bytes.
    pub(super) fn handle_incoming(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        moved: &Moved,
    ) -> Option<Next> {
        let incoming = work.incoming.as_mut()?;
        let has_room = incoming.has_room();
        if moved.unread > 0 && has_room && !moved.stuck {
            return Some(Next::Read);
        }
        let all_taken = moved.unread == 0 || (moved.stuck && has_room);
        if !self.ended || !all_taken || incoming.form == Form::Offered {
            return None;
        }
        if incoming.form == Form::Body {
            self.break_off(work, cx, None);
        } else {
            incoming.consumer.end();
            self.take_no_more();
            work.incoming = None;
        }
        Some(Next::Pump)
    }
}

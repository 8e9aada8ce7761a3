//! The contract of the part that answers requests: requests, answers, responses and bodies.
//!
//! A request names its connection by a ticket and an origin. A response is the same for all versions of HTTP; beside it
//! there may be a form that is prepared for one of them.
//!
//! A handler finds an answer, now or later, and makes a response of it: a status, fields, and a body of bytes, ranges
//! of files and producers. A search is dropped when its request no longer waits. If a large answer was not kept, the
//! handler finds it again when its turn comes, unless the answer is unique. A request that is not the next on its
//! connection may be postponed: a gateway begins no request if its client cannot receive the response yet. Otherwise a
//! client that sends many requests ahead and reads nothing would occupy all processes of an application.
//!
//! A producer makes bytes while they are sent, and is polled when its earlier bytes have left. A consumer receives
//! bytes that a client sends: the session asks for its room and decodes no more than that. A response may begin while
//! the body comes. If the response ends first, the consumer is dropped. Then up to 1 MiB of the rest of the body is
//! skipped, and a longer rest closes the connection. A response with status 101 makes the connection a tunnel. The only
//! way to abort a search, a producer or a consumer is to drop it.
//!
//! Searches, producers and consumers have no ring. The handler does the rest of their work before the worker waits.
//! Most responses are a whole file. For HTTP/1.1 these are prepared, with head and body in one buffer, whose date is
//! changed once a second.

use core::fmt;
use core::net::IpAddr;
use core::num::NonZeroU64;
use core::ops::Range;
use std::rc::Rc;

use http::{FieldSection, Head, ResponseHead, Status};
use ring::Completion;
use sendfile::{File, Piece, Policy, Takes, Tries, Weight};

use crate::context::Context;
use crate::files::{Data, Variant};
pub use crate::files::{Finished, Whole};
use crate::forwarded::Scheme;
use crate::network::Origin;
use crate::reason::Reason;
use crate::record::{Recording, Sketch, UpstreamTimes};
use crate::request_id::RequestId;
use crate::shell::Shell;
use crate::standing::Standing;
pub use crate::ticket::Ticket;
use crate::user::User;

/// The part of a worker that answers requests.
pub trait Handler {
    /// The part of an answer that is kept until its response can begin. It is small, because the response is made of
    /// it.
    type Answer: fmt::Debug;

    /// The consumer of the body of a request, or of the bytes of a tunnel, if there is one, and the standing with which the
    /// session then asks for the answer.
    ///
    /// The session calls it before [`find`](Self::find), for a request that has a body or asks for an upgrade. A body
    /// that nothing uses is skipped, and the session may ask for the answer only when the body has come. A response with
    /// status 101 agrees to an upgrade: its body is sent unframed, and the consumer gets all bytes that the client sends
    /// after its request.
    fn consumer(&mut self, _shell: &mut Shell, request: &Request<'_>) -> Reception {
        Reception { consumer: None, standing: request.standing }
    }

    /// Finds the answer to a request. The session calls it again when the turn of the response has come, if an answer
    /// was found before and not kept, or was postponed: see [`Keep`].
    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Self::Answer>;

    /// The memory and descriptors that an answer keeps.
    fn size(&self, answer: &Self::Answer) -> AnswerSize;

    /// The response to a request with this answer. The response may be dropped, and another one made.
    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Self::Answer,
    ) -> Response<'a>;

    /// Changes the response with which a request is answered, and names its user. It is called once for each request, after
    /// the response was chosen: [`response`](Self::response) may also make responses that are not sent. `request` makes the
    /// request. By default it changes nothing.
    fn wrap<'r>(
        &mut self,
        _request: impl FnOnce() -> Request<'r>,
        _answer: &Self::Answer,
        _response: &mut Response<'_>,
    ) {
    }

    /// Records a response with a reason. `id` makes the id of its request. By default it does nothing.
    fn note_error(
        &mut self,
        _cx: &Context,
        _head: &Head<'_>,
        _response: &Response<'_>,
        _id: impl FnOnce() -> RequestId,
    ) {
    }

    /// The answer to use if the file of an answer cannot be read now, because the disk does not answer. `None` if there
    /// is no other answer. If the file of the other answer cannot be read either, the worker calls this function again
    /// with the other answer.
    fn unavailable(&mut self, _shell: &mut Shell, _answer: &Self::Answer) -> Option<Self::Answer> {
        None
    }

    /// Does the rest of the work of producers, consumers and searches, which have no ring. The worker calls it after
    /// connections have acted and before it waits.
    fn act(&mut self, _shell: &mut Shell) {}

    /// Returns true if [`act`](Self::act) may have work, or a connection may get something new. A worker asks in each
    /// turn, so this should be cheap.
    fn may_have_news(&self) -> bool {
        true
    }

    /// Returns true if [`act`](Self::act) has more work for the next worker turn. The worker then does not wait, but
    /// first gives connections their turns.
    fn wants_turn(&self) -> bool {
        false
    }

    /// Handles a completion of one of the handler's own operations.
    fn handle(&mut self, shell: &mut Shell, completion: Completion);

    /// The next interim response to a request whose answer was not found yet. The interim responses of a request come
    /// before its answer.
    fn next_interim(&mut self) -> Option<(Ticket, Interim)> {
        None
    }

    /// The next answer that was found since [`Found::Later`].
    fn next_answer(&mut self) -> Option<(Ticket, Self::Answer)>;

    /// The next request whose [`Producer`] has more bytes after a wait, or whose [`Consumer`] has room again.
    fn next_woken(&mut self) -> Option<Ticket> {
        None
    }

    /// Returns true if the handler has nothing of its own under way for which a shutdown should wait. Requests of open
    /// connections need not count.
    fn is_idle(&self) -> bool {
        true
    }

    /// Ends everything under way, because the server ends.
    fn end(&mut self) {}
}

/// A request and its origin.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a Head<'a>,
    /// The name of the request, by which its answer or more of its body comes later.
    pub ticket: Ticket,
    /// The origin of its connection.
    pub origin: &'a Origin,
    /// The decision of the conditions about the request so far.
    pub standing: Standing,
    /// True if its response can begin at once. With HTTP/1 the response is the next response that the connection sends.
    /// With HTTP/2 the connection has room for another gateway. If the value is false, a handler may postpone the
    /// answer.
    pub is_next: bool,
}

/// The reply of a handler to a request with a body, before the request is asked about.
#[derive(Debug)]
pub struct Reception {
    /// The consumer of the body, or of the bytes of a tunnel, if there is one.
    pub consumer: Option<Box<dyn Consumer>>,
    /// The decision about the request so far. The session hands it back when it asks for the answer.
    pub standing: Standing,
}

/// The memory and the descriptors that an answer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerSize {
    /// Bytes of memory that the answer shares with others.
    pub shared: u64,
    /// True if the answer keeps files open.
    pub holds_files: bool,
    /// The time for which the connection keeps the answer.
    pub keep: Keep,
}

/// The time for which a connection keeps an answer whose response cannot begin yet. An answer that is not kept is found
/// again when the turn of its response comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Until the turn of its response, unless the answer is large or holds files.
    #[default]
    IfSmall,
    /// Until the turn of its response, however large the answer is. Such an answer cannot be found again: the response
    /// of an upstream, or a refusal because of a rate. The handler limits the number of such answers that keep memory.
    Always,
    /// Not at all: the handler has postponed the answer, because the request is not the [next](Request::is_next).
    Never,
}

/// The result of a search for an answer.
#[derive(Debug)]
pub enum Found<A> {
    /// The answer.
    Now(A),
    /// The handler will deliver the answer. The search is dropped when the request no longer waits for it: the answer
    /// was delivered, or the client has gone.
    Later(Option<Rc<dyn Search>>),
}

/// A search for an answer that keeps memory, or that must be given up when nothing waits for it.
pub trait Search: fmt::Debug {
    /// Memory that the search keeps for the client, and memory that the answer may take before its turn.
    fn weight(&self) -> Weight;

    /// Returns true if the search ends when its client has ended its side of the connection.
    fn ends_with_client(&self) -> bool {
        false
    }
}

/// An interim response (RFC 9110 §15.2). The final response follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interim {
    /// The status: 1xx, and not 101.
    pub status: Status,
    /// All fields.
    pub fields: FieldSection<'static>,
}

/// A response: status, fields and a body, which the session drops if the request was `HEAD`.
#[derive(Debug)]
pub struct Response<'a> {
    form: Form<'a>,
    /// The terms on which the response is sent.
    pub terms: Terms,
    /// The field `Strict-Transport-Security` of the site, if it has one. It is sent only with the scheme `https`, and not
    /// if the response has such a field already.
    pub hsts: Option<&'a FieldSection<'static>>,
    /// The reason for the operator, if the response is an error of the server.
    pub reason: Option<&'a Reason>,
    /// The upstream that has answered, if there is a log.
    pub upstream: Option<&'a Rc<UpstreamTimes>>,
    /// True if the response is an error page that the server has made itself. Such a page shows the id of its request.
    pub shows_id: bool,
}

/// The terms on which a response is sent, in addition to its bytes.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The place where the request is recorded, if it is logged or counted.
    pub recording: Option<Rc<Recording>>,
    /// The client for the log, if this is not the client of the connection.
    pub client: Option<IpAddr>,
    /// The name of the request. The flag is true if the peer is believed when it names the id. `None` if no log shows
    /// ids.
    pub named: Option<(Ticket, bool)>,
    /// The request line of a request without a head, as far as it is known; `None` if there is no log.
    pub sketch: Option<Box<Sketch>>,
    /// True if the search for the answer needed a disk.
    pub is_from_disk: bool,
    /// True if the response tells the time of this search in `Server-Timing`.
    pub server_timing: bool,
    /// True if the connection is closed after the response.
    pub is_last: bool,
    /// The maximum rate of the response in bytes per second.
    pub rate: Option<NonZeroU64>,
    /// The scheme that the client has asked for, if metrics or `hsts` need it; otherwise `http`.
    pub scheme: Scheme,
    /// The user who has made the request, if an authorizer names one.
    pub user: Option<User>,
}

impl Terms {
    /// The terms of a response for which nothing else is set.
    pub const DEFAULT: Self = Self {
        recording: None,
        client: None,
        named: None,
        sketch: None,
        is_from_disk: false,
        server_timing: false,
        is_last: false,
        rate: None,
        scheme: Scheme::Http,
        user: None,
    };
}

/// The form in which a response is kept. Most responses are whole files. Their fields and body are described only if
/// the session cannot use their [`Finished`] form.
#[derive(Debug)]
enum Form<'a> {
    Whole(Whole<'a>),
    /// The box is for speed: a described response is large, and responses are moved.
    Made(Box<Made<'a>>),
}

/// A response whose fields are described.
#[derive(Debug)]
pub struct Made<'a> {
    /// Status and fields.
    pub head: ResponseHead<'a>,
    /// The body.
    pub body: Body,
}

impl<'a> Response<'a> {
    /// A response with a body.
    #[must_use]
    #[inline]
    pub fn new(head: ResponseHead<'a>, body: Body) -> Self {
        Self::of(Form::Made(Box::new(Made { head, body })))
    }

    /// A response without a body.
    #[must_use]
    #[inline]
    pub fn bare(head: ResponseHead<'a>) -> Self {
        Self::new(head, Body::EMPTY)
    }

    /// The whole of a file.
    #[must_use]
    pub const fn whole(whole: Whole<'a>) -> Self {
        Self::of(Form::Whole(whole))
    }

    const fn of(form: Form<'a>) -> Self {
        Self {
            form,
            terms: Terms::DEFAULT,
            hsts: None,
            reason: None,
            upstream: None,
            shows_id: false,
        }
    }

    /// The same response, prepared for HTTP/1.1 and a client whose connection stays open. It is a cache beside the
    /// value, and may be missing.
    #[must_use]
    pub const fn finished(&self) -> Option<&'a Finished> {
        match &self.form {
            Form::Whole(whole) => Some(&whole.variant().finished),
            Form::Made(_) => None,
        }
    }

    /// The file whose whole is the body, if the response is the usual one for it.
    #[must_use]
    pub const fn whole_file(&self) -> Option<Whole<'a>> {
        match &self.form {
            Form::Whole(whole) => Some(*whole),
            Form::Made(_) => None,
        }
    }

    /// Returns true if a part of the body is made while it is sent.
    pub fn is_made_while_sent(&self) -> bool {
        match &self.form {
            Form::Whole(_) => false,
            Form::Made(made) => made.body.has_producer(),
        }
    }

    /// The status, and whether the content is encoded.
    pub fn outcome(&self) -> (Status, bool) {
        match &self.form {
            Form::Whole(whole) => (Status::Ok, whole.is_encoded()),
            Form::Made(made) => {
                let head = &made.head;
                let is_encoding =
                    |(name, _): (&[u8], _)| name.eq_ignore_ascii_case(b"content-encoding");
                (
                    head.status,
                    head.content_encoding.is_some() || head.extra.fields().any(is_encoding),
                )
            }
        }
    }

    /// The range of a file with which the body begins on a connection whose transport sends this, also after bytes in
    /// memory. `None` if the body needs no file, or needs a file only after bytes that have to be made.
    pub fn first_range(&self, takes: Takes) -> Option<(Rc<File>, Range<u64>)> {
        match &self.form {
            Form::Whole(whole) if whole.variant().finished.has_body_for(takes) => None,
            Form::Whole(whole) => match &whole.variant().data {
                Data::File(file) => Some((Rc::clone(file), 0..file.size())),
                Data::Memory => None,
            },
            Form::Made(made) => {
                let mut parts = made.body.first.iter().chain(&made.body.rest);
                match parts.find(|part| !matches!(part, Part::Piece(_)))? {
                    Part::File(file, range, _) => Some((Rc::clone(file), range.clone())),
                    Part::Piece(_) | Part::Producer(_) => None,
                }
            }
        }
    }

    /// Returns true if the response may try a disk that does not answer. An error page is not worth a wait.
    pub fn tries(&self) -> Tries {
        if self.outcome().0.code() >= 400 { Tries::Never } else { Tries::InTurn }
    }

    /// Takes the body out.
    pub fn take_body(&mut self) -> Body {
        match &mut self.form {
            Form::Whole(whole) => whole_body(*whole),
            Form::Made(made) => core::mem::take(&mut made.body),
        }
    }

    /// The response in full.
    #[inline]
    pub fn made(&mut self) -> &mut Made<'a> {
        if let Form::Whole(whole) = self.form {
            let made = Made { head: whole.head(Status::Ok), body: whole_body(whole) };
            self.form = Form::Made(Box::new(made));
        }
        match &mut self.form {
            Form::Made(made) => made,
            Form::Whole(_) => unreachable!("it has just been made"),
        }
    }
}

/// The body of a response that is the whole of a file.
pub fn whole_body(whole: Whole<'_>) -> Body {
    let variant = whole.variant();
    Body::from(Part::of(variant, 0..variant.size, whole.policy()))
}

impl Part {
    /// A range of a file.
    pub fn of(variant: &Variant, range: Range<u64>, policy: Policy) -> Self {
        match &variant.data {
            Data::File(file) => Self::File(Rc::clone(file), range, policy),
            Data::Memory => Self::Piece(variant.finished.part(range)),
        }
    }
}

/// A body: parts in order.
#[derive(Debug, Default)]
pub struct Body {
    first: Option<Part>,
    rest: Vec<Part>,
}

/// A part of a body.
#[derive(Debug)]
pub enum Part {
    /// Bytes in memory.
    Piece(Piece),
    /// A range of a file, with its policy.
    File(Rc<File>, Range<u64>, Policy),
    /// Bytes that are made while they are sent.
    Producer(Box<dyn Producer>),
}

impl Body {
    /// A body without bytes.
    pub const EMPTY: Self = Self { first: None, rest: Vec::new() };

    /// Returns true if there are no parts.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns true if a part is made while it is sent.
    pub fn has_producer(&self) -> bool {
        self.first.iter().chain(&self.rest).any(|part| matches!(part, Part::Producer(_)))
    }

    /// The piece that is the whole body, if the body has only one piece.
    pub const fn only_piece(&self) -> Option<&Piece> {
        match &self.first {
            Some(Part::Piece(piece)) if self.rest.is_empty() => Some(piece),
            _ => None,
        }
    }

    /// The first part.
    pub const fn first_mut(&mut self) -> Option<&mut Part> {
        self.first.as_mut()
    }

    /// The number of parts after the first.
    pub const fn further_parts(&self) -> usize {
        self.rest.len()
    }

    /// Adds a part at the end.
    pub fn push(&mut self, part: Part) {
        if self.first.is_none() {
            self.first = Some(part);
        } else {
            self.rest.push(part);
        }
    }
}

impl From<Part> for Body {
    fn from(part: Part) -> Self {
        Self { first: Some(part), rest: Vec::new() }
    }
}

/// The parts of a body in their order.
pub type Parts = core::iter::Chain<core::option::IntoIter<Part>, std::vec::IntoIter<Part>>;

impl IntoIterator for Body {
    type Item = Part;
    type IntoIter = Parts;

    fn into_iter(self) -> Parts {
        self.first.into_iter().chain(self.rest)
    }
}

/// Bytes that are made while they are sent: a listing, an upstream's response.
pub trait Producer: fmt::Debug {
    /// Puts bytes into `sink`: about `room` bytes, if there are as many now.
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced;

    /// The fields of the trailer section (RFC 9110 §6.5), once the bytes have [ended](Produced::Ended). They are sent
    /// if the framing has a place for them.
    fn trailers(&mut self) -> FieldSection<'static> {
        FieldSection::EMPTY
    }

    /// Bytes of memory, shared with others, that the producer keeps alive.
    fn weight(&self) -> u64;

    /// The most bytes of memory that the producer may later keep for a sink that is not [shared](BodySink::is_shared).
    /// By default the bytes that it keeps now.
    fn weight_max(&self) -> u64 {
        self.weight()
    }
}

/// The destination of bytes that a client sends, while they come: the body of a request, or one direction of a tunnel.
///
/// A consumer is dropped without [`end`](Self::end) if the rest will not come, or is not wanted because the response
/// has ended before. If the response has begun and has not ended, its client has broken the request off. Then the
/// handler should let the response fail, unless it can be completed at no further cost.
pub trait Consumer: fmt::Debug {
    /// The most bytes of content that a body may have; a longer body is refused with 413.
    fn bytes_max(&self) -> u64;

    /// The number of bytes for which the consumer has room now. A body waits while it is less than
    /// [`CONSUMER_ROOM_MIN`]. The handler says when there is more room ([`Handler::next_woken`]).
    fn room(&self) -> u64;

    /// Receives the next bytes, at most as many as the room.
    fn push(&mut self, bytes: &[u8]);

    /// Receives a field of the trailer section, after all bytes: name and value.
    fn trailer(&mut self, _name: &[u8], _value: &[u8]) {}

    /// Receives the end of the body.
    fn end(&mut self);

    /// Returns true if the bytes after the body are also for the consumer, if the response has status 101 and the body
    /// has ended before it.
    fn awaits_tunnel(&self) -> bool {
        false
    }

    /// Records that the body has more than [`bytes_max`](Self::bytes_max), and that the rest will not come. Returns
    /// true if the handler answers the request for that reason, or has answered the request already. Otherwise the
    /// session answers.
    fn handle_excess(&mut self) -> bool {
        false
    }

    /// Bytes of memory that the consumer keeps for the client.
    fn weight(&self) -> u64;
}

/// The body of a response has fewer bytes than this. A larger announced length is a fault of its source, because a
/// session could not add such a length to the bytes that it has already promised.
pub const BODY_BYTES_END: u64 = 1 << 62;

/// The least room with which a [`Consumer`] is given more of a body: the longest line of framing fits into it.
pub const CONSUMER_ROOM_MIN: u64 = 4 * 1024;

/// The state of a producer after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produced {
    /// More bytes are ready now.
    More,
    /// More bytes will come: the handler says when ([`Handler::next_woken`]).
    Waiting,
    /// All bytes were made.
    Ended,
    /// The rest will never come. The connection is closed, so that the client sees that bytes are missing.
    Failed,
}

/// The destination of a producer's bytes. The session frames them.
pub trait BodySink {
    /// The pieces that the sink accepts.
    fn takes(&self) -> Takes;

    /// Returns true if the connection has other requests at the same time, or receives few bytes. Then no body should
    /// keep much memory: a client that receives nothing would hold this memory once for each of its requests. By
    /// default the body is alone.
    fn is_shared(&self) -> bool {
        false
    }

    /// Adds the next bytes of the body.
    fn push(&mut self, piece: Piece);

    /// Adds a range of a file as the next bytes of the body, with its policy.
    fn push_file(&mut self, file: &Rc<File>, range: Range<u64>, policy: Policy);
}

//! Bodies that are being transferred: into the stream, and from the peer to a consumer.

use http::FieldSection;
use sendfile::Failure;

use crate::handler::{CONSUMER_ROOM_MIN, Consumer, Parts, Producer};
use crate::record::Record;
use crate::session::framing::BodyFraming;

/// Bytes that the peer sends to a consumer.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) consumer: Box<dyn Consumer>,
    pub(super) form: Form,
    /// The bytes of a body, with its framing, that have come since the client's rate was last judged.
    pub(super) received: u64,
}

/// The form of the bytes for a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The body of a request.
    Body,
    /// The request asked for an upgrade, and its body (if any) has come. The response decides whether the next
    /// bytes belong to a tunnel.
    Offered,
    /// A tunnel.
    Tunnel,
    /// A tunnel whose other end has ended. All bytes and the end of the stream were sent to the peer.
    HalfClosed,
}

/// A producer that has more bytes to give, and the body that goes on after the producer.
#[derive(Debug)]
pub(super) struct Producing {
    pub(super) producer: Box<dyn Producer>,
    pub(super) body: Sending,
    /// True until the producer is asked for bytes for the first time.
    pub(super) is_new: bool,
    /// The failure that is reported if the producer does not make the rest of its bytes.
    pub(super) failure: Failure,
}

/// A body on its way into the stream.
#[derive(Debug)]
pub(super) struct Sending {
    /// The parts that are not in the stream.
    pub(super) parts: Parts,
    pub(super) framing: BodyFraming,
    /// The fields after a body in chunks.
    pub(super) trailers: FieldSection<'static>,
    pub(super) record: Option<Box<Record>>,
    /// The position in the stream at which the body begins.
    pub(super) body_at: u64,
}

impl Incoming {
    /// Returns true if the consumer has room for bytes.
    pub(super) fn has_room(&self) -> bool {
        let least = if self.form == Form::Body { CONSUMER_ROOM_MIN } else { 1 };
        self.form != Form::Offered && self.consumer.room() >= least
    }
}

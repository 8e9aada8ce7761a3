//! The server on the stack: answers questions in datagrams and on connections.

use core::net::SocketAddr;
use core::ops::Range;
use std::collections::HashMap;
use std::sync::Arc;

use netstack::{Application, ConnectionId, Lost, Stack, Time, Transmit};
use outq::OutQ;

use crate::answers::Zone;
use crate::message::{Transport, reply};

/// The maximum number of connections. A further connection closes the connection that was idle for longest (RFC
/// 7766, 6.2.3).
const CONNECTIONS_MAX: usize = 1024;
/// The limit of queued reply bytes for a peer. Above the limit the peer's questions wait, too.
const QUEUED_BYTES_MAX: u64 = 256 * 1024;

/// A server for a zone.
pub(crate) struct Server {
    zone: Arc<Zone>,
    datagrams: Vec<Datagram>,
    /// The bytes of the received datagrams.
    received: Vec<u8>,
    conversations: HashMap<ConnectionId, Conversation>,
    /// The connections to drain.
    due: Vec<ConnectionId>,
    closing: Vec<ConnectionId>,
    /// Memory for the tail of a reply.
    moved: Vec<u8>,
    /// The number of events so far: the clock for idle connections.
    events: u64,
}

/// A datagram with a question.
struct Datagram {
    local: SocketAddr,
    peer: SocketAddr,
    bytes: Range<usize>,
}

/// A connection with questions.
#[derive(Default)]
struct Conversation {
    /// Questions without a reply yet; the last one may not be whole.
    received: Vec<u8>,
    replies: OutQ<Vec<u8>>,
    has_ended: bool,
    /// The number of the connection's last event.
    used: u64,
}

impl Server {
    pub(crate) fn new(zone: Arc<Zone>) -> Self {
        Self {
            zone,
            datagrams: Vec::new(),
            received: Vec::new(),
            conversations: HashMap::new(),
            due: Vec::new(),
            closing: Vec::new(),
            moved: Vec::new(),
            events: 0,
        }
    }

    fn send_replies(&mut self, stack: &mut Stack, out: &mut impl Transmit) {
        for Datagram { local, peer, bytes } in self.datagrams.drain(..) {
            let message = &self.received[bytes];
            let reply = reply(&self.zone, message, Transport::Datagram, &mut self.moved);
            let Some(reply) = reply else { continue };
            let mut parts = [&[][..]; 4];
            let mut count = 0;
            for part in reply.parts().into_iter().filter(|part| !part.is_empty()) {
                parts[count] = part;
                count += 1;
            }
            // The resolver asks again if its reply is lost.
            let _ = stack.send_datagram(local, peer, &parts[..count], out);
        }
        self.received.clear();
    }
}

impl Conversation {
    /// True if the queue of replies is below its limit. Otherwise the peer's questions wait.
    fn takes_more(&self) -> bool {
        self.replies.promised() - self.replies.released() < QUEUED_BYTES_MAX
    }

    /// Replies to complete messages while the peer receives its replies. In front of each message are two bytes with
    /// its length (RFC 1035, 4.2.2).
    fn handle(&mut self, zone: &Zone, moved: &mut Vec<u8>) {
        let mut rest = &self.received[..];
        while self.takes_more()
            && let Some((length, behind)) = rest.split_first_chunk()
            && let Some((message, behind)) =
                behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))
        {
            rest = behind;
            let Some(reply) = reply(zone, message, Transport::Stream, moved) else { continue };
            let parts = reply.parts();
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            let length = u16::try_from(bytes).expect("a tail fits into a message").to_be_bytes();
            let [header, question, tail, opt] = parts;
            self.replies.push([&length, header, question, tail, opt].concat());
        }
        let handled = self.received.len() - rest.len();
        self.received.drain(..handled);
    }
}

impl Application for Server {
    fn datagram(&mut self, local: SocketAddr, peer: SocketAddr, bytes: &[u8]) {
        let begin = self.received.len();
        self.received.extend_from_slice(bytes);
        self.datagrams.push(Datagram { local, peer, bytes: begin..self.received.len() });
    }

    fn accepted(&mut self, id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {
        if self.conversations.len() >= CONNECTIONS_MAX {
            let idle = self.conversations.iter().min_by_key(|(_, conversation)| conversation.used);
            let idle = *idle.expect("at least one").0;
            self.conversations.remove(&idle);
            self.closing.push(idle);
        }
        self.events += 1;
        let conversation = Conversation { used: self.events, ..Conversation::default() };
        self.conversations.insert(id, conversation);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        self.events += 1;
        conversation.used = self.events;
        conversation.received.extend_from_slice(bytes);
        self.due.push(id);
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.due.push(id);
    }

    fn room(&mut self, id: ConnectionId) {
        self.due.push(id);
    }

    fn ended(&mut self, id: ConnectionId) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        conversation.has_ended = true;
        self.due.push(id);
    }

    fn closed(&mut self, id: ConnectionId) {
        self.conversations.remove(&id);
    }

    fn lost(&mut self, id: ConnectionId, _why: Lost) {
        self.conversations.remove(&id);
    }
}

impl netdev::Program for Server {
    fn act(&mut self, now: Time, stack: &mut Stack, out: &mut impl Transmit) {
        self.send_replies(stack, out);
        for id in self.closing.drain(..) {
            stack.close(now, id, out);
        }
        while let Some(id) = self.due.pop() {
            let Some(conversation) = self.conversations.get_mut(&id) else { continue };
            // First release what the peer has acknowledged, so that its next questions get replies.
            stack.drain(now, id, &mut conversation.replies, &mut u64::MAX.clone(), out);
            conversation.handle(&self.zone, &mut self.moved);
            let takes_more = conversation.takes_more();
            if conversation.has_ended && takes_more {
                stack.shutdown(id);
            }
            stack.drain(now, id, &mut conversation.replies, &mut u64::MAX.clone(), out);
            stack.set_receiving(now, id, takes_more, self, out);
        }
    }
}

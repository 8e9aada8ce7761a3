//! The bytes that the peer of a socket has acknowledged, and the calls that wait for them.

use core::time::Duration;

use ring::{Key, Left, Op, Token};

use super::{
    ACKNOWLEDGED, Call, Calls, Full, InFlight, LOOK, Outcome, Socket, SocketQueues, Stop, Work,
};
use crate::failure::Failure;

/// The time between two looks at the acknowledged bytes while a call waits for them: for sockets without reports, bytes
/// from before the first call, and reports for which the kernel had no memory.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The calls that wait for acknowledgements of a socket.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    pub(super) calls: Vec<Call>,
    /// `Some` if the kernel reports them.
    pub(super) reports: Option<Key>,
    /// `Some` while a call waits.
    pub(super) look: Option<Key>,
}

impl Calls {
    /// Bytes of the sends on a socket that the peer has acknowledged (`SIOCOUTQ`). For a Unix socket these are roughly
    /// the bytes that the peer has read. If the peer has left without reading all, they are the bytes that it was known
    /// to have read. 0 if the socket was closed.
    ///
    /// Acknowledged is not unreferenced: a peer on the same machine shares the pages of a file until it has read them.
    /// So a write to the file then changes the bytes that the peer reads. Bytes that were sent from memory are a copy.
    #[must_use]
    pub fn acknowledged(&mut self, socket: Socket) -> u64 {
        let Some(queues) = self.sockets.get(socket.0) else { return 0 };
        let count = self.sent(queues).saturating_sub(self.ring.queued(queues.transport.socket()));
        // Asked after the count: the kernel drops the queued bytes after it has reported that the peer leaves them
        // unread.
        let left = self.left(queues);
        let Some(queues) = self.sockets.get_mut(socket.0) else { return 0 };
        if left != Some(Left::Unread) {
            queues.acknowledged = count;
        }
        queues.acknowledged
    }

    /// Returns how the peer of a socket has left.
    fn left(&self, queues: &SocketQueues) -> Option<Left> {
        if queues.is_unread {
            Some(Left::Unread)
        } else {
            self.ring.has_left(queues.transport.socket())
        }
    }

    /// The bytes that have left on a socket.
    fn sent(&self, queues: &SocketQueues) -> u64 {
        let current = queues.sends.front().and_then(|call| self.calls.get(call.0));
        let current = current.map_or(0, |one| match &one.work {
            Work::Send(send) => send.stream.sent(),
            _ => 0,
        });
        queues.sent + current
    }

    /// Waits until the peer has acknowledged this many bytes of all sends on a socket together:
    /// [`Outcome::Acknowledged`]. For TCP the kernel reports it (`SO_TIMESTAMPING`), from the first such call on, at
    /// the end of each piece that it has taken. Other sockets are looked at 20 times a second. The call fails with
    /// [`Failure::Gone`] when the connection is gone before the peer has this many.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn acknowledgement(
        &mut self,
        socket: Socket,
        bytes: u64,
        token: Token,
    ) -> Result<Call, Full<()>> {
        if !self.has_room() {
            return Err(Full(()));
        }
        let call = self.begin(token, Work::Acknowledgement { socket, bytes });
        let Self { sockets, ring, .. } = self;
        let Some(queues) = sockets.get_mut(socket.0) else {
            self.end_acknowledgement(call, Err(Stop::Closed));
            return Ok(call);
        };
        let fd = queues.transport.socket();
        let acknowledgements = queues.acknowledgements.get_or_insert_with(|| {
            let tells = ring.report_acknowledgements(fd).is_ok();
            let token = ACKNOWLEDGED | socket.to_bits();
            let reports = tells.then(|| ring.submit(Op::Acknowledgements(fd.clone()), token));
            Box::new(Acknowledgements { calls: Vec::new(), reports, look: None })
        });
        acknowledgements.calls.push(call);
        self.look(socket);
        Ok(call)
    }

    /// Completes the calls that wait for what has been acknowledged.
    pub(super) fn look(&mut self, socket: Socket) {
        let Some(queues) = self.sockets.get(socket.0) else { return };
        let (left, sent) = (self.left(queues), self.sent(queues));
        // After the look at the peer, which may acknowledge all and go between the two.
        let acknowledged = self.acknowledged(socket);
        let is_over = match left {
            None => false,
            Some(Left::Ended | Left::Unread) => true,
            // When both sides have ended, the peer looks as if it had left, but may still read the queued bytes.
            Some(Left::Read) => acknowledged == sent,
        };
        let Self { sockets, calls, ring, .. } = self;
        let Some(queues) = sockets.get_mut(socket.0) else { return };
        let Some(acknowledgements) = queues.acknowledgements.as_deref_mut() else { return };
        let mut ended = Vec::new();
        acknowledgements.calls.retain(|call| {
            let waits_for = match calls.get(call.0).map(|one| &one.work) {
                Some(Work::Acknowledgement { bytes, .. }) => *bytes,
                _ => unreachable!("a call leaves the queue when it ends"),
            };
            let is_there = waits_for <= acknowledged;
            let ends = is_there || is_over;
            if ends {
                let failed = Err(Stop::Failed(Failure::Gone));
                ended.push((*call, if is_there { Ok(acknowledged) } else { failed }));
            }
            !ends
        });
        if !acknowledgements.calls.is_empty() && acknowledgements.look.is_none() {
            let at = ring.now() + LOOK_PAUSE;
            acknowledgements.look = Some(ring.submit(Op::Timer(at), LOOK | socket.to_bits()));
        }
        for (call, end) in ended {
            self.end_acknowledgement(call, end);
        }
    }

    pub(super) fn end_acknowledgement(&mut self, call: Call, end: Result<u64, Stop>) {
        let Some(InFlight { token, work: Work::Acknowledgement { socket, .. } }) =
            self.calls.remove(call.0)
        else {
            unreachable!("a call ends once")
        };
        if let Some(queues) = self.sockets.get_mut(socket.0)
            && let Some(acknowledgements) = queues.acknowledgements.as_deref_mut()
        {
            acknowledgements.calls.retain(|other| *other != call);
        }
        self.complete(call, token, Outcome::Acknowledged(end), false);
    }
}

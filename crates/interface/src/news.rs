//! The news of a stack, in the order in which the worker has to get them.

use core::net::SocketAddr;
use core::ops::Deref;
use std::collections::VecDeque;

use netdev::Received;
use netstack::{Application, ConnectionId, Lost, Report};

use super::strays::Strays;

/// Bytes that were received for one connection.
#[derive(Debug)]
pub enum Bytes {
    /// A part of the frame that brought them.
    Part(Received),
    /// A copy of bytes that came out of order, or before they were wanted.
    Copied(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Part(part) => part,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The events of a connection.
#[derive(Debug)]
pub(super) enum Came {
    Accepted {
        local: SocketAddr,
        peer: SocketAddr,
    },
    Bytes(Bytes),
    End,
    /// The connection no longer exists.
    Lost,
    /// More bytes can be sent, or the peer has acknowledged bytes.
    Room,
}

/// The news of a stack that the worker has not got yet.
#[derive(Debug)]
pub(super) struct News {
    came: VecDeque<(ConnectionId, Came)>,
    /// `Some` if the interface has other stacks.
    strays: Option<Strays>,
}

/// The application of a stack: it notes the news, and takes parts of the frame that the stack is handling.
#[derive(Debug)]
pub(super) struct Teller<'a> {
    news: &'a mut News,
    frame: Option<&'a Received>,
}

impl News {
    pub(super) const fn new(strays: Option<Strays>) -> Self {
        Self { came: VecDeque::new(), strays }
    }

    /// The application for news of this frame, or of something else.
    pub(super) const fn teller<'a>(&'a mut self, frame: Option<&'a Received>) -> Teller<'a> {
        Teller { news: self, frame }
    }

    pub(super) fn next(&mut self) -> Option<(ConnectionId, Came)> {
        self.came.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.came.is_empty()
    }

    /// Puts news in front of all others.
    pub(super) fn put_back(&mut self, id: ConnectionId, came: Came) {
        self.came.push_front((id, came));
    }

    /// Handles the reports of other stacks of the interface about connections of this stack, or of none.
    pub(super) fn take_strays(&self) -> VecDeque<Report> {
        self.strays.as_ref().map(Strays::take).unwrap_or_default()
    }

    fn add_room(&mut self, id: ConnectionId) {
        // One frame may both acknowledge bytes and open the window. It may also bring bytes, after which the queue is
        // drained anyway.
        let is_known = |(other, came): &(ConnectionId, Came)| {
            *other == id && matches!(came, Came::Room | Came::Bytes(_))
        };
        if !self.came.back().is_some_and(is_known) {
            self.came.push_back((id, Came::Room));
        }
    }
}

impl Application for Teller<'_> {
    fn accepted(&mut self, id: ConnectionId, local: SocketAddr, peer: SocketAddr) {
        self.news.came.push_back((id, Came::Accepted { local, peer }));
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        let part = self.frame.and_then(|frame| {
            // Bytes that the stack has held are not in the frame, so they have no range of it.
            let at = (bytes.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
            (at + bytes.len() <= frame.len()).then(|| frame.part(at..at + bytes.len()))
        });
        let bytes = part.map_or_else(|| Bytes::Copied(bytes.to_vec()), Bytes::Part);
        if let Some((other, last)) = self.news.came.back_mut()
            && *other == id
            && matches!(last, Came::Room)
        {
            *last = Came::Bytes(bytes);
            return;
        }
        self.news.came.push_back((id, Came::Bytes(bytes)));
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.news.add_room(id);
    }

    fn room(&mut self, id: ConnectionId) {
        self.news.add_room(id);
    }

    fn ended(&mut self, id: ConnectionId) {
        self.news.came.push_back((id, Came::End));
    }

    /// The peer's end was reported before.
    fn closed(&mut self, id: ConnectionId) {
        self.news.came.push_back((id, Came::Lost));
    }

    fn lost(&mut self, id: ConnectionId, _why: Lost) {
        self.news.came.push_back((id, Came::Lost));
    }

    fn stray(&mut self, report: Report) {
        if let Some(strays) = &self.news.strays {
            strays.post(report);
        }
    }
}

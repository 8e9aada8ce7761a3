//! A stack with an interface and the queues of its connections: one end of the simulated network.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use outq::OutQ;

use super::device::Device;
use crate::application::{Application, ConnectionId, Lost};
use crate::stack::Stack;
use crate::time::Time;

/// What a stack has told its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A connection is open: our end and the peer's.
    Accepted(SocketAddr, SocketAddr),
    /// Bytes have come.
    Received(Vec<u8>),
    /// The peer has acknowledged bytes.
    Acknowledged,
    /// More can be sent.
    Room,
    /// The peer has ended its side.
    Ended,
    /// The connection is gone.
    Lost(Lost),
}

/// Notes what the stack tells.
#[derive(Debug, Default)]
struct Ear {
    news: Vec<(ConnectionId, News)>,
}

impl Application for Ear {
    fn accepted(&mut self, id: ConnectionId, local: SocketAddr, peer: SocketAddr) {
        self.news.push((id, News::Accepted(local, peer)));
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "received nothing");
        self.news.push((id, News::Received(bytes.to_vec())));
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.news.push((id, News::Acknowledged));
    }

    fn room(&mut self, id: ConnectionId) {
        self.news.push((id, News::Room));
    }

    fn ended(&mut self, id: ConnectionId) {
        self.news.push((id, News::Ended));
    }

    fn lost(&mut self, id: ConnectionId, why: Lost) {
        self.news.push((id, News::Lost(why)));
    }
}

//! Receives into files: uploads. A piece is received into memory when the socket has something to read, and written by
//! another thread. The next piece is received when it has been written, so a slow disk slows the peer down.
//!
//! A call that ends while a piece is written has taken bytes off the socket that may not be in the file. Then later
//! receives of the socket fail, as sends do after a send that has left in part.

use ring::{Event, Fault, Fd, Op, Token};

use super::operations::OnDisk;
use super::{Call, Calls, Full, InFlight, Outcome, READABLE, Socket, Stop, Turn, Work};
use crate::failure::Failure;

/// The maximum of a piece.
const PIECE_BYTES: usize = 128 * 1024;
/// The maximum of pieces in memory, which take 16 MiB; further calls wait for one of them.
pub(super) const PIECES_MAX: usize = 128;

/// A receive into a file.
#[derive(Debug)]
pub(super) struct Store {
    socket: Socket,
    file: Fd,
    /// The position in the file of the next byte to be written.
    at: u64,
    /// The bytes that are to be received beyond those in memory.
    left: u64,
    /// The bytes that are in the file.
    written: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It waits for earlier receives, or for the socket.
    Idle,
    /// The socket may have something to read, and there are too many pieces in memory.
    InLine,
    /// A piece is being written.
    Writing(OnDisk),
}

impl Calls {
    /// Receives into a file from `offset` on, until `len` bytes have come or the peer has ended its side:
    /// [`Outcome::Stored`]. The file was opened for writing, and not for appending.
    ///
    /// The receives of a socket, into memory or files, are filled in the order of the calls. If this one ends early while
    /// a piece is being written, later ones fail with [`Stop::Broken`]; the piece, at most 128 KiB, may still come to the
    /// file.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    ///
    /// # Panics
    ///
    /// If the end of the range is 2⁶² or more.
    pub fn receive_to_file(
        &mut self,
        socket: Socket,
        file: &Fd,
        offset: u64,
        len: u64,
        token: Token,
    ) -> Result<Call, Full<()>> {
        assert!(offset.checked_add(len).is_some_and(|end| end < 1 << 62));
        if !self.has_room() {
            return Err(Full(()));
        }
        let (file, at, stage) = (file.clone(), offset, Stage::Idle);
        let store = Store { socket, file, at, left: len, written: 0, stage };
        let call = self.begin(token, Work::Store(Box::new(store)));
        self.line_up(socket, call);
        Ok(call)
    }

    /// Goes on with the first receive of a socket, which is into a file. Returns whether the call has ended, so that the
    /// next one can go on.
    pub(super) fn store(&mut self, call: Call) -> bool {
        let Some(InFlight { work: Work::Store(store), .. }) = self.calls.get_mut(call.0) else {
            unreachable!("a call leaves the queue when it ends")
        };
        let Store { socket, file, at, left, stage, .. } = &mut **store;
        let Some(queues) = self.sockets.get_mut(socket.0) else { return false };
        if matches!(stage, Stage::Writing(_) | Stage::InLine) {
            return false;
        }
        if *left == 0 {
            self.end_store(call, Ok(()));
            return true;
        }
        if self.pieces >= PIECES_MAX {
            *stage = Stage::InLine;
            self.pieces_line.push_back(call);
            return false;
        }
        let fd = queues.transport.socket();
        let mut bytes =
            vec![0; usize::try_from(*left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES))];
        let received = loop {
            let received = self.ring.receive(fd, &mut bytes).map_err(|error| Fault::of(&error));
            if received != Err(Fault::Interrupted) {
                break received;
            }
        };
        match received {
            Ok(0) => self.end_store(call, Ok(())),
            Ok(count) => {
                bytes.truncate(count);
                *left -= count as u64;
                self.pieces += 1;
                let op = Op::Write { file: file.clone(), at: Some(*at), bytes };
                *stage = Stage::Writing(OnDisk::begin(&mut self.ring, self.patience, call, op));
                return false;
            }
            Err(Fault::Blocked) => {
                let token = READABLE | socket.to_bits();
                queues.readable = Some(self.ring.submit(Op::Readable(fd.clone()), token));
                return false;
            }
            Err(fault) => self.end_store(call, Err(Stop::Failed(Failure::of_send(fault)))),
        }
        true
    }

    /// Handles the result of a write.
    pub(super) fn handle_written(&mut self, call: Call, result: std::io::Result<Event>) {
        let Some(InFlight { work: Work::Store(store), .. }) = self.calls.get_mut(call.0) else {
            unreachable!("an operation of a call that has ended has no owner")
        };
        let (mut bytes, count) = match result {
            Ok(Event::Written(bytes, count)) => (bytes, count),
            Ok(event) => unreachable!("a write ended with {event:?}"),
            Err(error) => {
                return self.end_store(call, Err(Stop::Failed(Failure::of_read(&error))));
            }
        };
        if count == 0 {
            // The kernel has no reason for it, and it would not go on.
            return self.end_store(call, Err(Stop::Failed(Failure::Unreadable(0))));
        }
        let Stage::Writing(on_disk) = core::mem::replace(&mut store.stage, Stage::Idle) else {
            unreachable!("it is written now")
        };
        on_disk.stop_timer(&mut self.ring);
        store.at += count as u64;
        store.written += count as u64;
        if count < bytes.len() {
            bytes.drain(..count);
            let op = Op::Write { file: store.file.clone(), at: Some(store.at), bytes };
            store.stage = Stage::Writing(OnDisk::begin(&mut self.ring, self.patience, call, op));
            return;
        }
        let socket = store.socket;
        self.give_piece_back();
        // Others have their turns between two pieces.
        self.turns.push_back(Turn::Receive(socket));
    }

    /// A piece has left the memory: the first call that waits for one goes on.
    fn give_piece_back(&mut self) {
        self.pieces -= 1;
        while let Some(call) = self.pieces_line.pop_front() {
            if let Some(InFlight { work: Work::Store(store), .. }) = self.calls.get_mut(call.0)
                && matches!(store.stage, Stage::InLine)
            {
                store.stage = Stage::Idle;
                self.turns.push_back(Turn::Receive(store.socket));
                return;
            }
        }
    }

    pub(super) fn end_store(&mut self, call: Call, end: Result<(), Stop>) {
        let Some(InFlight { token, work: Work::Store(store) }) = self.calls.remove(call.0) else {
            unreachable!("only receives into files end here")
        };
        let Store { socket, written, stage, .. } = *store;
        let is_broken = matches!(stage, Stage::Writing(_));
        if let Stage::Writing(on_disk) = stage {
            // The disk may keep the operation, which refers to no memory of the caller.
            on_disk.cancel(&mut self.ring);
            self.give_piece_back();
        }
        self.complete(call, token, Outcome::Stored { bytes: written, end }, false);
        self.leave_receives(socket, call, is_broken);
    }
}

impl Store {
    pub(super) const fn socket(&self) -> Socket {
        self.socket
    }

    /// The operation in flight.
    pub(super) const fn on_disk(&mut self) -> Option<&mut OnDisk> {
        match &mut self.stage {
            Stage::Writing(on_disk) => Some(on_disk),
            Stage::Idle | Stage::InLine => None,
        }
    }
}

//! Reads of files into memory. A read is a stream whose peer is memory, so what holds for sends holds for reads, too:
//! readahead, the page cache, and the patience with disks. The disk reads into buffers of the queue, which are copied. So
//! nothing in the kernel refers to the caller's memory, and a cancelled read releases it at once.

use core::ops::Range;
use std::rc::Rc;

use outq::OutQ;
use ring::{Ring, Token};

use super::{Call, Calls, Full, InFlight, Outcome, Room, Stop, Turn, Work, owner};
use crate::failure::Failure;
use crate::file::File;
use crate::payload::{Piece, index};
use crate::policy::Policy;
use crate::stream::{Progress, Stream};
use crate::transport::{Drained, Takes, Transport};

/// A read in flight.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) stream: Stream,
    room: Room,
    /// True if it is among [`Calls::turns`].
    pub(super) is_queued: bool,
}

/// The memory of a read, as the peer of its stream: it accepts everything immediately.
#[derive(Debug)]
struct Memory<'a>(&'a mut [u8]);

impl Calls {
    /// Reads a range of a file into the front of `room`: [`Outcome::Read`]. Bytes that are in memory are read before
    /// this returns, as far as a turn goes. Caching and readahead are those of the policy, as in a send.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    ///
    /// # Panics
    ///
    /// If the range ends beyond the file's size, before it starts, or has more bytes than `room`.
    pub fn read_into(
        &mut self,
        file: &Rc<File>,
        range: Range<u64>,
        policy: Policy,
        room: Room,
        token: Token,
    ) -> Result<Call, Full<Room>> {
        assert!(range.start <= range.end && range.end - range.start <= room.bytes().len() as u64);
        if !self.has_room() {
            return Err(Full(room));
        }
        let mut stream = Stream::new();
        stream.push_file(file, range, policy);
        let read = Read { stream, room, is_queued: false };
        let call = self.begin(token, Work::Read(Box::new(read)));
        self.pump_read(call);
        Ok(call)
    }

    /// Reads what can be read now.
    pub(super) fn pump_read(&mut self, call: Call) {
        let Some(InFlight { work: Work::Read(read), .. }) = self.calls.get_mut(call.0) else {
            return;
        };
        let Read { stream, room, is_queued } = &mut **read;
        let mut memory = Memory(room.bytes_mut());
        match stream.pump(&mut self.ring, &mut self.disk, &mut memory, owner(call)) {
            // The memory never blocks, and releases what it has taken.
            Progress::Blocked | Progress::Waiting => {}
            Progress::More => {
                if !core::mem::replace(is_queued, true) {
                    self.turns.push_back(Turn::Read(call));
                }
            }
            Progress::Drained => self.end_read(call, Ok(())),
            Progress::Failed(failure) => self.end_read(call, Err(Stop::Failed(failure))),
        }
    }

    pub(super) fn end_read(&mut self, call: Call, end: Result<(), Stop>) {
        let Some(InFlight { token, work: Work::Read(read) }) = self.calls.remove(call.0) else {
            unreachable!("only reads end here")
        };
        self.disk.leave_line(owner(call).connection);
        let Read { stream, room, .. } = *read;
        let bytes = usize::try_from(stream.sent()).expect("at most the room");
        self.complete(call, token, Outcome::Read { room, bytes, end }, false);
    }
}

impl Transport for Memory<'_> {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, _ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        let mut taken = 0;
        for chunk in queue.next_ready() {
            let len = chunk.len().min(*budget - taken);
            let bytes = &chunk.payload.bytes()[index(chunk.range.start)..][..index(len)];
            self.0[index(chunk.at)..][..bytes.len()].copy_from_slice(bytes);
            taken += len;
            if taken == *budget {
                break;
            }
        }
        *budget -= taken;
        queue.mark_sent(taken);
        queue.mark_released(taken);
        if queue.unsent_ready() > 0 { Drained::TurnOver } else { Drained::Empty }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        Ok(bytes)
    }

    fn handle_writable(&mut self) {}

    fn is_blocked(&self) -> bool {
        false
    }

    fn acknowledged(&self, _ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        queue.sent().cast_signed()
    }

    fn set_receiving(&mut self, _ring: &mut Ring, _on: bool) {}

    fn handle_receive_stopped(&mut self) {}

    fn handle_end(&mut self) {}

    fn has_ended(&self) -> bool {
        false
    }

    fn shutdown(&mut self, _ring: &mut Ring) {}

    fn close(&mut self, _ring: &mut Ring) {}
}

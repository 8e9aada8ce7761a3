//! Frames on their way to the transport: which lane sends next, and how much.

use http2::ErrorCode;
use http2::server::Connection;
use outq::State;
use ring::{Ring, Time};
use sendfile::{Disk, Drained, Failure, Owner, Progress, TURN_BYTES_OF_MEMORY, Transport};

use super::lane::{Lane, Pause, Stage};
use super::share::Fill;
use super::work::{BATCH_BYTES, FRAME_BYTES_MAX, Work, push_ready};
use super::{Http2, clock};
use crate::record::Cut;
use crate::session::{PRODUCED_BYTES_MAX, Pump};

/// The least bytes that a producer is asked for, also if the client receives fewer.
const PRODUCED_BYTES_MIN: u64 = 4 * 1024;

/// The result of a lane's turn.
enum Served {
    /// It has framed something, and may have more.
    More,
    /// It is not ready.
    Paused(Pause),
    /// Its last frame was written.
    Ended,
    /// Its response cannot be completed.
    Failed(Failure),
}

impl Work {
    /// Makes lanes ready that wait for the window of the connection.
    pub(super) fn note_room(&mut self) {
        for lane in &self.lanes {
            if lane.pause == Pause::Window {
                self.scheduler.set_ready(lane.id, true);
            }
        }
    }

    /// Lets paced lanes go on.
    pub(super) fn refill_pace(&mut self, now: Time) {
        if let Some(pace) = &mut self.pace {
            pace.refill(now);
        }
        for lane in &self.lanes {
            if lane.pause == Pause::Rate {
                self.scheduler.set_ready(lane.id, true);
            }
        }
    }
}

impl Pump<Http2> for Work {
    fn pump(
        &mut self,
        session: &mut Http2,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
        spent: u64,
    ) -> Progress {
        // A transport that sends whole segments may exceed its budget.
        // Frames are made in memory.
        let mut budget = TURN_BYTES_OF_MEMORY.saturating_sub(spent);
        let progress = loop {
            if transport.is_blocked() {
                break Progress::Blocked;
            }
            session.write_frames(self, ring, disk, connection, budget);
            let before = (budget, self.queue.released());
            match transport.drain(ring, &mut self.queue, &mut budget) {
                Drained::Empty if budget == 0 => break Progress::More,
                Drained::Empty if (budget, self.queue.released()) != before => {}
                Drained::Empty if !self.queue.is_drained() => break Progress::Blocked,
                Drained::Empty if self.queue.released() != self.queue.sent() => {
                    break Progress::Blocked;
                }
                Drained::Empty if self.lanes.is_empty() => break Progress::Drained,
                Drained::Empty => break Progress::Waiting,
                Drained::Blocked => break Progress::Blocked,
                Drained::TurnOver => break Progress::More,
                Drained::Refused => {}
                Drained::Failed(failure) => return Progress::Failed(failure),
            }
        };
        if progress == Progress::Blocked && transport.is_blocked() {
            self.free_buffers();
        }
        progress
    }
}

impl Http2 {
    /// Writes control frames, and frames of lanes up to a batch.
    fn write_frames(
        &mut self,
        work: &mut Work,
        ring: &mut Ring,
        disk: &mut Disk,
        connection: u64,
        budget: u64,
    ) {
        self.write_control(work);
        work.share_room(&self.connection, ring.woke_at());
        let most = BATCH_BYTES.min(budget);
        while work.unsent() < most {
            let Some(id) = work.scheduler.next_stream() else {
                // Memory may have become free since, or be with lanes that may not send: nothing else would look.
                if work.share_room(&self.connection, ring.woke_at()) {
                    continue;
                }
                break;
            };
            let owner = Owner { connection, lane: id };
            match self.serve(work, ring, disk, owner) {
                Served::More => work.scheduler.served(id),
                Served::Paused(pause) => {
                    work.scheduler.set_ready(id, false);
                    if let Some(lane) = work.lane(id) {
                        lane.pause = pause;
                    }
                }
                Served::Ended => {
                    work.scheduler.remove(id);
                    if let Some(lane) = work.remove(id) {
                        self.give_back(&lane, ring.woke_at());
                        self.connection.discard(id, clock(ring.woke_at()));
                        if let Stage::Sending(mut sending) = lane.stage {
                            if let Some(record) = &mut sending.record {
                                record.body_bytes = sending.framed;
                            }
                            work.end_response(sending.record);
                        }
                    }
                    continue;
                }
                Served::Failed(failure) => {
                    let is_tunnel = work.lane(id).is_some_and(|lane| lane.is_tunnel());
                    let code = if is_tunnel { ErrorCode::Connect } else { ErrorCode::Internal };
                    self.connection.reset(id, code);
                    self.write_control(work);
                    work.failures.push(failure);
                    self.drop_lane(work, ring.woke_at(), id, Cut::of(failure));
                    continue;
                }
            }
            work.recount(id);
        }
        work.flush();
    }

    /// Writes control frames. They come before frames that are written later, because those may follow from them: the first
    /// frame of a server has its settings.
    #[inline]
    pub(super) fn write_control(&mut self, work: &mut Work) {
        if !self.connection.control().is_empty() {
            let control = core::mem::take(self.connection.control());
            if work.out.is_empty() {
                work.out = control;
            } else {
                work.out.extend_from_slice(&control);
            }
        }
    }

    /// Gives a lane its turn: one frame.
    fn serve(&mut self, work: &mut Work, ring: &mut Ring, disk: &mut Disk, owner: Owner) -> Served {
        let id = owner.lane;
        let Ok(place) = work.find(id) else { return Served::Ended };
        let lanes = work.lanes.len();
        let Work { pace, lanes: all, .. } = work;
        let lane = &mut *all[place];
        let window = u64::from(self.connection.data_room(id));
        let Lane { stage: Stage::Sending(sending), stream, .. } = lane else {
            return Served::Paused(Pause::No);
        };
        let mut room = window.min(FRAME_BYTES_MAX);
        if lane.is_paced
            && let Some(pace) = pace.as_mut()
        {
            room = room.min(pace.room());
            if room == 0 && window > 0 {
                pace.want();
                stream.settle(disk, owner, true);
                return Served::Paused(Pause::Rate);
            }
        }
        // A part without bytes is no reason to wait for a window.
        while stream.queue().is_drained() && !sending.is_promised() {
            if window == 0 && sending.producer.is_some() {
                return Served::Paused(Pause::Window);
            }
            let most = window.clamp(PRODUCED_BYTES_MIN, PRODUCED_BYTES_MAX);
            if !sending.promise(stream, most, window, lanes) {
                return Served::Paused(Pause::Producer);
            }
        }
        if window == 0 && !stream.queue().is_drained() {
            // Others may need the memory of what was read.
            stream.settle(disk, owner, true);
            return Served::Paused(Pause::Window);
        }
        let was_paused = core::mem::replace(&mut lane.pause, Pause::No);
        if let Pause::Disk(since) = was_paused
            && let Some(record) = &mut sending.record
        {
            record.disk_wait += ring.woke_at().since(since);
        }
        if stream.queue().state() == State::Waiting {
            stream.settle(disk, owner, false);
            let fill = match was_paused {
                Pause::Memory => Fill::Read,
                _ => Fill::Next { frame: room },
            };
            if work.fill(&self.connection, ring, disk, owner, fill) {
                work.lanes[place].stream.settle(disk, owner, true);
                return Served::Paused(Pause::Memory);
            }
        }
        self.frame(work, ring, disk, owner, room)
    }

    /// Puts the ready bytes of a lane into a frame, at most `room` bytes.
    fn frame(
        &mut self,
        work: &mut Work,
        ring: &mut Ring,
        disk: &mut Disk,
        owner: Owner,
        room: u64,
    ) -> Served {
        let id = owner.lane;
        let Ok(place) = work.find(id) else { return Served::Ended };
        let Work { out, queue, moved, pace, lanes, .. } = work;
        let lane = &mut *lanes[place];
        let Lane { stage: Stage::Sending(sending), stream, .. } = lane else {
            return Served::Paused(Pause::No);
        };
        match stream.queue().state() {
            State::Ready => {}
            State::Waiting => return Served::Paused(Pause::Disk(ring.woke_at())),
            State::Failed => return Served::Failed(stream.failure().unwrap_or(Failure::Gone)),
            State::Drained => return end(&mut self.connection, id, sending, out),
        }
        let count = stream.queue().unsent_ready().min(room);
        // The bytes in front of a failure are no end of the body: the client must not take them for the whole.
        let is_all = stream.queue().sent() + count == stream.promised()
            && stream.queue().failed_at().is_none()
            && sending.is_promised();
        let is_last = is_all && sending.trailers.as_bytes().is_empty();
        let length = u32::try_from(count).unwrap_or(u32::MAX);
        let Some(head) = self.connection.data_head(id, length, is_last) else {
            return Served::Failed(Failure::Gone);
        };
        out.extend_from_slice(&head);
        push_ready(stream.queue(), count, out, queue);
        stream.settle(disk, owner, false);
        sending.framed += count;
        lane.moved += count;
        *moved += count;
        if lane.is_paced
            && let Some(pace) = pace.as_mut()
        {
            pace.spend(count);
        }
        if is_last {
            self.connection.finish(id);
            return Served::Ended;
        }
        if is_all {
            return end(&mut self.connection, id, sending, out);
        }
        // The next ranges are read meanwhile, unless others wait for room.
        if stream.reads_ahead() && !work.wants_room() {
            work.fill(&self.connection, ring, disk, owner, Fill::Ahead);
        }
        Served::More
    }
}

/// Ends a body after its last byte: by its trailers, or by a frame without content.
fn end(
    connection: &mut Connection,
    id: u32,
    sending: &super::lane::Sending,
    out: &mut Vec<u8>,
) -> Served {
    if !sending.trailers.as_bytes().is_empty() {
        connection.end_with_trailers(id, &sending.trailers, out);
    } else if let Some(head) = connection.data_head(id, 0, true) {
        out.extend_from_slice(&head);
        connection.finish(id);
    }
    Served::Ended
}

//! Sending segments: the data of the application's queue, acknowledgements, resets.

use outq::{Memory, OutQ};

use super::clock::milliseconds;
use super::connection::{Connection, Marks};
use super::flight::{Kind, Offer, SendStep};
use super::shared::Context;
use super::{Endpoints, TcpState};
use crate::seq::SeqNumber;
use crate::time::Time;
use crate::transmit::{Full, Limits};
use crate::wire::Ecn;
use crate::wire::tcp::{Flags, Header, Options};

/// The path of segments to the interface, which adds the IP header and the link header.
pub trait Emit {
    /// The limits and offloads of the interface.
    fn limits(&self) -> Limits;

    /// Sends one or several segments to a next hop: a payload of more than `segment_bytes` is cut.
    ///
    /// # Errors
    ///
    /// If the interface has no room. The segment is not sent.
    fn tcp(
        &mut self,
        endpoints: &Endpoints,
        neighbour: u16,
        header: &Header,
        parts: &[&[u8]],
        segment_bytes: Option<u16>,
        ecn: Ecn,
    ) -> Result<(), Full>;
}

/// The reason why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All ready bytes of the queue were sent, with a due FIN.
    Empty,
    /// The peer's window, the congestion window or pacing allows no more bytes now. The connection will report
    /// room.
    Blocked,
    /// The budget is spent, and more bytes are ready.
    TurnOver,
}

/// The maximum parts of a frame. A frame of many small payloads is shorter because of this limit.
const PARTS_MAX: usize = 16;

impl Connection {
    /// Sends the bytes that the windows allow, lost bytes first, and subtracts the sent bytes from `budget`. The
    /// drain may exceed the budget by less than a segment. First the queue releases the acknowledged bytes.
    ///
    /// `queue` must be the queue of the last drain. After all sent bytes are released, it may be another queue, at
    /// any position.
    ///
    /// # Errors
    ///
    /// If the interface has no room. Drain again when the interface has room.
    ///
    /// # Panics
    ///
    /// If `queue` is another queue while bytes are in flight.
    pub fn drain<P: Memory>(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        queue: &mut OutQ<P>,
        budget: &mut u64,
        out: &mut impl Emit,
    ) -> Result<Drained, Full> {
        self.release_acknowledged(queue);
        let drained = self.send_all(now, cx, queue, budget, out);
        self.marks.set(Marks::UNSENT, queue.sent() < queue.promised());
        if drained == Ok(Drained::Empty) {
            self.end_sending(cx);
        }
        drained
    }

    /// Sends until there is nothing to send, or a limit is reached.
    fn send_all<P: Memory>(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        queue: &mut OutQ<P>,
        budget: &mut u64,
        out: &mut impl Emit,
    ) -> Result<Drained, Full> {
        let cut_bytes_max = out.limits().cut_bytes_max;
        loop {
            let window_end = self.window_end();
            let data = unsent(queue);
            // If only the FIN is outside of the window, the window is not too small for the data before it.
            let fin = self.is_fin_due(queue)
                && (data == 0 || (self.snd_nxt + data).is_before(window_end));
            let new_bytes = data + u32::from(fin);
            if self.sending.is_none() {
                if new_bytes == 0 {
                    return Ok(Drained::Empty);
                }
                self.begin_sending(now, cx);
            }
            let Some(sending) = &mut self.sending else { unreachable!("begun above") };
            if sending.lengthen_at <= now {
                self.lengthen();
                continue;
            }
            let offer = Offer {
                new_bytes,
                window_end,
                window_max: self.snd_wnd_max,
                has_waited: sending.persist.has_waited(),
                cut_bytes_max,
            };
            match sending.flight.next(now, &offer) {
                SendStep::Send { .. } if *budget == 0 => return Ok(Drained::TurnOver),
                SendStep::Send { from, bytes, kind, cwr } => {
                    let bytes = self.within(*budget, bytes);
                    let sent = self.send(now, cx, queue, from, bytes, kind, cwr, out)?;
                    *budget = budget.saturating_sub(sent.into());
                    if kind == Kind::New && unsent(queue) == 0 && !self.is_fin_due(queue) {
                        // New bytes come last, so the flight need not be asked again.
                        return Ok(Drained::Empty);
                    }
                }
                next @ (SendStep::WaitUntil(_) | SendStep::Blocked) => {
                    let is_empty = new_bytes == 0;
                    if next == SendStep::Blocked && !is_empty && sending.flight.is_empty() {
                        // The peer's window is the only possible reason.
                        let srtt = sending.flight.status().srtt;
                        if window_end.is_after(self.snd_nxt) {
                            sending.persist.wait_for_more(now, srtt);
                        } else {
                            sending.persist.wait(now, srtt);
                        }
                    } else {
                        sending.persist.stop();
                    }
                    return Ok(if is_empty { Drained::Empty } else { Drained::Blocked });
                }
            }
        }
    }

    /// Releases the acknowledged bytes of the queue.
    fn release_acknowledged<P: Memory>(&mut self, queue: &mut OutQ<P>) {
        let in_queue = queue.sent() - queue.released();
        let data_nxt = self.data_nxt();
        assert!(
            in_queue == u64::from(data_nxt - self.released),
            "netstack: {in_queue} bytes in flight in a queue that is not this connection's"
        );
        let acknowledged = self.snd_una.earlier(data_nxt);
        if acknowledged != self.released {
            queue.mark_released((acknowledged - self.released).into());
            self.released = acknowledged;
        }
    }

    /// True if a FIN follows the ready bytes.
    fn is_fin_due<P: Memory>(&self, queue: &OutQ<P>) -> bool {
        self.marks.has(Marks::SHUTDOWN)
            && !self.state.is_shut_down()
            && queue.ready() == queue.promised()
            && queue.failed_at().is_none()
    }

    /// The part of `bytes` that the budget allows, in whole segments, at least one segment.
    fn within(&self, budget: u64, bytes: u32) -> u32 {
        let mss = u32::from(self.mss_in_use());
        match u32::try_from(budget) {
            Ok(budget) if budget < bytes => (budget / mss * mss).max(bytes.min(mss)),
            _ => bytes,
        }
    }

    /// Sends a frame with bytes of the stream, and the FIN if it follows them. Returns the number of bytes.
    fn send<P: Memory>(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        queue: &mut OutQ<P>,
        from: SeqNumber,
        bytes: u32,
        kind: Kind,
        cwr: bool,
        out: &mut impl Emit,
    ) -> Result<u32, Full> {
        let is_new = from == self.snd_nxt;
        let fin_due = is_new && self.is_fin_due(queue);
        let mss = self.mss_in_use();
        let mut parts = [&[][..]; PARTS_MAX];
        let gathered = if is_new {
            gather(queue.next_ready(), bytes, mss, &mut parts)
        } else {
            let at = queue.released() + u64::from(from - self.released);
            gather(queue.in_flight(at), bytes, mss, &mut parts)
        };
        let end = from + gathered.bytes;
        let is_last = if is_new {
            u64::from(gathered.bytes) == queue.unsent_ready()
        } else {
            end == self.data_nxt() && queue.unsent_ready() == 0
        };
        // The last segment carries a new FIN if the peer's window has room for it.
        let is_fin_wanted = bytes > gathered.bytes || (is_new && end.is_before(self.window_end()));
        let fin = is_last && is_fin_wanted && (fin_due || (!is_new && self.state.is_shut_down()));
        let (header, edge) = self.header(now, cx, from);
        let flags = Flags { fin, psh: is_last && gathered.bytes > 0, cwr, ..header.flags };
        let header = Header { flags, ..header };
        let segment_bytes = (gathered.bytes > mss.into()).then_some(mss);
        // RFC 3168, 6.1.5: retransmissions carry no mark.
        let marks = self.marks.has(Marks::ECN) && kind == Kind::New && gathered.bytes > 0;
        let ecn = if marks { Ecn::Ect0 } else { Ecn::NotEct };
        let endpoints = self.endpoints(cx.config);
        out.tcp(&endpoints, self.neighbour, &header, &parts[..gathered.parts], segment_bytes, ecn)?;

        self.note_ack_sent(edge);
        if !self.held.as_ref().is_some_and(|held| held.has_blocks()) {
            // Data segments carry no selective acknowledgements, because whole segments have no room for them.
            self.ack_at = Time::MAX;
        }
        count(cx, kind);
        if is_new {
            queue.mark_sent(gathered.bytes.into());
            self.snd_nxt = end + u32::from(fin);
            if fin {
                let next = match self.state {
                    TcpState::CloseWait => TcpState::LastAck,
                    _ => TcpState::FinWait1,
                };
                self.set_state(cx.shared, next);
            }
        }
        if let Some(sending) = &mut self.sending {
            sending.persist.stop();
            sending.flight.sent(now, from, gathered.bytes + u32::from(fin), kind);
        }
        Ok(gathered.bytes)
    }

    /// True if [`acknowledge`](Self::acknowledge) has to send an acknowledgement now.
    #[must_use]
    pub fn is_ack_due(&self, now: Time) -> bool {
        self.ack_at <= now
    }

    /// Sends an acknowledgement that no data has carried.
    ///
    /// # Errors
    ///
    /// If the interface has no room. The acknowledgement remains due.
    pub fn acknowledge(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        out: &mut impl Emit,
    ) -> Result<(), Full> {
        // A probe repeats the number in front of the next, so that the peer answers (RFC 9293, 3.8.4).
        let probe = u32::from(self.marks.has(Marks::PROBE));
        let (mut header, edge) =
            self.header(now, cx, SeqNumber(self.snd_nxt.0.wrapping_sub(probe)));
        if let (true, Some(held)) = (self.marks.has(Marks::SACK), &self.held) {
            header.options.sack = held.blocks();
        }
        out.tcp(&self.endpoints(cx.config), self.neighbour, &header, &[], None, Ecn::NotEct)?;
        cx.shared.counters.acks_sent += 1;
        self.marks.set(Marks::PROBE, false);
        self.note_ack_sent(edge);
        self.ack_at = Time::MAX;
        if let Some(held) = &mut self.held {
            held.forget_duplicate();
            self.drop_held_if_empty();
        }
        Ok(())
    }

    /// Sends a reset; the connection is gone afterwards. If the interface has no room, the peer gets the reset in
    /// reply to its next segment.
    pub fn reset(&self, now: Time, cx: &mut Context<'_>, out: &mut impl Emit) {
        let (header, _) = self.header(now, cx, self.snd_nxt);
        let flags = Flags { rst: true, ..Flags::NONE };
        let header = Header { flags, window: 0, ..header };
        if out
            .tcp(&self.endpoints(cx.config), self.neighbour, &header, &[], None, Ecn::NotEct)
            .is_ok()
        {
            cx.shared.counters.resets_sent += 1;
        }
    }

    /// The header of a segment without flags, and the end of the window that it announces.
    #[inline]
    fn header(&self, now: Time, cx: &Context<'_>, seq: SeqNumber) -> (Header, SeqNumber) {
        let edge = self.next_edge(cx.config);
        // The window is rounded up, because it must not shrink when its last bits are shifted out.
        let shift = self.rcv_wind_shift;
        let window = ((edge - self.rcv_nxt) + ((1 << shift) - 1)) >> shift;
        let window = u16::try_from(window).unwrap_or(u16::MAX);
        let mut options = Options::default();
        if self.marks.has(Marks::TIMESTAMPS) {
            let value = milliseconds(now).wrapping_add(self.ts_offset);
            options.timestamps = Some((value, self.ts_recent));
        }
        let header = Header {
            source: self.local_port,
            destination: self.peer_port,
            seq,
            ack: Some(self.rcv_nxt),
            flags: Flags { ece: self.marks.has(Marks::ECHO), ..Flags::NONE },
            window,
            options,
        };
        (header, self.rcv_edge.later(self.rcv_nxt + (u32::from(window) << shift)))
    }

    fn note_ack_sent(&mut self, edge: SeqNumber) {
        self.last_ack_sent = self.rcv_nxt;
        self.rcv_edge = edge;
    }
}

/// Ready unsent bytes, at most `u32::MAX`. No connection has so many bytes in flight that the limit matters.
fn unsent<P: Memory>(queue: &OutQ<P>) -> u32 {
    u32::try_from(queue.unsent_ready()).unwrap_or(u32::MAX).min(1 << 30)
}

/// The first parts of a list of parts.
struct Gathered {
    parts: usize,
    bytes: u32,
}

/// Collects parts up to a number of bytes. If there are too many parts, the frame ends at a whole segment if it
/// contains one.
fn gather<'a, P: Memory + 'a>(
    chunks: impl Iterator<Item = outq::Chunk<'a, P>>,
    bytes_max: u32,
    mss: u16,
    parts: &mut [&'a [u8]; PARTS_MAX],
) -> Gathered {
    let mut gathered = Gathered { parts: 0, bytes: 0 };
    let mut left = bytes_max as usize;
    let mut is_cut_short = false;
    for chunk in chunks {
        if left == 0 {
            break;
        }
        let Some(part) = parts.get_mut(gathered.parts) else {
            is_cut_short = true;
            break;
        };
        let (begin, end) = (index(chunk.range.start), index(chunk.range.end));
        let bytes = &chunk.payload.bytes()[begin..end];
        *part = &bytes[..bytes.len().min(left)];
        left -= part.len();
        gathered.parts += 1;
    }
    let mut bytes = bytes_max as usize - left;
    if is_cut_short {
        let mut excess = if bytes > mss.into() { bytes % usize::from(mss) } else { 0 };
        bytes -= excess;
        while excess > 0 {
            let last = &mut parts[gathered.parts - 1];
            let kept = last.len().saturating_sub(excess);
            excess -= last.len() - kept;
            *last = &last[..kept];
            gathered.parts -= usize::from(kept == 0);
        }
    }
    gathered.bytes = u32::try_from(bytes).expect("at most `bytes_max`");
    gathered
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("a position in memory")
}

fn count(cx: &mut Context<'_>, kind: Kind) {
    let counters = &mut cx.shared.counters;
    match kind {
        Kind::New => {}
        Kind::Fast => counters.retransmitted_fast += 1,
        Kind::Timeout => counters.retransmitted_timeout += 1,
        Kind::Probe => counters.probes_sent += 1,
    }
}

#[cfg(test)]
mod tests;

//! A connection from ESTABLISHED to LAST-ACK (RFC 9293, 3.3.2): its state, and the operations on it.
//!
//! `input.rs` handles segments, `output.rs` sends them, `receive.rs` handles the bytes and the FIN of a segment.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ops::Range;
use core::time::Duration;

use super::clock::{milliseconds, seconds};
use super::flight::{Path, Saved, TimerOutcome};
use super::held::Held;
use super::path_mtu::{Believed, Doubted};
use super::shared::{Context, Sending, Shared};
use super::{Endpoints, Handshake, Lost, TcpState, Timestamps};
use crate::config::Config;
use crate::seq::SeqNumber;
use crate::time::Time;

/// A connection.
///
/// The caller passes on events (`handle_…`) and carries out the [`Outcome`], in the order of its fields. At the end
/// of a batch the caller calls [`acknowledge`](Self::acknowledge) if [`is_ack_due`](Self::is_ack_due), and arms a
/// timer for the [`deadline`](Self::deadline). Before a connection is removed, the caller [releases](Self::release)
/// it.
///
/// The state of data in motion is in two boxes, so that an idle connection is small. `Sending` is for data that was
/// sent and not acknowledged. `Held` is for received data that waits for the application.
#[derive(Debug)]
pub struct Connection {
    /// `Some` while data is in flight, or waits for the peer's window or the congestion window.
    pub(super) sending: Option<Box<Sending>>,
    /// `Some` while received bytes are held, or a duplicate has to be reported.
    pub(super) held: Option<Box<Held>>,
    /// The time at which an acknowledgement leaves if no data carries it; [`Time::MAX`] if none is due.
    pub(super) ack_at: Time,

    /// The oldest unacknowledged sequence number.
    pub(super) snd_una: SeqNumber,
    /// The sequence number of the next new byte.
    pub(super) snd_nxt: SeqNumber,
    /// The sequence number of the first byte that the application's queue still holds: the byte at
    /// `OutQ::released`. At most `snd_una`; a drain moves it to `snd_una`.
    pub(super) released: SeqNumber,
    /// The window that the peer announced last, scaled.
    pub(super) snd_wnd: u32,
    /// The largest window that the peer has announced.
    pub(super) snd_wnd_max: u32,
    /// The sequence number of the segment that announced `snd_wnd`. `SND.WL2` is not needed: it is never after
    /// `snd_una`, and no acknowledgement before `snd_una` updates the window.
    pub(super) snd_wl1: SeqNumber,

    /// The next expected sequence number.
    pub(super) rcv_nxt: SeqNumber,
    /// The end of the announced window: `RCV.NXT + RCV.WND`. It never goes back.
    pub(super) rcv_edge: SeqNumber,
    /// The last sent acknowledgement: `Last.ACK.sent` of RFC 7323, 4.3.
    pub(super) last_ack_sent: SeqNumber,
    /// `TS.Recent` of RFC 7323.
    pub(super) ts_recent: u32,
    /// The offset of timestamps from the milliseconds of the stack's clock.
    pub(super) ts_offset: u32,
    /// The second of the stack's clock in which the last acceptable segment came.
    pub(super) heard_s: u32,

    saved: Saved,

    peer: Ipv6Addr,
    pub(super) peer_port: u16,
    pub(super) local_port: u16,
    /// The index of our address in `Config::addresses`.
    local: u16,
    /// The index of the next hop.
    pub(super) neighbour: u16,
    /// Bytes of payload in the longest segment that both ends accept, without options (RFC 6691). The flight knows the
    /// limit of the path.
    pub(super) mss: u16,
    pub(super) marks: Marks,
    pub(super) state: TcpState,
    pub(super) snd_wind_shift: u8,
    pub(super) rcv_wind_shift: u8,
    /// The number of further segments that are acknowledged at once because the connection is young.
    pub(super) quick_acks: u8,
    /// The second of the last challenge (its lowest 8 bits), and the number of challenges in this second.
    pub(super) challenges: (u8, u8),
    keepalive_probes: u8,
}

// A stack holds a million connections. Each needs 12 bytes more for its slot and its table entry.
const _: () = assert!(size_of::<Connection>() == 128);

/// Boolean facts of a connection, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks(u16);

impl Marks {
    /// Selective acknowledgements were agreed on (RFC 2018).
    pub(super) const SACK: Self = Self(1);
    /// Timestamps were agreed on (RFC 7323).
    pub(super) const TIMESTAMPS: Self = Self(1 << 1);
    /// Marks of congestion were agreed on (RFC 3168).
    pub(super) const ECN: Self = Self(1 << 2);
    /// A congestion mark came, and the peer has not confirmed its echo yet (RFC 3168, 6.1.3).
    pub(super) const ECHO: Self = Self(1 << 3);
    /// The application receives bytes.
    pub(super) const RECEIVING: Self = Self(1 << 4);
    /// The application wants a FIN after the queued bytes.
    pub(super) const SHUTDOWN: Self = Self(1 << 5);
    /// The peer's FIN has come, and was not reported to the application yet.
    pub(super) const END_UNTOLD: Self = Self(1 << 6);
    /// The application has closed the connection.
    pub(super) const ORPHAN: Self = Self(1 << 7);
    /// The last drain left bytes unsent.
    pub(super) const UNSENT: Self = Self(1 << 8);
    /// The next acknowledgement is a keepalive probe.
    pub(super) const PROBE: Self = Self(1 << 9);
    /// The network has reported that the peer cannot be reached, and no byte was acknowledged since.
    pub(super) const UNREACHABLE: Self = Self(1 << 10);
    /// The peer has acknowledged the bytes of a longest segment in one acknowledgement, so the path carries such
    /// segments. Several small segments in one acknowledgement count, too: then a true report of a smaller path MTU
    /// waits for a timeout.
    pub(super) const WHOLE_ARRIVED: Self = Self(1 << 11);

    const NONE: Self = Self(0);

    pub(super) const fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }

    pub(super) const fn set(&mut self, mark: Self, on: bool) {
        if on {
            self.0 |= mark.0;
        } else {
            self.0 &= !mark.0;
        }
    }
}

/// The outcome of a step. The caller reports the fields to the application in order, unless the connection [is an
/// orphan](Connection::is_orphan).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The range of the segment's payload that continues the stream.
    pub received: Range<usize>,
    /// True if held bytes follow: call [`Connection::receive`].
    pub more: bool,
    /// The peer has acknowledged bytes: drain, because there may be room, too.
    pub acknowledged: bool,
    /// Bytes may be sent, or must be retransmitted: drain.
    pub room: bool,
    /// The peer has ended its side.
    pub ended: bool,
    /// The fate of the connection.
    pub fate: Fate,
}

/// The fate of a connection after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The connection continues.
    #[default]
    Keep,
    /// Both sides have ended: [acknowledge](Connection::acknowledge), then move the connection to the TIME-WAIT
    /// table.
    TimeWait,
    /// Both sides have ended, and the peer is in TIME-WAIT: the connection is gone.
    Closed,
    /// The caller has to [reset](Connection::reset) the connection; then it is gone.
    Reset,
    /// The connection is lost, for a reason outside of the application.
    Lost(Lost),
}

impl Outcome {
    pub(super) fn of(fate: Fate) -> Self {
        Self { fate, ..Self::default() }
    }
}

/// The number of window probes before silence counts, because the first probes follow each other fast.
const PROBES_UNANSWERED_MIN: u32 = 3;

/// The maximum number of window probes of an orphan (Linux: `tcp_orphan_retries`).
const ORPHAN_PROBES_MAX: u32 = 8;

/// Segments of a young connection that are acknowledged at once: the peer's slow start needs each acknowledgement.
/// The number is Linux's (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u8 = 16;

impl Connection {
    /// The connection of a completed handshake, through an interface that accepts IP packets of `mtu` bytes.
    ///
    /// # Panics
    ///
    /// If the local address is not in `config.addresses`.
    #[must_use]
    pub fn new(handshake: &Handshake, mtu: u16, now: Time, config: &Config) -> Self {
        let Handshake { endpoints: Endpoints { local, peer }, iss, irs, snd_wnd, .. } = *handshake;
        let index = config.addresses.iter().position(|address| address.ip == local.ip());
        let index = index.and_then(|index| u16::try_from(index).ok());
        let mss = mss(handshake, mtu);
        let mut marks = Marks::NONE;
        marks.set(Marks::SACK, handshake.sack);
        marks.set(Marks::TIMESTAMPS, handshake.timestamps.is_some());
        marks.set(Marks::ECN, handshake.ecn);
        marks.set(Marks::RECEIVING, true);
        let Timestamps { recent, offset } =
            handshake.timestamps.unwrap_or(Timestamps { recent: 0, offset: 0 });
        Self {
            sending: None,
            held: None,
            ack_at: Time::MAX,
            snd_una: iss + 1,
            snd_nxt: iss + 1,
            released: iss + 1,
            snd_wnd,
            snd_wnd_max: snd_wnd,
            snd_wl1: irs + 1,
            rcv_nxt: irs + 1,
            // The window of a SYN is not scaled.
            rcv_edge: irs + 1 + config.receive_bytes_max.min(0xffff),
            last_ack_sent: irs + 1,
            ts_recent: recent,
            ts_offset: offset,
            heard_s: seconds(now),
            saved: Saved::new(now, handshake.rtt, u32::from(mss)),
            peer: mapped(peer.ip()),
            peer_port: peer.port(),
            local_port: local.port(),
            local: index.expect("a served address"),
            neighbour: handshake.neighbour,
            mss,
            marks,
            state: TcpState::Established,
            snd_wind_shift: handshake.snd_wind_shift,
            rcv_wind_shift: handshake.rcv_wind_shift,
            quick_acks: QUICK_ACKS,
            challenges: (0, 0),
            keepalive_probes: 0,
        }
    }

    /// Handles a due timer: call it at the [deadline](Self::deadline) or later.
    pub fn handle_timer(&mut self, now: Time, cx: &mut Context<'_>) -> Outcome {
        let window_end = self.window_end();
        let Some(sending) = &mut self.sending else {
            let is_due = self.idle_deadline(cx.config).is_some_and(|at| at <= now);
            return if is_due { self.handle_idle(cx) } else { Outcome::default() };
        };
        match sending.flight.handle_timer(now, window_end) {
            TimerOutcome::TimedOut => self.time_out(cx),
            TimerOutcome::Room if sending.flight.has_timed_out() && sending.doubted.is_some() => {
                // The doubted segment has not arrived, so it was too long.
                let mtu = sending.doubted.map_or(u16::MAX, |doubted| doubted.mtu);
                self.shorten(now, cx, mtu)
            }
            TimerOutcome::Room => Outcome { room: true, ..Outcome::default() },
            TimerOutcome::Nothing => {
                let srtt = sending.flight.status().srtt;
                match sending.persist.take_due(now, srtt) {
                    Some(_) if window_end.is_after(self.snd_nxt) => {
                        sending.persist.use_small_window();
                        Outcome { room: true, ..Outcome::default() }
                    }
                    Some(probes) => self.handle_persist(now, cx, probes),
                    None => Outcome::default(),
                }
            }
        }
    }

    /// A peer that answers probes may keep its window closed as long as the application waits. No application waits
    /// for an orphan.
    fn handle_persist(&mut self, now: Time, cx: &mut Context<'_>, probes: u32) -> Outcome {
        let silence = Duration::from_secs(seconds(now).wrapping_sub(self.heard_s).into());
        if probes > PROBES_UNANSWERED_MIN && silence >= cx.config.patience {
            return self.time_out(cx);
        }
        if self.is_orphan() && probes > ORPHAN_PROBES_MAX {
            return Outcome::of(Fate::Reset);
        }
        self.marks.set(Marks::PROBE, true);
        self.acknowledge_now();
        Outcome::default()
    }

    fn time_out(&self, cx: &mut Context<'_>) -> Outcome {
        cx.shared.counters.timed_out += 1;
        let is_unreachable = self.marks.has(Marks::UNREACHABLE);
        Outcome::of(Fate::Lost(if is_unreachable { Lost::Unreachable } else { Lost::TimedOut }))
    }

    /// The time to call [`handle_timer`](Self::handle_timer) or, if an acknowledgement is due,
    /// [`acknowledge`](Self::acknowledge).
    #[must_use]
    pub fn deadline(&self, config: &Config) -> Option<Time> {
        let timer = match &self.sending {
            Some(sending) => {
                let at = sending.flight.deadline().unwrap_or(Time::MAX);
                Some(at.min(sending.persist.deadline().unwrap_or(Time::MAX)))
            }
            None => self.idle_deadline(config),
        };
        let at = self.ack_at.min(timer.unwrap_or(Time::MAX));
        (at < Time::MAX).then_some(at)
    }

    /// The time at which patience with a silent peer ends, while nothing is in flight.
    fn idle_deadline(&self, config: &Config) -> Option<Time> {
        let silence = match (self.state, config.keepalive) {
            // The application has closed the connection, so the stack limits the wait.
            (TcpState::FinWait2, _) if self.is_orphan() => config.fin_wait,
            (_, Some(keepalive)) => {
                keepalive.idle + keepalive.interval * u32::from(self.keepalive_probes)
            }
            (_, None) => return None,
        };
        Some(Time::from_nanos(0) + Duration::from_secs(self.heard_s.into()) + silence)
    }

    fn handle_idle(&mut self, cx: &mut Context<'_>) -> Outcome {
        match cx.config.keepalive {
            _ if self.state == TcpState::FinWait2 && self.is_orphan() => Outcome::of(Fate::Closed),
            Some(keepalive) if self.keepalive_probes < keepalive.probes => {
                self.keepalive_probes += 1;
                self.marks.set(Marks::PROBE, true);
                self.acknowledge_now();
                Outcome::default()
            }
            _ => self.time_out(cx),
        }
    }

    /// Records that the peer is alive.
    pub(super) fn hear(&mut self, now: Time) {
        self.heard_s = seconds(now);
        self.keepalive_probes = 0;
    }

    /// Handles a report that the path carries IP packets of at most `mtu` bytes. The report quotes a segment that
    /// began with `seq` (RFC 1191, 8201). A report about a segment that is not in flight is ignored. While whole
    /// segments arrive, the report is doubted (RFC 5927, 7.2).
    pub fn handle_path_mtu(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        seq: SeqNumber,
        mtu: u16,
    ) -> Outcome {
        let mss = self.mss_of(mtu);
        let Some(sending) = &mut self.sending else { return Outcome::default() };
        let is_in_flight = seq.is_within(self.snd_una, self.snd_nxt - self.snd_una);
        if !is_in_flight || u32::from(mss) >= sending.flight.mss() {
            return Outcome::default();
        }
        if self.marks.has(Marks::WHOLE_ARRIVED) {
            // The first segment that was too long is the first without an acknowledgement, so a report about a later
            // segment proves less.
            let is_first = sending.doubted.is_none_or(|known| !seq.is_after(known.seq));
            if is_first {
                sending.doubted = Some(Doubted { seq, mtu });
            }
            return Outcome::default();
        }
        let outcome = self.shorten(now, cx, mtu);
        if let Some(sending) = &mut self.sending {
            sending.believed =
                Some(Believed { seq, until: self.snd_nxt, at_ms: milliseconds(now) });
        }
        outcome
    }

    /// Sends shorter segments from now on, until the router's report is too old.
    fn shorten(&mut self, now: Time, cx: &mut Context<'_>, mtu: u16) -> Outcome {
        let mss = self.mss_of(mtu);
        let Some(sending) = &mut self.sending else { return Outcome::default() };
        (sending.doubted, sending.believed) = (None, None);
        sending.lengthen_at = cx.shared.path_mtus.lower(now, self.peer.to_canonical(), mtu);
        sending.flight.shrink_mss(mss.into());
        self.marks.set(Marks::WHOLE_ARRIVED, false);
        Outcome { room: true, ..Outcome::default() }
    }

    /// Drops a router's report that shortened the segments and that acknowledgements refute. As a rule such a
    /// report was forged.
    #[cold]
    pub(super) fn disbelieve(&mut self, now: Time, cx: &mut Context<'_>) {
        cx.shared.path_mtus.forget(now, self.peer.to_canonical());
        self.marks.set(Marks::WHOLE_ARRIVED, true);
        self.lengthen();
    }

    /// Returns to the longest segments that both ends accept, because the router's report is too old or false.
    #[cold]
    pub(super) fn lengthen(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.believed = None;
            sending.lengthen_at = Time::MAX;
            sending.flight.lengthen_mss(self.mss.into());
        }
    }

    /// Handles a report that the peer cannot be reached, about a segment that began with `seq`. The connection is
    /// not given up, because the path may recover (RFC 5927, 5.2).
    pub fn handle_unreachable(&mut self, seq: SeqNumber) {
        if seq.is_within(self.snd_una, self.snd_nxt - self.snd_una) {
            self.marks.set(Marks::UNREACHABLE, true);
        }
    }

    /// Ends this side: a FIN follows the queued bytes. Drain afterwards.
    pub const fn shutdown(&mut self) {
        self.marks.set(Marks::SHUTDOWN, true);
        // Until the drain the connection does not know the queued bytes. A close before the drain must not treat
        // them as sent.
        self.marks.set(Marks::UNSENT, true);
    }

    /// Closes the connection, which the application needs no more.
    ///
    /// If our side was [shut down](Self::shutdown), all bytes were sent and acknowledged, and all bytes of
    /// the peer were received, the connection ends in order. From now on the connection is an orphan: the stack
    /// alone drains it, with an empty queue. Otherwise the connection is reset, so that the peer cannot mistake a part
    /// of the stream for the whole (RFC 9293, 3.6.1; RFC 2525, 2.17).
    pub fn close(&mut self) -> Fate {
        let is_unacknowledged = self.snd_una.is_before(self.data_nxt());
        let is_complete = self.marks.has(Marks::SHUTDOWN)
            && !self.marks.has(Marks::UNSENT)
            && !is_unacknowledged
            && self.unread_bytes() == 0;
        if !is_complete {
            return Fate::Reset;
        }
        self.marks.set(Marks::ORPHAN, true);
        self.marks.set(Marks::END_UNTOLD, false);
        self.released = self.data_nxt();
        self.completion()
    }

    /// True if the application has [closed](Self::close) the connection.
    #[must_use]
    pub const fn is_orphan(&self) -> bool {
        self.marks.has(Marks::ORPHAN)
    }

    /// True if the connection is over, except for bytes and an end that are not reported to the application yet.
    pub(super) fn is_only_untold(&self) -> bool {
        let has_ended = self.state.is_shut_down() && self.state.has_ended();
        has_ended && self.snd_una == self.snd_nxt && self.marks.has(Marks::END_UNTOLD)
    }

    /// The fate of a connection after both sides have ended, all bytes are acknowledged, and the application knows.
    pub(super) fn completion(&self) -> Fate {
        let is_complete = self.snd_una == self.snd_nxt && !self.marks.has(Marks::END_UNTOLD);
        match self.state {
            TcpState::Closing if is_complete => Fate::TimeWait,
            TcpState::LastAck if is_complete => Fate::Closed,
            _ => Fate::Keep,
        }
    }

    /// Gives back the resources of a connection that is removed.
    pub fn release(mut self, shared: &mut Shared) {
        shared.end(self.state);
        if let Some(sending) = self.sending.take() {
            shared.keep_sending(sending);
        }
        if let Some(held) = self.held.take() {
            shared.held_bytes -= held.bytes();
        }
    }

    pub(super) fn set_state(&mut self, shared: &mut Shared, state: TcpState) {
        shared.change(self.state, state);
        self.state = state;
    }

    /// Takes the resources for data to send.
    pub(super) fn begin_sending(&mut self, now: Time, cx: &mut Context<'_>) {
        let mut sending = cx.shared.take_sending();
        let known = cx.shared.path_mtus.known(now, self.peer.to_canonical());
        let mss = known.map_or(self.mss, |(mtu, _)| self.mss_of(mtu));
        (sending.doubted, sending.believed) = (None, None);
        sending.lengthen_at = known.map_or(Time::MAX, |(_, until)| until);
        let path = Path {
            mss: mss.into(),
            sack: self.marks.has(Marks::SACK),
            algorithm: cx.config.congestion,
            patience: cx.config.patience,
        };
        sending.flight.begin(self.saved, path, self.snd_nxt);
        self.sending = Some(sending);
    }

    /// Gives back the resources for sending if nothing is in flight.
    pub(super) fn end_sending(&mut self, cx: &mut Context<'_>) {
        if let Some(mut sending) = self.sending.take_if(|sending| sending.flight.is_empty()) {
            self.saved = sending.flight.end();
            sending.persist.stop();
            cx.shared.keep_sending(sending);
        }
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> TcpState {
        self.state
    }

    /// The two ends.
    #[must_use]
    pub fn endpoints(&self, config: &Config) -> Endpoints {
        let ip = config.addresses[usize::from(self.local)].ip;
        Endpoints {
            local: SocketAddr::new(ip, self.local_port),
            peer: SocketAddr::new(self.peer.to_canonical(), self.peer_port),
        }
    }

    /// True if the connection has these [ends](Self::endpoints).
    #[inline]
    pub(crate) fn is_between(&self, config: &Config, endpoints: &Endpoints) -> bool {
        let Endpoints { local, peer } = endpoints;
        // The ports differ more often than the addresses.
        self.peer_port == peer.port()
            && self.local_port == local.port()
            && self.peer == mapped(peer.ip())
            && config.addresses[usize::from(self.local)].ip == local.ip()
    }

    /// The index of the next hop that the peer's frames come from.
    #[must_use]
    pub const fn neighbour(&self) -> u16 {
        self.neighbour
    }

    /// Records that the peer's frames come from another next hop now.
    pub const fn set_neighbour(&mut self, neighbour: u16) {
        self.neighbour = neighbour;
    }

    /// `SND.NXT`.
    #[must_use]
    pub const fn snd_nxt(&self) -> SeqNumber {
        self.snd_nxt
    }

    /// `RCV.NXT`.
    #[must_use]
    pub const fn rcv_nxt(&self) -> SeqNumber {
        self.rcv_nxt
    }

    /// The quantity of sequence numbers from `RCV.NXT` on that the peer may send.
    pub(crate) const fn receive_window(&self) -> u32 {
        self.rcv_edge.0.wrapping_sub(self.rcv_nxt.0)
    }

    /// `Some` if both sides send timestamps.
    #[must_use]
    pub fn timestamps(&self) -> Option<Timestamps> {
        self.marks
            .has(Marks::TIMESTAMPS)
            .then_some(Timestamps { recent: self.ts_recent, offset: self.ts_offset })
    }

    /// The data in flight, for `samum stack`.
    #[must_use]
    pub fn flight_status(&self) -> Option<super::Status> {
        self.sending.as_ref().map(|sending| sending.flight.status())
    }

    /// Bytes that may be in flight now: the smaller of the congestion window and the peer's window.
    #[must_use]
    pub fn window(&self) -> u32 {
        let cwnd =
            self.sending.as_ref().map_or(self.saved.cwnd, |sending| sending.flight.status().cwnd);
        cwnd.min(self.snd_wnd)
    }

    /// The end of the peer's window: `SND.UNA + SND.WND`.
    pub(super) fn window_end(&self) -> SeqNumber {
        self.snd_una + self.snd_wnd
    }

    /// The number after the last sent byte: `SND.NXT`, or the number of our FIN.
    pub(super) const fn data_nxt(&self) -> SeqNumber {
        SeqNumber(self.snd_nxt.0.wrapping_sub(self.state.is_shut_down() as u32))
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub(super) fn check(&self, config: &Config) {
        assert!(!self.released.is_after(self.snd_una.earlier(self.data_nxt())));
        assert!(!self.snd_una.is_after(self.snd_nxt));
        assert!(self.sending.is_some() || self.snd_una == self.snd_nxt);
        let window = self.rcv_edge - self.rcv_nxt;
        assert!(window <= config.receive_bytes_max.max(0xffff) + (1 << self.rcv_wind_shift));
        assert!(!self.last_ack_sent.is_after(self.rcv_nxt));
        if let Some(held) = &self.held {
            held.check(self.rcv_nxt);
            assert!(!held.is_empty(), "a box for nothing");
        }
    }

    /// Bytes of payload in a whole segment now.
    pub(super) fn mss_in_use(&self) -> u16 {
        let mss = self.sending.as_ref().and_then(|sending| sending.flight.mss().try_into().ok());
        mss.unwrap_or(self.mss)
    }

    /// Bytes of payload in a whole segment over a path with this MTU, at most the MSS of both ends.
    fn mss_of(&self, mtu: u16) -> u16 {
        let headers = headers_len(self.peer.to_ipv4_mapped().is_none(), self.timestamps());
        self.mss.min(mtu.max(MTU_MIN) - headers)
    }
}

/// The minimum MTU that is believed: every IPv4 host accepts packets of this size (RFC 9293, 3.7.1). A smaller MTU
/// would only help an attacker that forges ICMP messages (RFC 5927, 7.2).
const MTU_MIN: u16 = 576;

/// An address of either version as an IPv6 address.
fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn headers_len(is_v6: bool, timestamps: Option<Timestamps>) -> u16 {
    let ip = if is_v6 { 40 } else { 20 };
    let options = if timestamps.is_some() { 12 } else { 0 };
    ip + 20 + options
}

/// Bytes of payload in a whole segment: the peer's MSS counts no options (RFC 6691, 2).
fn mss(handshake: &Handshake, mtu: u16) -> u16 {
    let timestamps = handshake.timestamps;
    let path = mtu.max(MTU_MIN) - headers_len(handshake.endpoints.peer.is_ipv6(), timestamps);
    let options = if timestamps.is_some() { 12 } else { 0 };
    // With an extremely small MSS, a peer could make the stack send almost only headers.
    path.min(handshake.peer_mss.max(MSS_MIN) - options)
}

/// The minimum MSS for which segments are computed (Linux: `TCP_MIN_SND_MSS`). What a peer offers was raised to a larger
/// minimum before (`half_open.rs`).
const MSS_MIN: u16 = 48;

#[cfg(test)]
mod tests;

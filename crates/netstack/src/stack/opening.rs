//! Opens connections (LISTEN, SYN-SENT and SYN-RECEIVED), and handles segments without a connection.

use super::connections::id_of;
use super::{Stack, kind};
use crate::application::{Application, ConnectionId};
use crate::ip::{NextHop, Segment};
use crate::seq::SeqNumber;
use crate::siphash;
use crate::slots::Key;
use crate::tcp::cookie::{self, Cookies};
use crate::tcp::half_open::{self, HalfOpen, HalfOpens, Offer, Step, Wants};
use crate::tcp::isn::Isn;
use crate::tcp::{Connection, Endpoints, Handshake, Lost, listen};
use crate::time::Time;
use crate::transmit::{Full, Transmit};
use crate::wire::tcp::Header;
use crate::wire::{Ecn, Mac};

/// The state of all handshakes.
pub(super) struct Opening {
    pub(super) handshakes: HalfOpens,
    cookies: Cookies,
    pub(super) isn: Isn,
}

/// The reason why an active open failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The local address is not served, or the addresses are of different versions.
    Address,
    /// Another connection has the same two ends.
    InUse,
    /// The number of connections, handshakes or next hops is at its maximum.
    TooMany,
}

impl Opening {
    pub(super) fn new(secret: siphash::Key, half_open_max: u32) -> Self {
        Self {
            handshakes: HalfOpens::new(secret, half_open_max),
            cookies: Cookies::new(secret),
            isn: Isn::new(secret),
        }
    }
}

impl Stack {
    /// Opens a connection through the station with the MAC address `via`: the peer itself, or a router. The stack
    /// reports the open connection by [`Application::accepted`], or its loss.
    ///
    /// # Errors
    ///
    /// If the stack cannot begin the handshake.
    pub fn connect(
        &mut self,
        now: Time,
        endpoints: Endpoints,
        via: Mac,
        out: &mut impl Transmit,
    ) -> Result<ConnectionId, ConnectError> {
        let is_served = self.config.place_of(endpoints.local.ip()).is_some();
        if !is_served || endpoints.local.is_ipv4() != endpoints.peer.is_ipv4() {
            return Err(ConnectError::Address);
        }
        if self.connections.find(&self.config, &endpoints).is_some()
            || self.opening.handshakes.find(&endpoints).is_some()
        {
            return Err(ConnectError::InUse);
        }
        if self.connections.is_full() || self.opening.handshakes.is_full() {
            return Err(ConnectError::TooMany);
        }
        let neighbour =
            self.layer.neighbours.learn(NextHop::new(via, None)).ok_or(ConnectError::TooMany)?;
        let iss = self.opening.isn.number(now, &endpoints);
        let offset = self.opening.isn.timestamp_offset(&endpoints);
        let wants = self.wants(&endpoints, out);
        let one = HalfOpen::asked(now, endpoints, neighbour, iss, offset, &wants);
        let handshake = self.begin_handshake(now, one).ok_or(ConnectError::TooMany)?;
        let key = self.connections.ask(handshake).ok_or(ConnectError::TooMany)?;
        if let Some(one) = self.opening.handshakes.get_mut(handshake) {
            one.asked = Some(key);
        }
        self.synchronize(now, handshake, out);
        Ok(id_of(key))
    }

    /// The wishes of this end in a handshake.
    fn wants(&self, endpoints: &Endpoints, out: &impl Transmit) -> Wants {
        let headers = if endpoints.local.is_ipv4() { 40 } else { 60 };
        Wants {
            // The MSS comes from the interface's MTU, not from the path's, because it is for the direction to this
            // end (RFC 9293, 3.7.1).
            mss: out.limits().mtu.saturating_sub(headers),
            window: self.config.receive_bytes_max,
            ecn: self.config.ecn,
        }
    }

    /// Handles a segment of a handshake.
    pub(super) fn handle_in_handshake(
        &mut self,
        now: Time,
        key: Key,
        segment: &Segment<'_>,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let wants = self.wants(&segment.endpoints, out);
        let seg_len = listen::seg_len(&segment.header, segment.payload);
        let Some(one) = self.opening.handshakes.get_mut(key) else { return };
        match one.handle_segment(now, &segment.header, seg_len, &wants) {
            Step::Drop => {}
            Step::Synchronize => {
                let neighbours = &mut self.layer.neighbours;
                let neighbour = &mut one.handshake.neighbour;
                *neighbour = neighbours.relearn_in_handshake(*neighbour, segment.hop);
                self.synchronize(now, key, out);
            }
            step @ (Step::Acknowledge | Step::Reset) => {
                let is_asked = one.asked.is_some();
                let acknowledgement = one.acknowledgement(now, &wants);
                // The table was full at the peer's first SYN and had room at its second, or at a forged SYN. The
                // peer acknowledges the first SYN,ACK: its cookie is as good as the number of this handshake.
                let redeemed = if is_asked { None } else { self.redeem(now, segment) };
                if let Some(handshake) = redeemed {
                    self.remove_handshake(key);
                    self.counters.handshakes.cookies_accepted += 1;
                    self.establish(now, &handshake, None, segment, app, out);
                } else if step == Step::Acknowledge {
                    self.reply(now, segment, &acknowledgement, out);
                } else if is_asked {
                    self.reset_unowned(now, segment, out);
                } else {
                    self.refuse_acknowledgement(now, segment, out);
                }
            }
            Step::Refused => self.give_up(key, Lost::Reset, app),
            Step::Complete(handshake) => {
                let asked = one.asked;
                if segment.header.flags.syn {
                    // If the interface has no room, the peer repeats its SYN,ACK.
                    let header = half_open::acknowledgement(&handshake, now, &wants);
                    let _ = self.send(&handshake, &header, out);
                }
                self.establish(now, &handshake, asked, segment, app, out);
                self.remove_handshake(key);
            }
        }
    }

    /// Handles a segment without a connection, a handshake or a record of TIME-WAIT (RFC 9293, 3.10.7.1 and
    /// 3.10.7.2). For a SYN, our initial number is at least `least`.
    pub(super) fn handle_unowned(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        least: Option<SeqNumber>,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let Segment { endpoints, header, .. } = segment;
        let flags = header.flags;
        let is_served = self.config.tcp_ports.contains(&endpoints.local.port());
        if !is_served && !segment.is_ours {
            // The port belongs to the kernel.
            self.counters.drops.not_ours += 1;
            return;
        }
        match header.ack {
            _ if flags.rst => self.counters.drops.no_connection += 1,
            // RFC 9293, 3.10.7.2: a listener drops a segment without SYN and ACK.
            None if is_served && !flags.syn => self.counters.drops.no_connection += 1,
            None if is_served && flags.syn && !flags.fin => self.listen(now, segment, least, out),
            Some(_) if is_served && !flags.syn => match self.redeem(now, segment) {
                Some(handshake) => {
                    self.counters.handshakes.cookies_accepted += 1;
                    self.establish(now, &handshake, None, segment, app, out);
                }
                None => self.refuse_acknowledgement(now, segment, out),
            },
            _ => self.reset_unowned(now, segment, out),
        }
    }

    /// Handles an acknowledgement without a cookie. The acknowledgement with the cookie may come later, or may have
    /// been lost, so a reset would end the peer's connection; Linux and FreeBSD send one. A stray acknowledgement looks
    /// the same. A cookie that also covered later numbers of its peer would have fewer bits against guesses, or would
    /// accept numbers of a connection that is gone.
    fn refuse_acknowledgement(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        out: &mut impl Transmit,
    ) {
        if self.opening.cookies.are_out(now) {
            self.counters.drops.no_connection += 1;
        } else {
            self.reset_unowned(now, segment, out);
        }
    }

    /// Handles a SYN for a served port: enters SYN-RECEIVED, or sends a cookie. A cookie is for too many handshakes
    /// under way, or too many next hops in use.
    fn listen(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        least: Option<SeqNumber>,
        out: &mut impl Transmit,
    ) {
        let &Segment { endpoints, ref header, hop, .. } = segment;
        let Some(neighbour) = self.layer.neighbours.learn(hop) else {
            self.counters.drops.no_room += 1;
            return;
        };
        let wants = self.wants(&endpoints, out);
        let mut offer = Offer::new(header, &endpoints);
        let by_cookie = self.opening.handshakes.is_full()
            || !self.layer.neighbours.is_for_handshakes(neighbour);
        if by_cookie && offer.timestamp.is_none() {
            // Without a timestamp a cookie holds only the MSS, so no other option may be agreed on.
            offer = cookie::offer(offer.mss, None);
        }
        let offset = self.opening.isn.timestamp_offset(&endpoints);
        let mut handshake =
            half_open::agreed(endpoints, neighbour, header.seq, &offer, offset, &wants);
        let is_scaled = offer.window_scale.is_some();
        if by_cookie {
            handshake.iss = self.opening.cookies.make(now, &endpoints, header.seq, offer.mss);
            let clock = handshake
                .timestamps
                .map(|ours| cookie::timestamp(half_open::clock(now, ours), &offer));
            let header = half_open::syn(&handshake, true, is_scaled, clock, &wants);
            self.counters.handshakes.cookies_sent += 1;
            if self.send(&handshake, &header, out) == Err(Full) {
                self.counters.drops.no_room += 1;
            }
            return;
        }
        handshake.iss = self.opening.isn.number(now, &endpoints);
        if let Some(least) = least {
            handshake.iss = handshake.iss.later(least);
        }
        if let Some(key) = self.begin_handshake(now, HalfOpen::received(now, handshake, is_scaled))
        {
            self.synchronize(now, key, out);
        }
    }

    /// The handshake of the cookie in a segment; `None` without a valid cookie.
    fn redeem(&self, now: Time, segment: &Segment<'_>) -> Option<Handshake> {
        let &Segment { endpoints, ref header, .. } = segment;
        let ack = header.ack.filter(|_| !header.flags.syn)?;
        let before = |next: SeqNumber| SeqNumber(next.0.wrapping_sub(1));
        let (irs, iss) = (before(header.seq), before(ack));
        let mss = self.opening.cookies.check(now, &endpoints, irs, iss)?;
        let offer = cookie::offer(mss, header.options.timestamps);
        let offset = self.opening.isn.timestamp_offset(&endpoints);
        let wants = Wants { mss, window: self.config.receive_bytes_max, ecn: self.config.ecn };
        let handshake = half_open::agreed(endpoints, 0, irs, &offer, offset, &wants);
        let snd_wnd = u32::from(header.window) << handshake.snd_wind_shift;
        Some(Handshake { iss, snd_wnd, ..handshake })
    }

    /// Opens the connection of a completed handshake.
    fn establish(
        &mut self,
        now: Time,
        handshake: &Handshake,
        asked: Option<Key>,
        segment: &Segment<'_>,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let Endpoints { local, peer } = handshake.endpoints;
        let mtu = out.limits().mtu;
        let Some(neighbour) = self.layer.neighbours.learn(segment.hop) else {
            self.counters.handshakes.refused += 1;
            return self.reset_unowned(now, segment, out);
        };
        if asked.is_none() && self.connections.is_full() {
            self.end_oldest_orphan(now, out);
        }
        let handshake = Handshake { neighbour, ..*handshake };
        let connection = Connection::new(&handshake, mtu, now, &self.config);
        let Some(key) = self.connections.open(&self.config, asked, connection) else {
            self.counters.handshakes.refused += 1;
            return self.reset_unowned(now, segment, out);
        };
        self.shared.begin();
        self.layer.neighbours.hold(neighbour);
        self.counters.handshakes.completed += 1;
        app.accepted(id_of(key), local, peer);
        if let Some(place) = self.connections.get_mut(key) {
            place.touch(key, &mut self.touched);
        }
        let Segment { header, payload, .. } = segment;
        if !header.flags.syn && (!payload.is_empty() || header.flags.fin) {
            self.handle_in_connection(now, key, segment, app, out);
        }
    }

    /// Adds a handshake; `None` at the maximum.
    fn begin_handshake(&mut self, now: Time, one: HalfOpen) -> Option<Key> {
        let (neighbour, deadline) = (one.handshake.neighbour, one.deadline());
        let key = self.opening.handshakes.insert(one)?;
        self.layer.neighbours.hold(neighbour);
        self.wheel.insert(now, kind::HANDSHAKE | key.to_bits(), deadline);
        self.counters.handshakes.begun += 1;
        Some(key)
    }

    /// Ends a handshake.
    pub(super) fn remove_handshake(&mut self, key: Key) -> Option<HalfOpen> {
        let one = self.opening.handshakes.remove(key)?;
        self.layer.neighbours.release(one.handshake.neighbour);
        Some(one)
    }

    /// Ends a handshake without a connection.
    fn give_up(&mut self, key: Key, why: Lost, app: &mut impl Application) {
        let Some(one) = self.remove_handshake(key) else { return };
        self.counters.handshakes.given_up += 1;
        if let Some(asked) = one.asked {
            self.connections.remove(&self.config, asked);
            app.lost(id_of(asked), why);
        }
    }

    pub(super) fn handle_handshake_timer(
        &mut self,
        now: Time,
        key: Key,
        app: &mut impl Application,
        out: &mut impl Transmit,
    ) {
        let Some(&HalfOpen { handshake: Handshake { endpoints, .. }, .. }) =
            self.opening.handshakes.get(key)
        else {
            return;
        };
        let wants = self.wants(&endpoints, out);
        let Some(one) = self.opening.handshakes.get_mut(key) else { return };
        if !one.repeat(&wants) {
            return self.give_up(key, Lost::TimedOut, app);
        }
        let deadline = one.deadline();
        self.wheel.insert(now, kind::HANDSHAKE | key.to_bits(), deadline);
        self.counters.handshakes.retransmitted += 1;
        self.synchronize(now, key, out);
    }

    /// Sends our SYN or SYN,ACK. If the interface has no room, the timer repeats the segment.
    fn synchronize(&mut self, now: Time, key: Key, out: &mut impl Transmit) {
        let Some(&one) = self.opening.handshakes.get(key) else { return };
        let wants = self.wants(&one.handshake.endpoints, out);
        let _ = self.send(&one.handshake, &one.syn(now, &wants), out);
    }

    /// Answers a segment without a connection by a reset, within the reply limit.
    fn reset_unowned(&mut self, now: Time, segment: &Segment<'_>, out: &mut impl Transmit) {
        let seg_len = listen::seg_len(&segment.header, segment.payload);
        let Some(header) = listen::reset(&segment.header, seg_len) else { return };
        self.reply(now, segment, &header, out);
    }

    /// Sends a segment of a handshake.
    fn send(
        &mut self,
        handshake: &Handshake,
        header: &Header,
        out: &mut impl Transmit,
    ) -> Result<(), Full> {
        let &Handshake { ref endpoints, neighbour, .. } = handshake;
        let mut emitter = self.layer.emitter(&mut self.counters, out);
        emitter.tcp(endpoints, neighbour, header, &[], None, Ecn::NotEct)
    }

    /// Answers a segment, within the reply limit: the sources of segments may be forged, and such segments cost
    /// their sender nothing. Replies are never repeated.
    pub(super) fn reply(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        header: &Header,
        out: &mut impl Transmit,
    ) {
        if !self.replies.allows(now) {
            self.counters.drops.no_connection += 1;
            return;
        }
        let Some(neighbour) = self.layer.neighbours.learn(segment.hop) else {
            self.counters.drops.no_room += 1;
            return;
        };
        let mut emitter = self.layer.emitter(&mut self.counters, out);
        match emitter.tcp(&segment.endpoints, neighbour, header, &[], None, Ecn::NotEct) {
            Ok(()) => self.counters.resets_sent += u64::from(header.flags.rst),
            Err(Full) => self.counters.drops.no_room += 1,
        }
    }
}

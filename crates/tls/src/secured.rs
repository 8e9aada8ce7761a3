//! The transport of a listener that may speak TLS: the bytes of the transport below as they are, or TLS over it.

use core::net::IpAddr;
use core::num::NonZeroU64;
use std::rc::Rc;

use outq::{OutQ, Weight};
use ring::Ring;
use sendfile::{Drained, Failure, Handshake, Piece, Takes, Transport};

use crate::acceptors::SharedAcceptors;
use crate::transport::Tls;

/// A transport with TLS, or without.
#[derive(Debug)]
pub enum Secured<T> {
    /// Bytes go as they are.
    Plain(T),
    /// Boxed, so that plain connections stay small.
    Tls(Box<Tls<T>>),
}

impl<T: Transport> Secured<T> {
    /// Makes the transport of a connection that a listener has accepted. `has_tls`: the listener has TLS, so a connection
    /// is closed if there is no acceptor.
    pub fn new(below: T, acceptors: &SharedAcceptors, listener: u32, has_tls: bool) -> Self {
        match acceptors.borrow_mut().of(listener) {
            None if has_tls => Self::Tls(Box::new(Tls::refused(below))),
            None => Self::Plain(below),
            Some(listening) => Self::Tls(Box::new(Tls::new(below, listening))),
        }
    }
}

/// Calls a method of whichever transport there is.
macro_rules! either {
    ($self:expr, $it:ident => $call:expr) => {
        match $self {
            Self::Plain($it) => $call,
            Self::Tls($it) => $call,
        }
    };
}

impl<T: Transport> Transport for Secured<T> {
    #[inline]
    fn takes(&self) -> Takes {
        either!(self, it => it.takes())
    }

    #[inline]
    fn is_open(&self) -> bool {
        either!(self, it => it.is_open())
    }

    fn handshake(&self) -> Option<Rc<dyn Handshake>> {
        either!(self, it => it.handshake())
    }

    #[inline]
    fn weight(&self) -> Weight {
        either!(self, it => it.weight())
    }

    #[inline]
    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        either!(self, it => it.drain(ring, queue, budget))
    }

    #[inline]
    fn window(&self) -> u64 {
        either!(self, it => it.window())
    }

    #[inline]
    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        either!(self, it => it.receive(bytes, queue))
    }

    fn set_client(&mut self, client: IpAddr) {
        either!(self, it => it.set_client(client));
    }

    fn handle_writable(&mut self) {
        either!(self, it => it.handle_writable());
    }

    #[inline]
    fn is_blocked(&self) -> bool {
        either!(self, it => it.is_blocked())
    }

    fn acknowledged(&self, ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        either!(self, it => it.acknowledged(ring, queue))
    }

    #[inline]
    fn set_rate(&mut self, ring: &Ring, bytes_per_second: Option<NonZeroU64>) {
        either!(self, it => it.set_rate(ring, bytes_per_second));
    }

    #[inline]
    fn bound_unsent(&mut self, ring: &Ring, is_bound: bool) {
        either!(self, it => it.bound_unsent(ring, is_bound));
    }

    #[inline]
    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        either!(self, it => it.set_receiving(ring, on));
    }

    fn expect_much(&mut self, much: bool) {
        either!(self, it => it.expect_much(much));
    }

    fn handle_receive_stopped(&mut self) {
        either!(self, it => it.handle_receive_stopped());
    }

    fn handle_end(&mut self) {
        either!(self, it => it.handle_end());
    }

    #[inline]
    fn has_ended(&self) -> bool {
        either!(self, it => it.has_ended())
    }

    fn finish(&mut self) {
        either!(self, it => it.finish());
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        either!(self, it => it.shutdown(ring));
    }

    fn reset(&mut self, ring: &mut Ring) {
        either!(self, it => it.reset(ring));
    }

    fn close(&mut self, ring: &mut Ring) {
        either!(self, it => it.close(ring));
    }

    fn close_idle(&mut self, ring: &mut Ring) {
        either!(self, it => it.close_idle(ring));
    }

    fn close_after(&mut self, ring: &mut Ring, last: OutQ<Piece>) {
        either!(self, it => it.close_after(ring, last));
    }
}

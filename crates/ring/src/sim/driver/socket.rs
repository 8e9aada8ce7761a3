//! Sockets: accept and receive.

use super::{Sim, Waiter};
use crate::common::Common;
use crate::fd::{Fd, Handle};
use crate::op::Event;
use crate::sim::errno;
use crate::sim::net::Input;
use crate::slab::Key;

impl Sim {
    pub(super) fn accept(&mut self, common: &mut Common, key: Key, fd: i32) {
        let accepted = self.world.state().accept(fd);
        match accepted {
            Ok(Some(socket)) => {
                let socket = common.fd(Handle::Sim(socket));
                common.emit(key, Event::Accepted(socket));
                // Another event may have come.
                self.look_again(key);
            }
            Ok(None) => {}
            Err(error) => self.end(common, key, Err(error)),
        }
    }

    pub(super) fn receive(&mut self, common: &mut Common, key: Key, fd: &Fd) {
        let mut state = self.world.state();
        let conn = state.conn(fd.raw()).expect("looked up when it was submitted");
        let most = state.receive_bytes_max();
        let is_wide = fd.is_connected() && state.config.wide_receives;
        let one = &mut state.conns[conn];
        let pool = if is_wide { &self.wide } else { &self.recv };
        if one.inbox.is_empty() {
            let end = match one.input {
                Input::Open => return,
                Input::Ended => Ok(Event::Eof),
                Input::Reset => Err(errno(libc::ECONNRESET)),
            };
            drop(state);
            self.end(common, key, end);
            return;
        }
        let received = pool.receive(|space| Ok(one.take(space, most)));
        drop(state);
        match received {
            Some(buf) => {
                common.emit(key, Event::Received(buf.expect("copying does not fail")));
                self.look_again(key);
            }
            None => self.starved.push(key),
        }
    }

    pub(super) fn look_again(&self, key: Key) {
        self.world.state().look_soon(Some(Waiter::new(self.ring, key)));
    }
}

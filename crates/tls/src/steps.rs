//! The costly steps of handshakes, which may wait for their turn and be taken on any thread.
//!
//! ```text
//!   a transport ──ask──► Steps ──next──► the network, which lets them wait, and takes them
//!   a transport ◄──outcome── Slot ◄──finish── the network
//! ```
//!
//! A step is costly if it makes keys, signs or verifies. A transport without a [`Slot`] takes its steps at once.

use core::cell::{Cell, RefCell};
use core::net::IpAddr;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use ring::Job;
use rustls::server::{Accepted, AcceptedAlert, ServerConnection};
use rustls::{ServerConfig, SignatureAlgorithm};

use crate::secrets::Secrets;

/// A costly step of a handshake.
#[derive(Debug)]
pub struct Step {
    work: Work,
    is_long: bool,
}

#[derive(Debug)]
enum Work {
    /// Answer the first message of a client, by these settings.
    Begin(Box<Accepted>, Arc<ServerConfig>),
    /// Answer this record.
    GoOn(Box<ServerConnection>, Vec<u8>),
}

/// A handshake after a step.
#[derive(Debug)]
pub struct Stepped {
    /// None if the handshake has failed.
    pub(crate) connection: Option<Box<ServerConnection>>,
    /// Records for the client; the last one is an alert if the handshake has failed.
    pub(crate) records: Vec<u8>,
    /// The secrets that rustls has told in this step.
    pub(crate) secrets: Secrets,
    pub(crate) is_long: bool,
}

impl Step {
    pub(crate) fn begin(accepted: Accepted, config: Arc<ServerConfig>) -> Self {
        let certified = config.cert_resolver.resolve(accepted.client_hello());
        let is_long = certified.is_some_and(|it| it.key.algorithm() == SignatureAlgorithm::RSA);
        Self { work: Work::Begin(Box::new(accepted), config), is_long }
    }

    pub(crate) fn go_on(connection: Box<ServerConnection>, bytes: &[u8], is_long: bool) -> Self {
        Self { work: Work::GoOn(connection, bytes.to_vec()), is_long }
    }

    /// Returns true if the step probably signs with RSA: that takes 0.6 ms and more, an elliptic curve 0.03 ms.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.is_long
    }

    /// Takes the step.
    #[must_use]
    pub fn take(self) -> Stepped {
        let is_long = self.is_long;
        // Those of another handshake are none of this one's.
        drop(Secrets::take());
        let (connection, records) = match self.work {
            Work::Begin(accepted, config) => match accepted.into_connection(config) {
                Ok(connection) => go_on(Box::new(connection), &[]),
                Err((_, alert)) => (None, bytes_of(alert)),
            },
            Work::GoOn(connection, record) => go_on(connection, &record),
        };
        Stepped { connection, records, secrets: Secrets::take(), is_long }
    }
}

/// Answers a record, or the messages that have come before. Returns the records of the answer, and the connection unless the
/// handshake has failed.
fn go_on(
    mut connection: Box<ServerConnection>,
    mut record: &[u8],
) -> (Option<Box<ServerConnection>>, Vec<u8>) {
    let mut answer = Vec::new();
    loop {
        let taken = connection.read_tls(&mut record).unwrap_or_default();
        let is_right = connection.process_new_packets().is_ok();
        // Writing to a vector cannot fail.
        while connection.wants_write() && connection.write_tls(&mut answer).is_ok() {}
        // What the handshake does not take would be lost.
        if !is_right || (taken == 0 && !record.is_empty()) {
            return (None, answer);
        }
        if record.is_empty() {
            return (Some(connection), answer);
        }
    }
}

/// The bytes of an alert.
pub(crate) fn bytes_of(mut alert: AcceptedAlert) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a vector cannot fail.
    let _ = alert.write_all(&mut bytes);
    bytes
}

impl Job for Step {
    type Output = Stepped;

    /// A flood of handshakes leaves the processor to those that serve requests, and gets what these do not need.
    const NICENESS: i32 = 10;

    fn run(self, _sleep: &dyn Fn(core::time::Duration)) -> Stepped {
        self.take()
    }
}

/// What the transports of a worker ask of its network, in order.
#[derive(Debug, Default)]
pub struct Steps(RefCell<VecDeque<Wish>>);

/// What a transport asks for.
#[derive(Debug)]
pub enum Wish {
    /// A step is to be taken for a connection.
    Take(Rc<Slot>, Step),
    /// The connection has gone: its step need not be taken any more.
    Leave(Rc<Slot>),
}

/// A connection whose handshake is under way, as its transport and the network know it.
#[derive(Debug)]
pub struct Slot {
    id: u64,
    client: Cell<Option<IpAddr>>,
    state: RefCell<State>,
}

#[derive(Debug)]
enum State {
    /// No step is to be taken.
    Idle,
    /// A step waits, or is being taken.
    Asked,
    /// A step was taken.
    Stepped(Stepped),
    /// The step will not be taken.
    Refused,
}

impl Steps {
    /// The next wish.
    #[inline]
    pub fn next(&self) -> Option<Wish> {
        self.0.borrow_mut().pop_front()
    }

    /// Returns true if no transport wants anything.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl Slot {
    /// The id of the connection.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The address of the client; `None` if it has gone.
    #[must_use]
    pub const fn client(&self) -> Option<IpAddr> {
        self.client.get()
    }

    /// Notes the result of a step. The transport has to be told.
    pub fn finish(&self, stepped: Stepped) {
        *self.state.borrow_mut() = State::Stepped(stepped);
    }

    /// Notes that a step will not be taken. The connection has to be closed.
    pub fn refuse(&self) {
        *self.state.borrow_mut() = State::Refused;
    }
}

/// The transport's end of a [`Slot`].
#[derive(Debug)]
pub(crate) struct Asker {
    steps: Rc<Steps>,
    slot: Rc<Slot>,
}

impl Asker {
    pub(crate) fn new(steps: Rc<Steps>, id: u64, client: Option<IpAddr>) -> Self {
        let (client, state) = (Cell::new(client), RefCell::new(State::Idle));
        Self { steps, slot: Rc::new(Slot { id, client, state }) }
    }

    pub(crate) fn set_client(&self, client: IpAddr) {
        self.slot.client.set(Some(client));
    }

    pub(crate) fn ask(&self, step: Step) {
        *self.slot.state.borrow_mut() = State::Asked;
        self.steps.0.borrow_mut().push_back(Wish::Take(Rc::clone(&self.slot), step));
    }

    /// Takes the result of the step.
    pub(crate) fn outcome(&self) -> Option<Stepped> {
        let mut state = self.slot.state.borrow_mut();
        match core::mem::replace(&mut *state, State::Idle) {
            State::Stepped(stepped) => Some(stepped),
            other => {
                *state = other;
                None
            }
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(*self.slot.state.borrow(), State::Refused)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if matches!(*self.slot.state.borrow(), State::Asked) {
            self.steps.0.borrow_mut().push_back(Wish::Leave(Rc::clone(&self.slot)));
        }
    }
}

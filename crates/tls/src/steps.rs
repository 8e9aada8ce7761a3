//! The costly steps of handshakes, which may wait for their turn and be taken on any thread.
//!
//! ```text
//!   a transport ──ask──► Steps ──next──► the network, which lets them wait, and takes them
//!   a transport ◄──outcome── Slot ◄──finish── the network
//! ```
//!
//! A step is costly if it makes keys, signs or verifies. A transport without a [`Slot`] makes its steps at once.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::IpAddr;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use ring::Job;
use rustls::server::{Accepted, AcceptedAlert, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ServerConfig, SignatureAlgorithm};

use crate::clients::Refusal;
use crate::secrets::Secrets;

/// The type of a record with an alert, and of a sealed one (RFC 8446 §5.1).
const ALERT: u8 = 21;
const SEALED: u8 = 23;
/// The head of a record.
const HEAD_BYTES: usize = 5;

/// A costly step of a handshake.
#[derive(Debug)]
pub struct Step {
    work: Work,
    is_long: bool,
}

#[derive(Debug)]
enum Work {
    /// Answer the first message of a client, which these records have, by these settings.
    Begin(Arc<ServerConfig>, Vec<u8>),
    /// Answer what has come.
    GoOn(Shaking),
}

/// A handshake as rustls knows it, with what has come and is not handled.
pub(crate) struct Shaking {
    pub(crate) connection: Box<UnbufferedServerConnection>,
    /// The records of a message that is not complete. rustls bounds a message (64 KiB).
    pub(crate) incoming: Vec<u8>,
}

/// A handshake after a step.
#[derive(Debug)]
pub struct Stepped {
    /// `None` if the handshake has failed.
    pub(crate) shaking: Option<Shaking>,
    /// `Some` if it has failed because of the certificate of the client.
    pub(crate) refusal: Option<Refusal>,
    /// Records for the client; the last one is an alert if the handshake has failed.
    pub(crate) records: Vec<u8>,
    /// The secrets that rustls has told in this step.
    pub(crate) secrets: Secrets,
    pub(crate) is_long: bool,
}

impl Step {
    pub(crate) fn begin(accepted: &Accepted, records: Vec<u8>, config: Arc<ServerConfig>) -> Self {
        let certified = config.cert_resolver.resolve(accepted.client_hello());
        let is_long = certified.is_some_and(|it| it.key.algorithm() == SignatureAlgorithm::RSA);
        Self { work: Work::Begin(config, records), is_long }
    }

    pub(crate) const fn go_on(shaking: Shaking, is_long: bool) -> Self {
        Self { work: Work::GoOn(shaking), is_long }
    }

    /// Returns true if the step probably signs with RSA: the signature alone takes 0.6 ms and more, and 0.03 ms with an
    /// elliptic curve.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.is_long
    }

    /// Makes the step.
    #[must_use]
    pub fn take(self) -> Stepped {
        let is_long = self.is_long;
        // Those of another handshake are none of this one's.
        drop(Secrets::take());
        let mut records = Vec::new();
        let shaking = match self.work {
            // It fails without a message, if the system has no random numbers.
            Work::Begin(config, incoming) => UnbufferedServerConnection::new(config)
                .ok()
                .map(|connection| Shaking { connection: Box::new(connection), incoming }),
            Work::GoOn(shaking) => Some(shaking),
        };
        let mut refusal = None;
        let shaking = shaking.and_then(|shaking| shaking.go_on(&mut records, &mut refusal));
        Stepped { shaking, refusal, records, secrets: Secrets::take(), is_long }
    }
}

impl Shaking {
    /// Answers what has come. Returns the handshake unless it has failed; then an alert is the last record of the answer, and
    /// `refusal` is the reason if the certificate of the client has one.
    fn go_on(mut self, answer: &mut Vec<u8>, refusal: &mut Option<Refusal>) -> Option<Self> {
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let goes_on = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, answer);
                    true
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    true
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => false,
                // Data of the application comes after the handshake. A client that says goodbye before has gone.
                failed => {
                    *refusal = failed.err().and_then(|error| Refusal::of(&error));
                    self.incoming.drain(..discard);
                    self.end(answer);
                    return None;
                }
            };
            self.incoming.drain(..discard);
            if goes_on {
                continue;
            }
            // Bytes that the handshake does not read would be lost.
            if !self.connection.is_handshaking() && !self.incoming.is_empty() {
                return None;
            }
            self.incoming.shrink_to_fit();
            return Some(self);
        }
    }

    /// Appends the records that are left of a handshake that has failed, up to its alert. rustls would go on with what has
    /// come if it were asked for more: another error then is one too many for it.
    fn end(&mut self, answer: &mut Vec<u8>) {
        let mut begin = answer.len();
        while !is_alert(&answer[begin..])
            && let Ok(ConnectionState::EncodeTlsData(data)) =
                self.connection.process_tls_records(&mut self.incoming).state
        {
            begin = answer.len();
            encode(data, answer);
        }
    }
}

/// Returns true if a record of rustls is an alert, which may be sealed as TLS 1.3 does it (RFC 8446 §5.2): the two bytes
/// of an alert, the type, and 16 bytes of proof.
pub(crate) fn is_alert(record: &[u8]) -> bool {
    match record.first() {
        Some(&ALERT) => true,
        Some(&SEALED) => record.len() == HEAD_BYTES + 2 + 1 + 16,
        _ => false,
    }
}

impl fmt::Debug for Shaking {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shaking").field("incoming", &self.incoming.len()).finish_non_exhaustive()
    }
}

/// Appends records of rustls to others.
pub(crate) fn encode<D>(mut data: EncodeTlsData<'_, D>, records: &mut Vec<u8>) {
    // Without room, rustls says how much it needs.
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
        data.encode(&mut [])
    {
        let len = records.len();
        records.resize(len + required_size, 0);
        let encoded = data.encode(&mut records[len..]);
        debug_assert!(encoded.is_ok_and(|encoded| encoded == required_size));
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

/// The wishes of the transports of a worker to its network, in order.
#[derive(Debug, Default)]
pub struct Steps(RefCell<VecDeque<Wish>>);

/// The wish of a transport.
#[derive(Debug)]
pub enum Wish {
    /// A step is to be taken for a connection.
    Take(Rc<Slot>, Step),
    /// The connection has gone: its step need not be taken any more.
    Leave(Rc<Slot>),
    /// The operator is to know that a client was refused.
    Tell(RefusedClient),
}

/// A client that was refused because of its certificate.
#[derive(Clone, Debug)]
pub struct RefusedClient {
    /// The reason.
    pub refusal: Refusal,
    /// The address of the client; `None` if it has gone.
    pub client: Option<IpAddr>,
    /// The host that it has asked for: a name, or the address to which it has connected.
    pub host: Option<Box<str>>,
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

    /// Tells the operator why the client was refused.
    pub(crate) fn tell(&self, refusal: Refusal, host: Option<Box<str>>) {
        let client = self.slot.client();
        self.steps.0.borrow_mut().push_back(Wish::Tell(RefusedClient { refusal, client, host }));
    }

    /// Handles the result of the step.
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

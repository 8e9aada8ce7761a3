//! A handshake, by rustls: records in, records out, and in the end the keys.
//!
//! The first message of the client names a server. The [`Acceptor`](crate::Acceptor) chooses the settings by it, and the
//! handshake goes on with them. rustls gets one record at a time, so that it has none left when the handshake is complete:
//! all that follow are opened with the keys. The costly [steps](crate::steps) may wait for their turn.

use core::fmt;
use std::rc::Rc;

use rustls::server::{Acceptor as Hello, ServerConnection};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};
use sendfile::Handshake as _;
use tls_record::{Cipher, Keys, Records};

use crate::acceptors::Listening;
use crate::established::Established;
use crate::secrets::Secrets;
use crate::steps::{Asker, Step, Stepped, bytes_of};

/// The most bytes that a client may send before its first message is complete. The message of a browser has 2 KiB.
const HELLO_BYTES_MAX: usize = 16 * 1024;
/// The type of a record with a handshake (RFC 8446 §5.1). No request of HTTP begins with it.
const HANDSHAKE: u8 = 22;

/// A handshake that is not complete. It is counted as failed if it is dropped before.
pub(crate) struct Handshake {
    listening: Rc<Listening>,
    state: State,
    /// Asks for the costly steps; they are taken at once if there is none.
    asker: Option<Asker>,
    /// True once it has been counted as complete.
    is_complete: bool,
}

enum State {
    /// The first message of the client has not come completely.
    Hello { hello: Box<Hello>, received: usize },
    /// A step waits for its turn, or is being taken. The client has chosen this site.
    Waiting { site: usize, secrets: Secrets },
    /// The client is asked.
    Chosen(Chosen),
    /// It has failed, or is complete.
    Over,
}

/// A handshake whose client is asked.
struct Chosen {
    connection: Box<ServerConnection>,
    site: usize,
    secrets: Secrets,
    /// True if a step probably signs with RSA.
    is_long: bool,
}

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) records: Records,
    pub(crate) established: Rc<Established>,
}

/// The handshake has failed: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl Handshake {
    pub(crate) fn new(listening: Rc<Listening>) -> Self {
        listening.counters.begin();
        let state = State::Hello { hello: Box::default(), received: 0 };
        Self { listening, state, asker: None, is_complete: false }
    }

    /// Leaves the costly steps to others.
    pub(crate) fn set_asker(&mut self, asker: Asker) {
        self.asker = Some(asker);
    }

    pub(crate) const fn asker(&self) -> Option<&Asker> {
        self.asker.as_ref()
    }

    /// Returns true while a step waits for its turn. No record can be handled then.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// The answer to a client that speaks something else than TLS, if its first bytes are these.
    pub(crate) fn answer_to_plain(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let is_plain = matches!(self.state, State::Hello { received: 0, .. })
            && bytes.first().is_some_and(|first| *first != HANDSHAKE);
        is_plain.then(|| self.listening.answer_to_plain(bytes))
    }

    /// Handles a record, or the head of one that is too long. Appends the records that answer it to `answer`: an alert after
    /// an error. Returns the connection once the handshake is complete.
    pub(crate) fn handle(
        &mut self,
        record: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        let handled = self.handle_record(record, answer);
        if handled.is_err() {
            self.state = State::Over;
        }
        handled
    }

    /// Goes on after a step, if it was taken.
    pub(crate) fn go_on(&mut self, answer: &mut Vec<u8>) -> Result<Option<Box<Open>>, Failed> {
        let Some(stepped) = self.asker.as_ref().and_then(Asker::outcome) else { return Ok(None) };
        let handled = self.handle_step(stepped, answer);
        if handled.is_err() {
            self.state = State::Over;
        }
        handled
    }

    fn handle_record(
        &mut self,
        mut record: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Hello { mut hello, mut received } => {
                while !record.is_empty() {
                    // Its buffer is bounded, too; it does not take all at once.
                    let taken = hello.read_tls(&mut record).map_err(|_| Failed)?;
                    received += taken;
                    match hello.accept() {
                        // What the handshake does not take would be lost.
                        Ok(Some(_)) if !record.is_empty() => return Err(Failed),
                        Ok(Some(accepted)) => {
                            let chosen = self.listening.acceptor.choose(&accepted.client_hello());
                            let step = Step::begin(accepted, chosen.config);
                            return self.step(step, chosen.site, Secrets::default(), answer);
                        }
                        Ok(None) if received > HELLO_BYTES_MAX || taken == 0 => return Err(Failed),
                        Ok(None) => {}
                        Err((_, alert)) => {
                            answer.extend(bytes_of(alert));
                            return Err(Failed);
                        }
                    }
                }
                self.state = State::Hello { hello, received };
                Ok(None)
            }
            State::Chosen(chosen) => {
                let is_costly = self.is_costly(&chosen);
                let Chosen { connection, site, secrets, is_long } = chosen;
                let step = Step::go_on(connection, record, is_long);
                if is_costly {
                    return self.step(step, site, secrets, answer);
                }
                self.state = State::Waiting { site, secrets };
                self.handle_step(step.take(), answer)
            }
            State::Waiting { .. } | State::Over => Err(Failed),
        }
    }

    /// Returns true if the next record of the client may cost much: the key exchange is not done, or the client may show a
    /// certificate. All that is left otherwise is to check a sum.
    fn is_costly(&self, chosen: &Chosen) -> bool {
        chosen.connection.negotiated_key_exchange_group().is_none()
            || self.listening.acceptor.asks_for_certificates(chosen.site)
    }

    /// Takes a step, or asks for it.
    fn step(
        &mut self,
        step: Step,
        site: usize,
        secrets: Secrets,
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        self.state = State::Waiting { site, secrets };
        match &self.asker {
            None => self.handle_step(step.take(), answer),
            Some(asker) => {
                asker.ask(step);
                Ok(None)
            }
        }
    }

    /// Goes on after a step.
    fn handle_step(
        &mut self,
        stepped: Stepped,
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        let Stepped { connection, records, secrets: told, is_long } = stepped;
        answer.extend(records);
        let State::Waiting { site, secrets } = core::mem::replace(&mut self.state, State::Over)
        else {
            return Err(Failed);
        };
        let connection = connection.ok_or(Failed)?;
        // rustls tells both in one step.
        let secrets = if told.client.is_empty() { secrets } else { told };
        let chosen = Chosen { connection, site, secrets, is_long };
        if chosen.connection.is_handshaking() {
            self.state = State::Chosen(chosen);
            return Ok(None);
        }
        self.complete(chosen).map(Some)
    }

    /// Takes the keys, and drops everything that only the handshake needs.
    fn complete(&mut self, chosen: Chosen) -> Result<Box<Open>, Failed> {
        let Chosen { connection, site, secrets, .. } = chosen;
        let established = Established::new(&connection, &self.listening, site);
        let is_tls13 = established.is_tls13();
        let ExtractedSecrets { tx, rx } =
            connection.dangerous_extract_secrets().map_err(|_| Failed)?;
        let [write, read] = if is_tls13 {
            [(tx, &secrets.server), (rx, &secrets.client)]
                .map(|((sequence, keys), secret)| Keys::tls13(cipher(&keys)?, secret, sequence))
        } else {
            [tx, rx].map(|(sequence, keys)| tls12_keys(sequence, &keys))
        };
        let records = Records::new(read.ok_or(Failed)?, write.ok_or(Failed)?);
        self.listening.counters.complete(is_tls13, established.is_resumed());
        self.is_complete = true;
        Ok(Box::new(Open { records, established: Rc::new(established) }))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        if self.asker.as_ref().is_some_and(Asker::is_refused) {
            self.listening.counters.refuse();
        } else {
            self.listening.counters.fail();
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Handshake")
            .field("is_complete", &self.is_complete)
            .finish_non_exhaustive()
    }
}

fn cipher(keys: &ConnectionTrafficSecrets) -> Option<Cipher> {
    match keys {
        ConnectionTrafficSecrets::Aes128Gcm { .. } => Some(Cipher::Aes128Gcm),
        ConnectionTrafficSecrets::Aes256Gcm { .. } => Some(Cipher::Aes256Gcm),
        ConnectionTrafficSecrets::Chacha20Poly1305 { .. } => Some(Cipher::ChaCha20Poly1305),
        _ => None,
    }
}

fn tls12_keys(sequence: u64, keys: &ConnectionTrafficSecrets) -> Option<Keys> {
    let cipher = cipher(keys)?;
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = keys
    else {
        return None;
    };
    Keys::tls12(cipher, key.as_ref(), iv.as_ref().try_into().ok()?, sequence)
}

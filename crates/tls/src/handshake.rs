//! A handshake, by rustls: records in, records out, and in the end the keys.
//!
//! The first message of the client names a server, or else the address of the connection stands for one. The
//! [`Acceptor`](crate::Acceptor) chooses the settings by it, and the handshake goes on with them. rustls keeps no buffer (its
//! unbuffered API), and gets one record at a time. So it has no record left when the handshake is complete: all that follow
//! are opened with the keys. The costly [steps](crate::steps) may wait for their turn.

use core::fmt;
use core::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ring::Time;
use rustls::server::{Acceptor as Hello, ClientHello};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, ServerConfig};
use sendfile::Handshake as _;
use tls_record::{Cipher, Keys, Records};

use crate::acceptor::{Chosen as Settings, host_of};
use crate::acceptors::Listening;
use crate::established::{Asked, Established};
use crate::open::Open;
use crate::secrets::Secrets;
use crate::steps::{Asker, Shaking, Step, Stepped, bytes_of};

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
    /// The bytes that have come while a step waits.
    pub(crate) held: Vec<u8>,
    /// The address to which the client has connected, if that may choose the settings.
    local: Option<IpAddr>,
    /// The time at which the connection was accepted.
    began: Time,
    /// True once it has been counted as complete.
    is_complete: bool,
    /// True if it has failed because of the certificate of the client.
    is_refused: bool,
}

enum State {
    /// The first message of the client has not come completely.
    Hello { hello: Box<Hello>, records: Vec<u8> },
    /// A step waits for its turn, or is being taken.
    Waiting(Choice),
    /// The client is asked.
    Chosen(Chosen),
    /// It has failed, or is complete.
    Over,
}

/// The choices of the client in its first message, and the secrets that have been made since.
struct Choice {
    /// The index of the site; `None` if an authority looks for the answer to a challenge, and the connection ends with
    /// the handshake.
    site: Option<usize>,
    asked: Asked,
    secrets: Secrets,
}

/// A handshake whose client is asked.
struct Chosen {
    choice: Choice,
    shaking: Shaking,
    /// True if a step probably signs with RSA.
    is_long: bool,
}

/// The handshake has failed, or was all that the client wanted: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl Handshake {
    pub(crate) fn new(listening: Rc<Listening>) -> Self {
        let began = listening.counters.begin();
        let state = State::Hello { hello: Box::default(), records: Vec::new() };
        Self {
            listening,
            state,
            asker: None,
            held: Vec::new(),
            local: None,
            began,
            is_complete: false,
            is_refused: false,
        }
    }

    /// Leaves the costly steps to others.
    pub(crate) fn set_asker(&mut self, asker: Asker) {
        self.asker = Some(asker);
    }

    /// Notes the address to which the client has connected, if that may choose the settings.
    pub(crate) fn set_local_address(&mut self, address: impl FnOnce() -> Option<IpAddr>) {
        if self.listening.acceptor.differs_by_address() {
            self.local = address();
        }
    }

    pub(crate) const fn asker(&self) -> Option<&Asker> {
        self.asker.as_ref()
    }

    /// Returns true while a step waits for its turn. No record can be handled then.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// The answer to a client that speaks something else than TLS, if its first bytes are these.
    pub(crate) fn answer_to_plain(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let is_first = matches!(&self.state, State::Hello { records, .. } if records.is_empty());
        let is_plain = is_first && bytes.first().is_some_and(|first| *first != HANDSHAKE);
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
            State::Hello { mut hello, mut records } => {
                records.extend_from_slice(record);
                while !record.is_empty() {
                    // Its buffer is bounded, too; it does not take all in one step.
                    let taken = hello.read_tls(&mut record).map_err(|_| Failed)?;
                    match hello.accept() {
                        // Bytes that the handshake does not read would be lost.
                        Ok(Some(_)) if !record.is_empty() => return Err(Failed),
                        Ok(Some(accepted)) => {
                            let hello = accepted.client_hello();
                            let (config, site, asked) = self.settings_for(&hello);
                            let choice = Choice { site, asked, secrets: Secrets::default() };
                            let step = Step::begin(&accepted, records, config);
                            return self.step(step, choice, answer);
                        }
                        Ok(None) if records.len() > HELLO_BYTES_MAX || taken == 0 => {
                            return Err(Failed);
                        }
                        Ok(None) => {}
                        Err((_, alert)) => {
                            answer.extend(bytes_of(alert));
                            return Err(Failed);
                        }
                    }
                }
                self.state = State::Hello { hello, records };
                Ok(None)
            }
            State::Chosen(chosen) => {
                let is_costly = self.is_costly(&chosen);
                let Chosen { mut shaking, choice, is_long } = chosen;
                shaking.incoming.extend_from_slice(record);
                let step = Step::go_on(shaking, is_long);
                if is_costly {
                    return self.step(step, choice, answer);
                }
                self.state = State::Waiting(choice);
                self.handle_step(step.take(), answer)
            }
            State::Waiting(_) | State::Over => Err(Failed),
        }
    }

    /// The settings with which the handshake goes on, the index of the site, and the host that the client has asked for, by
    /// the client's first message.
    fn settings_for(&self, hello: &ClientHello<'_>) -> (Arc<ServerConfig>, Option<usize>, Asked) {
        let name = hello.server_name();
        let by_name = Asked { host: name.map(Into::into), is_name: true };
        if let Some(config) = self.listening.challenge(hello) {
            return (config, None, by_name);
        }
        let acceptor = &self.listening.acceptor;
        let (Settings { config, site }, asked) = match self.local.filter(|_| name.is_none()) {
            Some(address) => {
                let host = Some(host_of(address).into());
                (acceptor.choose_by_address(address), Asked { host, is_name: false })
            }
            None => (acceptor.choose_by_name(name), by_name),
        };
        (config, Some(site), asked)
    }

    /// Returns true if the next record of the client may cost much: the key exchange is not done, or the client may show a
    /// certificate. All that is left otherwise is to check a sum.
    fn is_costly(&self, chosen: &Chosen) -> bool {
        chosen.shaking.connection.negotiated_key_exchange_group().is_none()
            || chosen
                .choice
                .site
                .is_some_and(|site| self.listening.acceptor.asks_for_certificates(site))
    }

    /// Makes a step, or asks for it.
    fn step(
        &mut self,
        step: Step,
        choice: Choice,
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        self.state = State::Waiting(choice);
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
        let Stepped { shaking, refusal, records, secrets: told, is_long } = stepped;
        answer.extend(records);
        let State::Waiting(mut choice) = core::mem::replace(&mut self.state, State::Over) else {
            return Err(Failed);
        };
        if let Some(refusal) = refusal {
            self.is_refused = true;
            if let Some(asker) = &self.asker {
                asker.tell(refusal, choice.asked.host.take());
            }
        }
        let shaking = shaking.ok_or(Failed)?;
        // rustls tells both in one step.
        if !told.client.is_empty() {
            choice.secrets = told;
        }
        if shaking.connection.is_handshaking() {
            self.state = State::Chosen(Chosen { choice, shaking, is_long });
            return Ok(None);
        }
        self.complete(choice, shaking).map(Some)
    }

    /// Takes the keys, and drops everything that only the handshake needs.
    fn complete(&mut self, choice: Choice, shaking: Shaking) -> Result<Box<Open>, Failed> {
        let Choice { site, asked, secrets } = choice;
        let connection = shaking.connection;
        let Some(site) = site else {
            let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
            self.listening.counters.complete(self.began, is_tls13, false);
            self.is_complete = true;
            return Err(Failed);
        };
        let established = Established::new(&connection, &self.listening, site, asked);
        let is_tls13 = established.is_tls13();
        let (ExtractedSecrets { tx, rx }, _) =
            connection.dangerous_into_kernel_connection().map_err(|_| Failed)?;
        let [write, read] = if is_tls13 {
            [(tx, &secrets.server), (rx, &secrets.client)]
                .map(|((sequence, keys), secret)| Keys::tls13(cipher(&keys)?, secret, sequence))
        } else {
            [tx, rx].map(|(sequence, keys)| tls12_keys(sequence, &keys))
        };
        let records = Records::new(read.ok_or(Failed)?, write.ok_or(Failed)?);
        self.listening.counters.complete(self.began, is_tls13, established.is_resumed());
        self.is_complete = true;
        Ok(Box::new(Open::new(records, established)))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        if self.asker.as_ref().is_some_and(Asker::is_refused) {
            self.listening.counters.refuse();
        } else if self.is_refused {
            self.listening.counters.refuse_client();
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

pub(crate) fn cipher(keys: &ConnectionTrafficSecrets) -> Option<Cipher> {
    match keys {
        ConnectionTrafficSecrets::Aes128Gcm { .. } => Some(Cipher::Aes128Gcm),
        ConnectionTrafficSecrets::Aes256Gcm { .. } => Some(Cipher::Aes256Gcm),
        ConnectionTrafficSecrets::Chacha20Poly1305 { .. } => Some(Cipher::ChaCha20Poly1305),
        _ => None,
    }
}

pub(crate) fn tls12_keys(sequence: u64, keys: &ConnectionTrafficSecrets) -> Option<Keys> {
    let cipher = cipher(keys)?;
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = keys
    else {
        return None;
    };
    Keys::tls12(cipher, key.as_ref(), iv.as_ref().try_into().ok()?, sequence)
}

#[cfg(test)]
mod tests;

//! A handshake, by rustls: records in, records out, and in the end the keys.
//!
//! The first message of the client names a server. The [`Acceptor`](crate::Acceptor) chooses the settings by it, and the
//! handshake goes on with them. rustls gets one record at a time, so that it has none left when the handshake is complete:
//! all that follow are opened with the keys.

use core::fmt;
use std::rc::Rc;

use rustls::server::{Accepted, AcceptedAlert, Acceptor as Hello, ServerConnection};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};
use sendfile::Handshake as _;
use tls_record::{Cipher, Keys, Records};

use crate::acceptors::Listening;
use crate::established::Established;
use crate::secrets::Secrets;

/// The most bytes that a client may send before its first message is complete. The message of a browser has 2 KiB.
const HELLO_BYTES_MAX: usize = 16 * 1024;
/// The type of a record with a handshake (RFC 8446 §5.1). No request of HTTP begins with it.
const HANDSHAKE: u8 = 22;

/// A handshake that is not complete. It is counted as failed if it is dropped before.
pub(crate) struct Handshake {
    listening: Rc<Listening>,
    step: Step,
    /// True once it has been counted as complete.
    is_complete: bool,
}

enum Step {
    /// The first message of the client has not come completely.
    Hello { hello: Box<Hello>, received: usize },
    /// The site has been chosen.
    Chosen { connection: Box<ServerConnection>, site: usize, secrets: Secrets },
    /// It has failed, or is complete.
    Over,
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
        let step = Step::Hello { hello: Box::default(), received: 0 };
        Self { listening, step, is_complete: false }
    }

    /// The answer to a client that speaks something else than TLS, if its first bytes are these.
    pub(crate) fn answer_to_plain(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let is_plain = matches!(self.step, Step::Hello { received: 0, .. })
            && bytes.first().is_some_and(|first| *first != HANDSHAKE);
        is_plain.then(|| self.listening.answer_to_plain(bytes))
    }

    /// Handles a record, or the head of one that is too long. Appends the records that answer it to `answer`: an alert after
    /// an error. Returns the connection once the handshake is complete.
    pub(crate) fn handle(
        &mut self,
        mut record: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        let handled = self.handle_bytes(&mut record, answer);
        // What the handshake does not take would be lost.
        if handled.is_err() || !record.is_empty() {
            self.step = Step::Over;
            return Err(Failed);
        }
        handled
    }

    fn handle_bytes(
        &mut self,
        record: &mut &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Box<Open>>, Failed> {
        while let Step::Hello { hello, received } = &mut self.step {
            // Its buffer is bounded, too; it does not take all at once.
            let taken = hello.read_tls(record).map_err(|_| Failed)?;
            *received += taken;
            let is_too_long = *received > HELLO_BYTES_MAX;
            match hello.accept() {
                Ok(Some(accepted)) => self.choose(accepted, answer)?,
                Ok(None) if is_too_long || taken == 0 => return Err(Failed),
                Ok(None) if record.is_empty() => return Ok(None),
                Ok(None) => {}
                Err((_, alert)) => return Err(tell(alert, answer)),
            }
        }
        let Step::Chosen { connection, secrets, .. } = &mut self.step else { return Err(Failed) };
        loop {
            let taken = connection.read_tls(record).map_err(|_| Failed)?;
            let progress = connection.process_new_packets();
            take_secrets(secrets);
            while connection.wants_write() {
                // Writing to a vector cannot fail.
                connection.write_tls(answer).map_err(|_| Failed)?;
            }
            progress.map_err(|_| Failed)?;
            if record.is_empty() || taken == 0 {
                break;
            }
        }
        if connection.is_handshaking() { Ok(None) } else { self.complete().map(Some) }
    }

    /// Goes on with the settings of the site that the client names.
    fn choose(&mut self, accepted: Accepted, answer: &mut Vec<u8>) -> Result<(), Failed> {
        let chosen = self.listening.acceptor.choose(&accepted.client_hello());
        // Those of another handshake are none of this one's.
        drop(Secrets::take());
        let begun = accepted.into_connection(chosen.config);
        let secrets = Secrets::take();
        let connection = begun.map_err(|(_, alert)| tell(alert, answer))?;
        let site = chosen.site;
        self.step = Step::Chosen { connection: Box::new(connection), site, secrets };
        Ok(())
    }

    /// Takes the keys, and drops everything that only the handshake needs.
    fn complete(&mut self) -> Result<Box<Open>, Failed> {
        let step = core::mem::replace(&mut self.step, Step::Over);
        let Step::Chosen { connection, site, secrets } = step else { return Err(Failed) };
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
        if !self.is_complete {
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

/// Writes an alert.
fn tell(mut alert: AcceptedAlert, answer: &mut Vec<u8>) -> Failed {
    // Writing to a vector cannot fail.
    let _ = alert.write_all(answer);
    Failed
}

/// Takes the secrets that rustls has told in this step. It tells both in one step.
fn take_secrets(secrets: &mut Secrets) {
    let told = Secrets::take();
    if !told.client.is_empty() {
        *secrets = told;
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

//! A handshake with a server, by rustls. It gets one record at a time, so it has none left when it is complete.

use core::fmt;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, ExtractedSecrets, HandshakeKind, ProtocolVersion, pki_types};
use tls_record::{Keys, Records};

use super::fault::ClientFault;
use crate::handshake::{cipher, tls12_keys};
use crate::secrets::Secrets;
use crate::steps::{encode, is_alert};

/// A handshake with a server.
pub(super) struct Shaking {
    connection: Box<UnbufferedClientConnection>,
    /// The records of a message that is not complete. rustls bounds a message (64 KiB).
    incoming: Vec<u8>,
    /// The secrets that rustls has told.
    secrets: Secrets,
}

/// A connection after its handshake.
pub(super) struct Open {
    pub(super) records: Records,
    pub(super) is_resumed: bool,
    /// Keeps the tickets of TLS 1.3.
    kernel: KernelConnection<ClientConnectionData>,
}

impl Shaking {
    /// Begins a handshake. Appends the first message to `answer`.
    pub(super) fn begin(
        config: Arc<ClientConfig>,
        name: pki_types::ServerName<'static>,
        answer: &mut Vec<u8>,
    ) -> Result<Self, ClientFault> {
        // It fails if the system has no random numbers.
        let connection = UnbufferedClientConnection::new(config, name)
            .map_err(|error| ClientFault::of(&error))?;
        let (connection, secrets) = (Box::new(connection), Secrets::default());
        let mut shaking = Self { connection, incoming: Vec::new(), secrets };
        shaking.go_on(answer)?;
        Ok(shaking)
    }

    /// Handles a record. Appends the records that answer it to `answer`: an alert after an error. Returns true once the
    /// handshake is complete.
    pub(super) fn handle(
        &mut self,
        record: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<bool, ClientFault> {
        self.incoming.extend_from_slice(record);
        self.go_on(answer)
    }

    fn go_on(&mut self, answer: &mut Vec<u8>) -> Result<bool, ClientFault> {
        // Those of another handshake are none of this one's.
        drop(Secrets::take());
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let (goes_on, fault) = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, answer);
                    (true, None)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    (true, None)
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
                    (false, None)
                }
                // The server says its end, or sends data before the handshake is complete.
                Ok(_) => (false, Some(ClientFault::Ended)),
                Err(error) => (false, Some(ClientFault::of(&error))),
            };
            self.incoming.drain(..discard);
            if let Some(fault) = fault {
                self.end(answer);
                return Err(fault);
            }
            if !goes_on {
                break;
            }
        }
        let told = Secrets::take();
        // rustls tells both in one step.
        if !told.server.is_empty() {
            self.secrets = told;
        }
        Ok(!self.connection.is_handshaking())
    }

    /// Appends the alert of a handshake that has failed.
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

    /// Takes the keys, after the handshake.
    pub(super) fn complete(self) -> Result<Open, ClientFault> {
        let Self { connection, incoming, secrets } = self;
        let unusable = || ClientFault::Handshake("its keys cannot be used".to_owned());
        // The keys of what has been left are not these.
        if !incoming.is_empty() {
            return Err(unusable());
        }
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let (ExtractedSecrets { tx, rx }, kernel) = connection
            .dangerous_into_kernel_connection()
            .map_err(|error| ClientFault::of(&error))?;
        let [write, read] = if is_tls13 {
            [(tx, &secrets.client), (rx, &secrets.server)]
                .map(|((sequence, keys), secret)| Keys::tls13(cipher(&keys)?, secret, sequence))
        } else {
            [tx, rx].map(|(sequence, keys)| tls12_keys(sequence, &keys))
        };
        let (read, write) = (read.ok_or_else(unusable)?, write.ok_or_else(unusable)?);
        Ok(Open { records: Records::of_client(read, write), is_resumed, kernel })
    }
}

impl Open {
    /// Keeps the tickets that have come, for later connections.
    pub(super) fn keep_tickets(&mut self) {
        while let Some(ticket) = self.records.take_ticket() {
            // A ticket that rustls does not understand resumes nothing, and harms nothing.
            let _ = self.kernel.handle_new_session_ticket(&ticket);
        }
    }
}

impl fmt::Debug for Shaking {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shaking").field("incoming", &self.incoming.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Open").field("records", &self.records).finish_non_exhaustive()
    }
}

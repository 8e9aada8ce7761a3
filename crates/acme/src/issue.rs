//! One order, from its first message to the file with the certificate.
//!
//! ```text
//!   pending ── answer the challenges ──► ready ── send the request for a certificate ──► processing ──► valid
//!      └──────────── a challenge fails ──► invalid
//! ```
//!
//! The order is written to the storage before anything is done for it. A process that finds it there goes on with it: the
//! authority says how far it is.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tls::{Pair, Source, SubjectName};
use zeroize::{Zeroize as _, Zeroizing};

use crate::clock::unix;
use crate::plan::Held;
use crate::protocol::{Authority, Authorization, Failure, Offer, OrderState, renewal_id};
use crate::record::{Challenge, Kind, Order, Record};
use crate::storage::Storage;
use crate::wanted::{Operator, Wanted};

/// The time for an order in one go. What is not done then goes on later.
const ORDER_MAX: Duration = Duration::from_secs(5 * 60);
/// The time between two questions to the authority, from the first to all later ones.
const POLL: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// The time after which each process that has the storage has seen a challenge. They look each second.
const SPREAD: Duration = Duration::from_millis(2500);

/// An order that is carried out.
pub(crate) struct Issue<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) storage: &'a Storage,
    pub(crate) operator: &'a dyn Operator,
    pub(crate) wanted: &'a Wanted,
    /// The kinds of challenges that may be answered, the best first.
    pub(crate) kinds: &'a [Kind],
    pub(crate) record: &'a mut Record,
    pub(crate) record_file: &'a str,
}

impl Issue<'_> {
    /// Carries out the order of the record, or a new one. The record says how far it came. Challenges that were made are
    /// removed.
    pub(crate) fn run(&mut self, replaces: Option<&str>) -> Result<(), Failure> {
        let mut made = Vec::new();
        let result = self.go(replaces, &mut made);
        for challenge in &made {
            // One that stays is removed at the next order.
            let _ = self.storage.remove_challenge(&challenge.token);
        }
        self.operator.set_challenges(&[]);
        if matches!(result, Err(Failure::Refused { .. } | Failure::NoAccount)) {
            self.record.order = None;
        }
        result
    }

    fn go(&mut self, replaces: Option<&str>, made: &mut Vec<Challenge>) -> Result<(), Failure> {
        let until = Instant::now() + ORDER_MAX;
        let (order, mut state) = match self.record.order.clone() {
            Some(order) => {
                let state = self.authority.order(&order.url)?;
                (order, state)
            }
            None => self.begin(replaces)?,
        };
        let mut polls = 0;
        loop {
            match &*state.status {
                "pending" => {
                    self.prove(&state, made, until)?;
                    state = self.authority.order(&order.url)?;
                    if state.status == "pending" {
                        pause(&mut polls, until)?;
                        state = self.authority.order(&order.url)?;
                    }
                }
                "ready" => {
                    let request =
                        request(&self.wanted.names, &order.key).map_err(Failure::Storage)?;
                    state = self.authority.finalize(&state.finalize, &request)?;
                }
                "processing" => {
                    pause(&mut polls, until)?;
                    state = self.authority.order(&order.url)?;
                }
                "valid" => {
                    let url = state.certificate.as_deref();
                    let url = url.ok_or_else(|| {
                        refused("the order is valid, but has no certificate".to_owned())
                    })?;
                    let chain = self.authority.certificate(url)?;
                    return self.keep(&order, &chain);
                }
                status => {
                    let why = state.error.clone();
                    return Err(refused(why.unwrap_or_else(|| format!("the order is {status}"))));
                }
            }
        }
    }

    /// Asks for a new order, which is remembered before anything else is done.
    fn begin(&mut self, replaces: Option<&str>) -> Result<(Order, OrderState), Failure> {
        let random = |error: rcgen::Error| Failure::Storage(format!("cannot make a key: {error}"));
        let mut pair =
            Zeroizing::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(random)?);
        let key = Zeroizing::new(pair.serialize_der());
        pair.zeroize();
        let (url, state) = self.authority.new_order(&self.wanted.names, replaces)?;
        let order = Order { url, names: self.wanted.names.clone(), key, since: unix() };
        self.record.order = Some(order.clone());
        self.write_record()?;
        Ok((order, state))
    }

    fn write_record(&self) -> Result<(), Failure> {
        let text = self.record.to_text();
        self.storage.write(self.record_file, text.as_bytes()).map_err(Failure::Storage)
    }

    /// Answers the challenges of all names, and waits until the authority has looked at them.
    fn prove(
        &mut self,
        state: &OrderState,
        made: &mut Vec<Challenge>,
        until: Instant,
    ) -> Result<(), Failure> {
        let mut waiting = Vec::new();
        for url in &state.authorizations {
            let authorization = self.authority.authorization(url)?;
            match &*authorization.status {
                "valid" => {}
                "pending" => {
                    let (kind, offer) = self.choose(&authorization)?;
                    let challenge = self.authority.challenge(kind, &authorization.name, &offer);
                    self.storage.add(&challenge).map_err(Failure::Storage)?;
                    made.push(challenge);
                    waiting.push((url, offer));
                }
                _ => return Err(refused(failed(&authorization))),
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        self.operator.set_challenges(made);
        thread::sleep(SPREAD);
        for (_, offer) in &waiting {
            // One that the authority looks at already was answered by a process that has died since.
            if offer.status == "pending" {
                self.authority.answer(offer)?;
            }
        }
        let mut polls = 0;
        for (url, _) in waiting {
            loop {
                let authorization = self.authority.authorization(url)?;
                match &*authorization.status {
                    "valid" => break,
                    "pending" => pause(&mut polls, until)?,
                    _ => return Err(refused(failed(&authorization))),
                }
            }
        }
        Ok(())
    }

    /// Chooses a challenge. After each failure another kind is tried, if there are several: one port may be closed.
    fn choose(&self, authorization: &Authorization) -> Result<(Kind, Offer), Failure> {
        let skipped = usize::try_from(self.record.streak).unwrap_or(0) % self.kinds.len().max(1);
        let (later, first) = self.kinds.split_at(skipped.min(self.kinds.len()));
        let offer = |kind: &Kind| {
            let offer = authorization.challenges.iter().find(|it| it.kind == Some(*kind))?;
            Some((*kind, offer.clone()))
        };
        first.iter().chain(later).find_map(offer).ok_or_else(|| {
            let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
            refused(format!(
                "{}: the authority offers none of these challenges: {}",
                authorization.name,
                kinds.join(", ")
            ))
        })
    }

    /// Writes the key and the chain to the file of the certificate.
    fn keep(&mut self, order: &Order, chain: &[u8]) -> Result<(), Failure> {
        let mut bytes = Zeroizing::new(pem("PRIVATE KEY", &order.key).into_bytes());
        // Without a second copy of the key when it grows.
        let mut whole = Zeroizing::new(Vec::with_capacity(bytes.len() + chain.len()));
        whole.append(&mut bytes);
        whole.extend_from_slice(chain);
        let held = held(&self.wanted.names, &whole);
        let held = held.ok_or_else(|| {
            refused(
                "the authority has sent a certificate that is damaged, or for another key"
                    .to_owned(),
            )
        })?;
        if !held.covers {
            return Err(refused(
                "the authority has sent a certificate without some of the names".to_owned(),
            ));
        }
        self.storage.write(&self.wanted.file(), &whole).map_err(Failure::Storage)?;
        self.record.note_success(unix());
        self.write_record()
    }
}

/// Reads the file of a certificate. Returns `None` if the file is damaged.
pub(crate) fn held(names: &[String], file: &[u8]) -> Option<Held> {
    let pair = Pair::read(Source { path: "".as_ref(), bytes: file }, None).ok()?;
    let has = |name: &String| {
        pair.names().iter().any(|it| matches!(it, SubjectName::Dns(it) if it == name))
    };
    let covers = names.iter().all(has);
    Some(Held { not_before: pair.not_before(), not_after: pair.not_after(), covers })
}

/// The name of the certificate of a file for its authority.
pub(crate) fn renewal_id_of(file: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(file).ok()?;
    renewal_id(&certificate)
}

/// The request for a certificate (RFC 2986), without any text but the names.
fn request(names: &[String], key: &[u8]) -> Result<Vec<u8>, String> {
    let cannot = |error: rcgen::Error| format!("cannot make a request for a certificate: {error}");
    let mut params = CertificateParams::new(names).map_err(cannot)?;
    params.distinguished_name = DistinguishedName::new();
    let key = PrivatePkcs8KeyDer::from(key);
    let key =
        KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).map_err(cannot)?;
    let key = Zeroizing::new(key);
    Ok(params.serialize_request(&*key).map_err(cannot)?.der().to_vec())
}

/// A section in the format PEM (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    use base64ct::{Base64, Encoding as _};
    let text = Zeroizing::new(Base64::encode_string(der));
    let mut pem = String::with_capacity(text.len() * 2 + 100);
    pem += &format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem += &format!("-----END {label}-----\n");
    pem
}

const fn refused(text: String) -> Failure {
    Failure::Refused { text, wait: None }
}

/// The words of the authority about a name for which no challenge was met.
fn failed(authorization: &Authorization) -> String {
    let error = authorization.challenges.iter().find_map(|it| it.error.clone());
    let error = error.unwrap_or_else(|| format!("the authorization is {}", authorization.status));
    format!("{}: {error}", authorization.name)
}

/// Waits for a while before the next question.
fn pause(polls: &mut usize, until: Instant) -> Result<(), Failure> {
    if Instant::now() >= until {
        let text = format!("the authority did not decide within {} min", ORDER_MAX.as_secs() / 60);
        return Err(Failure::Unreachable { text, wait: None });
    }
    thread::sleep(POLL[(*polls).min(POLL.len() - 1)]);
    *polls += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_all_names_and_a_file_is_read_as_it_was_written() {
        let names = ["a.example".to_owned(), "b.example".to_owned()];
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let der = request(&names, &pair.serialize_der()).unwrap();
        for name in &names {
            assert!(der.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
        }
        let certificate =
            CertificateParams::new(names.clone()).unwrap().self_signed(&pair).unwrap();
        let file =
            pem("PRIVATE KEY", &pair.serialize_der()) + &pem("CERTIFICATE", certificate.der());
        let found = held(&names[..1], file.as_bytes()).unwrap();
        assert!(found.covers && found.not_before < found.not_after);
        let others = [names[0].clone(), "c.example".to_owned()];
        assert!(!held(&others, file.as_bytes()).unwrap().covers);
        assert_eq!(held(&names, &file.as_bytes()[..file.len() / 2]), None);
        // A self-signed one does not name the key of its issuer.
        assert_eq!(renewal_id_of(file.as_bytes()), None);
    }
}

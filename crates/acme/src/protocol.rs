//! The messages to an authority, and its answers (RFC 8555).

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;
use zeroize::Zeroizing;

use crate::https::{Client, Response};
use crate::jws::{AccountKey, base64url, from_base64url};
use crate::plan::WAIT_MAX;
use crate::record::{Challenge, Kind};
use crate::storage::Storage;

/// The tries of a message. A server that refuses every second nonce refuses this many in a row only once in a million
/// messages.
const NONCES_MAX: usize = 20;
/// The most characters of an authority's words that the operator sees.
const WORDS_MAX: usize = 400;
/// The most authorizations of an order, and challenges of an authorization, that are looked at.
const ITEMS_MAX: usize = 200;

/// A key that the authority has given for an account of another kind (RFC 8555 §7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The name of the key.
    pub id: String,
    /// The file with the key, in base64 for URLs.
    pub key_file: PathBuf,
}

/// The reason why something was not reached.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The authority does not answer, or with an error of its own. The order may still be good.
    Unreachable {
        text: String,
        /// Seconds that the authority asks to wait for.
        wait: Option<i64>,
    },
    /// The authority has refused it.
    Refused { text: String, wait: Option<i64> },
    /// The authority does not know the account any more.
    NoAccount,
    /// The storage cannot be used.
    Storage(String),
}

/// The addresses of an authority, and its terms.
#[derive(Debug)]
struct Directory {
    new_nonce: String,
    new_account: String,
    new_order: String,
    renewal_info: Option<String>,
    terms: Option<String>,
}

/// An authority, with our account.
#[derive(Debug)]
pub(crate) struct Authority {
    client: Client,
    directory: Directory,
    key: AccountKey,
    /// The URL of the account, once it is known.
    account: Option<String>,
    /// The nonce for the next message.
    nonce: Option<String>,
}

/// An order as the authority describes it.
#[derive(Debug)]
pub(crate) struct OrderState {
    pub(crate) status: String,
    pub(crate) authorizations: Vec<String>,
    pub(crate) finalize: String,
    pub(crate) certificate: Option<String>,
    /// The words of the authority about a failure.
    pub(crate) error: Option<String>,
}

/// An authorization for one name.
#[derive(Debug)]
pub(crate) struct Authorization {
    pub(crate) status: String,
    pub(crate) name: String,
    pub(crate) challenges: Vec<Offer>,
}

/// A challenge that the authority offers.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) kind: Option<Kind>,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) status: String,
    pub(crate) error: Option<String>,
}

/// The time in which a certificate should be renewed (RFC 9773 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Seconds to the next question.
    pub(crate) wait: Option<i64>,
}

/// Returns the URL of the terms of service of a directory, if it names one. `roots` is the file of the authorities that may
/// have issued the certificate of its server.
///
/// # Errors
///
/// A sentence for the operator, if the directory cannot be read.
pub fn terms_of_service(directory: &str, roots: &Path) -> Result<Option<String>, String> {
    let directory = Directory::get(&mut Client::new(roots)?, directory);
    directory.map(|it| it.terms).map_err(|failure| failure.to_string())
}

impl Directory {
    fn get(client: &mut Client, url: &str) -> Result<Self, Failure> {
        let response = client.send("GET", url, None).map_err(unreachable)?;
        if response.status != 200 {
            return Err(problem(url, &response));
        }
        let value = json_of(url, &response)?;
        let odd = || unreachable(format!("{url} is no directory of an ACME server"));
        let field = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            new_nonce: field("newNonce").ok_or_else(odd)?,
            new_account: field("newAccount").ok_or_else(odd)?,
            new_order: field("newOrder").ok_or_else(odd)?,
            renewal_info: field("renewalInfo"),
            terms: value["meta"]["termsOfService"].as_str().map(words_of),
        })
    }
}

impl Authority {
    /// Reads the directory, and the account from the storage; makes the account if there is none. The operator has agreed
    /// to the terms. Sentences for the operator are appended to `said`.
    pub(crate) fn open(
        storage: &Storage,
        url: &str,
        roots: &Path,
        contact: &[String],
        external: Option<&ExternalAccount>,
        said: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let mut client = Client::new(roots).map_err(unreachable)?;
        let directory = Directory::get(&mut client, url)?;
        let file = account_file(url, external);
        let stored = storage.read_text(&file).map_err(Failure::Storage)?;
        let stored: Option<Value> = stored.and_then(|text| serde_json::from_str(&text).ok());
        let field = |name: &str| stored.as_ref()?.get(name)?.as_str().map(str::to_owned);
        let key = field("key").and_then(|key| Base64::decode_vec(&key).ok()).map(Zeroizing::new);
        let key = key.and_then(|key| AccountKey::from_pkcs8(&key).ok());
        let account = field("account").filter(|_| key.is_some());
        let no_random = |_| Failure::Storage("the system has no random numbers".to_owned());
        let key = key.map_or_else(|| AccountKey::generate().map_err(no_random), Ok)?;
        let mut authority = Self { client, directory, key, account, nonce: None };
        let same_contact = stored.as_ref().is_some_and(|it| it["contact"] == json!(contact));
        let terms = authority.directory.terms.clone();
        let (is_known, agreed) = (authority.account.is_some(), field("terms"));
        if is_known && same_contact && agreed == terms {
            return Ok(authority);
        }
        let write = |authority: &Self| {
            let text = Zeroizing::new(
                json!({
                    "directory": url,
                    "account": authority.account,
                    "key": Base64::encode_string(authority.key.pkcs8()),
                    "contact": contact,
                    "terms": terms,
                })
                .to_string(),
            );
            storage.write(&file, text.as_bytes()).map_err(Failure::Storage)
        };
        let addresses: Vec<_> = contact.iter().map(|address| format!("mailto:{address}")).collect();
        match authority.account.clone() {
            None => {
                // If the answer is lost, the same key finds the same account.
                write(&authority)?;
                authority.make_account(&addresses, external)?;
                said.push(format!("made an account at {url}"));
            }
            Some(account) if !same_contact => {
                authority.post(&account, Some(&json!({ "contact": addresses })))?;
            }
            Some(_) => {}
        }
        if is_known && agreed != terms {
            let terms = terms.as_deref().unwrap_or("(none)");
            said.push(format!(
                "the terms of service of {url} have changed: read {terms}; `agree-terms = true` says that you agree to them"
            ));
        }
        write(&authority)?;
        Ok(authority)
    }

    fn make_account(
        &mut self,
        contact: &[String],
        external: Option<&ExternalAccount>,
    ) -> Result<(), Failure> {
        let url = self.directory.new_account.clone();
        let mut payload = json!({ "termsOfServiceAgreed": true });
        if !contact.is_empty() {
            payload["contact"] = json!(contact);
        }
        if let Some(ExternalAccount { id, key_file }) = external {
            let key = read_external_key(key_file)
                .map_err(|text| Failure::Refused { text, wait: None })?;
            payload["externalAccountBinding"] = self.key.bind(id, &key, &url);
        }
        let response = self.post(&url, Some(&payload))?;
        let account = response.field("Location").map(str::to_owned);
        self.account = Some(account.ok_or_else(|| unreachable(format!("{url} names no account")))?);
        Ok(())
    }

    /// Forgets the account, which the authority does not know.
    pub(crate) fn forget_account(
        storage: &Storage,
        url: &str,
        external: Option<&ExternalAccount>,
    ) -> Result<(), String> {
        storage.remove(&account_file(url, external))
    }

    /// Asks for a certificate. `replaces` is the certificate that it follows, if the authority wants to know.
    pub(crate) fn new_order(
        &mut self,
        names: &[String],
        replaces: Option<&str>,
    ) -> Result<(String, OrderState), Failure> {
        let url = self.directory.new_order.clone();
        let names: Vec<_> =
            names.iter().map(|name| json!({ "type": "dns", "value": name })).collect();
        let mut payload = json!({ "identifiers": names });
        let replaces = replaces.filter(|_| self.directory.renewal_info.is_some());
        if let Some(replaces) = replaces {
            payload["replaces"] = replaces.into();
        }
        let response = match self.post(&url, Some(&payload)) {
            // The authority may not know that certificate, or another order has replaced it.
            Err(Failure::Refused { wait: None, .. }) if replaces.is_some() => {
                let payload = json!({ "identifiers": names });
                self.post(&url, Some(&payload))?
            }
            other => other?,
        };
        let order = response.field("Location").map(str::to_owned);
        let order = order.ok_or_else(|| unreachable(format!("{url} names no order")))?;
        Ok((order, order_state(&url, &response)?))
    }

    pub(crate) fn order(&mut self, url: &str) -> Result<OrderState, Failure> {
        let response = self.post(url, None)?;
        order_state(url, &response)
    }

    pub(crate) fn authorization(&mut self, url: &str) -> Result<Authorization, Failure> {
        let response = self.post(url, None)?;
        let value = json_of(url, &response)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let challenges = value["challenges"].as_array().into_iter().flatten().take(ITEMS_MAX);
        let offer = |it: &Value| {
            let kind =
                [Kind::Http, Kind::TlsAlpn].into_iter().find(|kind| it["type"] == kind.name());
            let token = text(&it["token"]);
            Offer {
                kind: kind.filter(|_| Challenge::is_token(&token)),
                url: text(&it["url"]),
                token,
                status: text(&it["status"]),
                error: it.get("error").map(error_of),
            }
        };
        Ok(Authorization {
            status: text(&value["status"]),
            name: text(&value["identifier"]["value"]).to_ascii_lowercase(),
            challenges: challenges.map(offer).collect(),
        })
    }

    /// The challenge of an offer, with its answer.
    pub(crate) fn challenge(&self, kind: Kind, name: &str, offer: &Offer) -> Challenge {
        let authorization = format!("{}.{}", offer.token, self.key.thumbprint());
        Challenge { kind, name: name.to_owned(), token: offer.token.clone(), authorization }
    }

    /// Tells the authority that the answer to a challenge can be found.
    pub(crate) fn answer(&mut self, offer: &Offer) -> Result<(), Failure> {
        self.post(&offer.url, Some(&json!({}))).map(drop)
    }

    /// Asks for the certificate of an order that is ready.
    pub(crate) fn finalize(&mut self, url: &str, request: &[u8]) -> Result<OrderState, Failure> {
        let response = self.post(url, Some(&json!({ "csr": base64url(request) })))?;
        order_state(url, &response)
    }

    /// Returns a chain of certificates in the format PEM.
    pub(crate) fn certificate(&mut self, url: &str) -> Result<Vec<u8>, Failure> {
        self.post(url, None).map(|response| response.body)
    }

    /// Asks when to renew a certificate; `None` if the authority does not say such times.
    pub(crate) fn window(&mut self, id: &str) -> Result<Option<Window>, Failure> {
        let Some(renewal_info) = &self.directory.renewal_info else { return Ok(None) };
        let url = format!("{}/{id}", renewal_info.trim_end_matches('/'));
        let response = self.client.send("GET", &url, None).map_err(unreachable)?;
        if response.status != 200 {
            return Err(problem(&url, &response));
        }
        let value = json_of(&url, &response)?;
        let time = |name: &str| value["suggestedWindow"][name].as_str().and_then(seconds);
        let window = time("start").zip(time("end")).filter(|(start, end)| start <= end);
        let wait = wait_of(&response);
        Ok(window.map(|(start, end)| Window { start, end, wait }))
    }

    /// Sends a signed message. A refused nonce is replaced.
    fn post(&mut self, url: &str, payload: Option<&Value>) -> Result<Response, Failure> {
        let mut failure = unreachable(format!("{url} refuses all nonces"));
        for _ in 0..NONCES_MAX {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => self.new_nonce()?,
            };
            let message = self.key.sign(self.account.as_deref(), &nonce, url, payload);
            let message =
                message.map_err(|_| unreachable("the system has no random numbers".to_owned()))?;
            let response = self.client.send("POST", url, Some(&message)).map_err(unreachable)?;
            self.nonce = response.field("Replay-Nonce").map(str::to_owned);
            if (200..300).contains(&response.status) {
                return Ok(response);
            }
            failure = problem(url, &response);
            if kind_of(&response) != "badNonce" {
                return Err(failure);
            }
        }
        Err(failure)
    }

    fn new_nonce(&mut self) -> Result<String, Failure> {
        let url = &self.directory.new_nonce;
        let response = self.client.send("HEAD", url, None).map_err(unreachable)?;
        let nonce = response.field("Replay-Nonce").map(str::to_owned);
        nonce.ok_or_else(|| unreachable(format!("{url} gives no nonce")))
    }
}

/// Checks the key of an external account. If the storage has the account that was made with the key, nothing needs the key.
///
/// # Errors
///
/// A sentence for the operator.
pub fn check_external_key(
    storage: Option<&Storage>,
    url: &str,
    external: &ExternalAccount,
) -> Result<(), String> {
    let file = account_file(url, Some(external));
    let stored = storage.and_then(|storage| storage.read_text(&file).ok().flatten());
    let stored = stored.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    if stored.is_some_and(|stored| stored["account"].is_string()) {
        return Ok(());
    }
    read_external_key(&external.key_file).map(drop)
}

/// Reads the key of an external account.
fn read_external_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map(Zeroizing::new);
    let text =
        text.map_err(|error| format!("cannot read {shown}: {}", crate::storage::words(&error)))?;
    let key = from_base64url(&text).filter(|key| !key.is_empty());
    key.ok_or_else(|| format!("{shown} is no key of an external account, which is base64 for URLs"))
}

fn account_file(url: &str, external: Option<&ExternalAccount>) -> String {
    let id = external.map_or("", |external| &external.id);
    format!("{}.account", hash_of(&format!("{url}\n{id}")))
}

/// The file with the record of a directory.
pub(crate) fn directory_file(url: &str) -> String {
    format!("{}.state", hash_of(url))
}

/// The beginning of the SHA-256 of a text, as a name.
fn hash_of(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn order_state(url: &str, response: &Response) -> Result<OrderState, Failure> {
    let value = json_of(url, response)?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(status), Some(finalize)) = (text("status"), text("finalize")) else {
        return Err(unreachable(format!("{url} is no order")));
    };
    let authorizations = value["authorizations"].as_array().into_iter().flatten().take(ITEMS_MAX);
    Ok(OrderState {
        status,
        authorizations: authorizations.filter_map(Value::as_str).map(str::to_owned).collect(),
        finalize,
        certificate: text("certificate"),
        error: value.get("error").map(error_of),
    })
}

/// The name of a certificate for its authority (RFC 9773 §4.1); `None` if it does not name the key of its issuer.
pub(crate) fn renewal_id(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let certificate = certificate.tbs_certificate();
    let (_, issuer) = certificate.get_extension::<AuthorityKeyIdentifier>().ok()??;
    let issuer = issuer.key_identifier?;
    let serial = certificate.serial_number();
    Some(format!("{}.{}", base64url(issuer.as_bytes()), base64url(serial.as_bytes())))
}

fn json_of(url: &str, response: &Response) -> Result<Value, Failure> {
    serde_json::from_slice(&response.body)
        .map_err(|_| unreachable(format!("the response of {url} is no JSON")))
}

const fn unreachable(text: String) -> Failure {
    Failure::Unreachable { text, wait: None }
}

/// The last part of the type of a problem (RFC 8555 §6.7), such as `badNonce`.
fn kind_of(response: &Response) -> String {
    let value: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let kind = value["type"].as_str().unwrap_or_default();
    kind.rsplit(':').next().unwrap_or_default().to_owned()
}

/// The failure that a response reports.
fn problem(url: &str, response: &Response) -> Failure {
    let (status, wait) = (response.status, wait_of(response));
    let value: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let words = if value.is_object() { error_of(&value) } else { "it does not say why".to_owned() };
    let text = format!("{url} answered {status}: {words}");
    match kind_of(response).as_str() {
        "accountDoesNotExist" => Failure::NoAccount,
        _ if status >= 500 => Failure::Unreachable { text, wait },
        _ => Failure::Refused { text, wait },
    }
}

/// The words of an authority about a problem, with those about single names.
fn error_of(problem: &Value) -> String {
    let one = |problem: &Value| {
        let kind = problem["type"].as_str().unwrap_or_default();
        let kind = kind.rsplit(':').next().unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("it does not say why");
        let name = problem["identifier"]["value"].as_str();
        let name = name.map_or_else(String::new, |name| format!("{name}: "));
        // The page where an operator has to agree to new terms (RFC 8555 §7.3.3).
        let page =
            problem["instance"].as_str().map_or_else(String::new, |page| format!(" (see {page})"));
        format!("{name}{detail}{page} ({kind})")
    };
    let all = problem["subproblems"].as_array().into_iter().flatten().take(ITEMS_MAX).map(one);
    let all: Vec<_> = core::iter::once(one(problem)).chain(all).collect();
    words_of(&all.join("; "))
}

/// A text of the authority, shortened. Who prints it escapes what a terminal would interpret.
fn words_of(text: &str) -> String {
    let mut short: String = text.chars().take(WORDS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The seconds of `Retry-After`, at most a day. Authorities send a number.
fn wait_of(response: &Response) -> Option<i64> {
    let seconds: i64 = response.field("Retry-After")?.trim().parse().ok()?;
    (seconds >= 0).then(|| seconds.min(WAIT_MAX))
}

/// Reads a time of RFC 3339 in UTC, in seconds since 1970.
fn seconds(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (day, time) = text.split_once(['T', 't'])?;
    let number = |text: &str, range: core::ops::RangeInclusive<i64>| {
        let number: i64 = text.parse().ok()?;
        (text.bytes().all(|byte| byte.is_ascii_digit()) && range.contains(&number))
            .then_some(number)
    };
    let mut day = day.split('-');
    let year = number(day.next()?, 1970..=9999)?;
    let (month, day) = (number(day.next()?, 1..=12)?, number(day.next()?, 1..=31)?);
    let mut time = time.split('.').next()?.split(':');
    let (hour, minute) = (number(time.next()?, 0..=23)?, number(time.next()?, 0..=59)?);
    let second = number(time.next()?, 0..=60)?;
    // The days since 1970, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

impl core::fmt::Display for Failure {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unreachable { text, .. } | Self::Refused { text, .. } | Self::Storage(text) => {
                out.write_str(text)
            }
            Self::NoAccount => out.write_str("the authority does not know the account any more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_authorities_write_them() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-07-01T12:00:00Z", Some(1_782_907_200)),
            ("2024-02-29T23:59:59.123456789Z", Some(1_709_251_199)),
            ("2000-03-01T00:00:00+00:00", Some(951_868_800)),
            ("2026-07-01T12:00:00+02:00", None),
            ("2026-13-01T12:00:00Z", None),
            ("2026-07-01", None),
            ("-1-1-1T1:1:1Z", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn the_words_of_an_authority_have_all_names_and_an_end() {
        let problem = json!({
            "type": "urn:ietf:params:acme:error:compound",
            "detail": "Some names",
            "subproblems": [{
                "type": "urn:ietf:params:acme:error:dns",
                "detail": "no such name",
                "identifier": { "type": "dns", "value": "a.example" },
            }],
        });
        assert_eq!(error_of(&problem), "Some names (compound); a.example: no such name (dns)");
        let long = json!({ "type": "x", "detail": "é".repeat(1000) });
        assert_eq!(error_of(&long).chars().count(), WORDS_MAX + 1);
        assert_eq!(error_of(&json!([])), "it does not say why ()");
    }
}

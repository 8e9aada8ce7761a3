//! The records of certificates and of challenges, and their form in files. Pure.

use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The failures of a certificate in an hour. Let's Encrypt permits as many for a name (2026).
pub(crate) const FAILURES_PER_HOUR_MAX: usize = 5;
/// The orders of a certificate in a day, those that succeed included.
pub(crate) const ORDERS_PER_DAY_MAX: usize = 24;

/// The record of a certificate. All times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The directory of the authority that all but `issued_by` is about; empty if nothing is known.
    pub(crate) directory: String,
    /// The directory of the authority that has issued the certificate.
    pub(crate) issued_by: Option<String>,
    /// The order that is under way.
    pub(crate) order: Option<Order>,
    /// The times of the last orders, at most [`ORDERS_PER_DAY_MAX`].
    pub(crate) orders: Vec<i64>,
    /// The times of the last failures, at most [`FAILURES_PER_HOUR_MAX`].
    pub(crate) failures: Vec<i64>,
    /// The number of failures since the last success.
    pub(crate) streak: u32,
    /// The time before which the authority wants to hear nothing (`Retry-After`).
    pub(crate) not_before: Option<i64>,
    /// The time at which the certificate came.
    pub(crate) issued_at: Option<i64>,
    /// The time of renewal that the authority has named.
    pub(crate) renew_at: Option<i64>,
    /// The time for the next question about that time.
    pub(crate) ask_at: Option<i64>,
}

/// An order that is under way.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) url: String,
    /// The names that were asked for.
    pub(crate) names: Vec<String>,
    /// The private key of the certificate, in PKCS#8.
    pub(crate) key: Zeroizing<Vec<u8>>,
    pub(crate) since: i64,
}

impl core::fmt::Debug for Order {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Order")
            .field("url", &self.url)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl Record {
    /// Leaves what counts for an authority and for these names. The times of orders and failures count for all authorities,
    /// so that two processes that name different ones do not order in turn for ever.
    pub(crate) fn narrow(self, directory: &str, names: &[String]) -> Self {
        let mut record = self;
        if record.directory != directory {
            let Self { issued_by, orders, failures, .. } = record;
            record = Self { issued_by, orders, failures, ..Self::default() };
            directory.clone_into(&mut record.directory);
        }
        record.order = record.order.filter(|order| order.names == names);
        record
    }

    /// Notes an order, which is about to be asked for.
    pub(crate) fn note_order(&mut self, now: i64) {
        push(&mut self.orders, now, ORDERS_PER_DAY_MAX);
    }

    /// Notes a failure.
    pub(crate) fn note_failure(&mut self, now: i64, not_before: Option<i64>) {
        push(&mut self.failures, now, FAILURES_PER_HOUR_MAX);
        self.streak = self.streak.saturating_add(1);
        self.not_before = not_before;
    }

    /// Notes that the certificate was issued.
    pub(crate) fn note_success(&mut self, now: i64) {
        self.order = None;
        self.streak = 0;
        self.not_before = None;
        self.issued_at = Some(now);
        self.issued_by = Some(self.directory.clone());
        self.renew_at = None;
        self.ask_at = None;
    }

    /// The text of a file.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let order = self.order.as_ref().map(|order| {
            json!({
                "url": order.url,
                "names": order.names,
                "key": Base64::encode_string(&order.key),
                "since": order.since,
            })
        });
        let value = json!({
            "directory": self.directory,
            "issued-by": self.issued_by,
            "order": order,
            "orders": self.orders,
            "failures": self.failures,
            "streak": self.streak,
            "not-before": self.not_before,
            "issued-at": self.issued_at,
            "renew-at": self.renew_at,
            "ask-at": self.ask_at,
        });
        Zeroizing::new(value.to_string())
    }

    /// Reads the text of a file; `None` if it is damaged.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let times = |name: &str| -> Option<Vec<i64>> {
            value.get(name)?.as_array()?.iter().map(Value::as_i64).collect()
        };
        let time = |name: &str| value.get(name).and_then(Value::as_i64);
        let order = match value.get("order")? {
            Value::Null => None,
            order => Some(Order {
                url: order.get("url")?.as_str()?.to_owned(),
                names: order
                    .get("names")?
                    .as_array()?
                    .iter()
                    .map(text_of)
                    .collect::<Option<_>>()?,
                key: Zeroizing::new(Base64::decode_vec(order.get("key")?.as_str()?).ok()?),
                since: order.get("since")?.as_i64()?,
            }),
        };
        Some(Self {
            directory: value.get("directory").and_then(text_of)?,
            issued_by: value.get("issued-by").and_then(text_of),
            order,
            orders: times("orders")?,
            failures: times("failures")?,
            streak: value.get("streak")?.as_u64()?.try_into().ok()?,
            not_before: time("not-before"),
            issued_at: time("issued-at"),
            renew_at: time("renew-at"),
            ask_at: time("ask-at"),
        })
    }
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Appends a time, and keeps the last `max`.
fn push(times: &mut Vec<i64>, now: i64, max: usize) {
    times.push(now);
    let surplus = times.len().saturating_sub(max);
    times.drain(..surplus);
}

/// The kind of a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file at `/.well-known/acme-challenge/`, by HTTP on port 80 (RFC 8555 §8.3).
    Http,
    /// A certificate in a handshake on port 443 (RFC 8737).
    TlsAlpn,
}

impl Kind {
    /// The name in the protocol and in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }
}

/// A challenge of an authority that may look for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The way in which the authority looks for the answer.
    pub kind: Kind,
    /// The name in DNS that it is about, in lower case.
    pub name: String,
    /// Letters, digits, `-` and `_` (RFC 8555 §8.3).
    pub token: String,
    /// The answer (RFC 8555 §8.1).
    pub authorization: String,
}

impl Challenge {
    /// The most bytes of a token. Authorities use 43.
    const TOKEN_BYTES_MAX: usize = 200;

    /// The SHA-256 of the answer, which a certificate for `tls-alpn-01` has (RFC 8737 §3).
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, self.authorization.as_bytes()).as_ref());
        sum
    }

    /// Returns true if a token is one that can be a part of a path and of a file's name.
    pub(crate) fn is_token(token: &str) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !token.is_empty() && token.len() <= Self::TOKEN_BYTES_MAX && token.bytes().all(is_valid)
    }

    /// The text of a file.
    pub(crate) fn to_text(&self) -> String {
        let kind = self.kind.name();
        json!({ "kind": kind, "name": self.name, "token": self.token, "answer": self.authorization }).to_string()
    }

    /// Reads the text of a file; `None` if it is damaged.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let kind = field("kind")?;
        let kind = [Kind::Http, Kind::TlsAlpn].into_iter().find(|it| it.name() == kind)?;
        let token = field("token").filter(|token| Self::is_token(token))?;
        Some(Self { kind, name: field("name")?, token, authorization: field("answer")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = Record::default();
        assert_eq!(Record::from_text(&record.to_text()), Some(record.clone()));
        let key = Zeroizing::new(vec![0, 1, 255]);
        let (url, names) = ("https://a/\"o\"".to_owned(), vec!["a".to_owned()]);
        record.order = Some(Order { url, names, key, since: -7 });
        record.directory = "https://a/".to_owned();
        record.issued_by = Some("https://b/".to_owned());
        (0..40).for_each(|at| record.note_order(at));
        (0..40).for_each(|at| record.note_failure(at, Some(at)));
        record.renew_at = Some(9);
        assert_eq!(Record::from_text(&record.to_text()), Some(record.clone()));
        assert_eq!(record.orders, (40 - 24..40).collect::<Vec<_>>());
        assert_eq!(record.failures, [35, 36, 37, 38, 39]);
        for damaged in ["", "{", "[]", "{}", r#"{"order":{},"orders":[],"failures":[],"streak":0}"#]
        {
            assert_eq!(Record::from_text(damaged), None, "{damaged}");
        }
        assert!(!format!("{record:?}").contains("255"), "no part of the key is shown");
    }

    #[test]
    fn what_is_known_of_another_authority_or_of_other_names_does_not_count() {
        let names = ["a".to_owned()];
        let order =
            Order { url: String::new(), names: names.to_vec(), key: Vec::new().into(), since: 0 };
        let mut record = Record { order: Some(order), ..Record::default() }.narrow("one", &[]);
        assert_eq!(record.order, None, "of the authority before");
        record.note_failure(1, None);
        record.note_success(2);
        record.note_failure(3, None);
        assert_eq!(record.clone().narrow("one", &names), record);
        let other = record.narrow("two", &names);
        assert_eq!((other.streak, &*other.failures, &*other.directory), (0, &[1, 3][..], "two"));
        assert_eq!(other.issued_by.as_deref(), Some("one"));
    }

    #[test]
    fn a_challenge_is_read_as_it_was_written_and_its_token_is_a_name() {
        let challenge = |token: &str| Challenge {
            kind: Kind::TlsAlpn,
            name: "a.example".to_owned(),
            token: token.to_owned(),
            authorization: "x.y".to_owned(),
        };
        let good = challenge("aZ-_9");
        assert_eq!(Challenge::from_text(&good.to_text()), Some(good));
        for bad in ["", ".", "..", "a/b", "a.b", "a b", &"x".repeat(201)] {
            assert_eq!(Challenge::from_text(&challenge(bad).to_text()), None, "{bad}");
        }
    }
}

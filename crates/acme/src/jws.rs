//! Signed messages (RFC 7515): the key of an account, and the key that an authority gives for an external account.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The bytes of a coordinate of P-256, and the first byte of a point that is not compressed (SEC 1 §2.3.3).
const COORDINATE_BYTES: usize = 32;

/// The key of an account: ECDSA with P-256.
pub(crate) struct AccountKey {
    pair: EcdsaKeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
}

/// The system has no random numbers, or a key is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoKey;

impl AccountKey {
    pub(crate) fn generate() -> Result<Self, NoKey> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        Self::from_pkcs8(pkcs8.map_err(|_| NoKey)?.as_ref())
    }

    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, NoKey> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        Ok(Self { pair: pair.map_err(|_| NoKey)?, pkcs8: Zeroizing::new(pkcs8.to_vec()) })
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The public key as JSON. Its members are in the order of RFC 7638 §3.2.
    fn jwk(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(COORDINATE_BYTES);
        json!({ "crv": "P-256", "kty": "EC", "x": base64url(x), "y": base64url(y) })
    }

    /// The thumbprint of the public key (RFC 7638), which is a part of the answers to challenges.
    pub(crate) fn thumbprint(&self) -> String {
        // The members of a value are sorted, as the thumbprint wants them.
        base64url(digest(&SHA256, self.jwk().to_string().as_bytes()).as_ref())
    }

    /// Signs a message to `url`. Without `account`, the URL of an account, the message has the public key. A message
    /// without a payload reads (RFC 8555 §6.3).
    pub(crate) fn sign(
        &self,
        account: Option<&str>,
        nonce: &str,
        url: &str,
        payload: Option<&Value>,
    ) -> Result<String, NoKey> {
        let mut header = json!({ "alg": "ES256", "nonce": nonce, "url": url });
        match account {
            Some(account) => header["kid"] = account.into(),
            None => header["jwk"] = self.jwk(),
        }
        let payload = payload.map(Value::to_string).unwrap_or_default();
        let random = SystemRandom::new();
        let message = message(&header, payload.as_bytes(), |signed| {
            self.pair
                .sign(&random, signed)
                .map(|signature| base64url(signature.as_ref()))
                .map_err(|_| NoKey)
        });
        Ok(message?.to_string())
    }

    /// The binding of this key to an external account (RFC 8555 §7.3.4), for an account that is made at `url`.
    pub(crate) fn bind(&self, id: &str, key: &[u8], url: &str) -> Value {
        let header = json!({ "alg": "HS256", "kid": id, "url": url });
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let bound: Result<_, core::convert::Infallible> =
            message(&header, self.jwk().to_string().as_bytes(), |signed| {
                Ok(base64url(hmac::sign(&key, signed).as_ref()))
            });
        match bound {
            Ok(bound) => bound,
            Err(never) => match never {},
        }
    }
}

impl core::fmt::Debug for AccountKey {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("AccountKey").finish_non_exhaustive()
    }
}

/// A message in the flattened form (RFC 7515 §7.2.2).
fn message<E>(
    header: &Value,
    payload: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<String, E>,
) -> Result<Value, E> {
    let protected = base64url(header.to_string().as_bytes());
    let payload = base64url(payload);
    let signature = sign(format!("{protected}.{payload}").as_bytes())?;
    Ok(json!({ "protected": protected, "payload": payload, "signature": signature }))
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

/// Reads base64 as authorities give the key of an external account: for URLs, with or without padding.
pub(crate) fn from_base64url(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    Base64UrlUnpadded::decode_vec(text.trim().trim_end_matches('=')).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_message_can_be_verified_with_the_key_in_it() {
        let key = AccountKey::generate().unwrap();
        let payload = json!({ "a": 1 });
        let signed = key.sign(None, "n", "https://a/b", Some(&payload)).unwrap();
        let signed: Value = serde_json::from_str(&signed).unwrap();
        let part = |name: &str| signed[name].as_str().unwrap().to_owned();
        let header = from_base64url(&part("protected")).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!((header["alg"].as_str(), header["nonce"].as_str()), (Some("ES256"), Some("n")));
        let mut point = vec![4];
        for name in ["x", "y"] {
            point
                .extend_from_slice(&from_base64url(header["jwk"][name].as_str().unwrap()).unwrap());
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        let text = format!("{}.{}", part("protected"), part("payload"));
        key.verify(text.as_bytes(), &from_base64url(&part("signature")).unwrap()).unwrap();
        assert_eq!(&*from_base64url(&part("payload")).unwrap(), br#"{"a":1}"#);
    }

    #[test]
    fn a_message_of_an_account_names_it_and_a_message_that_reads_is_empty() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::from_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(key.thumbprint(), again.thumbprint());
        let signed = again.sign(Some("https://a/acct/1"), "n", "https://a/b", None).unwrap();
        let signed: Value = serde_json::from_str(&signed).unwrap();
        let header = from_base64url(signed["protected"].as_str().unwrap()).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!(header["kid"].as_str(), Some("https://a/acct/1"));
        assert!(header.get("jwk").is_none());
        assert_eq!(signed["payload"].as_str(), Some(""));
    }

    #[test]
    fn keys_of_external_accounts_come_with_and_without_padding() {
        for (text, expected) in [
            ("AQI", Some(&[1, 2][..])),
            ("AQI=\n", Some(&[1, 2])),
            ("-_8", Some(&[251, 255])),
            ("+/8", None),
        ] {
            assert_eq!(from_base64url(text).as_deref().map(Vec::as_slice), expected, "{text}");
        }
    }
}

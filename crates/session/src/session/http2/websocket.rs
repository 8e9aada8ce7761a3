//! The request for an upgrade that replaces a request for a tunnel, and the key that its server has to accept.
//!
//! Reading list: RFC 6455 §1.3, §4; RFC 8441 §5.

use base64ct::{Base64, Encoding as _};
use http::{Field, FieldIndex, FieldSection, Framing, Head, Method};

/// The name of the protocol, in requests of both versions.
pub(super) const WEBSOCKET: &[u8] = b"websocket";
pub(super) const UPGRADE: &[u8] = b"Upgrade";
const KEY: &[u8] = b"Sec-WebSocket-Key";
pub(super) const ACCEPT: &[u8] = b"Sec-WebSocket-Accept";
/// The text after a key when a server accepts it (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The tunnel of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// The request asks for none, or it was refused.
    No,
    /// The response decides. An upstream was given this key.
    Asked(Key),
    /// The response has begun it.
    Open,
}

/// The value of `Sec-WebSocket-Key`: 16 random bytes in Base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key([u8; 24]);

impl Key {
    pub(super) fn new([high, low]: [u64; 2]) -> Self {
        let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let mut key = [0; 24];
        Base64::encode(&bytes, &mut key).expect("16 bytes are 24 in Base64");
        Self(key)
    }

    /// Returns true if a server accepts this key, by exactly one field.
    pub(super) fn is_accepted(self, fields: &FieldSection<'_>) -> bool {
        let digest = sha1_smol::Sha1::from([&self.0, GUID].concat()).digest().bytes();
        let mut wanted = [0; 28];
        Base64::encode(&digest, &mut wanted).expect("20 bytes are 28 in Base64");
        let is_accept = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(ACCEPT);
        let mut values = fields.fields().filter(is_accept).map(|(_, value)| value);
        values.next() == Some(&wanted) && values.next().is_none()
    }
}

/// The field lines of a request for an upgrade.
pub(super) struct Upgrade {
    lines: Vec<u8>,
    index: FieldIndex,
}

impl Upgrade {
    pub(super) fn of(head: &Head<'_>, Key(key): Key) -> Self {
        let mut upgrade = Self { lines: Vec::new(), index: FieldIndex::EMPTY };
        let is_own = |name: &[u8]| [UPGRADE, KEY].iter().any(|own| own.eq_ignore_ascii_case(name));
        for (name, value) in head.fields().filter(|(name, _)| !is_own(name)) {
            upgrade.push(name, value);
        }
        upgrade.push(UPGRADE, WEBSOCKET);
        upgrade.push(KEY, &key);
        upgrade
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        http::push_line(&mut self.lines, name, value);
        if let Some(field) = Field::of_name(name) {
            let end = self.lines.len() - b"\r\n".len();
            self.index.add(field, end - value.len()..end);
        }
    }

    pub(super) fn head<'a>(&'a self, head: &Head<'a>) -> Head<'a> {
        head.with_lines(&self.lines, self.index.clone())
            .with_target(Method::Get, head.target)
            .with_framing(Framing::Tunnel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of RFC 6455 §1.3.
    const EXAMPLE: Key = Key(*b"dGhlIHNhbXBsZSBub25jZQ==");

    #[test]
    fn rfc6455_1_3_a_key_is_accepted_by_its_hash_alone() {
        let right: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        for (values, is_accepted) in [
            (&[right][..], true),
            (&[], false),
            (&[right, right], false),
            (&[b"S3pPLMBiTxaQ9kYGzzhZRbK+xOo="], false),
            (&[b""], false),
        ] {
            let mut fields = FieldSection::EMPTY;
            fields.push(b"Server", b"s");
            values.iter().for_each(|value| fields.push(b"sec-websocket-accept", value));
            assert_eq!(EXAMPLE.is_accepted(&fields), is_accepted, "{fields:?}");
        }
        assert_eq!(Key::new([0, 0]), Key(*b"AAAAAAAAAAAAAAAAAAAAAA=="));
        assert_ne!(Key::new([0, 1]), Key::new([1, 0]));
    }

    #[test]
    fn a_request_for_a_tunnel_is_one_for_an_upgrade() {
        let lines = b"origin: a\r\nsec-websocket-key: theirs\r\nsec-websocket-version: 13\r\n\
                      host: b\r\n";
        let target = http::Target::Origin { path: b"/a", query: None };
        let version = http::Version::Http2;
        let index = FieldIndex::EMPTY;
        let asked = Head::new(Method::Connect, target, version, Some(b"b"), lines, index);
        let upgrade = Upgrade::of(&asked, EXAMPLE);
        let head = upgrade.head(&asked);
        let fields: Vec<_> = head.fields().collect();
        let expected: [(&[u8], &[u8]); 5] = [
            (b"origin", b"a"),
            (b"sec-websocket-version", b"13"),
            (b"host", b"b"),
            (UPGRADE, WEBSOCKET),
            (KEY, b"dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        assert_eq!(fields, expected);
        assert_eq!((head.method, head.framing), (Method::Get, Framing::Tunnel));
        assert_eq!((head.host(), head.field(Field::Host)), (Some(&b"b"[..]), Some(&b"b"[..])));
    }
}

//! The facts of a handshake in the form in which applications get them.

use core::fmt::Write as _;
use std::borrow::Cow;

use http::bytes::{self, VALUE};

/// The text of a fact, which a client or its authority has chosen, without characters that would end a field or a variable:
/// these are written in the form of RFC 4514 §2.4, as `\\0D`.
pub(crate) fn safe(text: &str) -> Cow<'_, [u8]> {
    if bytes::skip_value(text.as_bytes(), 0) == text.len() {
        return text.as_bytes().into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match u8::try_from(char) {
            Ok(byte) if !bytes::is(byte, VALUE) => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\{byte:02X}");
            }
            _ => escaped.push(char),
        }
    }
    escaped.into_bytes().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use sendfile::Handshake;

    use super::*;

    /// A handshake of a client that has named a server and has shown a certificate, or has done neither.
    #[derive(Debug)]
    pub(crate) struct Said(pub(crate) Option<(&'static str, &'static str)>);

    impl Handshake for Said {
        fn version(&self) -> &'static str {
            "TLSv1.3"
        }

        fn cipher(&self) -> Option<&'static str> {
            self.0.map(|_| "TLS_AES_128_GCM_SHA256")
        }

        fn server_name(&self) -> Option<&str> {
            self.0.map(|(name, _)| name)
        }

        fn client(&self) -> Option<&str> {
            self.0.map(|(_, client)| client)
        }

        fn is_resumed(&self) -> bool {
            false
        }

        fn permits(&self, _host: Option<&str>) -> bool {
            true
        }
    }

    #[test]
    fn rfc4514_2_4_no_character_ends_a_line_or_a_variable() {
        for (text, expected) in [
            ("", ""),
            ("CN=Al Ice,O=\u{e4} \u{20ac}", "CN=Al Ice,O=\u{e4} \u{20ac}"),
            ("CN=a\r\nX-B: c", "CN=a\\0D\\0AX-B: c"),
            ("CN=\0\u{7f}\u{85}", "CN=\\00\\7F\u{85}"),
        ] {
            let escaped = safe(text);
            assert_eq!(str::from_utf8(&escaped), Ok(expected));
            assert!(escaped.iter().all(|&byte| bytes::is(byte, VALUE)), "{text:?}");
        }
    }
}

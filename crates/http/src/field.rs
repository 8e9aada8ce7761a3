//! The request fields that the server looks at.
//!
//! Reading list: RFC 9110 §5.

/// Declares [`Field`] and its names from one table.
macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        /// A request field that is remembered while a head is parsed, so that looking it up costs
        /// nothing.
        ///
        /// All other fields are checked and passed over.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Field {
            /// Every field of the enum, in its order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The field's name as it is usually written.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

fields! {
    Accept = "Accept",
    AcceptEncoding = "Accept-Encoding",
    Authorization = "Authorization",
    Connection = "Connection",
    ContentLength = "Content-Length",
    Expect = "Expect",
    Host = "Host",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    Range = "Range",
    Referer = "Referer",
    TransferEncoding = "Transfer-Encoding",
    UserAgent = "User-Agent",
    XForwardedFor = "X-Forwarded-For",
}

impl Field {
    /// How many fields there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The field's place in a set of fields.
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// The field of this name in any case; `name` must consist of token characters.
    ///
    /// Length and first letter leave one candidate (two with `If-Match` and `If-Range`), so one
    /// comparison decides.
    #[inline]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let first = name.first()? | 0x20;
        let candidate = match (name.len(), first) {
            (4, b'h') => Self::Host,
            (5, b'r') => Self::Range,
            (6, b'a') => Self::Accept,
            (6, b'e') => Self::Expect,
            (7, b'r') => Self::Referer,
            (8, b'i') if name[3] | 0x20 == b'm' => Self::IfMatch,
            (8, b'i') => Self::IfRange,
            (10, b'c') => Self::Connection,
            (10, b'u') => Self::UserAgent,
            (13, b'a') => Self::Authorization,
            (13, b'i') => Self::IfNoneMatch,
            (14, b'c') => Self::ContentLength,
            (15, b'a') => Self::AcceptEncoding,
            (15, b'x') => Self::XForwardedFor,
            (17, b'i') => Self::IfModifiedSince,
            (17, b't') => Self::TransferEncoding,
            (19, b'i') => Self::IfUnmodifiedSince,
            _ => return None,
        };
        name.eq_ignore_ascii_case(candidate.name().as_bytes()).then_some(candidate)
    }
}

const _: () = assert!(Field::COUNT <= u32::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_recognized_in_any_case() {
        for &field in Field::ALL {
            let name = field.name();
            assert_eq!(Field::of_name(name.as_bytes()), Some(field));
            assert_eq!(Field::of_name(name.to_ascii_lowercase().as_bytes()), Some(field));
            assert_eq!(Field::of_name(name.to_ascii_uppercase().as_bytes()), Some(field));
        }
    }

    #[test]
    fn near_misses_are_other_fields() {
        for name in [
            "",
            "Hos",
            "Hosts",
            "Hose",
            "If_Match",
            "If-Mat\u{63}s",
            "Rang\u{c}",
            "X-Forwarded-Foo",
        ] {
            assert_eq!(Field::of_name(name.as_bytes()), None, "{name}");
        }
    }
}

//! The fields that every connection knows (RFC 7541 appendix A).

/// The number of fields.
pub(crate) const LEN: usize = 61;

/// Name and value of each field. The first has the index 1.
pub(crate) static FIELDS: [(&[u8], &[u8]); LEN] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// The length of the longest name.
const NAME_BYTES_MAX: usize = 27;

/// The first index of the fields with each name of this length.
type Names = &'static [(&'static [u8], u8)];

/// The result of a search for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The index of the whole field.
    Field(usize),
    /// The index of a field with the name.
    Name(usize),
    /// Nothing.
    Nothing,
}

/// Searches for a field, whose name is in lower case.
pub(crate) fn find(name: &[u8], value: &[u8]) -> Found {
    let names = BY_LENGTH.get(name.len()).copied().unwrap_or_default();
    let Some(&(_, first)) = names.iter().find(|(other, _)| *other == name) else {
        return Found::Nothing;
    };
    let first = usize::from(first);
    let mut same = FIELDS[first - 1..].iter().take_while(|(other, _)| *other == name);
    match same.position(|(_, other)| *other == value && !value.is_empty()) {
        Some(place) => Found::Field(first + place),
        None => Found::Name(first),
    }
}

/// The names by their lengths.
static BY_LENGTH: [Names; NAME_BYTES_MAX + 1] = [
    &[],
    &[],
    &[],
    &[(b"age", 21), (b"via", 60)],
    &[(b"date", 33), (b"etag", 34), (b"from", 37), (b"host", 38), (b"link", 45), (b"vary", 59)],
    &[(b":path", 4), (b"allow", 22), (b"range", 50)],
    &[(b"accept", 19), (b"cookie", 32), (b"expect", 35), (b"server", 54)],
    &[
        (b":method", 2),
        (b":scheme", 6),
        (b":status", 8),
        (b"expires", 36),
        (b"referer", 51),
        (b"refresh", 52),
    ],
    &[(b"if-match", 39), (b"if-range", 42), (b"location", 46)],
    &[],
    &[(b":authority", 1), (b"set-cookie", 55), (b"user-agent", 58)],
    &[(b"retry-after", 53)],
    &[(b"content-type", 31), (b"max-forwards", 47)],
    &[
        (b"accept-ranges", 18),
        (b"authorization", 23),
        (b"cache-control", 24),
        (b"content-range", 30),
        (b"if-none-match", 41),
        (b"last-modified", 44),
    ],
    &[(b"accept-charset", 15), (b"content-length", 28)],
    &[(b"accept-encoding", 16), (b"accept-language", 17)],
    &[
        (b"content-encoding", 26),
        (b"content-language", 27),
        (b"content-location", 29),
        (b"www-authenticate", 61),
    ],
    &[(b"if-modified-since", 40), (b"transfer-encoding", 57)],
    &[(b"proxy-authenticate", 48)],
    &[(b"content-disposition", 25), (b"if-unmodified-since", 43), (b"proxy-authorization", 49)],
    &[],
    &[],
    &[],
    &[],
    &[],
    &[(b"strict-transport-security", 56)],
    &[],
    &[(b"access-control-allow-origin", 20)],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found() {
        for (place, (name, value)) in FIELDS.iter().enumerate() {
            let index = place + 1;
            let first = FIELDS.iter().position(|(other, _)| other == name).unwrap() + 1;
            let expected = if value.is_empty() { Found::Name(first) } else { Found::Field(index) };
            assert_eq!(find(name, value), expected, "{}", name.escape_ascii());
            assert_eq!(find(name, b"other"), Found::Name(first));
        }
        for name in [&b""[..], b"x", b"ETag", b":protocol", b"access-control-allow-origin-x"] {
            assert_eq!(find(name, b""), Found::Nothing);
        }
    }
}

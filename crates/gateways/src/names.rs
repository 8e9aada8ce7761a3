//! The names of fields that all gateways treat alike.

/// Fields by which an upstream hands a request over to a file, or says how its response is to be sent. The client gets
/// none of these fields.
const TO_PROXY: [&[u8]; 2] = [b"X-Accel-", b"X-Sendfile"];

/// Returns true if a field is for a proxy in front of the upstream, and not for the client.
pub(crate) fn is_for_proxy(name: &[u8]) -> bool {
    TO_PROXY
        .iter()
        .any(|start| name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start)))
}

/// Returns true for a field in which a proxy or a content delivery network reports the scheme or the host of its
/// client's request. Many applications believe such a field, so the field counts only if a trusted proxy has sent it.
/// `X-Forwarded-For` is no such field, because it has only addresses.
pub(crate) fn is_of_outer_request(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"CF-Visitor",
        b"CloudFront-Forwarded-Proto",
        b"Forwarded",
        b"Front-End-Https",
        b"HTTPS",
        b"X-ARR-SSL",
        b"X-Proto",
        b"X-Scheme",
        b"X-Url-Scheme",
    ];
    const START: &[u8] = b"X-Forwarded-";
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b'c' | b'f' | b'h' | b'x') => {
            let start = name.get(..START.len());
            let is_forwarded = start.is_some_and(|start| start.eq_ignore_ascii_case(START));
            is_forwarded && !is(b"X-Forwarded-For") || NAMES.into_iter().any(is)
        }
        _ => false,
    }
}

/// Returns true if the name of a field is nearly a name of a field that frames a message, such as `Transfer_Encoding`.
/// Some server may mistake such a field for the real field.
pub(crate) fn imitates_framing(name: &[u8]) -> bool {
    let letters = || name.iter().filter(|byte| byte.is_ascii_alphabetic());
    // A name of the same length with a hyphen at this position is the real field, or has other letters.
    let is_nearly = |known: &[u8], hyphen: usize| {
        (name.len() != known.len() || name[hyphen] != b'-') && {
            let known = known.iter().filter(|byte| byte.is_ascii_alphabetic());
            letters().map(u8::to_ascii_lowercase).eq(known.map(u8::to_ascii_lowercase))
        }
    };
    // The length or the first letter excludes most fields.
    name.len() >= b"ContentLength".len()
        && matches!(letters().next(), Some(b'C' | b'c' | b'T' | b't'))
        && (is_nearly(b"Content-Length", 7) || is_nearly(b"Transfer-Encoding", 8))
}

/// Returns true if a name has only letters, digits and hyphens. To many programs `X_Real_IP` is the same as
/// `X-Real-IP`.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut byte = 0;
        while byte < 128 {
            plain[byte as usize] = byte == b'-' || byte.is_ascii_alphanumeric();
            byte += 1;
        }
        plain
    };
    name.iter().all(|&byte| PLAIN[usize::from(byte)])
}

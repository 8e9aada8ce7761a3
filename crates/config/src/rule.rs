//! Reads the rules for files and fields: paths, media types, error pages, changes of fields.
//!
//! Each function returns a sentence for the operator if the text is not valid.

use http::bytes::{self, TOKEN, VALUE};
use http::path;

use super::{HeaderRule, Pattern, StatusSet};

/// The fields that the HTTP version writes: the configuration can neither set nor remove them.
const FIELDS_OF_THE_WIRE: [&str; 9] = [
    "Connection",
    "Content-Length",
    "Content-Range",
    "Date",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];
/// The statuses whose pages are made when a response begins, as a condition or a range fails: too late to
/// read a file.
const STATUSES_WITHOUT_PAGES: [u16; 2] = [412, 416];

/// Reads a path of a site, in the form of the names of files.
///
/// # Errors
///
/// A sentence for the operator.
pub fn path(text: &str) -> Result<String, String> {
    let mut name = Vec::new();
    let normal = path::normalize(text.replace('%', "%25").as_bytes(), &mut name)
        .map_err(|error| format!("{text:?} is {error}"))?;
    let slash = if normal.directory && !name.is_empty() { "/" } else { "" };
    if text.as_bytes() != [b"/", &name[..], slash.as_bytes()].concat() {
        return Err(format!("{text:?} has an empty or a dot segment"));
    }
    Ok(text.to_owned())
}

/// Reads `STATUS=PATH`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn error_page(text: &str) -> Result<(u16, String), String> {
    let (code, page) = text.split_once('=').ok_or("expected STATUS=PATH, such as 404=/404.html")?;
    let code = code.parse().map_err(|_| format!("{code:?} is no status"))?;
    Ok((error_status(code)?, path(page)?))
}

/// Reads the status of an error for which there can be a page.
///
/// # Errors
///
/// A sentence for the operator.
pub fn error_status(code: u16) -> Result<u16, String> {
    match code {
        code if STATUSES_WITHOUT_PAGES.contains(&code) => {
            Err(format!("the page for the status {code} cannot be a file"))
        }
        400..=599 => Ok(code),
        _ => Err(format!("{code} is no status of an error: these are from 400 to 599")),
    }
}

/// Reads `[PATTERN ]NAME: VALUE`. Without a value the field is removed.
///
/// # Errors
///
/// A sentence for the operator.
pub fn header(text: &str) -> Result<HeaderRule, String> {
    let wrong = "expected NAME: VALUE, or PATTERN NAME: VALUE";
    let (before, value) = text.split_once(':').ok_or(wrong)?;
    let (pattern, name) = match before.trim().rsplit_once(' ') {
        Some((pattern, name)) => (Some(Pattern::new(pattern.trim())?), name),
        None => (None, before.trim()),
    };
    let (name, value) = (field_name(name)?, field_value(value.trim())?);
    Ok(if value.is_empty() {
        HeaderRule { pattern, remove: vec![name], ..HeaderRule::default() }
    } else {
        HeaderRule { pattern, set: vec![(name, value)], ..HeaderRule::default() }
    })
}

/// Reads a status of a response, or a class such as `4xx`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn status_set(text: &str) -> Result<StatusSet, String> {
    let wrong = || {
        let (first, last) = StatusSet::CODES.into_inner();
        format!("expected a status from {first} to {last}, or a class of them, such as \"4xx\"")
    };
    let is_code = |code: &u16| StatusSet::CODES.contains(code);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| text.parse().ok().filter(|_| digits(text)).ok_or_else(wrong);
    match text.to_ascii_lowercase().strip_suffix("xx") {
        Some(digit) => {
            let digit: u16 = number(digit)?;
            let is_class = digit.checked_mul(100).is_some_and(|code| is_code(&code));
            is_class.then_some(StatusSet::Class(digit)).ok_or_else(wrong)
        }
        None => number(text).and_then(|code| {
            Some(StatusSet::One(code)).filter(|_| is_code(&code)).ok_or_else(wrong)
        }),
    }
}

/// Checks the names and values of a rule.
///
/// # Errors
///
/// A sentence for the operator.
pub fn check_header(rule: &HeaderRule) -> Result<(), String> {
    for name in rule.set.iter().map(|(name, _)| name).chain(&rule.remove) {
        field_name(name)?;
    }
    for (_, value) in &rule.set {
        field_value(value)?;
    }
    Ok(())
}

/// Reads the name of a field that may be set or removed.
///
/// # Errors
///
/// A sentence for the operator.
pub fn field_name(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| bytes::is(byte, TOKEN)) {
        return Err(format!("{text:?} is no name of a field"));
    }
    if FIELDS_OF_THE_WIRE.iter().any(|name| name.eq_ignore_ascii_case(text)) {
        return Err(format!("{text}: only the server itself writes this field"));
    }
    Ok(text.to_owned())
}

/// Reads the value of a field.
///
/// # Errors
///
/// A sentence for the operator.
pub fn field_value(text: &str) -> Result<String, String> {
    if !text.bytes().all(|byte| bytes::is(byte, VALUE)) {
        return Err(format!("{text:?}: a value has neither line ends nor control characters"));
    }
    Ok(text.trim().to_owned())
}

/// Reads `EXTENSION=TYPE` or `NAME=TYPE`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn media_type(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or("expected EXTENSION=TYPE, such as wasm=application/wasm")?;
    type_of(name, value)
}

/// Reads the name of files, or an extension without its dot, and the media type of files that have it.
///
/// # Errors
///
/// A sentence for the operator.
pub fn type_of(name: &str, value: &str) -> Result<(String, String), String> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '*', '{']) {
        return Err(format!("{name:?}: expected an extension without its dot, such as wasm"));
    }
    if name.contains([',', ';', '|']) {
        return Err(format!("{name:?}: each extension has an entry of its own"));
    }
    Ok((name.to_ascii_lowercase(), media_value(value)?))
}

/// Reads a media type, which may have parameters.
///
/// # Errors
///
/// A sentence for the operator.
pub fn media_value(text: &str) -> Result<String, String> {
    let value = field_value(text)?;
    media_essence(value.split(';').next().unwrap_or_default().trim())?;
    Ok(value)
}

/// Reads a media type without parameters.
///
/// # Errors
///
/// A sentence for the operator.
pub fn media_essence(text: &str) -> Result<String, String> {
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(|byte| bytes::is(byte, TOKEN));
    match text.split_once('/') {
        Some((_, kind)) if kind.contains('*') => {
            Err(format!("{text:?}: a media type has no `*`: write each type, such as text/html"))
        }
        Some((class, kind)) if is_token(class) && is_token(kind) => Ok(text.to_ascii_lowercase()),
        _ => Err(format!("{text:?} is no media type, such as application/wasm")),
    }
}

/// Returns true if a text is how other programs say that there is no value. Here that is `none`.
pub(super) fn is_refusal(text: &str) -> bool {
    ["off", "no", "false", "disable", "disabled"].contains(&text.to_ascii_lowercase().as_str())
}

/// Reads the name of an encoding, or `none`.
///
/// # Errors
///
/// A sentence for the operator.
pub fn charset(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| bytes::is(byte, TOKEN)) {
        return Err(format!("{text:?}: expected the name of an encoding, such as utf-8, or none"));
    }
    if is_refusal(text) {
        return Err("without the name of an encoding it is \"none\"".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normal() {
        for good in ["/", "/a", "/a/", "/a b/%20", "/.errors/404.html", "/ä"] {
            assert_eq!(path(good).as_deref(), Ok(good));
        }
        for bad in ["", "a", "//a", "/a//", "/a/..", "/./a", "/..", "http://a/"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pages_are_for_errors() {
        assert_eq!(error_page("404=/404.html"), Ok((404, "/404.html".to_owned())));
        for bad in ["404", "200=/a", "399=/a", "600=/a", "412=/a", "416=/a", "404=a", "x=/a", "=/a"]
        {
            assert!(error_page(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_field_is_set_or_removed_for_all_paths_or_those_of_a_pattern() {
        let rule = |pattern: Option<&str>, set: &[(&str, &str)], remove: &[&str]| HeaderRule {
            pattern: pattern.map(|text| Pattern::new(text).unwrap()),
            set: set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            remove: remove.iter().map(|name| (*name).into()).collect(),
            ..HeaderRule::default()
        };
        for (text, expected) in [
            ("A: b", rule(None, &[("A", "b")], &[])),
            ("A:b: c", rule(None, &[("A", "b: c")], &[])),
            ("*.css A: b c", rule(Some("*.css"), &[("A", "b c")], &[])),
            ("/a b/* A: b", rule(Some("/a b/*"), &[("A", "b")], &[])),
            ("Server:", rule(None, &[], &["Server"])),
            ("*.css ETag: ", rule(Some("*.css"), &[], &["ETag"])),
        ] {
            assert_eq!(header(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "A",
            ": b",
            "Ä: b",
            "A: b\r\nC: d",
            "A: \0",
            "date: x",
            "Content-length:",
            "Transfer-Encoding: chunked",
            "connection: close",
            "(A): b",
        ] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn statuses_are_single_ones_or_those_with_the_same_first_digit() {
        for (text, expected, has, lacks) in [
            ("404", StatusSet::One(404), 404, 400),
            ("4xx", StatusSet::Class(4), 499, 500),
            ("5XX", StatusSet::Class(5), 500, 499),
            ("200", StatusSet::One(200), 200, 206),
        ] {
            let set = status_set(text).unwrap();
            assert_eq!(set, expected, "{text}");
            assert!(set.has(has) && !set.has(lacks), "{text}");
            assert_eq!(set.to_string(), text.to_ascii_lowercase());
        }
        for bad in
            ["", "xx", "1xx", "6xx", "44xx", "4x", "4xxx", "199", "600", "+404", "-4xx", "ok"]
        {
            assert!(status_set(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn types_are_media_types_of_extensions() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(media_type("wasm=application/wasm"), pair("wasm", "application/wasm"));
        assert_eq!(media_type("TAR.gz=a/b; c=d"), pair("tar.gz", "a/b; c=d"));
        assert_eq!(media_type("SHA256SUMS=a/b"), pair("sha256sums", "a/b"));
        for bad in [
            "",
            "wasm",
            "=a/b",
            ".wasm=a/b",
            "*.wasm=a/b",
            "{jpg,jpeg}=a/b",
            "jpg,jpeg=a/b",
            "jpg|jpeg=a/b",
            "a/b=c/d",
            "a=b",
            "a=/b",
            "a=b/",
            "a=b/c\n",
        ] {
            assert!(media_type(bad).is_err(), "{bad}");
        }
        assert_eq!(media_type("read me=a/b"), pair("read me", "a/b"));
        assert_eq!(media_type("Release Notes=a/b"), pair("release notes", "a/b"));
        assert!(media_essence("text/*").is_err() && media_essence("*/*").is_err());
        assert_eq!(media_essence("Text/HTML").as_deref(), Ok("text/html"));
        assert!(media_essence("text/html; charset=utf-8").is_err());
        assert!(charset("utf-8").is_ok() && charset("none").is_ok());
        assert!(charset("").is_err() && charset("a;b").is_err());
    }
}

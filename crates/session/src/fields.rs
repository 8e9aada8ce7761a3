//! Applies the rules of a route or a site to the fields of responses.

use std::borrow::Cow;
use std::sync::Arc;

use http::{FieldSection, ResponseHead, Status, Target, path};

use config::HeaderRule;

/// The rules of a route or a site, or those of them that match a path, in order.
pub type Rules = Vec<Arc<HeaderRule>>;

/// Fields about content, which a 304 does not have because it has no content (RFC 9110 §15.4.5). The content fields
/// that the server itself writes in a 200 and a 304 are members of [`ResponseHead`].
const OF_CONTENT: [&[u8]; 3] = [b"Content-Disposition", b"Content-Language", b"Content-Type"];

/// The statuses for which a rule changes the fields about caching, unless it names others: as with `add_header` of
/// nginx. An error may be over long before a cached response for the missing file expires.
const LASTING: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];
/// Fields that say how long caches may keep a response, and how long a cache has kept it, in addition to [`TARGETED`].
const OF_CACHING: [&str; 5] =
    ["Age", "Edge-Control", "Expires", "Surrogate-Control", "X-Accel-Expires"];
/// The suffix of `Cache-Control` and of the fields that replace it for some caches (RFC 9213 §2).
const TARGETED: &[u8] = b"Cache-Control";

/// The field that tells browsers to use TLS only (RFC 6797 §6.1).
pub const HSTS: &[u8] = b"Strict-Transport-Security";

/// Returns true if a response has [`HSTS`] by a rule, an upstream or a program.
pub fn has_hsts(head: &ResponseHead<'_>) -> bool {
    head.extra.fields().any(|(name, _)| name.eq_ignore_ascii_case(HSTS))
}

/// Returns the rules that match one of these paths.
pub fn matching(rules: &Rules, paths: &[&[u8]]) -> Rules {
    let is_for = |rule: &&Arc<HeaderRule>| match &rule.pattern {
        None => true,
        Some(pattern) => paths.iter().any(|path| pattern.matches(path)),
    };
    rules.iter().filter(is_for).cloned().collect()
}

/// Applies rules to the response to a request that sends no file. A malformed request has no target, and only the rules
/// for all paths are for it.
pub fn apply_to(rules: &Rules, target: Option<Target<'_>>, head: &mut ResponseHead<'_>) {
    if rules.is_empty() {
        return;
    }
    let mut name = Vec::new();
    let has_path = match target {
        Some(Target::Origin { path, .. }) => path::normalize_rooted(path, &mut name).is_ok(),
        Some(Target::Asterisk | Target::Authority) | None => false,
    };
    let paths: &[&[u8]] = if has_path { &[&name] } else { &[] };
    apply(&matching(rules, paths), head);
}

/// Applies rules to a head that has its final status.
pub fn apply(rules: &Rules, head: &mut ResponseHead<'_>) {
    let code = head.status.code();
    for rule in rules {
        let changes = |name: &str| {
            if rule.statuses.is_empty() {
                is_lasting(code) || !is_of_caching(name.as_bytes())
            } else {
                rule.statuses.iter().any(|statuses| statuses.has(code))
            }
        };
        for name in rule.remove.iter().filter(|name| changes(name)) {
            replace(head, name, None);
        }
        for (name, value) in rule.set.iter().filter(|(name, _)| changes(name)) {
            replace(head, name, Some(value));
        }
    }
}

/// Returns true for responses that are valid as long as their path, so that rules about the path apply to them.
fn is_lasting(code: u16) -> bool {
    LASTING.contains(&code)
}

/// Returns true if a field says how long caches may keep a response.
fn is_of_caching(name: &[u8]) -> bool {
    let end = name.len().checked_sub(TARGETED.len()).map_or(name, |at| &name[at..]);
    end.eq_ignore_ascii_case(TARGETED)
        || OF_CACHING.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Leaves out the fields that a 304 may not have.
pub fn leave_out_content(head: &mut ResponseHead<'_>) {
    (head.content_type, head.content_length) = (None, None);
    for name in OF_CONTENT {
        head.extra.remove(name);
    }
}

/// Replaces fields of a file by those of the upstream that has handed its request over.
pub fn take_over(fields: &FieldSection<'_>, head: &mut ResponseHead<'_>) {
    let is_whole = head.status == Status::Ok;
    let is_part = head.status == Status::PartialContent;
    // Fields about the file are not true for an error, such as a range that the file does not have.
    let is_lasting = is_lasting(head.status.code());
    // The type of a response with several ranges is the type of its multipart frame.
    let has_type = is_whole || is_part && head.content_range.is_some();
    let is_for = |name: &[u8]| {
        let is_type = name.eq_ignore_ascii_case(b"Content-Type");
        let is_of_content = OF_CONTENT.iter().any(|other| name.eq_ignore_ascii_case(other));
        if is_type {
            has_type
        } else {
            (!is_of_content || is_whole || is_part) && (is_lasting || !is_of_caching(name))
        }
    };
    let all = || fields.fields().filter(|(name, _)| is_for(name));
    for (name, _) in all() {
        if name.eq_ignore_ascii_case(b"Cache-Control") {
            head.cache_control = None;
        }
        head.extra.remove(name);
    }
    for (name, value) in all() {
        if name.eq_ignore_ascii_case(b"Content-Type") {
            head.content_type = Some(value.to_vec().into());
        } else if name.eq_ignore_ascii_case(b"Cache-Control") {
            let before = head.cache_control.take().map(|before| [&before[..], b", "].concat());
            let whole = [&before.unwrap_or_default()[..], value].concat();
            head.cache_control = Some(whole.into());
        } else {
            head.extra.push(name, value);
        }
    }
}

/// Removes a field, and sets it if there is a value.
fn replace(head: &mut ResponseHead<'_>, name: &str, value: Option<&str>) {
    let bytes = || value.map(|value| Cow::Owned(value.as_bytes().to_vec()));
    // For a response of an upstream all fields are there.
    head.extra.remove(name.as_bytes());
    match name.to_ascii_lowercase().as_str() {
        "allow" => head.allow = bytes(),
        "cache-control" => head.cache_control = bytes(),
        "content-encoding" => head.content_encoding = bytes(),
        "content-type" => head.content_type = bytes(),
        "etag" => head.etag = bytes(),
        "location" => head.location = bytes(),
        "server" => head.server = value.map(|value| Cow::Owned(value.to_owned())),
        "vary" => head.vary = bytes(),
        // The members for these fields cannot have any value, so the field goes to the other fields.
        lower => {
            match lower {
                "accept-ranges" => head.accept_ranges = false,
                "last-modified" => head.last_modified = None,
                "x-content-type-options" => head.nosniff = false,
                _ => {}
            }
            if let Some(value) = value {
                head.extra.push(name.as_bytes(), value.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http1::write;

    use super::*;
    use config::rule;

    fn rules(texts: &[&str]) -> Rules {
        texts.iter().map(|text| Arc::new(rule::header(text).unwrap())).collect()
    }

    fn written(head: &ResponseHead<'_>) -> Vec<String> {
        let mut out = Vec::new();
        write::response_head(head, &http::date::format(0), write::Wire::default(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let mut lines: Vec<_> = text.lines().skip(2).map(str::to_owned).collect();
        lines.retain(|line| !line.is_empty());
        lines.sort();
        lines
    }

    fn head() -> ResponseHead<'static> {
        let mut head = ResponseHead {
            server: Some("samum".into()),
            content_type: Some(b"text/css".into()),
            content_length: Some(7),
            last_modified: Some(0),
            etag: Some(b"\"a\"".into()),
            accept_ranges: true,
            nosniff: true,
            ..ResponseHead::new(Status::Ok)
        };
        head.extra.push(b"X-Own", b"1");
        head
    }

    #[test]
    fn the_fields_of_a_server_replace_those_of_a_file_where_they_mean_the_same() {
        let mut fields = FieldSection::EMPTY;
        for (name, value) in [
            ("content-type", "a/b"),
            ("Content-Disposition", "attachment"),
            ("Cache-Control", "private"),
            ("Cache-Control", "no-store"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("X-Own", "2"),
        ] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let one =
            Some(http::ContentRange::Part { range: http::Range { start: 0, end: 1 }, size: 2 });
        let multipart = Some(&b"multipart/byteranges"[..]);
        for (status, content_range, content_type, expected, has_disposition) in [
            (Status::Ok, None, Some(&b"text/css"[..]), Some(&b"a/b"[..]), true),
            (Status::PartialContent, one, Some(b"text/css"), Some(b"a/b"), true),
            (Status::PartialContent, None, multipart, multipart, true),
            (Status::NotModified, None, None, None, false),
        ] {
            let content_type = content_type.map(Cow::Borrowed);
            let mut head = ResponseHead { status, content_range, content_type, ..head() };
            take_over(&fields, &mut head);
            assert_eq!(head.content_type.as_deref(), expected, "{status:?}");
            assert_eq!(head.cache_control.as_deref(), Some(&b"private, no-store"[..]));
            let names: Vec<_> = head.extra.fields().map(|(name, _)| name).collect();
            let others = [&b"Set-Cookie"[..], b"Set-Cookie", b"X-Own"];
            assert_eq!(names[names.len() - 3..], others);
            assert_eq!(names.contains(&&b"Content-Disposition"[..]), has_disposition);
        }
    }

    #[test]
    fn a_field_is_set_once_whatever_it_was_before() {
        let texts = [
            "server: x",
            "CONTENT-TYPE: a/b",
            "last-modified: never",
            "ETag: \"b\"",
            "Accept-Ranges: none",
            "x-content-type-options: sniff",
            "X-Own: 2",
            "x-own: 3",
            "New: 4",
            "Vary: *",
        ];
        let mut head = head();
        apply(&rules(&texts), &mut head);
        let expected = [
            "Accept-Ranges: none",
            "Content-Length: 7",
            "Content-Type: a/b",
            "ETag: \"b\"",
            "New: 4",
            "Server: x",
            "Vary: *",
            "last-modified: never",
            "x-content-type-options: sniff",
            "x-own: 3",
        ];
        assert_eq!(written(&head), expected);
    }

    #[test]
    fn the_fields_of_a_server_are_replaced() {
        let mut head = ResponseHead::new(Status::Ok);
        for name in ["server", "Set-Cookie", "set-cookie", "Cache-Control", "ETag", "ETag"] {
            head.extra.push(name.as_bytes(), b"1");
        }
        apply(&rules(&["Server: 2", "Set-Cookie:", "cache-control: 2", "ETag:"]), &mut head);
        assert_eq!(written(&head), ["Cache-Control: 2", "Server: 2"]);
    }

    #[test]
    fn every_field_but_those_of_the_wire_can_be_removed() {
        let texts = [
            "Server:",
            "Content-Type:",
            "Last-Modified:",
            "ETag:",
            "Accept-Ranges:",
            "X-Content-Type-Options:",
            "X-Own:",
            "Absent:",
        ];
        let mut head = head();
        apply(&rules(&texts), &mut head);
        assert_eq!(written(&head), ["Content-Length: 7"]);
    }

    #[test]
    fn rules_are_for_the_paths_that_they_match() {
        let rules = rules(&["A: 1", "*.css A: 2", "/a/* A: 3", "/a/ A: 4"]);
        for (paths, expected) in [
            (&["/x"][..], "A: 1"),
            (&["/x.css"], "A: 2"),
            (&["/a/x.css"], "A: 3"),
            (&["/a/index.html", "/a/"], "A: 4"),
        ] {
            let paths: Vec<_> = paths.iter().map(|path| path.as_bytes()).collect();
            let mut head = ResponseHead::new(Status::Ok);
            apply(&matching(&rules, &paths), &mut head);
            assert_eq!(written(&head), [expected], "{paths:?}");
        }
    }

    /// The lines of a head with a status that some rules have changed.
    fn ruled(rules: &Rules, code: u16) -> Vec<String> {
        let mut head = ResponseHead::new(Status::from_code(code).unwrap());
        for (name, value) in [("cache-control", "no-cache"), ("Age", "9"), ("X-Own", "1")] {
            head.extra.push(name.as_bytes(), value.as_bytes());
        }
        apply(rules, &mut head);
        written(&head)
    }

    #[test]
    fn what_is_said_about_caching_is_not_for_failures() {
        let texts = [
            "Cache-Control: immutable",
            "cdn-cache-control: max-age=9",
            "Cloudflare-CDN-Cache-Control: max-age=9",
            "Surrogate-Control: max-age=9",
            "EXPIRES: never",
            "Age:",
            "Access-Control-Allow-Origin: *",
            "X-Own:",
        ];
        let all = [
            "Access-Control-Allow-Origin: *",
            "Cache-Control: immutable",
            "Cloudflare-CDN-Cache-Control: max-age=9",
            "EXPIRES: never",
            "Surrogate-Control: max-age=9",
            "cdn-cache-control: max-age=9",
        ];
        let of_failures = ["Access-Control-Allow-Origin: *", "Age: 9", "cache-control: no-cache"];
        let rules = rules(&texts);
        for code in LASTING {
            assert_eq!(ruled(&rules, code), all, "{code}");
        }
        for code in [202, 203, 207, 300, 400, 403, 404, 405, 412, 416, 429, 500, 502, 503, 599] {
            assert_eq!(ruled(&rules, code), of_failures, "{code}");
        }
        let no_store = self::rules(&["Cache-Control:"]);
        assert!(ruled(&no_store, 404).contains(&"cache-control: no-cache".to_owned()));
    }

    #[test]
    fn a_rule_that_names_statuses_is_for_all_fields_of_these() {
        let mut rule = rule::header("Cache-Control: max-age=60").unwrap();
        rule.remove = vec!["X-Own".to_owned()];
        rule.statuses = ["404", "5xx"].map(|text| rule::status_set(text).unwrap()).to_vec();
        let rules = vec![Arc::new(rule)];
        for code in [404, 500, 503, 599] {
            assert_eq!(ruled(&rules, code), ["Age: 9", "Cache-Control: max-age=60"], "{code}");
        }
        for code in [200, 206, 304, 400, 403, 410, 499] {
            assert_eq!(ruled(&rules, code), ["Age: 9", "X-Own: 1", "cache-control: no-cache"]);
        }
    }

    #[test]
    fn a_server_that_hands_over_a_file_says_nothing_about_its_failures() {
        let mut fields = FieldSection::EMPTY;
        for (name, value) in [("Cache-Control", "max-age=9"), ("Expires", "x"), ("X-Own", "2")] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        for (code, has) in [(200, true), (206, true), (304, true), (412, false), (416, false)] {
            let mut head = ResponseHead::new(Status::from_code(code).unwrap());
            take_over(&fields, &mut head);
            assert_eq!(head.cache_control.is_some(), has, "{code}");
            let names: Vec<_> = head.extra.fields().map(|(name, _)| name).collect();
            let others = if has { &[&b"Expires"[..], b"X-Own"][..] } else { &[&b"X-Own"[..]] };
            assert_eq!(names, others, "{code}");
        }
    }

    #[test]
    fn a_304_has_no_fields_about_content() {
        let mut head = ResponseHead { status: Status::NotModified, ..head() };
        let texts = [
            "Content-Language: de",
            "Cache-Control: no-cache",
            "Content-Location: /a",
            "Expires: 0",
        ];
        apply(&rules(&texts), &mut head);
        leave_out_content(&mut head);
        let lines = written(&head);
        for name in ["Cache-Control", "Content-Location", "ETag", "Expires"] {
            assert!(lines.iter().any(|line| line.starts_with(name)), "{name}: {lines:?}");
        }
        for name in ["Content-Language", "Content-Type", "Content-Length"] {
            assert!(!lines.iter().any(|line| line.starts_with(name)), "{name}: {lines:?}");
        }
    }
}

//! The choice between a listing for a person and one for a program.
//!
//! Reading list: RFC 9110 §12.5.1.

use crate::bytes;

/// The closeness with which a media range names a type: the closest decides (RFC 9110 §12.5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    Nothing,
    AnyType,
    AnySubtype,
    Exact,
}

/// The preference of `Accept` for one type.
#[derive(Clone, Copy)]
struct Preference {
    closeness: Closeness,
    /// In thousandths.
    quality: u16,
    /// The index of the media range in the list.
    place: usize,
}

/// Returns whether the lines of `Accept` prefer `application/json` to `text/html`.
///
/// JSON must have the higher quality. With the same quality it must be named more closely, or be as
/// close and stand first. So `application/json, */*` asks for JSON; a browser's list, `*/*` and no
/// field at all do not.
pub fn prefers_json<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let nothing = Preference { closeness: Closeness::Nothing, quality: 0, place: 0 };
    let (mut json, mut html) = (nothing, nothing);
    let ranges = lines.flat_map(bytes::list).filter_map(bytes::weighted);
    for (place, (range, quality)) in ranges.enumerate() {
        json.consider(range, b"application", b"json", quality, place);
        html.consider(range, b"text", b"html", quality, place);
    }
    if json.quality == 0 || json.closeness < Closeness::AnySubtype {
        return false;
    }
    if json.quality != html.quality {
        return json.quality > html.quality;
    }
    if json.closeness != html.closeness {
        return json.closeness > html.closeness;
    }
    json.place < html.place
}

impl Preference {
    /// Records a media range if it matches the type more closely than those before.
    fn consider(&mut self, range: &[u8], kind: &[u8], subtype: &[u8], quality: u16, place: usize) {
        let mut halves = range.splitn(2, |&byte| byte == b'/');
        let (range_kind, range_subtype) = (halves.next(), halves.next());
        let is = |half: Option<&[u8]>, name| half.is_some_and(|h| h.eq_ignore_ascii_case(name));
        let closeness = if is(range_kind, kind) && is(range_subtype, subtype) {
            Closeness::Exact
        } else if is(range_kind, kind) && is(range_subtype, b"*") {
            Closeness::AnySubtype
        } else if is(range_kind, b"*") && is(range_subtype, b"*") {
            Closeness::AnyType
        } else {
            return;
        };
        if closeness > self.closeness {
            *self = Self { closeness, quality, place };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_sent_to_those_who_prefer_it() {
        for (line, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json, */*", true),
            ("application/json, text/plain, */*", true),
            ("*/*, application/json", true),
            ("application/json, text/html", true),
            ("text/html, application/json", false),
            ("text/html;q=0.9, application/json", true),
            ("text/html, application/json;q=0.9", false),
            ("text/html;q=0, */*", false),
            ("application/*", true),
            ("application/*, text/html", false),
            ("text/*, application/json", true),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", false),
            ("application/json;q=0", false),
            ("application/json;q=0, */*", false),
            ("application/json;q=bad", false),
            ("*/*", false),
            ("json", false),
            ("", false),
        ] {
            assert_eq!(prefers_json([line.as_bytes()].into_iter()), expected, "{line}");
        }
    }

    #[test]
    fn without_the_field_people_are_served() {
        assert!(!prefers_json(core::iter::empty()));
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [&b"text/html;q=0.5"[..], b"application/json"];
        assert!(prefers_json(lines.into_iter()));
    }
}

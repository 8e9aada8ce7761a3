//! Derives the media type of a file from its name, and whether it may have precompressed siblings.

use std::borrow::Cow;

use http::Coding;

use super::path::base;
use crate::config::FileRules;

/// The suffix of the name of a precompressed sibling.
pub(super) const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Br => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
    }
}

/// The value of `Content-Type`.
pub(super) fn content_type(path: &[u8], rules: &FileRules) -> String {
    let media_type = media_type(path, rules).unwrap_or_else(|| "application/octet-stream".into());
    // Without the parameter, browsers guess the encoding.
    match &rules.charset {
        Some(charset) if is_text(&media_type) => format!("{media_type}; charset={charset}"),
        _ => media_type.into_owned(),
    }
}

/// Returns whether a media type is that of text, and says nothing else.
fn is_text(media_type: &str) -> bool {
    (media_type.starts_with("text/") && !media_type.contains(';'))
        || matches!(media_type, "application/javascript" | "application/json" | "image/svg+xml")
}

/// The media type for the longest extension of a name that has one.
fn media_type<'a>(path: &[u8], rules: &'a FileRules) -> Option<Cow<'a, str>> {
    let name = String::from_utf8_lossy(base(path));
    if !rules.types.is_empty() {
        let lower = name.to_ascii_lowercase();
        let mut extensions = lower.match_indices('.').map(|(at, _)| &lower[at + 1..]);
        if let Some(own) = extensions.find_map(|extension| rules.types.get(extension)) {
            return Some(own.into());
        }
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if let Some((_, own)) = TYPES.iter().find(|(of, _)| extension.eq_ignore_ascii_case(of)) {
        return Some((*own).into());
    }
    mime_guess::from_path(&*name).first_raw().map(Into::into)
}

/// Media types that `mime_guess` does not know, or for which it prefers one that players, package managers and
/// browsers do not expect (for `.rpm` that of a plug-in of a player, for `.ts` that of DLNA).
///
/// Sources: RFC 9239 (JavaScript), RFC 8216 §4 (playlists), RFC 3555 (`mp2t`), RFC 8081 (fonts), RFC 8878 (Zstandard),
/// RFC 4337 (`audio/mp4`), ISO/IEC 23009-1 annex C (segments), ECMA-426 (source maps), IANA's list of media types
/// (Debian's packages), and shared-mime-info (`application/x-rpm`).
const TYPES: [(&str, &str); 12] = [
    ("cjs", "text/javascript"),
    ("deb", "application/vnd.debian.binary-package"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("otf", "font/otf"),
    ("rpm", "application/x-rpm"),
    ("ts", "video/mp2t"),
    ("udeb", "application/vnd.debian.binary-package"),
    ("zst", "application/zstd"),
];

/// Returns whether to look for precompressed siblings. Files in a compressed format have none.
pub(super) fn has_siblings(path: &[u8], rules: &FileRules) -> bool {
    rules.precompressed
        && !media_type(path, rules).is_some_and(|media_type| is_compressed(&media_type))
        && !Coding::PREFERENCE
            .into_iter()
            .any(|coding| base(path).ends_with(suffix(coding).as_bytes()))
}

/// Returns whether a name is that of a precompressed file. Some file systems find names in upper case, too.
pub(super) fn is_coded(name: &[u8]) -> bool {
    Coding::PREFERENCE.into_iter().any(|coding| {
        let suffix = suffix(coding).as_bytes();
        let end = name.len().checked_sub(suffix.len()).map(|start| &name[start..]);
        end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    })
}

/// Returns whether files of this type may be films whose containers tell their layout.
pub(super) fn is_film(content_type: &str) -> bool {
    matches!(
        content_type,
        "video/mp4"
            | "audio/mp4"
            | "video/x-m4v"
            | "audio/m4a"
            | "audio/x-m4a"
            | "video/quicktime"
            | "video/webm"
            | "audio/webm"
            | "video/x-matroska"
            | "audio/x-matroska"
    )
}

fn is_compressed(media_type: &str) -> bool {
    let (class, _) = media_type.split_once('/').unwrap_or((media_type, ""));
    matches!(class, "video" | "audio")
        || (class == "image" && media_type != "image/svg+xml" && media_type != "image/bmp")
        || matches!(
            media_type,
            "application/gzip"
                | "application/zip"
                | "application/zstd"
                | "font/woff2"
                | "font/woff"
                | "application/x-7z-compressed"
                | "application/x-xz"
                | "application/x-bzip2"
                | "application/vnd.debian.binary-package"
                | "application/x-rpm"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_are_not_compressed_have_siblings() {
        let rules = FileRules::default();
        for name in ["index.html", "a/b.css", "x", "logo.svg", "old.bmp"] {
            assert!(has_siblings(name.as_bytes(), &rules), "{name}");
        }
        for name in ["a.html.gz", "b.br", "c.zst", "film.mp4", "a/logo.png", "f.woff2", "d.zip"] {
            assert!(!has_siblings(name.as_bytes(), &rules), "{name}");
        }
    }

    #[test]
    fn films_are_known_by_their_names() {
        let rules = FileRules::default();
        for name in ["a.mp4", "b.M4V", "c.m4a", "d.mov", "e.webm", "f.mkv", "g.mka", "h.mp4v"] {
            assert!(is_film(&content_type(name.as_bytes(), &rules)), "{name}");
        }
        for name in ["a.ts", "b.m3u8", "c.avi", "d.mp3", "e.html", "f"] {
            assert!(!is_film(&content_type(name.as_bytes(), &rules)), "{name}");
        }
    }

    #[test]
    fn packages_and_segments_of_films_have_the_types_that_their_users_expect() {
        let rules = FileRules::default();
        for (name, expected) in [
            ("a.rpm", "application/x-rpm"),
            ("a_1.0_amd64.DEB", "application/vnd.debian.binary-package"),
            ("a.tar.zst", "application/zstd"),
            ("live/1.ts", "video/mp2t"),
            ("live/1.m4s", "video/iso.segment"),
            ("live/index.m3u8", "application/vnd.apple.mpegurl"),
            ("a.m4a", "audio/mp4"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.js.map", "application/json; charset=utf-8"),
            ("ts", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
        for name in ["a.rpm", "a.deb", "1.ts", "1.m4s"] {
            assert!(!has_siblings(name.as_bytes(), &rules), "{name}");
        }
        let rules = FileRules { types: [("ts".to_owned(), "text/x".to_owned())].into(), ..rules };
        assert_eq!(content_type(b"1.ts", &rules), "text/x; charset=utf-8");
    }

    #[test]
    fn text_is_said_to_be_utf_8() {
        let rules = FileRules::default();
        for (name, expected) in [
            ("a/b.html", "text/html; charset=utf-8"),
            ("b.json", "application/json; charset=utf-8"),
            ("b.svg", "image/svg+xml; charset=utf-8"),
            ("b.png", "image/png"),
            ("html", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
    }

    #[test]
    fn types_and_charset_can_be_chosen() {
        let types =
            [("tar.gz", "a/tar"), ("gz", "a/gz"), ("x", "text/x"), ("y", "text/y; charset=z")];
        let types = types.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let rules = FileRules { types, charset: Some("latin1".to_owned()), ..FileRules::default() };
        for (name, expected) in [
            ("a.tar.gz", "a/tar"),
            ("A.B.TAR.GZ", "a/tar"),
            ("a.gz", "a/gz"),
            ("a.x", "text/x; charset=latin1"),
            ("a.y", "text/y; charset=z"),
            ("x", "application/octet-stream"),
            ("a.x/b", "application/octet-stream"),
            ("b.html", "text/html; charset=latin1"),
        ] {
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
        let rules = FileRules { charset: None, ..rules };
        assert_eq!(content_type(b"b.html", &rules), "text/html");
    }

    #[test]
    fn no_siblings_are_looked_for_where_they_are_not_wanted() {
        let rules = FileRules { precompressed: false, ..FileRules::default() };
        assert!(!has_siblings(b"a.css", &rules));
        let types = [("css".to_owned(), "image/png".to_owned())].into();
        let rules = FileRules { types, ..FileRules::default() };
        assert!(!has_siblings(b"a.css", &rules), "its type is that of a compressed format");
    }
}

//! Derives the media type of a file from its name, and whether it may have precompressed siblings.

use http::Coding;
use mime_guess::mime;

use super::path::base;

/// The suffix of the name of a precompressed sibling.
pub(super) const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Br => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
    }
}

/// The value of `Content-Type`.
pub(super) fn content_type(path: &[u8]) -> String {
    let name = String::from_utf8_lossy(base(path));
    let mime = mime_guess::from_path(&*name).first_or_octet_stream();
    let text = mime.type_() == mime::TEXT
        || matches!(
            mime.essence_str(),
            "application/javascript" | "application/json" | "image/svg+xml"
        );
    // Nearly all text is UTF-8. Without the parameter, browsers guess the encoding.
    if text { format!("{}; charset=utf-8", mime.essence_str()) } else { mime.to_string() }
}

/// Returns whether to look for precompressed siblings. Files in a compressed format have none.
pub(super) fn has_siblings(path: &[u8]) -> bool {
    let base = base(path);
    let name = String::from_utf8_lossy(base);
    !mime_guess::from_path(&*name).first_raw().is_some_and(is_compressed)
        && !Coding::PREFERENCE.into_iter().any(|coding| base.ends_with(suffix(coding).as_bytes()))
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
        for name in ["index.html", "a/b.css", "x", "logo.svg", "old.bmp"] {
            assert!(has_siblings(name.as_bytes()), "{name}");
        }
        for name in ["a.html.gz", "b.br", "c.zst", "film.mp4", "a/logo.png", "f.woff2", "d.zip"] {
            assert!(!has_siblings(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn films_are_known_by_their_names() {
        for name in ["a.mp4", "b.M4V", "c.m4a", "d.mov", "e.webm", "f.mkv", "g.mka", "h.mp4v"] {
            assert!(is_film(&content_type(name.as_bytes())), "{name}");
        }
        for name in ["a.ts", "b.m3u8", "c.avi", "d.mp3", "e.html", "f"] {
            assert!(!is_film(&content_type(name.as_bytes())), "{name}");
        }
    }

    #[test]
    fn text_is_said_to_be_utf_8() {
        assert_eq!(content_type(b"a/b.html"), "text/html; charset=utf-8");
        assert_eq!(content_type(b"b.json"), "application/json; charset=utf-8");
        assert_eq!(content_type(b"b.png"), "image/png");
        assert_eq!(content_type(b"html"), "application/octet-stream");
    }
}

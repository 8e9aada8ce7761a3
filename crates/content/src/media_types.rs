//! Derives the media type of a file from its name, and whether it may have precompressed siblings.

use std::borrow::Cow;

use http::Coding;

use super::path::base;
use config::FileRules;

/// The suffix of the name of a precompressed sibling.
pub(super) const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Br => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
    }
}

/// The value of `Content-Type` for a path.
pub(super) fn content_type(path: &[u8], rules: &FileRules) -> String {
    let media_type = media_type(path, rules);
    // Without the parameter, browsers guess the encoding.
    match &rules.charset {
        Some(charset) if is_text(&media_type) => format!("{media_type}; charset={charset}"),
        _ => media_type.into_owned(),
    }
}

/// Returns true for a media type of text without parameters.
fn is_text(media_type: &str) -> bool {
    (media_type.starts_with("text/") && !media_type.contains(';'))
        || matches!(media_type, "application/javascript" | "application/json" | "image/svg+xml")
}

/// The media type of a file: of its whole name, else of its longest extension that is configured, else of its last one.
fn media_type<'a>(path: &[u8], rules: &'a FileRules) -> Cow<'a, str> {
    let name = String::from_utf8_lossy(base(path)).to_ascii_lowercase();
    let extensions = || name.match_indices('.').map(|(at, _)| &name[at + 1..]);
    if !rules.types.is_empty()
        && let Some(own) =
            core::iter::once(&name[..]).chain(extensions()).find_map(|part| rules.types.get(part))
    {
        return own.into();
    }
    if NAMES_OF_TEXTS.contains(&&name[..]) {
        return "text/plain".into();
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if let Some((_, own)) = TYPES.iter().find(|(of, _)| extension == *of) {
        return (*own).into();
    }
    mime_guess::from_path(&*name).first_raw().unwrap_or(&rules.default_type).into()
}

/// Names, in lower case, of files that are text on every system: files that accompany a program or a package, and files
/// that build it. Their contents are not examined.
const NAMES_OF_TEXTS: [&str; 56] = [
    "authors",
    "b2sums",
    "bugs",
    "changelog",
    "changes",
    "checksums",
    "codeowners",
    "containerfile",
    "contributing",
    "contributors",
    "copying",
    "copying.lesser",
    "copying.lib",
    "copyright",
    "credits",
    "dockerfile",
    "faq",
    "gemfile",
    "gnumakefile",
    "hacking",
    "history",
    "inrelease",
    "install",
    "jenkinsfile",
    "licence",
    "license",
    "license-apache",
    "license-mit",
    "maintainers",
    "makefile",
    "manifest",
    "md5sum",
    "md5sums",
    "news",
    "notice",
    "packages",
    "patents",
    "procfile",
    "rakefile",
    "readme",
    "release",
    "sha1sum",
    "sha1sums",
    "sha224sums",
    "sha256sum",
    "sha256sums",
    "sha384sums",
    "sha512sum",
    "sha512sums",
    "sources",
    "thanks",
    "todo",
    "unlicense",
    "upgrading",
    "vagrantfile",
    "version",
];

/// Media types that `mime_guess` does not know, or for which it prefers a type that players, package managers and
/// browsers do not expect (for `.rpm` that of a plug-in of a player, for `.ts` that of DLNA).
///
/// Sources: RFC 9239 (JavaScript), RFC 8216 §4 (playlists), RFC 3555 (`mp2t`), RFC 8081 (fonts), RFC 8878 (Zstandard),
/// RFC 4337 (`audio/mp4`), RFC 6350 §10.1 (vCard), RFC 8949 §9.5 (CBOR), ISO/IEC 23009-1 annex C (segments), ECMA-426
/// (source maps), IANA's list of media types (Debian's packages, models, textures, Flatpak, SQLite), shared-mime-info
/// (types that begin with `application/x-`), `mime.types` of nginx (MIDI) and of Debian (patches). `.iso`, `.img` and
/// `.dmg` are `application/octet-stream`, as with nginx.
const TYPES: [(&str, &str); 48] = [
    ("3mf", "model/3mf"),
    ("appimage", "application/vnd.appimage"),
    ("br", "application/x-brotli"),
    ("cbor", "application/cbor"),
    ("cjs", "text/javascript"),
    ("deb", "application/vnd.debian.binary-package"),
    ("diff", "text/x-diff"),
    ("flatpak", "application/vnd.flatpak"),
    ("ktx2", "image/ktx2"),
    ("lz", "application/x-lzip"),
    ("lz4", "application/x-lz4"),
    ("m2ts", "video/mp2t"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json"),
    ("md5", "text/plain"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mtl", "model/mtl"),
    ("mts", "video/mp2t"),
    ("obj", "model/obj"),
    ("otf", "font/otf"),
    ("patch", "text/x-diff"),
    ("qcow2", "application/x-qemu-disk"),
    ("rpm", "application/x-rpm"),
    ("sha1", "text/plain"),
    ("sha256", "text/plain"),
    ("sha512", "text/plain"),
    ("snap", "application/vnd.snap"),
    ("sqlite", "application/vnd.sqlite3"),
    ("stl", "model/stl"),
    ("tbz2", "application/x-bzip2"),
    ("tgz", "application/gzip"),
    ("ts", "video/mp2t"),
    ("txz", "application/x-xz"),
    ("tzst", "application/zstd"),
    ("udeb", "application/vnd.debian.binary-package"),
    ("usda", "model/vnd.usda"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcard", "text/vcard"),
    ("vcf", "text/vcard"),
    ("wgsl", "text/wgsl"),
    ("whl", "application/zip"),
    ("woff", "font/woff"),
    ("zst", "application/zstd"),
    ("zstd", "application/zstd"),
];

/// The coding that the format of a file implies: compressed drawings. Browsers read only `image/svg+xml`, so the client
/// undoes the coding, even if it did not ask for it. Another type in the configuration means that the file is sent as
/// it is.
pub(super) fn coding_of_format(path: &[u8], rules: &FileRules) -> Option<Coding> {
    let name = base(path);
    let end = name.len().checked_sub(COMPRESSED_DRAWING.len()).map(|start| &name[start..]);
    let is_drawing = end.is_some_and(|end| end.eq_ignore_ascii_case(COMPRESSED_DRAWING));
    (is_drawing && media_type(path, rules).starts_with("image/svg+xml")).then_some(Coding::Gzip)
}

/// The suffix of the names of drawings that are compressed with gzip.
const COMPRESSED_DRAWING: &[u8] = b".svgz";

/// Returns true if precompressed siblings are looked for. Files in a compressed format have none.
pub(super) fn has_siblings(path: &[u8], rules: &FileRules) -> bool {
    rules.precompressed
        && !is_compressed(&media_type(path, rules))
        && coding_of_format(path, rules).is_none()
        && !Coding::PREFERENCE
            .into_iter()
            .any(|coding| base(path).ends_with(suffix(coding).as_bytes()))
}

/// Returns true for names of precompressed files. Some file systems find names in upper case, too.
pub(super) fn is_coded(name: &[u8]) -> bool {
    Coding::PREFERENCE.into_iter().any(|coding| {
        let suffix = suffix(coding).as_bytes();
        let end = name.len().checked_sub(suffix.len()).map(|start| &name[start..]);
        end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    })
}

/// Returns true if files of this type may be films whose containers have their layout.
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
        || media_type.ends_with("+zip")
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
                | "application/java-archive"
                | "application/vnd.android.package-archive"
                | "application/x-brotli"
                | "application/x-lz4"
                | "application/x-lzip"
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
            ("x", "text/x; charset=latin1"),
            ("a.x/b", "application/octet-stream"),
            ("b.html", "text/html; charset=latin1"),
        ] {
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
        let rules = FileRules { charset: None, ..rules };
        assert_eq!(content_type(b"b.html", &rules), "text/html");
    }

    #[test]
    fn the_whole_name_comes_before_the_extension_and_case_means_nothing() {
        let types = [("sha256sums", "a/sums"), ("b.html", "a/b"), ("html", "a/html")];
        let types = types.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let rules = FileRules { types, default_type: "text/x".to_owned(), ..FileRules::default() };
        for (name, expected) in [
            ("d/SHA256SUMS", "a/sums"),
            ("sha256sums", "a/sums"),
            ("a.SHA256SUMS", "a/sums"),
            ("B.html", "a/b"),
            ("c.b.html", "a/b"),
            ("c.html", "a/html"),
            ("README", "text/plain; charset=utf-8"),
            ("SHA512SUMS", "text/plain; charset=utf-8"),
            ("a.unknown", "text/x; charset=utf-8"),
            ("unknown", "text/x; charset=utf-8"),
            ("a.css.br", "application/x-brotli"),
            ("a.bin", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
    }

    #[test]
    fn texts_without_an_extension_are_known_by_their_names() {
        let rules = FileRules::default();
        for name in [
            "README",
            "LICENSE",
            "COPYING",
            "CHANGELOG",
            "ChangeLog",
            "SHA256SUMS",
            "MD5SUMS",
            "dists/stable/Release",
            "dists/stable/InRelease",
            "Makefile",
            "makefile",
            "Dockerfile",
            "NEWS",
            "copyright",
            "a.iso.sha256",
        ] {
            let expected = "text/plain; charset=utf-8";
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
        for (name, expected) in [
            ("README.md", "text/markdown; charset=utf-8"),
            ("Release.gpg", "application/octet-stream"),
            ("SHA256SUMS.gz", "application/gzip"),
            ("program", "application/octet-stream"),
            ("README/program", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes(), &rules), expected, "{name}");
        }
        assert!(has_siblings(b"README", &rules));
    }

    #[test]
    fn names_of_the_tables_are_in_order_and_in_lower_case() {
        assert!(NAMES_OF_TEXTS.is_sorted() && TYPES.is_sorted());
        let names = TYPES.iter().map(|(name, _)| name).chain(&NAMES_OF_TEXTS);
        assert!(names.into_iter().all(|name| *name == name.to_ascii_lowercase()));
    }

    #[test]
    fn a_compressed_drawing_is_in_a_coding_and_is_not_compressed_again() {
        let rules = FileRules::default();
        for name in ["a.svgz", "d/a.b.SVGZ"] {
            let content_type = content_type(name.as_bytes(), &rules);
            assert_eq!(content_type, "image/svg+xml; charset=utf-8", "{name}");
            assert_eq!(coding_of_format(name.as_bytes(), &rules), Some(Coding::Gzip), "{name}");
            assert!(!has_siblings(name.as_bytes(), &rules), "{name}");
        }
        for name in ["a.svg", "a.svg.gz", "svgz", "svgz/a", "a.svgz.txt"] {
            assert_eq!(coding_of_format(name.as_bytes(), &rules), None, "{name}");
        }
        let types = [("svgz".to_owned(), "application/gzip".to_owned())].into();
        let rules = FileRules { types, ..rules };
        assert_eq!(coding_of_format(b"a.svgz", &rules), None, "it is sent as what it is");
    }

    /// Of `mime.types` of nginx 1.22 and of Debian's media-types: what browsers and package managers ask for.
    #[test]
    fn common_files_have_the_types_that_other_servers_give_them() {
        let rules = FileRules { charset: None, ..FileRules::default() };
        for (name, expected) in [
            ("html", "text/html"),
            ("htm", "text/html"),
            ("css", "text/css"),
            ("xml", "text/xml"),
            ("gif", "image/gif"),
            ("jpeg", "image/jpeg"),
            ("jpg", "image/jpeg"),
            ("js", "text/javascript"),
            ("mjs", "text/javascript"),
            ("atom", "application/atom+xml"),
            ("rss", "application/rss+xml"),
            ("txt", "text/plain"),
            ("avif", "image/avif"),
            ("jxl", "image/jxl"),
            ("heic", "image/heic"),
            ("png", "image/png"),
            ("svg", "image/svg+xml"),
            ("svgz", "image/svg+xml"),
            ("tiff", "image/tiff"),
            ("webp", "image/webp"),
            ("ico", "image/x-icon"),
            ("woff", "font/woff"),
            ("woff2", "font/woff2"),
            ("ttf", "font/ttf"),
            ("otf", "font/otf"),
            ("jar", "application/java-archive"),
            ("json", "application/json"),
            ("webmanifest", "application/manifest+json"),
            ("pdf", "application/pdf"),
            ("rtf", "application/rtf"),
            ("m3u8", "application/vnd.apple.mpegurl"),
            ("mpd", "application/dash+xml"),
            ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
            ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
            ("odt", "application/vnd.oasis.opendocument.text"),
            ("epub", "application/epub+zip"),
            ("apk", "application/vnd.android.package-archive"),
            ("wasm", "application/wasm"),
            ("7z", "application/x-7z-compressed"),
            ("xz", "application/x-xz"),
            ("gz", "application/gzip"),
            ("zst", "application/zstd"),
            ("br", "application/x-brotli"),
            ("xhtml", "application/xhtml+xml"),
            ("zip", "application/zip"),
            ("iso", "application/octet-stream"),
            ("img", "application/octet-stream"),
            ("dmg", "application/octet-stream"),
            ("exe", "application/octet-stream"),
            ("deb", "application/vnd.debian.binary-package"),
            ("midi", "audio/midi"),
            ("mp3", "audio/mpeg"),
            ("ogg", "audio/ogg"),
            ("m4a", "audio/mp4"),
            ("mp4", "video/mp4"),
            ("m4s", "video/iso.segment"),
            ("ts", "video/mp2t"),
            ("webm", "video/webm"),
            ("mov", "video/quicktime"),
            ("usdz", "model/vnd.usdz+zip"),
            ("glb", "model/gltf-binary"),
            ("vcf", "text/vcard"),
            ("ics", "text/calendar"),
            ("vtt", "text/vtt"),
        ] {
            assert_eq!(content_type(format!("a.{name}").as_bytes(), &rules), expected, "{name}");
        }
        for name in ["a.usdz", "a.epub", "a.jar", "a.apk", "a.tgz", "a.css.br", "a.lz4"] {
            assert!(!has_siblings(name.as_bytes(), &rules), "{name}");
        }
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

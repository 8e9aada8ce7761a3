//! Paths in and out, and attempts to leave the root.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use proptest::prelude::*;

use super::*;

/// The name in readable form, with a slash after it for a directory.
fn name_of(path: &str) -> Result<String, PathError> {
    let mut out = vec![b'?'; 3];
    let Normal { directory } = normalize(path.as_bytes(), &mut out)?;
    Ok(format!("{}{}", out.escape_ascii(), if directory { "/" } else { "" }))
}

#[test]
fn rfc3986_5_2_4_dot_segments_are_removed() {
    for (path, expected) in [
        ("/", "/"),
        ("/a", "a"),
        ("/a/", "a/"),
        ("/a/b.html", "a/b.html"),
        ("/.", "/"),
        ("/./", "/"),
        ("/./a", "a"),
        ("/a/.", "a/"),
        ("/a/./b", "a/b"),
        ("/a/..", "/"),
        ("/a/../", "/"),
        ("/a/../b", "b"),
        ("/a/b/..", "a/"),
        ("/a/b/../c/./../d/", "a/d/"),
        ("/a/b/../../c", "c"),
        ("/...", "..."),
        ("/..a", "..a"),
        ("/a..", "a.."),
        ("/.a", ".a"),
        ("/a.", "a."),
    ] {
        assert_eq!(name_of(path).as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn empty_segments_vanish() {
    for (path, expected) in [
        ("//", "/"),
        ("//a", "a"),
        ("/a//b", "a/b"),
        ("/a//", "a/"),
        ("///a///b", "a/b"),
        ("/a//../b", "b"),
    ] {
        assert_eq!(name_of(path).as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn rfc3986_2_1_percent_encodings_are_decoded_once() {
    for (path, expected) in [
        ("/%61", "a"),
        ("/a%20b", "a b"),
        ("/%25", "%"),
        ("/%2561", "%61"),
        ("/%252e%252e/a", "%2e%2e/a"),
        ("/%c3%A4", r"\xc3\xa4"),
        ("/%2e", "/"),
        ("/a/%2e%2E/b", "b"),
        ("/a/.%2e/b", "b"),
        ("/%0d%0a", r"\r\n"),
        ("/a%3Fb%23", "a?b#"),
        ("/%7f%ff", r"\x7f\xff"),
    ] {
        assert_eq!(name_of(path).as_deref(), Ok(expected), "{path}");
    }
    for path in ["/%", "/a%", "/%1", "/%g0", "/%0g", "/%%41", "/%-1", "/% 1", "/%1/", "/%+1"] {
        assert_eq!(name_of(path), Err(PathError::BadPercent), "{path}");
    }
}

#[test]
fn nothing_leaves_the_root() {
    for path in
        ["/..", "/../a", "/a/../..", "/%2e%2e/a", "/.%2E/", "/./..", "//..", "/a/../../a", "/..//a"]
    {
        assert_eq!(name_of(path), Err(PathError::AboveRoot), "{path}");
    }
}

#[test]
fn what_no_name_can_hold_is_refused() {
    assert_eq!(name_of("/a%00b"), Err(PathError::Nul));
    assert_eq!(name_of("/a\0b"), Err(PathError::Nul));
    assert_eq!(name_of("/a%2Fb"), Err(PathError::EncodedSlash));
    assert_eq!(name_of("/..%2f..%2fetc"), Err(PathError::EncodedSlash));
    for path in ["", "a", "*", "\\a", "%2Fa"] {
        assert_eq!(name_of(path), Err(PathError::NotAbsolute), "{path}");
    }
}

#[test]
fn a_backslash_is_an_ordinary_byte() {
    assert_eq!(name_of("/a\\..\\b").as_deref(), Ok(r"a\\..\\b"));
    assert_eq!(name_of("/%5c%5C").as_deref(), Ok(r"\\\\"));
}

#[test]
fn lengths_are_those_of_linux() {
    let longest = "n".repeat(NAME_BYTES_MAX);
    assert_eq!(name_of(&format!("/{longest}")).as_deref(), Ok(&longest[..]));
    assert_eq!(name_of(&format!("/{longest}n")), Err(PathError::NameTooLong));
    let encoded = "%6e".repeat(NAME_BYTES_MAX);
    assert_eq!(name_of(&format!("/{encoded}")).as_deref(), Ok(&longest[..]));
    assert_eq!(name_of(&format!("/{encoded}n")), Err(PathError::NameTooLong));

    // 16 names of 255 bytes, with 15 slashes.
    let deep = format!("/{longest}").repeat(16);
    assert_eq!(name_of(&deep).map(|name| name.len()), Ok(PATH_BYTES_MAX));
    assert_eq!(name_of(&format!("{deep}/n")), Err(PathError::PathTooLong));
}

#[test]
fn errors_have_a_status_and_a_reason() {
    for (error, code) in [
        (PathError::NotAbsolute, 400),
        (PathError::AboveRoot, 400),
        (PathError::BadPercent, 400),
        (PathError::Nul, 400),
        (PathError::EncodedSlash, 404),
        (PathError::NameTooLong, 404),
        (PathError::PathTooLong, 414),
    ] {
        assert_eq!(error.status().code(), code);
        assert!(format!("{error}").starts_with("a path "));
    }
}

#[test]
fn normal_paths_are_recognized() {
    for path in [
        "/",
        "/a",
        "/a/",
        "/a/b.c",
        "/index.html",
        "/12345678",
        "/1234567/",
        "/a-b_c~d|{}\\",
        "/a/b/c/d/e/f/g/h/",
    ] {
        assert!(is_normal(path.as_bytes()), "{path}");
    }
    for path in [
        "",
        "a",
        "*",
        "//",
        "/.",
        "/..",
        "/./",
        "/a//b",
        "/a/.b",
        "/a/../b",
        "/a%20b",
        "/%",
        "/1234567//",
        "/123456//7",
        "/1234567/.",
        "/a\0",
        "/a\x7f",
        "/a b",
        "/\u{e4}",
        "/1234567890123456%",
        "/123456789012345/.x",
    ] {
        assert!(!is_normal(path.as_bytes()), "{path:?}");
    }
    assert!(is_normal(&[b"/", &[b'n'; 254][..]].concat()));
    assert!(!is_normal(&[b"/", &[b'n'; 255][..]].concat()));
}

#[test]
fn encoding_is_safe_in_fields_and_in_html() {
    for (path, expected) in [
        ("a b", "a%20b"),
        ("a/b", "a/b"),
        ("100%", "100%25"),
        ("a?b#c", "a%3Fb%23c"),
        ("\r\nSet-Cookie: x", "%0D%0ASet-Cookie%3A%20x"),
        ("\"><script>'&", "%22%3E%3Cscript%3E%27%26"),
        ("javascript:x", "javascript%3Ax"),
        ("\\\\host", "%5C%5Chost"),
        ("\u{e4}", "%C3%A4"),
        ("-._~!$()*+,;=@", "-._~!$()*+,;=@"),
        ("//evil.example/", "/evil.example/"),
        ("a////b", "a/b"),
    ] {
        let mut out = Vec::new();
        encode(path.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected), "{path:?}");
    }
}

#[test]
fn rfc3986_3_3_a_location_keeps_the_characters_of_segments() {
    for (path, expected) in [
        ("/a:b@c/!$&'()*+,;=-._~", "/a:b@c/!$&'()*+,;=-._~"),
        ("/a?b#c%d\r\ne", "/a%3Fb%23c%25d%0D%0Ae"),
        ("/ \"<>[\\]^`{|}\u{e4}", "/%20%22%3C%3E%5B%5C%5D%5E%60%7B%7C%7D%C3%A4"),
        ("//evil.example//", "/evil.example/"),
        ("/a\0b", "/a%2Fb"),
    ] {
        let mut out = Vec::new();
        encode_location(path.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected), "{path:?}");
    }
}

#[test]
fn encoding_behind_a_slash_never_doubles_it() {
    for encode in [encode, encode_location] {
        let mut out = b"/".to_vec();
        encode(b"//evil.example", &mut out);
        assert_eq!(out, b"/evil.example");
    }
}

#[test]
fn rfc3986_2_1_bytes_that_are_not_kept_are_encoded_with_upper_case_digits() {
    let mut out = b"/".to_vec();
    encode_unless(|byte| byte.is_ascii_alphanumeric(), b"a/\xff %\n", &mut out);
    assert_eq!(out, b"/a%2F%FF%20%25%0A");
}

/// Paths with all special characters.
#[test]
fn rfc3986_6_2_2_a_path_that_is_sent_on_has_one_form() {
    for (path, expected) in [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("//a///b//", "/a/b/"),
        ("/a/./b/../c/.", "/a/c/"),
        ("/a/%2e%2E/b", "/b"),
        ("/..", "/"),
        ("/../../a", "/a"),
        ("/%61%7e%41%30%2d%5F", "/a~A0-_"),
        // The encoding of these may have a meaning.
        ("/a%2fb", "/a%2Fb"),
        ("/a%2Bb+c%3bd%3a%40%25%20", "/a%2Bb+c%3Bd%3A%40%25%20"),
        ("/%e4\u{e4}", "/%E4%C3%A4"),
        ("/:@!$&'()*+,;=-._~", "/:@!$&'()*+,;=-._~"),
        ("/\"<>[\\]^`{|}", "/%22%3C%3E%5B%5C%5D%5E%60%7B%7C%7D"),
        ("/100%/%x1%1x%", "/100%25/%25x1%251x%25"),
        // To servers that cut at a semicolon these would be other paths.
        ("/a;v=1/b", "/a;v=1/b"),
        ("/a/..;/b", "/a/..%3B/b"),
        ("/a/.;x;y/b", "/a/.%3Bx;y/b"),
        ("/a/%2e.;/b", "/a/..%3B/b"),
        ("/;x/b", "/%3Bx/b"),
    ] {
        let mut out = b"http://h".to_vec();
        resolve(path.as_bytes(), &mut out);
        assert_eq!(str::from_utf8(&out), Ok(&*format!("http://h{expected}")), "{path}");
    }
}

#[test]
fn a_path_is_sent_on_as_it_is_unless_its_segments_may_be_others_for_the_server() {
    for (path, expected) in [
        ("/", "/"),
        ("", "/"),
        ("/thumb/https://example.org/x//", "/thumb/https://example.org/x//"),
        ("/a%7eb/%41/...;x/.a", "/a%7eb/%41/...;x/.a"),
        ("/a-b_c~/d.e/!$()*+,=@/", "/a-b_c~/d.e/!$()*+,=@/"),
        ("/a/;x", "/a/;x"),
        ("/;c", "/;c"),
        ("//;c", "//;c"),
        ("/a%2Fb;c", "/a%2Fb;c"),
        ("/[x]//\u{e4}%/%4", "/[x]//%C3%A4%25/%254"),
        ("//key", "//key"),
        ("///a//%c3%a9%7E~//", "///a//%c3%a9%7E~//"),
        ("//", "//"),
        ("/a|\"<>{}^`\\", "/a%7C%22%3C%3E%7B%7D%5E%60%5C"),
        // As `resolve` has it.
        ("//host/a//./b", "/host/a/b"),
        ("/a//../b//c", "/b/c"),
        ("/a//%2E/b", "/a/b"),
        ("/a//%2e.;x/b", "/a/..%3Bx/b"),
        ("/a//..%3bx/b", "/a/..%3Bx/b"),
        ("/a//b/..", "/a/"),
        // Some servers take these for `//x` and the like.
        ("/;/x", "/%3B/x"),
        ("/a//;x/b//%7E", "/a//%3Bx/b//%7E"),
        ("/a/;x/", "/a/%3Bx/"),
        ("/%3bx/b", "/%3bx/b"),
    ] {
        assert_eq!(str::from_utf8(&forwarded(path.as_bytes())), Ok(expected), "{path}");
    }
}

#[test]
fn the_part_behind_segments_is_found_whatever_slashes_are_between() {
    for (path, segments, expected) in [
        ("/a//b", "/", "/a//b"),
        ("//a//b", "/", "//a//b"),
        ("//a//b", "/x/", "//b"),
        ("/a///b//c/", "/x/y/", "//c/"),
        ("/a/", "/x/", "/"),
        ("/a", "/x/", ""),
        ("/", "/x/", ""),
    ] {
        assert_eq!(behind(path.as_bytes(), segments.as_bytes()), expected.as_bytes(), "{path}");
    }
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"/".to_vec()),
        2 => Just(b"a".to_vec()),
        2 => Just(b".".to_vec()),
        1 => Just(b"..".to_vec()),
        1 => Just(b"%2e".to_vec()),
        1 => Just(b"%2F".to_vec()),
        1 => Just(b"%00".to_vec()),
        1 => Just(b"%25".to_vec()),
        1 => Just(b"\\".to_vec()),
        1 => any::<u8>().prop_map(|byte| format!("%{byte:02x}").into_bytes()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(piece, 0..30)
        .prop_map(|pieces| [vec![b'/'], pieces.concat()].concat())
}

/// Names of files as they may be on a disk.
fn file_name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 1..40).prop_filter("a name", |name| {
        !name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b".."
    })
}

#[test]
fn a_path_that_names_no_file_has_any_length_and_keeps_encoded_slashes() {
    let long = "x".repeat(300);
    let longer = format!("/{}", format!("{long}/").repeat(20));
    for (path, expected) in [
        ("/a%2Fb/./c", Ok("a\\x00b/c".into())),
        ("/a%2fb/../c", Ok("c".into())),
        ("/%2F%2F", Ok("\\x00\\x00".into())),
        ("/a/..b%2Fc", Ok("a/..b\\x00c".into())),
        (&longer, Ok(longer.trim_matches('/').into())),
        ("/a%2F..", Ok("a\\x00..".into())),
        ("/..%2Fa/../b", Ok("b".into())),
        ("/a%00", Err(PathError::Nul)),
        ("/a%2", Err(PathError::BadPercent)),
        ("/..", Err(PathError::AboveRoot)),
        ("a", Err(PathError::NotAbsolute)),
    ] {
        let mut out = Vec::new();
        let name = normalize_opaque(path.as_bytes(), &mut out);
        let name: Result<String, _> = name.map(|_| format!("{}", out.escape_ascii()));
        assert_eq!(name, expected, "{path}");
    }
}

#[test]
fn dots_between_encoded_slashes_are_found() {
    for (path, hides) in [
        ("/a%2Fb/c", false),
        ("/a%2F..b/...%2F", false),
        ("/..;x/a", false),
        ("/a%2F..", true),
        ("/..%2Fa", true),
        ("/b/a%2f%2e%2E%2fb/c", true),
        ("/a%2F.%2Fb", true),
        ("/a%2F..;x=y%2Fb", true),
    ] {
        let mut name = Vec::new();
        normalize_opaque(path.as_bytes(), &mut name).unwrap();
        assert_eq!(hides_dots(&name), hides, "{path}");
    }
}

#[test]
fn an_encoded_slash_is_shown_as_it_is_wanted() {
    let mut name = Vec::new();
    normalize_opaque(b"/a%2fb/%2F", &mut name).unwrap();
    assert_eq!(&*with_slashes(&name, b"/"), b"a/b//");
    assert_eq!(&*with_slashes(&name, b"%2F"), b"a%2Fb/%2F");
    let mut url = Vec::new();
    encode(&name, &mut url);
    assert_eq!(url, b"a%2Fb/%2F");
}

proptest! {
    #[test]
    fn a_file_can_have_a_name_if_and_only_if_it_is_one_of_a_file(path in path()) {
        let (mut name, mut opaque) = (Vec::new(), Vec::new());
        let (normal, whole) = (normalize(&path, &mut name), normalize_opaque(&path, &mut opaque));
        match whole {
            // An encoded slash may be in a segment that `..` has removed.
            Ok(whole) => match check_file(&opaque) {
                Ok(()) if normal != Err(PathError::EncodedSlash) => prop_assert_eq!((normal, name), (Ok(whole), opaque)),
                Ok(()) => {}
                Err(error) => prop_assert_eq!(normal, Err(error)),
            },
            Err(error) => prop_assert!(normal == Err(error) || normal == Err(PathError::EncodedSlash)),
        }
    }

    #[test]
    fn a_normal_name_stays_beneath_the_root(path in path()) {
        let mut name = Vec::new();
        if normalize(&path, &mut name).is_ok() {
            prop_assert!(!name.contains(&0));
            prop_assert!(name.len() <= PATH_BYTES_MAX);
            if !name.is_empty() {
                for segment in name.split(|&byte| byte == b'/') {
                    prop_assert!(!matches!(segment, b"" | b"." | b".."));
                    prop_assert!(segment.len() <= NAME_BYTES_MAX);
                }
            }
        }
    }

    #[test]
    fn a_path_that_is_sent_on_has_the_same_name_if_it_names_no_file(path in path()) {
        let mut name = Vec::new();
        if let Ok(normal) = normalize_opaque(&path, &mut name) {
            let (mut resolved, mut again) = (Vec::new(), Vec::new());
            resolve(&path, &mut resolved);
            prop_assert_eq!(normalize_opaque(&resolved, &mut again), Ok(normal));
            prop_assert_eq!(&again, &name);
            let forwarded = forwarded(&path);
            prop_assert_eq!(normalize_opaque(&forwarded, &mut again), Ok(normal));
            prop_assert_eq!(again, name);
            prop_assert!(forwarded.starts_with(b"/"));
            prop_assert_eq!(bytes::skip(&forwarded, 0, bytes::PATH), forwarded.len());
            // The result means the same to servers that look at segments only.
            let mut meant = Vec::new();
            resolve(&forwarded, &mut meant);
            prop_assert_eq!(meant, resolved);
        }
    }

    #[test]
    fn is_normal_means_that_only_slashes_are_stripped(path in path()) {
        if is_normal(&path) {
            let mut name = Vec::new();
            let normal = normalize(&path, &mut name);
            prop_assert_eq!(normal, Ok(Normal { directory: path.ends_with(b"/") }));
            let stripped = path.strip_suffix(b"/").unwrap_or(&path);
            prop_assert_eq!(&name[..], stripped.strip_prefix(b"/").unwrap_or(stripped));
        }
    }

    #[test]
    fn is_normal_by_words_is_is_normal_by_bytes(path in path()) {
        let plain = path.iter().all(|&byte| matches!(byte, 0x21..=0x7e) && byte != b'%')
            && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
        prop_assert_eq!(is_normal(&path), plain && path.len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn what_is_encoded_is_decoded(
        names in proptest::collection::vec(file_name(), 1..6),
        directory: bool,
    ) {
        let file = names.join(&b'/');
        let mut url = b"/".to_vec();
        encode(&file, &mut url);
        if directory {
            encode(b"/", &mut url);
        }
        prop_assert!(url.iter().all(u8::is_ascii_graphic));
        prop_assert!(!url.starts_with(b"//"));
        let mut name = Vec::new();
        prop_assert_eq!(normalize(&url, &mut name), Ok(Normal { directory }));
        prop_assert_eq!(name, file);
    }

    #[test]
    fn a_path_that_is_sent_on_has_the_same_name(path in path()) {
        let mut name = Vec::new();
        if let Ok(normal) = normalize(&path, &mut name) {
            let (mut resolved, mut again) = (Vec::new(), Vec::new());
            resolve(&path, &mut resolved);
            prop_assert_eq!(normalize(&resolved, &mut again), Ok(normal));
            prop_assert_eq!(&again, &name);
            prop_assert_eq!(bytes::skip(&resolved, 0, bytes::PATH), resolved.len());
            again.clear();
            resolve(&resolved, &mut again);
            prop_assert_eq!(again, resolved);
        }
    }

    #[test]
    fn encoding_anything_never_begins_with_two_slashes(path: Vec<u8>) {
        let mut out = Vec::new();
        encode(&path, &mut out);
        prop_assert!(!out.starts_with(b"//"));
        prop_assert!(out.iter().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(path: Vec<u8>) {
        let mut name = Vec::new();
        let _ = normalize(&path, &mut name);
        let _ = is_normal(&path);
    }
}

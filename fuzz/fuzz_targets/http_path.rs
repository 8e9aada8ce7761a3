//! Arbitrary paths of URLs and names of files. Checked: no name leaves the root, names survive the
//! way out and back, and the quick check agrees with the thorough one.

#![no_main]

use http::path::{NAME_BYTES_MAX, Normal, PATH_BYTES_MAX, encode, is_normal, normalize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|path: &[u8]| {
    let mut name = Vec::new();
    let result = normalize(path, &mut name);
    if is_normal(path) {
        assert_eq!(result, Ok(Normal { directory: path.ends_with(b"/") }));
        let stripped = path.strip_suffix(b"/").unwrap_or(path);
        assert_eq!(name, stripped.strip_prefix(b"/").unwrap_or(stripped));
    }
    if let Ok(normal) = result {
        check_name(&name);
        check_round_trip(&name, normal);
    }

    let mut url = Vec::new();
    encode(path, &mut url);
    assert!(url.iter().all(u8::is_ascii_graphic));
    assert!(!url.starts_with(b"//"));
    assert!(!url.iter().any(|byte| b"\"'<>&\\:?#".contains(byte)));
});

fn check_name(name: &[u8]) {
    assert!(name.len() <= PATH_BYTES_MAX);
    if name.is_empty() {
        return;
    }
    for segment in name.split(|&byte| byte == b'/') {
        assert!(!matches!(segment, b"" | b"." | b".."));
        assert!(segment.len() <= NAME_BYTES_MAX);
        assert!(!segment.contains(&0));
    }
}

fn check_round_trip(name: &[u8], normal: Normal) {
    let mut url = b"/".to_vec();
    encode(name, &mut url);
    if normal.directory {
        encode(b"/", &mut url);
    }
    let mut again = Vec::new();
    assert_eq!(normalize(&url, &mut again), Ok(normal));
    assert_eq!(again, name);
}

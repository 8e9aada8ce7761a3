use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn names(list: &[&'static str]) -> Names<&'static str> {
    let mut names = Names::new(vec!["default"]);
    for name in list {
        names.add(name, *name).unwrap();
    }
    names
}

fn found<'a>(names: &Names<&'a str>, name: &str) -> Vec<&'a str> {
    names.find(Some(name)).copied().collect()
}

#[test]
fn an_exact_name_comes_before_a_wildcard_and_a_wildcard_before_the_default() {
    let list = ["example.org", "WWW.example.org.", "*.example.org", "*.a.example.org", "_x.test"];
    for (name, expected) in [
        ("example.org", &["example.org"][..]),
        ("EXAMPLE.org.", &["example.org"]),
        ("www.example.org", &["WWW.example.org.", "*.example.org"]),
        ("ftp.example.org", &["*.example.org"]),
        ("b.a.example.org", &["*.a.example.org"]),
        ("a.example.org", &["*.example.org"]),
        ("c.b.a.example.org", &["default"]),
        ("b.www.example.org", &["default"]),
        ("_x.test", &["_x.test"]),
        ("org", &["default"]),
        ("example.org.org", &["default"]),
        // None of these is a name.
        ("", &["default"]),
        (".", &["default"]),
        ("*.example.org", &["default"]),
        (".example.org", &["default"]),
        ("a..example.org", &["default"]),
        ("www.example.org..", &["default"]),
        ("-.example.org", &["default"]),
        ("b\u{fc}cher.example.org", &["default"]),
        ("a b.example.org", &["default"]),
    ] {
        assert_eq!(found(&names(&list), name), expected, "{name}");
    }
}

#[test]
fn addresses_are_no_names() {
    let mut names = Names::new(vec![0]);
    for address in
        ["192.0.2.1", "127.1", "1", "0x7f", "a.0x", "::1", "[::1]", "2001:db8::1", "192.0.2.1."]
    {
        assert_eq!(names.add(address, 1), Err(InvalidName), "{address}");
        assert_eq!(names.find(Some(address)).collect::<Vec<_>>(), [&0], "{address}");
    }
    assert_eq!(names.add("1.example", 1), Ok(()));
    assert_eq!(names.add("0x7g", 1), Ok(()));
}

#[test]
fn names_have_the_lengths_of_dns() {
    let label = "a".repeat(63);
    let longest = [&label[..], &label, &label, &"a".repeat(61)].join(".");
    assert_eq!(longest.len(), NAME_BYTES_MAX);
    let mut names = Names::new(vec![0]);
    names.add(&longest, 1).unwrap();
    assert_eq!(names.find(Some(&longest)).collect::<Vec<_>>(), [&1]);
    assert_eq!(names.find(Some(&[&longest, "."].concat())).collect::<Vec<_>>(), [&1]);
    for long in [["a", &longest].concat(), "a".repeat(64), "a.".repeat(255), "a".repeat(65_535)] {
        assert_eq!(names.add(&long, 1), Err(InvalidName));
        assert_eq!(names.find(Some(&long)).collect::<Vec<_>>(), [&0]);
    }
}

#[test]
fn the_first_that_the_client_can_use_is_chosen_and_else_the_first() {
    let mut names = Names::new(vec!["default ecdsa", "default rsa"]);
    for (name, value) in [
        ("example.org", "ecdsa"),
        ("example.org", "rsa"),
        ("www.example.org", "www ecdsa"),
        ("*.example.org", "wildcard rsa"),
    ] {
        names.add(name, value).unwrap();
    }
    for (name, kind, chosen) in [
        (Some("example.org"), "a", "ecdsa"),
        (Some("example.org"), "rsa", "rsa"),
        (Some("example.org"), "ed25519", "ecdsa"),
        (Some("www.example.org"), "rsa", "wildcard rsa"),
        (Some("www.example.org"), "ed25519", "www ecdsa"),
        (Some("other"), "rsa", "default rsa"),
        (None, "ecdsa", "default ecdsa"),
        (None, "ed25519", "default ecdsa"),
    ] {
        let is_usable = |value: &&str| value.contains(kind);
        assert_eq!(names.choose(name, is_usable), Some(&chosen), "{name:?} {kind}");
    }
    assert_eq!(Names::<u8>::new(Vec::new()).choose(None, |_| true), None);
}

/// The same by comparing a name with each pattern.
fn naive<'a>(patterns: &'a [String], name: &str) -> Vec<&'a String> {
    let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let name = plain(name);
    let exact = patterns.iter().filter(|pattern| plain(pattern) == name);
    let covers = |pattern: &&String| {
        let pattern = plain(pattern);
        let Some(of) = pattern.strip_prefix('*') else { return false };
        let label = name.strip_suffix(of).unwrap_or_default();
        !label.is_empty() && !label.contains('.')
    };
    exact.chain(patterns.iter().filter(covers)).collect()
}

proptest! {
    #[test]
    fn all_is_found_as_by_comparing_with_each(
        patterns in vec(r"(\*\.)?([abA]\.){0,3}[abA]\.?", 0..8),
        name in r"([abB]\.){0,4}[abB]\.?",
    ) {
        let mut names = Names::new(Vec::new());
        for pattern in &patterns {
            names.add(pattern, pattern.clone()).unwrap();
        }
        let found: Vec<_> = names.find(Some(&name)).collect();
        prop_assert_eq!(found, naive(&patterns, &name));
    }

    #[test]
    fn any_text_finds_something(text in ".{0,300}") {
        let mut names = Names::new(vec![None]);
        let is_added = names.add(&text, Some(())).is_ok();
        let found = names.find(Some(&text)).next().unwrap();
        prop_assert_eq!(found.is_some(), is_added && !text.starts_with("*."));
    }
}

use sha2::{Digest as _, Sha256};

use super::*;

/// What stands between two texts.
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).expect("the begin");
    let (inner, rest) = rest.split_once(end).expect("the end");
    assert!(!rest.contains(begin), "there is one {begin}");
    inner
}

/// The digest of a text as a policy names it (CSP 3 §2.3.1).
fn source_of(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Sha256::digest(text).to_vec();
    let len = bytes.len();
    bytes.resize(len.next_multiple_of(3), 0);
    let mut out = String::from("'sha256-");
    for three in bytes.chunks_exact(3) {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        out.extend([18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63])));
    }
    // 32 bytes are 43 digits, and one to fill up.
    out.truncate("'sha256-".len() + 43);
    out + "='"
}

#[test]
fn the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else() {
    for (begin, end, directive) in
        [("<style>", "</style>", "style-src"), ("<script>", "</script>", "script-src")]
    {
        let source = source_of(between(PAGE, begin, end));
        let expected = format!("{directive} {source};");
        assert!(POLICY.contains(&expected), "write `{expected}` into the policy: {POLICY}");
    }
    assert!(POLICY.starts_with("default-src 'none'; ") && !POLICY.contains("unsafe"));
    let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
    assert_eq!(source_of(""), empty, "the digest of nothing (FIPS 180-4)");
}

#[test]
fn the_page_refers_to_nothing_elsewhere_and_shows_all_as_text() {
    let elsewhere = ["http:", "https:", "src=", "<link", "@import", "url("];
    let markup =
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="];
    for word in elsewhere.iter().chain(&markup) {
        assert!(!PAGE.contains(word), "{word}");
    }
}

#[test]
fn there_are_places_for_sixteen_viewers() {
    let board = Arc::new(Board::default());
    let mut seats: Vec<_> = (0..VIEWERS_MAX).map(|_| board.take_seat()).collect();
    assert!(seats.iter().all(Option::is_some) && board.take_seat().is_none());
    assert_eq!(board.viewers(), 16);
    seats.pop();
    assert!(board.take_seat().is_some());
    drop(seats);
    assert_eq!(board.viewers(), 0);
}

#[test]
fn missing_files_drive_no_other_example_out() {
    let board = Board::default();
    let example = |unix, status| Example { unix, status, ..Example::default() };
    board.note(ErrorKind::Server, example(1, 502));
    board.note(ErrorKind::Forbidden, example(2, 403));
    for unix in 3..100 {
        board.note(ErrorKind::Missing, example(unix, 404));
    }
    let kept: Vec<_> = board.examples().iter().map(|one| (one.unix, one.status)).collect();
    assert_eq!(kept.len(), EXAMPLES_MAX + 2);
    assert_eq!((kept[0], kept[7]), ((99, 404), (92, 404)));
    assert_eq!(kept[8..], [(2, 403), (1, 502)]);
}

#[test]
fn each_status_of_which_the_operator_learns_has_a_kind() {
    let of = |code| ErrorKind::of(Status::from_code(code).expect("a status"));
    for code in [200, 304, 400, 401, 402, 405, 499] {
        assert_eq!(of(code), None, "{code}");
    }
    assert_eq!((of(403), of(404)), (Some(ErrorKind::Forbidden), Some(ErrorKind::Missing)));
    for code in [500, 503, 599] {
        assert_eq!(of(code), Some(ErrorKind::Server), "{code}");
    }
}

#[test]
fn figures_are_shared_while_they_are_fresh_and_rates_are_those_since_the_figures_before() {
    let board = Board::default();
    let ask = |millis: u64, responses: u64| {
        let now = Time::from_nanos(millis * 1_000_000);
        let mut is_made = false;
        let text = board.text(now, || {
            is_made = true;
            let mut figures = Figures { at: now, ..Figures::default() };
            figures.summary.stats.responses = responses;
            figures
        });
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        (is_made, json["responses"]["total"].as_u64(), json["responses"]["per_second"].as_f64())
    };
    assert_eq!(ask(1000, 10), (true, Some(10), None));
    assert_eq!(ask(1499, 99), (false, Some(10), None));
    assert_eq!(ask(3000, 30), (true, Some(30), Some(10.0)));
    assert_eq!(ask(4000, 30), (true, Some(30), Some(0.0)));
}

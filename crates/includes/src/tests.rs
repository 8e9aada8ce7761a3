//! Pages as a whole, and properties of the parser.

use std::rc::Rc;

use http::{FieldIndex, Head, Method, Target, Version};
use proptest::prelude::*;

use super::evaluator::{IF_DEPTH_MAX, VARIABLES_MAX};
use super::expression::VALUE_BYTES_MAX;
use super::parser::{DIRECTIVE_BYTES_MAX, DIRECTIVES_MAX, Part};
use super::*;

fn parse(page: &[u8]) -> Template {
    let mut parser = Parser::default();
    parser.push(page);
    parser.finish()
}

/// The page as a client gets it, with `[URL]` for included responses and `!` for errors.
fn show(page: &str) -> String {
    show_with(page, scope()).0
}

fn scope() -> Scope {
    Scope::new(Rc::new(Memory::default()))
}

fn show_with(page: &str, scope: Scope) -> (String, Scope) {
    let lines = b"Host: a.example\r\nUser-Agent: t <&\"'>\r\nCookie: 1\r\nCookie: 2\r\nAuthorization: x\r\n";
    let head = Head::new(
        Method::Get,
        Target::Origin { path: b"/d/a%20b.html", query: Some(b"x=1&Y=%32") },
        Version::Http11,
        Some(b"a.example"),
        lines,
        FieldIndex::EMPTY,
    );
    let facts = Facts {
        head: &head,
        requested: b"/d/?z",
        document: b"/d/a b.html",
        modified: 784_111_777,
        client: Some([192, 0, 2, 1].into()),
        now: 86_400,
    };
    let mut evaluator = Evaluator::new(Rc::new(parse(page.as_bytes())), scope);
    let mut out = String::new();
    while let Some(step) = evaluator.next(&facts, true) {
        match step {
            Step::Text(range) => {
                out.push_str(&page[place(&range)]);
            }
            Step::Bytes(bytes) => {
                assert!(!bytes.is_empty());
                out.push_str(&String::from_utf8(bytes).unwrap());
            }
            Step::Include(url) => {
                out.push_str(&format!("[{}]", String::from_utf8(url).unwrap()));
            }
            Step::Fault(_) => out.push('!'),
            Step::Pause => {}
            Step::Wait => panic!("all that is before has been taken"),
        }
    }
    assert!(evaluator.is_over() && evaluator.take_unended().is_none_or(|line| line > 0));
    (out, evaluator.scope().clone())
}

#[test]
fn directives_are_replaced_by_what_they_say() {
    for (page, expected) in [
        ("", ""),
        ("a", "a"),
        ("a<!-- b -->c<!--", "a<!-- b -->c<!--"),
        ("<<!--#else-->", "<!"),
        ("<!-<!--#", "<!-!"),
        ("a<!--#include virtual=\"/b?c=$QUERY_STRING\" -->d", "a[/b?c=x=1&Y=%32]d"),
        ("<!--# include file=\"b c/$none?.html\"-->", "[./b%20c/%3F.html]"),
        ("<!--#include file=\"/b\"-->", "!"),
        ("<!--#include file=\"c/../b\"-->", "!"),
        ("<!--#include file=\"\"-->", "!"),
        ("<!--#echo var='DOCUMENT_URI'-->", "/d/a b.html"),
        ("<!--#echo var='DOCUMENT_NAME'-->", "a b.html"),
        ("<!--#echo var='request_uri'-->", "/d/?z"),
        ("<!--#echo var='REQUEST_METHOD'-->", "GET"),
        ("<!--#echo var='REMOTE_ADDR'-->", "192.0.2.1"),
        ("<!--#echo var='SERVER_PROTOCOL'-->", "HTTP/1.1"),
        ("<!--#echo var='HTTP_HOST'-->", "a.example"),
        ("<!--#echo var='arg_y'-->", "%32"),
        ("<!--#echo var='http_user_agent'-->", "t &lt;&amp;&quot;&#39;&gt;"),
        ("<!--#echo var='http_user_agent' encoding='none'-->", "t <&\"'>"),
        ("<!--#echo var='http_user_agent' encoding='url'-->", "t%20%3C%26%22%27%3E"),
        // Sent twice, or private.
        ("<!--#echo var='HTTP_COOKIE'-->", "(none)"),
        ("<!--#echo var='HTTP_AUTHORIZATION'-->", "(none)"),
        ("<!--#echo var='none' default='-'-->", "-"),
        ("<!--#set var='a' value=''--><!--#echo var='a' default='-'-->", ""),
        (
            "<!--#set var='a' value='1$A'--><!--#set var='A' value='$a$a'--><!--#echo var='a'-->",
            "11",
        ),
        ("<!--#set var='a b' value=''-->", "!"),
        ("<!--#set var='query_string' value='y'--><!--#echo var='QUERY_STRING'-->", "y"),
        ("<!--#config timefmt='%F %Z'--><!--#echo var='DATE_GMT'-->", "1970-01-02 GMT"),
        ("<!--#config timefmt='%s'--><!--#echo var='DATE_LOCAL'-->", "86400"),
        ("<!--#echo var='LAST_MODIFIED'-->", "Sunday, 06-Nov-1994 08:49:37 UTC"),
        ("<!--#exec cmd='ls'-->b", "!b"),
        // Neither a quote nor a directive that does not end shows what may be secret.
        ("a<!--#echo var=\"b -->c", "a!"),
        ("a<!--#if expr='$none'-->b<!--#endif", "a"),
    ] {
        assert_eq!(show(page), expected, "{page}");
    }
}

#[test]
fn of_a_condition_one_branch_is_shown() {
    let page = |condition: &str, other: &str| {
        format!(
            "a<!--#if expr=\"{condition}\"-->b<!--#set var=v value=1--><!--#elif expr=\"{other}\"-->c\
             <!--#else-->d<!--#endif-->e<!--#echo var=v default=0-->"
        )
    };
    for (condition, other, expected) in [
        ("$arg_x = 1", "$arg_x", "abe1"),
        ("$arg_x = 2", "$arg_x", "ace0"),
        ("$arg_x = 2", "$arg_z", "ade0"),
        ("!$arg_x", "$arg_x", "a!ce0"),
        ("$arg_x = 2", "/1/ = /1/", "a!de0"),
    ] {
        assert_eq!(show(&page(condition, other)), expected, "{condition} {other}");
    }
    let nested = "<!--#if expr=$none--><!--#if expr=$arg_x-->a<!--#else-->b<!--#endif-->c<!--#exec-->\
                  <!--#else--><!--#if expr=$arg_x-->d<!--#else-->e<!--#endif-->f<!--#endif-->g";
    assert_eq!(show(nested), "dfg");
    for page in ["<!--#else-->", "<!--#elif expr=a-->", "<!--#endif-->"] {
        assert_eq!(show(page), "!", "{page}");
    }
    // A second else has nothing to say.
    assert_eq!(show("<!--#if expr=a-->a<!--#else-->b<!--#else-->c<!--#endif-->d"), "ad");
    assert_eq!(show("<!--#if expr=$none-->a<!--#else-->b<!--#else-->c<!--#endif-->d"), "bd");
    assert_eq!(show("<!--#if expr=a-->a"), "a");
}

#[test]
fn a_fault_has_the_line_of_its_directive() {
    for size in [1, 3, 1000] {
        let page = "a\n<\n<!--#if expr=a--><!--#else\n-->\n\n<!--#set\nvar='a'\n-->b<!--#endif-->\n\
                    <!--#if expr=a-->\n<!--#if expr=a-->\n<!--#endif-->\n<!--#if expr='\n'-->";
        let mut parser = Parser::default();
        page.as_bytes().chunks(size).for_each(|piece| parser.push(piece));
        let template = parser.finish();
        let lines: Vec<_> = (0..7).map(|directive| template.line(directive)).collect();
        assert_eq!(lines, [3, 3, 6, 8, 9, 10, 11], "{size}");
        assert_eq!((template.line(7), template.line(8)), (12, 0));
    }
    let target = Target::Origin { path: b"/", query: None };
    let head = Head::new(Method::Get, target, Version::Http11, None, b"", FieldIndex::EMPTY);
    let facts =
        Facts { head: &head, requested: b"/", document: b"/", modified: 0, client: None, now: 0 };
    for (page, faults, unended) in [
        ("\n<!--#exec-->\n\n<!--#echo var='none'-->\n<!--#endif-->", &[2, 5][..], None),
        ("\n<!--#if expr='!a'-->\n<!--#if expr='a'-->\n<!--#endif-->", &[2], Some(2)),
        ("<!--#if expr='a'-->\n<!--#if expr='a'-->\n<!--#else-->", &[], Some(2)),
        ("<!--#if expr='a'-->\n<!--#endif-->", &[], None),
    ] {
        let mut evaluator = Evaluator::new(Rc::new(parse(page.as_bytes())), scope());
        let mut found = Vec::new();
        while let Some(step) = evaluator.next(&facts, true) {
            if let Step::Fault(_) = step {
                found.push(evaluator.line());
            }
        }
        assert_eq!(found, faults, "{page}");
        assert_eq!([evaluator.take_unended(), evaluator.take_unended()], [unended, None], "{page}");
    }
}

#[test]
fn everything_has_a_bound() {
    let deep = |depth: usize| {
        format!("{}a{}", "<!--#if expr=a-->".repeat(depth), "<!--#endif-->".repeat(depth))
    };
    assert_eq!(show(&deep(IF_DEPTH_MAX)), "a");
    assert_eq!(show(&deep(IF_DEPTH_MAX + 1)), "!");

    let many = |count: usize| "<!--#echo var=arg_x-->".repeat(count) + "b";
    assert_eq!(show(&many(DIRECTIVES_MAX)), "1".repeat(DIRECTIVES_MAX) + "b");
    assert_eq!(show(&many(DIRECTIVES_MAX + 2)), "1".repeat(DIRECTIVES_MAX) + "!");

    let long = |len: usize| {
        let begin = "echo var=none default=";
        format!("<!--#{begin}{}-->c", "b".repeat(len - begin.len()))
    };
    // The hyphens of its end are counted, too.
    assert!(show(&long(DIRECTIVE_BYTES_MAX - 2)).ends_with("bc"));
    assert_eq!(show(&long(DIRECTIVE_BYTES_MAX + 1)), "!c");
    let lost = format!("<!--#echo var='{}--->c", "b".repeat(DIRECTIVE_BYTES_MAX));
    assert_eq!(show(&lost), "!c");

    let set = |name: usize| format!("<!--#set var=v{name} value=1-->");
    let sets: String = (0..VARIABLES_MAX).map(set).collect();
    assert_eq!(show(&(sets.clone() + &set(0))), "");
    assert_eq!(show(&(sets + &set(VARIABLES_MAX))), "!");

    let double = "<!--#set var=v value=$v$v-->".repeat(VALUE_BYTES_MAX.ilog2() as usize);
    let double = "<!--#set var=v value=1-->".to_owned() + &double;
    assert_eq!(show(&double), "");
    assert_eq!(show(&(double + "<!--#set var=v value=$v$v-->")), "!");
}

#[test]
fn a_page_that_is_included_begins_with_what_the_other_has_set_and_changes_only_its_own() {
    let (_, outer) =
        show_with("<!--#set var=a value=1--><!--#config errmsg='?' timefmt='%Y'-->", scope());
    let inner =
        "<!--#echo var=a--><!--#set var=a value=2--><!--#echo var=a--><!--#echo var=DATE_GMT-->";
    let (shown, changed) = show_with(inner, outer.clone());
    assert_eq!(shown, "121970");
    assert_eq!((changed.errmsg(), outer.errmsg()), (&b"?"[..], &b"?"[..]));
    assert_eq!(show_with("<!--#echo var=a-->", outer).0, "1");
}

/// Pieces of pages: directives, parts of them, and text.
fn pages() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            "<!--#",
            "-->",
            "--",
            ">",
            "<",
            "\"",
            "'",
            "\\",
            " ",
            "include virtual=\"/a\"",
            "if expr=",
            "<!--#if expr=\"$a\" -->",
            "<!--#else-->",
            "<!--#endif -->",
            "<!--#echo var=\"a\"-->",
            "<!--#set var='a' value='b'-->",
            "<!-",
            "$a",
            "=",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
        Just(vec![b'x'; DIRECTIVE_BYTES_MAX]),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Panics unless the parts of a template cover its file, in order.
fn check(template: &Template, page: &[u8]) {
    let mut at = 0;
    let mut was_text = false;
    for part in template.parts() {
        let (range, is_text) = match part {
            Part::Text(range) => (range, true),
            Part::Directive(range, _) => (range, false),
        };
        assert!(range.start == at && range.end > at, "{part:?} at {at}");
        assert!(!(was_text && is_text), "two texts: {part:?}");
        let bytes = &page[place(range)];
        if is_text {
            let begins = bytes.windows(5).any(|window| window == b"<!--#");
            assert!(!begins, "a directive in {part:?}");
        } else {
            assert!(bytes.starts_with(b"<!--#"), "{part:?}");
            let ends = bytes.len() >= 8 && bytes.ends_with(b"-->");
            assert!(ends || range.end == page.len() as u64, "{part:?}");
        }
        (at, was_text) = (range.end, is_text);
    }
    assert_eq!((at, template.bytes()), (page.len() as u64, page.len() as u64));
    assert_eq!(template.is_plain(), !page.windows(5).any(|window| window == b"<!--#"));
}

proptest! {
    #[test]
    fn a_template_has_every_byte_once_in_whatever_pieces_they_come(
        page in pages(),
        cuts in proptest::collection::vec(1..50_usize, 1..20),
    ) {
        let whole = parse(&page);
        check(&whole, &page);
        let (mut parser, mut rest) = (Parser::default(), &page[..]);
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            parser.push(piece);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(parser.finish(), whole);
    }

    #[test]
    fn any_page_can_be_shown(page in pages()) {
        let page = String::from_utf8_lossy(&page).into_owned();
        let shown = show(&page);
        if parse(page.as_bytes()).is_plain() {
            prop_assert_eq!(shown, page);
        }
    }
}

/// The range of a file as a range of memory.
fn place(range: &core::ops::Range<u64>) -> core::ops::Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

//! Arbitrary bytes as a page with directives. Checked: it means the same in whatever pieces it comes; its text is
//! sent once at most, in order, and none of a directive; the page ends, and its variables stay within their memory.

#![no_main]

use std::rc::Rc;

use http::{FieldIndex, Head, Method, Target, Version};
use includes::{Evaluator, Facts, Memory, Parser, Scope, Step, Template};
use libfuzzer_sys::fuzz_target;

/// More bytes than the variables of a response may have, with those of one directive.
const MEMORY_BYTES_END: usize = 2 * 1024 * 1024 + 64 * 1024;

// The first byte is the size of the pieces.
fuzz_target!(|input: &[u8]| {
    let [piece, page @ ..] = input else { return };
    let template = parse(page, usize::MAX);
    assert_eq!(parse(page, usize::from(piece % 16) + 1), template);
    assert_eq!(template.bytes(), page.len() as u64);
    let is_plain = template.is_plain();
    assert_eq!(is_plain, !page.windows(5).any(|window| window == b"<!--#"));

    let target = Target::Origin { path: b"/d/a", query: Some(b"a=b") };
    let index = FieldIndex::EMPTY;
    let head = Head::new(Method::Get, target, Version::Http11, None, b"A: $b\r\n", index);
    let facts = Facts {
        head: &head,
        requested: b"/d/a?a=b",
        document: b"/d/a",
        modified: 0,
        client: None,
        now: 0,
    };
    let memory = Rc::new(Memory::default());
    let mut evaluator = Evaluator::new(Rc::new(template), Scope::new(Rc::clone(&memory)));
    let mut at = 0;
    while let Some(step) = evaluator.next(&facts, true) {
        match step {
            Step::Text(range) => {
                assert!(range.start >= at && range.start < range.end);
                at = range.end;
                let text = &page[range.start as usize..range.end as usize];
                assert!(!text.windows(5).any(|window| window == b"<!--#"));
            }
            Step::Bytes(bytes) => assert!(!bytes.is_empty() && bytes.len() < 64 * 1024),
            Step::Include(url) => assert!(url.len() < 64 * 1024),
            Step::Fault(fault) => assert!(!fault.text().is_empty()),
            Step::Pause => {}
            Step::Wait => unreachable!("all that is before it has been sent"),
        }
        assert!(memory.held() < MEMORY_BYTES_END);
    }
    assert!(evaluator.is_over() && at <= page.len() as u64);
    assert!(!is_plain || at == page.len() as u64);
});

fn parse(page: &[u8], piece: usize) -> Template {
    let mut parser = Parser::default();
    page.chunks(piece).for_each(|piece| parser.push(piece));
    parser.finish()
}

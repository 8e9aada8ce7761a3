//! What the pages of one response may take.

use crate::common::resident_bytes;
use crate::includes::stage::{ERRMSG, on_both_drivers, serve, tree};

/// Bytes of memory that a response may take, with what the server itself begins to use.
const RESPONSE_BYTES_MAX: u64 = 8 * 1024 * 1024;

#[test]
fn variables_of_pages_within_one_another_have_a_bound() {
    on_both_drivers(|driver| {
        let tree = tree();
        for page in 0..8 {
            let mut text = format!("<!--#set var='w' value='{}'-->", "w".repeat(1024));
            for number in 0..97 {
                text += &format!("<!--#set var='v{number}' value='$w$w$w$w'-->");
            }
            text += &format!("<!--#include virtual='/{}.html'-->", page + 1).repeat(8);
            tree.write(format!("www/{page}.html"), text.as_str());
        }
        tree.write("www/last.html", "<!--#include virtual='/7.html'-->end");
        let stage = serve(driver, &tree);
        assert!(stage.page("/last.html").ends_with("end"));
        let before = resident_bytes(&stage.server);
        let shown = stage.page("/0.html");
        assert!(shown.contains(ERRMSG), "{shown}");
        stage.wait_for_log(
            ".html: line 1: the pages of the response have variables of more than 2 MiB",
        );
        let grown = resident_bytes(&stage.server).saturating_sub(before);
        assert!(grown <= RESPONSE_BYTES_MAX, "{grown} bytes");
    });
}

/// As many as a large page may have, of files and of pages.
#[test]
fn a_page_with_many_includes_is_whole() {
    on_both_drivers(|driver| {
        let tree = tree();
        let (mut files, mut pages, mut expected) = (String::new(), String::new(), String::new());
        for number in 0..200 {
            tree.write(format!("www/{number}.txt"), format!("part {number}").as_str());
            let page = format!("<!--#set var='n' value='{number}'-->part <!--#echo var='n'-->");
            tree.write(format!("www/{number}.html"), page.as_str());
            files += &format!("<!--#include virtual='/{number}.txt'-->,");
            pages += &format!("<!--#include virtual='/{number}.html'-->,");
            expected += &format!("part {number},");
        }
        tree.write("www/files.html", files.as_str());
        tree.write("www/pages.html", pages.as_str());
        let stage = serve(driver, &tree);
        for _ in 0..3 {
            assert_eq!(stage.page("/files.html"), expected);
            assert_eq!(stage.page("/pages.html"), expected);
        }
    });
}

//! What pages come to.

use std::fs;

use crate::common::{SOON, wait_until};
use crate::includes::stage::{ERRMSG, on_both_drivers, script, serve, tree};

#[test]
fn directives_are_replaced_by_what_they_say() {
    on_both_drivers(|driver| {
        let tree = tree();
        for (name, text) in [
            ("www/a.txt", "text"),
            ("www/.hidden", "hidden"),
            ("www/d/b.html", "<b><!--#echo var=\"arg_c\"--></b>"),
            ("www/d/index.html", "index of <!--#echo var=\"DOCUMENT_URI\"-->"),
            ("inner/secret.txt", "for pages only"),
        ] {
            tree.write(name, text);
        }
        script(&tree, "show", "printf 'Content-Type: text/plain\\n\\n%s' \"$PATH_INFO\"");
        let cases = [
            ("a<!--#include virtual=\"/a.txt\" -->b", "atextb".to_owned()),
            (
                "<!--#include virtual=\"a.txt\"--><!--#include file=\"d/b.html\"-->",
                "text<b>(none)</b>".to_owned(),
            ),
            ("<!--#include virtual=\"/d/b.html?c=d%20e\"-->", "<b>d%20e</b>".to_owned()),
            ("<!--#include virtual=\"/d/\"-->", "index of /case.html".to_owned()),
            ("<!--#include virtual=\"/inner/secret.txt\"-->!", "for pages only!".to_owned()),
            (
                "<!--#include virtual=\"/as-it-is/d/b.html\"-->",
                "<b><!--#echo var=\"arg_c\"--></b>".to_owned(),
            ),
            ("<!--#echo var=\"QUERY_STRING\"-->", "q=1".to_owned()),
            ("<!--#if expr=\"$arg_q = 1\"-->yes<!--#else-->no<!--#endif-->", "yes".to_owned()),
            (
                "<!--#set var=\"p\" value=\"/a.txt\"--><!--#include virtual=\"$p\"-->",
                "text".to_owned(),
            ),
            ("<!--#include virtual=\"/tool/show/a%2Fb\"-->", "/a/b".to_owned()),
            ("<!--#include virtual=\"/d%2Fb.html\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/none.txt\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/.hidden\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/closed/a.txt\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/d\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/old\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/../a.txt\"-->b", format!("{ERRMSG}b")),
            ("<!--#include virtual=\"/a.txt%zz\"-->b", format!("{ERRMSG}b")),
            ("<!--#config errmsg=\"?\"--><!--#include virtual=\"/none.txt\"-->b", "?b".to_owned()),
            ("<!--#exec cmd=\"ls\"-->", ERRMSG.to_owned()),
        ];
        let stage = serve(driver, &tree);
        for (page, expected) in cases {
            let path = tree.path().join("www/case.html");
            fs::write(tree.path().join("www/new"), page).unwrap();
            fs::rename(tree.path().join("www/new"), path).unwrap();
            let mut shown = String::new();
            let is_shown = wait_until(SOON, || {
                shown = stage.page("/case.html?q=1");
                shown == expected
            });
            assert!(is_shown, "{page}: {shown}");
        }
        assert!(stage.ask("GET /inner/secret.txt").status == 404);
        // As it is, an error page shows nothing of what it says.
        assert_eq!(stage.page("/as-it-is/d/b.html"), "<b><!--#echo var=\"arg_c\"--></b>");
    });
}

#[test]
fn a_page_has_no_validators_and_no_length() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.write("www/page.html", "a<!--#echo var=\"REQUEST_METHOD\"-->");
        tree.write("www/page.html.gz", "compressed");
        tree.write("www/plain.html", "<!-- no directive -->");
        let stage = serve(driver, &tree);
        let conditions = "Accept-Encoding: gzip\nRange: bytes=0-0\nIf-None-Match: *\n\
                          If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT";
        for fields in ["", conditions] {
            for method in ["GET", "HEAD"] {
                let response = stage.ask(&format!("{method} /page.html\n{fields}"));
                assert_eq!(response.status, 200);
                for name in [
                    "ETag",
                    "Last-Modified",
                    "Content-Length",
                    "Accept-Ranges",
                    "Content-Encoding",
                    "Vary",
                ] {
                    assert_eq!(response.header(name), None, "{name}");
                }
                assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
                assert_eq!(response.header("Transfer-Encoding"), Some("chunked"));
                assert_eq!(response.body, if method == "GET" { &b"aGET"[..] } else { b"" });
            }
        }
        let plain = stage.ask("GET /plain.html");
        assert!(plain.header("ETag").is_some() && plain.header("Content-Length").is_some());
        let text = stage.ask("GET /plain.html\nIf-None-Match: *");
        assert_eq!(text.status, 304);
        assert_eq!(stage.ask("POST /page.html").status, 405);
    });
}

#[test]
fn a_cycle_ends_and_is_counted() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.write("www/a.html", "a<!--#include virtual=\"/b.html?x\"-->a");
        tree.write("www/b.html", "b<!--#include file=\"a.html\"-->b");
        tree.write("www/self.html", "(<!--#include virtual=\"/self.html?again\"-->)");
        for depth in 0..10 {
            let page = format!("{depth}<!--#include virtual=\"/deep{}.html\"-->", depth + 1);
            tree.write(format!("www/deep{depth}.html"), page.as_str());
        }
        let wide = "<!--#include virtual=\"/wide2.html\"-->".repeat(40);
        tree.write("www/wide.html", wide.as_str());
        tree.write("www/wide2.html", "<!--#include virtual=\"/w.txt\"-->".repeat(40).as_str());
        tree.write("www/w.txt", "w");
        let stage = serve(driver, &tree);
        for _ in 0..2 {
            assert_eq!(stage.page("/a.html"), format!("ab{ERRMSG}ba"));
            assert_eq!(stage.page("/self.html"), format!("({ERRMSG})"));
            assert_eq!(stage.page("/deep0.html"), format!("01234567{ERRMSG}"));
        }
        assert_eq!(stage.count("samum_includes_total", &[("event", "cycle")]), 4);
        assert_eq!(stage.count("samum_includes_total", &[("event", "failed")]), 6);
        stage.wait_for_log("/b.html: line 1: the include of ./a.html: a page includes itself");
        stage.wait_for_log("/self.html: line 1: the include of /self.html?again: a page includes");
        stage.wait_for_log("/deep7.html: line 1: the include of /deep8.html: more than 8 pages");
        // 40 pages with 40 includes each are more than one response may have.
        let shown = stage.page("/wide.html");
        let faults = shown.matches(ERRMSG).count();
        let fills = shown.replace(ERRMSG, "").len();
        assert!(faults > 0 && (900..1000).contains(&fills), "{faults} {fills}");
    });
}

/// A line names the place of each fault, and lines that are left out are counted.
#[test]
fn a_fault_is_told_with_its_page_its_line_and_its_include() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.write("www/d/part.html", "a\n\n<!--#exec-->");
        tree.write(
            "www/page.html",
            "a\n<!--#include virtual=\"/d/part.html\"-->\n<!--#include virtual=\"/none.txt?a\"-->\n\
             <!--#endif-->\n<!--#if expr=\"a\"-->b",
        );
        let stage = serve(driver, &tree);
        let shown = stage.page("/page.html");
        assert_eq!(shown, format!("a\na\n\n{ERRMSG}\n{ERRMSG}\n{ERRMSG}\nb"));
        for line in [
            "/d/part.html: line 3: a directive cannot be understood",
            "/page.html: line 3: the include of /none.txt?a: it is answered 404",
            "/page.html: line 4: an elif, else or endif has no if",
            "/page.html: line 5: an if has no endif",
        ] {
            stage.wait_for_log(line);
        }
        assert_eq!(stage.count("samum_includes_total", &[("event", "failed")]), 4);
        for _ in 0..20 {
            stage.page("/page.html");
        }
        std::thread::sleep(core::time::Duration::from_millis(1100));
        stage.page("/page.html");
        stage.wait_for_log("lines about faults of pages were dropped");
        let lines = stage.server.stderr().iter().filter(|line| line.contains("endif")).count();
        assert!(lines < 20, "{lines} lines");
    });
}

#[test]
fn a_page_is_parsed_anew_when_its_file_changes() {
    on_both_drivers(|driver| {
        let tree = tree();
        let page = |text: &str, length: usize| {
            format!("<!--#echo var='none' default='{text}'-->{}", "-".repeat(length))
        };
        // In memory, and not.
        for length in [10, 100_000] {
            tree.write("www/page.html", page("old", length).as_str());
            let stage = serve(driver, &tree);
            for _ in 0..3 {
                assert!(stage.page("/page.html").starts_with("old-"));
            }
            fs::write(tree.path().join("www/new"), page("new", length)).unwrap();
            fs::rename(tree.path().join("www/new"), tree.path().join("www/page.html")).unwrap();
            assert!(wait_until(SOON, || stage.page("/page.html").starts_with("new-")));
        }
    });
}

#[test]
fn a_file_that_is_too_large_for_a_page_is_not_sent() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.write("www/large.html", "");
        let file =
            fs::File::options().write(true).open(tree.path().join("www/large.html")).unwrap();
        file.set_len(32 * 1024 * 1024 + 1).unwrap();
        let stage = serve(driver, &tree);
        assert_eq!(stage.ask("GET /large.html").status, 500);
        stage.wait_for_log("/large.html: a page with includes has at most");
        assert_eq!(stage.ask("HEAD /as-it-is/large.html").status, 200);
    });
}

/// A client that asks for such a path is sent to the clean one.
#[test]
fn a_page_is_included_by_the_name_of_its_file_where_urls_are_clean() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.write(
            "www/page.html",
            "<!--#include file=\"footer.html\"-->|<!--#include virtual=\"/clean/sub/index.html\"-->|\
             <!--#include virtual=\"/clean/page.html\"-->",
        );
        tree.write("www/footer.html", "footer");
        tree.write("www/sub/index.html", "<!--#include virtual=\"/clean/footer.html\"-->index");
        let stage = serve(driver, &tree);
        for _ in 0..2 {
            let page = format!("footer|footerindex|{ERRMSG}");
            assert_eq!(stage.page("/clean/page"), page);
        }
        assert_eq!(stage.count("samum_includes_total", &[("event", "cycle")]), 2);
        assert_eq!(stage.ask("GET /clean/page.html").status, 308);
    });
}

/// As Apache has it for its `DirectoryIndex`: of an index and of a fallback they name the file.
#[test]
fn the_document_is_the_file_that_was_chosen() {
    on_both_drivers(|driver| {
        let tree = tree().directory("www/d");
        let names = "<!--#echo var='DOCUMENT_NAME'--> <!--#echo var='DOCUMENT_URI'-->";
        let include = "<!--#include file='part.html'-->";
        tree.write("www/index.html", names);
        tree.write("www/page.html", format!("{names} {include}").as_str());
        tree.write("www/part.html", format!("part of {names}").as_str());
        tree.write("www/d/index.html", format!("{names} {include}").as_str());
        tree.write(
            "www/d/part.html",
            format!("d of {names} <!--#include virtual='/d/'-->").as_str(),
        );
        tree.write("www/outer.html", "<!--#include virtual='/d/'-->");
        let stage = serve(driver, &tree);
        let of_d = |document: &str| format!("{document} d of {document} ");
        for (path, expected) in [
            ("/", "index.html /index.html".to_owned()),
            ("/?a", "index.html /index.html".to_owned()),
            ("/index.html", "index.html /index.html".to_owned()),
            ("/slow/", "index.html /slow/index.html".to_owned()),
            ("/d/", format!("{}{ERRMSG}", of_d("index.html /d/index.html"))),
            ("/d/index.html", format!("{}{ERRMSG}", of_d("index.html /d/index.html"))),
            ("/outer.html", format!("{}{ERRMSG}", of_d("outer.html /outer.html"))),
            // A fallback of a route without pages of its own.
            (
                "/back/a/b",
                "page.html /mixed/page.html part of page.html /mixed/page.html".to_owned(),
            ),
        ] {
            assert_eq!(stage.page(path), expected, "{path}");
        }
    });
}

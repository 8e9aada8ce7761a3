//! Pages on disks that do not answer.

use testkit::{HungDisk, or_skip, request};

use crate::common::SOON;
use crate::includes::stage::{ERRMSG, on_both_drivers, serve_with, tree};

#[test]
fn a_stalled_disk_under_one_hole_delays_neither_the_text_before_nor_other_pages() {
    on_both_drivers(|driver| {
        let tree = tree();
        let write = |root: &std::path::Path| std::fs::write(root.join("hole.txt"), "slow").unwrap();
        let place = tree.path().join("mounted");
        std::fs::create_dir(&place).unwrap();
        let disk = or_skip!(HungDisk::mount_beneath(&place, write));
        tree.write("www/a.txt", "text");
        tree.write(
            "www/page.html",
            "begin<!--#include virtual=\"/slow/hole.txt\"-->|<!--#include virtual=\"/a.txt\"-->end",
        );
        tree.write("www/other.html", "<!--#include virtual=\"/a.txt\"-->");
        let stage = serve_with(driver, &tree, disk.path(), "");
        disk.set_hung(true);
        let mut client = stage.connect();
        client.send(request("GET /page.html")).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"begin") {
            head.extend(client.read_exactly(1).unwrap());
        }
        assert!(disk.wait_until_asked(SOON));
        for _ in 0..20 {
            assert_eq!(stage.page("/other.html"), "text");
        }
        disk.set_hung(false);
        let mut rest = Vec::new();
        while !rest.ends_with(b"0\r\n\r\n") {
            rest.extend(client.read_exactly(1).unwrap());
        }
        let rest = String::from_utf8(rest).unwrap();
        let places = ["slow", "|", "text", "end"].map(|text| rest.find(text));
        assert!(places.is_sorted() && places[0].is_some(), "{rest}");
    });
}

#[test]
fn a_hole_whose_disk_does_not_answer_in_time_is_an_error_message() {
    on_both_drivers(|driver| {
        let tree = tree();
        let write = |root: &std::path::Path| {
            std::fs::write(root.join("hole.txt"), "slow").unwrap();
            let page = "x".repeat(100_000) + "<!--#echo var=\"none\"-->";
            std::fs::write(root.join("page.html"), page).unwrap();
        };
        let place = tree.path().join("mounted");
        std::fs::create_dir(&place).unwrap();
        let disk = or_skip!(HungDisk::mount_beneath(&place, write));
        tree.write("www/page.html", "begin<!--#include virtual=\"/slow/hole.txt\"-->end");
        let stage = serve_with(driver, &tree, disk.path(), "timeout-disk = 1");
        disk.set_hung(true);
        assert_eq!(stage.page("/page.html"), format!("begin{ERRMSG}end"));
        assert_eq!(stage.ask("GET /slow/page.html").status, 503);
        disk.set_hung(false);
    });
}

//! The same pages from nginx with `ssi on`, where the meaning is the same: without a query `QUERY_STRING` is not set there,
//! and quotes in conditions are bytes like others.

use std::fs;

use crate::common::nginx::Nginx;
use crate::includes::stage::{on_both_drivers, serve, tree};

#[test]
fn pages_are_those_that_nginx_makes() {
    let tree = tree();
    let pages = [
        "",
        "no directive",
        "a<!-- comment -->b<!-->",
        "<<!--# echo var=\"query_string\" -->>",
        "<!--#echo var=\"QUERY_STRING\"-->",
        "<!--#echo var='http_user_agent'-->",
        "<!--#echo var='http_user_agent' encoding='none'-->",
        "<!--#echo var='none'-->|<!--#echo var='none' default='-'-->",
        "<!--#echo var='document_uri'-->|<!--#echo var='arg_a'-->|<!--#echo var='request_method'-->",
        "<!--#set var='a' value='1'--><!--#set var='b' value='$a-${a}2'--><!--#echo var='b'-->",
        "<!--#include virtual='/a.txt'-->|<!--#include virtual='d/b.html?x=y'-->|<!--#include file='a.txt'-->",
        "<!--#include virtual='/d/b.html?x=$arg_a'-->",
        "<!--#if expr='$arg_a'-->yes<!--#else-->no<!--#endif-->",
        "<!--#if expr='$arg_a = 1'-->1<!--#elif expr='$arg_a = 2'-->2<!--#else-->other<!--#endif-->|",
        "<!--#if expr='$arg_a != 2'-->1<!--#elif expr='$arg_a = 2'-->2<!--#endif-->|",
        "<!--#if expr='$none'-->1<!--#elif expr='$arg_b'-->2<!--#else-->3<!--#endif-->|",
        "<!--#config timefmt='%Y-%m-%d'--><!--#echo var='date_gmt'-->|<!--#echo var='DATE_LOCAL'-->",
        "<!--#config errmsg='!'--><!--#unknown-->a",
        "<!--#unknown a='b'-->a",
        "<!--#else-->a",
        "<!--#set var='a' value='\\$b'--><!--#echo var='a'-->",
    ];
    tree.write("www/a.txt", "text");
    tree.write("www/d/b.html", "[<!--#echo var='query_string'--><!--#include virtual='c.html'-->]");
    tree.write("www/d/c.html", "<!--#set var='z' value='c'--><!--#echo var='z'-->");
    for (number, page) in pages.iter().enumerate() {
        fs::write(tree.path().join(format!("www/{number}.html")), page).unwrap();
    }
    let root = tree.path().display();
    let config = |address| {
        format!(
            "types {{ text/html html; text/plain txt; }}\nserver {{ listen {address}; root {root}/www; ssi on; }}"
        )
    };
    let Some(nginx) = Nginx::start(&tree, config) else { testkit::skip!("nginx is not installed") };
    let page = |path: &str| {
        let response = nginx.ask(&format!("GET {path}\nUser-Agent: <a>&\"b\""));
        String::from_utf8(response.body).unwrap()
    };
    on_both_drivers(|driver| {
        let stage = serve(driver, &tree);
        for (number, source) in pages.iter().enumerate() {
            for query in ["?a=1", "?a=2&b=3", "?a=%3Cb%3E&x=<>"] {
                let path = format!("/{number}.html{query}");
                let response = stage.ask(&format!("GET {path}\nUser-Agent: <a>&\"b\""));
                let shown = String::from_utf8(response.body).unwrap();
                assert_eq!(shown, page(&path), "{path}: {source}");
            }
        }
    });
}

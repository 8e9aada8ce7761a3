//! Clients that send many requests ahead and take no response: a gateway begins only the request whose response is the
//! next.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::net::TcpStream;
use std::thread;

use testkit::{Server, Tree, or_skip, request};

use crate::common::silent::{LONG, long_origin, offer, silent};
use crate::common::stage::{Stage, script};
use crate::common::{SOON, ask_on, connect, on_both_drivers, serve_config, wait_until};
use crate::fastcgi;

/// Clients of an attack.
const CLIENTS: usize = 6;
/// Requests that each of them sends.
const DEPTH: usize = 16;

/// Connections that send `one` again and again, and take nothing.
fn attack(server: &Server, one: &str) -> Vec<TcpStream> {
    let connect = |_| {
        let socket = silent(server);
        offer(&socket, one.repeat(DEPTH).as_bytes());
        socket
    };
    (0..CLIENTS).map(connect).collect()
}

/// Asserts that `begun` reaches the number of the clients, and does not exceed it within a moment.
#[track_caller]
fn assert_one_each(what: &str, begun: impl Fn() -> u64) {
    let clients = u64::try_from(CLIENTS).unwrap();
    assert!(wait_until(SOON, || begun() >= clients), "{what}: {}", begun());
    thread::sleep(Duration::from_millis(500));
    assert_eq!(begun(), clients, "{what}");
}

#[test]
fn an_upstream_gets_one_request_of_each_client() {
    on_both_drivers(|driver| {
        let (origin, begun) = long_origin();
        let tree = Tree::new();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\npath = '/'\nproxy = 'http://{origin}'\n"
        );
        let server = serve_config(&tree, &config);
        let body = "GET /endless\nContent-Length: 4";
        for (what, one) in [
            ("plain", request("GET /endless")),
            ("with a body", request(body) + "body"),
            ("different methods", request("GET /endless") + &request("DELETE /a")),
        ] {
            let before = begun.load(Ordering::Relaxed);
            let clients = attack(&server, &one);
            assert_one_each(what, || begun.load(Ordering::Relaxed) - before);
            drop(clients);
        }
        // Clients that take their responses get all of them.
        let mut client = connect(&server);
        client
            .send((request("GET /long") + &request("GET /long\nContent-Length: 1") + "x").repeat(8))
            .unwrap();
        for _ in 0..16 {
            assert_eq!(client.response().unwrap().body.len(), LONG);
        }
    });
}

#[test]
fn one_program_runs_for_each_client() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("cgi");
        script(&tree, "endless", "printf 'Content-Type: a/b\\n\\n'; exec yes");
        script(&tree, "small", "printf 'Content-Type: a/b\\n\\nsmall'");
        tree.write("page.html", "<!--#include virtual=\"/tool/endless\"-->");
        let root = tree.path().display();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nincludes = true\n\
             [[site.route]]\nfiles = '{root}'\n\
             [[site.route]]\npath = '/tool/'\ncgi = {{ directory = '{root}/cgi', processes = 64 }}\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        );
        let stage = Stage::new(&tree, &config);
        let started = || stage.count("samum_cgi_programs_total", &[("event", "started")]);
        for (what, path) in [("a program", "/tool/endless"), ("a page", "/page.html")] {
            let before = started();
            let clients = attack(&stage.server, &request(&format!("GET {path}")));
            assert_one_each(what, || started() - before);
            drop(clients);
        }
        let mut client = stage.connect();
        client.send(request("GET /tool/small").repeat(20)).unwrap();
        for _ in 0..20 {
            assert_eq!(client.response().unwrap().body, b"small");
        }
    });
}

/// The application has fewer processes than there are clients.
#[test]
fn clients_that_take_nothing_do_not_occupy_an_application() {
    on_both_drivers(|driver| {
        let tree = fastcgi::stage::tree()
            .file("www/big.php", "<?php echo str_repeat('b', 500000);")
            .file("www/small.php", "<?php echo 'small';");
        let _php = or_skip!(fastcgi::stage::Php::start(&tree));
        let stage = fastcgi::stage::serve(driver, &tree);
        let clients = attack(&stage.server, &request("GET /big.php"));
        let mut victim = connect(&stage.server);
        for _ in 0..20 {
            assert_eq!(ask_on(&mut victim, "GET /small.php").body, b"small");
        }
        drop(clients);
    });
}

//! Several servers behind one: which is asked while some end, start again, or are exchanged by a reload.

mod ahead;
mod bodies;
mod broken;
mod exact;
mod fields;
mod invitations;
mod odd;
mod redirects;
mod secured;
mod transfers;
mod upgrades;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use rustix::process::Signal;
use testkit::metrics::Metrics;
use testkit::{Client, Server, Tree, request};

use crate::common::{SAMUM, SOON, ask, on_both_drivers, tcp_address, wait_until};

/// A server whose file says its number.
fn origin(tree: &Tree, number: u8, port: u16) -> Server {
    tree.write(format!("{number}/name"), format!("{number}").as_str());
    let mut command = Command::new(SAMUM);
    command.arg("serve").arg(tree.path().join(number.to_string()));
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--threads", "1"]);
    Server::spawn(&mut command).expect("the server starts")
}

/// Writes a configuration with these servers and keys of the route.
fn configure(tree: &Tree, driver: &str, servers: &[String], keys: &str) {
    let servers: Vec<_> = servers.iter().map(|server| format!("'{server}'")).collect();
    let config = format!(
        "[server]\nthreads = 2\ndriver = '{driver}'\ncontrol = 'control'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\npath = '/'\nproxy = [{}]\n{keys}\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n",
        servers.join(", ")
    );
    tree.write("samum.toml", config.as_str());
}

/// The text of a configuration that passes all requests on to the server at a URL, with these keys of the route; further
/// routes may follow the keys.
fn passing_on(driver: &str, url: &str, keys: &str) -> String {
    format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\npath = '/'\nproxy = '{url}'\n{keys}\n"
    )
}

/// A connection to a server, which waits for an answer for a while.
#[track_caller]
fn patient(server: &Server) -> Client {
    let mut client = Client::connect(&server.address()).expect("the server accepts");
    client.set_limit(SOON);
    client
}

fn serve(tree: &Tree) -> Server {
    let mut command = Command::new(SAMUM);
    command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
    Server::spawn(&mut command).expect("the server starts")
}

/// Clients that ask again and again until this is stopped; how often each server has answered.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    answers: Mutex<BTreeMap<Vec<u8>, u32>>,
    failures: AtomicU32,
}

impl Load {
    fn ask(&self, server: &Server) {
        let mut client = Client::connect(&server.address()).expect("the server accepts");
        while !self.is_over.load(Ordering::Relaxed) {
            client.send(request("GET /name")).expect("the connection stays open");
            let response = client.response().expect("a response");
            if response.status == 200 {
                *self.answers.lock().unwrap().entry(response.body).or_default() += 1;
            } else {
                eprintln!("{}: {:?}", response.status, String::from_utf8_lossy(&response.body));
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The answers of each server since the last call, once there are `count` of them.
    fn next(&self, count: u32) -> BTreeMap<Vec<u8>, u32> {
        self.answers.lock().unwrap().clear();
        let is_enough = || self.answers.lock().unwrap().values().sum::<u32>() >= count;
        assert!(wait_until(SOON * 3, is_enough), "too few answers");
        self.answers.lock().unwrap().clone()
    }
}

fn names(answers: &BTreeMap<Vec<u8>, u32>) -> String {
    answers.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn no_request_is_lost_when_a_server_ends_and_others_take_its_place() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let mut origins: Vec<_> = (1..=3).map(|number| origin(&tree, number, 0)).collect();
        let url = |server: &Server| format!("http://{}", tcp_address(server));
        let mut urls: Vec<_> = origins.iter().map(url).collect();
        configure(&tree, driver, &urls, "fail-timeout = 0.5");
        let mut server = serve(&tree);
        let load = Load::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| load.ask(&server));
            }
            assert_eq!(names(&load.next(300)), "123");
            let second = origins.remove(1);
            let port = tcp_address(&second).port();
            drop(second);
            let _ = load.next(50);
            assert!(wait_until(SOON, || names(&load.next(300)) == "13"));
            assert!(server.wait_for_stderr("it is down; it is tried again", SOON).is_some());
            origins.push(origin(&tree, 2, port));
            assert!(server.wait_for_stderr("it is up again", SOON).is_some());
            assert!(wait_until(SOON, || names(&load.next(300)) == "123"));
            load.is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(load.failures.load(Ordering::Relaxed), 0);
        // Another server takes the place of the first, and what is known of the others stays.
        let second = urls[1].clone();
        let of = |server: &Server, name: &str| {
            let text = ask(server, "GET /metrics").body;
            let metrics = Metrics::parse(core::str::from_utf8(&text).unwrap()).unwrap();
            metrics.sum(name, &[("server", &second)])
        };
        let before = of(&server, "samum_upstream_requests_total");
        let load = Load::default();
        let fourth = origin(&tree, 4, 0);
        urls[0] = url(&fourth);
        configure(&tree, driver, &urls, "fail-timeout = 0.5\nbalance = 'least'");
        server.signal(Signal::HUP).unwrap();
        assert!(server.wait_for_stderr("loaded the configuration", SOON).is_some());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| load.ask(&server));
            }
            assert!(wait_until(SOON, || names(&load.next(300)) == "234"));
            load.is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(load.failures.load(Ordering::Relaxed), 0);
        assert!(
            of(&server, "samum_upstream_failures_total") >= 3.0,
            "they count on after the reload"
        );
        assert_eq!(of(&server, "samum_upstream_up").to_bits(), 1_f64.to_bits());
        assert_eq!(of(&server, "samum_upstream_requests_in_flight").to_bits(), 0_f64.to_bits());
        let after = of(&server, "samum_upstream_requests_total");
        assert!(before >= 1.0 && after > before, "{before} requests, and {after} after the reload");
    });
}

#[test]
fn a_reload_under_load_loses_nothing() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let origins: Vec<_> = (1..=3).map(|number| origin(&tree, number, 0)).collect();
        let urls: Vec<_> =
            origins.iter().map(|server| format!("http://{}", tcp_address(server))).collect();
        configure(&tree, driver, &urls, "");
        let server = Mutex::new(serve(&tree));
        let address = server.lock().unwrap().address();
        let load = Load::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = Client::connect(&address).expect("the server accepts");
                    while !load.is_over.load(Ordering::Relaxed) {
                        client.send(request("GET /name")).expect("the connection stays open");
                        let response = client.response().expect("a response");
                        assert_eq!(response.status, 200);
                        *load.answers.lock().unwrap().entry(response.body).or_default() += 1;
                    }
                });
            }
            for round in 0..6_usize {
                let keys = ["balance = 'least'", "balance = 'hash'", "slow-start = 1"][round % 3];
                configure(&tree, driver, &urls[..1 + round % 3], keys);
                let mut server = server.lock().unwrap();
                let loads = |server: &Server| {
                    let is_load = |line: &&String| line.contains("loaded the configuration");
                    server.stderr().iter().filter(is_load).count()
                };
                let before = loads(&server);
                server.signal(Signal::HUP).unwrap();
                assert!(wait_until(SOON, || loads(&server) > before));
                let _ = load.next(200);
            }
            load.is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_server_that_stops_reading_an_upload_is_a_gateway_timeout() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let origin = TcpListener::bind("127.0.0.1:0").expect("an address");
        let url = format!("http://{}", origin.local_addr().expect("bound"));
        let keys = "timeout-upstream-send = 1\ntimeout-upstream = 600";
        configure(&tree, driver, core::slice::from_ref(&url), keys);
        let server = serve(&tree);
        let mut client = TcpStream::connect(tcp_address(&server)).expect("the server accepts");
        client.set_read_timeout(Some(SOON)).expect("not zero");
        let mut upload = client.try_clone().expect("a descriptor");
        let uploading = thread::spawn(move || {
            let head = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
            let megabyte = [0; 1_000_000];
            let _ = upload.write_all(head.as_bytes());
            while upload.write_all(&megabyte).is_ok() {}
        });
        let (mut asked, _) = origin.accept().expect("the request");
        let mut head = [0; 10];
        asked.read_exact(&mut head).expect("its beginning");
        assert_eq!(head, *b"PUT / HTTP");
        let mut status = [0; 12];
        client.read_exact(&mut status).expect("a response");
        assert_eq!(status, *b"HTTP/1.1 504");
        let line =
            format!("{url}: it took nothing of the request within 1 s (timeout-upstream-send)");
        assert!(server.wait_for_stderr(&line, SOON).is_some(), "{:#?}", server.stderr());
        client.shutdown(Shutdown::Both).expect("it is connected");
        uploading.join().expect("the client ends");
    });
}

#[test]
fn a_name_is_resolved_and_one_that_is_not_is_said() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let origin = origin(&tree, 1, 0);
        let port = tcp_address(&origin).port();
        let keys = "[[site.route]]\npath = '/lost/'\nproxy = 'http://does-not-exist.invalid'";
        configure(&tree, driver, &[format!("http://localhost:{port}")], keys);
        let server = serve(&tree);
        for _ in 0..4 {
            // `::1`, where nothing listens, may be another address of the name.
            assert_eq!(ask(&server, "GET /name").body, b"1");
        }
        assert!(
            server.wait_for_stderr("does-not-exist.invalid:80 cannot be resolved", SOON).is_some()
        );
        assert_eq!(ask(&server, "GET /lost/").status, 502);
    });
}

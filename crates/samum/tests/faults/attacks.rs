//! The attacks of slowhttptest during the requests of another client, with limits.

use core::time::Duration;
use std::process::{Child, Command, Stdio};
use std::thread;

use testkit::{Address, Client, Content, Server, Tree};

use crate::common::{SAMUM, SOON, ask_on, on_both_drivers_at_once, wait_until};

/// Slow heads, slow bodies, ranges that overlap, and responses that are read slowly.
const ATTACKS: [&[&str]; 4] = [
    &["-H", "-i", "1"],
    &["-B", "-i", "1", "-s", "8192"],
    &["-R", "-a", "1", "-b", "3000", "-t", "HEAD"],
    &["-X", "-w", "10", "-y", "20", "-n", "1", "-z", "5", "-k", "3"],
];

fn attack(options: &[&str], port: u16) -> Child {
    let url = format!("http://127.0.0.1:{port}/big.bin");
    let mut command = Command::new("slowhttptest");
    command.args(options).args(["-c", "200", "-r", "200", "-l", "4", "-p", "2", "-u", &url]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it was there before")
}

#[test]
fn slow_clients_do_not_keep_others_from_being_served() {
    if Command::new("slowhttptest").arg("-h").output().is_err() {
        testkit::skip!("slowhttptest is not installed");
    }
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new()
            .file("hot.txt", "hot")
            .file("big.bin", Content::pseudo_random(1, 5 << 20))
            .file("samum.toml", "");
        let dir = tree.path().display();
        let config = tree.path().join("samum.toml");
        let socket = tree.path().join("http.sock");
        let text = format!(
            "[server]\nthreads = 1\ndriver = \"{driver}\"\nmax-connections = 64\n\
             [[site]]\nlisten = [\"127.0.0.1:0\", {{ unix = \"{}\" }}]\n\
             limits = {{ connections-per-ip = 16, requests-per-ip = \"20/s burst 20\" }}\n\
             [[site.route]]\nfiles = \"{dir}\"\n\
             [[site.route]]\npath = \"/metrics\"\nmetrics = true\n",
            socket.display()
        );
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new(SAMUM);
        command.arg("serve").arg("--config").arg(&config);
        let server = Server::spawn(&mut command).expect("the server starts");
        let port = server
            .addresses()
            .iter()
            .find_map(|address| match address {
                Address::Tcp(address) => Some(address.port()),
                Address::Unix(_) => None,
            })
            .expect("an address with a port");
        let mut attacks: Vec<_> = ATTACKS.iter().map(|options| attack(options, port)).collect();
        // Clients on the Unix socket have no limits. Each request is a connection, which needs a place.
        let hot = Address::Unix(socket);
        let ask = |what: &str| ask_on(&mut Client::connect(&hot).expect("a connection"), what);
        let mut requests = 0;
        while attacks.iter_mut().any(|attack| matches!(attack.try_wait(), Ok(None))) {
            let response = ask("GET /hot.txt");
            assert_eq!((response.status, &response.body[..]), (200, &b"hot"[..]));
            requests += 1;
            thread::sleep(Duration::from_millis(2));
        }
        assert!(requests > 100, "{requests} requests beside the attacks");
        let metrics = String::from_utf8(ask("GET /metrics").body).expect("a text");
        let limited = metrics
            .lines()
            .find(|line| line.starts_with("samum_connections_closed_total{reason=\"limit\"}"));
        let count = limited.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(count.is_some_and(|count| count > 300.0), "closed at once: {limited:?}");
        // The attackers have gone, and so have their connections.
        assert!(wait_until(SOON, || {
            let metrics = String::from_utf8(ask("GET /metrics").body).expect("a text");
            metrics.lines().any(|line| line == "samum_connections_open 1")
        }));
    });
}

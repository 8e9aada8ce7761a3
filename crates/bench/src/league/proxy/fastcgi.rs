//! Measures responses of PHP scripts through FastCGI, in a closed loop over kept connections. Each request
//! has its own connection to php-fpm, as all of the servers do by default.
//!
//! php-fpm shares the CPU of the load generator; CPU times are the gateway's alone.

use std::fs;
use std::rc::Rc;

use super::super::League;
use super::super::peers::{FASTCGI, PHP_FPM, Peer};
use super::super::server::{Host, Server};
use super::super::site::Site;
use super::requests;
use crate::load::{Plan, Target};
use crate::{Fault, Recorder, Test};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Cost of a response of a script through FastCGI";
    let test = Test::new("fastcgi", title, move |recorder| run(&league, recorder));
    requests::described(test).scales("the application's own speed, for less CPU than nginx takes")
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = league.chosen(&FASTCGI)?;
    let site = Site::new(league.root.as_deref())?;
    let files = vec![site.file("body", BYTES)?];
    site.warm(&files)?;
    let script = site.root().join("page.php");
    fs::write(script, "<?php readfile(__DIR__ . '/body');")?;
    let php = Peer::named(PHP_FPM).map_err(Fault::Failed)?;
    let host = Host {
        root: site.root(),
        files: &[],
        cpu: league.client_cpu,
        throttle: None,
        origin: None,
        network: None,
    };
    let start = || Server::start(&php, host);
    let application = league.silent.unless(PHP_FPM, start).map_err(Fault::Skip)?;
    let body = site.root().join("body");
    let mut servers: Vec<Server> = Vec::new();
    for peer in &peers {
        let host = Host { cpu: league.server_cpu, ..host };
        let server = league.start_on(recorder, peer, &site, host);
        servers.extend(league.compared(recorder, server, "/page.php", &body));
    }
    let target = Target { len: Some(BYTES), ..Target::new("/page.php") };
    let plan = |server: &Server| Plan {
        connections: CONNECTIONS,
        ..league.plan(server, vec![target.clone()])
    };
    let title = format!(
        "{BYTES} bytes of a script, closed loop over {CONNECTIONS} connections; {}",
        league.receives()
    );
    let taken = requests::take_turns(league, recorder, &mut servers, &COMPARED_TO, &title, plan);
    drop(application);
    recorder.note("php-fpm shares the CPU of the load generator");
    league.describe_these(recorder, peers.iter().chain([&php]));
    taken
}

/// The servers to which the others are compared, and the titles of the columns that do.
const COMPARED_TO: [(&str, &str); 2] =
    [("nginx-fastcgi", "nginx = 1"), ("haproxy-fastcgi", "haproxy = 1")];

/// The bytes of the response's body.
const BYTES: u64 = 64 * 1024;

/// As many as php-fpm has processes.
const CONNECTIONS: usize = 8;

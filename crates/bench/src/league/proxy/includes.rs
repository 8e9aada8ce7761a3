//! Measures pages with directives whose parts come from another server: a closed loop over connections that are
//! kept on both sides.

use core::fmt::Write as _;
use std::fs;
use std::rc::Rc;

use super::super::League;
use super::super::peers::{INCLUDES, ORIGIN, Peer};
use super::super::server::{Host, Server};
use super::super::site::Site;
use super::requests;
use crate::load::{Plan, Target};
use crate::{Fault, Recorder, Test};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Cost of a page with parts of another server";
    let test = Test::new("includes", title, move |recorder| run(&league, recorder));
    requests::described(test).scales("the cost of a file and of as many small proxied responses")
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let peers = league.chosen(&INCLUDES)?;
    let site = Site::new(league.root.as_deref())?;
    let (page, whole) = texts();
    fs::create_dir(site.root().join("part"))?;
    for nth in 0..PARTS {
        fs::write(site.root().join(format!("part/{nth}")), part(nth))?;
    }
    fs::write(site.root().join("page.html"), page)?;
    let expected = site.root().join("whole");
    fs::write(&expected, &whole)?;
    let origin = Peer::named(ORIGIN).map_err(Fault::Failed)?;
    let host = Host {
        root: site.root(),
        files: &[],
        cpu: league.client_cpu,
        throttle: None,
        origin: None,
        network: None,
    };
    let start = || Server::start(&origin, host);
    let origin = league.silent.unless(ORIGIN, start).map_err(Fault::Skip)?;
    let mut servers: Vec<Server> = Vec::new();
    for peer in &peers {
        let host = Host { cpu: league.server_cpu, origin: Some(origin.address()), ..host };
        let server = league.start_on(recorder, peer, &site, host);
        servers.extend(league.compared(recorder, server, "/page.html", &expected));
    }
    let target = Target { len: Some(whole.len() as u64), ..Target::new("/page.html") };
    let plan = |server: &Server| Plan {
        connections: CONNECTIONS,
        ..league.plan(server, vec![target.clone()])
    };
    let title = format!(
        "a page of {} bytes with {PARTS} parts, closed loop over {CONNECTIONS} connections; {}",
        whole.len(),
        league.receives()
    );
    let taken = requests::take_turns(league, recorder, &mut servers, &COMPARED_TO, &title, plan);
    recorder.note("the origin shares the CPU of the load generator");
    league.describe_these(recorder, &peers);
    taken
}

/// The page with its directives, and with its parts.
fn texts() -> (String, String) {
    let text = TEXT.repeat(PAGE_BYTES / PARTS / TEXT.len());
    let (mut page, mut whole) = (String::new(), String::new());
    for nth in 0..PARTS {
        let _ = write!(page, "{text}<!--#include virtual=\"/part/{nth}\" -->");
        whole.push_str(&text);
        whole.push_str(&part(nth));
    }
    (page, whole)
}

fn part(nth: usize) -> String {
    format!("part {nth}\n").repeat(PART_LINES)
}

/// The server to which the others are compared, and the title of the column that does.
const COMPARED_TO: [(&str, &str); 1] = [("nginx-includes", "nginx = 1")];

const PAGE_BYTES: usize = 1 << 20;
const PARTS: usize = 20;
/// About 1 KiB.
const PART_LINES: usize = 128;
const TEXT: &str = "A line of text that is the same in all of the page.\n";
const CONNECTIONS: usize = 8;

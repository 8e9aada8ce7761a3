//! Measures small responses through proxies: a closed loop over connections that are kept on both sides.

use std::rc::Rc;

use super::super::League;
use super::super::server::Server;
use super::super::site::Site;
use super::{COMPARED_TO, Stage, requests};
use crate::load::Target;
use crate::{Fault, Recorder, Test};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Cost of a small response through a proxy";
    let test = Test::new("proxied-small", title, move |recorder| run(&league, recorder));
    requests::described(test)
        .scales("CPU per request that is near that of two requests without a proxy")
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    let files = vec![site.file("small", BYTES)?];
    let stage = Stage::new(league, &site, &files)?;
    let mut servers: Vec<Server> = Vec::new();
    for peer in &league.proxies {
        servers.extend(stage.start(recorder, peer, files.len()));
    }
    let target = Target { len: Some(BYTES), ..Target::new("/small") };
    let plan = |server: &Server| league.plan(server, vec![target.clone()]);
    let taken = requests::take_turns(
        league,
        recorder,
        &mut servers,
        &COMPARED_TO,
        &format!("{BYTES} bytes, closed loop over {} connections", league.connections),
        plan,
    );
    stage.describe(recorder, &league.proxies);
    taken
}

/// The bytes of the response's body.
const BYTES: u64 = 1024;

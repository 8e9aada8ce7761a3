//! Measures proxies whose upstream speaks TLS: small responses to clients without and with TLS, and long downloads.
//!
//! All proxies verify the certificate of the origin. The origin offers one cipher suite, as the clients of [`tls`] do.

use std::rc::Rc;

use super::super::League;
use super::super::peers::{ORIGIN_TLS, Peer, TLS_BOTH, TLS_OUT};
use super::super::server::Server;
use super::super::site::Site;
use super::super::tls::{self, Round, Work};
use super::Stage;
use crate::{Fault, Recorder, Test};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let works = works(&league);
    let title = "Cost of responses through a proxy whose upstream speaks TLS";
    let test = Test::new("proxied-tls", title, move |recorder| run(&league, recorder))
        .scales("less CPU per response than other proxies");
    tls::described(test, works)
}

/// The works: the first is done by proxies without TLS for clients, the others by proxies with TLS on both sides.
fn works(league: &League) -> [Work; 3] {
    let long = if league.quick { 8 << 20 } else { 1 << 30 };
    [Work::Plain(SMALL), Work::Kept(SMALL), Work::Download(long)]
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    tls::has_clients()?;
    let works = works(league);
    let site = Site::new(league.root.as_deref())?;
    let sizes = [SMALL, works[2].bytes()];
    site.has_room_for(sizes.iter().sum())?;
    let files = sizes
        .map(|bytes| site.file(&tls::name(bytes), bytes))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    tls::certificate(site.root())?;
    let stage = Stage::with_origin(league, &site, &files, ORIGIN_TLS)?;
    let (mut peers, mut servers) = (Vec::new(), Vec::new());
    let mut begin = |peer: Peer, has_tls: bool| {
        let check = |server: &Server| match has_tls {
            true => tls::compare(server, &files[0], &site.root().join(&files[0])),
            false => server.check(site.root(), &files[0]),
        };
        servers.extend(league.start_checked(recorder, &peer, stage.host(1), check));
        peers.push(peer);
        servers.len()
    };
    let mut out = 0;
    for peer in league.chosen(&TLS_OUT).or_else(none)? {
        out = begin(peer, false);
    }
    let mut both = out;
    for peer in league.chosen(&TLS_BOTH).or_else(none)? {
        both = begin(peer, true);
    }
    if servers.is_empty() {
        return Err(Fault::Skip("no proxy takes part".into()));
    }
    let compared = |names: [&'static str; 4]| [(names[1], "nginx = 1"), (names[2], "haproxy = 1")];
    let rounds = [
        Round { work: works[0], servers: 0..out, compared_to: compared(TLS_OUT) },
        Round { work: works[1], servers: out..both, compared_to: compared(TLS_BOTH) },
        Round { work: works[2], servers: out..both, compared_to: compared(TLS_BOTH) },
    ];
    let taken = tls::take_turns(league, recorder, &mut servers, &rounds, site.root());
    stage.describe(recorder, &peers);
    taken
}

/// No peers, if none was chosen.
fn none(fault: Fault) -> Result<Vec<Peer>, Fault> {
    match fault {
        Fault::Skip(_) => Ok(Vec::new()),
        Fault::Failed(_) => Err(fault),
    }
}

/// The bytes of a small response.
const SMALL: u64 = 1024;

//! The table of `tests/cases` in the simulated world, over each transport.

use std::rc::Rc;

use ring::sim::World;
use samum::config::Tuning;
use samum::network::Network;
use samum::session::Http1;
use samum::worker::Worker;
use sendfile::Transport;
use testkit::Response;

use crate::below::Layered;
use crate::cases::{Case, sites};
use crate::lossy::{Lossy, LossyClient};
use crate::record::{RecordClient, Records, SECRET};
use crate::world;
use crate::world::{
    Client, Dial, Make, Plain, assert_nothing_is_left, config, run_until, serve_over, tuning,
};

/// The way in which the bytes of a step are cut into pieces.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Whole,
    Bytes,
}

const DRIBBLED_MAX: usize = 2000;

#[test]
fn over_the_kernels_tcp() {
    run_all(|tcp, _| tcp, Plain::new);
}

#[test]
fn over_records() {
    run_all(|tcp, _| Layered::new(tcp, Records::new(SECRET)), RecordClient::new);
}

#[test]
fn over_a_lossy_network() {
    run_all(|tcp, _| Layered::new(tcp, Lossy::default()), LossyClient::new);
}

/// Runs all cases over transports that `make` makes.
fn run_all<T: Transport, C: Client>(make: Make<T>, dial: Dial<C>) {
    run_over(|world, tuning| {
        let (worker, seed, world) = (serve_over(world, tuning, make), world.seed(), world.clone());
        (worker, move || dial(Rc::new(world.connect()), seed))
    });
}

/// Runs all cases of the table, cold and then warm. `serve` makes a worker for each site, and a
/// function that connects clients to it.
pub(crate) fn run_over<N: Network, C: Client, D: FnMut() -> C>(
    serve: impl Fn(&World, Tuning) -> (Worker<Http1, N>, D),
) {
    let (mut count, mut faults) = (0, Vec::new());
    for (seed, site) in (0..).zip(sites()) {
        let world = world::make(config(seed), &site);
        let (mut worker, mut connect) = serve(&world, tuning(&site));
        for cut in [Cut::Whole, Cut::Bytes] {
            for case in &site.cases {
                count += 1;
                if let Err(fault) = run(&world, &mut worker, connect(), case, cut) {
                    let (site, case) = (site.name, &case.name);
                    faults.push(format!("{site}, {case:?}, {cut:?}: {fault}"));
                }
            }
        }
        drop(connect);
        assert_nothing_is_left(&world, &mut worker);
    }
    assert!(faults.is_empty(), "{} of {count} cases:\n{}", faults.len(), faults.join("\n"));
    assert!(count > 100, "{count} cases");
}

fn run<N: Network>(
    world: &World,
    worker: &mut Worker<Http1, N>,
    mut client: impl Client,
    case: &Case,
    cut: Cut,
) -> Result<(), String> {
    let mut earlier: Vec<Response> = Vec::new();
    let mut at = 0;
    for (number, step) in case.steps.iter().enumerate() {
        let bytes = step.bytes(&earlier);
        match cut {
            Cut::Bytes if bytes.len() <= DRIBBLED_MAX => {
                bytes.chunks(1).for_each(|byte| client.send(byte));
            }
            _ => client.send(&bytes),
        }
        if case.shuts_down && number + 1 == case.steps.len() {
            client.shut_down();
        }
        for expected in &step.expect {
            let mut next = Ok(None);
            let came = run_until(worker, || {
                client.look();
                let (rest, has_ended) = (&client.received()[at..], client.end().is_some());
                next = Response::parse(rest, expected.is_for_head(), has_ended);
                !matches!(next, Ok(None))
            });
            let next = next.map_err(|error| error.to_string())?;
            let (response, len) = next.ok_or_else(|| {
                format!("no response, although waited {came} until {:?}", world.now())
            })?;
            let fault = |fault| format!("{fault}\n{response:?}");
            expected.check(&response, &earlier).map_err(fault)?;
            at += len;
            earlier.push(response);
        }
    }
    if !case.closes && !case.shuts_down {
        client.shut_down();
    }
    let ended = run_until(worker, || {
        client.look();
        client.end().is_some()
    });
    match client.received().len() - at {
        0 if ended => Ok(()),
        0 => Err("the connection stays open".to_owned()),
        rest => Err(format!("{rest} bytes more")),
    }
}

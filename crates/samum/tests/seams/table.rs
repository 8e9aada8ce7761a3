//! The table of `tests/cases` in the simulated world, over each transport.

use std::rc::Rc;

use crate::options::Options;
use ring::sim::World;
use samum::network::{Listeners, Network};
use samum::worker::Worker;
use sendfile::Transport;
use session::Http1;
use testkit::Response;

use crate::cases::{Conversation, Cut, sites};
use crate::seams::below::Layered;
use crate::seams::lossy::{Lossy, LossyClient};
use crate::seams::record::{RecordClient, Records, SECRET};
use crate::seams::tls::{self, TlsClient};
use crate::seams::world;
use crate::seams::world::{
    Client, Dial, Make, Plain, assert_nothing_is_left, config, options, parts, run_until,
    serve_over,
};

#[test]
fn over_the_kernels_tcp() {
    run_all(|tcp, _| tcp, Plain::new);
}

#[test]
fn over_records() {
    run_all(|tcp, _| Layered::new(tcp, Records::new(SECRET)), RecordClient::new);
}

#[test]
fn over_tls() {
    run_all(tls::make, TlsClient::new);
}

#[test]
fn over_tls_whose_network_takes_the_steps_of_handshakes() {
    run_over(|world, options| {
        let parts = parts(world, options);
        let network = tls::secure(Listeners::new(parts.listeners.clone()), tls::acceptors());
        let (seed, world) = (world.seed(), world.clone());
        let worker = Worker::over(parts, network).expect("memory");
        (worker, move || TlsClient::new(Rc::new(world.connect()), seed))
    });
}

#[test]
fn over_a_lossy_network() {
    run_all(|tcp, _| Layered::new(tcp, Lossy::default()), LossyClient::new);
}

/// Runs all cases over transports that `make` makes.
fn run_all<T: Transport, C: Client>(make: Make<T>, dial: Dial<C>) {
    run_over(|world, options| {
        let (worker, seed, world) = (serve_over(world, options, make), world.seed(), world.clone());
        (worker, move || dial(Rc::new(world.connect()), seed))
    });
}

/// Runs all cases of the table, cold and then warm. `serve` makes a worker for each site, and a
/// function that connects clients to it.
pub(crate) fn run_over<N: Network, C: Client, D: FnMut() -> C>(
    serve: impl Fn(&World, Options) -> (Worker<Http1, N>, D),
) {
    let (mut count, mut faults) = (0, Vec::new());
    for (seed, site) in (0..).zip(sites()) {
        let world = world::make(config(seed), &site);
        let (mut worker, mut connect) = serve(&world, options(&site));
        for cut in Cut::ALL {
            for case in &site.cases {
                count += 1;
                let client = connect();
                let mut talk = Talk { world: &world, worker: &mut worker, client, read: 0 };
                if let Err(fault) = case.run(cut, &mut talk) {
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

/// A conversation with a worker, which acts while an answer is awaited.
struct Talk<'a, N: Network, C> {
    world: &'a World,
    worker: &'a mut Worker<Http1, N>,
    client: C,
    /// Received bytes that responses have consumed.
    read: usize,
}

impl<N: Network, C: Client> Conversation for Talk<'_, N, C> {
    fn send(&mut self, bytes: &[u8]) {
        self.client.send(bytes);
    }

    fn shut_down(&mut self) -> Result<(), String> {
        self.client.shut_down();
        Ok(())
    }

    fn receive(&mut self, is_for_head: bool) -> Result<Response, String> {
        let Self { world, worker, client, read } = self;
        let mut next = Ok(None);
        let came = run_until(worker, || {
            client.look();
            let (rest, has_ended) = (&client.received()[*read..], client.end().is_some());
            next = Response::parse(rest, is_for_head, has_ended);
            !matches!(next, Ok(None))
        });
        let (response, len) = next.map_err(|error| error.to_string())?.ok_or_else(|| {
            format!("no response, although waited {came} until {:?}", world.now())
        })?;
        *read += len;
        Ok(response)
    }

    fn rest(&mut self) -> Result<usize, String> {
        let Self { worker, client, read, .. } = self;
        let has_ended = run_until(worker, || {
            client.look();
            client.end().is_some()
        });
        match client.received().len() - *read {
            0 if !has_ended => Err("the connection stays open".to_owned()),
            rest => Ok(rest),
        }
    }
}

//! The load generator against servers with known delays.

mod server;

use core::time::Duration;

use samum_bench::load::{self, Account, Arrival, Failure, Order, Plan, Target, slow::SlowReaders};

use server::{Behaviour, Server};

const BODY: &[u8] = b"a body of some bytes";

fn target() -> Target {
    Target { len: Some(BODY.len() as u64), body: Some(BODY.into()), ..Target::new("/") }
}

fn plan(server: &Server) -> Plan {
    Plan { warmup: Duration::from_millis(200), ..Plan::new(server.address(), vec![target()]) }
}

fn measure(plan: &Plan) -> Account {
    load::measure(plan).unwrap()
}

fn assert_close(what: &str, got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 0.02, "{what}: {got}, not within 2 % of {want}");
}

fn quantile(sorted: &[f64], per_cent: usize) -> f64 {
    sorted[(sorted.len() - 1) * per_cent / 100]
}

/// Delays from 100 to 400 ms: a generator that waits a millisecond for a core is still within 2 %. The server says how
/// long it really took over each: a sleep on a machine that is shared is longer than it should be, by more than the
/// generator may be wrong.
#[test]
fn an_open_loop_has_the_servers_rate_and_percentiles() {
    let server = Server::start(Behaviour::delays(BODY, |i| 100 + i * 35 % 301));
    let plan = Plan {
        arrival: Arrival::Even(200.0),
        // Responses of the warm-up come at the full rate when the measurement begins.
        warmup: Duration::from_millis(500),
        duration: Duration::from_secs(3),
        ..plan(&server)
    };
    let account = measure(&plan);
    assert_eq!(account.failures(), "");
    assert_close("rate", account.rate(), 200.0);
    // Those of 3 s, and those of the mean delay before, which waited when the measurement began.
    assert_close("count", account.latency.len() as f64, 200.0 * (3.0 + 0.25));
    let took = server.took();
    for per_cent in [10, 50, 90, 99] {
        let got = account.quantile(per_cent as f64 / 100.0);
        assert_close(&format!("{per_cent} %"), got, quantile(&took, per_cent));
    }
    assert!(!account.percentile(1.0).at_least, "nothing was cut off");
    assert!(account.own_cpu_share() < 0.5, "{}", account.own_cpu_share());
}

/// 16 connections, 40 ms each: 400 requests a second and no more.
#[test]
fn a_closed_loop_finds_the_maximum() {
    let server = Server::start(Behaviour::delays(BODY, |_| 40));
    let plan = Plan { connections: 16, duration: Duration::from_secs(2), ..plan(&server) };
    let account = measure(&plan);
    assert_eq!(account.failures(), "");
    let took = server.took();
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    assert_close("rate", account.rate(), 16.0 / mean);
    assert_close("median", account.quantile(0.5), quantile(&took, 50));
}

/// The server answers at once, except for one pause of 600 ms. Of 3 s of requests a fifth was meant to
/// leave within the pause and has to wait for its end. A generator that only counts sent requests
/// would see one slow request per connection.
#[test]
fn a_pause_of_the_server_is_not_omitted() {
    let pause = Duration::from_millis(1000)..Duration::from_millis(1600);
    let server = Server::start(Behaviour::pause(BODY, pause));
    for arrival in [Arrival::Even(500.0), Arrival::Poisson(500.0)] {
        server.restart_clock();
        let plan = Plan {
            arrival,
            connections: 4,
            warmup: Duration::ZERO,
            duration: Duration::from_secs(3),
            ..plan(&server)
        };
        let account = measure(&plan);
        assert_eq!(account.failures(), "");
        // Latencies within the pause are evenly distributed from 0 to 600 ms.
        for (q, seconds) in [(0.9, 0.3), (0.95, 0.45), (1.0, 0.6)] {
            let got = account.quantile(q);
            // Half a percent of all requests; Poisson's 300 in the pause vary by 17 themselves.
            let slack = if arrival == Arrival::Even(500.0) { 0.02 } else { 0.06 };
            assert!((got - seconds).abs() < slack, "{arrival:?} {q}: {got}, not {seconds}");
        }
    }
}

/// The pause begins 200 ms before the window and ends 400 ms after its start. A generator that leaves
/// out requests of the warm-up sees 400 ms, and in a closed loop nothing at all.
#[test]
fn a_pause_that_begins_in_the_warm_up_is_not_omitted() {
    let pause = Duration::from_millis(300)..Duration::from_millis(900);
    let server = Server::start(Behaviour::pause(BODY, pause));
    for arrival in [Arrival::Even(500.0), Arrival::Closed] {
        server.restart_clock();
        let plan = Plan {
            arrival,
            connections: 4,
            warmup: Duration::from_millis(500),
            duration: Duration::from_secs(2),
            ..plan(&server)
        };
        let account = measure(&plan);
        assert_eq!(account.failures(), "");
        let longest = account.quantile(1.0);
        assert!((longest - 0.6).abs() < 0.05, "{arrival:?}: {longest}");
        assert!(account.slices[3].latency_max > 350_000_000, "{arrival:?}: {:?}", account.slices);
        if arrival != Arrival::Closed {
            // Latencies of 300 of 1100 requests are evenly distributed up to 600 ms.
            let got = account.quantile(0.99);
            assert!((got - 0.578).abs() < 0.03, "{got}");
            assert!(account.latency.len() >= 1090, "{}", account.latency.len());
        }
    }
}

#[test]
fn who_waits_all_the_window_has_a_latency() {
    let pause = Duration::from_millis(100)..Duration::from_secs(5);
    let server = Server::start(Behaviour::pause(BODY, pause));
    let plan = Plan {
        connections: 8,
        duration: Duration::from_millis(300),
        timeout: Duration::from_millis(1000),
        ..plan(&server)
    };
    let account = measure(&plan);
    assert_eq!((account.failures(), account.latency.len()), ("8 timed out".to_owned(), 8));
    assert!(account.percentile(0.01).at_least, "a wait that was cut off is a lower bound");
    assert!(account.quantile(0.5) >= 0.99, "{}", account.quantile(0.5));
}

#[test]
fn connections_are_kept_or_not() {
    let server = Server::start(Behaviour::delays(BODY, |_| 5));
    let short = Plan { connections: 4, duration: Duration::from_millis(300), ..plan(&server) };
    measure(&short);
    assert_eq!(server.connections(), 4);
    let account = measure(&Plan { keep_alive: false, ..short });
    assert_eq!(account.failures(), "");
    assert_eq!(server.connections() - 4, account.connect.len());
    assert!(account.connect.len() >= account.answered_ever);
}

#[test]
fn each_target_once_and_then_the_end() {
    let server = Server::start(Behaviour::delays(BODY, |_| 5));
    let plan = Plan {
        targets: vec![target(); 10],
        order: Order::Once,
        connections: 3,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(60),
        ..plan(&server)
    };
    let account = measure(&plan);
    assert_eq!((account.answered, account.failures()), (10, String::new()));
    assert_eq!(account.bytes, 10 * BODY.len() as u64);
    assert!(account.window < Duration::from_secs(30), "{:?}", account.window);
}

#[test]
fn failures_have_their_kind() {
    let short = |server: &Server| Plan {
        connections: 2,
        warmup: Duration::ZERO,
        duration: Duration::from_millis(300),
        timeout: Duration::from_millis(100),
        ..plan(server)
    };
    let response = |text: &str| Server::start(Behaviour::raw(text.as_bytes().to_vec()));
    for (server, failure) in [
        (response("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"), Failure::Status),
        (response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"), Failure::Bytes),
        (response("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Failure::Malformed),
        (response("nonsense\r\n\r\n"), Failure::Malformed),
        (response(""), Failure::Closed),
        (Server::start(Behaviour::delays(BODY, |_| 400)), Failure::Timeout),
    ] {
        let account = measure(&short(&server));
        assert!(account.failed(failure) > 0, "{failure}: {}", account.failures());
        assert_eq!(account.answered, 0, "{failure}");
    }
    let server = Server::start(Behaviour::delays(BODY, |_| 3000));
    let plan = Plan { timeout: Duration::from_secs(10), ..short(&server) };
    let account = measure(&Plan { duration: Duration::from_millis(20), ..plan });
    assert_eq!(account.failures(), "2 unanswered at the end");
    assert!(account.quantile(0.5) > 1.9, "they count with what they waited");
    assert!(account.percentile(0.5).at_least, "and may have had to wait longer");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut plan = Plan::new(address, vec![Target::new("/")]);
    for keep_alive in [true, false] {
        plan.keep_alive = keep_alive;
        let error = load::measure(&plan).unwrap_err().to_string();
        assert!(error.contains("refused") || error.contains("not connected"), "{error}");
    }
}

#[test]
fn a_load_can_be_ended_from_outside() {
    let server = Server::start(Behaviour::delays(BODY, |_| 1));
    let plan =
        Plan { duration: Duration::from_secs(3600), warmup: Duration::ZERO, ..plan(&server) };
    let background = load::Background::start(plan);
    while background.bytes() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let account = background.stop().unwrap();
    assert!(account.answered > 0);
}

#[test]
fn slow_readers_read_slowly() {
    let server = Server::start(Behaviour::delays(&vec![0; 4 << 20], |_| 0));
    let plan = Plan { connections: 3, ..Plan::new(server.address(), vec![Target::new("/")]) };
    let readers = SlowReaders::start(plan, 50_000).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let before = readers.bytes();
    std::thread::sleep(Duration::from_secs(2));
    let rate = (readers.bytes() - before) as f64 / 2.0;
    assert_eq!(readers.stop().unwrap(), 0);
    // One tick more or less is 5 %; the machine may delay a sleeper, too.
    assert!((120_000.0..165_000.0).contains(&rate), "{rate} of 150,000 bytes a second");
}

#[test]
fn fetching_gets_the_bytes_or_says_why_not() {
    let limit = Duration::from_secs(5);
    let server = Server::start(Behaviour::delays(BODY, |_| 0));
    assert_eq!(load::fetch::fetch(server.address(), "/", limit).unwrap(), BODY);
    let server =
        Server::start(Behaviour::raw(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let error = load::fetch::fetch(server.address(), "/x", limit).unwrap_err().to_string();
    assert_eq!(error, "/x: status 403");
}

//! What operators see of downloads that are under way: `samum stack --connections`, and a route with metrics.

use core::time::Duration;
use std::io::Write as _;
use std::process::Command;

use netstack::sim::Conditions;
use testkit::{Content, Server, Tree, or_skip};

use crate::common::{SAMUM, SOON, request, wait_until};
use crate::net::{Frames, Net, V4};
use crate::rude::{check_response, connect_small};
use crate::{addresses, connect, path};

const CLIENTS: usize = 10;

/// Loses enough to have bytes sent again. A round trip takes 10 ms and the wait in front of the clients.
const LOSSY: Conditions = Conditions {
    loss: 0.03,
    delay: Duration::from_millis(5),
    burst: None,
    duplicate: 0.0,
    corrupt: 0.0,
    reorder: (0.0, Duration::ZERO),
    jitter: Duration::ZERO,
    rate: None,
    queue_bytes: usize::MAX,
    mark_bytes: None,
    policer: None,
    bunch: Duration::ZERO,
    mtu: 1500,
    says_too_large: true,
    strips: 0,
};

/// The number of a series.
fn number(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse().unwrap()
}

fn scrape() -> String {
    let mut client = connect(addresses()[0]);
    client.send(request("GET /metrics\nConnection: close")).unwrap();
    String::from_utf8(client.response().unwrap().body).unwrap()
}

/// What `samum stack` says.
pub(crate) fn stack(control: &str, options: &[&str]) -> String {
    let output =
        Command::new(SAMUM).args(["stack", "--control", control]).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number in front of these words in what `samum stack` says; 0 if it does not say them.
pub(crate) fn count(shown: &str, words: &str) -> u64 {
    let is_end = |rest: &str| rest.is_empty() || rest.starts_with([',', ';', '\n']);
    let mut places = shown.match_indices(words);
    let place = places.find(|(at, _)| is_end(&shown[at + words.len()..]));
    place.map_or(0, |(at, _)| shown[..at].split_whitespace().next_back().unwrap().parse().unwrap())
}

/// Checks the lines of `samum stack` for connections that the clients hold up.
fn check_stack(shown: &str) {
    let of_clients: Vec<_> = shown.lines().filter(|line| line.contains(" cwnd ")).collect();
    assert_eq!(of_clients.len(), CLIENTS, "{shown}");
    for line in of_clients {
        let words: Vec<_> = line.split_whitespace().collect();
        let [local, peer, "ESTABLISHED", "cwnd", cwnd, "in", "flight", pipe, rest @ ..] =
            &words[..]
        else {
            panic!("{line}");
        };
        assert_eq!(*local, format!("{V4}:80"));
        assert!(peer.starts_with("10.77.0.2:"), "{line}");
        assert!(cwnd.parse::<u32>().unwrap() > 1000 && pipe.parse::<u32>().is_ok(), "{line}");
        let [.., "srtt", srtt, "ms"] = rest else { panic!("{line}") };
        assert!(srtt.parse::<f64>().unwrap() >= 10.0, "{line}");
    }
    assert!(shown.contains(&format!("of {CLIENTS} connections with data in flight")), "{shown}");
    assert!(shown.contains(&format!("connections: {CLIENTS}, {CLIENTS} ESTABLISHED")), "{shown}");
    assert!(shown.contains(" behind a later acknowledgement"), "{shown}");
}

#[test]
fn downloads_under_way_are_shown() {
    let file = Content::pseudo_random(9, 1_000_000);
    let tree = Tree::new().file("site/f", file.clone());
    let net = or_skip!(Net::across(Frames::Packet, [LOSSY; 2], 2));
    let control = format!("{}/.control", path(&tree));
    let config = format!("{}/samum.toml", path(&tree));
    let text = format!(
        "[server]\nthreads = 1\ninterface = ['eth1']\nframes = 'packet'\ncontrol = '{control}'\n\
         [[site]]\nlisten = ['{V4}:80']\n\
         [[site.route]]\nfiles = 'site'\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = net.at_server(SAMUM);
    let _server = Server::spawn(command.args(["serve", "--config", &config])).unwrap();
    net.as_client(|| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = connect_small(64 * 1024);
                client.write_all(request("GET /f\nConnection: close").as_bytes()).unwrap();
                client
            })
            .collect();
        // All clients have stopped the server with their windows, after what was lost came again.
        let is_stopped = || {
            let shown = stack(&control, &["--connections"]);
            shown.lines().filter(|line| line.contains("in flight 0 ")).count() == CLIENTS
        };
        assert!(wait_until(SOON, is_stopped), "{}", stack(&control, &["--connections"]));
        check_stack(&stack(&control, &["--connections"]));
        assert!(!stack(&control, &[]).contains(" cwnd "));

        let before = scrape();
        // The connection of the scrape may be one more: the numbers are those of the last turn.
        let established = number(&before, "samum_stack_connections{state=\"established\"}");
        assert!((10.0..=11.0).contains(&established), "{before}");
        assert!(number(&before, "samum_stack_retransmissions_total{cause=\"fast\"}") > 0.0);
        assert!(number(&before, "samum_stack_frames_total{direction=\"received\"}") > 100.0);
        let count = |text: &str| number(text, "samum_stack_round_trip_seconds_count");
        clients.into_iter().for_each(|client| check_response(client, &file));
        let after = scrape();
        assert!(count(&after) >= count(&before) + 10.0, "{after}");
        let fast = number(&after, "samum_stack_round_trip_seconds_bucket{le=\"0.001\"}");
        assert_eq!(fast, 0.0, "no round trip is shorter than the path");
    });
    let is_empty = || stack(&control, &[]).contains("connections: 0;");
    assert!(wait_until(SOON, is_empty), "{}", stack(&control, &[]));
}

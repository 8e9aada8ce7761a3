//! Servers that join others, by further addresses of a name or by a reload, and the choices of a worker among
//! them.

use super::*;
use config::HealthRules;
use sendfile::Account;

const SLOW_START: Duration = Duration::from_secs(30);

/// A route to the servers of a name, a worker's links, and the addresses of the name.
struct Stage {
    upstream: Arc<Upstream>,
    links: Links,
    resolved: Arc<Resolved>,
}

fn config(balance: Balance, servers: &[&str]) -> config::Upstream {
    let health = HealthRules { slow_start: Some(SLOW_START), ..HealthRules::default() };
    let rules = GatewayRules { balance, health, ..GatewayRules::default() };
    let server = |url: &&str| config::upstream::server(url).expect("a server");
    config::Upstream { servers: servers.iter().map(server).collect(), rules }
}

impl Stage {
    fn new(balance: Balance) -> Self {
        let upstream =
            Upstream::new(&config(balance, &["http://a.example"]), "a".to_owned(), None, None);
        let resolved = Arc::<Resolved>::default();
        let Source::Named(named) = &upstream.sources[0] else { unreachable!("it is a name") };
        named.resolved.get_or_init(|| Arc::clone(&resolved));
        Self {
            upstream,
            links: Links::new(Token::default(), Token::default(), &Account::default()),
            resolved,
        }
    }

    /// A route to servers at addresses.
    fn with_addresses(balance: Balance, servers: &[&str]) -> Self {
        let upstream = Upstream::new(&config(balance, servers), "a".to_owned(), None, None);
        let links = Links::new(Token::default(), Token::default(), &Account::default());
        Self { upstream, links, resolved: Arc::default() }
    }

    /// A reload gives the route these servers.
    fn reload(&mut self, config: &config::Upstream) {
        self.upstream = Upstream::new(config, "a".to_owned(), None, Some(&self.upstream));
    }

    fn resolve(&self, hosts: &[u8]) {
        let address = |host: &u8| SocketAddr::from(([192, 0, 2, *host], 80));
        self.resolved.set(hosts.iter().map(address).collect());
    }

    /// The number of requests, of `requests`, that this address of the name gets.
    fn share(&mut self, host: u8, requests: u32, seconds: u64) -> usize {
        self.share_of(&format!("(192.0.2.{host})"), requests, seconds)
    }

    /// The number of requests, of `requests`, for the server whose name ends in `server`.
    fn share_of(&mut self, server: &str, requests: u32, seconds: u64) -> usize {
        let now = Time::default() + Duration::from_secs(1_000_000 + seconds);
        let mut is_asked = |key| {
            let ask = Try { key, failed: ServerSet::EMPTY, cost: Cost::First, is_repeatable: true };
            let chosen = self.links.choose(&self.upstream, ask, now).expect("a server is up");
            let is_host = chosen.server.name.ends_with(server);
            self.links.end(chosen);
            is_host
        };
        (0..requests).filter(|key| is_asked(balance::hash(&key.to_le_bytes()))).count()
    }
}

#[test]
fn an_address_that_joins_those_of_a_name_begins_with_a_small_share() {
    for balance in [Balance::RoundRobin, Balance::Least] {
        let mut stage = Stage::new(balance);
        stage.resolve(&[1, 2]);
        assert_eq!(stage.share(1, 300, 0), 150, "{balance:?}: the first ones share at once");
        // No requests come for some seconds. The time of the third server begins when a worker first sees it.
        stage.resolve(&[1, 2, 3]);
        let shares = [100, 115, 129, 130].map(|seconds| stage.share(3, 600, seconds));
        assert!(shares[0] <= 2, "{balance:?}: {shares:?}");
        // Half of a share, beside two whole ones.
        assert!((118..=122).contains(&shares[1]), "{balance:?}: {shares:?}");
        assert!((185..=200).contains(&shares[2]), "{balance:?}: {shares:?}");
        assert!((199..=201).contains(&shares[3]), "{balance:?}: {shares:?}");
        // An address that has gone and comes back is a new one; the others go on.
        stage.resolve(&[2, 3]);
        assert!((49..=51).contains(&stage.share(3, 100, 140)), "{balance:?}");
        stage.resolve(&[1, 2, 3]);
        assert!(stage.share(1, 600, 141) <= 2, "{balance:?}");
        assert!((199..=201).contains(&stage.share(1, 600, 171)), "{balance:?}");
    }
}

#[test]
fn an_address_that_joins_has_few_keys_at_first() {
    let mut stage = Stage::new(Balance::Hash);
    stage.resolve(&[1, 2]);
    stage.share(1, 300, 0);
    stage.resolve(&[1, 2, 3]);
    let shares = [100, 115, 130].map(|seconds| stage.share(3, 3000, seconds));
    assert!(shares[0] <= 20, "{shares:?}");
    assert!((450..=550).contains(&shares[1]), "{shares:?}");
    assert!((930..=1070).contains(&shares[2]), "{shares:?}");
}

#[test]
fn addresses_that_take_the_place_of_all_others_share_at_once() {
    let mut stage = Stage::new(Balance::RoundRobin);
    stage.resolve(&[1]);
    assert_eq!(stage.share(1, 10, 0), 10);
    stage.resolve(&[2, 3]);
    assert_eq!(stage.share(2, 300, 1), 150);
}

const ONE: &str = "http://192.0.2.1:80";
const TWO: &str = "http://192.0.2.2:80";
const THREE: &str = "http://192.0.2.3:80";

#[test]
fn a_server_that_a_reload_adds_begins_with_a_small_share() {
    for balance in [Balance::RoundRobin, Balance::Least, Balance::Hash] {
        // Keys are spread by chance.
        let spread = if balance == Balance::Hash { 150 } else { 15 };
        let is_about = |share: usize, expected: usize| share.abs_diff(expected) <= spread;
        let mut stage = Stage::with_addresses(balance, &[ONE, TWO]);
        let first = stage.share_of(ONE, 3000, 0);
        assert!(is_about(first, 1500), "{balance:?}: {first}: the first ones share at once");
        stage.reload(&config(balance, &[ONE, TWO, THREE]));
        let shares = [100, 115, 130].map(|seconds| stage.share_of(THREE, 3000, seconds));
        assert!(shares[0] <= 30, "{balance:?}: {shares:?}");
        let half = if balance == Balance::Hash { 500 } else { 600 };
        assert!(is_about(shares[1], half), "{balance:?}: {shares:?}");
        assert!(is_about(shares[2], 1000), "{balance:?}: {shares:?}");
        // A server that stays goes on through all other changes, and one that comes back is new.
        stage.reload(&config(balance, &[THREE, ONE]));
        let share = stage.share_of(THREE, 3000, 131);
        assert!(is_about(share, 1500), "{balance:?}: {share}");
        stage.reload(&config(balance, &[ONE, TWO, THREE]));
        let share = stage.share_of(TWO, 3000, 132);
        assert!(share <= 30, "{balance:?}: {share}");
    }
}

#[test]
fn servers_that_a_reload_leaves_share_at_once_also_under_other_rules() {
    let mut stage = Stage::with_addresses(Balance::RoundRobin, &[ONE, TWO]);
    let mut next = config(Balance::RoundRobin, &[ONE, TWO, THREE]);
    next.rules.health.max_fails = 7;
    stage.reload(&next);
    let shares = [ONE, THREE].map(|server| stage.share_of(server, 300, 1));
    assert_eq!(shares[0], 150, "{shares:?}");
    assert!(shares[1] <= 2, "{shares:?}");
}

#[test]
fn the_addresses_of_a_name_that_a_reload_adds_begin_with_a_small_share() {
    let mut stage = Stage::with_addresses(Balance::RoundRobin, &[ONE]);
    stage.reload(&config(Balance::RoundRobin, &[ONE, "http://a.example"]));
    let Source::Named(named) = &stage.upstream.sources[1] else { unreachable!("it is a name") };
    named.resolved.get_or_init(|| Arc::clone(&stage.resolved));
    assert_eq!(stage.share_of(ONE, 30, 0), 30);
    // The addresses are found a little later.
    stage.resolve(&[2, 3]);
    assert!(stage.share(2, 300, 1) <= 2);
    assert_eq!(stage.share(2, 300, 31), 100);
}

//! The servers of a name whose addresses change, as a worker chooses among them.

use super::*;
use crate::config::HealthRules;

const SLOW_START: Duration = Duration::from_secs(30);

/// A route to the servers of a name, a worker's links, and the addresses of the name.
struct Stage {
    upstream: Arc<Upstream>,
    links: Links,
    resolved: Arc<Resolved>,
}

impl Stage {
    fn new(balance: Balance) -> Self {
        let health = HealthRules { slow_start: Some(SLOW_START), ..HealthRules::default() };
        let rules = GatewayRules { balance, health, ..GatewayRules::default() };
        let servers = vec![config::upstream::server("http://a.example").expect("a server")];
        let config = config::Upstream { servers, rules };
        let upstream = Upstream::new(&config, "a".to_owned(), None);
        let resolved = Arc::<Resolved>::default();
        let Source::Named(named) = &upstream.sources[0] else { unreachable!("it is a name") };
        named.resolved.get_or_init(|| Arc::clone(&resolved));
        Self { upstream, links: Links::new(Token::default(), Token::default()), resolved }
    }

    fn resolve(&self, hosts: &[u8]) {
        let address = |host: &u8| SocketAddr::from(([192, 0, 2, *host], 80));
        self.resolved.set(hosts.iter().map(address).collect());
    }

    /// The number of so many requests that this address gets.
    fn share(&mut self, host: u8, requests: u32, seconds: u64) -> usize {
        let now = Time::default() + Duration::from_secs(1_000_000 + seconds);
        let of_host = format!("(192.0.2.{host})");
        let mut is_asked = |key| {
            let ask = Try { key, failed: ServerSet::EMPTY, is_retry: false, is_repeatable: true };
            let chosen = self.links.choose(&self.upstream, ask, now).expect("a server is up");
            let is_host = chosen.server.name.ends_with(&of_host);
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
        // Nothing is asked for some seconds. The time of the third begins when it is first seen.
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
fn addresses_that_take_the_place_of_all_others_share_at_once() {
    let mut stage = Stage::new(Balance::RoundRobin);
    stage.resolve(&[1]);
    assert_eq!(stage.share(1, 10, 0), 10);
    stage.resolve(&[2, 3]);
    assert_eq!(stage.share(2, 300, 1), 150);
}

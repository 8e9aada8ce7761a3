use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn balancer(rule: Balance, servers: usize) -> Balancer {
    let mut balancer = Balancer::new(rule);
    for server in 0..servers {
        let address = format!("192.0.2.{server}:80");
        assert_eq!(balancer.add(address.as_bytes()), Some(server));
    }
    balancer
}

/// A server whose number no other one has had.
const fn first(number: usize) -> Member {
    Member { number, generation: 0 }
}

impl Balancer {
    fn exchanges(&self, server: usize) -> u32 {
        self.servers[server].exchanges
    }
}

fn set(servers: &[usize]) -> ServerSet {
    servers.iter().copied().collect()
}

/// The servers of `count` requests that end before the next one begins.
fn turns(balancer: &mut Balancer, among: ServerSet, count: usize) -> Vec<usize> {
    let turns = (0..count).map(|_| {
        let member = balancer.begin(among, 0).unwrap();
        balancer.end(member);
        member.number
    });
    turns.collect()
}

#[test]
fn a_set_has_its_servers_in_order() {
    let all = set(&[63, 0, 5]);
    assert!(!all.is_empty());
    assert!(all.iter().eq([0, 5, 63]));
    assert!(all.without(set(&[0, 1])).iter().eq([5, 63]));
    assert!(all.and(set(&[0, 1])).iter().eq([0]));
    assert!(ServerSet::EMPTY.iter().next().is_none() && ServerSet::EMPTY.is_empty());
}

#[test]
fn servers_have_their_turn() {
    let all = set(&[0, 1, 2]);
    for rule in [Balance::RoundRobin, Balance::Least] {
        let mut balancer = balancer(rule, 3);
        assert_eq!(turns(&mut balancer, all, 6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(turns(&mut balancer, set(&[0, 2]), 4), [0, 2, 0, 2]);
        assert_eq!(turns(&mut balancer, all, 3), [0, 1, 2]);
        assert_eq!(balancer.begin(ServerSet::EMPTY, 0), None);
        assert_eq!(balancer.begin(set(&[9]), 0), None, "no such server");
    }
}

#[test]
fn a_server_with_a_higher_weight_has_more_turns_evenly_spread() {
    let mut balancer = balancer(Balance::RoundRobin, 3);
    for (server, weight) in [(0, 250), (1, 50), (2, 50)] {
        balancer.set_weight(server, weight);
    }
    // As in the documentation of nginx for 5, 1, 1.
    assert_eq!(
        turns(&mut balancer, set(&[0, 1, 2]), 14),
        [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]
    );
}

#[test]
fn the_server_with_the_fewest_exchanges_by_weight_is_asked() {
    let all = set(&[0, 1, 2]);
    let mut balancer = balancer(Balance::Least, 3);
    let begin = |balancer: &mut Balancer| balancer.begin(all, 0).unwrap().number;
    assert_eq!([(); 3].map(|()| begin(&mut balancer)), [0, 1, 2]);
    for server in [1, 0, 2, 2, 1] {
        balancer.end(first(server));
        assert_eq!(begin(&mut balancer), server);
    }
    assert_eq!([0, 1, 2].map(|server| balancer.exchanges(server)), [1, 1, 1]);
    // A server that is starting: one exchange of it stands for 16.
    balancer.set_weight(1, WEIGHT_FULL / 16);
    let next: Vec<_> = (0..30).map(|_| begin(&mut balancer)).collect();
    assert!(!next.contains(&1), "{next:?}");
    assert_eq!([(); 4].map(|()| begin(&mut balancer)).iter().filter(|at| **at == 1).count(), 1);
}

#[test]
fn an_address_that_has_gone_leaves_its_number_when_its_last_exchange_has_ended() {
    let mut balancer = balancer(Balance::RoundRobin, 2);
    let all = set(&[0, 1]);
    assert_eq!(balancer.begin(set(&[1]), 0), Some(first(1)));
    balancer.remove(1);
    assert_eq!(balancer.members(), set(&[0]));
    assert_eq!(balancer.begin(all, 0), Some(first(0)));
    assert_eq!(balancer.begin(set(&[1]), 0), None);
    assert_eq!(balancer.add(b"new"), Some(2));
    balancer.end(first(1));
    assert_eq!(balancer.add(b"newer"), Some(1));
    assert_eq!(balancer.members(), set(&[0, 1, 2]));
}

#[test]
fn there_is_a_maximum_of_servers() {
    let mut balancer = balancer(Balance::Hash, SERVERS_MAX);
    assert_eq!(balancer.add(b"one more"), None);
    balancer.remove(7);
    assert_eq!(balancer.add(b"one more"), Some(7));
    assert!(balancer.begin(balancer.members(), 1).is_some());
}

/// Long tunnels to addresses that a name has no more would keep its new ones out.
#[test]
fn removed_servers_with_exchanges_keep_no_new_ones_out() {
    let mut balancer = balancer(Balance::Least, SERVERS_MAX);
    let begun: Vec<_> =
        (0..SERVERS_MAX).map(|_| balancer.begin(balancer.members(), 0).unwrap()).collect();
    (0..SERVERS_MAX).for_each(|number| balancer.remove(number));
    for number in 0..SERVERS_MAX {
        assert_eq!(balancer.add(&number.to_le_bytes()), Some(number));
    }
    let next = balancer.begin(balancer.members(), 0).unwrap();
    for member in begun {
        balancer.end(member);
    }
    assert_eq!(balancer.exchanges(next.number), 1, "the exchanges of others ended");
    balancer.end(next);
    assert!(!balancer.has_exchanges());
}

#[test]
fn each_key_has_a_server_that_changes_only_with_its_own_server() {
    const KEYS: u64 = 10_000;
    let mut balancer = balancer(Balance::Hash, 10);
    let all = balancer.members();
    let mut server_of = |among: ServerSet, key: u64| {
        let key = hash(format!("/path/{key}").as_bytes());
        turns_of(&mut balancer, among, key)
    };
    let before: Vec<_> = (0..KEYS).map(|key| server_of(all, key)).collect();
    let without = all.without(set(&[3]));
    let mut moved = [0_u64; 10];
    for (key, before) in (0..KEYS).zip(&before) {
        let after = server_of(without, key);
        if *before == 3 {
            moved[after] += 1;
        } else {
            assert_eq!(after, *before, "key {key}");
        }
        assert_eq!(server_of(all, key), *before, "key {key}");
    }
    for (server, moved) in moved.iter().enumerate() {
        let keys = before.iter().filter(|at| **at == server).count();
        assert!((900..1100).contains(&keys), "server {server} has {keys} keys");
        let range = if server == 3 { 0..1 } else { 80..145 };
        assert!(range.contains(moved), "server {server} got {moved}");
    }
}

fn turns_of(balancer: &mut Balancer, among: ServerSet, key: u64) -> usize {
    let member = balancer.begin(among, key).unwrap();
    balancer.end(member);
    member.number
}

#[test]
fn a_popular_key_fills_its_server_up_to_the_bound_and_then_others() {
    let mut balancer = balancer(Balance::Hash, 4);
    let all = balancer.members();
    let key = hash(b"popular");
    let first = balancer.begin(all, key).unwrap();
    for _ in 1..1000 {
        balancer.begin(all, key).unwrap();
    }
    let counts = [0, 1, 2, 3].map(|server| balancer.exchanges(server));
    // 5/4 of a quarter, at most.
    assert_eq!(counts[first.number], 313, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 313), "{counts:?}");
    // The first server of the key gets the free exchange.
    balancer.end(first);
    balancer.end(first);
    assert_eq!(balancer.begin(all, key), Some(first));
}

#[test]
fn a_server_that_is_starting_takes_more_and_more_of_its_keys() {
    const KEYS: u64 = 10_000;
    let mut balancer = balancer(Balance::Hash, 4);
    let all = balancer.members();
    let servers = |balancer: &mut Balancer| -> Vec<usize> {
        (0..KEYS).map(|key| turns_of(balancer, all, hash(&key.to_le_bytes()))).collect()
    };
    let whole = servers(&mut balancer);
    let count = |servers: &[usize]| servers.iter().filter(|at| **at == 2).count();
    let mut before = vec![0; whole.len()];
    for weight in [1, 16, 64, 128, 200, WEIGHT_FULL] {
        balancer.set_weight(2, weight);
        let now = servers(&mut balancer);
        let share = count(&whole) * usize::from(weight) / usize::from(WEIGHT_FULL);
        assert!(count(&now).abs_diff(share) <= 100, "weight {weight}: {} keys", count(&now));
        for ((now, before), whole) in now.iter().zip(&before).zip(&whole) {
            assert!(*before != 2 || *now == 2, "a key that it has had stays");
            assert!(*now == 2 || *whole == 2 || now == whole, "the keys of others stay");
        }
        before = now;
    }
    assert_eq!(before, whole);
    // Servers that begin at the same time have their whole shares.
    all.iter().for_each(|server| balancer.set_weight(server, 3));
    assert_eq!(servers(&mut balancer), whole);
}

#[test]
fn a_popular_key_does_not_fill_a_server_that_is_starting() {
    let mut balancer = balancer(Balance::Hash, 2);
    let all = balancer.members();
    balancer.set_weight(1, WEIGHT_FULL / 8);
    // A key that it takes.
    let key = (0..).map(mix).find(|key| turns_of(&mut balancer, all, *key) == 1).unwrap();
    let servers: Vec<_> = (0..10).map(|_| balancer.begin(all, key).unwrap().number).collect();
    assert_eq!(servers, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_hash_is_the_same_for_ever() {
    // Other machines in front of the same servers may run other versions.
    assert_eq!(hash(b""), 0xe220_a839_7b1d_cdaf);
    assert_ne!(hash(b"\0"), hash(b""));
    assert_ne!(hash(b"12345678"), hash(b"12345678\0"));
}

/// A step of a simulation: a request that begins among some servers, or one that ends.
#[derive(Clone, Debug)]
enum Step {
    Begin { among: u64, key: u64 },
    End(usize),
    Weight(usize, u16),
}

fn steps(servers: usize) -> impl Strategy<Value = Vec<Step>> {
    let begin = (any::<u64>(), 0..20_u64).prop_map(|(among, key)| Step::Begin { among, key });
    let weight =
        (0..servers, 1..=WEIGHT_FULL).prop_map(|(server, weight)| Step::Weight(server, weight));
    let step = prop_oneof![6 => begin, 4 => any::<usize>().prop_map(Step::End), 1 => weight];
    vec(step, 0..600)
}

proptest! {
    #[test]
    fn every_rule_keeps_its_promise(
        servers in 1..12_usize,
        rule in prop_oneof![Just(Balance::RoundRobin), Just(Balance::Least), Just(Balance::Hash)],
        steps in steps(12),
    ) {
        let mut balancer = balancer(rule, servers);
        let mut begun = Vec::new();
        for step in steps {
            let (among, key) = match step {
                Step::Begin { among, key } => (ServerSet(among).and(balancer.members()), mix(key)),
                Step::End(which) => {
                    if !begun.is_empty() {
                        balancer.end(begun.swap_remove(which % begun.len()));
                    }
                    continue;
                }
                Step::Weight(server, weight) => {
                    if server < servers {
                        balancer.set_weight(server, weight);
                    }
                    continue;
                }
            };
            let load = |balancer: &Balancer, at: usize| {
                f64::from(balancer.exchanges(at)) / f64::from(balancer.servers[at].weight)
            };
            let lowest = among.iter().map(|at| load(&balancer, at)).fold(f64::INFINITY, f64::min);
            let Some(chosen) = balancer.begin(among, key) else {
                prop_assert!(among.is_empty());
                continue;
            };
            begun.push(chosen);
            let chosen = chosen.number;
            prop_assert!(among.contains(chosen));
            let exchanges = f64::from(balancer.exchanges(chosen));
            match rule {
                // Whatever the sets were, no server is far from its share.
                Balance::RoundRobin => {
                    let far = i64::from(WEIGHT_FULL) * i64::try_from(servers * servers).unwrap();
                    prop_assert!(balancer.servers.iter().all(|server| server.credit.abs() <= far));
                }
                Balance::Least => {
                    let weight = f64::from(balancer.servers[chosen].weight);
                    prop_assert!(((exchanges - 1.0) / weight - lowest).abs() < 1e-9);
                }
                Balance::Hash => {
                    let all: u32 = among.iter().map(|at| balancer.exchanges(at)).sum();
                    let weights: u32 =
                        among.iter().map(|at| u32::from(balancer.servers[at].weight)).sum();
                    let share = f64::from(balancer.servers[chosen].weight) / f64::from(weights);
                    let heaviest = among.iter().map(|at| balancer.servers[at].weight).max();
                    let heaviest = f64::from(heaviest.expect("one was chosen"));
                    let free = 16.0 * f64::from(balancer.servers[chosen].weight) / heaviest;
                    let bound = (1.25 * f64::from(all) * share).ceil().max(free.ceil());
                    prop_assert!(exchanges <= bound, "{exchanges} of {all}, at most {bound}");
                }
            }
        }
        let counted: u32 = (0..servers).map(|at| balancer.exchanges(at)).sum();
        prop_assert_eq!(counted as usize, begun.len());
    }

    #[test]
    fn turns_are_equal(servers in 1..=SERVERS_MAX, rounds in 1..5_usize, rule in prop_oneof![Just(Balance::RoundRobin), Just(Balance::Least)]) {
        let mut balancer = balancer(rule, servers);
        let all = balancer.members();
        for _ in 0..rounds {
            let mut round = turns(&mut balancer, all, servers);
            round.sort_unstable();
            prop_assert!(round.into_iter().eq(0..servers));
        }
    }
}

use super::*;

fn at(seconds: f64) -> Time {
    // Not at the clock's start: a machine has been on for a while.
    Time::default() + Duration::from_secs(1_000_000) + Duration::from_secs_f64(seconds)
}

fn client(address: &str) -> ClientKey {
    ClientKey::new(address.parse().unwrap())
}

#[test]
fn a_client_is_an_address_or_a_network_of_64_bits() {
    assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:2"));
    assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    let different =
        ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "::1", "127.0.0.1"];
    for (place, one) in different.iter().enumerate() {
        assert!(different[..place].iter().all(|other| client(one) != client(other)), "{one}");
    }
}

#[test]
fn a_bucket_has_its_burst_at_once_and_is_filled_by_time() {
    let refill = Refill::new(10.0, 3);
    // (now, taken): a token comes every 0.1 s.
    let steps = [
        (0.0, Ok(())),
        (0.0, Ok(())),
        (0.0, Ok(())),
        (0.0, Err(0.1)),
        (0.05, Err(0.05)),
        (0.1, Ok(())),
        (0.1, Err(0.1)),
        (0.25, Ok(())),
        (0.25, Err(0.05)),
        (9.0, Ok(())),
        (9.0, Ok(())),
        (9.0, Ok(())),
        (9.0, Err(0.1)),
        // A worker whose turn began earlier.
        (8.9, Err(0.2)),
    ];
    let mut full_at = Time::default();
    for (step, (now, expected)) in steps.into_iter().enumerate() {
        let taken = refill.take(full_at, at(now));
        let seconds = |missing: Duration| (missing.as_secs_f64() * 1e6).round() / 1e6;
        assert_eq!(taken.map(|_| ()).map_err(seconds), expected, "step {step}");
        full_at = taken.unwrap_or(full_at);
    }
}

#[test]
fn extreme_rates_are_possible() {
    let now = at(0.0);
    for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE, 1e-30] {
        let refill = Refill::new(rate, u32::MAX);
        let then = refill.take(Time::default(), now).unwrap();
        assert!(then > now && refill.take(then, now).is_ok(), "{rate}");
        let then = Refill::new(rate, 1).take(Time::default(), now).unwrap();
        let missing = Refill::new(rate, 1).take(then, now).unwrap_err();
        assert!(missing > FILL_MAX / 2, "{rate}: {missing:?}");
    }
    for rate in [1e9, 1e300, f64::INFINITY] {
        let then = Refill::new(rate, 0).take(Time::default(), now).unwrap();
        assert!(Refill::new(rate, 0).take(then, now).is_err(), "a burst of 0 is one of 1");
        assert!(Refill::new(rate, 0).take(then, now + Duration::from_nanos(1)).is_ok());
    }
}

#[test]
fn limits_and_clients_have_buckets_of_their_own_and_the_wait_is_rounded_up() {
    let limiter = Limiter::new();
    let refill = Refill::new(0.4, 1);
    let seconds = |seconds| Err(NonZeroU32::new(seconds).unwrap());
    let (one, other) = (client("192.0.2.1"), client("192.0.2.2"));
    assert_eq!(limiter.take(1, refill, one, at(0.0)), Ok(()));
    assert_eq!(limiter.take(1, refill, one, at(0.0)), seconds(3));
    assert_eq!(limiter.take(1, refill, one, at(0.5)), seconds(2));
    assert_eq!(limiter.take(1, refill, one, at(2.4999)), seconds(1));
    assert_eq!(limiter.take(1, refill, other, at(0.5)), Ok(()));
    assert_eq!(limiter.take(2, refill, one, at(0.5)), Ok(()));
    assert_eq!(limiter.take(1, refill, one, at(2.5)), Ok(()));
}

fn buckets(limiter: &Limiter) -> usize {
    let used = |full_at: &u64| usize::from(*full_at > 0);
    limiter
        .buckets
        .iter()
        .map(|shard| lock(shard).full_at.as_flattened().iter().map(used).sum::<usize>())
        .sum()
}

fn bytes(limiter: &Limiter) -> usize {
    let of = |shard: &Mutex<Buckets>| {
        let shard = lock(shard);
        size_of_val(&*shard.keys) + size_of_val(&*shard.full_at)
    };
    limiter.buckets.iter().map(of).sum()
}

#[test]
fn a_million_addresses_use_bounded_memory_and_do_not_give_a_hot_client_new_buckets() {
    let limiter = Limiter::new();
    assert_eq!(bytes(&limiter), 0, "none before the first use");
    let (refill, hot) = (Refill::new(100.0, 200), client("198.51.100.1"));
    let mut served = 0;
    // Ten seconds: the hot client asks 2,000 times per second, and meanwhile each of 1.5 million others
    // once.
    for request in 0..20_000_u32 {
        let now = at(f64::from(request) / 2000.0);
        served += u32::from(limiter.take(7, refill, hot, now).is_ok());
        for other in 0..75 {
            let address = (request * 75 + other).wrapping_mul(0x9e37_79b1);
            let other = ClientKey::new(IpAddr::V4(address.into()));
            assert_eq!(limiter.take(7, refill, other, now), Ok(()));
        }
    }
    // Its burst, and what has come since.
    assert!((1199..=1201).contains(&served), "{served}");
    assert!(bytes(&limiter) <= 16 * BUCKETS_MAX, "{}", bytes(&limiter));
    let used = buckets(&limiter);
    assert!(used <= BUCKETS_MAX && used > BUCKETS_MAX / 2, "{used}");
}

#[test]
fn of_the_buckets_of_one_place_the_one_that_is_full_first_goes() {
    let mut buckets = Buckets::default();
    let (refill, now) = (Refill::new(1.0, 2), at(0.0));
    for key in 1..=8 {
        buckets.take(3, key, refill, now).unwrap();
    }
    // All but the fifth are in use again.
    for key in (1..=8).filter(|key| *key != 5) {
        buckets.take(3, key, refill, now).unwrap();
    }
    buckets.take(3, 9, refill, now).unwrap();
    assert!(!buckets.keys[3].contains(&5), "{:?}", buckets.keys[3]);
    assert!((1..=9).filter(|key| *key != 5).all(|key| buckets.keys[3].contains(&key)));
    for key in (1..=8).filter(|key| *key != 5) {
        assert!(buckets.take(3, key, refill, now).is_err(), "{key} is still empty");
    }
}

#[test]
fn connections_beyond_the_limit_are_those_that_came_last() {
    let limiter = Limiter::new();
    let (one, other) = (client("192.0.2.1"), client("192.0.2.2"));
    let mut open: Vec<_> = (0..3).map(|_| limiter.count(one)).collect();
    assert!(open.iter().all(|counted| !counted.is_beyond(3)));
    open.push(limiter.count(one));
    let beyond: Vec<_> = open.iter().map(|counted| counted.is_beyond(3)).collect();
    assert_eq!(beyond, [false, false, false, true]);
    assert!(!limiter.count(other).is_beyond(3), "another client");
    // When one of the first closes, the last one is within the limit.
    open.remove(0);
    assert!(!open[2].is_beyond(3));
    assert!(open[2].is_beyond(2) && !open[1].is_beyond(3));
    open.clear();
    let counts: usize = limiter.connections.iter().map(|shard| lock(shard).len()).sum();
    assert_eq!(counts, 0, "clients without connections need no memory");
}

#[test]
fn in_any_order_of_opens_and_closes_as_many_are_beyond_as_must_be() {
    for seed in 0..300_u64 {
        let mut state = seed;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            usize::try_from(state >> 33).unwrap() % bound
        };
        let (limiter, one) = (Limiter::new(), client("192.0.2.1"));
        let mut open = Vec::new();
        for step in 0..200 {
            if below(100) < 55 {
                open.push(limiter.count(one));
            } else if !open.is_empty() {
                open.swap_remove(below(open.len()));
            }
            let beyond = open.iter().filter(|counted| counted.is_beyond(5)).count();
            let within = open.len() - beyond;
            assert!(
                within <= 5 || beyond == 0,
                "seed {seed}, step {step}: {within} of {}",
                open.len()
            );
            assert!(open.len() <= 5 || beyond >= open.len() - 5, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn threads_share_buckets_and_counts() {
    let (limiter, one) = (Limiter::new(), client("192.0.2.1"));
    let taken = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let is_taken = limiter.take(1, Refill::new(1e-9, 900), one, at(0.0)).is_ok();
                    taken.fetch_add(is_taken.into(), Ordering::Relaxed);
                    drop(limiter.count(one));
                }
            });
        }
    });
    assert_eq!(taken.into_inner(), 900);
    assert!(limiter.connections.iter().all(|shard| lock(shard).is_empty()));
}

//! Jobs on a thread beside a ring, on every driver.

use core::time::Duration;

use ring::sim::{Config, World};
use ring::{Beside, Caching, Choice, Detached, Event, Job, Op, OpenHow, Ring};

/// Adds up the bytes of a file.
struct Sum(Detached);

impl Job for Sum {
    type Output = (u64, u64);

    fn run(self, sleep: &dyn Fn(Duration)) -> (u64, u64) {
        let file = self.0.reopened();
        let (mut sum, mut at, mut piece) = (0, 0, [0; 1000]);
        loop {
            let count = file.read_at(&mut piece, at, Caching::Keep).unwrap();
            if count == 0 {
                break;
            }
            sum += piece[..count].iter().map(|byte| u64::from(*byte)).sum::<u64>();
            at += count as u64;
            sleep(Duration::from_micros(1));
        }
        file.discard();
        (file.stat().unwrap().size, sum)
    }
}

fn wait(ring: &mut Ring) -> Event {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    completions.remove(0).result.unwrap()
}

fn open(ring: &mut Ring, op: Op) -> Detached {
    ring.submit(op, 1);
    let Event::Opened(file) = wait(ring) else { panic!("an open ends so") };
    ring.detach(&file).unwrap()
}

fn result(ring: &mut Ring, beside: &mut Beside<Sum>) -> (u64, u64) {
    loop {
        if let Some(result) = beside.take() {
            return result;
        }
        let Event::Woken = wait(ring) else { panic!("nothing else happens") };
    }
}

#[test]
fn jobs_are_done_in_order_and_wake_the_ring() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let bytes = std::fs::read(path).unwrap();
    let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
    let path = std::ffi::CString::new(path).unwrap();
    for choice in [Choice::Uring, Choice::Epoll] {
        let mut ring = Ring::new(choice).unwrap();
        let how = OpenHow { flags: 0, mode: 0, resolve: 0 };
        let mut beside = ring.beside("sums", 2).unwrap();
        for _ in 0..3 {
            let op = Op::Open { dir: None, path: path.clone(), how };
            let file = open(&mut ring, op);
            assert!(beside.submit(Sum(file)));
            assert_eq!(result(&mut ring, &mut beside), (bytes.len() as u64, sum));
        }
        assert_eq!(beside.take(), None);
    }
}

#[test]
fn a_simulated_job_takes_time_and_sees_the_file_as_it_was() {
    let world = World::new(Config::new(1));
    let mut ring = Ring::simulated(&world);
    let mut beside = ring.beside("sums", 2).unwrap();
    for (byte, expected) in [(1, 5000), (2, 10_000)] {
        world.write_file("f", &[byte; 5000]);
        let dir = Some(ring.sim_root(&world));
        let op = Op::Open { dir, path: c"f".into(), how: OpenHow::BENEATH };
        let file = open(&mut ring, op);
        assert!(beside.submit(Sum(file)));
        world.write_file("f", b"");
        assert_eq!(beside.take(), None, "it is under way");
        let before = ring.now();
        assert_eq!(result(&mut ring, &mut beside), (5000, expected));
        assert!(ring.now() > before);
    }
}

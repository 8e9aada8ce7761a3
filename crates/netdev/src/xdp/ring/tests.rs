use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::fs::MemfdFlags;

use super::*;

const OFFSETS: XdpRingOffset =
    XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

/// Memory that two mappings share, as a socket's ring is shared with the kernel.
fn memory(start: u32) -> OwnedFd {
    let file = rustix::fs::memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    let mapping = Mapping::shared(file.as_fd(), 0, 4096).unwrap();
    for offset in [0, 64] {
        // SAFETY: the counter is in the mapping, which lives to the end of the function.
        let counter = unsafe { mapping.at(offset, 4).cast::<AtomicU32>().as_ref() };
        counter.store(start, Ordering::Relaxed);
    }
    file
}

fn ends<T: Entry>(file: &OwnedFd, entries: u32) -> (Producer<T>, Consumer<T>) {
    let producer = Producer::map(file.as_fd(), 0, &OFFSETS, entries).unwrap();
    (producer, Consumer::map(file.as_fd(), 0, &OFFSETS, entries).unwrap())
}

#[test]
fn entries_are_seen_when_published_and_overwritten_when_released() {
    // The counters wrap within the test.
    for start in [0, u32::MAX - 5] {
        let file = memory(start);
        let (mut producer, mut consumer) = ends::<u64>(&file, 4);
        for round in 0..10 {
            for entry in 0..4 {
                assert!(producer.push(round * 4 + entry));
            }
            assert!(!producer.has_room() && !producer.push(99), "it is full");
            assert_eq!(consumer.pop(), None, "nothing is published");
            producer.publish();
            assert_eq!(producer.unread(), 4);
            for entry in 0..4 {
                assert_eq!(consumer.pop(), Some(round * 4 + entry));
            }
            assert_eq!(consumer.pop(), None);
            assert!(!producer.push(99), "nothing is released");
            consumer.release();
            assert!(producer.has_room(), "all is released");
            assert_eq!(producer.unread(), 0);
        }
    }
}

#[test]
fn the_kernel_asks_for_a_wakeup_by_a_flag() {
    let file = memory(0);
    let (producer, consumer) = ends::<u64>(&file, 4);
    assert!(!producer.needs_wakeup());
    consumer.ring.counter(128).store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
}

#[test]
fn two_threads_see_whole_entries_in_order() {
    const COUNT: u64 = 10_000;
    let file = memory(u32::MAX - 1000);
    let writer = file.try_clone().unwrap();
    let writer = thread::spawn(move || {
        let mut producer = Producer::<Descriptor>::map(writer.as_fd(), 0, &OFFSETS, 16).unwrap();
        for number in 0..COUNT {
            let bytes = u32::try_from(number).unwrap();
            while !producer.push(Descriptor { offset: number, bytes, options: !bytes }) {
                thread::yield_now();
            }
            if number % 3 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut consumer = Consumer::<Descriptor>::map(file.as_fd(), 0, &OFFSETS, 16).unwrap();
    let mut next = 0;
    while next < COUNT {
        let Some(entry) = consumer.pop() else {
            consumer.release();
            thread::yield_now();
            continue;
        };
        assert_eq!((entry.offset, entry.bytes), (next, !entry.options));
        next += 1;
    }
    writer.join().unwrap();
}

//! Properties of cyclic buffers against a model, with seeds; and tables of cases.

use super::*;
use testkit::{Random, Seed};

const SIZE: usize = 10_000;
const SEEDS: u64 = 300;

/// The byte that was filled at a position.
fn value(at: u64) -> u8 {
    // Fibonacci hashing: bytes of two passes differ.
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// A part that is being sent, and the position of its first byte.
struct Sent {
    part: Part,
    at: u64,
}

impl Sent {
    fn check(&self) {
        for (at, byte) in (self.at..).zip(self.part.iter()) {
            assert_eq!(*byte, value(at), "the byte at {at} was overwritten");
        }
    }
}

#[test]
fn no_byte_is_overwritten_while_a_part_has_it() {
    let (mut passes, mut fulls, mut aborts) = (0, 0, 0);
    for seed in 0..SEEDS {
        let _shown = Seed::new(seed);
        let mut random = Random::new(seed);
        let pool = CyclicPool::new(2 * SIZE as u64, SIZE as u64);
        let mut buffer = pool.take(SIZE).unwrap();
        // The number of received bytes, and how many of them were taken.
        let (mut received, mut taken) = (0, 0);
        let mut sent = Vec::<Sent>::new();
        for _ in 0..random.below(400) {
            match random.below(12) {
                // A receive, of a few bytes or of as many as there is room for.
                0..=3 => {
                    let room = buffer.room();
                    let most = if random.one_in(2) { 100 } else { SIZE };
                    let n = room.len().min(1 + random.below(most));
                    for (at, byte) in (received..).zip(&mut room[..n]) {
                        *byte = value(at);
                    }
                    buffer.received(n);
                    received += n as u64;
                    if n == 0 {
                        assert!(buffer.free() <= buffer.bytes().len() as u64, "there is room");
                        fulls += 1;
                    }
                }
                4..=6 if !buffer.bytes().is_empty() => {
                    let n = 1 + random.below(buffer.bytes().len());
                    sent.push(Sent { part: buffer.take(n), at: taken });
                    taken += n as u64;
                }
                // A cut, of framing or by another queue.
                7 if !sent.is_empty() => {
                    let at = random.below(sent.len());
                    let one = &mut sent[at];
                    let n = random.below(one.part.len() + 1);
                    let front = Sent { part: one.part.split_to(n), at: one.at };
                    one.at += n as u64;
                    sent.insert(at, front);
                }
                // Released in order, or in any order.
                8..=9 if !sent.is_empty() => drop(sent.remove(0)),
                10 if !sent.is_empty() => drop(sent.remove(random.below(sent.len()))),
                // The stream ends; bytes that are being sent stay.
                11 if random.one_in(30) => {
                    buffer = pool.take(SIZE).unwrap_or_else(|| {
                        sent.clear();
                        pool.take(SIZE).expect("nothing else is in use")
                    });
                    taken = received;
                    aborts += 1;
                }
                _ => {}
            }
            buffer.check();
            let expected: Vec<u8> = (taken..received).map(value).collect();
            assert_eq!(buffer.bytes(), expected, "what was received stays together");
            sent.iter().for_each(|one| one.check());
            let lent: usize = sent.iter().map(|one| one.part.len()).sum();
            assert!(buffer.free() <= SIZE as u64);
            assert!(pool.mapped() <= 2 * SIZE as u64);
            assert!(lent as u64 <= pool.mapped());
        }
        drop(sent);
        if !buffer.bytes().is_empty() {
            drop(buffer.take(buffer.bytes().len()));
        }
        buffer.check();
        assert_eq!(buffer.free(), SIZE as u64);
        assert_eq!(buffer.room().len(), SIZE, "what is not in use is one piece");
        passes += received / SIZE as u64;
        drop(buffer);
        pool.shrink();
        assert_eq!(pool.mapped(), 0);
    }
    assert!(passes > 1000 && fulls > 100 && aborts > 50, "{passes} {fulls} {aborts}");
}

/// Receives and takes `n` bytes, or as many as there is room for.
fn fill(buffer: &mut Cyclic, n: usize) -> Part {
    let n = n.min(buffer.room().len());
    buffer.received(n);
    buffer.take(n)
}

#[test]
fn the_room_goes_round_and_partitions_are_free_in_order() {
    let pool = CyclicPool::new(8192, 0);
    let mut buffer = pool.take(8192).unwrap();
    let first = fill(&mut buffer, 3000);
    let second = fill(&mut buffer, 3000);
    let third = fill(&mut buffer, 3000);
    assert_eq!((third.len(), buffer.free(), buffer.room().len()), (2192, 0, 0));
    drop(second);
    assert_eq!((buffer.free(), buffer.room().len()), (0, 0), "the first is in use");
    drop(first);
    assert_eq!((buffer.free(), buffer.room().len()), (6000, 6000));
    let fourth = fill(&mut buffer, 1000);
    drop(third);
    assert_eq!((buffer.free(), buffer.room().len()), (7192, 5000 + 2192));
    let fifth = fill(&mut buffer, 7000);
    drop(fourth);
    assert_eq!((buffer.free(), buffer.room().len()), (1192, 192), "up to the end of the memory");
    let sixth = fill(&mut buffer, 1000);
    assert_eq!((sixth.len(), buffer.room().len()), (192, 1000), "then from its beginning");
    buffer.check();
    drop((fifth, sixth));
    assert_eq!(buffer.room().len(), 8192);
}

#[test]
fn a_line_at_the_end_of_the_memory_is_moved_to_its_beginning() {
    let pool = CyclicPool::new(4096, 0);
    let mut buffer = pool.take(4096).unwrap();
    let first = fill(&mut buffer, 1000);
    let second = fill(&mut buffer, 3091);
    buffer.room().copy_from_slice(b"1000;");
    buffer.received(5);
    assert!(buffer.room().is_empty());
    drop(first);
    buffer.room()[..2].copy_from_slice(b"\r\n");
    buffer.received(2);
    assert_eq!(buffer.bytes(), b"1000;\r\n");
    buffer.check();
    assert_eq!((buffer.free(), buffer.room().len()), (993, 993));
    drop(second);
    assert_eq!((buffer.free(), buffer.room().len()), (4089, 4089));
}

#[test]
fn received_bytes_are_moved_to_the_beginning_when_nothing_is_in_use() {
    let pool = CyclicPool::new(4096, 0);
    let mut buffer = pool.take(4096).unwrap();
    let first = fill(&mut buffer, 4000);
    buffer.room()[..3].copy_from_slice(b"abc");
    buffer.received(3);
    drop(first);
    assert_eq!(buffer.room().len(), 4093);
    assert_eq!(buffer.bytes(), b"abc");
    buffer.check();
}

#[test]
fn the_parts_of_a_partition_own_it_together() {
    let pool = CyclicPool::new(4096, 4096);
    let mut buffer = pool.take(4096).unwrap();
    buffer.room()[..6].copy_from_slice(b"abcdef");
    let mut rest = fill(&mut buffer, 6);
    let front = rest.split_to(2);
    assert_eq!((&front[..], &rest[..]), (&b"ab"[..], &b"cdef"[..]));
    let empty = rest.split_to(0);
    drop(front);
    assert_eq!(buffer.free(), 4090);
    drop(rest);
    assert_eq!(buffer.free(), 4090, "an empty part is a part");
    drop(empty);
    assert_eq!(buffer.free(), 4096);
}

#[test]
fn a_pool_has_no_byte_more_than_it_may_and_keeps_what_was_used_last() {
    let pool = CyclicPool::new(3 * 4096, 2 * 4096);
    let buffers: Vec<_> = (0..3).map_while(|_| pool.take(4096)).collect();
    assert_eq!((buffers.len(), pool.mapped()), (3, 3 * 4096));
    assert!(pool.take(4096).is_none() && pool.take(0).is_none());
    drop(buffers);
    assert_eq!(pool.mapped(), 2 * 4096, "one more than is kept");
    let large = pool.take(2 * 4096).expect("a kept buffer makes place");
    assert_eq!(pool.mapped(), 3 * 4096);
    let small = pool.take(4096).unwrap();
    assert_eq!(pool.mapped(), 3 * 4096, "the kept one");
    drop((large, small));
    pool.shrink();
    assert_eq!(pool.mapped(), 0);
    assert!(pool.take(usize::MAX).is_none());
    assert!(CyclicPool::new(u64::MAX, 0).take(usize::MAX).is_none(), "the kernel has less");
}

#[test]
fn memory_outlives_its_buffer_until_it_has_been_sent() {
    let pool = CyclicPool::new(4096, 4096);
    let mut buffer = pool.take(4096).unwrap();
    buffer.room()[..3].copy_from_slice(b"abc");
    let part = fill(&mut buffer, 3);
    drop(buffer);
    assert!(pool.take(4096).is_none(), "it is being sent");
    assert_eq!(&part[..], b"abc");
    drop(part);
    assert!(pool.take(4096).is_some());
}

#[test]
#[should_panic(expected = "4 bytes of 3")]
fn only_bytes_that_were_received_are_taken() {
    let mut buffer = CyclicPool::new(4096, 0).take(4096).unwrap();
    buffer.room();
    buffer.received(3);
    let _ = buffer.take(4);
}

#[test]
#[should_panic(expected = "more bytes than there was room for")]
fn no_more_is_received_than_there_is_room_for() {
    let mut buffer = CyclicPool::new(4096, 0).take(4096).unwrap();
    buffer.room();
    buffer.received(4097);
}

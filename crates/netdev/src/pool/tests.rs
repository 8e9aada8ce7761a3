use super::*;

const CHUNK_BYTES: usize = 64;

fn pool(chunks: u32) -> Rc<Pool> {
    Rc::new(Pool::new(CHUNK_BYTES, chunks).unwrap())
}

fn free(pool: &Pool) -> usize {
    pool.free.borrow().len()
}

#[test]
fn a_chunk_is_free_again_when_the_last_frame_is_dropped() {
    let pool = pool(2);
    let mut chunk = pool.blank().unwrap();
    chunk.bytes_mut()[10..15].copy_from_slice(b"hello");
    let frame = chunk.share(10..15, ReceivedChecksum::Verified);
    assert_eq!((free(&pool), pool.held.get()), (1, 1));
    let part = frame.part(1..4);
    let part_of_part = part.part(1..3);
    drop(frame);
    drop(part);
    assert_eq!(&*part_of_part, b"ll");
    assert_eq!(part_of_part.checksum(), ReceivedChecksum::Verified);
    assert_eq!((free(&pool), pool.held.get()), (1, 1));
    drop(part_of_part);
    assert_eq!((free(&pool), pool.held.get()), (2, 0));
}

#[test]
fn a_lent_chunk_comes_back_once() {
    let pool = pool(2);
    let offset = pool.blank().unwrap().lend();
    assert_eq!(free(&pool), 1);
    let other = pool.blank().unwrap();
    assert!(pool.take_back(other.offset() as u64).is_none(), "it was not lent");
    let inside = offset + CHUNK_BYTES as u64 - 1;
    let back = pool.take_back(inside).unwrap();
    assert!(pool.take_back(inside).is_none(), "it came back already");
    assert!(pool.take_back(2 * CHUNK_BYTES as u64).is_none(), "there is no such chunk");
    assert!(pool.take_back(u64::MAX).is_none(), "there is no such chunk");
    drop((back, other));
    assert_eq!(free(&pool), 2);
}

#[test]
fn the_chunk_that_was_used_last_is_used_next() {
    let pool = pool(3);
    let (first, second) = (pool.blank().unwrap(), pool.blank().unwrap());
    let offset = first.offset();
    drop(second);
    drop(first);
    assert_eq!(pool.blank().unwrap().offset(), offset);
}

#[test]
fn a_frame_outlives_the_pools_other_owners() {
    let pool = pool(1);
    let mut chunk = pool.blank().unwrap();
    assert!(pool.blank().is_none());
    chunk.bytes_mut().fill(7);
    assert_eq!(chunk.bytes(), [7; CHUNK_BYTES]);
    let frame = chunk.share(0..CHUNK_BYTES, ReceivedChecksum::Unverified);
    drop(pool);
    assert_eq!(&*frame, [7; CHUNK_BYTES]);
}

#[test]
#[should_panic(expected = "out of range for slice of length 3")]
fn a_part_is_inside_of_its_frame() {
    let _ = Received::copy(b"abc", ReceivedChecksum::Unverified).part(2..4);
}

#[test]
fn frames_beyond_the_limit_are_copies() {
    let pool = pool(3);
    let receive = || {
        let mut chunk = pool.blank().unwrap();
        chunk.bytes_mut()[..2].copy_from_slice(b"ab");
        chunk.share_or_copy(0..2, ReceivedChecksum::Unverified, 1)
    };
    let first = receive();
    let second = receive();
    assert_eq!((first.is_copy(), second.is_copy()), (false, true));
    assert_eq!((&*second, &*second.part(1..2)), (&b"ab"[..], &b"b"[..]));
    assert_eq!(free(&pool), 2);
    drop(first);
    assert!(!receive().is_copy());
}

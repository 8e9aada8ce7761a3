//! Films made by hand, whole, cut and changed.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::name;
use crate::testing::{find, probe, probe_in};
use crate::{BOXES_MAX, TABLE_BYTES_MAX};

/// An element whose size takes 8 bytes.
fn element(name: u32, body: &[u8]) -> Vec<u8> {
    let name = name.to_be_bytes();
    let first = name.iter().position(|&byte| byte != 0).unwrap();
    let size = (body.len() as u64 | 1 << 56).to_be_bytes();
    [&name[first..], &size, body].concat()
}

fn number(name: u32, value: u64) -> Vec<u8> {
    element(name, &value.to_be_bytes())
}

/// The positions, within the segment, of four clusters of 1,000 bytes that last 2 s each.
const CLUSTERS: [u64; 4] = [500, 1500, 2500, 3500];

fn cues() -> Vec<u8> {
    cues_of(CLUSTERS)
}

fn cues_of(clusters: [u64; 4]) -> Vec<u8> {
    let points = clusters.iter().zip([0, 2000, 4000, 6000]).flat_map(|(&cluster, ms)| {
        let positions =
            element(name::CUE_TRACK_POSITIONS, &number(name::CUE_CLUSTER_POSITION, cluster));
        element(name::CUE_POINT, &[number(name::CUE_TIME, ms), positions].concat())
    });
    element(name::CUES, &points.collect::<Vec<u8>>())
}

fn info() -> Vec<u8> {
    let duration = element(name::DURATION, &8000_f64.to_be_bytes());
    element(name::INFO, &[number(name::TIMESTAMP_SCALE, 1_000_000), duration].concat())
}

/// The film: the `Cues` are in front of the media or after it, with or without a `SeekHead` that
/// has their position.
fn film(cues_in_front: bool, has_seek_head: bool) -> Vec<u8> {
    let position = if cues_in_front { 150 } else { 4500 };
    let seek =
        [element(name::SEEK_ID, &name::CUES.to_be_bytes()), number(name::SEEK_POSITION, position)];
    let seek_head = element(name::SEEK_HEAD, &element(name::SEEK, &seek.concat()));
    let mut body = if has_seek_head { [seek_head, info()].concat() } else { info() };
    let fill = |body: &mut Vec<u8>, to: usize| {
        let void = element(0xec, &vec![0; to - body.len() - 9]);
        body.extend(void);
    };
    if cues_in_front {
        fill(&mut body, 150);
        body.extend(cues());
    }
    fill(&mut body, 500);
    body.extend(element(name::CLUSTER, &[0xee; 988]).repeat(4));
    if !cues_in_front {
        body.extend(cues());
    }
    [element(name::EBML, b"head"), element(name::SEGMENT, &body)].concat()
}

#[test]
fn the_clusters_of_the_cues_tell_the_bytes_over_time() {
    for cues_in_front in [true, false] {
        let film = film(cues_in_front, true);
        let (layout, reads) = probe_in(&film, u64::MAX / 2);
        let layout = layout.unwrap();
        assert!(reads.len() <= 2, "{reads:?}");
        let start = find(&film, &element(name::CLUSTER, &[0xee; 988]));
        assert_eq!(layout.bytes_per_second(), Some(500));
        for (at, ms, expected) in
            [(0, 2000, 1000), (0, 5000, 2500), (1500, 1000, 500), (1500, 2000, 1000)]
        {
            assert_eq!(layout.window(start + at, ms), Some(expected), "{ms} ms at {at}");
        }
        let cues_at = find(&film, &cues());
        assert!(layout.index().contains(&(cues_at..cues_at + cues().len() as u64)));
        assert_eq!(layout.index().len(), 3, "`SeekHead`, `Info`, `Cues`");
    }
}

#[test]
fn without_cues_the_duration_tells_the_rate() {
    let film = film(false, false);
    let layout = probe(&film);
    assert_eq!(layout.index().len(), 1, "only `Info`");
    let rest = film.len() as u64 - find(&film, &element(name::CLUSTER, &[0xee; 988]));
    assert_eq!(layout.bytes_per_second(), Some(rest / 8));
}

#[test]
fn clusters_beyond_the_file_are_as_if_there_were_no_cues() {
    let clusters = element(name::CLUSTER, &[0xee; 988]).repeat(4);
    for far in
        [[100_000, 200_000, 300_000, 400_000], [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX]]
    {
        let body = [info(), cues_of(far), clusters.clone()].concat();
        let film = [element(name::EBML, b"head"), element(name::SEGMENT, &body)].concat();
        let rest = film.len() as u64 - find(&film, &clusters);
        assert_eq!(probe(&film).bytes_per_second(), Some(rest / 8), "the duration tells it");
    }
}

#[test]
fn sizes_may_be_unknown_and_short() {
    let mut live = element(name::EBML, b"head");
    live.extend(name::SEGMENT.to_be_bytes());
    live.extend([0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    live.extend(info());
    live.extend(name::CLUSTER.to_be_bytes());
    live.push(0xff);
    live.extend([0; 8000]);
    assert_eq!(probe(&live).bytes_per_second(), Some(8005 / 8));
}

#[test]
fn nonsense_ends_the_search() {
    let ebml = element(name::EBML, b"head");
    let large = usize::try_from(TABLE_BYTES_MAX).unwrap() + 1;
    for body in [
        vec![],
        vec![0; 100],
        vec![0xff; 100],
        element(0xec, &[]).repeat(1000),
        element(name::CUES, &vec![0; large]),
        element(name::SEEK_HEAD, &element(name::SEEK, &number(name::SEEK_POSITION, u64::MAX))),
        [element(name::INFO, &element(name::DURATION, &f64::NAN.to_be_bytes())), cues()].concat()
            [..100]
            .into(),
        element(name::INFO, &element(name::DURATION, &[1, 2, 3])),
    ] {
        let film = [&ebml[..], &element(name::SEGMENT, &body)].concat();
        let (layout, reads) = probe_in(&film, u64::MAX / 2);
        assert_eq!(layout.expect("a film, more or less").window(0, 1000), None, "{body:?}");
        assert!(reads.len() <= BOXES_MAX as usize);
    }
}

proptest! {
    #[test]
    fn damaged_films_are_understood_in_the_same_way_however_they_are_read(
        (cues_in_front, has_seek_head) in any::<(bool, bool)>(),
        changes in prop::collection::vec((0..800_usize, any::<bool>(), any::<u8>()), 0..8),
        len in 0..6000_usize,
        step in 1..5000_u64,
        (offset, ms) in (0..6000_u64, any::<u64>()),
    ) {
        let mut film = film(cues_in_front, has_seek_head);
        for (at, from_end, value) in changes {
            let at = if from_end { film.len() - 1 - at } else { at };
            film[at] = value;
        }
        film.truncate(len);
        let (whole, _) = probe_in(&film, u64::MAX / 2);
        let (bit_by_bit, _) = probe_in(&film, step);
        prop_assert_eq!(&whole, &bit_by_bit);
        if let Some(window) = whole.and_then(|layout| layout.window(offset, ms)) {
            prop_assert!(window <= (film.len() as u64).saturating_sub(offset));
        }
    }
}

//! Films made by hand, whole, cut and changed.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::testing::{probe, probe_in};
use crate::{BOXES_MAX, TABLE_BYTES_MAX};

/// A box.
fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(8 + body.len()).unwrap();
    [&size.to_be_bytes()[..], kind, body].concat()
}

/// A full box of version 0 with numbers of 32 bits.
fn numbers(kind: &[u8; 4], values: &[u32]) -> Vec<u8> {
    let body: Vec<u8> = [0].iter().chain(values).flat_map(|value| value.to_be_bytes()).collect();
    boxed(kind, &body)
}

/// `mvhd` with the duration in ticks, and the ticks of a second.
fn mvhd(per_second: u32, ticks: u32) -> Vec<u8> {
    numbers(b"mvhd", &[0, 0, per_second, ticks])
}

/// A track with a clock of 100 ticks per second.
fn trak(id: u32, handler: &[u8; 4], tables: &[Vec<u8>]) -> Vec<u8> {
    let handler = boxed(b"hdlr", &[&[0; 8], &handler[..]].concat());
    let stbl = boxed(b"stbl", &tables.concat());
    let mdia = [numbers(b"mdhd", &[0, 0, 100, 0]), handler, boxed(b"minf", &stbl)].concat();
    boxed(b"trak", &[numbers(b"tkhd", &[0, 0, id]), boxed(b"mdia", &mdia)].concat())
}

fn ftyp() -> Vec<u8> {
    boxed(b"ftyp", b"isom\0\0\0\0")
}

fn mdat(len: usize) -> Vec<u8> {
    boxed(b"mdat", &vec![0xee; len])
}

/// A film of 10 s: 100 samples, ten in each chunk, but the last two chunks have one and nineteen. The
/// chunks of pictures are 1,000 bytes apart, from 1,000 on, and the second half of the film is slower.
fn tables() -> Vec<Vec<u8>> {
    let offsets: Vec<u32> = [10].into_iter().chain((1..=10).map(|at| at * 1000)).collect();
    vec![
        numbers(b"stts", &[2, 50, 5, 50, 15]),
        numbers(b"stsc", &[3, 1, 10, 1, 9, 1, 1, 10, 19, 1]),
        numbers(b"stco", &offsets),
    ]
}

/// The points of that film in milliseconds.
const TIMES: [u64; 10] = [0, 500, 1000, 1500, 2000, 2500, 4000, 5500, 7000, 7150];

fn moov() -> Vec<u8> {
    let sound = trak(
        1,
        b"soun",
        &[
            numbers(b"stts", &[1, 10, 100]),
            numbers(b"stsc", &[1, 1, 1, 1]),
            numbers(b"stco", &[2, 900, 5900]),
        ],
    );
    let body = [mvhd(600, 6000), sound, trak(2, b"vide", &tables())].concat();
    boxed(b"moov", &body)
}

/// Checks the times of offsets in a file by the length of a window.
#[track_caller]
fn assert_points(layout: &crate::Layout, points: &[(u64, u64)]) {
    for pair in points.windows(2) {
        let [(offset, ms), (next, next_ms)] = [pair[0], pair[1]];
        assert_eq!(layout.window(offset, next_ms - ms), Some(next - offset), "{pair:?}");
        let half = offset.midpoint(next);
        let rest = next_ms - ms - (half - offset) * (next_ms - ms) / (next - offset);
        assert_eq!(layout.window(half, rest), Some(next - half), "{pair:?}");
    }
}

#[test]
fn the_chunks_of_pictures_tell_the_bytes_over_time() {
    let times: Vec<(u64, u64)> = (1..).map(|at| at * 1000).zip(TIMES).collect();
    let [ftyp, moov] = [ftyp(), moov()];
    let in_front = [&ftyp[..], &moov, &mdat(20_000)].concat();
    let behind = [&ftyp[..], &mdat(20_000 - 8), &moov].concat();
    for (film, index) in [(&in_front, ftyp.len()), (&behind, ftyp.len() + 20_000)] {
        let layout = probe(film);
        let index = index as u64..(index + moov.len()) as u64;
        assert_eq!(layout.index(), [index]);
        assert_points(&layout, &times);
        assert_eq!(layout.window(0, 500), Some(2000), "the head, and the first chunk");
    }
    let (_, reads) = probe_in(&behind, u64::MAX / 2);
    assert_eq!(reads.len(), 2, "{reads:?}");
    let layout = probe(&behind);
    let end = (ftyp.len() + 20_000) as u64;
    assert_eq!(layout.window(10_000, 10_000 - 7150), Some(end - 10_000), "the media ends there");
    assert_eq!(layout.window(end, 1), Some(moov.len() as u64), "all of the index");
    assert_eq!(layout.bytes_per_second(), Some((end - 1000) / 10));
}

#[test]
fn sizes_and_offsets_may_have_64_bits() {
    let offsets = (1..=10).flat_map(|at: u64| (at * 1000).to_be_bytes());
    let wide: Vec<u8> =
        [0, 10].iter().flat_map(|word: &u32| word.to_be_bytes()).chain(offsets).collect();
    let tables = [tables()[..2].concat(), boxed(b"co64", &wide)];
    let moov = boxed(b"moov", &[mvhd(600, 6000), trak(1, b"vide", &tables)].concat());
    let mdat =
        [&1_u32.to_be_bytes()[..], b"mdat", &20_000_u64.to_be_bytes(), &[0; 20_000 - 16]].concat();
    let layout = probe(&[ftyp(), mdat, moov].concat());
    let times: Vec<(u64, u64)> = (1..).map(|at| at * 1000).zip(TIMES).collect();
    assert_points(&layout, &times);

    let mut mvhd = vec![0; 32];
    mvhd[0] = 1;
    mvhd[20..24].copy_from_slice(&1000_u32.to_be_bytes());
    mvhd[24..32].copy_from_slice(&10_000_u64.to_be_bytes());
    let moov = boxed(b"moov", &boxed(b"mvhd", &mvhd));
    let film = [ftyp(), moov, boxed(b"mdat", &[0; 10_000])].concat();
    assert_eq!(probe(&film).bytes_per_second(), Some(1000));
}

#[test]
fn a_large_moov_tells_its_place_and_the_duration() {
    let large = boxed(b"free", &vec![0; usize::try_from(TABLE_BYTES_MAX).unwrap()]);
    let moov = boxed(b"moov", &[mvhd(600, 6000), large, trak(1, b"vide", &tables())].concat());
    for film in [[ftyp(), moov.clone(), mdat(20_000)], [ftyp(), mdat(20_000), moov.clone()]] {
        let film = film.concat();
        let (layout, reads) = probe_in(&film, u64::MAX / 2);
        let layout = layout.unwrap();
        assert_eq!(layout.index()[0].end - layout.index()[0].start, moov.len() as u64);
        assert_eq!(layout.bytes_per_second(), Some(2000));
        assert!(reads.iter().map(|read| read.end - read.start).sum::<u64>() <= 5 * 4096);
    }
}

/// A film that was cut off, or whose tables were made for another file.
#[test]
fn chunks_beyond_the_file_are_as_if_there_were_none() {
    let film = |first: u32, media: usize| {
        let offsets: Vec<u32> =
            [10].into_iter().chain((0..10).map(|at| first + at * 1000)).collect();
        let tables = [&tables()[..2], &[numbers(b"stco", &offsets)]].concat();
        let moov = boxed(b"moov", &[mvhd(600, 6000), trak(1, b"vide", &tables)].concat());
        [ftyp(), moov, mdat(media)].concat()
    };
    for first in [100_000, u32::MAX - 10_000] {
        let layout = probe(&film(first, 20_000));
        assert_eq!(layout.bytes_per_second(), Some(2000), "the duration tells it");
    }
    let cut = film(1000, 3000);
    let (layout, size) = (probe(&cut), cut.len() as u64);
    assert_points(&layout, &[(1000, 0), (2000, 500), (3000, 1000)]);
    for offset in [0, 2500, size - 1, size, 9000] {
        assert!(layout.window(offset, 20_000).unwrap() <= size.saturating_sub(offset), "{offset}");
    }
}

#[test]
fn fragments_are_known_from_an_index_in_front() {
    let ends = [(4000, 200), (6000, 100), (10_000, 300)];
    let entries = ends.iter().flat_map(|&(size, ticks)| [size, ticks, 0]);
    let sidx: Vec<u32> = [1, 100, 500, 40, 3].into_iter().chain(entries).collect();
    let sidx = numbers(b"sidx", &sidx);
    for first in [ftyp(), boxed(b"styp", b"msdh\0\0\0\0")] {
        let head = [&first[..], &sidx].concat();
        let start = head.len() as u64 + 40;
        let segment = [head.clone(), vec![0; 40], mdat(19_992)].concat();
        let layout = probe(&segment);
        let index = first.len() as u64..head.len() as u64;
        assert_eq!(layout.index(), [index]);
        assert_points(
            &layout,
            &[
                (start, 5000),
                (start + 4000, 7000),
                (start + 10_000, 8000),
                (start + 20_000, 11_000),
            ],
        );
    }
}

#[test]
fn fragments_are_known_from_an_index_behind() {
    let moov = [mvhd(600, 0), trak(7, b"vide", &[]), boxed(b"mvex", &[])].concat();
    let head = [ftyp(), boxed(b"moov", &moov)].concat();
    let start = u32::try_from(head.len()).unwrap();
    let fragment = [boxed(b"moof", &[0; 92]), mdat(892)].concat();
    let entries: Vec<u8> = (0..4_u32)
        .flat_map(|at| {
            [&(at * 100).to_be_bytes()[..], &(start + at * 1000).to_be_bytes(), &[1; 3]].concat()
        })
        .collect();
    let tfra = [[0, 7, 0, 4].map(u32::to_be_bytes).concat(), entries].concat();
    let body = boxed(b"tfra", &tfra);
    let size = u32::try_from(8 + body.len() + 16).unwrap();
    let mfra = boxed(b"mfra", &[body, numbers(b"mfro", &[size])].concat());
    let film = [&head[..], &fragment, &fragment, &fragment, &fragment, &mfra].concat();
    let layout = probe(&film);
    let start = u64::from(start);
    let points: Vec<(u64, u64)> = (0..5).map(|at| (start + at * 1000, at * 1000)).collect();
    assert_points(&layout, &points);
    assert_eq!(layout.index().last(), Some(&(start + 4000..film.len() as u64)));

    let without = [&head[..], &fragment, &fragment].concat();
    assert_eq!(probe(&without).window(0, 1), None, "nothing says how long it is");
}

#[test]
fn other_files_are_not_known() {
    for file in [&b""[..], b"1234567", b"1234567890abcdef", &[0; 5000], b"\0\0\0\x08ftyX\0\0"] {
        assert_eq!(probe_in(file, 100).0, None, "{file:?}");
    }
}

#[test]
fn nonsense_ends_the_search() {
    for film in [
        boxed(b"ftyp", b""),
        [&ftyp()[..], &[0; 8]].concat(),
        [&ftyp()[..], &[0, 0, 0, 7], b"moov", &[0; 100]].concat(),
        [&ftyp()[..], &[0, 0, 0, 1], b"mdat", &u64::MAX.to_be_bytes()].concat(),
        [&ftyp()[..], &[0, 0, 0, 1], b"mdat", &15_u64.to_be_bytes()].concat(),
        boxed(b"ftyp", b"").repeat(1000),
        [ftyp(), boxed(b"moov", &[]), mdat(100)].concat(),
        [ftyp(), boxed(b"moov", &mvhd(0, 100)), mdat(100)].concat(),
        [ftyp(), boxed(b"moov", &mvhd(100, u32::MAX)), mdat(100)].concat(),
        [ftyp(), boxed(b"moof", &[]), numbers(b"mfro", &[u32::MAX])].concat(),
        [ftyp(), boxed(b"moof", &[]), numbers(b"mfro", &[16])].concat(),
        // `mfro` points to the first fragment instead of the `mfra`.
        [ftyp(), boxed(b"moof", &[]), numbers(b"mfro", &[8 + 16])].concat(),
        [ftyp(), numbers(b"sidx", &[1, 0, 0, 0, 1, 50, 50, 0])].concat(),
        [ftyp(), numbers(b"sidx", &[1, 100, u32::MAX, u32::MAX, 1, u32::MAX, u32::MAX, 0])]
            .concat(),
    ] {
        let (layout, reads) = probe_in(&film, u64::MAX / 2);
        assert_eq!(layout.expect("a film, more or less").window(0, 1000), None, "{film:?}");
        assert!(reads.len() <= BOXES_MAX as usize);
    }
}

/// A film, with the bits of some bytes changed, and cut.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let sidx = numbers(b"sidx", &[1, 100, 0, 0, 2, 400, 100, 0, 600, 100, 0]);
    let films = [
        [ftyp(), moov(), mdat(12_000)].concat(),
        [ftyp(), mdat(12_000), moov()].concat(),
        [ftyp(), sidx, mdat(12_000)].concat(),
    ];
    let changes = prop::collection::vec((0..2000_usize, any::<bool>(), any::<u8>()), 0..8);
    (prop::sample::select(films.to_vec()), changes, 0..14_000_usize).prop_map(
        |(mut film, changes, len)| {
            for (at, from_end, value) in changes {
                let at = if from_end { film.len().saturating_sub(1 + at) } else { at };
                film[at] = value;
            }
            film.truncate(len);
            film
        },
    )
}

proptest! {
    #[test]
    fn damaged_films_are_understood_in_the_same_way_however_they_are_read(
        film in damaged(),
        step in 1..5000_u64,
        (offset, ms) in (0..20_000_u64, any::<u64>()),
    ) {
        let (whole, _) = probe_in(&film, u64::MAX / 2);
        let (bit_by_bit, _) = probe_in(&film, step);
        prop_assert_eq!(&whole, &bit_by_bit);
        if let Some(window) = whole.and_then(|layout| layout.window(offset, ms)) {
            prop_assert!(window <= (film.len() as u64).saturating_sub(offset));
        }
    }

    #[test]
    fn any_table_is_read_without_panic(
        words in prop::collection::vec(prop_oneof![0..20_u32, any::<u32>()], 0..40),
        kind in prop::sample::select(vec![*b"stts", *b"stsc", *b"stco"]),
    ) {
        let mut tables = tables();
        let at = tables.iter().position(|table| table[4..8] == kind).unwrap();
        tables[at] = numbers(&kind, &words);
        let moov = boxed(b"moov", &[mvhd(600, 6000), trak(2, b"vide", &tables)].concat());
        let film = [ftyp(), moov, mdat(12_000)].concat();
        let layout = probe(&film);
        layout.check();
        // Chunks that all begin at the end of the file say nothing about bytes over time.
        prop_assert!(layout.window(0, 1000).is_none_or(|window| window <= film.len() as u64));
    }
}

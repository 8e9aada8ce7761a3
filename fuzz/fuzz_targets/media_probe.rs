//! Arbitrary files, read whole, bit by bit, and as the start of a file of any size. Checked: what is
//! wanted lies within the file and is bounded, the layout does not depend on how the file was read, its
//! ranges lie within the file, and windows grow with time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use media::{BYTES_MAX, Layout, Probe};

fuzz_target!(|file: &[u8]| {
    let size = file.len() as u64;
    let whole = probe(file, size, usize::MAX);
    assert_eq!(whole, probe(file, size, file.len() % 97 + 1));
    if let Some(layout) = whole {
        check(&layout, size);
    }
    // The rest of a larger file is a hole.
    let Some(size) = file.last_chunk().map(|size| u64::from_le_bytes(*size)) else { return };
    if let Some(layout) = probe(file, size, 64 * 1024) {
        check(&layout, size);
    }
});

fn probe(file: &[u8], size: u64, step: usize) -> Option<Layout> {
    let mut probe = Probe::new(size);
    let mut taken = 0;
    while let Some(wanted) = probe.wants() {
        assert!(wanted.start < wanted.end && wanted.end <= size);
        assert!(taken <= BYTES_MAX);
        let len = usize::try_from(wanted.end - wanted.start).unwrap().min(step);
        taken += len as u64;
        let mut bytes = vec![0; len];
        let start = usize::try_from(wanted.start).unwrap().min(file.len());
        let held = &file[start..(start + len).min(file.len())];
        bytes[..held.len()].copy_from_slice(held);
        probe.handle_bytes(&bytes);
    }
    probe.into_layout()
}

fn check(layout: &Layout, size: u64) {
    layout.check();
    for offset in [0, size / 3, size / 2, size - 1, size, u64::MAX] {
        let windows = [0, 1, 1000, 1_000_000, u64::MAX].map(|ms| layout.window(offset, ms));
        assert!(windows.is_sorted());
        assert!(windows[4].is_none_or(|window| window <= size.saturating_sub(offset)));
    }
}

//! Files for tests: probed from memory, made by hand, made by ffmpeg.

use alloc::vec::Vec;
use core::ops::Range;

use crate::{BYTES_MAX, Layout, Probe};

/// Probes a file in reads of at most `step` bytes; returns the layout, and the ranges that were read.
pub(crate) fn probe_in(file: &[u8], step: u64) -> (Option<Layout>, Vec<Range<u64>>) {
    let size = file.len() as u64;
    let mut probe = Probe::new(size);
    let mut reads = Vec::new();
    while let Some(wanted) = probe.wants() {
        assert!(wanted.start < wanted.end && wanted.end <= size, "{wanted:?} of {size}");
        let read = wanted.start..wanted.end.min(wanted.start + step);
        probe.handle_bytes(&file[index(read.start)..index(read.end)]);
        reads.push(read);
    }
    assert!(reads.iter().map(|read| read.end - read.start).sum::<u64>() <= BYTES_MAX);
    let layout = probe.into_layout();
    if let Some(layout) = &layout {
        layout.check();
    }
    (layout, reads)
}

/// Probes a file that is a container.
#[track_caller]
pub(crate) fn probe(file: &[u8]) -> Layout {
    probe_in(file, u64::MAX / 2).0.expect("a container")
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("within a file in memory")
}

/// The first position of `bytes` in a file.
#[track_caller]
pub(crate) fn find(file: &[u8], bytes: &[u8]) -> u64 {
    let place = file.windows(bytes.len()).position(|window| window == bytes);
    place.expect("it is in the file") as u64
}

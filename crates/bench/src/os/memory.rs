//! Memory: the N-th region, the first touch of a page, giving it back, pages of files.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::Advice;

use super::process::page;
use super::steps;
use crate::clock::time;
use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};
use crate::sys::memory::Mapping;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("mmap", "Latency of mmap() with N regions mapped", mmap)
            .scales("the tree of regions is searched in logarithmic time or better")
            .x("mapped regions of one page")
            .steps(15_000, 60),
        Test::new("touch", "Latency of the first access to every second page", touch)
            .scales("a page fault takes as long in a large region as in a small one")
            .x("pages touched, each second one")
            .steps(10_000, 60),
        Test::new("munmap", "Latency of munmap() with N regions left", munmap)
            .scales("a region is found and given back in logarithmic time or better")
            .x("mapped regions of one page")
            .warm_up("all regions are made and touched before")
            .steps(15_000, 60),
        Test::new("file-fault", "Latency of a page fault on a cached file", file_fault)
            .scales("a fault takes as long in a large file as in a small one")
            .x("pages touched, each second one")
            .warm_up("the file is written just before, and so in memory")
            .steps(2000, 60),
    ]
}

/// The kernel's memory for a region, with its part of the tree.
const REGION: u64 = 512;

fn mmap(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_memory(REGION);
    let mut regions = Vec::with_capacity(n);
    // Every other one may be written: equal neighbours would become one region.
    steps(recorder, "anonymous", ["mmap"], n, |i| {
        let (took, region) = time(|| Mapping::anonymous(page(), i % 2 == 0));
        regions.push(region?);
        Ok([took])
    })
}

fn touch(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    // With huge pages the pages between are in memory as well.
    let n = recorder.steps_within_memory(2 * page() as u64);
    for (system, advice) in
        [("as configured", Advice::Normal), ("without huge pages", Advice::LinuxNoHugepage)]
    {
        let mut region = Mapping::anonymous(2 * n * page(), true)?;
        region.advise(advice)?;
        steps(recorder, system, ["first touch"], n, |i| {
            let (took, ()) = time(|| region.write(2 * (i - 1) * page()));
            Ok([took])
        })?;
    }
    Ok(())
}

fn munmap(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let mut regions = Vec::new();
    for i in 0..recorder.steps_within_memory(REGION + page() as u64) {
        if recorder.is_stopped() {
            break;
        }
        match Mapping::anonymous(page(), i % 2 == 0) {
            Ok(mut region) => {
                if i % 2 == 0 {
                    region.write(0);
                } else {
                    region.read(0);
                }
                regions.push(region);
            }
            Err(error) => {
                recorder.note(format!("{i} regions only: {error}"));
                break;
            }
        }
    }
    // In any order, the same each time.
    fastrand::Rng::with_seed(1).shuffle(&mut regions);
    let n = regions.len();
    let id = recorder.series("anonymous", "munmap", crate::Unit::Nanoseconds, n);
    while let Some(region) = regions.pop() {
        let left = float(regions.len() + 1);
        let (took, ()) = time(|| drop(region));
        recorder.push(id, left, took);
        if recorder.is_stopped() {
            break;
        }
    }
    Ok(())
}

fn file_fault(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// The mapped object, the pages from one touch to the next, and the pages of each write(2):
    /// bytes written page by page are cached in single pages.
    const WAYS: [(&str, bool, usize, usize); 5] = [
        ("file, every second page", false, 2, usize::MAX),
        ("file, every 17th page", false, STRIDE_MAX, usize::MAX),
        ("file written page by page, every 17th page", false, STRIDE_MAX, 1),
        ("memory file, every second page", true, 2, usize::MAX),
        ("memory file, every 17th page", true, STRIDE_MAX, usize::MAX),
    ];
    const STRIDE_MAX: usize = 17;
    // The file, and the bytes written to it.
    let n = recorder.steps_within_memory(2 * (STRIDE_MAX * page()) as u64);
    let dir = recorder.temp_dir()?;
    for (nth, (system, in_memory, stride, pages)) in WAYS.into_iter().enumerate() {
        let length = stride * n * page();
        let mut file: File = if in_memory {
            memfd_create("samum-bench", MemfdFlags::CLOEXEC)?.into()
        } else {
            File::create_new(dir.path().join(nth.to_string()))?
        };
        for piece in vec![1; length].chunks(page().saturating_mul(pages)) {
            file.write_all(piece)?;
        }
        // For a read-only mapping, the file must have been opened for reading.
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let region = Mapping::file(file.as_fd(), length)?;
        steps(recorder, system, ["first touch"], n, |i| {
            let (took, _) = time(|| region.read(stride * (i - 1) * page()));
            Ok([took])
        })?;
    }
    recorder.note(
        "A fault maps the 16 pages around it (fault_around_bytes), or all of a large folio of the page \
         cache: most touches of neighbours cost nothing. Those 17 pages apart show the fault itself where the cache \
         has single pages.",
    );
    Ok(())
}

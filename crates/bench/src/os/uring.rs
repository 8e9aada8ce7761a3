//! io_uring: the N-th ring, and reads by number against reads of registered files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use super::steps;
use crate::clock::time;
use crate::suite::{Fault, Recorder, Test};
use crate::sys::uring::{Ask, Ring};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("uring-setup", "Latency of io_uring_setup() with N rings open", setup)
            .scales("the N-th ring takes as long as the first")
            .x("open rings with 8 entries")
            .steps(1000, 30),
        Test::new("uring-files", "Latency of a read by io_uring with N files open", files)
            .scales("the N-th file is found as fast as the first, by number or registered")
            .x("open files")
            .warm_up("one read of each kind")
            .steps(8000, 60),
    ]
}

fn setup(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    let mut rings = Vec::with_capacity(n);
    steps(recorder, "io_uring", ["set up and map"], n, |_| {
        let (took, ring) = time(|| Ring::new(8, 16));
        rings.push(ring?);
        Ok([took])
    })
}

fn files(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    let mut ring =
        Ring::new(8, 16).map_err(|error| Fault::Skip(format!("no io_uring here: {error}")))?;
    let size = u32::try_from(n).unwrap_or(u32::MAX);
    ring.register_table(size)
        .map_err(|error| Fault::Skip(format!("no registered files: {error}")))?;
    let zero = File::open("/dev/zero")?;
    let mut open = Vec::with_capacity(n);
    ring.register(0, zero.as_raw_fd())?;
    read(&mut ring, Ask::Read(zero.as_raw_fd()))?;
    read(&mut ring, Ask::ReadRegistered(0))?;
    steps(recorder, "/dev/zero", ["io_uring, by number", "io_uring, registered", "pread"], n, |i| {
        let file = File::open("/dev/zero")?;
        let index = u32::try_from(i - 1).unwrap_or(u32::MAX);
        ring.register(index, file.as_raw_fd())?;
        let by_number = read(&mut ring, Ask::Read(file.as_raw_fd()))?;
        let registered = read(&mut ring, Ask::ReadRegistered(index))?;
        let (direct, result) = time(|| file.read_at(&mut [0], 0));
        result?;
        open.push(file);
        Ok([by_number, registered, direct])
    })
}

/// Nanoseconds until one byte is there.
fn read(ring: &mut Ring, ask: Ask) -> io::Result<f64> {
    let (took, answer) = time(|| {
        ring.push(ask, 0)?;
        ring.wait()?;
        Ok::<_, io::Error>(ring.next())
    });
    match answer? {
        Some(answer) if answer.result == 1 => Ok(took),
        Some(answer) => Err(io::Error::from_raw_os_error(-answer.result)),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

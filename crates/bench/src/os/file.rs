//! Files: the N-th in a directory, finding one of N, reading in order and at random.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fadvise, fstatfs, openat, statat, unlinkat};

use super::steps;
use crate::clock::time;
use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("directory", "Latency of operations in a directory with N files", directory)
            .scales("the N-th file is made, found and removed in logarithmic time or better")
            .x("files in one directory")
            .warm_up("none: \"find, not there\" asks for names that never were, which the directory has to be searched for; \
                 \"find, cached\" for one of those that are there, at random, which the kernel remembers")
            .steps(10_000, 60),
        Test::new("read", "Latency of reads, in order and at random", reads)
            .scales("the N-th read costs no more than the first, in order and at random: two series, to be compared by \
                     their medians, which are alike in memory and on few disks")
            .x("reads of 4 KiB")
            .warm_up("warm: the file is read once before; cold: it is dropped from memory before")
            .steps(4096, 64),
    ]
}

/// Says in a note what kind of file system a directory is on.
fn note_file_system(recorder: &mut Recorder<'_>, dir: &Path) -> io::Result<OwnedFd> {
    let fd: OwnedFd = File::open(dir)?.into();
    let kind = fstatfs(&fd)?.f_type;
    // statfs(2).
    let name = match kind {
        0xef53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x794c_7630 => "overlayfs".to_owned(),
        other => format!("type {other:#x}"),
    };
    recorder.note(format!("the files are on {name}; --temp DIR takes another file system"));
    Ok(fd)
}

fn directory(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let temp = recorder.temp_dir()?;
    let dir = note_file_system(recorder, temp.path())?;
    let n = recorder.steps();
    let mut random = fastrand::Rng::with_seed(1);
    let name = |i: usize| format!("file-{i:08}");
    let mut made = 0;
    steps(recorder, "one directory", ["create", "find, not there", "find, cached"], n, |i| {
        let (new, old) = (name(i), name(random.usize(1..=i)));
        let never = format!("none-{i:08}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let (create, file) = time(|| openat(&dir, &new, flags, Mode::RUSR));
        file?;
        made = i;
        let (search, absent) = time(|| statat(&dir, &never, AtFlags::empty()));
        if absent.err() != Some(rustix::io::Errno::NOENT) {
            return Err(io::Error::other(format!("{never} is there")));
        }
        let (find, stat) = time(|| statat(&dir, &old, AtFlags::empty()));
        stat?;
        Ok([create, search, find])
    })?;
    let id = recorder.series("one directory", "remove", crate::Unit::Nanoseconds, made);
    let mut names: Vec<_> = (1..=made).map(name).collect();
    random.shuffle(&mut names);
    for (removed, name) in names.iter().enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let (took, result) = time(|| unlinkat(&dir, name, AtFlags::empty()));
        result?;
        recorder.push(id, float(made - removed), took);
    }
    Ok(())
}

fn reads(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    const BLOCK: usize = 4096;
    let temp = recorder.temp_dir()?;
    note_file_system(recorder, temp.path())?;
    // The warm half must be in memory.
    let n = recorder.steps_within_memory(BLOCK as u64);
    let path = temp.path().join("file");
    // Written in one go, so as little in pieces as this file system can.
    fs::write(&path, vec![1; n * BLOCK])?;
    let file = File::open(&path)?;
    file.sync_all()?;
    let mut order: Vec<u64> = (0..n as u64).collect();
    let sequential = order.clone();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    let mut buffer = vec![0; BLOCK];
    for (system, cold) in [("warm", false), ("cold", true)] {
        for (series, order) in [("in order", &sequential), ("at random", &order)] {
            if cold {
                forget(&file)?;
            } else {
                fs::read(&path)?;
            }
            steps(recorder, system, [series], n, |i| {
                let (took, result) =
                    time(|| file.read_exact_at(&mut buffer, order[i - 1] * BLOCK as u64));
                result?;
                Ok([took])
            })?;
        }
    }
    recorder.note(
        "In order the kernel reads ahead, so most cold reads find their block in memory. Under a \
         hypervisor its cache may stand before the disk.",
    );
    Ok(())
}

/// Drops the clean pages of a file from the page cache.
fn forget(file: impl AsFd) -> io::Result<()> {
    Ok(fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

//! Processes and threads: making them, switching between them, their memory.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::io::{read, write};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, test_kill_process};
use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity};

use super::steps;
use crate::clock::time;
use crate::machine::{self, field};
use crate::run::Figure;
use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};
use crate::sys::memory::Mapping;
use crate::sys::process::{Child, die_with_us, force_fork};
use crate::unit::Unit;

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("fork", "Latency of fork() with N live children", forks)
            .scales("the N-th fork takes as long as the first, however many processes there are")
            .x("live children")
            .warm_up("none; \"static\" and \"dynamic\" are one C program built twice")
            .steps(1500, 40),
        Test::new("spawn", "Latency of starting a program from a large process", spawn)
            .scales("starting takes as long from a large process as from a small one")
            .x("memory of the parent, steps of 256 KiB touched")
            .warm_up("one start of each kind, so that the program is in memory")
            .steps(400, 30),
        Test::new("thread", "Latency of starting a thread with N live threads", threads)
            .scales("the N-th thread takes as long as the first")
            .x("live threads")
            .steps(4000, 50),
        Test::new("switch", "Latency of a context switch in a ring of N processes", switch)
            .scales("a switch takes as long among many processes as among two")
            .x("processes that pass a byte on through pipes")
            .warm_up("one round for each N; all processes on one CPU")
            .steps(600, 20),
        Test::new("futex", "Latency of a futex with N threads asleep on others", futexes)
            .scales("threads that sleep on other futexes cost nothing")
            .x("threads asleep, each on a futex of its own")
            .warm_up(
                "each thread sleeps, and one call of each kind is made, before the clock is read",
            )
            .steps(3000, 40),
        Test::new("pidfd", "Latency of finding one process among N", pidfds)
            .scales("finding the N-th process takes as long as finding the first")
            .x("live children")
            .warm_up("each child sleeps, and has been named once, before it is named by the clock")
            .steps(1500, 40),
        Test::new("memory", "Memory per process, thread and connection", memory)
            .scales("each takes as much as the one before")
            .x("number made")
            .warm_up("32 of each kind are there before counting begins")
            .figure(Figure::of(Unit::Bytes).log_y(true))
            .steps(2048, 256),
    ]
}

/// The memory of a process: page tables, stacks, and the kernel's own.
const PROCESS: u64 = 256 << 10;

/// The memory of a thread: its stacks, and the kernel's own.
const THREAD: u64 = 64 << 10;

fn forks(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_memory(PROCESS);
    for (system, flags) in [("static", &["-static"][..]), ("dynamic", &[])] {
        if let Err(why) = fork_in_c(recorder, system, flags, n) {
            recorder.skip(system, why);
        }
    }
    /// Touched memory of the process that forks.
    const TOUCHED: usize = 64 << 20;
    let mut memory = Mapping::anonymous(TOUCHED, true)?;
    // Small pages: their tables are what fork copies.
    memory.advise(rustix::mm::Advice::LinuxNoHugepage)?;
    (0..TOUCHED).step_by(page()).for_each(|offset| memory.write(offset));
    let mut children = Vec::with_capacity(n);
    steps(recorder, "dynamic, 64 MiB touched", ["fork"], n, |_| {
        let (took, child) = time(Child::sleeping);
        children.push(child?);
        Ok([took])
    })
}

/// Compiles and runs fork.c; an error says why that cannot be done.
fn fork_in_c(
    recorder: &mut Recorder<'_>,
    system: &str,
    flags: &[&str],
    n: usize,
) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let (source, program) = (dir.path().join("fork.c"), dir.path().join("fork"));
    std::fs::write(&source, include_str!("fork.c"))
        .map_err(|error| format!("cannot write {}: {error}", source.display()))?;
    let compiled = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .args(flags)
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("needs a C compiler, but cc cannot be run: {error}"))?;
    if !compiled.status.success() {
        let text = String::from_utf8_lossy(&compiled.stderr);
        return Err(format!("cc cannot build it: {}", text.lines().next().unwrap_or("no reason")));
    }
    let mut command = Command::new(&program);
    let times = dir.path().join("times");
    let output = std::fs::File::create(&times)
        .map_err(|error| format!("cannot make {}: {error}", times.display()))?;
    command.arg(n.to_string()).stdout(output);
    die_with_us(&mut command, Signal::KILL);
    let mut running = command.spawn().map_err(|error| format!("cannot run it: {error}"))?;
    while let Ok(None) = running.try_wait() {
        if recorder.is_stopped() {
            // The program ends its children, and prints its results.
            let _ = kill_process(Pid::from_child(&running), Signal::TERM);
        }
        thread::sleep(core::time::Duration::from_millis(5));
    }
    let text = std::fs::read_to_string(&times).unwrap_or_default();
    let times: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    if times.len() < n {
        recorder.note(format!("{system} ended after {} children", times.len()));
    }
    for (i, took) in times.into_iter().enumerate() {
        recorder.record(system, "fork", Unit::Nanoseconds, float(i + 1), took);
    }
    Ok(())
}

fn spawn(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// The memory that each step adds to the parent.
    const STEP: usize = 256 << 10;
    let program = ["/bin/true", "/usr/bin/true"].into_iter().find(|path| Path::new(path).exists());
    let program = program.ok_or_else(|| Fault::Skip("there is no /bin/true to start".into()))?;
    let n = recorder.steps_within_memory(STEP as u64);
    for (system, forked) in [("posix_spawn (vfork)", false), ("fork and exec", true)] {
        let start = || -> io::Result<f64> {
            let mut command = Command::new(program);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            if forked {
                force_fork(&mut command);
            }
            let (took, child) = time(|| command.spawn());
            child?.wait()?;
            Ok(took)
        };
        start()?;
        let mut memory = Vec::new();
        steps(recorder, system, ["until exec"], n, |_| {
            let mut more = Mapping::anonymous(STEP, true)?;
            more.advise(rustix::mm::Advice::LinuxNoHugepage)?;
            (0..STEP).step_by(page()).for_each(|offset| more.write(offset));
            memory.push(more);
            Ok([start()?])
        })?;
    }
    Ok(())
}

/// Threads that sleep until dropped.
#[derive(Default)]
struct Sleepers {
    threads: Vec<(JoinHandle<()>, Arc<Bed>)>,
}

/// The state that a sleeper shares with its owner.
#[derive(Default)]
struct Bed {
    /// The futex; 1 ends the sleep.
    word: AtomicU32,
    /// The thread's number, once it has one.
    tid: AtomicI32,
}

impl Sleepers {
    /// Adds a thread, on a futex of its own; returns the nanoseconds until it was made.
    fn add(&mut self) -> io::Result<f64> {
        let bed = Arc::new(Bed::default());
        let theirs = Arc::clone(&bed);
        let sleep = move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            // Relaxed: the number publishes no other memory.
            theirs.tid.store(tid, Ordering::Relaxed);
            while theirs.word.load(Ordering::Acquire) == 0 {
                // Woken or not: the word decides.
                let _ = futex::wait(&theirs.word, futex::Flags::PRIVATE, 0, None);
            }
        };
        /// Enough for a thread that sleeps.
        const STACK: usize = 64 << 10;
        let (took, thread) = time(|| thread::Builder::new().stack_size(STACK).spawn(sleep));
        self.threads.push((thread?, bed));
        Ok(took)
    }

    /// Waits until the last one sleeps.
    fn wait_for_last(&self) -> io::Result<()> {
        let Some((_, bed)) = self.threads.last() else { return Ok(()) };
        let tid = || match bed.tid.load(Ordering::Relaxed) {
            0 => None,
            tid => Some(tid),
        };
        let tid = loop {
            match tid() {
                Some(tid) => break tid,
                None => thread::yield_now(),
            }
        };
        machine::wait_until_asleep(&format!("/proc/self/task/{tid}/stat"))
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for (_, bed) in &self.threads {
            // Pairs with the sleeper's load.
            bed.word.store(1, Ordering::Release);
            let _ = futex::wake(&bed.word, futex::Flags::PRIVATE, 1);
        }
        for (thread, _) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn threads(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_memory(THREAD);
    let mut sleepers = Sleepers::default();
    steps(recorder, "pthread_create", ["make"], n, |_| Ok([sleepers.add()?]))
}

fn switch(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(2).min(recorder.steps_within_memory(PROCESS));
    // On one CPU: otherwise the wake-up of the other CPU is timed.
    let _pin = Pin::to_one_cpu()?;
    let (first_read, first_write) = rustix::pipe::pipe()?;
    let mut last = first_read;
    let mut members = Vec::<(Child, OwnedFd)>::new();
    // Each step puts one process between the last one and us.
    steps(recorder, "pipes", ["switch"], n, |i| {
        let (from, (read_end, write_end)) = (&last, rustix::pipe::pipe()?);
        let child = Child::passing_on(from.as_fd(), &write_end)?;
        drop(write_end);
        members.push((child, core::mem::replace(&mut last, read_end)));
        let round = || -> io::Result<()> {
            let mut byte = [0];
            write(&first_write, &byte)?;
            // ctrl-C may come between.
            while read(&last, &mut byte) == Err(rustix::io::Errno::INTR) {}
            Ok(())
        };
        round()?;
        let (took, result) = time(round);
        result?;
        Ok([took / float(i + 1)])
    })
}

/// This thread and its forked children, on one CPU; the drop undoes it.
struct Pin(CpuSet);

impl Pin {
    fn to_one_cpu() -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap_or(0));
        sched_setaffinity(None, &one)?;
        Ok(Self(all))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Restores the earlier set of CPUs.
        let _ = sched_setaffinity(None, &self.0);
    }
}

fn futexes(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_memory(THREAD);
    let mut sleepers = Sleepers::default();
    let (flag, partner) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(true)));
    let (theirs, goes_on) = (Arc::clone(&flag), Arc::clone(&partner));
    // Answers every 1 with a 0.
    let answering = thread::spawn(move || {
        while goes_on.load(Ordering::Acquire) {
            let _ = futex::wait(&theirs, futex::Flags::PRIVATE, 0, None);
            if theirs.swap(0, Ordering::AcqRel) == 1 {
                let _ = futex::wake(&theirs, futex::Flags::PRIVATE, 1);
            }
        }
    });
    let lonely = AtomicU32::new(0);
    let result = steps(recorder, "futex", ["wake nobody", "there and back"], n, |_| {
        sleepers.add()?;
        sleepers.wait_for_last()?;
        let wake_nobody = || futex::wake(&lonely, futex::Flags::PRIVATE, 1);
        let there_and_back = || {
            flag.store(1, Ordering::Release);
            let _ = futex::wake(&flag, futex::Flags::PRIVATE, 1);
            while flag.load(Ordering::Acquire) == 1 {
                let _ = futex::wait(&flag, futex::Flags::PRIVATE, 1, None);
            }
        };
        wake_nobody()?;
        let (nobody, woken) = time(wake_nobody);
        woken?;
        there_and_back();
        let (round, ()) = time(there_and_back);
        Ok([nobody, round])
    });
    partner.store(false, Ordering::Release);
    while !answering.is_finished() {
        flag.store(1, Ordering::Release);
        let _ = futex::wake(&flag, futex::Flags::PRIVATE, 2);
        thread::yield_now();
    }
    let _ = answering.join();
    result
}

fn pidfds(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_memory(PROCESS);
    let mut children = Vec::new();
    steps(recorder, "last child", ["pidfd_open", "kill(pid, 0)"], n, |_| {
        let child = Child::sleeping()?;
        machine::wait_until_asleep(&format!("/proc/{}/stat", child.pid().as_raw_nonzero()))?;
        // The first of each finds the code and the new process in no cache.
        pidfd_open(child.pid(), PidfdFlags::empty())?;
        test_kill_process(child.pid())?;
        let (open, fd) = time(|| pidfd_open(child.pid(), PidfdFlags::empty()));
        fd?;
        let (kill, result) = time(|| test_kill_process(child.pid()));
        result?;
        children.push(child);
        Ok([open, kill])
    })
}

fn memory(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let mut children = Vec::new();
    count_bytes(recorder, "process", || {
        children.push(Child::sleeping()?);
        Ok(())
    });
    drop(children);
    let mut sleepers = Sleepers::default();
    count_bytes(recorder, "thread", || sleepers.add().map(|_| ()));
    drop(sleepers);
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut sockets = Vec::new();
    count_bytes(recorder, "TCP connection, both ends", || {
        let client = std::net::TcpStream::connect(address)?;
        sockets.push((client, listener.accept()?.0));
        Ok(())
    });
    recorder.note(
        "Bytes: what AnonPages, PageTables, KernelStack, Slab and Percpu of /proc/meminfo grew by, over \
         how many were made; what others on this machine do is in it.",
    );
    Ok(())
}

/// Makes objects in batches, and after each batch records the average bytes of all of them.
fn count_bytes(
    recorder: &mut Recorder<'_>,
    system: &str,
    mut make: impl FnMut() -> io::Result<()>,
) {
    /// Points in the picture.
    const BATCHES: usize = 32;
    let batch = (recorder.steps_within_memory(PROCESS) / BATCHES).max(1);
    let mut several = |count: usize| (0..count).try_for_each(|_| make());
    if let Err(error) = several(BATCHES) {
        return recorder.skip(system, format!("cannot make one: {error}"));
    }
    // Memory of closed objects is freed after a grace period.
    thread::sleep(core::time::Duration::from_millis(300));
    settle();
    let before = kernel_and_user();
    for nth in 1..=BATCHES {
        if recorder.is_stopped() {
            break;
        }
        if let Err(error) = several(batch) {
            recorder.note(format!("{system} ended after {}: {error}", nth * batch));
            break;
        }
        settle();
        let (made, now) = (float(nth * batch), kernel_and_user());
        recorder.record(system, "memory", Unit::Bytes, made, (now - before) / made);
        recorder.progress(float(nth) / float(BATCHES));
    }
}

/// The kernel sums up its counters each second or when they have grown; new code has to run once.
fn settle() {
    thread::sleep(core::time::Duration::from_millis(5));
    // Writing here folds vmstat's per-CPU counters; without the right to, figures are within ±1 MiB.
    let _ = std::fs::write("/proc/sys/vm/stat_refresh", "1");
}

/// The bytes of user memory, page tables, kernel stacks and slabs of the whole machine.
#[allow(clippy::cast_precision_loss, reason = "below 2^52 bytes")]
fn kernel_and_user() -> f64 {
    let meminfo = machine::read("/proc/meminfo");
    let names = ["AnonPages:", "PageTables:", "KernelStack:", "Slab:", "Percpu:"];
    names.iter().filter_map(|name| field(&meminfo, name)).sum::<u64>() as f64 * 1024.0
}

/// The bytes of a page.
pub(super) fn page() -> usize {
    rustix::param::page_size()
}

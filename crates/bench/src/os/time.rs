//! Timers: arming one beside N others, and how late a timeout comes.

use core::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::steps;
use crate::clock::time;
use crate::suite::{Fault, Recorder, Test};
use crate::sys::signal::{Timer, alarm};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("timer", "Latency of arming a timer with N timers armed", timers)
            .scales("the kernel's tree of timers: logarithmic or better")
            .x("armed timers")
            .steps(12_000, 60),
        Test::new("timeout", "Delay of a timeout of 1 ms with N timers armed", timeouts)
            .scales("a timeout comes as punctually beside many timers as beside few")
            .x("armed timers")
            .warm_up("none; what is shown is the time beyond 1 ms")
            .steps(500, 20),
    ]
}

/// A time so far ahead that no timer goes off within a test; the times differ, so that the tree has
/// work.
fn far(i: usize) -> i64 {
    let spread = i64::try_from(i.wrapping_mul(7919) % 10_007).unwrap_or(0);
    3600 + spread
}

/// A timerfd that goes off once.
fn armed(seconds: i64, nanoseconds: i64) -> Itimerspec {
    Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    }
}

fn timerfd() -> rustix::io::Result<std::os::fd::OwnedFd> {
    timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
}

fn timers(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    let mut open = Vec::with_capacity(n);
    steps(recorder, "timerfd", ["arm", "alarm(2) beside"], n, |i| {
        let fd = timerfd()?;
        let (arm, result) =
            time(|| timerfd_settime(&fd, TimerfdTimerFlags::empty(), &armed(far(i), 0)));
        result?;
        open.push(fd);
        let seconds = u32::try_from(far(i)).unwrap_or(3600);
        let (alarm, ()) = time(|| alarm(seconds));
        Ok([arm, alarm])
    })?;
    alarm(0);
    drop(open);
    let mut open = Vec::with_capacity(n);
    steps(recorder, "timer_create", ["arm"], n, |i| {
        let timer = Timer::new()?;
        let (took, result) = time(|| timer.set(far(i)));
        result?;
        open.push(timer);
        Ok([took])
    })
}

fn timeouts(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// Timers that each step adds.
    const EACH: usize = 8;
    const TIMEOUT: Duration = Duration::from_millis(1);
    let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let n = recorder.steps_within_descriptors(EACH);
    let mut open = Vec::with_capacity(n * EACH);
    let mut others = |i: usize| -> std::io::Result<()> {
        for nth in 0..EACH {
            let fd = timerfd()?;
            let at = armed(far(i * EACH + nth), 0);
            timerfd_settime(&fd, TimerfdTimerFlags::empty(), &at)?;
            open.push(fd);
        }
        Ok(())
    };
    let quiet = timerfd()?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let late = |took: f64| (took - TIMEOUT.as_secs_f64() * 1e9).max(0.0);
    // Interrupted by ctrl-C counts as having come.
    let passed = |result: rustix::io::Result<()>| match result {
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    };
    recorder.note(format!("each step arms {EACH} timers more"));
    steps(recorder, "1 ms", ["poll", "epoll_wait", "timerfd", "nanosleep"], n, |i| {
        others(i)?;
        let mut fds = [PollFd::new(&quiet, PollFlags::IN)];
        let (polled, result) = time(|| poll(&mut fds, Some(&timeout)).map(|_| ()));
        passed(result)?;
        let mut events = Vec::with_capacity(1);
        let (epolled, result) = time(|| {
            epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
                .map(|_| ())
        });
        passed(result)?;
        let fd = timerfd()?;
        let (timed, result) = time(|| {
            timerfd_settime(&fd, TimerfdTimerFlags::empty(), &armed(0, 1_000_000))?;
            rustix::io::read(&fd, &mut [0; 8]).map(|_| ())
        });
        passed(result)?;
        let (slept, ()) = time(|| std::thread::sleep(TIMEOUT));
        Ok([late(polled), late(epolled), late(timed), late(slept)])
    })
}

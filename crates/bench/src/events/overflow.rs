//! The limit of SIGIO's queue: its behaviour when more descriptors become ready than it holds.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Descriptors;
use super::ways::{Sigio, Wait as _};
use crate::clock::time;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};
use crate::unit::Unit;

/// Signals that may be queued during the test, beyond those that are queued already.
const QUEUE: u64 = 64;

pub(super) fn test() -> Test {
    Test::new("sigio-overflow", "Cost of SIGIO when its queue of 64 signals overflows", overflow)
        .scales("below the limit an event is a signal; beyond it one poll(2) of all finds the rest")
        .x("descriptors that become ready at once")
        .warm_up("one round")
        .figure(Figure::of(Unit::Nanoseconds).lines())
        .figure(
            Figure::of(Unit::Count).titled("events by how they were found").log_y(false).lines(),
        )
        .level()
        .steps(256, 128)
}

/// The limit of queued signals, put back when dropped.
struct Limit(Rlimit);

impl Limit {
    /// RLIMIT_SIGPENDING (getrlimit(2)) counts the signals of the user, not of the process.
    fn lower() -> rustix::io::Result<Self> {
        let before = getrlimit(Resource::Sigpending);
        let pending = crate::machine::read("/proc/self/status")
            .lines()
            .find_map(|line| line.strip_prefix("SigQ:")?.trim().split('/').next()?.parse().ok())
            .unwrap_or(0);
        setrlimit(Resource::Sigpending, Rlimit { current: Some(pending + QUEUE), ..before })?;
        Ok(Self(before))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // Restores the earlier limit.
        let _ = setrlimit(Resource::Sigpending, self.0);
    }
}

fn overflow(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// Descriptors that each point has more than the one before.
    const STRIDE: usize = 8;
    let _limit = Limit::lower()?;
    let mut rows = Vec::new();
    // Both ends of each.
    let most = recorder.steps_within_descriptors(2).max(STRIDE);
    for ready in (STRIDE..=most).step_by(STRIDE) {
        if recorder.is_stopped() {
            break;
        }
        let Descriptors { active, .. } = Descriptors::new(0, ready)?;
        let (watched, writers): (Vec<_>, Vec<_>) = active.into_iter().unzip();
        let mut sigio = Sigio::new(Vec::new(), watched)?;
        for is_recorded in [false, true] {
            (sigio.overflows, sigio.recovered) = (0, 0);
            for writer in &writers {
                rustix::io::write(writer, &[1])?;
            }
            let (took, result) = time(|| -> std::io::Result<()> {
                let mut seen = 0;
                while seen < ready && !recorder.is_stopped() {
                    seen += sigio.wait()?;
                }
                Ok(())
            });
            result?;
            if !is_recorded || recorder.is_stopped() {
                continue;
            }
            let (x, by_poll) = (float(ready), float(sigio.recovered));
            recorder.record("SIGIO", "time per event", Unit::Nanoseconds, x, took / x);
            recorder.record("SIGIO", "by signal", Unit::Count, x, x - by_poll);
            recorder.record("SIGIO", "by poll after overflow", Unit::Count, x, by_poll);
            let by_signal = (ready - sigio.recovered).to_string();
            let overflows = sigio.overflows.to_string();
            rows.push(vec![ready.to_string(), by_signal, sigio.recovered.to_string(), overflows]);
        }
        recorder.progress(float(ready) / float(most));
    }
    recorder.table(Table {
        title: "Events by how they were found".into(),
        head: ["ready", "by signal", "by poll", "overflows"].map(str::to_owned).into(),
        rows,
    });
    recorder.note(format!(
        "RLIMIT_SIGPENDING is lowered to {QUEUE} for this test. When the queue is full the kernel sends \
         plain SIGIO instead, of which one is pending at most; it is the lower number and so comes first. \
         The reader then polls all descriptors, and signals that are still queued find nothing to do."
    ));
    Ok(())
}

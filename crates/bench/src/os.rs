//! Operating-system scalability: each test does one thing N times and keeps all N results alive.

mod descriptor;
mod file;
mod memory;
mod process;
mod time;
mod uring;

use std::io;

use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};
use crate::unit::Unit;

/// All tests, in the order in which they run.
#[must_use]
pub fn tests() -> Vec<Test> {
    let mut tests = process::tests();
    tests.extend(descriptor::tests());
    tests.extend(memory::tests());
    tests.extend(file::tests());
    tests.extend(time::tests());
    tests.extend(uring::tests());
    tests
}

/// Does `step` for 1 to `steps` and records the nanoseconds that it returns, one for each name in
/// `series`. If the first step fails, the system is left out with the reason. If a later step fails,
/// the series ends there with a note. ctrl-C ends the series as well.
fn steps<const K: usize>(
    recorder: &mut Recorder<'_>,
    system: &str,
    series: [&str; K],
    steps: usize,
    mut step: impl FnMut(usize) -> io::Result<[f64; K]>,
) -> Result<(), Fault> {
    let ids = series.map(|name| recorder.series(system, name, Unit::Nanoseconds, steps));
    for i in 1..=steps {
        if recorder.is_stopped() {
            break;
        }
        match step(i) {
            Ok(values) => {
                for (id, value) in ids.iter().zip(values) {
                    recorder.push(*id, float(i), value);
                }
            }
            Err(error) if i == 1 => {
                recorder.skip(system, format!("the first step failed: {error}"));
                break;
            }
            Err(error) => {
                recorder.note(format!("{system} ended at step {i} of {steps}: {error}"));
                break;
            }
        }
        recorder.progress(float(i) / float(steps));
    }
    Ok(())
}

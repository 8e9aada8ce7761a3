//! Signs of life for the service manager (`WatchdogSec=` of systemd.service(5)). It gets one only while every worker
//! goes on with its worker turns. A disk or an upstream that does not answer stops no worker.

use core::time::Duration;
use std::env;
use std::process;
use std::sync::Arc;
use std::thread;

use crate::control::Workers;
use crate::notify;
use logs::say::say;

/// The time in which each worker has to end a turn.
const WATCHDOG_TURN_MAX: Duration = Duration::from_secs(10);
/// The longest pause between two signs.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Starts the thread that gives signs of life, if the service manager wants some. `is_first` if the manager has started this
/// process, and no earlier process has.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn start(workers: Arc<Workers>, is_first: bool) -> Result<(), String> {
    let read = |name| env::var(name).ok()?.parse::<u64>().ok();
    let Some(pause) = read("WATCHDOG_USEC").and_then(pause) else { return Ok(()) };
    // Of a later process the manager learns by another message, and the environment does not change.
    if is_first && read("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(process::id())) {
        return Ok(());
    }
    let spawned = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        while notify::is_main() {
            // At a stop the manager has another limit.
            match workers.hanging(WATCHDOG_TURN_MAX).filter(|_| !workers.is_stopping()) {
                None => notify::tell("WATCHDOG=1"),
                Some(number) => say(&format!(
                    "worker-{number} has not turned for {} s: the service manager gets no sign of life",
                    WATCHDOG_TURN_MAX.as_secs()
                )),
            }
            thread::sleep(pause);
        }
    });
    spawned.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// The pause between two signs. The manager expects a sign within `microseconds`, and gets at least two.
fn pause(microseconds: u64) -> Option<Duration> {
    (microseconds > 0).then(|| (Duration::from_micros(microseconds) / 3).min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_several_signs_in_the_time_of_one() {
        assert_eq!(pause(0), None);
        assert_eq!(pause(3_000_000), Some(Duration::from_secs(1)));
        assert_eq!(pause(u64::MAX), Some(PAUSE_MAX));
    }
}

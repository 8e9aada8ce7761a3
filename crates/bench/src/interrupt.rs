//! ctrl-C as a flag. Measurements check it between two steps and stop; figures measured before are kept.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Set once, by a signal; never cleared.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The exit code after an interrupt: the one that shells use for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Within this time a further ctrl-C counts as the same one.
const SAME: Duration = Duration::from_secs(1);

/// From now on SIGINT, SIGTERM and SIGHUP set the flag. A line on standard error reports the first ctrl-C, because the
/// cleanup may take seconds. A second one, at least `SAME` later, exits at once with [`EXIT_CODE`], without a cleanup.
/// A second SIGTERM does not, because timeout(1) sends two. SIGHUP stays ignored if it was, as under nohup(1).
///
/// # Errors
/// When the kernel refuses the handlers or a thread.
pub fn catch() -> Result<(), crate::Error> {
    let flag = Arc::clone(FLAG.get_or_init(Arc::default));
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        let failed = |error| format!("cannot catch signal {signal}: {error}");
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(failed)?;
    }
    let failed = |error| format!("cannot catch Ctrl-C: {error}");
    let leaves = Arc::new(AtomicBool::new(false));
    let (code, armed) = (EXIT_CODE.into(), Arc::clone(&leaves));
    signal_hook::flag::register_conditional_shutdown(SIGINT, code, armed).map_err(failed)?;
    let mut signals = Signals::new([SIGINT]).map_err(failed)?;
    let announce = move || {
        if signals.forever().next().is_some() {
            eprintln!(
                "samum-bench: interrupted; what was begun is being ended. A second Ctrl-C leaves at once, and servers, mounts \
                 and limits of disks behind"
            );
            thread::sleep(SAME);
            leaves.store(true, Ordering::Relaxed);
        }
    };
    thread::Builder::new().name("interrupt".to_owned()).spawn(announce).map_err(failed)?;
    Ok(())
}

/// Tells whether our parent process made us ignore a signal (proc(5), `SigIgn`: bit 0 is signal 1).
fn is_ignored(signal: i32) -> bool {
    let status = crate::machine::read("/proc/self/status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// `Interrupted`, if one has come.
///
/// # Errors
/// That.
pub fn check() -> std::io::Result<()> {
    if is_set() {
        return Err(std::io::Error::new(std::io::ErrorKind::Interrupted, "interrupted"));
    }
    Ok(())
}

/// Has one come?
#[must_use]
pub fn is_set() -> bool {
    // Relaxed: the flag publishes no other memory.
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

//! The signals that the server handles, and their actions.

use core::time::Duration;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::spawn;
use crate::control::{Order, Workers};
use crate::exit::{exit, note_stop};
use crate::listen::SocketFiles;
use crate::notify;
use crate::reload::Reply;
use crate::upgrade::{Elders, Reporter, Upgrader};
use config::{Log, LogTarget};
use gateways::programs::supervisor;
use logs::files;
use logs::say::say;

/// The time for removing the names of Unix sockets at the end, because their file system may not
/// respond.
const REMOVE_MAX: Duration = Duration::from_secs(1);

/// The signals that the server handles. SIGWINCH, with which nginx ends its workers after an upgrade, is ignored as by
/// default; so is SIGPIPE.
pub(super) const SIGNALS: [i32; 7] = [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD];

/// The meaning of a signal. A signal that nginx knows has the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Stop after the responses that have begun, or at once if it is the second such signal.
    Stop,
    Reload,
    Reopen,
    /// Let a new process take over.
    Upgrade,
    /// Wait for processes that have ended.
    Children,
}

impl Wish {
    const fn of(signal: i32) -> Self {
        match signal {
            SIGHUP => Self::Reload,
            SIGUSR1 => Self::Reopen,
            SIGUSR2 => Self::Upgrade,
            SIGCHLD => Self::Children,
            // SIGTERM, SIGINT and SIGQUIT.
            _ => Self::Stop,
        }
    }
}

/// The actions for signals that threads of their own do.
pub(super) struct Wishes {
    /// Reopens the logs; true if there should be some.
    pub(super) reopen: SyncSender<bool>,
    /// Loads the configuration again, if the server can.
    pub(super) reload: Option<SyncSender<Option<Reply>>>,
    /// Replaces the process.
    pub(super) upgrader: Arc<Upgrader>,
    /// Earlier processes, which finish their connections.
    pub(super) elders: Arc<Elders>,
    /// Tells the process before, which waits for this one to be ready, that it will not be.
    pub(super) reporter: Reporter,
}

/// Carries out signals until the workers have ended.
pub(super) fn obey_signals(
    mut signals: Signals,
    workers: &Workers,
    wishes: &Wishes,
    socket_files: &Arc<SocketFiles>,
) {
    let mut is_stopping = false;
    for signal in signals.forever() {
        match Wish::of(signal) {
            Wish::Children => supervisor::handle_child_end(),
            Wish::Upgrade => {
                let upgrader = Arc::clone(&wishes.upgrader);
                let upgrade = move || {
                    if upgrader.run().is_ok() {
                        upgrader.leave();
                    }
                };
                if let Err(error) = spawn("upgrade", upgrade) {
                    say(&format!("no upgrade: {error}"));
                }
            }
            Wish::Reopen => reopen(wishes, true),
            Wish::Reload => {
                reopen(wishes, wishes.reload.is_none());
                if let Some(reload) = &wishes.reload {
                    // If the queue is full, a reload will begin soon anyway.
                    let _ = reload.try_send(None);
                }
            }
            Wish::Stop if is_stopping => {
                // After the process has ended, nothing would end them or enforce their limits.
                supervisor::kill_all();
                exit(0);
            }
            Wish::Stop => {
                is_stopping = true;
                // The report below may bring the end of the upgrade, which is another reason to stop.
                note_stop();
                notify::tell("STOPPING=1");
                wishes.reporter.fail("it was told to stop");
                wishes.elders.stop();
                // The names are removed before the sockets are closed, so that no successor mistakes the names for
                // stale ones.
                let files = Arc::clone(socket_files);
                within(REMOVE_MAX, move || files.close());
                workers.stop();
                say(
                    "shutting down after the responses that have begun; a second signal exits at once",
                );
            }
        }
    }
}

/// Orders the logs to be reopened; `is_wanted` if there should be some.
fn reopen(wishes: &Wishes, is_wanted: bool) {
    // If the queue is full, the logs will be reopened soon anyway.
    let _ = wishes.reopen.try_send(is_wanted);
}

/// Reopens the access logs for all workers: the files may have been renamed.
pub(super) fn reopen_logs(logs: &[Log], workers: &Workers, is_wanted: bool) {
    let files = logs.iter().filter_map(|log| match &log.target {
        LogTarget::File(path) => Some((log, path)),
        LogTarget::None | LogTarget::Stdout | LogTarget::Syslog(_) | LogTarget::Journald(_) => None,
    });
    let (mut count, mut told_of) = (0, Vec::new());
    for (log, path) in files {
        count += 1;
        let told = files::open(&log.target).and_then(|file| {
            let order = |file| Order::Log(log.clone(), file);
            workers.tell(order, &file).map_err(|error| format!("cannot tell a worker: {error}"))
        });
        match told {
            Ok(()) => told_of.push(path),
            Err(error) => say(&format!("{error}; logging continues to the old file")),
        }
    }
    // After this no write to an old file begins, so the file may be compressed.
    if !told_of.is_empty() && !workers.finish() {
        say(
            "a worker is busy: it goes on with the old log files until it has time for the new ones",
        );
    }
    for path in told_of {
        say(&format!("reopened {}", path.display()));
    }
    if count == 0 && is_wanted {
        say("there is no log file to reopen");
    }
}

/// Runs a call that may sleep for ever on a thread of its own, and waits for it at most `limit`.
fn within(limit: Duration, act: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let acting = move || {
        act();
        // The call fails if the wait is over.
        let _ = done.send(());
    };
    if spawn("cleanup", acting).is_ok() {
        // After the limit the server continues without it.
        let _ = ended.recv_timeout(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_ask_for_what_nginx_understands_by_them() {
        for (signal, wish) in [
            (SIGTERM, Wish::Stop),
            (SIGINT, Wish::Stop),
            (SIGQUIT, Wish::Stop),
            (SIGHUP, Wish::Reload),
            (SIGUSR1, Wish::Reopen),
            (SIGUSR2, Wish::Upgrade),
            (SIGCHLD, Wish::Children),
        ] {
            assert!(SIGNALS.contains(&signal));
            assert_eq!(Wish::of(signal), wish, "{signal}");
        }
    }
}

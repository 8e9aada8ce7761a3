//! The workers, and their shares in the descriptors of the process.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::thread;

use rustix::io::fcntl_dupfd_cloexec;

use crate::descriptors;
use config::{Listen, Server};
use handler::serving::Snapshot;

/// The size of the kernel's descriptor table from the start, or twice the maximum number of connections if that is
/// more. It takes 512 KiB of kernel memory.
pub(crate) const DESCRIPTORS_AT_ONCE: usize = 1 << 16;
/// The least number of descriptors for directories and listeners of later configurations.
const ROOM_MIN: usize = 32;
/// They get this part of the process's descriptors if that is more.
const ROOM_PART: usize = 8;

/// Memory of a worker that has answered a few requests (measured).
const WORKER_MEMORY_MIB: f64 = 1.1;
/// Memory that a worker may fill: finished responses (64 MiB) and buffers of its disk (16 MiB).
const WORKER_MEMORY_MAX_MIB: usize = 80;
/// Threads that may sleep for a worker: its own and the kernel's (`ring::Shares` and io_uring).
const WORKER_THREADS_MAX: usize = 320;
/// The number of workers per core beyond which their cost is reported.
const WORKERS_PER_CORE: usize = 4;

/// The descriptors for directories and listeners, in addition to those of connections and files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The number of workers, each of which has a descriptor for each listener.
    pub(crate) threads: usize,
    /// The maximum.
    pub(crate) max: usize,
}

impl Room {
    /// The number of descriptors that these directories and listeners need.
    pub(crate) const fn needed(roots: usize, listeners: usize, threads: usize) -> usize {
        roots.saturating_add(listeners.saturating_mul(threads))
    }

    /// Returns an error for the operator if there is no room for the new parts of a configuration in addition to those
    /// of the served one: both are open for a moment.
    pub(crate) fn check(self, served: &Snapshot, next: &Snapshot) -> Result<(), String> {
        let Self { threads, max } = self;
        let paths: HashSet<&PathBuf> = served.roots().iter().collect();
        let numbers: HashSet<u32> = served.listeners().iter().map(|(number, _)| *number).collect();
        let roots = next.roots().iter().filter(|path| !paths.contains(path)).count();
        let is_new = |(number, _): &&(u32, Listen)| !numbers.contains(number);
        let listeners = next.listeners().iter().filter(is_new).count();
        let open = Self::needed(served.roots().len(), served.listeners().len(), threads);
        let needed = Self::needed(roots, listeners, threads);
        if open.saturating_add(needed) <= max {
            return Ok(());
        }
        Err(format!(
            "{roots} new directories and {listeners} new listeners of {threads} workers need {needed} \
             descriptors, and while the server runs there are {} for them: restart it",
            max.saturating_sub(open),
        ))
    }
}

/// The numbers of workers, and their shares in the resources of the process.
#[derive(Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) cores: usize,
    pub(crate) workers: usize,
    pub(crate) room: Room,
    /// Descriptors of the process.
    pub(crate) limit: usize,
    /// Descriptors of each worker for connections and files.
    pub(crate) descriptors: usize,
    /// Connections of all workers.
    pub(crate) connections: usize,
}

impl Shares {
    /// The maximum number of connections of one worker that wait to be accepted.
    pub(crate) const fn waiting_max(self) -> usize {
        self.descriptors / descriptors::PARTS
    }
}

/// Divides the descriptors of `limit`, without those of `room`, among the workers.
pub(crate) fn share(
    server: &Server,
    limit: usize,
    room: Room,
    workers: usize,
    has_sockets: bool,
) -> Result<Shares, String> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // `descriptors::OF_WORKER` includes one directory and one listener of each worker.
    let beyond = room.max.saturating_sub(Room::needed(1, 1, server.threads));
    let descriptors = descriptors::of_worker(limit, beyond, workers, cores)?;
    // A connection of a stack has no descriptor.
    let places_max =
        if has_sockets { descriptors::places(descriptors, workers) } else { usize::MAX };
    let connections = server.tuning.connections_max.min(places_max);
    Ok(Shares { cores, workers, room, limit, descriptors, connections })
}

/// Checks if the workers of a server would have enough descriptors, in addition to those of interfaces.
pub(crate) fn have_descriptors(server: &Server, snapshot: &Snapshot) -> Result<(), String> {
    let limit = rights::descriptors::limit();
    let room = room(limit, server.threads, snapshot, true)?;
    share(server, limit, room, server.threads, true).map(drop)
}

/// The descriptors for directories and listeners: those of the configuration, and some for later configurations if it
/// is replaceable.
pub(crate) fn room(
    limit: usize,
    threads: usize,
    snapshot: &Snapshot,
    is_replaceable: bool,
) -> Result<Room, String> {
    let (roots, listeners) = (snapshot.roots().len(), snapshot.listeners().len());
    let needed = Room::needed(roots, listeners, threads);
    let reserved = descriptors::reserved(limit);
    let rest = limit.saturating_sub(reserved);
    // A single worker with one directory starts with any number.
    if needed > rest && roots > 1 {
        return Err(format!(
            "{roots} directories and {listeners} listeners of {threads} workers need {needed} \
             descriptors beside {reserved} others, and `ulimit -Hn` allows {limit}: raise it"
        ));
    }
    let growth = if is_replaceable { ROOM_MIN.max(limit / ROOM_PART).min(rest / 4) } else { 0 };
    Ok(Room { threads, max: needed.saturating_add(growth).min(rest.max(needed)) })
}

/// A message about the cost of many workers, for operators who think that each connection needs a worker.
pub(crate) fn cost_of_workers(workers: usize, cores: usize) -> Option<String> {
    (workers > cores.saturating_mul(WORKERS_PER_CORE)).then(|| {
        #[expect(clippy::cast_precision_loss, reason = "a rounded figure for a person")]
        let least = workers as f64 * WORKER_MEMORY_MIB;
        let most = workers.saturating_mul(WORKER_MEMORY_MAX_MIB);
        let threads = workers.saturating_mul(WORKER_THREADS_MAX + 1);
        format!(
            "{workers} workers for {cores} cores cost {least:.0} to {most} MiB of memory, {} descriptors and \
             up to {threads} threads, and are no faster than {cores}: one worker serves thousands of clients",
            workers.saturating_mul(descriptors::OF_WORKER),
        )
    })
}

/// Makes the kernel's table of descriptors grow now, while there is one thread. The table doubles when it is full. In a
/// process with several threads the kernel then waits until no CPU can use the old table (`expand_fdtable` in
/// fs/file.c): the worker that accepts would sleep for milliseconds.
pub(crate) fn grow_descriptor_table(count: usize) {
    let last = i32::try_from(count).unwrap_or(i32::MAX) - 1;
    // If it fails, the table grows later.
    let _ = fcntl_dupfd_cloexec(io::stderr(), last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_workers_give_a_message_about_their_cost() {
        assert_eq!(cost_of_workers(8, 2), None);
        let text = cost_of_workers(300, 2).unwrap();
        assert!(
            text.starts_with("300 workers for 2 cores cost 330 to 24000 MiB of memory, 2400 "),
            "{text}"
        );
    }
}

//! The list of the processes of all programs, and the signals for these processes. The search for the processes takes
//! many system calls, so it has a thread of its own.
//!
//! Processes that get SIGTERM get SIGKILL after `PATIENCE`, also if their program is over by then.
//!
//! The thread also waits for orphans that the server has adopted, so that they leave no zombies. Each `Process` waits
//! for its own leader.

use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, getpid, kill_process_group, set_child_subreaper};

use super::descendants::{self, Scope, Traces};

/// The time from SIGTERM to SIGKILL.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The most passes that look for processes to kill, because processes may start others meanwhile.
const KILL_PASSES_MAX: usize = 20;
/// The passes in a row that must find nothing. If the parent of a process ends during a pass, this pass may miss the
/// process. The process leaves a list of children that the pass has yet to read for a list that the pass has read.
const EMPTY_PASSES: usize = 2;
/// The pause between two passes, in which processes end.
const KILL_PAUSE: Duration = Duration::from_millis(5);
/// The time after which orphans are looked for again, while there are some.
const ORPHANS_PAUSE: Duration = Duration::from_secs(1);
/// The same time while a program is being started whose process is not known yet.
const START_PAUSE: Duration = Duration::from_millis(20);

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
/// Notified when there is work.
static WORK: Condvar = Condvar::new();

#[derive(Debug, Default)]
struct State {
    /// The programs whose leaders have not been waited for.
    programs: HashMap<Pid, Arc<Traces>>,
    /// Programs that are being started. Their processes may be children that are not known yet, and no orphans.
    starts: usize,
    /// At most two for each program that was started.
    orders: VecDeque<Order>,
    /// The order that is being carried out.
    current: Option<Order>,
    /// Orders to kill processes that have got SIGTERM, with their times.
    later: VecDeque<(Instant, Order)>,
    has_thread: bool,
    /// True if all other children are adopted orphans.
    adopts: bool,
    /// True if a child may have ended.
    may_reap: bool,
    /// True once the server ends.
    is_closed: bool,
}

/// A signal for the processes of a program.
#[derive(Clone, Debug)]
struct Order {
    traces: Arc<Traces>,
    signal: Signal,
    scope: Scope,
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn leaders(&self) -> HashSet<Pid> {
        self.programs.keys().copied().collect()
    }

    /// Waits for orphans that have ended. Returns the time after which it is to be called again.
    fn reap_orphans(&self) -> Option<Duration> {
        if !self.adopts {
            return None;
        }
        // While the lock is held, no program is started, so a child that is not known is an orphan.
        if self.starts > 0 {
            return Some(START_PAUSE);
        }
        let mut children = descendants::children(getpid());
        children.retain(|child| !self.programs.contains_key(child) && !descendants::reap(*child));
        (!children.is_empty()).then_some(ORPHANS_PAUSE)
    }
}

/// A program that is being started. Until this is dropped, no child counts as an orphan.
#[derive(Debug)]
pub(super) struct Start(());

impl Start {
    /// Begins the start of a program; `None` if the server ends.
    pub(super) fn begin() -> Option<Self> {
        let mut state = lock();
        if state.is_closed {
            return None;
        }
        state.starts += 1;
        Some(Self(()))
    }

    /// Adds a program that was started.
    pub(super) fn add(&self, traces: Arc<Traces>) {
        let mut state = lock();
        state.programs.insert(traces.leader.0, traces);
        if !state.has_thread {
            let spawned = thread::Builder::new().name("cgi-end".to_owned()).spawn(run);
            // Without the thread only groups get signals, until the next program is started.
            state.has_thread = spawned.is_ok();
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let mut state = lock();
        state.starts -= 1;
        // The start may have kept the thread from waiting for orphans.
        state.may_reap = true;
        WORK.notify_all();
    }
}

/// Waits for the leader of a program, which has ended. If the leader still runs, it is later waited for as an orphan.
pub(super) fn reap(leader: Pid) {
    let mut state = lock();
    // The lock is held, so that no signal is sent to the next process with this number.
    state.programs.remove(&leader);
    descendants::reap(leader);
    state.may_reap = true;
    WORK.notify_all();
}

/// Orders a signal to be sent to the processes of a program.
pub(super) fn signal(traces: &Arc<Traces>, signal: Signal, scope: Scope) {
    lock().orders.push_back(Order { traces: Arc::clone(traces), signal, scope });
    WORK.notify_all();
}

/// Makes the server the parent of processes whose own parents have ended. All children of the server's process are then
/// programs, or come from programs.
pub fn adopt_orphans() {
    // If the call fails, processes that have lost their parents are not found.
    let _ = set_child_subreaper(Some(getpid()));
    lock().adopts = true;
}

/// Records that a child may have ended.
pub fn handle_child_end() {
    let mut state = lock();
    state.may_reap = true;
    WORK.notify_all();
}

/// Kills the processes of all programs, because the server ends.
pub fn kill_all() {
    let (left, leaders) = {
        let mut state = lock();
        state.is_closed = true;
        // The lock is held, so that none of the numbers changes its meaning.
        for leader in state.programs.keys() {
            // The call fails for the same reason as in `Process::signal`.
            let _ = kill_process_group(*leader, Signal::KILL);
        }
        let whole = |traces: &Arc<Traces>| (Arc::clone(traces), Scope::All);
        let mut left: Vec<_> = state.programs.values().map(whole).collect();
        let State { orders, current, later, .. } = &mut *state;
        let later = later.drain(..).map(|(_, order)| order);
        let killed = orders.drain(..).chain(current.clone()).chain(later);
        let killed = killed.filter(|order| order.signal == Signal::KILL);
        left.extend(killed.map(|order| (order.traces, order.scope)));
        (left, state.leaders())
    };
    kill(left, &leaders);
}

/// Kills the processes of programs, and the processes that these start meanwhile.
fn kill(programs: Vec<(Arc<Traces>, Scope)>, leaders: &HashSet<Pid>) {
    let mut left: Vec<_> = programs.into_iter().map(|program| (program, 0)).collect();
    for _ in 0..KILL_PASSES_MAX {
        left.retain_mut(|((traces, scope), empty)| {
            let is_empty = traces.signal(Signal::KILL, scope, leaders).is_empty();
            *empty = if is_empty { *empty + 1 } else { 0 };
            *empty < EMPTY_PASSES
        });
        if left.is_empty() {
            return;
        }
        thread::sleep(KILL_PAUSE);
    }
}

/// Carries out orders for as long as the process runs.
fn run() {
    let mut state = lock();
    loop {
        if let Some(order) = state.orders.pop_front() {
            let leaders = state.leaders();
            state.current = Some(order.clone());
            drop(state);
            let next = carry_out(&order, &leaders);
            state = lock();
            state.current = None;
            state.later.extend(next.map(|next| (Instant::now() + PATIENCE, next)));
            continue;
        }
        let now = Instant::now();
        if let Some((at, _)) = state.later.front()
            && *at <= now
            && let Some((_, order)) = state.later.pop_front()
        {
            state.orders.push_back(order);
            continue;
        }
        let pause = if core::mem::take(&mut state.may_reap) { state.reap_orphans() } else { None };
        let until_next = state.later.front().map(|(at, _)| *at - now);
        // If an order wakes the thread, it looks for orphans once more than needed.
        let pause = pause.into_iter().chain(until_next).min();
        state = match pause {
            Some(pause) => {
                let (mut state, waited) =
                    WORK.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
                state.may_reap |= waited.timed_out();
                state
            }
            None => WORK.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// Sends a signal to the processes of a program. Returns an order for later, if there is one.
fn carry_out(Order { traces, signal, scope }: &Order, leaders: &HashSet<Pid>) -> Option<Order> {
    if *signal == Signal::KILL {
        kill(vec![(Arc::clone(traces), scope.clone())], leaders);
        return None;
    }
    let mut reached = Vec::new();
    for _ in 0..EMPTY_PASSES {
        reached = traces.signal(*signal, scope, leaders);
        if !reached.is_empty() {
            break;
        }
        thread::sleep(KILL_PAUSE);
    }
    if reached.is_empty() {
        return None;
    }
    let scope = match scope {
        Scope::All => Scope::All,
        Scope::Holders | Scope::Known(_) => Scope::Known(reached),
    };
    Some(Order { traces: Arc::clone(traces), signal: Signal::KILL, scope })
}

//! The handshakes of a worker: which step of which connection is taken when, and by which thread.
//!
//! A step that signs with an elliptic curve takes 0.15 ms with its key exchange. It is taken by the worker, in a part of its turn. A step that
//! signs with RSA takes 0.8 ms, so a helper thread makes it. Steps of both kinds wait in a queue, and clients take
//! turns.
//!
//! Bytes of other connections never wait here: a worker turn has handled all events before it makes a step. Under a
//! flood the steps get as much time as everything else in the turn, and one step at least.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ring::{Beside, Ring, Time};
use session::kind;
use session::limits::ClientKey;
use tls::{Refusal, RefusedClient, Slot, Step, Steps, Wish};

use super::quantum::Quantum;
use super::queue::Queue;

/// The most steps in each queue. One queue is for the worker, which does this many in 0.15 s, and one is for the
/// helper, which does them in 0.8 s. A step that waits holds up to 8 KiB. While no other client waits, one may use all
/// slots: several clients may share its address.
const WAITING_MAX: usize = 1024;
/// A step that has waited for so long is refused: browsers have given up by then, or ask for the third time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The time between two looks for steps that have waited for so long.
const LOOK: Duration = Duration::from_millis(250);
/// Steps that the helper has: one to take, and one to go on with while the worker looks for the next.
const RUNNING_MAX: usize = 2;
/// The time between two messages about refused connections.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

/// The steps of the handshakes of a worker.
#[derive(Debug)]
pub(super) struct Handshakes {
    wishes: Rc<Steps>,
    /// The steps for the worker.
    short: Waiting,
    /// The steps for the helper.
    long: Waiting,
    helper: Helper,
    /// The connections whose steps the helper has, in order.
    running: VecDeque<Rc<Slot>>,
    /// The connections whose steps are refused and that are not closed yet.
    refused: VecDeque<Rc<Slot>>,
    /// The time for a look at what has waited for too long.
    look_at: Time,
    /// The part of the present worker turn for steps and refusals.
    quantum: Quantum,
    unsaid: Unsaid,
    /// The clients that were refused because of their certificates, by reason.
    refusals: BTreeMap<Refusal, Refusals>,
    /// A message about one of them.
    told: Option<String>,
}

type Waiting = Queue<Option<ClientKey>, (Rc<Slot>, Step)>;

/// The thread that makes long steps.
#[derive(Debug)]
enum Helper {
    /// There was no long step yet.
    None,
    Running(Beside<Step>),
    /// The system has no thread for it: the worker makes long steps, too.
    Impossible,
}

/// Refused connections that no message has reported yet.
#[derive(Debug, Default)]
struct Unsaid {
    /// Refused connections since the last message.
    count: u64,
    /// The client of the last one, if it is known.
    client: Option<core::net::IpAddr>,
    /// The time of the last message.
    said_at: Option<Time>,
}

/// The refused clients of one reason that no message has reported yet.
#[derive(Debug, Default)]
struct Refusals {
    /// Clients since the last message.
    count: u64,
    /// The time of the last message.
    said_at: Option<Time>,
}

/// The result of a step for its connection.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A step was taken.
    Ready(u64),
    /// The step is not taken: the connection is to be closed.
    Refused(u64),
    /// A message for the operator about refused connections.
    Told(String),
    /// A message for the operator about a refused certificate. Messages about one reason have pauses between them.
    Noted(String),
}

impl Handshakes {
    pub(super) fn new() -> Self {
        Self {
            wishes: Rc::default(),
            short: Queue::new(WAITING_MAX),
            long: Queue::new(WAITING_MAX),
            helper: Helper::None,
            running: VecDeque::new(),
            refused: VecDeque::new(),
            look_at: Time::from_nanos(0),
            quantum: Quantum::default(),
            unsaid: Unsaid::default(),
            refusals: BTreeMap::new(),
            told: None,
        }
    }

    /// The queue in which transports put their steps.
    pub(super) fn steps(&self) -> Rc<Steps> {
        Rc::clone(&self.wishes)
    }

    /// Returns true if there is something to do that no event brings. The end of a step of the helper is an event.
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        !self.short.is_empty() || !self.refused.is_empty() || !self.wishes.is_empty()
    }

    /// Ends the part of the present worker turn.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        self.quantum = Quantum::default();
    }

    /// The next outcome in this worker turn, until its time is over.
    #[inline]
    pub(super) fn next(&mut self, ring: &mut Ring) -> Option<Outcome> {
        if !self.wants_turn() && self.long.is_empty() && self.running.is_empty() {
            return None;
        }
        self.advance(ring)
    }

    fn advance(&mut self, ring: &mut Ring) -> Option<Outcome> {
        let now = ring.now();
        self.take_wishes(now);
        self.give_up(now);
        if let Some(text) = self.told.take() {
            return Some(Outcome::Noted(text));
        }
        self.next_refused(now)
            .or_else(|| self.next_of_helper(ring))
            .or_else(|| self.next_of_worker(ring, now))
    }

    /// Puts the steps for which transports ask into the queues, and takes out those that are not wanted any more.
    fn take_wishes(&mut self, now: Time) {
        while self.told.is_none()
            && let Some(wish) = self.wishes.next()
        {
            match wish {
                Wish::Tell(refused) => {
                    let refusals = self.refusals.entry(refused.refusal).or_default();
                    self.told = refusals.note(&refused, now);
                }
                Wish::Take(slot, step) => {
                    let key = key_of(&slot);
                    let queue = if step.is_long() { &mut self.long } else { &mut self.short };
                    let refused = queue.enter(key, (slot, step), now);
                    self.refuse(refused);
                }
                Wish::Leave(slot) => {
                    let is_it = |(other, _): &(Rc<Slot>, Step)| Rc::ptr_eq(other, &slot);
                    for queue in [&mut self.short, &mut self.long] {
                        queue.remove(key_of(&slot), is_it);
                    }
                }
            }
        }
    }

    /// Gives up the steps that have waited for too long.
    fn give_up(&mut self, now: Time) {
        if now >= self.look_at {
            self.look_at = now + LOOK;
            let mut expired = self.short.expire(now, WAIT_MAX);
            expired.extend(self.long.expire(now, WAIT_MAX));
            self.refuse(expired);
        }
    }

    fn refuse(&mut self, all: impl IntoIterator<Item = (Rc<Slot>, Step)>) {
        for (slot, _) in all {
            slot.refuse();
            self.unsaid.count += 1;
            self.unsaid.client = slot.client();
            self.refused.push_back(slot);
        }
    }

    fn next_refused(&mut self, now: Time) -> Option<Outcome> {
        if let Some(text) = self.unsaid.next(now) {
            return Some(Outcome::Told(text));
        }
        if self.refused.is_empty() || !self.quantum.take_refusal() {
            return None;
        }
        let slot = self.refused.pop_front()?;
        Some(Outcome::Refused(slot.id()))
    }

    /// A step that the helper has taken. The helper gets others, as many as it can have.
    fn next_of_helper(&mut self, ring: &mut Ring) -> Option<Outcome> {
        while self.running.len() < RUNNING_MAX
            && !self.long.is_empty()
            && let Some(helper) = self.helper.get(ring)
            && let Some((slot, step)) = self.long.next()
        {
            if helper.submit(step) {
                self.running.push_back(slot);
            } else {
                // A step has panicked; the thread has ended with it.
                self.helper = Helper::Impossible;
                self.refused.extend(self.running.drain(..).chain([slot]));
                self.refused.iter().for_each(|slot| slot.refuse());
            }
        }
        let Helper::Running(helper) = &mut self.helper else { return None };
        let stepped = helper.take()?;
        let slot = self.running.pop_front()?;
        slot.finish(stepped);
        Some(Outcome::Ready(slot.id()))
    }

    /// Makes a step, if there is time.
    fn next_of_worker(&mut self, ring: &Ring, now: Time) -> Option<Outcome> {
        if !self.quantum.has_time(now) {
            return None;
        }
        let next = match self.helper {
            Helper::Impossible => self.short.next().or_else(|| self.long.next()),
            Helper::None | Helper::Running(_) => self.short.next(),
        };
        let (slot, step) = next?;
        self.quantum.note_step(ring.woke_at(), now);
        slot.finish(step.take());
        Some(Outcome::Ready(slot.id()))
    }
}

impl Helper {
    /// The thread, which the first call starts.
    fn get(&mut self, ring: &mut Ring) -> Option<&mut Beside<Step>> {
        if let Self::None = self {
            *self = ring.beside("handshakes", kind::WAKE).map_or(Self::Impossible, Self::Running);
        }
        match self {
            Self::Running(helper) => Some(helper),
            Self::None | Self::Impossible => None,
        }
    }
}

impl Unsaid {
    /// The message that is due.
    fn next(&mut self, now: Time) -> Option<String> {
        let is_due = |said_at: Time| now.since(said_at) >= TOLD_INTERVAL;
        if self.count == 0 || !self.said_at.is_none_or(is_due) {
            return None;
        }
        self.said_at = Some(now);
        let count = core::mem::take(&mut self.count);
        let client = self.client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
        Some(format!(
            "{client} asks for more TLS handshakes than its share of what this worker can do; connections that were \
             refused because of that, of all clients, since the last such message: {count}"
        ))
    }
}

impl Refusals {
    /// Notes a client. Returns the message that is due.
    fn note(&mut self, refused: &RefusedClient, now: Time) -> Option<String> {
        self.count += 1;
        if self.said_at.is_some_and(|said_at| now.since(said_at) < TOLD_INTERVAL) {
            return None;
        }
        self.said_at = Some(now);
        let RefusedClient { refusal, client, host } = refused;
        let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
        let host = host.as_ref().map(|host| format!(" for {host}")).unwrap_or_default();
        let others = match core::mem::take(&mut self.count) - 1 {
            0 => String::new(),
            others => format!(
                "; other clients that this worker has refused for the same reason since the last such message: {others}"
            ),
        };
        Some(format!("{client} was refused in its TLS handshake{host}: {refusal}{others}"))
    }
}

/// The client in whose line the steps of a connection wait.
fn key_of(slot: &Slot) -> Option<ClientKey> {
    slot.client().map(ClientKey::new)
}

//! The bodies of requests, from the time when they are offered until a gateway gets them.
//!
//! If the head of a request announces a body longer than `max-body`, the guard of the route refuses the request before
//! anything uses the body. The session's decoder limits a body in chunks. If such a body becomes too long while the
//! handler still searches for the answer, the session reports the excess to the consumer. The gateway then responds
//! with 413. Later the session itself refuses the request.
//!
//! If a client ends its sending direction within a body, its request gets no response, and the log has a line with 499.
//! A request with malformed chunks gets a 400. In each of these cases the consumer is dropped without a call of
//! [`Consumer::end`]. This drop tells the gateway about the fault. If a response has already begun and is not complete,
//! the gateway cuts the response off and closes the connection to its upstream. The session counts a fault of the
//! client.
//!
//! A program and an application must be given a length, so a body in chunks is collected for them: in memory, and
//! beyond `buffer` in a file without a name. Memory and files are shared out among clients; all workers share the
//! files.
//!
//! A client that waits for `100 Continue` gets this response when its request is the next one and something uses the
//! body. If the answer is known without the body, the client gets the answer. Then the connection is closed, because
//! the bytes that follow could be the body or another request.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::Framing;
use ring::{Completion, Key, Op, Slab, Time, Token};

use super::input::body_queue::BodyQueue;
use super::input::collected::{Collected, Fault, POOL_BYTES_MAX, Pool, Step, Storage, Wait};
use super::input::parts::Parts;
use super::input::{COLLECTED_BYTES_MAX, Input, InputConsumer, Stage};
use super::interest::News;
use crate::quota::{self, Holder, Quota};
use config::errno::words;
use session::handler::{Consumer, Ticket};
use session::kind::id_of;
use session::shell::{Complaint, Shell};

/// Bytes of bodies in memory beyond which some bodies go to files, so that there is room while the files are made.
const SPILLED_FROM: u64 = POOL_BYTES_MAX / 4 * 3;
/// When bodies go to files, this many bytes may stay in memory. Bytes that are being written are not counted.
const SPILLED_TO: u64 = POOL_BYTES_MAX / 2;
/// The number of further bytes after which the choice of bodies for files is made again.
const LOOK_BYTES: u64 = COLLECTED_BYTES_MAX / 4;
/// The free bytes at which clients that found no room go on.
const WAKE_BYTES: u64 = 64 * 1024;
/// A body is given up after this time if an operation of the disk (open, write, read) has not ended, or if no other
/// file has made room for the body's file.
const PATIENCE: Duration = Duration::from_secs(2);

/// The bodies of the requests for the gateways of one kind.
///
/// A program or a process of an application that has a request does nothing else, and must be given the length of the
/// body. So a body of unknown length is collected first, and so is a body that fits into memory. Of a longer body of
/// known length a part is collected. So clients that send slowly need some memory, and no process.
///
/// The memory is shared out among clients. When memory becomes scarce, the longest bodies of the client that uses most
/// memory are moved to files. No request is refused. Files are shared out in the same way ([`Quota`]). When the room
/// for files becomes scarce, the client that uses most of the room gets a 503.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// The kind of the tokens of its file operations.
    kind: Token,
    /// The bound of the files of all bodies.
    quota: Arc<Quota>,
    /// The body that was offered last, for the request that the gateway gets next.
    offered: Option<(Ticket, Rc<RefCell<Input>>)>,
    /// The bodies that are collected whole.
    collected: BodyQueue,
    pool: Rc<Pool>,
    /// Bytes in memory when bodies for files were last chosen.
    looked_at: u64,
    flights: Slab<Flight>,
    /// The bodies with files.
    files: Vec<Weak<RefCell<Input>>>,
    /// The bodies that wait for room in the quota of files, and since when.
    lined_up: Vec<(Weak<RefCell<Input>>, Time)>,
    /// The bodies of which a part is collected.
    parts: Rc<Parts>,
}

/// An operation of a file that is in flight.
#[derive(Debug)]
struct Flight {
    body: Weak<RefCell<Input>>,
    operation: Key,
    since: Time,
    /// Keeps the file's bytes in the quota until the last operation has ended.
    _reservation: Rc<quota::Reservation>,
}

/// The part of a body that a gateway needs before it begins.
#[derive(Clone, Debug)]
pub enum Needs {
    /// Nothing: an upstream receives a body while it comes.
    Nothing,
    /// All of it: a program or an application must be given the length first, and does nothing else while it waits.
    All {
        /// If a body of known length is too long to be collected whole, only its first part is collected. This is the
        /// length of this part.
        part: u64,
        /// The storage of a body that is collected whole.
        storage: Storage,
    },
}

impl Bodies {
    /// Creates a `Bodies` without bodies. The file operations of the bodies will carry tokens of this kind. All workers
    /// share the bound of the files.
    pub(crate) fn new(kind: Token, quota: Arc<Quota>) -> Self {
        Self {
            kind,
            quota,
            offered: None,
            collected: BodyQueue::default(),
            pool: Rc::default(),
            looked_at: 0,
            flights: Slab::new(),
            files: Vec::new(),
            lined_up: Vec::new(),
            parts: Rc::default(),
        }
    }

    /// Offers the body of a request. The next call of [`take`](Self::take) for this request returns the body. The body
    /// has `bytes_max` bytes at most. With `awaits_tunnel` a tunnel may follow the body.
    pub(crate) fn offer(
        &mut self,
        ticket: Ticket,
        framing: Framing,
        needs: Needs,
        (bytes_max, awaits_tunnel): (u64, bool),
        news: &Rc<RefCell<News>>,
    ) -> Box<dyn Consumer> {
        let new = |stage| Rc::new(RefCell::new(Input::new(stage, Rc::clone(news))));
        let is_long = matches!(framing, Framing::Length(length) if length > COLLECTED_BYTES_MAX);
        let input = match needs {
            Needs::Nothing => new(Stage::Streamed),
            Needs::All { part, .. } if is_long => {
                let input = new(Parts::stage(&self.parts, part));
                if input.borrow().is_collected() {
                    self.parts.push(&input);
                }
                input
            }
            Needs::All { storage, .. } => {
                let input = Rc::new_cyclic(|this| {
                    let collected = Collected::new(Weak::clone(this), ticket, &self.pool, storage);
                    RefCell::new(Input::new(Stage::Whole(Box::new(collected)), Rc::clone(news)))
                });
                self.collected.push(&input);
                input
            }
        };
        self.offered = Some((ticket, Rc::clone(&input)));
        Box::new(InputConsumer { input, bytes_max, awaits_tunnel })
    }

    /// Takes the body of a request, if one was offered.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Rc<RefCell<Input>>> {
        self.offered.take_if(|(of, _)| *of == ticket).map(|(_, input)| input)
    }

    /// Gives back the body of a request. The next call of [`take`](Self::take) for this request returns the body again.
    pub(crate) fn give_back(&mut self, ticket: Ticket, input: Rc<RefCell<Input>>) {
        self.offered = Some((ticket, input));
    }

    /// Does the file operations that bodies need. `woken` gets the requests whose clients can go on. Returns true if
    /// anything was done.
    #[inline]
    pub(crate) fn go_on(&mut self, shell: &mut Shell, woken: &mut VecDeque<Ticket>) -> bool {
        // In most worker turns no body is collected.
        if self.pool.is_idle() {
            self.looked_at = 0;
            return false;
        }
        self.go_on_with_some(shell, woken)
    }

    #[inline(never)]
    fn go_on_with_some(&mut self, shell: &mut Shell, woken: &mut VecDeque<Ticket>) -> bool {
        self.make_room();
        let mut has_some = false;
        loop {
            let wanting = self.pool.wanting.take();
            if wanting.is_empty() {
                break;
            }
            has_some = true;
            for body in wanting.iter().filter_map(Weak::upgrade) {
                self.drive(shell, &body, woken);
            }
        }
        if self.pool.starves.get() && self.pool.bytes.get() + WAKE_BYTES <= POOL_BYTES_MAX {
            self.pool.starves.set(false);
            let starving = self.collected.all().filter(|body| body.borrow_mut().take_starving());
            woken.extend(starving.filter_map(|body| body.borrow().ticket()));
        }
        has_some
    }

    /// Handles the completion of an operation of a file.
    pub(crate) fn handle(
        &mut self,
        shell: &mut Shell,
        completion: Completion,
        woken: &mut VecDeque<Ticket>,
    ) {
        let Some(flight) = self.flights.remove(Key::from_bits(id_of(completion.token))) else {
            return;
        };
        if let Some(body) = flight.body.upgrade() {
            let next = body.borrow_mut().handle_step(completion.result);
            match next {
                Ok(Some(step)) => self.submit(shell, &body, step),
                Ok(None) => {}
                Err(fault) => self.give_up(shell, &body, &fault),
            }
        }
        self.go_on(shell, woken);
    }

    /// Gives up bodies whose files take too long, and bodies whose files have to make room for others.
    pub(crate) fn handle_tick(&mut self, shell: &mut Shell, woken: &mut VecDeque<Ticket>) {
        if self.flights.is_empty() && self.files.is_empty() && self.lined_up.is_empty() {
            self.looked_at = 0;
            self.go_on(shell, woken);
            return;
        }
        let now = shell.cx.now;
        let is_overdue = |since: Time| now.since(since) >= PATIENCE;
        let late = self.flights.iter().filter(|(_, flight)| is_overdue(flight.since));
        let late: Vec<_> = late.filter_map(|(_, flight)| flight.body.upgrade()).collect();
        for body in late.iter().filter(|body| body.borrow().has_file()) {
            self.give_up(shell, body, &silence());
        }
        self.files.retain(|body| body.strong_count() > 0);
        let gives_way =
            |body: &Weak<RefCell<Input>>| body.upgrade().filter(|body| body.borrow().gives_way());
        let giving_way: Vec<_> = self.files.iter().filter_map(gives_way).collect();
        for body in giving_way {
            self.give_up(shell, &body, &Fault::NoRoom);
        }
        for (body, since) in core::mem::take(&mut self.lined_up) {
            let Some(body) = body.upgrade() else { continue };
            if is_overdue(since) {
                self.give_up(shell, &body, &Fault::NoRoom);
            } else {
                self.lined_up.push((Rc::downgrade(&body), since));
                self.drive(shell, &body, woken);
            }
        }
        self.looked_at = 0;
        self.go_on(shell, woken);
    }

    /// Begins the next operation of a body.
    fn drive(
        &mut self,
        shell: &mut Shell,
        body: &Rc<RefCell<Input>>,
        woken: &mut VecDeque<Ticket>,
    ) {
        let next = body.borrow_mut().next_step(&self.quota);
        let place = self.lined_up.iter().position(|(it, _)| it.as_ptr() == Rc::as_ptr(body));
        if let Some(place) = place.filter(|_| !matches!(next, Ok(Wait::Room))) {
            self.lined_up.swap_remove(place);
        }
        match next {
            Ok(Wait::Nothing) => {}
            Ok(Wait::Room) => {
                if place.is_none() {
                    self.lined_up.push((Rc::downgrade(body), shell.cx.now));
                }
            }
            Ok(Wait::Step(step)) if shell.ring.silence(step.device) >= PATIENCE => {
                self.give_up(shell, body, &silence());
            }
            Ok(Wait::Step(step)) => {
                if matches!(step.op, Op::Open { .. }) {
                    self.files.push(Rc::downgrade(body));
                    shell.cx.stats.body_files.add(1);
                }
                self.submit(shell, body, step);
                // The bytes that were written have left room in memory.
                woken.extend(body.borrow().ticket());
            }
            Err(fault) => self.give_up(shell, body, &fault),
        }
    }

    fn submit(&mut self, shell: &mut Shell, body: &Rc<RefCell<Input>>, step: Step) {
        let Step { op, device, reservation } = step;
        let (kind, since) = (self.kind, shell.cx.now);
        self.flights.insert_with(|key| Flight {
            body: Rc::downgrade(body),
            operation: shell.ring.submit_to(device, op, kind | key.to_bits()),
            since,
            _reservation: reservation,
        });
    }

    /// Gives a body up: the response to its request is a 503.
    fn give_up(&mut self, shell: &mut Shell, body: &Rc<RefCell<Input>>, fault: &Fault) {
        shell.cx.stats.body_files_failed.add(1);
        let dir = body.borrow().dir().display().to_string();
        let text = match fault {
            Fault::NoRoom => format!(
                "bodies of requests in {dir}: all files together have as many bytes as `max-body-files` allows; the \
                 client that has most gets a 503"
            ),
            Fault::Disk(error) => format!(
                "cannot keep the body of a request in {dir}: {}; its client gets a 503 (`buffer-dir` names another \
                 directory)",
                words(error)
            ),
        };
        shell.complain(Complaint::Bodies, &text);
        body.borrow_mut().give_up();
        let of_body = |flight: &&Flight| flight.body.as_ptr() == Rc::as_ptr(body);
        let flight = self.flights.iter().map(|(_, flight)| flight).find(of_body);
        if let Some(flight) = flight {
            // An operation that has not begun is not needed.
            shell.ring.cancel(flight.operation);
        }
    }

    /// Chooses bodies that go to files if too many bytes are in memory: the longest bodies of the clients that use most
    /// memory.
    fn make_room(&mut self) {
        let bytes = self.pool.bytes.get();
        if bytes <= SPILLED_FROM {
            self.looked_at = 0;
            return;
        }
        if bytes < self.looked_at + LOOK_BYTES && self.looked_at > 0 {
            return;
        }
        self.looked_at = bytes;
        let mut clients = HashMap::<Holder, (u64, Vec<(u64, Rc<RefCell<Input>>)>)>::new();
        let mut all = 0;
        for body in self.collected.all() {
            let (bytes, client) = (body.borrow().spillable(), body.borrow().client());
            if bytes > 0 {
                let (sum, bodies) = clients.entry(client).or_default();
                *sum += bytes;
                bodies.push((bytes, body));
                all += bytes;
            }
        }
        for (_, bodies) in clients.values_mut() {
            bodies.sort_unstable_by_key(|(bytes, _)| *bytes);
        }
        let mut most: BinaryHeap<_> =
            clients.iter().map(|(client, (sum, _))| (*sum, *client)).collect();
        while all > SPILLED_TO
            && let Some((sum, client)) = most.pop()
            && let Some((_, bodies)) = clients.get_mut(&client)
            && let Some((bytes, body)) = bodies.pop()
        {
            body.borrow_mut().press();
            all -= bytes;
            most.push((sum - bytes, client));
        }
    }
}

fn silence() -> Fault {
    Fault::Disk(io::Error::other("the disk does not answer"))
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::path::Path;
    use std::sync::Arc;

    use proptest::prelude::*;
    use proptest::sample::Index;
    use ring::sim::{Config, World};
    use ring::{Device, Event, Fd, Ring};

    use super::*;
    use session::handler::CONSUMER_ROOM_MIN;
    use session::limits::ClientKey;

    const CHUNKED: Framing = Framing::Unknown;

    fn ticket(request: u32) -> Ticket {
        Ticket { connection: 1, request }
    }

    fn all(client: u8, memory_max: u64) -> Needs {
        let address = Ipv4Addr::new(192, 0, 2, client);
        let storage = Storage {
            memory_max,
            client: Some(ClientKey::new(address.into())),
            dir: Path::new("/tmp").into(),
            device: Device::unknown(1),
        };
        Needs::All { part: 0, storage }
    }

    /// A body that comes.
    struct Body {
        input: Rc<RefCell<Input>>,
        consumer: Option<Box<dyn Consumer>>,
        memory_max: u64,
        /// Bytes that have come, and that were taken.
        came: usize,
        taken: usize,
        has_ended: bool,
        /// Its operation in flight, and its file.
        op: Option<Step>,
        file: Vec<u8>,
    }

    /// Bodies, and the disk of their files.
    struct Stage {
        bodies: Bodies,
        quota: Arc<Quota>,
        all: Vec<Body>,
        fd: Fd,
        news: Rc<RefCell<News>>,
    }

    /// The byte of a body at a position.
    fn byte(at: usize) -> u8 {
        (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0]
    }

    impl Stage {
        fn new(files_max: u64) -> Self {
            let world = World::new(Config::new(1));
            let ring = Ring::simulated(&world);
            let quota = Quota::new(files_max, 1 << 20);
            Self {
                bodies: Bodies::new(1 << 56, Arc::clone(&quota)),
                quota,
                all: Vec::new(),
                fd: ring.sim_root(&world),
                news: Rc::default(),
            }
        }

        fn offer(&mut self, client: u8, memory_max: u64) {
            let needs = all(client, memory_max);
            let consumer =
                self.bodies.offer(ticket(1), CHUNKED, needs, (u64::MAX, false), &self.news);
            let input = self.bodies.take(ticket(1)).expect("offered");
            self.all.push(Body {
                input,
                consumer: Some(consumer),
                memory_max,
                came: 0,
                taken: 0,
                has_ended: false,
                op: None,
                file: Vec::new(),
            });
        }

        /// More of a body comes, as far as there is room for it.
        fn push(&mut self, at: usize, count: usize) {
            let body = &mut self.all[at];
            let Some(consumer) = &mut body.consumer else { return };
            let count = count.min(usize::try_from(consumer.room()).unwrap());
            let bytes: Vec<_> = (body.came..body.came + count).map(byte).collect();
            consumer.push(&bytes);
            body.came += count;
        }

        fn end(&mut self, at: usize) {
            let body = &mut self.all[at];
            if let Some(mut consumer) = body.consumer.take() {
                consumer.end();
                body.has_ended = true;
            }
        }

        /// Consumes at most this many bytes, as a program or an application does.
        fn take(&mut self, at: usize, count: usize) {
            let body = &mut self.all[at];
            let mut input = body.input.borrow_mut();
            if input.is_whole() {
                for taken in input.take(count.max(1)) {
                    assert_eq!(taken, byte(body.taken), "at {}", body.taken);
                    body.taken += 1;
                }
            }
        }

        /// Does what bodies want.
        fn drive(&mut self) {
            self.bodies.make_room();
            self.bodies.pool.wanting.take();
            for body in &mut self.all {
                if body.op.is_some() {
                    continue;
                }
                let next = body.input.borrow_mut().next_step(&self.quota);
                match next {
                    Ok(Wait::Step(step)) => {
                        assert!(body.op.is_none(), "one at a time");
                        body.op = Some(step);
                    }
                    Ok(Wait::Nothing | Wait::Room) => {}
                    Err(_) => body.input.borrow_mut().give_up(),
                }
                if body.input.borrow().gives_way() {
                    body.input.borrow_mut().give_up();
                }
            }
        }

        /// An operation ends: with all bytes, with some of them, or with an error.
        fn complete(&mut self, at: usize, how: u8) {
            let body = &mut self.all[at];
            let Some(Step { op, .. }) = body.op.take() else { return };
            let result = match op {
                _ if how == 0 => Err(io::ErrorKind::StorageFull.into()),
                Op::Open { .. } => {
                    // A body whose file was read to its end can get another one.
                    body.file.clear();
                    Ok(Event::Opened(self.fd.clone()))
                }
                Op::Write { bytes, .. } => {
                    let count = if how == 1 { bytes.len().div_ceil(2) } else { bytes.len() };
                    body.file.extend_from_slice(&bytes[..count]);
                    Ok(Event::Written(bytes, count))
                }
                Op::Read { offset, mut buf, .. } => {
                    let from = usize::try_from(offset).unwrap();
                    let count = if how == 1 { buf.want().div_ceil(2) } else { buf.want() };
                    buf.fill_from(&body.file[from..from + count]);
                    Ok(Event::Read(buf))
                }
                other => unreachable!("{other:?}"),
            };
            let next = body.input.borrow_mut().handle_step(result);
            match next {
                Ok(next) => body.op = next,
                Err(_) => body.input.borrow_mut().give_up(),
            }
        }

        fn check(&self) {
            let mut sum = 0;
            for body in &self.all {
                let input = body.input.borrow();
                let memory = input.memory();
                sum += memory;
                let in_flight = 256 * 1024 + 64 * 1024;
                assert!(memory <= body.memory_max + CONSUMER_ROOM_MIN + in_flight, "{memory}");
            }
            assert_eq!(self.bodies.pool.bytes.get(), sum);
            assert!(sum <= POOL_BYTES_MAX + 64 * 1024 * self.all.len() as u64);
            assert!(self.quota.used() <= self.quota.bytes_max());
        }

        /// Ends all bodies. Each body that was not given up is then taken completely.
        fn finish(mut self) {
            for at in 0..self.all.len() {
                self.end(at);
            }
            for _ in 0..1000 {
                self.drive();
                for at in 0..self.all.len() {
                    self.complete(at, 2);
                    self.take(at, 1 << 20);
                }
            }
            for body in &self.all {
                if body.has_ended && !body.input.borrow().has_no_room() {
                    assert_eq!(body.taken, body.came);
                    assert!(body.input.borrow().is_over());
                }
            }
            self.check();
            self.all.clear();
            assert_eq!((self.bodies.pool.bytes.get(), self.quota.used()), (0, 0));
        }
    }

    #[test]
    fn only_a_body_that_is_longer_than_memory_and_has_a_length_is_not_collected_for_a_program() {
        let (mut bodies, news) = (Bodies::new(0, Quota::new(0, 1 << 20)), Rc::default());
        for (framing, needs, is_collected) in [
            (Framing::Unknown, all(1, 1), true),
            (Framing::Length(COLLECTED_BYTES_MAX), all(1, 1), true),
            (Framing::Length(COLLECTED_BYTES_MAX + 1), all(1, 1), false),
            (Framing::Length(1), Needs::Nothing, false),
            (Framing::Unknown, Needs::Nothing, false),
        ] {
            let text = format!("{framing:?} {needs:?}");
            let consumer = bodies.offer(ticket(1), framing, needs, (u64::MAX, false), &news);
            let input = bodies.take(ticket(1)).expect("offered");
            assert_eq!(input.borrow().is_collected(), is_collected, "{text}");
            drop(consumer);
        }
    }

    #[test]
    fn a_body_is_taken_once_by_its_request() {
        let (mut bodies, news) = (Bodies::new(0, Quota::new(0, 1 << 20)), Rc::default());
        for needs in [all(1, 1), Needs::Nothing] {
            let consumer = bodies.offer(ticket(1), CHUNKED, needs, (u64::MAX, false), &news);
            assert!(bodies.take(ticket(2)).is_none());
            assert!(bodies.take(ticket(1)).is_some());
            assert!(bodies.take(ticket(1)).is_none());
            drop(consumer);
        }
    }

    /// The longest bodies of the client that uses most memory are moved to files. Bodies of other clients stay in
    /// memory.
    #[test]
    fn the_client_that_has_most_gives_memory_to_others() {
        let mut stage = Stage::new(1 << 30);
        stage.offer(1, COLLECTED_BYTES_MAX);
        stage.push(0, 800_000);
        for at in 1..=13 {
            stage.offer(2, COLLECTED_BYTES_MAX);
            stage.push(at, 1 << 20);
            stage.drive();
            stage.check();
        }
        let files: Vec<_> = (0..stage.all.len()).filter(|at| stage.all[*at].op.is_some()).collect();
        assert!(files.len() >= 4 && !files.contains(&0), "{files:?}");
        stage.finish();
    }

    /// While all memory is in use, clients wait; they go on once something was written.
    #[test]
    fn clients_wait_while_all_memory_is_in_use() {
        let mut stage = Stage::new(1 << 30);
        for at in 0..20 {
            stage.offer(u8::try_from(at).unwrap(), COLLECTED_BYTES_MAX);
            stage.push(at, 1 << 20);
        }
        stage.check();
        assert_eq!(stage.all[19].consumer.as_ref().unwrap().room(), 0);
        assert!(stage.bodies.pool.starves.get());
        stage.drive();
        for _ in 0..8 {
            (0..20).for_each(|at| stage.complete(at, 2));
            stage.drive();
        }
        assert!(stage.all[19].input.borrow_mut().take_starving());
        assert!(stage.all[19].consumer.as_ref().unwrap().room() > COLLECTED_BYTES_MAX / 2);
        stage.finish();
    }

    #[derive(Clone, Debug)]
    enum What {
        Offer(u8, u64),
        Push(Index, usize),
        End(Index),
        Take(Index, usize),
        Complete(Index, u8),
        Drive,
        /// Memory is needed for others.
        Press(Index),
        Leave(Index),
        Unwanted(Index),
    }

    fn events() -> impl Strategy<Value = Vec<What>> {
        let body = any::<Index>;
        let one = prop_oneof![
            3 => (0_u8..4, 16_384_u64..300_000).prop_map(|(of, most)| What::Offer(of, most)),
            12 => (body(), 1_usize..200_000).prop_map(|(at, count)| What::Push(at, count)),
            2 => body().prop_map(What::End),
            6 => (body(), 1_usize..100_000).prop_map(|(at, count)| What::Take(at, count)),
            12 => (body(), prop_oneof![1 => Just(0_u8), 20 => 1_u8..5])
                .prop_map(|(at, how)| What::Complete(at, how)),
            12 => Just(What::Drive),
            1 => body().prop_map(What::Press),
            1 => body().prop_map(What::Leave),
            1 => body().prop_map(What::Unwanted),
        ];
        proptest::collection::vec(one, 0..120)
    }

    proptest! {
        /// In any order of events: the bytes are those that came, no bound is exceeded, and everything is given back.
        #[test]
        fn the_bytes_are_exact_and_bounded(events in events(), files_max in 100_000_u64..3_000_000) {
            let mut stage = Stage::new(files_max);
            stage.offer(0, 16_384);
            for event in events {
                let count = stage.all.len();
                match event {
                    What::Offer(client, memory_max) => stage.offer(client, memory_max),
                    What::Push(at, bytes) => stage.push(at.index(count), bytes),
                    What::End(at) => stage.end(at.index(count)),
                    What::Take(at, bytes) => stage.take(at.index(count), bytes),
                    What::Complete(at, how) => stage.complete(at.index(count), how),
                    What::Drive => stage.drive(),
                    What::Press(at) => at.get(&stage.all).input.borrow_mut().press(),
                    What::Leave(at) => at.get_mut(&mut stage.all).consumer = None,
                    What::Unwanted(at) => {
                        let body = at.get_mut(&mut stage.all);
                        body.consumer = None;
                        body.has_ended = false;
                        body.input.borrow_mut().drop_rest();
                    }
                }
                stage.check();
            }
            stage.finish();
        }
    }
}

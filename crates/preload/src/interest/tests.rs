//! A model of the kernel's epoll and of programs that use it. No event may be lost, no loop may spin, and only
//! interest that the program has armed may be armed. Peers reset connections, which the kernel reports unasked, and
//! other threads wait while the tested thread makes a call.

use libc::{EPOLLIN, EPOLLRDHUP};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const IN: u32 = bits(EPOLLIN);
const OUT: u32 = bits(EPOLLOUT);
const ET: u32 = bits(EPOLLET);
const ONCE: u32 = bits(EPOLLONESHOT);
/// The events that the kernel reports to each armed registration, unasked.
const UNASKED: u32 = bits(EPOLLERR) | bits(EPOLLHUP);
const INSTANCES: i32 = 2;

/// One registration in the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    events: u32,
    /// It is one-shot, and has fired.
    disarmed: bool,
    /// It is edge-triggered, and there is an edge.
    news: bool,
}

/// The kernel, and the state as the program sees it.
#[derive(Debug, Default)]
struct World {
    interest: Interest,
    kernel: [Option<Watch>; INSTANCES as usize],
    /// The events that the program has asked for, if any. The flag: it has fired once and was not armed since.
    program: [Option<(u32, bool)>; INSTANCES as usize],
    writable: bool,
    /// The peer has reset.
    reset: bool,
    deferred: bool,
    /// The instances in which other threads wait, each until just before a call of this thread.
    threads: Vec<usize>,
    /// The instances that must report the socket, because the program has got EAGAIN.
    owed: [bool; INSTANCES as usize],
}

fn slot(epfd: i32) -> usize {
    usize::try_from(epfd).unwrap()
}

impl World {
    fn kernel_control(&mut self, op: Op, epfd: i32, events: u32) -> bool {
        if let Some(waits) = self.threads.pop() {
            self.wait(waits);
        }
        let place = &mut self.kernel[slot(epfd)];
        if place.is_some() == (op == Op::Add) {
            return false;
        }
        *place = (op != Op::Del).then_some(Watch { events, disarmed: false, news: true });
        true
    }

    fn make(&mut self, changes: Changes) {
        for change in changes.as_slice() {
            let op = if change.adds { Op::Add } else { Op::Mod };
            assert!(self.kernel_control(op, change.epfd, change.events), "stale registration");
            assert_eq!(change.data, u64::from(change.epfd.unsigned_abs()));
        }
    }

    fn control(&mut self, op: Op, epfd: i32, events: u32) {
        let done = match self.interest.asked(op, epfd, events) {
            CtlDecision::Keep => true,
            CtlDecision::Pass(op, events) => self.kernel_control(op, epfd, events),
            CtlDecision::Refuse => false,
            CtlDecision::Withhold(events) => !self.kernel_control(Op::Mod, epfd, events),
        };
        let known = self.program[slot(epfd)].is_some();
        assert_eq!(done, known != (op == Op::Add), "as if the kernel had been asked");
        if done {
            self.interest.granted(op, epfd, events, u64::from(epfd.unsigned_abs()));
            self.program[slot(epfd)] = (op != Op::Del).then_some((events, false));
            self.owed[slot(epfd)] = self.owed.contains(&true) && op != Op::Del && events & OUT != 0;
        }
    }

    /// Calls `sendfile` for bytes that are not in memory.
    fn cold(&mut self) {
        self.deferred = true;
        let changes = self.interest.defer();
        self.make(changes);
        for epfd in 0..slot(INSTANCES) {
            let waits =
                self.program[epfd].is_some_and(|(events, fired)| events & OUT != 0 && !fired);
            self.owed[epfd] = waits;
        }
    }

    fn read(&mut self) {
        self.deferred = false;
        let changes = self.interest.resume();
        self.make(changes);
        if self.writable {
            for epfd in 0..slot(INSTANCES) {
                if self.owed[epfd] {
                    assert_ne!(self.reported(epfd) & OUT, 0, "instance {epfd} does not report it");
                }
                let armed = self.program[epfd].map(|(events, _)| events & !MODE);
                let known = self.kernel[epfd].map(|watch| watch.events & !MODE);
                assert_eq!(armed, known, "the kernel has the events that the program wants");
            }
        }
        self.owed = [false; INSTANCES as usize];
    }

    /// Makes an edge for all registrations.
    fn reset(&mut self) {
        self.reset = true;
        self.kernel.iter_mut().flatten().for_each(|watch| watch.news = true);
    }

    /// The events that `epoll_wait` would report now.
    fn reported(&self, epfd: usize) -> u32 {
        let Some(watch) = self.kernel[epfd] else { return 0 };
        let is_quiet = watch.disarmed || (watch.events & ET != 0 && !watch.news);
        let ready = if self.writable { OUT } else { 0 } | if self.reset { UNASKED } else { 0 };
        if is_quiet { 0 } else { (watch.events | UNASKED) & ready }
    }

    fn wait(&mut self, epfd: usize) {
        let events = self.reported(epfd);
        if events == 0 {
            return;
        }
        let (_, fired) = self.program[epfd].expect("the program watches");
        assert!(!fired, "the program has not armed it");
        let Some(watch) = &mut self.kernel[epfd] else { return };
        watch.news = false;
        if !self.deferred && events & OUT != 0 {
            self.owed[epfd] = false;
        }
        if watch.events & ONCE != 0 {
            watch.disarmed = true;
            self.program[epfd] = self.program[epfd].map(|(events, _)| (events, true));
            self.owed[epfd] = false;
        }
    }

    /// Checks that no level-triggered loop would spin.
    fn check_quiet(&self) {
        if self.reset {
            // The kernel itself would do the same.
            return;
        }
        for epfd in 0..slot(INSTANCES) {
            if self.deferred && self.kernel[epfd].is_some_and(|it| it.events & (ET | ONCE) == 0) {
                assert_eq!(self.reported(epfd), 0, "it spins");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Control(Op, i32, u32),
    Cold,
    Read,
    Writable(bool),
    Reset,
    Wait(i32),
    /// Another thread waits while this one makes its next call.
    Thread(i32),
    /// Arms a registration again after it has fired, as one-shot programs do after an event.
    Rearm(i32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let events = prop::sample::select(vec![IN, OUT, IN | OUT, 0]);
    let modes = prop::sample::select(vec![0, ET, ONCE, ET | ONCE]);
    let op = prop::sample::select(vec![Op::Add, Op::Add, Op::Mod, Op::Mod, Op::Del]);
    let control = (op, 0..INSTANCES, events, modes)
        .prop_map(|(op, epfd, events, mode)| Step::Control(op, epfd, events | mode));
    let step = prop_oneof![
        4 => control,
        3 => Just(Step::Cold),
        3 => Just(Step::Read),
        1 => any::<bool>().prop_map(Step::Writable),
        1 => Just(Step::Reset),
        4 => (0..INSTANCES).prop_map(Step::Wait),
        2 => (0..INSTANCES).prop_map(Step::Thread),
        2 => (0..INSTANCES).prop_map(Step::Rearm),
    ];
    vec(step, 1..60)
}

proptest! {
    #[test]
    fn no_event_is_lost_and_no_loop_spins(steps in steps()) {
        let mut world = World { writable: true, ..World::default() };
        for step in steps {
            match step {
                Step::Control(op, epfd, events) => world.control(op, epfd, events),
                Step::Cold => world.cold(),
                Step::Read => world.read(),
                Step::Writable(writable) => world.writable = writable,
                Step::Reset => world.reset(),
                Step::Wait(epfd) => world.wait(slot(epfd)),
                Step::Thread(epfd) => world.threads.push(slot(epfd)),
                Step::Rearm(epfd) => {
                    if let Some((events, true)) = world.program[slot(epfd)] {
                        world.control(Op::Mod, epfd, events);
                    }
                }
            }
            world.check_quiet();
        }
        world.writable = true;
        world.read();
    }
}

fn watched(events: u32) -> Interest {
    let mut interest = Interest::default();
    assert_eq!(interest.asked(Op::Add, 5, events), CtlDecision::Pass(Op::Add, events));
    interest.granted(Op::Add, 5, events, 7);
    interest
}

fn changed(events: u32) -> [Change; 1] {
    [Change { epfd: 5, events, data: 7, adds: false }]
}

#[test]
fn level_is_masked_and_restored() {
    let mut interest = watched(IN | OUT);
    assert_eq!(interest.defer().as_slice(), changed(IN));
    assert_eq!(interest.defer().as_slice(), []);
    assert_eq!(interest.asked(Op::Mod, 5, OUT), CtlDecision::Pass(Op::Mod, 0));
    interest.granted(Op::Mod, 5, OUT, 7);
    assert_eq!(interest.resume().as_slice(), changed(OUT));
    assert_eq!(interest.resume().as_slice(), []);
}

#[test]
fn level_that_does_not_wait_to_write_is_left_alone() {
    let mut interest = watched(IN | bits(EPOLLRDHUP));
    assert_eq!(interest.defer().as_slice(), []);
    assert_eq!(interest.asked(Op::Mod, 5, IN), CtlDecision::Pass(Op::Mod, IN));
    assert_eq!(interest.resume().as_slice(), []);
}

#[test]
fn edge_is_told_anew() {
    let mut interest = watched(IN | OUT | ET);
    assert_eq!(interest.defer().as_slice(), []);
    assert_eq!(interest.asked(Op::Mod, 5, IN | OUT | ET), CtlDecision::Pass(Op::Mod, IN | ET));
    assert_eq!(interest.resume().as_slice(), changed(IN | OUT | ET));
}

#[test]
fn one_shot_is_armed_only_if_the_program_has_armed_it() {
    let mut interest = watched(OUT | ONCE);
    assert_eq!(interest.defer().as_slice(), []);
    assert_eq!(interest.resume().as_slice(), [], "fired, and not armed again");
    interest.defer();
    let events = IN | OUT | ONCE;
    assert_eq!(interest.asked(Op::Mod, 5, events), CtlDecision::Pass(Op::Del, events));
    interest.granted(Op::Mod, 5, events, 7);
    assert_eq!(interest.asked(Op::Mod, 5, events), CtlDecision::Keep);
    interest.granted(Op::Mod, 5, events, 7);
    assert_eq!(interest.asked(Op::Add, 5, events), CtlDecision::Refuse);
    let added = Change { epfd: 5, events, data: 7, adds: true };
    assert_eq!(interest.resume().as_slice(), [added]);
}

#[test]
fn one_shot_that_is_added_is_not_told_of_a_reset_until_the_read_has_ended() {
    let mut interest = watched(OUT);
    interest.granted(Op::Del, 5, 0, 0);
    interest.defer();
    assert_eq!(interest.asked(Op::Add, 5, OUT | ONCE), CtlDecision::Withhold(ONCE));
    interest.granted(Op::Add, 5, OUT | ONCE, 7);
    assert_eq!(interest.asked(Op::Add, 5, OUT | ONCE), CtlDecision::Refuse);
    let added = Change { epfd: 5, events: OUT | ONCE, data: 7, adds: true };
    assert_eq!(interest.resume().as_slice(), [added]);
}

#[test]
fn an_instance_that_is_closed_is_told_what_was_held_back() {
    for (events, during, expected) in [
        (IN | OUT, None, Some((IN | OUT, false))),
        (OUT | ET, None, None),
        (OUT | ONCE, Some(OUT | ONCE), Some((OUT | ONCE, true))),
        (IN, None, None),
    ] {
        let mut interest = watched(events);
        interest.defer();
        during.into_iter().for_each(|events| interest.granted(Op::Mod, 5, events, 7));
        let expected = expected.map(|(events, adds)| Change { epfd: 5, events, data: 7, adds });
        assert_eq!(interest.withdraw(5), expected, "{events:x}");
        assert_eq!(interest.withdraw(5), None);
        assert_eq!(interest.resume().as_slice(), [], "another may have its number");
    }
}

#[test]
fn one_shot_that_was_taken_away_can_be_removed_and_made_another() {
    for (op, events, answer, restored) in [
        (Op::Del, 0, CtlDecision::Keep, &[][..]),
        (Op::Mod, OUT | ET, CtlDecision::Pass(Op::Add, ET), &changed(OUT | ET)),
        (Op::Mod, IN | ONCE, CtlDecision::Pass(Op::Add, IN | ONCE), &[]),
    ] {
        let mut interest = watched(OUT | ONCE);
        interest.defer();
        interest.granted(Op::Mod, 5, OUT | ONCE, 7);
        assert_eq!(interest.asked(op, 5, events), answer);
        interest.granted(op, 5, events, 7);
        assert_eq!(interest.resume().as_slice(), restored);
    }
}

#[test]
fn what_cannot_be_changed_is_not_deferred() {
    assert!(watched(IN | bits(EPOLLEXCLUSIVE)).is_deferrable());
    assert!(!watched(OUT | bits(EPOLLEXCLUSIVE)).is_deferrable());
    let mut interest = Interest::default();
    for epfd in 0..=i32::try_from(REGISTRATIONS_MAX).unwrap() {
        assert!(interest.is_deferrable());
        interest.granted(Op::Add, epfd, OUT, 0);
    }
    assert!(!interest.is_deferrable(), "one too many");
}

#[test]
fn one_more_than_can_be_known_is_not_masked() {
    let mut interest = Interest::default();
    for epfd in 0..i32::try_from(REGISTRATIONS_MAX).unwrap() {
        interest.granted(Op::Add, epfd, OUT, 0);
    }
    interest.defer();
    assert_eq!(
        interest.asked(Op::Add, 99, OUT),
        CtlDecision::Pass(Op::Add, OUT),
        "nothing would restore it"
    );
}

#[test]
fn a_registration_that_is_gone_is_forgotten() {
    let mut interest = watched(OUT);
    interest.defer();
    interest.granted(Op::Del, 5, 0, 0);
    assert!(interest.known().is_empty());
    assert_eq!(interest.resume().as_slice(), []);
}

#[test]
fn a_child_inherits_registrations_but_not_the_deferral() {
    let mut interest = watched(OUT);
    interest.defer();
    interest.inherit();
    assert_eq!(interest.resume().as_slice(), []);
    interest.granted(Op::Mod, 5, OUT, 0);
    assert!(!interest.is_deferrable(), "the parent has the registration, too");
    interest.granted(Op::Del, 5, 0, 0);
    interest.granted(Op::Add, 5, OUT, 0);
    assert!(interest.is_deferrable());
}

//! A handler in addition to files, whose bodies come a little at a time, when timers say so; some of them
//! fail, or are not as long as was said.
//!
//! `/dribble/SEED/LENGTH/KIND` is answered with bytes made of the seed.

use core::cell::RefCell;
use core::mem;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

use handler::router::Router;
use handler::{
    AnswerSize, Body, BodySink, Found, Handler, Part, Produced, Producer, Request, Response, Ticket,
};
use http::{Head, ResponseHead, Status, Target};
use ring::{Completion, Op};
use sendfile::Piece;
use session::context::Context;
use session::kind;
use session::shell::Shell;
use testkit::Random;

use crate::seams::stage::content;

/// How the body of a response goes wrong, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its length is not said.
    Unknown,
    /// Its length is said, and right.
    Known,
    /// It fails in the middle.
    Fails,
    /// It ends before the length that was said.
    Short,
    /// It goes on beyond the length that was said.
    Long,
}

const KINDS: [Kind; 5] = [Kind::Unknown, Kind::Known, Kind::Fails, Kind::Short, Kind::Long];
/// The number of bytes by which a body misses the length that was said.
const MISSED_BY: usize = 100;

/// Bytes that have been made and not been sent.
#[derive(Debug)]
struct Spring {
    ticket: Ticket,
    chance: Random,
    /// The bytes still to be made.
    left: Vec<u8>,
    made: Vec<u8>,
    fails: bool,
    said: Option<u64>,
    waits: bool,
}

/// Files, and bodies that dribble.
#[derive(Debug)]
struct Dribble {
    files: Router,
    springs: HashMap<u64, Weak<RefCell<Spring>>>,
    next: u64,
    woken: VecDeque<Ticket>,
}

#[derive(Debug)]
enum Answer {
    File(<Router as Handler>::Answer),
    Dribble(Rc<RefCell<Spring>>),
}

#[derive(Debug)]
struct DribbleProducer(Rc<RefCell<Spring>>);

impl Producer for DribbleProducer {
    fn poll(&mut self, _room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut spring = self.0.borrow_mut();
        sink.push(Piece::Bytes(mem::take(&mut spring.made)));
        spring.waits = !spring.left.is_empty();
        match (spring.waits, spring.fails) {
            (true, _) => Produced::Waiting,
            (false, true) => Produced::Failed,
            (false, false) => Produced::Ended,
        }
    }

    fn weight(&self) -> u64 {
        let spring = self.0.borrow();
        (spring.left.len() + spring.made.len()) as u64
    }
}

impl Dribble {
    /// Makes the next piece at some time.
    fn schedule(&mut self, shell: &mut Shell, number: u64, chance: &mut Random) {
        let at = shell.ring.now() + Duration::from_micros(chance.bits() % 30_000);
        shell.ring.submit(Op::Timer(at), kind::HANDLER | number);
    }

    fn begin(&mut self, shell: &mut Shell, path: &str, ticket: Ticket) -> Answer {
        let asked = Asked::parse(path);
        let mut chance = Random::new(asked.seed);
        self.next += 1;
        let number = self.next;
        self.schedule(shell, number, &mut chance);
        let spring = Rc::new(RefCell::new(Spring {
            ticket,
            chance,
            left: asked.made(),
            made: Vec::new(),
            fails: asked.kind == Kind::Fails,
            said: asked.said(),
            waits: false,
        }));
        self.springs.insert(number, Rc::downgrade(&spring));
        Answer::Dribble(spring)
    }
}

impl Handler for Dribble {
    type Answer = Answer;

    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Answer> {
        let Request { head, ticket, .. } = *request;
        if let Target::Origin { path, .. } = head.target
            && let Some(path) = path.strip_prefix(b"/dribble/")
        {
            return Found::Now(self.begin(shell, core::str::from_utf8(path).unwrap(), ticket));
        }
        match self.files.find(shell, request) {
            Found::Now(answer) => Found::Now(Answer::File(answer)),
            Found::Later(search) => Found::Later(search),
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        match answer {
            Answer::File(answer) => self.files.size(answer),
            Answer::Dribble(_) => AnswerSize::default(),
        }
    }

    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        let spring = match answer {
            Answer::File(answer) => return self.files.response(cx, head, answer),
            Answer::Dribble(spring) => spring,
        };
        let content_length = spring.borrow().said;
        let producer = Box::new(DribbleProducer(Rc::clone(spring)));
        let head = ResponseHead { content_length, ..ResponseHead::new(Status::Ok) };
        Response::new(head, Body::from(Part::Producer(producer)))
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        if completion.token & kind::MASK != kind::HANDLER {
            return self.files.handle(shell, completion);
        }
        let number = completion.token & !kind::MASK;
        let Some(spring) = self.springs.get(&number).and_then(Weak::upgrade) else {
            // Its connection has gone.
            self.springs.remove(&number);
            return;
        };
        let mut spring = spring.borrow_mut();
        let count = (1 + spring.chance.below(20_000)).min(spring.left.len());
        let rest = spring.left.split_off(count);
        let piece = mem::replace(&mut spring.left, rest);
        spring.made.extend(piece);
        if spring.waits {
            self.woken.push_back(spring.ticket);
        }
        if !spring.left.is_empty() {
            self.schedule(shell, number, &mut spring.chance);
        }
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        let (ticket, answer) = self.files.next_answer()?;
        Some((ticket, Answer::File(answer)))
    }

    fn next_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front().or_else(|| self.files.next_woken())
    }
}

/// A body that a client asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    seed: u64,
    length: usize,
    kind: Kind,
}

impl Asked {
    fn random(chance: &mut Random) -> Self {
        let length = [1, 1000, 30_000, 300_000][chance.below(4)];
        // Most are right, so that others follow them.
        let kind = KINDS[if chance.one_in(6) { chance.below(5) } else { chance.below(2) }];
        Self { seed: chance.bits(), length: length + chance.below(length), kind }
    }

    fn path(self) -> String {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap();
        format!("/dribble/{}/{}/{kind}", self.seed, self.length)
    }

    fn parse(path: &str) -> Self {
        let [seed, length, kind] = path.split('/').collect::<Vec<_>>()[..] else {
            panic!("{path} is not /dribble/SEED/LENGTH/KIND")
        };
        let kind = KINDS[kind.parse::<usize>().unwrap()];
        Self { seed: seed.parse().unwrap(), length: length.parse().unwrap(), kind }
    }

    /// The bytes that the handler makes.
    fn made(self) -> Vec<u8> {
        let missed = if self.kind == Kind::Long { MISSED_BY } else { 0 };
        content(self.seed, self.length + missed)
    }

    /// The length that the handler says.
    fn said(self) -> Option<u64> {
        match self.kind {
            Kind::Unknown | Kind::Fails => None,
            Kind::Known | Kind::Long => Some(self.length as u64),
            Kind::Short => Some((self.length + MISSED_BY) as u64),
        }
    }

    fn is_right(self) -> bool {
        matches!(self.kind, Kind::Unknown | Kind::Known)
    }
}

mod tests;

//! A handler in addition to files. It sends back what it is sent, while it comes: the body of `POST /echo`, and
//! all bytes after `Upgrade: echo`. `/early` answers before it has the body, `/late` when it has; with `/slow` the bytes
//! take a detour of random length, as through an upstream.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

use handler::router::Router;
use handler::{
    AnswerSize, Body, BodySink, Consumer, Found, Handler, Part, Produced, Producer, Request,
    Response, Ticket,
};
use http::{FieldSection, Head, ResponseHead, Status, Target};
use ring::{Completion, Op};
use sendfile::Piece;
use session::context::Context;
use session::handler::Reception;
use session::kind;
use session::shell::Shell;
use testkit::Random;

/// Bytes that are kept on their way back.
const ROOM: usize = 64 * 1024;
/// The longest body that is taken.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Sent through a tunnel, it ends the direction to the client.
const STOP: u8 = 4;

/// The response that does not wait for the body.
const EARLY: &[u8] = b"no, thanks";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Echo,
    Early,
    Late,
    Slow,
    Tunnel,
}

/// Bytes on their way from a client back to it.
#[derive(Debug)]
struct Loop {
    kind: Kind,
    ticket: Ticket,
    chance: Random,
    /// On the detour.
    detour: VecDeque<u8>,
    /// Ready to be sent.
    ready: VecDeque<u8>,
    ended: bool,
    /// The rest will not come.
    cut: bool,
    stopped: bool,
    taken: Rc<Cell<usize>>,
    news: Rc<RefCell<News>>,
}

/// What has happened to bodies since the worker last asked.
#[derive(Debug, Default)]
struct News {
    woken: VecDeque<Ticket>,
    answers: VecDeque<(Ticket, Answer)>,
}

type Shared = Rc<RefCell<Loop>>;

#[derive(Debug)]
struct EchoConsumer(Shared);

#[derive(Debug)]
struct EchoProducer(Shared);

#[derive(Debug)]
enum Answer {
    File(<Router as Handler>::Answer),
    Echo(Shared),
}

#[derive(Debug)]
struct Echo {
    files: Router,
    loops: HashMap<(u64, u32), Weak<RefCell<Loop>>>,
    news: Rc<RefCell<News>>,
    /// Bytes that consumers have taken.
    taken: Rc<Cell<usize>>,
}

impl Consumer for EchoConsumer {
    fn bytes_max(&self) -> u64 {
        BODY_BYTES_MAX
    }

    fn room(&self) -> u64 {
        let this = self.0.borrow();
        ROOM.saturating_sub(this.detour.len() + this.ready.len()) as u64
    }

    fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.room(), "no more than there is room for");
        let mut this = self.0.borrow_mut();
        this.taken.set(this.taken.get() + bytes.len());
        if this.kind == Kind::Tunnel && bytes.contains(&STOP) {
            this.stopped = true;
        }
        if this.stopped {
            return;
        }
        if this.kind == Kind::Slow { this.detour.extend(bytes) } else { this.ready.extend(bytes) }
    }

    fn end(&mut self) {
        let shared = Rc::clone(&self.0);
        let mut this = self.0.borrow_mut();
        this.ended = true;
        if this.kind == Kind::Late {
            this.news.borrow_mut().answers.push_back((this.ticket, Answer::Echo(shared)));
        }
    }

    fn weight(&self) -> u64 {
        let this = self.0.borrow();
        (this.detour.len() + this.ready.len()) as u64
    }
}

impl Drop for EchoConsumer {
    fn drop(&mut self) {
        let mut this = self.0.borrow_mut();
        this.cut = !this.ended;
        this.news.borrow_mut().woken.push_back(this.ticket);
    }
}

impl Producer for EchoProducer {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut this = self.0.borrow_mut();
        let count = this.ready.len().min(usize::try_from(room).unwrap());
        sink.push(Piece::Bytes(this.ready.drain(..count).collect()));
        match (this.ready.is_empty(), this.detour.is_empty()) {
            (false, _) => Produced::More,
            _ if this.cut => Produced::Failed,
            (_, true) if this.ended || this.stopped => Produced::Ended,
            _ => Produced::Waiting,
        }
    }

    fn weight(&self) -> u64 {
        let this = self.0.borrow();
        if this.ended { (this.detour.len() + this.ready.len()) as u64 } else { 0 }
    }
}

fn schedule(shell: &mut Shell, this: &mut Loop) {
    let at = shell.ring.now() + Duration::from_micros(this.chance.bits() % 20_000);
    let Ticket { connection, request } = this.ticket;
    assert!(connection < 1 << 48, "it fits into the token with a few requests");
    shell.ring.submit(Op::Timer(at), kind::HANDLER | connection << 8 | u64::from(request));
}

impl Handler for Echo {
    type Answer = Answer;

    fn consumer(&mut self, shell: &mut Shell, request: &Request<'_>) -> Reception {
        let Request { head, ticket, standing, .. } = *request;
        let none = Reception { consumer: None, standing };
        let Target::Origin { path, .. } = head.target else { return none };
        let kind = match path {
            b"/echo" => Kind::Echo,
            b"/early" => Kind::Early,
            b"/late" => Kind::Late,
            b"/slow" => Kind::Slow,
            b"/tunnel" => Kind::Tunnel,
            _ => return none,
        };
        let shared = Rc::new(RefCell::new(Loop {
            kind,
            ticket,
            chance: Random::new(ticket.connection),
            detour: VecDeque::new(),
            ready: VecDeque::new(),
            ended: false,
            cut: false,
            stopped: false,
            taken: Rc::clone(&self.taken),
            news: Rc::clone(&self.news),
        }));
        if kind == Kind::Slow {
            schedule(shell, &mut shared.borrow_mut());
        }
        self.loops.insert((ticket.connection, ticket.request), Rc::downgrade(&shared));
        Reception { consumer: Some(Box::new(EchoConsumer(shared))), standing }
    }

    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Answer> {
        let Request { ticket, .. } = *request;
        let ours = self.loops.get(&(ticket.connection, ticket.request)).and_then(Weak::upgrade);
        if let Some(shared) = ours {
            let waits = shared.borrow().kind == Kind::Late && !shared.borrow().ended;
            return if waits { Found::Later(None) } else { Found::Now(Answer::Echo(shared)) };
        }
        match self.files.find(shell, request) {
            Found::Now(answer) => Found::Now(Answer::File(answer)),
            Found::Later(search) => Found::Later(search),
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        match answer {
            Answer::File(answer) => self.files.size(answer),
            Answer::Echo(_) => AnswerSize::default(),
        }
    }

    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        let shared = match answer {
            Answer::File(answer) => return self.files.response(cx, head, answer),
            Answer::Echo(shared) => shared,
        };
        let mut head = ResponseHead::new(Status::Ok);
        if shared.borrow().kind == Kind::Tunnel {
            head.status = Status::SwitchingProtocols;
            head.extra = FieldSection::EMPTY;
            head.extra.push(b"Upgrade", b"echo");
        }
        if shared.borrow().kind == Kind::Early {
            head.content_length = Some(EARLY.len() as u64);
            return Response::new(head, Body::from(Part::Piece(Piece::Static(EARLY))));
        }
        let producer = EchoProducer(Rc::clone(shared));
        Response::new(head, Body::from(Part::Producer(Box::new(producer))))
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        if completion.token & kind::MASK != kind::HANDLER {
            return self.files.handle(shell, completion);
        }
        let number = completion.token & !kind::MASK;
        let key = (number >> 8, u32::try_from(number & 0xff).unwrap());
        let Some(shared) = self.loops.get(&key).and_then(Weak::upgrade) else { return };
        let mut this = shared.borrow_mut();
        let count = (1 + this.chance.below(50_000)).min(this.detour.len());
        let arrived: Vec<u8> = this.detour.drain(..count).collect();
        this.ready.extend(arrived);
        self.news.borrow_mut().woken.push_back(this.ticket);
        schedule(shell, &mut this);
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        if let Some(answer) = self.news.borrow_mut().answers.pop_front() {
            return Some(answer);
        }
        let (ticket, answer) = self.files.next_answer()?;
        Some((ticket, Answer::File(answer)))
    }

    fn next_woken(&mut self) -> Option<Ticket> {
        self.news.borrow_mut().woken.pop_front()
    }
}

mod tests;

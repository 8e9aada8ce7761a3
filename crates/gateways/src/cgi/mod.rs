//! Programs that make responses (CGI, RFC 3875).
//!
//! ```text
//!   consumer ──► Input ──► stdin ┐          ┌ stdout ──► header ──► Answer
//!                                program ───┤            content ─► Output ──► producer
//!   Directory (threads) starts it ┘         └ stderr ──► the operator
//! ```
//!
//! [`Programs`] has the programs of one worker. A `program` moves its bytes: its pipes (`running`) are nonblocking,
//! and the ring reports when they can be read and written again. `life` decides when a response ends and when a
//! program is stopped, and `response` interprets headers. The threads of a [`Directory`] make the calls
//! that may wait for a disk.
//!
//! A body that fits into memory is collected first (`bodies`), so that a slow client occupies
//! no program. A body of unknown length is collected in memory and in a file, because a program must be given the
//! length (RFC 3875 §4.1.2). A longer body of known length is given to the program while it comes.

mod life;
mod program;
pub(super) mod response;
mod running;

use core::cell::RefCell;
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{Head, Method, ResponseHead, Status, path};
use ring::{Completion, Key, Op, Slab};

use self::program::{Program, Progress, Stage};
use self::response::{Document, Parser};
use self::running::Running;
use crate::bodies::{Bodies, Needs};
use crate::held::Held;
use crate::input::Input;
use crate::interest::{Interest, News, Waiter};
use crate::lines::Lines;
use crate::output::{EARLY_BYTES_MAX, Output, OutputProducer};
use crate::programs::environment::{Circumstances, Environment};
use crate::programs::{Directory, Mailbox, Order, Refusal};
use crate::quota::Quota;
use session::handler::{
    AnswerSize, BODY_BYTES_END, Body, Consumer, Found, Keep, Part, Request, Response, Ticket,
};
use session::kind::{self, id_of};
use session::page;
use session::page::bare;
use session::reason::Reason;
use session::shell::Shell;

/// The time between two looks at the deadlines of programs.
const TICK: Duration = Duration::from_millis(100);

const _: () =
    assert!(response::CONTENT_BYTES_END == BODY_BYTES_END, "the parser has none but its own");

/// The programs of a worker.
#[derive(Debug)]
pub struct Programs {
    programs: Slab<Program>,
    news: Rc<RefCell<News>>,
    answers: VecDeque<(Ticket, Answer)>,
    /// Requests whose producers or consumers can go on.
    woken: VecDeque<Ticket>,
    /// Results of the threads; `Some` from the first request on.
    mailbox: Option<Arc<Mailbox>>,
    /// True while the timer of the next tick is in flight.
    ticks: bool,
    bodies: Bodies,
    lines: Lines,
    /// The bytes that were read last.
    scratch: Vec<u8>,
}

/// A request for a program, as the router passes it on.
#[derive(Debug)]
pub struct Call<'a> {
    /// The directory of its programs.
    pub directory: &'a Arc<Directory>,
    /// The path below the directory, in normal form.
    pub path: &'a [u8],
    /// The facts for the environment that are not in the head.
    pub circumstances: Circumstances<'a>,
    /// The held request, if a gateway has handed the request over.
    pub held: Option<Held>,
}

/// The answer to a request for a program.
#[derive(Debug)]
pub enum Answer {
    /// The status of an error, and the reason for the operator; there is no response of a program.
    Error(Status, Reason),
    /// The response of a program.
    Document(Box<Reached>),
    /// The program has handed the request over to another path.
    Redirect(Vec<u8>, Rc<Interest>),
}

/// A program that has put out its header.
#[derive(Debug)]
pub struct Reached {
    document: Document,
    output: Rc<RefCell<Output>>,
    interest: Rc<Interest>,
    /// The reason for the operator, if the response is an error.
    reason: Option<Reason>,
}

impl Programs {
    /// Creates a `Programs` without programs. `quota` bounds the files of bodies.
    pub fn new(quota: Arc<Quota>) -> Self {
        Self {
            programs: Slab::new(),
            news: Rc::default(),
            answers: VecDeque::new(),
            woken: VecDeque::new(),
            mailbox: None,
            ticks: false,
            bodies: Bodies::new(kind::CGI_BODY, quota),
            lines: Lines::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the consumer of the body of a request for a program, at most `bytes_max` bytes; `None` without a body.
    /// The program is looked for next.
    pub fn consumer(
        &mut self,
        request: &Request<'_>,
        needs: Needs,
        bytes_max: u64,
    ) -> Option<Box<dyn Consumer>> {
        let framing = request.head.framing;
        if !framing.has_content() {
            return None;
        }
        Some(self.bodies.offer(request.ticket, framing, needs, (bytes_max, false), &self.news))
    }

    /// Takes the body of a request for which no search has begun, if a body was offered.
    pub fn take_body(&mut self, ticket: Ticket) -> Option<Rc<RefCell<Input>>> {
        self.bodies.take(ticket)
    }

    /// Takes such a body back. The answer of its request is looked for next.
    pub fn give_back(&mut self, ticket: Ticket, body: Rc<RefCell<Input>>) {
        self.bodies.give_back(ticket, body);
    }

    /// Finds the answer to a request for a program.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the program that it looks for was just inserted"
    )]
    pub fn find(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Call { directory, path, circumstances, held }: Call<'_>,
        waiter: Waiter,
    ) -> Found<Answer> {
        let Request { head, ticket, .. } = *request;
        let is_handed = held.is_some();
        let (interest, input) = match held {
            Some(held) => {
                let (interest, input) = held.into_parts();
                if interest.is_none() {
                    drop_rest(input.as_ref());
                    return Found::Now(Answer::Error(Status::ServiceUnavailable, Reason::Gone));
                }
                (interest, input)
            }
            None => (None, self.bodies.take(ticket)),
        };
        if !takes(&head.method) {
            drop_rest(input.as_ref());
            return Found::Now(Answer::Error(Status::MethodNotAllowed, Reason::Method));
        }
        let Some(mailbox) = self.mailbox(shell) else { return refuse(shell, input.as_ref()) };
        let is_collected = input.as_ref().is_some_and(|input| input.borrow().is_collected());
        let mut environment = Environment::new(head, &circumstances);
        if is_handed {
            environment = environment.without_content();
        }
        if input.is_some() || !head.framing.has_content() {
            environment.announce_content(head);
        }
        let name = name_of(directory, path);
        let is_directory = path.ends_with(b"/");
        let path = without_slash(path).to_vec();
        let key = self.programs.insert(Program {
            ticket,
            name,
            directory: Arc::clone(directory),
            interest: Weak::new(),
            input,
            output: Rc::new(RefCell::new(Output::new(&shell.cx.budget.shared))),
            reply: Progress::Header(Box::new(Parser::within(&shell.cx.tuning.response_limits))),
            stage: Stage::Collecting(None),
        });
        let interest = match interest {
            Some(interest) => interest,
            None => Rc::new(Interest::new(key, waiter.half_close, Rc::clone(&self.news))),
        };
        interest.pass_to(key, &self.news);
        interest.reserve(EARLY_BYTES_MAX);
        interest.set_memory((waiter.memory + size_of::<Program>() + environment.memory()) as u64);
        let program = self.programs.get_mut(key).expect("just inserted");
        program.interest = Rc::downgrade(&interest);
        if let Some(input) = &program.input {
            input.borrow_mut().set_key(key);
        }
        let order = Order {
            key,
            path,
            directory: is_directory,
            environment,
            has_input: program.input.is_some(),
            wanted: Arc::new(AtomicBool::new(true)),
            mailbox,
        };
        if is_collected {
            // The end of the body may have come already, while an authorizer decided.
            self.news.borrow_mut().touch(key);
            program.stage = Stage::Collecting(Some(Box::new(order)));
        } else if !program.order(shell, order) {
            let program = self.programs.remove(key).expect("looked at above");
            return refuse(shell, program.input.as_ref());
        }
        self.tick_later(shell);
        Found::Later(Some(interest))
    }

    /// The memory that an answer keeps. The response of a program cannot be found again.
    pub fn size(answer: &Answer) -> AnswerSize {
        let Answer::Document(reached) = answer else { return AnswerSize::default() };
        let shared = reached.output.borrow().reserved();
        AnswerSize { shared, holds_files: false, keep: Keep::Always }
    }

    /// Continues all programs for which clients and programs have left work.
    pub fn act(&mut self, shell: &mut Shell) {
        loop {
            let has_acted = self.bodies.go_on(shell, &mut self.woken);
            let News { touched, left } = core::mem::take(&mut *self.news.borrow_mut());
            if !has_acted && touched.is_empty() && left.is_empty() {
                return;
            }
            for key in left {
                if let Some(program) = self.programs.get_mut(key) {
                    program.handle_left(&mut self.answers);
                }
                self.go_on(shell, key);
            }
            for key in touched {
                self.go_on(shell, key);
            }
        }
    }

    /// Handles a completion of one of the programs' operations.
    pub fn handle(&mut self, shell: &mut Shell, completion: &Completion) {
        let key = Key::from_bits(id_of(completion.token));
        if key == Key::NONE {
            return self.handle_tick(shell);
        }
        let program = self.programs.get_mut(key);
        let Some(Program { stage: Stage::Running(running), .. }) = program else { return };
        let Running { exit, stdin, stdout, stderr, .. } = &mut **running;
        for pipe in [exit, stdin, stdout, stderr].into_iter().flatten() {
            pipe.waits.take_if(|key| *key == completion.key);
        }
        self.go_on(shell, key);
    }

    /// Handles a completion of an operation on the file of a body.
    pub fn handle_body(&mut self, shell: &mut Shell, completion: Completion) {
        self.bodies.handle(shell, completion, &mut self.woken);
    }

    /// Handles the results of the threads.
    pub fn handle_wake(&mut self, shell: &mut Shell) {
        let letters = self.mailbox.as_ref().map(|mailbox| mailbox.take()).unwrap_or_default();
        for (key, letter) in letters {
            let Some(program) = self.programs.get_mut(key) else {
                unreachable!("a program that was ordered is kept until it has been started");
            };
            match letter {
                Ok(process) => {
                    shell.cx.stats.cgi_started.add(1);
                    program.start(shell, process);
                }
                Err(refusal) => {
                    let answers = &mut self.answers;
                    let (status, reason) = (refusal.status(), refusal.reason(&program.name));
                    if let Refusal::Failed(_, why) = &refusal {
                        self.lines.note(shell, &program.name, why);
                    }
                    if status == Status::ServiceUnavailable {
                        shell.cx.stats.cgi_refused.add(1);
                    }
                    program.fail(answers, status, reason);
                    self.programs.remove(key);
                    continue;
                }
            }
            self.go_on(shell, key);
        }
    }

    /// Reports that programs have handed a request over too often, and the last path.
    pub fn note_hand_overs(&mut self, shell: &mut Shell, path: &[u8]) {
        shell.cx.stats.cgi_failed.add(1);
        self.lines.note_hand_overs(shell, path);
    }

    /// The next answer that was found.
    pub fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        self.answers.pop_front()
    }

    /// The next request whose producer or consumer can go on.
    pub fn next_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front()
    }

    /// Returns true if no program runs or is to run, and all answers have been taken.
    pub fn is_idle(&self) -> bool {
        self.programs.is_empty() && self.answers.is_empty()
    }

    /// Returns true if there may be work, or news for a request, also for one whose program has ended.
    pub fn may_have_news(&self) -> bool {
        !self.is_idle() || !self.woken.is_empty()
    }

    /// Kills all programs.
    pub fn kill_all(&mut self) {
        self.programs = Slab::new();
    }

    fn mailbox(&mut self, shell: &mut Shell) -> Option<Arc<Mailbox>> {
        if self.mailbox.is_none() {
            let waker = shell.ring.waker(kind::WAKE);
            let waker = waker.inspect_err(|error| shell.complain_of_limit(error)).ok()?;
            self.mailbox = Some(Mailbox::new(waker));
        }
        self.mailbox.clone()
    }

    fn tick_later(&mut self, shell: &mut Shell) {
        if !core::mem::replace(&mut self.ticks, true) {
            let at = shell.cx.now + TICK;
            shell.ring.submit(Op::Timer(at), kind::CGI | Key::NONE.to_bits());
        }
    }

    fn handle_tick(&mut self, shell: &mut Shell) {
        self.ticks = false;
        self.bodies.handle_tick(shell, &mut self.woken);
        let keys: Vec<Key> = self.programs.keys().collect();
        for key in keys {
            self.go_on(shell, key);
        }
        if !self.programs.is_empty() {
            self.tick_later(shell);
        }
    }

    /// Does everything for a program that can be done now.
    fn go_on(&mut self, shell: &mut Shell, key: Key) {
        let Self { programs, answers, woken, lines, scratch, .. } = self;
        let Some(program) = programs.get_mut(key) else { return };
        let mut tools = Tools { shell, answers, woken, lines, scratch };
        if program.go_on(&mut tools, key) {
            programs.remove(key);
        }
    }
}

/// The parts of the worker with which a program continues.
struct Tools<'a> {
    shell: &'a mut Shell,
    answers: &'a mut VecDeque<(Ticket, Answer)>,
    woken: &'a mut VecDeque<Ticket>,
    lines: &'a mut Lines,
    scratch: &'a mut Vec<u8>,
}

/// Finds the program that would answer a request for a path below a directory, and starts nothing. It may wait for the
/// disk.
///
/// # Errors
///
/// The answer in place of that of a program.
pub fn look(directory: &Directory, path: &[u8], method: &Method<'_>) -> Result<PathBuf, Answer> {
    if !takes(method) {
        return Err(Answer::Error(Status::MethodNotAllowed, Reason::Method));
    }
    directory.look(without_slash(path)).map_err(|refusal| {
        Answer::Error(refusal.status(), refusal.reason(&name_of(directory, path)))
    })
}

/// Returns true if programs may get requests with a method.
const fn takes(method: &Method<'_>) -> bool {
    !matches!(method, Method::Trace | Method::Connect)
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// The path of a request, for the operator.
fn name_of(directory: &Directory, path: &[u8]) -> String {
    let name = [directory.mount(), &path::with_slashes(path, b"%2F")].concat();
    String::from_utf8_lossy(&name).into_owned()
}

impl Answer {
    /// The reason for the operator, if the answer is an error.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Error(_, reason) => Some(reason),
            Self::Document(reached) => reached.reason.as_ref(),
            Self::Redirect(..) => None,
        }
    }
}

/// The response of an answer.
pub fn response<'a>(head: &Head<'_>, answer: &'a Answer) -> Response<'a> {
    let reached = match answer {
        Answer::Error(status, _) => return page::error(bare(*status)),
        Answer::Document(reached) => reached,
        Answer::Redirect(..) => unreachable!("the router has followed it"),
    };
    let Reached { document, output, interest, .. } = &**reached;
    let mut fields = ResponseHead {
        content_type: document.content_type.as_deref().map(Into::into),
        location: document.location.as_deref().map(Into::into),
        extra: document.fields.as_borrowed(),
        ..bare(document.status)
    };
    if document.has_content() {
        fields.content_length = document.content_length;
    }
    if head.method == Method::Head {
        // The session drops the body, and the program continues.
        output.borrow_mut().drop_rest();
    }
    if !document.has_content() {
        return Response::bare(fields);
    }
    let producer = OutputProducer { output: Rc::clone(output), interest: Rc::clone(interest) };
    Response::new(fields, Body::from(Part::Producer(Box::new(producer))))
}

/// Refuses a request because there is too much to do; the client may try again.
fn refuse(shell: &mut Shell, input: Option<&Rc<RefCell<Input>>>) -> Found<Answer> {
    shell.cx.stats.cgi_refused.add(1);
    drop_rest(input);
    Found::Now(Answer::Error(Status::ServiceUnavailable, Reason::NoRoom))
}

/// Drops the rest of a body.
fn drop_rest(input: Option<&Rc<RefCell<Input>>>) {
    if let Some(input) = input {
        input.borrow_mut().drop_rest();
    }
}

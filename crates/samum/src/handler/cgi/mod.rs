//! Programs that make responses (CGI, RFC 3875).
//!
//! ```text
//!   consumer ──► Input ──► stdin ┐          ┌ stdout ──► header ──► Answer
//!                                program ───┤            content ─► Output ──► producer
//!   Directory (threads) starts it ┘         └ stderr ──► the operator
//! ```
//!
//! [`Programs`] has those of one worker, and moves their bytes: pipes are nonblocking, and the ring says
//! when they can be read and written again. [`life`] decides when a response ends and when a program is
//! stopped, [`response`](mod@response) what a header means. What may wait for a disk is done by the threads of a
//! [`Directory`].
//!
//! A body that fits into memory is collected first ([`bodies`](super::gateway::bodies)), so that a slow client occupies
//! no program, and because a program must be told the length (RFC 3875 §4.1.2). A longer one is given to the
//! program while it comes.

mod life;
pub(super) mod response;

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{Field, Head, Method, ResponseHead, Status, bytes};
use http1::Framing;
use ring::{Completion, Fd, Key, Op, Ring, Slab, Time};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read, write};
use rustix::process::Signal;

use self::life::{Action, Cause, End, Life};
use self::response::{Document, Parser, Reply};
use super::files::bare;
use super::gateway::bodies::{Bodies, Taker};
use super::gateway::input::Input;
use super::gateway::interest::{HeaderSearch, Interest, News, Waiter};
use super::gateway::lines::{Lines, Text};
use super::gateway::names::{IMITATION, imitates_framing, is_for_proxy};
use super::gateway::output::{Output, OutputProducer};
use super::{AnswerSize, Body, Consumer, Found, Part, Request, Response, Ticket, gateway, page};
use crate::programs::environment::{Circumstances, Environment};
use crate::programs::process::{Process, is_hung_up};
use crate::programs::{Directory, Mailbox, Order, Refusal};
use crate::shell::{Shell, id_of, kind};

/// The time between two looks at what programs have taken too long for.
const TICK: Duration = Duration::from_millis(100);
/// Bytes that are read from a pipe, or written to one, at once: what a pipe holds.
const PIPE_BYTES: usize = 64 * 1024;
/// Bytes of an output that wait for the client; the program waits then.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// Reads of one output in one turn; the others' turns come first then.
const READS_MAX: usize = 4;

/// The programs of a worker.
#[derive(Debug, Default)]
pub(super) struct Programs {
    programs: Slab<Program>,
    news: Rc<RefCell<News>>,
    answers: VecDeque<(Ticket, Answer)>,
    /// Requests whose producers or consumers can go on.
    woken: VecDeque<Ticket>,
    /// Results of the threads; some from the first request on.
    mailbox: Option<Arc<Mailbox>>,
    /// True while the timer of the next tick is in flight.
    ticks: bool,
    bodies: Bodies,
    lines: Lines,
    /// What was read last.
    scratch: Vec<u8>,
}

/// A request for a program, as the router has found it.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) directory: &'a Arc<Directory>,
    /// It is below the directory and in its normal form.
    pub(super) path: &'a [u8],
    pub(super) circumstances: Circumstances<'a>,
    /// What the request was found with before, if a program has handed it over.
    pub(super) interest: Option<Rc<Interest>>,
}

/// The answer to a request for a program.
#[derive(Debug)]
pub(super) enum Answer {
    /// There is no response of a program.
    Error(Status),
    /// The response of a program.
    Document(Box<Reached>),
    /// The program has handed the request over to another path.
    Redirect(Vec<u8>, Rc<Interest>),
}

/// A program that has put out its header.
#[derive(Debug)]
pub(super) struct Reached {
    document: Document,
    output: Rc<RefCell<Output>>,
    interest: Rc<Interest>,
}

/// A request for a program.
#[derive(Debug)]
struct Program {
    ticket: Ticket,
    /// The path of the request, for messages.
    name: String,
    directory: Arc<Directory>,
    interest: Weak<Interest>,
    input: Option<Rc<RefCell<Input>>>,
    output: Rc<RefCell<Output>>,
    /// How far the response has come.
    reply: Progress,
    stage: Stage,
}

/// How far the response of a program has come.
#[derive(Debug)]
enum Progress {
    Header(Parser),
    Content,
    /// It has ended, or is not wanted. What is put out is dropped.
    Over,
}

/// How far a program has come.
#[derive(Debug)]
enum Stage {
    /// Its body is being collected, and then it is ordered.
    Collecting(Option<Box<Order>>),
    /// It is to be started, by this time if the client still waits. False once it is not wanted.
    Ordered(Arc<AtomicBool>, Time),
    Running(Box<Running>),
}

/// A program that runs.
#[derive(Debug)]
struct Running {
    process: Process,
    life: Life,
    /// Readable when the leader has ended; `None` once that is known.
    exit: Option<Pipe>,
    stdin: Option<Pipe>,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    /// What comes on standard error.
    text: Text,
}

/// A pipe, or another descriptor, that is waited for.
#[derive(Debug)]
struct Pipe {
    fd: Fd,
    /// The operation that waits for it, if one does.
    waits: Option<Key>,
}

impl Programs {
    /// Takes the body of a request for a program. The request is found next.
    pub(super) fn consumer(&mut self, request: &Request<'_>) -> Option<Box<dyn Consumer>> {
        let framing = gateway::framing(request.head);
        if framing == Framing::None {
            return None;
        }
        self.bodies.offer(request.ticket, framing, Taker::Program, &self.news)
    }

    /// Finds the answer to a request for a program.
    pub(super) fn find(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        Call { directory, path, circumstances, interest }: Call<'_>,
        waiter: Waiter,
    ) -> Found<Answer> {
        let Request { head, ticket, .. } = *request;
        let Ok(input) = self.bodies.take(ticket) else { return refuse(shell, None) };
        if matches!(head.method, Method::Trace | Method::Connect) {
            drop_rest(input.as_ref());
            return Found::Now(Answer::Error(Status::MethodNotAllowed));
        }
        let Some(mailbox) = self.mailbox(shell) else { return refuse(shell, input.as_ref()) };
        let is_collected = input.as_ref().is_some_and(|input| input.borrow().is_collected());
        let mut environment = Environment::new(head, &circumstances);
        if interest.is_some() {
            environment = environment.without_content();
        }
        if let Some(length) = content_length(head)
            && (input.is_some() || length == 0)
        {
            environment.set_content_length(length);
        }
        let name = [directory.mount(), path].concat();
        let is_directory = path.ends_with(b"/");
        let path = path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let key = self.programs.insert(Program {
            ticket,
            name: String::from_utf8_lossy(&name).into_owned(),
            directory: Arc::clone(directory),
            interest: Weak::new(),
            input,
            output: Rc::new(RefCell::new(Output::new())),
            reply: Progress::Header(Parser::default()),
            stage: Stage::Collecting(None),
        });
        let interest = match interest {
            Some(interest) => interest,
            None => Rc::new(Interest::new(key, waiter.half_close, Rc::clone(&self.news))),
        };
        interest.pass_to(key);
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
            program.stage = Stage::Collecting(Some(Box::new(order)));
        } else if !program.order(shell, order) {
            let program = self.programs.remove(key).expect("looked at above");
            return refuse(shell, program.input.as_ref());
        }
        self.tick_later(shell);
        Found::Later(Some(Box::new(HeaderSearch(interest))))
    }

    /// The memory that an answer keeps. The response of a program cannot be found again.
    pub(super) const fn size(answer: &Answer) -> AnswerSize {
        let unique = matches!(answer, Answer::Document(_));
        AnswerSize { shared: 0, holds_files: false, unique }
    }

    /// Moves on what clients and programs have left to do.
    pub(super) fn act(&mut self, shell: &mut Shell) {
        loop {
            let News { touched, left } = core::mem::take(&mut *self.news.borrow_mut());
            if touched.is_empty() && left.is_empty() {
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
            while let Some(key) = self.bodies.surplus() {
                if let Some(program) = self.programs.get_mut(key) {
                    shell.cx.stats.cgi_refused += 1;
                    program.fail(&mut self.answers, Status::ServiceUnavailable);
                }
                self.go_on(shell, key);
            }
        }
    }

    /// Takes a completion of an operation of the programs.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: &Completion) {
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

    /// Takes the results of the threads.
    pub(super) fn handle_wake(&mut self, shell: &mut Shell) {
        let letters = self.mailbox.as_ref().map(|mailbox| mailbox.take()).unwrap_or_default();
        for (key, letter) in letters {
            let Some(program) = self.programs.get_mut(key) else {
                unreachable!("a program that was ordered is kept until it has been started");
            };
            match letter {
                Ok(process) => {
                    shell.cx.stats.cgi_started += 1;
                    program.start(shell, process);
                }
                Err(Refusal { status, reason }) => {
                    let answers = &mut self.answers;
                    if let Some(reason) = reason {
                        self.lines.note(shell, &program.name, &reason);
                    }
                    if status == Status::ServiceUnavailable {
                        shell.cx.stats.cgi_refused += 1;
                    }
                    program.fail(answers, status);
                    self.programs.remove(key);
                    continue;
                }
            }
            self.go_on(shell, key);
        }
    }

    /// The next answer that was found.
    pub(super) fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        self.answers.pop_front()
    }

    /// The next request whose producer or consumer can go on.
    pub(super) fn next_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front()
    }

    /// Returns whether no program runs or is to run, and all answers have been taken.
    pub(super) fn is_idle(&self) -> bool {
        self.programs.is_empty() && self.answers.is_empty()
    }

    /// Returns whether there may be something to do, or something new for a request, also for one whose program has
    /// ended.
    pub(super) fn may_have_news(&self) -> bool {
        !self.is_idle() || !self.woken.is_empty()
    }

    /// Kills all programs.
    pub(super) fn kill_all(&mut self) {
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
        let keys: Vec<Key> = self.programs.keys().collect();
        for key in keys {
            self.go_on(shell, key);
        }
        if !self.programs.is_empty() {
            self.tick_later(shell);
        }
    }

    /// Does for a program whatever can be done now.
    fn go_on(&mut self, shell: &mut Shell, key: Key) {
        let Self { programs, answers, woken, lines, scratch, .. } = self;
        let Some(program) = programs.get_mut(key) else { return };
        let mut tools = Tools { shell, answers, woken, lines, scratch };
        if program.go_on(&mut tools, key) {
            programs.remove(key);
        }
    }
}

/// What a program goes on with.
struct Tools<'a> {
    shell: &'a mut Shell,
    answers: &'a mut VecDeque<(Ticket, Answer)>,
    woken: &'a mut VecDeque<Ticket>,
    lines: &'a mut Lines,
    scratch: &'a mut Vec<u8>,
}

impl Program {
    /// Has the program started. Returns false if there are too many.
    fn order(&mut self, shell: &Shell, order: Order) -> bool {
        let until = shell.cx.now + self.directory.config.timeout;
        self.stage = Stage::Ordered(Arc::clone(&order.wanted), until);
        self.directory.submit(order)
    }

    /// The program has been started.
    fn start(&mut self, shell: &Shell, mut process: Process) {
        let pipe = |fd| Pipe { fd: shell.ring.adopt_socket(fd), waits: None };
        let pipes = process.take_pipes();
        let config = &self.directory.config;
        let mut life = Life::new(shell.cx.now, config.timeout, config.output_max);
        if matches!(self.reply, Progress::Over) {
            life.stop(Cause::Gone);
        }
        self.stage = Stage::Running(Box::new(Running {
            process,
            life,
            exit: pipes.exit.map(pipe),
            stdin: pipes.stdin.map(pipe),
            stdout: pipes.stdout.map(pipe),
            stderr: pipes.stderr.map(pipe),
            text: Text::default(),
        }));
    }

    /// The client waits no more, or has got what it wanted.
    fn handle_left(&mut self, answers: &mut VecDeque<(Ticket, Answer)>) {
        let has_all = {
            let output = self.output.borrow();
            output.has_ended() || output.is_unwanted
        };
        match (&self.reply, &mut self.stage) {
            (Progress::Over, _) => {}
            (Progress::Content, _) if has_all => self.reply = Progress::Over,
            (_, Stage::Running(running)) => running.life.stop(Cause::Gone),
            (_, Stage::Ordered(..) | Stage::Collecting(_)) => {
                self.fail(answers, Status::ServiceUnavailable);
            }
        }
    }

    /// Does whatever can be done now. Returns true at the end.
    fn go_on(&mut self, tools: &mut Tools<'_>, key: Key) -> bool {
        let now = tools.shell.cx.now;
        let is_over = matches!(self.reply, Progress::Over);
        match &mut self.stage {
            Stage::Collecting(_) if is_over => true,
            Stage::Collecting(order) => {
                let length = self.input.as_ref().and_then(|input| input.borrow().length());
                let Some(length) = length else { return false };
                let mut order = order.take().expect("it is ordered once");
                order.environment.set_content_length(length);
                if self.order(tools.shell, *order) {
                    return false;
                }
                tools.shell.cx.stats.cgi_refused += 1;
                self.fail(tools.answers, Status::ServiceUnavailable);
                true
            }
            Stage::Ordered(wanted, until) if is_over || now >= *until => {
                let wanted = Arc::clone(wanted);
                wanted.store(false, Ordering::Relaxed);
                if !is_over {
                    tools.shell.cx.stats.cgi_refused += 1;
                    self.fail(tools.answers, Status::ServiceUnavailable);
                }
                self.directory.withdraw(&wanted)
            }
            Stage::Ordered(..) => false,
            Stage::Running(_) => self.run(tools, key),
        }
    }

    /// Moves the bytes of the program, and ends it if it is time. Returns true at the end.
    fn run(&mut self, tools: &mut Tools<'_>, key: Key) -> bool {
        let token = kind::CGI | key.to_bits();
        self.write_input(tools, token);
        self.read_output(tools, token);
        self.read_errors(tools, token);
        let now = tools.shell.cx.now;
        let Stage::Running(running) = &mut self.stage else { return false };
        running.look_for_exit(&mut tools.shell.ring, token, now);
        if let Some(end) = running.life.end(now) {
            self.end(tools, end);
        }
        let Stage::Running(running) = &mut self.stage else { return false };
        while let Some(action) = running.life.poll(now) {
            match action {
                Action::Terminate => {
                    tools.shell.cx.stats.cgi_killed += 1;
                    running.process.signal(Signal::TERM);
                }
                Action::Kill => running.process.signal(Signal::KILL),
                Action::Reap => {
                    running.process.reap();
                    running.close(tools, &self.name);
                    return true;
                }
            }
        }
        false
    }

    /// Gives the program what there is of its body.
    fn write_input(&mut self, tools: &mut Tools<'_>, token: u64) {
        let Self { input: Some(input), stage: Stage::Running(running), .. } = self else { return };
        let Some(stdin) = running.stdin.as_mut().filter(|stdin| stdin.waits.is_none()) else {
            return;
        };
        let mut input = input.borrow_mut();
        let before = input.waiting.len();
        while let (first @ [_, ..], _) = input.waiting.as_slices() {
            match write(stdin.fd.os(), &first[..first.len().min(PIPE_BYTES)]) {
                Ok(count) => drop(input.waiting.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    stdin.wait(&mut tools.shell.ring, Op::Writable, token);
                    break;
                }
                // EPIPE: the program does not want it, which is no error.
                Err(_) => input.drop_rest(),
            }
        }
        if input.is_over() {
            running.stdin = None;
            input.release();
        }
        if input.waiting.len() < before {
            tools.woken.push_back(self.ticket);
        }
    }

    /// Takes what the program has put out, as far as there is room for it.
    fn read_output(&mut self, tools: &mut Tools<'_>, token: u64) {
        for _ in 0..READS_MAX {
            let Stage::Running(running) = &mut self.stage else { return };
            let is_stopped = running.life.is_stopped();
            let is_full = matches!(self.reply, Progress::Content)
                && self.output.borrow().bytes >= OUTPUT_BYTES_MAX;
            let Some(stdout) = running.stdout.as_mut().filter(|stdout| stdout.waits.is_none())
            else {
                return;
            };
            if is_full && !is_stopped {
                return;
            }
            let now = tools.shell.cx.now;
            if !stdout.read(tools.scratch) {
                running.life.handle_quiet(now);
                return stdout.wait(&mut tools.shell.ring, Op::Readable, token);
            }
            if tools.scratch.is_empty() {
                running.life.handle_output_end(now);
                running.stdout = None;
                return;
            }
            running.life.handle_output(tools.scratch.len() as u64);
            let bytes = core::mem::take(tools.scratch);
            if !is_stopped {
                self.take(tools, &bytes);
            }
            *tools.scratch = bytes;
            // A program that is being stopped may put out more than is worth reading.
            if is_stopped {
                return;
            }
        }
        // The others' turns come first.
        if let Stage::Running(running) = &mut self.stage
            && let Some(stdout) = &mut running.stdout
        {
            stdout.wait(&mut tools.shell.ring, Op::Readable, token);
        }
    }

    /// Takes what the program has put out on standard error: lines for the operator.
    fn read_errors(&mut self, tools: &mut Tools<'_>, token: u64) {
        let Stage::Running(running) = &mut self.stage else { return };
        let Some(stderr) = running.stderr.as_mut().filter(|stderr| stderr.waits.is_none()) else {
            return;
        };
        if !stderr.read(tools.scratch) {
            return stderr.wait(&mut tools.shell.ring, Op::Readable, token);
        }
        let has_ended = tools.scratch.is_empty();
        running.life.handle_errors(tools.scratch.len() as u64);
        if has_ended {
            running.stderr = None;
        } else {
            stderr.wait(&mut tools.shell.ring, Op::Readable, token);
        }
        running.log(tools, &self.name);
    }

    /// Takes output, which is a header first.
    fn take(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) {
        match &mut self.reply {
            Progress::Header(parser) => match parser.handle_output(bytes) {
                Ok((_, None)) => {}
                Ok((taken, Some(reply))) => {
                    if let Reply::Document(document) = &reply
                        && document.fields.fields().any(|(name, _)| imitates_framing(name))
                    {
                        return self.blame(tools, IMITATION);
                    }
                    self.answer(tools, reply);
                    if let Progress::Content = self.reply {
                        self.take(tools, &bytes[taken..]);
                    }
                }
                Err(fault) => self.blame(tools, fault.reason),
            },
            Progress::Content => {
                let mut output = self.output.borrow_mut();
                let is_within = output.push(bytes);
                if core::mem::take(&mut output.is_awaited) {
                    tools.woken.push_back(self.ticket);
                }
                drop(output);
                if !is_within {
                    self.note(
                        tools,
                        "it put out more than its Content-Length; the rest is dropped",
                    );
                    self.reply = Progress::Over;
                }
            }
            Progress::Over => {}
        }
    }

    /// The header breaks a rule.
    fn blame(&mut self, tools: &mut Tools<'_>, reason: &str) {
        self.note(tools, reason);
        tools.shell.cx.stats.cgi_failed += 1;
        self.fail(tools.answers, Status::BadGateway);
        self.stop(Cause::Header);
    }

    /// The header is complete.
    fn answer(&mut self, tools: &mut Tools<'_>, reply: Reply) {
        let Some(interest) = self.interest.upgrade() else {
            self.fail(tools.answers, Status::ServiceUnavailable);
            return self.stop(Cause::Gone);
        };
        let answer = match reply {
            Reply::Document(mut document) => {
                // A program hands a request over by `Location` alone.
                let names = document.fields.fields().map(|(name, _)| name);
                let unwanted: Vec<_> =
                    names.filter(|name| is_for_proxy(name)).map(<[u8]>::to_vec).collect();
                unwanted.iter().for_each(|name| document.fields.remove(name));
                self.reply = Progress::Content;
                let mut output = self.output.borrow_mut();
                if document.has_content() {
                    output.promise(document.content_length);
                } else {
                    output.drop_rest();
                }
                let output = Rc::clone(&self.output);
                Answer::Document(Box::new(Reached { document, output, interest }))
            }
            Reply::LocalRedirect(path) => {
                self.give_up_input();
                self.reply = Progress::Over;
                Answer::Redirect(path, interest)
            }
        };
        tools.answers.push_back((self.ticket, answer));
    }

    /// The response has ended.
    fn end(&mut self, tools: &mut Tools<'_>, end: End) {
        let reason = match end {
            End::Whole => None,
            End::Cut(cause) => self.reason(cause),
        };
        match &self.reply {
            Progress::Header(_) => {
                let status = match end {
                    End::Cut(Cause::Gone) => Status::ServiceUnavailable,
                    End::Cut(Cause::Timeout) => Status::GatewayTimeout,
                    End::Cut(_) | End::Whole => Status::BadGateway,
                };
                if end != End::Cut(Cause::Gone) {
                    let reason = reason.unwrap_or_else(|| "it ended".to_owned());
                    self.note(tools, &format!("{reason} before its header was complete"));
                    tools.shell.cx.stats.cgi_failed += 1;
                }
                self.fail(tools.answers, status);
            }
            Progress::Content => {
                let mut output = self.output.borrow_mut();
                let had_ended = output.has_ended() || output.is_unwanted;
                let is_complete = output.finish(end == End::Whole);
                if core::mem::take(&mut output.is_awaited) {
                    tools.woken.push_back(self.ticket);
                }
                drop(output);
                if !had_ended && !is_complete && end != End::Cut(Cause::Gone) {
                    let reason = reason
                        .unwrap_or_else(|| "it put out less than its Content-Length".to_owned());
                    self.note(tools, &format!("{reason}; its response is cut off"));
                    tools.shell.cx.stats.cgi_failed += 1;
                }
                self.give_up_input();
                self.reply = Progress::Over;
            }
            Progress::Over => {}
        }
    }

    /// The reason for which a response is cut off, for the operator; `None` if it is none of the program's.
    fn reason(&self, cause: Cause) -> Option<String> {
        let config = &self.directory.config;
        match cause {
            Cause::Output => Some(format!("it put out more than {} bytes", config.output_max)),
            Cause::Signal(signal) => Some(format!("{} ended it", name_of(signal))),
            Cause::Timeout => Some(format!("it took more than {} s", config.timeout.as_secs_f64())),
            Cause::Gone | Cause::Header | Cause::Silence => None,
        }
    }

    /// Answers with a page for this status. The client may have gone.
    fn fail(&mut self, answers: &mut VecDeque<(Ticket, Answer)>, status: Status) {
        if !matches!(self.reply, Progress::Over) {
            self.reply = Progress::Over;
            answers.push_back((self.ticket, Answer::Error(status)));
        }
        self.give_up_input();
    }

    fn give_up_input(&self) {
        drop_rest(self.input.as_ref());
    }

    fn stop(&mut self, cause: Cause) {
        if let Stage::Running(running) = &mut self.stage {
            running.life.stop(cause);
        }
    }

    /// Tells the operator something about the program.
    fn note(&self, tools: &mut Tools<'_>, text: &str) {
        tools.lines.note(tools.shell, &self.name, text);
    }
}

impl Running {
    /// Finds out whether the leader has ended.
    fn look_for_exit(&mut self, ring: &mut Ring, token: u64, now: Time) {
        let Some(exit) = self.exit.as_mut().filter(|exit| exit.waits.is_none()) else { return };
        let Some(signal) = self.process.exit() else { return exit.wait(ring, Op::Readable, token) };
        self.exit = None;
        self.life.handle_exit(now, signal);
        // Nothing more is read of a program that is being stopped.
        if self.life.is_stopped()
            && self.stdout.as_ref().is_none_or(|stdout| is_hung_up(stdout.fd.os()))
        {
            self.life.handle_output_end(now);
        }
    }

    /// Logs the lines that were read last, and the beginning of one if they are the last.
    fn log(&mut self, tools: &mut Tools<'_>, name: &str) {
        let Tools { shell, lines, scratch, .. } = tools;
        let mut note = |line: &str| lines.note(shell, name, line);
        self.text.push(scratch, &mut note);
        if scratch.is_empty() {
            self.text.end(note);
        }
    }

    /// Closes the pipes. What was put out on standard error last is still logged.
    fn close(&mut self, tools: &mut Tools<'_>, name: &str) {
        if let Some(stderr) = &self.stderr {
            let is_read = stderr.read(tools.scratch);
            if is_read {
                self.log(tools, name);
            }
        }
        tools.scratch.clear();
        self.log(tools, name);
        for pipe in [&mut self.exit, &mut self.stdin, &mut self.stdout, &mut self.stderr] {
            if let Some(Pipe { waits: Some(key), .. }) = pipe.take() {
                tools.shell.ring.cancel(key);
            }
        }
    }
}

impl Pipe {
    /// Waits for it.
    fn wait(&mut self, ring: &mut Ring, op: impl FnOnce(Fd) -> Op, token: u64) {
        self.waits = Some(ring.submit(op(self.fd.clone()), token));
    }

    /// Reads what there is, at most [`PIPE_BYTES`]; nothing is the end. Returns false if there is nothing
    /// at the moment.
    fn read(&self, into: &mut Vec<u8>) -> bool {
        into.clear();
        into.reserve_exact(PIPE_BYTES);
        loop {
            match read(self.fd.os(), spare_capacity(into)) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // Of a pipe of our own there are no other errors.
                Ok(_) | Err(_) => return true,
            }
        }
    }
}

/// The response that an answer comes to.
pub(super) fn response<'a>(head: &Head<'_>, answer: &'a Answer) -> Response<'a> {
    let reached = match answer {
        Answer::Error(status) => return page::error(bare(*status)),
        Answer::Document(reached) => reached,
        Answer::Redirect(..) => unreachable!("the router has followed it"),
    };
    let Reached { document, output, interest } = &**reached;
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
        // The session drops the body; the program goes on.
        output.borrow_mut().drop_rest();
    }
    if !document.has_content() {
        return Response::bare(fields);
    }
    let producer = OutputProducer { output: Rc::clone(output), interest: Rc::clone(interest) };
    Response::new(fields, Body::from(Part::Producer(Box::new(producer))))
}

/// There is too much to do: the client is to come again.
fn refuse(shell: &mut Shell, input: Option<&Rc<RefCell<Input>>>) -> Found<Answer> {
    shell.cx.stats.cgi_refused += 1;
    drop_rest(input);
    Found::Now(Answer::Error(Status::ServiceUnavailable))
}

/// Nothing takes the rest of a body.
fn drop_rest(input: Option<&Rc<RefCell<Input>>>) {
    if let Some(input) = input {
        input.borrow_mut().drop_rest();
    }
}

/// The length of the body of a request, if the client says it.
fn content_length(head: &Head<'_>) -> Option<u64> {
    head.field(Field::ContentLength).and_then(bytes::decimal)
}

/// A signal for the operator.
fn name_of(signal: i32) -> String {
    let name = match Signal::from_named_raw(signal) {
        Some(Signal::ABORT) => " (SIGABRT)",
        Some(Signal::BUS) => " (SIGBUS)",
        Some(Signal::FPE) => " (SIGFPE)",
        Some(Signal::ILL) => " (SIGILL)",
        Some(Signal::KILL) => " (SIGKILL)",
        Some(Signal::PIPE) => " (SIGPIPE)",
        Some(Signal::SEGV) => " (SIGSEGV)",
        Some(Signal::SYS) => " (SIGSYS)",
        Some(Signal::TERM) => " (SIGTERM)",
        Some(Signal::XCPU) => " (SIGXCPU)",
        _ => "",
    };
    format!("signal {signal}{name}")
}

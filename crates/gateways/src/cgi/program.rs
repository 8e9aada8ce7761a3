//! One request for a program: its order, its body, its response, and its end.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{FieldSection, Status};
use ring::{Key, Op, Time};
use rustix::io::{Errno, write};
use rustix::process::Signal;

use super::life::{Action, Cause, End, Life};
use super::response::{Parser, Reply};
use super::running::{PIPE_BYTES, Pipe, Running};
use super::{Answer, Reached, Tools, drop_rest};
use crate::input::Input;
use crate::interest::Interest;
use crate::lines::Text;
use crate::names::{imitates_framing, is_for_proxy};
use crate::output::{EARLY_BYTES_MAX, Output};
use crate::programs::descendants::Scope;
use crate::programs::process::Process;
use crate::programs::{Directory, Order};
use session::handler::Ticket;
use session::kind;
use session::reason::Reason;
use session::shell::Shell;

/// Bytes of an output that wait for the client; at this limit the program waits.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// If there is room for fewer bytes than this, nothing is read.
const READ_BYTES_MIN: usize = 1024;
/// Reads of one output in one worker turn; then the others come first.
const READS_MAX: usize = 4;

/// A request for a program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) ticket: Ticket,
    /// The path of the request, for messages.
    pub(super) name: String,
    pub(super) directory: Arc<Directory>,
    pub(super) interest: Weak<Interest>,
    pub(super) input: Option<Rc<RefCell<Input>>>,
    pub(super) output: Rc<RefCell<Output>>,
    /// The progress of the response.
    pub(super) reply: Progress,
    pub(super) stage: Stage,
}

/// The progress of the response of a program.
#[derive(Debug)]
pub(super) enum Progress {
    Header(Box<Parser>),
    Content,
    /// The response has ended, or is no longer wanted. Further output is dropped.
    Over,
}

/// The stage of a program.
#[derive(Debug)]
pub(super) enum Stage {
    /// The body is being collected; then the program is ordered.
    Collecting(Option<Box<Order>>),
    /// The program is to be started, by this time if its client still waits. The flag is false once it is no longer
    /// wanted.
    Ordered(Arc<AtomicBool>, Time),
    Running(Box<Running>),
}

impl Program {
    /// Orders the start of the program. Returns false if there are too many orders.
    pub(super) fn order(&mut self, shell: &Shell, order: Order) -> bool {
        let until = shell.cx.now + self.directory.config.timeout;
        self.stage = Stage::Ordered(Arc::clone(&order.wanted), until);
        self.directory.submit(order)
    }

    /// Begins to use the process that was started.
    pub(super) fn start(&mut self, shell: &Shell, mut process: Process) {
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

    /// Handles a client that waits no more, has got all that it wanted, or has broken its request off.
    pub(super) fn handle_left(&mut self, answers: &mut VecDeque<(Ticket, Answer)>) {
        let has_all = {
            let output = self.output.borrow();
            output.has_ended() || output.is_unwanted
        };
        match (&self.reply, &mut self.stage) {
            (Progress::Over, _) => {}
            (Progress::Content, _) if has_all => self.reply = Progress::Over,
            (_, Stage::Running(running)) => running.life.stop(Cause::Gone),
            (_, Stage::Ordered(..) | Stage::Collecting(_)) => {
                self.fail(answers, Status::ServiceUnavailable, Reason::Gone);
            }
        }
    }

    /// Does everything that can be done now. Returns true at the end.
    pub(super) fn go_on(&mut self, tools: &mut Tools<'_>, key: Key) -> bool {
        let now = tools.shell.cx.now;
        if self.input.as_ref().is_some_and(|input| input.borrow().is_broken_off()) {
            self.handle_left(tools.answers);
        }
        if self.input.as_ref().is_some_and(|input| input.borrow().has_no_room()) {
            self.handle_no_room(tools);
        }
        let is_over = matches!(self.reply, Progress::Over);
        match &mut self.stage {
            Stage::Collecting(_) if is_over => true,
            Stage::Collecting(_)
                if self.input.as_ref().is_some_and(|input| input.borrow().is_too_long()) =>
            {
                self.fail(tools.answers, Status::ContentTooLarge, Reason::BodyTooLong);
                true
            }
            Stage::Collecting(order) => {
                let length = self.input.as_ref().and_then(|input| input.borrow().length());
                let Some(length) = length else { return false };
                let mut order = order.take().expect("it is ordered once");
                order.environment.set_content_length(length);
                if self.order(tools.shell, *order) {
                    return false;
                }
                tools.shell.cx.stats.cgi_refused.add(1);
                self.fail(tools.answers, Status::ServiceUnavailable, Reason::NoRoom);
                true
            }
            Stage::Ordered(wanted, until) if is_over || now >= *until => {
                let wanted = Arc::clone(wanted);
                wanted.store(false, Ordering::Relaxed);
                if !is_over {
                    tools.shell.cx.stats.cgi_refused.add(1);
                    self.fail(tools.answers, Status::ServiceUnavailable, Reason::NoRoom);
                }
                self.directory.withdraw(&wanted)
            }
            Stage::Ordered(..) => false,
            Stage::Running(_) => self.run(tools, key),
        }
    }

    /// Answers the request, because its body was given up.
    fn handle_no_room(&mut self, tools: &mut Tools<'_>) {
        match &mut self.stage {
            Stage::Running(running) => running.life.stop(Cause::Gone),
            Stage::Collecting(_) | Stage::Ordered(..) => {
                if !matches!(self.reply, Progress::Over) {
                    tools.shell.cx.stats.cgi_refused.add(1);
                }
                self.fail(tools.answers, Status::ServiceUnavailable, Reason::NoRoom);
            }
        }
    }

    /// Moves the bytes of the program, and ends the program when it is time. Returns true at the end.
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
            let is_silence = running.life.is_stopped_for_silence();
            let scope = if is_silence { Scope::Holders } else { Scope::All };
            match action {
                Action::Terminate => {
                    tools.shell.cx.stats.cgi_killed.add(1);
                    running.process.signal(Signal::TERM, scope);
                }
                Action::Kill => {
                    if !running.process.signal(Signal::KILL, scope) {
                        running.life.handle_immortal(now);
                    }
                }
                Action::Reap => {
                    running.process.reap();
                    let source = String::from_utf8_lossy(self.directory.mount());
                    running.close(tools, (&source, &self.name));
                    return true;
                }
            }
        }
        false
    }

    /// Writes the bytes of the body that have come to the program.
    fn write_input(&mut self, tools: &mut Tools<'_>, token: u64) {
        let Self { input: Some(input), stage: Stage::Running(running), .. } = self else { return };
        let Some(stdin) = running.stdin.as_mut().filter(|stdin| stdin.waits.is_none()) else {
            return;
        };
        let mut input = input.borrow_mut();
        let mut has_taken = false;
        while let next @ [_, ..] = input.next() {
            match write(stdin.fd.os(), &next[..next.len().min(PIPE_BYTES)]) {
                Ok(count) => {
                    input.consume(count);
                    has_taken = true;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    stdin.wait(&mut tools.shell.ring, Op::Writable, token);
                    break;
                }
                // EPIPE means that the program does not want the body, which is no error.
                Err(_) => {
                    input.drop_rest();
                    has_taken = true;
                }
            }
        }
        if input.is_over() {
            running.stdin = None;
            input.release();
        }
        if has_taken {
            tools.woken.push_back(self.ticket);
        }
    }

    /// Bytes of the output that may wait for the client: few before its turn, and while the worker's memory is short.
    fn output_max(&self, tools: &Tools<'_>) -> u64 {
        let is_taken = self.output.borrow().takes.is_some();
        let has_room = is_taken && tools.shell.cx.budget.has_room(OUTPUT_BYTES_MAX);
        if has_room { OUTPUT_BYTES_MAX } else { EARLY_BYTES_MAX }
    }

    /// Reads output of the program while there is room for it.
    fn read_output(&mut self, tools: &mut Tools<'_>, token: u64) {
        for _ in 0..READS_MAX {
            let most = self.output_max(tools);
            let Stage::Running(running) = &mut self.stage else { return };
            let is_stopped = running.life.is_stopped();
            let room = most.saturating_sub(self.output.borrow().bytes);
            let is_full = matches!(self.reply, Progress::Content) && room == 0;
            let Some(stdout) = running.stdout.as_mut().filter(|stdout| stdout.waits.is_none())
            else {
                return;
            };
            if is_full && !is_stopped {
                return;
            }
            let now = tools.shell.cx.now;
            // The output of a program that is being stopped is read to its end.
            let room =
                if is_stopped { PIPE_BYTES } else { usize::try_from(room).unwrap_or(PIPE_BYTES) };
            if !stdout.read(tools.scratch, room.max(READ_BYTES_MIN)) {
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
            // A program that is being stopped may put out more than is worth reading in one turn.
            if is_stopped {
                return;
            }
        }
        // The others come first.
        if let Stage::Running(running) = &mut self.stage
            && let Some(stdout) = &mut running.stdout
        {
            stdout.wait(&mut tools.shell.ring, Op::Readable, token);
        }
    }

    /// Handles the text that the program has put out on standard error: lines for the operator.
    fn read_errors(&mut self, tools: &mut Tools<'_>, token: u64) {
        let Stage::Running(running) = &mut self.stage else { return };
        let Some(stderr) = running.stderr.as_mut().filter(|stderr| stderr.waits.is_none()) else {
            return;
        };
        if !stderr.read(tools.scratch, PIPE_BYTES) {
            return stderr.wait(&mut tools.shell.ring, Op::Readable, token);
        }
        let has_ended = tools.scratch.is_empty();
        running.life.handle_errors(tools.scratch.len() as u64);
        if has_ended {
            running.stderr = None;
        } else {
            stderr.wait(&mut tools.shell.ring, Op::Readable, token);
        }
        let source = String::from_utf8_lossy(self.directory.mount());
        running.log(tools, (&source, &self.name));
    }

    /// Handles output, which begins with a header.
    fn take(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) {
        match &mut self.reply {
            Progress::Header(parser) => match parser.handle_output(bytes) {
                Ok((_, None)) => {}
                Ok((taken, Some(reply))) => {
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

    /// Answers 502, because the header breaks a rule.
    fn blame(&mut self, tools: &mut Tools<'_>, reason: &str) {
        self.note(tools, reason);
        tools.shell.cx.stats.cgi_failed.add(1);
        let reason = Reason::failed(&self.name, reason);
        self.fail(tools.answers, Status::BadGateway, reason);
        self.stop(Cause::Header);
    }

    /// Answers the request, because the header is complete.
    fn answer(&mut self, tools: &mut Tools<'_>, reply: Reply) {
        let Some(interest) = self.interest.upgrade() else {
            self.fail(tools.answers, Status::ServiceUnavailable, Reason::Gone);
            return self.stop(Cause::Gone);
        };
        let answer = match reply {
            Reply::Document(mut document) => {
                // A program can hand a request over only by `Location`.
                let mut fields = FieldSection::EMPTY;
                for (name, value) in document.fields.fields() {
                    if !is_for_proxy(name) && !imitates_framing(name) {
                        fields.push(name, value);
                    }
                }
                document.fields = fields;
                self.reply = Progress::Content;
                let mut output = self.output.borrow_mut();
                if document.has_content() {
                    output.promise(document.content_length);
                } else {
                    output.drop_rest();
                }
                let output = Rc::clone(&self.output);
                let is_error = document.status.code() >= 400;
                let reason = is_error.then(|| Reason::answered(&self.name, document.status));
                Answer::Document(Box::new(Reached { document, output, interest, reason }))
            }
            Reply::LocalRedirect(path) => {
                self.give_up_input();
                self.reply = Progress::Over;
                Answer::Redirect(path, interest)
            }
        };
        tools.answers.push_back((self.ticket, answer));
    }

    /// Ends the response.
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
                let reason = if end == End::Cut(Cause::Gone) {
                    Reason::Gone
                } else {
                    let reason = reason.unwrap_or_else(|| "it ended".to_owned());
                    let text = format!("{reason} before its header was complete");
                    self.note(tools, &text);
                    tools.shell.cx.stats.cgi_failed.add(1);
                    Reason::failed(&self.name, &text)
                };
                self.fail(tools.answers, status, reason);
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
                    tools.shell.cx.stats.cgi_failed.add(1);
                }
                self.give_up_input();
                self.reply = Progress::Over;
            }
            Progress::Over => {}
        }
    }

    /// The reason why a response is cut off, for the operator; `None` if the program is not the cause.
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
    pub(super) fn fail(
        &mut self,
        answers: &mut VecDeque<(Ticket, Answer)>,
        status: Status,
        reason: Reason,
    ) {
        if !matches!(self.reply, Progress::Over) {
            self.reply = Progress::Over;
            answers.push_back((self.ticket, Answer::Error(status, reason)));
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

    /// Logs a line about the program.
    fn note(&self, tools: &mut Tools<'_>, text: &str) {
        tools.lines.note(tools.shell, &self.name, text);
    }
}

/// The name of a signal for the operator.
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

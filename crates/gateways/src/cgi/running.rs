//! The process of a program, with its pipes.

use ring::{Fd, Key, Op, Ring, Time};
use rustix::io::{Errno, read};

use super::Tools;
use super::life::Life;
use crate::lines::Text;
use crate::programs::process::{Process, is_hung_up};

/// Bytes that one call reads from a pipe, or writes to a pipe: the capacity of a pipe.
pub(super) const PIPE_BYTES: usize = 64 * 1024;

/// A program that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) life: Life,
    /// A descriptor that is readable when the leader has ended; `None` once that is known.
    pub(super) exit: Option<Pipe>,
    pub(super) stdin: Option<Pipe>,
    pub(super) stdout: Option<Pipe>,
    pub(super) stderr: Option<Pipe>,
    /// The text from standard error.
    pub(super) text: Text,
}

/// A pipe, or another descriptor for which the ring waits.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) fd: Fd,
    /// The operation that waits for the descriptor, if there is one.
    pub(super) waits: Option<Key>,
}

impl Running {
    /// Checks if the leader has ended.
    pub(super) fn look_for_exit(&mut self, ring: &mut Ring, token: u64, now: Time) {
        let Some(exit) = self.exit.as_mut().filter(|exit| exit.waits.is_none()) else { return };
        let Some(signal) = self.process.exit() else { return exit.wait(ring, Op::Readable, token) };
        self.exit = None;
        self.life.handle_exit(now, signal);
        // The rest of the output is not needed of a program that is being stopped.
        if self.life.is_stopped()
            && self.stdout.as_ref().is_none_or(|stdout| is_hung_up(stdout.fd.os()))
        {
            self.life.handle_output_end(now);
        }
    }

    /// Logs the lines that were read last; at the end also an incomplete line. The names are those of the directory and
    /// of the program.
    pub(super) fn log(&mut self, tools: &mut Tools<'_>, (source, name): (&str, &str)) {
        let Tools { shell, lines, scratch, .. } = tools;
        let mut note = |line: &str| lines.note_text(shell, source, name, line);
        self.text.push(scratch, &mut note);
        if scratch.is_empty() {
            self.text.end(note);
        }
    }

    /// Closes the pipes, and still logs the last text from standard error.
    pub(super) fn close(&mut self, tools: &mut Tools<'_>, names: (&str, &str)) {
        if let Some(stderr) = &self.stderr {
            let is_read = stderr.read(tools.scratch, PIPE_BYTES);
            if is_read {
                self.log(tools, names);
            }
        }
        tools.scratch.clear();
        self.log(tools, names);
        for pipe in [&mut self.exit, &mut self.stdin, &mut self.stdout, &mut self.stderr] {
            if let Some(Pipe { waits: Some(key), .. }) = pipe.take() {
                tools.shell.ring.cancel(key);
            }
        }
    }
}

impl Pipe {
    /// Lets the ring wait for the descriptor.
    pub(super) fn wait(&mut self, ring: &mut Ring, op: impl FnOnce(Fd) -> Op, token: u64) {
        self.waits = Some(ring.submit(op(self.fd.clone()), token));
    }

    /// Reads available bytes, at most this many and [`PIPE_BYTES`]; no bytes mean the end. Returns false if there are
    /// none at the moment.
    pub(super) fn read(&self, into: &mut Vec<u8>, most: usize) -> bool {
        into.clear();
        into.resize(most.min(PIPE_BYTES), 0);
        let read = loop {
            match read(self.fd.os(), &mut into[..]) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        // A pipe of our own has no other errors.
        into.truncate(read.unwrap_or(0));
        read != Err(Errno::AGAIN)
    }
}

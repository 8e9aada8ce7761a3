//! Writes a log without blocking the worker. Lines are collected and written through the ring, and dropped if the log
//! accepts no more.

use core::time::Duration;
use std::rc::Rc;

use ring::{Completion, Event, Fd, Key, Op, Ring, Time, Token};
use rustix::fs::fstat;
use rustix::pipe::fcntl_getpipe_size;

use crate::dropped_lines;

/// Bytes that may wait to be written; at this limit lines are dropped and counted.
const BUFFER_MAX: usize = 1024 * 1024;
/// If at least this many bytes of lines wait, they are written immediately. Fewer bytes wait for at most [`DELAY_MAX`].
const BATCH_BYTES: usize = 32 * 1024;
const DELAY_MAX: Duration = Duration::from_millis(250);
/// Bytes in one write to a pipe: the kernel does not interleave smaller writes of several workers (`PIPE_BUF`,
/// pipe(7)).
const PIPE_BYTES_MAX: usize = 4096;
/// The time between a write that failed and the next try.
const RETRY: Duration = Duration::from_secs(1);
/// The time for a write to a pipe that is to be replaced. Its reader may hang or have gone.
const LAST_WRITE_MAX: Duration = Duration::from_secs(1);

/// Lines under way to a file or pipe.
#[derive(Debug)]
pub struct Sink {
    fd: Option<Fd>,
    /// Replaces `fd` once no line is partly written.
    next: Option<Replacement>,
    /// The end of the bytes that have been written.
    end: End,
    token: Token,
    name: Rc<str>,
    write_bytes_max: usize,
    waiting: Vec<u8>,
    /// The time at which the oldest waiting line was added.
    since: Option<Time>,
    /// `Some` while a write is in flight.
    in_flight: Option<InFlight>,
    retry_at: Option<Time>,
    dropped: u64,
    /// The number of dropped lines that were reported.
    reported: u64,
    /// A message about lost lines that was not reported yet.
    trouble: Option<String>,
    /// True if lines are being dropped.
    troubled: bool,
}

/// The file that replaces another one.
#[derive(Debug)]
struct Replacement {
    fd: Fd,
    /// The time at which the write in flight is given up for the next file, if the write may never end.
    deadline: Option<Time>,
}

/// A write in flight.
#[derive(Debug)]
struct InFlight {
    key: Key,
    lines: u64,
    /// True if the write ends with a complete line.
    is_whole: bool,
}

/// The end of the bytes that have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A complete line.
    Whole,
    /// A part of a line. The rest of the line is in flight, or first among the lines that wait.
    Torn,
    /// A part of a line whose rest was dropped. The next write begins with a line feed.
    Broken,
}

impl Sink {
    /// Makes a sink; without an `fd` it discards all lines.
    pub fn new(fd: Option<Fd>, token: Token, name: &str, is_file: bool) -> Self {
        Self {
            fd,
            next: None,
            end: End::Whole,
            token,
            name: name.into(),
            write_bytes_max: if is_file { usize::MAX } else { PIPE_BYTES_MAX },
            waiting: Vec::new(),
            since: None,
            in_flight: None,
            retry_at: None,
            dropped: 0,
            reported: 0,
            trouble: None,
            troubled: false,
        }
    }

    /// Writes to another file from the next complete line on. A pipe that accepts nothing more is not waited for.
    pub fn replace(&mut self, fd: Fd, now: Time) {
        let may_hang = self.fd.as_ref().is_some_and(|before| is_other_pipe(before, &fd));
        let deadline = may_hang.then(|| now + LAST_WRITE_MAX);
        self.next = Some(Replacement { fd, deadline });
        self.settle();
    }

    /// Takes the next file, unless the rest of a line must still go to the current one.
    fn settle(&mut self) {
        if self.next.is_some() && self.in_flight.is_none() && self.end != End::Torn {
            self.fd = self.next.take().map(|next| next.fd);
            self.end = End::Whole;
            // An error of the old file says nothing about the new one.
            self.retry_at = None;
        }
    }

    /// Adds a line, which ends in a line feed, and writes it now if no write is in flight.
    pub fn line(&mut self, ring: &mut Ring, line: &[u8]) {
        let now = ring.now();
        self.add(line, now);
        self.write(ring, now);
    }

    /// Adds a line, which is written when it is [`due`](Self::due).
    pub(super) fn add(&mut self, line: &[u8], now: Time) {
        if self.fd.is_none() {
            return;
        }
        if self.waiting.len() + line.len() > BUFFER_MAX {
            self.dropped += 1;
            if !core::mem::replace(&mut self.troubled, true) {
                self.trouble = Some(format!(
                    "cannot log to {}: it takes no more lines; dropping them",
                    self.name
                ));
            }
            return;
        }
        self.waiting.extend_from_slice(line);
        self.since.get_or_insert(now);
    }

    /// The time at which the waiting lines must be written, or the write in flight is given up.
    pub(super) fn due(&self) -> Option<Time> {
        if self.in_flight.is_some() {
            return self.next.as_ref()?.deadline;
        }
        let since = self.since?;
        Some((since + DELAY_MAX).max(self.retry_at.unwrap_or_default()))
    }

    /// Returns true if enough lines wait to be written at once.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= BATCH_BYTES && self.in_flight.is_none() && self.retry_at.is_none()
    }

    /// Writes the waiting lines if they are due.
    pub(super) fn flush(&mut self, ring: &mut Ring, now: Time) {
        if self.due().is_some_and(|due| now >= due) {
            self.give_up(ring);
            self.write(ring, now);
        }
    }

    /// Drops the lines of the write in flight, and goes on with the next file.
    fn give_up(&mut self, ring: &mut Ring) {
        let Some(InFlight { key, lines, is_whole }) = self.in_flight.take() else { return };
        // With epoll the write may go on for ever in a helper thread; `written` ignores its end.
        ring.cancel(key);
        self.dropped += lines;
        if !is_whole {
            let end = self.waiting.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.waiting.drain(..end);
            self.dropped += 1;
            self.since = self.since.filter(|_| !self.waiting.is_empty());
        }
        self.end = End::Whole;
        self.settle();
        self.troubled = true;
    }

    pub(super) fn write(&mut self, ring: &mut Ring, now: Time) {
        if self.in_flight.is_some()
            || self.waiting.is_empty()
            || self.retry_at.is_some_and(|at| now < at)
        {
            return;
        }
        let Some(fd) = &self.fd else { return };
        let is_broken = self.end == End::Broken;
        let limit = self.waiting.len().min(self.write_bytes_max - usize::from(is_broken));
        let is_end = |byte: &u8| *byte == b'\n';
        let whole = if self.next.is_some() {
            // The rest of a line must go to the file with the line's beginning.
            self.waiting[..limit].iter().position(is_end)
        } else {
            self.waiting[..limit].iter().rposition(is_end)
        };
        let end = whole.map_or(limit, |at| at + 1);
        let rest = self.waiting.split_off(end);
        let mut bytes = core::mem::replace(&mut self.waiting, rest);
        self.since = if self.waiting.is_empty() { None } else { Some(now) };
        let (lines, is_whole) = (lines_of(&bytes), whole.is_some());
        if is_broken {
            bytes.insert(0, b'\n');
        }
        let key = ring.submit(Op::Write { file: fd.clone(), at: None, bytes }, self.token);
        self.in_flight = Some(InFlight { key, lines, is_whole });
    }

    /// Handles the completion of a write.
    pub fn written(&mut self, ring: &mut Ring, completion: Completion, now: Time) {
        let Some(InFlight { lines, .. }) =
            self.in_flight.take_if(|write| write.key == completion.key)
        else {
            return;
        };
        self.retry_at = None;
        match completion.result {
            Ok(Event::Written(mut bytes, count)) => {
                if self.troubled && self.waiting.len() < BUFFER_MAX / 2 {
                    self.troubled = false;
                    let lost = self.dropped - self.reported;
                    self.reported = self.dropped;
                    self.trouble =
                        Some(format!("logging to {} again; {}", self.name, dropped_lines(lost)));
                }
                self.end = match bytes[..count].last() {
                    None => self.end,
                    Some(b'\n') => End::Whole,
                    Some(_) => End::Torn,
                };
                self.settle();
                if count < bytes.len() {
                    // The rest is written before other lines, so that no line is torn.
                    let mut rest = bytes.split_off(count);
                    rest.append(&mut self.waiting);
                    self.waiting = rest;
                    self.since.get_or_insert(now);
                }
                if !self.waiting.is_empty()
                    && (self.waiting.len() >= BATCH_BYTES
                        || self.write_bytes_max < BATCH_BYTES
                        || self.end == End::Torn)
                {
                    self.write(ring, now);
                }
            }
            Ok(event) => unreachable!("a write ended with {event:?}"),
            Err(error) => {
                // The lines of this write are lost.
                if self.end == End::Torn {
                    self.end = End::Broken;
                }
                self.dropped += lines;
                self.retry_at = Some(now + RETRY);
                self.settle();
                if !core::mem::replace(&mut self.troubled, true) {
                    self.trouble =
                        Some(format!("cannot log to {}: {error}; dropping lines", self.name));
                }
            }
        }
    }

    /// Takes the message about lost lines that has to be reported.
    pub fn complaint(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Lines dropped so far.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Lines that were dropped and not reported, and lines that still wait.
    pub fn lost(&self) -> u64 {
        let in_flight = self.in_flight.as_ref().map_or(0, |write| write.lines);
        self.dropped - self.reported + in_flight + lines_of(&self.waiting)
    }

    /// Returns true if everything has been written.
    pub const fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty()
    }

    /// Writes the waiting lines at once, for the end of a worker.
    pub fn hurry(&mut self, ring: &mut Ring, now: Time) {
        self.retry_at = None;
        self.write(ring, now);
    }
}

/// Returns true if a file is a pipe and not its own replacement. Only pipes are examined with `fstat(2)`, because for
/// other files the call may ask a network server.
fn is_other_pipe(before: &Fd, next: &Fd) -> bool {
    let is_pipe = |fd: &Fd| fcntl_getpipe_size(fd.os()).is_ok();
    let identity = |fd: &Fd| fstat(fd.os()).map(|stat| (stat.st_dev, stat.st_ino));
    is_pipe(before) && !(is_pipe(next) && identity(before) == identity(next))
}

fn lines_of(bytes: &[u8]) -> u64 {
    // A chunk is short, so the number of its line ends fits into a byte. The compiler makes vector instructions of a sum
    // that cannot overflow.
    const FEW: usize = u8::MAX as usize;
    let count =
        |few: &[u8]| few.iter().fold(0, |sum: u8, byte| sum.wrapping_add(u8::from(*byte == b'\n')));
    bytes.chunks(FEW).map(|few| u64::from(count(few))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::kind;

    #[test]
    fn lines_are_counted_however_many_are_in_a_block() {
        for (text, count) in [("", 0), ("a", 0), ("a\nb\nc", 2), ("\n", 1)] {
            assert_eq!(lines_of(text.as_bytes()), count, "{text:?}");
        }
        for len in [254, 255, 256, 510, 511, 70_000] {
            assert_eq!(lines_of(&vec![b'\n'; len]), len as u64);
        }
    }

    #[test]
    fn the_rest_of_a_line_goes_to_the_file_that_has_its_beginning() {
        use std::io::{Read as _, Seek as _};

        let mut ring = Ring::new(ring::Choice::Epoll).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let old = ring.adopt_file(writer.into());
        let mut sink = Sink::new(Some(old), kind::ACCESS, "a pipe", false);
        let settle = |sink: &mut Sink, ring: &mut Ring| {
            let mut completions = Vec::new();
            while !sink.is_quiet() {
                ring.wait(None, &mut completions).unwrap();
                for completion in completions.drain(..) {
                    let now = ring.now();
                    sink.written(ring, completion, now);
                }
            }
        };
        // Longer than a write to a pipe: its end waits while the file is replaced.
        let first = [&[b'x'; 2 * PIPE_BYTES_MAX][..], b"\n"].concat();
        sink.line(&mut ring, &first);
        sink.line(&mut ring, b"second\n");
        let now = ring.now();
        sink.replace(ring.adopt_file(file.try_clone().unwrap().into()), now);
        settle(&mut sink, &mut ring);
        sink.line(&mut ring, b"third\n");
        settle(&mut sink, &mut ring);
        let mut began = vec![0; first.len()];
        reader.read_exact(&mut began).unwrap();
        assert!(began == first);
        file.rewind().unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "second\nthird\n");
    }

    /// A disk that is full accepts a part of a line, and refuses the rest.
    #[test]
    fn a_line_whose_rest_is_lost_does_not_take_the_next_one_with_it() {
        use std::io::{Read as _, Seek as _, SeekFrom};

        let mut ring = Ring::new(ring::Choice::Epoll).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let adopted = ring.adopt_file(file.try_clone().unwrap().into());
        let mut sink = Sink::new(Some(adopted), kind::ACCESS, "a file", true);
        let written = |ring: &mut Ring| {
            let mut completions = Vec::new();
            while completions.is_empty() {
                ring.wait(None, &mut completions).unwrap();
            }
            completions.pop().unwrap()
        };
        // All of it was written; the rest is taken away again.
        let mut cut = || {
            file.set_len(5).unwrap();
            file.seek(SeekFrom::Start(5)).unwrap();
        };
        sink.line(&mut ring, b"first line\n");
        let mut completion = written(&mut ring);
        cut();
        let Ok(Event::Written(_, count)) = &mut completion.result else { panic!("not written") };
        *count = 5;
        let now = ring.now();
        sink.written(&mut ring, completion, now);
        let mut completion = written(&mut ring);
        cut();
        completion.result = Err(rustix::io::Errno::NOSPC.into());
        sink.written(&mut ring, completion, now);
        assert_eq!((sink.dropped(), sink.is_quiet()), (1, true));
        sink.add(b"second line\n", now);
        sink.hurry(&mut ring, now);
        let completion = written(&mut ring);
        sink.written(&mut ring, completion, now);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "first\nsecond line\n");
    }
}

//! The tools with which the parts of a worker act on the world: the ring, the clock, and the messages to the operator.
//!
//! A part that needs less is given less: the ring alone, or the [`Context`] alone. Messages to the operator go through
//! a trait, so that these parts know neither logs nor files.

use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use http::Status;
use ring::{Device, Ring, Silences, Time, Verdict};
use sendfile::Silence;

use crate::context::Context;

/// The subject of a message to the operator that each request could cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Complaint {
    /// As many connections as are allowed.
    Connections,
    /// There are no more descriptors, or no memory.
    Descriptors,
    /// There are no more descriptors for files.
    Files,
    /// A disk does not answer.
    Disk,
    /// Files cannot be read.
    Unreadable,
    /// Headers of the PROXY protocol.
    ProxyHeader,
    /// Redirects lead to their own path.
    Redirects,
    /// Pages have faults.
    Includes,
    /// Files in which bodies of requests wait.
    Bodies,
    /// More handshakes than clients have shares for.
    Handshakes,
    /// Attacks by HTTP/2.
    Http2,
}

/// The operator, to whom the parts of a worker can send messages.
pub trait Operator: fmt::Debug {
    /// Writes a message.
    fn note(&mut self, ring: &mut Ring, text: &str);

    /// Writes a message that each request could cause, unless there was one about the same a short time ago.
    fn complain(&mut self, ring: &mut Ring, now: Time, about: Complaint, text: &str);
}

/// The ring, the context of decisions, and the operator.
///
/// The owner knows which operator it has. All others are given a `Shell` of any one.
#[derive(Debug)]
pub struct Shell<O: ?Sized = dyn Operator> {
    /// The ring.
    pub ring: Ring,
    /// The clock, limits and counters.
    pub cx: Context,
    /// The devices that do not answer, as all workers know them.
    silences: Arc<Silences<String>>,
    /// The receiver of messages to the operator. The owner of the shell may have more there.
    pub desk: O,
}

impl<O: Operator> Shell<O> {
    /// Begins the first turn. All workers share `silences`: devices that do not answer, and their names for the operator.
    pub fn new(ring: Ring, cx: Context, silences: Arc<Silences<String>>, desk: O) -> Self {
        let mut shell = Self { ring, cx, silences, desk };
        shell.tick();
        shell
    }
}

impl<O: Operator + ?Sized> Shell<O> {
    /// Begins a turn.
    #[inline]
    pub fn tick(&mut self) {
        self.cx.tick(self.ring.woke_at(), || self.ring.unix_clock());
        while let Some(device) = self.ring.next_answered() {
            self.note_answer(device);
        }
    }

    /// Returns true if a request for a device is refused, because the device does not answer. In each `timeout_disk`
    /// one request of all workers is not refused, and tries the device.
    pub fn refuses(&mut self, device: Device) -> bool {
        let patience = self.cx.tuning.timeout_disk;
        if self.ring.refuses(device, patience) {
            return true;
        }
        match self.silences.judge(device, self.cx.now, patience) {
            Verdict::Answers => false,
            Verdict::Refused => true,
            Verdict::Try => {
                self.ring.report(device);
                false
            }
        }
    }

    /// Returns true if a device has answered nothing for `patience`, or is known not to answer. It does not matter if
    /// one request may try the device now.
    pub fn is_silent(&self, device: Device, patience: Duration) -> bool {
        self.ring.silence(device) >= patience || self.silences.is_silent(device)
    }

    /// Tells the operator, unless another worker has, that the device of a path has not answered for `timeout_disk`,
    /// if that is so. Something that was asked of it is late.
    pub fn report_silence(&mut self, device: Device, path: Option<&[u8]>) {
        let silence = self.ring.silence(device);
        if silence < self.cx.tuning.timeout_disk {
            // Other calls have ended meanwhile, but the kernel may have had their answers in memory.
            return self.ring.doubt(device);
        }
        let calls = self.ring.report(device);
        let number = number_of(device);
        let name = match path {
            Some(path) => format!("the disk of /{}{number}", String::from_utf8_lossy(path)),
            None => format!("a disk{number}"),
        };
        if self.silences.begin(device, name.clone(), silence, self.cx.now) {
            let seconds = silence.as_secs_f64();
            self.note(&format!(
                "{name} has not answered for {seconds:.0} s: {calls} calls of one worker wait for it; until it \
                 answers, requests for its files get a 503"
            ));
        }
    }

    /// Reports a device whose reads no longer end, or end again.
    #[cold]
    pub fn tell_silence(&mut self, silence: Silence) {
        match silence {
            Silence::Begun(device) => {
                let (number, patience) = (number_of(device), self.cx.tuning.timeout_disk);
                let seconds = patience.as_secs_f64();
                self.note(&format!(
                    "no read of a disk{number} has ended for {seconds:.0} s; until one does, requests for what is \
                     not in memory get a 503"
                ));
            }
            Silence::Ended(device) => {
                let number = number_of(device);
                self.note(&format!("reads of a disk{number} end again"));
            }
        }
    }

    /// Reports that a path cannot be looked at or read.
    #[cold]
    pub fn complain_of_disk(
        &mut self,
        device: Device,
        path: &[u8],
        error: &io::Error,
        status: Status,
    ) {
        self.cx.stats.disk_errors.add(1);
        let (path, number) = (String::from_utf8_lossy(path), number_of(device));
        let text =
            format!("cannot read /{path}{number}: {error}; its clients get a {}", status.code());
        self.complain(Complaint::Unreadable, &text);
    }

    #[cold]
    fn note_answer(&mut self, device: Device) {
        if let Some(name) = self.silences.end(device, self.cx.now) {
            self.note(&format!("{name} answers again"));
        }
    }

    /// Writes a message to the operator.
    pub fn note(&mut self, text: &str) {
        self.desk.note(&mut self.ring, text);
    }

    /// Reports that a limit of the system has been reached, at most once in `COMPLAINT_INTERVAL`.
    pub fn complain_of_limit(&mut self, error: &io::Error) {
        self.cx.stats.descriptor_shortages.add(1);
        self.complain(Complaint::Descriptors, &format!(
            "out of descriptors or memory: {error}; clients wait until some are free (raise the limit \
             with `ulimit -n`, or lower --max-connections)"
        ));
    }

    /// Reports that responses hold all descriptors for files, at most once in `COMPLAINT_INTERVAL`.
    pub fn complain_of_files(&mut self, most: usize) {
        self.cx.stats.descriptor_shortages.add(1);
        self.complain(Complaint::Files, &format!(
            "slow clients keep {most} files open, as many as there are descriptors for in a worker; requests for \
             other large files get 503 (raise the limit with `ulimit -n`, or --rate-min)"
        ));
    }

    /// Reports something, at most once in `COMPLAINT_INTERVAL`.
    pub fn complain(&mut self, about: Complaint, text: &str) {
        self.desk.complain(&mut self.ring, self.cx.now, about, text);
    }
}

/// A device's number as operators know it, if it has one.
fn number_of(device: Device) -> String {
    match device.numbers() {
        Some((major, minor)) => format!(" (device {major}:{minor})"),
        None => String::new(),
    }
}

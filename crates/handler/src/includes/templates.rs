//! The templates of pages: parsed once for each version of a file, from bytes that are read through the ring.

use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

use core::time::Duration;

use ring::{BufferPool, Caching, Completion, Device, Event, Fd, Key, Op, Slab, Time};

use crate::Ticket;
use ::includes::{Parser, Template};
use content::{Data, Kind, Resource};
use session::kind::{self, id_of};
use session::shell::Shell;

/// The most bytes of a page. The response for a larger file is a 500: without evaluation the file could show what a
/// condition leaves out.
pub(crate) const PAGE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// Pages that are read at the same time, and pages of one device among them. Each has a buffer; others wait in a queue.
const READINGS_MAX: usize = 8;
const READINGS_OF_DEVICE_MAX: usize = 4;
/// Pages that are read or wait in the queue. At this limit a further page is a 503.
const QUEUE_MAX: usize = 4096;
/// Requests that wait for one page. At this limit a further request gets a 503.
const TICKETS_MAX: usize = 64 * 1024;
/// Bytes of the templates that are kept. Beyond this limit the oldest is evicted.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Templates that are kept.
const TEMPLATES_MAX: usize = 16 * 1024;
/// The time between two looks at reads that take too long.
const TICK: Duration = Duration::from_millis(250);

/// The templates of a worker.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    /// The templates by the addresses of their resources; weak references keep an address from being used again.
    known: HashMap<usize, Known>,
    /// The resources of parsed templates, the oldest first.
    order: VecDeque<usize>,
    /// Their bytes.
    bytes: usize,
    readings: Slab<Reading>,
    /// The queue of pages that wait for a buffer.
    line: VecDeque<Key>,
    pool: Option<BufferPool>,
    /// True while the timer of the next tick is in flight.
    ticks: bool,
    /// Requests whose pages have been parsed, or cannot be.
    done: VecDeque<(Ticket, Option<Rc<Template>>)>,
}

/// The template of a resource.
#[derive(Debug)]
struct Known {
    #[expect(dead_code, reason = "kept so that the address stays its own")]
    resource: Weak<Resource>,
    state: State,
}

#[derive(Debug)]
enum State {
    Parsed(Rc<Template>),
    Reading(Key),
}

/// A page that is being read, or waits to be read.
#[derive(Debug)]
struct Reading {
    resource: Rc<Resource>,
    file: Fd,
    size: u64,
    caching: Caching,
    parser: Parser,
    at: u64,
    is_begun: bool,
    /// The time since which it has waited for the disk or for a buffer.
    since: Time,
    /// The requests that wait for it.
    tickets: Vec<Ticket>,
}

/// The result of [`Templates::find`].
#[derive(Debug)]
pub(crate) enum Lookup {
    Now(Rc<Template>),
    /// [`Templates::next_done`] will return the template.
    Later,
    /// The file is too large.
    TooLarge,
    /// The disk does not answer, or there is too much to do.
    Unavailable,
}

impl Templates {
    /// Finds the template of a resource that is a file. `keeps`: the page cache keeps the bytes.
    pub(crate) fn find(
        &mut self,
        shell: &mut Shell,
        resource: &Rc<Resource>,
        keeps: bool,
        ticket: Ticket,
    ) -> Lookup {
        let address = Rc::as_ptr(resource).addr();
        match self.known.get(&address).map(|known| &known.state) {
            Some(State::Parsed(template)) => return Lookup::Now(Rc::clone(template)),
            Some(State::Reading(key)) => {
                let reading = self.readings.get_mut(*key).expect("known while it is read");
                if reading.tickets.len() >= TICKETS_MAX {
                    return Lookup::Unavailable;
                }
                reading.tickets.push(ticket);
                return Lookup::Later;
            }
            None => {}
        }
        let Kind::File(files) = &resource.kind else { return Lookup::Unavailable };
        let (file, size) = match &files.plain.data {
            Data::Memory => {
                let mut parser = Parser::default();
                parser.push(&files.plain.finished.body());
                let template = Rc::new(parser.finish());
                self.keep(resource, &template);
                return Lookup::Now(template);
            }
            Data::File(file) => (file.fd().clone(), file.size()),
        };
        if size > PAGE_BYTES_MAX {
            return Lookup::TooLarge;
        }
        let is_full = self.readings.len() >= QUEUE_MAX || !self.has_pool(shell);
        if is_full || shell.refuses(file.device()) {
            return Lookup::Unavailable;
        }
        let key = self.readings.insert(Reading {
            resource: Rc::clone(resource),
            file,
            size,
            caching: if keeps { Caching::Keep } else { Caching::Drop },
            parser: Parser::default(),
            at: 0,
            is_begun: false,
            since: shell.cx.now,
            tickets: vec![ticket],
        });
        let known = Known { resource: Rc::downgrade(resource), state: State::Reading(key) };
        self.known.insert(address, known);
        self.line.push_back(key);
        self.begin_next(shell);
        self.tick_later(shell);
        Lookup::Later
    }

    /// The next request whose page has been parsed; the inner `None` means that it cannot be parsed.
    pub(crate) fn next_done(&mut self) -> Option<(Ticket, Option<Rc<Template>>)> {
        self.done.pop_front()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.readings.is_empty() && self.done.is_empty()
    }

    fn has_pool(&mut self, shell: &mut Shell) -> bool {
        if self.pool.is_none() {
            let pool = BufferPool::new(READ_BYTES, READINGS_MAX);
            self.pool = pool.inspect_err(|error| shell.complain_of_limit(error)).ok();
        }
        self.pool.is_some()
    }

    /// Begins to read the next pages of the queue, while there are buffers and their devices have not reached their
    /// limit.
    fn begin_next(&mut self, shell: &mut Shell) {
        let mut place = 0;
        while let Some(key) = self.line.get(place).copied() {
            if self.pool.as_ref().is_none_or(|pool| pool.available() == 0) {
                return;
            }
            let Some(reading) = self.readings.get(key) else {
                self.line.remove(place);
                continue;
            };
            let device = reading.file.device();
            if self.begun_of(device) >= READINGS_OF_DEVICE_MAX {
                place += 1;
                continue;
            }
            self.line.remove(place);
            self.go_on(shell, key);
        }
    }

    /// The number of pages of a device that are being read.
    fn begun_of(&self, device: Device) -> usize {
        let is_one =
            |(_, reading): &(Key, &Reading)| reading.is_begun && reading.file.device() == device;
        self.readings.iter().filter(is_one).count()
    }

    /// Reads the next bytes of a page, or completes the page.
    fn go_on(&mut self, shell: &mut Shell, key: Key) {
        let reading = self.readings.get_mut(key).expect("looked at by the caller");
        if reading.at == reading.size || reading.tickets.is_empty() {
            return self.end(shell, key);
        }
        reading.is_begun = true;
        reading.since = shell.cx.now;
        let left = usize::try_from(reading.size - reading.at).unwrap_or(READ_BYTES);
        let pool = self.pool.as_mut().expect("made before the first page");
        let buf = pool.take(left.min(READ_BYTES)).expect("each page that is read has one");
        let (file, offset, caching) = (reading.file.clone(), reading.at, reading.caching);
        let device = file.device();
        let read = Op::Read { file, offset, buf, caching };
        shell.ring.submit_to(device, read, kind::PAGE | key.to_bits());
    }

    /// Handles the completion of a read, or of the timer.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        let key = Key::from_bits(id_of(completion.token));
        if key == Key::NONE {
            return self.handle_tick(shell);
        }
        let reading = self.readings.get_mut(key).expect("kept until its last completion");
        match completion.result {
            Ok(Event::Read(buffer)) if !buffer.is_empty() => {
                reading.parser.push(&buffer);
                reading.at += buffer.len() as u64;
                drop(buffer);
                self.go_on(shell, key);
            }
            // The file has become shorter, so it is looked up anew.
            Ok(Event::Read(_)) => self.end(shell, key),
            Ok(event) => unreachable!("no page asks for {event:?}"),
            Err(_) => {
                shell.cx.stats.disk_errors.add(1);
                self.end(shell, key);
            }
        }
        self.begin_next(shell);
    }

    /// Completes a page for the requests that wait for it. If a part was not read, there is no template.
    fn end(&mut self, shell: &mut Shell, key: Key) {
        let reading = self.readings.remove(key).expect("ends once");
        self.known.remove(&Rc::as_ptr(&reading.resource).addr());
        let Reading { resource, size, parser, tickets, .. } = reading;
        let template =
            Some(parser.finish()).filter(|template| template.bytes() == size).map(Rc::new);
        if let Some(template) = &template {
            self.keep(&resource, template);
        }
        self.done.extend(tickets.into_iter().map(|ticket| (ticket, template.clone())));
        self.tick_later(shell);
    }

    /// Keeps a template.
    fn keep(&mut self, resource: &Rc<Resource>, template: &Rc<Template>) {
        let address = Rc::as_ptr(resource).addr();
        let state = State::Parsed(Rc::clone(template));
        self.known.insert(address, Known { resource: Rc::downgrade(resource), state });
        self.order.push_back(address);
        self.bytes += template.memory();
        while self.order.len() > 1
            && (self.bytes > BYTES_MAX || self.order.len() > TEMPLATES_MAX)
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(Known { state: State::Parsed(template), .. }) = self.known.remove(&oldest) {
                self.bytes -= template.memory();
            }
        }
    }

    fn tick_later(&mut self, shell: &mut Shell) {
        if !self.readings.is_empty() && !core::mem::replace(&mut self.ticks, true) {
            let at = shell.cx.now + TICK;
            shell.ring.submit(Op::Timer(at), kind::PAGE | Key::NONE.to_bits());
        }
    }

    /// Gives up reads that the disk has not completed in time. Such a read goes on, and keeps its buffer.
    fn handle_tick(&mut self, shell: &mut Shell) {
        self.ticks = false;
        let now = shell.cx.now;
        let patience = shell.cx.tuning.timeout_disk;
        let keys: Vec<Key> = self.readings.keys().collect();
        for key in keys {
            let reading = self.readings.get_mut(key).expect("just listed");
            if now.since(reading.since) < patience || reading.tickets.is_empty() {
                continue;
            }
            let tickets = core::mem::take(&mut reading.tickets);
            let (device, is_begun) = (reading.file.device(), reading.is_begun);
            shell.cx.stats.disk_timeouts.add(tickets.len() as u64);
            self.done.extend(tickets.into_iter().map(|ticket| (ticket, None)));
            if is_begun {
                shell.report_silence(device, None);
            } else {
                self.end(shell, key);
            }
        }
        self.tick_later(shell);
    }
}

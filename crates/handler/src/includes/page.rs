//! One page while it is made: its parts in order, and the parts whose answers are being looked for.

use core::cell::RefCell;
use core::fmt;
use core::net::IpAddr;
use core::ops::Range;
use std::collections::VecDeque;
use std::rc::Rc;

use http::{HeadBuf, Status, path};
use outq::Payload as _;
use ring::Key;
use sendfile::{File, Piece, Policy, Takes};

use super::budget::{ANSWER_BYTES_MAX, Budget, Fit, INCLUDES_MAX, RESPONSE_BYTES_MAX};
use crate::serving::Serving;
use crate::{Body, BodySink, Part, Produced, Producer, Search, Ticket};
use ::includes::{Evaluator, Facts, Fault, Scope, Share, Step, Template};
use config::site::SiteId;
use content::{Kind, Resource, Variant};
use gateways::interest::{Interest, News};
use session::network::Origin;

/// The maximum number of holes of a page that are open at the same time: their answers are looked for, or their
/// programs or upstreams are still at work.
const SIDE_BY_SIDE_MAX: usize = 8;
/// Texts, bytes and holes of a page that wait to be sent; at this limit further directives are evaluated later.
const SLOTS_MAX: usize = 256;
/// Pages within one another.
const DEPTH_MAX: usize = 8;

/// Approximate bytes of memory of a page and of the head of its requests, in addition to its variables and its waiting
/// parts.
const PAGE_BYTES: usize = 1024;
/// Approximate bytes of memory of a part that waits to be sent, in addition to its bytes.
const SLOT_BYTES: usize = 128;
/// Bytes that count for a file that stays open until it is sent, because descriptors are few.
const FILE_BYTES: usize = 4 * 1024;
/// Bytes of memory that a program or an upstream takes for a hole before the hole's turn, in addition to the head of
/// the request.
const GATEWAY_BYTES: usize = 24 * 1024;

/// Bytes of an include's URL in messages to the operator.
const URL_BYTES_SHOWN: usize = 256;

/// A page that is being made.
#[derive(Debug)]
pub(crate) struct Page {
    /// The request whose answer is the page.
    pub(crate) ticket: Ticket,
    /// True if its producer has said that it waits.
    pub(crate) is_awaited: bool,
    pub(crate) context: Context,
    key: Key,
    news: Rc<RefCell<News>>,
    resource: Rc<Resource>,
    policy: Policy,
    evaluator: Evaluator,
    slots: VecDeque<(Slot, Share)>,
    /// The number of slots that have been sent, which is the number of the first slot that waits.
    sent: u32,
    /// Holes whose answers are looked for, or whose producers have not ended or were not sent.
    open: usize,
    /// True if everything before the page has been sent.
    is_reached: bool,
    /// True if the page is in the queue of pages that can continue.
    pub(super) is_in_line: bool,
    #[expect(dead_code, reason = "kept for its drop")]
    share: Share,
}

/// The facts about its request that a page and its includes know.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The head of the requests for includes, without path and query, which each include has.
    pub(crate) head: Rc<HeadBuf>,
    /// The path and the query that the client has requested.
    pub(crate) requested: Rc<[u8]>,
    pub(crate) origin: Rc<Origin>,
    pub(crate) serving: Rc<Serving>,
    pub(crate) site: SiteId,
    pub(crate) client: Option<IpAddr>,
    /// The paths of this page and of the pages that include it, in normal form, the outermost first.
    pub(crate) paths: Rc<[Rc<[u8]>]>,
    /// The time of the last change of the outermost page, in Unix seconds.
    pub(crate) modified: i64,
    /// The memory and the number of includes that the pages of the response may take.
    pub(crate) budget: Rc<Budget>,
    /// The variables with which it begins.
    pub(crate) scope: Scope,
}

/// A part of a page that waits to be sent. The body that fills a hole may have parts that are made while they are sent.
#[derive(Debug)]
enum Slot {
    /// A range of the file.
    Text(Range<u64>),
    Bytes(Vec<u8>),
    /// A hole whose answer is looked for.
    Pending {
        /// The variables at this point of the page.
        scope: Scope,
        /// The line of the directive.
        line: u32,
        /// The URL as the page has it.
        url: Box<[u8]>,
        search: Option<Rc<dyn Search>>,
        /// The bytes that the body may have in memory.
        expected: Share,
    },
    /// A hole whose body did not fit beside others. Its answer is looked for again when its turn to be sent has come.
    Postponed {
        scope: Scope,
        line: u32,
        url: Box<[u8]>,
    },
    /// The body of a response.
    Found {
        parts: VecDeque<Part>,
        is_made: bool,
        making: Option<Box<dyn Producer>>,
        /// The bytes that the body has in memory before its turn.
        share: Share,
    },
}

/// The next step of a page.
#[derive(Debug)]
pub(crate) enum Advance {
    /// Find the answer for a hole.
    Ask(Ask),
    /// Report a problem.
    Tell(Problem),
    /// There is more to evaluate.
    More,
    /// Nothing: enough of the page waits to be sent, or all of it, or the page waits for others.
    Nothing,
}

/// A hole whose answer is to be found.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Its number.
    pub(crate) hole: u32,
    /// The URL as the page has it.
    pub(crate) url: Vec<u8>,
    /// True if the answer was found before, and its body did not fit.
    pub(crate) is_again: bool,
}

/// The source of a body that fills a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A program or an upstream. Until its turn the body has [`GATEWAY_BYTES`] at most.
    Gateway,
    /// Files, or memory of the server. The same answer can be found again.
    Repeatable,
    /// The same, but a gateway has named it, and would be asked again.
    Unique,
}

/// The reason for an error message in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A faulty directive.
    Directive(Fault),
    /// A condition without an end. It has no error message.
    Unended,
    /// The page includes itself, or includes a page that includes it.
    Cycle,
    /// More than [`DEPTH_MAX`] pages within one another.
    Depth,
    /// More than [`INCLUDES_MAX`] includes.
    Includes,
    /// The response has this status.
    Status(Status),
    /// The response is compressed.
    Coded,
    /// The body has more bytes of memory than are left of the response's [`Budget`].
    Memory,
}

/// A fault of a page, and its place.
#[derive(Debug)]
pub(crate) struct Problem {
    trouble: Trouble,
    /// The line of the directive.
    line: u32,
    /// The URL of the include, if it is one.
    url: Option<Box<[u8]>>,
}

impl Problem {
    /// Returns whether a page includes itself.
    pub(crate) fn is_cycle(&self) -> bool {
        self.trouble.is_cycle()
    }
}

impl Page {
    /// Begins a page, which answers the request `ticket`.
    pub(crate) fn new(
        (key, news): (Key, Rc<RefCell<News>>),
        ticket: Ticket,
        context: Context,
        resource: Rc<Resource>,
        policy: Policy,
        template: Rc<Template>,
    ) -> Self {
        let evaluator = Evaluator::new(template, context.scope.clone());
        let (slots, sent, open) = (VecDeque::new(), 0, 0);
        let path = context.paths.last().map_or(0, |path| path.len());
        let bytes = PAGE_BYTES + path + context.requested.len() + context.head.memory();
        let share = Share::new(&context.budget.memory, bytes);
        Self {
            ticket,
            is_awaited: false,
            context,
            key,
            news,
            resource,
            policy,
            evaluator,
            slots,
            sent,
            open,
            is_reached: false,
            is_in_line: false,
            share,
        }
    }

    /// Continues until the caller has something to do for it.
    pub(crate) fn advance(&mut self, now: i64) -> Advance {
        let Context { head, requested, paths, modified, client, budget, .. } = &self.context;
        let (head, paths, budget) = (Rc::clone(head), Rc::clone(paths), Rc::clone(budget));
        let requested = &*Rc::clone(requested);
        let (modified, client) = (*modified, *client);
        let head = head.as_head();
        let document = paths.first().map_or(&b""[..], |path| path);
        let document = &*path::with_slashes(document, b"/");
        let facts = Facts { head: &head, requested, document, modified, client, now };
        if let Some(ask) = self.ask_again() {
            return Advance::Ask(ask);
        }
        loop {
            let is_next = self.is_reached && self.slots.is_empty();
            if !is_next && (self.open >= SIDE_BY_SIDE_MAX || self.slots.len() >= SLOTS_MAX) {
                break;
            }
            if !is_next && !budget.has_room() && !self.evaluator.is_over() {
                self.pause();
                break;
            }
            let Some(step) = self.evaluator.next(&facts, is_next) else { break };
            let line = self.evaluator.line();
            match step {
                Step::Text(range) => self.push(Slot::Text(range), 0),
                Step::Bytes(bytes) => self.push_bytes(bytes),
                Step::Fault(fault) => {
                    let errmsg = self.evaluator.scope().errmsg().to_vec();
                    self.push_bytes(errmsg);
                    let trouble = Trouble::Directive(fault);
                    return Advance::Tell(Problem { trouble, line, url: None });
                }
                Step::Include(url) => {
                    let hole = self.sent.wrapping_add(count(self.slots.len()));
                    let scope = self.evaluator.scope().clone();
                    let own = url[..].into();
                    let expected = Share::new(&budget.expected, ANSWER_BYTES_MAX);
                    let slot = Slot::Pending { scope, line, url: own, search: None, expected };
                    self.push(slot, url.len());
                    self.open += 1;
                    budget.open();
                    return Advance::Ask(Ask { hole, url, is_again: false });
                }
                Step::Pause => return Advance::More,
                Step::Wait => {
                    self.pause();
                    break;
                }
            }
        }
        if self.evaluator.is_over()
            && let Some(line) = self.evaluator.take_unended()
        {
            return Advance::Tell(Problem { trouble: Trouble::Unended, line, url: None });
        }
        Advance::Nothing
    }

    /// Looks again for the answer to the first hole if its turn to be sent has come.
    fn ask_again(&mut self) -> Option<Ask> {
        if !self.is_reached || !self.is_postponed() {
            return None;
        }
        let (slot, _) = self.slots.front_mut()?;
        let Slot::Postponed { scope, line, url } = slot else { return None };
        let (scope, line, own) = (scope.clone(), *line, core::mem::take(url));
        let url = own.to_vec();
        let expected = Share::new(&self.context.budget.expected, ANSWER_BYTES_MAX);
        *slot = Slot::Pending { scope, line, url: own, search: None, expected };
        Some(Ask { hole: self.sent, url, is_again: true })
    }

    /// Returns true if the answer to the first hole has to be looked for again.
    fn is_postponed(&self) -> bool {
        matches!(self.slots.front(), Some((Slot::Postponed { .. }, _)))
    }

    /// Adds a part that has `bytes` bytes of memory in addition to itself.
    fn push(&mut self, slot: Slot, bytes: usize) {
        let share = Share::new(&self.context.budget.memory, SLOT_BYTES + bytes);
        self.slots.push_back((slot, share));
    }

    fn push_bytes(&mut self, bytes: Vec<u8>) {
        let memory = bytes.capacity();
        self.push(Slot::Bytes(bytes), memory);
    }

    /// Makes the page wait until there is room for more of the response, or until its turn to be sent has come.
    fn pause(&self) {
        self.context.budget.pause(self.key);
    }

    /// Enters the queue of pages that may continue.
    pub(crate) fn touch(&mut self) {
        if !core::mem::replace(&mut self.is_in_line, true) {
            self.news.borrow_mut().touch(self.key);
        }
    }

    /// Checks if a page with this path may be an include of this page.
    pub(crate) fn may_include(&self, path: &[u8]) -> Result<(), Trouble> {
        let paths = &self.context.paths;
        if paths.iter().any(|other| **other == *path) {
            return Err(Trouble::Cycle);
        }
        if paths.len() >= DEPTH_MAX {
            return Err(Trouble::Depth);
        }
        Ok(())
    }

    /// Counts an include of a page with this path, or returns why it is not possible.
    pub(crate) fn admit(&self, path: &[u8]) -> Result<(), Trouble> {
        self.may_include(path)?;
        if self.context.budget.include() { Ok(()) } else { Err(Trouble::Includes) }
    }

    /// The variables at a hole, if the hole is still looked for.
    pub(crate) fn scope_of(&self, hole: u32) -> Option<Scope> {
        match &self.slots.get(self.place(hole))?.0 {
            Slot::Pending { scope, .. } => Some(scope.clone()),
            _ => None,
        }
    }

    /// Returns true if a hole is still looked for.
    pub(crate) fn awaits(&self, hole: u32) -> bool {
        matches!(self.slots.get(self.place(hole)), Some((Slot::Pending { .. }, _)))
    }

    /// Keeps the search for a hole, so that it is dropped if the page is no longer wanted.
    pub(crate) fn search(&mut self, hole: u32, search: Option<Rc<dyn Search>>) {
        let place = self.place(hole);
        if let Some((Slot::Pending { search: own, expected, .. }, share)) =
            self.slots.get_mut(place)
        {
            if search.is_some() {
                expected.resize(GATEWAY_BYTES);
            }
            share.resize(share.bytes() + self.context.head.memory());
            *own = search;
        }
    }

    /// The problem of a hole that is still looked for.
    pub(crate) fn problem(&self, hole: u32, trouble: Trouble) -> Option<Problem> {
        match &self.slots.get(self.place(hole))?.0 {
            Slot::Pending { line, url, .. } => {
                Some(Problem { trouble, line: *line, url: Some(url.clone()) })
            }
            _ => None,
        }
    }

    /// Fills a hole with a body if the body fits into the budget of the response. A body that may fit when its turn has come
    /// is dropped, and looked for again then. A hole that is no longer looked for stays as it is.
    ///
    /// # Errors
    ///
    /// [`Trouble::Memory`] if the body does not fit.
    pub(crate) fn fill(&mut self, hole: u32, body: Body, source: Source) -> Result<(), Trouble> {
        let place = self.place(hole);
        let is_turn = self.is_reached && place == 0;
        let Some((slot, share)) = self.slots.get_mut(place) else { return Ok(()) };
        let Slot::Pending { scope, line, url, expected, .. } = slot else { return Ok(()) };
        let is_made = body.has_producer();
        let parts: VecDeque<Part> = body.into_iter().collect();
        let bytes = match source {
            Source::Gateway if is_made => GATEWAY_BYTES,
            _ => parts.iter().map(memory_of).sum(),
        };
        let budget = Rc::clone(&self.context.budget);
        let can_wait = source == Source::Repeatable;
        let filled = match budget.admit(bytes, expected.bytes(), is_turn, can_wait) {
            Fit::Now => {
                share.resize(SLOT_BYTES);
                let share = Share::new(&budget.bodies, bytes);
                Slot::Found { parts, is_made, making: None, share }
            }
            // It stays open, because the page is not complete without it.
            Fit::AtItsTurn => {
                share.resize(SLOT_BYTES + url.len());
                Slot::Postponed { scope: scope.clone(), line: *line, url: core::mem::take(url) }
            }
            Fit::Never => return Err(Trouble::Memory),
        };
        let is_closed = matches!(filled, Slot::Found { is_made: false, .. });
        *slot = filled;
        if is_closed {
            self.close();
        }
        self.resume_others();
        Ok(())
    }

    /// Fills a hole that is still looked for with the error message.
    pub(crate) fn fill_with_error(&mut self, hole: u32) {
        let place = self.place(hole);
        let Some((slot, share)) = self.slots.get_mut(place) else { return };
        let Slot::Pending { scope, .. } = slot else { return };
        let errmsg = scope.errmsg().to_vec();
        share.resize(SLOT_BYTES + errmsg.capacity());
        *slot = Slot::Bytes(errmsg);
        self.close();
        self.resume_others();
    }

    /// Wakes the pages that may continue, because a body may have fewer bytes than were expected.
    fn resume_others(&self) {
        self.news.borrow_mut().touched.extend(self.context.budget.take_paused());
    }

    /// Records that a hole needs nothing any more.
    fn close(&mut self) {
        self.open -= 1;
        self.context.budget.close(1);
    }

    fn place(&self, hole: u32) -> usize {
        hole.wrapping_sub(self.sent) as usize
    }

    fn variant(&self) -> &Variant {
        match &self.resource.kind {
            Kind::File(files) => &files.plain,
            Kind::Redirect | Kind::Unclean(_) | Kind::Directory(_) => {
                unreachable!("a page is a file")
            }
        }
    }

    /// Returns true if the first slot can be sent.
    pub(crate) fn can_go_on(&self) -> bool {
        !matches!(self.slots.front(), Some((Slot::Pending { .. } | Slot::Postponed { .. }, _)))
    }

    /// Returns true if nothing of the page has to be looked for or made any more. Its producer sends the rest.
    pub(crate) fn is_computed(&self) -> bool {
        self.open == 0 && self.evaluator.is_over()
    }

    /// Removes the first slot, which was sent.
    fn pop(&mut self) {
        if let Some((Slot::Found { is_made: true, .. }, _)) = self.slots.pop_front() {
            self.close();
        }
        self.sent = self.sent.wrapping_add(1);
    }

    /// Returns true if no other page includes it.
    fn is_outermost(&self) -> bool {
        self.context.paths.len() == 1
    }

    /// Bytes of memory of all pages of the response.
    pub(super) fn memory(&self) -> usize {
        self.context.budget.held()
    }

    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let budget = Rc::clone(&self.context.budget);
        let is_new = !core::mem::replace(&mut self.is_reached, true);
        if self.is_outermost() {
            budget.left.set(room);
            if is_new {
                budget.memory.begin();
            }
        }
        let sent = self.sent;
        let mut produced = self.send(sink);
        // The session counts bytes only. Small pieces take time, too, so the others come first after enough of them.
        let is_enough = produced == Produced::More && budget.left.get() == 0;
        if is_enough && self.is_outermost() && !self.is_computed() {
            self.touch();
            produced = Produced::Waiting;
        }
        if is_new || self.sent != sent {
            // There is room for more slots, which can be evaluated now.
            if !self.evaluator.is_over() || self.is_postponed() {
                self.touch();
            }
            self.news.borrow_mut().touched.extend(budget.take_paused());
        }
        self.is_awaited = produced == Produced::Waiting;
        produced
    }

    /// Sends the slots that can be sent now.
    fn send(&mut self, sink: &mut dyn BodySink) -> Produced {
        let budget = Rc::clone(&self.context.budget);
        while budget.left.get() > 0 {
            match self.slots.front_mut().map(|(slot, _)| slot) {
                None if self.evaluator.is_over() => return Produced::Ended,
                None | Some(Slot::Pending { .. } | Slot::Postponed { .. }) => {
                    return Produced::Waiting;
                }
                Some(Slot::Text(range)) => {
                    let range = range.clone();
                    let part = Part::of(self.variant(), range, self.policy);
                    budget.give(&part);
                    push(part, sink);
                    self.pop();
                }
                Some(Slot::Bytes(bytes)) => {
                    let part = Part::Piece(Piece::Bytes(core::mem::take(bytes)));
                    budget.give(&part);
                    push(part, sink);
                    self.pop();
                }
                Some(Slot::Found { making: making @ Some(_), .. }) => {
                    let Some(producer) = making else { unreachable!("matched above") };
                    let most = usize::try_from(producer.weight_max()).unwrap_or(usize::MAX);
                    let is_shared = sink.is_shared() || !budget.admits_whole(most);
                    let mut sink = Beside { sink: &mut *sink, is_shared };
                    match producer.poll(budget.left.get(), &mut sink) {
                        Produced::Ended => {
                            budget.end_sending();
                            *making = None;
                        }
                        // After more bytes the others come first.
                        produced => return produced,
                    }
                }
                Some(Slot::Found { parts, making, share, .. }) => match parts.pop_front() {
                    Some(Part::Producer(producer)) => {
                        share.resize(parts.iter().map(memory_of).sum());
                        *making = Some(producer);
                    }
                    Some(part) => {
                        budget.give(&part);
                        push(part, sink);
                    }
                    None => self.pop(),
                },
            }
        }
        Produced::More
    }
}

/// The sink of a part of a page.
struct Beside<'a> {
    sink: &'a mut dyn BodySink,
    /// True if the part may keep little memory.
    is_shared: bool,
}

impl BodySink for Beside<'_> {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn push(&mut self, piece: Piece) {
        self.sink.push(piece);
    }

    fn push_file(&mut self, file: &Rc<File>, range: Range<u64>, policy: Policy) {
        self.sink.push_file(file, range, policy);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.context.budget.close(self.open);
    }
}

/// The producer of a page.
#[derive(Debug)]
pub(super) struct PageProducer {
    pub(super) page: Rc<RefCell<Page>>,
    #[expect(dead_code, reason = "kept for its drop")]
    pub(super) interest: Rc<Interest>,
}

impl Producer for PageProducer {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        self.page.borrow_mut().poll(room, sink)
    }

    fn weight(&self) -> u64 {
        let page = self.page.borrow();
        // The outermost page accounts for the memory of all. A producer within it may have more.
        let own = if page.is_outermost() { page.memory() } else { 0 };
        let front = match page.slots.front() {
            Some((Slot::Found { making: Some(producer), .. }, _)) => producer.weight(),
            _ => 0,
        };
        own as u64 + front
    }

    /// The pages of a response have their own limit.
    fn weight_max(&self) -> u64 {
        0
    }
}

impl Trouble {
    /// Returns true if a page includes itself, perhaps through upstreams (508).
    pub(crate) fn is_cycle(self) -> bool {
        self == Self::Cycle || matches!(self, Self::Status(status) if status.code() == 508)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directive(fault) => f.write_str(fault.text()),
            Self::Unended => f.write_str("an if has no endif"),
            Self::Cycle => f.write_str("a page includes itself, or a page that includes it"),
            Self::Depth => write!(f, "more than {DEPTH_MAX} pages include one another"),
            Self::Includes => write!(f, "a page has more than {INCLUDES_MAX} includes"),
            Self::Status(status) => write!(f, "it is answered {}", status.code()),
            Self::Coded => f.write_str("the response is compressed"),
            Self::Memory => write!(
                f,
                "its body has more bytes of memory than are left of the {} MiB of a response; \
                 include a smaller directory",
                RESPONSE_BYTES_MAX >> 20
            ),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trouble, line, url } = self;
        write!(f, "line {line}: ")?;
        if let Some(url) = url {
            let shown = &url[..url.len().min(URL_BYTES_SHOWN)];
            write!(f, "the include of {}: ", String::from_utf8_lossy(shown))?;
        }
        match trouble {
            Trouble::Unended => write!(f, "{trouble}"),
            _ => write!(f, "{trouble}; an error message stands in the page"),
        }
    }
}

/// Bytes of memory that a part of a body takes or keeps alive until it is sent.
fn memory_of(part: &Part) -> usize {
    match part {
        Part::Piece(Piece::Static(_)) => 0,
        Part::Piece(Piece::Bytes(bytes)) => bytes.capacity(),
        Part::Piece(piece) => usize::try_from(piece.len()).unwrap_or(usize::MAX),
        Part::File(..) => FILE_BYTES,
        Part::Producer(producer) => usize::try_from(producer.weight()).unwrap_or(usize::MAX),
    }
}

/// Sends a part that exists already.
fn push(part: Part, sink: &mut dyn BodySink) {
    match part {
        Part::Piece(piece) => sink.push(piece),
        Part::File(file, range, policy) => sink.push_file(&file, range, policy),
        Part::Producer(_) => unreachable!("the caller polls it"),
    }
}

/// The number fits, because slots are few.
fn count(slots: usize) -> u32 {
    u32::try_from(slots).expect("slots are bounded")
}

const _: () = assert!(SLOTS_MAX < 1 << 16);

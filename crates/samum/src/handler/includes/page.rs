//! One page while it is made: what comes next of it, in order, and what of that is being looked for.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::IpAddr;
use core::ops::Range;
use std::collections::VecDeque;
use std::rc::Rc;

use http::{HeadBuf, Status, path};
use ring::Key;
use sendfile::{Piece, Policy};

use crate::content::{Kind, Resource, Variant};
use crate::handler::gateway::interest::{Interest, News};
use crate::handler::{Body, BodySink, Part, Produced, Producer, Search, Ticket};
use crate::includes::{Evaluator, Facts, Fault, Scope, Step, Template};
use crate::network::Origin;
use crate::serving::Serving;
use crate::site::SiteId;

/// Holes of a page that are looked for, or whose programs or servers are still at work, at once.
const SIDE_BY_SIDE_MAX: usize = 8;
/// Texts, bytes and holes of a page that wait to be sent; further directives are evaluated later.
const SLOTS_MAX: usize = 256;
/// Pages within one another.
const DEPTH_MAX: usize = 8;
/// Includes of one response, of all its pages.
const INCLUDES_MAX: u32 = 1000;

/// Bytes of the URL of an include that the operator is shown.
const URL_BYTES_SHOWN: usize = 256;

/// A page that is being made.
#[derive(Debug)]
pub(in crate::handler) struct Page {
    /// The request that it answers.
    pub(in crate::handler) ticket: Ticket,
    /// True if its producer has said that it waits.
    pub(in crate::handler) is_awaited: bool,
    pub(in crate::handler) context: Context,
    key: Key,
    news: Rc<RefCell<News>>,
    resource: Rc<Resource>,
    policy: Policy,
    evaluator: Evaluator,
    slots: VecDeque<Slot>,
    /// The number of slots that have been sent: the number of the first one that waits.
    sent: u32,
    /// Holes that are looked for, or whose producers have not ended, or not been sent.
    open: usize,
}

/// The things that a page knows of its request, and those that it includes know of it.
#[derive(Clone, Debug)]
pub(in crate::handler) struct Context {
    /// The head of a request for what it includes, but for path and query, which are its own.
    pub(in crate::handler) head: Rc<HeadBuf>,
    pub(in crate::handler) origin: Rc<Origin>,
    pub(in crate::handler) serving: Rc<Serving>,
    pub(in crate::handler) site: SiteId,
    pub(in crate::handler) client: Option<IpAddr>,
    /// The paths of this page and of those that include it, in their normal form, the outermost first.
    pub(in crate::handler) paths: Rc<[Box<[u8]>]>,
    /// The time of the last change of the outermost page, in Unix seconds.
    pub(in crate::handler) modified: i64,
    /// The number of includes of the response so far.
    pub(in crate::handler) includes: Rc<Cell<u32>>,
    /// The variables with which it begins.
    pub(in crate::handler) scope: Scope,
}

/// A part of a page that waits to be sent. A body that is found may have parts that are made, and one of them is
/// being made.
#[derive(Debug)]
enum Slot {
    /// A range of the file.
    Text(Range<u64>),
    Bytes(Vec<u8>),
    /// It is looked for.
    Pending {
        /// The variables of this place.
        scope: Scope,
        /// Bytes of memory of those that others do not share, and of the URL.
        bytes: usize,
        /// The line of the directive.
        line: u32,
        /// The URL as the page has it.
        url: Box<[u8]>,
        search: Option<Rc<dyn Search>>,
    },
    /// The body of a response.
    Found {
        parts: VecDeque<Part>,
        is_made: bool,
        making: Option<Box<dyn Producer>>,
    },
}

/// A hole that is to be looked for.
#[derive(Debug)]
pub(in crate::handler) struct Ask {
    /// Its number.
    pub(in crate::handler) hole: u32,
    /// The URL as the page has it.
    pub(in crate::handler) url: Vec<u8>,
}

/// The reason why an error message stands in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::handler) enum Trouble {
    /// Of a directive.
    Directive(Fault),
    /// A condition without an end. No error message stands for it.
    Unended,
    /// The page includes itself, or one that includes it does.
    Cycle,
    /// More than [`DEPTH_MAX`] pages within one another.
    Depth,
    /// More than [`INCLUDES_MAX`] includes.
    Includes,
    /// The response has this status.
    Status(Status),
    /// The response is compressed.
    Coded,
}

/// A fault of a page, and its place.
#[derive(Debug)]
pub(in crate::handler) struct Problem {
    trouble: Trouble,
    /// The line of the directive.
    line: u32,
    /// The URL of the include, if it is one.
    url: Option<Box<[u8]>>,
}

impl Problem {
    /// Returns whether a page includes itself.
    pub(in crate::handler) fn is_cycle(&self) -> bool {
        self.trouble.is_cycle()
    }
}

impl Page {
    /// Begins a page, which answers the request `ticket`.
    pub(in crate::handler) fn new(
        (key, news): (Key, Rc<RefCell<News>>),
        ticket: Ticket,
        context: Context,
        resource: Rc<Resource>,
        policy: Policy,
        template: Rc<Template>,
    ) -> Self {
        let evaluator = Evaluator::new(template, context.scope.clone());
        let (slots, sent, open, is_awaited) = (VecDeque::new(), 0, 0, false);
        Self {
            ticket,
            is_awaited,
            context,
            key,
            news,
            resource,
            policy,
            evaluator,
            slots,
            sent,
            open,
        }
    }

    /// Goes on until something is to be looked for; `None` if enough of the page waits to be sent, or all of it.
    pub(in crate::handler) fn advance(&mut self, now: i64) -> Option<Result<Ask, Problem>> {
        let Self { context, .. } = self;
        let head = context.head.as_head();
        let document = context.paths.first().map_or(&b""[..], |path| path);
        let document = &*path::with_slashes(document, b"/");
        let (modified, client) = (context.modified, context.client);
        let facts = Facts { head: &head, document, modified, client, now };
        while self.open < SIDE_BY_SIDE_MAX && self.slots.len() < SLOTS_MAX {
            let Some(step) = self.evaluator.next(&facts) else { break };
            let line = self.evaluator.line();
            match step {
                Step::Text(range) => self.slots.push_back(Slot::Text(range)),
                Step::Bytes(bytes) => self.slots.push_back(Slot::Bytes(bytes)),
                Step::Fault(fault) => {
                    let errmsg = self.evaluator.scope().errmsg().to_vec();
                    self.slots.push_back(Slot::Bytes(errmsg));
                    let trouble = Trouble::Directive(fault);
                    return Some(Err(Problem { trouble, line, url: None }));
                }
                Step::Include(url) => {
                    let hole = self.sent.wrapping_add(count(self.slots.len()));
                    let bytes = self.evaluator.take_fresh() + url.len();
                    let scope = self.evaluator.scope().clone();
                    let own = url[..].into();
                    let slot = Slot::Pending { scope, bytes, line, url: own, search: None };
                    self.slots.push_back(slot);
                    self.open += 1;
                    return Some(Ok(Ask { hole, url }));
                }
            }
        }
        if !self.evaluator.is_over() {
            return None;
        }
        let line = self.evaluator.take_unended()?;
        Some(Err(Problem { trouble: Trouble::Unended, line, url: None }))
    }

    /// Says why a page with this path cannot be a part of it, if so.
    pub(in crate::handler) fn may_include(&self, path: &[u8]) -> Result<(), Trouble> {
        let paths = &self.context.paths;
        if paths.iter().any(|other| **other == *path) {
            return Err(Trouble::Cycle);
        }
        if paths.len() >= DEPTH_MAX {
            return Err(Trouble::Depth);
        }
        Ok(())
    }

    /// Counts an include of a page with this path, or says why there is none.
    pub(in crate::handler) fn admit(&self, path: &[u8]) -> Result<(), Trouble> {
        self.may_include(path)?;
        let includes = &self.context.includes;
        if includes.get() >= INCLUDES_MAX {
            return Err(Trouble::Includes);
        }
        includes.set(includes.get() + 1);
        Ok(())
    }

    /// The variables where a hole is, if it is still looked for.
    pub(in crate::handler) fn scope_of(&self, hole: u32) -> Option<Scope> {
        match self.slots.get(self.place(hole))? {
            Slot::Pending { scope, .. } => Some(scope.clone()),
            _ => None,
        }
    }

    /// Returns whether a hole is still looked for.
    pub(in crate::handler) fn awaits(&self, hole: u32) -> bool {
        matches!(self.slots.get(self.place(hole)), Some(Slot::Pending { .. }))
    }

    /// A hole is looked for, and the search is dropped if it is not wanted any more.
    pub(in crate::handler) fn search(&mut self, hole: u32, search: Option<Rc<dyn Search>>) {
        let place = self.place(hole);
        if let Some(Slot::Pending { search: own, .. }) = self.slots.get_mut(place) {
            *own = search;
        }
    }

    /// The problem of a hole that is still looked for.
    pub(in crate::handler) fn problem(&self, hole: u32, trouble: Trouble) -> Option<Problem> {
        match self.slots.get(self.place(hole))? {
            Slot::Pending { line, url, .. } => {
                Some(Problem { trouble, line: *line, url: Some(url.clone()) })
            }
            _ => None,
        }
    }

    /// Fills a hole with a body, or the error message. Returns false if it was not looked for.
    pub(in crate::handler) fn fill(&mut self, hole: u32, body: Option<Body>) -> bool {
        let place = self.place(hole);
        let Some(slot) = self.slots.get_mut(place) else { return false };
        let Slot::Pending { scope, .. } = slot else { return false };
        let is_made = body.as_ref().is_some_and(Body::has_producer);
        *slot = match body {
            Some(body) => Slot::Found { parts: body.into_iter().collect(), is_made, making: None },
            None => Slot::Bytes(scope.errmsg().to_vec()),
        };
        self.open -= usize::from(!is_made);
        true
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

    /// Returns whether the first slot can be sent.
    pub(in crate::handler) fn can_go_on(&self) -> bool {
        !matches!(self.slots.front(), Some(Slot::Pending { .. }))
    }

    /// Returns whether nothing of it is to be looked for or made any more. Its producer sends the rest.
    pub(in crate::handler) fn is_computed(&self) -> bool {
        self.open == 0 && self.evaluator.is_over()
    }

    /// The first slot has been sent.
    fn pop(&mut self) {
        if let Some(Slot::Found { is_made: true, .. }) = self.slots.pop_front() {
            self.open -= 1;
        }
        self.sent = self.sent.wrapping_add(1);
    }

    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let sent = self.sent;
        let produced = self.send(room, sink);
        // There is room for more, which can be evaluated now.
        if self.sent != sent && !self.evaluator.is_over() {
            self.news.borrow_mut().touched.push(self.key);
        }
        self.is_awaited = produced == Produced::Waiting;
        produced
    }

    /// Sends what can be sent now.
    fn send(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut made = 0;
        while made < room {
            match self.slots.front_mut() {
                None if self.evaluator.is_over() => return Produced::Ended,
                None | Some(Slot::Pending { .. }) => return Produced::Waiting,
                Some(Slot::Text(range)) => {
                    let range = range.clone();
                    push(Part::of(self.variant(), range, self.policy), sink);
                    self.pop();
                }
                Some(Slot::Bytes(bytes)) => {
                    made += bytes.len() as u64;
                    sink.push(Piece::Bytes(core::mem::take(bytes)));
                    self.pop();
                }
                Some(Slot::Found { making: making @ Some(_), .. }) => {
                    let Some(producer) = making else { unreachable!("matched above") };
                    match producer.poll(room - made, sink) {
                        Produced::Ended => *making = None,
                        // After more, the others' turns come first.
                        produced => return produced,
                    }
                }
                Some(Slot::Found { parts, making, .. }) => match parts.pop_front() {
                    Some(Part::Producer(producer)) => *making = Some(producer),
                    Some(part) => push(part, sink),
                    None => self.pop(),
                },
            }
        }
        Produced::More
    }
}

/// Gives a page.
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
        let weight = |slot: &Slot| match slot {
            Slot::Bytes(bytes) => bytes.capacity() as u64,
            Slot::Pending { bytes, search, .. } => {
                *bytes as u64 + search.as_ref().map_or(0, |search| search.weight())
            }
            Slot::Found { parts, making, .. } => {
                let waiting = parts.iter().filter_map(|part| match part {
                    Part::Producer(producer) => Some(producer),
                    Part::Piece(_) | Part::File(..) => None,
                });
                waiting.chain(making).map(|producer| producer.weight()).sum()
            }
            Slot::Text(_) => 0,
        };
        let own = page.slots.len() * size_of::<Slot>() + page.evaluator.memory();
        own as u64 + page.slots.iter().map(weight).sum::<u64>()
    }
}

impl Trouble {
    /// Returns whether a page includes itself, perhaps through servers (508).
    pub(in crate::handler) fn is_cycle(self) -> bool {
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

/// Sends a part that is not made.
fn push(part: Part, sink: &mut dyn BodySink) {
    match part {
        Part::Piece(piece) => sink.push(piece),
        Part::File(file, range, policy) => sink.push_file(&file, range, policy),
        Part::Producer(_) => unreachable!("the caller polls it"),
    }
}

/// Slots are few.
fn count(slots: usize) -> u32 {
    u32::try_from(slots).expect("slots are bounded")
}

const _: () = assert!(SLOTS_MAX < 1 << 16);

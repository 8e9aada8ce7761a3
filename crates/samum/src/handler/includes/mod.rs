//! Pages with directives (server-side includes), while they are made.
//!
//! ```text
//!  find ──► Templates (parsed once for each version of a file)
//!             │
//!             ▼
//!           Page: Evaluator ──► slots in order: text of the file, bytes, holes ──► PageProducer ──► session
//!                                  ▲                                    │
//!                                  └── answers to other requests ◄──────┘ the router finds them
//! ```
//!
//! [`Pages`] has those of one worker. The [`Router`](super::router::Router) asks for each hole as if a client had
//! sent a request: the rules of its route apply, and files, programs and servers can answer it. Several are
//! asked for side by side, and their bodies are sent in order. A page that is included is a page of its own,
//! whose producer is a part of the other's body.
//!
//! The router finds each path of a page as if a client had asked for it, internal routes included. So files, programs
//! and upstreams can answer. Up to eight paths are looked for at a time, and their bodies are sent in order. A page
//! within a page is a producer within a producer with variables of its own; tables of variables are copied where they
//! differ, values never.
//!
//! All pages of a response have one budget. While it is full, only the place goes on whose turn to be sent has come,
//! so nothing that fits alone fails. Pages make their steps in a part of the worker turn, one after the other. What an
//! upstream sends for a hole before its turn is what the ring brought with its head, or the first 20 KiB; the rest
//! waits in the upstream's socket. Sends that refer to memory instead of copying cost more (`docs/linux.md`,
//! `MSG_ZEROCOPY`). A hole that fails shows the error message, and a hole that fails after its first byte cuts the
//! response off.

mod budget;
mod page;
mod request;
mod templates;

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use http::ResponseHead;
use ring::{Completion, Key, Slab, Time};

pub(super) use self::budget::Budget;
pub(super) use self::page::{Advance, Ask, Context, Page, Problem, Trouble};
pub(super) use self::request::{bodiless, resolve, stripped};
use self::templates::Templates;
pub(super) use self::templates::{Lookup, PAGE_BYTES_MAX};
use super::gateway::interest::{Interest, News};
use super::gateway::lines::Lines;
use super::{AnswerSize, Body, Part, Response, Ticket};
use crate::fields;
use crate::shell::{Shell, id_of, kind};
use content::{self, FileSet, Kind, Resource};

/// Pages of a worker that are made at once, those that others include with them. Those that wait only to be sent do not
/// count.
const PAGES_MAX: usize = 4096;

/// The time in a turn of the worker for steps of pages. It is as long as other parts of a turn.
const STEPS_TIME: Duration = Duration::from_micros(400);
/// Steps in that time. Most pages have fewer, and are made in one turn.
const STEPS_MAX: u32 = 2048;
/// Steps between two looks at the clock.
const CLOCK_LOOK: u32 = 2;

/// The pages of a worker that are being made.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) templates: Templates,
    pages: Slab<Rc<RefCell<Page>>>,
    news: Rc<RefCell<News>>,
    /// Requests whose pages can go on.
    woken: VecDeque<Ticket>,
    /// Pages that can go on.
    line: VecDeque<Key>,
    turn: Turn,
    pub(super) lines: Lines,
}

/// The turn of the worker in which pages made steps last.
#[derive(Debug, Default)]
struct Turn {
    turn: Option<u64>,
    /// Steps that may still be made.
    left: u32,
    until: Time,
}

/// A page that is the answer to a request.
#[derive(Debug)]
pub(super) struct Opened {
    page: Rc<RefCell<Page>>,
    resource: Rc<Resource>,
    interest: Rc<Interest>,
}

/// The ticket of the request for a hole of a page.
pub(super) const fn ticket_of(page: Key, hole: u32) -> Ticket {
    Ticket { connection: kind::PAGE | page.to_bits(), request: hole }
}

/// The page that a request is a hole of, unless a client has sent it.
pub(super) const fn page_of(ticket: Ticket) -> Option<Key> {
    if ticket.connection & kind::MASK == kind::PAGE {
        Some(Key::from_bits(id_of(ticket.connection)))
    } else {
        None
    }
}

impl Pages {
    /// Begins a page; `None` if there are too many. `make` makes it, and is told where it wakes.
    pub(super) fn open(
        &mut self,
        resource: &Rc<Resource>,
        make: impl FnOnce(Key, Rc<RefCell<News>>) -> Page,
    ) -> Option<(Key, Opened)> {
        if self.pages.len() >= PAGES_MAX {
            return None;
        }
        let news = &self.news;
        let key = self.pages.insert_with(|key| Rc::new(RefCell::new(make(key, Rc::clone(news)))));
        let page = Rc::clone(self.pages.get(key).expect("just inserted"));
        let interest = Rc::new(Interest::new(key, true, Rc::clone(news)));
        Some((key, Opened { page, resource: Rc::clone(resource), interest }))
    }

    /// A page that is still wanted, and not computed as a whole.
    pub(super) fn page(&self, key: Key) -> Option<Rc<RefCell<Page>>> {
        self.pages.get(key).cloned()
    }

    /// Forgets the pages that are not wanted any more, with the requests for what they include.
    pub(super) fn drop_left(&mut self) {
        loop {
            let left = core::mem::take(&mut self.news.borrow_mut().left);
            if left.is_empty() {
                return;
            }
            // Those that they include are not wanted any more either.
            for key in left {
                self.pages.remove(key);
            }
            if self.pages.is_empty() {
                self.line.clear();
            }
        }
    }

    /// Counts a step of a page, unless the pages have had their turn.
    pub(super) fn may_step(&mut self, shell: &Shell) -> bool {
        let Turn { turn, left, until } = &mut self.turn;
        if *turn != Some(shell.cx.turn) {
            let now = shell.ring.now();
            (*turn, *left, *until) = (Some(shell.cx.turn), STEPS_MAX, now + STEPS_TIME);
        }
        if left.is_multiple_of(CLOCK_LOOK) && *left > 0 && shell.ring.now() >= *until {
            *left = 0;
        }
        *left = match left.checked_sub(1) {
            Some(less) => less,
            None => return false,
        };
        true
    }

    /// The next page that can go on, unless the pages have had their turn.
    pub(super) fn next_in_line(&mut self, shell: &Shell) -> Option<Key> {
        let touched = core::mem::take(&mut self.news.borrow_mut().touched);
        self.line.extend(touched);
        if self.line.is_empty() || !self.may_step(shell) {
            return None;
        }
        let key = self.line.pop_front()?;
        if let Some(page) = self.pages.get(key) {
            page.borrow_mut().is_in_line = false;
        }
        Some(key)
    }

    /// Returns whether pages can go on that have had no time in this turn.
    pub(super) fn has_turn(&self) -> bool {
        let has_some = !self.line.is_empty() || !self.news.borrow().touched.is_empty();
        has_some && !self.pages.is_empty()
    }

    /// A page can perhaps go on: wakes the request of the client. A page that needs nothing any more makes room for
    /// another one.
    pub(super) fn wake(&mut self, key: Key) {
        let Some(page) = self.page(key) else { return };
        let mut page = page.borrow_mut();
        if page.is_awaited
            && page.can_go_on()
            && let Some(ticket) = self.root(page.ticket)
        {
            page.is_awaited = false;
            self.woken.push_back(ticket);
        }
        if page.is_computed() {
            self.pages.remove(key);
        }
    }

    /// The request of the client that a request belongs to; `None` if that is not wanted any more.
    pub(super) fn root(&self, mut ticket: Ticket) -> Option<Ticket> {
        while let Some(key) = page_of(ticket) {
            ticket = self.pages.get(key)?.borrow().ticket;
        }
        Some(ticket)
    }

    /// The next request whose page can go on.
    pub(super) fn next_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front()
    }

    /// Takes a completion of an operation.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        self.templates.handle(shell, completion);
    }

    /// Returns whether no page is being made, and none has been left.
    pub(super) fn is_idle(&self) -> bool {
        self.pages.is_empty() && self.templates.is_idle() && self.news.borrow().left.is_empty()
    }

    /// Returns whether there may be something to do, or something new for a request, also for one whose page has ended.
    pub(super) fn may_have_news(&self) -> bool {
        !self.is_idle() || !self.woken.is_empty()
    }
}

/// The memory that a page keeps, and what it includes before its turn. It cannot be found again, because what it
/// includes would be asked for again.
pub(super) fn size(opened: &Opened) -> AnswerSize {
    let own = opened.page.borrow().memory();
    let shared = (opened.resource.memory + own) as u64;
    AnswerSize { shared, holds_files: false, unique: true }
}

/// The response with a page.
pub(super) fn response(opened: &Opened) -> Response<'_> {
    let Opened { page, resource, interest } = opened;
    let Kind::File(files) = &resource.kind else { unreachable!("a page is a file") };
    let producer = page::PageProducer { page: Rc::clone(page), interest: Rc::clone(interest) };
    Response::new(head(files), Body::from(Part::Producer(Box::new(producer))))
}

/// Status and fields of a page: it has no length, no validators and no ranges, because its file says nothing
/// about the rest of it.
fn head(files: &FileSet) -> ResponseHead<'_> {
    let stat = &files.plain.stat;
    let mut head = ResponseHead {
        last_modified: None,
        accept_ranges: false,
        ..content::head(stat, b"", None, &files.content_type, None)
    };
    fields::apply(&files.fields, &mut head);
    head
}

//! Pages with directives (server-side includes), while they are made. A *hole* is the place of an included part in a
//! page: the answer to another request fills it.
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
//! [`Pages`] has the pages of one worker. The [`Router`](super::router::Router) finds the answer for each hole as if a
//! client had sent a request, internal routes included. The rules of the hole's route apply, and files, programs and
//! upstreams can answer. Up to eight answers are looked for at a time, and their bodies are sent in order.
//!
//! A page within a page is a page of its own, with variables of its own. Its producer is a part of the outer page's
//! body. Tables of variables are copied where they differ, and values never.
//!
//! All pages of a response have one budget (`budget.rs`), also for bodies that are on their way. While the budget is full,
//! only the hole continues whose turn to be sent has come, so a part that fits alone never fails. Pages make their steps in
//! a part of the worker turn, one after the other. Before the turn of a hole, an upstream's response holds the bytes
//! that the ring brought with its head, or the first 20 KiB; the rest waits in the upstream's socket. Sends that refer
//! to memory instead of copying cost more (`docs/linux.md`, `MSG_ZEROCOPY`). A hole that fails shows the error message.
//! A hole that fails after its first byte cuts the response off.

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
pub(super) use self::page::{Advance, Ask, Context, Page, Problem, Source, Trouble};
pub(super) use self::request::{bodiless, resolve, stripped};
use self::templates::Templates;
pub(super) use self::templates::{Lookup, PAGE_BYTES_MAX};
use super::{AnswerSize, Body, Keep, Part, Response, Ticket};
use content::{self, Kind, Resource};
use gateways::interest::{Interest, News};
use gateways::lines::Lines;
use session::fields;
use session::kind::{self, id_of};
use session::shell::Shell;

/// Pages of a worker that are made at the same time, included pages too. Pages that only wait to be sent do not count.
const PAGES_MAX: usize = 4096;

/// The time for steps of pages in a worker turn. It is as long as other parts of a worker turn.
const STEPS_TIME: Duration = Duration::from_micros(400);
/// Steps in that time. Most pages need fewer, and are made in one worker turn.
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
    /// The queue of pages that can continue.
    line: VecDeque<Key>,
    turn: Turn,
    pub(super) lines: Lines,
}

/// The worker turn in which pages last made steps.
#[derive(Debug, Default)]
struct Turn {
    turn: Option<u64>,
    /// The number of steps that may still be made.
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

/// The page that has the request as a hole; `None` if a client has sent the request.
pub(super) const fn page_of(ticket: Ticket) -> Option<Key> {
    if ticket.connection & kind::MASK == kind::PAGE {
        Some(Key::from_bits(id_of(ticket.connection)))
    } else {
        None
    }
}

impl Pages {
    /// Begins a page; `None` if there are too many. `make` makes the page, and gets the news by which it wakes.
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

    /// A page that is still wanted and not computed completely.
    pub(super) fn page(&self, key: Key) -> Option<Rc<RefCell<Page>>> {
        self.pages.get(key).cloned()
    }

    /// The path and the query that the client has requested, for a request for what a page includes.
    pub(super) fn requested(&self, ticket: Ticket) -> Option<Rc<[u8]>> {
        let page = self.page(page_of(ticket)?)?;
        let requested = Rc::clone(&page.borrow().context.requested);
        Some(requested)
    }

    /// Removes the pages that are no longer wanted, with the requests for their includes.
    pub(super) fn drop_left(&mut self) {
        loop {
            let left = core::mem::take(&mut self.news.borrow_mut().left);
            if left.is_empty() {
                return;
            }
            // Pages that they include are no longer wanted either.
            for key in left {
                self.pages.remove(key);
            }
            if self.pages.is_empty() {
                self.line.clear();
            }
        }
    }

    /// Counts a step of a page; false if the pages have used up their part of the worker turn.
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

    /// The next page that can continue; `None` if the pages have used up their part of the worker turn.
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

    /// Returns true if pages that can continue wait for the next worker turn.
    pub(super) fn wants_turn(&self) -> bool {
        let has_some = !self.line.is_empty() || !self.news.borrow().touched.is_empty();
        has_some && !self.pages.is_empty()
    }

    /// Wakes the client's request, because a page may continue. A page that needs nothing any more is removed, and
    /// makes room for another one.
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

    /// The client's request to which a request belongs; `None` if it is no longer wanted.
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

    /// Handles a completion of an operation.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        self.templates.handle(shell, completion);
    }

    /// Returns true if no page is being made, and no client has left one.
    pub(super) fn is_idle(&self) -> bool {
        self.pages.is_empty() && self.templates.is_idle() && self.news.borrow().left.is_empty()
    }

    /// Returns true if there may be work, or news for a request, also for one whose page has ended.
    pub(super) fn may_have_news(&self) -> bool {
        !self.is_idle() || !self.woken.is_empty()
    }
}

/// The memory of a page, and of its includes before their turn. The answer is unique, because to find it again would
/// repeat its includes.
pub(super) fn size(opened: &Opened) -> AnswerSize {
    let own = opened.page.borrow().memory();
    let shared = (opened.resource.memory + own) as u64;
    AnswerSize { shared, holds_files: false, keep: Keep::Always }
}

/// The response with a page.
pub(super) fn response(opened: &Opened) -> Response<'_> {
    let Opened { page, resource, interest } = opened;
    let producer = page::PageProducer { page: Rc::clone(page), interest: Rc::clone(interest) };
    Response::new(head(resource), Body::from(Part::Producer(Box::new(producer))))
}

/// Status and fields of a page. It has no length, no validators and no ranges, because its file says nothing about the
/// other parts of the page.
pub(super) fn head(resource: &Resource) -> ResponseHead<'_> {
    let Kind::File(files) = &resource.kind else { unreachable!("a page is a file") };
    let stat = &files.plain.stat;
    let mut head = ResponseHead {
        last_modified: None,
        accept_ranges: false,
        ..content::head(stat, b"", None, &files.content_type, None)
    };
    fields::apply(&files.fields, &mut head);
    head
}

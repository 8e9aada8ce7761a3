//! The page of the operator as a response, and the viewers whose pages are kept up to date.
//!
//! One URL has all: the page, the figures as JSON with the query `json`, and events with the query `events`. A query works
//! with each path and pattern that a route may have, and one `allow` is for all three. php-fpm and Apache httpd have their
//! figures in the same way (`?json`, `?auto`).
//!
//! A viewer gets all figures as an event, once in [`EVENT_PAUSE`]. The producer of a viewer keeps the newest event only. It
//! is not asked for more before its earlier bytes have left, so a viewer that reads slowly misses events and needs no
//! memory. All viewers end when another configuration is served, which may have other rules for them, and when the
//! server ends. A browser comes back by itself.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{ResponseHead, Status};
use ring::Op;
use sendfile::Piece;

use super::{Body, BodySink, Part, Produced, Producer, Response, Ticket};
use crate::status_page::{Board, Figures, PAGE, POLICY, Seat, VIEWERS_MAX};
use session::context::Context;
use session::kind;
use session::page::bare;
use session::shell::Shell;

/// The time between two events of a viewer.
const EVENT_PAUSE: Duration = Duration::from_secs(1);

/// The begin of all events: the time in milliseconds after which a browser comes back when they end.
const EVENTS_BEGIN: &[u8] = b"retry: 1000\n\n";

/// The seconds after which a viewer that finds no place may ask again.
const RETRY_AFTER: &[u8] = b"10";

/// The part of the page that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The page itself, as HTML.
    Html,
    /// The figures as JSON.
    Json,
    /// The figures as events, for this request.
    Events(Ticket),
}

/// The viewers of a worker.
#[derive(Debug)]
pub(super) struct Viewers {
    board: Arc<Board>,
    viewers: RefCell<Vec<Weak<Viewer>>>,
    /// True if a timer runs for their next event.
    is_timed: bool,
    /// The requests of viewers that have news.
    woken: VecDeque<Ticket>,
    /// True if there may be something to do. Each worker turn asks.
    is_awake: Cell<bool>,
}

/// A viewer, as long as its response is sent.
#[derive(Debug)]
struct Viewer {
    ticket: Ticket,
    /// The newest figures, if they were not sent.
    news: RefCell<Option<Arc<str>>>,
    is_ended: Cell<bool>,
    _seat: Seat,
}

/// The events of a viewer.
#[derive(Debug)]
struct Events {
    viewer: Rc<Viewer>,
    has_begun: bool,
}

impl View {
    /// The part of the page for a request with this query.
    pub(super) const fn of(query: Option<&[u8]>, ticket: Ticket) -> Self {
        match query {
            Some(b"json") => Self::Json,
            Some(b"events") => Self::Events(ticket),
            _ => Self::Html,
        }
    }
}

impl Viewers {
    pub(super) const fn new(board: Arc<Board>) -> Self {
        Self {
            board,
            viewers: RefCell::new(Vec::new()),
            is_timed: false,
            woken: VecDeque::new(),
            is_awake: Cell::new(false),
        }
    }

    /// The data that the workers share for the status page.
    pub(super) const fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Makes the response to a request for a part of the page.
    pub(super) fn response(
        &self,
        cx: &Context,
        view: View,
        figures: impl FnOnce() -> Figures,
    ) -> Response<'static> {
        match view {
            View::Html => {
                let mut head = head(Status::Ok, b"text/html; charset=utf-8", Some(PAGE.len()));
                head.extra.push(b"Content-Security-Policy", POLICY.as_bytes());
                head.extra.push(b"Referrer-Policy", b"no-referrer");
                Response::new(head, Body::from(Part::Piece(Piece::Static(PAGE.as_bytes()))))
            }
            View::Json => {
                let text = self.board.text(cx.now, figures);
                let head = head(Status::Ok, b"application/json", Some(text.len()));
                Response::new(head, Body::from(Part::Piece(Piece::Bytes(text.as_bytes().to_vec()))))
            }
            View::Events(ticket) => match self.board.take_seat() {
                Some(seat) => {
                    let text = self.board.text(cx.now, figures);
                    self.events(Viewer {
                        ticket,
                        news: RefCell::new(Some(text)),
                        is_ended: Cell::new(cx.is_ending),
                        _seat: seat,
                    })
                }
                None => full(),
            },
        }
    }

    fn events(&self, viewer: Viewer) -> Response<'static> {
        let viewer = Rc::new(viewer);
        self.viewers.borrow_mut().push(Rc::downgrade(&viewer));
        self.is_awake.set(true);
        let mut head = head(Status::Ok, b"text/event-stream", None);
        // nginx in front would keep events until it has a buffer full of them.
        head.extra.push(b"X-Accel-Buffering", b"no");
        let events = Events { viewer, has_begun: false };
        Response::new(head, Body::from(Part::Producer(Box::new(events))))
    }

    /// Begins the wait for the next event, if there are viewers.
    pub(super) fn act(&mut self, shell: &mut Shell) {
        if !self.is_timed && !self.viewers.borrow().is_empty() {
            shell.ring.submit(Op::Timer(shell.cx.now + EVENT_PAUSE), kind::VIEWERS);
            self.is_timed = true;
        }
        self.is_awake.set(!self.woken.is_empty());
    }

    /// Sends an event to all viewers, because the time has come.
    pub(super) fn handle(&mut self, cx: &Context, figures: impl FnOnce() -> Figures) {
        self.is_timed = false;
        self.is_awake.set(true);
        if cx.is_ending {
            return self.end_all();
        }
        let viewers = self.present();
        if viewers.is_empty() {
            return;
        }
        let text = self.board.text(cx.now, figures);
        for viewer in viewers {
            *viewer.news.borrow_mut() = Some(Arc::clone(&text));
            self.woken.push_back(viewer.ticket);
        }
    }

    /// Ends the responses of all viewers.
    pub(super) fn end_all(&mut self) {
        self.is_awake.set(true);
        for viewer in self.present() {
            viewer.is_ended.set(true);
            self.woken.push_back(viewer.ticket);
        }
    }

    /// The next request of a viewer that has news.
    pub(super) fn next_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front()
    }

    /// Returns true if there is nothing to do, and no viewer has news.
    pub(super) const fn is_quiet(&self) -> bool {
        !self.is_awake.get()
    }

    /// The viewers whose responses are still sent. Others are forgotten.
    fn present(&self) -> Vec<Rc<Viewer>> {
        let mut viewers = self.viewers.borrow_mut();
        viewers.retain(|viewer| viewer.strong_count() > 0);
        viewers.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Producer for Events {
    fn poll(&mut self, _room: u64, sink: &mut dyn BodySink) -> Produced {
        if !core::mem::replace(&mut self.has_begun, true) {
            sink.push(Piece::Static(EVENTS_BEGIN));
        }
        if let Some(text) = self.viewer.news.take() {
            sink.push(Piece::Bytes(["data: ", &text, "\n\n"].concat().into_bytes()));
        }
        if self.viewer.is_ended.get() { Produced::Ended } else { Produced::Waiting }
    }

    fn weight(&self) -> u64 {
        self.viewer.news.borrow().as_ref().map_or(0, |text| text.len() as u64)
    }
}

/// The response to one viewer more than there are places.
fn full() -> Response<'static> {
    let text = format!(
        "{VIEWERS_MAX} pages are kept up to date already, and no more at a time: close one, or ask for ?json\n"
    );
    let mut head = head(Status::ServiceUnavailable, b"text/plain; charset=utf-8", Some(text.len()));
    head.extra.push(b"Retry-After", RETRY_AFTER);
    Response::new(head, Body::from(Part::Piece(Piece::Bytes(text.into_bytes()))))
}

fn head(
    status: Status,
    content_type: &'static [u8],
    length: Option<usize>,
) -> ResponseHead<'static> {
    ResponseHead {
        content_type: Some(content_type.into()),
        content_length: length.map(|length| length as u64),
        cache_control: Some(b"no-store".into()),
        nosniff: true,
        ..bare(status)
    }
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use sendfile::{File, Policy, Takes};

    use super::*;

    /// The bytes of a producer that were not sent.
    #[derive(Default)]
    struct Unsent(Vec<u8>);

    impl BodySink for Unsent {
        fn takes(&self) -> Takes {
            Takes::Memory
        }

        fn push(&mut self, piece: Piece) {
            self.0.extend_from_slice(piece.bytes());
        }

        fn push_file(&mut self, _file: &Rc<File>, _range: Range<u64>, _policy: Policy) {
            unreachable!("events are in memory")
        }
    }

    #[test]
    fn a_viewer_that_does_not_read_misses_events_and_takes_no_memory() {
        let board = Arc::new(Board::default());
        let seat = board.take_seat().expect("a place");
        let ticket = Ticket { connection: 1, request: 2 };
        let (news, is_ended) = (RefCell::new(Some("1".into())), Cell::new(false));
        let viewer = Rc::new(Viewer { ticket, news, is_ended, _seat: seat });
        let mut events = Events { viewer: Rc::clone(&viewer), has_begun: false };
        let poll = |events: &mut Events| {
            let mut unsent = Unsent::default();
            let produced = events.poll(1, &mut unsent);
            (produced, String::from_utf8(unsent.0).unwrap())
        };
        let text = "retry: 1000\n\ndata: 1\n\n".to_owned();
        assert_eq!(poll(&mut events), (Produced::Waiting, text));
        assert_eq!(poll(&mut events), (Produced::Waiting, String::new()));
        // It is asked for no more while the event before has not left.
        for number in 2..1000 {
            *viewer.news.borrow_mut() = Some(number.to_string().into());
            assert!(events.weight() <= 3);
        }
        assert_eq!(poll(&mut events), (Produced::Waiting, "data: 999\n\n".to_owned()));
        viewer.is_ended.set(true);
        assert_eq!(poll(&mut events), (Produced::Ended, String::new()));
        drop((viewer, events));
        assert_eq!(board.viewers(), 0);
    }

    #[test]
    fn the_query_chooses_the_part_of_the_page() {
        let ticket = Ticket { connection: 1, request: 2 };
        for (query, expected) in [
            (None, View::Html),
            (Some(&b""[..]), View::Html),
            (Some(b"json"), View::Json),
            (Some(b"json=1"), View::Html),
            (Some(b"events"), View::Events(ticket)),
            (Some(b"JSON"), View::Html),
        ] {
            assert_eq!(View::of(query, ticket), expected, "{query:?}");
        }
    }
}

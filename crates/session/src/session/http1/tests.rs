//! Tests of each state of the module's table with one event at a time, and tests of events in any order.

use core::cell::{Cell, RefCell};
use core::fmt::Write as _;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use http::{FieldSection, Method, ResponseHead, Target};
use http1::Limits;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::body::Producing;
use super::work::{PRODUCED_TURN_BYTES_MAX, TURN_BYTES_MAX, TURN_REQUESTS_MAX};
use super::*;
use crate::client::ClientAddress;
use crate::context::SiteRules;
use crate::fields::HSTS;
use crate::files::{FileSet, Whole};
use crate::forwarded::Scheme;
use crate::handler::{
    Body, BodySink, CONSUMER_ROOM_MIN, Consumer, Part, Producer, Reception, Terms,
};
use crate::record::{Recording, Sketch};
use crate::session::framing::BodyFraming;
use crate::standing::Standing;
use config::Tuning;

use sendfile::Failure;

/// The time at which every state of these tests began to wait. The events come a second later.
const START: Time = Time::from_nanos(1_000_000_000_000);

/// A place where requests are recorded. Without such a place, responses that have left are not reported.
fn recording() -> Option<Rc<Recording>> {
    Some(Rc::new(Recording {
        site: "site".into(),
        log: None,
        label: None,
        shows_more: false,
        shows_host: false,
        shows_trace: false,
    }))
}

/// Records all requests in the place that [`recording`] returns.
#[derive(Debug)]
struct Recorded;

impl SiteRules for Recorded {
    fn recording(&self, _listener: u32, _head: Option<&Head<'_>>) -> Option<Rc<Recording>> {
        recording()
    }

    fn client(&self, _own: ClientAddress, _head: &Head<'_>) -> Option<IpAddr> {
        None
    }
}

fn context() -> Context {
    let mut cx = Context::new(Tuning::default(), Rc::new(Recorded));
    cx.tick(START + Duration::from_secs(1), || (1_000_000_000, 0));
    cx
}

/// A session and its work, put together by a test.
type State = (Http1, Work);

fn state(phase: Phase) -> State {
    let session = Http1 { phase, ..Http1::new(START) };
    let mut work = Work::default();
    if !session.is_open() {
        work.reader.close();
    }
    (session, work)
}

fn exchange(request: u32, lookup: Lookup) -> Exchange {
    let head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let Ok(Some((parsed, _))) = http1::parse(head.as_bytes(), &Limits::DEFAULT) else {
        panic!("a whole request")
    };
    let facts = RequestFacts::default();
    Exchange::Asked { request, head: parsed.head.to_owned(), facts, lookup }
}

const FOUND: Lookup =
    Lookup::Found(AnswerSize { shared: 0, holds_files: false, keep: Keep::IfSmall });
const SOURCE: Wait = Wait::Server(START);

fn with(mut state: State, exchanges: impl IntoIterator<Item = Exchange>) -> State {
    exchanges.into_iter().for_each(|exchange| state.1.exchanges.push_back(exchange));
    state
}

/// The given state with bytes that have not been sent.
fn unsent((session, mut work): State) -> State {
    work.stream.push(Piece::Static(b"unsent"));
    (session, work)
}

/// The given state with a producer at the end of the stream.
fn producing((session, mut work): State, producer: Made) -> State {
    let (parts, framing) = (Body::EMPTY.into_iter(), BodyFraming::Chunked);
    let trailers = FieldSection::EMPTY;
    let body = Sending { parts, framing, trailers, record: None, body_at: 0 };
    let (producer, failure) = (Box::new(producer), Failure::Unfinished);
    work.producing = Some(Producing { producer, body, is_new: false, failure });
    (session, work)
}

fn ended((mut session, work): State) -> State {
    session.ended = true;
    (session, work)
}

fn open_idle() -> State {
    state(Phase::Open(Wait::Idle(START)))
}
fn open_receiving() -> State {
    state(Phase::Open(Wait::Request(START)))
}
/// The body of a request that was answered is still being received.
fn open_skipping() -> State {
    let (session, mut work) = open_receiving();
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    work.reader.handle_input(head, &Limits::DEFAULT);
    (session, work)
}
/// The response to a request waits for the end of the request's body.
fn open_awaiting_body() -> State {
    let (session, mut work) = open_receiving();
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    work.reader.handle_input(head, &Limits::DEFAULT);
    let mut exchange = exchange(0, FOUND);
    if let Exchange::Asked { facts, .. } = &mut exchange {
        facts.skips_body_first = true;
    }
    work.exchanges.push_back(exchange);
    (session, work)
}
fn open_waiting_for_answer() -> State {
    with(state(Phase::Open(SOURCE)), [exchange(0, Lookup::Pending(None))])
}
fn open_reading() -> State {
    unsent(state(Phase::Open(SOURCE)))
}
fn open_waiting_for_peer() -> State {
    unsent(state(Phase::Open(Wait::Peer(START))))
}
/// The connection waits for a disk, after a wait for the peer.
fn open_reading_again() -> State {
    let (session, mut work) = open_reading();
    work.peer_since = Some(START);
    (session, work)
}
fn last_waiting_for_answer() -> State {
    with(state(Phase::Last(SOURCE)), [exchange(0, Lookup::Pending(None))])
}
fn last_waiting_for_peer() -> State {
    unsent(state(Phase::Last(Wait::Peer(START))))
}
fn refused() -> Exchange {
    let reject = Reject { status: Status::BadRequest, reason: "it is garbage" };
    Exchange::Refused(reject, Known::Line(Sketch::default()))
}
/// A refusal waits for the answer to the request in front of it.
fn last_with_refused() -> State {
    with(last_waiting_for_answer(), [refused()])
}
fn lingering() -> State {
    state(Phase::lingering(START))
}

/// One event.
#[derive(Clone, Copy, Debug)]
enum On {
    Bytes(&'static str),
    Eof,
    Answer(AnswerSize),
    /// All bytes were sent. The values are the number of received bytes that wait for the session, and whether the
    /// session has already seen these bytes.
    Drained(usize, bool),
    Blocked,
    Waiting,
    More,
    Failed,
    /// The deadline, with the number of bytes that were acknowledged until then.
    Deadline(i64),
    Shutdown,
}

/// Sends bytes, as a transport sends them.
fn send(work: &mut Work, bytes: u64, out: &mut Vec<u8>) {
    let queue = work.queue();
    let mut left = bytes;
    for chunk in queue.next_ready() {
        let length = chunk.len().min(left);
        let index = |position: u64| usize::try_from(position).expect("memory");
        let range = index(chunk.range.start)..index(chunk.range.start + length);
        out.extend_from_slice(&chunk.payload.bytes()[range]);
        left -= length;
        if left == 0 {
            break;
        }
    }
    queue.mark_sent(bytes);
    queue.mark_released(bytes);
}

/// The requests of a handler that answers no request at once.
struct DeferAll<'a> {
    cx: &'a mut Context,
    /// For each request, true if the request was the next.
    are_next: Vec<bool>,
}

impl Requests for DeferAll<'_> {
    fn cx(&mut self) -> &mut Context {
        self.cx
    }

    fn consumer(&mut self, _request: u32, _head: &Head<'_>) -> Reception {
        Reception { consumer: None, standing: Standing::New }
    }

    fn handle_request<S: Defer>(
        &mut self,
        session: &mut S,
        work: &mut S::Work,
        request: u32,
        head: &Head<'_>,
        is_next: bool,
        _standing: Standing,
    ) {
        self.are_next.push(is_next);
        session.defer(work, request, head, Found::Later(None));
    }
}

/// Applies an event, and returns the next step. Bytes and answers have no next step (`None`).
fn apply((session, work): &mut State, cx: &mut Context, on: On) -> Option<Next> {
    let mut progress = |work: &mut Work, progress, unread, stuck| {
        let blocked = progress == Progress::Blocked;
        let moved = Moved { progress, blocked, acknowledged: 7, unread, stuck };
        session.handle_progress(work, cx, &moved)
    };
    Some(match on {
        On::Bytes(bytes) => {
            let is_next = work.exchanges.is_empty() && work.producing.is_none();
            let mut requests = DeferAll { cx, are_next: Vec::new() };
            let taken = session.handle_bytes(work, &mut requests, bytes.as_bytes());
            assert!(taken <= bytes.len());
            let skips_body_first = work.facts.skips_body_first;
            let expected = |place| place == 0 && is_next && !skips_body_first;
            let mut found = (0..).zip(requests.are_next);
            assert!(found.all(|(place, is_next)| is_next == expected(place)));
            return None;
        }
        On::Answer(size) => {
            session.handle_answer(work, cx, 0, size);
            return None;
        }
        On::Eof => session.handle_eof(Some(work)),
        On::Drained(unread, stuck) => {
            let unsent = work.unsent();
            send(work, unsent, &mut Vec::new());
            progress(work, Progress::Drained, unread, stuck)
        }
        On::Blocked => progress(work, Progress::Blocked, 0, false),
        On::Waiting => progress(work, Progress::Waiting, 0, false),
        On::More => progress(work, Progress::More, 0, false),
        On::Failed => progress(work, Progress::Failed(SHORT), 0, false),
        On::Deadline(acknowledged) => {
            cx.tick(session.deadline(cx).unwrap_or(START + Duration::from_secs(100)), || (0, 0));
            session.handle_deadline(Some(work), cx, acknowledged, b"")
        }
        On::Shutdown => session.handle_shutdown(Some(work)),
    })
}

/// The phase and the wait, with the seconds from [`START`] to the beginning of the wait.
fn place(session: &Http1, work: &Work) -> String {
    let at = |time: Time| time.since(START).as_secs();
    let of = |wait| match wait {
        Wait::Idle(since) => format!("Idle {}", at(since)),
        Wait::Request(since) => format!("Request {}", at(since)),
        Wait::Server(since) => work.peer_since.map_or_else(
            || format!("Server {}", at(since)),
            |peer| format!("Server {} Peer {}", at(since), at(peer)),
        ),
        Wait::Peer(since) => format!("Peer {}", at(since)),
    };
    match session.phase {
        Phase::Open(wait) => format!("Open {}", of(wait)),
        Phase::Last(wait) => format!("Last {}", of(wait)),
        Phase::Lingering { since, .. } => format!("Lingering {}", at(since)),
    }
}

/// The requests that wait, the producer, and the statuses of the responses that have not been sent.
fn waiting(work: &mut Work) -> String {
    let mut text = String::new();
    for exchange in work.exchanges.iter() {
        text.push_str(match exchange {
            Exchange::Asked { facts, .. } if facts.skips_body_first => "body ",
            Exchange::Asked { lookup: Lookup::Pending(_), .. } => "pending ",
            Exchange::Asked { lookup: Lookup::Found(_), .. } => "found ",
            Exchange::Asked { lookup: Lookup::Postponed, .. } => "postponed ",
            Exchange::Asked { lookup: Lookup::BrokenOff, .. } => "broken off ",
            Exchange::Refused(..) => "refused ",
        });
    }
    if work.producing.is_some() {
        text.push_str("producing ");
    }
    let (mut out, unsent) = (Vec::new(), work.queue().unsent_ready());
    send(work, unsent, &mut out);
    let out = String::from_utf8_lossy(&out);
    for line in out.lines() {
        if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
            let _ = write!(text, "{} ", &status[..3]);
        }
        if line == "Connection: close" {
            text.push_str("close ");
        }
    }
    if out.starts_with("unsent") {
        text.push_str("unsent ");
    }
    text.trim_end().to_owned()
}

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_LAST: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const WAIT: Option<Next> = Some(Next::Wait);
const PUMP: Option<Next> = Some(Next::Pump);
const OVER: Option<Next> = Some(Next::TurnOver);
const DONE: Option<Next> = Some(Next::Close(Why::Done));
const GONE: Option<Next> = Some(Next::Close(Why::Gone));
const TIMED_OUT: Option<Next> = Some(Next::Close(Why::TimedOut));
const SHORT: Failure = Failure::Truncated;
const LARGE: AnswerSize = AnswerSize { shared: 1 << 30, holds_files: false, keep: Keep::IfSmall };
/// An answer that is large like [`LARGE`], holds files like [`FILES`], and cannot be found again.
const UNIQUE: AnswerSize = AnswerSize { shared: 1 << 30, holds_files: true, keep: Keep::Always };
const FILES: AnswerSize = AnswerSize { shared: 0, holds_files: true, keep: Keep::IfSmall };
const POSTPONED: AnswerSize = AnswerSize { shared: 0, holds_files: false, keep: Keep::Never };

/// Checks the effect of each event in a state: the next step, the state after the event, and the requests and
/// responses that wait.
fn run(name: &str, before: impl Fn() -> State, table: &[(On, Option<Next>, &str, &str)]) {
    for (on, next, after, rest) in table {
        let (mut state, mut cx) = (before(), context());
        state.0.check(Some(&state.1));
        let got = apply(&mut state, &mut cx, *on);
        if matches!(got, WAIT | OVER | Some(Next::ShutDown)) {
            state.0.check(Some(&state.1));
        }
        let found = (got, place(&state.0, &state.1), waiting(&mut state.1));
        let expected = (*next, (*after).to_owned(), (*rest).to_owned());
        assert_eq!(found, expected, "{name} {on:?}");
    }
}

#[test]
fn open_and_idle() {
    run(
        "idle",
        open_idle,
        &[
            (On::Bytes(GET), None, "Open Idle 1", "pending"),
            (On::Bytes(GET_LAST), None, "Last Idle 1", "pending"),
            (On::Bytes("GET / HT"), None, "Open Idle 0", ""),
            (On::Bytes("\0\0\0"), None, "Last Idle 0", "400 close"),
            (On::Eof, PUMP, "Open Idle 0", ""),
            (On::Drained(0, false), WAIT, "Open Idle 0", ""),
            (On::Blocked, WAIT, "Open Idle 0", ""),
            (On::Drained(3, false), Some(Next::Read), "Open Idle 0", ""),
            (On::Drained(3, true), WAIT, "Open Request 1", ""),
            (On::Failed, Some(Next::Close(Why::Failed(SHORT))), "Open Idle 0", ""),
            (On::Deadline(0), TIMED_OUT, "Open Idle 0", ""),
            (On::Shutdown, DONE, "Last Idle 0", ""),
        ],
    );
}

#[test]
fn open_and_receiving() {
    run(
        "receiving",
        open_receiving,
        &[
            (On::Bytes(GET), None, "Open Idle 1", "pending"),
            (On::Bytes(GET_LAST), None, "Last Idle 1", "pending"),
            (On::Drained(3, true), WAIT, "Open Request 0", ""),
            (On::Drained(0, true), WAIT, "Open Idle 1", ""),
            (On::Deadline(0), PUMP, "Last Request 0", "408 close"),
            (On::Shutdown, DONE, "Last Request 0", ""),
        ],
    );
    run(
        "skipping",
        open_skipping,
        &[
            (On::Bytes("12345"), None, "Open Request 0", ""),
            (On::Drained(0, false), WAIT, "Open Request 0", ""),
            (On::Eof, PUMP, "Open Request 0", ""),
            (On::Deadline(0), TIMED_OUT, "Open Request 0", ""),
            (On::Shutdown, PUMP, "Last Request 0", ""),
        ],
    );
    run(
        "awaiting a body",
        open_awaiting_body,
        &[
            (On::Bytes("5\r\n12345\r\n"), None, "Open Request 0", "body"),
            (On::Bytes("0\r\n\r\n"), None, "Open Request 0", "found"),
            (On::Bytes("garbage\r\n"), None, "Last Request 0", "400 close"),
            (On::Drained(0, false), WAIT, "Open Request 0", "body"),
            (On::Deadline(0), PUMP, "Last Request 0", "408 close"),
            (On::Shutdown, OVER, "Last Request 0", "found"),
        ],
    );
    let (mut session, mut work) = ended(open_awaiting_body());
    let end = apply(&mut (session, work), &mut context(), On::Drained(0, false));
    assert_eq!(end, GONE, "the rest of the body will never come");
    (session, work) = open_receiving();
    assert_eq!(session.handle_eof(None), Next::Close(Why::Done));
    assert!(work.is_idle());
}

#[test]
fn open_and_waiting_for_the_server() {
    run(
        "waiting for an answer",
        open_waiting_for_answer,
        &[
            (On::Bytes(GET), None, "Open Server 0", "pending pending"),
            (On::Bytes("\0\0\0"), None, "Last Server 0", "pending refused"),
            (On::Answer(LARGE), None, "Open Server 0", "found"),
            (On::Eof, PUMP, "Open Server 0", "pending"),
            (On::Drained(0, false), WAIT, "Open Server 0", "pending"),
            (On::Deadline(0), WAIT, "Open Server 0", "pending"),
            (On::Shutdown, WAIT, "Last Server 0", "pending"),
        ],
    );
    run(
        "an answer behind another",
        || {
            let others =
                [exchange(u32::MAX, Lookup::Pending(None)), exchange(0, Lookup::Pending(None))];
            with(state(Phase::Open(SOURCE)), others)
        },
        &[
            (On::Answer(AnswerSize::default()), None, "Open Server 0", "pending found"),
            (On::Answer(LARGE), None, "Open Server 0", "pending postponed"),
            (On::Answer(FILES), None, "Open Server 0", "pending postponed"),
            (On::Answer(UNIQUE), None, "Open Server 0", "pending found"),
        ],
    );
    for (lookup, found) in [(FOUND, true), (Lookup::Postponed, false)] {
        let (mut session, mut work) = with(open_waiting_for_answer(), [exchange(1, lookup)]);
        work.exchanges.pop_front();
        let mut cx = context();
        let turn = session.next_turn(&mut work, &mut cx).expect("it can begin");
        assert_eq!((turn.request, turn.found), (1, found));
        session.put_back(&mut work, turn, None);
        assert_eq!(waiting(&mut work), "pending");
    }
    run(
        "reading",
        open_reading,
        &[
            (On::Bytes(GET), None, "Open Server 0", "pending unsent"),
            (On::Drained(0, false), WAIT, "Open Idle 1", ""),
            (On::Waiting, WAIT, "Open Server 0", "unsent"),
            (On::Blocked, WAIT, "Open Peer 1", "unsent"),
            (On::More, OVER, "Open Server 0", "unsent"),
            (On::Shutdown, WAIT, "Last Server 0", "unsent"),
        ],
    );
    run(
        "reading again",
        open_reading_again,
        &[
            // The peer's time was paused for a second.
            (On::Blocked, WAIT, "Open Peer 1", "unsent"),
            (On::Waiting, WAIT, "Open Server 0 Peer 0", "unsent"),
        ],
    );
    run(
        "reading for a peer that has ended",
        || ended(open_reading()),
        &[
            (On::Deadline(0), TIMED_OUT, "Open Server 0", "unsent"),
            (On::Drained(0, false), DONE, "Open Server 0", ""),
        ],
    );
}

#[test]
fn a_producer_in_progress() {
    let made = |ends, left| {
        move || producing(state(Phase::Open(SOURCE)), Made { left, ends, ..Made::default() })
    };
    let drained = On::Drained(0, false);
    run(
        "waiting",
        made(Produced::Waiting, 0),
        &[
            (drained, WAIT, "Open Server 0", "producing"),
            (On::Bytes(GET), None, "Open Server 0", "pending producing"),
            (On::Bytes("\0\0\0"), None, "Last Server 0", "refused producing"),
            (On::Shutdown, WAIT, "Last Server 0", "producing"),
        ],
    );
    run("more", made(Produced::More, 1), &[(drained, PUMP, "Open Server 1", "producing")]);
    run("ended", made(Produced::Ended, 0), &[(drained, PUMP, "Open Server 1", "")]);
    let mut failed = made(Produced::Failed, 0)();
    assert_eq!(apply(&mut failed, &mut context(), drained), PUMP);
    assert!(!failed.1.stream.is_drained(), "the client must see that bytes are missing");
    run(
        "a producer that has had its turn",
        || {
            let (session, mut work) = made(Produced::More, 1)();
            work.produced = (context().turn, PRODUCED_TURN_BYTES_MAX);
            (session, work)
        },
        &[(drained, OVER, "Open Server 0", "producing")],
    );
}

#[test]
fn waiting_for_the_peer() {
    for (before, phase) in
        [(open_waiting_for_peer as fn() -> State, "Open"), (last_waiting_for_peer, "Last")]
    {
        let at = |rest: &str| format!("{phase} {rest}");
        run(
            phase,
            before,
            &[
                (On::Eof, PUMP, &at("Peer 0"), "unsent"),
                (On::Blocked, WAIT, &at("Peer 0"), "unsent"),
                (On::More, OVER, &at("Peer 0"), "unsent"),
                (On::Waiting, WAIT, &at("Server 1 Peer 0"), "unsent"),
                // The limit is 64 bytes per second for 30 seconds.
                (On::Deadline(1919), TIMED_OUT, &at("Peer 0"), "unsent"),
                (On::Deadline(1920), WAIT, &at("Peer 30"), "unsent"),
                (On::Shutdown, WAIT, "Last Peer 0", "unsent"),
            ],
        );
    }
    run(
        "last",
        last_waiting_for_peer,
        &[(On::Drained(0, false), Some(Next::ShutDown), "Lingering 1", "")],
    );
}

#[test]
fn last_and_lingering() {
    run(
        "last",
        last_waiting_for_answer,
        &[
            (On::Bytes(GET), None, "Last Server 0", "pending"),
            (On::Drained(9, false), WAIT, "Last Server 0", "pending"),
            (On::Answer(FILES), None, "Last Server 0", "found"),
            (On::Deadline(0), WAIT, "Last Server 0", "pending"),
        ],
    );
    run(
        "refused",
        last_with_refused,
        &[
            (On::Drained(9, false), WAIT, "Last Server 0", "pending refused"),
            (On::Answer(FILES), None, "Last Server 0", "found refused"),
        ],
    );
    let (mut session, mut work) = with(state(Phase::Last(SOURCE)), [refused()]);
    assert!(session.next_turn(&mut work, &mut context()).is_none());
    assert_eq!(waiting(&mut work), "400 close");
    run(
        "lingering",
        lingering,
        &[
            (On::Bytes(GET), None, "Lingering 0", ""),
            (On::Drained(0, false), WAIT, "Lingering 0", ""),
            (On::Eof, DONE, "Lingering 0", ""),
            (On::Deadline(0), DONE, "Lingering 0", ""),
            // The peer has not acknowledged all bytes.
            (On::Deadline(-1), WAIT, "Lingering 2", ""),
            (On::Shutdown, WAIT, "Lingering 0", ""),
        ],
    );
}

/// A close while the peer sends would reset the connection, and the peer might not have read the response.
#[test]
fn a_peer_that_still_sends_has_more_time_to_close() {
    const LAST: u32 = 29;
    for (is_shut_down, heard) in [(false, 3), (false, u32::MAX), (true, u32::MAX)] {
        let (mut cx, mut state) = (context(), lingering());
        if is_shut_down {
            assert_eq!(apply(&mut state, &mut cx, On::Shutdown), WAIT);
        }
        let mut ended_at = None;
        for second in 0..=LAST {
            if second < heard {
                apply(&mut state, &mut cx, On::Bytes("xx"));
            }
            if second % 2 == 1 && apply(&mut state, &mut cx, On::Deadline(0)) != WAIT {
                ended_at = Some(second);
                break;
            }
        }
        let expected = match (is_shut_down, heard) {
            (true, _) => 1,
            (false, u32::MAX) => LAST,
            (false, heard) => heard + 2,
        };
        assert_eq!(ended_at, Some(expected), "{is_shut_down} {heard}");
    }
}

/// A path that loses frames is silent for seconds, so the peer has the same time as during a response.
#[test]
fn a_peer_that_has_not_got_everything_is_judged_as_during_a_response() {
    // The limit is 64 bytes per second. The peer is judged every 30 seconds.
    for (taken, expected) in [(0, Some(32)), (1919, Some(32)), (1920, Some(62)), (3840, None)] {
        let (mut cx, mut state) = (context(), lingering());
        let mut ended_at = None;
        for second in (2..=90).step_by(2) {
            // In the first period the acknowledged bytes are only noted. The peer takes the second half of the bytes
            // after the first judgement.
            let acknowledged = match second {
                2 => -10_000,
                ..33 => -10_000 + taken.min(1920),
                _ => -10_000 + taken,
            };
            let next = apply(&mut state, &mut cx, On::Deadline(acknowledged));
            if next != WAIT {
                assert_eq!((next, cx.stats.slow_peers.get()), (TIMED_OUT, 1), "{taken}");
                ended_at = Some(second);
                break;
            }
        }
        assert_eq!(ended_at, expected, "{taken}");
    }
}

#[test]
fn nothing_follows_a_response_that_ends_with_the_connection() {
    for phase in [Phase::Open(SOURCE), Phase::Last(SOURCE)] {
        let mut state = with(state(phase), [exchange(1, FOUND), refused()]);
        respond_to_the_end(&mut state);
        assert!(!state.0.is_open());
        assert_eq!(waiting(&mut state.1), "producing 200 close", "{phase:?}");
    }
}

/// Begins a response that only the end of the connection ends.
fn respond_to_the_end((session, work): &mut State) {
    let text = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let Ok(Some((request, _))) = http1::parse(text, &Limits::DEFAULT) else {
        panic!("a whole request")
    };
    let body = Body::from(Part::Producer(Box::new(Made::default())));
    let mut response = Response::new(ResponseHead::new(Status::Ok), body);
    session.respond(work, &mut context(), 0, &request.head, &mut response);
}

#[test]
fn a_peer_that_has_ended_its_side_is_left_only_if_nothing_leaves() {
    let mut cx = context();
    let mut state = ended(unsent(state(Phase::Open(SOURCE))));
    for _ in 0..3 {
        state.1.stream.push(Piece::Bytes(vec![0; 1000]));
        send(&mut state.1, 100, &mut Vec::new());
        assert_eq!(apply(&mut state, &mut cx, On::Waiting), WAIT);
        assert_eq!(apply(&mut state, &mut cx, On::Deadline(0)), WAIT);
    }
    assert_eq!(apply(&mut state, &mut cx, On::Deadline(0)), TIMED_OUT);
}

/// A search that is counted, and that ends when its client has gone.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "it is counted")] Rc<()>);

impl Search for Counted {
    fn weight(&self) -> sendfile::Weight {
        sendfile::Weight { own: 1000, shared: 0 }
    }

    fn ends_with_client(&self) -> bool {
        true
    }
}

#[test]
fn a_search_ends_with_what_waits_for_it() {
    let count = Rc::new(());
    let search = || Lookup::Pending(Some(Rc::new(Counted(Rc::clone(&count)))));
    let searching = || with(state(Phase::Open(SOURCE)), [exchange(0, search())]);
    let is_over = || Rc::strong_count(&count) == 1;
    for size in [AnswerSize::default(), LARGE, FILES, UNIQUE] {
        let mut state = searching();
        assert!(!is_over() && state.1.weight().own > 1000);
        apply(&mut state, &mut context(), On::Answer(size));
        assert!(is_over(), "it was found");
    }
    let mut state = searching();
    respond_to_the_end(&mut state);
    assert!(is_over(), "a response before it ends the connection");
    drop((state, searching()));
    assert!(is_over(), "the connection was closed");
}

#[test]
fn a_search_for_a_client_that_has_ended_its_side_ends_when_it_is_next() {
    let search = || exchange(0, Lookup::Pending(Some(Rc::new(Counted(Rc::default())))));
    for phase in [Phase::Open(SOURCE), Phase::Last(SOURCE)] {
        let mut cx = context();
        let searching = || with(state(phase), [search()]);
        assert_eq!(apply(&mut searching(), &mut cx, On::Drained(0, false)), WAIT);
        let mut behind_another = ended(unsent(searching()));
        assert_eq!(apply(&mut behind_another, &mut cx, On::Waiting), WAIT);
        assert_eq!(apply(&mut ended(searching()), &mut cx, On::Drained(0, false)), GONE);
    }
}

/// A request with a body is taken when the request is the next. The body may break off before the response in front
/// has left.
#[test]
fn a_request_that_is_broken_off_behind_another_one_gets_no_answer() {
    let rows = RefCell::default();
    let mut rig = Rig::new(&rows);
    let first = "GET /n-e HTTP/1.1\r\nHost: h\r\n\r\n";
    let second = "GET /l-et HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12";
    for what in [
        Do::Write(first.to_owned() + second),
        Do::Deliver(usize::MAX),
        Do::Eof,
        Do::Answer(0),
        Do::Stall(false),
    ] {
        rig.step(&what);
    }
    let is_broken_off =
        |exchange: &Exchange| matches!(exchange, Exchange::Asked { lookup: Lookup::BrokenOff, .. });
    assert!(rig.work.exchanges.front().is_some_and(is_broken_off), "{rig:?}");
    assert!(rig.kept.is_empty() && rig.closed.is_none(), "{rig:?}");
    rig.step(&Do::Take(1 << 40));
    assert_eq!(rig.closed, Some(Why::Gone));
    let sent = responses(&rig.out, &rig.asked);
    assert!(matches!(&sent[..], [Sent { number: Some(0), is_whole: true, .. }]));
    let unanswered = rig.session.next_unanswered(&mut rig.work).expect("for the log");
    assert_eq!(unanswered.at, START + Duration::from_secs(1));
}

/// The consumer of the body may be a gateway, which would begin the request.
#[test]
fn a_request_with_a_body_is_taken_when_it_is_the_next() {
    for first in ["GET /l-e", "GET /n-w"] {
        let rows = RefCell::default();
        let mut rig = Rig::new(&rows);
        let first = format!("{first} HTTP/1.1\r\nHost: h\r\n\r\n");
        let second = "GET /l-et HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345";
        rig.step(&Do::Write(first + second));
        rig.step(&Do::Deliver(usize::MAX));
        assert_eq!((rig.asked.len(), rig.work.incoming.is_some()), (1, false), "{rig:?}");
        for what in [Do::Take(1 << 40), Do::Answer(0), Do::Wake, Do::Wake, Do::Wake] {
            rig.step(&what);
        }
        assert_eq!(rig.asked.len(), 2, "{rig:?}");
        rig.step(&Do::Answer(0));
        let sent = responses(&rig.out, &rig.asked);
        assert!(sent.len() == 2 && sent.iter().all(|it| it.is_whole), "{rig:?}");
    }
}

/// If the handler has postponed an answer, the answer is asked for again when the request is the next, and not before.
#[test]
fn a_postponed_answer_is_found_when_the_request_is_the_next() {
    let mut cx = context();
    // The handler postpones the answer at once, or after a wait.
    for waited in [false, true] {
        let (mut session, mut work) = with(state(Phase::Open(SOURCE)), [exchange(0, FOUND)]);
        let (head, _) = exchange(1, FOUND).into_request().expect("a request");
        let found = if waited { Found::Later(None) } else { Found::Now(POSTPONED) };
        assert!(!session.defer(&mut work, 1, &head.as_head(), found));
        if waited {
            assert!(!session.handle_answer(&mut work, &cx, 1, POSTPONED));
        }
        assert_eq!(waiting(&mut work), "found postponed");
        let turn = session.next_turn(&mut work, &mut cx).expect("the first");
        assert!(turn.found && turn.request == 0);
        let turn = session.next_turn(&mut work, &mut cx).expect("the second");
        assert!(!turn.found && turn.request == 1, "it is asked for again");
        // The request is the next now, so the handler begins. If the handler postponed the answer now, the answer
        // would be asked for again.
        session.put_back(&mut work, turn, None);
        assert!(session.handle_answer(&mut work, &cx, 1, LARGE));
    }
}

/// Begins the next response, without a body.
fn respond_next((session, work): &mut State) {
    let mut cx = context();
    let turn = session.next_turn(work, &mut cx).expect("a response can begin");
    let head = ResponseHead { content_length: Some(0), ..ResponseHead::new(Status::Ok) };
    session.respond(work, &mut cx, 0, &turn.head.as_head(), &mut Response::bare(head));
}

#[test]
fn a_connection_that_has_sent_its_share_reads_in_the_next_turn() {
    let mut cx = context();
    for (bytes, next) in [(TURN_BYTES_MAX - 1, Some(Next::Read)), (TURN_BYTES_MAX, OVER)] {
        let mut state = open_idle();
        state.1.stream.push(Piece::Bytes(vec![0; 1000]));
        apply(&mut state, &mut cx, On::Drained(0, false));
        state.1.begins(cx.turn);
        let body = vec![0; usize::try_from(bytes).expect("a MiB")];
        state.1.stream.push(Piece::Bytes(body));
        assert_eq!(apply(&mut state, &mut cx, On::Drained(3, false)), next);
        if next == OVER {
            state.0.check(Some(&state.1));
        }
        cx.turn += 1;
        assert_eq!(apply(&mut state, &mut cx, On::Drained(3, false)), Some(Next::Read));
    }
}

#[test]
fn the_parts_of_a_body_count_for_the_turn_like_requests() {
    let most = usize::try_from(TURN_REQUESTS_MAX).expect("a small number");
    for (parts, next) in [(most - 1, Some(Next::Read)), (most, OVER), (2 * most, OVER)] {
        let (mut cx, mut state) = (context(), open_idle());
        apply(&mut state, &mut cx, On::Bytes(GET));
        apply(&mut state, &mut cx, On::Answer(AnswerSize::default()));
        let turn = state.0.next_turn(&mut state.1, &mut cx).expect("a response can begin");
        let mut body = Body::EMPTY;
        (0..parts).for_each(|_| body.push(Part::Piece(Piece::Static(b"x"))));
        let length = Some(parts as u64);
        let head = ResponseHead { content_length: length, ..ResponseHead::new(Status::Ok) };
        let response = &mut Response::new(head, body);
        state.0.respond(&mut state.1, &mut cx, 0, &turn.head.as_head(), response);
        assert_eq!(apply(&mut state, &mut cx, On::Drained(3, false)), next, "{parts} parts");
        cx.turn += 1;
        assert_eq!(apply(&mut state, &mut cx, On::Drained(3, false)), Some(Next::Read));
    }
}

#[test]
fn the_log_counts_from_the_request() {
    for is_from_disk in [true, false] {
        let mut cx = context();
        let mut state = open_idle();
        let (asked_at, unix) = (cx.now, cx.unix);
        apply(&mut state, &mut cx, On::Bytes(GET));
        cx.tick(cx.now + Duration::from_secs(7), || (unix + 7, 250_000_000));
        apply(&mut state, &mut cx, On::Answer(AnswerSize::default()));
        // The turn of the response comes a second later.
        cx.tick(cx.now + Duration::from_secs(1), || (unix + 8, 250_000_000));
        let turn = state.0.next_turn(&mut state.1, &mut cx).expect("a response can begin");
        let mut response = Response::bare(ResponseHead::new(Status::Ok));
        let recording = recording();
        response.terms = Terms { recording, is_from_disk, server_timing: true, ..Terms::DEFAULT };
        state.0.respond(&mut state.1, &mut cx, 0, &turn.head.as_head(), &mut response);
        let record =
            state.1.ends.first_record().and_then(|record| record.as_ref()).expect("it is logged");
        assert_eq!((record.began, record.unix_ms), (asked_at, unix * 1000 + 250));
        let disk_wait = if is_from_disk { Duration::from_secs(7) } else { Duration::ZERO };
        assert_eq!(record.disk_wait, disk_wait);
        let (mut out, unsent) = (Vec::new(), state.1.queue().unsent_ready());
        send(&mut state.1, unsent, &mut out);
        let head = String::from_utf8(out).expect("text");
        let disk = disk_wait.as_millis();
        let timing = format!("\r\nServer-Timing: disk;dur={disk}.000, find;dur=8000.000\r\n");
        assert!(head.contains(&timing), "{head}");
    }
}

#[test]
fn a_response_that_is_not_recorded_has_no_entry() {
    let (mut cx, mut state) = (context(), open_idle());
    apply(&mut state, &mut cx, On::Bytes(GET));
    apply(&mut state, &mut cx, On::Answer(AnswerSize::default()));
    let turn = state.0.next_turn(&mut state.1, &mut cx).expect("a response can begin");
    let response = &mut Response::bare(ResponseHead::new(Status::Ok));
    state.0.respond(&mut state.1, &mut cx, 0, &turn.head.as_head(), response);
    assert!(state.1.ends.first_record().expect("a response").is_none());
}

/// The bytes of a response with these parts and without a length in the head.
fn sent_for(status: Status, parts: Vec<Part>) -> String {
    let mut body = Body::EMPTY;
    parts.into_iter().for_each(|part| body.push(part));
    sent_of(Response::new(ResponseHead::new(status), body))
}

/// The response to a request with this scheme, at a site with this field for HSTS.
fn of_scheme<'a>(
    mut response: Response<'a>,
    scheme: Scheme,
    hsts: Option<&'a FieldSection<'static>>,
) -> Response<'a> {
    (response.terms.scheme, response.hsts) = (scheme, hsts);
    response
}

/// The bytes of a response.
fn sent_of(mut response: Response<'_>) -> String {
    let (mut session, mut work) = with(state(Phase::Open(SOURCE)), [exchange(0, FOUND)]);
    let turn = session.next_turn(&mut work, &mut context()).expect("a response can begin");
    session.respond(&mut work, &mut context(), 0, &turn.head.as_head(), &mut response);
    let (mut out, unsent) = (Vec::new(), work.queue().unsent_ready());
    send(&mut work, unsent, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn a_response_without_a_body_says_its_length() {
    assert!(sent_for(Status::Ok, vec![]).ends_with("\r\nContent-Length: 0\r\n\r\n"));
    for status in [Status::NoContent, Status::NotModified] {
        assert!(!sent_for(status, vec![]).contains("Content-Length"), "{status}");
    }
}

#[test]
fn rfc6797_6_1_a_response_says_once_that_its_host_is_to_be_asked_by_tls() {
    let files = FileSet::sample("text/plain", b"body");
    let rule = config::rule::header("Strict-Transport-Security: max-age=3").expect("a rule");
    let ruled = FileSet::ruled("text/plain", b"body", vec![Arc::new(rule)]);
    let whole = |files| Response::whole(Whole::new(files, None, sendfile::Policy::default()));
    let made = |own: Option<&[u8]>| {
        let mut head = ResponseHead::new(Status::NotFound);
        own.into_iter().for_each(|own| head.extra.push(b"strict-transport-security", own));
        Response::bare(head)
    };
    let mut field = FieldSection::EMPTY;
    field.push(HSTS, b"max-age=1");
    let values = |response: Response<'_>, scheme, hsts| {
        let response = of_scheme(response, scheme, hsts);
        let sent = sent_of(response);
        let lines = sent.lines().filter_map(|line| line.split_once(": "));
        let is_it = |(name, _): &(&str, _)| name.eq_ignore_ascii_case("Strict-Transport-Security");
        lines.filter(is_it).map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
    };
    for (scheme, hsts, expected) in [
        (Scheme::Https, Some(&field), [&["max-age=1"][..], &["max-age=3"], &["max-age=1"]]),
        (Scheme::Http, Some(&field), [&[], &["max-age=3"], &[]]),
        (Scheme::Https, None, [&[], &["max-age=3"], &[]]),
    ] {
        let found = [whole(&files), whole(&ruled), made(None)].map(|one| values(one, scheme, hsts));
        assert_eq!(found, expected, "{scheme:?} {hsts:?}");
        // The field of an upstream stays.
        assert_eq!(values(made(Some(b"max-age=2")), scheme, hsts), ["max-age=2"]);
    }
}

#[test]
fn a_part_without_bytes_ends_no_body() {
    let piece = |text: &'static [u8]| Part::Piece(Piece::Static(text));
    let sent = sent_for(Status::Ok, vec![piece(b"a"), piece(b""), piece(b"b")]);
    assert!(sent.ends_with("\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"), "{sent}");
}

#[test]
fn after_a_shutdown_the_last_response_says_so() {
    for before in [|| with(state(Phase::Open(SOURCE)), [exchange(0, FOUND)]), open_awaiting_body] {
        let mut state = before();
        apply(&mut state, &mut context(), On::Shutdown);
        respond_next(&mut state);
        assert!(waiting(&mut state.1).ends_with("200 close"), "{state:?}");
    }
}

/// A producer of pieces; all bytes of the pieces are the same.
#[derive(Debug)]
struct Made {
    byte: u8,
    /// The bytes of a piece, and the number of pieces that are left.
    piece: usize,
    left: u32,
    /// The result of the producer after the last piece.
    ends: Produced,
    /// True if each piece needs one of `wakes`.
    waits: bool,
    wakes: Rc<Cell<u32>>,
}

impl Default for Made {
    fn default() -> Self {
        let (ends, wakes) = (Produced::Ended, Rc::default());
        Self { byte: b'a', piece: 9, left: 0, ends, waits: false, wakes }
    }
}

impl Producer for Made {
    fn poll(&mut self, _room: u64, sink: &mut dyn BodySink) -> Produced {
        if self.left == 0 {
            return self.ends;
        }
        if self.waits {
            match self.wakes.get().checked_sub(1) {
                None => return Produced::Waiting,
                Some(left) => self.wakes.set(left),
            }
        }
        self.left -= 1;
        sink.push(Piece::Bytes(vec![self.byte; self.piece]));
        Produced::More
    }

    fn weight(&self) -> u64 {
        0
    }
}

/// One action of a peer, a disk, a handler, a clock or an operator.
#[derive(Clone, Debug)]
enum Do {
    /// The peer has more bytes to send: a request, a part of a request, or garbage.
    Write(String),
    /// This many bytes of the peer arrive.
    Deliver(usize),
    /// An answer that comes later is found.
    Answer(usize),
    /// A producer that waits may make another piece.
    Wake,
    /// The peer receives this many more bytes.
    Take(u64),
    /// The disk stops, or goes on.
    Stall(bool),
    /// The consumers of bodies have no room, or have room again.
    Hold(bool),
    /// A worker turn begins, a second after the last turn.
    Turn,
    /// Nothing happens until the deadline.
    Pause,
    Eof,
    Shutdown,
    /// The listener of the connection was removed.
    Retire,
}

/// A consumer that takes the body of a request.
#[derive(Debug)]
struct Taker {
    is_held: Rc<Cell<bool>>,
    bytes_max: u64,
}

impl Consumer for Taker {
    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn room(&self) -> u64 {
        if self.is_held.get() { 0 } else { CONSUMER_ROOM_MIN }
    }

    fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.iter().all(u8::is_ascii_alphanumeric), "no framing: {bytes:?}");
    }

    fn end(&mut self) {}

    fn handle_excess(&mut self) -> bool {
        true
    }

    fn weight(&self) -> u64 {
        0
    }
}

/// The rows of the module's table.
const ROWS: [&str; 13] = [
    "Open Idle",
    "Open Request",
    "Open Request, body",
    "Open Server, nothing",
    "Open Server, requests",
    "Open Server, stream",
    "Open Peer",
    "Open Peer, requests",
    "Last Request",
    "Last Server, requests",
    "Last Server, stream",
    "Last Peer",
    "Lingering",
];

fn row(session: &Http1, work: &Work) -> &'static str {
    let is_open = session.is_open();
    let (Phase::Open(wait) | Phase::Last(wait)) = session.phase else { return "Lingering" };
    let has_requests = !work.exchanges.is_empty();
    match (wait, is_open) {
        (Wait::Idle(_), true) => "Open Idle",
        (Wait::Idle(_), false) => "Last Idle",
        (Wait::Request(_), true) if has_requests => "Open Request, body",
        (Wait::Request(_), true) => "Open Request",
        (Wait::Request(_), false) => "Last Request",
        (Wait::Server(_), true) if has_requests => "Open Server, requests",
        (Wait::Server(_), true) if work.stream.is_drained() && work.producing.is_none() => {
            "Open Server, nothing"
        }
        (Wait::Server(_), true) => "Open Server, stream",
        (Wait::Server(_), false) if has_requests => "Last Server, requests",
        (Wait::Server(_), false) => "Last Server, stream",
        (Wait::Peer(_), true) if has_requests => "Open Peer, requests",
        (Wait::Peer(_), true) => "Open Peer",
        (Wait::Peer(_), false) => "Last Peer",
    }
}

/// A worker with one connection, and the peer at its other end.
struct Rig<'a> {
    session: Http1,
    work: Work,
    cx: Context,
    /// The bytes that the peer has not sent, and the bytes that the peer has sent and the session has not taken.
    wire: Vec<u8>,
    input: Vec<u8>,
    /// The bytes that the peer has, and the number of further bytes that the peer takes.
    out: Vec<u8>,
    room: u64,
    is_blocked: bool,
    is_stalled: bool,
    is_held: Rc<Cell<bool>>,
    is_receiving: bool,
    /// True if the listener was removed, and the number of requests that had been read before the removal.
    is_retired: bool,
    asked_before: usize,
    /// True if the connection waits for another turn.
    is_queued: bool,
    closed: Option<Why>,
    /// The path of each request so far, and whether the request is a `HEAD`.
    asked: Vec<(String, bool)>,
    /// The requests whose answer comes later, and the requests whose answer is kept.
    later: Vec<u32>,
    kept: Vec<u32>,
    /// The requests that were not the next when their answer was last found. If the path of a request has a `g`, the
    /// answer is postponed.
    ahead: Vec<u32>,
    wakes: Rc<Cell<u32>>,
    /// The requests whose responses have begun.
    begun: Vec<u32>,
    /// The number of requests that were delivered in this turn, since the connection was idle.
    delivered: u32,
    /// The status and the bytes of each response that was logged.
    logged: Vec<(u16, u64)>,
    rows: &'a RefCell<BTreeMap<&'static str, u32>>,
}

impl<'a> Rig<'a> {
    fn new(rows: &'a RefCell<BTreeMap<&'static str, u32>>) -> Self {
        let cx = context();
        Self {
            session: Http1::new(cx.now),
            work: Work::default(),
            cx,
            wire: Vec::new(),
            input: Vec::new(),
            out: Vec::new(),
            room: 0,
            is_blocked: false,
            is_stalled: false,
            is_held: Rc::default(),
            is_receiving: true,
            is_retired: false,
            asked_before: 0,
            is_queued: false,
            closed: None,
            asked: Vec::new(),
            later: Vec::new(),
            kept: Vec::new(),
            ahead: Vec::new(),
            wakes: Rc::default(),
            begun: Vec::new(),
            delivered: 0,
            logged: Vec::new(),
            rows,
        }
    }

    fn step(&mut self, what: &Do) {
        match what {
            Do::Write(text) => self.wire.extend_from_slice(text.as_bytes()),
            Do::Deliver(bytes) if self.is_receiving && !self.session.ended => {
                let count = (*bytes).min(self.wire.len());
                self.input.extend(self.wire.drain(..count));
                self.read();
                self.proceed();
            }
            Do::Deliver(_) => {}
            Do::Answer(which) if !self.later.is_empty() => {
                let request = self.later.remove(which % self.later.len());
                let size = self.size(request);
                if self.session.handle_answer(&mut self.work, &self.cx, request, size) {
                    self.kept.push(request);
                }
                self.proceed();
            }
            Do::Answer(_) => {}
            Do::Wake => {
                self.wakes.set(self.wakes.get() + 1);
                self.proceed();
            }
            Do::Take(bytes) => {
                (self.room, self.is_blocked) = (*bytes, false);
                self.proceed();
            }
            Do::Stall(on) => {
                self.is_stalled = *on;
                self.proceed();
            }
            Do::Hold(on) => {
                self.is_held.set(*on);
                self.proceed();
            }
            Do::Turn => self.turn(self.cx.now + Duration::from_secs(1)),
            Do::Pause => {
                let Some(at) = self.session.deadline(&self.cx) else { return };
                self.turn(at);
                if self.closed.is_some() || self.session.deadline(&self.cx) != Some(at) {
                    return;
                }
                let acknowledged = self.acknowledged();
                let work = has_work(&self.work, self).then_some(());
                let work = work.map(|()| &mut self.work);
                let next = self.session.handle_deadline(work, &mut self.cx, acknowledged, b"");
                self.follow(next);
            }
            Do::Eof => {
                let work = has_work(&self.work, self).then_some(());
                let next = self.session.handle_eof(work.map(|()| &mut self.work));
                self.follow(next);
            }
            Do::Shutdown => {
                let work = has_work(&self.work, self).then_some(());
                let next = self.session.handle_shutdown(work.map(|()| &mut self.work));
                self.follow(next);
            }
            Do::Retire => {
                self.is_retired = true;
                self.asked_before = self.asked.len();
                let work = has_work(&self.work, self).then_some(());
                let next = self.session.handle_retirement(work.map(|()| &mut self.work));
                self.follow(next);
            }
        }
    }

    fn turn(&mut self, at: Time) {
        self.cx.tick(self.cx.now.max(at), || (1_000_000_000, 0));
        self.delivered = 0;
        if core::mem::take(&mut self.is_queued) {
            self.proceed();
        }
    }

    fn follow(&mut self, next: Next) {
        match next {
            Next::Wait => {}
            Next::Close(why) => self.close(why),
            Next::TurnOver => self.is_queued = true,
            Next::Pump | Next::Read | Next::ShutDown => self.proceed(),
        }
        if self.closed.is_none() {
            self.check();
        }
    }

    /// Checks that the state is in the table, and counts the state.
    fn check(&self) {
        self.session.check(Some(&self.work));
        *self.rows.borrow_mut().entry(row(&self.session, &self.work)).or_default() += 1;
    }

    /// Acts for the connection until it waits, as the worker does.
    fn proceed(&mut self) {
        let mut stuck = false;
        for round in 0.. {
            assert!(round < 1000, "it waits for nothing: {self:?}");
            self.begin_responses();
            let was_blocked = self.is_blocked;
            let progress = self.pump();
            while let Some(left) = self.session.next_left(&mut self.work) {
                self.logged.push((left.record.status.code(), left.bytes));
            }
            let blocked = self.is_blocked;
            let is_new = progress == Progress::Blocked && !was_blocked;
            let acknowledged = if is_new { self.acknowledged() } else { 0 };
            let moved = Moved { progress, blocked, acknowledged, unread: self.input.len(), stuck };
            match self.session.handle_progress(&mut self.work, &mut self.cx, &moved) {
                Next::Pump => {}
                Next::Read => {
                    let before = self.input.len();
                    self.read();
                    stuck = self.input.len() == before;
                }
                Next::Wait | Next::ShutDown => break,
                Next::TurnOver => {
                    self.is_queued = true;
                    break;
                }
                Next::Close(why) => return self.close(why),
            }
        }
        let unread = self.input.len();
        self.is_receiving = self.session.wants_bytes(&self.work, &self.cx, unread);
        self.check();
        self.check_wait();
        if !has_work(&self.work, self) {
            self.session.check(None);
            self.work.restart();
            self.kept.clear();
            self.delivered = 0;
        }
    }

    fn acknowledged(&self) -> i64 {
        i64::try_from(self.out.len()).expect("memory")
    }

    /// Checks that the connection waits for an event that can happen.
    fn check_wait(&self) {
        let deadline = self.session.deadline(&self.cx);
        let (Phase::Open(wait) | Phase::Last(wait)) = self.session.phase else {
            return assert!(deadline.is_some());
        };
        match wait {
            Wait::Idle(_) => assert!(self.input.is_empty() && deadline.is_some()),
            Wait::Request(_) => assert!(deadline.is_some()),
            Wait::Peer(_) => assert!((self.is_blocked || self.is_queued) && deadline.is_some()),
            Wait::Server(_) => {
                let reads = self.is_stalled && !self.work.stream.is_drained();
                let makes = self.work.producing.is_some() && self.wakes.get() == 0;
                let finds = !self.later.is_empty();
                let takes = self.work.incoming.is_some() && self.is_held.get();
                assert!(
                    reads || makes || finds || takes || self.is_queued,
                    "for nothing: {self:?}"
                );
                assert_eq!(deadline.is_some(), self.session.ended);
            }
        }
    }

    fn pump(&mut self) -> Progress {
        if self.is_blocked {
            return Progress::Blocked;
        }
        if self.is_stalled && self.work.unsent() > 0 {
            return Progress::Waiting;
        }
        let bytes = self.work.queue().unsent_ready().min(self.room).min(100_000);
        send(&mut self.work, bytes, &mut self.out);
        self.room -= bytes;
        match self.work.queue().state() {
            outq::State::Drained => Progress::Drained,
            outq::State::Failed => Progress::Failed(Failure::Unfinished),
            _ if self.room > 0 => Progress::More,
            _ => {
                self.is_blocked = true;
                Progress::Blocked
            }
        }
    }

    fn read(&mut self) {
        let mut session = core::mem::replace(&mut self.session, Http1::new(START));
        let mut work = core::mem::take(&mut self.work);
        let input = core::mem::take(&mut self.input);
        let taken = session.handle_bytes(&mut work, self, &input);
        self.input = input[taken..].to_vec();
        (self.session, self.work) = (session, work);
    }

    fn begin_responses(&mut self) {
        while let Some(turn) = self.session.next_turn(&mut self.work, &mut self.cx) {
            let request = turn.request;
            self.ahead.retain(|ahead| *ahead != request);
            if turn.found {
                let place = self.kept.iter().position(|kept| *kept == request);
                self.kept.remove(place.expect("the answer is kept"));
            } else if self.find(request).is_none() {
                self.session.put_back(&mut self.work, turn, None);
                continue;
            }
            let (head, mut response) = (turn.head.as_head(), self.response(request));
            self.session.respond(&mut self.work, &mut self.cx, request, &head, &mut response);
        }
    }

    /// The answer to a request, if the path of the request says that the answer comes now; otherwise `None`.
    fn find(&mut self, request: u32) -> Option<AnswerSize> {
        if self.asked[request as usize].0.starts_with("/n") {
            return Some(self.size(request));
        }
        self.later.push(request);
        None
    }

    fn size(&self, request: u32) -> AnswerSize {
        match self.asked[request as usize].0.as_bytes()[2] {
            b'f' => FILES,
            b'h' => LARGE,
            b'g' if self.ahead.contains(&request) => POSTPONED,
            b'g' => UNIQUE,
            _ => AnswerSize::default(),
        }
    }

    /// The response that the path of the request describes. The entity tag of the response has the number of the
    /// request.
    fn response(&mut self, request: u32) -> Response<'static> {
        assert_eq!(request as usize, self.begun.len(), "in the order of the requests");
        self.begun.push(request);
        let kind = self.asked[request as usize].0.as_bytes()[3];
        let byte = byte_of(request);
        let memory = |n| Part::Piece(Piece::Bytes(vec![byte; n]));
        let wakes = Rc::clone(&self.wakes);
        let made = |piece, left, ends, waits| {
            let wakes = Rc::clone(&wakes);
            Part::Producer(Box::new(Made { byte, piece, left, ends, waits, wakes }))
        };
        let (length, parts) = match kind {
            b'e' => (Some(0), vec![]),
            b'b' => (Some(300), vec![memory(300)]),
            b'c' => (None, vec![memory(10), memory(20)]),
            b'p' => (None, vec![memory(5), made(40_000, 8, Produced::Ended, false), memory(7)]),
            b'w' => (None, vec![made(100, 3, Produced::Ended, true)]),
            b'x' => (None, vec![made(100, 2, Produced::Failed, false)]),
            b'l' => (Some(210), vec![made(100, 2, Produced::Ended, true), memory(10)]),
            b's' => (Some(300), vec![made(100, 2, Produced::Ended, false)]),
            kind => panic!("what is {kind}?"),
        };
        let mut body = Body::EMPTY;
        parts.into_iter().for_each(|part| body.push(part));
        let head_of = ResponseHead {
            content_length: length,
            etag: Some(format!("\"{request}\"").into_bytes().into()),
            ..ResponseHead::new(Status::Ok)
        };
        let mut response = Response::new(head_of, body);
        response.terms.recording = recording();
        response
    }

    fn close(&mut self, why: Why) {
        while let Some(cut) = self.session.next_cut(&mut self.work, self.cx.now) {
            self.logged.push((cut.record.status.code(), cut.bytes));
        }
        self.closed = Some(why);
    }

    /// Ends all waits that can end, until the connection closes or waits for the peer's next bytes.
    fn settle(&mut self) {
        for _ in 0..1000 {
            self.wakes.set(1000);
            self.is_held.set(false);
            for what in [Do::Stall(false), Do::Take(1 << 40), Do::Turn, Do::Answer(0)] {
                if self.closed.is_some() {
                    return;
                }
                self.step(&what);
            }
            if self.closed.is_some() {
                return;
            }
            if !self.is_queued && self.later.is_empty() {
                if self.wire.is_empty() || self.session.ended {
                    break;
                }
                assert!(self.is_receiving);
                self.step(&Do::Deliver(usize::MAX));
            }
        }
        match self.session.phase {
            Phase::Open(Wait::Idle(_)) => assert_eq!(self.begun.len(), self.asked.len()),
            Phase::Open(Wait::Request(_)) | Phase::Lingering { .. } => {}
            _ => panic!("it waits for what has happened: {self:?}"),
        }
        let sent = responses(&self.out, &self.asked);
        assert!(sent.iter().all(|response| response.is_whole), "{self:?}");
        assert_eq!(sent.len() as u64, self.cx.stats.responses.get());
        assert_eq!(sent.len(), self.logged.len());
    }

    /// Checks at the end of the connection that the peer's bytes and the log agree with the responses that were begun.
    fn verify(&self) {
        let sent = responses(&self.out, &self.asked);
        let refused = self.cx.stats.responses.get() - self.begun.len() as u64;
        assert!(refused <= 1);
        assert_eq!(self.logged.len() as u64, self.cx.stats.responses.get(), "each is logged once");
        for (place, &(status, bytes)) in self.logged.iter().enumerate() {
            let Some(response) = sent.get(place) else {
                assert_eq!(bytes, 0, "not even the head was sent");
                continue;
            };
            assert_eq!((status, bytes), (response.status, response.bytes));
            let number = self.begun.get(place).copied();
            assert_eq!(number, response.number, "only the last is a refusal");
            assert!(place + 1 == sent.len() || (!response.closes && response.is_whole));
        }
        assert!(sent.len() <= self.logged.len());
    }
}

impl Requests for Rig<'_> {
    fn cx(&mut self) -> &mut Context {
        &mut self.cx
    }

    fn consumer(&mut self, _request: u32, head: &Head<'_>) -> Reception {
        let Target::Origin { path, .. } = head.target else { panic!("a path") };
        let is_held = Rc::clone(&self.is_held);
        let bytes_max = if path.ends_with(b"mt") { 4 } else { u64::MAX };
        let consumer = path.ends_with(b"t").then(|| Box::new(Taker { is_held, bytes_max }) as _);
        Reception { consumer, standing: Standing::Counted }
    }

    fn handle_request<S: Defer>(
        &mut self,
        session: &mut S,
        work: &mut S::Work,
        request: u32,
        head: &Head<'_>,
        is_next: bool,
        _standing: Standing,
    ) {
        self.delivered += 1;
        assert!(!self.is_retired || self.asked.len() <= self.asked_before, "one more at most");
        assert!(self.delivered <= TURN_REQUESTS_MAX);
        assert_eq!(request as usize, self.asked.len());
        let Target::Origin { path, .. } = head.target else { panic!("a path") };
        let path = String::from_utf8_lossy(path).into_owned();
        let is_taken = head.framing != Framing::None && path.ends_with('t');
        assert!(is_next || !is_taken, "a body is for a consumer whose request is the next");
        self.asked.push((path, head.method == Method::Head));
        if !is_next {
            self.ahead.push(request);
        }
        match self.find(request) {
            Some(_) if is_next => {
                let mut response = self.response(request);
                session.respond(work, &mut self.cx, request, head, &mut response);
            }
            found => {
                let found = found.map_or(Found::Later(None), Found::Now);
                if session.defer(work, request, head, found) {
                    self.kept.push(request);
                }
            }
        }
    }
}

impl core::fmt::Debug for Rig<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let out = String::from_utf8_lossy(&self.out);
        write!(f, "{:?} {:?} later {:?} out {out:.2000}", self.session, self.work, self.later)
    }
}

fn has_work(work: &Work, rig: &Rig<'_>) -> bool {
    !work.is_idle() || !rig.input.is_empty() || rig.is_queued
}

/// The byte of which the content of the response to a request consists.
const fn byte_of(request: u32) -> u8 {
    b'a' + (request % 26) as u8
}

/// A response as the peer received it: whole, or only its front.
struct Sent {
    number: Option<u32>,
    status: u16,
    /// The number of bytes after the head.
    bytes: u64,
    is_whole: bool,
    closes: bool,
}

fn responses(mut out: &[u8], asked: &[(String, bool)]) -> Vec<Sent> {
    let mut sent = Vec::new();
    while let Some(end) = out.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = core::str::from_utf8(&out[..end]).expect("a head");
        out = &out[end + 4..];
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let status: u16 = head.strip_prefix("HTTP/1.1 ").expect("a head")[..3].parse().unwrap();
        if status == 100 {
            continue;
        }
        let number: Option<u32> = value("ETag: ").map(|tag| tag.trim_matches('"').parse().unwrap());
        let is_head = number.is_some_and(|number| asked[number as usize].1);
        let closes = value("Connection: close").is_some();
        let (length, is_whole) = if is_head {
            (0, true)
        } else if let Some(length) = value("Content-Length: ") {
            let length: usize = length.parse().unwrap();
            (length.min(out.len()), length <= out.len())
        } else if value("Transfer-Encoding: chunked").is_some() {
            let end = out.windows(7).position(|window| window == b"\r\n0\r\n\r\n");
            end.map_or((out.len(), false), |end| (end + 7, true))
        } else {
            assert!(closes, "a body without an end: {head}");
            (out.len(), true)
        };
        let (body, rest) = out.split_at(length);
        if let Some(number) = number {
            let is_framing = |byte: &u8| byte.is_ascii_hexdigit() || b"\r\n".contains(byte);
            let is_own = |byte: &u8| *byte == byte_of(number) || is_framing(byte);
            assert!(body.iter().all(is_own), "the body of another response");
        }
        sent.push(Sent { number, status, bytes: length as u64, is_whole, closes });
        out = rest;
    }
    sent
}

/// A request whose path describes the response: found at once or later; small, with files, or huge; with a body in
/// this form.
fn request() -> impl Strategy<Value = String> {
    let path = ("[nl][-fgh]", prop_oneof![6 => "[ebc]", 6 => "[pwl]", 1 => "[xs]"])
        .prop_map(|(find, body)| format!("/{find}{body}"));
    let form = prop_oneof![
        8 => Just(("GET", "1.1", "")),
        1 => Just(("GET", "1.1", "Connection: close\r\n")),
        1 => Just(("GET", "1.0", "")),
        2 => Just(("GET", "1.0", "Connection: keep-alive\r\n")),
        2 => Just(("HEAD", "1.1", "")),
        2 => Just(("POST", "1.1", "Content-Length: 5\r\n\r\n12345")),
        2 => Just(("GET", "1.1", "Content-Length: 5\r\n\r\n12345")),
        1 => Just(("GET", "1.0", "Connection: keep-alive\r\nContent-Length: 5\r\n\r\n12345")),
        1 => Just(("POST", "1.1", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n12345")),
        1 => Just(("POST", "1.1", "Content-Length: 9999999\r\n")),
        2 => Just(("POST", "1.1", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")),
        1 => Just(("POST", "1.1", "Transfer-Encoding: chunked\r\n\r\n3\r\nabcdefg")),
        2 => Just(("POST", "1.1",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")),
        2 => Just(("POST", "1.1",
            "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n")),
    ];
    let taken = prop_oneof![2 => Just(""), 2 => Just("t"), 1 => Just("mt")];
    (form, path, taken).prop_map(|((method, version, rest), path, taken)| {
        // A consumer would take the bytes after the body, too.
        let taken = if rest.contains("9999999") { "" } else { taken };
        let end = if rest.contains("\r\n\r\n") { "" } else { "\r\n" };
        format!("{method} {path}{taken} HTTP/{version}\r\nHost: h\r\n{rest}{end}")
    })
}

fn events() -> impl Strategy<Value = Vec<Do>> {
    let write = prop_oneof![
        20 => request(),
        2 => "[nl]-[ebw]".prop_map(|path| format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n").repeat(70)),
        1 => Just("GET / HT\0\r\n\r\n".to_owned()),
    ];
    let event = prop_oneof![
        12 => write.prop_map(Do::Write),
        12 => prop_oneof![1usize..200, Just(usize::MAX)].prop_map(Do::Deliver),
        8 => (0usize..100).prop_map(Do::Answer),
        3 => Just(Do::Wake),
        8 => prop_oneof![0u64..1000, Just(1 << 40)].prop_map(Do::Take),
        3 => proptest::bool::ANY.prop_map(Do::Stall),
        3 => proptest::bool::ANY.prop_map(Do::Hold),
        6 => Just(Do::Turn),
        1 => Just(Do::Pause),
        1 => prop_oneof![Just(Do::Eof), Just(Do::Shutdown), Just(Do::Retire)],
    ];
    let between =
        prop_oneof![Just(Do::Pause), Just(Do::Shutdown), Just(Do::Eof), Just(Do::Take(9))];
    // An action happens while the session waits for the rest of a body.
    let body = ("/n-[ebcw]t?", between).prop_map(|(path, between)| {
        let begin =
            format!("POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        let rest = Do::Write("3\r\nabc\r\n0\r\n\r\n".to_owned());
        let (all, take) = (Do::Deliver(usize::MAX), Do::Take(1 << 40));
        vec![take, Do::Write(begin), all.clone(), between, rest, all]
    });
    let group = prop_oneof![40 => event.prop_map(|event| vec![event]), 1 => body];
    proptest::collection::vec(group, 1..60).prop_map(|groups| groups.concat())
}

/// The first response ends with the connection, so the body of the next request has no consumer.
#[test]
fn what_a_dropped_request_sends_is_taken_by_nobody() {
    let rows = RefCell::default();
    let mut rig = Rig::new(&rows);
    let first = "GET /l-c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let second = "GET /n-et HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12";
    for what in [
        Do::Write(first.to_owned() + second),
        Do::Deliver(usize::MAX),
        Do::Take(1 << 40),
        Do::Answer(0),
    ] {
        rig.step(&what);
    }
    assert!(matches!(rig.session.phase, Phase::Lingering { .. }), "{rig:?}");
    assert!(rig.work.incoming.is_none() && rig.closed.is_none(), "{rig:?}");
}

/// A client that waits for an invitation gets an invitation if its body is wanted. Otherwise the client gets a
/// response that ends the connection, because the server cannot know whether the body follows.
#[test]
fn a_body_that_is_wanted_is_invited_once() {
    let ask = |path: &str| {
        let expects = "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
        Do::Write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{expects}"))
    };
    let other = || Do::Write("GET /l-e HTTP/1.1\r\nHost: h\r\n\r\n".to_owned());
    let body = || Do::Write("3\r\nabc\r\n0\r\n\r\n".to_owned());
    let (come, answer) = (|| Do::Deliver(usize::MAX), Do::Answer);
    for (name, events, invited, closes) in [
        ("taken", vec![ask("/l-et"), come(), body()], 1, false),
        ("taken, begun", vec![ask("/n-wt"), come(), body()], 1, false),
        ("taken, behind", vec![other(), ask("/l-et"), come(), answer(0), body()], 1, false),
        ("begun behind", vec![other(), ask("/l-wt"), come(), answer(1), body()], 1, false),
        ("taken at once", vec![ask("/l-et"), body(), come()], 0, false),
        ("at once, behind", vec![other(), ask("/l-et"), body(), come(), answer(1)], 0, false),
        ("found", vec![ask("/n-et"), come()], 0, true),
        ("found behind", vec![other(), ask("/l-et"), come(), answer(0)], 1, false),
        ("skipped", vec![ask("/n-e"), come()], 0, true),
        ("skipped later", vec![ask("/l-e"), come()], 0, true),
        ("skipped at once", vec![ask("/n-e"), body(), come()], 0, true),
    ] {
        let rows = RefCell::default();
        let mut rig = Rig::new(&rows);
        let rest = [answer(0), come(), Do::Wake, Do::Wake, Do::Wake];
        [Do::Take(1 << 40)].iter().chain(&events).chain(&rest).for_each(|what| rig.step(what));
        let count = rig.out.windows(12).filter(|part| part == b"HTTP/1.1 100").count();
        assert_eq!(count, invited, "{name}");
        let sent = responses(&rig.out, &rig.asked);
        assert!(
            sent.len() == rig.asked.len() && sent.iter().all(|it| it.is_whole),
            "{name} {rig:?}"
        );
        assert_eq!(sent.last().map(|it| it.closes), Some(closes), "{name}");
        let is_lingering = matches!(rig.session.phase, Phase::Lingering { .. });
        assert_eq!(is_lingering, closes, "{name}");
    }
}

/// The handler decides whether the response can go on without the rest of the body. If the response cannot go on, the
/// client is at fault.
#[test]
fn a_response_that_has_begun_ends_with_its_handler_when_its_request_breaks_off() {
    let head = "POST /n-wt HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let (bad, eof) = (Do::Write("no length\r\n".to_owned()), Do::Eof);
    for (how, ends) in [
        (&bad, Produced::Ended),
        (&bad, Produced::Failed),
        (&eof, Produced::Ended),
        (&eof, Produced::Failed),
    ] {
        let rows = RefCell::default();
        let mut rig = Rig::new(&rows);
        let (all, take) = (Do::Deliver(usize::MAX), Do::Take(1 << 40));
        for what in [&take, &Do::Write(head.to_owned()), &all, &Do::Wake, how, &all] {
            rig.step(what);
        }
        assert!(rig.work.incoming.is_none() && rig.closed.is_none(), "{rig:?}");
        let producing = rig.work.producing.as_mut().expect("it waits");
        assert_eq!(producing.failure, Failure::Gone);
        producing.producer = Box::new(Made { ends, ..Made::default() });
        rig.step(&Do::Turn);
        rig.step(&Do::Wake);
        let sent = responses(&rig.out, &rig.asked);
        let is_whole = ends == Produced::Ended;
        assert!(matches!(&sent[..], [Sent { number: Some(0), .. }]), "{how:?} {ends:?}");
        assert_eq!(sent[0].is_whole, is_whole, "{how:?} {ends:?}");
        let closed = match (how, ends) {
            // The rig knows no other failure.
            (_, Produced::Failed) => Some(Why::Failed(Failure::Unfinished)),
            (Do::Eof, _) => Some(Why::Done),
            _ => None,
        };
        assert_eq!(rig.closed, closed, "{how:?} {ends:?}");
        assert_eq!(rig.logged, [(200, sent[0].bytes)], "{how:?} {ends:?}");
    }
}

/// The handler answers the request, as the last request of the connection. The rest of the body and all later bytes
/// are dropped.
#[test]
fn a_request_whose_body_grows_too_long_has_its_answer() {
    let rows = RefCell::default();
    let mut rig = Rig::new(&rows);
    let head = "POST /l-bmt HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    for what in [
        Do::Take(1 << 40),
        Do::Write(format!("{head}3\r\nabc\r\n")),
        Do::Deliver(usize::MAX),
        Do::Write("2\r\nde\r\n0\r\n\r\nGET /n-e HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        Do::Deliver(usize::MAX),
    ] {
        rig.step(&what);
    }
    assert_eq!((row(&rig.session, &rig.work), rig.later.len()), ("Last Server, requests", 1));
    assert!(rig.work.incoming.is_none() && rig.input.is_empty(), "{rig:?}");
    rig.step(&Do::Answer(0));
    let sent = responses(&rig.out, &rig.asked);
    assert!(matches!(&sent[..], [Sent { number: Some(0), closes: true, is_whole: true, .. }]));
    assert!(matches!(rig.session.phase, Phase::Lingering { .. }), "{rig:?}");
    assert_eq!(rig.out.windows(12).filter(|part| part == b"HTTP/1.1 100").count(), 1);
}

#[test]
fn any_order_of_events() {
    let rows = RefCell::default();
    let config = Config { cases: 3000, source_file: Some(file!()), ..Config::default() };
    let run = TestRunner::new(config).run(&events(), |events| {
        let mut rig = Rig::new(&rows);
        for what in &events {
            rig.step(what);
            if rig.closed.is_some() {
                break;
            }
        }
        rig.settle();
        if rig.closed.is_none() {
            rig.close(Why::Done);
        }
        rig.verify();
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    let rows = rows.into_inner();
    for name in ROWS {
        assert!(rows.get(name).is_some_and(|count| *count > 0), "{name} in {rows:?}");
    }
    assert_eq!(rows.len(), ROWS.len(), "{rows:?}");
}

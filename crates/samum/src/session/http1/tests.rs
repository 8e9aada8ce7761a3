//! Each state of the module's table with one event at a time.

use core::cell::Cell;
use core::fmt::Write as _;
use std::rc::Rc;

use super::*;
use crate::config::Tuning;

/// The time at which every state below began to wait. The events come a second later.
const START: Time = Time::from_nanos(1_000_000_000_000);

fn context() -> Context {
    let mut cx = Context::new(Rc::new(Tuning::default()), true);
    cx.tick(START + Duration::from_secs(1), 1_000_000_000);
    cx
}

/// A session and its work, as a test puts them together.
type State = (Http1, Work);

fn state(phase: Phase) -> State {
    let mut session = Http1 { phase, ..Http1::new(START) };
    if !session.is_open() {
        session.reader.close();
    }
    (session, Work::default())
}

fn exchange(request: u32, lookup: Lookup) -> Exchange {
    let head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let Ok(http1::Parsed::Complete { request: parsed, .. }) =
        http1::parse(head.as_bytes(), &Limits::DEFAULT)
    else {
        panic!("a whole request")
    };
    let asked = Asked::default();
    Exchange::Asked { request, head: parsed.head.to_owned(), asked, lookup }
}

const FOUND: Lookup = Lookup::Found(AnswerSize { shared: 0, holds_files: false });
const TAKING: Taking = Taking { since: START, acknowledged: 0 };
const SOURCE: Wait = Wait::Source(START, None);

fn with(mut state: State, exchanges: impl IntoIterator<Item = Exchange>) -> State {
    state.1.exchanges.extend(exchanges);
    state
}

/// The same with bytes that have not been sent.
fn unsent((session, mut work): State) -> State {
    work.stream.push(Piece::Static(b"unsent"));
    (session, work)
}

/// The same with a producer at the end of the stream.
fn producing((session, mut work): State, producer: Made) -> State {
    let (parts, framing) = (crate::handler::Body::EMPTY.into_iter(), BodyFraming::Chunked);
    let body = Sending { parts, framing, record: None, body_at: 0 };
    work.producing = Some(Producing { producer: Box::new(producer), body });
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
    let (mut session, work) = open_receiving();
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    session.reader.handle_input(head, &Limits::DEFAULT);
    (session, work)
}
/// The response to a request waits for the end of its body.
fn open_awaiting_body() -> State {
    let (mut session, mut work) = open_receiving();
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    session.reader.handle_input(head, &Limits::DEFAULT);
    let mut exchange = exchange(0, FOUND);
    if let Exchange::Asked { asked, .. } = &mut exchange {
        asked.awaits_body = true;
    }
    work.exchanges.push_back(exchange);
    (session, work)
}
fn open_waiting_for_answer() -> State {
    with(state(Phase::Open(SOURCE)), [exchange(0, Lookup::Pending)])
}
fn open_reading() -> State {
    unsent(state(Phase::Open(SOURCE)))
}
fn open_waiting_for_peer() -> State {
    unsent(state(Phase::Open(Wait::Peer(TAKING))))
}
/// A disk is read; the peer was waited for before.
fn open_reading_again() -> State {
    unsent(state(Phase::Open(Wait::Source(START, Some(TAKING)))))
}
fn last_waiting_for_answer() -> State {
    with(state(Phase::Last(SOURCE)), [exchange(0, Lookup::Pending)])
}
fn last_waiting_for_peer() -> State {
    unsent(state(Phase::Last(Wait::Peer(TAKING))))
}
fn refused() -> Exchange {
    Exchange::Refused(Reject { status: Status::BadRequest, reason: "it is garbage" })
}
/// A refusal waits for the answer to the request in front of it.
fn last_with_refused() -> State {
    with(last_waiting_for_answer(), [refused()])
}
fn lingering() -> State {
    state(Phase::Lingering(START))
}

/// One event.
#[derive(Clone, Copy, Debug)]
enum On {
    Bytes(&'static str),
    Eof,
    Answer(AnswerSize),
    /// All was sent; so many bytes wait to be taken, and whether the session was given them.
    Drained(usize, bool),
    Blocked,
    Waiting,
    More,
    Failed,
    /// The deadline, and bytes acknowledged by then.
    Deadline(i64),
    Shutdown,
}

/// Bytes are sent, as a transport does it.
fn send(work: &mut Work, bytes: u64, out: &mut Vec<u8>) {
    let queue = work.queue();
    let mut left = bytes;
    for chunk in queue.next_ready() {
        let length = chunk.len().min(left);
        let start = chunk.range.start as usize;
        out.extend_from_slice(&chunk.payload.bytes()[start..start + length as usize]);
        left -= length;
        if left == 0 {
            break;
        }
    }
    queue.mark_sent(bytes);
    queue.mark_released(bytes);
}

/// Applies an event; bytes and answers leave it open what comes next.
fn apply((session, work): &mut State, cx: &mut Context, on: On) -> Option<Next> {
    let mut progress = |work: &mut Work, progress, unread, stuck| {
        let blocked = progress == Progress::Blocked;
        let moved = Moved { progress, blocked, acknowledged: 7, unread, stuck };
        session.handle_progress(work, cx, &moved)
    };
    Some(match on {
        On::Bytes(bytes) => {
            let (taken, step) = session.handle_bytes(work, cx, bytes.as_bytes());
            assert!(taken <= bytes.len());
            if let Some(Step::Request { request, head, now }) = step {
                let is_next = work.exchanges.is_empty() && work.producing.is_none();
                assert_eq!(now, is_next && !work.asked.awaits_body);
                session.defer(work, request, &head, None);
            }
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
            cx.tick(session.deadline(cx).unwrap_or(START + Duration::from_secs(100)), 0);
            session.handle_deadline(Some(work), cx, acknowledged)
        }
        On::Shutdown => session.handle_shutdown(Some(work)),
    })
}

/// The phase and the wait, with the seconds since [`START`].
fn place(session: &Http1) -> String {
    let at = |time: Time| time.since(START).as_secs();
    let of = |wait| match wait {
        Wait::Idle(since) => format!("Idle {}", at(since)),
        Wait::Request(since) => format!("Request {}", at(since)),
        Wait::Source(since, None) => format!("Source {}", at(since)),
        Wait::Source(since, Some(taking)) => {
            format!("Source {} Peer {}", at(since), at(taking.since))
        }
        Wait::Peer(taking) => format!("Peer {}", at(taking.since)),
    };
    match session.phase {
        Phase::Open(wait) => format!("Open {}", of(wait)),
        Phase::Last(wait) => format!("Last {}", of(wait)),
        Phase::Lingering(since) => format!("Lingering {}", at(since)),
    }
}

/// The requests that wait, the producer, and the statuses of the responses that have not been sent.
fn waiting(work: &mut Work) -> String {
    let mut text = String::new();
    for exchange in &work.exchanges {
        text.push_str(match exchange {
            Exchange::Asked { asked, .. } if asked.awaits_body => "body ",
            Exchange::Asked { lookup: Lookup::Pending, .. } => "pending ",
            Exchange::Asked { lookup: Lookup::Found(_), .. } => "found ",
            Exchange::Asked { lookup: Lookup::Postponed, .. } => "postponed ",
            Exchange::Refused(_) => "refused ",
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
const TIMED_OUT: Option<Next> = Some(Next::Close(Why::TimedOut));
const SHORT: Failure = Failure::Truncated;
const LARGE: AnswerSize = AnswerSize { shared: 1 << 30, holds_files: false };
const FILES: AnswerSize = AnswerSize { shared: 0, holds_files: true };

/// Checks what each event comes to in a state: what is done next, the state behind it, and what waits.
fn run(name: &str, before: impl Fn() -> State, table: &[(On, Option<Next>, &str, &str)]) {
    for (on, next, after, rest) in table {
        let (mut state, mut cx) = (before(), context());
        state.0.check(Some(&state.1));
        let got = apply(&mut state, &mut cx, *on);
        if matches!(got, WAIT | OVER | Some(Next::ShutDown)) {
            state.0.check(Some(&state.1));
        }
        let found = (got, place(&state.0), waiting(&mut state.1));
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
            (On::Bytes(GET), None, "Open Idle 0", "pending"),
            (On::Bytes(GET_LAST), None, "Last Idle 0", "pending"),
            (On::Bytes("GET / HT"), None, "Open Idle 0", ""),
            (On::Bytes("\0\0\0"), None, "Last Idle 0", "400 close"),
            (On::Eof, PUMP, "Open Idle 0", ""),
            (On::Drained(0, false), WAIT, "Open Idle 1", ""),
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
            (On::Shutdown, DONE, "Last Request 0", ""),
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
    assert_eq!(end, DONE, "the rest of the body will never come");
    (session, work) = open_receiving();
    assert_eq!(session.handle_eof(None), Next::Close(Why::Done));
    assert!(work.is_idle());
}

#[test]
fn open_and_waiting_for_a_source() {
    run(
        "waiting for an answer",
        open_waiting_for_answer,
        &[
            (On::Bytes(GET), None, "Open Source 0", "pending pending"),
            (On::Bytes("\0\0\0"), None, "Last Source 0", "pending refused"),
            (On::Answer(LARGE), None, "Open Source 0", "found"),
            (On::Eof, PUMP, "Open Source 0", "pending"),
            (On::Drained(0, false), WAIT, "Open Source 0", "pending"),
            (On::Deadline(0), WAIT, "Open Source 0", "pending"),
            (On::Shutdown, WAIT, "Last Source 0", "pending"),
        ],
    );
    run(
        "an answer behind another",
        || {
            let others = [exchange(1, Lookup::Pending), exchange(0, Lookup::Pending)];
            with(state(Phase::Open(SOURCE)), others)
        },
        &[
            (On::Answer(AnswerSize::default()), None, "Open Source 0", "pending found"),
            (On::Answer(LARGE), None, "Open Source 0", "pending postponed"),
            (On::Answer(FILES), None, "Open Source 0", "pending postponed"),
        ],
    );
    for lookup in [FOUND, Lookup::Postponed] {
        let (mut session, mut work) = with(open_waiting_for_answer(), [exchange(1, lookup)]);
        work.exchanges.pop_front();
        let mut cx = context();
        let turn = session.next_turn(&mut work, &mut cx).expect("it can begin");
        assert_eq!((turn.request, turn.found), (1, lookup == FOUND));
        session.put_back(&mut work, turn);
        assert_eq!(waiting(&mut work), "pending");
    }
    run(
        "reading",
        open_reading,
        &[
            (On::Bytes(GET), None, "Open Source 0", "pending unsent"),
            (On::Drained(0, false), WAIT, "Open Idle 1", ""),
            (On::Waiting, WAIT, "Open Source 0", "unsent"),
            (On::Blocked, WAIT, "Open Peer 1", "unsent"),
            (On::More, OVER, "Open Source 0", "unsent"),
            (On::Shutdown, WAIT, "Last Source 0", "unsent"),
        ],
    );
    run(
        "reading again",
        open_reading_again,
        &[
            // The clock of the peer stood still for a second.
            (On::Blocked, WAIT, "Open Peer 1", "unsent"),
            (On::Waiting, WAIT, "Open Source 0 Peer 0", "unsent"),
        ],
    );
    run(
        "reading for a peer that has ended",
        || ended(open_reading()),
        &[
            (On::Deadline(0), TIMED_OUT, "Open Source 0", "unsent"),
            (On::Drained(0, false), DONE, "Open Source 0", ""),
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
            (drained, WAIT, "Open Source 0", "producing"),
            (On::Bytes(GET), None, "Open Source 0", "pending producing"),
            (On::Bytes("\0\0\0"), None, "Last Source 0", "refused producing"),
            (On::Shutdown, WAIT, "Last Source 0", "producing"),
        ],
    );
    run("more", made(Produced::More, 1), &[(drained, PUMP, "Open Source 0", "producing")]);
    run("ended", made(Produced::Ended, 0), &[(drained, PUMP, "Open Source 0", "")]);
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
        &[(drained, OVER, "Open Source 0", "producing")],
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
                (On::Waiting, WAIT, &at("Source 1 Peer 0"), "unsent"),
                // 64 bytes a second for 30 seconds.
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
            (On::Bytes(GET), None, "Last Source 0", "pending"),
            (On::Drained(9, false), WAIT, "Last Source 0", "pending"),
            (On::Answer(FILES), None, "Last Source 0", "found"),
            (On::Deadline(0), WAIT, "Last Source 0", "pending"),
        ],
    );
    run(
        "refused",
        last_with_refused,
        &[
            (On::Drained(9, false), WAIT, "Last Source 0", "pending refused"),
            (On::Answer(FILES), None, "Last Source 0", "found refused"),
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
            (On::Shutdown, DONE, "Lingering 0", ""),
        ],
    );
}

#[test]
fn nothing_follows_a_response_that_ends_with_the_connection() {
    for phase in [Phase::Open(SOURCE), Phase::Last(SOURCE)] {
        let (mut session, mut work) = with(state(phase), [exchange(1, FOUND), refused()]);
        let text = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        let Ok(http1::Parsed::Complete { request, .. }) = http1::parse(text, &Limits::DEFAULT)
        else {
            panic!("a whole request")
        };
        let body = crate::handler::Body::from(Part::Producer(Box::new(Made::default())));
        let response = Response::new(ResponseHead::new(Status::Ok), body);
        session.respond(&mut work, &mut context(), &request.head, response);
        assert!(!session.is_open());
        assert_eq!(waiting(&mut work), "producing 200 close", "{phase:?}");
    }
}

/// A producer of pieces, all of the same byte.
#[derive(Debug)]
struct Made {
    byte: u8,
    /// Bytes of a piece, and how many pieces are left.
    piece: usize,
    left: u32,
    /// What it says after the last.
    ends: Produced,
    /// Whether each piece needs one of `wakes`.
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
        sink.push(vec![self.byte; self.piece]);
        Produced::More
    }

    fn weight(&self) -> u64 {
        0
    }
}

//! The format of segment scripts.
//!
//! ```text
//! case RFC 9293, 3.10.7.4: data in order is acknowledged
//!   config delayed-ack 40          settings of the stack, before anything else
//!   open sack ts ws 7 rtt 10       a handshake that a peer begins; it is checked loosely
//!   < PA 1:101 ack 1               the peer sends: flags, sequence numbers, acknowledgement, ...
//!   told received 100              what the application has heard since the last such line
//!   +0..50 > A 1 ack 101           the stack sends, within 0 to 50 ms
//!   do send 1000                   the application acts
//!   > A 1:1001 ack 101 <ts * 5>    options in angle brackets; !sack: without this option
//!   +200 silence                   nothing is sent for 200 ms
//!   state ESTABLISHED
//! ```
//!
//! `broken` in place of `case` says that the stack is known to fail the case; if the case passes, the test fails.
//!
//! In the cases that are recorded from the kernel's TCP (`recorded/mod.rs`) there are only lines of the peer and the
//! application, `wait` in place of `silence`, and `differs` and `ours`.
//!
//! A line begins with the time since the line before it, in milliseconds (`+10`, `+0.5`, `+10..20`), or happens
//! at once. Sequence numbers are counted from the initial one of the side that sent them; timestamps of the
//! stack are counted from its first one. Data is the same function of its position everywhere, so every byte is
//! compared.

use core::time::Duration;

use netstack::sim::flag;

/// A script: its cases in order.
pub(crate) fn parse(text: &str) -> Result<Vec<Case<'_>>, String> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let code = text.split('#').next().unwrap_or("").trim();
        if code.is_empty() {
            continue;
        }
        let is_broken = code.starts_with("broken ");
        if let Some(name) = code.strip_prefix(if is_broken { "broken " } else { "case " }) {
            cases.push(Case { name, is_broken, lines: Vec::new() });
            continue;
        }
        let step = step(code).map_err(|why| format!("line {}: {text:?}: {why}", index + 1))?;
        let case = cases.last_mut().ok_or("a line before the first case")?;
        case.lines.push(Line { number: index + 1, text: code, after: step.0, what: step.1 });
    }
    Ok(cases)
}

/// A case: a world of its own.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub name: &'a str,
    /// The stack is known to do otherwise: the case has to fail.
    pub is_broken: bool,
    pub lines: Vec<Line<'a>>,
}

#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub number: usize,
    pub text: &'a str,
    /// The time since the line before it: the earliest and the latest.
    pub after: (Duration, Duration),
    pub what: Step,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A setting of the stack: its name and its values.
    Config(String, Vec<u64>),
    /// A handshake.
    Open(Open),
    /// The next lines speak of the peer with this port, and of the stack's port.
    Peer(u16, u16),
    Inject(Pattern),
    Expect(Pattern),
    /// The peer sends this many bytes, one at a time, so that the connection is no longer young: its acknowledgements
    /// may be delayed from then on. The answers do not matter.
    Chatter(i64),
    /// Segments that follow each other; their number, if the script has one.
    ExpectRun(Pattern, Option<usize>),
    /// A message of the network: it quotes a segment with this sequence number.
    Icmp {
        kind: Icmp,
        seq: i64,
    },
    /// A frame that is no segment, in the words of `packets.rs`.
    Packet(String),
    /// The stack sends such a frame.
    ExpectPacket(String),
    /// The initial sequence number of the stack is this far after the one before it (`iss +1000`), to within 10, or
    /// elsewhere (`iss elsewhere`).
    Iss(Option<i64>),
    Silence,
    /// The time passes, whatever is sent.
    Wait,
    /// Why the stack's answers are others than the recorded ones (`recorded/mod.rs`).
    Differs(String),
    /// One of those answers.
    Ours(String),
    /// What the stack sends until then does not matter.
    Ignore,
    Do(Action),
    Told(Told),
    NotTold(Told),
    /// The state of the connection.
    State(String),
    /// A counter of the stack, or the size of one of its tables.
    Count(String, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Icmp {
    TooLarge(u16),
    Unreachable,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Send(u64),
    Shutdown,
    Close,
    StopReceiving,
    Receive,
    /// Opens a connection to the peer.
    Connect,
    /// Sends a datagram of this many bytes to the sender of the last one.
    Answer(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Accepted,
    Received(u64),
    Datagram(usize),
    Closed,
    Ended,
    Lost(&'static str),
}

/// How a peer opens a connection.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub mss: Option<u16>,
    pub sack: bool,
    pub timestamps: bool,
    pub window_scale: Option<u8>,
    pub window: u16,
    pub ecn: bool,
    pub rtt: Duration,
}

impl Open {
    /// The peer's SYN.
    pub(crate) fn syn(&self) -> Pattern {
        let mut options: Vec<Opt> = self.mss.map(Opt::Mss).into_iter().collect();
        options.extend(self.sack.then_some(Opt::SackPermitted));
        options.extend(self.timestamps.then_some(Opt::Timestamps(None, Some(0))));
        options.extend(self.window_scale.map(Opt::WindowScale));
        let ecn = if self.ecn { flag::ECE | flag::CWR } else { 0 };
        let flags = flag::SYN | ecn;
        Pattern { flags, window: Some(self.window), options, ..Pattern::default() }
    }
}

/// A segment: what is to be sent, or what is expected. In an expectation `None` and flags that are not named
/// do not matter; in a segment of the peer they take what its side of the connection has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern {
    pub flags: u8,
    /// Whether the flags do not matter: `*`.
    pub has_any_flags: bool,
    pub seq: (i64, i64),
    pub ack: Option<i64>,
    pub window: Option<u16>,
    pub ecn: Option<u8>,
    pub options: Vec<Opt>,
    /// The kinds that must be absent (expected) or that are left out (sent).
    pub without: Vec<u8>,
    pub has_bad_checksum: bool,
}

impl Pattern {
    /// The segment that completes a peer's handshake.
    pub(crate) fn handshake_ack() -> Self {
        Self { flags: flag::ACK, seq: (1, 1), ack: Some(1), ..Self::default() }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Opt {
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(i64, i64)>),
    /// Any option of a kind.
    Any(u8),
    /// Value and echo; `None` does not matter, or is what the side would send.
    Timestamps(Option<i64>, Option<i64>),
    Other(u8, Vec<u8>),
}

impl Opt {
    pub(crate) const fn kind(&self) -> u8 {
        match self {
            Self::Mss(_) => 2,
            Self::WindowScale(_) => 3,
            Self::SackPermitted => 4,
            Self::Sack(_) => 5,
            Self::Timestamps(..) => 8,
            Self::Any(kind) | Self::Other(kind, _) => *kind,
        }
    }
}

type Words<'a> = core::iter::Peekable<core::str::SplitWhitespace<'a>>;

fn step(code: &str) -> Result<((Duration, Duration), Step), String> {
    if let Some(words) = code.strip_prefix("in ") {
        return Ok(((Duration::ZERO, Duration::ZERO), Step::Packet(words.to_owned())));
    }
    if let Some(words) = code.strip_prefix("out ") {
        return Ok(((Duration::ZERO, Duration::ZERO), Step::ExpectPacket(words.to_owned())));
    }
    if let Some(reason) = code.strip_prefix("differs ") {
        return Ok(((Duration::ZERO, Duration::ZERO), Step::Differs(reason.to_owned())));
    }
    if let Some(answer) = code.strip_prefix("ours ") {
        return Ok(((Duration::ZERO, Duration::ZERO), Step::Ours(answer.to_owned())));
    }
    let (code, options) = match code.rsplit_once(" <") {
        Some((before, after)) if after.ends_with('>') => (before, after.strip_suffix('>')),
        _ => (code, None),
    };
    let (options, without) = parse_options(options.unwrap_or(""))?;
    let mut words: Words<'_> = code.split_whitespace().peekable();
    let after = match words.next_if(|word| word.starts_with('+')) {
        Some(word) => after(&word[1..])?,
        None => (Duration::ZERO, Duration::ZERO),
    };
    let verb = words.next().ok_or("no verb")?;
    let step = match verb {
        "config" => Step::Config(
            words.next().ok_or("the name of a setting is missing")?.to_owned(),
            words.by_ref().map(number).collect::<Result<_, _>>()?,
        ),
        "open" => Step::Open(parse_open(&mut words)?),
        "peer" => {
            let port = next_number(&mut words)?;
            let to = words.next_if_eq(&"to").map(|_| next_number(&mut words)).transpose()?;
            Step::Peer(port, to.unwrap_or(80))
        }
        "<" => Step::Inject(Pattern { options, without, ..pattern(&mut words)? }),
        ">" => Step::Expect(Pattern { options, without, ..pattern(&mut words)? }),
        ">>" => {
            let pattern = Pattern { options, without, ..pattern(&mut words)? };
            let count = words.next_if_eq(&"in").map(|_| next_number(&mut words)).transpose()?;
            Step::ExpectRun(pattern, count)
        }
        "icmp" => {
            let kind = match words.next() {
                Some("too-large") => Icmp::TooLarge(next_number(&mut words)?),
                Some("unreachable") => Icmp::Unreachable,
                other => return Err(format!("{other:?} is no message")),
            };
            if words.next() != Some("seq") {
                return Err("seq is missing".to_owned());
            }
            Step::Icmp { kind, seq: next_number(&mut words)? }
        }
        "chatter" => Step::Chatter(next_number(&mut words)?),
        "silence" => Step::Silence,
        "wait" => Step::Wait,
        "ignore" => Step::Ignore,
        "do" => Step::Do(match words.next() {
            Some("send") => Action::Send(next_number(&mut words)?),
            Some("shutdown") => Action::Shutdown,
            Some("close") => Action::Close,
            Some("stop") => Action::StopReceiving,
            Some("receive") => Action::Receive,
            Some("connect") => Action::Connect,
            Some("answer") => Action::Answer(next_number(&mut words)?),
            other => return Err(format!("{other:?} is no action")),
        }),
        "told" if words.next_if_eq(&"not").is_some() => Step::NotTold(told(&mut words)?),
        "told" => Step::Told(told(&mut words)?),
        "state" => Step::State(words.next().ok_or("the state is missing")?.to_owned()),
        "iss" => Step::Iss(match words.next() {
            Some("elsewhere") => None,
            Some(distance) => Some(number(distance)?),
            None => return Err("the distance is missing".to_owned()),
        }),
        "count" => {
            let name = words.next().ok_or("the name is missing")?.to_owned();
            Step::Count(name, next_number(&mut words)?)
        }
        other => return Err(format!("{other:?} is no verb")),
    };
    match words.next() {
        Some(word) => Err(format!("{word:?} is one too many")),
        None => Ok((after, step)),
    }
}

fn after(text: &str) -> Result<(Duration, Duration), String> {
    let time = |text: &str| {
        let milliseconds: f64 = text.parse().map_err(|_| format!("{text:?} is no time"))?;
        Ok::<_, String>(Duration::from_secs_f64(milliseconds / 1000.0))
    };
    match text.split_once("..") {
        Some((from, to)) => Ok((time(from)?, time(to)?)),
        None => Ok((time(text)?, time(text)?)),
    }
}

fn number<T: core::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn next_number<T: core::str::FromStr>(words: &mut Words<'_>) -> Result<T, String> {
    number(words.next().ok_or("a number is missing")?)
}

fn told(words: &mut Words<'_>) -> Result<Told, String> {
    Ok(match words.next() {
        Some("accepted") => Told::Accepted,
        Some("received") => Told::Received(next_number(words)?),
        Some("datagram") => Told::Datagram(next_number(words)?),
        Some("closed") => Told::Closed,
        Some("ended") => Told::Ended,
        Some("lost") => Told::Lost(match words.next() {
            Some("reset") => "reset",
            Some("timed-out") => "timed-out",
            Some("unreachable") => "unreachable",
            other => return Err(format!("{other:?} is no reason")),
        }),
        other => return Err(format!("{other:?} is never told")),
    })
}

fn parse_open(words: &mut Words<'_>) -> Result<Open, String> {
    let mut open = Open {
        mss: Some(1460),
        sack: false,
        timestamps: false,
        window_scale: None,
        window: 65_535,
        ecn: false,
        rtt: Duration::from_millis(10),
    };
    while let Some(word) = words.next() {
        match word {
            "mss" => open.mss = Some(next_number(words)?),
            "no-mss" => open.mss = None,
            "sack" => open.sack = true,
            "ts" => open.timestamps = true,
            "ws" => open.window_scale = Some(next_number(words)?),
            "win" => open.window = next_number(words)?,
            "ecn" => open.ecn = true,
            "rtt" => open.rtt = Duration::from_millis(next_number(words)?),
            other => return Err(format!("{other:?} is no word of open")),
        }
    }
    Ok(open)
}

/// The letters of the flags, by bit: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR. `0` is none of them.
const FLAGS: &str = "FSRPAUEW";

/// The letters of these flags.
pub(crate) fn letters(flags: u8) -> String {
    FLAGS.chars().enumerate().filter(|(bit, _)| flags & 1 << bit != 0).map(|(_, it)| it).collect()
}

fn pattern(words: &mut Words<'_>) -> Result<Pattern, String> {
    let mut pattern = Pattern::default();
    let flags = words.next().ok_or("the flags are missing")?;
    pattern.has_any_flags = flags == "*";
    for letter in flags.chars().filter(|letter| !matches!(letter, '0' | '*')) {
        let bit = FLAGS.find(letter).ok_or_else(|| format!("{letter:?} is no flag"))?;
        pattern.flags |= 1 << bit;
    }
    let seq = words.next().ok_or("the sequence number is missing")?;
    pattern.seq = range(seq)?;
    while let Some(word) = words.peek().copied() {
        match word {
            "in" => break,
            "ack" => {
                words.next();
                pattern.ack = Some(next_number(words)?);
            }
            "win" => {
                words.next();
                pattern.window = Some(next_number(words)?);
            }
            "not-ect" => pattern.ecn = Some(0),
            "ect0" => pattern.ecn = Some(2),
            "ect1" => pattern.ecn = Some(1),
            "ce" => pattern.ecn = Some(3),
            "bad-checksum" => pattern.has_bad_checksum = true,
            _ => break,
        }
        if !matches!(word, "ack" | "win") {
            words.next();
        }
    }
    Ok(pattern)
}

fn range(text: &str) -> Result<(i64, i64), String> {
    match text.split_once(':') {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => Ok((number(text)?, number(text)?)),
    }
}

fn parse_options(text: &str) -> Result<(Vec<Opt>, Vec<u8>), String> {
    let (mut options, mut without) = (Vec::new(), Vec::new());
    for text in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let mut words: Words<'_> = text.split_whitespace().peekable();
        options.push(match words.next() {
            Some("mss") => Opt::Mss(next_number(&mut words)?),
            Some("ws") if words.next_if_eq(&"*").is_some() => Opt::Any(3),
            Some("ws") => Opt::WindowScale(next_number(&mut words)?),
            Some("sackok") => Opt::SackPermitted,
            Some("sack") if words.next_if_eq(&"*").is_some() => Opt::Any(5),
            Some("sack") => Opt::Sack(words.by_ref().map(range).collect::<Result<_, _>>()?),
            Some("ts") => {
                let mut value = || match words.next() {
                    None | Some("*") => Ok(None),
                    Some(text) => number(text).map(Some),
                };
                Opt::Timestamps(value()?, value()?)
            }
            Some("other") => {
                let kind = next_number(&mut words)?;
                Opt::Other(kind, words.by_ref().map(number).collect::<Result<_, _>>()?)
            }
            Some(word) if word.starts_with('!') => {
                without.push(match &word[1..] {
                    "mss" => 2,
                    "ws" => 3,
                    "sackok" => 4,
                    "sack" => 5,
                    "ts" => 8,
                    other => return Err(format!("{other:?} is no option")),
                });
                continue;
            }
            other => return Err(format!("{other:?} is no option")),
        });
        if let Some(word) = words.next() {
            return Err(format!("{word:?} is one too many"));
        }
    }
    Ok((options, without))
}

//! Plays cases to the TCP of the kernel, in a network namespace whose only cable ends here.
//!
//! All cases run at the same time on one thread, each with a peer of its own. The kernel handles an injected frame
//! before the call returns, so its reply always comes before the next injection.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

use netstack::sim::{Segment, mac};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use testkit::{Tap, ip, within};

use crate::scripts::end::{End, contents};
use crate::scripts::parse::{Action, Pattern};

use super::plan::{Plan, What};
use super::transcript::Transcript;

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The peers are behind it, so that the kernel needs to know only its link address.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The port of the listener; nothing listens on the others.
const PORT: u16 = 80;
/// The numbers of the peers begin here: they wrap soon.
const PEER_ISN: u32 = 0xffff_ff00;

/// Between the beginnings of two cases, so that they are not in each other's way.
const STAGGER: Duration = Duration::from_millis(5);
/// A machine that injects later than this is too busy for a recording.
const LATE_MAX: Duration = Duration::from_millis(8);

/// The kernel's settings of TCP for all cases; the others keep their defaults.
const SETTINGS: [(&str, &str); 9] = [
    // Connections begin without what others of the same peer have seen.
    ("tcp_no_metrics_save", "1"),
    // As our stack, which asks for it, too.
    ("tcp_ecn", "1"),
    // What leaves does not hang on whether an acknowledgement may soon let more out.
    ("tcp_tso_win_divisor", "255"),
    // The defaults of the kernel, whatever this machine has.
    ("tcp_sack", "1"),
    ("tcp_timestamps", "1"),
    ("tcp_window_scaling", "1"),
    ("tcp_early_retrans", "3"),
    ("tcp_recovery", "1"),
    ("tcp_challenge_ack_limit", "2147483647"),
];

/// The release of the kernel, without what its builder has added.
pub(super) fn release() -> String {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    release.split('-').next().unwrap_or_default().to_owned()
}

fn station(ip: Ipv4Addr) -> String {
    mac(ip.into()).map(|byte| format!("{byte:02x}")).join(":")
}

/// A network namespace with one cable, whose other end is here. It goes when this is dropped.
pub(super) struct Kernel {
    name: String,
    tap: Option<Tap>,
}

impl Kernel {
    /// The error says why this is not possible here.
    pub(super) fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        let name = format!("netstack-{}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let mut kernel = Self { name, tap: None };
        let name = &kernel.name;
        let tap = within(name, || Tap::new("tap")).map_err(|error| format!("TAP: {error}"))?;
        for command in [
            format!("link set tap address {}", station(LOCAL)),
            format!("address add {LOCAL}/24 dev tap"),
            "link set tap up".to_owned(),
            format!("neighbour add {ROUTER} lladdr {} dev tap", station(ROUTER)),
            format!("route add default via {ROUTER}"),
        ] {
            ip(&format!("-n {name} {command}"))?;
        }
        kernel.tap = Some(tap);
        Ok(kernel)
    }

    /// Plays the cases; the error says what went wrong. `None` if the machine was too busy.
    pub(super) fn record(&self, plans: &[Plan<'_>]) -> Result<Option<Vec<Transcript>>, String> {
        let tap = self.tap.as_ref().ok_or("no cable")?;
        within(&self.name, || {
            Recorder::new(tap, plans).map_err(|error| format!("recording: {error}"))?.run()
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // If that fails, a namespace without a process is left, which harms nothing.
        let _ = ip(&format!("netns delete {}", self.name));
    }
}

struct Recorder<'a> {
    tap: &'a Tap,
    listener: TcpListener,
    cases: Vec<Case<'a>>,
}

/// A case under way.
struct Case<'a> {
    plan: &'a Plan<'a>,
    begin: Instant,
    /// The number of acts that were done.
    done: usize,
    is_over: bool,
    end: End,
    /// The application's socket, from when the connection is accepted until it is closed.
    socket: Option<TcpStream>,
    sent_bytes: i64,
    is_receiving: bool,
    has_shut_down: bool,
    transcript: Transcript,
}

impl<'a> Recorder<'a> {
    /// In the namespace of the calling thread.
    fn new(tap: &'a Tap, plans: &'a [Plan<'a>]) -> io::Result<Self> {
        for (name, value) in SETTINGS {
            fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
                .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        }
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        // Its connections inherit it. A namespace may only have algorithms that are free for all on this machine.
        sockopt::set_tcp_congestion(&listener, "cubic")?;
        listener.set_nonblocking(true)?;
        let begin = Instant::now() + Duration::from_millis(100);
        let case = |(index, plan)| Case::new(index, plan, begin);
        let cases = (0..).zip(plans).map(case).collect();
        Ok(Self { tap, listener, cases })
    }

    fn run(&mut self) -> Result<Option<Vec<Transcript>>, String> {
        loop {
            self.hear()?;
            let due = self
                .cases
                .iter()
                .enumerate()
                .filter_map(|(index, case)| Some((case.due()?, index)));
            let Some((due, index)) = due.min() else { break };
            let late = Instant::now().checked_duration_since(due);
            match late {
                None => self.sleep(due),
                Some(late) if late > LATE_MAX => return Ok(None),
                Some(_) => {
                    let name = self.cases[index].plan.name;
                    self.act(index).map_err(|why| format!("{name}: {why}"))?;
                }
            }
        }
        let transcripts = self.cases.iter_mut().map(|case| core::mem::take(&mut case.transcript));
        Ok(Some(transcripts.collect()))
    }

    fn sleep(&self, until: Instant) {
        let pause = until.saturating_duration_since(Instant::now());
        let pause = pause.try_into().expect("a short time");
        // A signal ends it early, which harms nothing.
        let _ = poll(&mut [PollFd::new(self.tap, PollFlags::IN)], Some(&pause));
    }

    /// Writes down what the kernel has sent.
    fn hear(&mut self) -> Result<(), String> {
        let mut bytes = [0; 2048];
        while let Some(len) = self.tap.read(&mut bytes) {
            let frame = &bytes[..len];
            // All else is not the subject: ARP, and what IPv6 says when an interface comes up.
            if frame.get(12..14) != Some(&[8, 0]) || frame.get(23) != Some(&6) {
                continue;
            }
            let segment = Segment::from_frame(frame).map_err(|why| format!("a frame: {why}"))?;
            let peer = segment.destination.ip();
            let case = self.cases.iter_mut().find(|case| case.end.remote.ip() == peer);
            let case = case.ok_or_else(|| format!("a segment to {peer}"))?;
            if !case.is_over {
                case.end.hear(&segment);
                case.transcript.sent(case.begin.elapsed(), &segment, &case.end);
            }
        }
        Ok(())
    }

    /// Does the next thing of a case.
    fn act(&mut self, index: usize) -> Result<(), String> {
        let case = &mut self.cases[index];
        let plan = case.plan;
        let Some(act) = plan.acts.get(case.done) else {
            case.is_over = true;
            return Ok(());
        };
        case.done += 1;
        case.transcript.done(act);
        match &act.what {
            What::Inject(pattern) => self.inject(index, act.at, pattern),
            What::Open { sends_timestamps } => {
                case.end.sends_timestamps = *sends_timestamps;
                self.inject(index, act.at, &Pattern::handshake_ack())
            }
            What::Port(port) => {
                case.end.local.set_port(*port);
                Ok(())
            }
            What::Do(action) => case.act(action).map_err(|error| format!("{action:?}: {error}")),
        }
    }

    fn inject(&mut self, index: usize, at: Duration, pattern: &Pattern) -> Result<(), String> {
        let segment = self.cases[index].end.segment(pattern, super::peer_clock(at))?;
        self.tap.write(&segment.to_frame());
        self.attend()
    }

    /// Lets the applications accept and receive.
    fn attend(&mut self) -> Result<(), String> {
        while let Ok((socket, peer)) = self.listener.accept() {
            let case = self.cases.iter_mut().find(|case| case.end.remote == peer);
            let case = case.ok_or_else(|| format!("a connection of {peer}"))?;
            case.accept(socket).map_err(|error| format!("accepting: {error}"))?;
        }
        self.cases.iter_mut().for_each(Case::receive);
        Ok(())
    }
}

impl<'a> Case<'a> {
    fn new(index: u16, plan: &'a Plan<'a>, begin: Instant) -> Self {
        let [high, low] = index.to_be_bytes();
        let peer = IpAddr::from([10, 1, high, low]);
        let (local, remote) = (SocketAddr::new(LOCAL.into(), PORT), SocketAddr::new(peer, 5000));
        Self {
            plan,
            begin: begin + STAGGER * u32::from(index),
            done: 0,
            is_over: false,
            end: End::new(local, remote, PEER_ISN),
            socket: None,
            sent_bytes: 0,
            is_receiving: true,
            has_shut_down: false,
            transcript: Transcript::default(),
        }
    }

    /// When the next thing is to be done.
    fn due(&self) -> Option<Instant> {
        let next = self.plan.acts.get(self.done).map_or(self.plan.end, |act| act.at);
        (!self.is_over).then_some(self.begin + next)
    }

    fn accept(&mut self, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        // As our stack: what is queued leaves at once.
        socket.set_nodelay(true)?;
        if let Some([idle, interval, probes]) = self.plan.keepalive {
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, Duration::from_millis(idle))?;
            sockopt::set_tcp_keepintvl(&socket, Duration::from_millis(interval))?;
            sockopt::set_tcp_keepcnt(&socket, u32::try_from(probes).expect("few probes"))?;
        }
        self.socket = Some(socket);
        Ok(())
    }

    /// Takes what has come. What became of the connection is seen on the cable.
    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        while self.is_receiving
            && let Some(socket) = &mut self.socket
            && socket.read(&mut bytes).is_ok_and(|bytes| bytes > 0)
        {}
    }

    fn act(&mut self, action: &Action) -> io::Result<()> {
        if let Action::Connect = action {
            return self.connect();
        }
        let socket = self.socket.as_mut().ok_or(ErrorKind::NotConnected)?;
        match action {
            Action::Send(bytes) => {
                let from = self.sent_bytes;
                self.sent_bytes += bytes.cast_signed();
                let bytes = contents(true, from..self.sent_bytes);
                socket.write_all(&bytes)?;
            }
            Action::Shutdown => {
                self.has_shut_down = true;
                socket.shutdown(Shutdown::Write)?;
            }
            Action::Close => {
                // As our stack: closing without an end of the stream is an abort.
                if !self.has_shut_down {
                    sockopt::set_socket_linger(&*socket, Some(Duration::ZERO))?;
                }
                self.socket = None;
            }
            Action::StopReceiving => self.is_receiving = false,
            Action::Receive => {
                self.is_receiving = true;
                self.receive();
            }
            Action::Connect | Action::Answer(_) => return Err(ErrorKind::Unsupported.into()),
        }
        Ok(())
    }

    fn connect(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(LOCAL.into(), 0))?;
        let socket = TcpStream::from(socket);
        // Its answers go to the port that the kernel has chosen.
        self.end.local = socket.local_addr()?;
        match rustix::net::connect(&socket, &self.end.remote) {
            Ok(()) | Err(Errno::INPROGRESS) => self.accept(socket),
            Err(errno) => Err(errno.into()),
        }
    }
}

//! The network half of the kevent posts (Polyakov 2006): bytes from or to memory through sockets on
//! loopback, by several system calls; speed and CPU over time. No disk takes part.
//!
//! One thread moves bytes in the measured way, on the sender's CPU. A peer does the opposite in one
//! fixed way, on the clients' CPU. A stream is one block of random bytes again and again. Before
//! anything is timed, every way moves some megabytes that are compared.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{self, Error, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags, recv, recvmsg, send};

use super::Plan;
use crate::league::rounds::Rounds;
use crate::load::pin;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::sys::transfer::{Done, Registered, allow_zerocopy};
use crate::{Fault, Recorder, Test, Unit, interrupt};

/// The test of receiving.
pub(super) fn receive(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    let ways = [SocketMethod::Recv, SocketMethod::RecvRegistered];
    figures(Test::new("receive", "Cost of receiving", move |recorder| {
        run(&plan, recorder, &ways, 1)
    }))
}

/// The test of sending.
pub(super) fn send_test(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    let ways = [
        SocketMethod::Send,
        SocketMethod::Sendfile,
        SocketMethod::ZeroCopy,
        SocketMethod::SendRegistered,
    ];
    figures(Test::new("send", "Cost of sending from memory on ten sockets", move |recorder| {
        run(&plan, recorder, &ways, SOCKETS)
    }))
}

fn figures(test: Test) -> Test {
    test.scales("less CPU for each byte")
        .x("second")
        .warm_up("a transfer whose bytes are compared")
        .tabled()
        .figure(Figure::of(Unit::BytesPerSecond).titled("speed over time").only(&[SPEED]).lines())
        .figure(
            Figure::of(Unit::Percent).titled("CPU of the thread over time").only(&[CPU]).lines(),
        )
}

/// A way of bytes through sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketMethod {
    Recv,
    RecvRegistered,
    Send,
    Sendfile,
    ZeroCopy,
    SendRegistered,
}

impl SocketMethod {
    fn name(self) -> &'static str {
        match self {
            Self::Recv => "recv, epoll",
            Self::RecvRegistered => "io_uring, registered memory",
            Self::Send => "send, epoll",
            Self::Sendfile => "sendfile, epoll",
            Self::ZeroCopy => "MSG_ZEROCOPY, epoll",
            Self::SendRegistered => "io_uring SEND_ZC, registered memory",
        }
    }

    fn receives(self) -> bool {
        matches!(self, Self::Recv | Self::RecvRegistered)
    }

    /// Returns whether epoll waits for the sockets; otherwise io_uring waits within the operation.
    fn by_epoll(self) -> bool {
        !matches!(self, Self::RecvRegistered | Self::SendRegistered)
    }
}

fn run(
    plan: &Plan,
    recorder: &mut Recorder<'_>,
    ways: &[SocketMethod],
    sockets: usize,
) -> Result<(), Fault> {
    recorder.note(format!(
        "{} over {sockets} connection(s) on loopback, {} asked for at once; {}. CPU is that of the one thread \
         alone: on loopback the sending thread also does the work of the receiver's TCP",
        Unit::Bytes.show(float(plan.transfer)),
        Unit::Bytes.show(float(PIECE)),
        plan.where_it_runs()
    ));
    // The thread that only observes runs on the clients' CPU.
    pin(plan.client_cpu)?;
    let mut usable = Vec::new();
    for &way in ways {
        match transfer(plan, way, sockets, CHECKED, true) {
            Ok(_) => usable.push(way),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(Fault::Failed(format!("{}: {error}", way.name())));
            }
            Err(_) if recorder.is_stopped() => return Ok(()),
            Err(error) => recorder.skip(way.name(), error.to_string()),
        }
    }
    let mut rounds = Rounds::default();
    let mut copied = BTreeMap::new();
    let total = recorder.steps() * usable.len();
    for turn in 0..total {
        if recorder.is_stopped() {
            break;
        }
        let way = usable[turn % usable.len()];
        let name = way.name();
        let done = match transfer(plan, way, sockets, plan.transfer, false) {
            Err(_) if recorder.is_stopped() => break,
            done => done?,
        };
        let round = float((turn / usable.len()) as u64 + 1);
        for (what, unit, value) in [
            (RATE, Unit::BytesPerSecond, float(plan.transfer) / done.seconds),
            (CPU_PER_GB, Unit::Nanoseconds, done.cpu * 1e9 / (float(plan.transfer) / 1e9)),
        ] {
            rounds.record(recorder, name, what, unit, round, value);
        }
        copied.insert(name, done.copied);
        for (at, rate, cpu) in done.samples.into_iter().filter(|_| turn < usable.len()) {
            recorder.record(name, SPEED, Unit::BytesPerSecond, at, rate);
            recorder.record(name, CPU, Unit::Percent, at, cpu);
        }
        recorder.progress(float(turn + 1) / float(total));
    }
    let rows = usable.iter().map(|way| {
        let name = way.name();
        let remark = match copied.get(name) {
            Some(Some((copied, all))) => format!("the kernel copied {copied} of {all} after all"),
            _ if *way == SocketMethod::ZeroCopy => {
                "on loopback the kernel copies after all".to_owned()
            }
            _ => String::new(),
        };
        vec![
            name.to_owned(),
            rounds.cell(name, RATE, |rate| format!("{:.0}", rate / 1e6)),
            rounds.cell(name, CPU_PER_GB, |ns| format!("{:.3}", ns / 1e9)),
            remark,
        ]
    });
    let rows = rows.collect();
    let head = ["way", "MB/s", "CPU, s per GB", "remarks"].map(str::to_owned).to_vec();
    recorder.table(Table { title: "Medians (least–greatest) of rounds".to_owned(), head, rows });
    if let Some(noisy) = rounds.too_noisy(&[RATE, CPU_PER_GB]) {
        recorder.note(noisy);
    }
    Ok(())
}

/// A transfer that has ended.
struct Transferred {
    seconds: f64,
    /// Seconds of the thread.
    cpu: f64,
    /// Seconds since the start, bytes per second, percent of a CPU.
    samples: Vec<(f64, f64, f64)>,
    /// For zero-copy sends, the number of copied ones and of all, where the kernel reports it.
    copied: Option<(u64, u64)>,
}

/// The state that the threads of a transfer share.
struct Shared<'a> {
    /// One end of each connection.
    sockets: &'a [TcpStream],
    /// The bytes of each connection.
    each: u64,
    /// The block that is sent again and again.
    block: &'a [u8],
    /// True if the receiver compares the bytes.
    compare: bool,
    /// The bytes moved so far, for the observer.
    moved: &'a AtomicU64,
    /// True once a thread has failed or ctrl-C came: then the other thread ends as well.
    stop: &'a AtomicBool,
}

impl Shared<'_> {
    fn goes_on(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) || interrupt::is_set() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    /// Notes that this end has failed, so that the other one does not wait for it.
    fn give_up(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for socket in self.sockets {
            // The call fails if the connection is already closed.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn add(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The next bytes of a stream that is at `position`.
    fn next(&self, position: u64) -> core::ops::Range<usize> {
        let from = index(position % BLOCK as u64);
        from..BLOCK.min(from + PIECE.min(index(self.each - position)))
    }

    /// Compares the bytes of a stream at `position`.
    fn check(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let mut from = index(position % BLOCK as u64);
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = rest.len().min(BLOCK - from);
            if rest[..len] != self.block[from..from + len] {
                return Err(Error::new(ErrorKind::InvalidData, "other bytes came than were sent"));
            }
            (rest, from) = (&rest[len..], 0);
        }
        Ok(())
    }
}

/// Moves `total` bytes in one way, and has a peer move them in the other direction.
fn transfer(
    plan: &Plan,
    way: SocketMethod,
    sockets: usize,
    total: u64,
    compare: bool,
) -> io::Result<Transferred> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..sockets {
        ours.push(TcpStream::connect(listener.local_addr()?)?);
        theirs.push(listener.accept()?.0);
    }
    let mut block = vec![0; BLOCK];
    fastrand::Rng::with_seed(total).fill(&mut block);
    let (moved, unseen) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stop, thread_id) = (AtomicBool::new(false), AtomicI32::new(0));
    let shared = |sockets, moved| Shared {
        sockets,
        each: total / sockets_of(sockets),
        block: &block,
        compare,
        moved,
        stop: &stop,
    };
    let (us, them) = (shared(&ours[..], &moved), shared(&theirs[..], &unseen));
    let peers_way = if way.receives() { SocketMethod::Send } else { SocketMethod::Recv };
    for (way, sockets) in [(way, &ours), (peers_way, &theirs)] {
        // Otherwise sendfile(2), which has no flag for it, would push a whole stream before the next
        // one's turn. io_uring would return EAGAIN instead of waiting.
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(way.by_epoll()))?;
    }
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            pin(plan.sender_cpu)?;
            thread_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
            let (start, cpu) = (Instant::now(), thread_cpu());
            let result = go(way, &us).inspect_err(|_| us.give_up());
            Ok((start.elapsed().as_secs_f64(), thread_cpu() - cpu, result?))
        });
        let peer = scope.spawn(|| {
            pin(plan.client_cpu)?;
            go(peers_way, &them).inspect_err(|_| them.give_up())
        });
        let samples = watch(&moved, &thread_id, || worker.is_finished());
        let panicked = || Error::other("a thread panicked");
        let done = worker.join().map_err(|_| panicked())?;
        let peer = peer.join().map_err(|_| panicked())?;
        // If there are two errors, the one that is not "interrupted" is reported.
        let (seconds, cpu, copied) = match (done, peer) {
            (Err(error), Err(other)) if error.kind() == ErrorKind::Interrupted => {
                return Err(other);
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
            (Ok(done), Ok(_)) => done,
        };
        Ok(Transferred { seconds, cpu, samples, copied })
    })
}

/// Speed and CPU of a thread every [`SAMPLE`].
fn watch(
    moved: &AtomicU64,
    thread_id: &AtomicI32,
    is_finished: impl Fn() -> bool,
) -> Vec<(f64, f64, f64)> {
    let start = Instant::now();
    let cpu = || {
        let id = thread_id.load(Ordering::Acquire);
        let stat = crate::machine::read(&format!("/proc/self/task/{id}/schedstat"));
        stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    // A thread has no CPU time before it has a number.
    while thread_id.load(Ordering::Acquire) == 0 && !is_finished() {
        thread::sleep(GLANCE);
    }
    let mut last = (Instant::now(), moved.load(Ordering::Relaxed), cpu());
    let mut samples = Vec::new();
    while !is_finished() {
        thread::sleep(GLANCE);
        if last.0.elapsed() < SAMPLE {
            continue;
        }
        let now = (Instant::now(), moved.load(Ordering::Relaxed), cpu());
        let seconds = (now.0 - last.0).as_secs_f64();
        let rate = float(now.1 - last.1) / seconds;
        let share = 100.0 * (now.2 - last.2) / 1e9 / seconds;
        // The thread may just have ended.
        if share.is_finite() {
            samples.push(((now.0 - start).as_secs_f64(), rate, share));
        }
        last = now;
    }
    samples
}

/// Moves all bytes in one way; returns the copies that the kernel has reported.
fn go(way: SocketMethod, shared: &Shared<'_>) -> io::Result<Option<(u64, u64)>> {
    match way {
        SocketMethod::Recv => receive_by_epoll(shared).map(|()| None),
        SocketMethod::RecvRegistered => receive_registered(shared).map(|()| None),
        SocketMethod::SendRegistered => send_registered(shared).map(Some),
        SocketMethod::Send => {
            let send = |socket: BorrowedFd<'_>, part| {
                send(socket, &shared.block[part], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            };
            send_by_epoll(shared, send).map(|()| None)
        }
        SocketMethod::Sendfile => {
            let memory = memfd_create("samum-bench", MemfdFlags::CLOEXEC)?;
            rustix::io::write(&memory, shared.block)?;
            let send = |socket: BorrowedFd<'_>, part: core::ops::Range<usize>| {
                let mut offset = part.start as u64;
                rustix::fs::sendfile(socket, &memory, Some(&mut offset), part.len())
            };
            send_by_epoll(shared, send).map(|()| None)
        }
        SocketMethod::ZeroCopy => {
            for socket in shared.sockets {
                allow_zerocopy(socket.as_fd())?;
            }
            // The block is not written to as long as the kernel may send it.
            let flags = SendFlags::from_bits_retain(MSG_ZEROCOPY);
            let flags = flags | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let send = |socket: BorrowedFd<'_>, part| {
                let sent = send(socket, &shared.block[part], flags);
                take_notes(socket);
                // The kernel still holds too many sends: try again later.
                if sent == Err(Errno::NOBUFS) { Err(Errno::AGAIN) } else { sent }
            };
            send_by_epoll(shared, send).map(|()| None)
        }
    }
}

/// Handles the reports of zero-copy sends from the error queue (msg_zerocopy.rst), which would fill up.
fn take_notes(socket: BorrowedFd<'_>) {
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    while recvmsg(socket, &mut [], &mut RecvAncillaryBuffer::default(), flags).is_ok() {}
}

/// Sends to each socket that has room for bytes.
fn send_by_epoll(
    shared: &Shared<'_>,
    send: impl Fn(BorrowedFd<'_>, core::ops::Range<usize>) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    let mut positions = vec![0; shared.sockets.len()];
    by_epoll(shared, epoll::EventFlags::OUT, |shared, i| {
        let socket = shared.sockets[i].as_fd();
        let end = shared.each.min(positions[i] + TURN);
        while positions[i] < end {
            match send(socket, shared.next(positions[i])) {
                Ok(n) => {
                    positions[i] += n as u64;
                    shared.add(n);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(positions[i] == shared.each)
    })
}

/// Receives from each socket that has bytes.
fn receive_by_epoll(shared: &Shared<'_>) -> io::Result<()> {
    let mut positions = vec![0; shared.sockets.len()];
    let mut buffer = vec![0; PIECE];
    by_epoll(shared, epoll::EventFlags::IN, |shared, i| {
        let end = shared.each.min(positions[i] + TURN);
        while positions[i] < end {
            match recv(shared.sockets[i].as_fd(), &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((n, _)) => {
                    if shared.compare {
                        shared.check(positions[i], &buffer[..n])?;
                    }
                    positions[i] += n as u64;
                    shared.add(n);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(positions[i] == shared.each)
    })
}

/// Calls `advance` for each socket that is ready, until it has returned for all sockets that they are
/// done.
fn by_epoll(
    shared: &Shared<'_>,
    flags: epoll::EventFlags,
    mut advance: impl FnMut(&Shared<'_>, usize) -> io::Result<bool>,
) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (i, socket) in shared.sockets.iter().enumerate() {
        epoll::add(&epoll, socket, epoll::EventData::new_u64(i as u64), flags)?;
    }
    let mut left = shared.sockets.len();
    let mut events = Vec::with_capacity(left);
    let nap = Timespec::try_from(GLANCE).map_err(Error::other)?;
    while left > 0 {
        shared.goes_on()?;
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&nap)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let i = index(event.data.u64());
            if advance(shared, i)? {
                epoll::delete(&epoll, &shared.sockets[i])?;
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Receives on the first socket into registered memory.
fn receive_registered(shared: &Shared<'_>) -> io::Result<()> {
    let mut memory = Registered::new(vec![0; PIECE].into_boxed_slice())?;
    let mut position = 0;
    let socket = shared.sockets[0].as_fd();
    while position < shared.each {
        shared.goes_on()?;
        memory.receive(socket, 0)?;
        memory.wait()?;
        while let Some(done) = memory.next() {
            let Done::Received(_, n) = done else { continue };
            let n = checked(n)?;
            if n == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if shared.compare {
                shared.check(position, &memory.memory()[..n])?;
            }
            position += n as u64;
            shared.add(n);
        }
    }
    Ok(())
}

/// Sends registered memory; how many sends were copied after all, and how many there were.
fn send_registered(shared: &Shared<'_>) -> io::Result<(u64, u64)> {
    let mut memory = Registered::new(shared.block.into())?;
    let mut positions = vec![0; shared.sockets.len()];
    let (mut copied, mut released, mut sent) = (0, 0, 0);
    let mut left = positions.len();
    for (i, token) in (0..positions.len()).zip(0_u32..) {
        memory.send(shared.sockets[i].as_fd(), shared.next(0), token)?;
    }
    while left > 0 || released < sent {
        shared.goes_on()?;
        memory.wait()?;
        while let Some(done) = memory.next() {
            match done {
                Done::Sent(token, n) => {
                    let (i, n) = (index(token), checked(n)?);
                    sent += 1;
                    positions[i] += n as u64;
                    shared.add(n);
                    if positions[i] == shared.each {
                        left -= 1;
                    } else {
                        let token = u32::try_from(token).map_err(Error::other)?;
                        memory.send(shared.sockets[i].as_fd(), shared.next(positions[i]), token)?;
                    }
                }
                Done::Released(was_copied) => {
                    released += 1;
                    copied += u64::from(was_copied);
                }
                Done::Received(..) => {}
            }
        }
    }
    Ok((copied, released))
}

/// A count, or an error number below 0.
fn checked(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| Error::from_raw_os_error(-result))
}

/// CPU time of this thread, seconds.
fn thread_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

fn sockets_of(sockets: &[TcpStream]) -> u64 {
    sockets.len() as u64
}

/// An index or length of memory.
fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// socket.h; rustix has no name for it.
const MSG_ZEROCOPY: u32 = 0x400_0000;

/// Series over time, and figures of rounds.
const SPEED: &str = "speed";
const CPU: &str = "CPU";
const RATE: &str = "speed of a round";
const CPU_PER_GB: &str = "CPU per GB";

/// The sockets of the test of sending, as in the post.
const SOCKETS: usize = 10;

/// The bytes that one call asks for.
const PIECE: usize = 256 << 10;

/// The bytes that one socket moves in a turn.
const TURN: u64 = 4 * PIECE as u64;

/// The bytes of the block: no multiple of a page or a socket buffer.
const BLOCK: usize = 1_000_003;

/// The bytes that are compared before any are timed.
const CHECKED: u64 = 20_000_000;

/// The interval of samples of speed and CPU.
const SAMPLE: Duration = Duration::from_millis(100);

/// The interval of checks for the end.
const GLANCE: Duration = Duration::from_millis(2);

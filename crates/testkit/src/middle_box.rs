//! A box in the middle of a cable: frames from one end go over a simulated path to the other.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use netstack::Time;
use netstack::sim::{Conditions, Fates, Link, Random};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, Updater, ioctl};

/// The other end of the cable of a network interface (tun(4)): the kernel's frames can be read there, and written
/// frames arrive at the interface. The interface goes when this is dropped.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

/// The argument of TUNSETIFF: `struct ifreq` (netdevice(7)).
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

const TUNSETIFF: Opcode = 0x4004_54ca;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;

/// The maximum of frames that are read in a row from one end before the other end has its turn.
const FRAMES_OF_A_TURN: usize = 64;

/// The longest sleep, after which the box looks whether it is to stop.
const SLEEP_MAX: Duration = Duration::from_millis(50);

impl Tap {
    /// Makes an interface in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If this process may not, or there is no `/dev/net/tun`.
    pub fn new(interface: &str) -> io::Result<Self> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open("/dev/net/tun")?;
        let mut request = Request { name: [0; 16], flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
        request.name[..interface.len()].copy_from_slice(interface.as_bytes());
        // SAFETY: TUNSETIFF takes a pointer to a `struct ifreq`, whose 40 bytes `Request` has.
        let request = unsafe { Updater::<TUNSETIFF, Request>::new(&mut request) };
        // SAFETY: the kernel writes a name and flags, and any bytes are valid there.
        unsafe { ioctl(&file, request) }?;
        Ok(Self { file })
    }

    /// Reads a frame that the interface has sent, if there is one.
    pub fn read(&self, into: &mut [u8]) -> Option<usize> {
        rustix::io::read(&self.file, into).ok()
    }

    /// Sends a frame to the interface. The result does not say whether the frame arrives: the interface may be down.
    pub fn write(&self, frame: &[u8]) {
        let _ = rustix::io::write(&self.file, frame);
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A running box, which stops when it is dropped.
#[derive(Debug)]
pub struct MiddleBox {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<[Fates; 2]>>,
}

impl MiddleBox {
    /// Connects two interfaces. The first path carries what the first interface sends. A seed decides on the fates of
    /// the frames.
    #[must_use]
    pub fn new(ends: [Tap; 2], paths: [Conditions; 2], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let links = paths.map(|path| Link::new(path, random.fork()));
        let stops = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stops = Arc::clone(&stops);
            move || run(&ends, links, &stops)
        });
        Self { stops, thread: Some(thread) }
    }

    /// Stops the box, and returns the fates of the frames on each path.
    pub fn stop(mut self) -> [Fates; 2] {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("the box does not panic")
    }
}

impl Drop for MiddleBox {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

fn run(ends: &[Tap; 2], mut links: [Link; 2], stops: &AtomicBool) -> [Fates; 2] {
    let begun = Instant::now();
    let now = || {
        Time::from_nanos(u64::try_from(begun.elapsed().as_nanos()).expect("less than 500 years"))
    };
    let mut bytes = vec![0; 65_536];
    while !stops.load(Ordering::Relaxed) {
        for (from, link) in links.iter_mut().enumerate() {
            for _ in 0..FRAMES_OF_A_TURN {
                let Some(len) = ends[from].read(&mut bytes) else { break };
                if let Some(answer) = link.carry(now(), bytes[..len].to_vec()) {
                    ends[from].write(&answer);
                }
            }
            let now = now();
            while let Some(frame) = link.take(now) {
                ends[1 - from].write(&frame);
            }
        }
        let next = links.iter().filter_map(Link::next_arrival).min();
        let sleep = next.map_or(SLEEP_MAX, |next| next.since(now()).min(SLEEP_MAX));
        let sleep = sleep.try_into().expect("a short time");
        let mut files = ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN));
        // A signal ends the sleep early, which harms nothing.
        let _ = poll(&mut files, Some(&sleep));
    }
    links.each_ref().map(Link::fates)
}

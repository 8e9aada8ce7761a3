//! Descriptors that stay open as long as the kernel or this process works with them.

use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::acknowledged::Acknowledged;
use crate::gate::Device;

/// A shared descriptor of one ring.
///
/// Each operation in flight holds a clone, so a number cannot be reused for another file while an operation still means
/// the old one. When the last clone is dropped, the descriptor goes to the ring, which closes a socket at its next
/// turn. It closes files in other threads, some at a time, because `close(2)` of a file can sleep. (A network file
/// system flushes, or the last name of a large file has just been removed.)
#[derive(Clone)]
pub struct Fd(Rc<Inner>);

struct Inner {
    handle: Option<Handle>,
    closing: Rc<Closing>,
    /// True if the io_uring driver receives from it once per turn, and not for as long as it can.
    greedy: Cell<bool>,
    /// True while its peer is expected to send much.
    expects_much: Cell<bool>,
    /// True if the last receive of the socket would have filled a small buffer.
    has_filled: Cell<bool>,
    /// True if the receive that the io_uring driver has begun takes a wide buffer.
    takes_wide: Cell<bool>,
    /// True if it was connected to a server, and receives responses.
    is_connected: Cell<bool>,
    /// True once the io_uring driver has seen that the peer has ended its side.
    ended: Cell<bool>,
    /// True once a read of the file has ended.
    was_read: Cell<bool>,
    /// True while the positions of its blocks are being brought into memory.
    is_unmapped: Cell<bool>,
    /// True if the kernel's readahead is switched off for this file.
    is_random: Cell<bool>,
    /// True if the io_uring driver has opened it with `O_DIRECT`.
    is_direct: Cell<bool>,
    /// The device that calls on it may wait for; only for files and directories.
    device: Cell<Device>,
    /// The bytes that the peer has acknowledged; only for sockets that the kernel was asked to report on.
    acknowledged: OnceCell<Box<RefCell<Acknowledged>>>,
}

/// The descriptor behind an [`Fd`].
#[derive(Debug)]
pub(crate) enum Handle {
    /// A descriptor whose `close(2)` never sleeps: sockets, pipes, eventfds.
    Socket(OwnedFd),
    /// A socket whose `close(2)` may sleep until its peer has taken everything (`SO_LINGER`).
    Lingering(OwnedFd),
    /// A descriptor whose `close(2)` may sleep.
    File(OwnedFd),
    /// A file that is shared with other rings.
    Shared(Arc<OwnedFd>),
    /// A number in the simulated world.
    Sim(i32),
}

/// Descriptors whose last `Fd` is gone, waiting to be closed.
#[derive(Default)]
pub(crate) struct Closing {
    handles: RefCell<Vec<(Handle, Device)>>,
    /// True once the ring is gone; then no code gets the descriptors from here any more.
    orphaned: Cell<bool>,
}

/// A file that nothing uses any more, and the device on which its `close(2)` may sleep.
#[derive(Debug)]
pub(crate) struct Unused {
    pub(crate) fd: OwnedFd,
    pub(crate) device: Device,
}

impl Closing {
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.borrow().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.borrow().len()
    }

    /// Takes the descriptors, each with the device on which its `close(2)` may sleep. Descriptors that other rings
    /// share stay open.
    pub(crate) fn take(&self) -> Vec<(Handle, Device)> {
        let alone = |(handle, device)| match handle {
            // If several rings drop it at the same time, the last gets the descriptor.
            Handle::Shared(fd) => Some((Handle::File(Arc::into_inner(fd)?), device)),
            handle => Some((handle, device)),
        };
        self.handles.take().into_iter().filter_map(alone).collect()
    }

    /// Notes that the ring has gone: descriptors that outlive it are closed where they are dropped.
    pub(crate) fn orphan(&self) {
        self.orphaned.set(true);
        drop(self.take());
    }
}

/// A descriptor that this does not keep open.
#[derive(Clone, Debug)]
pub struct WeakFd(Weak<Inner>);

impl WeakFd {
    /// Returns whether other owners keep the descriptor open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Fd {
    pub(crate) fn new(handle: Handle, closing: &Rc<Closing>) -> Self {
        Self(Rc::new(Inner {
            handle: Some(handle),
            closing: Rc::clone(closing),
            greedy: Cell::new(false),
            expects_much: Cell::new(false),
            has_filled: Cell::new(false),
            takes_wide: Cell::new(false),
            is_connected: Cell::new(false),
            ended: Cell::new(false),
            was_read: Cell::new(false),
            is_unmapped: Cell::new(false),
            is_random: Cell::new(false),
            is_direct: Cell::new(false),
            device: Cell::default(),
            acknowledged: OnceCell::new(),
        }))
    }

    /// The number, for logs and for tables indexed by it.
    #[must_use]
    pub fn raw(&self) -> i32 {
        match self.handle() {
            Handle::Socket(fd) | Handle::Lingering(fd) | Handle::File(fd) => fd.as_raw_fd(),
            Handle::Shared(fd) => fd.as_raw_fd(),
            Handle::Sim(number) => *number,
        }
    }

    /// A socket that was accepted from this listener, whose options it inherits.
    pub(crate) fn accepted(&self, socket: OwnedFd) -> Handle {
        match self.handle() {
            Handle::Lingering(_) => Handle::Lingering(socket),
            _ => Handle::Socket(socket),
        }
    }

    /// The descriptor, without keeping it open.
    #[must_use]
    pub fn downgrade(&self) -> WeakFd {
        WeakFd(Rc::downgrade(&self.0))
    }

    /// Marks a socket whose peer sends so much without a pause that other connections would wait too long. The mark
    /// stays.
    pub(crate) fn mark_greedy(&self) {
        self.0.greedy.set(true);
    }

    pub(crate) fn is_greedy(&self) -> bool {
        self.0.greedy.get()
    }

    /// Receives into wide buffers from now on, or no longer. For an accepted socket whose peer sends a long body: with
    /// the small buffers for requests, each 2 KiB would be an event. A peer that sends few bytes at a time fills no small
    /// buffer, and gets no wide one. By default a socket expects little.
    pub fn expect_much(&self, much: bool) {
        self.0.expects_much.set(much);
    }

    /// Returns whether the next receive is into a wide buffer.
    pub(crate) fn wants_wide(&self) -> bool {
        self.is_connected() || (self.0.expects_much.get() && self.0.has_filled.get())
    }

    /// Notes whether the bytes of the last receive would have filled a small buffer.
    pub(crate) fn note_filled(&self, has_filled: bool) {
        self.0.has_filled.set(has_filled);
    }

    /// Notes the kind of buffer that the receive which begins now takes.
    pub(crate) fn set_takes_wide(&self, wide: bool) {
        self.0.takes_wide.set(wide);
    }

    pub(crate) fn takes_wide(&self) -> bool {
        self.0.takes_wide.get()
    }

    /// Marks a socket that is connected to a server.
    pub(crate) fn mark_connected(&self) {
        self.0.is_connected.set(true);
    }

    /// Returns whether it is a socket that was connected to a server, not one that was accepted.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.is_connected.get()
    }

    /// Marks a socket whose peer has ended its side; the mark stays.
    pub(crate) fn mark_ended(&self) {
        self.0.ended.set(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.get()
    }

    /// Marks a file of which a read has ended.
    pub(crate) fn mark_read(&self) {
        self.0.was_read.set(true);
    }

    /// Notes whether the kernel's readahead is switched off for a file.
    pub(crate) fn set_random(&self, is_random: bool) {
        self.0.is_random.set(is_random);
    }

    pub(crate) fn is_random(&self) -> bool {
        self.0.is_random.get()
    }

    /// Marks a file whose reads pass by the page cache.
    pub(crate) fn mark_direct(&self) {
        self.0.is_direct.set(true);
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.0.is_direct.get()
    }

    /// Notes that the kernel reports acknowledgements.
    pub(crate) fn count_acknowledged(&self) {
        let _ = self.0.acknowledged.get_or_init(Box::default);
    }

    /// The bytes that the peer has acknowledged, if the kernel was asked to report them.
    pub(crate) fn acknowledged(&self) -> Option<&RefCell<Acknowledged>> {
        self.0.acknowledged.get().map(|acknowledged| &**acknowledged)
    }

    /// Returns whether a read of the file has ended, and no operation is bringing the positions of its blocks into
    /// memory. Then the metadata for a read is in memory, as far as the ring knows.
    pub(crate) fn was_read(&self) -> bool {
        self.0.was_read.get() && !self.0.is_unmapped.get()
    }

    /// Notes whether the positions of its blocks are being brought into memory.
    pub(crate) fn set_unmapped(&self, is_unmapped: bool) {
        self.0.is_unmapped.set(is_unmapped);
    }

    /// The device of a file or directory. After the first [`Stat`](crate::Stat) it is the device of that, and before it
    /// the device that the [`Op::Open`](crate::Op::Open) was counted against.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device.get()
    }

    pub(crate) fn set_device(&self, device: Device) {
        self.0.device.set(device);
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.handle.as_ref().expect("taken only by drop")
    }

    /// The descriptor, for direct system calls that cannot sleep.
    ///
    /// # Panics
    ///
    /// If it belongs to the simulation.
    #[must_use]
    pub fn os(&self) -> BorrowedFd<'_> {
        match self.handle() {
            Handle::Socket(fd) | Handle::Lingering(fd) | Handle::File(fd) => fd.as_fd(),
            Handle::Shared(fd) => fd.as_fd(),
            Handle::Sim(number) => panic!("descriptor {number} is simulated"),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            if self.closing.orphaned.get() {
                drop(handle);
            } else {
                self.closing.handles.borrow_mut().push((handle, self.device.get()));
            }
        }
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fd({})", self.raw())
    }
}

//! Sending and receiving between sockets and memory that is registered with an io_uring, and the
//! socket option of `MSG_ZEROCOPY`.

use core::mem::ManuallyDrop;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// A ring, and memory that the kernel has pinned for it. Operations reach nothing else.
pub(crate) struct Registered {
    ring: IoUring,
    /// Not freed before all operations have ended: see `drop`.
    memory: ManuallyDrop<Box<[u8]>>,
    /// Receives in flight: as long as there are any, the memory is not read.
    receives: usize,
    /// Operations that have not ended yet, receives among them.
    in_flight: usize,
}

impl Drop for Registered {
    /// Cancels the operations under way, and waits for them. The kernel pins the pages: if they were
    /// freed too early, another owner would have them when the kernel writes to them.
    fn drop(&mut self) {
        /// Before Linux 6.0 there is no such call, and operations on a dead socket end by themselves.
        const TRIES: u32 = 100;
        const NAP: core::time::Duration = core::time::Duration::from_millis(10);
        for _ in 0..TRIES {
            while self.next().is_some() {}
            if self.in_flight == 0 {
                // SAFETY: self is being dropped, so the memory is not used again; nor does the kernel,
                // for all operations have ended.
                unsafe { ManuallyDrop::drop(&mut self.memory) };
                return;
            }
            // Queued entries that the kernel does not have yet are submitted as well; ended operations
            // are not found.
            let _ = self.ring.submit();
            let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
            if self.ring.completion().is_empty() {
                std::thread::sleep(NAP);
            }
        }
        // Leaked rather than freed under the kernel's hands.
    }
}

impl core::fmt::Debug for Registered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Registered").field("receives", &self.receives).finish_non_exhaustive()
    }
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The number of bytes received, or an error number below 0.
    Received(u64, i32),
    /// The number of bytes the socket took, or an error number below 0.
    Sent(u64, i32),
    /// The kernel is through with the memory of a send, and whether it had copied it.
    Released(bool),
}

/// Set in `user_data` of receives.
const RECEIVE: u64 = 1 << 32;

impl Registered {
    /// Takes memory that begins with these bytes.
    pub(crate) fn new(memory: Box<[u8]>) -> io::Result<Self> {
        /// As many sockets at the same time.
        const ENTRIES: u32 = 64;
        let (ring, memory) = (IoUring::new(ENTRIES)?, ManuallyDrop::new(memory));
        let mut this = Self { ring, memory, receives: 0, in_flight: 0 };
        let all =
            libc::iovec { iov_base: this.memory.as_mut_ptr().cast(), iov_len: this.memory.len() };
        // SAFETY: the memory lives until all operations have ended (drop).
        unsafe { this.ring.submitter().register_buffers(&[all]) }?;
        Ok(this)
    }

    /// Receives into all of the memory.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        let len = u32::try_from(self.memory.len()).map_err(io::Error::other)?;
        let (fd, start) = (Fd(socket.as_raw_fd()), self.memory.as_mut_ptr());
        let entry = opcode::ReadFixed::new(fd, start, len, 0).build();
        self.push(&entry.user_data(RECEIVE | u64::from(token)))?;
        self.receives += 1;
        Ok(())
    }

    /// Sends a part of the memory with zero-copy (`IORING_OP_SEND_ZC`, Linux 6.0), completely or not at
    /// all.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        part: core::ops::Range<usize>,
        token: u32,
    ) -> io::Result<()> {
        /// `IORING_SEND_ZC_REPORT_USAGE`, Linux 6.2.
        const REPORT_USAGE: u16 = 1 << 3;
        let bytes = &self.memory[part];
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let entry = opcode::SendZc::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), len)
            .buf_index(Some(0))
            .flags(libc::MSG_NOSIGNAL)
            .zc_flags(REPORT_USAGE)
            .build();
        self.push(&entry.user_data(u64::from(token)))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.ring.submit()?;
        }
        // SAFETY: the entry points into the memory alone, which lives until it has ended (drop); receives
        // are counted, and `memory` below gives no reference while there are any.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Submits the queued entries, and waits for a completion. An interruption is no error.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Something that has ended.
    pub(crate) fn next(&mut self) -> Option<Done> {
        /// `IORING_NOTIF_USAGE_ZC_COPIED`.
        const COPIED: i32 = i32::MIN;
        let entry = self.ring.completion().next()?;
        let (token, result) = (entry.user_data(), entry.result());
        // A zero-copy send has two completions: the kernel has taken the bytes, and it has released the
        // memory.
        self.in_flight -= usize::from(!cqueue::more(entry.flags()));
        Some(if token & RECEIVE != 0 {
            self.receives -= 1;
            Done::Received(token & !RECEIVE, result)
        } else if cqueue::notif(entry.flags()) {
            Done::Released(result & COPIED != 0)
        } else {
            Done::Sent(token, result)
        })
    }

    /// The memory; no receive may be in flight.
    pub(crate) fn memory(&self) -> &[u8] {
        assert_eq!(self.receives, 0, "the kernel is writing to it");
        &self.memory
    }
}

/// `SO_ZEROCOPY` (socket(7), Linux 4.14): sends may ask for `MSG_ZEROCOPY`.
pub(crate) fn allow_zerocopy(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
    // SAFETY: the option takes an int, and the length is that of one.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const on).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    #[test]
    fn memory_is_given_back_while_a_receive_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let mut registered = match Registered::new(vec![0; 4096].into_boxed_slice()) {
            Ok(registered) => registered,
            Err(error) => return testkit::announce_skip(format_args!("no io_uring: {error}")),
        };
        registered.receive(server.as_fd(), 7).unwrap();
        client.write_all(b"first").unwrap();
        registered.wait().unwrap();
        assert_eq!(registered.next(), Some(Done::Received(7, 5)));
        assert_eq!((&registered.memory()[..5], registered.in_flight), (&b"first"[..], 0));
        registered.receive(server.as_fd(), 7).unwrap();
        registered.ring.submit().unwrap();
        let start = std::time::Instant::now();
        drop(registered);
        assert!(start.elapsed() < core::time::Duration::from_millis(500), "cancelled at once");
        // The receiver is gone, so the data stays in the socket.
        client.write_all(b"second").unwrap();
        drop(client);
        let mut rest = Vec::new();
        io::Read::read_to_end(&mut &server, &mut rest).unwrap();
        assert_eq!(rest, b"second");
    }
}

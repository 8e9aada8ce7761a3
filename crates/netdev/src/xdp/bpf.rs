//! Maps, programs and links by bpf(2).

use core::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// The kind of attachment (`BPF_XDP`).
const BPF_XDP: u32 = 37;
/// The program accepts frames in several pieces, and sees only the first piece.
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Bytes of a name, with the zero.
const NAME: [u8; 16] = *b"samum\0\0\0\0\0\0\0\0\0\0\0";

/// The hook at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// In the kernel's receive path, with any driver.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "in native mode",
            Self::Generic => "in generic mode",
        })
    }
}

/// An array of AF_XDP sockets.
#[derive(Debug)]
pub(crate) struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            map_type: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries: u32,
            flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            name: [u8; 16],
        }
        let attributes = Attributes {
            map_type: BPF_MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries,
            flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            name: NAME,
        };
        // SAFETY: the attributes have no pointers.
        unsafe { create(BPF_MAP_CREATE, &attributes) }.map(|fd| Self { fd })
    }

    pub(crate) fn raw_fd(&self) -> u32 {
        self.fd.as_raw_fd().cast_unsigned()
    }

    /// Lets the program put frames of a queue into a socket.
    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map_fd: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd();
        let attributes = Attributes {
            map_fd: self.raw_fd(),
            padding: 0,
            key: &raw const queue as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        // SAFETY: `key` and `value` point to four bytes each, as the map was made with, and live until
        // the call returns.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attributes) }.map(drop)
    }
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
}

impl Program {
    pub(crate) fn load(instructions: &[u64]) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            program_type: u32,
            instruction_count: u32,
            instructions: u64,
            licence: u64,
            log_level: u32,
            log_bytes: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
            name: [u8; 16],
            interface: u32,
            expected_attach_type: u32,
        }
        let licence = c"MIT OR Apache-2.0";
        let attributes = Attributes {
            program_type: BPF_PROG_TYPE_XDP,
            instruction_count: u32::try_from(instructions.len()).expect("a short program"),
            instructions: instructions.as_ptr() as u64,
            licence: licence.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: BPF_F_XDP_HAS_FRAGS,
            name: NAME,
            interface: 0,
            expected_attach_type: BPF_XDP,
        };
        // SAFETY: `instructions` points to as many instructions of eight bytes as the count says, and
        // `licence` to a string with a zero at its end. Both live until the call returns.
        unsafe { create(BPF_PROG_LOAD, &attributes) }.map(|fd| Self { fd })
    }

    /// Attaches the program to an interface until the link is dropped, or the process ends.
    pub(crate) fn attach(&self, interface: u32, mode: Mode) -> io::Result<Link> {
        #[repr(C)]
        struct Attributes {
            program_fd: u32,
            interface: u32,
            attach_type: u32,
            flags: u32,
        }
        let attributes = Attributes {
            program_fd: self.fd.as_raw_fd().cast_unsigned(),
            interface,
            attach_type: BPF_XDP,
            flags: match mode {
                Mode::Native => XDP_FLAGS_DRV_MODE,
                Mode::Generic => XDP_FLAGS_SKB_MODE,
            },
        };
        // SAFETY: the attributes have no pointers.
        unsafe { create(BPF_LINK_CREATE, &attributes) }.map(|fd| Link { _fd: fd })
    }
}

/// The attachment of a program, which ends when the link is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    _fd: OwnedFd,
}

/// Calls bpf(2) with a command that returns a descriptor.
///
/// # Safety
///
/// As for [`bpf`].
unsafe fn create<A>(command: i32, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: bpf(2) has just made the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2).
///
/// # Safety
///
/// `attributes` is the begin of the command's variant of `union bpf_attr`, and its pointers are valid for the
/// command.
unsafe fn bpf<A>(command: i32, attributes: &A) -> io::Result<i32> {
    let attributes = core::ptr::from_ref(attributes);
    // SAFETY: the attributes live until the call returns, and the kernel reads no more than the size.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<A>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(io::Error::other)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const BPF_PROG_TEST_RUN: i32 = 10;

    /// Runs a program with a frame, and returns its result.
    pub(crate) fn run(program: &Program, frame: &[u8]) -> io::Result<u32> {
        #[repr(C)]
        struct Attributes {
            program_fd: u32,
            result: u32,
            data_bytes_in: u32,
            data_bytes_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
        }
        let mut attributes = Attributes {
            program_fd: program.fd.as_raw_fd().cast_unsigned(),
            result: 0,
            data_bytes_in: u32::try_from(frame.len()).expect("a frame"),
            data_bytes_out: 0,
            data_in: frame.as_ptr() as u64,
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        let pointer = &raw mut attributes;
        // SAFETY: `data_in` points to as many bytes as `data_bytes_in` says; the attributes and they live
        // until the call returns, which writes to `result` and `duration`.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, pointer, size_of::<Attributes>())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes.result) }
    }
}

//! Frames by AF_XDP: a program at the interface chooses them, and rings in shared memory carry them
//! (Documentation/networking/af_xdp.rst of Linux).

use std::io;
use std::os::fd::AsFd as _;

use rustix::io::Errno;

use crate::error::Error;
use crate::interface::Interface;
use crate::patience::{is, with_patience};
use bpf::{Link, Program, SocketMap};

mod assembler;
mod bpf;
mod program;
mod ring;
mod socket;

pub(crate) use bpf::Mode;
pub(crate) use program::{TCP, Taken, UDP};
pub(crate) use socket::Socket;

/// The program of an interface. It stays attached until this value is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Attachment {
    _link: Link,
}

/// Opens a socket for each queue of an interface that is in use, and then attaches the program.
pub(crate) fn open(
    interface: &Interface,
    taken: &Taken,
    mode: Mode,
    held_max: usize,
) -> Result<(Vec<Socket>, Attachment), Error> {
    let failed = |what: &str| {
        let what = format!("interface {}: {what}", interface.name);
        move |source| Error::system(what, source)
    };
    let map = SocketMap::new(interface.rx_queues).map_err(failed("making the map of sockets"))?;
    let mut sockets = Vec::new();
    for queue in 0..interface.rx_queues {
        let socket = match with_patience(|| open_queue(interface, queue, mode, held_max)) {
            // EINVAL means a queue that is allocated but not in use (xsk_reg_pool_at_qid in net/xdp/xsk.c): no
            // queue behind it is in use either. All other arguments are the same as for queue 0.
            Err(error) if queue > 0 && is(&error, Errno::INVAL) => break,
            result => result.map_err(|source| socket_error(interface, queue, held_max, source))?,
        };
        map.set(queue, socket.as_fd()).map_err(failed("filling the map of sockets"))?;
        sockets.push(socket);
    }
    let instructions = program::assemble(taken, map.raw_fd(), program::XDP_PASS);
    // The program keeps the map, and the link keeps the program.
    let program = Program::load(&instructions).map_err(failed("loading the XDP program"))?;
    let link = with_patience(|| program.attach(interface.index, mode));
    let link = link.map_err(|source| attach_error(interface, source))?;
    Ok((sockets, Attachment { _link: link }))
}

/// Opens a socket for a queue. A queue that is not in use gives EINVAL, even if its memory would exceed the limit. The
/// kernel itself checks the memory first.
fn open_queue(
    interface: &Interface,
    queue: u32,
    mode: Mode,
    held_max: usize,
) -> io::Result<Socket> {
    let opened = Socket::open(interface, queue, mode, held_max);
    let is_too_much = opened.as_ref().is_err_and(|error| is(error, Errno::NOBUFS));
    if is_too_much && !socket::is_in_use(interface, queue) {
        return Err(Errno::INVAL.into());
    }
    opened
}

fn socket_error(interface: &Interface, queue: u32, held_max: usize, source: io::Error) -> Error {
    if is(&source, Errno::NOBUFS) {
        return memory_error(interface, queue, held_max, source);
    }
    let advice = match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => "another process has this queue",
        Some(Errno::AFNOSUPPORT) => "the kernel lacks CONFIG_XDP_SOCKETS: use a TAP device",
        _ => "use a TAP device if the kernel or the driver cannot do it",
    };
    let what = format!("interface {}: an AF_XDP socket for queue {queue}", interface.name);
    Error::system(what, source).advise(advice)
}

/// The error for a queue without memory: it names the memory that all queues in use need.
fn memory_error(interface: &Interface, queue: u32, held_max: usize, source: io::Error) -> Error {
    let mut behind = queue + 1..interface.rx_queues;
    let first_unused = behind.find(|queue| !socket::is_in_use(interface, *queue));
    let queues = first_unused.unwrap_or(interface.rx_queues);
    let bytes = queues as usize * Socket::memory_bytes(interface, held_max) + socket::PROBE_BYTES;
    let kib = bytes / 1024;
    let what = format!("interface {}: memory for the frames of queue {queue}", interface.name);
    Error::system(what, source).advise(format!(
        "its receive queues ({queues}) need {kib} KiB of locked memory: raise the limit, which is for all processes of \
         the user (`LimitMEMLOCK={kib}K` of systemd, `ulimit -l {kib}`), or use fewer queues (`ethtool -L`)"
    ))
}

fn attach_error(interface: &Interface, source: io::Error) -> Error {
    let advice = match Errno::from_io_error(&source) {
        Some(Errno::BUSY | Errno::EXIST) => {
            "another XDP program is there: `ip link show` names it, `bpftool net` says whose it is"
        }
        _ => "use a TAP device if the driver cannot do it",
    };
    let what = format!("interface {}: attaching the XDP program", interface.name);
    Error::system(what, source).advise(advice)
}

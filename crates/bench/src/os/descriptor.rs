//! Descriptors and sockets: the N-th of each kind.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::mpsc;
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use super::steps;
use crate::clock::time;
use crate::suite::{Fault, Recorder, Test};
use crate::sys::process::with_own_descriptors;
use crate::sys::socket::{adopt, bind_without_port};
use crate::sys::uring::{Ask, Ring};

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("socket", "Latency of socket() with N sockets open", sockets)
            .scales("the N-th socket takes as long as the first")
            .x("open sockets")
            .steps(6000, 60),
        Test::new("bind", "Latency of bind() to a free port with N ports bound", binds)
            .scales("a free port is found as fast when most are taken")
            .x("bound sockets")
            .steps(12_000, 60),
        Test::new("connect", "Latency of connect() from a port that the kernel chooses", connects)
            .scales("the N-th connection to one server takes as long as the first")
            .x("open connections")
            .steps(6000, 60),
        Test::new("open", "Latency of opening the N-th descriptor", opens)
            .scales("the lowest free number is found as fast among many as among few")
            .x("open descriptors")
            .steps(15_000, 60),
        Test::new("table", "Threads that wait while the table of descriptors grows", tables)
            .scales(
                "the N-th descriptor takes as long as the first; but in a process with threads, opening the one \
                 that makes the table double waits until no CPU can use the old table (expand_fdtable in \
                 fs/file.c)",
            )
            .x("open descriptors")
            .steps(15_000, 600),
        Test::new("eventfd", "Latency of making and using an eventfd with N open", eventfds)
            .scales("making and using the N-th takes as long as the first")
            .x("open eventfds")
            .steps(15_000, 60),
        Test::new("accept", "Time from connect() until the connection is accepted", accepts)
            .scales("the N-th connection is accepted as fast as the first")
            .x("accepted connections")
            .warm_up("none; one thread connects and accepts")
            .steps(5000, 60),
    ]
}

fn stream() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

fn sockets(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    let kinds = [
        ("TCP", AddressFamily::INET, SocketType::STREAM),
        ("UDP", AddressFamily::INET, SocketType::DGRAM),
        ("Unix", AddressFamily::UNIX, SocketType::STREAM),
    ];
    for (system, family, kind) in kinds {
        let mut open = Vec::with_capacity(n);
        steps(recorder, system, ["socket()"], n, |_| {
            let (took, fd) = time(|| socket_with(family, kind, SocketFlags::CLOEXEC, None));
            open.push(fd?);
            Ok([took])
        })?;
    }
    Ok(())
}

fn binds(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    for (system, kind) in [("TCP", SocketType::STREAM), ("UDP", SocketType::DGRAM)] {
        let mut open = Vec::with_capacity(n);
        steps(recorder, system, ["bind to port 0"], n, |_| {
            let fd = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
            let (took, result) = time(|| bind(&fd, &any_port()));
            result?;
            open.push(fd);
            Ok([took])
        })?;
    }
    Ok(())
}

fn any_port() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)
}

/// The choice of the client's address.
#[derive(Clone, Copy)]
enum Own {
    /// By connect().
    None,
    /// By bind() to port 0.
    Bound,
    /// By connect(), the address by bind() (`IP_BIND_ADDRESS_NO_PORT`, ip(7), Linux 4.2).
    Late,
}

fn connects(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(2);
    let ways = [
        ("connect", Own::None),
        ("bind to port 0, connect", Own::Bound),
        ("bind without port, connect", Own::Late),
    ];
    for (system, own) in ways {
        let (listener, address) = listener()?;
        let mut open = Vec::with_capacity(n);
        steps(recorder, system, ["until connected"], n, |_| {
            let fd = stream()?;
            if matches!(own, Own::Late) {
                bind_without_port(fd.as_fd())?;
            }
            let (took, result) = time(|| {
                if !matches!(own, Own::None) {
                    bind(&fd, &any_port())?;
                }
                connect(&fd, &address)
            });
            result?;
            open.push((listener.accept()?.0, fd));
            Ok([took])
        })?;
        close_hard(open.into_iter().map(|(server, client)| (client, OwnedFd::from(server))));
    }
    Ok(())
}

/// A listener on a free port of the loopback.
fn listener() -> io::Result<(TcpListener, SocketAddr)> {
    /// Connections wait for us here one at a time.
    const BACKLOG: i32 = 128;
    let fd = stream()?;
    bind(&fd, &any_port())?;
    listen(&fd, BACKLOG)?;
    let listener = TcpListener::from(fd);
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Closes connections with RST: thousands in TIME_WAIT would disturb the next steps.
fn close_hard(connections: impl Iterator<Item = (OwnedFd, OwnedFd)>) {
    for (client, server) in connections {
        // Else it closes in the usual way.
        let _ = rustix::net::sockopt::set_socket_linger(&client, Some(core::time::Duration::ZERO));
        drop(client);
        drop(server);
    }
}

fn opens(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    let null = File::open("/dev/null")?;
    let mut open = Vec::with_capacity(n);
    steps(recorder, "/dev/null", ["open"], n, |_| {
        let (took, file) = time(|| File::open("/dev/null"));
        open.push(file?);
        Ok([took])
    })?;
    open.clear();
    let mut open = Vec::with_capacity(n);
    steps(recorder, "/dev/null", ["dup"], n, |_| {
        let (took, fd) = time(|| rustix::io::dup(&null));
        open.push(fd?);
        Ok([took])
    })
}

fn tables(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    for (system, beside) in [("one thread", false), ("two threads", true)] {
        let times = with_own_descriptors(move || if beside { dups_beside(n) } else { dups(n) });
        match times.and_then(|times| times) {
            Ok(times) => steps(recorder, system, ["dup"], n, |i| Ok([times[i - 1]]))?,
            Err(error) => recorder.skip(system, error.to_string()),
        }
    }
    Ok(())
}

fn dups(n: usize) -> io::Result<Vec<f64>> {
    let null = File::open("/dev/null")?;
    let (mut open, mut times) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for _ in 0..n {
        let (took, fd) = time(|| rustix::io::dup(&null));
        open.push(fd?);
        times.push(took);
    }
    Ok(times)
}

/// As `dups`, with a second thread, which sleeps.
fn dups_beside(n: usize) -> io::Result<Vec<f64>> {
    let (end, ended) = mpsc::channel::<()>();
    let sleeper = thread::Builder::new().spawn(move || ended.recv())?;
    let times = dups(n);
    drop(end);
    // The thread ends with an error, because nothing was sent.
    let _ = sleeper.join();
    times
}

fn eventfds(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(1);
    let mut open = Vec::with_capacity(n);
    steps(recorder, "eventfd", ["make", "write and read"], n, |_| {
        let (make, fd) = time(|| eventfd(0, EventfdFlags::CLOEXEC));
        let fd = fd?;
        let (used, result) = time(|| {
            rustix::io::write(&fd, &1_u64.to_ne_bytes())?;
            rustix::io::read(&fd, &mut [0; 8])
        });
        result?;
        open.push(fd);
        Ok([make, used])
    })
}

fn accepts(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let n = recorder.steps_within_descriptors(2);
    let series = ["until accepted"];
    let (listening, address) = listener()?;
    let mut open = Vec::with_capacity(n);
    steps(recorder, "accept4", series, n, |_| {
        let client = stream()?;
        let (took, server) = time(|| {
            connect(&client, &address)?;
            accept_with(&listening, SocketFlags::CLOEXEC)
        });
        open.push((client, server?));
        Ok([took])
    })?;
    close_hard(open.into_iter());

    for (system, all) in [("io_uring accept", false), ("io_uring multishot accept", true)] {
        let (listening, address) = listener()?;
        let mut ring = match Ring::new(8, 64) {
            Ok(ring) => ring,
            Err(error) => {
                recorder.skip(system, format!("no io_uring: {error}"));
                continue;
            }
        };
        let ask = |all: bool| if all { Ask::AcceptAll } else { Ask::Accept };
        let ask = ask(all)(listening.as_raw_fd());
        let mut open = Vec::with_capacity(n);
        let mut is_armed = false;
        steps(recorder, system, series, n, |_| {
            let client = stream()?;
            if all && !is_armed {
                ring.push(ask, 0)?;
                ring.submit()?;
                is_armed = true;
            }
            let (took, answer) = time(|| -> io::Result<_> {
                if !all {
                    ring.push(ask, 0)?;
                    ring.submit()?;
                }
                connect(&client, &address)?;
                ring.wait()?;
                Ok(ring.next())
            });
            let answer = answer?.ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?;
            is_armed = answer.more;
            open.push((client, adopt(answer.result)?));
            Ok([took])
        })?;
        close_hard(open.into_iter());
        // The ring goes before the listener that it may still accept from.
        drop(ring);
        drop(listening);
    }
    Ok(())
}

//! Listening sockets, and errors that say what to do about them.

use core::net::SocketAddr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use ring::Fd;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, listen, socket_with, sockopt,
};

use crate::config::Address;

/// Open one listening socket per worker, all for the same address. `backlog` connections wait to be
/// accepted at each; the kernel caps it at `net.core.somaxconn`.
pub(crate) fn open(
    address: &Address,
    workers: usize,
    backlog: i32,
) -> Result<Vec<OwnedFd>, String> {
    match address {
        Address::Ip(ip) => open_ip(*ip, workers, backlog).map_err(|error| explain(address, error)),
        Address::Unix(path) => {
            open_unix(path, workers, backlog).map_err(|error| explain(address, error))
        }
    }
}

fn open_ip(address: SocketAddr, workers: usize, backlog: i32) -> Result<Vec<OwnedFd>, Errno> {
    if workers > 1 {
        // One that does not share fails where another server listens, be it one that would.
        socket_for(&address, false)?;
    }
    let mut address = address;
    let mut all = Vec::new();
    for _ in 0..workers {
        // One socket per worker: the kernel spreads connections, and no worker wakes for another's.
        let socket = socket_for(&address, workers > 1)?;
        // Accepted sockets inherit it. Responses leave as whole as they can be made (MSG_MORE).
        sockopt::set_tcp_nodelay(&socket, true)?;
        listen(&socket, backlog)?;
        if address.port() == 0 {
            address = local(&socket).ok_or(Errno::INVAL)?;
        }
        all.push(socket);
    }
    Ok(all)
}

/// A socket bound to an address, which others may have as well if it is `shared`.
fn socket_for(address: &SocketAddr, shared: bool) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    if family == AddressFamily::INET6 {
        // `[::]` is IPv6 alone; who wants both lists both.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, address)?;
    Ok(socket)
}

fn open_unix(path: &Path, workers: usize, backlog: i32) -> Result<Vec<OwnedFd>, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = make()?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE)
            if is_socket(path)
                && rustix::net::connect(make()?, &address) == Err(Errno::CONNREFUSED) =>
        {
            // A server that has gone left it behind.
            rustix::fs::unlink(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        Err(error) => return Err(error),
    }
    listen(&socket, backlog)?;
    let mut all = vec![socket];
    while all.len() < workers {
        all.push(rustix::io::fcntl_dupfd_cloexec(&all[0], 0)?);
    }
    Ok(all)
}

/// Connecting to anything else is refused as well.
fn is_socket(path: &Path) -> bool {
    let stat = rustix::fs::lstat(path);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

fn local(socket: &OwnedFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}

/// Where a socket listens, the port that the kernel chose included.
pub(crate) fn name(socket: &OwnedFd, address: &Address) -> String {
    match (address, local(socket)) {
        (Address::Ip(_), Some(ip)) => format!("http://{ip}/"),
        _ => address.to_string(),
    }
}

/// Who is at the other end, for the log.
pub(crate) fn peer_name(socket: &Fd) -> Box<str> {
    let any = rustix::net::getpeername(socket.os()).ok().flatten();
    match any.and_then(|any| SocketAddr::try_from(any).ok()) {
        Some(address) => address.ip().to_string().into(),
        None => "unix:".into(),
    }
}

fn explain(address: &Address, error: Errno) -> String {
    let advice = match (error, address) {
        (Errno::ACCESS | Errno::PERM, Address::Ip(ip)) if ip.port() < 1024 => {
            let other = SocketAddr::new(ip.ip(), 8080);
            format!(" (ports below 1024 need CAP_NET_BIND_SERVICE; try --listen {other})")
        }
        (Errno::ADDRINUSE, Address::Ip(ip)) => {
            let port = ip.port();
            format!(" (another server has port {port}: `ss -ltnp 'sport = :{port}'` names it)")
        }
        (Errno::ADDRINUSE, Address::Unix(_)) => {
            " (a server listens there, or it is no socket: stop or remove it)".to_owned()
        }
        (Errno::ADDRNOTAVAIL, _) => {
            " (no interface of this machine has that address: `ip addr` lists them)".to_owned()
        }
        (Errno::NOENT, Address::Unix(path)) => {
            let dir = path.parent().unwrap_or(path).display();
            format!(" (the directory {dir} must exist)")
        }
        (Errno::AFNOSUPPORT, _) => {
            " (this kernel has no IPv6; listen on an IPv4 address)".to_owned()
        }
        _ => String::new(),
    };
    let what = io::Error::from(error).to_string();
    let what = what.split(" (os error").next().unwrap_or_default().to_lowercase();
    format!("cannot listen on {address}: {what}{advice}")
}

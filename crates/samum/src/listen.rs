//! Listening sockets, and errors that say what to do.

mod socket_file;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::fs::{Access, Gid, MemfdFlags, Mode, Uid};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, listen, socket_with, sockopt,
};
use rustix::process::{getegid, geteuid};

use crate::account;
use config::errno::words;
use config::{Address, Listen, UnixSocket};
use rights::User;
pub(crate) use socket_file::SocketFile;
use socket_file::{Identity, Node, lock_directory, remove};

/// The time for which an address may be in use before that is an error. The kernel closes the descriptors of an
/// io_uring a moment after its process has ended (`io_ring_exit_work` in io_uring/io_uring.c). So the listeners of a
/// killed server still exist when its successor starts at once.
const IN_USE_MAX: Duration = Duration::from_secs(1);
/// The pause between two tries in that time.
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// The number of the control socket among the names of sockets. No listener has it.
pub(crate) const CONTROL: u32 = u32::MAX;
/// Connections that may wait to be accepted at one listener.
pub(crate) const BACKLOG_MAX: usize = 4096;
/// The least number of them.
const BACKLOG_MIN: usize = 8;

/// Returns the number of connections that may wait at each of `listeners`, if `waiting_max` may wait at all listeners
/// together.
pub(crate) fn backlog(waiting_max: usize, listeners: usize) -> i32 {
    let each = (waiting_max / listeners.max(1)).clamp(BACKLOG_MIN, BACKLOG_MAX);
    i32::try_from(each).expect("a small number")
}

/// Opens one listening socket per worker, all for the same address, and the file of a Unix socket. At
/// most `backlog` connections wait to be accepted at each socket; the kernel limits it to
/// `net.core.somaxconn`.
pub(crate) fn open(
    address: &Address,
    workers: usize,
    backlog: i32,
) -> Result<(Vec<OwnedFd>, Option<SocketFile>), String> {
    let opened = match address {
        Address::Ip(ip) => insist(|| open_ip(*ip, workers, backlog)).map(|sockets| (sockets, None)),
        Address::Unix(unix) => {
            let owner = Owner::look_up(unix).map_err(|why| cannot_listen(address, &why))?;
            insist(|| open_unix(unix, &owner, workers, backlog))
                .map(|(sockets, file)| (sockets, Some(file)))
        }
    };
    opened.map_err(|error| explain(address, error))
}

/// The address for a server that becomes another user. A Unix socket whose owner is not said belongs to that user.
pub(crate) fn owned_by(address: &Address, user: Option<&User>) -> Address {
    match (address, user) {
        (Address::Unix(socket), Some(user)) if !user.is_own() => {
            let mut socket = socket.clone();
            socket.user.get_or_insert_with(|| user.uid.to_string());
            socket.group.get_or_insert_with(|| user.gid.to_string());
            Address::Unix(socket)
        }
        _ => address.clone(),
    }
}

/// Takes the sockets of a listener from the process before, or from a service manager: for each worker at least one. No
/// socket of an IP address is closed, because clients may wait in its accept queue. Further sockets do not listen before
/// [`begin`]. `file` is the file of a Unix socket.
///
/// # Errors
///
/// A sentence for the operator, if a socket is of another kind or has another address.
pub(crate) fn adopt(
    address: &Address,
    sockets: Vec<OwnedFd>,
    file: Option<(u64, u64)>,
    workers: usize,
) -> Result<(Vec<Vec<OwnedFd>>, Option<SocketFile>), String> {
    let cannot =
        |why: &str| format!("cannot listen on {address} at a socket that was handed over: {why}");
    for socket in &sockets {
        check_handed_over(address, socket).map_err(|why| cannot(&why))?;
    }
    let Some(first) = sockets.first() else { return Err(cannot("there is none")) };
    let mut more = Vec::new();
    for _ in sockets.len()..workers {
        // If no further socket can be made, workers share one.
        let made = match address {
            Address::Ip(_) => further(first).ok(),
            Address::Unix(_) => None,
        };
        let made = made.map_or_else(|| rustix::io::fcntl_dupfd_cloexec(first, 3), Ok);
        more.push(made.map_err(|error| cannot(&io::Error::from(error).to_string()))?);
    }
    let mut all: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    for (index, socket) in sockets.into_iter().chain(more).enumerate() {
        // All descriptors of a Unix listener are of one socket, so the close of one of them loses no waiting client.
        if index < workers || matches!(address, Address::Ip(_)) {
            all[index % workers].push(socket);
        }
    }
    let file = match (address, file) {
        (Address::Unix(unix), Some(file)) => {
            let identity = Identity::of_numbers(file);
            let rights = Rights::look_up(unix, unix, Some(identity))?;
            if rights.differ() {
                change_rights(&[rights])?;
            }
            Some(SocketFile::handed_over(&unix.path, identity))
        }
        _ => None,
    };
    Ok((all, file))
}

/// Takes the control socket from the process before.
pub(crate) fn adopt_one(
    unix: &UnixSocket,
    socket: OwnedFd,
    file: (u64, u64),
) -> Result<(OwnedFd, SocketFile), String> {
    let address = Address::Unix(unix.clone());
    check_handed_over(&address, &socket)
        .map_err(|why| format!("cannot take the control socket over: {why}"))?;
    let file = SocketFile::handed_over(&unix.path, Identity::of_numbers(file));
    Ok((socket, file))
}

/// Checks that a socket that was handed over listens at an address.
fn check_handed_over(address: &Address, socket: &OwnedFd) -> Result<(), String> {
    let is_listening = sockopt::socket_acceptconn(socket).unwrap_or(false)
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    if !is_listening {
        return Err("it is no socket that listens for streams".to_owned());
    }
    let found =
        rustix::net::getsockname(socket).map_err(|error| io::Error::from(error).to_string())?;
    let is_same = match address {
        Address::Ip(ip) => SocketAddr::try_from(found.clone()).is_ok_and(|found| {
            found.ip() == ip.ip() && (ip.port() == 0 || found.port() == ip.port())
        }),
        // The name of the socket is the path at the bind, which may have been relative. So only the family is compared.
        Address::Unix(_) => found.address_family() == AddressFamily::UNIX,
    };
    if is_same { Ok(()) } else { Err("it has another address".to_owned()) }
}

/// Makes an adopted socket listen, with this number of waiting connections. If it fails, the socket listens as before.
pub(crate) fn begin(socket: &OwnedFd, backlog: i32) {
    let _ = listen(socket, backlog);
}

/// Makes one more socket for the group of a listening socket (`SO_REUSEPORT`). Once it listens, new connections are
/// spread over the group. Until then no client can wait there, so no client is lost if this process fails.
fn further(first: &OwnedFd) -> Result<OwnedFd, Errno> {
    let address = local(first).ok_or(Errno::INVAL)?;
    sockopt::set_socket_reuseport(first, true)?;
    let socket = socket_for(&address, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// Holds a port for the stack of an interface, so that a second server at this address fails, as it does at an address of
/// the kernel's TCP. The socket does not listen, so the kernel refuses connections that the stack does not get.
pub(crate) fn reserve(address: SocketAddr) -> Result<OwnedFd, String> {
    insist(|| reserve_once(&address)).map_err(|error| explain(&Address::Ip(address), error))
}

/// Binds a socket. If two sockets have SO_REUSEADDR and one of them does not listen, the other can listen at the same
/// port. So the option is set only for a second bind, and cleared after it. The second bind is for a port at which the
/// kernel still has the ends of old connections.
fn reserve_once(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket_of(address)?;
    match rustix::net::bind(&socket, address) {
        Ok(()) => Ok(socket),
        Err(Errno::ADDRINUSE) => {
            let socket = socket_for(address, false)?;
            sockopt::set_socket_reuseaddr(&socket, false)?;
            Ok(socket)
        }
        Err(error) => Err(error),
    }
}

/// The result of a check if an address is free for a listener, without listening.
#[derive(Debug)]
pub(crate) enum Probe {
    /// A server could listen. The socket, if there is one, keeps the address until it is dropped.
    Free(Option<OwnedFd>),
    /// Another server listens there. `is_shared` if that server lets other servers of its user listen, too.
    InUse { is_shared: bool, why: String },
}

/// Checks if a server could listen at an address. No client can connect meanwhile.
pub(crate) fn probe(address: &Address) -> Result<Probe, String> {
    let tried = match address {
        Address::Ip(ip) => socket_for(ip, false).map(Some),
        Address::Unix(unix) => {
            let owner = Owner::look_up(unix).map_err(|why| cannot_listen(address, &why))?;
            probe_unix(&unix.path).and_then(|()| owner.probe()).map(|()| None)
        }
    };
    match (tried, address) {
        (Ok(socket), _) => Ok(Probe::Free(socket)),
        (Err(Errno::ADDRINUSE), Address::Ip(ip)) => {
            let is_shared = socket_for(ip, true).is_ok();
            Ok(Probe::InUse { is_shared, why: explain(address, Errno::ADDRINUSE) })
        }
        (Err(Errno::ADDRINUSE), Address::Unix(_)) => {
            Ok(Probe::InUse { is_shared: false, why: explain(address, Errno::ADDRINUSE) })
        }
        (Err(error), _) => Err(explain(address, error)),
    }
}

/// Checks if a Unix socket could be made: no other file is at the path, no server listens there, and its directory can
/// be written to.
fn probe_unix(path: &Path) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    match Node::open(path) {
        Err(Errno::NOENT) => {}
        Ok(_) if !answers(&address) => {}
        Ok(_) | Err(_) => return Err(Errno::ADDRINUSE),
    }
    rustix::fs::access(socket_file::directory_of(path), Access::WRITE_OK | Access::EXEC_OK)
}

/// Device and inode of the Unix socket at a path, if there is one.
pub(crate) fn numbers_at(path: &Path) -> Option<(u64, u64)> {
    Some(Node::open(path).ok()?.identity().numbers())
}

/// Returns true if a server listens at a Unix socket.
pub(crate) fn answers(address: &SocketAddrUnix) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    // A server whose accept queue is full answers with EAGAIN.
    socket.is_ok_and(|socket| {
        matches!(rustix::net::connect(socket, address), Ok(()) | Err(Errno::AGAIN))
    })
}

/// Opens a Unix socket that is not used through a ring. If the address is in use, another server has it: no ring delays
/// the close of such a socket, so there is no second try.
pub(crate) fn open_one(unix: &UnixSocket, backlog: i32) -> Result<(OwnedFd, SocketFile), String> {
    let owner = Owner { user: None, group: None };
    let (mut sockets, file) = open_unix(unix, &owner, 1, backlog)
        .map_err(|error| explain(&Address::Unix(unix.clone()), error))?;
    Ok((sockets.swap_remove(0), file))
}

/// Tries again for [`IN_USE_MAX`] if the address is in use.
fn insist<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let deadline = Instant::now() + IN_USE_MAX;
    loop {
        match open() {
            Err(Errno::ADDRINUSE) if Instant::now() < deadline => thread::sleep(IN_USE_PAUSE),
            result => return result,
        }
    }
}

fn open_ip(address: SocketAddr, workers: usize, backlog: i32) -> Result<Vec<OwnedFd>, Errno> {
    if workers > 1 {
        // A socket without SO_REUSEPORT cannot be bound where another server listens, even if that server allows
        // sharing. So this server never takes another server's connections by mistake.
        socket_for(&address, false)?;
    }
    let mut address = address;
    let mut all = Vec::new();
    for _ in 0..workers {
        // With one socket per worker the kernel spreads the connections, and a connection wakes only one worker.
        let socket = socket_for(&address, workers > 1)?;
        // Accepted sockets inherit the option. MSG_MORE joins bytes that belong together.
        sockopt::set_tcp_nodelay(&socket, true)?;
        listen(&socket, backlog)?;
        if address.port() == 0 {
            address = local(&socket).ok_or(Errno::INVAL)?;
        }
        all.push(socket);
    }
    Ok(all)
}

/// Makes a socket and binds it to an address; `shared` lets other sockets bind to the same address.
fn socket_for(address: &SocketAddr, shared: bool) -> Result<OwnedFd, Errno> {
    let socket = socket_of(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    rustix::net::bind(&socket, address)?;
    Ok(socket)
}

/// Makes a socket for an address.
fn socket_of(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if family == AddressFamily::INET6 {
        // `[::]` means IPv6 only; for both versions, both addresses have to be given.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// The user and group that will own a Unix socket.
#[derive(Clone, Copy)]
struct Owner {
    user: Option<Uid>,
    group: Option<Gid>,
}

impl Owner {
    fn look_up(unix: &UnixSocket) -> Result<Self, String> {
        let user = unix.user.as_deref().map(account::user).transpose()?;
        let group = unix.group.as_deref().map(account::group).transpose()?;
        Ok(Self { user: user.map(Uid::from_raw), group: group.map(Gid::from_raw) })
    }

    /// Checks if this process could give a socket of its own to this owner, by means of a file without a name.
    fn probe(&self) -> Result<(), Errno> {
        if self.user.is_none() && self.group.is_none() {
            return Ok(());
        }
        // If no such file can be made, the check is left out.
        let Ok(file) = rustix::fs::memfd_create(c"samum-owner", MemfdFlags::CLOEXEC) else {
            return Ok(());
        };
        rustix::fs::fchown(file, self.user, self.group)
    }
}

fn open_unix(
    unix: &UnixSocket,
    owner: &Owner,
    workers: usize,
    backlog: i32,
) -> Result<(Vec<OwnedFd>, SocketFile), Errno> {
    let path = &unix.path;
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = make()?;
    // If two servers find a stale socket, the second must not remove the socket that the first has made.
    let lock = lock_directory(path);
    match bind_unix(&socket, unix, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            // A file that is no socket stays, and so does a socket that answers.
            let node = Node::open(path).map_err(|_| Errno::ADDRINUSE)?;
            if rustix::net::connect(make()?, &node.address()?) != Err(Errno::CONNREFUSED) {
                return Err(Errno::ADDRINUSE);
            }
            // The socket is stale: its server has ended.
            remove(path, node.identity())?;
            bind_unix(&socket, unix, &address)?;
        }
        Err(error) => return Err(error),
    }
    let node = Node::open(path).map_err(|_| Errno::STALE)?;
    let file = SocketFile::new(path, node.identity());
    // No client can connect before `listen`, so none connects by earlier rights.
    let ready = give_rights(&node, unix, *owner).and_then(|()| listen(&socket, backlog));
    // The lock is held until the socket listens, because before that it looks stale. If `listen` has
    // failed, `file` takes the lock again to remove the name.
    drop(lock);
    ready?;
    let mut all = vec![socket];
    while all.len() < workers {
        all.push(rustix::io::fcntl_dupfd_cloexec(&all[0], 0)?);
    }
    Ok((all, file))
}

/// Binds a socket to its name, which never has more permissions than `mode`: `bind(2)` uses those of the
/// socket itself, less the umask (`unix_bind_bsd` in net/unix/af_unix.c).
fn bind_unix(socket: &OwnedFd, unix: &UnixSocket, address: &SocketAddrUnix) -> Result<(), Errno> {
    if let Some(mode) = unix.mode {
        rustix::fs::fchmod(socket, Mode::from_raw_mode(mode))?;
    }
    rustix::net::bind(socket, address)
}

/// Gives the file of a newly bound socket its rights. The umask belongs to the whole process, whose other threads may
/// be making files. So the permissions that the umask took away are added here.
fn give_rights(node: &Node, unix: &UnixSocket, owner: Owner) -> Result<(), Errno> {
    let mode = unix.mode.map(Mode::from_raw_mode).filter(|mode| *mode != node.mode());
    let is_changed = mode.is_some() || owner.user.is_some() || owner.group.is_some();
    // A user who may write to the directory may have replaced the new socket by another one meanwhile.
    if is_changed && !node.is_made_by(geteuid()) {
        return Err(Errno::STALE);
    }
    node.give(mode, (owner.user, owner.group))
}

/// The rights that a listening Unix socket is to have.
pub(crate) struct Rights<'s> {
    path: &'s Path,
    /// The file that was made. Another file at its path gets no rights.
    identity: Option<Identity>,
    /// Without a mode the permissions stay, because the umask of the start is no longer known.
    mode: Option<Mode>,
    owner: Owner,
}

impl<'s> Rights<'s> {
    /// The rights that a socket is to have. `before` is the configuration of the socket until now. If only `before` has
    /// an owner, the server becomes the owner.
    pub(crate) fn look_up(
        socket: &'s UnixSocket,
        before: &UnixSocket,
        identity: Option<Identity>,
    ) -> Result<Self, String> {
        let path = &socket.path;
        let Owner { user, group } =
            Owner::look_up(socket).map_err(|why| cannot_change(path, &why))?;
        let user = user.or_else(|| before.user.as_ref().map(|_| geteuid()));
        let group = group.or_else(|| before.group.as_ref().map(|_| getegid()));
        let mode = socket.mode.map(Mode::from_raw_mode);
        Ok(Self { path, identity, mode, owner: Owner { user, group } })
    }

    /// Returns true if the file of the socket has other rights, or is not there.
    fn differ(&self) -> bool {
        let Self { mode, owner: Owner { user, group }, .. } = *self;
        self.node().map_or(true, |node| {
            let (of_user, of_group) = node.owner();
            mode.is_some_and(|mode| mode != node.mode())
                || user.is_some_and(|user| Some(user) != of_user)
                || group.is_some_and(|group| Some(group) != of_group)
        })
    }

    /// Opens the file of the socket, if it still exists.
    fn node(&self) -> Result<Node, String> {
        match Node::open(self.path) {
            Ok(node) if Some(node.identity()) == self.identity => Ok(node),
            Ok(_) | Err(Errno::NOTSOCK) => {
                Err("another file has taken its place (remove that, and restart the server)"
                    .to_owned())
            }
            Err(error) => Err(io::Error::from(error).to_string()),
        }
    }
}

/// The rights that a Unix socket had before a change.
pub(crate) struct Former {
    node: Node,
    mode: Mode,
    owner: (Option<Uid>, Option<Gid>),
}

impl Former {
    /// The rights that a socket has now.
    fn of(node: Node) -> Self {
        Self { mode: node.mode(), owner: node.owner(), node }
    }

    /// Restores them after an error, which is reported to the operator.
    pub(crate) fn restore(&self) {
        let _ = self.node.give(Some(self.mode), self.owner);
    }
}

/// Gives listening Unix sockets other rights: all of them, or none. Returns their earlier rights.
pub(crate) fn change_rights(all: &[Rights<'_>]) -> Result<Vec<Former>, String> {
    let mut before = Vec::new();
    for rights in all {
        let Rights { mode, owner, .. } = *rights;
        let changed = rights.node().and_then(|node| {
            before.push(Former::of(node));
            let node = &before.last().expect("just pushed").node;
            let given = node.give(mode, (owner.user, owner.group));
            given.map_err(|error| io::Error::from(error).to_string())
        });
        if let Err(why) = changed {
            before.iter().for_each(Former::restore);
            return Err(cannot_change(rights.path, &why));
        }
    }
    Ok(before)
}

fn cannot_change(path: &Path, why: &str) -> String {
    format!("cannot change the rights of unix:{}: {why}", path.display())
}

fn local(socket: &OwnedFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}

/// The address of a listener to show, with the port that the kernel chose.
pub(crate) fn name(socket: &OwnedFd, listen: &Listen) -> String {
    match (&listen.address, local(socket)) {
        (Address::Ip(_), Some(ip)) => config::url(ip, listen.tls),
        (address, _) => address.to_string(),
    }
}

/// The port of a listening socket, if the kernel chose it.
pub(crate) fn chosen_port(socket: &OwnedFd, address: &Address) -> Option<u16> {
    local(socket).filter(|_| address.port() == Some(0)).map(|local| local.port())
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
            " (another server listens there, or the file is not a socket: stop the server or remove the file)".to_owned()
        }
        (Errno::ADDRNOTAVAIL, _) => {
            " (no interface of this machine has that address: `ip addr` lists them)".to_owned()
        }
        (Errno::STALE, Address::Unix(_)) => {
            " (another file has taken the place of the new socket: only the user of the server should be able \
             to write to its directory)"
                .to_owned()
        }
        (Errno::NOENT, Address::Unix(unix)) => {
            let dir = unix.path.parent().unwrap_or(&unix.path).display();
            format!(" (the directory {dir} must exist)")
        }
        (Errno::ACCESS, Address::Unix(unix)) => {
            let dir = unix.path.parent().unwrap_or(&unix.path).display();
            format!(" (the user of the server must be able to write to {dir})")
        }
        (Errno::PERM, Address::Unix(unix)) if unix.user.is_some() || unix.group.is_some() => {
            " (only root can change the owner to another user, and other users only to one of their own \
             groups: leave out owner=)"
                .to_owned()
        }
        (Errno::AFNOSUPPORT, _) => {
            " (this kernel has no IPv6; listen on an IPv4 address)".to_owned()
        }
        _ => String::new(),
    };
    let what = words(&error.into());
    cannot_listen(address, &format!("{what}{advice}"))
}

fn cannot_listen(address: &Address, why: &str) -> String {
    format!("cannot listen on {address}: {why}")
}

/// The names of all Unix sockets of the server, by the numbers of their listeners.
#[derive(Debug, Default)]
pub(crate) struct SocketFiles(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    files: HashMap<u32, SocketFile>,
    /// True once the server stops.
    is_closed: bool,
}

impl SocketFiles {
    /// Adds names. If the server has stopped meanwhile, they are removed at once.
    pub(crate) fn add(&self, files: impl IntoIterator<Item = (u32, SocketFile)>) {
        let mut names = self.lock();
        if !names.is_closed {
            names.files.extend(files);
        }
    }

    /// The file of a listener's socket; `None` if it has none, or the server stops.
    pub(crate) fn identity(&self, number: u32) -> Option<Identity> {
        self.lock().files.get(&number).map(SocketFile::identity)
    }

    /// Device and inode of the file of a listener's socket, for another process.
    pub(crate) fn numbers(&self, number: u32) -> Option<(u64, u64)> {
        self.identity(number).map(Identity::numbers)
    }

    /// From now on, this process removes all names when it ends, because the process that has handed the sockets over no
    /// longer does. If the server has stopped meanwhile, the names are removed at once.
    pub(crate) fn take_over(&self) {
        let gone = {
            let mut names = self.lock();
            names.files.values_mut().for_each(SocketFile::take_over);
            if names.is_closed { core::mem::take(&mut names.files) } else { HashMap::new() }
        };
        gone.into_values().for_each(SocketFile::end);
    }

    /// Returns true once the server stops.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Gives out the names of listeners that another process has now. `None` if the server stops: then no name is left.
    pub(crate) fn give_away(&self, numbers: &[u32]) -> Option<Vec<(u32, SocketFile)>> {
        let mut names = self.lock();
        if names.is_closed {
            return None;
        }
        Some(
            numbers
                .iter()
                .filter_map(|number| Some((*number, names.files.remove(number)?)))
                .collect(),
        )
    }

    /// Removes the names of listeners.
    pub(crate) fn remove(&self, numbers: &[u32]) {
        let gone: Vec<_> = {
            let mut names = self.lock();
            numbers.iter().filter_map(|number| names.files.remove(number)).collect()
        };
        // The lock is not held here, because the file system may not respond.
        drop(gone);
    }

    /// Removes all names, because the server stops. Names of stored sockets stay, and so do names that another process has
    /// handed over, and removes itself unless this process [takes over](Self::take_over).
    pub(crate) fn close(&self) {
        let gone: Vec<_> = {
            let mut names = self.lock();
            names.is_closed = true;
            names.files.extract_if(|_, file| file.is_ours()).collect()
        };
        gone.into_iter().for_each(|(_, file)| file.end());
    }

    /// Leaves the name of a listener to the next server, because the service manager has its socket.
    pub(crate) fn store(&self, number: u32) {
        if let Some(file) = self.lock().files.get_mut(&number) {
            file.store();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_stop_leaves_a_name_to_the_process_before_unless_this_process_takes_over() {
        let directory = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| directory.path().join(name));
        let _sockets = [&ours, &theirs].map(|path| UnixListener::bind(path).unwrap());
        let identity = |path: &Path| Node::open(path).unwrap().identity();
        let files = SocketFiles::default();
        files.add([
            (1, SocketFile::new(&ours, identity(&ours))),
            (2, SocketFile::handed_over(&theirs, identity(&theirs))),
        ]);
        assert!(!files.is_closed());
        files.close();
        assert!(files.is_closed() && files.give_away(&[1, 2]).is_none());
        assert_eq!((ours.exists(), theirs.exists()), (false, true));
        // The process before had let this one take over when the stop came.
        files.take_over();
        assert!(!theirs.exists());
    }
}

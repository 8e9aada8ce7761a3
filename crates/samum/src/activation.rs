//! Listening sockets that a service manager has passed (`LISTEN_FDS`, sd_listen_fds(3)). Each belongs to the listener
//! with its address. The manager keeps them while the server does not run, so no client is refused meanwhile.

use core::net::{Ipv4Addr, SocketAddr};
use std::env;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process;
use std::sync::OnceLock;

use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::{exit, listen};
use config::{Address, UnixSocket};

/// The addresses of all sockets that were passed, with their names, for `systemd:NAME` in the configuration.
static NAMES: OnceLock<Vec<(String, Address)>> = OnceLock::new();

/// The beginning of the names of sockets that a server has stored with the manager, for the next server.
pub(crate) const STORED: &str = "samum-listener-";

/// The name under which a server stores the Unix socket whose file has this device and inode. While a socket is stored, no
/// other file can have the same.
pub(crate) fn name_of_file((device, inode): (u64, u64)) -> String {
    format!("{STORED}unix.{device:x}.{inode:x}")
}

/// The names of the stored sockets that were passed to this process.
static STORED_NAMES: OnceLock<Vec<String>> = OnceLock::new();

/// The names of the stored sockets that were passed to this process.
pub(crate) fn stored_names() -> &'static [String] {
    STORED_NAMES.get().map_or(&[], |names| &names[..])
}

/// The addresses of the sockets that were passed to this process, or to the one that it replaces, with their names.
pub(crate) fn names() -> &'static [(String, Address)] {
    NAMES.get().map_or(&[], |names| &names[..])
}

/// Takes the addresses and names from the process before.
pub(crate) fn inherit_names(names: Vec<(String, Address)>) {
    // They are known once in a process.
    let _ = NAMES.set(names);
}

/// The sockets that were passed.
#[derive(Debug, Default)]
pub(crate) struct Activation {
    /// Those that no listener has taken yet.
    all: Vec<Passed>,
    /// True if there were some.
    is_given: bool,
}

#[derive(Debug)]
struct Passed {
    socket: OwnedFd,
    address: Address,
    /// Its name in the socket unit (`FileDescriptorName=`).
    name: String,
}

impl Passed {
    /// Returns true if it comes from the store of the service manager, and not from a socket unit.
    fn is_stored(&self) -> bool {
        self.name.starts_with(STORED)
    }

    /// The listener of IPv4 whose clients it has, too: a socket for all addresses of IPv6 may take those of IPv4.
    fn of_both_versions(&self) -> Option<Address> {
        let Address::Ip(SocketAddr::V6(address)) = self.address else { return None };
        let takes_both =
            address.ip().is_unspecified() && sockopt::ipv6_v6only(&self.socket) == Ok(false);
        takes_both.then(|| Address::Ip((Ipv4Addr::UNSPECIFIED, address.port()).into()))
    }

    /// Returns true if it has the address of a listener.
    fn is_at(&self, address: &Address) -> bool {
        match (&self.address, address) {
            (Address::Ip(passed), Address::Ip(ip)) => passed == ip,
            (Address::Unix(passed), Address::Unix(unix)) => {
                std::path::absolute(&unix.path).is_ok_and(|path| path == passed.path)
            }
            _ => false,
        }
    }
}

impl Activation {
    /// Takes the sockets that were passed to this process. To be called before other descriptors are opened.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if one of them does not listen for streams.
    pub(crate) fn of_process() -> Result<Self, String> {
        let read = |name| env::var(name).ok().unwrap_or_default();
        let count: u16 = read("LISTEN_FDS").parse().unwrap_or(0);
        if count == 0 || read("LISTEN_PID") != process::id().to_string() {
            return Ok(Self::default());
        }
        let sockets = ring::take_passed_descriptors(count).map_err(|error| {
            format!("the service manager has passed fewer than {count} sockets: {error}")
        })?;
        exit::leave_to_manager();
        let activation = Self::new(sockets, &read("LISTEN_FDNAMES"))?;
        let name = |passed: &Passed| (passed.name.clone(), passed.address.clone());
        let (stored, passed): (Vec<_>, Vec<_>) =
            activation.all.iter().partition(|one| one.is_stored());
        // They are known once in a process.
        let _ = STORED_NAMES.set(stored.iter().map(|one| one.name.clone()).collect());
        inherit_names(passed.into_iter().map(name).collect());
        Ok(activation)
    }

    /// Takes sockets with their names, which colons separate.
    fn new(sockets: Vec<OwnedFd>, names: &str) -> Result<Self, String> {
        let is_given = !sockets.is_empty();
        let names = names.split(':').map(str::to_owned).chain(core::iter::repeat(String::new()));
        let passed = |(socket, name): (OwnedFd, String)| {
            let address = address_of(&socket).map_err(|why| {
                let name = in_brackets(&name);
                format!("the service manager has passed a socket{name} that cannot be used: {why}")
            })?;
            Ok(Passed { socket, address, name })
        };
        let all = sockets.into_iter().zip(names).map(passed).collect::<Result<_, String>>()?;
        Ok(Self { all, is_given })
    }

    /// Returns true if sockets were passed.
    pub(crate) const fn is_given(&self) -> bool {
        self.is_given
    }

    /// Takes the sockets of the listener at an address; none if none was passed. A server with several workers has stored
    /// several. A stored Unix socket comes with the device and inode of its file. It is taken only if its file is still at
    /// the path of the listener: else no client would reach it.
    pub(crate) fn take(&mut self, address: &Address) -> (Vec<OwnedFd>, Option<(u64, u64)>) {
        let at_path = match address {
            Address::Unix(unix) => listen::numbers_at(&unix.path),
            Address::Ip(_) => None,
        };
        let stored = at_path.map(name_of_file);
        let mut file = None;
        let is_same = |passed: &mut Passed| match &passed.address {
            Address::Unix(_) if passed.is_stored() && matches!(address, Address::Unix(_)) => {
                let is_same = stored.as_ref() == Some(&passed.name);
                file = file.or_else(|| at_path.filter(|_| is_same));
                is_same
            }
            _ => passed.is_at(address),
        };
        let sockets = self.all.extract_if(.., is_same).map(|passed| passed.socket).collect();
        (sockets, file)
    }

    /// Checks that each socket of a socket unit is that of a listener: clients would wait in vain at the others. To be called
    /// before listeners are opened. A listener with the same port would fail, and blame another server.
    ///
    /// # Errors
    ///
    /// A sentence for the operator that names a socket without a listener, and the addresses of all listeners.
    pub(crate) fn check<'a>(
        &self,
        listeners: impl Iterator<Item = &'a Address>,
    ) -> Result<(), String> {
        let listeners: Vec<_> = listeners.collect();
        let has_listener = |passed: &&Passed| listeners.iter().any(|address| passed.is_at(address));
        let mut units = self.all.iter().filter(|passed| !passed.is_stored());
        if let Some(both) = units.clone().find_map(Passed::of_both_versions)
            && listeners.contains(&&both)
        {
            return Err(format!(
                "the socket of the service manager (systemd) for IPv6 has the clients of {both}, too: write \
                 `BindIPv6Only=ipv6-only` and `ListenStream={both}` into the socket unit, or remove {both} from `listen`"
            ));
        }
        let Some(Passed { address, name, .. }) = units.find(|passed| !has_listener(passed)) else {
            return Ok(());
        };
        let listeners: Vec<_> = listeners.iter().map(ToString::to_string).collect();
        Err(format!(
            "the service manager (systemd) has handed over a socket for {address}{}, and no `listen` has this \
             address (they have {}): change `ListenStream=` of the socket unit or `listen`, so that both have the same \
             addresses",
            in_brackets(name),
            listeners.join(", ")
        ))
    }

    /// Closes the sockets that an earlier server has stored for listeners that are gone.
    pub(crate) fn close_rest(&mut self) {
        self.all.clear();
    }
}

/// The name of a socket behind its address, if it has one.
fn in_brackets(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" ({name})") }
}

/// The address of a socket that listens for streams. It is made ready for the ring.
fn address_of(socket: &OwnedFd) -> Result<Address, String> {
    let is_listening = sockopt::socket_acceptconn(socket).unwrap_or(false)
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    if !is_listening {
        return Err("it does not listen for streams (the socket unit needs `ListenStream=` and `Accept=no`)".to_owned());
    }
    let failed = |error: rustix::io::Errno| std::io::Error::from(error).to_string();
    ioctl_fionbio(socket, true).map_err(failed)?;
    let found = rustix::net::getsockname(socket).map_err(failed)?;
    if found.address_family() == AddressFamily::UNIX {
        let found = SocketAddrUnix::try_from(found).map_err(failed)?;
        let path = found.path_bytes().ok_or("it has no path in the file system")?;
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        return Ok(Address::Unix(UnixSocket { path, ..UnixSocket::default() }));
    }
    let ip = SocketAddr::try_from(found).map_err(|_| "it has neither an IP address nor a path")?;
    // Accepted sockets inherit the option.
    sockopt::set_tcp_nodelay(socket, true).map_err(failed)?;
    Ok(Address::Ip(ip))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_is_that_of_the_listener_with_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let ip = Address::Ip(tcp.local_addr().unwrap());
        let mut all = Activation::new(vec![unix.into(), tcp.into()], "local:web").unwrap();
        assert!(all.is_given());
        let other = Address::Ip("127.0.0.1:1".parse().unwrap());
        assert!(all.take(&other).0.is_empty());
        let at_path =
            Address::Unix(UnixSocket { path, mode: Some(0o600), ..UnixSocket::default() });
        let (taken, file) = all.take(&at_path);
        assert_eq!((taken.len(), file), (1, None), "the socket unit has the file");
        let error = all.check([&other, &at_path].into_iter()).unwrap_err();
        assert!(
            error.contains(&format!("a socket for {ip} (web), and no `listen` has")),
            "{error}"
        );
        assert!(error.contains("(they have 127.0.0.1:1, unix:"), "{error}");
        assert_eq!(all.check([&other, &ip].into_iter()), Ok(()));
        assert_eq!(all.take(&ip).0.len(), 1);
        assert!(all.take(&ip).0.is_empty());
    }

    #[test]
    fn stored_sockets_of_one_listener_are_taken_together_and_others_are_closed() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(tcp.local_addr().unwrap());
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = other.local_addr().unwrap();
        let sockets = vec![tcp.try_clone().unwrap().into(), tcp.into(), other.into()];
        let names = "samum-listener-1:samum-listener-1:samum-listener-2";
        let mut all = Activation::new(sockets, names).unwrap();
        assert_eq!(all.check([&address].into_iter()), Ok(()), "another one is only stored");
        assert_eq!(all.take(&address).0.len(), 2);
        all.close_rest();
        assert!(std::net::TcpStream::connect(gone).is_err());
    }

    #[test]
    fn a_stored_unix_socket_is_taken_only_while_its_file_is_at_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let [path, moved] = ["s", "moved"].map(|name| directory.path().join(name));
        let socket = UnixListener::bind(&path).unwrap();
        let numbers = listen::numbers_at(&path).unwrap();
        let at = |path: &PathBuf| {
            Address::Unix(UnixSocket { path: path.clone(), ..UnixSocket::default() })
        };
        let passed = |socket: &UnixListener| {
            Activation::new(vec![socket.try_clone().unwrap().into()], &name_of_file(numbers))
                .unwrap()
        };
        let mut all = passed(&socket);
        assert!(all.take(&at(&moved)).0.is_empty(), "there is no file");
        let (taken, file) = all.take(&at(&path));
        assert_eq!((taken.len(), file), (1, Some(numbers)));
        // Another server has made its own socket at the path meanwhile.
        std::fs::rename(&path, &moved).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        let mut all = passed(&socket);
        assert!(all.take(&at(&path)).0.is_empty());
        let mut all = passed(&socket);
        assert_eq!(all.take(&at(&moved)).0.len(), 1, "clients of this path reach it");
    }

    #[test]
    fn a_socket_of_both_versions_leaves_no_listener_of_ipv4() {
        // A machine without IPv6 has no such socket.
        let Ok(both) = TcpListener::bind("[::]:0") else { return };
        let port = both.local_addr().unwrap().port();
        let [six, four] =
            ["[::]", "0.0.0.0"].map(|host| Address::Ip(format!("{host}:{port}").parse().unwrap()));
        let all = Activation::new(vec![both.into()], "").unwrap();
        assert_eq!(all.check([&six].into_iter()), Ok(()));
        let error = all.check([&six, &four].into_iter()).unwrap_err();
        assert!(error.contains("`BindIPv6Only=ipv6-only`"), "{error}");
        let error = all.check([&four].into_iter()).unwrap_err();
        assert!(!error.contains("()"), "{error}");
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = Activation::new(vec![udp.into()], "dns").unwrap_err();
        assert!(error.contains("(dns)") && error.contains("ListenStream"), "{error}");
    }
}

//! The listening sockets in the file descriptor store of the service manager, so that they outlive a crash and
//! `systemctl restart`: no client is refused meanwhile, and those that wait are served by the next process.
//!
//! The store is that of systemd (sd_pid_notify_with_fds(3), `FileDescriptorStoreMax=` in systemd.service(5)). The
//! manager passes the stored sockets to the next process, among the sockets of socket units, and [`activation`] gives
//! it to the listeners with the same addresses. Each listener has a name in the store, by which a listener that is gone
//! is removed: else its clients would wait in vain.
//!
//! A Unix socket is found by its file, so its name in the store has the device and inode of the file. While the socket is
//! open, no other file can have the same. The next server uses it only if that file is still at its path, and else
//! makes a new one. The file stays at the end of a server whose socket is stored; if the service does not start again,
//! the file is stale, and is replaced like one that a crash has left. A port that the kernel has chosen is not that of
//! the next process, so its socket is not stored.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::listen::SocketFiles;
use crate::{activation, exit, notify};
use config::{Address, Listen};
use logs::say::say;

/// The variable with the number of descriptors that the manager stores for this service. systemd sets it since version 254.
const ROOM: &str = "FDSTORE";
/// The most descriptors of a message. The kernel permits 253 (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 128;
/// The time for the manager to receive a message.
const SEND_MAX: Duration = Duration::from_secs(1);

/// The names of the sockets that the manager has stored.
static STORED: LazyLock<Mutex<BTreeSet<String>>> =
    LazyLock::new(|| Mutex::new(activation::stored_names().iter().cloned().collect()));

/// Stores the sockets of all listeners, if there is room for them, and removes those of others. `sockets` returns them by
/// the numbers of the listeners.
pub(crate) fn update(
    listeners: &[(u32, Listen)],
    files: &SocketFiles,
    sockets: impl FnOnce() -> Result<BTreeMap<u32, Vec<OwnedFd>>, String>,
) {
    if !notify::is_main() {
        return;
    }
    let names: Vec<_> = listeners
        .iter()
        .filter_map(|(number, Listen { address, .. })| {
            let name = name_of(address, files.numbers(*number))?;
            // The workers have one Unix socket.
            let sockets_max = if matches!(address, Address::Unix(_)) { 1 } else { usize::MAX };
            Some((*number, name, sockets_max))
        })
        .collect();
    remove_all_but(names.iter().map(|(_, name, _)| name));
    let room = room();
    if room == 0 {
        return;
    }
    let stored = sockets().and_then(|sockets| {
        let of = |number: &u32| sockets.get(number).map_or(&[][..], Vec::as_slice);
        let counts: Vec<_> =
            names.iter().map(|(number, _, most)| of(number).len().min(*most)).collect();
        for ((number, name, _), count) in names.iter().zip(shares(&counts, room)) {
            if count > 0 {
                // Before the manager has it: the server may be told to stop as soon as it has.
                files.store(*number);
            }
            store(name, &of(number)[..count])?;
        }
        Ok(())
    });
    if let Err(why) = stored {
        say(&format!("the service manager does not keep all listening sockets: {why}"));
    }
}

/// Removes the sockets of all listeners but those at these addresses, with the device and inode of their files.
pub(crate) fn keep_only<'a>(kept: impl Iterator<Item = (&'a Address, Option<(u64, u64)>)>) {
    if notify::is_main() {
        let names: Vec<_> = kept.filter_map(|(address, file)| name_of(address, file)).collect();
        remove_all_but(names.iter());
    }
}

/// The number of descriptors that the manager stores.
fn room() -> usize {
    env::var(ROOM).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The name of the sockets of a listener, if they are stored. A name has printable ASCII without colons, and at most 255
/// characters.
fn name_of(address: &Address, file: Option<(u64, u64)>) -> Option<String> {
    // The socket of a socket unit has no file of this server.
    let Address::Ip(ip) = address else { return file.map(activation::name_of_file) };
    let is_passed = activation::names().iter().any(|(_, passed)| passed == address);
    if ip.port() == 0 || is_passed {
        return None;
    }
    Some(format!("{}{}", activation::STORED, ip.to_string().replace(':', ".")))
}

/// Divides the room: each listener gets a place for one socket, and then for all of its sockets, as long as there are
/// places. A socket without a place loses the clients that wait there.
fn shares(counts: &[usize], room: usize) -> Vec<usize> {
    let mut left = room;
    let mut take = |count: usize| {
        let taken = count.min(left);
        left -= taken;
        taken
    };
    let first: Vec<_> = counts.iter().map(|count| take((*count).min(1))).collect();
    counts.iter().zip(first).map(|(count, first)| first + take(count - first)).collect()
}

fn store(name: &str, sockets: &[OwnedFd]) -> Result<(), String> {
    if sockets.is_empty() {
        return Ok(());
    }
    // From now on they are only closed at the end, and not shut down.
    exit::leave_to_manager();
    lock().insert(name.to_owned());
    let sockets: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
    sockets
        .chunks(DESCRIPTORS_MAX)
        .try_for_each(|some| send(&format!("FDSTORE=1\nFDNAME={name}"), some))
}

fn remove_all_but<'a>(names: impl Iterator<Item = &'a String>) {
    let kept: BTreeSet<_> = names.collect();
    let mut stored = lock();
    let gone: Vec<_> = stored.iter().filter(|name| !kept.contains(name)).cloned().collect();
    for name in gone {
        match send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]) {
            Ok(()) => {
                stored.remove(&name);
            }
            // It is tried again at the next change.
            Err(why) => {
                say(&format!("the service manager keeps a socket without a listener: {why}"))
            }
        }
    }
}

fn send(lines: &str, sockets: &[BorrowedFd<'_>]) -> Result<(), String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err("there are too many in a message".to_owned());
    }
    let sent = notify::connect().and_then(|socket: UnixDatagram| {
        socket.set_write_timeout(Some(SEND_MAX))?;
        sendmsg(&socket, &[IoSlice::new(lines.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    });
    sent.map_err(|error| error.to_string())
}

fn lock() -> MutexGuard<'static, BTreeSet<String>> {
    STORED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listener_has_one_place_before_another_has_two() {
        for (counts, room, expected) in [
            (&[2, 2][..], 4, &[2, 2][..]),
            (&[2, 2], 3, &[2, 1]),
            (&[4, 4, 4], 2, &[1, 1, 0]),
            (&[0, 3], 2, &[0, 2]),
            (&[1, 1], 100, &[1, 1]),
            (&[], 5, &[]),
        ] {
            assert_eq!(shares(counts, room), expected, "{counts:?} in {room}");
        }
    }

    #[test]
    fn names_are_those_that_the_manager_takes() {
        let with = |text: &str, file| name_of(&config::value::address(text).unwrap(), file);
        let name = |text: &str| with(text, None);
        assert_eq!(name("127.0.0.1:80").as_deref(), Some("samum-listener-127.0.0.1.80"));
        assert_eq!(name("[::1]:443").as_deref(), Some("samum-listener-[..1].443"));
        assert_eq!((name("127.0.0.1:0"), name("unix:/run/s")), (None, None));
        let unix = with("unix:/run/s", Some((0x1a, 77)));
        assert_eq!(unix.as_deref(), Some("samum-listener-unix.1a.4d"));
    }
}

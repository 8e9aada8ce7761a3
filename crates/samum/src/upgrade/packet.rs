//! Packets with descriptors between the processes of an upgrade, over pairs of sockets (`SOCK_SEQPACKET`).

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The most descriptors of a packet. The kernel permits 253 (`SCM_MAX_FD`).
pub(super) const DESCRIPTORS_MAX: usize = 128;
/// The most bytes of a packet.
pub(super) const BYTES_MAX: usize = 64 * 1024;

/// A packet.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Makes a pair of sockets for packets.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a packet without a wait.
///
/// # Errors
///
/// `AGAIN` if the peer receives nothing; `PIPE` if the peer has gone.
pub(super) fn send(
    to: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, flags).map(|_| ())
}

/// Receives a packet that has come; `None` if the peer has gone.
///
/// # Errors
///
/// `AGAIN` if no packet has come; `MSGSIZE` if the packet is longer than any packet that samum sends.
pub(super) fn take(from: impl AsFd) -> Result<Option<Packet>, Errno> {
    let mut bytes = vec![0; BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || recvmsg(&from, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let received = match receive() {
        // A peer that has gone with packets unread resets the connection. The error comes once, in front of packets that
        // the peer has sent before.
        Err(Errno::CONNRESET) => receive()?,
        result => result?,
    };
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(all) => all.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    // No packet is empty, so zero bytes mean the end.
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some(Packet { bytes, descriptors }))
}

/// Waits for a packet; `None` if the peer has gone.
///
/// # Errors
///
/// `TIMEDOUT` if no packet comes within `limit`; otherwise the errors of [`take`].
pub(super) fn receive(from: impl AsFd, limit: Duration) -> Result<Option<Packet>, Errno> {
    let deadline = Instant::now() + limit;
    loop {
        match take(&from) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        wait(&[from.as_fd()], Some(left));
    }
}

/// Waits until one of these connections has a packet or its peer has gone, at most `limit`. Returns true for each such
/// connection.
pub(super) fn wait(all: &[BorrowedFd<'_>], limit: Option<Duration>) -> Vec<bool> {
    let mut polled: Vec<_> = all.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // A signal ends the wait early, as the limit does.
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) => polled.iter().map(|one| !one.revents().is_empty()).collect(),
        Err(_) => vec![false; all.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_travel_with_packets() {
        let (one, other) = pair().unwrap();
        assert_eq!(take(&other).unwrap_err(), Errno::AGAIN);
        let (third, fourth) = pair().unwrap();
        send(&one, b"with", &[third.as_fd()]).unwrap();
        send(&one, b"without", &[]).unwrap();
        drop(third);
        let mut packet = receive(&other, Duration::from_secs(5)).unwrap().unwrap();
        assert_eq!((&packet.bytes[..], packet.descriptors.len()), (&b"with"[..], 1));
        send(packet.descriptors.remove(0), b"through", &[]).unwrap();
        assert_eq!(take(&fourth).unwrap().unwrap().bytes, b"through");
        let packet = take(&other).unwrap().unwrap();
        assert_eq!((&packet.bytes[..], packet.descriptors.len()), (&b"without"[..], 0));
        assert!(take(&fourth).unwrap().is_none());
        drop(one);
        assert!(take(&other).unwrap().is_none());
        assert_eq!(send(&other, b"late", &[]), Err(Errno::PIPE));
    }

    #[test]
    fn what_a_peer_sent_before_it_went_is_taken() {
        let (one, other) = pair().unwrap();
        send(&other, b"unread", &[]).unwrap();
        send(&one, b"last", &[]).unwrap();
        drop(one);
        assert_eq!(take(&other).unwrap().unwrap().bytes, b"last");
        assert!(take(&other).unwrap().is_none());
    }

    #[test]
    fn a_wait_has_an_end() {
        let (one, _other) = pair().unwrap();
        assert_eq!(receive(&one, Duration::from_millis(20)).unwrap_err(), Errno::TIMEDOUT);
    }

    #[test]
    fn as_many_descriptors_as_allowed_fit_into_a_packet() {
        let (one, other) = pair().unwrap();
        let all = [other.as_fd(); DESCRIPTORS_MAX];
        send(&one, b"many", &all).unwrap();
        assert_eq!(take(&other).unwrap().unwrap().descriptors.len(), DESCRIPTORS_MAX);
    }
}

//! Reports that an interface is gone, which AF_XDP sockets do not, and reports its changes before.

use core::mem;
use core::net::IpAddr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketFlags};

use crate::changes::Changes;
use crate::error::Error;
use crate::interface::{Interface, netlink_socket};
use crate::netlink::{self, KernelMessage};

/// The multicast groups of messages about links and addresses (`RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`,
/// `RTMGRP_IPV6_IFADDR`).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// The maximum sentences about changes in a burst. Further sentences are dropped until [`SENTENCE_PAUSE`] has
/// passed for one more.
const SENTENCES_MAX: u32 = 10;
const SENTENCE_PAUSE: Duration = Duration::from_secs(60);

/// A watch over an interface. Its descriptor is readable when there are messages about any interface.
#[derive(Debug)]
pub struct Watch {
    socket: OwnedFd,
    index: u32,
    name: String,
    is_gone: bool,
    changes: Changes,
    /// The sentences that may still be reported, at most [`SENTENCES_MAX`], and the time of this count.
    left: (u32, Instant),
}

impl Watch {
    /// Watches an interface. The server uses the interface's MTU, and also its MAC and its addresses if these are
    /// given.
    pub(crate) fn open(
        interface: &Interface,
        mac: Option<[u8; 6]>,
        addresses: Option<Vec<(IpAddr, u8)>>,
    ) -> Result<Self, Error> {
        let failed =
            |source| Error::system(format!("interface {}: watching it", interface.name), source);
        let socket = netlink_socket(SocketFlags::NONBLOCK).map_err(failed)?;
        let address = SocketAddrNetlink::new(0, GROUPS);
        rustix::net::bind(&socket, &address).map_err(|errno| failed(errno.into()))?;
        let (index, name) = (interface.index, interface.name.clone());
        let changes = Changes::new(index, name.clone(), mac, interface.mtu, addresses);
        let left = (SENTENCES_MAX, Instant::now());
        Ok(Self { socket, index, name, is_gone: false, changes, left })
    }

    /// Reads the kernel's messages. Returns sentences for the operator about changes of the interface, which the server
    /// does not follow. When the interface is gone, one sentence reports it, once.
    ///
    /// # Errors
    ///
    /// The errors of recv(2). No more messages will come after an error.
    pub fn handle_readable(&mut self) -> io::Result<Vec<String>> {
        let mut buffer = [0; 32 * 1024];
        let mut sentences = Vec::new();
        loop {
            let bytes = match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => {
                    sentences.truncate(self.allowed(sentences.len()));
                    return Ok(sentences);
                }
                // Some messages were lost, and others follow.
                Err(Errno::NOBUFS | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for answer in netlink::answers(&buffer[..bytes]) {
                if answer == KernelMessage::Gone(self.index)
                    && !mem::replace(&mut self.is_gone, true)
                {
                    let name = &self.name;
                    return Ok(vec![format!(
                        "interface {name}: it is gone; restart the server when it is there again"
                    )]);
                }
                self.changes.note(&answer, &mut sentences);
            }
        }
    }

    /// True if the interface is gone. No more messages will come.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns how many of `sentences` may be reported now.
    fn allowed(&mut self, sentences: usize) -> usize {
        let (left, since) = &mut self.left;
        while *left < SENTENCES_MAX && since.elapsed() >= SENTENCE_PAUSE {
            *left += 1;
            *since += SENTENCE_PAUSE;
        }
        if *left == SENTENCES_MAX {
            *since = Instant::now();
        }
        let allowed = u32::try_from(sentences).unwrap_or(u32::MAX).min(*left);
        *left -= allowed;
        allowed as usize
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! Tells when an interface is gone: the sockets of AF_XDP are silent about it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketFlags};

use crate::error::Error;
use crate::interface::{Interface, netlink_socket};
use crate::netlink::{self, Answer};

/// The group of news about links (`RTMGRP_LINK`).
const LINKS: u32 = 1;

/// A watch over an interface. Its descriptor is readable when there are news about any interface.
#[derive(Debug)]
pub struct Watch {
    socket: OwnedFd,
    index: u32,
    name: String,
    is_gone: bool,
}

impl Watch {
    pub(crate) fn open(interface: &Interface) -> Result<Self, Error> {
        let failed =
            |source| Error::system(format!("interface {}: watching it", interface.name), source);
        let socket = netlink_socket(SocketFlags::NONBLOCK).map_err(failed)?;
        let address = SocketAddrNetlink::new(0, LINKS);
        rustix::net::bind(&socket, &address).map_err(|errno| failed(errno.into()))?;
        Ok(Self { socket, index: interface.index, name: interface.name.clone(), is_gone: false })
    }

    /// Reads the news. Returns a sentence for the operator when the interface is gone, once.
    ///
    /// # Errors
    ///
    /// Those of recv(2): there will be no more news.
    pub fn handle_readable(&mut self) -> io::Result<Option<String>> {
        let mut buffer = [0; 32 * 1024];
        loop {
            let bytes = match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => return Ok(None),
                // Some were lost, and others follow.
                Err(Errno::NOBUFS | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let is_gone = netlink::answers(&buffer[..bytes]).contains(&Answer::Gone(self.index));
            if is_gone && !core::mem::replace(&mut self.is_gone, true) {
                let name = &self.name;
                return Ok(Some(format!(
                    "interface {name}: it is gone; restart the server when it is there again"
                )));
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

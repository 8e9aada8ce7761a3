//! The description of the sockets and keys that a process hands over to the next process, as bytes. The descriptors
//! follow in the same order: the sockets of each listener, the control socket, and the connections to earlier
//! processes.

use core::net::SocketAddr;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use zeroize::Zeroizing;

/// The first bytes, with the version of the form.
const MAGIC: &[u8] = b"samum handover 1\n";
/// The most bytes of a description. A listener takes about 60 bytes.
pub(super) const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The description, without the descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handover {
    pub(super) listeners: Vec<Handed>,
    /// The path of the control socket, and its file.
    pub(super) control: Option<(PathBuf, (u64, u64))>,
    /// The keys of session tickets ([`tls::TicketKeys::to_bytes`]).
    pub(super) tickets: Zeroizing<Vec<u8>>,
    /// The number of earlier processes that finish their connections.
    pub(super) elders: u32,
    /// True if a service manager also has some of the sockets.
    pub(super) has_manager: bool,
    /// The names that the manager has given to sockets, with the addresses of the sockets.
    pub(super) names: Vec<(String, HandedAddress)>,
}

/// A listener that is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handed {
    /// Its number in the process before.
    pub(super) number: u32,
    /// Its address, as the configuration has it.
    pub(super) address: HandedAddress,
    /// The number of its sockets.
    pub(super) sockets: u32,
}

/// The address of a listener that is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandedAddress {
    Ip(SocketAddr),
    /// A path, with the device and the inode of its file, if these are known.
    Unix(PathBuf, Option<(u64, u64)>),
}

impl Handover {
    /// The number of descriptors that follow.
    pub(super) fn descriptors(&self) -> usize {
        let sockets = self.listeners.iter().map(|handed| handed.sockets as usize);
        sockets.sum::<usize>() + usize::from(self.control.is_some()) + self.elders as usize
    }

    pub(super) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // The vector never grows, so no copy of the keys stays in memory.
        let mut to = Writer(Zeroizing::new(Vec::with_capacity(self.len_max())));
        to.0.extend(MAGIC);
        to.number(self.listeners.len() as u64);
        for Handed { number, address, sockets } in &self.listeners {
            to.number(u64::from(*number));
            to.number(u64::from(*sockets));
            to.place(address);
        }
        let (path, file) = self.control.clone().unzip();
        to.file(file);
        to.bytes(path.unwrap_or_default().as_os_str().as_bytes());
        to.bytes(&self.tickets);
        to.number(u64::from(self.elders));
        to.number(u64::from(self.has_manager));
        to.number(self.names.len() as u64);
        for (name, place) in &self.names {
            to.bytes(name.as_bytes());
            to.place(place);
        }
        to.0
    }

    /// The length of the bytes at most.
    fn len_max(&self) -> usize {
        let place = |place: &HandedAddress| match place {
            HandedAddress::Ip(_) => 128,
            HandedAddress::Unix(path, _) => 128 + path.as_os_str().len(),
        };
        let listeners: usize = self.listeners.iter().map(|handed| place(&handed.address)).sum();
        let names: usize = self.names.iter().map(|(name, at)| name.len() + place(at)).sum();
        let control = self.control.as_ref().map_or(0, |(path, _)| path.as_os_str().len());
        listeners + names + control + self.tickets.len() + 256
    }

    /// Reads a description; `None` if it has another form.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes.strip_prefix(MAGIC)?);
        let mut listeners = Vec::new();
        for _ in 0..from.number()? {
            let number = u32::try_from(from.number()?).ok()?;
            let sockets = u32::try_from(from.number()?).ok()?;
            let address = from.place()?;
            listeners.push(Handed { number, address, sockets });
        }
        let file = from.file()?;
        let path = from.path()?;
        let tickets = Zeroizing::new(from.bytes()?.to_vec());
        let elders = u32::try_from(from.number()?).ok()?;
        let has_manager = from.number()? != 0;
        let mut names = Vec::new();
        for _ in 0..from.number()? {
            let name = core::str::from_utf8(from.bytes()?).ok()?.to_owned();
            names.push((name, from.place()?));
        }
        let control = file.map(|file| (path, file));
        let handover = Self { listeners, control, tickets, elders, has_manager, names };
        from.0.is_empty().then_some(handover)
    }
}

struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn place(&mut self, place: &HandedAddress) {
        match place {
            HandedAddress::Ip(ip) => {
                self.number(0);
                self.bytes(ip.to_string().as_bytes());
            }
            HandedAddress::Unix(path, file) => {
                self.number(1);
                self.bytes(path.as_os_str().as_bytes());
                self.file(*file);
            }
        }
    }

    fn file(&mut self, file: Option<(u64, u64)>) {
        self.number(u64::from(file.is_some()));
        let (device, inode) = file.unwrap_or_default();
        self.number(device);
        self.number(inode);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn place(&mut self) -> Option<HandedAddress> {
        match self.number()? {
            0 => Some(HandedAddress::Ip(core::str::from_utf8(self.bytes()?).ok()?.parse().ok()?)),
            1 => Some(HandedAddress::Unix(self.path()?, self.file()?)),
            _ => None,
        }
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(OsString::from_vec(self.bytes()?.to_vec()).into())
    }

    /// `Some(None)` if there is no file.
    #[expect(clippy::option_option, reason = "bytes of another form are not the same as no file")]
    fn file(&mut self) -> Option<Option<(u64, u64)>> {
        let has_file = self.number()?;
        let file = (self.number()?, self.number()?);
        match has_file {
            0 => Some(None),
            1 => Some(Some(file)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file() -> impl Strategy<Value = (u64, u64)> {
        (any::<u64>(), any::<u64>())
    }

    fn path() -> impl Strategy<Value = PathBuf> {
        any::<Vec<u8>>().prop_map(|bytes| OsString::from_vec(bytes).into())
    }

    fn place() -> impl Strategy<Value = HandedAddress> {
        let port = any::<u16>();
        prop_oneof![
            (any::<[u8; 4]>(), port).prop_map(|(ip, port)| HandedAddress::Ip((ip, port).into())),
            (any::<[u16; 8]>(), port).prop_map(|(ip, port)| HandedAddress::Ip((ip, port).into())),
            (path(), proptest::option::of(file()))
                .prop_map(|(path, file)| HandedAddress::Unix(path, file)),
        ]
    }

    fn handover() -> impl Strategy<Value = Handover> {
        let handed =
            (any::<u32>(), place(), any::<u16>()).prop_map(|(number, address, sockets)| Handed {
                number,
                address,
                sockets: sockets.into(),
            });
        let listeners = proptest::collection::vec(handed, 0..4);
        let control = proptest::option::of((path(), file()));
        let names = proptest::collection::vec((any::<String>(), place()), 0..3);
        (listeners, control, any::<Vec<u8>>(), any::<u32>(), any::<bool>(), names).prop_map(
            |(listeners, control, tickets, elders, has_manager, names)| Handover {
                listeners,
                control,
                tickets: Zeroizing::new(tickets),
                elders,
                has_manager,
                names,
            },
        )
    }

    proptest! {
        #[test]
        fn bytes_are_read_as_they_were_written(handover in handover(), cut in any::<prop::sample::Index>()) {
            let bytes = handover.to_bytes();
            prop_assert!(bytes.len() <= handover.len_max());
            prop_assert_eq!(Handover::from_bytes(&bytes), Some(handover));
            prop_assert_eq!(Handover::from_bytes(&bytes[..cut.index(bytes.len())]), None);
            let longer = [&bytes[..], b"x"].concat();
            prop_assert_eq!(Handover::from_bytes(&longer), None);
        }

        #[test]
        fn other_bytes_are_refused_without_a_panic(bytes in any::<Vec<u8>>()) {
            prop_assert_eq!(Handover::from_bytes(&bytes), None);
            let _ = Handover::from_bytes(&[MAGIC, &bytes[..]].concat());
        }
    }
}

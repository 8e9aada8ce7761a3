//! An application that answers with given bytes.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// What an application does with one connection. It sends records of the first request with the id of the one that it
/// answers, unless it is said otherwise.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Read a request, send these bytes, and close the connection.
    Close(Vec<u8>),
    /// The same, and wait until the server closes it.
    Wait(Vec<u8>),
    /// Read the beginning of a request, up to that of its content, send these bytes, and wait as well.
    Early(Vec<u8>),
    /// Read a request, send each of these half a second after the one before, and wait as well.
    Drip(Vec<Vec<u8>>),
    /// Answer this number of requests with these bytes each, and close it.
    Keep(usize, Vec<u8>),
    /// Answer a request with each of these, and wait until the server closes the connection.
    Turns(Vec<Vec<u8>>),
    /// The same with exactly these bytes, whatever the ids of the requests are.
    Verbatim(Vec<Vec<u8>>),
    /// Close it at once.
    Refuse,
    /// Read nothing for longer than a test takes.
    Ignore,
}

/// What a connection has brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A request: its variables, as they were sent, and its content.
    Request(Vec<u8>, Vec<u8>),
    /// The bytes that came after the last request, up to the end.
    Rest(Vec<u8>),
}

/// Listens at a path for as many connections as there are acts.
pub(crate) fn application(path: &Path, acts: Vec<Act>) -> Receiver<Seen> {
    let listener = UnixListener::bind(path).unwrap();
    play(move || listener.accept().unwrap().0, acts)
}

/// The same at a port of the loopback interface, whose address is returned.
pub(crate) fn application_of_tcp(acts: Vec<Act>) -> (SocketAddr, Receiver<Seen>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // Only the calls of streams are used.
    let accept = move || UnixStream::from(OwnedFd::from(listener.accept().unwrap().0));
    (address, play(accept, acts))
}

fn play(mut accept: impl FnMut() -> UnixStream + Send + 'static, acts: Vec<Act>) -> Receiver<Seen> {
    let (sender, seen) = channel();
    thread::spawn(move || {
        for act in acts {
            let mut stream = accept();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let is_verbatim = matches!(act, Act::Verbatim(_));
            let mut answer = |bytes: &[u8]| {
                let (id, request) = read_request(&mut stream)?;
                // The server may have closed it.
                let _ = sender.send(request);
                let mut bytes = bytes.to_vec();
                if !is_verbatim {
                    set_id(&mut bytes, id);
                }
                stream.write_all(&bytes).ok()
            };
            match act {
                Act::Refuse => {}
                Act::Ignore => thread::sleep(Duration::from_secs(60)),
                Act::Close(bytes) => {
                    answer(&bytes);
                }
                Act::Drip(drops) => {
                    answer(b"");
                    for drop in drops {
                        thread::sleep(Duration::from_millis(500));
                        // The server may have closed it.
                        let _ = stream.write_all(&drop);
                    }
                    let mut rest = Vec::new();
                    let _ = stream.read_to_end(&mut rest);
                    let _ = sender.send(Seen::Rest(rest));
                }
                Act::Early(bytes) => {
                    while read_record(&mut stream).is_some_and(|(kind, ..)| kind != 5) {}
                    let _ = stream.write_all(&bytes);
                    let mut rest = Vec::new();
                    let _ = stream.read_to_end(&mut rest);
                    let _ = sender.send(Seen::Rest(rest));
                }
                Act::Keep(count, bytes) => {
                    for _ in 0..count {
                        answer(&bytes);
                    }
                }
                Act::Wait(_) | Act::Turns(_) | Act::Verbatim(_) => {
                    let turns = match act {
                        Act::Turns(turns) | Act::Verbatim(turns) => turns,
                        Act::Wait(bytes) => vec![bytes],
                        _ => unreachable!("it is one of these"),
                    };
                    for bytes in turns {
                        answer(&bytes);
                    }
                    let mut rest = Vec::new();
                    let _ = stream.read_to_end(&mut rest);
                    let _ = sender.send(Seen::Rest(rest));
                }
            }
        }
    });
    seen
}

/// Reads the records of a request up to the end of its content, and its id.
fn read_request(stream: &mut UnixStream) -> Option<([u8; 2], Seen)> {
    let (mut variables, mut content) = (Vec::new(), Vec::new());
    let mut id = None;
    loop {
        let (kind, of, bytes) = read_record(stream)?;
        assert_eq!(*id.get_or_insert(of), of, "a record of another request");
        match kind {
            4 => variables.extend(bytes),
            5 if bytes.is_empty() => return Some((of, Seen::Request(variables, content))),
            5 => content.extend(bytes),
            _ => {}
        }
    }
}

/// Reads a record: its type, the id of its request, and its content.
fn read_record(stream: &mut UnixStream) -> Option<(u8, [u8; 2], Vec<u8>)> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).ok()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut bytes = vec![0; length + usize::from(header[6])];
    stream.read_exact(&mut bytes).ok()?;
    bytes.truncate(length);
    Some((header[1], [header[2], header[3]], bytes))
}

/// Makes the first of these bytes, as far as they are records of the first request, those of the one with this id.
fn set_id(mut bytes: &mut [u8], id: [u8; 2]) {
    while let Some((header, rest)) = bytes.split_first_chunk_mut::<8>()
        && let [1, _, 0, 1, high, low, padding, _] = *header
    {
        header[2..4].copy_from_slice(&id);
        let length = usize::from(u16::from_be_bytes([high, low])) + usize::from(padding);
        bytes = rest.get_mut(length..).unwrap_or_default();
    }
}

/// The same records, of the request with this id.
pub(crate) fn of_request(id: u16, mut records: Vec<u8>) -> Vec<u8> {
    set_id(&mut records, id.to_be_bytes());
    records
}

/// A record of the first request.
pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 3, 0], content, &[0; 3]].concat()
}

/// `FCGI_STDOUT`
pub(crate) fn output(text: &str) -> Vec<u8> {
    record(6, text.as_bytes())
}

/// `FCGI_END_REQUEST` with this protocol status.
pub(crate) fn end(protocol_status: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, protocol_status, 0, 0, 0])
}

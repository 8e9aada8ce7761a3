//! An echo server on one ring: it sends back the bytes that it receives.
//!
//! ```text
//! cargo run -p samum-ring --example echo                        # -- ADDRESS for another one
//! nc 127.0.0.1 7007                                       # type, and read it again
//! head -c 100M /dev/zero | nc -N 127.0.0.1 7007 | wc -c   # 104857600
//! ```

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpListener;

use ring::{Choice, Event, Fd, Op, RecvBuf, Ring};

/// The time without accepting after an accept that has failed: there is no free descriptor, say.
const PAUSE: Duration = Duration::from_millis(100);

struct Conn {
    socket: Fd,
    /// Buffers of the ring; when it has none left, the peers wait.
    unsent: VecDeque<(RecvBuf, usize)>,
    /// True if the socket is full and an `Op::Writable` is under way.
    full: bool,
    ended: bool,
}

fn send(ring: &Ring, conn: &mut Conn) -> io::Result<()> {
    while let Some((buf, sent)) = conn.unsent.front_mut() {
        *sent += ring.send(&conn.socket, &[IoSlice::new(&buf[*sent..])], false)?;
        if *sent == buf.len() {
            conn.unsent.pop_front();
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut ring = Ring::new(Choice::Auto)?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7007".into());
    let listener = TcpListener::bind(address)?;
    eprintln!("listening on {} with {ring}", listener.local_addr()?);
    let listener = ring.adopt_socket(listener.into());
    ring.submit(Op::Accept(listener.clone()), 0);
    let (mut conns, mut token, mut completions) = (HashMap::new(), 0, Vec::new());
    loop {
        ring.wait(None, &mut completions)?;
        for completion in completions.drain(..) {
            if completion.token == 0 {
                let socket = match completion.result {
                    Ok(Event::Accepted(socket)) => socket,
                    result => {
                        // The pause is over, or begins.
                        let next = match result {
                            Ok(_) => Op::Accept(listener.clone()),
                            Err(_) => Op::Timer(ring.now() + PAUSE),
                        };
                        ring.submit(next, 0);
                        continue;
                    }
                };
                token += 1;
                ring.submit(Op::Recv(socket.clone()), token);
                conns.insert(
                    token,
                    Conn { socket, unsent: VecDeque::new(), full: false, ended: false },
                );
                continue;
            }
            let Some(conn) = conns.get_mut(&completion.token) else { continue };
            match completion.result {
                Ok(Event::Received(buf)) => conn.unsent.push_back((buf, 0)),
                Ok(Event::Writable) => conn.full = false,
                _ => conn.ended = true,
            }
            if conn.full {
                continue;
            }
            match send(&ring, conn) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    conn.full = true;
                    ring.submit(Op::Writable(conn.socket.clone()), completion.token);
                }
                Ok(()) if !conn.ended => {}
                // All is sent and no more will come, or the peer has gone.
                _ => drop(conns.remove(&completion.token)),
            }
        }
    }
}

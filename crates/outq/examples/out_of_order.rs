//! Three blocks of a file are promised in order and read in reverse; the peer gets the blocks in
//! order, and no thread waits.
//!
//! Run it with `cargo run -p samum-outq --example out_of_order`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use outq::{Chunk, OutQ, Payload, State};

/// The payloads of this queue. A server would have more kinds: pooled buffers, ranges of resident
/// files, ...
enum Data {
    Head(&'static str),
    Block(Box<[u8]>),
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Head(text) => text.as_bytes(),
            Self::Block(bytes) => bytes,
        }
    }
}

impl Payload for Data {
    fn len(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn split_to(&mut self, n: u64) -> Self {
        let n = usize::try_from(n).expect("less than the length");
        match self {
            Self::Head(text) => {
                let (front, rest) = text.split_at(n);
                *text = rest;
                Self::Head(front)
            }
            Self::Block(bytes) => {
                let (front, rest) = bytes.split_at(n);
                let front = front.into();
                *bytes = rest.into();
                Self::Block(front)
            }
        }
    }
}

fn main() {
    let mut queue = OutQ::new();

    // A request came in. The head can be written at once, and the body must be read. Promise the
    // body, block by block, and give each read the position that the read is to fill.
    queue.push(Data::Head("HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n"));
    let reads = [queue.promise(8), queue.promise(8), queue.promise(8)];
    println!("promised {} bytes", queue.promised());
    drain(&mut queue);

    // The disk completes the reads in its own order.
    for (block, at) in
        [b"[ ... 3]", b"[ ... 2]", b"[ ... 1]"].into_iter().zip(reads.into_iter().rev())
    {
        println!("the read for {at} is done");
        queue.fill(at, Data::Block(Box::new(*block)));
        drain(&mut queue);
    }
    assert_eq!(queue.state(), State::Drained);

    // The peer has acknowledged all bytes, or the kernel has copied them, so the buffers go back to
    // their owners.
    queue.mark_released(queue.sent() - queue.released());
}

/// Sends all ready bytes. Call this function after each fill, and whenever the socket becomes
/// writable.
fn drain(queue: &mut OutQ<Data>) {
    loop {
        match queue.state() {
            State::Ready => {}
            State::Waiting => return println!("    waiting for bytes {:?}", queue.first_gap()),
            State::Drained => return println!("    all is sent: next request"),
            State::Failed => return println!("    a read failed: close the connection"),
        }
        // For simplicity, one chunk is written at a time. `writev` would take all chunks.
        let chunk = queue.next_ready().next().expect("the state is Ready");
        let taken = write(&chunk);
        queue.mark_sent(taken);
    }
}

/// A socket that takes at most 20 bytes, like a socket that is nearly full. Returns the number of
/// bytes taken.
fn write(chunk: &Chunk<'_, Data>) -> u64 {
    let taken = chunk.len().min(20);
    let begin = usize::try_from(chunk.range.start).expect("within a slice");
    let end = usize::try_from(chunk.range.start + taken).expect("within a slice");
    let text = String::from_utf8_lossy(&chunk.payload.bytes()[begin..end]);
    println!("    {:>3}: {text:?}", chunk.at);
    taken
}

//! Answers each data segment at a port with a response of BYTES bytes, without any loss recovery. This is the least
//! cost of a TCP outside the kernel, for measuring the paths to the interface.
//!
//! `answer INTERFACE ADDRESS:PORT BYTES [auto|xdp|packet|tap]`

use netdev::{Device, Frames, Options, Protocol, Service};
use netstack::Transmit as _;
use rustix::event::{PollFd, PollFlags, poll};
use support::{ACK, FIN, RST, SYN, Segment, send};

#[path = "../tests/support/tcp.rs"]
#[expect(clippy::cast_possible_truncation, reason = "lengths of frames")]
mod support;

/// The maximum frames that are received before the responses leave.
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [interface, local, bytes, frames @ ..] = &arguments[..] else {
        return Err("answer INTERFACE ADDRESS:PORT BYTES [auto|xdp|packet|tap]".into());
    };
    let frames = match frames.first().map_or("auto", |frames| frames) {
        "xdp" => Frames::Xdp,
        "packet" => Frames::Packet,
        "tap" => Frames::Tap,
        _ => Frames::Auto,
    };
    let service = Service { protocol: Protocol::Tcp, local: local.parse()? };
    let opened = netdev::open(&Options {
        interface: interface.clone(),
        frames,
        services: vec![service],
        own_addresses: Vec::new(),
    })?;
    eprintln!("{}", opened.choice);
    let [queue] = <[_; 1]>::try_from(opened.queues).map_err(|queues| {
        format!("{interface} has {} receive queues in use, not one", queues.len())
    })?;
    let mut device = queue.start();
    let body = vec![b'x'; bytes.parse()?];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = [head.into_bytes(), body].concat();
    loop {
        poll(&mut [PollFd::new(&device.fd(), PollFlags::IN)], None)?;
        loop {
            let mut count = 0;
            while count < BATCH
                && let Some(frame) = device.receive()
            {
                count += 1;
                answer(&mut device, &frame, &response);
            }
            device.flush();
            if count < BATCH {
                break;
            }
        }
    }
}

fn answer(device: &mut Device, frame: &[u8], response: &[u8]) {
    let Some(segment) = Segment::parse(frame) else { return };
    let flags = segment.flags();
    let limits = device.limits();
    let bytes_max = match limits.cut_bytes_max {
        0 => usize::from(limits.mtu) - 60,
        cut_bytes_max => cut_bytes_max as usize,
    };
    // A response without room in the device is lost.
    if flags & RST != 0 {
    } else if flags & SYN != 0 {
        let _ = send(device, &segment.answer(0, SYN | ACK, 0), &[]);
    } else if !segment.payload().is_empty() {
        let mut seq = segment.acknowledged();
        for body in response.chunks(bytes_max) {
            let _ = send(device, &segment.answer(seq, ACK, body.len()), body);
            seq = seq.wrapping_add(u32::try_from(body.len()).expect("a frame"));
        }
    } else if flags & FIN != 0 {
        let _ = send(device, &segment.answer(segment.acknowledged(), FIN | ACK, 0), &[]);
    }
}

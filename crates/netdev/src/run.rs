//! Runs an application on the stack, in a thread of its own: frames in, frames out.

use core::convert::Infallible;
use core::time::Duration;
use std::io;
use std::time::Instant;

use netstack::{Application, Stack, Time, Transmit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::{Device, ROOM_PAUSE, Room, Wait};

/// The maximum frames that are handled before the application acts and its frames leave. The batch shares its cost
/// among enough frames, and the first frame hardly waits.
const BATCH: usize = 64;

/// An application that [`run`] runs.
pub trait Program: Application {
    /// Acts on the events of a batch of frames: drains queues, sends datagrams, ends connections. The loop calls it
    /// after each batch.
    fn act(&mut self, now: Time, stack: &mut Stack, out: &mut impl Transmit);
}

/// Runs an application on the stack of an interface. The stack's clock begins at zero.
///
/// # Errors
///
/// If waiting for frames fails, or the descriptor of the device reports that its interface is gone. Without an
/// error, the function does not return.
pub fn run(
    device: &mut Device,
    stack: &mut Stack,
    app: &mut impl Program,
) -> io::Result<Infallible> {
    let start = Instant::now();
    let clock = || Time::default() + start.elapsed();
    let mut room = Room::default();
    loop {
        let now = clock();
        let mut count = 0;
        while count < BATCH
            && let Some(frame) = device.receive()
        {
            count += 1;
            stack.handle_frame(now, &frame, frame.checksum(), app, device);
        }
        if stack.next_timer().is_some_and(|at| at <= now) {
            stack.handle_timers(now, app, device);
        }
        app.act(now, stack, device);
        stack.flush(now, device);
        let has_left = device.flush();
        let waits = room.handle_batch(has_left, &device.counters());
        if count == BATCH {
            continue;
        }
        let timeout = stack.next_timer().map(|at| at.since(clock()));
        if wait(device, waits, timeout)? {
            room.handle_end(&device.counters());
            stack.handle_room(clock(), app, device);
        }
    }
}

/// Waits for frames, and for room. Returns true if the wait for room is over.
fn wait(device: &Device, waits: Wait, timeout: Option<Duration>) -> io::Result<bool> {
    let pause = (waits == Wait::Pause).then_some(ROOM_PAUSE);
    let timeout = timeout.into_iter().chain(pause).min();
    let timeout = timeout.map(|timeout| Timespec::try_from(timeout).expect("less than 584 years"));
    let (frames, room) = (device.fd(), device.room_fd());
    let mut fds = [PollFd::new(&frames, PollFlags::IN), PollFd::new(&room, PollFlags::OUT)];
    let waited = if waits == Wait::Writable { &mut fds[..] } else { &mut fds[..1] };
    match poll(waited, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // The interface of the TAP device was deleted. The descriptor would be readable for ever.
    if fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
        return Err(Errno::NODEV.into());
    }
    Ok(waits == Wait::Pause || fds[1].revents().contains(PollFlags::OUT))
}

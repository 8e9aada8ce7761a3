//! The wait for room at an interface that is full. Pure.

use core::time::Duration;

use crate::counters::Counters;

/// The pause before a device is tried again that has reported room and had none.
pub const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// The event to wait for before more frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No wait: all frames have left.
    Nothing,
    /// Wait until the descriptor for room is writable.
    Writable,
    /// Wait for [`ROOM_PAUSE`].
    Pause,
}

/// The room of a device over time.
///
/// A descriptor can be writable while the device accepts no frame. AF_XDP reports room in the ring of frames, but
/// memory for frames or for the kernel's copies may be short. A wait for the descriptor would then be a busy loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// The number of refused frames at the last look at the device.
    refused: u64,
    /// `Some` if the device was full, and has since reported room: the number of frames sent before.
    reported: Option<u64>,
}

impl Room {
    /// Returns the event to wait for after a batch. `has_left` is the result of
    /// [`Device::flush`](crate::Device::flush).
    pub fn handle_batch(&mut self, has_left: bool, counters: &Counters) -> Wait {
        let is_full = !has_left || counters.refused != self.refused;
        self.refused = counters.refused;
        if !is_full {
            self.reported = None;
            return Wait::Nothing;
        }
        match self.reported {
            Some(sent) if sent == counters.sent => Wait::Pause,
            Some(_) | None => Wait::Writable,
        }
    }

    /// Records that the wait is over.
    pub const fn handle_end(&mut self, counters: &Counters) {
        self.reported = Some(counters.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters with these numbers of refused and sent frames.
    fn counters(refused: u64, sent: u64) -> Counters {
        Counters { refused, sent, ..Counters::default() }
    }

    #[test]
    fn a_device_without_frames_that_wait_needs_no_room() {
        let mut room = Room::default();
        assert_eq!(room.handle_batch(true, &counters(0, 9)), Wait::Nothing);
    }

    #[test]
    fn room_that_is_none_is_asked_for_after_a_pause() {
        for has_left in [true, false] {
            let mut room = Room::default();
            let mut refused = 0;
            // Either a frame is refused, or some remain.
            let mut batch = |room: &mut Room, sent| {
                refused += u64::from(has_left);
                room.handle_batch(has_left, &counters(refused, sent))
            };
            assert_eq!(batch(&mut room, 9), Wait::Writable);
            room.handle_end(&counters(0, 9));
            assert_eq!(batch(&mut room, 9), Wait::Pause);
            room.handle_end(&counters(0, 9));
            assert_eq!(batch(&mut room, 9), Wait::Pause);
            // Frames were sent before the next one was refused.
            room.handle_end(&counters(0, 9));
            assert_eq!(batch(&mut room, 12), Wait::Writable);
        }
    }

    #[test]
    fn a_device_that_had_room_is_trusted_again() {
        let mut room = Room::default();
        assert_eq!(room.handle_batch(false, &counters(0, 9)), Wait::Writable);
        room.handle_end(&counters(0, 9));
        assert_eq!(room.handle_batch(true, &counters(0, 9)), Wait::Nothing);
        assert_eq!(room.handle_batch(false, &counters(0, 9)), Wait::Writable);
    }
}

//! The queue of a disk, as the kernel counts it (Documentation/admin-guide/iostats.rst). Requests that a control group
//! holds back are not in it: they have not yet reached the disk.

use core::time::Duration;
use std::path::Path;

use crate::machine::read;

use super::throttle::device_of;

/// The disk under a path.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// `MAJOR:MINOR`.
    device: String,
}

impl Disk {
    /// `None` if the files are not on a disk of their own.
    pub(super) fn under(path: &Path) -> Option<Self> {
        Some(Self { device: device_of(path)? })
    }

    /// The time that all requests have waited at the disk since boot, added up. Its growth in a second is the length of
    /// the queue.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_millis(waited(&read("/proc/diskstats"), &self.device).unwrap_or(0))
    }
}

/// The 11th figure of a disk, after its numbers and its name: milliseconds.
fn waited(stats: &str, device: &str) -> Option<u64> {
    stats.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (major, minor) = (fields.next()?, fields.next()?);
        let is_it = device.split_once(':') == Some((major, minor));
        is_it.then(|| fields.nth(11)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_queue_is_found() {
        let stats = " 254       0 vda 9216 1014 1177942 3206 44 40 672 22 0 1668 3251 0 0 0 0 4 23\n \
                     254       1 vda1 9000 1014 1170000 3200 44 40 672 22 0 1660 3222 0 0 0 0 0 0\n";
        assert_eq!(waited(stats, "254:0"), Some(3251));
        assert_eq!(waited(stats, "254:1"), Some(3222));
        assert_eq!(waited(stats, "8:0"), None);
    }
}

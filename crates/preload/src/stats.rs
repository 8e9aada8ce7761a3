//! Counts of events, in all and by disk, written to a file once a second, and a log of rare events.

use core::ffi::CStr;
use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{setting, sys};

/// The reason why a call was left to the kernel, which may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The file is not regular, is at its end, or lies on a file system that does not tell residency.
    Untold,
    /// The target is not a stream socket with `O_NONBLOCK` and without `O_ASYNC`.
    Blocking,
    /// The program waits in a way that is not seen here, or by an epoll instance with several descriptors.
    UnseenLoop,
    /// The socket has several descriptors, too many watchers, one with `EPOLLEXCLUSIVE`, or one of the parent process.
    Watchers,
    /// The bytes are evicted before they can be sent.
    NoProgress,
    /// The program has locked the file.
    Locked,
    /// There is no room in a table, no descriptor, or no thread.
    NoRoom,
}

const REASONS: [(&str, Reason); 7] = [
    ("left_untold", Reason::Untold),
    ("left_blocking", Reason::Blocking),
    ("left_unseen_loop", Reason::UnseenLoop),
    ("left_watchers", Reason::Watchers),
    ("left_no_progress", Reason::NoProgress),
    ("left_locked", Reason::Locked),
    ("left_no_room", Reason::NoRoom),
];

/// A number that only grows.
pub(crate) struct Count(AtomicU64);

impl Count {
    const fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn at_least(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfDisk {
    /// Its `st_dev`.
    pub(crate) dev: u64,
    /// Times that a socket began to wait for it.
    pub(crate) deferred: u64,
    /// Steps of readers, and the bytes that they have read, from the disk or from memory.
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
}

/// Calls of the kernel for bytes in memory.
pub(crate) static RESIDENT: Count = Count::zero();
/// Times that a socket began to wait.
pub(crate) static DEFERRED: Count = Count::zero();
/// Times that a wait ended because the bytes were read.
pub(crate) static REARMED: Count = Count::zero();
/// Bytes that readers have read.
pub(crate) static READ_BYTES: Count = Count::zero();
/// The longest that a socket waited.
pub(crate) static LONGEST_US: Count = Count::zero();
/// Times that pages were discarded from the page cache.
pub(crate) static DISCARDS: Count = Count::zero();
/// Reads that failed.
pub(crate) static FAILED: Count = Count::zero();
static LEFT: [Count; REASONS.len()] = [const { Count::zero() }; REASONS.len()];
const _: () = assert!(Reason::NoRoom as usize == REASONS.len() - 1);

/// Counts a call that is left to the kernel.
pub(crate) fn left(reason: Reason) {
    LEFT[reason as usize].add(1);
}

/// A text on the stack. A longer one is cut.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        let fit = bytes.len().min(N - self.len);
        self.bytes[self.len..self.len + fit].copy_from_slice(&bytes[..fit]);
        self.len += fit;
        fit == bytes.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// A path with a suffix; `None` if it is too long.
fn path(base: &[u8], behind: fmt::Arguments<'_>) -> Option<Text<PATH_BYTES_MAX>> {
    let mut path = Text::new();
    let fits = path.push(base);
    let _ = path.write_fmt(behind);
    (path.push(b"\0") && fits).then_some(path)
}

const PATH_BYTES_MAX: usize = 4096;

/// Writes the counts to the file that `SAMUM_PRELOAD_STATS` and `.PID` name, if that is set. Only its owner may read the
/// file. It is a new file each time, so no link that others have made is followed.
pub(crate) fn write(disks: &[OfDisk]) {
    let Some(base) = setting::STATS.text() else { return };
    let pid = sys::pid();
    let (Some(new), Some(to)) =
        (path(base, format_args!(".{pid}.new")), path(base, format_args!(".{pid}")))
    else {
        return;
    };
    let mut text = Text::<TEXT_BYTES_MAX>::new();
    let counts = [
        ("resident", &RESIDENT),
        ("deferred", &DEFERRED),
        ("rearmed", &REARMED),
        ("read_bytes", &READ_BYTES),
        ("longest_wait_us", &LONGEST_US),
        ("failed", &FAILED),
        ("discards", &DISCARDS),
    ];
    let left = REASONS.iter().map(|&(name, reason)| (name, &LEFT[reason as usize]));
    for (name, count) in counts.into_iter().chain(left) {
        let _ = writeln!(text, "{name} {}", count.value());
    }
    for OfDisk { dev, deferred, reads, read_bytes } in disks {
        let (major, minor) = (libc::major(*dev), libc::minor(*dev));
        let _ = writeln!(
            text,
            "disk {major}:{minor} deferred {deferred} reads {reads} read_bytes {read_bytes}"
        );
    }
    let (Ok(new), Ok(to)) =
        (CStr::from_bytes_with_nul(new.bytes()), CStr::from_bytes_with_nul(to.bytes()))
    else {
        return;
    };
    if sys::write_new_file(new, text.bytes()) {
        sys::rename(new, to);
    }
}

/// All counts, and the lines of 16 disks with numbers of 20 digits.
const TEXT_BYTES_MAX: usize = 4096;

/// Says whether the caller is to [`write`] now: once a second, one thread.
pub(crate) fn is_due() -> bool {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if setting::STATS.text().is_none() {
        return false;
    }
    let (now, next) = (sys::now().as_secs(), NEXT.load(Ordering::Relaxed));
    let is_ours =
        || NEXT.compare_exchange(next, now + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    now >= next && is_ours()
}

/// Sets all counts to 0, in a new process.
pub(crate) fn reset() {
    let counts = [&RESIDENT, &DEFERRED, &REARMED, &READ_BYTES, &LONGEST_US, &FAILED, &DISCARDS];
    for count in counts.into_iter().chain(&LEFT) {
        count.0.store(0, Ordering::Relaxed);
    }
}

/// The most lines in one second; further ones are dropped.
const LINES_MAX: u64 = 10;

/// Writes a line to `SAMUM_PRELOAD_LOG`, if that is set.
pub(crate) fn log(line: fmt::Arguments<'_>) {
    static LINES: AtomicU64 = AtomicU64::new(0);
    static SECOND: AtomicU64 = AtomicU64::new(0);
    let Some(to) = setting::LOG.text() else { return };
    let now = sys::now().as_secs();
    if SECOND.swap(now, Ordering::Relaxed) != now {
        LINES.store(0, Ordering::Relaxed);
    }
    if LINES.fetch_add(1, Ordering::Relaxed) >= LINES_MAX {
        return;
    }
    let mut text = Text::<512>::new();
    let _ = writeln!(text, "samum-preload[{}]: {line}", sys::pid());
    if to == b"-" {
        sys::write(2, text.bytes());
    } else if let Some(path) = path(to, format_args!(""))
        && let Ok(path) = CStr::from_bytes_with_nul(path.bytes())
    {
        sys::append_to_file(path, text.bytes());
    }
}

//! The pace of a device: how large its reads should be, how many at once, and for how long what they
//! brought is believed to be resident.
//!
//! One model for all that reads from a disk. It is pure: it gets the begin and the end of each read with
//! the time, and answers from three numbers. Each device has a [`Pace`] of its own, by its number (`st_dev`).
//!
//! **What is measured.** A device is a server with a line. While reads are in flight it is *busy*. In a
//! *round*, which lasts for 50 ms of busy time and 8 reads, three sums are kept: the busy time, the bytes that
//! came, and the bytes in flight multiplied by their time. They give
//!
//! - the rate: bytes by busy time. No read has to be told from those beside it, and a device that idles
//!   because nothing is asked of it does not look slow;
//! - the mean of the bytes in flight; divided by the rate it is the mean latency (Little 1961).
//!
//! Bytes that were in memory already came from no device: a caller that knows (a reader that did not sleep)
//! reports them as none.
//!
//! **What is inferred.** Two *windows*, bytes that may be in flight, in powers of two:
//!
//! - the *harmless* window: what drains at the measured rate in 5 ms. It needs no proof, because no other read
//!   waits long for it. It alone decides on a fast device;
//! - the window of the most *power*: rate divided by latency (Kleinrock 1979). Twice as much in flight doubles
//!   the power of a network disk until its link is full, raises that of a hard disk while reads get larger,
//!   and halves that of a disk with a limit, where it makes all others wait and brings nothing. After each
//!   round the power of what was in flight is compared with the best so far; then twice the best window is
//!   tried for a round, and half of it.
//!
//! The larger of the two counts. [`Pace::chunk`] is half of it, between 256 KiB and 1 MiB;
//! [`Pace::depth`] is the number of chunks in it, so a small window has two reads in flight and a large one
//! has many large ones. On a device so fast that 4 MiB are harmless the kernel may read ahead
//! ([`Pace::readahead`]): its readahead is megabytes for each stream, which no window bounds, and once begun it does not
//! end before the file does. So nothing is read ahead before that is known; 16 MiB that come quickly show it before
//! the first round ends. After such a round the kernel may go on reading ahead of new streams if 2 MiB are harmless, and
//! after two in a row if 1 MiB is ([`Constants::steady`]).
//!
//! First reads of files, and small files, are not bound by the depth (only by the places of the program): the
//! window is for those that go on reading. What they do is measured all the same, and is how the model learns
//! that more in flight would pay.
//!
//! **How it forgets.** The best power is believed for 10 s, as BBR believes the latency of a path (Cardwell
//! and others 2016), then the next round is the best, and its neighbours are tried again. The harmless
//! window is that of the last round.
//!
//! **Constants** are the fields of [`Constants`], each with its source. `tests/disks.txt` has the results on
//! eleven simulated disks: of this model, of what was used before it, of BBR's rule, of the best fixed choice,
//! and of the model with each constant halved and doubled.
//!
//! Two of them seem to do harm there: without the harmless window, or without readahead, 99 of 100 small reads end sooner on
//! average. They are for fast disks, and what they save there is processor time, which the simulation does not have. On a real
//! one, 200 cold files at once cost 176 ms of CPU per GiB and came with 3,150 MB/s; without readahead 360 ms and 2,240 MB/s, without
//! the harmless window 437 ms and 1,600 MB/s. Behind a limit of 64 MiB/s 99 of 100 small files came within 0.9, 1.1 and 1.1 ms
//! (`samum-bench league disk mixed`, 5 and 3 rounds, twice with the same outcome; not kept).
//!
//! **What it does not know.** Programs and workers that share a device each have a model of their own. Two
//! leave each other alone, because to double one's share of a full device brings a third more and
//! costs a half more latency; from four on the power of each rises with its window, so they try more.
//!
//! **What a window cannot do.** A device whose limit comes in slices stops when one is used up. [`Spacing`] finds that
//! out, and spaces streams there while other reads come. All that read from the device in a process share it.
//!
//! [`belief`] is the other half: when a block of a file that was found resident has to be looked at again.
//!
//! # Example
//!
//! ```
//! use core::time::Duration;
//! use pace::Pace;
//!
//! // A device of 64 MiB/s takes 4 ms for 256 KiB, however many wait.
//! let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
//! for _ in 0..100 {
//!     let chunk = pace.chunk();
//!     pace.begin(chunk, now);
//!     now += Duration::from_nanos(chunk * 1_000_000_000 / (64 << 20));
//!     pace.end(chunk, chunk, now);
//! }
//! assert_eq!((pace.depth(), pace.chunk()), (2, 256 * 1024));
//! assert!(!pace.readahead());
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod belief;
mod device;
mod spacing;

pub use belief::{Belief, JUST_READ, Witness, belief};
pub use device::{CHUNK_MAX, CHUNK_MIN, Constants, Pace};
pub use spacing::Spacing;

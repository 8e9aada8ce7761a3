//! The pace of a device: the size of its reads, their number at once, and the time for which their pages are
//! believed to be resident.
//!
//! All readers of a disk share one model. The model is pure: it takes the begin and the end of each read with the
//! time, and decides from three numbers. Each device has a [`Pace`] of its own, by its number (`st_dev`).
//!
//! **What is measured.** A device is a server with a queue. While reads are in flight it is *busy*. In a *round*,
//! which lasts for 50 ms of busy time and 8 reads, three sums are kept: the busy time, the bytes read, and the
//! bytes in flight multiplied by their time. The sums give
//!
//! - the rate: bytes divided by busy time. The model need not tell concurrent reads apart, and a device that idles
//!   for lack of requests does not look slow;
//! - the mean of the bytes in flight; this mean divided by the rate is the mean latency (Little 1961).
//!
//! Bytes that were already in memory did not come from the device. A caller that can detect such a read (its reader
//! did not sleep) reports zero bytes.
//!
//! **What is inferred.** Two *windows*, bytes that may be in flight, in powers of two:
//!
//! - the *harmless* window: the bytes that drain in 5 ms at the measured rate. This window needs no proof, because
//!   no other read waits long for it. On a fast device it alone decides;
//! - the window of the most *power*: rate divided by latency (Kleinrock 1979). Twice as much in flight doubles
//!   the power of a network disk until its link is full, and raises the power of a hard disk while reads get
//!   larger. It halves the power of a disk with a rate limit, where more in flight makes all other reads wait and
//!   gains nothing. After each round the power of the bytes in flight is compared with the best so far. Then twice
//!   the best window is tried for a round, and half of it.
//!
//! The larger of the two counts. [`Pace::chunk`] is half of it, between 256 KiB and 1 MiB;
//! [`Pace::depth`] is the number of chunks in it, so a small window has two reads in flight and a large one
//! has many large ones. If 4 MiB are harmless on a device, the kernel may read ahead ([`Pace::lets_kernel_read_ahead`]). The
//! kernel's readahead is megabytes for each stream, and no window bounds it. Once begun, it ends only with the file. So
//! there is no readahead until the device is known to be fast; 16 MiB that are read quickly prove it before the first
//! round ends. After one such round the kernel may still read ahead of new streams if 2 MiB are harmless, and after two
//! in a row if 1 MiB is ([`Constants::steady`]).
//!
//! The depth does not bound first reads of files or small files; only the slots of the program do. The window is
//! for reads that continue a file. First reads are measured all the same, and show the model when more in flight
//! would pay.
//!
//! **How it forgets.** The best power is believed for 10 s, as BBR believes the latency of a path (Cardwell
//! and others 2016), then the next round counts as the best, and its neighbours are tried again. The harmless
//! window comes from the last round.
//!
//! **Constants** are the fields of [`Constants`], each with its source. `tests/disks.txt` has the results on
//! eleven simulated disks: of this model, of the rule used before it, of BBR's rule, of the best fixed choice, and
//! of the model with each constant halved and doubled.
//!
//! Two constants seem to do harm there: without the harmless window, or without readahead, 99 of 100 small reads end
//! sooner on average. Both are for fast disks, and save processor time, which the simulation does not count. On a real
//! disk, 200 cold files at once cost 176 ms of CPU per GiB and came with 3,150 MB/s; without readahead 360 ms and 2,240
//! MB/s, without the harmless window 437 ms and 1,600 MB/s. Behind a limit of 64 MiB/s 99 of 100 small files came
//! within 0.9, 1.1 and 1.1 ms (`samum-bench league disk mixed`, 5 and 3 rounds, twice with the same outcome; not kept).
//!
//! **What it does not know.** Programs and workers that share a device each have a model of their own. Two models
//! do not compete: doubling one window on a full device raises its rate by a third and its latency by a half. With
//! four models or more, the power of each rises with its window, so each tries larger windows.
//!
//! **What a window cannot do.** A device whose rate limit comes in time slices stops when a slice is used up.
//! [`Spacing`] detects such a device, and spaces its streams while other reads come. All readers of the device in a
//! process share one [`Spacing`].
//!
//! [`belief`] is the other half: it decides when a block that was found resident has to be checked again.
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
//! assert!(!pace.lets_kernel_read_ahead());
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod belief;
mod device;
mod spacing;

pub use belief::{Belief, JUST_READ, Witness, belief};
pub use device::{CHUNK_MAX, CHUNK_MIN, Constants, Pace};
pub use spacing::Spacing;

//! The pace of a device: the size of reads, the number of reads at a time, and the time for which memory pages are
//! regarded as resident after a read.
//!
//! All readers of files use this model. Each worker has its own [`Pace`] for each device (`st_dev`). A process that
//! reads without workers also has its own [`Pace`] for each device. The model is pure: it receives the times at which
//! each read begins and ends, and decides from three sums.
//!
//! **What is measured.** A device is a server with a queue. While reads are in flight, the device is *busy*. A *round*
//! has at least 50 ms of busy time and 8 reads. The three sums of a round are: the busy time, the bytes read, and the
//! bytes in flight multiplied by their time. The sums give
//!
//! - the rate: bytes divided by busy time. The times of concurrent reads need not be separated. Time without a read
//!   does not make a device look slow;
//! - the mean of the bytes in flight; this mean divided by the rate is the mean latency (Little 1961).
//!
//! Bytes that were already in memory did not come from the device. If the caller detects that bytes were in memory (the
//! reader did not sleep), the caller reports zero bytes for this read.
//!
//! **What is inferred.** There are two *windows*. A window is a number of bytes that may be in flight, and is a power
//! of two:
//!
//! - the *harmless* window: the bytes that drain in 5 ms at the measured rate. The harmless window is used without a
//!   trial, because this window delays other reads by at most about 5 ms. On a fast device the harmless window is the
//!   larger one;
//! - the window of the most *power*: rate divided by latency (Kleinrock 1979). If the bytes in flight are doubled, the
//!   power of a network disk doubles until its link is full. The power of a hard disk rises as long as reads get
//!   larger. If the bytes in flight are doubled on a disk with a rate limit, the power of the disk is halved: the rate
//!   stays the same, and all reads wait longer. After each round the power of the bytes in flight is compared with the
//!   best power so far. In the next rounds, twice the best window and half the best window are tried, unless such a
//!   window is already known to be worse.
//!
//! The larger of the two windows is used. [`Pace::chunk`] is half of the window, between 256 KiB and 1 MiB.
//! [`Pace::depth`] is the number of chunks in the window: two reads of 256 KiB in the smallest window, many reads of 1
//! MiB in a large window. If the harmless window of a device has at least 4 MiB, the kernel may read ahead
//! ([`Pace::lets_kernel_read_ahead`]). The kernel's readahead is megabytes for each stream, and no window bounds this
//! readahead. When the readahead of a file has begun, it ends only with the file. So there is no readahead until the
//! device is known to be fast. If 16 MiB are read quickly, the device is regarded as fast before the first round ends.
//! After one fast round, a harmless window of 2 MiB is enough for readahead of new streams; after two fast rounds in a
//! row, 1 MiB is enough ([`Constants::steady`]).
//!
//! After a round that lets the kernel read ahead, the window is at least [`Constants::window_ahead`]. If several
//! processes use a device, a process that asks for fewer bytes gets fewer bytes: the measured rate falls, so the window
//! shrinks, and the rate falls again. A smaller window would not bound the wait of other reads, because the kernel
//! reads ahead for all streams. `tests/shared.txt` has such devices.
//!
//! The depth limits only reads that continue a file. First reads of files, and reads of small files, are limited only
//! by the slots of the worker (or of the process). The model also measures first reads, so the model notices if more
//! bytes in flight would raise the power.
//!
//! **How the model forgets.** The best power is used for 10 s. After this time the next round becomes the best round,
//! and twice the window of this round and half the window are tried again. BBR uses the measured latency of a path for
//! the same time (Cardwell and others 2016). The harmless window comes from the last round.
//!
//! **Constants** are the fields of [`Constants`], each with its source. `tests/disks.txt` has the results of
//! simulations on eleven disks. The simulations compare this model, the rules that this model replaced, BBR's rule, the
//! best fixed choice, and the model with each constant halved and doubled.
//!
//! In these simulations two parts of the model seem to do harm: the harmless window and readahead each make the p99 of
//! small reads longer on average. The harmless window and readahead are for fast disks, and save CPU time. The
//! simulations do not include CPU time. `samum-bench league disk mixed` measured the model on a real disk, in runs of 5
//! and of 3 rounds. All runs were made twice, with the same outcome, and were not kept.
//!
//! 200 cold files, requested at the same time, had this rate and this CPU time per GiB:
//!
//! - with the whole model: 3,150 MB/s, 176 ms;
//! - without readahead: 2,240 MB/s, 360 ms;
//! - without the harmless window: 1,600 MB/s, 437 ms.
//!
//! Under a limit of 64 MiB/s, small files had this p99:
//!
//! - with the whole model: 0.9 ms;
//! - without readahead: 1.1 ms;
//! - without the harmless window: 1.1 ms.
//!
//! **What the model does not know.** Models of the same device do not know of each other. If one of two models on a
//! full device doubles its window, its own rate rises by a third and its latency by half, so its power falls. With four
//! models or more, the power of each rises with its window, so each tries larger windows.
//!
//! **What a window cannot do.** A device whose rate limit comes in time slices stops when a slice is used up.
//! [`Spacing`] detects such a device, and inserts pauses between the reads of its streams while other reads come. All
//! readers of the device in a process share one [`Spacing`].
//!
//! The module [`belief`] does the second task of this crate: it decides when a resident block has to be checked again.
//! The module [`popularity`] does the third task: it decides which files stay resident.
//!
//! # Example
//!
//! ```
//! use core::time::Duration;
//! use pace::Pace;
//!
//! // A device of 64 MiB/s takes 4 ms for 256 KiB, however many other reads wait.
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
pub mod popularity;
mod spacing;

pub use belief::{Belief, JUST_READ, Witness, belief};
pub use device::{CHUNK_MAX, CHUNK_MIN, Constants, Pace};
pub use spacing::Spacing;

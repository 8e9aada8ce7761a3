//! The pace of a device: the size of its reads, their number at a time, and the time for which their pages are
//! believed to be resident.
//!
//! All readers of files use this model, but each worker and each program has a model of its own for each device
//! (`st_dev`): a [`Pace`]. The model is pure. It receives the times at which each read begins and ends, and decides
//! from three sums.
//!
//! **What is measured.** A device is a server with a queue. While reads are in flight it is *busy*. A *round* has at
//! least 50 ms of busy time and 8 reads. Its three sums are: the busy time, the bytes read, and the bytes in flight
//! multiplied by their time. The sums give
//!
//! - the rate: bytes divided by busy time. Concurrent reads need not be told apart. A device that is idle because no
//!   read is asked for does not look slow;
//! - the mean of the bytes in flight; this mean divided by the rate is the mean latency (Little 1961).
//!
//! Bytes that were already in memory did not come from the device. A caller that can detect such a read (its reader
//! did not sleep) reports zero bytes.
//!
//! **What is inferred.** There are two *windows*. A window is a number of bytes that may be in flight, and is a power
//! of two:
//!
//! - the *harmless* window: the bytes that drain in 5 ms at the measured rate. This window is used without a trial,
//!   because other reads wait for it only about 5 ms. On a fast device it alone decides;
//! - the window of the most *power*: rate divided by latency (Kleinrock 1979). Twice as much in flight doubles
//!   the power of a network disk until its link is full, and raises the power of a hard disk while reads get
//!   larger. It halves the power of a disk with a rate limit: the rate stays the same, and all reads wait longer.
//!   After each round the power of the bytes in flight is compared with the best so far. In the next rounds, twice
//!   the best window and half of it are tried, unless one of them is already known to be worse.
//!
//! The larger of the two counts. [`Pace::chunk`] is half of it, between 256 KiB and 1 MiB. [`Pace::depth`] is the
//! number of chunks in it: two reads of 256 KiB in the smallest window, many reads of 1 MiB in a large one.
//! If 4 MiB are harmless on a device, the kernel may read ahead ([`Pace::lets_kernel_read_ahead`]). The
//! kernel's readahead is megabytes for each stream, and no window bounds it. Once begun, it ends only with the file. So
//! there is no readahead until the device is known to be fast; 16 MiB that are read quickly prove it before the first
//! round ends. After one fast round, a harmless window of 2 MiB is enough for readahead of new streams; after two fast
//! rounds in a row, 1 MiB is enough ([`Constants::steady`]).
//!
//! After a round that lets the kernel read ahead, the window is at least [`Constants::window_ahead`]. On a device that
//! other programs use, too, a program that asks for less gets less: the measured rate falls, with the rate the window,
//! and then the rate again. A smaller window would not bound the wait of other reads, because the kernel reads ahead of
//! all streams. `tests/shared.txt` has such devices.
//!
//! The depth limits only reads that continue a file. First reads of files, and reads of small files, are limited only
//! by the program's slots. First reads are measured, too, and show the model when more bytes in flight would raise the
//! power.
//!
//! **How it forgets.** The best power is believed for 10 s. Then the next round counts as the best, and twice and half
//! its window are tried again. BBR believes the latency of a path for the same time (Cardwell and others 2016). The
//! harmless window comes from the last round.
//!
//! **Constants** are the fields of [`Constants`], each with its source. `tests/disks.txt` has the results on
//! eleven simulated disks: of this model, of the rule used before it, of BBR's rule, of the best fixed choice, and
//! of the model with each constant halved and doubled.
//!
//! In these simulations two parts of the model look harmful: without the harmless window, or without readahead, 99 of
//! 100 small reads end sooner on average. Both parts are for fast disks, and save processor time, which the simulation
//! does not count. On a real disk, 200 cold files at the same time came with 3,150 MB/s, and cost 176 ms of CPU per
//! GiB. Without readahead the figures were 2,240 MB/s and 360 ms, without the harmless window 1,600 MB/s and 437 ms.
//! Behind a limit of 64 MiB/s, 99 of 100 small files came within 0.9 ms. Without readahead or without the harmless
//! window, they came within 1.1 ms. (`samum-bench league disk mixed`, 5 and 3 rounds, twice with the same outcome; not
//! kept.)
//!
//! **What it does not know.** Models of the same device do not know of each other. If one of two models on a full
//! device doubles its window, its own rate rises by a third and its latency by half, so its power falls. With four
//! models or more, the power of each rises with its window, so each tries larger windows.
//!
//! **What a window cannot do.** A device whose rate limit comes in time slices stops when a slice is used up.
//! [`Spacing`] detects such a device, and spaces its streams while other reads come. All readers of the device in a
//! process share one [`Spacing`].
//!
//! The module [`belief`] does the second task of this crate: it decides when a resident block has to be checked again.
//! The third task is that of [`popularity`]: it decides which files stay resident.
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
pub mod popularity;
mod spacing;

pub use belief::{Belief, JUST_READ, Witness, belief};
pub use device::{CHUNK_MAX, CHUNK_MIN, Constants, Pace};
pub use spacing::Spacing;

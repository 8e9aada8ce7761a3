//! The layout of a media file: the position of its index, and its bytes over time.
//!
//! With the layout, a server reads ahead a few seconds of a film instead of a fixed number of bytes. So the server
//! reads little in vain when a player leaves. The containers are MP4, also fragmented, and Matroska with WebM.
//!
//! A [`Probe`] asks for bytes of the file, and receives them. The probe ends with a [`Layout`], or with nothing if it
//! does not know the container. Most files need one to four reads. The probe is no validator and no demultiplexer:
//! it does not look at samples. Parts that the probe does not understand make the layout less exact; such an error
//! costs at most one window.
//!
//! The crate does no I/O and reads no clock.
//!
//! The crate trusts nothing in a file: an offset beyond the file is dropped, a box beyond its parent is cut, and
//! bytes, boxes and points are counted ([`BYTES_MAX`], [`TABLE_BYTES_MAX`], [`BOXES_MAX`], [`POINTS_MAX`]). Boxes
//! are followed along fixed paths, so there is no recursion.
//!
//! # Reading list
//!
//! - ISO/IEC 14496-12, the ISO base media file format: §4.2 boxes, §8.2 `moov`, §8.6 times, §8.7 chunks,
//!   §8.8 fragments, §8.16 segments
//! - RFC 8794, EBML: §4 variable-size integers, §5–§7 elements
//! - RFC 9559, Matroska: §5.1.1 `SeekHead`, §5.1.2 `Info`, §5.1.5 `Cues`, §22 cueing
//!
//! # A file, probed
//!
//! ```
//! # fn read(file: &[u8], range: core::ops::Range<u64>) -> &[u8] {
//! #     &file[range.start as usize..range.end as usize]
//! # }
//! # fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
//! #     [&(8 + body.len() as u32).to_be_bytes()[..], kind, body].concat()
//! # }
//! # let mut header = [0; 100];
//! # header[12..20].copy_from_slice(&[0, 0, 0x03, 0xe8, 0, 0, 0x4e, 0x20]);
//! # let moov = boxed(b"moov", &boxed(b"mvhd", &header));
//! # let film = &[boxed(b"ftyp", b"isom"), moov, boxed(b"mdat", &[0; 100_000])].concat()[..];
//! // 20 seconds in 100 kB.
//! let mut probe = media::Probe::new(film.len() as u64);
//! while let Some(range) = probe.wants() {
//!     probe.handle_bytes(read(film, range));
//! }
//! let layout = probe.into_layout().expect("a film");
//! assert_eq!(layout.index(), [12..128]);
//! assert_eq!(layout.bytes_per_second(), Some(5_000));
//! assert_eq!(layout.window(50_136, 4_000), Some(20_000));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod layout;
mod limits;
mod matroska;
mod mp4;
mod probe;
#[cfg(test)]
mod testing;

pub use layout::{Layout, MEMORY_MAX, POINTS_MAX};
pub use limits::{BOXES_MAX, BYTES_MAX, TABLE_BYTES_MAX};
pub use probe::Probe;

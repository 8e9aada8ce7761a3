//! Entity tags: strong, so two files with the same tag have the same bytes.
//!
//! A tag of [`Tags::Stat`] is made of the size, the times of modification and of change, and the inode. The time of
//! modification and the size alone do not suffice. Programs can set them, and many files have the same (Nix, container
//! layers, `rsync -t`). No program can set the time of change, and a file that replaces another has another inode. The
//! device is left out, because its number differs after a reboot. So the tag stays the same when the server or the
//! machine restarts, and resumed downloads go on. A copy on another machine has another tag, and so has a file whose
//! mode or names were changed. Before Linux 6.13 two writes within one tick of the kernel's clock (1 to 10 ms) have one
//! time of change. Writes through a shared mapping set the time only when a page becomes dirty.
//!
//! This does not hold for a file system that is written as a whole. Inode and both times are those of the image, and
//! two releases may have the same (`mksquashfs -all-time`). Such files have no tag of [`Tags::Stat`], also below an
//! overlay ([`Stat::from_image`]), and their dates validate no ranges.
//!
//! Some file systems have no time of change (FUSE, where both times are 0 or 1). Then only the inodes tell two files of
//! equal size apart, and inodes may be used again. Such files have no tag.
//!
//! A tag of [`Tags::Hash`] is made of the contents: it is the same on all machines of a fleet. It is computed on a
//! thread beside the worker, one file of a device after the other, at a limited rate; until then the file has no tag. A
//! read that never ends delays only the files of its device. Computed hashes are kept by mount, inode and time of
//! change. The mount counts because another image at the same path may be the same in everything else. Where the ids of
//! mounts are used again, files of images have no tag.

use std::collections::{HashMap, VecDeque};

use http::Coding;
use ring::Stat;

use config::Tags;
use session::files::{TIME_OF_NOTHING, Variant};

/// The largest file with a tag of its contents: for a larger one other files would wait for minutes.
const BYTES_MAX: u64 = 4 << 30;
/// Hashes kept, per worker: 6 MiB. At the limit the oldest is evicted.
const KNOWN_MAX: usize = 64 * 1024;

/// Length of the part of a hash that is in a tag.
const HASH_LEN: usize = 16;
pub(super) type Hash = [u8; HASH_LEN];

/// One state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    mount: u64,
    dev: u64,
    ino: u64,
    pub(super) size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

impl From<&Stat> for State {
    fn from(stat: &Stat) -> Self {
        Self {
            mount: stat.mount,
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            mtime: (stat.mtime, stat.mtime_nanos),
            ctime: (stat.ctime, stat.ctime_nanos),
        }
    }
}

/// Returns true if a file may have a tag of its contents: the file is not too large, and its hash will not be taken for
/// another file's later.
pub(super) const fn can_be_known(stat: &Stat) -> bool {
    let tells_states = if stat.from_image { stat.has_unique_mount() } else { has_change(stat) };
    stat.size <= BYTES_MAX && tells_states
}

/// Returns true if the tag of a file is missing. A copy has the tag that its maker has given it.
pub(super) const fn lacks_tag(variant: &Variant) -> bool {
    variant.etag.is_empty() && !variant.is_copy
}

/// Returns true if the file system has times of change.
const fn has_change(stat: &Stat) -> bool {
    stat.ctime > TIME_OF_NOTHING || stat.mtime > TIME_OF_NOTHING
}

/// The tag of a state. The state is hashed, so the tag does not disclose inode numbers.
pub(super) fn of_stat(stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    for number in [stat.size, stat.ino] {
        hasher.update(&number.to_le_bytes());
    }
    for (seconds, nanos) in [(stat.mtime, stat.mtime_nanos), (stat.ctime, stat.ctime_nanos)] {
        hasher.update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
    }
    tag(&cut(&hasher.finalize()), coding)
}

/// The tag of a hash. It names the coding, because the files of two codings can have the same bytes.
fn tag(hash: &Hash, coding: Option<Coding>) -> Vec<u8> {
    let hash = u128::from_be_bytes(*hash);
    let coding = coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
    format!("\"{hash:032x}{coding}\"").into_bytes()
}

pub(super) fn cut(hash: &blake3::Hash) -> Hash {
    *hash.as_bytes().first_chunk().expect("32 bytes")
}

/// The hashes of contents that were computed.
#[derive(Debug, Default)]
pub(super) struct KnownHashes {
    by_state: HashMap<State, Hash>,
    /// The states with a hash, the oldest first.
    order: VecDeque<State>,
}

impl KnownHashes {
    /// Adds a hash. At the limit the oldest is evicted.
    pub(super) fn learn(&mut self, state: State, hash: Hash) {
        if self.order.len() >= KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_state.remove(&oldest);
        }
        if self.by_state.insert(state, hash).is_none() {
            self.order.push_back(state);
        }
    }

    /// Returns true if a file has a hash.
    pub(super) fn has(&self, stat: &Stat) -> bool {
        self.by_state.contains_key(&State::from(stat))
    }

    /// The tag of a file, empty if the file has none, or if its hash is not known (yet).
    pub(super) fn tag(&self, tags: Tags, stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
        match tags {
            Tags::Stat if stat.from_image || !has_change(stat) => Vec::new(),
            Tags::Stat => of_stat(stat, coding),
            Tags::Hash => {
                let hash = self.by_state.get(&State::from(stat));
                hash.map_or(Vec::new(), |hash| tag(hash, coding))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::{Device, FileKind};

    const STAT: Stat = Stat {
        kind: FileKind::Regular,
        size: 7,
        mtime: 1,
        mtime_nanos: 2,
        ctime: 3,
        ctime_nanos: 4,
        dev: 5,
        device: Device::of(5),
        ino: 6,
        links: 1,
        mode: 0o644,
        owner: 0,
        from_image: false,
        direct_align: 0,
        mount: 0,
    };

    #[test]
    fn a_tag_changes_with_all_that_it_is_made_of_and_with_nothing_else() {
        let stat = STAT;
        let same = of_stat(&stat, None);
        assert!(http::EntityTag::parse(&same).is_some_and(|tag| !tag.weak));
        let others = [
            Stat { size: 8, ..stat },
            Stat { mtime: 2, ..stat },
            Stat { mtime_nanos: 3, ..stat },
            Stat { ctime: 4, ..stat },
            Stat { ctime_nanos: 5, ..stat },
            Stat { ino: 7, ..stat },
        ];
        for other in others {
            assert_ne!(of_stat(&other, None), same, "{other:?}");
        }
        assert_ne!(of_stat(&stat, Some(Coding::Gzip)), same);
        for other in [Stat { dev: 6, ..stat }, Stat { links: 2, ..stat }] {
            assert_eq!(of_stat(&other, None), same, "{other:?}");
        }
    }

    #[test]
    fn a_hash_is_kept_for_one_mount_and_for_an_image_only_if_no_other_has_its_id() {
        let stat = Stat { from_image: true, mount: u64::MAX, ..STAT };
        let mut hashes = KnownHashes::default();
        hashes.learn(State::from(&stat), [7; HASH_LEN]);
        assert!(can_be_known(&stat) && !hashes.tag(Tags::Hash, &stat, None).is_empty());
        let elsewhere = Stat { mount: u64::MAX - 1, ..stat };
        assert!(hashes.tag(Tags::Hash, &elsewhere, None).is_empty());
        assert!(!can_be_known(&Stat { mount: 30, ..stat }));
        assert!(can_be_known(&Stat { mount: 30, from_image: false, ..stat }));
    }

    #[test]
    fn a_file_of_time_0_or_1_has_a_tag_only_if_its_time_of_change_is_known() {
        let hashes = KnownHashes::default();
        for mtime in [0, 1] {
            let known = Stat { mtime, ctime: 1_700_000_000, ..STAT };
            let tag = hashes.tag(Tags::Stat, &known, None);
            assert!(!tag.is_empty() && can_be_known(&known));
            let rebuilt = Stat { ctime: known.ctime + 1, ..known };
            assert_ne!(hashes.tag(Tags::Stat, &rebuilt, None), tag, "the inode was used again");
            for ctime in [0, 1] {
                let unknown = Stat { mtime, ctime, ..STAT };
                assert!(hashes.tag(Tags::Stat, &unknown, None).is_empty());
                assert!(!can_be_known(&unknown));
            }
        }
    }

    #[test]
    fn a_tag_of_contents_is_the_same_in_every_version_of_the_program() {
        // BLAKE3 of "abc", of its authors' test vectors.
        let hash = cut(&blake3::hash(b"abc"));
        assert_eq!(tag(&hash, None), b"\"6437b3ac38465133ffb63b75273a8db5\"");
        assert_eq!(tag(&hash, Some(Coding::Br)), b"\"6437b3ac38465133ffb63b75273a8db5-br\"");
    }
}

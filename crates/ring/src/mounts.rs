//! Learns two things from the mount of a file: its device, if the file system has a number of its own, and whether the
//! times of the file may come from an image.
//!
//! Read first: `stx_mnt_id` in statx(2), `/proc/pid/mountinfo` in proc(5), `btrfs_getattr` in fs/btrfs/inode.c,
//! `ovl_map_dev_ino` in fs/overlayfs/inode.c. Each subvolume of a btrfs has its own number, and so has an overlay or
//! each of its layers. Yet their files wait for one disk. So a btrfs is identified by the number of its superblock. An
//! overlay is identified by the device of its layers, if the layers are visible here and on one device. All other file
//! systems keep the number from `statx(2)`.
//!
//! Some file systems are written as a whole, by a program that may give all files one time (squashfs and the like). Two
//! such images can have files with the same number, size and times, but different bytes. Images do not store the birth
//! time of a file. File systems that are written file by file do, except old ones (ext3) and some network file systems.
//! So a file with a birth time is not from an image; without a birth time the type decides. An overlay reports the
//! birth times of its layers, which need not be visible here. So a file of an overlay without a birth time may be from
//! an image.
//!
//! Both facts depend on the mount alone. They are learned at the first file of the mount, in a thread that may sleep,
//! because layers are opened by their paths. A mount of a block device needs no such thread if its files have birth
//! times. Before Linux 6.8 the kernel gives the id of an unmounted mount to a new one. Until the table is full, files
//! of the new mount may then share the slots of another device.

mod parse;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

use crate::gate::Device;

/// Mounts that are known, for all rings of the process. At the limit all are dropped, and learned again.
const MOUNTS_MAX: usize = 1024;
/// File systems that can be stacked (`FILESYSTEM_MAX_STACK_DEPTH`).
const DEPTH_MAX: u32 = 2;
/// Layers of an overlay (`OVL_MAX_STACK`).
const LAYERS_MAX: usize = 500;
/// The bit of `stx_mask` for mount ids that are used once, from Linux 6.8 on.
pub(crate) const UNIQUE: u32 = libc::STATX_MNT_ID_UNIQUE;
/// The fields of `statx(2)` that show the location of a file.
const LOOKED_AT: StatxFlags = StatxFlags::from_bits_retain(UNIQUE | libc::STATX_BTIME);

/// The mounts that were met, by id.
static KNOWN: RwLock<BTreeMap<u64, Mount>> = RwLock::new(BTreeMap::new());

/// A mount that was met.
#[derive(Clone, Copy, Debug)]
struct Mount {
    /// The device of its files; `None` if it is the one that `statx(2)` says.
    behind: Option<Device>,
    /// True if the kernel has the attributes of each open file in memory.
    keeps_attributes: bool,
    /// True if files without a time of birth may have the times of an image.
    may_be_image: bool,
}

impl Mount {
    /// A mount that cannot be learned.
    const UNKNOWN: Self = Self { behind: None, keeps_attributes: false, may_be_image: true };
}

/// The device and the kind of a file's file system, learned from its mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) device: Device,
    /// True if its times and its number may come from an image, and be the same in another image.
    pub(crate) from_image: bool,
}

/// The part of the result of `statx(2)` that shows the location of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileLocation {
    dev: (u32, u32),
    /// The id of the mount, if the kernel reports it.
    mount: Option<u64>,
    /// True if the file has a time of birth.
    has_birth: bool,
}

impl FileLocation {
    /// Without `AT_STATX_DONT_SYNC` a network file system would ask its server.
    pub(crate) fn of(file: impl AsFd, id: StatxFlags) -> Option<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(file, c"", flags, id).ok().map(|stat| Self::from(&stat))
    }

    /// The number that `statx(2)` says.
    pub(crate) const fn dev(self) -> u64 {
        (self.dev.0 as u64) << 32 | self.dev.1 as u64
    }

    /// The id of the mount; 0 if the kernel does not report it.
    pub(crate) fn mount(self) -> u64 {
        self.mount.unwrap_or(0)
    }

    /// Returns the site, if the mount is known or is not needed. `None`: [learn] the mount first.
    pub(crate) fn site(self) -> Option<Site> {
        // File systems without a block device have the major number 0; btrfs and overlays are among them.
        let is_to_be_known = self.dev.0 == 0 || !self.has_birth;
        let mount = match self.mount {
            Some(mount) if is_to_be_known => known(mount)?,
            _ => Mount::UNKNOWN,
        };
        Some(self.on(mount))
    }

    /// Returns the site as far as it is known.
    pub(crate) fn site_or_unknown(self) -> Site {
        self.site().unwrap_or_else(|| self.on(Mount::UNKNOWN))
    }

    fn on(self, mount: Mount) -> Site {
        let behind = mount.behind.filter(|_| self.dev.0 == 0);
        Site {
            device: behind.unwrap_or_else(|| Device::of(self.dev())),
            from_image: mount.may_be_image && !self.has_birth,
        }
    }

    /// Returns true if the kernel has the attributes of each open file of the mount in memory. File systems on a block
    /// device do. Exceptions are FUSE, and file systems that several machines share (GFS2, OCFS2); these cannot be watched.
    pub(crate) fn keeps_attributes(self) -> bool {
        self.dev.0 != 0 || self.mount.and_then(known).is_some_and(|mount| mount.keeps_attributes)
    }
}

impl From<&libc::statx> for FileLocation {
    fn from(raw: &libc::statx) -> Self {
        let told = raw.stx_mask & (UNIQUE | libc::STATX_MNT_ID) != 0;
        let mount = told.then_some(raw.stx_mnt_id);
        let has_birth = raw.stx_mask & libc::STATX_BTIME != 0;
        Self { dev: (raw.stx_dev_major, raw.stx_dev_minor), mount, has_birth }
    }
}

impl From<&Statx> for FileLocation {
    fn from(stat: &Statx) -> Self {
        let told = stat.stx_mask & (UNIQUE | StatxFlags::MNT_ID.bits()) != 0;
        let mount = told.then_some(stat.stx_mnt_id);
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        Self { dev: (stat.stx_dev_major, stat.stx_dev_minor), mount, has_birth }
    }
}

fn known(mount: u64) -> Option<Mount> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&mount).copied()
}

/// The device of an open file, as far as it is known; does not sleep.
pub(crate) fn device_of(file: impl AsFd) -> Device {
    // An error leaves it with those whose device is not known.
    FileLocation::of(file, LOOKED_AT).map_or_else(Device::default, |place| {
        place.site().map_or_else(|| Device::of(place.dev()), |site| site.device)
    })
}

/// Learns which device is behind the mount of an open file, for all rings of the process. A ring learns it by itself
/// with the first [`Op::Stat`](crate::Op::Stat) of a file of the mount. If this was called before, a directory that is
/// [adopted](crate::Ring::adopt_file) or [shared](crate::Ring::share_file) has the right device from the start. The
/// call may sleep as long as `stat(2)` of a layer of an overlay does.
pub fn learn_device(file: impl AsFd) -> Device {
    FileLocation::of(&file, LOOKED_AT).map_or_else(Device::default, |place| {
        place.site().unwrap_or_else(|| learn(file, place)).device
    })
}

/// As [`learn_device`], for a file that was looked at, and whose mount is unknown.
pub(crate) fn learn(file: impl AsFd, place: FileLocation) -> Site {
    let Some(mount) = place.mount else { return place.on(Mount::UNKNOWN) };
    // The file's mount has another id there than the one that is used once.
    let found = FileLocation::of(file, StatxFlags::MNT_ID).and_then(|place| {
        let mountinfo = fs::read("/proc/self/mountinfo").ok()?;
        let look = |path: &[u8]| {
            let flags = AtFlags::STATX_DONT_SYNC;
            statx(CWD, path, flags, StatxFlags::MNT_ID).ok().map(|stat| FileLocation::from(&stat))
        };
        let behind = behind(&mountinfo, place, DEPTH_MAX, &look);
        let keeps_attributes = keeps_attributes(&mountinfo, place, behind);
        let may_be_image = may_be_image(&mountinfo, place);
        Some(Mount { behind, keeps_attributes, may_be_image })
    });
    let found = found.unwrap_or(Mount::UNKNOWN);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MOUNTS_MAX {
        known.clear();
    }
    known.insert(mount, found);
    place.on(found)
}

/// Returns true if files of the mount without a time of birth may have the times of an image. The layers of an overlay
/// are not checked, because they may not be visible.
fn may_be_image(mountinfo: &[u8], place: FileLocation) -> bool {
    let mount = place.mount.and_then(|id| parse::find(mountinfo, id));
    mount.is_none_or(|mount| {
        matches!(
            mount.kind,
            b"squashfs" | b"erofs" | b"iso9660" | b"cramfs" | b"romfs" | b"overlay"
        )
    })
}

/// Returns whether a mount keeps the attributes of open files in memory, for mounts without a block device of their
/// own. Memory file systems and btrfs do. An overlay does if its layers are on a block device.
fn keeps_attributes(mountinfo: &[u8], place: FileLocation, behind: Option<Device>) -> bool {
    let mount = place.mount.and_then(|id| parse::find(mountinfo, id));
    match mount.map(|mount| mount.kind) {
        Some(b"tmpfs" | b"ramfs" | b"btrfs") => true,
        Some(b"overlay") => behind.and_then(Device::numbers).is_some_and(|(major, _)| major != 0),
        _ => false,
    }
}

/// The device behind a location, if it is not the one from `statx(2)`. `look` is `statx(2)` of a path.
fn behind(
    mountinfo: &[u8],
    place: FileLocation,
    depth: u32,
    look: &dyn Fn(&[u8]) -> Option<FileLocation>,
) -> Option<Device> {
    let mount = parse::find(mountinfo, place.mount?)?;
    match mount.kind {
        b"btrfs" => Some(mount.device),
        b"overlay" if depth > 0 => {
            let of_layer = |path: &Vec<u8>| {
                // A relative path meant another directory.
                let place = look(path).filter(|_| path.starts_with(b"/"))?;
                let behind = behind(mountinfo, place, depth - 1, look);
                Some(behind.unwrap_or_else(|| Device::of(place.dev())))
            };
            let layers = mount.layers();
            let (first, others) = layers.split_first()?;
            let device = of_layer(first)?;
            let is_one = others.len() < LAYERS_MAX
                && others.iter().all(|layer| of_layer(layer) == Some(device));
            is_one.then_some(device)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

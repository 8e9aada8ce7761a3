//! The device that a path leads to, as far as it is known before the device is asked.
//!
//! A directory is on the device of the files that were found in it. A directory in which nothing was found yet may be
//! the mount point of a device that does not answer. So it counts as a device of its own, together with everything
//! below it, until something is found there. If the device around it is silent, the directory counts as a part of that
//! device.

use std::collections::BTreeMap;
use std::rc::Rc;

use ring::Device;

use super::path::{Path, ancestors, parent};
use crate::tree::TreeId;

/// The most paths with a known device, per worker: directories, and as many files behind links. At the limit all
/// entries are dropped, and learned again.
const PATHS_MAX: usize = 4096;

/// The devices of directories, and of files behind links.
#[derive(Debug)]
pub(super) struct Devices {
    directories: Known,
    linked: Known,
}

/// The devices of paths, by tree.
#[derive(Debug)]
struct Known {
    by_path: Vec<BTreeMap<Path, Device>>,
    count: usize,
}

impl Known {
    fn new(trees: usize) -> Self {
        Self { by_path: vec![BTreeMap::new(); trees], count: 0 }
    }

    fn get(&self, tree: TreeId, path: &[u8]) -> Option<Device> {
        self.by_path[tree.index()].get(path).copied()
    }

    fn insert(&mut self, tree: TreeId, path: &[u8], device: Device) {
        if let Some(known) = self.by_path[tree.index()].get_mut(path) {
            *known = device;
            return;
        }
        if self.count == PATHS_MAX {
            self.by_path.iter_mut().for_each(BTreeMap::clear);
            self.count = 0;
        }
        self.by_path[tree.index()].insert(Rc::from(path), device);
        self.count += 1;
    }

    fn forget(&mut self, tree: TreeId) {
        self.count -= core::mem::take(&mut self.by_path[tree.index()]).len();
    }
}

impl Devices {
    pub(super) fn new(trees: usize) -> Self {
        Self { directories: Known::new(trees), linked: Known::new(trees) }
    }

    /// Adds a tree.
    pub(super) fn add_tree(&mut self) {
        self.directories.by_path.push(BTreeMap::new());
        self.linked.by_path.push(BTreeMap::new());
    }

    /// Records that a file was found on a device.
    pub(super) fn learn(&mut self, tree: TreeId, path: &[u8], device: Device) {
        self.directories.insert(tree, parent(path), device);
    }

    /// Records that a file was found on a device through links. Other files in its directory may be elsewhere.
    pub(super) fn learn_linked(&mut self, tree: TreeId, path: &[u8], device: Device) {
        self.linked.insert(tree, path, device);
    }

    /// The device of a path through links that may lead anywhere. Until it is known, it is a device of its own.
    pub(super) fn behind(&self, tree: TreeId, path: &[u8]) -> Device {
        self.linked.get(tree, path).unwrap_or_else(|| unknown(tree, path))
    }

    /// Drops the entries of a tree, whose root was replaced.
    pub(super) fn forget(&mut self, tree: TreeId) {
        self.directories.forget(tree);
        self.linked.forget(tree);
    }

    /// The device that a path leads to; `root` is the device of the tree's root.
    pub(super) fn of(
        &self,
        tree: TreeId,
        root: Device,
        path: &[u8],
        is_silent: impl Fn(Device) -> bool,
    ) -> Device {
        let directory = parent(path);
        let known = self.linked.get(tree, path).or_else(|| self.directories.get(tree, directory));
        if let Some(device) = known {
            return device;
        }
        if directory.is_empty() {
            return root;
        }
        // Among the directories on the way: the last one with a known device, and the first one after it.
        let (mut around, mut first) = (root, None);
        for directory in ancestors(path).skip(1) {
            match self.directories.get(tree, directory) {
                Some(device) => (around, first) = (device, None),
                None => first = first.or(Some(directory)),
            }
        }
        match first {
            Some(directory) if !is_silent(around) => unknown(tree, directory),
            _ => around,
        }
    }
}

/// Names a directory by a hash (FNV-1a). Two directories with the same hash only share their slots.
fn unknown(tree: TreeId, directory: &[u8]) -> Device {
    let seed = 0xcbf2_9ce4_8422_2325 ^ tree.index() as u64;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Device::unknown(directory.iter().fold(seed, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> TreeId {
        TreeId::new(0)
    }

    const ROOT: Device = Device::of(1);
    const DISK: Device = Device::of(2);

    fn of(devices: &Devices, path: &str) -> Device {
        devices.of(tree(), ROOT, path.as_bytes(), |_| false)
    }

    #[test]
    fn a_directory_is_a_device_of_its_own_until_something_is_found_in_it() {
        let mut devices = Devices::new(1);
        assert_eq!(of(&devices, "file"), ROOT);
        assert_eq!(of(&devices, ""), ROOT);
        let unknown = of(&devices, "disk/file");
        assert!(unknown != ROOT && unknown != of(&devices, "other/file"));
        assert_eq!(unknown.numbers(), None);
        for path in ["disk/", "disk/a/b/c", "disk/b/"] {
            assert_eq!(of(&devices, path), unknown, "{path}");
        }
        devices.learn(tree(), b"disk/file", DISK);
        assert_eq!((of(&devices, "disk/"), of(&devices, "disk/x")), (DISK, DISK));
        assert_eq!(of(&devices, "disk"), ROOT, "it is the name of the directory that is looked up");
        let below = of(&devices, "disk/a/b");
        assert!(![ROOT, DISK, unknown].contains(&below), "another one may be mounted there");
        devices.learn(tree(), b"disk/a/b/c", DISK);
        assert_eq!(of(&devices, "disk/a/b/d"), DISK);
        assert_eq!(of(&devices, "disk/a/x"), below);
        devices.forget(tree());
        assert_eq!(of(&devices, "disk/file"), unknown);
    }

    #[test]
    fn a_link_to_another_device_says_nothing_of_the_files_beside_it() {
        let mut devices = Devices::new(1);
        devices.learn_linked(tree(), b"link", DISK);
        devices.learn_linked(tree(), b"sub/link", DISK);
        assert_eq!((of(&devices, "link"), of(&devices, "file")), (DISK, ROOT));
        assert_eq!(of(&devices, "sub/link"), DISK);
        assert_ne!(of(&devices, "sub/file"), DISK);
        assert_eq!(devices.behind(tree(), b"link"), DISK);
        let unknown = devices.behind(tree(), b"other");
        assert!(![ROOT, DISK].contains(&unknown) && unknown.numbers().is_none());
    }

    #[test]
    fn below_a_silent_device_everything_is_silent() {
        let mut devices = Devices::new(1);
        devices.learn(tree(), b"disk/file", DISK);
        let silent = |path: &str| devices.of(tree(), ROOT, path.as_bytes(), |of| of == DISK);
        assert_eq!(silent("disk/a/b"), DISK);
        assert_ne!(silent("other/a"), ROOT);
    }

    #[test]
    fn devices_of_many_directories_are_learned_again() {
        let mut devices = Devices::new(1);
        for number in 0..=PATHS_MAX {
            devices.learn(tree(), format!("{number}/x").as_bytes(), DISK);
            assert!(devices.directories.count <= PATHS_MAX);
        }
        assert_eq!(of(&devices, &format!("{PATHS_MAX}/y")), DISK);
        assert_eq!(of(&devices, "0/y").numbers(), None);
    }
}

//! The facts about file systems: their names, and the ways in which their files can be read. Pure.

use std::collections::HashMap;

use super::read::How;
use crate::way::Unusual;

/// File systems whose names are asked for; files on others are read. A worker that serves a tree
/// meets the file systems mounted in it, and overlayfs has one for each of its layers.
const NAMES_MAX: usize = 1024;

/// The file systems that files were on, by the numbers of their devices.
#[derive(Debug, Default)]
pub(super) struct FileSystems {
    all: HashMap<u64, FileSystem>,
    /// The number of those whose names were asked for.
    asked: usize,
    /// Those that the operator is to be told of.
    unusual: Vec<Unusual>,
}

#[derive(Clone, Copy, Debug)]
struct FileSystem {
    abilities: Abilities,
    name: Name,
}

/// The abilities of a file system, as far as they have been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// `RWF_DONTCACHE`.
    pub(super) drop: bool,
    /// `splice(2)` from a file.
    pub(super) splice: bool,
}

/// Knowledge of a file system's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// It has to be asked for. From now on it is taken for asked.
    NotAsked,
    /// The answer has not come.
    Asked,
    /// Its magic number; `None` if it could not be had, or too many were asked for.
    Known(Option<u64>),
}

impl Default for FileSystem {
    fn default() -> Self {
        Self { abilities: Abilities { drop: true, splice: true }, name: Name::NotAsked }
    }
}

impl FileSystems {
    /// The abilities of a file system, all of which one has until it is known better.
    pub(super) fn abilities(&mut self, dev: u64) -> Abilities {
        self.all.entry(dev).or_default().abilities
    }

    /// Returns whether files of a file system that was met can be spliced.
    pub(super) fn splices(&self, dev: u64) -> bool {
        self.all.get(&dev).is_some_and(|one| one.abilities.splice)
    }

    /// The name of a file system that a file is on.
    pub(super) fn name(&mut self, dev: u64) -> Name {
        let one = self.all.entry(dev).or_default();
        match one.name {
            Name::NotAsked if self.asked == NAMES_MAX => Name::Known(None),
            Name::NotAsked => {
                one.name = Name::Asked;
                self.asked += 1;
                Name::NotAsked
            }
            name => name,
        }
    }

    /// The answer has come: the magic number, and what is unusual about the file system, if the operator is to hear of it.
    pub(super) fn learn(&mut self, dev: u64, magic: Option<u64>, unusual: Option<Unusual>) {
        self.all.entry(dev).or_default().name = Name::Known(magic);
        self.unusual.extend(unusual);
    }

    /// A file system cannot be read in this way. Returns whether there is another one, which is taken from now on.
    pub(super) fn refuse(&mut self, dev: u64, how: How) -> bool {
        let abilities = &mut self.all.entry(dev).or_default().abilities;
        match how {
            How::Drop => abilities.drop = false,
            How::Splice => abilities.splice = false,
            How::Direct | How::Keep | How::Discard => return false,
        }
        true
    }

    /// The next one that the operator is to be told of.
    pub(super) fn next_unusual(&mut self) -> Option<Unusual> {
        self.unusual.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_once() {
        let mut systems = FileSystems::default();
        assert_eq!(systems.name(1), Name::NotAsked);
        assert_eq!([systems.name(1), systems.name(1)], [Name::Asked; 2]);
        systems.learn(1, Some(7), None);
        assert_eq!(systems.name(1), Name::Known(Some(7)));
        systems.learn(1, None, None);
        assert_eq!(systems.name(1), Name::Known(None));
    }

    #[test]
    fn only_so_many_names_are_asked_for() {
        let mut systems = FileSystems::default();
        for dev in 0..NAMES_MAX as u64 {
            assert_eq!(systems.name(dev), Name::NotAsked);
        }
        assert_eq!(systems.name(u64::MAX), Name::Known(None));
        assert_eq!(systems.name(0), Name::Asked, "the answers to the others come");
    }

    #[test]
    fn a_way_that_was_refused_is_not_tried_again() {
        let mut systems = FileSystems::default();
        assert!(!systems.splices(1), "it was not met");
        assert_eq!(systems.abilities(1), Abilities { drop: true, splice: true });
        assert!(systems.splices(1) && systems.refuse(1, How::Splice) && !systems.splices(1));
        assert!(systems.refuse(1, How::Drop));
        assert_eq!(systems.abilities(1), Abilities { drop: false, splice: false });
        for how in [How::Direct, How::Keep, How::Discard] {
            assert!(!systems.refuse(2, how), "{how:?}");
        }
        assert_eq!(systems.abilities(2), Abilities { drop: true, splice: true });
    }
}

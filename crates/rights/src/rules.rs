//! The allowed access to files: paths, and the allowed operations below each path. Pure.

use core::ops::BitOr;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The operations that a rule allows for a file, or for all files below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Read files, and list directories.
    pub const READ: Self = Self(1);
    /// Execute files.
    pub const EXECUTE: Self = Self(1 << 1);
    /// Write to files that exist, and cut them.
    pub const WRITE: Self = Self(1 << 2);
    /// Make and remove files, and rename them within their directory.
    pub const MAKE: Self = Self(1 << 3);
    /// Make and remove Unix sockets, and lock their directory.
    pub const SOCKETS: Self = Self(1 << 4);
    /// Make, remove and rename everything but devices.
    pub const CHANGE: Self = Self(1 << 5);

    /// Returns true if this access contains the other access.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Absolute paths without links, and the access at and below each path. Access that no path allows is forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<PathBuf, Access>);

impl Rules {
    /// Allows more at and below a path.
    pub fn allow(&mut self, path: &Path, access: Access) {
        let allowed = self.0.entry(path.to_owned()).or_default();
        *allowed = *allowed | access;
    }

    /// Returns true if this access to a path is allowed.
    #[must_use]
    pub fn allows(&self, path: &Path, access: Access) -> bool {
        self.at(path.ancestors()).contains(access)
    }

    /// The rules, in the order of their paths. Rules that a rule for a directory above makes needless are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, Access)> {
        let all = self.0.iter().map(|(path, access)| (path.as_path(), *access));
        all.filter(|(path, access)| !self.at(path.ancestors().skip(1)).contains(*access))
    }

    fn at<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> Access {
        let all = paths.filter_map(|path| self.0.get(path));
        all.fold(Access::default(), |sum, access| sum | *access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[(&str, Access)]) -> Rules {
        let mut rules = Rules::default();
        for (path, access) in all {
            rules.allow(Path::new(path), *access);
        }
        rules
    }

    #[test]
    fn access_is_allowed_at_a_path_and_below_it() {
        let rules = rules(&[
            ("/srv", Access::READ),
            ("/srv/up", Access::WRITE),
            ("/srv/up", Access::MAKE),
            ("/dev/null", Access::WRITE),
        ]);
        for (path, access, is_allowed) in [
            ("/srv", Access::READ, true),
            ("/srv/www/a", Access::READ, true),
            ("/srvs", Access::READ, false),
            ("/", Access::READ, false),
            ("/srv", Access::WRITE, false),
            ("/srv/up/a", Access::READ | Access::WRITE | Access::MAKE, true),
            ("/srv/up/a", Access::EXECUTE, false),
            ("/dev", Access::WRITE, false),
            ("/dev/null", Access::WRITE, true),
        ] {
            assert_eq!(rules.allows(Path::new(path), access), is_allowed, "{path} {access:?}");
        }
    }

    #[test]
    fn needless_rules_are_left_out() {
        let rules = rules(&[
            ("/srv", Access::READ),
            ("/srv/a", Access::READ),
            ("/srv/b", Access::READ | Access::WRITE),
            ("/srv/b/c", Access::WRITE | Access::READ),
            ("/srv-2", Access::READ),
        ]);
        let left: Vec<_> = rules.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(left, ["/srv", "/srv/b", "/srv-2"]);
    }
}

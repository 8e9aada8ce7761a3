//! What changes in directories make us forget.
//!
//! One event costs what it concerns: keys are kept in order, so those below a directory are found
//! without looking at others. When a directory with many of them has moved, they are outdated at
//! once, and forgotten bit by bit.

use core::ops::Bound;

use http1::Coding;
use ring::{Change, Fd};

use super::{Content, Path, below};
use crate::shell::Shell;

/// Directories whose resources are outdated and not forgotten yet; beyond it everything is.
const OUTDATED_MAX: usize = 16;

impl Content {
    /// Something in a watched directory has changed.
    pub(super) fn changed(&mut self, shell: &mut Shell, dir: &[u8], change: &Change) {
        let prefix = if dir.is_empty() { Vec::new() } else { [dir, b"/"].concat() };
        let Some(name) = &change.name else {
            self.invalidate_below(&prefix);
            return;
        };
        // The directory's own resource: its index or its listing.
        self.invalidate(&prefix);
        let path = [&prefix[..], name].concat();
        self.invalidate(&path);
        for coding in Coding::PREFERENCE {
            if let Some(plain) = path.strip_suffix(suffix(coding).as_bytes()) {
                self.invalidate(plain);
            }
        }
        if change.directory {
            self.invalidate_below(&[&path[..], b"/"].concat());
        }
        self.schedule(shell);
    }

    /// Serve another directory from now on. Nothing of the old one is kept; loads under way are
    /// answered with what they find, which is not kept either.
    pub(crate) fn replace_root(&mut self, shell: &mut Shell, root: Fd) {
        self.root = root;
        self.invalidate_below(b"");
        self.schedule(shell);
    }

    /// Forget one key, and keep no load of it that is under way.
    fn invalidate(&mut self, key: &[u8]) {
        self.forget(key);
        if let Some(load) = self.by_key.remove(key).and_then(|id| self.loads[id as usize].as_mut())
        {
            load.outdated = true;
        }
    }

    /// Nothing is true any more below a directory, which may have been moved; watch it no longer.
    fn invalidate_below(&mut self, prefix: &[u8]) {
        let loads: Vec<Path> = below(&self.by_key, prefix).map(|(key, _)| key.clone()).collect();
        for key in loads {
            self.invalidate(&key);
        }
        if self.cached_below(prefix).next().is_some() {
            self.outdate(prefix);
        }
        let dir = prefix.strip_suffix(b"/").unwrap_or(prefix);
        self.unwatch(dir);
        self.unwatch_below(dir);
    }

    fn outdate(&mut self, prefix: &[u8]) {
        if self.outdated.iter().any(|other| prefix.starts_with(other)) {
            return;
        }
        self.outdated.retain(|other| !other.starts_with(prefix));
        if self.outdated.len() >= OUTDATED_MAX {
            self.outdated.clear();
            self.outdated.push(Box::default());
        } else {
            self.outdated.push(prefix.into());
        }
    }

    /// Whether what is cached by this key is only waiting to be forgotten.
    pub(super) fn is_outdated(&self, key: &[u8]) -> bool {
        self.outdated.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Forget so many of the resources that are outdated.
    pub(super) fn forget_outdated(&mut self, mut count: usize) {
        while let Some(prefix) = self.outdated.last().cloned() {
            let keys: Vec<Path> = self.cached_below(&prefix).take(count).cloned().collect();
            count -= keys.len();
            for key in keys {
                self.forget(&key);
            }
            if count == 0 {
                return;
            }
            self.outdated.pop();
        }
    }

    /// The keys of what is cached below a directory.
    pub(super) fn cached_below(&self, prefix: &[u8]) -> impl Iterator<Item = &Path> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.in_order.range::<[u8], _>(from).take_while(move |key| key.starts_with(prefix))
    }
}

/// What a precompressed sibling's name ends in.
pub(super) const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Br => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
    }
}

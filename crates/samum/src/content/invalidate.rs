//! What changes in directories make us forget.
//!
//! One event costs what it concerns: keys are kept in order, so those below a directory are found
//! without looking at others. When a directory with many of them has moved, they are outdated at
//! once, and forgotten bit by bit.

use core::ops::Bound;

use http::Coding;
use ring::{Change, Fd};

use super::{Content, Path, below};
use crate::shell::Shell;

/// Directories whose resources are outdated and not forgotten yet; beyond it everything is.
const OUTDATED_MAX: usize = 16;

/// Resources that are outdated and not forgotten yet.
#[derive(Debug)]
pub(super) struct Outdated {
    prefix: Box<[u8]>,
    /// All in front of this key have gone: what is kept there is new. A hand that only goes forward
    /// comes to an end, however much is kept behind it.
    done: Box<[u8]>,
}

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
        if let Some(other) =
            self.outdated.iter_mut().find(|other| prefix.starts_with(&other.prefix))
        {
            if *other.done > *prefix {
                other.done = prefix.into();
            }
            return;
        }
        self.outdated.retain(|other| !other.prefix.starts_with(prefix));
        let mut prefix = prefix;
        if self.outdated.len() >= OUTDATED_MAX {
            self.outdated.clear();
            prefix = b"";
        }
        self.outdated.push(Outdated { prefix: prefix.into(), done: prefix.into() });
    }

    /// Whether what is cached by this key is only waiting to be forgotten.
    pub(super) fn is_outdated(&self, key: &[u8]) -> bool {
        self.outdated.iter().any(|other| key.starts_with(&other.prefix) && *key >= *other.done)
    }

    /// Forget so many of the resources that are outdated.
    pub(super) fn forget_outdated(&mut self, mut count: usize) {
        while let Some(last) = self.outdated.last_mut() {
            let from = (Bound::Included(&*last.done), Bound::Unbounded);
            let below = self.in_order.range::<[u8], _>(from);
            let below = below.take_while(|key| key.starts_with(&last.prefix));
            let keys: Vec<Path> = below.take(count).cloned().collect();
            count -= keys.len();
            if let Some(key) = keys.last() {
                // The least key behind it.
                last.done = [key, &b"\0"[..]].concat().into();
            }
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

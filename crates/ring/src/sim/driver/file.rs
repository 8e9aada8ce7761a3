//! Files: reads, splices and watches.

use std::collections::VecDeque;

use super::{Sim, Waiter};
use crate::common::Common;
use crate::op::{Caching, Change, Event, Op};
use crate::sim::disk::Watch;
use crate::sim::errno;
use crate::slab::Key;

impl Sim {
    /// Returns whether the operation has to wait, because pages were dropped before the read could use them.
    /// They are read once more, as the kernel does, unless another read brings them already.
    pub(super) fn reads_again(&mut self, op: &Op, key: Key) -> bool {
        let (file, offset, want) = match op {
            Op::Read { file, offset, buf, .. } => (file, *offset, buf.want()),
            Op::Splice { file, offset, pipe } => (file, *offset, pipe.want()),
            _ => return false,
        };
        let mut state = self.world.state();
        if state.missing(file.raw(), offset, want).is_none() {
            return false;
        }
        let Ok((ready, more)) = state.begin_read(file.raw(), offset, want, Caching::Keep) else {
            return false;
        };
        self.brought.entry(key.to_bits()).or_default().extend(more);
        state.look_at(ready, Waiter::new(self.ring, key));
        true
    }

    pub(super) fn read(&mut self, common: &mut Common, key: Key, file: i32, offset: u64) {
        let brought = self.brought.remove(&key.to_bits()).unwrap_or_default();
        let Some(Op::Read { buf, caching, .. }) =
            common.table.get_mut(key).map(|slot| &mut slot.op)
        else {
            unreachable!("looked at as a read")
        };
        let drop_after = *caching == Caching::Drop;
        let mut state = self.world.state();
        let read = state.end_read(file, offset, buf.want(), &brought, drop_after);
        if let Ok(bytes) = &read {
            buf.fill_from(bytes);
        }
        drop(state);
        match read {
            Ok(bytes) => common.end_read(key, bytes.len()),
            Err(error) => self.end(common, key, Err(error)),
        }
    }

    pub(super) fn splice(&mut self, common: &mut Common, key: Key, file: i32, offset: u64) {
        let brought = self.brought.remove(&key.to_bits()).unwrap_or_default();
        let Some(Op::Splice { pipe, .. }) = common.table.get_mut(key).map(|slot| &mut slot.op)
        else {
            unreachable!("looked at as a splice")
        };
        let mut state = self.world.state();
        let spliced = state.end_read(file, offset, pipe.want(), &brought, false);
        let end = pipe.write_end();
        let spliced = spliced.and_then(|bytes| {
            state.pipe(end)?.borrow_mut().extend(&bytes);
            state.counts.splices += u64::from(!bytes.is_empty());
            Ok(bytes.len())
        });
        drop(state);
        match spliced {
            Ok(len) => common.end_splice(key, len),
            Err(error) => self.end(common, key, Err(error)),
        }
    }

    pub(super) fn watch(&mut self, common: &mut Common, key: Key) {
        let who = Waiter::new(self.ring, key);
        let mut state = self.world.state();
        if let Some(watch) = state.watches.get_mut(&who) {
            let mut change = watch.queue.pop_front();
            // An event of the directory counts as an event of the file.
            if let (Some(change), Some(_)) = (&mut change, &watch.name) {
                *change = Change { name: watch.name.clone(), directory: false };
            }
            let slot = common.table.get(key);
            let watchable = match slot.map(|slot| &slot.op) {
                Some(Op::WatchFile { root, path }) => state.follow(root.raw(), path, who),
                _ => Ok(()),
            };
            drop(state);
            match (watchable, change) {
                (Err(error), _) => self.end(common, key, Err(errno(error))),
                (Ok(()), Some(change)) => common.emit(key, Event::Changed(change)),
                (Ok(()), None) => {}
            }
            return;
        }
        let begun = match common.table.get(key).map(|slot| &slot.op) {
            Some(Op::Watch { root, path }) => {
                state.watched_dir(root.raw(), path.to_bytes()).map(|dir| (dir, None))
            }
            Some(Op::WatchFile { root, path }) => state.watched_file(root.raw(), path),
            _ => unreachable!("looked at as a watch"),
        };
        let result = begun.map(|(dir, name)| {
            state.watches.insert(who, Watch { dir, name, queue: VecDeque::new() });
        });
        drop(state);
        match result {
            Ok(()) => common.emit(key, Event::Watching { mount: 0 }),
            Err(error) => self.end(common, key, Err(errno(error))),
        }
    }
}

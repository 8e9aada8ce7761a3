//! Files: reads and watches.

use std::collections::VecDeque;

use super::{Sim, Waiter};
use crate::common::Common;
use crate::op::{Caching, Event, Op};
use crate::sim::disk::Watch;
use crate::sim::errno;
use crate::slab::Key;

impl Sim {
    pub(super) fn read(&mut self, common: &mut Common, key: Key, file: i32, offset: u64) {
        let Some(Op::Read { buf, caching, .. }) =
            common.table.get_mut(key).map(|slot| &mut slot.op)
        else {
            unreachable!("looked at as a read")
        };
        let brought = self.brought.remove(&key.to_bits()).unwrap_or_default();
        let mut state = self.world.state();
        let (short, fails) = (state.config.faults.short_read, state.config.faults.read_error);
        let fails = !brought.is_empty() && state.random.chance(fails);
        let short = state.random.chance(short);
        let chosen = state.random.below(buf.want());
        let ino = state.opened(file).expect("looked up when it was submitted").ino;
        let contents = state.disk.file(ino).expect("looked up when it was submitted");
        if fails || *caching == Caching::Drop {
            brought.iter().for_each(|page| contents.drop_page(*page));
        }
        let range = contents.range(offset, buf.want());
        let count =
            if short && range.len() > 1 { 1 + chosen % (range.len() - 1) } else { range.len() };
        if !fails {
            buf.fill_from(&contents.bytes[range][..count]);
        }
        drop(state);
        if fails {
            self.finish(common, key, Err(errno(libc::EIO)));
        } else {
            common.finish_read(key, count);
        }
    }

    pub(super) fn watch(&mut self, common: &mut Common, key: Key, root: i32, path: &[u8]) {
        let who = Waiter::new(self.ring, key);
        let mut state = self.world.state();
        if let Some(watch) = state.watches.get_mut(&who) {
            let change = watch.queue.pop_front();
            drop(state);
            if let Some(change) = change {
                common.emit(key, Event::Changed(change));
            }
            return;
        }
        let begun = state.watched_dir(root, path);
        if let Ok(dir) = begun {
            state.watches.insert(who, Watch { dir, queue: VecDeque::new() });
        }
        drop(state);
        match begun {
            Ok(_) => common.emit(key, Event::Watching),
            Err(error) => self.finish(common, key, Err(errno(error))),
        }
    }
}

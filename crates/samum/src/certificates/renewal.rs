//! The thread that looks at the files of certificates, and renews what has changed.
//!
//! Programs that renew certificates rename files, write over them, or swap a symbolic link of a directory above them
//! (certbot, lego, Kubernetes). inotify reports changes in a directory that is watched, and no swap of a link above it. So the
//! thread looks at the paths themselves, through all links.

use core::time::Duration;
use std::thread;

use tls::Fault;

use super::item::{Item, Read, Value};
use super::plan::Listener;
use super::reading::{self, Reading};
use super::watch::Watch;
use super::{Certificates, Shown, files, now, text};
use logs::say::say;

/// The time between two looks at a file. A change is complete after one look more, so it is shown after at most twice this
/// time.
const PERIOD: Duration = Duration::from_secs(2);
/// The maximum number of items that are looked at without a pause, and the minimum of that pause: 2,000 items in a second.
const LOOKS_MAX: usize = 500;
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// The marks of the files of an item.
type Marks = Vec<Option<files::Marks>>;

/// An item that is looked at.
struct Watched {
    item: Item,
    /// From the marks with which it was read on.
    watch: Watch<Marks>,
    /// The time at which the pair that its files have becomes valid, in seconds since 1970.
    valid_from: Option<i64>,
}

/// The items to look at.
enum Items {
    /// Those of a configuration that is new to the thread.
    New { generation: u64, items: Vec<Watched> },
    /// Those of before.
    Same,
    /// None, so the thread ends.
    None,
}

/// Renews certificates as long as the configuration names files.
pub(super) fn renew(certificates: &Certificates) {
    let mut known = None;
    let mut all: Vec<Watched> = Vec::new();
    loop {
        match certificates.items(known) {
            Items::New { generation, items } => {
                known = Some(generation);
                all = items;
            }
            Items::Same => {}
            Items::None => return,
        }
        let batches = u32::try_from(all.len().div_ceil(LOOKS_MAX)).unwrap_or(u32::MAX);
        let pause = (PERIOD / batches.max(1)).max(PAUSE_MIN);
        let mut changed = Vec::new();
        for batch in all.chunks_mut(LOOKS_MAX) {
            thread::sleep(pause);
            for watched in batch {
                let is_time = watched.valid_from.is_some_and(|time| time <= now());
                if watched.watch.handle(watched.item.marks()) || is_time {
                    changed.push(read(watched));
                }
            }
        }
        if let (false, Some(generation)) = (changed.is_empty(), known) {
            certificates.show(generation, changed);
        }
    }
}

/// Reads an item again. A certificate that is not valid now is not used; one whose time comes is read again then.
fn read(watched: &mut Watched) -> (Item, Result<Read, String>) {
    watched.valid_from = None;
    let read = match watched.item.read() {
        Ok(read) => match read.untimely(now()) {
            Some((why, valid_from)) => {
                watched.valid_from = valid_from;
                Err(why)
            }
            None => Ok(read),
        },
        Err(problem) => Err(problem.text),
    };
    (watched.item.clone(), read)
}

impl Certificates {
    /// The items of the configuration that is shown. `known` is the number of the configuration that the thread knows.
    fn items(&self, known: Option<u64>) -> Items {
        let mut state = self.lock();
        let Shown { generation, reading, .. } = &state.shown;
        if reading.items.is_empty() {
            state.has_thread = false;
            return Items::None;
        }
        if known == Some(*generation) {
            return Items::Same;
        }
        let items = reading.items.iter().map(|(item, read)| Watched {
            item: item.clone(),
            watch: Watch::new(read.marks.clone()),
            valid_from: read.valid_from,
        });
        Items::New { generation: *generation, items: items.collect() }
    }

    /// Shows what was read again. If another configuration is shown meanwhile, that has read it, too.
    fn show(&self, generation: u64, all: Vec<(Item, Result<Read, String>)>) {
        let mut lines = Vec::new();
        let mut fresh = Vec::new();
        let mut state = self.lock();
        if state.shown.generation != generation {
            return;
        }
        for (item, read) in all {
            match read {
                Ok(read) => fresh.push((item, read)),
                Err(why) => lines.push(self.fail(&state.shown.reading, &item, &why)),
            }
        }
        if !fresh.is_empty() {
            let items: Vec<_> = fresh.iter().map(|(item, _)| item.clone()).collect();
            match self.try_show(&mut state.shown, fresh) {
                Ok(said) => {
                    lines.extend(said);
                    self.publish([&state.removed, &state.shown.acceptors]);
                    self.count(&state.shown.reading);
                }
                Err(fault) => {
                    let (reading, why) = (&state.shown.reading, fault.to_string());
                    lines.extend(items.iter().map(|item| self.fail(reading, item, &why)));
                }
            }
        }
        drop(state);
        lines.iter().take(text::LINES_MAX).for_each(|line| say(line));
        let more = lines.len().saturating_sub(text::LINES_MAX);
        if more > 0 {
            say(&text::more(more));
        }
    }

    /// Puts items that were read again in the place of those before. Returns sentences for the operator. If no acceptor
    /// can be made of them, those before stay.
    fn try_show(&self, shown: &mut Shown, fresh: Vec<(Item, Read)>) -> Result<Vec<String>, Fault> {
        let Shown { reading, listeners, acceptors, .. } = shown;
        let mut lines = Vec::new();
        let mut before = Vec::new();
        for (item, read) in fresh {
            lines.push(renewed(reading, &item, &read));
            lines.extend(reading.warnings(&item, &read, now()).iter().map(ToString::to_string));
            let replaced = reading.items.insert(item.clone(), read);
            before.extend(replaced.map(|replaced| (item, replaced)));
        }
        let uses = |listener: &&Listener| {
            let mut sites = listener.sites.iter().map(|shown| &reading.sites[shown.tls]);
            sites.any(|site| before.iter().any(|(item, _)| reading::has(site, item)))
        };
        match self.acceptors_of(reading, listeners.iter().filter(uses)) {
            Ok(made) => {
                acceptors.extend(made);
                lines.extend(before.iter().flat_map(|(item, _)| reading.uncovered(item)));
                for (item, _) in &before {
                    self.metrics.note_renewal();
                    if let (Item::Servers(keys), Some(read)) = (item, reading.items.get(item))
                        && let Some(settings) = read.settings()
                    {
                        reading.upstreams.renew(keys, settings);
                    }
                }
                Ok(lines)
            }
            Err(fault) => {
                reading.items.extend(before);
                Err(fault)
            }
        }
    }

    /// Counts an item that cannot be used. Returns a sentence for the operator.
    fn fail(&self, reading: &Reading, item: &Item, why: &str) -> String {
        self.metrics.note_failed_renewal();
        let sites = reading.names_of(item);
        match item {
            Item::Pair(_) => text::not_renewed(&sites, why),
            Item::Clients(_) => text::clients_not_renewed(&sites, why),
            Item::Servers(_) => text::servers_not_renewed(&sites, why),
        }
    }
}

/// Says that an item was read again.
fn renewed(reading: &Reading, item: &Item, read: &Read) -> String {
    let sites = reading.names_of(item);
    let before = reading.items.get(item).and_then(Read::pair);
    match &read.value {
        Value::Pair(pair) if before.is_some_and(|before| before.digest() == pair.digest()) => {
            text::read_again(&sites, pair)
        }
        // Only a certificate that took the place of this one is in no file.
        Value::Pair(pair) if before.is_some_and(|before| before.path().is_none()) => {
            text::came(&sites, pair)
        }
        Value::Pair(pair) => text::renewed(&sites, pair),
        Value::Clients(_) => text::clients_renewed(&sites),
        Value::Servers { pair, .. } => text::servers_renewed(&sites, pair.as_deref()),
    }
}

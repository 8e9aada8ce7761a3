//! Prepares the configuration that replaces another one and keeps the parts that are the same.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::listeners::Endpoint;
use content::TreeSpec;

use super::{Served, Snapshot};
use config::{Action, Config, Route};
use tls::SharedClientSettings;
use upstream::Upstream;

/// The maximum number of trees of one directory that are compared with a tree of the next configuration. If none of
/// them has the same rules, it is a new tree, whose files are found anew.
const SAME_ROOT_LOOKS_MAX: usize = 16;

/// The parts of a configuration that are also parts of the next one.
#[derive(Debug)]
pub struct Succession {
    /// For each tree of the next configuration, its index in the earlier one, if that had the tree.
    trees: Vec<Option<usize>>,
    /// The indices of the trees that the next configuration does not have.
    gone: Vec<usize>,
    /// The numbers of the listeners that the next configuration does not have, in order.
    removed: Vec<u32>,
}

impl Snapshot {
    /// Prepares the configuration that replaces this one. Listeners at the same address keep their numbers. Used parts
    /// of the limits of clients stay used, and files of bodies still count. Running programs count against the limits
    /// of their directories, unless these limits were changed.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn successor(&self, config: &Config) -> Result<Self, String> {
        self.successor_with_tls(config, |_| None)
    }

    /// As [`successor`](Self::successor), with the settings of connections to upstreams with TLS. Upstreams without
    /// settings cannot be asked.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn successor_with_tls(
        &self,
        config: &Config,
        settings_of: impl Fn(&config::Upstream) -> Option<Arc<SharedClientSettings>>,
    ) -> Result<Self, String> {
        let numbers =
            self.listeners.iter().map(|(number, at)| (Endpoint::of(&at.address), *number));
        let mut next = Self::numbered(config, &numbers.collect(), self.prepared.len())?;
        next.set_upstream_tls(settings_of);
        next.keep_programs(self);
        next.keep_upstreams(self);
        let (limiter, names) = (Arc::clone(&self.limiter), Arc::clone(&self.names));
        let (quota, challenges) = (Arc::clone(&self.quota), Arc::clone(&self.challenges));
        Ok(Self { limiter, quota, names, challenges, ..next })
    }

    /// Takes over the directories of programs that are unchanged.
    fn keep_programs(&mut self, before: &Self) {
        let mut kept: HashMap<_, Vec<_>> = HashMap::new();
        for programs in before.routes.iter().filter_map(|entry| entry.served.programs()) {
            kept.entry(programs.mount()).or_default().push(programs);
        }
        for entry in &mut self.routes {
            let Served::Programs(programs) = &mut entry.served else { continue };
            let Some(candidates) = kept.get_mut(programs.mount()) else { continue };
            let same = candidates.iter().position(|candidate| candidate.is_same(programs));
            if let Some(place) = same {
                *programs = Arc::clone(candidates.swap_remove(place));
            }
        }
    }

    /// Takes over unchanged upstreams, and of other upstreams the servers that stay.
    fn keep_upstreams(&mut self, before: &Self) {
        fn key(route: &Route) -> (&str, bool) {
            // A connection can only be kept for requests in the same protocol.
            (&route.path, matches!(route.action, Action::Fastcgi(_)))
        }
        let mut kept: HashMap<_, Vec<_>> = HashMap::new();
        for entry in &before.routes {
            if let Some(upstream) = entry.served.upstream() {
                kept.entry(key(&entry.route)).or_default().push(upstream);
            }
        }
        for entry in &mut self.routes {
            let Some(config) = entry.route.action.upstream() else { continue };
            let Some(made) = entry.served.upstream_mut() else { continue };
            let Some(candidates) = kept.get_mut(&key(&entry.route)) else { continue };
            let tls = made.tls();
            let same = candidates.iter().position(|candidate| candidate.is_same(config, tls));
            if let Some(place) = same {
                *made = Arc::clone(candidates.swap_remove(place));
                continue;
            }
            // Routes of different sites may have the same path.
            let named = candidates.iter().find(|candidate| candidate.name == made.name);
            if let Some(before) = named.or_else(|| candidates.first()) {
                *made = Upstream::new(config, made.name.clone(), tls.cloned(), Some(before));
            }
        }
    }

    /// Compares the configuration with the one that replaces it. `same_root` takes the index of a directory of `next`,
    /// and returns the index of the same directory here if that is open here.
    #[must_use]
    pub fn succession(
        &self,
        next: &Self,
        same_root: impl Fn(usize) -> Option<usize>,
    ) -> Succession {
        let mut by_root: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
        for (index, tree) in self.trees.iter().enumerate() {
            by_root.entry(tree.root).or_default().push_back(index);
        }
        let mut same_tree = |spec: &TreeSpec| {
            let mine = by_root.get_mut(&same_root(spec.root)?)?;
            let is_same = |index: &usize| self.trees[*index].is_served_as(spec);
            let place = mine.iter().take(SAME_ROOT_LOOKS_MAX).position(is_same)?;
            mine.remove(place)
        };
        let trees = next.trees.iter().map(&mut same_tree).collect();
        let gone = by_root.into_values().flatten().collect();
        let is_removed = |number: &u32| next.prepared[*number as usize].is_none();
        let mine = self.listeners.iter().map(|(number, _)| *number);
        let mut removed: Vec<u32> = mine.filter(is_removed).collect();
        removed.sort_unstable();
        Succession { trees, gone, removed }
    }

    /// The indices of the roots whose directories are opened for trees that are not kept, with repetitions.
    pub fn new_roots(&self, succession: &Succession) -> impl Iterator<Item = usize> {
        let all = self.trees.iter().zip(&succession.trees);
        all.filter(|(_, kept)| kept.is_none()).map(|(tree, _)| tree.root)
    }
}

impl Succession {
    /// For each tree of the next configuration, its index in the earlier one, if that had the tree.
    pub(crate) fn trees(&self) -> &[Option<usize>] {
        &self.trees
    }

    /// The indices of the trees that the next configuration does not have.
    pub(crate) fn gone(&self) -> &[usize] {
        &self.gone
    }

    /// The numbers of the listeners that the next configuration does not have, in order.
    pub fn removed(&self) -> &[u32] {
        &self.removed
    }

    /// Returns true if the next configuration does not have a listener.
    pub fn removes(&self, listener: u32) -> bool {
        self.removed.binary_search(&listener).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::path::Path;

    use super::*;
    use config::{Address, Cgi, FileRules, Files, Listen, UnixSocket};

    #[test]
    fn programs_count_against_their_limits_after_a_reload_unless_these_were_changed() {
        let route = |path: &str, timeout| Route {
            path: path.to_owned(),
            action: Action::Cgi(Cgi {
                timeout: Duration::from_secs(timeout),
                ..Cgi::new("/srv/cgi".into())
            }),
            ..Route::default()
        };
        let mut config = Config::default();
        config.sites[0].routes = vec![route("/a", 1), route("/b", 1), route("/c", 1)];
        let before = Snapshot::new(&config).unwrap();
        config.sites[0].routes = vec![route("/b", 1), route("/b", 1), route("/c", 2)];
        let after = before.successor(&config).unwrap();
        let programs = |snapshot: &Snapshot, index: usize| {
            Arc::clone(snapshot.routes[index].served.programs().unwrap())
        };
        let all: Vec<_> = (0..3).map(|index| programs(&before, index)).collect();
        let is_kept = (0..3).map(|index| {
            let programs = programs(&after, index);
            all.iter().position(|before| Arc::ptr_eq(before, &programs))
        });
        assert_eq!(is_kept.collect::<Vec<_>>(), [Some(1), None, None]);
    }

    fn config(roots: &[(&str, &str)], listen: &[Address]) -> Config {
        let mut config = Config::default();
        let site = &mut config.sites[0];
        site.listen = listen.iter().cloned().map(Listen::from).collect();
        let route = |(number, (root, index)): (usize, &(&str, &str))| {
            let rules = FileRules { index: vec![(*index).to_owned()], ..FileRules::default() };
            let files = Files { root: root.into(), rules };
            Route { path: format!("/{number}/"), action: Action::Files(files), ..Route::default() }
        };
        site.routes = roots.iter().enumerate().map(route).collect();
        config
    }

    fn tcp(port: u16) -> Address {
        Address::Ip(([127, 0, 0, 1], port).into())
    }

    fn unix(mode: u32) -> Address {
        Address::Unix(UnixSocket { path: "/s".into(), mode: Some(mode), ..UnixSocket::default() })
    }

    #[test]
    fn a_listener_keeps_its_number_and_no_other_gets_it() {
        let number = |snapshot: &Snapshot, wanted: &Address| {
            let all = snapshot.listeners().iter();
            all.filter(|(_, listen)| listen.address == *wanted).map(|(number, _)| *number).next()
        };
        let first = Snapshot::new(&config(&[], &[tcp(1), tcp(2), unix(0o600)])).unwrap();
        assert_eq!([number(&first, &tcp(1)), number(&first, &tcp(2))], [Some(0), Some(1)]);
        // In another order, and with other rights.
        let second = first.successor(&config(&[], &[unix(0o660), tcp(3), tcp(1)])).unwrap();
        assert_eq!([number(&second, &tcp(1)), number(&second, &tcp(3))], [Some(0), Some(3)]);
        assert_eq!(number(&second, &unix(0o660)), Some(2));
        let succession = first.succession(&second, |_| None);
        assert_eq!(succession.removed(), [1]);
        assert!(succession.removes(1) && !succession.removes(0) && !succession.removes(3));
        let third = second.successor(&config(&[], &[tcp(2)])).unwrap();
        assert_eq!(number(&third, &tcp(2)), Some(4));
        assert_eq!(second.succession(&third, |_| None).removed(), [0, 2, 3]);
        assert!(third.listener(0).is_none() && third.listener(4).is_some());
        assert!(third.listener(5).is_none());
    }

    #[test]
    fn trees_of_the_same_directory_with_the_same_rules_are_kept_once() {
        let before = [("a", "i"), ("b", "i"), ("a", "j"), ("a", "i"), ("c", "i")];
        let before = Snapshot::new(&config(&before, &[tcp(1)])).unwrap();
        let after = [("a", "j"), ("d", "i"), ("a", "i"), ("a", "i"), ("a", "i"), ("b", "j")];
        let after = before.successor(&config(&after, &[tcp(1)])).unwrap();
        let same =
            |root: usize| before.roots().iter().position(|path| *path == after.roots()[root]);
        let succession = before.succession(&after, same);
        assert_eq!(succession.trees(), [Some(2), None, Some(0), Some(3), None, None]);
        assert_eq!(succession.gone(), [1, 4]);
        let new: Vec<_> = after.new_roots(&succession).map(|root| &after.roots()[root]).collect();
        assert_eq!(new, [Path::new("d"), Path::new("a"), Path::new("b")]);
        // The same paths, but other directories.
        let none = before.succession(&before, |_| None);
        assert!(none.trees().iter().all(Option::is_none) && none.gone().len() == 5);
    }
}

//! The choice of a request's route by its path, among the routes of a site.
//!
//! The longest path wins. Among the routes of the same path those with a pattern or a file of redirects come first, in
//! the order of the configuration. If none of them matches and the path has no other route, the next shorter path is
//! tried. A closed path has no route, even if a shorter path has one.

use core::cmp::Ordering;
use std::sync::Arc;

use crate::pattern::Pattern;
use crate::redirect::Redirects;

/// The number of a route, in the order of all routes of all sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteId(u32);

/// The paths of the routes of a site.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The only route, if it has all paths: no search is needed then.
    all: Option<RouteId>,
    /// The route of `/`, if it has all paths that no other route has.
    top: Option<RouteId>,
    /// The bytes after the first slash of all paths but `/`, as a set of bits. A path with another byte there
    /// is found without a search.
    firsts: [u64; 4],
    /// The paths in order. A path that ends with a slash has all paths that begin with it; any other has only itself.
    /// To find the prefixes of a path, the search takes the last node that is not after the path, and the nodes
    /// [above](Node::above) that node.
    nodes: Vec<Node>,
}

/// The routes of one path.
#[derive(Clone, Debug)]
struct Node {
    /// The [head] of the path: most comparisons of a search end there.
    head: u64,
    path: Box<[u8]>,
    /// The routes for some of its paths, in order; `None`: these are closed.
    some: Vec<(Matcher, Option<RouteId>)>,
    /// The route for the others, if there is one; `Some(None)`: they are closed.
    rest: Option<Option<RouteId>>,
    /// The index of the longest other path that has this one.
    above: Option<u32>,
}

/// The conditions on a path in addition to the path of a route.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// The whole path must match it.
    pub pattern: Option<Pattern>,
    /// The file must list it.
    pub redirects: Option<Arc<Redirects>>,
}

impl From<Option<&Pattern>> for Matcher {
    fn from(pattern: Option<&Pattern>) -> Self {
        Self { pattern: pattern.cloned(), redirects: None }
    }
}

impl Matcher {
    const fn has_all(&self) -> bool {
        self.pattern.is_none() && self.redirects.is_none()
    }

    fn matches(&self, path: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(path))
            && self.redirects.as_ref().is_none_or(|redirects| redirects.find(path).is_some())
    }
}

impl RouteId {
    /// The id of the route at this position of a list.
    ///
    /// # Panics
    ///
    /// If the position is 2³² or more.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer routes than 2³²"))
    }

    /// The position in a list with one entry for each route.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Routes {
    /// Takes the paths and the conditions of routes, in the order of the configuration. Of several routes with the same
    /// path and no condition the first counts. A path without a slash at its end stands for itself and for the paths
    /// below it. `None` instead of a route closes its paths, except for routes with the same path.
    ///
    /// # Panics
    ///
    /// If there are 2³² paths or more.
    pub fn new<'a, M: Into<Matcher>, R: Into<Option<RouteId>>>(
        routes: impl IntoIterator<Item = (&'a str, M, R)>,
    ) -> Self {
        let mut listed = Vec::new();
        for (path, matcher, id) in routes {
            let (matcher, id): (Matcher, Option<RouteId>) = (matcher.into(), id.into());
            if !path.ends_with('/') {
                listed.push((format!("{path}/"), matcher.clone(), id));
            }
            listed.push((path.to_owned(), matcher, id));
        }
        let only = match &listed[..] {
            [(path, matcher, id)] if path == "/" && matcher.has_all() => *id,
            _ => None,
        };
        // Stable, so the order of the configuration remains within a path.
        listed.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut nodes: Vec<Node> = Vec::new();
        // The paths that have the one that is looked at.
        let mut above: Vec<u32> = Vec::new();
        for (path, matcher, id) in listed {
            let path = path.into_bytes();
            if nodes.last().is_none_or(|last| *last.path != *path) {
                let has = |index: &u32| nodes[*index as usize].has(&path);
                while above.last().is_some_and(|index| !has(index)) {
                    above.pop();
                }
                let next = u32::try_from(nodes.len()).expect("fewer paths than 2³²");
                let (some, above_it) = (Vec::new(), above.last().copied());
                nodes.push(Node {
                    head: head(&path),
                    path: path.into(),
                    some,
                    rest: None,
                    above: above_it,
                });
                above.push(next);
            }
            let Some(node) = nodes.last_mut() else { continue };
            if matcher.has_all() {
                node.rest = Some(node.rest.flatten().or(id));
            } else {
                node.some.push((matcher, id));
            }
        }
        let is_top = |node: &&Node| *node.path == *b"/" && node.some.is_empty();
        let top = nodes.first().filter(is_top).and_then(|node| node.rest.flatten());
        let mut firsts = [0; 4];
        for first in nodes.iter().filter_map(|node| node.path.get(1)) {
            firsts[usize::from(first >> 6)] |= 1 << (first & 63);
        }
        Self { all: only, top, firsts, nodes }
    }

    /// Finds the route of a path, which is in its normal form, with a slash at its beginning, and at its end
    /// if it names a directory.
    #[inline]
    pub fn find(&self, path: &[u8]) -> Option<RouteId> {
        if self.all.is_some() {
            return self.all;
        }
        let is_first = |first: &u8| self.firsts[usize::from(first >> 6)] & (1 << (first & 63)) != 0;
        match self.top {
            Some(top) if !path.get(1).is_some_and(is_first) => Some(top),
            _ => self.search(path),
        }
    }

    /// Finds the route of a path with a slash at its end, if a route has just that path. The slash is not
    /// there yet: long paths are copied only if it is worth it.
    pub fn find_directory(&self, path: &[u8]) -> Option<RouteId> {
        let with_slash = || path.iter().chain(b"/");
        let exact = self.nodes.binary_search_by(|node| node.path.iter().cmp(with_slash()));
        exact.ok().and_then(|_| self.find(&[path, b"/"].concat()))
    }

    fn search(&self, path: &[u8]) -> Option<RouteId> {
        let head = head(path);
        let behind = self.nodes.partition_point(|node| match node.head.cmp(&head) {
            Ordering::Less => true,
            Ordering::Equal => &*node.path <= path,
            Ordering::Greater => false,
        });
        let mut next = behind.checked_sub(1);
        while let Some(node) = next.and_then(|index| self.nodes.get(index)) {
            if node.has(path) {
                let found = node.some.iter().find(|(matcher, _)| matcher.matches(path));
                if let Some(route) = found.map(|(_, route)| *route).or(node.rest) {
                    return route;
                }
            }
            next = node.above.map(|above| above as usize);
        }
        None
    }
}

/// The first bytes of a path after its slash, as a number. If the numbers of two paths differ, the paths are
/// in the same order as they.
#[inline]
fn head(path: &[u8]) -> u64 {
    let behind = path.get(1..).unwrap_or_default();
    if let Some(head) = behind.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    behind
        .iter()
        .zip([56, 48, 40, 32, 24, 16, 8])
        .fold(0, |head, (byte, shift)| head | u64::from(*byte) << shift)
}

impl Node {
    /// Returns whether the node's path contains this path.
    fn has(&self, path: &[u8]) -> bool {
        if self.path.ends_with(b"/") { path.starts_with(&self.path) } else { *self.path == *path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(list: &[(&str, Option<&str>)]) -> Routes {
        let patterns: Vec<_> =
            list.iter().map(|(_, text)| text.map(|text| Pattern::new(text).unwrap())).collect();
        let routes = list.iter().zip(&patterns).enumerate();
        Routes::new(
            routes.map(|(id, ((path, _), pattern))| (*path, pattern.as_ref(), RouteId::new(id))),
        )
    }

    #[test]
    fn a_file_of_redirects_has_the_paths_that_it_lists() {
        let file = Arc::new(Redirects::parse("/a /b\n/c/* /d").unwrap());
        let listed = Matcher { redirects: Some(file), pattern: None };
        let all = Matcher::default();
        let (first, second) = (RouteId::new(0), RouteId::new(1));
        let routes = Routes::new([("/", all, second), ("/", listed.clone(), first)]);
        for (path, expected) in [("/a", first), ("/c/x", first), ("/", second), ("/c", second)] {
            assert_eq!(routes.find(path.as_bytes()), Some(expected), "{path}");
        }
        let routes = Routes::new([("/", listed, first)]);
        assert_eq!(routes.find(b"/x"), None);
    }

    #[test]
    fn a_closed_path_has_no_route() {
        let text = |text| Some(Pattern::new(text).unwrap());
        let id = |id| Some(RouteId::new(id));
        let routes = Routes::new(
            [
                ("/", None, id(0)),
                ("/closed/", None, None),
                ("/closed/open/", None, id(1)),
                ("/both", None, None),
                ("/both", None, id(2)),
                ("/some/", text("*.key"), None),
            ]
            .map(|(path, pattern, id)| (path, Matcher { pattern, redirects: None }, id)),
        );
        for (path, expected) in [
            ("/x", id(0)),
            ("/closed/", None),
            ("/closed/x", None),
            ("/closed", id(0)),
            ("/closed/open/x", id(1)),
            ("/both", id(2)),
            ("/both/x", id(2)),
            ("/some/x", id(0)),
            ("/some/x.key", None),
        ] {
            assert_eq!(routes.find(path.as_bytes()), expected, "{path}");
        }
        assert_eq!(routes.find_directory(b"/closed"), None);
        let routes = Routes::new([("/", Matcher::default(), None)]);
        assert_eq!(routes.find(b"/x"), None);
    }

    #[test]
    fn the_longest_path_wins_and_patterns_come_first() {
        let routes = routes(&[
            ("/", None),
            ("/", Some("*.php")),
            ("/api/", None),
            ("/api-docs/", None),
            ("/a", None),
            ("/api/v1/", Some("*/list")),
            ("/", Some("*.php")),
            ("/api/v1/deep/", None),
            ("/", Some("/api*")),
        ]);
        for (path, expected) in [
            ("/", 0),
            ("/x", 0),
            ("/x.php", 1),
            ("/x.php/", 0),
            ("/api", 8),
            ("/apis", 8),
            ("/api/", 2),
            ("/api/x.php", 2),
            ("/api-docs/x", 3),
            ("/api-", 8),
            ("/a", 4),
            ("/a/", 4),
            ("/a/b", 4),
            ("/a-b", 0),
            ("/ab", 0),
            ("/api/v1/list", 5),
            ("/api/v1/x", 2),
            ("/api/v1/deep/list", 7),
            ("/api/v1/deep-list", 2),
        ] {
            assert_eq!(routes.find(path.as_bytes()), Some(RouteId::new(expected)), "{path}");
        }
    }

    #[test]
    fn a_site_without_a_route_for_all_paths_has_none_for_some() {
        let some = routes(&[("/a/", None), ("/b", Some("*.php"))]);
        assert_eq!(some.find(b"/"), None);
        assert_eq!(some.find(b"/a"), None);
        assert_eq!(some.find(b"/a/"), Some(RouteId::new(0)));
        assert_eq!(some.find(b"/b"), None);
        assert_eq!(some.find(b"/b/x.php"), Some(RouteId::new(1)));
        assert_eq!(routes(&[]).find(b"/"), None);
        assert_eq!(routes(&[("/", None)]).all, Some(RouteId::new(0)));
        assert_eq!(routes(&[("/", Some("*"))]).all, None);
    }

    #[test]
    fn heads_are_in_the_order_of_their_paths() {
        let mut paths = Vec::new();
        for text in
            ["", "a", "a-b/", "abcdefg", "abcdefgh", "abcdefghi", "abcdefgi", "b", "\u{ff}/"]
        {
            paths.extend([format!("/{text}"), format!("/{text}/"), format!("/{text}\0")]);
        }
        for one in &paths {
            for other in &paths {
                let heads = head(one.as_bytes()).cmp(&head(other.as_bytes()));
                assert!(heads.is_eq() || heads == one.cmp(other), "{one:?} {other:?}");
            }
        }
    }

    /// The rule of the module, in the simplest words.
    fn expected(list: &[(String, bool)], path: &[u8]) -> Option<RouteId> {
        let matching = list.iter().enumerate().filter(|(_, (of_route, has_pattern))| {
            let below = format!("{}/", of_route.trim_end_matches('/'));
            let is_below = path.starts_with(below.as_bytes());
            (is_below || path == of_route.as_bytes()) && (!has_pattern || path.ends_with(b"a"))
        });
        let key = |(id, (of_route, has_pattern)): (usize, &(String, bool))| {
            let len = of_route.trim_end_matches('/').len();
            (len, *has_pattern, usize::MAX - id)
        };
        matching.max_by_key(|entry| key(*entry)).map(|(id, _)| RouteId::new(id))
    }

    #[test]
    fn any_routes_are_found_as_the_rule_says() {
        for seed in 0..3000_u64 {
            let mut random = testkit::Random::new(seed);
            let mut below = |bound: usize| random.below(bound);
            let mut text = |pieces: usize| -> String {
                (0..pieces).map(|_| ["/a", "/b", "-", "a", "/ab", "/"][below(6)]).collect()
            };
            let normal = |text: &str| {
                let mut text = format!("/{text}");
                while text.contains("//") {
                    text = text.replace("//", "/");
                }
                text
            };
            let list: Vec<(String, bool)> =
                (0..8).map(|id| (normal(&text(id % 4)), id % 3 == 0)).collect();
            let made: Vec<_> =
                list.iter().map(|(path, pattern)| (&path[..], pattern.then_some("*a"))).collect();
            let made = routes(&made);
            for pieces in 0..6 {
                let path = normal(&text(pieces));
                let found = made.find(path.as_bytes());
                assert_eq!(found, expected(&list, path.as_bytes()), "seed {seed}: {list:?} {path}");
            }
        }
    }
}

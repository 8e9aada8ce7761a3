//! Finds the files that a configuration names: fallbacks, and error pages.

use std::collections::BTreeMap;

use http::path;

use super::{Served, Snapshot, TreeIndex};
use config::route::{RouteId, Routes};
use config::{Action, rule};

/// A file of a route that is sent in place of another answer: a fallback, an error page, or a file of a hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub(crate) route: RouteId,
    /// Its path in the tree of the route.
    pub(crate) path: Box<[u8]>,
}

impl Snapshot {
    /// Finds the files to which the routes of a site hand requests over, and rejects redirects that
    /// lead to themselves. The first route of the site is `first`. Returns the error pages of the
    /// site.
    pub(super) fn resolve_named_files(
        &mut self,
        first: usize,
        errors: &BTreeMap<u16, String>,
    ) -> Result<BTreeMap<u16, NamedFile>, String> {
        // These paths may also lead to internal routes.
        let all = self.routes_of(first, |_| true);
        let named = |path: &str, what: &str| {
            self.named_file(&all, path)
                .ok_or_else(|| format!("the {what} {path} leads to no files"))
        };
        let error_pages =
            |errors: &BTreeMap<u16, String>| -> Result<BTreeMap<u16, NamedFile>, String> {
                let page = |(code, path): (&u16, &String)| {
                    rule::error_status(*code)?;
                    Ok((*code, named(path, &format!("page for {code},"))?))
                };
                errors.iter().map(page).collect()
            };
        let of_site = error_pages(errors)?;
        let mut resolved = Vec::new();
        for entry in &self.routes[first..] {
            let files = entry.route.action.files();
            let fallback = files.and_then(|files| files.rules.fallback.as_deref());
            let fallback = fallback.map(|path| named(path, "fallback")).transpose()?;
            resolved.push((fallback, error_pages(&entry.route.errors)?));
        }
        for (entry, index) in self.routes[first..].iter().zip(first..) {
            if let Action::Redirect(redirect) = &entry.route.action {
                let to = redirect.to.split(['?', '#']).next().unwrap_or_default();
                let mut name = Vec::new();
                // A target with captures is checked with each request.
                let is_local =
                    !to.contains('$') && path::normalize(to.as_bytes(), &mut name).is_ok();
                if is_local && all.find(to.as_bytes()) == Some(RouteId::new(index)) {
                    return Err(format!(
                        "the redirect from {} leads to itself",
                        entry.route.name()
                    ));
                }
            }
        }
        for (entry, (fallback, error_pages)) in self.routes[first..].iter_mut().zip(resolved) {
            (entry.fallback, entry.error_pages) = (fallback, error_pages);
        }
        for index in first..self.routes.len() {
            let entry = &self.routes[index];
            let fallback = entry.fallback.as_ref().map(|file| file.route.index());
            let mut leads_to = core::iter::once(index).chain(fallback);
            let leads_to_pages = leads_to.any(|index| self.routes[index].route.has_includes());
            if let Served::Files { has_pages, .. } = &mut self.routes[index].served {
                *has_pages = leads_to_pages;
            }
        }
        Ok(of_site)
    }

    /// The file to which a path of a site leads.
    fn named_file(&self, all: &Routes, path: &str) -> Option<NamedFile> {
        let path = rule::path(path).ok()?;
        let route = all.find(path.as_bytes())?;
        let entry = &self.routes[route.index()];
        self.named_file_at(route, path.as_bytes().get(entry.prefix.len()..)?)
    }

    /// The file at a path below the directory of a route.
    pub(in crate::serving) fn named_file_at(
        &self,
        route: RouteId,
        path: &[u8],
    ) -> Option<NamedFile> {
        let TreeIndex(tree) = self.routes[route.index()].served.tree()?;
        let rules = &self.trees[tree].rules;
        Some(NamedFile { route, path: rules.clean_path(path).unwrap_or(path).into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Config, FileRules, Files, HeaderRule, Pattern, Redirect, Route};

    fn files(path: &str, change: impl FnOnce(&mut FileRules)) -> Route {
        let mut rules = FileRules::default();
        change(&mut rules);
        let action = Action::Files(Files { root: "/srv".into(), rules });
        Route { path: path.to_owned(), action, ..Route::default() }
    }

    fn redirect(path: &str, to: &str) -> Route {
        let action = Action::Redirect(Redirect { to: to.to_owned(), status: 308 });
        Route { path: path.to_owned(), action, ..Route::default() }
    }

    fn snapshot(routes: Vec<Route>) -> Result<Snapshot, String> {
        let mut config = Config::default();
        config.sites[0].routes = routes;
        Snapshot::new(&config)
    }

    #[test]
    fn fallbacks_and_pages_lead_to_files_of_any_route_of_the_site() {
        let mut internal = files("/.errors/", |rules| rules.clean_urls = true);
        internal.is_internal = true;
        let mut first = files("/", |rules| rules.fallback = Some("/app/index.html".to_owned()));
        first.errors = [(404, "/.errors/404.html"), (503, "/app/"), (403, "/.errors/index.html")]
            .map(|(code, path)| (code, path.to_owned()))
            .into();
        let routes = vec![first, files("/app", |_| ()), internal];
        let snapshot = snapshot(routes).unwrap();
        let entry = &snapshot.routes[0];
        let page = |route, path: &str| NamedFile {
            route: RouteId::new(route),
            path: path.as_bytes().into(),
        };
        assert_eq!(entry.fallback, Some(page(1, "index.html")));
        let expected = [(403, page(2, "")), (404, page(2, "404")), (503, page(1, ""))];
        assert_eq!(entry.error_pages, expected.into());
    }

    #[test]
    fn a_configuration_that_leads_nowhere_is_refused() {
        let header = |set: &[(&str, &str)], remove: &[&str]| {
            let set = set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let remove = remove.iter().map(|name| (*name).into()).collect();
            vec![HeaderRule { set, remove, ..HeaderRule::default() }]
        };
        let headers = |headers| vec![Route { headers, ..files("/", |_| ()) }];
        let errors = |code, path: &str| {
            vec![Route { errors: [(code, path.to_owned())].into(), ..files("/", |_| ()) }]
        };
        let fallback = |path: &str| files("/a/", |rules| rules.fallback = Some(path.to_owned()));
        let mut circle = redirect("/", "/b?c");
        circle.pattern = Some(Pattern::new("/b*").unwrap());
        for (routes, expected) in [
            (vec![fallback("/index.html")], "the fallback /index.html leads to no files"),
            (vec![fallback("/b/x"), redirect("/b/", "/a/")], "the fallback /b/x leads to no files"),
            (errors(404, "404.html"), "the page for 404, 404.html leads to no files"),
            (errors(200, "/a"), "200 is no status of an error"),
            (errors(416, "/a"), "the page for the status 416 cannot be a file"),
            (vec![redirect("/a/", "/a/b")], "the redirect from /a/ leads to itself"),
            (vec![circle], "the redirect from /b* leads to itself"),
            (vec![redirect("/a/", "/$1")], "the target \"/$1\" has $1"),
            (headers(header(&[("Date", "x")], &[])), "Date: only the server itself"),
            (headers(header(&[("A", "x\n")], &[])), "\"x\\n\": a value has"),
            (headers(header(&[], &["A B"])), "\"A B\" is no name"),
        ] {
            let error = snapshot(routes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(snapshot(vec![fallback("/a/x"), redirect("/", "/a/")]).is_ok());
        assert!(snapshot(vec![redirect("/a/", "/a/$0/b")]).is_ok(), "each request shows it");
    }
}

//! Makes a `Serving` for tests: one site whose routes are given as pairs of a path and an action.

use std::sync::Arc;

use crate::serving::{Serving, Snapshot, TreeId};
use config::site::SiteId;
use config::{
    Action, Cgi, Config, Fastcgi, FileRules, Files, FixedStatus, GatewayRules, Protocol, Redirect,
    Route, ServerAddress, ServerUrl, Upstream,
};

/// The only site.
pub(super) fn site() -> SiteId {
    SiteId::new(0)
}

/// A serving of routes with these paths and actions, by the keys of the configuration. `php` is
/// `fastcgi` with files, `clean-urls` are files with that key, and `pages` are files with includes
/// and a fallback.
pub(super) fn serving(routes: &[(&str, &str)]) -> Serving {
    serving_of(routes.iter().map(|(path, action)| route(path, action)).collect())
}

/// A route with this path and action.
pub(super) fn route(path: &str, action: &str) -> Route {
    Route { path: path.to_owned(), action: self::action(action), ..Route::default() }
}

/// A serving of these routes.
pub(super) fn serving_of(routes: Vec<Route>) -> Serving {
    let mut config = Config::default();
    config.sites[0].routes = routes;
    let snapshot = Snapshot::new(&config).expect("a valid configuration");
    let trees = (0..snapshot.trees().len()).map(TreeId::new).collect();
    Serving::new(Arc::new(snapshot), trees)
}

fn action(name: &str) -> Action {
    let files = || Files { root: "/srv".into(), rules: FileRules::default() };
    let server = |protocol| {
        let address = ServerAddress::Unix("/run/app.sock".into());
        vec![ServerUrl { protocol, address, path: None }]
    };
    let rules = GatewayRules::default();
    match name {
        "files" => Action::Files(files()),
        "clean-urls" => {
            let rules = FileRules { clean_urls: true, ..FileRules::default() };
            Action::Files(Files { rules, ..files() })
        }
        "pages" => {
            let fallback = Some(format!("/{name}/other.html"));
            let rules = FileRules { includes: true, fallback, ..FileRules::default() };
            Action::Files(Files { rules, ..files() })
        }
        "redirect" => Action::Redirect(Redirect { to: "/elsewhere".to_owned(), status: 308 }),
        "status" => Action::Status(FixedStatus { code: 410, text: None }),
        "metrics" => Action::Metrics,
        "status-page" => Action::StatusPage,
        "cgi" => Action::Cgi(Cgi::new("/srv/cgi".into())),
        "proxy" => Action::Proxy(Upstream { servers: server(Protocol::Http), rules }),
        "fastcgi" | "php" => Action::Fastcgi(Fastcgi {
            root: Some("/srv".into()),
            files: (name == "php").then(files),
            ..Fastcgi::new(server(Protocol::Fastcgi), rules)
        }),
        _ => unreachable!("{name} is no action"),
    }
}

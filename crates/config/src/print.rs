//! Writes a configuration as a file that means the same, or as text that shows no secret.

use super::secrets::HIDDEN;
use super::{Action, Config, Fastcgi, RequestHeader, Secrets, keys};

/// Returns the configuration as TOML. It contains all values, also defaults, and each route has the values
/// that it inherits from its site, except `headers`, which are added to those of the site. The paths are absolute if they were when the configuration was made.
#[must_use]
pub fn to_toml(config: &Config) -> String {
    write(config, &Secrets::default())
}

/// Returns the configuration as TOML for an operator: as [`to_toml`], but `…` stands for the values of `request-headers` and
/// `environment`, and for what came from files by `${file:…}`.
#[must_use]
pub fn shown(config: &Config) -> String {
    let mut config = config.clone();
    for route in config.sites.iter_mut().flat_map(|site| &mut site.routes) {
        route.request_headers = route.request_headers.iter().map(RequestHeader::hidden).collect();
        if let Action::Cgi(cgi) = &mut route.action {
            hide(&mut cgi.environment);
        }
        if let Action::Fastcgi(Fastcgi { environment, .. }) = &mut route.action {
            hide(environment);
        }
    }
    write(&config, &config.secrets)
}

fn hide(variables: &mut [(String, String)]) {
    for (_, value) in variables {
        HIDDEN.clone_into(value);
    }
}

fn write(config: &Config, secrets: &Secrets) -> String {
    let mut text = format!("[server]\n{}", keys::write_server(&config.server, secrets));
    if let Some(acme) = &config.acme {
        text.push_str("\n[acme]\n");
        text.push_str(&keys::write_acme(acme, secrets));
    }
    for site in &config.sites {
        text.push_str("\n[[site]]\n");
        text.push_str(&keys::write_site(site, secrets));
        for route in &site.routes {
            text.push_str("\n[[site.route]]\n");
            text.push_str(&keys::write_route(site, route, secrets));
        }
    }
    text
}

//! Writes a configuration as a file that means the same.

use super::{Config, keys};

/// Returns the configuration as TOML. It contains all values, also defaults, and each route has the values
/// that it inherits from its site. The paths are absolute if they were when the configuration was made.
#[must_use]
pub fn to_toml(config: &Config) -> String {
    let mut text = format!("[server]\n{}", keys::write_server(&config.server));
    for site in &config.sites {
        text.push_str("\n[[site]]\n");
        text.push_str(&keys::write_site(site));
        for route in &site.routes {
            text.push_str("\n[[site.route]]\n");
            text.push_str(&keys::write_route(site, route));
        }
    }
    text
}

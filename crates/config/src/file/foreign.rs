//! Recognizes the configurations of other servers, which are given to samum by mistake or in hope. Pure.
//!
//! A text that is not TOML is looked through line by line; the first line that one of them would have decides.

use core::ops::Range;

/// The most lines that are looked at.
const LINES_MAX: usize = 200;

/// The first words of blocks of nginx.
const NGINX_BLOCKS: [&str; 10] =
    ["events", "geo", "http", "if", "location", "map", "server", "stream", "types", "upstream"];
/// Directives of Caddy that stand alone in a line, or with arguments, and that TOML cannot have.
const CADDY_DIRECTIVES: [&str; 12] = [
    "encode",
    "file_server",
    "handle",
    "header",
    "import",
    "log",
    "php_fastcgi",
    "redir",
    "respond",
    "reverse_proxy",
    "root",
    "tls",
];

/// Returns what a text probably is, as the end of a sentence, and the line that shows it.
pub(super) fn recognize(text: &str) -> Option<(&'static str, Range<usize>)> {
    let mut start = 0;
    for line in text.split_inclusive('\n').take(LINES_MAX) {
        let place = start..start + line.trim_end().len();
        start += line.len();
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(kind) = of_line(line) {
            return Some((kind, place));
        }
    }
    None
}

fn of_line(line: &str) -> Option<&'static str> {
    const NGINX: &str = "nginx's: see docs/from-nginx.md";
    const CADDY: &str = "Caddy's: see docs/from-caddy.md";
    let word = line.split([' ', '\t', '{', ';']).next().unwrap_or_default();
    let is_word =
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if line.contains(" = ") || line.starts_with("[[") {
        return None;
    }
    if line.ends_with('{') {
        let is_nginx = NGINX_BLOCKS.contains(&word);
        return Some(if is_nginx { NGINX } else { CADDY });
    }
    if line.ends_with(';') && is_word {
        return Some(NGINX);
    }
    if line.starts_with('<') && line.ends_with('>') {
        return Some("Apache's, which has other words and another order");
    }
    if line.starts_with("{\"") || line == "{" {
        return Some("JSON");
    }
    if line == "---" || is_yaml(line) {
        return Some("YAML");
    }
    // An address alone is the first line of the shortest Caddyfile.
    let is_address = line.starts_with(':') && line[1..].parse::<u16>().is_ok();
    (is_address || CADDY_DIRECTIVES.contains(&word)).then_some(CADDY)
}

/// Returns true if a line is a key of YAML: `key:` or `key: value`.
fn is_yaml(line: &str) -> bool {
    let line = line.strip_prefix("- ").unwrap_or(line);
    let Some((key, value)) = line.split_once(':') else { return false };
    let is_key =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    !key.is_empty() && key.bytes().all(is_key) && (value.is_empty() || value.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_whose_configuration_it_is() {
        for (text, expected) in [
            ("# mine\n\nuser www-data;\nhttp {\n", Some(("nginx", "user www-data;"))),
            ("server {\n  listen 80;\n", Some(("nginx", "server {"))),
            ("location ~ \\.php$ {\n", Some(("nginx", "location ~ \\.php$ {"))),
            ("example.org {\n\troot * /srv\n", Some(("Caddy", "example.org {"))),
            (":8080\nfile_server\n", Some(("Caddy", ":8080"))),
            ("localhost\n\nroot * /srv\n", Some(("Caddy", "root * /srv"))),
            ("<VirtualHost *:80>\n", Some(("Apache", "<VirtualHost *:80>"))),
            ("{\"apps\": {}}", Some(("JSON", "{\"apps\": {}}"))),
            ("---\nhosts:\n", Some(("YAML", "---"))),
            ("hosts:\n  a: b\n", Some(("YAML", "hosts:"))),
            ("listen: 80\n", Some(("YAML", "listen: 80"))),
            ("[[site]]\nhosts = \"a\n", None),
            ("[server\nthreads = 1\n", None),
            ("threads = {\n", None),
            ("a = 'x: y'\n", None),
            ("", None),
            ("\u{0}\u{1}binary", None),
        ] {
            let found = recognize(text);
            assert_eq!(found.is_some(), expected.is_some(), "{text}: {found:?}");
            if let (Some((kind, place)), Some((whose, line))) = (found, expected) {
                assert!(kind.starts_with(whose), "{text}: {kind}");
                assert_eq!(&text[place], line);
            }
        }
    }
}

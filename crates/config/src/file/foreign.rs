//! Recognizes files that are no configurations of samum, which are given to it by mistake or in hope. Pure.
//!
//! A text that is not TOML is looked through line by line; the first line that another kind of file would have decides.

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

/// The first words of lines of Apache.
const APACHE_DIRECTIVES: [&str; 20] = [
    "AddType",
    "Alias",
    "AllowOverride",
    "CustomLog",
    "DirectoryIndex",
    "DocumentRoot",
    "ErrorDocument",
    "ErrorLog",
    "Header",
    "Include",
    "IncludeOptional",
    "Listen",
    "LoadModule",
    "Options",
    "ProxyPass",
    "Require",
    "RewriteEngine",
    "ServerAdmin",
    "ServerName",
    "ServerRoot",
];
/// The beginnings of lines of lighttpd. Some are TOML, but have errors here.
const LIGHTTPD: [&str; 8] = [
    "$HTTP[",
    "$REQUEST_HEADER[",
    "$SERVER[",
    "index-file.names",
    "mimetype.assign",
    "server.document-root",
    "server.modules",
    "server.port",
];
/// Returns what a text probably is, as the end of a sentence, and the line that shows it.
pub(super) fn recognize(text: &str) -> Option<(&'static str, Range<usize>)> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        let place = start..start + line.trim_end().len();
        start += line.len();
        (line.trim(), place)
    });
    let is_text = |(line, _): &(&str, Range<usize>)| !line.is_empty() && !line.starts_with('#');
    let mut lines = lines.take(LINES_MAX).filter(is_text).peekable();
    let mut is_first = true;
    while let Some((line, place)) = lines.next() {
        let next = lines.peek().map(|(next, _)| *next).unwrap_or_default();
        let kind = if is_first { of_first(line, next) } else { None };
        if let Some(kind) = kind.or_else(|| of_line(line)) {
            return Some((kind, place));
        }
        is_first = false;
    }
    None
}

const CADDY: &str = "Caddy's: see docs/from-caddy.md";
const NGINX: &str = "nginx's: see docs/from-nginx.md";

/// Recognizes a text by its first line and the next.
fn of_first(line: &str, next: &str) -> Option<&'static str> {
    let begins = |open: char| line.strip_prefix(open).map(str::trim_start);
    let of_next = |rest: &'_ str| if rest.is_empty() { next } else { rest }.chars().next();
    if let Some(rest) = begins('{') {
        // A Caddyfile may begin with a block of options.
        let is_json = matches!(of_next(rest), Some('"' | '}'));
        return Some(if is_json { "JSON" } else { CADDY });
    }
    let rest = begins('[')?;
    // A bracket alone, or a list of values: no name of a table.
    matches!(of_next(rest), Some('{' | ']')).then_some("JSON")
}

fn of_line(line: &str) -> Option<&'static str> {
    // No line after this one is shown: a private key must not get into a log.
    if line.starts_with("-----BEGIN ") {
        return Some("a key or a certificate (PEM)");
    }
    let is_markup = ["<!", "<?", "<html"].iter().any(|start| line.starts_with(start));
    if is_markup {
        return Some("HTML or XML");
    }
    let word = line.split([' ', '\t', '{', ';']).next().unwrap_or_default();
    let is_word =
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if LIGHTTPD.iter().any(|start| line.starts_with(start)) {
        return Some("lighttpd's, which has other words and another order");
    }
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
    let is_apache = APACHE_DIRECTIVES.contains(&word) && word.len() < line.len();
    if is_apache || line.starts_with('<') && line.ends_with('>') {
        return Some("Apache's, which has other words and another order");
    }
    if is_haproxy(line) {
        return Some("HAProxy's, which has other words and another order");
    }
    if line == "---" || is_yaml(line) {
        return Some("YAML");
    }
    // An address alone is the first line of the shortest Caddyfile.
    let is_address = line.starts_with(':') && line[1..].parse::<u16>().is_ok();
    (is_address || CADDY_DIRECTIVES.contains(&word)).then_some(CADDY)
}

/// Returns true if a line begins a section of HAProxy.
fn is_haproxy(line: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    match line.split_once(' ') {
        Some(("frontend" | "backend" | "listen", name)) => {
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(is_of_name)
        }
        _ => ["global", "defaults"].contains(&line),
    }
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
            ("{ \"apps\": {} }", Some(("JSON", "{ \"apps\": {} }"))),
            ("{\n  \"apps\": {}\n}\n", Some(("JSON", "{"))),
            ("[\n  { \"a\": 1 }\n]\n", Some(("JSON", "["))),
            ("{\n\temail a@b.org\n}\n", Some(("Caddy", "{"))),
            ("# mine\nListen 80\nServerName a\n", Some(("Apache", "Listen 80"))),
            ("ServerRoot \"/etc/httpd\"\n", Some(("Apache", "ServerRoot \"/etc/httpd\""))),
            (
                "include \"a\"\n$HTTP[\"host\"] == \"a\" {\n",
                Some(("lighttpd", "$HTTP[\"host\"] == \"a\" {")),
            ),
            ("server.port = 80\nx = ( \"a\" )\n", Some(("lighttpd", "server.port = 80"))),
            ("global\n  daemon\n", Some(("HAProxy", "global"))),
            ("frontend web\n  bind *:80\n", Some(("HAProxy", "frontend web"))),
            ("---\nhosts:\n", Some(("YAML", "---"))),
            ("hosts:\n  a: b\n", Some(("YAML", "hosts:"))),
            ("listen: 80\n", Some(("YAML", "listen: 80"))),
            (
                "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----\n",
                Some(("a key", "-----BEGIN PRIVATE KEY-----")),
            ),
            ("<!DOCTYPE html>\n<html></html>\n", Some(("HTML", "<!DOCTYPE html>"))),
            ("<?xml version=\"1.0\"?>\n", Some(("HTML", "<?xml version=\"1.0\"?>"))),
            ("[[site]]\nhosts = \"a\n", None),
            ("[server\nthreads = 1\n", None),
            ("threads = {\n", None),
            ("listen = [\n  { address = ':80' }\n  { address = ':81' }\n]\n", None),
            ("listen = [\n  ':80'\n  ':81'\n]\n", None),
            ("listen\n= [':80'", None),
            ("[server\nListen", None),
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

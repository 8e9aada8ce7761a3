//! The configurations in `examples/` have no errors and no warnings, and serve what their comments say.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use testkit::{Address, Client, Server, request};

use super::{SAMUM, samum, text};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// An example that is checked and served, at a free port and with directories that are here.
struct Example {
    server: Server,
    _directory: TempDir,
}

impl Example {
    fn serve(name: &str, replaced: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let site = format!("files = \"{EXAMPLES}/site");
        let here = [("127.0.0.1:8080", "127.0.0.1:0"), ("files = \"site", &site)];
        let mut keys = fs::read_to_string(Path::new(EXAMPLES).join(name)).unwrap();
        for (from, to) in here.iter().chain(replaced) {
            assert!(keys.contains(from), "{name} has no {from}");
            keys = keys.replace(from, to);
        }
        fs::write(directory.path().join(name), keys).unwrap();
        let checked = samum(directory.path(), &["check", name]);
        assert_eq!((checked.status.code(), &told(&checked)[..]), (Some(0), ""), "{name}");
        let file = directory.path().join(name);
        let server = Server::start(SAMUM, ["serve", "--config", file.to_str().unwrap()]).unwrap();
        Self { server, _directory: directory }
    }

    fn address(&self) -> Address {
        self.server.address()
    }

    /// Compares the status of the response to a request, which may have further fields, one a line.
    fn expect(&self, head: &str, status: u16) {
        let mut client = Client::connect(&self.address()).unwrap();
        client.send(request(head)).unwrap();
        let response = client.response().unwrap();
        assert_eq!(response.status, status, "{head}");
    }
}

#[test]
fn all_examples_are_tested_here() {
    let names = fs::read_dir(EXAMPLES).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    let tested =
        ["mirror.toml", "php.toml", "reverse-proxy.toml", "static-site.toml", "video.toml"];
    assert_eq!(names, tested);
}

#[test]
fn a_static_site() {
    let example = Example::serve("static-site.toml", &[]);
    example.expect("GET /\nHost: example.org", 200);
    example.expect("GET /style.css\nHost: www.example.org", 200);
    example.expect("GET /none\nHost: example.org", 404);
    example.expect("GET /old/style.css\nHost: example.org", 308);
    example.expect("GET /\nHost: example.net", 404);
}

#[test]
fn a_php_application() {
    // There is no application: a script has no upstream, and files are sent all the same.
    let socket = tempfile::tempdir().unwrap();
    let missing = socket.path().join("php.sock");
    let example =
        Example::serve("php.toml", &[("/run/php/php-fpm.sock", missing.to_str().unwrap())]);
    example.expect("GET /style.css", 200);
    example.expect("GET /downloads/samum.txt", 200);
    example.expect("GET /private/samum.txt", 404);
    example.expect("POST /\nContent-Length: 20000000", 413);
}

#[test]
fn a_reverse_proxy() {
    let upstream = Example::serve("static-site.toml", &[]);
    let Address::Tcp(address) = upstream.address() else { panic!("no address") };
    let (address, keys) = (address.to_string(), ["127.0.0.1:9001", "127.0.0.1:9002"]);
    // Both are one server: an upstream may be named once only.
    let both = format!("\"http://{}\", \"http://{}\"", keys[0], keys[1]);
    let one = format!("\"http://{address}\"");
    let example = Example::serve("reverse-proxy.toml", &[(&both, &one)]);
    example.expect("GET /style.css\nHost: example.org", 200);
    example.expect("GET /none\nHost: example.org", 404);
    example.expect("GET /static/style.css", 200);
    example.expect("GET /metrics", 200);
}

#[test]
fn a_mirror() {
    let disk = tempfile::tempdir().unwrap();
    let example = Example::serve("mirror.toml", &[("/mnt/disk2", disk.path().to_str().unwrap())]);
    example.expect("GET /downloads/", 200);
    example.expect("GET /downloads/samum.txt\nRange: bytes=0-0", 206);
}

#[test]
fn an_origin_of_video() {
    let example = Example::serve("video.toml", &[]);
    example.expect("GET /dunes.mp4\nRange: bytes=1000-", 206);
    example.expect("GET /recordings/samum.txt", 200);
}

/// README.md shows a visitor a configuration. It is right but for its directories and ports, which are not here.
#[test]
fn the_configuration_of_the_readme() {
    let readme = fs::read_to_string(Path::new(EXAMPLES).join("../README.md")).unwrap();
    let (_, shown) = readme.split_once("```toml\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let keys = shown
        .replace("/srv/www", &format!("{EXAMPLES}/site"))
        .replace("/var/log/samum/", "")
        .replace("0.0.0.0:80", "127.0.0.1:0")
        .replace("[::]:80", "[::1]:0");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("readme.toml"), keys).unwrap();
    let checked = samum(directory.path(), &["check", "readme.toml"]);
    assert_eq!((checked.status.code(), &told(&checked)[..]), (Some(0), ""));
}

/// The messages of a check without those about pages: the small site of the examples does not have all.
fn told(checked: &Output) -> String {
    let (mut told, mut is_kept) = (String::new(), true);
    for line in text(&checked.stderr).lines() {
        // The line of the file follows its message.
        if !line.starts_with(' ') {
            is_kept = !line.contains("warning: there is no file for `/");
        }
        if is_kept {
            told += line;
            told.push('\n');
        }
    }
    told
}

//! Symbolic links that lead out of the root directory: into permitted directories, and nowhere else.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use testkit::{Server, Tree};

use crate::common::{SAMUM, SOON, ask, on_both_drivers, serve, text, wait_until};

/// Serves a directory by a configuration with these keys of its route.
fn serve_with(driver: &str, tree: &Tree, keys: &str) -> Server {
    let config = Tree::new();
    let root = text(tree.path());
    let site = "[[site]]\nlisten = [\"127.0.0.1:0\"]\n[[site.route]]\n";
    config.write("samum.toml", format!("{site}files = \"{root}\"\n{keys}\n").into_bytes());
    let mut command = Command::new(SAMUM);
    command.args(["serve", "--driver", driver, "--threads", "1", "--config"]);
    command.arg(config.path().join("samum.toml"));
    Server::spawn(&mut command).expect("the server starts")
}

fn follow(dirs: &[&Path]) -> String {
    let dirs: Vec<_> = dirs.iter().map(|dir| format!("\"{}\"", dir.display())).collect();
    format!("symlinks = {{ follow = [{}] }}", dirs.join(", "))
}

/// A root with links, a directory that they may lead into, and one that they may not.
struct Disks {
    www: Tree,
    disk: Tree,
    other: Tree,
}

impl Disks {
    fn new() -> Self {
        let www = Tree::new().file("file", "inside").file("style.css", "css");
        let disk = Tree::new()
            .file("file", "on the disk")
            .file("site/index.html", "index")
            .file("site/style.css", "css of the site")
            .file("site/style.css.gz", "gzipped")
            .file("list/one", "1")
            .file(".hidden/file", "hidden")
            .file("large", vec![b'x'; 3_000_000]);
        let other = Tree::new().file("secret", "secret");
        let disks = Self { www, disk, other };
        let Self { www, disk, other } = &disks;
        let at = |tree: &Tree, name: &str| tree.path().join(name);
        for (target, link) in [
            (at(www, "file"), at(www, "absolute")),
            (at(disk, "file"), at(www, "link")),
            (at(disk, "large"), at(www, "large")),
            (at(disk, "site"), at(www, "site")),
            (disk.path().to_owned(), at(www, "pool")),
            (at(disk, ".hidden/file"), at(www, "visible")),
            (at(disk, "site/style.css.gz"), at(www, "style.css.gz")),
            (at(disk, "gone"), at(www, "dangling")),
            (at(other, "secret"), at(www, "out")),
            (other.path().to_owned(), at(www, "out-dir")),
            (at(other, "hop"), at(www, "hop")),
            (at(disk, "file"), at(other, "hop")),
            (at(other, "secret"), at(disk, "out")),
            (at(www, "file"), at(disk, "back")),
            ("chain".into(), at(www, "chain")),
            ("/proc/self/environ".into(), at(www, "environ")),
            ("/proc".into(), at(www, "proc")),
        ] {
            symlink(target, link).unwrap();
        }
        let sibling = Path::new("..").join(disk.path().file_name().unwrap()).join("file");
        symlink(sibling, at(www, "relative")).unwrap();
        disks
    }
}

#[test]
fn links_lead_into_the_directories_that_are_named_and_nowhere_else() {
    on_both_drivers(|driver| {
        let Disks { www, disk, other } = Disks::new();
        let keys = format!("listing = true\n{}", follow(&[disk.path()]));
        let server = serve_with(driver, &www, &keys);
        let get = |head: &str| {
            let response = ask(&server, &format!("GET {head}"));
            (response.status, String::from_utf8_lossy(&response.body).into_owned())
        };
        for _ in 0..2 {
            for (path, body) in [
                ("/file", "inside"),
                ("/absolute", "inside"),
                ("/link", "on the disk"),
                ("/relative", "on the disk"),
                ("/pool/file", "on the disk"),
                ("/pool/back", "inside"),
                ("/site/", "index"),
                ("/site/style.css", "css of the site"),
                ("/visible", "hidden"),
            ] {
                assert_eq!(get(path), (200, body.to_owned()), "{path}");
            }
            let gzip = "\nAccept-Encoding: gzip";
            assert_eq!(get(&format!("/site/style.css{gzip}")).1, "gzipped");
            assert_eq!(get(&format!("/style.css{gzip}")).1, "gzipped", "a link beside the file");
            assert_eq!(get("/large").1.len(), 3_000_000);
            assert_eq!(get("/large\nRange: bytes=0-1"), (206, "xx".to_owned()));
            assert_eq!(get("/site").0, 301, "to the path with a slash");
            let listing = get("/pool/list/\nAccept: application/json").1;
            assert!(
                listing.contains("\"name\":\"one\",\"type\":\"file\",\"size\":1,"),
                "{listing}"
            );
            for path in [
                "/dangling",
                "/out",
                "/out-dir/secret",
                "/out-dir/",
                "/hop",
                "/pool/out",
                "/chain",
                "/environ",
                "/proc/version",
                "/proc/",
                "/pool/.hidden/file",
                "/pool/gone",
            ] {
                assert_eq!(get(path).0, 404, "{path}");
            }
        }
        drop(other);
    });
}

#[test]
fn a_change_behind_a_link_is_seen_and_so_is_one_of_the_link() {
    on_both_drivers(|driver| {
        let Disks { www, disk, .. } = Disks::new();
        let server = serve_with(driver, &www, &follow(&[disk.path()]));
        let is = |path: &str, body: &str| {
            wait_until(SOON, || ask(&server, &format!("GET {path}")).body == body.as_bytes())
        };
        assert!(is("/link", "on the disk") && is("/pool/file", "on the disk"));
        disk.write("new", "another");
        fs::rename(disk.path().join("new"), disk.path().join("file")).unwrap();
        assert!(is("/link", "another") && is("/pool/file", "another"));
        disk.write("third", "a third one");
        let (link, new) = (www.path().join("link"), www.path().join("new-link"));
        symlink(disk.path().join("third"), &new).unwrap();
        fs::rename(&new, &link).unwrap();
        assert!(is("/link", "a third one"));
    });
}

/// A directory may be mounted, or be made, when the server runs.
#[test]
fn a_permitted_directory_need_not_exist_yet() {
    on_both_drivers(|driver| {
        let parent = Tree::new();
        let disk = parent.path().join("disk");
        let www = Tree::new().symlink("link", disk.join("file"));
        let server = serve_with(driver, &www, &follow(&[&disk]));
        assert_eq!(ask(&server, "GET /link").status, 404);
        fs::create_dir(&disk).unwrap();
        fs::write(disk.join("file"), "here").unwrap();
        assert!(wait_until(SOON, || ask(&server, "GET /link").body == b"here"));
    });
}

#[test]
fn a_link_that_is_changed_all_the_time_never_leads_elsewhere() {
    on_both_drivers(|driver| {
        let Disks { www, disk, other } = Disks::new();
        disk.write("secret", "public");
        let server = serve_with(driver, &www, &follow(&[disk.path()]));
        let (link, next) = (www.path().join("swapped"), www.path().join("next"));
        let until = Instant::now() + Duration::from_millis(500);
        let (mut found, mut inward) = (0, true);
        while Instant::now() < until {
            let target = if inward { disk.path() } else { other.path() };
            inward = !inward;
            symlink(target, &next).unwrap();
            fs::rename(&next, &link).unwrap();
            let response = ask(&server, "GET /swapped/secret");
            match response.status {
                200 => assert_eq!(response.body, b"public"),
                status => assert!([404, 503].contains(&status), "{status}"),
            }
            found += usize::from(response.status == 200);
        }
        assert!(found > 0);
    });
}

#[test]
fn all_links_may_be_followed_but_those_of_proc() {
    on_both_drivers(|driver| {
        let Disks { www, disk, other } = Disks::new();
        let server = serve(driver, www.path(), &["--symlinks", "follow"]);
        for (path, body) in [
            ("/link", "on the disk"),
            ("/relative", "on the disk"),
            ("/out", "secret"),
            ("/hop", "on the disk"),
            ("/pool/out", "secret"),
        ] {
            assert_eq!(ask(&server, &format!("GET {path}")).body, body.as_bytes(), "{path}");
        }
        for path in ["/environ", "/proc/version", "/proc/self/environ", "/chain", "/dangling"] {
            assert_eq!(ask(&server, &format!("GET {path}")).status, 404, "{path}");
        }
        drop((disk, other));
    });
}

/// What a listing says of a link it says of its target; a link that leads to nothing is not listed.
#[test]
fn a_listing_describes_what_links_lead_to() {
    on_both_drivers(|driver| {
        let Disks { www, disk, .. } = Disks::new();
        let www = www.symlink("to-file", "file").file("dir/one", "1").symlink("to-dir", "dir");
        let names = |options: &str| {
            let server = serve_with(driver, &www, &format!("listing = true\n{options}"));
            let html = String::from_utf8(ask(&server, "GET /").body).unwrap();
            let json = String::from_utf8(ask(&server, "GET /\nAccept: application/json").body);
            let json = json.unwrap();
            assert!(!json.contains("symlink"), "{json}");
            let line = |line: &str| {
                let part = |name: &str| {
                    let rest = line.split_once(&format!("\"{name}\":"))?.1;
                    Some(rest.split(',').next()?.trim_matches('"').to_owned())
                };
                let (name, kind) = (part("name")?, part("type")?);
                let slash = if kind == "directory" { "/" } else { "" };
                assert!(html.contains(&format!(">{name}{slash}</a>")), "{name}: {html}");
                Some(if kind == "directory" {
                    name + "/"
                } else {
                    format!("{name} {}", part("size")?)
                })
            };
            json.lines().filter_map(line).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names("symlinks = \"never\""), "dir/ file 6 style.css 3");
        assert_eq!(names(""), "dir/ to-dir/ file 6 style.css 3 to-file 6");
        assert_eq!(
            names(&follow(&[disk.path()])),
            "dir/ pool/ site/ to-dir/ absolute 6 file 6 large 3000000 link 11 relative 11 style.css 3 \
             style.css.gz 7 to-file 6 visible 6"
        );
    });
}

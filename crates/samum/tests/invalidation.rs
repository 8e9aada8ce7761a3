//! Changes of files are visible: within 100 ms where changes make events, within 1.1 s where they do not
//! (symbolic links, files with several names).

use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Client, Content, Server, Tree, request, skip};

use crate::common::{self, ask, ask_on, connect, on_both_drivers, serve};

const BY_EVENT: Duration = Duration::from_millis(100);
const BY_AGE: Duration = Duration::from_millis(1100);

/// A server whose cache is warm, and a connection to it.
struct Warm {
    server: Server,
    client: Client,
}

impl Warm {
    #[track_caller]
    fn new(driver: &str, dir: &Path, paths: &[&str]) -> Self {
        Self::with(driver, dir, &["--listing"], paths)
    }

    /// The same with other options.
    #[track_caller]
    fn with(driver: &str, dir: &Path, options: &[&str], paths: &[&str]) -> Self {
        let server = serve(driver, dir, options);
        let mut client = connect(&server);
        for path in paths {
            // Once from the disk, and once from the cache.
            for _ in 0..3 {
                ask_on(&mut client, &format!("GET {path}"));
            }
        }
        Self { server, client }
    }

    /// Asserts that the response changes to this within the limit, and stays so.
    #[track_caller]
    fn assert_soon(&mut self, head: &str, limit: Duration, status: u16, body: &str) {
        let began = Instant::now();
        loop {
            let response = ask_on(&mut self.client, head);
            let is_new =
                response.status == status && (status != 200 || response.body == body.as_bytes());
            if is_new {
                break;
            }
            let late = began.elapsed();
            assert!(
                late < limit,
                "{head} after {late:?}: {response:?} instead of {status} {body:?}"
            );
        }
        let response = ask_on(&mut self.client, head);
        assert_eq!(response.status, status, "{head}: stays so");
    }
}

#[test]
fn a_file_changed_in_place() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "one").file("d/e/f.txt", "one");
        let mut warm = Warm::new(driver, tree.path(), &["/a.txt", "/d/e/f.txt"]);
        for text in ["two", "three, longer", ""] {
            for name in ["a.txt", "d/e/f.txt"] {
                fs::write(tree.path().join(name), text).unwrap();
                warm.assert_soon(&format!("GET /{name}"), BY_EVENT, 200, text);
            }
        }
        // Several times with the same size.
        for number in 100..150 {
            fs::write(tree.path().join("a.txt"), number.to_string()).unwrap();
            warm.assert_soon("GET /a.txt", BY_EVENT, 200, &number.to_string());
        }
    });
}

#[test]
fn a_file_replaced_by_rename() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "one").file("d/b.txt", "one");
        let mut warm = Warm::new(driver, tree.path(), &["/a.txt", "/d/b.txt"]);
        for name in ["a.txt", "d/b.txt"] {
            tree.write("new", "two");
            fs::rename(tree.path().join("new"), tree.path().join(name)).unwrap();
            warm.assert_soon(&format!("GET /{name}"), BY_EVENT, 200, "two");
        }
    });
}

#[test]
fn a_large_file_replaced_and_changed() {
    on_both_drivers(|driver| {
        let (one, two) = (Content::pseudo_random(1, 300_000), Content::pseudo_random(2, 300_000));
        let tree = Tree::new().file("big.bin", one.clone());
        let mut warm = Warm::new(driver, tree.path(), &["/big.bin"]);
        one.assert_is(&ask_on(&mut warm.client, "GET /big.bin").body);
        tree.write("new", two.clone());
        fs::rename(tree.path().join("new"), tree.path().join("big.bin")).unwrap();
        std::thread::sleep(BY_EVENT);
        two.assert_is(&ask_on(&mut warm.client, "GET /big.bin").body);
        tree.write("big.bin", one.clone());
        std::thread::sleep(BY_EVENT);
        one.assert_is(&ask_on(&mut warm.client, "GET /big.bin").body);
    });
}

/// A server that was busy finds a change and a later request in one turn.
#[test]
fn a_request_that_follows_a_change_at_once_sees_it() {
    on_both_drivers(|driver| {
        let (one, two) = (Content::pseudo_random(1, 300_000), Content::pseudo_random(2, 300_000));
        let tree = Tree::new().file("small", "before").file("big", one);
        let Warm { server, mut client } = Warm::new(driver, tree.path(), &["/small", "/big"]);
        let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
        let tag = ask_on(&mut client, "GET /big").header("etag").unwrap().to_owned();
        let mut asks = |path: &str, change: &dyn Fn()| {
            kill_process(pid, Signal::STOP).unwrap();
            change();
            client.send(request(&format!("GET {path}"))).unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            client.response().unwrap()
        };
        assert_eq!(asks("/small", &|| tree.write("small", "after!")).body, b"after!");
        let response = asks("/big", &|| tree.write("big", two.clone()));
        two.assert_is(&response.body);
        assert_ne!(response.header("etag"), Some(&tag[..]), "other bytes have another tag");
        assert_eq!(
            asks("/small", &|| fs::remove_file(tree.path().join("small")).unwrap()).status,
            404
        );
    });
}

#[test]
fn a_file_deleted_and_created() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "one").directory("d");
        let mut warm = Warm::new(driver, tree.path(), &["/a.txt", "/d/b.txt", "/n/e/w.txt"]);
        fs::remove_file(tree.path().join("a.txt")).unwrap();
        warm.assert_soon("GET /a.txt", BY_EVENT, 404, "");
        tree.write("a.txt", "again");
        warm.assert_soon("GET /a.txt", BY_EVENT, 200, "again");
        warm.assert_soon("GET /d/b.txt", BY_EVENT, 404, "");
        tree.write("d/b.txt", "b");
        warm.assert_soon("GET /d/b.txt", BY_EVENT, 200, "b");
        tree.write("n/e/w.txt", "new");
        warm.assert_soon("GET /n/e/w.txt", BY_EVENT, 200, "new");
        fs::write(tree.path().join("n/e/w.txt"), "newer").unwrap();
        warm.assert_soon("GET /n/e/w.txt", BY_EVENT, 200, "newer");
    });
}

/// The names of a directory are read once when several of its files were asked for.
#[test]
fn precompressed_siblings_are_found_in_a_directory_that_was_read() {
    on_both_drivers(|driver| {
        let mut tree = Tree::new().file("b/x.css.gz", "compressed");
        for number in 0..10 {
            tree = tree.file(format!("a/{number}.css"), "plain");
            tree = tree.file(format!("b/{number}.css"), "plain");
        }
        let tree = tree.file("b/x.css", "plain");
        let paths: Vec<String> =
            (0..8).flat_map(|n| [format!("/a/{n}.css"), format!("/b/{n}.css")]).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut warm = Warm::new(driver, tree.path(), &paths);
        let head = |path: &str| format!("GET {path}\nAccept-Encoding: gzip");
        assert_eq!(ask_on(&mut warm.client, &head("/b/x.css")).body, b"compressed");
        for number in [3, 9] {
            tree.write(format!("a/{number}.css.gz"), "compressed");
            warm.assert_soon(&head(&format!("/a/{number}.css")), BY_EVENT, 200, "compressed");
        }
        assert_eq!(ask_on(&mut warm.client, &head("/a/8.css")).body, b"plain");
        fs::remove_file(tree.path().join("a/9.css.gz")).unwrap();
        warm.assert_soon(&head("/a/9.css"), BY_EVENT, 200, "plain");
        fs::rename(tree.path().join("b"), tree.path().join("c")).unwrap();
        warm.assert_soon(&head("/c/x.css"), BY_EVENT, 200, "compressed");
        fs::rename(tree.path().join("a"), tree.path().join("b")).unwrap();
        warm.assert_soon(&head("/b/3.css"), BY_EVENT, 200, "compressed");
    });
}

#[test]
fn a_precompressed_sibling_comes_changes_and_goes() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.css", "plain").file("index.html", "index");
        let mut warm = Warm::new(driver, tree.path(), &["/a.css", "/"]);
        for (head, sibling, plain) in [
            ("GET /a.css\nAccept-Encoding: gzip, br", "a.css.br", "plain"),
            ("GET /\nAccept-Encoding: gzip, br", "index.html.gz", "index"),
        ] {
            warm.assert_soon(head, BY_EVENT, 200, plain);
            tree.write(sibling, "compressed");
            warm.assert_soon(head, BY_EVENT, 200, "compressed");
            tree.write(sibling, "better");
            warm.assert_soon(head, BY_EVENT, 200, "better");
            fs::remove_file(tree.path().join(sibling)).unwrap();
            warm.assert_soon(head, BY_EVENT, 200, plain);
        }
    });
}

#[test]
fn a_directory_renamed_or_replaced() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("d/e/f.txt", "one").file("x/e/f.txt", "two");
        let mut warm = Warm::new(driver, tree.path(), &["/d/e/f.txt", "/g/e/f.txt"]);
        let path = |name: &str| tree.path().join(name);
        fs::rename(path("d"), path("g")).unwrap();
        warm.assert_soon("GET /d/e/f.txt", BY_EVENT, 404, "");
        warm.assert_soon("GET /g/e/f.txt", BY_EVENT, 200, "one");
        fs::rename(path("x"), path("d")).unwrap();
        warm.assert_soon("GET /d/e/f.txt", BY_EVENT, 200, "two");
        // Both are watched at their new places.
        fs::write(path("g/e/f.txt"), "three").unwrap();
        warm.assert_soon("GET /g/e/f.txt", BY_EVENT, 200, "three");
        fs::write(path("d/e/f.txt"), "four").unwrap();
        warm.assert_soon("GET /d/e/f.txt", BY_EVENT, 200, "four");
        fs::remove_dir_all(path("d")).unwrap();
        warm.assert_soon("GET /d/e/f.txt", BY_EVENT, 404, "");
        tree.write("d/e/f.txt", "five");
        warm.assert_soon("GET /d/e/f.txt", BY_EVENT, 200, "five");
        fs::write(path("d/e/f.txt"), "six").unwrap();
        warm.assert_soon("GET /d/e/f.txt", BY_EVENT, 200, "six");
    });
}

#[test]
fn an_index_comes_and_goes_and_a_listing_follows() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("d/a.txt", "a");
        let mut warm = Warm::new(driver, tree.path(), &["/d/"]);
        let lists = |warm: &mut Warm, name: &str| {
            let page = ask_on(&mut warm.client, "GET /d/").body;
            String::from_utf8_lossy(&page).contains(&format!("href=\"./{name}\""))
        };
        assert!(lists(&mut warm, "a.txt") && !lists(&mut warm, "b.txt"));
        tree.write("d/b.txt", "b");
        std::thread::sleep(BY_EVENT);
        assert!(lists(&mut warm, "b.txt"));
        tree.write("d/index.html", "index");
        warm.assert_soon("GET /d/", BY_EVENT, 200, "index");
        fs::write(tree.path().join("d/index.html"), "changed").unwrap();
        warm.assert_soon("GET /d/", BY_EVENT, 200, "changed");
        fs::remove_file(tree.path().join("d/index.html")).unwrap();
        std::thread::sleep(BY_EVENT);
        assert!(lists(&mut warm, "a.txt"));
    });
}

#[test]
fn the_first_name_of_an_index_that_is_there_wins() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("d/b.html", "second").file("d/b.html.gz", "zipped");
        let options = ["--index", "a.txt", "--index", "b.html", "--index", "c.html"];
        let mut warm = Warm::with(driver, tree.path(), &options, &["/d/"]);
        let path = |name: &str| tree.path().join("d").join(name);
        warm.assert_soon("GET /d/", BY_EVENT, 200, "second");
        let encoded = ask_on(&mut warm.client, "GET /d/\nAccept-Encoding: gzip");
        assert_eq!(encoded.body, b"zipped");
        tree.write("d/a.txt", "first");
        warm.assert_soon("GET /d/", BY_EVENT, 200, "first");
        let first = ask_on(&mut warm.client, "GET /d/\nAccept-Encoding: gzip");
        assert_eq!(first.header("Content-Type"), Some("text/plain; charset=utf-8"));
        assert_eq!(first.header("Content-Encoding"), None);
        // A name that comes after it in the list of index names changes nothing.
        tree.write("d/c.html", "third");
        warm.assert_soon("GET /d/", BY_EVENT, 200, "first");
        fs::remove_file(path("a.txt")).unwrap();
        warm.assert_soon("GET /d/", BY_EVENT, 200, "second");
        // The same file under the first name is another index.
        fs::rename(path("b.html"), path("a.txt")).unwrap();
        warm.assert_soon("GET /d/", BY_EVENT, 200, "second");
        let renamed = ask_on(&mut warm.client, "GET /d/");
        assert_eq!(renamed.header("Content-Type"), Some("text/plain; charset=utf-8"));
        fs::remove_file(path("a.txt")).unwrap();
        warm.assert_soon("GET /d/", BY_EVENT, 200, "third");
        fs::remove_file(path("c.html")).unwrap();
        warm.assert_soon("GET /d/", BY_EVENT, 404, "");
        // A directory in the place of a name is passed over.
        fs::create_dir(path("a.txt")).unwrap();
        tree.write("d/c.html", "again");
        warm.assert_soon("GET /d/", BY_EVENT, 200, "again");
    });
}

#[test]
fn a_directory_becomes_a_file_and_back() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("x/index.html", "index");
        let mut warm = Warm::new(driver, tree.path(), &["/x", "/x/"]);
        fs::remove_dir_all(tree.path().join("x")).unwrap();
        tree.write("x", "file");
        warm.assert_soon("GET /x", BY_EVENT, 200, "file");
        warm.assert_soon("GET /x/", BY_EVENT, 404, "");
        fs::remove_file(tree.path().join("x")).unwrap();
        tree.write("x/index.html", "again");
        warm.assert_soon("GET /x", BY_EVENT, 301, "");
        warm.assert_soon("GET /x/", BY_EVENT, 200, "again");
    });
}

#[test]
fn a_file_behind_links() {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("a.txt", "one")
            .symlink("link.txt", "a.txt")
            .symlink("dir", "d")
            .file("d/b.txt", "one")
            .file("d2/b.txt", "other")
            .directory("hidden");
        let path = |name: &str| tree.path().join(name);
        tree.write("hard.txt", "one");
        fs::hard_link(path("hard.txt"), path("hidden/name.txt")).unwrap();
        let mut warm = Warm::new(driver, tree.path(), &["/link.txt", "/dir/b.txt", "/hard.txt"]);
        fs::write(path("a.txt"), "two").unwrap();
        warm.assert_soon("GET /link.txt", BY_AGE, 200, "two");
        fs::write(path("d/b.txt"), "two").unwrap();
        warm.assert_soon("GET /dir/b.txt", BY_AGE, 200, "two");
        fs::write(path("hidden/name.txt"), "two").unwrap();
        warm.assert_soon("GET /hard.txt", BY_AGE, 200, "two");
        // A new target of a link is noticed like any change of a name.
        std::os::unix::fs::symlink("d2", path("new")).unwrap();
        fs::rename(path("new"), path("dir")).unwrap();
        warm.assert_soon("GET /dir/b.txt", BY_AGE, 200, "other");
    });
}

#[test]
fn a_sibling_with_a_second_name() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.css", "plain").file("a.css.gz", "one").directory("hidden");
        fs::hard_link(tree.path().join("a.css.gz"), tree.path().join("hidden/x")).unwrap();
        let mut warm = Warm::new(driver, tree.path(), &["/a.css"]);
        let head = "GET /a.css\nAccept-Encoding: gzip";
        warm.assert_soon(head, BY_EVENT, 200, "one");
        fs::write(tree.path().join("hidden/x"), "two").unwrap();
        warm.assert_soon(head, BY_AGE, 200, "two");
    });
}

/// Something that is mounted until the test ends.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(place: &'a Path, options: &[&str]) -> Result<Self, String> {
        let mut all: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        all.push(place.as_os_str());
        common::run("mount", &all).map(|()| Self(place))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = common::run("umount", &["-l".as_ref(), self.0.as_os_str()]);
    }
}

#[test]
fn a_mount_over_a_watched_directory() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("d/e/a.txt", "below").file("d/e/b.txt", "b").file("d/f/c", "c");
        let mut warm = Warm::new(driver, tree.path(), &["/d/e/a.txt", "/d/f/c"]);
        let place = tree.path().join("d");
        let mount = match Mount::new(&place, &["-t", "tmpfs", "none"]) {
            Ok(mount) => mount,
            Err(error) => skip!("{error}"),
        };
        tree.write("d/e/a.txt", "above");
        tree.write("d/e/new.txt", "new");
        // The first file that is looked at tells of the mount.
        warm.assert_soon("GET /d/e/new.txt", BY_EVENT, 200, "new");
        warm.assert_soon("GET /d/e/a.txt", BY_EVENT, 200, "above");
        warm.assert_soon("GET /d/f/c", BY_EVENT, 404, "");
        for text in ["one", "two"] {
            for name in ["d/e/a.txt", "d/e/new.txt"] {
                tree.write("d/next", text);
                fs::rename(tree.path().join("d/next"), tree.path().join(name)).unwrap();
                warm.assert_soon(&format!("GET /{name}"), BY_EVENT, 200, text);
            }
        }
        drop(mount);
        warm.assert_soon("GET /d/e/b.txt", BY_AGE, 200, "b");
        warm.assert_soon("GET /d/e/a.txt", BY_AGE, 200, "below");
        tree.write("d/e/a.txt", "below, changed");
        warm.assert_soon("GET /d/e/a.txt", BY_EVENT, 200, "below, changed");
    });
}

/// As in a container with single files of its host.
#[test]
fn a_file_that_is_a_mount() {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("d/a.txt", "covered")
            .file("d/b.txt", "b")
            .file("elsewhere/x", "one")
            .file("elsewhere/y", "y");
        let (from, to) = (tree.path().join("elsewhere/x"), tree.path().join("d/a.txt"));
        let _mount = match Mount::new(&to, &["--bind", from.to_str().unwrap()]) {
            Ok(mount) => mount,
            Err(error) => skip!("{error}"),
        };
        let mut warm = Warm::new(driver, tree.path(), &["/d/a.txt", "/d/b.txt"]);
        for text in ["two", "three"] {
            fs::write(&from, text).unwrap();
            warm.assert_soon("GET /d/a.txt", BY_AGE, 200, text);
            fs::write(tree.path().join("d/b.txt"), text).unwrap();
            warm.assert_soon("GET /d/b.txt", BY_EVENT, 200, text);
        }
    });
}

/// A release is the target of a link, and a link may lead to a compressed file.
#[test]
fn siblings_behind_links() {
    on_both_drivers(|driver| {
        let mut tree = Tree::new()
            .file("1/a.css", "plain 1")
            .file("1/a.css.gz", "compressed 1")
            .file("2/a.css", "plain 2")
            .file("2/a.css.gz", "compressed 2")
            .symlink("current", "1")
            .symlink("alone.css.gz", "1/a.css.gz")
            .symlink("late.css.gz", "nothing")
            .symlink("away.css.gz", "/etc/hostname");
        // Enough of them that the names of the directory are read.
        let names = ["alone", "late", "away", "new", "e", "f", "g", "h"];
        for name in names {
            tree = tree.file(format!("{name}.css"), "plain");
        }
        let paths = names.map(|name| format!("/{name}.css"));
        let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        paths.push("/current/a.css");
        let mut warm = Warm::new(driver, tree.path(), &paths);
        let head = |path: &str| format!("GET /{path}\nAccept-Encoding: gzip");
        for (path, body) in [
            ("current/a.css", "compressed 1"),
            ("alone.css", "compressed 1"),
            ("late.css", "plain"),
            ("away.css", "plain"),
        ] {
            assert_eq!(ask_on(&mut warm.client, &head(path)).body, body.as_bytes(), "{path}");
        }
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, tree.path().join("link")).unwrap();
            fs::rename(tree.path().join("link"), tree.path().join(name)).unwrap();
        };
        fs::write(tree.path().join("1/a.css.gz"), "better 1").unwrap();
        warm.assert_soon(&head("current/a.css"), BY_AGE, 200, "better 1");
        warm.assert_soon(&head("alone.css"), BY_AGE, 200, "better 1");
        tree.write("nothing", "not any more");
        warm.assert_soon(&head("late.css"), BY_AGE, 200, "not any more");
        link("2", "current");
        warm.assert_soon(&head("current/a.css"), BY_AGE, 200, "compressed 2");
        fs::remove_file(tree.path().join("2/a.css.gz")).unwrap();
        warm.assert_soon(&head("current/a.css"), BY_AGE, 200, "plain 2");
        tree.write("2/a.css.gz", "again");
        warm.assert_soon(&head("current/a.css"), BY_AGE, 200, "again");
        // The links themselves are in a watched directory.
        link("2/a.css.gz", "alone.css.gz");
        warm.assert_soon(&head("alone.css"), BY_EVENT, 200, "again");
        link("2/a.css.gz", "new.css.gz");
        warm.assert_soon(&head("new.css"), BY_EVENT, 200, "again");
        fs::remove_file(tree.path().join("new.css.gz")).unwrap();
        warm.assert_soon(&head("new.css"), BY_EVENT, 200, "plain");
        let server = serve(driver, tree.path(), &["--symlinks", "never"]);
        assert_eq!(ask(&server, &head("alone.css")).body, b"plain");
    });
}

#[test]
fn a_touched_file_gets_a_new_tag() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "same");
        let mut warm = Warm::new(driver, tree.path(), &["/a.txt"]);
        let tag = |warm: &mut Warm| {
            ask_on(&mut warm.client, "GET /a.txt").header("ETag").unwrap().to_owned()
        };
        let before = tag(&mut warm);
        let file = fs::File::options().write(true).open(tree.path().join("a.txt")).unwrap();
        file.set_modified(std::time::SystemTime::now()).unwrap();
        std::thread::sleep(BY_EVENT);
        let after = tag(&mut warm);
        assert_ne!(before, after);
        let old = format!("GET /a.txt\nIf-None-Match: {before}");
        assert_eq!(ask(&warm.server, &old).status, 200);
        let new = format!("GET /a.txt\nIf-None-Match: {after}");
        assert_eq!(ask(&warm.server, &new).status, 304);
    });
}

#[test]
fn a_file_made_unreadable_is_not_served_from_memory() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new().file("a.txt", "one");
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(tree.path(), 0o755);
    on_both_drivers(|driver| {
        let path = tree.path().join("a.txt");
        mode(&path, 0o644);
        let mut command = common::command(driver, tree.path(), &[]);
        let server = Server::spawn(common::as_nobody(&mut command)).unwrap();
        let mut warm = Warm { client: connect(&server), server };
        warm.assert_soon("GET /a.txt", BY_EVENT, 200, "one");
        mode(&path, 0o600);
        warm.assert_soon("GET /a.txt", BY_EVENT, 403, "");
    });
}

#[test]
fn a_directory_that_is_served_is_closed_and_opened_again() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new().file("a.txt", "one").file("d/b.txt", "two");
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(tree.path(), 0o755);
    on_both_drivers(|driver| {
        let mut command = common::command(driver, tree.path(), &[]);
        let server = Server::spawn(common::as_nobody(&mut command)).unwrap();
        let mut warm = Warm { client: connect(&server), server };
        let files = [("GET /a.txt", "one"), ("GET /d/b.txt", "two")];
        for (head, body) in files {
            warm.assert_soon(head, BY_EVENT, 200, body);
        }
        for _ in 0..2 {
            mode(tree.path(), 0o700);
            for (head, _) in files {
                warm.assert_soon(head, BY_EVENT, 403, "");
            }
            mode(tree.path(), 0o755);
            for (head, body) in files {
                warm.assert_soon(head, BY_EVENT, 200, body);
            }
        }
    });
}

#[test]
fn changes_while_many_clients_ask() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("n.txt", "0");
        let server = serve(driver, tree.path(), &[]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    let mut client = connect(server);
                    let mut last = 0;
                    while last < 40 {
                        let response = ask_on(&mut client, "GET /n.txt");
                        // A busy machine may be so slow that the file is replaced during each attempt to load it.
                        if response.status == 503 {
                            client = connect(server);
                            continue;
                        }
                        assert_eq!(response.status, 200);
                        let number: u32 =
                            String::from_utf8(response.body).unwrap().parse().unwrap();
                        assert!(number >= last, "{number} after {last}");
                        last = number;
                    }
                });
            }
            for number in 1..=40 {
                tree.write("next", Content::from(number.to_string().into_bytes()));
                fs::rename(tree.path().join("next"), tree.path().join("n.txt")).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
}

/// Writing through a shared mapping makes no event, so the change is noticed by age, also after a time
/// without requests for the file.
#[test]
fn a_file_changed_through_a_mapping_is_not_served_after_an_idle_time() {
    const PROGRAM: &str = "import mmap, sys\n\
        file = open(sys.argv[1], 'r+b', buffering=0)\n\
        view = mmap.mmap(file.fileno(), 0)\n\
        file.close()\n\
        print('mapped', flush=True)\n\
        sys.stdin.readline()\n\
        view[0:3] = b'new'\n\
        print('written', flush=True)\n\
        sys.stdin.readline()\n";
    let mut writers = Vec::new();
    let mut all = Vec::new();
    for driver in ["uring", "epoll"] {
        let tree = Tree::new().file("a.txt", "old").file("big.bin", vec![b'o'; 100_000]);
        for name in ["a.txt", "big.bin"] {
            let mut command = Command::new("python3");
            command.args(["-c", PROGRAM]).arg(tree.path().join(name));
            let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => skip!("python3: {error}"),
            };
            let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(said.next().unwrap().unwrap(), "mapped");
            writers.push((child, said));
        }
        let warm = Warm::new(driver, tree.path(), &["/a.txt", "/big.bin"]);
        all.push((tree, warm));
    }
    for (child, said) in &mut writers {
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "written");
    }
    std::thread::sleep(Duration::from_millis(10_500));
    for (_tree, warm) in &mut all {
        for path in ["/a.txt", "/big.bin"] {
            let response = ask_on(&mut warm.client, &format!("GET {path}"));
            assert_eq!(&response.body[..3], b"new", "{path}");
        }
    }
    for (mut child, _) in writers {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[test]
fn moving_a_directory_outdates_its_many_cached_files_at_once() {
    const FILES: usize = 3000;
    on_both_drivers(|driver| {
        let tree = Tree::new();
        for number in 0..FILES {
            tree.write(format!("d/{number}"), "one");
        }
        tree.write("x/0", "two");
        let mut warm = Warm::new(driver, tree.path(), &[]);
        let get = |warm: &mut Warm, number: usize| {
            ask_on(&mut warm.client, &format!("GET /d/{number}")).status
        };
        for number in 0..FILES {
            assert_eq!(get(&mut warm, number), 200);
        }
        fs::rename(tree.path().join("d"), tree.path().join("e")).unwrap();
        fs::rename(tree.path().join("x"), tree.path().join("d")).unwrap();
        warm.assert_soon("GET /d/0", BY_EVENT, 200, "two");
        for number in (1..FILES).rev() {
            assert_eq!(get(&mut warm, number), 404, "{number}");
        }
        fs::write(tree.path().join("d/0"), "three").unwrap();
        warm.assert_soon("GET /d/0", BY_EVENT, 200, "three");
    });
}

/// Directories watched per worker.
const DIRS_MAX: usize = 4096;

#[test]
fn paths_that_lead_nowhere_take_no_watches() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("real/a.txt", "a").symlink("link", "real");
        let mut warm = Warm::new(driver, tree.path(), &[]);
        for kind in ["link/", "", "real/"] {
            // All together, so that no common directory has been found before.
            let mut clients: Vec<_> =
                (0..DIRS_MAX / 64 + 2).map(|_| connect(&warm.server)).collect();
            for (number, client) in (0..).zip(&mut clients) {
                let get = |one| request(&format!("GET /{kind}{number}/{one}/a.txt"));
                client.send((0..64).map(get).collect::<String>()).unwrap();
            }
            for client in &mut clients {
                (0..64).for_each(|_| assert_eq!(client.response().unwrap().status, 404));
            }
        }
        tree.write("d/a.txt", "one");
        warm.assert_soon("GET /d/a.txt", BY_EVENT, 200, "one");
        fs::write(tree.path().join("d/a.txt"), "two").unwrap();
        warm.assert_soon("GET /d/a.txt", BY_EVENT, 200, "two");
    });
}

#[test]
fn a_directory_without_cached_files_makes_room_for_another() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        for number in 0..DIRS_MAX + 10 {
            tree.write(format!("{number}/a.txt"), "a");
        }
        let mut warm = Warm::new(driver, tree.path(), &[]);
        for number in 0..DIRS_MAX + 10 {
            ask_on(&mut warm.client, &format!("GET /{number}/a.txt"));
        }
        for number in 0..64 {
            fs::remove_file(tree.path().join(format!("{number}/a.txt"))).unwrap();
        }
        warm.assert_soon("GET /63/a.txt", BY_EVENT, 404, "");
        tree.write("d/a.txt", "one");
        warm.assert_soon("GET /d/a.txt", BY_EVENT, 200, "one");
        fs::write(tree.path().join("d/a.txt"), "two").unwrap();
        warm.assert_soon("GET /d/a.txt", BY_EVENT, 200, "two");
    });
}

/// In its own user namespace the server may have as many inotify instances as the test allows.
#[test]
fn watching_that_failed_for_lack_of_resources_is_retried_and_reported_once() {
    const KNOB: &str = "/proc/sys/user/max_inotify_instances";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script]);
        command
    };
    match unshare(&format!("echo 0 > {KNOB}")).output() {
        Ok(output) if output.status.success() => {}
        output => skip!("no user namespace: {output:?}"),
    }
    let start = |driver: &'static str| {
        let tree = Tree::new().file("a.txt", "one").file("d/b.txt", "one");
        let mut command = unshare(&format!("echo 0 > {KNOB} && exec \"$0\" \"$@\""));
        command.args([common::SAMUM, "serve"]).arg(tree.path());
        command.args(["--listen", "127.0.0.1:0", "--threads", "1", "--driver", driver]);
        let server = Server::spawn(&mut command).unwrap();
        let mut warm = Warm { client: connect(&server), server };
        warm.assert_soon("GET /a.txt", BY_EVENT, 200, "one");
        warm.assert_soon("GET /d/b.txt", BY_EVENT, 200, "one");
        fs::write(tree.path().join("a.txt"), "two").unwrap();
        warm.assert_soon("GET /a.txt", BY_AGE, 200, "two");
        let told = "directories cannot be watched";
        assert!(warm.server.wait_for_stderr(told, common::SOON).is_some());
        assert_eq!(warm.server.stderr().iter().filter(|line| line.contains(told)).count(), 1);
        let target = warm.server.pid().to_string();
        let script = format!("echo 100 > {KNOB}");
        let enter = ["--user", "--preserve-credentials", "--target", &target, "sh", "-c", &script];
        let output = Command::new("nsenter").args(enter).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (tree, warm)
    };
    let all = ["uring", "epoll"].map(start);
    std::thread::sleep(Duration::from_millis(10_500));
    for (tree, mut warm) in all {
        // The entry is too old: the path is looked up again, and its directories are watched.
        warm.assert_soon("GET /d/b.txt", BY_EVENT, 200, "one");
        assert!(warm.server.wait_for_stderr("watched for changes again", common::SOON).is_some());
        fs::write(tree.path().join("d/b.txt"), "two").unwrap();
        warm.assert_soon("GET /d/b.txt", BY_EVENT, 200, "two");
    }
}

//! `--cache never` drops the pages that it has brought, and those that were in memory before stay. The index of a film
//! is brought when the film is found.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ring::{Choice, Ring};
use rustix::fs::Advice;
use testkit::{Content, Server, Tree};

use crate::common::{SOON, ask, cached_pages, command, on_both_drivers, serve, text, wait_until};

const BYTES: u64 = 8 << 20;
const PAGES: u64 = BYTES / 4096;
/// Bytes that are read in one step. Others have brought the second half of each.
const BLOCK: u64 = 256 * 1024;

/// A file on a disk.
struct Site {
    tree: Tree,
    content: Content,
}

impl Site {
    fn new() -> Self {
        let content = Content::pseudo_random(1, BYTES);
        let tree = Tree::beneath("/var/tmp").file("lower/large.bin", content.clone());
        for name in ["upper", "work", "mnt"] {
            fs::create_dir(tree.path().join(name)).unwrap();
        }
        Self { tree, content }
    }

    fn file(&self) -> PathBuf {
        self.tree.path().join("lower/large.bin")
    }

    fn cached(&self) -> u64 {
        cached_pages(&self.file(), BYTES).unwrap()
    }

    /// Leaves nothing of the file in the page cache.
    fn evict(&self) {
        self.tree.evict("lower/large.bin");
    }

    /// Leaves every other part of the file in the page cache.
    fn bring(&self) {
        self.evict();
        let file = File::open(self.file()).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        for block in 0..BYTES / BLOCK {
            let mut half = vec![0; usize::try_from(BLOCK / 2).unwrap()];
            file.read_exact_at(&mut half, block * BLOCK + BLOCK / 2).unwrap();
        }
    }

    /// Returns whether most of what was brought is there. The kernel may have reclaimed some of it.
    fn is_there(&self) -> bool {
        self.cached() > PAGES / 4
    }

    fn server(&self, driver: &str, is_overlay: bool, etag: &str) -> std::io::Result<Server> {
        let options = ["--cache", "never", "--etag", etag];
        if is_overlay {
            let mount = self.tree.path().join("mnt");
            Server::spawn(&mut on_overlay(self.tree.path(), &command(driver, mount, &options)))
        } else {
            Server::spawn(&mut command(driver, self.tree.path().join("lower"), &options))
        }
    }
}

/// The same command with mounts of its own: an overlay at `mnt` of `lower`.
fn on_overlay(root: &Path, command: &Command) -> Command {
    let script = r#"mount -t overlay overlay \
        -o "lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work" "$0/mnt" && exec "$@""#;
    let mut child = Command::new("unshare");
    child.args(["-m", "--propagation", "private", "sh", "-c", script, text(root)]);
    child.arg(command.get_program()).args(command.get_args().map(OsStr::to_owned));
    child
}

#[test]
fn a_response_drops_no_pages_of_others() {
    on_both_drivers(|driver| {
        let site = Site::new();
        if let Err(error) = cached_pages(&site.file(), BYTES) {
            testkit::skip!("cachestat: {error}");
        }
        for is_overlay in [false, true] {
            let server = match site.server(driver, is_overlay, "stat") {
                Ok(server) => server,
                Err(error) => testkit::skip!("overlay: {is_overlay}: {error}"),
            };
            for _ in 0..2 {
                // The first response is sent before it is known what the file system is.
                site.bring();
                site.content.assert_is(&ask(&server, "GET /large.bin").body);
                let is_dropped = || !site.is_there();
                assert!(!wait_until(SOON / 10, is_dropped), "overlay: {is_overlay}");
            }
        }
    });
}

#[test]
fn a_tag_of_contents_drops_no_pages_of_others() {
    on_both_drivers(|driver| {
        let site = Site::new();
        if let Err(error) = cached_pages(&site.file(), BYTES) {
            testkit::skip!("cachestat: {error}");
        }
        for (is_overlay, brings) in [(false, false), (false, true), (true, false), (true, true)] {
            let server = match site.server(driver, is_overlay, "hash") {
                Ok(server) => server,
                Err(error) => testkit::skip!("overlay: {is_overlay}: {error}"),
            };
            if brings {
                site.bring()
            } else {
                site.evict()
            }
            let has_tag = || ask(&server, "HEAD /large.bin").header("ETag").is_some();
            assert!(wait_until(SOON, has_tag));
            assert_eq!(site.is_there(), brings, "overlay: {is_overlay}: {} pages", site.cached());
        }
    });
}

/// A film with an index of this many bytes after 4 MiB of media.
fn film(index_bytes: usize) -> Vec<u8> {
    let boxed = |kind: &[u8; 4], body: &[u8]| {
        let size = u32::try_from(8 + body.len()).unwrap();
        [&size.to_be_bytes()[..], kind, body].concat()
    };
    let mut header = [0; 100];
    // 20 s.
    header[12..20].copy_from_slice(&[0, 0, 0x03, 0xe8, 0, 0, 0x4e, 0x20]);
    let header = boxed(b"mvhd", &header);
    let rest = boxed(b"free", &vec![1; index_bytes - header.len() - 16]);
    let index = boxed(b"moov", &[header, rest].concat());
    [boxed(b"ftyp", b"isom\0\0\0\0"), boxed(b"mdat", &vec![2; MEDIA_BYTES]), index].concat()
}

const MEDIA_BYTES: usize = 4 << 20;
const MEDIA_PAGES: u64 = MEDIA_BYTES as u64 / 4096;

#[test]
fn the_index_of_a_film_is_in_memory_before_a_player_asks_for_it() {
    on_both_drivers(|driver| {
        let tree = Tree::beneath("/var/tmp");
        // One that the probe reads for itself, one that it leaves out, and one of which a part is read.
        for (name, index_bytes, read_bytes) in [
            ("a.mp4", 256 << 10, 256 << 10),
            ("b.mp4", 3 << 20, 3 << 20),
            ("c.mp4", 10 << 20, 8 << 20),
        ] {
            let film = film(index_bytes);
            let start = (film.len() - index_bytes) as u64;
            tree.write(name, film);
            let path = tree.path().join(name);
            let ring = Ring::new(Choice::Epoll).unwrap();
            let file = ring.adopt_file(File::open(&path).unwrap().into());
            let pages = |offset, len| ring.cached_pages(&file, offset, len);
            if let Err(error) = pages(0, 1) {
                testkit::skip!("cachestat: {error}");
            }
            tree.evict(name);
            let server = serve(driver, tree.path(), &[]);
            assert_eq!(ask(&server, &format!("HEAD /{name}")).status, 200);
            let is_there = || pages(start, read_bytes).unwrap() >= read_bytes / 4096;
            assert!(wait_until(SOON, is_there), "{name}: {:?} pages", pages(start, read_bytes));
            let media = pages(0, start).unwrap();
            assert!(media <= MEDIA_PAGES / 4, "{name}: {media} pages of what is not asked for");
            drop(server);
            // What is not to stay is not brought. What the probe reads for itself is there while it reads.
            tree.evict(name);
            let server = serve(driver, tree.path(), &["--cache", "never"]);
            assert_eq!(ask(&server, &format!("HEAD /{name}")).status, 200);
            let are_there = || pages(start, read_bytes).unwrap() > read_bytes / 8192;
            std::thread::sleep(SOON / 20);
            let are_gone = wait_until(SOON, || !are_there());
            assert!(are_gone, "{name}: {:?}", pages(start, read_bytes));
        }
    });
}

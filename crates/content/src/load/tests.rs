//! Tests each step: a reply gives the next requests. Also tests that every load ends.

use rustix::io::Errno;
use std::rc::Weak;

use http::Codings;
use sendfile::{Account, Takes};

use super::*;
use session::fields::Rules;
use session::files::{Data, FileSet, Variant};
use session::handler::Ticket;

/// A descriptor that knows when it is closed.
type File = Rc<u32>;

/// The system that a load asks.
struct World {
    rules: FileRules,
    has_proc: bool,
    pool: BufferPool,
    asks: VecDeque<(usize, Ask<File>)>,
    /// All descriptors that were ever opened.
    opened: Vec<Weak<u32>>,
}

const BUFFERS: usize = 8;
/// The mount of all directories.
const MOUNT: u64 = 8;
/// The size of a buffer.
const SMALL_MAX: u64 = 32 * 1024;

impl World {
    fn new() -> Self {
        let size = usize::try_from(SMALL_MAX).unwrap();
        let index = vec!["index.html".to_owned()];
        Self {
            rules: FileRules { index, listing: true, ..FileRules::default() },
            has_proc: true,
            pool: BufferPool::new(size, BUFFERS).unwrap(),
            asks: VecDeque::new(),
            opened: Vec::new(),
        }
    }

    fn open(&mut self) -> File {
        let file = Rc::new(u32::try_from(self.opened.len()).unwrap());
        self.opened.push(Rc::downgrade(&file));
        file
    }

    fn look(&mut self, way: Coverage) -> Look<File> {
        Look {
            began: Time::from_nanos(0),
            unix: 1_000_000,
            root: self.open(),
            way,
            mount: (way == Coverage::Watched).then_some(MOUNT),
            may_have_siblings: true,
        }
    }

    fn begin(&mut self, path: &str, way: Coverage) -> Load<File> {
        let mut load = Load::new(TreeId::new(0), path.as_bytes().into(), None, None, None);
        let look = self.look(way);
        self.look_with(&mut load, look);
        load
    }

    fn look_with(&mut self, load: &mut Load<File>, look: Look<File>) {
        let mut tools = Tools {
            rules: &self.rules,
            has_proc: &mut self.has_proc,
            pool: &self.pool,
            in_memory: InMemory::of(Some(Takes::Files)),
            asks: &mut self.asks,
        };
        let next = load.look(look, &mut tools);
        assert_eq!(end(next), "goes on");
    }

    /// Gives a load a reply about a part; what it asks for then is in `asks`.
    fn reply(&mut self, load: &mut Load<File>, part: usize, reply: Reply<File>) -> Next<File> {
        self.asks.clear();
        let mut tools = Tools {
            rules: &self.rules,
            has_proc: &mut self.has_proc,
            pool: &self.pool,
            in_memory: InMemory::of(Some(Takes::Files)),
            asks: &mut self.asks,
        };
        load.handle(part, reply, &mut tools)
    }

    fn admit(&mut self, load: &mut Load<File>, files: usize) -> Next<File> {
        let mut tools = Tools {
            rules: &self.rules,
            has_proc: &mut self.has_proc,
            pool: &self.pool,
            in_memory: InMemory::of(Some(Takes::Files)),
            asks: &mut self.asks,
        };
        load.admit(files, &mut tools)
    }

    /// The present requests in words.
    fn asked(&self) -> Vec<String> {
        let say = |(part, ask): &(usize, Ask<File>)| {
            let ask = match ask {
                Ask::Open { name, how, .. } if how.flags == FIND.flags => {
                    let follows = *how != FIND.without_symlinks();
                    let links = if follows { " through links" } else { "" };
                    format!("find {}{links}", String::from_utf8_lossy(name))
                }
                Ask::Open { name, .. } => format!("open {}", String::from_utf8_lossy(name)),
                Ask::Follow { name, how, .. } if how.flags == FIND.flags => {
                    format!("follow {}", String::from_utf8_lossy(name))
                }
                Ask::Follow { name, .. } => {
                    format!("follow and open {}", String::from_utf8_lossy(name))
                }
                Ask::OpenForReading(_) => "open for reading".to_owned(),
                Ask::Stat(_) => "stat".to_owned(),
                Ask::List { .. } => "list".to_owned(),
                Ask::Read(_, buffer, Caching::Keep) => format!("read {}", buffer.want()),
                Ask::Read(_, buffer, Caching::Drop) => format!("read and drop {}", buffer.want()),
                Ask::Drop(_) => "drop".to_owned(),
            };
            format!("{part}: {ask}")
        };
        self.asks.iter().map(say).collect()
    }

    /// Descriptors that are open now.
    fn count_open(&self) -> usize {
        self.opened.iter().filter(|file| file.strong_count() > 0).count()
    }
}

fn stat(size: u64) -> Stat {
    Stat {
        kind: FileKind::Regular,
        size,
        mtime: 1,
        mtime_nanos: 2,
        ctime: 3,
        ctime_nanos: 4,
        dev: 5,
        device: ring::Device::of(5),
        ino: 6,
        links: 1,
        mode: 0o644,
        owner: 0,
        from_image: false,
        direct_align: 0,
        mount: MOUNT,
    }
}

fn failed(errno: Errno) -> Reply<File> {
    Reply::Failed(errno.into())
}

fn directory() -> Reply<File> {
    Reply::Stat(Stat { kind: FileKind::Directory, ..stat(0) })
}

/// A buffer as the ring gives it back.
fn bytes(world: &World, len: usize) -> Reply<File> {
    let mut buffer = world.pool.take(len).unwrap();
    buffer.fill_from(&vec![b'x'; len]);
    Reply::Read(buffer)
}

fn end(next: Next<File>) -> &'static str {
    match next {
        Next::Replies => "goes on",
        Next::Look => "look",
        Next::Watch => "watch",
        Next::WatchAgain(_) => "watch again",
        Next::Room(_) => "room",
        Next::End(Outcome::Unchanged(..)) => "unchanged",
        Next::End(Outcome::File { is_changed: false, .. }) => "file",
        Next::End(Outcome::File { .. }) => "changed file",
        Next::End(Outcome::Redirect(_)) => "redirect",
        Next::End(Outcome::Unclean(..)) => "unclean",
        Next::End(Outcome::Directory(..)) => "directory",
        Next::End(Outcome::Missing(_)) => "missing",
        Next::End(Outcome::Replaced) => "replaced",
        Next::End(Outcome::TooLarge) => "too large",
        Next::End(Outcome::Failed(..)) => "failed",
    }
}

/// A load in the step `Examining`.
fn examining(world: &mut World, path: &str, way: Coverage) -> Load<File> {
    let mut load = world.begin(path, way);
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 0, Reply::Opened(file))), "goes on");
    load
}

/// A load in the step `Opening`, of a file without siblings.
fn opening(world: &mut World, way: Coverage, size: u64) -> Load<File> {
    let mut load = examining(world, "a.png", way);
    assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(size)))), "goes on");
    assert!(matches!(load.step, Step::Opening { .. }));
    load
}

/// A load in the step `Comparing`.
fn comparing(world: &mut World) -> Load<File> {
    let mut load = opening(world, Coverage::Linked, 7);
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 0, Reply::Opened(file))), "goes on");
    assert!(matches!(load.step, Step::Comparing { .. }));
    load
}

/// Opens a part for reading, whose state is as it was: what the load needs then.
fn open(world: &mut World, load: &mut Load<File>, part: usize, size: u64) -> Next<File> {
    let file = world.open();
    assert_eq!(end(world.reply(load, part, Reply::Opened(file))), "goes on");
    assert_eq!(world.asked(), [format!("{part}: stat")]);
    world.reply(load, part, Reply::Stat(stat(size)))
}

/// A load in the step `Reading`, whose file has been read and is being confirmed.
fn confirming(world: &mut World) -> Load<File> {
    let mut load = opening(world, Coverage::Watched, 7);
    assert_eq!(end(open(world, &mut load, 0, 7)), "goes on");
    let reply = bytes(world, 7);
    assert_eq!(end(world.reply(&mut load, 0, reply)), "goes on");
    load
}

#[test]
fn a_file_that_was_opened_before_its_load_is_not_opened_again() {
    let mut world = World::new();
    let found = |world: &mut World| {
        let file = Some(world.open());
        Load::new(TreeId::new(0), b"a"[..].into(), None, None, file)
    };
    let mut load = found(&mut world);
    assert!(load.has_found());
    let look = world.look(Coverage::Watched);
    world.look_with(&mut load, look);
    assert_eq!(world.asked(), ["0: stat"]);
    world.asks.clear();
    let look = world.look(Coverage::Watched);
    world.look_with(&mut load, look);
    assert_eq!(world.asked(), ["0: find a"], "another look");
    let (open, mut load) = (world.count_open(), found(&mut world));
    load.forget_found();
    assert_eq!(world.count_open(), open, "it waits with nothing open");
}

#[test]
fn a_page_is_found_without_its_suffix_if_nothing_has_the_name() {
    let mut world = World::new();
    world.rules.clean_urls = true;
    let mut load = world.begin("d/a", Coverage::Watched);
    assert_eq!(world.asked(), ["0: find d/a"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "goes on");
    assert_eq!(world.asked(), ["0: find d/a.html"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "failed");

    let mut load = world.begin("a", Coverage::Watched);
    world.reply(&mut load, 0, failed(Errno::NOENT));
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 0, Reply::Opened(file))), "goes on");
    assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(7)))), "goes on");
    assert_eq!(world.asked(), ["1: find a.html.br", "2: find a.html.zst", "3: find a.html.gz"]);
    let look = world.look(Coverage::Watched);
    world.asks.clear();
    world.look_with(&mut load, look);
    assert_eq!(world.asked(), ["0: find a"], "each look begins with the name itself");

    let mut load = world.begin("a", Coverage::Watched);
    world.reply(&mut load, 0, failed(Errno::NOENT));
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 0, Reply::Opened(file))), "goes on");
    assert_eq!(end(world.reply(&mut load, 0, directory())), "missing", "a directory is no page");
}

#[test]
fn a_page_comes_before_the_directory_of_the_same_name() {
    let mut world = World::new();
    world.rules.clean_urls = true;
    let looking = |world: &mut World| {
        let mut load = examining(world, "sub", Coverage::Watched);
        assert_eq!(end(world.reply(&mut load, 0, directory())), "goes on");
        assert_eq!(world.asked(), ["0: find sub.html"]);
        load
    };
    let mut load = looking(&mut world);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "redirect", "no page");
    for (reply, outcome) in [
        (directory(), "redirect"),
        (Reply::Stat(Stat { kind: FileKind::Other, ..stat(7) }), "redirect"),
        (Reply::Stat(stat(7)), "goes on"),
    ] {
        let mut load = looking(&mut world);
        let file = world.open();
        assert_eq!(end(world.reply(&mut load, 0, Reply::Opened(file))), "goes on");
        assert_eq!(world.asked(), ["0: stat"]);
        assert_eq!(end(world.reply(&mut load, 0, reply)), outcome);
        world.asks.clear();
    }
    // Another look begins anew.
    let mut load = looking(&mut world);
    let look = world.look(Coverage::Watched);
    world.asks.clear();
    world.look_with(&mut load, look);
    assert_eq!(world.asked(), ["0: find sub"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "goes on");
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "failed", "it has gone");
}

#[test]
fn a_path_that_is_not_clean_leads_to_the_clean_one_unless_a_directory_has_it() {
    for (path, clean) in [("d/a.html", "d/a"), ("d/index.html", "d/"), ("index.html", "")] {
        let mut world = World::new();
        world.rules.clean_urls = true;
        let len = |next| match next {
            Next::End(Outcome::Unclean(_, len)) => len,
            next => panic!("{path}: {}", end(next)),
        };
        for reply in [Reply::Stat(stat(7)), Reply::Stat(Stat { kind: FileKind::Other, ..stat(7) })]
        {
            let mut load = examining(&mut world, path, Coverage::Watched);
            assert_eq!(&path[..len(world.reply(&mut load, 0, reply))], clean);
        }
        let mut load = world.begin(path, Coverage::Watched);
        let next = world.reply(&mut load, 0, failed(Errno::NOENT));
        assert_eq!(&path[..len(next)], clean);
        let mut load = examining(&mut world, path, Coverage::Watched);
        assert_eq!(end(world.reply(&mut load, 0, directory())), "redirect", "{path}");
        world.rules.clean_urls = false;
        let mut load = examining(&mut world, path, Coverage::Watched);
        assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(7)))), "goes on", "{path}");
    }
}

#[test]
fn links_that_are_forbidden_lead_to_nothing() {
    let mut world = World::new();
    world.rules.symlinks = Symlinks::Never;
    let mut load = world.begin("a", Coverage::Watched);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::LOOP))), "failed");
    assert_eq!(world.asked(), [""; 0]);
    let mut load = world.begin("d/", Coverage::Watched);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::LOOP))), "goes on");
    let Some((0, Ask::Open { how, .. })) = world.asks.front() else {
        panic!("the directory is opened")
    };
    assert_eq!(*how, how.without_symlinks());
}

#[test]
fn links_that_may_lead_out_are_followed_where_the_way_has_some() {
    let mut world = World::new();
    world.rules.symlinks = Symlinks::Into(["/disk".into()].into());
    let mut load = world.begin("d/a", Coverage::Watched);
    assert_eq!(world.asked(), ["0: find d/a"], "no link was met yet");
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::LOOP))), "goes on");
    assert_eq!(world.asked(), ["0: follow d/a"]);
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 0, Reply::Opened(file))), "goes on");
    assert!(load.is_linked());
    let mut load = world.begin("d/", Coverage::Watched);
    world.reply(&mut load, 0, failed(Errno::LOOP));
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "goes on");
    assert_eq!(world.asked(), ["0: follow and open d"], "to be listed");
    let mut load = world.begin("d/a", Coverage::Watched);
    world.reply(&mut load, 0, failed(Errno::LOOP));
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::XDEV))), "failed");
}

/// Their targets change without an event.
#[test]
fn a_listing_with_links_is_not_believed_for_long() {
    for (has_links, way) in [(false, Coverage::Watched), (true, Coverage::Linked)] {
        let mut world = World::new();
        let mut load = world.begin("d/", Coverage::Watched);
        world.reply(&mut load, 0, failed(Errno::NOENT));
        let dir = world.open();
        world.reply(&mut load, 0, Reply::Opened(dir));
        assert_eq!(world.asked(), ["0: list"]);
        let listing = Box::new(Listing { has_links, ..Listing::default() });
        match world.reply(&mut load, 0, Reply::Listed(listing)) {
            Next::End(Outcome::Directory(look, _)) => assert_eq!(look.way, way),
            next => panic!("{}", end(next)),
        }
    }
}

#[test]
fn a_path_is_found_without_links_and_then_through_them() {
    let world = &mut World::new();
    let mut load = world.begin("a/", Coverage::Watched);
    assert_eq!(world.asked(), ["0: find a/index.html"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::LOOP))), "goes on");
    assert_eq!(world.asked(), ["0: find a/index.html through links"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::LOOP))), "goes on");
    assert_eq!(world.asked(), ["0: open a"], "links in a circle: there is no index");
}

#[test]
fn the_names_of_an_index_are_looked_for_in_their_order() {
    let world = &mut World::new();
    world.rules.index = ["a.php", "b.html", "c"].map(str::to_owned).into();
    let mut load = world.begin("d/", Coverage::Watched);
    assert_eq!(world.asked(), ["0: find d/a.php"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "goes on");
    assert_eq!(world.asked(), ["0: find d/b.html"]);
    // A directory is no index.
    let file = Reply::Opened(world.open());
    assert_eq!(end(world.reply(&mut load, 0, file)), "goes on");
    let directory = Stat { kind: FileKind::Directory, ..stat(0) };
    assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(directory))), "goes on");
    assert_eq!(world.asked(), ["0: find d/c"]);
    // After a link that leads nowhere the next names are looked for through links.
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::LOOP))), "goes on");
    assert_eq!(world.asked(), ["0: find d/c through links"]);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::NOENT))), "goes on");
    assert_eq!(world.asked(), ["0: open d"]);
    // Another look begins anew.
    let look = world.look(Coverage::Watched);
    world.asks.clear();
    world.look_with(&mut load, look);
    assert_eq!(world.asked(), ["0: find d/a.php"]);
    // A file that cannot be opened hides the names after it.
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::ACCESS))), "failed");
}

#[test]
fn a_file_that_was_found_by_another_name_of_the_index_is_not_the_same() {
    for (index, expected) in [(0, "unchanged"), (1, "goes on")] {
        let world = &mut World::new();
        world.rules.index = ["a.png", "b.png"].map(str::to_owned).into();
        world.rules.precompressed = false;
        let mut previous = Rc::into_inner(cached(stat(7), true)).expect("the only one");
        previous.index = index;
        let mut load =
            Load::new(TreeId::new(0), b"".as_slice().into(), Some(Rc::new(previous)), None, None);
        let look = world.look(Coverage::Watched);
        world.look_with(&mut load, look);
        let file = Reply::Opened(world.open());
        assert_eq!(end(world.reply(&mut load, 0, file)), "goes on");
        assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(7)))), expected);
    }
}

#[test]
fn finding() {
    let found = |path, listing, reply: &dyn Fn(&mut World) -> Reply<File>| {
        let world = &mut World::new();
        world.rules.listing = listing;
        let mut load = world.begin(path, Coverage::Watched);
        let reply = reply(world);
        (end(world.reply(&mut load, 0, reply)), world.asked().join(", "))
    };
    let is = |step, asked: &str| (step, asked.to_owned());
    assert_eq!(found("a", true, &|world| Reply::Opened(world.open())), is("goes on", "0: stat"));
    assert_eq!(found("a", true, &|_| failed(Errno::NOENT)), is("failed", ""));
    assert_eq!(found("a/", true, &|_| failed(Errno::NOENT)), is("goes on", "0: open a"));
    assert_eq!(found("", true, &|_| failed(Errno::NOENT)), is("goes on", "0: open ."));
    assert_eq!(found("a/", false, &|_| failed(Errno::NOENT)), is("missing", ""));
    assert_eq!(found("a/", true, &|_| failed(Errno::ACCESS)), is("failed", ""));
    assert_eq!(found("a/", true, &|_| failed(Errno::MFILE)), is("failed", ""));
}

#[test]
fn examined() {
    let siblings = "1: find x.br, 2: find x.zst, 3: find x.gz";
    let linked =
        "1: find x.br through links, 2: find x.zst through links, 3: find x.gz through links";
    let unwatched = Coverage::Unwatched;
    let other = Reply::Stat(Stat { kind: FileKind::Other, ..stat(0) });
    let cases = [
        ("x", Coverage::Watched, Reply::Stat(stat(7)), "goes on", siblings),
        ("x.png", Coverage::Watched, Reply::Stat(stat(7)), "goes on", "0: open x.png"),
        ("x.png", Coverage::Linked, Reply::Stat(stat(7)), "goes on", "0: open for reading"),
        ("x", Coverage::Linked, Reply::Stat(stat(7)), "goes on", linked),
        ("x", unwatched, Reply::Stat(stat(7)), "watch", ""),
        ("x", unwatched, directory(), "redirect", ""),
        ("x/", unwatched, directory(), "goes on", "0: open x"),
        ("x", unwatched, other, "missing", ""),
        ("x", unwatched, Reply::Stat(stat(SIZE_MAX + 1)), "too large", ""),
        ("x", unwatched, failed(Errno::IO), "failed", ""),
        ("x.png", Coverage::Watched, Reply::Stat(stat(SMALL_MAX + 1)), "room", ""),
    ];
    for (path, way, reply, next, asked) in cases {
        let world = &mut World::new();
        let mut load = examining(world, path, way);
        let what = format!("{path} {way:?} {reply:?}");
        assert_eq!(end(world.reply(&mut load, 0, reply)), next, "{what}");
        assert_eq!(world.asked().join(", "), asked, "{what}");
    }
}

#[test]
fn a_directory_is_listed_after_it_is_watched() {
    let world = &mut World::new();
    let listed = |world: &mut World, way| {
        let mut load = world.begin("a/", way);
        world.reply(&mut load, 0, failed(Errno::NOENT));
        let dir = world.open();
        (end(world.reply(&mut load, 0, Reply::Opened(dir))), load)
    };
    assert_eq!(listed(world, Coverage::Unwatched).0, "watch");
    let (next, mut load) = listed(world, Coverage::Watched);
    assert_eq!((next, world.asked()), ("goes on", vec!["0: list".to_owned()]));
    assert_eq!(end(world.reply(&mut load, 0, Reply::Listed(Box::default()))), "directory");
    let (_, mut load) = listed(world, Coverage::Linked);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::IO))), "failed");
}

#[test]
fn siblings_that_can_be_served_are_opened_after_the_file_itself() {
    let world = &mut World::new();
    let mut load = examining(world, "x", Coverage::Watched);
    world.reply(&mut load, 0, Reply::Stat(stat(7)));
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 3, Reply::Opened(file))), "goes on");
    assert_eq!(world.asked(), ["3: stat"]);
    assert_eq!(end(world.reply(&mut load, 1, failed(Errno::NOENT))), "goes on");
    let file = world.open();
    assert_eq!(end(world.reply(&mut load, 2, Reply::Opened(file))), "goes on");
    assert_eq!(end(world.reply(&mut load, 2, directory())), "goes on");
    assert_eq!(end(world.reply(&mut load, 3, Reply::Stat(stat(5)))), "goes on");
    assert_eq!(world.asked(), ["0: open x"]);
    for (part, size, expected) in [(0, 7, "3: open x.gz"), (3, 5, "0: read 7, 3: read 5")] {
        assert_eq!(end(open(world, &mut load, part, size)), "goes on");
        assert_eq!(world.asked().join(", "), expected);
    }
    let reply = bytes(world, 5);
    assert_eq!(end(world.reply(&mut load, 3, reply)), "goes on");
    assert_eq!(world.asked(), ["3: stat"]);
    assert_eq!(end(world.reply(&mut load, 3, Reply::Stat(stat(5)))), "goes on");
    let reply = bytes(world, 7);
    assert_eq!(end(world.reply(&mut load, 0, reply)), "goes on");
    let next = world.reply(&mut load, 0, Reply::Stat(stat(7)));
    let Next::End(Outcome::File { parts, is_changed: false, .. }) = next else { panic!("no file") };
    let lengths = parts.each_ref().map(|part| part.as_ref()?.1.as_ref().map(|body| body.len()));
    assert_eq!(lengths, [Some(7), None, None, Some(5)]);
}

#[test]
fn a_sibling_that_is_a_link_is_followed_and_the_file_is_not_believed_to_be_watched() {
    let world = &mut World::new();
    let begin = |world: &mut World| {
        let mut load = examining(world, "x", Coverage::Watched);
        world.reply(&mut load, 0, Reply::Stat(stat(7)));
        load
    };
    let way = |load: &Load<File>| match &load.step {
        Step::Siblings { look, .. } | Step::Opening { look, .. } => look.way,
        step => panic!("in {}", step.name()),
    };
    let mut load = begin(world);
    assert_eq!(end(world.reply(&mut load, 1, failed(Errno::LOOP))), "goes on");
    assert_eq!(world.asked(), ["1: find x.br through links"]);
    assert_eq!(end(world.reply(&mut load, 3, failed(Errno::LOOP))), "goes on");
    assert_eq!(world.asked(), ["3: find x.gz through links"], "it was asked for without links");
    assert_eq!(end(world.reply(&mut load, 2, failed(Errno::NOENT))), "goes on");
    // The target of this one may come, and no event tells.
    assert_eq!(end(world.reply(&mut load, 1, failed(Errno::NOENT))), "goes on");
    assert_eq!(end(world.reply(&mut load, 3, failed(Errno::LOOP))), "goes on");
    assert_eq!(
        (world.asked(), way(&load)),
        (vec!["0: open for reading".to_owned()], Coverage::Linked)
    );

    world.has_proc = false;
    let mut load = begin(world);
    for (part, errno) in [(1, Errno::NOENT), (2, Errno::NOENT), (3, Errno::LOOP)] {
        world.reply(&mut load, part, failed(errno));
    }
    let file = world.open();
    world.reply(&mut load, 3, Reply::Opened(file));
    assert_eq!(end(world.reply(&mut load, 3, Reply::Stat(stat(5)))), "goes on");
    assert_eq!(end(open(world, &mut load, 0, 7)), "goes on");
    let Some((3, Ask::Open { how, .. })) = world.asks.front() else {
        panic!("{:?}", world.asked())
    };
    assert_eq!(*how, OpenHow::BENEATH, "it is opened through the link, too");

    world.rules.symlinks = Symlinks::Never;
    let mut load = begin(world);
    assert_eq!(end(world.reply(&mut load, 1, failed(Errno::LOOP))), "goes on");
    assert_eq!((world.asked(), way(&load)), (Vec::new(), Coverage::Watched));
}

#[test]
fn no_siblings_are_looked_for_where_there_are_none() {
    let world = &mut World::new();
    let mut load = Load::new(TreeId::new(0), b"x"[..].into(), None, None, None);
    let look = Look { may_have_siblings: false, ..world.look(Coverage::Watched) };
    world.look_with(&mut load, look);
    let file = world.open();
    world.reply(&mut load, 0, Reply::Opened(file));
    assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(7)))), "goes on");
    assert_eq!(world.asked(), ["0: open x"]);
}

#[test]
fn a_file_with_another_name_is_not_believed_to_be_watched() {
    let world = &mut World::new();
    let mut load = examining(world, "a.png", Coverage::Watched);
    world.reply(&mut load, 0, Reply::Stat(Stat { links: 2, ..stat(7) }));
    let file = world.open();
    world.reply(&mut load, 0, Reply::Opened(file));
    let Step::Comparing { look, .. } = &load.step else { panic!("in {}", load.step.name()) };
    assert_eq!(look.way, Coverage::Unwatched);
}

#[test]
fn a_file_on_another_mount_than_its_directory_has_that_watched_again_once() {
    let world = &mut World::new();
    let elsewhere = || Reply::Stat(Stat { mount: MOUNT + 1, ..stat(7) });
    let mut load = examining(world, "a.png", Coverage::Watched);
    assert_eq!(end(world.reply(&mut load, 0, elsewhere())), "watch again");
    load.watch();
    let look = world.look(Coverage::Watched);
    world.look_with(&mut load, look);
    let file = world.open();
    world.reply(&mut load, 0, Reply::Opened(file));
    assert_eq!(end(world.reply(&mut load, 0, elsewhere())), "goes on");
    let Step::Opening { look, .. } = &load.step else { panic!("in {}", load.step.name()) };
    assert_eq!(look.way, Coverage::Unwatched, "the file is a mount itself");
    let mut load = examining(world, "a.png", Coverage::Linked);
    assert_eq!(end(world.reply(&mut load, 0, elsewhere())), "goes on", "it is behind a link");
}

#[test]
fn opened_for_reading() {
    let cases = [
        (Coverage::Watched, Ok(()), "goes on", "0: stat"),
        (Coverage::Unwatched, Ok(()), "goes on", "0: stat"),
        (Coverage::Linked, Err(Errno::NOENT), "goes on", "0: open a.png"),
        (Coverage::Linked, Err(Errno::LOOP), "failed", ""),
        (Coverage::Watched, Err(Errno::NOENT), "goes on", "0: open for reading"),
        (Coverage::Watched, Err(Errno::AGAIN), "goes on", "0: open for reading"),
        (Coverage::Linked, Err(Errno::ACCESS), "failed", ""),
    ];
    for (way, result, next, asked) in cases {
        let world = &mut World::new();
        let mut load = match way {
            // Nothing more is watched after watching has been tried.
            Coverage::Unwatched => {
                let mut load = World::begin(world, "a.png", way);
                load.watch();
                let look = world.look(way);
                world.look_with(&mut load, look);
                let file = world.open();
                world.reply(&mut load, 0, Reply::Opened(file));
                world.reply(&mut load, 0, Reply::Stat(stat(7)));
                load
            }
            _ => opening(world, way, 7),
        };
        let reply = match result {
            Ok(()) => Reply::Opened(world.open()),
            Err(errno) => failed(errno),
        };
        assert_eq!(end(world.reply(&mut load, 0, reply)), next, "{way:?} {result:?}");
        assert_eq!(world.asked().join(", "), asked, "{way:?} {result:?}");
    }
}

#[test]
fn a_load_that_began_before_it_was_known_that_there_is_no_proc_opens_by_name_too() {
    let world = &mut World::new();
    let mut loads = [(); 2].map(|()| opening(world, Coverage::Linked, 7));
    for load in &mut loads {
        assert_eq!(end(world.reply(load, 0, failed(Errno::NOENT))), "goes on");
        assert_eq!(world.asked(), ["0: open a.png"]);
    }
    let file = world.open();
    assert_eq!(end(world.reply(&mut loads[0], 0, Reply::Opened(file))), "goes on");
    assert_eq!(world.asked(), ["0: stat"], "another file may have the name now");
    assert_eq!(end(world.reply(&mut loads[1], 0, failed(Errno::NOENT))), "failed");
}

#[test]
fn another_file_in_its_place_is_looked_at_and_not_for_ever() {
    let world = &mut World::new();
    let mut load = comparing(world);
    assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(9)))), "goes on");
    assert_eq!(world.asked(), ["0: read 9"], "the same file has grown");
    let other = || Reply::Stat(Stat { ino: 60, ..stat(7) });
    let mut load = comparing(world);
    assert_eq!(end(world.reply(&mut load, 0, other())), "look");
    let mut load = comparing(world);
    load.looks = LOOKS_MAX;
    assert_eq!(end(world.reply(&mut load, 0, other())), "replaced");
    let mut load = comparing(world);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::IO))), "failed");
}

#[test]
fn bytes_are_kept_only_of_a_file_that_has_not_changed() {
    let world = &mut World::new();
    let changed = || Reply::Stat(Stat { mtime_nanos: 9, ..stat(7) });
    let mut load = confirming(world);
    assert_eq!(end(world.reply(&mut load, 0, Reply::Stat(stat(7)))), "file");
    let mut load = confirming(world);
    assert_eq!(end(world.reply(&mut load, 0, changed())), "look");
    let mut load = confirming(world);
    load.looks = LOOKS_MAX;
    assert_eq!(end(world.reply(&mut load, 0, changed())), "changed file");
    let mut load = confirming(world);
    load.is_outdated = true;
    assert_eq!(end(world.reply(&mut load, 0, changed())), "changed file");
    let mut load = confirming(world);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::IO))), "look");
}

#[test]
fn a_file_that_cannot_be_read_at_once_is_sent_as_a_large_one() {
    let world = &mut World::new();
    let mut load = opening(world, Coverage::Watched, 7);
    assert_eq!(end(open(world, &mut load, 0, 7)), "goes on");
    let next = world.reply(&mut load, 0, failed(Errno::OPNOTSUPP));
    assert!(matches!(
        &next,
        Next::End(Outcome::File { parts, .. }) if matches!(parts[0], Some((_, None)))
    ));
    let held: Vec<_> = (0..BUFFERS).map(|_| world.pool.take(1).unwrap()).collect();
    let mut load = opening(world, Coverage::Watched, 7);
    assert_eq!(end(open(world, &mut load, 0, 7)), "file");
    drop(held);
}

#[test]
fn a_small_file_on_a_disk_that_fails_is_refused_before_its_head() {
    let world = &mut World::new();
    for errno in [Errno::IO, Errno::NOTCONN] {
        let mut load = opening(world, Coverage::Watched, 7);
        assert_eq!(end(open(world, &mut load, 0, 7)), "goes on");
        assert_eq!(end(world.reply(&mut load, 0, failed(errno))), "failed");
    }
}

#[test]
fn a_small_file_that_cannot_be_read_past_the_page_cache_is_read_through_it() {
    let world = &mut World::new();
    world.rules.policy.caching = sendfile::Caching::Never;
    let refused = |world: &mut World| {
        let mut load = opening(world, Coverage::Linked, 7);
        assert_eq!(end(open(world, &mut load, 0, 7)), "goes on");
        assert_eq!(world.asked(), ["0: read and drop 7"]);
        assert_eq!(end(world.reply(&mut load, 0, failed(Errno::OPNOTSUPP))), "goes on");
        assert_eq!(world.asked(), ["0: read 7"]);
        load
    };
    let mut load = refused(world);
    let reply = bytes(world, 7);
    assert_eq!(end(world.reply(&mut load, 0, reply)), "goes on");
    assert_eq!(world.asked(), ["0: drop"]);
    assert_eq!(end(world.reply(&mut load, 0, Reply::Dropped)), "goes on");
    assert_eq!(world.asked(), ["0: stat"]);
    let next = world.reply(&mut load, 0, Reply::Stat(stat(7)));
    assert!(matches!(
        &next,
        Next::End(Outcome::File { parts, .. }) if matches!(parts[0], Some((_, Some(_))))
    ));
    let mut load = refused(world);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::IO))), "failed");
    let mut load = refused(world);
    assert_eq!(end(world.reply(&mut load, 0, failed(Errno::OPNOTSUPP))), "file");
}

#[test]
fn a_large_file_is_opened_when_there_is_room_and_has_room_from_then_on() {
    let world = &mut World::new();
    let large = || Reply::Stat(stat(SMALL_MAX + 1));
    let mut load = examining(world, "a.png", Coverage::Watched);
    assert!(matches!(world.reply(&mut load, 0, large()), Next::Room(1)));
    assert_eq!(end(world.admit(&mut load, 1)), "goes on");
    assert_eq!((world.asked(), load.reserved()), (vec!["0: open a.png".to_owned()], 1));
    let open = world.count_open();
    let mut parked = examining(world, "a.png", Coverage::Watched);
    world.reply(&mut parked, 0, large());
    parked.park();
    assert_eq!(world.count_open(), open, "a parked load has nothing open");
    parked.unpark(1);
    let look = world.look(Coverage::Watched);
    world.look_with(&mut parked, look);
    let file = world.open();
    world.reply(&mut parked, 0, Reply::Opened(file));
    assert_eq!(end(world.reply(&mut parked, 0, large())), "goes on");
}

/// A cached file with this state and without siblings.
fn cached(stat: Stat, settled: bool) -> Rc<Resource> {
    let account = Account::default();
    let body = vec![b'x'; usize::try_from(stat.size).unwrap()];
    let plain = Variant::new(
        stat,
        Vec::new(),
        None,
        "text/plain",
        None,
        &Rules::new(),
        Data::Memory,
        Some(&body),
        &account,
    );
    let encoded = [const { None }; Coding::PREFERENCE.len()];
    let content_type = "text/plain".to_owned();
    let codings = Codings::default();
    let files = FileSet {
        content_type,
        plain,
        encoded,
        codings,
        own_coding: None,
        fields: Rules::new(),
        layout: None,
    };
    Rc::new(Resource {
        tree: TreeId::new(0),
        path: (*b"a.png").into(),
        index: 0,
        kind: Kind::File(files),
        validated: Time::from_nanos(0).into(),
        watched: true.into(),
        settled,
        used: Time::from_nanos(0).into(),
        idle_at: None.into(),
        memory: 0,
        descriptors: 0,
        _charge: account.charge(0),
    })
}

#[test]
fn a_file_that_is_as_it_was_cached_is_not_read_again() {
    let other = Stat { ctime_nanos: 9, ..stat(7) };
    let cases = [
        // A watched file is not even opened; of another one the server is asked by the open.
        (Coverage::Watched, stat(7), true, "unchanged"),
        (Coverage::Linked, stat(7), true, "open for reading, unchanged"),
        (Coverage::Watched, other, true, "open a.png, goes on"),
        (Coverage::Watched, stat(7), false, "open a.png, goes on"),
    ];
    for (way, before, settled, expected) in cases {
        let world = &mut World::new();
        let mut load = examining(world, "a.png", way);
        load.previous = Some(cached(before, settled));
        let mut steps = Vec::new();
        let mut next = world.reply(&mut load, 0, Reply::Stat(stat(7)));
        let asked = world.asked();
        if let [asked] = &asked[..]
            && let Some(open) = asked.strip_prefix("0: open ")
        {
            steps.push(format!("open {open}"));
            let file = world.open();
            next = world.reply(&mut load, 0, Reply::Opened(file));
        }
        if world.asked() == ["0: stat"] {
            next = world.reply(&mut load, 0, Reply::Stat(stat(7)));
        }
        steps.push(end(next).to_owned());
        assert_eq!(steps.join(", "), expected, "{way:?} {before:?} {settled}");
    }
}

/// A generator of numbers that is the same everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % bound as u64).unwrap()
    }

    fn stat(&mut self) -> Stat {
        let sizes = [0, 7, 7, SMALL_MAX, SMALL_MAX + 1, SIZE_MAX + 1];
        let kinds = [FileKind::Regular, FileKind::Regular, FileKind::Regular, FileKind::Directory];
        Stat {
            kind: kinds[self.below(kinds.len())],
            ino: [6, 6, 6, 7][self.below(4)],
            links: [1, 1, 2][self.below(3)],
            mount: [MOUNT, MOUNT, MOUNT, 9][self.below(4)],
            ..stat(sizes[self.below(sizes.len())])
        }
    }

    /// The reply to a request: mostly what was asked for.
    fn reply(&mut self, world: &mut World, ask: Ask<File>) -> Reply<File> {
        const ERRNOS: [Errno; 6] =
            [Errno::NOENT, Errno::LOOP, Errno::ACCESS, Errno::IO, Errno::MFILE, Errno::NOTDIR];
        if self.below(5) == 0 {
            return failed(ERRNOS[self.below(ERRNOS.len())]);
        }
        match ask {
            Ask::Open { .. } | Ask::Follow { .. } | Ask::OpenForReading(_) => {
                Reply::Opened(world.open())
            }
            Ask::Stat(_) => Reply::Stat(self.stat()),
            Ask::List { .. } => Reply::Listed(Box::default()),
            Ask::Drop(_) => Reply::Dropped,
            Ask::Read(_, mut buffer, caching) => {
                if caching == Caching::Drop && self.below(3) == 0 {
                    return failed(Errno::OPNOTSUPP);
                }
                let len = self.below(buffer.want() + 1);
                buffer.fill_from(&vec![b'x'; len]);
                Reply::Read(buffer)
            }
        }
    }
}

#[test]
fn every_load_ends_and_gives_back_what_it_holds() {
    for seed in 0..20_000 {
        let random = &mut Random(seed);
        let world = &mut World::new();
        world.rules.listing = random.below(2) == 0;
        if random.below(2) == 0 {
            world.rules.policy.caching = sendfile::Caching::Never;
        }
        world.has_proc = random.below(4) > 0;
        let rules = [Symlinks::Beneath, Symlinks::Never, Symlinks::Follow];
        world.rules.symlinks = rules[random.below(3)].clone();
        let path = ["a", "a/", "", "d/e.html", "a.png"][random.below(5)];
        let ways = [Coverage::Watched, Coverage::Unwatched, Coverage::Linked];
        let mut load = world.begin(path, ways[random.below(2)]);
        load.tickets.push(Ticket { connection: 1, request: 2 });
        let mut in_flight: Vec<(usize, Ask<File>)> = world.asks.drain(..).collect();
        let mut steps = 0;
        let outcome = loop {
            steps += 1;
            assert!(steps < 200, "seed {seed}: the load does not end");
            assert!(!in_flight.is_empty(), "seed {seed}: it waits for nothing");
            if random.below(20) == 0 {
                load.is_outdated = true;
            }
            // Another load may find out.
            world.has_proc &= random.below(30) > 0;
            let (part, ask) = in_flight.swap_remove(random.below(in_flight.len()));
            let reply = random.reply(world, ask);
            let mut next = world.reply(&mut load, part, reply);
            if let Next::Room(files) = next {
                if random.below(2) == 0 {
                    next = world.admit(&mut load, files);
                } else {
                    load.park();
                    // Only the roots of other looks are left.
                    assert_eq!(world.count_open(), 0, "seed {seed}: parked with open files");
                    load.unpark(files);
                    next = Next::Look;
                }
            }
            if matches!(next, Next::Watch | Next::WatchAgain(_)) {
                load.watch();
                assert_eq!(world.count_open(), 0, "seed {seed}: waits with open files");
                next = Next::Look;
            }
            match next {
                Next::Look => {
                    assert!(in_flight.is_empty(), "seed {seed}: looks again with asks under way");
                    world.asks.clear();
                    let look = world.look(ways[random.below(ways.len())]);
                    world.look_with(&mut load, look);
                }
                Next::End(outcome) => break outcome,
                Next::Replies => {}
                Next::Room(_) | Next::Watch | Next::WatchAgain(_) => unreachable!("done above"),
            }
            for (part, ask) in world.asks.drain(..) {
                let is_new = in_flight.iter().all(|(other, _)| *other != part);
                assert!(is_new, "seed {seed}: two asks about part {part}");
                in_flight.push((part, ask));
            }
        };
        assert!(in_flight.is_empty(), "seed {seed}: it ended with asks under way");
        assert!(load.looks <= LOOKS_MAX + 2, "seed {seed}: {} looks", load.looks);
        let held = match &outcome {
            Outcome::File { parts, .. } => 1 + parts.iter().flatten().count(),
            Outcome::Redirect(_) | Outcome::Unclean(..) | Outcome::Directory(..) => 1,
            Outcome::Unchanged(..) => unreachable!("nothing was cached before"),
            Outcome::Missing(_) | Outcome::Replaced | Outcome::TooLarge | Outcome::Failed(..) => 0,
        };
        assert_eq!(world.count_open(), held, "seed {seed}: what it found, and no more, is open");
        assert_eq!(load.tickets.len(), 1);
        drop(outcome);
        assert_eq!(world.count_open(), 0, "seed {seed}: a descriptor is lost");
        assert_eq!(world.pool.available(), BUFFERS, "seed {seed}: a buffer is lost");
    }
}

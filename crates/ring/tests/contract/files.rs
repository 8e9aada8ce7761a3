//! Open, stat, read, write, list, residency.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::io::{self, ErrorKind};

use ring::{
    DriverKind, EntryOrder, Event, Fd, FileKind, LISTED_LINKS_MAX, Listing, Op, OpenHow, Stat,
    SymlinkScope, Targets,
};

use super::stage::{Stage, pattern};

on_every_driver!(
    opens_only_what_is_beneath,
    follows_links_into_permitted_directories,
    opens_what_is_there,
    says_what_a_file_is,
    a_change_that_keeps_the_time_of_modification_is_seen,
    reads_at_an_offset,
    refuses_offsets_beyond_all_files,
    reads_many_buffers_at_once,
    an_open_file_outlives_its_name,
    appends,
    writes_at_a_position,
    lists_a_directory,
    says_of_links_what_it_says_of_others,
    lists_twice_through_one_descriptor,
    finds_a_name,
    makes_a_hole,
    names_the_file_system,
    finds_the_places_of_a_file,
    opens_at_once_what_is_in_memory,
    splices_into_a_pipe_and_out,
    splices_without_readahead,
);

mod residency {
    use super::*;
    on_every_driver!(until_pages_stay:
        discards,
        reads_ahead_earlier,
        tells_what_is_resident,
        reads_at_once_what_is_in_memory,
        reads_resident_bytes_from_any_place,
        a_mapping_tells_what_is_resident,
    );
}

mod os_descriptors {
    //! The simulation has neither access modes nor descriptors of the wrong kind.
    use super::*;
    on_real_drivers!(
        wrong_descriptors_are_errors,
        a_file_opened_nonblocking_is_not,
        a_read_does_not_write_the_access_time,
        a_rename_elsewhere_does_not_fail_an_open,
        follows_no_links_through_proc,
        follows_so_many_links_of_a_listing,
    );
}

fn errno(result: io::Result<impl core::fmt::Debug>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn stat(s: &mut Stage, file: &Fd) -> Stat {
    match s.done(Op::Stat(file.clone())).unwrap() {
        Event::Stat(stat) => *stat,
        other => panic!("{other:?}"),
    }
}

/// Not the order in which directories have their entries.
pub(super) const BY_NAME: EntryOrder = |a, b| a.name.cmp(&b.name);

fn list(s: &mut Stage, dir: &Fd, entries_max: usize) -> Listing {
    match s.done(Op::List { dir: dir.clone(), entries_max, order: BY_NAME, targets: None }).unwrap()
    {
        Event::Listed(listing) => *listing,
        other => panic!("{other:?}"),
    }
}

fn opens_only_what_is_beneath(s: &mut Stage) {
    s.make_dir("in");
    s.write_file("in/file", b"inside");
    s.write_file("outside", b"secret");
    s.symlink("../outside", "in/out");
    s.symlink("/etc/passwd", "in/absolute");
    s.symlink("file", "in/link");
    s.symlink("loop", "in/loop");
    let dir = s.open_with("in", OpenHow::BENEATH).unwrap();
    let mut open = |path: &str, how| {
        let path = std::ffi::CString::new(path).unwrap();
        s.done(Op::Open { dir: Some(dir.clone()), path, how })
    };
    for path in ["../outside", "..", "/etc/passwd", "out", "absolute", "./../in/file"] {
        assert_eq!(errno(open(path, OpenHow::BENEATH)), libc::EXDEV, "{path}");
    }
    assert!(open("link", OpenHow::BENEATH).is_ok());
    assert!(open("./file", OpenHow::BENEATH).is_ok());
    assert_eq!(errno(open("link", OpenHow::BENEATH.without_symlinks())), libc::ELOOP);
    assert_eq!(errno(open("loop", OpenHow::BENEATH)), libc::ELOOP);
    assert_eq!(errno(open("absent", OpenHow::BENEATH)), libc::ENOENT);
    assert_eq!(errno(open("file/below", OpenHow::BENEATH)), libc::ENOTDIR);
}

fn follows_links_into_permitted_directories(s: &mut Stage) {
    for dir in ["www", "disk", "disk/below", "disk2", "other"] {
        s.make_dir(dir);
    }
    s.write_file("www/file", b"inside");
    s.write_file("disk/file", b"on the disk");
    s.write_file("disk/below/deep", b"deep");
    s.write_file("disk2/file", b"secret");
    s.write_file("other/file", b"secret");
    let absolute = |path: &str| s.absolute(path);
    for (target, path) in [
        (absolute("www/file"), "www/absolute"),
        (absolute("disk/file"), "www/a"),
        ("../disk/file".to_owned(), "www/relative"),
        (absolute("disk"), "www/pool"),
        (absolute("alias/below"), "www/by-alias"),
        (absolute("disk"), "alias"),
        (absolute("disk2/file"), "www/near"),
        (absolute("other/file"), "www/out"),
        (absolute("other/hop"), "www/hop"),
        (absolute("disk/file"), "other/hop"),
        ("../other/file".to_owned(), "disk/out"),
        ("../www/file".to_owned(), "disk/back"),
        (absolute("disk/gone"), "www/gone"),
        (absolute("www/circle"), "www/circle"),
    ] {
        s.symlink(&target, path);
    }
    let into = |s: &Stage, dirs: &[&str]| {
        SymlinkScope::Into(dirs.iter().map(|dir| s.absolute(dir).into()).collect())
    };
    let root = s.open_with("www", OpenHow::BENEATH).unwrap();
    let disk = into(s, &["disk"]);
    let alias = into(s, &["alias"]);
    let both = into(s, &["disk", "other"]);
    let nothing = into(s, &[]);
    let (inside, on_disk) = (Ok(&b"inside"[..]), Ok(&b"on the disk"[..]));
    for (path, symlinks, expected) in [
        ("file", &SymlinkScope::Never, inside),
        ("absolute", &SymlinkScope::Never, Err(libc::ELOOP)),
        ("absolute", &SymlinkScope::Beneath, Err(libc::EXDEV)),
        ("a", &SymlinkScope::Beneath, Err(libc::EXDEV)),
        ("absolute", &nothing, inside),
        ("a", &nothing, Err(libc::EXDEV)),
        ("file", &disk, inside),
        ("a", &disk, on_disk),
        ("a", &alias, on_disk),
        ("relative", &disk, on_disk),
        ("pool/file", &disk, on_disk),
        ("pool/below/deep", &disk, Ok(b"deep")),
        ("pool/back", &disk, inside),
        ("pool/out", &disk, Err(libc::EXDEV)),
        ("pool/out", &both, Ok(b"secret")),
        ("by-alias/deep", &disk, Ok(b"deep")),
        ("near", &disk, Err(libc::EXDEV)),
        ("out", &disk, Err(libc::EXDEV)),
        ("hop", &disk, Err(libc::EXDEV)),
        ("hop", &both, on_disk),
        ("gone", &disk, Err(libc::ENOENT)),
        ("circle", &disk, Err(libc::ELOOP)),
        ("a/below", &disk, Err(libc::ENOTDIR)),
        ("out", &SymlinkScope::Anywhere, Ok(b"secret")),
        ("circle", &SymlinkScope::Anywhere, Err(libc::ELOOP)),
    ] {
        let found = |s: &mut Stage, how| {
            let (root, symlinks) = (root.clone(), symlinks.clone());
            let path = std::ffi::CString::new(path).unwrap();
            s.done(Op::Follow { root, path, how, symlinks })
        };
        let how = OpenHow { resolve: 0, ..OpenHow::BENEATH };
        match (found(s, how), expected) {
            (Ok(Event::Opened(file)), Ok(bytes)) => {
                assert_eq!(s.read(&file, 0, 100), bytes, "{path}")
            }
            (Err(error), Err(errno)) => assert_eq!(error.raw_os_error(), Some(errno), "{path}"),
            (found, expected) => panic!("{path}: {found:?}, not {expected:?}"),
        }
        let is_found = found(s, OpenHow { flags: libc::O_PATH, ..how }).is_ok();
        assert_eq!(is_found, expected.is_ok(), "{path}");
    }
    let how = OpenHow { resolve: 0, ..OpenHow::DIRECTORY };
    let path = c"pool/below".to_owned();
    let opened = s.done(Op::Follow { root: root.clone(), path, how, symlinks: disk.clone() });
    let Ok(Event::Opened(dir)) = opened else { panic!("{opened:?}") };
    assert_eq!(list(s, &dir, 9).entries.len(), 1);
    let (path, symlinks) = (c"a".to_owned(), disk);
    assert_eq!(errno(s.done(Op::Follow { root, path, how, symlinks })), libc::ENOTDIR);
}

/// Links of `/proc` lead to what processes have open, and some that are no links at all.
fn follows_no_links_through_proc(s: &mut Stage) {
    s.make_dir("www");
    s.write_file("secret", b"secret");
    let secret = s.open("secret");
    s.symlink(&format!("/proc/self/fd/{}", secret.raw()), "www/fd");
    s.symlink(&format!("/proc/self/cwd/../{}", s.absolute("secret")), "www/cwd");
    s.symlink(&format!("/proc/self/root{}", s.absolute("secret")), "www/root");
    s.symlink("/proc/self/environ", "www/environ");
    s.symlink("/proc/version", "www/version");
    s.symlink("/proc", "www/proc");
    let root = s.open_with("www", OpenHow::BENEATH).unwrap();
    for symlinks in
        [SymlinkScope::Anywhere, SymlinkScope::Into([std::path::PathBuf::from("/")].into())]
    {
        for path in
            [c"fd", c"cwd", c"root", c"environ", c"version", c"proc/version", c"proc/self/fd"]
        {
            let how = OpenHow { flags: libc::O_PATH, mode: 0, resolve: 0 };
            let (root, path, symlinks) = (root.clone(), path.to_owned(), symlinks.clone());
            let found = s.done(Op::Follow { root, path: path.clone(), how, symlinks });
            assert!(matches!(errno(found), libc::EXDEV | libc::ELOOP | libc::ENOENT), "{path:?}");
        }
    }
}

fn follows_so_many_links_of_a_listing(s: &mut Stage) {
    s.write_file("file", b"bytes");
    for number in 0..=LISTED_LINKS_MAX {
        s.symlink("file", &format!("link{number}"));
    }
    let root = s.root();
    let targets = Some(Targets {
        root: root.clone(),
        path: c".".to_owned(),
        symlinks: SymlinkScope::Beneath,
        names: false,
    });
    let listed = s.done(Op::List { dir: root, entries_max: 1_000_000, order: BY_NAME, targets });
    let Ok(Event::Listed(listing)) = listed else { panic!("{listed:?}") };
    assert_eq!((listing.entries.len(), listing.truncated), (1 + LISTED_LINKS_MAX, true));
    assert!(listing.entries.iter().all(|entry| entry.size == 5));
}

fn opens_what_is_there(s: &mut Stage) {
    s.make_dir("a");
    s.make_dir("a/b");
    s.write_file("a/b/c", b"deep");
    let file = s.open("a/b/../b/c");
    assert_eq!(s.read(&file, 0, 10), b"deep");
    let dir = OpenHow::DIRECTORY;
    assert!(s.open_with("a/b", dir).is_ok());
    assert_eq!(errno(s.open_with("a/b/c", dir)), libc::ENOTDIR);
}

fn says_what_a_file_is(s: &mut Stage) {
    s.write_file("file", &pattern(5000));
    let file = s.open("file");
    let of_file = stat(s, &file);
    assert_eq!((of_file.kind, of_file.size, of_file.links), (FileKind::Regular, 5000, 1));
    assert!((of_file.mtime - s.ring.unix_time()).abs() < 100);
    let root = s.root();
    let of_root = stat(s, &root);
    assert_eq!(of_root.kind, FileKind::Directory);
    assert_eq!(of_file.dev, of_root.dev);
    assert_ne!(of_file.ino, of_root.ino);
}

fn a_change_that_keeps_the_time_of_modification_is_seen(s: &mut Stage) {
    s.write_file("file", b"x");
    let file = s.open("file");
    let before = stat(s, &file);
    s.pause();
    s.rename("file", "other");
    let after = stat(s, &file);
    assert_eq!((before.mtime, before.mtime_nanos), (after.mtime, after.mtime_nanos));
    assert!((before.ctime, before.ctime_nanos) < (after.ctime, after.ctime_nanos));
}

fn reads_at_an_offset(s: &mut Stage) {
    let bytes = pattern(10_000);
    s.write_file("file", &bytes);
    let file = s.open("file");
    assert_eq!(s.read(&file, 0, 4096), bytes[..4096]);
    assert_eq!(s.read(&file, 4000, 1000), bytes[4000..5000]);
    assert_eq!(s.read(&file, 9000, 4096), bytes[9000..], "short at the end");
    assert_eq!(s.read(&file, 10_000, 100), b"");
    assert_eq!(s.read(&file, 1 << 40, 100), b"");
}

fn refuses_offsets_beyond_all_files(s: &mut Stage) {
    s.write_file("file", b"x");
    let file = s.open("file");
    for offset in [u64::MAX, u64::MAX - 5, 1 << 63, 1 << 62] {
        let op = s.read_op(&file, offset, 100);
        assert_eq!(errno(s.done(op)), libc::EINVAL);
    }
    assert_eq!(s.pool.available(), s.pool.count());
}

fn reads_many_buffers_at_once(s: &mut Stage) {
    let bytes = pattern(1 << 20);
    s.write_file("file", &bytes);
    s.evict("file");
    let file = s.open("file");
    let mut wanted = HashMap::new();
    for index in 0..256 {
        let at = (index * 7919 * 4096) % bytes.len();
        let op = s.read_op(&file, at as u64, 4096);
        wanted.insert(s.ring.submit(op, at as u64), at);
    }
    assert_eq!(s.ring.in_flight(), 256);
    for (key, at) in wanted {
        match s.event(key) {
            Event::Read(buf) => assert_eq!(buf[..], bytes[at..(at + 4096).min(bytes.len())]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(s.ring.in_flight(), 0);
    assert_eq!(s.pool.available(), s.pool.count());
}

fn an_open_file_outlives_its_name(s: &mut Stage) {
    s.write_file("file", b"old");
    let old = s.open("file");
    s.write_file("new", b"new!");
    s.rename("new", "file");
    let new = s.open("file");
    assert_eq!(s.read(&old, 0, 10), b"old");
    assert_eq!(s.read(&new, 0, 10), b"new!");
    assert_eq!(stat(s, &old).links, 0);
    s.remove_file("file");
    assert_eq!(s.read(&new, 0, 10), b"new!");
}

fn appends(s: &mut Stage) {
    let how = OpenHow {
        flags: libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        mode: 0o644,
        resolve: libc::RESOLVE_BENEATH,
    };
    let log = s.open_with("log", how).unwrap();
    for line in ["first\n", "second\n"] {
        match s.done(Op::Write { file: log.clone(), at: None, bytes: line.into() }).unwrap() {
            Event::Written(bytes, count) => {
                assert_eq!(bytes, line.as_bytes());
                assert_eq!(count, line.len());
            }
            other => panic!("{other:?}"),
        }
    }
    let log = s.open("log");
    assert_eq!(s.read(&log, 0, 100), b"first\nsecond\n");
}

fn writes_at_a_position(s: &mut Stage) {
    s.write_file("file", b"0123456789");
    let how = OpenHow { flags: libc::O_RDWR, mode: 0, resolve: libc::RESOLVE_BENEATH };
    let file = s.open_with("file", how).unwrap();
    for (at, bytes) in [(12, "cd"), (3, "xyz"), (9, "ab")] {
        match s.done(Op::Write { file: file.clone(), at: Some(at), bytes: bytes.into() }).unwrap() {
            Event::Written(back, count) => {
                assert_eq!((back.as_slice(), count), (bytes.as_bytes(), bytes.len()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(s.read(&file, 0, 100), b"012xyz678ab\0cd");
}

fn lists_a_directory(s: &mut Stage) {
    s.make_dir("dir");
    s.make_dir("dir/sub");
    s.symlink("sub", "dir/link");
    for index in 0..100 {
        s.write_file(&format!("dir/file{index}"), &pattern(index));
    }
    let dir = s.open("dir");
    let all = list(s, &dir, 1000);
    assert!(!all.truncated);
    assert_eq!(all.entries.len(), 102);
    let entry = |name: &str| all.entries.iter().find(|e| e.name == name.as_bytes()).unwrap();
    assert_eq!(entry("sub").kind, FileKind::Directory);
    assert_eq!(entry("link").kind, FileKind::Symlink);
    assert_eq!(entry("file42").kind, FileKind::Regular);
    assert_eq!(entry("file42").size, 42);
    assert!((entry("file42").mtime - s.ring.unix_time()).abs() < 100);

    let mut sorted = all.clone();
    sorted.entries.sort_by_key(|entry| entry.name.clone());
    assert_eq!(all.entries, sorted.entries, "in the order that was asked for");

    let exact = list(s, &dir, 102);
    assert!(!exact.truncated && exact.entries.len() == 102);
    let some = list(s, &dir, 10);
    assert!(some.truncated && some.entries.len() == 10);
    let none = list(s, &dir, 0);
    assert!(none.truncated && none.entries.is_empty());
}

/// The entry of a link describes its target.
fn says_of_links_what_it_says_of_others(s: &mut Stage) {
    for dir in ["www", "www/dir", "www/dir/sub", "disk"] {
        s.make_dir(dir);
    }
    s.write_file("www/file", &pattern(42));
    s.write_file("disk/file", &pattern(43));
    s.write_file("disk/secret", &pattern(44));
    for (target, name) in [
        ("sub", "to-dir"),
        ("../file", "to-file"),
        ("to-file", "to-link"),
        ("gone", "dangling"),
        ("circle", "circle"),
        ("../../disk/file", "out"),
    ] {
        s.symlink(target, &format!("www/dir/{name}"));
    }
    s.symlink(&s.absolute("disk"), "www/dir/disk");
    s.symlink("/proc/self/fd/0", "www/dir/magic");
    let root = s.open_with("www", OpenHow::BENEATH).unwrap();
    let dir = s.open("www/dir");
    let into = SymlinkScope::Into([s.absolute("disk").into()].into());
    let beneath = ["sub/", "to-dir/", "to-file 42", "to-link 42"];
    let with_disk = ["disk/", "out 43", "sub/", "to-dir/", "to-file 42", "to-link 42"];
    for (symlinks, expected) in [
        (SymlinkScope::Never, &["sub/"][..]),
        (SymlinkScope::Beneath, &beneath),
        (into, &with_disk),
        (SymlinkScope::Anywhere, &with_disk),
    ] {
        let (root, path) = (root.clone(), c"dir".to_owned());
        let targets = Some(Targets { root, path, symlinks, names: false });
        let listed =
            s.done(Op::List { dir: dir.clone(), entries_max: 100, order: BY_NAME, targets });
        let Ok(Event::Listed(listing)) = listed else { panic!("{listed:?}") };
        assert!(listing.has_links && !listing.truncated);
        let said = listing.entries.iter().map(|entry| {
            let name = String::from_utf8_lossy(&entry.name);
            match entry.kind {
                FileKind::Directory => format!("{name}/"),
                FileKind::Regular => format!("{name} {}", entry.size),
                kind => panic!("{name} is {kind:?}"),
            }
        });
        assert_eq!(said.collect::<Vec<_>>(), expected);
    }
}

/// The descriptor has one offset; listings must not share it.
fn lists_twice_through_one_descriptor(s: &mut Stage) {
    for index in 0..50 {
        s.write_file(&format!("file{index}"), b"");
    }
    let dir = s.root();
    let keys: Vec<_> = (0..8)
        .map(|_| {
            s.ring.submit(
                Op::List { dir: dir.clone(), entries_max: 1000, order: BY_NAME, targets: None },
                0,
            )
        })
        .collect();
    for key in keys {
        match s.event(key) {
            Event::Listed(listing) => assert_eq!(listing.entries.len(), 50),
            other => panic!("{other:?}"),
        }
    }
    s.write_file("file", b"");
    let file = s.open("file");
    assert_eq!(
        errno(s.done(Op::List { dir: file, entries_max: 10, order: BY_NAME, targets: None })),
        libc::ENOTDIR
    );
}

fn finds_a_name(s: &mut Stage) {
    s.make_dir("in");
    s.make_dir("in/below");
    for number in 0..20 {
        s.write_file(&format!("in/below/{number}"), b"");
    }
    s.symlink("below", "in/link");
    let root = s.open_with("in", OpenHow::BENEATH).unwrap();
    let mut has = |path: &str, entries_max, is_wanted| {
        let path = std::ffi::CString::new(path).unwrap();
        s.done(Op::HasName { root: root.clone(), path, entries_max, is_wanted })
    };
    let is =
        |result, expected| assert!(matches!(result, Ok(Event::HasName(has)) if has == expected));
    is(has("below", 20, |name| name == b"7"), true);
    is(has("below", 20, |name| name == b"20"), false);
    is(has("below", 19, |name| name == b"20"), true);
    is(has("", 20, |name| name == b"below"), true);
    is(has(".", 20, |name| name == b"7"), false);
    assert_eq!(errno(has("link", 20, |_| true)), libc::ELOOP);
    assert_eq!(errno(has("absent", 20, |_| true)), libc::ENOENT);
    assert_eq!(errno(has("below/7", 20, |_| true)), libc::ENOTDIR);
}

fn discards(s: &mut Stage) {
    s.write_file("file", &pattern(64 * 1024));
    s.evict("file");
    let file = s.open("file");
    s.ring.no_readahead(&file);
    s.read(&file, 0, 64 * 1024);
    assert_eq!(s.ring.probe(&file, 0, 4096).unwrap(), 4096);
    let op = Op::Discard { file: file.clone(), offset: 0, len: 32 * 1024 };
    assert!(matches!(s.done(op).unwrap(), Event::Discarded));
    assert_eq!(s.ring.cached_pages(&file, 0, 64 * 1024).unwrap(), 8);
    assert_eq!(s.ring.probe(&file, 40 * 1024, 4096).unwrap(), 4096);
    let op = Op::Discard { file: file.clone(), offset: 0, len: 0 };
    assert!(matches!(s.done(op).unwrap(), Event::Discarded));
    assert_eq!(s.ring.cached_pages(&file, 0, 64 * 1024).unwrap(), 0);
    assert_eq!(s.ring.probe(&file, 0, 4096).unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn makes_a_hole(s: &mut Stage) {
    let bytes = pattern(20_000);
    s.write_file("file", &bytes);
    let reader = s.open("file");
    let op = |file, offset, len| Op::Punch { file, offset, len };
    assert_eq!(errno(s.done(op(reader.clone(), 0, 4096))), libc::EBADF);
    let file = s.open_with("file", OpenHow { flags: libc::O_RDWR, ..OpenHow::BENEATH }).unwrap();
    assert!(matches!(s.done(op(file.clone(), 4096, 8192)).unwrap(), Event::Punched));
    let mut expected = bytes;
    expected[4096..12_288].fill(0);
    assert_eq!(s.read(&reader, 0, 20_000), expected);
    assert!(matches!(s.done(op(file, 16_384, 1 << 20)).unwrap(), Event::Punched));
    expected[16_384..].fill(0);
    assert_eq!(s.read(&reader, 0, 20_000), expected, "the size stays");
}

fn names_the_file_system(s: &mut Stage) {
    let root = s.root();
    match s.done(Op::FileSystem(root)).unwrap() {
        Event::FileSystem(magic) => assert_eq!(magic, 0xef53, "run this on ext4"),
        other => panic!("{other:?}"),
    }
}

/// Holes make pieces of a file; the simulated world has none.
fn finds_the_places_of_a_file(s: &mut Stage) {
    s.write_file("file", &pattern(1 << 20));
    let file = s.open_with("file", OpenHow { flags: libc::O_RDWR, ..OpenHow::BENEATH }).unwrap();
    for hole in 0..100 {
        let punch = Op::Punch { file: file.clone(), offset: hole * 8192, len: 4096 };
        assert!(matches!(s.done(punch).unwrap(), Event::Punched));
    }
    let pieces = match s.done(Op::Extents(file)).unwrap() {
        Event::Extents(pieces) => pieces,
        other => panic!("{other:?}"),
    };
    let expected = if s.ring.kind() == DriverKind::Sim { 1 } else { 100 };
    assert_eq!(pieces, expected);
}

fn reads_ahead_earlier(s: &mut Stage) {
    s.write_file("file", &pattern(1 << 20));
    let file = s.open("file");
    let cached = |s: &Stage| s.ring.cached_pages(&file, 0, 1 << 20).unwrap();
    assert!(!s.ring.read_ahead_from(&file, 0), "no read has ended, so its metadata may be missing");
    s.evict("file");
    s.read(&file, 0, 4096);
    let before = cached(s);
    assert!(!s.ring.read_ahead_from(&file, 512 << 10), "it is not on its way");
    assert_eq!(cached(s), before);
    // The page that the kernel has marked is after the page that was read.
    assert!(s.ring.read_ahead_from(&file, 4096));
    assert!(cached(s) > before, "{before}");
}

fn tells_what_is_resident(s: &mut Stage) {
    s.write_file("file", &pattern(40_000));
    let file = s.open("file");
    s.ring.no_readahead(&file);
    assert_eq!(s.ring.probe(&file, 0, 40_000).unwrap(), 40_000);
    assert_eq!(s.ring.probe(&file, 100, 1 << 20).unwrap(), 39_900);
    assert_eq!(s.ring.probe(&file, 40_000, 10).unwrap(), 0);
    assert_eq!(s.ring.cached_pages(&file, 0, 40_000).unwrap(), 10);
    s.evict("file");
    assert_eq!(s.ring.cached_pages(&file, 0, 40_000).unwrap(), 0);
    assert_eq!(s.read(&file, 4096, 8192), pattern(40_000)[4096..12_288]);
    assert_eq!(s.ring.cached_pages(&file, 0, 40_000).unwrap(), 2);
    assert_eq!(s.ring.probe(&file, 5000, 40_000).unwrap(), 12_288 - 5000);
    // From here on the kernel may be reading, because missing pages were asked for.
    assert_eq!(s.ring.probe(&file, 0, 40_000).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// In the simulation chance says whether names are in memory.
fn opens_at_once_what_is_in_memory(s: &mut Stage) {
    s.make_dir("in");
    s.write_file("in/file", b"inside");
    s.write_file("outside", b"secret");
    s.symlink("../outside", "in/out");
    let dir = s.open_with("in", OpenHow::BENEATH).unwrap();
    let is_simulated = s.ring.kind() == DriverKind::Sim;
    for how in [OpenHow::BENEATH, OpenHow { flags: libc::O_PATH, ..OpenHow::BENEATH }] {
        match s.ring.open_cached(&dir, c"file", how) {
            Some(file) => {
                let file = file.unwrap();
                let at_once = s.ring.stat_cached(&file).unwrap();
                assert_eq!(at_once, stat(s, &file));
                assert_eq!(file.device(), at_once.device);
            }
            None => assert!(is_simulated, "its name has just been made"),
        }
        for path in [c"out", c"../outside"] {
            assert!(s.ring.open_cached(&dir, path, how).is_none_or(|opened| opened.is_err()));
        }
    }
    let how = OpenHow::BENEATH;
    assert!(is_simulated || s.ring.open_cached(&dir, c"absent", how).is_none());
    let path = c"absent".to_owned();
    assert_eq!(errno(s.done(Op::Open { dir: Some(dir.clone()), path, how })), libc::ENOENT);
    match s.ring.open_cached(&dir, c"absent", how) {
        Some(opened) => assert_eq!(errno(opened), libc::ENOENT),
        None => assert!(is_simulated, "that there is no such name is in memory now"),
    }
}

fn reads_at_once_what_is_in_memory(s: &mut Stage) {
    let bytes = pattern(40_000);
    s.write_file("file", &bytes);
    let file = s.open("file");
    for len in [1, 4096, 5000, 40_000] {
        let mut buffer = s.pool.take(len).unwrap();
        assert!(s.ring.read_cached(&file, &mut buffer));
        assert_eq!(buffer[..], bytes[..len]);
    }
    let mut buffer = s.pool.take(40_001).unwrap();
    assert!(!s.ring.read_cached(&file, &mut buffer), "it has grown shorter");
    s.evict("file");
    let mut buffer = s.pool.take(40_000).unwrap();
    assert!(!s.ring.read_cached(&file, &mut buffer));
    assert_eq!(s.ring.cached_pages(&file, 0, 40_000).unwrap(), 0, "nor was it read");
    s.ring.no_readahead(&file);
    s.read(&file, 0, 4096);
    assert!(!s.ring.read_cached(&file, &mut buffer), "some of it is missing");
}

fn reads_resident_bytes_from_any_place(s: &mut Stage) {
    let bytes = pattern(40_000);
    s.write_file("file", &bytes);
    let file = s.open("file");
    s.ring.no_readahead(&file);
    for (offset, want, found) in [(0, 40_000, 40_000), (5, 4096, 4096), (39_000, 4096, 1000)] {
        let range = offset..offset + found;
        let mut buffer = s.pool.take(want).unwrap();
        assert_eq!(s.ring.read_resident(&file, offset as u64, &mut buffer).unwrap(), found);
        assert_eq!(buffer[..], bytes[range.clone()]);
        let mut buffer = s.pool.take(want).unwrap();
        assert_eq!(s.ring.read_mapped(&file, offset as u64, &mut buffer).unwrap(), found);
        assert_eq!(buffer[..], bytes[range]);
    }
    let mut buffer = s.pool.take(10).unwrap();
    assert_eq!(s.ring.read_resident(&file, 40_000, &mut buffer).unwrap(), 0, "the end");
    s.evict("file");
    s.read(&file, 4096, 8192);
    let mut buffer = s.pool.take(40_000).unwrap();
    let found = s.ring.read_resident(&file, 5000, &mut buffer).unwrap();
    assert_eq!(
        (found, &buffer[..]),
        (12_288 - 5000, &bytes[5000..12_288]),
        "up to what is missing"
    );
    let missing = s.ring.read_resident(&file, 16_384, &mut buffer).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::WouldBlock);
}

fn a_mapping_tells_what_is_resident(s: &mut Stage) {
    s.write_file("file", &pattern(40_000));
    let file = s.open("file");
    s.ring.no_readahead(&file);
    let mapping = s.ring.map(&file, 40_000).unwrap();
    assert!(mapping.resident(100, 30_000).unwrap() == 30_000);
    s.evict("file");
    assert_eq!(mapping.resident(0, 40_000).unwrap(), 0);
    assert_eq!(s.read(&file, 4096, 8192), pattern(40_000)[4096..12_288]);
    assert_eq!(mapping.resident(5000, 30_000).unwrap(), 12_288 - 5000);
    assert_eq!(mapping.resident(0, 30_000).unwrap(), 0);
}

fn wrong_descriptors_are_errors(s: &mut Stage) {
    s.write_file("file", b"x");
    let file = s.open("file");
    assert_eq!(errno(s.done(Op::Accept(file.clone()))), libc::ENOTSOCK);
    assert_eq!(errno(s.done(Op::Recv(file.clone()))), libc::ENOTSOCK);
    let write = |at| Op::Write { file: file.clone(), at, bytes: vec![1] };
    assert_eq!(errno(s.done(write(None))), libc::EBADF);
    assert_eq!(errno(s.done(write(Some(0)))), libc::EBADF);
    assert_eq!(errno(s.done(write(Some(1 << 62)))), libc::EINVAL);
    let dir = s.root();
    let op = s.read_op(&dir, 0, 10);
    assert_eq!(errno(s.done(op)), libc::EISDIR);
}

/// See `blocking::settle_flags`.
fn a_file_opened_nonblocking_is_not(s: &mut Stage) {
    s.write_file("file", b"x");
    let file = s.open("file");
    let flags = rustix::fs::fcntl_getfl(file.os()).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
}

/// Access times are only written on some mounts (`noatime`, mount(8)), and here because the file has been changed
/// since.
fn a_read_does_not_write_the_access_time(s: &mut Stage) {
    s.write_file("file", b"x");
    let file = s.open("file");
    let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: at(1000), last_modification: at(2000) };
    rustix::fs::futimens(file.os(), &times).unwrap();
    assert_eq!(s.read(&file, 0, 10), b"x");
    assert_eq!(rustix::fs::fstat(file.os()).unwrap().st_atime, 1000);
}

/// openat2(2) on `EAGAIN`: any rename on the machine makes the kernel unsure of a `..`.
fn a_rename_elsewhere_does_not_fail_an_open(s: &mut Stage) {
    s.make_dir("a");
    s.make_dir("a/b");
    s.make_dir("elsewhere");
    s.write_file("file", b"found");
    s.symlink("a/b/../b/../b/../../file", "link");
    let root = s.root().os().try_clone_to_owned().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat(&root, c"elsewhere", &root, c"moved").unwrap();
                rustix::fs::renameat(&root, c"moved", &root, c"elsewhere").unwrap();
            }
        });
        let results: Vec<_> =
            (0..5_000).map(|_| s.open_with("link", OpenHow::BENEATH).map(drop)).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
}

fn splices_into_a_pipe_and_out(s: &mut Stage) {
    let bytes = pattern(300_000);
    s.write_file("file", &bytes);
    s.evict("file");
    let file = s.open("file");
    splice_out(s, file, &bytes);
}

fn splices_without_readahead(s: &mut Stage) {
    let bytes = pattern(300_000);
    s.write_file("file", &bytes);
    s.evict("file");
    let file = s.open("file");
    s.ring.no_readahead(&file);
    splice_out(s, file, &bytes);
}

/// Splices all of a file, and then at and beyond its end.
fn splice_out(s: &mut Stage, file: Fd, bytes: &[u8]) {
    let (socket, mut peer) = s.pair();
    let pipes = ring::PipePool::new(1);
    let mut at = 0;
    loop {
        let pipe =
            s.ring.take_pipe(&pipes, at as u64, 100_000).expect("given back in the last round");
        assert!(s.ring.take_pipe(&pipes, 0, 1).is_none());
        let op = Op::Splice { file: file.clone(), offset: at as u64, pipe };
        let Event::Spliced(mut pipe) = s.done(op).unwrap() else { panic!("a pipe") };
        if pipe.is_empty() {
            break;
        }
        while !pipe.is_empty() {
            let left = pipe.len();
            let sent = match s.ring.drain(&socket, &mut pipe, left, false) {
                Ok(sent) => sent,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    0
                }
            };
            assert!(s.peer_gets(&mut peer, sent) == bytes[at..at + sent]);
            at += sent;
        }
    }
    assert_eq!(at, bytes.len());
    let op = Op::Splice { file, offset: u64::MAX, pipe: s.ring.take_pipe(&pipes, 0, 10).unwrap() };
    assert_eq!(errno(s.done(op)), libc::EINVAL);
}

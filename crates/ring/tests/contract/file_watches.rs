//! Changes of one file.

use std::ffi::CString;
use std::fs::File;

use ring::{Change, Event, Key, Op};

use super::changes::{begun, change, ends_with};
use super::stage::Stage;

on_every_driver!(
    reports_each_kind_of_change,
    a_file_that_takes_the_name_is_followed,
    a_file_that_does_not_exist_yet,
    a_file_that_goes_and_comes_back,
    a_file_in_the_root,
    paths_that_are_no_watchable_file,
    a_file_that_is_replaced_by_a_directory_ends_the_watch,
    a_file_that_is_replaced_by_a_link_ends_the_watch,
    a_cancelled_watch_ends,
    a_watch_cancelled_while_it_begins,
    a_watch_cancelled_while_it_follows,
    two_watches_of_one_file_and_one_of_its_directory,
    a_watch_of_a_file_ends_before_that_of_its_directory,
    a_file_replaced_again_and_again,
    a_removed_directory_ends_the_watch,
    a_directory_that_takes_the_path_is_followed,
    a_ring_dropped_while_it_watches,
);

mod inotify {
    //! The simulation has neither hard links nor other file systems, and its queue is as long as the
    //! test says.
    use super::*;
    on_real_drivers!(
        changes_by_another_name_are_seen,
        changes_by_another_name_of_a_new_file_are_seen,
        changes_in_a_turn_are_one,
        more_changes_than_the_kernel_keeps,
        file_systems_without_events_are_refused,
    );
}

fn submit(s: &mut Stage, path: &str) -> Key {
    let root = s.root();
    s.ring.submit(Op::WatchFile { root, path: CString::new(path).unwrap() }, 0)
}

#[track_caller]
fn watch(s: &mut Stage, path: &str) -> Key {
    let key = submit(s, path);
    begun(s, key)
}

/// The file is reported as changed, once or more often, and nothing else is reported.
#[track_caller]
fn expect(s: &mut Stage, key: Key, name: &str) {
    let expected = Change { name: Some(name.into()), directory: false };
    assert_eq!(change(s, key), expected);
    for completion in s.rest() {
        assert_eq!(completion.key, key);
        match completion.result.unwrap() {
            Event::Changed(change) => assert_eq!(change, expected),
            other => panic!("{other:?}"),
        }
    }
}

fn reports_each_kind_of_change(s: &mut Stage) {
    s.make_dir("dir");
    s.write_file("dir/file", b"old");
    s.write_file("dir/other", b"");
    let key = watch(s, "dir/file");
    s.write_file("dir/file", b"new");
    expect(s, key, "file");
    s.append("dir/file", b"er");
    expect(s, key, "file");
    s.touch("dir/file");
    expect(s, key, "file");
    s.rename("dir/file", "dir/moved");
    expect(s, key, "file");
    s.rename("dir/other", "dir/file");
    expect(s, key, "file");
    s.remove_file("dir/file");
    expect(s, key, "file");
    s.append("dir/moved", b"no longer the file");
    s.write_file("dir/files", b"");
    s.write_file("file", b"");
    s.make_dir("dir/sub");
    s.write_file("dir/sub/file", b"");
    assert!(s.rest().is_empty(), "only the file itself");
}

fn a_file_that_takes_the_name_is_followed(s: &mut Stage) {
    s.write_file("file", b"0");
    let key = watch(s, "file");
    for round in 0..5 {
        s.write_file("new", b"1");
        assert!(s.rest().is_empty());
        s.rename("new", "file");
        expect(s, key, "file");
        s.append("file", b"2");
        expect(s, key, "file");
        if round % 2 == 0 {
            s.touch("file");
            expect(s, key, "file");
        }
    }
}

fn a_file_that_does_not_exist_yet(s: &mut Stage) {
    s.make_dir("dir");
    let key = watch(s, "dir/file");
    s.write_file("dir/other", b"");
    assert!(s.rest().is_empty());
    s.write_file("dir/file", b"");
    expect(s, key, "file");
    s.append("dir/file", b"more");
    expect(s, key, "file");
}

fn a_file_that_goes_and_comes_back(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    for _ in 0..5 {
        s.remove_file("file");
        s.write_file("file", b"again");
        expect(s, key, "file");
        s.append("file", b"more");
        expect(s, key, "file");
    }
}

fn a_file_in_the_root(s: &mut Stage) {
    s.write_file("file", b"");
    let (one, two) = (watch(s, "file"), watch(s, "./file"));
    s.write_file("file", b"new");
    assert_eq!(
        (change(s, one).name, change(s, two).name),
        (Some("file".into()), Some("file".into()))
    );
}

fn paths_that_are_no_watchable_file(s: &mut Stage) {
    s.make_dir("dir");
    s.write_file("file", b"");
    s.symlink("file", "link");
    s.symlink("dir", "dirlink");
    s.symlink("nowhere", "broken");
    for (path, errno) in [
        ("", libc::EINVAL),
        (".", libc::EINVAL),
        ("..", libc::EINVAL),
        ("file/", libc::EINVAL),
        ("dir/.", libc::EINVAL),
        ("dir", libc::EISDIR),
        ("link", libc::ELOOP),
        ("broken", libc::ELOOP),
        ("dirlink/file", libc::ELOOP),
        ("missing/file", libc::ENOENT),
        ("file/file", libc::ENOTDIR),
        ("../file", libc::EXDEV),
        ("/file", libc::EXDEV),
    ] {
        let key = submit(s, path);
        assert_eq!(s.error(key).raw_os_error(), Some(errno), "{path}");
    }
    s.write_file("dir/other", b"");
    s.write_file("file", b"");
    assert!(s.rest().is_empty());
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_file_that_is_replaced_by_a_directory_ends_the_watch(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    s.remove_file("file");
    s.make_dir("file");
    ends_with(s, key, libc::EISDIR);
    s.write_file("file/file", b"");
    assert!(s.rest().is_empty());
}

fn a_file_that_is_replaced_by_a_link_ends_the_watch(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    s.symlink("elsewhere", "link");
    s.rename("link", "file");
    ends_with(s, key, libc::ELOOP);
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_cancelled_watch_ends(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    s.ring.cancel(key);
    ends_with(s, key, libc::ECANCELED);
    s.write_file("file", b"");
    assert!(s.rest().is_empty());
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_watch_cancelled_while_it_begins(s: &mut Stage) {
    s.write_file("file", b"");
    for _ in 0..20 {
        let key = submit(s, "file");
        s.ring.cancel(key);
        ends_with(s, key, libc::ECANCELED);
    }
    s.write_file("file", b"");
    assert!(s.rest().is_empty());
}

fn a_watch_cancelled_while_it_follows(s: &mut Stage) {
    for round in 0..20 {
        s.write_file("file", b"");
        let key = watch(s, "file");
        s.write_file("new", b"");
        s.rename("new", "file");
        let mut completions = Vec::new();
        for _ in 0..round % 3 {
            s.ring.wait(Some(s.ring.now()), &mut completions).unwrap();
        }
        s.ring.cancel(key);
        ends_with(s, key, libc::ECANCELED);
    }
    s.write_file("file", b"");
    assert!(s.rest().is_empty());
    let key = watch(s, "file");
    s.append("file", b"more");
    expect(s, key, "file");
}

fn two_watches_of_one_file_and_one_of_its_directory(s: &mut Stage) {
    s.write_file("file", b"");
    let root = s.root();
    let dir = s.ring.submit(Op::Watch { root, path: c"".into() }, 0);
    assert!(matches!(s.event(dir), Event::Watching { .. }));
    let (one, two) = (watch(s, "file"), watch(s, "file"));
    for key in [dir, one, two] {
        s.append("file", b"more");
        assert_eq!(change(s, key).name.unwrap(), b"file");
        s.rest();
    }
    s.write_file("other", b"");
    assert_eq!(change(s, dir).name.unwrap(), b"other");
    assert!(s.rest().iter().all(|one| one.key == dir));
    s.ring.cancel(one);
    ends_with(s, one, libc::ECANCELED);
    s.rename("other", "file");
    for key in [dir, two] {
        assert!(matches!(s.event(key), Event::Changed(_)));
    }
    s.rest();
    s.append("file", b"more");
    assert_eq!(change(s, two).name.unwrap(), b"file");
}

/// inotify gives both watches of the directory one watch descriptor.
fn a_watch_of_a_file_ends_before_that_of_its_directory(s: &mut Stage) {
    s.make_dir("dir");
    s.write_file("dir/file", b"");
    let file = watch(s, "dir/file");
    let root = s.root();
    let dir = s.ring.submit(Op::Watch { root, path: c"dir".into() }, 0);
    assert!(matches!(s.event(dir), Event::Watching { .. }));
    s.ring.cancel(file);
    ends_with(s, file, libc::ECANCELED);
    s.append("dir/file", b"more");
    assert_eq!(change(s, dir).name.unwrap(), b"file");
    s.rest();
    let file = watch(s, "dir/file");
    s.ring.cancel(dir);
    ends_with(s, dir, libc::ECANCELED);
    s.append("dir/file", b"more");
    expect(s, file, "file");
}

/// The last contents are reported, however fast the file is replaced.
fn a_file_replaced_again_and_again(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    for round in 0..50 {
        s.write_file("new", b"");
        s.rename("new", "file");
        if round % 7 == 0 {
            s.rest_now();
        }
    }
    s.rest();
    s.append("file", b"the last");
    expect(s, key, "file");
}

fn a_removed_directory_ends_the_watch(s: &mut Stage) {
    s.make_dir("dir");
    s.write_file("dir/file", b"");
    let key = watch(s, "dir/file");
    s.remove_file("dir/file");
    expect(s, key, "file");
    s.remove_dir("dir");
    ends_with(s, key, libc::ENOENT);
}

fn a_directory_that_takes_the_path_is_followed(s: &mut Stage) {
    s.make_dir("dir");
    s.write_file("dir/file", b"");
    let key = watch(s, "dir/file");
    for _ in 0..3 {
        s.make_dir("new");
        s.write_file("new/file", b"");
        s.rename("dir", "old");
        s.rename("new", "dir");
        expect(s, key, "file");
        s.append("dir/file", b"more");
        expect(s, key, "file");
        s.append("old/file", b"more");
        assert!(s.rest().is_empty());
        s.remove_file("old/file");
        s.remove_dir("old");
        assert!(s.rest().is_empty());
    }
}

fn a_ring_dropped_while_it_watches(s: &mut Stage) {
    for turns in 0..3 {
        s.write_file("file", b"");
        watch(s, "file");
        submit(s, "other");
        s.write_file("new", b"");
        s.rename("new", "file");
        let mut completions = Vec::new();
        for _ in 0..turns {
            s.ring.wait(Some(s.ring.now()), &mut completions).unwrap();
        }
        s.replace_ring();
    }
}

fn changes_by_another_name_are_seen(s: &mut Stage) {
    s.make_dir("elsewhere");
    s.write_file("file", b"");
    s.link("file", "elsewhere/name");
    let key = watch(s, "file");
    s.append("elsewhere/name", b"more");
    expect(s, key, "file");
    s.write_file("new", b"");
    s.rename("new", "file");
    expect(s, key, "file");
    s.append("elsewhere/name", b"of the old file");
    assert!(s.rest().is_empty(), "the inode is watched no more");
}

fn changes_by_another_name_of_a_new_file_are_seen(s: &mut Stage) {
    s.make_dir("elsewhere");
    let key = watch(s, "file");
    s.write_file("elsewhere/name", b"");
    s.link("elsewhere/name", "file");
    expect(s, key, "file");
    s.append("elsewhere/name", b"more");
    expect(s, key, "file");
}

fn changes_in_a_turn_are_one(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    for _ in 0..20 {
        s.append("file", b"more");
        s.write_file("other", b"");
    }
    let changes = s.some();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].key, key);
}

/// `fs.inotify.max_queued_events` is 16,384 unless it was changed.
fn more_changes_than_the_kernel_keeps(s: &mut Stage) {
    s.write_file("file", b"");
    let key = watch(s, "file");
    for _ in 0..9000 {
        s.write_file("one", b"");
        s.write_file("two", b"");
    }
    s.write_file("new", b"");
    s.rename("new", "file");
    expect(s, key, "file");
    s.append("file", b"of the inode that took the name unseen");
    expect(s, key, "file");
}

fn file_systems_without_events_are_refused(s: &mut Stage) {
    let root = s.ring.adopt_file(File::open("/").unwrap().into());
    let key = s.ring.submit(Op::WatchFile { root, path: c"proc/version".into() }, 0);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::EOPNOTSUPP));
}

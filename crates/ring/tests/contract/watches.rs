//! Changes in directories.

use std::collections::HashSet;
use std::ffi::CString;

use ring::{Change, Event, Key, Op};

use super::changes::{begun, change, ends_with};
use super::stage::Stage;

on_every_driver!(
    reports_each_kind_of_change,
    a_missing_directory_is_an_error,
    symbolic_links_are_refused,
    a_cancelled_watch_ends,
    two_watches_of_one_directory,
    a_watch_begun_while_another_ends,
    a_watch_cancelled_while_it_begins,
    a_removed_directory_changes,
    watches_the_root_itself,
);

mod inotify {
    //! The simulation's queue is as long as the test says, and its directories have no attributes.
    use super::*;
    on_real_drivers!(
        attributes_of_a_directory_are_told_by_the_one_above_and_those_of_the_root_by_itself,
        a_burst_of_changes_comes_in_portions_and_whole,
        equal_changes_in_a_row_are_one,
        more_changes_than_the_kernel_keeps,
        a_change_comes_before_what_was_received_after_it,
    );
}

fn submit(s: &mut Stage, path: &str) -> Key {
    let root = s.root();
    s.ring.submit(Op::Watch { root, path: CString::new(path).unwrap() }, 0)
}

#[track_caller]
fn watch(s: &mut Stage, path: &str) -> Key {
    let key = submit(s, path);
    begun(s, key)
}

/// The next changes, any number of them, are of this entry.
#[track_caller]
fn expect(s: &mut Stage, key: Key, names: &[&str]) {
    let mut seen = vec![false; names.len()];
    while seen.contains(&false) {
        let name = change(s, key).name.unwrap();
        let at = names.iter().position(|one| one.as_bytes() == name);
        seen[at.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(&name)))] = true;
    }
    for completion in s.rest() {
        match completion.result.unwrap() {
            Event::Changed(Change { name: Some(name), .. }) => {
                assert!(names.iter().any(|one| one.as_bytes() == name));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn reports_each_kind_of_change(s: &mut Stage) {
    s.make_dir("dir");
    s.write_file("elsewhere", b"");
    let key = watch(s, "dir");
    s.write_file("dir/file", b"created");
    expect(s, key, &["file"]);
    s.write_file("dir/file", b"modified");
    expect(s, key, &["file"]);
    s.rename("dir/file", "dir/other");
    expect(s, key, &["file", "other"]);
    s.rename("elsewhere", "dir/other");
    expect(s, key, &["other"]);
    s.remove_file("dir/other");
    expect(s, key, &["other"]);
    s.make_dir("dir/sub");
    let made = change(s, key);
    assert!(made.directory && made.name.unwrap() == b"sub");
    s.write_file("dir/sub/deeper", b"");
    s.write_file("outside", b"");
    assert!(s.rest().is_empty(), "only entries of the directory itself");
}

fn a_missing_directory_is_an_error(s: &mut Stage) {
    s.write_file("file", b"");
    let missing = submit(s, "missing");
    assert_eq!(s.error(missing).raw_os_error(), Some(libc::ENOENT));
    let file = submit(s, "file");
    assert_eq!(s.error(file).raw_os_error(), Some(libc::ENOTDIR));
}

fn symbolic_links_are_refused(s: &mut Stage) {
    s.make_dir("dir");
    s.symlink("dir", "link");
    let key = submit(s, "link");
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ELOOP));
}

fn a_cancelled_watch_ends(s: &mut Stage) {
    let key = watch(s, "");
    s.ring.cancel(key);
    ends_with(s, key, libc::ECANCELED);
    s.write_file("file", b"");
    assert!(s.rest().is_empty());
    assert_eq!(s.ring.in_flight(), 0);
}

fn two_watches_of_one_directory(s: &mut Stage) {
    let (one, two) = (watch(s, "."), watch(s, ""));
    s.write_file("file", b"");
    assert_eq!(change(s, one).name.unwrap(), b"file");
    assert_eq!(change(s, two).name.unwrap(), b"file");
    s.rest();
    s.ring.cancel(one);
    ends_with(s, one, libc::ECANCELED);
    s.write_file("other", b"");
    expect(s, two, &["other"]);
}

/// inotify gives both the same watch descriptor.
fn a_watch_begun_while_another_ends(s: &mut Stage) {
    s.make_dir("dir");
    let mut old = watch(s, "dir");
    for round in 0..20 {
        let new = submit(s, "dir");
        if round % 2 == 0 {
            s.ring.cancel(old);
        } else {
            assert!(matches!(s.event(new), Event::Watching { .. }));
            s.ring.cancel(old);
        }
        ends_with(s, old, libc::ECANCELED);
        if round % 2 == 0 {
            assert!(matches!(s.event(new), Event::Watching { .. }));
        }
        let name = format!("file{round}");
        s.write_file(&format!("dir/{name}"), b"");
        expect(s, new, &[&name]);
        s.ring.cancel(new);
        old = watch(s, "dir");
        ends_with(s, new, libc::ECANCELED);
    }
    s.write_file("dir/last", b"");
    expect(s, old, &["last"]);
}

fn a_watch_cancelled_while_it_begins(s: &mut Stage) {
    for _ in 0..20 {
        let key = submit(s, "");
        s.ring.cancel(key);
        ends_with(s, key, libc::ECANCELED);
    }
    s.write_file("file", b"");
    assert!(s.rest().is_empty());
}

fn a_removed_directory_changes(s: &mut Stage) {
    s.make_dir("dir");
    let key = watch(s, "dir");
    s.remove_dir("dir");
    assert_eq!(change(s, key).name, None, "assume everything");
    s.ring.cancel(key);
    ends_with(s, key, libc::ECANCELED);
}

fn a_burst_of_changes_comes_in_portions_and_whole(s: &mut Stage) {
    const FILES: usize = 3000;
    let key = watch(s, "");
    for number in 0..FILES {
        s.write_file(&format!("file{number}"), b"");
    }
    let mut seen = HashSet::new();
    let mut most = 0;
    while seen.len() < FILES {
        let portion = s.some();
        most = most.max(portion.len());
        for completion in portion {
            assert_eq!(completion.key, key);
            let Ok(Event::Changed(Change { name: Some(name), .. })) = completion.result else {
                panic!("a change of a file");
            };
            seen.insert(name);
        }
    }
    assert!(most <= 512, "{most} at once");
    assert!(s.rest().is_empty());
    s.write_file("file", b"");
    expect(s, key, &["file"]);
}

fn equal_changes_in_a_row_are_one(s: &mut Stage) {
    let key = watch(s, "");
    for _ in 0..30 {
        s.write_file("file", b"contents");
    }
    s.write_file("other", b"");
    s.write_file("file", b"contents");
    let names: Vec<_> = (0..3).map(|_| change(s, key).name.unwrap()).collect();
    assert_eq!(names, [&b"file"[..], b"other", b"file"]);
    assert!(s.rest().is_empty());
}

/// `fs.inotify.max_queued_events` is 16,384 unless it was changed.
fn more_changes_than_the_kernel_keeps(s: &mut Stage) {
    let key = watch(s, "");
    for _ in 0..6000 {
        s.write_file("one", b"");
        s.write_file("two", b"");
    }
    loop {
        let change = change(s, key);
        if change.name.is_none() {
            break;
        }
    }
    s.write_file("last", b"");
    while change(s, key).name.as_deref() != Some(b"last") {}
}

fn attributes_of_a_directory_are_told_by_the_one_above_and_those_of_the_root_by_itself(
    s: &mut Stage,
) {
    s.make_dir("dir");
    let (root, _dir) = (watch(s, ""), watch(s, "dir"));
    s.touch("dir");
    let told = change(s, root);
    assert_eq!(told, Change { name: Some(b"dir".to_vec()), directory: true });
    assert!(s.rest().is_empty(), "only the one above tells");
    s.touch("");
    assert_eq!(change(s, root), Change { name: None, directory: true });
    assert!(s.rest().is_empty());
}

fn watches_the_root_itself(s: &mut Stage) {
    let key = watch(s, "");
    s.write_file("index.html", b"hello");
    expect(s, key, &["index.html"]);
}

/// A client that got an event may ask for the changed file.
fn a_change_comes_before_what_was_received_after_it(s: &mut Stage) {
    let key = watch(s, "");
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket), 0);
    s.rest();
    for round in 0..20 {
        // Something that is received before the change, so that it is not looked at by itself.
        peer.send(b"before");
        s.write_file(&format!("file {round}"), b"contents");
        peer.send(b"after");
        std::thread::sleep(core::time::Duration::from_millis(2));
        let mut received = Vec::new();
        let mut is_told = false;
        while !received.ends_with(b"after") {
            for completion in s.some() {
                match completion.result.unwrap() {
                    Event::Changed(_) if completion.key == key => is_told = true,
                    Event::Received(buffer) if completion.key == recv => {
                        received.extend_from_slice(&buffer)
                    }
                    other => panic!("{other:?}"),
                }
                assert!(is_told || !received.ends_with(b"after"), "round {round}");
            }
        }
        s.rest();
    }
}

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::record::Kind;

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A storage in a temporary directory.
fn storage() -> (tempfile::TempDir, Storage) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("acme");
    Storage::make(&path, None).unwrap();
    let storage = Storage::open(&path, own()).unwrap();
    (directory, storage)
}

fn challenge(token: &str) -> Challenge {
    let (name, authorization) = ("a.example".to_owned(), format!("{token}.x"));
    Challenge { kind: Kind::Http, name, token: token.to_owned(), authorization }
}

#[test]
fn the_directory_and_its_files_are_for_the_owner_alone() {
    let (_directory, storage) = storage();
    storage.write("a.pem", b"1").unwrap();
    storage.write("a.pem", b"two").unwrap();
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode(&storage.path), mode(&storage.path.join("a.pem"))), (0o700, 0o600));
    assert_eq!(storage.read("a.pem").unwrap().unwrap().as_slice(), b"two");
    assert_eq!(fs::read_dir(&storage.path).unwrap().count(), 1, "nothing else is left");
    assert!(storage.read("b.pem").unwrap().is_none());
    // A second start finds it as it is.
    Storage::make(&storage.path, None).unwrap();
}

#[test]
fn a_directory_that_others_could_change_is_refused_with_a_remedy() {
    let (directory, storage) = storage();
    let path = storage.path.clone();
    let open = |path: &Path, user| Storage::open(path, user).unwrap_err().to_string();
    let at = |name: &str| directory.path().join(name);
    symlink(&path, at("link")).unwrap();
    fs::write(at("file"), "").unwrap();
    for (path, user, expected) in [
        (at("none"), own(), "there is no storage of certificates"),
        (at("link"), own(), "is a symbolic link"),
        (at("file"), own(), "is no directory"),
        (path.clone(), own() + 1, "run `chown -R"),
    ] {
        let text = open(&path, user);
        assert!(text.contains(expected), "{text}");
    }
    for mode in [0o720, 0o702, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let text = open(&path, own());
        assert!(text.contains(&format!("mode {mode:04o}): run `chmod 700 ")), "{text}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Storage::open(&path, own()).unwrap();
    let text = Storage::make(&at("none/acme"), None).unwrap_err();
    assert!(text.ends_with("make the directory around it"), "{text}");
    assert_eq!(Storage::try_make(&at("none/acme")), Err(text));
    for name in ["new", "acme", "link", "file", "file/acme"] {
        assert_eq!(Storage::try_make(&at(name)), Ok(()), "{name}");
    }
    assert!(!at("new").exists());
}

#[test]
fn a_link_in_the_storage_leads_nowhere() {
    let (directory, storage) = storage();
    let target = directory.path().join("target");
    fs::write(&target, "before").unwrap();
    for name in ["a.json", ".a.json.new", "lock"] {
        symlink(&target, storage.path.join(name)).unwrap();
    }
    assert!(storage.read("a.json").is_err());
    assert!(storage.lock().is_err());
    storage.write("a.json", b"new").unwrap();
    assert_eq!(fs::read_to_string(target).unwrap(), "before");
    assert_eq!(storage.read("a.json").unwrap().unwrap().as_slice(), b"new");
}

#[test]
fn one_has_the_lock_until_it_is_dropped() {
    let (_directory, storage) = storage();
    let other = Storage::open(&storage.path, own()).unwrap();
    let lock = storage.lock().unwrap().unwrap();
    assert!(other.lock().unwrap().is_none());
    drop(lock);
    assert!(other.lock().unwrap().is_some());
}

#[test]
fn challenges_are_those_that_were_added_and_not_removed() {
    let (_directory, storage) = storage();
    let before = storage.marks().unwrap();
    for token in ["one", "two-_"] {
        storage.add(&challenge(token)).unwrap();
    }
    assert_ne!(storage.marks().unwrap(), before);
    // Damaged, of another name, half written.
    storage.write("bad.challenge", b"{").unwrap();
    storage.write("other.challenge", challenge("one").to_text().as_bytes()).unwrap();
    fs::write(storage.path.join(".x.challenge.new"), challenge("x").to_text()).unwrap();
    let mut all = storage.challenges().unwrap();
    all.sort_by(|one, other| one.token.cmp(&other.token));
    assert_eq!(all, [challenge("one"), challenge("two-_")]);
    storage.remove_challenge("one").unwrap();
    storage.remove_challenge("one").unwrap();
    assert_eq!(storage.challenges().unwrap(), [challenge("two-_")]);
}

#[test]
fn a_file_that_is_too_long_or_no_file_is_refused() {
    let (_directory, storage) = storage();
    fs::write(storage.path.join("long"), vec![b'x'; (1 << 20) + 1]).unwrap();
    assert!(storage.read("long").unwrap_err().contains("more than 1 MiB"));
    fs::create_dir(storage.path.join("dir")).unwrap();
    assert!(storage.read("dir").unwrap_err().contains("not a regular file"));
    let error = storage.write("dir", b"x").unwrap_err();
    assert!(error.starts_with("cannot write "), "{error}");
    assert_eq!(fs::read_dir(&storage.path).unwrap().count(), 2, "nothing half written is left");
}

//! Storages that must not be used, or cannot be.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// The errors of `samum check` and of a start.
fn errors(tree: &Tree, text: &str) -> [String; 2] {
    let serve = serving(tree, text);
    let mut check = Command::new(SAMUM);
    check.arg("check").arg(tree.path().join("samum.toml"));
    [check, serve].map(|mut command| {
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        error
    })
}

#[test]
fn a_storage_of_others_is_refused_with_a_remedy() {
    let tree = Tree::new();
    let text = config(Ports::new(), "uring", "agree-terms = true", "", &[&["a.example"]]);
    let path = tree.path().join("acme");
    let refused = |expected: &str| {
        for error in errors(&tree, &text) {
            assert!(error.contains(expected), "{error}");
        }
    };
    symlink(tree.path(), &path).unwrap();
    refused("is a symbolic link, which may lead anywhere: name the directory itself");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    refused("is no directory");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    refused("may be written to by others (mode 0770): run `chmod 700 ");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        refused(
            "belongs to the user 65534, and not to the user of the server (0): run `chown -R 0 ",
        );
    }
}

/// A server that starts only tells of these, and tries again later.
#[test]
fn a_check_names_files_that_the_user_cannot_use() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip!("only root becomes another user");
    }
    let tree = Tree::new();
    tree.write("ca.pem", crate::tls::Authority::new().pem().as_bytes());
    tree.write("eab.key", b"c2VjcmV0");
    // The directory of a test is for its owner alone.
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let keys = "directory = \"https://localhost/dir\"\nca = \"ca.pem\"\nagree-terms = true\n\
                eab = { id = \"kid-1\", key-file = \"eab.key\" }";
    let text = config(Ports::new(), "uring", keys, "user = \"nobody\"", &[&["a.example"]]);
    tree.write("samum.toml", text.as_bytes());
    let checked = || {
        let mut check = Command::new(SAMUM);
        check.args(["check", "--quiet"]).arg(tree.path().join("samum.toml"));
        let output = check.env_remove("STATE_DIRECTORY").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let is_good = (Some(0), String::new());
    assert_eq!(checked(), is_good, "the server makes the storage");
    let close = |name: &str, mode: u32| {
        fs::set_permissions(tree.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["ca.pem", "eab.key"] {
        close(name, 0o600);
        let (code, error) = checked();
        assert_eq!(code, Some(1), "{error}");
        let path = tree.path().join(name).display().to_string();
        assert!(
            error.contains(&format!("error: cannot read {path}: permission denied")),
            "{error}"
        );
        assert!(error.contains(&format!("\"{name}\"")), "the line of the file: {error}");
        close(name, 0o644);
    }
    tree.write("ca.pem", b"no certificate");
    assert!(checked().1.contains("ca.pem has no certificate of an authority"), "{:?}", checked());
    tree.write("ca.pem", crate::tls::Authority::new().pem().as_bytes());
    let storage = tree.path().join("acme");
    fs::create_dir(&storage).unwrap();
    std::os::unix::fs::chown(&storage, Some(65_534), None).unwrap();
    close("acme", 0o500);
    let (code, error) = checked();
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("error: cannot write to ") && error.contains("permission denied"),
        "{error}"
    );
    close("acme", 0o700);
    assert_eq!(checked(), is_good);
    let far = text.replace("storage = \"acme\"", "storage = \"none/acme\"");
    for error in errors(&tree, &far) {
        assert!(error.contains("make the directory around it"), "{error}");
    }
}

/// A disk that is full, or can only be read: the server serves, and no authority is asked.
#[test]
fn a_storage_that_takes_nothing_is_told_and_nothing_is_ordered() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip!("only root can mount a disk");
    }
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    for (options, expected) in
        [("size=4k,nr_inodes=1", "no space left on device"), ("ro", "read-only file system")]
    {
        let tree = Tree::new();
        let path = tree.path().join("acme");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let options = format!("{options},mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(&path)
            .status()
            .unwrap();
        if !mounted.success() {
            testkit::skip!("no tmpfs can be mounted");
        }
        let unmount = Unmount(path);
        let server = start(&tree, &config(ports, "uring", &pebble.keys(), "", &[&["a.example"]]));
        let line = server.wait_for_stderr("no certificate is ordered meanwhile", SOON);
        let line = line.unwrap_or_else(|| panic!("{:?}", server.stderr()));
        assert!(line.contains(expected), "{line}");
        assert!(has(&shown(ports.tls, "a.example").unwrap(), b"self-signed"));
        drop(server);
        drop(unmount);
    }
    assert_eq!(pebble.orders(), 0);
}

/// A disk that is mounted.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

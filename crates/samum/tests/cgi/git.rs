//! A program that was not written for this test: `git http-backend`.

use std::path::Path;
use std::process::Command;

use testkit::skip;

use crate::cgi::stage::{on_both_drivers, script, serve_with, tree};

const BACKEND: &str = "/usr/lib/git-core/git-http-backend";

/// Runs git, without the configuration of this user.
#[track_caller]
fn git(directory: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .args(args)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", directory);
    for (name, value) in [("NAME", "Test"), ("EMAIL", "test@example.org")] {
        command
            .env(format!("GIT_AUTHOR_{name}"), value)
            .env(format!("GIT_COMMITTER_{name}"), value);
    }
    let output = command.output().expect("git");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn git_clones_and_pushes() {
    if !Path::new(BACKEND).exists() {
        skip!("{BACKEND} is not installed");
    }
    on_both_drivers(|driver| {
        let tree = tree().directory("repositories").directory("work");
        let (repositories, work) = (tree.path().join("repositories"), tree.path().join("work"));
        script(&tree, "git", &format!("exec {BACKEND}"));
        git(&repositories, &["init", "-q", "--bare", "a.git"]);
        git(&repositories.join("a.git"), &["config", "http.receivepack", "true"]);
        let root = repositories.display();
        let keys = format!(
            "environment = {{ GIT_PROJECT_ROOT = '{root}', GIT_HTTP_EXPORT_ALL = '1', \
             GIT_CONFIG_NOSYSTEM = '1', HOME = '{root}' }}"
        );
        let stage = serve_with(driver, &tree, &keys);
        let testkit::Address::Tcp(address) = stage.server.address() else { unreachable!() };
        let url = format!("http://{address}/tool/git/a.git");
        git(&work, &["clone", "-q", &url, "one"]);
        let one = work.join("one");
        // More than a pipe holds, and not compressible; and more than git sends with a length.
        for (copy, length) in [("two", 600_000), ("three", 5 * 1024 * 1024)] {
            let bytes = testkit::Content::pseudo_random(1, length as u64).read(0, length);
            std::fs::write(one.join("file"), &bytes).unwrap();
            git(&one, &["add", "file"]);
            git(&one, &["commit", "-q", "-m", copy]);
            git(&one, &["push", "-q", "origin", "HEAD:main"]);
            git(&work, &["clone", "-q", "-b", "main", &url, copy]);
            assert!(std::fs::read(work.join(copy).join("file")).unwrap() == bytes);
        }
        assert_eq!(stage.counts().failed, 0);
    });
}

//! A server that becomes another user and is confined: what it may do then, and what it may not. As root, on both
//! drivers.

mod files;
mod start;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use testkit::{Server, Tree};

use crate::common::{SAMUM, ask};

/// The number of the user `nobody`, and of its group.
const NOBODY: u32 = 65_534;

/// A tree whose parts are so far apart that none is around another one:
///
/// - `etc/samum.toml`, `log/access`, `run/control`,
/// - `site/www`, which is served, and `site/other`,
/// - `cgi/programs`, which may write to `state` and to their own directory as far as permissions count,
/// - `outside/secret`, which everybody may read, and no rule allows.
struct Place {
    tree: Tree,
}

impl Place {
    /// Makes the tree; `Err` if this process is not root, or the kernel has no Landlock.
    fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("another user: needs root".to_owned());
        }
        let layer = rights::Layer::new(false).map_err(|error| error.to_string())?;
        let support = thread::spawn(|| layer.enforce()).join().expect("no panic");
        if !support.map_err(|error| error.to_string())?.is_some() {
            return Err("this kernel has no Landlock".to_owned());
        }
        let tree = Tree::new()
            .file("site/www/a", "a file")
            .file("site/other/a", "another file")
            .file("outside/secret", "secret")
            .file("extra/text", "extra")
            .directory("etc");
        for name in ["log", "run", "state", "buffers", "cgi/programs"] {
            fs::create_dir_all(tree.path().join(name)).expect("a directory");
            chown(tree.path().join(name), Some(NOBODY), Some(NOBODY)).expect("by root");
        }
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).expect("by root");
        Ok(Self { tree })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    /// Writes a configuration with these keys of `[server]` and these routes, in which `ROOT` is the tree.
    fn write(&self, driver: &str, keys: &str, routes: &str) {
        let root = self.tree.path().display().to_string();
        let config = format!(
            "[server]\ndriver = '{driver}'\nthreads = 2\ncontrol = 'ROOT/run/control'\n{keys}\n\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nlog = {{ file = 'ROOT/log/access' }}\n\n{routes}"
        );
        self.tree.write("etc/samum.toml", config.replace("ROOT", &root).as_str());
        // A control socket is refused in a directory of another user than the server's.
        let owner = if keys.contains("user") { NOBODY } else { 0 };
        chown(self.path("run"), Some(owner), Some(owner)).expect("by root");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(SAMUM);
        command.args(["serve", "--config"]).arg(self.path("etc/samum.toml"));
        command
    }

    /// Serves by a configuration as [`write`](Self::write) makes it.
    #[track_caller]
    fn serve(&self, driver: &str, keys: &str, routes: &str) -> Server {
        self.write(driver, keys, routes);
        Server::spawn(&mut self.command()).expect("the server starts")
    }

    /// Runs `samum reload`. Returns whether that succeeds, and what it prints.
    fn reload(&self) -> (bool, String) {
        let mut command = Command::new(SAMUM);
        let output = command.args(["reload", "--control"]).arg(self.path("run/control")).output();
        let output = output.expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("UTF-8"))
    }

    /// Writes a shell script to the directory of programs.
    fn script(&self, name: &str, text: &str) {
        let path = format!("cgi/programs/{name}");
        let root = self.tree.path().display().to_string();
        let text = format!("#!/bin/sh\necho 'Content-Type: text/plain'; echo\n{text}\n");
        self.tree.write(&path, text.replace("ROOT", &root).as_str());
        fs::set_permissions(self.path(&path), fs::Permissions::from_mode(0o755)).expect("by root");
    }
}

const WWW: &str = "[[site.route]]\nfiles = 'ROOT/site/www'\n";

/// The text of a page with this status.
#[track_caller]
fn page(server: &Server, path: &str, status: u16) -> String {
    let response = ask(server, &format!("GET {path}"));
    assert_eq!(response.status, status, "{path}: {:?}", server.stderr());
    String::from_utf8(response.body).expect("a text")
}

/// The lines of `/proc/PID/task/TID/status` that begin with these words, for each thread.
fn statuses(server: &Server, words: &[&str]) -> Vec<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let status = |task: std::io::Result<fs::DirEntry>| {
        // A thread may have ended.
        let text = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let is_asked = |line: &&str| words.iter().any(|word| line.starts_with(word));
        Some(text.lines().filter(is_asked).map(normal).collect())
    };
    tasks.filter_map(status).collect()
}

fn normal(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Points a symbolic link to another target, as a deploy does.
fn point(link: &Path, target: &str) {
    let next = link.with_extension("next");
    std::os::unix::fs::symlink(target, &next).expect("a new name");
    fs::rename(next, link).expect("in one directory");
}

//! The files that are run and not sent: programs, and the scripts of applications.
//!
//! Another route may serve a directory with the same files, and would send the source of a script: a route for all
//! files together with one for `*.php`, or one whose directory contains the directory of the programs. The rules:
//!
//! - A file below the directory of programs is not sent.
//! - In the directory of an application's scripts, and below it, a file with the name of a script is not sent, in any
//!   spelling. Some disks ignore case, others leave out dots and spaces at the end of a name, and a compressed script
//!   is its source, too. The application's own route runs the scripts that are spelled as the route expects.
//! - A file that is found through a symbolic link also has its own name, and both names must be of a file that is sent.
//!
//! The source of a script must not leave by any route or spelling. In all trees, the response is a 404 for a file in a
//! directory of scripts that has the name of a script in any case, or of a compressed script. It is also a 404 for a
//! file below a directory of programs, and for a script to which another route's fallback or an error page leads.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Action, Fastcgi, Route, SCRIPT_SUFFIX};

/// Suffixes of scripts in addition to [`SCRIPT_SUFFIX`], in lower case.
const OTHER_SUFFIXES: [&str; 7] = [".phtml", ".php3", ".php4", ".php5", ".php6", ".php7", ".php8"];
/// Suffixes of compressed files, in lower case.
const CODED_SUFFIXES: [&str; 3] = [".gz", ".br", ".zst"];

/// The files of a tree that are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// True if the route of the tree runs scripts of its own.
    runs_scripts: bool,
    /// The directories of scripts in the tree; an empty path is the whole tree.
    scripts: Vec<Box<[u8]>>,
    /// The directories of programs in the tree.
    programs: Vec<Box<[u8]>>,
    /// The paths of the tree itself.
    roots: Vec<PathBuf>,
    /// All directories of scripts, and the directories of programs outside of which the tree is, for links that lead
    /// there.
    targets: Runners,
}

impl Sources {
    /// Returns whether a file of the tree is not sent because of its path in the tree.
    pub fn hide(&self, name: &[u8]) -> bool {
        self.programs.iter().any(|directory| is_in(directory, name))
            || (self.is_among_scripts(name) && !self.is_run(name) && is_like_script(name))
    }

    /// Returns whether a file is not sent because of its own path, to which a link at `name` leads.
    pub fn hide_target(&self, name: &[u8], target: &Path) -> bool {
        let is_below = |directory: &PathBuf| target.starts_with(directory);
        if self.targets.programs.iter().any(is_below) {
            return true;
        }
        // Outside of the tree, the file may be linked to a directory of scripts.
        let is_outside = !self.targets.scripts.is_empty() && !self.roots.iter().any(is_below);
        let is_among =
            is_outside || self.is_among_scripts(name) || self.targets.scripts.iter().any(is_below);
        let target = target.as_os_str().as_bytes();
        // The kernel adds this to the path of a file that was replaced meanwhile.
        let target = target.strip_suffix(b" (deleted)").unwrap_or(target);
        is_among && !self.is_run(name) && is_like_script(target)
    }

    fn is_among_scripts(&self, name: &[u8]) -> bool {
        self.scripts.iter().any(|directory| is_in(directory, name))
    }

    /// Returns true if the route of the tree runs a file.
    fn is_run(&self, name: &[u8]) -> bool {
        self.runs_scripts && name.ends_with(SCRIPT_SUFFIX.as_bytes())
    }
}

/// Returns true if a path is below a directory of the tree; every path is below the empty one.
fn is_in(directory: &[u8], name: &[u8]) -> bool {
    let rest = name.strip_prefix(directory);
    directory.is_empty() || rest.is_some_and(|rest| rest.starts_with(b"/"))
}

/// The directories of a configuration whose files are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runners {
    scripts: Vec<PathBuf>,
    programs: Vec<PathBuf>,
}

impl Runners {
    /// Those of these routes.
    pub fn of<'a>(routes: impl Iterator<Item = &'a Route>) -> Self {
        let mut runners = Self::default();
        for route in routes {
            match &route.action {
                Action::Fastcgi(Fastcgi { files, root, .. }) => {
                    let roots = files.as_ref().map(|files| &files.root).into_iter().chain(root);
                    runners.scripts.extend(roots.flat_map(|root| names(root)));
                }
                Action::Cgi(cgi) => runners.programs.extend(names(&cgi.root)),
                _ => {}
            }
        }
        runners
    }

    /// The files that the tree of a directory does not send. `own`: the route of the tree runs its scripts.
    pub fn below(&self, root: &Path, own: bool) -> Option<Arc<Sources>> {
        if self.scripts.is_empty() && self.programs.is_empty() {
            return None;
        }
        let mut sources =
            Sources { runs_scripts: own, targets: self.clone(), ..Sources::default() };
        for root in names(root) {
            // A directory with programs and files is for its files, too.
            sources.targets.programs.retain(|directory| !root.starts_with(directory));
            sources.roots.push(root.clone());
            let below = |directory: &PathBuf| -> Option<Box<[u8]>> {
                directory.strip_prefix(&root).ok().map(|rest| rest.as_os_str().as_bytes().into())
            };
            let within = |directory: &&PathBuf| root.starts_with(directory);
            sources.scripts.extend(self.scripts.iter().filter_map(below));
            sources.scripts.extend(self.scripts.iter().filter(within).map(|_| Box::default()));
            // An empty path would be the tree itself, whose files are served.
            let programs = self.programs.iter().filter_map(below);
            sources.programs.extend(programs.filter(|directory| !directory.is_empty()));
        }
        for all in [&mut sources.scripts, &mut sources.programs] {
            all.sort_unstable();
            all.dedup();
        }
        Some(Arc::new(sources))
    }
}

/// The names of a directory: the one in the configuration, and the one without symbolic links.
fn names(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let absolute = std::path::absolute(directory).ok();
    let real = fs::canonicalize(directory).ok().filter(|real| Some(real) != absolute.as_ref());
    absolute.into_iter().chain(real)
}

/// Returns whether a name is that of a script, in any spelling, or of a compressed script.
pub fn is_like_script(name: &[u8]) -> bool {
    let mut name = name;
    loop {
        name = trimmed(name);
        let coded = CODED_SUFFIXES.iter().find_map(|suffix| without(name, suffix));
        match coded {
            Some(rest) => name = rest,
            None => break,
        }
    }
    let mut suffixes = OTHER_SUFFIXES.iter().chain(&[SCRIPT_SUFFIX]);
    suffixes.any(|suffix| without(name, suffix).is_some())
}

/// A name without this suffix, in any case, if it has the suffix.
fn without<'a>(name: &'a [u8], suffix: &str) -> Option<&'a [u8]> {
    let (rest, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
    end.eq_ignore_ascii_case(suffix.as_bytes()).then_some(rest)
}

/// A name without the characters that some file systems ignore at its end.
fn trimmed(name: &[u8]) -> &[u8] {
    let is_seen = |byte: &u8| !matches!(byte, b'.' | b'/') && !byte.is_ascii_whitespace();
    let end = name.iter().rposition(is_seen).map_or(0, |last| last + 1);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_one_however_its_name_is_spelled() {
        for name in [
            "a.php",
            "a.PHP",
            "a.pHp",
            "a.php.",
            "a.php ",
            "a.php . .",
            "a.php/",
            "a.phtml",
            "a.php5",
            "a.php.gz",
            "a.PHP.GZ",
            "a.php.br",
            "a.php.zst",
            "a.php.gz.br",
            "d/.php",
            "a.jpg.php",
        ] {
            assert!(is_like_script(name.as_bytes()), "{name}");
        }
        for name in
            ["a", "a.phps", "a.phpx", "php", "a.php/b", "a.php.txt", "a.gz", "", ".gz", "phar"]
        {
            assert!(!is_like_script(name.as_bytes()), "{name}");
        }
    }

    fn runners(scripts: &[&str], programs: &[&str]) -> Runners {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Runners { scripts: paths(scripts), programs: paths(programs) }
    }

    #[test]
    fn sources_are_hidden_where_they_are_run() {
        let hidden = |root: &str, own: bool, name: &str| {
            let all = runners(&["/none/www"], &["/none/www/cgi-bin", "/none/cgi"]);
            let sources = all.below(Path::new(root), own);
            sources.is_some_and(|sources| sources.hide(name.as_bytes()))
        };
        for (root, own, name, expected) in [
            // The tree of the scripts itself, and one of the same directory.
            ("/none/www", true, "a.php", false),
            ("/none/www", true, "a.PHP", true),
            ("/none/www", true, "a.php.gz", true),
            ("/none/www", false, "a.php", true),
            ("/none/www", false, "a.txt", false),
            ("/none/www", false, "d/index.php", true),
            ("/none/www", true, "cgi-bin/a", true),
            ("/none/www", false, "cgi-binary/a", false),
            // Below it, and above it.
            ("/none/www/d", false, "a.php", true),
            ("/none", false, "www/a.php", true),
            ("/none", false, "wwwa.php", false),
            ("/none", false, "other/a.php", false),
            ("/none", false, "cgi/a", true),
            ("/none", false, "cgi/lib/config", true),
            ("/none", false, "cgi", false),
            // Elsewhere.
            ("/other", false, "a.php", false),
            // A directory that has programs and files.
            ("/none/cgi", false, "a.css", false),
        ] {
            assert_eq!(hidden(root, own, name), expected, "{root} {own} {name}");
        }
        assert_eq!(runners(&[], &[]).below(Path::new("/none"), false), None);
    }

    #[test]
    fn a_file_behind_a_link_has_its_own_name_too() {
        let hidden = |root: &str, own: bool, name: &str, target: &str| {
            let all = runners(&["/none/www"], &["/none/www/cgi-bin", "/none/cgi"]);
            let sources = all.below(Path::new(root), own).unwrap();
            sources.hide_target(name.as_bytes(), Path::new(target))
        };
        for (root, own, name, target, expected) in [
            ("/none/www", true, "a.txt", "/none/www/a.php", true),
            ("/none/www", false, "a.txt", "/none/www/a.php", true),
            ("/none/www", true, "a.txt", "/none/www/a.php (deleted)", true),
            ("/none/www", true, "a.txt.gz", "/none/www/a.php.gz", true),
            ("/none/www", true, "a.txt", "/none/www/b.txt", false),
            ("/none/www", true, "a.php", "/none/www/b.php", false),
            ("/none/www", false, "a.txt", "/none/www/cgi-bin/tool", true),
            // Scripts on another disk, and a link from elsewhere.
            ("/none/www", true, "a.txt", "/disk/a.php", true),
            ("/other", false, "d/a.php", "/none/www/a.php", true),
            ("/other", false, "a", "/none/cgi/tool", true),
            ("/other", false, "a.php", "/other/b.php", false),
            ("/other", false, "a.txt", "/disk/a.php", true),
            ("/other", false, "a.txt", "/disk/b.txt", false),
            // A directory that has programs and files.
            ("/none/cgi", false, "a.css", "/none/cgi/b.css", false),
        ] {
            assert_eq!(hidden(root, own, name, target), expected, "{root} {own} {name} {target}");
        }
    }
}

//! Warnings about a configuration that depend on the machine. Each start and each check gives them.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use config::errno::words;
use config::file::Loaded;
use config::{Action, Cgi, Confine, Fastcgi, Message, Symlinks, Thing};
use gateways::quota;

/// The kinds of file systems that are in memory (statfs(2)): tmpfs and ramfs.
pub(crate) const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Returns all of these warnings.
pub(crate) fn of(loaded: &Loaded) -> Vec<Message> {
    let mut warnings = of_links(loaded);
    warnings.extend(of_body_files(loaded));
    warnings.extend(of_programs(loaded));
    warnings
}

fn is_confined(loaded: &Loaded) -> bool {
    loaded.config.server.confine() != Confine::Off
}

/// Warns of files that programs of a confined server should get, and that do not exist.
fn of_programs(loaded: &Loaded) -> Vec<Message> {
    let routes = loaded.config.sites.iter().flat_map(|site| &site.routes);
    let programs = routes.filter_map(|route| match &route.action {
        Action::Cgi(cgi) if is_confined(loaded) => Some(cgi),
        _ => None,
    });
    let missing = programs.flat_map(|cgi| {
        let all = cgi.read.iter().chain(&cgi.write);
        all.filter_map(move |path| Some((cgi, path, path.metadata().err()?)))
    });
    let warn = |(cgi, path, error): (&Cgi, &PathBuf, io::Error)| {
        let (shown, why) = (path.display(), words(&error));
        let text = format!(
            "programs cannot use {shown}: {why} (a confined server must find it when it starts)"
        );
        loaded.warning(&Thing::Directory(cgi.root.clone()), &text)
    };
    missing.map(warn).collect()
}

/// Warns of directories into which symbolic links may lead: if they are no directories, and always if root would read
/// them.
fn of_links(loaded: &Loaded) -> Vec<Message> {
    let routes = loaded.config.sites.iter().flat_map(|site| &site.routes);
    let rules = routes.filter_map(|route| match &route.action {
        Action::Files(files) | Action::Fastcgi(Fastcgi { files: Some(files), .. }) => {
            Some(&files.rules.symlinks)
        }
        _ => None,
    });
    let is_root = geteuid().is_root() && loaded.config.server.user.is_none();
    let mut seen = HashSet::new();
    let mut warnings = Vec::new();
    for dir in rules.flat_map(Symlinks::directories).filter(|dir| seen.insert(*dir)) {
        let shown = dir.display();
        let text = match dir.metadata() {
            Ok(data) if !data.is_dir() => {
                format!("symbolic links cannot lead into {shown}: it is not a directory")
            }
            Ok(_) if dir == Path::new("/") && is_root => {
                "symbolic links may lead to every file that root can read: a separate user, or \
                 `symlinks = { follow = [...] }` with some directories, is safer"
                    .to_owned()
            }
            Ok(_) => continue,
            Err(error) if is_confined(loaded) => {
                let why = words(&error);
                format!(
                    "symbolic links cannot lead into {shown}: {why} (a confined server must find it when it starts)"
                )
            }
            Err(error) => {
                let why = words(&error);
                format!(
                    "symbolic links cannot lead into {shown} yet: {why} (samum looks for it when a link is followed)"
                )
            }
        };
        warnings.push(loaded.warning(&Thing::Links(dir.to_owned()), &text));
    }
    warnings
}

/// Warns if bodies of requests go to the system's directory for temporary files, and that directory is in memory or
/// accepts no files.
fn of_body_files(loaded: &Loaded) -> Option<Message> {
    let mut routes = loaded.config.sites.iter().flat_map(|site| &site.routes);
    let is_used = routes.any(|route| match &route.action {
        Action::Cgi(cgi) => cgi.buffer_dir.is_none(),
        Action::Fastcgi(Fastcgi { upstream, .. }) => upstream.rules.buffer_dir.is_none(),
        _ => false,
    });
    if !is_used {
        return None;
    }
    let dir = quota::directory(None).into_owned();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let why = match rustix::fs::open(&dir, flags, Mode::RUSR | Mode::WUSR) {
        Err(error) => format!("no files can be made there: {}", words(&error.into())),
        Ok(file) => match rustix::fs::fstatfs(file) {
            Ok(stat) if u64::try_from(stat.f_type).is_ok_and(|kind| IN_MEMORY.contains(&kind)) => {
                "they take memory there (tmpfs)".to_owned()
            }
            _ => return None,
        },
    };
    let text = format!(
        "long bodies of requests in chunks for programs and scripts go to files in {}, and {why}; `buffer-dir` names \
         another directory",
        dir.display()
    );
    Some(loaded.warning(&Thing::Buffers(dir), &text))
}

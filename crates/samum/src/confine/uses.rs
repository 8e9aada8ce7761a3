//! The files that a server with a configuration uses while it runs, and the access that it needs for that. Pure.
//!
//! A rule of Landlock is for a directory and not for its path. Deploys, renewals of keys and rotations of logs put other
//! directories and files at the same paths. So the directory *around* such a path is allowed, and the ones around the
//! targets of links on the way. The root directory is never allowed as a directory around another one.

use core::iter;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use super::links::{Names, find};
use config::{
    Action, Address, Cgi, Config, Confine, Fastcgi, Files, LogTarget, ServerAddress, Symlinks,
    Thing,
};
use gateways::programs::confinement;
use rights::{Access, Rules, Support};

/// The directories shown to the operator, at most.
const SHOWN_MAX: usize = 16;
/// The files that `getaddrinfo(3)` reads.
const RESOLVER: [&str; 6] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
];
/// The directories with its modules, and the index of their loader.
const RESOLVER_MODULES: [&str; 5] =
    ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache"];

/// A path that the server uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// The part of the configuration that names it.
    pub(super) thing: Option<Thing>,
    /// The path, which is absolute.
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) extent: Extent,
}

/// The place at which a path is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extent {
    /// The file or the directory at the path.
    Itself,
    /// The directories around the path, and around the targets of links on the way.
    Around,
    /// The file at the path, and the directories around the targets of links.
    Targets,
}

/// The files of the process, in addition to those of its configuration.
#[derive(Debug)]
pub(super) struct Process<'a> {
    /// The files of the configuration.
    pub(super) files: &'a [PathBuf],
    /// The control socket.
    pub(super) control: Option<&'a Path>,
    /// The system's directory for temporary files.
    pub(super) temporary: &'a Path,
    /// The file of the system's authorities, if sites have certificates, or upstreams or an ACME server are verified by them.
    pub(super) roots: Option<&'a Path>,
}

/// Returns what a server uses, each once. Relative paths stay as they are.
pub(super) fn uses(config: &Config, process: &Process<'_>) -> Vec<Use> {
    let mut all = List::default();
    let routes = || config.sites.iter().flat_map(|site| &site.routes);
    // Programs are looked for among all processes.
    let has_programs = routes().any(|route| matches!(route.action, Action::Cgi(_)));
    all.itself(None, if has_programs { "/proc" } else { "/proc/self" }, Access::READ);
    for file in process.files {
        all.around(None, file, Access::READ);
    }
    if let Some(path) = process.roots {
        all.around(None, path, Access::READ);
    }
    if let Some(path) = process.control {
        all.socket(Thing::Control(path.to_owned()), path);
    }
    if let Some(capture) = &config.server.capture {
        all.itself(None, directory_of(&capture.file), Access::WRITE | Access::MAKE);
    }
    if let Some(acme) = &config.acme {
        let access = Access::READ | Access::WRITE | Access::MAKE;
        all.itself(Some(Thing::AcmeStorage(acme.storage.clone())), &acme.storage, access);
        let key = acme.eab.as_ref().map(|eab| &eab.key_file);
        for file in acme.ca.iter().chain(key) {
            all.around(Some(Thing::TlsFile(file.clone())), file, Access::READ);
        }
        all.resolver();
    }
    for site in &config.sites {
        for listen in &site.listen {
            let Address::Unix(socket) = &listen.address else { continue };
            all.socket(Thing::Address(listen.address.clone()), &socket.path);
            if socket.user.is_some() || socket.group.is_some() {
                for table in ["/etc/passwd", "/etc/group"] {
                    all.itself(None, table, Access::READ);
                }
            }
        }
        let own = site.routes.iter().filter_map(|route| route.log.as_ref());
        for log in own.chain([&site.log]) {
            if let LogTarget::File(path) = &log.target {
                all.around(Some(Thing::Log(path.clone())), path, Access::WRITE | Access::MAKE);
            }
        }
        let tls = site.tls.iter();
        let pairs = tls.clone().flat_map(|tls| &tls.pairs);
        let pairs = pairs.flat_map(|pair| iter::once(&pair.certificate).chain(&pair.key));
        let clients = tls.filter_map(|tls| tls.client.as_ref());
        let clients = clients.flat_map(|client| iter::once(&client.ca).chain(&client.crl));
        for file in pairs.chain(clients) {
            all.around(Some(Thing::TlsFile(file.clone())), file, Access::READ);
        }
    }
    routes().for_each(|route| all.action(&route.action, process.temporary));
    all.uses
}

/// The list as it grows. Thousands of routes may use the same paths.
#[derive(Default)]
struct List {
    uses: Vec<Use>,
    seen: HashSet<(PathBuf, Access, Extent)>,
}

impl List {
    fn add(&mut self, thing: Option<Thing>, path: &Path, access: Access, extent: Extent) {
        if self.seen.insert((path.to_owned(), access, extent)) {
            self.uses.push(Use { thing, path: path.to_owned(), access, extent });
        }
    }

    fn itself(&mut self, thing: Option<Thing>, path: impl AsRef<Path>, access: Access) {
        self.add(thing, path.as_ref(), access, Extent::Itself);
    }

    fn around(&mut self, thing: Option<Thing>, path: &Path, access: Access) {
        self.add(thing, path, access, Extent::Around);
    }

    fn socket(&mut self, thing: Thing, path: &Path) {
        self.itself(Some(thing), directory_of(path), Access::SOCKETS);
    }

    fn buffers(&mut self, dir: &Path) {
        let access = Access::READ | Access::WRITE | Access::MAKE;
        self.itself(Some(Thing::Buffers(dir.to_owned())), dir, access);
    }

    fn action(&mut self, action: &Action, temporary: &Path) {
        match action {
            Action::Files(files) => self.files(files),
            Action::Redirects(path) => {
                self.around(Some(Thing::Redirects(path.clone())), path, Access::READ);
            }
            Action::Cgi(cgi) => {
                self.programs(cgi);
                self.buffers(cgi.buffer_dir.as_deref().unwrap_or(temporary));
            }
            Action::Fastcgi(Fastcgi { upstream, files, .. }) => {
                files.iter().for_each(|files| self.files(files));
                self.buffers(upstream.rules.buffer_dir.as_deref().unwrap_or(temporary));
            }
            Action::Proxy(upstream) => {
                upstream.rules.buffer_dir.iter().for_each(|dir| self.buffers(dir));
                let tls = upstream.rules.tls.iter().filter(|_| upstream.has_tls());
                let files = tls.flat_map(|tls| {
                    let pair = tls.pair.iter();
                    let pair = pair.flat_map(|pair| iter::once(&pair.certificate).chain(&pair.key));
                    tls.ca.iter().chain(pair)
                });
                for file in files {
                    self.around(Some(Thing::TlsFile(file.clone())), file, Access::READ);
                }
            }
            Action::Redirect(_) | Action::Metrics | Action::StatusPage | Action::Status(_) => {}
        }
        let mut servers = action.upstream().into_iter().flat_map(|upstream| &upstream.servers);
        if servers.any(|server| matches!(server.address, ServerAddress::Host(..))) {
            self.resolver();
        }
    }

    /// The files for lookups of names.
    fn resolver(&mut self) {
        for file in RESOLVER {
            self.add(None, Path::new(file), Access::READ, Extent::Targets);
        }
        RESOLVER_MODULES.iter().for_each(|path| self.itself(None, path, Access::READ));
    }

    fn files(&mut self, files: &Files) {
        self.around(Some(Thing::Directory(files.root.clone())), &files.root, Access::READ);
        // Links that may lead anywhere lead to all that is allowed.
        if let Symlinks::Into(into) = &files.rules.symlinks {
            for dir in into.iter() {
                self.itself(Some(Thing::Links(dir.clone())), dir, Access::READ);
            }
        }
    }

    fn programs(&mut self, cgi: &Cgi) {
        let thing = Thing::Directory(cgi.root.clone());
        self.around(Some(thing), &cgi.root, Access::READ | Access::EXECUTE);
        for (path, access) in confinement::access(cgi) {
            self.itself(None, path, access);
        }
    }
}

/// Returns the rules that allow these uses, and the paths at which nothing new can be used, because they are in the root
/// directory.
pub(super) fn rules(uses: &[Use], names: &impl Names) -> (Rules, BTreeSet<PathBuf>) {
    let mut rules = Rules::default();
    let mut fixed = BTreeSet::new();
    for Use { path, access, extent, .. } in uses {
        let found = find(path, names);
        let mut around = |path: &Path| match above(path) {
            Some(parent) => rules.allow(parent, *access),
            None => {
                fixed.insert(path.to_owned());
            }
        };
        match extent {
            Extent::Around if !found.is_special => {
                // A link in the root directory can have another target, as long as that one is allowed.
                if found.named == found.real || above(&found.named).is_some() {
                    around(&found.named);
                }
                found.targets.iter().for_each(|target| around(target));
                around(&found.real);
                if above(&found.real).is_none() {
                    rules.allow(&found.real, *access);
                }
            }
            Extent::Targets => {
                found.targets.iter().for_each(|target| around(target));
                rules.allow(&found.real, *access);
            }
            // A log may be a pipe, which is opened for both.
            Extent::Around => rules.allow(&found.real, *access | Access::READ),
            Extent::Itself => rules.allow(&found.real, *access),
        }
    }
    (rules, fixed)
}

/// Returns the first use that these rules do not allow.
pub(super) fn outside<'a>(uses: &'a [Use], names: &impl Names, rules: &Rules) -> Option<&'a Use> {
    uses.iter().find(|it| !rules.allows(&find(&it.path, names).real, it.access))
}

/// Returns the directory around a path, unless that is the root directory, or a directory of the kernel.
fn above(path: &Path) -> Option<&Path> {
    let is_of_kernel = ["/proc", "/dev", "/sys"].iter().any(|kernel| path.starts_with(kernel));
    path.parent().filter(|parent| *parent != Path::new("/") && !is_of_kernel)
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

/// Decides whether a server may start on a kernel with this support. Returns a sentence about what the kernel lacks, if
/// it lacks something.
///
/// # Errors
///
/// A sentence for the operator.
pub(super) fn decide(confine: Confine, support: Support) -> Result<Option<String>, String> {
    match (confine, support.lacks()) {
        (Confine::Required, Some(lacks)) => Err(format!(
            "the server cannot be confined as `confine = \"required\"` demands: {lacks}; `confine = \"auto\"` does without"
        )),
        (Confine::Auto, Some(lacks)) => {
            Ok(Some(format!("the server is not wholly confined: {lacks}")))
        }
        (Confine::Off, _) | (_, None) => Ok(None),
    }
}

/// Sentences about what is allowed, for the operator.
pub(super) fn describe(rules: &Rules, fixed: &BTreeSet<PathBuf>, support: Support) -> Vec<String> {
    let paths: Vec<_> = rules.iter().map(|(path, _)| path.display().to_string()).collect();
    let mut shown = paths.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if paths.len() > SHOWN_MAX {
        shown += &format!(" and {} more", paths.len() - SHOWN_MAX);
    }
    let mut said = vec![format!("confined by Landlock {} to {shown}", support.version())];
    if rules.allows(Path::new("/"), Access::READ) {
        said.push(
            "confinement keeps no file from being read, because the root directory is served"
                .to_owned(),
        );
    }
    let fixed = fixed.iter().filter(|path| *path != Path::new("/"));
    said.extend(fixed.map(|path| {
        format!(
            "{} cannot be replaced without a restart, because confinement does not allow the root directory around it",
            path.display()
        )
    }));
    said
}

#[cfg(test)]
mod tests;

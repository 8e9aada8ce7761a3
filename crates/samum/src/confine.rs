//! Gives up rights when the sockets of the server are open: the rights of the user that started the server, and the
//! access to files that the server does not need. The crate `rights` makes the calls; `uses` decides on the files.

mod links;
mod uses;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf, absolute};

use rustix::fs::Access as Mode;

use crate::certificates::{needs_system_roots, system_roots};
use config::errno::words;
use config::file::{Errors, Loaded};
use config::{Action, Address, Confine, Message, Thing};
use links::{Names, Node};
use rights::{Confined, Rules, User, confine_process, drop_rights};
use uses::{Extent, Process, Use};

/// A server that has given up the rights that it does not need.
#[derive(Debug, Default)]
pub(crate) struct Confinement {
    /// The access that is left; `None` if the server may use all files of its user.
    left: Option<(Rules, Confined)>,
    /// Files that must not be replaced while the server runs.
    fixed: Vec<PathBuf>,
    /// The path of the control socket.
    control: Option<PathBuf>,
}

/// Gives up rights and access for good, in the calling thread and all threads that it starts later. Descriptors that
/// were open before stay open. After this call the server opens files as the user, and only allowed files. `control` is
/// the path of the control socket. Also returns sentences for the operator.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn enter(
    loaded: &Loaded,
    user: Option<&User>,
    control: Option<&Path>,
) -> Result<(Confinement, Vec<String>), String> {
    let server = &loaded.config.server;
    let mut said = Vec::new();
    drop_rights(user, !server.interfaces.is_empty())?;
    if let Some(user) = user {
        said.push(format!("running as the user {}, without the rights of the start", user.name));
    }
    let confine = server.confine();
    let control = control.map(Path::to_owned);
    let mut confinement = Confinement { control, ..Confinement::default() };
    if confine != Confine::Off {
        let uses = confinement.uses(loaded);
        let (rules, fixed) = uses::rules(&uses, &Disk);
        let confined = confine_process(&rules).map_err(|error| {
            format!("cannot confine the server: {error} (`confine = \"off\"` does without)")
        })?;
        said.extend(uses::decide(confine, confined.support)?);
        if confined.support.is_some() {
            said.extend(uses::describe(&rules, &fixed, confined.support));
            confinement.fixed = fixed_files(&uses);
            confinement.left = Some((rules, confined));
        }
    }
    if let Some(user) = user {
        said.extend(check_access(loaded, user).map_err(|error| error.to_string())?);
    }
    Ok((confinement, said))
}

impl Confinement {
    /// Checks that the server may use all files that another configuration names.
    ///
    /// # Errors
    ///
    /// A message for the operator, with its place.
    pub(crate) fn check(&self, loaded: &Loaded) -> Result<(), String> {
        let Some((rules, _)) = &self.left else { return Ok(()) };
        let uses = self.uses(loaded);
        let Some(outside) = uses::outside(&uses, &Disk, rules) else { return Ok(()) };
        let why = format!(
            "{} is outside of what the server was allowed to use when it started (`confine`): restart the server or run `samum upgrade`",
            outside.path.display()
        );
        Err(match &outside.thing {
            Some(thing) => loaded.error(thing, &why).to_string(),
            None => Errors::from(why).to_string(),
        })
    }

    /// A sentence about an error of a reload, if confinement may be its cause.
    pub(crate) fn advice(&self, error: &str) -> Option<&'static str> {
        let is_denied = error.contains("permission denied") && !error.contains("`confine`");
        (self.left.is_some() && is_denied).then_some(
            "the server is confined (`confine`): files outside of what it was allowed to use when it started need a restart or `samum upgrade`",
        )
    }

    /// Sentences about files that were replaced, so that the server can no longer read them.
    pub(crate) fn losses(&self) -> impl Iterator<Item = String> {
        let is_lost = |path: &&PathBuf| {
            File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        self.fixed.iter().filter(is_lost).map(|path| {
            format!(
                "{} was replaced, and a confined server cannot read the new file: names of servers are looked up \
                 without it until a restart",
                path.display()
            )
        })
    }

    fn uses(&self, loaded: &Loaded) -> Vec<Use> {
        // The call fails only without a working directory.
        let whole = |path: &Path| absolute(path).unwrap_or_else(|_| path.to_owned());
        let files: Vec<_> = loaded.files().map(whole).collect();
        let temporary = std::env::temp_dir();
        let control = self.control.as_deref();
        let acme = loaded.config.acme.as_ref();
        // A certificate that is read again may need a look whether the system trusts its issuer.
        let has_pairs = loaded.config.sites.iter().any(|site| site.tls.is_some());
        let needs_roots = has_pairs
            || needs_system_roots(&loaded.config)
            || acme.is_some_and(|it| it.ca.is_none());
        let roots = needs_roots.then(system_roots);
        let roots = roots.as_deref();
        let process = Process { files: &files, control, temporary: &temporary, roots };
        let mut uses = uses::uses(&loaded.config, &process);
        uses.iter_mut().for_each(|it| it.path = whole(&it.path));
        uses
    }
}

/// The files that the server reads again and again, and whose directories are not allowed.
fn fixed_files(uses: &[Use]) -> Vec<PathBuf> {
    let fixed = uses.iter().filter(|it| it.extent == Extent::Targets).map(|it| it.path.clone());
    let fixed: BTreeSet<_> = fixed.filter(|path| path.exists()).collect();
    fixed.into_iter().collect()
}

/// Checks that the user may open again the files that were opened or read before. Files that are opened later report
/// their own errors. Returns sentences about Unix sockets that remain after the end of the server.
///
/// # Errors
///
/// A message for the operator, with its place if a key names the file.
pub(crate) fn check_access(loaded: &Loaded, user: &User) -> Result<Vec<String>, Message> {
    let config = &loaded.config;
    for path in loaded.files() {
        readable(path, user).map_err(message)?;
    }
    for route in config.sites.iter().flat_map(|site| &site.routes) {
        if let Action::Redirects(path) = &route.action {
            let why = readable(path, user);
            why.map_err(|why| loaded.error(&Thing::Redirects(path.clone()), &why))?;
        }
    }
    let name = &user.name;
    let is_writable = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or_else(|| Path::new("."));
        rustix::fs::access(directory, Mode::WRITE_OK | Mode::EXEC_OK).is_ok()
    };
    if let Some(capture) = config.server.capture.as_ref().filter(|it| !is_writable(&it.file)) {
        return Err(message(format!(
            "the user {name} cannot make the next files of {}: let it write to the directory (`chown`, or `setfacl -m \
             u:{name}:rwx`)",
            capture.file.display()
        )));
    }
    let listeners = config.sites.iter().flat_map(|site| &site.listen);
    let sockets = listeners.filter_map(|listen| match &listen.address {
        Address::Unix(socket) if !is_writable(&socket.path) => Some(socket.path.display()),
        _ => None,
    });
    let said = |path| {
        format!(
            "unix:{path} stays when the server ends, because the user {name} cannot write to its directory; the next \
             start removes it"
        )
    };
    Ok(sockets.map(said).collect())
}

/// A message without a place.
fn message(text: String) -> Message {
    Errors::from(text).0.remove(0)
}

/// Checks that a file can be read again. A pipe cannot be read again, and is not checked.
fn readable(path: &Path, user: &User) -> Result<(), String> {
    if fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo()) {
        return Ok(());
    }
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (shown, name) = (path.display(), &user.name);
            Err(format!(
                "cannot read {shown} as the user {name}: {}, which a reload has to do (let it read by its group, or by \
                 `setfacl -m u:{name}:r {shown}`, and enter the directories above)",
                words(&error)
            ))
        }
        _ => Ok(()),
    }
}

/// The file system.
struct Disk;

impl Names for Disk {
    fn look(&self, path: &Path) -> Node {
        let Ok(data) = fs::symlink_metadata(path) else { return Node::Other };
        let kind = data.file_type();
        if kind.is_symlink() {
            return fs::read_link(path).map_or(Node::Other, Node::Link);
        }
        if kind.is_dir() || kind.is_file() { Node::Other } else { Node::Special }
    }
}

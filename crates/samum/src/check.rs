//! Tries the steps of a server with a configuration: opens directories and logs, reads certificates, binds addresses, and
//! looks up interfaces.
//!
//! A server that root starts becomes its `user` between these steps. A check by root makes the later steps as that
//! user, too.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::certificates::{self, Reading};
use crate::listen::{self, Probe};
use crate::machine::Machine;
use crate::{account, confine, control_socket, keeper, roots, shares, warnings};
use acme::Storage;
use config::errno::words;
use config::file::{self, Errors, Loaded};
use config::{Action, Address, Config, Fastcgi, LogTarget, Message, NamedFile, Thing, print};
use handler::serving::{self, NoRedirects, Snapshot};
use logs::files::{self, cannot_log};
use logs::location::Location;
use rights::User;
use rustix::process::geteuid;

/// The result of a check that found no error.
#[derive(Debug)]
pub struct Checked {
    /// The certificates that clients see and the ways in which upstreams are verified, as comments, and the configuration with all defaults, as TOML. `…` stands for
    /// values that may be secret.
    pub text: String,
    /// Probable mistakes.
    pub warnings: Vec<Message>,
}

/// Checks a configuration file.
///
/// An address that another process has is an error. There are two exceptions, which are only warnings: the process
/// shares the address, or it answers at the configuration's control socket. Then it is probably the server that uses
/// the configuration.
///
/// # Errors
///
/// All errors of the files, or else all things that cannot be opened, or else the first value that contradicts another
/// one.
pub fn check(path: &Path) -> Result<Checked, Errors> {
    let mut loaded = file::load(path, &mut Machine::new()?)?;
    let mut warnings = core::mem::take(&mut loaded.warnings);
    // This check reports all errors with their places; `Snapshot::new` would report the first one, without its place.
    warnings.extend(warnings::of(&loaded));
    let Tried { mut errors, warnings: more, reading } = try_steps(&loaded)?;
    warnings.extend(more);
    let seen = match reading {
        Ok(reading) => {
            warnings.extend_from_slice(&reading.warnings);
            reading.describe(&loaded.config)
        }
        Err(Errors(more)) => {
            errors.extend(more);
            Vec::new()
        }
    };
    if !errors.is_empty() {
        return Err(Errors(errors));
    }
    // A server compares some values with others when it prepares the configuration.
    let secrets = &loaded.config.secrets;
    let snapshot = Snapshot::new(&loaded.config);
    let snapshot = snapshot.map_err(|why| secrets.conceal(&why).into_owned())?;
    shares::have_descriptors(&loaded.config.server, &snapshot)?;
    let seen: String = seen.iter().map(|line| format!("# {}\n", secrets.conceal(line))).collect();
    let text = print::shown(&loaded.config);
    let text = if seen.is_empty() { text } else { format!("{seen}\n{text}") };
    Ok(Checked { text, warnings })
}

/// The results of the steps of a server.
struct Tried {
    errors: Vec<Message>,
    warnings: Vec<Message>,
    reading: Result<Reading, Errors>,
}

/// Makes the steps of a server: first with the rights of the start, then with those of its user.
fn try_steps(loaded: &Loaded) -> Result<Tried, Errors> {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    open_all(loaded, is_of_start, &mut errors, &mut warnings);
    // An unknown user is an error of the first steps.
    let user = loaded.config.server.user.as_ref().and_then(|it| account::find_user(it).ok());
    let user = user.filter(|user| geteuid().is_root() && !user.is_own());
    let step = || try_as_user(loaded, user.as_ref());
    let tried = match &user {
        Some(user) => user.call(step)?,
        None => step(),
    };
    errors.extend(tried.errors);
    warnings.extend(tried.warnings);
    Ok(Tried { errors, warnings, ..tried })
}

/// Makes the steps of a server with the rights of its user. `user` is `Some` if the server becomes another user.
fn try_as_user(loaded: &Loaded, user: Option<&User>) -> Tried {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    let access = user.map(|user| confine::check_access(loaded, user));
    errors.extend(access.and_then(Result::err));
    open_all(loaded, |thing| !is_of_start(thing), &mut errors, &mut warnings);
    warnings.extend(missing_named_files(loaded));
    errors.extend(keeper::check_files(loaded, &certificates::system_roots()));
    let reading = Reading::first(loaded, certificates::now());
    Tried { errors, warnings, reading }
}

/// Returns true for things that a server opens before it becomes its user.
const fn is_of_start(thing: &Thing) -> bool {
    matches!(
        thing,
        Thing::Account(_)
            | Thing::AcmeStorage(_)
            | Thing::Address(_)
            | Thing::Interface(_)
            | Thing::Redirects(_)
    )
}

/// Opens those of the things that a configuration names, each once.
fn open_all(
    loaded: &Loaded,
    is_wanted: impl Fn(&Thing) -> bool,
    errors: &mut Vec<Message>,
    warnings: &mut Vec<Message>,
) {
    let mut seen = HashSet::new();
    for (address, why) in loaded.config.collisions() {
        let thing = Thing::Address(address);
        if is_wanted(&thing) && seen.insert(thing.clone()) {
            errors.push(loaded.error(&thing, &why));
        }
    }
    let daemons = daemons(&loaded.config);
    // The sockets stay bound until all are, so that two conflicting ones are found.
    let mut bound = Vec::new();
    for thing in things(&loaded.config) {
        if !is_wanted(&thing) || !seen.insert(thing.clone()) {
            continue;
        }
        let opened = match &thing {
            Thing::Directory(path) => roots::Root::open(path).map(drop),
            Thing::Path(root, path) => {
                warnings.extend(
                    has_file(root, path).then(|| loaded.warning(&thing, &for_a_file(path))),
                );
                Ok(())
            }
            // A disk may be mounted later, and a page may be written later.
            Thing::Links(_) | Thing::NamedFile(_) => Ok(()),
            // `Reading` reads them, because a certificate and its key are read together. Nothing is looked up for a host.
            Thing::TlsFile(_) | Thing::AcmeTerms | Thing::Host(_) => Ok(()),
            Thing::AcmeStorage(path) => Storage::try_make(path),
            Thing::Buffers(path) => try_buffer(path),
            Thing::Log(path) => match daemons.get(&**path) {
                Some(target) => files::open(target).map(drop),
                None => try_log(path),
            },
            Thing::Redirects(path) => match serving::read_redirects(path) {
                Ok(_) => Ok(()),
                Err(NoRedirects::Unreadable(why)) => Err(why),
                Err(NoRedirects::Wrong(messages)) => {
                    errors.extend(messages);
                    Ok(())
                }
            },
            Thing::Control(path) if is_listener(path, &loaded.config) => {
                Err("the control socket needs a path of its own: a listener is there".to_owned())
            }
            Thing::Control(path) => control_socket::probe(path),
            Thing::Account(account) => account::find_user(account).map(drop),
            Thing::Interface(name) => {
                let server = &loaded.config.server;
                let mut all = server.interfaces.iter().filter(|it| it.name == *name);
                all.try_for_each(|it| interface::probe(it, server.frames))
            }
            // The kernel does not have this address, and samum would not bind it.
            Thing::Address(address) if is_samums_alone(address, &loaded.config) => Ok(()),
            Thing::Address(address) => match listen::probe(address) {
                Ok(Probe::Free(socket)) => {
                    bound.extend(socket);
                    Ok(())
                }
                Ok(Probe::InUse { is_shared, why }) if is_shared || is_running(&loaded.config) => {
                    let text = format!("{why}; it is probably the samum that runs");
                    warnings.push(loaded.warning(&thing, &text));
                    Ok(())
                }
                Ok(Probe::InUse { why, .. }) | Err(why) => Err(why),
            },
        };
        if let Err(why) = opened {
            errors.push(loaded.error(&thing, &why));
        }
    }
}

/// All logs of a configuration. Many sites may have the same.
fn logs_of(config: &Config) -> impl Iterator<Item = &LogTarget> {
    config.sites.iter().flat_map(|site| {
        let logs = site.routes.iter().filter_map(|route| route.log.as_ref());
        logs.chain([&site.log]).map(|log| &log.target)
    })
}

/// The daemons that get lines of logs, by the paths of their sockets.
fn daemons(config: &Config) -> HashMap<&Path, &LogTarget> {
    let is_daemon =
        |target: &&LogTarget| matches!(target, LogTarget::Syslog(_) | LogTarget::Journald(_));
    let daemons = logs_of(config).filter(is_daemon);
    daemons.filter_map(|target| Some((target.path()?, target))).collect()
}

/// The things outside of its files that a configuration names.
fn things(config: &Config) -> impl Iterator<Item = Thing> {
    let control = config.server.control.clone().map(Thing::Control);
    let interfaces = config.server.interfaces.iter().map(|it| Thing::Interface(it.name.clone()));
    let of_sites = config.sites.iter().flat_map(|site| {
        let of_routes = site.routes.iter().filter_map(|route| match &route.action {
            Action::Files(files) | Action::Fastcgi(Fastcgi { files: Some(files), .. }) => {
                Some(Thing::Directory(files.root.clone()))
            }
            Action::Cgi(cgi) => Some(Thing::Directory(cgi.root.clone())),
            Action::Redirects(path) => Some(Thing::Redirects(path.clone())),
            Action::Redirect(_)
            | Action::Proxy(_)
            | Action::Fastcgi(_)
            | Action::Metrics
            | Action::StatusPage
            | Action::Status(_) => None,
        });
        let of_buffers = site.routes.iter().filter_map(|route| match &route.action {
            Action::Proxy(upstream) | Action::Fastcgi(Fastcgi { upstream, .. }) => {
                upstream.rules.buffer_dir.clone().map(Thing::Buffers)
            }
            Action::Cgi(cgi) => cgi.buffer_dir.clone().map(Thing::Buffers),
            Action::Files(_)
            | Action::Redirect(_)
            | Action::Redirects(_)
            | Action::Metrics
            | Action::StatusPage
            | Action::Status(_) => None,
        });
        let of_paths = site.routes.iter().filter_map(|route| {
            let files = route.action.files()?;
            Some(Thing::Path(files.root.clone(), route.path.clone()))
        });
        let addresses = site.listen.iter().map(|listen| Thing::Address(listen.address.clone()));
        addresses.chain(of_routes).chain(of_paths).chain(of_buffers)
    });
    let account = config.server.user.clone().map(Thing::Account);
    let logs = logs_of(config).filter_map(LogTarget::path).map(|path| Thing::Log(path.to_owned()));
    let storage = config.acme.as_ref().map(|acme| Thing::AcmeStorage(acme.storage.clone()));
    let of_server = control.into_iter().chain(account).chain(storage).chain(interfaces);
    of_server.chain(of_sites).chain(logs)
}

/// Returns true if a directory has a file with the last name of the route's path, or with the whole path.
fn has_file(root: &Path, path: &str) -> bool {
    let below = path.trim_start_matches('/');
    let name = path.rsplit('/').next().unwrap_or_default();
    !name.is_empty() && [below, name].iter().any(|name| root.join(name).is_file())
}

/// The advice for a route whose path is that of a file.
fn for_a_file(path: &str) -> String {
    format!(
        "the `path` of a route with `files` is a directory, and requests for `{path}` are sent to `{path}/`: for the \
         file use `match = \"{path}\"` in the place of `path`"
    )
}

/// Warns of fallbacks and error pages that do not exist. They may be written later.
fn missing_named_files(loaded: &Loaded) -> Vec<Message> {
    let is_missing = |named: &&NamedFile| {
        let is_absent = |file: &PathBuf| match file.metadata() {
            Ok(data) => !data.is_file(),
            // The user of the server may be able to see it.
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        named.files.iter().all(is_absent)
    };
    let warn = |named: &NamedFile| {
        let NamedFile { path, files, is_fallback } = named;
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let until = if *is_fallback {
            "a path that leads to nothing is answered 404"
        } else {
            "the built-in page is sent"
        };
        let text =
            format!("there is no file for `{path}`: until {} exists, {until}", files.join(" or "));
        loaded.warning(&Thing::NamedFile(named.clone()), &text)
    };
    loaded.named_files().filter(is_missing).map(warn).collect()
}

/// Returns true if a site listens at the Unix socket with this path.
fn is_listener(path: &Path, config: &Config) -> bool {
    let mut all = config.sites.iter().flat_map(|site| &site.listen);
    all.any(|listen| matches!(&listen.address, Address::Unix(socket) if socket.path == path))
}

/// Returns true if only samum's own stack has an address.
fn is_samums_alone(address: &Address, config: &Config) -> bool {
    let Address::Ip(ip) = address else { return false };
    let mut own = config.server.interfaces.iter().flat_map(|interface| &interface.addresses);
    own.any(|own| own.address == ip.ip())
}

/// Returns true if a server listens at the control socket of the configuration.
fn is_running(config: &Config) -> bool {
    let address = config.server.control.as_ref().and_then(|path| SocketAddrUnix::new(path).ok());
    address.is_some_and(|address| listen::answers(&address))
}

/// Checks if buffers can be made in a directory: files without names, in which holes are possible.
fn try_buffer(path: &Path) -> Result<(), String> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let tried = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .and_then(|file| rustix::fs::fallocate(file, holes, 0, 4096));
    tried.map_err(|error| {
        let advice = match error {
            Errno::NOENT => " (the directory must exist)",
            Errno::ACCESS => " (the user of the server must be able to write to it)",
            Errno::OPNOTSUPP | Errno::ISDIR => {
                " (its file system must know O_TMPFILE and holes, as ext4, XFS, btrfs and tmpfs do)"
            }
            _ => "",
        };
        format!("cannot make buffers in {}: {}{advice}", path.display(), words(&error.into()))
    })
}

/// Checks if a log could be appended to, and does not make it.
fn try_log(path: &Path) -> Result<(), String> {
    let tried = Location::find(path).and_then(|location| location.try_append());
    tried.map_err(|error| cannot_log(path, &error))
}

//! Certificates by ACME: the thread that gets them, and its place in the server.
//!
//! The thread (`acme::keep`) writes certificates into the storage. The thread of [`certificates`](crate::certificates)
//! notices them there as it notices all files, and shows them. So no worker waits for an authority, and each process that
//! has the storage shows what any of them has got.

use core::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::geteuid;
use tls::Acceptors;

use acme::{Challenge, ExternalAccount, Kind, Operator, Plan, Storage, Unfit, Wanted};
use config::file::Loaded;
use config::{Acme, AcmeChallenge, Config, Message, Thing, acme_names};
use logs::say::say;
use rights::User;

use crate::account;
use handler::challenges::Challenges;

/// The thread that gets certificates, and what it works for.
pub(crate) struct Keeper {
    state: Mutex<State>,
    challenges: Arc<Challenges>,
    acceptors: Arc<Acceptors>,
    is_replaced: Box<dyn Fn() -> bool + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<Arc<Plan>>,
    /// True while the thread runs.
    has_thread: bool,
}

impl Keeper {
    /// No certificate is wanted yet. Challenges are answered by workers with these. `is_replaced` returns true once another
    /// process has replaced this one, and orders what is due.
    pub(crate) fn new(
        challenges: Arc<Challenges>,
        acceptors: Arc<Acceptors>,
        is_replaced: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let is_replaced = Box::new(is_replaced);
        Arc::new(Self { state: Mutex::default(), challenges, acceptors, is_replaced })
    }

    /// Gets the certificates of this configuration from now on. `system` is the file of the authorities that the system
    /// trusts.
    pub(crate) fn keep(self: &Arc<Self>, config: &Config, system: &Path) {
        let plan = plan(config, system);
        let mut state = self.lock();
        if state.plan.as_deref() != plan.as_ref() {
            state.plan = plan.map(Arc::new);
        }
        if state.plan.is_none() || state.has_thread {
            return;
        }
        let keeper = Arc::clone(self);
        let thread = thread::Builder::new().name("acme".to_owned());
        match thread.spawn(move || acme::keep(&*keeper, geteuid().as_raw())) {
            Ok(_) => state.has_thread = true,
            Err(error) => say(&format!(
                "cannot start the thread that gets certificates by ACME: {error}; a reload tries again"
            )),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Keeper").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Operator for Keeper {
    fn plan(&self) -> Option<Arc<Plan>> {
        // A reload may hold the lock behind this question when it gives a plan, so the state is locked later.
        if (self.is_replaced)() {
            return None;
        }
        let mut state = self.lock();
        // The thread ends without one.
        state.has_thread = state.plan.is_some();
        state.plan.clone()
    }

    fn say(&self, text: &str) {
        say(text);
    }

    fn set_challenges(&self, all: &[Challenge]) {
        let of = |kind: Kind| all.iter().filter(move |it| it.kind == kind);
        let by_http = of(Kind::Http).map(|it| (it.token.clone(), it.authorization.clone()));
        self.challenges.replace(by_http);
        let by_tls = of(Kind::TlsAlpn).map(|it| (it.name.clone(), it.digest()));
        if let Err(fault) = self.acceptors.set_challenges(&by_tls.collect::<Vec<_>>()) {
            say(&format!("challenges by TLS are not answered: {fault}"));
        }
    }
}

/// The plan of a configuration; `None` if no site has a certificate by ACME.
fn plan(config: &Config, system: &Path) -> Option<Plan> {
    let acme = config.acme.as_ref()?;
    let has_plain = config.sites.iter().flat_map(|site| &site.listen).any(|listen| !listen.tls);
    let of = |challenge: &AcmeChallenge| match challenge {
        AcmeChallenge::Http => Kind::Http,
        AcmeChallenge::TlsAlpn => Kind::TlsAlpn,
    };
    // Without a listener for it, the first try would be in vain.
    let is_possible = |kind: &Kind| has_plain || acme.challenges.len() == 1 || *kind != Kind::Http;
    let kinds = acme.challenges.iter().map(of).filter(is_possible);
    let certificates = acme_names(&config.sites).into_iter().map(|names| Wanted { names });
    Some(Plan {
        directory: acme.directory.clone(),
        contact: acme.contact.clone(),
        storage: acme.storage.clone(),
        roots: acme.ca.clone().unwrap_or_else(|| system.to_owned()),
        kinds: kinds.collect(),
        external: external_of(acme),
        certificates: certificates.collect(),
    })
}

fn external_of(acme: &Acme) -> Option<ExternalAccount> {
    let eab = acme.eab.as_ref()?;
    Some(ExternalAccount { id: eab.id.clone(), key_file: eab.key_file.clone() })
}

/// Makes the storage of a configuration for the user that the server becomes, if it is missing.
///
/// # Errors
///
/// A message for the operator, with its place.
pub(crate) fn make_storage(loaded: &Loaded, user: Option<&User>) -> Result<(), String> {
    let Some(acme) = &loaded.config.acme else { return Ok(()) };
    let owner = user.map(|user| (user.uid, user.gid));
    Storage::make(&acme.storage, owner)
        .map_err(|why| error_at(loaded, &acme.storage, &why).to_string())
}

/// Finds errors about the way to certificates: terms without agreement, a storage that must not be used. A storage that is
/// missing is none: the server makes it. `system` is the file of the authorities that the system trusts.
pub(crate) fn check(loaded: &Loaded, system: &Path) -> Vec<Message> {
    let Some(acme) = &loaded.config.acme else { return Vec::new() };
    let mut errors = Vec::new();
    if !acme.agrees {
        errors.push(loaded.error(&Thing::AcmeTerms, &terms(acme, system)));
    }
    let user = loaded.config.server.user.as_ref().map(account::find_user);
    let user = match user {
        Some(Ok(user)) => user.uid,
        // An unknown user is another error.
        Some(Err(_)) => return errors,
        None => geteuid().as_raw(),
    };
    match Storage::open(&acme.storage, user) {
        Ok(_) | Err(Unfit::Missing(_)) => {}
        Err(unfit) => errors.push(error_at(loaded, &acme.storage, &unfit.to_string())),
    }
    errors
}

/// Finds files of `[acme]` that this process cannot use. A server serves without them: it says so when it asks the authority,
/// and tries again later. So only a check calls this.
pub(crate) fn check_files(loaded: &Loaded, system: &Path) -> Vec<Message> {
    let Some(acme) = &loaded.config.acme else { return Vec::new() };
    let of_file = |path: &Path, why: &str| loaded.error(&Thing::TlsFile(path.to_owned()), why);
    // `check` has the errors of one that cannot be opened.
    let storage = Storage::open(&acme.storage, geteuid().as_raw()).ok();
    let unwritable = storage.as_ref().and_then(|storage| storage.check_writable().err());
    let roots = acme.ca.as_deref().unwrap_or(system);
    let external = external_of(acme).and_then(|external| {
        let checked = acme::check_external_key(storage.as_ref(), &acme.directory, &external);
        Some(of_file(&external.key_file, &checked.err()?))
    });
    let unwritable = unwritable.map(|why| error_at(loaded, &acme.storage, &why));
    let unreadable = acme::check_roots(roots).err().map(|why| of_file(roots, &why));
    unwritable.into_iter().chain(unreadable).chain(external).collect()
}

fn error_at(loaded: &Loaded, storage: &Path, why: &str) -> Message {
    loaded.error(&Thing::AcmeStorage(storage.to_owned()), why)
}

/// The error of an operator who has not agreed to the terms, with their place.
fn terms(acme: &Acme, system: &Path) -> String {
    let directory = &acme.directory;
    let place = match acme::terms_of_service(directory, acme.ca.as_deref().unwrap_or(system)) {
        Ok(Some(terms)) => format!("read {terms}"),
        Ok(None) => format!("{directory} names none, so ask its operator"),
        Err(why) => {
            format!("{directory} names them (`termsOfService`), but cannot be read now: {why}")
        }
    };
    format!(
        "certificates are issued only to those who agree to the terms of service of the authority: {place}; then write \
         `agree-terms = true` into `[acme]`"
    )
}

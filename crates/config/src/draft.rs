//! A configuration as its files have it: without defaults, and with the file and line of each value.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::message::Span;
use super::{
    Access, Account, AcmeChallenge, AcmeEab, Action, Address, Fastcgi, FileRules, GatewayRules,
    HeaderRule, Https, Limits, Listen, Log, Pattern, RequestHeader, Server, Tls, TlsClients,
    TlsProfile, UnixSocket, UpstreamTls,
};

/// The contents of all files.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) server: Server,
    /// The position of `[server]`.
    pub(super) server_place: Option<Span>,
    /// The positions of the things that it names.
    pub(super) server_things: Vec<(Thing, Span)>,
    pub(super) acme: AcmeDraft,
    pub(super) sites: Vec<SiteDraft>,
    /// The files to read, too.
    pub(super) includes: Vec<(String, Span)>,
    /// True if an unknown key outside all tables was probably meant as a route of a site.
    pub(super) has_wrong_route: bool,
}

/// `[acme]`, as they describe it.
#[derive(Debug)]
pub(super) struct AcmeDraft {
    /// The position of `[acme]`.
    pub(super) place: Option<Span>,
    pub(super) directory: String,
    pub(super) contact: Vec<String>,
    pub(super) storage: Option<PathBuf>,
    pub(super) challenges: Vec<AcmeChallenge>,
    pub(super) ca: Option<PathBuf>,
    pub(super) agrees: bool,
    pub(super) eab: Option<AcmeEab>,
    /// The positions of the things that it names.
    pub(super) things: Vec<(Thing, Span)>,
}

/// A site, as they describe it.
#[derive(Debug)]
pub(super) struct SiteDraft {
    pub(super) place: Span,
    pub(super) name: Option<String>,
    pub(super) listen: Vec<(Listen, Span)>,
    pub(super) hosts: Vec<(String, Span)>,
    /// The position of the key that makes it a default site.
    pub(super) default: Option<Span>,
    pub(super) tls: Option<Tls>,
    /// The position of `tls`, also if its value is wrong.
    pub(super) tls_place: Option<Span>,
    /// The positions of the files that it names there.
    pub(super) things: Vec<(Thing, Span)>,
    pub(super) https: Https,
    /// The position of `https`.
    pub(super) https_place: Option<Span>,
    pub(super) hsts: Option<Duration>,
    /// The position of `hsts`.
    pub(super) hsts_place: Option<Span>,
    pub(super) log: Log,
    pub(super) log_place: Span,
    pub(super) shared: Shared,
    pub(super) routes: Vec<RouteDraft>,
    /// True if a route of it is no table, or one of its unknown keys was probably meant as a route, or as a key of a
    /// route.
    pub(super) has_wrong_route: bool,
}

/// A listener in a table.
#[derive(Debug)]
pub(super) struct ListenDraft {
    pub(super) address: Option<Address>,
    pub(super) socket: UnixSocket,
    pub(super) proxy_protocol: bool,
    pub(super) tls: bool,
    pub(super) http2: bool,
}

impl Default for ListenDraft {
    fn default() -> Self {
        let (address, socket) = (None, UnixSocket::default());
        Self { address, socket, proxy_protocol: false, tls: false, http2: true }
    }
}

/// The table `tls` of a site.
#[derive(Debug, Default)]
pub(super) struct TlsDraft {
    /// True if the certificate comes by ACME.
    pub(super) is_acme: bool,
    /// The files of the certificates, if they are right; no files if the certificate is self-signed, or comes by ACME.
    pub(super) certificates: Option<Vec<PathBuf>>,
    /// The files of their keys, if they are right, and the position of `key`.
    pub(super) keys: Option<(Vec<PathBuf>, Span)>,
    pub(super) profile: TlsProfile,
    pub(super) client: Option<TlsClients>,
    /// The positions of all its files.
    pub(super) places: Vec<(Thing, Span)>,
}

/// A route, as they describe it.
#[derive(Debug)]
pub(super) struct RouteDraft {
    pub(super) place: Span,
    pub(super) path: (String, Span),
    pub(super) pattern: Option<(Pattern, Span)>,
    pub(super) is_internal: bool,
    /// Its own log, and the position of that.
    pub(super) log: Option<(Log, Span)>,
    /// The actions; exactly one, if it is right.
    pub(super) actions: Vec<(Action, Span)>,
    /// The application that runs its scripts; alone, or together with files.
    pub(super) fastcgi: Option<(Fastcgi, Span)>,
    pub(super) shared: Shared,
    /// The keys among these that it does not inherit from its site, and their positions.
    pub(super) own: Vec<(&'static str, Span)>,
    /// True if it has unknown keys. Their author may have meant its action.
    pub(super) has_unknown: bool,
    /// True if an action has a wrong value, or one of the unknown keys was probably meant as an action.
    pub(super) has_wrong_action: bool,
}

/// A thing outside the files that a configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Thing {
    /// A directory to serve.
    Directory(PathBuf),
    /// The path of a route with the files of a directory.
    Path(PathBuf, String),
    /// A file that is sent in place of an answer.
    NamedFile(NamedFile),
    /// A directory that symbolic links may lead into.
    Links(PathBuf),
    /// A directory for the files of buffers.
    Buffers(PathBuf),
    /// The file of a log.
    Log(PathBuf),
    /// A file with redirections.
    Redirects(PathBuf),
    /// A file with certificates, keys or revocation lists.
    TlsFile(PathBuf),
    /// A host of a site.
    Host(String),
    /// The agreement to the terms of an ACME server.
    AcmeTerms,
    /// The directory of the storage of certificates by ACME.
    AcmeStorage(PathBuf),
    /// An address to listen on.
    Address(Address),
    /// The control socket.
    Control(PathBuf),
    /// The name of a network interface.
    Interface(String),
    /// The user that the server becomes.
    Account(Account),
}

/// A file that is sent in place of an answer: a fallback, or an error page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedFile {
    /// Its path on the site.
    pub path: String,
    /// The files that the path may lead to; the first one that exists is sent.
    pub files: Vec<PathBuf>,
    /// True if it is a fallback.
    pub is_fallback: bool,
}

/// The keys that a route inherits from its site, unless it has its own. A route begins with a copy of its
/// site's values, which its own keys change.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) access: Access,
    pub(super) limits: Limits,
    /// The position of the rate among them.
    pub(super) rate_place: Option<Span>,
    pub(super) headers: Vec<HeaderRule>,
    /// Pages, and the positions at which they are named.
    pub(super) errors: BTreeMap<u16, (String, Span)>,
    pub(super) server_timing: bool,
    pub(super) half_close: bool,
    pub(super) max_body: Option<u64>,
    /// The position of `max-body`.
    pub(super) max_body_place: Option<Span>,
    pub(super) request_headers: Vec<RequestHeader>,
    /// The position of these.
    pub(super) request_headers_place: Option<Span>,
    pub(super) files: FileRules,
    /// The position of the fallback of files.
    pub(super) fallback_place: Option<Span>,
    pub(super) gateway: GatewayRules,
    /// The positions of the files of `upstream-tls`.
    pub(super) upstream_tls_places: Vec<(Thing, Span)>,
}

/// The TLS of connections to servers, as the keys describe it.
#[derive(Debug, Default)]
pub(super) struct UpstreamTlsDraft {
    /// The TLS, without a certificate.
    pub(super) tls: UpstreamTls,
    pub(super) certificate: Option<(PathBuf, Span)>,
    pub(super) key: Option<(PathBuf, Span)>,
    /// The positions of all its files.
    pub(super) places: Vec<(Thing, Span)>,
}

impl Draft {
    /// Says nothing but the defaults of the process.
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            server_place: None,
            server_things: Vec::new(),
            acme: AcmeDraft::default(),
            sites: Vec::new(),
            includes: Vec::new(),
            has_wrong_route: false,
        }
    }
}

impl RouteDraft {
    /// The position of a key that it does not inherit from its site.
    pub(super) fn place_of(&self, key: &str) -> Option<Span> {
        self.own.iter().find(|(own, _)| *own == key).map(|(_, place)| *place)
    }
}

impl SiteDraft {
    pub(super) fn new(place: Span) -> Self {
        Self {
            place,
            name: None,
            listen: Vec::new(),
            hosts: Vec::new(),
            default: None,
            tls: None,
            tls_place: None,
            things: Vec::new(),
            https: Https::Allow,
            https_place: None,
            hsts: None,
            hsts_place: None,
            log: Log::default(),
            log_place: place,
            shared: Shared::default(),
            routes: Vec::new(),
            has_wrong_route: false,
        }
    }

    /// The name of the site: by default that of its first host.
    pub(super) fn shown_name(&self) -> &str {
        let first = || self.hosts.first().map(|(host, _)| &**host);
        self.name.as_deref().or_else(first).unwrap_or("default")
    }
}

impl RouteDraft {
    pub(super) fn new(place: Span, mut shared: Shared) -> Self {
        shared.limits.has_own_requests = false;
        let path = ("/".to_owned(), place);
        Self {
            place,
            path,
            pattern: None,
            is_internal: false,
            log: None,
            actions: Vec::new(),
            fastcgi: None,
            shared,
            own: Vec::new(),
            has_unknown: false,
            has_wrong_action: false,
        }
    }
}

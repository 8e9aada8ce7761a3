//! The configuration of the server: files are read into values, checked as a whole, and printed.
//!
//! [`file::load`] reads the files of an [`Environment`](file::Environment), its only access to the world. It makes a
//! [`Config`] of them or a list of [messages](Message). [`print::to_toml`] writes a `Config` as a file again,
//! [`print::shown`] writes it without its secrets, and [`reference::markdown`] writes the documentation of all keys.
//!
//! The tables of keys (`keys/`) drive the parser, which makes of a file a draft with the line of each value. The
//! printed configuration and the documentation are made of the same tables. A route begins as a copy of its site's
//! values. `resolve` compares the parts.
//!
//! The crate also answers the questions of each request: the site of a host ([`site`]), the route of a path
//! ([`route`]), the target of a redirect ([`redirect`]), the clients that a route serves ([`Access`]).
//!
//! No file is opened and no clock is read. Names of drivers, links and windows are values of `ring` and `sendfile`.

#![forbid(unsafe_code)]

mod access;
mod acme;
mod address;
mod credentials;
mod draft;
pub mod errno;
mod expand;
pub mod file;
pub mod flags;
mod interface;
mod keys;
mod message;
mod node;
mod pattern;
mod placeholder;
pub mod print;
pub mod redirect;
pub mod reference;
mod request_header;
mod resolve;
pub mod route;
pub mod rule;
mod secrets;
pub mod site;
pub mod suggest;
pub mod text;
mod tls;
pub mod upstream;
pub mod value;
mod variable;

use core::fmt;
use core::net::{Ipv4Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Status;
use ring::{Choice, SymlinkScope};
use sendfile::Policy;

pub use access::{Access, AddressSet, Peers, Permitted, Prefix};
pub use acme::{Acme, AcmeChallenge, AcmeEab, acme_names};
pub use address::{Address, Listen, UnixSocket, url};
pub use draft::{NamedFile, Thing};
pub use interface::{Capture, Congestion, Frames, Interface, InterfaceAddress};
pub use message::Message;
pub use pattern::Pattern;
pub use request_header::RequestHeader;
pub use secrets::Secrets;
pub use tls::{Https, Tls, TlsClients, TlsFiles, TlsProfile};
pub use upstream::server_address;
pub use upstream::{
    Balance, GatewayRules, HashBy, HealthRules, Protocol, ServerAddress, ServerUrl, Upstream,
    UpstreamTls,
};
pub use variable::{Piece, Variable};

/// The name of the server in responses and messages.
pub const NAME: &str = "samum";

/// The configuration of `samum serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The settings of the process.
    pub server: Server,
    /// The sites; at least one.
    pub sites: Vec<Site>,
    /// The way to certificates by ACME; `Some` if a site has them.
    pub acme: Option<Acme>,
    /// The values that no output shows.
    pub secrets: Secrets,
}

impl Config {
    /// Finds listeners for all addresses of the machine, if one of these addresses is listed, too: one of the
    /// two sockets could not be bound. Returns the listener, and a sentence for the operator.
    pub fn collisions(&self) -> impl Iterator<Item = (Address, String)> {
        let ip = |listen: &Listen| match listen.address {
            Address::Ip(ip) if ip.port() != 0 => Some(ip),
            _ => None,
        };
        // On an interface of our own stack the kernel does not have such an address.
        let is_of_kernel = self.server.interfaces.is_empty();
        let listed = move || self.sites.iter().flat_map(|site| &site.listen).filter_map(ip);
        let all = listed().filter(move |all| is_of_kernel && all.ip().is_unspecified());
        all.filter_map(move |all| {
            // The sockets of IPv6 are for IPv6 only.
            let is_of = |other: &SocketAddr| {
                other.port() == all.port() && other.is_ipv4() == all.is_ipv4() && *other != all
            };
            let one = listed().find(is_of)?;
            let why = format!(
                "cannot listen on both {all} and {one}, which is one of its addresses: leave one of them out"
            );
            Some((Address::Ip(all), why))
        })
    }

    /// The configuration of a server with one site, which serves the files of a directory to all requests.
    #[must_use]
    pub fn of_directory(files: Files, listen: Vec<Listen>, log: Log, server: Server) -> Self {
        let route = Route { action: Action::Files(files), ..Route::default() };
        let site = Site {
            name: "default".to_owned(),
            listen,
            hosts: Vec::new(),
            is_default: true,
            tls: None,
            https: Https::Allow,
            hsts: None,
            log,
            access: Access::default(),
            limits: Limits::default(),
            headers: Vec::new(),
            errors: BTreeMap::new(),
            server_timing: false,
            routes: vec![route],
        };
        Self { server, sites: vec![site], acme: None, secrets: Secrets::default() }
    }
}

/// The files of the working directory are served on port 8080 of this machine.
impl Default for Config {
    fn default() -> Self {
        let files = Files { root: ".".into(), rules: FileRules::default() };
        let listen = Address::Ip((Ipv4Addr::LOCALHOST, 8080).into());
        Self::of_directory(files, vec![listen.into()], Log::default(), Server::default())
    }
}

/// The settings of the process: `[server]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The number of workers, each of which is a thread; at least one.
    pub threads: usize,
    /// The kernel interface that the workers use.
    pub driver: Choice,
    /// The interfaces on which samum's own TCP/IP stack serves the listeners.
    pub interfaces: Vec<Interface>,
    /// The way of frames from and to the interfaces.
    pub frames: Frames,
    /// The congestion control of their connections.
    pub congestion: Congestion,
    /// The record of their frames.
    pub capture: Option<Capture>,
    /// The socket for `samum reload`, `samum upgrade`, `samum health` and `samum stack`.
    pub control: Option<PathBuf>,
    /// The proxies that are believed when they name their clients, by `Forwarded`, `X-Forwarded-For` or the
    /// PROXY protocol: `"10.0.0.0/8"`, and `"unix"` for all that connect to a Unix socket. The client that
    /// they name counts for access rules, limits and logs.
    pub trusted_proxies: Vec<Peers>,
    /// The format of messages to the operator.
    pub error_format: ErrorFormat,
    /// The user that the server becomes when its sockets are open. By default it stays the user that started it.
    pub user: Option<Account>,
    /// The use of Landlock, if it is said; see [`confine`](Self::confine).
    pub confine: Option<Confine>,
    /// The settings of each worker.
    pub tuning: Tuning,
}

impl Server {
    /// The use of Landlock: by default [`Auto`](Confine::Auto) if the server becomes another user, else
    /// [`Off`](Confine::Off).
    #[must_use]
    pub fn confine(&self) -> Confine {
        let default = if self.user.is_some() { Confine::Auto } else { Confine::Off };
        self.confine.unwrap_or(default)
    }
}

impl Default for Server {
    /// The settings of one worker.
    fn default() -> Self {
        Self {
            threads: 1,
            driver: Choice::Auto,
            interfaces: Vec::new(),
            frames: Frames::Auto,
            congestion: Congestion::Cubic,
            capture: None,
            control: None,
            trusted_proxies: Vec::new(),
            error_format: ErrorFormat::Text,
            user: None,
            confine: None,
            tuning: Tuning::default(),
        }
    }
}

/// The user of a process, by names or numbers: `USER` or `USER:GROUP`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// The user.
    pub user: String,
    /// The only group; by default the groups of the user.
    pub group: Option<String>,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)?;
        self.group.as_ref().map_or(Ok(()), |group| write!(f, ":{group}"))
    }
}

/// The use of Landlock, with which a process gives up the access to files that it does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Confine {
    /// As much as the kernel has; the log says what the kernel lacks
    Auto,
    /// All of it, or the server does not start
    Required,
    /// None
    Off,
}

/// A site: the responses to requests for some hosts: `[[site]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The name of the site in metrics: its first host, or `default`.
    pub name: String,
    /// The listeners; at least one. Sites may share an address, and must agree on the rest of its listener.
    pub listen: Vec<Listen>,
    /// The hosts: names, IP addresses and wildcards, without ports.
    pub hosts: Vec<String>,
    /// True if the site gets the requests for hosts that no site of its address has. If no site is the
    /// default, the first one is.
    pub is_default: bool,
    /// The certificates, for the listeners with TLS; `Some` if a client can reach the site there. Sites that share an
    /// address may have different ones.
    pub tls: Option<Tls>,
    /// The treatment of requests without TLS. If it is a redirect, the site has hosts.
    pub https: Https,
    /// The time for which responses over TLS tell browsers to use TLS only (`Strict-Transport-Security`): whole seconds,
    /// from 1 s to 3,650 days. By default they do not tell so.
    pub hsts: Option<Duration>,
    /// The access log.
    pub log: Log,
    /// The clients that may use it, for the responses that no route makes. Routes have their own.
    pub access: Access,
    /// The limits for each client, for the responses that no route makes. Routes have their own, and may share the limit
    /// of requests.
    pub limits: Limits,
    /// The changes of the fields of responses that no route makes. The changes of each route begin with these.
    pub headers: Vec<HeaderRule>,
    /// The error pages for requests that no route has, or whose path is no path of a file. Routes have their own.
    pub errors: BTreeMap<u16, String>,
    /// True if the responses that no route makes have a `Server-Timing` field. Routes have their own.
    pub server_timing: bool,
    /// The routes; the order counts only among those with the same path and a pattern.
    pub routes: Vec<Route>,
}

/// An access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log {
    /// The destination.
    pub target: LogTarget,
    /// The format of its lines.
    pub format: LogFormat,
    /// The statuses of the responses that have lines; by default all have.
    pub statuses: Vec<StatusSet>,
    /// One in this many of these responses has a line.
    pub sample: Sample,
}

/// The part of the lines that a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Lines among a million; at least one.
    pub of_million: u32,
}

impl Sample {
    /// All lines.
    pub const ALL: u32 = 1_000_000;
}

impl Default for Sample {
    fn default() -> Self {
        Self { of_million: Self::ALL }
    }
}

/// A route: the handling of requests for some paths of a site: `[[site.route]]`. It includes the values that it
/// inherits from its site.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The path, which begins with a slash. If it ends with one, the route has all paths below it; if it
    /// does not, the path itself, too.
    pub path: String,
    /// A pattern that the whole path of a request must match, too.
    pub pattern: Option<Pattern>,
    /// True if no request reaches the route directly: it is reached by hand-over only.
    pub is_internal: bool,
    /// The clients that may use it.
    pub access: Access,
    /// The limits for each client.
    pub limits: Limits,
    /// The changes of the fields of responses, in order, those of the site first; by default none.
    pub headers: Vec<HeaderRule>,
    /// The error pages for statuses from 400 to 599, except 412 and 416: paths of the same site that lead to files.
    /// By default the server makes all error pages.
    pub errors: BTreeMap<u16, String>,
    /// True if responses have a `Server-Timing` field.
    pub server_timing: bool,
    /// True if a client may end its side of the connection and still wait for the response of an upstream or a program.
    pub half_close: bool,
    /// The maximum of bytes of the body of a request, if the action uses bodies; a longer one is refused with 413. By
    /// default there is no limit.
    pub max_body: Option<u64>,
    /// The fields that servers get instead of the client's fields with the same names, if the action is
    /// [`Proxy`](Action::Proxy). By default none.
    pub request_headers: Arc<[RequestHeader]>,
    /// The access log, if it is another one than that of the site.
    pub log: Option<Log>,
    /// The action.
    pub action: Action,
}

impl Route {
    /// The name of the route for the operator: its path, or its pattern if the path says nothing.
    pub fn name(&self) -> &str {
        match &self.pattern {
            Some(pattern) if self.path == "/" => pattern.as_str(),
            _ => &self.path,
        }
    }
}

impl Default for Route {
    /// All paths of a site, open to all clients, lead to the files of the working directory.
    fn default() -> Self {
        let files = Files { root: ".".into(), rules: FileRules::default() };
        Self {
            path: "/".to_owned(),
            pattern: None,
            is_internal: false,
            access: Access::default(),
            limits: Limits::default(),
            headers: Vec::new(),
            errors: BTreeMap::new(),
            server_timing: false,
            half_close: false,
            max_body: None,
            request_headers: Arc::default(),
            log: None,
            action: Action::Files(files),
        }
    }
}

impl Route {
    /// True if its files may have directives.
    #[must_use]
    #[inline]
    pub fn has_includes(&self) -> bool {
        self.action.files().is_some_and(|files| files.rules.includes)
    }
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it stays where the configuration was made")]
pub enum Action {
    /// Files are served.
    Files(Files),
    /// The client is sent elsewhere.
    Redirect(Redirect),
    /// The client is sent elsewhere, if this file lists the path of its request. A path that the file does
    /// not list has no such route: the next one is looked for.
    Redirects(PathBuf),
    /// A program makes the response (RFC 3875).
    Cgi(Cgi),
    /// Another server makes the response.
    Proxy(Upstream),
    /// A FastCGI application makes the response. With files, it does so for scripts only: files whose names end
    /// with `.php`.
    Fastcgi(Fastcgi),
    /// The response has the counters of the server.
    Metrics,
    /// The response shows the state of the server to the operator.
    StatusPage,
    /// The response is always the same.
    Status(FixedStatus),
}

impl Action {
    /// The files of a directory, if some are sent.
    #[must_use]
    pub const fn files(&self) -> Option<&Files> {
        match self {
            Self::Files(files) | Self::Fastcgi(Fastcgi { files: Some(files), .. }) => Some(files),
            _ => None,
        }
    }

    /// The key of a route that says it.
    pub(crate) const fn key(&self) -> &'static str {
        match self {
            Self::Files(_) => "files",
            Self::Redirect(_) => "redirect",
            Self::Redirects(_) => "redirects",
            Self::Cgi(_) => "cgi",
            Self::Proxy(_) => "proxy",
            Self::Fastcgi(_) => "fastcgi",
            Self::Metrics => "metrics",
            Self::StatusPage => "status-page",
            Self::Status(_) => "status",
        }
    }

    /// Returns whether programs, applications or upstreams make the responses.
    #[must_use]
    pub const fn is_gateway(&self) -> bool {
        matches!(self, Self::Cgi(_) | Self::Fastcgi(_) | Self::Proxy(_))
    }

    /// The upstream that makes the responses, if the action has one.
    #[must_use]
    pub const fn upstream(&self) -> Option<&Upstream> {
        match self {
            Self::Proxy(upstream) | Self::Fastcgi(Fastcgi { upstream, .. }) => Some(upstream),
            _ => None,
        }
    }
}

/// The files of a directory, and the rules by which they are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory.
    pub root: PathBuf,
    /// The rules.
    pub rules: FileRules,
}

/// The rules by which files are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRules {
    /// The names of files that are served for their directory: the first name that exists counts. At most
    /// [`INDICES_MAX`](Self::INDICES_MAX) and at least one. By default `index.html`.
    pub index: Vec<String>,
    /// True if directories without such a file are listed.
    pub listing: bool,
    /// The treatment of the files that are sent.
    pub policy: Policy,
    /// The source of entity tags.
    pub tags: Tags,
    /// The file that is sent with status 200 for paths without a file: a path of the same site that leads to files. By
    /// default none.
    pub fallback: Option<String>,
    /// True if `/a` gets `a.html` where `a` does not exist, and `/a.html` redirects to `/a`. By default false.
    pub clean_urls: bool,
    /// Media types by the name of a file, or by its extension without a dot, in lower case, before those that are
    /// built in. By default empty.
    pub types: BTreeMap<String, String>,
    /// The media type of files whose names show none. By default `application/octet-stream`.
    pub default_type: String,
    /// The encoding of text files, which their media type names; none if it does not. By default `utf-8`.
    pub charset: Option<String>,
    /// True if files and directories are served whose names begin with a dot. `/.well-known/` is served
    /// anyway. By default false.
    pub dotfiles: bool,
    /// The treatment of symbolic links.
    pub symlinks: Symlinks,
    /// True if `a.css.br`, `a.css.zst` or `a.css.gz` is sent instead of `a.css` to clients that understand it. By
    /// default true.
    pub precompressed: bool,
    /// True if files may have directives (server-side includes), which are replaced by their results. By default false.
    pub includes: bool,
    /// The media types of the files that may have directives, without parameters. By default `text/html`.
    pub include_types: Vec<String>,
}

/// The suffix of the names of scripts in a directory of files.
pub const SCRIPT_SUFFIX: &str = ".php";
/// The suffix of the names of HTML files, which clean URLs leave out.
pub const HTML_SUFFIX: &[u8] = b".html";

impl FileRules {
    /// The maximum of names of an index: a directory without one costs a look at each.
    pub const INDICES_MAX: usize = 8;

    /// The clean path of a file, if it differs from the file's path. For the first index of a directory it is the
    /// directory's path, for other HTML files the path without `.html`. Other indices have none, because the directory may lead to
    /// another index.
    pub fn clean_path<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        if !self.clean_urls {
            None
        } else if self.index.first().is_some_and(|first| name == first.as_bytes()) {
            path.strip_suffix(name)
        } else {
            path.strip_suffix(HTML_SUFFIX).filter(|_| name.len() > HTML_SUFFIX.len())
        }
    }
}

/// A redirection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The target: a path or a URL. In it `$1` to `$9` stand for the matches of the pattern's stars, and `$0` for the
    /// rest of the path after the route's. The query of the request is kept, unless the target has a query.
    pub to: String,
    /// The status: 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A response that is always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedStatus {
    /// The status: from 200 to 599, and not 304.
    pub code: u16,
    /// The content, of [`TEXT_BYTES_MAX`](Self::TEXT_BYTES_MAX) at most. Without one an error has its page, and other
    /// responses have no content.
    pub text: Option<String>,
}

impl FixedStatus {
    /// The maximum of bytes of a text. Each response has a copy of it, so longer texts belong in a file.
    pub const TEXT_BYTES_MAX: usize = 64 * 1024;

    /// Checks the status.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn check_code(code: u16) -> Result<Status, String> {
        match Status::from_code(code) {
            Some(Status::NotModified) => {
                Err("304 only answers the condition of a request".to_owned())
            }
            Some(status) if (200..=599).contains(&code) => Ok(status),
            _ => Err("expected a status from 200 to 599".to_owned()),
        }
    }

    /// Returns whether a response with this status may have a text (RFC 9110 §15.3.5, §15.3.6).
    pub(crate) const fn has_content(code: u16) -> bool {
        !matches!(code, 204 | 205)
    }
}

/// The programs of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgi {
    /// The directory. It is opened anew for each program, so it may be replaced.
    pub root: PathBuf,
    /// The maximum number of programs that run at the same time, of all workers together; at least one. 256 further
    /// requests wait in a queue.
    pub processes_max: u32,
    /// A program that has not ended after this time gets SIGTERM, and SIGKILL 5 s later. Slow reading of its client
    /// counts. A request that waits in the queue for so long gets the response 503.
    pub timeout: Duration,
    /// The maximum of bytes that a program may put out, on standard output and standard error together.
    pub output_max: u64,
    /// Variables of the environment in addition to the variables of the request. They replace others with their names.
    pub environment: Vec<(String, String)>,
    /// Directories and files that programs of a confined server may read and execute, in addition to their own
    /// directory.
    pub read: Vec<PathBuf>,
    /// Directories and files that programs of a confined server may read and change.
    pub write: Vec<PathBuf>,
    /// The bytes of a body that wait in memory until all of it has come, at most 1 MiB. See [`GatewayRules::buffer`].
    pub buffer: u64,
    /// The directory on whose disk the rest of such a body waits; by default the system's directory for temporary
    /// files.
    pub buffer_dir: Option<PathBuf>,
}

impl Cgi {
    /// The programs of a directory, with the default limits.
    #[must_use]
    pub const fn new(root: PathBuf) -> Self {
        Self {
            root,
            processes_max: 32,
            timeout: Duration::from_secs(60),
            output_max: 64 * 1024 * 1024,
            environment: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            buffer: GatewayRules::BUFFER,
            buffer_dir: None,
        }
    }
}

/// Scripts that a FastCGI application runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fastcgi {
    /// The application: its servers, each of which runs all scripts.
    pub upstream: Upstream,
    /// The directory of the scripts, if the server can see it. A request for a path that does not exist there does not
    /// reach the application, and files that are no scripts are sent.
    pub files: Option<Files>,
    /// The directory of the scripts as the application sees it. By default the directory of the files.
    pub root: Option<PathBuf>,
    /// True if connections are kept for further requests. Each takes one process of php-fpm.
    pub keeps_connections: bool,
    /// Variables of the environment in addition to the variables of the request. They replace others with their names.
    pub environment: Vec<(String, String)>,
}

impl Fastcgi {
    /// The scripts that these servers run, which are the same for all workers.
    #[must_use]
    pub const fn new(servers: Vec<ServerUrl>, rules: GatewayRules) -> Self {
        Self {
            upstream: Upstream { servers, rules },
            files: None,
            root: None,
            keeps_connections: false,
            environment: Vec::new(),
        }
    }
}

/// Limits for each client address; IPv6 clients are counted by their /64. Clients on Unix sockets have no
/// limits but the last one, unless a trusted proxy names their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// `connections-per-ip`: a request is served only if its client has at most this many open connections, of all
    /// sites together. Connections of a proxy that names its clients in fields do not count.
    pub connections: Option<u32>,
    /// `requests-per-ip`: requests.
    pub requests: Option<Rate>,
    /// True if the route itself has this limit, and counts its requests alone. Routes with the limit of their site
    /// count their requests together.
    pub has_own_requests: bool,
    /// `bytes-per-connection`: bytes per second that a connection is sent, at least
    /// [`BYTES_PER_SECOND_MIN`](Self::BYTES_PER_SECOND_MIN) and twice `--rate-min`. It is the rate of the response that
    /// was begun last.
    pub bytes_per_second: Option<u64>,
}

impl Limits {
    /// The least value of [`bytes_per_second`](Self::bytes_per_second).
    pub const BYTES_PER_SECOND_MIN: u64 = 1024;

    /// Checks that clients are not taken for slow ones at their rate, and do not get next to nothing.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, with the least rate.
    pub fn check_rate(&self, tuning: &Tuning) -> Result<(), String> {
        let least = Self::BYTES_PER_SECOND_MIN.max(tuning.rate_min.saturating_mul(2));
        if self.bytes_per_second.is_none_or(|rate| rate >= least) {
            return Ok(());
        }
        Err(format!("expected {least}/s at least, and twice of `rate-min`"))
    }
}

/// A rate, as a token bucket has it: `100/s burst 200`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Tokens per second, more than 0.
    pub per_second: f64,
    /// The size of the bucket, at least one. By default it is the tokens of one second.
    pub burst: u32,
}

/// A change of the fields of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRule {
    /// The pattern that a path must match. For a file it is the path of the file that is sent, or the path by which it
    /// was found; for other responses the path of the request. Without a pattern all paths match.
    pub pattern: Option<Pattern>,
    /// The statuses of the responses that are changed. Without one all responses are. But fields about the lifetime of
    /// a response are changed only for statuses that mean success or a found resource.
    pub statuses: Vec<StatusSet>,
    /// Names and values of fields that responses have, instead of others with these names.
    pub set: Vec<(String, String)>,
    /// The names of fields that are left out. They are removed before others are set.
    pub remove: Vec<String>,
}

/// Statuses of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusSet {
    /// A single status, such as 404.
    One(u16),
    /// All statuses with this first digit, such as 4.
    Class(u16),
}

impl StatusSet {
    /// The statuses that a rule may name. Lower ones are interim.
    pub(crate) const CODES: RangeInclusive<u16> = 200..=599;

    /// Returns whether the rule covers a status.
    #[must_use]
    pub const fn has(self, code: u16) -> bool {
        match self {
            Self::One(one) => code == one,
            Self::Class(digit) => code / 100 == digit,
        }
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(code) => write!(f, "{code}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

/// The settings of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The bytes that the connections of one worker may hold together with its cached responses. Beyond this limit each
    /// connection has one response at a time.
    pub memory_bytes_max: u64,
    /// The bytes of the buffers of one worker in which contents from upstreams wait for slow clients. Beyond this limit
    /// each content has little memory, and waits at its server.
    pub buffers_bytes_max: u64,
    /// The bytes of the files in which bodies of requests wait for programs and applications, of all workers together.
    pub body_files_max: u64,
    /// The maximum number of connections of all workers together.
    pub connections_max: usize,
    /// An idle connection is closed after this time.
    pub timeout_idle: Duration,
    /// A request that is not complete after this time gets the response 408.
    pub timeout_header: Duration,
    /// A connection whose peer receives less than [`rate_min`](Self::rate_min) for this long is closed.
    pub timeout_send: Duration,
    /// A request whose file a disk has not brought after this time gets the response 503. If its response has begun,
    /// its connection is closed.
    pub timeout_disk: Duration,
    /// The time for connections to end when the server stops, or when another process has replaced it. Without it the
    /// times are [`DRAIN_AT_STOP`] and [`DRAIN_AT_UPGRADE`].
    pub timeout_drain: Option<Duration>,
    /// The bytes per second that a peer must take while a response waits for it. It must always take at least one byte
    /// in each `timeout_send`.
    pub rate_min: u64,
    /// The limits of the head of a request.
    pub request_limits: http1::Limits,
    /// The limits of the head of a response from an upstream or a program.
    pub response_limits: http1::Limits,
    /// The maximum of ranges that a request may ask for. Beyond it the whole file is sent.
    pub ranges_max: usize,
}

/// The limits of an upstream's messages, unless the configuration sets others. Heads may be twice as long as heads of
/// requests, because servers set many cookies in one response, and may have as many lines as fit.
pub const RESPONSE_LIMITS: http1::Limits = http1::Limits {
    head_bytes_max: 32 * 1024,
    fields_max: 4096,
    body_bytes_max: u64::MAX,
    chunk_line_bytes_max: 4 * 1024,
    ..http1::Limits::DEFAULT
};

/// The time for connections to end when the server stops, unless the configuration has another.
pub const DRAIN_AT_STOP: Duration = Duration::from_secs(30);
/// The time for connections to end when another process has replaced the server, unless the configuration has another.
pub const DRAIN_AT_UPGRADE: Duration = Duration::from_secs(600);

impl Tuning {
    /// The times for connections to end: when the server stops, and when another process has replaced it.
    #[must_use]
    pub fn drain_times(&self) -> (Duration, Duration) {
        let Self { timeout_drain, .. } = self;
        (timeout_drain.unwrap_or(DRAIN_AT_STOP), timeout_drain.unwrap_or(DRAIN_AT_UPGRADE))
    }

    /// Sets the limit of the head of a request, half of it for its target.
    pub fn set_request_head(&mut self, bytes: usize) {
        self.request_limits.head_bytes_max = bytes;
        self.request_limits.target_bytes_max = bytes / 2;
    }
}

/// The bytes that the connections of one worker may hold together with its cached responses, unless its settings say
/// otherwise.
pub const WORKER_BYTES_MAX: u64 = 128 * 1024 * 1024;

impl Default for Tuning {
    fn default() -> Self {
        Self {
            memory_bytes_max: WORKER_BYTES_MAX,
            buffers_bytes_max: 512 * 1024 * 1024,
            body_files_max: 1024 * 1024 * 1024,
            connections_max: 16 * 1024,
            timeout_idle: Duration::from_secs(75),
            timeout_header: Duration::from_secs(20),
            timeout_send: Duration::from_secs(30),
            timeout_disk: Duration::from_secs(30),
            timeout_drain: None,
            rate_min: 64,
            request_limits: http1::Limits::DEFAULT,
            response_limits: RESPONSE_LIMITS,
            ranges_max: http::range::RANGES_MAX,
        }
    }
}

impl Default for FileRules {
    fn default() -> Self {
        Self {
            index: vec!["index.html".to_owned()],
            listing: false,
            policy: Policy::default(),
            tags: Tags::Stat,
            fallback: None,
            clean_urls: false,
            types: BTreeMap::new(),
            default_type: "application/octet-stream".to_owned(),
            charset: Some("utf-8".to_owned()),
            dotfiles: false,
            symlinks: Symlinks::Beneath,
            precompressed: true,
            includes: false,
            include_types: vec!["text/html".to_owned()],
        }
    }
}

/// The source of entity tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// Size, times of modification and of change, inode.
    #[default]
    Stat,
    /// The contents.
    Hash,
}

/// The treatment of symbolic links below a root directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Symlinks {
    /// Those that stay beneath the directory are followed; others lead to nothing
    #[default]
    Beneath,
    /// None are followed: they lead to nothing
    Never,
    /// All are followed, but those of /proc: to everything that the user of the server may read
    Follow,
    /// Those that stay beneath the directory are followed, and others that lead into it or into one of these.
    #[value(skip)]
    Into(Arc<[PathBuf]>),
}

impl Symlinks {
    /// The links that a ring follows.
    pub fn scope(&self) -> SymlinkScope {
        match self {
            Self::Never => SymlinkScope::Never,
            Self::Beneath => SymlinkScope::Beneath,
            Self::Follow => SymlinkScope::Anywhere,
            Self::Into(into) => SymlinkScope::Into(Arc::clone(into)),
        }
    }

    /// The directories that links may lead into, in addition to the root directory.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        let (all, into): (_, &[PathBuf]) = match self {
            Self::Follow => (Some(Path::new("/")), &[]),
            Self::Into(into) => (None, into),
            Self::Never | Self::Beneath => (None, &[]),
        };
        all.into_iter().chain(into.iter().map(PathBuf::as_path))
    }

    /// Returns whether links may lead out of the root directory.
    pub const fn lead_out(&self) -> bool {
        matches!(self, Self::Follow | Self::Into(_))
    }
}

/// The destination of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogTarget {
    /// No log.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// The end of a file.
    File(PathBuf),
    /// A socket at which a daemon receives messages of syslog (RFC 3164, as `syslog(3)` writes them).
    Syslog(PathBuf),
    /// A socket at which the journal of systemd receives entries in its own protocol.
    Journald(PathBuf),
}

impl LogTarget {
    /// The path of the file, or of the socket of the daemon, that gets the lines.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Syslog(path) | Self::Journald(path) => Some(path),
            Self::None | Self::Stdout => None,
        }
    }
}

/// The format of a line of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum LogFormat {
    /// `host - - [date] "request" status bytes`
    Common,
    /// The same with referrer and user agent; most tools read this.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
    /// A format of one's own.
    #[value(skip)]
    Own(Arc<OwnFormat>),
}

/// A format of one's own: a text with variables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnFormat {
    text: String,
    pieces: Vec<Piece>,
}

impl OwnFormat {
    /// The maximum of bytes of a format.
    pub const BYTES_MAX: usize = 4096;

    /// Reads a format, which is one line.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.contains(text::is_hidden) {
            return Err("a format is one line of visible text".to_owned());
        }
        if text.len() > Self::BYTES_MAX {
            return Err("a format has 4096 bytes at most".to_owned());
        }
        let pieces = variable::pieces(text, variable::Scope::Response)?;
        Ok(Self { text: text.to_owned(), pieces })
    }

    /// The format as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

/// The format of messages to the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ErrorFormat {
    /// Lines of text, which begin with `samum:`.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_clean_paths() {
        let rules = FileRules { clean_urls: true, ..FileRules::default() };
        let cases: [(&str, Option<&str>); 9] = [
            ("a.html", Some("a")),
            ("d/a.html", Some("d/a")),
            ("index.html", Some("")),
            ("d/index.html", Some("d/")),
            ("d/.html", None),
            (".html", None),
            ("a.htm", None),
            ("a.html/", None),
            ("", None),
        ];
        for (path, expected) in cases {
            assert_eq!(rules.clean_path(path.as_bytes()), expected.map(str::as_bytes), "{path}");
        }
        assert_eq!(FileRules::default().clean_path(b"a.html"), None);
        // A directory with both leads to the first.
        let index = ["index.php", "index.html"].map(str::to_owned).into();
        let rules = FileRules { index, ..rules };
        assert_eq!(rules.clean_path(b"d/index.php"), Some(&b"d/"[..]));
        assert_eq!(rules.clean_path(b"d/index.html"), Some(&b"d/index"[..]));
    }
}

//! The servers of the league: their commands and configurations, as they are started and as the report shows
//! them. Pure, except that it looks for programs.
//!
//! All get one worker, no access log, kept connections, and the recommendations of their manuals for static
//! files. A setting that only makes 10,000 connections fit is given to all. Proxies have their default
//! buffers, and keep their connections to the origin, too.

use core::net::SocketAddr;
use std::env;
use std::path::{Path, PathBuf};

/// The command that starts a server, in which `{root}`, `{ip}`, `{port}`, `{dir}`, `{origin}` and `{user}` are
/// filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name in tables and plots.
    pub name: String,
    /// Program and arguments. `{conf}` is the path of the configuration.
    pub command: Vec<String>,
    /// The text of its configuration; may be empty.
    pub configuration: String,
    /// Environment variables it gets.
    pub environment: Vec<(String, String)>,
    /// Arguments with which the program prints its version; none if it cannot.
    pub version: &'static [&'static str],
    /// True if the argument `{files}` is replaced by the names of the files.
    pub needs_files: bool,
}

/// The directories and addresses with which one server is started.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Directory that it serves.
    pub root: &'a Path,
    /// Address that it listens at.
    pub address: SocketAddr,
    /// Interface of that address, for a server that has a TCP of its own.
    pub interface: &'a str,
    /// Directory of its own: configuration, logs, process ID.
    pub dir: &'a Path,
    /// The server that a proxy passes requests to.
    pub origin: Option<SocketAddr>,
}

impl Peer {
    /// The peer of that name.
    ///
    /// # Errors
    /// A message, if no server has that name.
    pub fn named(name: &str) -> Result<Self, String> {
        let (base, preload) = match name.strip_suffix("-preload") {
            Some(base) if PRELOADED.contains(&name) => (base, true),
            _ => (name, false),
        };
        let (command, configuration, version): (&str, String, &'static [&'static str]) = match base
        {
            "floor" => ("{floor} {ip} {port} {root} {files}", String::new(), &[]),
            "samum" => (SAMUM, String::new(), &["--version"]),
            "samum-always" => (SAMUM_ALWAYS, String::new(), &["--version"]),
            "samum-never" => (SAMUM_NEVER, String::new(), &["--version"]),
            "samum-own" => (SAMUM_OWN, String::new(), &["--version"]),
            "samum-own-crowd" => (SAMUM_OWN_CROWD, String::new(), &["--version"]),
            "samum-own-never" => (SAMUM_OWN_NEVER, String::new(), &["--version"]),
            "samum-epoll" => (SAMUM_EPOLL, String::new(), &["--version"]),
            "nginx" | ORIGIN => ("nginx -c {conf}", NGINX.replace("{aio}", ""), &["-v"]),
            "nginx-aio" => ("nginx -c {conf}", NGINX.replace("{aio}", "\n  aio threads;"), &["-v"]),
            "nginx-directio" => {
                let aio = "\n  aio threads; directio 1;";
                ("nginx -c {conf}", NGINX.replace("{aio}", aio), &["-v"])
            }
            "h2o" => ("h2o -c {conf}", H2O.to_owned(), &["-v"]),
            "lighttpd" => ("lighttpd -D -f {conf}", LIGHTTPD.to_owned(), &["-v"]),
            "caddy" => (CADDY_COMMAND, CADDY.to_owned(), &["version"]),
            "samum-proxy" => (SAMUM_PROXY, SAMUM_PROXY_CONFIGURATION.to_owned(), &["--version"]),
            "samum-proxy-buffer" => {
                let configuration = SAMUM_PROXY_CONFIGURATION.to_owned() + "splice = false\n";
                (SAMUM_PROXY, configuration, &["--version"])
            }
            "nginx-proxy" => ("nginx -c {conf}", NGINX_PROXY.to_owned(), &["-v"]),
            "haproxy" => ("haproxy -db -f {conf}", HAPROXY.replace("{splice}", ""), &["-v"]),
            "haproxy-splice" => {
                let splice = "\n  option splice-auto";
                ("haproxy -db -f {conf}", HAPROXY.replace("{splice}", splice), &["-v"])
            }
            "caddy-proxy" => (CADDY_COMMAND, CADDY_PROXY.to_owned(), &["version"]),
            PHP_FPM => ("php-fpm8.2 -R -F -n -y {conf}", PHP_FPM_POOL.to_owned(), &["-v"]),
            "samum-fastcgi" => (SAMUM_PROXY, SAMUM_FASTCGI.to_owned(), &["--version"]),
            "nginx-fastcgi" => ("nginx -c {conf}", NGINX_FASTCGI.to_owned(), &["-v"]),
            "haproxy-fastcgi" => ("haproxy -db -f {conf}", HAPROXY_FASTCGI.to_owned(), &["-v"]),
            "samum-includes" => (SAMUM_PROXY, SAMUM_INCLUDES.to_owned(), &["--version"]),
            "nginx-includes" => ("nginx -c {conf}", NGINX_INCLUDES.to_owned(), &["-v"]),
            "samum-stalled" => (SAMUM_PROXY, SAMUM_STALLED.to_owned(), &["--version"]),
            METERED => (SAMUM_PROXY, SAMUM_METERED.to_owned(), &["--version"]),
            "nginx-stalled" => ("nginx -c {conf}", NGINX_STALLED.to_owned(), &["-v"]),
            "samum-tls" => (SAMUM_TLS, String::new(), &["--version"]),
            "nginx-tls" => ("nginx -c {conf}", NGINX_TLS.to_owned(), &["-v"]),
            "h2o-tls" => ("h2o -c {conf}", H2O_TLS.to_owned(), &["-v"]),
            "caddy-tls" => (CADDY_COMMAND, CADDY_TLS.to_owned(), &["version"]),
            ORIGIN_TLS => {
                ("nginx -c {conf}", NGINX_TLS.replace("TLSv1.2 TLSv1.3", ONE_SUITE), &["-v"])
            }
            "samum-tls-out" => (SAMUM_PROXY, to_tls("samum", false), &["--version"]),
            "samum-tls-both" => (SAMUM_PROXY, to_tls("samum", true), &["--version"]),
            "nginx-tls-out" => ("nginx -c {conf}", to_tls("nginx", false), &["-v"]),
            "nginx-tls-both" => ("nginx -c {conf}", to_tls("nginx", true), &["-v"]),
            "haproxy-tls-out" => ("haproxy -db -f {conf}", to_tls("haproxy", false), &["-v"]),
            "haproxy-tls-both" => ("haproxy -db -f {conf}", to_tls("haproxy", true), &["-v"]),
            "caddy-tls-out" => (CADDY_COMMAND, to_tls("caddy", false), &["version"]),
            "caddy-tls-both" => (CADDY_COMMAND, to_tls("caddy", true), &["version"]),
            "nsd" => ("nsd -d -c {conf}", NSD.to_owned(), &["-v"]),
            "dns-own" => (DNS_OWN, String::new(), &[]),
            _ => {
                let known = KNOWN.into_iter().chain(UNCACHED).chain(OWN_STACK).chain(PROXIES);
                let known = known
                    .chain(["samum-always"])
                    .chain(DNS)
                    .chain(FASTCGI)
                    .chain(INCLUDES)
                    .chain(STALLED)
                    .chain(TLS)
                    .chain(TLS_OUT)
                    .chain(TLS_BOTH)
                    .chain([METERED])
                    .collect::<Vec<_>>()
                    .join(", ");
                return Err(format!("no server is called '{name}': there are {known}, and --add"));
            }
        };
        let mut peer = Self::of(name, command);
        peer.configuration = configuration;
        peer.version = version;
        if preload {
            let library = configured("SAMUM_PRELOAD", PRELOAD);
            peer.environment.push(("LD_PRELOAD".to_owned(), library.display().to_string()));
        }
        if base.starts_with("caddy") {
            // The directories in which it would keep certificates.
            for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
                peer.environment.push((variable.to_owned(), "{dir}".to_owned()));
            }
        }
        Ok(peer)
    }

    /// From `NAME=COMMAND`, where the command has `{root}` and `{port}`, words in `'…'` or not.
    ///
    /// # Errors
    /// A sentence, when it is not of that form.
    pub fn added(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not NAME=COMMAND with {{root}} and {{port}}");
        let (name, command) = text.split_once('=').ok_or_else(wrong)?;
        if name.is_empty() || !command.contains("{port}") {
            return Err(wrong());
        }
        Ok(Self::of(name, command))
    }

    fn of(name: &str, command: &str) -> Self {
        let command: Vec<String> = words(command);
        Self {
            name: name.to_owned(),
            needs_files: command.iter().any(|word| word == FILES_KEY),
            command,
            configuration: String::new(),
            environment: Vec::new(),
            version: &[],
        }
    }

    /// True if it passes requests to another server.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        let mut texts = self.command.iter().chain([&self.configuration]);
        texts.any(|text| text.contains(ORIGIN_KEY))
    }

    /// True if it has a TCP of its own on an interface.
    #[must_use]
    pub fn has_own_stack(&self) -> bool {
        self.command.iter().any(|word| word == INTERFACE_KEY)
    }

    /// The path of the program itself.
    ///
    /// # Errors
    /// A sentence, if the program or a library for its start is missing.
    pub fn program(&self) -> Result<PathBuf, String> {
        for (_, value) in self.environment.iter().filter(|(name, _)| name == "LD_PRELOAD") {
            if !Path::new(value).exists() {
                return Err(format!("{value} is not there: cargo build --release builds it"));
            }
        }
        let name = &self.command[0];
        match name.as_str() {
            SAMUM_KEY => {
                let found = samum();
                let missing = || format!("{} is not there: cargo build --release", found.display());
                found.exists().then(|| found.clone()).ok_or_else(missing)
            }
            DNS_KEY => {
                let missing = "the example dns is not there: cargo build --release --examples";
                Some(dns()).filter(|path| path.exists()).ok_or_else(|| missing.to_owned())
            }
            FLOOR_KEY => find("cc").ok_or_else(|| "needs a C compiler, cc".to_owned()),
            _ => find(name).ok_or_else(|| format!("{name} is not installed")),
        }
    }

    /// The binaries of ours that take part: their names and where they are.
    #[must_use]
    pub fn binaries(&self) -> Vec<(&'static str, PathBuf)> {
        let program = (self.command[0] == SAMUM_KEY).then(|| ("samum", samum()));
        let library = self.environment.iter().find(|(name, _)| name == "LD_PRELOAD");
        let library = library.map(|(_, path)| (PRELOAD, PathBuf::from(path)));
        let dns = (self.command[0] == DNS_KEY).then(|| ("dns", dns()));
        program.into_iter().chain(dns).chain(library).collect()
    }

    /// `text` with everything filled in.
    #[must_use]
    pub fn fill(&self, text: &str, place: Launch<'_>) -> String {
        text.replace("{conf}", &format!("{}/conf", place.dir.display()))
            .replace("{root}", &place.root.display().to_string())
            .replace("{dir}", &place.dir.display().to_string())
            .replace(INTERFACE_KEY, place.interface)
            .replace("{ip}", &place.address.ip().to_string())
            .replace("{port}", &place.address.port().to_string())
            .replace(ORIGIN_KEY, &place.origin.map(|it| it.to_string()).unwrap_or_default())
            .replace("{user}", if rustix::process::geteuid().is_root() { "user root;" } else { "" })
            .replace(SAMUM_KEY, &samum().display().to_string())
            .replace(DNS_KEY, &dns().display().to_string())
            .replace(FLOOR_KEY, &format!("{}/floor", place.dir.display()))
    }
}

/// A command line's words; those in `'…'` may hold spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn samum() -> PathBuf {
    configured("SAMUM", "samum")
}

/// The DNS server among the examples of `netdev`.
fn dns() -> PathBuf {
    beside_us("examples/dns")
}

/// The path in an environment variable, or else the file beside this program.
fn configured(variable: &str, name: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| beside_us(name), PathBuf::from)
}

/// A file in the directory of this program, made by the same `cargo build`.
fn beside_us(name: &str) -> PathBuf {
    let directory = env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    let directory = directory.unwrap_or_default();
    // Tests are one further down.
    let directory = match directory.file_name() {
        Some(deps) if deps == "deps" => directory.parent().map(Path::to_owned).unwrap_or_default(),
        _ => directory,
    };
    directory.join(name)
}

/// A program in `$PATH`, or where Debian keeps servers.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories =
        env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The servers that take part without `--servers`.
pub const KNOWN: [&str; 10] = [
    "floor",
    "samum",
    "samum-epoll",
    "nginx",
    "nginx-aio",
    "h2o",
    "lighttpd",
    "caddy",
    "nginx-preload",
    "lighttpd-preload",
];

/// Servers that do not fill the page cache, and are compared with each other.
pub const UNCACHED: [&str; 2] = ["samum-never", "nginx-directio"];

/// Servers that fill the page cache, each with another choice of the files that stay.
pub const CACHING: [&str; 3] = ["samum", "samum-always", "nginx"];

/// The servers whose load is searched without `--servers`.
pub const STEADY: [&str; 6] = ["samum", "nginx-aio", "nginx-preload", "nginx", "h2o", "caddy"];

/// Servers with a TCP of their own, which only a network of namespaces can reach.
pub const OWN_STACK: [&str; 3] = ["samum-own", "samum-own-never", CROWDED];

/// The server that accepts a crowd of connections and lets them be idle.
pub const CROWDED: &str = "samum-own-crowd";

/// The server from which the proxies get their responses.
pub const ORIGIN: &str = "origin";

/// The servers that take part in tests of proxies without `--servers`: the origin itself, and proxies.
pub const PROXIES: [&str; 7] = [
    ORIGIN,
    "samum-proxy",
    "samum-proxy-buffer",
    "nginx-proxy",
    "haproxy",
    "haproxy-splice",
    "caddy-proxy",
];

/// The servers that take part in the test of DNS: on the kernel's UDP, and on a stack of its own.
pub const DNS: [&str; 2] = ["nsd", "dns-own"];

/// The FastCGI application behind the gateways.
pub const PHP_FPM: &str = "php-fpm";

/// The servers that take part in the test of FastCGI without `--servers`.
pub const FASTCGI: [&str; 3] = ["samum-fastcgi", "nginx-fastcgi", "haproxy-fastcgi"];

/// The servers that take part in the test of pages with directives without `--servers`.
pub const INCLUDES: [&str; 2] = ["samum-includes", "nginx-includes"];

/// The servers that take part in the test of a server that does not go on, without `--servers`.
pub const STALLED: [&str; 2] = ["samum-stalled", "nginx-stalled"];

/// The servers that take part in the test of TLS without `--servers`. The second and the third are those to which others
/// are compared.
pub const TLS: [&str; 4] = ["samum-tls", "nginx-tls", "h2o-tls", "caddy-tls"];

/// A server over TLS with one cipher suite, from which proxies get their responses.
pub const ORIGIN_TLS: &str = "origin-tls";

/// The servers that take part in the test of proxies whose upstream speaks TLS, without TLS for clients. The second and the
/// third of these tables are those to which others are compared.
pub const TLS_OUT: [&str; 4] =
    ["samum-tls-out", "nginx-tls-out", "haproxy-tls-out", "caddy-tls-out"];

/// The same with TLS for clients, too.
pub const TLS_BOTH: [&str; 4] =
    ["samum-tls-both", "nginx-tls-both", "haproxy-tls-both", "caddy-tls-both"];

/// A server that shows its metrics below [`METRICS`].
pub const METERED: &str = "samum-metered";

/// The path of its metrics.
pub const METRICS: &str = "/metrics";

/// Servers that send files by sendfile(2), which can use the library.
const PRELOADED: [&str; 2] = ["nginx-preload", "lighttpd-preload"];

/// The library.
const PRELOAD: &str = "libsamum_preload.so";

/// A word that stands for the names of the files to serve.
pub(super) const FILES_KEY: &str = "{files}";
const SAMUM_KEY: &str = "{samum}";
const DNS_KEY: &str = "{dns}";
/// A word that stands for the interface of a server that has a TCP of its own.
const INTERFACE_KEY: &str = "{interface}";
/// A word that stands for the address of the server behind a proxy.
const ORIGIN_KEY: &str = "{origin}";
/// The floor's program, which is compiled first.
pub(super) const FLOOR_KEY: &str = "{floor}";

/// Its source. It knows its files beforehand and has no HTTP: nothing can be much cheaper.
pub(super) const FLOOR_SOURCE: &str = include_str!("floor.c");

const SAMUM: &str = "{samum} serve {root} --listen {ip}:{port} --threads 1";
const SAMUM_TLS: &str = "{samum} serve {root} --listen {ip}:{port} --threads 1 --tls {root}/certificate.pem,{root}/key.pem";
const SAMUM_OWN: &str =
    "{samum} serve {root} --listen {ip}:{port} --threads 1 --interface {interface}";
const SAMUM_OWN_NEVER: &str =
    "{samum} serve {root} --listen {ip}:{port} --threads 1 --interface {interface} --cache never";
const SAMUM_OWN_CROWD: &str = "{samum} serve {root} --listen {ip}:{port} --threads 1 --interface {interface} --max-connections 1048576 --timeout-idle 3600";
const SAMUM_NEVER: &str = "{samum} serve {root} --listen {ip}:{port} --threads 1 --cache never";
const SAMUM_ALWAYS: &str = "{samum} serve {root} --listen {ip}:{port} --threads 1 --cache always";
const SAMUM_EPOLL: &str = "{samum} serve {root} --listen {ip}:{port} --threads 1 --driver epoll";

const DNS_OWN: &str = "{dns} {interface} {ip}:{port} {root}/zone example.org";
const NSD: &str = "\
server:
  ip-address: {ip}@{port}
  server-count: 1
  username: \"\"
  zonesdir: {root}
  pidfile: \"\"
  xfrdfile: {dir}/xfrd
  xfrdir: {dir}
  zonelistfile: {dir}/zones
  logfile: {dir}/err
  minimal-responses: yes
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: example.org
  zonefile: zone
";

const SAMUM_PROXY: &str = "{samum} serve --config {conf} --threads 1";
const CADDY_COMMAND: &str = "caddy run --adapter caddyfile --config {conf}";

const SAMUM_PROXY_CONFIGURATION: &str = "\
[[site]]
listen = [\"{ip}:{port}\"]

[[site.route]]
path = \"/\"
proxy = [\"http://{origin}\"]
";

const NGINX: &str = "\
worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/err; {user}
worker_rlimit_nofile 20000;
events { worker_connections 16000; multi_accept on; }
http {
  access_log off; server_tokens off;
  sendfile on; tcp_nopush on;{aio}
  keepalive_requests 1000000000; keepalive_timeout 600;
  open_file_cache max=10000 inactive=600s; open_file_cache_valid 60s;
  server { listen {ip}:{port} backlog=4096; root {root}; }
}
";

const H2O: &str = "\
max-connections: 16000
num-threads: 1
listen: {port: {port}, host: {ip}}
hosts: {default: {paths: {\"/\": {file.dir: {root}}}}}
http1-request-timeout: 600
";

/// lighttpd accepts no more connections than half of the descriptors: 10,000 fit.
const LIGHTTPD: &str = "\
server.document-root = \"{root}\"
server.port = {port}
server.bind = \"{ip}\"
server.max-keep-alive-requests = 1000000000
server.max-keep-alive-idle = 600
server.network-backend = \"sendfile\"
server.max-fds = 20000
server.max-connections = 10000
server.errorlog = \"{dir}/err\"
";

const CADDY: &str = "\
{
 admin off
 auto_https off
}
http://{ip}:{port} {
 root * {root}
 file_server
}
";

const NGINX_TLS: &str = "\
worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/err; {user}
worker_rlimit_nofile 20000;
events { worker_connections 16000; multi_accept on; }
http {
  access_log off; server_tokens off;
  sendfile on; tcp_nopush on;
  keepalive_requests 1000000000; keepalive_timeout 600;
  open_file_cache max=10000 inactive=600s; open_file_cache_valid 60s;
  ssl_certificate {root}/certificate.pem; ssl_certificate_key {root}/key.pem;
  ssl_protocols TLSv1.2 TLSv1.3;
  server { listen {ip}:{port} ssl http2 backlog=4096; root {root}; }
}
";

/// The origin of proxies has this in place of the versions of TLS. So all proxies use one suite with it.
const ONE_SUITE: &str = "TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256";

const H2O_TLS: &str = "\
max-connections: 16000
num-threads: 1
listen: {port: {port}, host: {ip}, ssl: {certificate-file: {root}/certificate.pem, key-file: {root}/key.pem}}
hosts: {default: {paths: {\"/\": {file.dir: {root}}}}}
http1-request-timeout: 600
";

const CADDY_TLS: &str = "\
{
 admin off
 auto_https off
}
https://:{port} {
 bind {ip}
 tls {root}/certificate.pem {root}/key.pem
 root * {root}
 file_server
}
";

const NGINX_PROXY: &str = "\
worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/err; {user}
worker_rlimit_nofile 20000;
events { worker_connections 16000; multi_accept on; }
http {
  access_log off; server_tokens off;
  keepalive_requests 1000000000; keepalive_timeout 600;
  proxy_temp_path {dir}/proxy_temp;
  upstream origin { server {origin}; keepalive 128; keepalive_requests 1000000000; }
  server {
    listen {ip}:{port} backlog=4096;
    location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
  }
}
";

const HAPROXY: &str = "\
global
  nbthread 1
  maxconn 4000
defaults
  mode http{splice}
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind {ip}:{port} backlog 4096
  default_backend servers
backend servers
  http-reuse always
  server origin {origin}
";

/// Scripts run over a socket in the file system, as php-fpm is commonly set up. The address is that of its
/// status page, whose listener shows that it is ready.
const PHP_FPM_POOL: &str = "\
[global]
error_log = {dir}/err
daemonize = no
[www]
user = root
group = root
listen = {root}/php.sock
listen.mode = 0666
listen.backlog = 4096
pm = static
pm.max_children = 8
pm.status_path = /status
pm.status_listen = {ip}:{port}
";

/// The line of samum's proxy that verifies an upstream over TLS.
const SAMUM_VERIFIES: &str =
    "upstream-tls = { ca = \"{root}/certificate.pem\", name = \"localhost\" }\n";
/// A listener of samum with TLS.
const SAMUM_SECURE: &str = "listen = [{ address = \"{ip}:{port}\", tls = true }]
tls = { certificate = \"{root}/certificate.pem\", key = \"{root}/key.pem\" }";

/// The lines of nginx' proxy that verify an upstream over TLS, and its own certificate.
const NGINX_VERIFIES: &str = "\
  ssl_certificate {root}/certificate.pem; ssl_certificate_key {root}/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
  proxy_ssl_protocols TLSv1.3; proxy_ssl_verify on; proxy_ssl_trusted_certificate {root}/certificate.pem;
  proxy_ssl_name localhost; proxy_ssl_server_name on;
  upstream origin";

/// The words of HAProxy that verify an upstream over TLS.
const HAPROXY_VERIFIES: &str =
    "{origin} ssl verify required ca-file {root}/certificate.pem sni str(localhost)";

/// The upstream over TLS of Caddy's proxy.
const CADDY_VERIFIES: &str = "reverse_proxy https://{origin} {
  transport http {
   tls_trusted_ca_certs {root}/certificate.pem
   tls_server_name localhost
  }
 }";
/// A listener of Caddy with TLS.
const CADDY_SECURE: &str =
    "https://:{port} {\n bind {ip}\n tls {root}/certificate.pem {root}/key.pem";

/// The configuration of a proxy whose upstream speaks TLS, and clients, too, if `is_secure`. It is that of the plain proxy,
/// of which some words are replaced.
fn to_tls(proxy: &str, is_secure: bool) -> String {
    let (plain, upstream, listener) = match proxy {
        "samum" => (
            SAMUM_PROXY_CONFIGURATION.to_owned() + SAMUM_VERIFIES,
            ("http://{origin}", "https://{origin}"),
            ("listen = [\"{ip}:{port}\"]", SAMUM_SECURE),
        ),
        "nginx" => (
            NGINX_PROXY.replace("  upstream origin", NGINX_VERIFIES),
            ("http://origin", "https://origin"),
            ("{port} ", "{port} ssl "),
        ),
        "haproxy" => (
            HAPROXY.replace("{splice}", ""),
            ("{origin}", HAPROXY_VERIFIES),
            ("{port} ", "{port} ssl crt {root}/both.pem "),
        ),
        _ => (
            CADDY_PROXY.to_owned(),
            ("reverse_proxy {origin}", CADDY_VERIFIES),
            ("http://{ip}:{port} {", CADDY_SECURE),
        ),
    };
    let to_upstream = plain.replace(upstream.0, upstream.1);
    if is_secure { to_upstream.replace(listener.0, listener.1) } else { to_upstream }
}

const SAMUM_FASTCGI: &str = "\
[[site]]
listen = [\"{ip}:{port}\"]

[[site.route]]
path = \"/\"
fastcgi = { server = \"unix:{root}/php.sock\", root = \"{root}\" }
";

const NGINX_FASTCGI: &str = "\
worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/err; {user}
worker_rlimit_nofile 20000;
events { worker_connections 16000; multi_accept on; }
http {
  access_log off; server_tokens off;
  keepalive_requests 1000000000; keepalive_timeout 600;
  fastcgi_temp_path {dir}/fastcgi_temp;
  server {
    listen {ip}:{port} backlog=4096; root {root};
    location / {
      fastcgi_pass unix:{root}/php.sock;
      fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param SCRIPT_NAME $fastcgi_script_name;
      fastcgi_param REQUEST_URI $request_uri;
      fastcgi_param DOCUMENT_URI $document_uri;
      fastcgi_param DOCUMENT_ROOT $document_root;
      fastcgi_param SERVER_PROTOCOL $server_protocol;
      fastcgi_param REQUEST_SCHEME $scheme;
      fastcgi_param GATEWAY_INTERFACE CGI/1.1;
      fastcgi_param SERVER_SOFTWARE nginx;
      fastcgi_param REMOTE_ADDR $remote_addr;
      fastcgi_param REMOTE_PORT $remote_port;
      fastcgi_param SERVER_ADDR $server_addr;
      fastcgi_param SERVER_PORT $server_port;
      fastcgi_param SERVER_NAME $server_name;
    }
  }
}
";

/// haproxy opens a connection for each request, as the others do.
const HAPROXY_FASTCGI: &str = "\
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind {ip}:{port} backlog 4096
  default_backend scripts
backend scripts
  use-fcgi-app php
  server php unix@{root}/php.sock proto fcgi
fcgi-app php
  docroot {root}
  no option keep-conn
";

const SAMUM_INCLUDES: &str = "\
[[site]]
listen = [\"{ip}:{port}\"]
includes = true

[[site.route]]
path = \"/\"
files = \"{root}\"

[[site.route]]
path = \"/part/\"
proxy = [\"http://{origin}\"]
";

const NGINX_INCLUDES: &str = "\
worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/err; {user}
worker_rlimit_nofile 20000;
events { worker_connections 16000; multi_accept on; }
http {
  access_log off; server_tokens off;
  sendfile on; tcp_nopush on;
  types { text/html html; }
  keepalive_requests 1000000000; keepalive_timeout 600;
  open_file_cache max=10000 inactive=600s; open_file_cache_valid 60s;
  proxy_temp_path {dir}/proxy_temp;
  upstream origin { server {origin}; keepalive 128; keepalive_requests 1000000000; }
  server {
    listen {ip}:{port} backlog=4096; root {root}; ssi on;
    location /part/ { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
  }
}
";

const SAMUM_STALLED: &str = "\
[[site]]
listen = [\"{ip}:{port}\"]

[[site.route]]
path = \"/\"
files = \"{root}\"

[[site.route]]
path = \"/stalled/\"
proxy = [\"http://{origin}\"]
";

const SAMUM_METERED: &str = "\
[[site]]
listen = [\"{ip}:{port}\"]

[[site.route]]
path = \"/\"
files = \"{root}\"

[[site.route]]
path = \"/metrics\"
metrics = true
";

const NGINX_STALLED: &str = "\
worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/err; {user}
worker_rlimit_nofile 20000;
events { worker_connections 16000; multi_accept on; }
http {
  access_log off; server_tokens off;
  sendfile on; tcp_nopush on;
  keepalive_requests 1000000000; keepalive_timeout 600;
  open_file_cache max=10000 inactive=600s; open_file_cache_valid 60s;
  proxy_temp_path {dir}/proxy_temp;
  server {
    listen {ip}:{port} backlog=4096; root {root};
    location /stalled/ { proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
  }
}
";

const CADDY_PROXY: &str = "\
{
 admin off
 auto_https off
}
http://{ip}:{port} {
 reverse_proxy {origin}
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_known_peers_can_be_filled_in() {
        let place = Launch {
            root: Path::new("/the/root"),
            address: ([127, 0, 0, 2], 8080).into(),
            interface: "eth9",
            dir: Path::new("/the/directory"),
            origin: Some(([127, 0, 0, 1], 9000).into()),
        };
        let gateways =
            FASTCGI.into_iter().chain(INCLUDES).chain(STALLED).chain([PHP_FPM, METERED]).chain(DNS);
        let gateways = gateways.chain(TLS).chain(TLS_OUT).chain(TLS_BOTH).chain([ORIGIN_TLS]);
        let others = KNOWN.into_iter().chain(UNCACHED).chain(OWN_STACK).chain(PROXIES);
        for name in others.chain(gateways) {
            let peer = Peer::named(name).unwrap();
            assert_eq!(peer.name, name);
            let ours: Vec<_> = peer.binaries().iter().map(|binary| binary.0).collect();
            let want: &[&str] = match name {
                "samum" | "samum-epoll" | "samum-never" | "samum-own" | "samum-own-never"
                | "samum-own-crowd" | "samum-proxy" | "samum-proxy-buffer" | "samum-fastcgi"
                | "samum-includes" | "samum-stalled" | "samum-tls" | "samum-tls-out"
                | "samum-tls-both" | METERED => &["samum"],
                "nginx-preload" | "lighttpd-preload" => &["libsamum_preload.so"],
                "dns-own" => &["dns"],
                _ => &[],
            };
            assert_eq!(ours, want, "{name}");
            let command: Vec<_> = peer.command.iter().map(|word| peer.fill(word, place)).collect();
            let all = format!("{} {}", command.join(" "), peer.fill(&peer.configuration, place));
            let source = if peer.is_proxy() { "127.0.0.1:9000" } else { "/the/root" };
            for word in ["127.0.0.2", "8080", source] {
                assert!(all.contains(word), "{name}: no {word} in {all}");
            }
            for key in [
                "{root}",
                "{ip}",
                "{port}",
                "{interface}",
                "{dir}",
                "{conf}",
                "{user}",
                "{aio}",
                "{samum}",
                "{origin}",
                "{splice}",
            ] {
                assert!(!all.contains(key), "{name}: {key} in {all}");
            }
        }
        assert!(
            PROXIES.iter().all(|name| Peer::named(name).unwrap().is_proxy() == (*name != ORIGIN))
        );
        assert!(KNOWN.iter().all(|name| !Peer::named(name).unwrap().is_proxy()));
        assert!(KNOWN.iter().all(|name| !Peer::named(name).unwrap().has_own_stack()));
        assert!(OWN_STACK.iter().all(|name| Peer::named(name).unwrap().has_own_stack()));
        assert!(Peer::named("apache").unwrap_err().contains("samum-epoll"));
        assert!(Peer::named("h2o-preload").is_err());
    }

    #[test]
    fn peers_can_be_added() {
        let peer = Peer::added("mine='/a b/mine' --root={root} {port} {files}").unwrap();
        assert_eq!(peer.name, "mine");
        assert_eq!(peer.command, ["/a b/mine", "--root={root}", "{port}", "{files}"]);
        assert!(peer.needs_files);
        for wrong in ["mine", "=x {port}", "mine=x"] {
            assert!(Peer::added(wrong).unwrap_err().contains("NAME=COMMAND"));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |command| Peer::added(command).unwrap().program().unwrap_err();
        assert_eq!(missing("a=no-such-program {port}"), "no-such-program is not installed");
        let mut peer = Peer::added("a=sh {port}").unwrap();
        assert!(peer.program().unwrap().ends_with("sh"));
        peer.environment.push(("LD_PRELOAD".into(), "/no/such.so".into()));
        assert!(peer.program().unwrap_err().contains("/no/such.so"));
    }
}

//! Parses the command line, and converts it into a [`Config`].

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::HashSet;
use std::ffi::OsString;
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use sendfile::{Policy, Window};

use crate::LogFormat;
use crate::check;
use crate::config::file::{self, Errors, Loaded};
use crate::config::value::{self, Cache, Driver, Etag};
use crate::config::{
    Action, Address, Capture, Config, Congestion, ErrorFormat, FileRules, Files, Frames,
    HeaderRule, Interface, InterfaceAddress, Listen, Log, LogTarget, Peers, Prefix, Route, Server,
    Symlinks, Thing, rule,
};
use crate::machine::Machine;
use crate::preload::Preload;
use crate::say::set_format;

/// A file server that never waits for the disk.
#[derive(Debug, Parser)]
#[command(name = "samum", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 success, 1 an error while running, 2 an error in the command line."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory, or the sites of a configuration file, over HTTP
    #[command(long_about = SERVE_ABOUT)]
    Serve(Box<Serve>),
    /// Check a configuration file, and print it with all defaults
    #[command(long_about = CHECK_ABOUT)]
    Check {
        /// The configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Have a running server load its configuration again
    #[command(long_about = RELOAD_ABOUT)]
    Reload(Reload),
    /// Show the state of a running server's own TCP/IP stacks (--interface)
    #[command(long_about = STACK_ABOUT)]
    Stack(StackArgs),
    /// Run another server so that its sendfile(2) does not wait for the disk
    #[command(long_about = PRELOAD_ABOUT)]
    Preload(PreloadArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a man page (`samum man | man -l -`)
    Man {
        /// The page: of the command, or of configuration files
        #[arg(value_enum, default_value_t = ManPage::Samum)]
        page: ManPage,
    },
    /// Print the reference of configuration files, in Markdown
    #[command(hide = true)]
    ConfigurationReference,
}

/// A page of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ManPage {
    /// The command and its subcommands, samum(1).
    Samum,
    /// The keys of configuration files, samum.toml(5).
    #[value(name = "samum.toml")]
    Toml,
}

const CHECK_ABOUT: &str = "Check a configuration file, and print it with all defaults.\n\n\
    All errors of the file, and of those that it includes, are reported with file, line and column. Then the \
    directories and logs are opened, the addresses are bound and let go, and the control socket, the interfaces and the \
    limit of descriptors are looked at. An address in use is an error, unless \
    the server that has it shares it, or answers at the control socket of the configuration: then it is probably \
    the samum that runs, and the check warns only. Exits with 0, or with 1 if there was an error.";

const SERVE_ABOUT: &str = "Serve a directory, or the sites of a configuration file, over HTTP/1.1.\n\n\
    No request waits while another reads from the disk: files in the page cache are sent by \
    sendfile(2), others are read in the background. On SIGTERM, SIGINT or SIGQUIT the server accepts no more \
    connections, completes the responses that it has begun (within 30 seconds), and exits with 0; on a \
    second signal it exits at once. A disk that does not answer may keep the process, which has let go of its clients and \
    addresses by then. SIGHUP and SIGUSR1 reopen the access logs after they \
    were renamed; with --config, SIGHUP loads the configuration again, too. SIGUSR2 and SIGWINCH, by which nginx is \
    upgraded, change nothing.";

const RELOAD_ABOUT: &str = "Have a running server load its configuration again.\n\n\
    The server checks the whole configuration before it serves any of it. If there is an error, the command \
    prints it, the exit code is 1, and the server goes on as before. No request is lost: a response that has \
    begun ends as it began, and connections that wait at a listener that is removed are served. SIGHUP does \
    the same, and reopens the logs.";

/// The arguments of `samum reload`.
#[derive(Debug, Args)]
pub struct Reload {
    /// The control socket of the server [default: control.sock in $RUNTIME_DIRECTORY or /run/samum]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

const STACK_ABOUT: &str = "Show the state of a running server's own TCP/IP stacks (samum serve --interface).\n\n\
    For each receive queue of each interface: connections by state, segments that were sent again by cause, \
    frames that were dropped by reason, frames per batch, round-trip times.";

/// The arguments of `samum stack`.
#[derive(Debug, Args)]
pub struct StackArgs {
    /// The control socket of the server [default: control.sock in $RUNTIME_DIRECTORY or /run/samum]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// List connections, too, as many as fit into 64 KiB of text
    #[arg(long)]
    pub connections: bool,
}

const PRELOAD_ABOUT: &str = "Run another server so that its sendfile(2) does not wait for the disk.\n\n\
    The command runs with libsamum_preload.so in front of the C library (LD_PRELOAD). If the bytes to \
    send are not in the page cache, sendfile reports that the socket is full (EAGAIN), a thread reads \
    the file, and the server's own event loop is woken when the bytes can be sent. Cached files are sent \
    as without the library. The library is searched at SAMUM_PRELOAD_LIB=PATH if that is set, else \
    beside samum and in ../lib.\n\n\
    It helps servers that send files by sendfile(2) to nonblocking sockets and wait with epoll, poll \
    or select: nginx (sendfile on), lighttpd, Apache httpd (EnableSendfile on, event MPM), webfsd.\n\n\
    It does not change, and does not help: files that the program reads into memory (nginx with \
    sendfile off or TLS, h2o, lighttpd with files up to 32 KiB, proxied bodies), open(2) and stat(2) of \
    files that are not in the kernel's caches, blocking sockets and datagrams, file systems that do not \
    report what is cached (FUSE, NFS), sockets and epoll instances duplicated by dup(2), in a child of \
    fork(2) sockets that its parent watches with epoll, and a poll(2) or select(2) of more than 1,024 \
    sockets. samum refuses programs that are statically linked (most Go programs), are built for another \
    machine, or for which the loader ignores LD_PRELOAD (setuid, file capabilities).\n\n\
    Do not preload a program that waits for some sockets with epoll, poll or select and for others in a \
    way that the library does not see (io_uring, direct system calls): it may wait for the others for \
    ever. Nor one that keeps an epoll instance over exec(2) while it sends: the new program may not be told that a \
    socket is writable. The library does nothing for files that the program locks (fcntl(2), lockf(3), flock(2)), until they are \
    closed, and nothing at all where a seccomp filter kills the process for calls that the library needs, \
    or where the program installs a filter itself. It replaces the program's posix_fadvise(2) advice for \
    files that it reads from the disk. In a program that changes its user while it runs (seteuid(2) and the \
    like) these calls wait for the disk, because all threads have to take part. An nginx that replaces its own binary (USR2) keeps the library \
    only with \"env LD_PRELOAD;\" in its configuration.\n\n\
    In the environment, SAMUM_PRELOAD=off turns the library off; SAMUM_PRELOAD_STATS and \
    SAMUM_PRELOAD_LOG are --stats and --log.";

/// The arguments of `samum preload`.
#[derive(Debug, Args)]
pub struct PreloadArgs {
    /// Write counters of each process to PATH.PID: once a second while it reads files, and when it exits
    #[arg(long, value_name = "PATH")]
    pub stats: Option<PathBuf>,

    /// Write notable events to a file, or `-` for standard error
    #[arg(long, value_name = "FILE|-")]
    pub log: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl PreloadArgs {
    /// Converts the arguments.
    #[must_use]
    pub fn preload(self) -> Preload {
        Preload { command: self.command, stats: self.stats, log: self.log }
    }
}

/// The arguments of `samum serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// The directory to serve. Nothing outside it can be reached, not even through symbolic links. If
    /// another directory takes its place (a deploy), that is served within a second
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,

    /// Serve what a configuration file says. Flags that are keys of its `[server]` override them, and --log
    /// and --log-format override the logs of all sites; other flags cannot be given beside it
    #[arg(long, value_name = "FILE", conflicts_with_all = DIRECTORY_FLAGS)]
    pub config: Option<PathBuf>,

    /// The address to listen on: ADDRESS:PORT, with an IPv6 address in brackets, NAME:PORT for the first
    /// address of a name (127.0.0.1 for localhost), PORT for all IPv4 addresses, or
    /// unix:PATH, optionally followed by ,mode=660 and ,owner=USER:GROUP. May be repeated. With port 0
    /// the kernel chooses a port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    pub listen: Vec<Address>,

    /// The flags that are keys of `[server]`.
    #[command(flatten)]
    pub server: ServerFlags,

    /// The file that is served for its directory; given several times, the first of them that there is
    #[arg(long, value_name = "NAME", default_value = "index.html", value_parser = value::index)]
    pub index: Vec<String>,

    /// List directories that have no such file (HTML, or JSON for clients that prefer it)
    #[arg(long)]
    pub listing: bool,

    /// Which files stay in the page cache after they were read
    #[arg(long, value_enum, default_value_t = Cache::Popular, long_help = CACHE_HELP)]
    pub cache: Cache,

    /// How the ETag of a file is made
    #[arg(long, value_enum, default_value_t = Etag::Stat, long_help = ETAG_HELP)]
    pub etag: Etag,

    /// Prefetch at most this many bytes beyond those that a client has taken, less than 4 GiB (k, m, g for
    /// KiB, MiB, GiB)
    #[arg(long, value_name = "BYTES", default_value = "2m", value_parser = value::readahead)]
    pub readahead: u64,

    /// The file that is served with status 200 where there is nothing, such as /index.html of an
    /// application of a single page
    #[arg(long, value_name = "PATH", value_parser = rule::path)]
    pub fallback: Option<String>,

    /// Answer /a with a.html where there is no file a, and redirect /a.html to /a
    #[arg(long)]
    pub clean_urls: bool,

    /// The page for a status from 400 to 599, but 412 and 416, such as 404=/404.html. May be repeated
    #[arg(long, value_name = "STATUS=PATH", value_parser = rule::error_page)]
    pub errors: Vec<(u16, String)>,

    /// A field that responses have, for all paths or for those that match a pattern; without a value,
    /// a field that they do not have. Those about caching, such as Cache-Control, are not for failures. May be
    /// repeated
    #[arg(long, value_name = "[PATTERN ]NAME: VALUE", value_parser = rule::header)]
    pub headers: Vec<HeaderRule>,

    /// A media type for an extension, or for the whole name of a file, such as wasm=application/wasm. May be
    /// repeated
    #[arg(long, value_name = "EXTENSION=TYPE", value_parser = rule::media_type)]
    pub types: Vec<(String, String)>,

    /// The media type of files whose names and extensions are not known
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream", value_parser = rule::media_value)]
    pub default_type: String,

    /// The encoding that the media types of text files name; `none` if they name none
    #[arg(long, value_name = "NAME", default_value = "utf-8", value_parser = rule::charset)]
    pub charset: String,

    /// Serve files and directories whose names begin with a dot, too; /.well-known/ is served anyway
    #[arg(long)]
    pub dotfiles: bool,

    /// The treatment of symbolic links
    #[arg(long, value_enum, default_value_t)]
    pub symlinks: Symlinks,

    /// Send a.css.br, a.css.zst or a.css.gz in place of a.css to clients that understand it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub precompressed: bool,

    /// A file of redirects: on each line a path, a target, and a status (301 unless it says another)
    #[arg(long, value_name = "FILE", long_help = REDIRECTS_HELP)]
    pub redirects: Option<PathBuf>,

    /// The access log: a file to append to (reopened on SIGHUP and SIGUSR1), `-` for standard
    /// output, or `none` [default: none]
    #[arg(long, value_name = "FILE|-|none")]
    pub log: Option<String>,

    /// The format of the access log [default: combined]
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
}

/// The flags of `samum serve` that are keys of `[server]`. The defaults are those of [`Server`].
#[derive(Clone, Debug, Default, Args)]
pub struct ServerFlags {
    /// Worker threads [default: one per core, if there are descriptors for them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(value::THREADS))]
    pub threads: Option<u16>,

    /// The kernel interface to use; `auto` is io_uring where the kernel has and allows it [default: auto]
    #[arg(long, value_enum)]
    pub driver: Option<Driver>,

    /// Serve the listeners of a network interface by samum's own TCP/IP stack, in a worker for each of its receive
    /// queues; everything else on the interface stays with the kernel. May be repeated [default: none]
    #[arg(long, value_name = "NAME", value_parser = value::interface, long_help = INTERFACE_HELP)]
    pub interface: Vec<String>,

    /// An address of the interface that the kernel does not have: samum answers ARP, neighbour discovery and ping
    /// for it. With a single --interface; may be repeated [default: the kernel's addresses]
    #[arg(long, value_name = "ADDR/PREFIX", requires = "interface")]
    pub address: Vec<InterfaceAddress>,

    /// The router through which clients of other networks are answered, for addresses that the kernel does not
    /// have. May be given once for each version of IP [default: the station that the request came from]
    #[arg(long, value_name = "ADDR", requires = "address")]
    pub gateway: Vec<IpAddr>,

    /// The way of frames from and to the interfaces [default: auto]
    #[arg(long, value_enum)]
    pub frames: Option<Frames>,

    /// The congestion control of connections on the interfaces [default: cubic]
    #[arg(long, value_enum)]
    pub congestion: Option<Congestion>,

    /// Record the frames of the interfaces in a file of the format pcapng, for Wireshark and tcpdump. Older
    /// files have the names FILE.1, FILE.2 and so on [default: none]
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// The size at which a file of --pcap is followed by another one [default: 64m]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes, requires = "pcap")]
    pub pcap_size: Option<u64>,

    /// The number of files of --pcap that are kept [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(value::CAPTURE_FILES), requires = "pcap")]
    pub pcap_files: Option<u16>,

    /// Record only frames from and to these addresses and ranges. May be repeated [default: all]
    #[arg(long, value_name = "RANGE", value_parser = value::prefix, value_delimiter = ',', requires = "pcap")]
    pub pcap_peers: Vec<Prefix>,

    /// The Unix socket for `samum reload` and `samum stack`, which only the user of the server may use [default: none]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// The proxies that are believed when they name their clients: addresses and ranges such as
    /// 10.0.0.0/8, and `unix` for those that connect to a Unix socket. May be repeated [default: none]
    #[arg(long, value_name = "RANGE", value_parser = value::peers, value_delimiter = ',')]
    pub trusted_proxies: Vec<Peers>,

    /// The format of messages on standard error [default: text]
    #[arg(long, value_enum)]
    pub error_format: Option<ErrorFormat>,

    /// The maximum number of connections. Beyond it, a new connection replaces the one that has been
    /// idle for longest; while none is idle, it waits [default: 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(value::CONNECTIONS))]
    pub max_connections: Option<u32>,

    /// Bytes of all files together in which bodies of requests wait for programs and FastCGI applications [default: 1g]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub max_body_files: Option<u64>,

    /// Close a connection without a request after S seconds [default: 75]
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    pub timeout_idle: Option<Duration>,

    /// Answer 408 to a request that is not complete after S seconds [default: 20]
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    pub timeout_header: Option<Duration>,

    /// Close a connection whose client takes less than --rate-min for S seconds [default: 30]
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    pub timeout_send: Option<Duration>,

    /// Answer 503 to a request whose file the disk has not brought after S seconds, and close the
    /// connection if its response has begun [default: 30]
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    pub timeout_disk: Option<Duration>,

    /// Bytes per second that a client must take while a response waits for it [default: 64]
    #[arg(long, value_name = "BYTES/S", value_parser = value::bytes_per_second)]
    pub rate_min: Option<u64>,

    /// Bytes of the longest head of a request; a longer one is answered 431 [default: 16KiB]
    #[arg(long, value_name = "BYTES", value_parser = value::head_bytes)]
    pub max_request_head: Option<usize>,

    /// Fields that the head of a request may have at most [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(value::FIELDS))]
    pub max_request_fields: Option<u32>,

    /// Bytes of the longest head of a response of another server or a program; a longer one is answered 502 [default: 32KiB]
    #[arg(long, value_name = "BYTES", value_parser = value::head_bytes)]
    pub max_response_head: Option<usize>,

    /// Fields that such a head may have at most [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(value::FIELDS))]
    pub max_response_fields: Option<u32>,

    /// Ranges that a request may ask for at most; the whole file is the answer to one with more [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(value::RANGES))]
    pub max_ranges: Option<u32>,
}

/// The flags that are about one directory.
const DIRECTORY_FLAGS: [&str; 18] = [
    "dir",
    "listen",
    "index",
    "listing",
    "cache",
    "etag",
    "readahead",
    "fallback",
    "clean_urls",
    "errors",
    "headers",
    "types",
    "default_type",
    "charset",
    "dotfiles",
    "symlinks",
    "precompressed",
    "redirects",
];

const INTERFACE_HELP: &str = "Serve the listeners of a network interface by samum's own TCP/IP stack, in a worker for each \
    of its receive queues. May be repeated.\n\n\
    A listener is one of the interface if its address is an address of the interface (--listen 10.0.0.1:80); one for \
    all addresses (--listen :80) is served by the kernel, too. An XDP program takes the TCP segments for these \
    addresses and ports, and leaves everything else on the interface to the kernel: ssh, ping and ARP go on. It \
    goes with the process, and the kernel has the ports again.\n\n\
    The capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF are needed at the start. All rights are dropped \
    then but those that a reload and files of others take (CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, \
    CAP_IPC_LOCK, CAP_KILL, CAP_NET_BIND_SERVICE), if the server has them; ports below \
    1024 at addresses of the kernel's also need CAP_NET_BIND_SERVICE. The \
    kernel's firewall (nftables, iptables) does not see these segments.";

const CACHE_HELP: &str = "Which files stay in the page cache after they were read.\n\n\
    popular: while all files that are requested fit into the memory, all of them. Then those that are requested \
    most often; the others are read in such a way that they take no place from these, as with never. So a \
    crawler that reads every file once does not slow down the visitors. What is asked for in one request is never \
    popular if it is larger than a tenth of the memory. (auto is the old name.)\n\n\
    always: all files, as with other servers. When memory is short, the kernel decides what goes.\n\n\
    never: none: for files that are read once, or that another program wants the memory for. What was there before a \
    download stays; pages of the same file that another program reads meanwhile, or in the minute after it, may go.";

const ETAG_HELP: &str = "How the ETag of a file is made. All ETags are strong: a download is resumed, and a cached copy \
    confirmed, only if the bytes are the same.\n\n\
    stat: from the size, the times of modification (mtime) and of change (ctime), and the inode number. The ETag \
    changes whenever the file may have changed, also when another file of the same size and mtime replaces it, \
    and when its mode or its names change. It survives restarts of the server and the machine. Copies of a file \
    on other machines have different ETags, so the servers behind one address share only Last-Modified. Files of \
    images (squashfs, erofs, iso9660, cramfs, romfs) have none, because other images may have files with the same \
    attributes; nor have files on an overlay that have no time of birth, as those of images below it.\n\n\
    hash: from the contents (BLAKE3). The ETag is the same on all machines that have the same bytes. It is \
    computed in the background, by each worker at 128 MiB/s for each of up to 4 devices, and kept by mount, inode and ctime until the server \
    restarts. Responses have no ETag before it is computed, for files of more than 4 GiB and, before Linux 6.8, \
    for files of images.\n\n\
    Neither notices every write through a shared mapping (mmap) or, before Linux 6.13, two writes within one tick \
    of the kernel's clock (1 to 10 ms).";

const REDIRECTS_HELP: &str = "A file of redirects. Each line has a path, a target, and a status: 301, which is the \
    default, 302, 303, 307 or 308. The target is a path or a URL. A path that ends with /* stands for all paths \
    below it, and :splat in its target for the rest of them; the longest such path wins. A line that begins with \
    # is a comment.";

impl Serve {
    /// Makes the configuration: reads its file, or takes the directory.
    ///
    /// # Errors
    ///
    /// Those of the configuration file; one was given as the directory.
    pub fn load(&self) -> Result<Loaded, Errors> {
        if let Some(format) = self.server.error_format {
            set_format(format);
        }
        let mut loaded = match &self.config {
            Some(path) => file::load(path, &mut Machine::new()?)?,
            None if self.dir.extension().is_some_and(|end| end == "toml") && self.dir.is_file() => {
                let file = self.dir.display();
                return Err(format!(
                    "cannot serve {file}: it is not a directory (if it is a configuration: samum serve --config {file})"
                )
                .into());
            }
            None => Loaded::of(self.directory()),
        };
        let config = &mut loaded.config;
        self.server.override_keys(&mut config.server)?;
        let target = self.log.as_deref().map(|log| match log {
            "none" => LogTarget::None,
            "-" => LogTarget::Stdout,
            path => LogTarget::File(path.into()),
        });
        for site in &mut config.sites {
            set(&mut site.log.target, target.as_ref());
            set(&mut site.log.format, self.log_format.as_ref());
        }
        if self.log_format.is_some()
            && config.sites.iter().all(|site| site.log.target == LogTarget::None)
        {
            return Err("--log-format needs a log: give --log, too".to_owned().into());
        }
        let mut seen = HashSet::new();
        if let Some(twice) = self.listen.iter().find(|address| !seen.insert(*address)) {
            return Err(format!("--listen {twice} is given twice").into());
        }
        let of_links = check::warnings_of_links(&loaded);
        loaded.warnings.extend(of_links);
        let collisions = loaded.config.collisions();
        let error = |(address, why): (_, String)| loaded.error(&Thing::Address(address), &why);
        let errors: Vec<_> = collisions.map(error).collect();
        if !errors.is_empty() {
            return Err(Errors(errors));
        }
        check::warn_of_body_files(&mut loaded);
        Ok(loaded)
    }

    /// The configuration of one directory.
    fn directory(&self) -> Config {
        let window = Window::of(self.readahead);
        let rules = FileRules {
            index: self.index.clone(),
            listing: self.listing,
            policy: Policy { caching: self.cache.into(), window },
            tags: self.etag.into(),
            fallback: self.fallback.clone(),
            clean_urls: self.clean_urls,
            types: self.types.iter().cloned().collect(),
            default_type: self.default_type.clone(),
            charset: (self.charset != "none").then(|| self.charset.clone()),
            dotfiles: self.dotfiles,
            symlinks: self.symlinks.clone(),
            precompressed: self.precompressed,
            ..FileRules::default()
        };
        let server = Server { threads: Machine::workers(), ..Server::default() };
        let files = Files { root: self.dir.clone(), rules };
        let listen = self.listen.iter().cloned().map(Listen::from).collect();
        let mut config = Config::of_directory(files, listen, Log::default(), server);
        let site = &mut config.sites[0];
        site.errors = self.errors.iter().cloned().collect();
        let routes = &mut site.routes;
        if let Some(file) = self.redirects.clone() {
            routes.insert(0, Route { action: Action::Redirects(file), ..Route::default() });
        }
        for route in routes {
            route.headers.clone_from(&self.headers);
            route.errors.clone_from(&site.errors);
        }
        config
    }
}

impl ServerFlags {
    /// Puts what was given in the place of what a file says.
    fn override_keys(&self, server: &mut Server) -> Result<(), String> {
        let number = |number: &u32| usize::try_from(*number).unwrap_or(usize::MAX);
        set(&mut server.threads, self.threads.map(usize::from).as_ref());
        set(&mut server.driver, self.driver.map(Into::into).as_ref());
        if !self.interface.is_empty() {
            server.interfaces = self.interfaces()?;
        }
        set(&mut server.frames, self.frames.as_ref());
        set(&mut server.congestion, self.congestion.as_ref());
        if let Some(file) = &self.pcap {
            let mut capture = Capture::new(file.clone());
            set(&mut capture.bytes_max, self.pcap_size.as_ref());
            set(&mut capture.files_max, self.pcap_files.as_ref());
            capture.peers.clone_from(&self.pcap_peers);
            server.capture = Some(capture);
        }
        if self.control.is_some() {
            server.control.clone_from(&self.control);
        }
        if !self.trusted_proxies.is_empty() {
            server.trusted_proxies.clone_from(&self.trusted_proxies);
        }
        set(&mut server.error_format, self.error_format.as_ref());
        let tuning = &mut server.tuning;
        set(&mut tuning.connections_max, self.max_connections.as_ref().map(number).as_ref());
        set(&mut tuning.body_files_max, self.max_body_files.as_ref());
        set(&mut tuning.timeout_idle, self.timeout_idle.as_ref());
        set(&mut tuning.timeout_header, self.timeout_header.as_ref());
        set(&mut tuning.timeout_send, self.timeout_send.as_ref());
        set(&mut tuning.timeout_disk, self.timeout_disk.as_ref());
        set(&mut tuning.rate_min, self.rate_min.as_ref());
        if let Some(bytes) = self.max_request_head {
            tuning.set_request_head(bytes);
        }
        set(&mut tuning.response_limits.head_bytes_max, self.max_response_head.as_ref());
        for (to, flag) in [
            (&mut tuning.request_limits.fields_max, &self.max_request_fields),
            (&mut tuning.response_limits.fields_max, &self.max_response_fields),
            (&mut tuning.ranges_max, &self.max_ranges),
        ] {
            set(to, flag.as_ref().map(number).as_ref());
        }
        let (frames, congestion) = (self.frames.is_some(), self.congestion.is_some());
        let for_interfaces =
            [("frames", frames), ("congestion", congestion), ("pcap", self.pcap.is_some())];
        match for_interfaces.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) if server.interfaces.is_empty() => Err(format!(
                "--{flag} needs an interface of samum's own stack: give --interface, too"
            )),
            _ => Ok(()),
        }
    }

    fn interfaces(&self) -> Result<Vec<Interface>, String> {
        if self.interface.len() > 1 && !self.address.is_empty() {
            return Err(
                "--address needs a single --interface: write several interfaces with addresses of their own \
                 into a configuration file (`interface`)"
                    .to_owned(),
            );
        }
        let interface = |name: &String| Interface {
            name: name.clone(),
            addresses: self.address.clone(),
            gateways: self.gateway.clone(),
        };
        let interfaces: Vec<_> = self.interface.iter().map(interface).collect();
        interfaces.iter().try_for_each(Interface::check)?;
        Ok(interfaces)
    }
}

fn set<T: Clone>(to: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        to.clone_from(value);
    }
}

/// Reads an address to listen on; the address of a name is looked up.
fn parse_address(text: &str) -> Result<Address, String> {
    value::address(text).or_else(|error| {
        if text.parse::<SocketAddr>().is_ok() {
            return Err(error);
        }
        let mut found = text.to_socket_addrs().map_err(|_| error)?;
        found.next().map(Address::Ip).ok_or_else(|| "the name has no address".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::reference;
    use clap::{CommandFactory, Parser};
    use std::collections::BTreeMap;

    /// Flags that are no keys, and those that are keys of the tables `log`, `interface` and `pcap`.
    const OTHER_FLAGS: [&str; 7] =
        ["config", "log-format", "address", "gateway", "pcap-size", "pcap-files", "pcap-peers"];

    /// The keys of a section of the reference, and their defaults.
    fn keys(section: &str) -> impl Iterator<Item = (&str, &str)> {
        section.lines().filter_map(|line| {
            let (name, row) = line.strip_prefix("- **`")?.split_once("`**: ")?;
            let (_, default) = row.split_once(". Default: ")?;
            Some((name, default.split_once(". Example: ")?.0))
        })
    }

    #[test]
    fn flags_have_the_words_and_defaults_of_keys() {
        let reference = reference::markdown();
        let sections: Vec<_> = reference.split("\n## Keys ").skip(1).collect();
        let rows: BTreeMap<_, _> =
            sections.iter().take(5).flat_map(|section| keys(section)).collect();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for flag in serve.get_arguments().filter(|flag| flag.get_long().is_some()) {
            let long = flag.get_long().unwrap();
            if OTHER_FLAGS.contains(&long) {
                continue;
            }
            let default = rows.get(long).unwrap_or_else(|| panic!("--{long} is no key"));
            let help = flag.get_help().unwrap().to_string();
            let of_flag = flag.get_default_values().first().map(|value| value.to_str().unwrap());
            let of_flag = of_flag.map(str::to_owned).or_else(|| {
                let (_, text) = help.rsplit_once("[default: ")?;
                text.strip_suffix(']').map(str::to_owned)
            });
            let of_key = default.trim_matches(['`', '[', ']', '"']);
            let is_same = of_flag
                .as_deref()
                .is_none_or(|text| text == of_key || (text == "none" && of_key.is_empty()));
            assert!(is_same, "--{long}: {of_flag:?}, key: {of_key}");
        }
        let is_flag = |name| serve.get_arguments().any(|flag| flag.get_long() == Some(name));
        assert!(sections[1].starts_with("of \\[server]"), "{}", sections[1]);
        for (name, _) in keys(sections[1]) {
            assert!(is_flag(name), "{name} is no flag");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// The message for these arguments of `samum serve .`, if they are refused.
    fn refusal(arguments: &str) -> Option<String> {
        let arguments = ["samum", "serve", "."].into_iter().chain(arguments.split(' '));
        let Command::Serve(serve) = Cli::parse_from(arguments).command else { panic!("it serves") };
        serve.load().err().map(|errors| errors.0[0].to_string())
    }

    #[test]
    fn what_cannot_work_together_is_refused() {
        for (arguments, refused) in [
            ("--listen :80 --listen 127.0.0.1:80", Some("both 0.0.0.0:80 and 127.0.0.1:80")),
            ("--listen :80 --listen 0.0.0.0:80", Some("--listen 0.0.0.0:80 is given twice")),
            ("--listen :80 --listen [::]:80", None),
            ("--listen :80 --listen 127.0.0.1:81", None),
            ("--listen :0 --listen 127.0.0.1:0", None),
            ("--listen :80 --listen 127.0.0.1:80 --interface lo", None),
            ("--frames packet", Some("--frames needs")),
            ("--congestion bbr", Some("--congestion needs")),
            ("--pcap file", Some("--pcap needs")),
            ("--frames packet --interface lo", None),
            ("--log-format json", Some("--log-format needs")),
            ("--log-format json --log -", None),
        ] {
            let found = refusal(arguments);
            assert_eq!(found.is_some(), refused.is_some(), "{arguments}: {found:?}");
            assert!(found.unwrap_or_default().contains(refused.unwrap_or_default()), "{arguments}");
        }
    }
}

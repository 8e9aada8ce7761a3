//! Parses the command line, and converts it into a [`Config`].

mod elsewhere;

use core::net::{IpAddr, SocketAddr};
use std::collections::HashSet;
use std::ffi::OsString;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};

use clap::builder::{ArgPredicate, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use sendfile::{Policy, Window};

use crate::explain::Client;
use crate::machine::Machine;
use crate::preload::{self, Preload};
use crate::warnings;
use config::LogFormat;
use config::file::{self, Errors, Loaded};
use config::flags::{self, Flag};
use config::value::{self, Cache, Etag};
use config::{
    Action, Address, Config, ErrorFormat, FileRules, Files, HeaderRule, InterfaceAddress, Listen,
    Log, LogTarget, Prefix, Route, Server, Symlinks, Thing, Tls, rule, suggest,
};
use logs::say::set_format;

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

/// Answers a command line that was refused, without the name of the program, if it has words of other servers or lacks its
/// command.
#[must_use]
pub fn answer(arguments: &[OsString]) -> Option<String> {
    let texts = arguments.iter().map(|text| text.to_str().map(str::to_owned));
    elsewhere::answer(&texts.collect::<Option<Vec<_>>>()?, &Facts(Cli::command()))
}

/// The facts of this machine and of the parser.
struct Facts(clap::Command);

impl elsewhere::Facts for Facts {
    fn takes_value(&self, flag: &str) -> Option<bool> {
        let name = flag.strip_prefix("--")?;
        let serve = self.0.find_subcommand("serve")?;
        let flag = serve.get_arguments().find(|flag| flag.get_long() == Some(name))?;
        Some(flag.get_action().takes_values())
    }

    fn similar(&self, flag: &str) -> Option<String> {
        let serve = self.0.find_subcommand("serve")?;
        let known = serve.get_arguments().filter_map(Arg::get_long);
        suggest::nearest(flag.strip_prefix("--")?, known).map(|near| format!("--{near}"))
    }

    fn is_command(&self, name: &str) -> bool {
        name == "help" || self.0.find_subcommand(name).is_some()
    }

    fn similar_command(&self, name: &str) -> Option<String> {
        let known = self.0.get_subcommands().filter(|command| !command.is_hide_set());
        suggest::nearest(name, known.map(clap::Command::get_name).chain(["help"]))
            .map(str::to_owned)
    }

    fn is_directory(&self, path: &str) -> bool {
        Path::new(path).is_dir()
    }
}

/// Returns true if a name of a directory is the number of a port.
fn is_port(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.parse::<u16>().is_ok_and(|port| port > 0))
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory, or the sites of a configuration, over HTTP
    #[command(long_about = SERVE_ABOUT)]
    Serve(Box<Serve>),
    /// Check a configuration file, and print it with all defaults
    #[command(long_about = CHECK_ABOUT)]
    Check {
        /// The configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print only errors and warnings
        #[arg(short, long)]
        quiet: bool,
    },
    /// Have a running server load its configuration again
    #[command(long_about = RELOAD_ABOUT)]
    Reload(Reload),
    /// Replace a running server, without losing a connection
    #[command(long_about = UPGRADE_ABOUT)]
    Upgrade(Upgrade),
    /// Ask a running server whether it is healthy
    #[command(long_about = HEALTH_ABOUT)]
    Health(Health),
    /// Explain what a server would do with a request
    #[command(long_about = EXPLAIN_ABOUT)]
    Explain(Explain),
    /// Show the state of a server's own TCP/IP stacks (--interface)
    #[command(long_about = STACK_ABOUT)]
    Stack(StackArgs),
    /// Run another server so that it does not wait for the disk
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
    directories and logs are opened, certificates and keys are read, the addresses are bound and let go, and the control socket, the interfaces and the \
    limit of descriptors are looked at. An address in use is an error, unless \
    the server that has it shares it, or answers at the control socket of the configuration: then it is probably \
    the samum that runs, and the check warns only. Values of request-headers and of environment, and those \
    from `${file:NAME}`, are printed as `…`. The last line is `# OK` if there was no error. Exits with 0, or with 1 if \
    there was an error.";

const SERVE_ABOUT: &str = "Serve a directory, or the sites of a configuration file, over HTTP/1.1 and HTTP/2.\n\n\
    No request waits while another reads from the disk: files in the page cache are sent by \
    sendfile(2), others are read in the background. On SIGTERM, SIGINT or SIGQUIT the server accepts no more \
    connections, completes the responses that it has begun (within `timeout-drain`), and exits with 0; on a \
    second signal it exits at once. A disk that does not answer may keep the process, which has let go of its clients and \
    addresses by then. SIGHUP and SIGUSR1 reopen the access logs after they \
    were renamed; with --config, SIGHUP loads the configuration again, too. SIGUSR2 does what `samum upgrade` does. SIGWINCH \
    changes nothing.";

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

const UPGRADE_ABOUT: &str = "Replace a running server by a new process, without losing a connection.\n\n\
    The server has its program file executed again, with the arguments of its first start. The new process gets the \
    listening sockets and the keys of TLS tickets, loads the configuration, and serves. Then the old one accepts no \
    more, and ends when its connections have ended, within 10 minutes (`timeout-drain`). A new process that fails, or is \
    not ready within 30 seconds, changes nothing: the command prints the reason, and the exit code is 1. SIGUSR2 does \
    the same, and writes the reason to the log.\n\n\
    A server with --interface, and one that is process 1 of a container, has to be restarted instead.";

/// The arguments of `samum upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// The control socket of the server [default: control.sock in $RUNTIME_DIRECTORY or /run/samum]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

const HEALTH_ABOUT: &str = "Ask a running server whether it is healthy.\n\n\
    The exit code is 0 if each worker of the server has ended a turn within 2 seconds, and the server is not shutting \
    down. Otherwise it is 1, and a sentence on standard error says why; so it is if no server answers within 5 \
    seconds. A disk or an upstream that does not answer is no reason: the workers turn meanwhile.";

/// The arguments of `samum health`.
#[derive(Debug, Args)]
pub struct Health {
    /// The control socket of the server [default: control.sock in $RUNTIME_DIRECTORY or /run/samum]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

const EXPLAIN_ABOUT: &str = "Explain what a server would do with a request.\n\n\
    The site, the route, its rules, the file on the disk with its precompressed copies, the media type and the fields of \
    the response, each with the reason. Nothing is sent to an upstream, no program is started, and no limit counts the \
    request. Values of request-headers and of environment are not shown.";

/// The arguments of `samum explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The URL of the request, such as http://host/path
    #[arg(value_name = "URL")]
    pub url: String,

    /// The method of the request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: String,

    /// A field of the request, such as `Accept-Encoding: br`; `Host` takes the place of the host of the URL. May be
    /// repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub fields: Vec<String>,

    /// The address of the client, or `unix`, to which `allow` and `deny` are applied [default: a client that is permitted]
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<Client>,

    /// The control socket of the server [default: control.sock in $RUNTIME_DIRECTORY or /run/samum]
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub control: Option<PathBuf>,

    /// Read a configuration file, and ask no server
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
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
    beside samum, in ../lib and in ../lib/samum.\n\n\
    It helps servers that send files by sendfile(2) to nonblocking sockets and wait with epoll, poll \
    or select: nginx (sendfile on), lighttpd, Apache httpd (EnableSendfile on, event MPM), webfsd.\n\n\
    It does not change, and does not help: files that the program reads into memory (nginx with \
    sendfile off or TLS, h2o, lighttpd with files up to 32 KiB, proxied bodies), open(2) and stat(2) of \
    files that are not in the kernel's caches, blocking sockets and datagrams, file systems that do not \
    report what is cached (FUSE, NFS), sockets and epoll instances duplicated by dup(2), in a child of \
    fork(2) sockets that its parent watches with epoll, and a poll(2) or select(2) of more than 1,024 \
    sockets. samum refuses programs that are statically linked (most Go programs), use musl, are built for another \
    machine, or for which the loader ignores LD_PRELOAD (setuid, file capabilities), and scripts of such programs.\n\n\
    Do not preload a program that waits for some sockets with epoll, poll or select and for others in a \
    way that the library does not see (io_uring, direct system calls): it may wait for the others for \
    ever. Nor one that keeps an epoll instance over exec(2) while it sends: the new program may not be told that a \
    socket is writable. The library does nothing for files that the program locks (fcntl(2), lockf(3), flock(2)), until they are \
    closed, and nothing at all where a seccomp filter kills the process for calls that the library needs, \
    or where the program installs a filter itself. It replaces the program's posix_fadvise(2) advice for \
    files that it reads from the disk. In a program that changes its user while it runs (seteuid(2) and the \
    like) these calls wait for the disk, because all threads have to take part. An nginx that replaces its own binary (USR2) keeps the library \
    only with \"env LD_PRELOAD;\" in its configuration.\n\n\
    With --check, samum prints a line for each condition, with yes, no or not known. The exit code is 1 if one is not \
    met. Settings of the server, such as `sendfile off`, are never known.\n\n\
    In the environment, SAMUM_PRELOAD=off turns the library off; SAMUM_PRELOAD_STATS, SAMUM_PRELOAD_LOG, \
    SAMUM_PRELOAD_CACHE and SAMUM_PRELOAD_READAHEAD (in bytes) are --stats, --log, --cache and --readahead.";

const PRELOAD_CACHE_HELP: &str = "Which files stay in the page cache after the library has read them.\n\n\
    always: all files, as without the library. When memory is short, the kernel decides what goes.\n\n\
    popular: the files that are requested most often, as many as fit into three quarters of the memory. All processes \
    that the command forks count together. Other files are treated as with never.\n\n\
    never: none. Bytes that the library has read leave the page cache 0.1 s after they were sent, tried for a minute while \
    clients have yet to acknowledge them, and at the end of the program. A block of 256 KiB of which something was cached \
    before stays. Files that the program reads by itself stay, as does everything that is left to the kernel, and what the \
    library has read for a process that is killed. The kernel's readahead is off for these files, which costs CPU time.";

/// The arguments of `samum preload`.
#[derive(Debug, Args)]
pub struct PreloadArgs {
    /// Write counters of each process to PATH.PID: once a second while it reads files, and when it exits
    #[arg(long, value_name = "PATH")]
    pub stats: Option<PathBuf>,

    /// Write notable events to a file, or `-` for standard error
    #[arg(long, value_name = "FILE|-")]
    pub log: Option<OsString>,

    /// Which files stay in the page cache after the library has read them [default: always]
    #[arg(long, value_enum, long_help = PRELOAD_CACHE_HELP)]
    pub cache: Option<Cache>,

    /// Read at most this many bytes ahead of a client, at least 256k (k, m, g for KiB, MiB, GiB) [default: 1m, or 8m
    /// where the kernel may read ahead, too]
    #[arg(long, value_name = "BYTES", value_parser = preload::readahead)]
    pub readahead: Option<u64>,

    /// Do not run the command; say whether the library will help it with the files of a directory, or of the working directory
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true, default_missing_value = ".")]
    pub check: Option<PathBuf>,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl PreloadArgs {
    /// Converts the arguments.
    #[must_use]
    pub fn preload(self) -> Preload {
        let Self { stats, log, cache, readahead, check: _, command } = self;
        Preload { command, stats, log, cache, readahead }
    }
}

/// The heading of the flags for files.
const FILES: &str = "Files and responses";
/// The heading of the flags for logs and messages.
const LOGS: &str = "Logs and messages";
/// The heading of the flags for the process.
const PROCESS: &str = "Process";
/// The heading of the flags for limits and times.
const LIMITS: &str = "Limits and times";
/// The heading of the flags for interfaces with samum's own stack.
const INTERFACE: &str = "Network interface";

/// The arguments of `samum serve`. Those without a heading come first in the help text, and they alone are in the short one
/// (`-h`).
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// The directory to serve
    ///
    /// Nothing outside it can be reached, not even through symbolic links. If another directory takes its place (a
    /// deploy), that is served within a second.
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,

    /// Serve what a configuration file says
    ///
    /// Flags that are keys of its `[server]` override them, and --log and --log-format override the logs of all sites;
    /// other flags cannot be given together with it.
    #[arg(long, value_name = "FILE", conflicts_with_all = DIRECTORY_FLAGS)]
    pub config: Option<PathBuf>,

    /// The address to listen on
    ///
    /// ADDRESS:PORT, with an IPv6 address in brackets, NAME:PORT for the first address of a name (127.0.0.1 for
    /// localhost), PORT for all IPv4 addresses, or unix:PATH, optionally followed by ,mode=660 and
    /// ,owner=USER:GROUP. May be repeated. With port 0 the kernel chooses a port. With --tls the default is
    /// 127.0.0.1:8443.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    #[arg(default_value_if("tls", ArgPredicate::IsPresent, "127.0.0.1:8443"))]
    pub listen: Vec<Address>,

    /// Speak TLS; `self-signed` is for tests
    ///
    /// It is spoken at all addresses but Unix sockets, with this certificate and its key: two files in the format PEM,
    /// or one with both. `self-signed` makes a certificate in memory: browsers warn of it.
    #[arg(long, value_name = "CERT,KEY", value_parser = value::tls)]
    pub tls: Option<Tls>,

    /// Speak only HTTP/1
    ///
    /// By default clients may choose HTTP/2: in the handshake of TLS, or without TLS by beginning with it.
    #[arg(long)]
    pub no_http2: bool,

    /// List directories without an index file
    ///
    /// As HTML, or as JSON for clients that prefer it.
    #[arg(long)]
    pub listing: bool,

    /// The file of a directory
    ///
    /// It is served for its directory; given several times, the first of them that there is.
    #[arg(long, value_name = "NAME", default_value = "index.html", value_parser = value::index)]
    pub index: Vec<String>,

    /// The file where there is nothing
    ///
    /// It is served with status 200, such as /index.html of an application of a single page.
    #[arg(long, value_name = "PATH", value_parser = rule::path)]
    pub fallback: Option<String>,

    /// The access log; `-` is standard output
    ///
    /// A file to append to (reopened on SIGHUP and SIGUSR1), `-` for standard output, or `none` [default: none].
    #[arg(long, value_name = "FILE", value_parser = value::log)]
    pub log: Option<String>,

    /// The flags that are keys of `[server]`.
    #[command(flatten)]
    pub server: ServerFlags,

    /// The flags that say more about two of these.
    #[command(flatten)]
    pub interface: InterfaceFlags,

    /// Which files stay in the page cache after they were read
    #[arg(long, value_enum, default_value_t = Cache::Popular, long_help = CACHE_HELP)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub cache: Cache,

    /// How the ETag of a file is made
    #[arg(long, value_enum, default_value_t = Etag::Stat, long_help = ETAG_HELP)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub etag: Etag,

    /// Prefetch at most this many bytes beyond those that a client has taken, less than 4 GiB (k, m, g for
    /// KiB, MiB, GiB)
    #[arg(long, value_name = "BYTES", default_value = "2m", value_parser = value::readahead)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub readahead: u64,

    /// Answer /a with a.html where there is no file a, and redirect /a.html to /a
    #[arg(long, help_heading = FILES, hide_short_help = true)]
    pub clean_urls: bool,

    /// The page for a status from 400 to 599, but 412 and 416, such as 404=/404.html. May be repeated
    #[arg(long, value_name = "STATUS=PATH", value_parser = rule::error_page)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub errors: Vec<(u16, String)>,

    /// A field that responses have, for all paths or for those that match a pattern; without a value,
    /// a field that they do not have. Those about caching, such as Cache-Control, are not for failures. May be
    /// repeated
    #[arg(long, value_name = "[PATTERN ]NAME: VALUE", value_parser = rule::header)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub headers: Vec<HeaderRule>,

    /// A media type for an extension, or for the whole name of a file, such as wasm=application/wasm. May be
    /// repeated
    #[arg(long, value_name = "EXTENSION=TYPE", value_parser = rule::media_type)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub types: Vec<(String, String)>,

    /// The media type of files whose names and extensions are not known
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream", value_parser = rule::media_value)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub default_type: String,

    /// The encoding that the media types of text files name; `none` if they name none
    #[arg(long, value_name = "NAME", default_value = "utf-8", value_parser = rule::charset)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub charset: String,

    /// Serve files and directories whose names begin with a dot, too; /.well-known/ is served anyway
    #[arg(long, help_heading = FILES, hide_short_help = true)]
    pub dotfiles: bool,

    /// The treatment of symbolic links
    #[arg(long, value_enum, default_value_t, help_heading = FILES, hide_short_help = true)]
    pub symlinks: Symlinks,

    /// Send a.css.br, a.css.zst or a.css.gz in place of a.css to clients that understand it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub precompressed: bool,

    /// A file of redirects: on each line a path, a target, and a status (301 unless it says another)
    #[arg(long, value_name = "FILE", long_help = REDIRECTS_HELP)]
    #[arg(help_heading = FILES, hide_short_help = true)]
    pub redirects: Option<PathBuf>,

    /// The format of the access log [default: combined]
    #[arg(long, value_enum, help_heading = LOGS, hide_short_help = true)]
    pub log_format: Option<LogFormat>,
}

/// The flags of `samum serve` that are keys of `[server]` ([`flags`]), as they were given.
#[derive(Clone, Debug, Default)]
pub struct ServerFlags {
    given: Vec<(Flag, Vec<String>)>,
}

impl Args for ServerFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(flags::all().map(argument))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag: Flag| {
            let values = matches.get_many::<String>(flag.name())?;
            Some((flag, values.cloned().collect()))
        };
        Ok(Self { given: flags::all().filter_map(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The heading of a flag of the server; `None` if everybody needs it.
fn heading(name: &str) -> Option<&'static str> {
    match name {
        "user" => None,
        "error-format" => Some(LOGS),
        "interface" | "frames" | "congestion" | "pcap" => Some(INTERFACE),
        _ if ["max-", "timeout-", "rate-"].iter().any(|start| name.starts_with(start)) => {
            Some(LIMITS)
        }
        _ => Some(PROCESS),
    }
}

/// Describes a flag, whose values are read as those of its key.
fn argument(flag: Flag) -> Arg {
    let with_default = |text: &str| match flag.default() {
        _ if flag.is_list() => format!("{text}. May be repeated [default: {}]", flag.default()),
        default => format!("{text} [default: {default}]"),
    };
    let whole = flag.description();
    let argument = Arg::new(flag.name())
        .long(flag.name())
        .value_name(flag.value_name())
        .help(with_default(flag.summary()))
        .long_help(with_default(whole.strip_suffix('.').unwrap_or(whole)))
        .action(if flag.is_list() { ArgAction::Append } else { ArgAction::Set });
    let argument = match heading(flag.name()) {
        Some(heading) => argument.help_heading(heading).hide_short_help(true),
        None => argument.help("The user that the server becomes"),
    };
    let argument = if flag.has_commas() { argument.value_delimiter(',') } else { argument };
    // The key's description refers to a chapter of the reference.
    let argument =
        if flag.name() == "interface" { argument.long_help(INTERFACE_HELP) } else { argument };
    if !flag.words().is_empty() {
        return argument.value_parser(PossibleValuesParser::new(flag.words()));
    }
    argument.value_parser(move |value: &str| {
        flag.set(&mut Server::default(), &[value]).map(|()| value.to_owned())
    })
}

/// The flags that say more about `--interface` and `--pcap`: keys of their tables.
#[derive(Clone, Debug, Default, Args)]
pub struct InterfaceFlags {
    /// An address of the interface that the kernel does not have: samum answers ARP, neighbour discovery and ping
    /// for it. With a single --interface; may be repeated [default: the kernel's addresses]
    #[arg(long, help_heading = INTERFACE, hide_short_help = true)]
    #[arg(value_name = "ADDR/PREFIX", requires = "interface")]
    pub address: Vec<InterfaceAddress>,

    /// The router through which clients of other networks are answered, for addresses that the kernel does not
    /// have. May be given once for each version of IP [default: the station that the request came from]
    #[arg(long, help_heading = INTERFACE, hide_short_help = true)]
    #[arg(value_name = "ADDR", requires = "address")]
    pub gateway: Vec<IpAddr>,

    /// The size at which a file of --pcap is followed by another one [default: 64m]
    #[arg(long, help_heading = INTERFACE, hide_short_help = true)]
    #[arg(value_name = "BYTES", value_parser = value::bytes, requires = "pcap")]
    pub pcap_size: Option<u64>,

    /// The number of files of --pcap that are kept [default: 4]
    #[arg(long, help_heading = INTERFACE, hide_short_help = true)]
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(value::CAPTURE_FILES), requires = "pcap")]
    pub pcap_files: Option<u16>,

    /// Record only frames from and to these addresses and ranges. May be repeated [default: all]
    #[arg(long, help_heading = INTERFACE, hide_short_help = true)]
    #[arg(value_name = "RANGE", value_parser = value::prefix, value_delimiter = ',', requires = "pcap")]
    pub pcap_peers: Vec<Prefix>,
}

/// The flags that are about one directory.
const DIRECTORY_FLAGS: [&str; 20] = [
    "dir",
    "listen",
    "tls",
    "no_http2",
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
    CAP_IPC_LOCK, CAP_KILL, CAP_NET_BIND_SERVICE), if the server has them, and with --user all but CAP_IPC_LOCK and CAP_NET_BIND_SERVICE; ports below \
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
    /// Makes the configuration: reads its file, or uses the directory.
    ///
    /// # Errors
    ///
    /// Those of the configuration file; one was given as the directory.
    pub fn load(&self) -> Result<Loaded, Errors> {
        if let Some(format) = self.server.error_format() {
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
            None if is_port(&self.dir) && !self.dir.exists() => {
                let port = self.dir.display();
                return Err(format!(
                    "cannot serve {port}: there is no such directory (for the port: --listen 127.0.0.1:{port})"
                )
                .into());
            }
            None => Loaded::of(self.directory()),
        };
        let config = &mut loaded.config;
        self.server.override_keys(&mut config.server)?;
        self.interface.complete(&mut config.server)?;
        let target = self.log.as_deref().map(|log| match log {
            "none" => LogTarget::None,
            "-" => LogTarget::Stdout,
            path => LogTarget::File(path.into()),
        });
        for site in &mut config.sites {
            set(&mut site.log.target, target.as_ref());
            set(&mut site.log.format, self.log_format.as_ref());
            for log in site.routes.iter_mut().filter_map(|route| route.log.as_mut()) {
                set(&mut log.target, target.as_ref());
                set(&mut log.format, self.log_format.as_ref());
            }
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
        if self.tls.is_some() && !self.listen.iter().any(speaks_tls) {
            return Err("--tls is for IP addresses, and --listen names Unix sockets only: leave --tls out, or give \
                        --listen ADDRESS:PORT, too"
                .to_owned()
                .into());
        }
        let collisions = loaded.config.collisions();
        let error = |(address, why): (_, String)| loaded.error(&Thing::Address(address), &why);
        let errors: Vec<_> = collisions.map(error).collect();
        if !errors.is_empty() {
            return Err(Errors(errors));
        }
        let warnings = warnings::of(&loaded);
        loaded.warnings.extend(warnings);
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
        let listen = self.listen.iter().map(|address| Listen {
            tls: self.tls.is_some() && speaks_tls(address),
            http2: !self.no_http2,
            ..Listen::from(address.clone())
        });
        let mut config = Config::of_directory(files, listen.collect(), Log::default(), server);
        let site = &mut config.sites[0];
        site.tls.clone_from(&self.tls);
        site.headers.clone_from(&self.headers);
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
    /// The format of messages about all other mistakes, if it was given.
    fn error_format(&self) -> Option<ErrorFormat> {
        let (flag, values) = self.given.iter().find(|(flag, _)| flag.name() == "error-format")?;
        let mut server = Server::default();
        flag.set(&mut server, values).ok()?;
        Some(server.error_format)
    }

    /// Puts what was given in the place of what a file says.
    fn override_keys(&self, server: &mut Server) -> Result<(), String> {
        for (flag, values) in &self.given {
            flag.set(server, values).map_err(|why| format!("--{}: {why}", flag.name()))?;
        }
        let for_interfaces = |flag: &&Flag| ["frames", "congestion", "pcap"].contains(&flag.name());
        match self.given.iter().map(|(flag, _)| flag).find(for_interfaces) {
            Some(flag) if server.interfaces.is_empty() => Err(format!(
                "--{} needs an interface of samum's own stack: give --interface, too",
                flag.name()
            )),
            _ => Ok(()),
        }
    }
}

impl InterfaceFlags {
    /// Adds to what `--interface` and `--pcap` have made.
    fn complete(&self, server: &mut Server) -> Result<(), String> {
        if let (Some(capture), true) = (&mut server.capture, self.is_of_capture()) {
            set(&mut capture.bytes_max, self.pcap_size.as_ref());
            set(&mut capture.files_max, self.pcap_files.as_ref());
            capture.peers.clone_from(&self.pcap_peers);
        }
        if self.address.is_empty() {
            return Ok(());
        }
        let [interface] = &mut server.interfaces[..] else {
            return Err(
                "--address needs a single --interface: write several interfaces with addresses of their own \
                 into a configuration file (`interface`)"
                    .to_owned(),
            );
        };
        interface.addresses.clone_from(&self.address);
        interface.gateways.clone_from(&self.gateway);
        interface.check()
    }

    const fn is_of_capture(&self) -> bool {
        self.pcap_size.is_some() || self.pcap_files.is_some() || !self.pcap_peers.is_empty()
    }
}

/// Returns whether `--tls` is for an address: what connects to a Unix socket is on this machine.
const fn speaks_tls(address: &Address) -> bool {
    matches!(address, Address::Ip(_))
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
    use config::reference;
    use std::collections::BTreeMap;

    /// Flags that are no keys, and those that are keys of the tables `log`, `interface` and `pcap`.
    const OTHER_FLAGS: [&str; 8] = [
        "config",
        "no-http2",
        "log-format",
        "address",
        "gateway",
        "pcap-size",
        "pcap-files",
        "pcap-peers",
    ];

    /// The keys of a section of the reference, and their defaults.
    fn keys(section: &str) -> impl Iterator<Item = (&str, &str)> {
        section.lines().filter_map(|line| {
            let (name, row) = line.strip_prefix("- **`")?.split_once("`**: ")?;
            let (_, default) = row.split_once(". Default: ")?;
            Some((name, default.split_once(". Example: ")?.0))
        })
    }

    #[test]
    fn flags_of_a_directory_have_the_defaults_of_keys() {
        let reference = reference::markdown();
        let sections: Vec<_> = reference.split("\n## Keys ").skip(1).collect();
        let rows: BTreeMap<_, _> =
            sections.iter().take(5).flat_map(|section| keys(section)).collect();
        let of_server: Vec<_> = flags::all().map(Flag::name).collect();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for flag in serve.get_arguments() {
            let Some(long) = flag.get_long() else { continue };
            if OTHER_FLAGS.contains(&long) || of_server.contains(&long) {
                continue;
            }
            let default = rows.get(long).unwrap_or_else(|| panic!("--{long} is no key"));
            let of_flag = flag.get_default_values().first().map(|value| value.to_str().unwrap());
            let of_key = default.trim_matches(['`', '[', ']', '"']);
            assert!(
                of_flag.is_none_or(|text| text == of_key),
                "--{long}: {of_flag:?}, key: {of_key}"
            );
        }
    }

    #[test]
    fn a_short_help_text_fits_one_screen_and_the_long_one_has_groups() {
        let mut command = Cli::command().term_width(80);
        command.build();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let short = serve.render_help().to_string();
        assert!(short.lines().count() <= 24, "{} lines:\n{short}", short.lines().count());
        assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
        for word in ["DIR", "--config", "--listen", "--tls", "--listing", "--user", "--log"] {
            assert!(short.contains(word), "{word} in {short}");
        }
        let long = serve.render_long_help().to_string();
        let heads = ["Options", FILES, LOGS, PROCESS, LIMITS, INTERFACE];
        let places = heads.map(|head| {
            long.find(&format!("\n{head}:\n")).unwrap_or_else(|| panic!("{head}:\n{long}"))
        });
        let all = command.render_help().to_string();
        assert!(all.lines().count() <= 24, "{all}");
        assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
        let options = &long[places[0]..*places[1..].iter().min().unwrap()];
        assert!(options.contains("--listen") && !options.contains("--max-connections"), "{long}");
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
    fn tls_is_for_all_ip_addresses_of_a_directory() {
        let serve = |arguments: &str| {
            let arguments = ["samum", "serve", "."].into_iter().chain(arguments.split(' '));
            let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
            let Command::Serve(serve) = cli.command else { panic!("it serves") };
            Ok::<_, String>(serve.load().expect("it is right").config.sites.remove(0))
        };
        for (arguments, expected) in [
            ("--listing", vec![("127.0.0.1:8080", false)]),
            ("--tls self-signed", vec![("127.0.0.1:8443", true)]),
            ("--tls a.pem,a.key --listen :443", vec![("0.0.0.0:443", true)]),
            (
                "--listen [::1]:443 --listen unix:s --tls a.pem --listen :443",
                vec![("[::1]:443", true), ("unix:s", false), ("0.0.0.0:443", true)],
            ),
        ] {
            let site = serve(arguments).unwrap();
            let listen: Vec<_> =
                site.listen.iter().map(|it| (it.address.to_string(), it.tls)).collect();
            let listen: Vec<_> = listen.iter().map(|(address, tls)| (&address[..], *tls)).collect();
            assert_eq!(listen, expected, "{arguments}");
            assert_eq!(site.tls.is_some(), arguments.contains("--tls"), "{arguments}");
        }
        for (arguments, expected) in [
            ("--tls acme", "`[acme]` of a configuration file"),
            ("--tls a,b,c", "expected CERT,KEY"),
            ("--tls a --tls b", "cannot be used multiple times"),
        ] {
            let error = serve(arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments}: {error}");
        }
        let beside = Cli::try_parse_from(["samum", "serve", "--config", "x", "--tls", "a"]);
        let error = beside.unwrap_err().to_string();
        assert!(error.contains("'--config <FILE>' cannot be used with '--tls"), "{error}");
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
            ("--tls self-signed --listen unix:s", Some("--tls is for IP addresses")),
            ("--tls self-signed --listen unix:s --listen :443", None),
        ] {
            let found = refusal(arguments);
            assert_eq!(found.is_some(), refused.is_some(), "{arguments}: {found:?}");
            assert!(found.unwrap_or_default().contains(refused.unwrap_or_default()), "{arguments}");
        }
    }
}

//! The command line as it is written, and what it means.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::ffi::OsString;
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ring::Choice;
use sendfile::Caching;

use crate::LogFormat;
use crate::config::{Address, Config, LogTarget, Tags, Tuning, UnixSocket};
use crate::preload::Preload;

/// A file server that never waits for the disk.
#[derive(Debug, Parser)]
#[command(name = "samum", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 all went well, 1 something failed while running, 2 the command line is wrong."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory over HTTP
    #[command(long_about = SERVE_ABOUT)]
    Serve(Serve),
    /// Run another server so that its sendfile(2) does not wait for the disk
    #[command(long_about = PRELOAD_ABOUT)]
    Preload(PreloadArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page (`samum man | man -l -`)
    Man,
}

const SERVE_ABOUT: &str = "Serve a directory over HTTP/1.1.\n\n\
    No request waits for another's disk: files that are in memory go out by sendfile(2), others are \
    read on the side. SIGTERM and SIGINT stop accepting, let responses under way finish (at most 30 \
    seconds), and exit with 0; a second signal exits at once. SIGHUP and SIGUSR1 open the access log \
    again, for a log that was moved away; SIGHUP will also read the configuration again once there is one.";

const PRELOAD_ABOUT: &str = "Run another server so that its sendfile(2) does not wait for the disk.\n\n\
    The command runs with libsamum_preload.so before the C library (LD_PRELOAD). When what it wants \
    to send is not in memory, sendfile says that the socket is full (EAGAIN), a thread reads the \
    file, and the server's own event loop is told when it can go on. What is in memory goes out as \
    ever. The library is found by SAMUM_PRELOAD_LIB=PATH, else beside samum or in ../lib.\n\n\
    Helped: servers that send files by sendfile(2) to nonblocking sockets and wait by epoll, poll \
    or select: nginx (sendfile on), lighttpd, Apache httpd (EnableSendfile on, event MPM), webfsd.\n\n\
    Not helped, and left as they are: what is read into memory first (nginx with sendfile off or \
    TLS, h2o, files of lighttpd up to 32 KiB, proxied bodies), open(2) and stat(2) of files never \
    looked at, blocking sockets, file systems that do not tell what is in memory (FUSE, NFS: as slow \
    as without), sockets duplicated by dup(2), sockets in a poll(2) or select(2) of more than 1,024. Refused: \
    programs that are statically linked (most in Go), for another machine, or that the loader does \
    not let be preloaded (setuid, file capabilities).\n\n\
    A program that waits for some sockets by epoll, poll or select and for others in ways that are \
    not seen here (io_uring, system calls of its own) must not be preloaded: the others may never be \
    told. Files that the program locks (fcntl(2), lockf(3)) are left to the kernel until it closes them; so is \
    everything where a seccomp filter kills for what the library needs, or the program installs one \
    itself. Advice by posix_fadvise(2) on \
    files that are read from the disk is replaced. An nginx that replaces its own program (USR2) \
    keeps the library only with \"env LD_PRELOAD;\" in its configuration.\n\n\
    In the environment, SAMUM_PRELOAD=off turns the library off; SAMUM_PRELOAD_STATS and \
    SAMUM_PRELOAD_LOG are --stats and --log.";

/// `samum preload`, as written.
#[derive(Debug, Args)]
pub struct PreloadArgs {
    /// Write counts to PATH.PID of each process: once a second while it reads, and when it exits
    #[arg(long, value_name = "PATH")]
    pub stats: Option<PathBuf>,

    /// Write what is notable to a file, or `-` for standard error
    #[arg(long, value_name = "FILE|-")]
    pub log: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl PreloadArgs {
    /// What it means.
    #[must_use]
    pub fn preload(self) -> Preload {
        Preload { command: self.command, stats: self.stats, log: self.log }
    }
}

/// `samum serve`, as written.
#[derive(Debug, Args)]
pub struct Serve {
    /// The directory to serve. Nothing outside it is reachable, by links neither. If another takes its
    /// place (a deploy), that is served within a second
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,

    /// Where to listen: ADDRESS:PORT, with an IPv6 address in brackets, or
    /// unix:PATH, to which ,mode=660 and ,owner=USER:GROUP can be added. May be repeated. Port 0 lets
    /// the kernel choose
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    pub listen: Vec<Address>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// What the workers run on; `auto` is io_uring where the kernel has and allows it
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    pub driver: Driver,

    /// The file that is served for its directory
    #[arg(long, value_name = "NAME", default_value = "index.html", value_parser = parse_index)]
    pub index: String,

    /// List directories that have no such file (HTML, or JSON for clients that prefer it)
    #[arg(long)]
    pub listing: bool,

    /// What is read from the disk stays in memory: `auto` keeps all but the largest files
    #[arg(long, value_enum, default_value_t = Cache::Auto)]
    pub cache: Cache,

    /// What the ETag of a file is made of
    #[arg(long, value_enum, default_value_t = Etag::Stat, long_help = ETAG_HELP)]
    pub etag: Etag,

    /// Read at most so much beyond what a client has taken (k, m, g for KiB, MiB, GiB)
    #[arg(long, value_name = "BYTES", default_value = "2m", value_parser = parse_bytes)]
    pub readahead: u64,

    /// The access log: a file to append to (opened again on SIGHUP and SIGUSR1), `-` for standard
    /// output, or `none`
    #[arg(long, value_name = "FILE|-|none", default_value = "none")]
    pub log: String,

    /// How a line of the access log looks
    #[arg(long, value_enum, default_value_t = LogFormat::Combined)]
    pub log_format: LogFormat,

    /// Connections at once. Beyond it, the one that has been idle for longest is closed for a
    /// newcomer; while none is idle, newcomers wait
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_connections: u32,

    /// Close a connection without a request after S seconds
    #[arg(long, value_name = "S", default_value = "75", value_parser = parse_seconds)]
    pub timeout_idle: Duration,

    /// Answer 408 to a request that is not complete after S seconds
    #[arg(long, value_name = "S", default_value = "20", value_parser = parse_seconds)]
    pub timeout_header: Duration,

    /// Close a connection that takes less than --rate-min for S seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_seconds)]
    pub timeout_send: Duration,

    /// Bytes per second that a client must take while a response waits for it
    #[arg(long, value_name = "BYTES/S", default_value = "64", value_parser = parse_bytes)]
    pub rate_min: u64,
}

/// `--driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// io_uring if it can be had
    Auto,
    /// io_uring or an error
    Uring,
    /// epoll and threads
    Epoll,
}

/// `--cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// Files up to an eighth of the memory stay
    Auto,
    /// Everything stays
    Always,
    /// Nothing stays
    Never,
}

/// `--etag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Etag {
    /// Size, times of modification and of change, inode
    Stat,
    /// The contents
    Hash,
}

const ETAG_HELP: &str = "What the ETag of a file is made of. All are strong: a download is only resumed, and a cached copy \
    only called current, if the bytes are the same.\n\n\
    stat: the size, the times of modification (mtime) and of change (ctime), and the inode number. It changes \
    whenever the file may have changed, also when another file of the same size and mtime takes its place, and \
    when its mode or its names change. It stays the same when the server or the machine restarts. On other \
    machines copies of the same file have other tags: nodes of a fleet behind one address share only \
    Last-Modified.\n\n\
    hash: the contents (BLAKE3). The same on all nodes of a fleet that have the same bytes. It is computed on the \
    side, by each worker at 128 MiB/s, and kept by inode and ctime until the server restarts; until it is known, and for \
    files of more than 4 GiB, a response has no ETag.\n\n\
    Neither tells every write through a shared mapping (mmap), nor, before Linux 6.13, two writes within one tick \
    of the kernel's clock (1 to 10 ms).";

impl Serve {
    /// What it means.
    #[must_use]
    pub fn config(self) -> Config {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            root: self.dir,
            listen: self.listen,
            threads: self.threads.map_or(cores, usize::from),
            driver: match self.driver {
                Driver::Auto => Choice::Auto,
                Driver::Uring => Choice::Uring,
                Driver::Epoll => Choice::Epoll,
            },
            log: match self.log.as_str() {
                "none" => LogTarget::None,
                "-" => LogTarget::Stdout,
                path => LogTarget::File(path.into()),
            },
            log_format: self.log_format,
            tuning: Tuning {
                index: self.index,
                listing: self.listing,
                caching: match self.cache {
                    Cache::Auto => Caching::Auto,
                    Cache::Always => Caching::Always,
                    Cache::Never => Caching::Never,
                },
                tags: match self.etag {
                    Etag::Stat => Tags::Stat,
                    Etag::Hash => Tags::Hash,
                },
                readahead: self.readahead,
                connections_max: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
                timeout_idle: self.timeout_idle,
                timeout_header: self.timeout_header,
                timeout_send: self.timeout_send,
                rate_min: self.rate_min,
            },
        }
    }
}

fn parse_address(text: &str) -> Result<Address, String> {
    if let Some(rest) = text.strip_prefix("unix:") {
        return parse_unix(rest).map(Address::Unix);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        if let IpAddr::V6(ip) = address.ip()
            && let Some(v4) = ip.to_ipv4_mapped()
        {
            // A socket for IPv6 alone takes no such address, and no client could reach it.
            let v4 = SocketAddr::from((v4, address.port()));
            return Err(format!(
                "that is an IPv4 address in the notation of IPv6, which no client of either can \
                 reach here: listen on {v4}"
            ));
        }
        return Ok(Address::Ip(address));
    }
    // `:80` and `80` are every IPv4 address, as with other servers.
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok(Address::Ip(SocketAddr::from(([0, 0, 0, 0], port))));
    }
    let mut found = text.to_socket_addrs().map_err(|_| {
        "expected ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH".to_owned()
    })?;
    found.next().map(Address::Ip).ok_or_else(|| "the name has no address".to_owned())
}

/// `PATH[,mode=OCTAL][,owner=[USER][:GROUP]]`; a path may have commas, but no `,word=`.
fn parse_unix(text: &str) -> Result<UnixSocket, String> {
    let mut socket = UnixSocket::default();
    let mut rest = text;
    while let Some((before, name, value)) = last_option(rest) {
        match name {
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o777);
                socket.mode = Some(mode.ok_or_else(|| {
                    format!("mode={value}: expected three octal digits, such as mode=660")
                })?);
            }
            "owner" => {
                let (user, group) = value.split_once(':').unwrap_or((value, ""));
                if user.is_empty() && group.is_empty() {
                    return Err("owner= needs USER, USER:GROUP or :GROUP".into());
                }
                socket.user = (!user.is_empty()).then(|| user.to_owned());
                socket.group = (!group.is_empty()).then(|| group.to_owned());
            }
            _ => {
                return Err(format!("{name}= is not known; a Unix socket has mode= and owner="));
            }
        }
        rest = before;
    }
    if rest.is_empty() {
        return Err("unix: needs a path, as in unix:/run/samum.sock,mode=660".into());
    }
    socket.path = rest.into();
    Ok(socket)
}

/// What is before the last `,name=value`, the name and the value.
fn last_option(text: &str) -> Option<(&str, &str, &str)> {
    let (before, option) = text.rsplit_once(',')?;
    let (name, value) = option.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_name.then_some((before, name, value))
}

fn parse_index(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || text == "." || text == ".." {
        return Err("expected the name of a file in the directory, such as index.html".into());
    }
    Ok(text.to_owned())
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.as_bytes() {
        [.., b'k'] => (&lower[..lower.len() - 1], 10),
        [.., b'm'] => (&lower[..lower.len() - 1], 20),
        [.., b'g'] => (&lower[..lower.len() - 1], 30),
        _ => (lower, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number of bytes, such as 65536, 64k or 1m".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes".to_owned())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| "expected seconds, such as 30 or 0.5".to_owned())?;
    if !(0.1..=1e9).contains(&seconds) {
        return Err("expected at least 0.1 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn addresses_of_every_kind_are_understood() {
        let ip = |text: &str| Address::Ip(text.parse().unwrap());
        assert_eq!(parse_address("127.0.0.1:80"), Ok(ip("127.0.0.1:80")));
        assert_eq!(parse_address("[::1]:80"), Ok(ip("[::1]:80")));
        assert_eq!(parse_address(":80"), Ok(ip("0.0.0.0:80")));
        for bad in ["", "unix:", "1.2.3.4", "1.2.3.4:99999", "[::1]"] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_ipv4_address_in_the_notation_of_ipv6_is_explained() {
        let error = parse_address("[::ffff:127.0.0.1]:80").unwrap_err();
        assert!(error.ends_with("listen on 127.0.0.1:80"), "{error}");
    }

    #[test]
    fn a_unix_socket_may_have_a_mode_and_an_owner() {
        let name = |name: &str| Some(name.to_owned());
        for (text, path, mode, user, group) in [
            ("unix:/a b", "/a b", None, None, None),
            ("unix:/a,b", "/a,b", None, None, None),
            ("unix:/a=b,c.d=e", "/a=b,c.d=e", None, None, None),
            ("unix:/s,mode=0660", "/s", Some(0o660), None, None),
            ("unix:s,mode=0", "s", Some(0), None, None),
            ("unix:/s,owner=www-data", "/s", None, name("www-data"), None),
            ("unix:/s,owner=33:www-data,mode=600", "/s", Some(0o600), name("33"), name("www-data")),
            ("unix:/s,mode=777,owner=:adm", "/s", Some(0o777), None, name("adm")),
        ] {
            let expected = UnixSocket { path: path.into(), mode, user, group };
            assert_eq!(parse_address(text), Ok(Address::Unix(expected)), "{text}");
        }
        for (text, advice) in [
            ("unix:,mode=660", "needs a path"),
            ("unix:/s,mode=", "octal"),
            ("unix:/s,mode=rw", "octal"),
            ("unix:/s,mode=888", "octal"),
            ("unix:/s,mode=1777", "octal"),
            ("unix:/s,owner=", "USER:GROUP"),
            ("unix:/s,owner=:", "USER:GROUP"),
            ("unix:/s,user=www", "mode= and owner="),
        ] {
            let error = parse_address(text).unwrap_err();
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    #[test]
    fn bytes_have_units_and_a_limit() {
        assert_eq!(parse_bytes("0"), Ok(0));
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("1MiB"), Ok(1 << 20));
        for bad in ["", "k", "-1", "1x", "99999999999g"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["", "0", "-1", "nan", "inf", "x"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}

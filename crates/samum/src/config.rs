//! The configuration of the server, after parsing.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use ring::Choice;
use sendfile::Policy;

use crate::budget::WORKER_BYTES_MAX;

/// The configuration of `samum serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The sites; at least one. The first also gets the requests for hosts that no site has.
    pub sites: Vec<Site>,
    /// The addresses to listen on; at least one.
    pub listen: Vec<Address>,
    /// The number of workers, each of which is a thread; at least one.
    pub threads: usize,
    /// The kernel interface that the workers use.
    pub driver: Choice,
    /// The destination of the access log.
    pub log: LogTarget,
    /// The format of its lines.
    pub log_format: LogFormat,
    /// The settings of each worker.
    pub tuning: Tuning,
}

/// A site: a directory that is served to requests for some hosts.
#[derive(Clone, Debug)]
pub struct Site {
    /// The hosts, in the form that [`Sites::new`](crate::site::Sites::new) takes.
    pub hosts: Vec<String>,
    /// The directory to serve.
    pub root: PathBuf,
}

/// The settings of one worker.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The name of the file that is served for its directory.
    pub index: String,
    /// True if directories without that file are listed.
    pub listing: bool,
    /// The treatment of the files that are sent.
    pub policy: Policy,
    /// The source of entity tags.
    pub tags: Tags,
    /// Bytes that the connections of one worker may hold together with its cached responses. Beyond
    /// them each connection has one response at a time.
    pub memory_bytes_max: u64,
    /// The maximum number of connections of all workers together.
    pub connections_max: usize,
    /// An idle connection is closed after this time.
    pub timeout_idle: Duration,
    /// A request that is not complete after this time is answered 408.
    pub timeout_header: Duration,
    /// A connection whose peer takes less than [`rate_min`](Self::rate_min) for this long is closed.
    pub timeout_send: Duration,
    /// A request whose file a disk has not brought after this time is answered 503. If its response has
    /// begun, its connection is closed.
    pub timeout_disk: Duration,
    /// Bytes per second that a peer must take while a response waits for it. It must always take at
    /// least one byte in each `timeout_send`.
    pub rate_min: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            index: "index.html".to_owned(),
            listing: false,
            policy: Policy::default(),
            tags: Tags::Stat,
            memory_bytes_max: WORKER_BYTES_MAX,
            connections_max: 16 * 1024,
            timeout_idle: Duration::from_secs(75),
            timeout_header: Duration::from_secs(20),
            timeout_send: Duration::from_secs(30),
            timeout_disk: Duration::from_secs(30),
            rate_min: 64,
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

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A stream socket in the file system.
    Unix(UnixSocket),
}

/// A stream socket in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its path.
    pub path: PathBuf,
    /// Its permissions, if not 0777 less the umask. Users with write permission can connect.
    pub mode: Option<u32>,
    /// The name or number of the user that will own it.
    pub user: Option<String>,
    /// The name or number of the group that will own it.
    pub group: Option<String>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
        }
    }
}

/// The destination of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// No log.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// The end of a file.
    File(PathBuf),
}

/// The format of a line of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// `host - - [date] "request" status bytes`
    Common,
    /// The same with referrer and user agent; most tools read this.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

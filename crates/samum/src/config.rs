//! The configuration as it is meant.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use ring::Choice;
use sendfile::Caching;

/// What `samum serve` does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory to serve.
    pub root: PathBuf,
    /// Where to listen; at least one.
    pub listen: Vec<Address>,
    /// Workers, each with a thread of its own; at least one.
    pub threads: usize,
    /// What the workers run on.
    pub driver: Choice,
    /// Where the access log goes.
    pub log: LogTarget,
    /// How its lines look.
    pub log_format: LogFormat,
    /// The rest.
    pub tuning: Tuning,
}

/// What one worker needs to know.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The file that stands for its directory.
    pub index: String,
    /// Whether a directory without that file is listed.
    pub listing: bool,
    /// What becomes of the page cache.
    pub caching: Caching,
    /// What entity tags are made of.
    pub tags: Tags,
    /// Bytes read ahead of what a socket has taken.
    pub readahead: u64,
    /// Connections of all workers together.
    pub connections_max: usize,
    /// An idle connection is closed after this.
    pub timeout_idle: Duration,
    /// A request that is not complete after this gets a 408.
    pub timeout_header: Duration,
    /// How long a peer may take less than [`rate_min`](Self::rate_min).
    pub timeout_send: Duration,
    /// Bytes per second that a peer must take while a response waits for it; at least one byte
    /// in each `timeout_send` is always asked for.
    pub rate_min: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            index: "index.html".to_owned(),
            listing: false,
            caching: Caching::Auto,
            tags: Tags::Stat,
            readahead: 2 * 1024 * 1024,
            connections_max: 16 * 1024,
            timeout_idle: Duration::from_secs(75),
            timeout_header: Duration::from_secs(20),
            timeout_send: Duration::from_secs(30),
            rate_min: 64,
        }
    }
}

/// What entity tags are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// Size, times of modification and of change, inode.
    #[default]
    Stat,
    /// The contents.
    Hash,
}

/// Where a listener is.
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
    /// Its name.
    pub path: PathBuf,
    /// Its permissions, if they are not what the umask leaves of 0777. Who may write to it may connect.
    pub mode: Option<u32>,
    /// The name or number of the user that it is given to.
    pub user: Option<String>,
    /// The name or number of the group that it is given to.
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

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// Nowhere.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// The end of a file.
    File(PathBuf),
}

/// How a line of the access log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// `host - - [date] "request" status bytes`
    Common,
    /// The same with referrer and user agent: what most tools read.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

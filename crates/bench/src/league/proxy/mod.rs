//! Measures proxies: an origin serves files from memory, and each proxy passes its responses on.
//!
//! The proxy has the servers' CPU for itself; the origin shares the load generator's CPU. The row
//! `origin` is the same server asked directly, on the servers' CPU. CPU times are the proxy's alone,
//! with the kernel's work for it.

use super::League;
use super::peers::{ORIGIN, Peer};
use super::server::{Host, Server};
use super::site::Site;
use crate::{Fault, Recorder};

pub mod download;
pub mod fastcgi;
pub mod includes;
pub(crate) mod requests;
pub mod secured;
pub mod slow;
pub mod small;
pub mod stalled;
pub mod units;

/// An origin with its files.
#[derive(Debug)]
struct Stage<'a> {
    league: &'a League,
    site: &'a Site,
    files: &'a [String],
    origin: Server,
}

impl<'a> Stage<'a> {
    /// Starts the origin, with the files in memory.
    fn new(league: &'a League, site: &'a Site, files: &'a [String]) -> Result<Self, Fault> {
        if league.proxies.is_empty() {
            return Err(Fault::Skip("no proxy was chosen".into()));
        }
        Self::with_origin(league, site, files, ORIGIN)
    }

    /// The same with another origin.
    fn with_origin(
        league: &'a League,
        site: &'a Site,
        files: &'a [String],
        origin: &str,
    ) -> Result<Self, Fault> {
        site.warm(files)?;
        let peer = Peer::named(origin).map_err(Fault::Failed)?;
        let host = Host {
            root: site.root(),
            files,
            cpu: league.client_cpu,
            throttle: None,
            origin: None,
            network: None,
        };
        let start = || Server::start(&peer, host);
        let origin = league.silent.unless(origin, start).map_err(Fault::Skip)?;
        Ok(Self { league, site, files, origin })
    }

    /// Starts a proxy and compares the bytes of some of the files.
    fn start(&self, recorder: &mut Recorder<'_>, peer: &Peer, compared: usize) -> Option<Server> {
        self.league.start_on(recorder, peer, self.site, self.host(compared))
    }

    /// The surroundings of a proxy that knows some of the files.
    fn host(&self, known: usize) -> Host<'_> {
        Host {
            root: self.site.root(),
            files: &self.files[..known],
            cpu: self.league.server_cpu,
            throttle: None,
            origin: Some(self.origin.address()),
            network: None,
        }
    }

    /// Shows the machine and the configurations of the proxies.
    fn describe(&self, recorder: &mut Recorder<'_>, peers: &[Peer]) {
        recorder.note("the origin shares the CPU of the load generator");
        self.league.describe_these(recorder, peers);
    }
}

/// The proxies to which the others are compared, and the titles of the columns that do.
const COMPARED_TO: [(&str, &str); 2] = [("nginx-proxy", "nginx = 1"), (HAPROXY, "haproxy = 1")];

/// The haproxy that splices is compared to this default, too.
const HAPROXY: &str = "haproxy";

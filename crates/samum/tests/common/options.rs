//! The options with which tests serve one directory.

use std::sync::Arc;

use config::{Config, FileRules, Files, Log, Server, Tuning};
use handler::serving::Snapshot;

/// The settings of the worker, and the rules for the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) tuning: Tuning,
    pub(crate) rules: FileRules,
}

impl Options {
    /// The configuration of one site with them.
    pub(crate) fn snapshot(self) -> Arc<Snapshot> {
        let files = Files { root: "/".into(), rules: self.rules };
        let listen = Config::default().sites.remove(0).listen;
        let server = Server { tuning: self.tuning, ..Server::default() };
        let config = Config::of_directory(files, listen, Log::default(), server);
        Arc::new(Snapshot::new(&config).expect("a valid configuration"))
    }
}

impl From<Tuning> for Options {
    fn from(tuning: Tuning) -> Self {
        Self { tuning, ..Self::default() }
    }
}

impl From<FileRules> for Options {
    fn from(rules: FileRules) -> Self {
        Self { rules, ..Self::default() }
    }
}

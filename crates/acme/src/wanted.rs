//! The certificates that are wanted, and the process that wants them.

use std::path::PathBuf;
use std::sync::Arc;

use crate::protocol::ExternalAccount;
use crate::record::{Challenge, Kind};

/// The names of a certificate that a message has.
const NAMES_SHOWN: usize = 3;

/// The certificates to keep, and the way to get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The URL of the directory of the authority.
    pub directory: String,
    /// Addresses of electronic mail, to which the authority writes.
    pub contact: Vec<String>,
    /// The directory of the storage.
    pub storage: PathBuf,
    /// The file of the authorities that may have issued the certificate of the ACME server itself, in the format PEM.
    pub roots: PathBuf,
    /// The kinds of challenges that can be answered, the best first.
    pub kinds: Vec<Kind>,
    /// A key for the account, if the authority wants one.
    pub external: Option<ExternalAccount>,
    /// The certificates.
    pub certificates: Vec<Wanted>,
}

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The names in DNS, in lower case; at least one. The first is the name of its files.
    pub names: Vec<String>,
}

/// The process in which the thread runs.
pub trait Operator: Sync {
    /// Returns the plan; `None` if there is nothing to keep any more.
    fn plan(&self) -> Option<Arc<Plan>>;

    /// Says a sentence.
    fn say(&self, text: &str);

    /// Answers these challenges from now on, and no others.
    fn set_challenges(&self, all: &[Challenge]);
}

impl Wanted {
    /// The first name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().map_or("", |name| name)
    }

    /// The name of the file with the key and the chain.
    pub(crate) fn file(&self) -> String {
        format!("{}.pem", self.name())
    }

    /// The first names, and the number of the others.
    pub(crate) fn shown(&self) -> String {
        let first =
            self.names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.names.len().saturating_sub(NAMES_SHOWN) {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_are_shown() {
        let shown = |count: usize| {
            let names = (0..count).map(|number| format!("{number}.example")).collect();
            Wanted { names }.shown()
        };
        assert_eq!(shown(1), "0.example");
        assert_eq!(shown(5), "0.example, 1.example, 2.example and 2 more");
    }
}

//! Targets with bytes outside ASCII.

use http::{Head, Target, path};

/// A target whose bytes outside ASCII are replaced by their percent-encodings.
pub(super) struct Escaped {
    path: Vec<u8>,
    query: Option<Vec<u8>>,
}

impl Escaped {
    /// Makes the escaped target of a request whose parser has found such bytes.
    #[cold]
    pub(super) fn of(head: &Head<'_>) -> Self {
        match head.target {
            Target::Origin { path, query } => {
                Self { path: path::escape(path), query: query.map(path::escape) }
            }
            _ => Self { path: Vec::new(), query: None },
        }
    }

    /// Returns the head with this target. Only a target in origin form (a path on this server) is replaced.
    #[cold]
    pub(super) fn head<'a>(&'a self, head: &Head<'a>) -> Head<'a> {
        let target = match head.target {
            Target::Origin { .. } => {
                Target::Origin { path: &self.path, query: self.query.as_deref() }
            }
            other => other,
        };
        head.with_target(head.method, target)
    }
}

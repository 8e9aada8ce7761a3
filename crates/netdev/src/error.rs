//! Errors: the failed operation, its object, and advice for the operator.

use core::fmt;
use std::io;

/// The reason why an interface cannot be used, and advice for the operator.
#[derive(Debug)]
pub struct Error {
    /// The object and the failed operation: `interface eth1: attaching the XDP program`.
    what: String,
    /// The error of the system call.
    source: Option<io::Error>,
    /// The operator's remedy.
    advice: Option<String>,
}

impl Error {
    /// A fault that the system did not report.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None, advice: None }
    }

    /// A failed system call.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: Some(source.into()), advice: None }
    }

    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

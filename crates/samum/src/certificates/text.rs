//! What the operator is told about certificates. No text has a part of a key.

use tls::Pair;

/// Errors or warnings that are said at once. The others are counted: a disk with thousands of
/// certificates may be gone.
pub(super) const LINES_MAX: usize = 50;

/// The text for those that are not said.
pub(super) fn more(count: usize) -> String {
    format!("{count} more about certificates are not shown")
}

/// A certificate that was made.
pub(super) fn self_signed(site: &str, pair: &Pair) -> String {
    let fingerprint = pair.fingerprint();
    format!("the certificate of {site} is self-signed; its SHA-256 fingerprint is {fingerprint}")
}

//! Messages to the operator about certificates. No message has a part of a key.

use core::fmt;

use http::date;
use tls::Pair;

/// The names of a certificate that are shown.
const NAMES_MAX: usize = 10;

/// Errors, warnings, or sentences about renewals, that are said in one report. The others are counted: a disk with
/// thousands of certificates may be gone.
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

/// The line of a check about a certificate that the server will make.
pub(super) fn not_made_yet(site: &str) -> String {
    format!(
        "{site} shows a self-signed certificate; the server makes it when it starts, and says its fingerprint"
    )
}

/// A self-signed certificate that takes the place of one that was not issued yet, or whose file is damaged.
pub(super) fn waiting(site: &str, why: Option<&str>) -> String {
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    format!(
        "{site} has no certificate by ACME yet{why}: a self-signed one is shown until it has come, and browsers warn of that"
    )
}

/// The line of a check about a certificate that was not issued yet.
pub(super) fn not_issued_yet(site: &str) -> String {
    format!(
        "{site} gets a certificate by ACME when the server runs; until then it shows a self-signed one"
    )
}

/// A certificate that was issued, and takes the place of a self-signed one.
pub(super) fn came(sites: &str, pair: &Pair) -> String {
    let (issuer, day) = (pair.issuer(), day(pair.not_after()));
    let line =
        format!("the certificate of {sites} has come, issued by {issuer}; it expires on {day}");
    config::text::plain(&line).into_owned()
}

/// The line of a check about a certificate: what clients see.
pub(super) fn certificate(site: &str, pair: &Pair) -> String {
    let (algorithm, issuer, fingerprint) = (pair.algorithm(), pair.issuer(), pair.fingerprint());
    let (names, day) = (Names(pair), day(pair.not_after()));
    let line = format!(
        "{site} shows a certificate for {names}: {algorithm}, issued by {issuer}, expires on {day}, SHA-256 {fingerprint}"
    );
    // A certificate may have any text as a name, and the line must stay one.
    config::text::plain(&line).into_owned()
}

/// A pair whose files have changed, and whose certificate is another one now.
pub(super) fn renewed(sites: &str, pair: &Pair) -> String {
    let day = day(pair.not_after());
    format!("the certificate of {sites} was renewed; it expires on {day}")
}

/// A pair whose files have changed, and whose certificate has not: its chain may have changed.
pub(super) fn read_again(sites: &str, pair: &Pair) -> String {
    let day = day(pair.not_after());
    format!(
        "the files of the certificate of {sites} were read again; the certificate is the same, and expires on {day}"
    )
}

/// Files that have changed, and cannot be used.
pub(super) fn not_renewed(sites: &str, why: &str) -> String {
    format!("the certificate of {sites} was not renewed, and the one before is still shown: {why}")
}

/// The files about certificates of clients that have changed.
pub(super) fn clients_renewed(sites: &str) -> String {
    format!("the authorities for clients of {sites} were read again")
}

/// The same, if it cannot be used.
pub(super) fn clients_not_renewed(sites: &str, why: &str) -> String {
    format!(
        "the authorities for clients of {sites} were not read again, and those before still count: {why}"
    )
}

/// The files of `upstream-tls` that have changed.
pub(super) fn servers_renewed(routes: &str, pair: Option<&Pair>) -> String {
    let shown = pair.map(|pair| {
        format!("; servers are shown a certificate that expires on {}", day(pair.not_after()))
    });
    format!("the files of `upstream-tls` of {routes} were read again{}", shown.unwrap_or_default())
}

/// The same, if they cannot be used.
pub(super) fn servers_not_renewed(routes: &str, why: &str) -> String {
    format!(
        "the files of `upstream-tls` of {routes} were not read again, and those before still count: {why}"
    )
}

/// Returns true if a certificate is valid now. `now` is in seconds since 1970.
pub(super) fn is_valid(pair: &Pair, now: i64) -> bool {
    (pair.not_before()..=pair.not_after()).contains(&now)
}

/// The reason against a certificate that has expired.
pub(super) fn expired(pair: &Pair) -> String {
    let day = day(pair.not_after());
    match pair.path() {
        Some(path) => format!("{}: the certificate expired on {day}: renew it", path.display()),
        None => format!("the certificate expired on {day}"),
    }
}

/// The reason against a certificate whose time comes.
pub(super) fn not_valid_yet(pair: &Pair) -> String {
    let time = date::rfc3339(pair.not_before());
    let time = String::from_utf8_lossy(&time);
    let path = pair.path().map(|path| format!("{}: ", path.display())).unwrap_or_default();
    format!("{path}the certificate is valid from {time} on, and is shown then")
}

/// The names of sites or routes: the first, and the number of the others.
pub(super) fn names_of<'a>(mut all: impl Iterator<Item = &'a str>, kind: &str) -> String {
    let first = all.next().unwrap_or_default();
    match all.count() {
        0 => first.to_owned(),
        1 => format!("{first} and another {kind}"),
        more => format!("{first} and {more} other {kind}s"),
    }
}

/// The day of a time in seconds since 1970, in UTC: `2027-03-01`.
fn day(seconds: i64) -> String {
    let time = date::rfc3339(seconds);
    String::from_utf8_lossy(&time[..10]).into_owned()
}

/// The names of a certificate.
struct Names<'a>(&'a Pair);

impl fmt::Display for Names<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.names();
        if names.is_empty() {
            return out.write_str("no name");
        }
        for (index, name) in names.iter().take(NAMES_MAX).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(out, "{comma}{name}")?;
        }
        match names.len().saturating_sub(NAMES_MAX) {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_782_907_200;

    fn made(count: usize) -> Pair {
        let names: Vec<_> = (0..count).map(|number| format!("{number}.example")).collect();
        Pair::self_signed(&names, NOW).unwrap()
    }

    #[test]
    fn a_certificate_is_one_line() {
        let pair = made(1);
        let expected = format!(
            "example.org shows a certificate for 0.example, localhost, 127.0.0.1, ::1: ECDSA P-256, issued by \
             CN=samum\\, self-signed, expires on 2027-07-01, SHA-256 {}",
            pair.fingerprint()
        );
        assert_eq!(certificate("example.org", &pair), expected);
        let shown = certificate("example.org", &made(50));
        assert!(shown.contains("9.example and 43 more: "), "{shown}");
        assert_eq!(expired(&pair), "the certificate expired on 2027-07-01");
    }

    #[test]
    fn sites_with_the_same_certificate_are_counted() {
        for (sites, expected) in [
            (&["a"][..], "a"),
            (&["a", "b"], "a and another site"),
            (&["a", "b", "c"], "a and 2 other sites"),
        ] {
            assert_eq!(names_of(sites.iter().copied(), "site"), expected);
        }
    }
}

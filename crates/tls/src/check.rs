//! Warnings for the operator about pairs, and about authorities of clients, that can be used: `samum check` and the log
//! say it.

use core::fmt;
use core::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::clients::Clients;
use crate::pair::Pair;
use crate::x509::SubjectName;

/// A certificate that is valid for fewer days is reported. Those that are renewed by a program are renewed at a third of
/// their time: 30 of 90 days.
pub const EXPIRY_DAYS: i64 = 30;

const DAY: i64 = 24 * 60 * 60;
/// Of a file's mode: others than its owner and its group may read or write it.
const OTHERS: u32 = 0o006;

/// Something that the operator should know. Its text is a sentence that says what to do, and may have hidden characters of a
/// path or a certificate: the code that prints it escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The certificate is not valid any more.
    Expired {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
        /// The full days since then.
        days: i64,
    },
    /// The certificate is valid for less than [`EXPIRY_DAYS`].
    Expires {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
        /// The full days that are left.
        days: i64,
    },
    /// The certificate is not valid yet.
    NotYetValid {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
        /// The seconds until then.
        seconds: i64,
    },
    /// A certificate of the chain after the first is valid for less than [`EXPIRY_DAYS`], or not any more.
    ChainExpires {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
        /// The position of the certificate in the file; the first has 1.
        position: usize,
        /// Its name.
        subject: String,
        /// The full days that are left; negative if it has expired.
        days: i64,
    },
    /// Clients refuse the certificate unless the server proves that it is not revoked.
    MustStaple {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
    },
    /// The certificate is for something else than servers, such as for clients.
    NotForServers {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
    },
    /// The certificate has a common name only.
    CommonNameOnly {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
    },
    /// The certificate says where that of its issuer is, but the issuer's is not in the chain.
    NoIntermediate {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
        /// The name of the issuer.
        issuer: String,
    },
    /// A certificate of the chain did not issue the one before it.
    NotItsIssuer {
        /// The file of the certificate, if it is in one.
        path: Option<PathBuf>,
        /// The position of the certificate that should be the issuer's; the first has 1.
        position: usize,
        /// The name of the issuer.
        issuer: String,
    },
    /// No certificate is valid for a host of the site.
    NotCovered {
        /// The host.
        host: String,
    },
    /// The certificate of an authority for clients is not valid any more.
    AuthorityExpired {
        /// The file of the authorities.
        path: PathBuf,
        /// The name of the authority.
        subject: String,
        /// The full days since then.
        days: i64,
    },
    /// A list of revoked certificates should have been replaced.
    OldRevocationList {
        /// The file of the lists.
        path: PathBuf,
        /// The name of the authority.
        issuer: String,
        /// The full days since then.
        days: i64,
    },
    /// Others than the owner and the group of the file of a key may read or write it.
    OpenKey {
        /// The file of the key.
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
}

/// Returns what to know of the times of a pair. `now` is in seconds since 1970.
pub fn check_times(pair: &Pair, now: i64) -> Vec<Warning> {
    let path = || pair.path().map(Path::to_owned);
    let mut warnings = Vec::new();
    let left = pair.not_after().saturating_sub(now);
    if left < 0 {
        warnings.push(Warning::Expired { path: path(), days: left.saturating_neg() / DAY });
    } else if left < EXPIRY_DAYS * DAY {
        warnings.push(Warning::Expires { path: path(), days: left / DAY });
    }
    if pair.not_before() > now {
        let seconds = pair.not_before().saturating_sub(now);
        warnings.push(Warning::NotYetValid { path: path(), seconds });
    }
    warnings
}

/// Returns what to know of a pair by itself. `now` is in seconds since 1970.
pub fn check_pair(pair: &Pair, now: i64) -> Vec<Warning> {
    let path = || pair.path().map(Path::to_owned);
    let mut warnings = check_times(pair, now);
    for (link, position) in pair.links.iter().zip(1..).skip(1) {
        let left = link.not_after.saturating_sub(now);
        // A root that has expired matters to no client, and one is never needed.
        if left < EXPIRY_DAYS * DAY && link.issuer != link.subject {
            let (subject, days) = (link.subject.clone(), left.div_euclid(DAY));
            warnings.push(Warning::ChainExpires { path: path(), position, subject, days });
        }
    }
    if pair.must_be_stapled() {
        warnings.push(Warning::MustStaple { path: path() });
    }
    if !pair.is_for_servers() {
        warnings.push(Warning::NotForServers { path: path() });
    }
    if pair.has_common_name_only() {
        warnings.push(Warning::CommonNameOnly { path: path() });
    }
    let wrong = pair.links.windows(2).position(|two| two[0].issuer != two[1].subject);
    if let Some(index) = wrong {
        let issuer = pair.links[index].issuer.clone();
        warnings.push(Warning::NotItsIssuer { path: path(), position: index + 2, issuer });
    }
    // The issuer of a certificate that stands alone may be a root that clients have. Private authorities do so, but those
    // that say where their certificate is expect that clients do not have it.
    if let [link] = &pair.links[..]
        && pair.names_issuer()
        && link.issuer != link.subject
    {
        warnings.push(Warning::NoIntermediate { path: path(), issuer: link.issuer.clone() });
    }
    warnings
}

/// Returns what to know of the authorities for clients, and of their lists of revoked certificates. `now` is in seconds since
/// 1970.
pub fn check_clients(clients: &Clients, now: i64) -> Vec<Warning> {
    let terms = &clients.terms;
    let days_since = |time: i64| (time < now).then(|| now.saturating_sub(time) / DAY);
    let expired = terms.authorities.iter().filter_map(|authority| {
        let days = days_since(authority.not_after)?;
        let (path, subject) = (terms.ca.clone(), authority.subject.clone());
        Some(Warning::AuthorityExpired { path, subject, days })
    });
    let old = terms.lists.iter().filter_map(|list| {
        let days = days_since(list.next_update?)?;
        let (path, issuer) = (terms.crl.clone(), list.issuer.clone());
        Some(Warning::OldRevocationList { path, issuer, days })
    });
    expired.chain(old).collect()
}

/// Returns the hosts of a site that none of its pairs is valid for.
pub fn check_hosts<'a>(
    hosts: &[String],
    pairs: impl IntoIterator<Item = &'a Pair> + Clone,
) -> Vec<Warning> {
    let is_covered = |host: &&String| {
        let mut names = pairs.clone().into_iter().flat_map(|pair| pair.names());
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match address.unwrap_or(host).parse::<IpAddr>() {
            Ok(address) => names.any(|name| *name == SubjectName::Ip(address)),
            Err(_) => {
                names.any(|name| matches!(name, SubjectName::Dns(pattern) if covers(pattern, host)))
            }
        }
    };
    let uncovered = hosts.iter().filter(|host| !is_covered(host));
    uncovered.map(|host| Warning::NotCovered { host: host.clone() }).collect()
}

/// Returns true if a certificate with the name `pattern`, which may be a wildcard for one label, is valid for a host. Both may
/// have capital letters, and a dot at their end. A wildcard covers the host that is the same wildcard.
fn covers(pattern: &str, host: &str) -> bool {
    let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let (pattern, host) = (plain(pattern), plain(host));
    let parent = host.split_once('.').map(|(_, parent)| parent);
    pattern == host || pattern.strip_prefix("*.").is_some_and(|of| Some(of) == parent)
}

/// Returns a warning if others may read or write the file of a key. `mode` is that of `stat(2)`.
pub fn check_key_mode(path: &Path, mode: u32) -> Option<Warning> {
    let is_open = mode & OTHERS != 0;
    is_open.then(|| Warning::OpenKey { path: path.to_owned(), mode: mode & 0o7777 })
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |path: &Option<PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => "the self-signed certificate".to_owned(),
        };
        match self {
            Self::Expired { path, days } => {
                write!(out, "{}: the certificate expired {}: renew it", file(path), Ago(*days))
            }
            Self::Expires { path, days: 0 } => {
                write!(out, "{}: the certificate expires within a day: renew it", file(path))
            }
            Self::Expires { path, days } => {
                write!(out, "{}: the certificate expires in {}: renew it", file(path), Days(*days))
            }
            Self::NotYetValid { path, seconds } => {
                write!(out, "{}: the certificate is not valid yet, but in ", file(path))?;
                match seconds {
                    ..DAY => write!(out, "{} min", seconds.div_euclid(60) + 1)?,
                    _ => Days(seconds / DAY).fmt(out)?,
                }
                out.write_str(": check the clock of this machine")
            }
            Self::ChainExpires { path, position, subject, days } => {
                let file = file(path);
                write!(out, "{file}: certificate {position} of the file ({subject}) ")?;
                match days {
                    ..0 => write!(out, "has expired")?,
                    0 => write!(out, "expires within a day")?,
                    days => write!(out, "expires in {}", Days(*days))?,
                }
                out.write_str(
                    ", and clients refuse the connection then: ask the issuer for its new certificate",
                )
            }
            Self::MustStaple { path } => write!(
                out,
                "{}: the certificate demands OCSP stapling, which this server does not do, so clients refuse the \
                 connection: ask the issuer for one without \"must staple\"",
                file(path)
            ),
            Self::NotForServers { path } => write!(
                out,
                "{}: the certificate is not for servers (extended key usage), so clients refuse the connection: \
                 ask the issuer for one for servers",
                file(path)
            ),
            Self::CommonNameOnly { path } => write!(
                out,
                "{}: the certificate has its name as the common name only, which browsers refuse: \
                 ask its issuer for one with alternative names",
                file(path)
            ),
            Self::NoIntermediate { path, issuer } => write!(
                out,
                "{}: the file has no certificate of the issuer ({issuer}), so some clients will refuse the connection: \
                 add the intermediate certificates to the file",
                file(path)
            ),
            Self::NotItsIssuer { path, position, issuer } => write!(
                out,
                "{}: certificate {position} of the file is not that of the issuer of the one before it ({issuer}): \
                 put each certificate before that of its issuer",
                file(path)
            ),
            Self::NotCovered { host } => write!(
                out,
                "no certificate of the site is valid for its host {host}: \
                 ask the issuer for one with that name, or remove the host"
            ),
            Self::AuthorityExpired { path, subject, days } => write!(
                out,
                "{}: the certificate of the authority {subject} expired {}, and clients with certificates of it are still \
                 let in: put its new certificate into the file, or remove it",
                path.display(),
                Ago(*days)
            ),
            Self::OldRevocationList { path, issuer, days } => write!(
                out,
                "{}: the list of revoked certificates of {issuer} is out of date (its next update was due {}), so clients \
                 with certificates of it are refused: fetch the current list, and have it fetched regularly",
                path.display(),
                Ago(*days)
            ),
            Self::OpenKey { path, mode } => write!(
                out,
                "{0}: others may read or write the private key (mode {mode:04o}): \
                 run `chmod o-rw {0}`",
                path.display()
            ),
        }
    }
}

/// A time some full days ago.
struct Ago(i64);

impl fmt::Display for Ago {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => out.write_str("today"),
            days => write!(out, "{} ago", Days(days)),
        }
    }
}

/// A number of days, at least one.
struct Days(i64);

impl fmt::Display for Days {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} day{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests;

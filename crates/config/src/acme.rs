//! Certificates by ACME: where they come from, and which there are. Pure.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::Site;

/// The ends of names that are in no public DNS: those of RFC 6761, RFC 6762 §3 and appendix G, and RFC 8375.
const PRIVATE_ENDS: [&str; 12] = [
    ".corp",
    ".example",
    ".home",
    ".home.arpa",
    ".internal",
    ".intranet",
    ".invalid",
    ".lan",
    ".local",
    ".localhost",
    ".private",
    ".test",
];

/// The ends of the hosts of ACME servers that issue only certificates which browsers trust by themselves.
const PUBLIC_AUTHORITIES: [&str; 6] =
    [".actalis.com", ".buypass.com", ".letsencrypt.org", ".pki.goog", ".ssl.com", ".zerossl.com"];

/// The way to certificates by ACME: `[acme]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The URL of the directory of the authority.
    pub directory: String,
    /// Addresses of electronic mail.
    pub contact: Vec<String>,
    /// The directory in which accounts and certificates are kept.
    pub storage: PathBuf,
    /// The challenges that may be answered, the best first; at least one.
    pub challenges: Vec<AcmeChallenge>,
    /// The file of the authorities that may have issued the certificate of the ACME server itself. By default those that
    /// the system trusts.
    pub ca: Option<PathBuf>,
    /// True if the operator agrees to the terms of service.
    pub agrees: bool,
    /// The key for an account that the authority has made in another way.
    pub eab: Option<AcmeEab>,
}

/// External Account Binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeEab {
    /// The name of the key.
    pub id: String,
    /// The file of the key.
    pub key_file: PathBuf,
}

/// A kind of challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcmeChallenge {
    /// A request to port 80.
    #[value(name = "http-01")]
    Http,
    /// A handshake at port 443.
    #[value(name = "tls-alpn-01")]
    TlsAlpn,
}

impl Acme {
    /// The directory of Let's Encrypt.
    pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
    /// The most names of a certificate: Let's Encrypt permits no more.
    pub const NAMES_MAX: usize = 100;
    /// The most bytes of the first name, which is the name of a file.
    pub const FIRST_NAME_BYTES_MAX: usize = 200;

    /// Returns true if the directory is that of a public authority. Others may issue for any name: their own certificate is in
    /// `ca`, or stands among those that the system trusts.
    pub(crate) fn is_public(&self) -> bool {
        let url = self.directory.to_ascii_lowercase();
        let host = url.split("//").nth(1).and_then(|rest| rest.split(['/', ':', '?']).next());
        let is_known = |host: &str| PUBLIC_AUTHORITIES.iter().any(|end| host.ends_with(end));
        self.ca.is_none() && host.is_some_and(is_known)
    }

    /// The file of the certificate of a site whose first host this is.
    #[must_use]
    pub fn file(storage: &Path, first: &str) -> PathBuf {
        storage.join(format!("{first}.pem"))
    }
}

/// Returns the names of each certificate that sites get by ACME. A certificate has the hosts of a site; sites with the same
/// first host share one. So a site that gets another host keeps its certificate until it has the next one.
pub fn acme_names(sites: &[Site]) -> Vec<Vec<String>> {
    let with_acme = sites.iter().filter(|site| site.tls.as_ref().is_some_and(|tls| tls.is_acme));
    group(with_acme.map(|site| site.hosts.iter().map(String::as_str)))
}

/// Returns the reason why no public authority issues a certificate for a name in lower case, if there is one. They issue only
/// for names of the public DNS (Baseline Requirements of the CA/Browser Forum, version 2, §4.2.2 and §7.1.2.7.12).
pub(crate) fn not_public(name: &str) -> Option<&'static str> {
    let is_label =
        |label: &str| !label.starts_with('-') && !label.ends_with('-') && !label.contains('_');
    if !name.contains('.') {
        Some("it has only one label")
    } else if PRIVATE_ENDS.iter().any(|end| name.ends_with(end)) {
        Some("names with this end are in no public DNS")
    } else if !name.split('.').all(is_label) {
        Some("a label has an underscore, or a hyphen at an end")
    } else {
        None
    }
}

/// Joins lists of names that begin with the same name.
pub(crate) fn group<'a, I: Iterator<Item = &'a str>>(
    lists: impl Iterator<Item = I>,
) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut indexes = std::collections::HashMap::new();
    for mut names in lists {
        let Some(first) = names.next() else { continue };
        let index = *indexes.entry(first).or_insert_with(|| {
            all.push(vec![first.to_owned()]);
            all.len() - 1
        });
        for name in names {
            if !all[index].iter().any(|known| known == name) {
                all[index].push(name.to_owned());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_with_the_same_first_host_share_a_certificate() {
        let lists: [&[&str]; 4] = [&["a", "b"], &["c"], &["a", "d", "b"], &[]];
        let all = group(lists.iter().map(|list| list.iter().copied()));
        assert_eq!(all, [vec!["a", "b", "d"], vec!["c"]]);
    }

    #[test]
    fn names_that_are_in_no_public_dns_have_a_reason() {
        for name in ["example.org", "a-b.xn--bcher-kva.example.org", "local.example.org", "a.thome"]
        {
            assert_eq!(not_public(name), None, "{name}");
        }
        for (name, expected) in [
            ("localhost", "one label"),
            ("nas.local", "this end"),
            ("nas.home.arpa", "this end"),
            ("a_b.example.org", "underscore"),
            ("a.-b.example.org", "hyphen"),
            ("a.b-.example.org", "hyphen"),
        ] {
            assert!(not_public(name).is_some_and(|why| why.contains(expected)), "{name}");
        }
    }
}

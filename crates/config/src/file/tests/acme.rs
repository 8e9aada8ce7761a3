//! `[acme]`, and sites with certificates by ACME.

use std::ffi::OsString;

use super::super::*;
use super::{config, errors, load_text, warnings};
use crate::print::to_toml;
use crate::{AcmeChallenge, AcmeEab, Tls, TlsFiles, TlsProfile, acme_names};

/// A site with these keys, after a section `[acme]`.
fn site(acme: &str, keys: &str) -> String {
    format!(
        "{acme}\n[[site]]\nlisten = [':80', {{ address = ':443', tls = true }}]\n{keys}\n[[site.route]]\nfiles = '/x'\n"
    )
}

const STORAGE: &str = "[acme]\nstorage = 'acme'\nagree-terms = true";

/// A service whose manager names a directory for its state.
struct Service(String);

impl Environment for Service {
    fn working_directory(&self) -> &Path {
        Path::new("/etc")
    }

    fn threads(&self) -> usize {
        1
    }

    fn canonical(&mut self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        (name == "STATE_DIRECTORY").then(|| "/var/lib/samum:/var/lib/other".into())
    }

    fn read(&mut self, _path: &Path, _bytes_max: u64) -> io::Result<Vec<u8>> {
        Ok(self.0.clone().into_bytes())
    }

    fn list(&mut self, _directory: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

#[test]
fn a_site_gets_the_file_of_its_first_host() {
    let text = site(STORAGE, "hosts = ['A.example.org', 'b.example.org']\ntls = 'acme'");
    let read = config(&text);
    let acme = read.acme.clone().unwrap();
    assert_eq!(acme.storage, Path::new("/etc/samum/acme"));
    assert_eq!(acme.challenges, [AcmeChallenge::Http, AcmeChallenge::TlsAlpn]);
    assert!(acme.agrees && acme.directory.contains("letsencrypt"));
    let pair = TlsFiles::new("/etc/samum/acme/a.example.org.pem".into(), None);
    let tls = Tls { pairs: vec![pair], is_acme: true, ..Tls::default() };
    assert_eq!(read.sites[0].tls, Some(tls));
    assert_eq!(acme_names(&read.sites), [["a.example.org", "b.example.org"]]);
    assert_eq!(warnings(&text), "");
    assert_eq!(config(&to_toml(&read)), read);
}

#[test]
fn all_keys_are_printed_as_they_were_read() {
    let acme = "[acme]\ndirectory = 'https://ca.example:14000/dir'\ncontact = ['mailto:a@b.example']\nstorage = '/s'\n\
                challenges = ['tls-alpn-01']\nca = '/ca.pem'\neab = { id = 'k', key-file = '/k' }";
    let tls = "tls = { certificate = 'acme', profile = 'modern', client = { ca = '/c' } }";
    let read = config(&site(acme, &format!("hosts = ['a.example']\n{tls}")));
    let acme = read.acme.as_ref().unwrap();
    assert_eq!(acme.contact, ["a@b.example"]);
    assert_eq!(acme.eab, Some(AcmeEab { id: "k".to_owned(), key_file: "/k".into() }));
    assert!(!acme.agrees, "the server refuses it, with the place of the terms");
    assert_eq!(read.sites[0].tls.as_ref().unwrap().profile, TlsProfile::Modern);
    assert_eq!(config(&to_toml(&read)), read);
}

#[test]
fn the_state_of_a_service_is_the_default_storage() {
    let text = site("[acme]\nagree-terms = true", "hosts = ['a.example']\ntls = 'acme'");
    let mut service = Service(text.clone());
    let loaded = load(Path::new("a.toml"), &mut service).unwrap();
    assert_eq!(loaded.config.acme.unwrap().storage, Path::new("/var/lib/samum/acme"));
    let text = errors(&text);
    assert!(
        text.contains("1:1: error: certificates by ACME need a directory: write `storage = "),
        "{text}"
    );
}

#[test]
fn what_no_authority_issues_is_refused() {
    let many = |count: usize| {
        let hosts: Vec<_> = (0..count).map(|number| format!("'{number}.example'")).collect();
        format!("hosts = [{}]\ntls = 'acme'", hosts.join(", "))
    };
    assert!(load_text(&site(STORAGE, &many(100))).is_ok(), "100 names in one site");
    let long = format!("hosts = ['{}']\ntls = 'acme'", ["abcdefghij"; 19].join("."));
    for (acme, keys, expected) in [
        (
            STORAGE,
            "hosts = ['a.example', '*.a.example']\ntls = 'acme'",
            "6:23: error: a certificate for a wildcard needs a challenge in DNS",
        ),
        (STORAGE, "tls = 'acme'", "6:7: error: `tls = \"acme\"` needs `hosts`"),
        (STORAGE, "hosts = ['[::1]']\ntls = 'acme'", "is for names, and not for addresses"),
        (STORAGE, "hosts = ['192.0.2.1']\ntls = 'acme'", "is for names, and not for addresses"),
        (
            STORAGE,
            &many(101),
            "has 100 names at most, and the sites with the first host `0.example` have 101",
        ),
        (STORAGE, &long, "has 200 characters at most"),
        (
            STORAGE,
            "hosts = ['a']\ntls = { certificate = 'acme', key = 'k' }",
            "a certificate by ACME has a key of its own",
        ),
        ("[acme]\ndirectory = 'http://a/'", "", "expected a URL with `https`"),
        ("[acme]\ncontact = ['a']", "", "expected an address such as"),
        ("[acme]\nchallenges = ['dns-01']", "", "expected `http-01` or `tls-alpn-01`"),
        ("[acme]\nchallenges = []", "", "expected at least one challenge"),
        ("[acme]\neab = { id = 'k' }", "", "`eab` needs the key `key-file`"),
        ("[acme]\nemail = 'a@b'", "", "unknown key `email`; use `contact`"),
    ] {
        let text = errors(&site(acme, keys));
        assert!(text.contains(expected), "{keys}: {text}");
    }
}

#[test]
fn a_challenge_that_no_listener_can_answer_is_a_warning() {
    let keys = "hosts = ['example.org']\ntls = 'acme'";
    let text = site(&format!("{STORAGE}\nchallenges = ['http-01']"), keys);
    assert_eq!(warnings(&text), "");
    let text = text.replace("':80', ", "");
    assert!(warnings(&text).contains("no listener can answer `http-01`"), "{}", warnings(&text));
}

#[test]
fn a_name_that_no_public_authority_knows_is_a_warning() {
    let text =
        site(STORAGE, "hosts = ['A_b.example.org', 'nas.local', 'example.org']\ntls = 'acme'");
    let warnings_of = warnings(&text);
    for expected in [
        "6:10: warning: no public authority issues a certificate for `a_b.example.org`, because a label has an underscore",
        "6:29: warning: no public authority issues a certificate for `nas.local`, because names with this end are",
        "write a name of the public DNS, or `tls = \"self-signed\"`, or name an authority of your own by `directory` of `[acme]`",
    ] {
        assert!(warnings_of.contains(expected), "{expected}: {warnings_of}");
    }
    assert_eq!(warnings_of.matches("warning: ").count(), 2, "{warnings_of}");
    // An authority of the operator's own, whose certificate is in a file or stands among those that the system trusts.
    for own in ["ca = 'ca.pem'", "directory = 'https://ca.lan:9000/acme/acme/directory'"] {
        assert_eq!(warnings(&text.replace("[acme]", &format!("[acme]\n{own}"))), "", "{own}");
    }
    let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
    for public in [staging, "https://ACME.zerossl.com/v2/DV90"] {
        let text = text.replace("[acme]", &format!("[acme]\ndirectory = '{public}'"));
        assert_eq!(warnings(&text).matches("warning: ").count(), 2, "{public}");
    }
}

#[test]
fn a_section_without_a_site_is_a_warning() {
    let text = "[acme]\nstorage = '/x'\n[[site]]\n[[site.route]]\nfiles = '/x'\n";
    assert!(warnings(text).contains("`[acme]` does nothing"), "{}", warnings(text));
    assert_eq!(config(text).acme, None);
}

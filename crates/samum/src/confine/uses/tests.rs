//! Configurations without a file system.

use super::super::links::tests::Fake;
use super::*;
use config::{
    Acme, AcmeChallenge, AcmeEab, GatewayRules, Listen, Log, Route, Tls, TlsFiles, UnixSocket,
};

/// The uses of a server with these actions, and nothing else in its configuration.
fn uses_of(actions: Vec<Action>) -> Vec<Use> {
    let mut config = Config::default();
    config.sites[0].routes =
        actions.into_iter().map(|action| Route { action, ..Route::default() }).collect();
    uses(&config, &Process { files: &[], control: None, temporary: Path::new("/tmp"), roots: None })
}

fn files(root: &str) -> Action {
    Action::Files(Files { root: root.into(), rules: config::FileRules::default() })
}

/// The rules of actions as text, without those that every server has.
#[track_caller]
fn shown(actions: Vec<Action>, names: &Fake) -> (Vec<String>, Vec<String>) {
    let (rules, fixed) = rules(&uses_of(actions), names);
    let text = |(path, access): (&Path, Access)| {
        let letters = [
            (Access::READ, 'r'),
            (Access::EXECUTE, 'x'),
            (Access::WRITE, 'w'),
            (Access::MAKE, 'm'),
            (Access::SOCKETS, 's'),
            (Access::CHANGE, 'c'),
        ];
        let letters = letters.iter().filter(|(one, _)| access.contains(*one));
        let letters: String = letters.map(|(_, letter)| *letter).collect();
        format!("{} {letters}", path.display())
    };
    let rules = rules.iter().map(text).filter(|text| text != "/proc/self r").collect();
    (rules, fixed.iter().map(|path| path.display().to_string()).collect())
}

#[test]
fn the_directory_around_a_root_and_around_the_target_of_each_link_is_allowed() {
    let names = Fake::new(
        &[
            ("/srv/current", "releases/2"),
            ("/www", "/srv/current"),
            ("/data", "/disk1"),
            ("/var/www", "/home/www"),
        ],
        &[],
    );
    for (root, rules, fixed) in [
        ("/srv/site", &["/srv r"][..], &[][..]),
        ("/srv/a/b", &["/srv/a r"], &[]),
        ("/srv/current", &["/srv r"], &[]),
        // The link is in the middle.
        ("/srv/current/public", &["/srv/releases r"], &[]),
        // The link is in the root directory, its targets are not.
        ("/www", &["/srv/releases r"], &[]),
        ("/data/site", &["/disk1 r"], &["/disk1"]),
        ("/var/www", &["/home r", "/var r"], &[]),
        ("/site", &["/site r"], &["/site"]),
        ("/", &["/ r"], &["/"]),
        // What does not exist yet may come.
        ("/srv/none/site", &["/srv/none r"], &[]),
    ] {
        let found = shown(vec![files(root)], &names);
        assert_eq!(
            (&found.0[..], &found.1[..]),
            (&strings(rules)[..], &strings(fixed)[..]),
            "{root}"
        );
    }
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn each_part_of_a_configuration_has_its_access() {
    let names = Fake::new(
        &[
            ("/etc/letsencrypt/live/a/key.pem", "../../archive/a/key1.pem"),
            ("/etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"),
            ("/lib", "/usr/lib"),
            ("/bin", "/usr/bin"),
        ],
        &["/run/log.pipe", "/dev/null"],
    );
    let server = |url: &str| config::upstream::server(url).unwrap();
    let proxy = |url: &str, dir: Option<&str>| {
        let rules = GatewayRules { buffer_dir: dir.map(PathBuf::from), ..GatewayRules::default() };
        Action::Proxy(config::Upstream { servers: vec![server(url)], rules })
    };
    let cgi = || {
        let mut cgi = Cgi::new("/srv/cgi".into());
        (cgi.read, cgi.write) = (vec!["/srv/git".into()], vec!["/var/book".into()]);
        cgi.buffer_dir = Some("/var/buffers".into());
        Action::Cgi(cgi)
    };
    let mut into = Files { root: "/srv/www".into(), rules: config::FileRules::default() };
    into.rules.symlinks = Symlinks::Into(["/mnt/disk2".into()].into());
    let mut anywhere = into.clone();
    anywhere.rules.symlinks = Symlinks::Follow;
    for (action, expected) in [
        (Action::Metrics, &[][..]),
        (Action::Files(into), &["/mnt/disk2 r", "/srv r"]),
        (Action::Files(anywhere), &["/srv r"]),
        (Action::Redirects("/etc/site/redirects".into()), &["/etc/site r"]),
        (proxy("http://127.0.0.1:80", None), &[]),
        (proxy("http://127.0.0.1:80", Some("/var/buffers")), &["/var/buffers rwm"]),
        (
            proxy("http://app.example:80", None),
            &[
                "/etc/gai.conf r",
                "/etc/host.conf r",
                "/etc/hosts r",
                "/etc/ld.so.cache r",
                "/etc/nsswitch.conf r",
                "/etc/services r",
                "/lib64 r",
                "/run/systemd/resolve r",
                "/usr/lib r",
                "/usr/lib64 r",
            ],
        ),
        (
            cgi(),
            &[
                "/dev/null rw",
                "/etc/ld.so.cache r",
                "/etc/ld.so.conf r",
                "/etc/ld.so.conf.d r",
                "/etc/ld.so.preload r",
                "/lib32 rx",
                "/lib64 rx",
                "/libx32 rx",
                "/proc r",
                "/srv rx",
                "/usr rx",
                "/var/book rwmc",
                "/var/buffers rwm",
            ],
        ),
    ] {
        let found = shown(vec![action.clone()], &names).0;
        assert_eq!(found, strings(expected), "{action:?}");
    }

    let mut config = Config::default();
    let site = &mut config.sites[0];
    site.routes = vec![Route { action: Action::Metrics, ..Route::default() }];
    let certificate =
        TlsFiles::new("/etc/tls/a.pem".into(), Some("/etc/letsencrypt/live/a/key.pem".into()));
    site.tls = Some(Tls { pairs: vec![certificate], ..Tls::default() });
    site.log = Log { target: LogTarget::File("/var/log/samum/a".into()), ..Log::default() };
    let owned = UnixSocket {
        path: "/run/web/s".into(),
        group: Some("adm".to_owned()),
        ..UnixSocket::default()
    };
    site.listen = vec![Listen::from(Address::Unix(owned))];
    config.sites.push(config.sites[0].clone());
    config.sites[1].log.target = LogTarget::File("/run/log.pipe".into());
    let process = Process {
        files: &["/etc/samum/samum.toml".into()],
        control: Some(Path::new("/run/samum/control.sock")),
        temporary: Path::new("/tmp"),
        roots: Some(Path::new("/etc/ssl/certs/ca-certificates.crt")),
    };
    let (found, fixed) = rules(&uses(&config, &process), &names);
    for (path, access) in [
        ("/etc/samum/conf.d/a.toml", Access::READ),
        ("/run/samum", Access::SOCKETS),
        ("/run/web", Access::SOCKETS),
        ("/etc/group", Access::READ),
        ("/var/log/samum/a.1", Access::WRITE | Access::MAKE),
        ("/run/log.pipe", Access::READ | Access::WRITE),
        ("/etc/tls/b.pem", Access::READ),
        ("/etc/ssl/certs/ca-certificates.crt.new", Access::READ),
        ("/etc/letsencrypt/live/a/key.pem", Access::READ),
        ("/etc/letsencrypt/archive/a/key2.pem", Access::READ),
    ] {
        assert!(found.allows(Path::new(path), access), "{path}: {found:?}");
    }
    for (path, access) in [
        ("/var/log/samum/a", Access::READ),
        ("/run/other", Access::READ),
        ("/run/log.pipe2", Access::WRITE),
        ("/etc/letsencrypt/live/b/key.pem", Access::READ),
        ("/etc/shadow", Access::READ),
        ("/proc/1/environ", Access::READ),
    ] {
        assert!(!found.allows(Path::new(path), access), "{path}: {found:?}");
    }
    assert!(fixed.is_empty(), "{fixed:?}");
}

#[test]
fn certificates_by_acme_need_their_storage_and_the_way_to_the_authority() {
    let names = Fake::new(&[], &[]);
    let mut config = Config {
        acme: Some(Acme {
            directory: Acme::LETS_ENCRYPT.to_owned(),
            contact: Vec::new(),
            storage: "/var/lib/samum/acme".into(),
            challenges: vec![AcmeChallenge::Http],
            ca: Some("/etc/ssl/ca/ca.pem".into()),
            agrees: true,
            eab: Some(AcmeEab { id: "k".to_owned(), key_file: "/etc/samum/eab/key".into() }),
        }),
        ..Config::default()
    };
    config.sites[0].routes = vec![Route { action: Action::Metrics, ..Route::default() }];
    let temporary = Path::new("/tmp");
    let process = Process { files: &[], control: None, temporary, roots: None };
    let (found, _) = rules(&uses(&config, &process), &names);
    let all = Access::READ | Access::WRITE | Access::MAKE;
    for (path, access) in [
        ("/var/lib/samum/acme/a.example.pem", all),
        ("/etc/ssl/ca/ca.pem", Access::READ),
        ("/etc/resolv.conf", Access::READ),
        ("/etc/samum/eab/key", Access::READ),
    ] {
        assert!(found.allows(Path::new(path), access), "{path}: {found:?}");
    }
    for (path, access) in [("/var/lib/samum/other", Access::READ), ("/etc/ssl/ca", Access::WRITE)] {
        assert!(!found.allows(Path::new(path), access), "{path}: {found:?}");
    }
}

#[test]
fn a_reload_may_use_what_was_allowed_at_the_start() {
    let names = Fake::new(&[("/srv/out", "/opt/out")], &[]);
    let (allowed, _) = rules(&uses_of(vec![files("/srv/www"), files("/site")]), &names);
    for (root, is_allowed) in [
        ("/srv/www", true),
        ("/srv/other", true),
        ("/srv/www/deeper/still", true),
        ("/site", true),
        ("/site2", false),
        ("/srv", true),
        ("/opt/www", false),
        ("/srv/out", false),
        ("/", false),
    ] {
        let next = uses_of(vec![files("/srv/www"), files(root)]);
        let found = outside(&next, &names, &allowed).map(|it| it.path.as_path());
        assert_eq!(found, (!is_allowed).then_some(Path::new(root)), "{root}");
    }
}

#[test]
fn a_kernel_without_landlock_is_said_or_refused() {
    let [none, old, new] = [0, 2, 7].map(Support::of);
    assert_eq!(decide(Confine::Auto, new), Ok(None));
    assert_eq!(decide(Confine::Required, new), Ok(None));
    for (support, lacks) in [(none, "has no Landlock"), (old, "cannot keep it from cutting files")]
    {
        let said = decide(Confine::Auto, support).unwrap().unwrap();
        assert!(said.contains("not wholly confined") && said.contains(lacks), "{said}");
        let why = decide(Confine::Required, support).unwrap_err();
        assert!(why.contains(lacks) && why.contains("`confine = \"auto\"`"), "{why}");
        assert_eq!(decide(Confine::Off, support), Ok(None));
    }
}

#[test]
fn the_operator_is_told_what_is_allowed() {
    let names = Fake::new(&[], &[]);
    let texts = |roots: &[String]| {
        let (rules, fixed) =
            rules(&uses_of(roots.iter().map(|root| files(root)).collect()), &names);
        describe(&rules, &fixed, Support::of(7))
    };
    let one = texts(&["/site".to_owned(), "/srv/www".to_owned()]);
    assert_eq!(one[0], "confined by Landlock 7 to /proc/self, /site, /srv");
    assert!(one[1].starts_with("/site cannot be replaced without a restart"), "{one:?}");
    assert_eq!(one.len(), 2);
    let whole = texts(&["/".to_owned()]);
    assert!(whole[1].contains("the root directory is served") && whole.len() == 2, "{whole:?}");
    let many: Vec<_> = (0..40).map(|number| format!("/srv/{number}/www")).collect();
    assert!(texts(&many)[0].ends_with(" and 25 more"), "{:?}", texts(&many));
}

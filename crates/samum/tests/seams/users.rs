//! The user whom an authorizer names: in the lines of logs, and in the environment of programs.

use core::time::Duration;
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Arc;

use config::{
    Action, Config, Fastcgi, FileRules, Files, GatewayRules, Log, LogFormat, LogTarget, Route,
    Sample, upstream,
};
use handler::attach::{Admission, Authorizer, Denial, Grant, User};
use handler::serving::Snapshot;
use handler::{Request, Ticket};
use http::Target;
use ring::sim::World;
use ring::{Event, Fd, Op, OpenHow, Ring};
use rustix::fs::OFlags;
use samum::network::Listeners;
use samum::worker::Worker;
use session::Http1;
use session::shell::Shell;

use crate::seams::stage::parse_whole;
use crate::seams::world::{config, parts, pass, run_until};

/// The application to which requests are passed on.
const SERVER: &str = "127.0.0.1:9000";
/// The answer of the application: a head and an empty body, and the end of the request.
const ANSWER: &[u8] = b"\x01\x06\0\x01\0\x04\0\0\r\n\r\n\x01\x06\0\x01\0\0\0\0\
                        \x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

/// Lets all requests pass, and takes the name of the user from the query. Requests of `later` wait for a turn.
#[derive(Debug, Default)]
struct ByQuery(VecDeque<(Ticket, Result<Grant, Denial>)>);

impl Authorizer for ByQuery {
    fn has_say(&self, _route: &Route) -> bool {
        true
    }

    fn admit(&mut self, _shell: &mut Shell, request: &Request<'_>, _route: &Route) -> Admission {
        let Target::Origin { query, .. } = request.head.target else { unreachable!() };
        let name = core::str::from_utf8(query.unwrap_or_default()).expect("a name");
        let grant = Grant { user: User::new(name) };
        if name != "later" {
            return Admission::Now(Ok(grant));
        }
        self.0.push_back((request.ticket, Ok(grant)));
        Admission::Waiting(None)
    }

    fn may_have_news(&self) -> bool {
        !self.0.is_empty()
    }

    fn next_admitted(&mut self) -> Option<(Ticket, Result<Grant, Denial>)> {
        self.0.pop_front()
    }
}

/// Opens an empty file for a log.
fn open(world: &World, ring: &mut Ring, name: &str) -> Fd {
    world.write_file(name, b"");
    let path = CString::new(name).expect("a name");
    let how = OpenHow { flags: OFlags::WRONLY.bits().cast_signed(), mode: 0, resolve: 0 };
    ring.submit(Op::Open { dir: Some(ring.sim_root(world)), path, how }, 0);
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).expect("a completion");
    }
    let Ok(Event::Opened(file)) = completions.remove(0).result else { panic!("it exists") };
    file
}

#[test]
fn the_user_of_an_authorizer_is_in_the_log_and_in_the_environment_of_a_script() {
    let world = World::new(config(1));
    world.write_file("a", b"a file");
    let application = world.listen(SERVER.parse::<core::net::SocketAddr>().expect("an address"));
    let mut config = Config::default();
    let site = &mut config.sites[0];
    let files = Files { root: "/".into(), rules: FileRules::default() };
    site.routes[0].action = Action::Files(files);
    let servers = vec![upstream::server(&format!("http://{SERVER}")).expect("a server")];
    let mut scripts = Fastcgi::new(servers, GatewayRules::default());
    scripts.root = Some("/scripts".into());
    let action = Action::Fastcgi(scripts);
    site.routes.push(Route { path: "/app/".to_owned(), action, ..Route::default() });
    let log = Log {
        target: LogTarget::File("log".into()),
        format: LogFormat::Combined,
        statuses: Vec::new(),
        sample: Sample::default(),
    };
    site.log = log.clone();
    let mut parts = parts(&world, FileRules::default());
    parts.snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
    parts.logs = vec![(log, open(&world, &mut parts.ring, "log"))];
    parts.attachments.authorizer = Some(Box::<ByQuery>::default());
    let network = Listeners::new(parts.listeners.clone());
    let mut worker = Worker::<Http1, _>::over(parts, network).expect("memory");
    // A file that is not in memory, and one that is.
    for (path, user) in [
        ("/a?alice", "alice"),
        ("/a?alice", "alice"),
        ("/a?later", "later"),
        ("/a?", "-"),
        ("/b?bob", "bob"),
        ("/app/x.php?carol", "carol"),
        ("/app/x.php?later", "later"),
        ("/app/x.php?", "-"),
    ] {
        let client = world.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let (mut link, mut answered) = (None, false);
        run_until(&mut worker, || {
            link = link.take().or_else(|| application.accept());
            if let Some(link) = link.as_ref().filter(|_| !answered) {
                let received = link.received();
                // The last record is the end of the body.
                if received.ends_with(b"\x01\x05\0\x01\0\0\0\0") {
                    let name = [
                        &b"\x0b"[..],
                        &[u8::try_from(user.len()).expect("a short name")],
                        b"REMOTE_USER",
                    ]
                    .concat();
                    let value = [&name, user.as_bytes()].concat();
                    let has = |part: &[u8]| received.windows(part.len()).any(|it| it == part);
                    assert_eq!(has(&value), user != "-", "{path}");
                    assert_eq!(has(b"REMOTE_USER"), user != "-", "{path}");
                    link.send(ANSWER);
                    answered = true;
                }
            }
            parse_whole(&client.received()).is_some()
        });
        assert_eq!(answered, path.starts_with("/app/"), "{path}");
        pass(&mut worker, Duration::from_secs(2));
        let lines = String::from_utf8(world.read_file("log")).expect("a text");
        let line = lines.lines().last().expect("a line");
        assert!(line.contains(&format!(" - {user} [")), "{path}: {line}");
        assert!(line.contains(&format!("\"GET {path} HTTP/1.1\"")), "{path}: {line}");
    }
}

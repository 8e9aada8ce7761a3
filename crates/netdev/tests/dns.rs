//! The DNS server of the examples: `dig` and NSD at a virtual cable.

use core::time::Duration;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use crate::net::{Net, SEVERAL, skip};
use crate::running::{Running, example, start};

/// The address of the example, which the kernel does not own, and the address of NSD.
const OWN: &str = "10.9.0.53";
const NSD: &str = "10.9.0.1";

const ZONE: &str = r#"
$TTL 1h
@ IN SOA ns1 hostmaster ( 2026 2h 15m 2w 5m ) ; five numbers
  IN NS ns1
     NS ns2.example.com.
     MX 10 mail
     MX 20 mail.example.com.
     TXT "v=spf1 -all" "second; string"
ns1 A 192.0.2.1
    AAAA 2001:db8::1
www 60 A 192.0.2.2
www 60 A 192.0.2.3
mail AAAA 2001:db8::2
alias CNAME www
chain CNAME alias
away CNAME www.example.com.
gone CNAME nothing
deep.er.name A 192.0.2.4
*.wild A 192.0.2.5
*.wild TXT wild
known.wild MX 5 mail
*.cname CNAME www
sub NS ns.sub
    NS ns1
ns.sub A 192.0.2.6
to-sub CNAME host.sub
to-wild CNAME any.wild
odd TYPE300 \# 3 010203
"#;

/// Questions with each kind of answer. The origin's NS is left out, because NSD adds the servers' addresses to it
/// even in minimal responses.
const QUESTIONS: [&str; 33] = [
    "example.org SOA",
    "example.org MX",
    "example.org TXT",
    "example.org A",
    "ns1.example.org A",
    "ns1.example.org AAAA",
    "www.example.org A",
    "WwW.eXaMpLe.OrG A",
    "www.example.org AAAA",
    "mail.example.org AAAA",
    "alias.example.org A",
    "alias.example.org CNAME",
    "alias.example.org MX",
    "chain.example.org A",
    "away.example.org A",
    "gone.example.org A",
    "nothing.example.org A",
    "a.b.c.nothing.example.org A",
    "er.name.example.org A",
    "name.example.org A",
    "x.name.example.org A",
    "wild.example.org A",
    "a.wild.example.org A",
    "a.b.wild.example.org TXT",
    "a.wild.example.org MX",
    "known.wild.example.org A",
    "x.known.wild.example.org A",
    "x.cname.example.org A",
    "sub.example.org NS",
    "host.sub.example.org A",
    "sub.example.org DS",
    "to-wild.example.org A",
    "odd.example.org TYPE300",
];

/// A directory of this test's own, which is removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("netdev-dns-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a zone with more addresses of one name than fit into a datagram.
    fn write_zone(&self) -> PathBuf {
        let large: String = (0..200).map(|n| format!("large A 192.0.2.{n}\n")).collect();
        let path = self.0.join("zone");
        fs::write(&path, format!("{ZONE}{large}")).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// True if a program is installed. If not, prints that the test cannot run here.
fn has(program: &str) -> bool {
    let started =
        Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if started.is_err() {
        skip(&format!("no {program}"));
    }
    started.is_ok()
}

/// The namespaces with the example running in them; `None`, with the reason printed, if they cannot be made.
fn serve(directory: &Directory, queues: u32) -> Option<(Net, Running)> {
    if !has("dig") {
        return None;
    }
    let net = Net::with_queues(queues)?;
    let zone = directory.write_zone();
    let local = format!("{OWN}:53");
    let arguments = ["srv", &local, zone.to_str().unwrap(), "example.org"];
    let server = start(&net.server, example("dns").to_str().unwrap(), &arguments);
    wait(&net, OWN);
    Some((net, server))
}

/// Waits until a server answers.
fn wait(net: &Net, server: &str) {
    for _ in 0..100 {
        let answer = net.client.enter(|| {
            let arguments = ["+tries=1", "+time=1", "example.org", "SOA"];
            Command::new("dig").arg(format!("@{server}")).args(arguments).output().unwrap()
        });
        if answer.status.success() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{server} does not answer");
}

/// The output of `dig`, without the parts that differ between two servers: the message's number, the sizes of
/// datagrams, the order of records.
fn dig(net: &Net, server: &str, question: &str) -> String {
    let shown = "+norecurse +noall +comments +question +answer +authority +additional";
    let output = net.client.run(&format!("dig @{server} {shown} {question}")).unwrap();
    let mut lines: Vec<_> = output
        .lines()
        .filter(|line| {
            !line.starts_with("; EDNS") && !line.starts_with("; EDE") && !line.is_empty()
        })
        .map(|line| line.split(", id: ").next().unwrap())
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn dig_gets_answers() {
    let directory = Directory::new("dig");
    let Some((net, _server)) = serve(&directory, 1) else { return };
    for (question, expected) in [
        ("example.org NS", &["ANSWER: 2,", "IN\tNS\tns1.example.org."][..]),
        ("www.example.org", &["status: NOERROR", "192.0.2.2", "192.0.2.3", "flags: qr aa;"]),
        ("www.example.org +tcp", &["192.0.2.2", "192.0.2.3", "ANSWER: 2,"]),
        ("www.example.org +noedns", &["ANSWER: 2, AUTHORITY: 0, ADDITIONAL: 0"]),
        ("none.example.org", &["status: NXDOMAIN", "300\tIN\tSOA", "flags: qr aa;"]),
        ("www.example.org MX", &["status: NOERROR", "ANSWER: 0", "300\tIN\tSOA"]),
        ("any.wild.example.org", &["any.wild.example.org.\t3600\tIN\tA\t192.0.2.5"]),
        ("www.example.org ANY", &["ANSWER: 2,"]),
        ("www.example.org +edns=1 +noednsneg", &["status: BADVERS"]),
        ("www.example.com", &["status: REFUSED", "ANSWER: 0"]),
        ("www.example.org +opcode=UPDATE", &["status: NOTIMP"]),
        ("host.sub.example.org", &["ns.sub.example.org.\t3600\tIN\tA\t192.0.2.6", "flags: qr;"]),
        ("large.example.org +ignore", &["flags: qr aa tc;", "ANSWER: 0"]),
        ("large.example.org +ignore +noedns", &["flags: qr aa tc;", "ANSWER: 0"]),
        ("large.example.org", &["flags: qr aa;", "ANSWER: 200", "192.0.2.199"]),
        ("www.example.org A +tcp +keepopen mail.example.org AAAA", &["192.0.2.2", "2001:db8::2"]),
    ] {
        let shown = dig(&net, OWN, question);
        for expected in expected {
            assert!(shown.contains(expected), "{question}: {expected} is not in\n{shown}");
        }
    }
}

/// Each question comes from another port, and the interface chooses the queue by the port.
#[test]
fn all_receive_queues_are_answered() {
    let directory = Directory::new("queues");
    let Some((net, _server)) = serve(&directory, SEVERAL) else { return };
    for how in ["+notcp", "+tcp"] {
        for _ in 0..10 {
            let shown = dig(&net, OWN, &format!("www.example.org {how}"));
            assert!(shown.contains("192.0.2.2"), "{how}: {shown}");
        }
    }
}

#[test]
fn answers_are_those_of_nsd() {
    let directory = Directory::new("nsd");
    if !has("nsd") {
        return;
    }
    let Some((net, _server)) = serve(&directory, 1) else { return };
    let path = directory.0.to_str().unwrap();
    let config = directory.0.join("nsd.conf");
    let text = format!(
        "server:\n ip-address: {NSD}\n username: \"\"\n zonesdir: {path}\n pidfile: \"\"\n \
         xfrdfile: {path}/xfrd\n zonelistfile: {path}/zones\n xfrdir: {path}\n logfile: {path}/log\n \
         server-count: 1\n minimal-responses: yes\n\
         remote-control:\n control-enable: no\n\
         zone:\n name: example.org\n zonefile: zone\n"
    );
    fs::write(&config, text).unwrap();
    let _nsd = start(&net.server, "nsd", &["-d", "-c", config.to_str().unwrap()]);
    wait(&net, NSD);
    for question in QUESTIONS {
        for how in ["+notcp", "+tcp", "+noedns"] {
            let question = format!("{question} {how}");
            assert_eq!(dig(&net, OWN, &question), dig(&net, NSD, &question), "{question}");
        }
    }
}

#[test]
fn an_error_in_the_zone_names_file_and_line() {
    let directory = Directory::new("error");
    let zone = directory.0.join("zone");
    fs::write(&zone, "$TTL 5\n@ SOA a b 1 2 3 4 5\na A 192.0.2\n").unwrap();
    let zone = zone.to_str().unwrap();
    let arguments = ["srv", "10.9.0.53:53", zone, "example.org"];
    let output = Command::new(example("dns")).args(arguments).output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(shown.contains(&format!("{zone}:3: an A without")), "{shown}");
}

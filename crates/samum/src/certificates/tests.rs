use core::slice::from_ref;

use tls::WorkerAcceptors;

use super::*;
use config::{Address, Config, Site, Tls};

/// A configuration whose sites have self-signed certificates for these hosts, at a listener each: the first at port 1.
fn loaded(hosts: &[&str]) -> Loaded {
    let site = |(host, port): (&&str, u16)| Site {
        name: (*host).to_owned(),
        hosts: vec![(*host).to_owned()],
        listen: vec![listen(port, true)],
        tls: Some(Tls::default()),
        ..Config::default().sites.remove(0)
    };
    Loaded::of(Config { sites: hosts.iter().zip(1..).map(site).collect(), ..Config::default() })
}

fn listen(port: u16, tls: bool) -> Listen {
    Listen { tls, ..Listen::from(Address::Ip(([127, 0, 0, 1], port).into())) }
}

/// Some certificates, and the view of a worker.
struct Stage {
    certificates: Arc<Certificates>,
    worker: WorkerAcceptors,
}

impl Stage {
    fn new() -> Self {
        let acceptors = Acceptors::new();
        let worker = WorkerAcceptors::new(Arc::clone(&acceptors));
        Self {
            certificates: Certificates::new(acceptors, TicketKeys::new(), Metrics::new(1)),
            worker,
        }
    }

    /// The listeners, of the first five, at which a new connection has to begin with TLS.
    fn with_tls(&mut self) -> Vec<u32> {
        (0..5).filter(|number| self.worker.of(*number).is_some()).collect()
    }

    fn load(&self, loaded: &Loaded, listeners: &[(u32, Listen)]) {
        let reading = self.certificates.read(loaded).unwrap();
        let replacement = self.certificates.replace(reading, listeners, &HashMap::new());
        replacement.unwrap().complete();
    }
}

#[test]
fn a_replacement_is_seen_beside_the_one_before_until_it_is_complete() {
    let mut stage = Stage::new();
    let (first, second) = ((0, listen(1, true)), (1, listen(2, true)));
    stage.load(&loaded(&["a", "b"]), &[first.clone(), second.clone()]);
    assert_eq!(stage.with_tls(), [0, 1]);

    let certificates = Arc::clone(&stage.certificates);
    let next = loaded(&["a"]);
    let third = (2, listen(1, true));
    let begin = || {
        let reading = certificates.read(&next).unwrap();
        certificates.replace(reading, from_ref(&third), &HashMap::new()).unwrap()
    };
    let replacement = begin();
    assert_eq!(stage.with_tls(), [0, 1, 2]);
    drop(replacement);
    assert_eq!(stage.with_tls(), [0, 1], "it was given up");
    begin().complete();
    // Connections may wait at the listeners that were removed.
    assert_eq!(stage.with_tls(), [0, 1, 2]);
    certificates.forget_removed();
    assert_eq!(stage.with_tls(), [2]);
}

#[test]
fn a_listener_that_stays_without_tls_has_none_when_the_replacement_is_complete() {
    let mut stage = Stage::new();
    stage.load(&loaded(&["a"]), &[(0, listen(1, true))]);
    let mut next = loaded(&["a"]);
    next.config.sites[0].listen = vec![listen(1, false)];
    let certificates = Arc::clone(&stage.certificates);
    let reading = certificates.read(&next).unwrap();
    let replacement = certificates.replace(reading, &[(0, listen(1, false))], &HashMap::new());
    assert_eq!(stage.with_tls(), [0]);
    replacement.unwrap().complete();
    assert!(stage.with_tls().is_empty());
}

#[test]
fn a_self_signed_certificate_is_made_once_for_its_hosts() {
    let now = now();
    let said = |reading: &Reading| reading.said.len();
    let digest = |reading: &Reading, site: usize| reading.pairs(&reading.sites[site])[0].digest();
    let first = Reading::first(&loaded(&["a", "b"]), now).unwrap();
    assert_eq!(said(&first), 2);
    assert_ne!(digest(&first, 0), digest(&first, 1));
    let again = Reading::new(&loaded(&["b", "a", "a"]), &first.before(), now).unwrap();
    assert_eq!(said(&again), 0);
    assert_eq!(
        [0, 1, 2].map(|site| digest(&again, site)),
        [1, 0, 0].map(|site| digest(&first, site))
    );
    // One that expires soon is not kept.
    let later = now + 340 * 24 * 60 * 60;
    let later = Reading::new(&loaded(&["a"]), &again.before(), later).unwrap();
    assert_eq!(said(&later), 1);
    assert_ne!(digest(&later, 0), digest(&first, 0));
}

#[test]
fn the_metrics_have_the_certificates_that_are_shown() {
    let stage = Stage::new();
    stage.load(&loaded(&["a", "b"]), &[(0, listen(1, true)), (1, listen(2, true))]);
    let shown = stage.certificates.metrics.certificates();
    let sites: Vec<_> = shown.iter().map(|one| (&*one.site, &*one.file)).collect();
    assert_eq!(sites, [("a", ""), ("b", "")]);
    assert!(shown[0].expires_at > now());
}

#[test]
fn of_many_errors_the_first_are_shown() {
    let mut loaded = loaded(&["a"; 60]);
    for (number, site) in loaded.config.sites.iter_mut().enumerate() {
        let files = config::TlsFiles::new(format!("/nonexistent/{number}.pem").into(), None);
        site.tls = Some(Tls { pairs: vec![files], ..Tls::default() });
    }
    let Errors(errors) = Reading::first(&loaded, now()).err().unwrap();
    let lines: Vec<_> = errors.iter().map(|error| &*error.line).collect();
    assert_eq!(lines.len(), 51);
    assert_eq!(lines[49], "error: cannot read /nonexistent/49.pem: there is no such file");
    assert_eq!(lines[50], "error: 10 more about certificates are not shown");
}

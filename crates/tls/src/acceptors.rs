//! The settings of all listeners with TLS, which a reload or a renewed certificate replaces while workers use them.

use core::cell::{Cell, Ref, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::server::ClientHello;

use crate::acceptor::Acceptor;
use crate::buffers::Buffers;
use crate::challenges::Challenges;
use crate::contexts::Kept;
use crate::counters::Counters;
use crate::fault::Fault;

/// The acceptors of listeners, by the number of the listener.
type All = HashMap<u32, ListenerTls>;

/// The TLS of a listener.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Its settings for handshakes.
    pub acceptor: Acceptor,
    /// The URLs that clients are told which speak HTTP without TLS.
    pub urls: Arc<Urls>,
}

/// The URLs of a listener, for clients that speak HTTP to it without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls {
    /// The URL of the default site, such as `https://example.org/`; empty if the server does not know it.
    pub default: String,
    /// The hosts of all sites that are no wildcards, in small letters and in order.
    hosts: Vec<String>,
    /// The end of their URLs: `/`, or the port and `/`.
    end: String,
}

impl Urls {
    /// Sets the hosts of the sites, and the port of the listener if URLs name it.
    #[must_use]
    pub fn new(default: String, mut hosts: Vec<String>, port: Option<u16>) -> Self {
        hosts.retain(|host| !host.starts_with('*'));
        hosts.iter_mut().for_each(|host| host.make_ascii_lowercase());
        hosts.sort_unstable();
        let end = port.map_or_else(|| "/".to_owned(), |port| format!(":{port}/"));
        Self { default, hosts, end }
    }

    /// The URL for a request. It is that of the host which the request names only if a site has this host, so no client
    /// chooses what others are told.
    fn of(&self, request: &[u8]) -> String {
        let host = host_of(request).map(str::to_ascii_lowercase);
        let own = host.and_then(|host| self.hosts.binary_search(&host).ok());
        match own {
            Some(index) => format!("https://{}{}", self.hosts[index], self.end),
            None => self.default.clone(),
        }
    }
}

/// The host that the head of a request names, without a port, if the head names one.
fn host_of(request: &[u8]) -> Option<&str> {
    let lines = request.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii);
    let mut hosts = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_at_checked(5)?;
        name.eq_ignore_ascii_case(b"host:").then_some(value)
    });
    let host = hosts.next().filter(|_| hosts.next().is_none())?;
    let host = str::from_utf8(host).ok()?.trim();
    let port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, end)) if port(end) && (name.ends_with(']') || !name.contains(':')) => {
            Some(name)
        }
        _ => Some(host),
    }
}

/// The acceptors as the process has them: one value for all threads.
#[derive(Debug, Default)]
pub struct Acceptors {
    /// Counts replacements. Each is a release, so a thread that sees it sees the acceptors, too.
    generation: AtomicU64,
    all: Mutex<Arc<All>>,
    challenges: Challenges,
}

/// The acceptors as one worker has them, with its counters. No lock is taken for a connection, but after a replacement.
#[derive(Debug)]
pub struct WorkerAcceptors {
    shared: Arc<Acceptors>,
    generation: u64,
    listening: HashMap<u32, Rc<Listening>>,
    counters: Rc<Counters>,
    buffers: Rc<Buffers>,
    kept: Rc<Kept>,
}

/// A listener, as the handshakes of one worker use it.
#[derive(Debug)]
pub struct Listening {
    number: u32,
    /// The settings of the handshakes.
    pub(crate) acceptor: Acceptor,
    shared: Arc<Acceptors>,
    /// The generation that `latest` is of.
    generation: Cell<u64>,
    /// The settings of the latest handshakes of the listener.
    latest: RefCell<Acceptor>,
    pub(crate) counters: Rc<Counters>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) kept: Rc<Kept>,
    urls: Arc<Urls>,
}

impl Acceptors {
    /// No listener speaks TLS.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Replaces all acceptors. Connections that have been accepted go on with theirs.
    pub fn replace(&self, all: HashMap<u32, ListenerTls>) {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Answers these challenges of authorities from now on, and no others: names in lower case, and the SHA-256 of the
    /// answer (RFC 8737 §3).
    ///
    /// # Errors
    ///
    /// [`Cause::SelfSigned`](crate::Cause::SelfSigned) if a name is not ASCII, or the system has no random numbers. Then
    /// nothing has changed.
    pub fn set_challenges(&self, all: &[(String, [u8; 32])]) -> Result<(), Fault> {
        self.challenges.replace(all)
    }

    fn all(&self) -> Arc<All> {
        Arc::clone(&self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WorkerAcceptors {
    /// The acceptors for one worker.
    #[must_use]
    pub fn new(shared: Arc<Acceptors>) -> Self {
        // No generation has this number.
        let generation = u64::MAX;
        let (counters, buffers, kept) = (Rc::default(), Rc::default(), Rc::default());
        Self { shared, generation, listening: HashMap::new(), counters, buffers, kept }
    }

    /// Returns the settings for a connection of a listener; `None` if it begins without TLS.
    pub fn of(&mut self, listener: u32) -> Option<Rc<Listening>> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.renew();
        }
        self.listening.get(&listener).cloned()
    }

    #[cold]
    fn renew(&mut self) {
        let listening = |(number, tls): (&u32, &ListenerTls)| {
            let ListenerTls { acceptor, urls } = tls.clone();
            let (counters, buffers) = (Rc::clone(&self.counters), Rc::clone(&self.buffers));
            let listening = Listening {
                number: *number,
                latest: RefCell::new(acceptor.clone()),
                acceptor,
                shared: Arc::clone(&self.shared),
                generation: Cell::new(self.generation),
                counters,
                buffers,
                kept: Rc::clone(&self.kept),
                urls,
            };
            (*number, Rc::new(listening))
        };
        self.listening = self.shared.all().iter().map(listening).collect();
    }

    /// The numbers of handshakes of the worker.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Listening {
    /// The settings of the latest handshakes, which a reload may have replaced since. If the listener was removed, they
    /// are the last ones that it had.
    pub(crate) fn latest(&self) -> Ref<'_, Acceptor> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation.replace(generation)
            && let Some(tls) = self.shared.all().get(&self.number)
        {
            self.latest.replace(tls.acceptor.clone());
        }
        self.latest.borrow()
    }

    /// The settings for an authority that looks for the answer to its challenge; `None` for all other clients.
    #[inline]
    pub(crate) fn challenge(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        self.shared.challenges.find(hello)
    }

    /// The answer to a client that speaks something else than TLS: a response, if it is HTTP.
    pub(crate) fn answer_to_plain(&self, bytes: &[u8]) -> Vec<u8> {
        if !bytes.first().is_some_and(u8::is_ascii_uppercase) {
            return Vec::new();
        }
        let text = match &*self.urls.of(bytes) {
            "" => "This port speaks HTTPS: ask it by https\n".to_owned(),
            url => format!("This port speaks HTTPS. The address is {url}\n"),
        };
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close";
        format!("{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    }
}

/// The acceptors of a worker, which the transports of its connections share.
pub type SharedAcceptors = Rc<RefCell<WorkerAcceptors>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_tls_is_told_the_url_of_its_host_if_a_site_has_it() {
        let hosts = ["b.example", "A.example", "*.c.example", "[::1]"].map(str::to_owned).to_vec();
        let urls = Urls::new("https://b.example/".to_owned(), hosts.clone(), None);
        let other = Urls::new(String::new(), hosts, Some(8443));
        let default = "https://b.example/";
        for (fields, url) in [
            ("Host: a.example\r\n", "https://a.example/"),
            ("Accept: */*\r\nhOST:A.EXAMPLE:443 \r\n", "https://a.example/"),
            ("Host: [::1]:443\r\n", "https://[::1]/"),
            ("Host: [::1]\r\n", "https://[::1]/"),
            ("Host: b.example\n", default),
            // No site has these names, or the request is ambiguous.
            ("Host: evil.example\r\n", default),
            ("Host: x.c.example\r\n", default),
            ("Host: *.c.example\r\n", default),
            ("Host: a.example/\r\n", default),
            ("Host: a.example@evil.example\r\n", default),
            ("Host: a.example\r\nHost: a.example\r\n", default),
            ("Accept: Host: a.example\r\n", default),
            ("\r\nHost: a.example\r\n", default),
            ("Host: \u{ff}\r\n", default),
            ("Host:\r\n", default),
            ("", default),
            ("Hos", default),
        ] {
            let request = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(urls.of(request.as_bytes()), url, "{fields:?}");
            let is_known = url != default || fields.contains("b.example");
            let expected =
                if is_known { url.replace(".example/", ".example:8443/") } else { String::new() };
            let expected = expected.replace("]/", "]:8443/");
            assert_eq!(other.of(request.as_bytes()), expected, "{fields:?}");
        }
        assert_eq!(urls.of(b"GET / HTTP/1.1\r\nHost: a.exam"), default);
        assert_eq!(urls.of(b"GET"), default);
    }
}

//! The numbers of requests, by site, scheme, method and status. One worker writes them.

use std::collections::HashMap;
use std::sync::Arc;

use core::time::Duration;
use http::{Method, Status};
use ring::{Key, Slab};

use super::histogram::{DURATIONS, Durations, SIZES, Sizes};

/// The methods that are label values; the last stands for all others, as OpenTelemetry has it.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "_OTHER"];

/// The scheme of a request as a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchemeLabel {
    /// `http`
    #[default]
    Http,
    /// `https`
    Https,
}

/// A method as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MethodLabel(u8);

/// A status as a label: its code if it has a name, otherwise its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusLabel(u16);

/// A site as a label: valid as long as the site is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLabel(Key);

/// The labels of a series. They are ordered by site first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) site: Arc<str>,
    pub(super) scheme: SchemeLabel,
    pub(super) method: MethodLabel,
    pub(super) status: StatusLabel,
}

/// The numbers of the requests with the same labels.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) durations: Durations,
    pub(super) body_sizes: Sizes,
    pub(super) request_body_sizes: Sizes,
    pub(super) disk_waits: Durations,
}

/// A request whose response has left, or of which no more will leave.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The site that responded.
    pub site: SiteLabel,
    /// The scheme of its URL.
    pub scheme: SchemeLabel,
    /// One of the standard methods, or any other.
    pub method: MethodLabel,
    /// The status that was sent.
    pub status: StatusLabel,
    /// The time from the end of its head to the end of its response.
    pub duration: Duration,
    /// The bytes of the body that were sent.
    pub body_bytes: u64,
    /// The bytes of the body of the request, if its head said how many; else 0.
    pub request_body_bytes: u64,
    /// The part of the duration in which the disk was waited for.
    pub disk_wait: Duration,
}

/// The series of the sites that are configured. A series is made when a request has its labels.
#[derive(Debug, Default)]
pub(super) struct Sites {
    all: Slab<Site>,
    by_name: HashMap<Arc<str>, Key>,
}

#[derive(Debug)]
struct Site {
    name: Arc<str>,
    series: Vec<(SchemeLabel, MethodLabel, StatusLabel, Arc<Series>)>,
}

impl Sites {
    /// Adds the names of the sites of a new configuration; returns their labels. A site that was configured
    /// before keeps its series; the series of other sites are dropped.
    pub(super) fn configure<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<SiteLabel> {
        let mut before = core::mem::take(&mut self.by_name);
        let mut labels = Vec::new();
        for name in names {
            let known = self.by_name.get(name).copied();
            let key = known.unwrap_or_else(|| {
                let (name, key) = before.remove_entry(name).unwrap_or_else(|| {
                    let name: Arc<str> = name.into();
                    let site = Site { name: Arc::clone(&name), series: Vec::new() };
                    (name, self.all.insert(site))
                });
                self.by_name.insert(name, key);
                key
            });
            labels.push(SiteLabel(key));
        }
        for key in before.into_values() {
            self.all.remove(key);
        }
        labels
    }

    /// Returns whether a site is configured.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Counts a request. Returns its series if that is new. A request for a site that is not configured any
    /// more is not counted.
    #[inline]
    pub(super) fn observe(&mut self, observation: &Observation) -> Option<(Labels, Arc<Series>)> {
        let Observation { site, scheme, method, status, .. } = *observation;
        let site = self.all.get_mut(site.0)?;
        let has_labels = |one: &(SchemeLabel, MethodLabel, StatusLabel, _)| {
            (one.0, one.1, one.2) == (scheme, method, status)
        };
        let found = site.series.iter().position(has_labels);
        let Some(place) = found else {
            return Some(site.add_series(observation));
        };
        site.series[place].3.observe(observation);
        if place > 0 {
            // A frequent series moves to the front, where it is found soon.
            site.series.swap(place, place - 1);
        }
        None
    }
}

impl Site {
    #[cold]
    fn add_series(&mut self, observation: &Observation) -> (Labels, Arc<Series>) {
        let Observation { scheme, method, status, .. } = *observation;
        let series = Arc::new(Series::new());
        series.observe(observation);
        self.series.push((scheme, method, status, Arc::clone(&series)));
        (Labels { site: Arc::clone(&self.name), scheme, method, status }, series)
    }
}

impl Series {
    fn new() -> Self {
        Self {
            durations: Durations::new(DURATIONS),
            body_sizes: Sizes::new(SIZES),
            request_body_sizes: Sizes::new(SIZES),
            disk_waits: Durations::new(DURATIONS),
        }
    }

    #[inline]
    fn observe(&self, observation: &Observation) {
        self.durations.observe_duration(observation.duration);
        self.body_sizes.observe(observation.body_bytes);
        self.request_body_sizes.observe(observation.request_body_bytes);
        self.disk_waits.observe_duration(observation.disk_wait);
    }
}

impl SchemeLabel {
    /// The scheme: `http` or `https`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl MethodLabel {
    /// The label of input that was no request.
    pub const NONE: Self = Self(9);

    /// The label of a method.
    #[inline]
    pub const fn of(method: Method<'_>) -> Self {
        Self(match method {
            Method::Get => 0,
            Method::Head => 1,
            Method::Options => 2,
            Method::Post => 3,
            Method::Put => 4,
            Method::Patch => 5,
            Method::Delete => 6,
            Method::Trace => 7,
            Method::Connect => 8,
            Method::Other(_) => 9,
        })
    }

    pub(super) fn text(self) -> &'static str {
        METHODS[usize::from(self.0)]
    }
}

impl StatusLabel {
    /// The label of a status.
    #[inline]
    pub const fn of(status: Status) -> Self {
        // An invalid status counts as a 5xx (RFC 9110 §15).
        let class = match status.code() / 100 {
            class @ 0..=5 => class,
            _ => 5,
        };
        Self(if matches!(status, Status::Other(_)) { class } else { status.code() })
    }

    /// Returns true for a status from 500 on, and for their class.
    pub(super) const fn is_server_error(self) -> bool {
        self.0 >= 500 || self.0 == 5
    }

    /// The value of the label: `200`, or `2xx` for those without a name.
    pub(super) fn text(self) -> String {
        if self.0 < 100 { format!("{}xx", self.0) } else { self.0.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(site: SiteLabel, method: Method<'_>, code: u16) -> Observation {
        Observation {
            site,
            scheme: SchemeLabel::Http,
            method: MethodLabel::of(method),
            status: StatusLabel::of(Status::from_code(code).unwrap()),
            duration: Duration::from_micros(70),
            body_bytes: 100,
            request_body_bytes: 0,
            disk_wait: Duration::ZERO,
        }
    }

    #[test]
    fn labels_have_few_values() {
        for (token, text) in
            [("GET", "GET"), ("CONNECT", "CONNECT"), ("get", "_OTHER"), ("PROPFIND", "_OTHER")]
        {
            assert_eq!(MethodLabel::of(Method::of_token(token.as_bytes())).text(), text);
        }
        for method in METHODS {
            assert_eq!(MethodLabel::of(Method::of_token(method.as_bytes())).text(), method);
        }
        assert_eq!(MethodLabel::NONE.text(), "_OTHER");
        let text = |code| StatusLabel::of(Status::from_code(code).unwrap()).text();
        assert_eq!(
            [200, 299, 404, 418, 599, 999].map(text),
            ["200", "2xx", "404", "4xx", "5xx", "5xx"]
        );
        let all: std::collections::BTreeSet<_> = (100..1000).map(text).collect();
        assert_eq!(all.len(), Status::ALL.len() + 5);
    }

    #[test]
    fn series_are_made_when_they_are_needed_and_once() {
        let mut sites = Sites::default();
        let labels = sites.configure(["a", "b", "a"]);
        assert_eq!(labels[0], labels[2], "sites of one name are one");
        let new = sites.observe(&observation(labels[1], Method::Get, 200));
        let (new, series) = new.expect("the first");
        assert_eq!((&*new.site, new.method.text(), &new.status.text()[..]), ("b", "GET", "200"));
        for code in [404, 404, 200, 404] {
            sites.observe(&observation(labels[1], Method::Get, code));
        }
        assert!(sites.observe(&observation(labels[1], Method::Get, 200)).is_none());
        let mut total = super::super::histogram::Total::ZERO;
        series.durations.add_to(&mut total);
        assert_eq!((total.counts[1], total.sum), (3, 3 * 70_000));
    }

    #[test]
    fn another_configuration_keeps_the_series_of_its_sites() {
        let mut sites = Sites::default();
        let before = sites.configure(["a", "b"]);
        for label in &before {
            assert!(sites.observe(&observation(*label, Method::Get, 200)).is_some());
        }
        let after = sites.configure(["c", "b"]);
        assert_eq!(after[1], before[1]);
        assert!(sites.observe(&observation(before[1], Method::Get, 200)).is_none());
        assert!(sites.has("c") && !sites.has("a"));
        // A request of the old configuration ends now.
        assert!(sites.observe(&observation(before[0], Method::Get, 200)).is_none());
        assert!(sites.observe(&observation(after[0], Method::Get, 200)).is_some());
        assert_eq!(sites.all.len(), 2);
    }
}

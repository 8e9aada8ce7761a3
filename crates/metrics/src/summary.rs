//! The numbers of all workers added up, as values: for the page of the operator.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::histogram::{DURATIONS, Total};
use super::{CertificateNumbers, DeviceNumbers, Loads, Metrics, Stats, lock};

/// The numbers of all workers at one time. The numbers of requests are exact; the others are from the end of each worker's
/// last turn.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of workers.
    pub workers: usize,
    /// The numbers without labels.
    pub stats: Stats,
    /// The longest turn of a worker, in nanoseconds.
    pub longest_turn: u64,
    /// The durations of all requests.
    pub latencies: Latencies,
    /// Bytes of the bodies of all responses.
    pub body_bytes: u64,
    /// The number of responses with each status, or class of statuses, in order.
    pub statuses: Vec<(String, u64)>,
    /// The sites with the most requests, those first.
    pub sites: Vec<SiteNumbers>,
    /// The number of sites that have had requests.
    pub sites_asked: usize,
    /// The devices that were read from, by their numbers. Those whose numbers are not known are one.
    pub devices: Vec<(Option<(u64, u64)>, DeviceNumbers)>,
    /// The certificates that expire first, those first.
    pub certificates: Vec<CertificateNumbers>,
    /// The number of all certificates.
    pub certificates_all: usize,
    /// The configurations that were loaded.
    pub loads: Loads,
}

/// The requests of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteNumbers {
    /// The name of the site.
    pub name: Arc<str>,
    /// All requests.
    pub requests: u64,
    /// Those with a status from 500 on.
    pub failed: u64,
    /// Bytes of the bodies of their responses.
    pub body_bytes: u64,
}

/// Durations of requests, in the buckets of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// The requests in each bucket; the last bucket has no bound.
    pub counts: [u64; DURATIONS.len() + 1],
    /// The sum of the durations in nanoseconds. It wraps.
    pub sum: u64,
}

impl Latencies {
    fn of(total: &Total<{ DURATIONS.len() }>) -> Self {
        let mut counts = [total.above; DURATIONS.len() + 1];
        counts[..DURATIONS.len()].copy_from_slice(&total.counts);
        Self { counts, sum: total.sum }
    }

    /// The number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The requests since an earlier time; `None` if some of those have been forgotten, with their sites.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut counts = [0; DURATIONS.len() + 1];
        for ((count, now), then) in counts.iter_mut().zip(self.counts).zip(before.counts) {
            *count = now.checked_sub(then)?;
        }
        Some(Self { counts, sum: self.sum.wrapping_sub(before.sum) })
    }

    /// The time in nanoseconds in which `percent` of the requests were answered: the bound of their bucket. `None` if there
    /// are no requests, or the bucket has no bound.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let wanted = (self.requests().saturating_mul(percent)).div_ceil(100);
        if wanted == 0 {
            return None;
        }
        let mut count = 0;
        let reaches = |in_bucket: &u64| {
            count += in_bucket;
            count >= wanted
        };
        let bucket = self.counts.iter().position(reaches)?;
        DURATIONS.get(bucket).map(|(bound, _)| *bound)
    }
}

impl Metrics {
    /// The numbers of all workers. Of sites and certificates there are `listed_max` at most.
    pub fn summary(&self, listed_max: usize) -> Summary {
        let longest_turn = self.workers.iter().map(|worker| worker.longest_turn.get()).max();
        let mut summary = Summary {
            workers: self.workers.len(),
            stats: self.stats(),
            longest_turn: longest_turn.unwrap_or_default(),
            devices: self.devices().into_iter().collect(),
            loads: lock(&self.loads).clone(),
            ..Summary::default()
        };
        self.add_requests(&mut summary, listed_max);
        let certificates = lock(&self.certificates);
        summary.certificates_all = certificates.len();
        let mut first: Vec<_> = certificates.iter().collect();
        first.sort_by_key(|one| one.expires_at);
        summary.certificates = first.into_iter().take(listed_max).cloned().collect();
        summary
    }

    fn add_requests(&self, summary: &mut Summary, listed_max: usize) {
        let mut durations = Total::ZERO;
        let mut statuses = BTreeMap::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        let mut sites: Vec<SiteNumbers> = Vec::new();
        for worker in &self.workers {
            // Those of a site follow each other, so the table is asked once for each site.
            let mut last: Option<usize> = None;
            for (labels, series) in lock(&worker.series).iter() {
                let at = match last {
                    Some(at) if sites[at].name == labels.site => at,
                    _ => *places.entry(Arc::clone(&labels.site)).or_insert_with(|| {
                        let name = Arc::clone(&labels.site);
                        sites.push(SiteNumbers { name, ..SiteNumbers::default() });
                        sites.len() - 1
                    }),
                };
                last = Some(at);
                let mut own = Total::ZERO;
                series.durations.add_to(&mut own);
                let requests = own.counts.iter().sum::<u64>() + own.above;
                durations.add(&own);
                let bytes = series.body_sizes.sum();
                let site = &mut sites[at];
                site.requests += requests;
                site.body_bytes = site.body_bytes.wrapping_add(bytes);
                if labels.status.is_server_error() {
                    site.failed += requests;
                }
                summary.body_bytes = summary.body_bytes.wrapping_add(bytes);
                *statuses.entry(labels.status).or_insert(0) += requests;
            }
        }
        summary.latencies = Latencies::of(&durations);
        let statuses = statuses.into_iter();
        summary.statuses = statuses.map(|(status, count)| (status.text(), count)).collect();
        summary.sites_asked = sites.len();
        sites.sort_unstable_by(|one, other| {
            other.requests.cmp(&one.requests).then_with(|| one.name.cmp(&other.name))
        });
        sites.truncate(listed_max);
        summary.sites = sites;
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::time::SystemTime;

    use http::{Method, Status};

    use super::*;
    use crate::{MethodLabel, Observation, SchemeLabel, SiteLabel, StatusLabel};

    fn observation(site: SiteLabel, code: u16, micros: u64) -> Observation {
        Observation {
            site,
            scheme: SchemeLabel::Http,
            method: MethodLabel::of(Method::Get),
            status: StatusLabel::of(Status::from_code(code).unwrap()),
            duration: Duration::from_micros(micros),
            body_bytes: 100,
            request_body_bytes: 0,
            disk_wait: Duration::ZERO,
        }
    }

    #[test]
    fn the_numbers_of_workers_are_added_by_site_and_by_status() {
        let metrics = Metrics::new(2);
        for worker in 0..2 {
            let mut meters = metrics.meters(worker);
            let labels = meters.configure(["a", "b", "never asked"]);
            for (label, code, count) in [(0, 200, 3), (0, 503, 1), (1, 200, 9), (1, 404, 2)] {
                for _ in 0..count {
                    meters.observe(&observation(labels[label], code, 70));
                }
            }
            let counters = meters.counters();
            counters.responses.add(15);
            counters.forbidden.add(1);
            meters.end_turn(Duration::from_millis(worker as u64));
        }
        metrics.note_load(Some("abc"), SystemTime::now());
        let summary = metrics.summary(1);
        assert_eq!((summary.workers, summary.stats.responses, summary.stats.forbidden), (2, 30, 2));
        assert_eq!(summary.longest_turn, 1_000_000);
        let statuses: Vec<_> =
            summary.statuses.iter().map(|(text, count)| (&text[..], *count)).collect();
        assert_eq!(statuses, [("200", 24), ("404", 4), ("503", 2)]);
        let (name, body_bytes) = ("b".into(), 2 * 11 * 100);
        assert_eq!(summary.sites, [SiteNumbers { name, requests: 22, failed: 0, body_bytes }]);
        assert_eq!((summary.sites_asked, summary.body_bytes), (2, 3000));
        assert_eq!((summary.latencies.requests(), summary.loads.successes), (30, 1));
        assert_eq!(metrics.summary(9).sites[1].failed, 2);
    }

    #[test]
    fn the_certificates_that_expire_first_are_listed() {
        let metrics = Metrics::new(1);
        let of = |expires_at| CertificateNumbers {
            site: String::new(),
            file: String::new(),
            expires_at,
        };
        metrics.set_certificates([5, 3, 9, 4].map(of).to_vec());
        let summary = metrics.summary(2);
        let first: Vec<_> = summary.certificates.iter().map(|one| one.expires_at).collect();
        assert_eq!((&first[..], summary.certificates_all), (&[3, 4][..], 4));
    }

    #[test]
    fn a_percentile_is_the_bound_of_its_bucket() {
        let mut all = Latencies::default();
        assert_eq!(all.percentile(50), None);
        (all.counts[0], all.counts[3]) = (98, 1);
        assert_eq!(all.percentile(50), Some(50_000));
        assert_eq!((all.percentile(98), all.percentile(99)), (Some(50_000), Some(500_000)));
        all.counts[DURATIONS.len()] = 100;
        assert_eq!((all.percentile(49), all.percentile(50)), (Some(50_000), None));
        assert_eq!(all.percentile(99), None);
    }

    #[test]
    fn what_came_since_is_not_known_if_a_site_was_removed() {
        let (mut before, mut now) = (Latencies::default(), Latencies::default());
        (before.counts[2], before.sum) = (5, 50);
        (now.counts[2], now.sum) = (7, 90);
        let since = now.since(&before).unwrap();
        assert_eq!((since.requests(), since.sum), (2, 40));
        assert_eq!(before.since(&now), None);
    }

    #[test]
    fn ten_thousand_sites_are_added_up() {
        const SITES: usize = 10_000;
        let metrics = Metrics::new(2);
        let names: Vec<_> = (0..SITES).map(|number| format!("{number}.example")).collect();
        for worker in 0..2 {
            let mut meters = metrics.meters(worker);
            let labels = meters.configure(names.iter().map(|name| &name[..]));
            for (number, label) in labels.iter().enumerate() {
                for _ in 0..=usize::from(number == 17) {
                    meters.observe(&observation(*label, 200, 70));
                }
            }
            meters.end_turn(Duration::ZERO);
        }
        let summary = metrics.summary(64);
        assert_eq!((summary.sites.len(), summary.sites_asked), (64, SITES));
        assert_eq!((&*summary.sites[0].name, summary.sites[0].requests), ("17.example", 4));
        assert_eq!(summary.latencies.requests(), 2 * SITES as u64 + 2);
    }
}

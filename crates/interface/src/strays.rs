//! Passes reports of routers to the stack of the queue that has the connection.
//!
//! A router's report comes from the router's address, so an adapter gives it to any queue, and not to the queue of its
//! connection. If a worker does not have the connection of a report, it posts the report to all other workers of its
//! interface.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use netstack::Report;

/// Reports that wait for a worker; further ones are dropped. Anyone can forge them, and the network repeats them for
/// each segment that is too long. So more reports than a few connections cause in a round trip are of no use.
const REPORTS_MAX: usize = 64;

/// The mailbox of one worker, and those of the other workers of its interface.
#[derive(Debug)]
pub(super) struct Strays {
    mailboxes: Arc<[Mailbox]>,
    /// The index of the worker's own mailbox.
    own: usize,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// The number of reports, written under the lock. A read without the lock may be late: then a report waits for the
    /// next worker turn, or is dropped. The lock orders the reports themselves, so relaxed order is enough.
    count: AtomicUsize,
    reports: Mutex<VecDeque<Report>>,
}

impl Strays {
    /// Makes the mailboxes of an interface with this many queues, one for each in their order. A single queue gets
    /// every report, and has no mailbox.
    pub(super) fn of_queues(queues: usize) -> Vec<Option<Self>> {
        let mailboxes: Arc<[Mailbox]> = (0..queues).map(|_| Mailbox::default()).collect();
        let strays = |own| (queues > 1).then(|| Self { mailboxes: Arc::clone(&mailboxes), own });
        (0..queues).map(strays).collect()
    }

    /// Gives a report to all other workers of the interface.
    ///
    /// The workers are not woken. The report is about a segment in flight, so its worker wakes at the latest for the
    /// segment's retransmission, and handles the report before it looks at its timers.
    pub(super) fn post(&self, report: Report) {
        for (number, mailbox) in self.mailboxes.iter().enumerate() {
            if number != self.own {
                mailbox.post(report);
            }
        }
    }

    /// Handles the reports for this worker, [`REPORTS_MAX`] at most.
    pub(super) fn take(&self) -> VecDeque<Report> {
        self.mailboxes[self.own].take()
    }
}

impl Mailbox {
    fn post(&self, report: Report) {
        // In a flood, reports are dropped without the lock.
        if self.count.load(Ordering::Relaxed) >= REPORTS_MAX {
            return;
        }
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() < REPORTS_MAX {
            reports.push_back(report);
            self.count.store(reports.len(), Ordering::Relaxed);
        }
    }

    fn take(&self) -> VecDeque<Report> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return VecDeque::new();
        }
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.store(0, Ordering::Relaxed);
        core::mem::take(&mut *reports)
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use netstack::sim::{Device, Segment, flag, host_unreachable, mac};
    use netstack::{Address, Application, Config, Limits, ReceivedChecksum, Stack, Time};

    use super::*;

    #[derive(Default)]
    struct Listener(Vec<Report>);

    impl Application for Listener {
        fn stray(&mut self, report: Report) {
            self.0.push(report);
        }
    }

    /// A report about a segment to this port, as a stack tells it.
    fn report(port: u16) -> Report {
        let [own, peer] = [([192, 0, 2, 1], 80), ([192, 0, 2, 2], port)].map(SocketAddr::from);
        let segment = Segment {
            source: own,
            destination: peer,
            ecn: 0,
            seq: 1,
            ack: 1,
            flags: flag::ACK,
            window: 1000,
            options: Vec::new(),
            payload: vec![0; 100],
        };
        let config = Config {
            addresses: vec![Address { ip: own.ip(), prefix: 24, is_ours: true }],
            ..Config::new(mac(own.ip()))
        };
        let now = Time::from_nanos(0);
        let mut stack = Stack::new(config, [1; 16], now);
        let limits = Limits { mtu: 1500, cut_bytes_max: 0, fills_checksums: false };
        let (mut device, mut told) = (Device::new(limits, usize::MAX), Listener::default());
        let message = host_unreachable(&segment.to_frame()).unwrap();
        stack.handle_frame(now, &message, ReceivedChecksum::Unverified, &mut told, &mut device);
        told.0.pop().unwrap()
    }

    #[test]
    fn a_report_goes_to_all_other_workers_once() {
        let [Some(a), Some(b), Some(c)] = &Strays::of_queues(3)[..] else { panic!("three") };
        let reports = [1, 2, 3].map(report);
        a.post(reports[0]);
        b.post(reports[1]);
        a.post(reports[2]);
        assert_eq!(a.take(), [reports[1]]);
        assert_eq!(b.take(), [reports[0], reports[2]]);
        assert_eq!(c.take(), reports);
        for strays in [a, b, c] {
            assert_eq!(strays.take(), []);
        }
    }

    #[test]
    fn a_single_queue_has_no_mailbox() {
        assert!(matches!(Strays::of_queues(1)[..], [None]));
    }

    #[test]
    fn a_full_mailbox_takes_no_more_until_it_is_emptied() {
        let [Some(a), Some(b)] = &Strays::of_queues(2)[..] else { panic!("two") };
        let ports = 1..=u16::try_from(REPORTS_MAX).unwrap();
        let first: Vec<_> = ports.map(report).collect();
        first.iter().for_each(|report| a.post(*report));
        let late = report(1000);
        a.post(late);
        assert_eq!(b.take(), first);
        a.post(late);
        assert_eq!(b.take(), [late]);
    }
}

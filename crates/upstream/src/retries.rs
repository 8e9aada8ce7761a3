//! Decides whether a request may be sent once more, to another server or through another link.
//!
//! Reading list: RFC 9110 §9.2.2 (idempotent methods); RFC 9112 §9.3.1 (retrying requests); Finagle's retry budget,
//! the source of the numbers.
//!
//! Pure. A request with side effects is never sent twice once a server may have seen a byte of it. Retries have a
//! budget: when all servers fail, retries without a limit would multiply the requests, and keep overloaded servers
//! down.

use http::Method;
use ring::Time;

/// The number of requests that pay for one retry: a fifth of all requests can be sent again.
const REQUESTS_PER_RETRY: u64 = 5;

/// Retries that need no requests, per second: otherwise few requests could never be retried. Each worker has this
/// number for each upstream.
const FREE_PER_SECOND: u64 = 10;

/// The seconds in which requests and retries are counted, the current one included.
const SECONDS: usize = 10;

/// A request, as far as it matters for sending it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// True if the method is idempotent: see [`is_idempotent`].
    pub is_idempotent: bool,
    /// The point that it reached.
    pub reached: Reached,
    /// True if a part of the body has been taken from the client and is not held any more.
    pub is_body_consumed: bool,
    /// The number of times that it was sent, with this one.
    pub tries: u32,
}

/// The point that a request reached before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// No byte of it was given to the kernel: there was no connection. Or the server says that it has done nothing.
    Nothing,
    /// A byte of the request may have reached the server, which has sent nothing. This includes a kept link that
    /// the server has closed at the same time: the server may have read the request.
    Sent,
    /// A byte of the response has come.
    Response,
}

/// The retries that the requests of the last [`SECONDS`] have paid for.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Requests and retries in each of the last seconds.
    counts: [(u64, u64); SECONDS],
    /// The second of the clock that is counted now.
    second: u64,
}

/// Returns whether a request with this method has the same effect when it is sent twice (RFC 9110 §9.2.2).
pub const fn is_idempotent(method: &Method<'_>) -> bool {
    match method {
        Method::Get
        | Method::Head
        | Method::Options
        | Method::Put
        | Method::Delete
        | Method::Trace => true,
        Method::Post | Method::Patch | Method::Connect | Method::Other(_) => false,
    }
}

impl Attempt {
    /// Returns whether the request may be sent once more, if a request may have `retries_max` retries.
    pub const fn may_be_repeated(self, retries_max: u32) -> bool {
        if self.tries > retries_max || self.is_body_consumed {
            return false;
        }
        match self.reached {
            Reached::Nothing => true,
            Reached::Sent => self.is_idempotent,
            Reached::Response => false,
        }
    }
}

impl Budget {
    /// Counts a request that is sent for the first time.
    pub(crate) fn handle_request(&mut self, now: Time) {
        self.pass(now);
        self.current().0 += 1;
    }

    /// Takes a retry out of the budget; returns false if it is used up.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        self.pass(now);
        let add = |sum: (u64, u64), count: &(u64, u64)| (sum.0 + count.0, sum.1 + count.1);
        let (requests, retries) = self.counts.iter().fold((0, 0), add);
        let free = FREE_PER_SECOND * SECONDS as u64;
        let is_left = retries < free + requests / REQUESTS_PER_RETRY;
        self.current().1 += u64::from(is_left);
        is_left
    }

    /// Drops the counts of seconds that are too long ago.
    fn pass(&mut self, now: Time) {
        let second = now.since(Time::default()).as_secs();
        // A clock that is behind counts in the second that was seen last.
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        for ago in 0..passed {
            self.counts[slot(second - ago)] = (0, 0);
        }
        self.second = self.second.max(second);
    }

    fn current(&mut self) -> &mut (u64, u64) {
        &mut self.counts[slot(self.second)]
    }
}

/// The index of a second's counts.
fn slot(second: u64) -> usize {
    usize::try_from(second % SECONDS as u64).expect("less than SECONDS")
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        // Not at the clock's start: a machine has been on for a while.
        Time::default() + Duration::from_secs(1_000_000) + Duration::from_millis(millis)
    }

    #[test]
    fn methods_are_idempotent_as_the_standard_says() {
        for token in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            assert!(is_idempotent(&Method::of_token(token.as_bytes())), "{token}");
        }
        for token in ["POST", "PATCH", "CONNECT", "get", "PROPFIND", "LOCK"] {
            assert!(!is_idempotent(&Method::of_token(token.as_bytes())), "{token}");
        }
    }

    #[test]
    fn a_request_is_repeated_only_if_nothing_can_happen_twice() {
        use Reached::{Nothing, Response, Sent};
        for (is_idempotent, reached, is_body_consumed, tries, expected) in [
            (true, Nothing, false, 1, true),
            (true, Sent, false, 1, true),
            (true, Response, false, 1, false),
            (false, Nothing, false, 1, true),
            (false, Sent, false, 1, false),
            (false, Response, false, 1, false),
            // The rest of the body could be sent, but not its beginning.
            (true, Nothing, true, 1, false),
            (true, Sent, true, 1, false),
            (false, Nothing, true, 1, false),
            (true, Nothing, false, 2, true),
            (true, Nothing, false, 3, false),
            (true, Nothing, false, 4, false),
        ] {
            let attempt = Attempt { is_idempotent, reached, is_body_consumed, tries };
            assert_eq!(attempt.may_be_repeated(2), expected, "{attempt:?}");
            assert_eq!(attempt.may_be_repeated(1), expected && tries < 2, "{attempt:?}");
            assert!(!attempt.may_be_repeated(0));
        }
    }

    #[test]
    fn few_requests_have_free_retries_and_many_pay_for_theirs() {
        let mut budget = Budget::default();
        assert_eq!((0..1000).filter(|_| budget.take(at(0))).count(), 100);
        for _ in 0..1000 {
            budget.handle_request(at(9_999));
        }
        assert_eq!((0..1000).filter(|_| budget.take(at(9_999))).count(), 200);
        // The first hundred is forgotten; the requests are not yet.
        assert_eq!((0..1000).filter(|_| budget.take(at(10_000))).count(), 100);
        assert_eq!((0..1000).filter(|_| budget.take(at(18_999))).count(), 0);
        assert_eq!((0..1000).filter(|_| budget.take(at(3_600_000))).count(), 100);
    }

    #[test]
    fn total_failure_makes_no_storm() {
        // 1,000 requests per second, each of which fails and would be sent three times.
        let (mut budget, mut sent) = (Budget::default(), 0);
        for request in 0..60_000 {
            budget.handle_request(at(request));
            sent += 1 + (0..2).take_while(|_| budget.take(at(request))).count();
        }
        assert!((72_000..=72_700).contains(&sent), "{sent}: a fifth more, and 10 per second");
    }

    proptest! {
        #[test]
        fn no_retry_is_given_that_the_last_ten_seconds_have_not_paid_for(
            steps in vec((0..400_u64, any::<bool>()), 0..600),
        ) {
            let (mut budget, mut now) = (Budget::default(), 0);
            let (mut requests, mut retries) = (Vec::new(), Vec::new());
            for (millis, is_request) in steps {
                now += millis;
                let second = now / 1000;
                let recent = |all: &[u64]| all.iter().filter(|one| **one + 10 > second).count();
                if is_request {
                    budget.handle_request(at(now));
                    requests.push(second);
                } else {
                    let is_paid = recent(&retries) < 100 + recent(&requests) / 5;
                    prop_assert_eq!(budget.take(at(now)), is_paid);
                    retries.extend(is_paid.then_some(second));
                }
            }
        }
    }
}

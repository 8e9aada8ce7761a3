//! The answers to challenges of authorities by HTTP (http-01, RFC 8555 §8.3), which all workers give while some wait.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The path of answers, up to the token.
pub(crate) const DIRECTORY: &[u8] = b"/.well-known/acme-challenge/";

/// The challenges that wait.
#[derive(Debug, Default)]
pub struct Challenges {
    /// True if there are some. Each change is a release, so a thread that sees it sees the answers, too.
    are_pending: AtomicBool,
    /// The answers by their tokens.
    answers: Mutex<HashMap<Vec<u8>, Box<str>>>,
}

impl Challenges {
    /// Replaces all challenges: their tokens and answers.
    pub fn replace(&self, all: impl Iterator<Item = (String, String)>) {
        let all = all.map(|(token, answer)| (token.into_bytes(), answer.into()));
        let all: HashMap<_, _> = all.collect();
        let are_pending = !all.is_empty();
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = all;
        self.are_pending.store(are_pending, Ordering::Release);
    }

    /// Returns the answer to a request for a path, as it was sent; `None` unless a challenge waits there.
    #[inline]
    pub(crate) fn answer(&self, path: &[u8]) -> Option<Box<str>> {
        if !self.are_pending.load(Ordering::Acquire) {
            return None;
        }
        let token = path.strip_prefix(DIRECTORY)?;
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_that_wait_have_an_answer() {
        let challenges = Challenges::default();
        let answer = |path: &str| challenges.answer(path.as_bytes()).map(String::from);
        assert_eq!(answer("/.well-known/acme-challenge/a"), None);
        challenges.replace([("a".to_owned(), "a.x".to_owned())].into_iter());
        assert_eq!(answer("/.well-known/acme-challenge/a"), Some("a.x".to_owned()));
        for path in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/b",
            "/.well-known/acme-challenge/aa",
            "/.well-known/acme-challenge/A",
            "/.well-known/acme-challenge/a/",
            "/.well-known/acme-challenge/./a",
            "/.well-known/acme-challenge/../acme-challenge/a",
            "/.well-known/acme-challenge/%61",
            "/x/.well-known/acme-challenge/a",
            "/a",
            "",
        ] {
            assert_eq!(answer(path), None, "{path}");
        }
        challenges.replace([].into_iter());
        assert_eq!(answer("/.well-known/acme-challenge/a"), None);
    }
}

//! Skips tests that cannot run on this machine, with a message. In CI a skipped test is a failure.

use core::fmt;
use std::env;
use std::io::{self, Write as _};

/// The reason why this machine cannot run a test.
#[derive(Clone, Debug)]
pub struct Skip {
    reason: String,
}

impl Skip {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Prints `skipped: reason` and returns from the test: `skip!("no {device}")`.
///
/// # Panics
/// If the environment has `CI=true`, because every test must run there.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::announce_skip(format_args!($($reason)+));
        return;
    }};
}

/// The value of an `Ok`; [`skip!`]s the test for an `Err`, with the error as the reason.
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}

/// Prints the reason of a [`skip!`].
///
/// # Panics
/// If the environment has `CI=true`.
#[track_caller]
pub fn announce_skip(reason: fmt::Arguments<'_>) {
    assert!(
        env::var_os("CI").is_none_or(|ci| ci != "true"),
        "this test may not be skipped in CI: {reason}"
    );
    // Not eprintln!, because the test harness hides its output unless the test fails. An error means that
    // standard error is closed.
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    const IN_CHILD: &str = "TESTKIT_SKIP_CHILD";

    /// Runs itself again as a child, with and without `CI=true`.
    #[test]
    fn a_test_is_skipped_aloud_but_not_in_ci() {
        if env::var_os(IN_CHILD).is_some() {
            let missing: Result<(), Skip> = Err(Skip::new("no disk"));
            or_skip!(missing);
            unreachable!("skip! returns");
        }
        let run = |ci: &str| -> Output {
            let mut command = Command::new(env::current_exe().unwrap());
            command.arg("a_test_is_skipped_aloud_but_not_in_ci").env(IN_CHILD, "1").env("CI", ci);
            command.output().unwrap()
        };
        let elsewhere = run("");
        assert!(elsewhere.status.success());
        assert_eq!(String::from_utf8_lossy(&elsewhere.stderr), "skipped: no disk\n");
        let in_ci = run("true");
        assert!(!in_ci.status.success());
        let stdout = String::from_utf8_lossy(&in_ci.stdout);
        assert!(stdout.contains("this test may not be skipped in CI: no disk"), "{stdout}");
    }
}

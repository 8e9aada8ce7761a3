//! The arguments that several subcommands share, and their meaning.

use std::path::PathBuf;

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::Test;
use crate::suite::Options;

/// Tests by name, and how to run them.
#[derive(Debug, Args)]
pub struct Tests {
    /// Tests to run [default: all]
    #[arg(value_name = "TEST")]
    pub tests: Vec<String>,
    /// Print the names and titles of the tests
    #[arg(long)]
    pub list: bool,
    /// The options of the run.
    #[command(flatten)]
    pub how: How,
}

/// The options that all suites have.
#[derive(Clone, Debug, Args)]
pub struct How {
    /// Few steps, in less than a minute, to check that everything works
    #[arg(long)]
    pub quick: bool,
    /// Number of steps of each test [default: its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000_000))]
    pub steps: Option<u32>,
    /// Directory for the results [default: runs/DATE-HOST]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Name of this machine in the results [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Directory for temporary files [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

impl How {
    /// Turns the arguments into the options of a suite.
    #[must_use]
    pub fn options(&self, suite: &str) -> Options {
        Options {
            suite: suite.to_owned(),
            out: self.out.clone(),
            host: self.host.clone(),
            temp: self.temp.clone(),
            quick: self.quick,
            steps: self.steps.and_then(|steps| usize::try_from(steps).ok()),
        }
    }
}

/// The tests that were named, in the order of `all`; all without names.
///
/// # Errors
/// When a name is none of them; a sentence for exit code 2.
pub fn choose(all: Vec<Test>, names: &[String]) -> Result<Vec<Test>, String> {
    let is_known = |name: &String| all.iter().any(|test| test.about().name == *name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let names: Vec<_> = all.iter().map(|test| &*test.about().name).collect();
        return Err(format!("no test is called '{unknown}'; there are {}", names.join(", ")));
    }
    Ok(all
        .into_iter()
        .filter(|test| names.is_empty() || names.contains(&test.about().name))
        .collect())
}

/// A CPU that this process may run on (sched_getaffinity(2)).
pub(crate) fn cpu(text: &str) -> Result<usize, String> {
    let cpu: usize = text.parse().map_err(|error| format!("{error}"))?;
    // The mask of a process that was not allowed to ask is not known: then pinning says what is wrong.
    let is_ours = |allowed: CpuSet| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu);
    if sched_getaffinity(None).map_or(true, is_ours) {
        Ok(cpu)
    } else {
        Err(format!("there is no CPU {cpu} that this process may run on"))
    }
}

/// Seconds of a measurement: above 0, and a day at most.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    within(text, 86_400.0)
}

/// Requests a second: above 0, and at most what no load generator of one thread comes near.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    within(text, 1e6)
}

fn within(text: &str, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if number > 0.0 && number <= most {
        Ok(number)
    } else {
        Err(format!("must be above 0, and {most} at most"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "NaN", "inf", "1e300", "86401"] {
            assert!(seconds(wrong).unwrap_err().contains("above 0"), "{wrong}");
        }
        assert_eq!(rate("1e6"), Ok(1e6));
        assert!(rate("1e7").is_err() && rate("many").is_err());
    }

    #[test]
    fn cpus_are_those_that_are_ours() {
        let allowed = sched_getaffinity(None).unwrap();
        for one in 0..CpuSet::MAX_CPU {
            assert_eq!(cpu(&one.to_string()).is_ok(), allowed.is_set(one), "{one}");
        }
        for wrong in ["-1", "all", &CpuSet::MAX_CPU.to_string(), &usize::MAX.to_string()] {
            assert!(cpu(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tests_are_chosen_by_name_in_their_own_order() {
        let all = || vec![Test::new("a", "A", |_| Ok(())), Test::new("b", "B", |_| Ok(()))];
        let names = |chosen: Vec<Test>| -> Vec<String> {
            chosen.iter().map(|test| test.about().name.clone()).collect()
        };
        assert_eq!(names(choose(all(), &[]).unwrap()), ["a", "b"]);
        assert_eq!(names(choose(all(), &["b".into(), "a".into()]).unwrap()), ["a", "b"]);
        assert!(choose(all(), &["c".into()]).unwrap_err().contains("'c'"));
    }
}

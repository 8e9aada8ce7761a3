//! Benchmarks of operating systems and servers. A test does a thing N times, times each step, plots the latency of step
//! i against i, and classifies the growth. The method is von Leitner's ("Scalable Network Programming", 2003).
//!
//! ```text
//!   os, events, ...      tests: values with a title and a way to run
//!        │
//!      suite             runs them: recorder, progress, ctrl-C, noise before and after
//!        │ Run
//!       run              the directory: meta.json, raw.csv
//!        │ Run
//!   summary, plot        pure: verdicts by `stats` and `fit`, pictures as SVG
//!        │
//!  report, compare       pure: one HTML page, one table of ratios
//! ```
//!
//! [`instructions`] is separate: it counts the instructions of `samum` for one request, and keeps a table instead of
//! runs.
//!
//! Everything that is printed or drawn is made from a [`Run`] alone, so a directory that was written
//! on another machine can be summarized, plotted and compared like a new one.

pub mod args;
pub mod cli;
pub mod clock;
pub mod compare;
pub mod crowd;
pub mod disk;
pub mod events;
pub mod fit;
pub mod http;
pub mod instructions;
pub mod interrupt;
pub mod league;
pub mod load;
pub mod machine;
pub mod origin;
pub mod os;
pub mod permutation;
pub mod plot;
pub mod processes;
pub mod readme;
pub mod report;
pub mod run;
pub mod spread;
pub mod stats;
pub mod suite;
pub mod summary;
mod sys;
pub mod unit;

pub use run::{Description, Figure, Judge, Run, Table};
pub use suite::{Fault, Options, Recorder, Test};
pub use unit::Unit;

/// An error while running: a sentence that says what failed and what to do. Exit code 1.
pub type Error = String;

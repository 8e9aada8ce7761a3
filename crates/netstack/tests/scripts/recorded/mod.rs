//! Compares this stack with the kernel's: the same cases are played to both, and the sent segments are compared.
//!
//! `cases.txt` has the cases, in the format of scripts. They have only what peers and the application do, at fixed
//! times; `do close` before `do shutdown` aborts. `linux.txt` has the segments that the TCP of Linux sent. A test plays
//! the cases to our stack on the virtual clock and compares each answer: flags, numbers relative to the initial ones,
//! length, closed windows, MSS, the presence of the other options, the blocks of SACK, echoes of timestamps, ECN, and
//! the time to within what `transcript.rs` says. Another test plays them to the kernel that it runs on, if it is root
//! there.
//!
//! Where this stack differs from Linux on purpose, the case has the reason and this stack's own lines. The case
//! fails if the difference changes or disappears:
//!
//! ```text
//!   differs RFC 5961, 5.2: the reason
//!   ours 30 > A 1 ack 1            a line as in `linux.txt`, with the milliseconds since the case began
//! ```
//!
//! To record again, as root, in a few seconds:
//! `cargo test -p samum-netstack --test all -- --ignored record`

mod kernel;
mod plan;
mod transcript;

use core::fmt::Write as _;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;

use crate::scripts::parse::{self, Case, Pattern};
use crate::scripts::run::{Settings, World};

use kernel::Kernel;
use plan::{Plan, What};
use transcript::{Entry, Transcript, differences};

const CASES: &str = include_str!("cases.txt");
const LINUX: &str = include_str!("linux.txt");
const LINUX_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/recorded/linux.txt");

/// How often the kernel is asked again for answers that came at another time: the machine may be busy.
const ATTEMPTS: usize = 4;

/// The timestamp of the peers' clocks: 1,000 at the beginning.
fn peer_clock(at: Duration) -> u32 {
    u32::try_from(1000 + at.as_millis()).expect("a case is short")
}

fn cases() -> Vec<Case<'static>> {
    parse::parse(CASES).unwrap_or_else(|why| panic!("cases.txt: {why}"))
}

fn plans<'a>(cases: &'a [Case<'a>]) -> Vec<Plan<'a>> {
    let plan = |case| Plan::new(case).unwrap_or_else(|why| panic!("cases.txt: {why}"));
    cases.iter().map(plan).collect()
}

/// Returns the recorded kernel's release, and the transcripts by case.
fn recording() -> (&'static str, BTreeMap<&'static str, Transcript>) {
    let lines = LINUX.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let (mut release, mut case) = ("", "");
    let mut transcripts = BTreeMap::<_, Transcript>::new();
    for line in lines {
        if let Some(name) = line.strip_prefix("kernel ") {
            release = name;
        } else if let Some(name) = line.strip_prefix("case ") {
            case = name;
        } else {
            let entry = Entry::parse(line).unwrap_or_else(|| panic!("linux.txt: {line}"));
            transcripts.entry(case).or_default().0.push(entry);
        }
    }
    (release, transcripts)
}

/// Plays a case to our stack.
fn play(plan: &Plan<'_>) -> Result<Transcript, String> {
    let mut settings = Settings::default();
    if let Some(keepalive) = &plan.keepalive {
        settings.set("keepalive", keepalive)?;
    }
    let mut world = World::new(settings);
    let mut transcript = Transcript::default();
    for act in &plan.acts {
        hear(&mut world, act.at, &mut transcript)?;
        transcript.done(act);
        match &act.what {
            What::Inject(pattern) => world.inject(pattern)?,
            What::Open { sends_timestamps } => {
                world.peer().end.sends_timestamps = *sends_timestamps;
                world.inject(&Pattern::handshake_ack())?;
            }
            What::Port(port) => world.peer().end.local.set_port(*port),
            What::Do(action) => world.act(action)?,
        }
    }
    hear(&mut world, plan.end, &mut transcript)?;
    Ok(transcript)
}

/// Writes down what our stack has sent until then.
fn hear(world: &mut World, until: Duration, into: &mut Transcript) -> Result<(), String> {
    for (at, segment) in world.take_until(until)? {
        into.sent(at, &segment, &world.peer().end);
    }
    Ok(())
}

fn lines(entries: &[Entry]) -> String {
    entries.iter().map(|entry| format!("\n    {entry}")).collect()
}

/// Compares what our stack sends in a case with what was recorded, and the difference with the one that the case has.
fn compare(plan: &Plan<'_>, recorded: &Transcript) -> Result<(), String> {
    let played = play(plan)?;
    let [theirs, ours] = differences(&recorded.0, &played.0);
    let is_same = theirs.is_empty() && ours.is_empty();
    let Some(known) = &plan.differs else {
        let (theirs, ours) = (lines(theirs), lines(ours));
        return if is_same { Ok(()) } else { Err(format!("recorded:{theirs}\n  ours:{ours}")) };
    };
    if is_same {
        return Err(format!("it does not differ any more: {}", known.reason));
    }
    match differences(&known.ours, ours) {
        [[], []] => Ok(()),
        _ => {
            Err(format!("another difference:{}\n  instead of:{}", lines(ours), lines(&known.ours)))
        }
    }
}

#[test]
fn our_stack_answers_as_recorded() {
    let (_, mut recorded) = recording();
    let cases = cases();
    let mut failed = String::new();
    for plan in plans(&cases) {
        let recorded = recorded.remove(plan.name).unwrap_or_default();
        if let Err(why) = compare(&plan, &recorded) {
            let _ = write!(failed, "\n{}\n  {why}\n", plan.name);
        }
    }
    assert!(failed.is_empty(), "{failed}");
    assert!(recorded.is_empty(), "recorded, but no case: {:?}", recorded.keys());
    assert!(cases.len() >= 40, "{} cases", cases.len());
}

/// Asks the kernel again. The recording has to be that of a kernel of the same series; another one may have changed, so
/// that its differences are only printed.
#[test]
fn the_kernel_answers_as_recorded() {
    let (release, recorded) = recording();
    let cases = cases();
    let plans = plans(&cases);
    let mut failed = String::new();
    for _ in 0..ATTEMPTS {
        let kernel = testkit::or_skip!(Kernel::new());
        let Some(answers) = kernel.record(&plans).expect("a recording") else { continue };
        failed.clear();
        for (plan, answers) in plans.iter().zip(&answers) {
            let before = recorded.get(plan.name).map_or(&[][..], |recorded| &recorded.0);
            let [before, now] = differences(before, &answers.0).map(lines);
            if before != now {
                let _ = write!(failed, "\n{}\n  recorded:{before}\n  now:{now}\n", plan.name);
            }
        }
        if failed.is_empty() {
            return;
        }
    }
    let now = kernel::release();
    let series = |release: &str| release.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    assert!(failed.is_empty() || series(release) != series(&now), "{failed}");
    eprintln!(
        "this machine is too busy, or Linux {now} answers otherwise than {release}:\n{failed}"
    );
}

/// Writes `linux.txt`.
#[test]
#[ignore = "writes a file of the repository, as root"]
fn record() {
    let cases = cases();
    let plans = plans(&cases);
    let answers = Kernel::new().expect("root may").record(&plans).expect("a recording");
    let answers = answers.expect("a quiet machine");
    let mut text = format!(
        "# What the TCP of Linux answered to `cases.txt`, with the milliseconds since each case began. `mod.rs` says how it\n\
         # is written.\n\nkernel {}\n",
        kernel::release()
    );
    for (plan, transcript) in plans.iter().zip(&answers) {
        let _ = write!(text, "\ncase {}\n", plan.name);
        for entry in &transcript.0 {
            let _ = writeln!(text, "{entry}");
        }
    }
    fs::write(LINUX_FILE, text).expect("the file is ours");
}

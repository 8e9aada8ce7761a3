//! The command as users run it: suites in quick mode, ctrl-C, reports, comparisons, bad arguments.

use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;

use rustix::process::{Pid, Signal, kill_process};
use samum_bench::run::Run;
use samum_bench::{events, os};

fn bench(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_samum-bench"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("samum-bench runs")
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Tests that measure at some of their steps, the last among them.
const SAMPLED: [&str; 5] = ["memory", "wakeup", "cpu", "active", "sigio-overflow"];

/// Runs a suite in quick mode. Each test must have rows to its last step or a reason, and every file
/// must exist.
fn check_suite(suite: &str, tests: &[samum_bench::Test]) {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), &[suite, "--quick", "--out", "run", "--host", "here"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let run = Run::load(&dir.path().join("run")).unwrap();
    assert_eq!(run.meta.tests.len(), tests.len());
    for test in tests {
        let about = test.about();
        let ran = run.meta.tests.iter().find(|ran| ran.about.name == about.name).unwrap();
        let reasons = ran.skipped.iter().map(|skipped| &skipped.why);
        for reason in reasons.clone() {
            crate::reasons::accept(&about.name, reason);
        }
        assert!(
            !about.title.is_empty() && !about.title.ends_with('?') && !about.scales.is_empty(),
            "{}",
            about.name
        );
        let points: usize = run.of(&about.name).map(|series| series.points.len()).sum();
        assert!(points > 0 || reasons.count() > 0, "{} has neither rows nor reason", about.name);
        let notes = &ran.notes;
        assert!(notes.iter().all(|note| !note.contains("ended at")), "{}: {notes:?}", about.name);
        // "50 of 100 steps: ...": no more fit into the machine.
        let is_short = notes.iter().any(|note| {
            note.split_once(" of ").is_some_and(|(fit, _)| fit.parse::<usize>().is_ok())
        });
        for series in run.of(&about.name) {
            let is_whole = if SAMPLED.contains(&&about.name[..]) {
                let same = run.of(&about.name).all(|s| s.points.len() == series.points.len());
                same && series.points.last().is_some_and(|point| point.0 >= ran.steps as f64)
            } else {
                series.points.len() == ran.steps
            };
            assert!(is_short || is_whole, "of {} steps: {series:?}", ran.steps);
            let is_sound = |(step, value): &(f64, f64)| *step >= 1.0 && value.is_finite();
            assert!(series.points.iter().all(is_sound), "{series:?}");
            // Memory of the whole machine may shrink meanwhile; times and numbers may not be negative.
            let is_memory = series.unit == samum_bench::Unit::Bytes;
            assert!(is_memory || series.points.iter().all(|point| point.1 >= 0.0), "{series:?}");
        }
    }
    assert_eq!(run.meta.binaries[0].name, "samum-bench");
    assert!(summary_has_origin(&run, &dir.path().join("run")));
    assert!(run.meta.noise.is_some() && run.meta.clock.monotonic > 0.0);
    let summary = fs::read_to_string(dir.path().join("run/summary.md")).unwrap();
    let page = fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    for test in tests {
        assert!(summary.contains(&format!("| {} |", test.about().name)));
        assert!(page.contains(&format!("id=\"{}\"", test.about().name)));
    }
    assert!(page.contains("<svg"));
    for address in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!page.contains(address), "the page is not self-contained: {address}");
    }
    assert!(fs::read_dir(dir.path().join("run")).unwrap().any(|entry| {
        entry.unwrap().path().extension().is_some_and(|extension| extension == "svg")
    }));
}

/// Returns whether summary and page show the commit and the hash of the measuring program.
fn summary_has_origin(run: &Run, dir: &Path) -> bool {
    let hash = &run.meta.binaries[0].sha256;
    let commit = run.meta.tree.as_ref().map_or("commit not recorded", |tree| &tree.commit[..12]);
    ["summary.md", "report.html"].iter().all(|file| {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        hash.len() == 64 && text.contains(&hash[..12]) && text.contains(commit)
    })
}

#[test]
fn every_test_of_os_runs_in_quick_mode() {
    check_suite("os", &os::tests());
}

#[test]
fn every_test_of_events_runs_in_quick_mode() {
    check_suite("events", &events::tests());
}

#[test]
fn bad_arguments_are_a_sentence_and_exit_2() {
    let dir = tempfile::tempdir().unwrap();
    let bad: [&[&str]; 7] = [
        &[],
        &["nonsense"],
        &["os", "nonsense"],
        &["os", "--steps", "1"],
        &["events", "--steps", "x"],
        &["report"],
        &["compare", "only-one"],
    ];
    for arguments in bad {
        let output = bench(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "and nothing was begun");
}

#[test]
fn failures_while_running_are_a_sentence_and_exit_1() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let bad: [(&[&str], &str); 6] = [
        (&["instructions", "--check", "file"], "file: there is no table of instructions in it"),
        (&["instructions", "--check", "missing"], "missing: No such file"),
        (&["report", "empty"], "empty is not the directory of a run: meta.json"),
        (&["compare", "empty", "empty"], "meta.json"),
        (&["os", "open", "--quick", "--out", "file"], "cannot make the directory file"),
        (&["os", "read", "--quick", "--temp", "nowhere"], "--temp DIR names another"),
    ];
    for (arguments, part) in bad {
        let output = bench(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}

#[test]
fn instructions_are_not_counted_where_a_driver_is_forbidden() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samum-bench"));
    testkit::forbid_io_uring(command.arg("instructions"));
    let output = command.output().expect("samum-bench runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with("skipped: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_list_names_every_test() {
    let dir = tempfile::tempdir().unwrap();
    let list = text(&bench(dir.path(), &["os", "--list"]).stdout);
    for test in os::tests() {
        assert!(list.lines().any(|line| line.starts_with(&format!("{} ", test.about().name))));
    }
}

#[test]
fn a_directory_is_named_by_date_and_host_and_never_written_into_twice() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let output = bench(dir.path(), &["os", "open", "--quick", "--host", "a b/c"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let names: Vec<_> = fs::read_dir(dir.path().join("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.contains("-a_b_c")), "{names:?}");
    let again = ["os", "open", "--quick", "--out", &format!("runs/{}", names[0])];
    assert_eq!(bench(dir.path(), &again).status.code(), Some(1));
}

#[test]
fn json_is_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), &["os", "open", "--quick", "--json", "--out", "run"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["meta"]["suite"], "os");
    assert_eq!(json["verdicts"][0]["test"], "open");
    assert!(json["verdicts"][0]["spread"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let temp = dir.path().join("temp");
    fs::create_dir(&temp).unwrap();
    let arguments =
        ["os", "timeout", "directory", "--steps", "200000", "--out", "run", "--temp", "temp"];
    let child = Command::new(env!("CARGO_BIN_EXE_samum-bench"))
        .args(arguments)
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The first test makes many files. The second one has not begun while there are only so few.
    let files = || {
        let dirs = fs::read_dir(&temp).unwrap().filter_map(Result::ok);
        dirs.filter_map(|dir| fs::read_dir(dir.path()).ok()).map(Iterator::count).sum::<usize>()
    };
    let begun = (0..3000).any(|_| {
        sleep(Duration::from_millis(10));
        files() > 1000
    });
    assert!(begun, "the test never began: {} files", files());
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let run = Run::load(&dir.path().join("run")).unwrap();
    assert!(run.meta.interrupted);
    assert!(run.of("directory").any(|series| series.points.len() > 10));
    let second = &run.meta.tests[1];
    assert!(second.skipped[0].why.contains("interrupted"), "{second:?}");
    assert!(dir.path().join("run/report.html").exists());
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "files are left");
}

#[test]
fn damaged_runs_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), &["os", "open", "--quick", "--out", "whole"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |file: &str| fs::read_to_string(dir.path().join("whole").join(file)).unwrap();
    let (meta, raw) = (read("meta.json"), read("raw.csv"));
    let head = "test,system,series,step,value,unit\n";
    let mut other: serde_json::Value = serde_json::from_str(&meta).unwrap();
    other["tests"] = serde_json::json!([]);
    fs::create_dir(dir.path().join("run")).unwrap();
    for (meta, raw, wrong) in [
        ("", &raw[..], "meta.json is empty"),
        ("{}", &raw, "meta.json is not what was written (missing field"),
        (&other.to_string(), &raw, "meta.json names no test"),
        (&meta[..meta.len() / 2], &raw, "meta.json is not what was written (EOF"),
        (&meta, "", "raw.csv is empty"),
        (&meta, "hello\n", "raw.csv does not begin with the line test,system"),
        (&meta, head, "raw.csv has no rows, and meta.json has no reason"),
        (&meta, &raw[..raw.len() - 2], "raw.csv is cut off"),
        (&meta, &format!("{head}open,a,b,1,fast,ns\n"), "raw.csv is not what was written (CSV"),
        (&meta, &format!("{head}open,a,b,NaN,1,ns\n"), "raw.csv has a row of open at the step NaN"),
        (&meta, &format!("{head}fork,a,b,1,1,ns\n"), "raw.csv has rows of 'fork', a test that"),
    ] {
        fs::write(dir.path().join("run/meta.json"), meta).unwrap();
        fs::write(dir.path().join("run/raw.csv"), raw).unwrap();
        for arguments in [
            &["report", "run"][..],
            &["report", "whole", "run"],
            &["compare", "whole", "run"],
            &["readme", "run"],
        ] {
            let output = bench(dir.path(), arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}, {wrong}: {said}");
            assert!(said.contains("the run run is damaged: "), "{said}");
            assert!(said.contains(wrong) && said.contains("or measure again"), "{wrong}: {said}");
        }
    }
    assert!(!dir.path().join("report.html").exists());
    fs::remove_file(dir.path().join("run/raw.csv")).unwrap();
    fs::write(dir.path().join("run/meta.json"), meta).unwrap();
    let said = text(&bench(dir.path(), &["report", "run"]).stderr);
    assert!(said.contains("the run run is damaged: raw.csv is missing"), "{said}");
}

#[test]
fn a_run_without_tables_of_the_readme_is_told() {
    let dir = tempfile::tempdir().unwrap();
    assert!(bench(dir.path(), &["os", "open", "--quick", "--out", "one"]).status.success());
    let file = dir.path().join("README.md");
    fs::write(&file, "kept").unwrap();
    for arguments in [&["readme", "one"][..], &["readme", "one", "--into", "README.md"]] {
        let output = bench(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
        let said = text(&output.stderr);
        assert!(said.contains("no table of README.md or docs/measurements.md is of one"), "{said}");
        assert!(said.contains("samum-bench league"), "{said}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

#[test]
fn several_runs_are_overlaid_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    for run in ["one", "two"] {
        let output = bench(dir.path(), &["os", "open", "--quick", "--out", run]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    // The second machine opens files half as fast, exactly, and is quiet.
    let (one, mut two) =
        (Run::load(&dir.path().join("one")).unwrap(), Run::load(&dir.path().join("two")).unwrap());
    two.series.clone_from(&one.series);
    let open = two.series.iter_mut().find(|series| series.series == "open").unwrap();
    open.points.iter_mut().for_each(|point| point.1 *= 2.0);
    two.meta.noise.clone_from(&one.meta.noise);
    two.save(&dir.path().join("two")).unwrap();

    assert!(bench(dir.path(), &["report", "one", "two", "--out", "both.html"]).status.success());
    let page = fs::read_to_string(dir.path().join("both.html")).unwrap();
    assert!(page.contains("/dev/null, open, one") && page.contains("/dev/null, open, two"));

    let table = text(&bench(dir.path(), &["compare", "one", "two"]).stdout);
    let line = |series: &str| {
        let part = format!("| {series} |");
        table.lines().find(|line| line.contains(&part)).unwrap_or_else(|| panic!("{table}"))
    };
    assert!(line("dup").ends_with("| noise |"), "{table}");
    assert!(line("open").contains("| 2.000 |"), "{table}");
    let json = bench(dir.path(), &["compare", "one", "two", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), one.series.len());
}

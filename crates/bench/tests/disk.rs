//! `samum-bench disk`: every strategy delivers every byte, and the command keeps its promises.

use core::time::Duration;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use clap::ValueEnum as _;
use samum_bench::disk::sender::{HOT_BYTES, Strategy};
use samum_bench::load::{self, Order, Plan, Target};
use samum_bench::run::Run;

const US: &str = env!("CARGO_BIN_EXE_samum-bench");

/// Zero bytes, pages, pieces of 256 KiB, and turns of 1 MiB, and a byte more or less of each.
const SIZES: [usize; 13] = [
    0,
    1,
    4095,
    4096,
    4097,
    (256 << 10) - 1,
    256 << 10,
    (256 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    3_000_001,
    (5 << 20) + 4096,
];

/// A sender as a process; ended when dropped.
struct Sender(Child);

impl Drop for Sender {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a sender; `None`, and why, when it cannot run here.
fn start(strategy: Strategy, root: &Path) -> Result<(Sender, Plan), String> {
    let port = free_port();
    let mut command = Command::new(US);
    command.args(["disk-sender", "--strategy", &strategy.name(), "--port", &port.to_string()]);
    let child = command.arg(root).stderr(Stdio::piped()).spawn().unwrap();
    let mut sender = Sender(child);
    let address = ([127, 0, 0, 1], port).into();
    let end = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(address).is_err() {
        if sender.0.try_wait().unwrap().is_some() {
            let mut said = String::new();
            std::io::Read::read_to_string(&mut sender.0.stderr.take().unwrap(), &mut said).unwrap();
            return Err(said);
        }
        assert!(Instant::now() < end, "{} does not listen", strategy.name());
        thread::sleep(Duration::from_millis(10));
    }
    let plan = Plan {
        warmup: Duration::ZERO,
        duration: Duration::from_secs(60),
        connections: 6,
        ..Plan::new(address, Vec::new())
    };
    Ok((sender, plan))
}

/// Each file twice, so that the second may meet what the first has left half read.
#[test]
fn every_strategy_delivers_every_byte() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut targets = Vec::new();
    for (i, size) in SIZES.into_iter().enumerate() {
        let mut body = vec![0; size];
        random.fill(&mut body);
        fs::write(dir.path().join(i.to_string()), &body).unwrap();
        let (len, body) = (Some(size as u64), Some(Arc::from(body)));
        targets.extend(vec![Target { len, body, ..Target::new(format!("/{i}")) }; 2]);
    }
    let hot: Arc<[u8]> = vec![b'h'; HOT_BYTES].into();
    targets.push(Target { len: Some(HOT_BYTES as u64), body: Some(hot), ..Target::new("/hot") });
    let total: u64 = targets.iter().filter_map(|target| target.len).sum();
    for &strategy in Strategy::value_variants() {
        for i in 0..SIZES.len() {
            // Pipes of the strategy before may still hold some pages.
            testkit::evict_unused(dir.path().join(i.to_string()));
        }
        let (_sender, plan) = match start(strategy, dir.path()) {
            Ok(started) => started,
            Err(why) => {
                crate::reasons::accept(&strategy.name(), &why);
                continue;
            }
        };
        let plan = Plan { order: Order::Once, targets: targets.clone(), ..plan };
        let account = load::measure(&plan).unwrap();
        let name = strategy.name();
        assert_eq!(account.failures(), "", "{name}");
        assert_eq!((account.answered, account.bytes), (targets.len() as u64, total), "{name}");
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let (_sender, plan) = start(Strategy::Sendfile, dir.path()).unwrap();
    let plan = Plan { order: Order::Once, targets: vec![Target::new("/none")], ..plan };
    assert_eq!(load::measure(&plan).unwrap().failures(), "1 status not 200");
}

fn disk(args: &[&str]) -> Output {
    Command::new(US).arg("disk").args(args).output().unwrap()
}

#[test]
fn a_quick_run_makes_a_run_and_removes_the_rest() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (root, out) = (dir.path().join("root"), dir.path().join("out"));
    fs::create_dir(&root).unwrap();
    let args = ["--quick", "--root", root.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let more = ["--strategies", "sendfile,sf-nodiskio,samum-epoll", "--secs", "0.3"];
    let output = disk(&[&args[..], &more].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "files are left");
    let run = Run::load(&out).unwrap();
    let names: Vec<_> = run.meta.tests.iter().map(|ran| &ran.about.name[..]).collect();
    assert_eq!(names, ["bytes", "slow", "fast", "receive", "send"]);
    for skipped in run.meta.tests.iter().flat_map(|ran| &ran.skipped) {
        crate::reasons::accept(&skipped.system, &skipped.why);
    }
    for name in ["fast", "receive", "send"] {
        assert!(run.of(name).any(|series| !series.points.is_empty()), "{name} has no points");
    }
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<svg"));
}

#[test]
fn bad_arguments_are_a_sentence_and_2() {
    for args in [
        &["--root", "/does/not/exist"][..],
        &["--root", "/tmp", "--strategies", "prayer"],
        &["--root", "/tmp", "--rate", "0"],
        &["--root", "/tmp", "nonsense"],
        &["--secs", "1e300"],
        &["--requests", "1e9"],
    ] {
        let output = disk(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

/// ctrl-C ends it soon; the measurements are kept, the files are removed.
#[test]
fn an_interrupted_run_cleans_up() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (root, out) = (dir.path().join("root"), dir.path().join("out"));
    fs::create_dir(&root).unwrap();
    let mut command = Command::new(US);
    command.args(["disk", "fast", "--bytes", "67108864", "--rounds", "1000", "--root"]);
    let child = command.arg(&root).arg("--out").arg(&out).stdout(Stdio::null()).spawn().unwrap();
    let mut child = Sender(child);
    let end = Instant::now() + Duration::from_secs(20);
    while fs::read_dir(&root).unwrap().count() == 0 {
        assert!(Instant::now() < end, "nothing is made");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_secs(1));
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "files are left");
    assert!(Run::load(&out).unwrap().meta.interrupted);
}

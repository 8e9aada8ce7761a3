//! Downloads by the kernel's TCP from samum's own over paths that lose, delay, reorder and repeat frames. A seed
//! decides on the fates of the frames, but not on the moments at which the kernel sends them.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

use netstack::sim::{Burst, Conditions};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Content, Tree, or_skip, tether};

use crate::common::{SOON, request, wait_until};
use crate::net::{Frames, Net};
use crate::{addresses, connect, path};

pub(crate) const SEED: u64 = 1;

/// Bytes that a client checks in one step.
const PART_BYTES: usize = 64 * 1024;

/// The same to the server and back: 2 % of the frames are lost.
pub(crate) const LOSSY: Conditions = Conditions {
    loss: 0.02,
    duplicate: 0.01,
    reorder: (0.02, Duration::from_millis(3)),
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(1),
    burst: None,
    corrupt: 0.0,
    rate: None,
    queue_bytes: usize::MAX,
    mark_bytes: None,
    policer: None,
    bunch: Duration::ZERO,
    mtu: 1500,
    says_too_large: true,
    strips: 0,
};

/// Downloads `/f` on this many connections at the same time, and checks each byte.
fn download(net: &Net, clients: usize, file: &[u8]) {
    assert_eq!(download_unless_reset(net, clients, file), 0, "connections were reset");
}

/// The same; returns the number of connections that the server has reset before their end.
fn download_unless_reset(net: &Net, clients: usize, file: &[u8]) -> usize {
    let begins = Barrier::new(clients);
    let resets = AtomicUsize::new(0);
    net.as_client(|| {
        thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    begins.wait();
                    let mut client = connect(addresses()[0]);
                    client.send(request("GET /f\nConnection: close")).unwrap();
                    assert_eq!(client.head().unwrap().status, 200);
                    for part in file.chunks(PART_BYTES) {
                        match client.read_exactly(part.len()) {
                            Ok(bytes) => assert!(bytes == part, "other bytes"),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                                resets.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                        }
                    }
                    assert_eq!(client.read_to_end().unwrap(), b"");
                });
            }
        });
    });
    resets.into_inner()
}

/// The lines of a log about responses that were cut.
fn cuts(log: &str) -> String {
    log.lines().filter(|line| line.contains(r#""cut""#)).map(|line| format!("\n{line}")).collect()
}

/// A thousand clients want more memory than a worker has for them. Those to which nothing gets through for 10 s are then
/// closed, which the losses cause where the machine is busy, too. The log names each of them.
#[test]
fn a_thousand_downloads_over_a_path_that_loses_two_percent() {
    const CLIENTS: usize = 1000;
    let file = Content::pseudo_random(5, 1024 * 1024);
    let tree = Tree::new().file("f", file.clone());
    let logs = Tree::new();
    for frames in [Frames::Packet, Frames::Xdp] {
        eprintln!("frames: {frames:?}");
        let mut net = or_skip!(Net::across(frames, [LOSSY; 2], SEED));
        let log = format!("{}/{frames:?}.log", path(&logs));
        let _server = net.serve(path(&tree), &["--log", &log, "--log-format", "json"]);
        let resets = download_unless_reset(&net, CLIENTS, &file.to_vec());
        assert!(resets <= CLIENTS / 2, "{frames:?}: {resets} connections were reset");
        let log = || std::fs::read_to_string(&log).unwrap();
        let is_logged = || log().matches(r#""cut":"timeout""#).count() == resets;
        assert!(wait_until(SOON, is_logged), "{frames:?}: {resets} resets, but {}", cuts(&log()));
        let fates = net.stop();
        assert!(fates[1].lost > 10_000, "{frames:?}: {fates:?}");
    }
}

/// A path of its own for each algorithm, both at the same time, so that a busy machine slows both down. How fast each
/// is, is in netstack's table `throughput.txt`.
#[test]
fn bbr_is_faster_than_cubic_where_losses_are_of_chance() {
    let file = Content::pseudo_random(7, 8 * 1024 * 1024);
    let tree = Tree::new().file("f", file.clone());
    let expected = file.to_vec();
    let there = Conditions {
        delay: Duration::from_millis(20),
        rate: Some(5_000_000),
        queue_bytes: 200_000,
        mtu: 1500,
        ..Conditions::default()
    };
    let paths = [there, Conditions { loss: 0.01, ..there }];
    let mut bbr = or_skip!(Net::across(Frames::Packet, paths, SEED));
    let cubic = or_skip!(Net::across(Frames::Packet, paths, SEED));
    let _servers = [(&bbr, "bbr"), (&cubic, "cubic")]
        .map(|(net, name)| net.serve(path(&tree), &["--congestion", name]));
    let is_over = AtomicBool::new(false);
    let slower = thread::scope(|scope| {
        let slower = scope.spawn(|| {
            cubic.as_client(|| {
                let mut client = connect(addresses()[0]);
                client.send(request("GET /f")).unwrap();
                client.head().unwrap();
                let mut parts = expected.chunks(PART_BYTES);
                while !is_over.load(Ordering::Relaxed)
                    && let Some(part) = parts.next()
                {
                    assert!(client.read_exactly(part.len()).unwrap() == part, "other bytes");
                }
                expected.len() - parts.map(<[u8]>::len).sum::<usize>()
            })
        });
        download(&bbr, 1, &expected);
        is_over.store(true, Ordering::Relaxed);
        slower.join().unwrap()
    });
    let fates = bbr.stop();
    assert!(fates[1].lost > 20, "{fates:?}");
    eprintln!("CUBIC has got {slower} bytes meanwhile");
    // About a fifth on an idle machine.
    assert!(slower < expected.len() / 2, "{slower} bytes of {}", expected.len());
}

#[test]
fn downloads_over_a_path_that_loses_frames_in_bursts() {
    let file = Content::pseudo_random(6, 300_000);
    let tree = Tree::new().file("f", file.clone());
    // A tenth of all frames come in a bad time, of ten frames on average, which loses a third of them.
    let burst = Burst { begin: 0.01, end: 0.1, loss: 0.33 };
    let bursty = Conditions { loss: 0.0, burst: Some(burst), ..LOSSY };
    for frames in Frames::ALL {
        eprintln!("frames: {frames:?}");
        let mut net = or_skip!(Net::across(frames, [LOSSY, bursty], SEED));
        let _server = net.serve(path(&tree), &[]);
        download(&net, 30, &file.to_vec());
        let fates = net.stop();
        assert!(fates[1].lost > 100, "{fates:?}");
    }
}

/// Records the frames of the client's interface while something is done; the error says why that is not possible.
fn record<T>(net: &Net, file: &str, act: impl FnOnce() -> T) -> Result<T, String> {
    // dumpcap comes with tshark. It names its file once it records.
    let mut command = net.at_client("dumpcap");
    command.args(["-q", "-i", "cli", "-B", "64", "-w", file]);
    let child = tether(command.stderr(Stdio::piped())).spawn();
    let mut child = child.map_err(|error| format!("dumpcap: {error}"))?;
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("File: ") {
        if messages.read_line(&mut said).unwrap() == 0 {
            return Err(format!("dumpcap cannot record: {said}{}", child.wait().unwrap()));
        }
    }
    let done = act();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    Ok(done)
}

/// The number of frames with TCP that `tshark` finds in a whole record; the error says why it cannot run.
pub(crate) fn frames(record: &str) -> Result<usize, String> {
    let output = Command::new("tshark").args(["-n", "-r", record, "-Y", "tcp"]).output();
    let output = output.map_err(|error| format!("tshark: {error}"))?;
    // It also fails if the record is cut off.
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout).unwrap().lines().count())
}

/// The frames of a record that `tshark` finds wrong; the error says why it cannot run. Checksums that the interface
/// fills in are not complete in a record of samum's.
fn wrong_frames(record: &str, has_checksums: bool) -> Result<Vec<String>, String> {
    let is_checked = if has_checksums { "TRUE" } else { "FALSE" };
    let run = |filter: &str| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r", record, "-o", &format!("tcp.check_checksum:{is_checked}")]);
        command.args(["-o", "ip.check_checksum:TRUE", "-Y", filter, "-T", "fields"]);
        for field in ["frame.number", "_ws.col.Info", "_ws.expert.message"] {
            command.args(["-e", field]);
        }
        // It takes retransmissions for an error of the reassembly.
        command.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
        let output = command.output().map_err(|error| format!("tshark: {error}"))?;
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        Ok::<_, String>(lines.lines().map(ToOwned::to_owned).collect::<Vec<_>>())
    };
    let all = run("tcp.srcport == 80")?;
    assert!(all.len() > 100, "{} segments", all.len());
    // 8388608 is the severity of errors, and 0 a checksum that is wrong. Where the kernel completes a checksum it writes
    // 0xffff for 0 (`skb_checksum_help`): a receiver's sum is the same, but tshark calls it wrong.
    run(
        "(_ws.malformed || _ws.expert.severity == 8388608 || tcp.checksum.status == 0 || ip.checksum.status == 0) \
         && !(tcp.checksum == 0xffff)",
    )
}

#[test]
fn tshark_finds_nothing_malformed() {
    let file = Content::pseudo_random(8, 200_000);
    let tree = Tree::new().file("f", file.clone());
    for frames in Frames::ALL {
        eprintln!("frames: {frames:?}");
        let net = or_skip!(Net::across(frames, [LOSSY; 2], SEED));
        let directory = Tree::new();
        let [ours, theirs] = ["ours", "theirs"].map(|name| format!("{}/{name}", path(&directory)));
        let mut server = net.serve(path(&tree), &["--pcap", &ours, "--pcap-size", "100m"]);
        or_skip!(record(&net, &theirs, || download(&net, 20, &file.to_vec())));
        assert!(server.terminate().unwrap().success());
        assert_eq!(or_skip!(wrong_frames(&ours, false)), Vec::<String>::new());
        assert_eq!(or_skip!(wrong_frames(&theirs, true)), Vec::<String>::new());
    }
}

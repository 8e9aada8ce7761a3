//! Wireshark reads captures as they were meant.

use std::io::Write as _;
use std::process::Command;

use netstack::capture::Capture;
use netstack::channel::{Batch, Channel, Filter};
use netstack::{Frame, Time};

const FRAME_BYTES_MAX: usize = 60;

/// A segment from port 80 to port 4000, with right checksums.
const HEAD: [u8; 54] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
    0x45, 2, 0, 43, 0, 0, 0x40, 0, 64, 6, 0x4e, 0x8f, 192, 0, 2, 1, 198, 51, 100, 7, // IPv4
    0, 80, 0x0f, 0xa0, 0, 0, 3, 0xe8, 0, 0, 7, 0xd0, 0x50, 0x18, 1, 0xf4, 0xe1, 0x8e, 0,
    0, // TCP
];

#[test]
fn tshark_reads_what_was_written() {
    if Command::new("tshark").arg("--version").output().is_err() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!is_ci, "this test may not be skipped in CI: tshark is not installed");
        eprintln!("skipped: tshark is not installed");
        return;
    }
    // 2026-01-02 03:04:05 UTC.
    let mut capture = Capture::new("test0", 60, 1_767_323_045_000_000_000);
    let mut file = Vec::new();
    capture.begin(&mut file);
    let mut channel = Channel::new(Filter::default(), FRAME_BYTES_MAX, |batch: Batch<'_>| {
        for frame in batch.frames() {
            capture.write(&frame, &mut file);
        }
    });
    let request = [&HEAD[..], b"abc"].concat();
    channel.received(Time::from_nanos(123_456_789), &request);
    let parts: &[&[u8]] = &[b"a", b"bc"];
    let frame = Frame { head: &HEAD, parts, segment_bytes: None, checksum: None };
    channel.sent(Time::from_nanos(1_000_000_001), &frame);
    channel.received(Time::from_nanos(2_000_000_000), &[0xff; 1000]);
    channel.flush();

    let directory = std::env::temp_dir().join(format!("netstack-capture-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("capture.pcapng");
    std::fs::File::create(&path).unwrap().write_all(&file).unwrap();
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-E", "separator=,", "-o", "tcp.check_checksum:TRUE"])
        .args(["-o", "ip.check_checksum:TRUE", "-r"])
        .arg(&path)
        .args(["-e", "frame.time_epoch", "-e", "frame.interface_name", "-e", "frame.len"])
        .args(["-e", "frame.cap_len", "-e", "frame.packet_flags_direction", "-e", "tcp.srcport"])
        .args(["-e", "tcp.payload", "-e", "ip.checksum.status", "-e", "tcp.checksum.status"])
        .output()
        .unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "\
        1767323045.123456789,test0,57,57,0x00000001,80,616263,1,1\n\
        1767323046.000000001,test0,57,57,0x00000002,80,616263,1,1\n\
        1767323047.000000000,test0,1000,60,0x00000001,,,,\n";
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

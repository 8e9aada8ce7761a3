//! Files as ffmpeg writes them. Each is the same film: 20 s, a picture that moves, a tone.

use std::fs;
use std::path::Path;
use std::process::Command;

use media::{Layout, Probe, TABLE_BYTES_MAX};
use testkit::Tree;

/// The duration of the film.
const SECONDS: u64 = 20;

/// The files that ffmpeg makes of the film, and the number of reads that a probe may need.
const FILES: [(&str, &[&str], usize); 8] = [
    ("end.mp4", &["-c:v", "mpeg4", "-c:a", "aac"], 3),
    ("faststart.mp4", &["-c:v", "mpeg4", "-c:a", "aac", "-movflags", "+faststart"], 2),
    (
        "fragmented.mp4",
        &["-c:v", "mpeg4", "-c:a", "aac", "-movflags", "+frag_keyframe+empty_moov"],
        3,
    ),
    (
        "indexed.mp4",
        &["-c:v", "mpeg4", "-c:a", "aac", "-movflags", "+dash+frag_keyframe+global_sidx"],
        2,
    ),
    ("sound.m4a", &["-vn", "-c:a", "aac"], 3),
    ("behind.mkv", &["-c:v", "mpeg4", "-c:a", "aac"], 2),
    ("front.mkv", &["-c:v", "mpeg4", "-c:a", "aac", "-cues_to_front", "1"], 1),
    ("film.webm", &["-c:v", "libvpx", "-b:v", "200k", "-deadline", "realtime", "-an"], 2),
];

fn probe(file: &[u8]) -> (Layout, usize) {
    let (layout, reads) = probe_any(file);
    (layout.expect("a film"), reads)
}

/// The layout, if the file is a container, and the number of reads.
fn probe_any(file: &[u8]) -> (Option<Layout>, usize) {
    let mut probe = Probe::new(file.len() as u64);
    let mut reads = 0;
    while let Some(range) = probe.wants() {
        let place = |at| usize::try_from(at).unwrap();
        probe.handle_bytes(&file[place(range.start)..place(range.end)]);
        reads += 1;
    }
    (probe.into_layout(), reads)
}

/// Makes a file; fails with the last line that ffmpeg prints.
fn make(path: &Path, options: &[&str]) -> Result<Vec<u8>, String> {
    let pictures = format!("testsrc=size=320x180:rate=10:duration={SECONDS}");
    make_of(&pictures, path, options)
}

/// The same with other pictures.
fn make_of(pictures: &str, path: &Path, options: &[&str]) -> Result<Vec<u8>, String> {
    let tone = format!("sine=duration={SECONDS}");
    let inputs = ["-f", "lavfi", "-i", pictures, "-f", "lavfi", "-i", &tone];
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-y"])
        .args(inputs)
        .args(["-g", "20"])
        .args(options)
        .arg(path)
        .output()
        .map_err(|error| format!("no ffmpeg: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("ffmpeg failed").to_owned());
    }
    fs::read(path).map_err(|error| error.to_string())
}

#[test]
fn the_rate_and_the_index_of_each_container_are_found_in_a_few_reads() {
    let dir = std::env::temp_dir().join(format!("media-ffmpeg-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    for (name, options, reads_max) in FILES {
        let made = make(&dir.join(name), options);
        if made.is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
        let file = testkit::or_skip!(made);
        let (layout, reads) = probe(&file);
        layout_is_right(name, &file, &layout);
        assert!(reads <= reads_max, "{name}: {reads} reads");
    }
    fs::remove_dir_all(&dir).unwrap();
}

fn layout_is_right(name: &str, file: &[u8], layout: &Layout) {
    let size = file.len() as u64;
    let rate = layout.bytes_per_second().unwrap_or_else(|| panic!("{name}: {layout:?}"));
    let mean = size / SECONDS;
    // The index is not media, and the last fragment's end is guessed.
    assert!(rate.abs_diff(mean) < mean / 5, "{name}: {rate} instead of {mean}");
    assert!(!layout.index().is_empty(), "{name}");
    // Windows one after the other lead through the film in as many steps as it has seconds.
    let (mut at, mut steps) = (0, 0);
    while at < size {
        at += layout.window(at, 1000).unwrap().max(1);
        steps += 1;
    }
    assert!((SECONDS..=SECONDS + 3).contains(&steps), "{name}: {steps} steps");
}

/// A film with so many pictures that samum does not read their whole table. It still knows the duration, the place of
/// the `moov` and the mean rate.
#[test]
fn of_a_film_with_a_large_moov_the_mean_rate_is_known() {
    let dir = Tree::new();
    let pictures = format!("color=size=16x16:rate=15000:duration={SECONDS}");
    let path = dir.path().join("long.mp4");
    let file = testkit::or_skip!(make_of(&pictures, &path, &["-c:v", "mpeg4", "-c:a", "aac"]));
    let (layout, reads) = probe(&file);
    let index = layout.index();
    assert!(index.len() == 1 && reads <= 4, "{index:?} in {reads} reads");
    let len = index[0].end - index[0].start;
    assert!(len > TABLE_BYTES_MAX, "{len} bytes");
    let place = usize::try_from(index[0].start).unwrap();
    assert_eq!(&file[place + 4..place + 8], b"moov");
    let (rate, mean) = (layout.bytes_per_second().unwrap(), (file.len() as u64 - len) / SECONDS);
    assert!(rate.abs_diff(mean) <= mean / 5, "{rate} instead of {mean}");
}

/// Segments of DASH contain their duration. Segments of HLS are transport streams, which the probe does not know, or
/// have the format of DASH segments. A window of a segment's duration is the whole segment.
#[test]
fn a_segment_is_played_whole() {
    const SEGMENT: u64 = 4;
    let dir = Tree::new();
    let codecs = ["-c:v", "mpeg4", "-c:a", "aac"];
    let (dash, hls) = (dir.path().join("dash.mpd"), dir.path().join("hls.m3u8"));
    testkit::or_skip!(make(&dash, &[&codecs[..], &["-f", "dash", "-seg_duration", "4"]].concat()));
    testkit::or_skip!(make(&hls, &[&codecs[..], &["-f", "hls", "-hls_time", "4"]].concat()));
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    for stream in ["stream0", "stream1"] {
        let init = read(&format!("init-{stream}.m4s"));
        let (layout, reads) = probe(&init);
        assert_eq!((layout.bytes_per_second(), reads), (None, 1), "it has no media");
        for number in 1..=4 {
            let segment = read(&format!("chunk-{stream}-0000{number}.m4s"));
            let (layout, reads) = probe(&segment);
            assert_eq!(reads, 1);
            let size = segment.len() as u64;
            let rate = layout.bytes_per_second().unwrap();
            assert!(rate.abs_diff(size / SEGMENT) < size / SEGMENT / 5, "{rate} of {size}");
            assert_eq!(layout.window(0, (SEGMENT + 1) * 1000), Some(size));
        }
    }
    assert_eq!(probe_any(&read("hls0.ts")), (None, 1));
}

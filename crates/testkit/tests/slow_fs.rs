//! `SlowFs` through the kernel.

use core::time::Duration;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::fs::Advice;
use testkit::{Content, Op, SlowFs, or_skip, skip};

const DELAY: Duration = Duration::from_millis(100);
/// A delay that does not pass while a test runs.
const LIMIT: Duration = Duration::from_secs(10);

const EIO: i32 = 5;

#[test]
fn files_are_as_built() {
    let big = Content::pseudo_random(1, 3 * 1024 * 1024 + 5);
    let slow = SlowFs::builder()
        .file("index.html", "hello")
        .file("a/b/big.bin", big.clone())
        .directory("a/empty");
    let slow = or_skip!(slow.mount());
    assert_eq!(fs::read(slow.path().join("index.html")).unwrap(), b"hello");
    big.assert_is(&fs::read(slow.path().join("a/b/big.bin")).unwrap());
    assert_eq!(fs::metadata(slow.path().join("a/b/big.bin")).unwrap().len(), big.len());
    assert!(fs::metadata(slow.path().join("a/empty")).unwrap().is_dir());
    let absent = fs::metadata(slow.path().join("a/absent")).unwrap_err();
    assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    assert!(File::create(slow.path().join("new")).is_err(), "it is read-only");
}

#[test]
fn directories_are_listed_in_full() {
    let names: Vec<String> = (0..1000).map(|number| format!("file-{number:04}")).collect();
    let builder = names
        .iter()
        .fold(SlowFs::builder(), |builder, name| builder.file(Path::new("many").join(name), ""));
    let slow = or_skip!(builder.directory("many/z").mount());
    let mut listed: Vec<String> = fs::read_dir(slow.path().join("many"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort();
    assert_eq!(listed.pop().as_deref(), Some("z"));
    assert_eq!(listed, names);
    assert!(slow.count(Op::Readdir) > 1, "too few entries to need a second request");
}

#[test]
fn each_kind_of_request_has_its_delay() {
    let slow = or_skip!(SlowFs::builder().file("a", "hello").delay(Op::Read, DELAY).mount());
    let path = slow.path().join("a");
    let took = |op: Op, act: &dyn Fn()| {
        slow.set_delay(op, DELAY);
        let start = Instant::now();
        act();
        let took = start.elapsed();
        slow.set_delay(op, Duration::ZERO);
        assert!(took >= DELAY, "{op:?} took {took:?}");
    };
    took(Op::Read, &|| assert_eq!(fs::read(&path).unwrap(), b"hello"));
    took(Op::Lookup, &|| assert!(fs::exists(&path).unwrap()));
    took(Op::Open, &|| drop(File::open(&path).unwrap()));
    took(Op::Readdir, &|| assert_eq!(fs::read_dir(slow.path()).unwrap().count(), 1));
    let file = File::open(&path).unwrap();
    took(Op::Getattr, &|| assert_eq!(file.metadata().unwrap().len(), 5));
}

#[test]
fn twenty_slow_reads_sleep_in_parallel() {
    let files = (0..20).map(|number| (number.to_string(), Content::pseudo_random(number, 5000)));
    let files: Vec<_> = files.collect();
    let builder = files
        .iter()
        .fold(SlowFs::builder(), |builder, (name, content)| builder.file(name, content.clone()));
    let slow = or_skip!(builder.delay(Op::Read, DELAY).mount());
    let start = Instant::now();
    thread::scope(|scope| {
        for (name, content) in &files {
            let path = slow.path().join(name);
            scope.spawn(move || content.assert_is(&fs::read(path).unwrap()));
        }
    });
    assert!(start.elapsed() >= DELAY);
    assert!(slow.waiting_max(Op::Read) > 1, "one after the other");
}

#[test]
fn reads_of_one_file_and_lookups_in_one_directory_wait_together() {
    // More than the kernel's default number of background requests.
    const COUNT: usize = 40;
    let content = Content::pseudo_random(9, 64 * 1024 * 1024);
    let builder = SlowFs::builder().file("big", content.clone());
    let slow = or_skip!(builder.delay(Op::Read, Duration::MAX).mount());
    let file = File::open(slow.path().join("big")).unwrap();
    // Without the kernel's own readahead, its limit of background requests takes effect.
    rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
    slow.set_delay(Op::Lookup, Duration::MAX);
    thread::scope(|scope| {
        for number in 0..COUNT {
            let (file, content, slow) = (&file, &content, &slow);
            scope.spawn(move || {
                let (mut piece, offset) = ([0; 4096], (number as u64) << 20);
                file.read_exact_at(&mut piece, offset).unwrap();
                content.assert_at(offset, &piece);
            });
            scope.spawn(move || {
                assert!(!fs::exists(slow.path().join(format!("absent-{number}"))).unwrap());
            });
        }
        let enough = [Op::Read, Op::Lookup].map(|op| slow.wait_until_waiting(op, COUNT, LIMIT));
        // The delay ends before any assertion, because a panic would wait for the threads here.
        slow.set_delay(Op::Lookup, Duration::ZERO);
        slow.set_delay(Op::Read, Duration::ZERO);
        assert_eq!(enough, [true; 2], "reads, lookups");
    });
    assert_eq!(slow.waiting(Op::Read), 0);
    assert!(slow.waiting_max(Op::Read) >= COUNT);
}

#[test]
fn a_slow_file_does_not_slow_another() {
    let slow = SlowFs::builder().file("slow", "s").file("fast", "f").delay(Op::Read, DELAY).mount();
    let slow = or_skip!(slow);
    slow.set_delay(Op::Read, Duration::ZERO);
    slow.set_delay_of("slow", Op::Read, Duration::MAX);
    let path = slow.path().join("slow");
    let reader = thread::spawn(move || fs::read(path).unwrap());
    assert!(slow.wait_until_waiting(Op::Read, 1, LIMIT));
    assert_eq!(fs::read(slow.path().join("fast")).unwrap(), b"f");
    assert!(!reader.is_finished());
    slow.set_delay_of("slow", Op::Read, Duration::ZERO);
    assert_eq!(reader.join().unwrap(), b"s");
}

#[test]
fn reads_fail_and_recover() {
    let content = Content::pseudo_random(4, 1024 * 1024);
    let slow = or_skip!(SlowFs::builder().file("a", content.clone()).file("b", "b").mount());
    let path = slow.path().join("a");
    slow.fail_reads("a");
    assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(fs::read(slow.path().join("b")).unwrap(), b"b");

    slow.fail_reads_from("a", 512 * 1024);
    let mut file = File::open(&path).unwrap();
    let mut good = vec![0; 512 * 1024];
    file.read_exact(&mut good).unwrap();
    content.assert_at(0, &good);
    assert_eq!(file.read(&mut good).unwrap_err().raw_os_error(), Some(EIO));

    slow.mend_reads("a");
    content.assert_is(&fs::read(&path).unwrap());
}

#[test]
fn a_short_file_ends_early() {
    let content = Content::pseudo_random(6, 10_000);
    let slow = or_skip!(SlowFs::builder().short_file("a", content.clone(), 50_000).mount());
    let path = slow.path().join("a");
    assert_eq!(fs::metadata(&path).unwrap().len(), 50_000);
    let mut file = File::open(&path).unwrap();
    let mut bytes = vec![0; 50_000];
    let mut got = 0;
    while let count @ 1.. = file.read(&mut bytes[got..]).unwrap() {
        got += count;
    }
    content.assert_is(&bytes[..got]);
    file.seek(SeekFrom::Start(20_000)).unwrap();
    assert_eq!(file.read(&mut bytes).unwrap(), 0);
}

#[test]
fn nothing_is_cached_by_default() {
    let slow = or_skip!(SlowFs::builder().file("d/a", "hello").mount());
    let path = slow.path().join("d/a");
    for round in 1..=3 {
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        assert_eq!(slow.count(Op::Lookup), 2 * round);
        assert_eq!(slow.count(Op::Open), round);
        assert_eq!(slow.reads("d/a").len(), round);
        assert_eq!(slow.count(Op::Read), round);
    }
    assert_eq!(slow.reads("d/a")[0].start, 0);
}

#[test]
fn names_attributes_and_data_are_cached_when_told_so() {
    let builder = SlowFs::builder().file("d/a", "hello");
    let slow = or_skip!(builder.cache_attributes(LIMIT).keep_data().mount());
    let path = slow.path().join("d/a");
    for _ in 0..3 {
        assert_eq!(fs::read(&path).unwrap(), b"hello");
    }
    assert_eq!(slow.count(Op::Lookup), 2);
    assert_eq!(slow.count(Op::Open), 3);
    assert_eq!(slow.count(Op::Read), 1);
}

#[test]
fn dropping_unmounts() {
    let slow = or_skip!(SlowFs::builder().file("a", "hello").mount());
    let path = slow.path().to_owned();
    assert!(is_mounted(&path));
    drop(slow);
    assert!(!is_mounted(&path));
    assert!(!path.exists());
}

#[test]
fn dropping_unmounts_while_a_file_is_open_and_a_read_sleeps() {
    let content = Content::pseudo_random(8, 100_000);
    let builder = SlowFs::builder().file("a", content.clone()).file("b", "hello");
    let slow = or_skip!(builder.delay(Op::Read, Duration::MAX).mount());
    let path = slow.path().to_owned();
    let mut open = File::open(path.join("a")).unwrap();
    let sleeping = path.join("b");
    let reader = thread::spawn(move || fs::read(sleeping).unwrap());
    assert!(slow.wait_until_waiting(Op::Read, 1, LIMIT));
    drop(slow);
    assert!(!is_mounted(&path));
    assert!(!path.exists());
    assert_eq!(reader.join().unwrap(), b"hello");
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    content.assert_is(&bytes);
}

/// A process that is killed while one of its own threads waits for its own `SlowFs`.
#[test]
fn a_killed_process_leaves_nothing_behind() {
    const IN_CHILD: &str = "TESTKIT_SLOW_FS_CHILD";
    if env::var_os(IN_CHILD).is_some() {
        let builder = SlowFs::builder().file("a", "hello").delay(Op::Read, Duration::MAX);
        let slow = or_skip!(builder.mount());
        writeln!(io::stdout(), "{}", slow.path().display()).unwrap();
        let read = fs::read(slow.path().join("a"));
        unreachable!("{read:?}");
    }
    if !rustix::process::geteuid().is_root() {
        // Without root the child would stay forever (fuse/guard.rs).
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["a_killed_process_leaves_nothing_behind", "--nocapture"])
        .env(IN_CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let path = lines.find(|line| line.starts_with('/'));
    // The child may not have begun to read. Then the test is only easier.
    thread::sleep(DELAY);
    child.kill().unwrap();
    let start = Instant::now();
    while path.as_ref().is_some_and(|path| is_mounted(Path::new(path)) || Path::new(path).exists())
    {
        assert!(start.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(10));
    }
    child.wait().unwrap();
    if path.is_none() {
        skip!("no mount in the child, which has said why");
    }
}

#[test]
#[should_panic(expected = "the SlowFs has no b")]
fn a_misspelled_path_is_noticed() {
    match SlowFs::builder().file("a", "").mount() {
        Ok(slow) => slow.fail_reads("b"),
        // The panic that should_panic expects, because the test cannot end by a return.
        Err(reason) => panic!("skipped ({reason}); the SlowFs has no b"),
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

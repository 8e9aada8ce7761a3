//! File systems that do not know `RWF_NOWAIT`, as containers have. Resident ranges leave by
//! `sendfile`, or are copied for a transport that sends only from memory, without a read. Ranges that are missing or of
//! unknown residency are read.

use core::time::Duration;
use std::fs::{self, File as StdFile, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use ring::{Choice, Event, Op, Ring, Token};
use sendfile::{
    Disk, DiskConfig, File, KernelTcp, Owner, Policy, Progress, Stream, Takes, Transport as _,
};
use testkit::evict;

const RECV: Token = 1;
const WRITABLE: Token = 2;
const DISK: Token = 1 << 40;
const WAYS: [(Choice, Takes); 4] = [
    (Choice::Uring, Takes::Files),
    (Choice::Epoll, Takes::Files),
    (Choice::Uring, Takes::Memory),
    (Choice::Epoll, Takes::Memory),
];
const NOBODY: u32 = 65_534;
/// Set for the child that has mounts of its own.
const ROOT: &str = "SENDFILE_TEST_ROOT";

fn content() -> Vec<u8> {
    (0..1_000_001).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

struct Worker {
    ring: Ring,
    disk: Disk,
    /// What its transports take.
    takes: Takes,
}

impl Worker {
    fn new((choice, takes): (Choice, Takes)) -> Self {
        let config = DiskConfig { token_base: DISK, ..DiskConfig::default() };
        Self { ring: Ring::new(choice).unwrap(), disk: Disk::new(config).unwrap(), takes }
    }

    fn open(&mut self, path: &Path) -> Rc<File> {
        let fd = self.ring.adopt_file(StdFile::open(path).unwrap().into());
        self.ring.submit(Op::Stat(fd.clone()), 1);
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.ring.wait(None, &mut completions).unwrap();
        }
        let Ok(Event::Stat(stat)) = completions.remove(0).result else { panic!("no stat") };
        Rc::new(File::new(fd, &stat))
    }

    fn turn(&mut self, stream: &mut Stream, transport: &mut KernelTcp) {
        let mut completions = Vec::new();
        let until = self.ring.now() + Duration::from_secs(20);
        while completions.is_empty() && self.ring.now() < until {
            self.ring.wait(Some(until), &mut completions).unwrap();
        }
        assert!(!completions.is_empty(), "nothing happens");
        for completion in completions {
            if !self.disk.owns(completion.token) {
                transport.handle_writable();
            } else if let Some(done) = self.disk.handle(&mut self.ring, completion) {
                stream.handle_read(done);
            }
        }
    }

    /// Send a file; returns the number of bytes that were read for it.
    fn send(&mut self, file: &Rc<File>) -> u64 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all
        });
        let socket = self.ring.adopt_socket(ours.into());
        let mut transport = KernelTcp::new(socket, RECV, WRITABLE);
        if self.takes == Takes::Memory {
            transport = transport.of_memory();
        }
        let mut stream = Stream::new();
        stream.push_file(file, 0..file.size(), Policy::default());
        let mut read = 0;
        loop {
            let before = stream.reading();
            let owner = Owner::of(7);
            match stream.pump(&mut self.ring, &mut self.disk, &mut transport, owner) {
                Progress::Blocked | Progress::Waiting => {}
                Progress::More => {
                    read += stream.reading() - before;
                    continue;
                }
                Progress::Drained => break,
                Progress::Failed(failure) => panic!("{failure:?}"),
            }
            read += stream.reading() - before;
            self.turn(&mut stream, &mut transport);
        }
        transport.shutdown(&mut self.ring);
        assert!(reader.join().unwrap() == content(), "other bytes than the file's");
        read
    }

    /// Send a file of the file system, so that its name is known from then on.
    fn learn(&mut self, path: &Path) {
        let file = self.open(path);
        self.send(&file);
        let mut completions = Vec::new();
        while self.ring.in_flight() > 0 {
            self.ring.wait(None, &mut completions).unwrap();
            for completion in completions.drain(..) {
                self.disk.handle(&mut self.ring, completion);
            }
        }
    }
}

#[test]
fn what_is_on_tmpfs_leaves_without_a_read() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        testkit::skip!("there is no /dev/shm");
    };
    let path = dir.path().join("file");
    fs::write(&path, content()).unwrap();
    for way in WAYS {
        let mut worker = Worker::new(way);
        worker.learn(&path);
        let file = worker.open(&path);
        assert_eq!(worker.send(&file), 0, "{way:?}");
        // The same file again, now with a known file system.
        assert_eq!(worker.send(&file), 0, "{way:?}");
    }
}

/// Run a test of this file again in a child that has its own mounts, with an overlay at `mnt` below
/// `ROOT`; whether this is that child.
fn with_overlay(test: &str) -> Option<PathBuf> {
    if let Some(root) = std::env::var_os(ROOT) {
        return Some(root.into());
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["lower", "upper", "work", "mnt"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("lower/file"), content()).unwrap();
    evict(dir.path().join("lower/file"));
    let script = r#"mount -t overlay overlay \
        -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/mnt" || exit 99
        exec "$2" --exact "$3" --nocapture"#;
    let mut child = Command::new("unshare");
    child.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    child.arg(dir.path()).arg(std::env::current_exe().unwrap()).arg(test).env(ROOT, dir.path());
    match child.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let may_not = output.status.code() == Some(99) || text.contains("unshare: ");
            assert!(may_not, "{}{text}", String::from_utf8_lossy(&output.stdout));
            testkit::announce_skip(format_args!("no overlay can be mounted here: {}", text.trim()));
        }
        Err(error) => testkit::announce_skip(format_args!("unshare: {error}")),
    }
    None
}

#[test]
fn what_is_resident_on_overlayfs_leaves_without_a_read() {
    let name = "file_systems::what_is_resident_on_overlayfs_leaves_without_a_read";
    let Some(root) = with_overlay(name) else { return };
    let path = root.join("mnt/file");
    for way in WAYS {
        let mut worker = Worker::new(way);
        worker.learn(&path);
        let file = worker.open(&path);
        assert_eq!(worker.send(&file), 0, "{way:?}");
        let all = file.size();
        let now = worker.ring.now();
        assert_eq!(file.resident(&worker.ring, 0, all, now, true), all);
        assert_eq!(file.resident(&worker.ring, 777, 5, now, true), 5);

        // The eviction is seen even while a look is believed.
        evict(root.join("lower/file"));
        let now = worker.ring.now();
        assert_eq!(file.resident(&worker.ring, 0, all, now, true), 0, "{way:?}");
        assert!(worker.send(&file) >= all, "{way:?}: the loop slept on the disk");
        assert_eq!(worker.send(&file), 0, "{way:?}: it has been read");
    }
}

/// `mincore` reports everything as resident to a process that neither owns the file nor may write
/// to it.
#[test]
fn a_kernel_that_does_not_tell_is_not_believed() {
    let name = "file_systems::a_kernel_that_does_not_tell_is_not_believed";
    let Some(root) = with_overlay(name) else { return };
    let path = root.join("mnt/file");
    let test = move || {
        let nobody = rustix::thread::Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        for way in WAYS {
            let mut worker = Worker::new(way);
            worker.learn(&path);
            let file = worker.open(&path);
            assert!(worker.send(&file) >= file.size(), "{way:?}");
        }
    };
    std::thread::spawn(test).join().unwrap();
}

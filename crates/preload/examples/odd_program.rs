//! Uses sockets that wait for the disk in the odd ways of real programs: `odd_program WHAT FILE`, with a cold file
//! on a slow disk. The program exits with 0 if the calls behave as without the library, except that none waited.

use core::ffi::c_void;
use core::time::Duration;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, IntoRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, epoll_event};

const COUNT: usize = 8192;
const PAGE: usize = 4096;

fn sendfile(socket: RawFd, file: &File, at: i64) -> io::Result<usize> {
    let mut offset = at;
    // SAFETY: the offset is ours; the descriptors may even be closed.
    let sent = unsafe { libc::sendfile(socket, file.as_raw_fd(), &raw mut offset, COUNT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

struct Epoll(RawFd);

impl Epoll {
    fn new() -> Self {
        // SAFETY: no pointers.
        Self(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
    }

    fn control(&self, op: i32, fd: RawFd, events: i32) {
        let mut event = epoll_event { events: events.cast_unsigned(), u64: 42 };
        // SAFETY: a valid event.
        let error = unsafe { libc::epoll_ctl(self.0, op, fd, &raw mut event) };
        assert_eq!(error, 0, "{}", io::Error::last_os_error());
    }

    /// The events of the only socket; 0 at the limit.
    fn wait(&self, limit: Duration) -> u32 {
        let mut event = epoll_event { events: 0, u64: 0 };
        let limit = i32::try_from(limit.as_millis()).expect("short");
        // SAFETY: room for one event.
        let count = unsafe { libc::epoll_wait(self.0, &raw mut event, 1, limit) };
        if count == 1 { event.events } else { 0 }
    }
}

const SOON: Duration = Duration::from_millis(30);
const LATE: Duration = Duration::from_secs(10);
const OUT: u32 = EPOLLOUT.cast_unsigned();

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    ours.set_nonblocking(true).expect("ioctl FIONBIO");
    (ours, theirs)
}

fn is_full(result: &io::Result<usize>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A watched socket that looks full because the file is cold.
fn deferred(file: &File, epoll: &Epoll) -> (UnixStream, UnixStream) {
    let (ours, theirs) = pair();
    epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLOUT);
    assert_eq!(epoll.wait(SOON), OUT, "it can be written to");
    let sent = sendfile(ours.as_raw_fd(), file, 0);
    assert!(is_full(&sent), "{sent:?}");
    assert_eq!(epoll.wait(SOON), 0, "it looks full");
    (ours, theirs)
}

fn arrives(ours: &UnixStream, mut theirs: &UnixStream, file: &File, epoll: &Epoll) {
    assert_eq!(epoll.wait(LATE), OUT);
    assert_eq!(sendfile(ours.as_raw_fd(), file, 0).expect("it is in memory"), COUNT);
    let mut got = vec![0; COUNT];
    theirs.read_exact(&mut got).expect("it was sent");
}

/// Runs a function in a child; returns the exit code.
fn child(body: impl FnOnce()) -> i32 {
    // SAFETY: this program has one thread of its own; the library's is not needed in the child.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        body();
        // SAFETY: nothing is to be cleaned up.
        unsafe { libc::_exit(0) }
    }
    let mut status = 0;
    // SAFETY: one status.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status
}

fn is_null(fd: RawFd) -> bool {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one `stat`.
    let error = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    // SAFETY: written if the call has succeeded.
    error == 0 && unsafe { stat.assume_init() }.st_rdev == libc::makedev(1, 3)
}

/// Does the same as `vfork(2)` and `close(2)`, with a stack of its own for the child.
fn close_in_vforked_child(fd: RawFd) {
    extern "C" fn close(fd: *mut c_void) -> i32 {
        // SAFETY: the child's own descriptor, though the memory is its parent's.
        unsafe { libc::close(i32::try_from(fd.addr()).unwrap_or(-1)) }
    }
    let mut stack = vec![0u128; 8192];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = core::ptr::without_provenance_mut(fd.unsigned_abs() as usize);
    // SAFETY: the stack is large enough for one call, and outlives the child: CLONE_VFORK waits.
    let pid = unsafe { libc::clone(close, top.cast(), flags, argument) };
    let mut status = 0;
    // SAFETY: one status.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

/// Brings the first page of a file into memory, and no other one.
fn bring_first_page(file: &File) {
    // SAFETY: no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    file.read_exact_at(&mut [0], 0).expect("a byte");
}

/// A word at the end of mapped memory.
fn last_word_before_nothing() -> &'static mut u64 {
    let (all, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let pages = unsafe { libc::mmap(core::ptr::null_mut(), 2 * PAGE, all, kind, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    // SAFETY: the second of two pages.
    let nothing = unsafe { pages.add(PAGE) };
    // SAFETY: no code uses it yet.
    assert_eq!(unsafe { libc::mprotect(nothing, PAGE, libc::PROT_NONE) }, 0);
    // SAFETY: within the first page.
    let word = unsafe { nothing.cast::<u64>().sub(1) };
    // SAFETY: mapped, and aligned, for it ends with a page. There is no other reference.
    unsafe { word.as_mut() }.expect("a mapping is not at 0")
}

/// Makes these system calls kill this process. Returns the result of prctl(2) or seccomp(2).
fn forbid(syscalls: &[i64], by_seccomp: bool) -> i64 {
    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const KILL: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut steps = vec![step(LOAD, 0)];
    for &syscall in syscalls {
        let number = u32::try_from(syscall).expect("small");
        steps.push(libc::sock_filter { jf: 1, ..step(IF_EQUAL, number) });
        steps.push(step(RETURN, KILL));
    }
    steps.push(step(RETURN, ALLOW));
    let len = u16::try_from(steps.len()).expect("few");
    let filter = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    let filter = &raw const filter;
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if by_seccomp {
        // SAFETY: a valid filter.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, filter) }
    } else {
        // SAFETY: a valid filter.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, filter) }.into()
    }
}

fn lock_of_all(kind: i32) -> libc::flock {
    // SAFETY: a `flock` is numbers only, of which zeros are valid.
    let all: libc::flock = unsafe { core::mem::zeroed() };
    libc::flock { l_type: i16::try_from(kind).expect("small"), ..all }
}

/// Says whether a file is locked for other processes, by asking in a child.
fn is_locked(path: &str) -> bool {
    let status = child(|| {
        let file = File::open(path).expect("the file");
        let mut lock = lock_of_all(libc::F_WRLCK);
        // SAFETY: a valid lock.
        let error = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
        // SAFETY: no pointers.
        let is_flocked =
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0;
        let is_free = error == 0 && i32::from(lock.l_type) == libc::F_UNLCK && !is_flocked;
        // SAFETY: nothing is to be cleaned up.
        unsafe { libc::_exit(i32::from(is_free)) }
    });
    status == 0
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let file = File::options().read(true).write(true).open(&arguments[2]).expect("the file");
    let epoll = Epoll::new();
    match &arguments[1][..] {
        "nothing" => {}
        "wait" => {
            let (ours, theirs) = deferred(&file, &epoll);
            arrives(&ours, &theirs, &file, &epoll);
        }
        // The library is off: the kernel waits for the disk.
        "unhelped" => {
            let (ours, _theirs) = pair();
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLIN);
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 0).expect("it waits"), COUNT);
        }
        // The library fails somewhere, in this thread or in a reader: no socket waits for ever, and no byte is
        // sent twice.
        "failing" => {
            let (ours, mut theirs) = pair();
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLOUT);
            let send = || {
                let sent = loop {
                    let sent = sendfile(ours.as_raw_fd(), &file, 0);
                    if !is_full(&sent) {
                        break sent;
                    }
                    let mut polled =
                        libc::pollfd { fd: ours.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
                    // SAFETY: one element.
                    assert_eq!(unsafe { libc::poll(&raw mut polled, 1, 10_000) }, 1);
                    assert_eq!(epoll.wait(LATE), OUT);
                };
                assert_eq!(sent.expect("it waits"), COUNT);
            };
            send();
            assert_eq!(child(|| drop(pair())), 0);
            let copy = ours.try_clone().expect("dup");
            // SAFETY: both are ours.
            assert_eq!(unsafe { libc::dup2(copy.as_raw_fd(), 20) }, 20);
            send();
            let mut got = vec![0; 2 * COUNT];
            theirs.read_exact(&mut got).expect("it was sent");
            assert_eq!(got[..COUNT], got[COUNT..]);
            ours.shutdown(std::net::Shutdown::Both).expect("shutdown");
            assert_eq!(theirs.read(&mut got).expect("the end"), 0, "nothing twice");
            // SAFETY: no code uses what is closed.
            unsafe { libc::close(20) };
        }
        // Readers need `/dev/null`, which the new root does not have. A daemon forks after chroot(2).
        "chroot" => {
            std::os::unix::fs::chroot(Path::new(&arguments[2]).parent().expect("a directory"))
                .expect("chroot");
            File::open("/dev/null").expect_err("it is outside");
            let status = child(|| {
                let own = Epoll::new();
                let (its, peer) = deferred(&file, &own);
                arrives(&its, &peer, &file, &own);
                assert!((3..100).any(is_null), "it is still open");
            });
            assert_eq!(status, 0);
        }
        // The child has the sockets, too, but its calls must not change those of the parent.
        "fork" => {
            let (ours, theirs) = deferred(&file, &epoll);
            let status = child(|| {
                let own = Epoll::new();
                let (its, peer) = deferred(&file, &own);
                drop(ours.try_clone().expect("dup"));
                arrives(&its, &peer, &file, &own);
            });
            assert_eq!(status, 0);
            arrives(&ours, &theirs, &file, &epoll);
        }
        // The child ends while the read for a socket goes on that it shares with its parent.
        "orphan" => {
            let (ours, _theirs) = pair();
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLOUT);
            let status = child(|| _ = sendfile(ours.as_raw_fd(), &file, 0));
            assert_eq!((status, epoll.wait(SOON)), (0, OUT), "it can be written to");
        }
        // Children that are forked at any moment of a read have only the program's descriptors.
        "forks" => {
            let open = || std::fs::read_dir("/proc/self/fd").expect("open").count();
            let both = pair();
            let expected = open();
            drop(both);
            let mut full = 0;
            for round in 0..2000 {
                let (ours, _theirs) = pair();
                epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLOUT);
                // SAFETY: no pointers.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
                full += i32::from(is_full(&sendfile(ours.as_raw_fd(), &file, round % 128 * 8192)));
                std::thread::sleep(Duration::from_micros(round.unsigned_abs() % 100));
                assert_eq!(child(|| assert_eq!(open(), expected)), 0, "{round}");
            }
            assert!(full > 100, "the file was never cold but {full} times");
        }
        // A child that shares the memory closes its own descriptors.
        "vfork" => {
            let (ours, theirs) = deferred(&file, &epoll);
            close_in_vforked_child(ours.as_raw_fd());
            arrives(&ours, &theirs, &file, &epoll);
        }
        // The number is another socket's before the read has ended.
        "reuse" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let number = ours.into_raw_fd();
            // SAFETY: taken out of its owner above.
            unsafe { libc::close(number) };
            let (new, _peer) = pair();
            assert_eq!(new.as_raw_fd(), number, "the lowest number is taken");
            epoll.control(EPOLL_CTL_ADD, number, EPOLLIN);
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                assert_eq!(epoll.wait(SOON), 0, "the program has not asked for EPOLLOUT");
            }
        }
        // The socket gets another descriptor, by which it may be watched: it is not deferred any more.
        "dup" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let _copy = ours.try_clone().expect("dup");
            assert_eq!(epoll.wait(SOON), OUT);
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 0).expect("as ever"), COUNT);
        }
        "shutdown" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            ours.shutdown(std::net::Shutdown::Write).expect("shutdown");
            assert_ne!(epoll.wait(SOON) & OUT, 0);
        }
        // The program removes the registration and adds it again.
        "again" => {
            let (ours, theirs) = deferred(&file, &epoll);
            epoll.control(libc::EPOLL_CTL_DEL, ours.as_raw_fd(), 0);
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLIN | EPOLLOUT);
            assert_eq!(epoll.wait(SOON), 0);
            epoll.control(EPOLL_CTL_MOD, ours.as_raw_fd(), EPOLLOUT);
            arrives(&ours, &theirs, &file, &epoll);
        }
        "blocking" => {
            let (ours, _theirs) = pair();
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLIN);
            ours.set_nonblocking(false).expect("ioctl FIONBIO");
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 0).expect("it waits"), COUNT);
        }
        // The library has not seen an event loop.
        "loopless" => {
            let (ours, _theirs) = pair();
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 0).expect("it waits"), COUNT);
        }
        // The program has a loop that the library does not see: it tries again and again.
        "stubborn" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let until = Instant::now() + LATE;
            while is_full(&sendfile(ours.as_raw_fd(), &file, 0)) {
                assert!(Instant::now() < until, "for ever");
            }
        }
        // A client causes many other events at the socket, and the program tries at each of them. The read
        // takes seconds.
        "prodded" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let began = Instant::now();
            for _ in 0..1500 {
                let mut offset = 512 * 1024;
                let (out, file) = (ours.as_raw_fd(), file.as_raw_fd());
                // SAFETY: the offset is ours.
                let sent = unsafe { libc::sendfile(out, file, &raw mut offset, 512 * 1024) };
                assert_eq!(sent, -1, "it has waited for {:?}", began.elapsed());
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        // The peer is gone: the program need not wait for the disk, and must not get events for ever.
        "reset" => {
            let (ours, theirs) = deferred(&file, &epoll);
            drop(theirs);
            assert_ne!(epoll.wait(SOON) & libc::EPOLLHUP.cast_unsigned(), 0);
            let sent = sendfile(ours.as_raw_fd(), &file, 0).expect_err("the peer is gone");
            assert_eq!(sent.raw_os_error(), Some(libc::EPIPE));
        }
        // The program arms the socket once and gets one event.
        "oneshot" => {
            let (ours, theirs) = pair();
            let events = EPOLLOUT | libc::EPOLLONESHOT;
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), events);
            assert!(is_full(&sendfile(ours.as_raw_fd(), &file, 0)));
            epoll.control(EPOLL_CTL_MOD, ours.as_raw_fd(), events);
            assert_eq!(epoll.wait(SOON), 0);
            arrives(&ours, &theirs, &file, &epoll);
            assert_eq!(epoll.wait(SOON), 0, "it was not armed again");
        }
        // Locks that are taken before or after a read stay when the reader closes the file, until the program
        // gives them up.
        "locked" | "lockf" | "flock" | "fclose" => {
            let number = file.as_raw_fd();
            let lock = || {
                let lock = lock_of_all(libc::F_WRLCK);
                let error = match &arguments[1][..] {
                    // SAFETY: no pointers.
                    "lockf" => unsafe { libc::lockf(number, libc::F_TLOCK, 0) },
                    // SAFETY: no pointers.
                    "flock" | "fclose" => unsafe {
                        libc::flock(number, libc::LOCK_EX | libc::LOCK_NB)
                    },
                    // SAFETY: a valid lock.
                    _ => unsafe { libc::fcntl(number, libc::F_SETLK, &raw const lock) },
                };
                assert_eq!(error, 0, "{}", io::Error::last_os_error());
            };
            let (ours, theirs) = deferred(&file, &epoll);
            lock();
            arrives(&ours, &theirs, &file, &epoll);
            std::thread::sleep(Duration::from_secs(3));
            assert!(is_locked(&arguments[2]), "by its reader's end");
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 512 * 1024).expect("it waits"), COUNT);
            std::thread::sleep(SOON);
            assert!(is_locked(&arguments[2]), "by another reader");
            if arguments[1] == "fclose" {
                // SAFETY: the descriptor is the stream's from now on.
                let stream = unsafe { libc::fdopen(file.into_raw_fd(), c"r".as_ptr()) };
                // SAFETY: the stream of the line above, if there is one.
                assert!(!stream.is_null() && unsafe { libc::fclose(stream) } == 0);
            } else {
                drop(file);
            }
            assert!(!is_locked(&arguments[2]), "the program has closed it");
            let links = std::fs::read_dir("/proc/self/fd").expect("open");
            let open = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
            assert_eq!(open.filter(|path| path.ends_with(&arguments[1])).count(), 0, "parked");
        }
        // The program installs a filter that kills for calls of the library.
        "prctl" | "seccomp" => {
            let (ours, theirs) = deferred(&file, &epoll);
            let calls = [451, libc::SYS_preadv2, libc::SYS_openat];
            let error = forbid(&calls, arguments[1] == "seccomp");
            assert_eq!(error, 0, "{}", io::Error::last_os_error());
            arrives(&ours, &theirs, &file, &epoll);
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 512 * 1024).expect("it waits"), COUNT);
        }
        // Calls that fail change nothing: the socket still waits, and gets its event.
        "refused" => {
            let (ours, theirs) = deferred(&file, &epoll);
            let fd = ours.as_raw_fd();
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::dup2(-1, fd) }, -1);
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::dup3(0, fd, 1) }, -1);
            // SAFETY: there is no such flag.
            assert_eq!(unsafe { libc::close_range(3, u32::MAX, 1 << 30) }, -1);
            assert_eq!(epoll.wait(SOON), 0, "it looks full");
            arrives(&ours, &theirs, &file, &epoll);
            assert!(is_full(&sendfile(fd, &file, 512 * 1024)), "and again");
            assert_eq!(epoll.wait(SOON), 0, "it looks full again");
        }
        // The instance has two descriptors: registrations made by one are changed by the other, and outlive it.
        "instances" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let (others, _peer) = pair();
            let first = &epoll;
            // SAFETY: no pointers.
            let second = Epoll(unsafe { libc::fcntl(first.0, libc::F_DUPFD_CLOEXEC, 3) });
            assert_eq!(first.wait(SOON), OUT, "it does not look full any more");
            second.control(libc::EPOLL_CTL_DEL, ours.as_raw_fd(), 0);
            let events = EPOLLOUT | libc::EPOLLET;
            second.control(EPOLL_CTL_ADD, others.as_raw_fd(), events);
            // SAFETY: no code uses what is closed.
            unsafe { libc::close(second.0) };
            assert_eq!(first.wait(SOON), OUT, "it can be written to");
            for (socket, at) in [(ours, 0), (others, 512 * 1024)] {
                let sent = sendfile(socket.as_raw_fd(), &file, at);
                assert_eq!(sent.expect("the kernel waits"), COUNT);
            }
        }
        // The number of the instance is that of another instance before the read has ended.
        "instance" => {
            let (ours, _theirs) = pair();
            let events = EPOLLOUT | libc::EPOLLONESHOT;
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), events);
            assert!(is_full(&sendfile(ours.as_raw_fd(), &file, 0)));
            epoll.control(EPOLL_CTL_MOD, ours.as_raw_fd(), events);
            // SAFETY: no code uses what is closed.
            unsafe { libc::close(epoll.0) };
            let new = Epoll::new();
            assert_eq!(new.0, epoll.0, "the lowest number is taken");
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                assert_eq!(new.wait(SOON), 0, "the program has not added it");
            }
        }
        // The program arms the socket once, by ADD, while it waits. The peer leaves. There is one event.
        "added" => {
            let (ours, theirs) = deferred(&file, &epoll);
            let other = Epoll::new();
            other.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLOUT | libc::EPOLLONESHOT);
            drop(theirs);
            let mut told = 0;
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                told += i32::from(other.wait(SOON) != 0);
            }
            assert_eq!(told, 1);
        }
        // Without an offset the program's file offset counts.
        "place" => {
            let (ours, _theirs) = pair();
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLIN);
            let send = || {
                let none = core::ptr::null_mut();
                // SAFETY: no offset: the place in the file counts.
                unsafe { libc::sendfile(ours.as_raw_fd(), file.as_raw_fd(), none, COUNT) }
            };
            let until = Instant::now() + LATE;
            while send() < 0 {
                assert_eq!((&file).stream_position().expect("lseek"), 0);
                assert!(Instant::now() < until, "for ever");
                std::thread::sleep(SOON);
            }
            assert_eq!((&file).stream_position().expect("lseek"), COUNT as u64);
        }
        // The C library sends a signal to all threads, also to readers, and waits for them. It unblocks the
        // signal before it makes the first thread; the second inherits the blocked signals.
        "setuid" => {
            let (ours, theirs) = deferred(&file, &epoll);
            let (others, _peer) = pair();
            epoll.control(EPOLL_CTL_ADD, others.as_raw_fd(), EPOLLIN);
            assert!(is_full(&sendfile(others.as_raw_fd(), &file, 512 * 1024)));
            // SAFETY: it cannot fail.
            let user = unsafe { libc::geteuid() };
            // SAFETY: no pointers.
            let error = unsafe { libc::seteuid(user) };
            assert_eq!(error, 0, "{}", io::Error::last_os_error());
            arrives(&ours, &theirs, &file, &epoll);
        }
        // The sets are as small as their numbers allow.
        "select" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let number = usize::try_from(ours.as_raw_fd()).expect("open");
            let set = last_word_before_nothing();
            for limit in [0, 10] {
                *set = 1 << number;
                let write = core::ptr::from_mut(set).cast();
                let none = core::ptr::null_mut();
                let mut limit = libc::timeval { tv_sec: limit, tv_usec: 0 };
                // SAFETY: numbers below 64 are in the first word.
                let ready = unsafe { libc::select(64, none, write, none, &raw mut limit) };
                assert_eq!(ready, i32::from(limit.tv_sec > 0), "not yet, and then");
            }
            assert_eq!(*set, 1 << number);
        }
        // There are more descriptors than the library handles: no socket waits in vain.
        "crowd" => {
            let (ours, _theirs) = deferred(&file, &epoll);
            let (fd, events) = (ours.as_raw_fd(), libc::POLLOUT);
            let mut polled = vec![libc::pollfd { fd: -1, events, revents: 0 }; 1025];
            polled[1024].fd = fd;
            // SAFETY: as many elements.
            let ready = unsafe { libc::poll(polled.as_mut_ptr(), 1025, 10_000) };
            assert_eq!(ready, 1);
            assert_eq!(sendfile(fd, &file, 0).expect("it waits itself"), COUNT);
        }
        // The last quarter of the descriptors is the program's, even while a reader is at work.
        "last" => {
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            let (ours, _theirs) = pair();
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLIN);
            // Only the duplicate of the file's descriptor has room.
            let others: Vec<_> =
                core::iter::repeat_with(|| File::open("/dev/zero").expect("a device"))
                    .take_while(|other| other.as_raw_fd() < 47)
                    .collect();
            assert!(is_full(&sendfile(ours.as_raw_fd(), &file, 0)));
            std::thread::sleep(SOON);
            for fd in 48..64 {
                // SAFETY: no pointers.
                assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1, "{fd} is not ours");
            }
            assert_eq!(others.last().map(AsRawFd::as_raw_fd), Some(46));
        }
        // The program closes all descriptors, also the library's, and uses the numbers again.
        "closefrom" => {
            unsafe extern "C" {
                fn closefrom(first: i32);
            }
            let (ours, theirs) = deferred(&file, &epoll);
            let first = file.as_raw_fd();
            core::mem::forget((ours, theirs, file));
            // SAFETY: no code uses what is closed.
            unsafe { closefrom(first) };
            let numbers: Vec<_> =
                (0..20).map(|_| File::open("/dev/zero").expect("a device").into_raw_fd()).collect();
            std::thread::sleep(Duration::from_secs(2));
            for fd in numbers {
                // SAFETY: no pointers.
                assert_ne!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1, "{fd} is ours");
            }
        }
        // Part of what is sent is in memory. The call ends when the pipe is full, and does not wait for room.
        "pipe" => {
            bring_first_page(&file);
            let (reader, writer) = io::pipe().expect("pipe");
            let out = writer.as_raw_fd();
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::fcntl(out, libc::F_SETPIPE_SZ, PAGE) }, 4096, "the least");
            // SAFETY: no pointers. The signal ends a program that waits.
            unsafe { libc::alarm(10) };
            assert_eq!(sendfile(out, &file, 0).expect("there is room"), PAGE);
            drop(reader);
        }
        // A message is not cut where the file is not in memory any more.
        "datagram" => {
            bring_first_page(&file);
            let theirs = UdpSocket::bind("127.0.0.1:0").expect("bind");
            let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
            ours.connect(theirs.local_addr().expect("bound")).expect("connect");
            ours.set_nonblocking(true).expect("ioctl FIONBIO");
            epoll.control(EPOLL_CTL_ADD, ours.as_raw_fd(), EPOLLIN);
            assert_eq!(sendfile(ours.as_raw_fd(), &file, 0).expect("it waits"), COUNT);
            assert_eq!(theirs.recv(&mut vec![0; 2 * COUNT]).expect("a message"), COUNT);
        }
        "errors" => {
            let (ours, _theirs) = pair();
            let error = |result: io::Result<usize>| result.expect_err("no").raw_os_error();
            assert_eq!(error(sendfile(-1, &file, 0)), Some(libc::EBADF));
            assert_eq!(error(sendfile(ours.as_raw_fd(), &file, -1)), Some(libc::EINVAL));
            let end = i64::try_from(file.metadata().expect("stat").len()).expect("small");
            assert_eq!(sendfile(ours.as_raw_fd(), &file, end).expect("the end"), 0);
            assert_eq!(sendfile(ours.as_raw_fd(), &file, end + 5).expect("beyond"), 0);
            let far = sendfile(ours.as_raw_fd(), &file, i64::MAX - 5);
            assert_eq!(error(far), Some(libc::EINVAL));
            let mut start = 0;
            // SAFETY: the offset is ours.
            let all = unsafe {
                libc::sendfile(ours.as_raw_fd(), file.as_raw_fd(), &raw mut start, usize::MAX)
            };
            assert_eq!((all, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EINVAL)));
        }
        other => panic!("what is {other}?"),
    }
}

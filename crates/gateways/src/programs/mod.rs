//! Directories of programs, and the threads that start programs. The threads find, open and execute files, and may wait
//! for a disk.
//!
//! All workers share a directory, so that its limits hold for all of them together. An `Order` of a worker waits in a
//! queue until fewer than `processes_max` programs run and a thread has taken it. The result comes back into the
//! worker's `Mailbox`.
//!
//! Programs are started by `posix_spawn(3)`, which copies no page tables and suspends only the thread that calls it.
//! ([`Command`] uses it if nothing else is to be done in the child.) The directory of the program is opened beneath the
//! root, and the program is executed relative to it. So the program that runs is the one that was checked.
//!
//! The programs of a confined server have less access to files than the server ([`confinement`]).

pub mod confinement;
pub(crate) mod descendants;
pub mod environment;
pub(crate) mod process;
pub mod supervisor;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use http::Status;
use ring::{Key, Waker};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, ResolveFlags, accessat, fstat, open, openat, openat2,
};
use rustix::io::{Errno, read};

use config::Cgi;
use environment::{Environment, Script, candidates};
use process::Process;
use session::reason::Reason;
use supervisor::Start;

/// Orders that wait for a program to end or for a thread; at this limit further orders are refused.
const ORDERS_MAX: usize = 256;
/// Threads that find and start programs. More would wait for the same disk.
const THREADS_MAX: usize = 4;
/// The time after which a thread without an order ends.
const IDLE: Duration = Duration::from_secs(10);
/// The number of times that a file is opened again after a rename or a mount elsewhere (`EAGAIN`, openat2(2)).
const OPENS_MAX: usize = 64;
/// The pauses before a program that is open for writing is tried again. A process that was forked during the write may
/// have the program open for an instant longer.
const BUSY_PAUSES: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(80)];

/// A directory of programs.
#[derive(Debug)]
pub struct Directory {
    pub(crate) config: Cgi,
    /// The path of its route with a slash at the end.
    mount: Box<[u8]>,
    /// The directory of the files of its site, if it has some.
    documents: Option<PathBuf>,
    state: Mutex<State>,
    /// Notified when an order may be taken.
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    orders: VecDeque<Order>,
    /// The number of programs that run or are being started.
    running: u32,
    threads: usize,
    idle: usize,
}

/// The numbers of a directory of programs at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The path of its route with a slash at the end.
    pub mount: String,
    /// The path of the directory.
    pub directory: PathBuf,
    /// Programs that run or are being started.
    pub running: u32,
    /// The maximum number of programs that run or are being started (`processes`).
    pub running_max: u32,
    /// Requests that wait for the end of a program, or for a thread.
    pub waiting: usize,
    /// The maximum number of requests that wait. Further requests are refused.
    pub waiting_max: usize,
}

/// A program to be started.
#[derive(Debug)]
pub(crate) struct Order {
    /// The key of the program at its worker.
    pub(crate) key: Key,
    /// The path of the request below the directory, without a slash at its end.
    pub(crate) path: Vec<u8>,
    /// True if the path of the request ends with a slash.
    pub(crate) directory: bool,
    pub(crate) environment: Environment,
    /// True if the program gets content.
    pub(crate) has_input: bool,
    /// False once the program is no longer wanted.
    pub(crate) wanted: Arc<AtomicBool>,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// The reason why a program was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No file has the path.
    Missing,
    /// A name begins with a dot.
    Hidden,
    /// The path leads to a directory.
    Directory,
    /// The path leads to neither a regular file nor a directory.
    NotRegular,
    /// The path leads out of the directory of the programs.
    Outside,
    /// Symbolic links lead in a circle.
    Circle,
    /// The user of the server may not open the file.
    NoRights,
    /// The file is not executable.
    NotExecutable,
    /// The program is no longer wanted.
    Unwanted,
    /// A fault with this status, and a fragment of a sentence for the operator.
    Failed(Status, String),
}

/// The results for one worker.
#[derive(Debug)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<(Key, Result<Process, Refusal>)>>,
    waker: Waker,
}

/// The permission to run one program. When it is dropped, another program may run.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Directory>);

/// A program that was found.
struct ProgramFile {
    /// The directory that contains the program.
    parent: OwnedFd,
    /// The length of the program's path.
    len: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code here panics while it holds a lock, and a queue is valid after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Directory {
    /// The programs of a route with this path. `documents` is the directory of the files of its site.
    pub fn new(config: &Cgi, mount: &[u8], documents: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            config: config.clone(),
            mount: mount.into(),
            documents,
            state: Mutex::default(),
            work: Condvar::new(),
        })
    }

    /// The path of its route with a slash at the end.
    pub fn mount(&self) -> &[u8] {
        &self.mount
    }

    /// Returns true if the other directory has the same programs and the same limits.
    pub fn is_same(&self, other: &Self) -> bool {
        self.config == other.config
            && self.mount == other.mount
            && self.documents == other.documents
    }

    /// The numbers of the directory now.
    pub fn numbers(&self) -> Numbers {
        let (running, waiting) = {
            let state = lock(&self.state);
            (state.running, state.orders.len())
        };
        Numbers {
            mount: String::from_utf8_lossy(&self.mount).into_owned(),
            directory: self.config.root.clone(),
            running,
            running_max: self.config.processes_max,
            waiting,
            waiting_max: ORDERS_MAX,
        }
    }

    /// Queues an order, and starts a thread for it unless there are enough. Returns false if the queue is full, or no
    /// thread can be started.
    pub(crate) fn submit(self: &Arc<Self>, order: Order) -> bool {
        let key = order.key;
        let mut state = lock(&self.state);
        if state.orders.len() >= ORDERS_MAX {
            return false;
        }
        state.orders.push_back(order);
        if state.idle == 0 && state.threads < THREADS_MAX {
            state.threads += 1;
            drop(state);
            let directory = Arc::clone(self);
            let builder = thread::Builder::new().name("cgi".to_owned());
            if builder.spawn(move || directory.serve()).is_err() {
                let mut state = lock(&self.state);
                state.threads -= 1;
                if state.threads == 0 {
                    state.orders.retain(|order| order.key != key);
                    return false;
                }
            }
        } else {
            drop(state);
        }
        self.work.notify_one();
        true
    }

    /// Takes an order back. Returns false if a thread has begun with it; then its result will come.
    pub(crate) fn withdraw(&self, wanted: &Arc<AtomicBool>) -> bool {
        let mut state = lock(&self.state);
        let before = state.orders.len();
        state.orders.retain(|order| !Arc::ptr_eq(&order.wanted, wanted));
        state.orders.len() < before
    }

    /// Carries out orders, on a thread of its own.
    fn serve(self: Arc<Self>) {
        let mut state = lock(&self.state);
        loop {
            if state.running < self.config.processes_max
                && let Some(order) = state.orders.pop_front()
            {
                state.running += 1;
                drop(state);
                let slot = Slot(Arc::clone(&self));
                let Order { key, ref mailbox, .. } = order;
                let mailbox = Arc::clone(mailbox);
                mailbox.put(key, self.start(order, slot));
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let waited =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if waited.1.timed_out() && state.orders.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Finds a program and starts it.
    fn start(&self, order: Order, slot: Slot) -> Result<Process, Refusal> {
        let Order { path, directory, mut environment, has_input, wanted, .. } = order;
        let root = self.open_root()?;
        let ProgramFile { parent, len } = find(root.as_fd(), &path)?;
        let script = Script { mount: &self.mount, path: &path, directory, len };
        environment.set("PATH", environment::PATH.as_bytes());
        environment.set_script(script, &self.config.root, self.documents.as_deref());
        for (name, value) in &self.config.environment {
            environment.set(name, value.as_bytes());
        }
        let name = path[..len].rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let mut command = Command::new(OsStr::from_bytes(&[b"./", name].concat()));
        command
            .env_clear()
            .envs(environment.iter())
            // The kernel resolves this path in the child, before it closes the descriptor there.
            .current_dir(format!("/proc/self/fd/{}", parent.as_raw_fd()))
            .process_group(0)
            .stdin(if has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !wanted.load(Ordering::Relaxed) {
            return Err(Refusal::Unwanted);
        }
        let Some(start) = Start::begin() else {
            return Err(Refusal::Unwanted);
        };
        let spawned = confinement::within(root.as_fd(), &self.config, || {
            spawn(&mut command, parent.as_fd(), name)
        });
        let spawned = spawned.map_err(|error| Refusal::busy(&error))?;
        let (child, mark) = spawned.map_err(|error| Refusal::of_spawn(&error))?;
        Process::new(child, mark, &start, slot).map_err(|error| Refusal::busy(&error))
    }

    /// Opens the current directory at the path, which may have been replaced.
    fn open_root(&self) -> Result<OwnedFd, Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.config.root, flags, Mode::empty()).map_err(|errno| {
            let root = self.config.root.display();
            let why = format!("{root} cannot be opened: {errno}");
            Refusal::Failed(Status::ServiceUnavailable, why)
        })
    }

    /// Finds the program of a path below the directory, as for a request, and starts nothing. It may wait for the disk.
    pub(crate) fn look(&self, path: &[u8]) -> Result<PathBuf, Refusal> {
        let root = self.open_root()?;
        let ProgramFile { parent, len } = find(root.as_fd(), path)?;
        let program = OsStr::from_bytes(&path[..len]);
        let name = Path::new(program).file_name().unwrap_or(program);
        // The bits of the mode may be for others, and the mount may permit no programs.
        accessat(&parent, name, Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|errno| Refusal::of_spawn(&errno.into()))?;
        Ok(self.config.root.join(program))
    }
}

/// Starts a program, and returns it with its mark.
fn spawn(command: &mut Command, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<(Child, u64)> {
    let mut pauses = BUSY_PAUSES.iter();
    loop {
        // The kernel reads the head to execute the program. If the disk does not answer, only this thread waits.
        read_head(parent, name);
        let (child, mark) = descendants::mark(|| command.spawn());
        match child {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                match pauses.next() {
                    Some(pause) => thread::sleep(*pause),
                    None => return Err(error),
                }
            }
            child => return child.map(|child| (child, mark)),
        }
    }
}

/// Finds the program with whose name a path begins.
fn find(root: BorrowedFd<'_>, path: &[u8]) -> Result<ProgramFile, Refusal> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut parent = open_beneath(root, b".", directory)?;
    let mut end = 0;
    for len in candidates(path) {
        end = len;
        let name = &path[..len];
        let file = open_beneath(root, name, OFlags::PATH | OFlags::CLOEXEC)?;
        let stat = fstat(&file).map_err(|errno| Refusal::of_open(errno, name))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => parent = file,
            FileType::RegularFile if stat.st_mode & 0o111 != 0 => {
                return Ok(ProgramFile { parent, len });
            }
            FileType::RegularFile => return Err(Refusal::NotExecutable),
            _ => return Err(Refusal::NotRegular),
        }
    }
    Err(match &path[end..] {
        [] => Refusal::Directory,
        [b'.', ..] | [b'/', b'.', ..] => Refusal::Hidden,
        _ => Refusal::Missing,
    })
}

/// Lets the kernel read the head of a program. A program that may be executed but not read is left out.
fn read_head(parent: BorrowedFd<'_>, name: &[u8]) {
    // The file may have been replaced by a pipe meanwhile.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(file) = openat(parent, name, flags, Mode::empty()) {
        let _ = read(&file, &mut [0; 256]);
    }
}

/// Opens a path that does not leave the root, not even by a symbolic link.
fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Refusal> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut opens = 0;
    loop {
        opens += 1;
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Ok(file) => return Ok(file),
            Err(Errno::AGAIN) if opens < OPENS_MAX => {}
            Err(errno) => return Err(Refusal::of_open(errno, path)),
        }
    }
}

impl Refusal {
    /// The status of the response.
    pub(crate) const fn status(&self) -> Status {
        match self {
            Self::Missing | Self::Hidden | Self::Directory | Self::NotRegular => Status::NotFound,
            Self::Outside | Self::Circle | Self::NoRights | Self::NotExecutable => {
                Status::Forbidden
            }
            Self::Unwanted => Status::ServiceUnavailable,
            Self::Failed(status, _) => *status,
        }
    }

    /// The reason for the operator. `name` is the path of the request.
    pub(crate) fn reason(&self, name: &str) -> Reason {
        match self {
            Self::Missing => Reason::NoProgram,
            Self::Hidden => Reason::HiddenProgram,
            Self::Directory => Reason::ProgramDirectory,
            Self::NotRegular => Reason::NotRegular,
            Self::Outside => Reason::ProgramOutside,
            Self::Circle => Reason::LinkCircle,
            Self::NoRights => Reason::NoRights,
            Self::NotExecutable => Reason::NotExecutable,
            Self::Unwanted => Reason::Gone,
            Self::Failed(_, why) => Reason::failed(name, why),
        }
    }

    /// The server has too little of something.
    fn busy(error: &io::Error) -> Self {
        Self::Failed(Status::ServiceUnavailable, format!("it cannot be started: {error}"))
    }

    fn of_open(errno: Errno, path: &[u8]) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Self::Missing,
            Errno::ACCESS | Errno::PERM => Self::NoRights,
            Errno::XDEV => Self::Outside,
            Errno::LOOP => Self::Circle,
            _ => {
                let name = String::from_utf8_lossy(path);
                let why = format!("{name} cannot be opened: {errno}");
                Self::Failed(Status::ServiceUnavailable, why)
            }
        }
    }

    /// The refusal for a program that was found, but could not be executed.
    fn of_spawn(error: &io::Error) -> Self {
        let (status, why) = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                (Status::Forbidden, format!("it cannot be executed: {error}"))
            }
            io::ErrorKind::NotFound => {
                (Status::BadGateway, "it or its interpreter does not exist".to_owned())
            }
            io::ErrorKind::WouldBlock
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::ExecutableFileBusy => {
                return Self::busy(error);
            }
            _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => {
                return Self::busy(error);
            }
            // Other errors, for instance ENOEXEC.
            _ => (Status::BadGateway, format!("it cannot be executed: {error}")),
        };
        Self::Failed(status, why)
    }
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { letters: Mutex::default(), waker })
    }

    fn put(&self, key: Key, letter: Result<Process, Refusal>) {
        lock(&self.letters).push((key, letter));
        self.waker.wake();
    }

    /// Takes the results since the last call.
    pub(crate) fn take(&self) -> Vec<(Key, Result<Process, Refusal>)> {
        core::mem::take(&mut *lock(&self.letters))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.0.state).running -= 1;
        self.0.work.notify_one();
    }
}

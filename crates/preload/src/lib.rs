//! `libsamum_preload.so`: an unmodified server's `sendfile(2)` no longer waits for the disk.
//!
//! Preloaded (`LD_PRELOAD`, `samum preload -- COMMAND`), it stands in front of the C library's
//! functions ([`exports`]). `sendfile` of what is in memory goes to the kernel; where the next byte
//! is not, the file is read by a thread and the call says `EAGAIN`. To the program the socket was
//! full for a moment; when the file has been read, the program's own event loop is told that it can
//! be written to.
//!
//! ```text
//!  program ──► exports ──► sendfile ──► residency      in memory? then the kernel's sendfile
//!     ▲                       │ no
//!     │ epoll: MOD            ▼
//!     └─── interest ◄──── deferral ──► state ◄── reader     threads that wait for the disk
//! ```
//!
//! | module | is |
//! |---|---|
//! | `exports` | the functions that programs find here; `real`: those behind them |
//! | `sendfile` | the loop of one call |
//! | `residency` | what is in memory, and how that is known; `recent`: what was a moment ago |
//! | `deferral` | the program's side of waiting; `wait`: `poll` and `select` |
//! | `reader` | the disk's side of waiting |
//! | `state` | who waits for what; pure, under the one lock |
//! | `depth` | how many readers a disk is given; pure |
//! | `locked` | files that the program has locked; pure |
//! | `interest` | what epoll is told; pure; `epoll`: how it is told |
//! | `process` | the one lock, and the process that it belongs to; `fork`: children |
//! | `descriptors` | the table by descriptor number |
//! | `hash` | the hash that the tables share; pure |
//! | `fuse` | what happens when this library fails |
//! | `permit` | which system calls may be made under a seccomp filter |
//!
//! It prints nothing unless asked to, allocates nothing where everything is in memory, and when in
//! doubt does what the kernel would do.

mod deferral;
mod depth;
mod descriptors;
mod epoll;
pub mod exports;
mod fork;
mod fuse;
mod hash;
mod interest;
mod lock;
mod locked;
mod permit;
mod process;
mod reader;
mod real;
mod recent;
mod residency;
mod sendfile;
mod setting;
mod state;
mod stats;
mod sys;
mod wait;

/// Run by the dynamic loader before the program begins.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Run by the C library at exit.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg_attr(test, allow(dead_code, reason = "the tests are not preloaded"))]
extern "C" fn begin() {
    fuse::log_panics();
    let errno = sys::errno();
    fuse::run("begin", prepare);
    sys::set_errno(errno);
}

fn prepare() {
    real::find_all();
    if !setting::read() {
        return;
    }
    let Some(table) = descriptors::Table::map().filter(|_| sys::make_scratch()) else {
        stats::log(format_args!("no memory for the tables: everything is left to the kernel"));
        return;
    };
    if let Err(name) = permit::find() {
        stats::log(format_args!(
            "a seccomp filter does not allow {name}: everything is left to the kernel"
        ));
        return;
    }
    {
        let mut state = process::STATE.lock();
        state.table = table;
        process::own();
    }
    sys::at_fork(fork::before_fork, fork::after_fork, fork::forked);
    fuse::switch_on();
    // Servers started by inetd have one socket as three descriptors.
    for fd in 0..=2 {
        deferral::share(fd, fd);
    }
    stats::log(format_args!("version {} is on", env!("CARGO_PKG_VERSION")));
}

#[cfg_attr(test, allow(dead_code, reason = "the tests are not preloaded"))]
extern "C" fn end() {
    if fuse::is_on() {
        fuse::run("end", stats::write);
    }
}

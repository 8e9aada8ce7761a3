//! `libsamum_preload.so`: an unmodified server's `sendfile(2)` no longer waits for the disk.
//!
//! Preloaded (`LD_PRELOAD`, `samum preload -- COMMAND`), the library takes the place of some functions of
//! the C library ([`exports`]). If the bytes that `sendfile` wants are in memory, the kernel sends them. If not,
//! the call returns `EAGAIN` and a thread reads the file. The program believes that the socket is full. When the
//! file has been read, the program's own event loop reports that the socket is writable.
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
//! | `exports` | the functions that programs call; `real`: those of the C library |
//! | `sendfile` | the loop of one call |
//! | `caching` | decides which responses stay in the page cache; `trails`: the pages that leave it; pure |
//! | `residency` | finds out which bytes are in memory; `recent`: results of a moment ago |
//! | `deferral` | the program's side of a wait for the disk; `wait`: `poll` and `select` |
//! | `reader` | the threads that read |
//! | `state` | the sockets that wait and their reads; pure, under the one lock |
//! | `locked` | files that the program has locked; pure |
//! | `interest` | the events that epoll instances are asked for; pure; `epoll`: the calls |
//! | `process` | the one lock, and the check that this process may take it; `fork`: children |
//! | `descriptors` | the table of descriptors |
//! | `hash` | the hash that the tables share; pure |
//! | `fuse` | switches the library off when it fails |
//! | `permit` | the system calls that a seccomp filter allows |
//!
//! The library prints only on request, and allocates no memory while all files are in memory. In doubt it leaves
//! the call to the kernel.

mod caching;
mod deferral;
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
mod trails;
mod wait;

use setting::Caching;

/// The dynamic loader calls this before the program begins.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// The C library calls this at exit.
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
    let setting::Settings { is_on, window, refused } = setting::read();
    if !is_on {
        return;
    }
    if let Some(refused) = refused {
        stats::log(format_args!("the environment has no valid {refused}: it counts as not set"));
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
    if setting::caching() == Caching::Popular
        && !sys::make_sketch(setting::memory().unwrap_or_else(sys::memory_of_all) / 4 * 3)
    {
        stats::log(format_args!("no memory for the counts of requests: all files stay in memory"));
    }
    {
        let mut state = process::STATE.lock();
        state.table = table;
        state.window_set = window;
        process::own();
    }
    sys::at_fork(fork::before_fork, fork::after_fork, fork::forked);
    fuse::switch_on();
    // A server started by inetd has one socket as three descriptors.
    for fd in 0..=2 {
        deferral::share(fd, fd);
    }
    stats::log(format_args!("version {} is on", env!("CARGO_PKG_VERSION")));
}

#[cfg_attr(test, allow(dead_code, reason = "the tests are not preloaded"))]
extern "C" fn end() {
    if fuse::is_on() {
        fuse::run("end", || {
            reader::finish();
            reader::write_counts();
        });
    }
}

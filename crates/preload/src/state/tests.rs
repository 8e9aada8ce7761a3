//! Sockets that wait and jobs that read for them, and the behaviour at each limit.

use pace::Constants;

use super::*;
use crate::interest::Op;

const FILE: FileId = FileId { dev: 1, ino: 2 };
const OUT: u32 = libc::EPOLLOUT.cast_unsigned();

fn state() -> Box<LockedState> {
    let mut state = Box::new(LockedState::new());
    state.table = Table::for_test(2000);
    for socket in 0..2000 {
        state.table.entry(socket).unwrap().interest.granted(Op::Add, 1, OUT, 0);
    }
    // A slow disk, which is read in blocks.
    let slow = Constants { window_first: Constants::DEFAULT.window_min, ..Constants::DEFAULT };
    state.disk(FILE.dev).pace = Pace::with(slow);
    state
}

fn want(offset: u64) -> Want {
    Want { file: FILE, offset, count: 64 * BLOCK, is_absent: true, stays: true }
}

fn defer(state: &mut LockedState, socket: c_int, want: Want) -> Verdict {
    state.defer(socket, want, 0, || Some(100))
}

#[track_caller]
fn assert_deferred(verdict: Verdict) {
    assert!(matches!(verdict, Verdict::Deferred(_)), "{verdict:?}");
}

/// Reads a chunk; returns the sockets that are resumed.
fn step(state: &mut LockedState, job: usize, error: Option<Errno>) -> Vec<c_int> {
    let chunk = state.begin_chunk(job, 0);
    let read = if error.is_some() { 0 } else { chunk.len };
    state.advance(job, chunk, read, error);
    resume(state, job)
}

fn resume(state: &mut LockedState, job: usize) -> Vec<c_int> {
    let mut resumed = Vec::new();
    while state.resume(job, |socket, _, _| resumed.push(socket)) == RESUMED_MAX {}
    resumed.sort_unstable();
    resumed
}

#[test]
fn sockets_that_want_the_same_wait_for_one_read() {
    let mut state = state();
    for socket in [10, 11, 12] {
        assert_deferred(defer(&mut state, socket, want(5000)));
        assert!(state.table.flags(socket) & DEFERRED != 0);
    }
    let job = state.take_pending().unwrap();
    assert_eq!(state.take_pending(), None);
    assert_eq!(state.begin_chunk(job, 0).offset, 4096, "from the page's first byte");
    assert_eq!(state.begin_chunk(job, 0).len, BLOCK - 4096, "to the block's end");
    assert!(!state.has_ended(job));
    assert_eq!(step(&mut state, job, None), [10, 11, 12]);
    assert!((10..13).all(|socket| state.table.flags(socket) & DEFERRED == 0));
}

#[test]
fn a_stream_reads_ahead_farther_and_farther_and_not_for_ever() {
    let mut state = state();
    assert_deferred(defer(&mut state, 10, want(0)));
    let job = state.take_pending().unwrap();
    let mut at = 0;
    for _ in 0..20 {
        assert_eq!(step(&mut state, job, None), [10]);
        at += BLOCK;
        assert!(!state.has_ended(job));
        assert_deferred(defer(&mut state, 10, want(at)));
    }
    let mut ahead = 0;
    while !state.has_ended(job) {
        step(&mut state, job, None);
        ahead += BLOCK;
    }
    assert_eq!(ahead, BLOCK + WINDOW_MAX);
    assert_eq!(state.free(job), Some(100));
    // The next job begins where this one has ended, and finds its window.
    assert_deferred(defer(&mut state, 10, want(at + ahead)));
    let job = state.take_pending().unwrap();
    assert_eq!(state.jobs[job].window, WINDOW_MAX);
}

#[test]
fn a_small_range_is_all_that_is_read() {
    let mut state = state();
    assert_deferred(defer(&mut state, 10, Want { count: 100, ..want(10 * BLOCK) }));
    let job = state.take_pending().unwrap();
    assert_eq!(state.begin_chunk(job, 0).len, 100);
    assert_eq!(step(&mut state, job, None), [10]);
    assert!(state.has_ended(job));
}

#[test]
fn an_error_is_told_once_to_each_at_its_place() {
    let mut state = state();
    assert_deferred(defer(&mut state, 10, want(0)));
    assert_deferred(defer(&mut state, 11, want(0)));
    let job = state.take_pending().unwrap();
    let chunk = state.begin_chunk(job, 0);
    state.advance(job, chunk, 8192, Some(libc::EIO));
    assert_eq!(resume(&mut state, job), [10, 11]);
    assert!(state.has_ended(job));
    state.free(job);
    for socket in [10, 11] {
        for _ in 0..2 {
            let verdict = defer(&mut state, socket, want(8192));
            assert!(matches!(verdict, Verdict::Failed(libc::EIO)), "{verdict:?}");
        }
        state.error_was_told(socket);
        assert_deferred(defer(&mut state, socket, want(8192)));
    }
}

#[test]
fn without_a_free_job_a_socket_waits_for_another() {
    let mut state = state();
    for job in 0..JOBS_MAX {
        let file = FileId { dev: 1, ino: 1000 + job as u64 };
        let want = Want { file, ..want(0) };
        assert_deferred(defer(&mut state, c_int::try_from(job).unwrap(), want));
    }
    let verdict = state.defer(1000, want(0), 0, || panic!("no room"));
    assert_deferred(verdict);
    let job = state.take_pending().unwrap();
    assert_eq!(step(&mut state, job, None), [0, 1000]);
    // This may go on for any time: nothing has been read for the socket in vain.
    for _ in 0..3 * STRIKES_MAX {
        assert_deferred(state.defer(1000, want(0), 0, || panic!("no room")));
        let chunk = state.begin_chunk(job, 0);
        state.jobs[job].end = chunk.offset + 2 * BLOCK;
        assert_eq!(step(&mut state, job, None), [1000]);
    }
}

#[test]
fn without_a_descriptor_and_without_a_job_the_kernel_does_it() {
    let mut state = state();
    let verdict = state.defer(10, want(0), 0, || None);
    assert!(matches!(verdict, Verdict::Left(Reason::NoRoom, _)), "{verdict:?}");
    assert_eq!(state.table.flags(10) & DEFERRED, 0);
}

#[test]
fn a_socket_without_progress_is_left_to_the_kernel() {
    let mut state = state();
    for _ in 0..STRIKES_MAX {
        assert_deferred(defer(&mut state, 10, want(0)));
        let job = state.take_pending().unwrap();
        assert_eq!(step(&mut state, job, None), [10]);
        while !state.has_ended(job) {
            step(&mut state, job, None);
        }
        state.free(job);
    }
    let verdict = defer(&mut state, 10, want(0));
    assert!(matches!(verdict, Verdict::Left(Reason::NoProgress, _)), "{verdict:?}");
}

#[test]
fn a_program_that_spins_is_left_to_the_kernel_for_a_while() {
    let mut state = state();
    let mut defer = |now_us| state.defer(10, want(0), now_us, || Some(100));
    for call in 0..=u64::from(CALLS_MAX) {
        assert_deferred(defer(call * 4));
    }
    let spun = 4 * u64::from(CALLS_MAX);
    for now_us in [spun, spun, spun + UNSEEN_US - 1] {
        let verdict = defer(now_us);
        assert!(matches!(verdict, Verdict::Left(Reason::UnseenLoop, _)), "{verdict:?}");
    }
    assert_deferred(defer(spun + UNSEEN_US));
    state.forget(10);
    assert_eq!(state.table.flags(10), 0, "the next socket of that number is another");
}

/// This holds for any length of a read, and any number of calls that a client causes.
#[test]
fn a_client_that_sends_many_small_segments_does_not_end_the_deferral() {
    let mut state = state();
    for call in 0..20 * u64::from(CALLS_MAX) {
        assert_deferred(state.defer(10, want(0), call * 11, || Some(100)));
    }
}

#[test]
fn a_closed_socket_is_on_no_list() {
    let mut state = state();
    for socket in [10, 11, 12] {
        assert_deferred(defer(&mut state, socket, want(0)));
    }
    let job = state.take_pending().unwrap();
    for (closed, left) in [(11, &[10, 12][..]), (12, &[10]), (10, &[])] {
        state.forget(closed);
        let mut waiting = Vec::new();
        let mut link = state.jobs[job].waiters;
        while let Some(fd) = link.fd() {
            waiting.push(fd);
            link = state.table.entry(fd).unwrap().next;
        }
        waiting.sort_unstable();
        assert_eq!(waiting, left);
    }
}

#[test]
fn a_closed_epoll_instance_watches_no_socket() {
    let mut state = state();
    for socket in [10, 11] {
        state.table.set_flags(socket, IN_USE);
    }
    assert_deferred(defer(&mut state, 10, want(0)));
    let mut told = Vec::new();
    state.forget_instance(1, |socket, change| told.push((socket, change.events)));
    assert_eq!(told, [(10, OUT)], "it may have another descriptor");
    let job = state.take_pending().unwrap();
    let chunk = state.begin_chunk(job, 0);
    state.advance(job, chunk, chunk.len, None);
    state.resume(job, |_, changes, _| assert!(changes.as_slice().is_empty(), "another's number"));
    let verdict = defer(&mut state, 11, want(0));
    assert!(matches!(verdict, Verdict::Deferred(changes) if changes.as_slice().is_empty()));
}

#[test]
fn a_number_that_the_program_has_closed_is_not_closed_again() {
    let mut state = state();
    assert_deferred(defer(&mut state, 10, want(0)));
    let job = state.take_pending().unwrap();
    assert_eq!(state.begin_reading(u64::MAX, Some(102)), None);
    assert_eq!(state.begin_reading(u64::MAX, Some(103)), Some(103), "one is enough");
    state.forget(100);
    state.forget(102);
    assert!(state.has_ended(job), "there is another file now");
    assert_eq!(resume(&mut state, job), [10]);
    assert_eq!(state.free(job), None);
    assert_eq!(state.sink, None);
    assert!((100..103).all(|fd| state.table.flags(fd) == 0));
}

#[test]
fn a_duplicated_socket_is_not_deferred() {
    let mut state = state();
    assert_deferred(defer(&mut state, 10, want(0)));
    assert_eq!(state.share(10).as_slice().len(), 1, "the instance is told");
    let verdict = defer(&mut state, 10, want(0));
    assert!(matches!(verdict, Verdict::Left(Reason::Watchers, _)), "{verdict:?}");
}

#[test]
fn a_forked_child_has_no_jobs_and_no_waiting_sockets() {
    use core::cell::RefCell;
    let mut state = state();
    assert_deferred(defer(&mut state, 10, want(0)));
    let closed = RefCell::new(Vec::new());
    assert_eq!(state.begin_reading(u64::MAX, Some(101)), None);
    assert_eq!(state.begin_anew(|fd| closed.borrow_mut().push(fd)), Some(101));
    assert_eq!(closed.into_inner(), [100]);
    // After chroot(2) there is perhaps none to be opened.
    state.keeps_sink = true;
    assert_eq!(state.keep_sink(Some(102)), None);
    assert_eq!((state.begin_anew(|_| {}), state.sink), (None, Some(102)));
    assert_eq!(state.table.flags(10) & DEFERRED, 0);
    assert_eq!(state.take_pending(), None);
    // The parent has the registration, too. Nobody would change it back if the child ended.
    let verdict = defer(&mut state, 10, want(0));
    assert!(matches!(verdict, Verdict::Left(Reason::Watchers, _)), "{verdict:?}");
    state.forget_instance(1, |_, _| {});
    assert_deferred(defer(&mut state, 10, want(0)));
}

#[test]
fn many_are_resumed_in_turns() {
    let mut state = state();
    for socket in 0..1000 {
        assert_deferred(defer(&mut state, socket, want(0)));
    }
    let job = state.take_pending().unwrap();
    let chunk = state.begin_chunk(job, 0);
    state.advance(job, chunk, chunk.len, None);
    assert_eq!(state.resume(job, |_, _, _| {}), RESUMED_MAX);
    assert_eq!(resume(&mut state, job).len(), 1000 - RESUMED_MAX);
}

/// Lets a disk bring blocks for half a second, with this many microseconds for each block.
fn read_blocks(state: &mut LockedState, dev: u64, took_us: u64) {
    let chunk = Chunk {
        fd: None,
        sink: None,
        file: FileId { dev, ino: 2 },
        offset: 0,
        len: BLOCK,
        began_us: 0,
        begins_absent: false,
        stays: true,
    };
    for read in 0..500_000 / took_us {
        let began = Duration::from_micros(read * took_us);
        state.disk(dev).pace.begin(BLOCK, began);
        state.note_pace(chunk, BLOCK, true, (read + 1) * took_us);
    }
}

#[test]
fn the_kernel_reads_ahead_on_disks_that_are_fast() {
    let mut state = state();
    read_blocks(&mut state, 1, 100);
    read_blocks(&mut state, 2, 4_000);
    let readahead = [1, 2, 3].map(|dev| state.readahead(dev));
    assert_eq!(readahead, [Readahead::Usual, Readahead::Off, Readahead::Off]);
}

/// The number of bytes that a new job for `bytes` bytes reads.
fn reach(state: &mut LockedState, count: u64) -> u64 {
    // Each job has its own file, so that it joins no other.
    let file = FileId { dev: 1, ino: count };
    assert_deferred(defer(state, 10, Want { file, count, ..want(0) }));
    state.jobs.iter().find(|job| job.file == file).unwrap().end
}

#[test]
fn on_a_fast_disk_a_stream_begins_with_a_window() {
    let mut state = state();
    read_blocks(&mut state, 1, 100);
    // lighttpd asks for 256 KiB less a header.
    assert_eq!(reach(&mut state, BLOCK - 168), WINDOW_FAST_MIN + BLOCK);
    assert_eq!(reach(&mut state, 8 * BLOCK), 16 * BLOCK + BLOCK);
    assert_eq!(reach(&mut state, u64::MAX), WINDOW_FAST_MAX + BLOCK);
    assert_eq!(reach(&mut state, 5000), 5000);
}

#[test]
fn on_a_fast_disk_the_first_byte_comes_soon_and_then_half_a_window_at_a_time() {
    let mut state = state();
    read_blocks(&mut state, 1, 100);
    let mut at = 3 * BLOCK + 100;
    assert_deferred(defer(&mut state, 10, want(at)));
    let job = state.take_pending().unwrap();
    assert_deferred(defer(&mut state, 11, want(at + 100)));
    for wait in [BLOCK - 100, WINDOW_FAST_MAX / 2, WINDOW_FAST_MAX / 2] {
        let began = state.jobs[job].at;
        let mut resumed = Vec::new();
        while resumed.is_empty() {
            resumed = step(&mut state, job, None);
        }
        let read = state.jobs[job].at - began;
        assert!(resumed.contains(&10) && read.abs_diff(wait) <= 2 * BLOCK, "{read} {wait}");
        // The other client does not wait for more, either.
        assert!(resumed.contains(&11) || wait != BLOCK - 100);
        at = state.jobs[job].at;
        assert_deferred(defer(&mut state, 10, want(at)));
    }
}

#[test]
fn what_is_read_ahead_is_a_part_of_memory() {
    let mut state = state();
    read_blocks(&mut state, 1, 100);
    assert_eq!(state.begin_reading(2 << 30, None), None);
    for socket in 0..1000i32 {
        let file = FileId { dev: 1, ino: 1 << 32 | u64::from(socket.cast_unsigned() % 100) };
        assert_deferred(defer(&mut state, socket, Want { file, ..want(0) }));
    }
    // A thousand streams share 256 MiB.
    assert_eq!(reach(&mut state, 8 * BLOCK), 2 * BLOCK);
    for socket in 64..1000 {
        state.forget(socket);
        state.forget(socket);
    }
    // 64 streams share them.
    assert_eq!(reach(&mut state, 7 * BLOCK), 14 * BLOCK + BLOCK);
    assert_eq!(reach(&mut state, 20 * BLOCK), 16 * BLOCK + BLOCK);
}

#[test]
fn a_job_goes_on_beside_others_on_a_fast_disk_only() {
    for is_fast in [false, true] {
        let mut state = state();
        if is_fast {
            read_blocks(&mut state, 1, 100);
        }
        assert_deferred(defer(&mut state, 10, want(0)));
        let job = state.take_pending().unwrap();
        let other = Want { file: FileId { dev: 1, ino: 3 }, ..want(0) };
        assert_deferred(defer(&mut state, 11, other));
        while resume(&mut state, job).is_empty() {
            assert!(!state.has_ended(job), "somebody waits");
            let chunk = state.begin_chunk(job, 0);
            state.advance(job, chunk, chunk.len, None);
        }
        assert!(state.jobs[job].at < state.jobs[job].end);
        assert_eq!(state.has_ended(job), !is_fast);
        // It does not go on for ever: the stream may be as fast as the disk.
        while is_fast && !state.has_ended(job) {
            let at = state.jobs[job].at;
            assert!(at < WINDOW_FAST_MAX, "others wait");
            assert_deferred(defer(&mut state, 10, want(at)));
            while resume(&mut state, job).is_empty() {
                let chunk = state.begin_chunk(job, 0);
                state.advance(job, chunk, chunk.len, None);
            }
        }
    }
}

/// Lets a number of streams go on, with one job each.
fn go_on(state: &mut LockedState, streams: u64) {
    for ino in 10..10 + streams {
        let file = FileId { dev: 1, ino };
        assert_deferred(defer(state, 10, Want { file, ..want(0) }));
        let job = state.jobs.iter_mut().find(|job| job.file == file).unwrap();
        (job.window, job.end) = (64 * BLOCK, 64 * BLOCK);
    }
}

#[test]
fn streams_that_go_on_take_turns_and_first_reads_pass_them() {
    let mut state = state();
    go_on(&mut state, 8);
    let depth = state.disk(1).depth();
    let mut reading: Vec<_> = (0..depth).map(|_| state.take_pending().unwrap()).collect();
    assert_eq!((state.pending(), state.take_pending()), (0, None));
    // Another disk has room, and so has a file of which nothing was read.
    for dev in [1, 2] {
        let file = FileId { dev, ino: 1 };
        assert_deferred(defer(&mut state, 11, Want { file, ..want(0) }));
        let first = state.take_pending().unwrap();
        assert!(!state.gives_way(first));
        state.jobs[first].phase = Phase::Ended;
        state.free(first);
    }
    // One chunk each, round and round.
    let mut turns = vec![0; JOBS_MAX];
    for turn in 1..=80 {
        let job = reading.remove(0);
        turns[job] += 1;
        let chunk = state.begin_chunk(job, (turn - 1) * 10_000);
        state.note_pace(chunk, chunk.len, true, turn * 10_000);
        state.advance(job, chunk, chunk.len, None);
        assert!(state.gives_way(job));
        reading.push(state.take_pending().unwrap());
        assert_eq!(state.take_pending(), None);
    }
    assert_eq!(turns[..8], [10; 8]);
}

#[test]
fn a_stream_that_goes_on_reads_as_much_as_the_pace_says() {
    let mut state = state();
    read_blocks(&mut state, 1, 100);
    let chunk = state.disk(1).pace.chunk();
    assert!(chunk > BLOCK);
    go_on(&mut state, 1);
    let job = state.take_pending().unwrap();
    // The first byte does not wait for so much.
    let first = state.begin_chunk(job, 0);
    assert_eq!(first.len, BLOCK);
    state.advance(job, first, BLOCK, None);
    assert_eq!(state.begin_chunk(job, 0).len, chunk - BLOCK);
    assert_deferred(defer(&mut state, 12, Want { file: FileId { dev: 1, ino: 9 }, ..want(0) }));
    let job = state.take_pending().unwrap();
    state.jobs[job].window = 0;
    assert_eq!(state.begin_chunk(job, 0).len, BLOCK);
}

#[test]
fn beyond_a_block_whole_blocks_are_read() {
    let mut state = state();
    for (count, reads) in
        [(5000, 5000), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK), (u64::MAX, 2 * BLOCK)]
    {
        assert_eq!(reach(&mut state, count), reads, "{count}");
    }
}

#[test]
fn the_last_byte_that_a_socket_waited_for_is_known() {
    let mut state = state();
    assert!(!state.has_waited(10, want(0)));
    assert_deferred(defer(&mut state, 10, want(0)));
    assert!(!state.has_waited(10, want(0)), "it still waits");
    let job = state.take_pending().unwrap();
    step(&mut state, job, None);
    assert!(state.has_waited(10, want(0)));
    assert!(!state.has_waited(10, want(BLOCK)));
}

#[test]
fn an_error_by_a_closed_descriptor_reaches_no_socket() {
    let mut state = state();
    assert_deferred(defer(&mut state, 10, want(0)));
    let job = state.take_pending().unwrap();
    let chunk = state.begin_chunk(job, 0);
    // The program closes the descriptor and opens a pipe at its number before the reader uses it.
    state.forget(100);
    state.advance(job, chunk, 0, Some(libc::ESPIPE));
    assert_eq!(resume(&mut state, job), [10]);
    assert_deferred(defer(&mut state, 10, want(0)));
}

/// A disk whose limit of 32 blocks in a second comes in slices, and other reads that come.
fn space(state: &mut LockedState) {
    let spacing = &mut state.disk(FILE.dev).spacing;
    for slice in 0..20 {
        for read in 0..8 {
            let now = Duration::from_millis(slice * 250 + read);
            spacing.begin(BLOCK, now);
            spacing.begin_other(now);
            spacing.end(BLOCK, Duration::from_millis(if read == 0 { 240 } else { 1 }), now);
        }
    }
}

#[test]
fn jobs_that_go_on_pause_on_a_disk_with_slices_and_first_reads_do_not() {
    let mut state = state();
    let now = 5_000_000;
    assert_deferred(defer(&mut state, 10, want(0)));
    let one = state.take_pending().unwrap();
    (state.jobs[one].window, state.jobs[one].end) = (4 * BLOCK, 64 * BLOCK);
    space(&mut state);
    state.note_time(now);
    assert!(!state.gives_way(one) && state.watch().is_none(), "no pause has begun");
    let mut jobs = 0;
    // As much as a slice has, and more.
    while jobs < 40 && !state.gives_way(one) {
        let chunk = state.begin_chunk(one, now);
        state.note_pace(chunk, chunk.len, true, now);
        state.advance(one, chunk, chunk.len, None);
        jobs += 1;
    }
    assert!((1..40).contains(&jobs), "{jobs}");
    assert_eq!((state.pending(), state.take_pending()), (0, None));
    // The first read of another file does not wait.
    assert_deferred(defer(&mut state, 12, Want { file: FileId { ino: 12, ..FILE }, ..want(0) }));
    assert!(state.take_pending().is_some());
    // One reader wakes when the pause ends.
    assert!(state.lacks_watcher());
    let ends = state.watch().unwrap();
    assert!(ends > now && ends < now + 1_000_000 && !state.lacks_watcher());
    assert_eq!(state.watch(), None);
    state.note_time(ends);
    state.end_watch();
    assert_eq!((state.take_pending(), state.lacks_watcher()), (Some(one), false));
}

/// Lets a stream go on until its window is as large as it gets; returns the window.
fn largest_window(state: &mut LockedState) -> u64 {
    let mut at = 0;
    for _ in 0..12 {
        assert_deferred(defer(state, 10, want(at)));
        let job = state.take_pending().unwrap_or(0);
        while !state.has_ended(job) {
            step(state, job, None);
        }
        at = state.jobs[job].at;
        state.free(job);
    }
    state.ends[slot(page(FILE, at), ENDS_MAX)].window
}

#[test]
fn a_window_that_is_set_takes_the_place_of_the_largest() {
    for (set, expected) in [
        (None, WINDOW_MAX),
        (Some(BLOCK), BLOCK),
        (Some(2 * BLOCK), 2 * BLOCK),
        (Some(16 * BLOCK), 16 * BLOCK),
    ] {
        let mut state = state();
        state.window_set = set;
        assert_eq!(largest_window(&mut state), expected, "{set:?}");
    }
}

#[test]
fn a_step_knows_whether_its_bytes_stay_and_whether_it_begins_with_an_absent_one() {
    let mut state = state();
    let leaves = Want { stays: false, ..want(0) };
    assert_deferred(defer(&mut state, 10, leaves));
    let job = state.take_pending().unwrap();
    let chunk = state.begin_chunk(job, 0);
    assert!(chunk.begins_absent && !chunk.stays);
    state.advance(job, chunk, chunk.len, None);
    let next = state.begin_chunk(job, 0);
    assert!(!next.begins_absent && !next.stays, "only the first was looked for");
    state.advance(job, next, next.len, None);
    // Another socket wants the same bytes to stay.
    assert_deferred(defer(&mut state, 11, Want { stays: true, ..want(2 * BLOCK) }));
    assert!(state.begin_chunk(job, 0).stays);
}

#[test]
fn a_reader_wakes_for_a_discard_and_earlier_for_an_earlier_one() {
    let mut state = state();
    state.note_time(1000);
    assert!(!state.lacks_watcher());
    state.note_brought(FILE, 0..4 * BLOCK, || Some(100));
    assert_eq!(state.table.flags(100), OURS);
    let first = state.watch().unwrap();
    assert!(!state.lacks_watcher() && state.watch().is_none(), "one wakes");
    state.note_time(first);
    state.end_watch();
    while state.discard().is_some() {
        state.trails.has_discarded();
    }
    let later = state.watch().unwrap();
    assert!(later > first && !state.lacks_watcher());
    state.trails.passed(10, FILE, &(0..4 * BLOCK), first);
    assert!(state.lacks_watcher(), "the one that wakes comes too late");
    assert!(state.watch().unwrap() < later);
}

#[test]
fn a_child_and_a_lock_of_the_file_end_trails_and_no_trail_begins_at_a_locked_file() {
    let mut state = state();
    state.note_brought(FILE, 0..BLOCK, || Some(100));
    assert_eq!((state.end_trail(|file| file == FILE), state.table.flags(100)), (Some(100), 0));
    state.lock_file(5, FILE);
    state.note_brought(FILE, 0..BLOCK, || unreachable!("it is locked"));
    let other = FileId { dev: 1, ino: 3 };
    state.note_brought(other, 0..BLOCK, || Some(101));
    let closed = core::cell::Cell::new(0);
    state.begin_anew(|fd| closed.set(fd));
    assert_eq!((closed.get(), state.table.flags(101)), (101, 0));
}

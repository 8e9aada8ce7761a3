//! Child processes.

use core::time::Duration;
use std::process::ExitStatus;

use ring::{Event, Key, Op};

use super::stage::Stage;

on_every_driver!(
    a_child_ends_with_its_status,
    a_child_that_has_ended_before,
    no_other_child_is_waited_for,
    many_children_at_once,
    numbers_of_no_process,
    a_child_that_was_waited_for_before,
    a_child_that_other_code_waits_for,
    one_of_two_operations_gets_the_status,
    a_cancelled_operation_leaves_the_child,
    a_dropped_ring_leaves_the_child,
);

mod processes {
    //! In the simulation there are only children.
    use super::*;
    on_real_drivers!(a_process_that_is_no_child);
}

#[track_caller]
fn status(s: &mut Stage, key: Key) -> ExitStatus {
    let completion = s.next(key);
    assert!(!completion.more);
    match completion.result.unwrap() {
        Event::Exited(status) => status,
        other => panic!("{other:?}"),
    }
}

fn submit(s: &mut Stage, pid: u32) -> Key {
    s.ring.submit(Op::Child(pid), 0)
}

fn a_child_ends_with_its_status(s: &mut Stage) {
    use std::os::unix::process::ExitStatusExt as _;
    for code in [0, 7, 255] {
        let mut child = s.child();
        let key = submit(s, child.id());
        assert!(s.rest_now().is_empty());
        child.exit(code);
        assert_eq!(status(s, key).code(), Some(code.into()));
    }
    let mut child = s.child();
    let key = submit(s, child.id());
    child.kill();
    assert_eq!(status(s, key).signal(), Some(libc::SIGKILL));
    assert!(s.rest().is_empty());
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_child_that_has_ended_before(s: &mut Stage) {
    let mut child = s.child();
    child.exit(3);
    s.pause();
    let key = submit(s, child.id());
    assert_eq!(status(s, key).code(), Some(3));
}

fn no_other_child_is_waited_for(s: &mut Stage) {
    let (mut one, mut two) = (s.child(), s.child());
    let key = submit(s, one.id());
    two.exit(2);
    assert!(s.rest().is_empty());
    one.exit(1);
    assert_eq!(status(s, key).code(), Some(1));
    assert_eq!(two.wait().code(), Some(2));
}

fn many_children_at_once(s: &mut Stage) {
    let mut children: Vec<_> = (0..30).map(|_| s.child()).collect();
    let keys: Vec<_> = children.iter().map(|child| submit(s, child.id())).collect();
    for (code, child) in (0..30).zip(&mut children).rev() {
        child.exit(code);
    }
    for (code, key) in (0..).zip(keys) {
        assert_eq!(status(s, key).code(), Some(code));
    }
}

fn numbers_of_no_process(s: &mut Stage) {
    // The last is above PID_MAX_LIMIT.
    for (pid, errno) in [
        (0, libc::EINVAL),
        (1 << 31, libc::EINVAL),
        (u32::MAX, libc::EINVAL),
        (0x3fff_ffff, libc::ESRCH),
    ] {
        let key = submit(s, pid);
        assert_eq!(s.error(key).raw_os_error(), Some(errno), "{pid}");
    }
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_process_that_is_no_child(s: &mut Stage) {
    for pid in [std::process::id(), std::os::unix::process::parent_id()] {
        let key = submit(s, pid);
        assert_eq!(s.error(key).raw_os_error(), Some(libc::ECHILD), "{pid}");
    }
}

fn a_child_that_was_waited_for_before(s: &mut Stage) {
    let mut child = s.child();
    child.exit(0);
    child.wait();
    let key = submit(s, child.id());
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ESRCH));
}

fn a_child_that_other_code_waits_for(s: &mut Stage) {
    let mut child = s.child();
    let key = submit(s, child.id());
    s.pause();
    child.exit(0);
    child.wait();
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ECHILD));
}

fn one_of_two_operations_gets_the_status(s: &mut Stage) {
    let mut child = s.child();
    let keys = [submit(s, child.id()), submit(s, child.id())];
    s.pause();
    child.exit(5);
    let mut results = keys.map(|key| s.next(key).result);
    results.sort_by_key(Result::is_err);
    let [status, error] = results;
    assert!(matches!(status, Ok(Event::Exited(status)) if status.code() == Some(5)));
    assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::ECHILD));
}

fn a_cancelled_operation_leaves_the_child(s: &mut Stage) {
    let mut child = s.child();
    let key = submit(s, child.id());
    s.pause();
    s.ring.cancel(key);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ECANCELED));
    child.exit(4);
    assert!(s.rest().is_empty());
    let key = submit(s, child.id());
    assert_eq!(status(s, key).code(), Some(4));
}

fn a_dropped_ring_leaves_the_child(s: &mut Stage) {
    let mut child = s.child();
    submit(s, child.id());
    let timer = s.ring.submit(Op::Timer(s.ring.now() + Duration::from_millis(5)), 0);
    s.next(timer);
    s.replace_ring();
    child.exit(6);
    assert_eq!(child.wait().code(), Some(6));
}

//! What the watches of directories and those of files have in common.

use ring::{Change, Event, Key};

use super::stage::Stage;

/// A watch whose operation was submitted begins.
#[track_caller]
pub(super) fn begun(s: &mut Stage, key: Key) -> Key {
    let completion = s.next(key);
    assert!(
        matches!(completion.result, Ok(Event::Watching { .. })) && completion.more,
        "{completion:?}"
    );
    key
}

/// The next change that a watch reports.
#[track_caller]
pub(super) fn change(s: &mut Stage, key: Key) -> Change {
    let completion = s.next(key);
    assert!(completion.more);
    match completion.result.unwrap() {
        Event::Changed(change) => change,
        other => panic!("{other:?}"),
    }
}

/// A watch ends with an error, perhaps after more changes.
#[track_caller]
pub(super) fn ends_with(s: &mut Stage, key: Key, errno: i32) {
    loop {
        let completion = s.next(key);
        if !completion.more {
            assert_eq!(completion.result.unwrap_err().raw_os_error(), Some(errno));
            return;
        }
    }
}

//! Runs the scripts of this folder: a script says what the stack sends and reports for each action of a peer or the
//! application. Each case names the RFC and the section that it holds the stack to. The format is in `parse.rs`.
//! `recorded` compares the stack with the kernel's.
//!
//! A case that begins with `broken` is known to fail; if it passes, the test fails. 111 cases (`recorded`) were played
//! to Linux 6.18 by a TAP in a namespace, and `linux.txt` keeps what the kernel sent. The stack has to send the same
//! on the virtual clock: flags, relative numbers, lengths, options, SACK blocks, echoes of timestamps, marks of
//! congestion, closed windows, and times to within 15 ms or an eighth of the pause. Windows, PSH and the clock of
//! timestamps are not compared. Twenty cases differ. Each of them names the reason and the frames that this stack
//! sends instead, and fails if the stack sends others. `cargo test -p samum-netstack --test all -- --ignored
//! record` records anew.

mod end;
mod packets;
mod parse;
mod recorded;
mod run;

use std::panic::catch_unwind;

/// Runs all cases of a script and reports each that fails.
fn script(name: &str, text: &str) {
    let cases = parse::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
    let mut failed = Vec::new();
    for case in &cases {
        // A panic of the stack fails the case, not the others.
        let result = catch_unwind(|| run::run(case));
        let result = result.unwrap_or_else(|_| Err("it panicked".to_owned()));
        let result = match result {
            Ok(()) if case.is_broken => Err("it is not broken any more".to_owned()),
            Err(_) if case.is_broken => Ok(()),
            result => result,
        };
        if let Err(why) = result {
            failed.push(format!("{name}: {}\n  {why}", case.name));
        }
    }
    let (failures, cases) = (failed.len(), cases.len());
    assert!(failed.is_empty(), "{}\n{failures} of {cases} cases failed", failed.join("\n\n"));
}

macro_rules! scripts {
    ($($name:ident)*) => {
        /// The scripts by name.
        const SCRIPTS: &[(&str, &str)] =
            &[$((stringify!($name), include_str!(concat!(stringify!($name), ".txt")))),*];

        $(#[test]
        fn $name() {
            script(stringify!($name), include_str!(concat!(stringify!($name), ".txt")));
        })*
    };
}

scripts! {
    close
    cookies
    data
    ecn
    fast
    handshake
    hostile
    keepalive
    large
    packets
    path_mtu
    rack
    receive
    reset
    rto
    time_wait
    timestamps
    zero_window
}

/// The documents that the stack implements and the least number of their cases. More cases of congestion control, where
/// windows are numbers and not segments that leave, are beside the code: `recovery/prr.rs` and `congestion/`.
const DOCUMENTS: [(u32, usize); 35] = [
    (768, 9),
    (791, 3),
    (792, 4),
    (826, 5),
    (1122, 9),
    (1191, 7),
    (1337, 3),
    (2018, 13),
    (2525, 2),
    (2883, 5),
    (3042, 3),
    (3168, 18),
    (3522, 3),
    (4443, 12),
    (4861, 6),
    (4987, 21),
    (5461, 3),
    (5681, 19),
    (5682, 3),
    (5927, 3),
    (5961, 23),
    (6191, 4),
    (6298, 13),
    (6528, 3),
    (6582, 3),
    (6675, 8),
    (6928, 3),
    (6937, 3),
    (7323, 23),
    (8200, 16),
    (8201, 3),
    (8985, 8),
    (9293, 165),
    (9406, 3),
    (9438, 3),
];

/// Each case names the document and the section that it is about, and no document has less of them than it had.
#[test]
fn each_document_has_its_cases() {
    let mut count = std::collections::BTreeMap::<u32, usize>::new();
    let mut all = 0;
    for (name, text) in SCRIPTS {
        let cases = parse::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        all += cases.len();
        for case in &cases {
            let (source, rule) = case.name.split_once(": ").unwrap_or_default();
            let (document, section) = source.split_once(", ").unwrap_or_default();
            let number = document.strip_prefix("RFC ").and_then(|number| number.parse().ok());
            let Some(number) = number.filter(|_| !section.is_empty() && !rule.is_empty()) else {
                panic!("{name}: {:?} names no section of a document", case.name)
            };
            *count.entry(number).or_default() += 1;
        }
    }
    for (document, least) in DOCUMENTS {
        let count = count.get(&document).copied().unwrap_or_default();
        assert!(count >= least, "RFC {document} has {count} cases of {least}");
    }
    assert!(all >= 405, "{all} cases: {count:?}");
}

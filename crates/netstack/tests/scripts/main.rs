//! The scripts of this folder: what a stack sends and tells when a peer sends and the application acts.
//! Each case names the RFC and the section that it holds the stack to. The format is in `parse.rs`.

mod parse;
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
    path_mtu
    rack
    receive
    reset
    rto
    time_wait
    timestamps
    zero_window
}

//! Processes that share a storage, die in the midst of an order, or have given up their rights.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;
use crate::upgrade::Family;

#[test]
fn a_process_that_dies_in_an_order_goes_on_with_it() {
    let ports = Ports::new();
    let behaviour = Behaviour { sleep: Some(4), ..Behaviour::default() };
    let pebble = or_skip!(Pebble::start(ports, &behaviour));
    let tree = Tree::new();
    let text = config(ports, "uring", &pebble.keys(), "", &[&["a.example"]]);
    let mut server = start(&tree, &text);
    let record = || fs::read_to_string(stored(&tree, "a.example.json")).unwrap_or_default();
    assert!(wait_until(ORDERED, || record().contains("/my-order/")), "{:?}", server.stderr());
    server.signal(Signal::KILL).unwrap();
    server.wait(SOON).unwrap();
    let server = start(&tree, &text);
    let said = "going on with the order of a certificate for a.example";
    assert!(server.wait_for_stderr(said, SOON).is_some(), "{:?}", server.stderr());
    wait_for_certificate(&server, ports.tls, "a.example");
    assert_eq!(pebble.orders(), 1, "nothing is asked twice");
}

#[test]
fn an_upgrade_in_the_midst_of_an_order_asks_nothing_again() {
    let ports = Ports::new();
    let behaviour = Behaviour { sleep: Some(4), ..Behaviour::default() };
    let pebble = or_skip!(Pebble::start(ports, &behaviour));
    let tree = Tree::new();
    let text = config(ports, "uring", &pebble.keys(), "", &[&["a.example"]]);
    let (_, sites) = text.split_once("\n[acme]\n").unwrap();
    let family = Family::start("uring", &tree, "threads = 1", &format!("[acme]\n{sites}"));
    let record = || fs::read_to_string(stored(&tree, "a.example.json")).unwrap_or_default();
    assert!(wait_until(ORDERED, || record().contains("/my-order/")), "no order");
    family.upgrade();
    let is_shown = || shown(ports.tls, "a.example").is_ok_and(|shown| has(&shown, ISSUER));
    assert!(wait_until(ORDERED, is_shown), "{}", record());
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn of_two_processes_one_asks_and_both_answer_and_show() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let tree = Tree::new();
    // The authority asks one of them only, whoever has ordered.
    let other = Ports::new();
    let storage = format!("storage = \"{}\"\n{}", stored(&tree, "").display(), pebble.keys());
    let trees = [Tree::new(), Tree::new()];
    let texts = [ports, other]
        .map(|ports| config(ports, "uring", &storage, "", &[&["a.example"], &["b.example"]]));
    let servers: Vec<_> = trees.iter().zip(&texts).map(|(tree, text)| start(tree, text)).collect();
    for (server, ports) in servers.iter().zip([ports, other]) {
        wait_for_certificate(server, ports.tls, "a.example");
        wait_for_certificate(server, ports.tls, "b.example");
    }
    assert_eq!(shown(ports.tls, "a.example").unwrap(), shown(other.tls, "a.example").unwrap());
    assert_eq!(pebble.orders(), 2, "one for each certificate");
}

/// The second server orders, and the authority asks the first one, which does not.
#[test]
fn a_process_answers_what_another_one_has_ordered() {
    let ports = Ports::new();
    let pebble = or_skip!(Pebble::start(ports, &Behaviour::default()));
    let tree = Tree::new();
    let storage = format!("storage = \"{}\"\n", stored(&tree, "").display());
    for challenge in ["http-01", "tls-alpn-01"] {
        let host = format!("{challenge}.example");
        let acme = format!("{storage}{}challenges = [\"{challenge}\"]", pebble.keys());
        // It has another host, whose order is refused, and so no order of its own.
        let refused = format!("{challenge}.refused.example");
        let (first, second, other) = (Tree::new(), Tree::new(), Ports::new());
        let first = start(&first, &config(ports, "uring", &acme, "", &[&[&refused]]));
        let said = format!("no certificate for {refused}");
        assert!(first.wait_for_stderr(&said, ORDERED).is_some(), "{:?}", first.stderr());
        let second = start(&second, &config(other, "uring", &acme, "", &[&[&host]]));
        wait_for_certificate(&second, other.tls, &host);
    }
}

#[test]
fn a_confined_user_gets_certificates() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip!("only root can become another user");
    }
    let ports = Ports::new();
    let pebble =
        or_skip!(Pebble::start(ports, &Behaviour { validity: 40, ..Behaviour::default() }));
    let tree = Tree::new();
    open_to_all(&tree);
    let server = "user = \"nobody\"\nconfine = \"auto\"";
    let text = config(ports, "epoll", &pebble.keys(), server, &[&["a.example"]]);
    pebble.open_to_all();
    let server = start(&tree, &text);
    assert!(server.wait_for_stderr("running as the user nobody", SOON).is_some());
    let first = wait_for_certificate(&server, ports.tls, "a.example");
    let is_renewed = wait_until(ORDERED, || shown(ports.tls, "a.example").unwrap() != first);
    assert!(is_renewed, "{:?}", server.stderr());
    let data = stored(&tree, "").metadata().unwrap();
    assert_eq!(data.mode() & 0o7777, 0o700);
    assert_eq!(data.uid(), stored(&tree, "a.example.pem").metadata().unwrap().uid());
    assert_ne!(data.uid(), 0);
}

/// Lets other users enter the directory of a tree.
fn open_to_all(tree: &Tree) {
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

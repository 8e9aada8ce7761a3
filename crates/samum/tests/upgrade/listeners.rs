//! The sockets of the listeners: all kinds, and other numbers of workers than before.

use core::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Asks without pause on new connections, on two threads for each address, while something is done. No request may fail.
/// Returns the number of requests.
#[track_caller]
fn asked_meanwhile(addresses: &[Address], act: impl FnOnce()) -> usize {
    let ended = AtomicBool::new(false);
    let ask = |address: &Address| {
        let mut count = 0;
        while !ended.load(Ordering::Relaxed) {
            let response = testkit::get(address, "/a.txt");
            let response = response.unwrap_or_else(|error| panic!("request {count}: {error}"));
            assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]));
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let asking: Vec<_> = addresses
            .iter()
            .chain(addresses)
            .map(|address| scope.spawn(move || ask(address)))
            .collect();
        act();
        ended.store(true, Ordering::Relaxed);
        asking.into_iter().map(|thread| thread.join().expect("no request fails")).sum()
    })
}

#[test]
fn no_new_connection_is_lost_in_three_upgrades() {
    on_both_drivers(|driver| {
        let tree = tree();
        let socket = tree.path().join("web.sock");
        let listen = format!("\"127.0.0.1:0\", \"[::1]:0\", \"unix:{},mode=660\"", text(&socket));
        let family = Family::start(driver, &tree, "", &site(&tree, &listen));
        assert!(wait_until(SOON, || family.server.addresses().len() == 3));
        let mut addresses = family.server.addresses();
        addresses.truncate(3);
        let count = asked_meanwhile(&addresses, || {
            for _ in 0..3 {
                family.upgrade();
            }
        });
        assert!(count > 100, "{count}");
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
        family.stop();
        family.assert_ends();
        assert!(!socket.exists());
    });
}

#[test]
fn no_new_connection_is_lost_if_the_number_of_workers_changes() {
    on_both_drivers(|driver| {
        let tree = tree();
        let socket = tree.path().join("web.sock");
        let listen = format!("\"127.0.0.1:0\", \"unix:{}\"", text(&socket));
        let sites = site(&tree, &listen);
        let family = Family::start(driver, &tree, "threads = 1", &sites);
        assert!(wait_until(SOON, || family.server.addresses().len() == 2));
        let mut addresses = family.server.addresses();
        addresses.truncate(2);
        asked_meanwhile(&addresses, || {
            for threads in [3, 2, 4, 1, 2] {
                configure(&tree, driver, &format!("threads = {threads}"), &sites);
                family.upgrade();
            }
        });
        // Reloads and later upgrades work with several sockets of a worker, too.
        configure(
            &tree,
            driver,
            "threads = 2",
            &site(&tree, &format!("\"unix:{}\"", text(&socket))),
        );
        let reloaded =
            Command::new(SAMUM).arg("reload").arg("--control").arg(&family.control).status();
        assert!(reloaded.unwrap().success());
        assert!(wait_until(SOON, || testkit::get(&addresses[0], "/a.txt").is_err()));
        assert_eq!(testkit::get(&addresses[1], "/a.txt").unwrap().status, 200);
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn listeners_that_the_new_configuration_lacks_are_emptied_and_new_ones_opened() {
    on_both_drivers(|driver| {
        let tree = tree();
        let [old, kept, new] = ["old", "kept", "new"].map(|name| tree.path().join(name));
        let unix = |path: &Path| format!("\"unix:{}\"", text(path));
        let both = [unix(&old), unix(&kept)].join(", ");
        let family = Family::start(driver, &tree, "", &site(&tree, &both));
        assert!(wait_until(SOON, || kept.exists()));
        let both = [unix(&kept), unix(&new)].join(", ");
        configure(&tree, driver, "", &site(&tree, &both));
        family.upgrade();
        for path in [&kept, &new] {
            assert_eq!(testkit::get(&Address::Unix(path.clone()), "/a.txt").unwrap().status, 200);
        }
        assert!(wait_until(SOON, || !old.exists()));
        family.stop();
        family.assert_ends();
        assert!(!kept.exists() && !new.exists());
    });
}

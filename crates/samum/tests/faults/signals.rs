//! Shutdown by signals: after the responses that have begun, or at once.

use core::time::Duration;
use std::fs;
use std::time::Instant;

use rustix::process::{Pid, kill_process};
use testkit::{Address, Client, Content, Signal, Tree, tether};

use crate::common::{
    SOON, ask, ask_on, connect, on_both_drivers, on_both_drivers_at_once, request, serve, text,
    wait_until,
};

const BIG: u64 = 20 << 20;

#[test]
fn a_download_completes_and_no_client_can_connect() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, BIG);
        let tree = Tree::new().file("big.bin", content.clone()).file("a.txt", "hello");
        // nginx stops so on SIGQUIT, which its image has as the signal to stop.
        for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
            let mut server = serve(driver, tree.path(), &["--threads", "2"]);
            let mut idle = connect(&server);
            assert_eq!(ask_on(&mut idle, "GET /a.txt").status, 200);
            let mut half = connect(&server);
            half.send("GET / HT").unwrap();
            let mut client = connect(&server);
            client.send(request("GET /big.bin")).unwrap();
            client.head().unwrap();
            server.signal(signal).unwrap();
            assert_eq!(idle.read_to_end().unwrap(), b"", "an idle connection is closed");
            assert_eq!(
                half.read_to_end().unwrap_or_default(),
                b"",
                "and one without a whole request"
            );
            let address = server.address();
            assert!(wait_until(SOON, || Client::connect(&address).is_err()), "still accepting");
            content.assert_is(&client.read_exactly(usize::try_from(BIG).unwrap()).unwrap());
            assert_eq!(client.read_to_end().unwrap(), b"");
            assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
            let said = server.stderr().join("\n");
            assert!(said.contains("shutting down after the responses"), "{said}");
        }
    });
}

/// Their connections are complete, and a reset would look like a fault of the server.
#[test]
fn clients_that_wait_to_be_accepted_are_answered_at_a_shutdown() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        for threads in ["1", "3"] {
            let mut server = serve(driver, tree.path(), &["--threads", threads]);
            server.signal(Signal::STOP).unwrap();
            // More than a turn accepts, of each worker.
            let mut clients: Vec<_> = (0..600).map(|_| connect(&server)).collect();
            for client in &mut clients {
                client.send(request("GET /a.txt")).unwrap();
            }
            let mut silent: Vec<_> = (0..5).map(|_| connect(&server)).collect();
            server.signal(Signal::TERM).unwrap();
            server.signal(Signal::CONT).unwrap();
            for client in &mut clients {
                assert_eq!(client.response().unwrap().status, 200);
                assert_eq!(client.read_to_end().unwrap(), b"");
            }
            for client in &mut silent {
                assert_eq!(client.read_to_end().unwrap(), b"");
            }
            drop((clients, silent));
            assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
        }
    });
}

#[test]
fn signals_that_ask_for_nothing_leave_the_server_as_it_is() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "a");
        let mut server = serve(driver, tree.path(), &[]);
        for signal in [Signal::WINCH, Signal::PIPE, Signal::CHILD] {
            server.signal(signal).unwrap();
        }
        assert_eq!(ask(&server, "GET /a.txt").body, b"a");
        let said = server.stderr().iter().filter(|line| line.contains("SIG")).count();
        assert_eq!(said, 0, "{:?}", server.stderr());
        assert_eq!(server.terminate().unwrap().code(), Some(0));
    });
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("big.bin", Content::pseudo_random(1, BIG));
        let mut server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        client.send(request("GET /big.bin")).unwrap();
        client.head().unwrap();
        server.signal(Signal::TERM).unwrap();
        assert!(server.wait_for_stderr("shutting down", SOON).is_some());
        std::thread::sleep(Duration::from_millis(100));
        let began = Instant::now();
        server.signal(Signal::TERM).unwrap();
        assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn responses_that_a_shutdown_cuts_off_are_logged() {
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new().file("big.bin", Content::pseudo_random(1, BIG));
        let logs = Tree::new();
        let log = logs.path().join("access.log");
        let options = ["--log", text(&log), "--log-format", "json"];
        let mut server = serve(driver, tree.path(), &options);
        let mut client = connect(&server);
        client.send(request("GET /big.bin")).unwrap();
        client.head().unwrap();
        server.signal(Signal::TERM).unwrap();
        // It takes nothing more for as long as the server waits.
        assert_eq!(server.wait(Duration::from_secs(40)).unwrap().code(), Some(0));
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.lines().count() == 1 && lines.contains("\"cut\":\"server\""), "{lines}");
        let said = server.stderr().join("\n");
        assert!(said.contains("1 connection was cut off by the shutdown"), "{said}");
    });
}

#[test]
fn an_idle_server_ends_at_once() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        let mut server = serve(driver, tree.path(), &["--threads", "2"]);
        let mut clients: Vec<_> = (0..20).map(|_| connect(&server)).collect();
        for client in &mut clients {
            assert_eq!(ask_on(client, "GET /a.txt").status, 200);
        }
        let began = Instant::now();
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    });
}

#[test]
fn a_request_that_waits_for_a_chunked_body_is_answered_at_shutdown() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        let mut server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        client.send(request("POST /\nTransfer-Encoding: chunked")).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        server.signal(Signal::TERM).unwrap();
        let response = client.response().unwrap();
        assert_eq!((response.status, response.header("Connection")), (405, Some("close")));
        drop(client);
        assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
    });
}

#[test]
fn a_closed_standard_error_changes_nothing() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        let sockets = Tree::new();
        let path = sockets.path().join("s");
        let listen = crate::common::joined("unix:", &path);
        let mut command = crate::common::command(driver, tree.path(), &["--listen", &listen]);
        // Pipes whose readers are closed.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = tether(command.stdout(writer.try_clone().unwrap()).stderr(writer));
        let mut child = command.spawn().unwrap();
        let address = Address::Unix(path);
        assert!(wait_until(SOON, || Client::connect(&address).is_ok()));
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(wait_until(SOON, || child.try_wait().unwrap().is_some()));
        assert_eq!(child.wait().unwrap().code(), Some(0));
    });
}

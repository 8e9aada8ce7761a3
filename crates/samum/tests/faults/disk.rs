//! Files that shrink, grow, or cannot be read while they are being sent.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};

use testkit::{Content, Disk, Server, SlowFs, Tree, kill_at, or_skip};

use crate::common::{SOON, ask, ask_on, command, connect, on_both_drivers, request, serve};

const BIG: u64 = 20 << 20;

/// The filter of a systemd unit kills the process for calls that its version of systemd does not know.
#[test]
fn a_filter_that_kills_at_cachestat_does_not_kill_the_server() {
    const CACHESTAT: i64 = 451;
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, 3 << 20);
        let tree = Tree::new().file("big.bin", content.clone());
        let mut command = command(driver, tree.path(), &[]);
        let server = Server::spawn(kill_at(&mut command, &[CACHESTAT])).unwrap();
        for _ in 0..2 {
            content.assert_is(&ask(&server, "GET /big.bin").body);
        }
        tree.evict("big.bin");
        content.assert_is(&ask(&server, "GET /big.bin").body);
    });
}

#[test]
fn a_file_truncated_while_being_sent_closes_the_connection() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, BIG);
        let tree = Tree::new().file("big.bin", content.clone()).file("a.txt", "hello");
        let server = serve(driver, tree.path(), &[]);
        let mut other = connect(&server);
        assert_eq!(ask_on(&mut other, "GET /a.txt").status, 200);
        let mut client = connect(&server);
        client.send(request("GET /big.bin")).unwrap();
        let head = client.head().unwrap();
        assert_eq!(head.header("Content-Length"), Some(&BIG.to_string()[..]));
        let mut body = client.read_exactly(1 << 20).unwrap();
        // At a page boundary, because the socket holds the file's own pages.
        let file = File::options().write(true).open(tree.path().join("big.bin")).unwrap();
        file.set_len(4096).unwrap();
        match client.read_to_end() {
            Ok(rest) => body.extend(rest),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert!((body.len() as u64) < BIG, "nothing stands in for what is gone");
        content.assert_at(0, &body);
        assert!(server.wait_for_stderr("became shorter", SOON).is_some());
        assert_eq!(ask_on(&mut other, "GET /a.txt").body, b"hello", "others do not notice");
        content.assert_at(0, &ask_on(&mut other, "GET /big.bin").body);
    });
}

#[test]
fn a_file_that_grows_is_sent_with_its_promised_length() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, BIG);
        let tree = Tree::new().file("big.bin", content.clone());
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        client.send(request("GET /big.bin")).unwrap();
        let head = client.head().unwrap();
        let mut file = File::options().append(true).open(tree.path().join("big.bin")).unwrap();
        file.write_all(b"and more").unwrap();
        assert_eq!(head.header("Content-Length"), Some(&BIG.to_string()[..]));
        content.assert_is(&client.read_exactly(usize::try_from(BIG).unwrap()).unwrap());
        std::thread::sleep(core::time::Duration::from_millis(100));
        let now = ask_on(&mut client, "GET /big.bin\nRange: bytes=-8");
        assert_eq!(now.body, b"and more", "the connection is in step");
    });
}

#[test]
fn a_file_replaced_while_being_sent_is_sent_from_the_old_inode() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, BIG);
        let tree = Tree::new().file("big.bin", content.clone());
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        client.send(request("GET /big.bin")).unwrap();
        client.head().unwrap();
        tree.write("new", "new");
        fs::rename(tree.path().join("new"), tree.path().join("big.bin")).unwrap();
        content.assert_is(&client.read_exactly(usize::try_from(BIG).unwrap()).unwrap());
        assert_eq!(ask(&server, "GET /big.bin").body, b"new");
    });
}

#[test]
fn a_disk_that_fails_ends_the_connection_behind_the_last_good_byte() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(3, 2 << 20);
        let slow = SlowFs::builder()
            .file("bad.bin", content.clone())
            .file("small.txt", "small")
            .file("good.bin", content.clone());
        let slow = or_skip!(slow.mount());
        slow.fail_reads_from("bad.bin", 1 << 20);
        slow.fail_reads("small.txt");
        // FUSE cannot bypass the page cache.
        let never = serve(driver, slow.path(), &["--cache", "never"]);
        assert_eq!(ask(&never, "GET /small.txt").status, 500, "it is read before its head");
        let server = serve(driver, slow.path(), &[]);
        let mut client = connect(&server);
        client.send(request("GET /bad.bin")).unwrap();
        match client.head() {
            Ok(head) => {
                assert_eq!(head.status, 200);
                let body = client.read_to_end().unwrap_or_default();
                assert!(body.len() <= 1 << 20, "{}", body.len());
                content.assert_at(0, &body);
            }
            // The head may have been lost with the connection.
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset),
                "{error}"
            ),
        }
        assert_eq!(ask(&server, "GET /small.txt").status, 500, "it is read before its head");
        assert!(
            server.wait_for_stderr("could not be read", SOON).is_some(),
            "{:?}",
            server.stderr()
        );
        content.assert_is(&ask(&server, "GET /good.bin").body);
        slow.mend_reads("bad.bin");
        slow.mend_reads("small.txt");
        content.assert_is(&ask(&server, "GET /bad.bin").body);
        assert_eq!(ask(&server, "GET /small.txt").body, b"small");
        assert_eq!(ask(&never, "GET /small.txt").body, b"small");
    });
}

#[test]
fn a_real_disk_that_fails_ends_the_connection_behind_the_last_good_byte() {
    const TORN: u64 = 1 << 20;
    let disk = or_skip!(Disk::new());
    let [good, bad] = [3, 4].map(|seed| Content::pseudo_random(seed, 2 << 20));
    let tree = disk.tree().file("good.bin", good.clone()).file("bad.bin", bad.clone());
    tree.evict("good.bin");
    disk.tear(&tree, "bad.bin", &bad, TORN);
    on_both_drivers(|driver| {
        for cache in ["auto", "never"] {
            tree.evict("bad.bin");
            tree.evict("good.bin");
            let server = serve(driver, tree.path(), &["--cache", cache]);
            for _ in 0..3 {
                let mut client = connect(&server);
                client.send(request("GET /bad.bin")).unwrap();
                assert_eq!(client.head().unwrap().status, 200);
                let body = client.read_to_end().unwrap();
                assert_eq!(body.len() as u64, TORN);
                bad.assert_at(0, &body);
                good.assert_is(&ask(&server, "GET /good.bin").body);
            }
            let said = server.wait_for_stderr("could not be read", SOON);
            assert!(said.is_some(), "{:?}", server.stderr());
        }
    });
}

#[test]
fn a_file_shorter_than_its_size_is_never_padded() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(3, 500_000);
        let slow = SlowFs::builder().short_file("short.bin", content.clone(), 600_000).short_file(
            "small.txt",
            "sm",
            5,
        );
        let slow = or_skip!(slow.mount());
        let server = serve(driver, slow.path(), &[]);
        for (path, content, said) in
            [("/short.bin", &content, 600_000), ("/small.txt", &Content::from("sm"), 5)]
        {
            let mut client = connect(&server);
            client.send(request(&format!("GET {path}"))).unwrap();
            assert_eq!(client.head().unwrap().status, 200);
            let body = client.read_to_end().unwrap();
            assert!((body.len() as u64) < said, "{path}: all {said} bytes");
            let real = body.len().min(usize::try_from(content.len()).unwrap());
            content.assert_at(0, &body[..real]);
            // Zeros of the kernel itself, in the last pages of its readahead.
            assert!(body[real..].iter().all(|byte| *byte == 0), "{path}");
        }
        assert!(server.wait_for_stderr("became shorter", SOON).is_some(), "{:?}", server.stderr());
    });
}

//! Bodies of unknown length, which wait until all of them has come: then the application gets their length.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::thread;

use testkit::{Content, request};

use crate::common::{SOON, connect_from, on_both_drivers_at_once};
use crate::fastcgi::application::{Act, Seen, application, end, output};
use crate::fastcgi::stage::{serve, tree};

const MIB: usize = 1024 * 1024;
const CHUNKED: &str = "POST /index.php\nTransfer-Encoding: chunked";
/// Uploads at the same time as the slow one, each of nearly as much as fits into memory.
const OTHERS: u8 = 60;

/// A body in chunks of this size, without its end.
fn chunks(body: &[u8], size: usize) -> Vec<u8> {
    let chunk =
        |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    body.chunks(size).flat_map(chunk).collect()
}

#[test]
fn an_honest_slow_upload_reaches_the_application_while_others_fill_the_memory() {
    on_both_drivers_at_once(|driver| {
        // All from one address, and each from its own.
        for addresses in [1, OTHERS] {
            let tree = tree().file("www/index.php", "<?php");
            let answer = [output("Content-Type: a/b\r\n\r\nok"), end(0)].concat();
            let acts = vec![Act::Close(answer); usize::from(OTHERS) + 1];
            let seen = application(&tree.path().join("php.sock"), acts);
            let stage = serve(driver, &tree);
            let body = Content::pseudo_random(3, 800_000).read(0, 800_000);
            let mut honest = stage.connect();
            honest.send(request(CHUNKED)).unwrap();
            honest.send(chunks(&body[..100_000], 10_000)).unwrap();
            let attack = chunks(&vec![b'x'; MIB - 1], 65_536);
            let others: Vec<_> = (0..OTHERS)
                .map(|number| {
                    let from = Ipv4Addr::new(127, 0, 1, 1 + number % addresses);
                    let mut stream = connect_from(&stage.server, from);
                    stream.write_all(request(CHUNKED).as_bytes()).unwrap();
                    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
                    let _ = stream.write_all(&attack);
                    stream
                })
                .collect();
            for part in body[100_000..].chunks(87_500) {
                thread::sleep(Duration::from_millis(500));
                honest.send(chunks(part, 10_000)).unwrap();
            }
            honest.send("0\r\n\r\n").unwrap();
            assert_eq!(honest.response().unwrap().status, 200, "{addresses}");
            let Ok(Seen::Request(variables, content)) = seen.recv_timeout(SOON) else {
                panic!("the application has seen no request")
            };
            assert!(content == body, "{} bytes", content.len());
            let length = b"\x0e\x06CONTENT_LENGTH800000";
            assert!(variables.windows(length.len()).any(|bytes| bytes == length));
            // Theirs get through, too.
            for mut stream in others {
                stream.write_all(b"0\r\n\r\n").unwrap();
                let mut line = [0; 12];
                stream.read_exact(&mut line).unwrap();
                assert_eq!(line, *b"HTTP/1.1 200", "{addresses}");
            }
        }
    });
}

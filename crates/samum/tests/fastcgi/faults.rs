//! Applications that do what they should not, and clients that leave.

use core::time::Duration;
use std::fs;
use std::time::Instant;

use testkit::{Signal, or_skip, request};

use crate::common::{SOON, on_both_drivers_at_once, wait_until};
use crate::fastcgi::application::{
    Act, Seen, application, application_of_tcp, end, of_request, output, record,
};
use crate::fastcgi::stage::{Php, on_both_drivers, serve, serve_route, serve_with, text, tree};

const MIB: usize = 1024 * 1024;

const PROXIED: &str = "samum_proxy_requests_total";

/// A tree with a script, which is not read.
fn scripts() -> testkit::Tree {
    tree().file("www/index.php", "<?php source")
}

#[test]
fn what_is_no_response_is_a_bad_gateway_and_a_line_for_the_operator() {
    on_both_drivers(|driver| {
        let head = "Content-Type: a/b\r\n\r\n";
        for (act, status, line) in [
            // What is said depends on whether the request was sent before that.
            (Act::Refuse, 502, "php.sock /: "),
            (Act::Close(Vec::new()), 502, "the connection was closed"),
            (Act::Close(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), 502, "another version of FastCGI"),
            (Act::Close(output("Content-Type: a/b\r\n")), 502, "the connection was closed"),
            (
                Act::Close([output("Content-Type: a/b\r\n"), end(0)].concat()),
                502,
                "it ended before its header was complete",
            ),
            (Act::Close(end(0)), 502, "it ended before its header was complete"),
            (Act::Close(end(1)), 502, "it has another request on the connection"),
            (Act::Close(end(2)), 503, "it has too much to do"),
            (Act::Close(end(3)), 502, "it is no FastCGI responder"),
            (Act::Close(end(9)), 502, "an unknown protocol status"),
            (Act::Close(output("hello\n\n")), 502, "a line in its header that is no field"),
            (Act::Close(output(": x\r\n\r\nhello")), 502, "a header without fields"),
            (Act::Close(output(&"x".repeat(40_000))), 502, "a header that is too long"),
            (
                Act::Close(output("Content-Type: a/b\nContent-Length: 18446744073709551615\n\n")),
                502,
                "a Content-Length of 2^62 bytes or more",
            ),
            (Act::Close(record(1, &[0; 8])), 502, "a type that applications do not send"),
            (Act::Wait(record(6, b"").repeat(20)), 502, "too many empty records"),
            (Act::Wait(output("Content-Type")), 504, "it did not answer within 1 s"),
            (Act::Wait(Vec::new()), 504, "it did not answer within 1 s"),
            // The head is not promised before it is complete.
            (
                Act::Close([output(head), record(6, b""), output("more")].concat()),
                200,
                "content behind the end of its stream; its response is cut off",
            ),
        ] {
            let tree = scripts();
            let _seen = application(&tree.path().join("php.sock"), vec![act.clone()]);
            let stage = serve_with(driver, &tree, "", "timeout-upstream = 1\n");
            let mut client = stage.connect();
            client.send(request("GET /")).unwrap();
            if status == 200 {
                client.response().expect_err("it is cut off");
            } else {
                assert_eq!(client.response().unwrap().status, status, "{act:?}");
            }
            stage.wait_for_log(line);
            stage.wait_for_log("php.sock");
            assert_eq!(stage.count(PROXIED, &[("event", "failed")]), 1, "{act:?}");
        }
    });
}

#[test]
fn records_without_content_give_an_application_no_more_time() {
    on_both_drivers(|driver| {
        let header = output("Content-Type: a/b\r\n\r\n");
        // Both take longer than the test: an end of the output with 60 bytes of padding, byte for byte, and errors.
        let padding: Vec<_> = [&[1, 6, 0, 1, 0, 0, 60, 0][..], &[0; 60]]
            .concat()
            .chunks(1)
            .map(<[u8]>::to_vec)
            .collect();
        let errors = vec![record(7, b""); 40];
        let content = ["he", "l", "lo"].map(output).to_vec();
        let whole = [vec![header.clone()], content, vec![end(0)]].concat();
        for (drops, is_begun, is_whole) in [
            (padding.clone(), false, false),
            (errors.clone(), false, false),
            ([vec![header.clone()], padding].concat(), true, false),
            ([vec![header], errors].concat(), true, false),
            (whole, true, true),
        ] {
            let tree = scripts();
            let _seen = application(&tree.path().join("php.sock"), vec![Act::Drip(drops.clone())]);
            let stage = serve_with(driver, &tree, "", "timeout-upstream = 1\n");
            let mut client = stage.connect();
            let before = Instant::now();
            client.send(request("GET /")).unwrap();
            match (is_begun, client.response()) {
                (false, Ok(response)) => assert_eq!(response.status, 504, "{drops:?}"),
                (true, Ok(response)) => assert!(is_whole && text(&response) == "hello"),
                (true, Err(_)) => assert!(!is_whole, "{drops:?}"),
                (false, Err(error)) => panic!("{error}: {drops:?}"),
            }
            if !is_whole {
                assert!(before.elapsed() < SOON, "{drops:?}");
                stage.wait_for_log("php.sock /: it did not answer within 1 s (timeout-upstream)");
            }
        }
    });
}

/// It is progress as long as it is logged, and no longer.
#[test]
fn text_for_the_operator_is_bounded_and_gives_an_application_no_more_time_without_end() {
    on_both_drivers(|driver| {
        let text = |kib: usize| record(7, "text\n".repeat(1024 / 5 * kib).as_bytes());
        let whole = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let flood = text(60).repeat(64 * 1024 / 60 + 20);
        for (act, seconds, status, line) in [
            // Longer than the time for an answer.
            (Act::Drip([vec![text(1); 4], vec![whole]].concat()), 1, 200, "php.sock /: text"),
            (
                Act::Drip(vec![text(60); 9]),
                1,
                504,
                "it did not answer within 1 s (timeout-upstream)",
            ),
            (Act::Wait(flood), 30, 502, "it writes more than 64 MiB to standard error"),
        ] {
            let tree = scripts();
            let _seen = application(&tree.path().join("php.sock"), vec![act]);
            let stage = serve_with(driver, &tree, "", &format!("timeout-upstream = {seconds}\n"));
            assert_eq!(stage.ask("GET /").status, status, "{line}");
            stage.wait_for_log(line);
            let lines = stage.server.stderr().iter().filter(|line| line.ends_with("text")).count();
            assert!((1..=200).contains(&lines), "{lines} lines");
        }
    });
}

/// The lines of one application are no reason to drop those about others.
#[test]
fn an_application_that_writes_much_keeps_no_fault_out_of_the_log() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let text = record(7, "text\n".repeat(2000).as_bytes());
        let whole = [text, output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let act = Act::Close(whole);
        let _seen =
            application(&tree.path().join("php.sock"), vec![act.clone(), act, Act::Close(end(0))]);
        let stage = serve(driver, &tree);
        for status in [200, 200, 502] {
            assert_eq!(stage.ask("GET /").status, status);
        }
        stage.wait_for_log("it ended before its header was complete");
        let lines = stage.server.stderr().iter().filter(|line| line.ends_with("text")).count();
        assert!((100..=200).contains(&lines), "{lines} lines");
    });
}

#[test]
fn an_application_that_takes_nothing_of_an_upload_is_a_gateway_timeout() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let _seen = application(&tree.path().join("php.sock"), vec![Act::Ignore]);
        let keys = "timeout-upstream-send = 1\ntimeout-upstream = 600\n";
        let stage = serve_with(driver, &tree, "", keys);
        let mut client = stage.connect();
        // More than the socket takes, and less than samum and the sockets of the client do.
        let length = 600_000;
        client.send(request(&format!("POST /\nContent-Length: {length}"))).unwrap();
        client.send(vec![b'x'; length]).unwrap();
        assert_eq!(client.response().unwrap().status, 504);
        stage.wait_for_log(
            "php.sock /: it took nothing of the request within 1 s (timeout-upstream-send)",
        );
        assert_eq!(stage.count(PROXIED, &[("event", "timeout")]), 1);
    });
}

/// Its only process would wait for the rest of the upload.
#[test]
fn an_upload_that_comes_slowly_takes_no_process_of_the_application() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let acts = vec![Act::Close(response.clone()), Act::Close(response)];
        let seen = application(&tree.path().join("php.sock"), acts);
        let stage = serve(driver, &tree);
        let mut slow = stage.connect();
        slow.send(request("POST /\nContent-Length: 10")).unwrap();
        slow.send(b"01234").unwrap();
        assert_eq!(text(&stage.ask("GET /")), "hello");
        slow.send(b"56789").unwrap();
        assert_eq!(text(&slow.response().unwrap()), "hello");
        let contents: Vec<_> = seen.iter().take(2).collect();
        let [Seen::Request(_, first), Seen::Request(_, second)] = &contents[..] else {
            panic!("{contents:?}")
        };
        assert_eq!((&first[..], &second[..]), (&b""[..], &b"0123456789"[..]));
    });
}

/// As much as the buffer holds comes first; the rest of a longer body comes while the process waits for it.
#[test]
fn a_long_upload_takes_no_process_before_the_buffer_is_full() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let acts = vec![Act::Close(response); 4];
        let seen = application(&tree.path().join("php.sock"), acts);
        let stage = serve_with(driver, &tree, "", "buffer = '3MiB'\n");
        let body: Vec<u8> = (0u8..251).cycle().take(5 * MIB).collect();
        for (first, length) in [(2 * MIB, 3 * MIB), (2 * MIB, 5 * MIB)] {
            let body = &body[..length];
            let mut slow = stage.connect();
            slow.send(request(&format!("POST /\nContent-Length: {length}"))).unwrap();
            slow.send(&body[..first]).unwrap();
            assert_eq!(text(&stage.ask("GET /")), "hello");
            slow.send(&body[first..]).unwrap();
            assert_eq!(text(&slow.response().unwrap()), "hello");
            let contents: Vec<_> = seen.iter().take(2).collect();
            let [Seen::Request(_, none), Seen::Request(_, sent)] = &contents[..] else {
                panic!("{length}")
            };
            assert!(none.is_empty() && sent == body, "{length}");
        }
    });
}

/// Nothing waits for the rest of a body that the buffer cannot hold.
#[test]
fn an_upload_beyond_the_buffer_reaches_its_process_while_it_comes() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let (address, seen) = application_of_tcp(vec![Act::Close(response)]);
        let route = format!("fastcgi = {{ server = '{address}', root = '/srv' }}");
        let stage = serve_route(driver, &tree, "", &route);
        let mut slow = stage.connect();
        slow.send(request(&format!("POST /x?long\nContent-Length: {}", 2 * MIB))).unwrap();
        slow.send(vec![b'x'; MIB - 1]).unwrap();
        let asked = || stage.count("samum_upstream_requests_in_flight", &[]);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(asked(), 0);
        slow.send(vec![b'x'; 2]).unwrap();
        assert!(wait_until(SOON, || asked() == 1), "it waits for more than the buffer holds");
        slow.send(vec![b'x'; MIB - 1]).unwrap();
        assert_eq!(text(&slow.response().unwrap()), "hello");
        let Ok(Seen::Request(_, sent)) = seen.recv_timeout(SOON) else { panic!("no request") };
        assert_eq!(sent.len(), 2 * MIB);
    });
}

/// The worker keeps no more than 16 MiB of parts back: the one that has been coming for longest is passed on.
#[test]
fn the_oldest_of_too_many_long_uploads_is_passed_on() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let (address, seen) = application_of_tcp(vec![Act::Close(response); 4]);
        let route = format!("fastcgi = {{ server = '{address}', root = '/srv' }}\nbuffer = '8MiB'");
        let stage = serve_route(driver, &tree, "", &route);
        let asked = || stage.count("samum_upstream_requests_in_flight", &[]);
        let body = vec![b'x'; 8 * MIB];
        let mut all: Vec<_> = (0..4).map(|_| stage.connect()).collect();
        for (at, client) in all.iter_mut().enumerate() {
            client.send(request(&format!("POST /{at}\nContent-Length: {}", body.len()))).unwrap();
            client.send(&body[..4 * MIB]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(asked(), 0);
        all[3].send(&body[..1]).unwrap();
        assert!(wait_until(SOON, || asked() == 1));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(asked(), 1, "the others wait for more");
        all[0].send(&body[4 * MIB..]).unwrap();
        assert_eq!(text(&all[0].response().unwrap()), "hello");
        let Ok(Seen::Request(variables, sent)) = seen.recv_timeout(SOON) else { panic!("none") };
        assert!(variables.windows(14).any(|bytes| bytes == b"\x02REQUEST_URI/0"));
        assert_eq!(sent.len(), body.len());
        all[3].send(&body[4 * MIB + 1..]).unwrap();
        assert_eq!(text(&all[3].response().unwrap()), "hello");
    });
}

/// php-fpm has two processes, which would wait for the rest of the uploads.
#[test]
fn a_request_does_not_wait_for_slow_uploads_that_the_buffer_holds() {
    const SCRIPT: &str = "<?php echo md5(file_get_contents('php://input'));";
    on_both_drivers_at_once(|driver| {
        let tree = tree().file("www/index.php", SCRIPT);
        let _php = or_skip!(Php::start(&tree));
        let stage = serve_with(driver, &tree, "", "buffer = '8MiB'\n");
        let digest = |length: usize| match length {
            0 => "d41d8cd98f00b204e9800998ecf8427e",
            length if length == 2 * MIB => "22b5d52b7d06e1b2b44f0fe3162e90e2",
            _ => "727943cf3cd0ed31e7fbe1bab434d5eb",
        };
        let body: Vec<u8> = (0u8..251).cycle().take(8 * MIB).collect();
        let mut uploads: Vec<_> = [2 * MIB, 8 * MIB]
            .map(|length| {
                let mut client = stage.connect();
                client.send(request(&format!("POST /\nContent-Length: {length}"))).unwrap();
                (client, &body[..length])
            })
            .into();
        for part in 0..10 {
            for (client, body) in &mut uploads {
                let piece = body.len().div_ceil(10);
                client.send(&body[part * piece..body.len().min((part + 1) * piece)]).unwrap();
            }
            if part == 9 {
                break;
            }
            let before = Instant::now();
            assert_eq!(text(&stage.ask("GET /")), digest(0));
            assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
            std::thread::sleep(Duration::from_millis(100));
        }
        for (client, body) in &mut uploads {
            assert_eq!(text(&client.response().unwrap()), digest(body.len()));
        }
    });
}

/// A client that stops is judged as one that sends any other body.
#[test]
fn a_long_upload_that_stops_ends_with_a_408_and_no_process_hears_of_it() {
    on_both_drivers_at_once(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let seen = application(&tree.path().join("php.sock"), vec![Act::Close(response)]);
        let route = format!(
            "fastcgi = {{ server = 'unix:{}/php.sock', root = '/srv' }}",
            tree.path().display()
        );
        let stage = serve_route(driver, &tree, "timeout-header = 1", &route);
        let mut slow = stage.connect();
        slow.send(request(&format!("POST /\nContent-Length: {}", 2 * MIB))).unwrap();
        slow.send(vec![b'x'; MIB / 2]).unwrap();
        assert_eq!(slow.response().unwrap().status, 408);
        assert_eq!(text(&stage.ask("GET /")), "hello");
        let Ok(Seen::Request(_, content)) = seen.recv_timeout(SOON) else { panic!("no request") };
        assert!(content.is_empty());
    });
}

#[test]
fn no_application_is_a_bad_gateway() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let stage = serve(driver, &tree);
        assert_eq!(stage.ask("GET /").status, 502);
        assert_eq!(text(&stage.ask("GET /a.txt")), "a file");
        stage.wait_for_log("php.sock");
    });
}

#[test]
fn a_response_that_is_cut_is_not_made_to_look_whole() {
    on_both_drivers(|driver| {
        let begun = output("Content-Type: a/b\r\n\r\nhello");
        let of_ten = output("Content-Type: a/b\r\nContent-Length: 10\r\n\r\nhello");
        for act in [
            Act::Close(begun.clone()),
            Act::Close([begun.clone(), b"\x01\x06".to_vec()].concat()),
            Act::Close([begun.clone(), b"garbage!".to_vec()].concat()),
            Act::Wait(begun),
            Act::Close(of_ten.clone()),
            Act::Close([of_ten.clone(), record(6, b"")].concat()),
            Act::Close([of_ten, end(0)].concat()),
        ] {
            let tree = scripts();
            let _seen = application(&tree.path().join("php.sock"), vec![act.clone()]);
            let stage = serve_with(driver, &tree, "", "timeout-upstream = 1\n");
            let mut client = stage.connect();
            client.send(request("GET /")).unwrap();
            client.response().expect_err(&format!("{act:?}"));
        }
    });
}

/// As with nginx: the record that ends the output is the end of the content.
#[test]
fn a_response_whose_output_has_ended_is_whole() {
    on_both_drivers(|driver| {
        let whole = [output("Content-Type: a/b\r\n\r\nhello"), record(6, b"")].concat();
        for act in [
            Act::Close(whole.clone()),
            Act::Close([record(7, b""), record(7, b"late"), whole.clone(), end(0)].concat()),
            Act::Close([&whole[..], &record(7, b""), &record(7, b"late")].concat()),
        ] {
            let tree = scripts();
            let _seen = application(&tree.path().join("php.sock"), vec![act.clone()]);
            let stage = serve(driver, &tree);
            assert_eq!(text(&stage.ask("GET /")), "hello", "{act:?}");
        }
    });
}

#[test]
fn more_than_was_announced_is_dropped() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let long = output("Content-Type: a/b\r\nContent-Length: 2\r\n\r\nhello");
        let act = Act::Close([long, output("more"), end(0)].concat());
        let _seen = application(&tree.path().join("php.sock"), vec![act]);
        let stage = serve(driver, &tree);
        assert_eq!(text(&stage.ask("GET /")), "he");
        stage.wait_for_log("php.sock /: it sent more than its Content-Length");
        assert_eq!(stage.count(PROXIED, &[("event", "surplus")]), 1);
    });
}

/// A redirect without a type has no document, and a script may put out one for `HEAD`: neither is a fault.
#[test]
fn a_body_of_a_status_that_has_none_is_dropped_and_told() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let headers = [
            "Status: 204\r\n",
            "Status: 304\r\nETag: \"a\"\r\n",
            "Location: http://a/\r\n",
            "Content-Type: a/b\r\n",
        ];
        let act = |header| Act::Close([output(&format!("{header}\r\nbody")), end(0)].concat());
        let _seen = application(&tree.path().join("php.sock"), headers.map(act).into());
        let stage = serve(driver, &tree);
        for (request, status, surplus) in
            [("GET /", 204, 1), ("GET /", 304, 2), ("GET /", 302, 2), ("HEAD /", 200, 2)]
        {
            let mut client = stage.connect();
            client.send(testkit::request(request)).unwrap();
            assert_eq!(client.head().unwrap().status, status);
            let counted = || stage.count(PROXIED, &[("event", "surplus")]);
            assert!(wait_until(SOON, || counted() == surplus), "{status}: {}", counted());
        }
        stage.wait_for_log("it sent a body with a status that has none; it is dropped");
        assert_eq!(stage.count(PROXIED, &[("event", "failed")]), 0);
    });
}

#[test]
fn a_connection_is_kept_if_that_is_wanted_and_a_closed_one_is_tried_again() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let acts = vec![Act::Keep(2, response.clone()), Act::Keep(2, response)];
        let seen = application(&tree.path().join("php.sock"), acts);
        let stage = serve_with(driver, &tree, ", keep = true", "");
        for _ in 0..4 {
            assert_eq!(text(&stage.ask("GET /")), "hello");
        }
        assert_eq!(seen.iter().take(4).count(), 4);
    });
}

/// It is found before the connection is kept.
#[test]
fn what_is_behind_a_response_is_not_for_the_next_request() {
    // As much as is received in one step: what follows is in the socket when the end is understood.
    const RECEIVED: usize = 20 * 1024;
    on_both_drivers(|driver| {
        let tree = scripts();
        let response =
            |text: &str| [output(&format!("Content-Type: a/b\r\n\r\n{text}")), end(0)].concat();
        let long = "x".repeat(RECEIVED - response("").len());
        let surplus = [response(&long), response("evil")].concat();
        let acts = vec![Act::Turns(vec![response("hello"), surplus]), Act::Wait(response("good"))];
        let seen = application(&tree.path().join("php.sock"), acts);
        let stage = serve_with(driver, &tree, ", keep = true", "");
        assert_eq!(text(&stage.ask("GET /")), "hello");
        let mut client = stage.connect();
        let post = [request("POST /\nContent-Length: 1").as_bytes(), b"x"].concat();
        client.send([request("GET /").as_bytes(), &post].concat()).unwrap();
        assert_eq!(text(&client.response().unwrap()), long);
        assert_eq!(text(&client.response().unwrap()), "good");
        stage.wait_for_log("it sent bytes behind its response");
        assert_eq!(stage.count(PROXIED, &[("event", "surplus")]), 1);
        drop(client);
        let contents: Vec<_> = seen.iter().take(4).collect();
        let [_, _, Seen::Rest(rest), Seen::Request(_, content)] = &contents[..] else {
            panic!("{contents:?}")
        };
        assert_eq!((&rest[..], &content[..]), (&b""[..], &b"x"[..]));
    });
}

/// What comes when the connection has its next request already is known by its id.
#[test]
fn what_comes_late_for_one_request_is_not_for_the_next() {
    on_both_drivers(|driver| {
        let head = || output("Content-Type: a/b\r\n\r\n");
        let response = |text: &str| [head(), output(text), end(0)].concat();
        let evil = response("evil");
        for (second, is_begun) in [
            (evil.clone(), false),
            ([evil.clone(), of_request(2, response("good"))].concat(), false),
            (end(0), false),
            (record(7, b"evil"), false),
            ([of_request(2, output("Content-Type: a/b\r\n")), evil].concat(), false),
            ([of_request(2, head()), output("evil")].concat(), true),
            ([of_request(2, [head(), output("go")].concat()), end(0)].concat(), true),
        ] {
            let tree = scripts();
            let shown = second.escape_ascii().to_string();
            let acts = vec![
                Act::Verbatim(vec![response("hello"), second]),
                Act::Verbatim([1, 2, 3].map(|id| of_request(id, response("good"))).to_vec()),
            ];
            let seen = application(&tree.path().join("php.sock"), acts);
            let stage = serve_with(driver, &tree, ", keep = true", "");
            assert_eq!(text(&stage.ask("GET /")), "hello");
            let mut client = stage.connect();
            client.send(request("GET /")).unwrap();
            match client.response() {
                Ok(response) => assert_eq!((response.status, is_begun), (502, false), "{shown}"),
                Err(_) => assert!(is_begun, "{shown}"),
            }
            stage.wait_for_log("php.sock /: a record of another request");
            assert_eq!(stage.count(PROXIED, &[("event", "failed")]), 1, "{shown}");
            // The connection is not kept.
            for _ in 0..3 {
                assert_eq!(text(&stage.ask("GET /")), "good", "{shown}");
            }
            assert_eq!(seen.iter().nth(2), Some(Seen::Rest(Vec::new())), "{shown}");
        }
    });
}

#[test]
fn a_post_is_not_sent_twice() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let acts =
            vec![Act::Keep(1, response.clone()), Act::Close(Vec::new()), Act::Close(response)];
        let seen = application(&tree.path().join("php.sock"), acts);
        let stage = serve_with(driver, &tree, ", keep = true", "");
        assert_eq!(text(&stage.ask("GET /")), "hello");
        // The application closes the link: the content is not to go through it.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(stage.post("POST /", b"x").status, 502);
        assert_eq!(text(&stage.ask("GET /")), "hello");
        let contents: Vec<_> = seen.iter().take(3).collect();
        let [Seen::Request(_, a), Seen::Request(_, b), Seen::Request(_, c)] = &contents[..] else {
            panic!("{contents:?}")
        };
        assert_eq!((&a[..], &b[..], &c[..]), (&b""[..], &b"x"[..], &b""[..]));
    });
}

#[test]
fn a_client_that_leaves_ends_the_request() {
    on_both_drivers(|driver| {
        let tree = scripts();
        // More than the client receives: it has not only ended its side.
        let content = output(&"x".repeat(60_000)).repeat(10);
        let act = Act::Wait([output("Content-Type: a/b\r\n\r\n"), content].concat());
        let seen = application(&tree.path().join("php.sock"), vec![act]);
        let stage = serve(driver, &tree);
        let mut client = stage.connect();
        client.send(request("GET /")).unwrap();
        client.read_exactly(20).unwrap();
        drop(client);
        let wait = Duration::from_secs(60);
        assert!(matches!(seen.recv_timeout(wait), Ok(Seen::Request(..))));
        // FCGI_ABORT_REQUEST, and the end.
        let abort = b"\x01\x02\0\x01\0\0\0\0".to_vec();
        assert_eq!(seen.recv_timeout(wait), Ok(Seen::Rest(abort)));
    });
}

/// The end has to be received though nobody waits for it. (The content of a response after another one stays at the
/// application, which is told when the client leaves.)
#[test]
fn a_connection_is_kept_for_others_if_a_client_leaves_before_the_end() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let content = output(&"x".repeat(1024)).repeat(61);
        let head = output("Content-Type: a/b\r\nContent-Length: 62464\r\n\r\n");
        let act = Act::Drip(vec![[head, content].concat(), end(0)]);
        let seen = application(&tree.path().join("php.sock"), vec![act]);
        let mut stage = serve_with(driver, &tree, ", keep = true", "buffer = '62KiB'\n");
        let mut client = stage.connect();
        client.send(request("GET /index.php")).unwrap();
        client.read_exactly(20).unwrap();
        assert!(matches!(seen.recv_timeout(SOON), Ok(Seen::Request(..))));
        // After the content, and before the end.
        std::thread::sleep(Duration::from_millis(750));
        drop(client);
        // The connection is free once its response has ended; the server ends when all are.
        std::thread::sleep(Duration::from_secs(1));
        let before = Instant::now();
        assert!(stage.server.terminate().unwrap().success());
        assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
        assert_eq!(seen.recv_timeout(SOON), Ok(Seen::Rest(Vec::new())));
    });
}

#[test]
fn a_client_that_leaves_before_its_response_is_in_the_log() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let seen = application(&tree.path().join("php.sock"), vec![Act::Wait(Vec::new())]);
        let stage = serve(driver, &tree);
        let log = || fs::read_to_string(tree.path().join("access.log")).unwrap_or_default();
        let mut client = stage.connect();
        client.send(request("GET /a/path?b\nUser-Agent: it")).unwrap();
        assert!(matches!(seen.recv_timeout(SOON), Ok(Seen::Request(..))));
        assert_eq!(log(), "");
        drop(client);
        assert!(wait_until(SOON, || log().ends_with('\n')), "{}", log());
        for member in [
            "\"path\":\"/a/path\"",
            "\"status\":499",
            "\"bytes\":0",
            "\"user_agent\":\"it\"",
            "\"cut\":\"client\"",
        ] {
            assert!(log().contains(member), "no {member}: {}", log());
        }
        let requests = "http_server_request_duration_seconds_count";
        assert_eq!(stage.count(requests, &[("http_response_status_code", "4xx")]), 1);
        assert_eq!(stage.count(PROXIED, &[("event", "client-left")]), 1);
    });
}

/// A 413 is the server's own: the application has not heard of the request. Other lines have the request, too.
#[test]
fn a_body_that_is_too_long_is_logged_with_its_request() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let stage = serve_with(driver, &tree, "", "max-body = '1m'");
        let log = || fs::read_to_string(tree.path().join("access.log")).unwrap_or_default();
        let mut client = stage.connect();
        client.send(request("PUT /a/path?b\nUser-Agent: it\nTransfer-Encoding: chunked")).unwrap();
        client.send("200000\r\n").unwrap();
        assert_eq!(client.response().unwrap().status, 413);
        assert!(wait_until(SOON, || log().ends_with('\n')), "{}", log());
        for member in [
            "\"method\":\"PUT\"",
            "\"path\":\"/a/path\"",
            "\"request\":\"PUT /a/path?b HTTP/1.1\"",
            "\"status\":413",
            "\"user_agent\":\"it\"",
        ] {
            assert!(log().contains(member), "no {member}: {}", log());
        }
        let requests = "http_server_request_duration_seconds_count";
        let labels = [("http_request_method", "PUT"), ("http_response_status_code", "413")];
        assert_eq!(stage.count(requests, &labels), 1);
    });
}

#[test]
fn a_request_that_the_shutdown_cuts_off_is_in_the_log() {
    on_both_drivers_at_once(|driver| {
        let tree = scripts();
        let seen = application(&tree.path().join("php.sock"), vec![Act::Wait(Vec::new())]);
        let mut stage = serve(driver, &tree);
        let log = || fs::read_to_string(tree.path().join("access.log")).unwrap_or_default();
        let mut client = stage.connect();
        client.send(request("GET /a/path?b\nUser-Agent: it")).unwrap();
        assert!(matches!(seen.recv_timeout(SOON), Ok(Seen::Request(..))));
        stage.server.signal(Signal::TERM).unwrap();
        // For as long as the server waits for what is under way.
        assert!(stage.server.wait(Duration::from_secs(40)).unwrap().success());
        for member in [
            "\"path\":\"/a/path\"",
            "\"status\":503",
            "\"bytes\":0",
            "\"user_agent\":\"it\"",
            "\"cut\":\"server\"",
        ] {
            assert!(log().contains(member), "no {member}: {}", log());
        }
        assert_eq!(log().lines().count(), 1, "{}", log());
    });
}

#[test]
fn another_server_is_asked_if_one_has_too_much_to_do() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let root = tree.path().display();
        let evil = output("Content-Type: a/b\r\n\r\nevil");
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let busy = vec![Act::Close([end(2), evil, end(0)].concat()); 20];
        let _busy = application(&tree.path().join("busy.sock"), busy);
        let _seen = application(&tree.path().join("php.sock"), vec![Act::Close(response); 20]);
        let servers = format!("['unix:{root}/busy.sock', 'unix:{root}/php.sock']");
        let stage = serve_route(
            driver,
            &tree,
            "",
            &format!("fastcgi = {{ server = {servers}, root = '/x' }}"),
        );
        for _ in 0..6 {
            let response = stage.ask("GET /a.php");
            assert_eq!((response.status, text(&response)), (200, "hello"));
            let response = stage.post("POST /a.php", b"");
            assert_eq!((response.status, text(&response)), (200, "hello"));
        }
        stage.wait_for_log("busy.sock /a.php: it has too much to do; another server is asked");
        assert!(stage.count(PROXIED, &[("event", "retried")]) > 0);
        assert_eq!(stage.count(PROXIED, &[("event", "failed")]), 0);
        // A content that was given away is not there for another one.
        let all: Vec<_> = (0..4).map(|_| stage.post("POST /a.php", b"x").status).collect();
        assert!(all.contains(&200) && all.contains(&503), "{all:?}");
    });
}

/// Its records are longer than it is, and a TCP socket accepts all of them in one call.
#[test]
fn the_longest_body_that_is_collected_leaves_at_once() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let response = [output("Content-Type: a/b\r\n\r\nhello"), end(0)].concat();
        let (address, seen) = application_of_tcp(vec![Act::Close(response)]);
        let stage = serve_route(
            driver,
            &tree,
            "",
            &format!("fastcgi = {{ server = '{address}', root = '/x' }}"),
        );
        let body: Vec<u8> = (0..1024 * 1024_u32).map(|at| at.to_le_bytes()[1]).collect();
        assert_eq!(text(&stage.post("POST /a.php", &body)), "hello");
        let Ok(Seen::Request(_, content)) = seen.recv_timeout(SOON) else { panic!("no request") };
        assert!(content == body);
    });
}

#[test]
fn a_response_that_the_client_has_whole_is_not_said_to_be_cut() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let whole = output("Content-Type: a/b\r\nContent-Length: 5\r\n\r\nhello");
        let act = Act::Close(whole);
        let _seen = application(&tree.path().join("php.sock"), vec![act]);
        // Of a connection that is not kept the end is not waited for.
        let stage = serve_with(driver, &tree, ", keep = true", "");
        assert_eq!(text(&stage.ask("GET /")), "hello");
        stage.wait_for_log("php.sock /: the connection was closed; its response was whole");
        assert_eq!(stage.count(PROXIED, &[("event", "failed")]), 1);
    });
}

/// nginx answers 301, with which clients repeat a POST as a GET.
#[test]
fn a_post_to_a_directory_without_its_slash_is_sent_there_with_its_body() {
    on_both_drivers(|driver| {
        let tree = scripts();
        tree.write("www/dir ectory/index.php", "");
        let stage = serve(driver, &tree);
        for method in ["POST", "PUT", "BREW"] {
            // Of the first the directory is not known yet.
            for body in ["", "a body"] {
                let response = stage.post(&format!("{method} /dir%20ectory?a=b"), body.as_bytes());
                assert_eq!(response.status, 308, "{method}");
                assert_eq!(response.header("Location"), Some("/dir%20ectory/?a=b"));
            }
        }
        assert_eq!(stage.ask("GET /dir%20ectory").status, 301);
        assert_eq!(stage.ask("OPTIONS /dir%20ectory").status, 204);
        // A file takes none.
        assert_eq!(stage.post("POST /a.txt", b"a body").status, 405);
    });
}

#[test]
fn rfc9110_10_2_1_a_file_beside_scripts_takes_fewer_methods_than_they_do() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let stage = serve(driver, &tree);
        let (of_files, of_scripts) =
            ("GET, HEAD, OPTIONS", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        for (head, status, allow) in [
            ("POST /a.txt", 405, Some(of_files)),
            ("TRACE /a.txt", 405, Some(of_files)),
            ("OPTIONS /a.txt", 204, Some(of_files)),
            ("BREW /a.txt", 501, None),
            ("TRACE /index.php", 405, Some(of_scripts)),
            ("TRACE /", 405, Some(of_scripts)),
        ] {
            let response = stage.ask(head);
            assert_eq!((response.status, response.header("Allow")), (status, allow), "{head}");
        }
    });
}

/// A redirect to the clean path would lead to itself.
#[test]
fn the_index_with_path_info_is_run_where_urls_are_clean() {
    on_both_drivers(|driver| {
        let tree = scripts();
        let script = output("Content-Type: a/b\r\n\r\nscript");
        let acts = vec![Act::Close([script, end(0)].concat()); 3];
        let seen = application(&tree.path().join("php.sock"), acts);
        let root = tree.path().display();
        let route = format!(
            "files = '{root}/www'\nindex = ['index.php', 'index.html']\nclean-urls = true\n\
             fastcgi = 'unix:{root}/php.sock'"
        );
        let stage = serve_route(driver, &tree, "", &route);
        // Of the first the file is not known yet.
        for body in ["", "a body", ""] {
            let response = stage.post("POST /index.php/b?c", body.as_bytes());
            assert_eq!((response.status, text(&response)), (200, "script"));
        }
        for method in ["GET", "POST"] {
            let response = stage.ask(&format!("{method} /index.php?c"));
            assert_eq!((response.status, response.header("Location")), (308, Some("/?c")));
        }
        for (seen, length) in seen.try_iter().take(3).zip([0, 6, 0]) {
            let Seen::Request(variables, content) = seen else { panic!("{seen:?}") };
            let variables = variables.escape_ascii().to_string();
            assert!(variables.contains("SCRIPT_NAME/index.php"), "{variables}");
            assert!(variables.contains("PATH_INFO/b"), "{variables}");
            assert_eq!(content.len(), length);
        }
    });
}

/// The application would wait for the rest of the upload.
#[test]
fn a_response_that_has_begun_is_cut_off_with_its_upload() {
    on_both_drivers(|driver| {
        let begun = output("Content-Type: a/b\r\n\r\nbegun");
        // All of the content, and not the end.
        let whole = output("Content-Type: a/b\r\nContent-Length: 5\r\n\r\nbegun");
        for (keys, bytes, is_cut) in
            [("", &begun, true), (", keep = true", &begun, true), (", keep = true", &whole, false)]
        {
            let tree = scripts();
            let act = Act::Early(bytes.clone());
            let seen = application(&tree.path().join("php.sock"), vec![act]);
            let stage = serve_with(driver, &tree, keys, "buffer = '64KiB'\n");
            let mut client = stage.connect();
            client.send(request(&format!("POST /\nContent-Length: {}", 2 * MIB))).unwrap();
            // More than is collected before the application hears of it, and not more than its socket takes: nothing can
            // be written to a full one before it is closed.
            client.send(vec![b'x'; 80 * 1024]).unwrap();
            if is_cut {
                let mut came = Vec::new();
                while !came.ends_with(b"begun\r\n") {
                    came.extend(client.read_exactly(1).unwrap());
                }
                client.shutdown_write().unwrap();
                assert_eq!(client.read_to_end().unwrap_or_default(), b"");
                let log = || fs::read_to_string(tree.path().join("access.log")).unwrap_or_default();
                assert!(wait_until(SOON, || log().contains("\"cut\":\"client\"")), "{}", log());
                stage.wait_for_log("the client waits no more; its response is cut off");
            } else {
                assert_eq!(text(&client.response().unwrap()), "begun");
            }
            let Ok(Seen::Rest(rest)) = seen.recv_timeout(SOON) else { panic!("it still waits") };
            let [.., 1, 2, 0, 1, 0, 0, 0, 0] = rest[..] else { panic!("it is not told") };
            assert_eq!(stage.count(PROXIED, &[("event", "client-left")]), u64::from(is_cut));
            assert_eq!(stage.count(PROXIED, &[("event", "failed")]), 0);
        }
    });
}

/// Two uploads that are broken off would keep both processes of php-fpm.
#[test]
fn a_process_of_php_is_free_once_its_upload_is_broken_off() {
    on_both_drivers(|driver| {
        let script = "<?php echo str_repeat('x', 20000), 'begun'; flush(); \
                      echo strlen(file_get_contents('php://input'));";
        let tree = tree().file("www/index.php", script);
        let _php = or_skip!(Php::start(&tree));
        // The script begins before the body has come.
        let keys = ", environment = { PHP_VALUE = 'enable_post_data_reading=0' }";
        let stage = serve_with(driver, &tree, keys, "buffer = '64KiB'\n");
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = stage.connect();
            let head = format!("POST /\nContent-Type: a/b\nContent-Length: {}", 4 * MIB);
            client.send(request(&head)).unwrap();
            client.send(vec![b'x'; MIB]).unwrap();
            let mut came = Vec::new();
            while !came.ends_with(b"begun") {
                came.extend(client.read_exactly(1).unwrap());
            }
            client.shutdown_write().unwrap();
            assert!(!client.read_to_end().unwrap_or_default().ends_with(b"0\r\n\r\n"));
            clients.push(client);
        }
        assert!(text(&stage.ask("GET /")).ends_with("begun0"));
    });
}

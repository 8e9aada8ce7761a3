//! Responses, whole and in pieces.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::testing::{record, records};

const ID: RequestId = RequestId::FIRST;

/// Runs a connection on an input that arrives in pieces of these sizes and then ends. Returns the events in short form.
/// Up to `requests` requests are sent, each when the connection is idle, all with the same id. The bytes of a stream
/// are one entry, in any number of pieces.
fn run(input: &[u8], requests: usize, sizes: &[usize]) -> Vec<String> {
    let mut connection = Connection::new();
    let mut happened = Vec::<String>::new();
    let mut requests = 0..requests;
    let mut sizes = sizes.iter().cycle();
    let (mut at, mut arrived) = (0, 0);
    let mut last = "";
    loop {
        if connection.is_idle() && requests.next().is_some() {
            connection.begin(ID);
        }
        let before = connection.clone();
        let (len, event) = connection.handle_input(&input[at..arrived]);
        at += len;
        assert!(at <= arrived);
        let mut stream = |name: &'static str, bytes: &[u8]| {
            assert!(!bytes.is_empty());
            let text = bytes.escape_ascii().to_string();
            match happened.last_mut() {
                Some(entry) if last == name => *entry += &text,
                _ => happened.push(format!("{name} {text}")),
            }
            last = name;
        };
        match event {
            Event::Partial => {
                assert_eq!(at, arrived, "input is left");
                if arrived == input.len() {
                    break;
                }
                arrived = input.len().min(arrived + sizes.next().expect("a cycle"));
                continue;
            }
            Event::Output(bytes) => stream("out", bytes),
            Event::Errors(bytes) => stream("err", bytes),
            Event::End(End { app_status, protocol_status }) => {
                assert!(connection.is_idle());
                last = "";
                happened.push(format!("end {app_status} {protocol_status:?}"));
            }
            Event::Faulty(fault) => {
                assert!(connection.is_closed() && at == arrived);
                happened.push(format!("{fault}"));
            }
            Event::Closed => {
                assert!(connection.is_closed() && len == 0);
                break;
            }
        }
        assert!(len > 0 || connection != before, "no progress, no change");
    }
    happened.push(format!("{:?}", connection.handle_eof()));
    assert!(connection.is_closed());
    happened
}

/// Checks what happens, in one piece and in small ones.
#[track_caller]
fn check(input: &[u8], requests: usize, expected: &[&str]) {
    for sizes in [&[usize::MAX - 1 - input.len()][..], &[1], &[2], &[7], &[8], &[9], &[1, 9, 3]] {
        assert_eq!(run(input, requests, sizes), expected, "in pieces of {sizes:?}");
    }
}

fn end(app_status: u32, protocol_status: u8) -> Vec<u8> {
    let [a, b, c, d] = app_status.to_be_bytes();
    record(3, 1, &[a, b, c, d, protocol_status, 0xff, 0xff, 0xff], 0)
}

const COMPLETE: &str = "end 0 RequestComplete";

#[test]
fn fcgi_6_2_output_and_errors_come_until_the_end() {
    let input = [
        record(6, 1, b"Status: 200\r\n\r\n", 3),
        record(7, 1, b"warning", 1),
        record(6, 1, b"he", 0),
        record(6, 1, b"llo", 255),
        record(6, 1, b"", 8),
        record(7, 1, b"", 0),
        end(0, 0),
    ];
    let expected = [r"out Status: 200\r\n\r\n", "err warning", "out hello", COMPLETE, "Clean"];
    check(&input.concat(), 1, &expected);
}

#[test]
fn streams_need_no_ends_of_their_own() {
    check(
        &[record(6, 1, b"a", 7), end(3, 0)].concat(),
        1,
        &["out a", "end 3 RequestComplete", "Clean"],
    );
    check(&end(u32::MAX, 0), 1, &["end 4294967295 RequestComplete", "Clean"]);
    let twice = [record(6, 1, b"", 0), record(6, 1, b"", 0), end(0, 0)].concat();
    check(&twice, 1, &[COMPLETE, "Clean"]);
}

#[test]
fn a_record_may_have_65_535_bytes() {
    let content = "x".repeat(65_535);
    let input = [record(6, 1, content.as_bytes(), 255), end(0, 0)].concat();
    check(&input, 1, &[&format!("out {content}"), COMPLETE, "Clean"]);
}

#[test]
fn fcgi_3_5_a_connection_takes_one_request_after_another() {
    let one = [record(6, 1, b"a", 7), record(6, 1, b"", 0), end(0, 0)].concat();
    check(&one.repeat(2), 2, &["out a", COMPLETE, "out a", COMPLETE, "Clean"]);
    check(&one.repeat(2), 1, &["out a", COMPLETE, "bytes that answer no request", "Clean"]);
    check(b"x", 0, &["bytes that answer no request", "Clean"]);
}

/// The client does not take late records of one request for the response to the next one.
#[test]
fn records_of_an_earlier_request_are_a_fault() {
    let records = |id| {
        [(6, &b"a"[..]), (7, b"b"), (6, b""), (3, &[0; 8])]
            .map(|(kind, content)| record(kind, id, content, 3))
    };
    for late in records(1) {
        for own in 0..4 {
            let mut connection = Connection::new();
            let mut take = |before, input: &[u8]| {
                if connection.is_idle() {
                    connection.begin(RequestId::after(before));
                }
                let mut at = 0;
                loop {
                    let (len, event) = connection.handle_input(&input[at..]);
                    at += len;
                    match event {
                        Event::Partial | Event::End(_) => return None,
                        Event::Faulty(fault) => return Some(fault.reason),
                        Event::Closed => panic!("it is closed"),
                        Event::Output(_) | Event::Errors(_) => {}
                    }
                }
            };
            assert_eq!(take(0, &records(1).concat()), None);
            assert_eq!(take(1, &records(2)[..own].concat()), None);
            assert_eq!(take(1, &late), Some("a record of another request"), "{own}");
            assert!(connection.is_closed());
        }
    }
}

#[test]
fn fcgi_5_5_an_application_may_refuse() {
    check(&end(0, 1), 1, &["end 0 CantMultiplex", "Clean"]);
    check(&end(0, 2), 1, &["end 0 Overloaded", "Clean"]);
    check(&end(0, 3), 1, &["end 0 UnknownRole", "Clean"]);
    check(&end(0, 4), 1, &["an FCGI_END_REQUEST with an unknown protocol status", "Clean"]);
}

#[test]
fn the_last_record_ends_with_its_padding() {
    let input = record(3, 1, &[0; 8], 5);
    check(&input, 1, &[COMPLETE, "Clean"]);
    check(&input[..input.len() - 1], 1, &["Truncated"]);
}

#[test]
fn what_applications_do_not_send_is_a_fault() {
    let version = "a record of another version of FastCGI";
    let request = "a record of another request";
    let kind = "a record of a type that applications do not send";
    let length = "an FCGI_END_REQUEST of a wrong length";
    let behind = "content behind the end of its stream";
    for (input, fault) in [
        (b"HTTP/1.1 502 \r\n\r\n".to_vec(), version),
        (b"\x02\x06\x00\x01\x00\x00\x00\x00".to_vec(), version),
        (record(6, 2, b"", 0), request),
        (record(6, 0, b"", 0), request),
        (record(3, 0x100, &[0; 8], 0), request),
        (record(10, 1, b"", 0), request),
        (record(1, 1, &[0; 8], 0), kind),
        (record(5, 1, b"", 0), kind),
        (record(8, 1, b"", 0), kind),
        (record(9, 0, b"", 0), kind),
        (record(0, 0, b"", 0), kind),
        (record(12, 1, b"", 0), kind),
        (record(3, 1, b"", 0), length),
        (record(3, 1, &[0; 7], 1), length),
        (record(3, 1, &[0; 9], 0), length),
        ([record(6, 1, b"", 0), record(6, 1, b"a", 0)].concat(), behind),
    ] {
        check(&input, 1, &[fault, "Clean"]);
        let later = [record(6, 1, b"a", 0), end(0, 0), input].concat();
        check(&later, 2, &["out a", COMPLETE, fault, "Clean"]);
    }
}

#[test]
fn fcgi_4_management_records_are_passed_over_but_not_many() {
    let one = [record(10, 0, b"\x0f\x01FCGI_MPXS_CONNS0", 3), record(11, 0, &[0; 8], 0)].concat();
    let most = one.repeat(usize::from(MANAGEMENT_RECORDS_MAX) / 2);
    check(&[most.clone(), end(0, 0)].concat(), 1, &[COMPLETE, "Clean"]);
    check(&[most, one].concat(), 1, &["too many management records", "Clean"]);
}

#[test]
fn streams_may_end_more_than_once_but_not_often() {
    let ends = [record(6, 1, b"", 255), record(7, 1, b"", 0)].concat();
    let most = ends.repeat(1 + usize::from(EMPTY_RECORDS_MAX) / 2);
    check(&[most.clone(), end(0, 0)].concat(), 1, &[COMPLETE, "Clean"]);
    check(&[most, record(7, 1, b"", 0)].concat(), 1, &["too many empty records", "Clean"]);
}

#[test]
fn an_end_within_a_response_is_told_from_one_between() {
    check(b"", 0, &["Clean"]);
    check(b"", 1, &["Unanswered"]);
    let input = [record(6, 1, b"a", 1), record(6, 1, b"", 0), end(0, 0)].concat();
    for len in 1..input.len() {
        let events: &[&str] = match len {
            // The stream of output has ended.
            18.. => &["out a", "OutputEnd"],
            9.. => &["out a", "Truncated"],
            _ => &["Truncated"],
        };
        check(&input[..len], 1, events);
    }
}

#[test]
fn text_for_the_operator_may_come_behind_its_end() {
    let input = [record(7, 1, b"", 0), record(7, 1, b"a", 0), record(6, 1, b"b", 0), end(0, 0)];
    check(&input.concat(), 1, &["err a", "out b", COMPLETE, "Clean"]);
}

#[test]
#[should_panic(expected = "a request before the end")]
fn there_is_one_request_at_a_time() {
    let mut connection = Connection::new();
    connection.begin(ID);
    connection.begin(ID);
}

/// Records that an application may send, with at most one change of a byte.
fn nearly_responses() -> impl Strategy<Value = Vec<u8>> {
    let content = proptest::collection::vec(any::<u8>(), 0..20);
    let padding = prop_oneof![Just(0u8), any::<u8>()];
    let one = prop_oneof![
        6 => (prop_oneof![Just(6u8), Just(7)], content, padding.clone())
            .prop_map(|(kind, content, padding)| record(kind, 1, &content, padding)),
        2 => (any::<u32>(), 0u8..5).prop_map(|(app, protocol)| end(app, protocol)),
        1 => padding.prop_map(|padding| record(10, 0, b"\x01\x01ab", padding)),
    ];
    let all = proptest::collection::vec(one, 0..12).prop_map(|all| all.concat());
    let change = proptest::option::of((any::<Index>(), any::<u8>()));
    (all, change).prop_map(|(mut all, change)| {
        if let Some((at, byte)) = change
            && !all.is_empty()
        {
            let at = at.index(all.len());
            all[at] = byte;
        }
        all
    })
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        input in nearly_responses(),
        sizes in proptest::collection::vec(1usize..40, 1..20),
        requests in 0usize..5,
    ) {
        let whole = run(&input, requests, &[1 << 20]);
        prop_assert_eq!(run(&input, requests, &sizes), whole.clone());
        prop_assert_eq!(run(&input, requests, &[1]), whole);
    }

    #[test]
    fn the_output_is_that_of_the_records(
        pieces in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 1..300), any::<u8>()), 0..8),
        size in 1usize..100,
    ) {
        let mut input: Vec<u8> = pieces.iter().flat_map(|(is_output, content, padding)| {
            record(if *is_output { 6 } else { 7 }, 1, content, *padding)
        }).collect();
        input.extend(end(0, 0));
        let mut connection = Connection::new();
        connection.begin(ID);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        for mut piece in input.chunks(size) {
            loop {
                let (len, event) = connection.handle_input(piece);
                piece = &piece[len..];
                match event {
                    Event::Output(bytes) => output.extend_from_slice(bytes),
                    Event::Errors(bytes) => errors.extend_from_slice(bytes),
                    Event::Partial | Event::End(_) => break,
                    Event::Faulty(_) | Event::Closed => prop_assert!(false, "{event:?}"),
                }
            }
        }
        let of = |kind: u8| -> Vec<u8> {
            records(&input)
                .filter(|record| record.kind == kind)
                .flat_map(|record| record.content.iter().copied())
                .collect()
        };
        prop_assert!(connection.is_idle());
        prop_assert_eq!(output, of(6));
        prop_assert_eq!(errors, of(7));
    }
}

//! The examples of RFC 7541, faults, limits.

use super::*;
use proptest::prelude::*;
use std::string::String;
use std::vec;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn text(decoder: &mut Decoder, hex: &str) -> Result<String, Fault> {
    let mut text = Vec::new();
    decoder.decode(&bytes(hex), &Limits::DEFAULT, &mut text, |_, _| ())?;
    Ok(String::from_utf8(text).unwrap())
}

/// Decodes blocks one after the other. `table` is the table after each, newest first.
fn check(decoder: &mut Decoder, blocks: &[(&str, &str, &str, usize)]) {
    for (hex, expected, table, size) in blocks {
        let expected = expected.replace('|', "\r\n");
        assert_eq!(text(decoder, hex).as_deref(), Ok(expected.as_str()), "{hex}");
        let mut fields = String::new();
        for (name, value) in decoder.table.fields() {
            let [name, value] = [name, value].map(|part| String::from_utf8(part).unwrap());
            fields += &std::format!("{name}: {value}|");
        }
        assert_eq!(&fields, table, "{hex}");
        assert_eq!(decoder.table.size(), *size, "{hex}");
    }
}

#[test]
fn rfc7541_c2_fields() {
    check(
        &mut Decoder::new(),
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key: custom-header|",
            "custom-key: custom-header|",
            55,
        )],
    );
    for (hex, expected) in [
        ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path|"),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret|"),
        ("82", ":method: GET|"),
    ] {
        check(&mut Decoder::new(), &[(hex, expected, "", 0)]);
    }
    let mut secrets = Vec::new();
    let block = bytes("1008 7061 7373 776f 7264 0673 6563 7265 74 82");
    let mut decoder = Decoder::new();
    let decoded = decoder.decode(&block, &Limits::DEFAULT, &mut Vec::new(), |text, line| {
        secrets.push((text[line.name].to_vec(), line.is_secret));
    });
    assert_eq!(decoded, Ok(Decoded { fields: 2, is_cut: false, changes_table: false }));
    assert_eq!(secrets, [(b"password".to_vec(), true), (b":method".to_vec(), false)]);
}

const REQUESTS: [(&str, &str, usize); 3] = [
    (
        ":method: GET|:scheme: http|:path: /|:authority: www.example.com|",
        ":authority: www.example.com|",
        57,
    ),
    (
        ":method: GET|:scheme: http|:path: /|:authority: www.example.com|cache-control: no-cache|",
        "cache-control: no-cache|:authority: www.example.com|",
        110,
    ),
    (
        ":method: GET|:scheme: https|:path: /index.html|:authority: www.example.com|custom-key: \
         custom-value|",
        "custom-key: custom-value|cache-control: no-cache|:authority: www.example.com|",
        164,
    ),
];

#[test]
fn rfc7541_c3_c4_requests_without_and_with_huffman_code() {
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        let mut decoder = Decoder::new();
        for (hex, (expected, table, size)) in blocks.into_iter().zip(REQUESTS) {
            check(&mut decoder, &[(hex, expected, table, size)]);
        }
    }
}

#[test]
fn rfc7541_c5_c6_responses_without_and_with_huffman_code() {
    let date = "date: Mon, 21 Oct 2013 20:13:21 GMT|";
    let location = "location: https://www.example.com|";
    let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1|";
    let expected = [
        (
            std::format!(":status: 302|cache-control: private|{date}{location}"),
            std::format!("{location}{date}cache-control: private|:status: 302|"),
            222,
        ),
        (
            std::format!(":status: 307|cache-control: private|{date}{location}"),
            std::format!(":status: 307|{location}{date}cache-control: private|"),
            222,
        ),
        (
            std::format!(
                ":status: 200|cache-control: private|date: Mon, 21 Oct 2013 20:13:22 GMT|{location}\
                 content-encoding: gzip|{cookie}"
            ),
            std::format!("{cookie}content-encoding: gzip|date: Mon, 21 Oct 2013 20:13:22 GMT|"),
            215,
        ),
    ];
    for blocks in [
        [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 \
             303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 \
             6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 \
             5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 \
             5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ],
        [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b \
             ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad \
             94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 \
             65c0 03ed 4ee5 b106 3d50 07",
        ],
    ] {
        // The example's table has 256 bytes.
        let mut decoder = Decoder::new();
        decoder.table.set_size_max(256);
        for (hex, (expected, table, size)) in blocks.into_iter().zip(&expected) {
            check(&mut decoder, &[(hex, expected, table, *size)]);
        }
    }
}

#[test]
fn faults_are_found() {
    for (hex, fault) in [
        ("80", Fault::Index),
        ("be", Fault::Index),
        ("40", Fault::Truncated),
        ("7f00", Fault::Index),
        ("ff8080808010", Fault::Integer),
        ("82 20", Fault::SizeUpdate),
        ("3fe21f", Fault::SizeUpdate),
        ("20 20 20", Fault::SizeUpdate),
        ("3f", Fault::Truncated),
        ("0005 6162", Fault::Truncated),
        ("0081 ff00", Fault::Huffman),
        ("0001 6181 ff", Fault::Huffman),
    ] {
        assert_eq!(text(&mut Decoder::new(), hex), Err(fault), "{hex}");
    }
    assert_eq!(text(&mut Decoder::new(), "20 3fe11f 82").as_deref(), Ok(":method: GET\r\n"));
}

/// A few bytes that stand for many: a long field is added once and referred to again and again.
#[test]
fn nothing_is_left_of_a_field_with_a_fault() {
    let (mut decoder, mut text) = (Decoder::new(), Vec::new());
    // `:method: GET`, then the name `accept-encoding`, which is never to be in a table, without its value.
    let fault = decoder.decode(&bytes("82 1f01"), &Limits::DEFAULT, &mut text, |_, _| ());
    assert_eq!(fault, Err(Fault::Truncated));
    assert_eq!(text, b":method: GET\r\n");
}

#[test]
fn a_bomb_takes_no_more_than_the_limit() {
    let limits = Limits { list_bytes_max: 10_000, fields_max: 1000 };
    let mut block = vec![0x40, 1, b'a'];
    integer::encode(4000, 7, 0, &mut block);
    block.extend_from_slice(&[b'x'; 4000]);
    block.resize(block.len() + 999, 0x80 | 62);
    let mut text = Vec::new();
    let mut decoder = Decoder::new();
    let decoded = decoder.decode(&block, &limits, &mut text, |_, _| ());
    assert_eq!(decoded, Ok(Decoded { fields: 1000, is_cut: true, changes_table: true }));
    assert!(text.len() <= limits.list_bytes_max, "{}", text.len());
    assert!(text.capacity() <= 3 * limits.list_bytes_max, "{}", text.capacity());
    block.push(0x82);
    let mut text = Vec::new();
    let decoded = Decoder::new().decode(&block, &limits, &mut text, |_, _| ());
    assert_eq!(decoded, Err(Fault::TooManyFields));
}

/// The crumbs of a cookie: each short field counts with its overhead.
#[test]
fn short_fields_count_with_their_overhead() {
    let limits = Limits { list_bytes_max: 10 * (1 + 1 + FIELD_OVERHEAD), fields_max: 1000 };
    let block = [0x00, 1, b'a', 1, b'b'].repeat(11);
    let mut text = Vec::new();
    let decoded = Decoder::new().decode(&block, &limits, &mut text, |_, _| ());
    assert_eq!(decoded, Ok(Decoded { fields: 11, is_cut: true, changes_table: false }));
    assert_eq!(text, b"a: b\r\n".repeat(10));
}

#[test]
fn what_is_cut_off_changes_the_table() {
    let limits = Limits { list_bytes_max: 0, fields_max: 1000 };
    let mut decoder = Decoder::new();
    let mut text = Vec::new();
    let block = bytes("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572 be");
    let decoded = decoder.decode(&block, &limits, &mut text, |_, _| panic!("it was cut off"));
    assert_eq!(
        (decoded, text.len()),
        (Ok(Decoded { fields: 2, is_cut: true, changes_table: true }), 0)
    );
    assert_eq!(decoder.table.fields(), [(b"custom-key".to_vec(), b"custom-header".to_vec())]);
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_within_the_limits(
        blocks in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x40), Just(0x00), Just(0xbe), Just(1), 0x80u8..0xc5],
                0..200),
            0..8),
        list_bytes_max in 0usize..3000,
        fields_max in 0usize..60,
    ) {
        let limits = Limits { list_bytes_max, fields_max };
        let mut decoder = Decoder::new();
        for block in blocks {
            let mut text = Vec::new();
            let mut lines = 0;
            let mut size = 0;
            let decoded = decoder.decode(&block, &limits, &mut text, |text, line| {
                lines += 1;
                size += line.name.len() + line.value.len() + FIELD_OVERHEAD;
                assert_eq!(&text[line.name.end..line.value.start], b": ");
                assert_eq!(&text[line.value.end..], b"\r\n");
            });
            prop_assert!(size <= list_bytes_max && lines <= fields_max);
            prop_assert!(decoder.memory() <= 16 * 1024);
            match decoded {
                Ok(decoded) => {
                    prop_assert!(decoded.is_cut || decoded.fields == lines);
                    prop_assert!(decoded.fields >= lines && decoded.fields <= fields_max);
                }
                Err(_) => break,
            }
        }
    }
}

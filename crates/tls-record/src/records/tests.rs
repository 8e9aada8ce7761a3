use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::aead::Cipher;
use crate::assembly::Assembly;
use crate::frame::{HEAD_BYTES, RECORD_BYTES_MAX};
use crate::peer::Peer;

const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
const SECRET: [u8; 48] = [7; 48];

/// The keys of a direction, for tests: of TLS 1.3, or of TLS 1.2.
fn keys(is_tls13: bool, cipher: Cipher, sequence: u64) -> Keys {
    let keys = if is_tls13 {
        let len = if cipher == Cipher::Aes256Gcm { 48 } else { 32 };
        Keys::tls13(cipher, &SECRET[..len], sequence)
    } else {
        Keys::tls12(cipher, &SECRET[..cipher.key_len()], [9; 12], sequence)
    };
    keys.expect("lengths that fit")
}

/// All versions and ciphers.
fn suites() -> impl Iterator<Item = (bool, Cipher)> {
    [true, false].into_iter().flat_map(|is_tls13| CIPHERS.map(|cipher| (is_tls13, cipher)))
}

fn records((is_tls13, cipher): (bool, Cipher)) -> Records {
    Records::new(keys(is_tls13, cipher, 0), keys(is_tls13, cipher, 0))
}

/// Opens all records of a stream. Returns what was opened before a fault, and the fault.
fn open(to: &mut Records, mut input: &[u8]) -> (Vec<u8>, Result<(), Fault>) {
    let (mut assembly, mut plain) = (Assembly::default(), Vec::new());
    let mut open_all = || {
        while let Some(record) = assembly.next(&mut input)? {
            to.open(record, &mut plain)?;
        }
        Ok(())
    };
    let opened = open_all();
    (plain, opened)
}

/// Seals pieces completely.
fn seal(from: &mut Records, pieces: &[&[u8]]) -> Vec<u8> {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut out = vec![0; 2 * len + 200 * RECORD_OVERHEAD_MAX];
    let sealed = from.seal(pieces.iter().copied(), usize::MAX, &mut out);
    assert_eq!(sealed.plain, len);
    out.truncate(sealed.written);
    out
}

/// The lengths of the records of a stream, without their heads.
fn lengths(mut stream: &[u8]) -> Vec<usize> {
    let (mut assembly, mut found) = (Assembly::default(), Vec::new());
    while let Some(record) = assembly.next(&mut stream).unwrap() {
        found.push(record.len() - HEAD_BYTES);
    }
    found
}

fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.split_whitespace().flat_map(str::chars).collect();
    let byte = |two: &[char]| u8::from_str_radix(&two.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// RFC 8448 §3: the secrets, and what they seal.
const CLIENT_SECRET: &str = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
const SERVER_SECRET: &str = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
const CLIENT_DATA: &str = "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5\
    b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4";
const SERVER_DATA: &str = "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d\
    90e6dffc602dcb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d";
const CLIENT_END: &str = "1703030013c9872760655666b74d7ff1153efd6db6d0b0e3";
const SERVER_END: &str = "1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9";

#[test]
fn rfc8448_3_a_simple_handshake() {
    let keys = |secret, sequence| {
        Keys::tls13(Cipher::Aes128Gcm, &bytes(secret), sequence).expect("32 bytes")
    };
    // The ticket was the first record.
    let mut server = Records::new(keys(CLIENT_SECRET, 0), keys(SERVER_SECRET, 1));
    let data: Vec<u8> = (0..50).collect();
    assert_eq!(open(&mut server, &bytes(CLIENT_DATA)), (data.clone(), Ok(())));
    assert!(!server.has_ended());
    assert_eq!(seal(&mut server, &[&data]), bytes(SERVER_DATA));
    assert_eq!(open(&mut server, &bytes(CLIENT_END)), (vec![], Ok(())));
    assert!(server.has_ended());
    assert_eq!(server.say(Alert::CloseNotify), bytes(SERVER_END));
}

/// RFC 8446 §7.3, with the keys that RFC 8448 §3 has made of its secrets.
#[test]
fn rfc8448_3_keys() {
    let keys = Keys::tls13(Cipher::Aes128Gcm, &bytes(SERVER_SECRET), 0).unwrap();
    assert_eq!(keys.key(), bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
    assert_eq!(keys.nonce()[..], bytes("cf782b88dd83549aadf1e984"));
    assert!(Keys::tls13(Cipher::Aes128Gcm, &[0; 31], 0).is_none());
    assert!(Keys::tls12(Cipher::Aes256Gcm, &[0; 16], [0; 12], 0).is_none());
}

#[test]
fn a_long_piece_is_not_copied_and_others_share_a_record() {
    for suite in suites() {
        let mut from = records(suite);
        let overhead = from.write.overhead() - HEAD_BYTES;
        let mut plain_lengths = |pieces: &[usize]| -> Vec<usize> {
            let all: Vec<_> = pieces.iter().map(|len| vec![1; *len]).collect();
            let pieces: Vec<_> = all.iter().map(|piece| &piece[..]).collect();
            lengths(&seal(&mut from, &pieces)).iter().map(|len| len - overhead).collect()
        };
        for (pieces, expected) in [
            (&[][..], &[][..]),
            (&[0, 0], &[]),
            (&[1], &[1]),
            (&[300, 1000], &[1300]),
            (&[300, 65536], &[4096, 16384, 16384, 16384, 12588]),
            (&[65536], &[16384, 16384, 16384, 16384]),
            (&[5000, 300, 0, 20], &[5000, 320]),
            (&[4095, 4095, 4095, 4095, 4095], &[16384, 4091]),
            (&[4000, 4095, 4096], &[12191]),
            (&[16385], &[16384, 1]),
            // Frames of HTTP/2: a head and its content.
            (&[9, 16375, 9, 16375], &[16384, 16384]),
            (&[9, 16376], &[4096, 12289]),
        ] {
            assert_eq!(plain_lengths(pieces), expected, "{suite:?} {pieces:?}");
        }
    }
}

#[test]
fn no_more_is_sealed_than_has_room_or_is_asked_for() {
    for suite in suites() {
        let plain: Vec<u8> = (0..=255).cycle().take(40_000).collect();
        for (room, most) in [
            (0, 1),
            (21, 1),
            (22, 1),
            (30, 10),
            (100, 1000),
            (40_000, 20_000),
            (20_000, usize::MAX),
            (40_200, usize::MAX),
        ] {
            let (mut from, mut to) = (records(suite), records(suite));
            let mut out = vec![0; room];
            let pieces = [&plain[..100], &plain[100..]];
            let sealed = from.seal(pieces, most, &mut out);
            assert!(sealed.plain <= most && sealed.written <= room);
            let (opened, fault) = open(&mut to, &out[..sealed.written]);
            assert_eq!((&opened[..], fault), (&plain[..sealed.plain], Ok(())));
            let overhead = from.write.overhead();
            assert_eq!(sealed.plain > 0, room > overhead, "{suite:?} {room}");
        }
    }
}

#[test]
fn the_room_of_a_batch_fits_all_its_records() {
    // Each record but the last has 4 KiB at least, if there are two pieces.
    for suite in suites() {
        let (head, body) = ([1; 300], [2; 65_536]);
        let mut out = vec![0; 65_536 + 6 * RECORD_OVERHEAD_MAX];
        let sealed = records(suite).seal([&head[..], &body], 65_536, &mut out);
        assert_eq!(sealed.plain, 65_536);
    }
}

/// A peer and our records that read from it.
fn against(suite: (bool, Cipher)) -> (Peer, Records) {
    (Peer::new(keys(suite.0, suite.1, 0)), records(suite))
}

/// What a stream of a peer leads to: (type of content, bytes, padding) of each record.
fn outcome(suite: (bool, Cipher), all: &[(u8, &[u8], usize)]) -> (Vec<u8>, Result<bool, Fault>) {
    let (mut peer, mut to) = against(suite);
    let stream: Vec<u8> = all
        .iter()
        .flat_map(|(content, plain, padding)| peer.seal(*content, plain, *padding))
        .collect();
    let (plain, opened) = open(&mut to, &stream);
    (plain, opened.map(|()| to.has_ended()))
}

#[test]
fn what_a_peer_may_say_in_tls13() {
    let full = [1; PLAIN_BYTES_MAX];
    let long = [1; PLAIN_BYTES_MAX + 1];
    for cipher in CIPHERS {
        for (all, data, expected) in [
            (&[(23, &b"abc"[..], 0)][..], &b"abc"[..], Ok(false)),
            (&[(23, b"abc", 100), (23, b"", 3), (23, b"d", 0)], b"abcd", Ok(false)),
            (&[(23, &full, 0)], &full, Ok(false)),
            (&[(23, &full[1..], 1)], &full[1..], Ok(false)),
            // RFC 8446 §5.4: the padding counts.
            (&[(23, &full, 1)], b"", Err(Fault::Overflow)),
            (&[(23, &long, 0)], b"", Err(Fault::Overflow)),
            // Only padding.
            (&[(0, b"", 5)], b"", Err(Fault::Unexpected)),
            (&[(23, b"a", 0), (20, b"\x01", 0)], b"a", Err(Fault::Unexpected)),
            (&[(24, b"a", 0)], b"", Err(Fault::Unexpected)),
            // Alerts.
            (&[(21, &[1, 0], 7), (23, b"late", 0)], b"", Ok(true)),
            (&[(21, &[2, 0], 0)], b"", Ok(true)),
            (&[(21, &[1, 90], 0), (23, b"a", 0)], b"a", Ok(false)),
            (&[(21, &[1, 90][..], 0); 5], b"", Err(Fault::Flood)),
            (&[(21, &[2, 40], 0)], b"", Err(Fault::Alerted(40))),
            // RFC 8446 §6.2: the level says nothing.
            (&[(21, &[1, 46], 0)], b"", Err(Fault::Alerted(46))),
            (&[(21, &[1, 200], 0)], b"", Err(Fault::Alerted(200))),
            (&[(21, &[1], 0)], b"", Err(Fault::Decode)),
            (&[(21, &[], 0)], b"", Err(Fault::Decode)),
            (&[(21, &[1, 0, 1, 0], 0)], b"", Err(Fault::Decode)),
            // Messages of the handshake.
            (&[(22, &[], 0)], b"", Err(Fault::Unexpected)),
            (&[(22, &[1, 0, 0, 0], 0)], b"", Err(Fault::Unexpected)),
            (&[(22, &[24, 0, 0, 2, 0, 0], 0)], b"", Err(Fault::Decode)),
            (&[(22, &[24, 0, 0, 1, 2], 0)], b"", Err(Fault::Illegal)),
            (&[(22, &[24, 0, 0, 1, 0, 24], 0)], b"", Err(Fault::Unexpected)),
            // A message that was begun comes first.
            (&[(22, &[24, 0], 0), (23, b"a", 0)], b"", Err(Fault::Unexpected)),
            (&[(22, &[24, 0], 0), (21, &[1, 0], 0)], b"", Err(Fault::Unexpected)),
        ] {
            let found = outcome((true, cipher), all);
            assert!(found == (data.to_vec(), expected), "{all:?}: {:?}", found.1);
        }
    }
}

#[test]
fn what_a_peer_may_say_in_tls12() {
    let full = [1; PLAIN_BYTES_MAX];
    let long = [1; PLAIN_BYTES_MAX + 1];
    for cipher in CIPHERS {
        for (all, data, expected) in [
            (&[(23, &b"abc"[..], 0), (23, b"", 0), (23, b"d", 0)][..], &b"abcd"[..], Ok(false)),
            (&[(23, &full, 0)], &full, Ok(false)),
            (&[(23, &long, 0)], b"", Err(Fault::Overflow)),
            (&[(20, &[1], 0)], b"", Err(Fault::Unexpected)),
            (&[(0, &[1], 0)], b"", Err(Fault::Unexpected)),
            (&[(21, &[1, 0], 0), (23, b"late", 0)], b"", Ok(true)),
            (&[(21, &[1, 41], 0), (23, b"a", 0)], b"a", Ok(false)),
            (&[(21, &[1, 41][..], 0); 5], b"", Err(Fault::Flood)),
            (&[(21, &[2, 41], 0)], b"", Err(Fault::Alerted(41))),
            (&[(21, &[3, 41], 0)], b"", Err(Fault::Illegal)),
            (&[(22, &[1, 0, 0, 0], 0)], b"", Err(Fault::Renegotiation)),
            (&[(22, &[24, 0, 0, 1, 0], 0)], b"", Err(Fault::Unexpected)),
            (&[(22, &[], 0)], b"", Err(Fault::Unexpected)),
        ] {
            let found = outcome((false, cipher), all);
            assert!(found == (data.to_vec(), expected), "{all:?}: {:?}", found.1);
        }
    }
}

#[test]
fn records_without_data_are_few_in_a_row() {
    for suite in suites() {
        let (mut peer, mut to) = against(suite);
        for _ in 0..3 {
            for _ in 0..NO_DATA_RECORDS_MAX {
                assert_eq!(open(&mut to, &peer.seal(23, b"", 0)).1, Ok(()));
            }
            assert_eq!(open(&mut to, &peer.seal(23, b"a", 0)), (vec![b'a'], Ok(())));
        }
        let mut flood = || open(&mut to, &peer.seal(23, b"", 0)).1;
        let first = (0..100).position(|_| flood().is_err());
        assert_eq!(first, Some(NO_DATA_RECORDS_MAX.into()), "{suite:?}");
    }
}

#[test]
fn rfc8446_4_6_3_a_peer_gets_one_answer_however_often_it_asks() {
    for cipher in CIPHERS {
        let suite = (true, cipher);
        let (mut peer, mut to) = against(suite);
        for (is_asked, parts) in [(false, 5), (true, 5), (true, 1), (false, 2)] {
            let message = [24, 0, 0, 1, u8::from(is_asked)];
            for part in message.chunks(parts) {
                assert_eq!(open(&mut to, &peer.seal(22, part, 0)), (vec![], Ok(())));
            }
            peer.update();
            assert_eq!(open(&mut to, &peer.seal(23, b"a", 0)), (vec![b'a'], Ok(())));
        }
        assert!(to.owes_update());
        let mut reader = records(suite);
        let answer = seal(&mut to, &[]);
        assert_eq!(lengths(&answer).len(), 1);
        assert!(!to.owes_update());
        let stream = [answer, seal(&mut to, &[b"b"])].concat();
        assert_eq!(open(&mut reader, &stream), (vec![b'b'], Ok(())));
        assert!(!reader.owes_update(), "the answer asks for nothing");
    }
}

#[test]
fn keys_are_changed_before_they_are_used_up() {
    for suite in suites() {
        let (is_tls13, cipher) = suite;
        let near = RECORDS_MAX - 3;
        let make = || Records::new(keys(is_tls13, cipher, near), keys(is_tls13, cipher, near));
        let (mut from, mut to) = (make(), make());
        let plain = [5; 5 * PLAIN_BYTES_MAX];
        let mut out = vec![0; plain.len() + 6 * RECORD_OVERHEAD_MAX];
        let sealed = from.seal([&plain[..]], usize::MAX, &mut out);
        let taken = if is_tls13 { plain.len() } else { 2 * PLAIN_BYTES_MAX };
        assert_eq!(sealed.plain, taken, "{suite:?}");
        let (opened, fault) = open(&mut to, &out[..sealed.written]);
        assert!(opened == plain[..taken] && fault.is_ok(), "{suite:?} {fault:?}");
        assert_eq!(from.write.keys().sequence(), if is_tls13 { 3 } else { RECORDS_MAX - 1 });
        // The last one is for an alert.
        let sealed = from.seal([&plain[..]], 1, &mut out);
        assert_eq!(sealed.plain, usize::from(is_tls13));
        let end = [&out[..sealed.written], &from.say(Alert::CloseNotify)].concat();
        assert_eq!(open(&mut to, &end).1, Ok(()));
        assert!(to.has_ended());
    }
}

#[test]
fn each_changed_byte_is_noticed() {
    for suite in suites() {
        let (mut peer, _) = against(suite);
        let record = peer.seal(23, b"plain bytes", 0);
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut changed = record.clone();
                changed[at] ^= 1 << bit;
                let (plain, opened) = open(&mut records(suite), &changed);
                // With a longer length more has to come. The version of TLS 1.2 has no meaning (RFC 5246 E.1).
                let is_longer =
                    (3..5).contains(&at) && changed[3..5] > record[3..5] && changed[3] < 0x48;
                let is_ignored = !suite.0 && (1..3).contains(&at);
                assert_eq!(!plain.is_empty(), is_ignored, "{suite:?} {at}");
                assert_eq!(opened.is_ok(), is_longer || is_ignored, "{suite:?} {at} {bit}");
            }
        }
    }
}

#[test]
fn a_stream_that_is_cut_never_looks_complete() {
    for suite in suites() {
        let (mut peer, _) = against(suite);
        let parts = [peer.seal(23, b"one", 0), peer.seal(23, b"two", 0), peer.seal(21, &[1, 0], 0)];
        let stream = parts.concat();
        for end in 0..=stream.len() {
            let mut to = records(suite);
            let (plain, opened) = open(&mut to, &stream[..end]);
            let whole = [parts[0].len(), parts[0].len() + parts[1].len()].map(|len| end >= len);
            let expected = match whole {
                [true, true] => "onetwo",
                [true, false] => "one",
                _ => "",
            };
            assert_eq!((&plain[..], opened), (expected.as_bytes(), Ok(())));
            assert_eq!(to.has_ended(), end == stream.len(), "{suite:?} {end}");
        }
    }
}

#[test]
fn records_that_are_left_out_repeated_or_reordered_are_noticed() {
    for suite in suites() {
        let (mut peer, _) = against(suite);
        let all: Vec<_> = (0..3).map(|number| peer.seal(23, &[number], 0)).collect();
        for order in [&[1][..], &[0, 0], &[0, 2], &[0, 1, 1], &[1, 0]] {
            let stream: Vec<u8> = order.iter().flat_map(|index| all[*index].clone()).collect();
            assert_eq!(
                open(&mut records(suite), &stream).1,
                Err(Fault::Forged),
                "{suite:?} {order:?}"
            );
        }
    }
}

#[test]
fn a_record_that_is_no_record_is_refused() {
    for suite in suites() {
        for record in [&[][..], &[23, 3, 3], &[23, 3, 3, 0, 2, 1], &[23, 3, 3, 0, 0, 1]] {
            let opened = records(suite).open(record, &mut Vec::new());
            assert_eq!(opened, Err(Fault::Decode), "{suite:?} {record:?}");
        }
        // Too short for a tag.
        for len in 0..16 {
            let record = [&frame_head(len)[..], &vec![0; len]].concat();
            let opened = records(suite).open(&record, &mut Vec::new());
            assert_eq!(opened, Err(Fault::Forged), "{suite:?} {len}");
        }
    }
    let record = vec![0; PLAIN_BYTES_MAX + 257];
    let record = [&frame_head(record.len())[..], &record].concat();
    assert!(record.len() <= RECORD_BYTES_MAX);
    let opened = records((true, Cipher::Aes128Gcm)).open(&record, &mut Vec::new());
    assert_eq!(opened, Err(Fault::Overflow));
}

fn frame_head(body: usize) -> [u8; 5] {
    crate::frame::head(Content::DATA, body)
}

#[test]
fn an_idle_connection_is_small_and_shows_no_key() {
    assert!(size_of::<Records>() <= 288, "{}", size_of::<Records>());
    let mut records = records((true, Cipher::Aes128Gcm));
    let shown = format!("{records:?}");
    assert!(!shown.contains("7, 7"), "{shown}");
    let stream = seal(&mut records, &[b"a"]);
    open(&mut records, &stream).1.unwrap();
    assert!(records.read.has_context() && records.write.has_context());
    let contexts = records.rest();
    assert!(!records.read.has_context() && !records.write.has_context());
    records.wake(contexts);
    assert!(records.read.has_context() && records.write.has_context());
    let stream = seal(&mut records, &[b"b"]);
    assert_eq!(open(&mut records, &stream).0, b"b");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_come_out_as_they_went_in(
        suite in 0..6_usize,
        lens in prop::collection::vec(prop_oneof![0..50_usize, 4000..4200_usize, 16_000..17_000_usize], 0..12),
        rooms in prop::collection::vec(30..40_000_usize, 1..8),
        part in 1..20_000_usize,
    ) {
        let suite = suites().nth(suite).unwrap();
        let (mut from, mut to) = (records(suite), records(suite));
        let plain: Vec<u8> = (0..=250).cycle().take(lens.iter().sum()).collect();
        let (mut stream, mut taken) = (Vec::new(), 0);
        for room in rooms.iter().cycle() {
            // The pieces that are left.
            let (mut at, mut pieces) = (0, Vec::new());
            for len in &lens {
                let (begin, end) = (at.max(taken), at + len);
                if begin <= end {
                    pieces.push(&plain[begin..end]);
                }
                at = end;
            }
            let mut out = vec![0; *room];
            let sealed = from.seal(pieces, usize::MAX, &mut out);
            stream.extend_from_slice(&out[..sealed.written]);
            taken += sealed.plain;
            if taken == plain.len() {
                break;
            }
            prop_assert!(sealed.plain > 0);
        }
        prop_assert!(lengths(&stream).iter().all(|len| *len <= PLAIN_BYTES_MAX + RECORD_OVERHEAD_MAX));
        let (mut assembly, mut opened) = (Assembly::default(), Vec::new());
        for mut input in stream.chunks(part) {
            while let Some(record) = assembly.next(&mut input).unwrap() {
                to.open(record, &mut opened).unwrap();
            }
        }
        prop_assert!(opened == plain);
    }
}

/// A client, and a server that seals whatever it likes.
fn client_and_peer(is_tls13: bool) -> (Records, Peer) {
    let keys = || keys(is_tls13, Cipher::Aes128Gcm, 0);
    (Records::of_client(keys(), keys()), Peer::new(keys()))
}

/// A message of the handshake.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[kind, len[1], len[2], len[3]], content].concat()
}

#[test]
fn rfc8446_4_6_1_a_client_gets_tickets_however_their_bytes_come() {
    let update = message(KEY_UPDATE[0], &[0]);
    let stream =
        [message(NEW_SESSION_TICKET, &[1; 300]), message(NEW_SESSION_TICKET, &[2; 9]), update]
            .concat();
    for part in 1..=stream.len() {
        let (mut client, mut peer) = client_and_peer(true);
        let mut records = Vec::new();
        for part in stream.chunks(part.max(12)) {
            records.extend(peer.seal(Content::HANDSHAKE, part, 0));
        }
        peer.update();
        records.extend(peer.seal(Content::DATA, b"data", 0));
        assert_eq!(open(&mut client, &records), (b"data".to_vec(), Ok(())), "{part}");
        assert_eq!(client.take_ticket(), Some(vec![2; 9]));
        assert_eq!(client.take_ticket(), Some(vec![1; 300]));
        assert_eq!(client.take_ticket(), None);
    }
}

#[test]
fn tickets_are_for_clients_and_have_limits() {
    let ticket = message(NEW_SESSION_TICKET, b"ticket");
    let open_all = |client: &mut Records, peer: &mut Peer, records: &[(u8, &[u8])]| {
        let all: Vec<_> =
            records.iter().flat_map(|(content, bytes)| peer.seal(*content, bytes, 0)).collect();
        open(client, &all).1
    };
    let (mut client, mut peer) = client_and_peer(true);
    for _ in 0..2 * TICKETS_MAX {
        let records = [(Content::HANDSHAKE, &ticket[..]), (Content::DATA, b"x")];
        assert_eq!(open_all(&mut client, &mut peer, &records), Ok(()));
    }
    assert_eq!(core::iter::from_fn(|| client.take_ticket()).count(), usize::from(TICKETS_MAX));

    let large = [NEW_SESSION_TICKET, 0, 0x40, 1];
    for (records, fault) in [
        // Data within a ticket.
        (&[(Content::HANDSHAKE, &ticket[..3]), (Content::DATA, b"x")][..], Fault::Unexpected),
        (&[(Content::HANDSHAKE, &ticket[..3]), (Content::ALERT, &[1, 0])], Fault::Unexpected),
        (&[(Content::HANDSHAKE, &large)], Fault::Overflow),
        // The server asks for a certificate, or for a second handshake.
        (&[(Content::HANDSHAKE, &[13, 0, 0, 0])], Fault::Unexpected),
        (&[(Content::HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0])], Fault::Unexpected),
    ] {
        let (mut client, mut peer) = client_and_peer(true);
        assert_eq!(open_all(&mut client, &mut peer, records), Err(fault), "{records:?}");
        assert_eq!(client.take_ticket(), None);
    }

    let mut server = records((true, Cipher::Aes128Gcm));
    let mut peer = Peer::new(keys(true, Cipher::Aes128Gcm, 0));
    let to_server = [(Content::HANDSHAKE, &ticket[..])];
    assert_eq!(open_all(&mut server, &mut peer, &to_server), Err(Fault::Unexpected));
}

#[test]
fn rfc5246_7_4_1_1_a_server_gets_no_second_handshake() {
    let (mut client, mut peer) = client_and_peer(false);
    let request = peer.seal(Content::HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0], 0);
    assert_eq!(open(&mut client, &request).1, Err(Fault::Renegotiation));
    let (mut client, mut peer) = client_and_peer(false);
    let hello = peer.seal(Content::HANDSHAKE, &[CLIENT_HELLO, 0, 0, 0], 0);
    assert_eq!(open(&mut client, &hello).1, Err(Fault::Unexpected));
}

proptest! {
    /// Whatever a server sends, both ways to open a record agree.
    #[test]
    fn records_are_opened_alike_into_both_kinds_of_memory(
        is_tls13: bool,
        sent in proptest::collection::vec(
            (
                20_u8..25,
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..40),
                    Just(message(NEW_SESSION_TICKET, &[5; 20])),
                    Just(message(KEY_UPDATE[0], &[1])),
                    Just(vec![1, 0]),
                ],
                0..20_usize,
            ),
            0..12,
        ),
        flip in proptest::option::of(0..400_usize),
    ) {
        let ((mut one, mut peer), (mut other, _)) = (client_and_peer(is_tls13), client_and_peer(is_tls13));
        let mut stream: Vec<u8> = sent
            .iter()
            .flat_map(|(content, plain, padding)| peer.seal(*content, plain, *padding))
            .collect();
        if let Some(byte) = flip.and_then(|at| stream.get_mut(at)) {
            *byte ^= 1;
        }
        let (mut assembly, mut input) = (Assembly::default(), &stream[..]);
        while let Ok(Some(record)) = assembly.next(&mut input) {
            let (mut plain, mut room) = (Vec::new(), vec![0; record.len()]);
            let opened = one.open(record, &mut plain);
            let into = other.open_into(record, &mut room);
            prop_assert_eq!(into.map(|len| room[..len].to_vec()), opened.map(|()| plain));
            prop_assert_eq!(one.take_ticket(), other.take_ticket());
            prop_assert_eq!(one.has_ended(), other.has_ended());
            prop_assert_eq!(one.owes_update(), other.owes_update());
            if opened.is_err() {
                break;
            }
        }
    }
}

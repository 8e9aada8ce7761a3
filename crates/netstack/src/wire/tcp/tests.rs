use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn emitted(header: &Header) -> Vec<u8> {
    let mut bytes = [0xaa; Header::LEN_MAX];
    let len = header.emit(&mut bytes);
    bytes[..len].to_vec()
}

fn plain() -> Header {
    Header {
        source: 80,
        destination: 40_000,
        seq: SeqNumber(1),
        ack: Some(SeqNumber(2)),
        flags: Flags::NONE,
        window: 3,
        options: Options::default(),
    }
}

/// The options of a segment with these bytes of options.
fn options(bytes: &[u8]) -> Options {
    let mut segment = emitted(&plain());
    segment.extend_from_slice(bytes);
    segment.resize(segment.len().next_multiple_of(4), END);
    segment[12] = u8::try_from(segment.len() / 4).unwrap() << 4;
    segment.extend_from_slice(b"data");
    let (header, payload) = Header::parse(&segment).unwrap();
    assert_eq!(payload, b"data");
    header.options
}

#[test]
fn a_syn_is_laid_out_as_linux_does() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some((0x0102_0304, 0)),
        ..Options::default()
    };
    let header = Header {
        ack: None,
        flags: Flags { syn: true, ece: true, cwr: true, ..Flags::NONE },
        options,
        ..plain()
    };
    let mut expected = std::vec![0, 80, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0xa0, 0xc2, 0, 3];
    expected.extend_from_slice(&[0, 0, 0, 0]);
    expected.extend_from_slice(&[2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7]);
    assert_eq!(emitted(&header), expected);
    assert_eq!(options.emitted_len(), 20);
}

#[test]
fn more_blocks_than_fit_are_left_out() {
    let block = (SeqNumber(5), SeqNumber(6));
    let all = Options { sack: [block; 5].into_iter().collect(), ..Options::default() };
    assert_eq!(all.sack.len(), 4);
    let header = Header { options: Options { timestamps: Some((1, 2)), ..all }, ..plain() };
    let bytes = emitted(&header);
    assert_eq!(bytes.len(), Header::LEN_MAX);
    let (parsed, _) = Header::parse(&bytes).unwrap();
    assert_eq!(&*parsed.options.sack, [block; 3]);
    assert_eq!(parsed.options.timestamps, Some((1, 2)));
}

#[test]
fn unknown_options_are_skipped() {
    // Fast open (34) and one of length 2, then an MSS without alignment.
    assert_eq!(options(&[34, 6, 1, 2, 3, 4, 253, 2, 1, 2, 4, 1, 0]).mss, Some(256));
}

#[test]
fn an_option_with_a_wrong_length_ends_them() {
    for wrong in [[8, 0], [8, 1], [253, 255]] {
        let [kind, len] = wrong;
        let parsed = options(&[2, 4, 1, 0, kind, len, 3, 3, 7]);
        assert_eq!((parsed.mss, parsed.window_scale), (Some(256), None), "{wrong:?}");
    }
    // Cut off after its kind: the last byte of the header.
    assert_eq!(options(&[2, 4, 1, 0, 1, 1, 1, 8]).mss, Some(256));
}

#[test]
fn known_options_with_another_length_are_ignored() {
    let bytes =
        [2, 3, 1, 3, 4, 1, 1, 4, 3, 0, 8, 9, 0, 0, 0, 0, 0, 0, 0, 5, 9, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(options(&bytes), Options::default());
}

#[test]
fn rfc7323_2_3_a_larger_shift_is_14() {
    assert_eq!(options(&[3, 3, 15]).window_scale, Some(14));
    assert_eq!(options(&[3, 3, 14]).window_scale, Some(14));
}

#[test]
fn nothing_behind_the_end_of_options_counts() {
    assert_eq!(options(&[0, 2, 4, 1, 0]), Options::default());
}

#[test]
fn a_header_that_is_cut_off_is_refused() {
    let bytes = emitted(&Header {
        options: Options { timestamps: Some((1, 2)), ..Options::default() },
        ..plain()
    });
    for len in 0..bytes.len() {
        assert_eq!(Header::parse(&bytes[..len]), Err(Malformed::Header), "{len}");
    }
    let mut short = bytes;
    short[12] = 0x40;
    assert_eq!(Header::parse(&short), Err(Malformed::Header));
}

fn any_header() -> impl Strategy<Value = Header> {
    let seq = || any::<u32>().prop_map(SeqNumber);
    let timestamps = prop::option::of(any::<(u32, u32)>());
    // With all options, one block has room; with none, four.
    let sack = timestamps.prop_flat_map(move |timestamps| {
        let max = if timestamps.is_some() { 3 } else { 4 };
        (Just(timestamps), prop::collection::vec((seq(), seq()), 0..=max))
    });
    let for_syn = (any::<Option<u16>>(), prop::option::of(0..=14_u8), any::<bool>());
    let options = (sack, prop::option::of(for_syn)).prop_map(|((timestamps, sack), for_syn)| {
        let (mss, window_scale, sack_permitted) = for_syn.unwrap_or_default();
        let blocks = if for_syn.is_some() { 1 } else { 4 };
        let sack = sack.into_iter().take(blocks).collect();
        Options { mss, window_scale, sack_permitted, sack, timestamps }
    });
    let flags = any::<u8>().prop_map(Flags::from_bits);
    (any::<(u16, u16, u16)>(), seq(), prop::option::of(seq()), flags, options).prop_map(
        |((source, destination, window), seq, ack, flags, options)| Header {
            source,
            destination,
            seq,
            ack,
            flags,
            window,
            options,
        },
    )
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(header in any_header()) {
        let bytes = emitted(&header);
        prop_assert_eq!(bytes.len(), Header::LEN + header.options.emitted_len());
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &[][..])));
    }

    #[test]
    fn no_bytes_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120),
        kinds in prop::collection::vec((20..60_usize, 0..9_u8), 0..6),
    ) {
        // Kinds and lengths that are known are likelier than random ones.
        for (at, kind) in kinds {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = kind;
            }
        }
        if let Ok((header, payload)) = Header::parse(&bytes) {
            prop_assert!(payload.len() + Header::LEN <= bytes.len());
            // What was understood can be said again.
            let (again, _) = Header::parse(&emitted(&header)).unwrap();
            prop_assert_eq!(again.options.timestamps, header.options.timestamps);
            prop_assert!(again.options.sack.len() <= header.options.sack.len());
        }
    }
}

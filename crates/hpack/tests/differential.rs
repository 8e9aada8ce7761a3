//! The encoder and the decoder against another implementation, `loona-hpack`.

use hpack::{Decoder, Encoder, Limits};
use loona_hpack::decoder::DecoderError;
use proptest::prelude::*;

const LIMITS: Limits = Limits { list_bytes_max: usize::MAX, fields_max: usize::MAX };

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Blocks of fields, many of which repeat or are in the static table.
fn blocks() -> impl Strategy<Value = Vec<Fields>> {
    let name = prop_oneof![
        Just("content-type"),
        Just(":status"),
        Just("x-a"),
        Just("etag"),
        Just("set-cookie"),
        Just("a-name-that-is-in-no-table"),
    ];
    let value = prop_oneof![
        3 => proptest::sample::select(vec![&b"200"[..], b"text/html", b"", b"abc", b"\xff\0"])
            .prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => "[ -~]{0,200}".prop_map(String::into_bytes),
    ];
    let field = (name.prop_map(|name| name.as_bytes().to_vec()), value);
    proptest::collection::vec(proptest::collection::vec(field, 0..12), 1..12)
}

/// The text that a decoder makes of fields.
fn text_of(fields: &Fields) -> Vec<u8> {
    let lines = fields.iter().map(|(name, value)| [name, &b": "[..], value, b"\r\n"].concat());
    lines.collect::<Vec<_>>().concat()
}

proptest! {
    #[test]
    fn the_other_decoder_reads_our_blocks(blocks in blocks()) {
        let mut encoder = Encoder::new();
        let mut other = loona_hpack::Decoder::new();
        for fields in blocks {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &fields {
                encoder.field(name, value, &mut block);
            }
            prop_assert_eq!(other.decode(&block).unwrap(), fields);
        }
    }

    #[test]
    fn our_decoder_reads_the_other_blocks(blocks in blocks()) {
        let mut other = loona_hpack::Encoder::new();
        let mut decoder = Decoder::new();
        for fields in blocks {
            let pairs = fields.iter().map(|(name, value)| (&name[..], &value[..]));
            let block = other.encode(pairs);
            let mut text = Vec::new();
            let decoded = decoder.decode(&block, &LIMITS, &mut text, |_, _| ()).unwrap();
            prop_assert_eq!(text, text_of(&fields));
            prop_assert_eq!(decoded.fields, fields.len());
        }
    }

    /// If both decoders accept a block, they decode the same fields. The other decoder accepts more: sizes of the table
    /// between fields, and any number of sizes. It refuses a block of sizes alone, which RFC 7541, section 4.2 allows: such a
    /// size is at the beginning of its block.
    #[test]
    fn any_bytes_mean_the_same_to_both(
        blocks in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x40), Just(0x00), Just(0xbe), Just(1), 0x80u8..0xc5],
                0..40),
            1..5),
    ) {
        let mut decoder = Decoder::new();
        let mut other = loona_hpack::Decoder::new();
        for block in blocks {
            let mut text = Vec::new();
            let ours = decoder.decode(&block, &LIMITS, &mut text, |_, _| ());
            let Ok(decoded) = ours else { break };
            let theirs = match other.decode(&block) {
                Err(DecoderError::SizeUpdateAtEnd) if decoded.fields == 0 => break,
                theirs => theirs.expect("what we accept is valid"),
            };
            prop_assert_eq!(text, text_of(&theirs));
            prop_assert_eq!(decoded.fields, theirs.len());
        }
    }
}

//! Header blocks of one connection, in their order. Checked: no block gives more than the limits allow, memory is
//! bounded, and an encoder writes what was decoded so that another decoder reads the same.

#![no_main]

use hpack::{Decoder, Encoder, FIELD_OVERHEAD, Limits};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { list_bytes_max: 2000, fields_max: 40 };

fuzz_target!(|blocks: Vec<&[u8]>| {
    let (mut decoder, mut encoder, mut other) = (Decoder::new(), Encoder::new(), Decoder::new());
    for block in blocks {
        let (mut text, mut again) = (Vec::new(), Vec::new());
        let (mut lines, mut size) = (0, 0);
        encoder.begin(&mut again);
        let decoded = decoder.decode(block, &LIMITS, &mut text, |text, line| {
            lines += 1;
            size += line.name.len() + line.value.len() + FIELD_OVERHEAD;
            let (name, value) = (&text[line.name], &text[line.value]);
            if line.is_secret {
                encoder.secret_field(name, value, &mut again);
            } else {
                encoder.field(name, value, &mut again);
            }
        });
        assert!(size <= LIMITS.list_bytes_max && lines <= LIMITS.fields_max);
        assert!(text.len() <= size && decoder.memory() <= 16 * 1024);
        let Ok(decoded) = decoded else { return };
        assert!(decoded.fields >= lines && (decoded.is_cut || decoded.fields == lines));
        let mut text_again = Vec::new();
        let result = other.decode(&again, &LIMITS, &mut text_again, |_, _| ());
        assert_eq!(result.map(|decoded| decoded.fields), Ok(lines));
        // Names are written in lower case.
        assert!(text_again.eq_ignore_ascii_case(&text));
    }
});

//! Shows the bytes of a header block: `cargo run -p samum-hpack --example block -- :status=200 server=samum`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use hpack::{Decoder, Encoder, Limits};

fn main() {
    let fields: Vec<_> = std::env::args().skip(1).collect();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    // A field that repeats is shorter in the third block.
    for number in 1..=3 {
        let (mut block, mut text) = (Vec::new(), Vec::new());
        encoder.begin(&mut block);
        for field in &fields {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        println!("block {number}, {} bytes: {block:02x?}", block.len());
        match decoder.decode(&block, &Limits::DEFAULT, &mut text, |_, _| ()) {
            Ok(_) => println!("{}", text.escape_ascii()),
            Err(fault) => println!("not decoded: {fault}"),
        }
    }
}

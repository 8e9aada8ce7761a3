//! Shows the frames of a file: `cargo run -p samum-http2 --example frames FILE`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use http2::frame::{FrameHead, HEAD_LEN, PREFACE};

fn main() -> std::io::Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        println!("usage: frames FILE");
        return Ok(());
    };
    let bytes = std::fs::read(path)?;
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
    while let Some(head) = FrameHead::parse(rest) {
        println!("{head:?}");
        rest = rest.get(HEAD_LEN + head.length as usize..).unwrap_or_default();
    }
    Ok(())
}

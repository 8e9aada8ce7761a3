//! Records of a client after a handshake, good ones and any other bytes, that come in any parts. Checked: nothing panics;
//! what is opened is what was sealed, however it comes in parts; and after a fault nothing was appended, and the peer can be
//! told.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tls_record::peer::Peer;
use tls_record::{Assembly, Cipher, Fault, Keys, RECORD_BYTES_MAX, Records};

/// The most bytes of a record that the peer seals.
const CONTENT_BYTES_MAX: usize = 20_000;

/// What comes from the client.
#[derive(Arbitrary, Debug)]
enum Step {
    /// Data, sealed as it should be.
    Data(Vec<u8>),
    /// So many equal bytes of data.
    Long(u16),
    /// A record of any type, with padding.
    Any(u8, Vec<u8>, u8),
    /// A KeyUpdate, in parts of this size.
    Update(bool, u8),
    /// Bytes that no one has sealed.
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Case {
    is_tls13: bool,
    cipher: u8,
    steps: Vec<Step>,
    /// The sizes of the parts in which the bytes come.
    parts: Vec<u16>,
}

fn keys(case: &Case) -> Keys {
    let cipher = match case.cipher % 3 {
        0 => Cipher::Aes128Gcm,
        1 => Cipher::Aes256Gcm,
        _ => Cipher::ChaCha20Poly1305,
    };
    let keys = if case.is_tls13 {
        Keys::tls13(cipher, &[1; 32], 0)
    } else {
        Keys::tls12(cipher, &[1; 32][..cipher.key_len()], [2; 12], 0)
    };
    keys.unwrap()
}

/// The bytes of the client, the data in them, and whether there is nothing else.
fn stream(case: &Case) -> (Vec<u8>, Vec<u8>, bool) {
    let mut peer = Peer::new(keys(case));
    let (mut stream, mut data, mut is_good) = (Vec::new(), Vec::new(), true);
    for step in &case.steps {
        match step {
            Step::Data(bytes) => {
                let bytes = &bytes[..bytes.len().min(1 << 14)];
                stream.extend(peer.seal(23, bytes, 0));
                data.extend(bytes);
                is_good &= !bytes.is_empty();
            }
            Step::Long(len) => {
                let bytes = vec![3; usize::from(*len) % CONTENT_BYTES_MAX];
                stream.extend(peer.seal(23, &bytes, 0));
                is_good &= (1..=1 << 14).contains(&bytes.len());
                data.extend(bytes);
            }
            Step::Any(content, bytes, padding) => {
                let bytes = &bytes[..bytes.len().min(CONTENT_BYTES_MAX)];
                stream.extend(peer.seal(*content, bytes, (*padding).into()));
                is_good = false;
            }
            Step::Update(asks, part) => {
                for part in [24, 0, 0, 1, u8::from(*asks)].chunks(usize::from(*part).max(1)) {
                    stream.extend(peer.seal(22, part, 0));
                }
                peer.update();
                is_good = false;
            }
            Step::Bytes(bytes) => {
                stream.extend(bytes);
                is_good = false;
            }
        }
    }
    (stream, data, is_good)
}

/// Opens a stream that comes in parts.
fn open(
    records: &mut Records,
    stream: &[u8],
    mut part: impl FnMut() -> usize,
) -> (Vec<u8>, Result<(), Fault>) {
    let (mut assembly, mut plain, mut rest) = (Assembly::default(), Vec::new(), stream);
    let mut open = || {
        while !rest.is_empty() {
            let (mut input, left) = rest.split_at(part().clamp(1, rest.len()));
            rest = left;
            while let Some(record) = assembly.next(&mut input)? {
                let before = plain.len();
                records.open(record, &mut plain).inspect_err(|_| assert_eq!(plain.len(), before))?;
            }
            assert!(assembly.weight() <= 2 * RECORD_BYTES_MAX);
        }
        Ok(())
    };
    let opened = open();
    (plain, opened)
}

fuzz_target!(|case: Case| {
    let (stream, data, is_good) = stream(&case);
    let make = || Records::new(keys(&case), keys(&case));
    let (mut whole, mut parted) = (make(), make());
    let at_once = open(&mut whole, &stream, || usize::MAX);
    let mut sizes = case.parts.iter().map(|size| usize::from(*size)).cycle();
    let in_parts = open(&mut parted, &stream, || sizes.next().unwrap_or(1));
    assert_eq!(at_once, in_parts);
    let (plain, opened) = at_once;
    assert!(plain.len() <= stream.len());
    if is_good {
        assert_eq!((&plain, opened), (&data, Ok(())));
    }
    match opened {
        Err(fault) if fault.alert().is_some() => {
            assert!(!whole.say(fault.alert().unwrap()).is_empty());
        }
        _ => {
            let mut out = vec![0; plain.len() + 4096];
            let sealed = whole.seal([&plain[..]], usize::MAX, &mut out);
            assert!(!whole.owes_update());
            // It is the same to a client.
            let mut client = make();
            let (again, opened) = open(&mut client, &out[..sealed.written], || 1000);
            assert_eq!((again, opened), (plain, Ok(())));
        }
    }
});

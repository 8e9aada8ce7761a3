use super::*;

/// A header of version 2.
fn binary_header(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut header = BINARY_SIGNATURE.to_vec();
    header.extend([command, family]);
    header.extend(u16::try_from(block.len()).unwrap().to_be_bytes());
    header.extend_from_slice(block);
    header
}

/// 192.0.2.1:4660 to 192.0.2.2:80.
const IPV4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0, 80];

fn ipv6() -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    [&address("2001:db8::1")[..], &address("2001:db8::2"), &[0x12, 0x34, 0, 80]].concat()
}

/// Headers, and the clients that they name.
fn valid() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let line = |text: &str| text.as_bytes().to_vec();
    let longest = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                   ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), LINE_BYTES_MAX);
    vec![
        (line("PROXY TCP4 192.0.2.1 192.0.2.2 4660 80\r\n"), Some("192.0.2.1:4660")),
        (line("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n"), Some("255.255.255.255:65535")),
        (line("PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 1 2\r\n"), Some("[2001:db8::1]:1")),
        (line("PROXY UNKNOWN\r\n"), None),
        (line("PROXY UNKNOWN some \u{e9} thing\r\n"), None),
        (line(longest), None),
        (binary_header(0x21, 0x11, &IPV4), Some("192.0.2.1:4660")),
        (binary_header(0x21, 0x11, &[&IPV4[..], &[4, 0, 1, 9]].concat()), Some("192.0.2.1:4660")),
        (binary_header(0x21, 0x11, &[&IPV4[..], &[0; 4000]].concat()), Some("192.0.2.1:4660")),
        (binary_header(0x21, 0x21, &ipv6()), Some("[2001:db8::1]:4660")),
        (binary_header(0x21, 0x31, &[b'x'; 216]), None),
        (binary_header(0x21, 0x31, &[b'x'; 300]), None),
        (binary_header(0x21, 0x00, &[]), None),
        (binary_header(0x21, 0x00, &[1, 2, 3]), None),
        (binary_header(0x20, 0x00, &[]), None),
        // The addresses of a proxy's own connection, such as a health check, are to be ignored.
        (binary_header(0x20, 0x11, &IPV4), None),
        (binary_header(0x20, 0xff, &[]), None),
    ]
}

fn invalid() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "GET / HTTP/1.1\r\n",
        "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY \r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    all.push([b"PROXY UNKNOWN ", &[b'x'; LINE_BYTES_MAX][..]].concat());
    all.push(b"PROXY TCP4 \xff\r\n".to_vec());
    all.extend([
        binary_header(0x11, 0x11, &IPV4),
        binary_header(0x22, 0x11, &IPV4),
        binary_header(0x21, 0x11, &IPV4[..11]),
        binary_header(0x21, 0x21, &IPV4),
        binary_header(0x21, 0x31, &[b'x'; 215]),
        binary_header(0x21, 0x12, &IPV4),
        binary_header(0x21, 0x41, &IPV4),
        binary_header(0x21, 0x13, &IPV4),
        binary_header(0x21, 0x11, &[0; HEADER_BYTES_MAX - BINARY_BYTES + 1]),
    ]);
    all
}

/// What comes of bytes that are pushed in pieces.
fn read(
    is_trusted: bool,
    bytes: &[u8],
    pieces: impl Iterator<Item = usize>,
) -> Result<Option<Header>, Invalid> {
    let mut reader = Reader::new(is_trusted);
    let mut rest = bytes;
    for piece in pieces {
        let (piece, behind) = rest.split_at(piece.min(rest.len()));
        rest = behind;
        if let Some(mut header) = reader.push(piece)? {
            header.rest.extend_from_slice(rest);
            return Ok(Some(header));
        }
        assert!(
            reader.bytes.len() < HEADER_BYTES_MAX + bytes.len(),
            "no more than a header is kept"
        );
        if rest.is_empty() {
            break;
        }
    }
    Ok(None)
}

#[test]
fn headers_name_clients_whole_and_byte_by_byte() {
    for (header, client) in valid() {
        let name = String::from_utf8_lossy(&header).into_owned();
        let bytes = [&header[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
        let client = client.map(|client| client.parse().unwrap());
        let expected = Header { client, rest: bytes[header.len()..].to_vec() };
        for piece in [1, 2, 5, 13, 100, usize::MAX] {
            let found = read(true, &bytes, core::iter::repeat(piece));
            assert_eq!(found.unwrap().as_ref(), Some(&expected), "{name:?} by {piece}");
        }
        for cut in 0..header.len() {
            assert_eq!(
                read(true, &header[..cut], [cut].into_iter()),
                Ok(None),
                "{name:?} to {cut}"
            );
        }
        assert_eq!(
            read(false, &bytes, core::iter::repeat(1)),
            Err(Invalid),
            "{name:?}, not trusted"
        );
    }
}

#[test]
fn what_is_no_header_is_refused_from_trusted_peers() {
    for bytes in invalid() {
        let name = String::from_utf8_lossy(&bytes).into_owned();
        for piece in [1, 7, usize::MAX] {
            let found = read(true, &bytes, core::iter::repeat(piece));
            assert_eq!(found, Err(Invalid), "{name:?} by {piece}");
        }
    }
}

#[test]
fn other_peers_may_send_anything_but_a_header() {
    for text in ["GET / HTTP/1.1\r\n\r\n", "PUT /", "PROXYX", "\r\n\r\nGET /", "\r\n\r\n\0\r\nQUIX"]
    {
        for piece in [1, 3, usize::MAX] {
            let found = read(false, text.as_bytes(), core::iter::repeat(piece));
            let expected = Header { client: None, rest: text.as_bytes().to_vec() };
            assert_eq!(found.unwrap(), Some(expected), "{text:?} by {piece}");
        }
    }
    for text in ["", "P", "PROXY", "\r\n\r\n\0"] {
        assert_eq!(read(false, text.as_bytes(), [9].into_iter()), Ok(None), "{text:?}");
    }
}

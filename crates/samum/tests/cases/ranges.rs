//! Ranges (RFC 9110 §14), each byte compared.

use testkit::Content;

use super::{Case, Expected, Site};

/// Below and above what is kept in memory.
const SIZES: [(&str, u64); 2] = [("small.bin", 10_000), ("large.bin", 3_000_000)];

fn content(size: u64) -> Content {
    Content::pseudo_random(size, size)
}

fn case(name: &str, range: &str, expected: Expected) -> Case {
    Case::of(format!("GET /{name}\nRange: {range}"), expected)
}

pub(super) fn sites() -> Vec<Site> {
    let mut site = Site::new("ranges").file("empty", "");
    for (name, size) in SIZES {
        site = site.file(name, content(size));
    }
    vec![site.cases(one()).cases(ignored()).cases(beyond_the_end()).cases(several())]
}

fn one() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, size) in SIZES {
        let last = size - 1;
        for (range, first, end) in [
            ("bytes=0-0", 0, 1),
            ("bytes=0-", 0, size),
            ("Bytes=7-99", 7, 100),
            ("bytes=5000-", 5000, size),
            ("bytes=-1", last, size),
            ("bytes=-100", size - 100, size),
            ("bytes=-99999999999999999999999999", 0, size),
            ("bytes=4095-8192", 4095, 8193),
            ("bytes=9000-99999999999999999999999999", 9000, size),
            ("bytes=1-1,", 1, 2),
        ] {
            cases.push(case(name, range, Expected::part(&content(size), first, end - 1)));
        }
    }
    cases
}

fn ignored() -> Vec<Case> {
    let whole = || Expected::ok(content(10_000)).absent("Content-Range");
    let countless = format!("bytes={}", "0-0,".repeat(1000));
    let mut cases: Vec<_> = [
        "bytes=",
        "bytes=-",
        "bytes=5-4",
        "bytes=a-b",
        "lines=0-1",
        "bytes 0-1",
        "bytes=0-1;2-3",
        "bytes=0x1-2",
        &countless,
        // Two fields are none.
        "bytes=0-0\nRange: bytes=2-2",
    ]
    .map(|range| case("small.bin", range, whole()))
    .into();
    // An empty file has no ranges, and ranges are for GET.
    cases.push(case("empty", "bytes=0-", Expected::ok("")));
    let head = Expected::ok("").field("Content-Length", "10000");
    cases.push(Case::of("HEAD /small.bin\nRange: bytes=0-0", head));
    cases
}

fn beyond_the_end() -> Vec<Case> {
    let mut cases: Vec<_> = [
        "bytes=10000-",
        "bytes=10000-10001",
        "bytes=-0",
        "bytes=99999999999999999999999999-",
        "bytes=20000-,30000-",
    ]
    .map(|range| {
        case("small.bin", range, Expected::page(416).field("Content-Range", "bytes */10000"))
    })
    .into();
    // One that can be satisfied is enough.
    cases.push(case("small.bin", "bytes=20000-,3-4", Expected::part(&content(10_000), 3, 4)));
    cases
}

/// Several ranges come as parts, in the order of the request. Those that overlap are joined, so that
/// nothing is sent twice.
fn several() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, size) in SIZES {
        let parts = [(size - 1, size - 1), (0, 0), (4000, 4999), (7000, 7001)];
        let expected = Expected::parts(&content(size), parts);
        cases.push(case(name, "bytes=-1, 0-0, 4000-4999 ,7000-7001", expected));
    }
    let (small, large) = (content(10_000), content(3_000_000));
    // The most that can be asked for: never more than the file and a little for each part.
    let whole = vec!["0-"; 32].join(",");
    let ranges: Vec<_> = (0..32).map(|n| (n * 300, n * 300 + 100)).collect();
    let many: Vec<_> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    cases.extend([
        case(
            "large.bin",
            "bytes=2000000-2999999,0-999999",
            Expected::parts(&large, [(2_000_000, 2_999_999), (0, 999_999)]),
        ),
        case("small.bin", "bytes=0-99,50-149,100-199", Expected::part(&small, 0, 199)),
        case(
            "small.bin",
            "bytes=5000-5999,0-10,5500-6999",
            Expected::parts(&small, [(5000, 6999), (0, 10)]),
        ),
        case("large.bin", &format!("bytes={whole}"), Expected::part(&large, 0, 2_999_999)),
        case("small.bin", &format!("bytes={}", many.join(",")), Expected::parts(&small, ranges)),
    ]);
    cases
}

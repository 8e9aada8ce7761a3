//! The three formats, the calendar, and texts that are no dates.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::str;

use proptest::prelude::*;

use super::*;

/// RFC 9110's example, 1994-11-06T08:49:37Z.
const EXAMPLE: i64 = 784_111_777;
/// 2023-11-14T22:13:20Z.
const NOW: i64 = 1_700_000_000;

fn parse_at(text: &str, now: i64) -> Option<i64> {
    parse(text.as_bytes(), now)
}

#[test]
fn rfc9110_5_6_7_the_three_formats_of_one_date() {
    for text in [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ] {
        assert_eq!(parse_at(text, NOW), Some(EXAMPLE), "{text}");
    }
}

#[test]
fn rfc3339_has_the_same_dates() {
    for (unix, text) in [
        (EXAMPLE, "1994-11-06T08:49:37"),
        (-1, "1969-12-31T23:59:59"),
        (951_782_400, "2000-02-29T00:00:00"),
        (i64::MAX, "9999-12-31T23:59:59"),
        (i64::MIN, "0000-01-01T00:00:00"),
    ] {
        assert_eq!(str::from_utf8(&rfc3339(unix)), Ok(text));
    }
}

#[test]
fn known_dates_are_formatted() {
    for (unix, text) in [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
        (EXAMPLE, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (NOW, "Tue, 14 Nov 2023 22:13:20 GMT"),
        (4_102_444_800, "Fri, 01 Jan 2100 00:00:00 GMT"),
        (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        assert_eq!(str::from_utf8(&format(unix)), Ok(text));
        assert_eq!(parse_at(text, NOW), Some(unix));
    }
}

#[test]
fn times_that_four_digits_cannot_write_are_shown_as_the_nearest() {
    assert_eq!(&format(i64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(&format(LAST + 1), &format(LAST));
    assert_eq!(&format(i64::MIN), b"Sat, 01 Jan 0000 00:00:00 GMT");
    assert_eq!(
        parse_at("Sunday, 06-Nov-94 08:49:37 GMT", i64::MAX).map(format),
        Some(*b"Sun, 06 Nov 9994 08:49:37 GMT")
    );
    assert!(parse_at("Sunday, 06-Nov-94 08:49:37 GMT", i64::MIN).is_some());
}

#[test]
fn rfc9110_5_6_7_two_digit_years_are_at_most_50_years_ahead() {
    let at = |text: &str, now: &str| {
        let now = parse_at(now, 0).expect(now);
        let year = format(parse_at(text, now).expect(text));
        str::from_utf8(&year[12..16]).map(str::to_owned)
    };
    let now = "Tue, 14 Nov 2023 22:13:20 GMT";
    for (text, year) in [
        ("Monday, 01-Jan-24 00:00:00 GMT", "2024"),
        ("Monday, 14-Nov-73 22:13:20 GMT", "2073"),
        ("Monday, 14-Nov-73 22:13:21 GMT", "1973"),
        ("Monday, 15-Nov-73 00:00:00 GMT", "1973"),
        ("Monday, 01-Jan-74 00:00:00 GMT", "1974"),
        ("Monday, 01-Jan-99 00:00:00 GMT", "1999"),
        ("Monday, 01-Jan-00 00:00:00 GMT", "2000"),
    ] {
        assert_eq!(at(text, now).as_deref(), Ok(year), "{text}");
    }
    assert_eq!(
        at("Monday, 01-Jan-10 00:00:00 GMT", "Sun, 06 Nov 2080 08:49:37 GMT").as_deref(),
        Ok("2110")
    );
}

#[test]
fn weekdays_must_be_some_weekday() {
    assert_eq!(parse_at("Mon, 06 Nov 1994 08:49:37 GMT", NOW), Some(EXAMPLE));
    assert_eq!(parse_at("Mun, 06 Nov 1994 08:49:37 GMT", NOW), None);
    assert_eq!(parse_at("Mon, 06-Nov-94 08:49:37 GMT", NOW), None);
    assert_eq!(parse_at("Monday, 06 Nov 1994 08:49:37 GMT", NOW), None);
}

#[test]
fn a_leap_second_is_the_second_after_it() {
    let text = "Sat, 31 Dec 2016 23:59:60 GMT";
    assert_eq!(parse_at(text, NOW).map(format), Some(*b"Sun, 01 Jan 2017 00:00:00 GMT"));
}

#[test]
fn malformed_and_impossible_dates_are_none() {
    for text in [
        "",
        ",",
        "Sun",
        "Sun,",
        "Sun, ",
        "now",
        "0",
        "784111777",
        "sun, 06 Nov 1994 08:49:37 GMT",
        "SUN, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nov 1994 8:49:37 GMT",
        "Sun, 06 Nov 1994 08:49 GMT",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        " Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun,  6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994  8:49:37 GMT",
        "Sun; 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 +000",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 32 Jan 1994 08:49:37 GMT",
        "Sun, 30 Feb 2000 00:00:00 GMT",
        "Sun, 29 Feb 2001 00:00:00 GMT",
        "Sun, 29 Feb 1900 00:00:00 GMT",
        "Sun, +6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov -994 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sunday, 06 Nov 94 08:49:37 GMT",
        "Sunday, 29-Feb-23 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov 06 08:49:37 94",
        "Sun Nov  6 08:49:37 1994 GMT",
        "Sun Nov  0 08:49:37 1994",
        "Sun Nov 31 08:49:37 1994",
        "Sunday Nov  6 08:49:37 1994",
    ] {
        assert_eq!(parse_at(text, NOW), None, "{text:?}");
    }
    assert!(parse_at("Sun Nov 06 08:49:37 1994", NOW).is_some(), "two digits are two digits");
}

proptest! {
    #[test]
    fn dates_round_trip_from_1970_to_9999(unix in 0..=LAST) {
        let text = format(unix);
        prop_assert_eq!(parse(&text, NOW), Some(unix));
        prop_assert_eq!(parse(&asctime(&text), NOW), Some(unix));
    }

    #[test]
    fn days_follow_each_other(days in -719_528i64..2_932_896) {
        let (year, month, day) = civil_from_days(days);
        prop_assert_eq!(days_from_civil(year, month, day), days);
        let next = if day < days_in_month(year, month) {
            (year, month, day + 1)
        } else if month < 12 {
            (year, month + 1, 1)
        } else {
            (year + 1, 1, 1)
        };
        prop_assert_eq!(civil_from_days(days + 1), next);
    }

    #[test]
    fn rfc850_dates_round_trip_within_their_century(
        now in 0..LAST / 2,
        ahead in -1_500_000_000i64..1_500_000_000,
    ) {
        let unix = (now + ahead).max(0);
        let text = rfc850(&format(unix));
        prop_assert_eq!(parse(&text, now), Some(unix));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, now: i64) {
        let _ = parse(&bytes, now);
    }
}

/// An IMF-fixdate in the format of `asctime`.
fn asctime(fixdate: &[u8; DATE_LEN]) -> Vec<u8> {
    let mut day = [fixdate[5], fixdate[6]];
    if day[0] == b'0' {
        day[0] = b' ';
    }
    [
        &fixdate[..3],
        b" ",
        &fixdate[8..11],
        b" ",
        &day,
        b" ",
        &fixdate[17..25],
        b" ",
        &fixdate[12..16],
    ]
    .concat()
}

/// An IMF-fixdate in the format of RFC 850.
fn rfc850(fixdate: &[u8; DATE_LEN]) -> Vec<u8> {
    let weekday = DAYS.iter().find(|day| day.as_bytes()[..3] == fixdate[..3]).expect("a weekday");
    [weekday.as_bytes(), b", ", &fixdate[5..7], b"-", &fixdate[8..11], b"-", &fixdate[14..]]
        .concat()
}

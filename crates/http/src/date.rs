//! Dates as HTTP writes them, to and from seconds since 1970-01-01T00:00:00Z.
//!
//! Reading list: RFC 9110 §5.6.7. The crate `httpdate` does the same but needs `std` and its clock
//! type; this module works on numbers and gets the time as an argument.
//!
//! Times count as POSIX does, without leap seconds. The calendar is the proleptic Gregorian one,
//! years 0 to 9999.

/// The length of a formatted date, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_LEN: usize = 29;

const SECONDS_PER_DAY: i64 = 86_400;
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// 1970-01-01 was a Thursday.
const FIRST_WEEKDAY: i64 = 4;

/// 0000-01-01T00:00:00Z, the earliest time that four digits of a year can write.
const FIRST: i64 = days_from_civil(0, 1, 1) * SECONDS_PER_DAY;
/// 9999-12-31T23:59:59Z, the latest.
const LAST: i64 = days_from_civil(10_000, 1, 1) * SECONDS_PER_DAY - 1;

/// Parses a date in any of the three formats that recipients must accept, into Unix seconds.
///
/// `None` if it is malformed or impossible (30 February, 24:00:00). The weekday must exist, but may
/// be the wrong one. A second of 60 is the leap second of the grammar, and becomes the second that
/// follows it.
///
/// `now` gives the two-digit years of RFC 850 their century: a date that appears to be more than 50
/// years in the future is the most recent one in the past with the same two digits.
pub fn parse(value: &[u8], now: i64) -> Option<i64> {
    // `Sun, ...` is IMF-fixdate, `Sunday, ...` RFC 850, `Sun Nov ...` asctime.
    match value.iter().position(|&byte| byte == b',') {
        Some(3) => parse_imf_fixdate(value),
        Some(_) => parse_rfc850(value, now),
        None => parse_asctime(value),
    }
}

/// Formats Unix seconds as an IMF-fixdate, the only format that may be sent.
///
/// A time outside the years 0 to 9999 is shown as the nearest that is inside: file systems can hold
/// such times, HTTP cannot.
pub fn format(unix: i64) -> [u8; DATE_LEN] {
    let unix = unix.clamp(FIRST, LAST);
    let weekday = (unix.div_euclid(SECONDS_PER_DAY) + FIRST_WEEKDAY).rem_euclid(7);
    let Civil { year, month, day, second_of_day } = Civil::from_unix(unix);
    // All three are small and not negative, and so are divided in fewer instructions.
    let [year, day, second_of_day] = [year, day, second_of_day].map(small);

    let mut out = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    out[..3].copy_from_slice(&DAYS[small(weekday) as usize].as_bytes()[..3]);
    put_two_digits(&mut out, 5, day);
    out[8..11].copy_from_slice(MONTHS[small(month - 1) as usize]);
    put_two_digits(&mut out, 12, year / 100);
    put_two_digits(&mut out, 14, year % 100);
    put_two_digits(&mut out, 17, second_of_day / 3600);
    put_two_digits(&mut out, 20, second_of_day / 60 % 60);
    put_two_digits(&mut out, 23, second_of_day % 60);
    out
}

/// The length of a time in the form of RFC 3339, `1994-11-06T08:49:37`.
pub const RFC3339_LEN: usize = 19;

/// Formats Unix seconds as in RFC 3339, without the zone, which is UTC. As for
/// [`format`](fn@format), a time outside the years 0 to 9999 is shown as the nearest time inside.
pub fn rfc3339(unix: i64) -> [u8; RFC3339_LEN] {
    let Civil { year, month, day, second_of_day } = Civil::from_unix(unix.clamp(FIRST, LAST));
    let [year, month, day, second_of_day] = [year, month, day, second_of_day].map(small);
    let mut out = *b"0000-00-00T00:00:00";
    put_two_digits(&mut out, 0, year / 100);
    put_two_digits(&mut out, 2, year % 100);
    put_two_digits(&mut out, 5, month);
    put_two_digits(&mut out, 8, day);
    put_two_digits(&mut out, 11, second_of_day / 3600);
    put_two_digits(&mut out, 14, second_of_day / 60 % 60);
    put_two_digits(&mut out, 17, second_of_day % 60);
    out
}

/// A date and a time of day. The day may be one that its month does not have; the rest is within
/// its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
}

impl Civil {
    /// `unix` must be within [`FIRST`] and [`LAST`].
    fn from_unix(unix: i64) -> Self {
        debug_assert!((FIRST..=LAST).contains(&unix));
        let (year, month, day) = civil_from_days(unix.div_euclid(SECONDS_PER_DAY));
        Self { year, month, day, second_of_day: unix.rem_euclid(SECONDS_PER_DAY) }
    }

    /// `None` if the month has no such day.
    fn to_unix(self) -> Option<i64> {
        if self.day < 1 || self.day > days_in_month(self.year, self.month) {
            return None;
        }
        let days = days_from_civil(self.year, self.month, self.day);
        Some(days * SECONDS_PER_DAY + self.second_of_day)
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn parse_imf_fixdate(value: &[u8]) -> Option<i64> {
    let value: &[u8; DATE_LEN] = value.try_into().ok()?;
    let rest = strip_weekday(value, 3)?.strip_prefix(b", ")?;
    let (day, rest) = two_digits(rest)?;
    let (month, rest) = parse_month(rest.strip_prefix(b" ")?)?;
    let (year, rest) = four_digits(rest.strip_prefix(b" ")?)?;
    let (second_of_day, rest) = parse_time(rest.strip_prefix(b" ")?)?;
    (rest == b" GMT").then_some(())?;
    Civil { year, month, day, second_of_day }.to_unix()
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn parse_rfc850(value: &[u8], now: i64) -> Option<i64> {
    let rest = strip_weekday(value, usize::MAX)?.strip_prefix(b", ")?;
    let (day, rest) = two_digits(rest)?;
    let (month, rest) = parse_month(rest.strip_prefix(b"-")?)?;
    let (year_of_century, rest) = two_digits(rest.strip_prefix(b"-")?)?;
    let (second_of_day, rest) = parse_time(rest.strip_prefix(b" ")?)?;
    (rest == b" GMT").then_some(())?;

    // The latest year with these digits in which the date is at most 50 years ahead of now.
    let now = Civil::from_unix(now.clamp(FIRST, LAST));
    let horizon = Civil { year: now.year + 50, ..now };
    let year = horizon.year - (horizon.year - year_of_century).rem_euclid(100);
    let mut date = Civil { year, month, day, second_of_day };
    if date > horizon {
        date.year -= 100;
    }
    date.to_unix()
}

/// `Sun Nov  6 08:49:37 1994`
fn parse_asctime(value: &[u8]) -> Option<i64> {
    let rest = strip_weekday(value, 3)?.strip_prefix(b" ")?;
    let (month, rest) = parse_month(rest)?;
    let (day, rest) = match rest.strip_prefix(b" ")? {
        [b' ', day @ b'1'..=b'9', rest @ ..] => (i64::from(day - b'0'), rest),
        rest => two_digits(rest)?,
    };
    let (second_of_day, rest) = parse_time(rest.strip_prefix(b" ")?)?;
    let (year, rest) = four_digits(rest.strip_prefix(b" ")?)?;
    rest.is_empty().then_some(())?;
    Civil { year, month, day, second_of_day }.to_unix()
}

/// The text after a weekday, of which at most `letters_max` letters are written.
fn strip_weekday(value: &[u8], letters_max: usize) -> Option<&[u8]> {
    DAYS.iter().find_map(|day| value.strip_prefix(&day.as_bytes()[..day.len().min(letters_max)]))
}

fn parse_month(value: &[u8]) -> Option<(i64, &[u8])> {
    let (name, rest) = value.split_first_chunk::<3>()?;
    (1..).zip(MONTHS).find_map(|(month, month_name)| (name == month_name).then_some((month, rest)))
}

/// `08:49:37` as a second of the day, 86,400 for a leap second at the end of it.
fn parse_time(value: &[u8]) -> Option<(i64, &[u8])> {
    let (hour, rest) = two_digits(value)?;
    let (minute, rest) = two_digits(rest.strip_prefix(b":")?)?;
    let (second, rest) = two_digits(rest.strip_prefix(b":")?)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second, rest))
}

fn two_digits(value: &[u8]) -> Option<(i64, &[u8])> {
    match value {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] => {
            Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), rest))
        }
        _ => None,
    }
}

fn four_digits(value: &[u8]) -> Option<(i64, &[u8])> {
    let (century, rest) = two_digits(value)?;
    let (year, rest) = two_digits(rest)?;
    Some((century * 100 + year, rest))
}

fn put_two_digits<const N: usize>(out: &mut [u8; N], at: usize, number: u32) {
    debug_assert!(number < 100);
    out[at..at + 2].copy_from_slice(&[digit(number / 10), digit(number % 10)]);
}

#[expect(clippy::cast_possible_truncation, reason = "the callers pass a single digit")]
const fn digit(number: u32) -> u8 {
    b'0' + number as u8
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the callers pass parts of a date within the years 0 to 9999"
)]
const fn small(number: i64) -> u32 {
    debug_assert!(number >= 0 && number <= u32::MAX as i64);
    number as u32
}

/// Days of 400 years.
const DAYS_PER_ERA: u32 = 146_097;

const fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap_year(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

// The two conversions below are Howard Hinnant's, "chrono-Compatible Low-Level Date Algorithms":
// years begin in March, so that the leap day is the last of its year, and eras of 400 years all
// have the same length.

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA as i64 + day_of_era - 719_468
}

/// The date, as year, month and day, of a day counted from 1970-01-01, from the year 0 on.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    // The calculation begins one era earlier, so that no number is negative.
    let days = small(days + 719_468 + DAYS_PER_ERA as i64);
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year as i64 - 400, month as i64, day as i64)
}

#[cfg(test)]
mod tests;

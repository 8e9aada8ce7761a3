//! Times in the format that a page requests, as `strftime(3)` writes them in the locale C. All are in UTC.

use core::ops::Range;

use http::date;

use super::expression::VALUE_BYTES_MAX;

/// The form of times until a page changes it.
pub(crate) const DEFAULT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Days of a year before each month, if it has no leap day.
const DAYS_BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// A time of the calendar.
struct Civil {
    year: i64,
    /// From 1 on.
    month: i64,
    day: i64,
    /// From 0 on.
    day_of_year: i64,
    /// From Sunday on.
    weekday: i64,
    second_of_day: i64,
}

/// Writes a time in Unix seconds. `zone` is the name of the time zone. Unknown conversions, and text beyond the
/// maximum of a value, are left out.
pub(super) fn format(form: &[u8], unix: i64, zone: &str) -> Vec<u8> {
    let civil = Civil::from_unix(unix);
    let mut out = Vec::new();
    let mut rest = form.iter();
    while let Some(byte) = rest.next() {
        if out.len() >= VALUE_BYTES_MAX {
            out.truncate(VALUE_BYTES_MAX);
            break;
        }
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        match rest.next() {
            Some(b's') => out.extend_from_slice(unix.to_string().as_bytes()),
            Some(b'Z') => out.extend_from_slice(zone.as_bytes()),
            Some(conversion) => civil.put(*conversion, &mut out),
            None => out.push(b'%'),
        }
    }
    out
}

impl Civil {
    fn from_unix(unix: i64) -> Self {
        // A time outside the years 0 to 9999 is shown as the nearest inside.
        let text = date::rfc3339(unix);
        let number = |digits: Range<usize>| {
            text[digits].iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0'))
        };
        let (year, month, day) = (number(0..4), number(5..7), number(8..10));
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = usize::try_from(month - 1).map_or(0, |month| DAYS_BEFORE[month]);
        let day_of_year = before + i64::from(is_leap && month > 2) + day - 1;
        // The weekday of 1 January of the year 0 was a Saturday; leap years are counted before this one.
        let years = year + 399;
        let leap_days = years / 4 - years / 100 + years / 400 - 96;
        Self {
            year,
            month,
            day,
            day_of_year,
            weekday: (5 + year + leap_days + day_of_year + 1).rem_euclid(7),
            second_of_day: number(11..13) * 3600 + number(14..16) * 60 + number(17..19),
        }
    }

    /// Appends the text of a conversion.
    fn put(&self, conversion: u8, out: &mut Vec<u8>) {
        let Self { year, month, day, day_of_year, weekday, second_of_day } = *self;
        let (hour, minute, second) =
            (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        let hour12 = (hour + 11) % 12 + 1;
        let half = if hour < 12 { "AM" } else { "PM" };
        let [day_name, month_name] = [
            usize::try_from(weekday).map_or("", |weekday| DAYS[weekday]),
            usize::try_from(month - 1).map_or("", |month| MONTHS[month]),
        ];
        let monday = (weekday + 6) % 7;
        let text = match conversion {
            b'a' => day_name[..3].to_owned(),
            b'A' => day_name.to_owned(),
            b'b' | b'h' => month_name[..3].to_owned(),
            b'B' => month_name.to_owned(),
            b'c' => format!(
                "{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}",
                &day_name[..3],
                &month_name[..3]
            ),
            b'C' => format!("{:02}", year / 100),
            b'd' => format!("{day:02}"),
            b'D' | b'x' => format!("{month:02}/{day:02}/{:02}", year % 100),
            b'e' => format!("{day:2}"),
            b'F' => format!("{year}-{month:02}-{day:02}"),
            b'H' => format!("{hour:02}"),
            b'I' => format!("{hour12:02}"),
            b'j' => format!("{:03}", day_of_year + 1),
            b'k' => format!("{hour:2}"),
            b'l' => format!("{hour12:2}"),
            b'm' => format!("{month:02}"),
            b'M' => format!("{minute:02}"),
            b'n' => "\n".to_owned(),
            b'p' => half.to_owned(),
            b'P' => half.to_ascii_lowercase(),
            b'r' => format!("{hour12:02}:{minute:02}:{second:02} {half}"),
            b'R' => format!("{hour:02}:{minute:02}"),
            b'S' => format!("{second:02}"),
            b't' => "\t".to_owned(),
            b'T' | b'X' => format!("{hour:02}:{minute:02}:{second:02}"),
            b'u' => format!("{}", monday + 1),
            b'U' => format!("{:02}", (day_of_year + 7 - weekday) / 7),
            b'w' => format!("{weekday}"),
            b'W' => format!("{:02}", (day_of_year + 7 - monday) / 7),
            b'y' => format!("{:02}", year % 100),
            b'Y' => format!("{year}"),
            b'z' => "+0000".to_owned(),
            b'%' => "%".to_owned(),
            _ => return,
        };
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_date_writes_them() {
        // `LC_ALL=C date -u -d @N +FORM`
        let all = "%a|%A|%b|%B|%c|%C|%d|%D|%e|%F|%H|%I|%j|%k|%l|%m|%M|%p|%r|%R|%S|%T|%u|%U|%w|%W|%y|%Y|%z|%%";
        for (unix, expected) in TIMES {
            let made = String::from_utf8(format(all.as_bytes(), unix, "UTC")).unwrap();
            assert_eq!(made, expected, "{unix}");
        }
        let made =
            |form: &str, unix| String::from_utf8(format(form.as_bytes(), unix, "GMT")).unwrap();
        assert_eq!(made("%s %Z", 784_111_777), "784111777 GMT");
        assert_eq!(made("%Q%", 0), "%");
        assert_eq!(made("%Y", i64::MAX), "9999");
        assert_eq!(made("%Y", i64::MIN), "0");
        assert_eq!(made(&"%A".repeat(4000), 0).len(), VALUE_BYTES_MAX);
        let default = format(DEFAULT, 784_111_777, "GMT");
        assert_eq!(default, b"Sunday, 06-Nov-1994 08:49:37 GMT");
    }

    const TIMES: [(i64, &str); 11] = [
        (
            0,
            "Thu|Thursday|Jan|January|Thu Jan  1 00:00:00 1970|19|01|01/01/70| 1|1970-01-01|00|12|001| 0|12|01|00|AM|12:00:00 AM|00:00|00|00:00:00|4|00|4|00|70|1970|+0000|%",
        ),
        (
            784_111_777,
            "Sun|Sunday|Nov|November|Sun Nov  6 08:49:37 1994|19|06|11/06/94| 6|1994-11-06|08|08|310| 8| 8|11|49|AM|08:49:37 AM|08:49|37|08:49:37|7|45|0|44|94|1994|+0000|%",
        ),
        (
            951_782_399,
            "Mon|Monday|Feb|February|Mon Feb 28 23:59:59 2000|20|28|02/28/00|28|2000-02-28|23|11|059|23|11|02|59|PM|11:59:59 PM|23:59|59|23:59:59|1|09|1|09|00|2000|+0000|%",
        ),
        (
            951_782_400,
            "Tue|Tuesday|Feb|February|Tue Feb 29 00:00:00 2000|20|29|02/29/00|29|2000-02-29|00|12|060| 0|12|02|00|AM|12:00:00 AM|00:00|00|00:00:00|2|09|2|09|00|2000|+0000|%",
        ),
        (
            951_868_800,
            "Wed|Wednesday|Mar|March|Wed Mar  1 00:00:00 2000|20|01|03/01/00| 1|2000-03-01|00|12|061| 0|12|03|00|AM|12:00:00 AM|00:00|00|00:00:00|3|09|3|09|00|2000|+0000|%",
        ),
        (
            1_704_067_199,
            "Sun|Sunday|Dec|December|Sun Dec 31 23:59:59 2023|20|31|12/31/23|31|2023-12-31|23|11|365|23|11|12|59|PM|11:59:59 PM|23:59|59|23:59:59|7|53|0|52|23|2023|+0000|%",
        ),
        (
            1_704_067_200,
            "Mon|Monday|Jan|January|Mon Jan  1 00:00:00 2024|20|01|01/01/24| 1|2024-01-01|00|12|001| 0|12|01|00|AM|12:00:00 AM|00:00|00|00:00:00|1|00|1|01|24|2024|+0000|%",
        ),
        (
            1_735_689_599,
            "Tue|Tuesday|Dec|December|Tue Dec 31 23:59:59 2024|20|31|12/31/24|31|2024-12-31|23|11|366|23|11|12|59|PM|11:59:59 PM|23:59|59|23:59:59|2|52|2|53|24|2024|+0000|%",
        ),
        (
            4_102_444_800,
            "Fri|Friday|Jan|January|Fri Jan  1 00:00:00 2100|21|01|01/01/00| 1|2100-01-01|00|12|001| 0|12|01|00|AM|12:00:00 AM|00:00|00|00:00:00|5|00|5|00|00|2100|+0000|%",
        ),
        (
            -1,
            "Wed|Wednesday|Dec|December|Wed Dec 31 23:59:59 1969|19|31|12/31/69|31|1969-12-31|23|11|365|23|11|12|59|PM|11:59:59 PM|23:59|59|23:59:59|3|52|3|52|69|1969|+0000|%",
        ),
        (
            1_672_574_400,
            "Sun|Sunday|Jan|January|Sun Jan  1 12:00:00 2023|20|01|01/01/23| 1|2023-01-01|12|12|001|12|12|01|00|PM|12:00:00 PM|12:00|00|12:00:00|7|01|0|00|23|2023|+0000|%",
        ),
    ];
}

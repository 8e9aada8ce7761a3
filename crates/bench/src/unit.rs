//! The units of values, their print forms, and which of two values is better. Pure.

use serde::{Deserialize, Serialize};

/// The unit of a value; the name in raw.csv.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// A number of bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A number of bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Things per second: requests, events.
    #[serde(rename = "1/s")]
    PerSecond,
    /// A number of things.
    #[serde(rename = "1")]
    Count,
    /// A part of a whole, 0 to 100; CPUs may give more than 100.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// Less of time and memory is better, and more of speed; a number of things or a part of a whole
    /// says nothing by itself.
    #[must_use]
    pub fn better(self) -> Option<Better> {
        match self {
            Self::Nanoseconds | Self::Bytes => Some(Better::Less),
            Self::BytesPerSecond | Self::PerSecond => Some(Better::More),
            Self::Count | Self::Percent => None,
        }
    }

    /// A value for people: three significant digits and a prefix.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return NOTHING.to_owned();
        }
        const TIME: [(f64, &str); 4] = [(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")];
        const BYTES: [(f64, &str); 4] =
            [(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1024.0, " KiB"), (1.0, " B")];
        const COUNT: [(f64, &str); 4] = [(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];
        let (scale, suffix) = match self {
            Self::Nanoseconds => (&TIME, ""),
            Self::Bytes => (&BYTES, ""),
            Self::BytesPerSecond => (&BYTES, "/s"),
            Self::PerSecond => (&COUNT, "/s"),
            Self::Count => (&COUNT, ""),
            Self::Percent => return format!("{} %", digits(value)),
        };
        let (by, prefix) =
            scale.iter().find(|(by, _)| value.abs() >= *by).unwrap_or(&scale[scale.len() - 1]);
        format!("{}{prefix}{suffix}", digits(value / by))
    }
}

/// The text for a missing value.
pub(crate) const NOTHING: &str = "–";

/// Three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.001 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// The limit that a figure has to keep.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// The figure may be this or less.
    AtMost(f64),
    /// The figure may be this or more.
    AtLeast(f64),
}

/// The better of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The lesser.
    Less,
    /// The greater.
    More,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_prefix() {
        let cases = [
            (Unit::Nanoseconds, 12.34, "12.3 ns"),
            (Unit::Nanoseconds, 1_234_567.0, "1.23 ms"),
            (Unit::Nanoseconds, 0.0, "0.00 ns"),
            (Unit::Bytes, 1536.0, "1.50 KiB"),
            (Unit::BytesPerSecond, 2_147_483_648.0, "2.00 GiB/s"),
            (Unit::PerSecond, 12_345.0, "12.3 k/s"),
            (Unit::Count, 999.0, "999"),
            (Unit::Percent, 12.0, "12.0 %"),
            (Unit::Percent, f64::NAN, "–"),
        ];
        for (unit, value, want) in cases {
            assert_eq!(unit.show(value), want);
        }
    }
}

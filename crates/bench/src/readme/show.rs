//! The print formats of figures in README.md and docs/measurements.md.

use crate::unit::Unit;

/// The print format of a figure.
pub(super) type Show = fn(f64) -> String;

pub(super) fn thousands(value: f64) -> String {
    format!("{:.1}", value / 1e3)
}

pub(super) fn megabytes(value: f64) -> String {
    format!("{:.1}", value / 1e6)
}

pub(super) fn whole_megabytes(value: f64) -> String {
    format!("{:.0}", value / 1e6)
}

pub(super) fn microseconds(value: f64) -> String {
    format!("{:.1}", value / 1e3)
}

pub(super) fn whole_microseconds(value: f64) -> String {
    format!("{:.0}", value / 1e3)
}

pub(super) fn mebibytes(value: f64) -> String {
    format!("{:.1}", value / 1_048_576.0)
}

pub(super) fn precise_microseconds(value: f64) -> String {
    format!("{:.2}", value / 1e3)
}

pub(super) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

pub(super) fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

/// A size without needless digits: `8 KiB`.
pub(super) fn bytes(value: f64) -> String {
    Unit::Bytes.show(value).replace(".00", "").replace(".0 ", " ")
}

pub(super) fn milliseconds(value: f64) -> String {
    format!("{:.0}", value / 1e6)
}

pub(super) fn whole(value: f64) -> String {
    format!("{value:.0}")
}

pub(super) fn time(value: f64) -> String {
    Unit::Nanoseconds.show(value)
}

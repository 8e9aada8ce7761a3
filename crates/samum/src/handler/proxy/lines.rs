//! The lines of a head, taken out of their text once because they are looked at several times.

use http::Fields;

/// A line of a head: name and value.
pub(super) type Line<'a> = (&'a [u8], &'a [u8]);

/// The lines of a head, in their order.
pub(super) fn lines_of(fields: Fields<'_>) -> Vec<Line<'_>> {
    let mut lines = Vec::with_capacity(16);
    lines.extend(fields);
    lines
}

/// The values of all lines of a field.
pub(super) fn values<'a>(lines: &[Line<'a>], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    lines.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

//! The text of values that several tables have.

use core::time::Duration;
use std::path::Path;

use crate::value::{self, quoted};

/// The text of a path, which came from a string of TOML.
pub(super) fn path_text(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

pub(super) fn list_text<T: ToString>(values: &[T]) -> String {
    let all: Vec<_> = values.iter().map(|value| quoted(&value.to_string())).collect();
    format!("[{}]", all.join(", "))
}

pub(super) fn some_list_text<T: ToString>(values: &[T]) -> Option<String> {
    (!values.is_empty()).then(|| list_text(values))
}

pub(super) fn bytes_text(bytes: u64) -> String {
    quoted(&value::bytes_text(bytes))
}

pub(super) fn seconds_text(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// The text of whole seconds, as days if they are.
pub(super) fn days_text(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds % value::DAY {
        0 => quoted(&format!("{}d", seconds / value::DAY)),
        _ => seconds.to_string(),
    }
}

//! x
use crate::run::{Description, Series};
/// x
pub type Lines<'a> = Vec<(String, &'a Series)>;
/// x
pub fn of_test(
    _about: &Description,
    _lines: &Lines<'_>,
) -> Result<Vec<(String, String)>, crate::Error> {
    Ok(vec![])
}

//! x
use crate::{Error, Run};
use std::path::Path;
/// The page's name within a run's directory.
pub const PAGE: &str = "report.html";
/// x
pub fn write(run: &Run, dir: &Path) -> Result<(), Error> {
    crate::run::write(&dir.join("summary.md"), crate::summary::markdown(run).as_bytes())
}
/// x
pub fn page(_runs: &[Run]) -> Result<String, Error> {
    Ok(String::new())
}

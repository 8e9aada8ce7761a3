//! Arbitrary configuration files: what stands behind a NUL is the content of all files that the first one
//! includes. Checked: errors are few lines of visible
//! text, and what is accepted means the same after it was printed.

#![no_main]

use std::io;
use std::path::{Path, PathBuf};

use config::Secrets;
use config::file::{Environment, Errors, load};
use config::print::to_toml;
use libfuzzer_sys::fuzz_target;

/// A file at one path, and another one at every other path.
struct Files<'a>(&'a str, &'a str);

const FIRST: &str = "/etc/samum.toml";

impl Environment for Files<'_> {
    fn working_directory(&self) -> &Path {
        Path::new("/")
    }

    fn threads(&self) -> usize {
        1
    }

    fn canonical(&mut self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let text = if path == Path::new(FIRST) { self.0 } else { self.1 };
        if text.len() as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text.into()) }
    }

    fn list(&mut self, _directory: &Path) -> io::Result<Vec<String>> {
        Ok(["a.toml", "b.toml"].map(str::to_owned).into())
    }
}

fuzz_target!(|text: &str| {
    let (first, included) = text.split_once('\0').unwrap_or((text, ""));
    match load(Path::new(FIRST), &mut Files(first, included)) {
        Err(Errors(messages)) => {
            assert!((1..=51).contains(&messages.len()));
            for message in messages {
                assert!(!message.line.contains(char::is_control), "{message}");
                assert!(message.excerpt.is_none_or(|excerpt| excerpt.lines().count() == 2));
            }
        }
        Ok(mut loaded) => {
            // What was printed has the values, and no references to files.
            loaded.config.secrets = Secrets::default();
            let text = to_toml(&loaded.config);
            let again = load(Path::new(FIRST), &mut Files(&text, ""));
            assert_eq!(again.unwrap_or_else(|errors| panic!("{text}\n{errors}")).config, loaded.config);
        }
    }
});

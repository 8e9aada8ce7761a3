//! The names of the kernel's errors in messages.

use std::io;

/// An error inside a sentence: `permission denied`, without a capital and without the number.
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let mut text = text.split(" (os error").next().unwrap_or_default().to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_fits_into_a_sentence() {
        for (error, words) in [
            (io::Error::from_raw_os_error(2), "no such file or directory"),
            (io::Error::from_raw_os_error(5), "input/output error"),
            (io::Error::other("it is not UTF-8"), "it is not UTF-8"),
            (io::Error::other(""), ""),
            (io::Error::other("é"), "é"),
        ] {
            assert_eq!(super::words(&error), words);
        }
    }
}

//! Reads the files of redirects that routes name.

use core::fmt;
use std::io;
use std::path::Path;

use crate::regular_file::read_regular;
use config::Message;
use config::errno::words;
use config::redirect::{self, Redirects};

/// The reason why a file of redirects is not used.
#[derive(Debug)]
pub enum NoRedirects {
    /// The file cannot be read; the text is a sentence for the operator.
    Unreadable(String),
    /// The file has mistakes.
    Wrong(Vec<Message>),
}

impl fmt::Display for NoRedirects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => f.write_str(why),
            Self::Wrong(messages) => {
                f.write_str("the file of redirects has errors:")?;
                messages.iter().try_for_each(|message| write!(f, "\n{message}"))
            }
        }
    }
}

/// Reads a file of redirects.
///
/// # Errors
///
/// See [`NoRedirects`].
pub fn read_redirects(path: &Path) -> Result<Redirects, NoRedirects> {
    let read = || -> io::Result<String> {
        let max = redirect::FILE_BYTES_MAX;
        let bytes = read_regular(path, max).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                io::Error::other(format!("it is longer than {max} bytes"))
            }
            _ => error,
        })?;
        String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
    };
    let text = read().map_err(|error| {
        NoRedirects::Unreadable(format!("cannot read {}: {}", path.display(), words(&error)))
    })?;
    Redirects::parse(&text).map_err(|mistakes| {
        let places = mistakes.first.into_iter().map(|mistake| (mistake.place, mistake.text));
        NoRedirects::Wrong(Message::of_file(path, text.into(), places, mistakes.more))
    })
}

//! Decides when files are read again. Pure.

/// Files that are read together, and are looked at from time to time. `M` is the marks of all of them at one look.
///
/// A change that lasts for one look more is complete: a program that writes two files, or one file in parts, does so
/// without a pause.
#[derive(Debug)]
pub(super) struct Watch<M> {
    /// The marks with which the files were read last.
    read: M,
    /// The marks of the last look.
    seen: M,
}

impl<M: Clone + PartialEq> Watch<M> {
    /// The files were read with these marks.
    pub(super) fn new(read: M) -> Self {
        Self { seen: read.clone(), read }
    }

    /// Takes the marks of a look. Returns true if the files are to be read now. If they cannot be used, they are not read
    /// again before they change again.
    pub(super) fn handle(&mut self, look: M) -> bool {
        let has_settled = look == self.seen;
        let is_due = has_settled && look != self.read;
        if is_due {
            self.read.clone_from(&look);
        }
        self.seen = look;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks at which files are read, of looks with these marks.
    fn reads(looks: &str) -> String {
        let mut watch = Watch::new('a');
        looks.chars().map(|look| if watch.handle(look) { look } else { '.' }).collect()
    }

    #[test]
    fn files_are_read_once_for_each_change_when_they_have_settled() {
        for (looks, expected) in [
            ("aaaa", "...."),
            ("abbbb", "..b.."),
            // Still being written.
            ("bcdd", "...d"),
            // Back before it was noticed, or before it had settled.
            ("abaa", "...."),
            // Back to the first ones, which the server does not have any more.
            ("bbaab", ".b.a."),
            // Two changes.
            ("bbbcccb", ".b..c.."),
        ] {
            assert_eq!(reads(looks), expected, "{looks}");
        }
    }
}

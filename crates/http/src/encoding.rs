//! The choice among the stored encodings of a file.
//!
//! Reading list: RFC 9110 §8.4.1, §12.5.3; RFC 7932 (br), RFC 8878 (zstd).

use crate::bytes;

/// An encoding in which a file may be stored beside the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Coding {
    /// Brotli
    Br,
    /// Zstandard
    Zstd,
    /// gzip, which clients may also call `x-gzip`
    Gzip,
}

/// A set of encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codings(u8);

impl Coding {
    /// All codings, in the order of preference for a client without one: by the size of the result,
    /// because these files are compressed once and ahead of time.
    pub const PREFERENCE: [Self; 3] = [Self::Br, Self::Zstd, Self::Gzip];

    /// The name for `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    fn of_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::PREFERENCE
            .into_iter()
            .find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

impl Codings {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set of all codings.
    pub const ALL: Self = Self::NONE.with(Coding::Br).with(Coding::Zstd).with(Coding::Gzip);

    /// The set and one more.
    #[must_use]
    pub const fn with(self, coding: Coding) -> Self {
        Self(self.0 | 1 << coding as u8)
    }

    /// The set without one.
    #[must_use]
    pub const fn without(self, coding: Coding) -> Self {
        Self(self.0 & !(1 << coding as u8))
    }

    /// Returns whether a coding is in the set.
    pub const fn contains(self, coding: Coding) -> bool {
        self.0 & 1 << coding as u8 != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Chooses among the `available` encodings by the lines of `Accept-Encoding`; `None` is the file as
/// it is.
///
/// The coding of the highest quality wins, in the order of [`Coding::PREFERENCE`] at equal quality;
/// `*` stands for all that are not named. The file as it is wins only if it is named with a higher
/// quality than any available coding. Without the field nothing is encoded. Malformed elements are
/// passed over.
///
/// If the client refuses all of them, it still gets the file as it is. RFC 9110 §12.5.3 leaves the
/// choice between that and a 406, and a 406 helps no client.
pub fn choose<'a>(lines: impl Iterator<Item = &'a [u8]>, available: Codings) -> Option<Coding> {
    if available.is_empty() {
        return None;
    }
    // Qualities in thousandths, by `Coding as u8`.
    let mut named = [None; Coding::PREFERENCE.len()];
    let mut others = 0;
    let mut identity = 0;
    for (name, quality) in lines.flat_map(bytes::list).filter_map(bytes::weighted) {
        if let Some(coding) = Coding::of_name(name) {
            // `gzip` and `x-gzip` are one coding: the better of the two counts.
            let slot = &mut named[coding as usize];
            *slot = Some(slot.map_or(quality, |known: u16| known.max(quality)));
        } else if name == b"*" {
            others = quality;
        } else if name.eq_ignore_ascii_case(b"identity") {
            identity = quality;
        }
    }
    let quality_of = |coding: Coding| named[coding as usize].unwrap_or(others);
    let best = Coding::PREFERENCE
        .into_iter()
        .filter(|&coding| available.contains(coding))
        // The first of equals: max_by_key would choose the last.
        .reduce(|best, coding| if quality_of(coding) > quality_of(best) { coding } else { best })?;
    (quality_of(best) > 0 && quality_of(best) >= identity).then_some(best)
}

const _: () = {
    let mut place = 0;
    while place < Coding::PREFERENCE.len() {
        assert!(Coding::PREFERENCE[place] as usize == place);
        place += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    fn choose_of(lines: &[&str], available: Codings) -> Option<Coding> {
        choose(lines.iter().map(|line| line.as_bytes()), available)
    }

    #[test]
    fn rfc9110_12_5_3_the_best_available_coding_is_chosen() {
        use Coding::{Br, Gzip, Zstd};
        for (line, expected) in [
            ("gzip, deflate, br, zstd", Some(Br)),
            ("gzip, deflate", Some(Gzip)),
            ("zstd, gzip", Some(Zstd)),
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip;q=0, x-gzip", Some(Gzip)),
            ("compress, gzip", Some(Gzip)),
            ("br;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("br;q=0.8, gzip;Q=0.8", Some(Br)),
            ("br;q=0, gzip", Some(Gzip)),
            ("br;q=0, *", Some(Zstd)),
            ("*", Some(Br)),
            ("*;q=0.1, zstd;q=0.2", Some(Zstd)),
            ("*;q=0", None),
            ("gzip;q=0", None),
            ("identity", None),
            ("identity;q=1, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("identity;q=0.5, *;q=0", None),
            ("identity;q=0", None),
            ("identity;q=0, gzip", Some(Gzip)),
            ("gzip;q=2", None),
            ("gzip;q=", None),
            ("gzip; q=0.5; x=y", Some(Gzip)),
            ("br;q=1.1, gzip", Some(Gzip)),
            ("", None),
            (",,gzip,", Some(Gzip)),
            ("gzipp, gzi", None),
        ] {
            assert_eq!(choose_of(&[line], Codings::ALL), expected, "{line}");
        }
    }

    #[test]
    fn without_the_field_nothing_is_encoded() {
        assert_eq!(choose_of(&[], Codings::ALL), None);
    }

    #[test]
    fn several_lines_are_one_list() {
        assert_eq!(choose_of(&["gzip;q=0.5", "br;q=0.1"], Codings::ALL), Some(Coding::Gzip));
    }

    #[test]
    fn only_what_is_available_is_chosen() {
        let gzip = Codings::NONE.with(Coding::Gzip);
        assert_eq!(choose_of(&["br, gzip;q=0.1"], gzip), Some(Coding::Gzip));
        assert_eq!(choose_of(&["br"], gzip), None);
        assert_eq!(choose_of(&["*"], Codings::NONE), None);
        assert_eq!(choose_of(&["*"], Codings::ALL.without(Coding::Br)), Some(Coding::Zstd));
    }

    #[test]
    fn what_is_refused_altogether_is_sent_as_it_is() {
        assert_eq!(choose_of(&["identity;q=0, gzip;q=0"], Codings::ALL.without(Coding::Br)), None);
    }
}

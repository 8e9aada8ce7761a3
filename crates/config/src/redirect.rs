//! Finds the target of a redirect: by the rules of routes, and by the files of redirects.
//!
//! This module makes no system call.

use core::ops::Range;

use http::{Status, path};

/// The maximum number of lines of a file of redirects, without empty lines and comments.
const LINES_MAX: usize = 1_000_000;
/// The maximum length of a file of redirects.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The maximum length of a line.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// The maximum of mistakes in a file that are reported; further ones are counted.
const MISTAKES_MAX: usize = 16;
/// The status of a line that has none.
const DEFAULT_STATUS: u16 = 301;

/// A piece of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Capture(usize),
    /// A dollar that is followed by neither a digit nor another dollar.
    Lost,
}

/// Splits a target into its pieces.
fn pieces(mut target: &str) -> impl Iterator<Item = Piece<'_>> {
    core::iter::from_fn(move || {
        let Some(rest) = target.strip_prefix('$') else {
            let end = target.find('$').unwrap_or(target.len());
            let (text, rest) = target.split_at(end);
            target = rest;
            return (!text.is_empty()).then_some(Piece::Text(text));
        };
        let (first, behind) = rest.split_at_checked(1).unwrap_or(("", rest));
        match first.as_bytes() {
            [digit @ b'0'..=b'9'] => {
                target = behind;
                Some(Piece::Capture(usize::from(digit - b'0')))
            }
            [b'$'] => {
                target = behind;
                Some(Piece::Text(first))
            }
            _ => {
                target = rest;
                Some(Piece::Lost)
            }
        }
    })
}

/// Checks the target of a redirect that has the captures up to `$captures_max`.
///
/// The client cannot choose the host: a target is a path, or a URL with a host of its own.
///
/// # Errors
///
/// A sentence for the operator.
pub fn check_target(target: &str, captures_max: usize) -> Result<(), String> {
    check(target, captures_max, "a capture").map_err(|what| format!("the target {target:?} {what}"))
}

/// Checks a target; the error continues a sentence about the target. `capture`: the name of a capture in it.
fn check(target: &str, captures_max: usize, capture: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(what.to_owned());
    let scheme = ["http://", "https://"].into_iter().find(|scheme| target.starts_with(scheme));
    let path = match scheme {
        Some(scheme) => {
            let (host, path) = host_and_path(&target[scheme.len()..]);
            if host.is_empty() {
                return wrong("has no host");
            }
            if host.contains('$') {
                return wrong("takes its host from the request");
            }
            path
        }
        None if target.starts_with('/') => target,
        None => return wrong("is neither a path nor a URL with http:// or https://"),
    };
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong("has a character that is not ASCII, or a space: encode it, as in %20");
    }
    let (before, fragment) = path.split_once('#').unwrap_or((path, ""));
    if before.split('?').next().is_some_and(|path| path.contains("//")) {
        return wrong("has an empty name in its path");
    }
    if fragment.contains('$') {
        return wrong(&format!("has {capture} behind its #"));
    }
    for piece in pieces(target) {
        match piece {
            Piece::Lost => return wrong("has a $ without a digit; write %24 for the character"),
            Piece::Capture(number) if number > captures_max => {
                return wrong(&format!("has ${number}, but the pattern has {captures_max} stars"));
            }
            Piece::Capture(_) | Piece::Text(_) => {}
        }
    }
    Ok(())
}

/// Splits a URL after its scheme.
fn host_and_path(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// Makes the value of `Location`. The query of the request is kept, unless the target has one.
///
/// Captures are encoded as segments of a path: so no capture ends the path, and none makes a path that begins with two
/// slashes, which a browser would mistake for another host.
pub fn expand(target: &str, captures: &[&[u8]], query: Option<&[u8]>) -> Vec<u8> {
    let end = target.find('#').unwrap_or(target.len());
    let (target, fragment) = target.split_at(end);
    let mut out = Vec::with_capacity(target.len() + 64);
    let mut follows_capture = false;
    for piece in pieces(target) {
        match piece {
            Piece::Text(text) => {
                let is_double = follows_capture && out.ends_with(b"/");
                let text = if is_double { text.strip_prefix('/').unwrap_or(text) } else { text };
                out.extend_from_slice(text.as_bytes());
            }
            Piece::Capture(number) => {
                let capture = captures.get(number).copied().unwrap_or_default();
                if out.contains(&b'?') {
                    encode_in_query(capture, &mut out);
                } else {
                    path::encode_location(capture, &mut out);
                }
                follows_capture = true;
            }
            Piece::Lost => {}
        }
    }
    if let Some(query) = query.filter(|_| !target.contains('?')) {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(fragment.as_bytes());
    out
}

/// Appends a capture to a query. There, other than in a path, `&` divides parameters, for many programs `;` does, too, and
/// `+` means a space.
fn encode_in_query(capture: &[u8], out: &mut Vec<u8>) {
    let mut encoded = Vec::with_capacity(capture.len());
    path::encode_location(capture, &mut encoded);
    for byte in encoded {
        match byte {
            b'&' => out.extend_from_slice(b"%26"),
            b'+' => out.extend_from_slice(b"%2B"),
            b';' => out.extend_from_slice(b"%3B"),
            _ => out.push(byte),
        }
    }
}

/// Returns whether a location leads back to the path that was requested, which is in normal form.
pub fn leads_to(location: &[u8], path: &[u8]) -> bool {
    let end = location.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let mut name = Vec::with_capacity(location.len());
    let normal = path::normalize_rooted(&location[..end.unwrap_or(location.len())], &mut name);
    normal.is_ok() && name == path
}

/// The redirects of a file, by path.
#[derive(Debug, PartialEq, Eq)]
pub struct Redirects {
    /// The paths and targets of all lines, one after the other.
    text: Vec<u8>,
    /// In the order of their paths; among equal paths the line for the paths below is last.
    lines: Vec<RedirectLine>,
}

/// A line of a file of redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RedirectLine {
    /// The beginning of its path in the text.
    at: u32,
    path_len: u16,
    /// The length of the target, which is after the path.
    target_len: u16,
    /// The position of its path in the file.
    place: u32,
    status: u16,
    /// True if it has all paths that begin with its own.
    is_wild: bool,
}

/// A mistake in a file of redirects.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the file that are wrong.
    pub place: Range<usize>,
    /// A sentence for the operator.
    pub text: String,
}

/// The mistakes in a file of redirects, in the order of their positions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// The first ones, at most 16.
    pub first: Vec<Mistake>,
    /// The number of the others.
    pub more: usize,
}

impl Mistakes {
    fn add(&mut self, place: Range<usize>, text: impl FnOnce() -> String) {
        if self.first.len() < MISTAKES_MAX {
            self.first.push(Mistake { place, text: text() });
        } else {
            self.more += 1;
        }
    }
}

/// A redirect for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedirectMatch<'a> {
    /// A target in which `$1` stands for the rest of the path.
    pub target: &'a str,
    /// The status of the response: 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The rest of the path after the path of the line.
    pub rest: &'a [u8],
}

impl Redirects {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// All mistakes.
    pub fn parse(text: &str) -> Result<Self, Mistakes> {
        let mut made = Self { text: Vec::new(), lines: Vec::new() };
        let (mut mistakes, mut behind) = (Mistakes::default(), 0);
        for whole in text.split_inclusive('\n') {
            let start = behind + (whole.len() - whole.trim_start().len());
            behind += whole.len();
            let line = whole.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if made.lines.len() == LINES_MAX {
                let text = || format!("a file has at most {LINES_MAX} redirects");
                mistakes.add(start..start + line.len(), text);
                break;
            }
            if let Err((place, text)) = made.add(line, start) {
                mistakes.add(start + place.start..start + place.end, || text);
            }
        }
        let paths = &made.text;
        made.lines.sort_by(|one, other| one.key(paths).cmp(&other.key(paths)));
        for pair in made.lines.windows(2) {
            if pair[0].key(paths) == pair[1].key(paths) {
                let (first, again) = (pair[0].place as usize, pair[1].place as usize);
                let rest = &text[again..];
                let end = again + rest.find(|char: char| char.is_ascii_whitespace()).unwrap_or(0);
                mistakes.add(again..end, || {
                    let line = text[..first].bytes().filter(|byte| *byte == b'\n').count() + 1;
                    format!("its path is that of line {line}")
                });
            }
        }
        mistakes.first.sort_by_key(|mistake| mistake.place.start);
        if mistakes.first.is_empty() { Ok(made) } else { Err(mistakes) }
    }

    /// Adds a line, which begins at this position of the file. An error has its position in the line.
    fn add(&mut self, line: &str, place: usize) -> Result<(), (Range<usize>, String)> {
        let all = 0..line.len();
        if line.len() > LINE_BYTES_MAX {
            return Err((all, format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        let mut words = words(line);
        let (Some((from_at, from)), Some((to_at, to))) = (words.next(), words.next()) else {
            return Err((all, "expected a path, a target, and perhaps a status".to_owned()));
        };
        let wrong = |at: usize, word: &str, text: String| (at..at + word.len(), text);
        let status = match words.next() {
            None => DEFAULT_STATUS,
            Some((at, word)) => {
                let status = word.parse().ok().and_then(status).map(Status::code);
                let text = "expected the status 301, 302, 303, 307 or 308, not";
                status.ok_or_else(|| wrong(at, word, format!("{text} {word:?}")))?
            }
        };
        if let Some((at, word)) = words.next() {
            return Err(wrong(at, word, format!("{word:?} follows the status")));
        }
        let (wrong_from, wrong_to) =
            (|text| wrong(from_at, from, text), |text| wrong(to_at, to, text));
        let (from, is_wild) = match from.strip_suffix('*') {
            Some(before) if before.ends_with('/') => (before, true),
            _ => (from, false),
        };
        if from.contains(['?', '#', '*']) {
            return Err(wrong_from("expected a path, or one that ends with `/*`".to_owned()));
        }
        if !is_wild && to.contains(":splat") {
            let text = "`:splat` stands for what is behind a path that ends with `/*`";
            return Err(wrong_to(text.to_owned()));
        }
        let mut path = Vec::new();
        path::normalize_rooted(from.as_bytes(), &mut path)
            .map_err(|error| wrong_from(format!("{from:?} is {error}")))?;
        let target = to.replace('$', "$$").replace(":splat", "$1");
        check(&target, 1, "`:splat` or a `$`")
            .map_err(|what| wrong_to(format!("the target {to:?} {what}")))?;
        let sample: &[u8] = if is_wild { b"sample" } else { b"" };
        let location = expand(&target, &[b"", sample], None);
        if leads_to(&location, &[&path[..], sample].concat()) {
            return Err(wrong_to("the target leads to the path of its line".to_owned()));
        }
        let too_long = |_| (all.clone(), "the line is too long".to_owned());
        self.lines.push(RedirectLine {
            at: u32::try_from(self.text.len()).map_err(too_long)?,
            path_len: u16::try_from(path.len()).map_err(too_long)?,
            target_len: u16::try_from(target.len()).map_err(too_long)?,
            place: u32::try_from(place).map_err(too_long)?,
            status,
            is_wild,
        });
        self.text.extend_from_slice(&path);
        self.text.extend_from_slice(target.as_bytes());
        Ok(())
    }

    /// Finds the redirect of a path: the line with the path itself, or else the line with the longest path above it.
    pub fn find<'a>(&'a self, path: &'a [u8]) -> Option<RedirectMatch<'a>> {
        if let Some(found) = self.line(path, false) {
            return Some(self.found(found, b""));
        }
        let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| path.split_at(at + 1)).find_map(|(above, rest)| {
            let line = self.line(above, true)?;
            Some(self.found(line, rest))
        })
    }

    /// Returns whether a line has the path itself.
    pub fn lists(&self, path: &[u8]) -> bool {
        self.line(path, false).is_some()
    }

    fn line(&self, path: &[u8], is_wild: bool) -> Option<&RedirectLine> {
        let place = self.lines.binary_search_by(|line| line.key(&self.text).cmp(&(path, is_wild)));
        place.ok().map(|place| &self.lines[place])
    }

    fn found<'a>(&'a self, line: &RedirectLine, rest: &'a [u8]) -> RedirectMatch<'a> {
        let start = line.at as usize + usize::from(line.path_len);
        let target = &self.text[start..start + usize::from(line.target_len)];
        let target = str::from_utf8(target).expect("it was checked to be ASCII");
        RedirectMatch { target, status: line.status, rest }
    }
}

impl RedirectLine {
    fn key<'a>(&self, text: &'a [u8]) -> (&'a [u8], bool) {
        let start = self.at as usize;
        (&text[start..start + usize::from(self.path_len)], self.is_wild)
    }
}

/// The words of a line, each with its position in the line.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    line.split_ascii_whitespace().map(move |word| {
        let rest = &line[at..];
        let start = at + (rest.len() - rest.trim_ascii_start().len());
        at = start + word.len();
        (start, word)
    })
}

/// The status of a redirect with this code, if there is one.
pub fn status(code: u16) -> Option<Status> {
    matches!(code, 301 | 302 | 303 | 307 | 308).then(|| Status::from_code(code)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(target: &str, captures: &[&str], query: Option<&str>) -> String {
        let captures: Vec<_> = captures.iter().map(|capture| capture.as_bytes()).collect();
        String::from_utf8(expand(target, &captures, query.map(str::as_bytes))).unwrap()
    }

    #[test]
    fn targets_have_captures_and_the_query_of_the_request() {
        for (target, captures, query, expected) in [
            ("/new/", &[][..], None, "/new/"),
            ("/new/$0", &["a/b"], None, "/new/a/b"),
            ("/new/$0", &["ä b?"], None, "/new/%C3%A4%20b%3F"),
            ("/$2/$1", &["", "a", "b"], Some("q=1"), "/b/a?q=1"),
            ("/new?a=$1", &["", "b"], Some("q=1"), "/new?a=b"),
            ("/new#top", &[], Some("q=1"), "/new?q=1#top"),
            (
                "/$1?a=$1&b=$1",
                &["", "x+y;z&?"],
                None,
                "/x+y;z&%3F?a=x%2By%3Bz%26%3F&b=x%2By%3Bz%26%3F",
            ),
            // The reserved characters that a segment may have (RFC 3986 §3.3), and others that end it.
            ("/n/$1", &["", "a:b@c!$&'()*+,;=-._~"], None, "/n/a:b@c!$&'()*+,;=-._~"),
            ("/n/$1", &["", "a?b#c%d\r\nE: f"], None, "/n/a%3Fb%23c%25d%0D%0AE:%20f"),
            ("/n/$1", &["", "[a]{b}|\\^`\"<>"], None, "/n/%5Ba%5D%7Bb%7D%7C%5C%5E%60%22%3C%3E"),
            ("/n?to=$1", &["", "a:b'c"], None, "/n?to=a:b'c"),
            ("https://example.org/$0", &["a"], None, "https://example.org/a"),
            ("/cost$$1", &["", "x"], None, "/cost$1"),
        ] {
            assert_eq!(check_target(target, 9), Ok(()), "{target}");
            assert_eq!(location(target, captures, query), expected, "{target}");
        }
    }

    #[test]
    fn no_capture_leads_to_another_host() {
        let hostile = [
            "/evil.org",
            "//evil.org",
            "\\evil.org",
            "/\\evil.org",
            "evil.org",
            "",
            "/",
            ":",
            "@evil.org",
            "\t/evil.org",
        ];
        for target in ["/$1", "/$1/$2", "/$1$2", "/$1/$1/$2", "/$0$1"] {
            assert_eq!(check_target(target, 2), Ok(()), "{target}");
            for one in hostile {
                for other in hostile {
                    let made = location(target, &["", one, other], None);
                    assert!(made.starts_with('/'), "{target} {one} {other}: {made}");
                    assert!(!made.starts_with("//"), "{target} {one} {other}: {made}");
                    assert!(!made.starts_with("/\\"), "{target} {one} {other}: {made}");
                }
            }
        }
    }

    #[test]
    fn targets_are_checked() {
        for bad in [
            "",
            "new",
            "$0",
            "//host/",
            "/a//b",
            "ftp://host/",
            "https://",
            "https:///a",
            "https://$1/",
            "https://host$1",
            "https://host:$1/",
            "https://$$/a$",
            "/$",
            "/$x",
            "/$3",
            "/a b",
            "/ä",
            "/a#$1",
            "/a\n",
        ] {
            assert!(check_target(bad, 2).is_err(), "{bad}");
        }
        assert!(check_target("https://host", 0).is_ok());
        assert!(check_target("https://host?a=$0", 0).is_ok());
    }

    #[test]
    fn a_location_is_compared_with_the_path_that_was_requested() {
        assert!(leads_to(b"/a%20b?q", b"/a b"));
        assert!(leads_to(b"/a#b", b"/a"));
        assert!(leads_to(b"/a:b&c%27", b"/a:b&c'"), "however its characters are written");
        assert!(leads_to(b"/b/../a%3ab", b"/a:b"));
        assert!(!leads_to(b"/a/", b"/a"));
        assert!(!leads_to(b"https://example.org/a", b"/a"));
    }

    #[test]
    fn a_file_is_searched_for_the_path_and_then_for_those_above_it() {
        let text = "# old pages\n\n/a /b\n  /c   https://example.org/c  302 # no, three words\n";
        let mistake = Mistake { place: 53..54, text: "\"#\" follows the status".to_owned() };
        assert_eq!(&text[mistake.place.clone()], "#");
        let mistakes = Mistakes { first: vec![mistake], more: 0 };
        assert_eq!(Redirects::parse(text), Err(mistakes));
        let file = Redirects::parse(
            "# old pages\n\n/a /b\n/c https://example.org/c 302\n/blog/* /news/:splat 308\n\
             /blog/2020/* /archive/:splat/$1\n/blog/2020/x /x 307\n/caf%C3%A9/ /coffee\n/ /home 303\n",
        )
        .unwrap();
        for (path, expected) in [
            ("/a", Some((301, "/b"))),
            ("/a/", None),
            ("/b", None),
            ("/c", Some((302, "https://example.org/c"))),
            ("/blog", None),
            ("/blog/", Some((308, "/news/"))),
            ("/blog/a/b", Some((308, "/news/a/b"))),
            ("/blog/2020/a", Some((301, "/archive/a/$1"))),
            ("/blog/2020/x", Some((307, "/x"))),
            ("/blog/2020/x/y", Some((301, "/archive/x/y/$1"))),
            ("/café/", Some((301, "/coffee"))),
            ("/", Some((303, "/home"))),
        ] {
            let found = file.find(path.as_bytes()).map(|found| {
                let made = expand(found.target, &[b"", found.rest], None);
                (found.status, String::from_utf8(made).unwrap())
            });
            let expected = expected.map(|(status, to)| (status, to.to_owned()));
            assert_eq!(found, expected, "{path}");
        }
    }

    /// The mistakes of a file: the faulty text, and the reason.
    fn mistakes(text: &str) -> Vec<(&str, String)> {
        let mistakes = Redirects::parse(text).unwrap_err();
        mistakes.first.into_iter().map(|it| (&text[it.place], it.text)).collect()
    }

    #[test]
    fn mistakes_have_their_place_and_the_words_of_the_file() {
        for (text, place, expected) in [
            ("/a", "/a", "expected a path, a target"),
            ("\n# x\n /a /b 200", "200", "expected the status 301"),
            ("/a /b 301 !", "!", "\"!\" follows"),
            ("/a /b\n/c /d\n\t/a  /e", "/a", "its path is that of line 1"),
            ("\n/a/* /b\n/a/* /c", "/a/*", "its path is that of line 2"),
            ("a /b", "a", "\"a\" is a path that does not begin with a slash"),
            ("/a*b /c", "/a*b", "expected a path"),
            ("/a?b=c /c", "/a?b=c", "expected a path"),
            ("/a /b/:splat", "/b/:splat", "`:splat` stands for"),
            ("/a //b", "//b", "the target \"//b\" has an empty name"),
            ("/a/* b/:splat", "b/:splat", "the target \"b/:splat\" is neither a path nor"),
            (
                "/a/* /b#:splat",
                "/b#:splat",
                "the target \"/b#:splat\" has `:splat` or a `$` behind",
            ),
            ("/a/* /ä$:splat", "/ä$:splat", "the target \"/ä$:splat\" has a character"),
            ("/a /a", "/a", "the target leads to the path of its line"),
            ("/a/* /a/:splat", "/a/:splat", "the target leads to the path of its line"),
        ] {
            let [(at, error)] = &mistakes(text)[..] else { panic!("{text:?}") };
            assert!(*at == place && error.starts_with(expected), "{text:?}: {at:?} {error}");
        }
    }

    #[test]
    fn all_mistakes_of_a_file_are_told_up_to_a_limit() {
        let found = mistakes("/a /b\n/c\r\n/a /d\n/e /f 200\n");
        let places: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, ["/c", "/a", "200"]);
        let mistakes = Redirects::parse(&"wrong\n".repeat(MISTAKES_MAX + 3)).unwrap_err();
        assert_eq!((mistakes.first.len(), mistakes.more), (MISTAKES_MAX, 3));
    }

    #[test]
    fn a_million_lines_are_read_and_one_more_is_an_error() {
        use core::fmt::Write as _;

        let mut text = String::new();
        for number in 0..LINES_MAX {
            writeln!(text, "/old/{number} /new/{number}").unwrap();
        }
        let file = Redirects::parse(&text).unwrap();
        assert_eq!(file.find(b"/old/777777").unwrap().target, "/new/777777");
        assert_eq!(file.find(b"/old/x"), None);
        text.push_str("/one /more\n");
        let [(line, error)] = &mistakes(&text)[..] else { panic!("one is too many") };
        assert!(*line == "/one /more" && error.starts_with("a file has at most"), "{error}");
    }
}

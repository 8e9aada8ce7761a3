//! Directory listings in HTML and JSON, made piece by piece while they are sent.

use std::rc::Rc;

use http::{date, path};
use ring::{Entry, FileKind};
use sendfile::Piece;

use super::{BodySink, Produced, Producer};
use config::text::escape_json;
use content::{Entries, Resource};

/// The minimum length of a piece, except the last.
const PIECE_BYTES: usize = 16 * 1024;

/// A listing as the body of a response.
#[derive(Debug)]
pub(crate) struct ListingProducer {
    /// The directory, whose entries stay charged while they are sent.
    resource: Rc<Resource>,
    pages: Pages,
}

/// The entries of a directory as HTML or JSON, made piece by piece.
#[derive(Debug)]
struct Pages {
    listing: Rc<Entries>,
    title: String,
    is_root: bool,
    json: bool,
    /// The index of the next entry.
    next: usize,
    begun: bool,
    ended: bool,
}

impl ListingProducer {
    /// Makes the listing of a directory. Its path is `prefix` and the path of the resource.
    pub(crate) fn new(
        prefix: &[u8],
        resource: &Rc<Resource>,
        listing: &Rc<Entries>,
        json: bool,
    ) -> Self {
        let path = [prefix, &resource.path].concat();
        let pages = Pages::new(Rc::clone(listing), &path, json);
        Self { resource: Rc::clone(resource), pages }
    }

    pub(crate) const fn content_type(&self) -> &'static str {
        if self.pages.json { "application/json" } else { "text/html; charset=utf-8" }
    }
}

impl Producer for ListingProducer {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut made = 0;
        while made < room {
            let Some(piece) = self.pages.next_piece() else { return Produced::Ended };
            made += piece.len() as u64;
            sink.push(Piece::Bytes(piece));
        }
        Produced::More
    }

    fn weight(&self) -> u64 {
        self.resource.memory as u64
    }
}

impl Pages {
    /// Begins the listing; `path` is the path of the directory with a slash at both ends.
    fn new(listing: Rc<Entries>, path: &[u8], json: bool) -> Self {
        let title = String::from_utf8_lossy(path).into_owned();
        Self { listing, title, is_root: path == b"/", json, next: 0, begun: false, ended: false }
    }

    /// Makes the next piece; `None` after the last. No piece is empty.
    fn next_piece(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let mut out = Vec::with_capacity(PIECE_BYTES + 1024);
        if !core::mem::replace(&mut self.begun, true) {
            self.write_head(&mut out);
        }
        while out.len() < PIECE_BYTES {
            let Some(entry) = self.listing.entries.get(self.next) else {
                self.write_end(&mut out);
                self.ended = true;
                break;
            };
            if self.json {
                let count = self.listing.entries.len();
                let cut_at = (self.listing.truncated && self.next + 1 == count).then_some(count);
                write_json(entry, self.next == 0, cut_at, &mut out);
            } else {
                write_row(entry, &mut out);
            }
            self.next += 1;
        }
        Some(out)
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        if self.json {
            out.push(b'[');
            return;
        }
        let title = escape_html(&self.title);
        out.extend_from_slice(
            format!(
                "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\">\
                 <title>Index of {title}</title><style>{STYLE}</style></head>\n\
                 <body><h1>Index of {title}</h1><table>\n\
                 <thead><tr><th>Name<th>Size<th>Modified</tr></thead><tbody>\n"
            )
            .as_bytes(),
        );
        if !self.is_root {
            out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td><td></tr>\n");
        }
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        if self.json {
            out.extend_from_slice(b"\n]\n");
            return;
        }
        out.extend_from_slice(b"</tbody></table>");
        if self.listing.truncated {
            let count = self.listing.entries.len();
            out.extend_from_slice(format!("<p>Only {count} of the entries are shown.").as_bytes());
        }
        out.extend_from_slice(b"</body></html>\n");
    }
}

const STYLE: &str = ":root{color-scheme:light dark}\
    body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}table{border-collapse:collapse;width:100%}\
    th{text-align:left}td,th{padding:.15rem .5rem}\
    td:nth-child(2),th:nth-child(2){text-align:right;font-variant-numeric:tabular-nums}\
    a{text-decoration:none}a:hover{text-decoration:underline}";

fn write_row(entry: &Entry, out: &mut Vec<u8>) {
    let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
    let name = escape_html(&String::from_utf8_lossy(&entry.name));
    let href = escape_html(&href(entry));
    let size =
        if entry.kind == FileKind::Regular { entry.size.to_string() } else { "–".to_owned() };
    let modified = date::format(entry.mtime);
    let modified = String::from_utf8_lossy(&modified);
    out.extend_from_slice(
        format!("<tr><td><a href=\"{href}\">{name}{slash}</a><td>{size}<td>{modified}</tr>\n")
            .as_bytes(),
    );
}

/// The relative reference from a directory to an entry. It keeps all bytes of the name, also bytes
/// that are not UTF-8.
fn href(entry: &Entry) -> String {
    // The leading "./" keeps a colon in the name from looking like the end of a URL's scheme.
    let mut href = b"./".to_vec();
    // The name is encoded on its own, because `encode` merges slashes with the end of its output.
    let mut name = Vec::with_capacity(entry.name.len());
    path::encode(&entry.name, &mut name);
    href.extend_from_slice(&name);
    if entry.kind == FileKind::Directory {
        href.push(b'/');
    }
    String::from_utf8_lossy(&href).into_owned()
}

/// Writes an entry as JSON. `cut_at` is the number of entries, for the last entry of a listing that
/// was cut.
fn write_json(entry: &Entry, first: bool, cut_at: Option<usize>, out: &mut Vec<u8>) {
    let comma = if first { "" } else { "," };
    let name = escape_json(&String::from_utf8_lossy(&entry.name));
    let kind = match entry.kind {
        FileKind::Directory => "directory",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    };
    let modified = date::format(entry.mtime);
    let modified = String::from_utf8_lossy(&modified);
    // The mark is a member of the last entry, because readers skip unknown members, and a further
    // entry would be wrong.
    let cut =
        cut_at.map_or(String::new(), |count| format!(",\"truncated\":true,\"shown\":{count}"));
    // The reference is percent-encoded, so it needs no escaping.
    let href = href(entry);
    out.extend_from_slice(
        format!(
            "{comma}\n{{\"name\":\"{name}\",\"type\":\"{kind}\",\"size\":{},\"mtime\":\"{modified}\",\
             \"href\":\"{href}\"{cut}}}",
            entry.size
        )
        .as_bytes(),
    );
}

/// Escapes text for HTML, also within quotes.
fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Listing;

    fn listing(names: &[(&[u8], FileKind)]) -> Listing {
        let entry = |(name, kind): &(&[u8], FileKind)| Entry {
            name: name.to_vec(),
            kind: *kind,
            size: 7,
            mtime: 784_111_777,
            target: None,
        };
        Listing {
            entries: names.iter().map(entry).collect(),
            truncated: false,
            ..Listing::default()
        }
    }

    fn render(listing: Listing, json: bool) -> String {
        let mut pages = Pages::new(Rc::new(listing.into()), b"/a/", json);
        let mut out = Vec::new();
        while let Some(piece) = pages.next_piece() {
            assert!(!piece.is_empty());
            out.extend(piece);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_name_cannot_leave_its_place() {
        let html = render(listing(&[(b"<script>\"'&", FileKind::Regular)]), false);
        assert!(!html.contains("<script>"), "{html}");
        let html = render(listing(&[(b"javascript:alert(1)", FileKind::Regular)]), false);
        assert!(html.contains("href=\"./javascript%3Aalert(1)\""), "{html}");
        let json = render(listing(&[(b"\"\\\n\x01", FileKind::Other)]), true);
        assert!(json.contains(r#""name":"\"\\\u000a\u0001""#), "{json}");
    }

    /// The canvas of the page is that of its root: `body` alone would leave it white below pale links.
    #[test]
    fn a_page_is_dark_where_the_user_wants_that() {
        let html = render(listing(&[]), false);
        assert!(html.contains(":root{color-scheme:light dark}"), "{html}");
        assert_eq!(html.matches("color-scheme").count(), 1);
    }

    #[test]
    fn every_name_can_be_asked_for_from_json() {
        let json = render(listing(&[(b"\xff \"\\?#%.txt", FileKind::Regular)]), true);
        assert!(json.contains("\"href\":\"./%FF%20%22%5C%3F%23%25.txt\"}"), "{json}");
        let json = render(listing(&[(b"a:b", FileKind::Directory)]), true);
        assert!(json.contains("\"href\":\"./a%3Ab/\"}"), "{json}");
    }

    #[test]
    fn a_listing_that_was_cut_says_so() {
        let names: [(&[u8], FileKind); 2] = [(b"a", FileKind::Regular), (b"b", FileKind::Regular)];
        for truncated in [false, true] {
            let cut = Listing { truncated, ..listing(&names) };
            let json = render(cut.clone(), true);
            let last = json.ends_with("\"href\":\"./b\",\"truncated\":true,\"shown\":2}\n]\n");
            assert_eq!((last, json.matches("truncated").count()), (truncated, truncated.into()));
            let html = render(cut, false);
            assert_eq!(html.contains("Only 2 of the entries are shown"), truncated);
        }
    }

    #[test]
    fn pieces_are_bounded_and_complete() {
        let many: Vec<Vec<u8>> = (0..5000).map(|n| format!("file {n:05}").into_bytes()).collect();
        let names: Vec<_> = many.iter().map(|name| (&name[..], FileKind::Regular)).collect();
        let mut pages = Pages::new(Rc::new(listing(&names).into()), b"/", true);
        let mut out = Vec::new();
        while let Some(piece) = pages.next_piece() {
            assert!(piece.len() < 2 * PIECE_BYTES);
            out.extend(piece);
        }
        let json = String::from_utf8(out).unwrap();
        assert_eq!(json.matches("\"name\":").count(), 5000);
        assert!(json.starts_with("[\n{") && json.ends_with("}\n]\n"));
    }
}

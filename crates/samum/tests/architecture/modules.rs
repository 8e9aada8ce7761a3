//! The arrows between the modules of a crate, and the circles that they form.
//!
//! A module is a file; an inline module belongs to the file in which it stands. An arrow runs from the
//! file that names a path to the file that the path leads to: `crate::…`, `super::…`, `self::…`, the name
//! of a child, or a name that a `use` of the same file has brought in. A name that the target only hands
//! on (`pub use`) is followed to the file that defines it. Comments, strings and everything under
//! `#[cfg(test)]` are left out.
//!
//! Circles are counted between siblings. Two files that are not above each other have a lowest folder in
//! common; the arrow between them counts as one between the two children of that folder that contain
//! them. So `content/load.rs` → `log.rs` is an arrow from `content` to `log`, and `content/load.rs` →
//! `content/watch.rs` is one inside `content`. An arrow between a module and one above it does not count:
//! a parent may declare what its children share, and call them.
//!
//! Not seen: names that come by a glob, or out of a macro's expansion.

use std::collections::{BTreeMap, BTreeSet};

/// A module by the names on its way from the crate's root.
type Path = Vec<String>;

/// One file's use of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    pub(crate) from: Path,
    pub(crate) to: Path,
    /// The file and line of the path in the code.
    pub(crate) place: String,
}

/// Siblings that reach each other, by the arrows between them.
pub(crate) fn circles(arrows: &[Arrow]) -> Vec<Vec<Arrow>> {
    let mut levels = BTreeMap::<&[String], Vec<(&String, &String, &Arrow)>>::new();
    for arrow in arrows {
        let common = arrow.from.iter().zip(&arrow.to).take_while(|(a, b)| a == b).count();
        if let (Some(from), Some(to)) = (arrow.from.get(common), arrow.to.get(common)) {
            levels.entry(&arrow.from[..common]).or_default().push((from, to, arrow));
        }
    }
    let mut circles = Vec::new();
    for level in levels.values() {
        let siblings: BTreeSet<_> = level.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        let reached: BTreeMap<_, _> =
            siblings.into_iter().map(|from| (from, reached_from(from, level))).collect();
        let mut done = BTreeSet::new();
        for (sibling, theirs) in &reached {
            if !theirs.contains(sibling) || !done.insert(*sibling) {
                continue;
            }
            let circle: BTreeSet<_> =
                theirs.iter().filter(|other| reached[*other].contains(sibling)).copied().collect();
            done.extend(&circle);
            let is_inside = |from, to| circle.contains(from) && circle.contains(to);
            let inside = level.iter().filter(|(from, to, _)| is_inside(*from, *to));
            circles.push(inside.map(|(_, _, arrow)| (*arrow).clone()).collect());
        }
    }
    circles
}

fn reached_from<'a>(
    start: &'a String,
    level: &[(&'a String, &'a String, &Arrow)],
) -> BTreeSet<&'a String> {
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![start]);
    while let Some(at) = ahead.pop() {
        let next = level.iter().filter(|(from, ..)| *from == at).map(|(_, to, _)| *to);
        ahead.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

/// All arrows of a crate, each pair of files once. `files` are names below `src` and texts.
pub(crate) fn arrows(files: &[(String, String)]) -> Vec<Arrow> {
    let mut modules = BTreeMap::new();
    let mut only_for_tests = Vec::new();
    for (name, text) in files {
        let module = File::read(path_of(name), name, text);
        only_for_tests.extend(module.test_modules.iter().cloned());
        modules.insert(module.path.clone(), module);
    }
    modules.retain(|path, _| !only_for_tests.iter().any(|test| path.starts_with(test)));
    let tree = Tree(modules);
    let mut arrows = BTreeMap::new();
    for file in tree.0.values() {
        for mention in &file.mentions {
            if let Some(to) = tree.resolve(file, mention).filter(|to| *to != file.path) {
                let place = format!("{}:{}", file.name, mention.line);
                arrows.entry((file.path.clone(), to)).or_insert(place);
            }
        }
    }
    arrows.into_iter().map(|((from, to), place)| Arrow { from, to, place }).collect()
}

/// The paths that a file names, in full: a name that a `use` of the file has brought in is replaced by its path. Each has its
/// line.
pub(crate) fn full_paths(name: &str, text: &str) -> Vec<(Path, usize)> {
    let file = File::read(path_of(name), name, text);
    let full = |mention: &Mention| {
        let mut names = mention.names.clone();
        for _ in 0..STEPS_MAX {
            match file.binding(&names[0]).filter(|bound| bound.names[..] != names[..1]) {
                // `use ring::{self}` brings in its own name.
                Some(bound) if bound.names[0] != names[0] || bound.names.len() > 1 => {
                    names.splice(..1, bound.names.iter().cloned());
                }
                _ => break,
            }
            if names.len() > STEPS_MAX {
                break;
            }
        }
        (names, mention.line)
    };
    file.mentions.iter().map(full).collect()
}

/// A file `b` in a folder `a`, and `mod.rs` in a folder `a/b`, are `a::b`; `lib.rs` and `main.rs` are the root.
fn path_of(name: &str) -> Path {
    let mut path: Path = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_folder = path.last().is_some_and(|last| last == "mod");
    if is_folder || name == "lib.rs" || name == "main.rs" {
        path.pop();
    }
    path
}

/// A path in the code.
struct Mention {
    names: Path,
    /// The inline modules around it.
    inside: Path,
    line: usize,
}

/// What is known of one file.
struct File {
    path: Path,
    name: String,
    mentions: Vec<Mention>,
    /// Names that `use` declarations bring in, and the mention each stands for.
    bindings: BTreeMap<String, usize>,
    /// Child files that exist only in test builds.
    test_modules: Vec<Path>,
}

struct Tree(BTreeMap<Path, File>);

/// Names handed on and on: more steps than any code takes.
const STEPS_MAX: usize = 16;

impl Tree {
    fn resolve(&self, file: &File, mention: &Mention) -> Option<Path> {
        self.resolve_within(file, mention, STEPS_MAX)
    }

    /// The file that a path leads to; none for paths of other crates.
    fn resolve_within(&self, file: &File, mention: &Mention, steps: usize) -> Option<Path> {
        let steps = steps.checked_sub(1)?;
        let mut at = file.path.clone();
        let mut names = mention.names.iter().peekable();
        match names.peek()?.as_str() {
            "crate" => {
                names.next();
                at.clear();
            }
            "self" | "super" => {
                let mut inside = mention.inside.len();
                while let Some(name) = names.next_if(|name| *name == "self" || *name == "super") {
                    if name == "super" {
                        match inside.checked_sub(1) {
                            Some(less) => inside = less,
                            None => drop(at.pop()),
                        }
                    }
                }
            }
            first => {
                let child = [&at[..], &[first.to_owned()]].concat();
                if !self.0.contains_key(&child) {
                    let bound = file.binding(first).filter(|bound| bound.names != mention.names)?;
                    let rest = mention.names[1..].iter().cloned();
                    let names = bound.names.iter().cloned().chain(rest).collect();
                    let (inside, line) = (bound.inside.clone(), mention.line);
                    return self.resolve_within(file, &Mention { names, inside, line }, steps);
                }
            }
        }
        while let Some(name) = names.next() {
            at.push(name.clone());
            if !self.0.contains_key(&at) {
                at.pop();
                // Defined there, or only handed on.
                let handed_on = self.0.get(&at).filter(|it| it.path != file.path).and_then(|it| {
                    let bound = it.binding(name)?;
                    let names = bound.names.iter().chain(names).cloned().collect();
                    let inside = bound.inside.clone();
                    self.resolve_within(it, &Mention { names, inside, line: bound.line }, steps)
                });
                return Some(handed_on.unwrap_or(at));
            }
        }
        Some(at)
    }
}

impl File {
    fn read(path: Path, name: &str, text: &str) -> Self {
        let (name, tokens) = (name.to_owned(), tokens(text));
        let (mentions, bindings, test_modules) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut file = Self { path, name, mentions, bindings, test_modules };
        // Inline modules, each with the depth of the braces at which it ends.
        let (mut inside, mut depth) = (Vec::<(String, usize)>::new(), 0);
        let mut at = 0;
        while at < tokens.len() {
            let word = |index: usize| tokens.get(index).map_or("", |token| token.0.as_str());
            let around = || inside.iter().map(|(name, _)| name.clone()).collect::<Path>();
            match word(at) {
                "#" if is_for_tests(&tokens[at..]) => {
                    let end = end_of_item(&tokens, at);
                    let item: Vec<_> = tokens[at..end].iter().map(|token| &token.0[..]).collect();
                    if let [.., "mod", child, ";"] = item[..] {
                        file.test_modules.push([&file.path[..], &[child.to_owned()]].concat());
                    }
                    at = end;
                    continue;
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inside.pop_if(|(_, end)| *end == depth);
                }
                "mod" if word(at + 2) == "{" => {
                    inside.push((word(at + 1).to_owned(), depth));
                    depth += 1;
                    at += 3;
                    continue;
                }
                "use" => {
                    at = file.read_use(&tokens, at + 1, &[], &around());
                    continue;
                }
                name if is_name(name) && word(at + 1) == "::" => {
                    let (mut names, line) = (vec![name.to_owned()], tokens[at].1);
                    while word(at + 1) == "::" && is_name(word(at + 2)) {
                        names.push(word(at + 2).to_owned());
                        at += 2;
                    }
                    file.mentions.push(Mention { names, inside: around(), line });
                }
                _ => {}
            }
            at += 1;
        }
        file
    }

    fn binding(&self, name: &str) -> Option<&Mention> {
        self.bindings.get(name).map(|&index| &self.mentions[index])
    }

    /// Reads one tree of a `use` declaration: `a::b`, `a::{b, c as d}`, `a::*`. Returns the index
    /// after it.
    fn read_use(
        &mut self,
        tokens: &[Token],
        mut at: usize,
        base: &[String],
        inside: &Path,
    ) -> usize {
        let mut names = base.to_vec();
        let line = tokens[at].1;
        loop {
            match tokens[at].0.as_str() {
                "::" => {}
                "{" => {
                    at += 1;
                    while tokens[at].0 != "}" {
                        at = self.read_use(tokens, at, &names, inside);
                        at += usize::from(tokens[at].0 == ",");
                    }
                    return at + 1;
                }
                name if is_name(name) && name != "as" => names.push(name.to_owned()),
                _ => break,
            }
            at += 1;
        }
        // `a::{self}` is `a`.
        names.pop_if(|last| last == "self" && !base.is_empty());
        let mut bound = names.last().cloned();
        if tokens[at].0 == "as" {
            bound = Some(tokens[at + 1].0.clone());
            at += 2;
        }
        at += usize::from(tokens[at].0 == "*" || tokens[at].0 == ";");
        if let Some(bound) = bound {
            self.bindings.insert(bound, self.mentions.len());
            self.mentions.push(Mention { names, inside: inside.clone(), line });
        }
        at
    }
}

/// A word or a sign, and its line.
type Token = (String, usize);

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// An attribute such as `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_for_tests(tokens: &[Token]) -> bool {
    let words: Vec<_> =
        tokens.iter().map(|token| &token.0[..]).take_while(|word| *word != "]").collect();
    words.starts_with(&["#", "[", "cfg"]) && words.contains(&"test") && !words.contains(&"not")
}

/// The index after the item that begins at `start` with its attributes.
fn end_of_item(tokens: &[Token], start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while at < tokens.len() {
        let word = tokens[at].0.as_str();
        depth += usize::from(matches!(word, "(" | "[" | "{"));
        depth -= usize::from(matches!(word, ")" | "]" | "}"));
        at += 1;
        if depth == 0 && matches!(word, "}" | ";") {
            // A braced initialiser or a tree of `use` is followed by its semicolon.
            return at
                + usize::from(word == "}" && tokens.get(at).is_some_and(|next| next.0 == ";"));
        }
    }
    at
}

/// Words and signs without comments, strings, numbers and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut line) = (Vec::new(), 1);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => end_of_string(rest),
            'r' | 'b' | 'c' if raw_string(rest).is_some() => raw_string(rest).unwrap_or(1),
            'b' | 'c' if rest[1..].starts_with('"') => 1 + end_of_string(&rest[1..]),
            '\'' => end_of_char(rest),
            ':' if rest.starts_with("::") => {
                tokens.push(("::".to_owned(), line));
                2
            }
            first if first.is_alphanumeric() || first == '_' => {
                let is_part = |part: char| part.is_alphanumeric() || part == '_';
                let word = &rest[..rest.find(|part| !is_part(part)).unwrap_or(rest.len())];
                tokens.push((word.to_owned(), line));
                word.len()
            }
            first => {
                if !first.is_whitespace() {
                    tokens.push((first.to_string(), line));
                }
                first.len_utf8()
            }
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// The length of the string literal that begins here.
fn end_of_string(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the raw string literal that begins here, if one does.
fn raw_string(text: &str) -> Option<usize> {
    let opening = text.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let hashes = opening.len() - opening.trim_start_matches('#').len();
    opening[hashes..].strip_prefix('"')?;
    let begin = text.len() - opening.len() + hashes + 1;
    let closing = format!("\"{}", "#".repeat(hashes));
    Some(text[begin..].find(&closing).map_or(text.len(), |end| begin + end + closing.len()))
}

/// The length of the character that begins here, or of a lifetime's sign.
fn end_of_char(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            text[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 3)
        }
        Some(_) if matches!(chars.next(), Some((_, '\''))) => {
            text.char_indices().nth(2).map_or(1, |(at, _)| at + 1)
        }
        _ => 1,
    }
}

#[test]
fn arrows_are_what_a_file_names_of_others() {
    let code = r##"
        //! A comment names crate::comment.
        use std::fmt;
        use crate::{list::{self as rows, Row}, text};
        use super::shared as common;
        mod inner { use super::super::b::Thing; use super::child; }
        #[cfg(test)]
        mod tests { use crate::test_only::It; }
        #[cfg(all(test, unix))]
        use crate::{test_only::Two};
        fn f<'a>(a: &'a str) -> char { let _ = ("crate::string", r#"crate::raw"#, '"', '\''); rows::deep::go(crate::log::LINE); 'x' }
    "##;
    let files = [
        ("lib.rs", "mod a; mod shared;"),
        ("a.rs", code),
        ("a/child.rs", "use super::Row;"),
        ("b.rs", ""),
        ("list/mod.rs", "mod deep; mod row; pub use row::Row;"),
        ("list/row.rs", ""),
        ("list/deep.rs", ""),
        ("shared.rs", ""),
        ("text.rs", "#[cfg(test)]\nmod tests;"),
        ("text/tests.rs", "use crate::b;"),
        ("log.rs", ""),
        ("string.rs", ""),
        ("raw.rs", ""),
        ("comment.rs", ""),
        ("test_only.rs", ""),
    ];
    let mut found: Vec<_> = arrows(&files.map(|(name, text)| (name.to_owned(), text.to_owned())))
        .into_iter()
        .map(|Arrow { from, to, place }| format!("{} {} {place}", from.join("::"), to.join("::")))
        .collect();
    found.sort();
    let expected = [
        "a a::child a.rs:6",
        "a b a.rs:6",
        "a list a.rs:4",
        "a list::deep a.rs:11",
        "a list::row a.rs:4",
        "a log a.rs:11",
        "a shared a.rs:5",
        "a text a.rs:4",
        "a::child list::row a/child.rs:1",
        "list list::row list/mod.rs:1",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_circle_is_one_of_siblings() {
    let arrow = |from: &str, to: &str| {
        let path = |text: &str| text.split("::").map(str::to_owned).collect();
        Arrow { from: path(from), to: path(to), place: format!("{from} {to}") }
    };
    let found = |pairs: &[(&str, &str)]| -> Vec<Vec<String>> {
        let arrows: Vec<_> = pairs.iter().map(|(from, to)| arrow(from, to)).collect();
        let places = |circle: Vec<Arrow>| circle.into_iter().map(|arrow| arrow.place).collect();
        circles(&arrows).into_iter().map(places).collect()
    };
    let none = Vec::<Vec<String>>::new();
    assert_eq!(found(&[("a", "b"), ("b", "c"), ("a", "c")]), none);
    assert_eq!(found(&[("a", "b"), ("b", "a"), ("c", "a")]), [["a b", "b a"]]);
    assert_eq!(found(&[("a", "b"), ("b", "c"), ("c", "a")]), [["a b", "b c", "c a"]]);
    // A parent and its child may name each other.
    assert_eq!(found(&[("a", "a::b"), ("a::b", "a")]), none);
    // What a child names, its folder names.
    assert_eq!(found(&[("a::b", "c"), ("c", "a::d")]), [["a::b c", "c a::d"]]);
    assert_eq!(found(&[("a::b", "c"), ("c", "d"), ("a", "d")]), none);
    // A circle inside of a folder is none of the level above, and two circles are two.
    let two = [("a::b", "a::c"), ("a::c", "a::b"), ("d", "e"), ("e", "d"), ("d", "a")];
    assert_eq!(found(&two), [["d e", "e d"], ["a::b a::c", "a::c a::b"]]);
}

//! Goes through a template for one request.

use std::collections::BTreeMap;
use std::rc::Rc;

use http::path;

use super::directive::{Directive, Encoding, Reference};
use super::expression::{self, VALUE_BYTES_MAX, expand, is_name};
use super::fault::Fault;
use super::parser::{Part, Template};
use super::timefmt;
use super::variables::Facts;

use core::ops::Range;

/// Conditions within one another. What a further one decides about is left out.
pub(crate) const IF_DEPTH_MAX: usize = 32;
/// Variables that a page can set, with those of the pages that include it.
pub(crate) const VARIABLES_MAX: usize = 100;

/// Bytes of memory of a variable beside its name and its value, about: its entry, and two counts of each.
const VARIABLE_BYTES: usize = 64;

/// The error message until a page changes it.
const ERRMSG: &[u8] = b"[an error occurred while processing the directive]";
/// Is shown in place of a variable that is not set.
const UNSET: &[u8] = b"(none)";

/// Values by names.
type Variables = BTreeMap<Rc<[u8]>, Rc<[u8]>>;

/// The things that a page has set, and with which a page begins that it includes.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The variables by their names in upper case. Tables that differ share names and values.
    variables: Rc<Variables>,
    /// Bytes of memory of the variables.
    bytes: usize,
    errmsg: Rc<[u8]>,
    timefmt: Rc<[u8]>,
}

/// Goes through a template for one request.
#[derive(Debug)]
pub(crate) struct Evaluator {
    template: Rc<Template>,
    /// The index of the next part.
    next: usize,
    /// Directives that were evaluated.
    directives: usize,
    scope: Scope,
    /// Bytes of memory of all that the page has set.
    set: usize,
    /// The same since [`take_fresh`](Self::take_fresh) was asked last.
    fresh: usize,
    /// The conditions around the next part.
    branches: Vec<Branch>,
    /// The lines of their directives.
    lines: Vec<u32>,
}

/// A condition, as far as it has been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Branch {
    /// It holds here.
    Taken,
    /// It did not hold so far.
    Open,
    /// It held before, or what is around it is left out.
    Over,
}

/// The next bytes of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A range of the file.
    Text(Range<u64>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The response to another path, perhaps with a query, as a URL has it. One without a slash at the beginning is
    /// relative to the page.
    Include(Vec<u8>),
    /// The error message stands here.
    Fault(Fault),
}

impl Scope {
    /// The scope of a page that no other one includes.
    pub(crate) fn new() -> Self {
        let (errmsg, timefmt) = (ERRMSG.into(), timefmt::DEFAULT.into());
        Self { variables: Rc::default(), bytes: 0, errmsg, timefmt }
    }

    /// Bytes of memory of all that is set.
    fn memory(&self) -> usize {
        self.bytes + self.errmsg.len() + self.timefmt.len()
    }

    /// Bytes of memory of a table of its own.
    fn table_memory(&self) -> usize {
        self.variables.len() * VARIABLE_BYTES
    }

    /// The error message.
    pub(crate) const fn errmsg(&self) -> &Rc<[u8]> {
        &self.errmsg
    }

    /// Appends the value of a variable. Returns false if it is not set.
    fn put(&self, facts: &Facts<'_>, name: &[u8], out: &mut Vec<u8>) -> bool {
        let name = name.to_ascii_uppercase();
        match self.variables.get(&name[..]) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => facts.put(&name, &self.timefmt, out),
        }
    }

    fn expand(&self, facts: &Facts<'_>, text: &[u8]) -> Result<Vec<u8>, Fault> {
        expand(text, |name, out| {
            self.put(facts, name, out);
        })
    }

    fn set(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), Fault> {
        if !is_name(name) {
            return Err(Fault::Malformed);
        }
        let name = name.to_ascii_uppercase();
        let is_full = self.variables.len() >= VARIABLES_MAX;
        if is_full && !self.variables.contains_key(&name[..]) {
            return Err(Fault::Variables);
        }
        let name_bytes = name.len();
        self.bytes += value.len();
        match Rc::make_mut(&mut self.variables).insert(name.into(), value.into()) {
            Some(before) => self.bytes -= before.len(),
            None => self.bytes += name_bytes + VARIABLE_BYTES,
        }
        Ok(())
    }
}

impl Evaluator {
    /// Begins a page.
    pub(crate) const fn new(template: Rc<Template>, scope: Scope) -> Self {
        Self {
            template,
            next: 0,
            directives: 0,
            scope,
            set: 0,
            fresh: 0,
            branches: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The things that are set where the last step was.
    pub(crate) const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The line of the directive that was evaluated last.
    pub(crate) fn line(&self) -> u32 {
        self.template.line(self.directives.saturating_sub(1))
    }

    /// The line of the innermost condition without an end, once there are no more steps. It is told once.
    pub(crate) fn take_unended(&mut self) -> Option<u32> {
        core::mem::take(&mut self.lines).pop()
    }

    /// Bytes of memory of what the page itself has set and still has, about.
    pub(crate) fn memory(&self) -> usize {
        self.set.min(self.scope.memory())
    }

    /// Bytes of memory that a copy of the scope keeps beside the copy that was made when this was asked before.
    pub(crate) fn take_fresh(&mut self) -> usize {
        match core::mem::take(&mut self.fresh) {
            0 => 0,
            fresh => fresh + self.scope.table_memory(),
        }
    }

    fn note_set(&mut self, bytes: usize) {
        self.set += bytes;
        self.fresh += bytes;
    }

    /// Returns whether there are no more steps. There may be none even if this is false.
    pub(crate) fn is_over(&self) -> bool {
        self.next == self.template.parts().len()
    }

    /// The next bytes of the page; `None` at its end.
    pub(crate) fn next(&mut self, facts: &Facts<'_>) -> Option<Step> {
        let template = Rc::clone(&self.template);
        while let Some(part) = template.parts().get(self.next) {
            self.next += 1;
            let step = match part {
                Part::Text(range) => self.is_shown().then(|| Step::Text(range.clone())),
                Part::Directive(_, directive) => {
                    self.directives += 1;
                    self.evaluate(facts, directive).unwrap_or_else(|fault| Some(Step::Fault(fault)))
                }
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    /// Returns whether the next part is not left out.
    fn is_shown(&self) -> bool {
        self.branches.last().is_none_or(|branch| *branch == Branch::Taken)
    }

    fn evaluate(
        &mut self,
        facts: &Facts<'_>,
        directive: &Directive,
    ) -> Result<Option<Step>, Fault> {
        match directive {
            Directive::If(condition) => return self.begin(facts, condition).map(|()| None),
            Directive::Elif(condition) => return self.turn(facts, Some(condition)).map(|()| None),
            Directive::Else => return self.turn(facts, None).map(|()| None),
            Directive::Endif => {
                self.lines.pop();
                return self.branches.pop().map(|_| None).ok_or(Fault::Unbalanced);
            }
            _ if !self.is_shown() => return Ok(None),
            _ => {}
        }
        match directive {
            Directive::Include(Reference::Virtual(path)) => {
                Ok(Some(Step::Include(self.scope.expand(facts, path)?)))
            }
            Directive::Include(Reference::File(path)) => {
                let path = self.scope.expand(facts, path)?;
                let leads_up = path.split(|byte| *byte == b'/').any(|name| name == b"..");
                if path.starts_with(b"/") || leads_up || path.is_empty() {
                    return Err(Fault::File);
                }
                // It is a name, and a step has a URL.
                let mut url = b"./".to_vec();
                put_url(&path, &mut url);
                Ok(Some(Step::Include(url)))
            }
            Directive::Echo { name, encoding, default } => {
                let mut value = Vec::new();
                if !self.scope.put(facts, name, &mut value) {
                    return Ok(shown(default.as_deref().unwrap_or(UNSET).to_vec()));
                }
                if value.len() > VALUE_BYTES_MAX {
                    return Err(Fault::Value);
                }
                Ok(shown(encoding.encode(value)))
            }
            Directive::Set { name, value } => {
                let value = self.scope.expand(facts, value)?;
                let bytes = name.len() + value.len();
                self.scope.set(name, value)?;
                self.note_set(bytes + VARIABLE_BYTES);
                Ok(None)
            }
            Directive::Config { errmsg, timefmt } => {
                if let Some(errmsg) = errmsg {
                    self.scope.errmsg = errmsg[..].into();
                    self.note_set(errmsg.len());
                }
                if let Some(timefmt) = timefmt {
                    self.scope.timefmt = timefmt[..].into();
                    self.note_set(timefmt.len());
                }
                Ok(None)
            }
            _ => Err(Fault::Malformed),
        }
    }

    /// A condition begins.
    fn begin(&mut self, facts: &Facts<'_>, condition: &[u8]) -> Result<(), Fault> {
        let is_shown = self.is_shown();
        self.branches.push(Branch::Over);
        self.lines.push(self.line());
        if !is_shown {
            return Ok(());
        }
        if self.branches.len() > IF_DEPTH_MAX {
            return Err(Fault::Depth);
        }
        self.decide(facts, condition)
    }

    /// Another branch of a condition begins.
    fn turn(&mut self, facts: &Facts<'_>, condition: Option<&[u8]>) -> Result<(), Fault> {
        let branch = self.branches.last_mut().ok_or(Fault::Unbalanced)?;
        match (&*branch, condition) {
            (Branch::Taken | Branch::Over, _) => *branch = Branch::Over,
            (Branch::Open, None) => *branch = Branch::Taken,
            (Branch::Open, Some(condition)) => return self.decide(facts, condition),
        }
        Ok(())
    }

    /// Decides about the innermost branch. One that cannot be understood does not hold.
    fn decide(&mut self, facts: &Facts<'_>, condition: &[u8]) -> Result<(), Fault> {
        let holds = expression::holds(condition, |name, out| {
            self.scope.put(facts, name, out);
        });
        if let Some(branch) = self.branches.last_mut() {
            *branch = if holds == Ok(true) { Branch::Taken } else { Branch::Open };
        }
        holds.map(|_| ())
    }
}

/// A step for these bytes, if there are some.
fn shown(bytes: Vec<u8>) -> Option<Step> {
    (!bytes.is_empty()).then_some(Step::Bytes(bytes))
}

impl Encoding {
    fn encode(self, value: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::with_capacity(value.len());
        match self {
            Self::None => return value,
            Self::Url => put_url(&value, &mut out),
            Self::Entity => {
                for byte in value {
                    match byte {
                        b'&' => out.extend_from_slice(b"&amp;"),
                        b'<' => out.extend_from_slice(b"&lt;"),
                        b'>' => out.extend_from_slice(b"&gt;"),
                        b'"' => out.extend_from_slice(b"&quot;"),
                        b'\'' => out.extend_from_slice(b"&#39;"),
                        _ => out.push(byte),
                    }
                }
            }
        }
        out
    }
}

/// Appends a text as a part of a URL: all but letters, digits, slashes and `-._~` is encoded (RFC 3986 §2.3).
fn put_url(text: &[u8], out: &mut Vec<u8>) {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path::encode_unless(is_kept, text, out);
}

#[cfg(test)]
mod tests {
    use http::{FieldIndex, Head, Method, Target, Version};

    use super::*;
    use crate::includes::Parser;

    #[test]
    fn scopes_share_what_is_the_same_and_what_is_not_is_counted() {
        let value = "v".repeat(1000);
        let mut page = String::new();
        for number in 0..50 {
            page += &format!("<!--#set var=\"v{number}\" value=\"{value}\"-->");
        }
        for _ in 0..3 {
            page += "<!--#include virtual=\"/a\"--><!--#set var=\"v0\" value=\"a\"-->";
        }
        let mut parser = Parser::default();
        parser.push(page.as_bytes());
        let target = Target::Origin { path: b"/", query: None };
        let head = Head::new(Method::Get, target, Version::Http11, None, b"", FieldIndex::EMPTY);
        let facts = Facts { head: &head, document: b"/", modified: 0, client: None, now: 0 };
        let mut evaluator = Evaluator::new(Rc::new(parser.finish()), Scope::new());
        let (mut scopes, mut fresh) = (Vec::new(), Vec::new());
        while let Some(step) = evaluator.next(&facts) {
            assert!(matches!(step, Step::Include(_)), "{step:?}");
            fresh.push(evaluator.take_fresh());
            scopes.push(evaluator.scope().clone());
        }
        assert!((50_000..60_000).contains(&fresh[0]), "{fresh:?}");
        assert!(fresh[1..].iter().all(|bytes| (1..4000).contains(bytes)), "{fresh:?}");
        assert!((49_000..60_000).contains(&evaluator.memory()), "{}", evaluator.memory());
        for name in ["V1", "V49"] {
            let is_shared = |scope: &Scope| {
                let [this, first] =
                    [scope, &scopes[0]].map(|scope| &scope.variables[name.as_bytes()]);
                Rc::ptr_eq(this, first)
            };
            assert!(scopes.iter().all(is_shared), "{name}");
        }
        assert_eq!(scopes[0].variables[&b"V0"[..]].len(), 1000);
        assert_eq!(scopes[1].variables[&b"V0"[..]].len(), 1);
        // An included page has what it sets itself only.
        let template = Rc::clone(&evaluator.template);
        assert_eq!(Evaluator::new(template, scopes[2].clone()).memory(), 0);
    }
}

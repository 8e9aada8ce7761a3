//! Evaluates a template for one request.

use std::collections::BTreeMap;
use std::rc::Rc;

use http::path;

use super::directive::{Directive, Encoding, Reference};
use super::expression::{self, VALUE_BYTES_MAX, expand, is_name};
use super::fault::Fault;
use super::memory::{Memory, Share};
use super::parser::{Part, Template};
use super::timefmt;
use super::variables::Facts;
use super::work::Work;

use core::ops::Range;

/// The maximum depth of conditions. The text of a deeper condition is left out.
pub const IF_DEPTH_MAX: usize = 32;
/// The maximum of variables that a page can set, with those of the pages that include it.
pub const VARIABLES_MAX: usize = 100;

/// Roughly the bytes of memory of a value in addition to itself, with the name of its variable.
const VALUE_BYTES: usize = 64;
/// Roughly the bytes of memory of an entry of a table.
const ENTRY_BYTES: usize = 64;

/// The error message until a page changes it.
const ERRMSG: &[u8] = b"[an error occurred while processing the directive]";
/// The text that is shown for a variable that is not set.
const UNSET: &[u8] = b"(none)";

/// The things that a page has set, and with which a page begins that it includes.
#[derive(Clone, Debug)]
pub struct Scope {
    variables: Rc<Variables>,
    errmsg: Rc<Value>,
    timefmt: Rc<Value>,
    memory: Rc<Memory>,
}

/// Values by the names of their variables, in upper case. Tables that differ share names and values.
#[derive(Clone, Debug)]
struct Variables {
    values: BTreeMap<Rc<[u8]>, Rc<Value>>,
    share: Share,
}

/// Something that was set.
#[derive(Debug)]
struct Value {
    bytes: Box<[u8]>,
    #[expect(dead_code, reason = "kept for its drop")]
    share: Share,
}

/// Goes through a template for one request.
#[derive(Debug)]
pub struct Evaluator {
    template: Rc<Template>,
    /// The index of the next part.
    next: usize,
    /// Directives that were evaluated.
    directives: usize,
    scope: Scope,
    work: Work,
    /// The conditions around the next part.
    branches: Vec<Branch>,
    /// The lines of their directives.
    lines: Vec<u32>,
}

/// The state of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Branch {
    /// This branch is true.
    Taken,
    /// No branch was true so far.
    Open,
    /// An earlier branch was true, or the text around the condition is left out.
    Over,
}

/// The next bytes of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A range of the file.
    Text(Range<u64>),
    /// Bytes that the page has made.
    Bytes(Vec<u8>),
    /// The response to another path, perhaps with a query, in the form of a URL. A path without a slash at the
    /// beginning is relative to the page.
    Include(Vec<u8>),
    /// The error message stands here.
    Fault(Fault),
    /// There is more, and the caller may look at the clock.
    Pause,
    /// The next directive sets a value that has no memory until everything before it has been sent.
    Wait,
}

impl Scope {
    /// The scope of a page that no other one includes, with this memory.
    pub fn new(memory: Rc<Memory>) -> Self {
        let value = |bytes: &[u8]| Rc::new(Value::new(&memory, bytes.into(), 0));
        let (errmsg, timefmt) = (value(ERRMSG), value(timefmt::DEFAULT));
        let share = Share::new(&memory, 0);
        let variables = Rc::new(Variables { values: BTreeMap::new(), share });
        Self { variables, errmsg, timefmt, memory }
    }

    /// The error message.
    pub fn errmsg(&self) -> &[u8] {
        &self.errmsg.bytes
    }

    /// Appends the value of a variable. Returns false if it is not set.
    fn put(
        &self,
        facts: &Facts<'_>,
        name: &[u8],
        out: &mut Vec<u8>,
        work: &mut Work,
    ) -> Result<bool, Fault> {
        work.begin_variable()?;
        let before = out.len();
        let name = name.to_ascii_uppercase();
        let is_set = match self.variables.values.get(&name[..]) {
            Some(value) => {
                out.extend_from_slice(&value.bytes);
                true
            }
            None => facts.put(&name, &self.timefmt.bytes, out, work),
        };
        work.add(out.len() - before);
        Ok(is_set)
    }

    fn expand(&self, facts: &Facts<'_>, text: &[u8], work: &mut Work) -> Result<Vec<u8>, Fault> {
        work.add(text.len());
        expand(text, |name, out| self.put(facts, name, out, work).map(|_| ()))
    }

    /// Sets a variable. `is_next`: all that is before this has been sent.
    fn set(&mut self, name: &[u8], value: Vec<u8>, is_next: bool) -> Result<(), Fault> {
        if !is_name(name) {
            return Err(Fault::Malformed);
        }
        let name = name.to_ascii_uppercase();
        let is_new = !self.variables.values.contains_key(&name[..]);
        if is_new && self.variables.values.len() >= VARIABLES_MAX {
            return Err(Fault::Variables);
        }
        let is_shared = Rc::strong_count(&self.variables) > 1;
        let copied = if is_shared { self.variables.share.bytes() } else { 0 };
        let own = VALUE_BYTES + name.len() + value.len();
        if !self.memory.admits(own + copied + ENTRY_BYTES, is_next) {
            return Err(Fault::Memory);
        }
        let value = Value::new(&self.memory, value.into(), own);
        let Variables { values, share } = Rc::make_mut(&mut self.variables);
        values.insert(name.into(), Rc::new(value));
        share.resize(values.len() * ENTRY_BYTES);
        Ok(())
    }

    /// A value for the error message or the form of times.
    fn text(&self, text: &[u8], is_next: bool) -> Result<Rc<Value>, Fault> {
        if !self.memory.admits(VALUE_BYTES + text.len(), is_next) {
            return Err(Fault::Memory);
        }
        Ok(Rc::new(Value::new(&self.memory, text.into(), VALUE_BYTES + text.len())))
    }
}

impl Value {
    fn new(memory: &Rc<Memory>, bytes: Box<[u8]>, held: usize) -> Self {
        Self { bytes, share: Share::new(memory, held) }
    }
}

impl Evaluator {
    /// Begins a page.
    pub const fn new(template: Rc<Template>, scope: Scope) -> Self {
        Self {
            template,
            next: 0,
            directives: 0,
            scope,
            work: Work::new(),
            branches: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The things that are set where the last step was.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The line of the last evaluated directive.
    pub fn line(&self) -> u32 {
        self.template.line(self.directives.saturating_sub(1))
    }

    /// The line of the innermost condition without an end, once there are no more steps. Only the first call
    /// returns it.
    pub fn take_unended(&mut self) -> Option<u32> {
        core::mem::take(&mut self.lines).pop()
    }

    /// Returns whether there are no more steps. Even if this is false, there may be none.
    pub fn is_over(&self) -> bool {
        self.next == self.template.parts().len()
    }

    /// The next step of the page; `None` at its end. `is_next`: everything before it has been sent.
    pub fn next(&mut self, facts: &Facts<'_>, is_next: bool) -> Option<Step> {
        let template = Rc::clone(&self.template);
        while let Some(part) = template.parts().get(self.next) {
            if self.work.is_enough() {
                self.work = Work::new();
                return Some(Step::Pause);
            }
            self.next += 1;
            let step = match part {
                Part::Text(range) => self.is_shown().then(|| Step::Text(range.clone())),
                Part::Directive(_, directive) => {
                    self.directives += 1;
                    self.work.begin_directive();
                    match self.evaluate(facts, directive, is_next) {
                        Ok(step) => step,
                        Err(Fault::Memory) if !is_next => {
                            self.next -= 1;
                            self.directives -= 1;
                            Some(Step::Wait)
                        }
                        Err(fault) => Some(Step::Fault(fault)),
                    }
                }
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    /// Returns whether the next part is shown, not left out.
    fn is_shown(&self) -> bool {
        self.branches.last().is_none_or(|branch| *branch == Branch::Taken)
    }

    fn evaluate(
        &mut self,
        facts: &Facts<'_>,
        directive: &Directive,
        is_next: bool,
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
        let Self { scope, work, .. } = self;
        match directive {
            Directive::Include(Reference::Virtual(path)) => {
                Ok(Some(Step::Include(scope.expand(facts, path, work)?)))
            }
            Directive::Include(Reference::File(path)) => {
                let path = scope.expand(facts, path, work)?;
                let leads_up = path.split(|byte| *byte == b'/').any(|name| name == b"..");
                if path.starts_with(b"/") || leads_up || path.is_empty() {
                    return Err(Fault::File);
                }
                // The reference is a name, and a step has a URL.
                let mut url = b"./".to_vec();
                put_url(&path, &mut url);
                Ok(Some(Step::Include(url)))
            }
            Directive::Echo { name, encoding, default } => {
                let mut value = Vec::new();
                if !scope.put(facts, name, &mut value, work)? {
                    return Ok(shown(default.as_deref().unwrap_or(UNSET).to_vec()));
                }
                if value.len() > VALUE_BYTES_MAX {
                    return Err(Fault::Value);
                }
                let value = encoding.encode(value);
                work.add(value.len());
                Ok(shown(value))
            }
            Directive::Set { name, value } => {
                let value = scope.expand(facts, value, work)?;
                scope.set(name, value, is_next)?;
                Ok(None)
            }
            Directive::Config { errmsg, timefmt } => {
                if let Some(errmsg) = errmsg {
                    scope.errmsg = scope.text(errmsg, is_next)?;
                }
                if let Some(timefmt) = timefmt {
                    scope.timefmt = scope.text(timefmt, is_next)?;
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

    /// Decides about the innermost branch. A condition that cannot be understood is false.
    fn decide(&mut self, facts: &Facts<'_>, condition: &[u8]) -> Result<(), Fault> {
        let Self { scope, work, .. } = self;
        work.add(condition.len());
        let holds =
            expression::holds(condition, |name, out| scope.put(facts, name, out, work).map(|_| ()));
        if let Some(branch) = self.branches.last_mut() {
            *branch = if holds == Ok(true) { Branch::Taken } else { Branch::Open };
        }
        holds.map(|_| ())
    }
}

/// A step for these bytes; none if they are empty.
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
    use crate::Parser;
    use crate::memory::{AHEAD_BYTES_MAX, BEFORE_BYTES_MAX, BYTES_MAX};

    fn parse(page: &str) -> Rc<Template> {
        let mut parser = Parser::default();
        parser.push(page.as_bytes());
        Rc::new(parser.finish())
    }

    fn with_facts<T>(query: &[u8], lines: &[u8], then: impl FnOnce(&Facts<'_>) -> T) -> T {
        let target = Target::Origin { path: b"/", query: Some(query) };
        let head = Head::new(Method::Get, target, Version::Http11, None, lines, FieldIndex::EMPTY);
        then(&Facts {
            head: &head,
            requested: b"/",
            document: b"/",
            modified: 0,
            client: None,
            now: 0,
        })
    }

    /// A page that sets this number of variables to values of 4 KiB.
    fn large(variables: usize) -> String {
        let mut page = format!("<!--#set var='w' value='{}'-->", "w".repeat(1024));
        for number in 0..variables {
            page += &format!("<!--#set var='v{number}' value='$w$w$w$w'-->");
        }
        page
    }

    #[test]
    fn scopes_share_what_is_the_same_and_memory_is_given_back() {
        let value = "v".repeat(1000);
        let mut page = String::new();
        for number in 0..50 {
            page += &format!("<!--#set var=\"v{number}\" value=\"{value}\"-->");
        }
        for _ in 0..3 {
            page += "<!--#include virtual=\"/a\"--><!--#set var=\"v0\" value=\"a\"-->";
        }
        let memory = Rc::new(Memory::default());
        memory.begin();
        let mut evaluator = Evaluator::new(parse(&page), Scope::new(Rc::clone(&memory)));
        let (mut scopes, mut held) = (Vec::new(), Vec::new());
        with_facts(b"", b"", |facts| {
            while let Some(step) = evaluator.next(facts, true) {
                if step != Step::Pause {
                    assert!(matches!(step, Step::Include(_)), "{step:?}");
                    scopes.push(evaluator.scope().clone());
                    held.push(memory.held());
                }
            }
        });
        assert!((50_000..60_000).contains(&held[0]), "{held:?}");
        let grown = [held[1] - held[0], held[2] - held[1]];
        assert!(grown.iter().all(|bytes| (1..4000).contains(bytes)), "{held:?}");
        for name in ["V1", "V49"] {
            let is_shared = |scope: &Scope| {
                let [this, first] =
                    [scope, &scopes[0]].map(|scope| &scope.variables.values[name.as_bytes()]);
                Rc::ptr_eq(this, first)
            };
            assert!(scopes.iter().all(is_shared), "{name}");
        }
        assert_eq!(scopes[0].variables.values[&b"V0"[..]].bytes.len(), 1000);
        assert_eq!(scopes[1].variables.values[&b"V0"[..]].bytes.len(), 1);
        // Only the included page's own variables count.
        let before = memory.held();
        let inner = Evaluator::new(Rc::clone(&evaluator.template), scopes[2].clone());
        assert_eq!(memory.held(), before);
        drop((inner, evaluator, scopes));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn what_is_set_ahead_waits_and_what_never_fits_is_an_error() {
        /// The bytes of a variable with the table that may be copied for it.
        const SLACK: usize = 12 * 1024;
        let memory = Rc::new(Memory::default());
        let page = parse(&large(98));
        let mut scopes = vec![Scope::new(Rc::clone(&memory))];
        let (mut waits, mut faults) = (Vec::new(), 0);
        with_facts(b"", b"", |facts| {
            for _ in 0..8 {
                let scope = scopes.last().expect("one at least").clone();
                let mut evaluator = Evaluator::new(Rc::clone(&page), scope);
                let mut is_next = false;
                while let Some(step) = evaluator.next(facts, is_next) {
                    match step {
                        Step::Pause => {}
                        Step::Wait if memory.held() <= BEFORE_BYTES_MAX => {
                            waits.push(memory.held());
                            memory.begin();
                        }
                        Step::Wait => {
                            assert!(!is_next, "what is next does not wait");
                            waits.push(memory.held());
                            is_next = true;
                        }
                        Step::Fault(fault) => {
                            assert_eq!(fault, Fault::Memory);
                            assert!((BYTES_MAX - SLACK..=BYTES_MAX).contains(&memory.held()));
                            faults += 1;
                        }
                        step => panic!("{step:?}"),
                    }
                }
                scopes.push(evaluator.scope().clone());
            }
        });
        assert!((BEFORE_BYTES_MAX - SLACK..=BEFORE_BYTES_MAX).contains(&waits[0]), "{waits:?}");
        assert!((AHEAD_BYTES_MAX - SLACK..=AHEAD_BYTES_MAX).contains(&waits[1]), "{waits:?}");
        assert_eq!(waits.len(), 7, "of the third page and those behind it: {waits:?}");
        assert!((200..400).contains(&faults), "{faults}");
        drop(scopes);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_step_does_not_take_long() {
        let scope = || Scope::new(Rc::new(Memory::default()));
        let query = "x&".repeat(8 * 1024);
        let lines = "A: b\r\n".repeat(100);
        let long = format!("<!--#if expr=\"{}\"-->a<!--#endif-->", "$ARG_y".repeat(250));
        let fields = long.replace("$ARG_y", "$HTTP_y");
        let plain = "<!--#if expr='a = b'-->a<!--#endif-->".repeat(500);
        with_facts(query.as_bytes(), lines.as_bytes(), |facts| {
            // A directive that looks at less is evaluated, with a query of any length.
            let some = long.replacen("$ARG_y", "", 243);
            let mut evaluator = Evaluator::new(parse(&some), scope());
            assert_eq!(evaluator.next(facts, false), Some(Step::Pause));
            assert_eq!(evaluator.next(facts, false), None);
            let mut evaluator = Evaluator::new(parse(&long), scope());
            assert_eq!(evaluator.next(facts, true), Some(Step::Fault(Fault::Work)));
            let mut evaluator = Evaluator::new(parse(&fields), scope());
            assert_eq!(evaluator.next(facts, true), Some(Step::Fault(Fault::Work)));
            let mut evaluator = Evaluator::new(parse(&plain), scope());
            let mut pauses = 0;
            while let Some(step) = evaluator.next(facts, false) {
                assert_eq!(step, Step::Pause);
                pauses += 1;
            }
            assert!(pauses >= 3, "{pauses}");
        });
    }
}

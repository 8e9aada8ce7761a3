//! The dictionaries of structured fields (RFC 9651 §3.2, §4.2).

/// The value of a member, as far as priorities need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Integer(i64),
    Boolean(bool),
    /// A value of another type.
    Other,
}

/// Passes each member of a dictionary to `handle_member`. Returns false if the value is no dictionary; then no member
/// counts.
pub(super) fn dictionary<'a>(
    value: &'a [u8],
    mut handle_member: impl FnMut(&'a [u8], Value),
) -> bool {
    let mut input = Input(value);
    input.skip(b" ");
    members(&mut input, &mut handle_member).is_some()
}

fn members<'a>(
    input: &mut Input<'a>,
    handle_member: &mut impl FnMut(&'a [u8], Value),
) -> Option<()> {
    while !input.0.is_empty() {
        let key = input.key()?;
        let value = if input.eat(b'=') { input.item_or_list()? } else { Value::Boolean(true) };
        input.parameters()?;
        handle_member(key, value);
        input.skip(b" \t");
        if input.0.is_empty() {
            break;
        }
        if !input.eat(b',') {
            return None;
        }
        input.skip(b" \t");
        if input.0.is_empty() {
            return None;
        }
    }
    Some(())
}

/// The rest of the value. Each method removes the text that it reads, and returns `None` if it finds no such text.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        self.take_while(|byte| bytes.contains(&byte));
    }

    fn eat(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => self.0 = rest,
            _ => return false,
        }
        true
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.0.iter().position(|&byte| !is_part(byte)).unwrap_or(self.0.len());
        let (part, rest) = self.0.split_at(len);
        self.0 = rest;
        part
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.0.first()?, b'a'..=b'z' | b'*') {
            return None;
        }
        Some(self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        ))
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.eat(b'(') {
            return self.bare_item();
        }
        loop {
            self.skip(b" ");
            if self.eat(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.skip(b" ");
            self.key()?;
            if self.eat(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<Value> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => {
                self.next();
                match self.next()? {
                    b'0' => Some(Value::Boolean(false)),
                    b'1' => Some(Value::Boolean(true)),
                    _ => None,
                }
            }
            b'"' => self.string(),
            b':' => {
                self.next();
                self.take_while(
                    |byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' | b'='),
                );
                self.eat(b':').then_some(Value::Other)
            }
            b'@' => {
                self.next();
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => {
                self.next();
                self.display_string()
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'*' => {
                let is_part =
                    |byte| http::bytes::is(byte, http::bytes::TOKEN) || matches!(byte, b':' | b'/');
                self.take_while(is_part);
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// An integer of up to 15 digits, or a decimal of up to 12 and 3.
    fn number(&mut self) -> Option<Value> {
        let is_negative = self.eat(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if self.eat(b'.') {
            let decimals = self.take_while(|byte| byte.is_ascii_digit());
            let is_valid = (1..=12).contains(&digits.len()) && (1..=3).contains(&decimals.len());
            return is_valid.then_some(Value::Other);
        }
        if digits.len() > 15 {
            return None;
        }
        let number = i64::try_from(http::bytes::decimal(digits)?).ok()?;
        Some(Value::Integer(if is_negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        self.next();
        loop {
            match self.next()? {
                b'"' => return Some(Value::Other),
                b'\\' if !matches!(self.next()?, b'"' | b'\\') => return None,
                b'\\' | b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    /// The part of a display string after its `%`.
    fn display_string(&mut self) -> Option<Value> {
        if !self.eat(b'"') {
            return None;
        }
        loop {
            match self.next()? {
                b'"' => return Some(Value::Other),
                b'%' => {
                    for _ in 0..2 {
                        if !matches!(self.next()?, b'0'..=b'9' | b'a'..=b'f') {
                            return None;
                        }
                    }
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }
}

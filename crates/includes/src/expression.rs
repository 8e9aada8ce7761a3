//! Variables in values, and the conditions of `if` and `elif`.
//!
//! ```text
//! condition = operand [("=" | "==" | "!=") operand]
//! operand   = '"' … '"' | "'" … "'" | text
//! variable  = "$" name | "${" name "}"
//! ```
//!
//! An operand without an operator is true if it is not empty. `\$` and `\\` stand for the second character.

use super::directive::is_quote;
use super::fault::Fault;

/// The maximum of bytes of a value, once the variables in it have been replaced.
pub const VALUE_BYTES_MAX: usize = 4096;

/// Replaces the variables in a text by their values. `value` appends the value of a variable, or nothing if the
/// variable does not exist. It fails if the value is too long.
pub(super) fn expand(
    text: &[u8],
    mut value: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), Fault>,
) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = match (first, behind.first()) {
            (b'\\', Some(next @ (b'$' | b'\\'))) => {
                out.push(*next);
                &behind[1..]
            }
            (b'$', _) => {
                let (name, behind) = split_name(behind)?;
                match name {
                    Some(name) => value(name, &mut out)?,
                    None => out.push(b'$'),
                }
                behind
            }
            _ => {
                out.push(first);
                behind
            }
        };
        if out.len() > VALUE_BYTES_MAX {
            return Err(Fault::Value);
        }
    }
    Ok(out)
}

/// Splits off the name after a dollar sign. `None` without a name: then the sign stands for itself.
fn split_name(text: &[u8]) -> Result<(Option<&[u8]>, &[u8]), Fault> {
    if let Some(inner) = text.strip_prefix(b"{") {
        let end = inner.iter().position(|byte| *byte == b'}').ok_or(Fault::Malformed)?;
        let name = &inner[..end];
        return if is_name(name) {
            Ok((Some(name), &inner[end + 1..]))
        } else {
            Err(Fault::Malformed)
        };
    }
    let end = text.iter().position(|byte| !is_in_name(*byte)).unwrap_or(text.len());
    Ok((Some(&text[..end]).filter(|name| !name.is_empty()), &text[end..]))
}

/// Returns whether a variable can have this name.
pub(super) fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_in_name)
}

const fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns whether a condition is true.
pub(super) fn holds(
    condition: &[u8],
    mut value: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let (left, rest) = split_operand(condition.trim_ascii(), true)?;
    let left = expand(left, &mut value)?;
    let (is_equal, right) = match rest {
        [] => return Ok(!left.is_empty()),
        [b'!', b'=', right @ ..] => (false, right),
        [b'=', b'=', right @ ..] | [b'=', right @ ..] => (true, right),
        _ => return Err(Fault::Condition),
    };
    let (right, []) = split_operand(right.trim_ascii_start(), false)? else {
        return Err(Fault::Condition);
    };
    Ok((left == expand(right, value)?) == is_equal)
}

/// Splits an operand off, and the space after it. The first one ends at an operator.
fn split_operand(text: &[u8], is_first: bool) -> Result<(&[u8], &[u8]), Fault> {
    if let Some(quote) = text.first().copied().filter(|byte| is_quote(*byte)) {
        let end = text[1..].iter().position(|byte| *byte == quote).ok_or(Fault::Condition)?;
        return Ok((&text[1..=end], text[end + 2..].trim_ascii_start()));
    }
    let is_operator = |byte: &u8| is_first && matches!(byte, b'=' | b'!');
    let end = text.iter().position(is_operator).unwrap_or(text.len());
    let (operand, rest) = (text[..end].trim_ascii_end(), &text[end..]);
    let is_expression = operand.len() > 1 && operand.starts_with(b"/") && operand.ends_with(b"/");
    let combines = operand.windows(2).any(|pair| pair == b"&&" || pair == b"||");
    if is_expression || combines || (is_first && operand.is_empty()) {
        return Err(Fault::Condition);
    }
    Ok((operand, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        match name {
            b"a" => out.extend_from_slice(b"x"),
            b"long" => out.extend_from_slice(&[b'x'; VALUE_BYTES_MAX]),
            _ => {}
        }
        Ok(())
    }

    #[test]
    fn variables_are_replaced() {
        for (text, expected) in [
            ("", ""),
            ("b", "b"),
            ("$a", "x"),
            ("$a$a", "xx"),
            ("${a}b", "xb"),
            ("$ab-", "-"),
            ("$a-b", "x-b"),
            (r"\$a", "$a"),
            (r"\\$a", r"\x"),
            (r"\a", r"\a"),
            ("100 $", "100 $"),
            ("$$a", "$x"),
            ("$none", ""),
        ] {
            let expanded = expand(text.as_bytes(), value);
            assert_eq!(expanded.as_deref(), Ok(expected.as_bytes()), "{text}");
        }
        for text in ["${a", "${}", "${a-b}"] {
            assert_eq!(expand(text.as_bytes(), value), Err(Fault::Malformed), "{text}");
        }
        assert!(expand(b"$long", value).is_ok());
        assert_eq!(expand(b"$long$a", value), Err(Fault::Value));
    }

    #[test]
    fn conditions_compare_texts() {
        for (condition, expected) in [
            ("$a", true),
            ("$none", false),
            ("''", false),
            ("x", true),
            ("$a = x", true),
            ("$a=x", true),
            ("$a == x", true),
            ("$a != x", false),
            ("$a != y", true),
            ("$none = ''", true),
            ("$none =", true),
            ("'$a' = \"x\"", true),
            ("x = $a", true),
            ("$a = x y", false),
            ("$a = X", false),
            ("/ = /", true),
            ("$a = '/x/'", false),
            ("'a=b' = 'a=b'", true),
            ("${a}b = xb", true),
        ] {
            assert_eq!(holds(condition.as_bytes(), value), Ok(expected), "{condition}");
        }
        for condition in [
            "",
            "= x",
            "!$a",
            "$a ! x",
            "$a = /x/",
            "/x/ = $a",
            "$a && $a",
            "$a = x || $a = y",
            "'a",
            "'a' 'b'",
            "$a = 'x' && $a",
        ] {
            assert_eq!(holds(condition.as_bytes(), value), Err(Fault::Condition), "{condition}");
        }
    }
}

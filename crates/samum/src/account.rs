//! Looks up users and groups by name in `/etc/passwd` and `/etc/group` (passwd(5), group(5)).
//!
//! Users and groups from other sources (LDAP) can be named by their numbers.

use std::fs;

/// The number of a user that is given by name or by number.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn user(name: &str) -> Result<u32, String> {
    look_up("user", "/etc/passwd", name)
}

/// The number of a group that is given by name or by number.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn group(name: &str) -> Result<u32, String> {
    look_up("group", "/etc/group", name)
}

fn look_up(kind: &str, file: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let table = fs::read(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    find(&String::from_utf8_lossy(&table), name).ok_or_else(|| {
        format!(
            "there is no {kind} {name} in {file} (a {kind} from another source can be given by its number)"
        )
    })
}

/// The number in a line `NAME:PASSWORD:NUMBER:…`.
fn find(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? == name { fields.nth(1)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whole() {
        let table =
            "root:x:0:0:root:/root:/bin/sh\nwww-data2:x:7:7\nbad\nwww-data:x:33:33:::\n+::\n";
        assert_eq!(find(table, "www-data"), Some(33));
        assert_eq!(find(table, "root"), Some(0));
        for missing in ["www", "x", "bad", "+", ""] {
            assert_eq!(find(table, missing), None, "{missing}");
        }
    }

    #[test]
    fn numbers_need_no_table() {
        assert_eq!(user("12345"), Ok(12345));
        assert!(group("no-such-group").unwrap_err().contains("by its number"));
    }
}

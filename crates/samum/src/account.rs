//! Looks up users and groups by name in `/etc/passwd` and `/etc/group` (passwd(5), group(5)).
//!
//! Users and groups from other sources (LDAP) can be named by their numbers.

use std::fs;
use std::io;

use config::Account;
use rights::User;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The number of a user that is given by name or by number.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn user(name: &str) -> Result<u32, String> {
    look_up("user", USERS, name)
}

/// The number of a group that is given by name or by number.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn group(name: &str) -> Result<u32, String> {
    look_up("group", GROUPS, name)
}

/// The user that a server becomes.
///
/// # Errors
///
/// A sentence for the operator.
pub(crate) fn find_user(account: &Account) -> Result<User, String> {
    find_in(account, &table(USERS)?, &table(GROUPS)?)
}

fn look_up(kind: &str, file: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    find(&table(file)?, name).ok_or_else(|| missing(kind, file, name))
}

fn missing(kind: &str, file: &str, name: &str) -> String {
    format!(
        "there is no {kind} {name} in {file} (a {kind} from another source can be given by its number)"
    )
}

/// The text of a table. An image for containers may have none, which is as good as an empty one.
fn table(file: &str) -> Result<String, String> {
    match fs::read(file) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("cannot read {file}: {error}")),
    }
}

/// Finds a user with its groups in the two tables.
fn find_in(account: &Account, users: &str, groups: &str) -> Result<User, String> {
    let named = account.user.as_str();
    let line = users.lines().find(|line| {
        let mut fields = line.split(':');
        fields.next() == Some(named) || fields.nth(1).is_some_and(|number| number == named)
    });
    let field = |index| line.and_then(|line: &str| line.split(':').nth(index));
    let number = |index| field(index).and_then(|text| text.parse().ok());
    let uid = number(2).or_else(|| named.parse().ok());
    let uid = uid.ok_or_else(|| missing("user", USERS, named))?;
    let (gid, others) = match &account.group {
        Some(group) => {
            let gid = group.parse().ok().or_else(|| find(groups, group));
            (gid.ok_or_else(|| missing("group", GROUPS, group))?, Vec::new())
        }
        None => {
            let gid = number(3).ok_or_else(|| {
                format!(
                    "{USERS} does not say the group of the user {named}: give it, too, as in `{named}:{named}`"
                )
            })?;
            (gid, memberships(groups, field(0).unwrap_or_default()))
        }
    };
    Ok(User { name: account.to_string(), uid, gid, groups: others })
}

/// The groups that have a user as a member: lines `NAME:PASSWORD:NUMBER:USER,USER,…`.
fn memberships(groups: &str, user: &str) -> Vec<u32> {
    let number = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let number = fields.next()?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == user).then_some(number)
    };
    groups.lines().filter_map(number).collect()
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
    fn a_user_has_its_groups_unless_one_is_given() {
        let users = "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/false\nbad:x:y:z\n";
        let groups = "root:x:0:\nweb:x:34:\nadm:x:4:web,other\nssl:x:5:other,web\nnot:x:6:web2\n";
        for (user, group, expected) in [
            ("web", None, Ok((33, 34, vec![4, 5]))),
            ("33", None, Ok((33, 34, vec![4, 5]))),
            ("web", Some("adm"), Ok((33, 4, vec![]))),
            ("web", Some("77"), Ok((33, 77, vec![]))),
            ("65532", Some("65532"), Ok((65_532, 65_532, vec![]))),
            ("root", None, Ok((0, 0, vec![]))),
            ("65532", None, Err("does not say the group of the user 65532")),
            ("nobody", None, Err("there is no user nobody in /etc/passwd")),
            ("bad", None, Err("there is no user bad")),
            ("web", Some("none"), Err("there is no group none in /etc/group")),
        ] {
            let account = Account { user: user.to_owned(), group: group.map(str::to_owned) };
            match (find_in(&account, users, groups), expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!((found.uid, found.gid, found.groups), expected, "{account}");
                }
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{account}: {why}"),
                (found, expected) => panic!("{account}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn numbers_need_no_table() {
        assert_eq!(user("12345"), Ok(12345));
        assert!(group("no-such-group").unwrap_err().contains("by its number"));
    }
}

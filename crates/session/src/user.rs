//! The name of the user who makes a request.

use std::rc::Rc;

/// The longest name of a user, in bytes. Each waiting request and each record may keep one.
pub const NAME_BYTES_MAX: usize = 256;

/// The user who makes a request, as an authorizer has found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(Rc<Name>);

// A pointer of one word, because each answer has room for it.
#[derive(Debug, PartialEq, Eq)]
struct Name(Box<str>);

impl User {
    /// The user with this name, which may have any characters. `None` if the name is empty or longer than
    /// [`NAME_BYTES_MAX`]: a part of a name could be the name of another user.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let is_possible = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        is_possible.then(|| Self(Rc::new(Name(name.into()))))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_whole_or_none() {
        for (len, is_user) in
            [(0, false), (1, true), (NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)]
        {
            let name = "a".repeat(len);
            assert_eq!(User::new(&name).map(|user| user.name() == name), is_user.then_some(true));
        }
    }
}

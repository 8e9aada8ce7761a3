//! Finds the name that a user probably meant.

/// Returns the name that is most similar to a text, if one is similar enough: at most a third of its
/// characters differ.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(text, name);
    let named = names.into_iter().map(|name| (distance(name), name));
    let most = |name: &str| (name.len().max(text.len()) / 3).max(1);
    named.filter(|(distance, name)| *distance <= most(name)).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_name_is_found_despite_a_typing_error() {
        let names = ["hosts", "listen", "log", "timeout-idle", "timeout-disk"];
        for (text, expected) in [
            ("host", Some("hosts")),
            ("lisetn", Some("listen")),
            ("timeout_idle", Some("timeout-idle")),
            ("timeout", None),
            ("lag", Some("log")),
            ("root", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, names), expected, "{text}");
        }
    }
}

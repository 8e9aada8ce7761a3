//! The keys of an element of `headers`.

use super::patterns::read_pattern;
use super::text::some_list_text;
use super::{Key, set};
use crate::value::quoted;
use crate::{HeaderRule, placeholder, rule};

/// The keys of an element of `headers`.
pub(super) const HEADER: &[Key<HeaderRule>] = &[
    Key {
        name: "match",
        kind: "pattern",
        default: "all paths",
        example: r#""*.css""#,
        doc: "The pattern that a path must match: if a file is sent, its path or the path that led to the file, such \
              as `/` for `/index.html`; in other responses, such as errors, the path of the request. The patterns \
              are like the patterns of routes; several patterns need several elements.",
        read: |rule, node, notes| rule.pattern = read_pattern(node, notes),
        write: |rule| rule.pattern.as_ref().map(|pattern| quoted(pattern.as_str())),
    },
    Key {
        name: "status",
        kind: "status, class of statuses, or list of them",
        default: "all statuses; those of success and of redirects for the fields about caching",
        example: r#"["4xx", 503]"#,
        doc: "The statuses of the responses that are changed. Without this key, the fields about caching are set and \
              removed if the status is 200, 201, 204, 206, 301, 302, 303, 304, 307 or 308, as with `add_header` of \
              nginx: so no cache keeps an error as long as a file. These fields are `Cache-Control` and its kind \
              (`CDN-Cache-Control`, `Surrogate-Control`, `Edge-Control`, `X-Accel-Expires`), `Expires` and `Age`. \
              All other fields change in all responses. With this key, all fields change only in responses that have \
              one of its statuses.",
        read: |rule, node, notes| {
            let list = if node.is_list() {
                node.list(notes, |node, notes| node.quantity(rule::status_set, notes))
            } else {
                node.quantity(rule::status_set, notes).map(|status| vec![status])
            };
            if node.is_empty_list() {
                notes.error(node.place, "expected at least one status");
            }
            set(&mut rule.statuses, list);
        },
        write: |rule| some_list_text(&rule.statuses),
    },
    Key {
        name: "set",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ Cache-Control = "max-age=86400" }"#,
        doc: "Fields that are set in responses; they replace fields with the same names.",
        read: |rule, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, place, node) in table.entries() {
                let name = rule::field_name(name).map_err(|why| notes.error(place, why));
                if let (Ok(name), Some(value)) = (name, node.text(rule::field_value, notes)) {
                    if let Some(variable) = placeholder::any(&value).filter(|_| !node.is_secret()) {
                        let text = format!(
                            "{variable} is sent as it is: the fields of responses have no variables"
                        );
                        notes.warning(node.place, text);
                    }
                    rule.set.push((name, value));
                }
            }
        },
        write: |rule| {
            let field =
                |(name, value): &(String, String)| format!("{} = {}", quoted(name), quoted(value));
            let all: Vec<_> = rule.set.iter().map(field).collect();
            (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
        },
    },
    Key {
        name: "remove",
        kind: "list of names",
        default: "`[]`",
        example: r#"["Server"]"#,
        doc: "Fields that are left out.",
        read: |rule, node, notes| {
            let list = node.list(notes, |node, notes| node.text(rule::field_name, notes));
            set(&mut rule.remove, list);
        },
        write: |rule| some_list_text(&rule.remove),
    },
];

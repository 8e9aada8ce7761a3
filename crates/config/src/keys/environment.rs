//! The variables of an environment, in `cgi` and `fastcgi`.

use crate::message::Notes;
use crate::node::Node;
use crate::placeholder;
use crate::value::{self, quoted};

/// Reads variables of an environment.
pub(super) fn read_variables(to: &mut Vec<(String, String)>, node: Node<'_>, notes: &mut Notes) {
    let Some(table) = node.table(notes) else { return };
    for (name, place, node) in table.entries() {
        if let Some(text) = node.as_text() {
            notes.hide(node.place, text);
        }
        let name = value::variable_name(name).map_err(|why| notes.error(place, why));
        if let (Ok(name), Some(value)) = (name, node.text(value::variable, notes)) {
            if let Some(variable) = placeholder::any(&value).filter(|_| !node.is_secret()) {
                let text = format!(
                    "{variable} is passed as it is: these values have no variables, and the usual ones of CGI are set anyway"
                );
                notes.warning(node.place, text);
            }
            to.push((name, value));
        }
    }
}

pub(super) fn variables_text(variables: &[(String, String)]) -> Option<String> {
    let variable =
        |(name, value): &(String, String)| format!("{} = {}", quoted(name), quoted(value));
    let all: Vec<_> = variables.iter().map(variable).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}

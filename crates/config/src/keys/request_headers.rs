//! The table `request-headers`, whose keys are the names of fields.

use std::sync::Arc;

use crate::RequestHeader;
use crate::message::Notes;
use crate::node::Node;
use crate::placeholder::{self, Placeholder};
use crate::value::{exact, quoted};

/// Reads the fields that servers get.
pub(super) fn read_request_headers(to: &mut Vec<RequestHeader>, node: Node<'_>, notes: &mut Notes) {
    let Some(table) = node.table(notes) else { return };
    to.clear();
    for (name, place, node) in table.entries() {
        if let Some(text) = node.as_text() {
            notes.hide(node.place, text);
        }
        if let Some(other) = to.iter().find(|other| other.is_named(name.as_bytes())) {
            notes.error(place, format!("`{}` is the same field for a server", other.name()));
        } else if to.len() == RequestHeader::FIELDS_MAX {
            notes.error(place, "a route has 64 fields at most");
            return;
        } else if let Err(why) = RequestHeader::check_name(name) {
            notes.error(place, why);
        } else {
            to.extend(node.template(|text| RequestHeader::new(name, text), notes));
            if let Some(Placeholder { text, counterpart }) =
                node.as_text().and_then(placeholder::braced)
                && !node.is_secret()
            {
                let counterpart = counterpart.map(|own| format!(": write {own}"));
                let advice =
                    counterpart.unwrap_or_else(|| ", as it is no variable here".to_owned());
                notes.warning(node.place, format!("`{text}` is sent as it is{advice}"));
            }
            let bytes: usize = to.iter().map(|field| field.name().len() + field.text().len()).sum();
            if bytes > RequestHeader::BYTES_MAX {
                notes.error(place, "the fields of a route have 32 KiB at most");
                return;
            }
        }
    }
}

pub(super) fn request_headers_text(fields: &Arc<[RequestHeader]>) -> Option<String> {
    let field =
        |field: &RequestHeader| format!("{} = {}", quoted(field.name()), exact(field.text()));
    let all: Vec<_> = fields.iter().map(field).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}

const _: () = assert!(
    RequestHeader::FIELDS_MAX == 64 && RequestHeader::BYTES_MAX == 32 * 1024,
    "the messages say so"
);

//! The keys of the table `limits`.

use super::{Key, inline_text, set, unless_none};
use crate::draft::Shared;
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, quoted};
use crate::{Limits, Rate};

/// The keys of `limits`.
pub(super) const LIMITS: &[Key<Shared, Limits>] = &[
    Key {
        name: "connections-per-ip",
        kind: "number, or `none`",
        default: "`\"none\"`",
        example: "64",
        doc: "Open connections of one IPv4 address, or of one /64 of IPv6 addresses.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                node.number(1..=1 << 20, notes).and_then(|number| u32::try_from(number).ok())
            };
            set(&mut shared.limits.connections, unless_none(node, notes, read));
        },
        write: |limits| {
            Some(limits.connections.map_or_else(none_text, |number| number.to_string()))
        },
    },
    Key {
        name: "requests-per-ip",
        kind: "rate, or `none`",
        default: "`\"none\"`",
        example: r#""100/s burst 200""#,
        doc: "Requests of one IPv4 address, or of one /64 of IPv6 addresses: `NUMBER/s`, `NUMBER/min` or `NUMBER/h`. \
              Further requests are answered 429. The burst is the number of requests that may come without a pause, \
              by default the requests of a second. Routes with the limit of their site count together; a route that \
              sets the key counts alone, even if the limits are equal.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::rate, notes);
            set(&mut shared.limits.requests, unless_none(node, notes, read));
            shared.limits.has_own_requests = shared.limits.requests.is_some();
        },
        write: |limits| limits.has_own_requests.then(|| requests_text(limits.requests)),
    },
    Key {
        name: "bytes-per-connection",
        kind: "bytes per second, or `none`",
        default: "`\"none\"`",
        example: r#""20MiB/s""#,
        doc: "Bytes per second that are sent on a connection.",
        read: |shared, node, notes| {
            let read =
                |node: Node<'_>, notes: &mut Notes| node.quantity(value::bytes_per_second, notes);
            shared.rate_place = Some(node.place);
            set(&mut shared.limits.bytes_per_second, unless_none(node, notes, read));
        },
        write: |limits| {
            let text = |bytes| quoted(&format!("{}/s", value::bytes_text(bytes)));
            Some(limits.bytes_per_second.map_or_else(none_text, text))
        },
    },
];

/// Writes the limits of a route, or those of a site. A limit on requests that a route has from its site is not among the
/// limits of the route.
pub(super) fn limits_text(limits: &Limits) -> String {
    inline_text(LIMITS, limits)
}

fn requests_text(rate: Option<Rate>) -> String {
    rate.map_or_else(none_text, |rate| quoted(&value::rate_text(rate)))
}

fn none_text() -> String {
    quoted("none")
}

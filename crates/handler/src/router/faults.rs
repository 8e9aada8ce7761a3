//! Lines for the operator: for a request that the server answers with an error, a line says the reason. The status page
//! shows the last lines.

use http::{Head, Status, Target};
use ring::Time;

use crate::Response;
use crate::status_page::{Board, ErrorKind, Example};
use gateways::lines::Budget;
use session::reason::Reason;
use session::request_id::RequestId;
use session::shell::Shell;

/// Bytes of the host and of the path of a request that a line shows.
const SHOWN_BYTES_MAX: usize = 256;

/// The lines that wait until the handler acts. Their budgets bound their number.
#[derive(Debug)]
pub(super) struct Faults {
    /// A budget for each kind of errors, so that requests for missing files keep no other line out of the log.
    budgets: [Budget; ErrorKind::COUNT],
    /// The budget of examples whose lines are written elsewhere.
    told: Budget,
    lines: Vec<String>,
}

/// The name of the lines about errors of a kind.
const fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Forbidden => "about responses with 403",
        ErrorKind::Missing => "about responses with 404",
        ErrorKind::Server => "about responses with 5xx",
    }
}

impl Default for Faults {
    fn default() -> Self {
        let budgets = core::array::from_fn(|_| Budget::of_clients());
        Self { budgets, told: Budget::of_clients(), lines: Vec::new() }
    }
}

impl Faults {
    /// Notes the reason of a response, if the operator has no line about it yet.
    /// The board gets each error that has a line, and some of those whose lines are written elsewhere.
    pub(super) fn note(
        &mut self,
        board: &Board,
        head: &Head<'_>,
        response: &Response<'_>,
        id: impl FnOnce() -> RequestId,
        (now, unix): (Time, i64),
    ) {
        let Some(reason) = response.reason else { return };
        let status = response.outcome().0;
        let Some(kind) = ErrorKind::of(status) else { return };
        if reason.is_told() {
            if *reason != Reason::Fixed && self.told.take(now).is_some() {
                board.note(kind, example(unix, status, shown_of(head), &id(), reason));
            }
            return;
        }
        let Some(dropped) = self.budgets[kind as usize].take(now) else { return };
        if dropped > 0 {
            self.lines.push(format!("{dropped} lines {} were dropped", name(kind)));
        }
        let [method, host, path] = shown_of(head);
        self.lines.push(format!("{} for {method} {host}{path}: {reason}", status.code()));
        board.note(kind, example(unix, status, [method, host, path], &id(), reason));
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Writes the lines that wait.
    pub(super) fn write(&mut self, shell: &mut Shell) {
        for line in self.lines.drain(..) {
            shell.note(&line);
        }
    }
}

/// The method, the host and the path of a request, as they are shown.
fn shown_of(head: &Head<'_>) -> [String; 3] {
    let path = match head.target {
        Target::Origin { path, .. } => path,
        Target::Asterisk => b"*",
        Target::Authority => b"",
    };
    [head.method.as_bytes(), head.host().unwrap_or_default(), path].map(shown)
}

/// The example of a response to a request whose method, host and path these are.
fn example(
    unix: i64,
    status: Status,
    [method, host, path]: [String; 3],
    id: &RequestId,
    reason: &Reason,
) -> Example {
    let (status, id, reason) = (status.code(), id.as_str().to_owned(), reason.to_string());
    Example { unix, status, method, host, path, id, reason }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

//! The log and the counters of a client's requests: those whose responses have left, and those that get none.

use core::time::Duration;

use http::Status;
use sendfile::Transport;

use super::Connection;
use super::work::ConnectionWork;
use handler::desk::Desk;
use logs::{Began, Cut, Record};
use session::context::SiteRules as _;
use session::handler::Ticket;
use session::record::More;
use session::shell::Shell;
use session::{Broken, BrokenEnd, Left, Session, Unanswered};

/// The status in the log of a request whose client has left, as nginx writes it.
const CLIENT_LEFT: Status = Status::from_code(499).expect("a code of three digits");

impl<S: Session, T: Transport, A> Connection<S, T, A> {
    /// Logs and counts a request whose response has not begun and never will: its client has left, or the server ends.
    pub(super) fn record_unanswered(
        &self,
        shell: &mut Shell<Desk>,
        id: u64,
        unanswered: &Unanswered,
        cut: Cut,
    ) {
        let Unanswered { request, at, body_bytes, .. } = *unanswered;
        let head = &unanswered.head.as_head();
        // An upstream may have got the id that is made of this ticket.
        let ticket = match request {
            Some(request) => Ticket { connection: id, request },
            None => shell.cx.next_unnamed(),
        };
        let cx = &shell.cx;
        let servings = &shell.desk.servings;
        let recording = servings.recording_of_route(self.origin.listener, head);
        let Some(recording) = recording else { return };
        let began = Began { at, unix_ms: cx.unix_ms(at), disk_wait: Duration::ZERO };
        let status = if cut == Cut::Client { CLIENT_LEFT } else { Status::ServiceUnavailable };
        let more = More::of(&recording, || servings.trusts(self.origin.known_client()));
        let mut record = Record::new(recording, Some(head), status, began, more);
        record.ticket = ticket;
        record.add_body(body_bytes);
        if cx.logs {
            record.client = servings.client(self.origin.known_client(), head);
        }
        if cx.counts {
            let scheme = servings.scheme(self.origin.scheme(), self.origin.known_client(), head);
            record.scheme = scheme.into();
        }
        self.record(shell, &Left::new(record, 0), Some(cut));
    }

    /// Logs and counts a request that has ended alone, and drops its answer.
    #[cold]
    pub(super) fn record_broken(
        &self,
        shell: &mut Shell<Desk>,
        id: u64,
        work: &mut ConnectionWork<S::Work, A>,
        Broken { request, end, cut }: Broken,
    ) {
        drop(work.take_answer(request));
        match end {
            BrokenEnd::Unanswered(unanswered) => {
                self.record_unanswered(shell, id, &unanswered, cut)
            }
            BrokenEnd::Left(left) => self.record(shell, &left, Some(cut)),
            BrokenEnd::Unrecorded => {}
        }
    }

    /// Logs and counts a response that has left, or of which no more will leave.
    pub(super) fn record(&self, shell: &mut Shell<Desk>, left: &Left, cut: Option<Cut>) {
        let Shell { ring, desk, .. } = shell;
        desk.record(ring, &left.record, left.bytes, &self.origin, cut);
    }
}

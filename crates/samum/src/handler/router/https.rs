//! The security of the connection on which a request came, which its site may not permit.

use std::rc::Rc;

use http::Status;

use super::Router;
use super::answer::{Answer, Outcome};
use crate::handler::{Found, Request};
use crate::serving::{Place, Serving};
use config::site::{SiteId, without_port};
use session::shell::Shell;

impl Router {
    /// Refuses a request on a connection whose handshake was for other hosts, before anything of its site is asked. The
    /// client sends it again on another connection.
    #[cold]
    pub(super) fn refuse_misdirected(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        site: SiteId,
    ) -> Found<Answer> {
        if !request.is_again {
            shell.cx.stats.tls_misdirected += 1;
        }
        let place = Place { site, route: None };
        self.refuse(shell, request, serving, place, Outcome::Error(Status::MisdirectedRequest))
    }
}

/// Returns true if a request came on a connection whose handshake was for other hosts than that of the request (RFC 9110
/// §15.5.20). Otherwise a client could reach a site by the handshake of another one, which asks for no certificate.
#[inline]
pub(super) fn is_misdirected(request: &Request<'_>) -> bool {
    let Some(handshake) = request.origin.handshake() else { return false };
    match request.head.host().map(|host| str::from_utf8(without_port(host))) {
        None => !handshake.permits(None),
        Some(Ok(host)) => !handshake.permits(Some(host)),
        // No site has such a host, and no handshake is for it.
        Some(Err(_)) => true,
    }
}

//! The header of the PROXY protocol in front of the bytes of a client.

use sendfile::Transport;

use super::super::admission;
use super::{After, Connection, Opening, Tools};
use handler::Handler;
use logs::Cut;
use session::Session;
use session::other_protocol::OtherProtocol;
use session::proxy_protocol::{Header, Invalid};
use session::shell::Complaint;

impl<S: Session, T: Transport, A> Connection<S, T, A> {
    /// Takes bytes that may be part of a header of the PROXY protocol.
    #[cold]
    pub(super) fn handle_header<H: Handler<Answer = A>>(
        &mut self,
        tools: &mut Tools<'_, S, H>,
        bytes: &[u8],
    ) -> After {
        let Some(Opening { header, .. }) = self.opening.as_deref_mut() else { return After::Keep };
        let Some(reader) = header else { return After::Keep };
        let shell = &mut *tools.shell;
        match reader.push(bytes) {
            Ok(None) => After::Keep,
            Ok(Some(Header { client, rest })) => {
                *header = None;
                if let Some(client) = client {
                    self.transport.set_client(client.ip());
                    if !admission::enter(shell, &mut self.origin, Some(client.ip())) {
                        return After::Close(Cut::Server);
                    }
                }
                if rest.is_empty() { After::Keep } else { self.handle_received(tools, &rest) }
            }
            Err(Invalid) => {
                shell.cx.stats.proxy_header_errors.add(1);
                let client = self.origin.client().map_or("-", |client| &*client.name);
                let is_tls = OtherProtocol::of(reader.bytes()) == Some(OtherProtocol::Tls);
                let text = if is_tls {
                    format!(
                        "{client} speaks TLS where a header of the PROXY protocol has to be; closed the connection (the \
                         proxy has to send the header first; TLS may follow if the listener has `tls = true`)"
                    )
                } else if reader.is_trusted() {
                    format!("{client}: not a header of the PROXY protocol; closed the connection")
                } else {
                    format!(
                        "{client} is not among trusted-proxies and sends a header of the PROXY protocol; \
                         closed the connection"
                    )
                };
                shell.complain(Complaint::ProxyHeader, &text);
                After::Close(Cut::Client)
            }
        }
    }
}

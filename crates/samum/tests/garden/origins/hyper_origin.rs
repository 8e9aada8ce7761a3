//! An origin of hyper, on a thread of this process.

use core::convert::Infallible;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

/// Serves connections until the process ends.
pub(super) fn serve(listener: TcpListener) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async {
                let connection = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                // The client may leave at any time.
                let _ = connection.await;
            });
        }
    });
}

/// The pieces of a body. Its length is known if there is one piece.
#[derive(Debug)]
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.iter().map(Bytes::len).collect::<Vec<_>>()[..] {
            [] => SizeHint::with_exact(0),
            [length] => SizeHint::with_exact(length as u64),
            _ => SizeHint::default(),
        }
    }
}

async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Pieces>> {
    let response = Response::builder().header("Server", "hyper");
    let (response, pieces) = match request.uri().path() {
        "/fixed" => {
            (response.header("Set-Cookie", "a=1").header("Set-Cookie", "b=2"), vec!["fixed".into()])
        }
        "/chunked" => (response, vec!["one".into(), "two".into(), "three".into()]),
        "/empty" => (response.status(204), vec![]),
        "/unchanged" => (response.status(304).header("ETag", "\"x\""), vec![]),
        "/missing" => (response.status(404), vec!["none".into()]),
        _ => (response, vec![echo(request).await?]),
    };
    Ok(response.body(Pieces(pieces.into())).expect("a response"))
}

async fn echo(request: Request<Incoming>) -> hyper::Result<Bytes> {
    let mut fields = BTreeMap::new();
    for (name, value) in request.headers() {
        let values: &mut Vec<&[u8]> = fields.entry(name.as_str()).or_default();
        values.push(value.as_bytes());
    }
    let mut text = format!("{} {}\n", request.method(), request.uri()).into_bytes();
    for (name, values) in fields {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(&values.join(&b", "[..]));
        text.push(b'\n');
    }
    text.push(b'\n');
    let mut body = request.into_body();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
    }
    Ok(text.into())
}

//! The page for Prometheus: what all workers have counted.

use http::ResponseHead;
use ring::Time;
use sendfile::Piece;

use super::{Body, BodySink, Part, Produced, Producer, Response};
use crate::serving::Snapshot;
use metrics::{CONTENT_TYPE, Exposition, Metrics};

/// The response to a scrape. Its text is made while it is sent, because its length grows with the
/// sites, methods and statuses that have occurred.
pub(super) fn response(
    metrics: &Metrics,
    snapshot: &Snapshot,
    now: Time,
    bare: ResponseHead<'static>,
) -> Response<'static> {
    let head = ResponseHead {
        content_type: Some(CONTENT_TYPE.as_bytes().into()),
        cache_control: Some(b"no-store".into()),
        nosniff: true,
        ..bare
    };
    let servers = snapshot.upstreams().flat_map(|upstream| upstream.numbers(now));
    let page = Page { exposition: metrics.exposition(servers) };
    Response::new(head, Body::from(Part::Producer(Box::new(page))))
}

#[derive(Debug)]
struct Page {
    exposition: Exposition,
}

impl Producer for Page {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let part = self.exposition.next_part(room);
        if part.is_empty() {
            return Produced::Ended;
        }
        sink.push(Piece::Bytes(part.into_bytes()));
        Produced::More
    }

    fn weight(&self) -> u64 {
        self.exposition.memory() as u64
    }
}

//! The metrics page for Prometheus, and the figures of the status page. Both are sums over all workers.

use std::fs;

use http::ResponseHead;
use ring::Time;
use sendfile::Piece;

use super::{Body, BodySink, Part, Produced, Producer, Response};
use crate::serving::Snapshot;
use crate::status_page::{Board, Figures, LISTED_MAX};
use metrics::{CONTENT_TYPE, Exposition, Metrics, ProcessNumbers};
use session::context::Context;

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
    let process = process();
    let body = ExpositionBody { exposition: metrics.exposition(servers, process.as_ref()) };
    Response::new(head, Body::from(Part::Producer(Box::new(body))))
}

/// The figures of the operator's page.
pub(super) fn figures(
    board: &Board,
    metrics: &Metrics,
    snapshot: &Snapshot,
    cx: &Context,
) -> Figures {
    let mut servers: Vec<_> =
        snapshot.upstreams().flat_map(|upstream| upstream.numbers(cx.now)).collect();
    let servers_all = servers.len();
    // Those that are down are shown, however many there are.
    servers.sort_by_key(|server| server.is_up);
    servers.truncate(LISTED_MAX);
    let mut programs: Vec<_> = snapshot.programs().map(|directory| directory.numbers()).collect();
    let programs_all = programs.len();
    // Those with the longest queues come first.
    programs.sort_by_key(|one| core::cmp::Reverse((one.waiting, one.running)));
    programs.truncate(LISTED_MAX);
    Figures {
        at: cx.now,
        unix: cx.unix,
        summary: metrics.summary(LISTED_MAX),
        process: process(),
        servers,
        servers_all,
        programs,
        programs_all,
        sites: snapshot.sites_len(),
        routes: snapshot.routes_len(),
        examples: board.examples(),
        viewers: board.viewers(),
    }
}

/// The numbers of the process; `None` without `/proc`, which is in memory.
fn process() -> Option<ProcessNumbers> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have blanks (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // `state` is the third field of the line, and the first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    // A confined server may not read it.
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|boot| boot.parse::<u64>().ok());
    let resident = field(24)?.saturating_mul(rustix::param::page_size() as u64);
    // Before Linux 6.2 its size is 0.
    let descriptors = fs::metadata("/proc/self/fd").ok().map(|open| open.len());
    Some(ProcessNumbers {
        cpu: (field(14)? + field(15)?).saturating_mul(1_000_000_000 / ticks),
        resident,
        address_space: field(23)?,
        started: boot.zip(field(22)).map(|(boot, start)| boot + start / ticks),
        descriptors: descriptors.filter(|count| *count > 0),
        descriptors_max: rights::descriptors::limit() as u64,
    })
}

#[derive(Debug)]
struct ExpositionBody {
    exposition: Exposition,
}

impl Producer for ExpositionBody {
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

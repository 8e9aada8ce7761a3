//! Measures the memory and the temporary files that proxies hold for slow clients, while an origin can
//! send far faster than the clients receive.

use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use super::super::Dropped;
use super::super::League;
use super::super::peers::Peer;
use super::super::rounds::Rounds;
use super::super::site::Site;
use super::Stage;
use crate::load::slow::{self, SlowReaders};
use crate::load::{self, Plan, Target};
use crate::machine::read;
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit};

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    let title = "Memory and temporary files of a proxy with slow clients";
    Test::new("proxied-slow", title, move |recorder| run(&league, recorder))
        .scales("no more than the buffers that were configured")
        .x("round")
        .warm_up("one request, after which the idle proxy is measured")
        .tabled()
        .figure(Figure::of(Unit::Bytes).titled("held").only(&[MEMORY, FILES]))
        .figure(Figure::of(Unit::Nanoseconds).titled(CPU).only(&[CPU]))
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let size = if league.quick { BYTES / 16 } else { BYTES };
    let site = Site::new(league.root.as_deref())?;
    site.has_room_for(size + ROOM)?;
    let files = vec![site.file("warm", 1024)?, site.file("large", size)?];
    let stage = Stage::new(league, &site, &files)?;
    let mut rounds = Rounds::default();
    let mut remarks = BTreeMap::<&str, Vec<String>>::new();
    let mut dropped = Dropped::default();
    let count = league.proxies.len();
    let turns = (0..recorder.steps()).flat_map(|round| {
        league.turns.of(count, round).into_iter().map(move |index| (round + 1, index))
    });
    let total = recorder.steps() * count;
    for (nth, (round, index)) in turns.enumerate() {
        let peer = &league.proxies[index];
        if recorder.is_stopped() {
            break;
        }
        if dropped.has(&peer.name) {
            continue;
        }
        match hold(&stage, recorder, peer, size) {
            Ok(Some(held)) => {
                for (what, unit, value) in held.figures {
                    rounds.record(recorder, &peer.name, what, unit, float(round), value);
                }
                remarks.entry(&peer.name).or_default().extend(held.remark);
            }
            Ok(None) => {}
            Err(fault) => dropped.add(recorder, &peer.name, round, fault),
        }
        recorder.progress(float(nth + 1) / float(total));
    }
    let rows = league.proxies.iter().map(|peer| &peer.name[..]).filter_map(|name| {
        rounds.spread(name, MEMORY)?;
        let mut remarks = remarks.remove(name).unwrap_or_default();
        remarks.dedup();
        let mebibytes = |bytes: f64| format!("{:.1}", bytes / float(1 << 20));
        let milliseconds = |ns: f64| format!("{:.0}", ns / 1e6);
        Some(vec![
            name.to_owned(),
            rounds.cell(name, MEMORY, mebibytes),
            rounds.cell(name, FILES, mebibytes),
            rounds.cell(name, SOCKETS, mebibytes),
            rounds.cell(name, SENT, mebibytes),
            rounds.cell(name, CPU, milliseconds),
            remarks.join("; "),
        ])
    });
    let rows = rows.collect();
    let head = [
        "server",
        "memory over idle, MiB",
        "temporary files, MiB",
        "sockets of the machine, MiB",
        "received per second, MiB",
        "CPU, ms per GiB",
        "remarks",
    ];
    recorder.table(Table {
        title: format!(
            "{} clients that receive {}/s each of {}: the most at any time, median (least–greatest) of rounds; {}",
            league.clients,
            Unit::Bytes.show(float(RATE)),
            Unit::Bytes.show(float(size)),
            load::receives(slow::COPIES)
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    recorder.note(
        "memory is PSS; sockets are all TCP sockets of the machine, those of the origin and of the clients, too",
    );
    stage.describe(recorder, &league.proxies);
    dropped.result(league.proxies.len())
}

/// The figures of one round.
struct Held {
    figures: [(&'static str, Unit, f64); 5],
    remark: Option<String>,
}

/// Starts a proxy, measures it idle, and then with slow clients.
fn hold(
    stage: &Stage<'_>,
    recorder: &mut Recorder<'_>,
    peer: &Peer,
    size: u64,
) -> Result<Option<Held>, Fault> {
    let league = stage.league;
    let Some(mut server) = stage.start(recorder, peer, 1) else { return Ok(None) };
    thread::sleep(SETTLE);
    let (idle, cpu) = (server.memory(), server.cpu());
    let target = Target { len: Some(size), ..Target::new("/large") };
    let plan = Plan { connections: league.clients, ..league.plan(&server, vec![target]) };
    let clients = SlowReaders::start(plan, RATE)?;
    let start = Instant::now();
    let (mut memory, mut files, mut sockets) = (idle, 0, 0);
    let mut has_room = true;
    while start.elapsed() < LENGTHS * league.length && has_room && !recorder.is_stopped() {
        thread::sleep(SAMPLE);
        // A proxy may put all that its clients download into temporary files.
        has_room = stage.site.has_room_for(ROOM).is_ok();
        memory = memory.max(server.memory());
        files = files.max(server.temporary_files());
        sockets = sockets.max(socket_memory());
    }
    let (sent, took) = (float(clients.bytes()), start.elapsed().as_secs_f64());
    let cpu = server.cpu() - cpu;
    let reconnects = clients.stop()?;
    let wanted = float(RATE) * float(league.clients) * took;
    let mut remark = (sent < RATE_MISSED * wanted)
        .then(|| format!("clients received {:.0} % of what they could", 100.0 * sent / wanted));
    if reconnects > 0 {
        remark = Some(format!("{reconnects} connections ended"));
    }
    if !has_room {
        remark = Some("ended early: the disk was nearly full".to_owned());
    }
    let figures = [
        (MEMORY, Unit::Bytes, float(memory - idle)),
        (FILES, Unit::Bytes, float(files)),
        (SOCKETS, Unit::Bytes, float(sockets)),
        (SENT, Unit::BytesPerSecond, sent / took),
        (CPU, Unit::Nanoseconds, cpu.as_secs_f64() * 1e9 / (sent / float(1 << 30))),
    ];
    Ok(Some(Held { figures, remark }))
}

/// The bytes of memory of all TCP sockets of this machine (proc(5), `/proc/net/sockstat`).
fn socket_memory() -> u64 {
    tcp_pages(&read("/proc/net/sockstat")).unwrap_or(0) * rustix::param::page_size() as u64
}

fn tcp_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    line.split_whitespace().skip_while(|word| *word != "mem").nth(1)?.parse().ok()
}

pub(crate) const MEMORY: &str = "memory over idle";
pub(crate) const FILES: &str = "temporary files";
const SOCKETS: &str = "memory of sockets";
const SENT: &str = "received by clients";
pub(crate) const CPU: &str = "CPU per GiB";

/// The bytes of the file that clients download.
const BYTES: u64 = 256 << 20;

/// The bytes of the disk that must be free.
const ROOM: u64 = 4 << 30;

/// The bytes per second that each client receives.
const RATE: u64 = 1 << 20;

/// The part of the possible bytes that clients must receive; below it there is a remark.
const RATE_MISSED: f64 = 0.9;

/// Times `--secs` that the clients receive.
const LENGTHS: u32 = 3;

/// The interval of looks at memory.
const SAMPLE: Duration = Duration::from_millis(200);

/// The pause before memory is measured, because some is freed late.
const SETTLE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockstat_counts_pages() {
        let text =
            "sockets: used 70\nTCP: inuse 3 orphan 0 tw 4 alloc 5 mem 17\nUDP: inuse 0 mem 2\n";
        assert_eq!(tcp_pages(text), Some(17));
        assert_eq!(tcp_pages(""), None);
    }
}

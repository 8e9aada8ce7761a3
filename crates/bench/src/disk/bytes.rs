//! Checks that each strategy delivers every byte: cold files of awkward and of large sizes, to several
//! clients at the same time, compared byte by byte. Nothing is timed, so system calls are counted and memory is
//! measured at the same time.

use core::time::Duration;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use super::Plan;
use super::calls::Calls;
use super::sender::Strategy;
use crate::load::{self, Order, Target};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::unit::Better;
use crate::{Fault, Recorder, Test, Unit, interrupt};

/// The test.
pub(super) fn test(plan: &Rc<Plan>) -> Test {
    let plan = Rc::clone(plan);
    Test::new("bytes", "Correctness of the bytes, and number of system calls", move |recorder| {
        run(&plan, recorder)
    })
    .scales("every byte, and system calls that do not grow with the bytes")
    .warm_up("none: nothing is timed")
    .steps(1, 1)
    .tabled()
    .better(CALLS, Better::Less)
    // A single value makes no plot, so there is no series with this unit.
    .figure(Figure::of(Unit::Percent))
}

fn run(plan: &Plan, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = &plan.site()?;
    let large = if plan.quick { LARGE / 8 } else { LARGE };
    let lens = SIZES.into_iter().chain([large; LARGE_COUNT]);
    let names: Vec<String> = lens
        .enumerate()
        .map(|(i, len)| site.file(&i.to_string(), len))
        .collect::<Result<_, _>>()?;
    let targets: Vec<Target> = names
        .iter()
        .map(|name| {
            let body: Arc<[u8]> = fs::read(site.root().join(name))?.into();
            Ok(Target {
                len: Some(body.len() as u64),
                body: Some(body),
                ..Target::new(format!("/{name}"))
            })
        })
        .collect::<Result<_, Fault>>()?;
    let total: u64 = targets.iter().filter_map(|target| target.len).sum();
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (nth, &strategy) in plan.strategies.iter().enumerate() {
        if recorder.is_stopped() {
            break;
        }
        site.evict(&names)?;
        let Some(server) = plan.start(recorder, strategy, site, None)? else { continue };
        let calls = Calls::of(server.pid());
        let load = load::Plan {
            order: Order::Once,
            connections: CONNECTIONS,
            warmup: Duration::ZERO,
            duration: LIMIT,
            cpu: plan.client_cpu,
            ..load::Plan::new(server.address(), targets.clone())
        };
        let measured = load::measure(&load);
        let account = match measured.and_then(|account| interrupt::check().map(|()| account)) {
            // A run that ctrl-C cut short says nothing about the strategy.
            Err(_) if recorder.is_stopped() => break,
            Ok(account) => account,
            Err(error) => {
                failures.push(format!("{}: nothing can be had from it: {error}", strategy.name()));
                continue;
            }
        };
        let memory = server.memory();
        let calls = calls.and_then(Calls::stop).map(|count| float(count) / (float(total) / 1e6));
        if !account.failures().is_empty() || account.bytes != total {
            failures.push(format!(
                "{}: {} of {total} bytes came as they should: {}",
                strategy.name(),
                account.bytes,
                account.failures()
            ));
            continue;
        }
        record(recorder, strategy, &calls, memory);
        let shown = calls.as_ref().map_or_else(|_| "–".to_owned(), |calls| format!("{calls:.1}"));
        if let Err(why) = calls {
            recorder.note(format!("system calls are not counted: {why}"));
        }
        rows.push(vec![
            strategy.name(),
            format!("{:.1}", float(account.bytes) / 1e6),
            shown,
            Unit::Bytes.show(float(memory)),
            strategy.about(),
        ]);
        recorder.progress(float(nth + 1) / float(plan.strategies.len()));
    }
    let head = ["strategy", "MB compared, all right", "system calls per MB", "memory (PSS)", "how"];
    recorder.table(Table {
        title: format!(
            "{} cold files to {CONNECTIONS} clients; system calls of all threads (perf, {}), none of io_uring's \
             operations among them",
            names.len(),
            "raw_syscalls:sys_enter"
        ),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    if failures.is_empty() { Ok(()) } else { Err(Fault::Failed(failures.join("; "))) }
}

fn record(
    recorder: &mut Recorder<'_>,
    strategy: Strategy,
    calls: &Result<f64, String>,
    memory: u64,
) {
    let name = strategy.name();
    if let Ok(calls) = calls {
        recorder.record(&name, CALLS, Unit::Count, 1.0, *calls);
    }
    recorder.record(&name, "memory", Unit::Bytes, 1.0, float(memory));
}

/// The series of system calls.
const CALLS: &str = "system calls per MB";

/// Sizes at the boundaries of strategies: 0, a page, a piece, each with a byte more or less.
const SIZES: [u64; 9] =
    [0, 1, 4095, 4096, 4097, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3_000_001];

/// The sizes of the other files; a quick run has smaller ones.
const LARGE: u64 = 16 << 20;
const LARGE_COUNT: usize = 8;

/// The number of concurrent clients.
const CONNECTIONS: usize = 8;

/// The timeout of a client.
const LIMIT: Duration = Duration::from_secs(60);

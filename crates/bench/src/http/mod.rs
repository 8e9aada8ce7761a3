//! `samum-bench http`: measures one or several HTTP servers, on this machine or another.
//!
//! | test | asks |
//! |---|---|
//! | `connections` | does a request take longer the more connections are open? ("Scalable Network Programming", slides 75 to 77: a dot for each) |
//! | `maximum` | the most requests per second, on connections kept and not |
//! | `latency` | the latency at rates below that, by the clock; and beside slow readers |

use core::cell::OnceCell;
use core::net::SocketAddr;
use core::time::Duration;
use std::rc::Rc;

use crate::args::{Tests, cpu, rate, seconds};
use crate::load::fetch::each_part;
use crate::load::slow::SlowReaders;
use crate::load::{self, Account, Arrival, Plan, Sources, Target, Url};
use crate::processes::{CpuTimes, servers};
use crate::run::{Figure, Table};
use crate::stats::float;
use crate::{Fault, Recorder, Test, Unit, interrupt};

pub mod crowd;
pub(crate) mod figures;

use crowd::{Crowd, End, QUICK_LIMIT};

/// The command line of `samum-bench http`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// URL to request; several URLs are shown in the same plots
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Tests to run: connections, maximum, latency [default: all]
    #[arg(long = "test", value_name = "TEST,...", value_delimiter = ',')]
    pub tests: Vec<String>,
    /// connections: the number to open [default: 15000, quick 500, and none after 15 s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub count: Option<u32>,
    /// maximum, latency: connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Seconds of each measurement [default: 5, quick 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub secs: Option<f64>,
    /// latency: requests per second [default: 10, 50 and 90 % of the maximum]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = rate)]
    pub rates: Vec<f64>,
    /// latency: requests at even intervals instead of those of independent users
    #[arg(long)]
    pub even: bool,
    /// latency: connections that receive slowly; 0 for none
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub slow_readers: u32,
    /// latency: bytes per second that each of those receives
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    pub slow_rate: u64,
    /// latency: path that those connections request [default: the path of the URL]
    #[arg(long, value_name = "PATH")]
    pub slow_path: Option<String>,
    /// maximum, latency: copy received bytes out of the kernel instead of discarding them there
    #[arg(long)]
    pub copy: bool,
    /// CPU of the load generator [default: any]
    #[arg(long, value_name = "N", value_parser = cpu)]
    pub client_cpu: Option<usize>,
    /// The settings of a run.
    #[command(flatten)]
    pub how: crate::args::How,
}

impl Args {
    /// The same as other suites have it.
    #[must_use]
    pub fn tests(&self) -> Tests {
        Tests { tests: self.tests.clone(), list: false, how: self.how.clone() }
    }
}

/// The parameters of all tests.
#[derive(Debug)]
struct Http {
    urls: Vec<Named>,
    connections: usize,
    length: Duration,
    rates: Vec<f64>,
    even: bool,
    slow_readers: usize,
    slow_rate: u64,
    slow_path: Option<String>,
    copy: bool,
    cpu: Option<usize>,
    /// For each URL, whether its server responds, or the reason why it takes no part; empty before the check.
    asked: OnceCell<Vec<Result<(), String>>>,
}

/// A URL as the user gave it, and its parsed form.
type Named = (String, Url);

/// The tests.
///
/// # Errors
/// A message for exit code 2, if an argument is invalid.
pub fn tests(args: &Args) -> Result<Vec<Test>, String> {
    let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    if let Some(path) = args.slow_path.as_ref().filter(|path| !path.starts_with('/')) {
        return Err(format!("'{path}' is not a path: it begins with /"));
    }
    let quick = args.how.quick;
    let parsed = args.urls.iter().map(|text| Ok((text.clone(), Url::parse(text)?)));
    let http = Rc::new(Http {
        urls: parsed.collect::<Result<_, String>>()?,
        connections: index(args.connections),
        length: Duration::from_secs_f64(args.secs.unwrap_or(if quick { 0.5 } else { 5.0 })),
        rates: args.rates.clone(),
        even: args.even,
        slow_readers: index(args.slow_readers),
        slow_rate: args.slow_rate,
        slow_path: args.slow_path.clone(),
        copy: args.copy,
        cpu: args.client_cpu,
        asked: OnceCell::new(),
    });
    let count = |n| index(args.count.unwrap_or(n));
    let test = |name, title, body: Body| {
        let http = Rc::clone(&http);
        Test::new(name, title, move |recorder| {
            let urls = http.answering(recorder)?;
            body(&http, &urls, recorder)
        })
    };
    let dots = |series| Figure::of(Unit::Nanoseconds).titled(series).only(&[series]).log_y(true);
    Ok(vec![
        test("connections", "Latency of requests with N open connections", connections)
            .scales("neither to connect nor to be answered takes longer with 15,000 connections than with one")
            .x("open connections")
            .steps(count(15_000), count(500))
            .figure(dots(CONNECT))
            .figure(dots(REQUEST)),
        test("maximum", "Maximum rate of requests", maximum)
            .scales("as many as the machine's cores allow")
            .x("connections")
            .warm_up("a tenth of each measurement")
            .steps(1, 1)
            .tabled()
            .figure(Figure::of(Unit::PerSecond).titled("kept or not").only(&[KEPT, NOT_KEPT])),
        test("latency", "Latency of requests at fixed rates", latency)
            .scales("a tail that stays short up to 90 % of the maximum")
            .x(figures::ONE_IN)
            .warm_up("a tenth of each measurement")
            .steps(1, 1)
            .tabled()
            .figure(Figure::of(Unit::Nanoseconds).log_x().log_y(true).lines()),
    ])
}

/// Measures the servers at these URLs.
type Body = fn(&Http, &[&Named], &mut Recorder<'_>) -> Result<(), Fault>;

fn connections(http: &Http, urls: &[&Named], recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let count = recorder.steps_within_descriptors(1);
    for (i, (name, url)) in urls.iter().enumerate() {
        if recorder.is_stopped() {
            break;
        }
        let connect = recorder.series(name, CONNECT, Unit::Nanoseconds, count);
        let request = recorder.series(name, REQUEST, Unit::Nanoseconds, count);
        let sources = Sources::enough_for(count, url.address);
        let target = Target::new(&url.path);
        let mut crowd = Crowd::new(url.address, &url.host, &target, sources, http.cpu);
        let mut server = Server::at(url);
        let limit = recorder.is_quick().then_some(QUICK_LIMIT);
        let end = crowd.grow_to(count, limit, |open, step| {
            let x = float(open);
            recorder.push(connect, x, step.connect);
            recorder.push(request, x, step.request);
            recorder.progress((float(i) + x / float(count)) / float(urls.len()));
            !recorder.is_stopped()
        });
        match end {
            End::Enough => {}
            End::Late => recorder.note(format!(
                "{name}: stopped at {} of {count} connections: a quick run opens none after {} s",
                crowd.len(),
                QUICK_LIMIT.as_secs()
            )),
            End::Failed(error) if crowd.is_empty() => recorder.skip(name, error.to_string()),
            End::Failed(error) => {
                recorder.note(format!("{name}: stopped at {} connections: {error}", crowd.len()));
            }
        }
        server.used(recorder);
    }
    Ok(())
}

fn maximum(http: &Http, urls: &[&Named], recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let mut rows = Vec::new();
    for (name, url) in urls {
        for (kind, keep_alive) in [(KEPT, true), (NOT_KEPT, false)] {
            if recorder.is_stopped() {
                break;
            }
            let plan = Plan { keep_alive, ..http.plan(url) };
            let mut server = Server::at(url);
            let measured = measure(&plan);
            let cpu = server.used(recorder);
            match measured {
                Ok(account) if keep_alive && !keeps(&account, &plan) => {
                    recorder.skip(name, format!("{kind}: the server does not keep connections"));
                }
                // Too few failures within the time to end the load, and no response either.
                Ok(account) if account.answered_ever == 0 => {
                    recorder.skip(name, format!("{kind}: {}", account.failures()));
                }
                Ok(account) => {
                    let x = float(http.connections);
                    recorder.record(name, kind, Unit::PerSecond, x, account.rate());
                    let mut row =
                        vec![name.clone(), kind.to_owned(), figures::show_rate(account.rate())];
                    row.push(format!("{}/s", Unit::Bytes.show(account.bytes_rate())));
                    row.extend(figures(&account, cpu, &[]));
                    rows.push(row);
                }
                Err(error) => recorder.skip(name, format!("{kind}: {error}")),
            }
        }
    }
    let head = ["URL", "connections", "requests/s", "bodies"];
    recorder.table(table(
        // In a closed loop the latency of requests follows from their number, and says nothing more.
        &format!(
            "Closed loop over {} connections: no latencies; {}",
            http.connections,
            load::receives(http.copy)
        ),
        &head,
        &[],
        rows,
    ));
    Ok(())
}

fn latency(http: &Http, urls: &[&Named], recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let mut rows = Vec::new();
    for (name, url) in urls {
        let mut server = Server::at(url);
        let rates = match http.rates.is_empty() {
            false => http.rates.clone(),
            true => match measure(&http.plan(url)) {
                Ok(account) if account.answered == 0 => {
                    let failures = account.failures();
                    recorder.skip(name, format!("no answer in a closed loop: {failures}"));
                    continue;
                }
                Ok(account) => PARTS.map(|part| figures::rounded(part * account.rate())).to_vec(),
                Err(error) => {
                    recorder.skip(name, error.to_string());
                    continue;
                }
            },
        };
        let middle = rates[rates.len() / 2];
        let beside = (http.slow_readers > 0).then_some((middle, true));
        let alone = rates.iter().map(|&rate| (rate, false));
        for (rate, slow) in alone.chain(beside) {
            if recorder.is_stopped() {
                break;
            }
            let readers = match slow.then(|| http.slow_readers(url)).transpose() {
                Ok(readers) => readers,
                Err(error) => {
                    recorder.skip(name, format!("slow readers: {error}"));
                    continue;
                }
            };
            server.used(recorder);
            let arrival = if http.even { Arrival::Even(rate) } else { Arrival::Poisson(rate) };
            let measured = measure(&Plan { arrival, ..http.plan(url) });
            let cpu = server.used(recorder);
            let ended = readers.map(SlowReaders::stop).transpose();
            let words =
                if slow { format!(", {} slow readers", http.slow_readers) } else { String::new() };
            // As it was given: two rates may differ by little.
            let kind = format!("{rate}/s{words}");
            match (measured, ended) {
                // A low rate and a short window, or failures alone.
                (Ok(account), Ok(_)) if account.latency.is_empty() => {
                    let failures = account.failures();
                    let why = if failures.is_empty() {
                        format!("no request was due within {} s", http.length.as_secs_f64())
                    } else {
                        failures
                    };
                    recorder.skip(name, format!("{kind}: {why}"));
                }
                (Ok(account), Ok(again)) => {
                    figures::curve(recorder, name, &kind, &account.latency);
                    let mut row =
                        vec![name.clone(), kind.clone(), figures::show_rate(account.rate())];
                    row.extend(figures(&account, cpu, &PERCENTILES));
                    rows.push(row);
                    if again.is_some_and(|again| again > 0) {
                        let again = again.unwrap_or(0);
                        recorder.note(format!(
                            "{name}, {kind}: slow readers connected anew {again} times"
                        ));
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    recorder.skip(name, format!("{kind}: {error}"))
                }
            }
        }
    }
    let distances = if http.even { "even" } else { "those of independent users" };
    recorder.table(table(
        &format!(
            "Open loop, distances {distances}; latency from when a request was meant to leave; {}",
            load::receives(http.copy)
        ),
        &["URL", "meant", "requests/s"],
        &PERCENTILES,
        rows,
    ));
    Ok(())
}

impl Http {
    /// The URLs whose servers respond. Each server is asked once per run, because a silent one costs its whole time
    /// limit. A server that does not respond is a row of each test.
    ///
    /// # Errors
    /// If none of them responds.
    fn answering(&self, recorder: &mut Recorder<'_>) -> Result<Vec<&Named>, Fault> {
        // The tests that need kept connections ask for them.
        let ask = |(_, url): &Named| {
            each_part(url.address, &url.host, &url.path, crowd::LIMIT, |_| ())
                .map_err(|error| format!("does not answer with status 200: {error}"))
        };
        let asked = self.asked.get_or_init(|| self.urls.iter().map(ask).collect());
        let mut answering = Vec::new();
        let mut silent = Vec::new();
        for (named, answer) in self.urls.iter().zip(asked) {
            match answer {
                Ok(()) => answering.push(named),
                Err(why) => silent.push((&named.0, why)),
            }
        }
        if answering.is_empty() {
            let all = silent.iter().map(|(name, why)| format!("{name} {why}"));
            return Err(Fault::Failed(all.collect::<Vec<_>>().join("; ")));
        }
        for (name, why) in silent {
            recorder.skip(name, format!("{why}; it was asked once, and is left out of all tests"));
        }
        Ok(answering)
    }

    fn plan(&self, url: &Url) -> Plan {
        Plan {
            host: url.host.clone(),
            connections: self.connections,
            warmup: self.length / 10,
            duration: self.length,
            copy: self.copy,
            cpu: self.cpu,
            ..Plan::new(url.address, vec![Target::new(&url.path)])
        }
    }

    fn slow_readers(&self, url: &Url) -> std::io::Result<SlowReaders> {
        let target = Target::new(self.slow_path.as_ref().unwrap_or(&url.path));
        let plan = Plan { connections: self.slow_readers, targets: vec![target], ..self.plan(url) };
        SlowReaders::start(plan, self.slow_rate)
    }
}

/// Runs a load. A load that ctrl-C cuts short is an error.
fn measure(plan: &Plan) -> std::io::Result<Account> {
    load::measure(plan).and_then(|account| interrupt::check().map(|()| account))
}

/// Returns whether connections were reused: few were made beyond the first ones.
fn keeps(account: &Account, plan: &Plan) -> bool {
    account.connect.len() <= plan.connections as u64 + account.answered_ever / 2
}

/// The processes of a URL's server, if they run on this machine.
struct Server {
    address: SocketAddr,
    times: CpuTimes,
    before: Duration,
}

impl Server {
    fn at(url: &Url) -> Self {
        let mut times = CpuTimes::default();
        let before = times.so_far(&servers(url.address));
        Self { address: url.address, times, before }
    }

    /// The servers' CPU time since the last call, which is no noise; `None` if they run elsewhere. The
    /// processes are looked up each time, because workers come and go.
    fn used(&mut self, recorder: &mut Recorder<'_>) -> Option<Duration> {
        let processes = servers(self.address);
        let now = self.times.so_far(&processes);
        let used = now.saturating_sub(core::mem::replace(&mut self.before, now));
        recorder.measured_cpu(used);
        (!processes.is_empty()).then_some(used)
    }
}

/// The server's CPU per request, latencies, the generator's own CPU, and what went wrong.
fn figures(account: &Account, cpu: Option<Duration>, percentiles: &[(&str, f64)]) -> Vec<String> {
    let each = cpu.map(|cpu| cpu.as_secs_f64() / float(account.answered_ever));
    let each = each.filter(|each| each.is_finite());
    let each = each.map_or_else(|| "–".to_owned(), |each| format!("{:.2}", each * 1e6));
    let latencies = percentiles.iter().map(|(_, q)| figures::show_percentile(account, *q));
    let own = format!("{:.0} %", 100.0 * account.own_cpu_share());
    let all = core::iter::once(each).chain(latencies);
    all.chain([own, figures::remarks(&[account])]).collect()
}

/// A table with the columns `head`, followed by those of [`figures()`].
fn table(title: &str, head: &[&str], percentiles: &[(&str, f64)], rows: Vec<Vec<String>>) -> Table {
    let percentiles: Vec<&str> = percentiles.iter().map(|(name, _)| *name).collect();
    let columns =
        [head, &["server's CPU, µs/request"], &percentiles, &["generator's CPU", "remarks"]];
    let head = columns.concat().into_iter().map(str::to_owned).collect();
    Table { title: title.to_owned(), head, rows }
}

/// Latencies of an open loop.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

const CONNECT: &str = "connect";
const REQUEST: &str = "request";
const KEPT: &str = "kept";
const NOT_KEPT: &str = "one request each";

/// The parts of the maximum, if no rates are given.
const PARTS: [f64; 3] = [0.1, 0.5, 0.9];

//! The machine of a run: kernel, CPUs, memory, limits, settings, and how quiet it was.

use core::time::Duration;
use std::collections::BTreeMap;
use std::time::Instant;
use std::{fs, io, thread};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

use crate::stats::Spread;

/// Facts that a reader of the figures needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the host, for the directory; `--host` replaces it.
    pub host: String,
    /// `uname -srvm`.
    pub kernel: String,
    /// Model of the first CPU.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The bytes of memory.
    pub memory: u64,
    /// Hypervisor bit of the CPU: a virtual machine.
    pub is_virtual: bool,
    /// Frequency governor of the first CPU, where there is one.
    pub governor: Option<String>,
    /// Limits of this process, soft and hard; `None` is without limit.
    pub limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Settings that decide how far a test gets.
    pub sysctls: BTreeMap<String, String>,
}

/// The names of the settings.
const SYSCTLS: [&str; 17] = [
    "fs/file-max",
    "fs/nr_open",
    "fs/pipe-user-pages-soft",
    "fs/epoll/max_user_watches",
    "kernel/io_uring_disabled",
    "kernel/pid_max",
    "kernel/randomize_va_space",
    "kernel/threads-max",
    "net/core/somaxconn",
    "net/core/rmem_default",
    "net/core/wmem_default",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_tw_reuse",
    "vm/max_map_count",
    "vm/overcommit_memory",
    "vm/swappiness",
];

/// Limits that decide it too.
const LIMITS: [(&str, Resource); 6] = [
    ("nofile", Resource::Nofile),
    ("nproc", Resource::Nproc),
    ("memlock", Resource::Memlock),
    ("as", Resource::As),
    ("stack", Resource::Stack),
    ("sigpending", Resource::Sigpending),
];

impl Machine {
    /// The description of this machine. Values that cannot be read are left empty.
    #[must_use]
    pub fn this(host: Option<&str>) -> Self {
        let uname = rustix::system::uname();
        let [system, release, version, machine, node] =
            [uname.sysname(), uname.release(), uname.version(), uname.machine(), uname.nodename()]
                .map(|part| part.to_string_lossy().into_owned());
        let cpuinfo = read("/proc/cpuinfo");
        let memory = field(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0) * 1024;
        Self {
            host: host.map_or(node, str::to_owned),
            kernel: format!("{system} {release} {version} {machine}"),
            cpu: cpuinfo
                .lines()
                .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
                .map_or_else(|| machine.clone(), |(_, name)| name.to_owned()),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            memory,
            is_virtual: cpuinfo.split_whitespace().any(|flag| flag == "hypervisor"),
            governor: Some(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
            limits: LIMITS
                .map(|(name, resource)| {
                    let limit = getrlimit(resource);
                    (name.to_owned(), (limit.current, limit.maximum))
                })
                .into(),
            sysctls: SYSCTLS
                .iter()
                .map(|name| (*name, read(&format!("/proc/sys/{name}"))))
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| {
                    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
                    (name.replace('/', "."), value)
                })
                .collect(),
        }
    }
}

/// Raises the limit of descriptors to what may be had without a right, and returns it.
#[must_use]
pub fn raise_descriptors() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    let now = if setrlimit(Resource::Nofile, limit).is_ok() { limit.current } else { before };
    // Without a limit, fs.nr_open's default still is one.
    usize::try_from(now.unwrap_or(1 << 20)).unwrap_or(1 << 20)
}

/// Waits until a process or thread sleeps, by its `stat` in `/proc` (proc(5)). A new or woken thread still has work to
/// do, and would do it within the next timed step.
///
/// # Errors
/// `TimedOut` if it does not sleep within [`ASLEEP_WITHIN`]; an error if it has ended.
pub(crate) fn wait_until_asleep(stat: &str) -> io::Result<()> {
    let end = Instant::now() + ASLEEP_WITHIN;
    let is_asleep = || -> io::Result<bool> {
        let text = fs::read_to_string(stat)?;
        // The name, in parentheses, may hold anything.
        Ok(text.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S')))
    };
    // The thread may have slept for a moment on its way: only a second look shows that it stays asleep.
    while !(is_asleep()? && (thread::sleep(MOMENT), is_asleep()?).1) {
        if Instant::now() > end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::yield_now();
    }
    Ok(())
}

/// No thread here takes longer to go to sleep.
const ASLEEP_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two looks at a sleeping process.
const MOMENT: Duration = Duration::from_micros(50);

/// A CPU for the measured program and one for the measuring program: the first two that this process may use, on
/// different cores if possible; `None` if there is only one.
#[must_use]
pub fn two_cpus() -> Option<(usize, usize)> {
    let allowed = sched_getaffinity(None).ok()?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    two_of(&cpus, |cpu| {
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        read(&format!("{topology}/core_id")) + &read(&format!("{topology}/physical_package_id"))
    })
}

fn two_of(cpus: &[usize], core: impl Fn(usize) -> String) -> Option<(usize, usize)> {
    let (&first, others) = cpus.split_first()?;
    let elsewhere = others.iter().find(|cpu| core(**cpu) != core(first));
    Some((first, *elsewhere.or_else(|| others.first())?))
}

/// The bytes of memory that are available now.
#[must_use]
pub fn available_memory() -> u64 {
    field(&read("/proc/meminfo"), "MemAvailable:").map_or(u64::MAX, |kib| kib * 1024)
}

/// The number after a word in a file of `/proc`.
#[must_use]
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// A file of `/proc` or `/sys`; empty if it cannot be read.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Time of all CPUs so far, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// The CPU time of all processes.
    pub total: u64,
    /// Waiting for something to do.
    pub idle: u64,
    /// Wanted by us and given to another machine by the hypervisor.
    pub steal: u64,
    /// The CPU time of this process, and of children that it has waited for.
    pub own: u64,
}

impl CpuTime {
    /// Since boot, from `/proc/stat` and `/proc/self/stat` (proc(5)).
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&read("/proc/stat"), &read("/proc/self/stat"))
    }

    /// The CPU time with more that is our own.
    #[must_use]
    pub fn with(self, own: Duration) -> Self {
        let ticks = own.as_nanos() * u128::from(clock_ticks_per_second()) / 1_000_000_000;
        Self { own: self.own.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX)), ..self }
    }

    fn parse(stat: &str, own: &str) -> Self {
        // The name, in parentheses, may hold anything. After it: state is the third field, and utime,
        // stime, cutime, cstime are the 14th to 17th.
        let own = own.rsplit_once(')').map_or("", |(_, fields)| fields);
        let own =
            own.split_whitespace().skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum();
        let numbers: Vec<u64> = stat
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("cpu "))
            .into_iter()
            .flat_map(str::split_whitespace)
            .filter_map(|number| number.parse().ok())
            .collect();
        let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
        // user nice system idle iowait irq softirq steal; guest times are within user.
        Self { total: numbers.iter().take(8).sum(), idle: at(3) + at(4), steal: at(7), own }
    }
}

/// The time that a CPU has been busy since boot: user, system and interrupt time. Zero if there is no such CPU.
#[must_use]
pub fn busy(cpu: usize) -> Duration {
    of_ticks(busy_ticks(&read("/proc/stat"), cpu))
}

fn busy_ticks(stat: &str, cpu: usize) -> u64 {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default();
    let of_all = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
    // user nice system idle iowait irq softirq steal; guest times are within user.
    of_all.take(7).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, ticks)| ticks).sum()
}

/// The interrupts that a CPU has had from other CPUs since boot: they make it run a function, such as the receiving of
/// packets, or look for a task. Zero where the kernel does not count them (`/proc/interrupts`, proc(5)).
#[must_use]
pub fn interrupts(cpu: usize) -> u64 {
    interrupts_of(&read("/proc/interrupts"), cpu)
}

fn interrupts_of(table: &str, cpu: usize) -> u64 {
    let mut lines = table.lines();
    // The first line names the CPUs that are online, each with a column.
    let cpus = lines.next().unwrap_or_default().split_whitespace();
    let Some(column) = cpus.enumerate().find(|(_, name)| *name == format!("CPU{cpu}")) else {
        return 0;
    };
    // The names at the start of lines differ between processors, the descriptions at their ends do not.
    let by_others = ["Function call interrupts", "Rescheduling interrupts"];
    let lines = lines.filter(|line| by_others.iter().any(|words| line.ends_with(words)));
    let counts =
        lines.filter_map(|line| line.split_whitespace().nth(column.0 + 1)?.parse::<u64>().ok());
    counts.sum()
}

/// Clock ticks of `/proc` as time.
#[must_use]
pub fn of_ticks(ticks: u64) -> Duration {
    Duration::from_nanos(ticks * (1_000_000_000 / clock_ticks_per_second()))
}

/// The noise of the machine during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The calibration loop before the first test, nanoseconds a round.
    pub before: Spread,
    /// And after the last.
    pub after: Spread,
    /// Part of all CPU time that the hypervisor gave to others, 0 to 1.
    pub steal: f64,
    /// Part of all CPU time that other processes of this machine used, and the kernel on its own.
    pub others: f64,
    /// A description of the noise; empty if the machine was quiet.
    pub reasons: Vec<String>,
}

/// The loop may be slower or faster at the end by so much.
const DRIFT_MAX: f64 = 0.05;
/// Half of its rounds may lie so far apart.
const SPREAD_MAX: f64 = 0.05;
/// The maximum CPU time of other processes.
const OTHERS_MAX: f64 = 0.1;
/// The maximum CPU time that the hypervisor may take.
const STEAL_MAX: f64 = 0.01;

impl Noise {
    /// Judges the measurements before and after a run.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "clock ticks stay below 2^52")]
    pub fn judge(before: Spread, after: Spread, from: CpuTime, to: CpuTime) -> Self {
        let total = to.total.saturating_sub(from.total).max(1) as f64;
        let steal = to.steal.saturating_sub(from.steal) as f64 / total;
        let busy = total - to.idle.saturating_sub(from.idle) as f64;
        let own = to.own.saturating_sub(from.own) as f64;
        let others = ((busy - own) / total - steal).max(0.0);
        let mut reasons = Vec::new();
        let drift = after.median / before.median - 1.0;
        if drift.abs() > DRIFT_MAX {
            let word = if drift > 0.0 { "slower" } else { "faster" };
            reasons.push(format!(
                "the calibration loop was {:.0} % {word} at the end",
                drift.abs() * 100.0
            ));
        }
        for (spread, when) in [(before, "before"), (after, "after")] {
            let iqr = (spread.q3 - spread.q1) / spread.median;
            if iqr > SPREAD_MAX {
                reasons.push(format!(
                    "the calibration loop {when} the tests varied by {:.0} %",
                    iqr * 100.0
                ));
            }
        }
        if steal > STEAL_MAX {
            reasons
                .push(format!("the hypervisor took {:.1} % of the time for others", steal * 100.0));
        }
        if others > OTHERS_MAX {
            reasons.push(format!(
                "others on this machine used {:.0} % of its CPU time",
                others * 100.0
            ));
        }
        Self { before, after, steal, others, reasons }
    }

    /// Tells whether the figures can be trusted without a second run.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.reasons.is_empty()
    }

    /// The judgement in one sentence.
    #[must_use]
    pub fn verdict(&self) -> String {
        if self.is_quiet() {
            "The machine was quiet.".to_owned()
        } else {
            format!("Too noisy, measure again: {}.", self.reasons.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64, iqr: f64) -> Spread {
        Spread {
            count: 21,
            min: median,
            q1: median - iqr / 2.0,
            median,
            q3: median + iqr / 2.0,
            p99: median,
            max: median,
        }
    }

    #[test]
    fn a_busy_cpu_is_told_from_an_idle_one() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 4 100 100 8 16 200 400 0\ncpu10 7 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy_ticks(stat, 1), 31);
        assert_eq!(busy_ticks(stat, 10), 7);
        assert_eq!(busy_ticks(stat, 2), 0);
    }

    #[test]
    fn interrupts_by_other_cpus_are_told_from_those_of_devices() {
        let table = "            CPU0       CPU2\n  4:         10        300   IO-APIC    4-edge  ttyS0\n\
                     LOC:       5000       6000   Local timer interrupts\n\
                     RES:          7          9   Rescheduling interrupts\n\
                     CAL:         20         40   Function call interrupts\nERR:          0\n";
        assert_eq!(interrupts_of(table, 0), 27);
        assert_eq!(interrupts_of(table, 2), 49);
        assert_eq!(interrupts_of(table, 1), 0, "it is offline");
        let of_arm = "           CPU0       CPU1\nIPI0:         1          2       Rescheduling interrupts\n\
                      IPI1:        10         20       Function call interrupts\n";
        assert_eq!(interrupts_of(of_arm, 1), 22);
    }

    #[test]
    fn noise_has_a_reason() {
        let (from, to) =
            (CpuTime::default(), CpuTime { total: 1000, idle: 500, steal: 5, own: 450 });
        let quiet = spread(100.0, 1.0);
        assert!(Noise::judge(quiet, quiet, from, to).is_quiet());
        let cases = [
            (quiet, spread(110.0, 1.0), to, "10 % slower"),
            (quiet, spread(90.0, 1.0), to, "10 % faster"),
            (spread(100.0, 20.0), quiet, to, "before the tests varied by 20 %"),
            (quiet, quiet, CpuTime { steal: 50, own: 400, ..to }, "took 5.0 %"),
            (quiet, quiet, CpuTime { idle: 300, ..to }, "used 24 %"),
        ];
        for (before, after, to, word) in cases {
            let verdict = Noise::judge(before, after, from, to).verdict();
            assert!(verdict.contains(word), "{verdict}");
        }
    }

    #[test]
    fn two_cpus_are_of_different_cores_if_they_can() {
        // CPUs 0 and 1 are the hyperthreads of one core, 2 and 3 those of the other.
        let core = |cpu: usize| (cpu / 2).to_string();
        assert_eq!(two_of(&[0, 1, 2, 3], core), Some((0, 2)));
        assert_eq!(two_of(&[2, 3], core), Some((2, 3)));
        assert_eq!(two_of(&[5, 7], |_| String::new()), Some((5, 7)), "where nothing is told");
        assert_eq!(two_of(&[3], core), None);
        assert_eq!(two_of(&[], core), None);
    }

    #[test]
    fn who_sleeps_is_told() {
        let (wake, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            wait.recv()
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        wait_until_asleep(&stat).unwrap();
        wake.send(()).unwrap();
        sleeper.join().unwrap().unwrap();
        assert!(wait_until_asleep("/proc/self/task/0/stat").is_err());
    }

    #[test]
    fn proc_stat_is_understood() {
        let text = "cpu  10 20 30 40 5 6 7 8 9 10\ncpu0 1 2 3\n";
        let own = "7 (a) b) R 1 7 7 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1\n";
        assert_eq!(CpuTime::parse(text, own), CpuTime { total: 126, idle: 45, steal: 8, own: 127 });
        assert_eq!(CpuTime::parse("", ""), CpuTime::default());
        assert_eq!(field("A: 1 kB\nMemTotal:  7 kB\n", "MemTotal:"), Some(7));
    }
}

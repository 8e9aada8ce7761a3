//! Other processes: families, the listeners at an address, and their CPU time.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::UdpSocket;

use rustix::process::Pid;

use crate::machine::{of_ticks, read};
use crate::sys::process::cpu_time;

/// CPU time of processes, all their threads.
#[derive(Debug, Default)]
pub struct CpuTimes {
    /// The CPU time of each process at the last call.
    processes: HashMap<u32, Duration>,
    /// The CPU time of all processes, with those that have ended.
    total: Duration,
}

impl CpuTimes {
    /// The CPU time that these processes have used so far, with the kernel's work for them and with
    /// threads that have come and gone. Processes that have ended, or have left the list, count with their
    /// time at the last call. The sum never falls.
    pub fn so_far(&mut self, processes: &[u32]) -> Duration {
        for &pid in processes {
            let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let Some(Ok(used)) = number.map(cpu_time) else { continue };
            let before = self.processes.insert(pid, used).unwrap_or_default();
            // Less than before has another one, of the same number.
            self.total += used.checked_sub(before).unwrap_or(used);
        }
        self.total
    }
}

/// CPU time in user space that a process has used so far, all its threads; zero if it has ended.
#[must_use]
pub fn user_time(pid: u32) -> Duration {
    // The name, in parentheses, may hold anything. After it, state is the third field and utime the 14th.
    let stat = read(&format!("/proc/{pid}/stat"));
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let used = fields.split_whitespace().nth(11).and_then(|field| field.parse().ok());
    of_ticks(used.unwrap_or(0))
}

/// A process and its descendants, without us and our descendants if we are among them. The first process,
/// an ancestor of the whole machine, stands for itself alone.
#[must_use]
pub fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    if pid == FIRST {
        return found;
    }
    let us = std::process::id();
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        for thread in entries(&format!("/proc/{pid}/task")) {
            let children = read(&format!("/proc/{pid}/task/{thread}/children"));
            let children = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
            found.extend(children.filter(|child| *child != us));
        }
    }
    found
}

/// The processes that serve at a TCP address: the listening ones and their families at this moment,
/// without us.
#[must_use]
pub fn servers(address: SocketAddr) -> Vec<u32> {
    let us = std::process::id();
    let others = listeners(address).into_iter().filter(|pid| *pid != us);
    let mut processes: Vec<u32> = others.flat_map(family).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// The processes of this machine that listen at a TCP address; none if it is another machine's, or
/// they are other users' and may not be looked at.
#[must_use]
pub fn listeners(address: SocketAddr) -> Vec<u32> {
    // Only an address of this machine can be bound to.
    if UdpSocket::bind((address.ip(), 0)).is_err() {
        return Vec::new();
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(read);
    let sockets: HashSet<String> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| listening(line, address))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let holds = |pid: &u32| {
        let directory = format!("/proc/{pid}/fd");
        entries(&directory).iter().any(|fd| {
            let target = fs::read_link(format!("{directory}/{fd}"));
            target.is_ok_and(|target| target.to_str().is_some_and(|it| sockets.contains(it)))
        })
    };
    entries("/proc").iter().filter_map(|name| name.parse().ok()).filter(holds).collect()
}

/// The inode of a socket that listens at an address, or at all of this machine: from a line of
/// `/proc/net/tcp` or `tcp6` (proc(5)).
fn listening(line: &str, address: SocketAddr) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let is_there = |ip: IpAddr| ip == address.ip() || ip.is_unspecified();
    let port = u16::from_str_radix(port, 16).ok()?;
    (*fields.get(3)? == LISTEN && port == address.port() && is_there(ip_of(ip)?))
        .then(|| fields.get(9)?.parse().ok())?
}

/// Holds the sockets of services that are started when somebody connects (systemd.socket(5)).
const FIRST: u32 = 1;

/// An address as it is printed there: words of 32 bits in this machine's order.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = hex.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(1)?, word(2)?, word(3)?];
    let ip = Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?);
    Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
}

/// The names in a directory of `/proc`; none when the process has ended.
fn entries(directory: &str) -> Vec<String> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn lines_of_listening_sockets() {
        let line = |ip: &str, state: &str| {
            format!(
                "   0: {ip}:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1 0"
            )
        };
        let here = [
            (line("0100007F", "0A"), "127.0.0.1:8080", Some(4711)),
            (line("00000000", "0A"), "127.0.0.1:8080", Some(4711)),
            (line("0100007F", "01"), "127.0.0.1:8080", None),
            (line("0100007F", "0A"), "127.0.0.1:8081", None),
            (line("0200007F", "0A"), "127.0.0.1:8080", None),
            (line("00000000000000000000000001000000", "0A"), "[::1]:8080", Some(4711)),
            (line("00000000000000000000000000000000", "0A"), "127.0.0.1:8080", Some(4711)),
            (line("0000000000000000FFFF00000100007F", "0A"), "127.0.0.1:8080", Some(4711)),
        ];
        for (line, address, inode) in here {
            let found = listening(&line, address.parse().unwrap());
            assert_eq!(found, inode.filter(|_| cfg!(target_endian = "little")), "{line} {address}");
        }
        for line in ["", "  sl  local_address rem_address   st", "0: 01:1F90 0 0A", "0: x:y 0 0A"] {
            assert_eq!(listening(line, "127.0.0.1:8080".parse().unwrap()), None, "{line}");
        }
    }

    #[test]
    fn we_listen() {
        for ip in ["127.0.0.1", "::1", "0.0.0.0"] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            // A child of another test has the listener, too, until it runs its program.
            let alone = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                listeners(address) == [std::process::id()]
            });
            assert!(alone, "{ip}: {:?}", listeners(address));
        }
        assert!(listeners("192.0.2.1:80".parse().unwrap()).is_empty(), "RFC 5737");
    }

    #[test]
    fn we_use_time_on_threads_that_end_too() {
        let (mut times, us) = (CpuTimes::default(), [std::process::id()]);
        let before = times.so_far(&us);
        let busy = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {}
        };
        std::thread::spawn(busy).join().unwrap();
        assert!(times.so_far(&us) - before >= Duration::from_millis(10));
        let total = times.so_far(&us);
        assert!(times.so_far(&[]) == total && times.so_far(&[0, u32::MAX]) == total);
    }

    #[test]
    fn families_are_neither_the_machine_nor_us() {
        let us = std::process::id();
        assert!(family(us).contains(&us));
        assert_eq!(family(FIRST), [FIRST]);
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs();
        assert!(!family(parent).contains(&us));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!servers(listener.local_addr().unwrap()).contains(&us));
    }
}

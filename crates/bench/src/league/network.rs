//! Two network namespaces, one for servers and one for clients, joined by two links (veth(4)). One link is for the
//! kernel's TCP, the other for a server with a stack of its own. The module needs root and `ip` of iproute2.
//!
//! A connection over loopback never leaves the kernel's TCP. Over a link both kinds of servers receive and
//! send frames, so their costs can be compared.

use core::net::Ipv4Addr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Pid;
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use super::peers::find;

/// The two namespaces. Dropping it removes them, and with them the links.
#[derive(Debug)]
pub struct Network {
    servers: Namespace,
    clients: Namespace,
}

impl Network {
    /// Makes the network. The kernel's work for a packet is done on the CPU of the side that receives it.
    ///
    /// # Errors
    /// A sentence, if the machine cannot have such a network: no root, no `ip`, or the error of `ip`.
    pub fn new(server_cpu: usize, client_cpu: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("needs root, to make network namespaces".to_owned());
        }
        let (servers, clients) = (Namespace::new("servers")?, Namespace::new("clients")?);
        for (of_server, of_client) in [(KERNEL, "cli0"), (OWN, CLIENT)] {
            let line = format!(
                "link add {} netns {} address {} numtxqueues 1 numrxqueues 1 type veth peer name {of_client} \
                 netns {} numtxqueues 1 numrxqueues 1",
                of_server.interface,
                servers.name,
                of_server.link_address(),
                clients.name
            );
            run(Command::new(ip()?).args(line.split_whitespace()))?;
        }
        servers.run(&script("srv", 1, server_cpu, "echo 4096 >core/somaxconn"))?;
        let ports = "echo 2000 65000 >ipv4/ip_local_port_range; echo 1 >ipv4/tcp_tw_reuse";
        clients.run(&script("cli", 2, client_cpu, ports))?;
        Ok(Self { servers, clients })
    }

    /// The namespace of servers.
    #[must_use]
    pub fn servers(&self) -> &Namespace {
        &self.servers
    }

    /// The namespace of clients.
    #[must_use]
    pub fn clients(&self) -> &Namespace {
        &self.clients
    }

    /// Moves the receive work of the server's stack to its CPU: with an XDP program in the driver, veth receives on the
    /// CPU that sends. Without such a program there is no work to move.
    pub fn pin_polling(&self, cpu: usize) {
        let file = format!("/sys/class/net/{}/threaded", OWN.interface);
        if self.servers.run(&format!("echo 1 >{file}")).is_err() {
            return;
        }
        let mut set = CpuSet::new();
        set.set(cpu);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if comm.starts_with(&format!("napi/{}-", OWN.interface)) {
                // The process may have ended by now.
                let _ = sched_setaffinity(pid.and_then(Pid::from_raw), &set);
            }
        }
    }
}

/// The server's end of a link.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Its interface.
    pub interface: &'static str,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Its link address.
    pub mac: [u8; 6],
}

impl End {
    fn link_address(&self) -> String {
        self.mac.map(|byte| format!("{byte:02x}")).join(":")
    }
}

/// The link for the kernel's TCP.
pub const KERNEL: End =
    End { interface: "srv0", ip: Ipv4Addr::new(10, 9, 0, 1), mac: [2, 0, 0, 9, 0, 1] };

/// The link for a stack of the server's own.
pub const OWN: End =
    End { interface: "srv1", ip: Ipv4Addr::new(10, 9, 1, 1), mac: [2, 0, 0, 9, 1, 1] };

/// The client's end of that link.
pub const CLIENT: &str = "cli1";

/// A network namespace with a name (ip-netns(8)). Dropping it removes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn new(whose: &str) -> Result<Self, String> {
        let name = format!("samum-bench-{}-{whose}", std::process::id());
        run(Command::new(ip()?).args(["netns", "add", &name]))?;
        Ok(Self { name })
    }

    /// The words in front of a command that runs in this namespace. The command keeps this process's view of the
    /// mounts. `ip netns exec` would give it a copy, in which an [`Image`](super::image::Image) stays mounted after its
    /// end here.
    ///
    /// # Errors
    /// A sentence, when there is no `nsenter`.
    pub fn prefix(&self) -> Result<[String; 2], String> {
        let nsenter =
            find("nsenter").ok_or_else(|| "nsenter (util-linux) is not installed".to_owned())?;
        Ok([nsenter.display().to_string(), format!("--net={}", self.file().display())])
    }

    /// Moves this thread into it, and threads that it makes from then on, until the result is dropped.
    ///
    /// # Errors
    /// As open(2) and setns(2).
    pub fn enter(&self) -> io::Result<Inside> {
        let before = File::open("/proc/thread-self/ns/net")?;
        move_to(&File::open(self.file())?)?;
        Ok(Inside { before })
    }

    /// Runs a script of the shell in it, with its `/sys`.
    fn run(&self, script: &str) -> Result<(), String> {
        run(Command::new(ip()?).args(["netns", "exec", &self.name, "sh", "-ec", script]))
    }

    /// The file that names it.
    fn file(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A namespace that stays does no harm.
        let _ = ip().and_then(|ip| run(Command::new(ip).args(["netns", "del", &self.name])));
    }
}

/// This thread in another network namespace. The drop, on the same thread, returns to the earlier one.
#[derive(Debug)]
pub struct Inside {
    before: File,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // The thread came from there and has the same rights.
        move_to(&self.before).expect("the way back");
    }
}

fn move_to(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// The program `ip`.
fn ip() -> Result<String, String> {
    let found = find("ip").ok_or_else(|| "ip (iproute2) is not installed".to_owned())?;
    Ok(found.display().to_string())
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<(), String> {
    let failed = |why: &str| format!("no network of namespaces: {why}");
    let output: Output = command.output().map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim()))
}

/// Gives one side's ends of both links their addresses and their CPU (Documentation/networking/scaling.rst,
/// RPS), and writes settings below `/proc/sys/net`.
fn script(end: &str, host: u8, cpu: usize, settings: &str) -> String {
    let cpus = cpu_mask(cpu);
    format!(
        "ip link set lo up\n\
         for i in 0 1; do\n\
         ip addr add 10.9.$i.{host}/24 dev {end}$i\n\
         ip link set {end}$i up\n\
         echo {cpus} >/sys/class/net/{end}$i/queues/rx-0/rps_cpus\n\
         done\n\
         cd /proc/sys/net; {settings}"
    )
}

/// One CPU as in files of `/sys`: words of 32 bits, the highest first.
fn cpu_mask(cpu: usize) -> String {
    format!("{:x}{}", 1_u32 << (cpu % 32), ",00000000".repeat(cpu / 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_cpus_are_what_the_kernel_wants() {
        for (cpu, mask) in [(0, "1"), (5, "20"), (31, "80000000"), (64, "1,00000000,00000000")] {
            assert_eq!(cpu_mask(cpu), mask);
        }
    }
}

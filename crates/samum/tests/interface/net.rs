//! Two network namespaces and the wire between them, which go with the test.

use core::sync::atomic::{AtomicU32, Ordering};
use std::process::{Command, id};

use netstack::sim::{Conditions, Fates};
use testkit::{MiddleBox, Server, Tap, ip, within};

use crate::common::SAMUM;

/// The way of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    /// The one that users get who choose none: by AF_XDP or a packet socket, as the length of the frame suggests.
    Auto,
    Xdp,
    Packet,
    /// The address is samum's alone: it answers ARP and ping.
    Tap,
}

impl Frames {
    pub(crate) const ALL: [Self; 4] = [Self::Auto, Self::Xdp, Self::Packet, Self::Tap];
}

pub(crate) const V4: &str = "10.77.0.1";
pub(crate) const V6: &str = "fd77::1";
/// The address of the second wire.
pub(crate) const SECOND: &str = "10.78.0.1";
const PORT: u16 = 80;
/// The addresses of a host in another network.
const FAR: [&str; 2] = ["198.51.100.7", "2001:db8:f::7"];

/// Two namespaces: the server's has the interface `eth1`, the client's `cli`.
pub(crate) struct Net {
    name: String,
    frames: Frames,
    /// In the middle of the wire, unless it is without a fault.
    middle_box: Option<MiddleBox>,
}

/// Frames that wait for the box to read them: more than one turn of the processor takes.
const TAP_FRAMES: u32 = 10_000;

impl Net {
    /// Makes the namespaces and a wire without a fault; the error says why that is not possible here.
    pub(crate) fn new(frames: Frames) -> Result<Self, String> {
        Self::with(frames, |net, server_end| {
            let (s, c) = (net.server(), net.client());
            ip(&format!("link add {server_end} netns {s} type veth peer name cli netns {c}"))
        })
    }

    /// The same with this many queues at each end. The kernel chooses one by the connection.
    pub(crate) fn with_queues(frames: Frames, queues: u32) -> Result<Self, String> {
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        Self::with(frames, |net, server_end| {
            let (s, c) = (net.server(), net.client());
            ip(&format!(
                "link add {server_end} netns {s} {queues} type veth peer name cli netns {c} {queues}"
            ))
        })
    }

    /// Adds a second wire: the server's namespace gets the interface `eth2` with [`SECOND`].
    pub(crate) fn add_wire(&self) {
        let (s, c) = (self.server(), self.client());
        for command in [
            format!("link add eth2 netns {s} type veth peer name cli2 netns {c}"),
            format!("-n {s} address add {SECOND}/24 dev eth2"),
            format!("-n {c} address add 10.78.0.2/24 dev cli2"),
            format!("-n {s} link set eth2 up"),
            format!("-n {c} link set cli2 up"),
        ] {
            ip(&command).expect("the namespaces were made");
        }
    }

    /// Adds a network behind the client, which is its router, with one host. Returns the host's addresses.
    pub(crate) fn add_far(&self) -> [&'static str; 2] {
        let (c, f) = (self.client(), self.far());
        for command in [
            format!("netns add {f}"),
            format!("link add near netns {f} type veth peer name far netns {c}"),
            format!("-n {c} address add 198.51.100.254/24 dev far"),
            format!("-n {c} address add 2001:db8:f::fe/64 dev far nodad"),
            format!("-n {f} address add {}/24 dev near", FAR[0]),
            format!("-n {f} address add {}/64 dev near nodad", FAR[1]),
            format!("-n {c} link set far up"),
            format!("-n {f} link set near up"),
            format!("-n {f} route add default via 198.51.100.254"),
            format!("-n {f} route add default via 2001:db8:f::fe"),
        ] {
            ip(&command).expect("the namespaces were made");
        }
        self.as_client(|| {
            for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{name}"), "1").expect("root may");
            }
        });
        FAR
    }

    /// Makes the router of [`add_far`](Self::add_far) refuse packets to its host that are longer. The host does not know.
    pub(crate) fn narrow_far(&self, mtu: u16) {
        ip(&format!("-n {} link set far mtu {mtu}", self.client())).expect("it is there");
    }

    /// The same with a box in the middle of the wire: paths to the server and to the client.
    pub(crate) fn across(
        frames: Frames,
        paths: [Conditions; 2],
        seed: u64,
    ) -> Result<Self, String> {
        Self::with(frames, |net, server_end| {
            let made = [(net.client(), "cli"), (net.server(), server_end)].map(|(name, end)| {
                let tap =
                    within(&name, || Tap::new(end)).map_err(|error| format!("TAP: {error}"))?;
                ip(&format!("-n {name} link set {end} txqueuelen {TAP_FRAMES}"))?;
                Ok::<_, String>(tap)
            });
            let [client, server] = made;
            net.middle_box = Some(MiddleBox::new([client?, server?], paths, seed));
            Ok(())
        })
    }

    fn with(
        frames: Frames,
        connect: impl FnOnce(&mut Self, &str) -> Result<(), String>,
    ) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        let name = format!("samum-{}-{}", id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut net = Self { name, frames, middle_box: None };
        let (s, c) = (net.server(), net.client());
        for name in [&s, &c] {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        connect(&mut net, if frames == Frames::Tap { "wire" } else { "eth1" })?;
        if frames == Frames::Tap {
            ip(&format!("-n {s} tuntap add eth1 mode tap vnet_hdr"))?;
            ip(&format!("-n {s} link add bridge type bridge"))?;
            for name in ["wire", "eth1"] {
                ip(&format!("-n {s} link set {name} master bridge"))?;
            }
            ip(&format!("-n {s} link set bridge up"))?;
            ip(&format!("-n {s} link set wire up"))?;
        } else {
            ip(&format!("-n {s} address add {V4}/24 dev eth1"))?;
            ip(&format!("-n {s} address add {V6}/64 dev eth1 nodad"))?;
        }
        ip(&format!("-n {c} address add 10.77.0.2/24 dev cli"))?;
        ip(&format!("-n {c} address add fd77::2/64 dev cli nodad"))?;
        ip(&format!("-n {s} link set eth1 up"))?;
        ip(&format!("-n {c} link set cli up"))?;
        Ok(net)
    }

    /// Makes a switch of the client's end of the wire, and returns one more cable that is plugged into it. The server's
    /// interface gets this address.
    pub(crate) fn plug(&self, server_mac: &str) -> Tap {
        let (s, c) = (self.server(), self.client());
        let tap = within(&c, || Tap::new("extra")).expect("root may");
        for command in [
            format!("-n {s} link set eth1 address {server_mac}"),
            format!("-n {c} link add switch type bridge"),
            format!("-n {c} address flush dev cli"),
            format!("-n {c} link set cli master switch"),
            format!("-n {c} link set extra master switch"),
            format!("-n {c} address add 10.77.0.2/24 dev switch"),
            format!("-n {c} link set switch up"),
            format!("-n {c} link set extra up"),
        ] {
            ip(&command).expect("the namespaces were made");
        }
        tap
    }

    /// Makes the kernel handle what reaches the server and the client on one CPU each
    /// (Documentation/networking/scaling.rst of Linux, RPS), and without a firewall in the client's switch.
    pub(crate) fn steer(&self, server_cpu: usize, client_cpu: usize) {
        let steer = |interface, cpu: usize| {
            let cpus = 1 << cpu;
            format!("echo {cpus:x} >/sys/class/net/{interface}/queues/rx-0/rps_cpus")
        };
        // The directory exists if, and only if, the module `br_netfilter` is loaded.
        let pass = "for file in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $file ] || echo 0 >$file; done";
        for (mut shell, script) in [
            (self.at_server("sh"), steer("eth1", server_cpu)),
            (self.at_client("sh"), format!("{}; {pass}", steer("cli", client_cpu))),
        ] {
            assert!(shell.args(["-ec", &script]).status().expect("a shell").success(), "{script}");
        }
    }

    /// Stops the box in the middle of the wire, and returns the fates of the frames to the server and to the client.
    pub(crate) fn stop(&mut self) -> [Fates; 2] {
        self.middle_box.take().expect("a box is in the middle").stop()
    }

    fn server(&self) -> String {
        format!("{}-s", self.name)
    }

    fn client(&self) -> String {
        format!("{}-c", self.name)
    }

    fn far(&self) -> String {
        format!("{}-f", self.name)
    }

    /// A program in the server's namespace.
    pub(crate) fn at_server(&self, program: &str) -> Command {
        at(&self.server(), program)
    }

    /// A program in the client's namespace.
    pub(crate) fn at_client(&self, program: &str) -> Command {
        at(&self.client(), program)
    }

    /// Serves a directory on the interface.
    #[track_caller]
    pub(crate) fn serve(&self, dir: &str, options: &[&str]) -> Server {
        let mut command = self.at_server(SAMUM);
        command.args(["serve", dir, "--interface", "eth1", "--threads", "1"]).args(options);
        command.args(["--listen", &format!("{V4}:{PORT}"), "--listen", &format!("[{V6}]:{PORT}")]);
        match self.frames {
            Frames::Auto => &mut command,
            Frames::Xdp => command.args(["--frames", "xdp"]),
            Frames::Packet => command.args(["--frames", "packet"]),
            Frames::Tap => command
                .args(["--frames", "tap", "--address", &format!("{V4}/24")])
                .args(["--address", &format!("{V6}/64")]),
        };
        Server::spawn(&mut command).unwrap_or_else(|error| panic!("{:?}: {error}", self.frames))
    }

    /// Deletes the server's interface.
    pub(crate) fn delete_interface(&self) {
        ip(&format!("-n {} link delete eth1", self.server())).expect("it is there");
    }

    /// Runs the client's part of a test in its namespace.
    pub(crate) fn as_client<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        within(&self.client(), act)
    }

    /// Runs a part of a test at the host of [`add_far`](Self::add_far).
    pub(crate) fn as_far<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        within(&self.far(), act)
    }

    /// Runs a part of a test in the server's namespace.
    pub(crate) fn as_server<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        within(&self.server(), act)
    }

    pub(crate) const fn frames(&self) -> Frames {
        self.frames
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [self.server(), self.client(), self.far()] {
            // If it was not made, there is nothing to remove.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// A program in a namespace.
fn at(name: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name, program]);
    command
}

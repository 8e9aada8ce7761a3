//! Writes the reference of configuration files: `docs/configuration.md`, and the man page `samum.toml(5)`.

mod man;

use core::fmt::Write as _;

pub use self::man::man;
use super::keys::{self, Section};

const INTRODUCTION: &str = r#"# Configuration

<!-- Printed by `samum configuration-reference`. A test compares; with SAMUM_WRITE=1 it writes this file. -->

`samum serve --config FILE` serves the sites of a configuration file, and `samum check FILE` checks the file. The file is in
[TOML](https://toml.io). The keys have the names, defaults and units of the flags of `samum serve`. `samum serve DIR` is a configuration
with one site and one route.

Five annotated files show the usual cases. A test checks each file, starts a server with it, and sends requests:

- [static-site.toml](../examples/static-site.toml): a static site with its own error page, headers and a redirect
- [php.toml](../examples/php.toml): a PHP application with a front controller
- [reverse-proxy.toml](../examples/reverse-proxy.toml): two servers of an application, with files and metrics, too
- [mirror.toml](../examples/mirror.toml): a mirror of many large files
- [video.toml](../examples/video.toml): an origin of films and of segments

```toml
include = "conf.d/*.toml"

[server]
threads = 4

[[site]]
listen = ["0.0.0.0:80", "[::]:80"]
hosts = ["example.org", "*.example.org"]
log = { file = "/var/log/samum/example.log", format = "combined" }
limits = { connections-per-ip = 64, requests-per-ip = "100/s burst 200" }

  [[site.route]]
  files = "/srv/www"
  errors = { 404 = "/404.html" }
  headers = [{ match = "*.css", set = { Cache-Control = "max-age=86400" } }]

  [[site.route]]
  path = "/old/"
  redirect = "/new/$0"

  [[site.route]]
  path = "/metrics"
  metrics = true
  allow = ["127.0.0.1"]
```

**The site of a request** is chosen by the host of the request, among the sites that listen at the address of the connection. The site with
the exact name comes first, then the site with the longest wildcard, then the default site. Upper and lower case, a dot at the end of a name
and the port of a `Host` field make no difference. International names are written as clients send them (`xn--…`).

**The route of a request** has the longest `path` that the path of the request begins with. Among routes with the same path, routes with
`match` come first, in the order of the file. So `match = "*.php"` beats `path = "/"`, and `path = "/api/"` beats both. A request without a
route is answered 404.

**Relative paths in the file system** begin at the directory of the configuration file that contains them.

**Variables of the environment** can stand in each text: `${NAME}`, or `${NAME:-default}` for a value where the variable is not set or
empty. Their names have capitals, digits and underscores. A number, and `true` or `false`, can be written as such a text: `threads = "${THREADS:-4}"`. A
variable that is not set is an error.

**The content of a file** stands for `${file:NAME}`, without the end of its last line: 64 KiB of UTF-8 at most. NAME begins at the directory
`$CREDENTIALS_DIRECTORY`, which `LoadCredential=` of a unit sets, or is an absolute path. `samum check` and `samum explain` show `…` in its place.
Outside of the unit `samum check` needs the variable, too: `CREDENTIALS_DIRECTORY=/etc/samum/secrets samum check FILE`.

```toml
[server]
max-connections = "${MAX_CONNECTIONS:-10000}"

[[site]]
listen = ["127.0.0.1:${APP_PORT}"]

  [[site.route]]
  proxy = "http://${APP_HOST:-127.0.0.1}:3000"
  request-headers = { Authorization = "Bearer ${file:token}", X-Client = "${client}" }
```

What comes in is a value, and never TOML: no quote ends the text, and no variable is looked for in it. Names in small letters are variables of a request,
which only `request-headers` and formats of logs have. `$${NAME}` is the text `${NAME}`. The environment is that of the server's start,
also for `samum reload` and `samum upgrade`; files are read anew.

**Flags** in addition to `--config`:

- A flag with the name of a key of `[server]` overrides the key.
- `--log` and `--log-format` override the log of every site.
- DIR, `--listen` and the flags for files cannot be given.

**Errors.** A configuration is used as a whole or not at all. `samum check`

- reports all errors of all files, each with file, line and column;
- warns of probable mistakes: routes and sites that no request reaches, patterns that match nothing, keys that do nothing;
- opens the directories and the logs for a moment, and binds the addresses without listening;
- checks that the control socket can be made, that the interfaces exist, and that the workers have enough descriptors;
- prints the configuration with all defaults and exits with 0 if there was no error, else with 1. `…` stands for the values of
  `request-headers` and `environment`.

An address that another process uses is an error. It is only a warning if the other process is probably a running samum: that process lets
other servers of its user share the address, or a server answers at `control`.

**Limits.** A configuration has at most 16,384 files, 64 MiB in all files together, and 8 levels of includes. At most 50 errors and 50
warnings are shown. [limits.md](limits.md) has all limits.

**Missing so far**: challenges in DNS and certificates for wildcards, authentication, compression on the fly, changes of the cookies of upstreams,
regular expressions.
"#;

/// The text about `interface` that comes before its keys.
const INTERFACES: &str = r#"
## Serving on a network interface

**Rights.** AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. A port below 1024 at an address of the kernel also needs
CAP_NET_BIND_SERVICE, because samum reserves the port with the kernel. A TAP device that belongs to the user needs no right. After the start
samum keeps at most seven rights, for reloads, logs that are reopened, files of other users and the end of programs (CGI): CAP_CHOWN,
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_IPC_LOCK, CAP_KILL and CAP_NET_BIND_SERVICE. Programs that root executes have all of
root's rights. With `user` only CAP_IPC_LOCK and CAP_NET_BIND_SERVICE are left.

**Memory.** The frames of each receive queue in use lie in 5.5 MiB of locked memory (11 MiB if the MTU is above 1770). Without CAP_IPC_LOCK
the limit of locked memory (`LimitMEMLOCK=` of systemd, `ulimit -l`, often 8 MiB) has to allow this memory for all queues; the limit counts
the memory of all processes of the user. With `cache = "never"` each worker may lock up to 16 MiB more for the buffers of its reads; buffers
beyond the limit are not locked and cost more CPU time. `ethtool -L eth1 combined 1` leaves one queue in use.

**Kernel.** AF_XDP as samum uses it needs Linux 5.18. Before 6.6 frames that are longer than 2 KiB (4 KiB with a large MTU) do not arrive:
turn off the functions that make such frames (`ethtool -K eth1 gro off lro off`).

**Limits.** An interface has at most 16 services (an address with a port), and at most 16 addresses of its own. New listeners and changed
keys of interfaces take effect after a restart, as `samum reload` says. Another MAC address, another MTU, and addresses that are added to or
removed from a served interface also take effect after a restart, as the log says. IP fragments are dropped: a client whose segments come in
fragments waits until it gives up. At the kernel's addresses, samum does not receive TCP after more than two IPv6 extension headers, or
after an extension header of more than 64 bytes: such connections are reset.

**Firewall.** The kernel's firewall (nftables, iptables) does not see the segments that AF_XDP receives and sends. `ss` and `tcpdump` do not
see received segments. Use `allow` and `deny` of sites, `samum stack` and `pcap` instead.

**Recorded frames** (`pcap`) are the frames between the stack and the interface. A segment that the interface cuts is one long frame, and
its checksum is not complete. Wireshark does not check checksums of TCP by default. If these checks are on, turn them off:
`-o tcp.check_checksum:FALSE`.

**A TAP device** (`frames = "tap"`) is for machines and containers without XDP. samum acts as the machine at the other end of the device's
cable, so samum needs an address of its own (`addresses`). The container needs the device `/dev/net/tun`. As root:

```sh
ip tuntap add samum0 mode tap user www-data
ip address add 10.9.0.1/24 dev samum0
ip link set samum0 up
sysctl net.ipv4.ip_forward=1
```

Then as the user, without any rights:

```sh
samum serve /srv/www --interface samum0 --frames tap --address 10.9.0.2/24 --gateway 10.9.0.1 --listen 10.9.0.2:80
```

The machine itself now reaches `http://10.9.0.2/`. Other machines need a route to this address (`ip route add 10.9.0.2 via` the machine's
address). The kernel forwards these frames, so its firewall sees them. Instead of routes, a bridge can hold the device and an interface;
samum's address then belongs to the network of the bridge.
"#;

/// Returns the reference, in Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    for section in keys::sections() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{}", section_text(&section));
    }
    out + INTERFACES
}

fn section_text(section: &Section) -> String {
    let title = match section.title {
        title if title.starts_with('[') => format!("Keys of {}", title.replace('[', "\\[")),
        title if title.contains(' ') => format!("Keys at {title}"),
        title => format!("Keys of `{title}`"),
    };
    let mut out = format!("## {title}\n\n{}\n", section.doc);
    for row in &section.rows {
        let _ = write!(
            out,
            "\n- **`{}`**: {}. Default: {}. Example: `{} = {}`  \n  {}\n",
            row.name, row.kind, row.default, row.name, row.example, row.doc
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_documentation_has_all_keys() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let text = super::markdown();
        if std::env::var_os("SAMUM_WRITE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "docs/configuration.md is not what SAMUM_WRITE=1 writes there");
    }
}

//! The keys of `[server]`.

use core::ops::RangeInclusive;
use std::path::PathBuf;

use super::interface::{interface_text, read_interface};
use super::pcap::PCAP;
use super::peers::read_peers;
use super::text::{bytes_text, list_text, path_text, seconds_text};
use super::{ACCOUNT, BYTES, Key, PREFIXES, SECONDS, inline_text, read_keys_with, set};
use crate::draft::{Draft, Thing};
use crate::message::{Notes, Span};
use crate::node::Node;
use crate::value::{self, quoted};
use crate::{Capture, Confine, Congestion, ErrorFormat, Frames, Interface, Server, rule};

/// The keys of `[server]`.
pub(super) const SERVER: &[Key<Draft, Server>] = &[
    Key {
        name: "threads",
        kind: "number",
        default: "one per core, if there are descriptors for them",
        example: "4",
        doc: "Worker threads.",
        read: |draft, node, notes| {
            set(&mut draft.server.threads, count(value::THREADS, node, notes));
        },
        write: |server| Some(server.threads.to_string()),
    },
    Key {
        name: "driver",
        kind: "`auto`, `uring` or `epoll`",
        default: "`\"auto\"`",
        example: r#""epoll""#,
        doc: "The kernel interface to use; `auto` is io_uring where the kernel has and allows it.",
        read: |draft, node, notes| {
            let driver = node.choice::<value::Driver>(notes);
            set(&mut draft.server.driver, driver.map(Into::into));
        },
        write: |server| Some(quoted(&value::word::<value::Driver, _>(&server.driver))),
    },
    Key {
        name: "interface",
        kind: "list of names and tables",
        default: "`[]`",
        example: r#"["eth1", { name = "eth2", addresses = ["10.0.0.1/24"] }]"#,
        doc: "The network interfaces whose listeners are served by samum's own TCP/IP stack, with a worker of its \
              own for each receive queue. A listener belongs to an interface if its address does; a listener for all \
              addresses is served by the kernel, too. All other traffic of the interface stays with the kernel. An \
              interface needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; after the start the server \
              keeps only a few rights; see “Serving on a network interface” below.",
        read: |draft, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                read_interface(node, notes).map(|interface| (interface, node.place))
            };
            let Some(interfaces) = node.list(notes, read) else { return };
            let thing = |(interface, place): &(Interface, Span)| {
                (Thing::Interface(interface.name.clone()), *place)
            };
            draft.server_things.extend(interfaces.iter().map(thing));
            draft.server.interfaces =
                interfaces.into_iter().map(|(interface, _)| interface).collect();
        },
        write: |server| {
            let all: Vec<_> = server.interfaces.iter().map(interface_text).collect();
            (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
        },
    },
    Key {
        name: "frames",
        kind: "`auto`, `xdp`, `packet` or `tap`",
        default: "`\"auto\"`",
        example: r#""packet""#,
        doc: "The way of frames from and to the interfaces: AF_XDP in both directions (`xdp`), AF_XDP to receive and \
              a packet socket to send large segments (`packet`), or a TAP device (`tap`). A TAP device needs \
              `addresses`, saves most where the clients are on the same machine, and costs most in a bridge. `auto` \
              receives by AF_XDP. A short measurement at the start finds out whether AF_XDP or the packet socket is \
              cheaper for sending small frames and large frames.",
        read: |draft, node, notes| {
            set(&mut draft.server.frames, node.choice::<Frames>(notes));
        },
        write: |server| {
            let word = || quoted(&value::word::<Frames, _>(&server.frames));
            (!server.interfaces.is_empty()).then(word)
        },
    },
    Key {
        name: "congestion",
        kind: "`cubic`, `bbr` or `newreno`",
        default: "`\"cubic\"`",
        example: r#""bbr""#,
        doc: "The congestion control of connections on the interfaces. For CUBIC each loss means that the path is \
              full. BBR measures the rate at which the path delivers, and sends at this rate: BBR is faster where \
              frames are lost by chance, and keeps queues short. NewReno is the older standard, for comparisons.",
        read: |draft, node, notes| {
            set(&mut draft.server.congestion, node.choice::<Congestion>(notes));
        },
        write: |server| {
            let word = || quoted(&value::word::<Congestion, _>(&server.congestion));
            (!server.interfaces.is_empty()).then(word)
        },
    },
    Key {
        name: "pcap",
        kind: "path, or table",
        default: "none",
        example: r#"{ file = "/var/tmp/eth1.pcapng", peers = ["10.0.0.2"] }"#,
        doc: "Record the frames of the interfaces in files of the format pcapng, for Wireshark and tcpdump.",
        read: |draft, node, notes| {
            let mut capture = Capture::new(PathBuf::new());
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys_with(&mut capture, PCAP, "pcap", &["file"], table, notes);
            } else {
                set(&mut capture.file, node.file(notes));
            }
            draft.server.capture = Some(capture);
        },
        write: |server| server.capture.as_ref().map(|capture| inline_text(PCAP, capture)),
    },
    Key {
        name: "control",
        kind: "path",
        default: "none",
        example: r#""/run/samum/control.sock""#,
        doc: "The Unix socket for `samum reload`, `samum upgrade`, `samum health`, `samum explain` and `samum \
              stack`, which only the user of the server and root may use. Its directory must belong to root or to \
              this user, and not every user may write to the directory. Without this key the socket is \
              `control.sock` in `$RUNTIME_DIRECTORY`, else in `/run/samum`; if the socket cannot be made there, a \
              message says so.",
        read: |draft, node, notes| {
            if node.as_text().is_some_and(|text| text == "none" || rule::is_refusal(text)) {
                return notes.error(
                    node.place,
                    "expected the path of a socket: leave the key out for the default",
                );
            }
            if let Some(path) = node.file(notes) {
                draft.server_things.push((Thing::Control(path.clone()), node.place));
                draft.server.control = Some(path);
            }
        },
        write: |server| server.control.as_deref().map(path_text),
    },
    Key {
        name: "trusted-proxies",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["10.0.0.0/8", "unix"]"#,
        doc: "The proxies that may name their clients, by `Forwarded`, `X-Forwarded-For` or the PROXY protocol; \
              `unix` stands for all clients of a Unix socket. Access rules, limits and logs use the client that a \
              trusted proxy names. The scheme that a trusted proxy reports (`X-Forwarded-Proto`, or `proto` of \
              `Forwarded`) is the scheme of the request: for programs and applications (`HTTPS`, `REQUEST_SCHEME`), \
              upstreams, `$scheme`, `https` and `hsts`. `SERVER_PORT` has the port of `X-Forwarded-Port`, of \
              `X-Forwarded-Host`, of `host` of `Forwarded`, of a `Host` with another port than the listener's, or of the \
              scheme; if a client is no trusted proxy, these fields of its requests are \
              left out. A request whose fields name different clients is answered 400.",
        read: |draft, node, notes| {
            set(&mut draft.server.trusted_proxies, read_peers(node, notes));
        },
        write: |server| Some(list_text(&server.trusted_proxies)),
    },
    Key {
        name: "error-format",
        kind: "`text` or `json`",
        default: "`\"text\"`",
        example: r#""json""#,
        doc: "The format of messages on standard error.",
        read: |draft, node, notes| {
            set(&mut draft.server.error_format, node.choice::<ErrorFormat>(notes));
        },
        write: |server| Some(quoted(&value::word::<ErrorFormat, _>(&server.error_format))),
    },
    Key {
        name: "user",
        kind: ACCOUNT,
        default: "the user that starts the server",
        example: r#""samum""#,
        doc: "The user that the server becomes when its sockets are open: by names or numbers. Without `:GROUP` the \
              server gets all groups of the user, otherwise only this group. The server keeps only the right to \
              listen at ports below 1024. Files, keys, logs and directories that this user cannot open are errors. \
              docs/confinement.md has the details.",
        read: |draft, node, notes| {
            if let Some(account) = node.text(value::account, notes) {
                draft.server_things.push((Thing::Account(account.clone()), node.place));
                draft.server.user = Some(account);
            }
        },
        write: |server| server.user.as_ref().map(|account| quoted(&account.to_string())),
    },
    Key {
        name: "confine",
        kind: "`auto`, `required` or `off`",
        default: "auto with `user`, else off",
        example: r#""required""#,
        doc: "The restriction of the server to the files that it needs, by the kernel (Landlock). The server may use \
              the directories around the served directories, the directories of logs, keys, buffers and sockets, and \
              the files that programs (`cgi`) need. With `auto` the server uses the restrictions that the kernel \
              has, and a message lists the missing ones; with `required` the server does not start on such a kernel. \
              docs/confinement.md has the details.",
        read: |draft, node, notes| {
            if let Some(confine) = node.choice::<Confine>(notes) {
                draft.server.confine = Some(confine);
            }
        },
        write: |server| server.confine.map(|confine| quoted(&value::word::<Confine, _>(&confine))),
    },
    Key {
        name: "max-connections",
        kind: "number",
        default: "`16384`",
        example: "4096",
        doc: "The maximum number of connections. At this number, a new connection replaces the connection that has \
              been idle for longest. While no connection has been idle for 50 ms, the new connection waits.",
        read: |draft, node, notes| {
            let number = count(value::CONNECTIONS, node, notes);
            set(&mut draft.server.tuning.connections_max, number);
        },
        write: |server| Some(server.tuning.connections_max.to_string()),
    },
    Key {
        name: "max-body-files",
        kind: BYTES,
        default: "`\"1g\"`",
        example: r#""8g""#,
        doc: "Bytes of all files together in which bodies of requests in chunks wait for programs and FastCGI \
              applications (see `buffer-dir`). Beyond this limit, the client with the most bytes gets a 503 for one \
              of its requests. A request whose body alone exceeds this limit is answered 413.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.body_files_max, node.quantity(value::bytes, notes));
        },
        write: |server| Some(bytes_text(server.tuning.body_files_max)),
    },
    Key {
        name: "timeout-idle",
        kind: SECONDS,
        default: "`75`",
        example: "60",
        doc: "A connection without a request is closed after this time.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.timeout_idle, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_idle)),
    },
    Key {
        name: "timeout-header",
        kind: SECONDS,
        default: "`20`",
        example: "10",
        doc: "A request that is not complete after this time is answered 408.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.timeout_header, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_header)),
    },
    Key {
        name: "timeout-send",
        kind: SECONDS,
        default: "`30`",
        example: "20.5",
        doc: "A connection whose client receives less than `rate-min` for this time is closed.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.timeout_send, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_send)),
    },
    Key {
        name: "timeout-disk",
        kind: SECONDS,
        default: "`30`",
        example: r#""10s""#,
        doc: "A request that has waited for the disk for this time is answered 503; if its response has begun, the \
              connection is closed. Until the device answers, further requests for its files are answered 503 at \
              once, except one request in each such time.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.timeout_disk, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_disk)),
    },
    Key {
        name: "timeout-drain",
        kind: SECONDS,
        default: "30 at a stop, 600 at an upgrade",
        example: "300",
        doc: "The time after which remaining connections are closed when the server stops, or when another process \
              has replaced it (`samum upgrade`). The log has the number of these connections, and the number of \
              tunnels among them. Tunnels have no end of their own.",
        read: |draft, node, notes| {
            let time = node.quantity(value::seconds, notes);
            set(&mut draft.server.tuning.timeout_drain, time.map(Some));
        },
        write: |server| server.tuning.timeout_drain.map(seconds_text),
    },
    Key {
        name: "rate-min",
        kind: "bytes per second",
        default: "`64`",
        example: r#""1KiB/s""#,
        doc: "Bytes per second that a client must take while a response waits for it.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.rate_min, node.quantity(value::bytes_per_second, notes));
        },
        write: |server| Some(bytes_text(server.tuning.rate_min)),
    },
    Key {
        name: "max-request-head",
        kind: "bytes",
        default: "`\"16KiB\"`",
        example: r#""64KiB""#,
        doc: "The maximum length of the head of a request (its line and its fields), from 1 KiB to 256 KiB. A longer \
              head is answered 431, and a target of more than half this length 414. Cookies of single sign-on may \
              need more. A connection holds up to this many bytes while its client sends a head slowly. If the \
              worker's memory for connections is spent, a head of more than 32 KiB is answered 503.",
        read: |draft, node, notes| {
            if let Some(bytes) = node.quantity(value::head_bytes, notes) {
                draft.server.tuning.set_request_head(bytes);
            }
        },
        write: |server| Some(head_text(&server.tuning.request_limits)),
    },
    Key {
        name: "max-request-fields",
        kind: "number",
        default: "`100`",
        example: "200",
        doc: "The maximum number of fields of a request, up to 4,096. A request with more fields is answered 431.",
        read: |draft, node, notes| {
            let limits = &mut draft.server.tuning.request_limits;
            set(&mut limits.fields_max, count(value::FIELDS, node, notes));
        },
        write: |server| Some(server.tuning.request_limits.fields_max.to_string()),
    },
    Key {
        name: "max-response-head",
        kind: "bytes",
        default: "`\"32KiB\"`",
        example: r#""64KiB""#,
        doc: "The maximum length of the head of a response of an upstream, of a FastCGI application or of a program, \
              from 1 KiB to 256 KiB. If the head is longer, the client gets a 502.",
        read: |draft, node, notes| {
            let limits = &mut draft.server.tuning.response_limits;
            set(&mut limits.head_bytes_max, node.quantity(value::head_bytes, notes));
        },
        write: |server| Some(head_text(&server.tuning.response_limits)),
    },
    Key {
        name: "max-response-fields",
        kind: "number",
        default: "`4096`",
        example: "200",
        doc: "The maximum number of fields of such a head, up to 4,096. If the head has more fields, the client gets \
              a 502.",
        read: |draft, node, notes| {
            let limits = &mut draft.server.tuning.response_limits;
            set(&mut limits.fields_max, count(value::FIELDS, node, notes));
        },
        write: |server| Some(server.tuning.response_limits.fields_max.to_string()),
    },
    Key {
        name: "max-ranges",
        kind: "number",
        default: "`256`",
        example: "32",
        doc: "The maximum number of ranges of a request, up to 1,024. A request with more ranges gets the whole \
              file. Ranges that overlap, or have less than 81 bytes between them, are sent as one range.",
        read: |draft, node, notes| {
            set(&mut draft.server.tuning.ranges_max, count(value::RANGES, node, notes));
        },
        write: |server| Some(server.tuning.ranges_max.to_string()),
    },
];

/// A number of things in this range.
fn count(range: RangeInclusive<i64>, node: Node<'_>, notes: &mut Notes) -> Option<usize> {
    node.number(range, notes).and_then(|number| usize::try_from(number).ok())
}

fn head_text(limits: &http1::Limits) -> String {
    bytes_text(limits.head_bytes_max as u64)
}

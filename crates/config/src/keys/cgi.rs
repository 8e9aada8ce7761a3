//! The keys of the table `cgi`.

use std::path::PathBuf;

use super::environment::{read_variables, variables_text};
use super::text::{bytes_text, path_text, seconds_text};
use super::{BYTES, Key, SECONDS, set};
use crate::node::Node;
use crate::{Cgi, value};

/// The keys of `cgi`.
pub(super) const CGI: &[Key<Cgi>] = &[
    Key {
        name: "directory",
        kind: "path",
        default: "none; it is needed",
        example: r#""/usr/lib/cgi-bin""#,
        doc: "The directory of the programs.",
        read: |cgi, node, notes| set(&mut cgi.root, node.file(notes)),
        write: |cgi| Some(path_text(&cgi.root)),
    },
    Key {
        name: "processes",
        kind: "number",
        default: "`32`",
        example: "8",
        doc: "The maximum number of programs that run at the same time, of all workers together. 256 further \
              requests wait in a queue. If the queue is full, or after the time `timeout` in the queue, the response is a \
              503.",
        read: |cgi, node, notes| {
            let number = node.number(1..=65_536, notes);
            set(&mut cgi.processes_max, number.and_then(|number| u32::try_from(number).ok()));
        },
        write: |cgi| Some(cgi.processes_max.to_string()),
    },
    Key {
        name: "timeout",
        kind: SECONDS,
        default: "`60`",
        example: "20",
        doc: "A program that has not ended after this time is sent SIGTERM, and SIGKILL 5 s later. This time \
              includes the time that the client takes to send and to receive. The response is a 504, or is cut off.",
        read: |cgi, node, notes| set(&mut cgi.timeout, node.quantity(value::seconds, notes)),
        write: |cgi| Some(seconds_text(cgi.timeout)),
    },
    Key {
        name: "output",
        kind: BYTES,
        default: "`\"64m\"`",
        example: r#""1g""#,
        doc: "Bytes that a program may write, to standard output and standard error together. A program that writes \
              more is stopped, and its response is cut off.",
        read: |cgi, node, notes| set(&mut cgi.output_max, node.quantity(value::bytes, notes)),
        write: |cgi| Some(bytes_text(cgi.output_max)),
    },
    Key {
        name: "environment",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ GIT_PROJECT_ROOT = "/srv/git" }"#,
        doc: "Variables of the environment, in addition to the variables of the request and `PATH`; they replace \
              variables with the same names. Nothing of the server's own environment is passed on.",
        read: |cgi, node, notes| read_variables(&mut cgi.environment, node, notes),
        write: |cgi| variables_text(&cgi.environment),
    },
    Key {
        name: "read",
        kind: "list of paths",
        default: "`[]`",
        example: r#"["/srv/git"]"#,
        doc: "Directories and files that the programs may read and execute if the server is confined (`confine`). Without \
              this key they may use `/usr`, `/bin`, `/lib*`, `/etc/ld.so*`, `/dev/null` and their own directory.",
        read: |cgi, node, notes| set(&mut cgi.read, node.list(notes, Node::file)),
        write: |cgi| paths_text(&cgi.read),
    },
    Key {
        name: "write",
        kind: "list of paths",
        default: "`[]`",
        example: r#"["/var/lib/guestbook", "/tmp"]"#,
        doc: "Directories and files that the programs may read and change, but not execute, if the server is \
              confined. The user of the server must have these rights, too.",
        read: |cgi, node, notes| set(&mut cgi.write, node.list(notes, Node::file)),
        write: |cgi| paths_text(&cgi.write),
    },
];

fn paths_text(paths: &[PathBuf]) -> Option<String> {
    let all: Vec<_> = paths.iter().map(|path| path_text(path)).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
}

//! The keys of the table `log`.

use std::sync::Arc;

use super::text::{path_text, some_list_text};
use super::{Key, inline_text, read_keys, set};
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, exact, quoted};
use crate::{Log, LogFormat, LogTarget, OwnFormat, Sample, rule};

/// The keys of `log`.
pub(super) const LOG: &[Key<Log>] = &[
    Key {
        name: "file",
        kind: "path, `-` for standard output, or `none`",
        default: "none; it, `syslog` or `journald` is needed",
        example: r#""/var/log/samum/access.log""#,
        doc: "The file to append to, which is opened again on SIGHUP and SIGUSR1. A server that runs as root follows \
              a symbolic link of another user only into a directory of that user.",
        read: |log, node, notes| set(&mut log.target, read_log(node, notes)),
        write: |log| match &log.target {
            LogTarget::None => Some(quoted("none")),
            LogTarget::Stdout => Some(quoted("-")),
            LogTarget::File(path) => Some(path_text(path)),
            LogTarget::Syslog(_) | LogTarget::Journald(_) => None,
        },
    },
    Key {
        name: "syslog",
        kind: "`unix:` and a path",
        default: "none",
        example: r#""unix:/dev/log""#,
        doc: "The socket of a daemon for syslog, instead of a file. Each line is a message with the facility `daemon` and the \
              severity `info`. A message that the socket does not take at once is dropped and counted.",
        read: |log, node, notes| {
            let socket = |text: &str| match text.strip_prefix("unix:") {
                Some(path) if path.starts_with('/') => Ok(path.into()),
                _ => Err("expected `unix:` and a path from the root, such as \"unix:/dev/log\""
                    .to_owned()),
            };
            set(&mut log.target, node.text(socket, notes).map(LogTarget::Syslog));
        },
        write: |log| match &log.target {
            LogTarget::Syslog(path) => Some(quoted(&format!("unix:{}", path.display()))),
            _ => None,
        },
    },
    Key {
        name: "journald",
        kind: "path",
        default: "none",
        example: r#""/run/systemd/journal/socket""#,
        doc: "The socket of the journal of systemd, instead of a file. Each line is the message of an entry with fields of its \
              own, such as `SAMUM_STATUS` and `SAMUM_REQUEST_ID`. An entry that the socket does not take at once is dropped \
              and counted.",
        read: |log, node, notes| {
            set(&mut log.target, node.file(notes).map(LogTarget::Journald));
        },
        write: |log| match &log.target {
            LogTarget::Journald(path) => Some(path_text(path)),
            _ => None,
        },
    },
    Key {
        name: "format",
        kind: "`common`, `combined`, `json`, or a text with variables",
        default: "`\"combined\"`",
        example: r#""$client $status $request-id""#,
        doc: "The format of the lines. In a text a variable stands for a fact about a request: the variables of \
              `request-headers`, and `$bytes`, `$connection`, `$cut`, `$disk-seconds`, `$reason`, `$referer`, \
              `$request`, `$request-bytes`, `$seconds`, `$site`, `$status`, `$time`, `$traceparent`, `$upstream`, \
              `$upstream-connect-seconds`, `$upstream-head-seconds`, `$upstream-body-seconds`, `$user-agent` and \
              `$version`. In a name `_` is the same as `-`. A missing value is `-`. In values each quote, each \
              backslash and each byte that is no printable ASCII is written as `\\xHH`. `$$` is a dollar.",
        read: |log, node, notes| set(&mut log.format, read_format(node, notes)),
        write: |log| Some(exact(&format_text(&log.format))),
    },
    Key {
        name: "status",
        kind: "status, class of statuses, or list of them",
        default: "all statuses",
        example: r#""5xx""#,
        doc: "The statuses of the responses that have a line.",
        read: |log, node, notes| {
            let list = if node.is_list() {
                node.list(notes, |node, notes| node.quantity(rule::status_set, notes))
            } else {
                node.quantity(rule::status_set, notes).map(|status| vec![status])
            };
            if node.is_empty_list() {
                notes.error(node.place, "expected at least one status");
            }
            set(&mut log.statuses, list);
        },
        write: |log| some_list_text(&log.statuses),
    },
    Key {
        name: "sample",
        kind: "number",
        default: "`1`",
        example: "0.01",
        doc: "The share of these responses that have a line, from 0.000001 to 1: 0.01 is one of 100.",
        read: |log, node, notes| set(&mut log.sample, node.quantity(read_sample, notes)),
        write: |log| {
            let part = f64::from(log.sample.of_million) / f64::from(Sample::ALL);
            (log.sample != Sample::default()).then(|| part.to_string())
        },
    },
];

/// Reads the key `log` of a site or a route.
pub(super) fn read_log_key(log: &mut Log, node: Node<'_>, notes: &mut Notes) {
    if !node.is_table() {
        return set(&mut log.target, read_log(node, notes));
    }
    let Some(table) = node.table(notes) else { return };
    let is_known = read_keys(log, LOG, "log", table, notes);
    let given = ["file", "syslog", "journald"].iter().filter(|key| table.has(key)).count();
    // An unknown key may be the one that is missing.
    if given > 1 || given == 0 && is_known {
        notes.error(node.place, "expected one of `file`, `syslog` and `journald`");
    }
}

/// The value of the key `log`.
pub(super) fn log_text(log: &Log) -> String {
    inline_text(LOG, log)
}

fn read_log(node: Node<'_>, notes: &mut Notes) -> Option<LogTarget> {
    let read = |text: &str| match &*value::log(text)? {
        "none" => Ok(LogTarget::None),
        "-" => Ok(LogTarget::Stdout),
        path => node.join(path).map(LogTarget::File),
    };
    node.text_or("a path, `-` for standard output, or `none`", read, notes)
}

/// The value of `format` that is no word.
const OWN_FORMAT: &str = ", or a text with variables";

fn read_format(node: Node<'_>, notes: &mut Notes) -> Option<LogFormat> {
    let read = |text: &str| match text.contains('$') {
        true => OwnFormat::new(text).map(|own| LogFormat::Own(Arc::new(own))),
        false => value::choice_or(text, OWN_FORMAT),
    };
    match node.as_text() {
        Some(_) => node.template(read, notes),
        None => node.choice_or(OWN_FORMAT, notes),
    }
}

fn format_text(format: &LogFormat) -> String {
    match format {
        LogFormat::Common => "common".to_owned(),
        LogFormat::Combined => "combined".to_owned(),
        LogFormat::Json => "json".to_owned(),
        LogFormat::Own(own) => own.text().to_owned(),
    }
}

fn read_sample(text: &str) -> Result<Sample, String> {
    let wrong = || "expected a number from 0.000001 to 1".to_owned();
    let part: f64 = text.parse().map_err(|_| wrong())?;
    if !(0.000_001..=1.0).contains(&part) {
        return Err(wrong());
    }
    // It is between 1 and a million.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as the range says"
    )]
    let of_million = (part * f64::from(Sample::ALL)).round() as u32;
    Ok(Sample { of_million })
}

//! The keys of the table `fastcgi`.

use super::environment::{read_variables, variables_text};
use super::servers::read_applications;
use super::text::{list_text, path_text};
use super::{FLAG, Key, set};
use crate::Fastcgi;

/// The keys of `fastcgi`.
pub(super) const FASTCGI: &[Key<Fastcgi>] = &[
    Key {
        name: "server",
        kind: "server, or list of servers",
        default: "none; it is needed",
        example: r#"["10.0.0.1:9000", "10.0.0.2:9000"]"#,
        doc: "The application: `HOST:PORT` or `unix:PATH`.",
        read: |fastcgi, node, notes| fastcgi.upstream.servers = read_applications(node, notes),
        write: |fastcgi| {
            let servers: Vec<_> =
                fastcgi.upstream.servers.iter().map(|server| &server.address).collect();
            Some(list_text(&servers))
        },
    },
    Key {
        name: "root",
        kind: "path",
        default: "that of `files`",
        example: r#""/srv/www""#,
        doc: "The directory of the scripts as the application sees it. If the route has no `files`, this key is \
              needed, and all requests of the route are for scripts: the application decides whether a script \
              exists.",
        read: |fastcgi, node, notes| fastcgi.root = node.file(notes),
        write: |fastcgi| fastcgi.root.as_deref().map(path_text),
    },
    Key {
        name: "keep",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Connections are kept for further requests. Each connection occupies one process of php-fpm, so there \
              must be more processes than requests at a time.",
        read: |fastcgi, node, notes| set(&mut fastcgi.keeps_connections, node.flag(notes)),
        write: |fastcgi| fastcgi.keeps_connections.then(|| "true".to_owned()),
    },
    Key {
        name: "environment",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ APP_ENV = "production" }"#,
        doc: "Variables of the environment, in addition to the variables of the request; they replace variables with \
              the same names.",
        read: |fastcgi, node, notes| read_variables(&mut fastcgi.environment, node, notes),
        write: |fastcgi| variables_text(&fastcgi.environment),
    },
];

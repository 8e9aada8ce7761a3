//! The keys of `[[site]]` that its routes have, too, and inherit.

use std::collections::BTreeMap;
use std::path::Path;

use sendfile::Window;

use super::headers::HEADER;
use super::limits::LIMITS;
use super::request_headers::{read_request_headers, request_headers_text};
use super::symlinks::{SYMLINKS, symlinks_text};
use super::text::{bytes_text, list_text, path_text, seconds_text, some_list_text};
use super::{
    BYTES, FLAG, Key, PREFIXES, SECONDS, inline_text, read_keys, require, set, unless_none,
};
use crate::draft::Shared;
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, quoted};
use crate::{
    Action, Balance, FileRules, Files, GatewayRules, HashBy, HeaderRule, Limits, Route, Symlinks,
    rule,
};

/// The keys of `[[site]]` that its routes have, too, and inherit.
pub(super) const SHARED: &[Key<Shared, Route>] = &[
    Key {
        name: "allow",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["192.0.2.0/24", "2001:db8::/32"]"#,
        doc: "The clients that may use the route; if it is not empty, others are refused (403). Of several \
              ranges in `allow` and `deny` the most specific one decides. `unix` are all clients on a Unix socket that \
              no proxy of `trusted-proxies` gives an address. They have no limits of their own.",
        read: |shared, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::peers, notes));
            set(&mut shared.access.allow, list);
        },
        write: |route| some_list_text(&route.access.allow),
    },
    Key {
        name: "deny",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["192.0.2.7"]"#,
        doc: "The clients that are refused (403). If it has `::/0`, or `0.0.0.0/0` and `::/0`, `unix` is refused, too, unless \
              it is in `allow`.",
        read: |shared, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::peers, notes));
            set(&mut shared.access.deny, list);
        },
        write: |route| some_list_text(&route.access.deny),
    },
    Key {
        name: "limits",
        kind: "table",
        default: "`{}`",
        example: r#"{ connections-per-ip = 64, requests-per-ip = "100/s burst 200" }"#,
        doc: "Limits for each client address. A route has the limits of its site that it does not set itself.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            read_keys(shared, LIMITS, "limits", table, notes);
        },
        write: |route| {
            let limits = route.limits;
            let requests = limits.requests.filter(|_| limits.has_own_requests);
            let own = Limits { requests, ..limits };
            (own != Limits::default()).then(|| inline_text(LIMITS, &own))
        },
    },
    Key {
        name: "headers",
        kind: "list of tables",
        default: "`[]`",
        example: r#"[{ match = "*.css", set = { Cache-Control = "max-age=86400" }, remove = ["Server"] }]"#,
        doc: "Changes of the fields of responses, in this order. Those of the site come before those of the \
              route.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                let mut rule = HeaderRule::default();
                read_keys(&mut rule, HEADER, "headers", node.table(notes)?, notes);
                Some(rule)
            };
            shared.headers.extend(node.list(notes, read).unwrap_or_default());
        },
        write: |route| {
            let all: Vec<_> = route.headers.iter().map(|rule| inline_text(HEADER, rule)).collect();
            (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
        },
    },
    Key {
        name: "errors",
        kind: "table of statuses and paths",
        default: "`{}`",
        example: r#"{ 404 = "/404.html", 503 = "/busy.html" }"#,
        doc: "Pages for statuses from 400 to 599, but 412 and 416: paths of the same site that lead to files. A \
              route has the pages of its site for statuses that it does not set itself. A page is sent with the \
              status of the error. Where it cannot be read, the page of the server is sent. Requests for which there is \
              no route have the pages of the site; those that are not HTTP have the page of the server.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, place, node) in table.entries() {
                let status = name.parse().ok().ok_or_else(|| format!("`{name}` is no status"));
                let status = status.and_then(rule::error_status);
                match (status, node.text(value::path, notes)) {
                    (Err(why), _) => notes.error(place, why),
                    (Ok(status), Some(path)) => {
                        shared.errors.insert(status, (path, node.place));
                    }
                    (Ok(_), None) => {}
                }
            }
        },
        write: |route| errors_text(&route.errors),
    },
    Key {
        name: "server-timing",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Responses have a `Server-Timing` field that says how long the disk took.",
        read: |shared, node, notes| set(&mut shared.server_timing, node.flag(notes)),
        write: |route| Some(route.server_timing.to_string()),
    },
    Key {
        name: "index",
        kind: "name of a file, or list of names",
        default: "`[\"index.html\"]`",
        example: r#"["index.php", "index.html"]"#,
        doc: "The files that are served for their directory: the first of these that it has, 8 at most. A directory in \
              place of one is passed over. With `clean-urls` only the first name redirects to its directory.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::index, notes);
            let names = match node.as_text() {
                Some(_) => read(node, notes).map(|name| vec![name]),
                None => node.list(notes, read),
            };
            let Some(names) = names else { return };
            if node.is_empty_list() {
                notes.error(node.place, "expected at least one name");
            } else if names.len() > FileRules::INDICES_MAX {
                let most = FileRules::INDICES_MAX;
                notes.error(node.place, format!("an index has {most} names at most"));
            } else if let Some(name) = value::repeated(&names) {
                notes.error(node.place, format!("`{name}` is listed twice"));
            } else if !names.is_empty() {
                shared.files.index = names;
            }
        },
        write: |route| files(route).map(|files| list_text(&files.rules.index)),
    },
    Key {
        name: "listing",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Directories that have no such file are listed (HTML, or JSON for clients that prefer it).",
        read: |shared, node, notes| set(&mut shared.files.listing, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.listing.to_string()),
    },
    Key {
        name: "cache",
        kind: "`always`, `never` or `popular`",
        default: "`\"popular\"`",
        example: r#""never""#,
        doc: "The files that stay in the page cache after they were read; `samum serve --help` explains them.",
        read: |shared, node, notes| {
            let cache = node.text(value::choice::<value::Cache>, notes);
            set(&mut shared.files.policy.caching, cache.map(Into::into));
        },
        write: |route| {
            let caching = files(route)?.rules.policy.caching;
            Some(quoted(&value::word::<value::Cache, _>(&caching)))
        },
    },
    Key {
        name: "readahead",
        kind: BYTES,
        default: "`\"2m\"`",
        example: r#""512k""#,
        doc: "Prefetch at most this many bytes beyond those that a client has taken: less than 4 GiB.",
        read: |shared, node, notes| {
            let bytes = node.quantity(value::readahead, notes);
            set(&mut shared.files.policy.window, bytes.map(Window::of));
        },
        write: |route| files(route).map(|files| bytes_text(files.rules.policy.window.bytes())),
    },
    Key {
        name: "etag",
        kind: "`stat` or `hash`",
        default: "`\"stat\"`",
        example: r#""hash""#,
        doc: "The source of the ETag of a file: what `stat(2)` says, or the contents.",
        read: |shared, node, notes| {
            let etag = node.text(value::choice::<value::Etag>, notes);
            set(&mut shared.files.tags, etag.map(Into::into));
        },
        write: |route| Some(quoted(&value::word::<value::Etag, _>(&files(route)?.rules.tags))),
    },
    Key {
        name: "fallback",
        kind: "path of a URL, or `none`",
        default: "`\"none\"`",
        example: r#""/index.html""#,
        doc: "The file that is served with status 200 where there is nothing: a path of the same site that leads \
              to files. Where that file is missing, too, the response is a 404.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::path, notes);
            set(&mut shared.files.fallback, unless_none(node, notes, read));
            shared.fallback_place = Some(node.place);
        },
        write: |route| files(route)?.rules.fallback.as_deref().map(quoted),
    },
    Key {
        name: "clean-urls",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "`/a` is answered with `a.html` where there is no file `a`, `/a.html` redirects to `/a`, and `/index.html` \
              to `/`. A page comes before the directory of the same name, as with nginx (`try_files $uri $uri.html $uri/`), \
              Caddy and GitHub Pages: `/a` is `a.html` and `/a/` the directory. A directory whose own name ends with `.html` is \
              a directory.",
        read: |shared, node, notes| set(&mut shared.files.clean_urls, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.clean_urls.to_string()),
    },
    Key {
        name: "types",
        kind: "table of names or extensions, and media types",
        default: "`{}`",
        example: r#"{ wasm = "application/wasm", SHA256SUMS = "text/plain" }"#,
        doc: "Media types by the whole name of a file, or by its extension, before those that are built in; the name comes \
              first, then the longest extension. Case means nothing. A route has the types of its site for names and extensions \
              that it does not set itself. `README`, `LICENSE`, `SHA256SUMS`, `Release`, `Makefile` and their like are \
              `text/plain`. A drawing with the extension `svgz` is sent with `Content-Encoding: gzip`, also to clients that \
              do not ask for it, unless it has another type here.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, _, node) in table.entries() {
                let read = |value: &str| rule::type_of(name, value);
                shared.files.types.extend(node.text(read, notes));
            }
        },
        write: |route| {
            let types = &files(route)?.rules.types;
            let entry =
                |(name, value): (&String, &String)| format!("{} = {}", quoted(name), quoted(value));
            let all: Vec<_> = types.iter().map(entry).collect();
            (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
        },
    },
    Key {
        name: "default-type",
        kind: "media type",
        default: "`\"application/octet-stream\"`",
        example: r#""text/plain""#,
        doc: "The media type of files whose names and extensions are not known. Browsers download the default.",
        read: |shared, node, notes| {
            set(&mut shared.files.default_type, node.text(rule::media_value, notes));
        },
        write: |route| files(route).map(|files| quoted(&files.rules.default_type)),
    },
    Key {
        name: "charset",
        kind: "name of an encoding, or `none`",
        default: "`\"utf-8\"`",
        example: r#""iso-8859-1""#,
        doc: "The encoding of text files, which their media type names.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(rule::charset, notes);
            set(&mut shared.files.charset, unless_none(node, notes, read));
        },
        write: |route| {
            let charset = files(route)?.rules.charset.as_deref();
            Some(quoted(charset.unwrap_or("none")))
        },
    },
    Key {
        name: "dotfiles",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Files and directories are served whose names begin with a dot. `/.well-known/` is served anyway.",
        read: |shared, node, notes| set(&mut shared.files.dotfiles, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.dotfiles.to_string()),
    },
    Key {
        name: "symlinks",
        kind: "`beneath`, `never`, `follow`, or table",
        default: "`\"beneath\"`",
        example: r#"{ follow = ["/mnt/disk2"] }"#,
        doc: "The symbolic links that are followed: those that stay beneath the directory; none; all of them, to \
              everything that the user of the server may read; or those that stay beneath the directory and those that \
              lead into it or into others, which the table `symlinks` names. Other links lead to nothing, and are not in \
              listings; links into `/proc` never lead anywhere. `dotfiles` is about the path of the request, not about \
              that of a target. A link with another name to a script or a program of the site leads to nothing. \
              Scripts that another process opens by their path follow its own rules.",
        read: |shared, node, notes| {
            let symlinks = if node.is_table() {
                node.table(notes).map(|table| {
                    let mut into = Vec::new();
                    read_keys(&mut into, SYMLINKS, "symlinks", table, notes);
                    require(table, "follow", "symlinks", notes);
                    Symlinks::Into(into.into())
                })
            } else {
                node.text(value::choice::<Symlinks>, notes)
            };
            set(&mut shared.files.symlinks, symlinks);
        },
        write: |route| Some(symlinks_text(&files(route)?.rules.symlinks)),
    },
    Key {
        name: "precompressed",
        kind: FLAG,
        default: "`true`",
        example: "false",
        doc: "`a.css.br`, `a.css.zst` or `a.css.gz` is sent in place of `a.css` to clients that understand it, also \
              if it is older than `a.css`: whatever writes `a.css` has to write it anew, or remove it. It may be a \
              symbolic link if `symlinks` lets `a.css` be one.",
        read: |shared, node, notes| set(&mut shared.files.precompressed, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.precompressed.to_string()),
    },
    Key {
        name: "includes",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Files may have directives (server-side includes), such as `<!--#include virtual=\"/menu\" -->`, which \
              are replaced by what they say: `include` (`virtual` or `file`); `echo` (with `encoding` `entity`, \
              `url` or `none`, and `default`); `set`; `if`, `elif`, `else`, `endif`; `config` (`errmsg`, `timefmt`). \
              The `expr` of a condition is a variable or a text, or two of them with `=` or `!=` between; there are \
              no regular expressions. What is included is found as if the client had asked for it, also in internal \
              routes, and may come from programs and servers; an error, a cycle or a response that is not a 200 \
              shows the error message instead. Variables are those that were set, and those of the request: \
              `DOCUMENT_URI`, `DOCUMENT_NAME`, `QUERY_STRING`, `REQUEST_URI`, `REQUEST_METHOD`, `SERVER_PROTOCOL`, \
              `REMOTE_ADDR`; the times `LAST_MODIFIED`, `DATE_LOCAL` and `DATE_GMT`, all in UTC; `ARG_` with the \
              name of a part of the query; `HTTP_` with the name of a field. A file with directives has no ETag, no \
              Last-Modified, no ranges and no precompressed form, and 32 MiB at most; one without is sent like any \
              other. Pages to which a server, a script or a program hands a request over are processed, too. Pages \
              for errors are sent as they are.",
        read: |shared, node, notes| set(&mut shared.files.includes, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.includes.to_string()),
    },
    Key {
        name: "include-types",
        kind: "list of media types",
        default: "`[\"text/html\"]`",
        example: r#"["text/html", "text/xml"]"#,
        doc: "The media types of the files that may have directives.",
        read: |shared, node, notes| {
            let list = node.list(notes, |node, notes| node.text(rule::media_essence, notes));
            set(&mut shared.files.include_types, list);
        },
        write: |route| files(route).map(|files| list_text(&files.rules.include_types)),
    },
    Key {
        name: "buffer",
        kind: BYTES,
        default: "`\"1m\"`",
        example: r#""64k""#,
        doc: "Bytes of the response of another server that may wait for the client, at least 16 KiB; the server \
              waits then. Beside it a response that is spliced has at most twice `receive-max` in pipes, and a \
              worker 1.25 MiB that its servers have sent before they were told to wait. With `fastcgi`, also bytes \
              of a long body that have come when the application hears of its request. With `fastcgi` and `cgi`, \
              also bytes of a body in chunks that are in memory, but 1 MiB at most: the rest waits in a file until all of it \
              has come, because the script or the program has to be told the length.",
        read: |shared, node, notes| match node.quantity(value::bytes, notes) {
            Some(bytes) if bytes < GatewayRules::BUFFER_MIN => {
                notes.error(node.place, "a buffer has 16 KiB at least");
            }
            bytes => set(&mut shared.gateway.buffer, bytes),
        },
        write: |route| buffer(route).map(|(bytes, _)| bytes_text(bytes)),
    },
    Key {
        name: "buffer-dir",
        kind: "directory, or `none`",
        default: "`\"none\"`",
        example: r#""/var/cache/samum""#,
        doc: "A directory on whose disk the response of another server waits for a slow client. So a large `buffer`, \
              of 4 MiB at least, costs 2.25 MiB of memory for each such client and not more. The files have no names \
              and are gone with the process. The file system has to know `O_TMPFILE` and holes in files (ext4, XFS, \
              Btrfs, tmpfs). If the disk is full, fails or does not answer within 2 s, the response goes on through \
              memory, and its server waits for the client. So does a response for which a worker has no file left, \
              beyond 128. With `fastcgi` and `cgi`, bodies of requests in chunks that are longer than `buffer` are \
              kept there, too, or if it is `none`, in `$TMPDIR`, else `/tmp`; `max-body-files` of `[server]` bounds \
              all of them. If the disk is full, fails or does not answer within 2 s, such a request is answered 503. \
              With `cgi` alone `buffer` may be less than 4 MiB.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.file(notes);
            set(&mut shared.gateway.buffer_dir, unless_none(node, notes, read));
        },
        write: |route| {
            let (_, dir) = buffer(route)?;
            Some(dir.map_or_else(|| quoted("none"), path_text))
        },
    },
    Key {
        name: "splice",
        kind: FLAG,
        default: "`true`",
        example: "false",
        doc: "If true, long responses of other servers whose length is known, and much that comes through a tunnel, go to \
              clients through a pipe, without being copied (`splice(2)`). If false, they go through the `buffer`, as all others do.",
        read: |shared, node, notes| set(&mut shared.gateway.splice, node.flag(notes)),
        write: |route| gateway(route).map(|rules| rules.splice.to_string()),
    },
    Key {
        name: "receive-max",
        kind: BYTES,
        default: "`\"512k\"`",
        example: r#""64k""#,
        doc: "Bytes of a long response of another server that are received at once, at least 4 KiB. Fewer of them \
              cost more CPU time each.",
        read: |shared, node, notes| match node.quantity(value::bytes, notes) {
            Some(bytes) if bytes < GatewayRules::RECEIVE_MIN => {
                notes.error(node.place, "4 KiB at least are received at once");
            }
            bytes => set(&mut shared.gateway.receive_max, bytes),
        },
        write: |route| gateway(route).map(|rules| bytes_text(rules.receive_max)),
    },
    Key {
        name: "half-close",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "A client that has sent its request may end its side of the connection and still wait for the answer \
              of a server, a script or a program. If false, such a client counts as one that has left, as most \
              have: unless the response has begun, the request is given up and the connection is closed. If true, \
              a client that has left is noticed when something is sent to it, or after `timeout-send`.",
        read: |shared, node, notes| set(&mut shared.half_close, node.flag(notes)),
        write: |route| route.action.is_gateway().then(|| route.half_close.to_string()),
    },
    Key {
        name: "max-body",
        kind: "bytes, or `none`",
        default: "`\"none\"`",
        example: r#""10MiB""#,
        doc: "Bytes that the body of a request may have, for routes with `proxy`, `fastcgi` or `cgi`; other routes take no \
              bodies, so the key is an error there. By default there is no limit. A request whose `Content-Length` says \
              more is answered 413 before anything else hears of it, and without a `100 Continue`. One in chunks that turns \
              out to be longer is answered 413, or its response is cut off if that has begun, and the connection to its server is \
              closed. The client's connection is closed in either case. What comes through a tunnel (`Upgrade`) is no body.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.quantity(value::bytes, notes);
            shared.max_body_place = Some(node.place);
            match unless_none(node, notes, read) {
                Some(Some(0)) => {
                    let text = "a body may have 1 byte at least; without a limit it is \"none\"";
                    notes.error(node.place, text);
                }
                bytes => set(&mut shared.max_body, bytes),
            }
        },
        write: |route| {
            let text = || route.max_body.map_or_else(|| quoted("none"), bytes_text);
            route.action.is_gateway().then(text)
        },
    },
    Key {
        name: "request-headers",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ X-Real-IP = "$client", Host = "$host", X-Key = "secret", Cookie = "" }"#,
        doc: "Fields that the servers of a route with `proxy` get. Fields with the same names, of the client and of \
              samum, are left out; `_` is the same as `-` there. A field whose value is empty is left out. In a \
              value `$client` stands for the address of the client, and `$peer` for the address of the other end of \
              its connection; both are `unknown` on a Unix socket. `$host` stands for the host that the client has \
              asked for; `$method`, `$path` and `$query` for these parts of the request as the client has sent them; \
              `$scheme` for `http` or `https`, by the connection or by what a trusted proxy says; `$request-id` for \
              the id of the request, which servers get in `X-Request-Id` anyway. \
              `$tls-client` is the subject of the certificate that the client of the connection has shown, as in \
              `CN=alice,O=Example`; a field that has it is left out of requests of clients on all routes. `$tls-version`, \
              `$tls-cipher` and `$tls-server-name` (SNI) are of the handshake, too; what there is not is empty. \
              `${client}x` is a variable with letters behind it, and `$$` is a dollar. `Host` is a host without \
              variables, or `$host`, which is what servers get without this key. Some fields cannot be changed, \
              because they frame a request, belong to one connection or count servers: `Connection`, \
              `Content-Length`, `Expect`, `Keep-Alive`, `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`, `Proxy` and \
              all that begin with it, `Max-Forwards` and `Via`. The questions of `check` have none of the fields. 64 \
              fields at most, each with 4,096 bytes and 8 variables at most, and 32 KiB together as they are written \
              here. A request whose head would have more than 64 KiB with them and its own fields is answered 431, \
              and the log names the route and the field. Servers have limits of their own, often lower ones, such as \
              8 KiB for a line, and answer 400 or 431 then.",
        read: |shared, node, notes| {
            shared.request_headers_place = Some(node.place);
            read_request_headers(&mut shared.request_headers, node, notes);
        },
        write: |route| request_headers_text(&route.request_headers),
    },
    Key {
        name: "timeout-connect",
        kind: SECONDS,
        default: "`5`",
        example: "1",
        doc: "The time in which a connection to another server must be made.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.timeout_connect, node.quantity(value::seconds, notes));
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.timeout_connect)),
    },
    Key {
        name: "timeout-upstream",
        kind: SECONDS,
        default: "`60`",
        example: "20",
        doc: "The time in which another server must send something while it is its turn. A request that it does \
              not answer is answered 504; a response that it does not continue is cut off. A connection that has \
              switched to another protocol is closed if nothing is sent through it in this time.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.timeout_upstream, node.quantity(value::seconds, notes));
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.timeout_upstream)),
    },
    Key {
        name: "timeout-upstream-send",
        kind: SECONDS,
        default: "`60`",
        example: "20",
        doc: "The time in which another server must take some bytes of a request, while some wait for it and it has \
              not answered; if it does not, the request is answered 504. A client that is slow to send its request \
              does not count here. Behind the head of the response only `timeout-upstream` counts, because a server \
              may answer without taking the rest of a body.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.timeout_upstream_send, node.quantity(value::seconds, notes));
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.timeout_upstream_send)),
    },
    Key {
        name: "balance",
        kind: "`round-robin`, `least` or `hash`",
        default: "`\"round-robin\"`",
        example: r#""least""#,
        doc: "The choice among several servers: each in its turn, one with the fewest requests at the moment (each \
              worker counts its own), or the same one for the same `hash-by`. With `hash`, a server that has 5/4 of \
              its share, and 16 requests or more, is passed over.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.balance, node.text(value::choice::<Balance>, notes));
        },
        write: |route| Some(quoted(&value::word::<Balance, _>(&gateway(route)?.balance))),
    },
    Key {
        name: "hash-by",
        kind: "`client` or `path`",
        default: "`\"client\"`",
        example: r#""path""#,
        doc: "The part of a request that has its server with `balance = \"hash\"`: the address of the client, or the \
              path.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.hash_by, node.text(value::choice::<HashBy>, notes));
        },
        write: |route| Some(quoted(&value::word::<HashBy, _>(&gateway(route)?.hash_by))),
    },
    Key {
        name: "retries",
        kind: "number",
        default: "`2`",
        example: "0",
        doc: "The number of times that a request is sent again at most, up to 2: to another server that has not \
              failed with it. That is done if no byte of it was sent. A `GET`, `HEAD`, `OPTIONS`, `PUT`, `DELETE` or \
              `TRACE` is also sent again if nothing of a response has come, and no more than 64 KiB of its body were \
              sent: so much is held. A `POST` or `PATCH` is never sent twice. A connection that was kept and that \
              the server has closed meanwhile does not count. All others are a fifth of the requests at most, and 10 \
              per second and worker.",
        read: |shared, node, notes| {
            let number = node.number(0..=i64::from(GatewayRules::RETRIES_MAX), notes);
            set(&mut shared.gateway.retries, number.and_then(|number| u32::try_from(number).ok()));
        },
        write: |route| gateway(route).map(|rules| rules.retries.to_string()),
    },
    Key {
        name: "max-fails",
        kind: "number",
        default: "`3`",
        example: "1",
        doc: "Requests in a row that a server does not answer before it is down; 0: it never is. A response with any \
              status is an answer. If all servers of a route are down, one is asked nevertheless.",
        read: |shared, node, notes| {
            let number = node.number(0..=1000, notes);
            let health = &mut shared.gateway.health;
            set(&mut health.max_fails, number.and_then(|number| u32::try_from(number).ok()));
        },
        write: |route| gateway(route).map(|rules| rules.health.max_fails.to_string()),
    },
    Key {
        name: "fail-timeout",
        kind: SECONDS,
        default: "`10`",
        example: "2",
        doc: "A server that is down is tried again by one request after this time, and after twice as long each \
              time that this fails, up to a minute. Failures that are further apart are not in a row.",
        read: |shared, node, notes| {
            let time = node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.fail_timeout, time);
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.health.fail_timeout)),
    },
    Key {
        name: "slow-start",
        kind: "seconds, or `none`",
        default: "`\"none\"`",
        example: "30",
        doc: "The time in which the share of a server grows from nothing to all of it: one that is up again, one at an \
              address that its name did not have when it was resolved before, or one that a reload has added to \
              others. With `balance = \"hash\"` this is a share of the keys that are the server's.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.slow_start, unless_none(node, notes, read));
        },
        write: |route| {
            let time = gateway(route)?.health.slow_start;
            Some(time.map_or_else(|| quoted("none"), seconds_text))
        },
    },
    Key {
        name: "check",
        kind: "path of a URL, or `none`",
        default: "`\"none\"`",
        example: r#""/health""#,
        doc: "A path that each server is asked for again and again. A server is down after 3 responses in a row that \
              have another status than 2xx or 3xx, or do not come, and up after 2 others.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::path, notes);
            set(&mut shared.gateway.health.check, unless_none(node, notes, read));
        },
        write: |route| {
            let check = &gateway(route)?.health.check;
            Some(check.as_deref().map_or_else(|| quoted("none"), quoted))
        },
    },
    Key {
        name: "check-interval",
        kind: SECONDS,
        default: "`5`",
        example: "1",
        doc: "The time from one such question to the next, in which the response must come. All workers together ask \
              once.",
        read: |shared, node, notes| {
            let time = node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.check_interval, time);
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.health.check_interval)),
    },
];

/// Keys, and the actions of routes that do something with them; other keys are for all actions. `max-body` and
/// `request-headers` are errors elsewhere.
const READERS: [(&[&str], &[&str]); 3] = [
    (
        &[
            "index",
            "listing",
            "cache",
            "readahead",
            "etag",
            "fallback",
            "clean-urls",
            "types",
            "default-type",
            "charset",
            "dotfiles",
            "symlinks",
            "precompressed",
            "includes",
            "include-types",
        ],
        &["files"],
    ),
    (
        &[
            "splice",
            "receive-max",
            "timeout-connect",
            "timeout-upstream",
            "timeout-upstream-send",
            "balance",
            "hash-by",
            "retries",
            "max-fails",
            "fail-timeout",
            "slow-start",
            "check",
            "check-interval",
        ],
        &["proxy", "fastcgi"],
    ),
    (&["buffer", "buffer-dir", "half-close"], &["proxy", "fastcgi", "cgi"]),
];

/// The actions of routes that do something with a key; `None` if all do.
pub(crate) fn readers(key: &str) -> Option<&'static [&'static str]> {
    READERS.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, actions)| *actions)
}

pub(super) const fn files(route: &Route) -> Option<&Files> {
    route.action.files()
}

/// The size and the directory of buffers.
fn buffer(route: &Route) -> Option<(u64, Option<&Path>)> {
    match &route.action {
        Action::Cgi(cgi) => Some((cgi.buffer, cgi.buffer_dir.as_deref())),
        _ => gateway(route).map(|rules| (rules.buffer, rules.buffer_dir.as_deref())),
    }
}

fn gateway(route: &Route) -> Option<&GatewayRules> {
    route.action.upstream().map(|upstream| &upstream.rules)
}

pub(super) fn errors_text(errors: &BTreeMap<u16, String>) -> Option<String> {
    let page = |(status, path): (&u16, &String)| format!("{status} = {}", quoted(path));
    let all: Vec<_> = errors.iter().map(page).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, FixedStatus, Upstream};

    #[test]
    fn keys_of_some_actions_are_those_that_others_do_not_print() {
        let route = |action| Route { action, ..Route::default() };
        let status = route(Action::Status(FixedStatus { code: 404, text: None }));
        let (servers, rules) = (Vec::new(), GatewayRules::default());
        let proxy = route(Action::Proxy(Upstream { servers, rules }));
        for (action, of_action) in [("files", Route::default()), ("proxy", proxy)] {
            for key in SHARED {
                let is_printed = |route| (key.write)(route).is_some();
                if is_printed(&of_action) && !is_printed(&status) && key.name != "max-body" {
                    let all = readers(key.name).unwrap_or_default();
                    assert!(all.contains(&action), "{}", key.name);
                }
            }
        }
        for name in READERS.iter().flat_map(|(keys, _)| *keys) {
            let key = SHARED.iter().find(|key| key.name == *name);
            assert!(key.is_some_and(|key| (key.write)(&status).is_none()), "{name}");
        }
    }
}

//! The keys of `[[site]]` that its routes have, too, and inherit.

use std::collections::BTreeMap;
use std::path::Path;

use sendfile::Window;

use super::headers::HEADER;
use super::limits::{LIMITS, limits_text};
use super::peers::read_peers;
use super::request_headers::{read_request_headers, request_headers_text};
use super::symlinks::{SYMLINKS, symlinks_text};
use super::text::{bytes_text, list_text, path_text, seconds_text, some_list_text};
use super::upstream_tls::{read_upstream_tls, upstream_tls_text};
use super::{
    BYTES, FLAG, Key, PREFIXES, SECONDS, inline_text, read_keys, read_keys_with, set, unless_none,
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
        doc: "The clients that may use the route; if the list is not empty, other clients are refused (403). The \
              list of a site is also for its responses that no route makes: errors for paths that no route has, and \
              `OPTIONS *`. A redirect to https or to the slash of a path is for the clients of the route to which it leads. If \
              several ranges of `allow` and `deny` contain an address, the most specific range decides. `unix` \
              stands for clients on a Unix socket for which no proxy of `trusted-proxies` gives an address. Limits \
              for each address do not apply to these clients.",
        read: |shared, node, notes| {
            set(&mut shared.access.allow, read_peers(node, notes));
        },
        write: |route| some_list_text(&route.access.allow),
    },
    Key {
        name: "deny",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["192.0.2.7"]"#,
        doc: "The clients that are refused (403). If the list has `::/0`, or `0.0.0.0/0` and `::/0`, `unix` is \
              refused, too, unless `allow` has `unix`.",
        read: |shared, node, notes| {
            set(&mut shared.access.deny, read_peers(node, notes));
        },
        write: |route| some_list_text(&route.access.deny),
    },
    Key {
        name: "limits",
        kind: "table",
        default: "`{}`",
        example: r#"{ connections-per-ip = 64, requests-per-ip = "100/s burst 200" }"#,
        doc: "Limits for each client address. A limit that the route does not set is the limit of its site. \
              The responses of a site that no route makes, redirects to https among them, have the limits of the site. \
              Requests that are malformed or too long are refused without limits.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            read_keys(shared, LIMITS, "limits", table, notes);
        },
        write: |route| {
            let limits = route.limits;
            let requests = limits.requests.filter(|_| limits.has_own_requests);
            let own = Limits { requests, ..limits };
            (own != Limits::default()).then(|| limits_text(&own))
        },
    },
    Key {
        name: "headers",
        kind: "list of tables",
        default: "`[]`",
        example: r#"[{ match = "*.css", set = { Cache-Control = "max-age=86400" }, remove = ["Server"] }]"#,
        doc: "Changes of the fields of responses, in this order. The changes of the site come before the changes of \
              the route. Responses that no route makes have the changes of the site: refusals such as a 400 or a 421, \
              redirects to https, and errors for paths that no route has.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                let mut rule = HeaderRule::default();
                read_keys(&mut rule, HEADER, "headers", node.table(notes)?, notes);
                Some(rule)
            };
            if node.is_table() && !node.is_list() {
                return node.expected(HEADERS, notes);
            }
            shared.headers.extend(node.list(notes, read).unwrap_or_default());
        },
        write: |route| headers_text(&route.headers),
    },
    Key {
        name: "errors",
        kind: "table of statuses and paths",
        default: "`{}`",
        example: r#"{ 404 = "/404.html", 503 = "/busy.html" }"#,
        doc: "Pages for statuses from 400 to 599, but 412 and 416: paths of the same site that lead to files. For a \
              status that the route does not set, the page of its site is sent. A page is sent with the status of \
              the error. If the page cannot be read, the built-in page is sent. A request without a route gets the \
              pages of the site; a request that is not HTTP gets the built-in page.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, place, node) in table.entries() {
                let status = name.parse().ok().ok_or_else(|| match name {
                    _ if name.contains([' ', ',', '-']) || name.ends_with("xx") => {
                        format!("`{name}` is no status: each status has an entry of its own")
                    }
                    _ => format!("`{name}` is no status"),
                });
                let status = status.and_then(rule::error_status);
                match (status, node.text(value::page, notes)) {
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
        doc: "The files that are served for their directory, 8 names at most: the first file that the directory has. \
              A directory with such a name is passed over. With `clean-urls` only the first name redirects to its \
              directory.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                let name = node.text(value::index, notes)?;
                let names: Vec<_> =
                    name.split([' ', ',']).filter(|name| !name.is_empty()).collect();
                if let [_, _, ..] = names[..] {
                    let list = list_text(&names);
                    notes.warning(
                        node.place,
                        format!("this is one name; several names are a list: {list}"),
                    );
                }
                Some(name)
            };
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
        doc: "Directories without a file of `index` are listed (HTML, or JSON for clients that prefer JSON).",
        read: |shared, node, notes| set(&mut shared.files.listing, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.listing.to_string()),
    },
    Key {
        name: "cache",
        kind: "`always`, `never` or `popular`",
        default: "`\"popular\"`",
        example: r#""never""#,
        doc: "The files that stay in the page cache after they were read; `samum serve --help` explains the values.",
        read: |shared, node, notes| {
            let cache = node.choice::<value::Cache>(notes);
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
        doc: "Prefetch at most this many bytes beyond the bytes that a client has taken: less than 4 GiB.",
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
            let etag = node.choice::<value::Etag>(notes);
            set(&mut shared.files.tags, etag.map(Into::into));
        },
        write: |route| Some(quoted(&value::word::<value::Etag, _>(&files(route)?.rules.tags))),
    },
    Key {
        name: "fallback",
        kind: "path of a URL, or `none`",
        default: "`\"none\"`",
        example: r#""/index.html""#,
        doc: "The file that is served with status 200 if a path leads to nothing: a path of the same site that leads \
              to files. If that file is missing, too, the response is a 404.",
        read: |shared, node, notes| {
            if node.is_list() {
                let text = "expected one path, such as `/index.html`: the requested file comes first anyway";
                return notes.error(node.place, text);
            }
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::fallback, notes);
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
        doc: "`/a` is answered with `a.html` if there is no file `a`. `/a.html` redirects to `/a`, and `/index.html` \
              to `/`. A page comes before the directory of the same name, as with nginx (`try_files $uri $uri.html \
              $uri/`), Caddy and GitHub Pages: `/a` is `a.html` and `/a/` the directory. A directory whose own name \
              ends with `.html` is a directory.",
        read: |shared, node, notes| set(&mut shared.files.clean_urls, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.clean_urls.to_string()),
    },
    Key {
        name: "types",
        kind: "table of names or extensions, and media types",
        default: "`{}`",
        example: r#"{ wasm = "application/wasm", SHA256SUMS = "text/plain" }"#,
        doc: "Media types by the whole name of a file, or by its extension, before the built-in types; the name \
              comes first, then the longest extension. Upper and lower case make no difference. For a name or an \
              extension that the route does not set, the type of its site is used. `README`, `LICENSE`, \
              `SHA256SUMS`, `Release`, `Makefile` and similar names are `text/plain`. A drawing with the extension \
              `svgz` is sent with `Content-Encoding: gzip`, also to clients that do not ask for gzip, unless `types` \
              gives `svgz` another type.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, place, node) in table.entries() {
                let read = |value: &str| rule::type_of(name, value);
                shared.files.types.extend(node.text(read, notes));
                if name.contains(' ') && name.split(' ').all(is_extension) {
                    let text =
                        "this is the name of one file: each extension has an entry of its own";
                    notes.warning(place, text);
                }
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
        doc: "The media type of files with unknown names and extensions. Browsers download the default.",
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
        doc: "Files and directories whose names begin with a dot are served. `/.well-known/` is served even without \
              this key.",
        read: |shared, node, notes| set(&mut shared.files.dotfiles, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.dotfiles.to_string()),
    },
    Key {
        name: "symlinks",
        kind: "`beneath`, `never`, `follow`, or table",
        default: "`\"beneath\"`",
        example: r#"{ follow = ["/mnt/disk2"] }"#,
        doc: "The symbolic links that are followed. `beneath`: links that stay beneath the directory; `never`: none; \
              `follow`: all links, to everything that the user of the server may read; a table: links that lead into \
              the directory or into the directories of the table. Other links lead to nothing, and are not in \
              listings; links into `/proc` never lead anywhere. `dotfiles` is about the path of the request, not \
              about the path of a target. A link with another name to a script or a program of the site leads to \
              nothing. If another process opens scripts by their paths, the rules of that process decide.",
        read: |shared, node, notes| {
            let symlinks = if node.is_table() {
                node.table(notes).map(|table| {
                    let mut into = Vec::new();
                    read_keys_with(&mut into, SYMLINKS, "symlinks", &["follow"], table, notes);
                    Symlinks::Into(into.into())
                })
            } else {
                node.choice_or::<Symlinks>(", or a table", notes)
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
        doc: "`a.css.br`, `a.css.zst` or `a.css.gz` is sent in place of `a.css` to clients that understand the \
              coding, even if this file is older than `a.css`: a program that writes `a.css` has to write the other \
              file anew, or remove it. This file may be a symbolic link if `symlinks` permits `a.css` to be a link.",
        read: |shared, node, notes| set(&mut shared.files.precompressed, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.precompressed.to_string()),
    },
    Key {
        name: "includes",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Files may have directives (server-side includes), such as `<!--#include virtual=\"/menu\" -->`, which \
              are replaced by their results: `include` (`virtual` or `file`); `echo` (with `encoding` `entity`, \
              `url` or `none`, and `default`); `set`; `if`, `elif`, `else`, `endif`; `config` (`errmsg`, `timefmt`). \
              The `expr` of a condition is a variable or a text, or two of these with `=` or `!=` between; there are \
              no regular expressions. An include is found as if the client had asked for its path, also in internal \
              routes, and may come from programs and upstreams; an error, a cycle or a response that is not a 200 \
              shows the error message instead. Variables are the variables of `set`, and these of the request: \
              `DOCUMENT_URI`, `DOCUMENT_NAME`, `QUERY_STRING`, `REQUEST_URI`, `REQUEST_METHOD`, `SERVER_PROTOCOL`, \
              `REMOTE_ADDR`; the times `LAST_MODIFIED`, `DATE_LOCAL` and `DATE_GMT`, all in UTC; `ARG_` with the \
              name of a part of the query; `HTTP_` with the name of a field. A file with directives has no ETag, no \
              Last-Modified, no ranges and no precompressed form, and 32 MiB at most; a file without directives is \
              sent like any other file. If an upstream, a script or a program hands a request over to a page, its \
              directives are processed, too. Error pages are sent as they are.",
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
        doc: "Bytes of the response of an upstream that may wait for the client, at least 16 KiB; at this limit the \
              upstream waits. In addition a spliced response has at most twice `receive-max` in pipes, and a worker \
              has at most 1.25 MiB from upstreams that could not be stopped in time. With `fastcgi`, also the bytes \
              of a long body that have come when the application gets its request. With `fastcgi` and `cgi`, also \
              the bytes of a body in chunks that are in memory, but 1 MiB at most: the rest waits in a file until \
              the whole body has come, because the script or the program must be given the length.",
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
        doc: "A directory on whose disk the response of an upstream waits for a slow client. So a large `buffer`, of \
              at least 4 MiB, costs at most 2.25 MiB of memory for each such client. The files have no names and \
              disappear with the process. The file system has to know `O_TMPFILE` and holes in files (ext4, XFS, \
              Btrfs, tmpfs). The response goes on through memory if the disk is full, fails or does not answer \
              within 2 s, or if a worker already has 128 files. Then its upstream waits for the client. With \
              `fastcgi` and `cgi`, bodies of requests in chunks that are longer than `buffer` are in files of this \
              directory, too; with `none` these files are in `$TMPDIR`, else `/tmp`. `max-body-files` of `[server]` \
              bounds these files. If the disk is full, fails or does not answer within 2 s, a request with such a \
              body is answered 503. With `cgi` alone `buffer` may be less than 4 MiB.",
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
        doc: "If true, long responses of upstreams with known lengths, and many bytes of tunnels, go to clients \
              through a pipe, without a copy (`splice(2)`). If false, these bytes go through the `buffer`, as all \
              other responses do.",
        read: |shared, node, notes| set(&mut shared.gateway.splice, node.flag(notes)),
        write: |route| gateway(route).map(|rules| rules.splice.to_string()),
    },
    Key {
        name: "receive-max",
        kind: BYTES,
        default: "`\"512k\"`",
        example: r#""64k""#,
        doc: "Bytes of a long response of an upstream that are received in one step, at least 4 KiB. With a smaller \
              number each byte costs more CPU time.",
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
        doc: "A client that has sent its request may end its side of the connection and still wait for the answer of \
              an upstream, a script or a program. If false, such a client counts as a client that has left, because \
              most such clients have left: the request is given up and the connection is closed, unless the response \
              has begun. If true, the server notices that a client has left when it sends something to the client, \
              or after `timeout-send`.",
        read: |shared, node, notes| set(&mut shared.half_close, node.flag(notes)),
        write: |route| route.action.is_gateway().then(|| route.half_close.to_string()),
    },
    Key {
        name: "max-body",
        kind: "bytes, or `none`",
        default: "`\"none\"`",
        example: r#""10MiB""#,
        doc: "Bytes that the body of a request may have, for routes with `proxy`, `fastcgi` or `cgi`; other routes \
              use no bodies, so the key is an error there. By default there is no limit. A request with a larger \
              `Content-Length` is answered 413 at once, without a `100 Continue`, and nothing is passed on. If a \
              body in chunks becomes longer, the request is answered 413, or its response is cut off if it has \
              begun, and the connection to the upstream is closed. The client's connection is closed in both cases. \
              The bytes of a tunnel (`Upgrade`) are no body.",
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
        doc: "Fields that the upstreams of a route with `proxy` get. Fields with the same names, of the client and \
              of samum, are left out; in these names `_` is the same as `-`. A field whose value is empty is left \
              out. In a value `$client` stands for the address of the client, and `$peer` for the address of the \
              other end of its connection; both are `unknown` on a Unix socket. `$host` stands for the host that the \
              client has asked for; `$method`, `$path` and `$query` for these parts of the request as the client has \
              sent them; `$scheme` for `http` or `https`, by the connection or by a trusted proxy; `$request-id` for \
              the id of the request, which upstreams get in `X-Request-Id` anyway. `$tls-client` is the subject of \
              the certificate that the client of the connection has shown, as in `CN=alice,O=Example`; if a field \
              uses this variable, fields of clients with the same name are left out on all routes. `$tls-version`, \
              `$tls-cipher` and `$tls-server-name` (SNI) are of the handshake, too; a variable without a value is \
              empty. `${client}x` is a variable with letters after it, and `$$` is a dollar. `Host` is a host \
              without variables, or `$host`, which upstreams also get without this key. Some fields cannot be \
              changed, because they frame a request, belong to one connection or count servers: `Connection`, \
              `Content-Length`, `Expect`, `Keep-Alive`, `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`, `Proxy` and \
              all names that begin with `Proxy`, `Max-Forwards` and `Via`. The requests of `check` have none of \
              these fields. The table has 64 fields at most, each with 4,096 bytes and 8 variables at most, and 32 \
              KiB together as they are written here. A request whose head would have more than 64 KiB with these \
              fields is answered 431, and the log names the route and the field. Upstreams have limits of their own, \
              often lower limits, such as 8 KiB for a line, and then answer 400 or 431.",
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
        doc: "The time in which a connection to an upstream must be made.",
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
        doc: "The time in which an upstream must send something while samum waits for it. If the upstream sends no \
              response, the request is answered 504; if the upstream does not continue a response, the response is \
              cut off. A connection that has switched to another protocol is closed if nothing is sent through it in \
              this time.",
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
        doc: "The time in which an upstream must take some bytes of a request, while bytes wait and the upstream has \
              not answered; otherwise the request is answered 504. The time in which the client is slow to send its \
              request does not count. After the head of the response only `timeout-upstream` counts, because an \
              upstream may answer without taking the rest of a body.",
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
        doc: "The choice among several servers. `round-robin`: each server in its turn; `least`: a server with the \
              fewest requests at the moment (each worker counts its own requests); `hash`: the same server for the \
              same `hash-by`. With `hash`, a server that has 5/4 of its share, and 16 requests or more, is passed \
              over.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.balance, node.choice::<Balance>(notes));
        },
        write: |route| Some(quoted(&value::word::<Balance, _>(&gateway(route)?.balance))),
    },
    Key {
        name: "hash-by",
        kind: "`client` or `path`",
        default: "`\"client\"`",
        example: r#""path""#,
        doc: "The part of a request that chooses the server with `balance = \"hash\"`: the address of the client, or \
              the path.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.hash_by, node.choice::<HashBy>(notes));
        },
        write: |route| Some(quoted(&value::word::<HashBy, _>(&gateway(route)?.hash_by))),
    },
    Key {
        name: "retries",
        kind: "number",
        default: "`2`",
        example: "0",
        doc: "The maximum number of times that a request is sent again, up to 2: to another server that has not \
              failed with this request. A request is sent again if no byte of it was sent. A `GET`, `HEAD`, \
              `OPTIONS`, `PUT`, `DELETE` or `TRACE` is also sent again if nothing of a response has come, and at \
              most 64 KiB of its body were sent. samum holds at most these 64 KiB. A `POST` or `PATCH` is never sent \
              again after a byte of it may have been sent. A kept connection that the server has closed meanwhile \
              does not count. All other retries are at most a fifth of the requests, plus 10 per second and worker.",
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
        doc: "The number of requests in a row that a server does not answer before it counts as down; with 0 it \
              never does. A response with any status is an answer. If all servers of a route are down, one of them \
              is asked nevertheless.",
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
        doc: "A server that is down is tried again by one request after this time. Each time that the request fails, \
              the time doubles, up to a minute. Failures that are further apart than this time are not in a row.",
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
        doc: "The time in which the share of a server grows from nothing to its full share: if the server is up \
              again, if its address is a new address of its name, or if a reload has added the server to others. \
              With `balance = \"hash\"` this is a share of the server's keys.",
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
        doc: "A path that each server is asked for again and again. A server is down after 3 failures in a row (no \
              response, or a status other than 2xx or 3xx), and up after 2 successes in a row.",
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
        doc: "The time from one request of `check` to the next, in which the response must come. All workers \
              together send one request.",
        read: |shared, node, notes| {
            let time = node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.check_interval, time);
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.health.check_interval)),
    },
    Key {
        name: "upstream-tls",
        kind: "table",
        default: "`{}`",
        example: r#"{ ca = "/etc/ssl/private-ca.pem", name = "app.internal.example" }"#,
        doc: "The TLS of connections to servers whose URL begins with `https://`: TLS 1.3 or 1.2, with a certificate that is \
              verified. A server whose certificate is not accepted counts as one that has failed: the answer is a 502 if \
              no other server has one, and the log says why. Such a server is never asked without TLS.",
        read: read_upstream_tls,
        write: |route| match &route.action {
            Action::Proxy(upstream) => upstream.rules.tls.as_deref().map(upstream_tls_text),
            _ => None,
        },
    },
];

/// The value of `headers`.
const HEADERS: &str = "a list of tables, such as `[{ set = { Cache-Control = \"no-cache\" } }]`";

/// Keys, and the actions of routes that do something with them; other keys are for all actions. `max-body` and
/// `request-headers` are errors elsewhere.
const READERS: [(&[&str], &[&str]); 4] = [
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
    (&["upstream-tls"], &["proxy"]),
    (&["buffer", "buffer-dir", "half-close"], &["proxy", "fastcgi", "cgi"]),
];

/// The actions of routes that do something with a key; `None` if all do.
pub(crate) fn readers(key: &str) -> Option<&'static [&'static str]> {
    READERS.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, actions)| *actions)
}

/// Returns true if a word is like an extension in a list of them, rather than a part of a name.
fn is_extension(word: &str) -> bool {
    (1..=5).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
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

pub(super) fn headers_text(rules: &[HeaderRule]) -> Option<String> {
    let all: Vec<_> = rules.iter().map(|rule| inline_text(HEADER, rule)).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
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

//! Answers command lines with the words of other servers: `python3 -m http.server`, `caddy`, `nginx`, `darkhttpd` and the
//! like.
//!
//! The answer is the whole command line in the words of samum. It is asked for only after a command line was refused, so
//! no word here changes the meaning of one that is right.

use core::net::Ipv6Addr;

use config::{suggest, value};

/// The meaning of a word that samum does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// A port follows.
    Port,
    /// A host or an address follows, perhaps with a port.
    Host,
    /// An address with its port follows.
    Address,
    /// The directory follows.
    Directory,
    /// The file of a certificate follows.
    Certificate,
    /// The file of a key follows.
    Key,
    /// An address follows, or else directories are listed: `-l`.
    AddressOrListing,
    /// A signal of nginx follows, or else it is about an application of a single page: `-s`.
    SignalOrFallback,
    /// The flag has another name here, and the same value.
    Flag(&'static str),
    /// The file of an access log follows, unless that is standard output.
    Log,
    /// These arguments have the same meaning, and no value follows.
    Same(&'static [&'static str]),
    /// Another command does it.
    Command(Command),
    /// It is not needed here.
    Needless,
    /// It and the value that follows are not needed here.
    NeedlessValue,
}

/// A command other than `samum serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Check,
    Reload,
    Reopen,
    Restart,
    Status,
    Stop,
    Version,
}

const LISTING: Word = Word::Same(&["--listing"]);
const FALLBACK: Word = Word::Same(&["--fallback", "/index.html"]);

/// The flags, and the words that stand where samum has its command.
const WORDS: &[(&str, Word)] = &[
    ("--access-log", Word::Log),
    ("--access-logfile", Word::Flag("--log")),
    ("--addr", Word::Host),
    ("--autoindex", LISTING),
    ("--bind", Word::Host),
    ("--browse", LISTING),
    ("--cache-size", Word::NeedlessValue),
    ("--cert", Word::Certificate),
    ("--certificate", Word::Certificate),
    ("--chroot", Word::Needless),
    ("--compress", Word::Needless),
    ("--conf", Word::Flag("--config")),
    ("--cors", Word::Same(&["--headers", "Access-Control-Allow-Origin: *"])),
    ("--daemon", Word::Needless),
    ("--dir", Word::Directory),
    ("--directory", Word::Directory),
    ("--directory-listing", LISTING),
    ("--dirlist", LISTING),
    ("--docroot", Word::Directory),
    ("--document-root", Word::Directory),
    ("--foreground", Word::Needless),
    ("--gid", Word::NeedlessValue),
    ("--gzip", Word::Needless),
    ("--host", Word::Host),
    ("--hostname", Word::Host),
    ("--https", Word::Same(&["--tls", "self-signed"])),
    ("--ip", Word::Host),
    ("--key", Word::Key),
    ("--list", LISTING),
    ("--log-file", Word::Flag("--log")),
    ("--log-level", Word::NeedlessValue),
    ("--logfile", Word::Flag("--log")),
    ("--loglevel", Word::NeedlessValue),
    ("--maxconn", Word::Flag("--max-connections")),
    ("--no-daemon", Word::Needless),
    ("--no-dotfiles", Word::Needless),
    ("--no-listing", Word::Needless),
    ("--open", Word::Needless),
    ("--path", Word::Directory),
    ("--port", Word::Port),
    ("--quiet", Word::Needless),
    ("--root", Word::Directory),
    ("--silent", Word::Needless),
    ("--single", FALLBACK),
    ("--spa", FALLBACK),
    ("--ssl", Word::Same(&["--tls", "self-signed"])),
    ("--ssl-cert", Word::Certificate),
    ("--ssl-key", Word::Key),
    ("--timeout", Word::Flag("--timeout-idle")),
    ("--tls-cert", Word::Certificate),
    ("--tls-key", Word::Key),
    ("--uid", Word::Flag("--user")),
    ("--verbose", Word::Same(&["--log", "-"])),
    ("--webroot", Word::Directory),
    ("--workers", Word::Flag("--threads")),
    ("-D", Word::Needless),
    ("-P", Word::Port),
    ("-S", Word::Address),
    ("-T", Word::Command(Command::Check)),
    ("-a", Word::Host),
    ("-b", Word::Host),
    ("-c", Word::Flag("--config")),
    ("-d", Word::Directory),
    ("-f", Word::Flag("--config")),
    ("-g", Word::NeedlessValue),
    ("-l", Word::AddressOrListing),
    ("-m", Word::NeedlessValue),
    ("-o", Word::Needless),
    ("-p", Word::Port),
    ("-q", Word::Needless),
    ("-r", Word::Directory),
    ("-s", Word::SignalOrFallback),
    ("-t", Word::Command(Command::Check)),
    ("-u", Word::Flag("--user")),
    ("-v", Word::Command(Command::Version)),
    ("-w", Word::Flag("--threads")),
    ("configtest", Word::Command(Command::Check)),
    ("file-server", Word::Needless),
    ("http-server", Word::Needless),
    ("http.server", Word::Needless),
    ("restart", Word::Command(Command::Restart)),
    ("run", Word::Needless),
    ("start", Word::Needless),
    ("status", Word::Command(Command::Status)),
    ("stop", Word::Command(Command::Stop)),
    ("validate", Word::Command(Command::Check)),
    ("version", Word::Command(Command::Version)),
];

fn word(text: &str) -> Option<Word> {
    WORDS.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning)
}

/// The facts about samum and the machine on which the answer depends.
pub(super) trait Facts {
    /// Returns whether a value follows a flag of `samum serve`, such as `--listen`; `None` if there is no such flag.
    fn takes_value(&self, flag: &str) -> Option<bool>;

    /// Returns the flag of `samum serve` that a misspelled flag is similar to, if there is one.
    fn similar(&self, flag: &str) -> Option<String>;

    /// Returns true if samum has a command with this name.
    fn is_command(&self, name: &str) -> bool;

    /// Returns the command that a misspelled command is similar to, if there is one.
    fn similar_command(&self, name: &str) -> Option<String>;

    /// Returns true if there is a directory with this path.
    fn is_directory(&self, path: &str) -> bool;
}

/// Answers a command line that was refused, without the name of the program. There is no answer if all its words are
/// samum's, or no word is known.
pub(super) fn answer(arguments: &[String], facts: &impl Facts) -> Option<String> {
    if let Some(("check", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        return answer_of_check(rest);
    }
    if let [first, name] = arguments
        && first == "help"
    {
        let near = command_near(name, facts).filter(|_| !facts.is_command(name))?;
        return Some(format!("there is no `{name}`: `samum help {near}`"));
    }
    let mut found = Found::default();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    let mut has_command = rest.next_if(|first| *first == "serve").is_some();
    if !has_command && rest.peek().is_some_and(|first| facts.is_command(first)) {
        return None;
    }
    if let (false, Some(first)) = (has_command, rest.peek().copied())
        && let Some(near) = command_near(first, facts)
    {
        rest.next();
        if near != "serve" {
            let all: Vec<_> = [&*near].into_iter().chain(rest).map(quoted).collect();
            return Some(format!("there is no `{first}`: `samum {}`", all.join(" ")));
        }
        found.foreign.push(first.to_owned());
        has_command = true;
    }
    let mut is_behind_dashes = false;
    while let Some(argument) = rest.next() {
        if argument == "--" && !is_behind_dashes {
            is_behind_dashes = true;
            continue;
        }
        if is_behind_dashes || !argument.starts_with('-') || argument == "-" {
            found.positional(argument, facts);
            continue;
        }
        let (name, attached) = split(argument);
        let is_known = facts.takes_value(name).is_some() || word(name).is_some();
        let near = if is_known { None } else { facts.similar(name).or_else(|| similar(name)) };
        if near.is_some() {
            found.foreign.push(name.to_owned());
        }
        let is_near = near.is_some();
        let name = near.as_deref().unwrap_or(name);
        let mut value = || match attached {
            Some(attached) => Some(attached.to_owned()),
            None => rest.next_if(|next| !next.starts_with('-')).map(str::to_owned),
        };
        match (facts.takes_value(name), word(name)) {
            (Some(false), _) if is_near => found.flags.push(name.to_owned()),
            (Some(false), _) => found.flags.push(argument.to_owned()),
            (Some(true), _) if name == "--listen" => found.listen.extend(value()),
            (Some(true), _) if name == "--config" => found.config = value(),
            (Some(true), _) => {
                found.flags.push(name.to_owned());
                found.flags.extend(value());
            }
            (None, Some(word)) => {
                if !is_near {
                    found.foreign.push(name.to_owned());
                }
                found.foreign_flag(word, &mut value, facts);
            }
            (None, None) => {
                found.unknown.push(argument.to_owned());
                // Its value is neither a port nor a directory.
                if attached.is_none() {
                    let is_value =
                        |next: &&str| !next.starts_with('-') && !facts.is_directory(next);
                    found.unknown.extend(rest.next_if(is_value).map(str::to_owned));
                }
            }
        }
    }
    found.into_answer(has_command)
}

/// Answers the arguments of `samum check`, which takes its file without a flag.
fn answer_of_check(arguments: &[String]) -> Option<String> {
    let mut found = Found { command: Some(Command::Check), ..Found::default() };
    for argument in arguments {
        let (name, attached) = split(argument);
        let is_of_file = matches!(word(name), Some(Word::Flag("--config")))
            || matches!(word(name), Some(Word::Command(Command::Check)))
            || ["--config", "--file"].contains(&name);
        if is_of_file && name.starts_with('-') {
            found.foreign.push(name.to_owned());
            found.config = attached.map(str::to_owned).or(found.config);
        } else if !argument.starts_with('-') {
            found.config = Some(argument.clone());
        } else if !["--quiet", "-q"].contains(&name) {
            return None;
        }
    }
    found.into_answer(true)
}

/// The command that the first argument is a misspelling of, if it is one. A directory of this name would be meant.
fn command_near(first: &str, facts: &impl Facts) -> Option<String> {
    let may_be = first.chars().all(|char| char.is_ascii_alphabetic())
        && word(first).is_none()
        && !facts.is_directory(first);
    if may_be { facts.similar_command(first) } else { None }
}

/// The word of another server that a misspelled flag is similar to, if there is one.
fn similar(flag: &str) -> Option<String> {
    let long = WORDS.iter().filter_map(|(word, _)| word.strip_prefix("--"));
    suggest::nearest(flag.strip_prefix("--")?, long).map(|name| format!("--{name}"))
}

/// Splits `--name=value` and `-pvalue`.
fn split(argument: &str) -> (&str, Option<&str>) {
    if let Some((name, value)) = argument.split_once('=') {
        return (name, Some(value));
    }
    // The value follows a short flag directly, but only if the flag has a value.
    match argument.split_at_checked(2) {
        Some((short, value)) if !argument.starts_with("--") && !value.is_empty() => {
            let has_value = matches!(word(short), Some(Word::Port | Word::Directory | Word::Host));
            if has_value { (short, Some(value)) } else { (argument, None) }
        }
        _ => (argument, None),
    }
}

/// Returns true if an address has a port, as in `:80`, `localhost:80` and `[::]:80`.
fn has_port(address: &str) -> bool {
    let is_bare = address.parse::<Ipv6Addr>().is_ok();
    !is_bare && address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// The parts of a command line.
#[derive(Debug, Default)]
struct Found {
    /// The words that samum does not have.
    foreign: Vec<String>,
    /// Flags that nobody knows.
    unknown: Vec<String>,
    command: Option<Command>,
    config: Option<String>,
    directory: Option<String>,
    is_directory_sure: bool,
    host: Option<String>,
    port: Option<String>,
    listen: Vec<String>,
    certificate: Option<String>,
    key: Option<String>,
    /// Other arguments of `samum serve`.
    flags: Vec<String>,
}

impl Found {
    /// Takes an argument that is no flag.
    fn positional(&mut self, argument: &str, facts: &impl Facts) {
        let is_directory = facts.is_directory(argument);
        if is_directory || argument.contains('/') && !argument.contains("://") {
            let is_file = [".toml", ".conf", "Caddyfile"].iter().any(|end| argument.ends_with(end));
            if is_file && !is_directory {
                self.config = Some(argument.to_owned());
            } else {
                self.directory = Some(argument.to_owned());
            }
            self.is_directory_sure = true;
        } else if argument.parse::<u16>().is_ok() {
            self.foreign.push(argument.to_owned());
            self.port = Some(argument.to_owned());
        } else if value::address(argument).is_ok() {
            self.foreign.push(argument.to_owned());
            self.listen.push(argument.to_owned());
        } else if let Some(word) = word(argument) {
            self.foreign.push(argument.to_owned());
            self.foreign_flag(word, &mut || None, facts);
        } else if argument.ends_with(".toml") {
            self.config = Some(argument.to_owned());
            self.is_directory_sure = true;
        } else {
            self.directory = Some(argument.to_owned());
        }
    }

    /// Takes a word that samum does not have, and its value if there is one.
    fn foreign_flag(
        &mut self,
        word: Word,
        value: &mut dyn FnMut() -> Option<String>,
        facts: &impl Facts,
    ) {
        match word {
            Word::Port => self.port = Some(value().unwrap_or_else(|| "PORT".to_owned())),
            Word::Host => match value() {
                // Some servers take the port there, too.
                Some(given) if has_port(&given) => self.listen.push(given),
                given => self.host = Some(given.unwrap_or_else(|| "ADDRESS".to_owned())),
            },
            Word::Address => {
                self.listen.push(value().unwrap_or_else(|| "ADDRESS:PORT".to_owned()));
            }
            Word::Directory => {
                self.directory = value().or_else(|| self.directory.take());
                self.is_directory_sure = true;
            }
            Word::Certificate => self.certificate = value(),
            Word::Key => self.key = value(),
            Word::AddressOrListing => match value() {
                Some(text) if text.parse::<u16>().is_ok() => self.port = Some(text),
                Some(text) if value::address(&text).is_ok() => self.listen.push(text),
                other => {
                    self.flags.push("--listing".to_owned());
                    if let Some(text) = other {
                        self.positional(&text, facts);
                    }
                }
            },
            Word::SignalOrFallback => match value().as_deref() {
                Some("reload") => self.command = Some(Command::Reload),
                Some("reopen") => self.command = Some(Command::Reopen),
                Some("stop" | "quit") => self.command = Some(Command::Stop),
                other => {
                    self.foreign_flag(FALLBACK, &mut || None, facts);
                    if let Some(text) = other {
                        self.positional(text, facts);
                    }
                }
            },
            Word::Flag("--config") => self.config = Some(value().unwrap_or_else(|| "FILE".into())),
            Word::Flag(name) => {
                self.flags.push(name.to_owned());
                self.flags.extend(value());
            }
            Word::Log => {
                let value = value();
                let (directory, file) = match value {
                    Some(text) if facts.is_directory(&text) => (Some(text), None),
                    file => (None, file),
                };
                self.flags.extend(["--log".to_owned(), file.unwrap_or_else(|| "-".to_owned())]);
                if let Some(directory) = directory {
                    self.positional(&directory, facts);
                }
            }
            Word::Same(arguments) => {
                self.flags.extend(arguments.iter().map(|&text| text.to_owned()));
            }
            Word::Command(command) => self.command = Some(command),
            Word::Needless => {}
            Word::NeedlessValue => {
                let of_module = value().filter(|text| self::word(text).is_some());
                self.foreign.extend(of_module);
            }
        }
    }

    fn into_answer(self, has_command: bool) -> Option<String> {
        let is_known = self.is_directory_sure || !self.flags.is_empty() || !self.listen.is_empty();
        let is_known = is_known || self.config.is_some();
        let reason = if !self.foreign.is_empty() {
            let all: Vec<_> = self.foreign.iter().map(|word| format!("`{word}`")).collect();
            format!("there is no {}", all.join(" and no "))
        } else if !has_command && is_known && self.unknown.is_empty() {
            "a command is missing".to_owned()
        } else {
            return None;
        };
        let command = match self.command {
            None => format!("`{}`", self.into_serve()),
            Some(Command::Check) => {
                let file = self.config.as_deref().unwrap_or("/etc/samum/samum.toml");
                format!("`samum check {}`", quoted(file))
            }
            Some(Command::Reload) => "`samum reload`".to_owned(),
            Some(Command::Reopen) => "send SIGUSR1 to the server".to_owned(),
            Some(Command::Restart) => {
                "`samum upgrade`, without losing a connection, or `systemctl restart samum`"
                    .to_owned()
            }
            Some(Command::Status) => "`samum health`, or `systemctl status samum`".to_owned(),
            Some(Command::Stop) => {
                "send SIGTERM to the server, or `systemctl stop samum`".to_owned()
            }
            Some(Command::Version) => "`samum --version`".to_owned(),
        };
        Some(format!("{reason}: {command}"))
    }

    /// The command line in the words of samum.
    fn into_serve(self) -> String {
        let mut all = vec!["samum".to_owned(), "serve".to_owned()];
        let is_of_file = self.config.is_some();
        match self.config {
            Some(file) => all.extend(["--config".to_owned(), file]),
            None => all.push(self.directory.unwrap_or_else(|| "DIR".to_owned())),
        }
        let mut listen = self.listen;
        if self.host.is_some() || self.port.is_some() {
            let host = self.host.unwrap_or_else(|| "127.0.0.1".to_owned());
            let port = self.port.unwrap_or_else(|| "8080".to_owned());
            let is_ipv6 = host.parse::<Ipv6Addr>().is_ok();
            listen.push(if is_ipv6 {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            });
        }
        if !is_of_file {
            all.extend(listen.into_iter().flat_map(|address| ["--listen".to_owned(), address]));
        }
        match (self.certificate, self.key) {
            (None, None) => {}
            (Some(one), None) | (None, Some(one)) => all.extend(["--tls".to_owned(), one]),
            (Some(certificate), Some(key)) => {
                all.extend(["--tls".to_owned(), format!("{certificate},{key}")]);
            }
        }
        all.extend(self.flags);
        all.extend(self.unknown);
        let all: Vec<_> = all.iter().map(|argument| quoted(argument)).collect();
        all.join(" ")
    }
}

/// Quotes an argument for a shell, if it has to be quoted.
fn quoted(argument: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "-_./:,=@%+[]".contains(char);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Facts for Fake {
        fn takes_value(&self, flag: &str) -> Option<bool> {
            match flag {
                "--listing" => Some(false),
                "--listen" | "--config" | "--index" | "--threads" => Some(true),
                _ => None,
            }
        }

        fn similar(&self, flag: &str) -> Option<String> {
            let known = ["listing", "listen", "config", "index", "threads"];
            let near = suggest::nearest(flag.strip_prefix("--")?, known)?;
            Some(format!("--{near}"))
        }

        fn is_command(&self, name: &str) -> bool {
            ["serve", "check", "reload"].contains(&name)
        }

        fn similar_command(&self, name: &str) -> Option<String> {
            suggest::nearest(name, ["serve", "check", "reload"]).map(str::to_owned)
        }

        fn is_directory(&self, path: &str) -> bool {
            [".", "/srv", "public", "2024"].contains(&path)
        }
    }

    fn answered(line: &str) -> Option<String> {
        let arguments: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        answer(&arguments, &Fake)
    }

    #[test]
    fn words_of_other_servers_are_answered_in_the_words_of_this_one() {
        for (line, foreign, expected) in [
            ("--port 8000", "`--port`", "samum serve DIR --listen 127.0.0.1:8000"),
            ("--port=8000", "`--port`", "samum serve DIR --listen 127.0.0.1:8000"),
            ("--port", "`--port`", "samum serve DIR --listen 127.0.0.1:PORT"),
            ("-p 80", "`-p`", "samum serve DIR --listen 127.0.0.1:80"),
            ("-p80 /srv", "`-p`", "samum serve /srv --listen 127.0.0.1:80"),
            ("--list", "`--list`", "samum serve DIR --listing"),
            ("--list public", "`--list`", "samum serve public --listing"),
            ("-l", "`-l`", "samum serve DIR --listing"),
            ("-l /srv", "`-l`", "samum serve /srv --listing"),
            ("-l 3000", "`-l`", "samum serve DIR --listen 127.0.0.1:3000"),
            ("-l 0.0.0.0:3000", "`-l`", "samum serve DIR --listen 0.0.0.0:3000"),
            ("serve --port 80", "`--port`", "samum serve DIR --listen 127.0.0.1:80"),
            ("serve /srv --list", "`--list`", "samum serve /srv --listing"),
            ("serve -d /srv", "`-d`", "samum serve /srv"),
            ("serve -d", "`-d`", "samum serve DIR"),
            ("serve --root /srv", "`--root`", "samum serve /srv"),
            (
                "serve . --listing --index a.html -p 1",
                "`-p`",
                "samum serve . --listen 127.0.0.1:1 --listing --index a.html",
            ),
            ("8000", "`8000`", "samum serve DIR --listen 127.0.0.1:8000"),
            ("serve /srv 8000", "`8000`", "samum serve /srv --listen 127.0.0.1:8000"),
            ("serve 2024 8000", "`8000`", "samum serve 2024 --listen 127.0.0.1:8000"),
            // python3 -m http.server
            (
                "-m http.server 8000",
                "`-m` and no `http.server` and no `8000`",
                "samum serve DIR --listen 127.0.0.1:8000",
            ),
            (
                "http.server -b :: -d /srv 80",
                "`http.server` and no `-b` and no `-d` and no `80`",
                "samum serve /srv --listen [::]:80",
            ),
            ("--bind 0.0.0.0 .", "`--bind`", "samum serve . --listen 0.0.0.0:8080"),
            ("--bind :80", "`--bind`", "samum serve DIR --listen :80"),
            ("--host [::]:80", "`--host`", "samum serve DIR --listen [::]:80"),
            ("serve --no-dotfiles", "`--no-dotfiles`", "samum serve DIR"),
            // caddy
            (
                "file-server --browse",
                "`file-server` and no `--browse`",
                "samum serve DIR --listing",
            ),
            (
                "file-server --listen 127.0.0.1:80 --root /srv",
                "`file-server` and no `--root`",
                "samum serve /srv --listen 127.0.0.1:80",
            ),
            ("run --config Caddyfile", "`run`", "samum serve --config Caddyfile"),
            ("validate --config a.toml", "`validate`", "samum check a.toml"),
            // nginx
            ("-c /etc/nginx.conf", "`-c`", "samum serve --config /etc/nginx.conf"),
            ("-t", "`-t`", "samum check /etc/samum/samum.toml"),
            ("-t -c x.toml", "`-t` and no `-c`", "samum check x.toml"),
            ("-s reload", "`-s`", "samum reload"),
            ("-s", "`-s`", "samum serve DIR --fallback /index.html"),
            ("-s public", "`-s`", "samum serve public --fallback /index.html"),
            ("-v", "`-v`", "samum --version"),
            ("version", "`version`", "samum --version"),
            // Misspelled commands.
            ("sreve", "`sreve`", "samum serve DIR"),
            ("serv /x", "`serv`", "samum serve /x"),
            ("Serve /srv --listing", "`Serve`", "samum serve /srv --listing"),
            ("serv . --port 80", "`serv` and no `--port`", "samum serve . --listen 127.0.0.1:80"),
            ("chek /etc/a.toml", "`chek`", "samum check /etc/a.toml"),
            ("relaod --control s", "`relaod`", "samum reload --control s"),
            ("help serv", "`serv`", "samum help serve"),
            // darkhttpd
            (
                "/srv --port 80 --addr 0.0.0.0 --daemon --maxconn 9",
                "`--port` and no `--addr` and no `--daemon` and no `--maxconn`",
                "samum serve /srv --listen 0.0.0.0:80 --max-connections 9",
            ),
            (
                "--cert a.pem --key b.pem /srv",
                "`--cert` and no `--key`",
                "samum serve /srv --tls a.pem,b.pem",
            ),
            ("--cors", "`--cors`", "samum serve DIR --headers 'Access-Control-Allow-Origin: *'"),
            ("--port 80 --what", "`--port`", "samum serve DIR --listen 127.0.0.1:80 --what"),
            ("--root it's", "`--root`", r"samum serve 'it'\''s'"),
            ("--access-log x /srv", "`--access-log`", "samum serve /srv --log x"),
            ("--access-log /srv", "`--access-log`", "samum serve /srv --log -"),
            ("/srv --access-log", "`--access-log`", "samum serve /srv --log -"),
            ("serve --log-level 3", "`--log-level`", "samum serve DIR"),
            // Misspelled flags, whose values are no ports.
            ("serve --treads 3", "`--treads`", "samum serve DIR --threads 3"),
            ("serve --treads=3 .", "`--treads`", "samum serve . --threads 3"),
            ("--treads 3 /srv", "`--treads`", "samum serve /srv --threads 3"),
            ("serve --lissten 8080", "`--lissten`", "samum serve DIR --listen 8080"),
            ("serve --worker 2", "`--worker`", "samum serve DIR --threads 2"),
            ("serve --listning", "`--listning`", "samum serve DIR --listing"),
            ("serve --config F --treads 3", "`--treads`", "samum serve --config F --threads 3"),
            // The file of `check` is no flag.
            ("check --config F", "`--config`", "samum check F"),
            ("check --config=F -q", "`--config`", "samum check F"),
            ("check -c F", "`-c`", "samum check F"),
            ("check -t F", "`-t`", "samum check F"),
            ("check -t", "`-t`", "samum check /etc/samum/samum.toml"),
        ] {
            let expected = format!("there is no {foreign}: `{expected}`");
            assert_eq!(answered(line).as_deref(), Some(&expected[..]), "{line}");
        }
        let stop = answered("-s quit").expect("a signal");
        assert!(stop.contains("SIGTERM"), "{stop}");
        let reopen = answered("-s reopen").expect("a signal");
        assert!(reopen.contains("SIGUSR1"), "{reopen}");
    }

    #[test]
    fn a_command_that_was_left_out_is_named() {
        for (line, expected) in [
            ("/srv", "samum serve /srv"),
            ("public", "samum serve public"),
            ("/not/there", "samum serve /not/there"),
            ("--listing", "samum serve DIR --listing"),
            ("--listen 127.0.0.1:80 .", "samum serve . --listen 127.0.0.1:80"),
            ("--config a.toml", "samum serve --config a.toml"),
            ("a.toml", "samum serve --config a.toml"),
            ("/etc/samum/a.toml", "samum serve --config /etc/samum/a.toml"),
        ] {
            let expected = format!("a command is missing: `{expected}`");
            assert_eq!(answered(line).as_deref(), Some(&expected[..]), "{line}");
        }
    }

    #[test]
    fn words_that_no_table_has_are_left_to_the_parser() {
        for line in [
            "",
            "nothing",
            "help",
            "help nothing",
            "help serve",
            "help serve x",
            "serve a b",
            "serve --what 3",
            "check",
            "check --what F",
            "check a b",
            "--listing --x",
        ] {
            assert_eq!(answered(line), None, "{line}");
        }
    }

    #[test]
    fn words_of_service_managers_name_what_does_it() {
        for (line, expected) in [
            ("status", "there is no `status`: `samum health`, or `systemctl status samum`"),
            (
                "restart",
                "there is no `restart`: `samum upgrade`, without losing a connection, or `systemctl restart samum`",
            ),
            ("stop", "there is no `stop`: send SIGTERM to the server, or `systemctl stop samum`"),
        ] {
            assert_eq!(answered(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn each_word_is_there_once() {
        assert!(WORDS.is_sorted_by(|one, other| one.0 < other.0), "sorted");
    }
}

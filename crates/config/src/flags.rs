//! The keys of `[server]` as flags of a command line: `--timeout-idle 60` is `timeout-idle = 60`.
//!
//! A flag has the name, the description and the default of its key, and its value is read as that of the key.

use std::path::Path;

use toml::de::DeTable;

use super::Server;
use super::draft::Draft;
use super::expand::Texts;
use super::keys::{self, ACCOUNT, BYTES, PREFIXES, Row, SECONDS};
use super::message::{Notes, Span};
use super::node::{Origin, Table};
use super::value::exact;

/// A key of `[server]` as a flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    row: Row,
}

/// Returns the flags, in the order of the reference.
pub fn all() -> impl Iterator<Item = Flag> {
    keys::server_rows().map(|row| Flag { row })
}

impl Flag {
    /// The name, without dashes in front.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row.name
    }

    /// The description: its first sentence, without the point.
    #[must_use]
    pub fn summary(self) -> &'static str {
        let doc = self.row.doc;
        let end = doc.find(". ").or_else(|| doc.strip_suffix('.').map(str::len));
        &doc[..end.unwrap_or(doc.len())]
    }

    /// The whole description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.row.doc
    }

    /// The default, in words or as it is given.
    #[must_use]
    pub fn default(self) -> &'static str {
        match self.row.default.trim_matches(['`', '"']) {
            "[]" => "none",
            default => default,
        }
    }

    /// The words that are its values, if it has only these.
    #[must_use]
    pub fn words(self) -> Vec<&'static str> {
        let is_choice = self.row.kind.starts_with('`');
        self.row.kind.split('`').skip(1).step_by(2).filter(|_| is_choice).collect()
    }

    /// The name of its value in a description.
    #[must_use]
    pub fn value_name(self) -> &'static str {
        match self.row.kind {
            BYTES | "bytes" => "BYTES",
            "bytes per second" => "BYTES/S",
            SECONDS => "S",
            PREFIXES => "RANGE",
            ACCOUNT => "USER[:GROUP]",
            "number" => "N",
            _ if self.is_list() => "NAME",
            _ if !self.words().is_empty() => "WORD",
            _ => "PATH",
        }
    }

    /// Returns whether it may be given several times.
    #[must_use]
    pub fn is_list(self) -> bool {
        self.row.kind.starts_with("list")
    }

    /// Returns whether one value may have several elements, with commas between them.
    #[must_use]
    pub fn has_commas(self) -> bool {
        self.row.kind == PREFIXES
    }

    /// Puts a value in the place of what the server has. A list has one or more values, other flags one. A relative
    /// path stays as it is.
    ///
    /// # Errors
    ///
    /// A sentence about the fault of the value.
    pub fn set(self, server: &mut Server, values: &[impl AsRef<str>]) -> Result<(), String> {
        let number = |value: &str| self.row.kind == "number" && value.parse::<u32>().is_ok();
        let element = |value: &str| if number(value) { value.to_owned() } else { exact(value) };
        let elements: Vec<_> = values.iter().map(|value| element(value.as_ref())).collect();
        let text =
            if self.is_list() { format!("[{}]", elements.join(", ")) } else { elements.concat() };
        let line = format!("{} = {text}", self.row.name);
        let table = DeTable::parse(&line).map_err(|error| error.message().to_owned())?;
        let (directory, texts) = (Path::new(""), Texts::default());
        // A shell has replaced the variables of the environment.
        let origin = Origin { file: 0, directory, passed: &[], texts: &texts, text: &line };
        let table = Table::new(table.get_ref(), Span::start(0), origin);
        let (mut draft, mut notes) = (Draft::new(server.clone()), Notes::default());
        keys::read_server(&mut draft, table, &mut notes);
        if let Some(error) = notes.first_error() {
            // Each flag is a string.
            return Err(error.trim_end_matches(", found a string").to_owned());
        }
        *server = draft.server;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn set(name: &str, values: &[&str]) -> Result<Server, String> {
        let mut server = Server::default();
        let flag = all().find(|flag| flag.name() == name).expect("it is a key");
        flag.set(&mut server, values).map(|()| server)
    }

    #[test]
    fn the_value_of_a_flag_is_read_as_that_of_its_key() {
        assert_eq!(set("threads", &["3"]).unwrap().threads, 3);
        assert_eq!(
            set("timeout-idle", &["2.5"]).unwrap().tuning.timeout_idle,
            Duration::from_millis(2500)
        );
        assert_eq!(
            set("timeout-idle", &["20s"]).unwrap().tuning.timeout_idle,
            Duration::from_secs(20)
        );
        assert_eq!(set("max-body-files", &["1m"]).unwrap().tuning.body_files_max, 1 << 20);
        assert_eq!(set("max-ranges", &["7"]).unwrap().tuning.ranges_max, 7);
        assert_eq!(set("control", &["a/b"]).unwrap().control.as_deref(), Some(Path::new("a/b")));
        let proxies = set("trusted-proxies", &["10.0.0.0/8", "unix"]).unwrap().trusted_proxies;
        assert_eq!(proxies.len(), 2);
        let names = set("interface", &["eth1", "eth2"]).unwrap().interfaces;
        assert_eq!(names.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["eth1", "eth2"]);
    }

    #[test]
    fn a_value_that_is_wrong_changes_nothing_and_says_why() {
        for (name, value, why) in [
            ("threads", "0", "from 1 to 1024"),
            ("threads", "many", "from 1 to 1024"),
            ("threads", "1\nmax-ranges = 3", "from 1 to 1024"),
            ("timeout-idle", "soon", "seconds"),
            ("driver", "kqueue", "`auto`, `uring` or `epoll`"),
            ("trusted-proxies", "\"", "address"),
            ("control", "", "path"),
        ] {
            let error = set(name, &[value]).expect_err(name);
            assert!(error.contains(why), "--{name} {value}: {error}");
        }
    }

    #[test]
    fn flags_are_described_in_one_line_and_in_full() {
        for flag in all() {
            let summary = flag.summary();
            assert!(!summary.is_empty() && !summary.ends_with('.'), "{}", flag.name());
            assert!(flag.description().starts_with(summary), "{}", flag.name());
        }
        let driver = all().find(|flag| flag.name() == "driver").unwrap();
        assert_eq!((driver.words(), driver.default()), (vec!["auto", "uring", "epoll"], "auto"));
    }
}

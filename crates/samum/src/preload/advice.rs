//! `samum preload --check`: says whether the library will help a program on this machine, and why.

use core::fmt;
use std::fs::{self, File};
use std::io::IoSliceMut;
use std::path::Path;
use std::process::Command;

use rustix::io::{Errno, ReadWriteFlags};

use crate::warnings::IN_MEMORY;

use super::{Kind, Preload, check, find, in_front, library, program_kind};

/// The result for one condition.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// The library helps as far as this goes.
    Met(String),
    /// The library cannot help.
    NotMet(String),
    /// This cannot be found out.
    Unknown(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met(text) => write!(to, "yes: {text}"),
            Self::NotMet(text) => write!(to, "no: {text}"),
            Self::Unknown(text) => write!(to, "not known: {text}"),
        }
    }
}

/// Finds out whether the library will help a command that sends the files of a directory. Returns the text for the
/// user, a line for each condition; the result is an error if one is not met.
pub fn advise(preload: &Preload, directory: &Path) -> (String, Result<(), String>) {
    let mut findings = program(preload);
    findings.push(trial());
    findings.push(file_system(directory));
    findings.extend(UNKNOWN.map(|text| Finding::Unknown(text.into())));
    conclude(&findings)
}

/// The conditions that nobody can find out without running the server.
const UNKNOWN: [&str; 2] = [
    "whether the server sends files by sendfile(2): nginx needs `sendfile on`, Apache httpd `EnableSendfile on`, and \
     neither may encrypt or compress them",
    "whether the server may ask cachestat(2) about the files: since Linux 6.16 only for files that its user owns or may \
     write; for others the library helps, and costs more CPU time",
];

fn conclude(findings: &[Finding]) -> (String, Result<(), String>) {
    let text = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let helps = !findings.iter().any(|finding| matches!(finding, Finding::NotMet(_)));
    (text, if helps { Ok(()) } else { Err("the preload library will not help".into()) })
}

fn program(preload: &Preload) -> Vec<Finding> {
    let Some(program) = preload.command.first() else { return Vec::new() };
    let path = match find(program) {
        Ok(path) => path,
        Err(error) => return vec![Finding::NotMet(error)],
    };
    let name = path.display();
    if let Err(why) = check(&path) {
        return vec![Finding::NotMet(format!("{name} cannot be preloaded: {why}"))];
    }
    vec![match program_kind(&path) {
        Some(Kind::Script) => Finding::Unknown(format!(
            "which program the script {name} runs: name that program instead of the script"
        )),
        Some(_) => Finding::Met(format!("{name} is loaded by a loader that preloads libraries")),
        None => Finding::Unknown(format!("how {name} is loaded: the file cannot be read")),
    }]
}

/// Runs true(1) with the library, which says in its log whether it is on.
fn trial() -> Finding {
    let library = match library() {
        Ok(library) => library,
        Err(error) => return Finding::NotMet(error),
    };
    let value = match in_front(&library) {
        Ok(value) => value,
        Err(error) => return Finding::NotMet(error),
    };
    let name = library.display();
    let unknown = || Finding::Unknown(format!("whether {name} works: true(1) cannot be preloaded"));
    let Ok(path) = find("true".as_ref()) else { return unknown() };
    if check(&path).is_err() || program_kind(&path) != Some(Kind::Dynamic) {
        return unknown();
    }
    let mut command = Command::new(&path);
    command.env("LD_PRELOAD", value).env("SAMUM_PRELOAD_LOG", "-");
    let Ok(output) = command.env_remove("SAMUM_PRELOAD_STATS").output() else { return unknown() };
    let said = String::from_utf8_lossy(&output.stderr);
    heard(&format!("{name}"), &said)
}

/// Understands what the library, or the loader, has said.
fn heard(library: &str, said: &str) -> Finding {
    if said.lines().any(|line| line.starts_with("samum-preload[") && line.ends_with(" is on")) {
        return Finding::Met(format!("{library} can be loaded, and makes its system calls"));
    }
    match said.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => Finding::NotMet(format!("{library} does not work here: {line}")),
        None => Finding::NotMet(format!("{library} stays off (is SAMUM_PRELOAD=off set?)")),
    }
}

/// Asks the file system of a directory what is in memory, as the library does.
fn file_system(directory: &Path) -> Finding {
    let name = directory.display();
    let kind =
        rustix::fs::statfs(directory).ok().and_then(|found| u64::try_from(found.f_type).ok());
    if kind.is_some_and(|kind| IN_MEMORY.contains(&kind)) {
        return Finding::NotMet(format!(
            "all files of {name} are in memory: no call waits for a disk"
        ));
    }
    let file = fs::read_dir(directory).ok().and_then(|entries| {
        let mut files = entries.take(ENTRIES_MAX).flatten();
        files.find_map(|entry| {
            entry
                .file_type()
                .is_ok_and(|kind| kind.is_file())
                .then(|| File::open(entry.path()).ok())?
        })
    });
    let Some((file, len)) = file.and_then(|file| file.metadata().ok().map(|it| (file, it.len())))
    else {
        return Finding::Unknown(format!(
            "whether the file system of {name} says what is in memory: the directory has no file that can be read"
        ));
    };
    // A byte after the end, so that no read begins.
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    match rustix::io::preadv2(&file, &mut parts, len, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => {
            Finding::Met(format!("the file system of {name} says what is in memory"))
        }
        Err(Errno::OPNOTSUPP) => Finding::NotMet(format!(
            "the file system of {name} does not say what is in memory (as FUSE and NFS do not)"
        )),
        Err(error) => Finding::Unknown(format!(
            "whether the file system of {name} says what is in memory: {error}"
        )),
    }
}

/// The most entries of a directory in which a file is searched.
const ENTRIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_that_is_not_met_decides() {
        let [yes, no, unknown] =
            [Finding::Met("a".into()), Finding::NotMet("b".into()), Finding::Unknown("c".into())];
        let (text, result) = conclude(&[yes, unknown]);
        assert_eq!((&text[..], result), ("yes: a\nnot known: c\n", Ok(())));
        let (text, result) = conclude(&[no]);
        assert!(text == "no: b\n" && result.is_err());
    }

    #[test]
    fn the_words_of_the_library_and_of_the_loader_are_understood() {
        for (said, helps) in [
            ("samum-preload[7]: version 1.0.0 is on\n", true),
            (
                "samum-preload[7]: a seccomp filter does not allow preadv2: everything is left to the kernel\n",
                false,
            ),
            ("ERROR: ld.so: object '/l.so' from LD_PRELOAD cannot be preloaded: ignored.\n", false),
            ("", false),
        ] {
            let found = heard("/l.so", said);
            assert_eq!(matches!(found, Finding::Met(_)), helps, "{found}");
            assert!(said.trim().is_empty() || helps || found.to_string().contains(said.trim()));
        }
    }

    #[test]
    fn a_directory_in_memory_or_without_files_is_told() {
        let missing = file_system(Path::new("/nowhere"));
        assert!(matches!(missing, Finding::Unknown(_)), "{missing}");
        let proc = file_system(Path::new("/proc/self"));
        assert!(matches!(proc, Finding::NotMet(_) | Finding::Unknown(_)), "{proc}");
    }
}

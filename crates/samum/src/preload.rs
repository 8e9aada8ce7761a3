//! `samum preload`: runs a command with `libsamum_preload.so` in front of the C library.

use core::iter;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum as _;
use config::errno::words;
use config::value::{self, Cache};

/// The command to run, the choices for the library, and the reports that it is to make.
#[derive(Debug)]
pub struct Preload {
    /// The command, and its arguments; not empty.
    pub command: Vec<OsString>,
    /// `SAMUM_PRELOAD_STATS`.
    pub stats: Option<PathBuf>,
    /// `SAMUM_PRELOAD_LOG`.
    pub log: Option<OsString>,
    /// `SAMUM_PRELOAD_CACHE`.
    pub cache: Option<Cache>,
    /// `SAMUM_PRELOAD_READAHEAD`, in bytes.
    pub readahead: Option<u64>,
}

/// Reads the largest window of the library.
///
/// # Errors
///
/// A sentence for the user.
pub fn readahead(text: &str) -> Result<u64, String> {
    let bytes = value::readahead(text)?;
    if bytes < WINDOW_MIN {
        return Err(
            "expected at least 256k, because the library reads whole blocks of 256 KiB".into()
        );
    }
    Ok(bytes)
}

/// A block of the library's reads.
const WINDOW_MIN: u64 = 256 * 1024;

mod advice;

pub use advice::advise;

const LIBRARY: &str = "libsamum_preload.so";
/// The environment variable that names the library.
const LIBRARY_VARIABLE: &str = "SAMUM_PRELOAD_LIB";
/// The environment variable that turns the library off.
const SWITCH_VARIABLE: &str = "SAMUM_PRELOAD";

/// Replaces this process by the command.
///
/// # Errors
///
/// The function returns only if it failed; the message says what to do.
pub fn exec(preload: &Preload) -> Result<(), String> {
    let (program, arguments) = preload.command.split_first().ok_or("there is no command to run")?;
    if let Some(choice) = vain(preload, env::var_os(SWITCH_VARIABLE).as_deref()) {
        return Err(format!(
            "{SWITCH_VARIABLE} turns the library off, so {choice} would do nothing: unset {SWITCH_VARIABLE}"
        ));
    }
    let library = library()?;
    let path = find(program)?;
    let name = path.display();
    check(&path).map_err(|why| format!("cannot preload {name}: {why}"))?;
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments).env("LD_PRELOAD", in_front(&library)?);
    if let Some(stats) = &preload.stats {
        command.env("SAMUM_PRELOAD_STATS", absolute(stats)?);
    }
    match &preload.log {
        Some(log) if log == "-" => _ = command.env("SAMUM_PRELOAD_LOG", log),
        Some(log) => _ = command.env("SAMUM_PRELOAD_LOG", absolute(Path::new(log))?),
        None => {}
    }
    if let Some(cache) = preload.cache.and_then(|cache| cache.to_possible_value()) {
        command.env("SAMUM_PRELOAD_CACHE", cache.get_name());
    }
    if let Some(bytes) = preload.readahead {
        command.env("SAMUM_PRELOAD_READAHEAD", bytes.to_string());
    }
    Err(format!("cannot run {name}: {}", command.exec()))
}

/// A choice that would have no effect, because the environment turns the library off.
fn vain(preload: &Preload, switch: Option<&OsStr>) -> Option<&'static str> {
    let is_off = switch.is_some_and(|value| value == "off" || value == "0");
    let choices =
        [(preload.cache.is_some(), "--cache"), (preload.readahead.is_some(), "--readahead")];
    choices.into_iter().find_map(|(is_made, name)| (is_off && is_made).then_some(name))
}

/// Makes a path absolute, because a server may change its working directory.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Finds the library: at the path in the environment, else beside this program, else in `../lib` or `../lib/samum`, where
/// the Debian package has it.
fn library() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE) {
        let path = absolute(Path::new(&path))?;
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("there is no library {} (named by {LIBRARY_VARIABLE})", path.display()))
        };
    }
    let program =
        env::current_exe().map_err(|error| format!("cannot tell where samum is: {error}"))?;
    let directory = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = [".", "../lib", "../lib/samum"].map(|place| directory.join(place).join(LIBRARY));
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{LIBRARY} is neither in {} nor in ../lib or ../lib/samum beside it (the Debian package samum-preload \
             has it); set {LIBRARY_VARIABLE}=PATH",
            directory.display()
        )
    })
}

/// The value of `LD_PRELOAD`, with the library in front of the libraries in it.
fn in_front(library: &Path) -> Result<OsString, String> {
    // For the loader, both characters separate names.
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(format!(
            "LD_PRELOAD cannot name {}: its path has a space or colon; copy it to another place",
            library.display()
        ));
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// Finds the file of a command, in `PATH` unless its name has a slash.
fn find(program: &OsStr) -> Result<PathBuf, String> {
    let name = program.display();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match fs::metadata(&path) {
            Ok(found) if is_program(&found) => Ok(path),
            Ok(_) => Err(format!("cannot run {name}: it is not an executable file")),
            Err(error) => Err(format!("cannot run {name}: {}", words(&error))),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    // Servers are in /usr/sbin, which is not in the PATH of most users.
    let places = env::split_paths(&path).chain(iter::once(PathBuf::from("/usr/sbin")));
    let mut found = places.map(|place| place.join(program));
    found
        .find(|path| fs::metadata(path).is_ok_and(|found| is_program(&found)))
        .ok_or_else(|| format!("there is no command {name} in PATH"))
}

fn is_program(found: &fs::Metadata) -> bool {
    found.is_file() && found.mode() & 0o111 != 0
}

/// Checks that the dynamic loader will use `LD_PRELOAD`: that of a program, or of the program that runs a script.
fn check(path: &Path) -> Result<(), String> {
    check_at_depth(path, 0)
}

/// The kernel starts a script whose interpreter is a script, and so on to this depth (fs/exec.c `exec_binprm`).
const SCRIPTS_MAX: usize = 5;

/// `depth`: the scripts in front of this file.
fn check_at_depth(path: &Path, depth: usize) -> Result<(), String> {
    let read = |error: io::Error| error.to_string();
    let file = File::open(path);
    // A user may be allowed to run the file and not to read it. Then the loader reports the error.
    let Ok(mut file) = file else { return Ok(()) };
    let found = file.metadata().map_err(read)?;
    // The kernel sets AT_SECURE by the same rules (security/commoncap.c): root gains nothing from
    // capabilities, and no user gains anything from a program that is setuid to that user.
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let gains_user = found.mode() & 0o4000 != 0 && found.uid() != user.as_raw();
    let gains_group = found.mode() & 0o2000 != 0 && found.gid() != group.as_raw();
    if gains_user || gains_group {
        return Err("it is setuid or setgid, so the loader ignores LD_PRELOAD".into());
    }
    if !user.is_root() && has_capabilities(&file) {
        return Err("it has file capabilities, so the loader ignores LD_PRELOAD".into());
    }
    match kind(&mut file).map_err(read)? {
        Kind::Dynamic => Ok(()),
        Kind::Script => match interpreter(&mut file).map_err(read)? {
            Some(runs) if depth < SCRIPTS_MAX => check_at_depth(&runs, depth + 1)
                .map_err(|why| format!("its interpreter {}: {why}", runs.display())),
            // The system reports what it cannot start, and a shell runs a text without an interpreter.
            _ => Ok(()),
        },
        Kind::Musl => {
            Err("it uses musl, and the library needs glibc (use a build for glibc)".into())
        }
        Kind::Static => {
            Err("it is statically linked, so there is no C library to replace calls of \
                             (Go programs, for example, make system calls directly)"
                .into())
        }
        Kind::Foreign => Err("it is built for another machine than the library \
                              (32 bits, or another processor)"
            .into()),
    }
}

/// The way in which a program is loaded; none if its file cannot be read.
fn program_kind(path: &Path) -> Option<Kind> {
    File::open(path).and_then(|mut file| kind(&mut file)).ok()
}

fn has_capabilities(file: &File) -> bool {
    rustix::fs::fgetxattr(file, c"security.capability", &mut [0u8; 64][..]).is_ok()
}

/// The way in which a program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By the dynamic loader.
    Dynamic,
    /// The dynamic loader of musl starts it. This loader cannot load a library for glibc.
    Musl,
    /// By the kernel alone.
    Static,
    /// ELF, but not for this machine.
    Foreign,
    /// By another program.
    Script,
}

/// Reads the ELF header and the program headers (elf(5)) for 64 bits and this byte order.
fn kind(file: &mut (impl io::Read + io::Seek)) -> io::Result<Kind> {
    const CLASS_64: u8 = 2;
    const INTERPRETER: u32 = 3;
    let mut header = [0; 64];
    let mut len = 0;
    while len < header.len() {
        match file.read(&mut header[len..])? {
            0 => break,
            more => len += more,
        }
    }
    if !header.starts_with(b"\x7fELF") {
        return Ok(Kind::Script);
    }
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if len < header.len() || header[4] != CLASS_64 || word(18) != machine {
        return Ok(Kind::Foreign);
    }
    let table = u64::from_ne_bytes(header[32..40].try_into().expect("8 bytes"));
    let (size, count) = (word(54), word(56));
    for index in 0..u64::from(count) {
        let mut entry = [0; 40];
        file.seek(SeekFrom::Start(table.saturating_add(index * u64::from(size))))?;
        file.read_exact(&mut entry)?;
        if u32::from_ne_bytes(entry[..4].try_into().expect("4 bytes")) == INTERPRETER {
            let long =
                |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
            let mut loader = Vec::new();
            file.seek(SeekFrom::Start(long(8)))?;
            file.take(long(32).min(LOADER_BYTES_MAX)).read_to_end(&mut loader)?;
            let is_musl = loader.windows(MUSL.len()).any(|part| part == MUSL);
            return Ok(if is_musl { Kind::Musl } else { Kind::Dynamic });
        }
    }
    Ok(Kind::Static)
}

/// The program that runs a script: the first word after `#!` (execve(2)). None without such a line.
fn interpreter(file: &mut (impl io::Read + io::Seek)) -> io::Result<Option<PathBuf>> {
    let mut head = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(SCRIPT_LINE_BYTES_MAX).read_to_end(&mut head)?;
    let line = head.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let mut words = line.unwrap_or_default().split(|byte| matches!(byte, b' ' | b'\t'));
    let first = words.find(|word| !word.is_empty());
    Ok(first.map(|word| PathBuf::from(OsStr::from_bytes(word))))
}

/// The bytes of a script at which the kernel looks (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_BYTES_MAX: u64 = 256;

/// A part of the name of musl's loader: `/lib/ld-musl-x86_64.so.1`.
const MUSL: &[u8] = b"/ld-musl-";
/// The longest name of a loader that is read: the longest path.
const LOADER_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn elf(class: u8, machine: u16, headers: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        file[18..20].copy_from_slice(&machine.to_ne_bytes());
        file[32..40].copy_from_slice(&64u64.to_ne_bytes());
        file[54..56].copy_from_slice(&56u16.to_ne_bytes());
        file[56..58].copy_from_slice(&u16::try_from(headers.len()).unwrap().to_ne_bytes());
        for header in headers {
            file.extend(header.to_ne_bytes());
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn a_window_has_a_block_at_least() {
        assert_eq!(readahead("256k"), Ok(WINDOW_MIN));
        assert_eq!(readahead("8m"), Ok(8 << 20));
        for (text, advice) in
            [("255k", "at least 256k"), ("0", "at least 256k"), ("4g", "at most"), ("x", "such as")]
        {
            assert!(readahead(text).unwrap_err().contains(advice), "{text}");
        }
    }

    #[test]
    fn programs_are_told_apart_by_their_headers() {
        let ours = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        for (file, expected) in [
            (elf(2, ours, &[1, 3, 2]), Kind::Dynamic),
            (elf(2, ours, &[1, 2]), Kind::Static),
            (elf(2, ours, &[]), Kind::Static),
            (elf(1, 3, &[3]), Kind::Foreign),
            (elf(2, 8, &[3]), Kind::Foreign),
            (b"#!/bin/sh\n".to_vec(), Kind::Script),
            (b"".to_vec(), Kind::Script),
            (b"\x7fELF\x02".to_vec(), Kind::Foreign),
        ] {
            assert_eq!(kind(&mut Cursor::new(file)).unwrap(), expected);
        }
        let cut = elf(2, ours, &[1])[..70].to_vec();
        assert!(kind(&mut Cursor::new(&cut[..66])).is_err());
    }

    #[test]
    fn the_interpreter_of_a_script_is_its_first_word() {
        for (text, expected) in [
            ("#!/bin/sh\necho", Some("/bin/sh")),
            ("#! \t/usr/bin/env  python3\n", Some("/usr/bin/env")),
            ("#!/bin/sh", Some("/bin/sh")),
            ("#!\n/bin/sh\n", None),
            ("#!", None),
            ("echo\n#!/bin/sh", None),
            ("", None),
        ] {
            let found = interpreter(&mut Cursor::new(text)).unwrap();
            assert_eq!(found.as_deref(), expected.map(Path::new), "{text:?}");
        }
    }

    #[test]
    fn the_loader_of_musl_is_known_by_its_name() {
        for (loader, expected) in [
            (&b"/lib64/ld-linux-x86-64.so.2\0"[..], Kind::Dynamic),
            (b"/lib/ld-musl-x86_64.so.1\0", Kind::Musl),
            (b"/opt/musl/ld-linux.so.2\0", Kind::Dynamic),
        ] {
            let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
            let mut file = elf(2, machine, &[1, 3]);
            let entry = 64 + 56;
            let at = file.len();
            file[entry + 8..entry + 16].copy_from_slice(&(at as u64).to_ne_bytes());
            file[entry + 32..entry + 40].copy_from_slice(&(loader.len() as u64).to_ne_bytes());
            file.extend(loader);
            assert_eq!(kind(&mut Cursor::new(file)).unwrap(), expected);
        }
    }

    #[test]
    fn a_library_with_a_separator_in_its_path_is_refused() {
        for path in ["/a b/lib.so", "/a:b/lib.so"] {
            assert!(in_front(Path::new(path)).unwrap_err().contains("copy it"), "{path}");
        }
    }
}
